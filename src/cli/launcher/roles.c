#include "cli/launcher/roles.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

enum { NONE, WORKER, SERVER };

static int32_t own_role(void) {
    const char *text = getenv("ROLE");
    return !text                         ? NONE
           : strcmp(text, "worker") == 0 ? WORKER
           : strcmp(text, "server") == 0 ? SERVER
                                         : NONE;
}

static kolo_status place(kolo_comm *comm, const int32_t *roles, int *servers, kolo_comm **placed) {
    const int n = kolo_comm_size(comm), rank = kolo_comm_rank(comm);
    int with = -1, without = -1;
    *servers = 0;
    for (int r = n; r-- > 0;) {
        *(roles[r] == NONE ? &without : &with) = r;
        *servers += roles[r] == SERVER;
    }
    if (with < 0) return KOLO_OK;
    if (without >= 0) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "rank %d has ROLE=%s, and rank %d has no role: give every process "
                         "ROLE=server or ROLE=worker, or none",
                         with, roles[with] == SERVER ? "server" : "worker", without);
    }
    if (*servers == n) {
        return KOLO_FAIL(KOLO_ERR_ARG, "all %d processes have ROLE=server: there must be a worker",
                         n);
    }
    return kolo_comm_split(comm, 0, (roles[rank] == SERVER ? n : 0) + rank, placed);
}

/* The roles of all ranks; free them with kolo_free. */
static kolo_status gather(kolo_comm *comm, int32_t **roles) {
    const size_t bytes = (size_t)kolo_comm_size(comm) * sizeof **roles;
    *roles = kolo_zalloc(bytes);
    if (!*roles) return KOLO_NOMEM(bytes);
    (*roles)[kolo_comm_rank(comm)] = own_role();
    return kolo_allgather(comm, NULL, *roles, 1, KOLO_DTYPE_I32);
}

kolo_status roles_place(kolo_comm *comm, int *servers, kolo_comm **placed) {
    int32_t *roles;
    *placed = NULL;
    kolo_status status = gather(comm, &roles);
    if (status == KOLO_OK) status = place(comm, roles, servers, placed);
    kolo_free(roles);
    return status;
}

kolo_status roles_find_server(kolo_comm *comm, int *rank) {
    int32_t *roles;
    kolo_status status = gather(comm, &roles);
    *rank = -1;
    for (int r = kolo_comm_size(comm); r-- > 0 && status == KOLO_OK;) {
        if (roles[r] == SERVER) *rank = r;
    }
    kolo_free(roles);
    return status;
}

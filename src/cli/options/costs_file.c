/* The file of cost constants. */
#include "cli/options/costs_file.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "cli/options/cache_folder.h"

#include <stdio.h>
#include <unistd.h>

kolo_status costs_file_path(bool make, char **path) {
    char host[64] = "";
    *path = NULL;
    if (gethostname(host, sizeof host - 1) != 0 || !host[0]) snprintf(host, sizeof host, "machine");
    for (char *c = host; *c; c++) *c = *c == '/' ? '_' : *c;
    char *name = kolo_format("allreduce-%s.costs", host);
    if (!name) return KOLO_NOMEM(sizeof host);
    kolo_status status = cache_path(name, make, path);
    kolo_free(name);
    if (status == KOLO_OK && !*path) {
        return KOLO_FAIL(KOLO_ERR_ARG, "no cache folder: neither XDG_CACHE_HOME nor HOME is set");
    }
    return status;
}

kolo_status costs_file_load(kolo_comm *comm) {
    char *path = NULL;
    int32_t there = kolo_comm_rank(comm) == 0 && costs_file_path(false, &path) == KOLO_OK &&
                    kolo_file_exists(path);
    kolo_status status = KOLO_OK;
    if (kolo_comm_size(comm) > 1) {
        status = kolo_broadcast(comm, &there, 1, KOLO_DTYPE_I32, 0);
        if (status == KOLO_OK && there) status = kolo_comm_load_costs(comm, path);
    }
    kolo_free(path);
    return status;
}

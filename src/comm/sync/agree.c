/* Agreement on a status: an allreduce (max) finds the lowest rank that failed, which broadcasts its
 * message. Without a failure it costs one collective of four bytes. A rank that failed may have
 * created fewer requests than the others: after a failure their numbers continue from the largest.
 */
#include "comm/sync/agree.h"

#include "base/status.h"
#include "comm/engine/comm.h"

#include <string.h>

typedef struct failure {
    int32_t status;
    char text[1020];
} failure;

static kolo_status align_request_numbers(kolo_comm *comm) {
    int64_t n = comm->n_created;
    KOLO_TRY(kolo_allreduce(comm, &n, 1, KOLO_DTYPE_I64, KOLO_MAX));
    comm->n_created = (uint32_t)n;
    return KOLO_OK;
}

kolo_status kolo_agree(kolo_comm *comm, kolo_status status) {
    int size = comm ? kolo_comm_size(comm) : 1;
    if (size == 1) return status;
    int rank = kolo_comm_rank(comm);
    failure v = {.status = (int32_t)status};
    if (status != KOLO_OK) strncpy(v.text, kolo_last_error(), sizeof v.text - 1);

    int32_t failed = status == KOLO_OK ? 0 : size - rank;
    kolo_status sent = kolo_allreduce(comm, &failed, 1, KOLO_DTYPE_I32, KOLO_MAX);
    if (sent == KOLO_OK && failed == 0) return KOLO_OK;
    int who = size - failed;
    if (sent == KOLO_OK && who != rank) {
        KOLO_TRY(kolo_broadcast(comm, &v, sizeof v, KOLO_DTYPE_U8, who));
        KOLO_TRY(align_request_numbers(comm));
        v.text[sizeof v.text - 1] = '\0';
        return KOLO_FAIL((kolo_status)v.status, "rank %d: %s", who, v.text);
    }
    if (sent == KOLO_OK) sent = kolo_broadcast(comm, &v, sizeof v, KOLO_DTYPE_U8, rank);
    if (sent == KOLO_OK) sent = align_request_numbers(comm);
    /* Our own failure takes precedence over a group that broke meanwhile. */
    return status == KOLO_OK ? sent : KOLO_FAIL(status, "%s", v.text);
}

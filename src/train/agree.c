/* Agreeing on a status: a maximum finds the lowest rank that failed, a broadcast brings its text.
 * Without a failure it costs one collective of four bytes. */
#include "train/agree.h"

#include <string.h>

typedef struct verdict {
    int32_t status;
    char text[1020];
} verdict;

kolo_status kolo_agree(kolo_comm *comm, kolo_status status) {
    int size = comm ? kolo_comm_size(comm) : 1;
    if (size == 1) return status;
    int rank = kolo_comm_rank(comm);
    verdict v = {.status = (int32_t)status};
    if (status != KOLO_OK) strncpy(v.text, kolo_last_error(), sizeof v.text - 1);

    int32_t failed = status == KOLO_OK ? 0 : size - rank;
    kolo_status sent = kolo_allreduce(comm, &failed, 1, KOLO_DTYPE_I32, KOLO_MAX);
    if (sent == KOLO_OK && failed == 0) return KOLO_OK;
    int who = size - failed;
    if (sent == KOLO_OK && who != rank) {
        KOLO_TRY(kolo_broadcast(comm, &v, sizeof v, KOLO_DTYPE_U8, who));
        v.text[sizeof v.text - 1] = '\0';
        return KOLO_FAIL((kolo_status)v.status, "rank %d: %s", who, v.text);
    }
    if (sent == KOLO_OK) sent = kolo_broadcast(comm, &v, sizeof v, KOLO_DTYPE_U8, rank);
    /* A group that broke meanwhile is no news next to a failure of our own. */
    return status == KOLO_OK ? sent : KOLO_FAIL(status, "%s", v.text);
}

/* Agreement on a text, and sums of tensors that some ranks have. */
#include "train/session/agree.h"

#include "base/compiler.h"
#include "base/memory.h"
#include "base/rng.h"
#include "kolo/embed.h"

#include <string.h>

kolo_status kolo_end_group(kolo_comm *comm, kolo_status status) {
    if (!comm || kolo_comm_size(comm) == 1) return status;
    status = kolo_fail_in(status, "rank %d", kolo_comm_rank(comm));
    kolo_comm_abort(comm, kolo_last_error());
    return status;
}

/* ARG with the first line that differs; the texts differ. */
static kolo_status differs(int rank, const char *own, const char *rank0) {
    const char *a = own, *b = rank0;
    for (;;) {
        size_t n = strcspn(a, "\n"), m = strcspn(b, "\n");
        if (n != m || memcmp(a, b, n) != 0) {
            return KOLO_FAIL(KOLO_ERR_ARG,
                             "the ranks have different options: rank %d has \"%.*s\", rank 0 has "
                             "\"%.*s\"; give all ranks the same",
                             rank, (int)n, a, (int)m, b);
        }
        KOLO_ASSERT(a[n] && b[m]);
        a += n + 1;
        b += m + 1;
    }
}

kolo_status kolo_share_text(kolo_comm *comm, kolo_status status, kolo_text *text) {
    const bool root = !comm || kolo_comm_rank(comm) == 0;
    if (root && status == KOLO_OK && text->failed) status = KOLO_NOMEM(text->length);
    KOLO_TRY(kolo_agree(comm, status));
    if (!comm || kolo_comm_size(comm) == 1) return KOLO_OK;
    int64_t length = (int64_t)text->length;
    KOLO_TRY(kolo_broadcast(comm, &length, 1, KOLO_DTYPE_I64, 0));
    char *theirs = root ? text->text : kolo_zalloc((size_t)length + 1);
    status = kolo_agree(comm, root || theirs ? KOLO_OK : KOLO_NOMEM(length));
    if (status == KOLO_OK && length > 0) {
        status = kolo_broadcast(comm, theirs, (size_t)length, KOLO_DTYPE_U8, 0);
    }
    if (!root && status == KOLO_OK) {
        kolo_text_fini(text);
        kolo_text_add(text, "%s", theirs);
        if (text->failed) status = KOLO_NOMEM(length);
    }
    if (!root) kolo_free(theirs);
    return kolo_agree(comm, status);
}

kolo_status kolo_agree_text(kolo_comm *comm, const char *text) {
    if (!comm || kolo_comm_size(comm) == 1) return KOLO_OK;
    uint64_t own[2] = {kolo_hash_text(text), strlen(text)}, rank0[2] = {own[0], own[1]};
    KOLO_TRY(kolo_broadcast(comm, rank0, sizeof rank0, KOLO_DTYPE_U8, 0));
    uint8_t differ = memcmp(own, rank0, sizeof own) != 0, any = differ;
    KOLO_TRY(kolo_allreduce(comm, &any, 1, KOLO_DTYPE_U8, KOLO_MAX));
    if (!any) return KOLO_OK;
    char *theirs = kolo_zalloc(rank0[1] + 1);
    kolo_status status = kolo_agree(comm, theirs ? KOLO_OK : KOLO_NOMEM(rank0[1]));
    if (!theirs) return status;
    if (status == KOLO_OK) {
        if (kolo_comm_rank(comm) == 0) memcpy(theirs, text, rank0[1]);
        status = kolo_broadcast(comm, theirs, rank0[1], KOLO_DTYPE_U8, 0);
    }
    if (status == KOLO_OK) {
        status = differ ? differs(kolo_comm_rank(comm), text, theirs) : KOLO_OK;
        status = kolo_agree(comm, status);
    }
    kolo_free(theirs);
    return status;
}

kolo_status kolo_sum_tensor(kolo_comm *comm, double **data, kolo_shape *shape) {
    if (!comm) return KOLO_OK;
    int64_t dims[KOLO_MAX_RANK + 1] = {*data ? shape->rank : 0};
    for (int i = 0; i < dims[0]; i++) dims[i + 1] = shape->dim[i];
    KOLO_TRY(kolo_allreduce(comm, dims, KOLO_COUNT(dims), KOLO_DTYPE_I64, KOLO_MAX));
    if (dims[0] == 0) return KOLO_OK;
    *shape = (kolo_shape){.rank = (int)dims[0]};
    for (int i = 0; i < shape->rank; i++) shape->dim[i] = dims[i + 1];
    const size_t n = (size_t)kolo_shape_count(shape);
    if (!*data) *data = kolo_zalloc(n * sizeof **data);
    KOLO_TRY(kolo_agree(comm, *data ? KOLO_OK : KOLO_NOMEM(n * sizeof **data)));
    return kolo_allreduce(comm, *data, n, KOLO_DTYPE_F64, KOLO_SUM);
}

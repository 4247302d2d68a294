/* The ranks compare what they give to a reducer, so that a difference is an error instead of a
 * wrong sum. */
#include "base/memory.h"
#include "base/number.h"
#include "base/rng.h"
#include "base/status.h"
#include "comm/engine/failure.h"
#include "comm/engine/family.h"
#include "comm/sync/reducer.h"

#include <stdio.h>
#include <string.h>

kolo_status kolo_reducer_fail(const kolo_reducer *r, kolo_status status) {
    return kolo_failed(kolo_comm_break(r->comm, status, "reducer: %s", kolo_last_error()));
}

/* What a rank gives to a reducer. */
typedef enum term {
    TERM_BUFFERS,
    TERM_DTYPE,
    TERM_OP,
    TERM_BUCKET,
    TERM_CODEC,
    TERM_RATIO,
    TERM_JOIN,
    TERMS
} term;

typedef struct offer {
    uint64_t terms[TERMS];
    uint64_t counts;    /* hash of the buffers' counts */
    int32_t registered; /* all buffers are in registered memory */
    int32_t status;     /* whether the rank accepts its own arguments */
    char reason[160];   /* if not */
} offer;

static bool all_registered(const kolo_reducer *r) {
    kolo_transport *t = r->comm->transport;
    for (int i = 0; i < r->n; i++) {
        size_t bytes = r->buffers[i].count * r->element_bytes;
        if (bytes > 0 && t->ops->handle(t, r->buffers[i].data, bytes) == 0) return false;
    }
    return true;
}

static uint64_t hash_counts(const kolo_reducer *r) {
    uint64_t pair[2] = {0};
    for (int i = 0; i < r->n; i++) {
        pair[1] = r->buffers[i].count;
        pair[0] = kolo_hash_bytes(pair, sizeof pair);
    }
    return pair[0];
}

/* A rank whose arguments are invalid gives the reason, which is in the error slot. */
static void make_offer(const kolo_reducer *r, kolo_status status, offer *own) {
    *own = (offer){.terms = {[TERM_BUFFERS] = (uint64_t)r->n,
                             [TERM_DTYPE] = (uint64_t)r->dtype,
                             [TERM_OP] = r->opts.sum ? KOLO_SUM : KOLO_MEAN,
                             [TERM_BUCKET] = r->opts.bucket_bytes,
                             [TERM_CODEC] = (uint64_t)r->opts.codec.kind,
                             [TERM_JOIN] = r->opts.join},
                   .status = (int32_t)status};
    memcpy(&own->terms[TERM_RATIO], &r->opts.codec.ratio, sizeof(double));
    if (status != KOLO_OK) {
        snprintf(own->reason, sizeof own->reason, "%.150s", kolo_last_error());
    } else {
        own->counts = hash_counts(r);
        own->registered = all_registered(r);
    }
}

/* Writes a term as the caller gave it. */
static void print_term(term which, uint64_t value, char *text, size_t bytes) {
    double ratio;
    memcpy(&ratio, &value, sizeof ratio);
    switch (which) {
    case TERM_DTYPE:
        snprintf(text, bytes, "type %s",
                 value < KOLO_DTYPE_COUNT ? kolo_dtype_name((kolo_dtype)value) : "unknown");
        break;
    case TERM_OP:
        snprintf(text, bytes, "operation %s", kolo_reduce_op_name((kolo_reduce_op)value));
        break;
    case TERM_BUCKET:
        snprintf(text, bytes, "bucket_bytes %llu", (unsigned long long)value);
        break;
    case TERM_CODEC:
        snprintf(text, bytes, "codec %s", kolo_codec_name((kolo_codec_kind)value));
        break;
    case TERM_RATIO:
        kolo_snprintf(text, bytes, "codec ratio %g", ratio);
        break;
    case TERM_JOIN:
        snprintf(text, bytes, "join %s", value ? "true" : "false");
        break;
    default:
        snprintf(text, bytes, "%lld buffers", (long long)value);
    }
}

static kolo_status disagree(const kolo_reducer *r, int rank, const char *first, const char *other) {
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "ranks disagree on a reducer: rank %d has %s, rank %d has %s; all ranks must "
                     "give the same buffers and options",
                     kolo_comm_whole_rank(r->comm, 0), first, kolo_comm_whole_rank(r->comm, rank),
                     other);
}

static kolo_status gather(kolo_reducer *r, const void *own, void *all, size_t bytes) {
    kolo_request_opts o = {.kind = KOLO_COLLECTIVE_ALLGATHER,
                           .dtype = KOLO_DTYPE_U8,
                           .input = own,
                           .output = all,
                           .count = bytes,
                           .site = "reducer"};
    return kolo_request_run(r->comm, &o, 0);
}

/* A buffer whose count differs from rank 0's; no buffer: `index` is their number. */
typedef struct count_pair {
    uint64_t index, own, first;
} count_pair;

/* `first` has room for the counts of rank 0, `all` for a pair of each rank. */
static kolo_status exchange_counts(kolo_reducer *r, uint64_t *first, count_pair *all) {
    size_t n = (size_t)r->n, i = 0;
    for (size_t b = 0; b < n; b++) first[b] = r->buffers[b].count;
    KOLO_TRY(kolo_broadcast(r->comm, first, n, KOLO_DTYPE_I64, 0));
    while (i < n && first[i] == r->buffers[i].count) i++;
    count_pair own = {.index = i};
    if (i < n) own = (count_pair){i, r->buffers[i].count, first[i]};
    KOLO_TRY(gather(r, &own, all, sizeof own));
    for (int p = 1; p < r->comm->size; p++) {
        char text[2][64];
        if (all[p].index >= n) continue;
        for (int side = 0; side < 2; side++) {
            snprintf(text[side], sizeof text[side], "%llu elements in buffer %llu",
                     (unsigned long long)(side ? all[p].own : all[p].first),
                     (unsigned long long)all[p].index);
        }
        return disagree(r, p, text[0], text[1]);
    }
    return KOLO_OK;
}

/* Finds the first buffer whose count differs from rank 0's. */
static kolo_status compare_counts(kolo_reducer *r) {
    size_t n = (size_t)r->n;
    uint64_t *first = kolo_alloc(n * sizeof *first);
    count_pair *all = kolo_alloc((size_t)r->comm->size * sizeof *all);
    kolo_status status = first && all ? exchange_counts(r, first, all)
                                      : kolo_reducer_fail(r, KOLO_NOMEM(n * sizeof *first));
    kolo_free(first);
    kolo_free(all);
    return status;
}

/* Finds the first difference between the terms of the ranks. */
static kolo_status compare_terms(const kolo_reducer *r, const offer *all) {
    for (int p = 1; p < r->comm->size; p++) {
        for (int t = 0; t < TERMS; t++) {
            char text[2][64];
            if (all[p].terms[t] == all[0].terms[t]) continue;
            print_term((term)t, all[0].terms[t], text[0], sizeof text[0]);
            print_term((term)t, all[p].terms[t], text[1], sizeof text[1]);
            return disagree(r, p, text[0], text[1]);
        }
    }
    return KOLO_OK;
}

/* Finds the first rank whose arguments are invalid. */
static kolo_status find_invalid(const kolo_reducer *r, const offer *all) {
    for (int p = 0; p < r->comm->size; p++) {
        if (all[p].status == KOLO_OK) continue;
        return KOLO_FAIL((kolo_status)all[p].status, "rank %d: %.*s",
                         kolo_comm_whole_rank(r->comm, p), (int)sizeof all[p].reason,
                         all[p].reason);
    }
    return KOLO_OK;
}

static kolo_status compare(kolo_reducer *r, kolo_status status, const offer *own, offer *all) {
    bool registered = true, same_counts = true;
    KOLO_TRY(gather(r, own, all, sizeof *own));
    KOLO_TRY(compare_terms(r, all));
    if (status != KOLO_OK) return KOLO_FAIL(status, "%s", own->reason);
    KOLO_TRY(find_invalid(r, all));
    for (int p = 0; p < r->comm->size; p++) {
        same_counts = same_counts && all[p].counts == all[0].counts;
        registered = registered && all[p].registered;
    }
    if (registered && r->method == KOLO_REDUCE_COPY) r->method = KOLO_REDUCE_IN_PLACE;
    return same_counts ? KOLO_OK : compare_counts(r);
}

kolo_status kolo_reducer_agree(kolo_reducer *r, kolo_status status) {
    offer own, *all = kolo_alloc((size_t)r->comm->size * sizeof *all);
    make_offer(r, status, &own);
    if (!all) return kolo_reducer_fail(r, KOLO_NOMEM((size_t)r->comm->size * sizeof *all));
    status = compare(r, status, &own, all);
    kolo_free(all);
    return status;
}

/* The reducer: buckets of a foreign program's gradients. See kolo/reducer.h.
 *
 * A bucket owns a persistent request, made anew only when the order of buffers changes. How its
 * data travels is one of four ways, the same on all ranks:
 *
 *     in place     an allreduce over the buffers as parts
 *     gathered     an allreduce over a copy of the buffers in registered memory
 *     f16, bf16    the copy is encoded, the codes are numbers that an allreduce sums
 *     other codes  the copy is encoded, an allgather brings all ranks' codes, which each adds up
 *
 * Every rank adds the same codes in the same order, so results are equal to the bit. */
#include "kolo/reducer.h"

#include "base/memory.h"
#include "base/status.h"
#include "comm/engine/comm.h"
#include "comm/engine/failure.h"
#include "comm/engine/lock.h"

#include <stdio.h>
#include <string.h>

typedef enum way { WAY_IN_PLACE, WAY_COPY, WAY_HALF, WAY_CODES } way;

typedef struct bucket {
    int first, n; /* buffers order[first .. first + n) */
    int ready;    /* of them, in this step */
    size_t count; /* elements */
    char *data; /* [count]: the copy; a block of the segment unless it is encoded; NULL in place */
    float *residual; /* [count], of codecs */
    char *codes;     /* of this rank (WAY_HALF), of all ranks (WAY_CODES); a block of the segment */
    size_t data_bytes, codes_bytes, code_bytes; /* blocks; one rank's code */
    kolo_request *request;
} bucket;

struct kolo_reducer {
    kolo_comm *comm;
    kolo_reducer_opts opts;
    kolo_dtype dtype;
    size_t element_bytes;
    way way;
    int n;
    kolo_part *buffers;
    size_t *offsets; /* [n]: of each in its bucket's data, elements */
    int *order;      /* [n]: of buffers in buckets */
    int *bucket_of;  /* [n] */
    bool *ready;     /* [n] */
    int *came;       /* [n]: buffers in the order in which they became ready in this step */
    int n_came;
    bucket *buckets;
    int n_buckets, started; /* buckets below that are on their way */
    bool ordered;           /* the order is rank 0's */
};

/* ---- buckets ---- */

static void free_buckets(kolo_reducer *r) {
    KOLO_COMM_LOCK_SCOPE(r->comm);
    kolo_segment *segment = &r->comm->transport->segment;
    for (int b = 0; b < r->n_buckets; b++) {
        bucket *k = &r->buckets[b];
        kolo_request_destroy(k->request);
        kolo_segment_give(segment, k->codes, k->codes_bytes);
        if (r->way == WAY_COPY) {
            kolo_segment_give(segment, k->data, k->data_bytes);
        } else {
            kolo_free(k->data);
        }
        kolo_free(k->residual);
    }
    kolo_free(r->buckets);
    r->buckets = NULL;
    r->n_buckets = 0;
}

/* Cuts the order into buckets. */
static kolo_status cut(kolo_reducer *r) {
    r->buckets = kolo_zalloc((size_t)r->n * sizeof *r->buckets);
    if (!r->buckets) return KOLO_NOMEM((size_t)r->n * sizeof *r->buckets);
    bucket *k = NULL;
    for (int i = 0; i < r->n; i++) {
        int buffer = r->order[i];
        if (!k || k->count * r->element_bytes >= r->opts.bucket_bytes) {
            k = &r->buckets[r->n_buckets++];
            k->first = i;
        }
        r->offsets[buffer] = k->count;
        r->bucket_of[buffer] = (int)(k - r->buckets);
        k->count += r->buffers[buffer].count;
        k->n++;
    }
    return KOLO_OK;
}

static kolo_status take_memory(kolo_reducer *r, bucket *k) {
    kolo_segment *segment = &r->comm->transport->segment;
    void *block;
    if (r->way == WAY_IN_PLACE || k->count == 0) return KOLO_OK;
    k->data_bytes = k->count * r->element_bytes;
    if (r->way == WAY_COPY) {
        KOLO_TRY(kolo_segment_take(segment, k->data_bytes, &block));
        k->data = block;
        return KOLO_OK;
    }
    k->code_bytes = kolo_codec_bytes(&r->opts.codec, k->count);
    k->codes_bytes = k->code_bytes * (r->way == WAY_CODES ? (size_t)r->comm->size : 1);
    k->data = kolo_alloc(k->data_bytes);
    k->residual = kolo_zalloc(k->data_bytes);
    if (!k->data || !k->residual) return KOLO_NOMEM(k->data_bytes);
    KOLO_TRY(kolo_segment_take(segment, k->codes_bytes, &block));
    k->codes = block;
    return KOLO_OK;
}

static kolo_status make_request(kolo_reducer *r, bucket *k) {
    char site[32];
    kolo_part *parts = NULL;
    snprintf(site, sizeof site, "reducer, bucket %d", (int)(k - r->buckets));
    kolo_request_opts opts = {.kind = KOLO_COLLECTIVE_ALLREDUCE,
                              .dtype = r->dtype,
                              .op = r->opts.sum ? KOLO_SUM : KOLO_MEAN,
                              .output = k->data,
                              .count = k->count,
                              .site = site};
    if (r->way == WAY_HALF) {
        opts.dtype = r->opts.codec.kind == KOLO_CODEC_F16 ? KOLO_DTYPE_F16 : KOLO_DTYPE_BF16;
        opts.op = KOLO_SUM;
        opts.output = k->codes;
        if (!r->opts.sum) opts.prescale = 1.0 / r->comm->size; /* the sum could overflow */
    } else if (r->way == WAY_CODES) {
        opts.kind = KOLO_COLLECTIVE_ALLGATHER;
        opts.dtype = KOLO_DTYPE_U8;
        opts.op = KOLO_SUM;
        opts.output = k->codes;
        opts.count = k->code_bytes;
    } else if (r->way == WAY_IN_PLACE) {
        parts = kolo_zalloc((size_t)k->n * sizeof *parts);
        if (!parts) return KOLO_NOMEM((size_t)k->n * sizeof *parts);
        for (int i = 0; i < k->n; i++) {
            parts[i] = r->buffers[r->order[k->first + i]];
            parts[i].tree_node = 0;
        }
        opts.output = NULL;
        opts.count = 0;
        opts.parts = parts;
        opts.n_parts = k->n;
    }
    kolo_status status = kolo_request_create(r->comm, &opts, &k->request);
    kolo_free(parts);
    return status;
}

static kolo_status make_buckets(kolo_reducer *r) {
    KOLO_COMM_LOCK_SCOPE(r->comm);
    KOLO_TRY(cut(r));
    for (int b = 0; b < r->n_buckets; b++) {
        KOLO_TRY(take_memory(r, &r->buckets[b]));
        KOLO_TRY(make_request(r, &r->buckets[b]));
    }
    return KOLO_OK;
}

/* ---- creation ---- */

static kolo_status check(const kolo_part *buffers, int n, kolo_dtype dtype,
                         const kolo_reducer_opts *opts) {
    if (n < 1 || !buffers || (size_t)dtype >= KOLO_DTYPE_COUNT) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a reducer of %d buffers of type %d", n, (int)dtype);
    }
    if (opts->codec.kind != KOLO_CODEC_NONE && dtype != KOLO_DTYPE_F32) {
        return KOLO_FAIL(KOLO_ERR_ARG, "codec %s is for f32, the buffers are %s",
                         kolo_codec_name(opts->codec.kind), kolo_dtype_name(dtype));
    }
    size_t left = (size_t)INT64_MAX / kolo_dtype_bytes(dtype);
    for (int i = 0; i < n; i++) {
        if (buffers[i].count > 0 && !buffers[i].data) {
            return KOLO_FAIL(KOLO_ERR_ARG, "buffer %d of a reducer is at no address", i);
        }
        if (buffers[i].count > left) {
            return KOLO_FAIL(KOLO_ERR_ARG, "buffer %d of a reducer, of %zu elements, is too long",
                             i, buffers[i].count);
        }
        left -= buffers[i].count;
    }
    return kolo_codec_encode(&opts->codec, NULL, 0, NULL, NULL, 0); /* a sound codec? */
}

static way way_of(const kolo_reducer_opts *opts) {
    switch (opts->codec.kind) {
    case KOLO_CODEC_NONE:
        return WAY_COPY;
    case KOLO_CODEC_F16:
    case KOLO_CODEC_BF16:
        return WAY_HALF;
    default:
        return WAY_CODES;
    }
}

/* In place where every buffer of every rank can be reached by the peers. */
static kolo_status agree_on_place(kolo_reducer *r) {
    kolo_transport *t = r->comm->transport;
    uint8_t reachable = 1;
    for (int i = 0; i < r->n; i++) {
        size_t bytes = r->buffers[i].count * r->element_bytes;
        if (bytes > 0 && t->ops->handle(t, r->buffers[i].data, bytes) == 0) reachable = 0;
    }
    KOLO_TRY(kolo_allreduce(r->comm, &reachable, 1, KOLO_DTYPE_U8, KOLO_MIN));
    if (reachable && r->way == WAY_COPY) r->way = WAY_IN_PLACE;
    return KOLO_OK;
}

static kolo_status open_reducer(kolo_reducer *r, const kolo_part *buffers) {
    size_t n = (size_t)r->n;
    r->buffers = kolo_alloc(n * sizeof *r->buffers);
    r->offsets = kolo_zalloc(n * sizeof *r->offsets);
    r->order = kolo_zalloc(n * sizeof *r->order);
    r->bucket_of = kolo_zalloc(n * sizeof *r->bucket_of);
    r->ready = kolo_zalloc(n * sizeof *r->ready);
    r->came = kolo_zalloc(n * sizeof *r->came);
    if (!r->buffers || !r->offsets || !r->order || !r->bucket_of || !r->ready || !r->came) {
        return KOLO_NOMEM(n * sizeof *r->buffers);
    }
    memcpy(r->buffers, buffers, n * sizeof *buffers);
    for (int i = 0; i < r->n; i++) r->order[i] = r->n - 1 - i;
    KOLO_TRY(agree_on_place(r));
    return make_buckets(r);
}

kolo_status kolo_reducer_create(kolo_comm *comm, const kolo_part *buffers, int n, kolo_dtype dtype,
                                const kolo_reducer_opts *opts, kolo_reducer **reducer) {
    if (!comm || !reducer) return KOLO_FAIL(KOLO_ERR_ARG, "a reducer needs a communicator");
    kolo_reducer_opts o = opts ? *opts : (kolo_reducer_opts){0};
    if (o.bucket_bytes == 0) o.bucket_bytes = 1 << 20;
    KOLO_TRY(check(buffers, n, dtype, &o));
    kolo_reducer *r = kolo_zalloc(sizeof *r);
    if (!r) return KOLO_NOMEM(sizeof *r);
    *r = (kolo_reducer){.comm = comm,
                        .opts = o,
                        .dtype = dtype,
                        .element_bytes = kolo_dtype_bytes(dtype),
                        .way = way_of(&o),
                        .n = n};
    kolo_status status = open_reducer(r, buffers);
    if (status == KOLO_OK) {
        *reducer = r;
    } else {
        kolo_reducer_destroy(r);
    }
    return status;
}

void kolo_reducer_destroy(kolo_reducer *r) {
    if (!r) return;
    free_buckets(r);
    kolo_free(r->buffers);
    kolo_free(r->offsets);
    kolo_free(r->order);
    kolo_free(r->bucket_of);
    kolo_free(r->ready);
    kolo_free(r->came);
    kolo_free(r);
}

/* ---- a step ---- */

static kolo_status start_bucket(kolo_reducer *r, bucket *k) {
    char *own = k->codes;
    if (r->way == WAY_CODES && own) own += (size_t)r->comm->rank * k->code_bytes;
    if (own) {
        KOLO_TRY(kolo_codec_encode(&r->opts.codec, (const float *)(const void *)k->data, k->count,
                                   k->residual, own, k->code_bytes));
    }
    return kolo_request_start(k->request);
}

kolo_status kolo_reducer_ready(kolo_reducer *r, int i) {
    KOLO_COMM_LOCK_SCOPE(r->comm);
    KOLO_TRY(kolo_comm_check(r->comm));
    if (i < 0 || i >= r->n) return KOLO_FAIL(KOLO_ERR_ARG, "buffer %d of %d", i, r->n);
    if (r->ready[i]) return KOLO_FAIL(KOLO_ERR_ARG, "buffer %d is ready already", i);
    bucket *k = &r->buckets[r->bucket_of[i]];
    r->ready[i] = true;
    r->came[r->n_came++] = i;
    k->ready++;
    size_t bytes = r->buffers[i].count * r->element_bytes;
    if (k->data && bytes > 0) {
        memcpy(k->data + r->offsets[i] * r->element_bytes, r->buffers[i].data, bytes);
    }
    bool any = false;
    for (; r->started < r->n_buckets; r->started++, any = true) {
        k = &r->buckets[r->started];
        if (k->ready < k->n || r->comm->n_flight == KOLO_FLIGHT_QUEUE) break;
        KOLO_TRY(start_bucket(r, k));
    }
    return any ? KOLO_OK : kolo_comm_progress(r->comm); /* a start makes progress too */
}

/* The sum of all ranks' codes, or of one, into the copy. */
static kolo_status decode(kolo_reducer *r, bucket *k) {
    float *sum = (float *)(void *)k->data;
    if (!k->codes) return KOLO_OK;
    if (r->way == WAY_HALF) {
        return kolo_codec_decode(&r->opts.codec, k->codes, k->code_bytes, sum, k->count);
    }
    float scale = r->opts.sum ? 1 : 1 / (float)r->comm->size;
    memset(sum, 0, k->data_bytes);
    for (int p = 0; p < r->comm->size; p++) {
        KOLO_TRY(kolo_codec_add(&r->opts.codec, k->codes + (size_t)p * k->code_bytes, k->code_bytes,
                                sum, k->count, scale));
    }
    return KOLO_OK;
}

static kolo_status finish_bucket(kolo_reducer *r, bucket *k) {
    KOLO_TRY(kolo_request_wait(k->request, 0));
    KOLO_TRY(decode(r, k));
    for (int i = k->first; i < k->first + k->n && k->data; i++) {
        const kolo_part *to = &r->buffers[r->order[i]];
        if (to->count == 0) continue;
        memcpy(to->data, k->data + r->offsets[r->order[i]] * r->element_bytes,
               to->count * r->element_bytes);
    }
    k->ready = 0;
    return KOLO_OK;
}

/* Whether an order from rank 0 has every buffer once; `seen` is room for a mark of each, all 0. */
static bool is_order(const int *order, int n, int *seen) {
    for (int i = 0; i < n; i++) {
        if (order[i] < 0 || order[i] >= n || seen[order[i]]++) return false;
    }
    return true;
}

/* After the first step: buckets in the order in which rank 0's buffers became ready. What the codes
 * of that step did not hold goes with its buffers. */
static kolo_status reorder(kolo_reducer *r) {
    size_t n = (size_t)r->n;
    r->ordered = true;
    KOLO_TRY(kolo_broadcast(r->comm, r->came, n, KOLO_DTYPE_I32, 0));
    if (memcmp(r->came, r->order, n * sizeof *r->order) == 0) return KOLO_OK;
    bucket *old = r->buckets;
    kolo_reducer before = *r;
    size_t *offsets = kolo_alloc(n * sizeof *offsets);
    int *bucket_of = kolo_zalloc(n * sizeof *bucket_of);
    kolo_status status = KOLO_OK;
    if (!offsets || !bucket_of) {
        status = KOLO_NOMEM(n * sizeof *offsets);
    } else if (!is_order(r->came, r->n, bucket_of)) {
        status =
            KOLO_FAIL(KOLO_ERR_FORMAT, "rank 0 sent an order of %d buffers that is none", r->n);
    } else {
        memcpy(offsets, r->offsets, n * sizeof *offsets);
        memcpy(bucket_of, r->bucket_of, n * sizeof *bucket_of);
        memcpy(r->order, r->came, n * sizeof *r->order);
        r->buckets = NULL;
        r->n_buckets = 0;
        status = make_buckets(r);
        for (int i = 0; i < r->n && status == KOLO_OK; i++) {
            const float *from = old[bucket_of[i]].residual;
            float *to = r->buckets[r->bucket_of[i]].residual;
            if (!from || !to) continue;
            memcpy(to + r->offsets[i], from + offsets[i], r->buffers[i].count * sizeof *to);
        }
        free_buckets(&before);
    }
    kolo_free(offsets);
    kolo_free(bucket_of);
    return status;
}

kolo_status kolo_reducer_wait(kolo_reducer *r) {
    KOLO_TRY(kolo_comm_check(r->comm));
    for (int i = 0; i < r->n; i++) {
        if (r->ready[i]) continue;
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "buffer %d of %d is not ready: every one must be said to be ready in each "
                         "step before the wait",
                         i, r->n);
    }
    for (int b = 0; b < r->n_buckets; b++) {
        if (b >= r->started) { /* there were too many on their way */
            KOLO_TRY(start_bucket(r, &r->buckets[b]));
            r->started = b + 1;
        }
        KOLO_TRY(finish_bucket(r, &r->buckets[b]));
    }
    if (!r->ordered) KOLO_TRY(reorder(r));
    memset(r->ready, 0, (size_t)r->n * sizeof *r->ready);
    r->n_came = 0;
    r->started = 0;
    return KOLO_OK;
}

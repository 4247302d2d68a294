/* The reducer: gradients of a program's own training loop, in buckets. See kolo/reducer.h.
 *
 * A bucket owns a persistent request, recreated only when the order of the buffers changes. Buckets
 * are reduced by one of four methods, the same on all ranks:
 *
 *     in place     an allreduce over the buffers as parts
 *     copied       an allreduce over a copy of the buffers in registered memory
 *     f16, bf16    the copy is encoded, and an allreduce sums the codes as numbers of that type
 *     other codecs the copy is encoded, an allgather distributes the codes, and each rank sums them
 *
 * All ranks sum the same codes in the same order, so the results are bitwise equal. */
#include "comm/sync/reducer.h"

#include "base/memory.h"
#include "base/status.h"
#include "comm/engine/failure.h"
#include "comm/engine/lock.h"

#include <stdio.h>
#include <string.h>

/* ---- buckets ---- */

static void free_buckets(kolo_reducer *r) {
    KOLO_COMM_LOCK_SCOPE(r->comm);
    kolo_segment *segment = &r->comm->transport->segment;
    for (int b = 0; b < r->n_buckets; b++) {
        kolo_reducer_bucket *k = &r->buckets[b];
        kolo_request_destroy(k->request);
        kolo_segment_give(segment, k->codes, k->codes_bytes);
        if (r->method == KOLO_REDUCE_COPY) {
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

/* Divides the buffers into buckets. */
static kolo_status divide(kolo_reducer *r) {
    r->buckets = kolo_zalloc((size_t)r->n * sizeof *r->buckets);
    if (!r->buckets) return KOLO_NOMEM((size_t)r->n * sizeof *r->buckets);
    kolo_reducer_bucket *k = NULL;
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

static kolo_status alloc_memory(kolo_reducer *r, kolo_reducer_bucket *k) {
    kolo_segment *segment = &r->comm->transport->segment;
    void *block;
    if (r->method == KOLO_REDUCE_IN_PLACE || k->count == 0) return KOLO_OK;
    k->data_bytes = k->count * r->element_bytes;
    if (r->method == KOLO_REDUCE_COPY) {
        KOLO_TRY(kolo_segment_take(segment, k->data_bytes, &block));
        k->data = block;
        return KOLO_OK;
    }
    k->code_bytes = kolo_codec_bytes(&r->opts.codec, k->count);
    k->codes_bytes = k->code_bytes * (r->method == KOLO_REDUCE_CODES ? (size_t)r->comm->size : 1);
    k->data = kolo_alloc(k->data_bytes);
    k->residual = kolo_zalloc(k->data_bytes);
    if (!k->data || !k->residual) return KOLO_NOMEM(k->data_bytes);
    KOLO_TRY(kolo_segment_take(segment, k->codes_bytes, &block));
    k->codes = block;
    return KOLO_OK;
}

static kolo_status create_request(kolo_reducer *r, kolo_reducer_bucket *k) {
    char site[32];
    kolo_part *parts = NULL;
    snprintf(site, sizeof site, "reducer, bucket %d", (int)(k - r->buckets));
    kolo_request_opts opts = {.kind = KOLO_COLLECTIVE_ALLREDUCE,
                              .dtype = r->dtype,
                              .op = r->opts.sum ? KOLO_SUM : KOLO_MEAN,
                              .output = k->data,
                              .count = k->count,
                              .site = site};
    if (r->method == KOLO_REDUCE_HALF) {
        opts.dtype = r->opts.codec.kind == KOLO_CODEC_F16 ? KOLO_DTYPE_F16 : KOLO_DTYPE_BF16;
        opts.op = KOLO_SUM;
        opts.output = k->codes;
        if (!r->opts.sum) opts.prescale = 1.0 / r->comm->size; /* the sum could overflow */
    } else if (r->method == KOLO_REDUCE_CODES) {
        opts.kind = KOLO_COLLECTIVE_ALLGATHER;
        opts.dtype = KOLO_DTYPE_U8;
        opts.op = KOLO_SUM;
        opts.output = k->codes;
        opts.count = k->code_bytes;
    } else if (r->method == KOLO_REDUCE_IN_PLACE) {
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

/* A rank on which this fails breaks the communicator: the others will wait for its buckets. */
static kolo_status create_buckets(kolo_reducer *r) {
    KOLO_COMM_LOCK_SCOPE(r->comm);
    kolo_status status = divide(r);
    for (int b = 0; b < r->n_buckets && status == KOLO_OK; b++) {
        status = alloc_memory(r, &r->buckets[b]);
        if (status == KOLO_OK) status = create_request(r, &r->buckets[b]);
    }
    return status == KOLO_OK ? status : kolo_reducer_fail(r, status);
}

/* ---- arguments ---- */

static kolo_status check(const kolo_part *buffers, int n, kolo_dtype dtype,
                         const kolo_reducer_opts *opts) {
    if (n < 1 || !buffers || (size_t)dtype >= KOLO_DTYPE_COUNT) {
        return KOLO_FAIL(KOLO_ERR_ARG, "invalid reducer: %d buffers of type %d", n, (int)dtype);
    }
    if (opts->codec.kind != KOLO_CODEC_NONE && dtype != KOLO_DTYPE_F32) {
        return KOLO_FAIL(KOLO_ERR_ARG, "codec %s needs f32 buffers, these are %s",
                         kolo_codec_name(opts->codec.kind), kolo_dtype_name(dtype));
    }
    size_t left = (size_t)INT64_MAX / kolo_dtype_bytes(dtype);
    for (int i = 0; i < n; i++) {
        if (buffers[i].count > 0 && !buffers[i].data) {
            return KOLO_FAIL(KOLO_ERR_ARG, "buffer %d of a reducer is NULL", i);
        }
        if (buffers[i].count > left) {
            return KOLO_FAIL(KOLO_ERR_ARG, "buffer %d of a reducer, of %zu elements, is too long",
                             i, buffers[i].count);
        }
        left -= buffers[i].count;
    }
    return kolo_codec_encode(&opts->codec, NULL, 0, NULL, NULL, 0); /* validates the codec */
}

static kolo_reducer_method method_of(const kolo_reducer_opts *opts) {
    switch (opts->codec.kind) {
    case KOLO_CODEC_NONE:
        return KOLO_REDUCE_COPY;
    case KOLO_CODEC_F16:
    case KOLO_CODEC_BF16:
        return KOLO_REDUCE_HALF;
    default:
        return KOLO_REDUCE_CODES;
    }
}

/* ---- creation ---- */

static kolo_status copy_buffers(kolo_reducer *r, const kolo_part *buffers) {
    size_t n = (size_t)r->n;
    r->buffers = kolo_alloc(n * sizeof *r->buffers);
    r->offsets = kolo_zalloc(n * sizeof *r->offsets);
    r->order = kolo_zalloc(n * sizeof *r->order);
    r->bucket_of = kolo_zalloc(n * sizeof *r->bucket_of);
    r->ready = kolo_zalloc(n * sizeof *r->ready);
    r->arrived = kolo_zalloc(n * sizeof *r->arrived);
    if (!r->buffers || !r->offsets || !r->order || !r->bucket_of || !r->ready || !r->arrived) {
        return KOLO_NOMEM(n * sizeof *r->buffers);
    }
    memcpy(r->buffers, buffers, n * sizeof *buffers);
    for (int i = 0; i < r->n; i++) r->order[i] = r->n - 1 - i;
    return KOLO_OK;
}

/* A rank whose arguments are invalid takes part in the exchange, since the others wait for it. */
static kolo_status open_reducer(kolo_reducer *r, const kolo_part *buffers) {
    kolo_status status = check(buffers, r->n, r->dtype, &r->opts);
    if (status == KOLO_OK) {
        r->element_bytes = kolo_dtype_bytes(r->dtype);
        r->method = method_of(&r->opts);
        status = copy_buffers(r, buffers);
    }
    status = kolo_reducer_agree(r, status);
    if (status == KOLO_OK) status = create_buckets(r);
    return status == KOLO_OK ? kolo_reducer_open_exchange(r) : status;
}

kolo_status kolo_reducer_create(kolo_comm *comm, const kolo_part *buffers, int n, kolo_dtype dtype,
                                const kolo_reducer_opts *opts, kolo_reducer **reducer) {
    if (!comm || !reducer)
        return KOLO_FAIL(KOLO_ERR_ARG, "kolo_reducer_create: an argument is NULL");
    KOLO_COMM_CLAIM(comm);
    kolo_reducer_opts o = opts ? *opts : (kolo_reducer_opts){0};
    if (o.bucket_bytes == 0) o.bucket_bytes = 1 << 20;
    kolo_reducer *r = kolo_zalloc(sizeof *r);
    if (!r) {
        kolo_status status = KOLO_NOMEM(sizeof *r);
        return kolo_comm_break(comm, status, "reducer: %s", kolo_last_error());
    }
    *r = (kolo_reducer){.comm = comm, .opts = o, .dtype = dtype, .n = n};
    kolo_status status = open_reducer(r, buffers);
    if (status == KOLO_OK) {
        *reducer = r;
    } else {
        kolo_reducer_destroy(r);
    }
    return status;
}

void kolo_reducer_destroy(kolo_reducer *r) {
    if (!r || r->comm->inherited) return;
    free_buckets(r);
    kolo_reducer_close_exchange(r);
    kolo_free(r->buffers);
    kolo_free(r->offsets);
    kolo_free(r->order);
    kolo_free(r->bucket_of);
    kolo_free(r->ready);
    kolo_free(r->arrived);
    kolo_free(r);
}

/* ---- a step ---- */

static kolo_status start_bucket(kolo_reducer *r, kolo_reducer_bucket *k) {
    char *own = k->codes;
    if (r->method == KOLO_REDUCE_CODES && own) own += (size_t)r->comm->rank * k->code_bytes;
    if (own) {
        KOLO_TRY(kolo_codec_encode(&r->opts.codec, (const float *)(const void *)k->data, k->count,
                                   k->residual, own, k->code_bytes));
    }
    return kolo_request_start(k->request);
}

static void mark(kolo_reducer *r, int i) {
    kolo_reducer_bucket *k = &r->buckets[r->bucket_of[i]];
    r->ready[i] = true;
    r->arrived[r->n_arrived++] = i;
    k->ready++;
    size_t bytes = r->buffers[i].count * r->element_bytes;
    if (k->data && bytes > 0) {
        memcpy(k->data + r->offsets[i] * r->element_bytes, r->buffers[i].data, bytes);
    }
}

kolo_status kolo_reducer_ready(kolo_reducer *r, int i) { return kolo_reducer_ready_range(r, i, 1); }

kolo_status kolo_reducer_ready_range(kolo_reducer *r, int first, int n) {
    KOLO_COMM_CLAIM(r->comm);
    KOLO_COMM_LOCK_SCOPE(r->comm);
    KOLO_TRY(kolo_comm_check(r->comm));
    if (first < 0 || n < 0 || n > r->n || first > r->n - n) {
        return n == 1
                   ? KOLO_FAIL(KOLO_ERR_ARG, "buffer %d outside [0, %d)", first, r->n)
                   : KOLO_FAIL(KOLO_ERR_ARG, "%d buffers from %d on: there are %d", n, first, r->n);
    }
    for (int i = first; i < first + n; i++) {
        if (!r->ready[i]) continue;
        return KOLO_FAIL(KOLO_ERR_ARG, "buffer %d is already marked as ready in this step", i);
    }
    for (int i = first + n - 1; i >= first; i--) mark(r, i); /* in the order of the first buckets */
    bool any = false;
    for (; r->started < r->n_buckets; r->started++, any = true) {
        const kolo_reducer_bucket *k = &r->buckets[r->started];
        if (k->ready < k->n || r->comm->n_flight == r->comm->max_in_flight) break;
        KOLO_TRY(start_bucket(r, &r->buckets[r->started]));
    }
    return any ? KOLO_OK : kolo_comm_progress(r->comm); /* a start also makes progress */
}

kolo_status kolo_reducer_broadcast(kolo_reducer *r, const kolo_part *parts, int n, kolo_dtype dtype,
                                   int root) {
    KOLO_COMM_CLAIM(r->comm);
    KOLO_TRY(kolo_comm_check(r->comm));
    if (r->n_arrived > 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a broadcast within a step: buffer %d is ready; wait first",
                         r->arrived[0]);
    }
    kolo_request_opts opts = {.kind = KOLO_COLLECTIVE_BROADCAST,
                              .dtype = dtype,
                              .parts = parts,
                              .n_parts = n,
                              .root = root,
                              .site = "reducer, parameters"};
    return kolo_request_run(r->comm, &opts, 0);
}

/* Decodes into the copy: the codes of all ranks, which it sums, or the summed code. */
static kolo_status decode(kolo_reducer *r, kolo_reducer_bucket *k) {
    float *sum = (float *)(void *)k->data;
    if (!k->codes) return KOLO_OK;
    if (r->method == KOLO_REDUCE_HALF) {
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

static kolo_status finish_bucket(kolo_reducer *r, kolo_reducer_bucket *k) {
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

/* Whether an order received from rank 0 is a permutation; `seen` is [n], zeroed. */
static bool is_order(const int *order, int n, int *seen) {
    for (int i = 0; i < n; i++) {
        if (order[i] < 0 || order[i] >= n || seen[order[i]]++) return false;
    }
    return true;
}

/* After the first step: recreates the buckets in the order in which rank 0's buffers became ready.
 * The error feedback of each buffer is kept. */
static kolo_status reorder(kolo_reducer *r) {
    size_t n = (size_t)r->n;
    r->ordered = true;
    KOLO_TRY(kolo_broadcast(r->comm, r->arrived, n, KOLO_DTYPE_I32, 0));
    if (memcmp(r->arrived, r->order, n * sizeof *r->order) == 0) return KOLO_OK;
    kolo_reducer_bucket *old = r->buckets;
    kolo_reducer before = *r;
    size_t *offsets = kolo_alloc(n * sizeof *offsets);
    int *bucket_of = kolo_zalloc(n * sizeof *bucket_of);
    kolo_status status = KOLO_OK;
    if (!offsets || !bucket_of) {
        status = kolo_reducer_fail(r, KOLO_NOMEM(n * sizeof *offsets));
    } else if (!is_order(r->arrived, r->n, bucket_of)) {
        status = KOLO_FAIL(KOLO_ERR_FORMAT,
                           "the order of %d buffers received from rank 0 is no permutation", r->n);
    } else {
        memcpy(offsets, r->offsets, n * sizeof *offsets);
        memcpy(bucket_of, r->bucket_of, n * sizeof *bucket_of);
        memcpy(r->order, r->arrived, n * sizeof *r->order);
        r->buckets = NULL;
        r->n_buckets = 0;
        status = create_buckets(r);
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
    KOLO_COMM_CLAIM(r->comm);
    KOLO_TRY(kolo_comm_check(r->comm));
    for (int i = 0; i < r->n; i++) {
        if (r->ready[i]) continue;
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "buffer %d of %d is not ready: call kolo_reducer_ready for every buffer "
                         "in each step before the wait",
                         i, r->n);
    }
    for (; r->started < r->n_buckets; r->started++) { /* max_in_flight requests were in flight */
        KOLO_TRY(start_bucket(r, &r->buckets[r->started]));
    }
    KOLO_TRY(kolo_reducer_start_exchange(r));
    for (int b = 0; b < r->n_buckets; b++) KOLO_TRY(finish_bucket(r, &r->buckets[b]));
    KOLO_TRY(kolo_reducer_finish_exchange(r));
    if (!r->ordered) KOLO_TRY(reorder(r));
    memset(r->ready, 0, (size_t)r->n * sizeof *r->ready);
    r->n_arrived = 0;
    r->started = 0;
    return KOLO_OK;
}

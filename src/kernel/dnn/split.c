/* Batch parallelism around single-threaded oneDNN kernels. oneDNN partitions one operation over
 * images, channels and rows; here each thread runs its own operation on its share of the batch,
 * with shared weights. Which is faster depends on the shapes. The estimate is slightly above
 * oneDNN's, so that only a measured time selects these kernels.
 *
 * Requires a batch size divisible by the thread count and the batch as outermost dimension.
 * Weight gradients are sums over the batch and stay with oneDNN, which partitions them over the
 * batch as well.
 *
 * Scratch memory: that of one inner kernel per thread. */
#include "base/integer.h"
#include "kernel/dnn/dnn.h"
#include "kernel/parallel.h"

/* The inner kernel, and the tensors that are split over the batch. */
typedef struct split_row {
    const kolo_kernel *inner;
    bool splits[KOLO_MAX_IO]; /* inputs; output 0 always is */
} split_row;

static const split_row rows[] = {
    {&kolo_dnn_conv2d, {true}},       {&kolo_dnn_conv2d_bwd_data, {true}},
    {&kolo_dnn_linear, {true}},       {&kolo_dnn_linear_bwd_data, {true}},
    {&kolo_dnn_matmul, {true, true}},
};

static const split_row *row_of(const kolo_op *op) {
    for (size_t i = 0; i < KOLO_COUNT(rows); i++) {
        if (rows[i].inner->op == op) return &rows[i];
    }
    return NULL;
}

/* Reduces a tensor to one thread's share of the batch; false when it cannot be split. */
static bool take_share(kolo_tensor *t, int threads) {
    const kolo_layout *l = &t->layout;
    if (t->shape.rank < 2 || l->rank != t->shape.rank || l->order[0] != 0) return false;
    for (int i = 0; i < l->n_blocks; i++) {
        if (l->block_dim[i] == 0) return false;
    }
    if (t->shape.dim[0] % threads != 0) return false;
    t->shape.dim[0] /= threads;
    return true;
}

/* The spec of one thread. */
static bool share_of(const kolo_kernel_spec *spec, kolo_kernel_spec *share) {
    const split_row *row = row_of(spec->op);
    *share = *spec;
    share->threads = 1;
    for (int i = 0; i < spec->n_in; i++) {
        if (row->splits[i] && !take_share(&share->in[i], spec->threads)) return false;
    }
    return take_share(&share->out[0], spec->threads);
}

static double fit(kolo_kernel_spec *spec) {
    kolo_kernel_spec share;
    if (spec->threads < 2 || !share_of(spec, &share)) return -1;
    double seconds = row_of(spec->op)->inner->fit(&share);
    if (seconds < 0) return -1;
    if (kolo_layout_is_open(&spec->in[1])) spec->in[1].layout = share.in[1].layout;
    return 1.02 * seconds * spec->threads; /* estimates are for one core */
}

/* ---- prepare and bind ---- */

typedef struct split_state {
    const kolo_kernel *inner;
    kolo_kernel_spec share;
    int threads;
    size_t scratch_bytes; /* of a thread */
    void *states[];       /* of each thread; NULL when the kernel does not bind */
} split_state;

static void release(void *state) {
    split_state *s = state;
    for (int i = 0; s && i < s->threads; i++) {
        if (s->states[i]) s->inner->release(s->states[i]);
    }
    kolo_free(s);
}

static kolo_status prepare(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    size_t bytes = sizeof(split_state) + (size_t)spec->threads * sizeof(void *);
    split_state *s = kolo_zalloc(bytes);
    if (!s) return KOLO_NOMEM(bytes);
    *state = s; /* the caller releases it, also on failure */
    s->inner = row_of(spec->op)->inner;
    s->threads = spec->threads;
    KOLO_ASSERT(share_of(spec, &s->share));
    for (int i = 0; s->inner->prepare && i < s->threads; i++) {
        KOLO_TRY(s->inner->prepare(&s->share, &s->states[i], &s->scratch_bytes));
    }
    s->scratch_bytes = kolo_round_up(s->scratch_bytes, 64);
    *scratch_bytes = s->scratch_bytes * (size_t)s->threads;
    return KOLO_OK;
}

/* The calls of the threads. */
typedef struct split_bound {
    const kolo_kernel *inner;
    int threads;
    kolo_call calls[];
} split_bound;

static void unbind(void *bound) {
    split_bound *b = bound;
    for (int i = 0; b && b->inner->unbind && i < b->threads; i++) {
        b->inner->unbind(b->calls[i].bound);
    }
    kolo_free(b);
}

static kolo_status bind(kolo_call *call) {
    split_state *s = call->state;
    const split_row *row = row_of(s->share.op);
    size_t bytes = sizeof(split_bound) + (size_t)s->threads * sizeof(kolo_call);
    split_bound *b = kolo_zalloc(bytes);
    if (!b) return KOLO_NOMEM(bytes);
    call->bound = b; /* the caller unbinds it, also on failure */
    b->inner = s->inner;
    b->threads = s->threads;
    for (int i = 0; i < s->threads; i++) {
        kolo_call *inner = &b->calls[i];
        *inner = (kolo_call){.spec = &s->share, .state = s->states[i]};
        for (int k = 0; k < s->share.n_in; k++) {
            size_t offset = row->splits[k] ? (size_t)i * kolo_tensor_bytes(&s->share.in[k]) : 0;
            inner->in[k] = (char *)call->in[k] + offset;
        }
        inner->out[0] = (char *)call->out[0] + (size_t)i * kolo_tensor_bytes(&s->share.out[0]);
        inner->scratch = (char *)call->scratch + (size_t)i * s->scratch_bytes;
        if (s->inner->bind) KOLO_TRY(s->inner->bind(inner));
    }
    return KOLO_OK;
}

/* ---- run ---- */

static void run_shares(const void *job, int part, int64_t begin, int64_t end) {
    const split_bound *b = job;
    for (int64_t i = begin; i < end; i++) b->inner->run(&b->calls[i]);
}

static void run(const kolo_call *call) {
    const split_bound *b = call->bound;
    kolo_kernel_parallel(b->threads, b->threads, run_shares, b);
}

static const char *implementation(const void *state) {
    const split_state *s = state;
    return s->inner->implementation ? s->inner->implementation(s->states[0]) : s->inner->name;
}

#define SPLIT_KERNEL(op_)                        \
    const kolo_kernel kolo_dnn_##op_##_split = { \
        .name = "dnn_" #op_ "_split",            \
        .op = &kolo_op_##op_,                    \
        .fit = fit,                              \
        .prepare = prepare,                      \
        .bind = bind,                            \
        .run = run,                              \
        .unbind = unbind,                        \
        .release = release,                      \
        .implementation = implementation,        \
        .bf16 = true,                            \
    }
SPLIT_KERNEL(conv2d);
SPLIT_KERNEL(conv2d_bwd_data);
SPLIT_KERNEL(linear);
SPLIT_KERNEL(linear_bwd_data);
SPLIT_KERNEL(matmul);

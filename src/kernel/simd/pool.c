/* Max and average pooling and their gradients, on f32 or bf16 images in any layout of
 * kolo_simd_image; input and output have the same layout. */
#include "kernel/simd/pool.h"

typedef struct pool_state {
    kolo_kernel_loop loop;
    kolo_simd_pool_job job; /* without the addresses */
} pool_state;

static bool is_max(const kolo_op *op) {
    return op == &kolo_op_max_pool2d || op == &kolo_op_max_pool2d_bwd;
}

static bool is_bwd(const kolo_op *op) {
    return op == &kolo_op_max_pool2d_bwd || op == &kolo_op_avg_pool2d_bwd ||
           op == &kolo_op_adaptive_avg_pool2d_bwd;
}

static bool is_adaptive(const kolo_op *op) {
    return op == &kolo_op_adaptive_avg_pool2d || op == &kolo_op_adaptive_avg_pool2d_bwd;
}

static double fit(kolo_kernel_spec *spec) {
    kolo_simd_image image;
    const kolo_layout *layout = &spec->in[0].layout;
    if (!kolo_simd_supports(spec) || !kolo_simd_image_of(&spec->in[0], &image)) return -1;
    double bytes = 0;
    for (int i = 0; i < spec->n_in; i++) {
        if (!kolo_layout_equal(&spec->in[i].layout, layout)) return -1;
        bytes += (double)kolo_tensor_bytes(&spec->in[i]);
    }
    for (int i = 0; i < spec->n_out; i++) {
        if (!kolo_layout_equal(&spec->out[i].layout, layout)) return -1;
        bytes += (double)kolo_tensor_bytes(&spec->out[i]);
    }
    /* The estimate: pixels of whole vectors run at cache speed; plain planes run channel by
     * channel. */
    double speed = image.inner % 8 == 0 ? 3 : image.inner == 1 ? 1 : 0.3;
    return kolo_kernel_seconds(0, bytes, speed);
}

static void set_windows(kolo_simd_pool_job *job, const kolo_attr *attr) {
    job->kernel_h = attr[KOLO_POOL_KERNEL_H].i;
    job->kernel_w = attr[KOLO_POOL_KERNEL_W].i;
    job->stride_h = attr[KOLO_POOL_STRIDE_H].i;
    job->stride_w = attr[KOLO_POOL_STRIDE_W].i;
    job->pad_h = attr[KOLO_POOL_PAD_H].i;
    job->pad_w = attr[KOLO_POOL_PAD_W].i;
    job->pad_below = job->pad_h + attr[KOLO_POOL_MORE_H].i;
    job->exclude_padding = attr[KOLO_POOL_EXCLUDE_PADDING].i;
    job->relu = attr[KOLO_POOL_RELU].i;
    job->tiles = job->pad_h == 0 && job->pad_w == 0 && job->kernel_h == 2 && job->kernel_w == 2 &&
                 job->stride_h == 2 && job->stride_w == 2 && 2 * job->small.h == job->big.h &&
                 2 * job->small.w == job->big.w;
}

/* Floats of scratch memory per part. */
static int64_t part_floats(const kolo_kernel_spec *spec, const kolo_simd_pool_job *job) {
    int64_t row = job->small.w * job->small.inner;
    if (spec->op == &kolo_op_max_pool2d) return job->tiles ? 0 : 2 * job->kernel_h * row;
    if (spec->op == &kolo_op_max_pool2d_bwd) {
        int64_t rows = kolo_simd_reach(job->kernel_h, job->stride_h);
        row += 2 * kolo_simd_reach(job->kernel_w, job->stride_w) * job->small.inner;
        return job->tiles ? 0 : 2 * rows * row;
    }
    return is_bwd(spec->op) && job->bf16 ? kolo_simd_plane_size(&job->big) : 0;
}

static kolo_status prepare(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    const kolo_simd_pool_table *table =
        is_max(spec->op) ? KOLO_ISA_PICK(kolo_simd_max_pool) : KOLO_ISA_PICK(kolo_simd_avg_pool);
    const bool bwd = is_bwd(spec->op);
    pool_state *s = kolo_zalloc(sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    s->loop = bwd ? table->bwd : table->fwd;
    kolo_simd_pool_job *job = &s->job;
    KOLO_ASSERT(kolo_simd_image_of(bwd ? &spec->out[0] : &spec->in[0], &job->big));
    KOLO_ASSERT(kolo_simd_image_of(bwd ? &spec->in[0] : &spec->out[0], &job->small));
    /* An image of one pixel has two views; both sides must use the same. */
    if (job->small.inner != job->big.inner) {
        kolo_simd_image *other = job->small.inner > job->big.inner ? &job->small : &job->big;
        other->planes = other->c;
        other->inner = 1;
    }
    *state = s;
    job->bf16 = kolo_simd_is_bf16(spec);
    job->adaptive = is_adaptive(spec->op);
    if (!job->adaptive) set_windows(job, spec->attr);
    job->part_stride = part_floats(spec, job);
    *scratch_bytes = sizeof(float) * (size_t)(spec->threads * job->part_stride);
    return KOLO_OK;
}

static void run(const kolo_call *call) {
    const pool_state *s = call->state;
    const kolo_op *op = call->spec->op;
    kolo_simd_pool_job job = s->job;
    job.in = call->in[0];
    job.out = call->out[0];
    job.scratch = call->scratch;
    if (op == &kolo_op_max_pool2d) job.index = call->out[1];
    if (op == &kolo_op_max_pool2d_bwd) {
        job.index = call->in[1];
        job.y = call->spec->n_in == 3 ? call->in[2] : NULL;
    }
    kolo_kernel_parallel(call->spec->threads, job.big.n * job.big.planes, s->loop, &job);
}

#define POOL(text, op_name)                   \
    const kolo_kernel kolo_simd_##op_name = { \
        .name = text,                         \
        .op = &kolo_op_##op_name,             \
        .fit = fit,                           \
        .prepare = prepare,                   \
        .run = run,                           \
        .release = kolo_free,                 \
    }
POOL("simd_max_pool2d", max_pool2d);
POOL("simd_max_pool2d_bwd", max_pool2d_bwd);
POOL("simd_avg_pool2d", avg_pool2d);
POOL("simd_avg_pool2d_bwd", avg_pool2d_bwd);
POOL("simd_adaptive_avg_pool2d", adaptive_avg_pool2d);
POOL("simd_adaptive_avg_pool2d_bwd", adaptive_avg_pool2d_bwd);

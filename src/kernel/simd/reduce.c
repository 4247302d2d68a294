/* Sums, means, maxima and minima over dimensions, of tensors in any layouts without padding, and
 * the gradient of sums. The sum of all elements is cut into blocks, one after another in memory. */
#include "kernel/simd/reduce.h"

#include "kernel/simd/binary.h"
#include "kernel/simd/pointwise.h"

static bool is_full(const kolo_kernel_spec *spec) {
    const int x = spec->op == &kolo_op_sum_bwd;
    for (int d = 0; d < spec->in[x].shape.rank; d++) {
        if (!kolo_sum_over(spec->attr, d)) return false;
    }
    return true;
}

/* What a sum is multiplied by. */
static float factor_of(const kolo_kernel_spec *spec) {
    const kolo_shape *x = &spec->in[spec->op == &kolo_op_sum_bwd].shape;
    double count = 1;
    if (spec->op == &kolo_op_reduce_max || !spec->attr[KOLO_SUM_MEAN].i) return 1;
    for (int d = 0; d < x->rank; d++) {
        if (kolo_sum_over(spec->attr, d)) count *= (double)x->dim[d];
    }
    return (float)(1 / count);
}

static kolo_simd_nested whole(const kolo_tensor *t) {
    kolo_simd_nested all = {.tensor = t};
    for (int d = 0; d < KOLO_MAX_RANK; d++) all.dim[d] = d;
    return all;
}
static kolo_simd_nested without_axes(const kolo_tensor *t, const kolo_attr *attr) {
    kolo_simd_nested kept = {.tensor = t};
    for (int d = 0; d < KOLO_MAX_RANK; d++) kept.dim[d] = kolo_sum_dim(attr, d);
    return kept;
}

/* ---- sum, reduce_max ---- */

static void push(kolo_simd_nest *to, const kolo_simd_nest *from, int d) {
    to->size[to->n_dims] = from->size[d];
    for (int k = 0; k < from->n_tensors; k++) to->stride[k][to->n_dims] = from->stride[k][d];
    to->n_tensors = from->n_tensors;
    to->n_dims++;
}

static bool init_job(const kolo_kernel_spec *spec, kolo_simd_reduce_job *job) {
    const kolo_tensor *x = &spec->in[0];
    const kolo_simd_nested tensors[] = {whole(x), without_axes(&spec->out[0], spec->attr)};
    kolo_simd_nest nest;
    *job = (kolo_simd_reduce_job){.factor = factor_of(spec)};
    job->kept.n_tensors = job->reduced.n_tensors = 2;
    if (!kolo_simd_nest_init(&nest, &x->shape, 0, 2, tensors)) return false;
    for (int d = 0; d < nest.n_dims; d++) {
        push(nest.stride[1][d] == 0 ? &job->reduced : &job->kept, &nest, d);
    }
    job->kept_inside = nest.stride[1][nest.n_dims - 1] != 0;
    return true;
}

static bool is_dense(const kolo_tensor *t) {
    return kolo_tensor_elements(t) == kolo_shape_count(&t->shape);
}

static double fit_sum(kolo_kernel_spec *spec) {
    kolo_simd_reduce_job job;
    if (!kolo_spec_floats_are(spec, KOLO_DTYPE_F32)) return -1;
    bool sum = spec->op == &kolo_op_sum && is_full(spec) && is_dense(&spec->in[0]);
    if (!sum && !init_job(spec, &job)) return -1;
    return kolo_kernel_seconds(0, (double)kolo_tensor_bytes(&spec->in[0]), 2);
}

static kolo_status prepare_sum(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    const int64_t blocks = kolo_square_blocks(kolo_tensor_elements(&spec->in[0]));
    *scratch_bytes = spec->op == &kolo_op_sum ? sizeof(float) * (size_t)blocks : 0;
    if (spec->op == &kolo_op_sum && is_full(spec)) return KOLO_OK;
    kolo_simd_reduce_job *job = kolo_alloc(sizeof *job);
    if (!job) return KOLO_NOMEM(sizeof *job);
    KOLO_ASSERT(init_job(spec, job));
    *state = job;
    return KOLO_OK;
}

static void run_full_sum(const kolo_call *call) {
    kolo_simd_block_job job = {
        .x = call->in[0],
        .count = kolo_tensor_elements(&call->spec->in[0]),
        .sums = call->scratch,
    };
    const int64_t blocks = kolo_square_blocks(job.count);
    kolo_kernel_parallel(call->spec->threads, blocks, KOLO_ISA_PICK(kolo_simd_point)->sum, &job);
    double total = 0;
    for (int64_t i = 0; i < blocks; i++) total += (double)job.sums[i];
    *(float *)call->out[0] = (float)total * factor_of(call->spec);
}

static void run_sum(const kolo_call *call) {
    if (!call->state) {
        run_full_sum(call);
        return;
    }
    const kolo_simd_reduce_table *table = KOLO_ISA_PICK(kolo_simd_reduce);
    kolo_simd_reduce_job job = *(const kolo_simd_reduce_job *)call->state;
    job.x = call->in[0];
    job.y = call->out[0];
    kolo_kernel_loop loop = call->spec->op == &kolo_op_sum        ? table->sum
                            : call->spec->attr[KOLO_REDUCE_MIN].i ? table->min
                                                                  : table->max;
    kolo_kernel_parallel(call->spec->threads, kolo_simd_reduce_items(&job), loop, &job);
}

const kolo_kernel kolo_simd_sum = {
    .name = "simd_sum",
    .op = &kolo_op_sum,
    .fit = fit_sum,
    .prepare = prepare_sum,
    .run = run_sum,
    .release = kolo_free,
};
const kolo_kernel kolo_simd_reduce_max = {
    .name = "simd_reduce_max",
    .op = &kolo_op_reduce_max,
    .fit = fit_sum,
    .prepare = prepare_sum,
    .run = run_sum,
    .release = kolo_free,
};

/* ---- sum_bwd ---- */

/* Of dy, the factor and dx. */
static bool init_nest(const kolo_kernel_spec *spec, kolo_simd_nest *nest) {
    static const kolo_tensor factor = {.dtype = KOLO_DTYPE_F32};
    const kolo_tensor *dx = &spec->out[0];
    const kolo_simd_nested tensors[] = {
        without_axes(&spec->in[0], spec->attr), {&factor, {-1, -1, -1, -1, -1, -1}}, whole(dx)};
    return kolo_simd_nest_init(nest, &dx->shape, 2, 3, tensors);
}

static double fit_bwd(kolo_kernel_spec *spec) {
    kolo_simd_nest nest;
    const bool f32 = spec->in[0].dtype == KOLO_DTYPE_F32 && spec->out[0].dtype == KOLO_DTYPE_F32;
    if (!f32 || !is_dense(&spec->out[0])) return -1;
    if (!is_full(spec) && !init_nest(spec, &nest)) return -1;
    return kolo_kernel_seconds(0, (double)kolo_tensor_bytes(&spec->out[0]), 2);
}

static kolo_status prepare_bwd(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    *scratch_bytes = 0;
    if (is_full(spec)) return KOLO_OK;
    kolo_simd_nest *nest = kolo_alloc(sizeof *nest);
    if (!nest) return KOLO_NOMEM(sizeof *nest);
    KOLO_ASSERT(init_nest(spec, nest));
    *state = nest;
    return KOLO_OK;
}

static void run_bwd(const kolo_call *call) {
    const float factor = factor_of(call->spec);
    if (!call->state) {
        const kolo_simd_fill_job job = {.number = *(const float *)call->in[0] * factor,
                                        .to = call->out[0]};
        kolo_kernel_parallel(call->spec->threads, kolo_tensor_elements(&call->spec->out[0]),
                             KOLO_ISA_PICK(kolo_simd_point)->fill, &job);
        return;
    }
    const kolo_simd_binary_job job = {
        .nest = call->state, .a = call->in[0], .b = &factor, .out = call->out[0]};
    kolo_kernel_parallel(call->spec->threads, kolo_simd_binary_items(job.nest),
                         KOLO_ISA_PICK(kolo_simd_binary)->broadcast_mul, &job);
}

const kolo_kernel kolo_simd_sum_bwd = {
    .name = "simd_sum_bwd",
    .op = &kolo_op_sum_bwd,
    .fit = fit_bwd,
    .prepare = prepare_bwd,
    .run = run_bwd,
    .release = kolo_free,
};

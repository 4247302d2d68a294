/* Element-wise kernels: relu, relu_bwd, add, sgd and accumulate when all tensors share one
 * layout (padding stays zero); bias and bias_bwd on images. */
#include "kernel/simd/pointwise.h"

typedef struct point_state {
    kolo_kernel_loop loop;
    int64_t items;
    kolo_simd_image image; /* bias, bias_bwd */
} point_state;

static double seconds(const kolo_kernel_spec *spec) {
    double bytes = 0;
    for (int i = 0; i < spec->n_in; i++) bytes += (double)kolo_tensor_bytes(&spec->in[i]);
    for (int i = 0; i < spec->n_out; i++) bytes += (double)kolo_tensor_bytes(&spec->out[i]);
    return kolo_kernel_seconds(0, bytes, 4); /* recent results are still in cache */
}

/* Element-wise kernels: every non-scalar tensor has the layout of the first output. */
static double fit_layouts(const kolo_kernel_spec *spec) {
    const kolo_layout *layout = &spec->out[0].layout;
    for (int i = 0; i < spec->n_in; i++) {
        const kolo_tensor *t = &spec->in[i];
        bool scalar = t->shape.rank == 0 && spec->out[0].shape.rank > 0;
        if (!scalar && !kolo_layout_equal(&t->layout, layout)) return -1;
    }
    for (int i = 1; i < spec->n_out; i++) {
        if (!kolo_layout_equal(&spec->out[i].layout, layout)) return -1;
    }
    return seconds(spec);
}

static double fit_equal(kolo_kernel_spec *spec) {
    return kolo_spec_floats_are(spec, KOLO_DTYPE_F32) ? fit_layouts(spec) : -1;
}

static kolo_status keep(kolo_kernel_loop loop, int64_t items, void **state) {
    point_state *s = kolo_zalloc(sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    s->loop = loop;
    s->items = items;
    *state = s;
    return KOLO_OK;
}

/* ---- relu, relu_bwd, add ---- */

static double fit_pair(kolo_kernel_spec *spec) {
    return kolo_simd_supports(spec) ? fit_layouts(spec) : -1;
}

static kolo_status prepare_pair(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    const kolo_simd_point_table *table = KOLO_ISA_PICK(kolo_simd_point);
    kolo_kernel_loop loop = spec->op == &kolo_op_relu       ? table->relu
                            : spec->op == &kolo_op_relu_bwd ? table->relu_bwd
                            : spec->attr[KOLO_ADD_RELU].i   ? table->add_relu
                                                            : table->add;
    *scratch_bytes = 0;
    return keep(loop, kolo_tensor_elements(&spec->out[0]), state);
}

static void run_pair(const kolo_call *call) {
    const point_state *s = call->state;
    int n = call->spec->n_in;
    kolo_simd_pair_job job = {.a = call->in[0],
                              .b = n > 1 ? call->in[1] : NULL,
                              .c = n > 2 ? call->in[2] : NULL,
                              .out = call->out[0],
                              .bf16 = kolo_simd_is_bf16(call->spec)};
    kolo_kernel_parallel(call->spec->threads, s->items, s->loop, &job);
}

#define PAIR(text, op_name)                   \
    const kolo_kernel kolo_simd_##op_name = { \
        .name = text,                         \
        .op = &kolo_op_##op_name,             \
        .fit = fit_pair,                      \
        .prepare = prepare_pair,              \
        .run = run_pair,                      \
        .release = kolo_free,                 \
    }
PAIR("simd_relu", relu);
PAIR("simd_relu_bwd", relu_bwd);
PAIR("simd_add", add);

/* ---- sgd ---- */

enum { SGD_W, SGD_G, SGD_LR, SGD_V };

/* Number of elements from which a tensor is not worth caching until the next step. */
enum { STREAMED = 1 << 18 };

static bool is_aligned(const void *p) { return (uintptr_t)p % 64 == 0; }

static kolo_status prepare_sgd(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    const kolo_simd_point_table *table = KOLO_ISA_PICK(kolo_simd_point);
    *scratch_bytes = 0;
    return keep(spec->n_in > SGD_V ? table->sgd : table->sgd_plain,
                kolo_tensor_elements(&spec->out[0]), state);
}

static void run_sgd(const kolo_call *call) {
    const point_state *s = call->state;
    const kolo_kernel_spec *spec = call->spec;
    bool speed = spec->n_in > SGD_V;
    kolo_simd_sgd_job job = {
        .w = call->in[SGD_W],
        .g = kolo_simd_gradient(call, SGD_G),
        .v = speed ? call->in[SGD_V] : NULL,
        .w_next = call->out[0],
        .v_next = speed ? call->out[1] : NULL,
        .lr = *(const float *)call->in[SGD_LR],
        .momentum = (float)spec->attr[KOLO_SGD_MOMENTUM].f,
        .weight_decay = (float)spec->attr[KOLO_SGD_WEIGHT_DECAY].f,
        .nesterov = spec->attr[KOLO_SGD_NESTEROV].i != 0,
    };
    /* In place, the line is already in cache: non-temporal stores save nothing. Other ranks read
     * the results of ranges, so that a line of these is in their caches, and a store of the usual
     * kind waits until it is not: with caches apart up to ten times as long as one that bypasses
     * them. */
    const bool aligned = speed && is_aligned(job.w_next) && is_aligned(job.v_next);
    const bool large = s->items >= STREAMED;
    job.streams_w = aligned && job.w_next != job.w && (large || call->summands);
    job.streams_v = aligned && job.v_next != job.v && large;
    kolo_kernel_parallel(spec->threads, s->items, s->loop, &job);
}

const kolo_kernel kolo_simd_sgd = {
    .name = "simd_sgd",
    .op = &kolo_op_sgd,
    .summands = SGD_G,
    .fit = fit_equal,
    .prepare = prepare_sgd,
    .run = run_sgd,
    .release = kolo_free,
};

/* ---- accumulate ---- */

static kolo_status prepare_accumulate(const kolo_kernel_spec *spec, void **state,
                                      size_t *scratch_bytes) {
    *scratch_bytes = 0;
    return keep(KOLO_ISA_PICK(kolo_simd_point)->accumulate, kolo_tensor_elements(&spec->out[0]),
                state);
}

static void run_accumulate(const kolo_call *call) {
    const point_state *s = call->state;
    kolo_simd_accumulate_job job = {
        .x = call->in[0],
        .sum = call->out[0],
        .keep = (float)call->spec->attr[KOLO_ACCUMULATE_KEEP].f,
        .fresh = *(const float *)call->in[1] != 0,
    };
    kolo_kernel_parallel(call->spec->threads, s->items, s->loop, &job);
}

const kolo_kernel kolo_simd_accumulate = {
    .name = "simd_accumulate",
    .op = &kolo_op_accumulate,
    .fit = fit_equal,
    .prepare = prepare_accumulate,
    .run = run_accumulate,
    .release = kolo_free,
};

/* ---- convert ---- */

static double fit_convert(kolo_kernel_spec *spec) {
    if (!kolo_layout_equal(&spec->in[0].layout, &spec->out[0].layout)) return -1;
    return seconds(spec);
}

static kolo_status prepare_convert(const kolo_kernel_spec *spec, void **state,
                                   size_t *scratch_bytes) {
    const kolo_simd_point_table *table = KOLO_ISA_PICK(kolo_simd_point);
    *scratch_bytes = 0;
    return keep(spec->in[0].dtype == KOLO_DTYPE_BF16 ? table->widen : table->narrow,
                kolo_tensor_elements(&spec->out[0]), state);
}

static void run_convert(const kolo_call *call) {
    const point_state *s = call->state;
    kolo_simd_convert_job job = {call->in[0], call->out[0]};
    kolo_kernel_parallel(call->spec->threads, s->items, s->loop, &job);
}

const kolo_kernel kolo_simd_convert = {
    .name = "simd_convert",
    .op = &kolo_op_convert,
    .fit = fit_convert,
    .prepare = prepare_convert,
    .run = run_convert,
    .release = kolo_free,
};

/* ---- bias, bias_bwd ---- */

static double fit_bias(kolo_kernel_spec *spec) {
    kolo_simd_image image;
    if (!kolo_simd_supports(spec) || !kolo_simd_image_of(&spec->in[0], &image)) return -1;
    if (spec->op == &kolo_op_bias &&
        !kolo_layout_equal(&spec->in[0].layout, &spec->out[0].layout)) {
        return -1;
    }
    return seconds(spec);
}

static kolo_status prepare_bias(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    const kolo_simd_point_table *table = KOLO_ISA_PICK(kolo_simd_point);
    bool backwards = spec->op == &kolo_op_bias_bwd;
    kolo_simd_image image;
    KOLO_ASSERT(kolo_simd_image_of(&spec->in[0], &image));
    *scratch_bytes = 0;
    KOLO_TRY(keep(backwards ? table->bias_bwd : table->bias,
                  backwards ? kolo_simd_slices(&image) : image.n * image.planes, state));
    ((point_state *)*state)->image = image;
    return KOLO_OK;
}

static void run_bias(const kolo_call *call) {
    const point_state *s = call->state;
    bool backwards = call->spec->op == &kolo_op_bias_bwd;
    kolo_simd_bias_job job = {.image = s->image,
                              .x = call->in[0],
                              .b = backwards ? NULL : call->in[1],
                              .out = call->out[0],
                              .bf16 = kolo_simd_is_bf16(call->spec)};
    kolo_kernel_parallel(call->spec->threads, s->items, s->loop, &job);
}

#define BIAS(text, op_name)                   \
    const kolo_kernel kolo_simd_##op_name = { \
        .name = text,                         \
        .op = &kolo_op_##op_name,             \
        .fit = fit_bias,                      \
        .prepare = prepare_bias,              \
        .run = run_bias,                      \
        .release = kolo_free,                 \
    }
BIAS("simd_bias", bias);
BIAS("simd_bias_bwd", bias_bwd);

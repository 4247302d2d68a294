/* Direct convolution for few channels: conv2d and its gradients (loops: conv.isa.c).
 *
 * Weights may have any layout: every run packs them into scratch memory through a table of
 * offsets built in `prepare` (they are small), and the weight gradient is unpacked the same way.
 * Open layouts become plain. y and dy of forward and bwd_weights need channels in multiples of
 * eight; all other images may have any layout of kolo_simd_image.
 *
 * Scratch memory: packed weights (or one block of partial sums per part), bias, then a workspace
 * per part. bwd_weights adds the partial sums in order, so its result depends on the number of
 * threads, but on nothing else. */

#include "kernel/simd/conv.h"

#include "kernel/simd/pointwise.h"

#include <string.h>

enum {
    MAX_CHANNELS = 16, /* above this, oneDNN is faster */
    MAX_OUTPUTS = 64,
    MAX_KERNEL = 11,
    PAIR = 16,              /* lanes of two images of eight channels, */
    PAIR_BYTES = 512 << 10, /* whose elements, a vector each, stay in the cache */
};

typedef struct conv_state {
    const kolo_simd_conv_table *table;
    kolo_kernel_loop bias_bwd;
    kolo_simd_conv_job job; /* without the addresses */
    int64_t n_packed;
    int32_t *place; /* weight offset of each packed element, -1 for zero padding */
} conv_state;

/* The roles of a spec's tensors. */
typedef struct conv_roles {
    const kolo_tensor *x, *y, *w;
} conv_roles;

static conv_roles roles_of(const kolo_kernel_spec *spec) {
    if (spec->op == &kolo_op_conv2d) return (conv_roles){&spec->in[0], &spec->out[0], &spec->in[1]};
    if (spec->op == &kolo_op_conv2d_bwd_data) {
        return (conv_roles){&spec->out[0], &spec->in[0], &spec->in[1]};
    }
    return (conv_roles){&spec->in[1], &spec->in[0], &spec->out[0]};
}

static int64_t round_up_to(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/* Whether two images may share vectors. */
static bool may_pair(const kolo_simd_image *y, int64_t vector) {
    return vector == PAIR && y->planes * y->inner == PAIR / 2 && y->n > 1;
}

/* ---- fit ---- */

/* Estimated fraction of peak, counting padded multiplications: one vector of accumulators has
 * fewer independent chains than two. Images of few channels are small enough for the caches. */
static double seconds(const kolo_kernel_spec *spec, const kolo_simd_image *x,
                      const kolo_simd_image *y) {
    conv_roles role = roles_of(spec);
    int64_t vector = KOLO_ISA_PICK(kolo_simd_conv)->vector;
    int64_t kernel_h = role.w->shape.dim[2], columns = role.w->shape.dim[3] * x->c;
    bool data = spec->op == &kolo_op_conv2d_bwd_data;
    int64_t lanes = round_up_to(data ? columns : y->planes * y->inner, vector);
    if (!data && may_pair(y, vector)) lanes = PAIR / 2;
    double sums = (double)(lanes * (data ? y->c : columns));
    double efficiency = data || lanes <= vector ? 0.8 : 0.95;
    double bytes = (double)(kolo_tensor_bytes(role.x) + kolo_tensor_bytes(role.y));
    double flops = 2.0 * (double)(y->n * y->h * y->w * kernel_h) * sums;
    return kolo_kernel_seconds(flops, 0, efficiency) + kolo_kernel_seconds(0, bytes, 4);
}

static double fit(kolo_kernel_spec *spec) {
    const kolo_attr *attr = spec->attr;
    conv_roles role = roles_of(spec);
    kolo_simd_image x, y;
    if (!kolo_spec_floats_are(spec, KOLO_DTYPE_F32)) return -1;
    if (!kolo_simd_image_of(role.x, &x) || !kolo_simd_image_of(role.y, &y)) return -1;
    bool data = spec->op == &kolo_op_conv2d_bwd_data;
    if (!data && y.inner % 8 != 0) return -1;
    if (attr[KOLO_CONV_GROUPS].i != 1) return -1;
    if (attr[KOLO_CONV_DILATION_H].i != 1 || attr[KOLO_CONV_DILATION_W].i != 1) return -1;
    int64_t kernel_h = role.w->shape.dim[2], kernel_w = role.w->shape.dim[3];
    if (kernel_h > MAX_KERNEL || kernel_w > MAX_KERNEL) return -1;
    if (x.c > MAX_CHANNELS || y.c > MAX_OUTPUTS) return -1;
    if (kolo_layout_is_open(role.w)) spec->in[1].layout = kolo_layout_plain(4);
    return seconds(spec, &x, &y);
}

/* ---- prepare ---- */

/* Floats of an image with margins, or of a pair. */
static int64_t part_size(const kolo_simd_conv_job *job) {
    const int64_t elements = job->x.planes * kolo_simd_padded_plane(job);
    if (job->pairs) return elements * PAIR;
    return kolo_simd_has_margins(job) ? elements : 0;
}

static bool takes_pairs(const kolo_simd_conv_job *job, int vector) {
    const int64_t elements = job->x.planes * kolo_simd_padded_plane(job);
    return may_pair(&job->y, vector) && elements * PAIR * (int64_t)sizeof(float) <= PAIR_BYTES;
}

static int64_t part_size_bwd_data(const kolo_simd_conv_job *job) {
    int64_t row = (job->x.w + 2 * job->pad_w) * round_up_to(job->x.c, 8);
    return row + job->y.w * job->lanes + 16; /* vector loads read past the end */
}

/* Builds the table of packed weights: [C][KH][KW][lanes of o], or [KH][O][lanes of kw * C + c]. */
static kolo_status make_places(conv_state *s, const kolo_tensor *w, bool data) {
    const kolo_simd_conv_job *job = &s->job;
    int64_t rows = data ? job->y.c * job->kernel_h : job->x.c * job->kernel_h * job->kernel_w;
    s->n_packed = rows * job->lanes;
    size_t bytes = sizeof *s->place * (size_t)s->n_packed;
    s->place = kolo_alloc(bytes);
    if (!s->place) return KOLO_NOMEM(bytes);
    for (int64_t i = 0; i < s->n_packed; i++) {
        int64_t row = i / job->lanes, lane = i % job->lanes;
        int64_t o = lane, c = row / job->kernel_w / job->kernel_h;
        int64_t kh = row / job->kernel_w % job->kernel_h, kw = row % job->kernel_w;
        if (data) {
            o = row % job->y.c;
            kh = row / job->y.c;
            kw = lane / job->x.c;
            c = lane % job->x.c;
        } else if (job->pairs) {
            o = lane % (PAIR / 2);
        }
        bool there = o < job->y.c && kw < job->kernel_w;
        int64_t index[4] = {o, c, kh, kw};
        s->place[i] = there ? (int32_t)kolo_layout_offset(&w->layout, &w->shape, index) : -1;
    }
    return KOLO_OK;
}

static void release(void *state) {
    conv_state *s = state;
    kolo_free(s->place);
    kolo_free(s);
}

static kolo_status prepare(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    conv_roles role = roles_of(spec);
    const kolo_attr *attr = spec->attr;
    bool data = spec->op == &kolo_op_conv2d_bwd_data;
    conv_state *s = kolo_zalloc(sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    s->table = KOLO_ISA_PICK(kolo_simd_conv);
    s->bias_bwd = KOLO_ISA_PICK(kolo_simd_point)->bias_bwd;
    kolo_simd_conv_job *job = &s->job;
    KOLO_ASSERT(kolo_simd_image_of(role.x, &job->x) && kolo_simd_image_of(role.y, &job->y));
    job->kernel_h = role.w->shape.dim[2];
    job->kernel_w = role.w->shape.dim[3];
    job->stride_h = attr[KOLO_CONV_STRIDE_H].i;
    job->stride_w = attr[KOLO_CONV_STRIDE_W].i;
    job->pad_h = attr[KOLO_CONV_PAD_H].i;
    job->pad_w = attr[KOLO_CONV_PAD_W].i;
    job->pad_below = job->pad_h + attr[KOLO_CONV_MORE_H].i;
    job->relu = spec->op == &kolo_op_conv2d && attr[KOLO_CONV_RELU].i;
    job->lanes = round_up_to(data ? job->kernel_w * job->x.c : job->y.planes * job->y.inner,
                             s->table->vector);
    job->pairs = !data && takes_pairs(job, s->table->vector);
    kolo_status status = make_places(s, role.w, data);
    if (status != KOLO_OK) {
        release(s);
        return status;
    }
    job->part_stride = round_up_to(data ? part_size_bwd_data(job) : part_size(job), 16);
    bool weights = spec->op == &kolo_op_conv2d_bwd_weights;
    int64_t packed = round_up_to(s->n_packed * (weights ? spec->threads : 1), 16);
    int64_t bias = round_up_to(job->lanes, 16);
    *scratch_bytes = sizeof(float) * (size_t)(packed + bias + job->part_stride * spec->threads);
    *state = s;
    return KOLO_OK;
}

/* ---- run ---- */

/* Packs the weights into scratch memory; returns the end. */
static float *pack(const conv_state *s, const float *w, float *scratch) {
    for (int64_t i = 0; i < s->n_packed; i++) scratch[i] = s->place[i] < 0 ? 0 : w[s->place[i]];
    return scratch + round_up_to(s->n_packed, 16);
}

static void run_conv2d(const kolo_call *call) {
    const conv_state *s = call->state;
    kolo_simd_conv_job job = s->job;
    float *bias = pack(s, call->in[1], call->scratch);
    memset(bias, 0, sizeof(float) * (size_t)job.lanes);
    const size_t bias_bytes = sizeof(float) * (size_t)job.y.c;
    if (call->spec->n_in > 2) memcpy(bias, call->in[2], bias_bytes);
    if (call->spec->n_in > 2 && job.pairs) memcpy(bias + PAIR / 2, call->in[2], bias_bytes);
    job.in_x = call->in[0];
    job.packed = call->scratch;
    job.bias = bias;
    job.out = call->out[0];
    job.scratch = bias + round_up_to(job.lanes, 16);
    kolo_kernel_parallel(call->spec->threads, job.x.n, s->table->forward, &job);
}

static void run_bwd_data(const kolo_call *call) {
    const conv_state *s = call->state;
    kolo_simd_conv_job job = s->job;
    job.scratch = pack(s, call->in[1], call->scratch);
    job.in_dy = call->in[0];
    job.packed = call->scratch;
    job.out = call->out[0];
    kolo_kernel_parallel(call->spec->threads, job.x.n, s->table->bwd_data, &job);
}

static void run_bwd_weights(const kolo_call *call) {
    const conv_state *s = call->state;
    int threads = call->spec->threads;
    kolo_simd_conv_job job = s->job;
    job.in_dy = call->in[0];
    job.in_x = call->in[1];
    job.out = call->scratch;
    job.scratch = job.out + round_up_to(s->n_packed * threads, 16);
    kolo_kernel_parallel(threads, job.x.n, s->table->bwd_weights, &job);
    float *dw = call->out[0];
    memset(dw, 0, kolo_tensor_bytes(&call->spec->out[0]));
    for (int64_t i = 0; i < s->n_packed; i++) {
        if (s->place[i] < 0) continue;
        float sum = job.out[i];
        for (int part = 1; part < threads; part++) sum += job.out[part * s->n_packed + i];
        dw[s->place[i]] += sum; /* of the lanes of a pair, both */
    }
    if (call->spec->n_out == 1) return;
    kolo_simd_bias_job bias = {.image = job.y, .x = job.in_dy, .out = call->out[1]};
    kolo_kernel_parallel(threads, kolo_simd_slices(&job.y), s->bias_bwd, &bias);
}

const kolo_kernel kolo_simd_conv2d = {
    .name = "simd_conv2d",
    .op = &kolo_op_conv2d,
    .fit = fit,
    .prepare = prepare,
    .run = run_conv2d,
    .release = release,
};
const kolo_kernel kolo_simd_conv2d_bwd_data = {
    .name = "simd_conv2d_bwd_data",
    .op = &kolo_op_conv2d_bwd_data,
    .fit = fit,
    .prepare = prepare,
    .run = run_bwd_data,
    .release = release,
};
const kolo_kernel kolo_simd_conv2d_bwd_weights = {
    .name = "simd_conv2d_bwd_weights",
    .op = &kolo_op_conv2d_bwd_weights,
    .fit = fit,
    .prepare = prepare,
    .run = run_bwd_weights,
    .release = release,
};

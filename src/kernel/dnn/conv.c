/* Convolution on oneDNN: forward with bias and ReLU, data gradient, weight gradient with bias.
 *
 * oneDNN selects an implementation by the memory formats of the three tensors. A format that is
 * fast may have equivalents, describing the same bytes, that only a reference loop supports. The
 * plan is therefore the best of several attempts: each tensor in its own format or in an
 * equivalent one (a single channel; blocks counted as channels), weights in the node's layout or
 * in oneDNN's preferred one with a reorder.
 *
 * oneDNN's Winograd, F(4x4, 3x3), provides three more kernels. oneDNN 2.6 has it for AVX-512
 * only, with channels in blocks of 16 and weights in an ordinary layout, which it transforms in
 * every run. */
#include "kernel/dnn/dnn.h"

#include <math.h>
#include <string.h>

typedef enum conv_pass { CONV_FWD, CONV_BWD_DATA, CONV_BWD_WEIGHTS } conv_pass;

/* A convolution node in any direction, and the tensors of one attempt. */
typedef struct conv {
    const kolo_kernel_spec *spec;
    conv_pass pass;
    kolo_tensor x, w, y; /* of the node */
    dnnl_alg_kind_t algorithm;
    int64_t groups;
    bool relu, bias;
    dnnl_dims_t strides, dilates, pads, pads_behind;
} conv;

/* ---- estimate ---- */

/* The estimated fraction of peak that oneDNN reaches, from the implementation's name and the
 * channel counts. `in` are the channels that a pass reduces over, `out` those that it writes
 * (for weights: C and O). The last vector of output channels is partly empty, and few vectors
 * allow little register reuse. */
static double conv_efficiency(const char *impl, conv_pass pass, double in, double out, bool nhwc) {
    if (strstr(impl, "gemm")) {
        return 0.9 * out / (out + 30) * (pass == CONV_BWD_WEIGHTS ? 0.8 : 1);
    }
    double lanes = strstr(impl, "avx512") ? 16 : 8;
    double whole = lanes * ceil(out / lanes);
    double share = out / (whole + (pass == CONV_FWD ? lanes : lanes / 2));
    if (strstr(impl, "sse")) share *= 0.25;
    if (pass == CONV_BWD_WEIGHTS) share *= in < 4 ? 0.5 : in < 32 ? 0.9 : 0.6;
    if (pass == CONV_FWD && nhwc && !strstr(impl, "brg")) share *= in < 4 ? 0.7 : 0.85;
    return share;
}

/* The estimate of Winograd. Tiles at the border may extend past the image; transformed filters,
 * 36 points each, may exceed the caches. The estimate is slightly above that of the simd
 * Winograd kernel, whose bits do not depend on the thread count: only a measured time prefers
 * oneDNN's. */
static double wino_seconds(const conv *c, double flops, double bytes, const kolo_tensor *w,
                           const kolo_tensor *y) {
    double h = (double)y->shape.dim[2], wide = (double)y->shape.dim[3];
    double filled = h * wide / (16 * ceil(h / 4) * ceil(wide / 4));
    double efficiency = filled * (c->pass == CONV_BWD_WEIGHTS ? 1.3 : 1.5);
    double filters = 4.0 * 36 / 9 * (double)kolo_shape_count(&w->shape);
    return kolo_kernel_seconds(flops, bytes, efficiency) + kolo_kernel_seconds(0, filters, 1.2);
}

/* The estimate of a loop for depthwise convolutions, a sum of arithmetic and bytes: each element of
 * the images is used for few operations. NHWC images take longer, gradients above all. */
static double depthwise_seconds(const conv *c, const char *impl, double flops, double bytes,
                                bool nhwc) {
    double vectors = strstr(impl, "avx512") || kolo_isa_now() != KOLO_ISA_AVX512 ? 0.5 : 0.25;
    double share = !nhwc ? 1 : c->pass == CONV_FWD ? 0.8 : 0.6;
    return (kolo_kernel_seconds(flops, 0, vectors) + kolo_kernel_seconds(0, bytes, 2)) / share;
}

/* The estimate of a primitive on x, w, y. */
static double conv_seconds(const conv *c, const char *impl, const kolo_tensor *x,
                           const kolo_tensor *w, const kolo_tensor *y) {
    const int64_t *wd = w->shape.dim;
    double flops = 2.0 * (double)kolo_shape_count(&y->shape) * (double)(wd[1] * wd[2] * wd[3]);
    double bytes = (double)(kolo_tensor_bytes(x) + kolo_tensor_bytes(y)) +
                   (double)kolo_dtype_bytes(w->dtype) * (double)kolo_shape_count(&w->shape);
    double in = (double)wd[1], out = (double)wd[0] / (double)c->groups;
    if (c->pass == CONV_BWD_DATA) {
        in = out;
        out = (double)wd[1];
    }
    bool nhwc = x->layout.order[3] == 1 && x->layout.n_blocks == 0;
    if (c->algorithm == dnnl_convolution_winograd) return wino_seconds(c, flops, bytes, w, y);
    if (strstr(impl, "_dw")) return depthwise_seconds(c, impl, flops, bytes, nhwc);
    return kolo_kernel_seconds(flops / kolo_dnn_gain(impl, y->dtype), bytes,
                               conv_efficiency(impl, c->pass, in, out, nhwc));
}

/* ---- one attempt ---- */

/* The tensors of a primitive; the bias has y's channels. */
typedef struct formats {
    dnnl_memory_desc_t x, w, y, bias;
} formats;

static dnnl_primitive_desc_t create_conv(const conv *c, kolo_dnn_plan *plan, const formats *f) {
    dnnl_convolution_desc_t forward, op;
    dnnl_memory_desc_t w = f->w;
    /* With bf16 weights, the weight gradient is f32. */
    if (c->pass == CONV_BWD_WEIGHTS) w.data_type = f->y.data_type;
    /* The forward hint of a gradient is direct: Winograd need not support all directions. */
    dnnl_alg_kind_t algorithm = c->pass == CONV_FWD ? c->algorithm : dnnl_convolution_direct;
    if (dnnl_dilated_convolution_forward_desc_init(
            &forward, dnnl_forward_training, algorithm, &f->x, &w, &f->bias, &f->y, c->strides,
            c->dilates, c->pads, c->pads_behind) != dnnl_success) {
        return NULL;
    }
    if (c->pass == CONV_FWD) return kolo_dnn_create(plan, &forward, c->relu, NULL);
    dnnl_status_t status = c->pass == CONV_BWD_DATA
                               ? dnnl_dilated_convolution_backward_data_desc_init(
                                     &op, c->algorithm, &f->x, &f->w, &f->y, c->strides, c->dilates,
                                     c->pads, c->pads_behind)
                               : dnnl_dilated_convolution_backward_weights_desc_init(
                                     &op, c->algorithm, &f->x, &f->w, &f->bias, &f->y, c->strides,
                                     c->dilates, c->pads, c->pads_behind);
    dnnl_primitive_desc_t hint = NULL;
    if (status != dnnl_success ||
        dnnl_primitive_desc_create(&hint, &forward, NULL, plan->engine, NULL) != dnnl_success) {
        return NULL;
    }
    dnnl_primitive_desc_t desc = kolo_dnn_create(plan, &op, false, hint);
    dnnl_primitive_desc_destroy(hint);
    return desc;
}

static kolo_dnn_place weights_place(const conv *c) {
    return c->pass == CONV_BWD_WEIGHTS ? kolo_dnn_out(0) : kolo_dnn_in(1);
}

static kolo_dnn_place x_place(const conv *c) {
    return c->pass == CONV_BWD_DATA      ? kolo_dnn_out(0)
           : c->pass == CONV_BWD_WEIGHTS ? kolo_dnn_in(1)
                                         : kolo_dnn_in(0);
}

/* The node's weights in the layout that a primitive chose, with the node's sizes where the
 * primitive's include padding. False when the layout has no room for padding. */
static bool weights_as(const kolo_tensor *node, const kolo_tensor *primitive, kolo_tensor *as) {
    kolo_tensor t = *node;
    t.layout = primitive->layout;
    if (!kolo_dnn_same_memory(&t, primitive)) return false;
    *as = t;
    return true;
}

/* Appends the steps of `desc`, with reorders and copies where the node's tensors differ from the
 * primitive's. False when oneDNN cannot do them. Takes ownership of `desc` in any case. */
static bool add_steps(const conv *c, kolo_dnn_plan *plan, dnnl_primitive_desc_t desc,
                      const formats *f, kolo_dnn_place x_at) {
    bool backward_weights = c->pass == CONV_BWD_WEIGHTS;
    bool reorder = !plan->weights_in_place;
    size_t w_bytes = dnnl_memory_desc_get_size(&f->w),
           b_bytes = dnnl_memory_desc_get_size(&f->bias);
    size_t node_b_bytes = (size_t)c->w.shape.dim[0] * sizeof(float);
    bool copy = c->bias && b_bytes != node_b_bytes;
    kolo_dnn_place w_node = weights_place(c),
                   b_node = backward_weights ? kolo_dnn_out(1) : kolo_dnn_in(2);
    kolo_dnn_place w_at = reorder ? kolo_dnn_scratch(plan, w_bytes) : w_node;
    kolo_dnn_place b_at = copy ? kolo_dnn_scratch(plan, b_bytes) : b_node;

    if (reorder && !backward_weights &&
        !kolo_dnn_add_reorder(plan, &c->w, w_node, &plan->weights, w_at, c->groups)) {
        dnnl_primitive_desc_destroy(desc);
        return false;
    }
    if (copy && !backward_weights) {
        kolo_dnn_add_copy(plan, b_node, b_at, node_b_bytes, b_bytes - node_b_bytes);
    }
    kolo_dnn_step *step = kolo_dnn_add(plan, desc);
    bool data = c->pass == CONV_BWD_DATA;
    kolo_dnn_arg_at(step, data ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, &f->x, x_at);
    kolo_dnn_arg_at(step, backward_weights ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, &f->w, w_at);
    kolo_dnn_arg_at(step, c->pass == CONV_FWD ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, &f->y,
                    c->pass == CONV_FWD ? kolo_dnn_out(0) : kolo_dnn_in(0));
    if (c->bias) {
        kolo_dnn_arg_at(step, backward_weights ? DNNL_ARG_DIFF_BIAS : DNNL_ARG_BIAS, &f->bias,
                        b_at);
    }
    if (backward_weights && reorder &&
        !kolo_dnn_add_reorder(plan, &plan->weights, w_at, &c->w, w_node, c->groups)) {
        return false;
    }
    if (backward_weights && copy) kolo_dnn_add_copy(plan, b_at, b_node, node_b_bytes, 0);
    return true;
}

/* The plan for x and y in these formats, with weights in the node's layout (`any` false) or in
 * oneDNN's preferred one; empty when there is none. */
static kolo_status try_formats(const conv *c, const kolo_tensor *x, const kolo_tensor *y, bool any,
                               kolo_dnn_plan *plan) {
    formats f = {0};
    kolo_tensor w = c->w, x_in = *x; /* in the primitive's formats */
    kolo_dnn_place x_at = x_place(c);
    w.shape.dim[0] = y->shape.dim[1];
    w.shape.dim[1] = x->shape.dim[1] / c->groups;
    if (any) w.layout = kolo_layout_plain(4);
    if (!any && !kolo_dnn_same_memory(&w, &c->w)) return KOLO_OK;
    KOLO_TRY(kolo_dnn_plan_init(plan, c->spec->threads));
    if (!kolo_dnn_narrow(plan, &x_in, &x_at, y->dtype) || !kolo_dnn_desc(&x_in, 1, &f.x) ||
        !kolo_dnn_desc(y, 1, &f.y) || !kolo_dnn_desc(&w, c->groups, &f.w)) {
        goto none;
    }
    if (any) {
        dnnl_memory_desc_init_by_tag(&f.w, f.w.ndims, f.w.dims, f.w.data_type, dnnl_format_tag_any);
    }
    if (c->bias) {
        kolo_tensor bias = kolo_tensor_plain(KOLO_DTYPE_F32, kolo_shape_1(y->shape.dim[1]));
        kolo_dnn_desc(&bias, 1, &f.bias);
    }

    dnnl_primitive_desc_t desc = create_conv(c, plan, &f);
    if (!desc) goto none;
    f.w = *dnnl_primitive_desc_query_md(
        desc, c->pass == CONV_BWD_WEIGHTS ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
    if (!kolo_dnn_layout(&f.w, c->groups, &w.layout) || !weights_as(&c->w, &w, &plan->weights)) {
        dnnl_primitive_desc_destroy(desc);
        goto none;
    }
    plan->weights_in_place =
        kolo_layout_is_open(&c->w) || kolo_dnn_same_memory(&c->w, &plan->weights);
    plan->seconds += conv_seconds(c, kolo_dnn_impl(desc), &x_in, &w, y);
    if (!add_steps(c, plan, desc, &f, x_at)) goto none;
    return KOLO_OK;
none:
    kolo_dnn_plan_fini(plan);
    return KOLO_OK;
}

/* ---- all attempts ---- */

enum { MAX_FORMS = 4 };

/* The equivalent formats of an activation: as it is; plain or NHWC when these describe the same
 * bytes; with its padding counted as channels. */
static int forms_of(const kolo_tensor *t, bool may_pad, kolo_tensor forms[MAX_FORMS]) {
    int n = 0;
    forms[n++] = *t;
    const kolo_layout equal[] = {{.rank = 4, .order = {0, 1, 2, 3}},
                                 {.rank = 4, .order = {0, 2, 3, 1}}};
    for (size_t i = 0; i < KOLO_COUNT(equal); i++) {
        kolo_tensor other = *t;
        other.layout = equal[i];
        if (kolo_dnn_same_memory(t, &other) && !kolo_layout_equal(&t->layout, &other.layout)) {
            forms[n++] = other;
        }
    }
    kolo_tensor padded = kolo_dnn_pad(t, 1);
    if (may_pad && padded.shape.dim[1] != t->shape.dim[1]) forms[n++] = padded;
    return n;
}

static kolo_status build_conv(const conv *c, kolo_dnn_plan *plan) {
    kolo_tensor x[MAX_FORMS], y[MAX_FORMS];
    int n_x = forms_of(&c->x, c->groups == 1, x), n_y = forms_of(&c->y, c->groups == 1, y);
    bool open = kolo_layout_is_open(&c->w);
    *plan = (kolo_dnn_plan){0};
    for (int i = 0; i < n_x * n_y; i++) {
        for (int any = open; any < 2; any++) {
            kolo_dnn_plan attempt = {0};
            kolo_status status = try_formats(c, &x[i / n_y], &y[i % n_y], any, &attempt);
            if (status != KOLO_OK) {
                kolo_dnn_plan_fini(plan);
                return status;
            }
            kolo_dnn_plan_keep_best(plan, &attempt);
        }
    }
    return KOLO_OK;
}

static conv conv_of(const kolo_kernel_spec *spec, conv_pass pass) {
    const kolo_attr *a = spec->attr;
    bool data = pass == CONV_BWD_DATA, weights = pass == CONV_BWD_WEIGHTS;
    return (conv){
        .spec = spec,
        .pass = pass,
        .algorithm = dnnl_convolution_direct,
        .x = data      ? spec->out[0]
             : weights ? spec->in[1]
                       : spec->in[0],
        .w = weights ? spec->out[0] : spec->in[1],
        .y = pass == CONV_FWD ? spec->out[0] : spec->in[0],
        .bias = weights ? spec->n_out > 1 : pass == CONV_FWD && spec->n_in > 2,
        .relu = pass == CONV_FWD && a[KOLO_CONV_RELU].i != 0,
        .groups = a[KOLO_CONV_GROUPS].i,
        .strides = {a[KOLO_CONV_STRIDE_H].i, a[KOLO_CONV_STRIDE_W].i},
        .dilates = {a[KOLO_CONV_DILATION_H].i - 1, a[KOLO_CONV_DILATION_W].i - 1},
        .pads = {a[KOLO_CONV_PAD_H].i, a[KOLO_CONV_PAD_W].i},
        .pads_behind = {a[KOLO_CONV_PAD_H].i + a[KOLO_CONV_MORE_H].i, a[KOLO_CONV_PAD_W].i},
    };
}

static kolo_status build_direct(const kolo_kernel_spec *spec, conv_pass pass, kolo_dnn_plan *plan) {
    conv c = conv_of(spec, pass);
    return build_conv(&c, plan);
}

static kolo_status conv2d_build(const kolo_kernel_spec *spec, kolo_dnn_plan *plan) {
    return build_direct(spec, CONV_FWD, plan);
}
static kolo_status conv2d_bwd_data_build(const kolo_kernel_spec *spec, kolo_dnn_plan *plan) {
    return build_direct(spec, CONV_BWD_DATA, plan);
}
static kolo_status conv2d_bwd_weights_build(const kolo_kernel_spec *spec, kolo_dnn_plan *plan) {
    return build_direct(spec, CONV_BWD_WEIGHTS, plan);
}

KOLO_DNN_KERNEL(conv2d);
KOLO_DNN_KERNEL(conv2d_bwd_data);
KOLO_DNN_KERNEL(conv2d_bwd_weights);

/* ---- Winograd ---- */

/* Its transformed images, for the whole batch, may need many times the memory of the images. */
enum { MOST_WINO_SCRATCH = 256 << 20 };

static kolo_status build_wino(const kolo_kernel_spec *spec, conv_pass pass, kolo_dnn_plan *plan) {
    conv c = conv_of(spec, pass);
    c.algorithm = dnnl_convolution_winograd;
    *plan = (kolo_dnn_plan){0};
    if (c.w.shape.dim[2] != 3 || c.w.shape.dim[3] != 3) return KOLO_OK;
    /* Its weight gradient is wrong where the padding differs above and below. */
    if (spec->attr[KOLO_CONV_MORE_H].i != 0) return KOLO_OK;
    KOLO_TRY(build_conv(&c, plan));
    if (plan->scratch_bytes > MOST_WINO_SCRATCH) kolo_dnn_plan_fini(plan);
    return KOLO_OK;
}

static kolo_status wino_build(const kolo_kernel_spec *spec, kolo_dnn_plan *plan) {
    return build_wino(spec, CONV_FWD, plan);
}
static kolo_status wino_bwd_data_build(const kolo_kernel_spec *spec, kolo_dnn_plan *plan) {
    return build_wino(spec, CONV_BWD_DATA, plan);
}
static kolo_status wino_bwd_weights_build(const kolo_kernel_spec *spec, kolo_dnn_plan *plan) {
    return build_wino(spec, CONV_BWD_WEIGHTS, plan);
}

KOLO_DNN_KERNEL_AS(wino, conv2d, true, false);
KOLO_DNN_KERNEL_AS(wino_bwd_data, conv2d_bwd_data, true, false);
KOLO_DNN_KERNEL_AS(wino_bwd_weights, conv2d_bwd_weights, true, false);

/* Linear layers on oneDNN's inner product: forward with bias and ReLU, gradients.
 *
 * When x and w agree on the memory order of the dimensions after the first, they are two plain
 * matrices [N,K] and [O,K] whose padding is part of K (zero times zero). Open weights therefore
 * take the order of x, and weights in another order are reordered into scratch memory. oneDNN is
 * fastest on plain matrices: its own blocked choice costs more than it gains. */
#include "base/integer.h"
#include "kernel/dnn/dnn.h"

/* A linear node in any direction. */
typedef struct linear {
    const kolo_kernel_spec *spec;
    kolo_tensor x, w, y;
    kolo_dnn_place x_at, w_at, y_at, b_at;
    bool relu, bias;
} linear;

/* The tensor as a matrix [first, K] in memory order; false when it is not one. */
static bool fold(const kolo_tensor *t, kolo_tensor *matrix) {
    if (t->shape.rank < 2 || t->shape.dim[0] == 0 || t->layout.order[0] != 0) return false;
    for (int i = 0; i < t->layout.n_blocks; i++) {
        if (t->layout.block_dim[i] == 0) return false;
    }
    int64_t rows = t->shape.dim[0];
    *matrix = kolo_tensor_plain(t->dtype, kolo_shape_2(rows, kolo_tensor_elements(t) / rows));
    return true;
}

/* The estimated fraction of peak of a product with these numbers of inner and output columns. */
static double gemm_efficiency(int64_t a, int64_t b) {
    double least = (double)kolo_min_i64(a, b);
    return 0.95 * least / (least + 10);
}

static dnnl_primitive_desc_t create_linear(const linear *l, kolo_dnn_plan *plan,
                                           const dnnl_memory_desc_t *x, const dnnl_memory_desc_t *w,
                                           const dnnl_memory_desc_t *y,
                                           const dnnl_memory_desc_t *bias) {
    dnnl_inner_product_desc_t forward, op;
    dnnl_memory_desc_t w_forward = *w;
    /* With bf16 weights, the weight gradient is f32. */
    if (l->spec->op == &kolo_op_linear_bwd_weights) w_forward.data_type = y->data_type;
    if (dnnl_inner_product_forward_desc_init(&forward, dnnl_forward_training, x, &w_forward, bias,
                                             y) != dnnl_success) {
        return NULL;
    }
    if (l->spec->op == &kolo_op_linear) return kolo_dnn_create(plan, &forward, l->relu, NULL);
    dnnl_status_t status = l->spec->op == &kolo_op_linear_bwd_data
                               ? dnnl_inner_product_backward_data_desc_init(&op, x, w, y)
                               : dnnl_inner_product_backward_weights_desc_init(&op, x, w, bias, y);
    dnnl_primitive_desc_t hint = NULL;
    if (status != dnnl_success ||
        dnnl_primitive_desc_create(&hint, &forward, NULL, plan->engine, NULL) != dnnl_success) {
        return NULL;
    }
    dnnl_primitive_desc_t desc = kolo_dnn_create(plan, &op, false, hint);
    dnnl_primitive_desc_destroy(hint);
    return desc;
}

static bool add_steps(const linear *l, kolo_dnn_plan *plan) {
    const kolo_op *op = l->spec->op;
    bool forward = op == &kolo_op_linear, backward_weights = op == &kolo_op_linear_bwd_weights;
    kolo_tensor x, w, y = l->y;
    dnnl_memory_desc_t x_desc, w_desc, y_desc, b_desc = {0};
    kolo_dnn_place x_at = l->x_at;
    if (!fold(&l->x, &x) || !fold(&plan->weights, &w) || !kolo_layout_is_plain(&y.layout) ||
        !kolo_dnn_narrow(plan, &x, &x_at, y.dtype) || !kolo_dnn_desc(&x, 1, &x_desc) ||
        !kolo_dnn_desc(&w, 1, &w_desc) || !kolo_dnn_desc(&y, 1, &y_desc)) {
        return false;
    }
    kolo_tensor bias = kolo_tensor_plain(KOLO_DTYPE_F32, kolo_shape_1(w.shape.dim[0]));
    if (l->bias) kolo_dnn_desc(&bias, 1, &b_desc);
    dnnl_primitive_desc_t desc = create_linear(l, plan, &x_desc, &w_desc, &y_desc, &b_desc);
    if (!desc) return false;
    double flops = 2.0 * (double)(y.shape.dim[0] * w.shape.dim[0] * w.shape.dim[1]);
    double bytes = (double)(kolo_tensor_bytes(&x) + kolo_tensor_bytes(&w) + kolo_tensor_bytes(&y));
    plan->seconds += kolo_kernel_seconds(flops / kolo_dnn_gain(kolo_dnn_impl(desc), y.dtype), bytes,
                                         gemm_efficiency(w.shape.dim[0], w.shape.dim[1]));
    if (!backward_weights) { /* includes packing of the weights */
        plan->seconds += kolo_kernel_seconds(0, (double)kolo_tensor_bytes(&w), 0.75);
    }

    kolo_dnn_place w_at = plan->weights_in_place
                              ? l->w_at
                              : kolo_dnn_scratch(plan, dnnl_memory_desc_get_size(&w_desc));
    if (!plan->weights_in_place && !backward_weights &&
        !kolo_dnn_add_reorder(plan, &l->w, l->w_at, &plan->weights, w_at, 1)) {
        dnnl_primitive_desc_destroy(desc);
        return false;
    }
    kolo_dnn_step *step = kolo_dnn_add(plan, desc);
    kolo_dnn_arg_at(step, op == &kolo_op_linear_bwd_data ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC,
                    &x_desc, x_at);
    kolo_dnn_arg_at(step, backward_weights ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, &w_desc,
                    w_at);
    kolo_dnn_arg_at(step, forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, &y_desc, l->y_at);
    if (l->bias) {
        kolo_dnn_arg_at(step, backward_weights ? DNNL_ARG_DIFF_BIAS : DNNL_ARG_BIAS, &b_desc,
                        l->b_at);
    }
    return plan->weights_in_place || !backward_weights ||
           kolo_dnn_add_reorder(plan, &plan->weights, w_at, &l->w, l->w_at, 1);
}

/* Tokens [N,...,C] as a matrix of rows; other tensors unchanged. */
static void flatten_rows(kolo_tensor *t, const kolo_tensor *w) {
    if (w->shape.rank != 2 || t->shape.rank == 2 || !kolo_layout_is_plain(&t->layout)) return;
    int64_t columns = t->shape.dim[t->shape.rank - 1], count = kolo_shape_count(&t->shape);
    *t = kolo_tensor_plain(t->dtype, kolo_shape_2(count / columns, columns));
}

static kolo_status build_linear(linear *l, kolo_dnn_plan *plan) {
    flatten_rows(&l->x, &l->w);
    flatten_rows(&l->y, &l->w);
    KOLO_TRY(kolo_dnn_plan_init(plan, l->spec->threads));
    plan->weights = l->w;
    plan->weights.layout = l->x.layout;
    plan->weights_in_place =
        kolo_layout_is_open(&l->w) || kolo_dnn_same_memory(&l->w, &plan->weights);
    if (!add_steps(l, plan)) kolo_dnn_plan_fini(plan);
    return KOLO_OK;
}

static kolo_status linear_build(const kolo_kernel_spec *spec, kolo_dnn_plan *plan) {
    linear l = {
        .spec = spec,
        .x = spec->in[0],
        .w = spec->in[1],
        .y = spec->out[0],
        .x_at = kolo_dnn_in(0),
        .w_at = kolo_dnn_in(1),
        .b_at = kolo_dnn_in(2),
        .y_at = kolo_dnn_out(0),
        .bias = spec->n_in > 2,
        .relu = spec->attr[KOLO_LINEAR_RELU].i != 0,
    };
    return build_linear(&l, plan);
}

static kolo_status linear_bwd_data_build(const kolo_kernel_spec *spec, kolo_dnn_plan *plan) {
    linear l = {
        .spec = spec,
        .x = spec->out[0],
        .w = spec->in[1],
        .y = spec->in[0],
        .x_at = kolo_dnn_out(0),
        .w_at = kolo_dnn_in(1),
        .y_at = kolo_dnn_in(0),
    };
    return build_linear(&l, plan);
}

static kolo_status linear_bwd_weights_build(const kolo_kernel_spec *spec, kolo_dnn_plan *plan) {
    linear l = {
        .spec = spec,
        .x = spec->in[1],
        .w = spec->out[0],
        .y = spec->in[0],
        .x_at = kolo_dnn_in(1),
        .w_at = kolo_dnn_out(0),
        .b_at = kolo_dnn_out(1),
        .y_at = kolo_dnn_in(0),
        .bias = spec->n_out > 1,
    };
    return build_linear(&l, plan);
}

KOLO_DNN_KERNEL(linear);
KOLO_DNN_KERNEL(linear_bwd_data);
KOLO_DNN_KERNEL(linear_bwd_weights);

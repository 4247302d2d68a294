/* Group normalization: the channels of a sample form groups, each of which has mean 0 and variance
 * 1 before a scale and an offset per channel. Wu, He, "Group normalization", 2018. With a channel
 * in each group it is instance normalization (Ulyanov et al., 2016).
 *
 * x is seen as [N,G,K,P]: groups, channels of a group, pixels. What the gradient needs of the
 * forward pass are the groups' means and 1 / standard deviations. */
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/ref/ref.h"

#include <math.h>
#include <string.h>

static const char *const attrs[] = {"%eps", NULL}, *const no_attrs[] = {NULL};

/* Input x is [N,G,K,P], and inputs from `vectors` on are [G,K]. */
static kolo_status check_groups(const kolo_shape_query *q, int x, int vectors) {
    KOLO_TRY(kolo_rule_rank(q, x, 4, "N,G,K,P"));
    const int64_t *dim = q->in[x].shape.dim;
    const kolo_shape want = kolo_shape_2(dim[1], dim[2]);
    for (int i = vectors; i < q->n_in; i++) {
        if (kolo_shape_equal(&q->in[i].shape, &want)) continue;
        return KOLO_RULE_FAIL(q, "input %d must have an element for each channel of each group", i);
    }
    return KOLO_OK;
}

static kolo_shape groups_of(const kolo_shape *x) { return kolo_shape_2(x->dim[0], x->dim[1]); }

static kolo_status norm_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "fff"));
    KOLO_TRY(check_groups(q, 0, 1));
    if (q->n_in == 2) return KOLO_RULE_FAIL(q, "a scale needs an offset");
    if (!(q->attr[KOLO_LAYER_NORM_EPS].f >= 0)) return KOLO_RULE_FAIL(q, "eps must be 0 or more");
    const kolo_shape x = q->in[0].shape;
    const kolo_dtype wide = kolo_dtype_wide(q->in[0].dtype);
    KOLO_TRY(kolo_rule_out(q, 0, q->in[0].dtype, x));
    KOLO_TRY(kolo_rule_out(q, 1, wide, groups_of(&x)));
    return kolo_rule_out(q, 2, wide, groups_of(&x));
}

static kolo_status bwd_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "fffff"));
    KOLO_TRY(kolo_rule_same(q, 0, 1));
    KOLO_TRY(check_groups(q, 1, 4));
    const kolo_shape groups = groups_of(&q->in[1].shape);
    for (int i = 2; i < 4; i++) {
        if (kolo_shape_equal(&q->in[i].shape, &groups)) continue;
        return KOLO_RULE_FAIL(q, "input %d must have an element for each group", i);
    }
    KOLO_TRY(kolo_rule_out(q, 0, q->in[0].dtype, q->in[1].shape));
    for (int i = 1; i < 3 && q->n_in > 4; i++) {
        KOLO_TRY(kolo_rule_out(q, i, q->in[4].dtype, q->in[4].shape));
    }
    return KOLO_OK;
}

static void norm_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out, const bool *wants,
                      kolo_value *d_in) {
    if (kolo_value_ok(d_out[1]) || kolo_value_ok(d_out[2])) {
        kolo_graph_set_failed(
            g, KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "group_norm: its statistics outputs are not differentiable"));
        return;
    }
    const kolo_value in[] = {d_out[0], n->in[0], n->out[1], n->out[2],
                             n->n_in > 1 ? n->in[1] : KOLO_NONE};
    kolo_value out[KOLO_MAX_IO];
    kolo_graph_add(g, &kolo_op_group_norm_bwd, in, n->n_in > 1 ? 5 : 4, NULL, out);
    for (int i = 0; i < n->n_in; i++) {
        if (wants[i]) d_in[i] = out[i];
    }
}

static kolo_cost norm_cost(const kolo_shape_query *q) {
    return (kolo_cost){8.0 * (double)kolo_shape_count(&q->in[0].shape), kolo_query_bytes(q)};
}

const kolo_op kolo_op_group_norm = {
    .name = "group_norm",
    .index = "ngKP,gK,gK->ngKP,ng,ng",
    .min_in = 1,
    .max_in = 3,
    .layout = {.in = "ppp", .out = "ppp"},
    .attrs = attrs,
    .shape = norm_shape,
    .grad = norm_grad,
    .cost = norm_cost,
    .bf16 = 1u << 0,
    .samples = {.in = 0x1u, .out = 0x7u},
};
const kolo_op kolo_op_group_norm_bwd = {
    .name = "group_norm_bwd",
    .index = "ngKP,ngKP,ng,ng,gK->ngKP,gK,gK",
    .linear = 0x1u,
    .min_in = 4,
    .max_in = 5,
    .layout = {.in = "ppppp", .out = "ppp"},
    .attrs = no_attrs,
    .shape = bwd_shape,
    .cost = norm_cost,
    .overwrite = 1u << 0 | 1u << 1,
    .bf16 = 1u << 0 | 1u << 1,
    .samples = {.in = 0xfu, .out = 0x1u, .sums = 0x6u},
};

/* ---- builders ---- */

static kolo_value refuse(kolo_graph *g, const char *text) {
    kolo_graph_set_failed(g, KOLO_FAIL(KOLO_ERR_ARG, "%s", text));
    return KOLO_NONE;
}

kolo_value kolo_group_norm_by(kolo_graph *g, kolo_value x, kolo_value scale, kolo_value offset,
                              int64_t groups, double eps) {
    const kolo_shape shape = kolo_value_shape(g, x);
    if (kolo_graph_check(g) != KOLO_OK) return KOLO_NONE;
    if (shape.rank < 2 || groups < 1 || shape.dim[1] % groups != 0) {
        return refuse(g, "group_norm: give x of [N,C,...] and a number of groups that divides C");
    }
    const int64_t n = shape.dim[0], each = shape.dim[1] / groups;
    int64_t pixels = 1;
    for (int d = 2; d < shape.rank; d++) pixels *= shape.dim[d];
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_LAYER_NORM_EPS].f = eps};
    kolo_value in[3] = {kolo_reshape(g, x, kolo_shape_4(n, groups, each, pixels))};
    const bool scaled = kolo_value_ok(scale);
    if (scaled) {
        in[1] = kolo_reshape(g, scale, kolo_shape_2(groups, each));
        in[2] = kolo_reshape(g, offset, kolo_shape_2(groups, each));
    }
    return kolo_reshape(g, kolo_graph_add1(g, &kolo_op_group_norm, in, scaled ? 3 : 1, attr),
                        shape);
}

/* The parameter NAME.suffix, of an element for each channel. */
static kolo_value vector(kolo_graph *g, const char *name, const char *suffix, int64_t channels,
                         kolo_init_kind init) {
    char *full = kolo_format("%s.%s", name, suffix);
    if (!full) {
        kolo_graph_set_failed(g, KOLO_NOMEM(64));
        return KOLO_NONE;
    }
    const kolo_value v = kolo_param(g, full, kolo_shape_1(channels), (kolo_init){init, 0});
    kolo_free(full);
    return v;
}

kolo_value kolo_group_norm(kolo_graph *g, kolo_value x, const char *name, int64_t groups,
                           double eps) {
    const kolo_shape shape = kolo_value_shape(g, x);
    kolo_value scale = KOLO_NONE, offset = KOLO_NONE;
    if (kolo_graph_check(g) != KOLO_OK) return KOLO_NONE;
    if (name && shape.rank >= 2) {
        scale = vector(g, name, "weight", shape.dim[1], KOLO_INIT_ONE);
        offset = vector(g, name, "bias", shape.dim[1], KOLO_INIT_ZERO);
    }
    return kolo_group_norm_by(g, x, scale, offset, groups, eps != 0 ? eps : 1e-5);
}

kolo_value kolo_instance_norm(kolo_graph *g, kolo_value x, const char *name, double eps) {
    return kolo_group_norm(g, x, name, kolo_value_shape(g, x).dim[1], eps);
}

/* ---- reference ---- */

/* Group normalization and its gradient. An output may alias an input (op->overwrite): the sums of a
 * group are computed before its elements are written. */
/* x [N,G,K,P]: the number of groups of all samples, and their elements. */
typedef struct groups {
    int64_t count, each, channels, pixels, size;
} groups;

static groups ref_groups_of(const kolo_shape *x) {
    return (groups){x->dim[0] * x->dim[1], x->dim[1], x->dim[2], x->dim[3], x->dim[2] * x->dim[3]};
}

static void forward(const kolo_call *call) {
    const groups s = ref_groups_of(&call->spec->in[0].shape);
    const double *x = call->in[0];
    const double *gamma = call->spec->n_in > 1 ? call->in[1] : NULL, *beta = call->in[2];
    double *y = call->out[0], *mean = call->out[1], *rstd = call->out[2];
    for (int64_t r = 0; r < s.count; r++, x += s.size, y += s.size) {
        const int64_t first = r % s.each * s.channels;
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < s.size; i++) sum += x[i];
        mean[r] = sum / (double)s.size;
        for (int64_t i = 0; i < s.size; i++) squares += (x[i] - mean[r]) * (x[i] - mean[r]);
        rstd[r] = 1 / sqrt(squares / (double)s.size + call->spec->attr[KOLO_LAYER_NORM_EPS].f);
        for (int64_t i = 0; i < s.size; i++) {
            const int64_t c = first + i / s.pixels;
            const double h = (x[i] - mean[r]) * rstd[r];
            y[i] = gamma ? gamma[c] * h + beta[c] : h;
        }
    }
}

/* With h = (x - mean) rstd and k = dy gamma: dx = rstd (k - mean(k) - h mean(k h)). */
static void backward(const kolo_call *call) {
    const groups s = ref_groups_of(&call->spec->in[1].shape);
    const double *dy = call->in[0], *x = call->in[1], *mean = call->in[2], *rstd = call->in[3];
    const double *gamma = call->spec->n_in > 4 ? call->in[4] : NULL;
    double *dx = call->out[0], *dgamma = call->out[1], *dbeta = call->out[2];
    const size_t bytes = sizeof(double) * (size_t)(s.each * s.channels);
    if (gamma) {
        memset(dgamma, 0, bytes);
        memset(dbeta, 0, bytes);
    }
    for (int64_t r = 0; r < s.count; r++, dy += s.size, x += s.size, dx += s.size) {
        const int64_t first = r % s.each * s.channels;
        double of_k = 0, of_kh = 0;
        for (int64_t i = 0; i < s.size; i++) {
            const int64_t c = first + i / s.pixels;
            const double h = (x[i] - mean[r]) * rstd[r], k = gamma ? dy[i] * gamma[c] : dy[i];
            of_k += k;
            of_kh += k * h;
            if (gamma) dgamma[c] += dy[i] * h;
            if (gamma) dbeta[c] += dy[i];
        }
        of_k /= (double)s.size;
        of_kh /= (double)s.size;
        for (int64_t i = 0; i < s.size; i++) {
            const double h = (x[i] - mean[r]) * rstd[r];
            const double k = gamma ? dy[i] * gamma[first + i / s.pixels] : dy[i];
            dx[i] = rstd[r] * (k - of_k - h * of_kh);
        }
    }
}

static void run_forward(const kolo_call *call) { kolo_ref_run(call, forward); }
static void run_backward(const kolo_call *call) { kolo_ref_run(call, backward); }

const kolo_kernel kolo_ops_group_norm[] = {
    KOLO_REF_KERNEL("ref_group_norm", &kolo_op_group_norm, run_forward),
    KOLO_REF_KERNEL("ref_group_norm_bwd", &kolo_op_group_norm_bwd, run_backward),
    {0},
};

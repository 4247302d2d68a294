/* Elementwise operators, and what consists of them. */
#include "graph/ops/compare.h"
#include "onnx/import/fold.h"
#include "onnx/import/ops.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- one input ---- */

static kolo_value relu_above(kolo_graph *g, kolo_value x, double alpha) { /* x > alpha ? x : 0 */
    kolo_value zero = kolo_scale(g, x, 0), over = kolo_add_number(g, x, -alpha);
    kolo_value half = kolo_less(g, zero, over), tie = kolo_equal(g, over, zero);
    return kolo_mul(g, x, kolo_sub(g, half, kolo_scale(g, tie, 0.5)));
}

typedef kolo_value unary_fn(const onnx_call *c, kolo_graph *g, kolo_value x);
#define PLAIN(name, expression) \
    static kolo_value name(const onnx_call *c, kolo_graph *g, kolo_value x) { return expression; }
PLAIN(relu, kolo_relu(g, x))
PLAIN(sigmoid, kolo_sigmoid(g, x))
PLAIN(tanh_of, kolo_tanh(g, x))
PLAIN(exp_of, kolo_exp(g, x))
PLAIN(log_of, kolo_log(g, x))
PLAIN(sqrt_of, kolo_sqrt(g, x))
PLAIN(reciprocal, kolo_reciprocal(g, x))
PLAIN(negative, kolo_neg(g, x))
PLAIN(absolute, kolo_abs(g, x))
PLAIN(error_function, kolo_erf(g, x))
PLAIN(sine, kolo_sin(g, x))
PLAIN(cosine, kolo_cos(g, x))
PLAIN(tangent, kolo_div(g, kolo_sin(g, x), kolo_cos(g, x)))
PLAIN(arctangent, kolo_atan(g, x))
PLAIN(round_down, kolo_floor(g, x))
PLAIN(round_up, kolo_ceil(g, x))
PLAIN(round_to_even, kolo_round(g, x))
PLAIN(gelu, kolo_gelu(g, x, onnx_text_is(c, "approximate", "tanh", false)))
PLAIN(leaky_relu, kolo_leaky_relu(g, x, onnx_float(c, "alpha", 0.01)))
PLAIN(elu, kolo_elu(g, x, onnx_float(c, "alpha", 1)))
PLAIN(softplus, kolo_softplus(g, x, 1))
PLAIN(softsign, kolo_div(g, x, kolo_add_number(g, kolo_abs(g, x), 1)))
PLAIN(hardswish, kolo_hardswish(g, x))
PLAIN(mish, kolo_mul(g, x, kolo_tanh(g, kolo_softplus(g, x, 1))))
PLAIN(thresholded_relu, relu_above(g, x, onnx_float(c, "alpha", 1)))
PLAIN(hyperbolic_sine, kolo_scale(g, kolo_sub(g, kolo_exp(g, x), kolo_exp(g, kolo_neg(g, x))), 0.5))
PLAIN(hyperbolic_cosine,
      kolo_scale(g, kolo_add(g, kolo_exp(g, x), kolo_exp(g, kolo_neg(g, x))), 0.5))
PLAIN(area_sine,
      kolo_log(g, kolo_add(g, x, kolo_sqrt(g, kolo_add_number(g, kolo_square(g, x), 1)))))
PLAIN(area_cosine,
      kolo_log(g, kolo_add(g, x, kolo_sqrt(g, kolo_add_number(g, kolo_square(g, x), -1)))))
PLAIN(area_tangent, kolo_scale(g,
                               kolo_log(g, kolo_div(g, kolo_add_number(g, x, 1),
                                                    kolo_add_number(g, kolo_neg(g, x), 1))),
                               0.5))
PLAIN(swish, kolo_mul(g, x, kolo_sigmoid(g, kolo_scale(g, x, onnx_float(c, "alpha", 1)))))

/* asin(x) = atan(x / sqrt(1 - x^2)) */
static kolo_value arcsine(const onnx_call *c, kolo_graph *g, kolo_value x) {
    const kolo_value rest = kolo_add_number(g, kolo_neg(g, kolo_square(g, x)), 1);
    return kolo_atan(g, kolo_mul(g, x, kolo_rsqrt(g, rest)));
}
static kolo_value arccosine(const onnx_call *c, kolo_graph *g, kolo_value x) {
    return kolo_add_number(g, kolo_neg(g, arcsine(c, g, x)), 1.5707963267948966);
}
static kolo_value hard_sigmoid(const onnx_call *c, kolo_graph *g, kolo_value x) {
    double alpha = onnx_float(c, "alpha", 0.2), beta = onnx_float(c, "beta", 0.5);
    return kolo_clamp(g, kolo_add_number(g, kolo_scale(g, x, alpha), beta), 0, 1);
}
static kolo_value selu(const onnx_call *c, kolo_graph *g, kolo_value x) {
    double alpha = onnx_float(c, "alpha", 1.67326319217681884765625);
    double gamma = onnx_float(c, "gamma", 1.05070102214813232421875);
    return kolo_scale(g, kolo_elu(g, x, alpha), gamma);
}
static kolo_value celu(const onnx_call *c, kolo_graph *g, kolo_value x) {
    double alpha = onnx_float(c, "alpha", 1);
    return kolo_scale(g, kolo_elu(g, kolo_scale(g, x, 1 / alpha), 1), alpha);
}
static kolo_value shrink(const onnx_call *c, kolo_graph *g, kolo_value x) {
    double bias = onnx_float(c, "bias", 0), lambd = onnx_float(c, "lambd", 0.5);
    if (bias == lambd) { /* the distance to [-lambd, lambd] */
        return kolo_sub(g, x, kolo_clamp(g, x, -lambd, lambd));
    }
    kolo_value minus = kolo_neg(g, x);
    return kolo_sub(g, relu_above(g, kolo_add_number(g, x, -bias), lambd - bias),
                    relu_above(g, kolo_add_number(g, minus, -bias), lambd - bias));
}
static kolo_value sign(const onnx_call *c, kolo_graph *g, kolo_value x) {
    kolo_value half = kolo_less(g, kolo_scale(g, x, 0), x); /* 0, 1/2, 1 */
    return kolo_add_number(g, kolo_scale(g, half, 2), -1);
}

static const struct {
    const char *name;
    unary_fn *build;
} unary[] = {
    {"Relu", relu},
    {"Sigmoid", sigmoid},
    {"Tanh", tanh_of},
    {"Exp", exp_of},
    {"Log", log_of},
    {"Sqrt", sqrt_of},
    {"Reciprocal", reciprocal},
    {"Neg", negative},
    {"Abs", absolute},
    {"Erf", error_function},
    {"Gelu", gelu},
    {"LeakyRelu", leaky_relu},
    {"Elu", elu},
    {"Softplus", softplus},
    {"Softsign", softsign},
    {"HardSwish", hardswish},
    {"HardSigmoid", hard_sigmoid},
    {"Mish", mish},
    {"Swish", swish},
    {"Selu", selu},
    {"Celu", celu},
    {"Shrink", shrink},
    {"Sign", sign},
    {"ThresholdedRelu", thresholded_relu},
    {"Sin", sine},
    {"Cos", cosine},
    {"Tan", tangent},
    {"Asin", arcsine},
    {"Acos", arccosine},
    {"Atan", arctangent},
    {"Floor", round_down},
    {"Ceil", round_up},
    {"Round", round_to_even},
    {"Sinh", hyperbolic_sine},
    {"Cosh", hyperbolic_cosine},
    {"Asinh", area_sine},
    {"Acosh", area_cosine},
    {"Atanh", area_tangent},
    {NULL, NULL},
};

kolo_status onnx_map_unary(onnx_call *c) {
    kolo_value x;
    KOLO_TRY(onnx_value(c, 0, &x));
    for (int k = 0; unary[k].name; k++) {
        if (strcmp(unary[k].name, c->node->op_type) != 0) continue;
        return onnx_set(c, 0, unary[k].build(c, c->g, x));
    }
    return ONNX_FAIL(c, "it is supported on constants only");
}

/* ---- two or more inputs ---- */

static kolo_value join(onnx_call *c, const char *name, kolo_value a, kolo_value b) {
    kolo_graph *g = c->g;
    switch (name[0]) {
    case 'A':
        return kolo_add(g, a, b);
    case 'S': /* Sub, Sum */
        return name[2] == 'b' ? kolo_sub(g, a, b) : kolo_add(g, a, b);
    case 'D':
        return kolo_div(g, a, b);
    default: /* Mul, Min, Max, Mean */
        if (name[1] == 'u') return kolo_mul(g, a, b);
        if (name[1] == 'i') return kolo_minimum(g, a, b);
        return name[1] == 'a' ? kolo_maximum(g, a, b) : kolo_add(g, a, b);
    }
}

/* An operation with one number; none: there is no shorter form. */
static kolo_value with_number(onnx_call *c, kolo_value x, double number, bool first) {
    const char *name = c->node->op_type;
    kolo_graph *g = c->g;
    if (strcmp(name, "Add") == 0) return kolo_add_number(g, x, number);
    if (strcmp(name, "Mul") == 0) return kolo_scale(g, x, number);
    if (strcmp(name, "Sub") == 0) {
        return first ? kolo_add_number(g, kolo_neg(g, x), number) : kolo_add_number(g, x, -number);
    }
    if (strcmp(name, "Div") == 0 && first) return kolo_scale(g, kolo_reciprocal(g, x), number);
    if (strcmp(name, "Div") == 0 && number != 0) return kolo_scale(g, x, 1 / number);
    return KOLO_NONE;
}

static kolo_status check_floats(onnx_call *c) {
    for (int i = 0; i < c->n_in; i++) {
        if (!onnx_has(c, i)) return ONNX_FAIL(c, "input %d is missing", i);
        if (!c->in[i]->constant && kolo_value_dtype(c->g, c->in[i]->value) == KOLO_DTYPE_I32) {
            return ONNX_FAIL(c, "input %d (\"%.100s\") holds integers that depend on the samples",
                             i, c->in[i]->name);
        }
    }
    return KOLO_OK;
}

kolo_status onnx_map_binary(onnx_call *c) {
    double number;
    kolo_value a, b;
    KOLO_TRY(check_floats(c));
    const bool divides = strcmp(c->node->op_type, "Div") == 0;
    if (divides && (c->in[0]->whole || c->in[1]->whole)) {
        KOLO_TRY(onnx_operand(c, 0, &a));
        KOLO_TRY(onnx_operand(c, 1, &b));
        return onnx_set_whole(c, 0, onnx_truncated(c->g, kolo_div(c->g, a, b)));
    }
    for (int i = 0; i < 2 && c->n_in == 2; i++) {
        const kolo_shape of_x = onnx_shape(c, 1 - i), of_number = onnx_shape(c, i);
        if (!onnx_is_number(c, i, &number) || of_number.rank > of_x.rank) continue;
        KOLO_TRY(onnx_value(c, 1 - i, &a));
        kolo_value y = with_number(c, a, number, i == 0);
        if (y.id >= 0 || kolo_graph_check(c->g) != KOLO_OK) return onnx_set(c, 0, y);
    }
    KOLO_TRY(c->n_in == 1 ? onnx_value(c, 0, &a) : onnx_operand(c, 0, &a));
    for (int i = 0; i < 2 && c->n_in == 2; i++) { /* a bias of rows */
        const kolo_value rows = c->in[i]->rows;
        if (rows.id < 0 || onnx_shape(c, 1 - i).rank > 1) continue;
        KOLO_TRY(onnx_operand(c, 1 - i, &b));
        return onnx_set_rows(c, join(c, c->node->op_type, i == 0 ? rows : b, i == 0 ? b : rows));
    }
    kolo_shape all = onnx_shape(c, 0), next;
    for (int i = 1; i < c->n_in; i++) {
        KOLO_TRY(onnx_operand(c, i, &b));
        a = join(c, c->node->op_type, a, b);
        next = onnx_shape(c, i);
        if (!onnx_broadcast(&all, &next, &all)) break; /* the graph names it */
    }
    if (strcmp(c->node->op_type, "Mean") == 0) a = kolo_scale(c->g, a, 1.0 / c->n_in);
    KOLO_TRY(kolo_graph_check(c->g));
    KOLO_TRY(onnx_expand(c, a, &all, &a)); /* two repeated constants */
    return onnx_set(c, 0, a);
}

/* 1 where a < b, else 0. */
static kolo_value below(kolo_graph *g, kolo_value a, kolo_value b) {
    return kolo_sub(g, kolo_less(g, a, b), kolo_scale(g, kolo_equal(g, a, b), 0.5));
}
static kolo_value inverted(kolo_graph *g, kolo_value x) {
    return kolo_add_number(g, kolo_neg(g, x), 1);
}

kolo_status onnx_map_compare(onnx_call *c) {
    const char *name = c->node->op_type;
    kolo_value in[2];
    KOLO_TRY(check_floats(c));
    KOLO_TRY(onnx_value(c, 0, &in[0]));
    KOLO_TRY(onnx_value(c, 1, &in[1]));
    if (strcmp(name, "Equal") == 0) {
        return onnx_set_boolean(c, 0, kolo_equal(c->g, in[0], in[1]));
    }
    bool less = name[0] == 'L', or_equal = strlen(name) > 7;
    bool swap = less == or_equal; /* a <= b: not b < a */
    kolo_value y = below(c->g, in[swap], in[!swap]);
    return onnx_set_boolean(c, 0, or_equal ? inverted(c->g, y) : y);
}

kolo_status onnx_map_logic(onnx_call *c) {
    const char *name = c->node->op_type;
    kolo_value a, b;
    KOLO_TRY(onnx_value(c, 0, &a));
    if (strcmp(name, "Not") == 0) return onnx_set_boolean(c, 0, inverted(c->g, a));
    KOLO_TRY(onnx_value(c, 1, &b));
    if (strcmp(name, "And") == 0) return onnx_set_boolean(c, 0, kolo_minimum(c->g, a, b));
    if (strcmp(name, "Or") == 0) return onnx_set_boolean(c, 0, kolo_maximum(c->g, a, b));
    return onnx_set_boolean(c, 0, kolo_abs(c->g, kolo_sub(c->g, a, b)));
}

kolo_status onnx_map_is_nan(onnx_call *c) {
    kolo_value x;
    KOLO_TRY(onnx_value(c, 0, &x));
    KOLO_TRY(onnx_set_boolean(c, 0, inverted(c->g, kolo_equal(c->g, x, x))));
    c->m->items[c->m->n_items - 1]->tested = c->in[0];
    return KOLO_OK;
}

kolo_status onnx_map_is_inf(onnx_call *c) {
    const bool above = onnx_int(c, "detect_positive", 1), under = onnx_int(c, "detect_negative", 1);
    const float most = FLT_MAX;
    const kolo_shape one = kolo_shape_1(1);
    kolo_value x, largest;
    KOLO_TRY(onnx_value(c, 0, &x));
    KOLO_TRY(onnx_table(c, c->node->output[0], &one, &most, &largest));
    x = above && under ? kolo_abs(c->g, x) : under ? kolo_neg(c->g, x) : x;
    const kolo_value y = below(c->g, largest, x);
    return onnx_set_boolean(c, 0, above || under ? y : kolo_scale(c->g, y, 0));
}

/* Where with a constant condition and a constant on one side: x in some places, the constant in the
 * others. Exact for infinite constants, such as those of attention masks. */
static kolo_status where_constant(onnx_call *c, int side, kolo_value *y) {
    const host_tensor *condition = &c->in[0]->tensor, *number = &c->in[side]->tensor;
    kolo_shape shape;
    kolo_value x, mask, others;
    if (!onnx_broadcast(&condition->shape, &number->shape, &shape)) {
        return ONNX_FAIL(c, "shapes do not fit");
    }
    const int64_t count = host_count(&shape, HOST_MOST);
    bool plain = count == condition->count && (number->count == 1 || number->count == count);
    if (!plain) return ONNX_FAIL(c, "a condition that is repeated");
    float *keep, *add;
    KOLO_TRY(onnx_floats(c, count, &keep));
    KOLO_TRY(onnx_floats(c, count, &add));
    for (int64_t k = 0; k < count; k++) {
        const bool chosen = (condition->i[k] != 0) == (side == 1);
        double of = host_number(number, number->count == 1 ? 0 : k);
        of = of > 3e38 ? 3e38 : of < -3e38 ? -3e38 : of;
        keep[k] = !chosen;
        add[k] = chosen ? (float)of : 0;
    }
    const char *name = c->n_out > 0 ? c->node->output[0] : "";
    KOLO_TRY(onnx_value(c, 3 - side, &x));
    KOLO_TRY(onnx_table(c, name, &shape, keep, &mask));
    KOLO_TRY(onnx_table(c, name, &shape, add, &others));
    *y = kolo_add(c->g, kolo_mul(c->g, x, mask), others);
    return kolo_graph_check(c->g);
}

kolo_status onnx_map_where(onnx_call *c) {
    const onnx_item *condition = c->in[0];
    kolo_value y = KOLO_NONE, w = KOLO_NONE, a = KOLO_NONE, b = KOLO_NONE;
    if (condition->tested && condition->tested == c->in[2]) { /* replaces NaN */
        KOLO_TRY(onnx_value(c, 2, &y));
        return onnx_set(c, 0, y);
    }
    for (int side = 1; side <= 2 && condition->constant; side++) {
        const onnx_item *other = c->in[side];
        const int64_t count = other->tensor.count;
        bool fits =
            other->constant && !other->trained && condition->tensor.integer &&
            (count == 1 || kolo_shape_equal(&other->tensor.shape, &condition->tensor.shape));
        if (!fits) continue;
        KOLO_TRY(where_constant(c, side, &y));
        return onnx_set(c, 0, y);
    }
    KOLO_TRY(check_floats(c));
    KOLO_TRY(onnx_value(c, 0, &w));
    KOLO_TRY(onnx_value(c, 1, &a));
    KOLO_TRY(onnx_value(c, 2, &b));
    return onnx_set(c, 0,
                    kolo_add(c->g, kolo_mul(c->g, w, a), kolo_mul(c->g, inverted(c->g, w), b)));
}

kolo_status onnx_map_swiglu(onnx_call *c) {
    kolo_value a, b;
    KOLO_TRY(onnx_value(c, 0, &a));
    KOLO_TRY(onnx_value(c, 1, &b));
    return onnx_set(c, 0, kolo_mul(c->g, swish(c, c->g, a), b));
}

kolo_status onnx_map_pow(onnx_call *c) {
    double exponent;
    kolo_value x, e;
    KOLO_TRY(check_floats(c));
    KOLO_TRY(onnx_value(c, 0, &x));
    if (onnx_is_number(c, 1, &exponent)) {
        kolo_value y = exponent == 2     ? kolo_square(c->g, x)
                       : exponent == 0.5 ? kolo_sqrt(c->g, x)
                                         : kolo_pow(c->g, x, exponent);
        return onnx_set(c, 0, y);
    }
    KOLO_TRY(onnx_value(c, 1, &e)); /* for positive x */
    return onnx_set(c, 0, kolo_exp(c->g, kolo_mul(c->g, e, kolo_log(c->g, x))));
}

kolo_status onnx_map_clip(onnx_call *c) {
    double low = onnx_float(c, "min", -INFINITY), high = onnx_float(c, "max", INFINITY);
    kolo_value x;
    KOLO_TRY(onnx_value(c, 0, &x));
    if (c->opset >= 11) {
        KOLO_TRY(onnx_number(c, 1, -INFINITY, &low));
        KOLO_TRY(onnx_number(c, 2, INFINITY, &high));
    }
    if (low == 0 && high == INFINITY) return onnx_set(c, 0, kolo_relu(c->g, x));
    if (low == 0 && high == 6) return onnx_set(c, 0, kolo_relu6(c->g, x));
    if (low == -INFINITY && high == INFINITY) return onnx_set(c, 0, x);
    return onnx_set(c, 0, kolo_clamp(c->g, x, low < high ? low : high, high));
}

kolo_value onnx_truncated(kolo_graph *g, kolo_value x) {
    const kolo_value above = kolo_floor(g, kolo_clamp(g, x, 0, INFINITY));
    return kolo_add(g, above, kolo_ceil(g, kolo_clamp(g, x, -INFINITY, 0)));
}

/* The ONNX type of an input, of those that a Cast may give. */
static int64_t type_of(const onnx_call *c, int i) {
    if (onnx_is_boolean(c, i)) return ONNX__TENSOR_PROTO__DATA_TYPE__BOOL;
    return onnx_is_integer(c, i) ? ONNX__TENSOR_PROTO__DATA_TYPE__INT64
                                 : ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
}

kolo_status onnx_map_cast(onnx_call *c) {
    const bool like = onnx_has(c, 1);
    const int64_t to = like ? type_of(c, 1) : onnx_int(c, "to", 0);
    kolo_value x;
    if (like && c->in[0]->constant && !c->in[0]->trained) return onnx_fold_cast(c);
    KOLO_TRY(onnx_value(c, 0, &x));
    const bool integers = kolo_value_dtype(c->g, x) == KOLO_DTYPE_I32;
    const bool to_integers =
        to == ONNX__TENSOR_PROTO__DATA_TYPE__INT64 || to == ONNX__TENSOR_PROTO__DATA_TYPE__INT32;
    if (to_integers && c->in[0]->whole) return onnx_set_whole(c, 0, x);
    if (to_integers && !integers) {
        const bool is_whole = c->in[0]->boolean;
        return onnx_set_whole(c, 0, is_whole ? x : onnx_truncated(c->g, x));
    }
    if (to_integers && integers) return onnx_set(c, 0, x);
    if (!integers && to == ONNX__TENSOR_PROTO__DATA_TYPE__BOOL) {
        if (c->in[0]->boolean) return onnx_set_boolean(c, 0, x);
        const kolo_value zero = kolo_scale(c->g, x, 0);
        return onnx_set_boolean(c, 0, inverted(c->g, kolo_equal(c->g, x, zero)));
    }
    if (!integers && to == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT) return onnx_set(c, 0, x);
    return ONNX_FAIL(
        c, "attribute to: values that depend on the samples cannot become ONNX type %" PRId64, to);
}

/* max(x, 0) + slope min(x, 0), the slope [C,1,...] of a channel. */
kolo_status onnx_map_prelu(onnx_call *c) {
    kolo_value x, slope;
    KOLO_TRY(onnx_value(c, 0, &x));
    KOLO_TRY(onnx_operand(c, 1, &slope));
    kolo_value negative = kolo_neg(c->g, kolo_relu(c->g, kolo_neg(c->g, x)));
    return onnx_set(c, 0, kolo_add(c->g, kolo_relu(c->g, x), kolo_mul(c->g, negative, slope)));
}

kolo_status onnx_map_dropout(onnx_call *c) {
    double p = onnx_float(c, "ratio", 0.5);
    kolo_value x;
    KOLO_TRY(onnx_value(c, 0, &x));
    if (c->opset >= 12) KOLO_TRY(onnx_number(c, 1, 0.5, &p));
    if (c->n_out > 1 && c->node->output[1] && *c->node->output[1]) {
        return ONNX_FAIL(c, "the mask, its second output");
    }
    return onnx_set(c, 0, p > 0 ? kolo_dropout(c->g, x, p) : x);
}

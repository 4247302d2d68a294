/* Arithmetic on constants: elementwise operators and functions, casts, selection, ranges,
 * reductions. */
#include "onnx/import/fold.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef double real_fn(double a, double b);
typedef int64_t integer_fn(int64_t a, int64_t b);

static double add(double a, double b) { return a + b; }
static double sub(double a, double b) { return a - b; }
static double mul(double a, double b) { return a * b; }
static double divide(double a, double b) { return a / b; }
static double least(double a, double b) { return a < b ? a : b; }
static double most(double a, double b) { return a > b ? a : b; }
static double remainder_of(double a, double b) { return a - floor(a / b) * b; }
static double equal(double a, double b) { return a == b; }
static double less(double a, double b) { return a < b; }
static double greater(double a, double b) { return a > b; }
static double less_equal(double a, double b) { return a <= b; }
static double greater_equal(double a, double b) { return a >= b; }
static double both(double a, double b) { return a != 0 && b != 0; }
static double either(double a, double b) { return a != 0 || b != 0; }
static double just_one(double a, double b) { return (a != 0) != (b != 0); }

/* Integers wrap, as in ONNX. */
static int64_t iadd(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static int64_t isub(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }
static int64_t imul(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }
static int64_t idiv(int64_t a, int64_t b) { return b == 0 ? 0 : b == -1 ? isub(0, a) : a / b; }
static int64_t imin(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t imax(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t imod(int64_t a, int64_t b) {
    if (b == 0 || b == -1) return 0;
    int64_t r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static const struct {
    const char *name;
    real_fn *real;
    integer_fn *integer;
    bool boolean; /* the result */
} functions[] = {
    {"Add", add, iadd, false},
    {"Sub", sub, isub, false},
    {"Mul", mul, imul, false},
    {"Div", divide, idiv, false},
    {"Min", least, imin, false},
    {"Max", most, imax, false},
    {"Mod", remainder_of, imod, false},
    {"Pow", pow, NULL, false},
    {"Equal", equal, NULL, true},
    {"Less", less, NULL, true},
    {"Greater", greater, NULL, true},
    {"LessOrEqual", less_equal, NULL, true},
    {"GreaterOrEqual", greater_equal, NULL, true},
    {"And", both, NULL, true},
    {"Or", either, NULL, true},
    {"Xor", just_one, NULL, true},
};

static int64_t to_integer(double number) {
    if (isnan(number)) return 0;
    if (number >= 9.2e18) return INT64_MAX;
    return number <= -9.2e18 ? INT64_MIN : (int64_t)number;
}

kolo_status onnx_fold_arithmetic(onnx_call *c) {
    size_t row = 0;
    while (strcmp(functions[row].name, c->node->op_type) != 0) row++;
    if (!onnx_has(c, 1)) return onnx_fold_identity(c); /* Min, Max of one */
    const host_tensor *a = &c->in[0]->tensor, *b = &c->in[1]->tensor;
    if (c->n_in > 2) return ONNX_FAIL(c, "more than two constants");
    kolo_shape shape;
    if (!onnx_broadcast(&a->shape, &b->shape, &shape)) {
        char x[KOLO_SHAPE_TEXT], y[KOLO_SHAPE_TEXT];
        return ONNX_FAIL(c, "shapes %s and %s do not fit", kolo_shape_text(&a->shape, x),
                         kolo_shape_text(&b->shape, y));
    }
    const bool integer = (a->integer && b->integer) || functions[row].boolean;
    const bool whole = a->integer && b->integer && functions[row].integer;
    host_tensor y;
    float *f = NULL;
    int64_t *i = NULL, stride_a[KOLO_MAX_RANK], stride_b[KOLO_MAX_RANK], index[KOLO_MAX_RANK] = {0};
    KOLO_TRY(onnx_new_constant(c, &shape, integer, &y, &f, &i));
    y.boolean = functions[row].boolean;
    onnx_broadcast_strides(&a->shape, &shape, stride_a);
    onnx_broadcast_strides(&b->shape, &shape, stride_b);
    for (int64_t k = 0, at_a = 0, at_b = 0; k < y.count; k++) {
        if (whole) {
            i[k] = functions[row].integer(a->i[at_a], b->i[at_b]);
        } else {
            double number = functions[row].real(host_number(a, at_a), host_number(b, at_b));
            if (i) i[k] = to_integer(number);
            if (f) f[k] = (float)number;
        }
        for (int d = shape.rank - 1; d >= 0; d--) {
            at_a += stride_a[d];
            at_b += stride_b[d];
            if (++index[d] < shape.dim[d]) break;
            at_a -= stride_a[d] * shape.dim[d];
            at_b -= stride_b[d] * shape.dim[d];
            index[d] = 0;
        }
    }
    return onnx_set_constant(c, 0, &y);
}

static double negative(double x) { return -x; }
static double reciprocal(double x) { return 1 / x; }
static double invert(double x) { return x == 0; }
static double sign(double x) { return (x > 0) - (x < 0); }
static const struct {
    const char *name;
    double (*function)(double x);
} unary[] = {
    {"Neg", negative}, {"Sqrt", sqrt},   {"Reciprocal", reciprocal},
    {"Floor", floor},  {"Ceil", ceil},   {"Round", rint},
    {"Exp", exp},      {"Log", log},     {"Sin", sin},
    {"Cos", cos},      {"Tan", tan},     {"Not", invert},
    {"Abs", fabs},     {"Sign", sign},   {"Tanh", tanh},
    {"Erf", erf},      {"Sinh", sinh},   {"Cosh", cosh},
    {"Asin", asin},    {"Acos", acos},   {"Atan", atan},
    {"Asinh", asinh},  {"Acosh", acosh}, {"Atanh", atanh},
};

kolo_status onnx_fold_unary(onnx_call *c) {
    const host_tensor *x = &c->in[0]->tensor;
    size_t row = 0;
    while (strcmp(unary[row].name, c->node->op_type) != 0) row++;
    host_tensor y;
    float *f = NULL;
    int64_t *i = NULL;
    KOLO_TRY(onnx_new_constant(c, &x->shape, x->integer, &y, &f, &i));
    y.boolean = x->boolean;
    for (int64_t k = 0; k < y.count; k++) {
        double number = unary[row].function(host_number(x, k));
        if (i) i[k] = to_integer(number);
        if (f) f[k] = (float)number;
    }
    return onnx_set_constant(c, 0, &y);
}

kolo_status onnx_fold_cast(onnx_call *c) {
    const host_tensor *x = &c->in[0]->tensor;
    const bool like = onnx_has(c, 1); /* CastLike */
    const int64_t to = onnx_int(c, "to", 0);
    bool boolean = like ? c->in[1]->tensor.boolean : to == ONNX__TENSOR_PROTO__DATA_TYPE__BOOL;
    bool integer = like ? c->in[1]->tensor.integer
                        : boolean || to == ONNX__TENSOR_PROTO__DATA_TYPE__INT64 ||
                              to == ONNX__TENSOR_PROTO__DATA_TYPE__INT32;
    if (!like && !integer && to != ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT &&
        to != ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE) {
        return ONNX_FAIL(c, "attribute to: ONNX type %" PRId64, to);
    }
    host_tensor y;
    float *f = NULL;
    int64_t *i = NULL;
    KOLO_TRY(onnx_new_constant(c, &x->shape, integer, &y, &f, &i));
    y.boolean = boolean;
    for (int64_t k = 0; k < y.count; k++) {
        if (i && x->integer) i[k] = boolean ? x->i[k] != 0 : x->i[k];
        if (i && !x->integer) i[k] = boolean ? x->f[k] != 0 : to_integer((double)x->f[k]);
        if (f) f[k] = (float)host_number(x, k);
    }
    return onnx_set_constant(c, 0, &y);
}

kolo_status onnx_fold_where(onnx_call *c) {
    const host_tensor *in[3];
    kolo_shape shape = {0};
    int64_t stride[3][KOLO_MAX_RANK], at[3] = {0}, index[KOLO_MAX_RANK] = {0};
    for (int k = 0; k < 3; k++) {
        in[k] = &c->in[k]->tensor;
        if (!onnx_broadcast(&shape, &in[k]->shape, &shape))
            return ONNX_FAIL(c, "shapes do not fit");
    }
    for (int k = 0; k < 3; k++) onnx_broadcast_strides(&in[k]->shape, &shape, stride[k]);
    host_tensor y;
    float *f = NULL;
    int64_t *i = NULL;
    KOLO_TRY(onnx_new_constant(c, &shape, in[1]->integer && in[2]->integer, &y, &f, &i));
    y.boolean = in[1]->boolean && in[2]->boolean;
    for (int64_t k = 0; k < y.count; k++) {
        const int from = host_number(in[0], at[0]) != 0 ? 1 : 2;
        if (i) i[k] = in[from]->i[at[from]];
        if (f) f[k] = (float)host_number(in[from], at[from]);
        for (int d = shape.rank - 1; d >= 0; d--) {
            for (int n = 0; n < 3; n++) at[n] += stride[n][d];
            if (++index[d] < shape.dim[d]) break;
            for (int n = 0; n < 3; n++) at[n] -= stride[n][d] * shape.dim[d];
            index[d] = 0;
        }
    }
    return onnx_set_constant(c, 0, &y);
}

kolo_status onnx_fold_range(onnx_call *c) {
    double start, limit, by;
    KOLO_TRY(onnx_number(c, 0, 0, &start));
    KOLO_TRY(onnx_number(c, 1, 0, &limit));
    KOLO_TRY(onnx_number(c, 2, 1, &by));
    const double count = by != 0 ? ceil((limit - start) / by) : -1;
    if (!(count >= 0 && count <= HOST_MOST)) return ONNX_FAIL(c, "a range of %g elements", count);
    const kolo_shape shape = kolo_shape_1((int64_t)count);
    host_tensor y;
    float *f = NULL;
    int64_t *i = NULL;
    KOLO_TRY(onnx_new_constant(c, &shape, c->in[0]->tensor.integer, &y, &f, &i));
    for (int64_t k = 0; k < y.count; k++) {
        double number = start + (double)k * by;
        if (i) i[k] = to_integer(number);
        if (f) f[k] = (float)number;
    }
    return onnx_set_constant(c, 0, &y);
}

/* ReduceProd, ReduceSum, ReduceMax, ReduceMin of a list over everything: shape arithmetic. */
kolo_status onnx_fold_reduce(onnx_call *c) {
    const host_tensor *x = &c->in[0]->tensor;
    if (x->shape.rank > 1 || x->count < 1) return ONNX_FAIL(c, "a constant that is not a list");
    const char kind = c->node->op_type[6] == 'M' ? c->node->op_type[7] : c->node->op_type[6];
    double number = host_number(x, 0); /* S P a(x) i(n) e(an) */
    for (int64_t k = 1; k < x->count; k++) {
        double next = host_number(x, k);
        if (kind == 'P') number *= next;
        if (kind == 'S' || kind == 'e') number += next;
        if (kind == 'a') number = most(number, next);
        if (kind == 'i') number = least(number, next);
    }
    if (kind == 'e') number /= (double)x->count;
    kolo_shape shape = kolo_shape_0();
    if (onnx_int(c, "keepdims", 1) && x->shape.rank == 1) shape = kolo_shape_1(1);
    host_tensor y;
    float *f = NULL;
    int64_t *i = NULL;
    KOLO_TRY(onnx_new_constant(c, &shape, x->integer, &y, &f, &i));
    if (i) i[0] = to_integer(number);
    if (f) f[0] = (float)number;
    return onnx_set_constant(c, 0, &y);
}

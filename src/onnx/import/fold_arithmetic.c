/* Arithmetic on constants: elementwise operators and functions, casts, selection, ranges,
 * reductions. */
#include "onnx/import/fold.h"
#include "onnx/import/ops.h"

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
static int64_t irest(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }

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
    {"Mod", remainder_of, imod, false}, /* of the divisor's sign */
    {"Mod", fmod, irest, false},        /* with fmod: of the dividend's */
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
    if (strcmp(c->node->op_type, "Mod") == 0 && onnx_int(c, "fmod", 0)) row++;
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
    bool boolean = like ? onnx_is_boolean(c, 1) : to == ONNX__TENSOR_PROTO__DATA_TYPE__BOOL;
    bool integer = like ? onnx_is_integer(c, 1)
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

/* a[0] - a[1] cos(x) + a[2] cos(2 x) */
kolo_status onnx_fold_window(onnx_call *c) {
    static const struct {
        const char *name;
        double a[3];
    } windows[] = {
        {"HannWindow", {0.5, 0.5, 0}},
        {"HammingWindow", {25.0 / 46, 21.0 / 46, 0}},
        {"BlackmanWindow", {0.42, 0.5, 0.08}},
    };
    size_t row = 0;
    double size;
    host_tensor y;
    float *f = NULL;
    int64_t *unused = NULL;
    while (strcmp(windows[row].name, c->node->op_type) != 0) row++;
    KOLO_TRY(onnx_number(c, 0, 0, &size));
    if (onnx_int(c, "output_datatype", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT) !=
        ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT) {
        return ONNX_FAIL(c, "attribute output_datatype: f32 is supported");
    }
    if (!(size >= 1 && size <= HOST_MOST)) {
        return ONNX_FAIL(c, "a window of %g elements: must be 1 to %d", size, (int)HOST_MOST);
    }
    const kolo_shape shape = kolo_shape_1((int64_t)size);
    const double *a = windows[row].a, period = onnx_int(c, "periodic", 1) ? size : size - 1;
    KOLO_TRY(onnx_new_constant(c, &shape, false, &y, &f, &unused));
    for (int64_t k = 0; k < y.count; k++) {
        const double x = period > 0 ? 2 * acos(-1) * (double)k / period : 0;
        f[k] = (float)(a[0] - a[1] * cos(x) + a[2] * cos(2 * x));
    }
    return onnx_set_constant(c, 0, &y);
}

static double itself(double x) { return x; }
static double square(double x) { return x * x; }

/* y = after(join of before(x)). */
static const struct {
    const char *name;
    double (*before)(double);
    real_fn *join;
    double (*after)(double);
} reductions[] = {
    {"ReduceSum", itself, add, itself},   {"ReduceMean", itself, add, itself},
    {"ReduceProd", itself, mul, itself},  {"ReduceMax", itself, most, itself},
    {"ReduceMin", itself, least, itself}, {"ReduceSumSquare", square, add, itself},
    {"ReduceL1", fabs, add, itself},      {"ReduceL2", square, add, sqrt},
    {"ReduceLogSum", itself, add, log},   {"ReduceLogSumExp", exp, add, log},
};

/* The shape of a reduction with its axes as dimensions of 1, and without them. */
static kolo_status reduced_shapes(onnx_call *c, const kolo_shape *x, kolo_shape *kept,
                                  kolo_shape *y) {
    int n, axes[KOLO_MAX_RANK];
    *kept = *x;
    KOLO_TRY(onnx_reduced_axes(c, x->rank, axes, &n));
    for (int d = 0; d < x->rank && n == 0; d++) kept->dim[d] = 1;
    for (int k = 0; k < n; k++) kept->dim[axes[k]] = 1;
    *y = *kept;
    if (onnx_int(c, "keepdims", 1) || n < 0) return KOLO_OK;
    y->rank = 0;
    for (int d = 0; d < x->rank; d++) {
        bool gone = n == 0;
        for (int k = 0; k < n; k++) gone = gone || axes[k] == d;
        if (!gone) y->dim[y->rank++] = x->dim[d];
    }
    return KOLO_OK;
}

kolo_status onnx_fold_reduce(onnx_call *c) {
    const host_tensor *x = &c->in[0]->tensor;
    kolo_shape kept, shape;
    host_tensor y;
    float *f = NULL;
    int64_t *i = NULL, stride[KOLO_MAX_RANK], index[KOLO_MAX_RANK] = {0};
    size_t row = 0;
    while (strcmp(reductions[row].name, c->node->op_type) != 0) row++;
    if (x->count < 1) return ONNX_FAIL(c, "an empty constant");
    KOLO_TRY(reduced_shapes(c, &x->shape, &kept, &shape));
    KOLO_TRY(onnx_new_constant(c, &shape, x->integer, &y, &f, &i));
    const int64_t each = x->count / y.count;
    double *sum = kolo_arena_alloc(&c->m->arena, (size_t)y.count * sizeof *sum);
    bool *begun = kolo_arena_alloc(&c->m->arena, (size_t)y.count * sizeof *begun);
    if (!sum || !begun) return KOLO_NOMEM((size_t)y.count * sizeof *sum);
    memset(begun, 0, (size_t)y.count * sizeof *begun);
    onnx_broadcast_strides(&kept, &x->shape, stride);
    for (int64_t k = 0, at = 0; k < x->count; k++) {
        const double number = reductions[row].before(host_number(x, k));
        sum[at] = begun[at] ? reductions[row].join(sum[at], number) : number;
        begun[at] = true;
        for (int d = x->shape.rank - 1; d >= 0; d--) {
            at += stride[d];
            if (++index[d] < x->shape.dim[d]) break;
            at -= stride[d] * x->shape.dim[d];
            index[d] = 0;
        }
    }
    const bool mean = strcmp(c->node->op_type, "ReduceMean") == 0;
    for (int64_t k = 0; k < y.count; k++) {
        const double number = reductions[row].after(mean ? sum[k] / (double)each : sum[k]);
        if (i) i[k] = to_integer(number);
        if (f) f[k] = (float)number;
    }
    return onnx_set_constant(c, 0, &y);
}

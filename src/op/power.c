/* PowerSGD: sums of gradients over the ranks by factors of low rank (pass/compress.c). No shape
 * rules: the pass gives the outputs their tensors. */
#include "base/rng.h"
#include "graph/ops/ops.h"
#include "kernel/ref/ref.h"

#include <math.h>
#include <string.h>

double kolo_power_start(int64_t i) {
    return 2 * (double)(kolo_hash_bytes(&i, sizeof i) >> 11) / (double)(INT64_C(1) << 53) - 1;
}

const kolo_op kolo_op_power_project = {
    .name = "power_project",
    .min_in = 3,
    .max_in = 3,
    .layout = {.in = "eep", .out = "p"},
    .comm = KOLO_OP_ENCODE,
};
const kolo_op kolo_op_power_basis = {
    .name = "power_basis",
    .index = "A->B",
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "p", .out = "p"},
    .with_updates = true,
};
const kolo_op kolo_op_power_back = {
    .name = "power_back",
    .min_in = 3,
    .max_in = 3,
    .layout = {.in = "eep", .out = "pe"},
    .comm = KOLO_OP_ENCODE,
    .with_updates = true,
};
const kolo_op kolo_op_power_sum = {
    .name = "power_sum",
    .index = "A,B->C",
    .min_in = 2,
    .max_in = 2,
    .layout = {.in = "pp", .out = "x"},
    .with_updates = true,
};

/* ---- reference ---- */

/* The ops of PowerSGD on f32 or f64; sums are in f64. Gradients may have any layout: element [i, j]
 * of such a matrix is at the offset of its row plus that of its column. */

static double fit(kolo_kernel_spec *spec) {
    const kolo_dtype dtype = spec->in[0].dtype;
    return dtype == KOLO_DTYPE_F32 || dtype == KOLO_DTYPE_F64 ? kolo_ref_seconds(spec) : -1;
}

static int64_t rows_of(const kolo_tensor *t) { return t->shape.dim[0]; }
static int64_t columns_of(const kolo_tensor *t) {
    return kolo_shape_count(&t->shape) / t->shape.dim[0];
}

/* Room for the offsets of the columns of a gradient, and a factor in f64. */
static size_t room(const kolo_tensor *gradient, const kolo_tensor *factor) {
    return sizeof(int64_t) * (size_t)columns_of(gradient) +
           sizeof(double) * (size_t)kolo_shape_count(&factor->shape);
}

static kolo_status prepare_project(const kolo_kernel_spec *spec, void **state, size_t *bytes) {
    *bytes = room(&spec->in[0], &spec->in[2]);
    return KOLO_OK;
}
static kolo_status prepare_basis(const kolo_kernel_spec *spec, void **state, size_t *bytes) {
    return KOLO_OK;
}
static kolo_status prepare_back(const kolo_kernel_spec *spec, void **state, size_t *bytes) {
    *bytes = room(&spec->in[0], &spec->out[0]);
    return KOLO_OK;
}
static kolo_status prepare_sum(const kolo_kernel_spec *spec, void **state, size_t *bytes) {
    *bytes = room(&spec->out[0], &spec->in[1]);
    return KOLO_OK;
}

static int64_t row_at(const kolo_tensor *t, int64_t i) {
    const int64_t index[KOLO_MAX_RANK] = {i};
    return kolo_layout_offset(&t->layout, &t->shape, index);
}

static void find_columns(const kolo_tensor *t, int64_t *offsets) {
    const int64_t columns = columns_of(t);
    int64_t index[KOLO_MAX_RANK] = {0};
    for (int64_t j = 0; j < columns; j++) {
        offsets[j] = kolo_layout_offset(&t->layout, &t->shape, index);
        for (int d = t->shape.rank - 1; d > 0 && ++index[d] == t->shape.dim[d]; d--) index[d] = 0;
    }
}

/* With `wide` constant the branch disappears. */
static inline double get(const void *x, bool wide, int64_t i) {
    return wide ? ((const double *)x)[i] : (double)((const float *)x)[i];
}
static inline void set(void *x, bool wide, int64_t i, double value) {
    if (wide) {
        ((double *)x)[i] = value;
    } else {
        ((float *)x)[i] = (float)value;
    }
}

static bool is_wide(const kolo_call *call) { return call->spec->in[0].dtype == KOLO_DTYPE_F64; }

/* q in f64, with new rows in place of those that are zero. */
static void read_q(const void *from, bool wide, double *q, int64_t rank, int64_t columns) {
    for (int64_t k = 0; k < rank; k++) {
        bool zero = true;
        for (int64_t j = k * columns; j < (k + 1) * columns; j++) {
            q[j] = get(from, wide, j);
            zero &= q[j] == 0;
        }
        for (int64_t j = k * columns; j < (k + 1) * columns && zero; j++) {
            q[j] = kolo_power_start(j);
        }
    }
}

static inline void project_as(const kolo_call *call, bool wide) {
    const kolo_tensor *t = &call->spec->in[0];
    const int64_t rows = rows_of(t), columns = columns_of(t), rank = rows_of(&call->spec->in[2]);
    int64_t *offsets = call->scratch;
    double *q = (double *)(offsets + columns);
    find_columns(t, offsets);
    read_q(call->in[2], wide, q, rank, columns);
    for (int64_t i = 0; i < rows; i++) {
        const int64_t row = row_at(t, i);
        double sums[KOLO_POWER_RANKS] = {0};
        for (int64_t j = 0; j < columns; j++) {
            const int64_t at = row + offsets[j];
            const double m = get(call->in[0], wide, at) + get(call->in[1], wide, at);
            for (int64_t k = 0; k < rank; k++) sums[k] += m * q[k * columns + j];
        }
        for (int64_t k = 0; k < rank; k++) set(call->out[0], wide, i * rank + k, sums[k]);
    }
}

static void project(const kolo_call *call) {
    is_wide(call) ? project_as(call, true) : project_as(call, false);
}

/* The product of columns k and l of x, [rows, rank]. */
static inline double dot(const void *x, bool wide, int64_t rows, int64_t rank, int64_t k,
                         int64_t l) {
    double sum = 0;
    for (int64_t i = 0; i < rows; i++) {
        sum += get(x, wide, i * rank + k) * get(x, wide, i * rank + l);
    }
    return sum;
}

/* Modified Gram-Schmidt. */
static inline void basis_as(const kolo_call *call, bool wide) {
    const int64_t rows = rows_of(&call->spec->in[0]), rank = columns_of(&call->spec->in[0]);
    void *x = call->out[0];
    memcpy(x, call->in[0], kolo_tensor_bytes(&call->spec->in[0]));
    for (int64_t k = 0; k < rank; k++) {
        const double before = sqrt(dot(x, wide, rows, rank, k, k));
        for (int64_t l = 0; l < k; l++) {
            const double along = dot(x, wide, rows, rank, k, l);
            for (int64_t i = 0; i < rows; i++) {
                const double other = along * get(x, wide, i * rank + l);
                set(x, wide, i * rank + k, get(x, wide, i * rank + k) - other);
            }
        }
        const double norm = sqrt(dot(x, wide, rows, rank, k, k));
        const bool depends = norm <= KOLO_POWER_LEAST * before;
        for (int64_t i = 0; i < rows; i++) {
            const double value = depends ? 0 : get(x, wide, i * rank + k) / norm;
            set(x, wide, i * rank + k, value);
        }
    }
}

static void basis(const kolo_call *call) {
    is_wide(call) ? basis_as(call, true) : basis_as(call, false);
}

static inline void back_as(const kolo_call *call, bool wide) {
    const kolo_tensor *t = &call->spec->in[0];
    const int64_t rows = rows_of(t), columns = columns_of(t);
    const int64_t rank = columns_of(&call->spec->in[2]);
    int64_t *offsets = call->scratch;
    double *q = (double *)(offsets + columns);
    find_columns(t, offsets);
    memset(q, 0, (size_t)(rank * columns) * sizeof *q);
    for (int64_t i = 0; i < rows; i++) {
        const int64_t row = row_at(t, i);
        for (int64_t j = 0; j < columns; j++) {
            const int64_t at = row + offsets[j];
            const double m = get(call->in[0], wide, at) + get(call->in[1], wide, at);
            for (int64_t k = 0; k < rank; k++) {
                q[k * columns + j] += m * get(call->in[2], wide, i * rank + k);
            }
        }
    }
    for (int64_t j = 0; j < rank * columns; j++) {
        set(call->out[0], wide, j, q[j]);
        q[j] = get(call->out[0], wide, j); /* what is sent, of which the error is */
    }
    memset(call->out[1], 0, kolo_tensor_bytes(t)); /* padding too */
    for (int64_t i = 0; i < rows; i++) {
        const int64_t row = row_at(t, i);
        for (int64_t j = 0; j < columns; j++) {
            const int64_t at = row + offsets[j];
            double lost = get(call->in[0], wide, at) + get(call->in[1], wide, at);
            for (int64_t k = 0; k < rank; k++) {
                lost -= get(call->in[2], wide, i * rank + k) * q[k * columns + j];
            }
            set(call->out[1], wide, at, lost);
        }
    }
}

static void back(const kolo_call *call) {
    is_wide(call) ? back_as(call, true) : back_as(call, false);
}

static inline void sum_as(const kolo_call *call, bool wide) {
    const kolo_tensor *t = &call->spec->out[0];
    const int64_t rows = rows_of(t), columns = columns_of(t);
    const int64_t rank = columns_of(&call->spec->in[0]);
    int64_t *offsets = call->scratch;
    find_columns(t, offsets);
    memset(call->out[0], 0, kolo_tensor_bytes(t));
    for (int64_t i = 0; i < rows; i++) {
        const int64_t row = row_at(t, i);
        for (int64_t j = 0; j < columns; j++) {
            double sum = 0;
            for (int64_t k = 0; k < rank; k++) {
                sum +=
                    get(call->in[0], wide, i * rank + k) * get(call->in[1], wide, k * columns + j);
            }
            set(call->out[0], wide, row + offsets[j], sum);
        }
    }
}

static void sum(const kolo_call *call) { is_wide(call) ? sum_as(call, true) : sum_as(call, false); }

#define KERNEL(which)                                                          \
    {                                                                          \
        .name = "ref_power_" #which, .op = &kolo_op_power_##which, .fit = fit, \
        .prepare = prepare_##which, .run = which, .release = kolo_ref_release  \
    }

const kolo_kernel kolo_ops_power[] = {
    KERNEL(project), KERNEL(basis), KERNEL(back), KERNEL(sum), {0},
};

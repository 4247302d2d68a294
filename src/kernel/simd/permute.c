/* Permutations of the dimensions of plain f32 or bf16 tensors. Rows that stay together are copied;
 * else two dimensions, the innermost of each side, are transposed in tiles. Parallel over bands of
 * tiles. Reversals along a dimension copy what is behind it, or reverse rows. */
#include "base/integer.h"
#include "kernel/simd/nest.h"

#include <string.h>

enum { Y, X, TILE = 16, BAND = 64 };

/* The outer dimensions of the nest, and the two inner ones. */
typedef struct plan {
    kolo_simd_nest nest;           /* y is the key */
    int64_t columns, rows;         /* adjacent in y, in x; rows 1: adjacent in both */
    int64_t row_of_y, column_of_x; /* strides */
    int64_t bands;                 /* of BAND rows */
} plan;

static bool init_nest(const kolo_kernel_spec *spec, kolo_simd_nest *nest) {
    kolo_simd_nested tensors[2] = {{&spec->out[0], {0}}, {&spec->in[0], {0}}};
    for (int d = 0; d < spec->out[0].shape.rank; d++) {
        tensors[Y].dim[d] = d;
        tensors[X].dim[d] = (int)spec->attr[d].i;
    }
    return kolo_simd_nest_init(nest, &spec->out[0].shape, Y, 2, tensors);
}

static double fit(kolo_kernel_spec *spec) {
    kolo_simd_nest nest;
    if (!kolo_simd_supports(spec) || !init_nest(spec, &nest)) return -1;
    return kolo_kernel_seconds(0, 2 * (double)kolo_tensor_bytes(&spec->out[0]), 1);
}

static void drop(kolo_simd_nest *nest, int d) {
    nest->n_dims--;
    for (int i = d; i < nest->n_dims; i++) {
        nest->size[i] = nest->size[i + 1];
        for (int k = 0; k < nest->n_tensors; k++) nest->stride[k][i] = nest->stride[k][i + 1];
    }
}

static kolo_status prepare(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    plan *p = kolo_zalloc(sizeof *p);
    if (!p) return KOLO_NOMEM(sizeof *p);
    KOLO_ASSERT(init_nest(spec, &p->nest));
    const int inner = p->nest.n_dims - 1;
    p->columns = p->nest.size[inner];
    p->column_of_x = p->nest.stride[X][inner];
    p->rows = 1;
    drop(&p->nest, inner);
    for (int d = 0; d < p->nest.n_dims && p->column_of_x > 1; d++) {
        if (p->nest.stride[X][d] != 1) continue;
        p->rows = p->nest.size[d];
        p->row_of_y = p->nest.stride[Y][d];
        drop(&p->nest, d);
        break;
    }
    p->bands = (p->rows + BAND - 1) / BAND;
    *state = p;
    *scratch_bytes = 0;
    return KOLO_OK;
}

typedef struct band_job {
    const plan *plan;
    const char *x;
    char *y;
    int64_t size; /* of an element */
} band_job;

/* Square blocks, rows of which are vectors of 16 bytes. Interleaving both halves of a block rotates
 * the bits of the numbers of its elements by one: log2(side) times exchange rows and columns. */
typedef uint32_t words __attribute__((vector_size(16)));
typedef uint16_t halves __attribute__((vector_size(16)));

#define INTERLEAVE_words(a, b, low) \
    (low ? __builtin_shufflevector(a, b, 0, 4, 1, 5) : __builtin_shufflevector(a, b, 2, 6, 3, 7))
#define INTERLEAVE_halves(a, b, low)                               \
    (low ? __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11) \
         : __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15))

/* Transposes `rows` elements that are adjacent in x and all columns: y [rows][columns]. */
#define TRANSPOSE(type, block, side, times)                                              \
    static inline void turn_##type(const type *x, int64_t of_x, type *y, int64_t of_y) { \
        block b[side], next[side];                                                       \
        for (int c = 0; c < side; c++) memcpy(&b[c], x + c * of_x, sizeof b[c]);         \
        for (int t = 0; t < times; t++) {                                                \
            for (int i = 0; i < side / 2; i++) {                                         \
                next[2 * i] = INTERLEAVE_##block(b[i], b[i + side / 2], true);           \
                next[2 * i + 1] = INTERLEAVE_##block(b[i], b[i + side / 2], false);      \
            }                                                                            \
            memcpy(b, next, sizeof b);                                                   \
        }                                                                                \
        for (int r = 0; r < side; r++) memcpy(y + r * of_y, &b[r], sizeof b[r]);         \
    }                                                                                    \
    static void transpose_##type(const plan *p, const type *x, type *y, int64_t rows) {  \
        const int64_t of_x = p->column_of_x, of_y = p->row_of_y;                         \
        const int64_t whole = rows / side * side, last = p->columns / side * side;       \
        for (int64_t first = 0; first < last; first += TILE) {                           \
            const int64_t end = kolo_min_i64(last, first + TILE);                        \
            for (int64_t r = 0; r < whole; r += side) {                                  \
                for (int64_t c = first; c < end; c += side) {                            \
                    turn_##type(x + r + c * of_x, of_x, y + r * of_y + c, of_y);         \
                }                                                                        \
            }                                                                            \
        }                                                                                \
        for (int64_t r = 0; r < rows; r++) {                                             \
            for (int64_t c = r < whole ? last : 0; c < p->columns; c++) {                \
                y[r * of_y + c] = x[r + c * of_x];                                       \
            }                                                                            \
        }                                                                                \
    }
TRANSPOSE(uint32_t, words, 4, 2)
TRANSPOSE(uint16_t, halves, 8, 3)

/* Rows that are adjacent in both tensors. */
static void copy_rows(const band_job *job, int64_t begin, int64_t end) {
    const kolo_simd_nest *nest = &job->plan->nest;
    const size_t bytes = (size_t)(job->plan->columns * job->size);
    kolo_simd_cursor at;
    kolo_simd_nest_seek(nest, nest->n_dims, begin, &at);
    for (int64_t row = begin; row < end; row++) {
        memcpy(job->y + at.offset[Y] * job->size, job->x + at.offset[X] * job->size, bytes);
        kolo_simd_nest_next(nest, nest->n_dims, &at);
    }
}

static void bands(const void *arg, int part, int64_t begin, int64_t end) {
    const band_job *job = arg;
    const plan *p = job->plan;
    kolo_simd_cursor at = {{0}, {0}};
    if (p->bands == 1 && (p->column_of_x == 1 || p->columns == 1)) {
        copy_rows(job, begin, end);
        return;
    }
    for (int64_t band = begin; band < end; band++) {
        const int64_t first = band % p->bands * BAND;
        const int64_t rows = kolo_min_i64(BAND, p->rows - first);
        kolo_simd_nest_seek(&p->nest, p->nest.n_dims, band / p->bands, &at);
        const char *x = job->x + (at.offset[X] + first) * job->size;
        char *y = job->y + (at.offset[Y] + first * p->row_of_y) * job->size;
        if (job->size == 4) {
            transpose_uint32_t(p, (const uint32_t *)(const void *)x, (uint32_t *)(void *)y, rows);
        } else {
            transpose_uint16_t(p, (const uint16_t *)(const void *)x, (uint16_t *)(void *)y, rows);
        }
    }
}

static void run(const kolo_call *call) {
    const band_job job = {.plan = call->state,
                          .x = call->in[0],
                          .y = call->out[0],
                          .size = (int64_t)kolo_dtype_bytes(call->spec->out[0].dtype)};
    const int64_t outer = kolo_simd_nest_rows(&job.plan->nest, job.plan->nest.n_dims);
    kolo_kernel_parallel(call->spec->threads, outer * job.plan->bands, bands, &job);
}

KOLO_SIMD_KERNEL(permute, run);

/* ---- flip ---- */

typedef struct flip_job {
    const char *x;
    char *y;
    int64_t length, inner, size; /* of the dimension; elements behind it; bytes of an element */
} flip_job;

static double fit_flip(kolo_kernel_spec *spec) {
    if (!kolo_simd_supports(spec) || !kolo_spec_is_plain(spec)) return -1;
    return kolo_kernel_seconds(0, 2 * (double)kolo_tensor_bytes(&spec->out[0]), 1);
}

static void reverse_4(const uint32_t *x, uint32_t *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = x[n - 1 - i];
}
static void reverse_2(const uint16_t *x, uint16_t *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = x[n - 1 - i];
}

static void flip_rows(const void *arg, int part, int64_t begin, int64_t end) {
    const flip_job *job = arg;
    const int64_t bytes = job->inner * job->size, all = job->length * bytes;
    for (int64_t row = begin; row < end; row++) {
        const char *x = job->x + row * all;
        char *y = job->y + row * all;
        if (job->inner > 1) {
            for (int64_t i = 0; i < job->length; i++) {
                memcpy(y + i * bytes, x + (job->length - 1 - i) * bytes, (size_t)bytes);
            }
        } else if (job->size == 4) {
            reverse_4((const uint32_t *)(const void *)x, (uint32_t *)(void *)y, job->length);
        } else {
            reverse_2((const uint16_t *)(const void *)x, (uint16_t *)(void *)y, job->length);
        }
    }
}

static void run_flip(const kolo_call *call) {
    const kolo_shape *s = &call->spec->in[0].shape;
    const int axis = (int)call->spec->attr[KOLO_FLIP_AXIS].i;
    flip_job job = {.x = call->in[0],
                    .y = call->out[0],
                    .length = s->dim[axis],
                    .inner = 1,
                    .size = (int64_t)kolo_dtype_bytes(call->spec->out[0].dtype)};
    for (int d = axis + 1; d < s->rank; d++) job.inner *= s->dim[d];
    kolo_kernel_parallel(call->spec->threads, kolo_shape_count(s) / (job.length * job.inner),
                         flip_rows, &job);
}

const kolo_kernel kolo_simd_flip = {
    .name = "simd_flip", .op = &kolo_op_flip, .fit = fit_flip, .run = run_flip};

/* Norms of whole tensors (loops: pointwise.isa.c). Blocks are in row-major order whatever the
 * layout: the offset of an element is a sum of one term for each dimension, so two tables give it,
 * one for dimension 0 and one for the others. */
#include "graph/ops/ops.h"
#include "kernel/simd/pointwise.h"
#include "kernel/simd/simd.h"

#include <string.h>

typedef struct squares_state {
    int64_t width; /* elements of a row */
    int64_t *rows; /* their offsets; NULL: plain */
    int32_t *columns;
} squares_state;

static double fit(kolo_kernel_spec *spec) {
    if (!kolo_spec_floats_are(spec, KOLO_DTYPE_F32)) return -1;
    if (kolo_tensor_elements(&spec->in[0]) > INT32_MAX) return -1;
    double share = kolo_layout_is_plain(&spec->in[0].layout) ? 2 : 0.5;
    return kolo_kernel_seconds(0, (double)kolo_tensor_bytes(&spec->in[0]), share);
}

/* The offsets of the elements of row 0. */
static void find_columns(const kolo_tensor *x, int64_t width, int32_t *columns) {
    int64_t index[KOLO_MAX_RANK] = {0};
    for (int64_t i = 0; i < width; i++) {
        columns[i] = (int32_t)kolo_layout_offset(&x->layout, &x->shape, index);
        for (int d = x->shape.rank - 1; d > 0 && ++index[d] == x->shape.dim[d]; d--) index[d] = 0;
    }
}

static kolo_status prepare(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    const kolo_tensor *x = &spec->in[0];
    squares_state *s = kolo_zalloc(sizeof *s);
    *scratch_bytes = 0;
    if (!s) return KOLO_NOMEM(sizeof *s);
    *state = s;
    if (kolo_layout_is_plain(&x->layout)) return KOLO_OK;
    const int64_t rows = x->shape.dim[0];
    s->width = kolo_shape_count(&x->shape) / rows;
    s->rows = kolo_alloc((size_t)rows * sizeof *s->rows);
    s->columns = kolo_alloc((size_t)s->width * sizeof *s->columns);
    if (!s->rows || !s->columns) return KOLO_NOMEM((size_t)(rows + s->width) * sizeof *s->rows);
    for (int64_t i = 0; i < rows; i++) {
        const int64_t index[KOLO_MAX_RANK] = {i};
        s->rows[i] = kolo_layout_offset(&x->layout, &x->shape, index);
    }
    find_columns(x, s->width, s->columns);
    return KOLO_OK;
}

static void release(void *state) {
    squares_state *s = state;
    kolo_free(s->rows);
    kolo_free(s->columns);
    kolo_free(s);
}

static void run_blocks(const kolo_call *call) {
    const squares_state *s = call->state;
    const kolo_attr *attr = call->spec->attr;
    float *sums = call->out[0];
    memset(sums, 0, (size_t)attr[KOLO_SQUARE_ALL].i * sizeof *sums);
    const kolo_simd_block_job job = {
        .x = call->in[0],
        .count = kolo_shape_count(&call->spec->in[0].shape),
        .sums = sums + attr[KOLO_SQUARE_FIRST].i,
        .rows = s->rows,
        .columns = s->columns,
        .width = s->width,
    };
    kolo_kernel_parallel(call->spec->threads, kolo_square_blocks(job.count),
                         KOLO_ISA_PICK(kolo_simd_point)->square_blocks, &job);
}

static double fit_sum(kolo_kernel_spec *spec) {
    if (!kolo_spec_floats_are(spec, KOLO_DTYPE_F32)) return -1;
    return kolo_kernel_seconds(0, (double)kolo_tensor_bytes(&spec->in[0]), 2);
}

static void run_sum(const kolo_call *call) {
    const float *blocks = call->in[0], *before = call->spec->n_in == 2 ? call->in[1] : NULL;
    const int64_t all = call->spec->attr[KOLO_SQUARE_PLACES].i;
    float *sums = call->out[0];
    double sum = before && all == 0 ? (double)*before : 0;
    for (int64_t i = 0; i < call->spec->in[0].shape.dim[0]; i++) sum += (double)blocks[i];
    for (int64_t i = 0; i < all; i++) sums[i] = before ? before[i] : 0;
    sums[all > 0 ? call->spec->attr[KOLO_SQUARE_PLACE].i : 0] = (float)sum;
}

const kolo_kernel kolo_simd_square_blocks = {
    .name = "simd_square_blocks",
    .op = &kolo_op_square_blocks,
    .fit = fit,
    .prepare = prepare,
    .run = run_blocks,
    .release = release,
};
const kolo_kernel kolo_simd_square_sum = {
    .name = "simd_square_sum", .op = &kolo_op_square_sum, .fit = fit_sum, .run = run_sum};

/* Rotary embedding in f32 or bf16, by a table of sines and cosines, and the mask of keys after a
 * query in f32; on plain tensors. */
#include "kernel/simd/position.h"

#include "base/integer.h"

#include <math.h>
#include <string.h>

/* ---- rotary ---- */

/* The table is made once for the positions of the op, and in each run for those of input 1. */
typedef struct rotary_state {
    int64_t heads, half, length; /* of the table */
    float table[];               /* cosines, sines; not with input 1 */
} rotary_state;

static int64_t table_floats(const rotary_state *s) { return 2 * s->length * s->half; }

static void fill_table(const kolo_kernel_spec *spec, const rotary_state *s,
                       const int32_t *positions, float *table) {
    const kolo_attr *attr = spec->attr;
    const int64_t half = s->half, count = s->length * half;
    const double sign = attr[KOLO_ROTARY_INVERSE].i ? -1 : 1;
    for (int64_t k = 0; k < count; k++) {
        const int64_t from_first = kolo_position_of(
            attr[KOLO_ROTARY_FIRST].i, attr[KOLO_ROTARY_LENGTH].i, s->length, k / half);
        double t = (double)(positions ? positions[k / half] : from_first);
        double angle = t * pow(attr[KOLO_ROTARY_BASE].f, -(double)(k % half) / (double)half);
        table[k] = (float)cos(angle);
        table[count + k] = (float)(sign * sin(angle));
    }
}

static double fit_rotary(kolo_kernel_spec *spec) {
    if (!kolo_simd_supports(spec) || !kolo_spec_is_plain(spec)) return -1;
    return kolo_kernel_seconds(0, 2 * (double)kolo_tensor_bytes(&spec->out[0]), 2);
}

static kolo_status prepare_rotary(const kolo_kernel_spec *spec, void **state,
                                  size_t *scratch_bytes) {
    const int64_t *dim = spec->in[0].shape.dim, heads = spec->attr[KOLO_ROTARY_HEADS].i;
    const bool given = spec->n_in > 1;
    const rotary_state of = {heads, dim[2] / heads / 2, given ? dim[0] * dim[1] : dim[1]};
    const size_t bytes = sizeof(float) * (size_t)table_floats(&of);
    rotary_state *s = kolo_alloc(sizeof *s + (given ? 0 : bytes));
    if (!s) return KOLO_NOMEM(bytes);
    *s = of;
    if (!given) fill_table(spec, s, NULL, s->table);
    *state = s;
    *scratch_bytes = given ? bytes : 0;
    return KOLO_OK;
}

static void run_rotary(const kolo_call *call) {
    const rotary_state *s = call->state;
    const bool given = call->spec->n_in > 1;
    if (given) fill_table(call->spec, s, call->in[1], call->scratch);
    const float *table = given ? call->scratch : s->table;
    const int64_t *dim = call->spec->in[0].shape.dim;
    const kolo_simd_rotary_job job = {
        .x = call->in[0],
        .y = call->out[0],
        .cosines = table,
        .sines = table + s->length * s->half,
        .length = s->length,
        .heads = s->heads,
        .half = s->half,
        .bf16 = kolo_simd_is_bf16(call->spec),
    };
    kolo_kernel_parallel(call->spec->threads, dim[0] * dim[1],
                         KOLO_ISA_PICK(kolo_simd_position)->rotary, &job);
}

const kolo_kernel kolo_simd_rotary = {
    .name = "simd_rotary",
    .op = &kolo_op_rotary,
    .fit = fit_rotary,
    .prepare = prepare_rotary,
    .run = run_rotary,
    .release = kolo_free,
};

/* ---- causal_mask ---- */

static double fit_mask(kolo_kernel_spec *spec) {
    if (!kolo_spec_floats_are(spec, KOLO_DTYPE_F32) || !kolo_spec_is_plain(spec)) return -1;
    return kolo_kernel_seconds(0, 2 * (double)kolo_tensor_bytes(&spec->out[0]), 2);
}

/* Rows: the keys up to the query's own, of the window, are copied, the others filled. */
static void mask_rows(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_call *call = arg;
    const kolo_shape *s = &call->spec->in[0].shape;
    const int64_t keys = s->dim[s->rank - 1], queries = s->dim[s->rank - 2];
    const float fill = (float)call->spec->attr[KOLO_CAUSAL_FILL].f;
    const int64_t window = call->spec->attr[KOLO_CAUSAL_WINDOW].i;
    for (int64_t row = begin; row < end; row++) {
        const float *x = (const float *)call->in[0] + row * keys;
        float *y = (float *)call->out[0] + row * keys;
        const int64_t seen = kolo_max_i64(0, row % queries + 1 + keys - queries);
        const int64_t first = window > 0 ? kolo_max_i64(0, seen - window) : 0;
        for (int64_t k = 0; k < first; k++) y[k] = fill;
        if (y != x) memcpy(y + first, x + first, sizeof *y * (size_t)(seen - first));
        for (int64_t k = seen; k < keys; k++) y[k] = fill;
    }
}

static void run_mask(const kolo_call *call) {
    const kolo_shape *s = &call->spec->in[0].shape;
    kolo_kernel_parallel(call->spec->threads, kolo_shape_count(s) / s->dim[s->rank - 1], mask_rows,
                         call);
}

const kolo_kernel kolo_simd_causal_mask = {
    .name = "simd_causal_mask", .op = &kolo_op_causal_mask, .fit = fit_mask, .run = run_mask};

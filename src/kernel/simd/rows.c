/* Row-sparse gradients of embedding tables and the updates that use them (loops: token.isa.c),
 * on plain tensors.
 *
 * Ids are sorted together with their positions by a stable radix sort; each thread then sums the
 * rows of some ids, in the order of positions. Updates run in place; when input and output
 * differ, as in tests, the input is copied first. */
#include "kernel/simd/simd.h"
#include "kernel/simd/token.h"

#include <math.h>
#include <string.h>

enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };
enum { IN_W, IN_ROWS, IN_IDS, IN_LR, IN_UPDATE, IN_MEAN, IN_SQUARE };

static double fit(kolo_kernel_spec *spec) {
    if (!kolo_spec_floats_are(spec, KOLO_DTYPE_F32) || !kolo_spec_is_plain(spec)) return -1;
    int sweeps = spec->op->in_place ? 1 + 2 * spec->n_out : 2;
    double rows = (double)kolo_tensor_bytes(&spec->in[spec->op->in_place ? IN_ROWS : 0]);
    return kolo_kernel_seconds(0, sweeps * rows, 2);
}

static int64_t count_of(const kolo_kernel_spec *spec) {
    return kolo_shape_count(&spec->in[1].shape);
}
static int64_t room_of(const kolo_kernel_spec *spec) { return spec->out[0].shape.dim[0]; }

/* Buffers: two arrays of positions, two of ids, and the starts of the sums; see sort and
 * run_sum. */
static kolo_status prepare(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    const kolo_simd_token_table **table = kolo_alloc(sizeof *table);
    if (!table) return KOLO_NOMEM(sizeof *table);
    *table = KOLO_ISA_PICK(kolo_simd_token);
    *state = table;
    int64_t sums = 4 * count_of(spec) + room_of(spec) + 1;
    *scratch_bytes = spec->op->in_place ? 0 : sizeof(int32_t) * (size_t)sums;
    return KOLO_OK;
}

/* ---- sums ---- */

typedef struct keyed {
    int32_t id, place;
} keyed;

/* One pass of the sort, over the digit from bit `shift` on. */
static void sort_digit(const keyed *from, keyed *to, int64_t n, int shift) {
    int64_t begin[DIGITS] = {0};
    for (int64_t i = 0; i < n; i++) begin[from[i].id >> shift & (DIGITS - 1)]++;
    for (int64_t d = 0, sum = 0; d < DIGITS; d++) {
        int64_t count = begin[d];
        begin[d] = sum;
        sum += count;
    }
    for (int64_t i = 0; i < n; i++) to[begin[from[i].id >> shift & (DIGITS - 1)]++] = from[i];
}

/* The ids, counted from `first`, with their positions, sorted, in one of the two arrays. */
static const keyed *sort(const int32_t *ids, int64_t *count, int64_t first, int64_t table, keyed *a,
                         keyed *b) {
    int64_t n = 0;
    for (int64_t i = 0; i < *count; i++) {
        const int64_t id = ids[i] - first;
        if (id >= 0 && id < table) a[n++] = (keyed){(int32_t)id, (int32_t)i};
    }
    for (int shift = 0; shift < 31 && (table - 1) >> shift > 0; shift += DIGIT_BITS) {
        sort_digit(a, b, n, shift);
        keyed *swap = a;
        a = b;
        b = swap;
    }
    *count = n;
    return a;
}

static void run_sum(const kolo_call *call) {
    const kolo_simd_token_table *const *table = call->state;
    const kolo_kernel_spec *spec = call->spec;
    int64_t count = count_of(spec), room = room_of(spec), found = 0;
    const int64_t from = spec->attr[KOLO_ROWS_FIRST].i, rows = spec->attr[KOLO_ROWS_TABLE].i;
    keyed *a = call->scratch, *b = a + count;
    int32_t *first = (int32_t *)(b + count), *ids = call->out[1];
    const keyed *sorted = sort(call->in[1], &count, from, rows, a, b);
    int32_t *order = (int32_t *)(sorted == a ? b : a);
    for (int64_t i = 0; i < count; i++) {
        if (i == 0 || sorted[i].id != sorted[i - 1].id) {
            ids[found] = sorted[i].id;
            first[found++] = (int32_t)i;
        }
        order[i] = sorted[i].place;
    }
    for (int64_t k = found; k <= room; k++) first[k] = (int32_t)count;
    for (int64_t k = found; k < room; k++) ids[k] = -1;
    kolo_simd_rows_job job = {
        .channels = spec->out[0].shape.dim[1],
        .order = order,
        .first = first,
        .x = call->in[0],
        .out = call->out[0],
    };
    kolo_kernel_parallel(spec->threads, room, (*table)->sum_rows, &job);
}

/* ---- updates ---- */

/* Output i, which starts as a copy of input `from`. */
static float *upon(const kolo_call *call, int i, int from) {
    if (call->out[i] != call->in[from]) {
        memcpy(call->out[i], call->in[from], kolo_tensor_bytes(&call->spec->out[i]));
    }
    return call->out[i];
}

static void run_sgd(const kolo_call *call) {
    const kolo_simd_token_table *const *table = call->state;
    const kolo_shape *rows = &call->spec->in[IN_ROWS].shape;
    kolo_simd_rows_job job = {
        .channels = rows->dim[1],
        .ids = call->in[IN_IDS],
        .x = call->in[IN_ROWS],
        .lr = *(const float *)call->in[IN_LR],
        .out = upon(call, 0, IN_W),
    };
    kolo_kernel_parallel(call->spec->threads, rows->dim[0], (*table)->sgd_rows, &job);
}

static void run_adam(const kolo_call *call) {
    const kolo_simd_token_table *const *table = call->state;
    const kolo_shape *rows = &call->spec->in[IN_ROWS].shape;
    const kolo_attr *attr = call->spec->attr;
    double lr = (double)*(const float *)call->in[IN_LR];
    double update = (double)*(const float *)call->in[IN_UPDATE];
    double beta1 = attr[KOLO_ADAM_BETA1].f, beta2 = attr[KOLO_ADAM_BETA2].f;
    kolo_simd_rows_job job = {
        .channels = rows->dim[1],
        .ids = call->in[IN_IDS],
        .x = call->in[IN_ROWS],
        .lr = (float)(lr * sqrt(1 - pow(beta2, update)) / (1 - pow(beta1, update))),
        .beta1 = (float)beta1,
        .beta2 = (float)beta2,
        .eps = (float)attr[KOLO_ADAM_EPS].f,
        .out = upon(call, 0, IN_W),
        .mean = upon(call, 1, IN_MEAN),
        .square = upon(call, 2, IN_SQUARE),
    };
    kolo_kernel_parallel(call->spec->threads, rows->dim[0], (*table)->adam_rows, &job);
}

KOLO_SIMD_KERNEL(embedding_bwd_rows, run_sum);
KOLO_SIMD_KERNEL(merge_rows, run_sum);
KOLO_SIMD_KERNEL(sgd_rows, run_sgd);
KOLO_SIMD_KERNEL(adam_rows, run_adam);

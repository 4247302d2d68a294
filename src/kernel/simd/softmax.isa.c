/* Loops of softmax. For an inner size of 1 the lanes of a vector are elements of one row, else they
 * are columns, of which a strip of a sample has up to STRIP.
 *
 * Where a strip has all columns, the sample is one run of memory, whose exponentials, most of the
 * work, then take whole vectors, whatever the number of columns. Narrow rows are transposed. */
#include "kernel/simd/softmax.h"

#include "base/integer.h"
#include "kernel/simd/lanes.h"
#include "kernel/simd/math.h"
#include "kernel/simd/square.h"

enum {
    VECTORS = 4, /* of columns, in registers */
    STRIP = VECTORS * VL,
    NARROW = 128,         /* elements of a row that is computed together with others, at most */
    ROWS = TOGETHER * VL, /* that are transposed */
    KEPT = 4096,          /* exponentials of a sample that are kept in the first cache, at most */
    AHEAD = 1024,         /* the fewest elements between what is read and what is fetched */
};

/* n elements of `p`, at most VL; the other lanes are `rest`. */
INLINE vf load_n(const void *p, int64_t i, int64_t n, vf rest, bool bf16) {
    return n == VL ? load_at(p, i, bf16) : join_lanes(load_part_at(p, i, n, bf16), rest, n);
}
INLINE void store_n(void *p, int64_t i, vf v, int64_t n, bool bf16) {
    if (n == VL) {
        store_at(p, i, v, bf16);
    } else {
        store_part_at(p, i, v, n, bf16);
    }
}

/* ---- rows ---- */

/* `body`(i, chain, n) for each vector of a row, n lanes from i on: two independent chains hide the
 * latency of additions. */
#define EACH_VECTOR(body) EACH_VECTOR_FROM(begin, body)
#define EACH_VECTOR_FROM(first, body)                \
    do {                                             \
        int64_t i = first;                           \
        for (; i + 2 * VL <= end; i += 2 * VL) {     \
            body(i, 0, VL);                          \
            body(i + VL, 1, VL);                     \
        }                                            \
        for (; i < end; i += VL) {                   \
            body(i, 0, kolo_min_i64(VL, end - (i))); \
        }                                            \
    } while (0)

INLINE void forward_row(const kolo_simd_softmax_job *job, int64_t item, bool bf16) {
    const int64_t begin = item * job->count, end = begin + job->count;
    const int64_t later = kolo_max_i64(AHEAD, job->count);
    const vf lowest = splat(-__builtin_inff());
    vf most[2] = {lowest, lowest}, sum[2] = {splat(0), splat(0)};
#define MOST(i, j, n) most[j] = larger(load_n(job->a, i, n, lowest, bf16), most[j])
    EACH_VECTOR(MOST);
    const vf largest = splat(largest_lane(larger(most[1], most[0])));
    const bool keeps = !job->log && !bf16; /* the exponentials, at their places */
#define EXPONENTIAL(i, j, n)                                                    \
    do {                                                                        \
        __builtin_prefetch(ahead(job->a, (i) + later, bf16), 0, 2);             \
        vf e = exponential_to_88(load_n(job->a, i, n, lowest, bf16) - largest); \
        sum[j] += e;                                                            \
        if (keeps) {                                                            \
            store_n(job->out, i, e, n, bf16);                                   \
        } else {                                                                \
            __builtin_prefetch(ahead(job->out, i, bf16), 1);                    \
        }                                                                       \
    } while (0)
    int64_t done = begin;
    for (; done + TOGETHER * VL <= end; done += TOGETHER * VL) {
        vf e[TOGETHER];
        for (int k = 0; k < TOGETHER; k++) {
            const int64_t i = done + k * VL;
            __builtin_prefetch(ahead(job->a, i + later, bf16), 0, 2);
            if (!keeps) __builtin_prefetch(ahead(job->out, i, bf16), 1);
            e[k] = load_at(job->a, i, bf16) - largest;
        }
        exponentials_to_88(e);
        for (int k = 0; k < TOGETHER; k++) {
            sum[k % 2] += e[k];
            if (keeps) store_at(job->out, done + k * VL, e[k], bf16);
        }
    }
    EACH_VECTOR_FROM(done, EXPONENTIAL);
    const vf total = splat(sum_lanes(sum[0] + sum[1]));
    const vf shift = job->log ? largest + logarithm(total) : largest, by = 1.0f / total;
#define SCALED(i, j, n) store_n(job->out, i, load_n(job->out, i, n, by, bf16) * by, n, bf16)
#define RESULT(i, j, n)                                                          \
    do {                                                                         \
        vf x = load_n(job->a, i, n, lowest, bf16) - shift;                       \
        store_n(job->out, i, job->log ? x : exponential_to_88(x) * by, n, bf16); \
    } while (0)
    if (keeps) {
        EACH_VECTOR(SCALED);
    } else {
        EACH_VECTOR(RESULT);
    }
}

/* dx from y, dy and the sum over the row or column. */
INLINE vf slope(const kolo_simd_softmax_job *job, vf dy, vf y, vf total) {
    return job->log ? dy - exponential(y) * total : y * (dy - total);
}

INLINE void backward_row(const kolo_simd_softmax_job *job, int64_t item, bool bf16) {
    const int64_t begin = item * job->count, end = begin + job->count;
    const vf zero = splat(0);
    vf sum[2] = {zero, zero};
#define SUM(i, j, n)                                                     \
    do {                                                                 \
        vf dy = load_n(job->a, i, n, zero, bf16);                        \
        sum[j] += job->log ? dy : dy * load_n(job->y, i, n, zero, bf16); \
    } while (0)
    EACH_VECTOR(SUM);
    const vf total = splat(sum_lanes(sum[0] + sum[1]));
#define SLOPE(i, j, n)                                                                  \
    do {                                                                                \
        vf dy = load_n(job->a, i, n, zero, bf16), y = load_n(job->y, i, n, zero, bf16); \
        store_n(job->out, i, slope(job, dy, y, total), n, bf16);                        \
    } while (0)
    EACH_VECTOR(SLOPE);
}

/* ---- gradients of VL narrow rows ----
 *
 * They have the bits of rows by themselves, so that they do not depend on which rows are together.
 */

/* row_of[i] is the row of element i of VL rows. */
static void number_rows(int64_t count, uint8_t *row_of) {
    for (int r = 0; r < VL; r++) memset(row_of + r * count, r, (size_t)count);
}

/* Lane r joins row r, in the order of EACH_VECTOR. */
INLINE vf join_rows(kolo_join *join, vf none, const float *x, int64_t count) {
    const int64_t rest = count % VL, whole = count - rest;
    vf each[VL];
    for (int r = 0; r < VL; r++, x += count) {
        vf all[2] = {none, none};
        int64_t i = 0;
        for (; i + 2 * VL <= whole; i += 2 * VL) {
            for (int k = 0; k < 2; k++) all[k] = join(load(x + i + k * VL), all[k]);
        }
        if (i < whole) all[0] = join(load(x + i), all[0]);
        if (rest > 0) {
            all[0] = join(join_lanes(load_part(x + whole, rest), none, rest), all[0]);
        }
        each[r] = join(all[1], all[0]);
    }
    return joined_lanes(join, each);
}

INLINE void backward_rows(const kolo_simd_softmax_job *job, int64_t first, const uint8_t *row_of,
                          bool bf16, bool past) {
    const int64_t size = VL * job->count, begin = first * job->count;
    float kept[VL * NARROW];
    for (int64_t i = 0; i < size; i += VL) {
        vf dy = load_at(job->a, begin + i, bf16);
        store(kept + i, job->log ? dy : dy * load_at(job->y, begin + i, bf16));
    }
    const vf total = join_rows(plus, splat(0), kept, job->count);
    for (int64_t i = 0; i < size; i += VL) {
        vf dy = load_at(job->a, begin + i, bf16), y = load_at(job->y, begin + i, bf16);
        vf dx = slope(job, dy, y, numbered_lanes(total, row_of + i));
        put_at(job->out, begin + i, dx, bf16, past);
    }
}

/* ---- narrow rows ----
 *
 * ROWS of them are transposed: column k is element k of each, so that maxima, sums and exponentials
 * take whole vectors. Fewer rows are padded, with the same bits. */

/* The column that a square of columns begins with: the last one overlaps others. */
INLINE int64_t square_at(int64_t c, int64_t count) {
    return kolo_max_i64(0, kolo_min_i64(c, count - SQUARE));
}

/* Column k is element k of each row; and the largest elements. */
INLINE void to_columns(const float *rows, int64_t count, float *columns, float *largest) {
    for (int r = 0; r < ROWS; r += SQUARE) {
        v8f most = load8(largest + r);
        for (int64_t c = 0; c < count; c += SQUARE) {
            const int64_t at = square_at(c, count);
            v8f square[SQUARE];
            load_square(rows + r * count + at, count, square);
            transpose_square(square);
            for (int k = 0; k < SQUARE && k < count; k++) most = larger8(square[k], most);
            store_square(square, columns + at * ROWS + r, ROWS);
        }
        store8(largest + r, most);
    }
}

/* The rows of columns e (e by; log: e - by). */
INLINE void to_rows(const float *columns, const float *by, bool log, int64_t count, float *rows) {
    for (int r = 0; r < ROWS; r += SQUARE) {
        const v8f of_row = load8(by + r);
        for (int64_t c = 0; c < count; c += SQUARE) {
            const int64_t at = square_at(c, count);
            v8f square[SQUARE];
            load_square(columns + at * ROWS + r, ROWS, square);
            for (int k = 0; k < SQUARE; k++) {
                square[k] = log ? square[k] - of_row : square[k] * of_row;
            }
            transpose_square(square);
            store_square(square, rows + r * count + at, count);
        }
    }
}

/* n rows, at most ROWS. */
INLINE void forward_rows(const kolo_simd_softmax_job *job, int64_t first, int64_t n, bool bf16,
                         bool past) {
    const int64_t count = job->count, begin = first * count, size = n * count;
    const int64_t later = begin + kolo_max_i64(AHEAD, size);
    const bool whole = !bf16 && n == ROWS && count >= SQUARE; /* a square fits the rows */
    const float *x = (const float *)job->a + begin;
    float row[ROWS * NARROW + SQUARE], column[ROWS * NARROW], largest[ROWS], by[ROWS];
    if (!whole) {
        read_numbers(job->a, begin, size, row, bf16);
        memset(row + size, 0, sizeof(float) * (size_t)(ROWS * count + SQUARE - size));
        x = row;
    }
    for (int r = 0; r < ROWS; r++) largest[r] = -__builtin_inff();
    to_columns(x, count, column, largest);
    vf most[TOGETHER], total[TOGETHER] = {{0}};
    for (int j = 0; j < TOGETHER; j++) most[j] = load(largest + j * VL);
    for (int64_t k = 0; k < count * ROWS; k += ROWS) {
        vf e[TOGETHER];
        for (int j = 0; j < TOGETHER; j++) {
            __builtin_prefetch(ahead(job->a, later + k + j * VL, bf16), 0, 2);
            e[j] = load(column + k + j * VL) - most[j];
        }
        exponentials_to_88(e);
        for (int j = 0; j < TOGETHER; j++) {
            if (!job->log) store(column + k + j * VL, e[j]);
            total[j] += e[j];
        }
    }
    for (int j = 0; j < TOGETHER; j++) {
        store(by + j * VL, job->log ? most[j] + logarithm(total[j]) : 1.0f / total[j]);
    }
    to_rows(column, by, job->log, count, whole && !past ? (float *)job->out + begin : row);
    if (past) {
        for (int64_t i = 0; i < size; i += VL) stream((float *)job->out + begin + i, load(row + i));
    } else if (!whole) {
        write_numbers(row, size, job->out, begin, bf16);
    }
}

/* ---- columns ---- */

/* `columns` columns of `count` rows, `step` elements apart, from element `at` on. */
typedef struct strip {
    int64_t at, columns, step;
    int64_t next; /* from here to the next strip */
} strip;

INLINE strip strip_of(const kolo_simd_softmax_job *job, int64_t item) {
    const int64_t strips = (job->inner + STRIP - 1) / STRIP, first = item % strips * STRIP;
    const int64_t sample = job->count * job->inner, rest = job->inner - first;
    return (strip){.at = item / strips * sample + first,
                   .columns = kolo_min_i64(STRIP, rest),
                   .step = job->inner,
                   .next = rest > STRIP ? STRIP : sample - first};
}

/* The lanes of vector v. */
INLINE int64_t lanes_of(const strip *s, int v, int vectors) {
    return v < vectors - 1 ? VL : s->columns - v * VL;
}

/* to[i] is that of column i % columns, for every vector that starts at a column. */
INLINE void repeat_columns(const strip *s, const vf *of_column, int vectors, float *to) {
    for (int v = 0; v < vectors; v++) store(to + v * VL, of_column[v]);
    for (int64_t i = s->columns; i < s->columns + VL; i++) to[i] = to[i - s->columns];
}

/* The exponentials of a strip of all columns, in f32. */
INLINE void flat_exponentials(const kolo_simd_softmax_job *job, const strip *s, const float *most,
                              float *to) {
    const int64_t size = job->count * s->columns, turn = VL % s->columns;
    const float *x = (const float *)job->a + s->at;
    int64_t column = 0, i = 0;
    for (; i + TOGETHER * VL <= size; i += TOGETHER * VL) {
        vf e[TOGETHER];
        for (int k = 0; k < TOGETHER; k++) {
            __builtin_prefetch(x + size + i + k * VL, 0, 2);
            e[k] = load(x + i + k * VL) - load(most + column);
            column += turn;
            if (column >= s->columns) column -= s->columns;
        }
        exponentials_to_88(e);
        for (int k = 0; k < TOGETHER; k++) store(to + i + k * VL, e[k]);
    }
    for (; i < size; i += VL) {
        const int64_t n = kolo_min_i64(VL, size - i);
        __builtin_prefetch(x + size + i, 0, 2);
        const vf e = exponential_to_88(load_n(x, i, n, splat(0), false) - load(most + column));
        store_n(to, i, e, n, false);
        column += turn;
        if (column >= s->columns) column -= s->columns;
    }
}

/* The result from the exponentials; with `past` these are elsewhere, and whole vectors. */
INLINE void flat_products(const kolo_simd_softmax_job *job, const strip *s, const float *by,
                          const float *from, bool past) {
    const int64_t size = job->count * s->columns, turn = VL % s->columns;
    float *y = (float *)job->out + s->at;
    int64_t column = 0;
    for (int64_t i = 0; i < size; i += VL) {
        const int64_t n = past ? VL : kolo_min_i64(VL, size - i);
        const vf e = load_n(from, i, n, splat(0), false) * load(by + column);
        if (past) {
            stream(y + i, e);
        } else {
            store_n(y, i, e, n, false);
        }
        column += turn;
        if (column >= s->columns) column -= s->columns;
    }
}

/* `body`(i, v, n) for the n lanes of each vector v of each row. */
#define EACH_COLUMN(body)                                                      \
    do {                                                                       \
        for (int64_t k = 0; k < job->count; k++) {                             \
            for (int v = 0; v < vectors; v++) {                                \
                body(s.at + k * s.step + v * VL, v, lanes_of(&s, v, vectors)); \
            }                                                                  \
        }                                                                      \
    } while (0)

INLINE void forward_strip(const kolo_simd_softmax_job *job, strip s, int vectors, bool bf16) {
    const vf lowest = splat(-__builtin_inff());
    const bool keeps = !job->log && !bf16;
    vf largest[VECTORS], total[VECTORS], shift[VECTORS], by[VECTORS];
    float pattern[STRIP + VL];
    for (int v = 0; v < vectors; v++) {
        largest[v] = lowest;
        total[v] = splat(0);
    }
#define MOST_OF_COLUMN(i, v, n) largest[v] = larger(load_n(job->a, i, n, lowest, bf16), largest[v])
    EACH_COLUMN(MOST_OF_COLUMN);
    if (keeps && s.columns == s.step) {
        float kept[KEPT], *e = job->past ? kept : (float *)job->out + s.at;
        repeat_columns(&s, largest, vectors, pattern);
        flat_exponentials(job, &s, pattern, e);
#define ADDED(i, v, n) total[v] += load_n(e, (i)-s.at, n, lowest, false)
        EACH_COLUMN(ADDED);
        for (int v = 0; v < vectors; v++) by[v] = 1.0f / total[v];
        repeat_columns(&s, by, vectors, pattern);
        if (job->past) {
            flat_products(job, &s, pattern, kept, true);
        } else {
            flat_products(job, &s, pattern, e, false);
        }
        return;
    }
#define EXPONENTIAL_OF_COLUMN(i, v, n)                                             \
    do {                                                                           \
        __builtin_prefetch(ahead(job->a, (i) + s.next, bf16), 0, 2);               \
        vf e = exponential_to_88(load_n(job->a, i, n, lowest, bf16) - largest[v]); \
        total[v] += e;                                                             \
        if (keeps) store_n(job->out, i, e, n, bf16);                               \
    } while (0)
    EACH_COLUMN(EXPONENTIAL_OF_COLUMN);
    for (int v = 0; v < vectors; v++) {
        shift[v] = job->log ? largest[v] + logarithm(total[v]) : largest[v];
        by[v] = 1.0f / total[v];
    }
#define SCALED_COLUMN(i, v, n) \
    store_n(job->out, i, load_n(job->out, i, n, lowest, bf16) * by[v], n, bf16)
#define RESULT_OF_COLUMN(i, v, n)                                                   \
    do {                                                                            \
        vf x = load_n(job->a, i, n, lowest, bf16) - shift[v];                       \
        store_n(job->out, i, job->log ? x : exponential_to_88(x) * by[v], n, bf16); \
    } while (0)
    if (keeps) {
        EACH_COLUMN(SCALED_COLUMN);
    } else {
        EACH_COLUMN(RESULT_OF_COLUMN);
    }
}

INLINE void backward_strip(const kolo_simd_softmax_job *job, strip s, int vectors, bool bf16) {
    const vf zero = splat(0);
    vf total[VECTORS];
    for (int v = 0; v < vectors; v++) total[v] = zero;
#define SUM_OF_COLUMN(i, v, n)                                             \
    do {                                                                   \
        vf dy = load_n(job->a, i, n, zero, bf16);                          \
        total[v] += job->log ? dy : dy * load_n(job->y, i, n, zero, bf16); \
    } while (0)
    EACH_COLUMN(SUM_OF_COLUMN);
#define SLOPE_OF_COLUMN(i, v, n)                                                        \
    do {                                                                                \
        vf dy = load_n(job->a, i, n, zero, bf16), y = load_n(job->y, i, n, zero, bf16); \
        store_n(job->out, i, slope(job, dy, y, total[v]), n, bf16);                     \
    } while (0)
    EACH_COLUMN(SLOPE_OF_COLUMN);
}

/* Items: rows, or strips of columns. */
#define LOOP(name)                                                                           \
    INLINE void name##_item(const kolo_simd_softmax_job *job, int64_t item, bool bf16) {     \
        if (job->inner == 1) {                                                               \
            name##_row(job, item, bf16);                                                     \
            return;                                                                          \
        }                                                                                    \
        const strip s = strip_of(job, item);                                                 \
        if (s.columns > 3 * VL) {                                                            \
            name##_strip(job, s, 4, bf16);                                                   \
        } else if (s.columns > 2 * VL) {                                                     \
            name##_strip(job, s, 3, bf16);                                                   \
        } else if (s.columns > VL) {                                                         \
            name##_strip(job, s, 2, bf16);                                                   \
        } else {                                                                             \
            name##_strip(job, s, 1, bf16);                                                   \
        }                                                                                    \
    }                                                                                        \
    static void name##_single(const kolo_simd_softmax_job *job, int64_t item, int64_t end) { \
        for (; item < end; item++) {                                                         \
            if (job->bf16) {                                                                 \
                name##_item(job, item, true);                                                \
            } else {                                                                         \
                name##_item(job, item, false);                                               \
            }                                                                                \
        }                                                                                    \
    }
LOOP(forward)
LOOP(backward)

/* Rows are together from multiples of ROWS, or VL, on, where results that are written past the
 * cache are aligned. */
static void forward_narrow(const kolo_simd_softmax_job *job, int64_t begin, int64_t end) {
    for (int64_t n; begin < end; begin += n) {
        n = kolo_min_i64(end - begin, ROWS - begin % ROWS);
        if (job->bf16) {
            forward_rows(job, begin, n, true, false);
        } else if (job->past && n == ROWS) {
            forward_rows(job, begin, n, false, true);
        } else {
            forward_rows(job, begin, n, false, false);
        }
    }
}
static void backward_narrow(const kolo_simd_softmax_job *job, int64_t begin, int64_t end) {
    const int64_t first = kolo_min_i64(end, (begin + VL - 1) / VL * VL);
    int64_t item = first;
    uint8_t row_of[VL * NARROW];
    number_rows(job->count, row_of);
    backward_single(job, begin, first);
    for (; item + VL <= end; item += VL) {
        if (job->bf16) {
            backward_rows(job, item, row_of, true, false);
        } else if (job->past) {
            backward_rows(job, item, row_of, false, true);
        } else {
            backward_rows(job, item, row_of, false, false);
        }
    }
    backward_single(job, item, end);
}

static void forward(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_softmax_job *job = arg;
    if (job->inner == 1 && job->count <= NARROW) {
        forward_narrow(job, begin, end);
    } else {
        forward_single(job, begin, end);
    }
    if (job->past) stream_end();
}
static void backward(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_softmax_job *job = arg;
    if (job->inner == 1 && job->count <= NARROW) {
        backward_narrow(job, begin, end);
    } else {
        backward_single(job, begin, end);
    }
    if (job->past) stream_end();
}

const kolo_simd_softmax_table KOLO_ISA_SYMBOL(kolo_simd_softmax) = {
    .strip = STRIP, .narrow = NARROW, .kept = KEPT, .forward = forward, .backward = backward};

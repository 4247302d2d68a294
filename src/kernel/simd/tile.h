#pragma once
/* Small matrix products, for kernels that process the result further (attention) or multiply by
 * the same matrix many times (LSTM). b is packed once; a is read in place. Large isolated
 * products use oneDNN, or loops of their own with both operands packed (linear_weights.isa.c). */

#include "base/integer.h"
#include "kernel/simd/square.h"

/* Register blocking: columns of a tile and its maximum number of rows. Two accumulators per row,
 * two vectors of b and one of a fill the 16 registers of most instruction sets and the 32 of
 * AVX-512. */
enum { TILE = 2 * VL, TILE_ROWS = VL == 16 ? 14 : 6 };

/* The microkernel: c [rows][vectors * VL] (+)= a b, `rows` and `vectors`, 1 or 2, compile-time
 * constants after inlining. a(i, k) is a[i * row + k * step], b is [inner][TILE], rows of c are
 * `pitch` apart. */
INLINE void tile(int rows, int vectors, int64_t inner, const float *a, int64_t row, int64_t step,
                 const float *b, float *c, int64_t pitch, bool add) {
    vf sum[TILE_ROWS][2];
    for (int i = 0; i < rows; i++) {
        for (int v = 0; v < vectors; v++) sum[i][v] = add ? load(c + i * pitch + v * VL) : splat(0);
    }
    for (int64_t k = 0; k < inner; k++, a += step, b += TILE) {
        vf left = load(b), right = vectors > 1 ? load(b + VL) : left;
        for (int i = 0; i < rows; i++) {
            vf x = splat(a[i * row]);
            sum[i][0] = mul_add(x, left, sum[i][0]);
            if (vectors > 1) sum[i][1] = mul_add(x, right, sum[i][1]);
        }
    }
    for (int i = 0; i < rows; i++) {
        for (int v = 0; v < vectors; v++) store(c + i * pitch + v * VL, sum[i][v]);
    }
}

/* The address sanitizer would check each access of the innermost loop, which takes 60 times as
 * long. In its builds the operands of a tile are checked before the loop. */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#define UNCHECKED static __attribute__((noinline, no_sanitize("address", "undefined")))

static inline void check(const float *p, int64_t count) {
    const volatile char *poisoned = __asan_region_is_poisoned((void *)p, sizeof(float) * count);
    if (poisoned) (void)*poisoned; /* is reported */
}
#else
#define UNCHECKED INLINE

INLINE void check(const float *p, int64_t count) {}
#endif

/* Matrices of `width` columns that the products after this one read or write: each tile prefetches
 * some of their rows, row by row of all. */
enum { FETCHED = 8, FETCHED_LINES = 32 };
typedef struct fetched {
    const float *from[FETCHED];
    int64_t stride[FETCHED], rows[FETCHED];
    int64_t width, row, end; /* from row `row` on, */
    int n, next;             /* of matrix `next` */
} fetched;

INLINE void fetch_rows(fetched *f) {
    for (int64_t lines = 0; lines < FETCHED_LINES && f->row < f->end;
         lines += (f->width + 15) / 16) {
        const float *row = f->from[f->next] + f->row * f->stride[f->next];
        for (int64_t c = 0; c < f->width && f->row < f->rows[f->next]; c += 16) {
            __builtin_prefetch(row + c, 0, 2);
        }
        f->next = (f->next + 1) % f->n;
        f->row += f->next == 0;
    }
}

/* A matrix product c (+)= a b with packed b: panels of TILE columns, `panel` floats apart, each
 * [inner][TILE]. */
typedef struct product {
    int64_t rows, inner;
    const float *a;
    int64_t row, step; /* strides of a, as in tile */
    const float *b;
    int64_t panel;
    float *c;
    int64_t pitch;
    bool add;
    fetched *next; /* NULL: none */
} product;

#define TILE_OF(n)                                                              \
    case n:                                                                     \
        tile(n, vectors, p->inner, a, p->row, p->step, b, c, p->pitch, p->add); \
        break;

INLINE void multiply_tile(int64_t rows, int vectors, const product *p, const float *a,
                          const float *b, float *c) {
    switch (rows) {
        TILE_OF(1)
        TILE_OF(2)
        TILE_OF(3)
        TILE_OF(4)
        TILE_OF(5)
        TILE_OF(6)
#if KOLO_VECTOR_BYTES == 64
        TILE_OF(7)
        TILE_OF(8)
        TILE_OF(9)
        TILE_OF(10)
        TILE_OF(11)
        TILE_OF(12)
        TILE_OF(13)
        TILE_OF(14)
#endif
    }
}

/* Computes columns [begin * TILE, columns) of the product, writing c in whole vectors. The rows are
 * divided into tiles of nearly equal height, since low tiles do not hide the latency of their
 * accumulators. */
static inline void multiply(const product *p, int64_t begin, int64_t columns) {
    int64_t tiles = (p->rows + TILE_ROWS - 1) / TILE_ROWS;
    for (int64_t j = begin; j * TILE < columns; j++) {
        const float *b = p->b + j * p->panel;
        for (int64_t n = 0; n < tiles; n++) {
            int64_t i = p->rows * n / tiles, rows = p->rows * (n + 1) / tiles - i;
            const float *a = p->a + i * p->row;
            float *c = p->c + i * p->pitch + j * TILE;
            if (p->next) fetch_rows(p->next);
            if (columns - j * TILE > VL) {
                multiply_tile(rows, 2, p, a, b, c);
            } else {
                multiply_tile(rows, 1, p, a, b, c);
            }
        }
    }
}

static inline int64_t panels_of(int64_t columns) { return (columns + TILE - 1) / TILE; }

/* Packs rows [0, inner) of `columns` floats, `stride` apart, into panels [inner][TILE]; panel j
 * starts at out + j * panel. Missing columns are zero. */
static inline void pack(const float *from, int64_t inner, int64_t columns, int64_t stride,
                        float *out, int64_t panel) {
    for (int64_t j = 0; j < panels_of(columns); j++) {
        int64_t here = kolo_min_i64(TILE, columns - j * TILE);
        const float *source = from + j * TILE;
        float *to = out + j * panel;
        for (int64_t k = 0; k < inner; k++, source += stride, to += TILE) {
            if (here == TILE) {
                store(to, load(source));
                store(to + VL, load(source + VL));
            } else {
                for (int64_t i = 0; i < TILE; i++) to[i] = i < here ? source[i] : 0;
            }
        }
    }
}

/* As pack, for the transpose: b(k, i) = from[i * stride + k], so `columns` counts the rows of
 * `from` and `inner` their length. */
static inline void pack_transposed(const float *from, int64_t inner, int64_t columns,
                                   int64_t stride, float *out, int64_t panel) {
    for (int64_t j = 0; j < panels_of(columns); j++) {
        const float *source = from + j * TILE * stride;
        int64_t here = kolo_min_i64(TILE, columns - j * TILE);
        int64_t whole = here == TILE ? inner / SQUARE * SQUARE : 0;
        for (int64_t i = 0; i < TILE && whole > 0; i += SQUARE) {
            for (int64_t k = 0; k < whole; k += SQUARE) {
                v8f square[SQUARE];
                load_square(source + i * stride + k, stride, square);
                transpose_square(square);
                store_square(square, out + j * panel + k * TILE + i, TILE);
            }
        }
        float *to = out + j * panel + whole * TILE;
        for (int64_t k = whole; k < inner; k++, to += TILE) {
            for (int64_t i = 0; i < here; i++) to[i] = source[i * stride + k];
            for (int64_t i = here; i < TILE; i++) to[i] = 0;
        }
    }
}

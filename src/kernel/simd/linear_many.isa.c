/* Products of many rows with the weights of a linear layer, in blocks: Goto, van de Geijn, "Anatomy
 * of high-performance matrix multiplication", 2008. A block of b is packed in panels of TILE
 * columns, for all parts, and stays in L2. Strips of a few tiles of rows pass it: each is copied,
 * so that its rows do not share cache sets, and multiplied by one panel after the other. Each row
 * of a is thus read once, and each tile of the result is completed, with ReLU or GELU, while it is
 * in L1. During its products a strip prefetches the next one.
 *
 * The order of each sum is fixed, whatever the partition: the bias, then the rows of b. */
#include "kernel/simd/linear_many.h"

#include "kernel/simd/gelu.h"
#include "kernel/simd/tile.h"

enum {
    STRIP = (VL == 16 ? 4 : 8) * TILE_ROWS,
    LINE = 16, /* floats per cache line */
};

static int64_t panel_floats(const kolo_simd_many_job *job) { return (1 + job->depth) * TILE; }

/* ---- packing ---- */

/* Packs a panel: the bias, or zeros, then rows of b. Missing columns are zero. */
static void pack_panel(const kolo_simd_many_job *job, int64_t column, int64_t columns, float *to) {
    const bool bias = job->bias && job->first == 0;
    for (int64_t c = 0; c < TILE; c++) to[c] = bias && c < columns ? job->bias[column + c] : 0;
    to += TILE;
    if (job->transposed) {
        pack_transposed(job->w + column * job->inner + job->first, job->depth, columns, job->inner,
                        to, 0);
    } else {
        pack(job->w + job->first * job->outer + column, job->depth, columns, job->outer, to, 0);
    }
}

static void pack_block(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_many_job *job = arg;
    for (int64_t j = begin; j < end; j++) {
        const int64_t c = j * TILE, columns = kolo_min_i64(TILE, job->columns - c);
        pack_panel(job, job->column + c, columns, job->packed + j * panel_floats(job));
    }
}

/* ---- a tile ---- */

/* What a tile prefetches: every `step` floats from `at` on, one line for each row of b, so that the
 * few lines that may be on their way at a time remain free for others. */
typedef struct upcoming {
    const float *at;
    int64_t step;
} upcoming;

/* c [rows][vectors * VL] = what is at `from` plus a b, `rows` and `vectors`, 1 or 2, compile-time
 * constants after inlining. Rows of a are `row` apart, of c `pitch`, at `from` `start`. */
UNCHECKED void add_rows(int rows, int vectors, int64_t depth, const float *a, int64_t row,
                        const float *b, const float *from, int64_t start, float *c, int64_t pitch,
                        upcoming next) {
    vf sum[TILE_ROWS][2];
    for (int i = 0; i < rows; i++) {
        for (int v = 0; v < vectors; v++) sum[i][v] = load(from + i * start + v * VL);
    }
    for (int64_t k = 0; k < depth; k++, a++, b += TILE, next.at += next.step) {
        __builtin_prefetch(next.at);
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

#define ADD_ROWS(n)                                                                          \
    case n:                                                                                  \
        add_rows(n, vectors, job->depth, a, row, panel + TILE, from, start, c, pitch, next); \
        break;

/* c = a b, plus the bias in the first block and c in the others. */
INLINE void add_vectors(const kolo_simd_many_job *job, int64_t rows, int vectors, const float *a,
                        const float *panel, float *c, int64_t pitch, upcoming next) {
    const bool begins = job->first == 0;
    const int64_t row = job->depth + LINE, start = begins ? 0 : pitch;
    const float *from = begins ? panel : c;
    check(panel, (1 + job->depth) * TILE);
    for (int64_t i = 0; i < rows; i++) {
        check(a + i * row, job->depth);
        check(c + i * pitch, vectors * VL);
    }
    switch (rows) {
        ADD_ROWS(1)
        ADD_ROWS(2)
        ADD_ROWS(3)
        ADD_ROWS(4)
        ADD_ROWS(5)
        ADD_ROWS(6)
#if KOLO_VECTOR_BYTES == 64
        ADD_ROWS(7)
        ADD_ROWS(8)
        ADD_ROWS(9)
        ADD_ROWS(10)
        ADD_ROWS(11)
        ADD_ROWS(12)
        ADD_ROWS(13)
        ADD_ROWS(14)
#endif
    }
}

/* A tile of the result. */
typedef struct place {
    int64_t rows, columns; /* at most a whole tile */
    float *out, *gelu;
} place;

/* ---- what follows ---- */

INLINE vf same(vf x, vf unused) { return x; }
INLINE vf relu(vf x, vf unused) { return positive(x); }

/* Applies a function to a tile of sums [rows][TILE]; rows of `to` are `pitch` apart. */
INLINE void map(vf (*function)(vf x, vf unused), const place *p, const float *sums, float *to,
                int64_t pitch, bool streams) {
    for (int64_t i = 0; i < p->rows; i++, sums += TILE, to += pitch) {
        int64_t c = 0;
        for (; c + VL <= p->columns; c += VL) {
            vf y = function(load(sums + c), splat(0));
            if (streams) {
                stream(to + c, y);
            } else {
                store(to + c, y);
            }
        }
        if (c == p->columns) continue;
        store_part(to + c, function(load(sums + c), splat(0)), p->columns - c);
    }
}

static void finish(const kolo_simd_many_job *job, const place *p, const float *sums) {
    const bool last = job->first + job->depth == job->inner;
    const int64_t pitch = job->outer;
    const kolo_simd_finish how = last ? job->finish : KOLO_SIMD_FINISH_NONE;
    if (how == KOLO_SIMD_FINISH_RELU) {
        map(relu, p, sums, p->out, pitch, false);
    } else if (how == KOLO_SIMD_FINISH_NONE) {
        map(same, p, sums, p->out, pitch, false);
    } else if (p->out != p->gelu && job->streams) {
        map(same, p, sums, p->out, pitch, true);
    } else if (p->out != p->gelu) {
        map(same, p, sums, p->out, pitch, false);
    }
    if (how == KOLO_SIMD_FINISH_GELU && job->streams) {
        map(gelu_erf, p, sums, p->gelu, pitch, true);
    } else if (how == KOLO_SIMD_FINISH_GELU) {
        map(gelu_erf, p, sums, p->gelu, pitch, false);
    } else if (how == KOLO_SIMD_FINISH_GELU_TANH && job->streams) {
        map(gelu_tanh, p, sums, p->gelu, pitch, true);
    } else if (how == KOLO_SIMD_FINISH_GELU_TANH) {
        map(gelu_tanh, p, sums, p->gelu, pitch, false);
    }
}

/* Sums go to the result, or where more than a whole tile of sums is to be done, to the stack. */
static void complete(const kolo_simd_many_job *job, const place *p, const float *a,
                     const float *panel, upcoming next) {
    if (p->columns == TILE && job->finish == KOLO_SIMD_FINISH_NONE) {
        add_vectors(job, p->rows, 2, a, panel, p->out, job->outer, next);
        return;
    }
    float sums[TILE_ROWS * TILE];
    for (int64_t i = 0; i < p->rows && job->first > 0; i++) {
        memcpy(sums + i * TILE, p->out + i * job->outer, sizeof(float) * (size_t)p->columns);
    }
    if (p->columns > VL) {
        add_vectors(job, p->rows, 2, a, panel, sums, TILE, next);
    } else {
        add_vectors(job, p->rows, 1, a, panel, sums, TILE, next);
    }
    finish(job, p, sums);
}

/* ---- strips ---- */

/* Rows of a, from row `first` on. */
typedef struct strip {
    int64_t first, rows;
    float *packed; /* [rows][depth + LINE] */
} strip;

static void copy_strip(const kolo_simd_many_job *job, const strip *s) {
    const float *from = job->a + s->first * job->inner + job->first;
    for (int64_t i = 0; i < s->rows; i++) {
        memcpy(s->packed + i * (job->depth + LINE), from + i * job->inner,
               sizeof(float) * (size_t)job->depth);
    }
}

/* Share `n` of `shares` of the rows behind a strip; of one of them where other columns lie between
 * them. */
static upcoming upcoming_of(const kolo_simd_many_job *job, const strip *s, int64_t n,
                            int64_t shares) {
    const float *rows = job->a + (s->first + s->rows) * job->inner;
    const int64_t floats = s->rows * job->depth, depth = job->depth;
    if (s->first + s->rows == job->rows) return (upcoming){.at = job->a};
    if (depth < job->inner) {
        return (upcoming){rows + s->rows * n / shares * job->inner + job->first, 1};
    }
    return (upcoming){rows + floats * n / shares,
                      kolo_min_i64(LINE, (floats / shares + depth - 1) / depth)};
}

static void multiply_strip(const kolo_simd_many_job *job, const strip *s) {
    const int64_t tiles = (s->rows + TILE_ROWS - 1) / TILE_ROWS, panels = panels_of(job->columns);
    copy_strip(job, s);
    for (int64_t j = 0; j < panels; j++) {
        for (int64_t t = 0; t < tiles; t++) {
            const int64_t i = s->rows * t / tiles;
            const int64_t at = (s->first + i) * job->outer + job->column + j * TILE;
            const place p = {
                .rows = s->rows * (t + 1) / tiles - i,
                .columns = kolo_min_i64(TILE, job->columns - j * TILE),
                .out = job->out + at,
                .gelu = job->gelu + at,
            };
            complete(job, &p, s->packed + i * (job->depth + LINE),
                     job->packed + j * panel_floats(job),
                     upcoming_of(job, s, j * tiles + t, panels * tiles));
        }
    }
}

/* Parallel over strips, of nearly equal height. */
static void multiply_block(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_many_job *job = arg;
    for (int64_t n = begin; n < end; n++) {
        const int64_t first = job->rows * n / job->strips;
        const strip s = {
            .first = first,
            .rows = job->rows * (n + 1) / job->strips - first,
            .packed = job->scratch + part * job->part_stride,
        };
        multiply_strip(job, &s);
    }
    if (job->streams) stream_end();
}

const kolo_simd_many_table KOLO_ISA_SYMBOL(kolo_simd_many) = {
    .pack = pack_block, .multiply = multiply_block, .strip = STRIP, .panel = TILE, .pad = LINE};

/* dw = dy^T x and db, the sum of dy's rows, in blocks: Goto, van de Geijn, "Anatomy of
 * high-performance matrix multiplication", 2008. DEPTH rows of x are packed in panels of TILE
 * columns, for all parts; each part packs the same rows of dy in panels of TILE_ROWS columns, a
 * group of them at a time. A panel of x stays in L1 while a group of dy, in L2, passes.
 *
 * Packing is limited by memory, so it reads whole rows and prefetches the ones ahead; the products
 * of a group prefetch the next group of dy. Panels are LINE floats longer than their contents:
 * otherwise they would start in the same cache set.
 *
 * The order of each sum is fixed, whatever the partition: the rows of a block, then the blocks. */
#include "kernel/simd/linear_weights.h"

#include "kernel/simd/tile.h"

enum {
    DEPTH = VL == 16 ? 192 : 256, /* rows of a block, of which a panel of x and one of dy fit L1 */
    GROUP = VL == 16 ? 16 : 32,   /* panels of dy that are packed at a time */
    LINE = 16,                    /* floats per cache line */
    AHEAD = 8,                    /* rows between packing and prefetching */
    LOADS = (TILE_ROWS + VL - 1) / VL,
    X_PANEL = DEPTH * TILE + LINE,
    DY_PANEL = DEPTH * TILE_ROWS + LINE,
};

/* Columns [0, columns) of a block of x into panels. */
static void pack_x(const float *from, int64_t stride, int64_t depth, int64_t columns, float *to) {
    for (int64_t k = 0; k < depth; k++, from += stride, to += TILE) {
        float *panel = to;
        int64_t c = 0;
        for (; c + TILE <= columns; c += TILE, panel += X_PANEL) {
            for (int i = 0; i < TILE; i += LINE) __builtin_prefetch(from + AHEAD * stride + c + i);
            store(panel, load(from + c));
            store(panel + VL, load(from + c + VL));
        }
        for (int i = 0; c < columns && i < TILE; i++) {
            panel[i] = c + i < columns ? from[c + i] : 0;
        }
    }
}

/* Parallel over panels. */
static void pack_block(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_weights_job *job = arg;
    int64_t first = begin * TILE, last = kolo_min_i64(end * TILE, job->columns);
    if (begin == end) return;
    pack_x(job->x + job->row * job->inner + job->column + first, job->inner, job->depth,
           last - first, job->packed + begin * X_PANEL);
}

/* Columns [0, columns) of a block of dy into panels, and their sums. */
static void pack_dy(const float *from, int64_t stride, int64_t depth, int64_t columns, float *to,
                    float *sums) {
    memset(sums, 0, sizeof(float) * GROUP * TILE_ROWS);
    for (int64_t k = 0; k < depth; k++, from += stride, to += TILE_ROWS) {
        float *panel = to;
        int64_t c = 0;
        for (; c < columns; c += LINE) __builtin_prefetch(from + AHEAD * stride + c);
        /* A vector reaches into the next row of the panel, which is written later. */
        for (c = 0; c + LOADS * VL <= columns; c += TILE_ROWS, panel += DY_PANEL) {
            for (int i = 0; i < LOADS; i++) store(panel + i * VL, load(from + c + i * VL));
        }
        for (; c < columns; c += TILE_ROWS, panel += DY_PANEL) {
            for (int i = 0; i < TILE_ROWS; i++) panel[i] = c + i < columns ? from[c + i] : 0;
        }
        for (c = 0; c + VL <= columns; c += VL) store(sums + c, load(sums + c) + load(from + c));
        for (; c < columns; c++) sums[c] += from[c];
    }
}

UNCHECKED void add_products(int64_t depth, const float *a, const float *b, float *c, int64_t pitch,
                            bool add) {
    vf sum[TILE_ROWS][2];
    for (int i = 0; i < TILE_ROWS; i++) {
        sum[i][0] = sum[i][1] = splat(0);
        for (int k = 0; k < TILE; k += LINE) __builtin_prefetch(c + i * pitch + k, 1);
    }
    for (int64_t k = 0; k < depth; k++, a += TILE_ROWS, b += TILE) {
        vf left = load(b), right = load(b + VL);
        for (int i = 0; i < TILE_ROWS; i++) {
            vf x = splat(a[i]);
            sum[i][0] = mul_add(x, left, sum[i][0]);
            sum[i][1] = mul_add(x, right, sum[i][1]);
        }
    }
    for (int i = 0; i < TILE_ROWS; i++, c += pitch) {
        store(c, add ? load(c) + sum[i][0] : sum[i][0]);
        store(c + VL, add ? load(c + VL) + sum[i][1] : sum[i][1]);
    }
}

/* c [TILE_ROWS][TILE] (+)= a b for packed panels; rows of c are `pitch` apart. */
INLINE void add_tile(int64_t depth, const float *a, const float *b, float *c, int64_t pitch,
                     bool add) {
    check(a, depth * TILE_ROWS);
    check(b, depth * TILE);
    for (int i = 0; i < TILE_ROWS; i++) check(c + i * pitch, TILE);
    add_products(depth, a, b, c, pitch, add);
}

/* The tile at (o, c), which may end beyond dw. */
static void part_tile(const kolo_simd_weights_job *job, int64_t o, int64_t c, const float *a,
                      const float *b) {
    float sums[TILE_ROWS * TILE];
    int64_t rows = kolo_min_i64(TILE_ROWS, job->outer - o);
    int64_t columns = kolo_min_i64(TILE, job->column + job->columns - c);
    add_tile(job->depth, a, b, sums, TILE, false);
    for (int64_t i = 0; i < rows; i++) {
        float *to = job->dw + (o + i) * job->inner + c;
        for (int64_t k = 0; k < columns; k++) {
            to[k] = (job->row > 0 ? to[k] : 0) + sums[i * TILE + k];
        }
    }
}

/* The columns of dy that are packed after a group. */
typedef struct upcoming {
    const float *dy;
    int64_t rows, columns;
} upcoming;

/* After the group of tile i of [begin, end): the next one of the block, or the first of the next
 * block. */
static upcoming upcoming_of(const kolo_simd_weights_job *job, int64_t i, int64_t begin,
                            int64_t end) {
    const bool inside = i + GROUP < end;
    const int64_t first = inside ? i + GROUP : begin, row = job->row + (inside ? 0 : job->depth);
    const int64_t last = kolo_min_i64(kolo_min_i64(first + GROUP, end) * TILE_ROWS, job->outer);
    if (row == job->rows) return (upcoming){.dy = job->dy};
    return (upcoming){
        .dy = job->dy + row * job->outer + first * TILE_ROWS,
        .rows = kolo_min_i64(job->rows - row, job->depth),
        .columns = last - first * TILE_ROWS,
    };
}

/* Prefetches share `n` of `shares`. */
INLINE void fetch_share(const kolo_simd_weights_job *job, const upcoming *next, int64_t n,
                        int64_t shares) {
    for (int64_t k = next->rows * n / shares; k < next->rows * (n + 1) / shares; k++) {
        const float *row = next->dy + k * job->outer;
        for (int64_t c = 0; c < next->columns; c += LINE) __builtin_prefetch(row + c, 0, 2);
    }
}

/* Rows [first, end) of dw, at most a group. */
static void multiply_group(const kolo_simd_weights_job *job, int64_t first, int64_t end,
                           const float *packed, const upcoming *next) {
    bool add = job->row > 0;
    const float *b = job->packed;
    const int64_t shares = panels_of(job->columns) * ((end - first + TILE_ROWS - 1) / TILE_ROWS);
    int64_t share = 0;
    for (int64_t c = 0; c < job->columns; c += TILE, b += X_PANEL) {
        const float *a = packed;
        for (int64_t o = first; o < end; o += TILE_ROWS, a += DY_PANEL) {
            fetch_share(job, next, share++, shares);
            if (o + TILE_ROWS > end || c + TILE > job->columns) {
                part_tile(job, o, job->column + c, a, b);
                continue;
            }
            float *dw = job->dw + o * job->inner + job->column + c;
            if (add) {
                add_tile(job->depth, a, b, dw, job->inner, true);
            } else {
                add_tile(job->depth, a, b, dw, job->inner, false);
            }
        }
    }
}

/* Parallel over tiles of TILE_ROWS rows of dw. */
static void multiply_x(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_weights_job *job = arg;
    float *sums = job->scratch + part * job->part_stride, *packed = sums + GROUP * TILE_ROWS;
    for (int64_t i = begin; i < end; i += GROUP) {
        int64_t o = i * TILE_ROWS;
        int64_t last = kolo_min_i64(kolo_min_i64(i + GROUP, end) * TILE_ROWS, job->outer);
        pack_dy(job->dy + job->row * job->outer + o, job->outer, job->depth, last - o, packed,
                sums);
        for (int64_t k = o; job->db && job->column == 0 && k < last; k++) {
            job->db[k] = (job->row > 0 ? job->db[k] : 0) + sums[k - o];
        }
        const upcoming next = upcoming_of(job, i, begin, end);
        multiply_group(job, o, last, packed, &next);
    }
}

const kolo_simd_weights_table KOLO_ISA_SYMBOL(kolo_simd_weights) = {
    .pack = pack_block,
    .multiply = multiply_x,
    .depth = DEPTH,
    .tile_rows = TILE_ROWS,
    .tile_columns = TILE,
    .packed_panel = X_PANEL,
    .scratch = GROUP * (TILE_ROWS + DY_PANEL),
};

/* Skinny matrix products: linear layers on few rows (a batch of images, not of tokens), whose
 * weights are much larger than the activations. The weights are streamed once, in place and in
 * order, while the rows stay in L1. Packing them, as GEMM does, would take as long as the
 * product.
 *
 *     forward    y[n][o]  = sum over k of x[n][k] w[o][k]
 *     bwd_data   dx[n][k] = sum over o of dy[n][o] w[o][k]
 *
 * The order of each sum is fixed, whatever the partition: in forward, a lane accumulates every
 * VL-th term and the lanes are added at the end; in backward, terms are added one by one. */
#include "kernel/simd/linear.h"

#include "base/integer.h"
#include "kernel/simd/math.h"

enum {
    ROWS = 4,                       /* of x, in a tile of the forward product, */
    LINES = 3,                      /* and of w */
    GROUP = 12,                     /* rows of w that share a pass over x */
    DEPTH = VL > 8 ? 256 : 32 * VL, /* columns of such a pass, in L1 */
    TERMS = VL == 16 ? 8 : 4,       /* rows of w that bwd_data adds at a time, */
    WIDTH = 3 * VL,                 /* and columns of them, in registers */
    LINE = 16,                      /* floats per cache line */
};

#define UNROLL _Pragma("GCC unroll 16")

/* Forces v into a register: GCC would reload the operand of each AVX-512 FMA from memory. */
#if KOLO_VECTOR_BYTES == 64
#define HOLD(v) __asm__("" : "+v"(v))
#else
#define HOLD(v) (void)(v)
#endif

/* The first n lanes, none where n is negative. */
INLINE vf get(const float *p, int64_t n) {
    return n >= VL ? load(p) : n > 0 ? load_part(p, n) : splat(0);
}

/* ---- forward ---- */

/* Packs x in blocks of DEPTH columns, [block][row][DEPTH], zero-padded. Parallel over blocks. */
static void pack_rows(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_linear_job *job = arg;
    int64_t rows = (job->rows + ROWS - 1) / ROWS * ROWS;
    for (int64_t block = begin; block < end; block++) {
        float *to = job->packed + block * rows * DEPTH;
        int64_t k = block * DEPTH, depth = kolo_min_i64(DEPTH, job->inner - k);
        memset(to, 0, sizeof(float) * (size_t)(rows * DEPTH));
        for (int64_t n = 0; n < job->rows; n++, to += DEPTH) {
            memcpy(to, job->x + n * job->inner + k, sizeof(float) * (size_t)depth);
        }
    }
}

/* sums[ROWS][LINES] += x w over `depth` columns, for rows of x that are DEPTH apart. The first
 * pass over the rows of w prefetches their next columns. */
INLINE void add_columns(const float *x, const float *const w[LINES], int64_t depth, bool fetch,
                        float *sums) {
    vf sum[ROWS][LINES], line[LINES];
    UNROLL for (int r = 0; r < ROWS; r++) {
        UNROLL for (int l = 0; l < LINES; l++) sum[r][l] = load(sums + (r * LINES + l) * VL);
    }
    int64_t k = 0;
    for (; k + VL <= depth; k += VL) {
        UNROLL for (int l = 0; l < LINES; l++) {
            line[l] = load(w[l] + k);
            if (fetch) __builtin_prefetch(w[l] + k + DEPTH);
        }
        UNROLL for (int r = 0; r < ROWS; r++) {
            vf row = load(x + r * DEPTH + k);
            HOLD(row);
            UNROLL for (int l = 0; l < LINES; l++) sum[r][l] = mul_add(row, line[l], sum[r][l]);
        }
    }
    if (k < depth) {
        UNROLL for (int l = 0; l < LINES; l++) line[l] = load_part(w[l] + k, depth - k);
        UNROLL for (int r = 0; r < ROWS; r++) {
            vf row = load(x + r * DEPTH + k);
            UNROLL for (int l = 0; l < LINES; l++) sum[r][l] = mul_add(row, line[l], sum[r][l]);
        }
    }
    UNROLL for (int r = 0; r < ROWS; r++) {
        UNROLL for (int l = 0; l < LINES; l++) store(sums + (r * LINES + l) * VL, sum[r][l]);
    }
}

/* Rows [first, end) of w, at most GROUP; sums: [tile of rows][tile of lines][ROWS][LINES][VL]. */
static void add_group(const kolo_simd_linear_job *job, int64_t first, int64_t end, float *sums) {
    const float *x = job->packed;
    for (int64_t k = 0; k < job->inner; k += DEPTH) {
        int64_t depth = kolo_min_i64(DEPTH, job->inner - k);
        float *sum = sums;
        for (int64_t n = 0; n < job->rows; n += ROWS, x += ROWS * DEPTH) {
            for (int64_t o = first; o < end; o += LINES, sum += ROWS * LINES * VL) {
                const float *w[LINES]; /* past the end: repeats the last row */
                for (int l = 0; l < LINES; l++) {
                    w[l] = job->w + kolo_min_i64(o + l, end - 1) * job->inner + k;
                }
                if (n == 0) {
                    add_columns(x, w, depth, true, sum);
                } else {
                    add_columns(x, w, depth, false, sum);
                }
            }
        }
    }
}

/* Computes y of rows [first, end) of w from the accumulators. */
static void write_group(const kolo_simd_linear_job *job, int64_t first, int64_t end,
                        const float *sum) {
    for (int64_t n = 0; n < job->rows; n += ROWS) {
        for (int64_t o = first; o < end; o += LINES) {
            for (int i = 0; i < ROWS * LINES; i++, sum += VL) {
                int64_t row = n + i / LINES, line = o + i % LINES;
                if (row >= job->rows || line >= end) continue;
                float y = sum_lanes(load(sum)) + (job->b ? job->b[line] : 0);
                job->out[row * job->outer + line] = job->relu ? positive_1(y) : y;
            }
        }
    }
}

/* Parallel over rows of w. */
static void forward(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_linear_job *job = arg;
    float *sums = job->scratch + part * job->part_stride;
    for (int64_t first = begin; first < end; first += GROUP) {
        int64_t last = kolo_min_i64(first + GROUP, end);
        memset(sums, 0, sizeof(float) * (size_t)job->part_stride);
        add_group(job, first, last, sums);
        write_group(job, first, last, sums);
    }
}

/* ---- bwd_data ---- */

/* Packs dy in tiles of TERMS columns, zero-padded: [tile][row][TERMS]. Items: tiles. */
static void pack_terms(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_linear_job *job = arg;
    for (int64_t tile = begin; tile < end; tile++) {
        float *to = job->packed + tile * job->rows * TERMS;
        int64_t here = kolo_min_i64(TERMS, job->outer - tile * TERMS);
        for (int64_t n = 0; n < job->rows; n++, to += TERMS) {
            const float *from = job->dy + n * job->outer + tile * TERMS;
            for (int64_t i = 0; i < TERMS; i++) to[i] = i < here ? from[i] : 0;
        }
    }
}

/* dx[all rows][WIDTH] += dy w for TERMS rows of w held in registers, of which `columns` remain.
 * Rows of dx are `pitch` apart. */
INLINE void add_terms(int64_t rows, const float *dy, const float *const w[TERMS], int64_t k,
                      int64_t columns, float *dx, int64_t pitch) {
    vf line[TERMS][3], sum[3];
    UNROLL for (int t = 0; t < TERMS; t++) {
        UNROLL for (int z = 0; z < 3; z++) line[t][z] = get(w[t] + k + z * VL, columns - z * VL);
    }
    for (int64_t n = 0; n < rows; n++, dy += TERMS, dx += pitch) {
        UNROLL for (int z = 0; z < 3; z++) sum[z] = load(dx + z * VL);
        UNROLL for (int t = 0; t < TERMS; t++) {
            vf scale = splat(dy[t]);
            UNROLL for (int z = 0; z < 3; z++) sum[z] = mul_add(scale, line[t][z], sum[z]);
        }
        UNROLL for (int z = 0; z < 3; z++) store(dx + z * VL, sum[z]);
    }
}

/* One strip of dx, [rows][job->strip]; prefetches the next columns of w. */
static void add_strip(const kolo_simd_linear_job *job, int64_t first, int64_t width, float *dx) {
    memset(dx, 0, sizeof(float) * (size_t)(job->rows * job->strip));
    for (int64_t o = 0; o < job->outer; o += TERMS) {
        const float *dy = job->packed + o * job->rows,
                    *w[TERMS]; /* past the last: repeats the last row */
        for (int t = 0; t < TERMS; t++) {
            w[t] = job->w + kolo_min_i64(o + t, job->outer - 1) * job->inner + first;
        }
        for (int64_t k = 0; k < width; k += WIDTH) {
            UNROLL for (int t = 0; t < TERMS; t++) {
                UNROLL for (int i = 0; i < WIDTH; i += LINE) {
                    __builtin_prefetch(w[t] + TERMS * job->inner + k + i);
                }
            }
            if (k + WIDTH <= width) {
                add_terms(job->rows, dy, w, k, WIDTH, dx + k, job->strip);
            } else {
                add_terms(job->rows, dy, w, k, width - k, dx + k, job->strip);
            }
        }
    }
}

/* Parallel over strips of columns. A strip is accumulated in a compact buffer and then copied: in
 * place, its rows could map to the same cache sets. */
static void bwd_data(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_linear_job *job = arg;
    float *dx = job->scratch + part * job->part_stride;
    for (int64_t strip = begin; strip < end; strip++) {
        int64_t first = strip * job->strip, width = kolo_min_i64(job->strip, job->inner - first);
        add_strip(job, first, width, dx);
        for (int64_t n = 0; n < job->rows; n++) {
            memcpy(job->out + n * job->inner + first, dx + n * job->strip,
                   sizeof(float) * (size_t)width);
        }
    }
}

const kolo_simd_linear_table KOLO_ISA_SYMBOL(kolo_simd_linear) = {
    .pack_rows = pack_rows,
    .forward = forward,
    .pack_terms = pack_terms,
    .bwd_data = bwd_data,
    .rows = ROWS,
    .depth = DEPTH,
    .sums = ROWS * GROUP * VL,
    .terms = TERMS,
    .width = WIDTH,
};

/* Skinny matrix products: linear layers on few rows (a batch of images, not of tokens), whose
 * weights are much larger than the activations. The weights are streamed once, in order, while the
 * rows stay in L1. Packing all of them in panels, as GEMM does, would take as long as the product.
 *
 *     forward    y[n][o]  = sum over k of x[n][k] w[o][k]
 *     bwd_data   dx[n][k] = sum over o of dy[n][o] w[o][k]
 *
 * The order of each sum is fixed, whatever the partition: in forward, a lane accumulates every
 * VL-th term and the lanes are added at the end; in backward, terms are added one by one. */
#include "kernel/simd/linear.h"

#include "base/integer.h"
#include "kernel/simd/lanes.h"
#include "kernel/simd/math.h"

enum {
    ROWS = VL == 16 ? 8 : 4,        /* of x, in a tile of the forward product, */
    LINES = 3,                      /* and of w */
    GROUP = 12,                     /* rows of w that share a pass over x */
    DEPTH = VL > 8 ? 256 : 32 * VL, /* columns of such a pass, in L1 */
    LINE = 16,                      /* floats per cache line */
    PITCH = DEPTH + LINE,           /* between packed rows: not in the same cache set */
    TERMS = VL == 16 ? 8 : 4,       /* rows of w that bwd_data adds at a time, */
    WIDTH = 3 * VL,                 /* and columns of them, in registers */
};

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

/* Packs x in blocks of DEPTH columns, [block][row][PITCH], zero-padded. Parallel over blocks. */
static void pack_rows(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_linear_job *job = arg;
    int64_t rows = (job->rows + ROWS - 1) / ROWS * ROWS;
    for (int64_t block = begin; block < end; block++) {
        float *to = job->packed + block * rows * PITCH;
        int64_t k = block * DEPTH, depth = kolo_min_i64(DEPTH, job->inner - k);
        memset(to, 0, sizeof(float) * (size_t)(rows * PITCH));
        for (int64_t n = 0; n < job->rows; n++, to += PITCH) {
            memcpy(to, job->x + n * job->inner + k, sizeof(float) * (size_t)depth);
        }
    }
}

/* sums[ROWS][LINES] += x w over `depth` columns of packed rows. */
INLINE void add_columns(const float *x, const float *w, int64_t depth, float *sums) {
    vf sum[ROWS][LINES], line[LINES];
    UNROLL for (int r = 0; r < ROWS; r++) {
        UNROLL for (int l = 0; l < LINES; l++) sum[r][l] = load(sums + (r * LINES + l) * VL);
    }
    int64_t k = 0;
    for (; k + VL <= depth; k += VL) {
        UNROLL for (int l = 0; l < LINES; l++) line[l] = load(w + l * PITCH + k);
        UNROLL for (int r = 0; r < ROWS; r++) {
            vf row = load(x + r * PITCH + k);
            HOLD(row);
            UNROLL for (int l = 0; l < LINES; l++) sum[r][l] = mul_add(row, line[l], sum[r][l]);
        }
    }
    if (k < depth) {
        UNROLL for (int l = 0; l < LINES; l++) line[l] = load_part(w + l * PITCH + k, depth - k);
        UNROLL for (int r = 0; r < ROWS; r++) {
            vf row = load(x + r * PITCH + k);
            UNROLL for (int l = 0; l < LINES; l++) sum[r][l] = mul_add(row, line[l], sum[r][l]);
        }
    }
    UNROLL for (int r = 0; r < ROWS; r++) {
        UNROLL for (int l = 0; l < LINES; l++) store(sums + (r * LINES + l) * VL, sum[r][l]);
    }
}

/* Fetches share `n` of `shares` of DEPTH columns of LINES rows of w. */
INLINE void fetch_share(const float *w, int64_t pitch, int64_t n, int64_t shares) {
    const int64_t lines = DEPTH / LINE, begin = lines * n / shares, end = lines * (n + 1) / shares;
    for (int l = 0; l < LINES; l++) {
        for (int64_t i = begin; i < end; i++) __builtin_prefetch(w + l * pitch + i * LINE);
    }
}

/* A group of rows of w, from row `first` on. */
typedef struct group {
    int64_t first, lines; /* at most GROUP */
    float *packed;        /* [GROUP][PITCH]: `depth` columns of them */
    float *sums;          /* [tile of rows][tile of lines][ROWS][LINES][VL] */
} group;

/* Rows of w lie at distances that are often multiples of the size of a way of L1, where few of them
 * have room. */
static void pack_lines(const kolo_simd_linear_job *job, const group *g, int64_t k, int64_t depth) {
    for (int64_t l = 0; l < g->lines; l++) {
        memcpy(g->packed + l * PITCH, job->w + (g->first + l) * job->inner + k,
               sizeof(float) * (size_t)depth);
    }
}

static void add_group(const kolo_simd_linear_job *job, const group *g) {
    const int64_t tiles = (job->rows + ROWS - 1) / ROWS;
    const float *x = job->packed;
    for (int64_t k = 0; k < job->inner; k += DEPTH) {
        const int64_t depth = kolo_min_i64(DEPTH, job->inner - k);
        const float *next = job->w + (k + DEPTH < job->inner ? g->first * job->inner + k + DEPTH
                                                             : (g->first + GROUP) * job->inner);
        float *sum = g->sums;
        pack_lines(job, g, k, depth);
        for (int64_t n = 0; n < tiles; n++, x += ROWS * PITCH) {
            for (int64_t o = 0; o < g->lines; o += LINES, sum += ROWS * LINES * VL) {
                fetch_share(next + o * job->inner, job->inner, n, tiles);
                add_columns(x, g->packed + o * PITCH, depth, sum);
            }
        }
    }
}

/* Computes y from the accumulators, VL of a tile at a time. */
static void write_group(const kolo_simd_linear_job *job, const group *g) {
    const float *sum = g->sums;
    float tile[ROWS * LINES + VL];
    for (int64_t n = 0; n < job->rows; n += ROWS) {
        for (int64_t o = 0; o < g->lines; o += LINES, sum += ROWS * LINES * VL) {
            UNROLL for (int i = 0; i < ROWS * LINES; i += VL) {
                vf v[VL];
                UNROLL for (int k = 0; k < VL; k++) {
                    v[k] = i + k < ROWS * LINES ? load(sum + (i + k) * VL) : splat(0);
                }
                store(tile + i, joined_lanes(plus, v));
            }
            for (int i = 0; i < ROWS * LINES; i++) {
                int64_t row = n + i / LINES, line = g->first + o + i % LINES;
                if (row >= job->rows || line >= g->first + g->lines) continue;
                float y = tile[i] + (job->b ? job->b[line] : 0);
                job->out[row * job->outer + line] = job->relu ? positive_1(y) : y;
            }
        }
    }
}

/* Parallel over rows of w. */
static void forward(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_linear_job *job = arg;
    const int64_t tiles = (job->rows + ROWS - 1) / ROWS, floats = tiles * ROWS * GROUP * VL;
    float *packed = job->scratch + part * job->part_stride;
    group g = {.packed = packed, .sums = packed + GROUP * PITCH};
    memset(packed, 0, sizeof(float) * GROUP * PITCH); /* rows that a group does not have */
    for (g.first = begin; g.first < end; g.first += GROUP) {
        g.lines = kolo_min_i64(GROUP, end - g.first);
        memset(g.sums, 0, sizeof(float) * (size_t)floats);
        add_group(job, &g);
        write_group(job, &g);
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
    .pitch = PITCH,
    .sums = ROWS * GROUP * VL,
    .lines = GROUP * PITCH,
    .terms = TERMS,
    .width = WIDTH,
};

/* Attention of one head of one sample at a time, in blocks of queries and keys: Dao et al.,
 * "FlashAttention: fast and memory-efficient exact attention with IO-awareness", NeurIPS 2022.
 *
 * Forward: the scores of a block of queries and keys are in scratch memory. Each row keeps a
 * running maximum and sum; earlier results are rescaled when the maximum grows. Backward: the
 * probabilities are recomputed from the rows' log-sum-exp. With P the probabilities, d = <do, o>
 * per row, and s the scale:
 *     dV = P^T dO,  dP = dO V^T,  dS = s P (dP - d),  dQ = dS K,  dK = dS^T Q.
 * With dropout, R P replaces P in o and dV, and R dP replaces dP, where R is 0 or 1 / (1 - p). R
 * is drawn for one row of a block of keys at a time, identically in both directions.
 *
 * The rows of a head are a few cache lines each, far apart, so the processor does not fetch them
 * ahead. The products of a head prefetch what the next one reads and writes.
 *
 * A job of some of the keys continues from the output and log-sum-exp of those before: the latter
 * is the running maximum of a sum of 1. */
#include "kernel/simd/attention.h"

#include "kernel/simd/lanes.h"
#include "kernel/simd/math.h"
#include "kernel/simd/philox.h"
#include "kernel/simd/tile.h"

#include <math.h>

enum { QUERIES = KOLO_SIMD_QUERIES, KEYS = KOLO_SIMD_KEYS };
_Static_assert(QUERIES % VL == 0, "rows of a block in whole vectors");

/* One head of one sample. */
typedef struct head {
    const float *q, *k, *v; /* rows `stride` and `kv_stride` apart */
    const int32_t *mask;    /* NULL: no mask */
    int64_t queries, keys, width, stride, kv_stride;
    int64_t padded; /* head width rounded up to whole tiles */
    float scale;
    bool causal;
    const kolo_simd_attention_job *job;
    uint64_t row;  /* index of query 0 among all queries of the global batch */
    fetched *next; /* of the next head */
} head;

static head head_of(const kolo_simd_attention_job *job, int64_t item) {
    int64_t n = item / job->heads, h = item % job->heads, width = job->channels / job->heads;
    const float *k = job->k + n * job->kv_rows * job->kv_stride + h * width;
    int64_t number = (job->first + n) * job->all_heads + job->first_head + h;
    return (head){
        .q = job->q + n * job->q_rows * job->q_stride + h * width,
        .k = k,
        .v = k + job->channels,
        .mask = job->mask ? job->mask + n * job->kv_rows : NULL,
        .queries = job->queries,
        .keys = job->keys,
        .width = width,
        .stride = job->q_stride,
        .kv_stride = job->kv_stride,
        .padded = panels_of(width) * TILE,
        .scale = 1.0f / sqrtf((float)width),
        .causal = job->causal,
        .job = job,
        .row = (uint64_t)(number * job->length + job->position),
    };
}

static void add_fetched(fetched *f, const float *from, int64_t stride, int64_t rows) {
    f->from[f->n] = from;
    f->stride[f->n] = stride;
    f->rows[f->n++] = rows;
    f->end = kolo_max_i64(f->end, rows);
}

/* What the head `item` reads and writes. */
static fetched fetched_of(const kolo_simd_attention_job *job, int64_t item) {
    const head a = head_of(job, item);
    const int64_t n = item / job->heads, h = item % job->heads;
    const int64_t o = n * job->q_rows * job->channels + h * a.width;
    fetched f = {.width = a.width};
    add_fetched(&f, a.k, a.kv_stride, a.keys);
    add_fetched(&f, a.v, a.kv_stride, a.keys);
    add_fetched(&f, a.q, a.stride, a.queries);
    if (job->o_out) {
        add_fetched(&f, job->o_out + o, job->channels, a.queries);
        return f;
    }
    const float *dk = job->dk + n * job->kv_rows * a.kv_stride + h * a.width;
    const float *dq = job->dq + n * job->q_rows * job->dq_stride + h * a.width;
    add_fetched(&f, job->d_o + o, job->channels, a.queries);
    add_fetched(&f, job->o + o, job->channels, a.queries);
    add_fetched(&f, dk, a.kv_stride, a.keys);
    add_fetched(&f, dk + job->channels, a.kv_stride, a.keys);
    add_fetched(&f, dq, job->dq_stride, a.queries);
    return f;
}

enum { LANES = 8, GROUPS = KEYS / LANES };
_Static_assert((int)GROUPS == (int)KOLO_PHILOX_COUNTERS, "a row of a block is drawn at once");

/* The dropout factors of the query in row `row` of all and the keys of KEYS / LANES groups. */
static void draw_groups(const head *a, uint64_t row, uint64_t group, float factors[KEYS]) {
    uint32_t numbers[4 * GROUPS], limit = a->job->limit;
    uint64_t groups = (uint64_t)(a->job->length + LANES - 1) / LANES;
    float kept = 0x1p16f / (0x1p16f - (float)limit);
    philox(a->job->seed, a->job->stream, row * groups + group, numbers);
    for (int g = 0; g < GROUPS; g++) {
        for (int k = 0; k < LANES / 2; k++) {
            factors[LANES * g + k] = (numbers[4 * g + k] & 0xffff) < limit ? 0 : kept;
            factors[LANES * g + k + LANES / 2] = numbers[4 * g + k] >> 16 < limit ? 0 : kept;
        }
    }
}

/* The dropout factors of query i and a block of keys from j on. */
static void draw_row(const head *a, int64_t i, int64_t j, float factors[KEYS]) {
    const uint64_t row = a->row + (uint64_t)i, key = (uint64_t)(a->job->key_position + j);
    const size_t inside = key % LANES;
    float drawn[2 * KEYS];
    if (inside == 0) {
        draw_groups(a, row, key / LANES, factors);
        return;
    }
    draw_groups(a, row, key / LANES, drawn);
    draw_groups(a, row, key / LANES + GROUPS, drawn + KEYS);
    memcpy(factors, drawn + inside, sizeof(float) * KEYS);
}

static void multiply_rows(float *row, const float *factors, int64_t columns) {
    for (int64_t c = 0; c < columns; c += VL) store(row + c, load(row + c) * load(factors + c));
}

/* The scratch memory of a part, in the order of kolo_simd_attention_floats. */
typedef struct workspace {
    float *keys, *values;   /* packed; forward: keys transposed; backward: both transposed */
    float *plain_keys;      /* backward: packed untransposed */
    float *scores, *slopes; /* [QUERIES][KEYS] */
    float *out;             /* [QUERIES][padded]: o, dq */
    float *queries, *d_out; /* backward: a block of each, packed */
    float *dk, *dv;         /* [keys rounded up to whole blocks of keys][padded] */
} workspace;

static workspace workspace_of(const kolo_simd_attention_job *job, int part) {
    int64_t width = job->channels / job->heads, padded = panels_of(width) * TILE;
    int64_t keys = panels_of(job->keys) * TILE * padded;
    float *at = job->scratch + part * job->part_stride;
    workspace w = {.keys = at, .values = at + keys};
    at += 2 * keys;
    w.scores = at;
    w.out = at + QUERIES * KEYS;
    at = w.out + QUERIES * padded;
    w.plain_keys = at;
    w.dk = at + keys;
    w.dv = w.dk + keys;
    w.slopes = w.dv + keys;
    w.queries = w.slopes + QUERIES * KEYS;
    w.d_out = w.queries + QUERIES * padded;
    return w;
}

/* The rows of the block of queries from i on: blocks have nearly equal size. */
static int64_t block_rows(const head *a, int64_t i) {
    int64_t blocks = (a->queries - i + QUERIES - 1) / QUERIES;
    return (a->queries - i + blocks - 1) / blocks;
}

/* The number of keys visible to a block of queries [i, i + rows). */
static int64_t seen_by(const head *a, int64_t i, int64_t rows) {
    return a->causal ? kolo_min_i64(a->keys, i + rows) : a->keys;
}

/* The part of a product with a block of scores that is not masked by position: score (r, c) is used
 * for c <= r + diagonal. Without a mask `diagonal` is at least the number of columns. */
static int64_t diagonal_of(const head *a, int64_t i, int64_t j) {
    return a->causal ? i - j : a->keys;
}

/* Rows that share what they skip: about as many as columns of a vector, in whole tiles. */
enum { STRIP = VL == 16 ? TILE_ROWS : 2 * TILE_ROWS };

/* The rows of the strip from row r on, of `rows`: strips have nearly equal height, as low ones are
 * slow. */
static int64_t strip_rows(int64_t rows, int64_t r) {
    int64_t strips = (rows - r + STRIP - 1) / STRIP;
    return (rows - r + strips - 1) / strips;
}

static int64_t whole_vectors(int64_t columns) { return (columns + VL - 1) / VL * VL; }

/* c [rows][KEYS] = a b, of which rows use columns up to the diagonal. */
static void multiply_to_scores(const product *p, int64_t columns, int64_t diagonal) {
    for (int64_t r = 0; r < p->rows;) {
        product strip = *p;
        strip.rows = diagonal >= columns ? p->rows : strip_rows(p->rows, r);
        strip.a += r * p->row;
        strip.c += r * p->pitch;
        r += strip.rows;
        multiply(&strip, 0, kolo_min_i64(columns, r + diagonal));
    }
}

/* c [rows][padded] += a b with scores a [rows][KEYS], which are zero above the diagonal. */
static void multiply_scores(const product *p, int64_t columns, int64_t diagonal) {
    for (int64_t r = 0; r < p->rows;) {
        product strip = *p;
        strip.rows = diagonal >= p->inner ? p->rows : strip_rows(p->rows, r);
        strip.a += r * p->row;
        strip.c += r * p->pitch;
        r += strip.rows;
        strip.inner = kolo_min_i64(p->inner, r + diagonal);
        multiply(&strip, 0, columns);
    }
}

/* As multiply_scores, with the transpose of scores: p->rows counts their columns. */
static void multiply_transposed(const product *p, int64_t columns, int64_t diagonal) {
    for (int64_t c = 0; c < p->rows;) {
        product strip = *p;
        strip.rows = diagonal >= p->rows ? p->rows : strip_rows(p->rows, c);
        int64_t first = kolo_max_i64(0, c - diagonal); /* row that uses these columns */
        strip.inner = p->inner - first;
        strip.a += c * p->row + first * p->step;
        strip.b += first * TILE;
        strip.c += c * p->pitch;
        c += strip.rows;
        multiply(&strip, 0, columns);
    }
}

/* scores [rows][KEYS] = q k^T for keys [j, j + columns), columns in whole vectors. */
static void score(const head *a, int64_t i, int64_t rows, int64_t j, int64_t columns,
                  const workspace *w, float *scores) {
    const product p = {
        .rows = rows,
        .inner = a->width,
        .a = a->q + i * a->stride,
        .row = a->stride,
        .step = 1,
        .b = w->keys + j * a->width,
        .panel = a->width * TILE,
        .c = scores,
        .pitch = KEYS,
        .next = a->next,
    };
    multiply_to_scores(&p, columns, diagonal_of(a, i, j));
}

/* Masked scores of query i become -infinity. Returns the number of columns to compute, in whole
 * vectors; the product with the scores takes those behind them as zeros. */
static int64_t mask_row(const head *a, int64_t i, int64_t j, int64_t columns, float *row) {
    int64_t seen = a->causal ? kolo_min_i64(columns, i - j + 1) : columns;
    int64_t whole = whole_vectors(kolo_max_i64(seen, 0));
    for (int64_t c = kolo_max_i64(seen, 0); c < whole; c++) row[c] = -INFINITY;
    for (int64_t c = 0; a->mask && c < seen; c++) {
        if (a->mask[j + c] == 0) row[c] = -INFINITY;
    }
    return whole;
}

static void clear_row(float *row, int64_t from, int64_t columns) {
    for (int64_t c = from; c < columns; c += VL) store(row + c, splat(0));
}

/* Lane by lane: of a row of scores in whole vectors. */
static vf largest_scores(const float *row, int64_t count) {
    vf most[2] = {splat(-INFINITY), splat(-INFINITY)};
    int64_t c = 0;
    for (; c + 2 * VL <= count; c += 2 * VL) {
        most[0] = larger(load(row + c), most[0]);
        most[1] = larger(load(row + c + VL), most[1]);
    }
    if (c < count) most[0] = larger(load(row + c), most[0]);
    return larger(most[0], most[1]);
}

/* row = exp(row scale - by), with `by` at least the largest row scale; returns the sum, lane by
 * lane. */
static vf exponentials_of(float *row, float scale, float by, int64_t count) {
    vf sum[2] = {splat(0), splat(0)};
    for (int64_t c = 0; c < count; c += VL) {
        vf e = exponential_to_88(mul_add(load(row + c), splat(scale), splat(-by)));
        store(row + c, e);
        sum[c / VL % 2] += e;
    }
    return sum[0] + sum[1];
}

static void multiply_row(float *row, int64_t count, float by) {
    for (int64_t c = 0; c < count; c += VL) store(row + c, load(row + c) * by);
}

/* The running maximum of each row of a block of queries, and the sum of exponentials about it. */
typedef struct running {
    float largest[QUERIES], sum[QUERIES];
} running;

/* Replaces the scores of rows [first, first + n), n <= VL, by exponentials about the largest score
 * so far, and rescales what was added up before if that has grown. */
static void exponentiate(const head *a, int64_t i, int64_t first, int64_t n, int64_t j,
                         int64_t columns, const workspace *w, running *s) {
    const bool before = j > 0 || a->job->continues;
    const vf none = splat(-INFINITY);
    float base[VL], old[VL], factors[KEYS];
    int64_t count[VL];
    vf each[VL];
    for (int64_t k = 0; k < VL; k++) each[k] = none;
    for (int64_t k = 0; k < n; k++) {
        float *row = w->scores + (first + k) * KEYS;
        count[k] = mask_row(a, i + first + k, j, columns, row);
        each[k] = largest_scores(row, count[k]);
    }
    const vf here = joined_lanes(larger, each) * a->scale, largest = load(s->largest + first);
    const vf most = larger(here, largest);
    /* No key visible yet: every exponential is zero. */
    const vf about = select(most == none, splat(0), most);
    const vf shrink = select(largest == none, splat(0), exponential_to_88(largest - about));
    store(s->largest + first, most);
    store(base, about);
    store(old, shrink);
    for (int64_t k = 0; k < VL; k++) each[k] = splat(0);
    for (int64_t k = 0; k < n; k++) {
        float *row = w->scores + (first + k) * KEYS;
        if (before && old[k] != 1) {
            multiply_row(w->out + (first + k) * a->padded, whole_vectors(a->width), old[k]);
        }
        each[k] = exponentials_of(row, a->scale, base[k], count[k]);
        clear_row(row, count[k], columns);
        if (a->job->limit == 0) continue;
        draw_row(a, i + first + k, j, factors);
        multiply_rows(row, factors, count[k]);
    }
    store(s->sum + first, mul_add(load(s->sum + first), shrink, joined_lanes(plus, each)));
}

/* o = out / sum, and the log-sum-exp of rows [first, first + n), n <= VL. */
static void finish(const head *a, int64_t first, int64_t n, const workspace *w, const running *s,
                   float *o, int64_t pitch, float *lse) {
    const vf sum = load(s->sum + first), largest = load(s->largest + first);
    float by[VL], logs[VL];
    store(by, select(sum <= splat(0), splat(0), 1.0f / sum)); /* NaN stays */
    store(logs, select(largest == splat(-INFINITY), splat(INFINITY), largest + logarithm(sum)));
    memcpy(lse + first, logs, sizeof(float) * (size_t)n);
    for (int64_t k = 0; k < n; k++) {
        const float *out = w->out + (first + k) * a->padded;
        float *to = o + (first + k) * pitch;
        int64_t c = 0;
        for (; c + VL <= a->width; c += VL) store(to + c, load(out + c) * by[k]);
        if (c < a->width) store_part(to + c, load(out + c) * by[k], a->width - c);
    }
}

/* Forward of a block of queries: o and lse of its rows, which may be those of keys before. */
static void attend(const head *a, int64_t i, int64_t rows, const workspace *w, float *o,
                   int64_t pitch, float *lse) {
    const bool continues = a->job->continues;
    int64_t keys = seen_by(a, i, rows);
    running s;
    if (continues) memset(w->out, 0, sizeof(float) * (size_t)(rows * a->padded));
    for (int64_t r = 0; r < QUERIES; r++) {
        const bool any = r < rows && continues && lse[r] != INFINITY; /* keys before */
        s.largest[r] = any ? lse[r] : -INFINITY;
        s.sum[r] = any;
        if (any) memcpy(w->out + r * a->padded, o + r * pitch, sizeof(float) * (size_t)a->width);
    }
    for (int64_t j = 0; j < keys; j += KEYS) {
        int64_t columns = kolo_min_i64(KEYS, keys - j);
        score(a, i, rows, j, columns, w, w->scores);
        for (int64_t r = 0; r < rows; r += VL) {
            exponentiate(a, i, r, kolo_min_i64(VL, rows - r), j, columns, w, &s);
        }
        const product p = {
            .rows = rows,
            .inner = columns,
            .a = w->scores,
            .row = KEYS,
            .step = 1,
            .b = w->values + j * TILE,
            .panel = a->keys * TILE,
            .c = w->out,
            .pitch = a->padded,
            .add = j > 0 || continues,
            .next = a->next,
        };
        multiply_scores(&p, a->width, diagonal_of(a, i, j));
    }
    for (int64_t r = 0; r < rows; r += VL) {
        finish(a, r, kolo_min_i64(VL, rows - r), w, &s, o, pitch, lse);
    }
}

static void forward(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_attention_job *job = arg;
    workspace w = workspace_of(job, part);
    for (int64_t item = begin; item < end; item++) {
        head a = head_of(job, item);
        fetched next = item + 1 < end ? fetched_of(job, item + 1) : (fetched){0};
        int64_t n = item / job->heads, h = item % job->heads;
        a.next = &next;
        pack_transposed(a.k, a.width, a.keys, a.kv_stride, w.keys, a.width * TILE);
        pack(a.v, a.keys, a.width, a.kv_stride, w.values, a.keys * TILE);
        float *o = job->o_out + n * job->q_rows * job->channels + h * a.width;
        for (int64_t i = 0, rows; i < a.queries; i += rows) {
            rows = block_rows(&a, i);
            attend(&a, i, rows, &w, o + i * job->channels, job->channels,
                   job->lse_out + item * job->q_rows + i);
        }
    }
}

/* ---- backwards ---- */

/* The inputs of the backward pass for a block of queries. */
typedef struct block {
    int64_t i, rows;
    const float *d_o; /* rows `channels` apart */
    int64_t channels;
    const float *lse;
    float inner[QUERIES]; /* <do, o> */
} block;

/* Replaces scores by the probabilities as used in the product, and slopes (dP) by dS / s. */
static void slope(const head *a, const block *b, int64_t j, int64_t columns, const workspace *w) {
    bool drops = a->job->limit > 0;
    float factors[KEYS];
    for (int64_t r = 0; r < b->rows; r++) {
        float *p = w->scores + r * KEYS, *s = w->slopes + r * KEYS;
        int64_t whole = mask_row(a, b->i + r, j, columns, p);
        vf lse = splat(b->lse[r]), inner = splat(b->inner[r]), scale = splat(a->scale);
        clear_row(p, whole, columns);
        clear_row(s, whole, columns);
        if (drops) {
            draw_row(a, b->i + r, j, factors);
            multiply_rows(s, factors, whole);
        }
        for (int64_t c = 0; c < whole; c += VL) {
            vf e = exponential_to_88(mul_add(load(p + c), scale, -lse));
            store(p + c, e);
            store(s + c, e * (load(s + c) - inner));
        }
        if (drops) multiply_rows(p, factors, whole);
    }
}

/* Accumulates over the block's queries for each of its keys: out [columns][padded] += m^T b,
 * with m [rows][KEYS] and b packed. The first block sets `out`, unless it sees some keys only. */
static void add_transposed(const head *a, const block *b, int64_t j, int64_t columns,
                           const float *m, const float *packed, float *out) {
    const product p = {
        .rows = columns,
        .inner = b->rows,
        .a = m,
        .row = 1,
        .step = KEYS,
        .b = packed,
        .panel = b->rows * TILE,
        .c = out,
        .pitch = a->padded,
        .add = b->i > 0 || a->causal,
        .next = a->next,
    };
    multiply_transposed(&p, a->width, diagonal_of(a, b->i, j));
}

static void copy_scaled(const float *from, float scale, int64_t count, float *to) {
    for (int64_t c = 0; c < count; c++) to[c] = from[c] * scale;
}

static void add_scaled(const float *from, float scale, int64_t count, float *to) {
    for (int64_t c = 0; c < count; c++) to[c] += from[c] * scale;
}

static void attend_bwd(const head *a, const block *b, const workspace *w, float *dq) {
    int64_t keys = seen_by(a, b->i, b->rows);
    pack(a->q + b->i * a->stride, b->rows, a->width, a->stride, w->queries, b->rows * TILE);
    pack(b->d_o, b->rows, a->width, b->channels, w->d_out, b->rows * TILE);
    for (int64_t j = 0; j < keys; j += KEYS) {
        int64_t columns = kolo_min_i64(KEYS, keys - j);
        score(a, b->i, b->rows, j, columns, w, w->scores);
        const product dp = {
            .rows = b->rows,
            .inner = a->width,
            .a = b->d_o,
            .row = b->channels,
            .step = 1,
            .b = w->values + j * a->width,
            .panel = a->width * TILE,
            .c = w->slopes,
            .pitch = KEYS,
            .next = a->next,
        };
        multiply_to_scores(&dp, columns, diagonal_of(a, b->i, j));
        slope(a, b, j, columns, w);
        add_transposed(a, b, j, columns, w->scores, w->d_out, w->dv + j * a->padded);
        add_transposed(a, b, j, columns, w->slopes, w->queries, w->dk + j * a->padded);
        const product to_q = {
            .rows = b->rows,
            .inner = columns,
            .a = w->slopes,
            .row = KEYS,
            .step = 1,
            .b = w->plain_keys + j * TILE,
            .panel = a->keys * TILE,
            .c = w->out,
            .pitch = a->padded,
            .add = j > 0,
            .next = a->next,
        };
        multiply_scores(&to_q, a->width, diagonal_of(a, b->i, j));
    }
    for (int64_t r = 0; r < b->rows; r++) {
        float *row = dq + r * a->job->dq_stride;
        if (a->job->adds) {
            add_scaled(w->out + r * a->padded, a->scale, a->width, row);
        } else {
            copy_scaled(w->out + r * a->padded, a->scale, a->width, row);
        }
    }
}

/* The products of x and y, lane by lane. */
static vf products_of(const float *x, const float *y, int64_t count) {
    vf sum = splat(0);
    int64_t c = 0;
    for (; c + VL <= count; c += VL) sum = mul_add(load(x + c), load(y + c), sum);
    return sum + load_part(x + c, count - c) * load_part(y + c, count - c);
}

/* b->inner of all rows; o is that of the first. */
static void set_inner(const head *a, block *b, const float *o) {
    for (int64_t first = 0; first < b->rows; first += VL) {
        vf each[VL];
        for (int64_t k = 0; k < VL; k++) {
            const int64_t at = (first + k) * b->channels;
            each[k] = first + k < b->rows ? products_of(b->d_o + at, o + at, a->width) : splat(0);
        }
        store(b->inner + first, joined_lanes(plus, each));
    }
}

static void backward(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_attention_job *job = arg;
    workspace w = workspace_of(job, part);
    for (int64_t item = begin; item < end; item++) {
        head a = head_of(job, item);
        fetched next = item + 1 < end ? fetched_of(job, item + 1) : (fetched){0};
        int64_t n = item / job->heads, h = item % job->heads;
        a.next = &next;
        int64_t at = n * job->q_rows * job->channels + h * a.width;
        float *dq = job->dq + n * job->q_rows * job->dq_stride + h * a.width;
        float *dk = job->dk + n * job->kv_rows * a.kv_stride + h * a.width;
        size_t sums = sizeof(float) * (size_t)(a.keys * a.padded);
        pack_transposed(a.k, a.width, a.keys, a.kv_stride, w.keys, a.width * TILE);
        pack_transposed(a.v, a.width, a.keys, a.kv_stride, w.values, a.width * TILE);
        pack(a.k, a.keys, a.width, a.kv_stride, w.plain_keys, a.keys * TILE);
        if (a.causal) memset(w.dk, 0, sums);
        if (a.causal) memset(w.dv, 0, sums);
        for (int64_t i = 0, rows; i < a.queries; i += rows) {
            rows = block_rows(&a, i);
            block b = {
                .i = i,
                .rows = rows,
                .d_o = job->d_o + at + i * job->channels,
                .channels = job->channels,
                .lse = job->lse + item * job->q_rows + i,
            };
            set_inner(&a, &b, job->o + at + i * b.channels);
            attend_bwd(&a, &b, &w, dq + i * job->dq_stride);
        }
        for (int64_t j = 0; j < a.keys; j++) {
            float *dk_row = dk + j * a.kv_stride, *dv_row = dk_row + job->channels;
            if (job->adds) {
                add_scaled(w.dk + j * a.padded, a.scale, a.width, dk_row);
                add_scaled(w.dv + j * a.padded, 1, a.width, dv_row);
                continue;
            }
            size_t bytes = sizeof(float) * (size_t)a.width;
            copy_scaled(w.dk + j * a.padded, a.scale, a.width, dk_row);
            memcpy(dv_row, w.dv + j * a.padded, bytes);
        }
    }
}

const kolo_simd_attention_table KOLO_ISA_SYMBOL(kolo_simd_attention) = {
    .forward = forward, .backward = backward, .tile = TILE};

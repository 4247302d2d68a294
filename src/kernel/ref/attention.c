/* Attention and its gradient, one query at a time. Only the query's probabilities over the keys
 * are stored: computed from the scores in the forward pass, recomputed from the log-sum-exp in
 * the backward pass. */
#include "base/rng.h"
#include "kernel/ref/ref.h"

#include <math.h>
#include <string.h>

/* Dropout of attention weights: the factor of row i of a head and key j. */
typedef struct draws {
    uint32_t limit; /* 16-bit threshold; 0: no dropout */
    kolo_rng rng;
    uint64_t first; /* index of the sequence's position 0 in the global batch */
} draws;

/* One head of one sample; rows of q, and of k and v, are `stride` and `kv_stride` apart. */
typedef struct head {
    draws dice;
    const double *q, *k, *v;
    const int32_t *mask; /* NULL: no mask */
    int64_t keys, width, stride, kv_stride;
    int64_t position, key_position, length; /* of query 0 and of key 0, in a sequence of `length` */
    int64_t queries;
    double scale;
    bool causal, zigzag;
    kolo_seen seen;
} head;

/* Where the inputs of a kernel are: `kv` is qkv itself, or keys and values alone; `more` is the
 * index of the first optional input (a random-number key or the mask). */
typedef struct places {
    int qkv, kv, more;
} places;

static const places whole = {0, 0, KOLO_ATTENTION_INPUTS};
static const places whole_bwd = {1, 1, KOLO_ATTENTION_BWD_INPUTS};
static const places block = {0, 1, KOLO_ATTENTION_BLOCK_INPUTS};
static const places block_bwd = {1, 2, KOLO_ATTENTION_BLOCK_BWD_INPUTS};

static head head_of(const kolo_call *call, const places *at, int64_t n, int64_t h) {
    const kolo_kernel_spec *spec = call->spec;
    const kolo_attr *attr = spec->attr;
    const int64_t *dim = spec->in[at->qkv].shape.dim, *of_kv = spec->in[at->kv].shape.dim;
    const int64_t length = kolo_attention_length(attr, dim[1]);
    const bool apart = at->kv != at->qkv;
    int mask = at->more + kolo_attention_draws(attr);
    draws dice = {0};
    if (mask > at->more) {
        const int64_t *key = call->in[at->more], *first = call->in[at->more + 1];
        int64_t window = *first + attr[KOLO_ATTENTION_SAMPLE].i + n,
                all = kolo_attention_all_heads(attr);
        int64_t number = attr[KOLO_ATTENTION_FIRST_HEAD].i + h;
        dice.limit = kolo_attention_limit(attr);
        dice.rng = kolo_rng_make((uint64_t)*key, KOLO_RNG_ATTENTION,
                                 (uint64_t)attr[KOLO_ATTENTION_LAYER].i);
        dice.first = (uint64_t)((window * all + number) * length);
    }
    int64_t channels = dim[2] / 3, width = channels / attr[KOLO_ATTENTION_HEADS].i;
    const double *q = (const double *)call->in[at->qkv] + n * dim[1] * dim[2] + h * width;
    const double *k = apart ? (const double *)call->in[at->kv] + n * of_kv[1] * of_kv[2] + h * width
                            : q + channels;
    const int32_t *keys = spec->n_in > mask ? call->in[mask] : NULL;
    return (head){
        .dice = dice,
        .q = q,
        .k = k,
        .v = k + channels,
        .mask = keys ? keys + n * of_kv[1] : NULL,
        .keys = of_kv[1],
        .width = width,
        .stride = dim[2],
        .kv_stride = of_kv[2],
        .position = attr[KOLO_ATTENTION_POSITION].i,
        .key_position = attr[apart ? KOLO_ATTENTION_KEY : KOLO_ATTENTION_POSITION].i,
        .length = length,
        .queries = dim[1],
        .scale = 1 / sqrt((double)width),
        .causal = !apart && attr[KOLO_ATTENTION_CAUSAL].i != 0,
        .zigzag = (attr[KOLO_ATTENTION_RING].i & KOLO_RING_ZIGZAG) != 0,
        .seen = apart ? (kolo_seen)attr[KOLO_ATTENTION_SEEN].i : KOLO_SEEN_BY_ALL,
    };
}

static double score(const head *a, int64_t i, int64_t j) {
    if ((a->causal && j > i) || (a->mask && a->mask[j] == 0)) return -INFINITY;
    if (a->seen == KOLO_SEEN_BY_SECOND && i < a->queries / 2) return -INFINITY;
    if (a->seen == KOLO_SEEN_FIRST_BY_ALL && j >= a->keys / 2) return -INFINITY;
    double sum = 0;
    for (int64_t c = 0; c < a->width; c++) {
        sum += a->q[i * a->stride + c] * a->k[j * a->kv_stride + c];
    }
    return sum * a->scale;
}

/* The dropout factor of query i and key j. */
static double kept(const head *a, int64_t i, int64_t j) {
    uint32_t four[4];
    if (a->dice.limit == 0) return 1;
    const int64_t of_ranges = a->zigzag ? a->length : 0;
    uint64_t row =
        a->dice.first + (uint64_t)kolo_position_of(a->position, of_ranges, a->queries, i);
    uint64_t groups = ((uint64_t)a->length + 7) / 8;
    uint64_t key = (uint64_t)kolo_position_of(a->key_position, of_ranges, a->keys, j);
    kolo_rng_draw(&a->dice.rng, row * groups + key / 8, four);
    uint32_t draw = key % 8 < 4 ? four[key % 4] & 0xffff : four[key % 4] >> 16;
    return draw < a->dice.limit ? 0 : 0x1p16 / (0x1p16 - a->dice.limit);
}

/* Row i of o in this head: that of the keys before, whose log-sum-exp is `before` (infinite: there
 * are none), and of these. Returns that of both. */
static double attend(const head *a, int64_t i, double before, double *o) {
    double max = before == INFINITY ? -INFINITY : before, sum = 0;
    for (int64_t j = 0; j < a->keys; j++) max = fmax(max, score(a, i, j));
    if (max == -INFINITY) return INFINITY;
    if (before != INFINITY) sum = exp(before - max);
    for (int64_t c = 0; c < a->width; c++) o[c] *= sum;
    for (int64_t j = 0; j < a->keys; j++) {
        double p = exp(score(a, i, j) - max);
        sum += p;
        p *= kept(a, i, j);
        for (int64_t c = 0; c < a->width; c++) o[c] += p * a->v[j * a->kv_stride + c];
    }
    for (int64_t c = 0; c < a->width; c++) o[c] /= sum;
    return max + log(sum);
}

/* `o` and `lse` are those of the keys before. */
static void attend_all(const kolo_call *call, const places *at, double *o, double *lse) {
    const int64_t *dim = call->spec->out[0].shape.dim;
    int64_t heads = call->spec->attr[KOLO_ATTENTION_HEADS].i, length = dim[1], channels = dim[2];
    for (int64_t n = 0; n < dim[0]; n++) {
        for (int64_t h = 0; h < heads; h++) {
            head a = head_of(call, at, n, h);
            for (int64_t i = 0; i < length; i++, lse++) {
                *lse = attend(&a, i, *lse, o + (n * length + i) * channels + h * a.width);
            }
        }
    }
}

static size_t bytes_of(const kolo_tensor *t) {
    return sizeof(double) * (size_t)kolo_shape_count(&t->shape);
}

static void attention(const kolo_call *call) {
    double *lse = call->out[1];
    const int64_t rows = kolo_shape_count(&call->spec->out[1].shape);
    memset(call->out[0], 0, bytes_of(&call->spec->out[0]));
    for (int64_t i = 0; i < rows; i++) lse[i] = INFINITY;
    attend_all(call, &whole, call->out[0], lse);
}

static void attention_block(const kolo_call *call) {
    for (int k = 0; k < 2; k++) {
        if (call->out[k] == call->in[2 + k]) continue;
        memcpy(call->out[k], call->in[2 + k], bytes_of(&call->spec->out[k]));
    }
    if (call->spec->attr[KOLO_ATTENTION_SEEN].i == KOLO_SEEN_BY_NONE) return;
    attend_all(call, &block, call->out[0], call->out[1]);
}

/* Adds the contribution of query i to dq (row i of it), dk and dv (rows as those of k and v). With
 * p the probabilities and d = <do, o>: dv = p do, ds = p (<do, v> - d) scale, dq = ds k, dk = ds q.
 * With dropout factors r: dv = r p do, ds = p (r <do, v> - d) scale. */
static void attend_bwd(const head *a, int64_t i, const double *d_o, const double *o, double lse,
                       double *dq, double *dk, double *dv) {
    double d = 0;
    for (int64_t c = 0; c < a->width; c++) d += d_o[c] * o[c];
    for (int64_t j = 0; j < a->keys; j++) {
        double p = exp(score(a, i, j) - lse), dp = 0;
        int64_t row = j * a->kv_stride;
        if (!(p > 0)) continue;
        for (int64_t c = 0; c < a->width; c++) dp += d_o[c] * a->v[row + c];
        double r = kept(a, i, j), ds = p * (r * dp - d) * a->scale;
        for (int64_t c = 0; c < a->width; c++) {
            dv[row + c] += r * p * d_o[c];
            dq[c] += ds * a->k[row + c];
            dk[row + c] += ds * a->q[i * a->stride + c];
        }
    }
}

/* Gradients of queries have rows `row` apart; those of keys and values are as these. */
static void attend_all_bwd(const kolo_call *call, const places *at, double *dq, int64_t row,
                           double *dkv) {
    const int64_t *dim = call->spec->in[0].shape.dim;
    int64_t heads = call->spec->attr[KOLO_ATTENTION_HEADS].i, length = dim[1], channels = dim[2];
    const double *d_o = call->in[0], *o = call->in[at->kv + 1], *lse = call->in[at->kv + 2];
    for (int64_t n = 0; n < dim[0]; n++) {
        for (int64_t h = 0; h < heads; h++) {
            head a = head_of(call, at, n, h);
            double *dk = dkv + n * a.keys * a.kv_stride + h * a.width;
            for (int64_t i = 0; i < length; i++) {
                int64_t of_o = (n * length + i) * channels + h * a.width;
                attend_bwd(&a, i, d_o + of_o, o + of_o, *lse++,
                           dq + (n * length + i) * row + h * a.width, dk, dk + channels);
            }
        }
    }
}

static void attention_bwd(const kolo_call *call) {
    const int64_t row = call->spec->out[0].shape.dim[2];
    double *dqkv = call->out[0];
    memset(dqkv, 0, bytes_of(&call->spec->out[0]));
    attend_all_bwd(call, &whole_bwd, dqkv, row, dqkv + row / 3);
}

static void attention_block_bwd(const kolo_call *call) {
    for (int k = 0; k < 2; k++) memset(call->out[k], 0, bytes_of(&call->spec->out[k]));
    if (call->spec->attr[KOLO_ATTENTION_SEEN].i == KOLO_SEEN_BY_NONE) return;
    attend_all_bwd(call, &block_bwd, call->out[0], call->spec->out[0].shape.dim[2], call->out[1]);
}

static void run_attention(const kolo_call *call) { kolo_ref_run(call, attention); }
static void run_attention_bwd(const kolo_call *call) { kolo_ref_run(call, attention_bwd); }
static void run_block(const kolo_call *call) { kolo_ref_run(call, attention_block); }
static void run_block_bwd(const kolo_call *call) { kolo_ref_run(call, attention_block_bwd); }

const kolo_kernel kolo_ref_attention =
    KOLO_REF_KERNEL("ref_attention", &kolo_op_attention, run_attention);
const kolo_kernel kolo_ref_attention_bwd =
    KOLO_REF_KERNEL("ref_attention_bwd", &kolo_op_attention_bwd, run_attention_bwd);
const kolo_kernel kolo_ref_attention_block =
    KOLO_REF_KERNEL("ref_attention_block", &kolo_op_attention_block, run_block);
const kolo_kernel kolo_ref_attention_block_bwd =
    KOLO_REF_KERNEL("ref_attention_block_bwd", &kolo_op_attention_block_bwd, run_block_bwd);

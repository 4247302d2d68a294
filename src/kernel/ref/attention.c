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
    uint64_t first; /* index of row 0 in the global batch */
} draws;

/* One head of one sample; rows of q, k and v are `stride` apart. */
typedef struct head {
    draws dice;
    const double *q, *k, *v;
    const int32_t *mask; /* NULL: no mask */
    int64_t length, width, stride;
    double scale;
    bool causal;
} head;

/* `more` is the index of the first optional input (a random-number key or the mask). */
static head head_of(const kolo_call *call, int qkv, int more, int64_t n, int64_t h) {
    const kolo_kernel_spec *spec = call->spec;
    int mask = more + kolo_attention_draws(spec->attr);
    draws dice = {0};
    if (mask > more) {
        const int64_t *key = call->in[more], *first = call->in[more + 1];
        int64_t window = *first + spec->attr[KOLO_ATTENTION_SAMPLE].i + n,
                all = kolo_attention_all_heads(spec->attr);
        int64_t number = spec->attr[KOLO_ATTENTION_FIRST_HEAD].i + h;
        dice.limit = kolo_attention_limit(spec->attr);
        dice.rng = kolo_rng_make((uint64_t)*key, KOLO_RNG_ATTENTION,
                                 (uint64_t)spec->attr[KOLO_ATTENTION_LAYER].i);
        dice.first = (uint64_t)((window * all + number) * spec->in[qkv].shape.dim[1]);
    }
    const int64_t *dim = spec->in[qkv].shape.dim;
    int64_t channels = dim[2] / 3, width = channels / spec->attr[KOLO_ATTENTION_HEADS].i;
    const double *q = (const double *)call->in[qkv] + n * dim[1] * dim[2] + h * width;
    const int32_t *keys = spec->n_in > mask ? call->in[mask] : NULL;
    return (head){
        .dice = dice,
        .q = q,
        .k = q + channels,
        .v = q + 2 * channels,
        .mask = keys ? keys + n * dim[1] : NULL,
        .length = dim[1],
        .width = width,
        .stride = dim[2],
        .scale = 1 / sqrt((double)width),
        .causal = spec->attr[KOLO_ATTENTION_CAUSAL].i != 0,
    };
}

static double score(const head *a, int64_t i, int64_t j) {
    if ((a->causal && j > i) || (a->mask && a->mask[j] == 0)) return -INFINITY;
    double sum = 0;
    for (int64_t c = 0; c < a->width; c++) sum += a->q[i * a->stride + c] * a->k[j * a->stride + c];
    return sum * a->scale;
}

/* The dropout factor of query i and key j. */
static double kept(const head *a, int64_t i, int64_t j) {
    uint32_t four[4];
    if (a->dice.limit == 0) return 1;
    uint64_t row = a->dice.first + (uint64_t)i, groups = ((uint64_t)a->length + 7) / 8;
    kolo_rng_draw(&a->dice.rng, row * groups + (uint64_t)j / 8, four);
    uint32_t draw = j % 8 < 4 ? four[j % 4] & 0xffff : four[j % 4] >> 16;
    return draw < a->dice.limit ? 0 : 0x1p16 / (0x1p16 - a->dice.limit);
}

/* Row i of o in this head; rows are `channels` apart. */
static double attend(const head *a, int64_t i, double *o) {
    double max = -INFINITY, sum = 0;
    memset(o, 0, sizeof(double) * (size_t)a->width);
    for (int64_t j = 0; j < a->length; j++) max = fmax(max, score(a, i, j));
    if (max == -INFINITY) return INFINITY;
    for (int64_t j = 0; j < a->length; j++) {
        double p = exp(score(a, i, j) - max);
        sum += p;
        p *= kept(a, i, j);
        for (int64_t c = 0; c < a->width; c++) o[c] += p * a->v[j * a->stride + c];
    }
    for (int64_t c = 0; c < a->width; c++) o[c] /= sum;
    return max + log(sum);
}

static void attention(const kolo_call *call) {
    const int64_t *dim = call->spec->out[0].shape.dim;
    int64_t heads = call->spec->attr[KOLO_ATTENTION_HEADS].i, length = dim[1], channels = dim[2];
    double *o = call->out[0], *lse = call->out[1];
    for (int64_t n = 0; n < dim[0]; n++) {
        for (int64_t h = 0; h < heads; h++) {
            head a = head_of(call, 0, KOLO_ATTENTION_INPUTS, n, h);
            for (int64_t i = 0; i < length; i++) {
                *lse++ = attend(&a, i, o + (n * length + i) * channels + h * a.width);
            }
        }
    }
}

/* Adds the contribution of query i to dq, dk, dv (rows as in qkv). With p the probabilities and
 * d = <do, o>: dv = p do, ds = p (<do, v> - d) scale, dq = ds k, dk = ds q. With dropout factors
 * r: dv = r p do, ds = p (r <do, v> - d) scale. */
static void attend_bwd(const head *a, int64_t i, const double *d_o, const double *o, double lse,
                       double *dq, double *dk, double *dv) {
    double d = 0;
    for (int64_t c = 0; c < a->width; c++) d += d_o[c] * o[c];
    for (int64_t j = 0; j < a->length; j++) {
        double p = exp(score(a, i, j) - lse), dp = 0;
        int64_t row = j * a->stride;
        if (!(p > 0)) continue;
        for (int64_t c = 0; c < a->width; c++) dp += d_o[c] * a->v[row + c];
        double r = kept(a, i, j), ds = p * (r * dp - d) * a->scale;
        for (int64_t c = 0; c < a->width; c++) {
            dv[row + c] += r * p * d_o[c];
            dq[i * a->stride + c] += ds * a->k[row + c];
            dk[row + c] += ds * a->q[i * a->stride + c];
        }
    }
}

static void attention_bwd(const kolo_call *call) {
    const int64_t *dim = call->spec->in[0].shape.dim;
    int64_t heads = call->spec->attr[KOLO_ATTENTION_HEADS].i, length = dim[1], channels = dim[2];
    const double *d_o = call->in[0], *o = call->in[2], *lse = call->in[3];
    double *dqkv = call->out[0];
    memset(dqkv, 0, sizeof(double) * (size_t)kolo_shape_count(&call->spec->out[0].shape));
    for (int64_t n = 0; n < dim[0]; n++) {
        for (int64_t h = 0; h < heads; h++) {
            head a = head_of(call, 1, KOLO_ATTENTION_BWD_INPUTS, n, h);
            double *dq = dqkv + n * length * a.stride + h * a.width;
            for (int64_t i = 0; i < length; i++) {
                int64_t at = (n * length + i) * channels + h * a.width;
                attend_bwd(&a, i, d_o + at, o + at, *lse++, dq, dq + channels, dq + 2 * channels);
            }
        }
    }
}

static void run_attention(const kolo_call *call) { kolo_ref_run(call, attention); }
static void run_attention_bwd(const kolo_call *call) { kolo_ref_run(call, attention_bwd); }

const kolo_kernel kolo_ref_attention =
    KOLO_REF_KERNEL("ref_attention", &kolo_op_attention, run_attention);
const kolo_kernel kolo_ref_attention_bwd =
    KOLO_REF_KERNEL("ref_attention_bwd", &kolo_op_attention_bwd, run_attention_bwd);

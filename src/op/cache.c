/* Attention of new tokens to those before them, whose keys and values are kept in a cache. For
 * generation of text: no gradients. */
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/ref/ref.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *const no_attrs[] = {NULL};

/* Inputs `cache` [N,2K,P,D], `x` [N,T,(H + 2K) D] and `positions` i32 [N,T]. */
static kolo_status check_inputs(const kolo_shape_query *q, int cache, int x) {
    KOLO_TRY(kolo_rule_rank(q, cache, 4, "N,2K,P,D"));
    KOLO_TRY(kolo_rule_rank(q, x, 3, "N,T,C"));
    const int64_t *kept = q->in[cache].shape.dim, *dim = q->in[x].shape.dim;
    const kolo_shape want = kolo_shape_2(dim[0], dim[1]);
    const int64_t queries = dim[2] - kept[1] * kept[3];
    if (kept[1] % 2 != 0 || kept[0] != dim[0] || queries < 0 ||
        queries % (kept[1] / 2 * kept[3]) != 0) {
        return KOLO_RULE_FAIL(q,
                              "%" PRId64 " channels are not those of queries, keys and values for "
                              "the cache",
                              dim[2]);
    }
    if (!kolo_shape_equal(&q->in[2].shape, &want)) {
        return KOLO_RULE_FAIL(q, "the positions must be [%" PRId64 ",%" PRId64 "]", dim[0], dim[1]);
    }
    return KOLO_OK;
}

static kolo_status write_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ffi"));
    KOLO_TRY(check_inputs(q, 0, 1));
    return kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape);
}

static kolo_status attention_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ffi"));
    KOLO_TRY(check_inputs(q, 1, 0));
    const int64_t *kept = q->in[1].shape.dim, *dim = q->in[0].shape.dim;
    const int64_t queries = dim[2] - kept[1] * kept[3];
    if (queries == 0) return KOLO_RULE_FAIL(q, "no channels are left for queries");
    return kolo_rule_out(q, 0, q->in[0].dtype, kolo_shape_3(dim[0], dim[1], queries));
}

/* The new rows, read and written. */
static kolo_cost write_cost(const kolo_shape_query *q) {
    return (kolo_cost){0, 2 * (double)kolo_tensor_bytes(&q->in[1])};
}

/* Multiply-adds with all of the cache. */
static kolo_cost attention_cost(const kolo_shape_query *q) {
    const double rows = (double)q->in[1].shape.dim[2];
    const double elements = (double)kolo_shape_count(&q->out[0].shape);
    return (kolo_cost){4 * elements * rows, kolo_query_bytes(q)};
}

const kolo_op kolo_op_cache_write = {
    .name = "cache_write",
    .index = "nHPD,nTC,nT->nHPD",
    .min_in = 3,
    .max_in = 3,
    .layout = {.in = "ppp", .out = "p"},
    .attrs = no_attrs,
    .shape = write_shape,
    .cost = write_cost,
    .in_place = true,
};
const kolo_op kolo_op_cached_attention = {
    .name = "cached_attention",
    .index = "nTC,nHPD,nT->nTE",
    .min_in = 3,
    .max_in = 3,
    .layout = {.in = "ppp", .out = "p"},
    .attrs = no_attrs,
    .shape = attention_shape,
    .cost = attention_cost,
};

/* ---- reference ---- */

/* Element c of row t of head h of the cache; h from the number of key heads on: values. */
static int64_t kept_at(const kolo_shape *cache, int64_t n, int64_t h, int64_t row) {
    return ((n * cache->dim[1] + h) * cache->dim[2] + row) * cache->dim[3];
}

static void cache_write(const kolo_call *call) {
    const kolo_shape *cache = &call->spec->in[0].shape, *of_x = &call->spec->in[1].shape;
    const int64_t length = of_x->dim[1], heads = cache->dim[1], width = cache->dim[3];
    const int64_t queries = of_x->dim[2] - heads * width;
    const double *x = call->in[1];
    const int32_t *positions = call->in[2];
    double *out = call->out[0];
    const size_t row = sizeof *x * (size_t)width;
    if (out != call->in[0]) memcpy(out, call->in[0], sizeof *x * (size_t)kolo_shape_count(cache));
    for (int64_t i = 0; i < of_x->dim[0] * length; i++) {
        if (positions[i] < 0 || positions[i] >= cache->dim[2]) continue;
        for (int64_t h = 0; h < heads; h++) {
            memcpy(out + kept_at(cache, i / length, h, positions[i]),
                   x + i * of_x->dim[2] + queries + h * width, row);
        }
    }
}

/* A query attends to the first `seen` rows of its keys and values. */
static void attend(const double *q, const double *k, const double *v, int64_t seen, int64_t width,
                   double *o) {
    const double scale = 1 / sqrt((double)width);
    double most = -INFINITY, sum = 0;
    memset(o, 0, sizeof *o * (size_t)width);
    for (int64_t j = 0; j < seen; j++) {
        double score = 0;
        for (int64_t c = 0; c < width; c++) score += q[c] * k[j * width + c];
        score *= scale;
        const double keep = score > most ? exp(most - score) : 1;
        if (score > most) most = score;
        const double p = exp(score - most);
        sum = sum * keep + p;
        for (int64_t c = 0; c < width; c++) o[c] = o[c] * keep + p * v[j * width + c];
    }
    for (int64_t c = 0; c < width && seen > 0; c++) o[c] /= sum;
}

static void cached_attention(const kolo_call *call) {
    const kolo_shape *cache = &call->spec->in[1].shape, *y = &call->spec->out[0].shape;
    const int64_t length = y->dim[1], groups = cache->dim[1] / 2, width = cache->dim[3];
    const int64_t heads = y->dim[2] / width, channels = call->spec->in[0].shape.dim[2];
    const double *x = call->in[0], *kept = call->in[1];
    const int32_t *positions = call->in[2];
    double *out = call->out[0];
    for (int64_t i = 0; i < y->dim[0] * length; i++) {
        const bool is_in = positions[i] >= 0 && positions[i] < cache->dim[2];
        for (int64_t h = 0; h < heads; h++) {
            const int64_t group = h / (heads / groups), n = i / length;
            attend(x + i * channels + h * width, kept + kept_at(cache, n, group, 0),
                   kept + kept_at(cache, n, groups + group, 0), is_in ? positions[i] + 1 : 0, width,
                   out + i * y->dim[2] + h * width);
        }
    }
}

static void run_write(const kolo_call *call) { kolo_ref_run(call, cache_write); }
static void run_attention(const kolo_call *call) { kolo_ref_run(call, cached_attention); }

const kolo_kernel kolo_ops_cache[] = {
    KOLO_REF_KERNEL("ref_cache_write", &kolo_op_cache_write, run_write),
    KOLO_REF_KERNEL("ref_cached_attention", &kolo_op_cached_attention, run_attention),
    {0},
};

/* Attention of new tokens to those before them, whose keys and values are kept in a cache. For
 * generation of text: no gradients. */
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"

#include <inttypes.h>

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

/* Cached keys and values. Of a causal model the keys and values of a token depend on no later
 * token, so generation need not compute them again (Pope et al., "Efficiently scaling transformer
 * inference", 2023). */
#include "pass/cache.h"

#include "base/text.h"
#include "graph/index.h"
#include "graph/ops/ops.h"
#include "pass/pass.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- the check ---- */

/* What a value is along the tokens of the window. */
typedef struct along {
    enum { NO_TOKENS, BY_TOKEN, MIXED } kind;
    int dim;             /* BY_TOKEN: the dimension of the tokens */
    const kolo_node *by; /* MIXED: the first node that needs several tokens; NULL: an input */
} along;

static const kolo_node *maker_of(const kolo_graph *g, kolo_value v) {
    const int32_t producer = kolo_info(g, v)->producer;
    return producer >= 0 ? g->nodes[producer] : NULL;
}

/* Whether tokens attend to themselves and earlier ones, of which no mask hides any. */
static bool is_causal(const kolo_node *n) {
    return n->op == &kolo_op_attention && n->attr[KOLO_ATTENTION_CAUSAL].i && n->n_in == 1;
}

/* The code of a dimension of tokens; where two are merged these are the inner one. */
static int code_of(const kolo_index_term *term, int dim) {
    if (term->inner[dim] != 0) return term->inner[dim];
    return term->parts[dim] == 1 ? term->code[dim] : KOLO_INDEX_WHOLE;
}

/* The index that runs over the tokens: the same in all inputs that have tokens, and in no other.
 * KOLO_INDEX_WHOLE: there is none. */
static int token_code(const kolo_graph *g, const kolo_node *n, const kolo_index *index,
                      const along *of) {
    int code = 0;
    for (int k = 0; k < n->n_in; k++) {
        const along *in = &of[n->in[k].id];
        if (in->kind != BY_TOKEN) continue;
        const int own = code_of(&index->in[k], in->dim);
        if (code != 0 && own != code) return KOLO_INDEX_WHOLE;
        code = own;
    }
    for (int k = 0; k < n->n_in; k++) {
        const int d = kolo_index_find(&index->in[k], code);
        const bool other = of[n->in[k].id].kind == NO_TOKENS && d >= 0;
        if (other && kolo_info(g, n->in[k])->tensor.shape.dim[d] != 1) return KOLO_INDEX_WHOLE;
    }
    return code;
}

/* Whether the positions of tokens are not those that the window begins with. */
static bool is_shifted(const kolo_node *n) {
    return (n->op == &kolo_op_rotary && (n->n_in > 1 || n->attr[KOLO_ROTARY_FIRST].i != 0)) ||
           (n->op == &kolo_op_embedding && n->attr[KOLO_EMBEDDING_POSITION].i != 0);
}

/* What the outputs of a node are whose inputs are by token, or have none. */
static void follow(const kolo_graph *g, const kolo_node *n, along *of) {
    kolo_index index;
    const along mixed = {.kind = MIXED, .by = n};
    int code = KOLO_INDEX_WHOLE;
    if (is_causal(n)) {
        of[n->out[0].id] = of[n->in[0].id];
        of[n->out[1].id] = mixed;
        return;
    }
    if (kolo_op_has_index(n->op) && !is_shifted(n) && kolo_index_of(g, n, &index) == KOLO_OK) {
        code = token_code(g, n, &index, of);
    }
    for (int k = 0; k < n->n_out; k++) {
        const int d = code == KOLO_INDEX_WHOLE ? -1 : kolo_index_find(&index.out[k], code);
        const bool by_token = d >= 0 && code_of(&index.out[k], d) == code;
        of[n->out[k].id] = by_token ? (along){.kind = BY_TOKEN, .dim = d} : mixed;
    }
}

static void follow_node(const kolo_graph *g, const kolo_node *n, along *of) {
    along all = {.kind = NO_TOKENS};
    for (int k = 0; k < n->n_in; k++) {
        const along *in = &of[n->in[k].id];
        if (in->kind > all.kind) all = *in;
    }
    if (all.kind == BY_TOKEN) {
        follow(g, n, of);
        return;
    }
    for (int k = 0; k < n->n_out; k++) of[n->out[k].id] = all;
}

static kolo_status fail_mixed(const along *logits) {
    if (!logits->by) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "the logits depend on other inputs than the tokens");
    }
    const kolo_op *op = logits->by->op;
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "%s %s", op->name,
                     op == &kolo_op_attention
                         ? "attends to later tokens too, or has a mask"
                         : "takes the tokens of a window together, or differs by their positions");
}

kolo_status kolo_cache_check(const kolo_graph *g) {
    const kolo_value x = kolo_graph_find(g, "x"), logits = kolo_graph_output(g, "logits");
    if (!kolo_value_ok(x) || !kolo_value_ok(logits) || kolo_info(g, x)->tensor.shape.rank != 2) {
        return KOLO_FAIL(KOLO_ERR_ARG, "the model has no input \"x\" of tokens [N,T], or no output "
                                       "\"logits\"");
    }
    along *of = kolo_zalloc(((size_t)g->n_values + 1) * sizeof *of);
    if (!of) return KOLO_NOMEM((size_t)g->n_values * sizeof *of);
    for (int32_t v = 0; v < g->n_values; v++) {
        if (g->values[v].kind == KOLO_VALUE_INPUT) of[v].kind = MIXED;
    }
    of[x.id] = (along){.kind = BY_TOKEN, .dim = 1};
    for (int32_t i = 0; i < g->n_nodes; i++) follow_node(g, g->nodes[i], of);
    const along result = of[logits.id];
    kolo_free(of);
    return result.kind == BY_TOKEN ? KOLO_OK : fail_mixed(&result);
}

/* ---- the pass ---- */

typedef struct cacher {
    kolo_graph *g;
    const kolo_cache_opts *opts;
    kolo_value positions;
    kolo_value *alias; /* by value of the graph before: what replaces it */
    kolo_node **nodes; /* in the new order */
    int32_t n_nodes;
    int caches;
} cacher;

/* The value whose heads, `width` wide, are repeated for the queries of their groups to give v,
 * [N,T,K D] -> [N,T,H D]; v itself if there is none. Sets the number of heads K, else leaves it. */
static kolo_value before_repeat(const kolo_graph *g, kolo_value v, int64_t width, int64_t *heads) {
    const kolo_node *merge = maker_of(g, v), *concat, *split;
    if (!merge || merge->op != &kolo_op_reshape) return v;
    concat = maker_of(g, merge->in[0]);
    if (!concat || concat->op != &kolo_op_concat || concat->attr[KOLO_CONCAT_AXIS].i != 3) return v;
    for (int k = 1; k < concat->n_in; k++) {
        if (concat->in[k].id != concat->in[0].id) return v;
    }
    split = maker_of(g, concat->in[0]);
    if (!split || split->op != &kolo_op_reshape) return v;
    const kolo_shape *x = &kolo_info(g, split->in[0])->tensor.shape;
    const kolo_shape *cut = &kolo_info(g, concat->in[0])->tensor.shape;
    if (x->rank != 3 || cut->rank != 5 || cut->dim[3] != 1 || cut->dim[4] != width ||
        cut->dim[0] != x->dim[0] || cut->dim[1] != x->dim[1]) {
        return v;
    }
    *heads = cut->dim[2];
    return split->in[0];
}

/* Queries, keys and values as [N,T,(H + 2K) D] of what an attention reads; K is *heads, and fewer
 * than those of the queries where the model repeats these. */
static kolo_value pack(cacher *c, const kolo_node *n, int64_t *heads) {
    kolo_graph *g = c->g;
    const kolo_node *concat = maker_of(g, n->in[0]);
    *heads = n->attr[KOLO_ATTENTION_HEADS].i;
    if (!concat || concat->op != &kolo_op_concat || concat->n_in != 3 ||
        concat->attr[KOLO_CONCAT_AXIS].i != 2) {
        return n->in[0];
    }
    const kolo_shape *o = &kolo_info(g, n->out[0])->tensor.shape;
    const int64_t width = o->dim[2] / *heads;
    int64_t of_keys = 0, of_values = 0;
    const kolo_value part[] = {concat->in[0], before_repeat(g, concat->in[1], width, &of_keys),
                               before_repeat(g, concat->in[2], width, &of_values)};
    const kolo_shape *q = &kolo_info(g, part[0])->tensor.shape;
    if (of_keys == 0 || of_keys != of_values || !kolo_shape_equal(q, o)) return n->in[0];
    *heads = of_keys;
    return kolo_concat_along(g, part, 3, 2);
}

/* Adds what writes the keys and values of an attention; returns the cache as it is then. */
static kolo_value write_cache(cacher *c, const kolo_node *n, kolo_value packed, int64_t heads) {
    kolo_graph *g = c->g;
    char name[32];
    const kolo_shape *o = &kolo_info(g, n->out[0])->tensor.shape;
    const int64_t width = o->dim[2] / n->attr[KOLO_ATTENTION_HEADS].i;
    snprintf(name, sizeof name, KOLO_CACHE_STATE "%d", c->caches++);
    const kolo_value cache =
        kolo_graph_buffer(g, name, kolo_shape_4(o->dim[0], 2 * heads, c->opts->rows, width));
    const kolo_value in[] = {cache, packed, c->positions};
    const kolo_value next = kolo_graph_add1(g, &kolo_op_cache_write, in, 3, NULL);
    if (kolo_value_ok(next)) kolo_info(g, next)->next_of = cache;
    return next;
}

/* Adds the nodes that replace n, and sets what replaces its output 0; none: n stays. */
static kolo_value replace(cacher *c, const kolo_node *n) {
    kolo_graph *g = c->g;
    if (n->op == &kolo_op_attention) {
        int64_t heads;
        const kolo_value packed = pack(c, n, &heads), cache = write_cache(c, n, packed, heads);
        const kolo_value in[] = {packed, cache, c->positions};
        return c->opts->first ? KOLO_NONE
                              : kolo_graph_add1(g, &kolo_op_cached_attention, in, 3, NULL);
    }
    if (c->opts->first) return KOLO_NONE;
    if (n->op == &kolo_op_rotary) {
        const kolo_value in[] = {n->in[0], c->positions};
        return kolo_graph_add1(g, &kolo_op_rotary, in, 2, n->attr);
    }
    if (n->op == &kolo_op_embedding && n->n_in == 3) {
        return kolo_add(g, kolo_graph_add1(g, n->op, n->in, 2, n->attr),
                        kolo_embedding(g, n->in[2], c->positions, KOLO_NONE));
    }
    return KOLO_NONE;
}

static kolo_status rewrite_nodes(cacher *c) {
    kolo_graph *g = c->g;
    const int32_t n_old = g->n_nodes;
    for (int32_t i = 0; i < n_old; i++) {
        kolo_node *n = g->nodes[i];
        const int32_t first = g->n_nodes;
        for (int k = 0; k < n->n_in; k++) n->in[k] = c->alias[n->in[k].id];
        const kolo_value by = replace(c, n);
        KOLO_TRY(kolo_graph_check(g));
        if (!kolo_value_ok(by)) c->nodes[c->n_nodes++] = n;
        for (int32_t k = first; k < g->n_nodes; k++) c->nodes[c->n_nodes++] = g->nodes[k];
        if (kolo_value_ok(by)) c->alias[n->out[0].id] = by;
    }
    return kolo_graph_set_nodes(g, c->nodes, c->n_nodes);
}

static kolo_status rewrite(cacher *c) {
    kolo_graph *g = c->g;
    const kolo_value x = kolo_graph_find(g, "x"), logits = kolo_graph_output(g, "logits");
    const int32_t n_values = g->n_values;
    enum { MOST_NODES = 4 }; /* that replace one */
    KOLO_ASSERT(kolo_value_ok(x) && kolo_value_ok(logits));
    g->n_outputs = 0;
    kolo_output(g, "logits", logits);
    KOLO_TRY(kolo_graph_prune(g));
    c->positions =
        kolo_input(g, KOLO_CACHE_POSITIONS, KOLO_DTYPE_I32, kolo_info(g, x)->tensor.shape);
    KOLO_TRY(kolo_graph_check(g));
    c->alias = kolo_alloc(((size_t)n_values + 1) * sizeof *c->alias);
    c->nodes = kolo_alloc(((size_t)g->n_nodes * MOST_NODES + 1) * sizeof *c->nodes);
    if (!c->alias || !c->nodes) return KOLO_NOMEM((size_t)n_values * sizeof *c->alias);
    for (int32_t v = 0; v < n_values; v++) c->alias[v] = (kolo_value){.id = v};
    KOLO_TRY(rewrite_nodes(c));
    g->outputs[0].value = c->alias[logits.id];
    return kolo_graph_prune(g);
}

kolo_status kolo_pass_cache(kolo_graph *g, const kolo_cache_opts *opts) {
    cacher c = {.g = g, .opts = opts};
    kolo_status status = kolo_pass_inference(g);
    if (status == KOLO_OK) status = rewrite(&c);
    kolo_free(c.alias);
    kolo_free((void *)c.nodes);
    return status;
}

/* Batch normalisation folded into the convolution before it, for evaluation: by running statistics
 * it is one factor and one summand for each channel, which the convolution's weights and bias take
 * over.
 *
 *   batch_norm_infer(conv2d(x, w), ...)  ->  conv2d(x, w', b') with w', b' = norm_weights(w, ...)
 *
 * What is spared is a sweep over the convolution's result, and the activation that follows may then
 * be a part of the convolution (pass/fold.c, which runs next). What is paid is a sweep over the
 * weights, as parameters may have changed since the last batch; so it is done where the result has
 * more elements than the weights. Numbers change by rounding alone. */
#include "graph/op.h"
#include "pass/pass.h"

typedef struct norm_folder {
    kolo_graph *g;
    int *uses;         /* of each value, by nodes and outputs */
    kolo_value *alias; /* the value that stands for it now */
    kolo_node **order; /* the nodes of the graph to be */
    int32_t n;
} norm_folder;

static int64_t count_of(const kolo_graph *g, kolo_value v) {
    return kolo_shape_count(&kolo_info(g, v)->tensor.shape);
}

/* The convolution that a normalisation may go into, NULL when there is none. */
static kolo_node *convolution_of(const norm_folder *f, const kolo_node *norm) {
    if (norm->op != &kolo_op_batch_norm_infer || norm->n_in != 5) return NULL;
    int32_t producer = kolo_info(f->g, norm->in[0])->producer;
    kolo_node *conv = producer >= 0 ? f->g->nodes[producer] : NULL;
    bool fits = conv && conv->op == &kolo_op_conv2d && conv->n_in == 2 &&
                !conv->attr[KOLO_CONV_RELU].i && f->uses[conv->out[0].id] == 1;
    return fits && count_of(f->g, conv->in[1]) < count_of(f->g, conv->out[0]) ? conv : NULL;
}

/* The convolution takes the place of the normalisation, the new weights' node stands before it. */
static kolo_status fold(norm_folder *f, kolo_node *conv, const kolo_node *norm) {
    kolo_value in[5] = {conv->in[1]}, out[KOLO_MAX_IO];
    for (int k = 1; k < 5; k++) in[k] = norm->in[k];
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_NORM_WEIGHTS_EPS] = norm->attr[KOLO_NORM_EPS]};
    kolo_graph_add(f->g, &kolo_op_norm_weights, in, 5, attr, out);
    KOLO_TRY(kolo_graph_check(f->g));
    kolo_value *conv_in = kolo_arena_alloc(&f->g->arena, 3 * sizeof *conv_in);
    if (!conv_in) return KOLO_NOMEM(3 * sizeof *conv_in);
    conv_in[0] = conv->in[0];
    conv_in[1] = out[0];
    conv_in[2] = out[1];
    conv->in = conv_in;
    conv->n_in = 3;
    conv->attr[KOLO_CONV_RELU].i = norm->attr[KOLO_NORM_RELU].i;
    f->alias[norm->out[0].id] = conv->out[0];
    int32_t at = f->n++; /* moves what follows the convolution by one */
    for (; f->order[at - 1] != conv; at--) f->order[at] = f->order[at - 1];
    f->order[at] = conv;
    f->order[at - 1] = f->g->nodes[f->g->n_nodes - 1];
    return KOLO_OK;
}

static kolo_status walk(norm_folder *f, int32_t n_nodes) {
    kolo_graph *g = f->g;
    for (int32_t i = 0; i < n_nodes; i++) {
        kolo_node *node = g->nodes[i];
        for (int k = 0; k < node->n_in; k++) node->in[k] = f->alias[node->in[k].id];
        kolo_node *conv = convolution_of(f, node);
        if (conv) {
            KOLO_TRY(fold(f, conv, node));
        } else {
            f->order[f->n++] = node;
        }
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        g->outputs[i].value = f->alias[g->outputs[i].value.id];
    }
    return kolo_graph_set_nodes(g, f->order, f->n);
}

static void count_uses(const norm_folder *f) {
    const kolo_graph *g = f->g;
    for (int32_t v = 0; v < g->n_values; v++) f->alias[v] = (kolo_value){v};
    for (int32_t i = 0; i < g->n_nodes; i++) {
        for (int k = 0; k < g->nodes[i]->n_in; k++) f->uses[g->nodes[i]->in[k].id]++;
    }
    for (int32_t i = 0; i < g->n_outputs; i++) f->uses[g->outputs[i].value.id]++;
}

kolo_status kolo_pass_fold_norm(kolo_graph *g) {
    norm_folder f = {.g = g};
    size_t n_values = (size_t)g->n_values + 1, n_nodes = 2 * (size_t)g->n_nodes + 1;
    kolo_status status;
    f.uses = kolo_zalloc(n_values * sizeof *f.uses);
    f.alias = kolo_alloc(n_values * sizeof *f.alias);
    f.order = kolo_alloc(n_nodes * sizeof *f.order);
    if (f.uses && f.alias && f.order) {
        count_uses(&f);
        status = walk(&f, g->n_nodes);
    } else {
        status = KOLO_NOMEM(n_values * sizeof *f.alias);
    }
    kolo_free(f.uses);
    kolo_free(f.alias);
    kolo_free(f.order);
    return status;
}

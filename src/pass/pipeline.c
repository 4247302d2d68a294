/* The passes in order. Each leaves a graph that the verifier accepts.
 *
 *     to train
 *         [sparse], fold, statistics, gradient, optimiser, fuse, prune, recompute, [precision],
 *         layout, [accumulate], bucket
 *
 *     to evaluate
 *         [sparse], inference, fold, prune, [precision], layout
 *
 * and then memory, which only reads the graph (plan/compile.c calls it). */
#include "graph/op.h"
#include "pass/pass.h"

#include <string.h>

/* Drops the outputs that this kind of plan does not compute. A training step keeps the scalars but
 * "aux_loss": sums over the batch that it reports; this frees the memory of logits. Evaluation
 * drops "aux_loss". Pruning then removes the nodes that lead to them alone. */
static void drop_outputs(kolo_graph *g, bool train) {
    int32_t kept = 0;
    for (int32_t i = 0; i < g->n_outputs; i++) {
        bool scalar = kolo_info(g, g->outputs[i].value)->tensor.shape.rank == 0;
        bool keep = (scalar || !train) && strcmp(g->outputs[i].name, "aux_loss") != 0;
        if (keep) g->outputs[kept++] = g->outputs[i];
    }
    g->n_outputs = kept;
}

/* The loss that is made small, which is what a training step reports: "loss" and, where there is
 * one, "aux_loss". */
static kolo_status training_loss(kolo_graph *g, kolo_value *loss) {
    kolo_value aux = kolo_graph_output(g, "aux_loss");
    *loss = kolo_graph_output(g, "loss");
    if (!kolo_value_ok(*loss)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a graph to train needs an output named \"loss\"");
    }
    if (!kolo_value_ok(aux)) return KOLO_OK;
    *loss = kolo_add(g, *loss, aux);
    for (int32_t i = 0; i < g->n_outputs; i++) {
        if (strcmp(g->outputs[i].name, "loss") == 0) g->outputs[i].value = *loss;
    }
    return kolo_graph_check(g);
}

static kolo_status add_training(kolo_graph *g, const kolo_pipeline_opts *opts) {
    kolo_value loss;
    KOLO_TRY(training_loss(g, &loss));
    drop_outputs(g, true);
    kolo_value seed = kolo_graph_find(g, "grad_scale");
    if (!kolo_value_ok(seed)) seed = kolo_scalar(g, "grad_scale");
    KOLO_TRY(kolo_pass_statistics(g));
    KOLO_TRY(kolo_graph_verify(g));
    KOLO_TRY(kolo_pass_gradient(g, loss, seed));
    KOLO_TRY(kolo_graph_verify(g));
    KOLO_TRY(kolo_pass_optimizer(g, &opts->optimizer));
    KOLO_TRY(kolo_graph_verify(g));
    return kolo_pass_fuse(g);
}

kolo_status kolo_pipeline_run(kolo_graph *g, const kolo_pipeline_opts *opts) {
    int ranks = opts->ranks ? opts->ranks : 1;
    KOLO_TRY(kolo_graph_verify(g));
    if (opts->sparse_embedding) {
        KOLO_TRY(kolo_pass_sparse(g, &(kolo_sparse_opts){opts->most_samples, ranks}));
    }
    if (!opts->train) {
        KOLO_TRY(kolo_pass_inference(g));
        KOLO_TRY(kolo_graph_verify(g));
    }
    KOLO_TRY(kolo_pass_fold(g, opts->train));
    KOLO_TRY(kolo_graph_verify(g));
    /* Outputs go after folding, so that both kinds of plan see the parameters alike. */
    if (opts->train) {
        KOLO_TRY(add_training(g, opts));
    } else {
        drop_outputs(g, false);
    }
    KOLO_TRY(kolo_graph_prune(g));
    KOLO_TRY(kolo_graph_verify(g));
    if (opts->train) {
        kolo_value seed = kolo_graph_find(g, "grad_scale");
        KOLO_TRY(kolo_pass_recompute(g, opts->recompute, seed));
        KOLO_TRY(kolo_graph_verify(g));
    }
    if (opts->precision == KOLO_PRECISION_BF16) {
        KOLO_TRY(kolo_pass_precision(g, kolo_kernel_has_bf16()));
        KOLO_TRY(kolo_graph_verify(g));
    }
    KOLO_TRY(kolo_pass_layout(g, opts->kernels, opts->tuner, opts->threads, opts->fixed,
                              opts->fixed_arg));
    KOLO_TRY(kolo_graph_verify(g));
    if (!opts->train) return KOLO_OK;
    if (opts->micro_batches > 1) KOLO_TRY(kolo_pass_accumulate(g, opts->micro_batches));
    KOLO_TRY(kolo_graph_verify(g));
    KOLO_TRY(kolo_pass_bucket(g, opts->bucket_bytes, ranks));
    return kolo_graph_verify(g);
}

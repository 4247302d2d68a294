/* The passes in order. Each leaves a graph that the verifier accepts.
 *
 *   fold -> statistics -> gradient -> optimiser -> prune -> layout -> accumulate -> bucket   to
 * train inference -> fold -> prune -> layout                                       to evaluate
 *
 * and then memory, which only reads the graph (plan/compile.c calls it). */
#include "graph/op.h"
#include "pass/pass.h"

static kolo_status add_training(kolo_graph *g, const kolo_pipeline_opts *opts) {
    kolo_value loss = kolo_graph_output(g, "loss");
    if (!kolo_value_ok(loss)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a graph to train needs an output named \"loss\"");
    }
    kolo_value seed = kolo_graph_find(g, "grad_scale");
    if (!kolo_value_ok(seed)) seed = kolo_scalar(g, "grad_scale");
    KOLO_TRY(kolo_pass_statistics(g));
    KOLO_TRY(kolo_graph_verify(g));
    KOLO_TRY(kolo_pass_gradient(g, loss, seed));
    KOLO_TRY(kolo_graph_verify(g));
    return kolo_pass_optimizer(g, &opts->optimizer);
}

kolo_status kolo_pipeline_run(kolo_graph *g, const kolo_pipeline_opts *opts) {
    KOLO_TRY(kolo_graph_verify(g));
    if (!opts->train) KOLO_TRY(kolo_pass_inference(g));
    KOLO_TRY(kolo_pass_fold(g));
    KOLO_TRY(kolo_graph_verify(g));
    if (opts->train) KOLO_TRY(add_training(g, opts));
    KOLO_TRY(kolo_graph_prune(g));
    KOLO_TRY(kolo_graph_verify(g));
    KOLO_TRY(kolo_pass_layout(g, opts->kernels, opts->threads, opts->fixed, opts->fixed_arg));
    KOLO_TRY(kolo_graph_verify(g));
    if (!opts->train) return KOLO_OK;
    if (opts->micro_batches > 1) KOLO_TRY(kolo_pass_accumulate(g, opts->micro_batches));
    KOLO_TRY(kolo_graph_verify(g));
    KOLO_TRY(kolo_pass_bucket(g, opts->bucket_bytes));
    return kolo_graph_verify(g);
}

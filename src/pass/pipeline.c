/* The pass pipeline: a table of passes in order, each with its condition. The runner verifies the
 * graph after every pass. The memory pass, which only reads the graph, runs later
 * (plan/compile.c). */
#include "base/compiler.h"
#include "graph/ops/ops.h"
#include "graph/propagate.h"
#include "kernel/select/cache.h"
#include "kernel/select/families.h"
#include "pass/cuts.h"
#include "pass/lanes.h"
#include "pass/late_weights.h"
#include "pass/partition/recurrence.h"
#include "pass/pass.h"

#include <string.h>

/* Drops the outputs that this kind of plan does not compute. A training step keeps the scalars but
 * "aux_loss": sums over the batch that it reports; this frees the memory of logits. Evaluation
 * drops "aux_loss". Pruning then removes the nodes that lead to them alone. */
static kolo_status drop_outputs(kolo_graph *g, const kolo_pipeline_opts *opts) {
    int32_t kept = 0;
    for (int32_t i = 0; i < g->n_outputs; i++) {
        bool scalar = kolo_info(g, g->outputs[i].value)->tensor.shape.rank == 0;
        bool keep = (scalar || !opts->train) && strcmp(g->outputs[i].name, "aux_loss") != 0;
        if (keep) g->outputs[kept++] = g->outputs[i];
    }
    g->n_outputs = kept;
    return KOLO_OK;
}

/* The objective: the output "loss" becomes the sum of "loss" and, if there is one, "aux_loss". Adds
 * the scalar "grad_scale", the gradient of the objective. */
static kolo_status add_objective(kolo_graph *g, const kolo_pipeline_opts *opts) {
    (void)opts;
    kolo_value aux = kolo_graph_output(g, "aux_loss"), loss = kolo_graph_output(g, "loss");
    if (!kolo_value_ok(loss)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a graph to train needs an output named \"loss\"");
    }
    if (kolo_value_ok(aux)) {
        kolo_value sum = kolo_add(g, loss, aux);
        for (int32_t i = 0; i < g->n_outputs; i++) {
            if (strcmp(g->outputs[i].name, "loss") == 0) g->outputs[i].value = sum;
        }
    }
    if (!kolo_value_ok(kolo_graph_find(g, "grad_scale"))) (void)kolo_scalar(g, "grad_scale");
    return kolo_graph_check(g);
}

/* ---- the passes under one signature ---- */

static kolo_status freeze(kolo_graph *g, const kolo_pipeline_opts *opts) {
    return kolo_pass_freeze(g, opts->optimizer.freeze);
}
static kolo_status sparse(kolo_graph *g, const kolo_pipeline_opts *opts) {
    const kolo_sparse_opts sparse_opts = {opts->most_samples, opts->mesh, opts->micro_batches};
    return kolo_pass_sparse(g, &sparse_opts);
}
static kolo_status inference(kolo_graph *g, const kolo_pipeline_opts *opts) {
    (void)opts;
    return kolo_pass_inference(g);
}
static kolo_status windows(kolo_graph *g, const kolo_pipeline_opts *opts) {
    (void)opts;
    return kolo_pass_windows(g);
}
static kolo_status fold(kolo_graph *g, const kolo_pipeline_opts *opts) {
    return kolo_pass_fold(g, opts->train);
}
/* One rank runs any op, if it holds all samples of a step. It does not where a run of the graph is
 * of some of them: then the graph is one that ranks can share. */
static kolo_status shard(kolo_graph *g, const kolo_pipeline_opts *opts) {
    const char *parts = opts->by_shard            ? "logical shards (reproducible)"
                        : opts->micro_batches > 1 ? "micro-batches (accumulate)"
                                                  : NULL;
    kolo_mesh mesh = {1, {{"dp", 1}}};
    if (opts->mesh.n_axes > 0) mesh = opts->mesh;
    g->rank = opts->rank;
    const int dp = kolo_mesh_find(&mesh, "dp");
    if (!parts || dp < 0 || mesh.axes[dp].size > 1) return kolo_pass_shard(g, &mesh);
    mesh.axes[dp].size = 2;
    const kolo_status status = kolo_pass_shard(g, &mesh);
    g->mesh.axes[dp].size = 1;
    if (status == KOLO_OK) return KOLO_OK;
    return kolo_fail_in(status,
                        "%s divide the samples of a step, and an op needs all of them: train "
                        "without these, or compute it for each sample by itself",
                        parts);
}
static kolo_status partition(kolo_graph *g, const kolo_pipeline_opts *opts) {
    g->mesh = opts->mesh;
    g->rank = opts->rank;
    if (opts->tp_blocks > 0) {
        return kolo_pass_blocks(g, opts->placement, opts->sharded_outputs, opts->tp_blocks);
    }
    return kolo_pass_partition(g, opts->placement, opts->sharded_outputs);
}
/* The parts of the stages of the mesh. */
static kolo_parts parts_of(const kolo_pipeline_opts *o) {
    return (kolo_parts){kolo_mesh_stages(&o->mesh), o->parts.chunks > 0 ? o->parts.chunks : 1,
                        o->parts.path};
}
static kolo_status cuts(kolo_graph *g, const kolo_pipeline_opts *opts) {
    const kolo_cut_opts cut_opts = {.parts = parts_of(opts)};
    return kolo_pass_cuts(g, &cut_opts, opts->cuts, opts->cut_names);
}
static kolo_status units(kolo_graph *g, const kolo_pipeline_opts *opts) {
    (void)opts;
    return kolo_pass_units(g);
}
static kolo_status stages(kolo_graph *g, const kolo_pipeline_opts *opts) {
    const bool none = kolo_count_batch_norms(g) == 0; /* a stage alone may have none */
    if (opts->train && opts->sync_batch_norm && none) {
        return KOLO_FAIL(KOLO_ERR_ARG, "the model has no batch normalization to synchronize: "
                                       "omit --sync-bn");
    }
    const kolo_parts parts = parts_of(opts);
    const bool ties = opts->train && opts->by_shard;
    return kolo_pass_stages(g, &opts->mesh, opts->rank, &parts, opts->cuts, ties);
}
static kolo_status segments(kolo_graph *g, const kolo_pipeline_opts *opts) {
    return kolo_pass_segments(g, opts->splits);
}
static kolo_status synchronize(kolo_graph *g, const kolo_pipeline_opts *opts) {
    (void)opts;
    return kolo_pass_synchronize(g);
}
static kolo_status statistics(kolo_graph *g, const kolo_pipeline_opts *opts) {
    (void)opts;
    return kolo_pass_statistics(g);
}
static kolo_status gradient(kolo_graph *g, const kolo_pipeline_opts *opts) {
    (void)opts;
    return kolo_pass_gradient(g, kolo_graph_output(g, "loss"), kolo_graph_find(g, "grad_scale"));
}
/* Makes each dense gradient an output, named by the id of its parameter. */
static kolo_status keep_gradients(kolo_graph *g, const kolo_pipeline_opts *opts) {
    (void)opts;
    for (int32_t v = 0; v < g->n_values; v++) {
        const kolo_value_info *info = &g->values[v];
        if (info->kind != KOLO_VALUE_PARAM || !kolo_value_ok(info->grad) || info->rows) continue;
        char name[KOLO_GRADIENT_NAME];
        kolo_output(g, kolo_gradient_name(v, name), info->grad);
        KOLO_TRY(kolo_graph_check(g));
        g->outputs[g->n_outputs - 1].parameter = (kolo_value){.id = v};
    }
    return kolo_graph_check(g);
}
static kolo_status optimizer(kolo_graph *g, const kolo_pipeline_opts *opts) {
    return kolo_pass_optimizer(g, &opts->optimizer);
}
static kolo_status fuse(kolo_graph *g, const kolo_pipeline_opts *opts) {
    (void)opts;
    return kolo_pass_fuse(g);
}
static kolo_status prune(kolo_graph *g, const kolo_pipeline_opts *opts) {
    (void)opts;
    return kolo_graph_prune(g);
}
static kolo_status recompute(kolo_graph *g, const kolo_pipeline_opts *opts) {
    return kolo_pass_recompute(g, opts->recompute, kolo_graph_find(g, "grad_scale"));
}
static kolo_status halos(kolo_graph *g, const kolo_pipeline_opts *opts) {
    (void)opts;
    return kolo_pass_halos(g, kolo_graph_find(g, "grad_scale"));
}
static kolo_status precision(kolo_graph *g, const kolo_pipeline_opts *opts) {
    (void)opts;
    return kolo_pass_precision(g, kolo_kernel_has_bf16());
}
static kolo_status halves(kolo_graph *g, const kolo_pipeline_opts *opts) {
    (void)opts;
    return kolo_pass_halves(g, kolo_kernel_has_bf16());
}
static kolo_status layout(kolo_graph *g, const kolo_pipeline_opts *opts) {
    kolo_selections own = {0}, *selections = opts->selections ? opts->selections : &own;
    const kolo_layout_opts layout_opts = {
        .kernels = opts->kernels,
        .tuner = opts->tuner,
        .selections = selections,
        .threads = opts->threads,
        .fixed = opts->fixed,
        .fixed_arg = opts->fixed_arg,
        .decider = opts->layout_decider,
        .whole = opts->whole,
    };
    const kolo_status status = kolo_pass_layout(g, &layout_opts);
    kolo_selections_fini(&own);
    return status;
}
static kolo_status outer_state(kolo_graph *g, const kolo_pipeline_opts *opts) {
    return kolo_pass_outer_state(g, opts->delays);
}
static kolo_status residual_state(kolo_graph *g, const kolo_pipeline_opts *opts) {
    return kolo_pass_residual_state(g, &opts->pushed, opts->pushing_ranks, opts->pushing_rank);
}
/* Each rank has optimizer state of its own. */
static kolo_status local_state(kolo_graph *g, const kolo_pipeline_opts *opts) {
    for (int32_t v = 0; v < g->n_values; v++) {
        const kolo_value_info *info = &g->values[v];
        bool own = info->kind == KOLO_VALUE_STATE && strncmp(info->name, "optimizer.", 10) == 0;
        if (own) kolo_graph_make_local(g, (kolo_value){.id = v}, opts->versions, opts->version);
    }
    return KOLO_OK;
}
static kolo_status zero(kolo_graph *g, const kolo_pipeline_opts *opts) {
    const kolo_zero_opts zero_opts = {
        .level = opts->zero,
        .share = opts->share,
        .bucket_bytes = opts->bucket_bytes,
        .shares = opts->shares,
        .unit_bytes = opts->unit_bytes,
        .fixed = opts->fixed_cut,
        .fixed_arg = opts->fixed_arg,
    };
    if (!opts->train) { /* placements are of parameters alone */
        g->mesh = opts->mesh;
        g->rank = opts->rank;
    }
    return kolo_pass_zero(g, &zero_opts);
}
static kolo_status ring(kolo_graph *g, const kolo_pipeline_opts *opts) {
    (void)opts;
    return kolo_pass_ring(g);
}
static kolo_status recurrence(kolo_graph *g, const kolo_pipeline_opts *opts) {
    (void)opts;
    return kolo_pass_recurrence(g);
}
static kolo_status accumulate(kolo_graph *g, const kolo_pipeline_opts *opts) {
    int64_t parts = opts->micro_batches > 1 ? opts->micro_batches : 1;
    return kolo_pass_accumulate(g, parts, opts->zero > 1);
}
static kolo_status sync_batch_norm(kolo_graph *g, const kolo_pipeline_opts *opts) {
    (void)opts;
    return kolo_pass_sync_batch_norm(g);
}
static kolo_status lag(kolo_graph *g, const kolo_pipeline_opts *opts) {
    return kolo_pass_lag(g, opts->lag);
}
static kolo_status compress(kolo_graph *g, const kolo_pipeline_opts *opts) {
    /* Updates alone may be of some parameters. */
    if (!opts->updates_only) {
        KOLO_TRY(kolo_patterns_check(g, "compress", opts->compression.only));
    }
    return kolo_pass_compress(g, &opts->compression);
}
static bool runs_ahead(const kolo_pipeline_opts *opts);
static kolo_status lower_comm(kolo_graph *g, const kolo_pipeline_opts *opts) {
    const size_t in_flight = opts->zero > 1 ? 4 * opts->bucket_bytes : SIZE_MAX;
    const kolo_bucket_sizes sizes = {.least = opts->bucket_bytes,
                                     .most = opts->most_buckets,
                                     .each = opts->bucket_sizes,
                                     .n = opts->n_bucket_sizes,
                                     .ahead = runs_ahead(opts)};
    return kolo_pass_lower_comm(g, &sizes, in_flight, opts->keep_sums, opts->summands);
}

static kolo_status late_weights(kolo_graph *g, const kolo_pipeline_opts *opts) {
    return kolo_pass_late_weights(g, opts->near);
}

static kolo_status cross_step(kolo_graph *g, const kolo_pipeline_opts *opts) {
    (void)opts;
    return kolo_pass_cross_step(g);
}

static kolo_status chains(kolo_graph *g, const kolo_pipeline_opts *opts) {
    const kolo_chains_opts chains_opts = {opts->kernels, opts->tuner, opts->selections,
                                          opts->threads};
    return kolo_pass_chains(g, &chains_opts);
}

static kolo_status lanes(kolo_graph *g, const kolo_pipeline_opts *opts) {
    kolo_selections own = {0};
    const kolo_lanes_opts lanes_opts = {opts->lanes, opts->kernels, opts->tuner,
                                        opts->selections ? opts->selections : &own, opts->threads};
    const kolo_status status = kolo_pass_lanes(g, &lanes_opts);
    kolo_selections_fini(&own);
    return status;
}

static bool always(const kolo_pipeline_opts *o) { return o != NULL; }
static bool trains(const kolo_pipeline_opts *o) { return o->train && !o->updates_only; }
static bool has_layers(const kolo_pipeline_opts *o) { return !o->updates_only; }
static bool is_local(const kolo_pipeline_opts *o) { return trains(o) && o->versions > 0; }
static bool has_outer_state(const kolo_pipeline_opts *o) { return trains(o) && o->outer; }
static bool pushes_codes(const kolo_pipeline_opts *o) { return trains(o) && o->pushing_ranks > 0; }
static bool evaluates(const kolo_pipeline_opts *o) { return !o->train; }
static bool is_zero(const kolo_pipeline_opts *o) {
    return o->zero > (o->train ? 0 : 2) || (o->train && o->share);
}
static bool marks_units(const kolo_pipeline_opts *o) { return o->marks_units; }
static bool is_staged(const kolo_pipeline_opts *o) { return kolo_mesh_stages(&o->mesh) > 1; }
static bool is_partitioned(const kolo_pipeline_opts *o) {
    return kolo_mesh_divides_layers(&o->mesh) || o->tp_blocks > 0;
}
static bool divides_rows(const kolo_pipeline_opts *o) {
    return o->train && is_partitioned(o) && !is_staged(o);
}
static bool communicates(const kolo_pipeline_opts *o) {
    return o->train || is_zero(o) || is_partitioned(o);
}
static bool freezes(const kolo_pipeline_opts *o) {
    return o->optimizer.freeze && *o->optimizer.freeze;
}
static bool lags(const kolo_pipeline_opts *o) { return trains(o) && o->lag > 0; }
static bool compresses(const kolo_pipeline_opts *o) {
    return o->train && kolo_compresses(&o->compression);
}
static bool is_sparse(const kolo_pipeline_opts *o) { return o->sparse_embedding; }
static bool synchronizes_norms(const kolo_pipeline_opts *o) {
    return o->train && o->sync_batch_norm;
}
static bool recomputes(const kolo_pipeline_opts *o) {
    return o->train && o->recompute != KOLO_RECOMPUTE_NONE;
}
static bool is_mixed(const kolo_pipeline_opts *o) { return o->precision == KOLO_PRECISION_BF16; }
static bool is_mixed_and_staged(const kolo_pipeline_opts *o) { return is_mixed(o) && is_staged(o); }
static bool keeps_gradients(const kolo_pipeline_opts *o) { return o->train && o->keep_gradients; }
static bool crosses_steps(const kolo_pipeline_opts *o) { return trains(o) && o->cross_step; }
/* Reference kernels need no chains: they run on whole tensors. */
static bool has_chains(const kolo_pipeline_opts *o) {
    return has_layers(o) && !o->no_chains && o->kernels != KOLO_KERNELS_REF;
}
/* Not where buckets of gradients share memory: plans that add to the same gradients need them at
 * the same places, and may have other regions. */
static bool has_lanes(const kolo_pipeline_opts *o) {
    const bool chosen = o->lanes == KOLO_LANES_ALL || (o->lanes == KOLO_LANES_MEASURED && o->tuner);
    return has_layers(o) && chosen && o->threads > 1 && o->zero < 2 && !o->sync_batch_norm;
}
static bool accumulates(const kolo_pipeline_opts *o) {
    return o->train && (o->micro_batches > 1 || is_staged(o));
}
/* Not where all sums are awaited in the step anyway (cross_step.c), nor where other passes add
 * nodes to the gradients; plans of micro-batches need these at the same places. The ranks of a
 * mesh that divides layers wait for each other within these. */
static bool runs_ahead(const kolo_pipeline_opts *o) {
    return crosses_steps(o) && o->runs_ahead && !is_zero(o) && !accumulates(o) && !recomputes(o) &&
           !compresses(o) && !is_sparse(o) && o->optimizer.clip <= 0 &&
           !kolo_mesh_has_model_axis(&o->mesh);
}

/* ---- the table ---- */

static const struct {
    const char *name;
    kolo_status (*run)(kolo_graph *g, const kolo_pipeline_opts *opts);
    bool (*when)(const kolo_pipeline_opts *opts);
} passes[] = {
    {"freeze", freeze, freezes},
    {"sparse", sparse, is_sparse},
    {"inference", inference, evaluates},
    {"fold", fold, has_layers}, /* before outputs go: all plans then see parameters in one shape */
    {"objective", add_objective, trains},
    {"outputs", drop_outputs, has_layers},
    {"windows", windows, has_layers}, /* less is read then, and larger nodes move as one */
    {"cuts", cuts, is_staged},
    {"units", units, marks_units},
    {"shard", shard, trains},
    {"partition", partition, is_partitioned},
    {"halves", halves, is_mixed_and_staged},
    {"stages", stages, is_staged},
    {"sync_batch_norm", sync_batch_norm, synchronizes_norms},
    {"statistics", statistics, trains},
    {"gradient", gradient, trains},
    {"gradients", keep_gradients, keeps_gradients},
    {"optimizer", optimizer, trains},
    {"fuse", fuse, trains},
    {"prune", prune, always},
    {"late_weights", late_weights, runs_ahead}, /* before layouts: the same on all ranks */
    {"recompute", recompute, recomputes},
    {"halos", halos, divides_rows},
    {"precision", precision, is_mixed},
    {"layout", layout, has_layers},
    {"outer_state", outer_state, has_outer_state},    /* in the layouts of the parameters */
    {"residual_state", residual_state, pushes_codes}, /* the same */
    {"local_state", local_state, is_local},
    {"zero", zero, is_zero},
    {"synchronize", synchronize, trains}, /* placements are verified from here on */
    {"ring", ring, is_partitioned},
    {"recurrence", recurrence, is_partitioned},
    {"accumulate", accumulate, accumulates},
    {"lag", lag, lags},
    {"compress", compress, compresses},
    {"lower_comm", lower_comm, communicates},
    {"cross_step", cross_step, crosses_steps},
    {"segments", segments, is_staged},
    {"chains", chains, has_chains},
    {"lanes", lanes, has_lanes},
};

/* Whether an output is the gradient of a parameter of which each rank has the same slice. */
static bool is_gradient_of_slice(const kolo_graph *g, const kolo_named_value *output) {
    if (!kolo_value_ok(output->parameter) || !kolo_is_slice(g, output->parameter)) return false;
    return kolo_placements_same_data(&g->mesh, &kolo_info(g, output->value)->placements,
                                     &kolo_info(g, output->parameter)->placements);
}

/* Every op can run on what its rank holds, and all ranks hold what is reported. */
static kolo_status verify_placements(kolo_graph *g) {
    KOLO_TRY(kolo_graph_propagate(g));
    for (int32_t i = 0; i < g->n_outputs; i++) {
        const kolo_placements *is = &kolo_info(g, g->outputs[i].value)->placements;
        if (kolo_placements_same_data(&g->mesh, is, &(kolo_placements){0})) continue;
        if (g->outputs[i].crossing.number > 0 || kolo_output_is_own(g, i)) continue;
        if (g->outputs[i].whole.rank > 0 || is_gradient_of_slice(g, &g->outputs[i])) continue;
        char text[KOLO_PLACEMENT_TEXT];
        return KOLO_FAIL(KOLO_ERR_FORMAT, "output \"%s\" is placed [%s], not the same on all ranks",
                         g->outputs[i].name, kolo_placements_text(&g->mesh, is, text));
    }
    return KOLO_OK;
}

/* Whether placements are verified after pass i. */
static bool is_placed(const kolo_pipeline_opts *o, size_t i) {
    bool placed = o->updates_only;
    for (size_t k = 0; k <= i && !placed; k++) {
        placed = passes[k].run == (o->train ? synchronize : partition) && passes[k].when(o);
    }
    return placed;
}

static kolo_status run_passes(kolo_graph *g, const kolo_pipeline_opts *opts, size_t from,
                              size_t to) {
    for (size_t i = from; i < to; i++) {
        if (!passes[i].when(opts)) continue;
        KOLO_TRY(passes[i].run(g, opts));
        kolo_status status = kolo_graph_verify(g);
        if (status == KOLO_OK && is_placed(opts, i)) status = verify_placements(g);
        if (status != KOLO_OK) return kolo_fail_in(status, "after the pass %s", passes[i].name);
    }
    return KOLO_OK;
}

/* The pass that chooses layouts, on which ranks agree. */
static size_t layout_pass(void) {
    size_t i = 0;
    while (passes[i].run != layout) i++;
    return i;
}

kolo_status kolo_pipeline_begin(kolo_graph *g, const kolo_pipeline_opts *opts) {
    KOLO_TRY(kolo_graph_verify(g));
    return run_passes(g, opts, 0, layout_pass());
}

kolo_status kolo_pipeline_lay_out(kolo_graph *g, const kolo_pipeline_opts *opts) {
    return run_passes(g, opts, layout_pass(), layout_pass() + 1);
}

kolo_status kolo_pipeline_complete(kolo_graph *g, const kolo_pipeline_opts *opts) {
    return run_passes(g, opts, layout_pass(), KOLO_COUNT(passes));
}

kolo_status kolo_pipeline_run(kolo_graph *g, const kolo_pipeline_opts *opts) {
    KOLO_TRY(kolo_pipeline_begin(g, opts));
    return kolo_pipeline_complete(g, opts);
}

void kolo_pipeline_print(const kolo_pipeline_opts *opts, kolo_text *text) {
    const char *separator = "passes: ";
    for (size_t i = 0; i < KOLO_COUNT(passes); i++) {
        if (!passes[i].when(opts)) continue;
        kolo_text_add(text, "%s%s", separator, passes[i].name);
        separator = ", ";
    }
    kolo_text_add(text, "\n");
}

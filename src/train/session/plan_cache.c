/* The plans of a session: one for each purpose and size of a batch, compiled when it is first
 * needed. */
#include "base/integer.h"
#include "data/mix.h"
#include "pass/mix_labels.h"
#include "plan/program/program.h"
#include "train/session/agree.h"
#include "train/session/internal.h"

#include <inttypes.h>
#include <string.h>

/* The graph that the builder or model of a session makes for `batch` samples. */
static kolo_status run_builder(const kolo_session_config *opts, int64_t batch, kolo_graph **graph) {
    const kolo_model *model = opts->found;
    if (!opts->build && !model) KOLO_TRY(kolo_model_find(opts->model, &model));
    kolo_graph *g;
    const kolo_graph_opts graph_opts = {.dtype = opts->f64 ? KOLO_DTYPE_F64 : KOLO_DTYPE_F32};
    KOLO_TRY(kolo_graph_create(&graph_opts, &g));
    kolo_model_opts model_opts = {
        .batch = batch,
        .sample = opts->sample,
        .classes = opts->classes,
        .options = opts->model_options,
    };
    const uint64_t errors = kolo_error_count();
    kolo_status status = opts->build ? opts->build(g, batch, opts->build_arg)
                                     : kolo_model_add(model, g, &model_opts);
    status = kolo_callback_status(status, errors, opts->build ? "builder" : opts->model);
    if (status == KOLO_OK) status = kolo_graph_check(g);
    if (status != KOLO_OK) {
        kolo_graph_destroy(g);
        return status;
    }
    *graph = g;
    return KOLO_OK;
}

/* Which dimension a reshape makes of a single sample, beside others of size 1, shows in the graph
 * of two samples. A builder may refuse two. */
static void pair_single_sample(const kolo_session_config *opts, kolo_graph *g) {
    kolo_graph *of_two;
    if (!kolo_graph_reshapes(g) || run_builder(opts, 2, &of_two) != KOLO_OK) return;
    kolo_graph_pair_reshapes(g, of_two);
    kolo_graph_destroy(of_two);
}

kolo_status kolo_session_build(const kolo_session_config *opts, int64_t batch, kolo_graph **graph) {
    kolo_graph *g;
    KOLO_TRY(run_builder(opts, batch, &g));
    if (batch == 1) pair_single_sample(opts, g);
    kolo_status status = kolo_model_check(opts, batch, g);
    if (status == KOLO_OK && opts->mixes) status = kolo_pass_mix_labels(g, KOLO_MIX_TARGET);
    if (status == KOLO_OK && opts->tables.names) status = kolo_pass_tables(g, opts->tables.names);
    if (status != KOLO_OK) {
        kolo_graph_destroy(g);
        return status;
    }
    *graph = g;
    return KOLO_OK;
}

/* The inputs of the graph, whose plan is the first. */
static kolo_status find_inputs(kolo_session *s, const kolo_graph *g) {
    for (int32_t v = 0; v < g->n_values; v++) {
        const kolo_value_info *leaf = &g->values[v];
        if (leaf->kind != KOLO_VALUE_INPUT) continue;
        if (s->n_inputs == KOLO_MAX_FIELDS) {
            return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "model %s has more than %d inputs",
                             s->opts.model, KOLO_MAX_FIELDS);
        }
        if (kolo_is_pulled(g, v)) s->pulled |= UINT32_C(1) << s->n_inputs;
        kolo_field *input = &s->inputs[s->n_inputs++];
        *input = (kolo_field){.name = leaf->name, .dtype = leaf->tensor.dtype};
        input->shape.rank = leaf->tensor.shape.rank - 1;
        for (int i = 0; i < input->shape.rank; i++) {
            input->shape.dim[i] = leaf->tensor.shape.dim[i + 1];
        }
    }
    return KOLO_OK;
}

static uint32_t needs_of(const uint32_t *needs, kolo_value v) {
    return kolo_value_ok(v) ? needs[v.id] : 0;
}

/* Which inputs each output depends on. `needs`: room for a word per value. */
static kolo_status list_needs(kolo_session *s, const kolo_graph *g, uint32_t *needs) {
    int input = 0;
    for (int32_t v = 0; v < g->n_values; v++) {
        needs[v] = g->values[v].kind == KOLO_VALUE_INPUT ? UINT32_C(1) << input++ : 0;
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        uint32_t all = 0;
        for (int k = 0; k < n->n_in; k++) all |= needs_of(needs, n->in[k]);
        for (int k = 0; k < n->n_out; k++) needs[n->out[k].id] = all;
    }
    s->needs = kolo_zalloc(((size_t)g->n_outputs + 1) * sizeof *s->needs);
    if (!s->needs) return KOLO_NOMEM((size_t)g->n_outputs * sizeof *s->needs);
    for (int32_t i = 0; i < g->n_outputs; i++) {
        s->needs[i] =
            (kolo_needs){kolo_strdup(g->outputs[i].name), needs_of(needs, g->outputs[i].value)};
        if (!s->needs[s->n_needs++].output) return KOLO_NOMEM(64);
    }
    return KOLO_OK;
}

static kolo_status find_needs(kolo_session *s, const kolo_graph *g) {
    size_t bytes = ((size_t)g->n_values + 1) * sizeof(uint32_t);
    uint32_t *needs = kolo_alloc(bytes);
    kolo_status status = needs ? list_needs(s, g, needs) : KOLO_NOMEM(bytes);
    kolo_free(needs);
    return status;
}

/* Where the inputs are. Images are NCHW or NHWC, as the layout of the plan. */
static kolo_status describe_inputs(const kolo_session *s, cached *c) {
    for (int i = 0; i < s->n_inputs; i++) {
        kolo_tensor tensor;
        char text[KOLO_LAYOUT_TEXT];
        c->inputs[i] = kolo_plan_find_input(c->plan, s->inputs[i].name);
        if (!kolo_value_ok(c->inputs[i])) continue; /* of training */
        (void)kolo_plan_input(c->plan, s->inputs[i].name, &tensor);
        kolo_layout_text(&tensor.layout, text);
        bool nhwc = strcmp(text, "acdb") == 0;
        c->orders[i] = nhwc ? KOLO_NHWC : KOLO_NCHW;
        if (nhwc || kolo_layout_is_plain(&tensor.layout)) continue;
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "the input \"%s\" cannot be fed in layout %s",
                         s->inputs[i].name, text);
    }
    return KOLO_OK;
}

/* Resolves the scalars and outputs that a step accesses. */
static void resolve_handles(cached *c) {
    const kolo_metric *m = kolo_metric_table();
    c->lr = kolo_plan_find_scalar(c->plan, "lr");
    c->update = kolo_plan_find_scalar(c->plan, "update");
    c->grad_scale = kolo_plan_find_scalar(c->plan, "grad_scale");
    c->rng_key = kolo_plan_find_scalar(c->plan, "rng_key");
    c->first_sample = kolo_plan_find_scalar(c->plan, "first_sample");
    c->share = kolo_plan_find_scalar(c->plan, "share");
    c->sample_weight = kolo_plan_find_scalar(c->plan, "sample_weight");
    c->rank_weight = kolo_plan_find_scalar(c->plan, "rank_weight");
    c->fresh = kolo_plan_find_scalar(c->plan, "fresh");
    c->once = kolo_plan_find_scalar(c->plan, "once");
    for (int i = 0; i < KOLO_MAX_METRICS; i++) c->metrics[i] = KOLO_NONE;
    for (int i = 0; m[i].name; i++) {
        bool scalar = m[i].output && !m[i].reduce;
        if (scalar) c->metrics[i] = kolo_plan_find_output(c->plan, m[i].output);
    }
}

const cached *kolo_session_find_plan(const kolo_session *s, kolo_purpose use, int64_t key) {
    for (size_t i = 0; i < s->n_plans; i++) {
        if (s->plans[i]->purpose == use && s->plans[i]->key == key) return s->plans[i];
    }
    return NULL;
}

/* The key of the plan that ends the step of a plan that adds to it. Plans of shards have the size
 * of the shard as their key. */
static int64_t finished_by(const kolo_session *s, int64_t key) {
    return s->opts.shards > 0 ? s->opts.batch : key;
}

/* Whether some updates of a step may run in the next one. Shards are summed in memory that the next
 * step uses from its beginning; a lag leaves the sums all of a step already. */
static bool crosses_steps(const kolo_session *s, const kolo_plan_opts *o) {
    return o->cross_step && ranks_of(s) > 1 && s->opts.shards == 0 && o->lag == 0 &&
           !trains_alone(s) && !s->opts.served && kolo_session_stages(s) == 1;
}

static bool is_of_steps(const cached *c) { return c->purpose == FINISH || c->purpose == ADD; }

/* Parameters are those of the first graph. */
static kolo_status check_parameters(const kolo_session *s, const kolo_graph *g) {
    for (int32_t v = 0; v < g->n_values; v++) {
        const kolo_value_info *info = &g->values[v];
        char now[KOLO_SHAPE_TEXT], before[KOLO_SHAPE_TEXT];
        const bool kept = info->kind == KOLO_VALUE_PARAM || info->kind == KOLO_VALUE_STATE;
        const kolo_store_entry *entry = kept ? kolo_store_find(s->store, info->name) : NULL;
        if (!entry || kolo_shape_equal(&entry->canon, &info->canon)) continue;
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "parameter %s is %s here and %s in the first graph: it must not depend on "
                         "the number of samples",
                         info->name, kolo_shape_text(&info->canon, now),
                         kolo_shape_text(&entry->canon, before));
    }
    return KOLO_OK;
}

static kolo_status build(const kolo_session *s, const cached *c, kolo_graph **graph) {
    kolo_session_config config = s->opts;
    config.mixes &= is_of_steps(c);
    return kolo_session_build(&config, kolo_max_i64(c->local, 1), graph);
}

/* The labels that count. Graphs of one model have the same parameter with weights of the classes.
 */
static kolo_status find_label_rule(kolo_session *s, const kolo_graph *g) {
    KOLO_TRY(kolo_label_rule_find(g, &s->rule));
    const bool trains = !s->opts.evaluate_only;
    if (g->is_loss_of_whole && trains && (s->opts.accumulate > 1 || s->opts.shards > 1)) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "the loss is a function of means over the batch, such as a root, which "
                         "micro-batches and logical shards cannot divide: train without them");
    }
    if (!s->rule.weights) return KOLO_OK;
    if (s->opts.served) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "a loss that is divided by weights of classes cannot be trained with "
                         "parameter servers: give it reduction \"sum\"");
    }
    const size_t bytes = (size_t)s->rule.classes * sizeof *s->of_class;
    if (!s->label_weights) s->label_weights = kolo_strdup(s->rule.weights);
    if (!s->of_class) s->of_class = kolo_zalloc(bytes);
    if (!s->label_weights || !s->of_class) return KOLO_NOMEM(bytes);
    s->rule.weights = s->label_weights;
    return KOLO_OK;
}

/* The graph of a plan. That of the first plan states what the session needs. */
static kolo_status build_graph(kolo_session *s, const cached *c, kolo_graph **graph) {
    KOLO_TRY(build(s, c, graph));
    const bool first = s->n_plans == 0;
    kolo_status status = check_parameters(s, *graph);
    if (status == KOLO_OK && first) status = find_inputs(s, *graph);
    if (status == KOLO_OK && first) status = find_needs(s, *graph);
    if (status == KOLO_OK) status = find_label_rule(s, *graph);
    if (status != KOLO_OK) kolo_graph_destroy(*graph);
    return status;
}

/* Who sums gradients and who updates: the mesh, and what of the updates the plan has. */
static void choose_mesh(const kolo_session *s, const cached *c, kolo_plan_opts *opts) {
    const bool alone = trains_alone(s);
    if (opts->mesh.n_axes == 0) opts->mesh = (kolo_mesh){1, {{"dp", (int)ranks_of(s)}}};
    if (alone) opts->mesh = (kolo_mesh){1, {{"dp", 1}}};
    if (pushes_gradients(s)) opts->mesh = (kolo_mesh){1, {{"dp", 2}}}; /* owners sum */
    if (alone && s->opts.served) { /* owners make the outer update */
        opts->outer = s->opts.consistency.momentum != 0;
        opts->delays = s->opts.consistency.delay > 0;
    }
    if (keeps_residuals(s)) {
        opts->pushed = s->opts.codes;
        opts->pushing_ranks = keeps_own_residuals(s) ? (int)ranks_of(s) : 1;
        opts->pushing_rank = keeps_own_residuals(s) ? (int)rank_of(s) : 0;
    }
    if (alone && !s->opts.served && ranks_of(s) > 1) {
        opts->versions = ranks_of(s);
        opts->version = rank_of(s);
    }
    opts->posts = pushes_gradients(s) && c->purpose == FINISH;
}

static void choose_step(kolo_session *s, const cached *c, kolo_plan_opts *opts) {
    opts->shards = s->opts.shards;
    opts->times = &s->times;
    if (s->buckets.measures) opts->bucket_bytes = 1;
    if (!opts->shards) opts->micro_batches = micro_batches(s, c->key);
}

static kolo_status choose_stage(kolo_session *s, kolo_plan_opts *opts) {
    if (kolo_session_stages(s) == 1) return KOLO_OK;
    opts->parts = kolo_session_parts(s);
    if (!opts->train) return KOLO_OK;
    const int64_t shards = kolo_max_i64(s->end_shard - s->first_shard, 1);
    KOLO_TRY(kolo_session_find_program(s, opts->shards ? shards : opts->micro_batches));
    opts->slots = s->program->stage[kolo_session_stage(s)].slots;
    opts->splits = s->program->schedule->splits;
    return KOLO_OK;
}

/* Whether the plan communicates, so that all ranks compile it together. */
static bool is_collective(const kolo_session *s, const cached *c) {
    if (c->purpose == FINISH) return !trains_alone(s) && !s->opts.served;
    if (c->purpose == ADD) return s->groups != NULL;
    return evaluates_together(s);
}

/* Stages of a reproducible session have the kernels that one worker has for their parts of the
 * model. */
static kolo_status find_whole(const kolo_session *s, const cached *c, kolo_plan_opts *opts,
                              kolo_whole_layouts *whole) {
    kolo_graph *graph;
    const bool plain = opts->kernels == KOLO_KERNELS_REF; /* all is */
    if (plain || s->opts.shards == 0 || kolo_session_stages(s) == 1) return KOLO_OK;
    const kolo_mesh *mesh = &opts->mesh;
    const kolo_axes others = kolo_mesh_all(mesh) & ~((kolo_axes)1 << kolo_mesh_find(mesh, "pp"));
    const int place = kolo_mesh_group_index(mesh, others, (int)rank_of(s));
    KOLO_TRY(build(s, c, &graph));
    const kolo_status status = kolo_plan_find_whole(graph, opts, s->store, place, whole);
    kolo_graph_destroy(graph);
    opts->whole = whole;
    return status;
}

/* Of the first plan on a rank with fewer samples than another: the graph of most samples, which
 * fixes the layouts of parameters. Else NULL. */
static kolo_status build_largest(const kolo_session *s, const cached *c, kolo_graph **largest) {
    const bool first = s->n_plans == 0 && kolo_store_count(s->store) == 0;
    const bool plain = s->opts.plan.kernels == KOLO_KERNELS_REF; /* in any size */
    *largest = NULL;
    if (!first || plain || c->purpose != FINISH || s->opts.shards > 0) return KOLO_OK;
    const cached most = {.purpose = c->purpose, .local = most_samples(&s->opts, data_ranks(s))};
    return kolo_max_i64(c->local, 1) < most.local ? build(s, &most, largest) : KOLO_OK;
}

/* The graph of a plan, and what it is compiled with. */
static kolo_status prepare(kolo_session *s, const cached *c, kolo_graph **graph,
                           kolo_plan_opts *opts, kolo_whole_layouts *whole) {
    KOLO_TRY(build_graph(s, c, graph));
    *opts = s->opts.plan;
    opts->train = is_of_steps(c);
    opts->sharded_outputs = c->purpose == PREDICT;
    opts->cross_step = opts->train && crosses_steps(s, opts);
    opts->runs_ahead = s->opts.accumulate == 1;
    opts->near = s->opts.copies; /* of ranks of one host */
    opts->groups = s->groups;
    if (s->opts.warms_up) opts->compression = (kolo_compression){.power_rank = 0};
    if (opts->train) choose_step(s, c, opts);
    choose_mesh(s, c, opts);
    if (opts->train) {
        const int64_t parts = kolo_max_i64(opts->micro_batches, 1);
        opts->most_samples = divide_up(divide_up(c->key, data_ranks(s)), parts);
    }
    if (c->purpose == ADD) {
        opts->adds_to = kolo_session_find_plan(s, FINISH, finished_by(s, c->key))->plan;
    }
    kolo_status status = choose_stage(s, opts);
    if (status == KOLO_OK) status = find_whole(s, c, opts, whole);
    if (status == KOLO_OK) status = build_largest(s, c, &opts->largest);
    if (status != KOLO_OK) kolo_graph_destroy(*graph);
    return status;
}

kolo_status kolo_session_refuse_together(void *session, kolo_status status) {
    kolo_session *s = session;
    status = kolo_agree(s->comm, status);
    s->refused = status != KOLO_OK && status != KOLO_ERR_PEER && status != KOLO_ERR_TIMEOUT;
    return status;
}

static kolo_status compile(kolo_session *s, cached *c) {
    kolo_graph *graph;
    kolo_plan_opts opts;
    kolo_whole_layouts whole = {0};
    const bool together = is_collective(s, c);
    kolo_status status = prepare(s, c, &graph, &opts, &whole);
    if (status != KOLO_OK) return together ? kolo_session_refuse_together(s, status) : status;
    opts.agree = together ? kolo_session_refuse_together : NULL;
    opts.agree_arg = s;
    status = kolo_plan_compile(graph, &opts, s->store, together ? s->comm : NULL, &c->plan);
    kolo_whole_layouts_fini(&whole);
    kolo_graph_destroy(opts.largest);
    return status;
}

static void destroy_cached(cached *c) {
    kolo_plan_destroy(c->plan);
    kolo_free(c);
}

static kolo_status watch(const kolo_session *s, const cached *c) {
    return s->watch && is_of_steps(c) ? s->watch(s->watch_arg, c->plan) : KOLO_OK;
}

kolo_status kolo_session_watch_plans(kolo_session *s,
                                     kolo_status (*function)(void *arg, kolo_plan *plan),
                                     void *arg) {
    s->watch = function;
    s->watch_arg = arg;
    for (size_t i = 0; i < s->n_plans; i++) KOLO_TRY(watch(s, s->plans[i]));
    return KOLO_OK;
}

/* Compiles a plan into the cache. */
static kolo_status add_plan(kolo_session *s, kolo_purpose use, int64_t key, int64_t local,
                            const cached **made) {
    KOLO_TRY(kolo_store_run_deferred(s->store));
    if (!KOLO_GROW(s->plans, s->n_plans, s->cap_plans)) return KOLO_NOMEM(sizeof *s->plans);
    cached *c = kolo_zalloc(sizeof *c);
    if (!c) return KOLO_NOMEM(sizeof *c);
    *c = (cached){.purpose = use, .key = key, .local = local};
    kolo_status status = compile(s, c);
    if (status == KOLO_OK) status = describe_inputs(s, c);
    if (status == KOLO_OK) status = watch(s, c);
    if (status != KOLO_OK) {
        destroy_cached(c);
        return status;
    }
    resolve_handles(c);
    s->plans[s->n_plans++] = c;
    *made = c;
    return KOLO_OK;
}

kolo_status kolo_session_get_plan(kolo_session *s, kolo_purpose use, int64_t key, int64_t local,
                                  const cached **found) {
    const cached *c = kolo_session_find_plan(s, use, key);
    if (!c) return add_plan(s, use, key, local, found);
    if (c->local != local) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "a global batch of %" PRId64 " samples has %" PRId64
                         " on this rank now and had %" PRId64 " before: split it alike",
                         key, local, c->local);
    }
    *found = c;
    return KOLO_OK;
}

void kolo_session_destroy_plans(kolo_session *s) {
    for (size_t i = 0; i < s->n_plans; i++) destroy_cached(s->plans[i]);
    kolo_free((void *)s->plans);
    for (int i = 0; i < s->n_needs; i++) kolo_free(s->needs[i].output);
    kolo_free(s->needs);
    s->plans = NULL;
    s->needs = NULL;
    s->n_plans = s->cap_plans = 0;
    s->n_sizes = 0;
    s->n_inputs = s->n_needs = 0; /* the first plan lists them */
    s->trained = s->evaluated = NULL;
}

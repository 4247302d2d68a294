/* Sessions: the plan cache, the training step, evaluation. */
#include "train/session/session.h"

#include "base/clock.h"
#include "base/integer.h"
#include "base/rng.h"
#include "data/sampler.h"
#include "kolo/train.h"
#include "train/session/audit.h"
#include "train/session/internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- life ---- */

kolo_status kolo_session_build(const kolo_session_config *opts, int64_t batch, kolo_graph **graph) {
    const kolo_model *model = NULL;
    if (!opts->build) KOLO_TRY(kolo_model_find(opts->model, &model));
    kolo_graph *g;
    KOLO_TRY(kolo_graph_create(NULL, &g));
    kolo_model_opts model_opts = {
        .batch = batch,
        .sample = opts->sample,
        .classes = opts->classes,
        .options = opts->model_options,
    };
    kolo_status status =
        opts->build ? opts->build(g, batch, opts->build_arg) : model->build(g, &model_opts);
    if (status == KOLO_OK) status = kolo_graph_check(g);
    if (status == KOLO_OK) status = kolo_model_check(opts, batch, g);
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
    c->fresh = kolo_plan_find_scalar(c->plan, "fresh");
    c->once = kolo_plan_find_scalar(c->plan, "once");
    for (int i = 0; i < KOLO_MAX_METRICS; i++) c->metrics[i] = KOLO_NONE;
    for (int i = 0; m[i].name; i++) {
        bool scalar = m[i].output && !m[i].reduce;
        if (scalar) c->metrics[i] = kolo_plan_find_output(c->plan, m[i].output);
    }
}

static const cached *find_plan(const kolo_session *s, kolo_purpose use, int64_t key) {
    for (size_t i = 0; i < s->n_plans; i++) {
        if (s->plans[i]->purpose == use && s->plans[i]->key == key) return s->plans[i];
    }
    return NULL;
}

static int64_t ranks_of(const kolo_session *s) { return s->comm ? kolo_comm_size(s->comm) : 1; }
static int64_t rank_of(const kolo_session *s) { return s->comm ? kolo_comm_rank(s->comm) : 0; }

static int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Splits `n` samples into `parts`: the first n % parts have one more. */
static int64_t part_first(int64_t n, int64_t parts, int64_t i) {
    return i * (n / parts) + kolo_min_i64(i, n % parts);
}
static int64_t part_count(int64_t n, int64_t parts, int64_t i) {
    return n / parts + (i < n % parts);
}

/* Micro-batches of a step: as many as the largest share needs, the same on all ranks. */
static int64_t micro_batches(const kolo_session *s, int64_t global) {
    return divide_up(divide_up(global, ranks_of(s)), s->opts.batch);
}

/* The key of the plan that ends the step of a plan that adds to it. Plans of shards have the size
 * of the shard as their key. */
static int64_t finished_by(const kolo_session *s, int64_t key) {
    return s->opts.shards > 0 ? s->opts.batch : key;
}

/* Whether ranks take part in each other's evaluation: each has a range of the parameters. */
static bool evaluates_together(const kolo_session *s) {
    return s->opts.plan.zero > 2 && ranks_of(s) > 1;
}

static kolo_status compile(kolo_session *s, cached *c) {
    kolo_graph *graph;
    KOLO_TRY(kolo_session_build(&s->opts, kolo_max_i64(c->local, 1), &graph));
    const bool first = s->n_plans == 0;
    kolo_status status = first ? find_inputs(s, graph) : KOLO_OK;
    if (status == KOLO_OK && first) status = find_needs(s, graph);
    if (status == KOLO_OK) status = kolo_label_rule_find(graph, &s->rule);
    if (status != KOLO_OK) {
        kolo_graph_destroy(graph);
        return status;
    }
    kolo_plan_opts opts = s->opts.plan;
    opts.train = c->purpose != EVALUATE;
    opts.shards = opts.train ? s->opts.shards : 0;
    if (opts.train && !opts.shards) opts.micro_batches = micro_batches(s, c->key);
    if (opts.mesh.n_axes == 0) {
        opts.mesh = (kolo_mesh){1, {{"dp", (int)ranks_of(s)}}};
    }
    if (c->purpose == FINISH) opts.most_samples = divide_up(c->key, ranks_of(s));
    if (c->purpose == ADD) opts.adds_to = find_plan(s, FINISH, finished_by(s, c->key))->plan;
    bool collective = c->purpose == FINISH || (c->purpose == EVALUATE && evaluates_together(s));
    return kolo_plan_compile(graph, &opts, s->store, collective ? s->comm : NULL, &c->plan);
}

static void destroy_cached(cached *c) {
    kolo_plan_destroy(c->plan);
    kolo_free(c);
}

/* Compiles a plan into the cache. */
static kolo_status add_plan(kolo_session *s, kolo_purpose use, int64_t key, int64_t local,
                            const cached **made) {
    if (!KOLO_GROW(s->plans, s->n_plans, s->cap_plans)) return KOLO_NOMEM(sizeof *s->plans);
    cached *c = kolo_zalloc(sizeof *c);
    if (!c) return KOLO_NOMEM(sizeof *c);
    *c = (cached){.purpose = use, .key = key, .local = local};
    kolo_status status = compile(s, c);
    if (status == KOLO_OK) status = describe_inputs(s, c);
    if (status != KOLO_OK) {
        destroy_cached(c);
        return status;
    }
    resolve_handles(c);
    s->plans[s->n_plans++] = c;
    *made = c;
    return KOLO_OK;
}

static kolo_status get_plan(kolo_session *s, kolo_purpose use, int64_t key, int64_t local,
                            const cached **found) {
    const cached *c = find_plan(s, use, key);
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

static kolo_status compile_shards(kolo_session *s) {
    const cached *unused;
    KOLO_TRY(get_plan(s, FINISH, s->opts.batch, s->opts.batch, &unused));
    int64_t rest = s->opts.short_shard; /* now: an error should not end the first epoch */
    if (rest > 0) KOLO_TRY(get_plan(s, ADD, rest, rest, &unused));
    if (s->opts.counts) return kolo_session_deal(s, s->opts.counts);
    int *counts = kolo_alloc((size_t)ranks_of(s) * sizeof *counts);
    if (!counts) return KOLO_NOMEM((size_t)ranks_of(s) * sizeof *counts);
    kolo_deal_shards(s->opts.shards, (int)ranks_of(s), NULL, counts);
    kolo_status status = kolo_session_deal(s, counts);
    kolo_free(counts);
    return status;
}

/* The plan of full batches, which fixes the layouts. */
static kolo_status compile_first(kolo_session *s) {
    const cached *unused;
    const int64_t batch = s->opts.batch, global = s->opts.global_batch;
    if (s->opts.evaluate_only) return get_plan(s, EVALUATE, batch, batch, &unused);
    if (s->opts.shards > 0) return compile_shards(s);
    int64_t n = micro_batches(s, global), share = part_count(global, ranks_of(s), rank_of(s));
    return get_plan(s, FINISH, global, part_count(share, n, n - 1), &unused);
}

/* Later plans read the name patterns of the optimizer too. */
static bool copy_patterns(kolo_session *s) {
    const char **of[] = {&s->opts.plan.optimizer.no_decay, &s->opts.plan.optimizer.no_scale};
    for (size_t i = 0; i < KOLO_COUNT(of); i++) {
        if (!*of[i]) continue;
        *of[i] = s->patterns[i] = kolo_strdup(*of[i]);
        if (!s->patterns[i]) return false;
    }
    return true;
}

kolo_status kolo_session_create_for(const kolo_session_config *opts, kolo_comm *comm,
                                    kolo_session **session) {
    kolo_status status;
    kolo_session *s = kolo_zalloc(sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    s->opts = *opts;
    s->comm = comm;
    if (s->opts.accumulate == 0) s->opts.accumulate = 1;
    s->opts.model = s->model = kolo_strdup(opts->model ? opts->model : "of the caller");
    s->opts.model_options = s->model_options =
        kolo_strdup(opts->model_options ? opts->model_options : "");
    if (!s->model || !s->model_options || !copy_patterns(s)) {
        kolo_session_destroy(s);
        return KOLO_NOMEM(64);
    }
    KOLO_TRY_GOTO(kolo_store_create(&s->store), fail);
    if (ranks_of(s) == 1) kolo_store_set_alone(s->store);
    if (s->opts.global_batch == 0)
        s->opts.global_batch = opts->batch * s->opts.accumulate * ranks_of(s);
    KOLO_TRY_GOTO(compile_first(s), fail);
    *session = s;
    return KOLO_OK;
fail:
    kolo_session_destroy(s);
    return status;
}

void kolo_session_destroy(kolo_session *s) {
    if (!s) return;
    for (size_t i = 0; i < s->n_plans; i++) destroy_cached(s->plans[i]);
    kolo_free((void *)s->plans);
    kolo_store_destroy(s->store);
    kolo_free(s->counts);
    for (int i = 0; i < s->n_needs; i++) kolo_free(s->needs[i].output);
    kolo_free(s->needs);
    kolo_free(s->sizes);
    for (size_t i = 0; i < KOLO_COUNT(s->patterns); i++) kolo_free(s->patterns[i]);
    kolo_free(s->model);
    kolo_free(s->model_options);
    kolo_free(s);
}

kolo_status kolo_session_init(kolo_session *s, uint64_t seed) {
    s->seed = seed;
    s->steps = 0;
    KOLO_TRY(kolo_store_init(s->store, seed));
    return s->comm ? kolo_store_broadcast(s->store, s->comm) : KOLO_OK;
}

void kolo_session_set_steps(kolo_session *s, int64_t steps) { s->steps = (uint64_t)steps; }

kolo_store *kolo_session_store(const kolo_session *s) { return s->store; }

kolo_plan *kolo_session_plan(const kolo_session *s) { return s->plans[0]->plan; }

bool kolo_session_trains(const kolo_session *s) { return !s->opts.evaluate_only; }

int64_t kolo_session_batch(const kolo_session *s) { return s->opts.batch; }

void kolo_session_set_schedule(kolo_session *s, kolo_lr schedule) { s->schedule = schedule; }

double kolo_session_lr_at(const kolo_session *s, int64_t k) {
    if (s->fixed_lr > 0) return s->fixed_lr;
    return kolo_lr_at(&s->schedule, kolo_min_i64(k, s->schedule.total - 1));
}

const kolo_train_opts *kolo_session_options(const kolo_session *s) { return &s->job; }

const kolo_session_config *kolo_session_config_of(const kolo_session *s) { return &s->opts; }

kolo_status kolo_session_check_dataset(kolo_session *s, const kolo_dataset *dataset) {
    const kolo_dataset_info *info = kolo_dataset_describe(dataset);
    const kolo_batch batch = {.n_fields = info->n_fields, .fields = info->fields};
    kolo_status status = kolo_session_check_batch(s, &batch, UINT32_MAX);
    return status == KOLO_OK ? KOLO_OK : kolo_fail_in(status, "%s", info->name);
}

kolo_comm *kolo_session_comm(const kolo_session *s) { return s->comm; }

bool kolo_session_has_tokens(const kolo_session *s) {
    const kolo_field *labels = s->rule.input >= 0 ? &s->inputs[s->rule.input] : NULL;
    for (int i = 0; i < s->n_inputs && labels; i++) {
        const kolo_field *x = &s->inputs[i];
        if (x != labels && x->dtype == KOLO_DTYPE_I32 && x->shape.rank == 1 &&
            kolo_shape_equal(&x->shape, &labels->shape)) {
            return true;
        }
    }
    return false;
}

int64_t kolo_session_parameters(const kolo_session *s) {
    int64_t total = 0;
    for (int i = 0; i < kolo_store_count(s->store); i++) {
        const kolo_store_entry *entry = kolo_store_entry_at(s->store, i);
        if (entry->kind == KOLO_VALUE_PARAM) total += kolo_shape_count(&entry->canon);
    }
    return total;
}

/* ---- running ---- */

static kolo_status fail_field(const kolo_session *s, const kolo_field *input,
                              const kolo_field *given) {
    char have[KOLO_SHAPE_TEXT], want[KOLO_SHAPE_TEXT];
    return KOLO_FAIL(
        KOLO_ERR_ARG,
        "the field \"%s\" is %s %s for each sample, and the input of model %s is %s %s",
        input->name, kolo_dtype_name(given->dtype), kolo_shape_text(&given->shape, have),
        s->opts.model, kolo_dtype_name(input->dtype), kolo_shape_text(&input->shape, want));
}

static kolo_status fail_missing(const kolo_session *s, const char *input, const kolo_batch *batch) {
    kolo_text names = {0};
    for (int f = 0; f < batch->n_fields; f++) {
        kolo_text_add(&names, "%s%s", f ? ", " : "", batch->fields[f].name);
    }
    kolo_status status =
        KOLO_FAIL(KOLO_ERR_ARG, "the batch has no field \"%s\", an input of model %s; it has %s",
                  input, s->opts.model, batch->n_fields > 0 && !names.failed ? names.text : "none");
    kolo_text_fini(&names);
    return status;
}

/* Whether a field can fill an input: types that differ are converted by kolo_normalize. */
static bool fits(const kolo_field *field, const kolo_field *input) {
    bool bytes = field->dtype == KOLO_DTYPE_U8 && input->dtype == KOLO_DTYPE_F32 &&
                 (field->shape.rank != 3 || field->shape.dim[0] <= KOLO_MAX_CHANNELS);
    return (bytes || field->dtype == input->dtype) &&
           kolo_shape_equal(&field->shape, &input->shape);
}

kolo_status kolo_session_check_batch(kolo_session *s, const kolo_batch *batch, uint32_t inputs) {
    for (int i = 0; i < s->n_inputs; i++) {
        int f = 0;
        s->field_of[i] = -1;
        if (!(inputs >> i & 1)) continue;
        while (f < batch->n_fields && strcmp(batch->fields[f].name, s->inputs[i].name) != 0) f++;
        if (f == batch->n_fields) return fail_missing(s, s->inputs[i].name, batch);
        if (!fits(&batch->fields[f], &s->inputs[i])) {
            return fail_field(s, &s->inputs[i], &batch->fields[f]);
        }
        s->field_of[i] = f;
    }
    return KOLO_OK;
}

/* Copies a batch into the inputs of a plan. Plans share one arena, which may move when a plan is
 * added, so the addresses are looked up each time. */
static void feed(const kolo_session *s, const cached *c, const kolo_batch *batch) {
    for (int i = 0; i < s->n_inputs && batch->count > 0; i++) {
        void *to = kolo_plan_data(c->plan, c->inputs[i]);
        if (s->field_of[i] < 0) {
            memset(to, 0, (size_t)batch->count * kolo_field_bytes(&s->inputs[i]));
            continue;
        }
        const kolo_field *field = &batch->fields[s->field_of[i]];
        const void *from = batch->data[s->field_of[i]];
        if (field->dtype != s->inputs[i].dtype) {
            kolo_normalize(field, from, batch->count, c->orders[i], to);
        } else if (c->orders[i] == KOLO_NHWC) {
            kolo_interleave(field, from, batch->count, to);
        } else {
            memcpy(to, from, (size_t)batch->count * kolo_field_bytes(field));
        }
    }
}

static kolo_sums read_sums(const cached *c, int64_t samples, int64_t labels) {
    kolo_sums sums = {.samples = samples, .labels = labels};
    for (int i = 0; i < KOLO_MAX_METRICS; i++) {
        bool there = kolo_value_ok(c->metrics[i]);
        sums.metric[i] = there ? kolo_plan_get(c->plan, c->metrics[i]) : NAN;
    }
    return sums;
}

/* Whether every sample has one label, which counts. */
static bool is_label_each(const kolo_session *s) {
    return s->rule.input < 0 || (!s->rule.ignores && s->inputs[s->rule.input].shape.rank == 0);
}

/* Labels of this rank's batch that count. */
static int64_t count_labels(const kolo_session *s, const kolo_batch *batch) {
    const kolo_label_rule *rule = &s->rule;
    if (batch->count == 0 || is_label_each(s)) return batch->count;
    const int32_t *labels = batch->data[s->field_of[rule->input]];
    int64_t n = batch->count * kolo_shape_count(&s->inputs[rule->input].shape), count = 0;
    for (int64_t i = 0; i < n; i++) {
        bool counts = labels[i] < rule->classes && !(rule->ignores && labels[i] == rule->ignored);
        count += labels[i] >= 0 && (counts || !rule->ignores);
    }
    return count;
}

/* Labels of the global batch: the loss is the mean over them. */
static kolo_status sum_labels(const kolo_session *s, const kolo_batch *batch, int64_t *labels) {
    const bool known = is_label_each(s);
    *labels = known ? batch->global_count : count_labels(s, batch);
    if (known || !s->comm) return KOLO_OK;
    return kolo_allreduce(s->comm, labels, 1, KOLO_DTYPE_I64, KOLO_SUM);
}

/* Samples of all ranks in micro-batch i. Shares have one of two sizes (data/sampler.h). */
static int64_t micro_global(const kolo_session *s, int64_t global, int64_t parts, int64_t i) {
    int64_t ranks = ranks_of(s), larger = global % ranks, share = global / ranks;
    if (parts == 1) return global;
    return larger * part_count(share + 1, parts, i) +
           (ranks - larger) * part_count(share, parts, i);
}

/* With micro-batches, shares must be the sampler's: the sizes of the other ranks' follow from it.
 */
static kolo_status check_share(const kolo_session *s, const kolo_batch *batch) {
    int64_t rank = rank_of(s), share = part_count(batch->global_count, ranks_of(s), rank);
    if (batch->count == share) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "%" PRId64 " samples of %" PRId64 " on rank %" PRId64
                     ": micro-batches need shares as equal as possible, here %" PRId64,
                     batch->count, batch->global_count, rank, share);
}

/* The random-number key of the step, for dropout and masking. */
static int64_t step_key(const kolo_session *s) {
    const uint64_t step[] = {s->seed, s->steps};
    return (int64_t)kolo_hash_bytes(step, sizeof step);
}

/* What the plans of a step have in common. */
typedef struct scalars {
    double lr, update, grad_scale;
    int64_t rng_key;
} scalars;

static scalars step_scalars(const kolo_session *s, double lr, int64_t labels) {
    return (scalars){
        .lr = lr,
        .update = (double)(s->steps + 1),
        .grad_scale = labels > 0 ? 1.0 / (double)labels : 0, /* the loss is their mean */
        .rng_key = step_key(s),
    };
}

/* Sets the inputs and scalars of a plan for `part` of `samples` whose statistics are summed. fresh,
 * first: the first part of this rank, and of all ranks. */
static void prepare(const kolo_session *s, const cached *c, const kolo_batch *part,
                    const scalars *x, int64_t samples, bool fresh, bool first) {
    feed(s, c, part);
    kolo_plan_set(c->plan, c->lr, x->lr);
    kolo_plan_set(c->plan, c->update, x->update);
    kolo_plan_set(c->plan, c->grad_scale, x->grad_scale);
    kolo_plan_set_integer(c->plan, c->rng_key, x->rng_key);
    kolo_plan_set_integer(c->plan, c->first_sample, part->first);
    kolo_plan_set(c->plan, c->share, (double)part->count / (double)samples);
    kolo_plan_set(c->plan, c->sample_weight, 1 / (double)samples);
    kolo_plan_set(c->plan, c->fresh, fresh);
    kolo_plan_set(c->plan, c->once, first);
}

static kolo_status run_micro_batches(kolo_session *s, const kolo_batch *batch, const scalars *x,
                                     const cached **finish) {
    const int64_t global = batch->global_count, n = micro_batches(s, global);
    const int64_t last = part_count(batch->count, n, n - 1); /* samples of the last micro-batch */
    if (n > 1) KOLO_TRY(check_share(s, batch));
    KOLO_TRY(get_plan(s, FINISH, global, last, finish));
    for (int64_t i = 0; i < n; i++) {
        const cached *c = *finish;
        int64_t count = part_count(batch->count, n, i);
        kolo_batch micro = kolo_batch_part(batch, part_first(batch->count, n, i), count);
        if (count != last) KOLO_TRY(get_plan(s, ADD, global, count, &c));
        prepare(s, c, &micro, x, micro_global(s, global, n, i), i == 0, i == 0 && rank_of(s) == 0);
        /* Forward and backward; gradients and sums are accumulated. */
        if (count == 0) {
            KOLO_TRY(kolo_plan_skip(c->plan, i == n - 1));
        } else if (i < n - 1) {
            KOLO_TRY(kolo_plan_accumulate(c->plan));
        }
    }
    /* The last micro-batch: forward; backward, with an allreduce posted for each bucket as soon as
     * its gradients are complete; waits for the buckets; update into the other bank; commit. */
    return last > 0 ? kolo_plan_run((*finish)->plan) : KOLO_OK;
}

/* Samples of shard k. */
static int64_t shard_count(const kolo_session *s, int64_t global, int k) {
    return kolo_max_i64(kolo_min_i64(s->opts.batch, global - k * s->opts.batch), 0);
}

/* Prepares the plan for shard k, which has samples, of a batch that contains it. */
static kolo_status prepare_shard(kolo_session *s, const kolo_batch *batch, int k, const scalars *x,
                                 const cached *finish, const cached **c) {
    int64_t size = s->opts.batch, count = shard_count(s, batch->global_count, k);
    kolo_batch shard = kolo_batch_part(batch, k * size - batch->first, count);
    *c = finish;
    if (count != size) KOLO_TRY(get_plan(s, ADD, count, count, c));
    prepare(s, *c, &shard, x, batch->global_count, true, k == 0);
    return KOLO_OK;
}

static kolo_status complete_step(const cached *finish, const scalars *x) {
    kolo_plan_set(finish->plan, finish->lr, x->lr);
    kolo_plan_set(finish->plan, finish->update, x->update);
    return kolo_plan_complete(finish->plan);
}

/* This rank's shards. The last one completes the step, as above, if it is a full one. */
static kolo_status run_shards(kolo_session *s, const kolo_batch *batch, const scalars *x,
                              const cached **finish) {
    const int64_t begin = kolo_now_ns(), size = s->opts.batch;
    bool complete = false;
    KOLO_TRY(get_plan(s, FINISH, size, size, finish));
    for (int k = s->first_shard; k < s->end_shard; k++) {
        const cached *c;
        int64_t count = shard_count(s, batch->global_count, k);
        if (count == 0) {
            kolo_plan_skip_shard((*finish)->plan, k);
            continue;
        }
        KOLO_TRY(prepare_shard(s, batch, k, x, *finish, &c));
        complete = k == s->end_shard - 1 && count == size;
        KOLO_TRY(kolo_plan_run_shard(c->plan, k, complete));
    }
    if (!complete) KOLO_TRY(complete_step(*finish, x));
    s->busy_ns = kolo_now_ns() - begin - kolo_plan_waited_ns((*finish)->plan);
    return KOLO_OK;
}

/* ---- audited steps ---- */

/* Computes the shards of `rank`; hashes[k] is that of shard k, 0 without samples. */
static kolo_status hash_shards(kolo_session *s, const kolo_batch *batch, int64_t rank,
                               const scalars *x, const cached *finish, uint64_t *hashes) {
    const bool own = rank == rank_of(s);
    int first, end;
    kolo_session_shards(s, (int)rank, &first, &end);
    for (int k = first; k < end; k++) {
        const cached *c;
        if (shard_count(s, batch->global_count, k) == 0) {
            if (own) kolo_plan_skip_shard(finish->plan, k);
            continue;
        }
        KOLO_TRY(prepare_shard(s, batch, k, x, finish, &c));
        KOLO_TRY(kolo_plan_hash_shard(c->plan, own ? k : -1, &hashes[k]));
    }
    return KOLO_OK;
}

/* Bytes of a field of `count` samples, rounded up: the next one is aligned. */
static size_t bytes_of(const kolo_field *field, int64_t count) {
    return kolo_round_up((size_t)count * kolo_field_bytes(field), 64);
}

/* Shard k, broadcast by its owner into `memory`, field after field. */
static kolo_status share_shard(const kolo_session *s, const kolo_batch *batch, int k, int owner,
                               char *memory, kolo_batch *shard) {
    const int64_t count = shard_count(s, batch->global_count, k), first = k * s->opts.batch;
    kolo_batch own = {0};
    if (rank_of(s) == owner) own = kolo_batch_part(batch, first - batch->first, count);
    *shard = *batch;
    shard->first = first;
    shard->count = count;
    for (int f = 0; f < batch->n_fields; f++) {
        size_t bytes = (size_t)count * kolo_field_bytes(&batch->fields[f]);
        shard->data[f] = memory;
        if (own.data[f]) memcpy(memory, own.data[f], bytes);
        KOLO_TRY(kolo_broadcast(s->comm, memory, bytes, KOLO_DTYPE_U8, owner));
        memory += bytes_of(&batch->fields[f], count);
    }
    return KOLO_OK;
}

/* Shard k has two gradients: all ranks compute it again, and the error names the rank that was
 * wrong. */
static kolo_status settle(kolo_session *s, const kolo_batch *batch, int k, const scalars *x,
                          const cached *finish, kolo_dispute d) {
    size_t bytes = 0;
    for (int f = 0; f < batch->n_fields; f++) {
        bytes += bytes_of(&batch->fields[f], s->opts.batch);
    }
    char *memory = kolo_alloc(bytes);
    uint64_t *again = kolo_zalloc((size_t)d.ranks * sizeof *again), own = 0;
    kolo_batch shard;
    const cached *c;
    kolo_status status = memory && again ? KOLO_OK : KOLO_NOMEM(bytes);
    if (status == KOLO_OK) status = share_shard(s, batch, k, d.owner, memory, &shard);
    if (status == KOLO_OK) status = prepare_shard(s, &shard, k, x, finish, &c);
    if (status == KOLO_OK) status = kolo_plan_hash_shard(c->plan, -1, &own);
    if (status == KOLO_OK) {
        status = kolo_allgather(s->comm, &own, again, sizeof own, KOLO_DTYPE_U8);
    }
    d.again = again;
    if (status == KOLO_OK) status = kolo_audit_verdict(&d);
    kolo_free(memory);
    kolo_free(again);
    return status;
}

/* Compares the gradients that owners and auditors computed; hashes: of the owners, of the auditors.
 */
static kolo_status compare(kolo_session *s, const kolo_batch *batch, const scalars *x,
                           const cached *finish, const uint64_t *hashes) {
    const int shards = s->opts.shards, ranks = (int)ranks_of(s);
    for (int owner = 0; owner < ranks; owner++) {
        int first, end;
        kolo_session_shards(s, owner, &first, &end);
        for (int k = first; k < end; k++) {
            if (hashes[k] == hashes[shards + k]) continue;
            return settle(s, batch, k, x, finish,
                          (kolo_dispute){.step = (int64_t)s->steps + 1,
                                         .shard = k,
                                         .owner = owner,
                                         .auditor = (owner + ranks - 1) % ranks,
                                         .of_owner = hashes[k],
                                         .of_auditor = hashes[shards + k],
                                         .ranks = ranks});
        }
    }
    return KOLO_OK;
}

/* Each rank computes the shards of the next rank, then its own. */
static kolo_status run_audited(kolo_session *s, const kolo_batch *batch, const scalars *x,
                               const cached **finish) {
    const size_t shards = (size_t)s->opts.shards;
    const int64_t rank = rank_of(s), next = (rank + 1) % ranks_of(s);
    KOLO_TRY(get_plan(s, FINISH, s->opts.batch, s->opts.batch, finish));
    uint64_t *hashes = kolo_zalloc(2 * shards * sizeof *hashes);
    if (!hashes) return KOLO_NOMEM(2 * shards * sizeof *hashes);
    kolo_status status = hash_shards(s, &s->audited, next, x, *finish, hashes + shards);
    if (status == KOLO_OK) {
        status = hash_shards(s, batch, rank, x, *finish, hashes);
    }
    if (status == KOLO_OK) { /* each is of one rank; the others have 0 */
        status = kolo_allreduce(s->comm, hashes, 2 * shards, KOLO_DTYPE_I64, KOLO_SUM);
    }
    if (status == KOLO_OK) status = compare(s, batch, x, *finish, hashes);
    kolo_free(hashes);
    return status == KOLO_OK ? complete_step(*finish, x) : status;
}

/* A rank's batch must consist of its shards. */
static kolo_status check_shards(const kolo_session *s, const kolo_batch *batch) {
    int64_t global = batch->global_count, size = s->opts.batch;
    int64_t first = kolo_min_i64(s->first_shard * size, global);
    int64_t count = kolo_min_i64(s->end_shard * size, global) - first;
    if (batch->count == count && (count == 0 || batch->first == first)) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "samples %" PRId64 " to %" PRId64 " of %" PRId64 " on rank %" PRId64
                     ", whose shards have %" PRId64 " to %" PRId64,
                     batch->first, batch->first + batch->count, global, rank_of(s), first,
                     first + count);
}

kolo_status kolo_session_step_batch(kolo_session *s, const kolo_batch *batch, double lr,
                                    kolo_sums *sums) {
    KOLO_ASSERT(!s->opts.evaluate_only && batch->global_count > 0);
    const bool shards = s->opts.shards > 0;
    const cached *finish; /* the plan that ends the step */
    int64_t labels;
    if (shards) KOLO_TRY(check_shards(s, batch));
    KOLO_TRY(kolo_session_check_batch(s, batch, UINT32_MAX));
    KOLO_TRY(sum_labels(s, batch, &labels));
    const scalars x = step_scalars(s, lr, labels);
    const bool audited = shards && s->comm && s->audited.global_count > 0;
    if (audited) {
        KOLO_TRY(run_audited(s, batch, &x, &finish));
    } else if (shards) {
        KOLO_TRY(run_shards(s, batch, &x, &finish));
    } else {
        KOLO_TRY(run_micro_batches(s, batch, &x, &finish));
    }
    s->audited = (kolo_batch){0};
    s->trained = finish->plan;
    s->evaluated = NULL;
    *sums = read_sums(finish, batch->global_count, labels);
    s->steps++; /* a failed step repeats its draws */
    return KOLO_OK;
}

kolo_status kolo_session_deal(kolo_session *s, const int *counts) {
    size_t bytes = (size_t)ranks_of(s) * sizeof *counts;
    KOLO_TRY(kolo_plan_deal(find_plan(s, FINISH, s->opts.batch)->plan, counts));
    if (!s->counts) s->counts = kolo_alloc(bytes);
    if (!s->counts) return KOLO_NOMEM(bytes);
    memcpy(s->counts, counts, bytes);
    kolo_session_shards(s, (int)rank_of(s), &s->first_shard, &s->end_shard);
    return KOLO_OK;
}

int64_t kolo_session_busy_ns(const kolo_session *s) { return s->busy_ns; }

bool kolo_session_evaluates_together(const kolo_session *s) { return evaluates_together(s); }

bool kolo_session_is_reproducible(const kolo_session *s) { return s->opts.shards > 0; }

void kolo_session_shards(const kolo_session *s, int rank, int *first, int *end) {
    *first = *end = 0;
    for (int r = 0; s->counts && r <= rank; r++) {
        *first = *end;
        *end += s->counts[r];
    }
}

void kolo_session_audit(kolo_session *s, const kolo_batch *other) { s->audited = *other; }

/* Runs the evaluation plan for a checked batch. */
static kolo_status forward(kolo_session *s, const kolo_batch *batch, const cached **c) {
    int64_t key = evaluates_together(s) ? batch->global_count : batch->count;
    KOLO_TRY(get_plan(s, EVALUATE, key, batch->count, c));
    if (batch->count == 0) return kolo_plan_skip((*c)->plan, false);
    feed(s, *c, batch);
    kolo_plan_set_integer((*c)->plan, (*c)->first_sample, batch->first);
    s->evaluated = (*c)->plan;
    return kolo_plan_run((*c)->plan);
}

kolo_status kolo_session_forward(kolo_session *s, const kolo_batch *batch) {
    const cached *unused;
    return forward(s, batch, &unused);
}

kolo_status kolo_session_evaluate_batch(kolo_session *s, const kolo_batch *batch, kolo_sums *sums) {
    KOLO_ASSERT(batch->count > 0 || evaluates_together(s));
    const cached *c;
    KOLO_TRY(kolo_session_check_batch(s, batch, UINT32_MAX));
    KOLO_TRY(forward(s, batch, &c));
    if (batch->count == 0) {
        *sums = (kolo_sums){0};
        return KOLO_OK;
    }
    *sums = read_sums(c, batch->count, count_labels(s, batch));
    return KOLO_OK;
}

const float *kolo_session_output(const kolo_session *s, const char *name, kolo_tensor *tensor) {
    return s->evaluated ? kolo_plan_output(s->evaluated, name, tensor) : NULL;
}

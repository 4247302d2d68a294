/* Set-up of a training job: data, sizes, a trial build of the model. */
#include "train/session/setup.h"

#include "base/integer.h"
#include "base/number.h"
#include "base/range.h"
#include "data/dataset.h"
#include "data/mix.h"
#include "data/sampler.h"
#include "kernel/select/families.h"
#include "kolo/onnx.h"
#include "train/session/buckets.h"
#include "train/session/internal.h"
#include "train/session/model_check.h"
#include "train/session/setup_parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- data ---- */

static kolo_status open_synthetic(const kolo_shape *sample, int64_t classes, bool label_maps,
                                  const kolo_dataset_opts *opts, int64_t samples,
                                  kolo_dataset **dataset) {
    char spec[128];
    if (opts->categories > 0) {
        snprintf(spec, sizeof spec, "synthetic-clicks:N=%" PRId64 ",test=1", samples);
    } else if (opts->features > 0) {
        snprintf(spec, sizeof spec, "synthetic-labelled:N=%" PRId64 ",test=1,classes=%" PRId64,
                 samples, classes);
    } else if (sample->rank == 1) {
        snprintf(spec, sizeof spec, "synthetic-tokens:N=%" PRId64 ",test=1", samples);
    } else {
        snprintf(spec, sizeof spec,
                 "%s:N=%" PRId64 ",test=1,shape=%" PRId64 "x%" PRId64 "x%" PRId64
                 ",classes=%" PRId64,
                 label_maps ? "synthetic-seg" : "synthetic", samples, sample->dim[0],
                 sample->dim[1], sample->dim[2], classes);
    }
    return kolo_dataset_open_for(spec, KOLO_SPLIT_TRAIN, opts, dataset);
}

static kolo_status check_test(const kolo_dataset_info *train, const kolo_dataset_info *test) {
    const kolo_field *one = &train->fields[KOLO_FIELD_X], *other = &test->fields[KOLO_FIELD_X];
    if (kolo_shape_equal(&one->shape, &other->shape) &&
        kolo_shape_equal(&train->fields[KOLO_FIELD_Y].shape, &test->fields[KOLO_FIELD_Y].shape) &&
        train->classes == test->classes) {
        return KOLO_OK;
    }
    char a[KOLO_SHAPE_TEXT], b[KOLO_SHAPE_TEXT];
    return KOLO_FAIL(KOLO_ERR_FORMAT,
                     "%s: training samples are %s in %d classes, test samples %s in %d: the files "
                     "do not match",
                     train->place, kolo_shape_text(&one->shape, a), train->classes,
                     kolo_shape_text(&other->shape, b), test->classes);
}

/* Where lines on damaged samples go: it stays where it is, unlike the set-up. */
typedef struct kolo_damage_notice {
    kolo_train_notice notice;
    void *arg;
} kolo_damage_notice;

static void warn_of_damage(void *arg, const char *line) {
    const kolo_damage_notice *to = arg;
    if (to->notice) to->notice(to->arg, line, KOLO_NOTICE_WARNING);
}

static kolo_status skip_damaged(kolo_setup *s, kolo_dataset_opts *opts) {
    if (s->opts.strict) return KOLO_OK;
    s->damage = kolo_alloc(sizeof *s->damage);
    if (!s->damage) return KOLO_NOMEM(sizeof *s->damage);
    *s->damage = (kolo_damage_notice){s->opts.notice, s->opts.notice_arg};
    opts->warn = warn_of_damage;
    opts->warn_arg = s->damage;
    return KOLO_OK;
}

static kolo_status check_strict(const kolo_setup *s) {
    if (!s->opts.strict || s->train->encoded || s->train->stream) return KOLO_OK;
    return KOLO_FAIL(
        KOLO_ERR_ARG,
        "--strict has no effect on %s, whose samples are checked when it is opened: omit it",
        kolo_dataset_describe(s->train)->name);
}

static kolo_status open_data(kolo_setup *s, const kolo_model *model) {
    const kolo_train_opts *o = &s->opts;
    kolo_shape sample;
    int64_t classes;
    KOLO_TRY(kolo_model_sample(model, o->model_options, &sample, &classes));
    if (!o->data && model->build_file && !model->file) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "the input of %s has open dimensions: give --data, or export the net with "
                         "sizes",
                         model->name);
    }
    kolo_dataset_opts opts = {0};
    KOLO_TRY(kolo_model_window(model, o->model_options, &opts));
    KOLO_TRY(skip_damaged(s, &opts));
    KOLO_TRY(o->data ? kolo_dataset_open_for(o->data, KOLO_SPLIT_TRAIN, &opts, &s->own[0])
                     : open_synthetic(&sample, classes, model->label_maps, &opts, s->global_batch,
                                      &s->own[0]));
    s->train = s->own[0];
    KOLO_TRY(check_strict(s));
    if (o->no_eval) return KOLO_OK;
    KOLO_TRY(kolo_dataset_open_for(o->data, KOLO_SPLIT_TEST, &opts, &s->own[1]));
    s->test = s->own[1];
    return check_test(kolo_dataset_describe(s->train), kolo_dataset_describe(s->test));
}

/* ---- sizes ---- */

/* Options that count epochs, or need to read samples by their numbers. */
static kolo_status check_stream(const kolo_setup *s) {
    const kolo_train_opts *o = &s->opts;
    const struct {
        bool given;
        const char *what;
    } cases[] = {
        {o->eval_every > 0, "--eval-every counts epochs: give --eval-every-steps"},
        {o->checkpoint_epochs > 0, "--checkpoint-every counts epochs: give steps or a time"},
        {o->warmup_epochs > 0, "--warmup-epochs counts epochs: give 0"},
        {o->schedule == KOLO_LR_STEP, "--schedule step counts epochs: choose another one"},
        {o->steps == 0, "give --steps"},
        {o->in_memory, "a benchmark reads the same samples again: give other data"},
        {o->audit > 0, "--audit reads samples twice: omit it"},
        {s->measured, "--worker-weights measured deals samples ahead: give numbers"},
        {o->sync == KOLO_SYNC_PS, "--sync ps: the workers may be at different steps: omit it"},
        {o->sync == KOLO_SYNC_MESH, "--sync mesh: the workers may be at different steps: omit it"},
    };
    if (!s->train->stream) return KOLO_OK;
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        if (!cases[i].given) continue;
        return KOLO_FAIL(KOLO_ERR_ARG, "%s is a stream, without epochs, read once: %s",
                         kolo_dataset_describe(s->train)->place, cases[i].what);
    }
    return KOLO_OK;
}

static kolo_status compute_steps(kolo_setup *s, int workers) {
    const kolo_dataset_info *info = kolo_dataset_describe(s->train);
    KOLO_TRY(check_stream(s));
    if (workers > info->count) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%d workers for %" PRId64 " training samples in %s: use at most %" PRId64
                         " workers",
                         workers, info->count, info->name, info->count);
    }
    if (s->opts.in_memory) {
        if (info->count < s->global_batch) {
            return KOLO_FAIL(KOLO_ERR_ARG,
                             "%d workers with a batch of %" PRId64 " need %" PRId64
                             " samples, %s has %" PRId64 ": choose a smaller batch",
                             workers, s->opts.batch, s->global_batch, info->name, info->count);
        }
        s->epoch_steps = s->total_steps = s->opts.steps;
        return KOLO_OK;
    }
    s->epoch_steps = (info->count - 1) / s->global_batch + 1;
    int64_t by_epochs = INT64_MAX;
    if (s->opts.epochs > 0 && s->opts.epochs < INT64_MAX / s->epoch_steps) {
        by_epochs = s->opts.epochs * s->epoch_steps;
    }
    s->total_steps = s->opts.steps > 0 ? kolo_min_i64(s->opts.steps, by_epochs) : by_epochs;
    return KOLO_OK;
}

/* Where stages synchronize batch normalization, the workers along dp agree in their micro-batches,
 * also in the last step of an epoch. */
static kolo_status check_norms(const kolo_setup *s) {
    const int64_t sizes[] = {s->global_batch,
                             kolo_dataset_describe(s->train)->count % s->global_batch};
    if (!s->opts.sync_bn || kolo_mesh_stages(&s->mesh) == 1) return KOLO_OK;
    for (size_t i = 0; i < KOLO_COUNT(sizes); i++) {
        if (sizes[i] == 0 || equal_micro_batches(sizes[i], s->workers, s->opts.batch)) continue;
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "--sync-bn: a step of %" PRId64 " samples gives some of %d workers along "
                         "dp no sample in a micro-batch: use fewer micro-batches, another batch, "
                         "or omit --sync-bn",
                         sizes[i], s->workers);
    }
    return KOLO_OK;
}

/* Full steps among the first k. */
static int64_t full_steps(const kolo_setup *s, int64_t k) {
    int64_t full = s->epoch_steps; /* of an epoch */
    if (!s->opts.in_memory) full = kolo_dataset_describe(s->train)->count / s->global_batch;
    KOLO_ASSERT(s->epoch_steps > 0);
    return k / s->epoch_steps * full + kolo_min_i64(k % s->epoch_steps, full);
}

bool kolo_setup_chooses_buckets(const kolo_setup *s, int64_t from) {
    return (s->session.measure_buckets || s->session.measure_compression) &&
           full_steps(s, s->total_steps) - full_steps(s, from) > KOLO_BUCKETS_STEPS;
}

static kolo_status check_buckets(const kolo_setup *s) {
    const bool buckets = s->session.measure_buckets;
    if (!buckets && !s->session.measure_compression) return KOLO_OK;
    if (kolo_setup_chooses_buckets(s, 0)) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "--%s auto chooses %s after %d full steps of %" PRId64
                     " samples, and the run has %" PRId64
                     ": train longer, choose a smaller batch, or give %s",
                     buckets ? "buckets" : "compress", buckets ? "the buckets" : "gradients",
                     (int)KOLO_BUCKETS_STEPS, s->global_batch, full_steps(s, s->total_steps),
                     buckets ? "sizes" : "a codec");
}

/* The samples of a step, and of a worker's micro-batch or a logical shard. */
static void compute_batches(kolo_setup *s) {
    kolo_train_opts *o = &s->opts;
    s->global_batch = o->global_batch ? o->global_batch : o->batch * o->accumulate * s->workers;
    int64_t parts = kolo_max_i64(o->reproducible ? o->reproducible : s->workers * o->accumulate, 1);
    o->batch = (s->global_batch - 1) / parts + 1;
}

kolo_status kolo_weights_parse(const char *text, int workers, double *weights) {
    static const double most = 1e9;
    const char *at = text;
    int n = 0;
    for (bool more = true; more; n++) {
        char *end;
        double weight = kolo_parse_double(at, &end);
        more = *end == ',';
        if (end == at || (*end && !more) || !(weight > 0)) {
            return KOLO_FAIL(KOLO_ERR_ARG,
                             "worker weights \"%s\": must be positive numbers, such as 1,1,0.5, "
                             "or " KOLO_WEIGHTS_MEASURED,
                             text);
        }
        if (weight >= most) {
            return KOLO_FAIL(KOLO_ERR_ARG,
                             "worker weights \"%s\": that of worker %d, %.*s, must be below %g: "
                             "only their ratios count, so divide all by the same number",
                             text, n, (int)(end - at), at, most);
        }
        if (n < workers) weights[n] = weight;
        at = end + 1;
    }
    if (n == workers) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, "%d worker weights for %d workers: give one each", n, workers);
}

static kolo_status deal_shards(kolo_setup *s, int workers) {
    const char *text = s->opts.worker_weights;
    if (s->opts.reproducible == 0) return KOLO_OK;
    s->counts = kolo_alloc((size_t)workers * sizeof *s->counts);
    double *weights = kolo_alloc((size_t)workers * sizeof *weights);
    kolo_status status = KOLO_OK;
    if (!s->counts || !weights) status = KOLO_NOMEM((size_t)workers * sizeof *weights);
    s->measured = text && strcmp(text, KOLO_WEIGHTS_MEASURED) == 0;
    bool given = text && !s->measured && kolo_mesh_stages(&s->mesh) <= 1; /* else of stages */
    if (status == KOLO_OK && given) status = kolo_weights_parse(text, workers, weights);
    if (status == KOLO_OK) {
        kolo_deal_shards((int)s->opts.reproducible, workers, given ? weights : NULL, s->counts);
    }
    kolo_free(weights);
    return status;
}

/* The speeds of the workers of a pipeline. */
static kolo_status weigh_stages(kolo_setup *s, int workers) {
    const char *text = s->opts.worker_weights;
    if (!text || kolo_mesh_stages(&s->mesh) <= 1) return KOLO_OK;
    if (strcmp(text, KOLO_WEIGHTS_MEASURED) == 0) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "worker weights " KOLO_WEIGHTS_MEASURED
                         " deal the logical shards of a reproducible run: give numbers for the "
                         "stages of a pipeline, or --rebalance-stages");
    }
    s->speeds = kolo_alloc((size_t)workers * sizeof *s->speeds);
    if (!s->speeds) return KOLO_NOMEM((size_t)workers * sizeof *s->speeds);
    return kolo_weights_parse(text, workers, s->speeds);
}

/* Samples of the shard in the last batch of an epoch that is not full; 0: there is none. */
static int64_t short_shard(const kolo_setup *s) {
    bool all = s->opts.reproducible > 0 && !s->opts.in_memory && s->total_steps >= s->epoch_steps;
    int64_t samples = kolo_dataset_describe(s->train)->count;
    return all ? samples % s->global_batch % s->opts.batch : 0;
}

/* ---- opening ---- */

/* The metric of --keep-best must be one that an evaluation of the model has. */
static kolo_status check_metric(const kolo_setup *s, const kolo_graph *graph) {
    if (!s->opts.keep_best) return KOLO_OK;
    const int row = kolo_metric_row(s->opts.keep_best);
    const kolo_metric *m = &kolo_metric_table()[row];
    const kolo_dataset_info *info = kolo_dataset_describe(s->train);
    const bool tokens = info->fields[KOLO_FIELD_X].dtype == KOLO_DTYPE_I32;
    const kolo_metrics some = kolo_sums_metrics(&s->zero, tokens);
    const bool there =
        m->output ? kolo_value_ok(kolo_graph_output(graph, m->output)) : !isnan(some.value[row]);
    if (there) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "--keep-best %s: evaluations of this model and data have no %s: give "
                     "--keep-best loss, for example",
                     m->name, m->name);
}

kolo_lr kolo_setup_learning_rate(const kolo_setup *s) {
    const int64_t samples = kolo_min_i64(s->global_batch, kolo_dataset_describe(s->train)->count);
    return kolo_lr_make(&s->opts, samples, s->epoch_steps, s->total_steps);
}

/* Detects samples that the model does not accept, on all ranks alike, before any collective. */
static kolo_status try_model(kolo_setup *s) {
    kolo_graph *graph;
    KOLO_TRY(kolo_session_build(&s->session, 1, &graph));
    for (int32_t v = 0; v < graph->n_values; v++) {
        s->normalizes |= kolo_info(graph, (kolo_value){.id = v})->kind == KOLO_VALUE_STATE;
    }
    s->zero = kolo_sums_zero(graph);
    kolo_status status =
        kolo_model_check_fields(&s->session, graph, kolo_dataset_describe(s->train));
    if (status == KOLO_OK) status = check_metric(s, graph);
    kolo_graph_destroy(graph);
    return status;
}

/* Options of checkpoints where workers make steps without each other. */
static kolo_status check_saves_alone(const kolo_train_opts *o, const kolo_consistency *c) {
    if (o->checkpoint_seconds <= 0 || (!c->lease && !o->record && !o->replay)) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                     "checkpoints by time with %s: the workers meet at steps that are known "
                     "before: give --checkpoint-every in steps",
                     c->lease    ? "leases"
                     : o->record ? "--record"
                                 : "--replay");
}

/* The tables at servers. Rows expire after updates: steps, or with a bound the steps of a worker.
 */
static kolo_table_config tables_of(const kolo_train_opts *o, const kolo_consistency *consistency,
                                   int workers) {
    kolo_consistency rows = *consistency;
    if (!o->table) return (kolo_table_config){0};
    /* It was checked. */
    if (o->table_consistency) (void)kolo_consistency_parse(o->table_consistency, workers, &rows);
    const bool at_push = kolo_consistency_updates_at_push(&rows);
    return (kolo_table_config){
        .names = o->table,
        .seed = o->seed,
        .staleness = kolo_consistency_staleness(&rows),
        .outlives = kolo_consistency_outlives(consistency) && o->servers > 0,
        .bytes = o->table_bytes,
        .admit = o->table_admit,
        .expire = o->table_expire * (at_push ? workers : 1),
        .expire_ms = (int64_t)ceil(o->table_expire_seconds * 1000),
        .refuse = o->table_refuse,
        .saved = !o->wait_for_saves &&
                 (o->checkpoint_steps + o->checkpoint_epochs > 0 || o->checkpoint_seconds > 0),
    };
}

/* What a plan is compiled for. */
static kolo_plan_opts plan_of(const kolo_setup *s, const kolo_strategy *strategy) {
    return (kolo_plan_opts){
        .mesh = s->mesh,
        .placement = s->placement,
        .tp_blocks = (int)s->opts.tp_blocks,
        .zero = s->opts.zero,
        .lag = strategy->consistency.kind == KOLO_CONSISTENCY_LAG ? (int)strategy->consistency.steps
                                                                  : 0,
        .compression = s->opts.sync == KOLO_SYNC_ALLREDUCE ? strategy->compression
                                                           : (kolo_compression){.power_rank = 0},
        .optimizer = s->opts.optimizer,
        .sparse_embedding = s->opts.sparse_embedding,
        .sync_batch_norm = s->opts.sync_bn,
        .bucket_bytes = (size_t)s->opts.bucket_bytes,
        .bucket_sizes = s->bucket_sizes,
        .n_bucket_sizes = strategy->n_bucket_sizes,
        .algorithm = s->opts.algorithm,
        .kernels = kolo_kernel_set_of(s->opts.reference_kernels, s->opts.no_winograd),
        .no_chains = s->opts.no_chains,
        .lanes = kolo_device_is_apart(s->opts.device) ? KOLO_LANES_OFF : s->opts.lanes,
        .threads = s->opts.threads,
        .recompute = s->opts.recompute,
        .precision = s->opts.precision,
    };
}

/* Everything that needs neither the model nor the data. */
static kolo_status open_steps(kolo_setup *s, const kolo_train_opts *given, int workers) {
    kolo_strategy strategy;
    KOLO_TRY(kolo_setup_resolve(given, workers, &s->opts));
    KOLO_TRY(kolo_check_count("number of workers", workers, 1, 1 << 16));
    KOLO_TRY(kolo_setup_choose_strategy(s, workers, &strategy));
    if (s->opts.sync != KOLO_SYNC_ALLREDUCE && kolo_consistency_is_alone(&strategy.consistency)) {
        KOLO_TRY(check_saves_alone(&s->opts, &strategy.consistency));
    }
    s->workers = s->mesh.axes[kolo_mesh_find(&s->mesh, "dp")].size;
    if (strategy.consistency.delay > 0 && !kolo_consistency_has_rounds(&strategy.consistency)) {
        s->opts.optimizer.delay = strategy.consistency.delay;
        s->opts.optimizer.ahead = strategy.consistency.ahead;
    }
    const bool served = s->opts.sync != KOLO_SYNC_ALLREDUCE;
    compute_batches(s);
    KOLO_TRY(deal_shards(s, s->workers));
    KOLO_TRY(weigh_stages(s, workers));
    s->session = (kolo_session_config){
        .batch = s->opts.batch,
        .accumulate = s->opts.accumulate,
        .global_batch = s->global_batch,
        .shards = (int)s->opts.reproducible,
        .counts = s->counts,
        .consistency = strategy.consistency,
        .served = served,
        .no_local_aggregate = s->opts.no_local_aggregate,
        .codes = served ? strategy.compression : (kolo_compression){.power_rank = 0},
        .tables = tables_of(&s->opts, &strategy.consistency, workers),
        .device = s->opts.device,
        .loader_threads = s->opts.loader_threads,
        .share = !s->opts.no_share,
        .measure_buckets = strategy.measure_buckets,
        .measure_compression = strategy.measure_compression,
        .schedule = strategy.schedule,
        .chunks = strategy.chunks,
        .speeds = s->speeds,
        .stage_bytes = s->opts.stage_bytes,
        .rebalance = s->opts.rebalance_stages,
        .plan = plan_of(s, &strategy),
    };
    return KOLO_OK;
}

static kolo_status open_all(kolo_setup *s, const kolo_train_opts *given, int workers) {
    const kolo_model *model;
    KOLO_TRY(kolo_setup_check_names(given));
    KOLO_TRY(open_steps(s, given, workers));
    KOLO_TRY(kolo_model_find(s->opts.model, &model));
    KOLO_TRY(kolo_augment_parse(s->opts.augment, &s->augment));
    if (s->opts.in_memory && kolo_augment_any(&s->augment)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a benchmark on a resident batch has no augmentation");
    }
    KOLO_TRY(open_data(s, model));
    if (model->build_file && model->file) s->notice = kolo_onnx_notice(model->file);
    KOLO_TRY(compute_steps(s, s->workers));
    KOLO_TRY(check_norms(s));
    KOLO_TRY(check_buckets(s));
    const kolo_dataset_info *info = kolo_dataset_describe(s->train);
    if (kolo_augment_any(&s->augment) && info->fields[KOLO_FIELD_X].dtype != KOLO_DTYPE_U8) {
        return KOLO_FAIL(KOLO_ERR_ARG, "augmentation is for images, and %s has none", info->name);
    }
    s->session.model = s->opts.model;
    s->session.found = model;
    s->session.model_options = s->opts.model_options;
    s->session.sample = info->fields[KOLO_FIELD_X].shape;
    s->session.label = info->fields[KOLO_FIELD_Y].shape;
    s->session.numeric = info->fields[KOLO_FIELD_Y].dtype == KOLO_DTYPE_F32;
    s->session.classes = info->classes;
    s->session.mixes = kolo_augment_mixes(&s->augment);
    s->session.short_shard = short_shard(s);
    KOLO_TRY(try_model(s));
    const bool rounds = kolo_consistency_has_rounds(&s->session.consistency);
    if (s->session.served && !rounds && s->normalizes && s->opts.accumulate > 1) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "--sync ps cannot be combined with --accumulate for a model with running "
                         "statistics: how a step weights them depends on its micro-batches");
    }
    return KOLO_OK;
}

static kolo_status open_fit(kolo_setup *s, const kolo_train_opts *given,
                            const kolo_session *session, int workers) {
    KOLO_TRY(open_steps(s, given, workers));
    if (given->worker_weights && kolo_mesh_stages(&s->mesh) > 1) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "worker weights of the stages of a pipeline are an option of the session, "
                         "which cuts the model when it is created: give them there");
    }
    s->session = *kolo_session_config_of(session);
    s->session.classes = kolo_max_i64(kolo_dataset_describe(s->train)->classes, 1);
    KOLO_TRY(kolo_augment_parse(s->opts.augment, &s->augment));
    if (kolo_augment_mixes(&s->augment)) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "mixup and cutmix have no effect on the loss of a graph of kolo_fit: use "
                         "kolo_train, or kolo_session_loader with a graph that reads the field "
                         "\"%s\"",
                         KOLO_MIX_TARGET);
    }
    KOLO_TRY(compute_steps(s, s->workers));
    return try_model(s);
}

kolo_status kolo_setup_open_fit(const kolo_train_opts *opts, const kolo_session *session,
                                const kolo_dataset *train, const kolo_dataset *test, int workers,
                                kolo_setup *setup) {
    kolo_setup s = {.train = train, .test = test};
    kolo_status status = open_fit(&s, opts, session, workers);
    if (status != KOLO_OK) {
        kolo_setup_close(&s);
        return status;
    }
    *setup = s;
    return KOLO_OK;
}

static kolo_status open_with(kolo_status (*open)(kolo_setup *, const kolo_train_opts *, int),
                             const kolo_train_opts *opts, int workers, kolo_setup *setup) {
    kolo_setup s = {0};
    kolo_status status = open(&s, opts, workers);
    if (status != KOLO_OK) {
        kolo_setup_close(&s);
        return status;
    }
    *setup = s;
    return KOLO_OK;
}

kolo_status kolo_setup_open(const kolo_train_opts *opts, int workers, kolo_setup *setup) {
    return open_with(open_all, opts, workers, setup);
}

kolo_status kolo_setup_open_steps(const kolo_train_opts *opts, int workers, kolo_setup *setup) {
    return open_with(open_steps, opts, workers, setup);
}

void kolo_notify(const kolo_train_opts *o, kolo_notice_kind kind, const char *fmt, ...) {
    kolo_text line = {0};
    va_list args;
    if (!o->notice) return;
    va_start(args, fmt);
    kolo_text_addv(&line, fmt, args);
    va_end(args);
    if (!line.failed) o->notice(o->notice_arg, line.text, kind);
    kolo_text_fini(&line);
}

void kolo_setup_close(kolo_setup *setup) {
    kolo_dataset_close(setup->own[0]);
    kolo_dataset_close(setup->own[1]);
    kolo_tuner_destroy(setup->tuner);
    kolo_free(setup->damage);
    kolo_free(setup->counts);
    kolo_free(setup->speeds);
    kolo_free(setup->placement);
    kolo_free(setup->bucket_sizes);
    *setup = (kolo_setup){0};
}

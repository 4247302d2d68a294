/* Set-up of a training job: defaults, ranges, data, sizes, a trial build of the model. */
#include "train/session/setup.h"

#include "base/integer.h"
#include "base/json.h"
#include "base/number.h"
#include "base/range.h"
#include "data/sampler.h"
#include "kernel/select/families.h"
#include "pass/placement_rules.h"
#include "plan/program.h"
#include "train/session/learning_rate.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- options ---- */

static void fill_defaults(kolo_train_opts *o) {
    if (o->batch == 0 && o->global_batch == 0) o->batch = 64;
    if (o->accumulate == 0) o->accumulate = 1;
    if (o->in_memory) {
        o->epochs = 0;
        if (o->steps == 0) o->steps = 100;
        o->no_eval = true;
    }
    if (o->epochs == 0 && o->steps == 0) o->epochs = 1;
    if (o->lr == 0) o->lr = 0.01;
    if (o->log_every == 0) o->log_every = 10;
    if (o->lr_power == 0) o->lr_power = 2;
    if (o->lr_step_factor == 0) o->lr_step_factor = 0.1;
    if (o->lr_step_epochs == 0) o->lr_step_epochs = 30;
    if (o->threads == 0) o->threads = 1;
    if (o->bucket_bytes == 0) o->bucket_bytes = KOLO_BUCKET_BYTES;
    if (o->compress_min_bytes == 0) o->compress_min_bytes = 1 << 16;
}

static kolo_status check_checkpoints(const kolo_train_opts *o) {
    if (o->checkpoint_steps > 0 && o->checkpoint_epochs > 0) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "checkpoints every %" PRId64 " steps and every %" PRId64
                         " epochs: choose one of the two",
                         o->checkpoint_steps, o->checkpoint_epochs);
    }
    if ((o->checkpoint_steps > 0 || o->checkpoint_epochs > 0) && !o->out_dir) {
        return KOLO_FAIL(KOLO_ERR_ARG, "checkpoints need a folder: give --out");
    }
    if (o->in_memory && (o->checkpoint_steps || o->checkpoint_epochs || o->resume)) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "a benchmark neither writes checkpoints nor resumes from one");
    }
    return KOLO_OK;
}

static kolo_status check_batches(const kolo_train_opts *o) {
    if (o->global_batch > 0 && o->batch > 0) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "a batch of %" PRId64 " per worker and a global batch of %" PRId64
                         ": choose one of the two",
                         o->batch, o->global_batch);
    }
    if (o->worker_weights && o->reproducible == 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "worker weights distribute the logical shards of a "
                                       "reproducible run: give --reproducible too");
    }
    if (o->audit > 0 && o->reproducible == 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "an audit compares the gradients of logical shards: give "
                                       "--reproducible too");
    }
    if (o->zero > 0 && o->sparse_embedding) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "ZeRO shards sums over the workers: omit --zero, or "
                                               "--sparse-embedding");
    }
    if (o->zero > 2 && o->reproducible > 0) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "--zero 3 gathers parameters in every micro-batch, and workers may have "
                         "different numbers of logical shards: give --zero 2, or omit "
                         "--reproducible");
    }
    if (o->reproducible == 0) return KOLO_OK;
    if (o->global_batch == 0 || o->global_batch % o->reproducible != 0) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%" PRId64 " logical shards need a global batch that is a multiple of "
                         "them: give --global-batch %" PRId64 ", for example",
                         o->reproducible,
                         o->reproducible * kolo_max_i64(o->global_batch / o->reproducible, 8));
    }
    if (o->accumulate > 1) {
        return KOLO_FAIL(KOLO_ERR_ARG, "logical shards are the micro-batches of a reproducible "
                                       "run: omit --accumulate, and give more shards");
    }
    if (o->sync_bn) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "logical shards run one after the other, so batch normalization cannot be "
                         "synchronised over them: omit --sync-bn or --reproducible");
    }
    if (o->sparse_embedding) {
        return KOLO_FAIL(KOLO_ERR_ARG, "row-sparse gradients cannot be summed over logical shards: "
                                       "omit --sparse-embedding or --reproducible");
    }
    return KOLO_OK;
}

static kolo_status check_ranges(const kolo_train_opts *o) {
    const int64_t many = INT64_C(1) << 40;
    KOLO_TRY(kolo_check_count("batch", o->batch, o->global_batch == 0, 1 << 24));
    KOLO_TRY(kolo_check_count("global batch", o->global_batch, 0, many));
    KOLO_TRY(kolo_check_count("steps between audits", o->audit, 0, many));
    KOLO_TRY(kolo_check_count("steps between comparisons of replicas", o->check_replicas, 0, many));
    KOLO_TRY(kolo_check_count("level of ZeRO", o->zero, 0, 3));
    KOLO_TRY(kolo_check_count("logical shards", o->reproducible, 0, 1 << 16));
    KOLO_TRY(kolo_check_count("micro-batches", o->accumulate, 1, 1 << 20));
    KOLO_TRY(kolo_check_count("epochs", o->epochs, 0, 1 << 30));
    KOLO_TRY(kolo_check_count("steps", o->steps, 0, many));
    KOLO_TRY(kolo_check_count("threads", o->threads, 1, 1024));
    KOLO_TRY(kolo_check_count("bucket bytes", o->bucket_bytes, 1, many));
    KOLO_TRY(kolo_check_count("epochs between evaluations", o->eval_every, 0, 1 << 30));
    KOLO_TRY(kolo_check_count("steps between evaluations", o->eval_steps, 0, many));
    KOLO_TRY(kolo_check_count("steps between lines", o->log_every, 1, many));
    KOLO_TRY(kolo_check_count("steps between checkpoints", o->checkpoint_steps, 0, many));
    KOLO_TRY(kolo_check_count("epochs between checkpoints", o->checkpoint_epochs, 0, 1 << 30));
    KOLO_TRY(kolo_check_count("checkpoints to keep", o->keep, 0, many));
    KOLO_TRY(check_checkpoints(o));
    KOLO_TRY(check_batches(o));
    KOLO_TRY(kolo_check_count("epochs between learning-rate steps", o->lr_step_epochs, 1, 1 << 30));
    KOLO_TRY(kolo_check_real("learning rate", o->lr, 0, true, 1e6));
    KOLO_TRY(kolo_check_real("minimum learning rate", o->lr_min, 0, false, o->lr));
    KOLO_TRY(kolo_check_real("learning-rate power", o->lr_power, 0, true, 100));
    KOLO_TRY(kolo_check_count("batch that the learning rate is for", o->scale_lr, 0, many));
    KOLO_TRY(kolo_check_real("learning-rate factor", o->lr_step_factor, 0, true, 1));
    KOLO_TRY(kolo_check_real("warm-up epochs", o->warmup_epochs, 0, false, 1e6));
    KOLO_TRY(kolo_check_count("precision", o->precision, 0, KOLO_PRECISION_COUNT - 1));
    if (o->precision == KOLO_PRECISION_BF16 && !o->reference_kernels) {
        KOLO_TRY(kolo_kernel_check_bf16(kolo_isa_best()));
    }
    KOLO_TRY(kolo_check_count("algorithm", o->algorithm, 0, KOLO_ALGORITHM_COUNT - 1));
    KOLO_TRY(kolo_check_count("sync", o->sync, 0, KOLO_SYNC_COUNT - 1));
    KOLO_TRY(kolo_check_count("servers", o->servers, 0, 1 << 16));
    KOLO_TRY(kolo_check_count("recomputation", o->recompute, 0, KOLO_RECOMPUTE_COUNT - 1));
    return kolo_check_count("learning-rate schedule", o->schedule, 0, KOLO_LR_SCHEDULE_COUNT - 1);
}

static kolo_status check_names(const kolo_train_opts *o) {
    if (!o) return KOLO_FAIL(KOLO_ERR_ARG, "no options: give at least a model and data");
    if (!o->model || !*o->model) {
        return KOLO_FAIL(KOLO_ERR_ARG, "no model: choose one, such as lenet");
    }
    if (!o->in_memory && (!o->data || !*o->data)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "no data set: choose one, such as fashion-mnist");
    }
    return KOLO_OK;
}

static kolo_status resolve(const kolo_train_opts *given, kolo_train_opts *opts) {
    kolo_train_opts o = *given;
    fill_defaults(&o);
    KOLO_TRY(check_ranges(&o));
    KOLO_TRY(kolo_optimizer_resolve(&o.optimizer, &o.optimizer));
    *opts = o;
    return KOLO_OK;
}

/* ---- data ---- */

static kolo_status open_synthetic(const kolo_shape *sample, int64_t classes, bool label_maps,
                                  const kolo_dataset_opts *opts, int64_t samples,
                                  kolo_dataset **dataset) {
    char spec[128];
    if (sample->rank == 1) {
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

static kolo_status open_data(kolo_setup *s, const kolo_model *model) {
    const kolo_train_opts *o = &s->opts;
    kolo_shape sample;
    int64_t classes;
    KOLO_TRY(kolo_model_sample(model, o->model_options, &sample, &classes));
    kolo_dataset_opts opts = {0};
    KOLO_TRY(kolo_model_window(model, o->model_options, &opts));
    KOLO_TRY(o->data ? kolo_dataset_open_for(o->data, KOLO_SPLIT_TRAIN, &opts, &s->own[0])
                     : open_synthetic(&sample, classes, model->label_maps, &opts, s->global_batch,
                                      &s->own[0]));
    s->train = s->own[0];
    if (o->no_eval) return KOLO_OK;
    KOLO_TRY(kolo_dataset_open_for(o->data, KOLO_SPLIT_TEST, &opts, &s->own[1]));
    s->test = s->own[1];
    return check_test(kolo_dataset_describe(s->train), kolo_dataset_describe(s->test));
}

/* ---- sizes ---- */

static kolo_status compute_steps(kolo_setup *s, int workers) {
    const kolo_dataset_info *info = kolo_dataset_describe(s->train);
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

/* The samples of a step, and of a worker's micro-batch or a logical shard. */
static void compute_batches(kolo_setup *s) {
    kolo_train_opts *o = &s->opts;
    s->global_batch = o->global_batch ? o->global_batch : o->batch * o->accumulate * s->workers;
    int64_t parts = kolo_max_i64(o->reproducible ? o->reproducible : s->workers * o->accumulate, 1);
    o->batch = (s->global_batch - 1) / parts + 1;
}

static kolo_status parse_weights(const char *text, int workers, double *weights) {
    const char *at = text;
    int n = 0;
    for (bool more = true; more; n++) {
        char *end;
        double weight = kolo_parse_double(at, &end);
        more = *end == ',';
        if (end == at || (*end && !more) || !(weight > 0 && weight < 1e9)) {
            return KOLO_FAIL(KOLO_ERR_ARG,
                             "worker weights \"%s\": must be positive numbers, such as 1,1,0.5, "
                             "or " KOLO_WEIGHTS_MEASURED,
                             text);
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
    bool given = text && !s->measured;
    if (status == KOLO_OK && given) status = parse_weights(text, workers, weights);
    if (status == KOLO_OK) {
        kolo_deal_shards((int)s->opts.reproducible, workers, given ? weights : NULL, s->counts);
    }
    kolo_free(weights);
    return status;
}

/* What stages and tensor parallelism do not go with. */
static kolo_status check_model_axes(const kolo_train_opts *o, const kolo_mesh *mesh) {
    const struct {
        bool given;
        const char *option;
    } others[] = {
        {o->zero > 0, "--zero"},
        {o->reproducible > 0, "--reproducible"},
        {o->sparse_embedding, "--sparse-embedding"},
        {o->sync_bn, "--sync-bn"},
        {o->consistency && strcmp(o->consistency, "bsp") != 0, "--consistency"},
        {o->compress && strcmp(o->compress, "none") != 0, "--compress"},
    };
    char text[KOLO_MESH_TEXT];
    for (size_t i = 0; i < KOLO_COUNT(others); i++) {
        if (!others[i].given) continue;
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "%s is for data parallelism, and the mesh is %s: omit one of the two",
                         others[i].option, kolo_mesh_text(mesh, text));
    }
    return KOLO_OK;
}

/* The schedule of the pipeline. */
static kolo_status choose_schedule(kolo_setup *s) {
    kolo_session_config *c = &s->session;
    int chunks;
    KOLO_TRY(kolo_program_find(s->opts.pipeline, &c->schedule, &chunks));
    if (kolo_mesh_stages(&s->mesh) == 1 || chunks == 1) return KOLO_OK;
    return KOLO_FAIL(
        KOLO_ERR_UNSUPPORTED,
        "schedule %s: a worker trains one chunk of the model; kolo dump --what program "
        "shows schedules of several: take gpipe, 1f1b or zb-h1",
        s->opts.pipeline);
}

/* The mesh of all workers; it gets an axis dp if it has none. */
static kolo_status choose_mesh(const kolo_train_opts *o, int workers, kolo_mesh *mesh) {
    *mesh = (kolo_mesh){1, {{"dp", workers}}};
    if (!o->mesh) return KOLO_OK;
    KOLO_TRY(kolo_mesh_parse(o->mesh, workers, mesh));
    for (int a = 0; a < mesh->n_axes; a++) {
        const char *name = mesh->axes[a].name;
        if (mesh->axes[a].size == 1 || strcmp(name, "dp") == 0 || strcmp(name, "tp") == 0 ||
            strcmp(name, "pp") == 0) {
            continue;
        }
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "mesh %s: the axes are dp, data parallelism, tp, tensor parallelism, and "
                         "pp, the stages of a pipeline: give dp=%d",
                         o->mesh, workers);
    }
    if (kolo_mesh_find(mesh, "dp") < 0) {
        if (mesh->n_axes == KOLO_MESH_AXES) {
            return KOLO_FAIL(KOLO_ERR_ARG, "mesh %s has no axis dp: give dp=%d", o->mesh, workers);
        }
        memmove(mesh->axes + 1, mesh->axes, (size_t)mesh->n_axes++ * sizeof mesh->axes[0]);
        mesh->axes[0] = (kolo_mesh_axis){"dp", 1};
    }
    if (!kolo_mesh_has_model_axis(mesh)) return KOLO_OK;
    KOLO_TRY(check_model_axes(o, mesh));
    const int tp = kolo_mesh_find(mesh, "tp");
    if (kolo_mesh_stages(mesh) == 1 || tp < 0 || mesh->axes[tp].size == 1) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                     "mesh %s: stages of a pipeline are not divided further: give dp and pp, or dp "
                     "and tp",
                     o->mesh);
}

/* The rules of --placement. */
static kolo_status read_placement(kolo_setup *s) {
    if (!s->opts.placement) return KOLO_OK;
    if (kolo_mesh_has_model_axis(&s->mesh)) {
        return kolo_placement_rules_read(s->opts.placement, &s->placement);
    }
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "placement %s is of the layers that an axis tp divides: give "
                     "--mesh dp=*,tp=2, for example",
                     s->opts.placement);
}

/* Samples of the shard in the last batch of an epoch that is not full; 0: there is none. */
static int64_t short_shard(const kolo_setup *s) {
    bool all = s->opts.reproducible > 0 && !s->opts.in_memory && s->total_steps >= s->epoch_steps;
    int64_t samples = kolo_dataset_describe(s->train)->count;
    return all ? samples % s->global_batch % s->opts.batch : 0;
}

/* ---- opening ---- */

/* Detects samples that the model does not accept, on all ranks alike, before any collective. */
static kolo_status try_model(kolo_setup *s) {
    kolo_graph *graph;
    KOLO_TRY(kolo_session_build(&s->session, 1, &graph));
    for (int32_t v = 0; v < graph->n_values; v++) {
        s->normalizes |= kolo_info(graph, (kolo_value){.id = v})->kind == KOLO_VALUE_STATE;
    }
    s->zero = kolo_sums_zero(graph);
    kolo_status status = KOLO_OK;
    if (kolo_mesh_stages(&s->mesh) > 1 && kolo_value_ok(kolo_graph_output(graph, "confusion"))) {
        status = KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                           "model %s counts confusions, which stages of a pipeline do not: give "
                           "dp=%d",
                           s->session.model, s->workers * kolo_mesh_stages(&s->mesh));
    }
    kolo_graph_destroy(graph);
    return status;
}

/* What policies other than bsp cannot do. */
static kolo_status check_consistency(const kolo_train_opts *o,
                                     const kolo_consistency *consistency) {
    const struct {
        bool given;
        const char *option, *why;
    } refused[] = {
        {o->zero > 0, "--zero", "every worker keeps all of its own state"},
        {o->reproducible > 0, "--reproducible", "results depend on the number of workers"},
        {o->sync_bn && kolo_consistency_has_rounds(consistency), "--sync-bn",
         "steps of different workers do not communicate"},
        {o->sparse_embedding, "--sparse-embedding", "whole tables are exchanged or kept"},
    };
    for (size_t i = 0; i < KOLO_COUNT(refused); i++) {
        if (consistency->kind == KOLO_CONSISTENCY_BSP || !refused[i].given) continue;
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "consistency %s cannot be combined with %s: %s",
                         o->consistency, refused[i].option, refused[i].why);
    }
    return KOLO_OK;
}

/* What servers cannot do. */
static kolo_status check_servers(const kolo_train_opts *o, const kolo_consistency *consistency,
                                 int workers) {
    const bool several = (o->servers > 0 ? o->servers : workers) > 1;
    const bool scales = kolo_optimizer_scales(o->optimizer.kind);
    const struct {
        bool given;
        const char *option, *why;
    } refused[] = {
        {o->zero > 0, "--zero", "owners have the optimizer state already"},
        {o->reproducible > 0, "--reproducible", "owners sum over the workers"},
        {o->sync_bn, "--sync-bn", "workers do not communicate within a step"},
        {o->sparse_embedding, "--sparse-embedding", "owners have dense parameters"},
        {o->compress && strcmp(o->compress, "none") != 0, "--compress",
         "gradients are pushed whole"},
        {o->mesh && (strstr(o->mesh, "tp") || strstr(o->mesh, "pp")), "--mesh",
         "workers are data-parallel"},
        {o->in_memory, "a benchmark", "its first steps are repeated on the workers"},
        {several && o->optimizer.clip > 0, "--clip",
         "an owner has only a part of the gradient, whose norm is needed: give --servers 1"},
        {several && scales, "--optimizer lars or lamb",
         "an owner has only parts of tensors, whose norms are needed: give --servers 1"},
    };
    if (o->sync == KOLO_SYNC_ALLREDUCE && o->servers > 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "--servers %d without --sync ps: give it too", o->servers);
    }
    if (!kolo_consistency_is_for(consistency, o->sync == KOLO_SYNC_PS)) {
        return KOLO_FAIL(
            KOLO_ERR_UNSUPPORTED, "consistency %s cannot be combined with --sync %s: %s",
            o->consistency, kolo_sync_name(o->sync),
            o->sync == KOLO_SYNC_PS
                ? "owners apply gradients as they arrive: take bsp, ssp:S or asp"
                : "in an allreduce no worker runs ahead: give --sync ps, or take lag:S");
    }
    for (size_t i = 0; i < KOLO_COUNT(refused); i++) {
        if (o->sync == KOLO_SYNC_ALLREDUCE || !refused[i].given) continue;
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "--sync ps cannot be combined with %s: %s",
                         refused[i].option, refused[i].why);
    }
    return KOLO_OK;
}

/* The codec of gradients. */
static kolo_status choose_codec(const kolo_train_opts *o, const kolo_consistency *consistency,
                                kolo_codec *codec) {
    const char *text = o->compress ? o->compress : "none";
    const struct {
        bool given;
        const char *option, *why;
    } refused[] = {
        {o->zero > 0, "--zero", "each worker gets a range of the sums"},
        {o->reproducible > 0, "--reproducible", "errors depend on the number of workers"},
        {consistency->kind == KOLO_CONSISTENCY_LOCAL, "--consistency local",
         "it averages parameters; take bmuf or diloco"},
    };
    KOLO_TRY(kolo_codec_parse(strcmp(text, "1bit") == 0 ? "onebit" : text, codec));
    KOLO_TRY(kolo_check_count("least bytes to compress", o->compress_min_bytes, 0, INT64_MAX));
    if (codec->kind == KOLO_CODEC_NONE) return KOLO_OK;
    for (size_t i = 0; i < KOLO_COUNT(refused); i++) {
        if (!refused[i].given) continue;
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "compression %s cannot be combined with %s: %s",
                         text, refused[i].option, refused[i].why);
    }
    bool rounds = kolo_consistency_has_rounds(consistency); /* SGD gets what is compressed */
    if (codec->kind == KOLO_CODEC_ONEBIT && !rounds &&
        !kolo_optimizer_has_momentum(o->optimizer.kind)) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "1-bit gradients have no second moments, which %s needs: take sgd, "
                         "nesterov or lars, or another --compress",
                         kolo_optimizer_name(o->optimizer.kind));
    }
    return KOLO_OK;
}

/* Everything that needs neither the model nor the data. */
static kolo_status open_steps(kolo_setup *s, const kolo_train_opts *given, int workers) {
    kolo_consistency consistency;
    kolo_codec codec;
    KOLO_TRY(resolve(given, &s->opts));
    KOLO_TRY(kolo_check_count("number of workers", workers, 1, 1 << 16));
    KOLO_TRY(kolo_consistency_parse(s->opts.consistency, workers, &consistency));
    KOLO_TRY(check_servers(&s->opts, &consistency, workers));
    KOLO_TRY(check_consistency(&s->opts, &consistency));
    KOLO_TRY(choose_codec(&s->opts, &consistency, &codec));
    s->workers = workers;
    KOLO_TRY(choose_mesh(&s->opts, workers, &s->mesh));
    KOLO_TRY(read_placement(s));
    s->workers = s->mesh.axes[kolo_mesh_find(&s->mesh, "dp")].size;
    compute_batches(s);
    KOLO_TRY(deal_shards(s, workers));
    s->session = (kolo_session_config){
        .batch = s->opts.batch,
        .accumulate = s->opts.accumulate,
        .global_batch = s->global_batch,
        .shards = (int)s->opts.reproducible,
        .counts = s->counts,
        .consistency = consistency,
        .served = s->opts.sync == KOLO_SYNC_PS,
        .share = !s->opts.no_share,
        .plan =
            {
                .mesh = s->mesh,
                .placement = s->placement,
                .zero = s->opts.zero,
                .lag = consistency.kind == KOLO_CONSISTENCY_LAG ? (int)consistency.steps : 0,
                .codec = codec,
                .compress_bytes = (size_t)s->opts.compress_min_bytes,
                .optimizer = s->opts.optimizer,
                .sparse_embedding = s->opts.sparse_embedding,
                .sync_batch_norm = s->opts.sync_bn,
                .bucket_bytes = (size_t)s->opts.bucket_bytes,
                .algorithm = s->opts.algorithm,
                .kernels = kolo_kernel_set_of(s->opts.reference_kernels, s->opts.no_winograd),
                .threads = s->opts.threads,
                .recompute = s->opts.recompute,
                .precision = s->opts.precision,
            },
    };
    return choose_schedule(s);
}

static kolo_status open_all(kolo_setup *s, const kolo_train_opts *given, int workers) {
    const kolo_model *model;
    KOLO_TRY(check_names(given));
    KOLO_TRY(open_steps(s, given, workers));
    KOLO_TRY(kolo_model_find(s->opts.model, &model));
    KOLO_TRY(kolo_augment_parse(s->opts.augment, &s->augment));
    if (s->opts.in_memory && kolo_augment_any(&s->augment)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a benchmark on a resident batch has no augmentation");
    }
    KOLO_TRY(open_data(s, model));
    KOLO_TRY(compute_steps(s, s->workers));
    const kolo_dataset_info *info = kolo_dataset_describe(s->train);
    if (kolo_augment_any(&s->augment) && info->fields[KOLO_FIELD_X].dtype != KOLO_DTYPE_U8) {
        return KOLO_FAIL(KOLO_ERR_ARG, "augmentation is for images, and %s has none", info->name);
    }
    s->session.model = s->opts.model;
    s->session.model_options = s->opts.model_options;
    s->session.sample = info->fields[KOLO_FIELD_X].shape;
    s->session.label = info->fields[KOLO_FIELD_Y].shape;
    s->session.numeric = info->fields[KOLO_FIELD_Y].dtype == KOLO_DTYPE_F32;
    s->session.classes = info->classes;
    s->session.short_shard = short_shard(s);
    KOLO_TRY(try_model(s));
    if (s->session.served && s->normalizes && s->opts.accumulate > 1) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "--sync ps cannot be combined with --accumulate for a model with running "
                         "statistics: how a step weights them depends on its micro-batches");
    }
    return KOLO_OK;
}

static kolo_status open_fit(kolo_setup *s, const kolo_train_opts *given,
                            const kolo_session *session, int workers) {
    KOLO_TRY(open_steps(s, given, workers));
    s->session = *kolo_session_config_of(session);
    s->session.classes = kolo_max_i64(kolo_dataset_describe(s->train)->classes, 1);
    s->mesh = s->session.plan.mesh;
    KOLO_TRY(kolo_augment_parse(s->opts.augment, &s->augment));
    KOLO_TRY(compute_steps(s, workers));
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

const char *kolo_lr_schedule_name(kolo_lr_schedule schedule) {
    static const char *const names[] = {
#define NAME(code, name, help) name,
        KOLO_LR_SCHEDULE_LIST(NAME)};
    return (size_t)schedule < KOLO_COUNT(names) ? names[schedule] : "unknown";
}

const char *kolo_autotune_name(kolo_autotune autotune) {
    static const char *const names[] = {KOLO_AUTOTUNE_LIST(NAME)};
    return (size_t)autotune < KOLO_COUNT(names) ? names[autotune] : "unknown";
}

const char *kolo_sync_name(kolo_sync sync) {
    static const char *const names[] = {KOLO_SYNC_LIST(NAME)};
#undef NAME
    return (size_t)sync < KOLO_COUNT(names) ? names[sync] : "unknown";
}

static void add_number(kolo_text *text, const char *name, double number) {
    char digits[32];
    kolo_double_text(number, digits);
    kolo_text_add(text, "%s: %s\n", name, digits);
}

static void describe_schedule(const kolo_setup *setup, kolo_text *text) {
    const kolo_train_opts *o = &setup->opts;
    add_number(text, "lr", o->lr);
    kolo_text_add(text, "schedule: %s\n", kolo_lr_schedule_name(o->schedule));
    add_number(text, "warmup-epochs", o->warmup_epochs);
    if (o->schedule == KOLO_LR_STEP) {
        add_number(text, "lr-step-factor", o->lr_step_factor);
        kolo_text_add(text, "lr-step-epochs: %" PRId64 "\n", o->lr_step_epochs);
    } else if (kolo_lr_has_end(o->schedule)) {
        add_number(text, "lr-min", o->lr_min);
        if (o->schedule == KOLO_LR_POLY) add_number(text, "lr-power", o->lr_power);
        kolo_text_add(text, "steps of the %s: %" PRId64 "\n", kolo_lr_schedule_name(o->schedule),
                      setup->total_steps);
    }
    if (o->scale_lr > 0) kolo_text_add(text, "scale-lr: %" PRId64 "\n", o->scale_lr);
}

static void describe_optimizer(const kolo_optimizer_opts *o, kolo_text *text) {
    kolo_text_add(text, "optimizer: %s\n", kolo_optimizer_name(o->kind));
    if (kolo_optimizer_has_momentum(o->kind)) {
        add_number(text, "momentum", o->momentum);
    } else {
        add_number(text, "beta1", o->beta1);
        add_number(text, "beta2", o->beta2);
        add_number(text, "eps", o->eps);
    }
    add_number(text, "weight-decay", o->weight_decay);
    add_number(text, "clip", o->clip);
    kolo_text_add(text, "decay-matrices-only: %s\n", o->decay_matrices_only ? "true" : "false");
    if (o->no_decay && *o->no_decay) kolo_text_add(text, "no-decay: %s\n", o->no_decay);
    if (o->freeze && *o->freeze) kolo_text_add(text, "freeze: %s\n", o->freeze);
    if (!kolo_optimizer_scales(o->kind)) return;
    if (o->kind == KOLO_OPTIMIZER_LARS) add_number(text, "trust", o->trust);
    kolo_text_add(text, "scale-matrices-only: %s\nno-scale: %s\n",
                  o->scale_matrices_only ? "true" : "false", o->no_scale ? o->no_scale : "");
}

/* Checkpoints keep these lines: one that was added later is there only if it applies, so that a run
 * of an earlier version resumes. */
void kolo_setup_describe_learning(const kolo_setup *setup, kolo_text *text) {
    const kolo_train_opts *o = &setup->opts;
    const kolo_dataset_info *info = kolo_dataset_describe(setup->train);
    kolo_text_add(text, "model: %s\nmodel options: %s\n", o->model,
                  o->model_options ? o->model_options : "");
    kolo_text_add(text, "data: %s\nsamples: %" PRId64 "\nseed: %" PRIu64 "\naugment: %s\n",
                  info->name, info->count, o->seed, o->augment ? o->augment : "");
    kolo_text_add(text, KOLO_STEP_SAMPLES "%" PRId64, setup->global_batch);
    if (o->global_batch == 0) {
        kolo_text_add(text, " = %" PRId64 " x %" PRId64 " x %" PRId64, o->batch, o->accumulate,
                      (int64_t)setup->workers);
    }
    kolo_text_add(text, "\n");
    if (setup->normalizes) kolo_text_add(text, "batch: %" PRId64 "\n", o->batch);
    describe_optimizer(&o->optimizer, text);
    kolo_text_add(text, "sparse-embedding: %s\n", o->sparse_embedding ? "true" : "false");
    if (o->sync_bn) kolo_text_add(text, "sync-bn: true\n");
    bool policy = setup->session.consistency.kind != KOLO_CONSISTENCY_BSP;
    bool codes = setup->session.plan.codec.kind != KOLO_CODEC_NONE;
    if (policy) kolo_text_add(text, "consistency: %s\n", o->consistency);
    if (codes) {
        kolo_text_add(text, "compress: %s\ncompress-min-bytes: %" PRId64 "\n", o->compress,
                      o->compress_min_bytes);
    }
    if (policy || codes) kolo_text_add(text, "workers: %d\n", setup->workers);
    describe_schedule(setup, text);
    kolo_text_add(text, "precision: %s\n", kolo_precision_name(o->precision));
    if (o->reproducible > 0) kolo_text_add(text, "reproducible: %" PRId64 "\n", o->reproducible);
}

void kolo_setup_describe(const kolo_setup *setup, kolo_text *text) {
    const kolo_train_opts *o = &setup->opts;
    kolo_setup_describe_learning(setup, text);
    kolo_text_add(text, "kolo: %s\ninit: %s%s\n", kolo_version(), o->init ? o->init : "",
                  o->init_partial ? ", partial" : "");
    kolo_text_add(text,
                  "batch: %" PRId64 "\naccumulate: %" PRId64 "\nepochs: %" PRId64
                  "\nsteps: %" PRId64 "\n",
                  o->batch, o->accumulate, o->epochs, o->steps);
    char mesh[KOLO_MESH_TEXT];
    kolo_text_add(text, "mesh: %s\nplacement: %s\nzero: %d\nno-share: %d\nsync: %s\nservers: %d\n",
                  kolo_mesh_text(&setup->mesh, mesh), o->placement ? o->placement : "", o->zero,
                  o->no_share, kolo_sync_name(o->sync), o->servers);
    if (kolo_mesh_stages(&setup->mesh) > 1) {
        kolo_text_add(text, "pipeline: %s\n", setup->session.schedule->name);
    }
    kolo_text_add(text, "global-batch: %" PRId64 "\nworker-weights: %s\n", o->global_batch,
                  o->worker_weights ? o->worker_weights : "");
    kolo_text_add(text, "check-replicas: %" PRId64 "\naudit: %" PRId64 "\n", o->check_replicas,
                  o->audit);
    kolo_text_add(text, "kernels: %s\nalgorithm: %s\nautotune: %s\nbucket-bytes: %" PRId64 "\n",
                  o->reference_kernels ? "ref"
                  : o->no_winograd     ? "direct"
                                       : "best",
                  kolo_algorithm_name(o->algorithm), kolo_autotune_name(o->autotune),
                  o->bucket_bytes);
    kolo_text_add(text,
                  "recompute: %s\neval: %d\neval-every: %" PRId64 " epochs, %" PRId64
                  " steps\nlog-every: %" PRId64 "\nin memory: %d\n",
                  kolo_recompute_name(o->recompute), !o->no_eval, o->eval_every, o->eval_steps,
                  o->log_every, o->in_memory);
    kolo_text_add(text, "checkpoint-every: %" PRId64 " steps, %" PRId64 " epochs\nresume: %s\n",
                  o->checkpoint_steps, o->checkpoint_epochs, o->resume ? o->resume : "");
}

void kolo_setup_close(kolo_setup *setup) {
    kolo_dataset_close(setup->own[0]);
    kolo_dataset_close(setup->own[1]);
    kolo_tuner_destroy(setup->tuner);
    kolo_free(setup->counts);
    kolo_free(setup->placement);
    *setup = (kolo_setup){0};
}

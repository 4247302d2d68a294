/* kolo/session.h: sessions on a program's own graph. Checks what a program gives, then does what a
 * training job does (session.h). */
#include "base/number.h"
#include "base/range.h"
#include "data/mix.h"
#include "data/prefetch.h"
#include "graph/graph.h"
#include "train/session/agree.h"
#include "train/session/agree_kernels.h"
#include "train/session/internal.h"
#include "train/session/memory.h"
#include "train/session/own_batch.h"
#include "train/session/setup.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- creating ---- */

/* As options of a job whose epochs have one step each. */
static kolo_train_opts job_options(const kolo_session_opts *o) {
    return (kolo_train_opts){
        .mesh = o->mesh,
        .batch = o->batch,
        .accumulate = o->accumulate,
        .global_batch = o->global_batch,
        .reproducible = o->reproducible,
        .steps = o->steps,
        .lr = o->lr,
        .optimizer = o->optimizer,
        .sparse_embedding = o->sparse_embedding,
        .sync_bn = o->sync_bn,
        .zero = o->zero,
        .schedule = o->schedule,
        .lr_min = o->lr_min,
        .lr_power = o->lr_power,
        .lr_step_factor = o->lr_step_factor,
        .lr_step_epochs = o->lr_step_every,
        .warmup_epochs = (double)o->warmup_steps,
        .seed = o->seed,
        .threads = o->threads,
        .device = o->device,
        .loader_threads = o->loader_threads,
        .reference_kernels = o->reference_kernels || o->f64,
        .no_winograd = o->no_winograd,
        .no_chains = o->no_chains,
        .bucket_bytes = o->bucket_bytes,
        .recompute = o->recompute,
        .precision = o->precision,
        .algorithm = o->algorithm,
    };
}

/* Everything that needs no other rank, with a first call of the builder. */
static kolo_status open_alone(const kolo_session_opts *o, const kolo_train_opts *job, int ranks,
                              kolo_build *build, void *arg, kolo_setup *setup, kolo_graph **graph) {
    if (!build) return KOLO_FAIL(KOLO_ERR_ARG, "a session without a builder of its graph");
    if (kolo_lr_has_end(o->schedule) && o->steps == 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a %s schedule without an end: give `steps`",
                         kolo_lr_schedule_name(o->schedule));
    }
    if (o->f64 && (o->precision != KOLO_PRECISION_F32 || o->sparse_embedding)) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "f64 cannot be combined with %s: omit one of the two",
                         o->sparse_embedding ? "sparse_embedding" : "precision bf16");
    }
    KOLO_TRY(kolo_setup_open_steps(job, ranks, setup));
    setup->session.build = build;
    setup->session.build_arg = arg;
    setup->session.evaluate_only = o->evaluate_only;
    setup->session.f64 = o->f64;
    setup->session.plan.keep_gradients = o->keep_gradients;
    setup->session.share = false; /* any rank may set parameters */
    setup->session.plan.cross_step = true;
    return kolo_session_build(&setup->session, 1, graph);
}

static void describe_number(kolo_text *text, const char *name, double number) {
    char digits[32];
    kolo_double_text(number, digits);
    kolo_text_add(text, "%s: %s\n", name, digits);
}

/* What must be equal on all ranks, a line each. */
static void describe(const kolo_session_opts *o, const kolo_setup *s, const kolo_graph *graph,
                     kolo_text *text) {
    const kolo_optimizer_opts *p = &s->opts.optimizer;
    const struct {
        const char *name;
        double number;
    } numbers[] = {
        {"global batch", (double)s->global_batch},
        {"batch", (double)s->opts.batch},
        {"accumulate", (double)s->opts.accumulate},
        {"reproducible", (double)s->opts.reproducible},
        {"seed", (double)s->opts.seed},
        {"optimizer", p->kind},
        {"momentum", p->momentum},
        {"beta1", p->beta1},
        {"beta2", p->beta2},
        {"eps", p->eps},
        {"weight_decay", p->weight_decay},
        {"decay_matrices_only", p->decay_matrices_only},
        {"trust", p->trust},
        {"scale_matrices_only", p->scale_matrices_only},
        {"clip", p->clip},
        {"sparse_embedding", s->opts.sparse_embedding},
        {"sync_bn", s->opts.sync_bn},
        {"zero", s->opts.zero},
        {"lr", s->opts.lr},
        {"schedule", s->opts.schedule},
        {"lr_min", s->opts.lr_min},
        {"lr_power", s->opts.lr_power},
        {"lr_step_factor", s->opts.lr_step_factor},
        {"lr_step_every", (double)s->opts.lr_step_epochs},
        {"warmup_steps", s->opts.warmup_epochs},
        {"steps", (double)o->steps},
        {"precision", s->opts.precision},
        {"recompute", s->opts.recompute},
        {"algorithm", s->opts.algorithm},
        {"bucket_bytes", (double)s->opts.bucket_bytes},
        {"reference_kernels", s->opts.reference_kernels},
        {"no_winograd", s->opts.no_winograd},
        {"no_chains", s->opts.no_chains},
        {"f64", o->f64},
        {"keep_gradients", o->keep_gradients},
        {"evaluate_only", o->evaluate_only},
    };
    for (size_t i = 0; i < KOLO_COUNT(numbers); i++) {
        describe_number(text, numbers[i].name, numbers[i].number);
    }
    kolo_text_add(text, "device: %s\n", o->device ? o->device : "auto");
    kolo_text_add(text, "no_decay: %s\nno_scale: %s\nfreeze: %s\n", p->no_decay ? p->no_decay : "",
                  p->no_scale ? p->no_scale : "", p->freeze ? p->freeze : "");
    kolo_graph_print(graph, text);
}

static kolo_status compare_ranks(kolo_comm *comm, const kolo_session_opts *o,
                                 const kolo_setup *setup, const kolo_graph *graph) {
    kolo_text text = {0};
    describe(o, setup, graph, &text);
    kolo_status status = kolo_agree(comm, text.failed ? KOLO_NOMEM(text.length) : KOLO_OK);
    if (status == KOLO_OK) status = kolo_agree_text(comm, text.text);
    kolo_text_fini(&text);
    return status;
}

static kolo_status start(kolo_session *s, const kolo_setup *setup, const kolo_train_opts *job) {
    KOLO_TRY(kolo_session_check_memory(s, s->comm, 0));
    if (s->opts.shards > 0 && !s->opts.evaluate_only) {
        KOLO_TRY(kolo_agree_kernels(s->comm, kolo_session_plan(s), job->zero > 0));
    }
    int64_t end = kolo_lr_has_end(setup->opts.schedule) ? setup->opts.steps : INT64_MAX;
    s->schedule = kolo_lr_make(&setup->opts, setup->global_batch, 1, end);
    s->job = *job;
    s->job.mesh = NULL; /* the plans have it */
    s->job.device = s->opts.device;
    s->job.optimizer = s->opts.plan.optimizer;
    const size_t bytes = (size_t)setup->workers * sizeof *s->sizes;
    s->sizes = kolo_alloc(bytes);
    KOLO_TRY(kolo_agree(s->comm, s->sizes ? KOLO_OK : KOLO_NOMEM(bytes)));
    return kolo_session_init(s, setup->opts.seed);
}

kolo_status kolo_session_create(kolo_comm *comm, const kolo_session_opts *opts, kolo_build *build,
                                void *arg, kolo_session **session) {
    const kolo_session_opts o = opts ? *opts : (kolo_session_opts){0};
    kolo_setup setup = {0};
    kolo_graph *graph = NULL;
    kolo_session *s = NULL;
    if (!session) return KOLO_FAIL(KOLO_ERR_ARG, "no place for the session: give its address");
    const int ranks = comm ? kolo_comm_size(comm) : 1;
    const kolo_train_opts job = job_options(&o);
    kolo_status status = open_alone(&o, &job, ranks, build, arg, &setup, &graph);
    if (status == KOLO_OK && kolo_mesh_has_model_axis(&setup.mesh)) {
        status = KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                           "mesh %s: the sessions of a program are data-parallel: give dp=%d",
                           o.mesh, ranks);
    }
    status = kolo_agree(comm, status);
    if (status == KOLO_OK) status = compare_ranks(comm, &o, &setup, graph);
    if (status == KOLO_OK) status = kolo_session_create_for(&setup.session, comm, &s);
    if (status == KOLO_OK) status = start(s, &setup, &job);
    kolo_graph_destroy(graph);
    kolo_setup_close(&setup);
    if (status != KOLO_OK) {
        kolo_session_destroy(s);
        return status;
    }
    *session = s;
    return KOLO_OK;
}

static kolo_status check_session(const kolo_session *s) {
    return s ? KOLO_OK : KOLO_FAIL(KOLO_ERR_ARG, "no session: create one");
}

/* ---- training ---- */

kolo_status kolo_session_share(const kolo_session *s, int64_t samples, int64_t *first,
                               int64_t *count) {
    KOLO_TRY(check_session(s));
    if (!first || !count) return KOLO_FAIL(KOLO_ERR_ARG, "no place for the share of a rank");
    if (samples < 0) return KOLO_FAIL(KOLO_ERR_ARG, "a step of %" PRId64 " samples", samples);
    const kolo_share share =
        kolo_own_batch_share(s, samples, s->comm ? kolo_comm_rank(s->comm) : 0);
    *first = share.first;
    *count = share.count;
    return KOLO_OK;
}

kolo_status kolo_session_step(kolo_session *s, const kolo_batch *batch, kolo_metrics *metrics) {
    kolo_batch whole;
    kolo_sums sums;
    KOLO_TRY(check_session(s));
    KOLO_TRY(kolo_own_batch_complete(s, batch, &whole));
    KOLO_TRY(kolo_session_step_batch(s, &whole, kolo_session_lr(s), &sums));
    KOLO_TRY(kolo_session_settle(s));
    if (metrics) *metrics = kolo_sums_metrics(&sums, kolo_session_has_tokens(s));
    return KOLO_OK;
}

static bool reads_target(const kolo_session *s) {
    for (int i = 0; i < s->n_inputs; i++) {
        if (strcmp(s->inputs[i].name, KOLO_MIX_TARGET) == 0) return true;
    }
    return false;
}

kolo_status kolo_session_loader(const kolo_session *s, const kolo_dataset *dataset,
                                const char *augment, int64_t epochs, kolo_loader **loader) {
    KOLO_TRY(check_session(s));
    KOLO_TRY(kolo_session_check_f32(s, "loaders"));
    if (!dataset || !loader) {
        return KOLO_FAIL(KOLO_ERR_ARG, "no %s", dataset ? "place for a loader" : "data set");
    }
    const int ranks = s->comm ? kolo_comm_size(s->comm) : 1;
    const int rank = s->comm ? kolo_comm_rank(s->comm) : 0;
    const int64_t samples = kolo_dataset_describe(dataset)->count;
    const int64_t each = (samples - 1) / s->opts.global_batch + 1; /* steps of an epoch */
    KOLO_TRY(kolo_check_count("epochs", epochs, 1, 1 << 30));
    if (ranks > samples) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%d ranks for the %" PRId64 " samples of %s", ranks, samples,
                         kolo_dataset_describe(dataset)->name);
    }
    kolo_loader_opts opts = {.dataset = dataset,
                             .global_batch = s->opts.global_batch,
                             .seed = s->seed,
                             .order = s->order,
                             .rank = rank,
                             .world = ranks,
                             .first = (int64_t)s->steps,
                             .end = epochs * each,
                             .threads = kolo_session_loader_threads(s, s->comm),
                             .shards = s->opts.shards};
    kolo_session_shards(s, rank, &opts.first_shard, &opts.end_shard);
    if (opts.first >= opts.end) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "step %" PRId64 " is past epoch %" PRId64 " of %" PRId64 " steps each",
                         opts.first, epochs, each);
    }
    KOLO_TRY(kolo_augment_parse(augment, &opts.augment));
    if (kolo_augment_mixes(&opts.augment) && !reads_target(s)) {
        return KOLO_FAIL(
            KOLO_ERR_ARG,
            "mixup and cutmix give batches a field \"%s\", the weights of the classes, "
            "and the graph has no such input: give it one, and a loss of soft labels "
            "(kolo_soft_xent)",
            KOLO_MIX_TARGET);
    }
    return kolo_loader_create(&opts, loader);
}

int64_t kolo_session_steps(const kolo_session *s) { return s ? (int64_t)s->steps : 0; }

double kolo_session_lr(const kolo_session *s) {
    if (!s) return NAN;
    return kolo_session_lr_at(s, (int64_t)s->steps);
}

kolo_status kolo_session_set_lr(kolo_session *s, double lr) {
    KOLO_TRY(check_session(s));
    if (!(lr > 0 && lr <= 1e6)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a learning rate of %g: give one above 0, at most 1e6", lr);
    }
    s->fixed_lr = lr;
    return KOLO_OK;
}

/* ---- evaluation ---- */

/* Whether this rank can run the forward pass by itself. */
static kolo_status check_whole(const kolo_session *s) {
    if (!kolo_session_evaluates_together(s)) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                     "with zero 3 each rank has a range of the parameters: use "
                     "kolo_session_evaluate_dataset, or zero 2");
}

/* The metrics of tensors, from those that the batch has left. */
static kolo_status reduce_tensors(const kolo_session *s, kolo_metrics *metrics) {
    const kolo_metric *m = kolo_metric_table();
    for (int i = 0; m[i].name; i++) {
        kolo_tensor tensor;
        const void *output = m[i].reduce ? kolo_session_output(s, m[i].output, &tensor) : NULL;
        if (!output) continue;
        const int64_t n = kolo_shape_count(&tensor.shape);
        double *sum = kolo_alloc((size_t)n * sizeof *sum);
        if (!sum) return KOLO_NOMEM((size_t)n * sizeof *sum);
        for (int64_t k = 0; k < n; k++) {
            sum[k] = tensor.dtype == KOLO_DTYPE_F64 ? ((const double *)output)[k]
                                                    : (double)((const float *)output)[k];
        }
        metrics->value[i] = m[i].reduce(sum, &tensor.shape);
        kolo_free(sum);
    }
    return KOLO_OK;
}

kolo_status kolo_session_evaluate(kolo_session *s, const kolo_batch *batch, kolo_metrics *metrics) {
    kolo_sums sums;
    KOLO_TRY(check_session(s));
    KOLO_TRY(check_whole(s));
    if (!metrics) return KOLO_FAIL(KOLO_ERR_ARG, "no place for the metrics of an evaluation");
    KOLO_TRY(kolo_own_batch_check(s, batch, UINT32_MAX));
    KOLO_TRY(kolo_own_batch_check_any(batch));
    KOLO_TRY(kolo_session_settle(s)); /* in a callback of kolo_fit */
    KOLO_TRY(kolo_session_evaluate_batch(s, batch, &sums));
    *metrics = kolo_sums_metrics(&sums, kolo_session_has_tokens(s));
    return reduce_tensors(s, metrics);
}

static kolo_status fail_output(const kolo_session *s, const char *output) {
    kolo_text names = {0};
    for (int i = 0; i < s->n_needs; i++) {
        kolo_text_add(&names, "%s%s", i ? ", " : "", s->needs[i].output);
    }
    kolo_status status = KOLO_FAIL(
        KOLO_ERR_ARG, "the graph has no output \"%s\" in evaluation; it has %s",
        output ? output : "(null)", s->n_needs > 0 && !names.failed ? names.text : "none");
    kolo_text_fini(&names);
    return status;
}

static kolo_status check_bytes(const char *name, const kolo_tensor *plain, const void *data,
                               size_t bytes) {
    char text[KOLO_SHAPE_TEXT];
    size_t need = kolo_tensor_bytes(plain);
    if (data && bytes == need) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "\"%s\" is %s %s, %zu bytes, and there is %s of %zu: give its size", name,
                     kolo_dtype_name(plain->dtype), kolo_shape_text(&plain->shape, text), need,
                     data ? "room" : "no room instead", bytes);
}

kolo_status kolo_session_predict(kolo_session *s, const kolo_batch *batch, const char *output,
                                 void *data, size_t bytes, kolo_shape *shape) {
    KOLO_TRY(check_session(s));
    KOLO_TRY(check_whole(s));
    int i = 0;
    while (i < s->n_needs && output && strcmp(s->needs[i].output, output) != 0) i++;
    if (!output || i == s->n_needs) return fail_output(s, output);
    KOLO_TRY(kolo_own_batch_check(s, batch, s->needs[i].inputs));
    KOLO_TRY(kolo_own_batch_check_any(batch));
    KOLO_TRY(kolo_session_settle(s));
    KOLO_TRY(kolo_session_forward(s, batch));
    kolo_tensor tensor;
    const void *result = kolo_session_output(s, output, &tensor);
    if (!result) return fail_output(s, output);
    const kolo_tensor plain = kolo_tensor_plain(tensor.dtype, tensor.shape);
    if (shape) *shape = tensor.shape;
    if (!data && bytes == 0 && shape) return KOLO_OK;
    KOLO_TRY(check_bytes(output, &plain, data, bytes));
    if (kolo_layout_is_plain(&tensor.layout)) {
        memcpy(data, result, bytes);
    } else {
        kolo_tensor_reorder(&plain, data, &tensor, result);
    }
    return KOLO_OK;
}

/* ---- parameters ---- */

kolo_status kolo_session_tensor(const kolo_session *s, int i, kolo_field *tensor) {
    KOLO_TRY(check_session(s));
    const int n = kolo_store_count(s->store);
    if (!tensor) return KOLO_FAIL(KOLO_ERR_ARG, "no place for the description of a tensor");
    if (i < 0 || i >= n) {
        return KOLO_FAIL(KOLO_ERR_ARG, "tensor %d: the session has %d, numbered from 0", i, n);
    }
    const kolo_store_entry *entry = kolo_store_entry_at(s->store, i);
    *tensor =
        (kolo_field){.name = entry->name, .dtype = entry->tensor.dtype, .shape = entry->canon};
    return KOLO_OK;
}

static kolo_status fail_tensor(const kolo_session *s, const char *name) {
    const int n = kolo_store_count(s->store);
    const char **names = kolo_zalloc(((size_t)n + 1) * sizeof *names);
    for (int i = 0; names && i < n; i++) names[i] = kolo_store_entry_at(s->store, i)->name;
    const char *closest = names && name ? kolo_closest(name, names) : NULL;
    kolo_status status =
        KOLO_FAIL(KOLO_ERR_ARG, "no tensor \"%s\"%s%s%s", name ? name : "(null)",
                  closest ? ": did you mean \"" : "; kolo_session_tensor lists them",
                  closest ? closest : "", closest ? "\"?" : "");
    kolo_free((void *)names);
    return status;
}

/* Finds a tensor for data of `bytes`. */
static kolo_status find_tensor(const kolo_session *s, const char *name, const void *data,
                               size_t bytes, const kolo_store_entry **found) {
    KOLO_TRY(check_session(s));
    const kolo_store_entry *entry = name ? kolo_store_find(s->store, name) : NULL;
    if (!entry) return fail_tensor(s, name);
    const kolo_tensor plain = kolo_tensor_plain(entry->tensor.dtype, entry->canon);
    KOLO_TRY(check_bytes(name, &plain, data, bytes));
    *found = entry;
    return KOLO_OK;
}

kolo_status kolo_session_get(const kolo_session *s, const char *name, void *data, size_t bytes) {
    const kolo_store_entry *entry = NULL;
    KOLO_TRY(find_tensor(s, name, data, bytes, &entry));
    KOLO_ASSERT(entry);
    KOLO_TRY(kolo_session_settle((kolo_session *)s));
    return kolo_store_read(s->store, entry, data);
}

static kolo_status check_values(const char *name, kolo_dtype dtype, const void *data,
                                size_t bytes) {
    const bool wide = dtype == KOLO_DTYPE_F64;
    if (dtype != KOLO_DTYPE_F32 && !wide) return KOLO_OK;
    for (size_t i = 0; i < bytes / kolo_dtype_bytes(dtype); i++) {
        if (isfinite(wide ? ((const double *)data)[i] : (double)((const float *)data)[i])) continue;
        return KOLO_FAIL(KOLO_ERR_ARG, "value %zu for \"%s\" is not finite", i, name);
    }
    return KOLO_OK;
}

kolo_status kolo_session_set(kolo_session *s, const char *name, const void *data, size_t bytes) {
    const kolo_store_entry *entry = NULL;
    KOLO_TRY(check_session(s));
    KOLO_TRY(kolo_session_settle(s));
    const bool root = !s->comm || kolo_comm_rank(s->comm) == 0;
    kolo_status status = find_tensor(s, name, root ? data : &entry, bytes, &entry);
    if (status == KOLO_OK && root && data) {
        KOLO_ASSERT(entry);
        status = check_values(name, entry->tensor.dtype, data, bytes);
    }
    KOLO_TRY(kolo_agree(s->comm, status));
    KOLO_TRY(kolo_agree_text(s->comm, name));
    void *copy = kolo_alloc(bytes);
    status = kolo_agree(s->comm, copy ? KOLO_OK : KOLO_NOMEM(bytes));
    if (status == KOLO_OK && root && copy && data) memcpy(copy, data, bytes);
    if (status == KOLO_OK && s->comm) {
        status = kolo_broadcast(s->comm, copy, bytes, KOLO_DTYPE_U8, 0);
    }
    if (status == KOLO_OK) status = kolo_store_write(s->store, entry, copy);
    kolo_free(copy);
    return kolo_agree(s->comm, status);
}

kolo_status kolo_session_get_gradient(const kolo_session *s, const char *name, void *data,
                                      size_t bytes) {
    const kolo_store_entry *entry = NULL;
    kolo_tensor tensor;
    KOLO_TRY(find_tensor(s, name, data, bytes, &entry));
    KOLO_ASSERT(entry);
    if (!s->opts.plan.keep_gradients) {
        return KOLO_FAIL(KOLO_ERR_ARG, "gradients are not kept: set the option keep_gradients");
    }
    if (!s->trained || s->evaluated) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "no gradients: they are those of a step, until the next call that "
                         "computes");
    }
    const void *gradient = kolo_plan_gradient(s->trained, name, &tensor);
    if (!gradient) {
        return KOLO_FAIL(KOLO_ERR_ARG, "\"%s\" has no gradient%s", name,
                         entry->kind == KOLO_VALUE_PARAM
                             ? ": the loss does not depend on it, or it is row-sparse"
                             : ": it is not a parameter");
    }
    const kolo_tensor plain = kolo_tensor_plain(tensor.dtype, tensor.shape);
    kolo_tensor_reorder(&plain, data, &tensor, gradient);
    return KOLO_OK;
}

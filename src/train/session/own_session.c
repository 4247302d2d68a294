/* kolo/session.h: sessions on a program's own graph. Checks what a program gives, then does what a
 * training job does (session.h). */
#include "base/number.h"
#include "base/range.h"
#include "base/rng.h"
#include "data/mix.h"
#include "data/prefetch.h"
#include "graph/graph.h"
#include "plan/program/program.h"
#include "train/session/agree.h"
#include "train/session/agree_kernels.h"
#include "train/session/exchange.h"
#include "train/session/internal.h"
#include "train/session/memory.h"
#include "train/session/own_batch.h"
#include "train/session/own_servers.h"
#include "train/session/setup.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- creating ---- */

/* As options of a job whose epochs have one step each. */
static kolo_train_opts job_options(const kolo_session_opts *o) {
    return (kolo_train_opts){
        .mesh = o->mesh,
        .pipeline = o->pipeline,
        .placement = o->placement,
        .worker_weights = o->worker_weights,
        .stage_bytes = o->stage_bytes,
        .rebalance_stages = o->rebalance_stages,
        .batch = o->batch,
        .accumulate = o->accumulate,
        .global_batch = o->global_batch,
        .reproducible = o->reproducible,
        .tp_blocks = o->tp_blocks,
        .steps = o->steps,
        .lr = o->lr,
        .optimizer = o->optimizer,
        .sparse_embedding = o->sparse_embedding,
        .sync_bn = o->sync_bn,
        .zero = o->zero,
        .sync = o->evaluate_only ? KOLO_SYNC_ALLREDUCE : o->sync,
        .servers = o->evaluate_only ? 0 : o->servers,
        .consistency = o->evaluate_only ? NULL : o->consistency,
        .compress = o->evaluate_only ? NULL : o->compress,
        .compress_min_bytes = o->compress_min_bytes,
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

/* What the workers exchange, where it is not whole gradients in every step. */
static kolo_status check_exchanges(const kolo_session_opts *o, const kolo_session_config *config) {
    const bool compresses =
        kolo_compresses(&config->plan.compression) || kolo_compresses(&config->codes);
    const bool every_step = config->consistency.kind == KOLO_CONSISTENCY_BSP;
    if (!compresses && every_step && !config->served) return KOLO_OK;
    if (!o->f64 && !o->keep_gradients) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "%s cannot be combined with %s: %s",
                     compresses    ? "compress"
                     : !every_step ? "consistency"
                                   : "sync ps or mesh",
                     o->f64 ? "f64" : "keep_gradients",
                     o->f64 ? "it is for training in f32"
                            : "the ranks do not have the gradients of the mean loss");
}

/* Everything that needs no other rank, with a first call of the builder. */
static kolo_status open_alone(const kolo_session_opts *o, const kolo_train_opts *job,
                              const kolo_comm *comm, kolo_build *build, void *arg,
                              kolo_setup *setup, kolo_graph **graph) {
    int ranks;
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
    if (o->worker_weights && o->reproducible > 0) {
        return KOLO_FAIL(
            KOLO_ERR_ARG,
            "worker weights of a session are of the stages of a pipeline: give those of "
            "logical shards to kolo_fit");
    }
    KOLO_TRY(kolo_count_workers(comm ? kolo_comm_size(comm) : 1, job->servers, &ranks));
    KOLO_TRY(kolo_setup_open_steps(job, ranks, setup));
    KOLO_TRY(kolo_own_servers_check(o, &setup->session, comm));
    KOLO_TRY(check_exchanges(o, &setup->session));
    setup->session.build = build;
    setup->session.build_arg = arg;
    setup->session.evaluate_only = o->evaluate_only;
    setup->session.f64 = o->f64;
    setup->session.plan.keep_gradients = o->keep_gradients;
    setup->session.share = false; /* any rank may set parameters */
    setup->session.needs_workers = true;
    setup->session.plan.cross_step = true;
    setup->session.warms_up = kolo_exchange_warm_up(&setup->session, ranks) > 0;
    return kolo_session_build(&setup->session, 1, graph);
}

static void describe_number(kolo_text *text, const char *name, double number) {
    char digits[32];
    kolo_double_text(number, digits);
    kolo_text_add(text, "%s: %s\n", name, digits);
}

static void describe_numbers(const kolo_session_opts *o, const kolo_setup *s, kolo_text *text) {
    const kolo_optimizer_opts *p = &s->opts.optimizer;
    const struct {
        const char *name;
        double number;
    } numbers[] = {
        {"global batch", (double)s->global_batch},
        {"batch", (double)s->opts.batch},
        {"accumulate", (double)s->opts.accumulate},
        {"reproducible", (double)s->opts.reproducible},
        {"tp_blocks", (double)s->opts.tp_blocks},
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
        {"sync", s->opts.sync},
        {"servers", s->opts.servers},
        {"compress_min_bytes", (double)s->opts.compress_min_bytes},
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
        {"stage_bytes", (double)s->opts.stage_bytes},
        {"rebalance_stages", (double)s->opts.rebalance_stages},
        {"keep_gradients", o->keep_gradients},
        {"evaluate_only", o->evaluate_only},
    };
    for (size_t i = 0; i < KOLO_COUNT(numbers); i++) {
        describe_number(text, numbers[i].name, numbers[i].number);
    }
}

/* What must be equal on all ranks, a line each. */
static void describe(const kolo_session_opts *o, const kolo_setup *s, const kolo_graph *graph,
                     kolo_text *text) {
    const kolo_optimizer_opts *p = &s->opts.optimizer;
    char mesh[KOLO_MESH_TEXT];
    KOLO_ASSERT(s->session.schedule);
    describe_numbers(o, s, text);
    kolo_text_add(text, "mesh: %s\npipeline: %s:%d\nworker_weights: %s\n",
                  kolo_mesh_text(&s->mesh, mesh), s->session.schedule->name, s->session.chunks,
                  o->worker_weights ? o->worker_weights : "");
    kolo_text_add(text, "placement: %016" PRIx64 " (a hash of its rules)\n",
                  s->placement ? kolo_hash_text(s->placement) : 0);
    kolo_text_add(text, "device: %s\n", o->device ? o->device : "auto");
    kolo_text_add(text, "consistency: %s\ncompress: %s\n", o->consistency ? o->consistency : "bsp",
                  o->compress ? o->compress : "none");
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

/* Runs of the session read these options. */
static bool copy_exchanges(kolo_session *s) {
    const char **of[] = {&s->job.consistency, &s->job.compress};
    _Static_assert(KOLO_COUNT(of) == KOLO_COUNT(s->exchanges), "all are copied");
    for (size_t i = 0; i < KOLO_COUNT(of); i++) {
        if (!*of[i]) continue;
        *of[i] = s->exchanges[i] = kolo_strdup(*of[i]);
        if (!s->exchanges[i]) return false;
    }
    return true;
}

static kolo_lr schedule_of(const kolo_setup *setup) {
    const int64_t end = kolo_lr_has_end(setup->opts.schedule) ? setup->opts.steps : INT64_MAX;
    return kolo_lr_make(&setup->opts, setup->global_batch, 1, end);
}

static kolo_status start(kolo_session *s, const kolo_setup *setup, const kolo_train_opts *job) {
    KOLO_TRY(kolo_session_check_memory(s, s->comm, 0));
    if (s->opts.shards > 0 && !s->opts.evaluate_only) {
        KOLO_TRY(kolo_session_agree_kernels(s, job->zero > 0));
    }
    s->schedule = schedule_of(setup);
    s->job = *job;
    s->job.mesh = kolo_mesh_text(&setup->mesh, s->mesh);
    s->job.pipeline = s->job.placement = s->job.worker_weights = NULL; /* the plans have them */
    s->job.device = s->opts.device;
    s->job.optimizer = s->opts.plan.optimizer;
    const size_t bytes = (size_t)ranks_of(s) * sizeof *s->given;
    s->given = kolo_alloc(bytes);
    const bool copied = copy_exchanges(s);
    KOLO_TRY(kolo_agree(s->comm, s->given && copied ? KOLO_OK : KOLO_NOMEM(bytes)));
    return kolo_session_init(s, setup->opts.seed);
}

/* Of a worker, whose group is `comm`. */
static kolo_status create_worker(kolo_comm *comm, const kolo_setup *setup,
                                 const kolo_train_opts *job, kolo_session **s) {
    KOLO_TRY(kolo_session_create_for(&setup->session, comm, s));
    return start(*s, setup, job);
}

/* With servers apart the workers have a group of their own. */
static kolo_status create_in(kolo_comm *world, const kolo_setup *setup, const kolo_train_opts *job,
                             kolo_session **s) {
    kolo_comm *own;
    const kolo_lr schedule = schedule_of(setup);
    KOLO_TRY(kolo_split_servers(world, setup->opts.servers, &own));
    const bool serves = own && kolo_comm_rank(world) >= setup->workers;
    kolo_status status = serves ? kolo_own_servers_create(setup, &schedule, world, s)
                                : create_worker(own ? own : world, setup, job, s);
    if (!serves) status = kolo_own_servers_connect(*s, setup, world, status);
    if (*s) {
        (*s)->own_comm = own;
    } else {
        kolo_comm_destroy(own);
    }
    return status;
}

kolo_status kolo_session_create(kolo_comm *comm, const kolo_session_opts *opts, kolo_build *build,
                                void *arg, kolo_session **session) {
    const kolo_session_opts o = opts ? *opts : (kolo_session_opts){0};
    kolo_setup setup = {0};
    kolo_graph *graph = NULL;
    kolo_session *s = NULL;
    if (!session) return KOLO_FAIL(KOLO_ERR_ARG, "no place for the session: give its address");
    const kolo_train_opts job = job_options(&o);
    kolo_status status = open_alone(&o, &job, comm, build, arg, &setup, &graph);
    status = kolo_agree(comm, status);
    if (status == KOLO_OK) status = compare_ranks(comm, &o, &setup, graph);
    if (status == KOLO_OK) status = create_in(comm, &setup, &job, &s);
    kolo_graph_destroy(graph);
    kolo_setup_close(&setup);
    if (status != KOLO_OK) {
        kolo_session_destroy(s);
        return status;
    }
    *session = s;
    return KOLO_OK;
}

/* ---- training ---- */

kolo_status kolo_session_share(const kolo_session *s, int64_t samples, int64_t *first,
                               int64_t *count) {
    KOLO_TRY(check_session(s));
    if (!first || !count) return KOLO_FAIL(KOLO_ERR_ARG, "no place for the share of a rank");
    if (samples < 0) return KOLO_FAIL(KOLO_ERR_ARG, "a step of %" PRId64 " samples", samples);
    const kolo_share share = kolo_own_batch_share(s, samples, data_rank(s));
    *first = share.first;
    *count = share.count;
    return KOLO_OK;
}

kolo_status kolo_session_step(kolo_session *s, const kolo_batch *batch, kolo_metrics *metrics) {
    kolo_batch whole;
    kolo_sums sums;
    KOLO_TRY(check_session(s));
    const kolo_status given = kolo_own_batch_complete(s, batch, &whole);
    const bool broken = given == KOLO_ERR_PEER || given == KOLO_ERR_TIMEOUT;
    if (broken && s->served) return kolo_session_end(s, given);
    KOLO_TRY(given);
    KOLO_TRY(kolo_session_end(s, kolo_session_begin_exchange(s)));
    KOLO_TRY(kolo_session_compile_step(s, whole.global_count));
    kolo_status status = kolo_session_step_batch(s, &whole, kolo_session_lr(s), &sums);
    if (status == KOLO_OK && !s->rounds && !s->served) status = kolo_session_consolidate(s);
    if (status != KOLO_OK) return kolo_session_end(s, status);
    const bool none = s->served && sums.samples == 0; /* so far: its gradient was late */
    if (metrics && none) *metrics = kolo_metrics_none();
    if (metrics && !none) *metrics = kolo_sums_metrics(&sums, kolo_session_has_tokens(s));
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
    const int ranks = data_ranks(s), rank = data_rank(s);
    const int64_t samples = kolo_dataset_describe(dataset)->count;
    const int64_t each = (samples - 1) / s->opts.global_batch + 1; /* steps of an epoch */
    KOLO_TRY(kolo_check_count("epochs", epochs, 1, 1 << 30));
    if (ranks > samples) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%d %s for the %" PRId64 " samples of %s", ranks,
                         s->groups ? "places on dp" : "ranks", samples,
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
    if (s->served && rank_of(s) == 0) {
        KOLO_TRY(kolo_session_end(s, kolo_served_configure(s->served, lr, -1)));
    }
    s->fixed_lr = lr;
    return KOLO_OK;
}

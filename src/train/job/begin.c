/* Runs: from options to the first step. */
#include "base/file.h"
#include "base/integer.h"
#include "data/readers/readers.h"
#include "kernel/select/families.h"
#include "plan/lane_trial.h"
#include "train/checkpoint/folder.h"
#include "train/checkpoint/weights.h"
#include "train/job/job.h"
#include "train/session/agree.h"
#include "train/session/agree_kernels.h"
#include "train/session/exchange.h"
#include "train/session/learning_rate.h"
#include "train/session/memory.h"
#include "train/session/tuning.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

enum { LOADER_SLOTS = 4, MOST_STEPS = 256 /* between two exchanges of their times */ };

/* Lets the loader read the shards of this rank's place. */
void kolo_job_add_shards(const kolo_job *j, kolo_loader_opts *opts) {
    opts->shards = (int)j->setup.opts.reproducible;
    kolo_session_shards(j->session, kolo_session_data_rank(j->session), &opts->first_shard,
                        &opts->end_shard);
}

static kolo_loader_opts loader_opts(const kolo_job *j) {
    return (kolo_loader_opts){
        .dataset = j->setup.train,
        .global_batch = j->setup.global_batch,
        .seed = j->setup.opts.seed,
        .order = kolo_session_order(j->session),
        .rank = kolo_session_data_rank(j->session),
        .world = kolo_session_data_ranks(j->session),
        .first = j->state.steps,
        .end = j->setup.total_steps,
        .augment = j->setup.augment,
        .threads = kolo_session_loader_threads(j->session, kolo_session_comm(j->session)),
        .slots = LOADER_SLOTS,
        .on_demand = kolo_session_leases(j->session),
    };
}

/* Every audit steps, from step `from` on, this rank also reads the shards of the next one. */
kolo_status kolo_job_open_audit(kolo_job *j, int64_t from) {
    const int64_t every = j->setup.opts.audit;
    kolo_loader_opts opts = loader_opts(j);
    if (every == 0 || j->size == 1) return KOLO_OK;
    opts.first = (from / every + 1) * every - 1;
    if (opts.first >= opts.end) return KOLO_OK;
    opts.every = every;
    opts.slots = 2;
    if (opts.threads > 1) opts.threads = 1; /* it reads few of the batches */
    opts.shards = (int)j->setup.opts.reproducible;
    kolo_session_shards(j->session, (j->rank + 1) % j->size, &opts.first_shard, &opts.end_shard);
    return kolo_loader_create(&opts, &j->audit);
}

/* Its damaged images count once, not in every step. */
static kolo_status load_resident(kolo_job *j) {
    kolo_batch *batch = &j->resident.batch;
    KOLO_TRY(kolo_resident_batch_load(&j->setup, kolo_session_data_rank(j->session), &j->resident));
    if (kolo_session_counts(j->session)) j->damaged += batch->damaged;
    batch->damaged = 0;
    return KOLO_OK;
}

/* Begins the ledgers of processes that may join, which append to them. */
static kolo_status begin_joined_ledgers(const kolo_job *j, const kolo_ledger_run *run) {
    for (int i = 0; i < j->setup.opts.joins && j->rank == 0; i++) {
        kolo_ledger_run r = *run;
        kolo_ledger *ledger;
        r.rank = j->size + i;
        KOLO_TRY(kolo_ledger_open(j->setup.opts.ledger, &r, j->setup.opts.resume != NULL, &ledger));
        kolo_ledger_close(ledger);
    }
    return KOLO_OK;
}

/* Opens the ledger. `number`: of the run. */
static kolo_status open_ledger(kolo_job *j, int64_t number) {
    const kolo_setup *s = &j->setup;
    const kolo_consistency *c = &s->session.consistency;
    if (!s->opts.ledger || !kolo_session_counts(j->session)) return KOLO_OK;
    const kolo_ledger_run run = {
        .number = number,
        .after = j->resume.state.ledger,
        .first = j->state.steps,
        .rank = j->joined ? j->rank : kolo_session_data_rank(j->session),
        .ranks = kolo_session_data_ranks(j->session) + s->opts.joins,
        .samples = kolo_dataset_describe(s->train)->count,
        .steps = s->epoch_steps,
        .lag = c->kind == KOLO_CONSISTENCY_LAG ? c->steps : 0,
    };
    if (j->joined) return kolo_ledger_open(s->opts.ledger, &run, true, &j->ledger);
    KOLO_TRY(begin_joined_ledgers(j, &run));
    return kolo_ledger_open(s->opts.ledger, &run, s->opts.resume != NULL, &j->ledger);
}

/* Opens the ledgers of all workers. Collective. */
static kolo_status open_ledgers(kolo_job *j) {
    struct timespec now;
    j->state.ledger = 0;
    if (!j->setup.opts.ledger) return KOLO_OK;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t number = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    if (j->joined) number = j->joined_ledger;
    if (j->comm) KOLO_TRY(kolo_broadcast(j->comm, &number, 1, KOLO_DTYPE_I64, 0));
    j->state.ledger = number;
    return kolo_agree(j->comm, open_ledger(j, number));
}

static kolo_status open_batches(kolo_job *j) {
    KOLO_TRY(kolo_step_times_init(&j->times, j->end));
    KOLO_TRY(kolo_rank_times_create(kolo_job_is_asynchronous(j) ? NULL : j->comm, MOST_STEPS,
                                    &j->rank_times));
    if (j->setup.opts.in_memory) return load_resident(j);
    kolo_loader_opts opts = loader_opts(j);
    if (j->setup.train->stream) return kolo_job_open_stream(j, &opts);
    kolo_job_add_shards(j, &opts);
    KOLO_TRY(kolo_job_open_audit(j, j->state.steps));
    return kolo_loader_create(&opts, &j->loader);
}

static kolo_status open_balance(kolo_job *j) {
    if (!j->setup.measured) return KOLO_OK;
    return kolo_balance_create(j->comm, (int)j->setup.opts.reproducible, j->setup.counts,
                               LOADER_SLOTS, &j->balance);
}

static kolo_status open_files(kolo_job *j) {
    const kolo_train_opts *o = &j->setup.opts;
    if (o->trace && j->rank == 0) { /* written at the end: detect an unwritable path now */
        kolo_file_writer *writer;
        KOLO_TRY(kolo_file_create(o->trace, &writer));
        kolo_file_abandon(writer);
    }
    if (!o->out_dir || j->rank != 0) return KOLO_OK;
    int64_t step = j->resume.here ? j->state.steps : 0;
    bool named = j->resume.here && !kolo_folder_exists(o->resume); /* maybe not the latest */
    if (named) KOLO_TRY(kolo_checkpoint_folder_check_latest(o->out_dir, step));
    const bool again = o->resume_if_any && o->keep_best;
    return kolo_run_files_open(o->out_dir, o->resolved_config, step, again, &j->files);
}

/* Informs the user where the metrics are, unless the port was given. */
static void notify_server(const kolo_job *j) {
    const kolo_train_opts *o = &j->setup.opts;
    if (o->metrics_port > 0) return;
    kolo_notify(o, KOLO_NOTICE_INFO, "metrics at http://%s:%d/metrics",
                o->metrics_address ? o->metrics_address : "127.0.0.1",
                kolo_metrics_server_port(j->server));
}

/* What viewers read during the run, on rank 0. */
static kolo_status open_viewers(kolo_job *j) {
    const kolo_train_opts *o = &j->setup.opts;
    if (j->rank != 0) return KOLO_OK;
    if (o->tensorboard) KOLO_TRY(kolo_event_file_create(o->tensorboard, &j->events));
    if (o->metrics_port == 0) return KOLO_OK;
    KOLO_TRY(kolo_metrics_server_create(o->metrics_address, o->metrics_port, &j->server));
    notify_server(j);
    return KOLO_OK;
}

/* Replaces config.yaml and the metrics of an earlier run: after everything that can fail. */
static kolo_status begin_files(const kolo_job *j) {
    int64_t step = j->resume.here ? j->state.steps : 0;
    return j->files ? kolo_run_files_begin(j->files, j->setup.opts.resolved_config, step) : KOLO_OK;
}

/* Compares --data of this rank with that of rank 0, and some samples. */
static kolo_status compare_with(const kolo_job *j, kolo_comm *all, const char *rank0,
                                bool same_samples) {
    const char *own = j->setup.opts.data ? j->setup.opts.data : "";
    const kolo_dataset_info *info = kolo_dataset_describe(j->setup.train);
    const int rank = kolo_comm_rank(all);
    if (*own && *rank0 && !kolo_dataset_same_keys(own, rank0)) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "the ranks have different options: rank %d has --data %s, rank 0 has "
                         "--data %s; give all ranks the same keys",
                         rank, own, rank0);
    }
    if (same_samples) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "the ranks have different data: samples of %s in %s on rank %d are not those "
                     "of rank 0; give all ranks the same files",
                     info->name, info->place, rank);
}

/* The options have the name of the data set and the number of its samples. Its path may differ
 * between hosts. */
static kolo_status compare_data(const kolo_job *j, kolo_comm *all) {
    kolo_text spec = {0};
    uint64_t own = 0, rank0;
    if (!all || kolo_comm_size(all) == 1) return KOLO_OK;
    kolo_text_add(&spec, "%s", j->setup.opts.data ? j->setup.opts.data : "");
    kolo_status status = kolo_dataset_fingerprint(j->setup.train, &own);
    if (status == KOLO_OK && spec.failed) status = KOLO_NOMEM(spec.length);
    status = kolo_share_text(all, status, &spec);
    rank0 = own;
    if (status == KOLO_OK) status = kolo_broadcast(all, &rank0, sizeof rank0, KOLO_DTYPE_U8, 0);
    if (status == KOLO_OK) {
        status = kolo_agree(all, compare_with(j, all, spec.text, own == rank0));
    }
    kolo_text_fini(&spec);
    return status;
}

static kolo_status compare_options(const kolo_job *j) {
    kolo_text text = {0};
    kolo_setup_describe(&j->setup, &text);
    kolo_comm *all = j->world ? j->world : j->comm;
    kolo_status status = kolo_agree(all, text.failed ? KOLO_NOMEM(text.length) : KOLO_OK);
    if (status == KOLO_OK) status = kolo_agree_text(all, text.text);
    kolo_text_fini(&text);
    return status == KOLO_OK ? compare_data(j, all) : status;
}

/* Informs the user that bf16 saves memory only on this processor. */
static void notify_precision(const kolo_job *j) {
    const kolo_train_opts *o = &j->setup.opts;
    bool half = o->precision == KOLO_PRECISION_BF16 && !o->reference_kernels;
    if (j->rank != 0 || !half || kolo_kernel_has_bf16()) return;
    kolo_notify(o, KOLO_NOTICE_INFO,
                "precision bf16 saves memory only: this processor has no bf16 arithmetic");
}

static void notify_recipe(const kolo_job *j) {
    const kolo_train_opts *o = &j->setup.opts;
    if (j->rank == 0 && o->recipe) kolo_notify(o, KOLO_NOTICE_INFO, "%s", o->recipe);
}

/* Informs the user that a step has fewer samples than asked for. */
static void notify_batch(const kolo_job *j) {
    int64_t count = kolo_dataset_describe(j->setup.train)->count;
    if (j->rank != 0 || j->setup.global_batch <= count) return;
    kolo_notify(&j->setup.opts, KOLO_NOTICE_INFO,
                "a step of %" PRId64 " samples exceeds the %" PRId64
                " of the training data: each step uses all of them",
                j->setup.global_batch, count);
}

/* Informs the user that the policy or codec asked for begins in no step of the run. */
static void notify_warm_up(const kolo_job *j) {
    const int64_t steps = kolo_exchange_warm_up(&j->setup.session, j->size);
    if (j->rank != 0 || steps == 0 || j->setup.total_steps > steps) return;
    kolo_notify(&j->setup.opts, KOLO_NOTICE_INFO,
                "the run ends after step %" PRId64 ", within the warm-up of %" PRId64
                " steps: all of its steps are those of bsp without compression",
                j->setup.total_steps, steps);
}

/* Informs the user of the tensors that were not loaded, a line for each reason. */
static void notify_rest(const kolo_job *j, char *lines) {
    const kolo_train_opts *o = &j->setup.opts;
    if (j->rank != 0) return;
    kolo_notify(o, KOLO_NOTICE_INFO,
                "--init-partial: loaded what fits; these tensors keep their initial values or are "
                "not in the model");
    for (char *next, *line = lines; *line; line = next) {
        next = line + strcspn(line, "\n");
        if (*next) *next++ = '\0';
        kolo_notify(o, KOLO_NOTICE_INFO, "%s", line);
    }
}

/* Rank 0 reads the initial weights and broadcasts them; each rank reads its ranges of what is
 * sharded. */
kolo_status kolo_job_load_weights(const kolo_job *j) {
    const kolo_train_opts *o = &j->setup.opts;
    kolo_store *store = kolo_session_store(j->session);
    if (!o->init || j->resume.here) return KOLO_OK;
    const bool slices = kolo_mesh_has_model_axis(&j->setup.mesh);
    bool reads =
        j->rank == 0 || slices || kolo_plan_level(&kolo_session_config_of(j->session)->plan) > 2;
    kolo_text rest = {0};
    kolo_text *partial = o->init_partial ? &rest : NULL;
    kolo_status status = reads ? kolo_weights_load(o->init, o->model, store, partial) : KOLO_OK;
    if (status == KOLO_OK && rest.text) notify_rest(j, rest.text);
    kolo_text_fini(&rest);
    KOLO_TRY(kolo_agree(j->comm, status));
    return kolo_session_share_values(j->session);
}

/* What is open before a session exists: the checkpoint to resume from, and the files. */
/* Informs the user of initializers of an ONNX file that may be constants. */
static void notify_parameters(const kolo_job *j) {
    if (j->rank != 0 || !j->setup.notice) return;
    kolo_notify(&j->setup.opts, KOLO_NOTICE_WARNING, "%s", j->setup.notice);
}

kolo_status kolo_job_open(kolo_job *j) {
    KOLO_TRY(compare_options(j));
    if (j->serves) return KOLO_OK;
    KOLO_TRY(kolo_resume_open(&j->setup, j->comm, &j->resume));
    j->state = j->resume.state;
    KOLO_TRY(kolo_agree(j->comm, open_files(j)));
    notify_parameters(j);
    notify_recipe(j);
    notify_precision(j);
    notify_batch(j);
    notify_warm_up(j);
    return KOLO_OK;
}

/* The plans of a smaller batch; the error names its size. */
static kolo_status compile_size(const kolo_job *j, int64_t samples, const char *what,
                                kolo_status (*compile)(kolo_session *, int64_t)) {
    kolo_status status = samples > 0 ? compile(j->session, samples) : KOLO_OK;
    return status == KOLO_OK ? KOLO_OK
                             : kolo_fail_in(status, "%s of %" PRId64 " samples", what, samples);
}

static kolo_status compile_sizes(const kolo_job *j) {
    const kolo_setup *s = &j->setup;
    if (!s->opts.in_memory && s->total_steps >= s->epoch_steps) {
        const int64_t rest = kolo_dataset_describe(s->train)->count % s->global_batch;
        KOLO_TRY(compile_size(j, rest, "the last step of an epoch,", kolo_session_compile_step));
    }
    if (!s->test) return KOLO_OK;
    const int64_t batch = s->opts.batch * kolo_session_data_ranks(j->session);
    const int64_t tests = kolo_dataset_describe(s->test)->count;
    KOLO_TRY(
        compile_size(j, tests < batch ? 0 : batch, "evaluation", kolo_session_compile_evaluation));
    return compile_size(j, tests % batch, "evaluation", kolo_session_compile_evaluation);
}

/* The layers of a model may be divisible over the mesh with some sizes of a batch only: compiles
 * the plans of all sizes that the run has, before its first step. */
kolo_status kolo_job_compile_sizes(const kolo_job *j) {
    return kolo_mesh_has_model_axis(&j->setup.mesh) ? compile_sizes(j) : KOLO_OK;
}

/* The first step after the warm-up begins with other plans; checkpoints before it have what all
 * ranks share, and no errors. */
static void begin_warm_up(kolo_job *j) {
    kolo_session_config *c = &j->setup.session;
    const int64_t steps = kolo_exchange_warm_up(c, j->size);
    c->warms_up = steps > 0 && j->state.steps <= steps;
}

/* A resumed run may end before gradients are measured: it trains with buckets of a fixed size, or
 * without compression. One that has chosen what is compressed goes on with that. */
static void skip_measurements(kolo_job *j) {
    const kolo_train_opts *o = &j->setup.opts;
    kolo_session_config *c = &j->setup.session;
    const bool buckets = c->measure_buckets, measures = buckets || c->measure_compression;
    if (c->measure_compression && j->resume.compressed) {
        c->plan.compression.only = j->resume.compressed;
        c->measure_compression = false;
        return;
    }
    if (!measures || kolo_setup_chooses_buckets(&j->setup, j->state.steps)) return;
    c->measure_buckets = c->measure_compression = false;
    if (j->rank != 0) return;
    kolo_notify(o, KOLO_NOTICE_INFO, "%s",
                buckets ? "--buckets auto: too few full steps are left to measure: the buckets "
                          "have --bucket-bytes"
                        : "--compress auto: too few full steps are left to measure: nothing is "
                          "compressed");
}

/* The memory of the copy that checkpoints are written from, on ranks that write. */
static size_t copied_bytes(const kolo_job *j) {
    const kolo_train_opts *o = &j->setup.opts;
    const kolo_store *store = kolo_session_store(j->session);
    const bool saves = o->checkpoint_steps + o->checkpoint_epochs > 0 || o->checkpoint_seconds > 0;
    if (!saves || o->wait_for_saves) return 0;
    if (j->rank > 0 && !kolo_store_is_sharded(store)) return 0;
    return kolo_checkpoint_saver_needs(store);
}

/* A benchmark times the steps after those that try lanes, if it has more. */
static kolo_status leave_out_trials(kolo_job *j) {
    int64_t *untimed = &j->setup.opts.untimed_steps;
    int64_t tries = kolo_plan_lanes_of(kolo_session_plan(j->session)).undecided;
    if (*untimed == 0 || j->setup.total_steps <= KOLO_LANE_TRIAL_RUNS) return KOLO_OK;
    if (j->comm) KOLO_TRY(kolo_allreduce(j->comm, &tries, 1, KOLO_DTYPE_I64, KOLO_MAX));
    if (tries > 0) *untimed = kolo_max_i64(*untimed, KOLO_LANE_TRIAL_RUNS);
    return KOLO_OK;
}

kolo_status kolo_job_create_session(kolo_job *j) {
    skip_measurements(j);
    begin_warm_up(j);
    KOLO_TRY(kolo_session_create_for(&j->setup.session, j->comm, &j->own));
    j->session = j->own;
    KOLO_TRY(kolo_job_compile_sizes(j));
    j->copied_bytes = copied_bytes(j);
    KOLO_TRY(kolo_session_check_memory(j->session, j->comm, j->copied_bytes));
    const int zero = j->setup.opts.zero;
    if (j->setup.opts.reproducible > 0)
        KOLO_TRY(kolo_session_agree_kernels(
            j->session, kolo_session_config_of(j->session)->plan.share || zero > 0));
    kolo_status recorded = KOLO_OK;
    if (j->files) recorded = kolo_tuning_record(&j->setup, j->setup.opts.out_dir);
    KOLO_TRY(kolo_agree(j->comm, recorded));
    KOLO_TRY(kolo_session_init(j->session, j->setup.opts.seed));
    kolo_session_set_schedule(j->session, kolo_setup_learning_rate(&j->setup));
    KOLO_TRY(leave_out_trials(j));
    return kolo_job_load_weights(j);
}

/* With sharded state all ranks write checkpoints: detects a folder that they do not share. */
static kolo_status try_shared_folder(kolo_job *j) {
    j->saves = j->files != NULL;
    if (j->comm) KOLO_TRY(kolo_broadcast(j->comm, &j->saves, sizeof j->saves, KOLO_DTYPE_U8, 0));
    const bool sharded = kolo_store_is_sharded(kolo_session_store(j->session)) ||
                         kolo_session_config_of(j->session)->measure_compression || /* errors */
                         kolo_session_warms_up(j->session); /* these, or versions */
    if (!j->saves || !sharded) return KOLO_OK;
    return kolo_checkpoint_try_folder(j->files ? kolo_run_files_checkpoint(j->files) : NULL,
                                      j->comm);
}

static kolo_status follow(void *trace, kolo_plan *plan) { return kolo_trace_follow(trace, plan); }

kolo_status kolo_job_open_trace(kolo_job *j) {
    if (!j->setup.opts.trace) return KOLO_OK;
    kolo_status status = kolo_trace_create(&j->trace);
    if (status == KOLO_OK) status = kolo_session_watch_plans(j->session, follow, j->trace);
    return kolo_agree(j->comm, status);
}

void kolo_job_close_trace(kolo_job *j) {
    if (j->trace) (void)kolo_session_watch_plans(j->session, NULL, NULL);
    kolo_trace_destroy(j->trace);
    j->trace = NULL;
}

/* All workers of a run meet at the same steps. Those of a session may be at different ones before
 * kolo_fit. */
static kolo_status check_steps(const kolo_job *j) {
    int64_t most[] = {j->state.steps, -j->state.steps};
    if (j->own || !j->comm || !kolo_job_is_asynchronous(j)) return KOLO_OK;
    KOLO_TRY(kolo_allreduce(j->comm, most, 2, KOLO_DTYPE_I64, KOLO_MAX));
    if (most[0] == -most[1]) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "the workers have made %" PRId64 " to %" PRId64
                     " steps: a run begins after the same number, as once a file is loaded",
                     -most[1], most[0]);
}

/* A run of kolo_fit that goes on with a session has steps to make. */
static kolo_status check_end_of_fit(const kolo_job *j) {
    if (j->own || j->resume.state.steps > 0 || j->state.steps < j->end) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "the session has made %" PRId64 " steps (of %" PRId64
                     " in an epoch), and this run ends at step %" PRId64
                     ": give more epochs or steps, which are counted from step 0",
                     j->state.steps, j->setup.epoch_steps, j->end);
}

kolo_status kolo_job_resume(kolo_job *j) {
    KOLO_TRY(try_shared_folder(j));
    KOLO_TRY(kolo_resume_load(&j->resume, j->session, j->comm));
    if (j->resume.state.steps > 0) {
        kolo_session_restore_local(j->session);
        KOLO_TRY(kolo_session_assign(j->session, j->resume.state.updates,
                                     j->resume.state.steps)); /* of kolo_fit */
    }
    j->state.steps = kolo_session_steps(j->session);
    KOLO_TRY(check_steps(j));
    j->saved = j->resume.here ? j->resume.state.steps : 0;
    j->end = j->setup.total_steps;
    return check_end_of_fit(j);
}

kolo_status kolo_job_start(kolo_job *j) {
    KOLO_TRY(kolo_job_open_trace(j));
    KOLO_TRY(open_ledgers(j));
    KOLO_TRY(kolo_agree(j->comm, begin_files(j)));
    KOLO_TRY(kolo_agree(j->comm, open_viewers(j)));
    KOLO_TRY(kolo_agree(j->comm, open_batches(j)));
    return kolo_agree(j->comm, open_balance(j));
}

/* No process can join any more. */
static void remove_join_file(kolo_job *j) {
    if (j->join_file && j->rank == 0) (void)kolo_file_remove(j->join_file);
    kolo_free(j->join_file);
    j->join_file = NULL;
}

void kolo_job_end(kolo_job *j) {
    kolo_checkpoint_saver_destroy(j->saver);
    kolo_ledger_close(j->ledger);
    kolo_job_close_stream(j);
    kolo_loader_destroy(j->loader);
    kolo_loader_destroy(j->audit);
    kolo_balance_destroy(j->balance);
    kolo_job_close_trace(j);
    remove_join_file(j);
    kolo_session_destroy(j->own);
    kolo_run_files_close(j->files);
    kolo_event_file_close(j->events);
    kolo_metrics_server_destroy(j->server);
    kolo_resume_close(&j->resume);
    kolo_setup_close(&j->setup);
    kolo_step_times_fini(&j->times);
    kolo_rank_times_destroy(j->rank_times);
    kolo_resident_batch_fini(&j->resident);
    kolo_comm_destroy(j->own_comm);
    kolo_free(j->lost);
    kolo_free(j->lost_servers);
    kolo_text_fini(&j->losses);
    kolo_text_fini(&j->policies);
}

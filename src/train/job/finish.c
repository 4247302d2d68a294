/* Runs: the result. */
#include "base/integer.h"
#include "base/process.h"
#include "kolo/parameters.h"
#include "train/job/job.h"
#include "train/session/agree.h"
#include "train/session/memory.h"
#include "train/session/replicas.h"
#include "train/session/share.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Samples of the largest micro-batch: a step has no more than the data. */
static int64_t largest_batch(const kolo_job *j) {
    int64_t samples =
        kolo_min_i64(j->setup.global_batch, kolo_dataset_describe(j->setup.train)->count);
    return kolo_min_i64(j->setup.opts.batch,
                        (samples - 1) / kolo_session_data_ranks(j->session) + 1);
}

/* Of all workers, the reads by staleness, the gradients by delay, the parts of pushes, and bytes.
 */
typedef struct histograms {
    uint64_t reads[KOLO_STALENESS_BINS], delays[KOLO_STALENESS_BINS], parts, sent, received;
    uint64_t ahead;
} histograms;

static kolo_status sum_histograms(const kolo_job *j, histograms *h) {
    kolo_session_count_reads(j->session, h->reads);
    kolo_session_count_delays(j->session, h->delays);
    h->parts = kolo_session_count_parts(j->session);
    kolo_session_count_bytes(j->session, &h->sent, &h->received);
    h->ahead = kolo_session_count_ahead(j->session);
    if (!j->comm) return KOLO_OK;
    return kolo_allreduce(j->comm, h, sizeof *h / sizeof h->reads[0], KOLO_DTYPE_I64, KOLO_SUM);
}

/* What this worker has allocated and, where no worker is lost, each of the others. */
static kolo_status state_memory(const kolo_job *j, kolo_train_result *result) {
    const bool all = !j->joined && (j->comm || j->size == 1);
    kolo_train_memory own = kolo_session_memory_parts(j->session);
    kolo_train_memory *rows = all ? j->setup.opts.memory_by_rank : NULL;
    own.store += (int64_t)kolo_checkpoint_saver_bytes(j->saver);
    result->memory = own;
    result->memory_by_rank = rows;
    return rows ? kolo_gather_memory(j->comm, &own, rows) : KOLO_OK;
}

/* Why the ranks share no parameters. */
static void state_sharing(const kolo_job *j, kolo_train_result *result) {
    const kolo_session_config *config = kolo_session_config_of(j->session);
    if (j->size == 1) return;
    const char *why = kolo_session_unshared(config, kolo_session_comm(j->session));
    if (!why && !config->share) why = "--no-share, or a session of a program";
    snprintf(result->unshared, sizeof result->unshared, "%s", why ? why : "");
}

/* Which layers have moved to other stages. */
static void state_stages(const kolo_job *j, kolo_train_result *result) {
    kolo_text text = {0};
    result->stage_moves = kolo_session_stage_moves(j->session);
    if (result->stage_moves > 0) kolo_session_describe_stages(j->session, false, &text);
    if (text.text) snprintf(result->stages, sizeof result->stages, "%s", text.text);
    kolo_text_fini(&text);
}

/* The final checkpoint, with the rows of tables, and loss.svg; agreed with the other ranks. A run
 * that was preempted has a checkpoint to resume from. */
static kolo_status save_final(kolo_job *j, kolo_table_stats *table) {
    const bool ended = !j->preemption.due;
    const char *final = j->files && ended ? kolo_run_files_checkpoint(j->files) : NULL;
    bool takes_part = j->saves && ended && kolo_store_is_sharded(kolo_session_store(j->session));
    kolo_status status = final || takes_part ? kolo_job_save(j, final, NULL, false) : KOLO_OK;
    if (status == KOLO_OK) status = kolo_session_table_stats(j->session, table);
    if (status == KOLO_OK && final && table->version > 0) status = kolo_job_save_rows(j, "final");
    status = kolo_job_name_kept(status, "checkpoint", j->saved);
    if (status == KOLO_OK && j->files) status = kolo_job_decide(j, kolo_run_files_draw(j->files));
    return kolo_agree(j->comm, status);
}

/* The parts of a result that are copied or written into it. */
static void fill_result(kolo_job *j, const histograms *h, kolo_train_result *result) {
    memcpy(result->reads, h->reads, sizeof result->reads);
    memcpy(result->delays, h->delays, sizeof result->delays);
    result->parts = h->parts;
    result->sent_bytes = h->sent;
    result->received_bytes = h->received;
    result->table_ahead = h->ahead;
    const char *policies = j->policies.text;
    if (policies) snprintf(result->consistency, sizeof result->consistency, "%s", policies);
    kolo_step_time *rows = j->setup.opts.times_by_rank;
    if (rows) memcpy(rows, result->times.by_rank, (size_t)result->times.ranks * sizeof *rows);
    result->times.by_rank = rows;
    state_sharing(j, result);
    kolo_job_report_best(j, result);
    state_stages(j, result);
    if (j->losses.text) snprintf(result->lost, sizeof result->lost, "%s", j->losses.text);
    const char *options = j->setup.opts.model_options;
    snprintf(result->model, sizeof result->model, "%s%s%s", j->setup.opts.model,
             options && *options ? ":" : "", options ? options : "");
}

static kolo_status finish(kolo_job *j, kolo_train_result *result) {
    uint64_t hash;
    KOLO_TRY(kolo_job_complete_save(j, true));
    histograms h = {{0}, {0}, 0, 0, 0, 0};
    KOLO_TRY(sum_histograms(j, &h));
    KOLO_TRY(kolo_job_sum_damaged(j));
    KOLO_TRY(kolo_store_hash_shards(kolo_session_store(j->session), &hash));
    KOLO_TRY(kolo_compare_replicas(j->comm, kolo_session_store(j->session),
                                   kolo_job_has_own_state(j), "at the end"));
    KOLO_TRY(kolo_job_check_parameters(j));
    double times[2 + KOLO_STEP_QUANTILES] = {(double)j->state.run.ns / 1e9,
                                             kolo_accumulator_rate(&j->state.run)};
    double *quantiles = times + 2;
    kolo_step_times_quantiles_ms(&j->times, KOLO_STEP_QUANTILES, quantiles);
    if (j->comm) {
        KOLO_TRY(kolo_broadcast(j->comm, times, 2 + KOLO_STEP_QUANTILES, KOLO_DTYPE_F64, 0));
    }
    const kolo_sums last = kolo_job_last_steps(j, KOLO_LAST_STEPS);
    kolo_table_stats table;
    KOLO_TRY(save_final(j, &table));
    if (j->trace) KOLO_TRY(kolo_trace_write(j->trace, j->comm, j->setup.opts.trace));
    *result = (kolo_train_result){
        .workers = j->size,
        .threads = j->setup.opts.threads,
        .batch = largest_batch(j),
        .parameters = kolo_session_parameters(j->session),
        .steps = j->end,
        .epochs = j->setup.opts.in_memory ? 0 : j->end / j->setup.epoch_steps,
        .samples = j->state.run.sums.samples,
        .damaged = j->state.damaged,
        .first_loss = j->state.first_loss,
        .final = kolo_sums_metrics(&last, kolo_session_has_tokens(j->session)),
        .evaluated = j->evaluated,
        .test = j->evaluated ? j->evaluation.metrics : kolo_metrics_none(),
        .train_seconds = times[0],
        .samples_per_second = times[1],
        .step_ms_median = quantiles[KOLO_STEP_QUANTILES / 2],
        .peak_rss_bytes = kolo_peak_rss_bytes(),
        .parameter_hash = hash,
        .times = kolo_rank_times_report(j->rank_times, KOLO_TIMES_RUN),
        .servers = j->setup.opts.servers,
        .table = table,
        .preempted = j->preemption.due,
    };
    memcpy(result->step_ms_quantiles, quantiles, sizeof result->step_ms_quantiles);
    fill_result(j, &h, result);
    return state_memory(j, result);
}

static kolo_status consolidate(kolo_job *j) {
    KOLO_TRY(kolo_job_consolidate(j));
    kolo_session_add_rest(j->session, &j->state.run.sums);
    return KOLO_OK;
}

kolo_status kolo_job_finish(kolo_job *j, kolo_train_result *result) {
    KOLO_TRY(consolidate(j));
    const kolo_status status = finish(j, result);
    if (!kolo_job_goes_on(j, status)) return status;
    KOLO_TRY(consolidate(j)); /* which worker is lost */
    return finish(j, result);
}

/* A step on the resident batch, read through a loader as in training. */
static kolo_status step_by_loader(kolo_job *j, double lr, kolo_sums *sums) {
    kolo_loader_opts opts = {
        .dataset = j->setup.train,
        .global_batch = j->setup.global_batch,
        .no_shuffle = true,
        .rank = kolo_session_data_rank(j->session),
        .world = kolo_session_data_ranks(j->session),
        .end = 1,
    };
    kolo_loader *loader = NULL;
    kolo_batch batch;
    kolo_job_add_shards(j, &opts);
    kolo_status status = kolo_loader_create(&opts, &loader);
    if (status == KOLO_OK) status = kolo_loader_next(loader, &batch);
    status = kolo_agree(j->comm, status);
    if (status == KOLO_OK) status = kolo_session_step_batch(j->session, &batch, lr, sums);
    kolo_loader_destroy(loader);
    return status;
}

/* The session as before its first step. */
static kolo_status begin_again(kolo_job *j) {
    if (kolo_session_is_replanned(j->session)) {
        kolo_job_close_trace(j);
        kolo_session_destroy(j->own);
        j->own = j->session = NULL;
        j->state.steps = 0;
        return kolo_job_create_session(j);
    }
    KOLO_TRY(kolo_session_init(j->session, j->setup.opts.seed));
    return kolo_job_load_weights(j);
}

/* Repeats the first steps from the same parameters: the losses must be bitwise equal. The sums are
 * equal on all ranks, so all ranks fail together. */
kolo_status kolo_job_check_losses(kolo_job *j, kolo_train_result *result) {
    KOLO_TRY(begin_again(j));
    int64_t steps = kolo_min_i64(CHECKED_STEPS, j->setup.total_steps);
    for (int64_t k = 0; k < steps; k++) {
        kolo_sums sums;
        KOLO_TRY(step_by_loader(j, kolo_session_lr_at(j->session, k), &sums));
        double loss = sums.metric[KOLO_METRIC_LOSS];
        if (loss == j->first_losses[k]) continue;
        return KOLO_FAIL(KOLO_ERR_DIVERGED,
                         "the sum of losses of step %" PRId64
                         " was %.17g in the benchmark and is %.17g in training: the benchmark does "
                         "not measure training",
                         k + 1, j->first_losses[k], loss);
    }
    result->losses_checked = steps;
    return kolo_session_consolidate(j->session);
}

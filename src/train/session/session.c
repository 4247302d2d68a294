/* Sessions: creation, facts, and the deal of shards. */
#include "train/session/session.h"

#include "base/integer.h"
#include "data/sampler.h"
#include "kolo/train.h"
#include "plan/program/program.h"
#include "plan/program/run.h"
#include "train/session/agree.h"
#include "train/session/internal.h"
#include "train/session/share.h"

#include <inttypes.h>
#include <string.h>

/* The shards of each place on dp, as they are given or equal ones. */
static kolo_status count_shards(kolo_session *s) {
    const size_t bytes = (size_t)data_ranks(s) * sizeof *s->counts;
    if (s->counts) return KOLO_OK; /* dealt before */
    s->counts = kolo_alloc(bytes);
    if (!s->counts) return KOLO_NOMEM(bytes);
    if (s->opts.counts) {
        memcpy(s->counts, s->opts.counts, bytes);
    } else {
        kolo_deal_shards(s->opts.shards, data_ranks(s), NULL, s->counts);
    }
    kolo_session_shards(s, data_rank(s), &s->first_shard, &s->end_shard);
    return KOLO_OK;
}

static kolo_status compile_shards(kolo_session *s) {
    const cached *unused;
    KOLO_TRY(count_shards(s));
    KOLO_TRY(kolo_session_cut_stages(s, s->opts.global_batch));
    KOLO_TRY(kolo_session_get_plan(s, FINISH, s->opts.batch, s->opts.batch, &unused));
    int64_t rest = s->opts.short_shard; /* now: an error should not end the first epoch */
    if (rest > 0) KOLO_TRY(kolo_session_get_plan(s, ADD, rest, rest, &unused));
    return kolo_plan_deal(kolo_session_plan(s), s->counts);
}

/* The samples that the ranks which make a step together have of `global`. */
static int64_t step_samples(const kolo_session *s, int64_t global) {
    int64_t samples = 0;
    for (int r = 0; r < step_ranks(s); r++) {
        samples += kolo_part_count(global, data_ranks(s), data_rank(s) - step_rank(s) + r);
    }
    return samples;
}

/* The plan of full batches, which fixes the layouts. Collective as kolo_session_get_plan. */
static kolo_status compile_first(kolo_session *s) {
    const cached *unused;
    const int64_t batch = s->opts.batch, global = s->opts.global_batch;
    if (s->opts.evaluate_only) {
        const int64_t all = batch * data_ranks(s);
        KOLO_TRY(kolo_session_cut_stages(s, all));
        return kolo_session_get_plan(s, EVALUATE, kolo_session_data_key(s, all, batch), batch,
                                     &unused);
    }
    if (s->opts.shards > 0) return compile_shards(s);
    const int64_t key = kolo_max_i64(step_samples(s, global), 1);
    const int64_t share = kolo_part_count(global, data_ranks(s), data_rank(s));
    KOLO_TRY(kolo_session_cut_stages(s, key));
    int64_t n = micro_batches(s, key);
    return kolo_session_get_plan(s, FINISH, key, kolo_part_count(share, n, n - 1), &unused);
}

/* After plans were compiled. What one rank cannot compile all have refused; after another error of
 * one, others of its groups may wait for the layouts: these learn it first. */
static kolo_status agree_on_plans(kolo_session *s, kolo_status status) {
    const bool refused = s->refused;
    s->refused = false;
    if (refused) return status;
    if (status != KOLO_OK) kolo_session_fail(s, status);
    return kolo_agree(s->comm, status);
}

/* ---- plans of further sizes ---- */

/* The shard with the rest, on all ranks: any of them may have it. */
static kolo_status compile_short_shard(kolo_session *s, int64_t global) {
    const cached *unused;
    const int64_t rest = global % s->opts.batch;
    return rest > 0 ? kolo_session_get_plan(s, ADD, rest, rest, &unused) : KOLO_OK;
}

/* Whether micro-batches of a share have two sizes: the first ones have a plan of their own. */
static bool is_uneven(const kolo_session *s, int64_t global, int place, int64_t n) {
    return kolo_part_count(global, data_ranks(s), place) % n != 0;
}

/* The plan of the first micro-batches, where the share has others. On a mesh ranks of other places
 * on dp may have it, and those that divide a model wait for each other. */
static kolo_status compile_first_micro_batch(kolo_session *s, int64_t global, int64_t n) {
    const cached *unused;
    const int64_t share = kolo_part_count(global, data_ranks(s), data_rank(s));
    bool any = false;
    if (is_uneven(s, global, data_rank(s), n)) {
        return kolo_session_get_plan(s, ADD, step_samples(s, global), kolo_part_count(share, n, 0),
                                     &unused);
    }
    for (int place = 0; place < data_ranks(s); place++) any |= is_uneven(s, global, place, n);
    return any && s->groups ? kolo_session_refuse_together(s, KOLO_OK) : KOLO_OK;
}

static kolo_status compile_size(kolo_session *s, int64_t global) {
    const cached *unused;
    if (s->opts.shards > 0) return compile_short_shard(s, global);
    const int64_t key = step_samples(s, global);
    if (key == 0) return KOLO_OK; /* a rank that makes no step */
    const int64_t share = kolo_part_count(global, data_ranks(s), data_rank(s));
    const int64_t n = micro_batches(s, key), last = kolo_part_count(share, n, n - 1);
    KOLO_TRY(kolo_session_get_plan(s, FINISH, key, last, &unused));
    return compile_first_micro_batch(s, global, n);
}

/* The same on all ranks. A size of long ago is agreed on again. */
static bool has_size(const kolo_session *s, int64_t global) {
    for (size_t i = 0; i < KOLO_COUNT(s->sizes) && i < s->n_sizes; i++) {
        if (s->sizes[i] == global) return true;
    }
    return false;
}

kolo_status kolo_session_compile_step(kolo_session *s, int64_t global) {
    if (s->opts.served || has_size(s, global)) return KOLO_OK; /* served: each as it comes to it */
    KOLO_TRY(agree_on_plans(s, compile_size(s, global)));
    s->sizes[s->n_sizes++ % KOLO_COUNT(s->sizes)] = global;
    return KOLO_OK;
}

kolo_status kolo_session_compile_forward(kolo_session *s, kolo_purpose use, int64_t key,
                                         int64_t samples) {
    const cached *unused;
    if (kolo_session_find_plan(s, use, key)) return KOLO_OK;
    const kolo_status status = kolo_session_get_plan(s, use, key, samples, &unused);
    return evaluates_together(s) ? agree_on_plans(s, status) : status;
}

kolo_status kolo_session_compile_evaluation(kolo_session *s, int64_t global) {
    const int64_t samples = kolo_session_data_share(s, global);
    return kolo_session_compile_forward(s, EVALUATE, kolo_session_data_key(s, global, samples),
                                        samples);
}

/* Where ranks train on their own, the plans that combine what they have learned. */
static kolo_status create_rounds(kolo_session *s) {
    const kolo_consistency *c = &s->opts.consistency;
    const kolo_plan_opts *plan = &s->opts.plan;
    const kolo_round_opts opts = {
        .every = c->steps,
        .outer = c->kind != KOLO_CONSISTENCY_LOCAL,
        .lr = c->lr,
        .momentum = c->momentum,
        .nesterov = c->nesterov,
        .fragments = (int)c->fragments,
        .strided = c->strided,
        .overlap = c->overlap,
        .mix = c->mix,
        .algorithm = plan->algorithm,
        .kernels = plan->kernels,
        .compression = plan->compression,
        .bucket_bytes = plan->bucket_bytes,
        .threads = plan->threads,
        .times = &s->times,
        .reported = KOLO_SESSION_SUMS,
    };
    const bool none = !trains_alone(s) || s->opts.served; /* owners have them */
    if (none || s->opts.evaluate_only) return KOLO_OK;
    return kolo_rounds_create(s->plans[0]->plan, &opts, s->store, s->comm, &s->rounds);
}

static kolo_status compile_again(kolo_session *s) {
    KOLO_TRY(compile_first(s));
    return create_rounds(s);
}

kolo_status kolo_session_replan(kolo_session *s) {
    s->replanned = true;
    kolo_session_destroy_plans(s);
    return agree_on_plans(s, compile_again(s));
}

bool kolo_session_is_replanned(const kolo_session *s) { return s->replanned; }

/* Later plans read these patterns of names too. */
static bool copy_patterns(kolo_session *s) {
    const char **of[] = {&s->opts.plan.optimizer.no_decay, &s->opts.plan.optimizer.no_scale,
                         &s->opts.plan.optimizer.freeze, &s->opts.plan.compression.only};
    _Static_assert(KOLO_COUNT(of) == KOLO_COUNT(s->patterns), "all are copied");
    for (size_t i = 0; i < KOLO_COUNT(of); i++) {
        if (!*of[i]) continue;
        *of[i] = s->patterns[i] = kolo_strdup(*of[i]);
        if (!s->patterns[i]) return false;
    }
    return true;
}

/* What the mesh is planned by; also for later plans. */
static bool copy_mesh_options(kolo_session *s) {
    const char *rules = s->opts.plan.placement;
    const double *speeds = s->opts.speeds;
    const size_t bytes = (size_t)ranks_of(s) * sizeof *speeds;
    if (rules) s->opts.plan.placement = s->placement = kolo_strdup(rules);
    if (speeds) s->opts.speeds = s->speeds = kolo_alloc(bytes);
    if (speeds && s->speeds) memcpy(s->speeds, speeds, bytes);
    return (s->placement || !rules) && (s->speeds || !speeds);
}

/* What needs no other rank: copies of the options, the device, a store without entries, and a place
 * for the groups of a mesh with other axes than dp. */
static kolo_status open_alone(kolo_session *s, const kolo_session_config *opts) {
    s->opts = *opts;
    if (s->opts.accumulate == 0) s->opts.accumulate = 1;
    s->opts.model = s->model = kolo_strdup(opts->model ? opts->model : "of the caller");
    s->opts.model_options = s->model_options =
        kolo_strdup(opts->model_options ? opts->model_options : "");
    if (!s->model || !s->model_options || !copy_patterns(s) || !copy_mesh_options(s)) {
        return KOLO_NOMEM(64);
    }
    KOLO_TRY(
        kolo_device_open(opts->device, s->comm ? kolo_comm_local_rank(s->comm) : 0, &s->device));
    s->opts.device = s->device->kind->name;
    KOLO_TRY(kolo_store_create(s->device, &s->store));
    const bool single = ranks_of(s) == 1 && !opts->two_versions;
    if (single || opts->served) kolo_store_set_alone(s->store);
    if (keeps_own_residuals(s)) kolo_store_set_comm(s->store, s->comm);
    if (s->opts.global_batch == 0) {
        s->opts.global_batch = opts->batch * s->opts.accumulate * data_ranks(s);
    }
    if (s->opts.share && !kolo_session_unshared(&s->opts, s->comm)) {
        KOLO_TRY(kolo_session_prefers_copies(&s->opts, (int)ranks_of(s), &s->opts.copies));
        s->opts.plan.share = !s->opts.copies;
    } else {
        s->opts.plan.share = false;
    }
    s->buckets.measures = (opts->measure_buckets || opts->measure_compression) && ranks_of(s) > 1;
    const kolo_mesh *mesh = &s->opts.plan.mesh;
    if (!s->comm || !kolo_mesh_has_model_axis(mesh)) return KOLO_OK;
    return kolo_mesh_comms_create(mesh, s->comm, &s->groups);
}

static kolo_status compile_plans(kolo_session *s) {
    KOLO_TRY(compile_first(s));
    KOLO_TRY(kolo_session_check_stage_memory(s));
    return create_rounds(s);
}

/* Any rank may fail alone: it may lack memory, or have a stage that is refused. */
static kolo_status create(kolo_session *s, const kolo_session_config *opts) {
    KOLO_TRY(kolo_agree(s->comm, open_alone(s, opts)));
    if (kolo_session_stages(s) > 1 && s->groups) {
        KOLO_TRY(kolo_program_make_groups(s->groups, &s->opts.plan.mesh));
    }
    KOLO_TRY(agree_on_plans(s, compile_plans(s)));
    if (!s->opts.plan.share) return KOLO_OK;
    return kolo_agree(s->comm, kolo_store_share(s->store, s->comm));
}

kolo_status kolo_session_create_for(const kolo_session_config *opts, kolo_comm *comm,
                                    kolo_session **session) {
    kolo_session *s = kolo_zalloc(sizeof *s);
    if (!s) return kolo_agree(comm, KOLO_NOMEM(sizeof *s));
    s->comm = comm;
    const kolo_status status = create(s, opts);
    if (status == KOLO_OK) {
        *session = s;
        return KOLO_OK;
    }
    if (s->store) kolo_store_abort_if_failed(s->store, comm);
    kolo_session_destroy(s);
    return status;
}

void kolo_session_fail(kolo_session *s, kolo_status status) {
    if (!s) return;
    if (s->served) kolo_served_abandon(s->served);
    s->ended = s->ended || s->served;
    if (s->groups) kolo_mesh_comms_fail(s->groups, status);
    kolo_store_abort_if_failed(s->store, s->comm);
}

kolo_status kolo_session_end(kolo_session *s, kolo_status status) {
    if (status == KOLO_OK || (!s->groups && !s->served)) return status;
    char *error = kolo_strdup(kolo_last_error());
    kolo_session_fail(s, status);
    if (!s->in_callback) {              /* else kolo_fit has it, whose next step fails */
        kolo_served_destroy(s->served); /* now, so that other workers do not wait for this one */
        s->served = NULL;
    }
    (void)kolo_error_set(status, "%s", error ? error : "out of memory");
    kolo_free(error);
    return status;
}

void kolo_session_destroy(kolo_session *s) {
    if (!s) return;
    kolo_served_destroy(s->served);
    kolo_session_destroy_plans(s);
    kolo_mesh_comms_destroy(s->groups);
    kolo_rounds_destroy(s->rounds);
    kolo_program_destroy(s->program);
    kolo_store_destroy(s->store);
    kolo_device_close(s->device);
    kolo_free(s->counts);
    kolo_free(s->buckets.gradients);
    kolo_free(s->buckets.sizes);
    kolo_free(s->buckets.compressed);
    kolo_free(s->given);
    kolo_free(s->placement);
    kolo_free(s->speeds);
    kolo_free(s->label_weights);
    kolo_free(s->of_class);
    for (size_t i = 0; i < KOLO_COUNT(s->patterns); i++) kolo_free(s->patterns[i]);
    for (size_t i = 0; i < KOLO_COUNT(s->exchanges); i++) kolo_free(s->exchanges[i]);
    kolo_free(s->model);
    kolo_free(s->model_options);
    kolo_comm_destroy(s->own_comm);
    kolo_free(s);
}

kolo_status kolo_session_check_f32(const kolo_session *s, const char *what) {
    if (!s->opts.f64) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                     "a session in f64 has no %s: use kolo_session_step, _get and _set", what);
}

kolo_status kolo_session_init(kolo_session *s, uint64_t seed) {
    s->seed = seed;
    s->consolidated = false;
    s->steps = 0;
    s->order = KOLO_SAMPLE_ORDER;
    if (s->opts.plan.share) KOLO_TRY(kolo_barrier(s->comm)); /* no rank reads shared parameters */
    KOLO_TRY(kolo_store_init(s->store, seed));
    return kolo_session_share_values(s);
}

kolo_status kolo_session_share_values(kolo_session *s) {
    if (s->comm) KOLO_TRY(kolo_store_broadcast(s->store, s->comm));
    return kolo_session_refresh_labels(s);
}

void kolo_session_set_steps(kolo_session *s, int64_t steps, int order) {
    s->steps = (uint64_t)steps;
    s->order = order;
}

int kolo_session_order(const kolo_session *s) { return s->order; }

int64_t kolo_session_lost(const kolo_session *s, int worker) {
    return s->served ? kolo_served_lost(s->served, worker) : -1;
}

bool kolo_session_has_lost_server(const kolo_session *s, int server) {
    return s->served && kolo_served_has_lost(s->served, server);
}

void kolo_session_count_bytes(const kolo_session *s, uint64_t *sent, uint64_t *received) {
    *sent = *received = 0;
    if (s->served) kolo_served_count_bytes(s->served, sent, received);
}

uint64_t kolo_session_count_parts(const kolo_session *s) {
    return s->served ? kolo_served_count_parts(s->served) : 0;
}

void kolo_session_count_delays(const kolo_session *s, uint64_t *counts) {
    if (s->served) kolo_served_count_delays(s->served, counts);
}

void kolo_session_count_reads(const kolo_session *s, uint64_t *counts) {
    if (s->served) kolo_served_count_reads(s->served, counts);
}

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
    kolo_status status = kolo_session_check_batch(s, &batch, kolo_session_evaluated(s));
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

kolo_status kolo_session_deal(kolo_session *s, const int *counts) {
    KOLO_TRY(kolo_plan_deal(kolo_session_find_plan(s, FINISH, s->opts.batch)->plan, counts));
    memcpy(s->counts, counts, (size_t)data_ranks(s) * sizeof *counts);
    kolo_session_shards(s, data_rank(s), &s->first_shard, &s->end_shard);
    return KOLO_OK;
}

const kolo_plan_times *kolo_session_times(const kolo_session *s) { return &s->times; }

int64_t kolo_session_busy_ns(const kolo_session *s) { return s->busy_ns; }

bool kolo_session_evaluates_together(const kolo_session *s) { return evaluates_together(s); }

int kolo_session_data_ranks(const kolo_session *s) { return data_ranks(s); }

int kolo_session_data_rank(const kolo_session *s) { return data_rank(s); }

int kolo_session_loader_threads(const kolo_session *s, const kolo_comm *comm) {
    const int all = s->opts.loader_threads;
    if (!comm || all <= 0) return all;
    return (int)kolo_max_i64(
        kolo_part_count(all, kolo_comm_local_size(comm), kolo_comm_local_rank(comm)), 1);
}

bool kolo_session_counts(const kolo_session *s) { return counts_samples(s); }

void kolo_session_set_callback(kolo_session *s, bool runs) { s->in_callback = runs; }

kolo_status kolo_session_check_works(const kolo_session *s) {
    if (s->is_server) {
        return KOLO_FAIL(KOLO_ERR_ARG, "this rank is a server, which keeps parameters and computes "
                                       "nothing: call kolo_session_serve");
    }
    if (!s->ended) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "the session has ended with an error after step %" PRIu64
                     ": destroy it, and create another one, which may load a file",
                     s->steps);
}

kolo_status kolo_session_check_together(const kolo_session *s) {
    KOLO_TRY(kolo_session_check_works(s));
    if (!s->in_callback || ranks_of(s) == 1) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "a callback runs on rank 0 alone, and all ranks take part in this "
                     "call: make it after the run, on all of them");
}

bool kolo_session_is_reproducible(const kolo_session *s) { return s->opts.shards > 0; }

void kolo_session_shards(const kolo_session *s, int place, int *first, int *end) {
    *first = *end = 0;
    for (int p = 0; s->counts && p <= place; p++) {
        *first = *end;
        *end += s->counts[p];
    }
}

void kolo_session_audit(kolo_session *s, const kolo_batch *other) { s->audited = *other; }

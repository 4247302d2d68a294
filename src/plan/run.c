/* The step loop. */
#include "base/clock.h"
#include "base/integer.h"
#include "base/rng.h"
#include "comm/engine/request.h"
#include "kernel/parallel.h"
#include "kolo/embed.h"
#include "kolo/host_memory.h"
#include "plan/no_samples.h"
#include "plan/transfers.h"

/* In shared memory nothing arrives between two kernels but what the other ranks compute, and a call
 * of the communicator, whose code and data the kernels have evicted from the caches, takes a
 * microsecond: at most one in this time. */
enum { PROGRESS_NS = 500000 };

/* What a run does: the steps of each micro-batch or shard, those that run once per step, or both.
 */
typedef struct part {
    bool compute, complete;
    uint64_t *hash;    /* updated with a hash of the shard's gradients; NULL: none */
    bool apart;        /* the gradients of the shard are not summed */
    bool empty;        /* a micro-batch without samples: this rank adds nothing to what it posts */
    bool outside;      /* nothing inside the passes */
    bool alone;        /* kernels run on one thread, in lanes */
    unsigned segments; /* of these alone, a bit each; 0: all */
    int chunk;         /* with segments: of this chunk alone, and of the update */
    const int *groups; /* by step: of these `group` alone, and -1; NULL: all */
    int group;
    bool begins, ends;        /* up to the first WAIT or update; from there on */
    int first, end;           /* of the steps; end 0: up to the last, which completes them */
    kolo_plan_posted *posted; /* takes the place of POSTs; NULL: none */
    kolo_plan_reported *reported;
    void *arg;
} part;

static char *gradients_of(const kolo_plan *p) {
    return p->gradients ? p->gradients : p->store->gradients;
}

static void fold(const kolo_plan *p, int bucket) {
    const kolo_bucket *b = &p->map.buckets[bucket];
    char *region = kolo_regions_host(p->store->regions, gradients_of(p));
    kolo_shard_sum_fold(p->sum, region, b->offset, b->bytes, p->graph->dtype);
}

/* A part of the gradients is complete in this shard, on a stage of a pipeline. */
static void fold_part(const kolo_plan *p, const kolo_step *step) {
    const kolo_value sum = p->graph->nodes[step->node]->out[0];
    const size_t bytes = kolo_tensor_bytes(&kolo_info(p->graph, sum)->tensor);
    char *region = kolo_regions_host(p->store->regions, gradients_of(p));
    const char *data = kolo_plan_pull(p, sum);
    kolo_shard_sum_fold(p->sum, region, (size_t)(data - region), bytes, p->graph->dtype);
}

/* The gradients of a bucket are complete in this shard. */
static void finish_bucket(const kolo_plan *p, int bucket, part run) {
    const kolo_bucket *b = &p->map.buckets[bucket];
    const void *data = kolo_regions_pull(p->store->regions, gradients_of(p) + b->offset, b->bytes);
    if (run.hash) {
        uint64_t own = kolo_hash_bytes(data, b->bytes);
        const uint64_t both[2] = {*run.hash, own};
        *run.hash = kolo_hash_bytes(both, sizeof both);
    }
    if (!run.apart) fold(p, bucket);
}

/* Whether a POST is of a sum over logical shards. */
static bool is_shard_sum(const kolo_plan *p, const kolo_step *step) {
    return p->sum && step->kind == KOLO_STEP_POST &&
           p->graph->nodes[step->node]->attr[KOLO_COMM_OF_SAMPLES].i;
}

/* A single rank has the whole sum of its shards, on the host. */
static kolo_status take_sum(const kolo_plan *p, const kolo_step *post) {
    const kolo_bucket *b = &p->map.buckets[post->bucket];
    if (is_shard_sum(p, post)) {
        kolo_regions_push(p->store->regions, gradients_of(p) + b->offset, b->bytes);
    }
    return KOLO_OK;
}

/* A run. */
typedef struct progress {
    int bank, in_flight;
    kolo_phase phase;        /* since since_ns */
    int64_t since_ns;        /* with times only */
    bool rests;              /* collectives go on behind some kernels only: */
    int64_t progressed_ns;   /* when they did last */
    int64_t communicated_ns; /* until when collectives in flight were counted */
} progress;

/* The time from now on is of `phase`. */
static void enter(const kolo_plan *p, progress *now, kolo_phase phase) {
    if (phase == now->phase || !p->times) return;
    const int64_t ns = kolo_now_ns();
    p->times->phase_ns[now->phase] += ns - now->since_ns;
    now->phase = phase;
    now->since_ns = ns;
}

/* Adds the time of a complete collective, but for what it shares with those before. */
static void count_communication(const kolo_plan *p, const kolo_request *request, progress *now) {
    int64_t begin, end;
    if (!p->times) return;
    kolo_request_interval(request, &begin, &end);
    begin = kolo_max_i64(begin, now->communicated_ns);
    if (end <= begin) return;
    p->times->communication_ns += end - begin;
    now->communicated_ns = end;
}

static kolo_status run_link(kolo_plan *p, const kolo_step *step, progress *now) {
    kolo_mesh_link *link = kolo_plan_link_of(p, step->bucket);
    enter(p, now, KOLO_PHASE_SYNCHRONIZE);
    if (step->kind == KOLO_STEP_POST) {
        now->in_flight++;
        return kolo_plan_post(p, step, now->bank, false);
    }
    KOLO_TRY(kolo_plan_await(p, step, now->bank));
    now->in_flight--;
    KOLO_TRY(kolo_mesh_link_wait(link));
    kolo_plan_receive(p, step, now->bank);
    const kolo_request *request;
    for (int i = 0; (request = kolo_mesh_link_request(link, i)); i++) {
        count_communication(p, request, now);
    }
    return KOLO_OK;
}

/* The other ranks would wait for what this one does not post. */
static kolo_status abort_ranks(const kolo_plan *p, kolo_status status) {
    kolo_comm *comm = kolo_plan_owner(p)->comm;
    if (!comm) return status;
    status = kolo_fail_in(status, "rank %d", kolo_comm_rank(comm));
    kolo_comm_abort(comm, kolo_last_error());
    return status; /* with the text, as the reason */
}

/* The call of a kernel in the run. */
static const kolo_call *call_of(const kolo_plan *p, const kolo_step *step, part run,
                                const progress *now) {
    const kolo_prepared *prepared = run.alone ? step->alone : &step->all;
    return &prepared->calls[2 * p->slot + now->bank];
}

static kolo_status run_kernel(kolo_plan *p, const kolo_step *step, const kolo_call *call) {
    if (!p->transfers && !step->all.spec.op->custom) {
        step->kernel->run(call);
        return KOLO_OK;
    }
    const uint64_t errors = kolo_error_count();
    kolo_plan_launch(p, step, call);
    if (p->transfers) return kolo_plan_start_ready(p);
    return kolo_error_count() != errors ? abort_ranks(p, KOLO_ERR_ARG) : KOLO_OK;
}

/* Communication goes on behind a kernel. */
static kolo_status progress_behind(const kolo_plan *p, progress *now) {
    kolo_comm *background = p->store->background;
    if (!now->in_flight && !background) return KOLO_OK;
    if (now->rests && !background) {
        const int64_t ns = kolo_now_ns();
        if (ns - now->progressed_ns < PROGRESS_NS) return KOLO_OK;
        now->progressed_ns = ns;
    }
    enter(p, now, KOLO_PHASE_SYNCHRONIZE);
    return kolo_comm_progress(now->in_flight ? kolo_plan_owner(p)->comm : background);
}

static kolo_status run_step(kolo_plan *p, const kolo_step *step, part run, progress *now) {
    kolo_request *request;
    if (step->kind != KOLO_STEP_KERNEL && kolo_plan_link_of(p, step->bucket)) {
        return run_link(p, step, now);
    }
    switch (step->kind) {
    case KOLO_STEP_KERNEL:
        enter(p, now, step->phase);
        if (run.empty) kolo_plan_clear_gradient(p, step);
        KOLO_TRY(run_kernel(p, step, call_of(p, step, run, now)));
        if (step->folds) fold_part(p, step);
        return progress_behind(p, now);
    case KOLO_STEP_POST:
        if (is_shard_sum(p, step) && run.compute) {
            enter(p, now, KOLO_PHASE_BACKWARD);
            finish_bucket(p, step->bucket, run);
        }
        if (run.posted) {
            enter(p, now, KOLO_PHASE_SYNCHRONIZE);
            return kolo_plan_post(p, step, now->bank, false);
        }
        request = kolo_plan_request_of(p, step->bucket, now->bank);
        if (!(run.complete || step->inside)) return KOLO_OK;
        if (!request) return take_sum(p, step);
        if (run.empty) kolo_plan_clear_posted(p, step);
        now->in_flight++;
        enter(p, now, KOLO_PHASE_SYNCHRONIZE);
        if (p->times && p->ready_ns) {
            p->ready_ns[step->bucket] = p->times->phase_ns[KOLO_PHASE_BACKWARD];
        }
        return kolo_plan_post(p, step, now->bank, is_shard_sum(p, step));
    case KOLO_STEP_WAIT:
        request = kolo_plan_request_of(p, step->bucket, now->bank);
        if (!request) return KOLO_OK;
        enter(p, now, KOLO_PHASE_SYNCHRONIZE);
        KOLO_TRY(kolo_plan_await(p, step, now->bank));
        now->in_flight--;
        KOLO_TRY(kolo_request_wait(request, 0));
        count_communication(p, request, now);
        if (p->map.buckets[step->bucket].summands) {
            kolo_plan_add_summands(p, step->bucket, request);
        }
        kolo_plan_receive(p, step, now->bank);
        return KOLO_OK;
    }
    return KOLO_OK;
}

/* A POST completes the gradients of a shard, and starts the sum over the ranks once per step. */
static bool is_due(const kolo_plan *p, const kolo_step *step, part run) {
    if (run.segments && !(run.segments >> step->segment & 1)) return false;
    if (run.segments && step->chunk != run.chunk && step->segment != KOLO_SEGMENT_UPDATE) {
        return false;
    }
    if (step->deferred) return false;
    if (run.groups && run.groups[step - p->steps] != run.group &&
        run.groups[step - p->steps] >= 0) {
        return false;
    }
    if (run.posted && step->kind == KOLO_STEP_POST) return true;
    bool folds = is_shard_sum(p, step) && run.compute;
    if (step->inside && run.outside) return false;
    return folds || step->inside || (step->once_per_step ? run.complete : run.compute);
}

/* Makes the next versions the current ones. */
static void commit(kolo_plan *p) {
    kolo_store *s = p->store;
    for (int32_t v = 0; p->updates_only && v < p->graph->n_values; v++) {
        kolo_value old = p->graph->values[v].next_of;
        if (!kolo_value_ok(old)) continue;
        const kolo_store_entry *entry = kolo_store_entry_at(s, p->entries[old.id]);
        if (entry->single) continue;
        kolo_regions_copy(s->regions, kolo_store_at(s, entry, s->current),
                          kolo_store_at(s, entry, !s->current), kolo_store_entry_bytes(entry));
    }
    if (!p->updates_only) s->current = !s->current;
}

/* The slot of a step outside the segments of one chunk: what runs without samples is in the first
 * of its chunk, the update in the current one. */
static int slot_of(const kolo_plan *p, const kolo_step *step, part run, int current) {
    const bool any = run.segments || p->chunks == 1 || step->segment == KOLO_SEGMENT_UPDATE;
    return any ? current : p->first_slot[step->chunk];
}

/* Runs a step and reports it to the observer. */
static kolo_status run_observed(kolo_plan *p, int i, part run, progress *now) {
    const kolo_step *step = &p->steps[i];
    const int64_t begin = p->observer ? kolo_now_ns() : 0;
    KOLO_TRY(run_step(p, step, run, now));
    if (p->observer) {
        KOLO_TRY(kolo_regions_wait(p->store->regions));
        p->observer(p->observer_arg, i, step->kind, step->bucket, begin, kolo_now_ns());
    }
    return KOLO_OK;
}

/* ---- steps that are deferred to the next run ---- */

/* The run is complete but for its deferred steps. */
static void defer_rest(kolo_plan *p, const progress *now) {
    if (p->n_deferred == 0) return;
    kolo_regions_copy(p->store->regions, p->deferred_table, p->table, p->map.table_bytes);
    p->next_deferred = 0;
    p->deferred_bank = now->bank;
    p->communicated_ns = now->communicated_ns;
    p->store->deferring = p;
}

/* Deferred WAITs that have not run. */
static int count_deferred_waits(const kolo_plan *p) {
    int n = 0;
    for (int i = p->next_deferred; i < p->n_deferred; i++) {
        n += p->steps[p->deferred[i].step].kind == KOLO_STEP_WAIT;
    }
    return n;
}

/* The communicator failed before the run was complete: the store is as before it. */
static void roll_back(kolo_plan *p) {
    p->next_deferred = p->n_deferred;
    p->store->current = p->deferred_bank;
    p->store->deferring = NULL;
    p->store->rollbacks++;
}

/* The forward pass needs the sum of a WAIT now. */
static void record_need(kolo_plan *p, const kolo_step *step, progress *now) {
    if (!p->times || !p->needed_ns || step->kind != KOLO_STEP_WAIT) return;
    enter(p, now, KOLO_PHASE_SYNCHRONIZE);
    p->needed_ns[step->bucket] = p->times->phase_ns[KOLO_PHASE_FORWARD];
}

/* Runs the deferred steps that have to run before step `before`. */
static kolo_status run_deferred_before(kolo_plan *p, int before, progress *now) {
    const int bank = now->bank;
    const bool left = p->next_deferred < p->n_deferred;
    kolo_status status = KOLO_OK;
    now->bank = p->deferred_bank;
    while (status == KOLO_OK && p->next_deferred < p->n_deferred &&
           p->deferred[p->next_deferred].before <= before) {
        const int step = p->deferred[p->next_deferred++].step;
        record_need(p, &p->steps[step], now);
        status = run_observed(p, step, (part){.compute = true, .complete = true}, now);
    }
    now->bank = bank;
    if (status == KOLO_OK && left && p->next_deferred == p->n_deferred) p->store->deferring = NULL;
    return status;
}

static progress begin_run(const kolo_plan *p) {
    const bool left = p->next_deferred < p->n_deferred;
    const kolo_comm *comm = kolo_plan_owner(p)->comm;
    const bool rests = comm && kolo_comm_shares_memory(comm);
    return (progress){
        .bank = p->store->current,
        .in_flight = count_deferred_waits(p),
        .phase = KOLO_PHASE_FORWARD,
        .since_ns = p->times ? kolo_now_ns() : 0,
        .rests = rests,
        .progressed_ns = rests ? kolo_now_ns() : 0,
        .communicated_ns = left ? p->communicated_ns : 0,
    };
}

static void end_run(const kolo_plan *p, const progress *now) {
    if (p->times) p->times->phase_ns[now->phase] += kolo_now_ns() - now->since_ns;
}

/* Runs all deferred steps in the order of the step, which is that of its sums: an update runs while
 * later sums are in flight. */
static kolo_status run_all_deferred(kolo_plan *p, progress *now) {
    KOLO_ASSERT(p->next_deferred == 0);
    now->bank = p->deferred_bank;
    for (int i = 0; i < p->n_steps; i++) {
        if (!p->steps[i].deferred) continue;
        KOLO_TRY(run_observed(p, i, (part){.compute = true, .complete = true}, now));
    }
    p->next_deferred = p->n_deferred;
    p->store->deferring = NULL;
    return KOLO_OK;
}

/* A run ends when the device has done all of it, and with `reports` when the host has its outputs;
 * a failure there is the cause of others. */
static kolo_status complete_on_device(kolo_plan *p, kolo_status status, bool reports) {
    if (!p->transfers) return status;
    if (status == KOLO_OK) status = kolo_plan_finish(p);
    if (status == KOLO_OK && reports) kolo_plan_fetch(p);
    const kolo_status failed = kolo_regions_wait(p->store->regions);
    return failed == KOLO_OK ? status : abort_ranks(p, failed);
}

kolo_status kolo_store_run_deferred(kolo_store *s) {
    kolo_plan *p = s->deferring;
    if (!p) return kolo_regions_wait(s->regions);
    if (p->bound_at != s->moves) KOLO_TRY(kolo_plan_bind(p));
    progress now = begin_run(p);
    const kolo_status status = complete_on_device(p, run_all_deferred(p, &now), false);
    if (status != KOLO_OK) roll_back(p);
    end_run(p, &now);
    return status;
}

kolo_status kolo_plan_prepare(kolo_plan *p) {
    return p->store->deferring == p ? KOLO_OK : kolo_store_run_deferred(p->store);
}

/* Whether a run computes all of the forward pass, so that it can run deferred steps when it needs
 * their results. */
static bool takes_over(const kolo_plan *p, part run) {
    return p->store->deferring == p && run.compute && !run.segments && !run.begins && !run.ends;
}

/* ---- runs ---- */

/* A region that runs in lanes. Its fields are shared by all lanes but for `now` and `status`, which
 * are those of lane 0, on the thread of the plan. */
typedef struct region {
    kolo_plan *plan;
    part run;
    int begin, end;
    progress *now;
    kolo_status *status;
} region;

/* A step of lane 0: communication goes on behind it, as behind a step outside regions. */
static void run_in_first_lane(const region *r, kolo_step *step) {
    if (*r->status == KOLO_OK) *r->status = run_step(r->plan, step, r->run, r->now);
}

static void run_in_lane(const region *r, kolo_step *step) {
    if (r->run.empty) kolo_plan_clear_gradient(r->plan, step);
    step->kernel->run(call_of(r->plan, step, r->run, r->now));
    if (step->folds) fold_part(r->plan, step);
}

static void run_lane(const void *job, int lane, int64_t begin, int64_t end) {
    const region *r = job;
    for (int i = r->begin; i < r->end; i++) {
        kolo_step *step = &r->plan->steps[i];
        if (step->lane != lane || !is_due(r->plan, step, r->run)) continue;
        step->begin_ns = r->plan->observer ? kolo_now_ns() : 0;
        if (lane == 0) {
            run_in_first_lane(r, step);
        } else {
            run_in_lane(r, step);
        }
        step->end_ns = r->plan->observer ? kolo_now_ns() : 0;
    }
}

static int count_due(const kolo_plan *p, int begin, int end, part run) {
    int n = 0;
    for (int i = begin; i < end; i++) n += is_due(p, &p->steps[i], run);
    return n;
}

/* Runs the steps of a region, each lane on a thread. All threads take part, so that the team of
 * threads stays the same from loop to loop. */
static kolo_status run_lanes(kolo_plan *p, int begin, int end, part run, progress *now) {
    kolo_status status = KOLO_OK;
    region r = {p, run, begin, end, now, &status};
    r.run.alone = true;
    kolo_kernel_parallel(p->threads, p->threads, run_lane, &r);
    KOLO_TRY(status);
    for (int i = begin; i < end && p->observer; i++) {
        const kolo_step *step = &p->steps[i];
        if (!is_due(p, step, run)) continue;
        p->observer(p->observer_arg, i, step->kind, step->bucket, step->begin_ns, step->end_ns);
    }
    return KOLO_OK;
}

/* The steps [begin, end), one after another. `slot`: the current one. */
static kolo_status run_one_by_one(kolo_plan *p, int begin, int end, part run, int slot,
                                  progress *now) {
    for (int i = begin; i < end; i++) {
        KOLO_TRY(run_deferred_before(p, i, now));
        if (!is_due(p, &p->steps[i], run)) continue;
        p->slot = slot_of(p, &p->steps[i], run, slot);
        KOLO_TRY(run_observed(p, i, run, now));
    }
    return KOLO_OK;
}

/* Runs a region in one of its two ways. A run of all of it is one of its trial. */
static kolo_status run_region(kolo_plan *p, int begin, part run, int slot, progress *now) {
    const kolo_step *first = &p->steps[begin]; /* the others have the same segment and chunk */
    const int end = first->region_end, due = count_due(p, begin, end, run);
    kolo_lane_trial *trial = kolo_plan_trial(p, first);
    const bool in_lanes = due > 0 && kolo_lane_trial_in_lanes(trial);
    const bool whole = due == end - begin && !run.empty;
    const bool timed = whole && kolo_lane_trial_is_timed(trial);
    if (in_lanes || timed) KOLO_TRY(run_deferred_before(p, end - 1, now));
    p->slot = slot_of(p, first, run, slot);
    const int64_t begin_ns = timed ? kolo_now_ns() : 0;
    KOLO_TRY(in_lanes ? run_lanes(p, begin, end, run, now)
                      : run_one_by_one(p, begin, end, run, slot, now));
    if (whole) kolo_lane_trial_add(trial, timed ? kolo_now_ns() - begin_ns : 0);
    return KOLO_OK;
}

/* The steps of a run, and those that the previous one has deferred. */
static kolo_status run_due(kolo_plan *p, part run, progress *now) {
    const int slot = p->slot;
    const int end = run.begins ? p->n_first : run.end > 0 ? run.end : p->n_steps;
    bool reports = run.reported && !p->transfers;
    for (int i = run.ends ? p->n_first : run.first, next; i < end; i = next) {
        if (reports && i >= p->n_reported) {
            KOLO_TRY(run.reported(run.arg));
            reports = false;
        }
        const bool in_region = p->steps[i].region_end > 0;
        next = in_region ? p->steps[i].region_end : i + 1;
        KOLO_TRY(in_region ? run_region(p, i, run, slot, now)
                           : run_one_by_one(p, i, next, run, slot, now));
    }
    p->slot = slot;
    return reports ? run.reported(run.arg) : KOLO_OK;
}

static kolo_status run_steps(kolo_plan *p, part run) {
    if (p->bound_at != p->store->moves) KOLO_TRY(kolo_plan_bind(p));
    if (!takes_over(p, run)) KOLO_TRY(kolo_store_run_deferred(p->store));
    progress now = begin_run(p);
    p->ran_bank = now.bank;
    p->posted = run.posted;
    p->posted_arg = run.arg;
    for (int i = 0; i < p->n_first && run.ends; i++) {
        now.in_flight += p->steps[i].kind == KOLO_STEP_POST;
    }
    kolo_plan_send(p, run.compute && !run.ends &&
                          (!run.segments || (run.segments >> KOLO_SEGMENT_FORWARD & 1)));
    kolo_status status = run_due(p, run, &now);
    const bool reports = run.complete || run.posted || !p->train;
    status = complete_on_device(p, status, reports);
    if (status == KOLO_OK && run.reported && p->transfers) status = run.reported(run.arg);
    if (status != KOLO_OK) {
        if (p->store->deferring == p) roll_back(p);
        return status;
    }
    if (p->train && run.complete && !run.begins && run.end == 0) {
        commit(p);
        defer_rest(p, &now);
    }
    end_run(p, &now);
    return KOLO_OK;
}

kolo_status kolo_plan_run(kolo_plan *p) {
    KOLO_ASSERT(!p->adds_to);
    return run_steps(p, (part){.compute = true, .complete = true});
}

kolo_status kolo_plan_run_reporting(kolo_plan *p, kolo_plan_reported *reported, void *arg) {
    KOLO_ASSERT(!p->adds_to);
    return run_steps(p,
                     (part){.compute = true, .complete = true, .reported = reported, .arg = arg});
}

kolo_status kolo_plan_begin(kolo_plan *p) {
    KOLO_ASSERT(p->arena && p->updates_only && !p->begun);
    KOLO_TRY(run_steps(p, (part){.compute = true, .complete = true, .begins = true}));
    p->begun = true;
    kolo_store_enter_background(p->store, p->comm);
    return KOLO_OK;
}

kolo_status kolo_plan_end(kolo_plan *p) {
    KOLO_ASSERT(p->begun);
    p->begun = false;
    kolo_store_leave_background(p->store);
    return run_steps(p, (part){.compute = true, .complete = true, .ends = true});
}

kolo_status kolo_plan_drain(kolo_plan *p) {
    for (int i = 0; i < p->n_first && p->begun && p->comm; i++) {
        if (p->steps[i].kind != KOLO_STEP_POST) continue;
        KOLO_TRY(kolo_request_wait(kolo_plan_request_of(p, p->steps[i].bucket, 0), 0));
    }
    return KOLO_OK;
}

kolo_status kolo_plan_accumulate(kolo_plan *p) {
    KOLO_ASSERT(p->accumulates);
    return run_steps(p, (part){.compute = true});
}

kolo_status kolo_plan_gradients(kolo_plan *p, kolo_plan_posted *posted, void *arg) {
    KOLO_ASSERT(!p->comm);
    return run_steps(p, (part){.compute = true, .posted = posted, .arg = arg});
}

kolo_status kolo_plan_update(kolo_plan *p, int first, int end) {
    KOLO_ASSERT(!p->comm && !p->adds_to);
    return run_steps(p, (part){.complete = true, .outside = true, .first = first, .end = end});
}

kolo_status kolo_plan_update_group(kolo_plan *p, const int *groups, int group) {
    KOLO_ASSERT(!p->comm && !p->adds_to);
    return run_steps(p,
                     (part){.complete = true, .outside = true, .groups = groups, .group = group});
}

kolo_status kolo_plan_run_segment(kolo_plan *p, kolo_step_segment segment, bool complete) {
    return run_steps(p, (part){.compute = true,
                               .complete = complete,
                               .segments = 1u << segment,
                               .chunk = kolo_plan_chunk(p, p->slot)});
}

kolo_status kolo_plan_run_shard(kolo_plan *p, int shard, bool complete) {
    KOLO_ASSERT(!complete || !p->adds_to);
    kolo_plan_begin_shard(p, shard);
    return run_steps(p, (part){.compute = true, .complete = complete});
}

void kolo_plan_begin_shard(kolo_plan *p, int shard) {
    if (p->sum) kolo_shard_sum_begin(p->sum, shard);
}

kolo_status kolo_plan_hash_shard(kolo_plan *p, int shard, uint64_t *hash) {
    uint64_t h = 0;
    if (p->sum && shard >= 0) kolo_shard_sum_begin(p->sum, shard);
    KOLO_TRY(run_steps(p, (part){.compute = true, .hash = &h, .apart = shard < 0}));
    *hash = h;
    return KOLO_OK;
}

void kolo_plan_skip_shard(kolo_plan *p, int shard) {
    if (!p->sum) return;
    kolo_shard_sum_begin(p->sum, shard);
    kolo_regions_fill(p->store->regions, gradients_of(p), 0, p->map.bucket_bytes);
    (void)kolo_regions_pull(p->store->regions, gradients_of(p), p->map.bucket_bytes);
    for (int i = 0; i < p->n_steps; i++) {
        if (is_shard_sum(p, &p->steps[i])) fold(p, p->steps[i].bucket);
    }
}

kolo_status kolo_plan_skip(kolo_plan *p, bool last) {
    KOLO_TRY(kolo_store_run_deferred(p->store)); /* deferred steps read the sums */
    kolo_plan_add_zeros(p);
    return run_steps(p, (part){.complete = last, .empty = true});
}

kolo_status kolo_plan_follow(kolo_plan *p, bool complete) {
    KOLO_ASSERT(!p->adds_to);
    return run_steps(p, (part){.complete = complete});
}

kolo_status kolo_plan_complete(kolo_plan *p) {
    KOLO_ASSERT(!p->adds_to);
    return run_steps(p, (part){.complete = true, .outside = true});
}

void kolo_plan_observe(kolo_plan *p, kolo_plan_observer observer, void *arg) {
    p->observer = observer;
    p->observer_arg = arg;
}

/* kolo_profile_train: records some steps, then repeats each kernel within one step for its time
 * with warm caches, measures the machine, and computes the profile.
 *
 * Kernels that overwrite their inputs run several times in the last step, so its parameters are
 * garbage: nothing is trained here. Each kernel runs by itself, on all threads, unless lanes are
 * asked for: then the kernels of a region share its time in proportion to theirs.
 *
 * Ranks that profile together agree before each step: none begins before all have ended the one
 * before. A rank that fails in between takes part in the next agreement, with its error. */
#include "kolo/profile.h"

#include "base/clock.h"
#include "base/integer.h"
#include "base/number.h"
#include "base/process.h"
#include "inspect/machine.h"
#include "kernel/parallel.h"
#include "plan/lane_trial.h"
#include "train/record/trace.h"
#include "train/session/agree.h"
#include "train/session/memory.h"
#include "train/session/resident_batch.h"
#include "train/session/tuning.h"

#include <string.h>

enum { WARM_UP = 2, DEFAULT_STEPS = 10, MOST_STEPS = 1000, LEAST_REPEATS = 3, REPEATS = 50 };
static const int64_t repeat_ns = 10000000; /* of one kernel */
static const double lr = 1e-3;

/* The steps of a region that have been recorded in a run. */
typedef struct region_span {
    int region, last; /* step; region 0: none */
    int64_t begin_ns, end_ns;
    double sum_ms; /* of all its steps */
} region_span;

typedef struct profiler {
    kolo_comm *comm;
    kolo_comm *together; /* see kolo_profile_opts */
    kolo_setup setup;
    kolo_resident_batch resident;
    kolo_session *session;
    kolo_plan *plan;
    kolo_trace *trace;
    kolo_step_info *infos;
    bool times_only;
    kolo_machine machine;
    int n_steps;       /* steps of the plan */
    int64_t runs, run; /* recorded steps; the current one */
    double *ms;        /* [n_steps][runs] */
    double *step_ms;   /* [runs] */
    double *last_ms;   /* [runs]: of the rank that ends the step last */
    double *phase_ms;  /* [KOLO_PHASES][runs] */
    double *alone_ms;  /* [n_steps] */
    region_span span;
    double *span_ms; /* [n_steps]: of the steps of the region */
    int *times;      /* [n_steps] executions in an optimizer step: one per micro-batch, or one */
} profiler;

/* A profile and what it owns. */
typedef struct owned_profile {
    kolo_profile profile;
    kolo_profile_row *rows;
    kolo_arena texts;
} owned_profile;

/* ---- recording ---- */

static void add_time(const profiler *p, int step, double ms) {
    p->ms[(int64_t)step * p->runs + p->run] += ms;
    p->phase_ms[(int64_t)p->infos[step].phase * p->runs + p->run] += ms;
}

/* Divides the time of a region that has ended among its steps, which ran at the same time. */
static void end_region(profiler *p) {
    const region_span s = p->span;
    const double ms = (double)(s.end_ns - s.begin_ns) / 1e6;
    p->span = (region_span){0};
    for (int i = s.last; s.region > 0 && i >= 0 && p->infos[i].region == s.region; i--) {
        if (s.sum_ms > 0) add_time(p, i, ms * p->span_ms[i] / s.sum_ms);
        p->span_ms[i] = 0;
    }
}

static void record_in_region(profiler *p, int step, int64_t begin_ns, int64_t end_ns) {
    region_span *s = &p->span;
    if (s->region == 0) {
        *s = (region_span){.region = p->infos[step].region, .begin_ns = begin_ns, .end_ns = end_ns};
    }
    s->last = step;
    s->begin_ns = kolo_min_i64(s->begin_ns, begin_ns);
    s->end_ns = kolo_max_i64(s->end_ns, end_ns);
    p->span_ms[step] = (double)(end_ns - begin_ns) / 1e6;
    s->sum_ms += p->span_ms[step];
}

static void record(void *arg, int step, kolo_step_kind kind, int bucket, int64_t begin_ns,
                   int64_t end_ns) {
    profiler *p = arg;
    const int region = p->infos[step].region;
    if (p->run == 0) p->times[step]++;
    if (region != p->span.region || step <= p->span.last) end_region(p);
    if (region > 0) {
        record_in_region(p, step, begin_ns, end_ns);
    } else {
        add_time(p, step, (double)(end_ns - begin_ns) / 1e6);
    }
}

/* Repeats the kernel that just ran. */
static void repeat(void *arg, int step, kolo_step_kind kind, int bucket, int64_t begin_ns,
                   int64_t end_ns) {
    profiler *p = arg;
    int64_t best = end_ns - begin_ns, start = kolo_now_ns(), spent = 0;
    if (kind != KOLO_STEP_KERNEL || p->alone_ms[step] > 0)
        return; /* the first micro-batch suffices */
    for (int i = 0; i < REPEATS && (i < LEAST_REPEATS || spent < repeat_ns); i++) {
        int64_t begin = kolo_now_ns();
        kolo_plan_repeat(p->plan, step);
        int64_t end = kolo_now_ns();
        best = kolo_min_i64(best, end - begin);
        spent = end - start;
    }
    p->alone_ms[step] = (double)best / 1e6;
}

static kolo_status one_step(profiler *p, double *ms) {
    kolo_sums sums;
    int64_t begin = kolo_now_ns();
    KOLO_TRY(kolo_session_step_batch(p->session, &p->resident.batch, lr, &sums));
    *ms = (double)(kolo_now_ns() - begin) / 1e6;
    return KOLO_OK;
}

static kolo_status record_step(profiler *p) {
    KOLO_TRY(one_step(p, &p->step_ms[p->run]));
    end_region(p);
    double rest = p->step_ms[p->run];
    for (int phase = 1; phase < KOLO_PHASES; phase++) {
        rest -= p->phase_ms[phase * p->runs + p->run];
    }
    p->phase_ms[KOLO_PHASE_INPUT * p->runs + p->run] = rest; /* with the overhead of the loop */
    return KOLO_OK;
}

/* Runs the steps before those that are recorded: where there are lanes, until all are chosen. */
static kolo_status warm_up(profiler *p) {
    double unused;
    int64_t steps = kolo_plan_lanes_of(p->plan).undecided > 0 ? KOLO_LANE_TRIAL_RUNS : WARM_UP;
    if (p->comm) KOLO_TRY(kolo_allreduce(p->comm, &steps, 1, KOLO_DTYPE_I64, KOLO_MAX));
    for (int64_t i = 0; i < steps; i++) KOLO_TRY(one_step(p, &unused));
    kolo_plan_describe(p->plan, p->infos);
    return KOLO_OK;
}

static kolo_status record_steps(profiler *p) {
    kolo_status status = warm_up(p);
    kolo_plan_observe(p->plan, record, p);
    for (p->run = 0; p->run < p->runs; p->run++) {
        KOLO_TRY(kolo_agree(p->together, status));
        status = record_step(p);
    }
    kolo_plan_observe(p->plan, NULL, NULL);
    KOLO_TRY(kolo_agree(p->together, status));
    memcpy(p->last_ms, p->step_ms, (size_t)p->runs * sizeof *p->last_ms);
    if (!p->together) return KOLO_OK;
    return kolo_allreduce(p->together, p->last_ms, (size_t)p->runs, KOLO_DTYPE_F64, KOLO_MAX);
}

/* A trace, and the kernels by themselves. */
static kolo_status record_more(profiler *p) {
    const char *trace = p->setup.opts.trace;
    double unused;
    if (trace) {
        KOLO_TRY(kolo_trace_create(&p->trace));
        KOLO_TRY(kolo_trace_follow(p->trace, p->plan));
        for (int64_t i = 0; i < p->runs; i++) KOLO_TRY(one_step(p, &unused));
        KOLO_TRY(kolo_trace_write(p->trace, p->comm, trace));
        kolo_trace_destroy(p->trace);
        p->trace = NULL;
    }
    if (p->times_only) return KOLO_OK;
    kolo_plan_observe(p->plan, repeat, p);
    KOLO_TRY(one_step(p, &unused));
    kolo_plan_observe(p->plan, NULL, NULL);
    return KOLO_OK;
}

/* ---- the profile ---- */

/* Reorders the values. */
static double median(double *values, int64_t n) {
    kolo_sort_doubles(values, (size_t)n);
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

/* The bound of one execution of a kernel. */
static double bound_of(const profiler *p, const kolo_step_info *s, double alone_ms) {
    if (s->kind != KOLO_STEP_KERNEL || p->times_only) return 0;
    double compute = 1e3 * s->cost.flops / p->machine.flops_per_s;
    double memory = 1e3 * s->cost.bytes / p->machine.bytes_per_s;
    return compute > memory || alone_ms < memory ? alone_ms : memory;
}

static kolo_status make_row(const profiler *p, int i, kolo_arena *texts, kolo_profile_row *row) {
    const kolo_step_info *s = &p->infos[i];
    bool kernel = s->kind == KOLO_STEP_KERNEL;
    const double times = p->times[i];
    char shape[KOLO_SHAPE_TEXT] = "";
    if (kernel) kolo_shape_text(&s->out.shape, shape);
    *row = (kolo_profile_row){
        .phase = s->phase,
        .op = kolo_arena_strdup(texts, s->op),
        .kernel = kolo_arena_strdup(texts, kernel ? s->kernel : ""),
        .library = kolo_arena_strdup(texts, kernel ? s->implementation : ""),
        .parameter = kolo_arena_strdup(texts, s->parameter ? s->parameter : ""),
        .shape = kolo_arena_strdup(texts, shape),
        .ms = median(p->ms + i * p->runs, p->runs),
        .alone_ms = times * p->alone_ms[i],
        .bound_ms = times * bound_of(p, s, p->alone_ms[i]),
        .flops = times * s->cost.flops,
        .bytes = times * s->cost.bytes,
        .slow = s->slow,
    };
    bool whole = row->op && row->kernel && row->library && row->parameter && row->shape;
    return whole ? KOLO_OK : KOLO_NOMEM(64);
}

static kolo_status put_together(const profiler *p, owned_profile *o) {
    kolo_plan_memory memory = kolo_plan_memory_of(p->plan);
    o->profile = (kolo_profile){
        .threads = p->setup.opts.threads,
        .workers = p->comm ? kolo_comm_size(p->comm) : 1,
        .batch = p->setup.opts.batch,
        .accumulate = p->setup.opts.accumulate,
        .parameters = kolo_session_parameters(p->session),
        .steps = p->runs,
        .isa = p->machine.isa,
        .peak_flops = p->machine.flops_per_s,
        .peak_bytes = p->machine.bytes_per_s,
        .swept_bytes = (int64_t)p->machine.bytes,
        .step_ms = median(p->step_ms, p->runs),
        .together_ms = median(p->last_ms, p->runs),
        .arena_bytes = (int64_t)memory.arena,
        .scratch_bytes = (int64_t)memory.scratch,
        .gradient_bytes = (int64_t)memory.gradients,
        .store_bytes = (int64_t)memory.store,
        .peak_rss_bytes = kolo_peak_rss_bytes(),
        .n_rows = p->n_steps,
    };
    o->profile.fastest_ms = p->step_ms[0]; /* sorted by median() */
    for (int i = 0; i < KOLO_PHASES; i++) {
        o->profile.phase_ms[i] = median(p->phase_ms + i * p->runs, p->runs);
    }
    for (int i = 0; i < p->n_steps; i++) {
        KOLO_TRY(make_row(p, i, &o->texts, &o->rows[i]));
        o->profile.bound_ms += o->rows[i].bound_ms;
    }
    o->profile.regions = kolo_plan_lanes_of(p->plan).chosen;
    o->profile.tried = kolo_plan_lanes_of(p->plan).regions;
    o->profile.rows = o->rows;
    return KOLO_OK;
}

/* ---- entry points ---- */

static kolo_status prepare(profiler *p) {
    p->plan = kolo_session_plan(p->session);
    p->n_steps = kolo_plan_n_steps(p->plan);
    size_t n = (size_t)p->n_steps + 1, runs = (size_t)p->runs;
    p->infos = kolo_zalloc(n * sizeof *p->infos);
    p->ms = kolo_zalloc(n * runs * sizeof *p->ms);
    p->step_ms = kolo_zalloc(runs * sizeof *p->step_ms);
    p->last_ms = kolo_zalloc(runs * sizeof *p->last_ms);
    p->phase_ms = kolo_zalloc(KOLO_PHASES * runs * sizeof *p->phase_ms);
    p->alone_ms = kolo_zalloc(n * sizeof *p->alone_ms);
    p->span_ms = kolo_zalloc(n * sizeof *p->span_ms);
    p->times = kolo_zalloc(n * sizeof *p->times);
    if (!p->infos || !p->ms || !p->step_ms || !p->last_ms || !p->phase_ms || !p->alone_ms ||
        !p->span_ms || !p->times) {
        return KOLO_NOMEM(n * runs * sizeof *p->ms);
    }
    kolo_plan_memory memory = kolo_plan_memory_of(p->plan);
    size_t touched = memory.arena + memory.scratch + memory.gradients + memory.store;
    KOLO_TRY(kolo_resident_batch_load(&p->setup, kolo_session_data_rank(p->session), &p->resident));
    if (p->times_only) return KOLO_OK;
    return kolo_machine_measure(p->setup.opts.threads, kolo_kernel_parallel, touched, &p->machine);
}

static void release(profiler *p) {
    kolo_trace_destroy(p->trace);
    kolo_session_destroy(p->session);
    kolo_resident_batch_fini(&p->resident);
    kolo_setup_close(&p->setup);
    kolo_free(p->infos);
    kolo_free(p->ms);
    kolo_free(p->step_ms);
    kolo_free(p->last_ms);
    kolo_free(p->phase_ms);
    kolo_free(p->alone_ms);
    kolo_free(p->span_ms);
    kolo_free(p->times);
}

static kolo_status create_session(profiler *p, const kolo_train_opts *train, bool lanes) {
    kolo_train_opts in_memory = *train;
    in_memory.in_memory = true;
    in_memory.out_dir = NULL;
    if (!lanes) in_memory.lanes = KOLO_LANES_OFF;
    int size = p->comm ? kolo_comm_size(p->comm) : 1;
    KOLO_TRY(kolo_agree(p->comm, kolo_setup_open(&in_memory, size, &p->setup)));
    KOLO_TRY(kolo_tuning_begin(&p->setup, p->comm));
    p->setup.session.two_versions = p->together != NULL;
    return kolo_session_create_for(&p->setup.session, p->comm, &p->session);
}

static kolo_status fill_session(profiler *p) {
    KOLO_TRY(kolo_session_init(p->session, p->setup.opts.seed));
    return kolo_agree(p->comm, prepare(p));
}

static kolo_status make_profile(const profiler *p, owned_profile **made) {
    owned_profile *o = kolo_zalloc(sizeof *o);
    if (!o) return KOLO_NOMEM(sizeof *o);
    o->rows = kolo_zalloc(((size_t)p->n_steps + 1) * sizeof *o->rows);
    kolo_status status =
        o->rows ? put_together(p, o) : KOLO_NOMEM((size_t)p->n_steps * sizeof *o->rows);
    if (status != KOLO_OK) {
        kolo_profile_destroy(&o->profile);
        return status;
    }
    *made = o;
    return KOLO_OK;
}

static kolo_status run(profiler *p, const kolo_train_opts *train, bool lanes,
                       owned_profile **made) {
    KOLO_TRY(kolo_agree(p->together, create_session(p, train, lanes)));
    KOLO_TRY(kolo_session_check_memory(p->session, p->together ? p->together : p->comm, 0));
    KOLO_TRY(kolo_agree(p->together, fill_session(p)));
    KOLO_TRY(record_steps(p));
    KOLO_TRY(kolo_agree(p->together, record_more(p)));
    return kolo_agree(p->together, make_profile(p, made));
}

kolo_status kolo_profile_train(kolo_comm *comm, const kolo_train_opts *train,
                               const kolo_profile_opts *opts, kolo_profile **profile) {
    kolo_profile_opts o = opts ? *opts : (kolo_profile_opts){0};
    if (!o.steps) o.steps = DEFAULT_STEPS;
    if (o.steps < 1 || o.steps > MOST_STEPS) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a profile over %lld steps: choose 1 to %d",
                         (long long)o.steps, MOST_STEPS);
    }
    profiler p = {
        .comm = comm, .together = o.together, .runs = o.steps, .times_only = o.times_only};
    owned_profile *made = NULL;
    kolo_status status = run(&p, train, o.lanes, &made);
    release(&p);
    if (status == KOLO_OK) {
        *profile = &made->profile;
    } else if (made) { /* another rank has failed */
        kolo_profile_destroy(&made->profile);
    }
    return status;
}

void kolo_profile_destroy(kolo_profile *profile) {
    if (!profile) return;
    owned_profile *o = (owned_profile *)profile; /* the first member */
    kolo_arena_fini(&o->texts);
    kolo_free(o->rows);
    kolo_free(o);
}

/* Recording and writing traces; see trace.h and the "Trace Event Format" of Chromium. */
#include "train/record/trace.h"

#include "base/file.h"
#include "base/integer.h"
#include "base/json.h"
#include "train/record/clock_offset.h"
#include "train/session/agree.h"

#include <stdio.h>
#include <string.h>

enum { CAPACITY = 1 << 14 };
enum { FLIGHTS = 1 /* the track of buckets */ };

typedef struct event {
    int64_t begin_ns, end_ns;
    const char *name; /* of an interval outside the plans; else NULL */
    const kolo_step_info *step;
} event;

/* A plan whose steps are recorded. */
typedef struct followed {
    kolo_trace *trace;
    kolo_plan *plan;
    kolo_step_info *steps;
    struct followed *next;
} followed;

struct kolo_trace {
    followed *plans;
    event *events;     /* ring */
    int64_t count;     /* of all events recorded */
    int64_t offset_ns; /* to the clock of rank 0, once it is known */
};

static void record(kolo_trace *t, event e) { t->events[t->count++ % CAPACITY] = e; }

static void observe(void *arg, int step, kolo_step_kind kind, int bucket, int64_t begin_ns,
                    int64_t end_ns) {
    const followed *f = arg;
    record(f->trace, (event){.begin_ns = begin_ns, .end_ns = end_ns, .step = &f->steps[step]});
}

void kolo_trace_add(kolo_trace *t, const char *name, int64_t begin_ns, int64_t end_ns) {
    record(t, (event){.begin_ns = begin_ns, .end_ns = end_ns, .name = name});
}

kolo_status kolo_trace_create(kolo_trace **trace) {
    kolo_trace *t = kolo_zalloc(sizeof *t);
    if (!t) return KOLO_NOMEM(sizeof *t);
    t->events = kolo_zalloc(CAPACITY * sizeof *t->events);
    if (!t->events) {
        kolo_trace_destroy(t);
        return KOLO_NOMEM(CAPACITY * sizeof(event));
    }
    *trace = t;
    return KOLO_OK;
}

kolo_status kolo_trace_follow(kolo_trace *t, kolo_plan *plan) {
    const size_t bytes = ((size_t)kolo_plan_n_steps(plan) + 1) * sizeof(kolo_step_info);
    followed *f = kolo_zalloc(sizeof *f);
    if (!f) return KOLO_NOMEM(sizeof *f);
    f->steps = kolo_zalloc(bytes);
    if (!f->steps) {
        kolo_free(f);
        return KOLO_NOMEM(bytes);
    }
    kolo_plan_describe(plan, f->steps);
    f->trace = t;
    f->plan = plan;
    f->next = t->plans;
    t->plans = f;
    kolo_plan_observe(plan, observe, f);
    return KOLO_OK;
}

void kolo_trace_destroy(kolo_trace *t) {
    if (!t) return;
    for (followed *next, *f = t->plans; f; f = next) {
        next = f->next;
        kolo_plan_observe(f->plan, NULL, NULL);
        kolo_free(f->steps);
        kolo_free(f);
    }
    kolo_free(t->events);
    kolo_free(t);
}

/* ---- writing ---- */

/* The format has microseconds. */
static double us(int64_t ns) { return (double)ns / 1e3; }

/* Event i with the times of rank 0. */
static event event_at(const kolo_trace *t, int64_t i) {
    event e = t->events[i % CAPACITY];
    e.begin_ns += t->offset_ns;
    e.end_ns += t->offset_ns;
    return e;
}

static void begin_event(kolo_json *j, const char *phase, int rank, int track) {
    kolo_json_object(j, NULL);
    kolo_json_string(j, "ph", phase);
    kolo_json_int(j, "pid", rank);
    kolo_json_int(j, "tid", track);
}

static void add_name(kolo_json *j, const char *what, int rank, int track, const char *name) {
    begin_event(j, "M", rank, track);
    kolo_json_string(j, "name", what);
    kolo_json_object(j, "args");
    kolo_json_string(j, "name", name);
    kolo_json_close(j);
    kolo_json_close(j);
}

/* "conv2d conv1.weight"; "wait bucket 2". */
static void step_name(const kolo_step_info *s, kolo_text *name) {
    name->length = 0;
    if (s->kind == KOLO_STEP_KERNEL) {
        kolo_text_add(name, "%s%s%s", s->op, s->parameter ? " " : "",
                      s->parameter ? s->parameter : "");
    } else {
        kolo_text_add(name, "%s bucket %d", s->op, s->bucket);
    }
}

/* Steps of several lanes overlap: each has a track, behind that of flights. */
static int track_of(int lane) { return lane > 0 ? FLIGHTS + lane : 0; }

static void add_step(kolo_json *j, int rank, const kolo_step_info *s, const event *e,
                     kolo_text *name) {
    step_name(s, name);
    begin_event(j, "X", rank, track_of(s->lane));
    kolo_json_string(j, "name", name->failed ? s->op : name->text);
    kolo_json_string(j, "cat", kolo_phase_name(s->phase));
    kolo_json_double(j, "ts", us(e->begin_ns));
    kolo_json_double(j, "dur", us(e->end_ns - e->begin_ns));
    if (s->kind == KOLO_STEP_KERNEL) {
        double ns = (double)kolo_max_i64(e->end_ns - e->begin_ns, 1);
        kolo_json_object(j, "args");
        kolo_json_string(j, "kernel", s->kernel);
        kolo_json_string(j, "library", s->implementation);
        kolo_json_double(j, "GFLOP/s", s->cost.flops / ns);
        kolo_json_double(j, "GB/s", s->cost.bytes / ns);
        kolo_json_close(j);
    }
    kolo_json_close(j);
}

/* A bucket in flight, from its POST to the end of its WAIT, on the second track. */
static void add_flight(kolo_json *j, int rank, const kolo_step_info *s, const event *e) {
    char name[32];
    snprintf(name, sizeof name, "bucket %d", s->bucket);
    begin_event(j, s->kind == KOLO_STEP_POST ? "b" : "e", rank, FLIGHTS);
    kolo_json_string(j, "name", name);
    kolo_json_string(j, "cat", "allreduce");
    kolo_json_int(j, "id", s->bucket + 1000 * rank);
    kolo_json_double(j, "ts", us(s->kind == KOLO_STEP_POST ? e->begin_ns : e->end_ns));
    kolo_json_close(j);
}

static void add_other(kolo_json *j, int rank, const event *e) {
    begin_event(j, "X", rank, 0);
    kolo_json_string(j, "name", e->name);
    kolo_json_string(j, "cat", kolo_phase_name(KOLO_PHASE_INPUT));
    kolo_json_double(j, "ts", us(e->begin_ns));
    kolo_json_double(j, "dur", us(e->end_ns - e->begin_ns));
    kolo_json_close(j);
}

/* Names the tracks of the other lanes of which there are steps. */
static void name_lanes(kolo_json *j, const kolo_trace *t, int rank, int64_t first) {
    int most = 0;
    char name[24];
    for (int64_t i = first; i < t->count; i++) {
        const event *e = &t->events[i % CAPACITY];
        if (!e->name && e->step->lane > most) most = e->step->lane;
    }
    for (int lane = 1; lane <= most; lane++) {
        snprintf(name, sizeof name, "lane %d", lane);
        add_name(j, "thread_name", rank, track_of(lane), name);
    }
}

/* The events of this rank as a JSON array. */
static void print_events(const kolo_trace *t, int rank, kolo_text *out) {
    kolo_text name = {0};
    kolo_json j = {.out = out};
    char process[32];
    snprintf(process, sizeof process, "rank %d", rank);
    kolo_json_array(&j, NULL);
    add_name(&j, "process_name", rank, 0, process);
    add_name(&j, "thread_name", rank, 0, "steps");
    int64_t first = t->count > CAPACITY ? t->count - CAPACITY : 0;
    name_lanes(&j, t, rank, first);
    for (int64_t i = first; i < t->count; i++) {
        const event e = event_at(t, i);
        if (e.name) {
            add_other(&j, rank, &e);
            continue;
        }
        add_step(&j, rank, e.step, &e, &name);
        if (e.step->kind != KOLO_STEP_KERNEL) add_flight(&j, rank, e.step, &e);
    }
    kolo_json_close(&j);
    kolo_text_fini(&name);
}

/* Sends the text of rank `from` to rank 0, which frees *text; NULL on the others. */
static kolo_status fetch(kolo_comm *comm, int from, const kolo_text *own, char **text) {
    int rank = comm ? kolo_comm_rank(comm) : 0;
    int64_t bytes = (int64_t)own->length + 1;
    *text = NULL;
    if (comm) KOLO_TRY(kolo_broadcast(comm, &bytes, 1, KOLO_DTYPE_I64, from));
    char *copy = kolo_alloc((size_t)bytes);
    kolo_status status = kolo_agree(comm, copy ? KOLO_OK : KOLO_NOMEM((size_t)bytes));
    if (status == KOLO_OK && copy && rank == from) memcpy(copy, own->text, (size_t)bytes);
    if (status == KOLO_OK && comm) {
        status = kolo_broadcast(comm, copy, (size_t)bytes, KOLO_DTYPE_U8, from);
    }
    if (status == KOLO_OK && rank == 0) {
        *text = copy;
    } else {
        kolo_free(copy);
    }
    return status;
}

/* Appends one rank's array, without its brackets. */
static kolo_status append(kolo_file_writer *file, char *events, bool first) {
    size_t length = strlen(events);
    if (!first) KOLO_TRY(kolo_file_append(file, ",\n", 2));
    return kolo_file_append(file, events + 1, length - 2);
}

kolo_status kolo_trace_write(kolo_trace *t, kolo_comm *comm, const char *path) {
    static const char head[] = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n",
                      tail[] = "\n]}\n";
    int rank = comm ? kolo_comm_rank(comm) : 0, size = comm ? kolo_comm_size(comm) : 1;
    kolo_text own = {0};
    kolo_file_writer *file = NULL;
    int64_t error_ns;
    KOLO_TRY(kolo_clock_offset(comm, &t->offset_ns, &error_ns));
    print_events(t, rank, &own);
    kolo_status status = own.failed ? KOLO_NOMEM(own.length) : KOLO_OK, written = KOLO_OK;
    if (status == KOLO_OK && rank == 0) status = kolo_file_create(path, &file);
    KOLO_TRY_GOTO(kolo_agree(comm, status), done);
    if (file) written = kolo_file_append(file, head, sizeof head - 1);
    for (int from = 0; from < size; from++) {
        char *events;
        KOLO_TRY_GOTO(fetch(comm, from, &own, &events), done);
        if (events && written == KOLO_OK) written = append(file, events, from == 0);
        kolo_free(events);
    }
    if (file && written == KOLO_OK) written = kolo_file_append(file, tail, sizeof tail - 1);
    if (file && written == KOLO_OK) {
        written = kolo_file_commit(file);
        file = NULL;
    }
    status = kolo_agree(comm, written);
done:
    kolo_file_abandon(file);
    kolo_text_fini(&own);
    return status;
}

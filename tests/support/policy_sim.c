#include "support/policy_sim.h"

#include "base/memory.h"
#include "comm/sync/adapt.h"
#include "comm/sync/parameters_owner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { START_NS = 1000 }; /* a time of 0 means that there is none */

/* A request: first the call. */
typedef struct message {
    kolo_service_call call;
    bool open;
} message;

typedef struct actor {
    message push, pull, other;
    double end; /* of its step; INFINITY: it waits, or has finished */
    int made;
    uint32_t choice;
    float *values,
        *gradient; /* [count], [count + 1]: what it has read, and its gradient and loss */
} actor;

/* The simulation that runs, since clocks have no argument. */
static struct {
    policy_sim *sim;
    kolo_parameters_owner *owner;
    actor *actors;
    double now, samples, loss;
    size_t count;
    bool ended;
} x;

static void check(kolo_status status) {
    if (status == KOLO_OK) return;
    fprintf(stderr, "policy_sim: %s\n", kolo_last_error());
    abort();
}

static int64_t now_ns(void) { return START_NS + (int64_t)(x.now * 1e9); }

static void update(void *arg, const kolo_parameters_update *u) {
    const policy_sim_model *m = x.sim->model;
    (void)arg;
    x.samples += u->workers;
    x.loss += (double)u->gradient[x.count];
    if (m) {
        x.ended |= m->update(m->arg, x.now, u);
    } else {
        u->values[0] += u->gradient[0];
    }
}

static void progress(void *arg, double *samples, double *loss) {
    (void)arg;
    *samples = x.samples;
    *loss = x.loss;
}

static void observe(void *arg, const kolo_parameters_event *e) {
    (void)arg;
    const bool used = !e->read && !(e->late && x.sim->opts.discard);
    x.sim->applied += used;
}

static void learn(actor *a, uint64_t clock) {
    policy_sim *s = x.sim;
    const uint32_t choice = (uint32_t)(clock >> KOLO_CHOICE_SHIFT);
    uint32_t known = 0;
    for (int w = 0; w < s->workers; w++) {
        if (x.actors[w].choice > known) known = x.actors[w].choice;
    }
    if (choice > known && s->n_changes < POLICY_SIM_CHANGES) {
        s->changes[s->n_changes].seconds = x.now;
        s->changes[s->n_changes++].staleness = kolo_adapt_staleness(kolo_choice_level(choice));
    }
    if (choice > a->choice) a->choice = choice;
}

static void reply(kolo_service_call *call, kolo_status status, uint64_t clock, const void *data,
                  size_t bytes) {
    message *m = (message *)(void *)call;
    actor *a = &x.actors[call->client];
    check(status);
    m->open = false;
    if (call->kind != KOLO_OWNER_PULL) return;
    memcpy(a->values, data, bytes);
    learn(a, clock);
}

static void send(int w, message *m, kolo_owner_request kind) {
    const actor *a = &x.actors[w];
    *m = (message){.open = true};
    m->call = (kolo_service_call){.client = w, .kind = kind, .clock = (uint64_t)a->made};
    if (kind == KOLO_OWNER_PUSH) {
        m->call.key = a->choice;
        m->call.input = a->gradient;
        m->call.input_bytes = (x.count + 1) * sizeof *a->gradient;
    }
    if (kind == KOLO_OWNER_PULL) m->call.output_bytes = x.count * sizeof *a->values;
    kolo_parameters_owner_serve(x.owner, &m->call);
}

/* The gradient of a step that ends, and its loss. */
static void compute(int w) {
    const policy_sim_model *m = x.sim->model;
    const actor *a = &x.actors[w];
    double loss = x.sim->loss ? x.sim->loss(x.now) : 0;
    if (m) {
        loss = m->compute(m->arg, w, a->values, a->gradient);
    } else {
        a->gradient[0] = 1;
    }
    a->gradient[x.count] = (float)loss;
}

/* The worker whose step ends next; -1: none is in a step. */
static int first_to_end(void) {
    int first = -1;
    for (int w = 0; w < x.sim->workers; w++) {
        const actor *a = &x.actors[w];
        if (isfinite(a->end) && (first < 0 || a->end < x.actors[first].end)) first = w;
    }
    return first;
}

/* Workers whose requests are answered begin their next step. */
static void begin_steps(void) {
    const policy_sim *s = x.sim;
    for (int w = 0; w < s->workers; w++) {
        actor *a = &x.actors[w];
        if (isfinite(a->end) || a->push.open || a->pull.open || a->made > s->steps) continue;
        if (a->made == s->steps) {
            send(w, &a->other, KOLO_OWNER_FINISH);
            a->made++;
        } else {
            a->end = x.now + s->units[a->made * s->workers + w];
        }
    }
}

/* Room for what the workers have read and computed. */
static void open_actors(const policy_sim *s) {
    x.actors = kolo_zalloc((size_t)s->workers * sizeof *x.actors);
    KOLO_ASSERT(x.actors);
    for (int w = 0; w < s->workers; w++) {
        actor *a = &x.actors[w];
        a->end = INFINITY;
        a->values = kolo_zalloc(x.count * sizeof *a->values);
        a->gradient = kolo_zalloc((x.count + 1) * sizeof *a->gradient);
        KOLO_ASSERT(a->values && a->gradient);
    }
}

static void close_actors(const policy_sim *s) {
    for (int w = 0; w < s->workers; w++) {
        kolo_free(x.actors[w].values);
        kolo_free(x.actors[w].gradient);
    }
    kolo_free(x.actors);
}

void policy_sim_run(policy_sim *s) {
    const float zero = 0;
    s->opts.update = update;
    s->opts.observe = observe;
    s->opts.progress = s->loss || s->model ? progress : NULL;
    s->applied = 0;
    s->n_changes = 0;
    x.sim = s;
    x.now = x.samples = x.loss = 0;
    x.count = s->model ? s->model->count : 1;
    x.ended = false;
    open_actors(s);
    const kolo_owned has = {.values = {0, x.count}, .gradient = {0, x.count + 1}};
    check(kolo_parameters_owner_create(&s->opts, &has, s->workers, reply, &x.owner));
    kolo_parameters_owner_set_clock(x.owner, now_ns);
    kolo_parameters_owner_load(x.owner, s->model ? s->model->initial : &zero);
    for (int w = 0; w < s->workers; w++) send(w, &x.actors[w].pull, KOLO_OWNER_PULL);
    begin_steps();
    for (int w;
         !x.ended && (w = first_to_end()) >= 0 && (s->target == 0 || s->applied < s->target);) {
        actor *a = &x.actors[w];
        x.now = a->end;
        a->end = INFINITY;
        compute(w);
        send(w, &a->push, KOLO_OWNER_PUSH);
        a->made++;
        send(w, &a->pull, KOLO_OWNER_PULL);
        begin_steps();
    }
    s->seconds = x.now;
    kolo_parameters_owner_destroy(x.owner);
    close_actors(s);
}

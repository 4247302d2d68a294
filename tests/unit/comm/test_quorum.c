/* Rounds that end with a quorum and a grace, against a simulation in f64 of the equations of
 * docs/consistency.md: replicas push what they have learned, weighted by samples, read, wait in
 * barriers, finish and are lost in random order, and time passes. All that the owner adds up is
 * exact in f32, so that the two agree to the rounding of f64. */
#include "base/compiler.h"
#include "base/integer.h"
#include "base/rng.h"
#include "comm/sync/parameters_owner.h"
#include "support/support.h"

#include <math.h>
#include <string.h>

enum { REPLICAS = 5, COUNT = 3, EVENTS = 400, MS = 1000000 };

static const double lr = 0.7, momentum = 0.9;

/* The outer state in f64, of the owner's side and of the simulation. */
typedef struct outer {
    double a[COUNT], v[COUNT];
    int updates;
    int64_t samples;
} outer;

/* SGD with Nesterov's momentum; `part`: of an update. */
static void update_outer(outer *o, const double *d, double part) {
    for (int i = 0; i < COUNT; i++) {
        o->v[i] = momentum * o->v[i] + d[i];
        o->a[i] -= part * lr * (d[i] + momentum * o->v[i]);
    }
    o->updates++;
}

/* A delta that has been pushed. */
typedef struct delta {
    double d[COUNT];
    int64_t samples;
} delta;

typedef struct simulated {
    bool gone, waits, in;
    int version; /* that it has read; -1: it waits for a read */
    delta pushed, late[8];
    int n_late;
} simulated;

typedef struct simulation {
    int n, quorum, late, lost;
    int64_t grace_ns, now_ns, quorum_ns; /* quorum_ns -1: it is not there */
    outer outer;
    simulated replica[REPLICAS];
} simulation;

typedef struct message {
    kolo_service_call call;
    bool answered;
    uint64_t clock;
    float pushed[COUNT + 1], values[COUNT]; /* pushed: samples times the delta, and samples */
} message;

static simulation *now_of; /* clocks have no argument */

static int64_t now_ns(void) { return now_of->now_ns; }

static void update(void *arg, const kolo_parameters_update *u) {
    outer *o = arg;
    double d[COUNT];
    for (int i = 0; i < COUNT; i++) d[i] = (double)u->gradient[i] / (double)u->gradient[COUNT];
    o->samples += (int64_t)u->gradient[COUNT];
    update_outer(o, d, u->least > u->workers ? (double)u->workers / u->least : 1);
    for (int i = 0; i < COUNT; i++) u->values[i] = (float)o->a[i];
}

static void reply(kolo_service_call *call, kolo_status status, uint64_t clock, const void *data,
                  size_t bytes) {
    message *m = (message *)(void *)call; /* its first member */
    if (status != KOLO_OK) fail_msg("%s", kolo_last_error());
    assert_false(m->answered);
    m->answered = true;
    m->clock = clock;
    if (data && bytes == sizeof m->values) memcpy(m->values, data, bytes);
}

/* ---- the simulation ---- */

static void add(delta *sum, const delta *x) {
    for (int i = 0; i < COUNT; i++) sum->d[i] += (double)x->samples * x->d[i];
    sum->samples += x->samples;
}

/* Ends the round, if it is due: after the quorum and the grace, or if nobody is waited for. */
static void simulate_round(simulation *s) {
    int active = 0, in = 0, deltas = 0;
    delta sum = {.samples = 0};
    for (int w = 0; w < s->n; w++) {
        active += !s->replica[w].gone && !s->replica[w].waits;
        in += s->replica[w].in;
    }
    const bool enough = in > 0 && (in >= s->quorum || in >= active);
    if (active > 0 && !enough) s->quorum_ns = -1;
    if (active > 0 && !enough) return;
    if (active > 0 && s->quorum_ns < 0) s->quorum_ns = s->now_ns;
    if (active > 0 && in < active && s->now_ns - s->quorum_ns < s->grace_ns) return;
    for (int w = 0; w < s->n; w++) {
        simulated *x = &s->replica[w];
        for (int i = 0; i < x->n_late; i++) add(&sum, &x->late[i]);
        if (x->in) add(&sum, &x->pushed);
        deltas += x->n_late + x->in;
        x->n_late = 0;
        x->in = false;
        if (active == 0) x->waits = false;
    }
    s->quorum_ns = -1;
    if (sum.samples == 0) return;
    const int least = s->quorum < s->n - s->lost ? s->quorum : s->n - s->lost;
    for (int i = 0; i < COUNT; i++) sum.d[i] /= (double)sum.samples;
    s->outer.samples += sum.samples;
    update_outer(&s->outer, sum.d, least > deltas ? (double)deltas / least : 1);
}

/* Returns how many rounds the delta is late. */
static int simulate_push(simulation *s, int w, const delta *x) {
    simulated *r = &s->replica[w];
    const int late = s->outer.updates - r->version;
    if (late == 0) {
        r->pushed = *x;
        r->in = true;
    } else {
        assert_true(r->n_late < (int)KOLO_COUNT(r->late));
        r->late[r->n_late++] = *x;
        s->late++;
    }
    simulate_round(s);
    return late;
}

/* ---- the owner, beside the simulation ---- */

typedef struct world {
    simulation s;
    outer outer;
    kolo_parameters_opts opts;
    kolo_parameters_owner *owner;
    message push[REPLICAS], pull[REPLICAS], barrier[REPLICAS], other;
    uint64_t clocks[REPLICAS];
} world;

static void init(world *x, int replicas, int quorum, int grace_ms) {
    const kolo_owned has = {.values = {0, COUNT}, .gradient = {0, COUNT + 1}};
    const float initial[COUNT] = {1, 2, 3};
    *x = (world){.s = {.n = replicas,
                       .quorum = quorum,
                       .grace_ns = (int64_t)grace_ms * MS,
                       .now_ns = 5,
                       .quorum_ns = -1,
                       .outer.a = {1, 2, 3}},
                 .outer.a = {1, 2, 3}};
    x->opts = (kolo_parameters_opts){
        .update = update, .arg = &x->outer, .quorum = quorum, .grace_ms = grace_ms};
    for (int w = 0; w < replicas; w++)
        x->push[w].answered = x->pull[w].answered = x->barrier[w].answered = true;
    now_of = &x->s;
    ASSERT_OK(kolo_parameters_owner_create(&x->opts, &has, replicas, reply, &x->owner));
    kolo_parameters_owner_set_clock(x->owner, now_ns);
    kolo_parameters_owner_load(x->owner, initial);
}

static void send(const world *x, message *m, int w, kolo_owner_request kind) {
    m->answered = false;
    m->call = (kolo_service_call){.client = w, .kind = (uint32_t)kind, .clock = x->clocks[w]};
    if (kind == KOLO_OWNER_PUSH) {
        m->call.input = m->pushed;
        m->call.input_bytes = sizeof m->pushed;
    } else if (kind == KOLO_OWNER_BARRIER) {
        m->call.output_bytes = (size_t)x->s.n * sizeof(uint64_t);
    } else if (kind == KOLO_OWNER_PULL) {
        m->call.output_bytes = sizeof m->values;
    }
    kolo_parameters_owner_serve(x->owner, &m->call);
}

/* Replicas whose deltas are in wait for the round, and no others; all that was added up is equal.
 */
static void check(world *x) {
    const outer *a = &x->outer, *b = &x->s.outer;
    assert_int_equal(a->updates, b->updates);
    assert_int_equal(a->samples, b->samples);
    for (int i = 0; i < COUNT; i++) {
        if (fabs(a->a[i] - b->a[i]) <= 1e-12 * (1 + fabs(b->a[i])) &&
            fabs(a->v[i] - b->v[i]) <= 1e-12 * (1 + fabs(b->v[i]))) {
            continue;
        }
        fail_msg("after %d rounds: %.17g, not %.17g", b->updates, a->a[i], b->a[i]);
    }
    for (int w = 0; w < x->s.n; w++) {
        simulated *y = &x->s.replica[w];
        if (!y->gone) assert_true(x->barrier[w].answered == !y->waits);
        if (y->gone || y->version >= 0) continue;
        assert_int_equal(x->pull[w].answered, !y->in);
        assert_int_equal(x->push[w].answered, !y->in);
        if (y->in) continue;
        y->version = b->updates;
        for (int i = 0; i < COUNT; i++) assert_true(x->pull[w].values[i] == (float)b->a[i]);
    }
}

/* A round of a replica: its push, and then its read. */
static void train(world *x, int w, const kolo_rng *rng, uint64_t *drawn) {
    message *m = &x->push[w];
    delta d = {.samples = 1 + (int64_t)(kolo_rng_uniform(rng, (*drawn)++) * 16)};
    for (int i = 0; i < COUNT; i++) {
        d.d[i] = floor((double)kolo_rng_uniform(rng, (*drawn)++) * 64) - 32;
        m->pushed[i] = (float)(d.d[i] * (double)d.samples);
    }
    m->pushed[COUNT] = (float)d.samples;
    const int late = simulate_push(&x->s, w, &d);
    send(x, m, w, KOLO_OWNER_PUSH);
    if (late > 0) assert_true(m->answered && (int)m->clock == late);
    x->clocks[w]++;
    x->s.replica[w].version = -1; /* it reads */
    send(x, &x->pull[w], w, KOLO_OWNER_PULL);
}

static void leave(world *x, int w, bool lost) {
    x->s.replica[w].gone = true;
    x->s.replica[w].in = false;
    x->s.lost += lost;
    simulate_round(&x->s);
    if (lost) {
        kolo_parameters_owner_lost(x->owner, w, false, "a test");
    } else {
        send(x, &x->other, w, KOLO_OWNER_FINISH);
    }
}

/* The owner states when it is to be called again: when the grace of a quorum is over. */
static void pass_time(world *x, int64_t ns) {
    const simulation *s = &x->s;
    x->s.now_ns += ns;
    const int64_t left = s->quorum_ns < 0 ? -1 : s->quorum_ns + s->grace_ns - s->now_ns;
    simulate_round(&x->s);
    const int due = kolo_parameters_owner_due(x->owner);
    if (left > 0) {
        assert_int_equal(due, left / MS + 1);
    } else {
        assert_int_equal(due, -1);
    }
}

/* Returns how many deltas came late. */
static int run(int replicas, int quorum, int grace_ms, const kolo_rng *rng) {
    static world x;
    uint64_t drawn = 0;
    init(&x, replicas, quorum, grace_ms);
    for (int e = 0; e < EVENTS; e++) {
        const int w = (int)(kolo_rng_uniform(rng, drawn++) * (float)replicas);
        const float what = kolo_rng_uniform(rng, drawn++);
        simulated *y = &x.s.replica[w];
        pass_time(&x, (int64_t)(kolo_rng_uniform(rng, drawn++) * 4 * MS));
        check(&x);
        if (y->gone || y->waits) continue;
        if (!y->in && what < 0.8F && (w > 0 || what < 0.2F)) { /* replica 0 is slow */
            train(&x, w, rng, &drawn);
        } else if (!y->in && what >= 0.8F && what < 0.87F) {
            y->waits = true;
            simulate_round(&x.s);
            send(&x, &x.barrier[w], w, KOLO_OWNER_BARRIER);
        } else if (what > 0.997F) {
            leave(&x, w, y->in);
        }
        check(&x);
    }
    for (int w = 0; w < replicas; w++) {
        if (!x.s.replica[w].gone) leave(&x, w, true);
        check(&x);
    }
    assert_true(x.outer.updates > 0);
    ASSERT_OK(kolo_parameters_owner_wait(x.owner));
    kolo_parameters_owner_destroy(x.owner);
    return x.s.late;
}

static void rounds_follow_the_equations(void **state) {
    static const int graces[] = {0, 3, 20};
    int late = 0;
    for (int replicas = 1; replicas <= REPLICAS; replicas++) {
        for (int quorum = 1; quorum <= replicas; quorum++) {
            for (size_t k = 0; k < 3 * KOLO_COUNT(graces); k++) {
                const uint64_t seed = (uint64_t)(replicas * 8 + quorum) * 16 + k;
                const kolo_rng rng = kolo_rng_make(6, KOLO_RNG_INIT, seed);
                late += run(replicas, quorum, graces[k % 3], &rng);
            }
        }
    }
    assert_true(late > 100);
}

TEST_MAIN(test_quorum) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_follow_the_equations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Steps that do not wait for the latest gradients, against a simulation in f64 of the equations of
 * docs/servers.md: workers push, read, wait in barriers, finish and are lost in random order. */
#include "base/compiler.h"
#include "base/rng.h"
#include "comm/sync/parameters_owner.h"
#include "support/support.h"

#include <math.h>
#include <string.h>

enum { WORKERS = 6, COUNT = 3, EVENTS = 300 };

static const double rate = 0.1;

/* A worker of the simulation. */
typedef struct simulated {
    bool gone, lost, waits, in;
    int version; /* that it has read */
    int n_late;
    double gradient[COUNT], late[COUNT];
} simulated;

typedef struct simulation {
    int n, drop, version, late;
    bool discard;
    double w[COUNT];
    simulated worker[WORKERS];
} simulation;

/* A request, and what came back. */
typedef struct message {
    kolo_service_call call;
    bool answered;
    uint64_t clock;
    float gradient[COUNT], values[COUNT];
} message;

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

static void add(double *sum, const double *gradient) {
    for (int i = 0; i < COUNT; i++) sum[i] += gradient[i];
}

/* Makes the update of a step if it is due. */
static void simulate_step(simulation *s) {
    int active = 0, in = 0, n = 0, least = -s->drop;
    double sum[COUNT] = {0};
    for (int w = 0; w < s->n; w++) {
        least += !s->worker[w].lost;
        active += !s->worker[w].gone && !s->worker[w].waits;
        in += s->worker[w].in;
    }
    if (active > 0 && (in < 1 || in < active - s->drop)) return;
    for (int w = 0; w < s->n; w++) {
        simulated *x = &s->worker[w];
        const bool waits = !x->in && !x->gone && !x->waits;
        if (!waits) {
            add(sum, x->late);
            n += x->n_late;
            memset(x->late, 0, sizeof x->late);
            x->n_late = 0;
        }
        if (!x->in) continue;
        add(sum, x->gradient);
        n++;
        x->in = false;
    }
    for (int w = 0; w < s->n && active == 0; w++) s->worker[w].waits = false;
    if (n == 0) return;
    for (int i = 0; i < COUNT; i++) s->w[i] -= rate * sum[i] / (n > least ? n : least);
    s->version++;
}

/* Returns the delay of the gradient, if it is late. */
static int simulate_push(simulation *s, int w, const float *gradient) {
    simulated *x = &s->worker[w];
    double g[COUNT];
    const int delay = s->version - x->version;
    for (int i = 0; i < COUNT; i++) g[i] = (double)gradient[i];
    if (delay == 0) {
        memcpy(x->gradient, g, sizeof g);
        x->in = true;
    } else {
        s->late++;
        if (!s->discard) add(x->late, g);
        x->n_late += !s->discard;
    }
    simulate_step(s);
    return delay;
}

/* ---- the owner, beside the simulation ---- */

typedef struct world {
    simulation s;
    kolo_parameters_opts opts;
    kolo_parameters_owner *owner;
    message push[WORKERS], pull[WORKERS], barrier[WORKERS], other;
    uint64_t clocks[WORKERS];
} world;

/* The clock is that of a push of `latest`: one in progress, the latest one, or one that came late
 * and whose worker was lost in the step after it. */
static void update(void *arg, const kolo_parameters_update *u) {
    const world *x = arg;
    const uint64_t clock = x->clocks[u->latest];
    assert_in_range(u->clock + 2, clock, clock + 2);
    for (size_t i = 0; i < u->count; i++) {
        const int by = u->workers > u->least ? u->workers : u->least;
        u->values[i] -= (float)rate * u->gradient[i] / (float)by;
    }
}

static void init(world *x, int workers, int drop, bool discard) {
    const kolo_owned has = {.values = {0, COUNT}, .gradient = {0, COUNT}};
    const float initial[COUNT] = {1, 2, 3};
    *x = (world){.s = {.n = workers, .drop = drop, .discard = discard, .w = {1, 2, 3}}};
    x->opts = (kolo_parameters_opts){.update = update, .drop = drop, .discard = discard, .arg = x};
    for (int w = 0; w < workers; w++)
        x->push[w].answered = x->pull[w].answered = x->barrier[w].answered = true;
    ASSERT_OK(kolo_parameters_owner_create(&x->opts, &has, workers, reply, &x->owner));
    kolo_parameters_owner_load(x->owner, initial);
}

static void send(const world *x, message *m, int w, kolo_owner_request kind) {
    m->answered = false;
    m->call = (kolo_service_call){.client = w, .kind = (uint32_t)kind, .clock = x->clocks[w]};
    if (kind == KOLO_OWNER_PUSH) {
        m->call.input = m->gradient;
        m->call.input_bytes = sizeof m->gradient;
    } else if (kind == KOLO_OWNER_BARRIER) {
        m->call.output_bytes = (size_t)x->s.n * sizeof(uint64_t);
    } else if (kind == KOLO_OWNER_PULL) {
        m->call.output = m->values;
        m->call.output_bytes = sizeof m->values;
    }
    kolo_parameters_owner_serve(x->owner, &m->call);
}

/* Answers to reads that wait: all of workers whose gradients are not in, and no others. */
static void check_reads(world *x) {
    for (int w = 0; w < x->s.n; w++) {
        simulated *y = &x->s.worker[w];
        if (!y->gone) assert_true(x->barrier[w].answered == !y->waits);
        if (y->gone || y->version >= 0) continue;
        assert_int_equal(x->pull[w].answered, !y->in);
        assert_int_equal(x->push[w].answered, !y->in);
        if (y->in) continue;
        y->version = x->s.version;
        for (int i = 0; i < COUNT; i++) {
            const double value = (double)x->pull[w].values[i];
            if (fabs(value - x->s.w[i]) < 1e-5 * (1 + fabs(x->s.w[i]))) continue;
            fail_msg("worker %d reads %.9g, not %.9g", w, value, x->s.w[i]);
        }
    }
}

/* A step of a worker: its push, and then its read. */
static void train(world *x, int w, const kolo_rng *rng, uint64_t *drawn) {
    message *m = &x->push[w];
    for (int i = 0; i < COUNT; i++) m->gradient[i] = kolo_rng_normal(rng, (*drawn)++);
    const int delay = simulate_push(&x->s, w, m->gradient);
    send(x, m, w, KOLO_OWNER_PUSH);
    if (m->answered) assert_int_equal(m->clock, delay);
    x->clocks[w]++;
    x->s.worker[w].version = -1; /* it reads */
    send(x, &x->pull[w], w, KOLO_OWNER_PULL);
}

static void leave(world *x, int w, bool lost) {
    x->s.worker[w].gone = true;
    x->s.worker[w].lost = lost;
    x->s.worker[w].in = false;
    simulate_step(&x->s);
    if (lost) {
        kolo_parameters_owner_lost(x->owner, w, false, "a test");
    } else {
        send(x, &x->other, w, KOLO_OWNER_FINISH);
    }
}

/* Returns how many gradients came late. */
static int run(int workers, int drop, bool discard, const kolo_rng *rng) {
    world x;
    uint64_t drawn = 0;
    init(&x, workers, drop, discard);
    for (int e = 0; e < EVENTS; e++) {
        const int w = (int)(kolo_rng_uniform(rng, drawn++) * (float)workers);
        const float what = kolo_rng_uniform(rng, drawn++);
        simulated *y = &x.s.worker[w];
        if (y->gone || y->waits) continue;
        if (!y->in && what < 0.8F && (w > 0 || what < 0.2F)) { /* worker 0 is slow */
            train(&x, w, rng, &drawn);
        } else if (!y->in && what >= 0.8F && what < 0.9F) {
            y->waits = true;
            simulate_step(&x.s);
            send(&x, &x.barrier[w], w, KOLO_OWNER_BARRIER);
        } else if (what > 0.995F) {
            leave(&x, w, y->in);
        }
        check_reads(&x);
    }
    for (int w = 0; w < workers; w++) {
        if (!x.s.worker[w].gone) leave(&x, w, true);
        check_reads(&x);
    }
    ASSERT_OK(kolo_parameters_owner_wait(x.owner));
    kolo_parameters_stats stats;
    kolo_parameters_owner_stats(x.owner, &stats);
    assert_int_equal(stats.version, x.s.version);
    kolo_parameters_owner_destroy(x.owner);
    return x.s.late;
}

static void steps_follow_the_equations(void **state) {
    for (int workers = 2; workers <= WORKERS; workers++) {
        for (int drop = 1; drop < workers; drop++) {
            int late = 0;
            for (int k = 0; k < 8; k++) {
                const uint64_t seed = (uint64_t)workers * 64 + (uint64_t)k;
                const kolo_rng rng = kolo_rng_make(5, KOLO_RNG_INIT, seed);
                late += run(workers, drop, k % 2 == 1, &rng);
            }
            assert_true(late > 0);
        }
    }
}

TEST_MAIN(test_drop) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_follow_the_equations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

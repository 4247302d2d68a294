/* Bounds that adapt: predictions against a simulation, decisions, and an owner whose bound changes
 * at any time. */
#include "base/compiler.h"
#include "base/rng.h"
#include "comm/sync/adapt.h"
#include "comm/sync/parameters_owner.h"
#include "support/policy_sim.h"
#include "support/support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WORKERS = 4, STEPS = 512, BSP = 0, ASP = 4 };

/* ---- the controller ---- */

static kolo_adapt *make(int workers) {
    kolo_adapt *a;
    ASSERT_OK(kolo_adapt_create(workers, &a));
    return a;
}

/* A window in which worker w takes units(w, k). */
static void add_window(kolo_adapt *a, double (*unit)(int worker, int step), int first) {
    for (int k = 0; k < KOLO_ADAPT_WINDOW; k++) {
        for (int w = 0; w < WORKERS; w++) kolo_adapt_add_step(a, w, unit(w, first + k));
    }
    assert_true(kolo_adapt_is_due(a));
}

static double equal(int worker, int step) { return 1; }
static double first_is_slower(int worker, int step) { return worker == 0 ? 4 : 1; }
static double in_turns(int worker, int step) { return step % WORKERS == worker ? 8 : 1; }
static double all_together(int worker, int step) { return step % 5 == 0 ? 8 : 1; }
/* All bounds gain 12 % over bsp, and 18 %: stale gradients are worth less than fresh ones. */
static double little_in_turns(int worker, int step) { return step % WORKERS == worker ? 1.16 : 1; }
static double more_in_turns(int worker, int step) { return step % WORKERS == worker ? 1.25 : 1; }

static void bounds_follow_the_times_of_steps(void **state) {
    static const struct {
        double (*unit)(int worker, int step);
        int level;
    } cases[] = {{equal, 0},        {first_is_slower, 4}, {in_turns, 2},
                 {all_together, 0}, {little_in_turns, 0}, {more_in_turns, 1}};
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_adapt *a = make(WORKERS);
        assert_false(kolo_adapt_is_due(a));
        assert_true(kolo_adapt_predict(a, 0) == 0);
        add_window(a, cases[i].unit, 0);
        assert_int_equal(kolo_adapt_choose(a, BSP), cases[i].level);
        assert_false(kolo_adapt_is_due(a));
        kolo_adapt_destroy(a);
    }
}

/* The steps per second of a bound: a worker begins step k once all have ended step k - bound. */
static void predictions_are_those_of_a_run(void **state) {
    static double units[STEPS * WORKERS];
    const kolo_rng rng = kolo_rng_make(3, KOLO_RNG_INIT, 1);
    kolo_adapt *a = make(WORKERS);
    double sums[WORKERS] = {0}, rate = 0;
    for (int k = 0; k < KOLO_ADAPT_LATEST; k++) {
        for (int w = 0; w < WORKERS; w++) {
            const double unit = 0.5 + (double)kolo_rng_uniform(&rng, (uint64_t)(k * WORKERS + w));
            kolo_adapt_add_step(a, w, unit);
            sums[w] += unit;
            for (int at = k; at < STEPS; at += KOLO_ADAPT_LATEST) units[at * WORKERS + w] = unit;
        }
    }
    for (int level = 0; level < kolo_adapt_levels() - 1; level++) {
        policy_sim sim = {.workers = WORKERS, .steps = STEPS, .units = units};
        sim.opts.staleness = kolo_adapt_staleness(level);
        policy_sim_run(&sim);
        assert_int_equal(sim.applied, STEPS * WORKERS);
        assert_true(fabs(kolo_adapt_predict(a, level) * sim.seconds / (STEPS * WORKERS) - 1) <
                    1e-9);
    }
    for (int w = 0; w < WORKERS; w++) rate += KOLO_ADAPT_LATEST / sums[w];
    assert_true(fabs(kolo_adapt_predict(a, ASP) / rate - 1) < 1e-12);
    kolo_adapt_destroy(a);
}

/* Windows of such steps with a loss of each update. Returns the level after them. */
static int lose_in(kolo_adapt *a, double (*unit)(int worker, int step), int level, double loss,
                   int windows) {
    for (int i = 0; i < windows; i++) {
        add_window(a, unit, 0);
        for (int k = 0; k < 32; k++) kolo_adapt_add_loss(a, loss + 0.01 * (k % 3 - 1));
        level = kolo_adapt_choose(a, level);
    }
    return level;
}

static int lose(kolo_adapt *a, int level, double loss, int windows) {
    return lose_in(a, first_is_slower, level, loss, windows);
}

static void a_rise_of_the_loss_tightens_for_some_time(void **state) {
    kolo_adapt *a = make(WORKERS);
    assert_int_equal(lose(a, BSP, 2, 1), ASP);
    assert_int_equal(lose(a, ASP, 1.5, 2), ASP);
    assert_int_equal(lose(a, ASP, 1.6, 1), ASP); /* 7 % */
    assert_int_equal(lose(a, ASP, 2.5, 1), BSP); /* no bound below ASP gains */
    kolo_adapt_destroy(a);
    a = make(WORKERS);
    assert_int_equal(lose(a, BSP, 2, 1), ASP);
    assert_int_equal(lose(a, ASP, NAN, 1), BSP);
    assert_int_equal(lose(a, BSP, 1, 1), BSP);
    assert_int_equal(lose(a, BSP, 1, 1), ASP); /* after 2 windows once more, */
    assert_int_equal(lose(a, ASP, 2, 1), BSP);
    assert_int_equal(lose(a, BSP, 1, 3), BSP); /* and then after 4 */
    assert_int_equal(lose(a, BSP, 1, 1), ASP);
    kolo_adapt_destroy(a);
}

/* A loss that comes down after a rise is still above that before, which is no second rise. */
static void a_rise_counts_once(void **state) {
    kolo_adapt *a = make(WORKERS);
    assert_int_equal(lose_in(a, in_turns, BSP, 1, 4), 2);
    assert_int_equal(lose_in(a, in_turns, 2, 3, 1), 1);
    assert_int_equal(lose_in(a, in_turns, 1, 2.5, 1), 1);
    assert_int_equal(lose_in(a, in_turns, 1, 2, 1), 2); /* after 2 windows */
    assert_int_equal(lose_in(a, in_turns, 2, 2, 4), 2);
    assert_int_equal(lose_in(a, in_turns, 2, 3, 1), 1);
    assert_int_equal(lose_in(a, in_turns, 1, 4, 1), 0); /* a second one */
    kolo_adapt_destroy(a);
}

/* The losses of batches vary by more than half of their mean, which stays. */
static void chance_is_no_rise(void **state) {
    const kolo_rng rng = kolo_rng_make(11, KOLO_RNG_INIT, 1);
    uint64_t drawn = 0;
    int level = BSP, rises = 0;
    kolo_adapt *a = make(WORKERS);
    for (int window = 0; window < 2000; window++) {
        const int before = level;
        add_window(a, first_is_slower, 0);
        for (int k = 0; k < 32; k++) {
            kolo_adapt_add_loss(a, 1 + 0.6 * (double)kolo_rng_normal(&rng, drawn++));
        }
        level = kolo_adapt_choose(a, level);
        rises += before == ASP && level == BSP;
    }
    assert_in_range(rises, 0, 1);
    kolo_adapt_destroy(a);
}

/* Rises that come now and then do not tighten for longer and longer. */
static void rises_are_forgotten(void **state) {
    kolo_adapt *a = make(WORKERS);
    assert_int_equal(lose(a, BSP, 1, 4), ASP);
    for (int rise = 0; rise < 20; rise++) {
        assert_int_equal(lose(a, ASP, 2, 1), BSP);
        assert_int_equal(lose(a, BSP, 1, 1), BSP);
        assert_int_equal(lose(a, BSP, 1, 1), ASP); /* after 2 windows each time */
        assert_int_equal(lose(a, ASP, 1, 40), ASP);
    }
    kolo_adapt_destroy(a);
}

static void a_bound_tightens_once_windows_agree(void **state) {
    kolo_adapt *a = make(WORKERS);
    int level = BSP, windows = 0;
    add_window(a, first_is_slower, 0);
    level = kolo_adapt_choose(a, level);
    assert_int_equal(level, ASP);
    for (; level == ASP && windows < 100; windows++) {
        add_window(a, equal, 0);
        level = kolo_adapt_choose(a, level);
    }
    assert_int_equal(level, BSP);
    assert_int_equal(windows, 15); /* the latest 64 steps are equal after 8, and 8 must agree */
    kolo_adapt_leave(a, 1);
    for (int w = 0; w < WORKERS; w++) {
        for (int k = 0; w != 1 && k < KOLO_ADAPT_WINDOW; k++) kolo_adapt_add_step(a, w, 1);
    }
    assert_true(kolo_adapt_is_due(a)); /* without the one that has left */
    assert_true(fabs(kolo_adapt_predict(a, ASP) - 3) < 1e-9);
    kolo_adapt_destroy(a);
}

/* ---- the owner ---- */

/* With random slow steps the bound is soon the one that is fastest, and the run takes hardly longer
 * than with that from the beginning. */
static void a_run_gets_the_best_bound(void **state) {
    static double units[STEPS * WORKERS];
    const kolo_rng rng = kolo_rng_make(7, KOLO_RNG_INIT, 1);
    double best = INFINITY;
    for (int i = 0; i < STEPS * WORKERS; i++) {
        units[i] = kolo_rng_uniform(&rng, (uint64_t)i) < 0.2F ? 8 : 1;
    }
    policy_sim sim = {.workers = WORKERS, .steps = STEPS, .units = units, .target = 1500};
    for (int level = 0; level < kolo_adapt_levels(); level++) {
        sim.opts.staleness = kolo_adapt_staleness(level);
        policy_sim_run(&sim);
        best = fmin(best, sim.seconds);
    }
    sim.opts = (kolo_parameters_opts){.adapts = true};
    policy_sim_run(&sim);
    if (sim.seconds > best / 0.95) fail_msg("%g s, the best %g s", sim.seconds, best);
    assert_int_equal(sim.changes[0].staleness, KOLO_STALENESS_ANY);
}

static double worse_after_a_while(double seconds) { return seconds < 200 ? 1 : 2 + seconds / 100; }

static void a_run_tightens_with_the_loss(void **state) {
    static double units[STEPS * WORKERS];
    for (int k = 0; k < STEPS; k++) {
        for (int w = 0; w < WORKERS; w++) units[k * WORKERS + w] = in_turns(w, k / 3);
    }
    policy_sim sim = {.opts.adapts = true,
                      .workers = WORKERS,
                      .steps = STEPS,
                      .units = units,
                      .loss = worse_after_a_while};
    policy_sim_run(&sim);
    assert_int_equal(sim.applied, STEPS * WORKERS);
    assert_true(sim.n_changes >= 2);
    assert_true(sim.changes[0].staleness != 0 && sim.changes[0].seconds < 200);
    assert_true(sim.changes[1].seconds >= 200);
    assert_true(sim.changes[1].staleness != KOLO_STALENESS_ANY);
}

static double no_gradient(void *arg, int worker, const float *values, float *gradient) {
    *gradient = 0;
    return 1;
}

static bool all_share_updates(void *arg, double seconds, const kolo_parameters_update *u) {
    int *last = arg;
    if (u->worker >= 0) {
        assert_int_equal(u->not_lost, WORKERS);
        *last = u->worker;
    }
    return false;
}

/* The last steps of a slow worker, after all others have finished, are no larger than those before:
 * owners scale the learning rate by the number of workers that have not been lost. */
static void finished_workers_have_their_share(void **state) {
    static double units[STEPS * WORKERS];
    static const float initial = 0;
    int last = -1;
    for (int k = 0; k < STEPS; k++) {
        for (int w = 0; w < WORKERS; w++) units[k * WORKERS + w] = first_is_slower(w, k);
    }
    const policy_sim_model model = {.count = 1,
                                    .initial = &initial,
                                    .compute = no_gradient,
                                    .update = all_share_updates,
                                    .arg = &last};
    policy_sim sim = {.workers = WORKERS, .steps = STEPS, .units = units, .model = &model};
    sim.opts.adapts = true;
    policy_sim_run(&sim);
    assert_int_equal(sim.applied, STEPS * WORKERS);
    assert_int_equal(last, 0);
}

/* ---- an owner whose bound changes at any time ---- */

enum { COUNT = 1, LEFT = 60 };

typedef struct message {
    kolo_service_call call;
    bool open;
    float value;
} message;

typedef struct actor {
    message push, pull, barrier;
    uint64_t made, barriers;
    bool gone;
} actor;

/* What an observer sees: the bound, the pushes of each worker and those before the latest change.
 */
static struct {
    kolo_parameters_owner *owner;
    actor actors[WORKERS];
    int level;
    uint32_t choice;
    uint64_t pushes[WORKERS], from[WORKERS];
    float applied;
} x;

static void apply(void *arg, const kolo_parameters_update *u) {
    x.applied += u->gradient[0];
    u->values[0] = x.applied;
    assert_true(u->worker < 0 || u->workers == 1);
}

/* A worker reads: the others are at most the bound behind. */
static void check_read(int reader) {
    const int bound = kolo_adapt_staleness(x.level);
    const uint64_t made = x.pushes[reader] - x.from[reader];
    for (int w = 0; w < WORKERS && bound > 0; w++) {
        const actor *a = &x.actors[w];
        if (a->gone || a->barrier.open) continue;
        assert_true(x.pushes[w] - x.from[w] + (uint64_t)bound >= made);
    }
}

static void observe(void *arg, const kolo_parameters_event *e) {
    if (e->read) {
        check_read(e->worker);
    } else {
        assert_int_equal(e->clock, x.pushes[e->worker]++);
    }
}

static void reply(kolo_service_call *call, kolo_status status, uint64_t clock, const void *data,
                  size_t bytes) {
    message *m = (message *)(void *)call;
    if (status != KOLO_OK) fail_msg("%s", kolo_last_error());
    assert_true(m->open);
    m->open = false;
    if (call->kind != KOLO_OWNER_BARRIER || x.actors[call->client].gone) return;
    for (int w = 0; w < WORKERS; w++) x.from[w] = x.pushes[w];
}

static void send(int w, message *m, kolo_owner_request kind, uint64_t key) {
    *m = (message){.open = true, .value = 1};
    m->call = (kolo_service_call){.client = w, .kind = kind, .key = key, .clock = x.actors[w].made};
    if (kind == KOLO_OWNER_PUSH) {
        m->call.input = &m->value;
        m->call.input_bytes = sizeof m->value;
    }
    if (kind == KOLO_OWNER_PULL) m->call.output_bytes = sizeof m->value;
    if (kind == KOLO_OWNER_BARRIER) m->call.output_bytes = WORKERS * sizeof(uint64_t);
    kolo_parameters_owner_serve(x.owner, &m->call);
}

/* The next choice of a random level, now and then. */
static void change(const kolo_rng *rng, uint64_t draw) {
    if (kolo_rng_below(rng, draw, 5) > 0) return;
    x.level = (int)kolo_rng_below(rng, draw + 1, (uint64_t)kolo_adapt_levels());
    x.choice =
        ((x.choice >> KOLO_CHOICE_LEVEL_BITS) + 1) << KOLO_CHOICE_LEVEL_BITS | (uint32_t)x.level;
}

/* A change applies what is kept of a step, before the push that has it; unless the bound is 0. */
static void push(int w, const kolo_rng *rng, uint64_t draw) {
    actor *a = &x.actors[w];
    const uint32_t before = x.choice;
    change(rng, draw);
    if (x.choice != before) {
        for (int i = 0; i < WORKERS; i++) {
            x.from[i] = x.pushes[i] + (x.level > 0 && x.actors[i].push.open);
        }
    }
    send(w, &a->push, KOLO_OWNER_PUSH, x.choice);
    a->made++;
    send(w, &a->pull, KOLO_OWNER_PULL, 0);
}

/* Every step ends however the bound changes, each push is applied once, and reads keep the bound.
 * Workers wait in a barrier now and then, and one may be lost. */
static void run(uint64_t seed) {
    const kolo_parameters_opts opts = {.adapts = true, .update = apply, .observe = observe};
    const kolo_owned has = {.values = {0, COUNT}, .gradient = {0, COUNT}};
    const kolo_rng rng = kolo_rng_make(seed, KOLO_RNG_INIT, 2);
    const float zero = 0;
    uint64_t k = 0;
    memset(&x, 0, sizeof x);
    ASSERT_OK(kolo_parameters_owner_create(&opts, &has, WORKERS, reply, &x.owner));
    kolo_parameters_owner_load(x.owner, &zero);
    for (int left = WORKERS; left > 0; k += 4) {
        const int w = (int)kolo_rng_below(&rng, k, WORKERS);
        actor *a = &x.actors[w];
        if (k > 1000000) fail_msg("seed %d: it does not end", (int)seed);
        if (a->gone) continue;
        if (seed % 2 && w == 3 && kolo_rng_below(&rng, k + 1, 500) == 0) {
            a->gone = true;
            kolo_parameters_owner_lost(x.owner, w, false, "a test");
            left--;
        } else if (a->push.open || a->pull.open || a->barrier.open) {
            continue;
        } else if (a->made == LEFT) {
            message end;
            a->gone = true;
            send(w, &end, KOLO_OWNER_FINISH, 0);
            left--;
        } else if (a->made % 20 == 19 && a->barriers == a->made / 20) {
            a->barriers++;
            send(w, &a->barrier, KOLO_OWNER_BARRIER, a->barriers - 1);
        } else {
            push(w, &rng, k + 2);
        }
    }
    uint64_t all = 0;
    for (int w = 0; w < WORKERS; w++) {
        all += x.pushes[w];
        if (w < 3) assert_int_equal(x.pushes[w], LEFT);
    }
    assert_true(x.applied == (float)all);
    ASSERT_OK(kolo_parameters_owner_wait(x.owner));
    kolo_parameters_owner_destroy(x.owner);
}

static void bounds_change_at_any_time(void **state) {
    const uint64_t seeds = getenv("KOLO_SOAK") ? 50000 : 500;
    for (uint64_t seed = 0; seed < seeds; seed++) run(seed);
}

TEST_MAIN(test_adapt) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_follow_the_times_of_steps),
        cmocka_unit_test(predictions_are_those_of_a_run),
        cmocka_unit_test(a_rise_of_the_loss_tightens_for_some_time),
        cmocka_unit_test(a_rise_counts_once),
        cmocka_unit_test(rises_are_forgotten),
        cmocka_unit_test(chance_is_no_rise),
        cmocka_unit_test(a_bound_tightens_once_windows_agree),
        cmocka_unit_test(a_run_gets_the_best_bound),
        cmocka_unit_test(a_run_tightens_with_the_loss),
        cmocka_unit_test(finished_workers_have_their_share),
        cmocka_unit_test(bounds_change_at_any_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

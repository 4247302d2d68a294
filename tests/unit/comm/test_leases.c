/* Leases: whichever worker takes them and whichever is lost, each is acknowledged once, and in the
 * order of the counter but for those that return. With a bound of staleness, too, which holds
 * between the workers that have leases. */
#include "base/rng.h"
#include "comm/sync/leases.h"
#include "comm/sync/parameters_owner.h"
#include "support/support.h"

#include <string.h>

enum { WORKERS = 5, NUMBERS = 200 };

static void each_lease_is_acknowledged_once(void **state) {
    for (uint64_t seed = 0; seed < 200; seed++) {
        int done[NUMBERS] = {0}, left = NUMBERS;
        uint64_t held[WORKERS][KOLO_LEASES_MOST] = {{0}}, number;
        bool lost[WORKERS] = {false};
        kolo_rng rng = kolo_rng_make(seed, 1, 0);
        kolo_leases *l;
        ASSERT_OK(kolo_leases_create(WORKERS, 1000, &l));
        for (uint64_t k = 0; left > 0; k++) {
            assert_true(k < 100000);
            const int w = (int)kolo_rng_below(&rng, 2 * k, WORKERS);
            const uint64_t what = kolo_rng_below(&rng, 2 * k + 1, 100);
            const int n = kolo_leases_of(l, w);
            if (lost[w]) continue;
            if (what == 0 && w > 0) {
                kolo_leases_return(l, w);
                lost[w] = true;
            } else if (what < 50 && n > 0) {
                assert_int_equal(++done[held[w][0] - 1000], 1);
                for (int i = 0; i + 1 < n; i++) held[w][i] = held[w][i + 1];
                kolo_leases_acknowledge(l, w);
                left--;
            } else if (n < KOLO_LEASES_MOST && kolo_leases_take(l, w, 1000 + NUMBERS, &number)) {
                assert_true(number >= 1000 && number < 1000 + NUMBERS);
                held[w][n] = number;
            }
        }
        assert_int_equal(kolo_leases_out(l), 0);
        assert_false(kolo_leases_take(l, 0, 1000 + NUMBERS, &number));
        kolo_leases_destroy(l);
    }
}

static void returned_leases_come_first(void **state) {
    static const uint64_t wanted[] = {0, 2, 3, 4};
    uint64_t number;
    kolo_leases *l;
    ASSERT_OK(kolo_leases_create(3, 0, &l));
    for (int i = 0; i < 5; i++)
        assert_true(kolo_leases_take(l, i % 2, 5, &number)); /* 0 2 4, 1 3 */
    kolo_leases_acknowledge(l, 1);
    kolo_leases_acknowledge(l, 2); /* has none */
    kolo_leases_return(l, 1);
    assert_true(kolo_leases_take(l, 2, 5, &number) && number == 3);
    kolo_leases_return(l, 2);
    kolo_leases_return(l, 0);
    assert_int_equal(kolo_leases_out(l), 0);
    for (int i = 0; i < 4; i++) {
        if (i == 3) kolo_leases_acknowledge(l, 1); /* 0 */
        assert_true(kolo_leases_take(l, 1, 6, &number));
        assert_int_equal(number, wanted[i]);
    }
    assert_true(kolo_leases_take(l, 0, 6, &number) && number == 5);
    assert_false(kolo_leases_take(l, 0, 6, &number));
    assert_int_equal(kolo_leases_of(l, 1), 3);
    kolo_leases_destroy(l);
}

/* ---- with a bound ---- */

/* A request, and what came back. */
typedef struct request {
    kolo_service_call call;
    bool answered;
    uint64_t clock, data;
} request;

typedef enum phase { BEGINS, WAITS, READS, COMPUTES, ENDED } phase;

/* A worker, as it sees itself. */
typedef struct actor {
    phase phase;
    bool idle;
    uint64_t clock, held[KOLO_LEASES_MOST];
    int n_held;
    request pull, push, lease, report;
    float gradient, value;
} actor;

typedef struct scene {
    kolo_parameters_owner *owner;
    int bound;
    actor actors[WORKERS];
} scene;

static void no_update(void *arg, const kolo_parameters_update *u) {}

static void reply(kolo_service_call *call, kolo_status status, uint64_t clock, const void *data,
                  size_t bytes) {
    request *r = (request *)(void *)call; /* its first member */
    if (status != KOLO_OK) fail_msg("%s", kolo_last_error());
    assert_false(r->answered);
    r->answered = true;
    r->clock = clock;
    if (data && bytes == sizeof r->data) memcpy(&r->data, data, bytes);
}

static void ask(const scene *s, int w, request *r, uint32_t kind, uint64_t key, uint64_t clock) {
    const actor *a = &s->actors[w];
    *r = (request){.call = {.client = w, .kind = kind, .key = key, .clock = clock}};
    if (kind == KOLO_OWNER_PUSH) r->call.input = &a->gradient;
    if (kind == KOLO_OWNER_PUSH) r->call.input_bytes = sizeof a->gradient;
    if (kind == KOLO_OWNER_PULL) r->call.output_bytes = sizeof a->value;
    if (kind == KOLO_OWNER_LEASE) r->call.output_bytes = sizeof r->data;
    kolo_parameters_owner_serve(s->owner, &r->call);
}

/* The read of worker w is answered: no worker with a lease is further behind than the bound. */
static void check_read(const scene *s, int w) {
    for (int i = 0; i < WORKERS; i++) {
        const actor *a = &s->actors[i];
        if (a->phase == ENDED || a->idle) continue;
        assert_true(a->clock + (uint64_t)s->bound >= s->actors[w].clock);
    }
}

static bool take_lease(actor *a) {
    if (a->lease.clock == 0) return false;
    a->held[a->n_held++] = a->lease.clock - 1;
    return true;
}

/* Worker w does the next thing that it can. */
static void act(scene *s, int w, bool asks, int *done) {
    actor *a = &s->actors[w];
    if (a->phase == BEGINS) {
        ask(s, w, &a->report, KOLO_OWNER_IDLE, 0, 0);
        a->idle = true;
        ask(s, w, &a->lease, KOLO_OWNER_LEASE, 0, NUMBERS);
        a->phase = WAITS;
    } else if (a->phase == WAITS && a->lease.answered) {
        a->phase = ENDED;
        if (!take_lease(a)) return;
        assert_true(a->lease.data >= a->clock);
        a->clock = a->lease.data;
        a->idle = false;
        a->phase = READS;
        ask(s, w, &a->pull, KOLO_OWNER_PULL, 1, a->clock);
    } else if (a->phase == READS && a->pull.answered) {
        a->phase = a->n_held > 0 ? COMPUTES : BEGINS;
    } else if (a->phase == COMPUTES && asks && a->n_held < 3) {
        ask(s, w, &a->lease, KOLO_OWNER_LEASE, 0, NUMBERS);
        assert_true(a->lease.answered);
        (void)take_lease(a);
    } else if (a->phase == COMPUTES) {
        ask(s, w, &a->push, KOLO_OWNER_PUSH, 0, a->clock);
        assert_true(a->push.answered);
        assert_int_equal(++done[a->held[0]], 1);
        memmove(a->held, a->held + 1, (size_t)--a->n_held * sizeof a->held[0]);
        a->clock++;
        a->phase = READS;
        ask(s, w, &a->pull, KOLO_OWNER_PULL, 0, a->clock);
    }
}

/* Workers that have no lease left, or are lost, hold nobody up. */
static void a_bound_is_kept_with_leases(void **state) {
    const kolo_owned has = {.values = {0, 1}, .gradient = {0, 1}};
    const float initial = 0;
    for (uint64_t seed = 0; seed < 300; seed++) {
        static scene s;
        int done[NUMBERS] = {0}, left = WORKERS;
        kolo_rng rng = kolo_rng_make(seed, 2, 0);
        s = (scene){.bound = 1 + (int)(seed % 3)};
        const kolo_parameters_opts opts = {
            .staleness = s.bound, .leases = true, .update = no_update};
        ASSERT_OK(kolo_parameters_owner_create(&opts, &has, WORKERS, reply, &s.owner));
        kolo_parameters_owner_load(s.owner, &initial);
        for (uint64_t k = 0; left > 0; k++) {
            bool waited[WORKERS];
            assert_true(k < 200000);
            const int w = (int)kolo_rng_below(&rng, 2 * k, WORKERS);
            const uint64_t what = kolo_rng_below(&rng, 2 * k + 1, 300);
            actor *a = &s.actors[w];
            if (a->phase == ENDED || (w == 1 && what > 40)) continue; /* worker 1 is slower */
            for (int i = 0; i < WORKERS; i++) waited[i] = !s.actors[i].pull.answered;
            if (what == 0 && w > 0) {
                a->phase = ENDED;
                kolo_parameters_owner_lost(s.owner, w, false, "it is killed");
            } else {
                act(&s, w, what < 150, done);
            }
            for (int i = 0; i < WORKERS; i++) {
                const actor *x = &s.actors[i];
                if (x->phase == READS && waited[i] && x->pull.answered) check_read(&s, i);
            }
            left -= a->phase == ENDED;
        }
        for (int i = 0; i < NUMBERS; i++) assert_int_equal(done[i], 1);
        kolo_parameters_owner_destroy(s.owner);
    }
}

/* A worker that joins has made no pushes before, and none of these is missing: reads are no more
 * stale. */
static void one_that_joins_lacks_no_pushes(void **state) {
    const kolo_owned has = {.values = {0, 1}, .gradient = {0, 1}};
    const float initial = 0;
    const int joins = 2; /* as a client: behind worker 0 and server 1 */
    static scene s;
    request r;
    const kolo_parameters_opts opts = {.servers = 1,
                                       .staleness = KOLO_STALENESS_ANY,
                                       .leases = true,
                                       .joins = 1,
                                       .update = no_update};
    s = (scene){0};
    ASSERT_OK(kolo_parameters_owner_create(&opts, &has, 1, reply, &s.owner));
    kolo_parameters_owner_load(s.owner, &initial);
    ask(&s, 0, &r, KOLO_OWNER_LEASE, 0, NUMBERS);
    for (uint64_t k = 0; k < 20; k++) ask(&s, 0, &r, KOLO_OWNER_PUSH, 0, k);
    ask(&s, joins, &r, KOLO_OWNER_JOIN, 0, 0);
    assert_int_equal(r.clock, NUMBERS);
    ask(&s, joins, &r, KOLO_OWNER_PULL, 0, 0);
    assert_int_equal(r.clock, 0);
    ask(&s, 0, &r, KOLO_OWNER_PULL, 0, 20);
    assert_int_equal(r.clock, 0);
    ask(&s, 0, &r, KOLO_OWNER_PUSH, 0, 20);
    ask(&s, 0, &r, KOLO_OWNER_PULL, 0, 21);
    assert_int_equal(r.clock, 1);
    ask(&s, joins, &r, KOLO_OWNER_PUSH, 0, 0);
    ask(&s, joins, &r, KOLO_OWNER_PUSH, 0, 1);
    ask(&s, joins, &r, KOLO_OWNER_PULL, 0, 2);
    assert_int_equal(r.clock, 1);
    kolo_parameters_owner_destroy(s.owner);
}

TEST_MAIN(test_leases) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_lease_is_acknowledged_once),
        cmocka_unit_test(returned_leases_come_first),
        cmocka_unit_test(a_bound_is_kept_with_leases),
        cmocka_unit_test(one_that_joins_lacks_no_pushes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

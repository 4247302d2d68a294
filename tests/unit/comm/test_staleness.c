/* The bounds of owners of parameters under every order of messages: random orders with workers of
 * very different speeds and with workers that are lost, and all states that a few workers can
 * reach. Owners run without a service; a checker reads their logs and nothing else. */
#include "base/compiler.h"
#include "base/memory.h"
#include "base/rng.h"
#include "comm/sync/parameters_owner.h"
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OWNERS = 3, MOST_WORKERS = 1000, MOST_CLOCKS = 5, MESSAGES = 2 * MOST_CLOCKS + 1 };

/* ---- logs and their checker ---- */

typedef enum entry_kind { READ, PUSH, LOST } entry_kind;

typedef struct entry {
    entry_kind kind;
    int worker;
    int clock;
} entry;

typedef struct owner_log {
    entry *entries;
    int n;
} owner_log;

/* Checks the log of an owner; returns the largest staleness of a read. */
static int check_log(const owner_log *log, int workers, int bound) {
    static int pushes[MOST_WORKERS];
    static bool lost[MOST_WORKERS];
    int largest = 0;
    memset(pushes, 0, sizeof pushes);
    memset(lost, 0, sizeof lost);
    for (int i = 0; i < log->n; i++) {
        const entry *e = &log->entries[i];
        if (e->kind == LOST) {
            lost[e->worker] = true;
            continue;
        }
        if (e->clock != pushes[e->worker]) {
            fail_msg("worker %d at clock %d, with %d pushes", e->worker, e->clock,
                     pushes[e->worker]);
        }
        if (e->kind == PUSH) {
            pushes[e->worker]++;
            continue;
        }
        for (int w = 0; w < workers; w++) {
            int stale = lost[w] ? 0 : e->clock - pushes[w];
            if (stale > largest) largest = stale;
            if (bound >= 0 && stale > bound) {
                fail_msg("worker %d at clock %d reads without %d pushes of worker %d", e->worker,
                         e->clock, stale, w);
            }
        }
    }
    return largest;
}

/* ---- workers and owners ---- */

/* A message of a worker to an owner. */
typedef struct message {
    kolo_service_call call;
    bool answered;
    float input, output;
} message;

typedef struct world {
    int workers, owners, clocks, bound;
    kolo_parameters_opts opts[OWNERS];
    kolo_parameters_owner *owner[OWNERS];
    owner_log logs[OWNERS];
    int *delivered;    /* [workers][owners] */
    bool *lost;        /* [workers] */
    message *messages; /* [workers][owners][MESSAGES] */
} world;

static int *delivered_to(const world *x, int w, int o) { return &x->delivered[w * x->owners + o]; }

static message *message_at(const world *x, int w, int o, int m) {
    return &x->messages[(w * x->owners + o) * MESSAGES + m];
}

static void update(void *arg, const kolo_parameters_update *u) {
    (void)arg;
    u->values[0] += u->gradient[0];
}

static void observe(void *arg, const kolo_parameters_event *e) {
    owner_log *log = arg;
    log->entries[log->n++] = (entry){e->read ? READ : PUSH, e->worker, (int)e->clock};
}

static void reply(kolo_service_call *call, kolo_status status, uint64_t clock, const void *data,
                  size_t bytes) {
    message *m = (message *)(void *)call; /* its first member */
    (void)clock;
    (void)data;
    (void)bytes;
    if (status != KOLO_OK) fail_msg("%s", kolo_last_error());
    assert_false(m->answered);
    m->answered = true;
}

static void init(world *x, int workers, int owners, int clocks, int bound, int drop) {
    const kolo_owned has = {.values = {0, 1}, .gradient = {0, 1}};
    const float zero[1] = {0};
    const size_t n = (size_t)workers, pairs = n * (size_t)owners, events = n * (MESSAGES + 1);
    *x = (world){.workers = workers, .owners = owners, .clocks = clocks, .bound = bound};
    x->delivered = kolo_zalloc(pairs * sizeof *x->delivered);
    x->lost = kolo_zalloc(n * sizeof *x->lost);
    x->messages = kolo_zalloc(pairs * MESSAGES * sizeof *x->messages);
    assert_true(x->delivered && x->lost && x->messages);
    for (int o = 0; o < owners; o++) {
        x->logs[o].entries = kolo_zalloc(events * sizeof *x->logs[o].entries);
        assert_non_null(x->logs[o].entries);
        x->opts[o] = (kolo_parameters_opts){.staleness = bound,
                                            .drop = drop,
                                            .update = update,
                                            .observe = observe,
                                            .arg = &x->logs[o]};
        ASSERT_OK(kolo_parameters_owner_create(&x->opts[o], &has, workers, reply, &x->owner[o]));
        kolo_parameters_owner_load(x->owner[o], zero);
    }
}

static void fini(world *x) {
    for (int o = 0; o < x->owners; o++) {
        kolo_parameters_owner_destroy(x->owner[o]);
        kolo_free(x->logs[o].entries);
    }
    kolo_free(x->delivered);
    kolo_free(x->lost);
    kolo_free(x->messages);
}

/* Whether all owners have answered message m of a worker. */
static bool is_answered(const world *x, int w, int m) {
    for (int o = 0; o < x->owners; o++) {
        if (!message_at(x, w, o, m)->answered) return false;
    }
    return true;
}

/* How many messages a worker has sent to each owner, as the functions of kolo/parameters.h: pull 0,
 * push 0 and pull 1, push 1 and pull 2, ..., the last push, the end. */
static int sent_by(const world *x, int w) {
    int sent = 1;
    for (int c = 0; c < x->clocks; c++) {
        bool pulled = is_answered(x, w, 2 * c) && (c == 0 || is_answered(x, w, 2 * c - 1));
        if (!pulled) return sent;
        sent = c + 1 < x->clocks ? 2 * c + 3 : 2 * c + 2;
    }
    return is_answered(x, w, 2 * x->clocks - 1) ? sent + 1 : sent;
}

static bool is_due(const world *x, int w, int o) {
    return !x->lost[w] && *delivered_to(x, w, o) < sent_by(x, w);
}

/* Finds a message on its way; false: there is none. */
static bool find_due(const world *x, int *worker, int *owner) {
    for (int w = 0; w < x->workers; w++) {
        for (int o = 0; o < x->owners; o++) {
            if (!is_due(x, w, o)) continue;
            *worker = w;
            *owner = o;
            return true;
        }
    }
    return false;
}

/* The owner gets the next message of the worker. */
static void deliver(const world *x, int w, int o) {
    const int i = (*delivered_to(x, w, o))++;
    message *m = message_at(x, w, o, i);
    const bool ends = i == 2 * x->clocks, push = i % 2 == 1;
    m->input = 1;
    m->call = (kolo_service_call){.client = w, .clock = (uint64_t)i / 2};
    m->call.kind = ends ? KOLO_OWNER_FINISH : push ? KOLO_OWNER_PUSH : KOLO_OWNER_PULL;
    if (push) {
        m->call.input = &m->input;
        m->call.input_bytes = sizeof m->input;
    } else if (!ends) {
        m->call.output = &m->output;
        m->call.output_bytes = sizeof m->output;
    }
    kolo_parameters_owner_serve(x->owner[o], &m->call);
}

static void lose(world *x, int w) {
    x->lost[w] = true;
    for (int o = 0; o < x->owners; o++) {
        owner_log *log = &x->logs[o];
        log->entries[log->n++] = (entry){LOST, w, 0};
        kolo_parameters_owner_lost(x->owner[o], w, false, "a test");
    }
}

static int check(const world *x) {
    int largest = 0;
    for (int o = 0; o < x->owners; o++) {
        int of_owner = check_log(&x->logs[o], x->workers, x->bound);
        if (of_owner > largest) largest = of_owner;
    }
    return largest;
}

/* ---- random orders ---- */

typedef struct dice {
    kolo_rng rng;
    uint64_t n;
} dice;

static int draw(dice *d, int bound) {
    return (int)(kolo_rng_uniform(&d->rng, d->n++) * (float)bound);
}

/* Runs workers to their ends; returns the largest staleness. Each order has slow workers: a message
 * of theirs that is due is often skipped. */
static int run_order(dice *d, int workers, int bound, int drop, bool loses) {
    world x;
    int weight[16], idle = 0;
    init(&x, workers, 1 + draw(d, OWNERS), 2 + draw(d, MOST_CLOCKS - 1), bound, drop);
    if (drop > 0) x.bound = KOLO_STALENESS_ANY; /* of the checker */
    for (size_t i = 0; i < KOLO_COUNT(weight); i++) weight[i] = draw(d, 3) == 0 ? 2 : 100;
    for (;;) {
        int w = draw(d, workers), o = draw(d, x.owners);
        bool passed = !is_due(&x, w, o) || draw(d, 100) >= weight[w % 16];
        if (passed && ++idle < 20 * workers) continue;
        idle = 0;
        if (passed && !find_due(&x, &w, &o)) break;
        deliver(&x, w, o);
        if (loses && draw(d, 40) == 0 && w > 0) lose(&x, w);
    }
    for (int w = 0; w < workers; w++) {
        if (!x.lost[w] && sent_by(&x, w) <= 2 * x.clocks) fail_msg("worker %d waits for ever", w);
    }
    const int largest = check(&x);
    fini(&x);
    return largest;
}

static void random_orders_keep_the_bound(void **state) {
    static const int bounds[] = {0, 1, 2, 3, KOLO_STALENESS_ANY};
    const bool soak = getenv("KOLO_SOAK") != NULL;
    const int orders = soak ? 2000 : 60;
    dice d = {.rng = kolo_rng_make(11, KOLO_RNG_INIT, 5)};
    for (size_t i = 0; i < KOLO_COUNT(bounds); i++) {
        int largest = 0;
        for (int k = 0; k < orders; k++) {
            int found = run_order(&d, 2 + draw(&d, 5), bounds[i], 0, k % 4 == 3);
            if (found > largest) largest = found;
        }
        if (bounds[i] == KOLO_STALENESS_ANY) {
            assert_true(largest > 3);
        } else {
            assert_int_equal(largest, bounds[i]); /* reached, and no more */
        }
    }
    for (int k = 0; k < (soak ? 10 : 0); k++)
        (void)run_order(&d, MOST_WORKERS, 1 + k % 2, 0, false);
}

/* Several owners, of which each drops other gradients. */
static void workers_of_dropped_gradients_reach_their_end(void **state) {
    const int orders = getenv("KOLO_SOAK") ? 4000 : 100;
    dice d = {.rng = kolo_rng_make(11, KOLO_RNG_INIT, 6)};
    int largest = 0;
    for (int k = 0; k < orders; k++) {
        const int workers = 2 + draw(&d, 5), drop = 1 + draw(&d, workers - 1);
        const int found = run_order(&d, workers, 0, drop, k % 4 == 3);
        if (found > largest) largest = found;
    }
    assert_true(largest > 0);
}

/* ---- all orders ---- */

enum { FEW = 3 };

/* The orders of a search. A state is how many messages each pair of worker and owner has exchanged:
 * all else follows from that. */
typedef struct search {
    int owners, clocks, bound, largest, states;
    char *seen;       /* by state */
    int path[128], n; /* the pairs of the deliveries */
} search;

static size_t state_of(const search *s, const world *x) {
    size_t at = 0;
    for (int i = 0; i < FEW * s->owners; i++) {
        at = at * (size_t)(2 * s->clocks + 2) + (size_t)x->delivered[i];
    }
    return at;
}

/* Visits the state at the end of the path, and all that follow. */
static void visit(search *s) {
    world x;
    bool due[FEW * OWNERS] = {false};
    init(&x, FEW, s->owners, s->clocks, s->bound, 0);
    for (int i = 0; i < s->n; i++) deliver(&x, s->path[i] / s->owners, s->path[i] % s->owners);
    const size_t at = state_of(s, &x);
    const bool known = s->seen[at];
    bool ends = true;
    for (int i = 0; i < FEW * s->owners; i++) {
        due[i] = is_due(&x, i / s->owners, i % s->owners);
        ends &= !due[i];
    }
    if (!known) {
        const int largest = check(&x);
        if (largest > s->largest) s->largest = largest;
        for (int w = 0; w < FEW && ends; w++) assert_true(sent_by(&x, w) == 2 * s->clocks + 1);
        s->seen[at] = 1;
        s->states++;
    }
    fini(&x);
    for (int i = 0; i < FEW * s->owners && !known; i++) {
        if (!due[i]) continue;
        s->path[s->n++] = i;
        visit(s);
        s->n--;
    }
}

static void all_states_keep_the_bound(void **state) {
    const bool soak = getenv("KOLO_SOAK") != NULL;
    for (int bound = 0; bound < 3; bound++) {
        search s = {.owners = 2, .clocks = soak ? 4 : 2, .bound = bound};
        size_t states = 1;
        for (int i = 0; i < FEW * s.owners; i++) states *= (size_t)(2 * s.clocks + 2);
        s.seen = kolo_zalloc(states);
        assert_non_null(s.seen);
        visit(&s);
        kolo_free(s.seen);
        assert_int_equal(s.largest, bound < s.clocks - 1 ? bound : s.clocks - 1);
        assert_true(s.states > 100);
        if (soak) printf("bound %d: %d states\n", bound, s.states);
    }
}

TEST_MAIN(test_staleness) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_orders_keep_the_bound),
        cmocka_unit_test(workers_of_dropped_gradients_reach_their_end),
        cmocka_unit_test(all_states_keep_the_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

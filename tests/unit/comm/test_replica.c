/* Parts with a replica under random orders of messages: workers push, read and take leases while a
 * server and workers are lost, at any time. Each push that a worker has an answer to is applied
 * once, and so is each lease and what a worker gives to a sum, whichever is lost; and all get the
 * same answer from a barrier. */
#include "base/compiler.h"
#include "base/rng.h"
#include "base/status.h"
#include "comm/sync/adapt.h"
#include "comm/sync/parameters_replica.h"
#include "support/support.h"

#include <stdlib.h>
#include <string.h>

enum { WORKERS = 4, SERVERS = 2, COUNT = 48, STEPS = COUNT / WORKERS, COPIES = 256, EVENTS = 512 };

/* What a server gets, and what came back. First the call. */
typedef struct message {
    kolo_service_call call;
    bool open;         /* without an answer */
    struct server *to; /* that has it */
    uint64_t clock, resume;
    float gradient[COUNT], values[COUNT];
    kolo_service_request *copied; /* of a copy */
} message;

/* What an owner has done, in order. */
typedef struct history {
    struct {
        bool read, late;
        int worker;
        uint64_t clock;
    } events[EVENTS];
    int n;
} history;

typedef struct server {
    struct world *world;
    kolo_replicas *replicas;
    kolo_parameters_opts opts[2];
    kolo_parameters_owner *owners[2]; /* that leads, and that follows */
    history histories[2];             /* of the owners */
    bool dead, known;                 /* known: the other server has seen that it is dead */
    bool notified[WORKERS];           /* of the loss of a worker */
} server;

typedef enum phase { BEGINS, WAITS, EXCHANGES, MEETS, READS_SUM, FINISHES, ENDED } phase;

typedef struct actor {
    phase phase;
    bool dead;
    int server;
    uint64_t clock, leases, lease;
    message push, pull, other;
    int answered[COUNT]; /* pushes of this number that have an answer */
} actor;

typedef struct world {
    bool leases, adapts;
    uint32_t choice; /* of the bound, that pushes have */
    uint64_t seed, pushes;
    bool met;             /* a worker has left the barrier, */
    uint64_t flags;       /* with these */
    kolo_status expected; /* of replies to workers */
    uint64_t replies;
    server servers[SERVERS];
    actor actors[WORKERS];
    kolo_service_request *copies[COPIES]; /* from server 0 to server 1, on their way */
    int n_copies;
} world;

static void add_gradient(void *arg, const kolo_parameters_update *u) {
    for (size_t i = 0; i < u->count; i++) u->values[i] += u->gradient[i];
}

static void observe(void *arg, const kolo_parameters_event *e) {
    history *h = arg;
    assert_true(h->n < EVENTS);
    h->events[h->n].read = e->read;
    h->events[h->n].late = e->late;
    h->events[h->n].worker = e->worker;
    h->events[h->n++].clock = e->clock;
}

/* A server sees the loss of a worker. */
static void notify_of_worker(server *me, int w) {
    if (!me->world->actors[w].dead || me->notified[w]) return;
    me->notified[w] = true;
    kolo_replicas_lost(me->replicas, w, false, "a test");
}

/* Every second reply to a worker that is dead fails, whereupon the server sees its loss. */
static void reply(kolo_service_call *call, kolo_status status, uint64_t clock, const void *data,
                  size_t bytes) {
    message *m = (message *)(void *)call; /* its first member */
    const kolo_status expected = m->copied ? KOLO_OK : m->to->world->expected;
    if (status != KOLO_OK && status != expected) fail_msg("%s", kolo_last_error());
    assert_int_equal(status, expected);
    assert_true(m->open);
    m->open = false;
    m->clock = clock;
    if (data && bytes == sizeof m->values) memcpy(m->values, data, bytes);
    if (data && bytes == sizeof m->resume) memcpy(&m->resume, data, bytes);
    if (m->copied) {
        m->copied->internal.state = 0;
    } else if (m->to->world->replies++ % 2 == 0) {
        notify_of_worker(m->to, call->client);
    }
}

/* ---- the channel ---- */

static kolo_status start(void *arg, kolo_service_request *q) {
    world *x = ((server *)arg)->world;
    q->internal.status = KOLO_OK;
    if (arg == &x->servers[1]) return KOLO_OK; /* of its own part, which nobody uses */
    if (x->servers[1].dead) return KOLO_FAIL(KOLO_ERR_PEER, "server 1 is dead");
    assert_true(q->server == WORKERS + 1 && x->n_copies < COPIES);
    q->internal.state = 1;
    x->copies[x->n_copies++] = q;
    return KOLO_OK;
}

static bool test(void *arg, const kolo_service_request *q) { return q->internal.state == 0; }

static kolo_status wait(void *arg, kolo_service_request *q) {
    return q->internal.status == KOLO_OK ? KOLO_OK : KOLO_FAIL(q->internal.status, "a test");
}

static void deliver_copy(world *x) {
    static message m;
    kolo_service_request *q = x->copies[0];
    memmove((void *)x->copies, (void *)(x->copies + 1),
            (size_t)--x->n_copies * sizeof x->copies[0]);
    m = (message){.open = true, .copied = q};
    m.call = (kolo_service_call){.client = WORKERS,
                                 .kind = q->kind,
                                 .key = q->key,
                                 .clock = q->clock,
                                 .input = q->input,
                                 .input_bytes = q->input_bytes};
    kolo_replicas_serve(x->servers[1].replicas, &m.call);
    assert_false(m.open); /* the data of a copy are not kept */
}

/* ---- workers ---- */

static void send(world *x, int w, message *m) {
    actor *a = &x->actors[w];
    m->open = true;
    m->to = &x->servers[a->server];
    m->call.kind = kolo_replicas_kind(m->call.kind & 0xff, 0);
    kolo_replicas_serve(m->to->replicas, &m->call);
}

static void ask(world *x, int w, message *m, uint32_t kind, uint64_t key, uint64_t clock) {
    *m = (message){.call = {.client = w, .kind = kind, .key = key, .clock = clock}};
    if (kind == KOLO_OWNER_PULL) m->call.output_bytes = sizeof m->values;
    if (kind == KOLO_OWNER_LEASE) m->call.output_bytes = sizeof m->resume;
    if (kind == KOLO_OWNER_SUM) m->call.output_bytes = sizeof m->values;
    if (kind == KOLO_OWNER_BARRIER) m->call.output_bytes = WORKERS * sizeof(uint64_t);
    if (kind == KOLO_OWNER_PUSH || kind == KOLO_OWNER_BARRIER) {
        m->gradient[kind == KOLO_OWNER_PUSH ? x->actors[w].lease : (uint64_t)w] = 1;
        m->call.input = m->gradient;
        m->call.input_bytes = sizeof m->gradient;
    }
    send(x, w, m);
}

/* The worker sees that its server is lost, and sends again what has no answer. */
static void move(world *x, int w) {
    actor *a = &x->actors[w];
    message *const all[] = {&a->push, &a->pull, &a->other};
    a->server = 1;
    for (size_t i = 0; i < KOLO_COUNT(all); i++) {
        if (all[i]->open) send(x, w, all[i]);
    }
}

/* Another bound after some pushes. */
static void change_bound(world *x) {
    const kolo_rng rng = kolo_rng_make(x->seed, 4, 0);
    const uint64_t draw = kolo_rng_below(&rng, x->pushes++, 20);
    if (!x->adapts || draw >= (uint64_t)kolo_adapt_levels()) return;
    x->choice =
        ((x->choice >> KOLO_CHOICE_LEVEL_BITS) + 1) << KOLO_CHOICE_LEVEL_BITS | (uint32_t)draw;
}

static void exchange(world *x, int w) {
    actor *a = &x->actors[w];
    a->phase = EXCHANGES;
    change_bound(x);
    ask(x, w, &a->push, KOLO_OWNER_PUSH, x->choice, a->clock);
    ask(x, w, &a->pull, KOLO_OWNER_PULL, 0, a->clock + 1);
}

/* The sum has what this worker has given, and of the others at most that. */
static void check_sum(const world *x, int w) {
    const float *sum = x->actors[w].other.values;
    for (int i = 0; i < WORKERS; i++) {
        if (sum[i] == 1 || (sum[i] == 0 && x->actors[i].dead)) continue;
        fail_msg("worker %d reads that worker %d has given %g", w, i, (double)sum[i]);
    }
}

/* All workers meet before the end, and one of them has something to report. */
static void meet(world *x, int w) {
    const uint64_t reports = (uint64_t)w == x->seed % WORKERS;
    x->actors[w].phase = MEETS;
    ask(x, w, &x->actors[w].other, KOLO_OWNER_BARRIER, reports, 0);
}

/* All get the same answer, and learn of the report unless its worker is lost. */
static void check_flags(world *x, int w) {
    const uint64_t flags = x->actors[w].other.clock;
    if (!x->met) x->flags = flags;
    x->met = true;
    if (flags == x->flags && (flags == KOLO_BARRIER_ANY || x->actors[x->seed % WORKERS].dead)) {
        return;
    }
    fail_msg("seed %d: worker %d gets %d from the barrier, others %d", (int)x->seed, w, (int)flags,
             (int)x->flags);
}

static void finish(world *x, int w) {
    x->actors[w].phase = FINISHES;
    ask(x, w, &x->actors[w].other, KOLO_OWNER_FINISH, 0, 0);
}

/* The worker does the next thing that it can. */
static void act(world *x, int w) {
    actor *a = &x->actors[w];
    if (a->phase == BEGINS && x->leases) {
        a->phase = WAITS;
        ask(x, w, &a->other, KOLO_OWNER_LEASE, a->leases, COUNT);
    } else if (a->phase == BEGINS && a->clock < STEPS) {
        a->lease = (uint64_t)w * STEPS + a->clock;
        exchange(x, w);
    } else if (a->phase == BEGINS) {
        meet(x, w);
    } else if (a->phase == WAITS && !a->other.open) {
        a->leases++;
        a->lease = a->other.clock - 1;
        if (a->other.clock > 0) exchange(x, w);
        if (a->other.clock == 0) meet(x, w);
    } else if (a->phase == EXCHANGES && !a->push.open && !a->pull.open) {
        a->answered[a->lease]++;
        const float own = a->pull.values[a->lease]; /* a late one is applied later */
        if (own != 1 && !(own == 0 && x->servers[0].opts[0].drop > 0)) {
            fail_msg("worker %d reads its push %d applied %g times", w, (int)a->lease, (double)own);
        }
        if (x->servers[0].opts[0].staleness == 0 && !x->adapts &&
            (a->push.clock == 0) != (own == 1)) {
            fail_msg("worker %d: push %d, applied %g times, has a delay of %d", w, (int)a->lease,
                     (double)own, (int)a->push.clock);
        }
        a->clock++;
        a->phase = BEGINS;
    } else if (a->phase == MEETS && !a->other.open) {
        check_flags(x, w);
        a->phase = READS_SUM;
        ask(x, w, &a->other, KOLO_OWNER_SUM, 0, 0);
    } else if (a->phase == READS_SUM && !a->other.open) {
        check_sum(x, w);
        finish(x, w);
    } else if (a->phase == FINISHES && !a->other.open) {
        a->phase = ENDED;
    }
}

/* ---- losses ---- */

static void lose_server(world *x, int s) {
    x->servers[s].dead = true;
    for (int i = 0; s == 1 && i < x->n_copies; i++) {
        x->copies[i]->internal.state = 0;
        x->copies[i]->internal.status = KOLO_ERR_PEER;
    }
    x->n_copies = 0; /* those to server 1 were not received, or those of server 0 were not sent */
}

/* A server sees the loss of the other one, or of a worker. */
static void notify(world *x, int s, int worker) {
    server *me = &x->servers[s], *other = &x->servers[1 - s];
    if (me->dead) return;
    if (other->dead && !other->known) {
        other->known = true;
        kolo_replicas_lost(me->replicas, WORKERS + 1 - s, false, "a test");
    }
    notify_of_worker(me, worker);
}

static bool goes_on(const world *x) {
    for (int w = 0; w < WORKERS; w++) {
        if (!x->actors[w].dead && x->actors[w].phase != ENDED) return true;
    }
    return false;
}

/* ---- a run ---- */

static void create(world *x, const kolo_parameters_opts *opts) {
    const kolo_owned has = {.values = {0, COUNT}, .gradient = {0, COUNT}, .pushed = {0, COUNT}};
    static const float zeros[COUNT];
    memset(x, 0, sizeof *x);
    x->leases = opts->leases;
    x->adapts = opts->adapts;
    for (int s = 0; s < SERVERS; s++) {
        server *me = &x->servers[s];
        me->world = x;
        me->opts[0] = me->opts[1] = *opts;
        for (int i = 0; i < 2; i++) {
            me->opts[i].observe = observe;
            me->opts[i].arg = &me->histories[i];
            ASSERT_OK(kolo_parameters_owner_create(
                &me->opts[i], &has, WORKERS, i == 0 ? reply : kolo_replicas_reply, &me->owners[i]));
            kolo_parameters_owner_load(me->owners[i], zeros);
        }
        const kolo_replicas_opts o = {.ranks = WORKERS + SERVERS,
                                      .workers = WORKERS,
                                      .servers = SERVERS,
                                      .index = s,
                                      .of = &kolo_replicated_parameters,
                                      .leader = me->owners[0],
                                      .follower = me->owners[1],
                                      .push_bytes = COUNT * sizeof(float),
                                      .keeps = opts->staleness == 0,
                                      .channel = {start, test, wait, reply}};
        ASSERT_OK(kolo_replicas_create(&o, &me->replicas));
    }
}

static void init(world *x, const kolo_parameters_opts *opts) {
    create(x, opts);
    for (int s = 0; s < SERVERS; s++) {
        kolo_replicas_connect(x->servers[s].replicas, &x->servers[s]);
    }
}

static void fini(world *x) {
    for (int s = 0; s < SERVERS; s++) {
        kolo_replicas_destroy(x->servers[s].replicas);
        for (int i = 0; i < 2; i++) kolo_parameters_owner_destroy(x->servers[s].owners[i]);
    }
}

/* Runs all workers to their ends. `victim`: the server that is lost; -1: none. */
static void run(world *x, uint64_t seed, int victim) {
    const kolo_rng rng = kolo_rng_make(seed, 3, 0);
    x->seed = seed;
    const uint64_t when = kolo_rng_below(&rng, 0, seed % 2 == 0 ? 400 : 700); /* at the end, too */
    for (uint64_t k = 1; goes_on(x); k++) {
        if (k > 100000) fail_msg("seed %d, victim %d: it does not end", (int)seed, victim);
        const int w = (int)kolo_rng_below(&rng, 3 * k, WORKERS);
        const int what = (int)kolo_rng_below(&rng, 3 * k + 1, 8);
        actor *a = &x->actors[w];
        if (k == when && victim >= 0) lose_server(x, victim);
        if (what == 0 && w > 1 && kolo_rng_below(&rng, 3 * k + 2, 60) == 0) a->dead = true;
        if (what < 4 && !a->dead) {
            if (x->servers[a->server].dead) move(x, w);
            act(x, w);
        } else if (what < 6 && x->n_copies > 0 && !x->servers[0].dead) {
            deliver_copy(x);
        } else if (what == 6 && !x->servers[0].dead) {
            kolo_replicas_completed(x->servers[0].replicas);
        } else if (what == 7) {
            notify(x, (int)(k & 1), w);
        }
    }
}

/* The owner that leads and the one that follows have done the same, as far as both have got. */
static void compare(const world *x) {
    const history *leads = &x->servers[0].histories[0], *follows = &x->servers[1].histories[1];
    const int n = leads->n < follows->n ? leads->n : follows->n;
    for (int i = 0; i < n; i++) {
        assert_int_equal(leads->events[i].read, follows->events[i].read);
        assert_int_equal(leads->events[i].late, follows->events[i].late);
        assert_int_equal(leads->events[i].worker, follows->events[i].worker);
        assert_int_equal(leads->events[i].clock, follows->events[i].clock);
    }
}

/* The server that has the part at the end: each push was applied once. */
static void check(world *x) {
    static message last;
    const int s = x->servers[0].dead ? 1 : 0;
    for (int w = 0; w < WORKERS; w++) notify(x, s, w);
    last =
        (message){.open = true, .to = &x->servers[s], .call = {.output_bytes = sizeof last.values}};
    last.call.kind = kolo_replicas_kind(KOLO_OWNER_PULL, 0);
    last.call.clock = x->actors[0].clock;
    kolo_replicas_serve(x->servers[s].replicas, &last.call);
    while (last.open && x->n_copies > 0) {
        deliver_copy(x);
        kolo_replicas_completed(x->servers[s].replicas);
    }
    assert_false(last.open);
    for (int i = 0; i < COUNT; i++) {
        const bool dead = !x->leases && x->actors[i / STEPS].dead;
        int answered = 0;
        for (int w = 0; w < WORKERS; w++) answered += x->actors[w].answered[i];
        if (last.values[i] == 1 || (dead && answered == 0 && last.values[i] == 0)) continue;
        fail_msg("push %d: applied %g times, answered %d times", i, (double)last.values[i],
                 answered);
    }
}

static void each_push_is_applied_once(void **state) {
    static const kolo_parameters_opts policies[] = {
        {.staleness = KOLO_STALENESS_ANY},
        {.staleness = KOLO_STALENESS_ANY, .leases = true},
        {.staleness = 2},
        {.staleness = 0},
        {.staleness = 0, .drop = 1},
        {.adapts = true},
    };
    static world x;
    const uint64_t seeds = getenv("KOLO_SOAK") ? 40000 : 400;
    for (size_t p = 0; p < KOLO_COUNT(policies); p++) {
        for (uint64_t seed = 0; seed < seeds; seed++) {
            const int victim = (int)(seed % 5) < 3 ? 0 : (int)(seed % 5) == 3 ? 1 : -1;
            kolo_parameters_opts opts = policies[p];
            opts.update = add_gradient;
            opts.sums = true;
            init(&x, &opts);
            run(&x, seed, victim);
            compare(&x);
            check(&x);
            fini(&x);
        }
    }
}

/* A worker sends a push in as many parts as it may, and a read, while the server that gets them
 * cannot answer: `victim` -1: the follower does not acknowledge; 0: the leader is dead, which the
 * follower has not seen yet. */
static void send_parts(int victim) {
    static world x;
    static message parts[KOLO_PUSH_PARTS_MOST];
    const kolo_parameters_opts opts = {.staleness = KOLO_STALENESS_ANY, .update = add_gradient};
    actor *a = &x.actors[0];
    init(&x, &opts);
    for (int s = 0; s < SERVERS; s++) {
        for (int i = 0; i < 2; i++)
            ASSERT_OK(kolo_parameters_owner_stage(x.servers[s].owners[i], 0));
    }
    if (victim == 0) lose_server(&x, 0);
    a->server = victim == 0;
    for (int i = 0; i < KOLO_PUSH_PARTS_MOST; i++) {
        parts[i] =
            (message){.call = {.kind = KOLO_OWNER_PART, .key = (uint64_t)i}, .gradient = {1}};
        parts[i].call.input = parts[i].gradient;
        parts[i].call.input_bytes = sizeof parts[i].gradient[0];
        send(&x, 0, &parts[i]);
    }
    a->push = (message){.call = {.kind = KOLO_OWNER_PUSH}};
    for (int i = 0; i < COUNT - KOLO_PUSH_PARTS_MOST; i++) a->push.gradient[i] = 2;
    a->push.call.input = a->push.gradient;
    a->push.call.input_bytes = (COUNT - KOLO_PUSH_PARTS_MOST) * sizeof a->push.gradient[0];
    send(&x, 0, &a->push);
    ask(&x, 0, &a->pull, KOLO_OWNER_PULL, 0, 1);
    assert_true(parts[0].open && a->push.open && a->pull.open);
    while (x.n_copies > 0) deliver_copy(&x);
    if (victim == 0) notify(&x, 1, 0);
    if (victim < 0) kolo_replicas_completed(x.servers[0].replicas);
    for (int i = 0; i < KOLO_PUSH_PARTS_MOST; i++) assert_false(parts[i].open);
    assert_false(a->push.open || a->pull.open);
    for (int i = 0; i < COUNT; i++) {
        assert_true(a->pull.values[i] == (i < KOLO_PUSH_PARTS_MOST ? 1 : 2));
    }
    fini(&x);
}

static void all_parts_of_a_push_may_wait(void **state) {
    send_parts(-1);
    send_parts(0);
}

/* Two servers that live lose their connection: the one has pushes that the other one lacks, which
 * refuses the workers that have made them. */
static void a_replica_that_lacks_pushes_is_refused(void **state) {
    static world x;
    static const uint32_t kinds[] = {KOLO_OWNER_PULL, KOLO_OWNER_STATE, KOLO_OWNER_PUSH};
    const kolo_parameters_opts opts = {.staleness = KOLO_STALENESS_ANY, .update = add_gradient};
    actor *a = &x.actors[0];
    init(&x, &opts);
    kolo_replicas_lost(x.servers[0].replicas, WORKERS + 1, false, "a test");
    kolo_replicas_lost(x.servers[1].replicas, WORKERS, false, "a test");
    exchange(&x, 0);
    assert_false(a->push.open || a->pull.open);
    a->server = 1;
    x.expected = KOLO_ERR_PEER;
    for (size_t i = 0; i < KOLO_COUNT(kinds); i++) {
        ask(&x, 0, &a->other, kinds[i], 0, 1);
        assert_false(a->other.open);
        assert_non_null(strstr(kolo_last_error(), "lacks pushes"));
    }
    x.expected = KOLO_OK;
    x.actors[1].server = 1;
    exchange(&x, 1); /* it has made none before */
    assert_false(x.actors[1].push.open || x.actors[1].pull.open);
    fini(&x);
}

static void workers_leave_before_the_service_is_there(void **state) {
    static world x;
    const kolo_parameters_opts opts = {.staleness = 0, .update = add_gradient};
    create(&x, &opts);
    for (int w = 1; w < WORKERS; w++) {
        kolo_replicas_lost(x.servers[0].replicas, w, true, "a test");
    }
    kolo_replicas_connect(x.servers[0].replicas, &x.servers[0]);
    exchange(&x, 0); /* it is the only one */
    assert_false(x.actors[0].push.open || x.actors[0].pull.open);
    fini(&x);
}

TEST_MAIN(test_replica) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_push_is_applied_once),
        cmocka_unit_test(all_parts_of_a_push_may_wait),
        cmocka_unit_test(a_replica_that_lacks_pushes_is_refused),
        cmocka_unit_test(workers_leave_before_the_service_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

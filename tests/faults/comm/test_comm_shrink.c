/* Ranks that go on after the death of others: twice in a row, in the middle of everything; and what
 * they agree on. */
#include "base/clock.h"
#include "base/compiler.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/engine/comm.h"
#include "comm/engine/lock.h"
#include "kolo/embed.h"
#include "kolo/group.h"
#include "support/ranks.h"
#include "support/support.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 4, STEPS = 24 };

static kolo_status wrong(const char *what, int rank) {
    return KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d: %s: %.300s", rank, what, kolo_last_error());
}

/* ---- deaths in a row ---- */

typedef struct plan {
    int at[RANKS];           /* the step before which a rank kills itself; 0: it lives */
    int64_t after_us[RANKS]; /* from then on, if it dies while it does something else; 0: at once */
    bool busy;               /* the others exchange buckets, with several in flight */
} plan;

static int living(const plan *p) {
    int n = 0;
    for (int r = 0; r < RANKS; r++) n += p->at[r] == 0;
    return n;
}

static void die_when_due(const plan *p, int rank, int64_t step) {
    if (p->at[rank] == 0 || step != p->at[rank]) return;
    if (p->after_us[rank] == 0) raise(SIGKILL);
    ranks_die_after(p->after_us[rank]);
}

/* A rank whose time has not come waits for it before the last steps. */
static void await_death(const plan *p, int rank, int64_t step) {
    while (p->after_us[rank] > 0 && step == STEPS - 1) pause();
}

/* The sum over a group of 1 << (2 * rank of the whole), once per element of a vector. */
static kolo_status sum_of_marks(kolo_comm *group, int rank, bool busy, int64_t *sum) {
    enum { MOST = 30000 };
    static int64_t x[3][MOST];
    kolo_request *q[3];
    int n = busy ? 3 : 1;
    size_t count = busy ? MOST : 1;
    kolo_status status = KOLO_OK;
    for (int i = 0; i < n; i++) {
        for (size_t k = 0; k < count; k++) x[i][k] = INT64_C(1) << (2 * rank);
        kolo_part part = {.data = x[i], .count = count};
        status = kolo_allreduce_create(group, &part, 1, KOLO_DTYPE_I64, KOLO_SUM,
                                       KOLO_ALGORITHM_AUTO, "marks", &q[i]);
        if (status != KOLO_OK) n = i;
    }
    for (int i = 0; i < n && status == KOLO_OK; i++) status = kolo_request_start(q[i]);
    for (int i = 0; i < n && status == KOLO_OK; i++) status = kolo_request_wait(q[i], 0);
    for (int i = 0; i < n; i++) kolo_request_destroy(q[i]);
    KOLO_TRY(status);
    for (int i = 0; i < n; i++) {
        for (size_t k = 0; k < count; k++) {
            if (x[i][k] != x[0][0]) return wrong("elements differ", rank);
        }
    }
    *sum = x[0][0];
    return KOLO_OK;
}

/* Forms groups without the dead until one agrees on the step that all go on with. */
static kolo_status recover(kolo_comm **group, int64_t *step, int *shrinks) {
    kolo_status status;
    do {
        int before = kolo_comm_size(*group);
        KOLO_TRY(kolo_comm_shrink(*group, group));
        if (kolo_comm_size(*group) > before) return wrong("it grows", before);
        ++*shrinks;
        status = kolo_allreduce(*group, step, 1, KOLO_DTYPE_I64, KOLO_MIN);
    } while (status == KOLO_ERR_PEER);
    return status;
}

typedef struct outcome {
    int64_t sum, step; /* of the last step */
    int shrinks, size, rank;
    bool pair; /* a sub-group of two survivors went on */
} outcome;

static kolo_status deaths_body(kolo_comm *comm, const void *arg, void *result) {
    const plan *p = arg;
    outcome *o = result;
    kolo_comm *group = comm, *pair;
    int rank = kolo_comm_rank(comm);
    KOLO_TRY(kolo_comm_allow_shrink(comm));
    KOLO_TRY(kolo_comm_split(comm, p->at[rank] == 0 ? 0 : -1, 0, &pair));
    for (int64_t step = 1; step <= STEPS; step++) {
        die_when_due(p, rank, step);
        await_death(p, rank, step);
        kolo_status status = sum_of_marks(group, rank, p->busy, &o->sum);
        if (status == KOLO_ERR_PEER) status = recover(&group, &step, &o->shrinks);
        KOLO_TRY(status);
        o->step = step;
    }
    if (sum_of_marks(pair, rank, p->busy, &o->sum) != KOLO_OK) return wrong("a pair", rank);
    int64_t both = o->sum;
    KOLO_TRY(sum_of_marks(group, rank, p->busy, &o->sum));
    o->pair = both == o->sum;
    o->size = kolo_comm_size(group);
    o->rank = kolo_comm_rank(group);
    float x = 0;
    if (kolo_allreduce(comm, &x, 1, KOLO_DTYPE_F32, KOLO_SUM) != KOLO_ERR_PEER) {
        return wrong("the group is whole again", rank);
    }
    return KOLO_OK;
}

static void check_deaths(rank_transport transport, const plan *p) {
    rank_outcome outcomes[RANKS];
    outcome found[RANKS];
    rank_job job = {.n = RANKS,
                    .transport = transport,
                    .body = deaths_body,
                    .arg = p,
                    .arg_bytes = sizeof *p,
                    .results = found,
                    .result_bytes = sizeof found[0],
                    .outcomes = outcomes,
                    .segment_bytes = 64 << 20};
    (void)run_rank_job(&job);
    int64_t sum = 0;
    int rank = 0;
    for (int r = 0; r < RANKS; r++) sum += p->at[r] == 0 ? INT64_C(1) << (2 * r) : 0;
    for (int r = 0; r < RANKS; r++) {
        const outcome *o = &found[r];
        if (p->at[r] != 0) {
            assert_int_equal(outcomes[r].signal, p->after_us[r] ? SIGALRM : SIGKILL);
            continue;
        }
        if (outcomes[r].status != KOLO_OK) {
            fail_msg("transport %d, rank %d: %s", (int)transport, r, outcomes[r].error);
        }
        if (o->sum != sum || o->step != STEPS || o->size != living(p) || o->rank != rank ||
            o->shrinks < 1 || !o->pair) {
            fail_msg("transport %d, rank %d of %d: sum %llx, step %lld, %d shrinks, pair %d",
                     (int)transport, o->rank, o->size, (unsigned long long)o->sum,
                     (long long)o->step, o->shrinks, o->pair);
        }
        rank++;
    }
}

static const rank_transport transports[] = {RANKS_SHM, RANKS_TCP, RANKS_HOSTS, RANKS_UCX};

static void survivors_go_on_after_two_deaths(void **state) {
    static const plan plans[] = {
        {.at = {0, 5, 0, 12}},                            /* one after the other */
        {.at = {6, 0, 6, 0}, .busy = true},               /* two at once, rank 0 among them */
        {.at = {0, 0, 4, 4}, .after_us = {0, 0, 0, 400}}, /* the second while the others shrink */
    };
    for (size_t t = 0; t < KOLO_COUNT(transports); t++) {
        if (!ranks_have(transports[t])) continue;
        for (size_t i = 0; i < KOLO_COUNT(plans); i++) check_deaths(transports[t], &plans[i]);
    }
}

/* A rank dies at some moment after another one, while the others detect that, agree, exchange
 * addresses and go on. */
static void a_death_at_any_moment_of_a_shrink(void **state) {
    const int rounds = getenv("KOLO_SOAK") ? 200 : 4;
    for (int i = 0; i < rounds; i++) {
        plan p = {.at = {4, 0, 0, 4}, .busy = i % 2 == 1};
        p.after_us[(i % 4) / 2 * 3] = 50 + (i * 37) % 3000;
        for (size_t t = 0; t < 3; t++) check_deaths(transports[t], &p);
    }
}

/* ---- agreement ---- */

static kolo_status agree_body(kolo_comm *comm, const void *arg, void *result) {
    int rank = kolo_comm_rank(comm), lost = -1;
    uint64_t flags = 1;
    kolo_comm *other;
    if (kolo_comm_agree(comm, &flags, &lost) != KOLO_ERR_ARG ||
        kolo_comm_shrink(comm, &other) != KOLO_ERR_ARG) {
        return wrong("not allowed yet", rank);
    }
    KOLO_TRY(kolo_comm_allow_shrink(comm));
    KOLO_TRY(kolo_comm_allow_shrink(comm)); /* no effect */
    for (int i = 0; i < 20; i++) {
        flags = ~(UINT64_C(1) << (rank + i));
        KOLO_TRY(kolo_comm_agree(comm, &flags, &lost));
        if (flags != ~(UINT64_C(15) << i) || lost != 0) return wrong("flags of all", rank);
        int32_t x = 1;
        KOLO_TRY(kolo_allreduce(comm, &x, 1, KOLO_DTYPE_I32, KOLO_SUM));
        if (x != RANKS) return wrong("the group is whole", rank);
    }
    KOLO_TRY(kolo_comm_agree(comm, &flags, NULL)); /* all have completed what went before */
    KOLO_TRY(kolo_comm_shrink(comm, &other));      /* nobody has died */
    if (kolo_comm_size(other) != RANKS) return wrong("all live", rank);
    KOLO_TRY(kolo_barrier(other));
    if (kolo_barrier(comm) != KOLO_ERR_PEER) return wrong("a group that was shrunk", rank);
    flags = (uint64_t)(8 + rank);
    KOLO_TRY(kolo_comm_agree(comm, &flags, NULL)); /* of the broken group */
    return flags == 8 ? KOLO_OK : wrong("flags of a broken group", rank);
}

static void living_ranks_agree(void **state) {
    static const rank_transport all[] = {RANKS_THREAD, RANKS_SHM, RANKS_TCP, RANKS_HOSTS};
    for (size_t t = 0; t < KOLO_COUNT(all); t++) {
        ASSERT_OK(run_ranks(RANKS, all[t], agree_body, NULL, 0));
    }
}

/* Rank 2 lives and does not come. */
static kolo_status absent_body(kolo_comm *comm, const void *arg, void *result) {
    uint64_t flags = 1;
    KOLO_TRY(kolo_comm_allow_shrink(comm));
    KOLO_TRY(kolo_barrier(comm));
    if (kolo_comm_rank(comm) == 2) {
        kolo_sleep_ns(2000000000);
        return KOLO_OK;
    }
    return kolo_comm_agree(comm, &flags, NULL);
}

static void a_rank_that_does_not_come_is_named(void **state) {
    rank_outcome outcomes[3];
    rank_job job = {.n = 3,
                    .transport = RANKS_TCP,
                    .body = absent_body,
                    .outcomes = outcomes,
                    .timeout_ms = 1000};
    (void)run_rank_job(&job);
    ASSERT_OK(outcomes[2].status);
    assert_true(outcomes[0].status == KOLO_ERR_TIMEOUT || outcomes[1].status == KOLO_ERR_TIMEOUT);
    for (int r = 0; r < 2; r++) {
        if (!strstr(outcomes[r].error, "rank 2")) fail_msg("rank %d: %s", r, outcomes[r].error);
    }
}

/* Rank 1 is stopped for longer than a heartbeat; rank 0 wakes it when the others have gone on. */
static kolo_status stopped_body(kolo_comm *comm, const void *arg, void *result) {
    int rank = kolo_comm_rank(comm);
    int64_t own = getpid(), pids[3];
    float x = 0;
    KOLO_TRY(kolo_comm_allow_shrink(comm));
    KOLO_TRY(kolo_allgather(comm, &own, pids, 1, KOLO_DTYPE_I64));
    if (rank == 1) raise(SIGSTOP);
    if (kolo_allreduce(comm, &x, 1, KOLO_DTYPE_F32, KOLO_SUM) != KOLO_ERR_PEER) {
        return wrong("a rank is stopped", rank);
    }
    kolo_comm *others = NULL;
    kolo_status status = kolo_comm_shrink(comm, &others);
    *(int *)result = others ? kolo_comm_size(others) : -(int)status;
    if (rank == 1) return KOLO_OK;
    KOLO_TRY(status);
    KOLO_TRY(kolo_barrier(others));
    if (rank == 0) kill((pid_t)pids[1], SIGCONT);
    for (int i = 0; i < 300; i++) { /* while it finds out */
        KOLO_TRY(kolo_barrier(others));
        kolo_sleep_ns(1000000);
    }
    return KOLO_OK;
}

static void a_rank_that_was_stopped_has_no_part(void **state) {
    int sizes[3];
    rank_job job = {.n = 3,
                    .transport = RANKS_TCP,
                    .body = stopped_body,
                    .results = sizes,
                    .result_bytes = sizeof sizes[0],
                    .heartbeat_ms = 1000};
    ASSERT_OK(run_rank_job(&job));
    assert_int_equal(sizes[0], 2);
    assert_int_equal(sizes[2], 2);
    if (sizes[1] != -(int)KOLO_ERR_PEER && sizes[1] != 1) fail_msg("rank 1: %d", sizes[1]);
}

/* ---- lack of memory ---- */

typedef struct shrunk {
    kolo_status status;
    int size; /* 0: no group */
} shrunk;

/* The allocation `arg` of rank 1 fails. No rank ends before the others have their result. */
static kolo_status nomem_body(kolo_comm *comm, const void *arg, void *result) {
    long nth;
    uint64_t flags = 1;
    kolo_comm *steady, *others = NULL;
    shrunk *s = result;
    memcpy(&nth, arg, sizeof nth);
    KOLO_TRY(kolo_comm_allow_shrink(comm));
    KOLO_TRY(kolo_comm_split(comm, 0, 0, &steady));
    KOLO_TRY(kolo_comm_agree(comm, &flags, NULL)); /* all have it */
    if (kolo_comm_rank(comm) == 1) kolo_alloc_fail_nth(nth);
    s->status = kolo_comm_shrink(comm, &others);
    kolo_alloc_fail_nth(0);
    if (s->status == KOLO_OK) s->size = kolo_comm_size(others);
    if (s->status == KOLO_OK) s->status = kolo_barrier(others);
    (void)kolo_barrier(steady);
    return KOLO_OK;
}

/* The others go on without it, or get an error at once. */
static void check_nomem(rank_transport transport, long nth) {
    shrunk s[3];
    rank_job job = {.n = 3,
                    .transport = transport,
                    .body = nomem_body,
                    .arg = &nth,
                    .arg_bytes = sizeof nth,
                    .results = s,
                    .result_bytes = sizeof s[0],
                    .segment_bytes = 64 << 20,
                    .timeout_ms = 4000};
    ASSERT_OK(run_rank_job(&job));
    for (int r = 0; r < 3; r++) {
        bool whole = s[1].size == 3;
        bool known = s[r].status == KOLO_OK || s[r].status == KOLO_ERR_NOMEM ||
                     (s[r].status == KOLO_ERR_PEER && r != 1);
        bool alike = r == 1 || s[r].size == s[0].size;
        if (known && alike && (s[r].status != KOLO_OK || s[r].size == 2 + whole)) continue;
        fail_msg("transport %d, allocation %ld: rank %d has status %d and a group of %d, rank 1 %d "
                 "and %d",
                 (int)transport, nth, r, (int)s[r].status, s[r].size, (int)s[1].status, s[1].size);
    }
}

static void a_rank_without_memory_does_not_hang_the_others(void **state) {
    int every = getenv("KOLO_SOAK") ? 1 : 3;
    for (long nth = 1; nth <= 40; nth += every) {
        check_nomem(RANKS_SHM, nth);
        check_nomem(RANKS_TCP, nth);
    }
}

/* ---- a rank that fails, and lives ---- */

/* Of a rank, in memory that all ranks share, side by side. */
typedef struct alive {
    _Alignas(64) _Atomic int done;
    kolo_status allowed, agreed;
    int lost;
} alive;

/* Waits until all ranks have done so much, without the communicator. */
static void await_all(alive *own, int rank, int done) {
    atomic_store(&own->done, done);
    for (int r = 0; r < 3; r++) {
        while (atomic_load(&own[r - rank].done) < done) {
            kolo_sleep_ns(1000000);
        }
    }
}

/* Allocation `arg` of rank 1 fails while the group is allowed to shrink. */
static kolo_status nomem_allow_body(kolo_comm *comm, const void *arg, void *result) {
    alive *own = result;
    int rank = kolo_comm_rank(comm);
    uint64_t flags = 1;
    long nth;
    memcpy(&nth, arg, sizeof nth);
    if (rank == 1) kolo_alloc_fail_nth(nth);
    own->allowed = kolo_comm_allow_shrink(comm);
    kolo_alloc_fail_nth(0);
    if (own->allowed == KOLO_OK) own->agreed = kolo_comm_agree(comm, &flags, &own->lost);
    await_all(own, rank, 1); /* no rank ends before the others have their results */
    return KOLO_OK;
}

static void a_failure_to_allow_does_not_hang_the_others(void **state) {
    int every = getenv("KOLO_SOAK") ? 1 : 4;
    for (long nth = 1; nth <= 40; nth += every) {
        for (size_t t = 0; t < 2; t++) {
            alive a[3];
            rank_job job = {.n = 3,
                            .transport = transports[t],
                            .body = nomem_allow_body,
                            .arg = &nth,
                            .arg_bytes = sizeof nth,
                            .results = a,
                            .result_bytes = sizeof a[0],
                            .segment_bytes = 64 << 20,
                            .timeout_ms = 4000};
            ASSERT_OK(run_rank_job(&job));
            for (int r = 0; r < 3; r++) {
                bool known = a[r].allowed == KOLO_OK || a[r].allowed == KOLO_ERR_NOMEM ||
                             a[r].allowed == KOLO_ERR_PEER;
                bool whole = a[r].allowed != KOLO_OK || a[1].allowed == KOLO_OK;
                if (known && whole && a[r].agreed == KOLO_OK && a[r].lost == 0) continue;
                fail_msg("transport %d, allocation %ld: rank %d has status %d, then %d without %d",
                         (int)t, nth, r, (int)a[r].allowed, (int)a[r].agreed, a[r].lost);
            }
        }
    }
}

/* Rank 1 aborts, and lives on, while the others agree; `arg`: the group is broken already. */
static kolo_status abort_body(kolo_comm *comm, const void *arg, void *result) {
    alive *own = result;
    int rank = kolo_comm_rank(comm);
    uint64_t flags = 1;
    kolo_comm *others;
    own->allowed = kolo_comm_allow_shrink(comm);
    await_all(own, rank, 1); /* what breaks the group would break a call that has not ended */
    KOLO_TRY(own->allowed);
    if (*(const bool *)arg) kolo_comm_revoke(comm, "revoked by the test");
    if (rank == 1) {
        kolo_sleep_ns(20000000);
        kolo_comm_abort(comm, "aborted by the test");
        own->agreed = kolo_comm_shrink(comm, &others);
    } else {
        own->agreed = kolo_comm_agree(comm, &flags, &own->lost);
    }
    await_all(own, rank, 2);
    return KOLO_OK;
}

static void an_abort_ends_the_agreements_of_its_rank(void **state) {
    for (int i = 0; i < 4; i++) {
        alive a[3];
        const bool broken = i >= 2;
        rank_job job = {.n = 3,
                        .transport = transports[i % 2],
                        .body = abort_body,
                        .arg = &broken,
                        .arg_bytes = sizeof broken,
                        .results = a,
                        .result_bytes = sizeof a[0],
                        .timeout_ms = 4000};
        ASSERT_OK(run_rank_job(&job));
        for (int r = 0; r < 3; r++) {
            kolo_status want = r == 1 ? KOLO_ERR_PEER : KOLO_OK;
            if (a[r].agreed == want && (r == 1 || a[r].lost == 1)) continue;
            fail_msg("case %d: rank %d has status %d, without %d", i, r, (int)a[r].agreed,
                     a[r].lost);
        }
    }
}

/* Rank 1 aborts by the group that has failed: so ends the one that goes on. */
static kolo_status abort_successor_body(kolo_comm *comm, const void *arg, void *result) {
    alive *own = result;
    const int rank = kolo_comm_rank(comm);
    kolo_comm *others;
    KOLO_TRY(kolo_comm_allow_shrink(comm));
    await_all(own, rank, 1);
    kolo_comm_revoke(comm, "revoked by the test");
    KOLO_TRY(kolo_comm_shrink(comm, &others));
    await_all(own, rank, 2); /* what ends agreements would end a shrink that goes on */
    if (rank == 1) kolo_comm_abort(comm, "aborted by the test");
    own->agreed = kolo_barrier(others);
    const bool named = strstr(kolo_last_error(), "aborted by the test") != NULL;
    await_all(own, rank, 3);
    return own->agreed == KOLO_ERR_PEER && named ? KOLO_OK : wrong("an abort", rank);
}

static void an_abort_ends_the_group_that_goes_on(void **state) {
    for (int i = 0; i < 2; i++) {
        alive a[3];
        ASSERT_OK(run_rank_job(&(rank_job){.n = 3,
                                           .transport = transports[i],
                                           .body = abort_successor_body,
                                           .results = a,
                                           .result_bytes = sizeof a[0],
                                           .timeout_ms = 4000}));
    }
}

/* ---- threads ---- */

typedef struct caller {
    kolo_comm *comm;
    kolo_status status;
    uint64_t flags;
} caller;

/* Rank 1 waits for the message of a thread that is refused. */
static void *agree_in_a_thread(void *arg) {
    caller *c = arg;
    int32_t refused = 1;
    c->flags = 3;
    c->status = kolo_comm_agree(c->comm, &c->flags, NULL);
    if (c->status == KOLO_ERR_ARG) (void)kolo_send(c->comm, &refused, 1, KOLO_DTYPE_I32, 1, 0);
    return NULL;
}

static kolo_status agree_twice(kolo_comm *comm) {
    caller c[2] = {{.comm = comm}, {.comm = comm}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        if (pthread_create(&threads[i], NULL, agree_in_a_thread, &c[i]) != 0) abort();
    }
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    int first = c[0].status != KOLO_OK; /* which was not refused */
    if (c[first].status == KOLO_OK && c[first].flags == 1 && c[!first].status == KOLO_ERR_ARG) {
        return KOLO_OK;
    }
    return wrong("two threads", (int)c[first].status);
}

static kolo_status abort_an_agreement(kolo_comm *comm) {
    caller c = {.comm = comm};
    pthread_t thread;
    if (pthread_create(&thread, NULL, agree_in_a_thread, &c) != 0) abort();
    while (atomic_load(&comm->lock->inside) < 2) sched_yield(); /* two for a thread in a call */
    kolo_comm_abort(comm, "aborted by the test");
    pthread_join(thread, NULL);
    return c.status == KOLO_ERR_PEER ? KOLO_OK : wrong("aborted", (int)c.status);
}

static kolo_status threads_body(kolo_comm *comm, const void *arg, void *result) {
    uint64_t flags = 1;
    int32_t x;
    KOLO_TRY(kolo_comm_allow_threads(comm));
    KOLO_TRY(kolo_comm_allow_shrink(comm));
    if (kolo_comm_rank(comm) == 0) {
        KOLO_TRY(agree_twice(comm));
        return abort_an_agreement(comm);
    }
    KOLO_TRY(kolo_recv(comm, &x, 1, KOLO_DTYPE_I32, 0, 0));
    KOLO_TRY(kolo_comm_agree(comm, &flags, NULL));
    bool aborted = kolo_recv(comm, &x, 1, KOLO_DTYPE_I32, 0, 0) == KOLO_ERR_PEER;
    return aborted && flags == 1 ? KOLO_OK : wrong("an abort", 1);
}

static void threads_agree_one_at_a_time(void **state) {
    ASSERT_OK(run_ranks(2, RANKS_TCP, threads_body, NULL, 0));
}

/* ---- a group that may not shrink ---- */

/* Rank 1 has died before. What the others have made is freed: the leak checker looks. */
static kolo_status late_body(kolo_comm *comm, const void *arg, void *result) {
    if (kolo_comm_rank(comm) == 1) raise(SIGKILL);
    return kolo_comm_allow_shrink(comm) == KOLO_ERR_PEER ? KOLO_OK : wrong("late", 0);
}

static void a_death_before_leaves_nothing_behind(void **state) {
    for (size_t t = 0; t < 3; t++) {
        rank_outcome outcomes[3];
        rank_job job = {
            .n = 3, .transport = transports[t], .body = late_body, .outcomes = outcomes};
        (void)run_rank_job(&job);
        for (int r = 0; r < 3; r += 2) {
            if (outcomes[r].status != KOLO_OK) fail_msg("rank %d: %s", r, outcomes[r].error);
        }
    }
}

TEST_MAIN(test_comm_shrink) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survivors_go_on_after_two_deaths),
        cmocka_unit_test(a_death_at_any_moment_of_a_shrink),
        cmocka_unit_test(living_ranks_agree),
        cmocka_unit_test(a_rank_that_does_not_come_is_named),
        cmocka_unit_test(a_rank_that_was_stopped_has_no_part),
        cmocka_unit_test(a_rank_without_memory_does_not_hang_the_others),
        cmocka_unit_test(a_failure_to_allow_does_not_hang_the_others),
        cmocka_unit_test(an_abort_ends_the_agreements_of_its_rank),
        cmocka_unit_test(an_abort_ends_the_group_that_goes_on),
        cmocka_unit_test(threads_agree_one_at_a_time),
        cmocka_unit_test(a_death_before_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Groups in which ranks connect when they need each other: the connections there are, everything
 * that needs others, at the same time from both sides, and the failures of ranks that are not
 * connected. With KOLO_CONNECTIONS=ring only neighbours are connected at first. */
#include "base/clock.h"
#include "base/compiler.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/engine/comm.h"
#include "comm/engine/lock.h"
#include "comm/transport/tcp/internal.h"
#include "kolo/embed.h"
#include "kolo/group.h"
#include "support/ranks.h"
#include "support/support.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 6, COUNT = 3000 };

static kolo_status wrong(const char *what, int rank) {
    return KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d: %s: %.300s", rank, what, kolo_last_error());
}

static int connections(const kolo_comm *comm) {
    const kolo_tcp_transport *t = (const kolo_tcp_transport *)comm->transport;
    int n = 0;
    for (int r = 0; r < t->wire->size; r++) n += t->wire->links[r] != NULL;
    return n;
}

/* Runs with that value of KOLO_CONNECTIONS. */
static void run_with(const char *value, rank_job job, bool encrypt) {
    setenv("KOLO_CONNECTIONS", value, 1);
    if (encrypt) setenv("KOLO_ENCRYPT", "1", 1);
    kolo_status status = run_rank_job(&job);
    unsetenv("KOLO_CONNECTIONS");
    unsetenv("KOLO_ENCRYPT");
    ASSERT_OK(status);
}

/* Of a rank, in memory that all ranks share, side by side. */
typedef struct flag {
    _Alignas(64) _Atomic int done;
    int connections[3]; /* at first, after collectives, after messages between all */
} flag;

/* Without communication: waits until all ranks have come here. */
static void await_all(flag *own, int rank, int size) {
    atomic_store(&own->done, 1);
    for (int r = 0; r < size; r++) {
        while (!atomic_load(&own[r - rank].done)) kolo_sleep_ns(kolo_ms_to_ns(1));
    }
}

/* ---- which connections there are ---- */

static kolo_status sum_by(kolo_comm *comm, kolo_algorithm algorithm, float *data) {
    int size = kolo_comm_size(comm), rank = kolo_comm_rank(comm);
    kolo_part part = {.data = data, .count = COUNT};
    kolo_request *q;
    for (int i = 0; i < COUNT; i++) data[i] = (float)(rank + i % 7);
    KOLO_TRY(kolo_allreduce_create(comm, &part, 1, KOLO_DTYPE_F32, KOLO_SUM, algorithm, "sum", &q));
    KOLO_TRY(kolo_request_start(q));
    KOLO_TRY(kolo_request_wait(q, 0));
    kolo_request_destroy(q);
    for (int i = 0; i < COUNT; i++) {
        if (data[i] != (float)(size * (size - 1) / 2 + size * (i % 7))) return wrong("sum", rank);
    }
    return KOLO_OK;
}

enum { RING_BYTES = 1 << 20 }; /* from here a reduce-scatter follows a ring */

/* Each element of the vector has another value, so that a slice in another place is noticed. */
static kolo_status scatter_sums(kolo_comm *comm, size_t count, int32_t *in, int32_t *out) {
    int size = kolo_comm_size(comm), rank = kolo_comm_rank(comm);
    for (size_t i = 0; i < count * (size_t)size; i++) in[i] = (int32_t)i * (rank + 1);
    KOLO_TRY(kolo_reduce_scatter(comm, in, out, count, KOLO_DTYPE_I32, KOLO_SUM));
    for (size_t i = 0; i < count; i++) {
        int32_t want = (int32_t)(i + count * (size_t)rank) * (size * (size + 1) / 2);
        if (out[i] != want) return wrong("a reduce-scatter", rank);
    }
    return KOLO_OK;
}

static kolo_status gather_all(kolo_comm *comm, size_t count, int32_t *all, int32_t *own) {
    int size = kolo_comm_size(comm), rank = kolo_comm_rank(comm);
    for (size_t i = 0; i < count; i++) own[i] = (int32_t)(i + count * (size_t)rank);
    KOLO_TRY(kolo_allgather(comm, own, all, count, KOLO_DTYPE_I32));
    for (size_t i = 0; i < count * (size_t)size; i++) {
        if (all[i] != (int32_t)i) return wrong("an allgather", rank);
    }
    return KOLO_OK;
}

static kolo_status run_near(kolo_comm *comm) {
    kolo_comm *half;
    size_t size = (size_t)kolo_comm_size(comm), many = RING_BYTES / sizeof(int32_t) / size + 1;
    const size_t counts[] = {3, many};
    int32_t *memory = kolo_alloc((size + 1) * many * sizeof *memory), *slice = memory + size * many;
    if (!memory) return KOLO_NOMEM((size + 1) * many * sizeof *memory);
    kolo_status status = KOLO_OK;
    for (size_t i = 0; i < 2 && status == KOLO_OK; i++) {
        status = scatter_sums(comm, counts[i], memory, slice);
        if (status == KOLO_OK) status = gather_all(comm, counts[i], memory, slice);
    }
    kolo_free(memory);
    KOLO_TRY(status);
    KOLO_TRY(kolo_comm_split(comm, kolo_comm_rank(comm) % 2, 0, &half)); /* at even distances */
    return kolo_barrier(half);
}

static kolo_status count_body(kolo_comm *comm, const void *arg, void *result) {
    int *n = ((flag *)result)->connections;
    int size = kolo_comm_size(comm), rank = kolo_comm_rank(comm);
    static float data[COUNT];
    bool ring = *(const bool *)arg;
    n[0] = connections(comm);
    KOLO_TRY(ring ? sum_by(comm, KOLO_ALGORITHM_RING, data) : run_near(comm));
    n[1] = connections(comm);
    await_all(result, rank, size);
    for (int d = 1; d < size; d++) {
        int32_t out = rank, in = -1, from = (rank + size - d) % size;
        KOLO_TRY(kolo_sendrecv(comm, &out, 1, (rank + d) % size, &in, 1, from, KOLO_DTYPE_I32, d));
        if (in != from) return wrong("a message", rank);
    }
    n[2] = connections(comm);
    return kolo_barrier(comm);
}

static void only_those_that_need_each_other_are_connected(void **state) {
    static const struct {
        const char *value;
        int ranks, first, after;
    } cases[] = {{"ring", RANKS, 2, 2}, {"near", 12, 6, 6}, {"all", RANKS, 5, 5}};
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        flag found[16];
        bool ring = strcmp(cases[i].value, "ring") == 0;
        rank_job job = {.n = cases[i].ranks,
                        .transport = RANKS_TCP,
                        .body = count_body,
                        .arg = &ring,
                        .arg_bytes = sizeof ring,
                        .results = found,
                        .result_bytes = sizeof found[0],
                        .segment_bytes = 64 << 20};
        run_with(cases[i].value, job, false);
        for (int r = 0; r < cases[i].ranks; r++) {
            const int *n = found[r].connections;
            bool last = n[2] == cases[i].ranks - 1;
            if (n[0] == cases[i].first && n[1] == cases[i].after && last) continue;
            fail_msg("%s: rank %d has %d, %d and %d connections", cases[i].value, r, n[0], n[1],
                     n[2]);
        }
    }
}

/* Joining, sub-groups and collectives of many ranks connect each one to few: at distances of 1, 2,
 * 4, ... upwards and downwards. */
static kolo_status crowd_body(kolo_comm *comm, const void *arg, void *result) {
    static float data[COUNT];
    int size = kolo_comm_size(comm), few = 0;
    KOLO_TRY(run_near(comm));
    KOLO_TRY(sum_by(comm, KOLO_ALGORITHM_TREE, data));
    for (int up = 1; up < size; up++) {
        int down = size - up;
        few += (up & (up - 1)) == 0 || (down & (down - 1)) == 0;
    }
    if (connections(comm) != few) return wrong("the connections", connections(comm));
    return kolo_barrier(comm);
}

static void many_ranks_have_few_connections(void **state) {
    const int n = getenv("KOLO_SOAK") ? 256 : 40;
    const rank_job job = {.n = n,
                          .transport = RANKS_TCP,
                          .body = crowd_body,
                          .segment_bytes = 64 << 20,
                          .timeout_ms = 60000};
    ASSERT_OK(run_rank_job(&job));
}

/* ---- what connects no others than it needs ---- */

enum { MANY = 16 };

static bool is_near(int a, int b, int size) {
    const int up = (b - a + size) % size, down = size - up;
    return a != b && ((up & (up - 1)) == 0 || (down & (down - 1)) == 0);
}

typedef bool (*needs)(int a, int b);

/* Whether this rank is connected to those ranks that are near, and to others that it needs. */
static kolo_status check_connected(const kolo_comm *comm, const char *after, needs needed) {
    const kolo_tcp_transport *t = (const kolo_tcp_transport *)comm->transport;
    const int rank = kolo_comm_rank(comm);
    for (int r = 0; r < MANY; r++) {
        const bool want = is_near(rank, r, MANY) || (r != rank && needed && needed(rank, r));
        if (want == (t->wire->links[r] != NULL)) continue;
        return KOLO_FAIL(KOLO_ERR_FORMAT, "after %s rank %d is %sconnected to rank %d", after, rank,
                         want ? "not " : "", r);
    }
    return KOLO_OK;
}

enum { FIRST = 3, SECOND = 5 };

static bool sends_to_0(int a, int b) {
    return (a == 0 && (b == FIRST || b == SECOND)) || (b == 0 && (a == FIRST || a == SECOND));
}

/* Rank 0 receives from any rank; one message is found first. */
static kolo_status any_body(kolo_comm *comm, const void *arg, void *result) {
    const int rank = kolo_comm_rank(comm);
    int32_t x[2] = {rank, rank};
    if (rank == FIRST || rank == SECOND) KOLO_TRY(kolo_send(comm, x, 1, KOLO_DTYPE_I32, 0, 7));
    for (int i = 0; rank == 0 && i < 2; i++) {
        kolo_message m;
        bool found = false;
        while (i == 1 && !found) KOLO_TRY(kolo_probe(comm, KOLO_ANY_RANK, 7, &found, &m));
        KOLO_TRY(kolo_recv(comm, &x[i], 1, KOLO_DTYPE_I32, KOLO_ANY_RANK, 7));
    }
    if (rank == 0 && x[0] + x[1] != FIRST + SECOND) return wrong("messages", rank);
    KOLO_TRY(kolo_barrier(comm));
    KOLO_TRY(check_connected(comm, "messages from any rank", sends_to_0));
    return kolo_barrier(comm);
}

enum { STEP = 3 };

static bool exchanges(int a, int b) { return (a + STEP) % MANY == b || (b + STEP) % MANY == a; }

/* Each rank has elements for one other. */
static kolo_status uneven_body(kolo_comm *comm, const void *arg, void *result) {
    const int rank = kolo_comm_rank(comm), to = (rank + STEP) % MANY;
    const int from = (rank + MANY - STEP) % MANY;
    size_t counts[MANY] = {0}, output_counts[MANY] = {0};
    int32_t out[2] = {rank, to}, in[2] = {-1, -1};
    counts[to] = output_counts[from] = 2;
    KOLO_TRY(kolo_request_run(comm,
                              &(kolo_request_opts){.kind = KOLO_COLLECTIVE_ALLTOALL,
                                                   .dtype = KOLO_DTYPE_I32,
                                                   .input = out,
                                                   .output = in,
                                                   .counts = counts,
                                                   .output_counts = output_counts},
                              0));
    if (in[0] != from || in[1] != rank) return wrong("an uneven all-to-all", rank);
    KOLO_TRY(kolo_barrier(comm));
    KOLO_TRY(check_connected(comm, "an uneven all-to-all", exchanges));
    return kolo_barrier(comm);
}

static int member(int place) { return place * STEP % MANY; }

static int place_of(int rank) {
    int place = 0;
    while (member(place) != rank) place++;
    return place;
}

static bool is_near_in_group(int a, int b) { return is_near(place_of(a), place_of(b), MANY); }

/* A group of all, in another order. */
static kolo_status group_body(kolo_comm *comm, const void *arg, void *result) {
    int rank = kolo_comm_rank(comm), ranks[MANY];
    kolo_comm *group;
    for (int i = 0; i < MANY; i++) ranks[i] = member(i);
    KOLO_TRY(kolo_comm_create_group(comm, ranks, MANY, 1, &group));
    KOLO_TRY(kolo_allreduce(group, &rank, 1, KOLO_DTYPE_I32, KOLO_SUM));
    if (rank != MANY * (MANY - 1) / 2) return wrong("the sum in a group", rank);
    KOLO_TRY(kolo_barrier(group));
    KOLO_TRY(check_connected(comm, "the creation of a group", is_near_in_group));
    return kolo_barrier(group);
}

enum { VICTIM = 6 };

/* Agreements before and after a death, and the group of the others. */
static kolo_status agree_body(kolo_comm *comm, const void *arg, void *result) {
    const int rank = kolo_comm_rank(comm);
    kolo_comm *now;
    int32_t x = 1;
    int lost;
    uint64_t flags = 3, own = rank == 1 ? 1 : 3;
    KOLO_TRY(kolo_comm_allow_shrink(comm));
    KOLO_TRY(kolo_comm_agree(comm, &flags, &lost));
    if (flags != 3 || lost != 0) return wrong("an agreement", lost);
    KOLO_TRY(check_connected(comm, "an agreement", NULL));
    if (rank == VICTIM) raise(SIGKILL);
    if (kolo_barrier(comm) != KOLO_ERR_PEER) return wrong("a death", rank);
    KOLO_TRY(kolo_comm_agree(comm, &own, &lost));
    if (own != 1 || lost != 1) return wrong("an agreement without a rank", lost);
    KOLO_TRY(check_connected(comm, "an agreement without a rank", NULL));
    KOLO_TRY(kolo_comm_shrink(comm, &now));
    KOLO_TRY(kolo_allreduce(now, &x, 1, KOLO_DTYPE_I32, KOLO_SUM));
    if (x != MANY - 1) return wrong("those that live", x);
    return kolo_comm_agree(now, &flags, NULL); /* all have it */
}

static void only_needed_ranks_are_connected_by_what_is_not_regular(void **state) {
    static const rank_body bodies[] = {any_body, uneven_body, group_body};
    for (size_t i = 0; i < KOLO_COUNT(bodies); i++) {
        rank_job job = {
            .n = MANY, .transport = RANKS_TCP, .body = bodies[i], .segment_bytes = 64 << 20};
        run_with("near", job, false);
    }
}

/* Runs a job in which one rank is killed. */
static void run_with_victim(const char *value, rank_job job, int victim) {
    static rank_outcome outcomes[256];
    job.outcomes = outcomes;
    setenv("KOLO_CONNECTIONS", value, 1);
    (void)run_rank_job(&job);
    unsetenv("KOLO_CONNECTIONS");
    bool good = true;
    for (int r = 0; r < job.n; r++) {
        if (r == victim || outcomes[r].status == KOLO_OK) continue;
        print_error("rank %d: %s\n", r, outcomes[r].error);
        good = false;
    }
    assert_true(good);
    assert_int_equal(outcomes[victim].signal, SIGKILL);
}

static void agreements_connect_few_ranks(void **state) {
    rank_job job = {
        .n = MANY, .transport = RANKS_TCP, .body = agree_body, .segment_bytes = 64 << 20};
    run_with_victim("near", job, VICTIM);
}

/* All ranks that are connected to a rank end with it: the others go around them. */
static kolo_status hole_body(kolo_comm *comm, const void *arg, void *result) {
    const int rank = kolo_comm_rank(comm);
    kolo_comm *now;
    int32_t x = 1;
    uint64_t flags = 1;
    int lost;
    KOLO_TRY(kolo_comm_allow_shrink(comm));
    KOLO_TRY(kolo_comm_agree(comm, &flags, NULL)); /* all have it */
    if (rank == 0 || is_near(0, rank, MANY)) raise(SIGKILL);
    while (kolo_barrier(comm) == KOLO_OK) continue;
    KOLO_TRY(kolo_comm_agree(comm, &flags, &lost));
    KOLO_TRY(kolo_comm_shrink(comm, &now));
    KOLO_TRY(kolo_allreduce(now, &x, 1, KOLO_DTYPE_I32, KOLO_SUM));
    if (x != MANY - lost || lost != 8) return wrong("those that live", x);
    return kolo_comm_agree(now, &flags, NULL); /* all have it */
}

static void the_others_go_around_ranks_that_have_ended(void **state) {
    static rank_outcome outcomes[MANY];
    rank_job job = {.n = MANY,
                    .transport = RANKS_TCP,
                    .body = hole_body,
                    .segment_bytes = 64 << 20,
                    .outcomes = outcomes};
    setenv("KOLO_CONNECTIONS", "near", 1);
    (void)run_rank_job(&job);
    unsetenv("KOLO_CONNECTIONS");
    for (int r = 0; r < MANY; r++) {
        if (r == 0 || is_near(0, r, MANY)) continue;
        if (outcomes[r].status != KOLO_OK) fail_msg("rank %d: %s", r, outcomes[r].error);
    }
}

/* As many as possible agree, lose a rank, agree again, and go on. */
static kolo_status crowd_agree_body(kolo_comm *comm, const void *arg, void *result) {
    const int size = kolo_comm_size(comm), rank = kolo_comm_rank(comm), few = connections(comm);
    kolo_comm *now;
    int32_t x = 1;
    uint64_t flags = 1;
    int lost;
    KOLO_TRY(kolo_comm_allow_shrink(comm));
    KOLO_TRY(kolo_comm_agree(comm, &flags, &lost));
    if (rank == 1) raise(SIGKILL);
    while (kolo_barrier(comm) == KOLO_OK) continue;
    KOLO_TRY(kolo_comm_agree(comm, &flags, &lost));
    if (lost != 1) return wrong("an agreement", lost);
    /* A rank that comes a second late to an agreement is connected to all, or one that is alone. */
    if (connections(comm) > few + size / 4) return wrong("the connections", connections(comm));
    KOLO_TRY(kolo_comm_shrink(comm, &now));
    KOLO_TRY(kolo_allreduce(now, &x, 1, KOLO_DTYPE_I32, KOLO_SUM));
    if (x != size - 1) return wrong("those that live", x);
    return kolo_comm_agree(now, &flags, NULL); /* all have it */
}

static void many_ranks_agree(void **state) {
    rank_job job = {.n = getenv("KOLO_SOAK") ? 256 : 40,
                    .transport = RANKS_TCP,
                    .body = crowd_agree_body,
                    .segment_bytes = 64 << 20,
                    .timeout_ms = 60000};
    run_with_victim("near", job, 1);
}

/* ---- a rank from which nothing can come any more ---- */

static kolo_status alone_body(kolo_comm *comm, const void *arg, void *result) {
    int32_t x;
    if (kolo_comm_rank(comm) != 0) return KOLO_OK;
    if (kolo_recv(comm, &x, 1, KOLO_DTYPE_I32, KOLO_ANY_RANK, 0) != KOLO_ERR_PEER ||
        !strstr(kolo_last_error(), "all other ranks have left the group")) {
        return wrong("a receive from any rank", 0);
    }
    return KOLO_OK;
}

static void all_others_may_have_left(void **state) {
    rank_job job = {.n = RANKS, .transport = RANKS_TCP, .body = alone_body};
    run_with("ring", job, false);
}

/* ---- ranks that disagree on what they exchange ---- */

typedef struct disagreement {
    size_t sent, expected; /* by rank 1 to rank 4, and there */
} disagreement;

static kolo_status disagree_body(kolo_comm *comm, const void *arg, void *result) {
    const disagreement *d = arg;
    const int rank = kolo_comm_rank(comm);
    size_t counts[RANKS] = {0}, output_counts[RANKS] = {0};
    int32_t out[8] = {0}, in[8];
    char text[96];
    if (rank == 1) counts[4] = d->sent;
    if (rank == 4) output_counts[1] = d->expected;
    kolo_request_opts o = {.kind = KOLO_COLLECTIVE_ALLTOALL,
                           .dtype = KOLO_DTYPE_I32,
                           .input = out,
                           .output = in,
                           .counts = counts,
                           .output_counts = output_counts};
    kolo_status status = kolo_request_run(comm, &o, 0);
    if (status == KOLO_OK) status = kolo_barrier(comm); /* one that exchanges nothing */
    snprintf(text, sizeof text, "rank 4 expects %zu elements from rank 1, which sends %zu",
             d->expected, d->sent);
    bool named = status == KOLO_ERR_ARG && strstr(kolo_last_error(), text);
    await_all(result, rank, RANKS);
    return named ? KOLO_OK : wrong("a disagreement", rank);
}

static void ranks_that_disagree_are_named(void **state) {
    static const disagreement cases[] = {{5, 0}, {0, 5}, {5, 3}};
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        flag flags[RANKS];
        rank_job job = {.n = RANKS,
                        .transport = RANKS_TCP,
                        .body = disagree_body,
                        .arg = &cases[i],
                        .arg_bytes = sizeof cases[i],
                        .results = flags,
                        .result_bytes = sizeof flags[0]};
        run_with("ring", job, false);
    }
}

/* ---- everything ---- */

/* All pairs at the same time, in both directions. */
static kolo_status exchange_all(kolo_comm *comm, float *out, float *in) {
    int size = kolo_comm_size(comm), rank = kolo_comm_rank(comm), n = 0;
    kolo_request *q[2 * RANKS];
    for (int r = 0; r < size; r++) {
        if (r == rank) continue;
        for (int k = 0; k < 2; k++) {
            kolo_request_opts o = {.kind = k ? KOLO_COLLECTIVE_RECV : KOLO_COLLECTIVE_SEND,
                                   .dtype = KOLO_DTYPE_F32,
                                   .root = r,
                                   .count = COUNT / RANKS,
                                   .input = k ? NULL : out + r * (COUNT / RANKS),
                                   .output = k ? in + r * (COUNT / RANKS) : NULL};
            KOLO_TRY(kolo_request_create(comm, &o, &q[n++]));
        }
    }
    for (int i = 0; i < COUNT; i++) {
        out[i] = (float)(rank * 100 + i / (COUNT / RANKS));
        in[i] = -1;
    }
    for (int i = 0; i < n; i++) KOLO_TRY(kolo_request_start(q[i]));
    for (int i = 0; i < n; i++) KOLO_TRY(kolo_request_wait(q[i], 0));
    for (int i = 0; i < n; i++) kolo_request_destroy(q[i]);
    for (int i = 0; i < size * (COUNT / RANKS); i++) {
        int from = i / (COUNT / RANKS);
        if (from != rank && in[i] != (float)(from * 100 + rank)) return wrong("exchanged", rank);
    }
    return KOLO_OK;
}

/* Broadcasts, of which the root is far ahead of the other ranks, before they connect to it. */
static kolo_status run_ahead(kolo_comm *comm) {
    int rank = kolo_comm_rank(comm), size = kolo_comm_size(comm);
    for (int32_t i = 0; i < 100; i++) {
        int32_t x = rank == 0 ? i : -1;
        if (rank == size / 2 && i == 3) kolo_sleep_ns(kolo_ms_to_ns(50));
        KOLO_TRY(kolo_broadcast(comm, &x, 1, KOLO_DTYPE_I32, 0));
        if (x != i) return wrong("broadcast", rank);
    }
    int32_t own = rank, all[16];
    KOLO_TRY(kolo_allgather(comm, &own, all, 1, KOLO_DTYPE_I32));
    for (int r = 0; r < size; r++) {
        if (all[r] != r) return wrong("gathered", rank);
    }
    return KOLO_OK;
}

static kolo_status run_everything(kolo_comm *comm, float *out, float *in) {
    static const kolo_algorithm algorithms[] = {
        KOLO_ALGORITHM_AUTO,        KOLO_ALGORITHM_RING, KOLO_ALGORITHM_TREE,
        KOLO_ALGORITHM_DOUBLE_TREE, KOLO_ALGORITHM_MESH, KOLO_ALGORITHM_HALVING_DOUBLING,
        KOLO_ALGORITHM_HIERARCHICAL};
    int size = kolo_comm_size(comm);
    KOLO_TRY(run_ahead(comm));
    KOLO_TRY(exchange_all(comm, out, in));
    for (size_t a = 0; a < KOLO_COUNT(algorithms); a++) KOLO_TRY(sum_by(comm, algorithms[a], out));
    for (int i = 0; i < COUNT; i++) out[i] = (float)kolo_comm_rank(comm);
    KOLO_TRY(kolo_alltoall(comm, out, in, (size_t)(COUNT / RANKS), KOLO_DTYPE_F32));
    for (int i = 0; i < size * (COUNT / RANKS); i++) {
        if (in[i] != (float)(i / (COUNT / RANKS))) return wrong("all-to-all", size);
    }
    return kolo_barrier(comm);
}

static kolo_status everything_body(kolo_comm *comm, const void *arg, void *result) {
    static float out[COUNT], in[COUNT];
    kolo_comm *sub;
    uint64_t flags = 7;
    int lost;
    KOLO_TRY(run_everything(comm, out, in));
    KOLO_TRY(run_near(comm));
    KOLO_TRY(kolo_comm_split(comm, kolo_comm_rank(comm) % 2, 0, &sub));
    KOLO_TRY(run_everything(sub, out, in));
    KOLO_TRY(kolo_comm_allow_shrink(comm));
    KOLO_TRY(kolo_comm_agree(comm, &flags, &lost));
    return flags == 7 && lost == 0 ? kolo_barrier(comm) : wrong("agreement", lost);
}

static void everything_works_on_demand(void **state) {
    static const rank_transport transports[] = {RANKS_TCP, RANKS_HOSTS};
    for (int i = 0; i < 4; i++) {
        rank_job job = {.n = RANKS,
                        .transport = transports[i % 2],
                        .body = everything_body,
                        .segment_bytes = 64 << 20};
        run_with("ring", job, i >= 2);
    }
}

/* ---- failures of ranks that are not connected ---- */

/* Rank 3 is killed, which rank 0 waits for in no way. */
static kolo_status killed_body(kolo_comm *comm, const void *arg, void *result) {
    int rank = kolo_comm_rank(comm);
    int32_t x = 0;
    kolo_status status = kolo_barrier(comm); /* which it may end too */
    if (rank == 3) raise(SIGKILL);
    if (status == KOLO_OK) {
        status = kolo_recv(comm, &x, 1, KOLO_DTYPE_I32, rank == 0 ? 1 : 0, 0);
    }
    if (status != KOLO_ERR_PEER || !strstr(kolo_last_error(), "rank 3 is gone")) {
        return wrong("a death", rank);
    }
    return KOLO_OK;
}

static void the_end_of_a_rank_is_known_to_all(void **state) {
    rank_outcome outcomes[RANKS];
    rank_job job = {.n = RANKS, .transport = RANKS_TCP, .body = killed_body, .outcomes = outcomes};
    setenv("KOLO_CONNECTIONS", "ring", 1);
    (void)run_rank_job(&job);
    unsetenv("KOLO_CONNECTIONS");
    for (int r = 0; r < RANKS; r++) {
        if (r != 3 && outcomes[r].status != KOLO_OK) fail_msg("rank %d: %s", r, outcomes[r].error);
    }
    assert_int_equal(outcomes[3].signal, SIGKILL);
}

static bool has_ended(kolo_comm *comm, int peer) {
    KOLO_COMM_LOCK_SCOPE(comm);
    kolo_peer_state state;
    comm->transport->ops->peer_state(comm->transport, peer, &state);
    return state.ended;
}

static void await_stage(const flag *of, int stage) {
    while (atomic_load(&of->done) < stage) kolo_sleep_ns(kolo_ms_to_ns(1));
}

/* Rank 3 is killed. Rank 2 notices that, after the others, and ends; then rank 5 looks, which is
 * not connected to rank 2: a barrier connects ranks at distances of 1, 2 and 4. */
static kolo_status ended_body(kolo_comm *comm, const void *arg, void *result) {
    enum { NOTICED = 2, PASSED_ON, LOOKED };
    const int rank = kolo_comm_rank(comm);
    flag *own = result, *all = own - rank;
    KOLO_TRY(kolo_barrier(comm));
    await_all(own, rank, RANKS);
    if (rank == 3) raise(SIGKILL);
    for (int r = 0; rank == 2 && r < 5; r++) {
        if (r != 2 && r != 3) await_stage(&all[r], NOTICED);
    }
    if (rank == 5) await_stage(&all[0], PASSED_ON);
    kolo_status status = kolo_barrier(comm);
    const bool named = status == KOLO_ERR_PEER && strstr(kolo_last_error(), "rank 3 is gone") &&
                       !strstr(kolo_last_error(), "rank 2 is gone");
    status = named ? KOLO_OK : wrong("a death", rank);
    atomic_store(&own->done, rank == 5 ? LOOKED : NOTICED);
    while (rank == 0 && !has_ended(comm, 2)) {
        (void)kolo_comm_progress(comm);
        kolo_sleep_ns(kolo_ms_to_ns(1));
    }
    if (rank == 0) atomic_store(&own->done, PASSED_ON);
    if (rank != 2) await_stage(&all[5], LOOKED);
    return status;
}

static void a_rank_that_ended_for_another_is_not_named(void **state) {
    rank_outcome outcomes[RANKS];
    flag flags[RANKS];
    rank_job job = {.n = RANKS,
                    .transport = RANKS_TCP,
                    .body = ended_body,
                    .outcomes = outcomes,
                    .results = flags,
                    .result_bytes = sizeof flags[0]};
    setenv("KOLO_CONNECTIONS", "ring", 1);
    (void)run_rank_job(&job);
    unsetenv("KOLO_CONNECTIONS");
    for (int r = 0; r < RANKS; r++) {
        if (r != 3 && outcomes[r].status != KOLO_OK) fail_msg("rank %d: %s", r, outcomes[r].error);
    }
    assert_int_equal(outcomes[3].signal, SIGKILL);
}

/* Rank 0 aborts, while the others wait for each other. */
static kolo_status abort_body(kolo_comm *comm, const void *arg, void *result) {
    int rank = kolo_comm_rank(comm);
    int32_t x;
    kolo_status status = kolo_barrier(comm); /* which it may end too */
    if (rank == 0) {
        kolo_comm_abort(comm, "aborted by the test");
    } else if (status == KOLO_OK) {
        status = kolo_recv(comm, &x, 1, KOLO_DTYPE_I32, rank == 1 ? 2 : rank - 1, 0);
    }
    bool reported = rank == 0 || (status == KOLO_ERR_PEER &&
                                  strstr(kolo_last_error(), "rank 0 reports: aborted by the test"));
    if (!reported) status = wrong("an abort", rank);
    await_all(result, rank, RANKS);
    return reported ? KOLO_OK : status;
}

static void an_abort_reaches_all(void **state) {
    flag flags[RANKS];
    rank_job job = {.n = RANKS,
                    .transport = RANKS_TCP,
                    .body = abort_body,
                    .results = flags,
                    .result_bytes = sizeof flags[0]};
    run_with("ring", job, false);
}

/* Rank 3 does not come to a collective. */
static kolo_status late_body(kolo_comm *comm, const void *arg, void *result) {
    int rank = kolo_comm_rank(comm);
    kolo_status status = KOLO_OK;
    float x = 1;
    KOLO_TRY(kolo_barrier(comm));
    if (rank != 3) status = kolo_allreduce(comm, &x, 1, KOLO_DTYPE_F32, KOLO_SUM);
    bool named =
        rank == 3 || (status != KOLO_OK && strstr(kolo_last_error(), "not started by rank 3"));
    if (!named) status = wrong("a late rank", rank);
    await_all(result, rank, RANKS);
    return named ? KOLO_OK : status;
}

static void a_rank_that_does_not_start_is_named_by_all(void **state) {
    flag flags[RANKS];
    rank_job job = {.n = RANKS,
                    .transport = RANKS_TCP,
                    .body = late_body,
                    .results = flags,
                    .result_bytes = sizeof flags[0],
                    .timeout_ms = 4000};
    run_with("ring", job, false);
}

/* Rank 3 has left a sub-group before rank 0 needs it there. */
static kolo_status left_body(kolo_comm *comm, const void *arg, void *result) {
    int rank = kolo_comm_rank(comm);
    kolo_comm *sub;
    int32_t x = 0;
    kolo_status status = KOLO_ERR_PEER;
    const int colour = rank % 3 == 0 ? 0 : 1;
    KOLO_TRY(kolo_comm_split(comm, colour, 0, &sub));
    if (rank == 3) kolo_comm_destroy(sub);
    KOLO_TRY(kolo_barrier(comm));
    if (rank == 0) status = kolo_recv(sub, &x, 1, KOLO_DTYPE_I32, 1, 0);
    if (status != KOLO_ERR_PEER ||
        (rank == 0 && !strstr(kolo_last_error(), "has left the group"))) {
        return wrong("it has left", rank);
    }
    return kolo_barrier(comm);
}

static void a_rank_that_has_left_is_known_to_have(void **state) {
    rank_job job = {.n = RANKS, .transport = RANKS_TCP, .body = left_body};
    run_with("ring", job, false);
}

/* Ranks 2 and 4 die, and the others go on, twice. */
static kolo_status shrink_body(kolo_comm *comm, const void *arg, void *result) {
    int rank = kolo_comm_rank(comm);
    kolo_comm *now = comm;
    uint64_t flags = 1;
    KOLO_TRY(kolo_comm_allow_shrink(comm));
    KOLO_TRY(kolo_comm_agree(comm, &flags, NULL)); /* all have it */
    for (int victim = 2; victim <= 4; victim += 2) {
        int32_t x = 1;
        if (rank == victim) raise(SIGKILL);
        if (kolo_allreduce(now, &x, 1, KOLO_DTYPE_I32, KOLO_SUM) != KOLO_ERR_PEER) {
            return wrong("a death", rank);
        }
        KOLO_TRY(kolo_comm_shrink(now, &now));
        KOLO_TRY(kolo_allreduce(now, &rank, 1, KOLO_DTYPE_I32, KOLO_SUM));
        int all = RANKS * (RANKS - 1) / 2, want = victim == 2 ? all - 2 : all - 6;
        if (rank != want) return wrong("the sum of those that live", rank);
        rank = kolo_comm_rank(comm);
        KOLO_TRY(kolo_comm_agree(now, &flags, NULL)); /* all have it */
    }
    return KOLO_OK;
}

static void the_others_go_on(void **state) {
    rank_outcome outcomes[RANKS];
    static const rank_transport transports[] = {RANKS_TCP, RANKS_HOSTS};
    for (size_t t = 0; t < KOLO_COUNT(transports); t++) {
        rank_job job = {
            .n = RANKS, .transport = transports[t], .body = shrink_body, .outcomes = outcomes};
        setenv("KOLO_CONNECTIONS", "ring", 1);
        (void)run_rank_job(&job);
        unsetenv("KOLO_CONNECTIONS");
        for (int r = 0; r < RANKS; r++) {
            bool victim = r == 2 || r == 4;
            if (!victim && outcomes[r].status != KOLO_OK) {
                fail_msg("transport %d, rank %d: %s", (int)t, r, outcomes[r].error);
            }
        }
    }
}

/* ---- addresses ---- */

/* Rank 0 has several addresses, and sends to rank 2, which is on its host and needs it later. */
static kolo_status addresses_body(kolo_comm *none, const void *arg, void *result) {
    kolo_comm_opts opts = ranks_own_opts();
    const int rank = ranks_own_rank();
    int32_t x = rank == 0 ? 7 : 0;
    kolo_comm *comm;
    if (setenv("MASTER_ADDR", "127.0.0.1,127.0.0.2", 1) != 0) return KOLO_ERR_IO;
    KOLO_TRY(kolo_comm_create(&opts, &comm));
    kolo_status status = KOLO_OK;
    if (rank == 0) status = kolo_send(comm, &x, 1, KOLO_DTYPE_I32, 2, 0);
    if (rank == 2) kolo_sleep_ns(kolo_ms_to_ns(100));
    if (rank == 2) status = kolo_recv(comm, &x, 1, KOLO_DTYPE_I32, 0, 0);
    if (rank == 2 && status == KOLO_OK && x != 7) status = wrong("a message", rank);
    if (status == KOLO_OK) status = kolo_barrier(comm);
    kolo_comm_destroy(comm);
    return status;
}

static void rank_0_connects_to_ranks_of_its_host(void **state) {
    rank_job job = {.n = 4, .transport = RANKS_TCP, .body = addresses_body, .bare = true};
    run_with("ring", job, false);
}

/* ---- the variable ---- */

static kolo_status refused_body(kolo_comm *comm, const void *arg, void *result) {
    kolo_comm_opts opts = ranks_own_opts();
    kolo_comm *made;
    if (kolo_comm_create(&opts, &made) != KOLO_ERR_ARG ||
        !strstr(kolo_last_error(), "KOLO_CONNECTIONS is 'few': must be all, near or ring")) {
        return wrong("the variable", 0);
    }
    return KOLO_OK;
}

static void another_value_is_refused(void **state) {
    rank_job job = {.n = 2, .transport = RANKS_TCP, .body = refused_body, .bare = true};
    run_with("few", job, false);
}

TEST_MAIN(test_comm_sparse) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_those_that_need_each_other_are_connected),
        cmocka_unit_test(many_ranks_have_few_connections),
        cmocka_unit_test(only_needed_ranks_are_connected_by_what_is_not_regular),
        cmocka_unit_test(agreements_connect_few_ranks),
        cmocka_unit_test(the_others_go_around_ranks_that_have_ended),
        cmocka_unit_test(many_ranks_agree),
        cmocka_unit_test(all_others_may_have_left),
        cmocka_unit_test(ranks_that_disagree_are_named),
        cmocka_unit_test(everything_works_on_demand),
        cmocka_unit_test(the_end_of_a_rank_is_known_to_all),
        cmocka_unit_test(a_rank_that_ended_for_another_is_not_named),
        cmocka_unit_test(an_abort_reaches_all),
        cmocka_unit_test(a_rank_that_does_not_start_is_named_by_all),
        cmocka_unit_test(a_rank_that_has_left_is_known_to_have),
        cmocka_unit_test(the_others_go_on),
        cmocka_unit_test(rank_0_connects_to_ranks_of_its_host),
        cmocka_unit_test(another_value_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

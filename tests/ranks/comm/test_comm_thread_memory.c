/* Ranks that are threads access each other's memory in place. A rank that fails or leaves while a
 * peer is in the middle of that waits for it, since the program may free the memory next; and a
 * peer that comes later does not access it. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/compiler.h"
#include "base/status.h"
#include "comm/engine/comm.h"
#include "comm/engine/request.h"
#include "comm/transport/shm/control_block.h"
#include "kolo/embed.h"
#include "support/ranks.h"
#include "support/support.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { COUNT = 64 << 10, BYTES = COUNT * sizeof(int32_t), GRACE_NS = 50000000 };

/* How rank 0 ends what is in flight, and by which text rank 1 learns that. */
typedef struct ending {
    bool aborts; /* the whole group; else it destroys a sub-group */
    const char *error;
} ending;

static const ending endings[] = {{true, "rank 0 reports: aborted by the test"},
                                 {false, "has left the group"}};

/* Between the ranks: rank 0 has started; rank 1 is ready, is in the middle of rank 0's memory; rank
 * 0 begins to end, has ended. */
static _Atomic bool started, ready, reading, ending_now, has_ended;
static bool ended_too_early;

/* In the middle of an access, by rank 1: gives rank 0 time to end, which it must not. */
static void stay(void) {
    atomic_store(&reading, true);
    while (!atomic_load(&ending_now)) sched_yield();
    int64_t until_ns = kolo_now_ns() + GRACE_NS;
    while (!atomic_load(&has_ended) && kolo_now_ns() < until_ns) sched_yield();
    ended_too_early = atomic_load(&has_ended);
}

static int32_t *map_vector(int protection) {
    void *data = mmap(NULL, BYTES, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) abort();
    return data;
}

/* ---- the two ways of access ---- */

static kolo_status add(void *arg, void *to, const void *from, size_t count) {
    int32_t *x = to;
    const int32_t *y = from;
    if (*(const int *)arg == 1 && !atomic_load(&reading)) stay();
    for (size_t i = 0; i < count; i++) x[i] += y[i];
    return KOLO_OK;
}

static kolo_status make_sum(kolo_comm *comm, int *rank, int32_t *data, kolo_request **q) {
    const kolo_user_op op = {.name = "add", .combine = add, .arg = rank, .commutative = true};
    return kolo_request_create(comm,
                               &(kolo_request_opts){.kind = KOLO_COLLECTIVE_ALLREDUCE,
                                                    .dtype = KOLO_DTYPE_I32,
                                                    .user_op = &op,
                                                    .output = data,
                                                    .count = COUNT,
                                                    .algorithm = KOLO_ALGORITHM_DIRECT},
                               q);
}

static kolo_status make_message(kolo_comm *comm, int *rank, int32_t *data, kolo_request **q) {
    bool sends = *rank == 0;
    return kolo_request_create(
        comm,
        &(kolo_request_opts){.kind = sends ? KOLO_COLLECTIVE_SEND : KOLO_COLLECTIVE_RECV,
                             .dtype = KOLO_DTYPE_I32,
                             .input = sends ? data : NULL,
                             .output = sends ? NULL : data,
                             .count = COUNT,
                             .root = 1 - *rank},
        q);
}

typedef struct access_case {
    kolo_status (*make)(kolo_comm *comm, int *rank, int32_t *data, kolo_request **q);
    bool faults; /* rank 1 is stopped by a page that it may not write */
    const ending *end;
} access_case;

static int32_t *fault_page;

/* The first write into the vector of rank 1, by memcpy. */
static void on_fault(int sig, siginfo_t *info, void *context) {
    if (info->si_addr < (void *)fault_page || info->si_addr >= (void *)(fault_page + COUNT))
        abort();
    stay();
    if (mprotect(fault_page, BYTES, PROT_READ | PROT_WRITE) != 0) abort();
}

/* ---- in the middle of an access ---- */

static kolo_status expect_error(kolo_status status, const char *text) {
    if (status == KOLO_ERR_PEER && strstr(kolo_last_error(), text)) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "%d: %.400s", (int)status, status ? kolo_last_error() : "");
}

static void await(_Atomic bool *flag) {
    while (!atomic_load(flag)) sched_yield();
}

static kolo_status run_to_end(kolo_request *q) {
    kolo_status status = q->state == REQUEST_IDLE ? kolo_request_start(q) : KOLO_OK;
    return status == KOLO_OK ? kolo_request_wait(q, 0) : status;
}

static void end_group(kolo_comm *comm, kolo_comm *sub, const ending *end) {
    if (end->aborts) {
        kolo_comm_abort(comm, "aborted by the test");
    } else {
        kolo_comm_destroy(sub);
    }
}

static kolo_status middle_body(kolo_comm *comm, const void *arg, void *result) {
    const access_case *c = arg;
    int rank = kolo_comm_rank(comm);
    kolo_comm *sub;
    kolo_request *q;
    bool complete;
    int32_t *data = map_vector(rank == 1 && c->faults ? PROT_NONE : PROT_READ | PROT_WRITE);
    if (rank == 1) fault_page = data;
    KOLO_TRY(kolo_comm_split(comm, 0, 0, &sub));
    KOLO_TRY(c->make(sub, &rank, data, &q));
    if (rank == 1) {
        kolo_status status = expect_error(run_to_end(q), c->end->error);
        munmap(data, BYTES);
        return status;
    }
    KOLO_TRY(kolo_request_start(q));
    while (!atomic_load(&reading)) KOLO_TRY(kolo_request_test(q, &complete));
    atomic_store(&ending_now, true);
    end_group(comm, sub, c->end);
    atomic_store(&has_ended, true);
    munmap(data, BYTES);
    return KOLO_OK;
}

static void run_middle(const access_case *c) {
    atomic_store(&reading, false);
    atomic_store(&ending_now, false);
    atomic_store(&has_ended, false);
    ended_too_early = false;
    ASSERT_OK(run_ranks(2, RANKS_THREAD, middle_body, c, sizeof *c));
    assert_true(atomic_load(&has_ended));
    assert_false(ended_too_early);
}

static void a_rank_ends_after_the_sums_of_its_peers(void **state) {
    for (size_t e = 0; e < KOLO_COUNT(endings); e++) {
        run_middle(&(access_case){.make = make_sum, .end = &endings[e]});
    }
}

static void a_rank_ends_after_the_copies_of_its_peers(void **state) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO}, before;
    assert_int_equal(sigaction(SIGSEGV, &action, &before), 0);
    for (size_t e = 0; e < KOLO_COUNT(endings); e++) {
        run_middle(&(access_case){.make = make_message, .faults = true, .end = &endings[e]});
    }
    assert_int_equal(sigaction(SIGSEGV, &before, NULL), 0);
}

/* ---- later ---- */

static bool is_posted(const kolo_comm *sub, const kolo_request *q) {
    enum { FRAMES = 3 }; /* an offer, and two of the body: its head, and the data */
    const kolo_block_transport *t = (const kolo_block_transport *)sub->transport;
    const kolo_channel *to_1 = &t->blocks[0]->channels[KOLO_FLIGHT_MAX * sub->size + 1];
    return q->kind != KOLO_COLLECTIVE_SEND || atomic_load(&to_1->posted) >= FRAMES;
}

/* Rank 0 has announced its vector, and ends before rank 1 looks at it. */
static kolo_status later_body(kolo_comm *comm, const void *arg, void *result) {
    const access_case *c = arg;
    int rank = kolo_comm_rank(comm);
    kolo_comm *sub;
    kolo_request *q;
    bool complete = false;
    int32_t *data = map_vector(PROT_READ | PROT_WRITE);
    KOLO_TRY(kolo_comm_split(comm, 0, 0, &sub));
    KOLO_TRY(c->make(sub, &rank, data, &q));
    if (rank == 1) {
        await(&started);
        if (q->kind == KOLO_COLLECTIVE_RECV) KOLO_TRY(kolo_request_start(q)); /* takes the offer */
        atomic_store(&ready, true);
        await(&has_ended);
        kolo_status status = expect_error(run_to_end(q), c->end->error);
        munmap(data, BYTES);
        return status;
    }
    KOLO_TRY(kolo_request_start(q));
    KOLO_TRY(kolo_request_test(q, &complete));
    atomic_store(&started, true);
    while (!atomic_load(&ready) || !is_posted(sub, q)) KOLO_TRY(kolo_request_test(q, &complete));
    end_group(comm, sub, c->end);
    munmap(data, BYTES);
    atomic_store(&has_ended, true);
    return KOLO_OK;
}

static void the_memory_of_a_rank_that_has_ended_is_not_accessed(void **state) {
    for (size_t e = 0; e < KOLO_COUNT(endings); e++) {
        const access_case cases[] = {{.make = make_sum, .end = &endings[e]},
                                     {.make = make_message, .end = &endings[e]}};
        for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
            atomic_store(&started, false);
            atomic_store(&ready, false);
            atomic_store(&has_ended, false);
            atomic_store(&reading, true); /* a sum does not stay */
            ASSERT_OK(run_ranks(2, RANKS_THREAD, later_body, &cases[i], sizeof cases[i]));
        }
    }
}

/* ---- a rank that has left in order ---- */

static const kolo_transport_ops *thread_ops;
static kolo_comm *sender; /* NULL: it has left */
static kolo_request *sent;

/* Once all data is copied the send is complete, and its rank leaves. */
static kolo_status recv_last(kolo_transport *t, uint64_t seq, int peer, void *data, size_t bytes,
                             size_t *received, bool *arrived) {
    bool complete;
    KOLO_TRY(thread_ops->recv(t, seq, peer, data, bytes, received, arrived));
    if (!sender || *received < BYTES) return KOLO_OK;
    ASSERT_OK(kolo_request_test(sent, &complete));
    assert_true(complete);
    kolo_comm_destroy(sender);
    sender = NULL;
    return KOLO_OK;
}

static kolo_request *make_pending(kolo_comm *comm, const kolo_request_opts *opts) {
    kolo_request *q;
    ASSERT_OK(kolo_request_create(comm, opts, &q));
    ASSERT_OK(kolo_request_start(q));
    return q;
}

/* Rank 2 leaves with a receive in flight, which sets the alarm of all; rank 1 leaves after its
 * message has been copied, before that is complete at rank 0. */
static void the_message_of_a_rank_that_has_left_in_order_is_taken(void **state) {
    static int32_t from[COUNT], to[COUNT];
    kolo_comm *comms[3];
    ASSERT_OK(kolo_comm_create_threads(3, NULL, comms));
    kolo_transport *t = comms[0]->transport;
    kolo_transport_ops ops = *t->ops;
    const kolo_request_opts send = {
        .kind = KOLO_COLLECTIVE_SEND, .dtype = KOLO_DTYPE_I32, .input = from, .count = COUNT};
    const kolo_request_opts recv = {.kind = KOLO_COLLECTIVE_RECV,
                                    .dtype = KOLO_DTYPE_I32,
                                    .output = to,
                                    .count = COUNT,
                                    .root = 1};
    int32_t never;
    for (int i = 0; i < COUNT; i++) from[i] = i;
    (void)make_pending(
        comms[2], &(kolo_request_opts){.kind = KOLO_COLLECTIVE_RECV, .output = &never, .count = 1});
    kolo_comm_destroy(comms[2]);
    thread_ops = t->ops;
    ops.recv = recv_last;
    t->ops = &ops;
    sender = comms[1];
    sent = make_pending(comms[1], &send);
    kolo_request *received = make_pending(comms[0], &recv);
    for (bool complete = false; !complete;) {
        bool unused;
        ASSERT_OK(kolo_request_test(received, &complete));
        if (sender) ASSERT_OK(kolo_request_test(sent, &unused));
    }
    assert_null(sender);
    assert_memory_equal(to, from, sizeof to);
    t->ops = thread_ops;
    kolo_comm_destroy(comms[0]);
}

TEST_MAIN(test_comm_thread_memory) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_ends_after_the_sums_of_its_peers),
        cmocka_unit_test(a_rank_ends_after_the_copies_of_its_peers),
        cmocka_unit_test(the_memory_of_a_rank_that_has_ended_is_not_accessed),
        cmocka_unit_test(the_message_of_a_rank_that_has_left_in_order_is_taken),
    };
    return cmocka_run_group_tests_name("comm_thread_memory", tests, NULL, NULL);
}

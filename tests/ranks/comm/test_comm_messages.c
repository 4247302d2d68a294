/* Sends and receives: order within a tag, several in flight, any size, beside collectives; what
 * does not match, and which rank is waited for. */
#include "base/compiler.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/engine/comm.h"
#include "comm/engine/request.h"
#include "comm/transport/shm/control_block.h"
#include "kolo/embed.h"
#include "support/ranks.h"
#include "support/support.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

static kolo_status make(kolo_comm *comm, kolo_collective kind, void *data, size_t count, int peer,
                        int tag, kolo_request **q) {
    bool send = kind == KOLO_COLLECTIVE_SEND;
    return kolo_request_create(comm,
                               &(kolo_request_opts){.kind = kind,
                                                    .dtype = KOLO_DTYPE_I32,
                                                    .input = send ? data : NULL,
                                                    .output = send ? NULL : data,
                                                    .count = count,
                                                    .root = peer,
                                                    .tag = tag,
                                                    .site = "message"},
                               q);
}

static void fill(int32_t *data, size_t n, int32_t first) {
    for (size_t i = 0; i < n; i++) data[i] = first + (int32_t)i;
}

static kolo_status check(const int32_t *data, size_t n, int32_t first, const char *what) {
    for (size_t i = 0; i < n; i++) {
        if (data[i] != first + (int32_t)i) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: element %zu is %d, not %d", what, i,
                             (int)data[i], (int)(first + (int32_t)i));
        }
    }
    return KOLO_OK;
}

typedef enum reach { STAGED, REGISTERED, READ, REACHES } reach;

/* Sizes around a ring of ranks, in registered memory, or private memory that is staged or read by
 * the receiver (where the system allows that). */
static kolo_status ring_body(kolo_comm *comm, const void *arg, void *result) {
    static const size_t counts[] = {0, 1, 7, 1009, 131071, 400000};
    int n = kolo_comm_size(comm), rank = kolo_comm_rank(comm);
    reach how;
    memcpy(&how, arg, sizeof how);
    bool registered = how == REGISTERED;
    comm->transport->reads_private = how == READ;
    size_t most = counts[KOLO_COUNT(counts) - 1] * sizeof(int32_t);
    void *memory[2] = {NULL};
    for (int i = 0; i < 2; i++) {
        if (registered) KOLO_TRY(kolo_comm_alloc(comm, most, &memory[i]));
        if (!registered) memory[i] = kolo_alloc(most);
        if (!memory[i]) return KOLO_NOMEM(most);
    }
    kolo_status status = KOLO_OK;
    for (size_t i = 0; i < KOLO_COUNT(counts) && status == KOLO_OK; i++) {
        int next = (rank + 1) % n, before = (rank + n - 1) % n;
        kolo_request *out, *in;
        fill(memory[0], counts[i], 1000 * rank);
        fill(memory[1], counts[i], -1);
        KOLO_TRY(make(comm, KOLO_COLLECTIVE_SEND, memory[0], counts[i], next, 5, &out));
        KOLO_TRY(make(comm, KOLO_COLLECTIVE_RECV, memory[1], counts[i], before, 5, &in));
        for (int repeat = 0; repeat < 2; repeat++) { /* persistent */
            KOLO_TRY(kolo_request_start(out));
            KOLO_TRY(kolo_request_start(in));
            KOLO_TRY(kolo_request_wait(in, 0));
            KOLO_TRY(kolo_request_wait(out, 0));
            status = check(memory[1], counts[i], 1000 * before, "around the ring");
        }
        if (kolo_request_traffic(out).sent != 2 * counts[i]) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "the counters of a send are wrong");
        }
        kolo_request_destroy(out);
        kolo_request_destroy(in);
    }
    for (int i = 0; i < 2 && !registered; i++) kolo_free(memory[i]);
    return status;
}

/* Large private vectors: what is read from the peers is combined right. */
static kolo_status reading_body(kolo_comm *comm, const void *arg, void *result) {
    enum { COUNT = 100003 };
    int n = kolo_comm_size(comm), rank = kolo_comm_rank(comm);
    comm->transport->reads_private = true;
    int32_t *data = kolo_alloc(COUNT * sizeof *data);
    if (!data) return KOLO_NOMEM(COUNT);
    kolo_status status = KOLO_OK;
    for (int repeat = 0; repeat < 3 && status == KOLO_OK; repeat++) {
        for (int32_t i = 0; i < COUNT; i++) data[i] = (rank + 1) * (i % 1000);
        status = kolo_allreduce(comm, data, COUNT, KOLO_DTYPE_I32, KOLO_SUM);
        for (int32_t i = 0; i < COUNT && status == KOLO_OK; i++) {
            if (data[i] != n * (n + 1) / 2 * (i % 1000)) {
                status = KOLO_FAIL(KOLO_ERR_FORMAT, "element %d is %d", (int)i, (int)data[i]);
            }
        }
    }
    kolo_free(data);
    return status;
}

static void private_memory_is_read_where_it_lies(void **state) {
    for (int n = 2; n <= 3; n++) ASSERT_OK(run_ranks(n, RANKS_SHM, reading_body, NULL, 0));
}

static void messages_of_any_size_go_around(void **state) {
    for (int how = STAGED; how < REACHES; how++) {
        reach arg = (reach)how;
        for (int n = 2; n <= 4; n++) {
            ASSERT_OK(run_ranks(n, RANKS_THREAD, ring_body, &arg, sizeof arg));
        }
        ASSERT_OK(run_ranks(2, RANKS_SHM, ring_body, &arg, sizeof arg));
        ASSERT_OK(run_ranks(2, RANKS_TCP, ring_body, &arg, sizeof arg));
        if (ranks_have(RANKS_UCX)) ASSERT_OK(run_ranks(3, RANKS_UCX, ring_body, &arg, sizeof arg));
        ASSERT_OK(run_ranks(3, RANKS_SHM, ring_body, &arg, sizeof arg));
        ASSERT_OK(run_ranks(3, RANKS_HOSTS, ring_body, &arg, sizeof arg));
    }
}

enum { TAGS = 3, EACH = 4, LENGTH = 500 };

/* Rank 0 sends by tag in one order, rank 1 receives in another; a collective is in flight
 * meanwhile; within a tag the order holds. */
static kolo_status order_body(kolo_comm *comm, const void *arg, void *result) {
    static int32_t data[2][TAGS * EACH][LENGTH]; /* [rank]: threads share it */
    int rank = kolo_comm_rank(comm);
    kolo_request *q[TAGS * EACH], *all;
    int32_t one = 1;
    kolo_part part = {.data = &one, .count = 1};
    KOLO_TRY(kolo_allreduce_create(comm, &part, 1, KOLO_DTYPE_I32, KOLO_SUM, KOLO_ALGORITHM_AUTO,
                                   "beside", &all));
    for (int i = 0; i < TAGS * EACH; i++) {
        int tag = rank == 0 ? i % TAGS : TAGS - 1 - i / EACH;
        int k = rank == 0 ? i / TAGS : i % EACH; /* of this tag */
        fill(data[rank][i], LENGTH, rank == 0 ? 10000 * tag + 1000 * k : -1);
        KOLO_TRY(make(comm, rank == 0 ? KOLO_COLLECTIVE_SEND : KOLO_COLLECTIVE_RECV, data[rank][i],
                      LENGTH, 1 - rank, tag, &q[i]));
    }
    for (int i = 0; i < TAGS * EACH; i++) {
        KOLO_TRY(kolo_request_start(q[i]));
        if (i == 3) KOLO_TRY(kolo_request_start(all));
    }
    for (int i = TAGS * EACH - 1; i >= 0; i--) KOLO_TRY(kolo_request_wait(q[i], 0));
    KOLO_TRY(kolo_request_wait(all, 0));
    if (one != 2) return KOLO_FAIL(KOLO_ERR_FORMAT, "the collective beside them gave %d", (int)one);
    for (int i = 0; i < TAGS * EACH && rank == 1; i++) {
        int tag = TAGS - 1 - i / EACH, k = i % EACH;
        KOLO_TRY(check(data[1][i], LENGTH, 10000 * tag + 1000 * k, "in order"));
    }
    return KOLO_OK;
}

static void order_holds_within_a_tag_and_not_between(void **state) {
    ASSERT_OK(run_ranks(2, RANKS_THREAD, order_body, NULL, 0));
    ASSERT_OK(run_ranks(2, RANKS_SHM, order_body, NULL, 0));
    ASSERT_OK(run_ranks(2, RANKS_TCP, order_body, NULL, 0));
    if (ranks_have(RANKS_UCX)) ASSERT_OK(run_ranks(2, RANKS_UCX, order_body, NULL, 0));
}

/* One at a time, the second tag first: nothing is buffered that could block it. */
static kolo_status overtake_body(kolo_comm *comm, const void *arg, void *result) {
    int32_t a[LENGTH], b[LENGTH];
    kolo_request *first, *second;
    if (kolo_comm_rank(comm) == 0) {
        fill(a, LENGTH, 1);
        fill(b, LENGTH, 2);
        KOLO_TRY(make(comm, KOLO_COLLECTIVE_SEND, a, LENGTH, 1, 1, &first));
        KOLO_TRY(make(comm, KOLO_COLLECTIVE_SEND, b, LENGTH, 1, 2, &second));
        KOLO_TRY(kolo_request_start(first));
        KOLO_TRY(kolo_request_start(second));
        KOLO_TRY(kolo_request_wait(second, 0));
        return kolo_request_wait(first, 0);
    }
    KOLO_TRY(kolo_recv(comm, b, LENGTH, KOLO_DTYPE_I32, 0, 2));
    KOLO_TRY(check(b, LENGTH, 2, "the second"));
    KOLO_TRY(kolo_recv(comm, a, LENGTH, KOLO_DTYPE_I32, 0, 1));
    return check(a, LENGTH, 1, "the first");
}

static void tags_overtake_each_other(void **state) {
    ASSERT_OK(run_ranks(2, RANKS_THREAD, overtake_body, NULL, 0));
    ASSERT_OK(run_ranks(2, RANKS_SHM, overtake_body, NULL, 0));
    ASSERT_OK(run_ranks(2, RANKS_TCP, overtake_body, NULL, 0));
    if (ranks_have(RANKS_UCX)) ASSERT_OK(run_ranks(2, RANKS_UCX, overtake_body, NULL, 0));
}

/* Polls a request once. */
static bool is_complete(kolo_request *q) {
    bool done;
    ASSERT_OK(kolo_request_test(q, &done));
    return done;
}

/* A message to a receive that waits is there after one poll of each side. Where the send is first,
 * its offer is granted; and where announcement and offer cross, the former is the grant. */
static void a_receive_that_waits_takes_one_poll(void **state) {
    enum { REPEATS = 3, ROOM = 5 * LENGTH };
    static int32_t data[2][ROOM];
    kolo_comm *comms[2];
    kolo_request *send, *receive;
    (void)state;
    ASSERT_OK(kolo_comm_create_threads(2, NULL, comms));
    ASSERT_OK(make(comms[0], KOLO_COLLECTIVE_SEND, data[0], ROOM, 1, 3, &send));
    ASSERT_OK(make(comms[1], KOLO_COLLECTIVE_RECV, data[1], ROOM, 0, 3, &receive));
    for (int i = 0; i < REPEATS; i++) {
        fill(data[0], ROOM, i);
        ASSERT_OK(kolo_request_start(receive));
        assert_false(is_complete(receive));
        ASSERT_OK(kolo_request_start(send));
        assert_false(is_complete(send));
        assert_true(is_complete(receive));
        assert_true(is_complete(send));
        ASSERT_OK(check(data[1], ROOM, i, "to a receive that waits"));
    }
    for (int crossed = 0; crossed < 2; crossed++) {
        fill(data[0], ROOM, 7 + crossed);
        ASSERT_OK(kolo_request_start(send));
        if (crossed) ASSERT_OK(kolo_request_start(receive));
        assert_false(is_complete(send));
        if (!crossed) ASSERT_OK(kolo_request_start(receive));
        for (bool sent = false, received = false; !sent || !received;) {
            received = received || is_complete(receive);
            sent = sent || is_complete(send);
        }
        ASSERT_OK(check(data[1], ROOM, 7 + crossed, "to a later receive"));
    }
    for (int r = 0; r < 2; r++) kolo_comm_destroy(comms[r]);
}

/* Receives of one rank and of any with one tag: messages stay in order. */
static void order_holds_beside_receives_from_any_rank(void **state) {
    enum { MESSAGES = 4 };
    static int32_t data[2][MESSAGES][LENGTH];
    kolo_comm *comms[2];
    kolo_request *send[MESSAGES], *receive[MESSAGES];
    (void)state;
    ASSERT_OK(kolo_comm_create_threads(2, NULL, comms));
    for (int i = 0; i < MESSAGES; i++) {
        const int from = i % 2 == 0 ? 0 : KOLO_ANY_RANK;
        fill(data[0][i], LENGTH, 100 * i);
        ASSERT_OK(make(comms[0], KOLO_COLLECTIVE_SEND, data[0][i], LENGTH, 1, 3, &send[i]));
        ASSERT_OK(make(comms[1], KOLO_COLLECTIVE_RECV, data[1][i], LENGTH, from, 3, &receive[i]));
    }
    for (int i = 0; i < MESSAGES; i++) {
        ASSERT_OK(kolo_request_start(receive[i]));
        (void)is_complete(receive[i]);
        ASSERT_OK(kolo_request_start(send[i]));
    }
    int left = 2 * MESSAGES;
    bool done[2 * MESSAGES] = {false};
    while (left > 0) {
        for (int i = 0; i < 2 * MESSAGES; i++) {
            if (done[i]) continue;
            done[i] = is_complete(i < MESSAGES ? receive[i] : send[i - MESSAGES]);
            left -= done[i];
        }
    }
    for (int i = 0; i < MESSAGES; i++) ASSERT_OK(check(data[1][i], LENGTH, 100 * i, "in order"));
    for (int r = 0; r < 2; r++) kolo_comm_destroy(comms[r]);
}

/* Receives of rank 0, of one tag: from any rank and from rank 1 in turn. One from rank 1 is
 * announced before a later one, whatever becomes of those from any rank. */
static void announcements_are_in_the_order_of_receives(void **state) {
    enum { MESSAGES = 4, ANY = KOLO_ANY_RANK };
    static const int from[MESSAGES] = {ANY, 1, ANY, 1}, by[MESSAGES] = {2, 2, 1, 1};
    static const int place[MESSAGES] = {0, 2, 1, 3}; /* the receive of each send */
    static int32_t sent[MESSAGES][LENGTH], received[MESSAGES][LENGTH];
    kolo_comm *comms[3];
    kolo_request *send[MESSAGES], *receive[MESSAGES];
    (void)state;
    ASSERT_OK(kolo_comm_create_threads(3, NULL, comms));
    for (int i = 0; i < MESSAGES; i++) {
        fill(sent[i], LENGTH, 100 * i);
        ASSERT_OK(make(comms[by[i]], KOLO_COLLECTIVE_SEND, sent[i], LENGTH, 0, 3, &send[i]));
        ASSERT_OK(
            make(comms[0], KOLO_COLLECTIVE_RECV, received[i], LENGTH, from[i], 3, &receive[i]));
        ASSERT_OK(kolo_request_start(receive[i]));
    }
    ASSERT_OK(kolo_request_start(send[0]));
    for (bool receives = true, sends = true; receives || sends;) {
        receives = !is_complete(receive[0]);
        sends = !is_complete(send[0]);
    }
    ASSERT_OK(kolo_request_start(send[1]));
    assert_false(is_complete(receive[2])); /* it has an offer, and none waits from any rank */
    ASSERT_OK(kolo_request_start(send[2]));
    ASSERT_OK(kolo_request_start(send[3]));
    for (int left = 2 * MESSAGES; left > 0;) {
        left = 2 * MESSAGES;
        for (int i = 0; i < 2 * MESSAGES; i++) {
            left -= is_complete(i < MESSAGES ? receive[i] : send[i - MESSAGES]);
        }
    }
    for (int i = 0; i < MESSAGES; i++) {
        ASSERT_OK(check(received[place[i]], LENGTH, 100 * i, "in the order of receives"));
    }
    for (int r = 0; r < 3; r++) kolo_comm_destroy(comms[r]);
}

static kolo_status mismatch_body(kolo_comm *comm, const void *arg, void *result) {
    int32_t data[8] = {0};
    kolo_status status = kolo_comm_rank(comm) == 0 ? kolo_send(comm, data, 8, KOLO_DTYPE_I32, 1, 4)
                                                   : kolo_recv(comm, data, 7, KOLO_DTYPE_I32, 0, 4);
    bool reported = status == KOLO_ERR_ARG &&
                    strstr(kolo_last_error(), "send (8 x i32, to rank 1)") &&
                    strstr(kolo_last_error(), "receive (7 x i32, from rank 0)");
    return reported
               ? KOLO_OK
               : KOLO_FAIL(KOLO_ERR_FORMAT, "%d: %s", (int)status, status ? kolo_last_error() : "");
}

static void messages_that_do_not_fit_are_an_error_on_both_sides(void **state) {
    ASSERT_OK(run_ranks(2, RANKS_THREAD, mismatch_body, NULL, 0));
}

/* A receive without a send: the deadline names the rank and the tag. */
static kolo_status alone_body(kolo_comm *comm, const void *arg, void *result) {
    int32_t one;
    if (kolo_comm_rank(comm) == 0) {
        kolo_status status = kolo_barrier(comm);
        return status == KOLO_ERR_TIMEOUT ? KOLO_OK : status;
    }
    kolo_request_opts o = {.kind = KOLO_COLLECTIVE_RECV,
                           .dtype = KOLO_DTYPE_I32,
                           .output = &one,
                           .count = 1,
                           .root = 0,
                           .tag = 9};
    kolo_status status = kolo_request_run(comm, &o, 30);
    bool reported = status == KOLO_ERR_TIMEOUT &&
                    strstr(kolo_last_error(), "no send with tag 9 was started by rank 0");
    return reported
               ? KOLO_OK
               : KOLO_FAIL(KOLO_ERR_FORMAT, "%d: %s", (int)status, status ? kolo_last_error() : "");
}

static void a_deadline_names_rank_and_tag(void **state) {
    ASSERT_OK(run_ranks(2, RANKS_THREAD, alone_body, NULL, 0));
}

/* ---- any rank, probe, send and receive at once ---- */

enum { ANY_TAG = 4, OWN_TAG = 5, FROM_EACH = 5, ANY_LENGTH = 300 };

/* Rank 0 receives from any rank, beside a message of rank 1 with another tag and collectives. The
 * messages of one rank arrive in order. */
static kolo_status take_from_any(kolo_comm *comm) {
    int32_t data[ANY_LENGTH], own[1], taken[8] = {0};
    kolo_request *any, *other;
    KOLO_TRY(make(comm, KOLO_COLLECTIVE_RECV, data, ANY_LENGTH, KOLO_ANY_RANK, ANY_TAG, &any));
    KOLO_TRY(make(comm, KOLO_COLLECTIVE_RECV, own, 1, 1, OWN_TAG, &other));
    KOLO_TRY(kolo_request_start(other));
    if (kolo_request_source(any) != KOLO_ANY_RANK) return KOLO_FAIL(KOLO_ERR_FORMAT, "a source");
    for (int i = 0; i < FROM_EACH * (kolo_comm_size(comm) - 1); i++) {
        KOLO_TRY(kolo_request_start(any));
        KOLO_TRY(kolo_request_wait(any, 0));
        int from = kolo_request_source(any);
        if (from < 1 || from >= kolo_comm_size(comm)) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "a message from rank %d", from);
        }
        KOLO_TRY(check(data, ANY_LENGTH, 1000 * from + taken[from]++, "from any rank"));
    }
    KOLO_TRY(kolo_request_start(any)); /* for the message after the barrier */
    KOLO_TRY(kolo_barrier(comm));
    KOLO_TRY(kolo_request_wait(other, 0));
    KOLO_TRY(check(own, 1, 42, "of another tag"));
    KOLO_TRY(kolo_request_wait(any, 0));
    return check(data, ANY_LENGTH, 7, "after the barrier");
}

static kolo_status any_body(kolo_comm *comm, const void *arg, void *result) {
    int32_t data[ANY_LENGTH], own = 42;
    int rank = kolo_comm_rank(comm), last = kolo_comm_size(comm) - 1;
    if (rank == 0) return take_from_any(comm);
    for (int i = 0; i < FROM_EACH; i++) {
        fill(data, ANY_LENGTH, 1000 * rank + i);
        KOLO_TRY(kolo_send(comm, data, ANY_LENGTH, KOLO_DTYPE_I32, 0, ANY_TAG));
    }
    if (rank == 1) KOLO_TRY(kolo_send(comm, &own, 1, KOLO_DTYPE_I32, 0, OWN_TAG));
    KOLO_TRY(kolo_barrier(comm));
    fill(data, ANY_LENGTH, 7);
    return rank == last ? kolo_send(comm, data, ANY_LENGTH, KOLO_DTYPE_I32, 0, ANY_TAG) : KOLO_OK;
}

static void a_message_is_received_from_any_rank(void **state) {
    ASSERT_OK(run_ranks(4, RANKS_THREAD, any_body, NULL, 0));
    ASSERT_OK(run_ranks(3, RANKS_SHM, any_body, NULL, 0));
    ASSERT_OK(run_ranks(3, RANKS_TCP, any_body, NULL, 0));
}

static kolo_status probe_until(kolo_comm *comm, int from, int tag, kolo_message *message) {
    for (bool found = false; !found;) KOLO_TRY(kolo_probe(comm, from, tag, &found, message));
    return KOLO_OK;
}

/* The length and the sender are not given; a message that was found is not removed. */
static kolo_status probe_body(kolo_comm *comm, const void *arg, void *result) {
    int rank = kolo_comm_rank(comm);
    int32_t data[ANY_LENGTH];
    size_t count = (size_t)(10 * rank);
    fill(data, ANY_LENGTH, rank);
    if (rank != 0) return kolo_send(comm, data, count, KOLO_DTYPE_I32, 0, 8);
    for (int i = 1; i < kolo_comm_size(comm); i++) {
        kolo_message m, again;
        bool found = true;
        KOLO_TRY(probe_until(comm, i == 1 ? 2 : KOLO_ANY_RANK, 8, &m));
        KOLO_TRY(probe_until(comm, m.from, 8, &again));
        if ((i == 1 && m.from != 2) || m.count != (size_t)(10 * m.from) || m.tag != 8 ||
            m.dtype != KOLO_DTYPE_I32 || again.count != m.count) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "found %zu from %d", m.count, m.from);
        }
        KOLO_TRY(kolo_probe(comm, m.from, 9, &found, &again));
        if (found) return KOLO_FAIL(KOLO_ERR_FORMAT, "found a message of tag 9");
        KOLO_TRY(kolo_recv(comm, data, m.count, KOLO_DTYPE_I32, m.from, 8));
        KOLO_TRY(check(data, m.count, m.from, "a message that was found"));
    }
    bool found;
    kolo_message m;
    kolo_status status = KOLO_OK; /* all others leave */
    while (status == KOLO_OK) status = kolo_probe(comm, KOLO_ANY_RANK, 8, &found, &m);
    if (status != KOLO_ERR_PEER || !strstr(kolo_last_error(), "have left the group")) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%d: %s", (int)status, kolo_last_error());
    }
    status = kolo_probe(comm, 0, 8, &found, &m);
    return status == KOLO_ERR_ARG ? KOLO_OK : KOLO_FAIL(KOLO_ERR_FORMAT, "probed itself");
}

static void a_probe_finds_a_message_and_leaves_it(void **state) {
    ASSERT_OK(run_ranks(3, RANKS_THREAD, probe_body, NULL, 0));
    ASSERT_OK(run_ranks(3, RANKS_SHM, probe_body, NULL, 0));
    ASSERT_OK(run_ranks(3, RANKS_TCP, probe_body, NULL, 0));
}

enum { EXCHANGED_MOST = 100000 };

static kolo_status exchange(kolo_comm *comm, int32_t *out, int32_t *in) {
    int n = kolo_comm_size(comm), rank = kolo_comm_rank(comm);
    int next = (rank + 1) % n, before = (rank + n - 1) % n;
    fill(out, EXCHANGED_MOST, rank);
    for (int i = 0; i < 3; i++) { /* each rank sends another number */
        size_t count = (size_t)(EXCHANGED_MOST - 10 * rank);
        size_t expected = (size_t)(EXCHANGED_MOST - 10 * before);
        int from = i < 2 ? before : KOLO_ANY_RANK;
        KOLO_TRY(kolo_sendrecv(comm, out, count, next, in, expected, from, KOLO_DTYPE_I32, i));
        KOLO_TRY(check(in, expected, before, "exchanged"));
    }
    kolo_status status = kolo_sendrecv(comm, out, 1, rank, in, 1, before, KOLO_DTYPE_I32, 0);
    return status == KOLO_ERR_ARG ? KOLO_OK : KOLO_FAIL(KOLO_ERR_FORMAT, "sent to itself");
}

static kolo_status exchange_body(kolo_comm *comm, const void *arg, void *result) {
    int32_t *data = kolo_alloc(2 * EXCHANGED_MOST * sizeof *data);
    if (!data) return KOLO_NOMEM(2 * EXCHANGED_MOST * sizeof *data);
    kolo_status status = exchange(comm, data, data + EXCHANGED_MOST);
    kolo_free(data);
    return status;
}

static void ranks_send_and_receive_at_once(void **state) {
    ASSERT_OK(run_ranks(2, RANKS_THREAD, exchange_body, NULL, 0));
    ASSERT_OK(run_ranks(3, RANKS_SHM, exchange_body, NULL, 0));
    ASSERT_OK(run_ranks(3, RANKS_TCP, exchange_body, NULL, 0));
}

/* The deadline of a receive from any rank, or the end of all others. */
static kolo_status any_alone_body(kolo_comm *comm, const void *arg, void *result) {
    int32_t one;
    bool leaves = *(const bool *)arg;
    kolo_request_opts o = {.kind = KOLO_COLLECTIVE_RECV,
                           .dtype = KOLO_DTYPE_I32,
                           .output = &one,
                           .count = 1,
                           .root = KOLO_ANY_RANK,
                           .tag = 9};
    if (kolo_comm_rank(comm) > 0 && leaves) return KOLO_OK;
    if (kolo_comm_rank(comm) > 0) {
        kolo_status status = kolo_barrier(comm);
        return status == KOLO_ERR_TIMEOUT ? KOLO_OK : status;
    }
    kolo_status status = kolo_request_run(comm, &o, leaves ? 0 : 30);
    bool right = leaves
                     ? status == KOLO_ERR_PEER &&
                           strstr(kolo_last_error(), "all other ranks have left the group")
                     : status == KOLO_ERR_TIMEOUT &&
                           strstr(kolo_last_error(), "no send with tag 9 was started by any rank");
    return right ? KOLO_OK : KOLO_FAIL(KOLO_ERR_FORMAT, "%d: %s", (int)status, kolo_last_error());
}

static void a_receive_from_any_rank_does_not_hang(void **state) {
    for (int leaves = 0; leaves < 2; leaves++) {
        bool arg = leaves;
        ASSERT_OK(run_ranks(3, RANKS_THREAD, any_alone_body, &arg, sizeof arg));
        ASSERT_OK(run_ranks(3, RANKS_TCP, any_alone_body, &arg, sizeof arg));
    }
}

/* A rank that leaves with a message open is a lost peer. */
static kolo_status leave_body(kolo_comm *comm, const void *arg, void *result) {
    int32_t one;
    if (kolo_comm_rank(comm) == 0) return KOLO_OK;
    kolo_status status = kolo_recv(comm, &one, 1, KOLO_DTYPE_I32, 0, 0);
    bool reported =
        status == KOLO_ERR_PEER && strstr(kolo_last_error(), "rank 0 has left the group");
    return reported
               ? KOLO_OK
               : KOLO_FAIL(KOLO_ERR_FORMAT, "%d: %s", (int)status, status ? kolo_last_error() : "");
}

static void a_rank_that_leaves_is_missed(void **state) {
    ASSERT_OK(run_ranks(2, RANKS_THREAD, leave_body, NULL, 0));
    ASSERT_OK(run_ranks(2, RANKS_SHM, leave_body, NULL, 0));
    ASSERT_OK(run_ranks(2, RANKS_TCP, leave_body, NULL, 0));
    if (ranks_have(RANKS_UCX)) ASSERT_OK(run_ranks(2, RANKS_UCX, leave_body, NULL, 0));
}

/* Rank 0 fails after it has posted a message, and uses its memory for something else before rank 1
 * takes the message. */
enum { OFFERED = 1, GRANTED, OVERWRITTEN }; /* the message */
static _Atomic int overwritten_stage;

static void wait_for_stage(int stage) {
    while (atomic_load(&overwritten_stage) < stage) sched_yield();
}

/* Makes progress until rank 0 has posted this many frames to rank 1. */
static kolo_status post_frames(kolo_comm *comm, kolo_request *q, uint64_t frames) {
    const kolo_block_transport *t = (const kolo_block_transport *)comm->transport;
    const kolo_channel *to_1 = &t->blocks[0]->channels[KOLO_FLIGHT_MAX * comm->size + 1];
    bool complete;
    while (atomic_load(&to_1->posted) < frames) KOLO_TRY(kolo_request_test(q, &complete));
    return KOLO_OK;
}

static kolo_status send_and_fail(kolo_comm *comm, kolo_request *q, int32_t *data) {
    enum { OFFER = 1, BODY = 2 }; /* frames: the body has a head and the data */
    KOLO_TRY(post_frames(comm, q, OFFER));
    atomic_store(&overwritten_stage, OFFERED);
    wait_for_stage(GRANTED);
    KOLO_TRY(post_frames(comm, q, OFFER + BODY));
    kolo_comm_abort(comm, "aborted by the test");
    fill(data, LENGTH, -1000);
    atomic_store(&overwritten_stage, OVERWRITTEN);
    return KOLO_OK;
}

static kolo_status receive_late(kolo_request *q) {
    bool complete;
    while (q->state != REQUEST_RUNNING) KOLO_TRY(kolo_request_test(q, &complete));
    atomic_store(&overwritten_stage, GRANTED);
    wait_for_stage(OVERWRITTEN);
    kolo_status status = kolo_request_wait(q, 0);
    bool reported =
        status == KOLO_ERR_PEER && strstr(kolo_last_error(), "rank 0 reports: aborted by the test");
    return reported
               ? KOLO_OK
               : KOLO_FAIL(KOLO_ERR_FORMAT, "%d: %s", (int)status, status ? kolo_last_error() : "");
}

static kolo_status overwritten_body(kolo_comm *comm, const void *arg, void *result) {
    static int32_t data[2][LENGTH];
    int rank = kolo_comm_rank(comm);
    kolo_request *q;
    fill(data[rank], LENGTH, 0);
    KOLO_TRY(make(comm, rank == 0 ? KOLO_COLLECTIVE_SEND : KOLO_COLLECTIVE_RECV, data[rank], LENGTH,
                  1 - rank, 0, &q));
    if (rank == 1)
        wait_for_stage(OFFERED); /* a receive that waits would be granted without an offer */
    KOLO_TRY(kolo_request_start(q));
    return rank == 1 ? receive_late(q) : send_and_fail(comm, q, data[0]);
}

static void the_memory_of_a_failed_sender_is_not_taken(void **state) {
    atomic_store(&overwritten_stage, 0);
    ASSERT_OK(run_ranks(2, RANKS_THREAD, overwritten_body, NULL, 0));
}

TEST_MAIN(test_comm_messages) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_of_any_size_go_around),
        cmocka_unit_test(private_memory_is_read_where_it_lies),
        cmocka_unit_test(order_holds_within_a_tag_and_not_between),
        cmocka_unit_test(tags_overtake_each_other),
        cmocka_unit_test(a_receive_that_waits_takes_one_poll),
        cmocka_unit_test(order_holds_beside_receives_from_any_rank),
        cmocka_unit_test(announcements_are_in_the_order_of_receives),
        cmocka_unit_test(messages_that_do_not_fit_are_an_error_on_both_sides),
        cmocka_unit_test(a_deadline_names_rank_and_tag),
        cmocka_unit_test(a_message_is_received_from_any_rank),
        cmocka_unit_test(a_probe_finds_a_message_and_leaves_it),
        cmocka_unit_test(ranks_send_and_receive_at_once),
        cmocka_unit_test(a_receive_from_any_rank_does_not_hang),
        cmocka_unit_test(a_rank_that_leaves_is_missed),
        cmocka_unit_test(the_memory_of_a_failed_sender_is_not_taken),
    };
    return cmocka_run_group_tests_name("comm_messages", tests, NULL, NULL);
}

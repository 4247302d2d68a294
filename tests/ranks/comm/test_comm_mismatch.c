/* What collectives refuse: options that make no sense, and ranks that disagree, which is an error
 * on all of them that shows both sides. */
#include "base/compiler.h"
#include "base/status.h"
#include "comm/engine/comm.h"
#include "comm/engine/request.h"
#include "kolo/group.h"
#include "support/ranks.h"
#include "support/support.h"

#include <stdio.h>
#include <string.h>

static void what_makes_no_sense_is_refused(void **state) {
    kolo_comm *comms[2];
    float data[8] = {0};
    static const size_t counts[] = {1, 2}, others[] = {2, 1}, huge[] = {SIZE_MAX / 2, 1};
    kolo_part part = {.data = data, .count = 4};
    const struct {
        kolo_request_opts opts;
        const char *text;
    } cases[] = {
        {{.kind = (kolo_collective)99}, "unknown kind of request 99"},
        {{.kind = KOLO_COLLECTIVE_GATHER, .root = 2}, "root 2 outside [0, 2)"},
        {{.kind = KOLO_COLLECTIVE_SEND, .input = data, .count = 1}, "rank 0 is this rank"},
        {{.kind = KOLO_COLLECTIVE_RECV, .root = 1, .tag = -1}, "tag -1: give 0 or more"},
        {{.kind = KOLO_COLLECTIVE_RECV, .root = 1, .count = 1}, "the output of 1 elements is NULL"},
        {{.kind = KOLO_COLLECTIVE_ALLGATHER, .parts = &part, .n_parts = 1},
         "parts need an allreduce"},
        {{.kind = KOLO_COLLECTIVE_ALLREDUCE, .count = 3}, "the output of 3 elements is NULL"},
        {{.kind = KOLO_COLLECTIVE_SCATTER, .output = data, .count = 3},
         "the input of 6 elements is NULL"},
        {{.kind = KOLO_COLLECTIVE_ALLGATHER, .output = data, .counts = huge}, "too long"},
        {{.kind = KOLO_COLLECTIVE_ALLREDUCE, .output = data, .count = SIZE_MAX}, "too many"},
        {{.kind = KOLO_COLLECTIVE_ALLTOALL,
          .output = data,
          .counts = counts,
          .output_counts = others},
         "equal counts"},
        {{.kind = KOLO_COLLECTIVE_ALLREDUCE,
          .output = data,
          .count = 1,
          .dtype = KOLO_DTYPE_I32,
          .postscale = 2},
         "need a reduction of floating point"},
        {{.kind = KOLO_COLLECTIVE_ALLGATHER, .output = data, .count = 1, .prescale = 2},
         "need a reduction of floating point"},
    };
    ASSERT_OK(kolo_comm_create_threads(2, NULL, comms));
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_request *q;
        assert_int_equal(kolo_request_create(comms[0], &cases[i].opts, &q), KOLO_ERR_ARG);
        if (!strstr(kolo_last_error(), cases[i].text)) {
            fail_msg("case %zu: %s", i, kolo_last_error());
        }
    }
    for (int r = 0; r < 2; r++) kolo_comm_destroy(comms[r]);
}

/* Where ranks that give up leave their data: those that go on may still read them. */
static int32_t left_behind[3][64]; /* [rank]: threads share it */

/* Ranks that disagree in one thing: all get the error, which shows both sides. */
static kolo_status mismatch_body(kolo_comm *comm, const void *arg, void *result) {
    int what;
    int32_t *data = left_behind[kolo_comm_rank(comm)];
    memcpy(&what, arg, sizeof what);
    bool odd = kolo_comm_rank(comm) == 1;
    size_t counts[] = {2, odd ? 3 : 2, odd ? 2 : 3};
    kolo_request_opts opts[] = {
        {.kind = odd ? KOLO_COLLECTIVE_GATHER : KOLO_COLLECTIVE_ALLGATHER,
         .input = data,
         .output = data + 8,
         .count = 2},
        {.kind = KOLO_COLLECTIVE_REDUCE, .output = data, .count = odd ? 3 : 4},
        {.kind = KOLO_COLLECTIVE_REDUCE_SCATTER,
         .output = data,
         .count = 2,
         .dtype = odd ? KOLO_DTYPE_I32 : KOLO_DTYPE_F32},
        {.kind = KOLO_COLLECTIVE_ALLGATHER, .output = data, .counts = counts},
        {.kind = KOLO_COLLECTIVE_ALLTOALL, .output = data, .count = odd ? 1 : 2},
        {.kind = KOLO_COLLECTIVE_SCATTER,
         .input = data,
         .output = data + 8,
         .count = 2,
         .root = odd},
        {.kind = KOLO_COLLECTIVE_ALLREDUCE, .output = data, .count = 2, .postscale = odd ? 2 : 3},
    };
    kolo_status status = kolo_request_run(comm, &opts[what], 0);
    /* A rank that is not part of the disagreement may complete before the failure reaches it. */
    if (status == KOLO_OK) status = kolo_barrier(comm);
    return status == KOLO_ERR_ARG && strstr(kolo_last_error(), "ranks disagree")
               ? KOLO_OK
               : KOLO_FAIL(KOLO_ERR_FORMAT, "mismatch %d gave %d: %s", what, (int)status,
                           status ? kolo_last_error() : "nothing");
}

static void a_mismatch_is_an_error_everywhere(void **state) {
    for (int what = 0; what < 7; what++) {
        ASSERT_OK(run_ranks(3, RANKS_THREAD, mismatch_body, &what, sizeof what));
    }
}

/* Both sides are those of this collective, in places of memory that others have used before. */
static kolo_status later_body(kolo_comm *comm, const void *arg, void *result) {
    int32_t *data = left_behind[kolo_comm_rank(comm)];
    const bool odd = kolo_comm_rank(comm) == 1;
    kolo_status status = KOLO_OK;
    /* The failure may reach a rank in the last barrier, or behind its part. */
    for (int i = 0; i < KOLO_FLIGHT_MAX && status == KOLO_OK; i++) status = kolo_barrier(comm);
    if (status == KOLO_OK && odd) {
        status = kolo_gather(comm, data, data + 8, 2, KOLO_DTYPE_I32, 0);
    }
    if (status == KOLO_OK) status = kolo_allgather(comm, data, data + 8, 2, KOLO_DTYPE_I32);
    if (status == KOLO_OK) status = kolo_barrier(comm);
    const bool named = strstr(kolo_last_error(), "started allgather") &&
                       strstr(kolo_last_error(), "rank 1 gather");
    const bool turned = strstr(kolo_last_error(), "rank 1 started gather") &&
                        strstr(kolo_last_error(), " allgather");
    if (status == KOLO_ERR_ARG && (named || turned)) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "status %d: %s", (int)status, kolo_last_error());
}

static void a_mismatch_shows_what_both_sides_started(void **state) {
    for (int t = RANKS_THREAD; t <= RANKS_HOSTS_UCX; t++) {
        if (ranks_have((rank_transport)t)) {
            ASSERT_OK(run_ranks(3, (rank_transport)t, later_body, NULL, 0));
        }
    }
}

/* An all-to-all whose slices fit, repeatedly, and then one in which rank 1 sends `sent` to
 * rank 2, which expects `expected`. */
typedef struct uneven_case {
    size_t sent, expected;
} uneven_case;

static kolo_status uneven_body(kolo_comm *comm, const void *arg, void *result) {
    uneven_case c;
    char want[160];
    memcpy(&c, arg, sizeof c);
    static const size_t sizes[3][3] = {{1, 0, 4}, {2, 3, 7}, {0, 5, 1}}; /* from, to */
    size_t rank = (size_t)kolo_comm_rank(comm), counts[3], output_counts[3];
    int32_t *in = left_behind[rank], *out = in + 16;
    for (size_t p = 0; p < 3; p++) {
        counts[p] = sizes[rank][p];
        output_counts[p] = sizes[p][rank];
    }
    kolo_request_opts opts = {.kind = KOLO_COLLECTIVE_ALLTOALL,
                              .dtype = KOLO_DTYPE_I32,
                              .input = in,
                              .output = out,
                              .counts = counts,
                              .output_counts = output_counts};
    for (int i = 0; i < 40; i++) KOLO_TRY(kolo_request_run(comm, &opts, 0));
    if (rank == 1) counts[2] = c.sent;
    if (rank == 2) output_counts[1] = c.expected;
    kolo_status status = kolo_request_run(comm, &opts, 0);
    if (status == KOLO_OK)
        status = kolo_barrier(comm); /* rank 0 may complete before the failure reaches it */
    snprintf(want, sizeof want, "rank 2 expects %zu elements from rank 1, which sends %zu",
             c.expected, c.sent);
    return status == KOLO_ERR_ARG && strstr(kolo_last_error(), want)
               ? KOLO_OK
               : KOLO_FAIL(KOLO_ERR_FORMAT, "%zu for %zu gave %d: %s", c.sent, c.expected,
                           (int)status, status ? kolo_last_error() : "nothing");
}

static void slices_that_do_not_fit_are_an_error_everywhere(void **state) {
    static const uneven_case cases[] = {{7, 6}, {6, 7}, {0, 7}, {7, 0}};
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        for (int t = RANKS_THREAD; t <= RANKS_HOSTS_UCX; t++) {
            if (!ranks_have((rank_transport)t)) continue;
            ASSERT_OK(run_ranks(3, (rank_transport)t, uneven_body, &cases[i], sizeof cases[i]));
        }
    }
}

/* Members of a group with other lists: also one that waits for a rank that does not come. */
typedef struct list_case {
    int lists[3][3], n[3]; /* [rank] */
    char text[20];         /* in the message on each rank */
} list_case;

static kolo_status list_body(kolo_comm *comm, const void *arg, void *result) {
    list_case c;
    const int rank = kolo_comm_rank(comm);
    memcpy(&c, arg, sizeof c);
    kolo_comm *sub = NULL;
    const kolo_status status = kolo_comm_create_group(comm, c.lists[rank], c.n[rank], 4, &sub);
    return status == KOLO_ERR_ARG &&
                   strstr(kolo_last_error(), "ranks disagree on a group: rank ") &&
                   strstr(kolo_last_error(), c.text)
               ? KOLO_OK
               : KOLO_FAIL(KOLO_ERR_FORMAT, "a group by other lists gave %d: %s", (int)status,
                           status ? kolo_last_error() : "nothing");
}

static void members_with_other_lists_fail(void **state) {
    static const list_case cases[] = {
        {{{0, 1, 2}, {0, 2, 1}, {0, 1, 2}}, {3, 3, 3}, "0,2,1 (3 ranks)"},
        {{{0, 1, 2}, {1, 0}, {0, 1, 2}}, {3, 2, 3}, "1,0 (2 ranks)"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        for (int t = RANKS_THREAD; t <= RANKS_HOSTS_UCX; t++) {
            if (!ranks_have((rank_transport)t)) continue;
            ASSERT_OK(run_ranks(3, (rank_transport)t, list_body, &cases[i], sizeof cases[i]));
        }
    }
}

/* Ranks that connect on demand, and share memory as those of one host do. */
static const kolo_transport_ops *memory_ops;
static kolo_request *other; /* of rank 1 */

static bool shares_memory(kolo_transport *t, int peer) { return true; }

/* Rank 1 starts and finishes the collective just after rank 0 has looked for its announcement. */
static bool query_before(kolo_transport *t, uint64_t seq, int peer, kolo_peer_call *call) {
    bool complete = false;
    if (memory_ops->query(t, seq, peer, call)) return true;
    if (t->rank != 0) return false;
    ASSERT_OK(kolo_request_start(other));
    ASSERT_OK(kolo_request_test(other, &complete));
    assert_true(complete);
    return false;
}

static void a_peer_that_is_faster_does_not_disagree(void **state) {
    kolo_comm *comms[2];
    kolo_request *requests[2];
    int32_t in[2] = {1, 2}, out[2] = {0, 0};
    ASSERT_OK(kolo_comm_create_threads(2, NULL, comms));
    memory_ops = comms[0]->transport->ops;
    kolo_transport_ops ops = *memory_ops;
    ops.query = query_before;
    ops.reaches = shares_memory;
    for (int r = 0; r < 2; r++) {
        const size_t counts[] = {r == 0, r == 1}; /* nothing for the other one */
        kolo_transport *t = comms[r]->transport;
        t->ops = &ops;
        t->sparse = true;
        t->windows = false;
        ASSERT_OK(kolo_request_create(comms[r],
                                      &(kolo_request_opts){.kind = KOLO_COLLECTIVE_ALLTOALL,
                                                           .dtype = KOLO_DTYPE_I32,
                                                           .input = &in[r],
                                                           .output = &out[r],
                                                           .counts = counts,
                                                           .output_counts = counts},
                                      &requests[r]));
    }
    other = requests[1];
    ASSERT_OK(kolo_request_start(requests[0]));
    ASSERT_OK(kolo_request_wait(requests[0], 0));
    assert_int_equal(kolo_request_in_flight(other), false);
    assert_memory_equal(out, in, sizeof in);
    for (int r = 0; r < 2; r++) kolo_comm_destroy(comms[r]);
}

/* Detected before MPI is called. */
static void mismatches_by_mpi(rank_transport mpi) {
    if (!ranks_have(mpi)) {
        print_message("skip: no module for this MPI, or no mpiexec of it\n");
        skip();
    }
    for (int what = 0; what < 2; what++) {
        ASSERT_OK(run_ranks(3, mpi, mismatch_body, &what, sizeof what));
    }
}

static void a_mismatch_is_an_error_by_open_mpi(void **state) { mismatches_by_mpi(RANKS_OPENMPI); }
static void a_mismatch_is_an_error_by_mpich(void **state) { mismatches_by_mpi(RANKS_MPICH); }

/* ---- without a communicator or a request ---- */

static void a_missing_handle_is_refused(void **state) {
    bool flag;
    int rank = 0;
    kolo_comm *sub;
    kolo_message message;
    const kolo_request_opts opts = {.kind = KOLO_COLLECTIVE_BARRIER};
    const kolo_status statuses[] = {
        kolo_request_start(NULL),
        kolo_request_wait(NULL, 0),
        kolo_request_test(NULL, &flag),
        kolo_request_run(NULL, &opts, 0),
        kolo_barrier(NULL),
        kolo_probe(NULL, 0, 0, &flag, &message),
        kolo_comm_progress(NULL),
        kolo_comm_split(NULL, 0, 0, &sub),
        kolo_comm_create_group(NULL, &rank, 1, 0, &sub),
        kolo_comm_allow_shrink(NULL),
        kolo_comm_shrink(NULL, &sub),
    };
    for (size_t i = 0; i < KOLO_COUNT(statuses); i++) {
        if (statuses[i] != KOLO_ERR_ARG) fail_msg("call %zu returns %d", i, (int)statuses[i]);
    }
    assert_string_equal(kolo_last_error(), "the communicator, or the request, is NULL");
}

TEST_MAIN(test_comm_mismatch) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_makes_no_sense_is_refused),
        cmocka_unit_test(a_mismatch_is_an_error_everywhere),
        cmocka_unit_test(a_mismatch_shows_what_both_sides_started),
        cmocka_unit_test(slices_that_do_not_fit_are_an_error_everywhere),
        cmocka_unit_test(members_with_other_lists_fail),
        cmocka_unit_test(a_peer_that_is_faster_does_not_disagree),
        cmocka_unit_test(a_mismatch_is_an_error_by_open_mpi),
        cmocka_unit_test(a_mismatch_is_an_error_by_mpich),
        cmocka_unit_test(a_missing_handle_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

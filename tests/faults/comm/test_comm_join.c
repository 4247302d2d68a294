/* Joining a group: invalid environments, wrong secrets, inconsistent and missing ranks, limits of
 * the process. What connects that is no member: test_comm_join_clients.c. */
#include "base/clock.h"
#include "base/compiler.h"
#include "base/memory.h"
#include "comm/join/authentication.h"
#include "comm/join/join.h"
#include "comm/transport/segment.h"
#include "comm/transport/socket.h"
#include "kolo/comm.h"
#include "support/join_group.h"
#include "support/ranks.h"
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- success ---- */

static kolo_status plain_body(kolo_comm *comm, const void *arg, void *result) {
    return join_and_add(20000);
}

static kolo_status alone_body(kolo_comm *comm, const void *arg, void *result) {
    static const char *const names[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                        "KOLO_SECRET_FILE"};
    for (size_t i = 0; i < KOLO_COUNT(names); i++) unsetenv(names[i]);
    return join_and_add(SOON_MS);
}

/* Without the launcher's socket: rank 0 opens its own, possibly after the others try to connect. */
static kolo_status no_listener_body(kolo_comm *comm, const void *arg, void *result) {
    char *fd = getenv("KOLO_LISTEN_FD");
    if (fd) {
        close(atoi(fd));
        unsetenv("KOLO_LISTEN_FD");
        kolo_sleep_ns(100000000);
    }
    return join_and_add(20000);
}

static void groups_form_from_the_environment(void **state) {
    rank_outcome outcomes[8];
    ASSERT_OK(join_run(1, plain_body, outcomes));
    ASSERT_OK(join_run(1, alone_body, outcomes));
    ASSERT_OK(join_run(2, plain_body, outcomes));
    ASSERT_OK(join_run(8, plain_body, outcomes));
    ASSERT_OK(join_run(3, no_listener_body, outcomes));
}

/* ---- invalid environments ---- */

typedef struct env_case {
    const char *name, *value; /* value NULL: unset */
    kolo_status status;
    const char *text;
} env_case;

static const env_case env_cases[] = {
    {"RANK", "x", KOLO_ERR_ARG, "RANK is 'x'"},
    {"RANK", "7", KOLO_ERR_ARG, "RANK is '7': must be a number from 0 to 1"},
    {"RANK", NULL, KOLO_ERR_ARG, "RANK is not set"},
    {"WORLD_SIZE", "0", KOLO_ERR_ARG, "WORLD_SIZE is '0'"},
    {"WORLD_SIZE", NULL, KOLO_ERR_ARG, "WORLD_SIZE is not set"},
    {"LOCAL_WORLD_SIZE", "3", KOLO_ERR_ARG, "LOCAL_WORLD_SIZE is '3'"},
    {"MASTER_PORT", NULL, KOLO_ERR_ARG, "MASTER_PORT is not set"},
    {"MASTER_PORT", "70000", KOLO_ERR_ARG, "MASTER_PORT is '70000'"},
    {"KOLO_SECRET_FILE", NULL, KOLO_ERR_ARG, "no secret"},
    {"KOLO_SECRET_FILE", "/nonexistent/secret", KOLO_ERR_IO, "/nonexistent/secret"},
    {"KOLO_SECRET_FILE", "/dev/zero", KOLO_ERR_ARG, "neither a regular file nor a pipe"},
    {"KOLO_SECRET_FILE", "/etc/hostname", KOLO_ERR_ARG, "is readable by other users"},
};

static void invalid_environments_are_refused(void **state) {
    static const char *const own[] = {
        "RANK",        "WORLD_SIZE",  "LOCAL_RANK",      "LOCAL_WORLD_SIZE",
        "MASTER_ADDR", "MASTER_PORT", "KOLO_SECRET_FILE"};
    static const char *const good[] = {"0", "2", "0", "2", "127.0.0.1", "29500", "/nonexistent"};
    for (size_t i = 0; i < KOLO_COUNT(env_cases); i++) {
        const env_case *c = &env_cases[i];
        for (size_t k = 0; k < KOLO_COUNT(own); k++) setenv(own[k], good[k], 1);
        if (strcmp(c->name, "LOCAL_WORLD_SIZE") == 0) setenv("LOCAL_RANK", "0", 1);
        if (c->value) {
            setenv(c->name, c->value, 1);
        } else {
            unsetenv(c->name);
        }
        kolo_comm *comm;
        kolo_status status = join_group(SOON_MS, &comm);
        if (status != c->status || !strstr(kolo_last_error(), c->text)) {
            fail_msg("%s=%s: %d: %s", c->name, c->value ? c->value : "", status, kolo_last_error());
        }
    }
    for (size_t k = 0; k < KOLO_COUNT(own); k++) unsetenv(own[k]);
}

static void invalid_options_are_refused(void **state) {
    kolo_comm *comm;
    static const kolo_comm_opts cases[] = {
        {.world = 2, .rank = 2, .master_port = 29500, .secret_file = "x"},
        {.world = 2, .rank = -1, .master_port = 29500, .secret_file = "x"},
        {.world = 2, .rank = 0, .secret_file = "x"},
        {.world = 2, .rank = 0, .master_port = 29500},
        {.timeout_ms = -1},
        {.segment_bytes = -1},
        {.algorithm = KOLO_ALGORITHM_COUNT},
        {.transport = KOLO_TRANSPORT_COUNT},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        assert_int_equal(kolo_comm_create(&cases[i], &comm), KOLO_ERR_ARG);
    }
}

static void transports_are_found_by_name(void **state) {
    kolo_transport_choice choice;
    for (int t = 0; t < KOLO_TRANSPORT_COUNT; t++) {
        ASSERT_OK(kolo_transport_parse(kolo_transport_name(t), &choice));
        assert_int_equal(choice, t);
    }
    assert_int_equal(kolo_transport_parse("shm_ucx", &choice), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), "did you mean 'shm+ucx'?"));
    assert_int_equal(kolo_transport_parse("pigeon", &choice), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), " tcp"));
    assert_int_equal(kolo_transport_parse(NULL, &choice), KOLO_ERR_ARG);
    assert_string_equal(kolo_transport_name(KOLO_TRANSPORT_COUNT), "unknown");
}

/* ---- secrets ---- */

static kolo_status wrong_secret_body(kolo_comm *comm, const void *arg, void *result) {
    static char path[64];
    if (ranks_own_rank() == 1) {
        int fds[2];
        static const char other[] = "this is another job's secret";
        if (pipe(fds) != 0 || write(fds[1], other, sizeof other) < 0) return KOLO_ERR_IO;
        close(fds[1]);
        snprintf(path, sizeof path, "/dev/fd/%d", fds[0]);
        setenv("KOLO_SECRET_FILE", path, 1);
    }
    return join_and_add(SOON_MS);
}

static void a_wrong_secret_is_rejected(void **state) {
    rank_outcome outcomes[3];
    assert_int_not_equal(join_run(3, wrong_secret_body, outcomes), KOLO_OK);
    join_expect(&outcomes[1], KOLO_ERR_PEER, "the secrets (KOLO_SECRET_FILE) differ");
    join_expect(&outcomes[0], KOLO_ERR_TIMEOUT, "missing: rank 1");
    join_expect(&outcomes[0], KOLO_ERR_TIMEOUT, "authentication failed");
    assert_true(outcomes[2].status == KOLO_ERR_TIMEOUT || outcomes[2].status == KOLO_ERR_PEER);
}

static kolo_status short_secret_body(kolo_comm *comm, const void *arg, void *result) {
    int fds[2];
    char path[64];
    if (pipe(fds) != 0 || write(fds[1], "short", 5) < 0) return KOLO_ERR_IO;
    snprintf(path, sizeof path, "/dev/fd/%d", fds[0]);
    setenv("KOLO_SECRET_FILE", path, 1);
    close(fds[1]);
    return join_and_add(SOON_MS);
}

static void a_short_secret_is_refused(void **state) {
    rank_outcome outcomes[2];
    assert_int_not_equal(join_run(2, short_secret_body, outcomes), KOLO_OK);
    for (int r = 0; r < 2; r++) join_expect(&outcomes[r], KOLO_ERR_ARG, "at least 16 are required");
}

/* ---- inconsistent ranks ---- */

static kolo_status same_number_body(kolo_comm *comm, const void *arg, void *result) {
    if (ranks_own_rank() == 2) setenv("RANK", "1", 1);
    return join_and_add(20000);
}

static kolo_status other_world_body(kolo_comm *comm, const void *arg, void *result) {
    if (ranks_own_rank() == 1) {
        setenv("WORLD_SIZE", "4", 1);
        setenv("LOCAL_WORLD_SIZE", "4", 1);
    }
    return join_and_add(2 * SOON_MS); /* rank 2 may start after the others have failed */
}

static void inconsistent_ranks_end_the_job_at_once(void **state) {
    rank_outcome outcomes[3];
    assert_int_equal(join_run(3, same_number_body, outcomes), KOLO_ERR_ARG);
    for (int r = 0; r < 3; r++)
        join_expect(&outcomes[r], KOLO_ERR_ARG, "two processes joined as rank 1");
    assert_int_equal(join_run(3, other_world_body, outcomes), KOLO_ERR_ARG);
    for (int r = 0; r < 2; r++) join_expect(&outcomes[r], KOLO_ERR_ARG, "rank 1 has 4, rank 0 has");
    assert_int_not_equal(outcomes[2].status, KOLO_OK);
}

/* TCP has no connections to groups of hosts. */
static kolo_status no_route_body(kolo_comm *comm, const void *arg, void *result) {
    if (ranks_own_rank() == 1) setenv("MASTER_ADDR", "224.0.0.1", 1);
    return join_and_add(SOON_MS);
}

/* Not a TIMEOUT, as that of rank 0 is: the launcher prints the cause. */
static void a_rank_without_a_route_names_the_cause(void **state) {
    rank_outcome outcomes[2];
    assert_int_not_equal(join_run(2, no_route_body, outcomes), KOLO_OK);
    join_expect(&outcomes[0], KOLO_ERR_TIMEOUT, "missing: rank 1");
    join_expect(&outcomes[1], KOLO_ERR_IO, "joining rank 0 at 224.0.0.1:");
    join_expect(&outcomes[1], KOLO_ERR_IO, "cannot connect: Network is unreachable");
}

static kolo_status missing_body(kolo_comm *comm, const void *arg, void *result) {
    if (ranks_own_rank() == 1) return KOLO_OK; /* never joins */
    return join_and_add(SOON_MS);
}

static kolo_status killed_while_joining_body(kolo_comm *comm, const void *arg, void *result) {
    if (ranks_own_rank() == 2) return KOLO_OK; /* so that rank 1 has to wait */
    if (ranks_own_rank() == 1) alarm(1);       /* killed by a signal in kolo_comm_create */
    return join_and_add(20000);
}

static void missing_and_dying_ranks_are_named(void **state) {
    rank_outcome outcomes[3];
    assert_int_equal(join_run(3, missing_body, outcomes), KOLO_ERR_TIMEOUT);
    join_expect(&outcomes[0], KOLO_ERR_TIMEOUT, "2 of 3 ranks have joined within");
    join_expect(&outcomes[0], KOLO_ERR_TIMEOUT, "missing: rank 1");
    join_expect(&outcomes[2], KOLO_ERR_TIMEOUT, "rank 2, joining rank 0 at 127.0.0.1:");
    assert_int_equal(join_run(3, killed_while_joining_body, outcomes), KOLO_ERR_PEER);
    join_expect(&outcomes[0], KOLO_ERR_PEER,
                "rank 1 is gone (process ended) while the group formed");
}

/* Rank 1 never joins; rank 2 has the shortest deadline. */
static kolo_status impatient_body(kolo_comm *comm, const void *arg, void *result) {
    if (ranks_own_rank() == 1) return KOLO_OK;
    return join_and_add(ranks_own_rank() == 2 ? SOON_MS / 2 : 20000);
}

static void all_ranks_name_the_missing_when_one_gives_up(void **state) {
    rank_outcome outcomes[4];
    assert_int_equal(join_run(4, impatient_body, outcomes), KOLO_ERR_TIMEOUT);
    for (int r = 0; r < 4; r++) {
        if (r == 1) continue;
        join_expect(&outcomes[r], KOLO_ERR_TIMEOUT, "rank 2 reports: it gives up after");
        join_expect(&outcomes[r], KOLO_ERR_TIMEOUT, "; 3 of 4 ranks have joined within");
        join_expect(&outcomes[r], KOLO_ERR_TIMEOUT, "missing: rank 1");
    }
}

static void missing_ranks_are_listed_with_their_addresses(void **state) {
    enum { WORLD = 100 };
    static kolo_hello table[WORLD];
    bool wanted[WORLD] = {[1] = true, [3] = true, [4] = true, [5] = true, [7] = true, [8] = true};
    char text[KOLO_JOINING_NAMES_BYTES];
    kolo_joining j = {.env = {.world = WORLD, .master_addr = "10.0.0.9,10.1.0.9"},
                      .own = {.host = 5},
                      .table = table,
                      .choice = kolo_transport_info_of(KOLO_TRANSPORT_AUTO)};
    table[4] = (kolo_hello){.world = WORLD, .host = 5};
    table[7] = (kolo_hello){.world = WORLD, .host = 1, .address = "10.0.0.7"};
    table[8] = (kolo_hello){.world = WORLD, .host = 2}; /* reached at rank 0's address */
    assert_string_equal(kolo_joining_names(&j, wanted, text),
                        "rank 1, ranks 3 to 5, rank 7 at 10.0.0.7, rank 8 at 10.0.0.9");
    for (int r = 0; r < WORLD; r++) {
        wanted[r] = true;
        table[r] = table[7];
    }
    kolo_joining_names(&j, wanted, text);
    assert_non_null(strstr(text, "rank 0 at 10.0.0.7, rank 1 at 10.0.0.7, "));
    assert_non_null(strstr(text, "rank 9 at 10.0.0.7 and 90 more ranks"));
}

/* ---- out of memory ---- */

/* Fails each allocation in turn, in a group of one, until joining succeeds. */
static void joining_survives_out_of_memory(void **state) {
    kolo_status status = KOLO_ERR_NOMEM;
    for (long nth = 1; status != KOLO_OK; nth++) {
        kolo_comm *comm;
        kolo_alloc_fail_nth(nth);
        status = join_group(SOON_MS, &comm);
        kolo_alloc_fail_nth(0);
        assert_true(status == KOLO_OK || status == KOLO_ERR_NOMEM);
        if (status == KOLO_OK) kolo_comm_destroy(comm);
    }
}

static kolo_status nomem_body(kolo_comm *comm, const void *arg, void *result) {
    long nth;
    memcpy(&nth, arg, sizeof nth);
    if (ranks_own_rank() == 1) kolo_alloc_fail_nth(nth);
    return join_and_add(SOON_MS);
}

/* The same on one rank of two: it reports its own error, the other does not hang. */
static void a_rank_that_cannot_join_does_not_hang_the_other(void **state) {
    for (long nth = 1; nth <= 9; nth++) {
        rank_outcome outcomes[2];
        kolo_status status = run_rank_job(&(rank_job){.n = 2,
                                                      .transport = RANKS_SHM,
                                                      .body = nomem_body,
                                                      .arg = &nth,
                                                      .arg_bytes = sizeof nth,
                                                      .bare = true,
                                                      .outcomes = outcomes});
        assert_int_not_equal(status, KOLO_OK);
        assert_true(outcomes[1].status == KOLO_ERR_NOMEM);
        bool reported = outcomes[0].status == KOLO_ERR_NOMEM && strstr(outcomes[0].error, "rank 1");
        assert_true(outcomes[0].status == KOLO_ERR_TIMEOUT || outcomes[0].status == KOLO_ERR_PEER ||
                    reported);
    }
}

static size_t fit_under(int limit, rlim_t most, int ranks) {
    struct rlimit before, less;
    assert_int_equal(getrlimit(limit, &before), 0);
    less = before;
    less.rlim_cur = most;
    assert_int_equal(setrlimit(limit, &less), 0);
    size_t bytes = kolo_segment_fit((size_t)64 << 30, ranks, ranks > 1);
    assert_int_equal(setrlimit(limit, &before), 0);
    return bytes;
}

/* Segments fit the limits of the process, and leave room for other memory. */
static void segments_fit_under_limits(void **state) {
    assert_int_equal(kolo_segment_fit(12345678, 4, true), 12345678);
    assert_int_equal(fit_under(RLIMIT_AS, 1 << 30, 1), 1 << 28);
    assert_int_equal(fit_under(RLIMIT_AS, 1 << 30, 3), 1 << 27);
    assert_int_equal(fit_under(RLIMIT_AS, 1 << 20, 1), 1 << 20);
    assert_int_equal(fit_under(RLIMIT_FSIZE, 50 << 20, 2), 50 << 20);
    assert_int_equal(fit_under(RLIMIT_FSIZE, 50 << 20, 1),
                     (size_t)64 << 30); /* a private segment is not a file */
}

/* The soft limit of open files is raised as far as needed; a hard one is an error. */
static void open_files_are_allowed_or_asked_for(void **state) {
    struct rlimit before, files;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    files = before;
    files.rlim_cur = 64;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    kolo_status few = kolo_joining_allow_files(2), more = kolo_joining_allow_files(100);
    kolo_status most = kolo_joining_allow_files(1 << 30);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(few, KOLO_OK);
    assert_int_equal(more, KOLO_OK);
    assert_true(files.rlim_cur >= 200);
    assert_int_equal(most, KOLO_ERR_IO);
    assert_non_null(strstr(kolo_last_error(), "needs 2147483776 open files"));
}

/* Without a free descriptor the listener fails at once. */
static void a_listener_without_descriptors_fails(void **state) {
    kolo_key key;
    kolo_listener *server;
    kolo_member member;
    struct rlimit before, none_left;
    char name[32];
    int listener, client, lost;
    int64_t deadline_ns = kolo_now_ns() + INT64_C(20000000000);
    snprintf(name, sizeof name, "kolo-listener-%ld", (long)getpid());
    ASSERT_OK(kolo_key_make("a secret of thirty-two characters", 32, &key));
    ASSERT_OK(kolo_socket_listen_local(name, &listener));
    ASSERT_OK(kolo_listener_create(listener, &key, true, &server));
    ASSERT_OK(kolo_socket_connect_local(name, deadline_ns, &client));
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none_left = before;
    int next = dup(listener);
    assert_true(next >= 0);
    close(next);
    none_left.rlim_cur = (rlim_t)next;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none_left), 0);
    kolo_status status = kolo_listener_accept(server, NULL, 0, deadline_ns, &member, &lost);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(status, KOLO_ERR_IO);
    assert_non_null(strstr(kolo_last_error(), "ulimit -n"));
    kolo_listener_destroy(server);
    kolo_key_clear(&key);
    close(client);
    close(listener);
}

TEST_MAIN(test_comm_join) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_form_from_the_environment),
        cmocka_unit_test(invalid_environments_are_refused),
        cmocka_unit_test(invalid_options_are_refused),
        cmocka_unit_test(transports_are_found_by_name),
        cmocka_unit_test(a_wrong_secret_is_rejected),
        cmocka_unit_test(a_short_secret_is_refused),
        cmocka_unit_test(inconsistent_ranks_end_the_job_at_once),
        cmocka_unit_test(a_rank_without_a_route_names_the_cause),
        cmocka_unit_test(missing_and_dying_ranks_are_named),
        cmocka_unit_test(all_ranks_name_the_missing_when_one_gives_up),
        cmocka_unit_test(missing_ranks_are_listed_with_their_addresses),
        cmocka_unit_test(joining_survives_out_of_memory),
        cmocka_unit_test(segments_fit_under_limits),
        cmocka_unit_test(a_rank_that_cannot_join_does_not_hang_the_other),
        cmocka_unit_test(open_files_are_allowed_or_asked_for),
        cmocka_unit_test(a_listener_without_descriptors_fails),
    };
    return cmocka_run_group_tests_name("comm_join", tests, NULL, NULL);
}

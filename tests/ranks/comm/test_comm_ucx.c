/* Features of the transport ucx; the other tests of communicators cover it in their tables. The
 * bodies create their communicators, since UCX is configured by the environment. */
#include "base/compiler.h"
#include "base/memory.h"
#include "kolo/comm.h"
#include "support/ranks.h"
#include "support/support.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 3, MOST = 3 << 20 };

typedef struct setting {
    const char name[32], value[32]; /* of an environment variable; "": none */
} setting;

static void set(const setting *s) {
    if (s->name[0]) setenv(s->name, s->value, 1);
}

static kolo_status sums(kolo_comm *comm, int32_t *data, size_t count) {
    int rank = kolo_comm_rank(comm), n = kolo_comm_size(comm);
    for (size_t i = 0; i < count; i++) data[i] = (int32_t)i + rank;
    KOLO_TRY(kolo_allreduce(comm, data, count, KOLO_DTYPE_I32, KOLO_SUM));
    for (size_t i = 0; i < count; i++) {
        int32_t want = (int32_t)i * n + n * (n - 1) / 2;
        if (data[i] == want) continue;
        return KOLO_FAIL(KOLO_ERR_FORMAT, "element %zu of %zu is %d, not %d", i, count,
                         (int)data[i], (int)want);
    }
    return KOLO_OK;
}

/* Counts below, at and above the size of a message and of the window. */
static kolo_status sizes_body(kolo_comm *none, const void *arg, void *result) {
    static const size_t counts[] = {1, 300, 1000, 65000, 65536, 262144, MOST};
    kolo_comm *comm;
    kolo_comm_opts opts = ranks_own_opts();
    int32_t *data = kolo_alloc(MOST * sizeof *data);
    if (!data) return KOLO_NOMEM(MOST * sizeof *data);
    set(arg);
    kolo_status status = kolo_comm_create(&opts, &comm);
    if (status == KOLO_OK) {
        for (size_t i = 0; i < KOLO_COUNT(counts) && status == KOLO_OK; i++) {
            status = sums(comm, data, counts[i]);
        }
        strncpy(result, kolo_comm_transport(comm), 15);
        kolo_comm_destroy(comm);
    }
    kolo_free(data);
    return status;
}

static void run_sizes(rank_transport transport, int n, const setting *s, const char *name) {
    char names[4][16];
    ASSERT_OK(run_rank_job(&(rank_job){.n = n,
                                       .transport = transport,
                                       .body = sizes_body,
                                       .arg = s,
                                       .arg_bytes = sizeof *s,
                                       .results = names,
                                       .result_bytes = sizeof names[0],
                                       .bare = true}));
    for (int r = 0; r < n; r++) assert_string_equal(names[r], name);
}

static void data_is_sent_eagerly_or_fetched(void **state) {
    static const setting settings[] = {
        {"", ""},
        {"UCX_TLS", "tcp"},
        {"UCX_RNDV_THRESH", "2000"}, /* longer messages are fetched */
        {"UCX_RNDV_THRESH", "200000"},
        {"UCX_TCP_TX_SEG_SIZE", "9000"}}; /* in many segments */
    for (size_t i = 0; i < KOLO_COUNT(settings); i++) {
        run_sizes(RANKS_UCX, RANKS, &settings[i], "ucx");
    }
    run_sizes(RANKS_HOSTS_UCX, 4, &settings[0], "shm+ucx");
}

static kolo_status refused_body(kolo_comm *none, const void *arg, void *result) {
    kolo_comm *comm;
    kolo_comm_opts opts = ranks_own_opts();
    set(arg);
    kolo_status status = kolo_comm_create(&opts, &comm);
    if (status == KOLO_OK) kolo_comm_destroy(comm);
    return status;
}

static void a_missing_device_is_reported(void **state) {
    static const setting nothing = {"UCX_TLS", "ud"};
    rank_outcome outcomes[2];
    kolo_status status = run_rank_job(&(rank_job){.n = 2,
                                                  .transport = RANKS_UCX,
                                                  .body = refused_body,
                                                  .arg = &nothing,
                                                  .arg_bytes = sizeof nothing,
                                                  .outcomes = outcomes,
                                                  .bare = true});
    assert_int_equal(status, KOLO_ERR_UNSUPPORTED);
    for (int r = 0; r < 2; r++) {
        assert_non_null(strstr(outcomes[r].error, "no usable device"));
        assert_non_null(strstr(outcomes[r].error, "--transport tcp"));
        assert_null(strchr(outcomes[r].error, '\n'));
    }
}

static struct sigaction before, after; /* before and after UCX was loaded */

/* The program's handlers of crash signals stay installed. */
static void loading_ucx_keeps_signal_handlers(void **state) {
    assert_ptr_equal(before.sa_handler, after.sa_handler);
}

TEST_MAIN(test_comm_ucx) {
    sigaction(SIGSEGV, NULL, &before);
    bool there = ranks_have(RANKS_UCX);
    sigaction(SIGSEGV, NULL, &after);
    if (!there) {
        print_message("skip: no module for UCX: it is not installed, or not found from here\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loading_ucx_keeps_signal_handlers),
        cmocka_unit_test(data_is_sent_eagerly_or_fetched),
        cmocka_unit_test(a_missing_device_is_reported),
    };
    return cmocka_run_group_tests_name("comm_ucx", tests, NULL, NULL);
}

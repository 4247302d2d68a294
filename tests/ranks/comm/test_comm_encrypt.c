/* Encryption and authentication between hosts, on connections of one host: all ways in which data
 * is sent, sub-groups; ranks that disagree; what cannot be encrypted is refused. What an attacker
 * sees and can change is tested in test_comm_tcp.c. */
#include "base/compiler.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/engine/comm.h"
#include "comm/engine/request.h"
#include "comm/service/message.h"
#include "comm/transport/tcp/internal.h"
#include "kolo/service.h"
#include "support/ranks.h"
#include "support/support.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { MOST = 600000 };

static kolo_status check(const float *data, size_t n, float want, const char *what) {
    for (size_t i = 0; i < n; i++) {
        if (data[i] == want) continue;
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s of %zu: element %zu is %g, not %g", what, n, i,
                         (double)data[i], (double)want);
    }
    return KOLO_OK;
}

static kolo_status run_group(kolo_comm *comm, float *data, float *other) {
    static const size_t counts[] = {1, 1000, 70001, MOST};
    int n = kolo_comm_size(comm), rank = kolo_comm_rank(comm);
    for (size_t k = 0; k < KOLO_COUNT(counts); k++) {
        size_t count = counts[k];
        for (size_t i = 0; i < count; i++) data[i] = (float)(rank + 1);
        KOLO_TRY(kolo_allreduce(comm, data, count, KOLO_DTYPE_F32, KOLO_SUM));
        KOLO_TRY(check(data, count, (float)(n * (n + 1) / 2), "allreduce"));
        KOLO_TRY(kolo_sendrecv(comm, data, count, (rank + 1) % n, other, count, (rank + n - 1) % n,
                               KOLO_DTYPE_F32, 3));
        KOLO_TRY(check(other, count, (float)(n * (n + 1) / 2), "sendrecv"));
        for (size_t i = 0; i < count; i++) data[i] = (float)rank;
        KOLO_TRY(kolo_broadcast(comm, data, count, KOLO_DTYPE_F32, n - 1));
        KOLO_TRY(check(data, count, (float)(n - 1), "broadcast"));
    }
    return kolo_barrier(comm);
}

/* Several collectives in flight, and messages beside them. */
static kolo_status run_together(kolo_comm *comm, float *data) {
    enum { REQUESTS = 20, COUNT = 20000 };
    kolo_request *q[REQUESTS];
    int n = kolo_comm_size(comm);
    for (int i = 0; i < REQUESTS; i++) {
        kolo_part part = {.data = data + i * COUNT, .count = COUNT};
        for (int k = 0; k < COUNT; k++) data[i * COUNT + k] = (float)i;
        KOLO_TRY(kolo_allreduce_create(comm, &part, 1, KOLO_DTYPE_F32, KOLO_SUM,
                                       KOLO_ALGORITHM_AUTO, "together", &q[i]));
    }
    for (int i = 0; i < REQUESTS; i++) KOLO_TRY(kolo_request_start(q[i]));
    for (int i = REQUESTS - 1; i >= 0; i--) KOLO_TRY(kolo_request_wait(q[i], 0));
    for (int i = 0; i < REQUESTS; i++) {
        KOLO_TRY(check(data + i * COUNT, COUNT, (float)(n * i), "allreduce in flight"));
        kolo_request_destroy(q[i]);
    }
    return KOLO_OK;
}

/* Replies with its input plus one, of each byte. */
static void serve(void *arg, kolo_service_call *call) {
    unsigned char *reply = kolo_alloc(call->output_bytes + 1);
    if (!reply) abort();
    for (size_t i = 0; i < call->output_bytes; i++) {
        reply[i] = (unsigned char)(((const unsigned char *)call->input)[i] + 1);
    }
    kolo_service_reply(call, KOLO_OK, call->clock, reply, call->output_bytes);
    kolo_free(reply);
}

/* Small requests that arrive together, and large ones, from each rank to each. */
static kolo_status request_from(kolo_service *service, int server, unsigned char *in,
                                unsigned char *out) {
    enum { REQUESTS = 60, SMALL = 100 };
    static const size_t sizes[] = {1, 65536 - 64, 65536, 70001, MOST};
    kolo_service_request q[REQUESTS] = {0};
    for (size_t i = 0; i < MOST; i++) in[i] = (unsigned char)(i * 7 + (size_t)server);
    memset(out, 0, MOST);
    for (size_t i = 0; i < REQUESTS; i++) {
        q[i] = (kolo_service_request){.server = server,
                                      .clock = i,
                                      .input = in + i * SMALL,
                                      .output = out + i * SMALL,
                                      .input_bytes = SMALL,
                                      .output_bytes = SMALL};
        KOLO_TRY(kolo_service_start(service, &q[i]));
    }
    for (size_t i = 0; i < REQUESTS; i++) {
        KOLO_TRY(kolo_service_wait(service, &q[i], 0));
        if (q[i].reply_clock != i ||
            out[i * SMALL + SMALL - 1] != (unsigned char)(in[i * SMALL + SMALL - 1] + 1)) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "a small request");
        }
    }
    for (size_t k = 0; k < KOLO_COUNT(sizes); k++) {
        q[0] = (kolo_service_request){.server = server,
                                      .input = in,
                                      .output = out,
                                      .input_bytes = sizes[k],
                                      .output_bytes = sizes[k]};
        memset(out, 0, sizes[k]);
        KOLO_TRY(kolo_service_run(service, &q[0], 0));
        for (size_t i = 0; i < sizes[k]; i++) {
            if (out[i] != (unsigned char)(in[i] + 1)) {
                return KOLO_FAIL(KOLO_ERR_FORMAT, "byte %zu of %zu of a reply", i, sizes[k]);
            }
        }
    }
    return KOLO_OK;
}

/* The bytes of a small request to another host: call and reply are a record each. */
static kolo_status count_bytes(kolo_comm *comm) {
    enum { RECORD = KOLO_SEAL_HEAD + KOLO_SEAL_TAG };
    const int last = kolo_comm_size(comm) - 1, rank = kolo_comm_rank(comm);
    const kolo_service_opts opts = {.serve = rank == last ? serve : NULL};
    unsigned char in = 1, out = 0;
    uint64_t sent = 0, received = 0;
    kolo_service_request q = {
        .server = last, .input = &in, .output = &out, .input_bytes = 1, .output_bytes = 1};
    kolo_service *service;
    KOLO_TRY(kolo_service_create(comm, &opts, &service));
    kolo_status status = rank == 0 ? kolo_service_run(service, &q, 0) : KOLO_OK;
    kolo_service_traffic(service, &sent, &received);
    if (status == KOLO_OK && rank == 0 &&
        (sent != sizeof(kolo_call_head) + 1 + RECORD ||
         received != sizeof(kolo_reply_head) + 1 + RECORD)) {
        status = KOLO_FAIL(KOLO_ERR_FORMAT, "a request of %llu bytes, and %llu of its reply",
                           (unsigned long long)sent, (unsigned long long)received);
    }
    if (status == KOLO_OK) status = kolo_barrier(comm);
    kolo_service_destroy(service);
    return status;
}

static kolo_status run_service(kolo_comm *comm, void *in, void *out) {
    kolo_service_opts opts = {.serve = serve};
    kolo_service *service;
    KOLO_TRY(kolo_service_create(comm, &opts, &service));
    kolo_status status = KOLO_OK;
    for (int r = 0; r < kolo_comm_size(comm) && status == KOLO_OK; r++) {
        status = request_from(service, r, in, out);
    }
    if (status == KOLO_OK) status = kolo_barrier(comm);
    kolo_service_destroy(service);
    return status;
}

static kolo_status all_body(kolo_comm *comm, const void *arg, void *result) {
    float *data = kolo_alloc(MOST * sizeof *data), *other = kolo_alloc(MOST * sizeof *other);
    kolo_comm *sub = NULL;
    if (!data || !other) return KOLO_NOMEM(MOST);
    if (comm->protection != *(const kolo_protection *)arg) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "the variable has no effect");
    }
    kolo_status status = run_group(comm, data, other);
    if (status == KOLO_OK) status = run_together(comm, data);
    if (status == KOLO_OK) status = run_service(comm, data, other);
    if (status == KOLO_OK) status = count_bytes(comm);
    if (status == KOLO_OK) status = kolo_comm_split(comm, kolo_comm_rank(comm) % 2, 0, &sub);
    if (status == KOLO_OK) status = run_group(sub, data, other);
    if (status == KOLO_OK) status = kolo_barrier(comm);
    kolo_free(data);
    kolo_free(other);
    return status;
}

static const struct {
    const char *name;
    kolo_protection protection;
} variables[] = {{"KOLO_ENCRYPT", KOLO_PROTECT_SECRET},
                 {"KOLO_AUTHENTICATE", KOLO_PROTECT_AUTHENTIC}};

static void results_are_those_without_it(void **state) {
    static const rank_transport transports[] = {RANKS_TCP, RANKS_HOSTS};
    for (size_t i = 0; i < KOLO_COUNT(variables); i++) {
        kolo_protection protection = variables[i].protection;
        for (size_t t = 0; t < KOLO_COUNT(transports); t++) {
            setenv(variables[i].name, "1", 1);
            kolo_status status =
                run_ranks(4, transports[t], all_body, &protection, sizeof protection);
            unsetenv(variables[i].name);
            ASSERT_OK(status);
        }
    }
}

/* ---- forged data ---- */

/* Rank 0's connection to rank 1 carries what nobody has encrypted; ranks 1 and 2 have a group. */
static kolo_status forge(kolo_comm *comm) {
    static const char forged[2000];
    const kolo_tcp_transport *t = (const kolo_tcp_transport *)comm->transport;
    int fd = t->wire->links[1]->stream.fd;
    return send(fd, forged, sizeof forged, MSG_NOSIGNAL) > 0 ? KOLO_OK : KOLO_ERR_IO;
}

static kolo_status forged_body(kolo_comm *comm, const void *arg, void *result) {
    kolo_comm *sub;
    float x = 1;
    int rank = kolo_comm_rank(comm);
    KOLO_TRY(kolo_comm_split(comm, rank > 0, 0, &sub));
    if (rank > 0) KOLO_TRY(kolo_send(comm, &x, 1, KOLO_DTYPE_F32, 0, 0)); /* it has the group */
    for (int p = 1; rank == 0 && p < 3; p++) {
        KOLO_TRY(kolo_recv(comm, &x, 1, KOLO_DTYPE_F32, p, 0));
    }
    if (rank == 0) KOLO_TRY(forge(comm));
    if (kolo_allreduce(comm, &x, 1, KOLO_DTYPE_F32, KOLO_SUM) != KOLO_ERR_PEER ||
        (rank == 1 && !strstr(kolo_last_error(), "rank 0 is gone (its data has been "
                                                 "changed on the way)"))) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "forged data: %.300s", kolo_last_error());
    }
    for (int i = 0; i < 20; i++) {
        x = 1;
        KOLO_TRY(kolo_allreduce(sub, &x, 1, KOLO_DTYPE_F32, KOLO_SUM));
        KOLO_TRY(check(&x, 1, (float)kolo_comm_size(sub), "allreduce beside forged data"));
    }
    return KOLO_OK;
}

static void forged_data_ends_only_the_groups_of_its_connection(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(variables); i++) {
        setenv(variables[i].name, "1", 1);
        kolo_status status = run_ranks(3, RANKS_TCP, forged_body, NULL, 0);
        unsetenv(variables[i].name);
        ASSERT_OK(status);
    }
}

/* ---- disagreement and refusals ---- */

static kolo_status one_encrypts_body(kolo_comm *unused, const void *arg, void *result) {
    kolo_comm_opts opts = ranks_own_opts();
    kolo_comm *comm;
    int which = *(const int *)arg;
    bool asks = ranks_own_rank() == which % 2;
    opts.encrypt = asks && which < 2;
    opts.authenticate = which >= 4 || (asks && which >= 2);
    if (which >= 4) opts.encrypt = asks;
    KOLO_TRY(kolo_comm_create(&opts, &comm));
    kolo_comm_destroy(comm);
    return KOLO_OK;
}

static void ranks_that_disagree_get_an_error(void **state) {
    for (int which = 0; which < 6; which++) { /* encrypts; authenticates; one does more */
        rank_outcome outcomes[2];
        rank_job job = {.n = 2,
                        .transport = RANKS_TCP,
                        .body = one_encrypts_body,
                        .arg = &which,
                        .arg_bytes = sizeof which,
                        .bare = true,
                        .outcomes = outcomes};
        char text[60];
        snprintf(text, sizeof text, "rank %d %s, rank %d does not", which % 2,
                 which / 2 == 1 ? "authenticates" : "encrypts", !(which % 2));
        assert_int_equal(run_rank_job(&job), KOLO_ERR_ARG);
        for (int r = 0; r < 2; r++) {
            assert_int_equal(outcomes[r].status, KOLO_ERR_ARG);
            if (!strstr(outcomes[r].error, text)) fail_msg("rank %d: %s", r, outcomes[r].error);
        }
    }
}

static void refuses(kolo_comm_opts opts, kolo_status status, const char *text) {
    kolo_comm *comm;
    opts.encrypt = true;
    assert_int_equal(kolo_comm_create(&opts, &comm), status);
    if (!strstr(kolo_last_error(), text)) fail_msg("%s", kolo_last_error());
}

static void what_cannot_be_encrypted_is_refused(void **state) {
    static const struct {
        kolo_transport_choice transport;
        const char *text;
    } rows[] = {
        {KOLO_TRANSPORT_SHM, "--transport shm: it has no network to encrypt"},
        {KOLO_TRANSPORT_MPI, "--transport mpi: its data is not encrypted"},
        {KOLO_TRANSPORT_UCX, "--transport ucx: its data is not encrypted"},
        {KOLO_TRANSPORT_SHM_UCX, "--transport shm+ucx: its data is not encrypted"},
    };
    for (size_t i = 0; i < KOLO_COUNT(rows); i++) {
        kolo_comm_opts opts = {.transport = rows[i].transport};
        refuses(opts, KOLO_ERR_UNSUPPORTED, rows[i].text);
    }
    refuses((kolo_comm_opts){.insecure = true}, KOLO_ERR_ARG, "with --insecure");
    kolo_comm_opts authentic = {.insecure = true, .authenticate = true};
    kolo_comm *comm;
    assert_int_equal(kolo_comm_create(&authentic, &comm), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), "authentication (--authenticate, KOLO_AUTHENTICATE)"
                                              " with --insecure"));
    setenv("KOLO_ENCRYPT", "yes", 1);
    refuses((kolo_comm_opts){0}, KOLO_ERR_ARG, "KOLO_ENCRYPT is 'yes': must be 1 or 0");
    unsetenv("KOLO_ENCRYPT");
}

TEST_MAIN(test_comm_encrypt) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_those_without_it),
        cmocka_unit_test(forged_data_ends_only_the_groups_of_its_connection),
        cmocka_unit_test(ranks_that_disagree_get_an_error),
        cmocka_unit_test(what_cannot_be_encrypted_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Joining a group while other processes connect to its ranks, or die: ranks that end or cannot be
 * reached once they are known, clients without the secret, a false rank 0. */
#include "base/clock.h"
#include "base/status.h"
#include "comm/join/authentication.h"
#include "comm/join/join.h"
#include "comm/transport/socket.h"
#include "kolo/comm.h"
#include "support/join_group.h"
#include "support/ranks.h"
#include "support/support.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static int connect_to_master(void) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)atoi(getenv("MASTER_PORT"))),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

static bool send_all(int fd, const void *data, size_t bytes) {
    return send(fd, data, bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
}

/* Rank 3 of four authenticates, gets the table of addresses, and may connect to rank 0 as connect.c
 * does; then its process ends, while the others wait for it in different calls. */
static kolo_status visit_rank_0(const kolo_key *key, const kolo_hello *own, int port,
                                int64_t deadline_ns) {
    int fd;
    kolo_nonces nonces;
    struct {
        uint64_t segment_bytes;
        unsigned char half[KOLO_EXCHANGE_BYTES]; /* of keys: not encrypted */
    } theirs, ours = {.segment_bytes = 64 << 20};
    KOLO_TRY(kolo_socket_connect_tcp("127.0.0.1", port, deadline_ns, &fd));
    KOLO_TRY(kolo_handshake_connect(fd, key, own, deadline_ns, &nonces));
    KOLO_TRY(kolo_handshake_recv(fd, key, "kolo segment of the server", &nonces, &theirs,
                                 sizeof theirs, NULL, deadline_ns));
    return kolo_handshake_send(fd, key, "kolo segment of the client", &nonces, KOLO_OK, &ours,
                               sizeof ours, NULL, deadline_ns);
}

static kolo_status killed_while_connecting_body(kolo_comm *comm, const void *arg, void *result) {
    if (ranks_own_rank() != 3) return join_and_add(20000);
    kolo_key key;
    kolo_nonces nonces;
    kolo_hello own = {.rank = 3, .world = 4, .host = 1, .processors = 1, .max_in_flight = 128},
               table[4];
    int64_t deadline_ns = kolo_now_ns() + INT64_C(10000000000);
    KOLO_TRY(kolo_key_read(getenv("KOLO_SECRET_FILE"), deadline_ns, &key));
    int fd = connect_to_master();
    if (fd < 0) return KOLO_ERR_IO;
    KOLO_TRY(kolo_handshake_connect(fd, &key, &own, deadline_ns, &nonces));
    KOLO_TRY(kolo_handshake_recv(fd, &key, "kolo answer", &nonces, table, sizeof table, NULL,
                                 deadline_ns));
    if (*(const bool *)arg) KOLO_TRY(visit_rank_0(&key, &own, table[0].port, deadline_ns));
    raise(SIGKILL);
    return KOLO_OK;
}

/* Not after the deadline: then it would be a TIMEOUT. */
static void a_rank_that_ends_while_others_connect_is_detected(void **state) {
    for (int visits = 0; visits < 2; visits++) {
        rank_outcome outcomes[4];
        bool arg = visits;
        (void)run_rank_job(&(rank_job){.n = 4,
                                       .transport = RANKS_SHM,
                                       .body = killed_while_connecting_body,
                                       .arg = &arg,
                                       .arg_bytes = sizeof arg,
                                       .bare = true,
                                       .outcomes = outcomes});
        assert_int_equal(outcomes[3].signal, SIGKILL);
        for (int r = 0; r < 3; r++) {
            join_expect(&outcomes[r], KOLO_ERR_PEER,
                        "rank 3 at 127.0.0.1 is gone (process ended) while the group formed");
        }
    }
}

/* Rank 1 of three joins and publishes a listener that accepts no connection. If `full`, the queue
 * of the listener is full, so the kernel does not answer either, as for a host that cannot be
 * reached.
 */
static kolo_status publish_listener(bool full, kolo_hello *own, int *fd) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    *fd = socket(AF_INET, SOCK_STREAM, 0);
    if (*fd < 0 || bind(*fd, (struct sockaddr *)&address, length) != 0 ||
        listen(*fd, full ? 0 : 8) != 0 ||
        getsockname(*fd, (struct sockaddr *)&address, &length) != 0) {
        return KOLO_FAIL(KOLO_ERR_IO, "no listener");
    }
    for (int i = 0; full && i < 4; i++) { /* left open until the process ends */
        int filler = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)connect(filler, (struct sockaddr *)&address, length);
    }
    *own = (kolo_hello){.rank = 1,
                        .world = 3,
                        .host = 1,
                        .address = "127.0.0.1",
                        .port = ntohs(address.sin_port),
                        .processors = 1,
                        .max_in_flight = 128};
    return KOLO_OK;
}

static kolo_status out_of_reach_body(kolo_comm *comm, const void *arg, void *result) {
    bool full = *(const bool *)arg;
    if (ranks_own_rank() != 1) {
        kolo_comm *joined;
        kolo_comm_opts opts = {.timeout_ms = full ? 30000 : SOON_MS, .heartbeat_ms = 100};
        return kolo_comm_create(&opts, &joined);
    }
    int listener, fd = connect_to_master();
    kolo_key key;
    kolo_nonces nonces;
    kolo_hello own, table[3];
    int64_t deadline_ns = kolo_now_ns() + INT64_C(20000000000);
    if (fd < 0) return KOLO_ERR_IO;
    KOLO_TRY(publish_listener(full, &own, &listener));
    KOLO_TRY(kolo_key_read(getenv("KOLO_SECRET_FILE"), deadline_ns, &key));
    KOLO_TRY(kolo_handshake_connect(fd, &key, &own, deadline_ns, &nonces));
    KOLO_TRY(kolo_handshake_recv(fd, &key, "kolo answer", &nonces, table, sizeof table, NULL,
                                 deadline_ns));
    return kolo_handshake_recv(fd, &key, "kolo answer", &nonces, NULL, 0, NULL, deadline_ns);
}

/* Long before the deadline if its host does not answer. */
static void a_rank_that_cannot_be_reached_is_named_to_all(void **state) {
    for (int full = 0; full < 2; full++) {
        rank_outcome outcomes[3];
        bool arg = full;
        (void)run_rank_job(&(rank_job){.n = 3,
                                       .transport = RANKS_SHM,
                                       .body = out_of_reach_body,
                                       .arg = &arg,
                                       .arg_bytes = sizeof arg,
                                       .bare = true,
                                       .outcomes = outcomes});
        for (int r = 0; r < 3; r++) {
            join_expect(&outcomes[r], KOLO_ERR_TIMEOUT, "rank 1 at 127.0.0.1");
            if (!full) continue; /* else ranks 0 and 2 have the same deadline */
            join_expect(&outcomes[r], KOLO_ERR_TIMEOUT,
                        "rank 2, connecting to rank 1 at 127.0.0.1: ");
            join_expect(&outcomes[r], KOLO_ERR_TIMEOUT, "no answer from its host");
        }
    }
}

/* Rank 1 first opens invalid connections to rank 0, more than its pending list holds: idle ones,
 * garbage, the start of a message. */
static kolo_status junk_body(kolo_comm *comm, const void *arg, void *result) {
    if (ranks_own_rank() == 1) {
        char junk[4096];
        for (size_t i = 0; i < sizeof junk; i++) junk[i] = (char)(i * 37 + 5);
        for (int i = 0; i < 100; i++) { /* left open until the process ends */
            int fd = connect_to_master();
            if (fd < 0) return KOLO_FAIL(KOLO_ERR_IO, "no connection for junk");
            if (i % 3 == 1) (void)send_all(fd, junk, (size_t)(1 + i * 40));
            if (i % 3 == 2) (void)send_all(fd, "KOLO-4\r\nhello", 13);
        }
    }
    return join_and_add(20000);
}

/* Replays the join message of another connection, which has another nonce. */
static kolo_status replay_body(kolo_comm *comm, const void *arg, void *result) {
    if (ranks_own_rank() == 0) return join_and_add(SOON_MS);
    kolo_key key;
    int64_t deadline_ns = kolo_now_ns() + (int64_t)SOON_MS * 1000000;
    KOLO_TRY(kolo_key_read(getenv("KOLO_SECRET_FILE"), deadline_ns, &key));
    int pair[2], fd = connect_to_master();
    if (fd < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) return KOLO_ERR_IO;
    unsigned char greeting[40], message[512];
    KOLO_TRY(kolo_socket_recv(fd, greeting, sizeof greeting, NULL, deadline_ns));
    greeting[39] ^= 1; /* a greeting with another nonce */
    if (!send_all(pair[0], greeting, sizeof greeting)) return KOLO_ERR_IO;
    kolo_nonces nonces;
    kolo_hello hello = {.rank = 1, .world = 2};
    KOLO_TRY(kolo_handshake_connect(pair[1], &key, &hello, deadline_ns, &nonces));
    ssize_t n = recv(pair[0], message, sizeof message, 0);
    if (n <= 0 || !send_all(fd, message, (size_t)n)) return KOLO_ERR_IO;
    char byte;
    kolo_status status = kolo_socket_recv(fd, &byte, 1, NULL, deadline_ns);
    return status == KOLO_ERR_PEER ? KOLO_OK : KOLO_FAIL(KOLO_ERR_FORMAT, "it was not rejected");
}

static void invalid_clients_are_rejected(void **state) {
    rank_outcome outcomes[2];
    ASSERT_OK(join_run(2, junk_body, outcomes));
    assert_int_not_equal(join_run(2, replay_body, outcomes), KOLO_OK);
    join_expect(&outcomes[0], KOLO_ERR_TIMEOUT, "authentication failed");
    assert_int_equal(outcomes[1].status, KOLO_OK);
}

/* Another process listens at rank 0's address, without the secret. */
static kolo_status impostor_body(kolo_comm *comm, const void *arg, void *result) {
    if (ranks_own_rank() == 1) return join_and_add(SOON_MS);
    int fd = accept(atoi(getenv("KOLO_LISTEN_FD")), NULL, NULL);
    unsigned char greeting[40] = "KOLO-4\r\n", message[512];
    struct {
        char magic[8];
        uint32_t status, bytes;
        unsigned char body[2 * sizeof(kolo_hello)], proof[KOLO_PROOF_BYTES];
    } answer = {.magic = {'K', 'O', 'L', 'O', '-', '4', '\r', '\n'},
                .bytes = 2 * sizeof(kolo_hello)};
    if (fd < 0 || !send_all(fd, greeting, sizeof greeting)) return KOLO_ERR_IO;
    if (recv(fd, message, sizeof message, 0) <= 0) return KOLO_ERR_IO;
    if (!send_all(fd, &answer, sizeof answer)) return KOLO_ERR_IO;
    return recv(fd, message, sizeof message, 0) >= 0 ? KOLO_OK : KOLO_ERR_IO;
}

static kolo_status stranger_body(kolo_comm *comm, const void *arg, void *result) {
    if (ranks_own_rank() == 1) return join_and_add(SOON_MS);
    int fd = accept(atoi(getenv("KOLO_LISTEN_FD")), NULL, NULL);
    char message[512];
    if (fd < 0 || !send_all(fd, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", 47)) {
        return KOLO_ERR_IO;
    }
    return recv(fd, message, sizeof message, 0) >= 0 ? KOLO_OK : KOLO_ERR_IO;
}

static void a_false_rank_0_is_rejected(void **state) {
    rank_outcome outcomes[2];
    assert_int_not_equal(join_run(2, impostor_body, outcomes), KOLO_OK);
    join_expect(&outcomes[1], KOLO_ERR_PEER, "authentication failed");
    assert_int_not_equal(join_run(2, stranger_body, outcomes), KOLO_OK);
    join_expect(&outcomes[1], KOLO_ERR_FORMAT, "not a kolo rank");
}

TEST_MAIN(test_comm_join_clients) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_ends_while_others_connect_is_detected),
        cmocka_unit_test(a_rank_that_cannot_be_reached_is_named_to_all),
        cmocka_unit_test(invalid_clients_are_rejected),
        cmocka_unit_test(a_false_rank_0_is_rejected),
    };
    return cmocka_run_group_tests_name("comm_join_clients", tests, NULL, NULL);
}

/* A server alone, with clients that violate the protocol: raw sockets of this thread. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "comm/service/message.h"
#include "comm/service/server.h"
#include "support/support.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CLIENTS = 2, CREDITS = 4, CLIENT_BYTES = 1 << 20, REPLY = 100000 };
enum { PULL, KEEP };

typedef struct scene {
    kolo_server *server;
    int fds[CLIENTS]; /* the clients' ends */
    int served[CLIENTS], lost[CLIENTS], left[CLIENTS];
    char reason[256];
    kolo_service_call *kept[CREDITS];
    int n_kept;
} scene;

static void serve(void *arg, kolo_service_call *call) {
    scene *s = arg;
    static const char data[REPLY];
    s->served[call->client]++;
    if (call->kind == KEEP) {
        s->kept[s->n_kept++] = call;
    } else {
        kolo_service_reply(call, KOLO_OK, call->clock, data, call->output_bytes);
    }
}

static void lost(void *arg, int client, bool left, const char *reason) {
    scene *s = arg;
    s->lost[client]++;
    s->left[client] += left;
    snprintf(s->reason, sizeof s->reason, "%s", reason);
}

static void open_protected(scene *s, const kolo_seal_keys *keys) {
    static const bool local[CLIENTS] = {true, true}, mapped[CLIENTS];
    kolo_server_place place = {.local = local, .mapped = mapped, .size = CLIENTS};
    kolo_service_opts opts = {
        .serve = serve, .lost = lost, .arg = s, .credits = CREDITS, .client_bytes = CLIENT_BYTES};
    *s = (scene){0};
    ASSERT_OK(kolo_server_create(&opts, &place, &s->server));
    for (int i = 0; i < CLIENTS; i++) {
        int fds[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds),
                         0);
        s->fds[i] = fds[0];
        ASSERT_OK(kolo_server_attach(s->server, i, fds[1], keys));
    }
}

static void open_scene(scene *s) { open_protected(s, NULL); }

static void close_scene(scene *s) {
    for (int i = 0; i < CLIENTS; i++) {
        if (s->fds[i] >= 0) close(s->fds[i]);
    }
    kolo_server_destroy(s->server);
}

static void poll_all(scene *s) {
    for (int i = 0; i < 20; i++) kolo_server_poll(s->server, 0);
}

static ssize_t send_call(scene *s, int client, kolo_call_head head) {
    head.type = KOLO_MESSAGE_CALL;
    return send(s->fds[client], &head, sizeof head, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static bool receive_all(scene *s, int client, void *to, size_t bytes) {
    size_t got = 0;
    for (int i = 0; got < bytes && i < 1000; i++) {
        kolo_server_poll(s->server, 0);
        ssize_t n = recv(s->fds[client], (char *)to + got, bytes - got, MSG_DONTWAIT);
        if (n > 0) got += (size_t)n;
    }
    return got == bytes;
}

/* Client 0 sends requests without reading replies: the server stops serving it when its memory is
 * used up, and serves client 1. Once client 0 reads, all its requests are served. */
static void a_client_that_does_not_read_holds_its_share(void **state) {
    enum { REQUESTS = 200 };
    scene s;
    open_scene(&s);
    for (uint64_t i = 1; i <= REQUESTS; i++) {
        assert_int_equal(send_call(&s, 0, (kolo_call_head){.serial = i, .output_bytes = REPLY}),
                         sizeof(kolo_call_head));
    }
    poll_all(&s);
    static char data[REPLY];
    kolo_reply_head head;
    for (uint64_t i = 1; i <= 20; i++) {
        send_call(&s, 1, (kolo_call_head){.serial = i, .clock = i, .output_bytes = REPLY});
        assert_true(receive_all(&s, 1, &head, sizeof head) && head.clock == i);
        assert_true(receive_all(&s, 1, data, REPLY));
    }
    int most = CLIENT_BYTES / REPLY + 4; /* some are in the socket's buffer */
    assert_true(s.served[0] >= 1 && s.served[0] <= most);
    for (uint64_t i = 1; i <= REQUESTS; i++) {
        assert_true(receive_all(&s, 0, &head, sizeof head) && head.serial == i);
        assert_true(receive_all(&s, 0, data, REPLY));
    }
    assert_int_equal(s.served[0], REQUESTS);
    assert_int_equal(s.lost[0] + s.lost[1], 0);
    close_scene(&s);
}

static ssize_t send_report(scene *s, int client, uint64_t serial, uint64_t key, uint64_t bytes) {
    const kolo_call_head head = {
        .type = KOLO_MESSAGE_PROGRESS, .serial = serial, .key = key, .input_bytes = bytes};
    return send(s->fds[client], &head, sizeof head, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Progress reports need no credit. The reply states how long ago a client made progress. */
static void progress_reports_are_answered(void **state) {
    scene s;
    kolo_reply_head head;
    open_scene(&s);
    for (uint64_t i = 1; i <= CREDITS; i++) {
        send_call(&s, 0, (kolo_call_head){.serial = i, .kind = KEEP});
    }
    kolo_sleep_ns(30000000);
    send_report(&s, 0, CREDITS + 1, 0, 0);
    assert_true(receive_all(&s, 0, &head, sizeof head) && head.serial == CREDITS + 1);
    assert_true(head.status == KOLO_OK && head.clock >= 30); /* since the server was created */
    send_report(&s, 1, 1, 1, 0);
    assert_true(receive_all(&s, 1, &head, sizeof head) && head.clock == 0);
    send_report(&s, 1, 2, 1, 8); /* it has no data */
    poll_all(&s);
    assert_int_equal(s.lost[1], 1);
    assert_non_null(strstr(s.reason, "invalid progress report"));
    for (int i = 0; i < CREDITS; i++) kolo_service_reply(s.kept[i], KOLO_OK, 0, NULL, 0);
    close_scene(&s);
}

/* A client that sends progress reports without reading the answers is not read any more. */
static void unread_answers_to_reports_are_bounded(void **state) {
    enum { SIGNS = 200000 };
    scene s;
    open_scene(&s);
    uint64_t sent = 0;
    for (int blocked = 0; sent < SIGNS && blocked < 100;) {
        const bool taken = send_report(&s, 0, sent + 1, 0, 0) == sizeof(kolo_call_head);
        sent += taken;
        blocked = taken ? 0 : blocked + 1;
        kolo_server_poll(s.server, 0);
    }
    assert_in_range(sent, 1, SIGNS - 1);
    kolo_reply_head head;
    for (uint64_t i = 1; i <= sent; i++) {
        assert_true(receive_all(&s, 0, &head, sizeof head) && head.serial == i);
    }
    assert_int_equal(s.lost[0], 0);
    close_scene(&s);
}

/* A client has CREDITS requests without reply; the next one is served after a reply, also after one
 * outside of a poll, as `due` makes it: the next poll does not wait for an event. */
static void credits_bound_the_calls_in_progress(void **state) {
    scene s;
    open_scene(&s);
    for (uint64_t i = 1; i <= CREDITS + 1; i++) {
        send_call(&s, 0, (kolo_call_head){.serial = i, .kind = i <= CREDITS ? KEEP : PULL});
    }
    poll_all(&s);
    assert_int_equal(s.served[0], CREDITS);
    kolo_service_reply(s.kept[2], KOLO_OK, 0, NULL, 0);
    kolo_server_poll(s.server, -1);
    assert_int_equal(s.served[0], CREDITS + 1);
    close(s.fds[0]); /* lost while it has calls: their replies only free them */
    s.fds[0] = -1;
    poll_all(&s);
    assert_int_equal(s.lost[0], 1);
    assert_int_equal(s.left[0], 0);
    kolo_service_reply(s.kept[0], KOLO_OK, 0, NULL, 0);
    close_scene(&s);
}

/* A paused client is not read, but its end is detected. */
static void the_end_of_a_paused_client_is_detected(void **state) {
    scene s;
    open_scene(&s);
    for (uint64_t i = 1; i <= CREDITS + 1; i++) {
        send_call(&s, 0, (kolo_call_head){.serial = i, .kind = i <= CREDITS ? KEEP : PULL});
    }
    poll_all(&s);
    close(s.fds[0]);
    s.fds[0] = -1;
    poll_all(&s);
    assert_int_equal(s.lost[0], 1);
    close_scene(&s);
}

static void a_client_leaves(void **state) {
    scene s;
    open_scene(&s);
    kolo_call_head head = {.type = KOLO_MESSAGE_LEAVE};
    assert_int_equal(send(s.fds[1], &head, sizeof head, 0), sizeof head);
    poll_all(&s);
    assert_int_equal(s.left[1], 1);
    assert_int_equal(s.lost[0], 0);
    assert_string_equal(s.reason, "it has left the service");
    close_scene(&s);
}

/* The text of its error may come in parts, or not as a whole. */
static void a_client_leaves_after_an_error(void **state) {
    static const char text[] = "sample 7 is damaged";
    enum { FIRST = 6, ALL = sizeof text - 1 };
    scene s;
    open_scene(&s);
    kolo_call_head head = {.type = KOLO_MESSAGE_LEAVE, .input_bytes = ALL};
    for (int c = 0; c < CLIENTS; c++) {
        assert_int_equal(send(s.fds[c], &head, sizeof head, 0), sizeof head);
        assert_int_equal(send(s.fds[c], text, FIRST, 0), FIRST);
        poll_all(&s);
        assert_int_equal(s.lost[c], 0);
    }
    assert_int_equal(send(s.fds[0], text + FIRST, ALL - FIRST, 0), ALL - FIRST);
    poll_all(&s);
    assert_int_equal(s.left[0], 1);
    assert_string_equal(s.reason, "it ended after an error: sample 7 is damaged");
    close(s.fds[1]);
    s.fds[1] = -1;
    poll_all(&s);
    assert_int_equal(s.left[1], 1);
    assert_string_equal(s.reason, "it ended after an error: sample");
    close_scene(&s);
}

/* Invalid messages end the connection of their sender only. */
static void invalid_requests_are_refused(void **state) {
    static const struct {
        kolo_call_head head;
        const char *reason;
    } cases[] = {
        {{.type = 7, .serial = 1}, "type 00000007"},
        {{.type = KOLO_MESSAGE_LEAVE, .input_bytes = KOLO_SERVICE_TEXT_BYTES}, "an invalid end"},
        {{.type = KOLO_MESSAGE_REPLY, .serial = 1}, "an invalid request"},
        {{.type = KOLO_MESSAGE_CALL, .serial = 2}, "number 2 after 0"},
        {{.type = KOLO_MESSAGE_CALL, .serial = 1, .input_bytes = CLIENT_BYTES}, "at most"},
        {{.type = KOLO_MESSAGE_CALL, .serial = 1, .input_bytes = UINT64_MAX}, "at most"},
        {{.type = KOLO_MESSAGE_CALL, .serial = 1, .output_bytes = UINT64_MAX}, "at most"},
        {{.type = KOLO_MESSAGE_CALL, .serial = 1, .input_bytes = 8, .input_handle = 1}, "at most"},
        {{.type = KOLO_MESSAGE_CALL, .serial = 1, .output_bytes = 8, .output_handle = 64},
         "at most"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scene s;
        kolo_reply_head reply;
        open_scene(&s);
        assert_int_equal(send(s.fds[0], &cases[i].head, sizeof cases[i].head, 0),
                         sizeof cases[i].head);
        poll_all(&s);
        assert_int_equal(s.lost[0], 1);
        assert_int_equal(s.served[0], 0);
        assert_non_null(strstr(s.reason, cases[i].reason));
        send_call(&s, 1, (kolo_call_head){.serial = 1});
        assert_true(receive_all(&s, 1, &reply, sizeof reply) && reply.status == KOLO_OK);
        close_scene(&s);
    }
}

/* ---- protected connections ---- */

enum { TOGETHER = 30 };

/* The keys of client 0's side, and of the server's. */
static void make_keys(kolo_protection protection, kolo_seal_keys keys[2]) {
    for (int i = 0; i < 2; i++) {
        keys[i].protection = protection;
        memset(keys[i].send, 1 + i, sizeof keys[i].send);
        memset(keys[i].receive, 2 - i, sizeof keys[i].receive);
    }
}

/* Requests that the server reads from the socket at once are all served, whatever the socket has
 * left; what goes over it is secret, if asked for. */
static void protected_requests_are_served(void **state) {
    for (int p = KOLO_PROTECT_AUTHENTIC; p <= KOLO_PROTECT_SECRET; p++) {
        scene s;
        kolo_seal_keys keys[2];
        kolo_message_socket own;
        make_keys((kolo_protection)p, keys);
        open_protected(&s, &keys[1]);
        ASSERT_OK(kolo_message_open(s.fds[0], &keys[0], NULL, &own));
        s.fds[0] = -1;
        for (uint64_t i = 1; i <= TOGETHER; i++) {
            kolo_call_head head = {.type = KOLO_MESSAGE_CALL,
                                   .serial = i,
                                   .key = 0x123456789abcdef0,
                                   .clock = i,
                                   .output_bytes = 8};
            kolo_outgoing m = {.head = &head, .head_bytes = sizeof head};
            bool complete;
            ASSERT_OK(kolo_message_send(&own, &m, &complete));
            assert_true(complete);
        }
        for (uint64_t i = 1; i <= TOGETHER; i++) {
            kolo_reply_head head;
            char bytes[8], raw[8192];
            size_t filled = 0;
            bool ended;
            const uint64_t clock = i;
            for (int k = 0; k < 100 && filled < sizeof head; k++) {
                kolo_server_poll(s.server, 0);
                ssize_t seen = recv(own.fd, raw, sizeof raw, MSG_PEEK | MSG_DONTWAIT);
                if (seen > 0) {
                    uint32_t type = KOLO_MESSAGE_REPLY;
                    bool plain = memmem(raw, (size_t)seen, &type, sizeof type) != NULL;
                    assert_int_equal(plain, p == KOLO_PROTECT_AUTHENTIC);
                }
                ASSERT_OK(kolo_message_receive(&own, &head, sizeof head, &filled, &ended));
            }
            assert_int_equal(filled, sizeof head);
            assert_true(head.clock == clock);
            filled = 0;
            ASSERT_OK(kolo_message_receive(&own, bytes, sizeof bytes, &filled, &ended));
            assert_int_equal(filled, sizeof bytes);
        }
        assert_int_equal(s.served[0], TOGETHER);
        kolo_message_close(&own);
        close_scene(&s);
    }
}

/* Requests that wait in the server's buffer for a credit are served once there is one. */
static void a_paused_protected_client_goes_on(void **state) {
    scene s;
    kolo_seal_keys keys[2];
    kolo_message_socket own;
    make_keys(KOLO_PROTECT_SECRET, keys);
    open_protected(&s, &keys[1]);
    ASSERT_OK(kolo_message_open(s.fds[0], &keys[0], NULL, &own));
    s.fds[0] = -1;
    for (uint64_t i = 1; i <= TOGETHER; i++) {
        kolo_call_head head = {
            .type = KOLO_MESSAGE_CALL, .serial = i, .kind = i <= CREDITS ? KEEP : PULL};
        kolo_outgoing m = {.head = &head, .head_bytes = sizeof head};
        bool complete;
        ASSERT_OK(kolo_message_send(&own, &m, &complete));
        assert_true(complete);
    }
    poll_all(&s);
    assert_int_equal(s.served[0], CREDITS);
    kolo_service_reply(s.kept[0], KOLO_OK, 0, NULL, 0);
    poll_all(&s);
    assert_int_equal(s.served[0], TOGETHER);
    kolo_message_close(&own);
    poll_all(&s);
    assert_int_equal(s.lost[0], 1);
    close_scene(&s);
}

/* Data that is not the client's ends its connection, and no other. */
static void changed_data_ends_a_protected_connection(void **state) {
    scene s;
    kolo_seal_keys keys[2];
    kolo_message_socket own;
    make_keys(KOLO_PROTECT_AUTHENTIC, keys);
    open_protected(&s, &keys[1]);
    send_call(&s, 0, (kolo_call_head){.serial = 1});
    kolo_call_head head = {.type = KOLO_MESSAGE_CALL, .serial = 1};
    kolo_outgoing m = {.head = &head, .head_bytes = sizeof head};
    bool complete;
    ASSERT_OK(kolo_message_open(s.fds[1], &keys[0], NULL, &own));
    s.fds[1] = -1;
    ASSERT_OK(kolo_message_send(&own, &m, &complete));
    poll_all(&s);
    assert_int_equal(s.served[0], 0);
    assert_int_equal(s.lost[0], 1);
    assert_non_null(strstr(s.reason, "changed on the way"));
    assert_int_equal(s.served[1], 1);
    assert_int_equal(s.lost[1], 0);
    kolo_message_close(&own);
    close_scene(&s);
}

/* ---- the thread of a server ---- */

/* Connects as a client of that rank, up to the answer of the server. */
static int join_server(const kolo_key *key, int port, int rank, int64_t deadline_ns,
                       kolo_nonces *nonces) {
    const kolo_hello hello = {.rank = rank, .world = CLIENTS};
    int fd;
    ASSERT_OK(kolo_socket_connect_tcp("127.0.0.1", port, deadline_ns, &fd));
    ASSERT_OK(kolo_handshake_connect(fd, key, &hello, deadline_ns, nonces));
    ASSERT_OK(kolo_handshake_recv(fd, key, "kolo service", nonces, NULL, 0, NULL, deadline_ns));
    return fd;
}

/* Client 1 ends before it has sent its half of the keys; client 0 is served. */
static void a_client_that_ends_in_its_handshake_is_lost_alone(void **state) {
    static const bool local[CLIENTS], mapped[CLIENTS];
    const kolo_server_place place = {.local = local, .mapped = mapped, .size = CLIENTS};
    const int64_t deadline_ns = kolo_now_ns() + INT64_C(20000000000);
    scene s = {0};
    kolo_service_opts opts = {
        .serve = serve, .lost = lost, .arg = &s, .credits = CREDITS, .client_bytes = CLIENT_BYTES};
    char address[KOLO_ADDRESS_BYTES];
    unsigned char secret[32];
    kolo_key key;
    kolo_nonces nonces;
    kolo_seal_keys keys;
    int listener, port;
    ASSERT_OK(kolo_key_draw(secret, sizeof secret, &key));
    ASSERT_OK(kolo_socket_listen_tcp("127.0.0.1", 0, &listener));
    ASSERT_OK(kolo_socket_own_address(listener, address, &port));
    ASSERT_OK(kolo_server_create(&opts, &place, &s.server));
    ASSERT_OK(kolo_server_start(s.server, -1, listener, &key, KOLO_PROTECT_SECRET, deadline_ns));
    close(join_server(&key, port, 1, deadline_ns, &nonces));
    int fd = join_server(&key, port, 0, deadline_ns, &nonces);
    ASSERT_OK(
        kolo_handshake_keys(fd, &key, &nonces, false, KOLO_PROTECT_SECRET, deadline_ns, &keys));
    kolo_message_socket own;
    ASSERT_OK(kolo_message_open(fd, &keys, NULL, &own));
    const kolo_call_head head = {.type = KOLO_MESSAGE_CALL, .serial = 1, .clock = 7};
    kolo_outgoing m = {.head = &head, .head_bytes = sizeof head};
    kolo_reply_head reply;
    size_t filled = 0;
    bool complete, ended = false;
    ASSERT_OK(kolo_message_send(&own, &m, &complete));
    assert_true(complete);
    while (filled < sizeof reply && !ended && kolo_socket_readable(own.fd, deadline_ns)) {
        ASSERT_OK(kolo_message_receive(&own, &reply, sizeof reply, &filled, &ended));
    }
    assert_true(filled == sizeof reply && reply.status == KOLO_OK && reply.clock == 7);
    kolo_server_stop(s.server);
    assert_int_equal(s.lost[1], 1);
    assert_int_equal(s.lost[0] + s.left[1], 0);
    kolo_message_close(&own);
    kolo_server_destroy(s.server);
}

TEST_MAIN(test_comm_server) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_that_does_not_read_holds_its_share),
        cmocka_unit_test(progress_reports_are_answered),
        cmocka_unit_test(unread_answers_to_reports_are_bounded),
        cmocka_unit_test(credits_bound_the_calls_in_progress),
        cmocka_unit_test(the_end_of_a_paused_client_is_detected),
        cmocka_unit_test(a_client_leaves),
        cmocka_unit_test(a_client_leaves_after_an_error),
        cmocka_unit_test(invalid_requests_are_refused),
        cmocka_unit_test(protected_requests_are_served),
        cmocka_unit_test(a_paused_protected_client_goes_on),
        cmocka_unit_test(changed_data_ends_a_protected_connection),
        cmocka_unit_test(a_client_that_ends_in_its_handshake_is_lost_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

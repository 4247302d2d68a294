/* Replies out of memory that a server exposes: what the server sends, and what a client accepts. */
#define _GNU_SOURCE
#include "comm/service/client.h"
#include "comm/service/message.h"
#include "comm/service/server.h"
#include "support/support.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BLOCK = 4096, EXPOSED = 1000, MAPPED = 0, UNMAPPED = 1, CLIENTS = 2 };

/* ---- a transport that maps one block ---- */

static char block[BLOCK];

/* The offset and 1; 0: outside. */
static uint64_t handle(kolo_transport *t, const void *data, size_t bytes) {
    const uintptr_t first = (uintptr_t)block, at = (uintptr_t)data;
    return at >= first && at - first < BLOCK ? at - first + 1 : 0;
}

static void *window(kolo_transport *t, int peer, uint64_t handle, size_t bytes) {
    const size_t first = (size_t)handle - 1;
    return handle > 0 && first <= BLOCK && bytes <= BLOCK - first ? block + first : NULL;
}

static const kolo_transport_ops ops = {.handle = handle, .window = window};

static kolo_transport open_transport(void) {
    for (size_t i = 0; i < BLOCK; i++) block[i] = (char)(i * 7 + i / 251);
    return (kolo_transport){.ops = &ops, .size = CLIENTS, .windows = true};
}

static void open_pair(int fds[2]) {
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
}

/* ---- the server ---- */

/* The key: where the reply begins in the block. The kind: whether the server copies it. */
static void serve(void *arg, kolo_service_call *call) {
    call->copied = call->kind != 0;
    kolo_service_reply(call, KOLO_OK, 0, block + call->key, call->output_bytes);
}

/* A request to a server that exposes the first EXPOSED bytes of the block. Returns whether the
 * reply has no body, and is to be copied from there. */
static bool is_exposed(int client, uint64_t at, uint64_t bytes, bool copied) {
    static const bool local[CLIENTS] = {true, true}, mapped[CLIENTS] = {[MAPPED] = true};
    kolo_transport t = open_transport();
    const kolo_server_place place = {
        .transport = &t, .local = local, .mapped = mapped, .size = CLIENTS};
    const kolo_service_opts opts = {.serve = serve,
                                    .credits = 2,
                                    .client_bytes = 8192,
                                    .exposed = block,
                                    .exposed_bytes = EXPOSED};
    const kolo_call_head call = {
        .type = KOLO_MESSAGE_CALL, .kind = copied, .serial = 1, .key = at, .output_bytes = bytes};
    kolo_server *server;
    kolo_reply_head head;
    char body[BLOCK];
    int fds[2];
    open_pair(fds);
    ASSERT_OK(kolo_server_create(&opts, &place, &server));
    ASSERT_OK(kolo_server_attach(server, client, fds[1], NULL));
    assert_int_equal(send(fds[0], &call, sizeof call, 0), sizeof call);
    for (int i = 0; i < 5; i++) kolo_server_poll(server, 0);
    assert_int_equal(recv(fds[0], &head, sizeof head, 0), sizeof head);
    assert_true(head.type == KOLO_MESSAGE_REPLY && head.status == KOLO_OK && head.placed == 0);
    assert_int_equal(head.bytes, bytes);
    const ssize_t n = recv(fds[0], body, sizeof body, 0);
    if (head.exposed_handle == 0) {
        assert_int_equal(n, bytes > 0 ? (ssize_t)bytes : -1);
        if (bytes > 0) assert_memory_equal(body, block + at, bytes);
    } else {
        assert_int_equal(n, -1);
        assert_int_equal(head.exposed_at, at);
    }
    close(fds[0]);
    kolo_server_destroy(server);
    return head.exposed_handle != 0;
}

static void a_server_sends_what_it_does_not_expose(void **state) {
    assert_true(is_exposed(MAPPED, 0, EXPOSED, false));
    assert_true(is_exposed(MAPPED, 3, 700, false));
    assert_true(is_exposed(MAPPED, EXPOSED - 1, 1, false));
    assert_false(is_exposed(MAPPED, EXPOSED - 1, 2, false)); /* it is not all there */
    assert_false(is_exposed(MAPPED, EXPOSED, 1, false));
    assert_false(is_exposed(MAPPED, 2000, 1000, false));
    assert_false(is_exposed(MAPPED, 5, 0, false));
    assert_false(is_exposed(UNMAPPED, 0, EXPOSED, false));
    assert_false(is_exposed(MAPPED, 3, 700, true));
}

/* ---- the client ---- */

/* The result of a request for `room` bytes, whose reply is this one. */
static kolo_status receive(const kolo_reply_head *reply, bool mapped, size_t room, char *output) {
    kolo_transport t = open_transport();
    kolo_activity activity = {0};
    kolo_client *client;
    kolo_call_head call;
    int fds[2];
    open_pair(fds);
    ASSERT_OK(kolo_client_create(&t, CLIENTS, 10000, &activity, &client));
    ASSERT_OK(kolo_client_attach(client, 0, fds[1], mapped, NULL));
    kolo_service_request q = {.output = output, .output_bytes = room};
    assert_int_equal(send(fds[0], reply, sizeof *reply, 0), sizeof *reply); /* of a later request */
    ASSERT_OK(kolo_client_start(client, &q, true));
    const kolo_status status = kolo_client_wait(client, &q, 0);
    assert_int_equal(recv(fds[0], &call, sizeof call, 0), sizeof call);
    kolo_client_destroy(client);
    close(fds[0]);
    return status;
}

static void a_client_copies_exposed_replies(void **state) {
    static const struct {
        uint64_t handle, at, bytes;
    } cases[] = {{1, 0, 4000}, {1, 17, 900}, {1, BLOCK - 1, 1}, {100, 1, 33}};
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        char output[BLOCK] = {0};
        const kolo_reply_head head = {.type = KOLO_MESSAGE_REPLY,
                                      .serial = 1,
                                      .bytes = cases[i].bytes,
                                      .exposed_handle = cases[i].handle,
                                      .exposed_at = cases[i].at};
        ASSERT_OK(receive(&head, true, sizeof output, output));
        assert_memory_equal(output, block + cases[i].handle - 1 + cases[i].at, cases[i].bytes);
        for (size_t k = cases[i].bytes; k < BLOCK; k++) assert_int_equal(output[k], 0);
    }
}

/* The transport determines how large the server's memory is, not the reply. */
static void a_client_refuses_invalid_exposed_replies(void **state) {
    static const struct {
        kolo_reply_head head;
        bool unmapped;
        const char *error;
    } cases[] = {
        {{.bytes = 2, .exposed_handle = 1, .exposed_at = BLOCK - 1},
         false,
         "outside of its memory"},
        {{.bytes = 2, .exposed_handle = BLOCK + 2}, false, "outside of its memory"},
        {{.bytes = 2, .exposed_handle = 1, .exposed_at = UINT64_MAX},
         false,
         "outside of its memory"},
        {{.bytes = 2, .exposed_handle = UINT64_MAX, .exposed_at = 1},
         false,
         "outside of its memory"},
        {{.bytes = 2, .exposed_handle = 1}, true, "an invalid reply"},
        {{.bytes = 101, .exposed_handle = 1}, false, "an invalid reply"},
        {{.bytes = 2, .exposed_handle = 1, .placed = 1}, false, "an invalid reply"},
        {{.bytes = 2, .exposed_handle = 1, .status = KOLO_ERR_ARG}, false, "an invalid reply"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        char output[100] = {0};
        kolo_reply_head head = cases[i].head;
        head.type = KOLO_MESSAGE_REPLY;
        head.serial = 1;
        assert_int_equal(receive(&head, !cases[i].unmapped, sizeof output, output),
                         KOLO_ERR_FORMAT);
        assert_non_null(strstr(kolo_last_error(), cases[i].error));
        for (size_t k = 0; k < sizeof output; k++) assert_int_equal(output[k], 0);
    }
}

TEST_MAIN(test_comm_exposed) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_sends_what_it_does_not_expose),
        cmocka_unit_test(a_client_copies_exposed_replies),
        cmocka_unit_test(a_client_refuses_invalid_exposed_replies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

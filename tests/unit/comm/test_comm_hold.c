/* A caller that holds a client makes progress itself, and then leaves the replies to its next wait:
 * those of requests that it has started meanwhile, not of others. This thread is the server. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "comm/service/client_internal.h"
#include "support/support.h"

#include <sys/socket.h>
#include <unistd.h>

static bool is_driven(kolo_client *c) {
    pthread_mutex_lock(&c->mutex);
    const bool driven = c->driven;
    pthread_mutex_unlock(&c->mutex);
    return driven;
}

static void expect_call(int fd, uint64_t serial) {
    kolo_call_head call;
    assert_int_equal(recv(fd, &call, sizeof call, MSG_WAITALL), sizeof call);
    assert_int_equal(call.serial, serial);
}

static void reply(int fd, uint64_t serial) {
    const kolo_reply_head head = {.type = KOLO_MESSAGE_REPLY, .serial = serial};
    assert_int_equal(send(fd, &head, sizeof head, 0), sizeof head);
}

/* Starts a request while it holds the client, which no thread drives then, and releases it. */
static void start_held(kolo_client *client, kolo_service_request *q) {
    kolo_client_hold(client);
    ASSERT_OK(kolo_client_start(client, q, false));
    while (is_driven(client)) kolo_sleep_ns(1000000); /* the thread ends its turn */
    kolo_client_release_sent(client);
}

static void a_request_from_before_makes_progress(void **state) {
    const int64_t end_ns = kolo_now_ns() + INT64_C(20000000000);
    kolo_activity activity = {0};
    kolo_client *client;
    kolo_service_request before = {.server = 0}, held = {.server = 0};
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    ASSERT_OK(kolo_client_create(NULL, 1, 60000, &activity, &client));
    ASSERT_OK(kolo_client_attach(client, 0, fds[1], false, NULL));
    start_held(client, &held);
    expect_call(fds[0], 1); /* it is sent without a wait */
    reply(fds[0], 1);
    ASSERT_OK(kolo_client_wait(client, &held, 0));
    ASSERT_OK(kolo_client_start(client, &before, false));
    expect_call(fds[0], 2);
    start_held(client, &held);
    expect_call(fds[0], 3);
    reply(fds[0], 2);
    while (!kolo_client_test(client, &before) && kolo_now_ns() < end_ns) kolo_sleep_ns(1000000);
    assert_true(kolo_client_test(client, &before)); /* without a wait */
    reply(fds[0], 3);
    ASSERT_OK(kolo_client_wait(client, &held, 0));
    kolo_client_destroy(client);
    close(fds[0]);
}

TEST_MAIN(test_comm_hold) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_from_before_makes_progress),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The transport `tcp` alone, with two ranks in this thread: the unexpected-message queue. */
#include "base/memory.h"
#include "comm/transport/tcp/internal.h"
#include "support/support.h"

#include <string.h>
#include <sys/socket.h>

enum { HEARTBEAT_MS = 1000000, SEGMENT_BYTES = 1 << 16 };

static void make_pair(kolo_transport *t[2]) {
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    for (int r = 0; r < 2; r++) {
        ASSERT_OK(kolo_tcp_create(r, 2, SEGMENT_BYTES, HEARTBEAT_MS, &t[r]));
        ASSERT_OK(kolo_tcp_attach(t[r], !r, fds[r]));
    }
}

static void progress(kolo_transport *t[2]) {
    bool moved = false;
    for (int r = 0; r < 2; r++) ASSERT_OK(t[r]->ops->progress(t[r], &moved));
}

static char byte_of(size_t i) { return (char)(i * 7 + i / 4096); }

/* The unexpected queue of a receiver that always lags behind its sender holds a few windows, not
 * all data received. */
static void unexpected_queue_is_bounded(void **state) {
    enum { PIECE = 48 << 10, TOTAL = 64 << 20, BEHIND = KOLO_TCP_WINDOW / 2 };
    kolo_transport *t[2];
    make_pair(t);
    const kolo_tcp_channel *c = kolo_tcp_channel_of((kolo_tcp_transport *)t[1], KOLO_SEQ_P2P, 0);
    char *out = kolo_alloc(TOTAL), in[PIECE];
    assert_non_null(out);
    for (size_t i = 0; i < TOTAL; i++) out[i] = byte_of(i);
    size_t sent = 0, got = 0, most = 0, taken;
    while (got < TOTAL) {
        bool accepted, arrived;
        size_t left = TOTAL - sent < PIECE ? TOTAL - sent : PIECE;
        if (left > 0) {
            ASSERT_OK(t[0]->ops->send(t[0], KOLO_SEQ_P2P, 1, out + sent, left, &taken, &accepted));
            sent += taken;
        }
        progress(t);
        if (c->unexpected && c->unexpected->cap > most) most = c->unexpected->cap;
        if (sent < TOTAL && c->received - c->consumed < BEHIND) continue;
        ASSERT_OK(t[1]->ops->recv(t[1], KOLO_SEQ_P2P, 0, in, sizeof in, &taken, &arrived));
        for (size_t i = 0; i < taken; i++) {
            if (in[i] != byte_of(got + i)) fail_msg("byte %zu", got + i);
        }
        got += taken;
    }
    assert_true(most >= BEHIND && most <= 4 * KOLO_TCP_WINDOW);
    for (int r = 0; r < 2; r++) t[r]->ops->destroy(t[r]);
    kolo_free(out);
}

TEST_MAIN(test_comm_tcp) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unexpected_queue_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

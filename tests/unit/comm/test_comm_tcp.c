/* The transport `tcp` alone, with two ranks in this thread: the unexpected-message queue; encrypted
 * connections, and what a man in the middle may do to them. */
#include "base/compiler.h"
#include "base/memory.h"
#include "comm/join/authentication.h"
#include "comm/transport/tcp/internal.h"
#include "support/support.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEARTBEAT_MS = 1000000, SEGMENT_BYTES = 1 << 16 };

static void make_pair(kolo_transport *t[2]) {
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    for (int r = 0; r < 2; r++) {
        ASSERT_OK(kolo_tcp_create(r, 2, SEGMENT_BYTES, HEARTBEAT_MS, &t[r]));
        ASSERT_OK(kolo_tcp_attach(t[r], !r, fds[r], NULL));
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
    for (int r = 0; r < 2; r++) t[r]->ops->destroy(t[r], NULL);
    kolo_free(out);
}

/* ---- encryption ---- */

/* A connection that leads through this test: from side 0 to side 1 and back, record by record. */
typedef struct relay {
    int inner[2]; /* the test's ends */
    unsigned char *held[2];
    size_t n_held[2], n_seen; /* bytes not yet passed on; records of side 0 seen */
    unsigned char *seen;      /* all bytes of side 0 */
    size_t n_bytes;
} relay;

/* What to do to a record of side 0. */
typedef enum change { NOTHING, HEAD, BODY, TAG, DROP, REPEAT, SWAP, REFLECT, CUT, CHANGES } change;

enum { SEEN_BYTES = 4 << 20, HELD_BYTES = 1 << 20, CHANGED_RECORD = 3 };

static void relay_write(int fd, const unsigned char *data, size_t n) {
    while (n > 0) {
        ssize_t done = send(fd, data, n, MSG_NOSIGNAL);
        if (done <= 0) return; /* the receiver has given up */
        data += done;
        n -= (size_t)done;
    }
}

/* Passes on the first record that is held; swapped ones stay until there are two. */
static bool relay_record(relay *r, int side, change c) {
    unsigned char *record = r->held[side];
    size_t n = r->n_held[side], size = n < KOLO_SEAL_HEAD ? 0 : kolo_seal_size(record), next = 0;
    if (size == 0 || n < size) return false;
    bool changed = side == 0 && r->n_seen == CHANGED_RECORD;
    if (changed && c == SWAP) {
        next = n < size + KOLO_SEAL_HEAD ? 0 : kolo_seal_size(record + size);
        if (next == 0 || n < size + next) return false;
        relay_write(r->inner[1], record + size, next);
    }
    if (side == 0 && r->n_bytes + size <= SEEN_BYTES) {
        memcpy(r->seen + r->n_bytes, record, size);
        r->n_bytes += size;
    }
    if (changed && c == HEAD) record[1] ^= 1;
    if (changed && c == BODY) record[KOLO_SEAL_HEAD + size / 3] ^= 0x40;
    if (changed && c == TAG) record[size - 1] ^= 1;
    if (changed && c == REPEAT) relay_write(r->inner[!side], record, size);
    if (changed && c == REFLECT) relay_write(r->inner[side], record, size);
    if (changed && c == CUT) shutdown(r->inner[1], SHUT_WR);
    if (!changed || c != DROP) relay_write(r->inner[!side], record, size);
    r->n_seen += side == 0 ? 1 + (next > 0) : 0;
    memmove(record, record + size + next, n - size - next);
    r->n_held[side] -= size + next;
    return true;
}

static void relay_pump(relay *r, change c) {
    for (int side = 0; side < 2; side++) {
        size_t room = HELD_BYTES - r->n_held[side];
        ssize_t n = recv(r->inner[side], r->held[side] + r->n_held[side], room, MSG_DONTWAIT);
        if (n > 0) r->n_held[side] += (size_t)n;
        while (relay_record(r, side, c)) continue;
    }
}

/* Keys as two ranks derive them from their handshake. */
static void make_keys(kolo_protection protection, kolo_seal_keys keys[2]) {
    unsigned char secret[2][KOLO_EXCHANGE_BYTES], half[2][KOLO_EXCHANGE_BYTES], job[32];
    kolo_nonces nonces;
    kolo_key key;
    ASSERT_OK(kolo_key_draw(job, sizeof job, &key));
    kolo_nonce_draw(nonces.server);
    kolo_nonce_draw(nonces.client);
    for (int r = 0; r < 2; r++) kolo_exchange_draw(secret[r], half[r]);
    for (int r = 0; r < 2; r++) {
        keys[r].protection = protection;
        ASSERT_OK(kolo_seal_keys_make(&key, &nonces, r == 0, secret[r], half[!r], &keys[r]));
    }
    assert_memory_equal(keys[0].send, keys[1].receive, sizeof keys[0].send);
    assert_memory_equal(keys[1].send, keys[0].receive, sizeof keys[0].send);
    assert_memory_not_equal(keys[0].send, keys[0].receive, sizeof keys[0].send);
    memset(half[0], 0, sizeof half[0]); /* of small order: the keys would be public */
    kolo_seal_keys weak;
    assert_int_equal(kolo_seal_keys_make(&key, &nonces, true, secret[0], half[0], &weak),
                     KOLO_ERR_PEER);
}

static void make_relayed(kolo_protection protection, kolo_transport *t[2], relay *r) {
    kolo_seal_keys keys[2];
    make_keys(protection, keys);
    *r = (relay){.seen = kolo_alloc(SEEN_BYTES)};
    for (int side = 0; side < 2; side++) {
        int fds[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds),
                         0);
        r->inner[side] = fds[1];
        r->held[side] = kolo_alloc(HELD_BYTES);
        assert_true(r->held[side] && r->seen);
        ASSERT_OK(kolo_tcp_create(side, 2, SEGMENT_BYTES, HEARTBEAT_MS, &t[side]));
        ASSERT_OK(kolo_tcp_attach(t[side], !side, fds[0], &keys[side]));
    }
}

static void relay_fini(relay *r) {
    for (int side = 0; side < 2; side++) {
        close(r->inner[side]);
        kolo_free(r->held[side]);
    }
    kolo_free(r->seen);
}

/* Sends `total` bytes from rank 0 to rank 1 in pieces; stops when nothing arrives any more. */
static kolo_status transfer(kolo_transport *t[2], relay *r, change c, const char *out, char *in,
                            size_t total) {
    static const size_t pieces[] = {1, 23, 4096, 70000, 200001};
    size_t sent = 0, got = 0, taken;
    int idle = 0;
    for (int i = 0; got < total && idle < 1000; i++) {
        bool accepted, arrived, moved = false;
        size_t piece = pieces[(size_t)i % KOLO_COUNT(pieces)], left = total - sent;
        size_t n = left < piece ? left : piece, before = got + sent;
        if (left > 0) {
            ASSERT_OK(t[0]->ops->send(t[0], KOLO_SEQ_P2P, 1, out + sent, n, &taken, &accepted));
            sent += taken;
        }
        relay_pump(r, c);
        for (int k = 0; k < 2; k++) KOLO_TRY(t[k]->ops->progress(t[k], &moved));
        n = total - got < piece ? total - got : piece;
        KOLO_TRY(t[1]->ops->recv(t[1], KOLO_SEQ_P2P, 0, in + got, n, &taken, &arrived));
        got += taken;
        idle = got + sent == before ? idle + 1 : 0;
    }
    return KOLO_OK;
}

static bool contains(const unsigned char *data, size_t n, const char *text, size_t length) {
    for (size_t i = 0; i + length <= n; i++) {
        if (memcmp(data + i, text, length) == 0) return true;
    }
    return false;
}

/* Any pieces arrive. An observer of encrypted data sees neither it nor the headers of frames. */
static void check_readable(kolo_protection protection) {
    enum { TOTAL = 3 << 20, WORD = 16 };
    kolo_transport *t[2];
    relay r;
    char *out = kolo_alloc(TOTAL), *in = kolo_zalloc(TOTAL);
    assert_true(out && in);
    for (size_t i = 0; i < TOTAL; i++) out[i] = byte_of(i);
    make_relayed(protection, t, &r);
    ASSERT_OK(transfer(t, &r, NOTHING, out, in, TOTAL));
    assert_memory_equal(in, out, TOTAL);
    assert_true(r.n_bytes > TOTAL && r.n_seen > TOTAL / KOLO_SEAL_PLAIN);
    for (size_t at = 0; at < TOTAL; at += TOTAL / 8) {
        assert_true(contains((unsigned char *)out, TOTAL, out + at, WORD));
        bool seen = contains(r.seen, r.n_bytes, out + at, WORD);
        assert_true(seen == (protection != KOLO_PROTECT_SECRET));
    }
    relay_fini(&r); /* first: nobody waits for what it holds */
    for (int k = 0; k < 2; k++) t[k]->ops->destroy(t[k], NULL);
    kolo_free(out);
    kolo_free(in);
}

static void only_encrypted_data_is_not_readable(void **state) {
    check_readable(KOLO_PROTECT_SECRET);
    check_readable(KOLO_PROTECT_AUTHENTIC);
}

/* An attacker between the ranks cannot change, leave out, repeat, exchange or reflect anything. */
static void check_changes(kolo_protection protection) {
    enum { TOTAL = 1 << 20 };
    char *out = kolo_zalloc(TOTAL), *in = kolo_alloc(TOTAL);
    assert_true(out && in);
    for (int c = HEAD; c < CHANGES; c++) {
        kolo_transport *t[2];
        relay r;
        make_relayed(protection, t, &r);
        memset(in, 1, TOTAL);
        kolo_status status = transfer(t, &r, (change)c, out, in, TOTAL);
        int victim = c == REFLECT ? 0 : 1;
        const char *text = c == CUT ? "process ended" : "its data has been changed";
        kolo_peer_state state_of;
        t[victim]->ops->peer_state(t[victim], !victim, &state_of);
        assert_int_equal(status, KOLO_OK);
        if (state_of.condition != KOLO_PEER_LOST || !strstr(state_of.report, text)) {
            fail_msg("change %d: %d %s", c, (int)state_of.condition, state_of.report);
        }
        assert_int_equal(in[TOTAL - 1], 1); /* nothing after it has been passed on */
        relay_fini(&r);
        for (int k = 0; k < 2; k++) t[k]->ops->destroy(t[k], NULL);
    }
    kolo_free(out);
    kolo_free(in);
}

static void changed_data_ends_the_connection(void **state) {
    check_changes(KOLO_PROTECT_SECRET);
    check_changes(KOLO_PROTECT_AUTHENTIC);
}

/* ---- invalid frames ---- */

static void an_invalid_frame_ends_the_connection(void **state) {
    kolo_transport *t[2];
    kolo_peer_state lost;
    make_pair(t);
    kolo_frame f = {.kind = KOLO_FRAME_KINDS, .bytes = 5};
    ASSERT_OK(kolo_wire_send(((kolo_tcp_transport *)t[0])->wire, 1, &f, "12345"));
    for (int i = 0; i < 3; i++) progress(t);
    t[1]->ops->peer_state(t[1], 0, &lost);
    assert_int_equal(lost.condition, KOLO_PEER_LOST);
    assert_non_null(strstr(lost.report, "it sent an invalid frame: kind"));
    assert_int_equal(((kolo_tcp_transport *)t[1])->wire->links[0]->stream.fd, -1);
    for (int r = 0; r < 2; r++) t[r]->ops->destroy(t[r], NULL);
}

TEST_MAIN(test_comm_tcp) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unexpected_queue_is_bounded),
        cmocka_unit_test(only_encrypted_data_is_not_readable),
        cmocka_unit_test(changed_data_ends_the_connection),
        cmocka_unit_test(an_invalid_frame_ends_the_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

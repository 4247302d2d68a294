/* Messages that a joining rank reads from a server. The first byte selects the input: a greeting;
 * an arbitrary answer; or the header and body of an answer followed by a valid proof, which only a
 * member of the job can send. Its highest bit sets the magic number of this version. */
#include "base/clock.h"
#include "base/status.h"
#include "comm/join/handshake.h"
#include "comm/transport/socket.h"
#include "fuzz/fuzz.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BODY_MOST = 256, MESSAGE_MOST = 4096, DEADLINE_NS = 1000000000, MAGIC_BYTES = 8 };

static const char label[] = "kolo answer";

/* Writes the bytes into a connection and closes it; returns the reading side. */
static void connect_to(const uint8_t *bytes, size_t length, int fds[2]) {
    KOLO_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    KOLO_ASSERT(length == 0 || send(fds[1], bytes, length, 0) == (ssize_t)length);
    KOLO_ASSERT(shutdown(fds[1], SHUT_WR) == 0);
}

/* Copies the magic number from a real message. */
static void set_magic(const kolo_key *key, uint8_t *message) {
    int fds[2];
    kolo_nonces nonces = {{0}, {0}};
    KOLO_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    KOLO_ASSERT(kolo_handshake_send(fds[0], key, label, &nonces, KOLO_OK, NULL, 0, NULL,
                                    kolo_now_ns() + DEADLINE_NS) == KOLO_OK);
    KOLO_ASSERT(recv(fds[1], message, MAGIC_BYTES, 0) == MAGIC_BYTES);
    close(fds[0]);
    close(fds[1]);
}

static void check_refusal(kolo_status status) {
    KOLO_ASSERT(status > KOLO_OK && status <= KOLO_ERR_PEER);
    KOLO_ASSERT(kolo_last_error()[0] || status != KOLO_ERR_FORMAT);
}

static void greet(const kolo_key *key, const uint8_t *bytes, size_t length) {
    int fds[2];
    kolo_nonces nonces;
    kolo_hello hello = {.rank = 1, .world = 2};
    connect_to(bytes, length, fds);
    kolo_status status =
        kolo_handshake_connect(fds[0], key, &hello, kolo_now_ns() + DEADLINE_NS, &nonces);
    if (status != KOLO_OK) check_refusal(status);
    close(fds[0]);
    close(fds[1]);
}

static void answer(const kolo_key *key, const uint8_t *bytes, size_t length, size_t body_bytes) {
    int fds[2];
    kolo_nonces nonces = {{1}, {2}};
    unsigned char body[BODY_MOST + 1];
    memset(body, 0x5a, sizeof body);
    connect_to(bytes, length, fds);
    kolo_status status = kolo_handshake_recv(fds[0], key, label, &nonces, body, body_bytes, NULL,
                                             kolo_now_ns() + DEADLINE_NS);
    if (status != KOLO_OK) {
        check_refusal(status);
        for (size_t i = 0; i < body_bytes; i++) KOLO_ASSERT(body[i] == 0x5a);
    }
    KOLO_ASSERT(body[body_bytes] == 0x5a);
    close(fds[0]);
    close(fds[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    static const kolo_key key = {.bytes = "a key of a job that is fuzzed"};
    if (length < 2 || length > MESSAGE_MOST) return 0;
    uint8_t message[MESSAGE_MOST + KOLO_PROOF_BYTES];
    size_t body_bytes = bytes[1], n = length - 2;
    int kind = bytes[0] % 128 % 3;
    memcpy(message, bytes + 2, n);
    if (bytes[0] >= 128 && n >= MAGIC_BYTES) set_magic(&key, message);
    if (kind == 0) {
        greet(&key, message, n);
    } else if (kind == 1) {
        answer(&key, message, n, body_bytes);
    } else {
        kolo_nonces nonces = {{1}, {2}};
        kolo_proof_make(&key, label, &nonces, message, n, message + n);
        answer(&key, message, n + KOLO_PROOF_BYTES, body_bytes);
    }
    return 0;
}

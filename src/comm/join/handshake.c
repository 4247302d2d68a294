/* Authenticated connections: the listener, and the messages of handshake.h. Decides who is
 * rejected, and with which error. */
#define _GNU_SOURCE
#include "comm/join/handshake.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/integer.h"
#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { IDLE_MS = 3000, TEXT_BYTES = 512 };

static const char magic[8] = {'K', 'O', 'L', 'O', '-', '4', '\r', '\n'};

typedef struct greeting {
    char magic[8];
    unsigned char nonce[KOLO_NONCE_BYTES];
} greeting;

typedef struct join {
    char magic[8];
    unsigned char nonce[KOLO_NONCE_BYTES];
    kolo_hello hello;
    unsigned char proof[KOLO_PROOF_BYTES];
} join;

typedef struct answer_header {
    char magic[8];
    uint32_t status, bytes;
} answer_header;

/* An unauthenticated connection. */
typedef struct pending {
    int fd;
    size_t filled;
    int64_t deadline_ns;
    kolo_nonces nonces;
    join join;
} pending;

struct kolo_listener {
    int fd;
    int watched_fd; /* -1: none */
    bool local;
    kolo_key key;
    pending pending[KOLO_LISTENER_PENDING];
    int n_pending, n_rejected;
    char reject_reason[240];
};

kolo_status kolo_listener_create(int fd, const kolo_key *key, bool local,
                                 kolo_listener **listener) {
    kolo_listener *l = kolo_zalloc(sizeof *l);
    if (!l) return KOLO_NOMEM(sizeof *l);
    l->fd = fd;
    l->watched_fd = -1;
    l->local = local;
    l->key = *key;
    *listener = l;
    return KOLO_OK;
}

void kolo_listener_watch(kolo_listener *l, int fd) { l->watched_fd = fd; }

void kolo_listener_abandon(const kolo_listener *l) {
    for (int i = 0; i < l->n_pending; i++) close(l->pending[i].fd);
}

void kolo_listener_destroy(kolo_listener *l) {
    if (!l) return;
    kolo_listener_abandon(l);
    kolo_key_clear(&l->key);
    kolo_free(l);
}

const char *kolo_listener_reject_reason(const kolo_listener *l) { return l->reject_reason; }

static void reject(kolo_listener *l, int fd, const char *why) {
    char address[KOLO_ADDRESS_BYTES];
    bool known = kolo_socket_peer_address(fd, address);
    close(fd);
    l->n_rejected++;
    snprintf(l->reject_reason, sizeof l->reject_reason,
             "; %d connection%s rejected, the last one%s%s: %s", l->n_rejected,
             l->n_rejected == 1 ? " was" : "s were", known ? " from " : "", known ? address : "",
             why);
    kolo_log_line(KOLO_LOG_WARN, -1, "connection%s%s rejected: %s", known ? " from " : "",
                  known ? address : "", why);
}

static void reject_pending(kolo_listener *l, int i, const char *why) {
    reject(l, l->pending[i].fd, why);
    memmove(&l->pending[i], &l->pending[i + 1],
            (size_t)(l->n_pending - i - 1) * sizeof l->pending[0]);
    l->n_pending--;
}

/* Without a free descriptor the connection would stay in the backlog and poll would return at once:
 * rejects the oldest pending connection instead. */
static kolo_status make_room(kolo_listener *l, int error) {
    bool full = error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
    if (!full) return KOLO_OK; /* the client has closed it */
    if (l->n_pending == 0) {
        return KOLO_FAIL(KOLO_ERR_IO, "accept: %s: allow more open files (ulimit -n)",
                         kolo_errno_text(error));
    }
    reject_pending(l, 0, "no file descriptor left");
    return KOLO_OK;
}

/* Accepts a connection and sends the greeting, which fits into the buffer of a new socket. */
static kolo_status accept_one(kolo_listener *l) {
    int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return make_room(l, errno);
    int one = 1; /* in TIME_WAIT it must not block the next generation's port */
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (l->local && !kolo_socket_same_user(fd)) {
        reject(l, fd, "belongs to another user");
        return KOLO_OK;
    }
    if (l->n_pending == KOLO_LISTENER_PENDING)
        reject_pending(l, 0, "too many unauthenticated connections");
    int64_t now_ns = kolo_now_ns();
    pending *w = &l->pending[l->n_pending];
    *w = (pending){.fd = fd, .deadline_ns = now_ns + (int64_t)IDLE_MS * 1000000};
    kolo_nonce_draw(w->nonces.server);
    greeting hello;
    memcpy(hello.magic, magic, sizeof magic);
    memcpy(hello.nonce, w->nonces.server, sizeof hello.nonce);
    if (kolo_socket_send(fd, &hello, sizeof hello, NULL, now_ns) == KOLO_OK) {
        l->n_pending++;
    } else {
        reject(l, fd, "closed immediately");
    }
    return KOLO_OK;
}

/* Reads from a pending connection; true if it is now authenticated. */
static bool read_pending(kolo_listener *l, int i, kolo_member *member) {
    pending *w = &l->pending[i];
    ssize_t n = recv(w->fd, (char *)&w->join + w->filled, sizeof w->join - w->filled, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
    if (n <= 0) {
        reject_pending(l, i, "closed during the handshake");
        return false;
    }
    w->filled += (size_t)n;
    size_t checked = w->filled < sizeof magic ? w->filled : sizeof magic;
    if (memcmp(w->join.magic, magic, checked) != 0) {
        reject_pending(l, i, "not a kolo rank");
        return false;
    }
    if (w->filled < sizeof w->join) return false;
    memcpy(w->nonces.client, w->join.nonce, sizeof w->nonces.client);
    if (!kolo_proof_check(&l->key, "kolo join", &w->nonces, &w->join.hello, sizeof w->join.hello,
                          w->join.proof)) {
        reject_pending(l, i, "authentication failed, its secret (KOLO_SECRET_FILE) differs");
        return false;
    }
    *member = (kolo_member){.fd = w->fd, .hello = w->join.hello, .nonces = w->nonces};
    member->hello.name[sizeof member->hello.name - 1] = '\0';
    member->hello.address[sizeof member->hello.address - 1] = '\0';
    memmove(w, w + 1, (size_t)(l->n_pending - i - 1) * sizeof *w);
    l->n_pending--;
    return true;
}

static void reject_expired(kolo_listener *l) {
    int64_t now_ns = kolo_now_ns();
    while (l->n_pending > 0 && l->pending[0].deadline_ns <= now_ns) { /* oldest first */
        reject_pending(l, 0, "handshake timed out");
    }
}

enum { LISTENER, WATCHED, FIRST_PENDING }; /* order of the polled descriptors */

/* Waits for an event, or until the oldest pending connection expires. */
static kolo_status wait_for_any(kolo_listener *l, struct pollfd *polls, const kolo_member *members,
                                int n_members, int64_t deadline_ns) {
    polls[LISTENER] = (struct pollfd){.fd = l->fd, .events = POLLIN};
    polls[WATCHED] = (struct pollfd){.fd = l->watched_fd, .events = POLLIN};
    struct pollfd *rest = polls + FIRST_PENDING;
    for (int i = 0; i < l->n_pending; i++) {
        rest[i] = (struct pollfd){.fd = l->pending[i].fd, .events = POLLIN};
    }
    for (int i = 0; i < n_members; i++) {
        rest[l->n_pending + i] = (struct pollfd){.fd = members[i].fd, .events = POLLIN};
    }
    int64_t until_ns = deadline_ns;
    if (l->n_pending > 0) until_ns = kolo_min_i64(until_ns, l->pending[0].deadline_ns);
    nfds_t n = FIRST_PENDING + (nfds_t)l->n_pending + (nfds_t)n_members;
    if (poll(polls, n, kolo_left_ms(until_ns)) < 0 && errno != EINTR) {
        return KOLO_FAIL(KOLO_ERR_IO, "poll: %s", kolo_errno_text(errno));
    }
    return KOLO_OK;
}

static kolo_status next_member(kolo_listener *l, struct pollfd *polls, const kolo_member *members,
                               int n_members, int64_t deadline_ns, kolo_member *member, int *lost) {
    for (;;) {
        if (kolo_now_ns() >= deadline_ns) {
            return KOLO_FAIL(KOLO_ERR_TIMEOUT, "the deadline has passed");
        }
        KOLO_TRY(wait_for_any(l, polls, members, n_members, deadline_ns));
        for (int i = 0; i < n_members; i++) {
            if (polls[FIRST_PENDING + l->n_pending + i].revents) {
                *lost = i;
                return KOLO_FAIL(KOLO_ERR_PEER, "a member was lost or has failed");
            }
        }
        for (int i = l->n_pending - 1; i >= 0;
             i--) { /* backwards: rejecting one moves the later ones */
            if (read_pending(l, i, member)) return KOLO_OK;
        }
        reject_expired(l);
        if (polls[LISTENER].revents) KOLO_TRY(accept_one(l));
        if (polls[WATCHED].revents & POLLIN)
            return KOLO_FAIL(KOLO_ERR_PEER, "the watched descriptor is readable");
        if (polls[WATCHED].revents) l->watched_fd = -1; /* closed by the other end */
    }
}

kolo_status kolo_listener_accept(kolo_listener *l, const kolo_member *members, int n_members,
                                 int64_t deadline_ns, kolo_member *member, int *lost) {
    *lost = -1;
    size_t n = FIRST_PENDING + KOLO_LISTENER_PENDING + (size_t)n_members;
    struct pollfd *polls = kolo_zalloc(n * sizeof *polls);
    if (!polls) return KOLO_NOMEM(n * sizeof *polls);
    kolo_status status = next_member(l, polls, members, n_members, deadline_ns, member, lost);
    kolo_free(polls);
    return status;
}

kolo_status kolo_handshake_connect(int fd, const kolo_key *key, const kolo_hello *hello,
                                   int64_t deadline_ns, kolo_nonces *nonces) {
    greeting welcome;
    join message = {.hello = *hello};
    KOLO_TRY(kolo_socket_recv(fd, &welcome, sizeof welcome, NULL, deadline_ns));
    if (memcmp(welcome.magic, magic, sizeof magic) != 0) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "the server is not a kolo rank");
    }
    memcpy(nonces->server, welcome.nonce, sizeof nonces->server);
    kolo_nonce_draw(nonces->client);
    memcpy(message.magic, magic, sizeof magic);
    memcpy(message.nonce, nonces->client, sizeof message.nonce);
    kolo_proof_make(key, "kolo join", nonces, hello, sizeof *hello, message.proof);
    return kolo_socket_send(fd, &message, sizeof message, NULL, deadline_ns);
}

/* Header, body and the proof over both are sent in one piece. */
kolo_status kolo_handshake_send(int fd, const kolo_key *key, const char *label,
                                const kolo_nonces *nonces, kolo_status status, const void *body,
                                size_t bytes, const int *passed, int64_t deadline_ns) {
    KOLO_ASSERT(bytes <= KOLO_HANDSHAKE_BODY_MAX);
    answer_header header = {.status = (uint32_t)status, .bytes = (uint32_t)bytes};
    memcpy(header.magic, magic, sizeof magic);
    size_t proven = sizeof header + bytes;
    unsigned char *message = kolo_alloc(proven + KOLO_PROOF_BYTES);
    if (!message) return KOLO_NOMEM(proven);
    memcpy(message, &header, sizeof header);
    if (bytes > 0) memcpy(message + sizeof header, body, bytes);
    kolo_proof_make(key, label, nonces, message, proven, message + proven);
    kolo_status sent =
        kolo_socket_send(fd, message, proven + KOLO_PROOF_BYTES, passed, deadline_ns);
    kolo_free(message);
    return sent;
}

/* Receives body and proof after a header whose length has been checked. */
static kolo_status recv_proven(int fd, const kolo_key *key, const char *label,
                               const kolo_nonces *nonces, const answer_header *header,
                               unsigned char *message, int64_t deadline_ns) {
    size_t proven = sizeof *header + header->bytes;
    memcpy(message, header, sizeof *header);
    KOLO_TRY(kolo_socket_recv(fd, message + sizeof *header, header->bytes + KOLO_PROOF_BYTES, NULL,
                              deadline_ns));
    if (!kolo_proof_check(key, label, nonces, message, proven, message + proven)) {
        return KOLO_FAIL(KOLO_ERR_PEER,
                         "authentication failed: its secret (KOLO_SECRET_FILE) differs");
    }
    return KOLO_OK;
}

static kolo_status check_answer(const answer_header *header, size_t bytes) {
    size_t expected = header->status == KOLO_OK ? bytes : TEXT_BYTES;
    bool right = header->status == KOLO_OK ? header->bytes == bytes : header->bytes <= expected;
    if (memcmp(header->magic, magic, sizeof magic) != 0 || !right ||
        header->status > KOLO_ERR_PEER) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "malformed answer");
    }
    return KOLO_OK;
}

kolo_status kolo_handshake_recv(int fd, const kolo_key *key, const char *label,
                                const kolo_nonces *nonces, void *body, size_t bytes, int *passed,
                                int64_t deadline_ns) {
    answer_header header;
    int passed_fd = -1;
    KOLO_TRY(kolo_socket_recv(fd, &header, sizeof header, passed ? &passed_fd : NULL, deadline_ns));
    kolo_status status = check_answer(&header, bytes);
    unsigned char *message = NULL;
    if (status == KOLO_OK) {
        message = kolo_alloc(sizeof header + header.bytes + KOLO_PROOF_BYTES);
        if (!message) status = KOLO_NOMEM(header.bytes);
    }
    if (status == KOLO_OK) {
        status = recv_proven(fd, key, label, nonces, &header, message, deadline_ns);
    }
    if (status == KOLO_OK && header.status != KOLO_OK) {
        const char *text = (char *)message + sizeof header;
        bool empty = header.bytes == 0 || !*text;
        status = KOLO_FAIL((kolo_status)header.status, "%.*s", empty ? 64 : (int)header.bytes,
                           empty ? "refused without giving a reason" : text);
    } else if (status == KOLO_OK && bytes > 0) {
        memcpy(body, message + sizeof header, bytes);
    }
    kolo_free(message);
    if (status != KOLO_OK && passed_fd >= 0) close(passed_fd);
    if (status == KOLO_OK && passed) *passed = passed_fd;
    return status;
}

kolo_status kolo_handshake_explain(int fd, kolo_status status) {
    if (status != KOLO_ERR_PEER || !strstr(kolo_last_error(), "connection was closed") ||
        !kolo_socket_closed(fd)) {
        return status;
    }
    return KOLO_FAIL(status, "it closed the connection without an answer: the secrets "
                             "(KOLO_SECRET_FILE) differ, or its process ended");
}

kolo_status kolo_handshake_keys(int fd, const kolo_key *key, const kolo_nonces *nonces, bool server,
                                kolo_protection protection, int64_t deadline_ns,
                                kolo_seal_keys *keys) {
    static const char *const labels[2] = {"kolo half of the client", "kolo half of the server"};
    unsigned char secret[KOLO_EXCHANGE_BYTES], own[KOLO_EXCHANGE_BYTES], other[KOLO_EXCHANGE_BYTES];
    *keys = (kolo_seal_keys){.protection = protection};
    if (!protection) return KOLO_OK;
    kolo_exchange_draw(secret, own);
    kolo_status status = kolo_handshake_send(fd, key, labels[server], nonces, KOLO_OK, own,
                                             sizeof own, NULL, deadline_ns);
    if (status == KOLO_OK) {
        status = kolo_handshake_recv(fd, key, labels[!server], nonces, other, sizeof other, NULL,
                                     deadline_ns);
    }
    if (status == KOLO_OK) status = kolo_seal_keys_make(key, nonces, server, secret, other, keys);
    sodium_memzero(secret, sizeof secret);
    return status;
}

/* Clients of a listener, in any order of events. The input is a list of steps: clients connect,
 * send arbitrary bytes, send a valid join message (or almost), close; the listener runs in between.
 * Only clients that have sent exactly a valid join message are accepted. */
#include "base/clock.h"
#include "base/status.h"
#include "comm/join/handshake.h"
#include "fuzz/fuzz.h"
#include "fuzz/script.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CLIENTS = KOLO_LISTENER_PENDING + 4, STEPS_MOST = 512, JOIN_MOST = 1024 };

typedef struct client {
    int fd;      /* -1: not open */
    bool sent;   /* anything */
    bool proven; /* a complete valid join, first */
} client;

typedef struct scene {
    fuzz_script in;
    kolo_key key;
    kolo_listener *listener;
    char name[KOLO_SOCKET_NAME_BYTES];
    client clients[CLIENTS];
    int n_connected, n_valid, n_accepted; /* connections, valid joins, members so far */
} scene;

static int64_t soon(void) { return kolo_now_ns() + INT64_C(10000000000); }

static void connect_client(scene *s) {
    client *c = &s->clients[fuzz_next(&s->in) % CLIENTS];
    if (c->fd >= 0) return;
    *c = (client){.fd = -1};
    KOLO_ASSERT(kolo_socket_connect_local(s->name, soon(), &c->fd) == KOLO_OK);
    s->n_connected++;
}

static void send_bytes(scene *s, client *c) {
    size_t n = fuzz_next(&s->in);
    const uint8_t *bytes = fuzz_take(&s->in, &n);
    if (n > 0 && c->fd >= 0) {
        c->sent = true;
        (void)send(c->fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
}

/* The valid join message for the greeting this client has received, made over a separate
 * connection;
 * `*bytes` 0 without a greeting. */
static void make_join(const scene *s, const client *c, const kolo_hello *hello,
                      char join[JOIN_MOST], size_t *bytes) {
    char greeting[JOIN_MOST];
    int fds[2];
    kolo_nonces nonces;
    *bytes = 0;
    ssize_t n = recv(c->fd, greeting, sizeof greeting, MSG_DONTWAIT | MSG_PEEK);
    if (n <= 0) return;
    KOLO_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    KOLO_ASSERT(send(fds[1], greeting, (size_t)n, 0) == n);
    KOLO_ASSERT(kolo_handshake_connect(fds[0], &s->key, hello, soon(), &nonces) == KOLO_OK);
    ssize_t made = recv(fds[1], join, JOIN_MOST, 0);
    KOLO_ASSERT(made > 0 && made < JOIN_MOST);
    *bytes = (size_t)made;
    close(fds[0]);
    close(fds[1]);
}

/* Sends a join message, complete or not, with a byte changed or not. */
static void send_join(scene *s, client *c) {
    char join[JOIN_MOST];
    size_t bytes;
    uint8_t change = fuzz_next(&s->in), cut = fuzz_next(&s->in);
    kolo_hello hello = {.rank = fuzz_next(&s->in) - 4, .world = fuzz_next(&s->in)};
    memset(hello.name, 'n', sizeof hello.name); /* no NUL: the listener must add it */
    memset(hello.address, 'a', sizeof hello.address);
    if (c->fd < 0) return;
    make_join(s, c, &hello, join, &bytes);
    if (bytes == 0) return;
    if (change > 0) join[change % bytes] ^= (char)(1 + cut % 255);
    size_t n = cut % 4 == 3 ? cut % bytes : bytes;
    bool valid = !c->sent && change == 0 && n == bytes;
    c->sent = c->sent || n > 0;
    c->proven = c->proven || valid;
    s->n_valid += valid;
    (void)send(c->fd, join, n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void end_client(client *c) {
    if (c->fd >= 0) close(c->fd);
    *c = (client){.fd = -1}; /* whether it was accepted or not */
}

/* Runs the listener once: the watched descriptor is readable, so it returns at once. */
static void run_listener(scene *s) {
    kolo_member member;
    int lost;
    kolo_status status = kolo_listener_accept(s->listener, NULL, 0, soon(), &member, &lost);
    if (status != KOLO_OK) {
        KOLO_ASSERT(status == KOLO_ERR_PEER && lost == -1);
        return;
    }
    KOLO_ASSERT(++s->n_accepted <= s->n_valid);
    KOLO_ASSERT(member.hello.name[sizeof member.hello.name - 1] == '\0');
    KOLO_ASSERT(member.hello.address[sizeof member.hello.address - 1] == '\0');
    close(member.fd);
}

/* While the pending list has room, all authenticated clients that are still open are accepted. */
static void check_proven(scene *s) {
    int proven = 0;
    for (int i = 0; i < CLIENTS; i++) proven += s->clients[i].proven;
    for (int i = 0; i <= proven + s->n_connected; i++) run_listener(s);
    KOLO_ASSERT(s->n_accepted >= proven || s->n_connected > KOLO_LISTENER_PENDING);
}

static void step(scene *s) {
    uint8_t what = fuzz_next(&s->in) % 6;
    client *c = what > 0 && what < 4 ? &s->clients[fuzz_next(&s->in) % CLIENTS] : NULL;
    switch (what) {
    case 0:
        connect_client(s);
        return;
    case 1:
        send_bytes(s, c);
        return;
    case 2:
        send_join(s, c);
        return;
    case 3:
        end_client(c);
        return;
    default:
        run_listener(s);
    }
}

/* The lowest free descriptor; equal before and after unless one leaks. */
static int free_descriptor(void) {
    int fd = dup(STDERR_FILENO);
    close(fd);
    return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    static scene s;
    int before = free_descriptor(), listener, wake[2];
    s = (scene){.in = {bytes, length}, .key = {.bytes = "a key of a job that is fuzzed"}};
    snprintf(s.name, sizeof s.name, "kolo-fuzz-%d", (int)getpid());
    for (int i = 0; i < CLIENTS; i++) s.clients[i].fd = -1;
    KOLO_ASSERT(kolo_socket_listen_local(s.name, &listener) == KOLO_OK);
    KOLO_ASSERT(pipe(wake) == 0 && write(wake[1], "", 1) == 1);
    KOLO_ASSERT(kolo_listener_create(listener, &s.key, true, &s.listener) == KOLO_OK);
    kolo_listener_watch(s.listener, wake[0]);
    for (int i = 0; i < STEPS_MOST && s.in.left > 0; i++) step(&s);
    check_proven(&s);
    for (int i = 0; i < CLIENTS; i++) end_client(&s.clients[i]);
    kolo_listener_destroy(s.listener);
    close(listener);
    close(wake[0]);
    close(wake[1]);
    KOLO_ASSERT(free_descriptor() == before);
    return 0;
}

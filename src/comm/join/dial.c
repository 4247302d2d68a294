/* Connections on demand.
 *
 * Either rank of a pair may open the connection: one thread of each process connects, one after the
 * other, and one accepts. The connecting thread of one rank waits only for the accepting thread of
 * another one, and that one only for connecting threads that are talking to it: so there is no
 * cycle, and no deadlock. If two ranks connect to each other at the same time, the connection that
 * the lower rank has opened is kept: the lower rank answers "later", and the higher one tries again
 * unless that connection has come.
 *
 *     as in handshake.h, then
 *     server -> client   accepted, or later
 *     both               halves of the keys, if the connection is protected
 *
 * A rank that does not answer within the time that a host has for it (kolo_joining_reach_ns) is not
 * connected. A handshake that is in progress when the threads are to end has FAREWELL_NS; then its
 * connection is shut down, which ends it. The mutex protects all fields that are not constant. */
#define _GNU_SOURCE
#include "comm/join/dial.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/integer.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/task.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    SLICE_NS = 1000000000,    /* of connecting between two looks whether to stop */
    FAREWELL_NS = 1000000000, /* for a handshake in progress when the threads are to stop */
    LATER_NS = 10000000,      /* until the next try after two ranks have met */
    FULL_NS = 100000000,      /* until the next try without memory or descriptors */
    DENSE_MOST = 32,          /* ranks of a group in which all pairs connect */
    ACCEPTED = 1,
    LATER = 2,
};

static const int64_t long_ns = 3600000000000;

/* ---- which pairs connect first ---- */

kolo_status kolo_connections_choose(int world, int32_t *choice) {
    static const char *const names[] = {"all", "near", "ring"};
    const char *text = getenv("KOLO_CONNECTIONS");
    *choice = world <= DENSE_MOST ? KOLO_CONNECTIONS_ALL : KOLO_CONNECTIONS_NEAR;
    for (int i = 0; text && i < (int)KOLO_COUNT(names); i++) {
        if (strcmp(text, names[i]) != 0) continue;
        *choice = i;
        return KOLO_OK;
    }
    if (!text) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, "KOLO_CONNECTIONS is '%.60s': must be all, near or ring", text);
}

static bool is_near(int distance, bool ring) {
    return distance == 1 || (!ring && (distance & (distance - 1)) == 0);
}

/* The number of a rank among those of its host, and how many these are. */
static int place_on_host(const kolo_joining *j, int rank, int *ranks) {
    int place = 0;
    *ranks = 0;
    for (int r = 0; r < j->env.world; r++) {
        if (j->host_of[r] != j->host_of[rank]) continue;
        place += r < rank;
        ++*ranks;
    }
    return place;
}

/* Whether b is the rank of the next host that a connects to, so that reports reach all hosts. */
static bool is_next_host(const kolo_joining *j, int a, int b) {
    int n_a, n_b, place_a, place_b;
    if (j->host_of[b] != (j->host_of[a] + 1) % j->n_hosts) return false;
    place_a = place_on_host(j, a, &n_a);
    place_b = place_on_host(j, b, &n_b);
    KOLO_ASSERT(n_b > 0); /* b itself */
    return place_b == place_a % n_b;
}

bool kolo_connects_first(const kolo_joining *j, int a, int b) {
    const int32_t choice = j->table[0].connections;
    const int up = abs(a - b), down = j->env.world - up;
    if (choice == KOLO_CONNECTIONS_ALL || !j->choice->network->dial) return true;
    const bool ring = choice == KOLO_CONNECTIONS_RING;
    return is_near(up, ring) || is_near(down, ring) || is_next_host(j, a, b) ||
           is_next_host(j, b, a);
}

/* ---- state ---- */

typedef enum link_state { NONE, DIALING, ACCEPTING, CONNECTED } link_state;

typedef struct target {
    char address[KOLO_ADDRESS_BYTES]; /* constant, as the port */
    int port;
    link_state state;
    bool wanted;
    int64_t not_before_ns, give_up_ns; /* of the next try; of the last one */
    bool arrived;                      /* in the list of results */
    kolo_dialed result;
    struct target *next;
} target;

typedef struct dialer {
    kolo_dialer base; /* first */
    kolo_key key;
    kolo_hello own;
    kolo_protection protection;
    int64_t reach_ns;
    int listener_fd, stop_fd; /* stop_fd: an eventfd, readable when the threads are to stop */
    kolo_listener *listener;  /* of the accepting thread */
    pthread_t threads[2];
    int n_threads;
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* something is wanted, or `stop` */
    pthread_cond_t ended;   /* a thread has, so that fewer run */
    int n_running;
    bool stop, cut; /* cut: connections that the threads talk over are shut down */
    int busy[2];    /* their descriptors; -1: none */
    int n_wanted;
    target *first, **end; /* results */
    target targets[];     /* [world] */
} dialer;

static dialer *dialer_of(kolo_dialer *base) { return (dialer *)base; }

static void lock(dialer *d) { pthread_mutex_lock(&d->mutex); }
static void unlock(dialer *d) { pthread_mutex_unlock(&d->mutex); }

static bool stops(dialer *d) {
    lock(d);
    const bool stop = d->stop;
    unlock(d);
    return stop;
}

/* The mutex is held. */
static void set_busy(dialer *d, int thread, int fd) {
    d->busy[thread] = fd;
    if (fd >= 0 && d->cut) (void)shutdown(fd, SHUT_RDWR);
}

static void wait_until_ns(dialer *d, pthread_cond_t *change, int64_t until_ns) {
    struct timespec until = {.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000};
    (void)pthread_cond_clockwait(change, &d->mutex, CLOCK_MONOTONIC, &until);
}

/* The last thing that a thread does; the mutex is held. */
static void end_thread(dialer *d) {
    d->n_running--;
    pthread_cond_signal(&d->ended);
}

/* Adds the result of a peer, or replaces it; the mutex is held. */
static void arrive(dialer *d, int peer, const kolo_dialed *result) {
    uint64_t one = 1;
    target *t = &d->targets[peer];
    t->result = *result;
    if (t->wanted) d->n_wanted--;
    t->wanted = false;
    if (!t->arrived) {
        t->arrived = true;
        t->next = NULL;
        *d->end = t;
        d->end = &t->next;
    }
    (void)!write(d->base.events, &one, sizeof one);
}

/* ---- connecting ---- */

static kolo_status reach(dialer *d, const target *t, int64_t deadline_ns, int *fd) {
    for (;;) {
        int64_t until_ns = kolo_min_i64(deadline_ns, kolo_now_ns() + SLICE_NS);
        kolo_status status = kolo_socket_connect_tcp(t->address, t->port, until_ns, fd);
        if (status != KOLO_ERR_TIMEOUT || kolo_now_ns() >= deadline_ns || stops(d)) return status;
    }
}

static kolo_status shake_hands(dialer *d, int fd, int64_t deadline_ns, bool *later,
                               kolo_seal_keys *keys) {
    kolo_nonces nonces;
    int32_t answer = 0;
    KOLO_TRY(kolo_handshake_connect(fd, &d->key, &d->own, deadline_ns, &nonces));
    KOLO_TRY(kolo_handshake_recv(fd, &d->key, "kolo link", &nonces, &answer, sizeof answer, NULL,
                                 deadline_ns));
    *later = answer != ACCEPTED;
    if (*later) return KOLO_OK;
    return kolo_handshake_keys(fd, &d->key, &nonces, false, d->protection, deadline_ns, keys);
}

/* A listener that has too many connections closes some. A process that has ended takes none. */
static kolo_status dial(dialer *d, int peer, bool *later, kolo_dialed *result) {
    const int64_t deadline_ns = kolo_now_ns() + d->reach_ns;
    KOLO_TRY(reach(d, &d->targets[peer], deadline_ns, &result->fd));
    lock(d);
    set_busy(d, 0, result->fd);
    unlock(d);
    kolo_status status = shake_hands(d, result->fd, deadline_ns, later, &result->keys);
    lock(d);
    set_busy(d, 0, -1);
    unlock(d);
    if (status == KOLO_OK && !*later) return KOLO_OK;
    if (status == KOLO_ERR_TIMEOUT) status = KOLO_FAIL(status, "it does not answer");
    close(result->fd);
    *later = *later || status == KOLO_ERR_PEER;
    return *later ? KOLO_OK : status;
}

/* Records what has come of connecting to a peer; the mutex is held. */
static void conclude(dialer *d, int peer, kolo_status status, bool later, kolo_dialed *result) {
    target *t = &d->targets[peer];
    const bool own = t->state == DIALING; /* else the peer's connection is being accepted */
    result->connected = status == KOLO_OK && !later;
    if (later && kolo_now_ns() >= t->give_up_ns) {
        later = false;
        snprintf(result->why, sizeof result->why, "it takes no connection");
    }
    if (!own) {
        if (result->connected) close(result->fd);
    } else if (later) {
        t->state = NONE;
        t->not_before_ns = kolo_now_ns() + LATER_NS;
    } else {
        t->state = result->connected ? CONNECTED : NONE;
        arrive(d, peer, result);
    }
}

/* The next rank to connect to; -1: none. `*when_ns`: when there may be one. */
static int next_wanted(const dialer *d, int64_t *when_ns) {
    const int64_t now_ns = kolo_now_ns();
    *when_ns = now_ns + long_ns;
    for (int p = 0; d->n_wanted > 0 && p < d->own.world; p++) {
        const target *t = &d->targets[p];
        if (!t->wanted || t->state != NONE) continue;
        if (t->not_before_ns <= now_ns) return p;
        *when_ns = kolo_min_i64(*when_ns, t->not_before_ns);
    }
    return -1;
}

static void *connect_wanted(void *arg) {
    dialer *d = arg;
    lock(d);
    while (!d->stop) {
        int64_t when_ns;
        const int peer = next_wanted(d, &when_ns);
        if (peer < 0) {
            wait_until_ns(d, &d->changed, when_ns);
            continue;
        }
        kolo_dialed result = {.peer = peer, .fd = -1};
        bool later = false;
        d->targets[peer].state = DIALING;
        unlock(d);
        kolo_status status = dial(d, peer, &later, &result);
        if (status != KOLO_OK) snprintf(result.why, sizeof result.why, "%s", kolo_last_error());
        lock(d);
        conclude(d, peer, status, later, &result);
        kolo_seal_keys_clear(&result.keys);
    }
    end_thread(d);
    unlock(d);
    return NULL;
}

/* ---- accepting ---- */

/* Whether a connection of this rank is accepted; the mutex is held. */
static bool begin_accept(dialer *d, const kolo_hello *h) {
    if (h->rank < 0 || h->rank >= d->own.world || h->rank == d->own.rank) return false;
    if (h->world != d->own.world || h->generation != d->own.generation) return false;
    target *t = &d->targets[h->rank];
    const bool takes = t->state == NONE || (t->state == DIALING && h->rank < d->own.rank);
    if (takes) t->state = ACCEPTING;
    return takes;
}

static kolo_status answer_to(dialer *d, const kolo_member *m, bool accepted, kolo_dialed *result) {
    const int64_t deadline_ns = kolo_now_ns() + d->reach_ns;
    const int32_t answer = accepted ? ACCEPTED : LATER;
    KOLO_TRY(kolo_handshake_send(m->fd, &d->key, "kolo link", &m->nonces, KOLO_OK, &answer,
                                 sizeof answer, NULL, deadline_ns));
    if (!accepted) return KOLO_OK;
    return kolo_handshake_keys(m->fd, &d->key, &m->nonces, true, d->protection, deadline_ns,
                               &result->keys);
}

static void admit(dialer *d, const kolo_member *m) {
    kolo_dialed result = {.peer = m->hello.rank, .fd = m->fd};
    lock(d);
    set_busy(d, 1, m->fd);
    const bool accepted = begin_accept(d, &m->hello);
    unlock(d);
    result.connected = answer_to(d, m, accepted, &result) == KOLO_OK && accepted;
    lock(d);
    set_busy(d, 1, -1);
    if (accepted) d->targets[result.peer].state = result.connected ? CONNECTED : NONE;
    if (result.connected) {
        arrive(d, result.peer, &result);
    } else {
        close(m->fd);
        pthread_cond_signal(&d->changed); /* it may be wanted */
    }
    unlock(d);
    kolo_seal_keys_clear(&result.keys);
}

static void *accept_all(void *arg) {
    dialer *d = arg;
    while (!stops(d)) {
        kolo_member m;
        int lost;
        kolo_status status =
            kolo_listener_accept(d->listener, NULL, 0, kolo_now_ns() + long_ns, &m, &lost);
        if (status == KOLO_OK) {
            admit(d, &m);
        } else if (status == KOLO_ERR_NOMEM || status == KOLO_ERR_IO) {
            kolo_log_line(KOLO_LOG_WARN, d->own.rank, "cannot accept: %s", kolo_last_error());
            kolo_sleep_ns(FULL_NS);
        }
    }
    lock(d);
    end_thread(d);
    unlock(d);
    return NULL;
}

/* ---- the interface ---- */

static void dial_want(kolo_dialer *base, int peer) {
    dialer *d = dialer_of(base);
    target *t = &d->targets[peer];
    lock(d);
    if (!t->wanted && t->state != CONNECTED) {
        t->wanted = true;
        t->give_up_ns = kolo_now_ns() + 2 * d->reach_ns;
        d->n_wanted++;
        pthread_cond_signal(&d->changed);
    }
    unlock(d);
}

static bool dial_take(kolo_dialer *base, kolo_dialed *next) {
    dialer *d = dialer_of(base);
    uint64_t count;
    lock(d);
    (void)!read(d->base.events, &count, sizeof count);
    target *t = d->first;
    if (t) {
        *next = t->result;
        kolo_seal_keys_clear(&t->result.keys);
        t->arrived = false;
        d->first = t->next;
        if (!d->first) d->end = &d->first;
    }
    unlock(d);
    return t != NULL;
}

static void dial_stop(kolo_dialer *base) {
    dialer *d = dialer_of(base);
    uint64_t one = 1;
    const int64_t until_ns = kolo_now_ns() + FAREWELL_NS;
    lock(d);
    d->stop = true;
    pthread_cond_signal(&d->changed);
    (void)!write(d->stop_fd, &one, sizeof one);
    while (d->n_running > 0 && kolo_now_ns() < until_ns) wait_until_ns(d, &d->ended, until_ns);
    d->cut = true;
    for (int i = 0; i < 2; i++) set_busy(d, i, d->busy[i]);
    unlock(d);
    while (d->n_threads > 0) pthread_join(d->threads[--d->n_threads], NULL);
}

static void dial_abandon(kolo_dialer *base) {
    dialer *d = dialer_of(base);
    for (int i = 0; i < 2; i++) {
        if (d->busy[i] >= 0) close(d->busy[i]);
    }
    for (const target *t = d->first; t; t = t->next) {
        if (t->result.connected) close(t->result.fd);
    }
    kolo_listener_abandon(d->listener);
    close(d->listener_fd);
    close(d->stop_fd);
    close(d->base.events);
}

static void dial_destroy(kolo_dialer *base) {
    dialer *d = dialer_of(base);
    kolo_dialed left;
    if (d->stop_fd >= 0) dial_stop(base);
    while (d->base.events >= 0 && dial_take(base, &left)) {
        if (left.connected) close(left.fd);
        kolo_seal_keys_clear(&left.keys);
    }
    kolo_listener_destroy(d->listener);
    if (d->listener_fd >= 0) close(d->listener_fd);
    if (d->stop_fd >= 0) close(d->stop_fd);
    if (d->base.events >= 0) close(d->base.events);
    pthread_cond_destroy(&d->changed);
    pthread_cond_destroy(&d->ended);
    pthread_mutex_destroy(&d->mutex);
    kolo_key_clear(&d->key);
    kolo_free(d);
}

static const kolo_dialer_ops ops = {.want = dial_want,
                                    .take = dial_take,
                                    .stop = dial_stop,
                                    .abandon = dial_abandon,
                                    .destroy = dial_destroy};

/* ---- creation ---- */

/* A rank without an address has that of rank 0 by which others reach it; for rank 0 itself that by
 * which the rank has reached it. */
static void set_address(const kolo_joining *j, int peer, target *t) {
    const kolo_hello *h = &j->table[peer];
    const char *address = h->address[0] ? h->address : j->env.master_addr;
    if (j->env.rank == 0 && !h->address[0] && peer > 0 &&
        kolo_socket_peer_address(j->members[peer].fd, t->address)) {
        return;
    }
    snprintf(t->address, sizeof t->address, "%.*s", (int)sizeof t->address - 1, address);
}

static void set_targets(const kolo_joining *j, dialer *d) {
    for (int p = 0; p < j->env.world; p++) {
        target *t = &d->targets[p];
        set_address(j, p, t);
        t->port = j->table[p].port;
        if (kolo_connects_first(j, j->env.rank, p)) t->state = CONNECTED;
    }
}

static kolo_status start_threads(dialer *d) {
    void *(*const runs[])(void *) = {connect_wanted, accept_all};
    for (int i = 0; i < 2; i++) {
        lock(d); /* before the thread ends */
        int error = kolo_thread_create(&d->threads[i], runs[i], d);
        if (error == 0) d->n_running++;
        unlock(d);
        if (error != 0) {
            return KOLO_FAIL(KOLO_ERR_IO, "the threads that connect: %s", kolo_errno_text(error));
        }
        d->n_threads++;
    }
    return KOLO_OK;
}

kolo_status kolo_dialer_create(kolo_joining *j, kolo_dialer **made) {
    const size_t bytes = sizeof(dialer) + (size_t)j->env.world * sizeof(target);
    dialer *d = kolo_zalloc(bytes);
    if (!d) return KOLO_NOMEM(bytes);
    d->base = (kolo_dialer){.ops = &ops, .events = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    d->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    d->key = j->key;
    d->own = j->own;
    d->protection = kolo_joining_protection(j);
    d->reach_ns = kolo_joining_reach_ns(j);
    d->listener_fd = j->tcp_listener;
    j->tcp_listener = -1;
    d->busy[0] = d->busy[1] = -1;
    d->end = &d->first;
    pthread_mutex_init(&d->mutex, NULL);
    pthread_cond_init(&d->changed, NULL);
    pthread_cond_init(&d->ended, NULL);
    set_targets(j, d);
    kolo_status status = KOLO_OK;
    if (d->base.events < 0 || d->stop_fd < 0) {
        status = KOLO_FAIL(KOLO_ERR_IO, "eventfd: %s", kolo_errno_text(errno));
    }
    if (status == KOLO_OK) {
        status = kolo_listener_create(d->listener_fd, &d->key, false, &d->listener);
    }
    if (status == KOLO_OK) {
        kolo_listener_watch(d->listener, d->stop_fd);
        status = start_threads(d);
    }
    if (status != KOLO_OK) {
        dial_destroy(&d->base);
        return status;
    }
    *made = &d->base;
    return KOLO_OK;
}

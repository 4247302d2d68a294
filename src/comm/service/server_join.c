/* A thread for each listener accepts those who join. Connections are authenticated beside each
 * other, so that none holds up another one; the thread of the server takes over those that are
 * accepted. A number is given once: a process that has ended may still have it at another server,
 * which has not found that yet, and owners keep what its number has done. */
#define _GNU_SOURCE
#include "comm/service/server_join.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/service/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* A thread that accepts at one listener. */
typedef struct joiner {
    kolo_joiners *all;
    int listener; /* -1: none */
    bool local;
    kolo_service_thread thread;
} joiner;

struct kolo_joiners {
    int first, most;
    int64_t heartbeat_ms;
    void (*wake)(void *arg);
    void *arg;
    kolo_key key;
    kolo_protection protection; /* between hosts */
    joiner joiners[2];
    int ended;                  /* an eventfd, written when `stop` is set */
    _Atomic bool stop;          /* release by the owner, acquire by the threads */
    pthread_mutex_t mutex;      /* protects the following */
    bool *taken;                /* [most]: numbers that were given */
    kolo_joined_client *joined; /* [most]: to be taken; fd -1: none */
    int n_joined;               /* of these */
};

/* The number of a client that joins: the one that it asks for or, -1, the next. Returns -1 if there
 * is none. */
static int take_number(kolo_joiners *s, int asked) {
    int i = asked < 0 ? 0 : asked - s->first;
    pthread_mutex_lock(&s->mutex);
    while (asked < 0 && i < s->most && s->taken[i]) i++;
    const bool free = i >= 0 && i < s->most && !s->taken[i];
    if (free) s->taken[i] = true;
    pthread_mutex_unlock(&s->mutex);
    return free ? s->first + i : -1;
}

/* The connection is closed on failure. */
static void admit(kolo_joiners *s, const kolo_member *m, bool local) {
    static const int64_t answer_ns = 10000000000;
    static const char full[] =
        "as many processes have joined as may (joins); those that have ended count, too";
    const int32_t number = take_number(s, m->hello.rank);
    const int64_t deadline_ns = kolo_now_ns() + answer_ns;
    const kolo_status status = number < 0 ? KOLO_ERR_ARG : KOLO_OK;
    const void *body = number < 0 ? (const void *)full : &number;
    const size_t bytes = number < 0 ? sizeof full - 1 : sizeof number;
    const kolo_protection protection = local ? KOLO_PROTECT_NOTHING : s->protection;
    kolo_seal_keys keys;
    if (kolo_handshake_send(m->fd, &s->key, "kolo service join", &m->nonces, status, body, bytes,
                            NULL, deadline_ns) != KOLO_OK ||
        number < 0 ||
        kolo_handshake_keys(m->fd, &s->key, &m->nonces, true, protection, deadline_ns, &keys) !=
            KOLO_OK) {
        close(m->fd);
        return;
    }
    if (!local) kolo_socket_tune(m->fd, s->heartbeat_ms);
    if (!local) kolo_socket_keep_alive(m->fd, s->heartbeat_ms);
    pthread_mutex_lock(&s->mutex);
    s->joined[number - s->first] =
        (kolo_joined_client){.fd = m->fd, .number = number, .keys = keys};
    s->n_joined++;
    pthread_mutex_unlock(&s->mutex);
    kolo_seal_keys_clear(&keys);
    s->wake(s->arg);
}

static void *accept_joining(void *arg) {
    static const int64_t long_ns = 3600000000000;
    const joiner *j = arg;
    kolo_listener *listener;
    if (kolo_listener_create(j->listener, &j->all->key, j->local, &listener) != KOLO_OK) {
        kolo_log_line(KOLO_LOG_WARN, -1, "service: nobody can join: %s", kolo_last_error());
        return NULL;
    }
    kolo_listener_watch(listener, j->all->ended);
    while (!atomic_load_explicit(&j->all->stop, memory_order_acquire)) {
        kolo_member m;
        int lost;
        const int64_t deadline_ns = kolo_now_ns() + long_ns;
        kolo_status status = kolo_listener_accept(listener, NULL, 0, deadline_ns, &m, &lost);
        if (status == KOLO_OK) admit(j->all, &m, j->local);
        if (status != KOLO_OK && status != KOLO_ERR_TIMEOUT) break;
    }
    kolo_listener_destroy(listener);
    return NULL;
}

kolo_status kolo_joiners_start(kolo_joiners *s, int listeners[2], const kolo_key *key,
                               kolo_protection protection) {
    s->key = *key;
    s->protection = protection;
    for (int i = 0; i < 2; i++) {
        joiner *j = &s->joiners[i];
        *j = (joiner){.all = s, .listener = listeners[i], .local = i == 0};
        listeners[i] = -1;
    }
    for (int i = 0; i < 2; i++) {
        joiner *j = &s->joiners[i];
        if (j->listener < 0) continue;
        KOLO_TRY(kolo_service_thread_start(&j->thread, accept_joining, j));
    }
    return KOLO_OK;
}

bool kolo_joiners_take(kolo_joiners *s, kolo_joined_client *client) {
    client->fd = -1;
    pthread_mutex_lock(&s->mutex);
    for (int i = 0; s->n_joined > 0 && client->fd < 0; i++) {
        *client = s->joined[i];
        s->joined[i] = (kolo_joined_client){.fd = -1};
    }
    s->n_joined -= client->fd >= 0;
    pthread_mutex_unlock(&s->mutex);
    return client->fd >= 0;
}

/* ---- creation and the end ---- */

kolo_status kolo_joiners_create(int first, int most, int64_t heartbeat_ms, void (*wake)(void *arg),
                                void *arg, kolo_joiners **joiners) {
    const size_t n = (size_t)most;
    kolo_joiners *s = kolo_zalloc(sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    *s = (kolo_joiners){
        .first = first, .most = most, .heartbeat_ms = heartbeat_ms, .wake = wake, .arg = arg};
    pthread_mutex_init(&s->mutex, NULL);
    s->joiners[0].listener = s->joiners[1].listener = -1;
    s->ended = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->taken = kolo_zalloc(n);
    s->joined = kolo_alloc(n * sizeof *s->joined);
    kolo_status status = KOLO_OK;
    if (!s->taken || !s->joined) status = KOLO_NOMEM(n * sizeof *s->joined);
    if (s->ended < 0) status = KOLO_FAIL(KOLO_ERR_IO, "eventfd: %s", kolo_errno_text(errno));
    for (size_t i = 0; i < n && s->joined; i++) s->joined[i].fd = -1;
    if (status != KOLO_OK) {
        kolo_joiners_destroy(s);
        return status;
    }
    *joiners = s;
    return KOLO_OK;
}

void kolo_joiners_stop(kolo_joiners *s) {
    const uint64_t one = 1;
    atomic_store_explicit(&s->stop, true, memory_order_release);
    if (s->ended >= 0) (void)!write(s->ended, &one, sizeof one);
    for (int i = 0; i < 2; i++) kolo_service_thread_join(&s->joiners[i].thread);
}

/* Closes all descriptors. */
static void close_all(kolo_joiners *s) {
    for (int i = 0; i < 2; i++) {
        if (s->joiners[i].listener >= 0) close(s->joiners[i].listener);
        s->joiners[i].listener = -1;
    }
    for (int i = 0; s->joined && i < s->most; i++) {
        if (s->joined[i].fd >= 0) close(s->joined[i].fd);
        kolo_seal_keys_clear(&s->joined[i].keys);
        s->joined[i].fd = -1;
    }
    if (s->ended >= 0) close(s->ended);
    s->ended = -1;
}

void kolo_joiners_abandon(kolo_joiners *s) { close_all(s); }

void kolo_joiners_destroy(kolo_joiners *s) {
    if (!s) return;
    kolo_joiners_stop(s);
    close_all(s);
    pthread_mutex_destroy(&s->mutex);
    kolo_key_clear(&s->key);
    kolo_free(s->taken);
    kolo_free(s->joined);
    kolo_free(s);
}

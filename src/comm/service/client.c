/* The client of a service.
 *
 * A client that reports progress states to all servers, each second or four times in the timeout,
 * that it makes progress, unless it has waited all the time since it stated that last. The driver
 * does so, or a thread of the library, whatever the program computes. */
#define _GNU_SOURCE
#include "comm/service/client.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/integer.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/status.h"
#include "comm/service/client_internal.h"
#include "comm/service/thread.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { DRIVE_MS = 100, REPORT_MS = 1000, LEAVE_MS = 1000 };

/* ---- progress reports ---- */

static int64_t report_period_ns(const kolo_client *c) {
    return kolo_min_i64(kolo_ms_to_ns(c->timeout_ms) / 4, kolo_ms_to_ns(REPORT_MS));
}

static int64_t next_reports_ns(const kolo_client *c) {
    return c->reported_ns + report_period_ns(c);
}

/* Starts a request; the mutex is held. */
static void add_started(kolo_client *c, kolo_service_request *q) {
    q->internal.next = NULL;
    q->internal.state = KOLO_REQUEST_OPEN;
    *c->started_end = q;
    c->started_end = &q->internal.next;
    c->n_open++;
}

/* Starts a report to a server, unless it has not answered the one before; the mutex is held. */
static void add_report(kolo_client *c, kolo_client_link *l, bool progresses) {
    if (!l->serves || l->broken != KOLO_OK || l->report.internal.state != KOLO_REQUEST_DONE) return;
    l->report = (kolo_service_request){.server = (int)(l - c->links), .key = progresses};
    add_started(c, &l->report);
}

/* The driver: states what is due. */
static void add_due_reports(kolo_client *c) {
    const int64_t now_ns = kolo_now_ns();
    if (now_ns < next_reports_ns(c)) return;
    c->reported_ns = now_ns;
    if (!kolo_activity_take(c->activity, &c->seen)) return;
    pthread_mutex_lock(&c->mutex);
    for (int r = 0; r < c->size && c->reports; r++) add_report(c, &c->links[r], true);
    pthread_mutex_unlock(&c->mutex);
}

/* ---- turns of the driver ---- */

/* Drives with the mutex released in between; it is held. */
static void take_turn(kolo_client *c, int timeout_ms, bool spins) {
    c->driven = true;
    pthread_mutex_unlock(&c->mutex);
    add_due_reports(c);
    kolo_client_drive(c, timeout_ms, spins);
    pthread_mutex_lock(&c->mutex);
    c->driven = false;
    pthread_cond_broadcast(&c->changed);
}

/* Waits for a change, at most until the deadline; the mutex is held. */
static void wait_until_ns(kolo_client *c, pthread_cond_t *change, int64_t deadline_ns) {
    struct timespec until = {.tv_sec = deadline_ns / 1000000000,
                             .tv_nsec = deadline_ns % 1000000000};
    (void)pthread_cond_clockwait(change, &c->mutex, CLOCK_MONOTONIC, &until);
}

static void *run(void *arg) {
    kolo_client *c = arg;
    pthread_mutex_lock(&c->mutex);
    while (!c->stop) {
        const bool moves = c->n_open > 0 && c->n_waiting == 0;
        if (!c->driven && (moves || (c->reports && kolo_now_ns() >= next_reports_ns(c)))) {
            take_turn(c, moves ? DRIVE_MS : 0, false);
        } else if (c->reports) { /* a driver sends reports that are due until it ends */
            wait_until_ns(c, &c->work,
                          c->driven ? kolo_now_ns() + report_period_ns(c) : next_reports_ns(c));
        } else {
            pthread_cond_wait(&c->work, &c->mutex);
        }
    }
    pthread_mutex_unlock(&c->mutex);
    return NULL;
}

void kolo_client_report_progress(kolo_client *c) {
    pthread_mutex_lock(&c->mutex);
    c->reports = true;
    pthread_cond_signal(&c->work);
    pthread_mutex_unlock(&c->mutex);
}

/* ---- requests ---- */

static void kick(kolo_client *c) {
    uint64_t one = 1;
    (void)!write(c->wake, &one, sizeof one);
}

/* The handle of mapped memory; 0: none. */
static uint64_t handle_of(kolo_client *c, const kolo_client_link *l, const void *data,
                          size_t bytes) {
    kolo_transport *t = c->transport;
    return l->mapped && bytes > 0 ? t->ops->handle(t, data, bytes) : 0;
}

static kolo_status check_request(const kolo_client *c, const kolo_service_request *q) {
    if (q->server < 0 || q->server >= c->size || !c->links[q->server].serves) {
        return KOLO_FAIL(KOLO_ERR_ARG, "rank %d is no server", q->server);
    }
    if ((q->input_bytes > 0 && !q->input) || (q->output_bytes > 0 && !q->output)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a request of %zu bytes with a reply of %zu, without memory",
                         q->input_bytes, q->output_bytes);
    }
    return KOLO_OK;
}

kolo_status kolo_client_start(kolo_client *c, kolo_service_request *q, bool waits) {
    KOLO_TRY(check_request(c, q));
    kolo_client_link *l = &c->links[q->server];
    pthread_mutex_lock(&c->mutex);
    kolo_status status = KOLO_OK;
    if (q->internal.state != KOLO_REQUEST_DONE) {
        status = KOLO_FAIL(KOLO_ERR_ARG, "the request is in flight: wait for it first");
    } else if (l->broken != KOLO_OK) {
        status = KOLO_FAIL(l->broken, "%s", l->why);
    } else {
        q->internal.input_handle = handle_of(c, l, q->input, q->input_bytes);
        q->internal.output_handle = handle_of(c, l, q->output, q->output_bytes);
        add_started(c, q);
    }
    const bool driven = c->driven; /* one who waits, or holds, drives next */
    if (status == KOLO_OK && !driven && !waits && c->n_waiting == 0) pthread_cond_signal(&c->work);
    pthread_mutex_unlock(&c->mutex);
    if (status == KOLO_OK && driven) kick(c);
    return status;
}

/* The error of a request that was not replied to in time. Nobody drives. */
static void explain(const kolo_client_link *l, const kolo_service_request *q, int64_t timeout_ms,
                    char *why, size_t size) {
    char what[80], silent[80] = "";
    if (q->name) {
        snprintf(what, sizeof what, "%s, clock %" PRIu64 ",", q->name, q->clock);
    } else {
        snprintf(what, sizeof what, "request kind %u, key %" PRIu64, q->kind, q->key);
    }
    if (l->silent > 0 && l->silent_ms >= timeout_ms) {
        kolo_snprintf(silent, sizeof silent, ", and rank %u has sent it nothing for %.1f s",
                      l->silent - 1, (double)l->silent_ms * 1e-3);
    }
    kolo_snprintf(why, size,
                  "has not replied to %s within %.1f s%s: check that rank, or allow more time",
                  what, (double)timeout_ms * 1e-3, silent);
}

/* The deadline has passed: closes the connection, once no thread drives it. */
static void time_out(kolo_client *c, const kolo_service_request *q, int64_t timeout_ms) {
    kolo_client_link *l = &c->links[q->server];
    char why[sizeof l->why];
    while (c->driven) {
        kick(c);
        wait_until_ns(c, &c->changed, kolo_now_ns() + kolo_ms_to_ns(DRIVE_MS));
    }
    take_turn(c, 0, false); /* a request that was started last is in no link yet */
    if (q->internal.state == KOLO_REQUEST_DONE) return;
    explain(l, q, timeout_ms, why, sizeof why);
    kolo_client_break(c, l, KOLO_ERR_TIMEOUT, why);
}

/* A caller drives whenever it waits; the mutex is held. */
static void take_over(kolo_client *c) { c->n_waiting++; }

static void hand_over(kolo_client *c) {
    c->n_waiting--;
    if (c->n_open > 0 && c->n_waiting == 0) pthread_cond_signal(&c->work);
}

void kolo_client_hold(kolo_client *c) {
    pthread_mutex_lock(&c->mutex);
    take_over(c);
    c->n_before = c->n_open;
    pthread_mutex_unlock(&c->mutex);
}

void kolo_client_release(kolo_client *c) {
    pthread_mutex_lock(&c->mutex);
    hand_over(c);
    pthread_mutex_unlock(&c->mutex);
}

/* Whether a connection has not taken all requests. Nobody drives; the mutex is held. */
static bool has_unsent(const kolo_client *c) {
    for (int r = 0; r < c->size; r++) {
        if (c->links[r].queue) return true;
    }
    return false;
}

void kolo_client_release_sent(kolo_client *c) {
    pthread_mutex_lock(&c->mutex);
    const bool driven = c->driven;
    if (!driven) take_turn(c, 0, false);
    c->n_waiting--;
    const bool left = driven || c->n_before > 0 || has_unsent(c);
    if (left && c->n_open > 0 && c->n_waiting == 0) pthread_cond_signal(&c->work);
    pthread_mutex_unlock(&c->mutex);
    if (driven) kick(c);
}

/* Begins and ends a wait of the caller; between them the mutex is held. */
static void begin_wait(kolo_client *c) {
    kolo_activity_begin_wait(c->activity);
    pthread_mutex_lock(&c->mutex);
    take_over(c);
}

static void end_wait(kolo_client *c) {
    hand_over(c);
    pthread_mutex_unlock(&c->mutex);
    kolo_activity_end_wait(c->activity);
}

/* Waits for a request up to the deadline: whether it is complete. */
static bool wait_until(kolo_client *c, const kolo_service_request *q, int64_t deadline_ns) {
    while (q->internal.state != KOLO_REQUEST_DONE) {
        int64_t left_ms = (deadline_ns - kolo_now_ns() + 999999) / 1000000;
        if (left_ms <= 0) return false;
        if (c->driven) {
            wait_until_ns(c, &c->changed, deadline_ns);
        } else {
            take_turn(c, (int)kolo_min_i64(left_ms, DRIVE_MS), true);
        }
    }
    return true;
}

static kolo_status result_of(const kolo_service_request *q) {
    const kolo_status status = q->internal.status;
    return status == KOLO_OK ? status : KOLO_FAIL(status, "%s", q->internal.error);
}

kolo_status kolo_client_wait(kolo_client *c, kolo_service_request *q, int64_t timeout_ms) {
    if (timeout_ms <= 0) timeout_ms = c->timeout_ms;
    const int64_t deadline_ns = kolo_now_ns() + kolo_ms_to_ns(timeout_ms);
    begin_wait(c);
    while (!wait_until(c, q, deadline_ns)) time_out(c, q, timeout_ms);
    end_wait(c);
    return result_of(q);
}

/* The time after half of the timeout. */
static int64_t half_deadline(int64_t timeout_ms) {
    return kolo_now_ns() + kolo_ms_to_ns(timeout_ms / 2 + 1);
}

/* Whether a client of a server has made progress within the timeout. The mutex is held. */
static bool asks_for_progress(kolo_client *c, kolo_client_link *l, int64_t timeout_ms) {
    add_report(c, l, false);
    if (c->driven) kick(c);
    return wait_until(c, &l->report, half_deadline(timeout_ms)) && l->broken == KOLO_OK &&
           l->report.internal.status == KOLO_OK && l->report.reply_clock < (uint64_t)timeout_ms;
}

kolo_status kolo_client_await(kolo_client *c, kolo_service_request *q, int64_t timeout_ms) {
    if (timeout_ms <= 0) timeout_ms = c->timeout_ms;
    begin_wait(c);
    while (!wait_until(c, q, half_deadline(timeout_ms))) {
        if (!asks_for_progress(c, &c->links[q->server], timeout_ms)) time_out(c, q, timeout_ms);
    }
    end_wait(c);
    return result_of(q);
}

bool kolo_client_has_progress(kolo_client *c, int server, int64_t timeout_ms) {
    if (timeout_ms <= 0) timeout_ms = c->timeout_ms;
    begin_wait(c);
    const bool lives = asks_for_progress(c, &c->links[server], timeout_ms);
    end_wait(c);
    return lives;
}

bool kolo_client_test(kolo_client *c, const kolo_service_request *q) {
    pthread_mutex_lock(&c->mutex);
    bool done = q->internal.state == KOLO_REQUEST_DONE;
    pthread_mutex_unlock(&c->mutex);
    return done;
}

/* ---- creation ---- */

static kolo_status open_epoll(kolo_client *c) {
    c->epoll = epoll_create1(EPOLL_CLOEXEC);
    c->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event e = {.events = EPOLLIN, .data.u32 = (uint32_t)c->size};
    if (c->epoll >= 0 && c->wake >= 0 && epoll_ctl(c->epoll, EPOLL_CTL_ADD, c->wake, &e) == 0) {
        return KOLO_OK;
    }
    return KOLO_FAIL(KOLO_ERR_IO, "epoll: %s", kolo_errno_text(errno));
}

kolo_status kolo_client_create(kolo_transport *transport, int size, int64_t timeout_ms,
                               kolo_activity *activity, kolo_client **client) {
    size_t bytes = sizeof(kolo_client) + (size_t)size * sizeof(kolo_client_link);
    kolo_client *c = kolo_zalloc(bytes);
    if (!c) return KOLO_NOMEM(bytes);
    c->transport = transport;
    c->size = size;
    c->timeout_ms = timeout_ms;
    c->activity = activity;
    c->reported_ns = kolo_now_ns();
    c->started_end = &c->started;
    for (int r = 0; r < size; r++) c->links[r].socket.fd = -1;
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->changed, NULL);
    pthread_cond_init(&c->work, NULL);
    kolo_status status = open_epoll(c);
    if (status == KOLO_OK) status = kolo_service_thread_start(&c->thread, run, c);
    if (status != KOLO_OK) {
        kolo_client_destroy(c);
        return status;
    }
    *client = c;
    return KOLO_OK;
}

kolo_status kolo_client_attach(kolo_client *c, int server, int fd, bool mapped,
                               const kolo_seal_keys *keys) {
    kolo_client_link *l = &c->links[server];
    struct epoll_event e = {.events = EPOLLIN, .data.u32 = (uint32_t)server};
    if (epoll_ctl(c->epoll, EPOLL_CTL_ADD, fd, &e) != 0) {
        kolo_status status = KOLO_FAIL(KOLO_ERR_IO, "epoll_ctl: %s", kolo_errno_text(errno));
        close(fd);
        return status;
    }
    KOLO_TRY(kolo_message_open(fd, keys, &c->traffic, &l->socket));
    l->serves = true;
    l->mapped = mapped;
    l->end = &l->queue;
    return KOLO_OK;
}

void kolo_client_attach_lost(kolo_client *c, int server) {
    kolo_client_link *l = &c->links[server];
    l->serves = true;
    l->end = &l->queue;
    pthread_mutex_lock(&c->mutex);
    kolo_client_break(c, l, KOLO_ERR_PEER, "was lost before this process joined");
    pthread_mutex_unlock(&c->mutex);
}

void kolo_client_traffic(kolo_client *c, uint64_t *sent, uint64_t *received) {
    *sent += atomic_load_explicit(&c->traffic.sent, memory_order_relaxed);
    *received += atomic_load_explicit(&c->traffic.received, memory_order_relaxed);
}

void kolo_client_set_completed(kolo_client *c, void (*completed)(void *arg), void *arg) {
    c->completed = completed;
    c->completed_arg = arg;
}

bool kolo_client_is_lost(kolo_client *c, int server) {
    pthread_mutex_lock(&c->mutex);
    bool lost = c->links[server].broken == KOLO_ERR_PEER;
    pthread_mutex_unlock(&c->mutex);
    return lost;
}

bool kolo_client_maps(const kolo_client *c, int server) { return c->links[server].mapped; }

void kolo_client_abandon(kolo_client *c) {
    for (int r = 0; r < c->size; r++) {
        if (c->links[r].socket.fd >= 0) close(c->links[r].socket.fd);
    }
    close(c->epoll);
    close(c->wake);
}

static bool is_sending(const kolo_client *c) {
    for (int r = 0; r < c->size; r++) {
        if (c->links[r].socket.fd >= 0 && c->links[r].sending) return true;
    }
    return false;
}

/* After an error: sends the rest of messages, behind which its text can follow. */
static void send_rest(kolo_client *c) {
    const int64_t deadline_ns = kolo_now_ns() + kolo_ms_to_ns(LEAVE_MS);
    while (*c->error && is_sending(c) && kolo_now_ns() < deadline_ns) {
        kolo_client_drive(c, DRIVE_MS, false);
    }
}

void kolo_client_set_error(kolo_client *c, const char *text) {
    snprintf(c->error, sizeof c->error, "%s", text);
}

void kolo_client_destroy(kolo_client *c) {
    if (!c) return;
    pthread_mutex_lock(&c->mutex);
    c->stop = true;
    pthread_cond_signal(&c->work);
    pthread_mutex_unlock(&c->mutex);
    if (c->wake >= 0) kick(c);
    kolo_service_thread_join(&c->thread);
    kolo_client_take_started(c);
    send_rest(c);
    pthread_mutex_lock(&c->mutex);
    for (int r = 0; r < c->size; r++) {
        kolo_client_link *l = &c->links[r];
        kolo_call_head head = {.type = KOLO_MESSAGE_LEAVE, .input_bytes = strlen(c->error)};
        if (!l->sending) kolo_message_send_leave(&l->socket, &head, sizeof head, c->error);
        kolo_client_break(c, l, KOLO_ERR_ARG, "is not connected: this rank has left the service");
    }
    pthread_mutex_unlock(&c->mutex);
    if (c->epoll >= 0) close(c->epoll);
    if (c->wake >= 0) close(c->wake);
    pthread_cond_destroy(&c->changed);
    pthread_cond_destroy(&c->work);
    pthread_mutex_destroy(&c->mutex);
    kolo_free(c);
}

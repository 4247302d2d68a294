/* Control messages between rank 0 and the other ranks while the group forms.
 *
 * The connections to rank 0 stay open until all pairs are connected. Each rank sends its status to
 * rank 0, which watches all connections and sends the common status to all. So all ranks detect at
 * once if a process ends in the meantime. A rank whose deadline passes before rank 0's answer
 * reports the timeout and waits a little longer: the answer then names the missing ranks. */
#include "base/clock.h"
#include "base/integer.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/status.h"
#include "comm/join/join.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    REASON_NS = 300000000, /* to wait for rank 0's reason after another connection was lost */
    REACH_MS_LEAST = 3000, /* the kernel repeats a lost request to connect after 1 and 3 s */
};

int64_t kolo_joining_reach_ns(const kolo_joining *j) {
    return kolo_ms_to_ns(kolo_max_i64(j->opts.heartbeat_ms, REACH_MS_LEAST));
}

double kolo_joining_s(const kolo_joining *j) {
    return (double)(kolo_now_ns() - j->started_ns) * 1e-9;
}

kolo_status kolo_joining_cancel(kolo_joining *j, kolo_status status) {
    char text[512];
    snprintf(text, sizeof text, "%s", kolo_last_error());
    int64_t deadline_ns = kolo_now_ns() + KOLO_FAREWELL_NS;
    for (int r = 1; r < j->env.world; r++) {
        kolo_member *m = &j->members[r];
        if (m->fd < 0) continue;
        (void)kolo_handshake_send(m->fd, &j->key, "kolo answer", &m->nonces, status, text,
                                  strlen(text), NULL, deadline_ns);
    }
    return KOLO_FAIL(status, "%s", text);
}

/* PEER: the process of `rank` ended. */
static kolo_status fail_gone(const kolo_joining *j, int rank) {
    char where[KOLO_ADDRESS_BYTES + 16];
    return KOLO_FAIL(KOLO_ERR_PEER, "%s is gone (process ended) while the group formed",
                     kolo_joining_rank_text(j, rank, where, sizeof where));
}

/* Receives the status of the other end. */
static kolo_status receive_status(const kolo_joining *j, const kolo_member *m, int rank,
                                  const char *label, int64_t deadline_ns) {
    kolo_status status =
        kolo_handshake_recv(m->fd, &j->key, label, &m->nonces, NULL, 0, NULL, deadline_ns);
    bool closed = status == KOLO_ERR_PEER && strstr(kolo_last_error(), "connection was closed");
    if (closed) return fail_gone(j, rank);
    bool silent = status == KOLO_ERR_PEER && strstr(kolo_last_error(), "host does not answer");
    if (status == KOLO_OK || (rank == 0 && !silent)) return status;
    char where[KOLO_ADDRESS_BYTES + 16];
    kolo_joining_rank_text(j, rank, where, sizeof where);
    return kolo_fail_in(status, "%s%s", where, silent ? ", while the group formed" : " reports");
}

static kolo_status receive_member(const kolo_joining *j, int rank) {
    return receive_status(j, &j->members[rank], rank, "kolo connected", j->deadline_ns);
}

kolo_status kolo_joining_await(const kolo_joining *j, const kolo_member *leader) {
    if (kolo_socket_readable(leader->fd, j->deadline_ns)) return KOLO_OK;
    char text[64];
    kolo_snprintf(text, sizeof text, "it gives up after %.1f s", kolo_joining_s(j));
    int64_t until_ns = kolo_now_ns() + KOLO_FAREWELL_NS;
    (void)kolo_handshake_send(leader->fd, &j->key, "kolo connected", &leader->nonces,
                              KOLO_ERR_TIMEOUT, text, strlen(text), NULL, until_ns);
    if (kolo_socket_readable(leader->fd, until_ns)) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_TIMEOUT, "rank 0 has not answered within %.1f s", kolo_joining_s(j));
}

static kolo_status receive_leader(kolo_joining *j) {
    kolo_status status = kolo_joining_await(j, &j->leader);
    if (status == KOLO_OK) {
        status = receive_status(j, &j->leader, 0, "kolo answer", kolo_now_ns() + KOLO_FAREWELL_NS);
    }
    if (status == KOLO_OK) return KOLO_OK;
    close(j->leader.fd);
    j->leader.fd = -1;
    return status;
}

kolo_status kolo_joining_lost(kolo_joining *j, int lost) {
    kolo_status status = lost >= 0 ? receive_member(j, lost) : receive_leader(j);
    if (status != KOLO_OK) return status;
    if (lost >= 0 && !j->reported[lost]) {
        j->reported[lost] = true;
        return KOLO_OK;
    }
    return KOLO_FAIL(KOLO_ERR_FORMAT,
                     "rank %d reports that all ranks are connected, but they are not",
                     lost >= 0 ? lost : 0);
}

/* Names the ranks that have not reported. */
static kolo_status connect_timeout(const kolo_joining *j, const bool *waiting, const char *reason) {
    char names[KOLO_JOINING_NAMES_BYTES];
    return KOLO_FAIL(KOLO_ERR_TIMEOUT, "not connected to all other ranks within %.1f s: %s%s",
                     kolo_joining_s(j), kolo_joining_names(j, waiting, names), reason);
}

/* Rank 0: waits for the status of all other ranks. A second message is a failure. */
static kolo_status receive_each(kolo_joining *j, struct pollfd *polls, bool *waiting) {
    int world = j->env.world, left = 0;
    for (int r = 0; r < world; r++) left += waiting[r];
    while (left > 0) {
        int n = poll(polls, (nfds_t)world, kolo_left_ms(j->deadline_ns));
        if (n == 0) return connect_timeout(j, waiting, "");
        for (int r = 1; r < world && n > 0; r++) {
            if (!polls[r].revents) continue;
            kolo_status status = receive_member(j, r);
            if (status == KOLO_ERR_TIMEOUT && !waiting[r]) {
                char reason[80];
                snprintf(reason, sizeof reason, " (rank %d gives up)", r);
                return connect_timeout(j, waiting, reason);
            }
            KOLO_TRY(status);
            left -= waiting[r];
            waiting[r] = false;
        }
    }
    return KOLO_OK;
}

static kolo_status receive_all(kolo_joining *j) {
    int world = j->env.world;
    struct pollfd *polls = kolo_zalloc((size_t)world * sizeof *polls);
    bool *waiting = kolo_zalloc((size_t)world);
    kolo_status status = polls && waiting ? KOLO_OK : KOLO_NOMEM((size_t)world * sizeof *polls);
    for (int r = 0; r < world && status == KOLO_OK; r++) {
        polls[r] = (struct pollfd){.fd = j->members[r].fd, .events = POLLIN};
        waiting[r] = r > 0 && !j->reported[r];
    }
    if (status == KOLO_OK) status = receive_each(j, polls, waiting);
    kolo_free(polls);
    kolo_free(waiting);
    return status;
}

kolo_status kolo_joining_conclude(kolo_joining *j, kolo_status status) {
    if (status == KOLO_OK) status = receive_all(j);
    if (status != KOLO_OK) return kolo_joining_cancel(j, status);
    for (int r = 1; r < j->env.world; r++) {
        kolo_member *m = &j->members[r];
        KOLO_TRY(kolo_handshake_send(m->fd, &j->key, "kolo answer", &m->nonces, KOLO_OK, NULL, 0,
                                     NULL, j->deadline_ns + KOLO_FAREWELL_NS));
    }
    return KOLO_OK;
}

kolo_status kolo_joining_report(kolo_joining *j, kolo_status status) {
    if (j->leader.fd < 0) return status; /* it has answered already */
    struct pollfd answer = {.fd = j->leader.fd, .events = POLLIN};
    char text[512];
    snprintf(text, sizeof text, "%s", status != KOLO_OK ? kolo_last_error() : "");
    if (status == KOLO_ERR_PEER && poll(&answer, 1, REASON_NS / 1000000) > 0)
        return receive_leader(j);
    kolo_status sent =
        kolo_handshake_send(j->leader.fd, &j->key, "kolo connected", &j->leader.nonces, status,
                            text, strlen(text), NULL, kolo_now_ns() + KOLO_FAREWELL_NS);
    if (status != KOLO_OK) return KOLO_FAIL(status, "%s", text);
    return sent == KOLO_OK || sent == KOLO_ERR_PEER ? receive_leader(j) : sent;
}

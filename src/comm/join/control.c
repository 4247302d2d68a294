/* Control messages between rank 0 and the other ranks while the group forms.
 *
 * The connections to rank 0 stay open until all pairs are connected. Each rank sends its status to
 * rank 0, which watches all connections and sends the common status to all. So all ranks detect at
 * once if a process ends in the meantime. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/join/join.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    REASON_NS = 300000000, /* to wait for rank 0's reason after another connection was lost */
};

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

kolo_status kolo_joining_gone(int rank) {
    return KOLO_FAIL(KOLO_ERR_PEER, "rank %d is gone (process ended) while the group formed", rank);
}

/* Receives the final status of the other end; closes the connection after a failure. */
static kolo_status receive_status(kolo_joining *j, kolo_member *m, int rank, const char *label,
                                  int64_t deadline_ns) {
    kolo_status status =
        kolo_handshake_recv(m->fd, &j->key, label, &m->nonces, NULL, 0, NULL, deadline_ns);
    if (status == KOLO_OK) return KOLO_OK;
    close(m->fd);
    m->fd = -1;
    bool closed = status == KOLO_ERR_PEER && strstr(kolo_last_error(), "connection was closed");
    if (closed) return kolo_joining_gone(rank);
    return rank == 0 ? status : kolo_fail_in(status, "rank %d reports", rank);
}

static kolo_status receive_member(kolo_joining *j, int rank) {
    return receive_status(j, &j->members[rank], rank, "kolo connected", j->deadline_ns);
}

/* Waits past the deadline: rank 0 has the same one, and then reports which ranks are missing. */
static kolo_status receive_leader(kolo_joining *j) {
    kolo_status status =
        receive_status(j, &j->leader, 0, "kolo answer", j->deadline_ns + KOLO_FAREWELL_NS);
    if (status == KOLO_ERR_TIMEOUT) {
        return KOLO_FAIL(status, "rank %d: not all ranks connected within %.1f s", j->env.rank,
                         kolo_joining_s(j));
    }
    return status;
}

kolo_status kolo_joining_lost(kolo_joining *j, int lost) {
    kolo_status status = lost >= 0 ? receive_member(j, lost) : receive_leader(j);
    if (status != KOLO_OK) return status;
    return KOLO_FAIL(KOLO_ERR_FORMAT,
                     "rank %d reports that all ranks are connected, but they are not",
                     lost >= 0 ? lost : 0);
}

/* Rank 0: waits for the status of all other ranks. */
static kolo_status receive_all(kolo_joining *j) {
    int world = j->env.world;
    struct pollfd *polls = kolo_zalloc((size_t)world * sizeof *polls);
    if (!polls) return KOLO_NOMEM((size_t)world * sizeof *polls);
    for (int r = 0; r < world; r++) {
        polls[r] = (struct pollfd){.fd = j->members[r].fd, .events = POLLIN};
    }
    kolo_status status = KOLO_OK;
    for (int left = world - 1; left > 0 && status == KOLO_OK;) {
        int n = poll(polls, (nfds_t)world, kolo_left_ms(j->deadline_ns));
        if (n == 0) {
            status = KOLO_FAIL(KOLO_ERR_TIMEOUT, "%d of %d ranks did not connect within %.1f s",
                               left, world, kolo_joining_s(j));
        }
        for (int r = 1; r < world && n > 0 && status == KOLO_OK; r++) {
            if (polls[r].fd < 0 || !polls[r].revents) continue;
            status = receive_member(j, r);
            polls[r].fd = -1;
            left--;
        }
    }
    kolo_free(polls);
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

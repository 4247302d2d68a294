/* Rendezvous of all ranks at rank 0.
 *
 * Rank 0 listens on the job's TCP address. The other ranks connect, authenticate, and send their
 * rank and address (kolo_hello). When all ranks have joined, rank 0 sends the table of addresses to
 * each of them, with its own proof. On an error (duplicate ranks, different worlds, a lost rank,
 * the deadline) it sends the reason to all instead. */
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/join/bootstrap.h"
#include "comm/join/join.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    RETRY_NS = 20000000,
    ATTEMPT_NS = 1000000000,
};

/* Prefixes the last error with its location, "rank 1 at ...: reason"; keeps the status. */
static kolo_status fail_at(kolo_status status, const char *what) {
    return kolo_fail_in(status, "%s", what);
}

static bool several_addresses(const kolo_joining *j) {
    return strchr(j->env.master_addr, ',') != NULL;
}

/* Listens at this host's address on the network of `near`. Rank 0, and if it has several addresses
 * the ranks on its host, publish none: each peer uses the one at which it reached rank 0. */
static kolo_status open_tcp(kolo_joining *j, int near) {
    int unused;
    if (!j->choice->network->create || j->tcp_listener >= 0) return KOLO_OK;
    char *address = j->own.address, found[KOLO_ADDRESS_BYTES];
    bool with_leader = j->env.rank == 0;
    if (!j->opts.interface) KOLO_TRY(kolo_socket_own_address(near, address, &unused));
    if (!j->opts.interface && !with_leader && several_addresses(j) && kolo_socket_same_host(near)) {
        bool six = strchr(address, ':') != NULL;
        snprintf(address, sizeof j->own.address, "%s", six ? "::" : "0.0.0.0");
        with_leader = true;
    }
    KOLO_TRY(kolo_socket_listen_tcp(address, 0, &j->tcp_listener));
    KOLO_TRY(kolo_socket_own_address(j->tcp_listener, found, &j->own.port));
    if (with_leader && !j->opts.interface) address[0] = '\0';
    return KOLO_OK;
}

void kolo_joining_close_tcp(kolo_joining *j) {
    if (j->tcp_listener >= 0) close(j->tcp_listener);
    j->tcp_listener = -1;
}

/* ---- rank 0 ---- */

static kolo_status check_hello(const kolo_joining *j, const kolo_hello *h) {
    const kolo_rank_env *own = &j->env;
    if (h->world != own->world) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "ranks disagree on the world size: rank %d has %d, rank 0 has %d",
                         (int)h->rank, (int)h->world, own->world);
    }
    if (h->transport != j->own.transport) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "ranks 0 and %d disagree on the transport (--transport): %s and %s",
                         (int)h->rank, j->choice->name,
                         kolo_transport_name((kolo_transport_choice)h->transport));
    }
    if (h->max_in_flight != j->own.max_in_flight) {
        return KOLO_FAIL(KOLO_ERR_ARG, "ranks 0 and %d disagree on max_in_flight: %d and %d",
                         (int)h->rank, (int)j->own.max_in_flight, (int)h->max_in_flight);
    }
    if (h->algorithm != j->own.algorithm) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "ranks 0 and %d disagree on the algorithm (KOLO_ALGORITHM): %s and %s",
                         (int)h->rank, kolo_algorithm_name((kolo_algorithm)j->own.algorithm),
                         kolo_algorithm_name((kolo_algorithm)h->algorithm));
    }
    if (h->protection != j->own.protection) {
        bool more = h->protection > j->own.protection;
        bool secret =
            h->protection == KOLO_PROTECT_SECRET || j->own.protection == KOLO_PROTECT_SECRET;
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "ranks 0 and %d disagree on %s: rank %d %s, rank %d does not",
                         (int)h->rank,
                         secret ? "encryption (--encrypt, KOLO_ENCRYPT)"
                                : "authentication (--authenticate, KOLO_AUTHENTICATE)",
                         more ? (int)h->rank : 0, secret ? "encrypts" : "authenticates",
                         more ? 0 : (int)h->rank);
    }
    if (h->rank < 0 || h->rank >= own->world) {
        return KOLO_FAIL(KOLO_ERR_ARG, "rank %d joined, outside the world of %d", (int)h->rank,
                         own->world);
    }
    if (h->rank == 0 || j->members[h->rank].fd >= 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "two processes joined as rank %d: RANK must be unique",
                         (int)h->rank);
    }
    return KOLO_OK;
}

/* Adds the missing ranks to a text; `ended` describes why rank 0 does not wait for them any more.
 */
static kolo_status name_missing(const kolo_joining *j, const kolo_listener *listener,
                                kolo_status status, const char *ended) {
    int joined = 1;
    char names[KOLO_JOINING_NAMES_BYTES];
    bool *missing = kolo_zalloc((size_t)j->env.world);
    if (!missing) return KOLO_NOMEM((size_t)j->env.world);
    for (int r = 1; r < j->env.world; r++) {
        missing[r] = j->members[r].fd < 0;
        joined += !missing[r];
    }
    kolo_joining_names(j, missing, names);
    kolo_free(missing);
    long unused;
    bool by_mpi = kolo_bootstrap_mpi(&unused) != NULL;
    return KOLO_FAIL(status, "%s%d of %d ranks have joined within %.1f s; missing: %s%s%s", ended,
                     joined, j->env.world, kolo_joining_s(j), names,
                     kolo_listener_reject_reason(listener),
                     by_mpi ? " (if one rank uses --transport mpi, all must)" : "");
}

/* A rank that has joined was lost, or it reports before the group is complete that it gives up. */
static kolo_status lose_member(kolo_joining *j, const kolo_listener *listener, int lost) {
    char reason[200];
    kolo_status status = kolo_joining_lost(j, lost);
    if (status == KOLO_OK) {
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "rank %d reports that it has connected, before it has any addresses",
                         lost);
    }
    snprintf(reason, sizeof reason, "%.190s; ", kolo_last_error());
    return name_missing(j, listener, status, reason);
}

/* Reads from the launcher which rank has ended. Without it, rank 0 would wait until the deadline
 * for a rank that exits with status 0, or is killed where jobs go on without it, before it joins.
 */
static kolo_status read_launcher(const kolo_joining *j) {
    int32_t ended[2]; /* rank, signal that killed it */
    ssize_t n = read(j->env.ended_fd, ended, sizeof ended);
    if (n != (ssize_t)sizeof ended) return KOLO_OK;
    int rank = ended[0];
    if (rank <= 0 || rank >= j->env.world || j->members[rank].fd >= 0) return KOLO_OK;
    if (ended[1] != 0) {
        return KOLO_FAIL(KOLO_ERR_PEER,
                         "rank %d was killed by signal %d before it joined the group", rank,
                         (int)ended[1]);
    }
    return KOLO_FAIL(KOLO_ERR_PEER, "rank %d exited (status 0) without joining the group", rank);
}

/* Refuses a member of another generation of the group. */
static void refuse_generation(const kolo_joining *j, const kolo_member *m) {
    char text[128];
    snprintf(text, sizeof text,
             "this is generation %u of the group; rank %d belongs to generation %u",
             j->own.generation, (int)m->hello.rank, m->hello.generation);
    (void)kolo_handshake_send(m->fd, &j->key, "kolo answer", &m->nonces, KOLO_ERR_ARG, text,
                              strlen(text), NULL, kolo_now_ns() + KOLO_FAREWELL_NS);
    close(m->fd);
}

static kolo_status gather(kolo_joining *j, kolo_listener *listener) {
    int world = j->env.world;
    j->table[0] = j->own;
    for (int joined = 1; joined < world;) {
        kolo_member member;
        int lost;
        kolo_status status =
            kolo_listener_accept(listener, j->members, world, j->deadline_ns, &member, &lost);
        if (status == KOLO_ERR_TIMEOUT) return name_missing(j, listener, status, "");
        if (status == KOLO_ERR_PEER && lost < 0) {
            KOLO_TRY(read_launcher(j));
            continue;
        }
        if (status == KOLO_ERR_PEER) return lose_member(j, listener, lost);
        KOLO_TRY(status);
        kolo_socket_keep_alive(member.fd, kolo_joining_reach_ns(j) / 1000000);
        if (member.hello.generation != j->own.generation) {
            refuse_generation(j, &member);
            continue;
        }
        status = check_hello(j, &member.hello);
        if (status != KOLO_OK) {
            (void)kolo_handshake_send(member.fd, &j->key, "kolo answer", &member.nonces, status,
                                      kolo_last_error(), strlen(kolo_last_error()), NULL,
                                      kolo_now_ns() + KOLO_FAREWELL_NS);
            close(member.fd);
            return status;
        }
        j->members[member.hello.rank] = member;
        j->table[member.hello.rank] = member.hello;
        joined++;
        kolo_log_line(KOLO_LOG_DEBUG, 0, "rank %d has joined: %d of %d", (int)member.hello.rank,
                      joined, world);
    }
    return KOLO_OK;
}

static kolo_status open_listener(kolo_joining *j, int *fd) {
    kolo_rank_env *c = &j->env;
    if (c->listen_fd < 0) return kolo_socket_listen_tcp(c->master_addr, c->master_port, fd);
    *fd = c->listen_fd;
    c->listen_fd = -1; /* the caller closes it */
    kolo_status status = kolo_socket_adopt(*fd);
    return status ? fail_at(status, "KOLO_LISTEN_FD") : KOLO_OK;
}

static kolo_status lead(kolo_joining *j) {
    int fd;
    KOLO_TRY(open_listener(j, &fd));
    kolo_listener *listener = NULL;
    kolo_status status = open_tcp(j, fd);
    if (status == KOLO_OK) status = kolo_listener_create(fd, &j->key, false, &listener);
    if (status == KOLO_OK) {
        kolo_listener_watch(listener, j->env.ended_fd);
        status = gather(j, listener);
    }
    if (status != KOLO_OK) status = kolo_joining_cancel(j, status);
    for (int r = 1; r < j->env.world && status == KOLO_OK; r++) {
        kolo_member *m = &j->members[r];
        status = kolo_handshake_send(m->fd, &j->key, "kolo answer", &m->nonces, KOLO_OK, j->table,
                                     (size_t)j->env.world * sizeof *j->table, NULL, j->deadline_ns);
    }
    kolo_listener_destroy(listener);
    close(fd);
    return status;
}

/* ---- the other ranks ---- */

/* Gets the next of rank 0's addresses, cyclically. */
static const char *next_address(const char *list, const char *at, char *address, size_t bytes) {
    size_t n = strcspn(at, ",");
    snprintf(address, bytes, "%.*s", (int)n, at);
    return at[n] ? at + n + 1 : list;
}

/* Makes one attempt to connect to an address and send this rank's hello. */
static kolo_status try_address(kolo_joining *j, const char *address, int64_t deadline_ns, int *fd,
                               kolo_nonces *nonces) {
    KOLO_TRY(kolo_socket_connect_tcp(address, j->env.master_port, deadline_ns, fd));
    kolo_socket_keep_alive(*fd, kolo_joining_reach_ns(j) / 1000000);
    kolo_status status = open_tcp(j, *fd);
    if (status == KOLO_OK)
        status = kolo_handshake_connect(*fd, &j->key, &j->own, deadline_ns, nonces);
    if (status != KOLO_OK) {
        close(*fd);
        kolo_joining_close_tcp(j); /* the next address may be on another network */
    }
    return status;
}

/* The launcher closes this pipe if rank 0 has ended. */
static bool leader_ended(const kolo_joining *j) {
    struct pollfd pipe = {.fd = j->env.ended_fd};
    return pipe.fd >= 0 && poll(&pipe, 1, 0) == 1 && (pipe.revents & POLLHUP);
}

/* No TIMEOUT without a route: of both errors the launcher then prints this one, with the cause, and
 * not that of rank 0. */
static kolo_status fail_to_reach(const kolo_joining *j, bool several) {
    char last[160];
    snprintf(last, sizeof last, "%s", kolo_last_error());
    if (!several && strstr(last, kolo_errno_text(ENETUNREACH))) {
        return KOLO_FAIL(
            KOLO_ERR_IO,
            "no connection to it within %.1f s (%s): check the address, and that a network "
            "interface for it is up, such as lo",
            kolo_joining_s(j), last);
    }
    return KOLO_FAIL(KOLO_ERR_TIMEOUT, "rank 0 did not listen within %.1f s (%s)",
                     kolo_joining_s(j), last);
}

/* Connects to rank 0, retrying until it listens. If rank 0 has several addresses, some may be
 * unreachable, so each attempt is limited to ATTEMPT_NS. */
static kolo_status reach_leader(kolo_joining *j, int *fd, kolo_nonces *nonces) {
    kolo_rank_env *c = &j->env;
    char address[sizeof c->master_addr];
    const char *at = c->master_addr;
    bool several = several_addresses(j);
    for (;;) {
        at = next_address(c->master_addr, at, address, sizeof address);
        int64_t until_ns = kolo_now_ns() + ATTEMPT_NS;
        bool capped = several && until_ns < j->deadline_ns;
        kolo_status status =
            try_address(j, address, capped ? until_ns : j->deadline_ns, fd, nonces);
        if (status == KOLO_OK) {
            memcpy(c->master_addr, address, sizeof address); /* connect.c uses it too */
            return KOLO_OK;
        }
        if (status == KOLO_ERR_TIMEOUT && capped) continue;
        if (status == KOLO_ERR_TIMEOUT) {
            return KOLO_FAIL(status,
                             "no answer within %.1f s: check the address, and that no firewall "
                             "blocks it",
                             kolo_joining_s(j));
        }
        if (status != KOLO_ERR_PEER && !several) return status; /* else try the next address */
        if (leader_ended(j)) {
            return KOLO_FAIL(KOLO_ERR_PEER, "rank 0 ended without forming the group");
        }
        if (kolo_now_ns() + RETRY_NS > j->deadline_ns) {
            return fail_to_reach(j, several);
        }
        kolo_sleep_ns(RETRY_NS);
    }
}

static kolo_status follow(kolo_joining *j) {
    const kolo_rank_env *c = &j->env;
    char where[128];
    snprintf(where, sizeof where, "rank %d, joining rank 0 at %.60s:%d", c->rank, c->master_addr,
             c->master_port);
    int fd;
    kolo_nonces nonces;
    kolo_status status = reach_leader(j, &fd, &nonces);
    if (status != KOLO_OK) return fail_at(status, where);
    kolo_log_line(KOLO_LOG_DEBUG, c->rank, "has reached rank 0 at %s:%d", c->master_addr,
                  c->master_port);
    j->leader = (kolo_member){.fd = fd, .nonces = nonces};
    status = kolo_joining_await(j, &j->leader);
    if (status == KOLO_OK) { /* an error that rank 0 sends is this call's own */
        status = kolo_handshake_recv(fd, &j->key, "kolo answer", &nonces, j->table,
                                     (size_t)c->world * sizeof *j->table, NULL,
                                     kolo_now_ns() + KOLO_FAREWELL_NS);
    }
    if (status == KOLO_OK) return KOLO_OK;
    j->leader.fd = -1;
    status = kolo_handshake_explain(fd, status);
    close(fd);
    return fail_at(status, where);
}

/* ---- both ---- */

kolo_status kolo_rendezvous(kolo_joining *j) { return j->env.rank == 0 ? lead(j) : follow(j); }

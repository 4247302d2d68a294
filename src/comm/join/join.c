/* How the processes of a job become a group: kolo_comm_create.
 *
 * Rank 0 listens on the job's TCP address; the others come to it, prove that they know the secret,
 * and say who and where they are. When all are there rank 0 answers each with the list of all (and
 * with its own proof); when something is wrong (two ranks with one number, different worlds, a rank
 * lost, the deadline) it answers all with the reason. Then each two ranks connect (connect.c).
 * Meanwhile the connections to rank 0 stay: each rank says there that it has connected or why not,
 * rank 0 watches all, and answers once more, to all alike, so that a rank whose process ends on the
 * way is missed at once by everybody. */
#include "comm/join/join.h"

#include "base/clock.h"
#include "base/process.h"
#include "comm/engine/engine.h"
#include "comm/join/bootstrap.h"
#include "comm/transport/ucx/ucx.h"

#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    RETRY_NS = 20000000,
    ATTEMPT_NS = 1000000000,
};

/* A failure that keeps its status and gets the place in front: "rank 1 at ...: reason". */
static kolo_status fail_at(kolo_status status, const char *what) {
    return kolo_fail_in(status, "%s", what);
}

static bool several_addresses(const kolo_joining *j) {
    return strchr(j->env.master_addr, ',') != NULL;
}

/* Where ranks of other hosts come to: a port of this host's address on the network between hosts,
 * which is the one of `near`, a connection to rank 0 or its listening socket. The others know best
 * by which address they reach rank 0's host. */
static kolo_status open_tcp(kolo_joining *j, int near) {
    int unused;
    if (j->opts.transport == KOLO_TRANSPORT_SHM || j->tcp_listener >= 0) return KOLO_OK;
    char *address = j->own.address, found[KOLO_ADDRESS_BYTES];
    bool beside = j->env.rank == 0;
    if (!j->opts.interface) KOLO_TRY(kolo_socket_own_address(near, address, &unused));
    if (!j->opts.interface && !beside && several_addresses(j) && kolo_socket_same_host(near)) {
        bool six = strchr(address, ':') != NULL;
        snprintf(address, sizeof j->own.address, "%s", six ? "::" : "0.0.0.0");
        beside = true;
    }
    KOLO_TRY(kolo_socket_listen_tcp(address, 0, &j->tcp_listener));
    KOLO_TRY(kolo_socket_own_address(j->tcp_listener, found, &j->own.port));
    if (beside && !j->opts.interface) address[0] = '\0';
    return KOLO_OK;
}

static void close_tcp(kolo_joining *j) {
    if (j->tcp_listener >= 0) close(j->tcp_listener);
    j->tcp_listener = -1;
}

/* ---- rank 0's side ---- */

static kolo_status check_hello(const kolo_joining *j, const kolo_hello *h) {
    const kolo_rank_env *own = &j->env;
    if (h->world != own->world) {
        return KOLO_FAIL(KOLO_ERR_ARG, "rank %d says the world has %d ranks, rank 0 says %d",
                         (int)h->rank, (int)h->world, own->world);
    }
    if (h->transport != j->own.transport) {
        return KOLO_FAIL(KOLO_ERR_ARG, "ranks 0 and %d disagree on the transport (--transport)",
                         (int)h->rank);
    }
    if (h->rank < 0 || h->rank >= own->world) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a rank says that it is number %d of %d", (int)h->rank,
                         own->world);
    }
    if (h->rank == 0 || j->members[h->rank].fd >= 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "two ranks say that they are rank %d: RANK must differ",
                         (int)h->rank);
    }
    return KOLO_OK;
}

/* "rank 2 and 3 more" of those that have not come. */
static kolo_status too_late(const kolo_joining *j, const kolo_listener *listener) {
    int missing = 0, first = 0;
    for (int r = j->env.world - 1; r > 0; r--) {
        if (j->members[r].fd >= 0) continue;
        first = r;
        missing++;
    }
    char more[32] = "";
    if (missing > 1) snprintf(more, sizeof more, " and %d more", missing - 1);
    long unused;
    bool by_mpi = kolo_bootstrap_mpi(&unused) != NULL;
    return KOLO_FAIL(KOLO_ERR_TIMEOUT,
                     "%d of %d ranks have joined within %.1f s; missing: rank "
                     "%d%s%s%s",
                     j->env.world - missing, j->env.world, kolo_joining_s(j), first, more,
                     kolo_listener_reject_reason(listener),
                     by_mpi ? " (where one rank names --transport mpi, all must)" : "");
}

/* The launcher says which ranks have ended: one that ends well before it has joined would else be
 * waited for until the deadline. */
static kolo_status hear_launcher(const kolo_joining *j) {
    int32_t ended[2]; /* rank, exit status */
    ssize_t n = read(j->env.ended_fd, ended, sizeof ended);
    if (n != (ssize_t)sizeof ended) return KOLO_OK;
    int rank = ended[0];
    if (rank <= 0 || rank >= j->env.world || j->members[rank].fd >= 0) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_PEER, "rank %d has ended (exit status %d) without joining the group",
                     rank, (int)ended[1]);
}

/* A member of another generation of the group: no business of this one. */
static void turn_away(const kolo_joining *j, const kolo_member *m) {
    char text[128];
    snprintf(text, sizeof text, "this is generation %u of the group, rank %d comes from %u",
             j->own.generation, (int)m->hello.rank, m->hello.generation);
    (void)kolo_handshake_send(m->fd, &j->key, "kolo answer", &m->nonces, KOLO_ERR_ARG, text,
                              strlen(text), NULL, kolo_now_ns() + KOLO_FAREWELL_NS);
    close(m->fd);
}

static kolo_status gather(kolo_joining *j, kolo_listener *listener) {
    int world = j->env.world;
    j->table[0] = j->own;
    for (int came = 1; came < world;) {
        kolo_member member;
        int lost;
        kolo_status status =
            kolo_listener_accept(listener, j->members, world, j->deadline_ns, &member, &lost);
        if (status == KOLO_ERR_TIMEOUT) return too_late(j, listener);
        if (status == KOLO_ERR_PEER && lost < 0) {
            KOLO_TRY(hear_launcher(j));
            continue;
        }
        if (status == KOLO_ERR_PEER) {
            close(j->members[lost].fd);
            j->members[lost].fd = -1;
            return kolo_joining_gone(lost);
        }
        KOLO_TRY(status);
        if (member.hello.generation != j->own.generation) {
            turn_away(j, &member);
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
        came++;
    }
    return KOLO_OK;
}

static kolo_status open_listener(kolo_joining *j, int *fd) {
    kolo_rank_env *c = &j->env;
    if (c->listen_fd < 0) return kolo_socket_listen_tcp(c->master_addr, c->master_port, fd);
    *fd = c->listen_fd;
    c->listen_fd = -1; /* closed where the others are */
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

/* ---- the other ranks' side ---- */

/* The next of rank 0's addresses; begins again behind the last. */
static const char *next_address(const char *list, const char *at, char *address, size_t bytes) {
    size_t n = strcspn(at, ",");
    snprintf(address, bytes, "%.*s", (int)n, at);
    return at[n] ? at + n + 1 : list;
}

/* One attempt to connect to an address and to enter there. */
static kolo_status try_address(kolo_joining *j, const char *address, int64_t deadline_ns, int *fd,
                               kolo_nonces *nonces) {
    KOLO_TRY(kolo_socket_connect_tcp(address, j->env.master_port, deadline_ns, fd));
    kolo_status status = open_tcp(j, *fd);
    if (status == KOLO_OK)
        status = kolo_handshake_connect(*fd, &j->key, &j->own, deadline_ns, nonces);
    if (status != KOLO_OK) {
        close(*fd);
        close_tcp(j); /* the next address may be on another network */
    }
    return status;
}

/* Where nobody listens, the launcher may know that nobody will. */
static bool leader_ended(const kolo_joining *j) {
    struct pollfd pipe = {.fd = j->env.ended_fd};
    return pipe.fd >= 0 && poll(&pipe, 1, 0) == 1 && (pipe.revents & POLLHUP);
}

/* Connects and enters, again and again while nobody is there yet. Where rank 0 has several
 * addresses no way may lead to some of them: each gets a second at a time. */
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
            memcpy(c->master_addr, address, sizeof address); /* connect.c goes there too */
            return KOLO_OK;
        }
        if (status == KOLO_ERR_TIMEOUT && capped) continue;
        if (status == KOLO_ERR_TIMEOUT) {
            return KOLO_FAIL(status,
                             "nobody answers there within %.1f s: is that address right, "
                             "and the way to it open?",
                             kolo_joining_s(j));
        }
        if (status != KOLO_ERR_PEER && !several) return status; /* another one may be better */
        if (leader_ended(j)) {
            return KOLO_FAIL(KOLO_ERR_PEER,
                             "rank 0 has ended (exit status 0) without forming the group");
        }
        if (kolo_now_ns() + RETRY_NS > j->deadline_ns) {
            char last[160];
            snprintf(last, sizeof last, "%s", kolo_last_error());
            return KOLO_FAIL(KOLO_ERR_TIMEOUT, "no rank 0 there within %.1f s (%s)",
                             kolo_joining_s(j), last);
        }
        nanosleep(&(struct timespec){.tv_nsec = RETRY_NS}, NULL);
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
    /* A little beyond the own deadline: rank 0, whose deadline is the same, knows who is missing.
     */
    status = kolo_handshake_recv(fd, &j->key, "kolo answer", &nonces, j->table,
                                 (size_t)c->world * sizeof *j->table, NULL,
                                 j->deadline_ns + KOLO_FAREWELL_NS);
    if (status == KOLO_OK) {
        j->leader = (kolo_member){.fd = fd, .nonces = nonces};
        return KOLO_OK;
    }
    bool unanswered = status == KOLO_ERR_PEER && kolo_socket_closed(fd);
    close(fd);
    if (unanswered && strstr(kolo_last_error(), "connection was closed")) {
        return KOLO_FAIL(status,
                         "%s: it closed the connection without an answer: the secrets "
                         "(KOLO_SECRET_FILE) differ, or its process has ended",
                         where);
    }
    if (status == KOLO_ERR_TIMEOUT) {
        return KOLO_FAIL(status, "%s: the other ranks have not come within %.1f s", where,
                         kolo_joining_s(j));
    }
    return fail_at(status, where);
}

/* ---- all of it ---- */

/* A local socket under a name that nobody can guess. */
static kolo_status open_local(kolo_joining *j) {
    unsigned char random[16];
    randombytes_buf(random, sizeof random);
    char *name = j->own.name;
    size_t n = (size_t)snprintf(name, sizeof j->own.name, "kolo-");
    sodium_bin2hex(name + n, sizeof j->own.name - n, random, sizeof random);
    return kolo_socket_listen_local(name, &j->local_listener);
}

static kolo_status join_group(kolo_joining *j) {
    const kolo_rank_env *c = &j->env;
    size_t n = (size_t)c->world;
    j->members = kolo_zalloc(n * sizeof *j->members);
    j->table = kolo_zalloc(n * sizeof *j->table);
    j->host_of = kolo_zalloc(n * sizeof *j->host_of);
    if (!j->members || !j->table || !j->host_of) return KOLO_NOMEM(n * sizeof *j->members);
    for (int r = 0; r < c->world; r++) j->members[r].fd = -1;
    char interface[KOLO_ADDRESS_BYTES];
    if (j->opts.interface) {
        KOLO_TRY(kolo_socket_find_address(j->opts.interface, j->own.address, interface));
    }
    if (j->opts.transport == KOLO_TRANSPORT_UCX || j->opts.transport == KOLO_TRANSPORT_SHM_UCX) {
        KOLO_TRY(kolo_ucx_create(c->rank, c->world, j->opts.interface ? interface : NULL, &j->ucx));
    }
    KOLO_TRY(open_local(j));
    KOLO_TRY(c->rank == 0 ? lead(j) : follow(j));
    kolo_status status = kolo_mesh_connect(j);
    return c->rank == 0 ? kolo_joining_conclude(j, status) : kolo_joining_report(j, status);
}

static void joining_fini(kolo_joining *j) {
    for (int r = 0; j->members && r < j->env.world; r++) {
        if (j->members[r].fd >= 0) close(j->members[r].fd);
    }
    if (j->leader.fd >= 0) close(j->leader.fd);
    if (j->ucx && !j->transport) j->ucx->ops->destroy(j->ucx);
    if (j->local_listener >= 0) close(j->local_listener);
    close_tcp(j);
    if (j->env.listen_fd >= 0) close(j->env.listen_fd);
    kolo_free(j->members);
    kolo_free(j->table);
    kolo_free(j->host_of);
    kolo_key_clear(&j->key);
}

kolo_status kolo_comm_join(kolo_joining *j, kolo_comm **comm) {
    j->own = (kolo_hello){.rank = j->env.rank,
                          .world = j->env.world,
                          .generation = j->opts.generation,
                          .transport = (int32_t)j->opts.transport,
                          .host = j->env.host,
                          .processors = kolo_processors(),
                          .processors_key = kolo_processors_key()};
    kolo_signals signals;
    kolo_status status = kolo_report_open(&j->opts, &signals);
    if (status != KOLO_OK) {
        joining_fini(j);
        return status;
    }
    if (j->env.world == 1) {
        status = kolo_thread_transports(1, (size_t)j->opts.segment_bytes, &j->transport);
    } else {
        status = join_group(j);
    }
    kolo_comm *made = NULL;
    if (status != KOLO_OK) {
        if (j->transport) j->transport->ops->destroy(j->transport);
    } else {
        status = kolo_comm_of_transport(j->transport, &j->opts, j->env.local_rank,
                                        j->env.local_world, j->env.processors, &made);
    }
    if (status == KOLO_OK) {
        made->host_of = j->host_of;
        made->n_hosts = j->n_hosts;
        made->report_signal = signals;
        j->host_of = NULL;
        *comm = made;
    } else {
        kolo_signals_close(&signals);
    }
    joining_fini(j);
    return status;
}

/* How the processes of a job become a group: kolo_comm_create.
 *
 * Rank 0 listens on the job's TCP address; the others come to it, prove that they know the secret,
 * and say who they are. When all are there rank 0 answers each with the list of all (and with its
 * own proof); when something is wrong (two ranks with one number, different worlds, a rank lost,
 * the deadline) it answers all with the reason. Then each rank connects to every lower one over
 * local sockets, with the same proofs; both pass the descriptors of their segments, and the
 * connection stays open to tell when the other's process ends. */
#include "comm/contract.h"
#include "comm/engine.h"
#include "comm/lobby.h"
#include "comm/socket.h"
#include "comm/tp_shm.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { RETRY_NS = 20000000, FAREWELL_NS = 1000000000 };

/* The state of joining. */
typedef struct joining {
    kolo_contract place;
    kolo_key key;
    int64_t started_ns, deadline_ns;
    int local_listener; /* where higher ranks come to */
    kolo_hello own;
    kolo_member *members; /* [world]; rank 0: TCP connections */
    kolo_hello *table;    /* [world] */
    kolo_transport *transport;
} joining;

static double waited_s(const joining *j) { return (double)(kolo_now_ns() - j->started_ns) * 1e-9; }

/* A failure that keeps its status and gets the place in front: "rank 1 at ...: reason". */
static kolo_status fail_at(kolo_status status, const char *what) {
    return kolo_fail_in(status, "%s", what);
}

/* ---- rank 0's side ---- */

/* Tells every rank that has come why there will be no group. */
static kolo_status call_off(joining *j, kolo_status status) {
    char text[512];
    snprintf(text, sizeof text, "%s", kolo_last_error());
    int64_t deadline_ns = kolo_now_ns() + FAREWELL_NS;
    for (int r = 1; r < j->place.world; r++) {
        kolo_member *m = &j->members[r];
        if (m->fd < 0) continue;
        (void)kolo_answer_send(m->fd, &j->key, "kolo answer", &m->nonces, status, text,
                               strlen(text), NULL, deadline_ns);
    }
    return KOLO_FAIL(status, "%s", text);
}

static kolo_status check_hello(const joining *j, const kolo_hello *h) {
    const kolo_contract *own = &j->place;
    if (h->world != own->world || h->local_world != own->local_world) {
        return KOLO_FAIL(
            KOLO_ERR_ARG, "rank %d says the world has %d ranks (%d here), rank 0 says %d (%d here)",
            (int)h->rank, (int)h->world, (int)h->local_world, own->world, own->local_world);
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
static kolo_status too_late(const joining *j, const kolo_lobby *lobby) {
    int missing = 0, first = 0;
    for (int r = j->place.world - 1; r > 0; r--) {
        if (j->members[r].fd >= 0) continue;
        first = r;
        missing++;
    }
    char more[32] = "";
    if (missing > 1) snprintf(more, sizeof more, " and %d more", missing - 1);
    return KOLO_FAIL(KOLO_ERR_TIMEOUT,
                     "%d of %d ranks have joined within %.1f s; missing: rank "
                     "%d%s%s",
                     j->place.world - missing, j->place.world, waited_s(j), first, more,
                     kolo_lobby_complaint(lobby));
}

static kolo_status gather(joining *j, kolo_lobby *lobby) {
    int world = j->place.world;
    j->table[0] = j->own;
    for (int came = 1; came < world; came++) {
        kolo_member member;
        int lost;
        kolo_status status =
            kolo_lobby_next(lobby, j->members, world, j->deadline_ns, &member, &lost);
        if (status == KOLO_ERR_TIMEOUT) return too_late(j, lobby);
        if (status == KOLO_ERR_PEER) {
            close(j->members[lost].fd);
            j->members[lost].fd = -1;
            return KOLO_FAIL(status, "rank %d is gone (process ended) while the group formed",
                             lost);
        }
        KOLO_TRY(status);
        status = check_hello(j, &member.hello);
        if (status != KOLO_OK) {
            (void)kolo_answer_send(member.fd, &j->key, "kolo answer", &member.nonces, status,
                                   kolo_last_error(), strlen(kolo_last_error()), NULL,
                                   kolo_now_ns() + FAREWELL_NS);
            close(member.fd);
            return status;
        }
        j->members[member.hello.rank] = member;
        j->table[member.hello.rank] = member.hello;
    }
    return KOLO_OK;
}

static kolo_status open_listener(const joining *j, int *listener) {
    const kolo_contract *c = &j->place;
    if (c->listen_fd < 0) return kolo_socket_listen_tcp(c->master_addr, c->master_port, listener);
    *listener = c->listen_fd;
    kolo_status status = kolo_socket_adopt(c->listen_fd);
    return status ? fail_at(status, "KOLO_LISTEN_FD") : KOLO_OK;
}

static kolo_status lead(joining *j) {
    int listener;
    KOLO_TRY(open_listener(j, &listener));
    kolo_lobby *lobby = NULL;
    kolo_status status = kolo_lobby_create(listener, &j->key, false, &lobby);
    if (status == KOLO_OK) status = gather(j, lobby);
    if (status != KOLO_OK) status = call_off(j, status);
    for (int r = 1; r < j->place.world && status == KOLO_OK; r++) {
        kolo_member *m = &j->members[r];
        status = kolo_answer_send(m->fd, &j->key, "kolo answer", &m->nonces, KOLO_OK, j->table,
                                  (size_t)j->place.world * sizeof *j->table, NULL, j->deadline_ns);
    }
    kolo_lobby_destroy(lobby);
    close(listener);
    return status;
}

/* ---- the other ranks' side ---- */

/* Connects and enters, again and again while nobody is there yet. */
static kolo_status reach_leader(joining *j, int *fd, kolo_nonces *nonces) {
    const kolo_contract *c = &j->place;
    for (;;) {
        kolo_status status =
            kolo_socket_connect_tcp(c->master_addr, c->master_port, j->deadline_ns, fd);
        if (status == KOLO_OK) {
            status = kolo_lobby_enter(*fd, &j->key, &j->own, j->deadline_ns, nonces);
            if (status == KOLO_OK) return KOLO_OK;
            close(*fd);
        }
        if (status != KOLO_ERR_PEER) return status;
        if (kolo_now_ns() + RETRY_NS > j->deadline_ns) {
            return KOLO_FAIL(KOLO_ERR_TIMEOUT, "no rank 0 there within %.1f s", waited_s(j));
        }
        nanosleep(&(struct timespec){.tv_nsec = RETRY_NS}, NULL);
    }
}

static kolo_status follow(joining *j) {
    const kolo_contract *c = &j->place;
    char where[128];
    snprintf(where, sizeof where, "rank %d, joining rank 0 at %.60s:%d", c->rank, c->master_addr,
             c->master_port);
    int fd;
    kolo_nonces nonces;
    kolo_status status = reach_leader(j, &fd, &nonces);
    if (status != KOLO_OK) return fail_at(status, where);
    /* A little beyond the own deadline: rank 0, whose deadline is the same, knows who is missing.
     */
    status =
        kolo_answer_recv(fd, &j->key, "kolo answer", &nonces, j->table,
                         (size_t)c->world * sizeof *j->table, NULL, j->deadline_ns + FAREWELL_NS);
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
                         waited_s(j));
    }
    return status == KOLO_OK ? status : fail_at(status, where);
}

/* ---- local connections between all ---- */

/* What two ranks tell each other beside their segments. */
typedef struct parcel {
    uint64_t segment_bytes;
} parcel;

/* Sends the own segment and receives the peer's; the connection becomes the transport's. */
static kolo_status exchange(joining *j, int peer, int fd, const kolo_nonces *nonces, bool server) {
    parcel own = {.segment_bytes = j->transport->segment.bytes}, other;
    int segment_own = kolo_shm_segment(j->transport), segment = -1;
    const char *labels[2] = {"kolo segment of the client", "kolo segment of the server"};
    kolo_status status = KOLO_OK;
    for (int turn = 0; turn < 2 && status == KOLO_OK; turn++) { /* the server proves itself first */
        if ((turn == 0) == server) {
            status = kolo_answer_send(fd, &j->key, labels[server], nonces, KOLO_OK, &own,
                                      sizeof own, &segment_own, j->deadline_ns);
        } else {
            status = kolo_answer_recv(fd, &j->key, labels[!server], nonces, &other, sizeof other,
                                      &segment, j->deadline_ns);
        }
    }
    if (status == KOLO_OK && other.segment_bytes != own.segment_bytes) {
        status =
            KOLO_FAIL(KOLO_ERR_ARG, "ranks disagree on segment_bytes: rank %d %llu, rank %d %llu",
                      j->place.rank, (unsigned long long)own.segment_bytes, peer,
                      (unsigned long long)other.segment_bytes);
    } else if (status == KOLO_OK && segment < 0) {
        status = KOLO_FAIL(KOLO_ERR_FORMAT, "no descriptor came");
    }
    if (status == KOLO_OK) {
        status = kolo_shm_attach(j->transport, peer, segment, fd); /* the descriptor is its now */
    } else {
        close(fd);
    }
    if (segment >= 0) close(segment);
    if (status == KOLO_OK) return KOLO_OK;
    char what[64];
    snprintf(what, sizeof what, "rank %d, exchanging memory with rank %d", j->place.rank, peer);
    return fail_at(status, what);
}

static kolo_status visit(joining *j, int peer) {
    kolo_hello *host = &j->table[peer];
    host->name[sizeof host->name - 1] = '\0';
    char what[64];
    snprintf(what, sizeof what, "rank %d, connecting to rank %d", j->place.rank, peer);
    int fd;
    kolo_nonces nonces;
    kolo_status status = kolo_socket_connect_local(host->name, j->deadline_ns, &fd);
    if (status != KOLO_OK) return fail_at(status, what);
    if (!kolo_socket_same_user(fd)) {
        close(fd);
        return KOLO_FAIL(KOLO_ERR_PEER, "%s: it belongs to another user", what);
    }
    status = kolo_lobby_enter(fd, &j->key, &j->own, j->deadline_ns, &nonces);
    if (status != KOLO_OK) {
        close(fd);
        return fail_at(status, what);
    }
    return exchange(j, peer, fd, &nonces, false);
}

/* Higher ranks come in any order. */
static kolo_status receive_visits(joining *j, kolo_lobby *lobby) {
    int rank = j->place.rank, world = j->place.world;
    bool *came = kolo_zalloc((size_t)world);
    if (!came) return KOLO_NOMEM(world);
    kolo_status status = KOLO_OK;
    for (int left = world - 1 - rank; left > 0 && status == KOLO_OK; left--) {
        kolo_member member;
        int lost;
        status = kolo_lobby_next(lobby, NULL, 0, j->deadline_ns, &member, &lost);
        if (status == KOLO_ERR_TIMEOUT) {
            status =
                KOLO_FAIL(status, "rank %d: %d higher ranks have not connected within %.1f s%s",
                          rank, left, waited_s(j), kolo_lobby_complaint(lobby));
        }
        if (status != KOLO_OK) break;
        int peer = member.hello.rank;
        if (peer <= rank || peer >= world || came[peer]) {
            close(member.fd);
            status = KOLO_FAIL(KOLO_ERR_PEER, "rank %d: a second rank %d connects", rank, peer);
            break;
        }
        came[peer] = true;
        status = exchange(j, peer, member.fd, &member.nonces, true);
    }
    kolo_free(came);
    return status;
}

static kolo_status connect_all(joining *j) {
    for (int p = 0; p < j->place.rank; p++) KOLO_TRY(visit(j, p));
    kolo_lobby *lobby;
    KOLO_TRY(kolo_lobby_create(j->local_listener, &j->key, true, &lobby));
    kolo_status status = receive_visits(j, lobby);
    kolo_lobby_destroy(lobby);
    return status;
}

/* ---- all of it ---- */

/* A local socket under a name that nobody can guess. */
static kolo_status open_local(joining *j) {
    unsigned char random[16];
    kolo_contract *c = &j->place;
    j->own = (kolo_hello){.rank = c->rank,
                          .world = c->world,
                          .local_rank = c->local_rank,
                          .local_world = c->local_world};
    randombytes_buf(random, sizeof random);
    char *name = j->own.name;
    size_t n = (size_t)snprintf(name, sizeof j->own.name, "kolo-");
    sodium_bin2hex(name + n, sizeof j->own.name - n, random, sizeof random);
    return kolo_socket_listen_local(name, &j->local_listener);
}

static kolo_status join_group(joining *j, size_t segment_bytes) {
    const kolo_contract *c = &j->place;
    size_t n = (size_t)c->world;
    KOLO_TRY(kolo_key_read(c->secret_file, j->deadline_ns, &j->key));
    j->members = kolo_zalloc(n * sizeof *j->members);
    j->table = kolo_zalloc(n * sizeof *j->table);
    if (!j->members || !j->table) return KOLO_NOMEM(n * sizeof *j->members);
    for (int r = 0; r < c->world; r++) j->members[r].fd = -1;
    KOLO_TRY(open_local(j));
    KOLO_TRY(kolo_shm_create(c->rank, c->world, segment_bytes, &j->transport));
    KOLO_TRY(c->rank == 0 ? lead(j) : follow(j));
    return connect_all(j);
}

static void joining_fini(joining *j) {
    for (int r = 0; j->members && r < j->place.world; r++) {
        if (j->members[r].fd >= 0) close(j->members[r].fd);
    }
    if (j->local_listener >= 0) close(j->local_listener);
    kolo_free(j->members);
    kolo_free(j->table);
    kolo_key_clear(&j->key);
}

/* A limit of virtual memory (ulimit -v) must leave room for the segments of all ranks, and half of
 * it for everything else. */
static size_t fit_segment(int64_t wanted, int world) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return (size_t)wanted;
    int64_t most = (int64_t)(limit.rlim_cur / 2) / (world + 1);
    return (size_t)kolo_max_i64(kolo_min_i64(wanted, most), 1 << 20);
}

kolo_status kolo_comm_create(const kolo_comm_opts *opts, kolo_comm **comm) {
    kolo_comm_opts o;
    joining j = {.local_listener = -1, .started_ns = kolo_now_ns()};
    KOLO_TRY(kolo_comm_resolve(opts, &o));
    KOLO_TRY(kolo_contract_read(&o, &j.place));
    j.deadline_ns = j.started_ns + o.timeout_ms * 1000000;
    size_t segment_bytes = fit_segment(o.segment_bytes, j.place.world);
    kolo_status status;
    if (j.place.world == 1) {
        status = kolo_thread_transports(1, segment_bytes, &j.transport);
    } else {
        status = join_group(&j, segment_bytes);
        joining_fini(&j);
    }
    if (status != KOLO_OK) {
        if (j.transport) j.transport->ops->destroy(j.transport);
        return status;
    }
    return kolo_comm_of_transport(j.transport, &o, j.place.local_rank, j.place.local_world, comm);
}

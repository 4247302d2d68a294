/* Pairwise connections, once all ranks have the table of addresses. Ranks of one host, and some of
 * the pairs between hosts, connect now (dial.c); others may later.
 *
 * Each rank connects to the lower ranks and then accepts the higher ones: first those of its host
 * over a local socket, then the others over TCP. This cannot deadlock: a rank connects to lower
 * ranks in order, so it only ever waits for lower ranks. Both sides authenticate; on one host they
 * also pass the descriptors of their segments. The connection stays open: over TCP it carries all
 * traffic, on one host it signals the end of the peer's process. */
#include "base/clock.h"
#include "base/integer.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/engine/comm.h"
#include "comm/join/dial.h"
#include "comm/join/join.h"
#include "comm/transport/multihost.h"
#include "comm/transport/shm/shm.h"

#include <sodium.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Data that two ranks exchange, besides their segments. */
typedef struct peer_info {
    uint64_t segment_bytes;
    unsigned char half[KOLO_EXCHANGE_BYTES]; /* of the exchange of keys; 0: not protected */
    _Alignas(8) unsigned char address[KOLO_NETWORK_ADDRESS_MAX]; /* only between hosts */
} peer_info;

static bool is_local(const kolo_joining *j, int peer) {
    return j->choice->memory && j->table[peer].host == j->own.host;
}

/* Sends this rank's information, with its segment, and receives the peer's. `secret` is this
 * rank's, for the keys. */
static kolo_status exchange_info(kolo_joining *j, int peer, int fd, const kolo_nonces *nonces,
                                 bool server, int *segment, peer_info *other,
                                 unsigned char secret[KOLO_EXCHANGE_BYTES]) {
    const kolo_network *network = j->choice->network;
    peer_info own = {.segment_bytes = j->transport->segment.bytes};
    if (kolo_joining_protection(j)) kolo_exchange_draw(secret, own.half);
    bool local = is_local(j, peer);
    int segment_own = j->transport->segment.fd;
    size_t bytes = offsetof(peer_info, address) + (local ? 0 : network->address_bytes);
    const char *labels[2] = {"kolo segment of the client", "kolo segment of the server"};
    kolo_status status = KOLO_OK;
    if (!local && network->address) status = network->address(j->network, peer, own.address);
    for (int turn = 0; turn < 2 && status == KOLO_OK;
         turn++) { /* the server sends its proof first */
        if ((turn == 0) == server) {
            status = kolo_handshake_send(fd, &j->key, labels[server], nonces, KOLO_OK, &own, bytes,
                                         local ? &segment_own : NULL, j->deadline_ns);
        } else {
            status = kolo_handshake_recv(fd, &j->key, labels[!server], nonces, other, bytes,
                                         local ? segment : NULL, j->deadline_ns);
        }
    }
    sodium_memzero(&own, sizeof own);
    KOLO_TRY(status);
    if (local && other->segment_bytes != j->transport->segment.bytes) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "ranks disagree on segment_bytes: rank %d %llu, rank %d %llu", j->env.rank,
                         (unsigned long long)j->transport->segment.bytes, peer,
                         (unsigned long long)other->segment_bytes);
    }
    if (local && *segment < 0)
        return KOLO_FAIL(KOLO_ERR_FORMAT, "the peer sent no segment descriptor");
    return KOLO_OK;
}

/* Hands the connection to a rank on another host to the network, which takes it over. */
static kolo_status attach_remote(kolo_joining *j, int peer, int fd, const kolo_nonces *nonces,
                                 bool server, const unsigned char secret[KOLO_EXCHANGE_BYTES],
                                 const peer_info *other) {
    const kolo_network *network = j->choice->network;
    kolo_seal_keys keys = {.protection = kolo_joining_protection(j)};
    if (!keys.protection) return network->attach(j->network, peer, fd, other->address, NULL);
    kolo_status status = kolo_seal_keys_make(&j->key, nonces, server, secret, other->half, &keys);
    if (status == KOLO_OK) {
        status = network->attach(j->network, peer, fd, other->address, &keys);
    } else {
        close(fd);
    }
    sodium_memzero(&keys, sizeof keys);
    return status;
}

static kolo_status fail_between(const kolo_joining *j, int peer, kolo_status status) {
    char name[KOLO_ADDRESS_BYTES + 16];
    kolo_joining_rank_text(j, peer, name, sizeof name);
    return kolo_fail_in(status, "rank %d, connecting to %s", j->env.rank, name);
}

/* Completes a connection, on both sides; the transport takes it over. */
static kolo_status complete(kolo_joining *j, int peer, int fd, const kolo_nonces *nonces,
                            bool server) {
    int segment = -1;
    peer_info other = {0};
    unsigned char secret[KOLO_EXCHANGE_BYTES] = {0};
    kolo_status status = exchange_info(j, peer, fd, nonces, server, &segment, &other, secret);
    if (status != KOLO_OK) {
        close(fd);
    } else if (is_local(j, peer)) {
        status = kolo_shm_attach(j->transport, peer, segment, fd);
    } else {
        status = attach_remote(j, peer, fd, nonces, server, secret, &other);
    }
    sodium_memzero(&other, sizeof other);
    sodium_memzero(secret, sizeof secret);
    if (segment >= 0) close(segment);
    if (status != KOLO_OK) return fail_between(j, peer, status);
    kolo_log_line(KOLO_LOG_DEBUG, j->env.rank, "connected to rank %d by %s", peer,
                  is_local(j, peer) ? "shared memory" : j->choice->name);
    return KOLO_OK;
}

static kolo_status connect_socket(kolo_joining *j, int peer, int *fd) {
    const kolo_hello *host = &j->table[peer];
    if (!is_local(j, peer)) {
        const char *address = host->address[0] ? host->address : j->env.master_addr;
        int64_t until_ns = kolo_min_i64(j->deadline_ns, kolo_now_ns() + kolo_joining_reach_ns(j));
        kolo_status status = kolo_socket_connect_tcp(address, host->port, until_ns, fd);
        if (status == KOLO_ERR_TIMEOUT) {
            status = KOLO_FAIL(status,
                               "no answer from its host: check that it runs, and that no firewall "
                               "blocks the port");
        }
        if (status != KOLO_OK) return kolo_fail_in(status, "port %d", (int)host->port);
        kolo_socket_keep_alive(*fd, kolo_joining_reach_ns(j) / 1000000);
        return KOLO_OK;
    }
    KOLO_TRY(kolo_socket_connect_local(host->name, j->deadline_ns, fd));
    if (kolo_socket_same_user(*fd)) return KOLO_OK;
    close(*fd);
    return KOLO_FAIL(KOLO_ERR_PEER, "its socket belongs to another user");
}

static kolo_status connect_to(kolo_joining *j, int peer) {
    int fd;
    kolo_nonces nonces;
    kolo_status status = connect_socket(j, peer, &fd);
    if (status == KOLO_OK) {
        status = kolo_handshake_connect(fd, &j->key, &j->own, j->deadline_ns, &nonces);
        if (status == KOLO_ERR_TIMEOUT) {
            status = KOLO_FAIL(status, "it has not answered within %.1f s", kolo_joining_s(j));
        }
        if (status != KOLO_OK) close(fd);
    }
    if (status != KOLO_OK) return fail_between(j, peer, status);
    return complete(j, peer, fd, &nonces, false);
}

/* Ranks of this host always connect. */
static bool connects_now(const kolo_joining *j, int peer) {
    return is_local(j, peer) || kolo_connects_first(j, j->env.rank, peer);
}

/* Names the ranks that have not connected. A rank may have reported that it gives up. */
static kolo_status accept_timeout(const kolo_joining *j, const kolo_listener *listener,
                                  const bool *expected, const char *reason) {
    char names[KOLO_JOINING_NAMES_BYTES];
    return KOLO_FAIL(KOLO_ERR_TIMEOUT, "rank %d: not connected within %.1f s: %s%s%s", j->env.rank,
                     kolo_joining_s(j), kolo_joining_names(j, expected, names), reason,
                     kolo_listener_reject_reason(listener));
}

/* Accepts the next of the expected ranks; not `accepted`: another one reports to this rank. */
static kolo_status accept_peer(kolo_joining *j, kolo_listener *listener, bool *expected,
                               bool *accepted) {
    int rank = j->env.rank, world = j->env.world, lost;
    kolo_member member;
    *accepted = false;
    kolo_status status = kolo_listener_accept(listener, j->members, rank == 0 ? world : 0,
                                              j->deadline_ns, &member, &lost);
    if (status == KOLO_ERR_TIMEOUT) return accept_timeout(j, listener, expected, "");
    if (status == KOLO_ERR_PEER) {
        char reason[200];
        status = kolo_joining_lost(j, lost);
        if (status == KOLO_OK) return KOLO_OK;
        snprintf(reason, sizeof reason, " (%.190s)", kolo_last_error());
        bool gives_up = rank == 0 && status == KOLO_ERR_TIMEOUT;
        return gives_up ? accept_timeout(j, listener, expected, reason) : status;
    }
    KOLO_TRY(status);
    int peer = member.hello.rank;
    if (peer < 0 || peer >= world || !expected[peer]) {
        close(member.fd);
        return KOLO_FAIL(KOLO_ERR_PEER, "rank %d: unexpected connection from rank %d", rank, peer);
    }
    expected[peer] = false;
    *accepted = true;
    if (!is_local(j, peer)) {
        kolo_socket_keep_alive(member.fd, kolo_joining_reach_ns(j) / 1000000);
    }
    return complete(j, peer, member.fd, &member.nonces, true);
}

/* Accepts the higher ranks that are on this host, or those that are not, in any order. */
static kolo_status accept_peers(kolo_joining *j, kolo_listener *listener, bool local) {
    int world = j->env.world, left = 0;
    bool *expected = kolo_zalloc((size_t)world);
    if (!expected) return KOLO_NOMEM(world);
    for (int p = j->env.rank + 1; p < world; p++) {
        expected[p] = is_local(j, p) == local && connects_now(j, p);
        left += expected[p];
    }
    kolo_status status = KOLO_OK;
    while (left > 0 && status == KOLO_OK) {
        bool accepted;
        status = accept_peer(j, listener, expected, &accepted);
        left -= status == KOLO_OK && accepted;
    }
    kolo_free(expected);
    return status;
}

static kolo_status accept_from(kolo_joining *j, bool local) {
    int fd = local ? j->local_listener : j->tcp_listener;
    if (fd < 0) return KOLO_OK;
    kolo_listener *listener;
    KOLO_TRY(kolo_listener_create(fd, &j->key, local, &listener));
    kolo_listener_watch(listener, j->leader.fd);
    kolo_status status = accept_peers(j, listener, local);
    kolo_listener_destroy(listener);
    return status;
}

/* ---- hosts and transport ---- */

/* Clamps the number that a peer sent. */
static int processors_of(const kolo_hello *h) {
    return (int)kolo_max_i64(1, kolo_min_i64(h->processors, 1 << 16));
}

/* Whether an earlier rank of this host has the same affinity mask. A launcher either binds each
 * rank to its own processors or leaves all ranks on all processors. */
static bool shares_processors(const kolo_joining *j, int rank) {
    const kolo_hello *own = &j->table[rank];
    for (int r = 0; r < rank; r++) {
        const kolo_hello *other = &j->table[r];
        if (other->host == own->host && other->processors_key == own->processors_key) return true;
    }
    return false;
}

static void map_hosts(kolo_joining *j) {
    j->n_hosts = 0;
    for (int r = 0; r < j->env.world; r++) {
        int first = 0;
        while (j->table[first].host != j->table[r].host) first++;
        j->host_of[r] = first == r ? j->n_hosts++ : j->host_of[first];
    }
    int own = j->host_of[j->env.rank];
    j->env.local_rank = j->env.local_world = j->env.processors = 0;
    for (int r = 0; r < j->env.world; r++) {
        j->env.local_world += j->host_of[r] == own;
        if (j->host_of[r] == own && !shares_processors(j, r)) {
            j->env.processors += processors_of(&j->table[r]);
        }
        if (r < j->env.rank) j->env.local_rank += j->host_of[r] == own;
    }
}

static kolo_status create_transport(kolo_joining *j) {
    const kolo_rank_env *c = &j->env;
    int local = 0; /* ranks in shared memory, including this one */
    for (int p = 0; p < c->world; p++) local += is_local(j, p);
    kolo_network_opts opts = {.rank = c->rank,
                              .size = c->world,
                              .heartbeat_ms = j->opts.heartbeat_ms,
                              .segment_bytes = kolo_segment_fit((size_t)j->opts.segment_bytes,
                                                                c->local_world, local > 1)};
    if (local == c->world) {
        return kolo_shm_create(c->rank, c->world, opts.segment_bytes, &j->transport);
    }
    if (!j->choice->network->create) {
        int remote = 0;
        while (is_local(j, remote)) remote++;
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "--transport %s: ranks %d and %d are on different hosts; use --transport "
                         "auto",
                         j->choice->name, c->rank, remote);
    }
    KOLO_TRY(j->choice->network->create(&opts, &j->network));
    j->owns_network = false;
    if (local <= 1) {
        j->transport = j->network;
        return KOLO_OK;
    }
    return kolo_hosts_create(c->rank, c->world, opts.segment_bytes, j->network, &j->transport);
}

kolo_status kolo_mesh_connect(kolo_joining *j) {
    map_hosts(j);
    KOLO_TRY(create_transport(j));
    for (int p = 0; p < j->env.rank; p++) {
        if (connects_now(j, p)) KOLO_TRY(connect_to(j, p));
    }
    KOLO_TRY(accept_from(j, true));
    return accept_from(j, false);
}

kolo_status kolo_mesh_complete(kolo_joining *j) {
    const kolo_network *network = j->choice->network;
    int unconnected = 0;
    kolo_dialer *dialer;
    for (int p = 0; p < j->env.world; p++) unconnected += p != j->env.rank && !connects_now(j, p);
    if (j->table[0].connections == KOLO_CONNECTIONS_ALL || !network->dial || j->tcp_listener < 0 ||
        !j->network) {
        return KOLO_OK;
    }
    KOLO_TRY(kolo_dialer_create(j, &dialer));
    KOLO_TRY(network->dial(j->network, dialer));
    j->transport->sparse = true;
    for (int p = 0; p < j->env.world; p++) {
        if (p != j->env.rank && !connects_now(j, p)) network->expect(j->network, p);
    }
    kolo_log_line(KOLO_LOG_DEBUG, j->env.rank, "%d ranks are connected on demand", unconnected);
    return KOLO_OK;
}

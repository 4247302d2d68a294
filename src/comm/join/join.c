/* Joins the processes of a job into a group.
 *
 * All ranks meet at rank 0, which distributes the table of addresses (rendezvous.c). Then they
 * connect (connect.c). */
#include "comm/join/join.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/open_files.h"
#include "base/process.h"
#include "base/status.h"
#include "comm/engine/lifetime.h"
#include "comm/engine/report.h"
#include "comm/join/dial.h"

#include <sodium.h>
#include <stdio.h>
#include <unistd.h>

/* Opens a local socket with an unguessable name. */
static kolo_status open_local(kolo_joining *j) {
    unsigned char random[16];
    randombytes_buf(random, sizeof random);
    char *name = j->own.name;
    size_t n = (size_t)snprintf(name, sizeof j->own.name, "kolo-");
    sodium_bin2hex(name + n, sizeof j->own.name - n, random, sizeof random);
    return kolo_socket_listen_local(name, &j->local_listener);
}

/* Rank 0 has two connections to each rank until the group has formed. */
kolo_status kolo_joining_allow_files(int world) {
    enum { OTHERS = 128 }; /* files of the program, and connections not yet authenticated */
    char who[64];
    snprintf(who, sizeof who, "each process of a group of %d ranks", world);
    return kolo_open_files_allow(who, 2 * (uint64_t)world, OTHERS);
}

static kolo_status join_group(kolo_joining *j) {
    const kolo_rank_env *c = &j->env;
    size_t n = (size_t)c->world;
    KOLO_TRY(kolo_joining_allow_files(c->world));
    KOLO_TRY(kolo_connections_choose(c->world, &j->own.connections));
    j->members = kolo_zalloc(n * sizeof *j->members);
    j->reported = kolo_zalloc(n * sizeof *j->reported);
    j->table = kolo_zalloc(n * sizeof *j->table);
    j->host_of = kolo_zalloc(n * sizeof *j->host_of);
    if (!j->members || !j->reported || !j->table || !j->host_of)
        return KOLO_NOMEM(n * sizeof *j->members);
    for (int r = 0; r < c->world; r++) j->members[r].fd = -1;
    char interface[KOLO_ADDRESS_BYTES];
    if (j->opts.interface) {
        KOLO_TRY(kolo_socket_find_address(j->opts.interface, j->own.address, interface));
    }
    j->choice = kolo_transport_info_of(j->opts.transport);
    if (j->choice->network->open) {
        kolo_network_opts opts = {
            .rank = c->rank, .size = c->world, .interface = j->opts.interface ? interface : NULL};
        KOLO_TRY(j->choice->network->open(&opts, &j->network));
        j->owns_network = true;
    }
    KOLO_TRY(open_local(j));
    KOLO_TRY(kolo_rendezvous(j));
    kolo_status status = kolo_mesh_connect(j);
    KOLO_TRY(c->rank == 0 ? kolo_joining_conclude(j, status) : kolo_joining_report(j, status));
    return kolo_mesh_complete(j);
}

/* What a service of the group needs to connect its ranks: a key, and their addresses. */
static kolo_status keep_for_services(const kolo_joining *j, kolo_comm *comm) {
    static const kolo_nonces none;
    kolo_proof_make(&j->key, "kolo service", &none, "", 0, comm->service_key);
    if (!j->table || !j->choice->network->create) return KOLO_OK;
    size_t n = (size_t)j->env.world;
    comm->addresses = kolo_zalloc(n * sizeof *comm->addresses);
    if (!comm->addresses) return KOLO_NOMEM(n * sizeof *comm->addresses);
    for (size_t r = 0; r < n; r++) {
        const char *known = j->table[r].address[0] ? j->table[r].address : j->env.master_addr;
        snprintf(comm->addresses[r], sizeof comm->addresses[r], "%.*s",
                 (int)sizeof comm->addresses[r] - 1, known);
    }
    return KOLO_OK;
}

static void joining_fini(kolo_joining *j) {
    for (int r = 0; j->members && r < j->env.world; r++) {
        if (j->members[r].fd >= 0) close(j->members[r].fd);
    }
    if (j->leader.fd >= 0) close(j->leader.fd);
    if (j->owns_network) j->network->ops->destroy(j->network, NULL);
    if (j->local_listener >= 0) close(j->local_listener);
    kolo_joining_close_tcp(j);
    if (j->env.listen_fd >= 0) close(j->env.listen_fd);
    kolo_free(j->members);
    kolo_free(j->reported);
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
                          .max_in_flight = j->opts.max_in_flight,
                          .protection = (uint32_t)kolo_joining_protection(j),
                          .algorithm = (int32_t)j->opts.algorithm,
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
        if (j->transport) j->transport->ops->destroy(j->transport, NULL);
    } else {
        status = kolo_comm_of_transport(j->transport, &j->opts, j->env.local_rank,
                                        j->env.local_world, j->env.processors, &made);
        if (status == KOLO_OK) status = keep_for_services(j, made);
        if (status != KOLO_OK) kolo_comm_destroy(made);
    }
    if (status == KOLO_OK) {
        made->protection = kolo_joining_protection(j);
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

kolo_status kolo_joining_log(const kolo_joining *j, kolo_status status, kolo_comm *const *comm) {
    int rank = j->env.world > 0 ? j->env.rank : -1;
    if (status != KOLO_OK) {
        kolo_log_line(KOLO_LOG_WARN, rank, "not joined: %s", kolo_last_error());
        return status;
    }
    static const char *const protected[] = {"", ", authenticated between hosts",
                                            ", encrypted between hosts"};
    const kolo_comm *c = *comm;
    kolo_log_line(
        KOLO_LOG_INFO, c->rank,
        "joined %d ranks on %d host%s in %.3f s: transport %s, algorithm %s, timeout %.1f s, "
        "heartbeat %.1f s%s",
        c->size, kolo_comm_host_count(c), kolo_comm_host_count(c) == 1 ? "" : "s",
        kolo_joining_s(j), kolo_comm_transport(c), kolo_algorithm_name(c->algorithm),
        (double)j->opts.timeout_ms * 1e-3, (double)j->opts.heartbeat_ms * 1e-3,
        protected[c->protection]);
    return KOLO_OK;
}

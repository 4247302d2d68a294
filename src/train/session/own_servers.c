#include "train/session/own_servers.h"

#include "base/memory.h"
#include "comm/engine/backoff.h"
#include "train/session/agree.h"
#include "train/session/internal.h"
#include "train/session/memory.h"

kolo_status kolo_count_workers(int ranks, int servers, int *workers) {
    if (servers < 0 || servers >= ranks) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%d servers of %d processes: there must be a worker",
                         servers, ranks);
    }
    *workers = ranks - servers;
    return KOLO_OK;
}

kolo_status kolo_split_servers(kolo_comm *world, int servers, kolo_comm **own) {
    *own = NULL;
    if (servers == 0) return KOLO_OK;
    const int rank = kolo_comm_rank(world), workers = kolo_comm_size(world) - servers;
    return kolo_comm_split(world, rank >= workers, rank, own);
}

/* ---- creation ---- */

kolo_status kolo_own_servers_check(const kolo_session_opts *o, const kolo_session_config *config,
                                   const kolo_comm *comm) {
    const kolo_consistency *c = &config->consistency;
    const char *why =
        c->lease       ? "a program gives each worker its samples: leases are for kolo_train"
        : c->group > 1 ? "groups are for kolo_train"
        : kolo_consistency_has_rounds(c)
            ? "rounds at servers are for kolo_train: use sync allreduce for those of a session"
            : NULL;
    if (o->servers > 0 && o->evaluate_only) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%d servers of a session that evaluates only, which updates nothing: give "
                         "0",
                         o->servers);
    }
    if (!config->served) return KOLO_OK;
    if (!comm) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "sync %s without a communicator: create one, also for a single rank",
                         kolo_sync_name(o->sync));
    }
    if (!why) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "consistency %s in a session with sync %s: %s",
                     o->consistency, kolo_sync_name(o->sync), why);
}

kolo_status kolo_own_servers_create(const kolo_setup *setup, const kolo_lr *schedule,
                                    kolo_comm *world, kolo_session **session) {
    const kolo_served_opts opts = {
        .world = world, .servers = setup->opts.servers, .schedule = *schedule};
    kolo_session *s = kolo_zalloc(sizeof *s);
    kolo_served *served = NULL;
    kolo_status status = s ? KOLO_OK : KOLO_NOMEM(sizeof *s);
    status = kolo_served_create(&setup->session, &opts, NULL, status, &served);
    if (status != KOLO_OK || !s) {
        kolo_free(s);
        return status;
    }
    s->is_server = true;
    s->schedule = *schedule;
    s->comm = world;
    s->served = served;
    *session = s;
    return KOLO_OK;
}

kolo_status kolo_own_servers_connect(kolo_session *s, const kolo_setup *setup, kolo_comm *world,
                                     kolo_status status) {
    if (!setup->session.served) return status;
    if (!s) return kolo_agree(world, status);
    const kolo_session_servers servers = {.servers = setup->opts.servers,
                                          .need.memory = kolo_session_memory_parts(s)};
    return kolo_session_connect(s, world, &servers, status);
}

/* ---- servers ---- */

bool kolo_session_is_server(const kolo_session *s) { return s && s->is_server; }

kolo_status kolo_session_serve(kolo_session *s) {
    enum { WAIT_MS = 20 };
    if (!s) return KOLO_FAIL(KOLO_ERR_ARG, "no session: create one");
    if (!s->is_server) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "rank %d is a worker: only servers call kolo_session_serve "
                         "(kolo_session_is_server)",
                         s->comm ? rank_of(s) : 0);
    }
    while (!kolo_served_ended(s->served, WAIT_MS)) {
        const kolo_status status = kolo_comm_poll_interrupted(s->comm);
        if (status == KOLO_OK) continue;
        kolo_served_abandon(s->served);
        return status;
    }
    return kolo_served_wait(s->served);
}

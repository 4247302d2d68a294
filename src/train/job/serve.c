/* Runs with parameter servers: which rank does what. */
#include "base/clock.h"
#include "base/compiler.h"
#include "base/memory.h"
#include "train/job/job.h"
#include "train/session/agree.h"
#include "train/session/memory.h"
#include "train/session/own_servers.h"
#include "train/session/served.h"

#include <inttypes.h>

kolo_status kolo_job_divide(kolo_job *j, const kolo_train_opts *opts) {
    const int servers = opts && opts->sync == KOLO_SYNC_PS ? opts->servers : 0;
    if (servers <= 0) return KOLO_OK;
    KOLO_TRY(kolo_count_workers(j->size, servers, &j->size));
    j->serves = j->rank >= j->size;
    KOLO_TRY(kolo_split_servers(j->world, servers, &j->own_comm));
    j->comm = j->own_comm;
    return KOLO_OK;
}

/* Serves until all workers have ended. A server that is preempted asks them to. */
static kolo_status await_workers(const kolo_job *j, kolo_served *served) {
    enum { ASKED_MS = 100 };
    for (bool asked = !j->preempted; !asked && !kolo_served_ended(served, ASKED_MS);) {
        asked = j->preempted(j->preempted_arg);
        /* Fails if the owner that decides has ended already, as the others will, or is lost, which
         * the wait reports. */
        if (asked) (void)kolo_served_stop(served);
    }
    return kolo_served_wait(served);
}

kolo_status kolo_job_serve(kolo_job *j, kolo_train_result *result) {
    kolo_served *served;
    const kolo_setup *s = &j->setup;
    const kolo_served_opts opts = {
        .world = j->world,
        .servers = s->opts.servers,
        .schedule = kolo_setup_learning_rate(s),
        .record = s->opts.record,
        .replay = s->opts.replay,
        .replicas = s->opts.replicas,
        .joins = s->opts.joins,
    };
    KOLO_TRY(kolo_served_create(&s->session, &opts, NULL, KOLO_OK, &served));
    kolo_status status = await_workers(j, served);
    kolo_served_destroy(served);
    KOLO_TRY(status);
    *result = (kolo_train_result){.workers = j->size, .servers = s->opts.servers};
    return KOLO_OK;
}

bool kolo_job_is_asynchronous(const kolo_job *j) {
    const kolo_session_config *config = &j->setup.session;
    return config->served && kolo_consistency_is_alone(&config->consistency);
}

bool kolo_job_has_own_state(const kolo_job *j) {
    const kolo_session_config *config = &j->setup.session;
    return config->served && kolo_consistency_has_rounds(&config->consistency);
}

void kolo_job_note_policy(kolo_job *j) {
    char name[KOLO_CONSISTENCY_NAME];
    if (j->setup.session.consistency.kind != KOLO_CONSISTENCY_AUTO) return;
    const int staleness = kolo_session_staleness(j->session);
    const bool first = !j->policies.text;
    if (!first && staleness == j->staleness) return;
    j->staleness = staleness;
    kolo_consistency_print(staleness, name);
    if (first) {
        kolo_text_add(&j->policies, "%s", name);
        return;
    }
    const int64_t step = j->state.steps + 1;
    kolo_text_add(&j->policies, ", from step %" PRId64 " on %s", step, name);
    if (j->rank != 0) return;
    kolo_notify(&j->setup.opts, KOLO_NOTICE_INFO, "consistency from step %" PRId64 " on: %s", step,
                name);
}

/* ---- lost workers ---- */

bool kolo_job_outlives_workers(const kolo_job *j) {
    return kolo_job_is_asynchronous(j) && j->setup.opts.servers > 0 &&
           !j->setup.session.needs_workers;
}

/* Informs the user that a worker is lost. */
static void notify_loss(kolo_job *j, int worker, int64_t steps) {
    if (j->rank == 0) {
        kolo_notify(&j->setup.opts, KOLO_NOTICE_WARNING,
                    "worker %d died after %" PRId64 " of its steps: the others go on", worker,
                    steps);
    }
    kolo_text_add(&j->losses, "%srank %d after %" PRId64 " steps", j->losses.length ? ", " : "",
                  worker, steps);
}

/* The same of servers that this rank has found lost since the last call. */
static kolo_status notify_lost_servers(kolo_job *j) {
    const int servers = j->setup.opts.servers;
    if (j->setup.opts.replicas == 0) return KOLO_OK;
    if (!j->lost_servers) {
        j->lost_servers = kolo_zalloc((size_t)servers * sizeof *j->lost_servers);
    }
    if (!j->lost_servers) return KOLO_NOMEM((size_t)servers);
    for (int i = 0; i < servers; i++) {
        if (j->lost_servers[i] || !kolo_session_has_lost_server(j->session, i)) continue;
        j->lost_servers[i] = true;
        if (j->rank == 0) {
            kolo_notify(&j->setup.opts, KOLO_NOTICE_WARNING,
                        "server %d (rank %d) died: its part continues from the replica", i,
                        j->size + i);
        }
        kolo_text_add(&j->losses, "%sserver rank %d", j->losses.length ? ", " : "", j->size + i);
    }
    return KOLO_OK;
}

/* What the latest step has left counts as part of the run, and of the next step. */
static kolo_status consolidate(kolo_job *j) {
    if (!kolo_store_has_deferred(kolo_session_store(j->session))) {
        return kolo_session_consolidate(j->session);
    }
    const kolo_plan_times *times = kolo_session_times(j->session), before = *times;
    const int64_t begin = kolo_now_ns();
    KOLO_TRY(kolo_session_consolidate(j->session));
    const int64_t ns = kolo_now_ns() - begin;
    kolo_accumulator *const all[] = {&j->state.run, &j->state.epoch, &j->report, &j->line};
    for (size_t i = 0; i < KOLO_COUNT(all); i++) all[i]->ns += ns;
    j->deferred_ns += ns;
    for (int i = 0; i < KOLO_PHASES; i++) {
        j->deferred.phase_ns[i] += times->phase_ns[i] - before.phase_ns[i];
    }
    j->deferred.communication_ns += times->communication_ns - before.communication_ns;
    return KOLO_OK;
}

kolo_status kolo_job_consolidate(kolo_job *j) {
    KOLO_TRY(consolidate(j));
    KOLO_TRY(notify_lost_servers(j));
    if (!kolo_job_outlives_workers(j)) return KOLO_OK;
    const int workers = j->size + j->setup.opts.joins;
    if (!j->lost) j->lost = kolo_zalloc((size_t)workers * sizeof *j->lost);
    if (!j->lost) return KOLO_NOMEM((size_t)workers);
    for (int w = 0; w < workers; w++) {
        const int64_t steps = kolo_session_lost(j->session, w);
        if (steps < 0 || j->lost[w]) continue;
        j->lost[w] = true;
        if (w < j->size) j->comm = NULL;
        if (j->rank == 0 && j->ledger) KOLO_TRY(kolo_ledger_add_loss(j->ledger, w, steps));
        notify_loss(j, w, j->resume.state.steps + steps);
    }
    return KOLO_OK;
}

bool kolo_job_goes_on(kolo_job *j, kolo_status status) {
    if (status != KOLO_ERR_PEER || !j->comm || !kolo_job_outlives_workers(j)) return false;
    char *text = kolo_strdup(kolo_last_error());
    const bool broken = kolo_barrier(j->comm) != KOLO_OK; /* else the ranks agreed on the error */
    if (broken) j->comm = NULL;
    if (!broken) (void)KOLO_FAIL(status, "%s", text ? text : "");
    kolo_free(text);
    return broken;
}

kolo_status kolo_job_connect(kolo_job *j, kolo_status status) {
    if (!j->setup.session.served || !j->serves_wait) return status;
    j->serves_wait = false;
    if (!j->session) return kolo_agree(j->world, status);
    const kolo_session_servers servers = {.servers = j->setup.opts.servers,
                                          .replicas = j->setup.opts.replicas,
                                          .joins = j->setup.opts.joins,
                                          .need = {.memory = kolo_session_memory_parts(j->session),
                                                   .copies = (int64_t)j->copied_bytes},
                                          .updates = j->resume.state.updates};
    KOLO_TRY(kolo_session_connect(j->session, j->world, &servers, status));
    if (j->resume.state.steps == 0 || !kolo_session_has_tables(j->session)) return KOLO_OK;
    return kolo_agree(j->comm, j->resume.tables
                                   ? kolo_session_read_tables(j->session, j->resume.tables)
                                   : KOLO_OK); /* on rank 0 */
}

/* Requests of a worker to the owners of the parts, and to their replicas once an owner is lost. */
#include "base/status.h"
#include "comm/engine/comm.h"
#include "comm/service/waits.h"
#include "comm/sync/parameters_group.h"
#include "comm/sync/parameters_internal.h"

#include <stdio.h>

kolo_status kolo_parameters_check_worker(const kolo_parameters *p) {
    if (p->works && p->service) return KOLO_OK;
    if (p->works) return KOLO_FAIL(KOLO_ERR_ARG, "a request after the wait for all workers");
    return KOLO_FAIL(KOLO_ERR_ARG, "rank %d is a server only: workers push and pull",
                     kolo_comm_rank(p->comm));
}

/* The server that has part i now. */
static int server_of(const kolo_parameters *p, int i) {
    return p->moved[i] ? kolo_replicas_follower(i, p->n_servers) : i % p->n_servers;
}

kolo_service_request kolo_parameters_request(const kolo_parameters *p, int i, uint32_t kind) {
    static const char *const names[] = {
        [KOLO_OWNER_PULL] = "a pull of parameters",
        [KOLO_OWNER_PUSH] = "a push of gradients",
        [KOLO_OWNER_PART] = "a part of a push",
        [KOLO_OWNER_FINISH] = "the end of this worker",
        [KOLO_OWNER_STATE] = "a read of optimizer state",
        [KOLO_OWNER_BARRIER] = "the wait for all workers",
        [KOLO_OWNER_SUM] = "a read of a sum over the workers",
        [KOLO_OWNER_LEASE] = "a request for a lease",
        [KOLO_OWNER_IDLE] = "a report of having no lease",
        [KOLO_OWNER_STOP] = "an agreement on the end of the run",
        [KOLO_OWNER_PAUSE] = "an agreement on a point where all meet",
        [KOLO_OWNER_JOIN] = "a worker that joins",
        [KOLO_OWNER_ASSIGN] = "new values of parameters",
        [KOLO_OWNER_CONFIGURE] = "new settings of the owners",
    };
    const bool names_part = p->opts.replicas > 0 || kolo_parameters_buckets(p) > 1;
    return (kolo_service_request){.server = kolo_service_server_rank(p->service, server_of(p, i)),
                                  .name = names[kind],
                                  .kind = kolo_replicas_kind(kind, names_part ? i : 0),
                                  .clock = p->clock};
}

void kolo_parameters_add_gradient(const kolo_parameters *p, int i, kolo_service_request *q) {
    const kolo_owned_span *span = &p->owned[i].pushed;
    q->input = p->pushed + span->first + p->early[i].sent;
    q->input_bytes = (span->count - p->early[i].sent) * sizeof *p->pushed;
}

kolo_status kolo_parameters_end_parts(kolo_parameters *p, int i) {
    early_push *e = &p->early[i];
    kolo_status first = KOLO_OK;
    char text[KOLO_REPORT_BYTES] = "";
    for (int k = 0; k < e->n; k++) {
        kolo_status status = kolo_service_wait(p->service, &e->part[k], 0);
        if (status == KOLO_OK || first != KOLO_OK) continue;
        first = status;
        snprintf(text, sizeof text, "%s", kolo_last_error());
    }
    e->n = 0;
    e->sent = 0;
    return first == KOLO_OK ? first : KOLO_FAIL(first, "%s", text);
}

kolo_status kolo_parameters_move(kolo_parameters *p, int i, kolo_status status) {
    const int server = kolo_service_server_rank(p->service, server_of(p, i));
    if (p->opts.replicas == 0 || !kolo_service_is_lost(p->service, server)) return status;
    if (p->moved[i]) return status; /* the replica is lost, too */
    p->moved[i] = true;
    (void)kolo_parameters_end_parts(p, i); /* the replica gets the whole push */
    if (!p->pushing || kolo_service_wait(p->service, &p->pushes[i], 0) == KOLO_OK) return KOLO_OK;
    p->pushes[i].server = kolo_service_server_rank(p->service, server_of(p, i));
    kolo_parameters_add_gradient(p, i, &p->pushes[i]);
    return kolo_service_start(p->service, &p->pushes[i]);
}

/* After a request has failed, returns OK if the server that has part i now can get it. */
static kolo_status redirect(kolo_parameters *p, int i, const kolo_service_request *q,
                            kolo_status status) {
    const int now = kolo_service_server_rank(p->service, server_of(p, i));
    if (q->server == now) return kolo_parameters_move(p, i, status);
    return kolo_service_is_lost(p->service, q->server) ? KOLO_OK : status;
}

kolo_status kolo_parameters_start(kolo_parameters *p, int i, kolo_service_request *q) {
    kolo_status status = kolo_service_start(p->service, q);
    if (status == KOLO_OK) return status;
    KOLO_TRY(redirect(p, i, q, status));
    q->server = kolo_service_server_rank(p->service, server_of(p, i));
    if (q == &p->pushes[i]) kolo_parameters_add_gradient(p, i, q);
    return kolo_service_start(p->service, q);
}

/* ---- waits ---- */

/* For as long as any worker makes progress; a server waits for no worker. */
static kolo_status wait_patiently(kolo_parameters *p, kolo_service_request *q) {
    return p->works ? kolo_service_await(p->service, q, 0) : kolo_service_wait(p->service, q, 0);
}

bool kolo_parameters_has_progress(kolo_parameters *p) {
    return kolo_service_has_progress(p->service,
                                     kolo_service_server_rank(p->service, server_of(p, 0)), 0);
}

static void begin_wait(void *arg) { kolo_service_begin_wait(((kolo_parameters *)arg)->service); }
static void end_wait(void *arg) { kolo_service_end_wait(((kolo_parameters *)arg)->service); }
static bool goes_on(void *arg) { return kolo_parameters_has_progress(arg); }

void kolo_parameters_extend_waits(kolo_parameters *p, kolo_comm *group) {
    p->wait_hooks = (kolo_comm_wait_hooks){begin_wait, end_wait, goes_on, p};
    p->group = group;
    group->wait_hooks = &p->wait_hooks;
}

kolo_status kolo_parameters_await(kolo_parameters *p, int i, kolo_service_request *q) {
    const bool pushes = q == &p->pushes[i];
    kolo_status status = wait_patiently(p, q);
    if (status == KOLO_OK) return status;
    KOLO_TRY(redirect(p, i, q, status));
    if (!pushes) { /* move has sent a push */
        q->server = kolo_service_server_rank(p->service, server_of(p, i));
        KOLO_TRY(kolo_service_start(p->service, q));
    }
    return wait_patiently(p, q);
}

kolo_status kolo_parameters_run(kolo_parameters *p, int i, kolo_service_request *q) {
    KOLO_TRY(kolo_parameters_start(p, i, q));
    return kolo_parameters_await(p, i, q);
}

/* One of several requests that were started together. Once another one has timed out this one has
 * been waited for as long, too. */
static kolo_status await_one_of(kolo_parameters *p, int i, kolo_service_request *q,
                                bool *timed_out) {
    const kolo_status status =
        *timed_out ? kolo_service_wait(p->service, q, 1) : kolo_parameters_await(p, i, q);
    *timed_out |= status == KOLO_ERR_TIMEOUT;
    return status;
}

kolo_status kolo_parameters_wait_for(kolo_parameters *p, kolo_service_request *requests, int first,
                                     int end) {
    kolo_status failed = KOLO_OK;
    bool timed_out = false;
    char text[KOLO_REPORT_BYTES] = "";
    for (int i = first; i < end; i++) {
        kolo_status status = await_one_of(p, i, &requests[i], &timed_out);
        if (status == KOLO_OK || failed != KOLO_OK) continue;
        failed = status;
        snprintf(text, sizeof text, "%s", kolo_last_error());
    }
    return failed == KOLO_OK ? failed : KOLO_FAIL(failed, "%s", text);
}

kolo_status kolo_parameters_fail_after(kolo_parameters *p, kolo_service_request *requests, int n,
                                       kolo_status status) {
    char text[KOLO_REPORT_BYTES];
    snprintf(text, sizeof text, "%s", kolo_last_error());
    (void)kolo_parameters_wait_for(p, requests, 0, n);
    return KOLO_FAIL(status, "%s", text);
}

kolo_status kolo_parameters_signal_all(kolo_parameters *p, uint32_t kind, kolo_status first) {
    bool timed_out = false;
    char text[KOLO_REPORT_BYTES];
    snprintf(text, sizeof text, "%s", kolo_last_error());
    for (int k = 0; k < 2 * p->n_parts; k++) { /* starts all, then waits for them */
        const int i = k % p->n_parts;
        kolo_service_request *q = &p->signals[i];
        if (k < p->n_parts) *q = kolo_parameters_request(p, i, kind);
        if (!q->name) continue; /* not started */
        const kolo_status status =
            k < p->n_parts ? kolo_parameters_start(p, i, q) : await_one_of(p, i, q, &timed_out);
        if (status != KOLO_OK) q->name = NULL;
        if (status == KOLO_OK || first != KOLO_OK) continue;
        first = status;
        snprintf(text, sizeof text, "%s", kolo_last_error());
    }
    return first == KOLO_OK ? first : KOLO_FAIL(first, "%s", text);
}

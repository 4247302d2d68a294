/* A worker that joins a run, as a process that is no rank. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/sync/parameters_internal.h"

const char *kolo_parameters_address(const kolo_parameters *p) {
    return p->service ? kolo_service_address(p->service) : NULL;
}

int kolo_parameters_number(const kolo_parameters *p) { return p->number; }

static kolo_status connect_joined(kolo_parameters *p, const char *address,
                                  const char *secret_file) {
    const kolo_service_opts service = {.timeout_ms = p->opts.timeout_ms};
    int client;
    KOLO_TRY(kolo_parameters_allocate(p));
    KOLO_TRY(kolo_service_join(address, secret_file, &service, &p->service, &client));
    p->n_workers = kolo_service_server_rank(p->service, 0); /* servers are the last ranks */
    p->number = client - p->n_servers;
    if (kolo_service_server_count(p->service) != p->n_servers) {
        return KOLO_FAIL(KOLO_ERR_ARG, "the run has %d servers, not %d",
                         kolo_service_server_count(p->service), p->n_servers);
    }
    for (int i = 0; i < p->n_servers && p->opts.replicas > 0; i++) { /* parts that have moved */
        p->moved[i] = kolo_service_is_lost(p->service, kolo_service_server_rank(p->service, i));
    }
    return KOLO_OK;
}

kolo_status kolo_parameters_join(const char *address, const char *secret_file, size_t count,
                                 const kolo_parameters_opts *opts, kolo_parameters **parameters) {
    if (!opts) return KOLO_FAIL(KOLO_ERR_ARG, "parameters without options");
    kolo_parameters *p = kolo_zalloc(sizeof *p);
    if (!p) return KOLO_NOMEM(sizeof *p);
    *p = (kolo_parameters){.opts = *opts,
                           .count = count,
                           .n_servers = opts->servers,
                           .n_parts = opts->servers,
                           .works = true,
                           .abandoned = true, /* until it takes part */
                           .idle = opts->staleness != KOLO_STALENESS_ANY};
    kolo_status status = opts->joins > 0 && opts->servers > 0
                             ? connect_joined(p, address, secret_file)
                             : KOLO_FAIL(KOLO_ERR_ARG, "parameters that nobody may join");
    if (status != KOLO_OK) {
        kolo_parameters_free(p);
        return status;
    }
    *parameters = p;
    return KOLO_OK;
}

/* Takes part at all owners, the first one last, or at none: then *end is 0. */
static kolo_status try_to_enter(kolo_parameters *p, uint64_t *end) {
    *end = 1;
    int i = p->n_servers;
    while (i > 0 && *end > 0) {
        kolo_service_request q = kolo_parameters_request(p, --i, KOLO_OWNER_JOIN);
        KOLO_TRY(kolo_parameters_run(p, i, &q));
        *end = q.reply_clock;
    }
    for (int k = i + 1; k < p->n_servers && *end == 0; k++) {
        kolo_service_request q = kolo_parameters_request(p, k, KOLO_OWNER_FINISH);
        KOLO_TRY(kolo_parameters_run(p, k, &q));
    }
    return KOLO_OK;
}

/* Tries as long as a worker makes progress. */
static kolo_status try_until_it_enters(kolo_parameters *p, uint64_t *end) {
    static const int64_t sleep_ns = 10000000, asked_ns = 1000000000;
    for (int64_t next_ns = kolo_now_ns() + asked_ns;;) {
        KOLO_TRY(try_to_enter(p, end));
        if (*end > 0) return KOLO_OK;
        if (kolo_now_ns() > next_ns && !kolo_parameters_has_progress(p)) {
            return KOLO_FAIL(KOLO_ERR_TIMEOUT, "the workers wait for each other, and none makes "
                                               "progress: nobody can join");
        }
        if (kolo_now_ns() > next_ns) next_ns += asked_ns;
        kolo_sleep_ns(sleep_ns);
    }
}

kolo_status kolo_parameters_enter(kolo_parameters *p, uint64_t *end) {
    KOLO_TRY(kolo_parameters_check_worker(p));
    if (p->number < 0 || !p->abandoned) {
        return KOLO_FAIL(KOLO_ERR_ARG, "only a process that has joined takes part later, and once");
    }
    KOLO_TRY(try_until_it_enters(p, end));
    kolo_service_report_progress(p->service);
    p->abandoned = false;
    return KOLO_OK;
}

/* Runs with parameter servers: which rank does what. */
#include "train/job/job.h"
#include "train/session/agree.h"
#include "train/session/served.h"

kolo_status kolo_job_divide(kolo_job *j, const kolo_train_opts *opts) {
    const int servers = opts && opts->sync == KOLO_SYNC_PS ? opts->servers : 0;
    if (servers <= 0) return KOLO_OK;
    if (servers >= j->size) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%d servers of %d processes: there must be a worker",
                         servers, j->size);
    }
    j->size -= servers;
    j->serves = j->rank >= j->size;
    KOLO_TRY(kolo_comm_split(j->world, j->serves, j->rank, &j->own_comm));
    j->comm = j->own_comm;
    return KOLO_OK;
}

kolo_status kolo_job_serve(kolo_job *j, kolo_train_result *result) {
    kolo_served *served;
    const kolo_setup *s = &j->setup;
    const kolo_served_opts opts = {
        .world = j->world,
        .servers = s->opts.servers,
        .schedule = kolo_lr_make(&s->opts, s->global_batch, s->epoch_steps, s->total_steps),
    };
    KOLO_TRY(kolo_served_create(&s->session, &opts, NULL, KOLO_OK, &served));
    kolo_status status = kolo_served_wait(served);
    kolo_served_destroy(served);
    KOLO_TRY(status);
    *result = (kolo_train_result){.workers = j->size, .servers = s->opts.servers};
    return KOLO_OK;
}

bool kolo_job_is_asynchronous(const kolo_job *j) {
    const kolo_session_config *config = &j->setup.session;
    return config->served && kolo_consistency_is_alone(&config->consistency);
}

kolo_status kolo_job_connect(kolo_job *j, kolo_status status) {
    if (!j->setup.session.served || !j->serves_wait) return status;
    j->serves_wait = false;
    if (!j->session) return kolo_agree(j->world, status);
    return kolo_session_connect(j->session, j->world, j->setup.opts.servers, status);
}

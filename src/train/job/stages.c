/* Runs: layers that move to other stages of a pipeline. */
#include "train/job/job.h"

#include <inttypes.h>

kolo_status kolo_job_rebalance(kolo_job *j, int64_t k) {
    const kolo_train_opts *o = &j->setup.opts;
    bool moved;
    if (!kolo_session_has_measured_stages(j->session)) return KOLO_OK;
    kolo_job_close_trace(j); /* of the old plans */
    KOLO_TRY(kolo_job_complete_save(j, true));
    KOLO_TRY(kolo_session_rebalance(j->session, &moved));
    KOLO_TRY(kolo_job_open_trace(j));
    if (!moved || j->rank != 0 || !o->notice) return KOLO_OK;
    kolo_text text = {0};
    kolo_text_add(&text, "stages of the pipeline from step %" PRId64 " on begin with ", k + 1);
    kolo_session_describe_stages(j->session, true, &text);
    if (!text.failed) o->notice(o->notice_arg, text.text, KOLO_NOTICE_INFO);
    kolo_text_fini(&text);
    return KOLO_OK;
}

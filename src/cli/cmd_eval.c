/* kolo eval: a checkpoint on the test split of a data set. */
#include "cli/cli.h"
#include "cli/job.h"
#include "cli/result.h"

static kolo_status evaluate_as_rank(kolo_comm *comm, int threads, kolo_options *o) {
    const char *data = kolo_options_text(o, "data");
    int64_t batch = kolo_options_int(o, "batch");
    kolo_train_result result;
    KOLO_TRY(
        kolo_evaluate(comm, kolo_options_text(o, "checkpoint"), data, batch, threads, &result));
    if (kolo_comm_rank(comm) != 0) return KOLO_OK;
    result_about about = {.data = data, .batch = batch};
    return result_report(&result, &about, kolo_options_text(o, "json"));
}

int cmd_eval(kolo_options *o) {
    job_opts opts = job_opts_of(o, "workers");
    opts.threads = (int)kolo_options_int(o, "threads");
    opts.no_bind = !kolo_options_flag(o, "bind");
    return job_run(o, &opts, evaluate_as_rank);
}

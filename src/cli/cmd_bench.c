/* kolo bench: how fast training steps are, with the data in memory. */
#include "cli/cli.h"
#include "cli/job.h"
#include "cli/result.h"
#include "cli/train_opts.h"

static kolo_status bench_train_as_rank(kolo_comm *comm, int threads, kolo_options *o) {
    kolo_train_opts opts;
    kolo_train_result result;
    KOLO_TRY(train_opts_make(o, threads, &opts));
    opts.in_memory = true;
    opts.steps = kolo_options_int(o, "steps");
    KOLO_TRY(kolo_train(comm, &opts, NULL, NULL, &result));
    if (kolo_comm_rank(comm) != 0) return KOLO_OK;
    result_about about = {.model = kolo_options_text(o, "model"),
                          .data = opts.data,
                          .batch = opts.batch,
                          .trained = true};
    return result_report(&result, &about, kolo_options_text(o, "json"));
}

int cmd_bench_train(kolo_options *o) {
    job_opts opts = job_opts_of(o);
    opts.algorithm = (kolo_algorithm)kolo_options_choice(o, "algorithm");
    kolo_status status = job_check_json(kolo_options_text(o, "json"));
    return status == KOLO_OK ? job_run(o, &opts, bench_train_as_rank) : cli_fail(status);
}

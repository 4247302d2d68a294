/* kolo bench train: training steps on a batch in memory. */
#include "cli/commands/commands.h"
#include "cli/launcher/error_report.h"
#include "cli/launcher/run_on_ranks.h"
#include "cli/options/train_opts.h"
#include "cli/output/result.h"

static kolo_status bench_train_as_rank(kolo_comm *comm, int threads, kolo_options *o) {
    kolo_train_opts opts;
    kolo_train_result result;
    KOLO_TRY(train_opts_make(o, threads, &opts));
    train_opts_shards(o, &opts);
    opts.in_memory = true;
    opts.steps = kolo_options_int(o, "steps");
    opts.untimed_steps = opts.steps > 1 ? 1 : 0;
    opts.lr = kolo_options_float(o, "lr");
    opts.seed = (uint64_t)kolo_options_int(o, "seed");
    KOLO_TRY(train_opts_rows(o, comm, &opts));
    KOLO_TRY(kolo_train(comm, &opts, NULL, NULL, &result));
    if (kolo_comm_rank(comm) != 0) return KOLO_OK;
    result_about about = {.data = opts.data,
                          .accumulate = opts.accumulate,
                          .global_batch = opts.global_batch,
                          .shards = opts.reproducible,
                          .together = train_opts_together(o, result.workers),
                          .trained = true};
    return result_report(&result, &about, kolo_options_text(o, "json"));
}

int cmd_bench_train(kolo_options *o) {
    kolo_status status = train_opts_prepare(o);
    if (status != KOLO_OK) return report_failure(status);
    ranks_opts opts = ranks_opts_of(o, "workers");
    opts.workers = train_opts_workers(o, opts.workers);
    opts.threads = train_opts_threads(o);
    opts.no_bind = !kolo_options_flag(o, "bind");
    return run_on_ranks(o, &opts, bench_train_as_rank);
}

/* kolo eval: evaluates trained weights on a split of a data set. */
#include "cli/commands/commands.h"
#include "cli/launcher/run_on_ranks.h"
#include "cli/options/train_opts.h"
#include "cli/output/result.h"

static kolo_status evaluate_as_rank(kolo_comm *comm, int threads, kolo_options *o) {
    kolo_eval_opts opts = {
        .threads = threads,
        .notice = kolo_options_flag(o, "quiet") ? train_opts_warning : train_opts_notice,
    };
    kolo_train_result result;
    KOLO_TRY(train_opts_trained(o, &opts));
    KOLO_TRY(kolo_evaluate(comm, &opts, &result));
    if (kolo_comm_rank(comm) != 0) return KOLO_OK;
    result_about about = {.data = opts.data,
                          .split = opts.split_train ? "train" : NULL,
                          .quiet = kolo_options_flag(o, "quiet")};
    return result_report(&result, &about, kolo_options_text(o, "json"));
}

int cmd_eval(kolo_options *o) {
    ranks_opts opts = ranks_opts_of(o, "workers");
    opts.threads = (int)kolo_options_int(o, "threads");
    opts.no_bind = !kolo_options_flag(o, "bind");
    return run_on_ranks(o, &opts, evaluate_as_rank);
}

/* kolo train: trains a model; rank 0 prints progress and the result. */
#include "cli/commands/commands.h"
#include "cli/launcher/error_report.h"
#include "cli/launcher/roles.h"
#include "cli/launcher/run_on_ranks.h"
#include "cli/launcher/stop_signals.h"
#include "cli/options/recipe.h"
#include "cli/options/train_opts.h"
#include "cli/output/progress_bar.h"
#include "cli/output/result.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const long long many = 1000000000;

/* A number of steps or epochs, or a time: "500", "2e", "90s", "10m", "1h". */
typedef struct period {
    int64_t steps, epochs;
    double seconds;
} period;

/* Whether a text is a period: steps from `least` on. */
static bool parse_period(const char *text, long long least, period *p) {
    char *end;
    errno = 0;
    const long long number = strtoll(text, &end, 10);
    const char unit = *text >= '0' && *text <= '9' && !errno && *end && !end[1] ? *end : '\0';
    const int seconds = unit == 's' ? 1 : unit == 'm' ? 60 : unit == 'h' ? 3600 : 0;
    const bool known = unit == 'e' || seconds > 0 || !*end;
    if (*text < '0' || *text > '9' || errno || number > many || !known) return false;
    *p = (period){.steps = unit == '\0' ? number : 0,
                  .epochs = unit == 'e' ? number : 0,
                  .seconds = (double)number * seconds};
    return number >= (unit == '\0' ? least : 1);
}

static kolo_status parse_every(kolo_options *o, kolo_train_opts *opts) {
    const char *text = kolo_options_text(o, "checkpoint-every");
    period p = {0};
    if (text && !parse_period(text, 1, &p)) {
        return KOLO_FAIL(
            KOLO_ERR_ARG,
            "--checkpoint-every %s: must be a number of steps, such as 500, of epochs, "
            "such as 1e, or a time, such as 10m",
            text);
    }
    opts->checkpoint_steps = p.steps;
    opts->checkpoint_epochs = p.epochs;
    opts->checkpoint_seconds = p.seconds;
    return KOLO_OK;
}

static kolo_status parse_expiry(kolo_options *o, kolo_train_opts *opts) {
    const char *text = kolo_options_text(o, "table-expire");
    period p = {0};
    if (text && (!parse_period(text, 0, &p) || p.epochs > 0)) {
        return KOLO_FAIL(
            KOLO_ERR_ARG,
            "--table-expire %s: must be a number of steps, such as 100000, or a time, such as 12h",
            text);
    }
    opts->table_expire = p.steps;
    opts->table_expire_seconds = p.seconds;
    return KOLO_OK;
}

static kolo_status resolve(kolo_options *o, int threads, kolo_train_opts *opts) {
    const char *recipe;
    KOLO_TRY(recipe_apply(o, &recipe));
    KOLO_TRY(train_opts_make(o, threads, opts));
    opts->recipe = recipe;
    train_opts_shards(o, opts);
    opts->audit = kolo_options_int(o, "audit");
    opts->check_replicas = kolo_options_int(o, "check-replicas");
    opts->epochs = kolo_options_int(o, "epochs");
    opts->steps = kolo_options_int(o, "steps");
    opts->lr = kolo_options_float(o, "lr");
    opts->schedule = (kolo_lr_schedule)kolo_options_choice(o, "schedule");
    opts->scale_lr = kolo_options_int(o, "scale-lr");
    opts->lr_power = kolo_options_float(o, "lr-power");
    opts->lr_min = kolo_options_float(o, "lr-min");
    opts->lr_step_factor = kolo_options_float(o, "lr-step-factor");
    opts->lr_step_epochs = kolo_options_int(o, "lr-step-epochs");
    opts->warmup_epochs = kolo_options_float(o, "warmup-epochs");
    opts->loader_threads = train_opts_loader_threads(o);
    opts->augment = kolo_options_text(o, "augment");
    opts->strict = kolo_options_flag(o, "strict");
    opts->init = kolo_options_text(o, "init");
    opts->init_partial = kolo_options_flag(o, "init-partial");
    opts->seed = (uint64_t)kolo_options_int(o, "seed");
    opts->out_dir = kolo_options_text(o, "out");
    opts->tensorboard = kolo_options_text(o, "tensorboard");
    if (kolo_options_given(o, "metrics-port")) {
        int port = (int)kolo_options_int(o, "metrics-port");
        opts->metrics_port = port > 0 ? port : -1;
        opts->metrics_address = kolo_options_text(o, "metrics-address");
    }
    opts->eval_every = kolo_options_int(o, "eval-every");
    opts->eval_steps = kolo_options_int(o, "eval-every-steps");
    opts->log_every = kolo_options_int(o, "log-every");
    opts->no_eval = !kolo_options_flag(o, "eval");
    if (kolo_options_text(o, "checkpoint-every")) opts->keep = kolo_options_int(o, "keep");
    opts->wait_for_saves = kolo_options_flag(o, "wait-for-saves");
    opts->keep_best = kolo_options_text(o, "keep-best");
    opts->patience = kolo_options_int(o, "patience");
    const double grace = kolo_options_float(o, "grace");
    const bool saves = kolo_options_typed(o, "grace") || kolo_train_can_be_preempted(opts);
    if (grace > 0 && saves) opts->preempted = stop_signals_ask_to_save;
    opts->save_error = (kolo_save_error)kolo_options_choice(o, "on-save-error");
    opts->resume = kolo_options_text(o, "resume");
    if (opts->resume && strcmp(opts->resume, "latest") == 0) {
        opts->resume = opts->out_dir;
        opts->resume_if_any = true;
    }
    KOLO_TRY(parse_expiry(o, opts));
    return parse_every(o, opts);
}

static kolo_status record(kolo_options *o, const char *name, int value) {
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    return kolo_options_set_from_file(o, name, name, text);
}

/* Options on which results depend: the config has them even if they were not given. */
static kolo_status record_defaults(kolo_options *o, const kolo_train_opts *opts, int ranks) {
    const int workers = ranks - opts->servers; /* below 1: kolo_train refuses it */
    if (!kolo_options_given(o, "threads")) KOLO_TRY(record(o, "threads", opts->threads));
    if (opts->batch > 0 && !kolo_options_given(o, "batch")) {
        KOLO_TRY(record(o, "batch", (int)opts->batch));
    }
    if (workers > 0 && !kolo_options_typed(o, "workers")) KOLO_TRY(record(o, "workers", workers));
    if (!opts->out_dir || opts->autotune == KOLO_AUTOTUNE_OFF || kolo_options_given(o, "tuning")) {
        return KOLO_OK;
    }
    char *path = kolo_format("%s/tuning.txt", opts->out_dir);
    if (!path) return KOLO_NOMEM(strlen(opts->out_dir));
    const kolo_status status = kolo_options_set_from_file(o, "tuning", "tuning", path);
    kolo_free(path);
    return status;
}

/* The text of config.yaml. */
static kolo_status make_config(kolo_options *o, const char *out_dir, kolo_text *config) {
    kolo_text_add(config, "# The options of a run; 'kolo train --config FILE --out DIR' repeats it "
                          "in DIR.\n");
    kolo_options_yaml(o, out_dir, config);
    return config->failed ? KOLO_NOMEM(config->length) : KOLO_OK;
}

static kolo_status train_and_report(kolo_comm *comm, kolo_options *o, kolo_train_opts *opts) {
    const bool prints = kolo_comm_rank(comm) == 0, quiet = kolo_options_flag(o, "quiet");
    const progress_style style =
        quiet ? PROGRESS_NONE : (progress_style)kolo_options_choice(o, "progress");
    progress_bar shown = progress_bar_make(style);
    if (style == PROGRESS_NONE) opts->notice = train_opts_warning;
    kolo_train_result result;
    kolo_status status = train_opts_rows(o, comm, opts);
    if (status == KOLO_OK) {
        status = kolo_train(comm, opts, prints ? progress_bar_show : NULL, &shown, &result);
    }
    progress_bar_end(&shown);
    if (status != KOLO_OK || !prints) return status;
    const result_about about = {.data = opts->data,
                                .out = opts->out_dir,
                                .accumulate = opts->accumulate,
                                .global_batch = opts->global_batch,
                                .shards = opts->reproducible,
                                .together = train_opts_together(o, result.workers),
                                .trained = true,
                                .quiet = quiet};
    return result_report(&result, &about, kolo_options_text(o, "json"));
}

static kolo_status train_in(kolo_comm *comm, int threads, kolo_options *o) {
    kolo_train_opts opts;
    kolo_text config = {0};
    KOLO_TRY(resolve(o, threads, &opts));
    KOLO_TRY(record_defaults(o, &opts, kolo_comm_size(comm)));
    kolo_status status = make_config(o, opts.out_dir, &config);
    opts.resolved_config = config.text;
    if (status == KOLO_OK) status = train_and_report(comm, o, &opts);
    kolo_text_fini(&config);
    return status;
}

/* A process that is no rank of the run. */
static kolo_status join_as_worker(kolo_comm *comm, int threads, kolo_options *o) {
    kolo_train_opts opts;
    kolo_train_result result;
    const bool quiet = kolo_options_flag(o, "quiet");
    if (kolo_comm_size(comm) > 1) {
        return KOLO_FAIL(KOLO_ERR_ARG, "--join is for a process alone: start each without a "
                                       "launcher, or with RANK=0 WORLD_SIZE=1");
    }
    KOLO_TRY(resolve(o, threads, &opts));
    opts.join_secret = getenv("KOLO_SECRET_FILE");
    opts.join_timeout_ms = (int64_t)(1000 * kolo_options_float(o, "timeout"));
    KOLO_TRY(kolo_train(NULL, &opts, NULL, NULL, &result));
    const result_about about = {.data = opts.data,
                                .accumulate = opts.accumulate,
                                .global_batch = opts.global_batch,
                                .trained = true,
                                .quiet = quiet};
    return result_report(&result, &about, kolo_options_text(o, "json"));
}

/* A role without effect may be a mistake, or the variable means something else. */
static kolo_status note_roles(kolo_comm *comm, const kolo_options *o) {
    int rank;
    KOLO_TRY(roles_find_server(comm, &rank));
    const bool quiet = kolo_options_flag(o, "quiet") ||
                       (progress_style)kolo_options_choice(o, "progress") == PROGRESS_NONE;
    if (rank < 0 || kolo_comm_rank(comm) != 0 || quiet) return KOLO_OK;
    char line[128];
    snprintf(line, sizeof line,
             "rank %d has ROLE=server, without effect: it is for --sync ps without --servers",
             rank);
    train_opts_notice(NULL, line, KOLO_NOTICE_INFO);
    return KOLO_OK;
}

/* The servers of another launcher's job may be any of its ranks. */
static kolo_status train_as_rank(kolo_comm *comm, int threads, kolo_options *o) {
    kolo_comm *placed;
    int servers;
    const bool served = (kolo_sync)kolo_options_choice(o, "sync") == KOLO_SYNC_PS;
    if (kolo_options_text(o, "join")) return join_as_worker(comm, threads, o);
    if (!served || kolo_options_given(o, "servers")) {
        KOLO_TRY(note_roles(comm, o));
        return train_in(comm, threads, o);
    }
    KOLO_TRY(roles_place(comm, &servers, &placed));
    if (!placed) return train_in(comm, threads, o);
    kolo_status status = record(o, "servers", servers);
    if (status == KOLO_OK) status = train_in(placed, threads, o);
    kolo_comm_destroy(placed);
    return status;
}

static kolo_status check_job(kolo_options *o, int workers) {
    kolo_train_opts opts;
    KOLO_TRY(resolve(o, train_opts_threads(o), &opts));
    return kolo_train_check(&opts, workers - opts.servers);
}

static spared_ranks count_spared(kolo_options *o, int workers) {
    kolo_train_opts opts;
    if (resolve(o, train_opts_threads(o), &opts) != KOLO_OK) return (spared_ranks){0, 0};
    const int others = workers - opts.servers - 1;
    return (spared_ranks){kolo_train_outlives_workers(&opts) ? others : 0,
                          opts.replicas > 0 ? opts.servers : 0};
}

/* The time that a run has to save upon SIGTERM, in seconds; 0: it does not. */
static double grace_of(kolo_options *o) {
    kolo_train_opts opts = {.out_dir = kolo_options_text(o, "out")};
    train_opts_shards(o, &opts);
    return kolo_train_can_be_preempted(&opts) ? kolo_options_float(o, "grace") : 0;
}

/* Checks usage before any rank is started. */
static kolo_status check_usage(kolo_options *o) {
    kolo_train_opts every = {0};
    KOLO_TRY(parse_every(o, &every));
    const char *resume = kolo_options_text(o, "resume");
    bool latest = resume && strcmp(resume, "latest") == 0; /* may start a new run */
    if (resume && !latest && kolo_options_typed(o, "init")) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "--resume loads the weights of the checkpoint: remove --init");
    }
    KOLO_TRY(train_opts_check_effects(o));
    bool writes = kolo_options_text(o, "checkpoint-every") != NULL;
    if (kolo_options_typed(o, "keep") && !writes) {
        return KOLO_FAIL(KOLO_ERR_ARG, "--keep requires --checkpoint-every N");
    }
    if (kolo_options_typed(o, "on-save-error") && !kolo_options_text(o, "out") &&
        !kolo_options_text(o, "tensorboard")) {
        return KOLO_FAIL(KOLO_ERR_ARG, "--on-save-error has no effect without files: give --out "
                                       "DIR, or remove it");
    }
    if (kolo_options_typed(o, "grace") && !kolo_options_text(o, "out")) {
        return KOLO_FAIL(KOLO_ERR_ARG, "--grace has no effect without --out DIR, the folder of the "
                                       "checkpoint: give it, or remove --grace");
    }
    bool port = kolo_options_given(o, "metrics-port");
    if (kolo_options_typed(o, "metrics-address") && !port) {
        return KOLO_FAIL(KOLO_ERR_ARG, "--metrics-address requires --metrics-port N");
    }
    bool lines = port || kolo_options_text(o, "out") || kolo_options_text(o, "tensorboard");
    if (kolo_options_typed(o, "log-every") && !lines) {
        return KOLO_FAIL(KOLO_ERR_ARG, "--log-every has no effect without --out DIR, --tensorboard "
                                       "DIR or --metrics-port N: remove it, or give one");
    }
    if ((writes || latest) && !kolo_options_text(o, "out")) {
        return KOLO_FAIL(KOLO_ERR_ARG, "--%s needs --out DIR, the folder of the checkpoints",
                         writes ? "checkpoint-every" : "resume latest");
    }
    return KOLO_OK;
}

/* --epochs or --steps, if given alone on the command line, replaces both values of the file. */
static void resolve_length(kolo_options *o) {
    bool epochs = kolo_options_typed(o, "epochs"), steps = kolo_options_typed(o, "steps");
    if (epochs && !steps) kolo_options_unset(o, "steps");
    if (steps && !epochs) kolo_options_unset(o, "epochs");
}

int cmd_train(kolo_options *o) {
    resolve_length(o);
    kolo_status status = train_opts_prepare(o);
    if (status == KOLO_OK) status = check_usage(o);
    if (status != KOLO_OK) return report_failure(status);
    ranks_opts opts = ranks_opts_of(o, "workers");
    opts.workers = train_opts_workers(o, opts.workers);
    opts.threads = train_opts_threads(o);
    opts.no_bind = !kolo_options_flag(o, "bind");
    opts.check = check_job;
    if (opts.workers > 0) opts.workers += (int)kolo_options_int(o, "servers");
    if (kolo_options_text(o, "join")) opts.workers = 1;
    if (kolo_options_text(o, "checkpoint-every")) opts.resumable = kolo_options_text(o, "out");
    opts.spared = count_spared;
    opts.grace = kolo_options_text(o, "join") ? 0 : grace_of(o);
    if (opts.grace > 0) opts.resumable = kolo_options_text(o, "out");
    return run_on_ranks(o, &opts, train_as_rank);
}

/* Options of a training job: defaults and ranges. */
#include "base/integer.h"
#include "base/range.h"
#include "kernel/select/families.h"
#include "kolo/mesh.h"
#include "train/session/compression.h"
#include "train/session/metrics.h"
#include "train/session/setup_parts.h"

#include <inttypes.h>

static void fill_defaults(kolo_train_opts *o) {
    if (o->batch == 0 && o->global_batch == 0) o->batch = 64;
    if (o->accumulate == 0) o->accumulate = 1;
    if (o->in_memory) {
        o->epochs = 0;
        if (o->steps == 0) o->steps = 100;
        o->no_eval = true;
    }
    if (o->epochs == 0 && o->steps == 0) o->epochs = 1;
    if (o->lr == 0) o->lr = 0.01;
    if (o->log_every == 0) o->log_every = 10;
    if (o->lr_power == 0) o->lr_power = 2;
    if (o->lr_step_factor == 0) o->lr_step_factor = 0.1;
    if (o->lr_step_epochs == 0) o->lr_step_epochs = 30;
    if (o->threads == 0) o->threads = 1;
    if (o->compress_min_bytes == 0) o->compress_min_bytes = KOLO_COMPRESS_MIN_BYTES;
}

/* What watches the evaluations of a run. */
static kolo_status check_best(const kolo_train_opts *o) {
    const char *option = o->keep_best ? "--keep-best" : "--patience";
    if (!o->keep_best && o->patience == 0) return KOLO_OK;
    if (o->keep_best && kolo_metric_row(o->keep_best) < 0) {
        kolo_text names = {0};
        const kolo_metric *m = kolo_metric_table();
        for (int i = 0; m[i].name; i++) kolo_text_add(&names, "%s%s", i ? ", " : "", m[i].name);
        kolo_status status =
            KOLO_FAIL(KOLO_ERR_ARG, "--keep-best %s: there is no such metric: choose one of %s",
                      o->keep_best, names.text ? names.text : "those in kolo help");
        kolo_text_fini(&names);
        return status;
    }
    if (o->keep_best && !o->out_dir) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "--keep-best needs --out DIR, the folder of the checkpoints");
    }
    if (o->no_eval || (o->eval_every == 0 && o->eval_steps == 0)) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s compares evaluations, and the run has %s: give --eval-every N or "
                         "--eval-every-steps N",
                         option, o->no_eval ? "none" : "one at its end");
    }
    return KOLO_OK;
}

static kolo_status check_checkpoints(const kolo_train_opts *o) {
    const bool steps = o->checkpoint_steps > 0, epochs = o->checkpoint_epochs > 0;
    const bool seconds = o->checkpoint_seconds > 0;
    if (steps + epochs + seconds > 1) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "checkpoints by two of steps (%" PRId64 "), epochs (%" PRId64
                         ") and seconds (%g): choose one of them",
                         o->checkpoint_steps, o->checkpoint_epochs, o->checkpoint_seconds);
    }
    if ((steps || epochs || seconds) && !o->out_dir) {
        return KOLO_FAIL(KOLO_ERR_ARG, "checkpoints need a folder: give --out");
    }
    if (!steps && !epochs && !seconds && (o->keep > 0 || o->wait_for_saves)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s requires --checkpoint-every N",
                         o->keep > 0 ? "--keep" : "--wait-for-saves");
    }
    if (o->in_memory && (steps || epochs || seconds || o->resume)) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "a benchmark neither writes checkpoints nor resumes from one");
    }
    return KOLO_OK;
}

/* The multiple of `unit` that is nearest to n, at least one. */
static int64_t near_multiple(int64_t unit, int64_t n) {
    return unit * kolo_max_i64((n + unit / 2) / unit, 1);
}

static kolo_status check_batches(const kolo_train_opts *o, int workers) {
    if (o->global_batch > 0 && o->batch > 0) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "a batch of %" PRId64 " per worker and a global batch of %" PRId64
                         ": choose one of the two",
                         o->batch, o->global_batch);
    }
    if (o->worker_weights && o->reproducible == 0 &&
        (!o->mesh || kolo_mesh_workers(o->mesh, "pp") == 1)) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "worker weights distribute the logical shards of a reproducible run, or "
                         "the layers of a pipeline: give --reproducible too, or --mesh pp=2");
    }
    if (o->audit > 0 && o->reproducible == 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "an audit compares the gradients of logical shards: give "
                                       "--reproducible too");
    }
    if (o->reproducible == 0) return KOLO_OK;
    if (o->global_batch == 0) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%" PRId64
                         " logical shards need a global batch, not a batch per worker: give "
                         "--global-batch %" PRId64 ", for example",
                         o->reproducible, near_multiple(o->reproducible, o->batch * workers));
    }
    if (o->global_batch % o->reproducible != 0) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%" PRId64 " logical shards need a global batch that is a multiple of "
                         "them: give --global-batch %" PRId64 ", for example",
                         o->reproducible, near_multiple(o->reproducible, o->global_batch));
    }
    if (o->accumulate > 1) {
        return KOLO_FAIL(KOLO_ERR_ARG, "logical shards are the micro-batches of a reproducible "
                                       "run: omit --accumulate, and give more shards");
    }
    if (o->sync_bn) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "logical shards run one after the other, so batch normalization cannot be "
                         "synchronized over them: omit --sync-bn or --reproducible");
    }
    if (o->sparse_embedding) {
        return KOLO_FAIL(KOLO_ERR_ARG, "row-sparse gradients cannot be summed over logical shards: "
                                       "omit --sparse-embedding or --reproducible");
    }
    return KOLO_OK;
}

static kolo_status check_ranges(const kolo_train_opts *o, int workers) {
    const int64_t many = INT64_C(1) << 40;
    KOLO_TRY(kolo_check_count("batch", o->batch, o->global_batch == 0, 1 << 24));
    KOLO_TRY(kolo_check_count("global batch", o->global_batch, 0, many));
    KOLO_TRY(kolo_check_count("steps between audits", o->audit, 0, many));
    KOLO_TRY(kolo_check_count("steps between comparisons of replicas", o->check_replicas, 0, many));
    KOLO_TRY(kolo_check_count("level of ZeRO", o->zero, 0, 3));
    KOLO_TRY(kolo_check_count("bytes of a stage", o->stage_bytes, 0, INT64_MAX));
    KOLO_TRY(kolo_check_count("steps of a window", o->rebalance_stages, 0, 1 << 30));
    KOLO_TRY(kolo_check_count("logical shards", o->reproducible, 0, 1 << 16));
    KOLO_TRY(kolo_check_count("micro-batches", o->accumulate, 1, 1 << 20));
    KOLO_TRY(kolo_check_count("epochs", o->epochs, 0, 1 << 30));
    KOLO_TRY(kolo_check_count("steps", o->steps, 0, many));
    KOLO_TRY(kolo_check_count("untimed steps", o->untimed_steps, 0, many));
    KOLO_TRY(kolo_check_count("threads", o->threads, 1, 1024));
    KOLO_TRY(kolo_check_count("loader threads", o->loader_threads, KOLO_LOADER_NO_THREAD,
                              KOLO_LOADER_MAX_THREADS));
    KOLO_TRY(kolo_check_count("bucket bytes", o->bucket_bytes, 0, many));
    KOLO_TRY(kolo_check_count("epochs between evaluations", o->eval_every, 0, 1 << 30));
    KOLO_TRY(kolo_check_count("steps between evaluations", o->eval_steps, 0, many));
    KOLO_TRY(kolo_check_count("steps between lines", o->log_every, 1, many));
    KOLO_TRY(kolo_check_count("steps between checkpoints", o->checkpoint_steps, 0, many));
    KOLO_TRY(kolo_check_count("epochs between checkpoints", o->checkpoint_epochs, 0, 1 << 30));
    KOLO_TRY(kolo_check_count("checkpoints to keep", o->keep, 0, many));
    KOLO_TRY(kolo_check_count("save error", o->save_error, 0, KOLO_SAVE_ERROR_COUNT - 1));
    KOLO_TRY(kolo_check_real("seconds between checkpoints", o->checkpoint_seconds, 0, false, 1e9));
    KOLO_TRY(kolo_check_count("evaluations without improvement", o->patience, 0, many));
    KOLO_TRY(check_checkpoints(o));
    KOLO_TRY(check_best(o));
    KOLO_TRY(check_batches(o, workers));
    KOLO_TRY(kolo_check_count("epochs between learning-rate steps", o->lr_step_epochs, 1, 1 << 30));
    KOLO_TRY(kolo_check_real("learning rate", o->lr, 0, true, 1e6));
    KOLO_TRY(kolo_check_real("minimum learning rate", o->lr_min, 0, false, o->lr));
    KOLO_TRY(kolo_check_real("learning-rate power", o->lr_power, 0, true, 100));
    KOLO_TRY(kolo_check_count("batch that the learning rate is for", o->scale_lr, 0, many));
    KOLO_TRY(kolo_check_real("learning-rate factor", o->lr_step_factor, 0, true, 1));
    KOLO_TRY(kolo_check_real("warm-up epochs", o->warmup_epochs, 0, false, 1e6));
    KOLO_TRY(kolo_check_count("precision", o->precision, 0, KOLO_PRECISION_COUNT - 1));
    if (o->precision == KOLO_PRECISION_BF16 && !o->reference_kernels) {
        KOLO_TRY(kolo_kernel_check_bf16(kolo_isa_best()));
    }
    KOLO_TRY(kolo_check_count("algorithm", o->algorithm, 0, KOLO_ALGORITHM_COUNT - 1));
    KOLO_TRY(kolo_check_count("sync", o->sync, 0, KOLO_SYNC_COUNT - 1));
    KOLO_TRY(kolo_check_count("servers", o->servers, 0, 1 << 16));
    KOLO_TRY(kolo_check_count("replicas", o->replicas, 0, 1));
    KOLO_TRY(kolo_check_count("bytes of a table", o->table_bytes, 0, INT64_MAX));
    KOLO_TRY(kolo_check_count("pushes until an id has a row", o->table_admit, 0, INT32_MAX));
    KOLO_TRY(kolo_check_count("steps until a row expires", o->table_expire, 0, 1 << 30));
    KOLO_TRY(
        kolo_check_real("seconds until a row expires", o->table_expire_seconds, 0, false, 1e10));
    KOLO_TRY(kolo_check_count("recomputation", o->recompute, 0, KOLO_RECOMPUTE_COUNT - 1));
    return kolo_check_count("learning-rate schedule", o->schedule, 0, KOLO_LR_SCHEDULE_COUNT - 1);
}

kolo_status kolo_setup_check_names(const kolo_train_opts *o) {
    if (!o) return KOLO_FAIL(KOLO_ERR_ARG, "no options: give at least a model and data");
    if (!o->model || !*o->model) {
        return KOLO_FAIL(KOLO_ERR_ARG, "no model: choose one, such as lenet");
    }
    if (!o->in_memory && (!o->data || !*o->data)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "no data set: choose one, such as fashion-mnist");
    }
    return KOLO_OK;
}

kolo_status kolo_setup_resolve(const kolo_train_opts *given, int workers, kolo_train_opts *opts) {
    kolo_train_opts o = *given;
    fill_defaults(&o);
    KOLO_TRY(check_ranges(&o, workers));
    KOLO_TRY(kolo_optimizer_resolve(&o.optimizer, &o.optimizer));
    *opts = o;
    return KOLO_OK;
}

/* Options as text, by which ranks are compared, and a resumed run with its checkpoint. */
#include "base/json.h"
#include "base/number.h"
#include "base/rng.h"
#include "pass/partition/rules.h"
#include "plan/program/program.h"
#include "train/session/learning_rate.h"
#include "train/session/setup.h"

#include <inttypes.h>
#include <stdlib.h>

const char *kolo_lr_schedule_name(kolo_lr_schedule schedule) {
    static const char *const names[] = {
#define NAME(code, name, help) name,
        KOLO_LR_SCHEDULE_LIST(NAME)};
    return (size_t)schedule < KOLO_COUNT(names) ? names[schedule] : "unknown";
}

const char *kolo_autotune_name(kolo_autotune autotune) {
    static const char *const names[] = {KOLO_AUTOTUNE_LIST(NAME)};
    return (size_t)autotune < KOLO_COUNT(names) ? names[autotune] : "unknown";
}

const char *kolo_sync_name(kolo_sync sync) {
    static const char *const names[] = {KOLO_SYNC_LIST(NAME)};
    return (size_t)sync < KOLO_COUNT(names) ? names[sync] : "unknown";
}

const char *kolo_save_error_name(kolo_save_error save_error) {
    static const char *const names[] = {KOLO_SAVE_ERROR_LIST(NAME)};
#undef NAME
    return (size_t)save_error < KOLO_COUNT(names) ? names[save_error] : "unknown";
}

static void add_number(kolo_text *text, const char *name, double number) {
    char digits[32];
    kolo_double_text(number, digits);
    kolo_text_add(text, "%s: %s\n", name, digits);
}

static void describe_schedule(const kolo_setup *setup, kolo_text *text) {
    const kolo_train_opts *o = &setup->opts;
    add_number(text, "lr", o->lr);
    kolo_text_add(text, "schedule: %s\n", kolo_lr_schedule_name(o->schedule));
    add_number(text, "warmup-epochs", o->warmup_epochs);
    if (o->schedule == KOLO_LR_STEP) {
        add_number(text, "lr-step-factor", o->lr_step_factor);
        kolo_text_add(text, "lr-step-epochs: %" PRId64 "\n", o->lr_step_epochs);
    } else if (kolo_lr_has_end(o->schedule)) {
        add_number(text, "lr-min", o->lr_min);
        if (o->schedule == KOLO_LR_POLY) add_number(text, "lr-power", o->lr_power);
        kolo_text_add(text, "steps of the %s: %" PRId64 "\n", kolo_lr_schedule_name(o->schedule),
                      setup->total_steps);
    }
    if (o->scale_lr > 0) kolo_text_add(text, "scale-lr: %" PRId64 "\n", o->scale_lr);
}

static void describe_optimizer(const kolo_optimizer_opts *o, kolo_text *text) {
    kolo_text_add(text, "optimizer: %s\n", kolo_optimizer_name(o->kind));
    if (kolo_optimizer_has_momentum(o->kind)) {
        add_number(text, "momentum", o->momentum);
        if (o->delay > 0) kolo_text_add(text, "delay: %" PRId64 "\n", o->delay);
        if (o->delay > 0) add_number(text, "ahead", o->ahead);
    } else {
        add_number(text, "beta1", o->beta1);
        add_number(text, "beta2", o->beta2);
        add_number(text, "eps", o->eps);
    }
    add_number(text, "weight-decay", o->weight_decay);
    add_number(text, "clip", o->clip);
    kolo_text_add(text, "decay-matrices-only: %s\n", o->decay_matrices_only ? "true" : "false");
    if (o->no_decay && *o->no_decay) kolo_text_add(text, "no-decay: %s\n", o->no_decay);
    if (o->freeze && *o->freeze) kolo_text_add(text, "freeze: %s\n", o->freeze);
    if (!kolo_optimizer_scales(o->kind)) return;
    if (o->kind == KOLO_OPTIMIZER_LARS) add_number(text, "trust", o->trust);
    kolo_text_add(text, "scale-matrices-only: %s\nno-scale: %s\n",
                  o->scale_matrices_only ? "true" : "false", o->no_scale ? o->no_scale : "");
}

/* Results depend on which layers are computed in blocks, on any mesh. */
static void describe_blocks(const kolo_setup *setup, kolo_text *text) {
    const char *given = setup->session.plan.placement; /* in kolo_fit those of the session */
    const char *rules = given ? given : kolo_placement_rules(NULL);
    kolo_text_add(text, "tp-blocks: %" PRId64 "\nhash of the --placement rules: %016" PRIx64 "\n",
                  setup->opts.tp_blocks, kolo_hash_text(rules));
}

/* Checkpoints keep these lines: one that was added later is there only if it applies, so that a run
 * of an earlier version resumes. */
void kolo_setup_describe_learning(const kolo_setup *setup, kolo_text *text) {
    const kolo_train_opts *o = &setup->opts;
    const kolo_dataset_info *info = kolo_dataset_describe(setup->train);
    kolo_text_add(text, "model: %s\nmodel options: %s\n", o->model,
                  o->model_options ? o->model_options : "");
    kolo_text_add(text, "data: %s\nsamples: %" PRId64 "\nseed: %" PRIu64 "\naugment: %s\n",
                  info->name, info->count, o->seed, o->augment ? o->augment : "");
    kolo_text_add(text, KOLO_STEP_SAMPLES "%" PRId64, setup->global_batch);
    if (o->global_batch == 0) {
        kolo_text_add(text, " = %" PRId64 " x %" PRId64 " x %" PRId64, o->batch, o->accumulate,
                      (int64_t)setup->workers);
    }
    kolo_text_add(text, "\n");
    if (setup->normalizes) kolo_text_add(text, "batch: %" PRId64 "\n", o->batch);
    describe_optimizer(&o->optimizer, text);
    kolo_text_add(text, "sparse-embedding: %s\n", o->sparse_embedding ? "true" : "false");
    if (o->sync_bn) kolo_text_add(text, "sync-bn: true\n");
    if (o->table) {
        kolo_text_add(text,
                      "table: %s\ntable-consistency: %s\ntable-bytes: %" PRId64
                      "\ntable-admit: %" PRId64 "\ntable-expire: %" PRId64 "\ntable-refuse: %d\n",
                      o->table, o->table_consistency ? o->table_consistency : "", o->table_bytes,
                      o->table_admit, o->table_expire, o->table_refuse);
        if (o->table_expire_seconds > 0)
            add_number(text, "table-expire-seconds", o->table_expire_seconds);
        if (o->table_prefetch) kolo_text_add(text, "table-prefetch: 1\n");
    }
    bool policy = setup->session.consistency.kind != KOLO_CONSISTENCY_BSP;
    bool codes =
        kolo_compresses(&setup->session.plan.compression) || kolo_compresses(&setup->session.codes);
    if (policy) kolo_text_add(text, "consistency: %s\n", o->consistency);
    if (codes) {
        kolo_text_add(text, "compress: %s\ncompress-min-bytes: %" PRId64 "\n", o->compress,
                      o->compress_min_bytes);
    }
    if (policy || codes) kolo_text_add(text, "workers: %d\n", setup->workers);
    describe_schedule(setup, text);
    kolo_text_add(text, "precision: %s\n", kolo_precision_name(o->precision));
    if (o->reproducible > 0) kolo_text_add(text, "reproducible: %" PRId64 "\n", o->reproducible);
    if (o->tp_blocks > 0) describe_blocks(setup, text);
}

void kolo_setup_describe(const kolo_setup *setup, kolo_text *text) {
    const kolo_train_opts *o = &setup->opts;
    kolo_setup_describe_learning(setup, text);
    kolo_text_add(text, "kolo: %s\ninit: %s%s\n", kolo_version(), o->init ? o->init : "",
                  o->init_partial ? ", partial" : "");
    kolo_text_add(text,
                  "batch: %" PRId64 "\naccumulate: %" PRId64 "\nepochs: %" PRId64
                  "\nsteps: %" PRId64 "\n",
                  o->batch, o->accumulate, o->epochs, o->steps);
    char mesh[KOLO_MESH_TEXT];
    kolo_text_add(text, "mesh: %s\nplacement: %s\nzero: %d\nno-share: %d\nsync: %s\nservers: %d\n",
                  kolo_mesh_text(&setup->mesh, mesh), o->placement ? o->placement : "", o->zero,
                  o->no_share, kolo_sync_name(o->sync), o->servers);
    kolo_text_add(text, "replicas: %d\nno-local-aggregate: %d\n", o->replicas,
                  o->no_local_aggregate);
    if (kolo_mesh_stages(&setup->mesh) > 1) {
        kolo_text_add(text, "pipeline: %s", setup->session.schedule->name);
        if (setup->session.schedule->chunks == 0) {
            kolo_text_add(text, ":%d", setup->session.chunks);
        }
        kolo_text_add(text, "\n");
    }
    kolo_text_add(text, "stage-memory: %" PRId64 "\nrebalance-stages: %" PRId64 "\n",
                  o->stage_bytes, o->rebalance_stages);
    kolo_text_add(text, "no-cross-step: %d\nno-chains: %d\nlanes: %d\n", o->no_cross_step,
                  o->no_chains, (int)o->lanes);
    kolo_text_add(text, "global-batch: %" PRId64 "\nworker-weights: %s\n", o->global_batch,
                  o->worker_weights ? o->worker_weights : "");
    kolo_text_add(text, "check-replicas: %" PRId64 "\naudit: %" PRId64 "\n", o->check_replicas,
                  o->audit);
    kolo_text_add(
        text, "kernels: %s\nalgorithm: %s\nautotune: %s\nbucket-bytes: %" PRId64 "\nbuckets: %s\n",
        o->reference_kernels ? "ref"
        : o->no_winograd     ? "direct"
                             : "best",
        kolo_algorithm_name(o->algorithm), kolo_autotune_name(o->autotune), o->bucket_bytes,
        o->buckets ? o->buckets : "");
    kolo_text_add(text,
                  "recompute: %s\neval: %d\neval-every: %" PRId64 " epochs, %" PRId64
                  " steps\nlog-every: %" PRId64 "\nin memory: %d\n",
                  kolo_recompute_name(o->recompute), !o->no_eval, o->eval_every, o->eval_steps,
                  o->log_every, o->in_memory);
    kolo_text_add(text, "device: %s\n", o->device ? o->device : "auto");
    kolo_text_add(text, "strict: %d\nrecord: %s\nreplay: %s\nledger: %s\n", o->strict,
                  o->record ? o->record : "", o->replay ? o->replay : "",
                  o->ledger ? o->ledger : "");
    kolo_text_add(text,
                  "checkpoint-every: %" PRId64 " steps, %" PRId64 " epochs\nresume: %s\n"
                  "on-save-error: %s\nwait-for-saves: %d\nkeep-best: %s\npatience: %" PRId64 "\n",
                  o->checkpoint_steps, o->checkpoint_epochs, o->resume ? o->resume : "",
                  kolo_save_error_name(o->save_error), o->wait_for_saves,
                  o->keep_best ? o->keep_best : "", o->patience);
    add_number(text, "seconds between checkpoints", o->checkpoint_seconds);
}

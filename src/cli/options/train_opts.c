/* Converts command-line options to the options of kolo_train. */
#include "cli/options/train_opts.h"

#include "cli/options/cache_folder.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { DEFAULT_BATCH = 64 };

kolo_status train_opts_model(kolo_options *o, const char **model, const char **model_options) {
    char *name = kolo_arena_strdup(&o->arena, kolo_options_text(o, "model"));
    if (!name) return KOLO_NOMEM(strlen(kolo_options_text(o, "model")));
    char *colon = strchr(name, ':');
    if (colon) *colon = '\0';
    *model = name;
    *model_options = colon ? colon + 1 : NULL;
    return KOLO_OK;
}

void train_opts_notice(void *arg, const char *line, kolo_notice_kind kind) {
    bool terminal = isatty(STDERR_FILENO), passing = kind == KOLO_NOTICE_TRANSIENT;
    if (passing && !terminal) return;
    fprintf(stderr, terminal ? "\r\033[K%s%s" : "%s%s", line, passing ? "" : "\n");
}

void train_opts_warning(void *arg, const char *line, kolo_notice_kind kind) {
    if (kind == KOLO_NOTICE_WARNING) train_opts_notice(arg, line, kind);
}

kolo_status train_opts_tuning(kolo_options *o, const char **path) {
    char *text;
    *path = kolo_options_text(o, "tuning");
    if (*path) return KOLO_OK;
    KOLO_TRY(cache_path("tuning.txt", false, &text));
    if (text) *path = kolo_arena_strdup(&o->arena, text);
    bool failed = text && !*path;
    kolo_free(text);
    return failed ? KOLO_NOMEM(64) : KOLO_OK;
}

kolo_optimizer_opts train_opts_optimizer(const kolo_options *o) {
    return (kolo_optimizer_opts){
        .kind = (kolo_optimizer)kolo_options_choice(o, "optimizer"),
        .momentum = kolo_options_float(o, "momentum"),
        .beta1 = kolo_options_float(o, "beta1"),
        .beta2 = kolo_options_float(o, "beta2"),
        .eps = kolo_options_float(o, "eps"),
        .weight_decay = kolo_options_float(o, "weight-decay"),
        .decay_matrices_only = kolo_options_flag(o, "decay-matrices-only"),
        .clip = kolo_options_float(o, "clip"),
    };
}

void train_opts_shards(const kolo_options *o, kolo_train_opts *opts) {
    opts->mesh = kolo_options_text(o, "mesh");
    opts->global_batch = kolo_options_int(o, "global-batch");
    opts->reproducible = kolo_options_int(o, "reproducible");
    opts->worker_weights = kolo_options_text(o, "worker-weights");
    if (opts->batch == 0 && opts->global_batch == 0) opts->batch = DEFAULT_BATCH;
}

void train_opts_prepare(kolo_options *o) {
    bool batch = kolo_options_typed(o, "batch"), global = kolo_options_typed(o, "global-batch");
    if (batch && !global) kolo_options_unset(o, "global-batch");
    if (global && !batch) kolo_options_unset(o, "batch");
}

int train_opts_threads(const kolo_options *o) {
    bool one = kolo_options_given(o, "reproducible") && !kolo_options_given(o, "threads");
    return one ? 1 : (int)kolo_options_int(o, "threads");
}

kolo_status train_opts_make(kolo_options *o, int threads, kolo_train_opts *opts) {
    *opts = (kolo_train_opts){
        .data = kolo_options_text(o, "data"),
        .batch = kolo_options_int(o, "batch"),
        .accumulate = kolo_options_int(o, "accumulate"),
        .optimizer = train_opts_optimizer(o),
        .sparse_embedding = kolo_options_flag(o, "sparse-embedding"),
        .threads = threads,
        .reference_kernels = kolo_options_choice(o, "kernels") == KERNEL_SET_REF,
        .no_winograd = !kolo_options_flag(o, "winograd"),
        .recompute = (kolo_recompute)kolo_options_choice(o, "recompute"),
        .precision = (kolo_precision)kolo_options_choice(o, "precision"),
        .bucket_bytes = kolo_options_int(o, "bucket-bytes"),
        .trace = kolo_options_text(o, "trace"),
        .algorithm = (kolo_algorithm)kolo_options_choice(o, "algorithm"),
    };
    opts->autotune = (kolo_autotune)kolo_options_choice(o, "autotune");
    opts->notice = train_opts_notice;
    KOLO_TRY(train_opts_tuning(o, &opts->tuning));
    return train_opts_model(o, &opts->model, &opts->model_options);
}

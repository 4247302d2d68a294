/* Converts command-line options to the options of kolo_train. */
#include "cli/options/train_opts.h"

#include "cli/options/cache_folder.h"
#include "cli/output/output.h"
#include "kolo/mesh.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

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
    bool terminal = output_moves_cursor(), passing = kind == KOLO_NOTICE_TRANSIENT;
    if (passing && !terminal) return;
    /* A transient line that wrapped could not be cleared. */
    int most = passing ? output_columns() - 1 : INT_MAX;
    fprintf(stderr, terminal ? "\r\033[K%.*s%s" : "%.*s%s", most, line, passing ? "" : "\n");
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
        .trust = kolo_options_float(o, "trust"),
        .decay_matrices_only = kolo_options_flag(o, "decay-matrices-only"),
        .no_decay = kolo_options_text(o, "no-decay"),
        .scale_matrices_only = kolo_options_flag(o, "scale-matrices-only"),
        .no_scale = kolo_options_text(o, "no-scale"),
        .clip = kolo_options_float(o, "clip"),
        .freeze = kolo_options_text(o, "freeze"),
    };
}

/* The number of workers of --mesh; 0: it states none. */
static int mesh_size(const kolo_options *o) {
    const char *mesh = kolo_options_text(o, "mesh");
    return mesh ? kolo_mesh_workers(mesh, NULL) : 0;
}

void train_opts_shards(const kolo_options *o, kolo_train_opts *opts) {
    opts->mesh = kolo_options_text(o, "mesh");
    opts->placement = kolo_options_text(o, "placement");
    opts->pipeline = kolo_options_text(o, "pipeline");
    opts->stage_bytes = kolo_options_int(o, "stage-memory");
    opts->rebalance_stages = kolo_options_int(o, "rebalance-stages");
    opts->global_batch = kolo_options_int(o, "global-batch");
    opts->reproducible = kolo_options_int(o, "reproducible");
    opts->tp_blocks = kolo_options_int(o, "tp-blocks");
    opts->consistency = kolo_options_text(o, "consistency");
    opts->compress = kolo_options_text(o, "compress");
    opts->compress_min_bytes = kolo_options_int(o, "compress-min-bytes");
    opts->zero = (int)kolo_options_int(o, "zero");
    if (kolo_options_has(o, "sync")) {
        opts->sync = (kolo_sync)kolo_options_choice(o, "sync");
        opts->servers = (int)kolo_options_int(o, "servers");
        opts->replicas = (int)kolo_options_int(o, "replicas");
        opts->no_local_aggregate = !kolo_options_flag(o, "local-aggregate");
        opts->table = kolo_options_text(o, "table");
        opts->table_consistency = kolo_options_text(o, "table-consistency");
        opts->table_bytes = kolo_options_int(o, "table-bytes");
        opts->table_admit = kolo_options_int(o, "table-admit");
        opts->table_refuse = kolo_options_flag(o, "table-refuse");
        opts->table_prefetch = kolo_options_flag(o, "table-prefetch");
        opts->joins = (int)kolo_options_int(o, "joins");
        opts->join = kolo_options_text(o, "join");
        opts->record = kolo_options_text(o, "record");
        opts->replay = kolo_options_text(o, "replay");
    }
    if (kolo_options_has(o, "ledger")) opts->ledger = kolo_options_text(o, "ledger");
    opts->no_share = !kolo_options_flag(o, "share");
    opts->no_cross_step = !kolo_options_flag(o, "cross-step");
    if (kolo_options_has(o, "buckets")) opts->buckets = kolo_options_text(o, "buckets");
    opts->worker_weights = kolo_options_text(o, "worker-weights");
    if (opts->batch == 0 && opts->global_batch == 0) opts->batch = DEFAULT_BATCH;
}

/* Whether an option is set to something other than nothing, zero, none or false. */
static bool is_on(const kolo_options *o, const char *name) {
    const char *text = kolo_options_value_text(o, name);
    return text && strcmp(text, "0") != 0 && strcmp(text, "none") != 0 &&
           strcmp(text, "false") != 0;
}

int train_opts_workers(const kolo_options *o, int workers) {
    const int size = mesh_size(o);
    const bool file = kolo_options_typed(o, "workers") ||
                      (kolo_options_given(o, "workers") && !kolo_options_typed(o, "mesh"));
    return workers > 0 && size > 0 && !file ? size : workers;
}

/* The workers along an axis; 0: the mesh does not state them. */
static int along(const kolo_options *o, const char *axis) {
    const char *mesh = kolo_options_text(o, "mesh");
    return mesh ? kolo_mesh_workers(mesh, axis) : 1;
}

/* Whether the mesh may have several workers along an axis. */
static bool has_axis(const kolo_options *o, const char *axis) { return along(o, axis) != 1; }

int train_opts_together(const kolo_options *o, int workers) {
    const int others = along(o, "tp") * along(o, "sp") * along(o, "ep") * along(o, "pp"),
              data = along(o, "dp");
    return others > 0 ? others : workers / (data > 0 ? data : 1);
}

static bool divides_model(const kolo_options *o) {
    return has_axis(o, "tp") || has_axis(o, "sp") || has_axis(o, "ep") || has_axis(o, "pp");
}

/* Whether parameters have owners, apart from the workers or not. */
static bool types_owners(const kolo_options *o) {
    return kolo_options_has(o, "sync") && kolo_options_typed(o, "sync") &&
           kolo_options_choice(o, "sync") != KOLO_SYNC_ALLREDUCE;
}

/* Removes a value of a file. */
static void drop(kolo_options *o, const char *option) {
    if (kolo_options_has(o, option) && !kolo_options_typed(o, option)) {
        kolo_options_unset(o, option);
    }
}

/* Whether ZeRO and the mesh exclude each other: in one that divides the model several workers on dp
 * can divide the optimizer state. */
static bool excludes_zero(const kolo_options *o) {
    const bool divides = divides_model(o) && is_on(o, "zero");
    return divides && (kolo_options_int(o, "zero") > 1 || !has_axis(o, "dp"));
}

/* A mesh of a file, unless what is typed goes with it. */
static bool drops_mesh(const kolo_options *o) {
    const int size = mesh_size(o);
    if (!kolo_options_given(o, "mesh") || kolo_options_typed(o, "mesh")) return false;
    if (kolo_options_typed(o, "workers") && size > 0 && size != kolo_options_int(o, "workers")) {
        return true;
    }
    const bool zero = kolo_options_typed(o, "zero") && excludes_zero(o);
    return zero || (divides_model(o) && types_owners(o));
}

/* Removes a mesh of a file; its size remains the number of workers. */
static kolo_status drop_mesh(kolo_options *o) {
    const int size = mesh_size(o);
    char text[16];
    snprintf(text, sizeof text, "%d", size);
    drop(o, "mesh");
    if (kolo_options_given(o, "workers") || size == 0) return KOLO_OK;
    return kolo_options_set_from_file(o, "mesh", "workers", text);
}

/* Whether layers are computed in blocks, by the rules of --placement, on any mesh. */
static bool has_blocks(const kolo_options *o) {
    return kolo_options_has(o, "tp-blocks") && kolo_options_given(o, "tp-blocks");
}

/* Whether a placement of a file is for another mesh. Rules of one's own for attention may be for
 * layers too, which an axis tp divides: where they do not fit it, the run ends with the reason. */
static bool drops_placement(const kolo_options *o) {
    const char *placement = kolo_options_text(o, "placement");
    if (!placement || has_blocks(o) || has_axis(o, kolo_placement_axis(placement))) return false;
    return !kolo_placement_path(placement) || !has_axis(o, "tp");
}

/* What a file has for the stages of a pipeline, in a mesh without them. */
static void drop_stages(kolo_options *o) {
    if (has_axis(o, "pp")) return;
    drop(o, "stage-memory");
    drop(o, "rebalance-stages");
    if (kolo_options_has(o, "reproducible") && !kolo_options_given(o, "reproducible")) {
        drop(o, "worker-weights");
    }
}

/* Options that determine how the workers divide the model. */
static kolo_status replace_layout(kolo_options *o) {
    const bool other = drops_mesh(o), mesh = other || kolo_options_typed(o, "mesh");
    if (other) KOLO_TRY(drop_mesh(o));
    if (mesh && drops_placement(o)) drop(o, "placement");
    if (mesh) drop_stages(o);
    if ((mesh && excludes_zero(o)) || types_owners(o)) drop(o, "zero");
    if ((mesh && divides_model(o)) || (kolo_options_typed(o, "zero") && is_on(o, "zero"))) {
        drop(o, "sync");
        drop(o, "servers");
    }
    if (kolo_options_has(o, "sync") && kolo_options_typed(o, "sync") &&
        kolo_options_choice(o, "sync") != KOLO_SYNC_PS) {
        drop(o, "servers");
    }
    return KOLO_OK;
}

kolo_status train_opts_prepare(kolo_options *o) {
    bool batch = kolo_options_typed(o, "batch"), global = kolo_options_typed(o, "global-batch");
    if (batch && !global) kolo_options_unset(o, "global-batch");
    if (global && !batch) kolo_options_unset(o, "batch");
    return replace_layout(o);
}

int train_opts_threads(const kolo_options *o) {
    bool one = kolo_options_given(o, "reproducible") && !kolo_options_given(o, "threads");
    return one ? 1 : (int)kolo_options_int(o, "threads");
}

kolo_status train_opts_rows(kolo_options *o, const kolo_comm *comm, kolo_train_opts *opts) {
    const size_t n = (size_t)kolo_comm_size(comm);
    opts->times_by_rank = kolo_arena_alloc(&o->arena, n * sizeof *opts->times_by_rank);
    opts->memory_by_rank = kolo_arena_alloc(&o->arena, n * sizeof *opts->memory_by_rank);
    return opts->times_by_rank && opts->memory_by_rank ? KOLO_OK
                                                       : KOLO_NOMEM(n * sizeof(kolo_step_time));
}

#define BIT(choice) (1U << (choice))
#define ADAMS (BIT(KOLO_OPTIMIZER_ADAM) | BIT(KOLO_OPTIMIZER_ADAMW) | BIT(KOLO_OPTIMIZER_LAMB))
#define SCALING (BIT(KOLO_OPTIMIZER_LARS) | BIT(KOLO_OPTIMIZER_LAMB))

/* Options that have an effect only with certain values of another. */
static const struct {
    const char *option, *other;
    uint32_t choices;   /* values of `other`, an enumerated option; 0: `other` must be on */
    const char *advice; /* arguments with which the option has an effect */
} effects[] = {
    {"beta1", "optimizer", ADAMS, "--optimizer adam, adamw or lamb"},
    {"beta2", "optimizer", ADAMS, "--optimizer adam, adamw or lamb"},
    {"eps", "optimizer", ADAMS, "--optimizer adam, adamw or lamb"},
    {"trust", "optimizer", BIT(KOLO_OPTIMIZER_LARS), "--optimizer lars"},
    {"scale-matrices-only", "optimizer", SCALING, "--optimizer lars or lamb"},
    {"no-scale", "optimizer", SCALING, "--optimizer lars or lamb"},
    {"lr-min", "schedule", BIT(KOLO_LR_COSINE) | BIT(KOLO_LR_POLY), "--schedule cosine or poly"},
    {"lr-power", "schedule", BIT(KOLO_LR_POLY), "--schedule poly"},
    {"lr-step-factor", "schedule", BIT(KOLO_LR_STEP), "--schedule step"},
    {"lr-step-epochs", "schedule", BIT(KOLO_LR_STEP), "--schedule step"},
    {"decay-matrices-only", "weight-decay", 0, "--weight-decay X"},
    {"no-decay", "weight-decay", 0, "--weight-decay X"},
    {"init-partial", "init", 0, "--init FILE"},
    {"compress-min-bytes", "compress", 0, "--compress CODEC"},
    {"algorithm", "sync", BIT(KOLO_SYNC_ALLREDUCE), "--sync allreduce"},
    {"share", "sync", BIT(KOLO_SYNC_ALLREDUCE), "--sync allreduce"},
    {"local-aggregate", "sync", BIT(KOLO_SYNC_PS) | BIT(KOLO_SYNC_MESH), "--sync ps or mesh"},
    {"table", "sync", BIT(KOLO_SYNC_PS) | BIT(KOLO_SYNC_MESH), "--sync ps or mesh"},
    {"table-consistency", "table", 0, "--table NAMES"},
    {"table-bytes", "table", 0, "--table NAMES"},
    {"table-admit", "table", 0, "--table NAMES"},
    {"table-expire", "table", 0, "--table NAMES"},
    {"table-refuse", "table", 0, "--table NAMES"},
    {"table-prefetch", "table", 0, "--table NAMES"},
    {"cross-step", "sync", BIT(KOLO_SYNC_ALLREDUCE), "--sync allreduce"},
    {"eval-every", "eval", 0, "--eval"},
    {"eval-every-steps", "eval", 0, "--eval"},
};

/* Options of one axis of the mesh, or another one. */
static const struct {
    const char *option, *axis, *other;
} axes[] = {{"pipeline", "pp", NULL},
            {"stage-memory", "pp", NULL},
            {"rebalance-stages", "pp", NULL},
            {"placement", "tp", "sp"}};

static kolo_status check_axes(const kolo_options *o) {
    for (size_t i = 0; i < KOLO_COUNT(axes); i++) {
        const char *option = axes[i].option, *axis = axes[i].axis;
        const bool given = kolo_options_has(o, option) && kolo_options_typed(o, option);
        const bool other = axes[i].other && (has_axis(o, axes[i].other) || has_blocks(o));
        if (!given || has_axis(o, axis) || other) continue;
        if (axes[i].other) axis = kolo_placement_axis(kolo_options_text(o, option));
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "--%s has no effect without --mesh %s=2: remove it, or give --mesh %s=2",
                         option, axis, axis);
    }
    return KOLO_OK;
}

kolo_status train_opts_check_effects(const kolo_options *o) {
    for (size_t i = 0; i < KOLO_COUNT(effects); i++) {
        const char *option = effects[i].option, *other = effects[i].other;
        if (!kolo_options_has(o, option) || !kolo_options_has(o, other)) continue;
        if (!kolo_options_typed(o, option)) continue; /* files list all options */
        bool works = effects[i].choices ? effects[i].choices >> kolo_options_choice(o, other) & 1
                                        : is_on(o, other);
        if (works) continue;
        return KOLO_FAIL(KOLO_ERR_ARG, "--%s has no effect without %s: remove it, or give %s",
                         option, effects[i].advice, effects[i].advice);
    }
    return kolo_options_has(o, "mesh") ? check_axes(o) : KOLO_OK;
}

kolo_dataset_opts train_opts_no_model(void) {
    return (kolo_dataset_opts){.context = 256,
                               .vocabulary = INT32_MAX,
                               .numbers = 13,
                               .categories = 26,
                               .rows = 10000,
                               .features = 256};
}

int train_opts_loader_threads(const kolo_options *o) {
    if (!kolo_options_given(o, "loader-threads")) return 0;
    const int n = (int)kolo_options_int(o, "loader-threads");
    return n > 0 ? n : KOLO_LOADER_NO_THREAD;
}

kolo_status train_opts_trained(kolo_options *o, kolo_eval_opts *opts) {
    opts->checkpoint = kolo_options_text(o, "checkpoint");
    opts->data = kolo_options_text(o, "data");
    opts->loader_threads = train_opts_loader_threads(o);
    opts->device = kolo_options_text(o, "device");
    opts->split_train = kolo_options_choice(o, "split") == KOLO_SPLIT_TRAIN;
    opts->batch = kolo_options_int(o, "batch");
    opts->autotune = (kolo_autotune)kolo_options_choice(o, "autotune");
    KOLO_TRY(train_opts_tuning(o, &opts->tuning));
    opts->tuning_is_cache = !kolo_options_text(o, "tuning");
    if (!kolo_options_given(o, "model")) return KOLO_OK;
    return train_opts_model(o, &opts->model, &opts->model_options);
}

kolo_status train_opts_make(kolo_options *o, int threads, kolo_train_opts *opts) {
    *opts = (kolo_train_opts){
        .data = kolo_options_text(o, "data"),
        .batch = kolo_options_int(o, "batch"),
        .accumulate = kolo_options_int(o, "accumulate"),
        .optimizer = train_opts_optimizer(o),
        .sparse_embedding = kolo_options_flag(o, "sparse-embedding"),
        .sync_bn = kolo_options_flag(o, "sync-bn"),
        .threads = threads,
        .device = kolo_options_text(o, "device"),
        .reference_kernels = kolo_options_choice(o, "kernels") == KERNEL_SET_REF,
        .no_winograd = !kolo_options_flag(o, "winograd"),
        .no_chains = !kolo_options_flag(o, "chains"),
        .lanes = kolo_options_flag(o, "lanes") ? KOLO_LANES_MEASURED : KOLO_LANES_OFF,
        .recompute = (kolo_recompute)kolo_options_choice(o, "recompute"),
        .precision = (kolo_precision)kolo_options_choice(o, "precision"),
        .bucket_bytes = kolo_options_int(o, "bucket-bytes"),
        .trace = kolo_options_text(o, "trace"),
        .algorithm = (kolo_algorithm)kolo_options_choice(o, "algorithm"),
    };
    KOLO_TRY(train_opts_check_effects(o));
    opts->autotune = (kolo_autotune)kolo_options_choice(o, "autotune");
    opts->notice = train_opts_notice;
    KOLO_TRY(train_opts_tuning(o, &opts->tuning));
    opts->tuning_is_cache = !kolo_options_text(o, "tuning");
    return train_opts_model(o, &opts->model, &opts->model_options);
}

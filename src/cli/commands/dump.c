/* kolo dump: a model's graph, plan and allreduce schedule. */
#include "kolo/dump.h"

#include "base/process.h"
#include "cli/commands/commands.h"
#include "cli/launcher/error_report.h"
#include "cli/options/train_opts.h"
#include "cli/output/output.h"

static kolo_status print_dump(const kolo_dump_opts *opts) {
    char *dump;
    KOLO_TRY(kolo_dump(opts, &dump));
    kolo_text text = {0};
    kolo_text_add(&text, "%s", dump);
    kolo_dump_free(dump);
    kolo_status status = output_print(&text);
    kolo_text_fini(&text);
    return status;
}

#define BIT(what) (1U << (what))
#define PLANS (BIT(KOLO_DUMP_PASSES) | BIT(KOLO_DUMP_PLAN) | BIT(KOLO_DUMP_SCHEDULE))
#define STAGES (PLANS | BIT(KOLO_DUMP_PROGRAM))
#define SERVERS BIT(KOLO_DUMP_SERVERS)
#define OF_STAGES "passes, plan, schedule or program"

/* Options that have no effect on some of what is dumped. */
static const struct {
    const char *option;
    uint32_t whats; /* on which it has one, or which kolo_dump refuses with it */
    const char *list;
} effects[] = {
    {"forward", PLANS, "passes, plan or schedule"},
    {"mesh", STAGES | SERVERS, OF_STAGES},
    {"tp-blocks", STAGES | SERVERS, OF_STAGES},
    {"placement", STAGES, OF_STAGES},
    {"pipeline", STAGES, OF_STAGES},
    {"stage-memory", STAGES, OF_STAGES},
    {"worker-weights", STAGES, OF_STAGES},
    {"zero", STAGES, OF_STAGES},
    {"recompute", STAGES, OF_STAGES},
    {"precision", STAGES, OF_STAGES},
    {"accumulate", STAGES | SERVERS, "passes, plan, schedule, program or servers"},
};

static kolo_status check_what(const kolo_options *o) {
    const uint32_t what = BIT(kolo_options_choice(o, "what"));
    for (size_t i = 0; i < KOLO_COUNT(effects); i++) {
        const char *option = effects[i].option;
        if ((effects[i].whats & what) || !kolo_options_typed(o, option)) continue;
        return KOLO_FAIL(KOLO_ERR_ARG, "--%s is for --what %s: omit it", option, effects[i].list);
    }
    return KOLO_OK;
}

/* Options that have no effect on what is dumped. */
static kolo_status check_options(const kolo_options *o) {
    const char *mesh = kolo_options_text(o, "mesh");
    KOLO_TRY(check_what(o));
    KOLO_TRY(train_opts_check_effects(o));
    if (!mesh || !kolo_options_typed(o, "ranks")) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, "--mesh %s sets the number of ranks: remove --ranks", mesh);
}

int cmd_dump(kolo_options *o) {
    int threads = (int)kolo_options_int(o, "threads");
    const bool several = kolo_options_typed(o, "ranks") || kolo_options_int(o, "zero") > 0;
    kolo_dump_opts opts = {
        .what = (kolo_dump_what)kolo_options_choice(o, "what"),
        .batch = kolo_options_int(o, "batch"),
        .recompute = (kolo_recompute)kolo_options_choice(o, "recompute"),
        .precision = (kolo_precision)kolo_options_choice(o, "precision"),
        .accumulate = kolo_options_int(o, "accumulate"),
        .evaluate = kolo_options_flag(o, "forward"),
        .optimizer = train_opts_optimizer(o),
        .sparse_embedding = kolo_options_flag(o, "sparse-embedding"),
        .sync_bn = kolo_options_flag(o, "sync-bn"),
        .bucket_bytes = kolo_options_int(o, "bucket-bytes"),
        .buckets = kolo_options_text(o, "buckets"),
        .compress = kolo_options_text(o, "compress"),
        .compress_min_bytes = kolo_options_int(o, "compress-min-bytes"),
        .threads = threads ? threads : kolo_processors(),
        .device = kolo_options_text(o, "device"),
        .reference_kernels = kolo_options_choice(o, "kernels") == KERNEL_SET_REF,
        .no_winograd = !kolo_options_flag(o, "winograd"),
        .no_chains = !kolo_options_flag(o, "chains"),
        .lanes = kolo_options_flag(o, "lanes") ? KOLO_LANES_MEASURED : KOLO_LANES_OFF,
        .mesh = kolo_options_text(o, "mesh"),
        .placement = kolo_options_text(o, "placement"),
        .tp_blocks = kolo_options_int(o, "tp-blocks"),
        .pipeline = kolo_options_text(o, "pipeline"),
        .stage_bytes = kolo_options_int(o, "stage-memory"),
        .worker_weights = kolo_options_text(o, "worker-weights"),
        .zero = (int)kolo_options_int(o, "zero"),
        .share = kolo_options_flag(o, "share") && several,
        .cross_step = kolo_options_flag(o, "cross-step"),
        .ranks = (int)kolo_options_int(o, "ranks"),
        .rank = (int)kolo_options_int(o, "rank"),
        .algorithm = (kolo_algorithm)kolo_options_choice(o, "algorithm"),
        .byte_split = kolo_options_typed(o, "servers"), /* not those of the run of a config file */
        .servers = kolo_options_typed(o, "servers") ? (int)kolo_options_int(o, "servers") : 0,
        .cached = kolo_options_choice(o, "autotune") == KOLO_AUTOTUNE_CACHED,
        .notice = train_opts_notice,
    };
    kolo_status status = check_options(o);
    if (status == KOLO_OK) status = train_opts_tuning(o, &opts.tuning);
    if (status == KOLO_OK) status = train_opts_model(o, &opts.model, &opts.model_options);
    if (status == KOLO_OK) status = print_dump(&opts);
    return status == KOLO_OK ? 0 : report_failure(status);
}

/* `kolo dump`: compiles a graph or plan and prints it. */
#include "kolo/dump.h"

#include "device/device.h"
#include "inspect/dump_requests.h"
#include "kernel/select/families.h"
#include "kolo/train.h"
#include "pass/cuts.h"
#include "pass/partition/rules.h"
#include "plan/plan.h"
#include "plan/program/program.h"
#include "train/session/buckets.h"
#include "train/session/compression.h"
#include "train/session/owner.h"
#include "train/session/setup_parts.h"
#include "train/session/share.h"
#include "train/session/tuning.h"

#include <string.h>

static kolo_status build(const kolo_dump_opts *o, kolo_graph **graph) {
    const kolo_model *model;
    KOLO_TRY(kolo_model_find(o->model, &model));
    kolo_graph *g;
    KOLO_TRY(kolo_graph_create(NULL, &g));
    kolo_model_opts opts = {o->batch, o->sample, o->classes, o->model_options};
    const uint64_t errors = kolo_error_count();
    kolo_status status = kolo_model_add(model, g, &opts);
    status = kolo_callback_status(status, errors, o->model);
    if (status == KOLO_OK) status = kolo_graph_check(g);
    if (status != KOLO_OK) {
        kolo_graph_destroy(g);
        return status;
    }
    *graph = g;
    return KOLO_OK;
}

/* The mesh of a plan; one axis of one rank where nothing depends on it. */
static kolo_mesh mesh_of(const kolo_dump_opts *o) {
    kolo_mesh mesh;
    if (o->mesh && kolo_mesh_parse(o->mesh, 0, &mesh) == KOLO_OK) return mesh;
    const bool several = o->zero > 0 || o->share || o->sync_bn || o->compress || o->tp_blocks > 0;
    return (kolo_mesh){several, {{"dp", o->ranks}}};
}

static kolo_compression compression_of(const kolo_dump_opts *o) {
    kolo_compression compression = {.min_bytes = (size_t)o->compress_min_bytes};
    bool measured;
    if (o->compress) (void)kolo_compression_parse(o->compress, &compression, &measured); /* valid */
    return compression;
}

static kolo_plan_opts plan_opts(const kolo_dump_opts *o, kolo_tuner *tuner) {
    return (kolo_plan_opts){
        .train = !o->evaluate,
        .optimizer = o->optimizer,
        .sparse_embedding = o->sparse_embedding,
        .mesh = mesh_of(o),
        .placement = o->placement, /* read by dump_what */
        .tp_blocks = (int)o->tp_blocks,
        .zero = o->zero,
        .share = o->share,
        .cross_step = true,
        .completes = !o->cross_step,
        .runs_ahead = o->accumulate <= 1,
        .no_chains = o->no_chains,
        .lanes = o->lanes,
        .sync_batch_norm = o->sync_bn,
        .compression = compression_of(o),
        .recompute = o->recompute,
        .precision = o->precision,
        .micro_batches = o->accumulate,
        .bucket_bytes = (size_t)o->bucket_bytes,
        .kernels = kolo_kernel_set_of(o->reference_kernels, o->no_winograd),
        .tuner = tuner,
        .threads = o->threads,
    };
}

/* ---- the stages of a pipeline ---- */

/* The program of the schedule --pipeline, with a step's micro-batches, --accumulate. */
static kolo_status create_program(const kolo_dump_opts *o, int stages, kolo_program **program) {
    const kolo_program_schedule *schedule;
    const int micro_batches = o->accumulate > 0 ? (int)o->accumulate : 1;
    int chunks;
    KOLO_TRY(kolo_program_find(o->pipeline, &schedule, &chunks));
    const kolo_parts parts = {stages, chunks, schedule->path};
    KOLO_TRY(kolo_parts_check(&parts));
    return kolo_program_create(schedule, stages, chunks, micro_batches, program);
}

static kolo_parts parts_of(const kolo_program *program) {
    return (kolo_parts){program->stages, program->chunks, program->schedule->path};
}

/* Completes the options of a plan where the mesh has stages: with `program`, which must live until
 * the plan is compiled; NULL: there are none. */
static kolo_status add_stage(const kolo_dump_opts *o, kolo_plan_opts *opts,
                             kolo_program **program) {
    const kolo_mesh *mesh = &opts->mesh;
    const int stages = kolo_mesh_stages(mesh);
    *program = NULL;
    if (stages <= 1) return KOLO_OK;
    KOLO_TRY(create_program(o, stages, program));
    const int stage = kolo_mesh_coordinate(mesh, o->rank, kolo_mesh_find(mesh, "pp"));
    opts->parts = parts_of(*program);
    if (!opts->train) return KOLO_OK;
    opts->slots = (*program)->stage[stage].slots;
    opts->splits = (*program)->schedule->splits;
    return KOLO_OK;
}

static kolo_status weigh(const kolo_dump_opts *o, const kolo_mesh *mesh, kolo_cut_choice *c) {
    double *weights = kolo_alloc((size_t)o->ranks * sizeof *weights);
    if (!weights) return KOLO_NOMEM((size_t)o->ranks * sizeof *weights);
    const kolo_status status = kolo_weights_parse(o->worker_weights, o->ranks, weights);
    if (status == KOLO_OK) kolo_stage_speeds(mesh, weights, c->speeds);
    kolo_free(weights);
    c->opts.speeds = c->speeds;
    return status;
}

static kolo_status find_costs(const kolo_dump_opts *o, kolo_tuner *tuner, kolo_cut_choice *c) {
    kolo_graph *g;
    const kolo_plan_opts plan = plan_opts(o, tuner);
    kolo_pipeline_opts passes = kolo_plan_passes(&plan);
    passes.train = true;
    KOLO_TRY(build(o, &g));
    const kolo_status status = kolo_unit_costs_find(g, &passes, &c->costs);
    kolo_graph_destroy(g);
    c->opts.costs = &c->costs;
    return status;
}

static kolo_status open_choice(const kolo_dump_opts *o, kolo_tuner *tuner, kolo_cut_choice *c) {
    const kolo_mesh mesh = mesh_of(o);
    const int stages = kolo_mesh_stages(&mesh);
    kolo_program *program;
    *c = (kolo_cut_choice){.opts.most_bytes = (double)o->stage_bytes};
    KOLO_TRY(build(o, &c->graph));
    KOLO_TRY(kolo_pass_fold(c->graph, true));
    KOLO_TRY(create_program(o, stages, &program));
    c->opts.parts = parts_of(program);
    kolo_program_part_slots(program, c->slots);
    c->opts.slots = c->slots;
    kolo_program_destroy(program);
    if (o->worker_weights) KOLO_TRY(weigh(o, &mesh, c));
    return tuner || o->stage_bytes > 0 ? find_costs(o, tuner, c) : KOLO_OK;
}

/* Chooses the cuts where the mesh has stages; their names are of `names`. */
static kolo_status choose_cuts(const kolo_dump_opts *o, kolo_tuner *tuner, kolo_stage_cuts *cuts,
                               kolo_arena *names) {
    const kolo_mesh mesh = mesh_of(o);
    kolo_cut_choice c;
    if (kolo_mesh_stages(&mesh) <= 1) return KOLO_OK;
    kolo_status status = open_choice(o, tuner, &c);
    if (status == KOLO_OK) status = kolo_pass_cuts(c.graph, &c.opts, cuts, names);
    kolo_cut_choice_fini(&c);
    return status;
}

/* Chooses the cuts of the plans of a store, where the mesh has stages. */
static kolo_status cut_store(const kolo_dump_opts *o, kolo_tuner *tuner, kolo_store *store) {
    const kolo_mesh mesh = mesh_of(o);
    kolo_text lines = {0};
    kolo_cut_choice c;
    if (kolo_mesh_stages(&mesh) <= 1) return KOLO_OK;
    kolo_status status = open_choice(o, tuner, &c);
    if (status == KOLO_OK) status = kolo_cut_choice_make(&c, &lines);
    if (status == KOLO_OK && lines.failed) status = KOLO_NOMEM(lines.length);
    if (status == KOLO_OK) status = kolo_store_set_cuts(store, lines.text);
    kolo_text_fini(&lines);
    kolo_cut_choice_fini(&c);
    return status;
}

/* Where the model is cut into the parts of the stages. */
static kolo_status dump_cuts(const kolo_dump_opts *o, kolo_tuner *tuner, kolo_text *text) {
    kolo_cut_choice c;
    kolo_status status = open_choice(o, tuner, &c);
    if (status == KOLO_OK) status = kolo_cuts_print(c.graph, &c.opts, text);
    kolo_cut_choice_fini(&c);
    return status;
}

/* ---- graphs and plans ---- */

static kolo_status run_passes(const kolo_dump_opts *o, kolo_tuner *tuner, kolo_graph *g,
                              kolo_text *text) {
    kolo_plan_opts plan = plan_opts(o, tuner);
    kolo_stage_cuts cuts = {0};
    kolo_arena names = {0};
    kolo_program *program;
    KOLO_TRY(add_stage(o, &plan, &program));
    kolo_pipeline_opts passes = kolo_plan_passes(&plan);
    passes.cuts = &cuts;
    passes.cut_names = &names;
    kolo_pipeline_print(&passes, text);
    kolo_status status = choose_cuts(o, tuner, &cuts, &names);
    if (status == KOLO_OK) status = kolo_pipeline_run(g, &passes);
    kolo_arena_fini(&names);
    kolo_program_destroy(program);
    return status;
}

static kolo_status dump_graph(const kolo_dump_opts *o, kolo_tuner *tuner, kolo_text *text) {
    kolo_graph *g;
    KOLO_TRY(build(o, &g));
    kolo_status status = KOLO_OK;
    if (o->what == KOLO_DUMP_PASSES) {
        status = run_passes(o, tuner, g, text);
    }
    if (status == KOLO_OK) kolo_graph_print(g, text);
    kolo_graph_destroy(g);
    if (status == KOLO_OK && o->what == KOLO_DUMP_GRAPH && o->sparse_embedding && o->notice) {
        o->notice(
            o->notice_arg,
            "dump: --sparse-embedding takes effect in the passes: use --what passes or plan; the "
            "graph is as the model builds it",
            KOLO_NOTICE_INFO);
    }
    return status;
}

/* Level 3 of ZeRO: the plan of training decides which ranges of parameters a rank has; that of
 * evaluation gathers them. */
static kolo_status add_ranges(const kolo_dump_opts *o, const kolo_plan_opts *evaluation,
                              kolo_store *store, kolo_comm *comm) {
    kolo_graph *g;
    kolo_plan *plan = NULL;
    kolo_plan_opts opts = *evaluation;
    opts.train = true;
    if (evaluation->train || kolo_plan_level(evaluation) < 3) return KOLO_OK;
    KOLO_TRY(build(o, &g));
    kolo_status status = kolo_plan_compile(g, &opts, store, comm, &plan);
    kolo_plan_destroy(plan);
    return status;
}

/* The size of the group that a plan is compiled for. */
static int plan_ranks(const kolo_dump_opts *o) {
    const bool several = o->what == KOLO_DUMP_SCHEDULE || o->zero > 0 || o->share || o->mesh ||
                         o->compress || o->tp_blocks > 0;
    return several ? o->ranks : 1;
}

static kolo_status build_model(const void *opts, kolo_graph **graph) { return build(opts, graph); }

/* As in kolo train, the ranks of a host share the parameters or have copies. */
static kolo_status choose_copies(const kolo_dump_opts *o, kolo_plan_opts *opts) {
    if (!opts->share || o->evaluate) return KOLO_OK;
    KOLO_TRY(kolo_prefers_copies(opts, o->ranks, build_model, o, &opts->near));
    opts->share = !opts->near;
    return KOLO_OK;
}

static const char *why_no_collectives(const kolo_plan_opts *opts) {
    return opts->train && kolo_mesh_stages(&opts->mesh) > 1
               ? "the stages of a pipeline exchange messages, which --what program prints"
               : "only a training step has them";
}

/* A plan as a rank of a group compiles it. The ranks are threads, of which only this one exists:
 * compiling is local to each rank. */
static kolo_status dump_plan(const kolo_dump_opts *o, kolo_tuner *tuner, kolo_text *text) {
    bool schedule = o->what == KOLO_DUMP_SCHEDULE;
    const int ranks = plan_ranks(o);
    kolo_graph *g;
    kolo_device *device = NULL;
    kolo_store *store = NULL;
    kolo_plan *plan = NULL;
    kolo_program *program = NULL;
    kolo_status status = KOLO_OK;
    size_t *sizes = NULL;
    int n_sizes = 0;
    kolo_comm **comms = kolo_zalloc((size_t)ranks * sizeof *comms);
    if (!comms) return KOLO_NOMEM((size_t)ranks * sizeof *comms);
    if (o->buckets) KOLO_TRY_GOTO(kolo_bucket_sizes_parse(o->buckets, &sizes, &n_sizes), done);
    KOLO_TRY_GOTO(kolo_device_open(o->device, 0, &device), done);
    KOLO_TRY_GOTO(kolo_store_create(device, &store), done);
    KOLO_TRY_GOTO(cut_store(o, tuner, store), done);
    KOLO_TRY_GOTO(kolo_comm_create_threads(ranks, NULL, comms), done);
    kolo_plan_opts opts = plan_opts(o, tuner);
    opts.bucket_sizes = sizes;
    opts.n_bucket_sizes = n_sizes;
    opts.algorithm = o->algorithm;
    opts.cross_step &= ranks > 1 && kolo_mesh_stages(&opts.mesh) <= 1;
    KOLO_TRY_GOTO(add_stage(o, &opts, &program), done);
    KOLO_TRY_GOTO(choose_copies(o, &opts), done);
    KOLO_TRY_GOTO(add_ranges(o, &opts, store, comms[o->rank]), done);
    KOLO_TRY_GOTO(build(o, &g), done);
    KOLO_TRY_GOTO(kolo_plan_compile(g, &opts, store, comms[o->rank], &plan), done);
    if (schedule) {
        status = kolo_dump_requests(plan, why_no_collectives(&opts), text);
    } else {
        kolo_plan_print(plan, text);
    }
done:
    kolo_plan_destroy(plan);
    kolo_program_destroy(program);
    kolo_store_destroy(store);
    kolo_device_close(device);
    kolo_free(sizes);
    for (int r = 0; r < ranks; r++) kolo_comm_destroy(comms[r]);
    kolo_free((void *)comms);
    return status;
}

/* The program of the axis pp, which has a step's micro-batches, --accumulate. */
static kolo_status dump_program(const kolo_dump_opts *o, kolo_tuner *tuner, kolo_text *text) {
    kolo_program *program;
    kolo_mesh mesh = {0};
    if (o->mesh) KOLO_TRY(kolo_mesh_parse(o->mesh, 0, &mesh));
    const int axis = kolo_mesh_find(&mesh, "pp");
    if (axis < 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a program needs the stages of a pipeline: give --mesh "
                                       "pp=4, for example");
    }
    KOLO_TRY(create_program(o, mesh.axes[axis].size, &program));
    kolo_status status = kolo_program_print(program, text);
    if (status == KOLO_OK) status = dump_cuts(o, tuner, text);
    kolo_program_destroy(program);
    return status;
}

static kolo_status dump_servers(const kolo_dump_opts *o, kolo_tuner *tuner, kolo_text *text) {
    const int workers = o->ranks - o->servers;
    const bool works = o->byte_split && o->servers < workers;
    const kolo_owner_opts opts = {.owners = o->byte_split && !works ? o->servers : o->ranks,
                                  .working = works ? workers : 0,
                                  .buckets = o->byte_split,
                                  .codes = compression_of(o)};
    kolo_dump_opts whole = *o; /* owners sum what they have decoded */
    whole.compress = NULL;
    kolo_plan_opts plan = plan_opts(&whole, tuner);
    kolo_owner *owner;
    kolo_graph *g;
    plan.share = plan.cross_step = false; /* as in kolo train, where owners have the parameters */
    KOLO_TRY(build(o, &g));
    KOLO_TRY(kolo_owner_create(g, &plan, &opts, &owner));
    kolo_status status = kolo_owner_print(owner, text);
    kolo_owner_destroy(owner);
    return status;
}

static kolo_status check_rank(const kolo_dump_opts *o) {
    const int ranks = plan_ranks(o);
    if (o->rank == 0) return KOLO_OK;
    if (o->what != KOLO_DUMP_PLAN) {
        return KOLO_FAIL(KOLO_ERR_ARG, "--rank %d is for --what plan: omit it", o->rank);
    }
    if (o->rank > 0 && o->rank < ranks) return KOLO_OK;
    if (ranks == 1) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "--rank %d: all ranks have the same plan: omit it, or give --mesh, --zero "
                         "or, for training with shared parameters, --ranks",
                         o->rank);
    }
    return KOLO_FAIL(KOLO_ERR_ARG, "--rank %d: the plan is of %d ranks: choose 0 to %d", o->rank,
                     ranks, ranks - 1);
}

static kolo_status check_byte_split(const kolo_dump_opts *o) {
    const bool served = o->what == KOLO_DUMP_SERVERS && o->byte_split;
    if (!o->byte_split && o->servers == 0) return KOLO_OK;
    if (served && o->servers >= 0 && o->servers < o->ranks && o->ranks - o->servers > 1) {
        return KOLO_OK;
    }
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "--servers %d: it is for --what servers, of --ranks with two workers at least",
                     o->servers);
}

static kolo_status check_buckets(const kolo_dump_opts *o) {
    if (strcmp(o->buckets, KOLO_BUCKETS_MEASURED) == 0) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "kolo train measures the buckets auto: give the sizes that it printed");
    }
    const bool sums = (o->what == KOLO_DUMP_PLAN || o->what == KOLO_DUMP_SCHEDULE) &&
                      o->zero == 0 && !o->mesh && !o->evaluate && !o->compress && o->ranks > 1;
    if (sums) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "--buckets is for --what plan or schedule of data-parallel "
                     "training on several ranks without --zero and --compress: omit it");
}

static kolo_status check_compression(const kolo_dump_opts *o) {
    kolo_compression compression;
    bool measured;
    KOLO_TRY(kolo_compression_parse(o->compress, &compression, &measured));
    if (measured) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "kolo train measures where to compress: give what it printed in the place "
                         "of --compress %s",
                         o->compress);
    }
    if (o->what == KOLO_DUMP_SERVERS && (compression.power_rank > 0 || compression.frozen > 0)) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "--what servers: workers push codes of f16, bf16, int8, 1bit or topk:R, "
                         "and not of --compress %s",
                         o->compress);
    }
    const bool exchanges = o->what != KOLO_DUMP_GRAPH && o->what != KOLO_DUMP_PROGRAM &&
                           o->zero == 0 && !o->mesh && !o->evaluate && o->ranks > 1;
    if (exchanges) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "--compress is for --what passes, plan, schedule or servers of data-parallel "
                     "training on several ranks without --zero: omit it");
}

static kolo_status resolve(const kolo_dump_opts *in, kolo_dump_opts *out) {
    *out = *in;
    KOLO_TRY(kolo_device_check(in->device));
    if (kolo_device_is_apart(in->device)) { /* as in kolo train */
        out->share = false;
        out->lanes = KOLO_LANES_OFF;
    }
    if (!out->model) return KOLO_FAIL(KOLO_ERR_ARG, "no model: give its name, such as lenet");
    const kolo_model *model;
    KOLO_TRY(kolo_model_find(out->model, &model));
    kolo_mesh mesh;
    if (out->mesh) KOLO_TRY(kolo_mesh_parse(out->mesh, 0, &mesh));
    if (out->mesh) out->ranks = kolo_mesh_size(&mesh);
    if (out->mesh && out->what == KOLO_DUMP_SERVERS) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "servers are for data parallelism: give their number with "
                         "--ranks in place of --mesh %s",
                         out->mesh);
    }
    if (out->tp_blocks > 0 && out->what == KOLO_DUMP_SERVERS) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "servers have whole parameters, which --tp-blocks divides: omit it");
    }
    if (out->tp_blocks > 0) {
        KOLO_TRY(kolo_tp_blocks_check(out->tp_blocks, out->mesh ? &mesh : NULL));
    }
    const bool staged = out->mesh && kolo_mesh_stages(&mesh) > 1;
    if (!staged && (out->worker_weights || out->stage_bytes > 0)) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "--%s is for the stages of a pipeline here: give --mesh pp=2, for example",
                         out->worker_weights ? "worker-weights" : "stage-memory");
    }
    kolo_shape sample;
    int64_t classes;
    KOLO_TRY(kolo_model_sample(model, out->model_options, &sample, &classes));
    if (out->sample.rank == 0) out->sample = sample;
    if (!out->classes) out->classes = classes;
    if (!out->batch) out->batch = 64;
    if (!out->threads) out->threads = 1;
    if (!out->ranks) out->ranks = 2;
    if (!out->compress_min_bytes) out->compress_min_bytes = KOLO_COMPRESS_MIN_BYTES;
    if (out->compress && strcmp(out->compress, "none") == 0) out->compress = NULL;
    if (out->compress) KOLO_TRY(check_compression(out));
    if (out->buckets) KOLO_TRY(check_buckets(out));
    KOLO_TRY(check_byte_split(out));
    out->share &= !out->buckets && !out->compress && out->what != KOLO_DUMP_SCHEDULE &&
                  !out->mesh && !out->sparse_embedding && (!out->evaluate || out->zero > 2);
    if (out->batch < 0 || out->classes < 0 || out->bucket_bytes < 0 || out->threads < 0 ||
        out->ranks < 0) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "batch, classes, bucket-bytes, threads and ranks must be above 0");
    }
    return check_rank(out);
}

static kolo_status dump_what(const kolo_dump_opts *o, kolo_text *text) {
    kolo_setup setup = {.opts = {.tuning = o->tuning,
                                 .autotune = o->cached ? KOLO_AUTOTUNE_CACHED : KOLO_AUTOTUNE_OFF,
                                 .reference_kernels = o->reference_kernels,
                                 .notice = o->notice,
                                 .notice_arg = o->notice_arg}};
    kolo_dump_opts ruled = *o;
    kolo_status status = kolo_tuning_begin(&setup, NULL);
    const kolo_mesh mesh = mesh_of(o), blocks = {1, {{"tp", (int)o->tp_blocks}}};
    if (status == KOLO_OK) {
        status =
            kolo_placement_read(o->placement, o->tp_blocks > 0 ? &blocks : &mesh, &setup.placement);
    }
    ruled.placement = setup.placement;
    bool graph = o->what == KOLO_DUMP_GRAPH || o->what == KOLO_DUMP_PASSES;
    if (status == KOLO_OK) {
        status = o->what == KOLO_DUMP_PROGRAM   ? dump_program(&ruled, setup.tuner, text)
                 : graph                        ? dump_graph(&ruled, setup.tuner, text)
                 : o->what == KOLO_DUMP_SERVERS ? dump_servers(&ruled, setup.tuner, text)
                                                : dump_plan(&ruled, setup.tuner, text);
    }
    kolo_setup_close(&setup);
    return status;
}

static kolo_status give(kolo_text *text, char **out) {
    if (text->failed) {
        kolo_status status = KOLO_NOMEM(text->length);
        kolo_text_fini(text);
        return status;
    }
    *out = text->text;
    return KOLO_OK;
}

kolo_status kolo_dump_kernels(char **out) {
    kolo_text text = {0};
    kolo_kernel_describe(&text);
    return give(&text, out);
}

kolo_status kolo_dump_devices(char **out) {
    kolo_text text = {0};
    const kolo_status status = kolo_device_describe(&text);
    if (status == KOLO_OK) return give(&text, out);
    kolo_text_fini(&text);
    return status;
}

bool kolo_dump_has_bf16(void) { return kolo_kernel_has_bf16(); }

kolo_status kolo_dump(const kolo_dump_opts *given, char **out) {
    kolo_dump_opts o;
    KOLO_TRY(resolve(given, &o));
    kolo_text text = {0};
    kolo_status status = dump_what(&o, &text);
    if (status == KOLO_OK && text.failed) status = KOLO_NOMEM(text.length);
    if (status != KOLO_OK) {
        kolo_text_fini(&text);
        return status;
    }
    *out = text.text;
    return KOLO_OK;
}

void kolo_dump_free(char *text) { kolo_free(text); }

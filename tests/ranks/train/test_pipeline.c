/* Pipelines: the stages of any mesh compute what one rank does in as many micro-batches, in f64
 * with the reference kernels to rounding: losses and parameters, with dropout, clipping, tied
 * weights, values that skip stages, batch normalization. Files are those of one rank. */
#include "base/clock.h"
#include "base/isa.h"
#include "graph/ops/ops.h"
#include "kolo/checkpoint.h"
#include "kolo/session.h"
#include "pass/partition/rules.h"
#include "plan/chunk_inputs.h"
#include "plan/internal.h"
#include "plan/program/run.h"
#include "support/folder.h"
#include "support/mesh_run.h"
#include "support/small_resnet.h"
#include "support/support.h"
#include "support/train_job.h"
#include "train/session/metrics.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = MESH_STEPS, TOKENS = 4, WIDTH = 8, WORDS = 7 };

typedef struct setting {
    char mesh[32], schedule[16];
    int ranks;
    int micro_batches;
    kolo_optimizer_opts optimizer;
    kolo_recompute recompute;
    bool sequence; /* activations are sharded along the positions between the layers of tp */
    int samples;   /* of a micro-batch; 0: 2 */
    kolo_algorithm algorithm;
    bool tied;                   /* compares the copies of the embedding */
    const char *model, *options; /* of the zoo; NULL: that of `build` */
    int zero;
    bool thrice;    /* reads the embedding in the middle, too */
    int64_t hidden; /* units of two more layers, whose weights ZeRO cuts; 0: none */
    bool watched;   /* two stages, threads: the first one fails unless messages move beside its
                       kernels */
} setting;

static int samples_of(const setting *s) { return s->samples ? s->samples : 2; }

/* ---- the model ---- */

static kolo_value param(kolo_graph *g, const char *layer, const char *name, kolo_shape shape) {
    char text[64];
    snprintf(text, sizeof text, "%s.%s", layer, name);
    return kolo_param(g, text, shape, (kolo_init){KOLO_INIT_UNIFORM, 0.3});
}

static kolo_value linear(kolo_graph *g, const char *name, kolo_value x, int64_t in, int64_t out) {
    kolo_value w = param(g, name, "weight", kolo_shape_2(out, in));
    return kolo_linear_bias(g, x, w, param(g, name, "bias", kolo_shape_1(out)));
}

static kolo_status build_zoo(kolo_graph *g, int64_t n, const setting *s) {
    const kolo_model *model;
    KOLO_TRY(kolo_model_find(s->model, &model));
    const kolo_model_opts opts = {
        .batch = n, .sample = kolo_shape_1(TOKENS), .classes = WORDS + 2, .options = s->options};
    return kolo_model_add(model, g, &opts);
}

/* The rules of tensor parallelism; NULL: the built-in ones. */
static const char *rules_of(const setting *s) {
    if (s->model) return s->sequence ? kolo_placement_rules("megatron-sp") : NULL;
    return s->sequence ? "wte 0\nqkv_*.weight 0 3\nout_*.weight 1\nsums 1\n"
           : s->hidden ? "wte 0\nqkv_*.weight 0 3\nout_*.weight 1\nup.weight 0\ndown.weight 1\n"
                       : "wte 0\nqkv_*.weight 0 3\nout_*.weight 1\n";
}

/* Embeddings are tied, and the sum of the first layer is read by the last one, too. The labels, a
 * view of an input, are sent from the first part to the last. */
static kolo_status build(kolo_graph *g, int64_t n, const setting *s) {
    if (s->model) return build_zoo(g, n, s);
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_I32, kolo_shape_2(n, TOKENS));
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_2(n, TOKENS));
    kolo_value wte = kolo_param(g, "wte", kolo_shape_2(WORDS, WIDTH), kolo_init_fan_in(9));
    kolo_value wpe = kolo_param(g, "wpe", kolo_shape_2(TOKENS, WIDTH), kolo_init_fan_in(9));
    kolo_value labels = kolo_reshape(g, y, kolo_shape_1(n * TOKENS));
    kolo_value h = kolo_dropout(g, kolo_embedding(g, wte, x, wpe), 0.1), skip = h;
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "ln_%d", i);
        kolo_value a = kolo_layer_norm(g, h, name, 0);
        snprintf(name, sizeof name, "qkv_%d", i);
        a = linear(g, name, a, WIDTH, (int64_t)3 * WIDTH);
        a = kolo_attention(g, a,
                           &(kolo_attention_opts){.heads = 2, .causal = true, .dropout = 0.2});
        snprintf(name, sizeof name, "out_%d", i);
        h = kolo_add(g, h, kolo_dropout(g, linear(g, name, a, WIDTH, WIDTH), 0.1));
        if (i == 1 && s->thrice) h = kolo_add(g, h, kolo_embedding(g, wte, x, wpe));
    }
    h = kolo_add(g, kolo_layer_norm(g, h, "last", 0), skip);
    h = kolo_relu(
        g, linear(g, "fc", kolo_reshape(g, h, kolo_shape_2(n * TOKENS, WIDTH)), WIDTH, WIDTH));
    if (s->hidden > 0) {
        skip = kolo_relu(g, linear(g, "up", h, WIDTH, s->hidden));
        h = kolo_add(g, h, linear(g, "down", skip, s->hidden, WIDTH));
    }
    kolo_output(g, "loss", kolo_softmax_xent(g, kolo_linear(g, h, wte), labels));
    return kolo_graph_check(g);
}

/* ---- messages beside kernels ---- */

enum { WATCH_MS = 250 }; /* a kernel waits so long for the message before it */

static atomic_bool first_stage_computes, last_stage_began;
static _Thread_local struct {
    int stage, micro_batch; /* of the forward pass that runs; -1: another pass */
    bool moved;             /* the second stage began while the first ran its next forward pass */
} watch;

/* The first stage sends the activations of micro-batch 0 and computes those of micro-batch 1. Only
 * then the second stage asks for the message, and the kernels of the first take until it is there,
 * or long. */
static void watch_kernels(void *arg, int step, kolo_step_kind kind, int bucket, int64_t begin_ns,
                          int64_t end_ns) {
    if (kind == KOLO_STEP_KERNEL && watch.stage == 1) atomic_store(&last_stage_began, true);
    if (kind != KOLO_STEP_KERNEL || watch.stage != 0 || watch.micro_batch != 1) return;
    const int64_t end = kolo_now_ns() + kolo_ms_to_ns(WATCH_MS);
    atomic_store(&first_stage_computes, true);
    while (!atomic_load(&last_stage_began) && kolo_now_ns() < end) sched_yield();
    watch.moved |= atomic_load(&last_stage_began);
}

/* ---- running it ---- */

typedef struct stage_run {
    kolo_plan *plan;
    const setting *s;
    int dp, ranks, step;
} stage_run;

/* Micro-batch m of this place among the `ranks` that divide the samples. */
static void prepare(void *arg, int m, bool forward) {
    const stage_run *r = arg;
    kolo_plan *p = r->plan;
    watch.micro_batch = forward ? m : -1;
    const int64_t samples = samples_of(r->s), count = samples / r->ranks;
    const int64_t first = m * samples + r->dp * count;
    kolo_plan_set(p, kolo_plan_find_scalar(p, "lr"), 0.05);
    kolo_plan_set(p, kolo_plan_find_scalar(p, "update"), r->step + 1);
    kolo_plan_set(p, kolo_plan_find_scalar(p, "grad_scale"),
                  1.0 / (double)(samples * TOKENS * r->s->micro_batches));
    kolo_plan_set_integer(p, kolo_plan_find_scalar(p, "rng_key"), 77 + r->step);
    kolo_plan_set_integer(p, kolo_plan_find_scalar(p, "first_sample"), first);
    kolo_plan_set(p, kolo_plan_find_scalar(p, "fresh"), m == 0);
    if (!forward) return;
    int32_t *x = kolo_plan_input(p, "x", &(kolo_tensor){0});
    int32_t *y = kolo_plan_input(p, "y", &(kolo_tensor){0});
    const bool reads_x = kolo_chunk_reads(p, kolo_plan_find_input(p, "x"));
    const bool reads_y = kolo_chunk_reads(p, kolo_plan_find_input(p, "y"));
    for (int64_t i = 0; i < count * TOKENS; i++) {
        int64_t at = r->step % 3 * 1000 + first * TOKENS + i;
        x[i] = reads_x ? (int32_t)(at * 5 % WORDS) : -1;
        y[i] = reads_y ? (int32_t)(at * at % WORDS) : -1;
    }
}

static kolo_status run_step(stage_run *r, const kolo_program *program, int stage) {
    kolo_plan *plans[16];
    if (!program) {
        for (int m = 0; m < r->s->micro_batches; m++) {
            prepare(r, m, true);
            KOLO_TRY(m < r->s->micro_batches - 1 ? kolo_plan_accumulate(r->plan)
                                                 : kolo_plan_run(r->plan));
        }
        return KOLO_OK;
    }
    for (int m = 0; m < r->s->micro_batches; m++) plans[m] = r->plan;
    const kolo_program_job job = {
        .program = program, .stage = stage, .plans = plans, .prepare = prepare, .arg = r};
    KOLO_TRY(kolo_program_run_stage(&job));
    return kolo_plan_complete(r->plan);
}

/* The loss, of which the last stage has so many copies, on all ranks. */
static kolo_status share_loss(kolo_comm *comm, const kolo_plan *plan, int copies, double *loss) {
    kolo_value v = kolo_plan_find_output(plan, "loss");
    *loss = kolo_value_ok(v) ? kolo_plan_get(plan, v) / copies : 0;
    return kolo_allreduce(comm, loss, 1, KOLO_DTYPE_F64, KOLO_SUM);
}

/* Adds up the bytes of the parameters of this rank. ARG: with ZeRO, it has no part of the state of
 * a large one, or all of it. */
static kolo_status measure_ranges(const kolo_store *store, const setting *s, double *trained) {
    for (int i = 0; i < kolo_store_count(store); i++) {
        const kolo_store_entry *entry = kolo_store_entry_at(store, i);
        const kolo_tensor *slice = entry->mesh ? &entry->slice : &entry->tensor;
        const int64_t all = kolo_tensor_elements(slice);
        if (kolo_store_entry_is_model(entry)) *trained += (double)kolo_store_entry_bytes(entry);
        const bool cut = s->zero > 0 && s->ranks > 1 && !kolo_store_entry_is_model(entry) &&
                         !entry->elsewhere && all > KOLO_SQUARE_BLOCK;
        if (!cut || (entry->count > 0 && entry->count < all)) continue;
        return KOLO_FAIL(KOLO_ERR_ARG, "%s is not cut", entry->name);
    }
    return KOLO_OK;
}

/* A weighted sum of each optimizer state, as in files. Collective. */
static kolo_status sum_state(const kolo_store *store, mesh_outcome *o) {
    static const int64_t most = 1 << 15;
    double *whole = kolo_alloc((size_t)most * sizeof *whole);
    kolo_status status = whole ? KOLO_OK : KOLO_ERR_NOMEM;
    for (int i = 0, n = 0; status == KOLO_OK && i < kolo_store_count(store); i++) {
        const kolo_store_entry *entry = kolo_store_entry_at(store, i);
        const int64_t count = kolo_shape_count(&entry->canon);
        if (kolo_store_entry_is_model(entry)) continue;
        if (count > most || n == KOLO_COUNT(o->state)) status = KOLO_ERR_NOMEM;
        if (status == KOLO_OK) status = kolo_store_read(store, entry, whole);
        for (int64_t k = 0; status == KOLO_OK && k < count; k++) {
            o->state[n] += whole[k] * whole[k] * (double)(k % 7 + 1);
        }
        n++;
    }
    kolo_free(whole);
    return status;
}

/* The ranks along dp have the parameters each, and the state together. */
static void assert_state_is_shared(const setting *s, const mesh_outcome *o) {
    double store = 0, trained = 0;
    kolo_mesh mesh;
    ASSERT_OK(kolo_mesh_parse(s->mesh, s->ranks, &mesh));
    const double state = kolo_optimizer_has_momentum(s->optimizer.kind) ? 1 : 2;
    for (int r = 0; r < s->ranks; r++) {
        store += o[r].store;
        trained += o[r].trained;
    }
    assert_near(s->mesh, store,
                2 * trained * (1 + state / mesh.axes[kolo_mesh_find(&mesh, "dp")].size), 0.03);
}

/* ARG: not one chunk of all stages alone has to have the labels, of which there are so many copies.
 * Collective. */
static kolo_status check_readers(kolo_comm *comm, kolo_plan *plan, int copies) {
    double n = 0;
    for (int c = 0; c < plan->chunks; c++) {
        plan->slot = plan->first_slot[c];
        n += kolo_chunk_reads(plan, kolo_plan_find_input(plan, "y"));
    }
    plan->slot = 0;
    KOLO_TRY(kolo_allreduce(comm, &n, 1, KOLO_DTYPE_F64, KOLO_SUM));
    return n == copies ? KOLO_OK : KOLO_FAIL(KOLO_ERR_ARG, "%g chunks read the labels", n);
}

/* All copies of the embedding must have the bits of rank 0's. */
static kolo_status compare_tied(kolo_comm *comm, kolo_store *store) {
    double first[WORDS * WIDTH];
    const double *own = kolo_store_data(store, kolo_store_find(store, "wte"));
    memcpy(first, own, sizeof first);
    KOLO_TRY(kolo_broadcast(comm, first, KOLO_COUNT(first), KOLO_DTYPE_F64, 0));
    if (memcmp(first, own, sizeof first) == 0) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_DIVERGED, "copies of a tied parameter differ");
}

static kolo_status train(kolo_comm *comm, kolo_store *store, const setting *s,
                         kolo_mesh_comms *groups, const kolo_mesh *mesh, kolo_plan **plan,
                         kolo_program *program, mesh_outcome *o) {
    const int axis = kolo_mesh_find(mesh, "dp"), pp = kolo_mesh_find(mesh, "pp");
    const int rank = kolo_comm_rank(comm), ranks = mesh->axes[axis].size;
    const int stage = pp < 0 ? 0 : kolo_mesh_coordinate(mesh, rank, pp);
    const int copies = kolo_mesh_size(mesh) / kolo_mesh_stages(mesh);
    stage_run r = {.s = s, .dp = kolo_mesh_coordinate(mesh, rank, axis), .ranks = ranks};
    kolo_graph *g;
    KOLO_TRY(kolo_graph_create(&(kolo_graph_opts){KOLO_DTYPE_F64}, &g));
    kolo_status status = build(g, samples_of(s) / ranks, s);
    if (status != KOLO_OK) {
        kolo_graph_destroy(g);
        return status;
    }
    const kolo_plan_opts opts = {
        .train = true,
        .optimizer = s->optimizer,
        .micro_batches = s->micro_batches,
        .parts = program ? (kolo_parts){program->stages, program->chunks, program->schedule->path}
                         : (kolo_parts){0},
        .slots = program ? program->stage[stage].slots : NULL,
        .splits = program && program->schedule->splits,
        .recompute = s->recompute,
        .mesh = *mesh,
        .placement = rules_of(s),
        .zero = s->zero,
        .algorithm = s->algorithm,
        .groups = groups,
        .kernels = KOLO_KERNELS_REF,
        .bucket_bytes = 2000};
    KOLO_TRY(kolo_plan_compile(g, &opts, store, comm, plan));
    KOLO_TRY(kolo_store_init(store, 5));
    r.plan = *plan;
    o->slots = (*plan)->slots;
    o->store = (double)kolo_plan_memory_of(*plan).store;
    KOLO_TRY(measure_ranges(store, s, &o->trained));
    for (int i = 0; i < kolo_plan_n_requests(*plan); i++) {
        const bool link = (*plan)->map.buckets[i].collective == KOLO_COLLECTIVE_ALLTOALL;
        if (!link && !kolo_plan_request(*plan, i))
            return KOLO_FAIL(KOLO_ERR_ARG, "bucket %d: none", i);
    }
    if (program && !s->model) KOLO_TRY(check_readers(comm, *plan, copies));
    watch.stage = stage;
    if (s->watched) kolo_plan_observe(*plan, watch_kernels, NULL);
    while (s->watched && stage == 1 && !atomic_load(&first_stage_computes)) sched_yield();
    for (r.step = 0; r.step < STEPS; r.step++) {
        KOLO_TRY(run_step(&r, program, stage));
        if (s->watched && stage == 0 && r.step == 0 && !watch.moved) {
            return KOLO_FAIL(KOLO_ERR_ARG, "activations did not move beside kernels");
        }
        KOLO_TRY(share_loss(comm, *plan, copies, &o->losses[r.step]));
        if (r.step == 0) KOLO_TRY(mesh_read_parameters(store, o->first));
    }
    if (s->tied) KOLO_TRY(compare_tied(comm, store));
    KOLO_TRY(sum_state(store, o));
    return mesh_read_parameters(store, o->last);
}

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const setting *s = arg;
    const kolo_program_schedule *schedule;
    kolo_mesh mesh;
    kolo_mesh_comms *groups;
    kolo_store *store;
    kolo_plan *plan = NULL;
    kolo_program *program = NULL;
    int chunks;
    KOLO_TRY(kolo_mesh_parse(s->mesh, kolo_comm_size(comm), &mesh));
    if (kolo_mesh_stages(&mesh) > 1) {
        KOLO_TRY(kolo_program_find(s->schedule, &schedule, &chunks));
        KOLO_TRY(kolo_program_create(schedule, kolo_mesh_stages(&mesh), chunks, s->micro_batches,
                                     &program));
    }
    KOLO_TRY(kolo_mesh_comms_create(&mesh, comm, &groups));
    if (program) KOLO_TRY(kolo_program_make_groups(groups, &mesh));
    KOLO_TRY(kolo_store_create(NULL, &store));
    kolo_status status = train(comm, store, s, groups, &mesh, &plan, program, result);
    kolo_plan_destroy(plan);
    kolo_store_destroy(store);
    kolo_mesh_comms_destroy(groups);
    kolo_program_destroy(program);
    return status;
}

/* ---- against one rank ---- */

static const mesh_outcome *run(const setting *s, rank_transport transport) {
    return mesh_run(s->ranks, transport, body, s, sizeof *s);
}

static const struct {
    setting s;
    bool soak;
} cases[] = {
    {.s = {"dp=1,pp=2", "1f1b", 2, 3, .optimizer = {.momentum = 0.9, .clip = 0.1}}},
    {.s = {"dp=1,pp=3", "zb-h1", 3, 4, .optimizer = {KOLO_OPTIMIZER_ADAMW, .eps = 1e-3}}},
    {.s = {"dp=2,pp=2", "gpipe", 4, 3, .optimizer = {.momentum = 0.9, .clip = 0.1},
           .recompute = KOLO_RECOMPUTE_FULL}},
    {.s = {"dp=1,pp=2,tp=2", "1f1b", 4, 3, .optimizer = {.momentum = 0.9, .clip = 0.1}}},
    {.s = {"tp=2,dp=2,pp=2", "zb-h1", 8, 4, .optimizer = {KOLO_OPTIMIZER_LAMB, .clip = 0.1},
           .recompute = KOLO_RECOMPUTE_FULL, .sequence = true}},
    {.s = {"dp=1,pp=2,tp=2", "1f1b", 4, 2,
           .optimizer = {KOLO_OPTIMIZER_ADAMW, .eps = 1e-3, .clip = 0.1}, .model = "gpt2_tiny",
           .options = "layers=2,width=8,heads=2,context=4,dropout=0.1"}},
    {.s = {"dp=1,pp=2,tp=2", "zb-h1", 4, 2, .optimizer = {.momentum = 0.9, .clip = 0.1},
           .sequence = true, .model = "bert_tiny",
           .options = "layers=1,width=8,heads=2,context=4"}},
    {.s = {"dp=1,pp=2,tp=2", "1f1b", 4, 2, .optimizer = {.momentum = 0.9, .clip = 0.1},
           .model = "lstm_lm", .options = "layers=1,width=8,hidden=8,context=4"}},
    {.s = {"dp=2,pp=2", "1f1b", 4, 3,
           .optimizer = {KOLO_OPTIMIZER_ADAMW, .eps = 1e-3, .clip = 0.1, .weight_decay = 0.01},
           .zero = 1, .hidden = 1536}},
    {.s = {"dp=2,pp=2,tp=2", "zb-h1", 8, 3, .optimizer = {.momentum = 0.9, .clip = 0.1},
           .recompute = KOLO_RECOMPUTE_FULL, .sequence = true, .zero = 1, .hidden = 1536}},
    {.s = {"tp=2,dp=2", "", 4, 2, .optimizer = {KOLO_OPTIMIZER_LAMB, .clip = 0.1}, .zero = 1,
           .hidden = 1530}},
    {.s = {"dp=2,sp=2", "", 4, 2, .optimizer = {KOLO_OPTIMIZER_LAMB, .clip = 0.1}, .zero = 1,
           .hidden = 1536}},
    {.s = {"dp=1,pp=2,sp=2", "1f1b", 4, 3, .optimizer = {.momentum = 0.9, .clip = 0.1},
           .recompute = KOLO_RECOMPUTE_FULL}},
    {.s = {"sp=2,dp=1,pp=2", "zbv", 4, 4,
           .optimizer = {KOLO_OPTIMIZER_ADAMW, .eps = 1e-3, .clip = 0.1}, .tied = true,
           .thrice = true}},
    {.s = {"dp=2,pp=2,sp=2", "zb-h1", 8, 3, .optimizer = {KOLO_OPTIMIZER_LAMB, .clip = 0.1},
           .zero = 1, .hidden = 1536},
     .soak = true},
    {.s = {"dp=1,pp=2,tp=2,sp=2", "interleaved:2", 8, 3,
           .optimizer = {.momentum = 0.9, .clip = 0.1}, .model = "gpt2_tiny",
           .options = "layers=2,width=16,heads=4,context=4"},
     .soak = true},
    {.s = {"dp=1,pp=2", "interleaved:2", 2, 3, .optimizer = {.momentum = 0.9, .clip = 0.1}}},
    {.s = {"dp=1,pp=2", "zbv", 2, 4, .optimizer = {KOLO_OPTIMIZER_ADAMW, .eps = 1e-3, .clip = 0.1},
           .recompute = KOLO_RECOMPUTE_FULL, .tied = true, .thrice = true}},
    {.s = {"dp=2,pp=3", "interleaved:2", 6, 5,
           .optimizer = {KOLO_OPTIMIZER_ADAMW, .eps = 1e-3, .clip = 0.1, .weight_decay = 0.01},
           .zero = 1, .hidden = 1536},
     .soak = true},
    {.s = {"dp=2,pp=2,tp=2", "zbv", 8, 3, .optimizer = {.momentum = 0.9, .clip = 0.1},
           .recompute = KOLO_RECOMPUTE_FULL, .sequence = true, .zero = 1, .hidden = 1536},
     .soak = true},
    {.s = {"dp=1,pp=2,tp=2", "interleaved:3", 4, 4,
           .optimizer = {KOLO_OPTIMIZER_ADAMW, .eps = 1e-3, .clip = 0.1}, .model = "gpt2_tiny",
           .options = "layers=2,width=8,heads=2,context=4,dropout=0.1"}},
    {.s = {"dp=1,pp=3", "zbv", 3, 7, .optimizer = {KOLO_OPTIMIZER_LAMB, .clip = 0.1}},
     .soak = true},
    {.s = {"dp=1,pp=2", "interleaved:4", 2, 1, .optimizer = {.momentum = 0.9}}, .soak = true},
    {.s = {"pp=4,dp=2", "interleaved:2", 8, 6, .optimizer = {KOLO_OPTIMIZER_LARS, .momentum = 0.9},
           .recompute = KOLO_RECOMPUTE_CHEAP},
     .soak = true},
    {.s = {"dp=1,pp=2,tp=2", "zbv", 4, 2, .optimizer = {.momentum = 0.9, .clip = 0.1},
           .sequence = true, .model = "bert_tiny", .options = "layers=1,width=8,heads=2,context=4"},
     .soak = true},
    {.s = {"pp=2,tp=2,dp=2", "gpipe", 8, 2,
           .optimizer = {KOLO_OPTIMIZER_LARS, .momentum = 0.9, .clip = 0.1}, .zero = 1,
           .hidden = 1530},
     .soak = true},
    {.s = {"dp=1,pp=4", "1f1b", 4, 6, .optimizer = {KOLO_OPTIMIZER_LAMB, .clip = 0.1}},
     .soak = true},
    {.s = {"pp=3,dp=2", "zb-h1", 6, 5, .optimizer = {KOLO_OPTIMIZER_LARS, .momentum = 0.9}},
     .soak = true},
    {.s = {"dp=1,pp=2", "1f1b", 2, 1, .optimizer = {.momentum = 0.9, .clip = 0.1},
           .recompute = KOLO_RECOMPUTE_CHEAP},
     .soak = true},
    {.s = {"dp=1,tp=2,pp=3", "gpipe", 6, 4,
           .optimizer = {KOLO_OPTIMIZER_ADAMW, .eps = 1e-3, .clip = 0.1},
           .recompute = KOLO_RECOMPUTE_CHEAP, .sequence = true},
     .soak = true},
    {.s = {"dp=1,pp=4,tp=2", "zb-h1", 8, 5, .optimizer = {KOLO_OPTIMIZER_LARS, .momentum = 0.9}},
     .soak = true},
};

static void any_pipeline_computes_what_one_rank_does(void **state) {
    static mesh_outcome expected;
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        setting alone = cases[i].s;
        if (cases[i].soak && !getenv("KOLO_SOAK")) continue;
        snprintf(alone.mesh, sizeof alone.mesh, "dp=1");
        alone.ranks = 1;
        expected = *run(&alone, RANKS_THREAD);
        assert_memory_not_equal(expected.first, expected.last, sizeof expected.last);
        const setting *s = &cases[i].s;
        const mesh_outcome *meshed = run(s, RANKS_THREAD);
        mesh_assert_close(s->mesh, meshed, &expected);
        if (s->zero > 0) assert_state_is_shared(s, meshed);
        for (size_t k = 0; k < KOLO_COUNT(meshed->state); k++) {
            assert_near(s->mesh, meshed->state[k], expected.state[k], 1e-8);
        }
        if (i == 0) mesh_assert_close(s->mesh, run(s, RANKS_SHM), &expected);
    }
}

/* The stage in the middle passes the gradient of the skip connection on, from where it arrives: one
 * that is late must not be that of the next micro-batch. Losses would differ from run to run. */
static void messages_move_beside_kernels(void **state) {
    static const char *const schedules[] = {"1f1b", "gpipe"};
    for (size_t i = 0; i < KOLO_COUNT(schedules); i++) {
        setting s = {"dp=1,pp=2", "", 2, 3, .optimizer = {.momentum = 0.9}, .watched = true};
        snprintf(s.schedule, sizeof s.schedule, "%s", schedules[i]);
        atomic_store(&first_stage_computes, false);
        atomic_store(&last_stage_began, false);
        (void)run(&s, RANKS_THREAD);
    }
}

static void what_is_passed_on_has_left_before_the_next_arrives(void **state) {
    static const char *const schedules[] = {"1f1b", "zbv"};
    for (size_t i = 0; i < KOLO_COUNT(schedules); i++) {
        setting s = {"dp=1,pp=3", "", 3, 7, .optimizer = {.momentum = 0.9}};
        snprintf(s.schedule, sizeof s.schedule, "%s", schedules[i]);
        const mesh_outcome first = *run(&s, RANKS_THREAD);
        for (int k = 0; k < (getenv("KOLO_SOAK") ? 40 : 2); k++) {
            assert_memory_equal(run(&s, RANKS_THREAD)->losses, first.losses, sizeof first.losses);
        }
    }
}

/* 1F1B has slots for as many micro-batches as there are stages behind, this one included. */
static void slots_are_those_of_the_program(void **state) {
    const setting s = {"dp=1,pp=3", "1f1b", 3, 6, .optimizer = {.momentum = 0.9}};
    const mesh_outcome *o = run(&s, RANKS_THREAD);
    for (int r = 0; r < 3; r++) assert_int_equal(o[r].slots, 3 - r);
}

/* A file has the first of the copies, whole, whatever the others are. */
static kolo_status read_tied(kolo_comm *comm, const void *arg, void *result) {
    const setting *s = arg;
    kolo_mesh mesh;
    kolo_graph *g;
    kolo_store *store;
    kolo_plan *plan;
    double own[WORDS * WIDTH], read[WORDS * WIDTH];
    (void)result;
    KOLO_TRY(kolo_mesh_parse(s->mesh, kolo_comm_size(comm), &mesh));
    KOLO_TRY(kolo_store_create(NULL, &store));
    KOLO_TRY(kolo_graph_create(&(kolo_graph_opts){KOLO_DTYPE_F64}, &g));
    KOLO_TRY(build(g, samples_of(s), s));
    const kolo_plan_opts opts = {
        .mesh = mesh, .placement = rules_of(s), .kernels = KOLO_KERNELS_REF};
    KOLO_TRY(kolo_plan_compile(g, &opts, store, comm, &plan));
    KOLO_TRY(kolo_store_init(store, 5));
    const kolo_store_entry *wte = kolo_store_find(store, "wte");
    KOLO_TRY(kolo_store_read(store, wte, own));
    double *copy = kolo_store_data(store, wte);
    for (int i = 0; i < WORDS * WIDTH && kolo_comm_rank(comm) > 0; i++) copy[i] = -copy[i];
    kolo_status status = kolo_store_read(store, wte, read);
    const bool same = memcmp(own, read, sizeof own) == 0;
    kolo_plan_destroy(plan);
    kolo_store_destroy(store);
    if (status == KOLO_OK && !same) return KOLO_FAIL(KOLO_ERR_FORMAT, "a mixture of copies");
    return status;
}

static void files_have_the_first_of_tied_copies(void **state) {
    const setting s = {"pp=2", .ranks = 2};
    rank_job job = {
        .n = 2, .transport = RANKS_THREAD, .body = read_tied, .arg = &s, .arg_bytes = sizeof s};
    ASSERT_OK(run_rank_job(&job));
}

/* Sums over three ranks round by the place in their bucket, which differs between the stages. */
static void copies_of_tied_parameters_stay_equal(void **state) {
    static const kolo_algorithm algorithms[] = {KOLO_ALGORITHM_RING, KOLO_ALGORITHM_AUTO};
    for (size_t i = 0; i < 2 * KOLO_COUNT(algorithms); i++) {
        const setting s = {"dp=3,pp=2",
                           "1f1b",
                           6,
                           2,
                           .optimizer = {.momentum = 0.9},
                           .samples = 3,
                           .algorithm = algorithms[i / 2],
                           .zero = i % 2,
                           .tied = true};
        run(&s, RANKS_THREAD);
    }
}

TEST_MAIN(test_pipeline) {
    (void)small_resnet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_pipeline_computes_what_one_rank_does),
        cmocka_unit_test(messages_move_beside_kernels),
        cmocka_unit_test(what_is_passed_on_has_left_before_the_next_arrives),
        cmocka_unit_test(slots_are_those_of_the_program),
        cmocka_unit_test(files_have_the_first_of_tied_copies),
        cmocka_unit_test(copies_of_tied_parameters_stay_equal),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}

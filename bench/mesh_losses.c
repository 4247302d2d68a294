/* Losses of a model on a mesh, in f64 with the reference kernels or in f32 with the fast ones; the
 * ranks are threads:
 *
 *     mesh-losses MODEL MESH STEPS ZERO MICRO_BATCHES OPTIMIZER LR SAMPLE RULES SYNC SCHEDULE TYPE
 *
 * MODEL is a model of the zoo with its options ("mlp:hidden=8"), an ONNX file, "mine", that of
 * examples/model, which is linked in, or "session", a net that a program builds and trains by
 * kolo/session.h. With two meshes, "dp=2,tp=2>pp=2", the first one trains half of the steps and
 * saves, and the second one loads the file and goes on. SAMPLE ("3x32x32") and RULES of placement
 * ("w1 0;w2 1", or "ring", the name of built-in ones) may be "-": the model's own. SYNC 1: batch
 * normalization is of the samples of all ranks. SCHEDULE is that of a pipeline, TYPE f64 or f32.
 * Prints the loss of each step, a line each. The samples are formulas of their numbers; gradients
 * are clipped. bench/meshes.py compares meshes with it. */
#include "base/range.h"
#include "base/text.h"
#include "data/batch.h"
#include "data/sampler.h"
#include "graph/graph.h"
#include "kolo/mesh.h"
#include "kolo/models.h"
#include "kolo/onnx.h"
#include "pass/partition/rules.h"
#include "plan/program/program.h"
#include "support/own_net.h"
#include "train/session/session.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const kolo_model *kolo_model_entry(int *version); /* of examples/model */

enum { GLOBAL = 8, BATCHES = 4, MOST_STEPS = 1000, MOST_RANKS = 64, ERROR_BYTES = 512 };

typedef struct job {
    char *name;          /* of the model, without options */
    const char *options; /* or NULL */
    const kolo_model *model;
    kolo_onnx *onnx;
    kolo_shape sample;
    int64_t classes;
    bool own; /* a net of a program, by the public session */
    const char *mesh_texts[2];
    kolo_mesh meshes[2]; /* one trains up to half of the steps, the other goes on */
    int n_meshes;
    char file[256]; /* between them */
    int steps, zero, micro_batches;
    bool sync;
    kolo_dtype dtype;
    const char *pipeline;
    const kolo_program_schedule *schedule;
    int chunks;
    kolo_optimizer optimizer;
    double lr;
    const char *rules;
} job;

typedef struct rank_run {
    const job *j;
    int turn; /* of the meshes */
    kolo_comm *comm;
    kolo_status status;
    char error[ERROR_BYTES];
    double losses[MOST_STEPS];
} rank_run;

static kolo_status build(kolo_graph *g, int64_t batch, void *arg) {
    const job *j = arg;
    g->dtype = j->dtype;
    if (j->own) return own_net_build(g, batch, NULL);
    if (j->onnx) return kolo_onnx_build(g, batch, j->onnx);
    const kolo_model_opts opts = {
        .batch = batch, .sample = j->sample, .classes = j->classes, .options = j->options};
    return kolo_model_add(j->model, g, &opts);
}

/* ---- samples ---- */

typedef struct samples {
    kolo_field fields[KOLO_MAX_FIELDS];
    char names[KOLO_MAX_FIELDS][32];
    void *data[KOLO_MAX_FIELDS];
    int n;
} samples;

/* The inputs of the model, and room for a batch. */
static kolo_status find_fields(const job *j, samples *s) {
    kolo_graph *g;
    KOLO_TRY(kolo_graph_create(&(kolo_graph_opts){j->dtype}, &g));
    kolo_status status = build(g, 1, (void *)(uintptr_t)j);
    for (int32_t v = 0; status == KOLO_OK && v < g->n_values; v++) {
        const kolo_value_info *info = &g->values[v];
        if (info->kind != KOLO_VALUE_INPUT || s->n == KOLO_MAX_FIELDS) continue;
        kolo_field *f = &s->fields[s->n];
        snprintf(s->names[s->n], sizeof s->names[0], "%s", info->name);
        *f = (kolo_field){.name = s->names[s->n], .dtype = info->tensor.dtype};
        f->shape.rank = info->tensor.shape.rank - 1;
        for (int d = 0; d < f->shape.rank; d++) f->shape.dim[d] = info->tensor.shape.dim[d + 1];
        s->data[s->n] = kolo_zalloc(kolo_field_bytes(f) * GLOBAL);
        if (!s->data[s->n++]) status = KOLO_NOMEM(kolo_field_bytes(f) * GLOBAL);
    }
    kolo_graph_destroy(g);
    return status;
}

static void fill(const job *j, samples *s, int step, int64_t first, int64_t count) {
    for (int f = 0; f < s->n; f++) {
        const int64_t each = kolo_shape_count(&s->fields[f].shape);
        for (int64_t i = 0; i < count * each; i++) {
            const int64_t at = (step % BATCHES * GLOBAL + first) * each + i + 1;
            const double number = sin((double)(at * 131 % 9973));
            if (s->fields[f].dtype == KOLO_DTYPE_F64) {
                ((double *)s->data[f])[i] = number;
            } else if (s->fields[f].dtype == KOLO_DTYPE_F32) {
                ((float *)s->data[f])[i] = (float)number;
            } else {
                ((int32_t *)s->data[f])[i] = (int32_t)((at * at + 7 * at) % j->classes);
            }
        }
    }
}

/* ---- ranks ---- */

/* A step of a program. */
static kolo_status step_own(kolo_session *session, kolo_batch *batch, double *loss) {
    kolo_metrics metrics;
    batch->global_count = 0;
    KOLO_TRY(kolo_session_step(session, batch, &metrics));
    *loss = kolo_metrics_get(&metrics, "loss");
    return KOLO_OK;
}

static kolo_status step(const job *j, kolo_session *session, const kolo_batch *batch,
                        double *loss) {
    kolo_sums sums;
    KOLO_TRY(kolo_session_step_batch(session, batch, j->lr, &sums));
    *loss = sums.metric[KOLO_METRIC_LOSS] / (double)sums.samples;
    return KOLO_OK;
}

static kolo_status train(const rank_run *r, kolo_session *session, samples *s, double *losses) {
    const job *j = r->j;
    const int ranks = kolo_session_data_ranks(session), rank = kolo_session_data_rank(session);
    const bool more = r->turn < j->n_meshes - 1;
    if (r->turn > 0) KOLO_TRY(kolo_session_load(session, j->file));
    for (int k = (int)kolo_session_steps(session); k < (more ? j->steps / 2 : j->steps); k++) {
        kolo_batch batch = {.n_fields = s->n,
                            .fields = s->fields,
                            .count = kolo_part_count(GLOBAL, ranks, rank),
                            .global_count = GLOBAL,
                            .first = kolo_part_first(GLOBAL, ranks, rank)};
        for (int f = 0; f < s->n; f++) batch.data[f] = s->data[f];
        fill(j, s, k, batch.first, batch.count);
        KOLO_TRY(j->own ? step_own(session, &batch, &losses[k])
                        : step(j, session, &batch, &losses[k]));
    }
    return more ? kolo_session_save(session, j->file) : KOLO_OK;
}

static kolo_optimizer_opts optimizer_of(const job *j) {
    const bool sgd = j->optimizer == KOLO_OPTIMIZER_SGD;
    return (kolo_optimizer_opts){
        .kind = j->optimizer, .momentum = sgd ? 0.9 : 0, .eps = sgd ? 0 : 1e-4, .clip = 1};
}

static kolo_status create_own(const rank_run *r, kolo_session **session) {
    const job *j = r->j;
    const bool divided = kolo_mesh_workers(j->mesh_texts[r->turn], "tp") > 1;
    const kolo_session_opts opts = {.mesh = j->mesh_texts[r->turn],
                                    .pipeline = j->pipeline,
                                    .placement = divided ? j->rules : NULL,
                                    .global_batch = GLOBAL,
                                    .accumulate = j->micro_batches,
                                    .zero = j->zero,
                                    .sync_bn = j->sync,
                                    .optimizer = optimizer_of(j),
                                    .lr = j->lr,
                                    .seed = 5,
                                    .bucket_bytes = 1 << 12,
                                    .f64 = j->dtype == KOLO_DTYPE_F64};
    return kolo_session_create(r->comm, &opts, own_net_build, NULL, session);
}

static kolo_status create(const rank_run *r, kolo_session **session) {
    const job *j = r->j;
    const kolo_mesh *mesh = &j->meshes[r->turn];
    const int dp = mesh->axes[kolo_mesh_find(mesh, "dp")].size;
    const kolo_session_config config = {
        .build = build,
        .build_arg = (void *)(uintptr_t)j,
        .classes = j->classes,
        .global_batch = GLOBAL,
        .batch = kolo_part_count(GLOBAL, dp * j->micro_batches, 0),
        .accumulate = j->micro_batches,
        .schedule = j->schedule,
        .chunks = j->chunks,
        .plan = {.kernels = j->dtype == KOLO_DTYPE_F64 ? KOLO_KERNELS_REF : KOLO_KERNELS_BEST,
                 .mesh = *mesh,
                 .placement = j->rules,
                 .zero = j->zero,
                 .sync_batch_norm = j->sync,
                 .optimizer = optimizer_of(j),
                 .bucket_bytes = 1 << 12},
    };
    KOLO_TRY(kolo_session_create_for(&config, r->comm, session));
    return kolo_session_init(*session, 5);
}

static kolo_status run_session(const rank_run *r, samples *s, double *losses) {
    kolo_session *session = NULL;
    KOLO_TRY(find_fields(r->j, s));
    kolo_status status = r->j->own ? create_own(r, &session) : create(r, &session);
    if (status == KOLO_OK) status = train(r, session, s, losses);
    if (status != KOLO_OK && session) kolo_session_fail(session, status);
    kolo_session_destroy(session);
    return status;
}

static void *run_rank(void *arg) {
    rank_run *r = arg;
    samples s = {.n = 0};
    r->status = run_session(r, &s, r->losses);
    if (r->status != KOLO_OK) snprintf(r->error, sizeof r->error, "%s", kolo_last_error());
    for (int f = 0; f < s.n; f++) kolo_free(s.data[f]);
    kolo_comm_destroy(r->comm);
    return NULL;
}

/* The error of the rank that failed first: the others report that they have lost it. */
static const rank_run *failed(const rank_run *runs, int n) {
    const rank_run *first = NULL;
    for (int r = 0; r < n; r++) {
        const bool lost = runs[r].status == KOLO_ERR_PEER || runs[r].status == KOLO_ERR_TIMEOUT;
        if (runs[r].status != KOLO_OK && (!first || !lost)) first = &runs[r];
    }
    return first;
}

/* All ranks of a mesh, which train their part of the steps; rank 0 has the losses. */
static kolo_status run_mesh(const job *j, int turn, double *losses) {
    static rank_run runs[MOST_RANKS];
    const int n = kolo_mesh_size(&j->meshes[turn]);
    kolo_comm *comms[MOST_RANKS];
    pthread_t threads[MOST_RANKS];
    KOLO_TRY(kolo_check_count("ranks", n, 1, MOST_RANKS));
    KOLO_TRY(kolo_comm_create_threads(n, NULL, comms));
    for (int r = 0; r < n; r++) {
        runs[r] = (rank_run){.j = j, .turn = turn, .comm = comms[r]};
        if (pthread_create(&threads[r], NULL, run_rank, &runs[r]) != 0) exit(1); /* peers wait */
    }
    for (int r = 0; r < n; r++) pthread_join(threads[r], NULL);
    const rank_run *bad = failed(runs, n);
    if (bad) return kolo_error_set(bad->status, "%s", bad->error);
    for (int k = 0; k < j->steps; k++) losses[k] += runs[0].losses[k]; /* 0 of other turns */
    return KOLO_OK;
}

static kolo_status run(job *j) {
    static double losses[MOST_STEPS];
    kolo_status status = KOLO_OK;
    const char *folder = getenv("TMPDIR");
    snprintf(j->file, sizeof j->file, "%s/mesh-losses.%ld.safetensors", folder ? folder : "/tmp",
             (long)getpid());
    for (int i = 0; status == KOLO_OK && i < j->n_meshes; i++) status = run_mesh(j, i, losses);
    if (j->n_meshes > 1) (void)unlink(j->file);
    for (int k = 0; status == KOLO_OK && k < j->steps; k++) printf("%.17g\n", losses[k]);
    return status;
}

/* ---- the command line ---- */

/* The classes of an ONNX file and of a program's net are those of its logits. */
static kolo_status find_classes(job *j) {
    kolo_graph *g;
    KOLO_TRY(kolo_graph_create(&(kolo_graph_opts){j->dtype}, &g));
    kolo_status status = build(g, 1, j);
    const kolo_value logits = kolo_graph_output(g, "logits");
    if (status == KOLO_OK && !kolo_value_ok(logits)) {
        status = kolo_error_set(KOLO_ERR_UNSUPPORTED, "%s has no output logits", j->name);
    }
    if (status == KOLO_OK) {
        const kolo_shape *shape = &kolo_info(g, logits)->tensor.shape;
        j->classes = shape->dim[shape->rank - 1];
    }
    kolo_graph_destroy(g);
    return status;
}

static kolo_status find_model(job *j) {
    char *colon = strchr(j->name, ':');
    int version;
    if (colon) {
        *colon = '\0';
        j->options = colon + 1;
    }
    j->own = strcmp(j->name, "session") == 0;
    if (j->own) return find_classes(j);
    if (strlen(j->name) > 5 && strcmp(j->name + strlen(j->name) - 5, ".onnx") == 0) {
        KOLO_TRY(kolo_onnx_open(j->name, NULL, &j->onnx));
        return find_classes(j);
    }
    if (strcmp(j->name, "mine") == 0) {
        j->model = kolo_model_entry(&version);
    } else {
        KOLO_TRY(kolo_model_find(j->name, &j->model));
    }
    return kolo_model_sample(j->model, j->options, &j->sample, &j->classes);
}

static void parse_sample(const char *text, kolo_shape *shape) {
    if (strcmp(text, "-") == 0) return;
    shape->rank = 0;
    for (char *end; shape->rank < KOLO_MAX_RANK; text = end + 1) {
        shape->dim[shape->rank++] = strtol(text, &end, 10);
        if (*end != 'x') return;
    }
}

static kolo_status parse_meshes(char *text, job *j) {
    char *other = strchr(text, '>');
    if (other) *other++ = '\0';
    j->mesh_texts[0] = text;
    j->mesh_texts[1] = other;
    j->n_meshes = other ? 2 : 1;
    for (int i = 0; i < j->n_meshes; i++) {
        KOLO_TRY(kolo_mesh_parse(j->mesh_texts[i], 0, &j->meshes[i]));
        if (kolo_mesh_find(&j->meshes[i], "dp") >= 0) continue;
        return kolo_error_set(KOLO_ERR_ARG, "mesh %s has no axis dp", j->mesh_texts[i]);
    }
    return KOLO_OK;
}

static kolo_status parse(char **argv, job *j) {
    j->name = argv[1];
    j->dtype = strcmp(argv[12], "f32") == 0 ? KOLO_DTYPE_F32 : KOLO_DTYPE_F64;
    KOLO_TRY(find_model(j));
    KOLO_TRY(parse_meshes(argv[2], j));
    j->steps = (int)strtol(argv[3], NULL, 10);
    j->zero = (int)strtol(argv[4], NULL, 10);
    j->micro_batches = (int)strtol(argv[5], NULL, 10);
    KOLO_TRY(kolo_check_count("steps", j->steps, 1, MOST_STEPS));
    KOLO_TRY(kolo_check_count("micro-batches", j->micro_batches, 1, GLOBAL));
    j->optimizer = strcmp(argv[6], "adamw") == 0 ? KOLO_OPTIMIZER_ADAMW : KOLO_OPTIMIZER_SGD;
    j->lr = strtod(argv[7], NULL);
    parse_sample(argv[8], &j->sample);
    for (char *c = argv[9]; *c; c++) {
        if (*c == ';') *c = '\n';
    }
    const char *built_in = kolo_placement_rules(argv[9]);
    j->rules = strcmp(argv[9], "-") == 0 ? NULL : built_in ? built_in : argv[9];
    j->sync = strcmp(argv[10], "1") == 0;
    j->pipeline = argv[11];
    KOLO_TRY(kolo_program_find(j->pipeline, &j->schedule, &j->chunks));
    if (strcmp(argv[12], "f64") != 0 && strcmp(argv[12], "f32") != 0) {
        return kolo_error_set(KOLO_ERR_ARG, "type %s: give f64 or f32", argv[12]);
    }
    return KOLO_OK;
}

int main(int argc, char **argv) {
    job j = {.model = NULL};
    if (argc != 13) {
        fputs("mesh-losses MODEL MESH STEPS ZERO MICRO_BATCHES OPTIMIZER LR SAMPLE RULES SYNC "
              "SCHEDULE TYPE\n",
              stderr);
        return 2;
    }
    kolo_status status = parse(argv, &j);
    if (status == KOLO_OK) status = run(&j);
    if (status != KOLO_OK) fprintf(stderr, "mesh-losses: %s\n", kolo_last_error());
    kolo_onnx_close(j.onnx);
    return status == KOLO_OK ? 0 : 1;
}

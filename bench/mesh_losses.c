/* Losses of a model on a mesh, in f64 with the reference kernels or in f32 with the fast ones; the
 * ranks are threads:
 *
 *     mesh-losses MODEL MESH STEPS ZERO MICRO_BATCHES OPTIMIZER LR SAMPLE RULES SYNC SCHEDULE TYPE
 *
 * MODEL is a model of the zoo with its options ("mlp:hidden=8"), an ONNX file, or "mine", that of
 * examples/model, which is linked in. SAMPLE ("3x32x32") and RULES of tensor parallelism ("w1 0;w2
 * 1") may be "-": the model's own. SYNC 1: batch normalization is of the samples of all ranks.
 * SCHEDULE is that of a pipeline, TYPE f64 or f32. Prints the loss of each step, a line each. The
 * samples are formulas of their numbers; gradients are clipped. bench/meshes.py compares meshes
 * with it. */
#include "base/range.h"
#include "base/text.h"
#include "data/batch.h"
#include "data/sampler.h"
#include "graph/graph.h"
#include "kolo/models.h"
#include "kolo/onnx.h"
#include "plan/program/program.h"
#include "train/session/session.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const kolo_model *kolo_model_entry(int *version); /* of examples/model */

enum { GLOBAL = 8, BATCHES = 4, MOST_STEPS = 1000, MOST_RANKS = 64, ERROR_BYTES = 512 };

typedef struct job {
    char *name;          /* of the model, without options */
    const char *options; /* or NULL */
    const kolo_model *model;
    kolo_onnx *onnx;
    kolo_shape sample;
    int64_t classes;
    kolo_mesh mesh;
    int steps, zero, micro_batches;
    bool sync;
    kolo_dtype dtype;
    const kolo_program_schedule *schedule;
    int chunks;
    kolo_optimizer optimizer;
    double lr;
    char *rules;
} job;

typedef struct rank_run {
    const job *j;
    kolo_comm *comm;
    kolo_status status;
    char error[ERROR_BYTES];
    double losses[MOST_STEPS];
} rank_run;

static kolo_status build(kolo_graph *g, int64_t batch, void *arg) {
    const job *j = arg;
    g->dtype = j->dtype;
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

static kolo_status train(const job *j, kolo_session *session, samples *s, double *losses) {
    const int ranks = kolo_session_data_ranks(session), rank = kolo_session_data_rank(session);
    KOLO_TRY(kolo_session_init(session, 5));
    for (int k = 0; k < j->steps; k++) {
        kolo_batch batch = {.n_fields = s->n,
                            .fields = s->fields,
                            .count = kolo_part_count(GLOBAL, ranks, rank),
                            .global_count = GLOBAL,
                            .first = kolo_part_first(GLOBAL, ranks, rank)};
        kolo_sums sums;
        for (int f = 0; f < s->n; f++) batch.data[f] = s->data[f];
        fill(j, s, k, batch.first, batch.count);
        KOLO_TRY(kolo_session_step_batch(session, &batch, j->lr, &sums));
        losses[k] = sums.metric[KOLO_METRIC_LOSS] / (double)sums.samples;
    }
    return KOLO_OK;
}

static kolo_status run_session(const job *j, kolo_comm *comm, samples *s, double *losses) {
    const int dp = j->mesh.axes[kolo_mesh_find(&j->mesh, "dp")].size;
    kolo_session *session;
    KOLO_TRY(find_fields(j, s));
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
                 .mesh = j->mesh,
                 .placement = j->rules,
                 .zero = j->zero,
                 .sync_batch_norm = j->sync,
                 .optimizer = {.kind = j->optimizer,
                               .momentum = j->optimizer == KOLO_OPTIMIZER_SGD ? 0.9 : 0,
                               .eps = j->optimizer == KOLO_OPTIMIZER_SGD ? 0 : 1e-4,
                               .clip = 1},
                 .bucket_bytes = 1 << 12},
    };
    KOLO_TRY(kolo_session_create_for(&config, comm, &session));
    kolo_status status = train(j, session, s, losses);
    if (status != KOLO_OK) kolo_session_fail(session, status);
    kolo_session_destroy(session);
    return status;
}

static void *run_rank(void *arg) {
    rank_run *r = arg;
    samples s = {.n = 0};
    r->status = run_session(r->j, r->comm, &s, r->losses);
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

static kolo_status run(const job *j) {
    static rank_run runs[MOST_RANKS];
    const int n = kolo_mesh_size(&j->mesh);
    kolo_comm *comms[MOST_RANKS];
    pthread_t threads[MOST_RANKS];
    KOLO_TRY(kolo_check_count("ranks", n, 1, MOST_RANKS));
    KOLO_TRY(kolo_comm_create_threads(n, NULL, comms));
    for (int r = 0; r < n; r++) {
        runs[r] = (rank_run){.j = j, .comm = comms[r]};
        if (pthread_create(&threads[r], NULL, run_rank, &runs[r]) != 0) exit(1); /* peers wait */
    }
    for (int r = 0; r < n; r++) pthread_join(threads[r], NULL);
    const rank_run *bad = failed(runs, n);
    if (bad) return kolo_error_set(bad->status, "%s", bad->error);
    for (int k = 0; k < j->steps; k++) printf("%.17g\n", runs[0].losses[k]);
    return KOLO_OK;
}

/* ---- the command line ---- */

/* The classes of an ONNX file are those of its logits. */
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

static kolo_status parse(char **argv, job *j) {
    j->name = argv[1];
    j->dtype = strcmp(argv[12], "f32") == 0 ? KOLO_DTYPE_F32 : KOLO_DTYPE_F64;
    KOLO_TRY(find_model(j));
    KOLO_TRY(kolo_mesh_parse(argv[2], 0, &j->mesh));
    if (kolo_mesh_find(&j->mesh, "dp") < 0) {
        return kolo_error_set(KOLO_ERR_ARG, "mesh %s has no axis dp", argv[2]);
    }
    j->steps = (int)strtol(argv[3], NULL, 10);
    j->zero = (int)strtol(argv[4], NULL, 10);
    j->micro_batches = (int)strtol(argv[5], NULL, 10);
    KOLO_TRY(kolo_check_count("steps", j->steps, 1, MOST_STEPS));
    KOLO_TRY(kolo_check_count("micro-batches", j->micro_batches, 1, GLOBAL));
    j->optimizer = strcmp(argv[6], "adamw") == 0 ? KOLO_OPTIMIZER_ADAMW : KOLO_OPTIMIZER_SGD;
    j->lr = strtod(argv[7], NULL);
    parse_sample(argv[8], &j->sample);
    j->rules = strcmp(argv[9], "-") != 0 ? argv[9] : NULL;
    j->sync = strcmp(argv[10], "1") == 0;
    KOLO_TRY(kolo_program_find(argv[11], &j->schedule, &j->chunks));
    if (strcmp(argv[12], "f64") != 0 && strcmp(argv[12], "f32") != 0) {
        return kolo_error_set(KOLO_ERR_ARG, "type %s: give f64 or f32", argv[12]);
    }
    for (char *c = j->rules; c && *c; c++) {
        if (*c == ';') *c = '\n';
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

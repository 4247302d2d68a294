/* Sessions of a program on meshes: losses, gradients, tensors, predictions and files are those of
 * one rank; data sets, loaders and runs, which resume on another mesh. */
#include "base/compiler.h"
#include "base/memory.h"
#include "base/status.h"
#include "graph/graph.h"
#include "kolo/checkpoint.h"
#include "support/folder.h"
#include "support/own_net.h"
#include "support/ranks.h"
#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    STEPS = 6,
    MOST_RANKS = 8,
    NUMBERS = 15000, /* of all tensors */
    GRADIENTS = 5000,
    LOGITS = OWN_SAMPLES * OWN_TOKENS * OWN_WORDS,
    TABLE = OWN_WORDS * OWN_WIDTH,
    TENSORS = 64,
};

/* ---- one rank against meshes, in f64 ---- */

typedef struct setting {
    const char *mesh, *pipeline, *placement;
    int64_t accumulate, rebalance;
    int zero, blocks;        /* blocks > 0: also a logical shard for each sample */
    const char *load, *save; /* files; NULL: none */
    int first, last;         /* steps; last 0: all */
} setting;

typedef struct outcome {
    double losses[STEPS], evaluated, accuracy, set;
    int64_t first, count; /* this rank's samples */
    int n, n_gradients;
    double numbers[NUMBERS], gradients[GRADIENTS], logits[LOGITS];
} outcome;

static kolo_session_opts options_of(const setting *s) {
    return (kolo_session_opts){
        .mesh = s->mesh,
        .pipeline = s->pipeline,
        .placement = s->placement,
        .global_batch = OWN_SAMPLES,
        .accumulate = s->accumulate,
        .reproducible = s->blocks > 0 ? OWN_SAMPLES : 0,
        .tp_blocks = s->blocks,
        .rebalance_stages = s->rebalance,
        .zero = s->zero,
        .seed = 5,
        .lr = 0.01,
        .optimizer = {.kind = KOLO_OPTIMIZER_ADAMW, .eps = 1e-4, .clip = 0.5},
        .bucket_bytes = 4096,
        .f64 = true,
        .keep_gradients = true,
    };
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const kolo_field *)a)->name, ((const kolo_field *)b)->name);
}

/* Reads all tensors, or the gradients of parameters, in the order of names. */
static kolo_status read_all(const kolo_session *s, bool gradients, double *to, int room, int *n) {
    kolo_field tensors[TENSORS];
    int count = 0;
    while (count < TENSORS && kolo_session_tensor(s, count, &tensors[count]) == KOLO_OK) count++;
    qsort(tensors, (size_t)count, sizeof *tensors, by_name);
    for (int i = *n = 0; i < count; i++) {
        const int64_t elements = kolo_shape_count(&tensors[i].shape);
        const size_t bytes = (size_t)elements * sizeof *to;
        if (gradients && strncmp(tensors[i].name, "optimizer.", 10) == 0) continue;
        if (*n + elements > room || tensors[i].dtype != KOLO_DTYPE_F64) {
            return kolo_error_set(KOLO_ERR_FORMAT, "no room for %s", tensors[i].name);
        }
        KOLO_TRY(gradients ? kolo_session_get_gradient(s, tensors[i].name, to + *n, bytes)
                           : kolo_session_get(s, tensors[i].name, to + *n, bytes));
        *n += (int)elements;
    }
    return KOLO_OK;
}

static kolo_status train(kolo_session *s, const setting *t, outcome *o) {
    own_net_samples own;
    kolo_batch batch;
    kolo_metrics metrics;
    for (int k = t->first; k < (t->last ? t->last : STEPS); k++) {
        KOLO_TRY(own_net_batch(s, k, &own, &batch));
        KOLO_TRY(kolo_session_step(s, &batch, &metrics));
        o->losses[k] = kolo_metrics_get(&metrics, "loss");
        if (k > 0) continue;
        KOLO_TRY(read_all(s, true, o->gradients, GRADIENTS, &o->n_gradients));
    }
    return KOLO_OK;
}

/* What the trained session gives; then with a table that rank 0 sets. */
static kolo_status use(kolo_session *s, bool root, outcome *o) {
    own_net_samples own;
    kolo_batch batch;
    kolo_metrics metrics;
    kolo_shape shape;
    double table[TABLE];
    KOLO_TRY(own_net_batch(s, 1, &own, &batch));
    o->first = batch.first;
    o->count = batch.count;
    KOLO_TRY(read_all(s, false, o->numbers, NUMBERS, &o->n));
    KOLO_TRY(kolo_session_evaluate(s, &batch, &metrics));
    o->evaluated = kolo_metrics_get(&metrics, "loss");
    o->accuracy = kolo_metrics_get(&metrics, "accuracy");
    KOLO_TRY(kolo_session_predict(s, &batch, "logits", NULL, 0, &shape));
    const size_t bytes = (size_t)kolo_shape_count(&shape) * sizeof(double);
    if (shape.rank != 2 || shape.dim[0] != batch.count * OWN_TOKENS || shape.dim[1] != OWN_WORDS) {
        return kolo_error_set(KOLO_ERR_FORMAT, "logits of another shape");
    }
    batch.n_fields = 1; /* no labels */
    KOLO_TRY(kolo_session_predict(s, &batch, "logits", o->logits, bytes, NULL));
    batch.n_fields = 2;
    for (int i = 0; i < TABLE; i++) table[i] = 0.3 * sin(i);
    KOLO_TRY(kolo_session_set(s, "words", root ? table : NULL, sizeof table));
    KOLO_TRY(kolo_session_evaluate(s, &batch, &metrics));
    o->set = kolo_metrics_get(&metrics, "loss");
    return KOLO_OK;
}

/* Another session takes the weights alone; they are those of the file. */
static kolo_status load_part(kolo_comm *comm, const setting *t, const kolo_session *loaded) {
    const kolo_session_opts opts = options_of(t);
    double tables[2][TABLE];
    char *rest = NULL;
    kolo_session *s;
    KOLO_TRY(kolo_session_create(comm, &opts, own_net_build, NULL, &s));
    kolo_status status = kolo_session_load_partial(s, t->load, &rest);
    if (status == KOLO_OK && *rest) status = kolo_error_set(KOLO_ERR_FORMAT, "%s", rest);
    if (status == KOLO_OK) status = kolo_session_get(s, "words", tables[0], sizeof tables[0]);
    if (status == KOLO_OK) status = kolo_session_get(loaded, "words", tables[1], sizeof tables[1]);
    if (status == KOLO_OK && memcmp(tables[0], tables[1], sizeof tables[0]) != 0) {
        status = kolo_error_set(KOLO_ERR_FORMAT, "other weights are loaded in part");
    }
    kolo_checkpoint_text_free(rest);
    kolo_session_destroy(s);
    return status;
}

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const setting *t = arg;
    const kolo_session_opts opts = options_of(t);
    outcome *o = result;
    kolo_session *s;
    KOLO_TRY(kolo_session_create(comm, &opts, own_net_build, NULL, &s));
    kolo_status status = t->load ? kolo_session_load(s, t->load) : KOLO_OK;
    if (status == KOLO_OK && kolo_session_steps(s) != t->first) {
        status = kolo_error_set(KOLO_ERR_FORMAT, "steps");
    }
    if (status == KOLO_OK && t->load) status = load_part(comm, t, s);
    if (status == KOLO_OK) status = train(s, t, o);
    if (status == KOLO_OK && t->save) status = kolo_session_save(s, t->save);
    if (status == KOLO_OK && !t->last) status = use(s, kolo_comm_rank(comm) == 0, o);
    kolo_session_destroy(s);
    return status;
}

/* The outcomes by rank; valid until the next call. */
static const outcome *run(int ranks, setting s) {
    static outcome *outcomes;
    free(outcomes);
    outcomes = calloc((size_t)ranks, sizeof *outcomes);
    assert_non_null(outcomes);
    rank_job job = {.n = ranks,
                    .transport = RANKS_THREAD,
                    .body = body,
                    .arg = &s,
                    .arg_bytes = sizeof s,
                    .results = outcomes,
                    .result_bytes = sizeof *outcomes};
    const kolo_status status = run_rank_job(&job);
    if (status != KOLO_OK) fail_msg("%s: %s", s.mesh ? s.mesh : "alone", kolo_last_error());
    return outcomes;
}

static const outcome *alone(void) {
    static outcome o;
    if (o.n == 0) o = *run(1, (setting){.accumulate = 1});
    assert_true(o.losses[OWN_BATCHES] < o.losses[0] && o.n > 3 * 4900 && o.n_gradients > 4900);
    return &o;
}

static void assert_near(const char *what, const char *mesh, double a, double b, double most) {
    if (!(fabs(a - b) <= most * fabs(b))) fail_msg("%s: %s is %.17g, not %.17g", mesh, what, a, b);
}

static void assert_equals_alone(const setting *s, int ranks, const outcome *o) {
    const outcome *want = alone();
    double evaluated = 0, accuracy = 0, set = 0;
    int64_t samples = 0;
    for (int r = 0; r < ranks; r++) {
        assert_int_equal(o[r].n, want->n);
        assert_memory_equal(o[r].numbers, o[0].numbers, sizeof o->numbers);
        const double *rows = want->logits + o[r].first * OWN_TOKENS * OWN_WORDS;
        const size_t n = (size_t)(o[r].count * OWN_TOKENS * OWN_WORDS);
        assert_near("the distance of logits", s->mesh,
                    1 + test_relative_l2_f64(o[r].logits, rows, n), 1, 1e-10);
        for (int k = s->first; k < STEPS; k++) {
            assert_near("a loss", s->mesh, o[r].losses[k], want->losses[k], 1e-10);
        }
        samples += o[r].count;
        evaluated += o[r].evaluated * (double)o[r].count;
        accuracy += o[r].accuracy * (double)o[r].count;
        set += o[r].set * (double)o[r].count;
    }
    assert_true(test_relative_l2_f64(o->numbers, want->numbers, (size_t)want->n) < 1e-10);
    assert_near("the loss of an evaluation", s->mesh, evaluated / (double)samples, want->evaluated,
                1e-10);
    assert_near("the accuracy", s->mesh, accuracy / (double)samples, want->accuracy, 1e-10);
    assert_near("the loss after a table was set", s->mesh, set / (double)samples, want->set, 1e-10);
}

static void meshes_compute_what_one_rank_does(void **state) {
    const char *rules = own_net_rules;
    const struct {
        int ranks;
        setting s;
    } cases[] = {
        {2, {.mesh = "tp=2", .placement = rules}},
        {4, {.mesh = "sp=4"}},
        {2, {.mesh = "pp=2", .accumulate = 2}},
        {3, {.mesh = "dp=3", .zero = 3}},
        {4, {.mesh = "dp=2,tp=2", .placement = rules, .zero = 1}},
        {4, {.mesh = "pp=2,tp=2", .placement = rules, .accumulate = 2, .pipeline = "zb-h1"}},
        {4, {.mesh = "pp=2,sp=2", .accumulate = 3, .pipeline = "interleaved:2"}},
        {4, {.mesh = "dp=2,pp=2", .accumulate = 2, .zero = 1}},
        {8, {.mesh = "dp=2,pp=2,tp=2", .placement = rules, .accumulate = 2}},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        const setting *s = &cases[i].s;
        const outcome *want = alone(), *o = run(cases[i].ranks, *s);
        assert_near("the first loss", s->mesh, o->losses[0], want->losses[0], 1e-12);
        for (int r = 0; r < cases[i].ranks; r++) {
            const double far =
                test_relative_l2_f64(o[r].gradients, want->gradients, (size_t)want->n_gradients);
            assert_int_equal(o[r].n_gradients, want->n_gradients);
            if (!(far < 1e-12)) fail_msg("%s: gradients differ by %g", s->mesh, far);
        }
        assert_equals_alone(s, cases[i].ranks, o);
    }
}

/* Layers in blocks: losses, gradients and tensors have the bits of one rank. */
static void blocks_keep_the_bits(void **state) {
    const char *rules = strchr(own_net_rules, '\n') + 1; /* without the words, an odd number */
    const struct {
        int ranks;
        setting s;
    } cases[] = {
        {2, {.mesh = "tp=2", .placement = rules, .blocks = 2}},
        {4, {.mesh = "dp=2,tp=2", .placement = rules, .zero = 1, .blocks = 2}},
    };
    static outcome want;
    (void)alone(); /* it runs once, before the others */
    want = *run(1, (setting){.placement = rules, .blocks = 2});
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        const outcome *o = run(cases[i].ranks, cases[i].s);
        assert_equals_alone(&cases[i].s, cases[i].ranks, o);
        assert_memory_equal(o->losses, want.losses, sizeof want.losses);
        assert_memory_equal(o->numbers, want.numbers, sizeof want.numbers);
        assert_memory_equal(o->gradients, want.gradients, sizeof want.gradients);
    }
}

static void files_of_a_mesh_load_on_another(void **state) {
    const char *rules = own_net_rules;
    const struct {
        int ranks, then_ranks;
        setting s, then;
    } cases[] = {
        {4,
         2,
         {.mesh = "dp=2,tp=2", .placement = rules, .zero = 1},
         {.mesh = "pp=2", .accumulate = 2, .pipeline = "zbv"}},
        {4, 1, {.mesh = "pp=2,tp=2", .placement = rules, .accumulate = 2}, {.mesh = "dp=1"}},
        {1, 4, {.mesh = "dp=1"}, {.mesh = "dp=2,sp=2", .zero = 1}},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        setting s = cases[i].s, then = cases[i].then;
        s.last = then.first = STEPS / 2;
        s.save = then.load = "session_mesh.safetensors";
        (void)run(cases[i].ranks, s);
        assert_equals_alone(&then, cases[i].then_ranks, run(cases[i].then_ranks, then));
    }
}

/* ---- metrics of tensors ---- */

static kolo_status build_with_counts(kolo_graph *g, int64_t n, void *arg) {
    KOLO_TRY(own_net_build(g, n, arg));
    const kolo_value logits = kolo_graph_output(g, "logits");
    kolo_output(
        g, "confusion",
        kolo_confusion(g, logits,
                       kolo_reshape(g, kolo_graph_find(g, "next"), kolo_shape_1(n * OWN_TOKENS))));
    return KOLO_OK;
}

/* A session on a mesh, and a batch. */
static kolo_status begin_count(kolo_comm *comm, const char *mesh, own_net_samples *own,
                               kolo_batch *batch, kolo_session **s) {
    const kolo_session_opts opts = {
        .mesh = mesh, .global_batch = OWN_SAMPLES, .accumulate = 2, .seed = 5, .f64 = true};
    KOLO_TRY(kolo_session_create(comm, &opts, build_with_counts, NULL, s));
    const kolo_status status = own_net_batch(*s, 1, own, batch);
    if (status != KOLO_OK) kolo_session_destroy(*s);
    return status;
}

static kolo_status count(kolo_comm *comm, const void *arg, void *result) {
    own_net_samples own;
    kolo_batch batch;
    kolo_metrics metrics;
    kolo_session *s;
    KOLO_TRY(begin_count(comm, arg, &own, &batch, &s));
    kolo_status status = kolo_session_evaluate(s, &batch, &metrics);
    if (status == KOLO_OK) *(double *)result = kolo_metrics_get(&metrics, "mean_iou");
    kolo_session_destroy(s);
    return status;
}

/* One stage has the counts, all report what they give. */
static void stages_share_the_counts(void **state) {
    static const char *const meshes[] = {"dp=1", "pp=2", "pp=2,sp=2"};
    double iou[3][4];
    for (int i = 0; i < 3; i++) {
        rank_job job = {.n = i == 2 ? 4 : i + 1,
                        .transport = RANKS_THREAD,
                        .body = count,
                        .arg = meshes[i],
                        .arg_bytes = strlen(meshes[i]) + 1,
                        .results = iou[i],
                        .result_bytes = sizeof iou[i][0]};
        ASSERT_OK(run_rank_job(&job));
        for (int r = 0; r < job.n; r++) {
            assert_near("mean IoU", meshes[i], iou[i][r], iou[0][0], 1e-12);
        }
    }
    assert_true(iou[0][0] > 0);
}

typedef struct short_of_memory {
    kolo_status status;
    char error[256];
} short_of_memory;

/* Which block the last stage has no memory for in the second evaluation. */
typedef struct missing_block {
    long nth; /* 0: the one of `bytes` */
    size_t bytes;
} missing_block;

static kolo_status count_without_memory(kolo_comm *comm, const void *arg, void *result) {
    const missing_block *missing = arg;
    short_of_memory *out = result;
    own_net_samples own;
    kolo_batch batch;
    kolo_metrics metrics;
    kolo_session *s;
    KOLO_TRY(begin_count(comm, "pp=2", &own, &batch, &s));
    kolo_status status = kolo_session_evaluate(s, &batch, &metrics);
    if (status == KOLO_OK) status = kolo_barrier(comm);
    if (status == KOLO_OK && kolo_comm_rank(comm) == 1) {
        kolo_alloc_fail_nth(missing->nth);
        kolo_alloc_fail_bytes(missing->bytes);
    }
    if (status == KOLO_OK) status = kolo_session_evaluate(s, &batch, &metrics);
    kolo_alloc_fail_nth(0);
    kolo_alloc_fail_bytes(0);
    out->status = status;
    (void)snprintf(out->error, sizeof out->error, "%s", kolo_last_error());
    kolo_session_destroy(s);
    return KOLO_OK;
}

static void evaluate_without(missing_block missing, short_of_memory *stage) {
    rank_job job = {.n = 2,
                    .transport = RANKS_THREAD,
                    .body = count_without_memory,
                    .arg = &missing,
                    .arg_bytes = sizeof missing,
                    .results = stage,
                    .result_bytes = sizeof stage[0]};
    ASSERT_OK(run_rank_job(&job));
    assert_int_equal(stage[0].status == KOLO_OK, stage[1].status == KOLO_OK);
}

/* All stages end where one has no memory, whatever for. */
static void stages_end_on_missing_memory(void **state) {
    short_of_memory stage[2] = {{.status = KOLO_ERR_NOMEM}};
    for (long nth = 1; stage[0].status != KOLO_OK; nth++) {
        evaluate_without((missing_block){.nth = nth}, stage);
    }
}

/* Where the last stage copies the counts, both stages have its error. */
static void stages_agree_on_missing_memory(void **state) {
    const missing_block counts = {.bytes = OWN_WORDS * OWN_WORDS * sizeof(double)};
    short_of_memory stage[2];
    evaluate_without(counts, stage);
    char expected[64];
    (void)snprintf(expected, sizeof expected, "rank 1: no memory for %zu bytes", counts.bytes);
    assert_int_equal(stage[0].status, KOLO_ERR_NOMEM);
    assert_non_null(strstr(stage[0].error, expected));
}

/* ---- data sets and runs ---- */

enum { TRAINED = 29, TESTED = 9 };

typedef struct fitted {
    double loss, test, read; /* read: after the run, of the test set */
    int64_t steps;
    bool refused; /* a callback could not read the session, */
    int notices, refused_notices;
} fitted;

typedef struct watched {
    kolo_session *session;
    fitted *out;
} watched;

static bool is_refused(kolo_status status) {
    return status == KOLO_ERR_ARG && strstr(kolo_last_error(), "a callback runs on rank 0 alone");
}

/* On rank 0 alone: what all ranks do together is refused. */
static bool try_all(kolo_session *s) {
    own_net_samples own;
    kolo_batch batch;
    float table[TABLE] = {0};
    if (!is_refused(kolo_session_get(s, "words", table, sizeof table))) return false;
    return own_net_batch(s, 0, &own, &batch) == KOLO_OK &&
           is_refused(kolo_session_step(s, &batch, NULL)) &&
           is_refused(kolo_session_set(s, "words", table, sizeof table)) &&
           is_refused(kolo_session_save(s, "unused")) && is_refused(kolo_session_load(s, "unused"));
}

static bool look(void *arg, const kolo_train_progress *p) {
    const watched *w = arg;
    w->out->refused = try_all(w->session);
    return p->step < 0;
}

static void read_notice(void *arg, const char *line, kolo_notice_kind kind) {
    const watched *w = arg;
    w->out->notices++;
    w->out->refused_notices += try_all(w->session);
}

static kolo_status open_data(int64_t first, int64_t count, int32_t *ids, int32_t *next,
                             kolo_dataset **data) {
    own_net_fill(first, count, ids, next);
    const kolo_source source = {
        .count = count, .n_fields = 2, .fields = own_net_fields, .data = {ids, next}};
    return kolo_dataset_create(&source, data);
}

static kolo_status fit(kolo_comm *comm, const setting *t, const kolo_dataset *train,
                       const kolo_dataset *test, fitted *o) {
    kolo_session_opts opts = options_of(t);
    kolo_train_result result = {.steps = 0};
    kolo_metrics metrics = {{0}};
    watched w = {.out = o};
    opts.f64 = opts.keep_gradients = false;
    KOLO_TRY(kolo_session_create(comm, &opts, own_net_build, NULL, &w.session));
    kolo_fit_opts run = {.epochs = t->last ? 2 : 4,
                         .out_dir = t->save,
                         .checkpoint_epochs = t->save ? 1 : 0,
                         .resume = t->load,
                         .eval_every = 1,
                         .arg = &w,
                         .notice = read_notice,
                         .notice_arg = &w};
    if (kolo_comm_rank(comm) == 0) run.stop = look;
    kolo_status status = t->load ? KOLO_OK : own_net_loop(w.session, train, 1);
    if (status == KOLO_OK) status = kolo_fit(w.session, train, test, &run, &result);
    if (status == KOLO_OK) status = kolo_session_evaluate_dataset(w.session, test, &metrics);
    o->loss = result.final.value[KOLO_METRIC_LOSS];
    o->test = result.test.value[KOLO_METRIC_LOSS];
    o->read = kolo_metrics_get(&metrics, "loss");
    o->steps = kolo_session_steps(w.session);
    kolo_session_destroy(w.session);
    return status;
}

static kolo_status fit_body(kolo_comm *comm, const void *arg, void *result) {
    int32_t rows[2][2][TRAINED * OWN_TOKENS];
    kolo_dataset *train = NULL, *test = NULL;
    kolo_status status = open_data(0, TRAINED, rows[0][0], rows[0][1], &train);
    if (status == KOLO_OK) status = open_data(100, TESTED, rows[1][0], rows[1][1], &test);
    if (status == KOLO_OK) status = fit(comm, arg, train, test, result);
    kolo_dataset_close(train);
    kolo_dataset_close(test);
    return status;
}

static fitted run_fit(int ranks, setting s) {
    static fitted o[MOST_RANKS];
    rank_job job = {.n = ranks,
                    .transport = RANKS_THREAD,
                    .body = fit_body,
                    .arg = &s,
                    .arg_bytes = sizeof s,
                    .results = o,
                    .result_bytes = sizeof *o};
    const kolo_status status = run_rank_job(&job);
    if (status != KOLO_OK) fail_msg("%s: %s", s.mesh ? s.mesh : "alone", kolo_last_error());
    assert_true(o[0].refused == (ranks > 1));
    assert_int_equal(o[0].refused_notices, ranks > 1 ? o[0].notices : 0);
    for (int r = 0; r < ranks; r++) {
        assert_true(o[r].test == o[0].test && o[r].read == o[0].read && o[r].loss == o[0].loss);
        assert_int_equal(o[r].steps, o[0].steps);
    }
    assert_near("the loss of a data set", s.mesh ? s.mesh : "alone", o[0].read, o[0].test, 1e-6);
    return o[0];
}

/* An epoch of the program's loop, a run with checkpoints, and a run of another session that resumes
 * on another mesh. */
static void runs_resume_on_another_mesh(void **state) {
    const fitted want = run_fit(1, (setting){.accumulate = 1});
    const struct {
        int ranks, then_ranks;
        setting s, then;
    } cases[] = {
        {4,
         2,
         {.mesh = "dp=2,tp=2", .placement = own_net_rules, .zero = 1},
         {.mesh = "pp=2", .accumulate = 2, .rebalance = 3}},
        {4, 4, {.mesh = "dp=2,pp=2", .accumulate = 2}, {.mesh = "dp=2,sp=2", .zero = 1}},
    };
    assert_int_equal(want.steps, 4 * ((TRAINED - 1) / OWN_SAMPLES + 1));
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        setting s = cases[i].s, then = cases[i].then;
        assert_int_equal(system("rm -rf session_runs"), 0);
        s.last = 1;
        s.save = then.load = "session_runs";
        (void)run_fit(cases[i].ranks, s);
        const fitted o = run_fit(cases[i].then_ranks, then);
        assert_true(o.notices > 0); /* that it resumes */
        assert_int_equal(o.steps, want.steps);
        assert_near("the loss of training", then.mesh, o.loss, want.loss, 1e-4);
        assert_near("the loss of the test set", then.mesh, o.test, want.test, 1e-4);
    }
}

/* ---- evaluation alone ---- */

static kolo_status evaluate_body(kolo_comm *comm, const void *arg, void *result) {
    kolo_session_opts opts = options_of(arg);
    kolo_session *s;
    own_net_samples own;
    kolo_batch batch;
    double logits[LOGITS];
    opts.evaluate_only = true;
    opts.keep_gradients = false;
    KOLO_TRY(kolo_session_create(comm, &opts, own_net_build, NULL, &s));
    kolo_status status = kolo_session_load(s, "session_mesh.safetensors");
    if (status == KOLO_OK) status = own_net_batch(s, 1, &own, &batch);
    const size_t bytes = (size_t)(batch.count * OWN_TOKENS * OWN_WORDS) * sizeof *logits;
    if (status == KOLO_OK) status = kolo_session_predict(s, &batch, "logits", logits, bytes, NULL);
    kolo_metrics metrics = {{0}};
    if (status == KOLO_OK) status = kolo_session_evaluate(s, &batch, &metrics);
    double *o = result;
    o[0] = kolo_metrics_get(&metrics, "loss");
    o[1] = logits[0];
    kolo_session_destroy(s);
    return status;
}

static void sessions_that_evaluate_only_have_meshes(void **state) {
    const struct {
        int ranks;
        setting s;
    } cases[] = {{1, {.mesh = "dp=1"}},
                 {2, {.mesh = "tp=2", .placement = own_net_rules}},
                 {4, {.mesh = "pp=2,sp=2"}}};
    double o[4][2], want[2] = {0};
    (void)run(1, (setting){.mesh = "dp=1", .last = 2, .save = "session_mesh.safetensors"});
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        rank_job job = {.n = cases[i].ranks,
                        .transport = RANKS_THREAD,
                        .body = evaluate_body,
                        .arg = &cases[i].s,
                        .arg_bytes = sizeof cases[i].s,
                        .results = o,
                        .result_bytes = sizeof *o};
        ASSERT_OK(run_rank_job(&job));
        if (i == 0) memcpy(want, o[0], sizeof want);
        for (int r = 0; r < cases[i].ranks; r++) {
            assert_near("the loss", cases[i].s.mesh, o[r][0], want[0], 1e-12);
            assert_near("a logit", cases[i].s.mesh, o[r][1], want[1], 1e-12);
        }
    }
}

TEST_MAIN(test_session_meshes) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(meshes_compute_what_one_rank_does),
        cmocka_unit_test(blocks_keep_the_bits),
        cmocka_unit_test(stages_share_the_counts),
        cmocka_unit_test(stages_end_on_missing_memory),
        cmocka_unit_test(stages_agree_on_missing_memory),
        cmocka_unit_test(files_of_a_mesh_load_on_another),
        cmocka_unit_test(runs_resume_on_another_mesh),
        cmocka_unit_test(sessions_that_evaluate_only_have_meshes),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}

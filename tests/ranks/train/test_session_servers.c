/* Sessions of a program whose parameters are at servers, apart from the workers or not: bits, what
 * the caller sets, files, workers at different steps, errors, and runs of kolo_fit. */
#include "base/compiler.h"
#include "base/rng.h"
#include "base/status.h"
#include "kolo/checkpoint.h"
#include "kolo/session.h"
#include "support/folder.h"
#include "support/own_net.h"
#include "support/ranks.h"
#include "support/support.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 5, MOST_RANKS = 5, WORDS = OWN_WORDS * OWN_WIDTH };
static const char file[] = "servers.safetensors";

/* ---- jobs ---- */

typedef struct job {
    int workers;
    kolo_session_opts opts;
    kolo_status (*work)(kolo_session *s, int rank, uint64_t *result); /* of a worker */
} job;

static kolo_session_opts options_of(const job *j) {
    kolo_session_opts opts = j->opts;
    if (opts.batch == 0) opts.global_batch = OWN_SAMPLES;
    opts.algorithm = KOLO_ALGORITHM_DIRECT;
    opts.seed = 3;
    if (opts.lr == 0) opts.lr = 0.05;
    return opts;
}

static kolo_status job_body(kolo_comm *comm, const void *arg, void *result) {
    const job *j = arg;
    const kolo_session_opts opts = options_of(j);
    const int rank = kolo_comm_rank(comm);
    kolo_session *s;
    KOLO_TRY(kolo_session_create(comm, &opts, own_net_build, NULL, &s));
    kolo_status status = kolo_session_is_server(s) != (rank >= j->workers)
                             ? KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d has another role", rank)
                             : KOLO_OK;
    if (status == KOLO_OK) {
        status = rank < j->workers ? j->work(s, rank, result) : kolo_session_serve(s);
    }
    kolo_session_destroy(s);
    return status;
}

/* The results of the workers, which are threads; all ranks succeed. */
static void run_job(const job *j, uint64_t results[MOST_RANKS]) {
    const rank_job ranks = {.n = j->workers + j->opts.servers,
                            .transport = RANKS_THREAD,
                            .body = job_body,
                            .arg = j,
                            .arg_bytes = sizeof *j,
                            .results = results,
                            .result_bytes = sizeof *results};
    ASSERT_OK(run_rank_job(&ranks));
}

/* Runs the job without servers, and by other sessions: all must have the same result everywhere. */
static void assert_as_without_servers(const char *what, const job *j) {
    uint64_t plain[MOST_RANKS], served[MOST_RANKS];
    job without = *j;
    without.opts.sync = KOLO_SYNC_ALLREDUCE;
    without.opts.servers = 0;
    without.opts.consistency = NULL;
    run_job(&without, plain);
    run_job(j, served);
    for (int w = 0; w < j->workers; w++) {
        if (served[w] != plain[0]) fail_msg("%s: worker %d has other bits", what, w);
    }
}

static kolo_status step_samples(kolo_session *s, int k, kolo_metrics *metrics) {
    own_net_samples samples;
    kolo_batch batch;
    KOLO_TRY(own_net_batch(s, k, &samples, &batch));
    return kolo_session_step(s, &batch, metrics);
}

/* Steps [from, to), whose losses are part of the hash. */
static kolo_status take_steps(kolo_session *s, int from, int to, uint64_t *hash) {
    for (int k = from; k < to; k++) {
        kolo_metrics metrics;
        KOLO_TRY(step_samples(s, k, &metrics));
        const double loss = kolo_metrics_get(&metrics, "loss");
        const uint64_t both[] = {*hash, kolo_hash_bytes(&loss, sizeof loss)};
        *hash = kolo_hash_bytes(both, sizeof both);
    }
    return KOLO_OK;
}

/* Adds all tensors, optimizer state included, to the hash. */
static kolo_status hash_tensors(kolo_session *s, uint64_t *hash) {
    float data[4096];
    kolo_field f;
    for (int i = 0; kolo_session_tensor(s, i, &f) == KOLO_OK; i++) {
        const size_t bytes = (size_t)kolo_shape_count(&f.shape) * sizeof *data;
        KOLO_ASSERT(bytes <= sizeof data);
        KOLO_TRY(kolo_session_get(s, f.name, data, bytes));
        const uint64_t both[] = {*hash, kolo_hash_bytes(data, bytes)};
        *hash = kolo_hash_bytes(both, sizeof both);
    }
    return KOLO_OK;
}

/* ---- bits ---- */

static kolo_status train(kolo_session *s, int rank, uint64_t *hash) {
    KOLO_TRY(take_steps(s, 0, STEPS, hash));
    return hash_tensors(s, hash);
}

static void bsp_equals_a_direct_allreduce(void **state) {
    static const struct {
        const char *what;
        kolo_optimizer_opts optimizer;
        kolo_sync sync;
        int workers, servers;
        const char *consistency;
    } cases[] = {
        {"sgd, one server", {.momentum = 0}, KOLO_SYNC_PS, 2, 1, NULL},
        {"momentum, one server, ssp:0", {.momentum = 0.9}, KOLO_SYNC_PS, 3, 1, "ssp:0"},
        {"adam, one server", {.kind = KOLO_OPTIMIZER_ADAM}, KOLO_SYNC_PS, 2, 1, "bsp"},
        {"momentum, two servers", {.momentum = 0.9}, KOLO_SYNC_PS, 3, 2, NULL},
        {"adam, workers serve", {.kind = KOLO_OPTIMIZER_ADAM}, KOLO_SYNC_MESH, 3, 0, NULL},
        {"clipping, workers serve", {.momentum = 0.9, .clip = 0.3}, KOLO_SYNC_PS, 2, 0, NULL},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        const job j = {.workers = cases[i].workers,
                       .opts = {.sync = cases[i].sync,
                                .servers = cases[i].servers,
                                .consistency = cases[i].consistency,
                                .optimizer = cases[i].optimizer},
                       .work = train};
        assert_as_without_servers(cases[i].what, &j);
    }
}

static void one_worker_trains_as_without_servers(void **state) {
    static const char *const policies[] = {"asp", "ssp:2", "asp", "bsp"};
    for (int i = 0; i < (int)KOLO_COUNT(policies); i++) {
        const job j = {
            .workers = 1,
            .opts = {.sync = i == 2 ? KOLO_SYNC_MESH : KOLO_SYNC_PS,
                     .servers = i == 2 ? 0 : 1 + i % 2,
                     .consistency = policies[i],
                     .batch = 3,
                     .accumulate = 3,
                     .optimizer = {.kind = i == 1 ? KOLO_OPTIMIZER_ADAM : KOLO_OPTIMIZER_SGD,
                                   .momentum = i == 1 ? 0 : 0.9}},
            .work = train};
        assert_as_without_servers(policies[i], &j);
    }
}

/* ---- what the caller sets ---- */

/* Rates, values and files between steps; evaluations and predictions, which change nothing. */
static kolo_status set_between(kolo_session *s, int rank, uint64_t *hash) {
    float words[WORDS], logits[OWN_TOKENS * OWN_WORDS];
    int32_t ids[OWN_TOKENS], next[OWN_TOKENS];
    kolo_metrics metrics;
    own_net_fill(0, 1, ids, next);
    const kolo_batch one = {
        .count = 1, .n_fields = 2, .fields = own_net_fields, .data = {ids, next}};
    KOLO_TRY(take_steps(s, 0, 1, hash));
    KOLO_TRY(kolo_session_set_lr(s, 0.01));
    KOLO_TRY(take_steps(s, 1, 2, hash));
    KOLO_TRY(kolo_session_save(s, file));
    for (int i = 0; i < WORDS; i++) words[i] = (float)(i % 13) / 26;
    KOLO_TRY(kolo_session_set(s, "words", rank == 0 ? words : NULL, sizeof words));
    KOLO_TRY(take_steps(s, 2, 4, hash));
    KOLO_TRY(kolo_session_evaluate(s, &one, &metrics));
    KOLO_TRY(kolo_session_predict(s, &one, "logits", logits, sizeof logits, NULL));
    *hash ^= kolo_hash_bytes(logits, sizeof logits);
    KOLO_TRY(hash_tensors(s, hash));
    KOLO_TRY(kolo_session_load(s, file));
    KOLO_TRY(kolo_session_set_lr(s, 0.02));
    KOLO_TRY(take_steps(s, 2, 4, hash));
    KOLO_TRY(kolo_session_load_partial(s, file, NULL));
    KOLO_TRY(take_steps(s, 4, 6, hash));
    if (kolo_session_steps(s) != 6) return KOLO_FAIL(KOLO_ERR_FORMAT, "not 6 steps");
    return hash_tensors(s, hash);
}

static void owners_get_what_the_caller_sets(void **state) {
    static const struct {
        kolo_sync sync;
        int workers, servers;
        const char *consistency;
    } cases[] = {
        {KOLO_SYNC_PS, 2, 1, NULL},
        {KOLO_SYNC_MESH, 3, 0, NULL},
        {KOLO_SYNC_PS, 1, 1, "asp"},
        {KOLO_SYNC_PS, 1, 2, "ssp:1"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        const job j = {.workers = cases[i].workers,
                       .opts = {.sync = cases[i].sync,
                                .servers = cases[i].servers,
                                .consistency = cases[i].consistency,
                                .optimizer = {.kind = KOLO_OPTIMIZER_ADAM}},
                       .work = set_between};
        char what[32];
        snprintf(what, sizeof what, "case %zu", i);
        assert_as_without_servers(what, &j);
    }
}

/* Ranks are processes. */
static kolo_status hosts_body(kolo_comm *comm, const void *arg, void *result) {
    const kolo_session_opts opts = {.global_batch = OWN_SAMPLES,
                                    .lr = 0.05,
                                    .optimizer = {.kind = KOLO_OPTIMIZER_ADAM},
                                    .sync = KOLO_SYNC_PS,
                                    .servers = 1};
    kolo_session *s;
    KOLO_TRY(kolo_session_create(comm, &opts, own_net_build, NULL, &s));
    const kolo_status status = kolo_session_is_server(s)
                                   ? kolo_session_serve(s)
                                   : set_between(s, kolo_comm_rank(comm), result);
    kolo_session_destroy(s);
    return status;
}

/* The first worker of each host pushes and pulls. */
static void workers_of_hosts_push_together(void **state) {
    uint64_t results[MOST_RANKS];
    const rank_job ranks = {.n = MOST_RANKS,
                            .transport = RANKS_HOSTS,
                            .body = hosts_body,
                            .results = results,
                            .result_bytes = sizeof *results};
    ASSERT_OK(run_rank_job(&ranks));
    for (int w = 1; w < MOST_RANKS - 1; w++) assert_true(results[w] == results[0]);
}

/* Saves after some steps, goes on, and repeats the rest from the file. */
static kolo_status repeat_from_file(kolo_session *s, int rank, uint64_t *hash) {
    uint64_t first = 1, again = 1;
    KOLO_TRY(take_steps(s, 0, 2, hash));
    KOLO_TRY(kolo_session_save(s, file));
    KOLO_TRY(take_steps(s, 2, STEPS, &first));
    KOLO_TRY(hash_tensors(s, &first));
    KOLO_TRY(kolo_session_load(s, file));
    KOLO_TRY(take_steps(s, 2, STEPS, &again));
    KOLO_TRY(hash_tensors(s, &again));
    if (first != again) return KOLO_FAIL(KOLO_ERR_FORMAT, "other bits after the load");
    *hash = first;
    return KOLO_OK;
}

static void a_file_restores_steps_and_schedule(void **state) {
    for (int i = 0; i < 3; i++) {
        const job j = {.workers = i == 2 ? 1 : 2,
                       .opts = {.sync = i == 1 ? KOLO_SYNC_MESH : KOLO_SYNC_PS,
                                .servers = i == 1 ? 0 : 1,
                                .consistency = i == 2 ? "asp" : NULL,
                                .schedule = KOLO_LR_COSINE,
                                .steps = 2 * STEPS,
                                .warmup_steps = 3,
                                .optimizer = {.kind = KOLO_OPTIMIZER_ADAM}},
                       .work = repeat_from_file};
        assert_as_without_servers("resumed", &j);
    }
}

/* The errors of codes are in the file, and stay when a tensor is set. */
static kolo_status repeat_codes(kolo_session *s, int rank, uint64_t *hash) {
    float words[WORDS];
    KOLO_TRY(repeat_from_file(s, rank, hash));
    KOLO_TRY(kolo_session_save(s, file));
    uint64_t first = 1, again = 1;
    KOLO_TRY(take_steps(s, STEPS, STEPS + 2, &first));
    KOLO_TRY(kolo_session_load(s, file));
    KOLO_TRY(take_steps(s, STEPS, STEPS + 1, &again));
    KOLO_TRY(kolo_session_get(s, "words", words, sizeof words));
    KOLO_TRY(kolo_session_set(s, "words", rank == 0 ? words : NULL, sizeof words));
    KOLO_TRY(take_steps(s, STEPS + 1, STEPS + 2, &again));
    return first == again ? KOLO_OK : KOLO_FAIL(KOLO_ERR_FORMAT, "other bits after the set");
}

static void codes_are_pushed(void **state) {
    for (int i = 0; i < 2; i++) {
        uint64_t plain[MOST_RANKS], results[MOST_RANKS];
        job j = {.workers = i == 0 ? 2 : 1,
                 .opts = {.sync = KOLO_SYNC_PS,
                          .servers = 1,
                          .consistency = i == 0 ? "bsp" : "asp",
                          .compress = "int8",
                          .compress_min_bytes = 1,
                          .optimizer = {.momentum = 0.9}},
                 .work = repeat_codes};
        run_job(&j, results);
        if (i == 0) assert_true(results[0] == results[1]);
        j.opts.compress = NULL;
        run_job(&j, plain);
        assert_true(results[0] != plain[0]);
    }
}

/* ---- workers at different steps ---- */

static kolo_status evaluate_all(kolo_session *s, kolo_metrics *metrics) {
    own_net_samples samples;
    own_net_fill(0, OWN_SAMPLES, samples.ids, samples.next);
    const kolo_source source = {.count = OWN_SAMPLES,
                                .n_fields = 2,
                                .fields = own_net_fields,
                                .data = {samples.ids, samples.next}};
    kolo_dataset *data;
    KOLO_TRY(kolo_dataset_create(&source, &data));
    const kolo_status status = kolo_session_evaluate_dataset(s, data, metrics);
    kolo_dataset_close(data);
    return status;
}

/* Each worker makes another number of steps; then all have the same parameters, and go on. */
static kolo_status uneven(kolo_session *s, int rank, uint64_t *hash) {
    kolo_metrics metrics;
    uint64_t unused = 0;
    for (int turn = 0; turn < 2; turn++) {
        KOLO_TRY(take_steps(s, 0, 1 + 2 * rank, &unused));
        KOLO_TRY(kolo_session_save(s, file));
        KOLO_TRY(hash_tensors(s, hash));
        KOLO_TRY(evaluate_all(s, &metrics));
        const double loss = kolo_metrics_get(&metrics, "loss");
        *hash ^= kolo_hash_bytes(&loss, sizeof loss);
        if (!(loss > 0 && loss < 3.2)) return KOLO_FAIL(KOLO_ERR_FORMAT, "a loss of %g", loss);
    }
    return kolo_session_steps(s) == 2 + 4 * rank ? KOLO_OK
                                                 : KOLO_FAIL(KOLO_ERR_FORMAT, "other steps");
}

static void workers_are_at_different_steps(void **state) {
    static const struct {
        kolo_sync sync;
        int servers;
        const char *consistency;
    } cases[] = {
        {KOLO_SYNC_PS, 1, "asp"},     {KOLO_SYNC_PS, 2, "asp,dc=0.04"}, {KOLO_SYNC_MESH, 0, "asp"},
        {KOLO_SYNC_PS, 1, "ssp:8"},   {KOLO_SYNC_PS, 1, "auto"},        {KOLO_SYNC_PS, 1, "ssp:1"},
        {KOLO_SYNC_MESH, 0, "ssp:2"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        uint64_t results[MOST_RANKS];
        const job j = {.workers = 3,
                       .opts = {.sync = cases[i].sync,
                                .servers = cases[i].servers,
                                .consistency = cases[i].consistency,
                                .optimizer = {.momentum = 0.5}},
                       .work = uneven};
        run_job(&j, results);
        assert_true(results[0] == results[1] && results[0] == results[2]);
    }
}

/* Optimizer state is read once all workers have met. */
static kolo_status uneven_state(kolo_session *s, int rank, uint64_t *hash) {
    float data[4096];
    kolo_field f;
    uint64_t unused = 0;
    int n = 0;
    KOLO_TRY(take_steps(s, 0, 1 + 8 * rank, &unused));
    for (int i = 0; kolo_session_tensor(s, i, &f) == KOLO_OK; i++) {
        const size_t bytes = (size_t)kolo_shape_count(&f.shape) * sizeof *data;
        if (strncmp(f.name, "optimizer.", 10) != 0) continue;
        KOLO_ASSERT(bytes <= sizeof data);
        KOLO_TRY(kolo_session_get(s, f.name, data, bytes));
        const uint64_t both[] = {*hash, kolo_hash_bytes(data, bytes)};
        *hash = kolo_hash_bytes(both, sizeof both);
        n++;
    }
    return n > 0 ? KOLO_OK : KOLO_FAIL(KOLO_ERR_FORMAT, "no optimizer state");
}

static void optimizer_state_is_that_of_all_workers(void **state) {
    uint64_t results[MOST_RANKS];
    const job j = {.workers = 2,
                   .opts = {.sync = KOLO_SYNC_PS,
                            .servers = 1,
                            .consistency = "asp",
                            .optimizer = {.momentum = 0.5}},
                   .work = uneven_state};
    run_job(&j, results);
    assert_true(results[0] == results[1]);
}

/* The largest change of "words". */
static kolo_status measure_change(kolo_session *s, const float *from, float *change) {
    float words[WORDS];
    KOLO_TRY(kolo_session_get(s, "words", words, sizeof words));
    *change = 0;
    for (int i = 0; i < WORDS; i++) *change = fmaxf(*change, fabsf(words[i] - from[i]));
    return KOLO_OK;
}

/* Makes a step of worker 1, which is where the schedule has a small rate, and then one of worker 0,
 * from these values. */
static kolo_status step_apart(kolo_session *s, int rank, const float words[WORDS]) {
    float change = 0;
    uint64_t unused = 0;
    if (rank == 1) {
        KOLO_TRY(take_steps(s, 6, 7, &unused));
        KOLO_TRY(measure_change(s, words, &change));
        if (!(change < 1e-5F)) return KOLO_FAIL(KOLO_ERR_FORMAT, "a change by %g", (double)change);
    }
    KOLO_TRY(kolo_session_save(s, file));
    if (rank == 0) {
        KOLO_TRY(take_steps(s, 1, 2, &unused));
        KOLO_TRY(measure_change(s, words, &change));
        if (!(change > 1e-4F)) return KOLO_FAIL(KOLO_ERR_FORMAT, "a change by %g", (double)change);
    }
    return KOLO_OK;
}

static kolo_status set_at_different_steps(kolo_session *s, int rank, uint64_t *hash) {
    float words[WORDS];
    *hash = 0;
    for (int i = 0; i < WORDS; i++) words[i] = (float)(i % 13) / 26;
    KOLO_TRY(take_steps(s, 0, rank == 1 ? 6 : 1, hash));
    KOLO_TRY(kolo_session_set(s, "words", rank == 0 ? words : NULL, sizeof words));
    return step_apart(s, rank, words);
}

/* From a file without optimizer state and steps. */
static kolo_status load_weights_at_different_steps(kolo_session *s, int rank, uint64_t *hash) {
    static const char weights[] = "weights.safetensors";
    const int made = rank == 1 ? 6 : 1;
    float words[WORDS];
    *hash = 0;
    KOLO_TRY(take_steps(s, 0, made, hash));
    KOLO_TRY(kolo_session_save(s, file));
    KOLO_TRY(kolo_session_get(s, "words", words, sizeof words));
    if (rank == 0) KOLO_TRY(kolo_checkpoint_export(file, weights, KOLO_FORMAT_NATIVE));
    KOLO_TRY(kolo_session_load(s, weights));
    if (kolo_session_steps(s) != made) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%d steps", (int)kolo_session_steps(s));
    }
    return step_apart(s, rank, words);
}

/* When a tensor is set, and weights are loaded. */
static void workers_stay_where_they_are_in_the_schedule(void **state) {
    uint64_t results[MOST_RANKS];
    job j = {.workers = 2,
             .opts = {.sync = KOLO_SYNC_PS,
                      .servers = 1,
                      .consistency = "asp",
                      .schedule = KOLO_LR_STEP,
                      .lr_step_every = 4,
                      .lr_step_factor = 1e-6},
             .work = set_at_different_steps};
    run_job(&j, results);
    j.work = load_weights_at_different_steps;
    run_job(&j, results);
}

/* A step ends without the latest gradient: all workers make the same number of steps. */
static kolo_status dropping(kolo_session *s, int rank, uint64_t *hash) {
    uint64_t unused = 0;
    KOLO_TRY(take_steps(s, 0, STEPS, &unused));
    KOLO_TRY(kolo_session_save(s, file));
    return hash_tensors(s, hash);
}

static void late_gradients_are_in_what_is_saved(void **state) {
    uint64_t results[MOST_RANKS];
    const job j = {.workers = 3,
                   .opts = {.sync = KOLO_SYNC_PS, .servers = 1, .consistency = "bsp:drop=1"},
                   .work = dropping};
    run_job(&j, results);
    assert_true(results[0] == results[1] && results[0] == results[2]);
}

/* ---- errors ---- */

/* A step in whose batch worker 1 has a label outside the classes. */
static kolo_status step_refused(kolo_session *s, int rank, int k) {
    own_net_samples samples;
    kolo_batch batch;
    KOLO_TRY(own_net_batch(s, k, &samples, &batch));
    if (rank == 1) samples.next[0] = OWN_WORDS;
    return kolo_session_step(s, &batch, NULL);
}

static kolo_status expect(kolo_status status, kolo_status expected, const char *text) {
    char found[256];
    if (status == expected && (status == KOLO_OK || strstr(kolo_last_error(), text))) {
        return KOLO_OK;
    }
    snprintf(found, sizeof found, "%s", status == KOLO_OK ? "nothing" : kolo_last_error());
    return KOLO_FAIL(KOLO_ERR_FORMAT, "expected \"%s\", got: %s", text, found);
}

static kolo_status refused_by_all(kolo_session *s, int rank, uint64_t *hash) {
    KOLO_TRY(take_steps(s, 0, 2, hash));
    KOLO_TRY(expect(step_refused(s, rank, 2), KOLO_ERR_ARG, "is outside"));
    if (rank == 0) KOLO_TRY(expect(KOLO_ERR_ARG, KOLO_ERR_ARG, "rank 1: label"));
    KOLO_TRY(take_steps(s, 2, STEPS, hash));
    return hash_tensors(s, hash);
}

static kolo_status refused_by_one(kolo_session *s, int rank, uint64_t *hash) {
    KOLO_TRY(take_steps(s, 0, 2, hash));
    KOLO_TRY(expect(step_refused(s, rank, 2), rank == 1 ? KOLO_ERR_ARG : KOLO_OK, "is outside"));
    KOLO_TRY(take_steps(s, 3, STEPS, hash));
    KOLO_TRY(kolo_session_save(s, file));
    *hash = 0;
    return hash_tensors(s, hash);
}

static void a_refused_batch_ends_no_run(void **state) {
    uint64_t results[MOST_RANKS];
    job j = {.workers = 2, .opts = {.sync = KOLO_SYNC_PS, .servers = 1}, .work = refused_by_all};
    assert_as_without_servers("refused by all", &j);
    j.opts.consistency = "asp";
    j.work = refused_by_one;
    run_job(&j, results);
    assert_true(results[0] == results[1]);
}

static kolo_status roles(kolo_comm *comm, const void *arg, void *result) {
    const job *j = arg;
    const kolo_session_opts opts = options_of(j);
    kolo_session *s;
    kolo_metrics metrics;
    own_net_samples samples;
    const kolo_batch batch = {
        .count = 1, .n_fields = 2, .fields = own_net_fields, .data = {samples.ids, samples.next}};
    float words[WORDS];
    KOLO_TRY(kolo_session_create(comm, &opts, own_net_build, NULL, &s));
    own_net_fill(0, 1, samples.ids, samples.next);
    if (!kolo_session_is_server(s)) {
        kolo_status status = expect(kolo_session_serve(s), KOLO_ERR_ARG,
                                    "is a worker: only servers call kolo_session_serve");
        kolo_session_destroy(s);
        return status;
    }
    const kolo_status calls[] = {
        expect(kolo_session_step(s, &batch, &metrics), KOLO_ERR_ARG, "this rank is a server"),
        expect(kolo_session_evaluate(s, &batch, &metrics), KOLO_ERR_ARG, "this rank is a server"),
        expect(kolo_session_get(s, "words", words, sizeof words), KOLO_ERR_ARG, "is a server"),
        expect(kolo_session_set(s, "words", words, sizeof words), KOLO_ERR_ARG, "is a server"),
        expect(kolo_session_save(s, file), KOLO_ERR_ARG, "this rank is a server"),
        expect(kolo_session_load(s, file), KOLO_ERR_ARG, "this rank is a server"),
        expect(kolo_session_set_lr(s, 1), KOLO_ERR_ARG, "this rank is a server"),
        expect(kolo_fit(s, NULL, NULL, NULL, NULL), KOLO_ERR_ARG, "this rank is a server"),
    };
    kolo_status status = kolo_session_serve(s);
    for (size_t i = 0; i < KOLO_COUNT(calls) && status == KOLO_OK; i++) status = calls[i];
    kolo_session_destroy(s);
    return status;
}

static void each_role_has_its_calls(void **state) {
    const job j = {.workers = 1, .opts = {.sync = KOLO_SYNC_PS, .servers = 1}};
    ASSERT_OK(run_ranks(2, RANKS_THREAD, roles, &j, sizeof j));
}

/* Worker 1 dies. Ranks are processes: the argument has no pointers. */
static kolo_status losing(kolo_comm *comm, const void *arg, void *result) {
    const bool asynchronous = *(const bool *)arg;
    const kolo_session_opts opts = {.global_batch = OWN_SAMPLES,
                                    .sync = KOLO_SYNC_PS,
                                    .servers = 1,
                                    .consistency = asynchronous ? "asp" : "bsp"};
    kolo_session *s;
    KOLO_TRY(kolo_session_create(comm, &opts, own_net_build, NULL, &s));
    kolo_status status = kolo_session_is_server(s) ? kolo_session_serve(s) : KOLO_OK;
    for (int k = 0; status == KOLO_OK && !kolo_session_is_server(s); k++) {
        if (k == 2 && kolo_comm_rank(comm) == 1) (void)raise(SIGKILL);
        status = step_samples(s, k, NULL);
    }
    if (status == KOLO_ERR_PEER && !kolo_session_is_server(s)) {
        status = expect(step_samples(s, 0, NULL), KOLO_ERR_ARG, "has ended with an error");
    }
    kolo_session_destroy(s);
    return status;
}

static void a_lost_worker_ends_the_session(void **state) {
    for (int i = 0; i < 2; i++) {
        const bool asynchronous = i == 1;
        rank_outcome outcomes[3];
        const rank_job ranks = {.n = 3,
                                .transport = RANKS_SHM,
                                .body = losing,
                                .arg = &asynchronous,
                                .arg_bytes = sizeof asynchronous,
                                .outcomes = outcomes};
        (void)run_rank_job(&ranks);
        if (outcomes[0].status != KOLO_OK) fail_msg("worker 0: %s", outcomes[0].error);
        assert_int_equal(outcomes[1].signal, SIGKILL);
        assert_int_equal(outcomes[2].status, KOLO_ERR_PEER);
        assert_non_null(strstr(outcomes[2].error, "worker"));
    }
}

typedef struct refusal {
    int ranks; /* 0: without a communicator */
    kolo_session_opts opts;
    kolo_status status;
    const char *text;
} refusal;

static kolo_status refused_body(kolo_comm *comm, const void *arg, void *result) {
    const refusal *r = arg;
    kolo_session *s = NULL;
    const kolo_status status =
        kolo_session_create(r->ranks > 0 ? comm : NULL, &r->opts, own_net_build, NULL, &s);
    kolo_session_destroy(s);
    return expect(status, r->status, r->text);
}

static void what_servers_cannot_have_is_refused(void **state) {
    static const refusal cases[] = {
        {2, {.servers = 1}, KOLO_ERR_ARG, "without --sync ps"},
        {2, {.sync = KOLO_SYNC_MESH, .servers = 1}, KOLO_ERR_ARG, "give --sync ps"},
        {2, {.sync = KOLO_SYNC_PS, .servers = 2}, KOLO_ERR_ARG, "there must be a worker"},
        {2, {.sync = KOLO_SYNC_PS, .servers = -1}, KOLO_ERR_ARG, "-1 servers"},
        {0, {.sync = KOLO_SYNC_MESH}, KOLO_ERR_ARG, "sync mesh without a communicator"},
        {2, {.sync = KOLO_SYNC_COUNT}, KOLO_ERR_ARG, "sync"},
        {2, {.consistency = "asp"}, KOLO_ERR_UNSUPPORTED, "no worker runs ahead"},
        {2,
         {.sync = KOLO_SYNC_PS, .consistency = "lag:1"},
         KOLO_ERR_UNSUPPORTED,
         "owners apply gradients as they arrive"},
        {2,
         {.sync = KOLO_SYNC_PS, .consistency = "diloco:4"},
         KOLO_ERR_UNSUPPORTED,
         "rounds at servers are for kolo_train"},
        {2,
         {.sync = KOLO_SYNC_PS, .servers = 1, .consistency = "asp,lease=1"},
         KOLO_ERR_UNSUPPORTED,
         "leases are for kolo_train"},
        {2,
         {.sync = KOLO_SYNC_PS, .consistency = "asp,group=2"},
         KOLO_ERR_UNSUPPORTED,
         "groups are for kolo_train"},
        {2, {.sync = KOLO_SYNC_PS, .zero = 1}, KOLO_ERR_UNSUPPORTED, "--zero"},
        {2, {.sync = KOLO_SYNC_PS, .f64 = true}, KOLO_ERR_UNSUPPORTED, "with f64"},
        {2,
         {.sync = KOLO_SYNC_MESH, .keep_gradients = true},
         KOLO_ERR_UNSUPPORTED,
         "with keep_gradients"},
        {2,
         {.sync = KOLO_SYNC_PS, .servers = 1, .evaluate_only = true},
         KOLO_ERR_ARG,
         "evaluates only"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        const int ranks = cases[i].ranks > 0 ? cases[i].ranks : 1;
        ASSERT_OK(run_ranks(ranks, RANKS_THREAD, refused_body, &cases[i], sizeof cases[i]));
    }
}

/* ---- runs ---- */

typedef struct samples {
    int32_t ids[21 * OWN_TOKENS], next[21 * OWN_TOKENS];
} samples;

static kolo_status run_fit(kolo_session *s, const kolo_fit_opts *opts, kolo_train_result *r) {
    samples own;
    kolo_dataset *data;
    own_net_fill(0, 21, own.ids, own.next);
    const kolo_source source = {
        .count = 21, .n_fields = 2, .fields = own_net_fields, .data = {own.ids, own.next}};
    KOLO_TRY(kolo_dataset_create(&source, &data));
    const kolo_status status = kolo_fit(s, data, data, opts, r);
    kolo_dataset_close(data);
    return status;
}

static kolo_status fit(kolo_session *s, const kolo_fit_opts *opts, uint64_t *hash) {
    kolo_train_result r;
    KOLO_TRY(run_fit(s, opts, &r));
    if (!r.evaluated) return KOLO_FAIL(KOLO_ERR_FORMAT, "not evaluated");
    *hash ^= r.parameter_hash;
    return KOLO_OK;
}

/* Own steps, a run, and the same run resumed from its checkpoint of the middle. */
static kolo_status fit_and_resume(kolo_session *s, int rank, uint64_t *hash) {
    uint64_t runs[2] = {0, 0};
    const kolo_fit_opts all = {.steps = 8, .out_dir = "run", .checkpoint_steps = 4, .keep = 9};
    const kolo_fit_opts rest = {.steps = 8, .resume = "run/checkpoint-4.safetensors"};
    KOLO_TRY(take_steps(s, 0, 2, hash));
    KOLO_TRY(fit(s, &all, &runs[0]));
    KOLO_TRY(fit(s, &rest, &runs[1]));
    if (runs[0] != runs[1]) return KOLO_FAIL(KOLO_ERR_FORMAT, "other bits after resuming");
    *hash = runs[0];
    return hash_tensors(s, hash);
}

static kolo_status fit_alone(kolo_session *s, int rank, uint64_t *hash) {
    const kolo_fit_opts opts = {.epochs = 2, .eval_every = 1};
    return fit(s, &opts, hash);
}

static void runs_train_at_servers(void **state) {
    uint64_t results[MOST_RANKS];
    job j = {.workers = 2,
             .opts = {.sync = KOLO_SYNC_PS, .servers = 1, .optimizer = {.momentum = 0.9}},
             .work = fit_and_resume};
    run_job(&j, results);
    assert_true(results[0] == results[1]);
    j.work = fit_alone;
    assert_as_without_servers("a run with bsp", &j);
    j.workers = 1;
    j.opts.consistency = "asp";
    assert_as_without_servers("a run of one worker", &j);
    j.workers = 3;
    run_job(&j, results);
    assert_true(results[0] == results[1] && results[0] == results[2]);
}

/* Workers at different steps would meet at different ones. */
static kolo_status fit_after_different_steps(kolo_session *s, int rank, uint64_t *hash) {
    const kolo_fit_opts opts = {.epochs = 2, .eval_every = 1};
    kolo_train_result r;
    uint64_t unused = 0;
    KOLO_TRY(kolo_session_save(s, file));
    KOLO_TRY(take_steps(s, 0, 1 + 2 * rank, &unused));
    KOLO_TRY(expect(run_fit(s, &opts, &r), KOLO_ERR_ARG, "have made 1 to 3 steps"));
    KOLO_TRY(kolo_session_load(s, file));
    return fit(s, &opts, hash);
}

static void a_run_begins_at_one_step(void **state) {
    uint64_t results[MOST_RANKS];
    const job j = {.workers = 2,
                   .opts = {.sync = KOLO_SYNC_PS, .servers = 1, .consistency = "asp"},
                   .work = fit_after_different_steps};
    run_job(&j, results);
    assert_true(results[0] == results[1]);
}

static bool is_asked(void *arg) { return *(const bool *)arg; }

/* Runs from the first step, of which the first and the last are preempted. */
static kolo_status fit_preempted(kolo_session *s, int rank, uint64_t *hash) {
    static const char *const folders[] = {"first", "second", "third"};
    KOLO_TRY(kolo_session_save(s, file));
    for (int i = 0; i < (int)KOLO_COUNT(folders); i++) {
        bool asks = i != 1;
        kolo_train_result r;
        const kolo_fit_opts opts = {
            .steps = 40, .out_dir = folders[i], .preempted = is_asked, .arg = &asks};
        KOLO_TRY(kolo_session_load(s, file));
        KOLO_TRY(run_fit(s, &opts, &r));
        if (r.preempted == asks && (r.steps == 40) == !asks) continue;
        return KOLO_FAIL(KOLO_ERR_FORMAT, "run %d ends after step %d", i, (int)r.steps);
    }
    *hash = 0;
    return KOLO_OK;
}

static void each_run_is_preempted_by_itself(void **state) {
    static const char *const policies[] = {"bsp", "asp"};
    for (int i = 0; i < (int)KOLO_COUNT(policies); i++) {
        uint64_t results[MOST_RANKS];
        const job j = {.workers = 2,
                       .opts = {.sync = KOLO_SYNC_PS, .servers = 1, .consistency = policies[i]},
                       .work = fit_preempted};
        run_job(&j, results);
        assert_int_equal(system("rm -rf first second third"), 0);
    }
}

typedef struct killer {
    kolo_session *session;
    pid_t server;
} killer;

/* Of kolo_fit: the server dies while the callback predicts. */
static bool kill_server(void *arg, const kolo_train_progress *progress) {
    const killer *k = arg;
    float logits[OWN_TOKENS * OWN_WORDS];
    int32_t ids[OWN_TOKENS], next[OWN_TOKENS];
    own_net_fill(0, 1, ids, next);
    const kolo_batch one = {
        .count = 1, .n_fields = 2, .fields = own_net_fields, .data = {ids, next}};
    (void)kill(k->server, SIGKILL);
    while (kolo_session_predict(k->session, &one, "logits", logits, sizeof logits, NULL) == KOLO_OK)
        continue;
    return false;
}

/* Ranks are processes. */
static kolo_status losing_server(kolo_comm *comm, const void *arg, void *result) {
    const kolo_session_opts opts = {
        .batch = 3, .sync = KOLO_SYNC_PS, .servers = 1, .consistency = "asp"};
    killer k = {.server = getpid()};
    kolo_train_result r;
    KOLO_TRY(kolo_broadcast(comm, &k.server, sizeof k.server, KOLO_DTYPE_U8, 1));
    KOLO_TRY(kolo_session_create(comm, &opts, own_net_build, NULL, &k.session));
    const kolo_fit_opts fit = {.epochs = 4, .eval_every = 1, .stop = kill_server, .arg = &k};
    const kolo_status status =
        kolo_session_is_server(k.session)
            ? kolo_session_serve(k.session)
            : expect(run_fit(k.session, &fit, &r), KOLO_ERR_ARG, "has ended with an error");
    kolo_session_destroy(k.session);
    return status;
}

static void a_callback_may_find_the_loss_of_a_server(void **state) {
    rank_outcome outcomes[2];
    const rank_job ranks = {
        .n = 2, .transport = RANKS_SHM, .body = losing_server, .outcomes = outcomes};
    (void)run_rank_job(&ranks);
    if (outcomes[0].status != KOLO_OK) fail_msg("the worker: %s", outcomes[0].error);
    assert_int_equal(outcomes[0].signal, 0);
    assert_int_equal(outcomes[1].signal, SIGKILL);
}

TEST_MAIN(test_session_servers) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bsp_equals_a_direct_allreduce),
        cmocka_unit_test(one_worker_trains_as_without_servers),
        cmocka_unit_test(owners_get_what_the_caller_sets),
        cmocka_unit_test(workers_of_hosts_push_together),
        cmocka_unit_test(a_file_restores_steps_and_schedule),
        cmocka_unit_test(codes_are_pushed),
        cmocka_unit_test(workers_are_at_different_steps),
        cmocka_unit_test(optimizer_state_is_that_of_all_workers),
        cmocka_unit_test(workers_stay_where_they_are_in_the_schedule),
        cmocka_unit_test(late_gradients_are_in_what_is_saved),
        cmocka_unit_test(a_refused_batch_ends_no_run),
        cmocka_unit_test(each_role_has_its_calls),
        cmocka_unit_test(a_lost_worker_ends_the_session),
        cmocka_unit_test(what_servers_cannot_have_is_refused),
        cmocka_unit_test(runs_train_at_servers),
        cmocka_unit_test(a_run_begins_at_one_step),
        cmocka_unit_test(each_run_is_preempted_by_itself),
        cmocka_unit_test(a_callback_may_find_the_loss_of_a_server),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}

/* Sessions whose ranks do not sum whole gradients in every step: parameters of their own between
 * rounds, files that continue with the same bits, and what is refused. Runs of kolo_fit are
 * compared with training jobs in test_fit.c. */
#include "base/compiler.h"
#include "base/rng.h"
#include "base/status.h"
#include "kolo/session.h"
#include "support/folder.h"
#include "support/own_net.h"
#include "support/ranks.h"
#include "support/sum_model.h"
#include "support/support.h"

#include <stdio.h>
#include <string.h>

enum { RANKS = 2, SAVED = 3, STEPS = 6, WORDS = OWN_WORDS * OWN_WIDTH };
static const char file[] = "exchanges.safetensors";

typedef struct policy {
    const char *consistency, *compress;
    bool apart_when_saved, apart_at_the_end; /* the ranks have other parameters then */
} policy;

/* Hashes of a parameter. */
typedef struct outcome {
    uint64_t own, saved; /* before and after saving */
    uint64_t end[2];     /* of the session, and of one that loaded the file */
    uint64_t last[2];    /* the same once all ranks have the mean */
    double loss[2];      /* of the latest step */
} outcome;

static kolo_session_opts options_of(const policy *p) {
    return (kolo_session_opts){.global_batch = OWN_SAMPLES,
                               .lr = 0.05,
                               .optimizer = {.momentum = 0.9},
                               .seed = 3,
                               .consistency = p->consistency,
                               .compress = p->compress,
                               .compress_min_bytes = 1};
}

static kolo_status steps(kolo_session *s, int from, int to, double *loss) {
    own_net_samples samples;
    kolo_batch batch;
    kolo_metrics metrics;
    for (int k = from; k < to; k++) {
        KOLO_TRY(own_net_batch(s, k, &samples, &batch));
        KOLO_TRY(kolo_session_step(s, &batch, &metrics));
    }
    if (loss) *loss = kolo_metrics_get(&metrics, "loss");
    return KOLO_OK;
}

static kolo_status hash_words(kolo_session *s, uint64_t *hash) {
    float words[WORDS];
    KOLO_TRY(kolo_session_get(s, "words", words, sizeof words));
    *hash = kolo_hash_bytes(words, sizeof words);
    return KOLO_OK;
}

static kolo_status sum_step(kolo_session *s) {
    int64_t first, count;
    KOLO_TRY(kolo_session_share(s, SUM_SAMPLES, &first, &count));
    const kolo_batch batch = sum_batch(first, count);
    return kolo_session_step(s, &batch, NULL);
}

static kolo_status save_and_load(kolo_comm *comm, const void *arg, void *result) {
    const kolo_session_opts opts = options_of(arg);
    outcome *o = result;
    kolo_session *a = NULL, *b = NULL;
    kolo_status status;
    KOLO_TRY_GOTO(kolo_session_create(comm, &opts, own_net_build, NULL, &a), done);
    KOLO_TRY_GOTO(kolo_session_create(comm, &opts, own_net_build, NULL, &b), done);
    KOLO_TRY_GOTO(steps(a, 0, SAVED, NULL), done);
    KOLO_TRY_GOTO(hash_words(a, &o->own), done);
    KOLO_TRY_GOTO(kolo_session_save(a, file), done);
    KOLO_TRY_GOTO(hash_words(a, &o->saved), done);
    KOLO_TRY_GOTO(kolo_session_load(b, file), done);
    kolo_session *const both[] = {a, b};
    for (int i = 0; i < 2; i++) {
        KOLO_TRY_GOTO(steps(both[i], SAVED, STEPS, &o->loss[i]), done);
        KOLO_TRY_GOTO(hash_words(both[i], &o->end[i]), done);
        KOLO_TRY_GOTO(kolo_session_save(both[i], file), done);
        KOLO_TRY_GOTO(hash_words(both[i], &o->last[i]), done);
    }
done:
    kolo_session_destroy(a);
    kolo_session_destroy(b);
    return status;
}

static void files_continue_with_the_same_bits(void **state) {
    static const policy cases[] = {
        {"lag:2", NULL, false, false},
        {NULL, "int8", false, false},
        {"lag:1", "topk:0.1", false, false},
        {"local:2", NULL, true, false},
        {"local:4", NULL, true, true},
        {"bmuf:4", "bf16", true, true},
        {"diloco:4,fragments=2,overlap=1", NULL, true, true},
        {"local:4,warmup=1", NULL, true, true},
        {"diloco:2,warmup=3", NULL, false, true},
        {"bmuf:4,warmup=5", "bf16", false, true},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        outcome o[RANKS];
        rank_job job = {.n = RANKS,
                        .transport = RANKS_THREAD,
                        .body = save_and_load,
                        .arg = &cases[i],
                        .arg_bytes = sizeof cases[i],
                        .results = o,
                        .result_bytes = sizeof *o};
        ASSERT_OK(run_rank_job(&job));
        assert_int_equal(o[0].own != o[1].own, cases[i].apart_when_saved);
        assert_true(o[0].saved == o[1].saved && o[0].last[0] == o[1].last[0]);
        assert_int_equal(o[0].saved != o[0].own, cases[i].apart_when_saved);
        assert_int_equal(o[0].end[0] != o[1].end[0], cases[i].apart_at_the_end);
        for (int rank = 0; rank < RANKS; rank++) {
            assert_true(o[rank].end[0] == o[rank].end[1] && o[rank].last[0] == o[rank].last[1]);
            assert_true(o[rank].loss[0] == o[0].loss[0] && o[rank].loss[1] == o[0].loss[0]);
        }
    }
}

static kolo_status sum_steps(kolo_session *s, int n) {
    for (int k = 0; k < n; k++) KOLO_TRY(sum_step(s));
    return KOLO_OK;
}

/* Without optimizer state a warm-up is bsp, whose parameters a session with rounds begins with. */
static kolo_status in_two_parts(kolo_comm *comm, const void *arg, void *result) {
    static const char *const policies[] = {"diloco:2,warmup=3", "bsp", "diloco:2"};
    float(*a)[SUM_A] = result;
    kolo_session *s[3] = {NULL};
    kolo_status status = KOLO_OK;
    for (int i = 0; i < 3 && status == KOLO_OK; i++) {
        const kolo_session_opts opts = {
            .global_batch = SUM_SAMPLES, .lr = 0.01, .seed = 3, .consistency = policies[i]};
        status = kolo_session_create(comm, &opts, sum_build, NULL, &s[i]);
    }
    if (status == KOLO_OK) status = sum_steps(s[0], 3 + 3);
    if (status == KOLO_OK) status = sum_steps(s[1], 3);
    if (status == KOLO_OK) status = kolo_session_save(s[1], file);
    if (status == KOLO_OK) status = kolo_session_load_partial(s[2], file, NULL);
    if (status == KOLO_OK) status = sum_steps(s[2], 3);
    if (status == KOLO_OK) status = kolo_session_get(s[0], "a", a[0], sizeof a[0]);
    if (status == KOLO_OK) status = kolo_session_get(s[2], "a", a[1], sizeof a[1]);
    for (int i = 0; i < 3; i++) kolo_session_destroy(s[i]);
    return status;
}

static void rounds_begin_with_the_parameters_of_the_warm_up(void **state) {
    float a[RANKS][2][SUM_A];
    const rank_job job = {.n = RANKS,
                          .transport = RANKS_THREAD,
                          .body = in_two_parts,
                          .results = a,
                          .result_bytes = sizeof a[0]};
    (void)sum_fill(NULL);
    ASSERT_OK(run_rank_job(&job));
    for (int rank = 0; rank < RANKS; rank++) {
        assert_memory_equal(a[rank][0], a[rank][1], sizeof a[rank][0]);
    }
    assert_memory_not_equal(a[0][0], a[1][0], sizeof a[0][0]); /* in the middle of a round */
}

/* Runs a body without and with what its argument, a bool, stands for. */
static void assert_no_bit_depends_on_it(rank_body body) {
    uint64_t hash[2][RANKS];
    for (int i = 0; i < 2; i++) {
        const bool reads = i;
        rank_job job = {.n = RANKS,
                        .transport = RANKS_THREAD,
                        .body = body,
                        .arg = &reads,
                        .arg_bytes = sizeof reads,
                        .results = hash[i],
                        .result_bytes = sizeof hash[i][0]};
        ASSERT_OK(run_rank_job(&job));
    }
    assert_memory_equal(hash[0], hash[1], sizeof hash[0]);
}

/* A session in its warm-up reads the file of another graph that is behind its own. */
static kolo_status refused_file(kolo_comm *comm, const void *arg, void *result) {
    static const policy p = {.consistency = "diloco:2,warmup=2"};
    const bool reads = *(const bool *)arg;
    kolo_session_opts opts = options_of(&p);
    kolo_session *other = NULL, *s = NULL;
    kolo_status status;
    KOLO_TRY_GOTO(kolo_session_create(comm, &opts, own_net_build, NULL, &s), done);
    opts.global_batch = SUM_SAMPLES;
    KOLO_TRY_GOTO(kolo_session_create(comm, &opts, sum_build, NULL, &other), done);
    KOLO_TRY_GOTO(sum_steps(other, 4), done);
    KOLO_TRY_GOTO(kolo_session_save(other, file), done);
    KOLO_TRY_GOTO(steps(s, 0, 1, NULL), done);
    if (reads && kolo_session_load(s, file) != KOLO_ERR_FORMAT) {
        status = kolo_error_set(KOLO_ERR_PEER, "another graph's file: %s", kolo_last_error());
        goto done;
    }
    KOLO_TRY_GOTO(steps(s, 1, STEPS, NULL), done);
    KOLO_TRY_GOTO(hash_words(s, result), done);
done:
    kolo_session_destroy(other);
    kolo_session_destroy(s);
    return status;
}

static void a_refused_file_leaves_the_warm_up_as_it_was(void **state) {
    (void)sum_fill(NULL);
    assert_no_bit_depends_on_it(refused_file);
}

/* Saving makes no difference to what follows. */
static kolo_status reads_between(kolo_comm *comm, const void *arg, void *result) {
    const policy p = {.consistency = "diloco:4,fragments=2,overlap=1"};
    const bool reads = *(const bool *)arg;
    const kolo_session_opts opts = options_of(&p);
    kolo_session *s = NULL;
    kolo_status status;
    KOLO_TRY_GOTO(kolo_session_create(comm, &opts, own_net_build, NULL, &s), done);
    for (int k = 0; k < STEPS; k++) {
        if (reads) KOLO_TRY_GOTO(kolo_session_save(s, "read.safetensors"), done);
        KOLO_TRY_GOTO(steps(s, k, k + 1, NULL), done);
    }
    KOLO_TRY_GOTO(hash_words(s, result), done);
done:
    kolo_session_destroy(s);
    return status;
}

static void reading_the_mean_changes_no_bit(void **state) {
    assert_no_bit_depends_on_it(reads_between);
}

/* ---- values of the program before the first step ---- */

typedef enum giving { SET, LOADED, FITTED, N_GIVINGS } giving;

typedef struct given {
    float before[SUM_A], after[2][SUM_A]; /* of the session that gets values; of both */
} given;

static kolo_status give(kolo_session *from, kolo_session *to, giving how) {
    float a[SUM_A], b[SUM_B];
    if (how != SET) KOLO_TRY(kolo_session_save(from, file));
    if (how == LOADED) return kolo_session_load(to, file);
    if (how == FITTED) return kolo_session_load_partial(to, file, NULL);
    KOLO_TRY(kolo_session_get(from, "a", a, sizeof a));
    KOLO_TRY(kolo_session_get(from, "b", b, sizeof b));
    KOLO_TRY(kolo_session_set(to, "a", a, sizeof a));
    return kolo_session_set(to, "b", b, sizeof b);
}

/* A session with the seed 4 gets what one with the seed 3 has: both then take the same step. */
static kolo_status given_body(kolo_comm *comm, const void *arg, void *result) {
    const giving *how = arg;
    given *g = result;
    kolo_session_opts opts = {
        .global_batch = SUM_SAMPLES, .lr = 0.01, .seed = 3, .consistency = "diloco:4"};
    kolo_session *s[2] = {NULL, NULL};
    kolo_status status;
    KOLO_TRY_GOTO(kolo_session_create(comm, &opts, sum_build, NULL, &s[0]), done);
    opts.seed = 4;
    KOLO_TRY_GOTO(kolo_session_create(comm, &opts, sum_build, NULL, &s[1]), done);
    KOLO_TRY_GOTO(kolo_session_get(s[1], "a", g->before, sizeof g->before), done);
    KOLO_TRY_GOTO(give(s[0], s[1], *how), done);
    for (int i = 0; i < 2; i++) {
        KOLO_TRY_GOTO(sum_step(s[i]), done);
        KOLO_TRY_GOTO(kolo_session_get(s[i], "a", g->after[i], sizeof g->after[i]), done);
    }
done:
    for (int i = 0; i < 2; i++) kolo_session_destroy(s[i]);
    return status;
}

static void the_first_step_begins_with_given_values(void **state) {
    (void)sum_fill(NULL);
    for (int how = 0; how < N_GIVINGS; how++) {
        const giving g = (giving)how;
        given out[3];
        const rank_job job = {.n = 3,
                              .transport = RANKS_THREAD,
                              .body = given_body,
                              .arg = &g,
                              .arg_bytes = sizeof g,
                              .results = out,
                              .result_bytes = sizeof *out};
        ASSERT_OK(run_rank_job(&job));
        for (int rank = 0; rank < 3; rank++) {
            assert_memory_not_equal(out[rank].before, out[rank].after[0], sizeof out->before);
            assert_memory_equal(out[rank].after[0], out[rank].after[1], sizeof out->before);
        }
    }
}

/* ---- misuse ---- */

typedef enum misuse { CREATES, SETS, LOADS, LOADS_PARTIALLY, FITS } misuse;

typedef struct refusal {
    misuse what;
    kolo_session_opts opts;
    const char *text;
} refusal;

static kolo_status fit(kolo_session *s) {
    static own_net_samples samples;
    const kolo_source source = {.count = OWN_SAMPLES,
                                .n_fields = 2,
                                .fields = own_net_fields,
                                .data = {samples.ids, samples.next}};
    const kolo_fit_opts opts = {.steps = STEPS, .resume = "."};
    kolo_dataset *data;
    KOLO_TRY(kolo_dataset_create(&source, &data));
    const kolo_status status = kolo_fit(s, data, NULL, &opts, NULL);
    kolo_dataset_close(data);
    return status;
}

static kolo_status misuse_session(kolo_session *s, misuse what) {
    static const float words[WORDS];
    switch (what) {
    case SETS:
        return kolo_session_set(s, "words", words, sizeof words);
    case LOADS:
        return kolo_session_load(s, file);
    case LOADS_PARTIALLY:
        return kolo_session_load_partial(s, file, NULL);
    default:
        return fit(s);
    }
}

static kolo_status refused_body(kolo_comm *comm, const void *arg, void *result) {
    const refusal *r = arg;
    kolo_session_opts opts = r->opts;
    kolo_session *s = NULL;
    opts.global_batch = OWN_SAMPLES;
    kolo_status status = kolo_session_create(comm, &opts, own_net_build, NULL, &s);
    if (r->what != CREATES && status == KOLO_OK) {
        status = steps(s, 0, 1, NULL);
        if (status == KOLO_OK) status = misuse_session(s, r->what);
    }
    kolo_session_destroy(s);
    if (status == KOLO_ERR_UNSUPPORTED && strstr(kolo_last_error(), r->text)) return KOLO_OK;
    char found[256];
    snprintf(found, sizeof found, "%s", status == KOLO_OK ? "nothing" : kolo_last_error());
    return kolo_error_set(KOLO_ERR_FORMAT, "expected \"%s\", got: %s", r->text, found);
}

static void what_sessions_cannot_exchange_is_refused(void **state) {
    static const refusal cases[] = {
        {CREATES, {.consistency = "ssp:2"}, "no worker runs ahead"},
        {CREATES, {.compress = "auto", .consistency = "lag:1"}, "give the codec alone"},
        {CREATES, {.compress = "1bit,warmup=3"}, "it is 1-bit Adam"},
        {CREATES, {.compress = "int8", .f64 = true}, "compress cannot be combined with f64"},
        {CREATES, {.consistency = "lag:1", .keep_gradients = true}, "keep_gradients"},
        {CREATES, {.consistency = "local:2", .zero = 1}, "--zero"},
        {CREATES, {.consistency = "local:2,warmup=3", .zero = 1}, "--zero"},
        {SETS, {.consistency = "local:4"}, "setting tensors after step 1"},
        {LOADS, {.consistency = "local:4"}, "loading a file after step 1"},
        {LOADS_PARTIALLY, {.consistency = "bmuf:4"}, "loading a file after step 1"},
        {FITS, {.consistency = "diloco:4"}, "resuming a run after step 1"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        ASSERT_OK(run_ranks(RANKS, RANKS_THREAD, refused_body, &cases[i], sizeof cases[i]));
    }
}

TEST_MAIN(test_session_exchanges) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_continue_with_the_same_bits),
        cmocka_unit_test(rounds_begin_with_the_parameters_of_the_warm_up),
        cmocka_unit_test(a_refused_file_leaves_the_warm_up_as_it_was),
        cmocka_unit_test(reading_the_mean_changes_no_bit),
        cmocka_unit_test(the_first_step_begins_with_given_values),
        cmocka_unit_test(what_sessions_cannot_exchange_is_refused),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}

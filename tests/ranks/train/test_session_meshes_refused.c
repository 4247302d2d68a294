/* What sessions on meshes refuse: by all ranks together, with a reason. */
#include "base/compiler.h"
#include "base/process.h"
#include "base/status.h"
#include "graph/graph.h"
#include "support/own_net.h"
#include "support/ranks.h"
#include "support/support.h"
#include "train/session/memory.h"

#include <string.h>

enum { LOGITS = OWN_SAMPLES * OWN_TOKENS * OWN_WORDS, TABLE = OWN_WORDS * OWN_WIDTH };

typedef struct quarrel {
    int kind;
    const char *text;
} quarrel;

static kolo_status expect(kolo_status status, const quarrel *q) {
    if (status == KOLO_ERR_ARG && strstr(kolo_last_error(), q->text)) return KOLO_OK;
    return kolo_error_set(KOLO_ERR_FORMAT, "case %d: status %d, %s", q->kind, status,
                          kolo_last_error());
}

static kolo_status disagree(kolo_session *s, const quarrel *q, bool odd) {
    own_net_samples own;
    kolo_batch batch;
    kolo_metrics metrics;
    double data[LOGITS];
    kolo_shape shape;
    KOLO_TRY(own_net_batch(s, 0, &own, &batch));
    if (odd && q->kind < 3) own.next[2] ^= 1;
    if (odd && q->kind == 3) batch.count--;
    if (q->kind == 7) KOLO_TRY(kolo_session_step(s, &batch, NULL));
    switch (q->kind) {
    case 0:
    case 3:
        return expect(kolo_session_step(s, &batch, NULL), q);
    case 1:
        return expect(kolo_session_evaluate(s, &batch, &metrics), q);
    case 2:
        return expect(kolo_session_predict(s, &batch, "loss", data, sizeof *data, NULL), q);
    case 4:
        return expect(kolo_session_predict(s, &batch, odd ? "logit" : "logits", NULL, 0, &shape),
                      q);
    case 5:
        return expect(kolo_session_predict(s, &batch, "logits", odd ? data : NULL, 0, &shape), q);
    case 6:
        return expect(kolo_session_get(s, odd ? "word" : "words", data, sizeof(double[TABLE])), q);
    case 7:
        return expect(kolo_session_get_gradient(s, "words", data, odd ? 8 : sizeof(double[TABLE])),
                      q);
    default:
        return KOLO_OK;
    }
}

static kolo_status quarrel_body(kolo_comm *comm, const void *arg, void *result) {
    const quarrel *q = arg;
    const bool odd = kolo_comm_rank(comm) == 3;
    kolo_session_opts opts = {.mesh = "dp=2,tp=2",
                              .placement = own_net_rules,
                              .global_batch = OWN_SAMPLES,
                              .keep_gradients = true,
                              .f64 = true};
    kolo_session *s;
    own_net_samples own;
    kolo_batch batch;
    if (q->kind == 8 && odd) opts.placement = "words 0\n";
    if (q->kind == 9) opts.mesh = odd ? "tp=2,dp=2" : "dp=2,tp=2";
    kolo_status status = kolo_session_create(comm, &opts, own_net_build, NULL, &s);
    if (q->kind >= 8) return expect(status, q);
    KOLO_TRY(status);
    status = disagree(s, q, odd);
    if (status == KOLO_OK) status = own_net_batch(s, 0, &own, &batch);
    if (status == KOLO_OK) status = kolo_session_step(s, &batch, NULL); /* it goes on */
    kolo_session_destroy(s);
    return status;
}

static void ranks_that_differ_are_refused_together(void **state) {
    static const quarrel cases[] = {
        {0,
         "rank 3 gave other samples than rank 2: on the mesh dp=2,tp=2 both are at place 1 of dp"},
        {1, "rank 3 gave other samples than rank 2"},
        {2, "rank 3 gave other samples than rank 2"},
        {3, "rank 3 gave 2 of the 7 samples of a step, its share is 3"},
        {4, "the graph has no output \"logit\" in evaluation"},
        {5, "some ranks gave no room for \"logits\""},
        {6, "no tensor \"word\""},
        {7, "\"words\" is f64"},
        {8, "rank 3 has \"placement: "},
        {9, "rank 3 has \"mesh: tp=2,dp=2\", rank 0 has \"mesh: dp=2,tp=2\""},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        ASSERT_OK(run_ranks(4, RANKS_THREAD, quarrel_body, &cases[i], sizeof cases[i]));
    }
}

static kolo_status refused_body(kolo_comm *comm, const void *arg, void *result) {
    const struct {
        kolo_session_opts opts;
        const char *text;
    } cases[] = {
        {{.mesh = "tp=2"}, "no rule of tensor parallelism names a parameter"},
        {{.mesh = "pp=2", .sync_bn = true}, "no batch normalization to synchronize"},
        {{.mesh = "dp=2", .placement = own_net_rules}, "placement the text of the program is"},
        {{.mesh = "tp=2", .placement = "words 0\nwords\n"}, "line 2 of the placement"},
        {{.mesh = "pp=2", .pipeline = "2f2b"}, "2f2b"},
        {{.mesh = "pp=2", .worker_weights = "1"}, "1 worker weights for 2 workers"},
    };
    kolo_session *s = NULL;
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        if (kolo_session_create(comm, &cases[i].opts, own_net_build, NULL, &s) != KOLO_OK &&
            strstr(kolo_last_error(), cases[i].text)) {
            continue;
        }
        return kolo_error_set(KOLO_ERR_FORMAT, "case %zu: %s", i, kolo_last_error());
    }
    return KOLO_OK;
}

static void sessions_that_cannot_be_are_refused(void **state) {
    ASSERT_OK(run_ranks(2, RANKS_THREAD, refused_body, NULL, 0));
}

/* ---- memory ---- */

static kolo_status create(kolo_comm *comm, int64_t limit, int64_t *bytes) {
    const kolo_session_opts opts = {.mesh = "pp=2", .global_batch = OWN_SAMPLES, .f64 = true};
    kolo_session *s;
    kolo_memory_limit_pin(limit);
    const kolo_status status = kolo_session_create(comm, &opts, own_net_build, NULL, &s);
    kolo_memory_limit_pin(0);
    if (status != KOLO_OK) return status;
    const kolo_train_memory m = kolo_session_memory_parts(s);
    *bytes = m.store + m.shared + m.exchanged + m.values;
    kolo_session_destroy(s);
    return KOLO_OK;
}

/* The stages need unequal memory, and have the same machine. Where it lacks a byte for all, also by
 * the limit of one rank alone, all are refused. */
static kolo_status limited_body(kolo_comm *comm, const void *arg, void *result) {
    static const int64_t lacks[][2] = {{0, 0}, {1, 1}, {0, 1}, {1, 0}};
    const int rank = kolo_comm_rank(comm);
    int64_t both[2] = {0}, bytes;
    KOLO_TRY(create(comm, 0, &both[rank]));
    KOLO_TRY(kolo_allreduce(comm, both, 2, KOLO_DTYPE_I64, KOLO_SUM));
    if (both[0] == both[1]) return kolo_error_set(KOLO_ERR_FORMAT, "equal stages");
    for (size_t i = 0; i < KOLO_COUNT(lacks); i++) {
        const kolo_status status = create(comm, both[0] + both[1] - lacks[i][rank], &bytes);
        if (i == 0) KOLO_TRY(status);
        if (i == 0 || (status == KOLO_ERR_NOMEM && strstr(kolo_last_error(), "all 2 of them"))) {
            continue;
        }
        return kolo_error_set(KOLO_ERR_FORMAT, "case %zu: status %d, %s", i, status,
                              kolo_last_error());
    }
    return KOLO_OK;
}

static void memory_of_all_ranks_is_checked_together(void **state) {
    ASSERT_OK(run_ranks(2, RANKS_THREAD, limited_body, NULL, 0));
}

/* Each rank adds its own copies for checkpoints. */
static kolo_status copying_body(kolo_comm *comm, const void *arg, void *result) {
    static const int64_t copies[] = {5000, 70};
    const kolo_session_opts opts = {.mesh = "pp=2", .global_batch = OWN_SAMPLES, .f64 = true};
    const int rank = kolo_comm_rank(comm);
    kolo_status fits = KOLO_OK, lacks = KOLO_OK;
    kolo_session *s;
    KOLO_TRY(kolo_session_create(comm, &opts, own_net_build, NULL, &s));
    const kolo_train_memory m = kolo_session_memory_parts(s);
    int64_t all = m.store + m.shared + m.exchanged + m.values + copies[rank];
    kolo_status status = kolo_allreduce(comm, &all, 1, KOLO_DTYPE_I64, KOLO_SUM);
    for (int i = 0; i < 2 && status == KOLO_OK; i++) {
        kolo_memory_limit_pin(all - i);
        *(i == 0 ? &fits : &lacks) = kolo_session_check_memory(s, comm, (size_t)copies[rank]);
        kolo_memory_limit_pin(0);
    }
    kolo_session_destroy(s);
    if (status != KOLO_OK || (fits == KOLO_OK && lacks == KOLO_ERR_NOMEM)) return status;
    return kolo_error_set(KOLO_ERR_FORMAT, "status %d and %d: %s", fits, lacks, kolo_last_error());
}

static void copies_of_each_rank_are_added(void **state) {
    ASSERT_OK(run_ranks(2, RANKS_THREAD, copying_body, NULL, 0));
}

TEST_MAIN(test_session_meshes_refused) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_differ_are_refused_together),
        cmocka_unit_test(sessions_that_cannot_be_are_refused),
        cmocka_unit_test(memory_of_all_ranks_is_checked_together),
        cmocka_unit_test(copies_of_each_rank_are_added),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

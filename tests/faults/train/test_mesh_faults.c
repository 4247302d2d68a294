/* A rank of a mesh that dies during training, by kolo_train or in a program's session: all others,
 * those of other groups too, end with an error that names it and, in a session, its place in the
 * mesh, within the limits of data parallelism. */
#include "base/clock.h"
#include "base/compiler.h"
#include "base/status.h"
#include "kolo/session.h"
#include "kolo/train.h"
#include "support/own_net.h"
#include "support/ranks.h"
#include "support/support.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { RANKS = 4, AFTER_US = 20000 };

/* What the ranks do when the victim dies. */
typedef enum work { TRAIN, TRAIN_EXPERTS, STEPS, RESULTS } work;

typedef struct setting {
    const char mesh[16];
    work work;
    int victim;
    int64_t us;           /* before it is killed: of training, or after the third time */
    const char place[16]; /* of the victim in the mesh, where its session exists by then */
} setting;

static kolo_status train(kolo_comm *comm, const setting *s) {
    const kolo_train_opts opts = {
        .model = s->work == TRAIN_EXPERTS ? "gpt2_moe" : "gpt2_tiny",
        .model_options = s->work == TRAIN_EXPERTS
                             ? "layers=2,width=32,heads=4,context=16,vocab=50,experts=4"
                             : "layers=2,width=32,heads=4,context=16,vocab=50",
        .data = "synthetic-tokens:N=4000,test=1",
        .mesh = s->mesh,
        .batch = 4,
        .accumulate = 2,
        .lr = 0.01,
        .epochs = 100000,
        .no_eval = true,
    };
    kolo_train_result unused;
    if (kolo_comm_rank(comm) == s->victim) ranks_die_after(s->us);
    return kolo_train(comm, &opts, NULL, NULL, &unused);
}

/* Reads what all ranks give together: a prediction, an evaluation, a parameter. */
static kolo_status read_results(kolo_session *session, const kolo_batch *batch) {
    static _Thread_local float logits[OWN_SAMPLES * OWN_TOKENS * OWN_WORDS];
    static _Thread_local float table[OWN_WORDS * OWN_WIDTH];
    const size_t bytes = (size_t)batch->count * OWN_TOKENS * OWN_WORDS * sizeof *logits;
    kolo_metrics metrics;
    KOLO_TRY(kolo_session_predict(session, batch, "logits", logits, bytes, NULL));
    KOLO_TRY(kolo_session_evaluate(session, batch, &metrics));
    return kolo_session_get(session, "words", table, sizeof table);
}

static kolo_status run_session(kolo_comm *comm, const setting *s) {
    const bool divided = strstr(s->mesh, "tp") != NULL;
    const kolo_session_opts opts = {
        .mesh = s->mesh,
        .placement = divided ? own_net_rules : NULL,
        .global_batch = OWN_SAMPLES,
        .accumulate = 2,
        .lr = 0.01,
    };
    kolo_session *session;
    KOLO_TRY(kolo_session_create(comm, &opts, own_net_build, NULL, &session));
    kolo_status status = KOLO_OK;
    for (int k = 0; status == KOLO_OK; k++) {
        if (k == 3 && kolo_comm_rank(comm) == s->victim) ranks_die_after(s->us);
        own_net_samples own;
        kolo_batch batch;
        kolo_metrics metrics;
        status = own_net_batch(session, k, &own, &batch);
        if (status != KOLO_OK) break;
        status = s->work == STEPS ? kolo_session_step(session, &batch, &metrics)
                                  : read_results(session, &batch);
    }
    kolo_session_destroy(session);
    return status;
}

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const setting *s = arg;
    (void)result;
    return s->work < STEPS ? train(comm, s) : run_session(comm, s);
}

static void check(const setting *s, rank_transport transport) {
    rank_outcome outcomes[RANKS];
    char name[48], plain[32];
    const rank_job job = {
        .n = RANKS,
        .transport = transport,
        .body = body,
        .arg = s,
        .arg_bytes = sizeof *s,
        .outcomes = outcomes,
        .timeout_ms = 30000,
    };
    snprintf(name, sizeof name, "rank %d (%s", s->victim, s->place);
    snprintf(plain, sizeof plain, "rank %d is", s->victim);
    assert_int_not_equal(run_rank_job(&job), KOLO_OK);
    for (int r = 0; r < RANKS; r++) {
        const rank_outcome *o = &outcomes[r];
        if (r == s->victim && o->signal == SIGALRM) continue;
        const bool named = strstr(o->error, name) || (!s->place[0] && strstr(o->error, plain));
        if (o->status == KOLO_ERR_PEER && strstr(o->error, "is gone") && named) continue;
        fail_msg("%s, work %d, rank %d of transport %d: status %d, signal %d: %s", s->mesh,
                 (int)s->work, r, (int)transport, (int)o->status, o->signal, o->error);
    }
}

static void check_all(const setting *settings, size_t n) {
    static const rank_transport transports[] = {RANKS_SHM, RANKS_TCP};
    for (size_t i = 0; i < n * KOLO_COUNT(transports); i++) {
        check(&settings[i / KOLO_COUNT(transports)], transports[i % KOLO_COUNT(transports)]);
    }
}

static void survivors_name_the_rank(void **state) {
    static const setting settings[] = {
        {"dp=2,tp=2", TRAIN, 0, 400000, ""}, {"dp=2,tp=2", TRAIN, 3, 430000, ""},
        {"tp=2,pp=2", TRAIN, 1, 450000, ""}, {"tp=4", TRAIN, 2, 410000, ""},
        {"dp=2,pp=2", TRAIN, 2, 440000, ""}, {"pp=4", TRAIN, 3, 420000, ""},
        {"dp=2,sp=2", TRAIN, 1, 420000, ""}, {"dp=2,ep=2", TRAIN_EXPERTS, 2, 420000, ""},
    };
    (void)state;
    check_all(settings, KOLO_COUNT(settings));
}

static void so_do_those_of_a_program_s_session(void **state) {
    static const setting settings[] = {
        {"dp=2,tp=2", STEPS, 2, AFTER_US, "dp=1,tp=0"},
        {"pp=2,tp=2", STEPS, 0, AFTER_US, "pp=0,tp=0"},
        {"dp=2,pp=2", STEPS, 3, AFTER_US, "dp=1,pp=1"},
        {"sp=4", STEPS, 1, AFTER_US, "sp=1"},
        {"dp=2,tp=2", RESULTS, 1, AFTER_US, "dp=0,tp=1"},
        {"pp=2,sp=2", RESULTS, 3, AFTER_US, "pp=1,sp=1"},
    };
    (void)state;
    check_all(settings, KOLO_COUNT(settings));
}

TEST_MAIN(test_mesh_faults) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survivors_name_the_rank),
        cmocka_unit_test(so_do_those_of_a_program_s_session),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

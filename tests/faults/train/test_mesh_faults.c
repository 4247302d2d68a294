/* A rank of a mesh that dies during training, by kolo_train or in a program's session: all others,
 * those of other groups too, end with an error that names it, its place in the mesh and the
 * operation that waited for it, or else its last one, within the limits of data parallelism. Which
 * rank of which mesh dies when is drawn at random; KOLO_SOAK=1 draws more. */
#include "base/clock.h"
#include "base/compiler.h"
#include "base/rng.h"
#include "base/status.h"
#include "kolo/mesh.h"
#include "kolo/session.h"
#include "kolo/train.h"
#include "mesh/mesh.h"
#include "support/own_net.h"
#include "support/ranks.h"
#include "support/support.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 8, MOST_US = 400000, AFTER_US = 20000, RUNS = 12, RUNS_SOAK = 300 };

/* What the ranks do when the victim dies. */
typedef enum work { TRAIN, TRAIN_EXPERTS, STEPS, RESULTS } work;

typedef struct setting {
    char mesh[24];
    work work;
    int victim;
    int64_t us; /* before it is killed: of training, or after the third time */
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

/* "rank 3 (dp=1,tp=1": axes of one rank are left out. */
static void name_victim(const setting *s, const kolo_mesh *mesh, char *text, size_t bytes) {
    int n = snprintf(text, bytes, "rank %d (", s->victim);
    for (int a = 0; a < mesh->n_axes; a++) {
        n += snprintf(text + n, bytes - (size_t)n, "%s%s=%d", a > 0 ? "," : "", mesh->axes[a].name,
                      kolo_mesh_coordinate(mesh, s->victim, a));
    }
}

static void check(const setting *s, rank_transport transport) {
    rank_outcome outcomes[MOST_RANKS];
    char name[64];
    kolo_mesh mesh;
    ASSERT_OK(kolo_mesh_parse(s->mesh, 0, &mesh));
    const rank_job job = {
        .n = kolo_mesh_size(&mesh),
        .transport = transport,
        .body = body,
        .arg = s,
        .arg_bytes = sizeof *s,
        .outcomes = outcomes,
        .timeout_ms = 30000,
    };
    name_victim(s, &mesh, name, sizeof name);
    assert_int_not_equal(run_rank_job(&job), KOLO_OK);
    for (int r = 0; r < job.n; r++) {
        const rank_outcome *o = &outcomes[r];
        if (r == s->victim && o->signal == SIGALRM) continue;
        const bool operation = strstr(o->error, " while waiting in ") ||
                               strstr(o->error, "; the last collective of rank ");
        const bool named = strstr(o->error, name) && strstr(o->error, "is gone");
        if (o->status == KOLO_ERR_PEER && named && operation) continue;
        fail_msg("%s, work %d, rank %d is killed after %d us: rank %d of transport %d: status %d, "
                 "signal %d: %s",
                 s->mesh, (int)s->work, s->victim, (int)s->us, r, (int)transport, (int)o->status,
                 o->signal, o->error);
    }
}

static void survivors_name_the_rank(void **state) {
    static const struct {
        const char *mesh;
        work work;
    } meshes[] = {
        {"dp=2,tp=2", TRAIN}, {"tp=2,pp=2", TRAIN}, {"dp=2,pp=2", TRAIN},
        {"dp=2,sp=2", TRAIN}, {"tp=2,sp=2", TRAIN}, {"dp=2,ep=2", TRAIN_EXPERTS},
        {"tp=4", TRAIN},      {"pp=4", TRAIN},      {"dp=2,tp=2,pp=2", TRAIN},
        {"pp=2,sp=2", TRAIN}, {"sp=4", TRAIN},      {"ep=2,pp=2", TRAIN_EXPERTS},
    };
    const int runs = getenv("KOLO_SOAK") ? RUNS_SOAK : RUNS;
    for (int i = 0; i < runs; i++) {
        const kolo_rng rng = kolo_rng_make((uint64_t)i, KOLO_RNG_TEST, 19);
        const size_t m = (size_t)i % KOLO_COUNT(meshes);
        setting s = {.work = meshes[m].work};
        kolo_mesh mesh;
        snprintf(s.mesh, sizeof s.mesh, "%s", meshes[m].mesh);
        ASSERT_OK(kolo_mesh_parse(s.mesh, 0, &mesh));
        s.victim = (int)kolo_rng_below(&rng, 0, (uint64_t)kolo_mesh_size(&mesh));
        s.us = 1000 + (int64_t)kolo_rng_below(&rng, 1, MOST_US);
        check(&s, kolo_rng_below(&rng, 2, 2) ? RANKS_TCP : RANKS_SHM);
    }
}

static void so_do_those_of_a_program_s_session(void **state) {
    static const setting settings[] = {
        {"dp=2,tp=2", STEPS, 2, AFTER_US},   {"pp=2,tp=2", STEPS, 0, AFTER_US},
        {"dp=2,pp=2", STEPS, 3, AFTER_US},   {"sp=4", STEPS, 1, AFTER_US},
        {"dp=2,tp=2", RESULTS, 1, AFTER_US}, {"pp=2,sp=2", RESULTS, 3, AFTER_US},
    };
    static const rank_transport transports[] = {RANKS_SHM, RANKS_TCP};
    for (size_t i = 0; i < KOLO_COUNT(settings) * KOLO_COUNT(transports); i++) {
        check(&settings[i / KOLO_COUNT(transports)], transports[i % KOLO_COUNT(transports)]);
    }
}

TEST_MAIN(test_mesh_faults) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survivors_name_the_rank),
        cmocka_unit_test(so_do_those_of_a_program_s_session),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

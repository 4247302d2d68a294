/* What a worker changes at the owners of parameters other than by pushes: values with state, and
 * settings of the program. */
#include "base/compiler.h"
#include "base/status.h"
#include "kolo/parameters.h"
#include "support/ranks.h"
#include "support/support.h"

#include <string.h>

enum { WORKERS = 2, COUNT = 29, STEPS = 3 };

typedef struct scheme {
    int servers, buckets, staleness, replicas;
} scheme;

/* The program of an owner: values -= rate times gradient. */
typedef struct program {
    float rate;
    int loads;
} program;

static void update(void *arg, const kolo_parameters_update *u) {
    const program *p = arg;
    for (size_t i = 0; i < u->count; i++) u->values[i] -= p->rate * u->gradient[i];
}

static void load(void *arg, const float *initial) {
    program *p = arg;
    p->loads += initial != NULL;
}

static kolo_status configure(void *arg, const void *settings, size_t bytes) {
    program *p = arg;
    if (bytes != sizeof p->rate) return KOLO_FAIL(KOLO_ERR_ARG, "settings of %zu bytes", bytes);
    memcpy(&p->rate, settings, bytes);
    return KOLO_OK;
}

static kolo_status expect_values(const float *values, float first) {
    for (int i = 0; i < COUNT; i++) {
        if (values[i] == first + (float)i) continue;
        return KOLO_FAIL(KOLO_ERR_FORMAT, "value %d is %g, not %g", i, (double)values[i],
                         (double)(first + (float)i));
    }
    return KOLO_OK;
}

/* Steps of gradients of 1 from each worker: each value falls by 2 a step, times the rate. */
static kolo_status take_steps(kolo_parameters *p, float *values, uint64_t *lost) {
    float gradient[COUNT];
    for (int i = 0; i < COUNT; i++) gradient[i] = 1;
    for (int k = 0; k < STEPS; k++) {
        KOLO_TRY(kolo_parameters_push(p, gradient));
        KOLO_TRY(kolo_parameters_pull(p, values));
    }
    KOLO_TRY(kolo_parameters_barrier(p, lost, NULL, NULL));
    KOLO_TRY(kolo_parameters_pull(p, values));
    return kolo_parameters_barrier(p, lost, NULL, NULL);
}

static kolo_status expect(kolo_status status, const char *text) {
    if (status == KOLO_ERR_ARG && strstr(kolo_last_error(), text)) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "expected \"%s\", got status %d", text, (int)status);
}

static kolo_status work(kolo_comm *comm, kolo_parameters *p) {
    const bool first = kolo_comm_rank(comm) == 0;
    float values[COUNT], own[COUNT];
    uint64_t lost[WORKERS];
    const float rate = 2;
    for (int i = 0; i < COUNT; i++) own[i] = (float)(100 + i);
    KOLO_TRY(take_steps(p, values, lost));
    KOLO_TRY(expect_values(values, -2 * STEPS));
    if (first) {
        KOLO_TRY(kolo_parameters_assign(p, own));
        KOLO_TRY(kolo_parameters_configure(p, &rate, sizeof rate));
        KOLO_TRY(expect(kolo_parameters_configure(p, own, 2 * sizeof rate), "settings of 8 bytes"));
        KOLO_TRY(expect(kolo_parameters_configure(p, own, KOLO_SETTINGS_MOST + 1), "give 1 to 64"));
        KOLO_TRY(expect(kolo_parameters_assign(p, NULL), "no values"));
        KOLO_TRY(kolo_parameters_pull(p, values));
        KOLO_TRY(expect_values(values, 100));
    }
    KOLO_TRY(kolo_parameters_barrier(p, lost, NULL, NULL));
    KOLO_TRY(take_steps(p, values, lost));
    KOLO_TRY(expect_values(values, 100 - 2 * STEPS * rate));
    KOLO_TRY(kolo_parameters_push(p, own));
    KOLO_TRY(expect(kolo_parameters_assign(p, own), "after a push: pull first"));
    KOLO_TRY(kolo_parameters_finish(p));
    return expect(kolo_parameters_configure(p, &rate, sizeof rate), "after the end");
}

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const scheme *s = arg;
    program programs[4] = {{.rate = 1}, {.rate = 1}, {.rate = 1}, {.rate = 1}};
    void *args[] = {&programs[0], &programs[1], &programs[2], &programs[3]};
    float initial[COUNT];
    kolo_parameters *p;
    for (int i = 0; i < COUNT; i++) initial[i] = (float)i;
    const kolo_parameters_opts opts = {.servers = s->servers,
                                       .buckets = s->buckets,
                                       .staleness = s->staleness,
                                       .update = update,
                                       .load = load,
                                       .configure = configure,
                                       .arg = args[0],
                                       .bucket_args = s->buckets > 1 ? args : NULL};
    KOLO_TRY(kolo_parameters_create(comm, initial, COUNT, &opts, &p));
    const bool owns = s->servers == 0 || kolo_comm_rank(comm) >= WORKERS;
    kolo_status status = kolo_parameters_works(p) ? work(comm, p) : KOLO_OK;
    if (status == KOLO_OK && owns) status = kolo_parameters_wait(p);
    if (status == KOLO_OK && owns && programs[0].loads != 2) {
        status = KOLO_FAIL(KOLO_ERR_FORMAT, "%d loads", programs[0].loads);
    }
    kolo_parameters_destroy(p);
    return status;
}

static void values_and_settings_change_between_steps(void **state) {
    static const rank_transport transports[] = {RANKS_THREAD, RANKS_SHM, RANKS_TCP};
    static const scheme schemes[] = {
        {1, 0, 0, 0}, {2, 0, 0, 0}, {0, 3, 0, 0}, {0, 0, 2, 0}, {1, 0, KOLO_STALENESS_ANY, 0}};
    for (size_t t = 0; t < KOLO_COUNT(transports); t++) {
        for (size_t i = 0; i < KOLO_COUNT(schemes); i++) {
            const scheme s = schemes[i];
            ASSERT_OK(run_ranks(WORKERS + s.servers, transports[t], body, &s, sizeof s));
        }
    }
}

/* An owner without settings; and one with a replica, which has pushes alone. */
static kolo_status refused_body(kolo_comm *comm, const void *arg, void *result) {
    const scheme *s = arg;
    program owned = {.rate = 1}, followed = {.rate = 1};
    float initial[COUNT] = {0};
    kolo_parameters *p;
    const kolo_parameters_opts opts = {.servers = s->servers,
                                       .replicas = s->replicas,
                                       .update = update,
                                       .arg = &owned,
                                       .replica_arg = &followed};
    KOLO_TRY(kolo_parameters_create(comm, initial, COUNT, &opts, &p));
    kolo_status status = KOLO_OK;
    if (kolo_comm_rank(comm) == 0) {
        const char *why = s->replicas > 0 ? "with replicas" : "an invalid request";
        status = expect(kolo_parameters_configure(p, initial, sizeof initial[0]), why);
        if (status == KOLO_OK && s->replicas > 0) {
            status = expect(kolo_parameters_assign(p, initial), why);
        }
    }
    kolo_parameters_destroy(p);
    return status;
}

static void owners_without_them_refuse(void **state) {
    static const scheme schemes[] = {{1, 0, 0, 0}, {2, 0, 0, 1}};
    for (size_t i = 0; i < KOLO_COUNT(schemes); i++) {
        const scheme s = schemes[i];
        ASSERT_OK(run_ranks(WORKERS + s.servers, RANKS_THREAD, refused_body, &s, sizeof s));
    }
}

TEST_MAIN(test_comm_assign) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_and_settings_change_between_steps),
        cmocka_unit_test(owners_without_them_refuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

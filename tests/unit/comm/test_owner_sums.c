/* An owner whose updates have sums over all owners: nobody reads an update that is half made. */
#include "comm/sync/parameters_owner.h"
#include "support/support.h"

#include <string.h>

enum { WORKERS = 2, OWNERS = 2, VALUES = 4 };

/* The first half of the values is updated before the sum, the second half behind it. */
static struct {
    float values[VALUES], state[VALUES];
    bool answered[3];
} g;
enum { PUSH, PULL, STATE };

static void keep_answer(kolo_service_call *call, kolo_status status, uint64_t clock,
                        const void *data, size_t bytes) {
    (void)clock;
    assert_int_equal(status, KOLO_OK);
    g.answered[PUSH] |= call->kind == KOLO_OWNER_PUSH;
    g.answered[PULL] |= call->kind == KOLO_OWNER_PULL;
    g.answered[STATE] |= call->kind == KOLO_OWNER_STATE;
    for (size_t i = 0; i < bytes / sizeof(float); i++) {
        assert_true(((const float *)data)[i] == 1); /* of the whole update */
    }
}

static size_t add_half(void *arg, const kolo_parameters_update *u, int k, float *numbers) {
    (void)arg;
    if (k > 0) return 0;
    for (size_t i = 0; i < VALUES / 2; i++) g.values[i] = g.state[i] = u->gradient[i];
    numbers[0] = 1;
    return 1;
}

static void add_rest(void *arg, const kolo_parameters_update *u) {
    (void)arg;
    for (size_t i = VALUES / 2; i < VALUES; i++) g.values[i] = g.state[i] = u->gradient[i];
}

static void copy_values(void *arg, float *values) {
    (void)arg;
    memcpy(values, g.values, sizeof g.values);
}

static void save(void *arg, float *state) {
    (void)arg;
    memcpy(state, g.state, sizeof g.state);
}

static kolo_status start(void *arg, kolo_service_request *request) {
    (void)arg, (void)request;
    return KOLO_OK;
}

static kolo_status wait(void *arg, kolo_service_request *request) {
    (void)arg, (void)request;
    return KOLO_OK;
}

static void reads_wait_for_the_sums_of_an_update(void **state) {
    (void)state;
    static const float gradient[VALUES] = {1, 1, 1, 1}, summand = 1;
    const kolo_parameters_opts opts = {.update = add_rest,
                                       .exchange = add_half,
                                       .exchanged = 1,
                                       .copy_values = copy_values,
                                       .save = save};
    const kolo_owned has = {.values = {0, VALUES},
                            .gradient = {0, VALUES},
                            .pushed = {0, VALUES},
                            .state = {0, VALUES}};
    const kolo_owner_channel channel = {.start = start, .wait = wait};
    kolo_parameters_owner *owner;
    ASSERT_OK(kolo_parameters_owner_create(&opts, &has, WORKERS, keep_answer, &owner));
    ASSERT_OK(kolo_parameters_owner_exchange(owner, 0, OWNERS, WORKERS, &channel));
    kolo_service_call finish = {.client = 1, .kind = KOLO_OWNER_FINISH},
                      push = {.client = 0,
                              .kind = KOLO_OWNER_PUSH,
                              .input = gradient,
                              .input_bytes = sizeof gradient},
                      pull = {.client = 1,
                              .kind = KOLO_OWNER_PULL,
                              .output_bytes = sizeof g.values},
                      ask = {.client = 1, .kind = KOLO_OWNER_STATE, .output_bytes = sizeof g.state},
                      other = {.client = WORKERS + 1,
                               .kind = KOLO_OWNER_SUMMANDS,
                               .input = &summand,
                               .input_bytes = sizeof summand};
    kolo_parameters_owner_serve(owner, &finish);
    kolo_parameters_owner_serve(owner, &push);
    assert_true(g.values[0] == 1 && g.values[VALUES - 1] == 0); /* it waits for the other owner */
    kolo_parameters_owner_serve(owner, &pull);
    kolo_parameters_owner_serve(owner, &ask);
    assert_false(g.answered[PUSH] || g.answered[PULL] || g.answered[STATE]);
    kolo_parameters_owner_serve(owner, &other);
    assert_true(g.answered[PUSH] && g.answered[PULL] && g.answered[STATE]);
    kolo_parameters_owner_destroy(owner);
}

TEST_MAIN(test_owner_sums) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_wait_for_the_sums_of_an_update),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

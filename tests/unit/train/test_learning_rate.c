/* Learning-rate schedules against values computed by hand. */
#include "base/compiler.h"
#include "support/support.h"
#include "train/session/learning_rate.h"

#include <math.h>

typedef struct point {
    const char *what;
    kolo_lr schedule;
    int64_t step;
    double lr;
} point;

#define CONSTANT \
    { .kind = KOLO_LR_CONSTANT, .lr = 0.5, .step_every = 1, .total = 10 }
#define WARM \
    { .kind = KOLO_LR_CONSTANT, .lr = 0.8, .step_every = 1, .warmup = 4, .total = 10 }
#define STEP \
    { .kind = KOLO_LR_STEP, .lr = 1, .step_factor = 0.1, .step_every = 30, .total = 100 }
#define COSINE \
    { .kind = KOLO_LR_COSINE, .lr = 1, .lr_min = 0.2, .step_every = 1, .total = 8 }
#define BOTH \
    { .kind = KOLO_LR_COSINE, .lr = 1, .step_every = 1, .warmup = 2, .total = 6 }

#define POLY \
    { .kind = KOLO_LR_POLY, .lr = 1, .lr_min = 0.2, .power = 2, .step_every = 1, .total = 8 }
#define SCALED                                                                                   \
    {                                                                                            \
        .kind = KOLO_LR_POLY, .start = 0.1, .lr = 0.9, .power = 1, .step_every = 1, .warmup = 4, \
        .total = 12                                                                              \
    }

static const point points[] = {
    {"constant, first", CONSTANT, 0, 0.5},
    {"constant, last", CONSTANT, 9, 0.5},
    {"warm-up, first step is lr / steps", WARM, 0, 0.2},
    {"warm-up, third", WARM, 2, 0.6},
    {"warm-up, its last step is lr", WARM, 3, 0.8},
    {"after the warm-up", WARM, 4, 0.8},
    {"step, before the first fall", STEP, 29, 1},
    {"step, first fall", STEP, 30, 0.1},
    {"step, third fall", STEP, 90, 0.001},
    {"cosine starts at lr", COSINE, 0, 1},
    {"cosine, a quarter: 0.2 + 0.4 (1 + cos 45 degrees)", COSINE, 2, 0.88284271247461903},
    {"cosine, half way", COSINE, 4, 0.6},
    {"cosine, three quarters", COSINE, 6, 0.31715728752538099},
    {"warm-up then cosine, in the warm-up", BOTH, 0, 0.5},
    {"warm-up then cosine, at the top", BOTH, 2, 1},
    {"warm-up then cosine, half of what is left", BOTH, 4, 0.5},
    {"poly starts at lr", POLY, 0, 1},
    {"poly, half way: 0.2 + 0.8 / 4", POLY, 4, 0.4},
    {"poly, last step", POLY, 7, 0.2125},
    {"scaled, first step", SCALED, 0, 0.3},
    {"scaled, end of the warm-up", SCALED, 3, 0.9},
    {"scaled, first step of the decay", SCALED, 4, 0.9},
    {"scaled, half of what is left", SCALED, 8, 0.45},
};

static void each_point_has_its_value(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(points); i++) {
        double lr = kolo_lr_at(&points[i].schedule, points[i].step);
        if (fabs(lr - points[i].lr) > 1e-12) {
            fail_msg("%s: %.17g, not %.17g", points[i].what, lr, points[i].lr);
        }
    }
}

static void schedules_with_an_end_depend_on_the_number_of_steps(void **state) {
    assert_false(kolo_lr_has_end(KOLO_LR_CONSTANT));
    assert_false(kolo_lr_has_end(KOLO_LR_STEP));
    assert_true(kolo_lr_has_end(KOLO_LR_COSINE));
    assert_true(kolo_lr_has_end(KOLO_LR_POLY));
}

static void epochs_become_steps(void **state) {
    kolo_train_opts opts = {
        .lr = 0.1, .warmup_epochs = 1.5, .lr_step_epochs = 3, .lr_step_factor = 0.5};
    kolo_lr s = kolo_lr_make(&opts, 64, 100, 1000);
    assert_int_equal(s.warmup, 150);
    assert_int_equal(s.step_every, 300);
    assert_int_equal(s.total, 1000);
    /* A warm-up longer than the run is shortened: its last step reaches lr. */
    s = kolo_lr_make(&opts, 64, 100, 20);
    assert_int_equal(s.warmup, 20);
    assert_true(fabs(kolo_lr_at(&s, 19) - 0.1) < 1e-15);
}

static void the_rate_grows_with_the_batch(void **state) {
    kolo_train_opts opts = {.lr = 0.1, .scale_lr = 256, .warmup_epochs = 1, .lr_step_epochs = 1};
    kolo_lr s = kolo_lr_make(&opts, 2048, 4, 100);
    assert_true(fabs(s.lr - 0.8) < 1e-15 && fabs(s.start - 0.1) < 1e-15);
    assert_true(fabs(kolo_lr_at(&s, 0) - 0.275) < 1e-15);
    assert_true(fabs(kolo_lr_at(&s, 3) - 0.8) < 1e-15);
    s = kolo_lr_make(&opts, 64, 4, 100); /* a lower rate: its warm-up starts from nothing */
    assert_true(fabs(s.lr - 0.025) < 1e-15 && s.start == 0);
}

TEST_MAIN(test_learning_rate) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_point_has_its_value),
        cmocka_unit_test(schedules_with_an_end_depend_on_the_number_of_steps),
        cmocka_unit_test(epochs_become_steps),
        cmocka_unit_test(the_rate_grows_with_the_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

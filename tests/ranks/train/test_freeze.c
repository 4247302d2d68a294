/* What is not trained (--freeze) and what is not loaded (--init-partial): frozen parameters keep
 * their bits and have no optimizer state, the others are trained, with equal bits under ZeRO and
 * after a resume; files that fit in part. */
#include "data/safetensors/safetensors.h"
#include "support/folder.h"
#include "support/support.h"
#include "support/train_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char images[] = "synthetic:N=40,test=8,shape=1x14x14,seed=2";
static const char tokens[] = "synthetic-tokens:N=24,test=4";

static char notices[4096];

static void note(void *arg, const char *line, kolo_notice_kind kind) {
    strncat(notices, line, sizeof notices - strlen(notices) - 1);
    strncat(notices, "\n", sizeof notices - strlen(notices) - 1);
}

/* Parts of folded nodes, normalization, shared and sparse tables. frozen, trained: a tensor each.
 */
static const struct {
    kolo_train_opts opts;
    const char *frozen, *trained;
} cases[] = {
    {{.model = "lenet", .data = images, .optimizer.freeze = "conv*"}, "conv2.weight", "fc1.weight"},
    {{.model = "lenet", .data = images, .optimizer.freeze = "*.weight"}, "fc3.weight", "fc3.bias"},
    {{.model = "lenet", .data = images, .optimizer.freeze = "*.bias"}, "fc2.bias", "conv1.weight"},
    {{.model = "mlp",
      .data = images,
      .optimizer = {.kind = KOLO_OPTIMIZER_LAMB, .clip = 1, .freeze = "fc1.*,fc2.bias"}},
     "fc1.weight",
     "fc2.weight"},
    {{.model = "resnet20",
      .model_options = "width=4",
      .data = images,
      .optimizer = {.momentum = 0.9, .freeze = "*.bn1.weight,conv1.weight"}},
     "layer1.0.bn1.weight",
     "layer1.0.bn1.bias"},
    {{.model = "gpt2_tiny",
      .model_options = "layers=1,width=32,heads=2,context=8,vocab=50",
      .data = tokens,
      .optimizer = {.kind = KOLO_OPTIMIZER_ADAM, .freeze = "wte.*,h.0.attn.*"}},
     "wte.weight",
     "h.0.mlp.c_fc.weight"},
    {{.model = "gpt2_tiny",
      .model_options = "layers=1,width=32,heads=2,context=8,vocab=50,tied=0",
      .data = tokens,
      .sparse_embedding = true,
      .optimizer.freeze = "wpe.*"},
     "wpe.weight",
     "wte.weight"},
    {{.model = "lstm_lm",
      .model_options = "layers=1,hidden=16,width=16,context=8,vocab=50",
      .data = tokens,
      .optimizer.freeze = "*weight_ih*"},
     "rnn.weight_ih_l0",
     "rnn.weight_hh_l0"},
};

static void begin(void) {
    notices[0] = '\0';
    assert_int_equal(system("rm -rf first run other third"), 0);
}

/* Whether a tensor is bitwise the same in two files. */
static bool same_tensor(const char *a, const char *b, const char *name) {
    kolo_safetensors *files[2];
    ASSERT_OK(kolo_safetensors_open(a, &files[0]));
    ASSERT_OK(kolo_safetensors_open(b, &files[1]));
    const kolo_safetensors_entry *x = kolo_safetensors_find(files[0], name);
    const kolo_safetensors_entry *y = kolo_safetensors_find(files[1], name);
    if (!x || !y) fail_msg("no %s", name);
    bool same = x->bytes == y->bytes && memcmp(x->data, y->data, x->bytes) == 0;
    kolo_safetensors_close(files[0]);
    kolo_safetensors_close(files[1]);
    return same;
}

/* Whether a resumable checkpoint has optimizer state of a parameter. */
static bool has_state(const char *path, const char *parameter) {
    kolo_safetensors *file;
    bool found = false;
    ASSERT_OK(kolo_safetensors_open(path, &file));
    for (int i = 0; i < kolo_safetensors_count(file); i++) {
        const char *name = kolo_safetensors_get(file, i)->name, *at = strstr(name, parameter);
        found |= strncmp(name, "optimizer.", 10) == 0 && at && strcmp(at, parameter) == 0;
    }
    kolo_safetensors_close(file);
    return found;
}

static kolo_train_opts options_of(size_t i) {
    kolo_train_opts o = cases[i].opts;
    o.lr = 0.05;
    o.batch = 4;
    o.steps = 3;
    o.no_eval = true;
    o.autotune = KOLO_AUTOTUNE_OFF;
    return o;
}

static void frozen_parameters_keep_their_bits(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        begin();
        kolo_train_opts o = options_of(i);
        const char *freeze = o.optimizer.freeze;
        o.optimizer.freeze = NULL;
        o.out_dir = "first";
        (void)train_well(1, &o);
        o.optimizer.freeze = freeze;
        o.init = "first/checkpoint-final.safetensors";
        o.out_dir = "run";
        o.checkpoint_steps = 3;
        (void)train_well(2, &o);
        const char *end = "run/checkpoint-final.safetensors";
        if (!same_tensor(o.init, end, cases[i].frozen)) fail_msg("%s moved", cases[i].frozen);
        if (same_tensor(o.init, end, cases[i].trained)) fail_msg("%s stayed", cases[i].trained);
        const char *whole = "run/checkpoint-3.safetensors";
        bool stateful = o.optimizer.momentum > 0 || o.optimizer.kind >= KOLO_OPTIMIZER_ADAM;
        assert_false(has_state(whole, cases[i].frozen));
        assert_int_equal(has_state(whole, cases[i].trained), stateful);
    }
}

static void sharded_state_gives_the_same_bits(void **state) {
    for (size_t i = 3; i < 6; i++) {
        begin();
        kolo_train_opts o = options_of(i);
        o.algorithm = KOLO_ALGORITHM_DIRECT;
        o.optimizer.clip = 0; /* layouts differ */
        if (o.optimizer.kind == KOLO_OPTIMIZER_LAMB) o.optimizer.kind = KOLO_OPTIMIZER_ADAMW;
        const kolo_train_result plain = train_well(2, &o);
        for (o.zero = 1; o.zero <= 3; o.zero++) {
            const kolo_train_result sharded = train_well(2, &o);
            assert_same_run(cases[i].opts.model, &plain, &sharded);
        }
    }
}

static void resumed_runs_have_the_same_bits(void **state) {
    begin();
    kolo_train_opts o = options_of(3);
    o.steps = 8;
    const kolo_train_result whole = train_well(2, &o);
    o.steps = 5;
    o.out_dir = "run";
    o.checkpoint_steps = 5;
    (void)train_well(2, &o);
    o.steps = 8;
    o.resume = "run";
    const kolo_train_result resumed = train_well(2, &o);
    assert_true(whole.parameter_hash == resumed.parameter_hash);
    /* Other parameters would have no state. */
    o.optimizer.freeze = "fc1.*";
    o.resume = "run/checkpoint-5.safetensors";
    o.out_dir = "other";
    const train_outcome *other = train_job(2, RANKS_THREAD, &o);
    assert_int_equal(other->status, KOLO_ERR_ARG);
    if (!strstr(other->error, "freeze")) fail_msg("%s", other->error);
}

static void patterns_that_leave_nothing_are_refused(void **state) {
    static const char *const patterns[][2] = {{"conv*,encoder.*", "\"encoder.*\""},
                                              {"*", "none is left to train"}};
    kolo_train_opts o = options_of(0);
    begin();
    for (size_t i = 0; i < KOLO_COUNT(patterns); i++) {
        o.optimizer.freeze = patterns[i][0];
        const train_outcome *outcome = train_job(2, RANKS_THREAD, &o);
        assert_int_equal(outcome->status, KOLO_ERR_ARG);
        if (!strstr(outcome->error, patterns[i][1])) fail_msg("%s", outcome->error);
    }
}

static void what_fits_is_loaded(void **state) {
    begin();
    kolo_train_opts o = options_of(3);
    o.optimizer.freeze = NULL;
    o.model_options = "hidden=16";
    o.out_dir = "first";
    (void)train_well(1, &o);
    o.model_options = "hidden=16,layers=3";
    o.init = "first/checkpoint-final.safetensors";
    o.init_partial = true;
    o.algorithm = KOLO_ALGORITHM_DIRECT;
    o.optimizer.freeze = "fc1.*,fc2.*";
    o.out_dir = "run";
    o.notice = note;
    (void)train_well(2, &o);
    assert_true(same_tensor(o.init, "run/checkpoint-final.safetensors", "fc1.weight"));
    assert_true(same_tensor(o.init, "run/checkpoint-final.safetensors", "fc2.bias"));
    if (!strstr(notices, "missing: fc4.weight, fc4.bias\nof another type or shape: "
                         "fc3.weight f32 [10,16], not [16,16], fc3.bias f32 [10], not [16]\n")) {
        fail_msg("%s", notices);
    }
    /* Every rank reads its ranges of sharded parameters. */
    o.zero = 3;
    o.out_dir = "other";
    (void)train_well(2, &o);
    assert_true(same_tensor(o.init, "other/checkpoint-final.safetensors", "fc2.bias"));
    assert_true(same_tensor("run/checkpoint-final.safetensors",
                            "other/checkpoint-final.safetensors", "fc3.bias"));
    o.zero = 0;
    o.model = "resnet20";
    o.model_options = "width=2";
    o.optimizer.freeze = NULL;
    o.out_dir = "third";
    const train_outcome *outcome = train_job(2, RANKS_THREAD, &o);
    assert_int_equal(outcome->status, KOLO_ERR_FORMAT);
    if (!strstr(outcome->error, "no tensor of first/")) fail_msg("%s", outcome->error);
}

TEST_MAIN(test_freeze) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frozen_parameters_keep_their_bits),
        cmocka_unit_test(sharded_state_gives_the_same_bits),
        cmocka_unit_test(resumed_runs_have_the_same_bits),
        cmocka_unit_test(patterns_that_leave_nothing_are_refused),
        cmocka_unit_test(what_fits_is_loaded),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}

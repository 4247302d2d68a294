/* The cuts of a pipeline: by the costs of layers that are given, by speeds of stages, within their
 * memory; and these costs, from estimates, from measured times, and from their text. */
#include "kernel/select/tune.h"
#include "kolo/models.h"
#include "pass/cuts.h"
#include "plan/plan.h"
#include "support/support.h"

#include <math.h>
#include <string.h>

enum { LAYERS = 6, SAMPLES = 4, WIDTH = 8 };

/* LAYERS layers of one weight each, then a loss. */
static kolo_graph *layers(void) {
    kolo_graph *g;
    ASSERT_OK(kolo_graph_create(NULL, &g));
    kolo_value h = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_2(SAMPLES, WIDTH));
    const kolo_value y = kolo_input(g, "y", KOLO_DTYPE_F32, kolo_shape_2(SAMPLES, WIDTH));
    for (int i = 0; i < LAYERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        h = kolo_linear(g, h, kolo_param(g, name, kolo_shape_2(WIDTH, WIDTH), kolo_init_fan_in(9)));
        h = kolo_tanh(g, h);
    }
    kolo_output(g, "loss", kolo_mse_loss(g, h, y));
    ASSERT_OK(kolo_graph_check(g));
    return g;
}

/* Units of the layers, with these costs; the first one has no nodes. */
typedef struct table {
    kolo_unit units[LAYERS + 1];
    kolo_unit_costs costs;
} table;

static void fill(table *t, const double *seconds, const double *state) {
    static const char *const names[] = {NULL, "w0", "w1", "w2", "w3", "w4", "w5"};
    _Static_assert(KOLO_COUNT(names) == LAYERS + 1, "all units have a name");
    *t = (table){0};
    for (int i = 0; i <= LAYERS; i++) {
        t->units[i].name = names[i];
        if (i == 0) continue;
        t->units[i].seconds = seconds[i - 1];
        t->units[i].state = state ? state[i - 1] : 0;
        t->units[i].kept = state ? 1 : 0;
    }
    t->costs = (kolo_unit_costs){.units = t->units, .n = LAYERS + 1};
}

/* The cuts as text, "w2 w4". */
static kolo_status cut(const kolo_cut_opts *opts, char *text, size_t size) {
    kolo_graph *g = layers();
    kolo_stage_cuts cuts = {0};
    kolo_arena names = {0};
    const kolo_status status = kolo_pass_cuts(g, opts, &cuts, &names);
    *text = '\0';
    for (int i = 0; i < cuts.n; i++) {
        snprintf(text + strlen(text), size - strlen(text), "%s%s", i ? " " : "", cuts.names[i]);
    }
    kolo_arena_fini(&names);
    kolo_graph_destroy(g);
    return status;
}

static void cuts_follow_costs_and_speeds(void **state) {
    static const struct {
        double seconds[LAYERS], speeds[3];
        int stages, chunks;
        const char *want;
    } cases[] = {
        {{1, 1, 1, 1, 1, 1}, {1, 1}, 2, 1, "w3"},
        {{5, 1, 1, 1, 1, 1}, {1, 1}, 2, 1, "w1"},
        {{1, 1, 1, 1, 1, 5}, {1, 1}, 2, 1, "w5"},
        {{1, 1, 1, 1, 1, 1}, {1, 0.5}, 2, 1, "w4"},
        {{1, 1, 1, 1, 1, 1}, {0.2, 1}, 2, 1, "w1"},
        {{1, 1, 1, 1, 1, 1}, {1, 1, 1}, 3, 1, "w2 w4"},
        {{1, 1, 1, 1, 1, 1}, {3, 2, 1}, 3, 1, "w3 w5"},
        {{1, 1, 2, 1, 1, 2}, {1, 1}, 2, 2, "w2 w3 w5"},
    };
    (void)state;
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        table t;
        char text[64];
        fill(&t, cases[i].seconds, NULL);
        const kolo_cut_opts opts = {.parts = {cases[i].stages, cases[i].chunks, KOLO_PARTS_LOOP},
                                    .costs = &t.costs,
                                    .speeds = cases[i].speeds};
        ASSERT_OK(cut(&opts, text, sizeof text));
        if (strcmp(text, cases[i].want) != 0) fail_msg("case %zu: %s", i, text);
    }
}

/* Bytes of the state, and of the values of as many micro-batches as the stage keeps. */
static void cuts_keep_within_memory(void **state) {
    static const double seconds[LAYERS] = {1, 1, 1, 1, 1, 1},
                        bytes[LAYERS] = {10, 10, 10, 10, 10, 50};
    static const int slots[] = {2, 1};
    static const struct {
        double most;
        const char *want; /* NULL: none */
    } cases[] = {{0, "w3"}, {73, "w3"}, {72, "w4"}, {61, "w5"}, {59, NULL}};
    (void)state;
    table t;
    fill(&t, seconds, bytes);
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        char text[64];
        const kolo_cut_opts opts = {.parts = {2, 1, KOLO_PARTS_LOOP},
                                    .costs = &t.costs,
                                    .slots = slots,
                                    .most_bytes = cases[i].most};
        if (!cases[i].want) {
            ASSERT_REFUSED(cut(&opts, text, sizeof text), "keeps every stage within");
            continue;
        }
        ASSERT_OK(cut(&opts, text, sizeof text));
        if (strcmp(text, cases[i].want) != 0) fail_msg("%g bytes: %s", cases[i].most, text);
    }
}

static void costs_of_another_model_are_refused(void **state) {
    static const double seconds[LAYERS] = {1, 1, 1, 1, 1, 1};
    table t;
    char text[64];
    (void)state;
    fill(&t, seconds, NULL);
    t.units[3].name = "other";
    const kolo_cut_opts opts = {.parts = {2, 1, KOLO_PARTS_LOOP}, .costs = &t.costs};
    assert_int_equal(cut(&opts, text, sizeof text), KOLO_ERR_UNSUPPORTED);
    assert_non_null(strstr(kolo_last_error(), "another model"));
    const kolo_cut_opts many = {.parts = {LAYERS + 2, 1, KOLO_PARTS_LOOP}};
    ASSERT_REFUSED(cut(&many, text, sizeof text), "too few layers");
}

/* The seconds of the stages are those of their layers, over their speeds. */
static void seconds_are_those_of_the_stages(void **state) {
    static const double seconds[LAYERS] = {1, 2, 3, 4, 5, 6}, speeds[] = {2, 1};
    static const char *names[] = {"w2"};
    double got[2];
    table t;
    (void)state;
    fill(&t, seconds, NULL);
    kolo_graph *g = layers();
    const kolo_cut_opts opts = {
        .parts = {2, 1, KOLO_PARTS_LOOP}, .costs = &t.costs, .speeds = speeds};
    ASSERT_OK(kolo_cuts_seconds(g, &opts, &(kolo_stage_cuts){1, names}, got));
    assert_true(fabs(got[0] - 1.5) < 1e-9 && fabs(got[1] - 18) < 1e-9);
    kolo_graph_destroy(g);
}

/* ---- the costs of units ---- */

static kolo_unit_costs costs_of(kolo_graph *g, kolo_tuner *tuner, int64_t micro_batches) {
    const kolo_plan_opts plan = {.train = true,
                                 .optimizer = {.kind = KOLO_OPTIMIZER_ADAM},
                                 .mesh = {2, {{"dp", 1}, {"pp", 2}}},
                                 .micro_batches = micro_batches,
                                 .bucket_bytes = 1 << 20,
                                 .tuner = tuner,
                                 .threads = 1};
    const kolo_pipeline_opts passes = kolo_plan_passes(&plan);
    kolo_unit_costs costs;
    ASSERT_OK(kolo_unit_costs_find(g, &passes, &costs));
    kolo_graph_destroy(g);
    return costs;
}

/* Parameters and Adam's two moments in two banks, the gradient; the values that the gradients of
 * the weights and of tanh read. */
static void units_have_their_bytes(void **state) {
    kolo_unit_costs costs = costs_of(layers(), NULL, 2);
    (void)state;
    assert_int_equal(costs.n, LAYERS + 1);
    assert_null(costs.units[0].name);
    for (int i = 1; i < costs.n; i++) {
        const double weight = WIDTH * WIDTH * sizeof(float);
        char name[16];
        snprintf(name, sizeof name, "w%d", i - 1);
        assert_string_equal(costs.units[i].name, name);
        assert_true(costs.units[i].seconds > 0);
        if (costs.units[i].state != 7 * weight) fail_msg("%s: %g", name, costs.units[i].state);
        assert_true(costs.units[i].kept >= SAMPLES * WIDTH * sizeof(float));
    }
    assert_true(costs.measured == 0);
    kolo_unit_costs_fini(&costs);
}

/* Once measured, all times come from the text, also in another tuner. */
static void times_are_measured_and_kept(void **state) {
    kolo_tuner *tuner, *other;
    kolo_text text = {0};
    (void)state;
    ASSERT_OK(kolo_tuner_create("machine", &tuner));
    kolo_tuner_measure(tuner, true, NULL, NULL);
    kolo_unit_costs costs = costs_of(layers(), tuner, 2);
    kolo_tuner_measure(tuner, false, NULL, NULL);
    assert_true(costs.measured > 0.999);
    kolo_tuner_write(tuner, true, &text);
    ASSERT_OK(kolo_tuner_create("machine", &other));
    ASSERT_OK(kolo_tuner_read(other, "text", text.text));
    kolo_unit_costs read = costs_of(layers(), other, 2);
    assert_int_equal(read.n, costs.n);
    assert_true(read.measured > 0.999);
    for (int i = 0; i < read.n; i++) {
        const double a = read.units[i].seconds, b = costs.units[i].seconds;
        if (fabs(a - b) > 1e-4 * b) fail_msg("unit %d: %g, %g before", i, a, b);
    }
    kolo_unit_costs_fini(&read);
    kolo_unit_costs_fini(&costs);
    kolo_text_fini(&text);
    kolo_tuner_destroy(tuner);
    kolo_tuner_destroy(other);
}

/* Networks with branches, normalization and tied tables: their units have all the time. */
static void units_of_models_have_costs(void **state) {
    static const struct {
        const char *model, *options;
        kolo_shape sample;
    } models[] = {
        {"resnet18", "width=8", {3, {3, 32, 32}}},
        {"googlenet", "width=2", {3, {3, 32, 32}}},
        {"gpt2_tiny", "layers=2,width=32,heads=4,context=8,vocab=50", {1, {8}}},
    };
    (void)state;
    for (size_t i = 0; i < KOLO_COUNT(models); i++) {
        const kolo_model *model;
        const kolo_model_opts opts = {.batch = 2,
                                      .sample = models[i].sample,
                                      .classes = models[i].sample.rank == 1 ? 50 : 10,
                                      .options = models[i].options};
        kolo_graph *g;
        ASSERT_OK(kolo_model_find(models[i].model, &model));
        ASSERT_OK(kolo_graph_create(NULL, &g));
        ASSERT_OK(kolo_model_add(model, g, &opts));
        kolo_unit_costs costs = costs_of(g, NULL, 1);
        assert_true(costs.n > 4);
        for (int u = 1; u < costs.n; u++) {
            const kolo_unit *unit = &costs.units[u];
            if (unit->seconds > 0 && unit->state > 0) continue;
            fail_msg("%s: %s takes %g s, %g bytes", models[i].model, unit->name, unit->seconds,
                     unit->state);
        }
        kolo_unit_costs_fini(&costs);
    }
}

TEST_MAIN(test_cuts) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_follow_costs_and_speeds),
        cmocka_unit_test(cuts_keep_within_memory),
        cmocka_unit_test(costs_of_another_model_are_refused),
        cmocka_unit_test(seconds_are_those_of_the_stages),
        cmocka_unit_test(units_have_their_bytes),
        cmocka_unit_test(times_are_measured_and_kept),
        cmocka_unit_test(units_of_models_have_costs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

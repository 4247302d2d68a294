/* Lanes: which nodes form regions, what memory these may share, and that runs with and without are
 * bitwise equal: on one rank and on meshes, with all that is independent in regions, and with what
 * measured times choose. */
#include "base/file.h"
#include "base/text.h"
#include "graph/ops/ops.h"
#include "kolo/dump.h"
#include "kolo/models.h"
#include "pass/lanes.h"
#include "pass/pass.h"
#include "plan/lane_trial.h"
#include "plan/plan.h"
#include "support/fewer.h"
#include "support/folder.h"
#include "support/small_resnet.h"
#include "support/support.h"
#include "support/train_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 2, WIDTH = 6 };

static kolo_value layer(kolo_graph *g, const char *name, kolo_value x) {
    const kolo_value w = kolo_param(g, name, kolo_shape_2(WIDTH, WIDTH), kolo_init_fan_in(WIDTH));
    return kolo_tanh(g, kolo_linear(g, x, w));
}

/* Two layers, then branches of one, two and three layers. */
static kolo_status branches(kolo_graph *g) {
    const kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_2(SAMPLES, WIDTH));
    const kolo_value y = kolo_input(g, "y", KOLO_DTYPE_F32, kolo_shape_2(SAMPLES, WIDTH));
    const kolo_value h = layer(g, "h1", layer(g, "h0", x));
    const kolo_value a = layer(g, "a0", h);
    const kolo_value b = layer(g, "b1", layer(g, "b0", h));
    const kolo_value c = layer(g, "c2", layer(g, "c1", layer(g, "c0", h)));
    kolo_output(g, "loss", kolo_mse_loss(g, kolo_add(g, kolo_add(g, a, b), c), y));
    return kolo_graph_check(g);
}

static kolo_status googlenet(kolo_graph *g) {
    const kolo_model *model;
    const kolo_model_opts opts = {
        .batch = SAMPLES, .sample = kolo_shape_3(3, 32, 32), .classes = 3, .options = "width=2"};
    KOLO_TRY(kolo_model_find("googlenet", &model));
    return kolo_model_add(model, g, &opts);
}

static kolo_graph *passed(kolo_status (*build)(kolo_graph *g), bool train, int threads,
                          kolo_lanes lanes) {
    kolo_graph *g;
    kolo_pipeline_opts opts = {.train = train,
                               .optimizer = {.momentum = 0.9, .clip = 1},
                               .bucket_bytes = 1 << 20,
                               .micro_batches = 1,
                               .threads = threads,
                               .lanes = lanes,
                               .kernels = KOLO_KERNELS_REF};
    ASSERT_OK(kolo_optimizer_resolve(&opts.optimizer, &opts.optimizer));
    ASSERT_OK(kolo_graph_create(NULL, &g));
    ASSERT_OK(build(g));
    ASSERT_OK(kolo_pipeline_run(g, &opts));
    return g;
}

static int count_regions(const kolo_graph *g) {
    int regions = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i]->region > regions) regions = g->nodes[i]->region;
    }
    return regions;
}

static void fail_with(const kolo_graph *g, const char *what) {
    kolo_text text = {0};
    for (int32_t i = 0; i < g->n_nodes; i++) {
        kolo_text_add(&text, "%d.%d ", g->nodes[i]->region, g->nodes[i]->lane);
        kolo_node_print(g, g->nodes[i], &text);
        kolo_text_add(&text, "\n");
    }
    fail_msg("%s:\n%s", what, text.text);
}

/* ---- regions ---- */

/* The branches of 2, 4 and 6 nodes: on two lanes of 6. */
static void branches_are_in_lanes(void **state) {
    kolo_graph *g = passed(branches, false, 2, KOLO_LANES_ALL);
    int nodes[2] = {0};
    if (count_regions(g) != 1) fail_with(g, "not one region");
    for (int32_t i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i]->region > 0) nodes[g->nodes[i]->lane]++;
        assert_true(i >= 4 ||
                    g->nodes[i]->region == 0); /* the layers before are one after another */
    }
    if (nodes[0] != 6 || nodes[1] != 6) fail_with(g, "not the shortest lanes");
    kolo_graph_destroy(g);
    g = passed(branches, false, 4, KOLO_LANES_ALL);
    int third = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) third += g->nodes[i]->lane == 2;
    assert_int_equal(third, 2);
    kolo_graph_destroy(g);
}

/* The gradients of a layer's weights and of its input, too. */
static void gradients_are_in_lanes(void **state) {
    kolo_graph *g = passed(branches, true, 2, KOLO_LANES_ALL);
    int weights = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        if (n->op == &kolo_op_linear_bwd_weights) weights += n->region > 0;
        if (n->region == 0) continue;
        assert_true(n->op->comm == KOLO_OP_LOCAL && !kolo_node_is_update(g, n));
        for (int k = 0; k < n->n_in; k++) { /* lanes read nothing of each other */
            const int32_t of = kolo_info(g, n->in[k])->producer;
            if (of < 0 || g->nodes[of]->region != n->region) continue;
            assert_int_equal(g->nodes[of]->lane, n->lane);
        }
    }
    if (weights < 4) fail_with(g, "gradients of weights are not in lanes");
    kolo_graph_destroy(g);
}

static void there_are_none_without_threads_or_times(void **state) {
    static const struct {
        int threads;
        kolo_lanes lanes;
    } cases[] = {{1, KOLO_LANES_ALL}, {2, KOLO_LANES_OFF}, {2, KOLO_LANES_MEASURED}};
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_graph *g = passed(branches, true, cases[i].threads, cases[i].lanes);
        assert_int_equal(count_regions(g), 0);
        kolo_graph_destroy(g);
    }
}

/* ---- memory ---- */

static size_t bytes_of(const kolo_graph *g, kolo_value v) {
    return kolo_tensor_bytes(&kolo_info(g, v)->tensor);
}

static bool overlap(const kolo_graph *g, const kolo_memory_map *map, kolo_value a, kolo_value b) {
    const kolo_location *x = &map->locations[a.id], *y = &map->locations[b.id];
    if (x->region != KOLO_REGION_ARENA && x->region != KOLO_REGION_BUCKET) return false;
    if (x->region != y->region) return false;
    const size_t from = x->offset + x->skip, at = y->offset + y->skip;
    return from < at + bytes_of(g, b) && at < from + bytes_of(g, a);
}

/* Whether node n writes what node m, in another lane, reads or writes. */
static bool interferes(const kolo_graph *g, const kolo_memory_map *map, const kolo_node *n,
                       const kolo_node *m) {
    for (int k = 0; k < n->n_out; k++) {
        for (int j = 0; j < m->n_in; j++) {
            if (overlap(g, map, n->out[k], m->in[j])) return true;
        }
        for (int j = 0; j < m->n_out; j++) {
            if (overlap(g, map, n->out[k], m->out[j])) return true;
        }
    }
    return false;
}

static void lanes_do_not_share_memory(void **state) {
    for (int threads = 2; threads < 5; threads++) {
        kolo_memory_map map;
        kolo_graph *g = passed(googlenet, true, threads, KOLO_LANES_ALL);
        ASSERT_OK(kolo_pass_memory(g, &map));
        int pairs = 0;
        for (int32_t i = 0; i < g->n_nodes; i++) {
            for (int32_t j = 0; j < g->n_nodes; j++) {
                const kolo_node *n = g->nodes[i], *m = g->nodes[j];
                if (n->region == 0 || n->region != m->region || n->lane == m->lane) continue;
                pairs++;
                if (interferes(g, &map, n, m)) fail_with(g, "nodes of two lanes share memory");
            }
        }
        assert_true(pairs > 1000);
        kolo_memory_map_fini(&map);
        kolo_graph_destroy(g);
    }
}

/* ---- runs ---- */

#define TOKENS "synthetic-tokens:N=16,test=2"
#define SIZES "layers=2,width=16,heads=2,context=8,vocab=50"
#define IMAGES "synthetic:N=16,test=3,shape=3x32x32"

/* With the reference kernels, which compute the same on any number of threads. */
static void runs_have_the_same_bits(void **state) {
    static const struct {
        const char *mesh, *model, *options, *data, *pipeline;
        int ranks, threads, accumulate, zero;
        int64_t reproducible;
        kolo_recompute recompute;
    } jobs[] = {
        {NULL, "googlenet", "width=2", IMAGES, NULL, 1, 2, 1, 0, 0, 0},
        {NULL, "googlenet", "width=2", IMAGES, NULL, 1, 3, 4, 0, 0, KOLO_RECOMPUTE_CHEAP},
        {"dp=2", "googlenet", "width=2", IMAGES, NULL, 2, 2, 2, 1, 0, 0},
        {NULL, "gpt2_tiny", SIZES, TOKENS, NULL, 2, 2, 1, 0, 4, 0},
        {"pp=2", "gpt2_tiny", SIZES, TOKENS, "zbv", 2, 2, 2, 0, 0, 0},
        {"tp=2", "gpt2_tiny", SIZES, TOKENS, NULL, 2, 4, 1, 0, 0, 0},
        {"sp=2", "resnet20", "width=2", IMAGES, NULL, 2, 2, 1, 0, 0, 0},
    };
    for (size_t i = 0; i < TEST_FEWER(3, KOLO_COUNT(jobs)); i++) {
        kolo_train_opts opts = {
            .model = jobs[i].model,
            .model_options = jobs[i].options,
            .data = jobs[i].data,
            .optimizer = {.momentum = 0.9, .clip = 1},
            .lr = 0.01,
            .global_batch = 8,
            .accumulate = jobs[i].accumulate,
            .steps = 3,
            .epochs = 2,
            .mesh = jobs[i].mesh,
            .pipeline = jobs[i].pipeline,
            .zero = jobs[i].zero,
            .reproducible = jobs[i].reproducible,
            .recompute = jobs[i].recompute,
            .threads = jobs[i].threads,
            .reference_kernels = true,
            .lanes = KOLO_LANES_ALL,
        };
        const kolo_train_result is = train_well(jobs[i].ranks, &opts);
        opts.lanes = KOLO_LANES_OFF;
        const kolo_train_result want = train_well(jobs[i].ranks, &opts);
        assert_same_run(jobs[i].mesh ? jobs[i].mesh : jobs[i].model, &is, &want);
    }
}

/* Divides the times in lanes in a file of times: all regions are then predicted to gain. */
static void promise_gains(const char *path) {
    char *text, *out = NULL, *line;
    size_t bytes, n = 0;
    ASSERT_OK(kolo_file_read(path, 16 << 20, &text, &bytes));
    kolo_text changed = {0};
    for (line = text; *line; line = out) {
        out = strchr(line, '\n') + 1;
        char *key;
        const double seconds = strtod(line, &key);
        const char *how = strstr(key, " lanes: ");
        const bool lanes = how && how < out;
        n += lanes;
        if (lanes) {
            kolo_text_add(&changed, "%.6g%.*s", seconds / 100, (int)(out - key), key);
        } else {
            kolo_text_add(&changed, "%.*s", (int)(out - line), line);
        }
    }
    assert_true(n > 0);
    ASSERT_OK(kolo_file_write(path, changed.text, changed.length));
    kolo_text_fini(&changed);
    kolo_free(text);
}

/* With the fast kernels: measured times predict regions, which run in lanes and one node after
 * another in turns, and then in the faster way. */
static void measured_runs_have_the_same_bits(void **state) {
    kolo_train_opts opts = {
        .model = small_resnet(), /* few kernels to measure, beside each other in the shortcuts */
        .model_options = "width=4",
        .data = IMAGES,
        .optimizer = {.momentum = 0.9},
        .lr = 0.01,
        .batch = TEST_FEWER(1, 4),
        .steps = 1,
        .epochs = 20,
        .threads = 2,
        .autotune = KOLO_AUTOTUNE_ON,
        .tuning = "tuning.txt",
        .notice = train_note,
    };
    int chosen, regions;
    (void)train_well(1, &opts);
    promise_gains("tuning.txt");
    opts.autotune = KOLO_AUTOTUNE_CACHED;
    opts.steps = KOLO_LANE_TRIAL_RUNS + 2;
    train_notices[0] = '\0';
    const kolo_train_result is = train_well(1, &opts);
    const char *line = strstr(train_notices, "lanes from step 13 on: ");
    if (!line || sscanf(line, "lanes from step 13 on: %d of %d", &chosen, &regions) != 2) {
        fail_msg("%s", train_notices);
    }
    assert_true(regions > 0 && chosen >= 0 && chosen <= regions);
    opts.lanes = KOLO_LANES_OFF;
    train_notices[0] = '\0';
    const kolo_train_result want = train_well(1, &opts);
    assert_null(strstr(train_notices, "lanes"));
    assert_same_run("measured", &is, &want);
}

static void a_dump_names_regions(void **state) {
    char *text = NULL;
    kolo_dump_opts opts = {.what = KOLO_DUMP_PLAN,
                           .model = "googlenet",
                           .model_options = "width=2",
                           .batch = 2,
                           .sample = {3, {3, 32, 32}},
                           .threads = 2,
                           .reference_kernels = true,
                           .lanes = KOLO_LANES_ALL};
    ASSERT_OK(kolo_dump(&opts, &text));
    assert_non_null(strstr(text, "\nlanes: "));
    assert_non_null(strstr(text, " region 1 lane 1\n"));
    kolo_dump_free(text);
    opts.lanes = KOLO_LANES_OFF;
    ASSERT_OK(kolo_dump(&opts, &text));
    assert_null(strstr(text, "lanes: "));
    assert_null(strstr(text, " lane "));
    kolo_dump_free(text);
}

/* Rank 0 measures the plan of its slices, without the others. */
static void ranks_of_a_mesh_measure(void **state) {
    kolo_train_opts opts = {
        .model = "gpt2_tiny",
        .model_options = SIZES,
        .data = TOKENS,
        .lr = 0.01,
        .batch = 4,
        .steps = 2,
        .threads = 2,
        .mesh = "tp=2",
        .autotune = KOLO_AUTOTUNE_ON,
        .tuning = "slices.txt",
    };
    const kolo_train_result is = train_well(2, &opts);
    opts.autotune = KOLO_AUTOTUNE_CACHED;
    opts.lanes = KOLO_LANES_OFF;
    const kolo_train_result want = train_well(2, &opts);
    assert_same_run("tp=2", &is, &want);
}

TEST_MAIN(test_lanes) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(branches_are_in_lanes),
        cmocka_unit_test(gradients_are_in_lanes),
        cmocka_unit_test(there_are_none_without_threads_or_times),
        cmocka_unit_test(lanes_do_not_share_memory),
        cmocka_unit_test(runs_have_the_same_bits),
        cmocka_unit_test(measured_runs_have_the_same_bits),
        cmocka_unit_test(ranks_of_a_mesh_measure),
        cmocka_unit_test(a_dump_names_regions),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}

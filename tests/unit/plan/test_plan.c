/* The plan: all passes and kernels together. Small nets of every shape of graph are trained for a
 * few steps with the reference kernels and with the best ones; parameters, losses and outputs must
 * agree. Banks and tail plans on a shared store are checked on the way. */
#include "graph/ops/ops.h"
#include "kernel/select/select.h"
#include "kolo/models.h"
#include "plan/internal.h"
#include "support/plan_nets.h"

#include <math.h>
#include <string.h>

enum { BATCH = 5, STEPS = 4 };

/* ---- running ---- */

/* All parameters in canonical order, by name; *count gets their number. */
static float *read_store(const kolo_store *store, size_t *count) {
    *count = 0;
    for (int i = 0; i < kolo_store_count(store); i++) {
        *count += (size_t)kolo_shape_count(&kolo_store_entry_at(store, i)->tensor.shape);
    }
    float *all = kolo_alloc(*count * sizeof *all), *at = all;
    for (int i = 0; i < kolo_store_count(store); i++) {
        const kolo_store_entry *entry = kolo_store_entry_at(store, i);
        kolo_store_read(store, entry, at);
        at += kolo_shape_count(&entry->tensor.shape);
    }
    return all;
}

typedef struct outcome {
    double losses[STEPS], correct[STEPS];
    float *store;
    size_t count;
} outcome;

static outcome run_in(net build, const kolo_plan_opts *opts, bool alone) {
    outcome o = {.store = NULL};
    kolo_store *store;
    ASSERT_OK(kolo_store_create(NULL, &store));
    if (alone) kolo_store_set_alone(store);
    kolo_plan *plan = net_compile(build, BATCH, opts, store);
    ASSERT_OK(kolo_store_init(store, 42));
    for (int s = 0; s < STEPS; s++) {
        net_fill(plan, (uint64_t)s % 2);
        ASSERT_OK(kolo_plan_run(plan));
        o.losses[s] = kolo_plan_scalar(plan, "loss");
        o.correct[s] = kolo_plan_scalar(plan, "correct");
    }
    o.store = read_store(store, &o.count);
    kolo_plan_destroy(plan);
    kolo_store_destroy(store);
    return o;
}

static outcome run(net build, const kolo_plan_opts *opts) { return run_in(build, opts, false); }

/* ---- tests ---- */

/* Runs `step` once more on the reference kernel, from plain copies of its inputs; gives the largest
 * relative distance between what the step left in its outputs and what the reference gives. */
static double distance_to_reference(const kolo_plan *plan, const kolo_step *step,
                                    void *const *inputs) {
    kolo_kernel_spec spec = step->all.spec;
    kolo_call call = {.spec = &spec};
    for (int k = 0; k < spec.n_in; k++) {
        spec.in[k].layout = kolo_layout_plain(spec.in[k].shape.rank);
        call.in[k] = kolo_alloc(kolo_tensor_bytes(&spec.in[k]) + 1);
        kolo_tensor_reorder(&spec.in[k], call.in[k], &step->all.spec.in[k], inputs[k]);
    }
    for (int k = 0; k < spec.n_out; k++) {
        spec.out[k].layout = kolo_layout_plain(spec.out[k].shape.rank);
        call.out[k] = kolo_zalloc(kolo_tensor_bytes(&spec.out[k]) + 1);
    }
    const kolo_kernel *kernel;
    ASSERT_OK(kolo_kernel_select(KOLO_KERNELS_REF, &spec, &kernel, NULL));
    size_t scratch_bytes = 0;
    if (kernel->prepare) ASSERT_OK(kernel->prepare(&spec, &call.state, &scratch_bytes));
    call.scratch = kolo_alloc(scratch_bytes + 1);
    kernel->run(&call);
    kolo_free(call.scratch);
    if (kernel->release) kernel->release(call.state);
    double worst = 0;
    for (int k = 0; k < spec.n_out; k++) {
        void *got = kolo_alloc(kolo_tensor_bytes(&spec.out[k]) + 1);
        kolo_tensor_reorder(&spec.out[k], got, &step->all.spec.out[k],
                            step->all.calls[plan->store->current].out[k]);
        size_t n = (size_t)kolo_shape_count(&spec.out[k].shape);
        double d = 0;
        if (spec.out[k].dtype == KOLO_DTYPE_F32) {
            d = test_relative_l2_f32(got, call.out[k], n);
        } else {
            d = memcmp(got, call.out[k], kolo_tensor_bytes(&spec.out[k])) ? 1 : 0;
        }
        worst = d > worst || isnan(d) ? d : worst;
        kolo_free(got);
        kolo_free(call.out[k]);
    }
    for (int k = 0; k < spec.n_in; k++) kolo_free(call.in[k]);
    return worst;
}

/* Walks a plan step by step: what each kernel gave is what its reference gives from the same
 * inputs. */
static void each_step_agrees_with_its_reference(void **state) {
    for (size_t i = 0; i < NETS; i++) {
        kolo_store *store;
        ASSERT_OK(kolo_store_create(NULL, &store));
        kolo_plan_opts opts = {.train = true, .optimizer.momentum = 0.9};
        kolo_plan *plan = net_compile(nets[i].build, BATCH, &opts, store);
        ASSERT_OK(kolo_store_init(store, 42));
        net_fill(plan, 0);
        for (int s = 0; s < plan->n_steps; s++) {
            const kolo_step *step = &plan->steps[s];
            const kolo_call *call = &step->all.calls[store->current];
            void *inputs[KOLO_MAX_IO]; /* copies: an output may overwrite an input */
            for (int k = 0; k < step->all.spec.n_in; k++) {
                size_t bytes = kolo_tensor_bytes(&step->all.spec.in[k]);
                inputs[k] = kolo_alloc(bytes);
                memcpy(inputs[k], call->in[k], bytes);
            }
            step->kernel->run(call);
            double distance = distance_to_reference(plan, step, inputs);
            for (int k = 0; k < step->all.spec.n_in; k++) kolo_free(inputs[k]);
            if (distance < 1e-5) continue;
            kolo_text text = {0};
            kolo_node_print(plan->graph, plan->graph->nodes[step->node], &text);
            fail_msg("%s step %d, %s, is off by %g: %s", nets[i].name, s, step->kernel->name,
                     distance, text.text);
        }
        kolo_plan_destroy(plan);
        kolo_store_destroy(store);
    }
}

static void best_kernels_train_as_the_reference_does(void **state) {
    for (size_t i = 0; i < NETS; i++) {
        kolo_plan_opts opts = {
            .train = true, .optimizer.momentum = 0.9, .optimizer.weight_decay = 1e-3};
        opts.kernels = KOLO_KERNELS_REF;
        outcome ref = run(nets[i].build, &opts);
        assert_true(ref.losses[STEPS - 2] < ref.losses[0]); /* the same batch as in step 0 */
        opts.kernels = KOLO_KERNELS_BEST;
        for (int threads = 1; threads <= 2; threads++) {
            opts.threads = threads;
            outcome best = run(nets[i].build, &opts);
            assert_int_equal(best.count, ref.count);
            double distance = test_relative_l2_f32(best.store, ref.store, ref.count);
            if (!(distance < 1e-5)) fail_msg("%s: parameters differ by %g", nets[i].name, distance);
            for (int s = 0; s < STEPS; s++) {
                assert_true(fabs(best.losses[s] - ref.losses[s]) < 1e-5 * fabs(ref.losses[s]));
                assert_true(best.correct[s] == ref.correct[s]);
            }
            kolo_free(best.store);
        }
        kolo_free(ref.store);
    }
}

static int count_nodes(const kolo_plan *plan, const kolo_op *op) {
    int count = 0;
    for (int32_t i = 0; i < plan->graph->n_nodes; i++) count += plan->graph->nodes[i]->op == op;
    return count;
}

static void a_clip_in_a_normalization_changes_no_bit(void **state) {
    static const net both[] = {net_rows, net_rows_apart};
    const kolo_plan_opts opts = {.train = true, .optimizer.momentum = 0.9};
    outcome o[2];
    for (int i = 0; i < 2; i++) {
        kolo_store *store;
        ASSERT_OK(kolo_store_create(NULL, &store));
        kolo_plan *plan = net_compile(both[i], BATCH, &opts, store);
        assert_int_equal(count_nodes(plan, &kolo_op_hardtanh), i);
        assert_int_equal(count_nodes(plan, &kolo_op_hardtanh_bwd), i);
        kolo_plan_destroy(plan);
        kolo_store_destroy(store);
        o[i] = run(both[i], &opts);
    }
    assert_int_equal(o[0].count, o[1].count);
    assert_memory_equal(o[0].losses, o[1].losses, sizeof o[0].losses);
    assert_memory_equal(o[0].store, o[1].store, o[0].count * sizeof *o[0].store);
    for (int i = 0; i < 2; i++) kolo_free(o[i].store);
}

/* What is made again has the bits of what was not kept; one bank does as well as two. */
static void memory_is_saved_without_changing_a_bit(void **state) {
    for (size_t i = 0; i < NETS * 2; i++) {
        kolo_plan_opts opts = {
            .train = true, .optimizer.momentum = 0.9, .optimizer.weight_decay = 1e-3};
        opts.kernels = i % 2 ? KOLO_KERNELS_REF : KOLO_KERNELS_BEST;
        outcome kept = run(nets[i / 2].build, &opts);
        opts.recompute = KOLO_RECOMPUTE_CHEAP;
        for (; opts.recompute < KOLO_RECOMPUTE_COUNT; opts.recompute++) {
            outcome again = run_in(nets[i / 2].build, &opts, true);
            assert_int_equal(again.count, kept.count);
            assert_memory_equal(again.losses, kept.losses, sizeof kept.losses);
            assert_memory_equal(again.store, kept.store, kept.count * sizeof *kept.store);
            kolo_free(again.store);
        }
        kolo_free(kept.store);
    }
}

/* Bytes of the arena of a residual net of 20 layers. */
static double arena_of(kolo_recompute recompute) {
    kolo_graph *g;
    const kolo_model *model;
    kolo_memory_map map;
    kolo_pipeline_opts opts = {
        .train = true, .recompute = recompute, .kernels = KOLO_KERNELS_REF, .bucket_bytes = 1};
    kolo_model_opts how = {.batch = 4, .sample = {3, {3, 32, 32}}, .classes = 10};
    ASSERT_OK(kolo_graph_create(NULL, &g));
    ASSERT_OK(kolo_model_find("resnet20", &model));
    ASSERT_OK(model->build(g, &how));
    ASSERT_OK(kolo_pipeline_run(g, &opts));
    ASSERT_OK(kolo_pass_memory(g, &map));
    double bytes = (double)map.arena_bytes;
    kolo_memory_map_fini(&map);
    kolo_graph_destroy(g);
    return bytes;
}

static void recomputation_saves_memory(void **state) {
    double none = arena_of(KOLO_RECOMPUTE_NONE);
    assert_true(arena_of(KOLO_RECOMPUTE_CHEAP) < 0.75 * none);
    assert_true(arena_of(KOLO_RECOMPUTE_FULL) < 0.5 * none);
}

static void same_seed_gives_the_same_bits(void **state) {
    kolo_plan_opts opts = {.train = true, .optimizer.momentum = 0.9, .bucket_bytes = 64};
    outcome a = run(net_residual, &opts), b = run(net_residual, &opts);
    assert_memory_equal(a.store, b.store, a.count * sizeof *a.store);
    kolo_free(a.store);
    kolo_free(b.store);
}

/* Plans of other batch sizes and for evaluation work on the same store, in the layouts of the
 * first. */
static void plans_share_a_store(void **state) {
    kolo_store *store;
    ASSERT_OK(kolo_store_create(NULL, &store));
    kolo_plan_opts train = {.train = true, .optimizer.momentum = 0.9}, eval = {0};
    kolo_plan *big = net_compile(net_residual, BATCH, &train, store);
    ASSERT_OK(kolo_store_init(store, 1));
    kolo_plan *test = net_compile(net_residual, BATCH, &eval, store);
    kolo_plan *tail = net_compile(net_residual, 2, &train, store);
    net_fill(test, 0);
    ASSERT_OK(kolo_plan_run(test));
    double before = kolo_plan_scalar(test, "loss");
    net_fill(big, 0);
    ASSERT_OK(kolo_plan_run(big));
    assert_true(fabs(kolo_plan_scalar(big, "loss") - before) < 1e-5 * before);
    net_fill(tail, 1);
    ASSERT_OK(kolo_plan_run(tail));
    net_fill(big, 0);
    ASSERT_OK(kolo_plan_run(big));
    net_fill(test, 0);
    ASSERT_OK(kolo_plan_run(test));
    assert_true(kolo_plan_scalar(test, "loss") < before);
    kolo_plan_destroy(test);
    kolo_plan_destroy(tail);
    kolo_plan_destroy(big);
    kolo_store_destroy(store);
}

/* Running statistics are those of PyTorch: (1 - momentum) old + momentum new, the variance
 * unbiased.
 */
static void running_statistics_follow_the_batch(void **state) {
    kolo_store *store;
    ASSERT_OK(kolo_store_create(NULL, &store));
    kolo_graph *g;
    ASSERT_OK(kolo_graph_create(NULL, &g));
    kolo_value x = net_images(g, BATCH, 3, 4), y = net_labels(g, BATCH);
    x = kolo_batch_norm(g, x, "bn", &(kolo_batch_norm_opts){.momentum = 0.25});
    net_head(g, kolo_flatten(g, x), y);
    kolo_plan *plan;
    ASSERT_OK(kolo_plan_compile(g, &(kolo_plan_opts){.train = true}, store, NULL, &plan));
    ASSERT_OK(kolo_store_init(store, 1));
    const kolo_store_entry *mean_of = kolo_store_find(store, "bn.running_mean");
    const kolo_store_entry *var_of = kolo_store_find(store, "bn.running_var");
    float mean[3], var[3];
    kolo_store_read(store, mean_of, mean);
    kolo_store_read(store, var_of, var);
    for (int c = 0; c < 3; c++) assert_true(mean[c] == 0 && var[c] == 1);
    net_fill(plan, 0);
    kolo_tensor t;
    const float *data = kolo_plan_input(plan, "x", &t);
    double sum[3] = {0}, squares[3] = {0}, count = BATCH * 16;
    for (int64_t i = 0; i < BATCH * 48; i++) {
        int64_t index[4] = {i / 48, i / 16 % 3, i / 4 % 4, i % 4};
        double v = (double)data[kolo_layout_offset(&t.layout, &t.shape, index)];
        sum[index[1]] += v;
        squares[index[1]] += v * v;
    }
    ASSERT_OK(kolo_plan_run(plan));
    kolo_store_read(store, mean_of, mean);
    kolo_store_read(store, var_of, var);
    for (int c = 0; c < 3; c++) {
        double unbiased = (squares[c] - sum[c] * sum[c] / count) / (count - 1);
        assert_true(fabs((double)mean[c] - 0.25 * sum[c] / count) < 1e-6);
        assert_true(fabs((double)var[c] - (0.75 + 0.25 * unbiased)) < 1e-6);
    }
    kolo_plan_destroy(plan);
    kolo_store_destroy(store);
}

TEST_MAIN(test_plan) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_step_agrees_with_its_reference),
        cmocka_unit_test(best_kernels_train_as_the_reference_does),
        cmocka_unit_test(a_clip_in_a_normalization_changes_no_bit),
        cmocka_unit_test(memory_is_saved_without_changing_a_bit),
        cmocka_unit_test(recomputation_saves_memory),
        cmocka_unit_test(same_seed_gives_the_same_bits),
        cmocka_unit_test(plans_share_a_store),
        cmocka_unit_test(running_statistics_follow_the_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

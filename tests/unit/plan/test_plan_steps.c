/* The steps of plans: the banks that they read and write, places in memory, the order of buckets,
 * reorders, folds; and what is left when memory is lacking. */
#include "base/rng.h"
#include "graph/ops/ops.h"
#include "plan/internal.h"
#include "plan/sums.h"
#include "support/plan_nets.h"

#include <string.h>

enum { BATCH = 5 };

/* Reads are of one bank, writes to the other, and only a whole step turns them. */
static void a_step_writes_the_other_bank(void **state) {
    kolo_store *store;
    ASSERT_OK(kolo_store_create(NULL, &store));
    kolo_plan_opts opts = {.train = true, .optimizer.momentum = 0.9};
    kolo_plan *plan = net_compile(net_lenet, BATCH, &opts, store);
    ASSERT_OK(kolo_store_init(store, 1));
    char *before = kolo_alloc(store->bytes);
    memcpy(before, store->bank[0], store->bytes);
    net_fill(plan, 0);
    ASSERT_OK(kolo_plan_run(plan));
    assert_int_equal(store->current, 1);
    assert_memory_equal(before, store->bank[0], store->bytes);
    assert_memory_not_equal(before, store->bank[1], store->bytes);
    kolo_free(before);
    kolo_plan_destroy(plan);
    kolo_store_destroy(store);
}

typedef struct reported {
    const kolo_plan *plan;
    int steps, at; /* steps that ran: so far, and when the outputs were reported */
    double loss;
} reported;

static void count_step(void *arg, int step, kolo_step_kind kind, int bucket, int64_t begin_ns,
                       int64_t end_ns) {
    ((reported *)arg)->steps++;
}

static kolo_status keep_loss(void *arg) {
    reported *r = arg;
    r->at = r->steps;
    r->loss = kolo_plan_scalar(r->plan, "loss");
    return KOLO_OK;
}

static kolo_status fail_to_report(void *arg) { return KOLO_FAIL(KOLO_ERR_PEER, "no report"); }

/* A sum of outputs over the ranks has the whole backward pass for it. */
static void outputs_are_reported_before_the_backward_pass(void **state) {
    for (size_t i = 0; i < NETS; i++) {
        kolo_store *store;
        reported r = {.at = -1};
        ASSERT_OK(kolo_store_create(NULL, &store));
        kolo_plan_opts opts = {.train = true, .optimizer.momentum = 0.9};
        kolo_plan *plan = net_compile(nets[i].build, BATCH, &opts, store);
        ASSERT_OK(kolo_store_init(store, 1));
        net_fill(plan, 0);
        r.plan = plan;
        kolo_plan_observe(plan, count_step, &r);
        ASSERT_OK(kolo_plan_run_reporting(plan, keep_loss, &r));
        assert_int_equal(r.steps, plan->n_steps);
        assert_true(r.at > 0 && r.at < plan->n_steps / 2);
        assert_true(r.loss > 0);
        assert_true(r.loss == kolo_plan_scalar(plan, "loss"));
        const int bank = store->current;
        assert_int_equal(kolo_plan_run_reporting(plan, fail_to_report, NULL), KOLO_ERR_PEER);
        assert_int_equal(store->current, bank); /* no step */
        kolo_plan_destroy(plan);
        kolo_store_destroy(store);
    }
}

/* Every value is written, and still holds what was written when its last reader runs: checked
 * against lifetimes found anew, value by value, without groups. */
static void values_that_live_together_do_not_overlap(void **state) {
    for (size_t i = 0; i < NETS; i++) {
        kolo_store *store;
        ASSERT_OK(kolo_store_create(NULL, &store));
        kolo_plan_opts opts = {.train = true, .optimizer.momentum = 0.9, .bucket_bytes = 256};
        kolo_plan *plan = net_compile(nets[i].build, BATCH, &opts, store);
        const kolo_graph *g = plan->graph;
        int32_t *last = kolo_zalloc(sizeof(int32_t) * (size_t)g->n_values);
        int32_t *origin = kolo_alloc(sizeof(int32_t) * (size_t)g->n_values);
        for (int32_t v = 0; v < g->n_values; v++) origin[v] = v;
        for (int32_t k = 0; k < g->n_nodes; k++) { /* a view is its origin */
            const kolo_node *n = g->nodes[k];
            for (int o = 0; n->op->view && o < n->n_out; o++) {
                origin[n->out[o].id] = origin[n->in[o].id];
            }
            for (int o = 0; o < n->n_in; o++) last[origin[n->in[o].id]] = k;
        }
        for (int32_t o = 0; o < g->n_outputs; o++) {
            last[origin[g->outputs[o].value.id]] = g->n_nodes;
        }
        int checked = 0;
        for (int32_t a = 0; a < g->n_values; a++) {
            for (int32_t b = 0; b < g->n_values; b++) {
                const kolo_location *pa = &plan->map.locations[a], *pb = &plan->map.locations[b];
                int32_t made = g->values[b].producer;
                bool a_exists = g->values[a].producer >= 0 || g->values[a].kind == KOLO_VALUE_INPUT;
                if (a == b || origin[a] != a || origin[b] != b || made < 0 || !a_exists ||
                    pa->region != pb->region || pa->region > KOLO_REGION_BUCKET ||
                    g->values[a].producer > made || last[a] <= made) {
                    continue; /* b is not written while a still waits for a reader */
                }
                size_t a_end = pa->offset + kolo_tensor_bytes(&g->values[a].tensor);
                size_t b_end = pb->offset + kolo_tensor_bytes(&g->values[b].tensor);
                assert_true(a_end <= pb->offset || b_end <= pa->offset);
                checked++;
            }
        }
        assert_true(checked > 10);
        kolo_free(last);
        kolo_free(origin);
        kolo_plan_destroy(plan);
        kolo_store_destroy(store);
    }
}

/* POST stands after the last maker and reader, WAIT before the first update, in bucket order. */
static void buckets_are_posted_during_backward(void **state) {
    kolo_graph *g;
    ASSERT_OK(kolo_graph_create(NULL, &g));
    net_residual(g, BATCH);
    kolo_pipeline_opts opts = {.train = true, .bucket_bytes = 64, .threads = 1};
    ASSERT_OK(kolo_pipeline_run(g, &opts));
    int posts = 0, waits = 0, kernels_after_first_post = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        if (n->op == &kolo_op_post) {
            assert_int_equal(waits, 0);
            posts++;
        } else if (n->op == &kolo_op_wait) {
            assert_int_equal(n->attr[KOLO_COMM_BUCKET].i, waits++);
        } else if (n->op == &kolo_op_sgd) {
            int32_t wait = kolo_info(g, n->in[1])->producer;
            assert_ptr_equal(g->nodes[wait]->op, &kolo_op_wait);
            assert_true(wait < i);
        } else if (posts && !waits) {
            kernels_after_first_post++;
        }
        for (int k = 0; k < n->n_in; k++) { /* nobody reads a gradient in flight but its WAIT */
            int32_t maker = kolo_info(g, n->in[k])->producer;
            bool in_flight = maker >= 0 && g->nodes[maker]->op == &kolo_op_post;
            assert_true(!in_flight || n->op == &kolo_op_wait);
        }
    }
    assert_true(posts > 3 && waits == posts && kernels_after_first_post > 5);
    kolo_graph_destroy(g);
}

/* Each value is reordered into a layout once at most, and never into the one that it has. */
static void no_reorder_is_made_twice(void **state) {
    for (size_t n = 0; n < NETS; n++) {
        kolo_store *store;
        ASSERT_OK(kolo_store_create(NULL, &store));
        kolo_plan *plan =
            net_compile(nets[n].build, BATCH, &(kolo_plan_opts){.train = true}, store);
        for (int i = 0; i < plan->n_steps; i++) {
            const kolo_step *a = &plan->steps[i];
            if (a->kind != KOLO_STEP_KERNEL || a->all.spec.op != &kolo_op_reorder) continue;
            const kolo_layout *from = &a->all.spec.in[0].layout, *to = &a->all.spec.out[0].layout;
            assert_false(kolo_layout_equal(from, to));
            for (int k = 0; k < i; k++) {
                const kolo_step *b = &plan->steps[k];
                if (b->kind != KOLO_STEP_KERNEL || b->all.spec.op != &kolo_op_reorder) continue;
                const kolo_graph *g = plan->graph;
                bool same = g->nodes[a->node]->in[0].id == g->nodes[b->node]->in[0].id;
                assert_false(same && kolo_layout_equal(to, &b->all.spec.out[0].layout));
            }
        }
        kolo_plan_destroy(plan);
        kolo_store_destroy(store);
    }
}

static void folding_leaves_few_nodes(void **state) {
    kolo_graph *g;
    ASSERT_OK(kolo_graph_create(NULL, &g));
    net_lenet(g, BATCH);
    ASSERT_OK(kolo_pass_fold(g, true));
    ASSERT_OK(kolo_graph_verify(g));
    kolo_text text = {0};
    kolo_graph_print(g, &text);
    assert_int_equal(g->n_nodes, 6); /* 2 x (conv, pool), linear, loss with the count */
    assert_null(strstr(text.text, "= relu("));
    assert_null(strstr(text.text, "= bias("));
    assert_null(strstr(text.text, "= flatten("));
    kolo_text_fini(&text);
    kolo_graph_destroy(g);
}

/* Each allocation of compiling fails in turn: an error each time, nothing leaked (under ASan). */
static void compiling_survives_lack_of_memory(void **state) {
    kolo_plan_opts opts = {.train = true, .optimizer.momentum = 0.9, .kernels = KOLO_KERNELS_REF};
    for (long nth = 1;; nth++) {
        kolo_graph *g;
        kolo_plan *plan = NULL;
        kolo_store *store;
        ASSERT_OK(kolo_store_create(NULL, &store));
        ASSERT_OK(kolo_graph_create(NULL, &g));
        net_lenet(g, 2);
        kolo_alloc_fail_nth(nth);
        kolo_status status = kolo_plan_compile(g, &opts, store, NULL, &plan);
        kolo_alloc_fail_nth(0);
        if (status != KOLO_OK) assert_int_equal(status, KOLO_ERR_NOMEM);
        kolo_plan_destroy(plan);
        kolo_store_destroy(store);
        if (status == KOLO_OK) {
            assert_true(nth > 20);
            break;
        }
    }
}

/* A larger plan of the store cannot be made, whichever allocation fails: the smaller one still
 * runs, in the memory that it had. */
static void a_plan_outlives_one_that_cannot_be_made(void **state) {
    kolo_plan_opts opts = {.train = true, .kernels = KOLO_KERNELS_REF};
    kolo_store *store;
    ASSERT_OK(kolo_store_create(NULL, &store));
    kolo_plan *small = net_compile(net_lenet, 2, &opts, store);
    kolo_status status = KOLO_ERR_NOMEM;
    for (long nth = 1; status != KOLO_OK; nth++) {
        kolo_graph *g;
        kolo_plan *large = NULL;
        ASSERT_OK(kolo_graph_create(NULL, &g));
        net_lenet(g, 200);
        kolo_alloc_fail_nth(nth);
        status = kolo_plan_compile(g, &opts, store, NULL, &large);
        kolo_alloc_fail_nth(0);
        ASSERT_OK(kolo_plan_run(small));
        kolo_plan_destroy(large);
    }
    kolo_plan_destroy(small);
    kolo_store_destroy(store);
}

/* The summands at the POSTs of a run. */
typedef struct posted {
    const kolo_plan *plan;
    kolo_plan_sum *sums;
    uint64_t hash[32]; /* by sum */
    int n, posts;
} posted;

static uint64_t hash_of(const posted *p, int sum) {
    return kolo_hash_bytes(kolo_plan_data(p->plan, p->sums[sum].posted),
                           (size_t)p->sums[sum].posts * sizeof(float));
}

static kolo_status take_summands(void *arg, const kolo_plan *plan, int32_t node) {
    posted *p = arg;
    p->posts++;
    for (int i = 0; i < p->n; i++) {
        if (p->sums[i].post == node) p->hash[i] = hash_of(p, i);
    }
    return KOLO_OK;
}

/* A caller that makes the sums can begin at a POST: its summands do not change afterwards. */
static void summands_are_complete_at_their_post(void **state) {
    static const net some[] = {net_lenet, net_norm, net_mlp};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        const kolo_plan_opts opts = {
            .train = true, .posts = true, .mesh = {1, {{"dp", 2}}}, .bucket_bytes = 64};
        posted p = {0};
        kolo_store *store;
        ASSERT_OK(kolo_store_create(NULL, &store));
        kolo_store_set_alone(store);
        kolo_plan *plan = net_compile(some[i], BATCH, &opts, store);
        ASSERT_OK(kolo_store_init(store, 1));
        p.plan = plan;
        ASSERT_OK(kolo_plan_find_sums(plan, &p.sums, &p.n));
        assert_true(p.n <= (int)(sizeof p.hash / sizeof *p.hash));
        net_fill(plan, 0);
        ASSERT_OK(kolo_plan_gradients(plan, take_summands, &p));
        assert_true(p.posts >= 2);
        for (int k = 0; k < p.n; k++) assert_true(p.hash[k] == hash_of(&p, k));
        kolo_free(p.sums);
        kolo_plan_destroy(plan);
        kolo_store_destroy(store);
    }
}

TEST_MAIN(test_plan_steps) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_reorder_is_made_twice),
        cmocka_unit_test(folding_leaves_few_nodes),
        cmocka_unit_test(buckets_are_posted_during_backward),
        cmocka_unit_test(outputs_are_reported_before_the_backward_pass),
        cmocka_unit_test(values_that_live_together_do_not_overlap),
        cmocka_unit_test(summands_are_complete_at_their_post),
        cmocka_unit_test(a_step_writes_the_other_bank),
        cmocka_unit_test(compiling_survives_lack_of_memory),
        cmocka_unit_test(a_plan_outlives_one_that_cannot_be_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

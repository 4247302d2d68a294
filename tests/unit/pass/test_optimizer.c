/* LARS, LAMB and a delayed momentum against the equations of their papers, in f64 with the
 * reference kernels and in f32 with the best; which parameters are excluded from scaling and weight
 * decay. */
#include "graph/ops/ops.h"
#include "pass/pass.h"
#include "support/graph_eval.h"
#include "support/support.h"

#include <math.h>
#include <string.h>

enum { STEPS = 7, N_PARAMS = 4, MOST = 70 * 80 };

/* More than one block of squares; a vector; a matrix of zeros, which has no norm; a matrix that a
 * pattern excludes. */
static const struct {
    const char *name;
    kolo_shape shape;
    double scale;
} params[N_PARAMS] = {{"wide.weight", {2, {70, 80}}, 0.5},
                      {"wide.bias", {1, {80}}, 0.5},
                      {"zero.weight", {2, {3, 2}}, 0},
                      {"plain.weight", {2, {6, 7}}, 2}};

typedef struct model {
    kolo_graph *g;
    kolo_value w[N_PARAMS], gradient[N_PARAMS];
    graph_eval e;
} model;

/* The loss is the sum of the products of each parameter and an input, its gradient. */
static void open_model(model *m, kolo_dtype dtype, const kolo_optimizer_opts *opts) {
    kolo_value loss = KOLO_NONE;
    ASSERT_OK(kolo_graph_create(&(kolo_graph_opts){dtype}, &m->g));
    for (int p = 0; p < N_PARAMS; p++) {
        char name[8] = {'g', (char)('0' + p)};
        m->w[p] = kolo_param(m->g, params[p].name, params[p].shape, kolo_init_fan_in(1));
        m->gradient[p] = kolo_input(m->g, name, dtype, params[p].shape);
        kolo_value part = kolo_sum(m->g, kolo_mul(m->g, m->w[p], m->gradient[p]));
        loss = p ? kolo_add(m->g, loss, part) : part;
    }
    kolo_output(m->g, "loss", loss);
    ASSERT_OK(kolo_pass_gradient(m->g, loss, kolo_scalar(m->g, "grad_scale")));
    ASSERT_OK(kolo_pass_optimizer(m->g, opts));
    bool wide = dtype == KOLO_DTYPE_F64;
    ASSERT_OK(graph_eval_init(&m->e, m->g, wide ? KOLO_KERNELS_REF : KOLO_KERNELS_BEST));
}

static double get(const model *m, kolo_value v, int64_t i) {
    bool wide = m->g->dtype == KOLO_DTYPE_F64;
    return wide ? graph_eval_f64(&m->e, v)[i] : (double)graph_eval_f32(&m->e, v)[i];
}

static void set(const model *m, const char *name, double number) {
    kolo_value v = kolo_graph_find(m->g, name);
    if (!kolo_value_ok(v)) return;
    if (m->g->dtype == KOLO_DTYPE_F64) {
        *graph_eval_f64(&m->e, v) = number;
    } else {
        *graph_eval_f32(&m->e, v) = (float)number;
    }
}

/* The next versions become the current ones. */
static void commit(const model *m) {
    for (int32_t v = 0; v < m->g->n_values; v++) {
        kolo_value old = m->g->values[v].next_of;
        if (!kolo_value_ok(old)) continue;
        memcpy(m->e.data[old.id], m->e.data[v], kolo_tensor_bytes(&m->g->values[v].tensor));
    }
}

/* ---- the papers ---- */

typedef struct expected {
    double w[MOST], a[MOST], b[MOST], u[MOST]; /* a, b: velocity, or the moments */
} expected;

static double norm(const double *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

static void lars(expected *x, const double *g, int64_t n, double lr, const kolo_optimizer_opts *o,
                 double decay, bool scaled) {
    double w = norm(x->w, n), d = norm(g, n), local = 1;
    if (scaled && w > 0 && d > 0) local = o->trust * w / (d + decay * w);
    for (int64_t i = 0; i < n; i++) {
        x->a[i] = o->momentum * x->a[i] + lr * local * (g[i] + decay * x->w[i]);
        x->w[i] -= x->a[i];
    }
}

static void lamb(expected *x, const double *g, int64_t n, int t, double lr,
                 const kolo_optimizer_opts *o, double decay, bool scaled) {
    for (int64_t i = 0; i < n; i++) {
        x->a[i] = o->beta1 * x->a[i] + (1 - o->beta1) * g[i];
        x->b[i] = o->beta2 * x->b[i] + (1 - o->beta2) * g[i] * g[i];
        double mean = x->a[i] / (1 - pow(o->beta1, t)), square = x->b[i] / (1 - pow(o->beta2, t));
        x->u[i] = mean / (sqrt(square) + o->eps) + decay * x->w[i];
    }
    double w = norm(x->w, n), u = norm(x->u, n);
    double rate = scaled && w > 0 && u > 0 ? w / u : 1;
    for (int64_t i = 0; i < n; i++) x->w[i] -= lr * rate * x->u[i];
}

/* Liu et al., algorithm 3. `a` is the momentum, `b` the buffer. */
static void delayed(expected *x, const double *g, int64_t n, int t, double lr,
                    const kolo_optimizer_opts *o, double decay) {
    const double period = (double)o->delay;
    for (int64_t i = 0; i < n; i++) {
        const double d = g[i] + decay * x->w[i];
        double activation = o->ahead;
        x->b[i] += d;
        if (t % o->delay == 0) {
            x->a[i] = o->momentum * x->a[i] + x->b[i] / period;
            x->b[i] = 0;
            activation = 1 - o->ahead * period + o->ahead;
        }
        x->w[i] -= lr * (activation * o->momentum * x->a[i] + d / period);
    }
}

/* ---- the comparison ---- */

static void clip(double (*g)[MOST], double most) {
    double sum = 0;
    for (int p = 0; p < N_PARAMS; p++) {
        double part = norm(g[p], kolo_shape_count(&params[p].shape));
        sum += part * part;
    }
    double factor = most > 0 ? fmin(1, most / (sqrt(sum) + 1e-6)) : 1;
    for (int p = 0; p < N_PARAMS; p++) {
        for (int64_t i = 0; i < kolo_shape_count(&params[p].shape); i++) g[p][i] *= factor;
    }
}

static void compare(kolo_dtype dtype, const kolo_optimizer_opts *opts, double tolerance) {
    static expected x[N_PARAMS];
    static double g[N_PARAMS][MOST];
    kolo_optimizer_opts o;
    model m;
    memset(x, 0, sizeof x);
    ASSERT_OK(kolo_optimizer_resolve(opts, &o));
    open_model(&m, dtype, opts);
    for (int p = 0; p < N_PARAMS; p++) {
        graph_eval_fill(&m.e, m.w[p], 1 + (uint64_t)p, params[p].scale);
        for (int64_t i = 0; i < kolo_shape_count(&params[p].shape); i++) {
            x[p].w[i] = get(&m, m.w[p], i);
        }
    }
    set(&m, "grad_scale", 1);
    for (int t = 1; t <= STEPS; t++) {
        double lr = 0.1 / t; /* LARS: part of the velocity */
        set(&m, "lr", lr);
        set(&m, "update", t);
        for (int p = 0; p < N_PARAMS; p++) {
            graph_eval_fill(&m.e, m.gradient[p], (uint64_t)(10 * t + p), 1);
            for (int64_t i = 0; i < kolo_shape_count(&params[p].shape); i++) {
                g[p][i] = get(&m, m.gradient[p], i);
            }
        }
        graph_eval_run(&m.e, m.g->n_nodes);
        commit(&m);
        clip(g, o.clip);
        for (int p = 0; p < N_PARAMS; p++) {
            int64_t n = kolo_shape_count(&params[p].shape);
            bool vector = params[p].shape.rank < 2, plain = p == 3;
            double decay = vector && o.decay_matrices_only ? 0 : o.weight_decay;
            bool scaled = !(vector && o.scale_matrices_only) && !(plain && o.no_scale);
            if (plain && o.no_decay) decay = 0;
            if (o.kind == KOLO_OPTIMIZER_LARS) {
                lars(&x[p], g[p], n, lr, &o, decay, scaled);
            } else if (o.delay > 0) {
                delayed(&x[p], g[p], n, t, lr, &o, decay);
            } else {
                lamb(&x[p], g[p], n, t, lr, &o, decay, scaled);
            }
            for (int64_t i = 0; i < n; i++) {
                double got = get(&m, m.w[p], i);
                if (fabs(got - x[p].w[i]) <= tolerance * fmax(1, fabs(got))) continue;
                fail_msg("step %d, %s[%d] is %.17g, not %.17g", t, params[p].name, (int)i, got,
                         x[p].w[i]);
            }
        }
    }
    graph_eval_fini(&m.e);
    kolo_graph_destroy(m.g);
}

static void updates_are_those_of_the_papers(void **state) {
    static const kolo_optimizer kinds[] = {KOLO_OPTIMIZER_LARS, KOLO_OPTIMIZER_LAMB};
    for (int k = 0; k < 8; k++) {
        const bool is_lars = k % 2 == 0;
        kolo_optimizer_opts o = {.kind = kinds[k % 2], .weight_decay = 0.05};
        if (is_lars) o.momentum = 0.9;
        if (is_lars) o.trust = 0.02;
        o.decay_matrices_only = o.scale_matrices_only = k & 2;
        if (k & 2) o.no_decay = o.no_scale = "plain.*";
        if (k & 4) o.clip = 3;
        compare(KOLO_DTYPE_F64, &o, 1e-12);
        compare(KOLO_DTYPE_F32, &o, 2e-6);
    }
}

static void a_delayed_momentum_is_that_of_the_paper(void **state) {
    static const struct {
        int64_t delay;
        double ahead;
    } cases[] = {{1, 0}, {2, 0}, {3, 0.2}, {4, 0.25}};
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        const kolo_optimizer_opts o = {.kind = KOLO_OPTIMIZER_NESTEROV,
                                       .momentum = 0.9,
                                       .weight_decay = 0.05,
                                       .delay = cases[i].delay,
                                       .ahead = cases[i].ahead};
        compare(KOLO_DTYPE_F64, &o, 1e-12);
        compare(KOLO_DTYPE_F32, &o, 2e-6);
    }
}

/* Updates by n gradients at a point make one of Nesterov's by their mean, and a delay of 1 is
 * Nesterov's momentum. The loss is linear, so its gradient is the same anywhere. */
static void a_period_is_an_update_by_the_mean(void **state) {
    enum { PERIODS = 3 };
    for (int n = 1; n <= 4; n++) {
        const kolo_optimizer_opts each = {
            .kind = KOLO_OPTIMIZER_NESTEROV, .momentum = 0.9, .delay = n};
        const kolo_optimizer_opts mean = {.kind = KOLO_OPTIMIZER_NESTEROV, .momentum = 0.9};
        model m[2];
        open_model(&m[0], KOLO_DTYPE_F64, &each);
        open_model(&m[1], KOLO_DTYPE_F64, &mean);
        for (int k = 0; k < 2; k++) {
            for (int p = 0; p < N_PARAMS; p++) graph_eval_fill(&m[k].e, m[k].w[p], 7, 1);
            set(&m[k], "grad_scale", 1);
            set(&m[k], "lr", 0.1);
        }
        for (int t = 1; t <= n * PERIODS; t++) {
            for (int p = 0; p < N_PARAMS; p++) {
                graph_eval_fill(&m[0].e, m[0].gradient[p], (uint64_t)t, 1);
                double *sum = graph_eval_f64(&m[1].e, m[1].gradient[p]);
                for (int64_t i = 0; i < kolo_shape_count(&params[p].shape); i++) {
                    sum[i] = (t % n == 1 % n ? 0 : sum[i]) + get(&m[0], m[0].gradient[p], i) / n;
                }
            }
            set(&m[0], "update", kolo_optimizer_number(&each, (uint64_t)t));
            graph_eval_run(&m[0].e, m[0].g->n_nodes);
            commit(&m[0]);
            if (t % n != 0) continue;
            graph_eval_run(&m[1].e, m[1].g->n_nodes);
            commit(&m[1]);
            for (int p = 0; p < N_PARAMS; p++) {
                for (int64_t i = 0; i < kolo_shape_count(&params[p].shape); i++) {
                    const double by = get(&m[0], m[0].w[p], i) - get(&m[1], m[1].w[p], i);
                    if (n == 1 ? by != 0 : fabs(by) > 1e-12) fail_msg("n %d: off by %g", n, by);
                }
            }
        }
        for (int k = 0; k < 2; k++) {
            graph_eval_fini(&m[k].e);
            kolo_graph_destroy(m[k].g);
        }
    }
}

/* ---- patterns ---- */

static void patterns_select_names(void **state) {
    static const struct {
        const char *list, *name;
        bool matches;
    } cases[] = {
        {"bn1.weight", "bn1.weight", true},
        {"bn1.weight", "bn1.weights", false},
        {"bn?.weight", "bn1.weight", true},
        {"bn?.weight", "bn12.weight", false},
        {"*.bias", "layer1.0.bias", true},
        {"*.bias", "bias", false},
        {"*", "", true},
        {"", "x", false},
        {"a,*b*d", "abcbcd", true},
        {"a,*b*d", "abcbc", false},
        {"layer*.?.w*t", "layer1.0.wt", true},
        {"*a*a*a", "aaxa", true},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        bool matches = kolo_name_matches(cases[i].list, cases[i].name);
        if (matches != cases[i].matches) fail_msg("%s, %s", cases[i].list, cases[i].name);
    }
    assert_false(kolo_name_matches(NULL, "x"));
}

static void a_pattern_without_a_parameter_is_refused(void **state) {
    for (int k = 0; k < 2; k++) {
        kolo_graph *g;
        ASSERT_OK(kolo_graph_create(NULL, &g));
        kolo_value w = kolo_param(g, "w", kolo_shape_2(2, 3), kolo_init_fan_in(1));
        kolo_value loss = kolo_sum(g, kolo_mul(g, w, w));
        ASSERT_OK(kolo_pass_gradient(g, loss, kolo_scalar(g, "grad_scale")));
        kolo_optimizer_opts o = {.kind = KOLO_OPTIMIZER_LAMB};
        *(k ? &o.no_scale : &o.no_decay) = "w,*.bias";
        assert_int_equal(kolo_pass_optimizer(g, &o), KOLO_ERR_ARG);
        assert_non_null(strstr(kolo_last_error(), k ? "--no-scale" : "--no-decay"));
        assert_non_null(strstr(kolo_last_error(), "\"*.bias\""));
        kolo_graph_destroy(g);
    }
}

static void options_of_other_optimizers_are_refused(void **state) {
    kolo_optimizer_opts out, lamb_with = {.kind = KOLO_OPTIMIZER_LAMB, .momentum = 0.9};
    kolo_optimizer_opts negative = {.kind = KOLO_OPTIMIZER_LARS, .trust = -1};
    assert_int_equal(kolo_optimizer_resolve(&lamb_with, &out), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), "lamb has no momentum of 0.9"));
    assert_int_equal(kolo_optimizer_resolve(&negative, &out), KOLO_ERR_ARG);
    const kolo_optimizer_opts classical = {.momentum = 0.9, .delay = 2};
    assert_int_equal(kolo_optimizer_resolve(&classical, &out), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), "give --optimizer nesterov"));
    const kolo_optimizer_opts ahead = {
        .kind = KOLO_OPTIMIZER_NESTEROV, .momentum = 0.9, .delay = 4, .ahead = 0.3};
    assert_int_equal(kolo_optimizer_resolve(&ahead, &out), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), "at most 1 / delay"));
    const kolo_optimizer_opts adam = {.kind = KOLO_OPTIMIZER_ADAM};
    ASSERT_OK(kolo_optimizer_resolve(&adam, &out));
    assert_true(out.eps == 1e-8);
    const kolo_optimizer_opts plain_lamb = {.kind = KOLO_OPTIMIZER_LAMB};
    ASSERT_OK(kolo_optimizer_resolve(&plain_lamb, &out));
    assert_true(out.eps == 1e-6);
}

TEST_MAIN(test_optimizer) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_are_those_of_the_papers),
        cmocka_unit_test(a_delayed_momentum_is_that_of_the_paper),
        cmocka_unit_test(a_period_is_an_update_by_the_mean),
        cmocka_unit_test(patterns_select_names),
        cmocka_unit_test(a_pattern_without_a_parameter_is_refused),
        cmocka_unit_test(options_of_other_optimizers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

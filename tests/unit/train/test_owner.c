/* An owner of parameters against a simulation in f64: reads and pushes of workers in random order,
 * with momentum, delayed or not, delay compensation, and learning rates by staleness. */
#include "base/compiler.h"
#include "base/memory.h"
#include "base/rng.h"
#include "comm/sync/parameters_parts.h"
#include "kolo/models.h"
#include "support/support.h"
#include "train/session/owner.h"

#include <math.h>
#include <string.h>

enum { WORKERS = 3, EVENTS = 40, PARTS = 4, SAMPLES = 4 };

static const double rate = 0.05;

typedef struct setting {
    const char *what;
    int index, owners;
    double momentum, compensation;
    bool scale;
    int labels;  /* of a weighted sum; 0: the gradient of a worker */
    bool adapts; /* the weighted gradient of a worker, with its share of the learning rate */
    int delay;   /* of Nesterov's momentum; 0: classical momentum */
    double ahead;
    bool rounds; /* an update by one of PARTS deltas, which is as large a part of one */
} setting;

/* The simulation: the part of an owner. */
typedef struct simulation {
    size_t n;
    double *w, *m, *sum, *read[WORKERS];
    int updates, updates_at[WORKERS];
} simulation;

static kolo_graph *build(void) {
    const kolo_model *model;
    kolo_graph *g;
    const kolo_model_opts opts = {
        .batch = 4, .sample = kolo_shape_3(1, 8, 8), .classes = 10, .options = NULL};
    ASSERT_OK(kolo_model_find("mlp", &model));
    ASSERT_OK(kolo_graph_create(NULL, &g));
    ASSERT_OK(kolo_model_add(model, g, &opts));
    ASSERT_OK(kolo_graph_check(g));
    return g;
}

static double *zeros(size_t n) {
    double *numbers = kolo_zalloc((n + 1) * sizeof *numbers);
    assert_non_null(numbers);
    return numbers;
}

static void simulate_push(simulation *s, const setting *c, int worker, const float *gradient) {
    const int stale = s->updates - s->updates_at[worker];
    const double lr = c->adapts               ? rate / WORKERS
                      : c->rounds             ? rate / PARTS
                      : c->scale && stale > 1 ? rate / stale
                                              : rate;
    const int of = c->rounds ? SAMPLES : c->labels > 0 ? c->labels : 1;
    for (size_t i = 0; i < s->n; i++) {
        double g = (double)gradient[i] / of;
        g += c->compensation * g * g * (s->w[i] - s->read[worker][i]);
        if (c->delay > 0) {
            /* The run has made 5 updates before. */
            const bool due = (s->updates + 6) % c->delay == 0;
            s->sum[i] += g;
            if (due) s->m[i] = c->momentum * s->m[i] + s->sum[i] / c->delay;
            if (due) s->sum[i] = 0;
            const double part = due ? 1 - (c->delay - 1) * c->ahead : c->ahead;
            s->w[i] -= lr * (g / c->delay + part * c->momentum * s->m[i]);
            continue;
        }
        s->m[i] = c->momentum * s->m[i] + g;
        s->w[i] -= lr * s->m[i];
    }
    s->updates++;
}

static void simulate_read(simulation *s, int worker) {
    memcpy(s->read[worker], s->w, s->n * sizeof *s->w);
    s->updates_at[worker] = s->updates;
}

/* The values of an owner begin with totals, a gradient with a head; metrics are before or after the
 * gradients of parameters. */
static void run(const setting *c) {
    const kolo_plan_opts plan = {
        .optimizer = {.kind = c->delay > 0 ? KOLO_OPTIMIZER_NESTEROV : KOLO_OPTIMIZER_SGD,
                      .momentum = c->momentum,
                      .delay = c->delay,
                      .ahead = c->ahead}};
    const kolo_owner_opts opts = {
        .index = c->index,
        .owners = c->owners,
        .weighted = c->labels > 0,
        .workers = WORKERS,
        .schedule = {.kind = KOLO_LR_CONSTANT, .lr = rate, .total = 1000, .step_every = 1},
        .compensation = c->compensation,
        .scale = c->scale,
        .adapts = c->adapts,
        .rounds = c->rounds,
    };
    kolo_owner *owner;
    kolo_division d;
    kolo_parameters_opts calls = {0};
    ASSERT_OK(kolo_owner_create(build(), &plan, &opts, &owner));
    ASSERT_OK(kolo_owner_divide(owner, &d));
    ASSERT_OK(kolo_owner_serve(owner, &d, &calls));
    const kolo_parameters_part part = kolo_division_part(&d, c->index);
    const size_t totals = kolo_division_totals(&d), n = part.values - totals;
    const bool before = kolo_division_kind(&d, 0) == KOLO_ROW_METRIC;
    const size_t metrics = before ? part.gradient - KOLO_SUMMED_HEAD - n : 0;
    simulation s = {.n = n, .w = zeros(n), .m = zeros(n), .sum = zeros(n)};
    float *values = kolo_zalloc((part.values + part.state) * sizeof *values);
    float *gradient = kolo_zalloc(part.gradient * sizeof *gradient);
    assert_true(values && gradient && n > 4096);
    const kolo_rng rng = kolo_rng_make(7, KOLO_RNG_INIT, 3);
    uint64_t drawn = 0, clocks[WORKERS] = {0};
    for (size_t i = 0; i < n; i++) {
        values[totals + i] = kolo_rng_normal(&rng, drawn++);
        s.w[i] = (double)values[totals + i];
    }
    for (int w = 0; w < WORKERS; w++) {
        s.read[w] = zeros(n);
        simulate_read(&s, w);
    }
    double made = 5; /* before */
    memcpy(values + totals - 2, &made, sizeof made);
    calls.load(calls.arg, values);
    for (int e = 0; e < EVENTS; e++) {
        const int worker = (int)(kolo_rng_uniform(&rng, drawn++) * WORKERS);
        if (kolo_rng_uniform(&rng, drawn++) < 0.5F) {
            calls.observe(calls.arg, &(kolo_parameters_event){.read = true, .worker = worker});
            simulate_read(&s, worker);
            continue;
        }
        kolo_summed_set(gradient + KOLO_SUMMED_SAMPLES, SAMPLES);
        kolo_summed_set(gradient + KOLO_SUMMED_LABELS, c->labels);
        float *g = gradient + KOLO_SUMMED_HEAD + metrics;
        for (size_t i = 0; i < n; i++) g[i] = 0.3F * kolo_rng_normal(&rng, drawn++);
        const kolo_parameters_update u = {.count = part.values,
                                          .gradient = gradient,
                                          .workers = 1,
                                          .least = c->rounds ? PARTS : 0,
                                          .worker = c->labels > 0 && !c->adapts ? -1 : worker,
                                          .not_lost = WORKERS,
                                          .clock = clocks[worker]++,
                                          .latest = worker,
                                          .version = (uint64_t)s.updates};
        calls.update(calls.arg, &u);
        simulate_push(&s, c, worker, g);
    }
    double samples;
    calls.copy_values(calls.arg, values);
    memcpy(&samples, values, sizeof samples);
    assert_true(samples == (double)SAMPLES * s.updates && s.updates > 10);
    memcpy(&made, values + totals - 2, sizeof made);
    assert_true(made == 5 + s.updates);
    for (size_t i = 0; i < n; i++) {
        if (fabs((double)values[totals + i] - s.w[i]) < 1e-5 * (1 + fabs(s.w[i]))) continue;
        fail_msg("%s: element %zu is %.9g, not %.9g", c->what, i, (double)values[totals + i],
                 s.w[i]);
    }
    for (int w = 0; w < WORKERS; w++) kolo_free(s.read[w]);
    kolo_free(s.w);
    kolo_free(s.m);
    kolo_free(s.sum);
    kolo_free(values);
    kolo_free(gradient);
    kolo_owner_destroy(owner);
    kolo_division_fini(&d);
}

static void owners_follow_the_equations(void **state) {
    static const setting settings[] = {
        {"plain", 0, 1, 0, 0, false, 0, false, 0, 0, false},
        {"momentum", 1, 2, 0.9, 0, false, 0, false, 0, 0, false},
        {"compensated", 0, 2, 0, 0.5, false, 0, false, 0, 0, false},
        {"scaled", 0, 1, 0.5, 0, true, 0, false, 0, 0, false},
        {"compensated and scaled", 1, 2, 0.9, 0.2, true, 0, false, 0, 0, false},
        {"weighted", 1, 2, 0.9, 0, false, 7, false, 0, 0, false},
        {.what = "a part of a round", .owners = 1, .momentum = 0.9, .labels = 7, .rounds = true},
        {"a share of the rate", 0, 1, 0.9, 0, false, 7, true, 0, 0, false},
        {"delayed momentum", 0, 2, 0.9, 0, false, 0, false, 3, 0, false},
        {"delayed momentum ahead, compensated and scaled", 1, 2, 0.9, 0.2, true, 0, false, 4, 0.2,
         false},
    };
    for (size_t i = 0; i < KOLO_COUNT(settings); i++) run(&settings[i]);
}

/* However many owners there are, pieces of large parameters are not more than requests number. */
static void pieces_are_not_too_many(void **state) {
    static const int owners[] = {2, 300, 1000};
    for (size_t i = 0; i < KOLO_COUNT(owners); i++) {
        const kolo_plan_opts plan = {.bucket_bytes = 256};
        const kolo_owner_opts opts = {
            .owners = owners[i],
            .buckets = true,
            .workers = owners[i],
            .schedule = {.kind = KOLO_LR_CONSTANT, .lr = rate, .total = 1000, .step_every = 1}};
        kolo_owner *owner;
        kolo_division d;
        ASSERT_OK(kolo_owner_create(build(), &plan, &opts, &owner));
        ASSERT_OK(kolo_owner_divide(owner, &d));
        assert_in_range(d.buckets, 20, 600);
        assert_true(kolo_division_parts(&d) <= KOLO_OWNER_PARTS_MOST);
        kolo_division_fini(&d);
        kolo_owner_destroy(owner);
    }
}

/* Packs a gradient as a worker does; returns the numbers of the push. */
static size_t pack(const kolo_division *d, int part, const float *gradient, float *packed) {
    size_t from = KOLO_SUMMED_HEAD, to = KOLO_SUMMED_HEAD;
    memcpy(packed, gradient, KOLO_SUMMED_HEAD * sizeof *packed);
    for (int row = 0; row < d->n_rows; row++) {
        if (!(KOLO_ROWS_PUSHED >> kolo_division_kind(d, row) & 1)) continue;
        to += kolo_division_pack_row(d, row, part, gradient + from, NULL, packed + to);
        from += kolo_division_count(d, row, part);
    }
    return to;
}

/* Codes of the large gradients become numbers again; what is no code is refused. */
static void pushes_are_unpacked(void **state) {
    const kolo_plan_opts plan = {0};
    const kolo_owner_opts opts = {
        .index = 1,
        .owners = 2,
        .workers = 2,
        .codes = {.codec = {.kind = KOLO_CODEC_TOPK, .ratio = 0.1}, .min_bytes = 4096},
        .schedule = {.kind = KOLO_LR_CONSTANT, .lr = rate, .total = 1000, .step_every = 1}};
    const kolo_rng rng = kolo_rng_make(7, KOLO_RNG_INIT, 4);
    kolo_owner *owner;
    kolo_division d;
    kolo_parameters_opts calls = {0};
    ASSERT_OK(kolo_owner_create(build(), &plan, &opts, &owner));
    ASSERT_OK(kolo_owner_divide(owner, &d));
    ASSERT_OK(kolo_owner_serve(owner, &d, &calls));
    const kolo_parameters_part part = kolo_division_part(&d, opts.index);
    float *gradient = kolo_zalloc(part.gradient * sizeof *gradient);
    float *back = kolo_zalloc(part.gradient * sizeof *back);
    float *packed = kolo_zalloc(part.gradient * sizeof *packed);
    assert_true(gradient && back && packed && part.pushed < part.gradient / 2);
    for (size_t i = 0; i < part.gradient; i++) gradient[i] = kolo_rng_normal(&rng, i);
    assert_int_equal(pack(&d, opts.index, gradient, packed), part.pushed);
    ASSERT_OK(calls.unpack(calls.arg, packed, back));
    size_t kept = 0;
    for (size_t i = 0; i < part.gradient; i++) {
        assert_true(back[i] == gradient[i] || back[i] == 0);
        kept += back[i] == gradient[i];
    }
    assert_in_range(kept, part.gradient / 10, part.gradient / 5);
    memset(packed + KOLO_SUMMED_HEAD, 0xff, (part.pushed - KOLO_SUMMED_HEAD) * sizeof *packed);
    assert_int_equal(calls.unpack(calls.arg, packed, back), KOLO_ERR_FORMAT);
    kolo_free(gradient);
    kolo_free(back);
    kolo_free(packed);
    kolo_owner_destroy(owner);
    kolo_division_fini(&d);
}

/* Each part of a push begins with what was summed over. */
static void counts_of_pushes_are_checked(void **state) {
    const kolo_plan_opts plan = {0};
    const kolo_owner_opts opts = {
        .owners = 1,
        .workers = 2,
        .schedule = {.kind = KOLO_LR_CONSTANT, .lr = rate, .total = 1000, .step_every = 1}};
    float head[KOLO_SUMMED_HEAD];
    kolo_owner *owner;
    kolo_division d;
    kolo_parameters_opts calls = {0};
    ASSERT_OK(kolo_owner_create(build(), &plan, &opts, &owner));
    ASSERT_OK(kolo_owner_divide(owner, &d));
    ASSERT_OK(kolo_owner_serve(owner, &d, &calls));
    kolo_summed_set(head + KOLO_SUMMED_SAMPLES, 3);
    kolo_summed_set(head + KOLO_SUMMED_LABELS, 5000);
    ASSERT_OK(calls.check(calls.arg, head));
    for (int i = 0; i < KOLO_SUMMED_HEAD; i++) {
        const float right = head[i];
        head[i] = i % 2 ? NAN : -1;
        assert_int_equal(calls.check(calls.arg, head), KOLO_ERR_FORMAT);
        head[i] = right;
    }
    kolo_owner_destroy(owner);
    kolo_division_fini(&d);
}

/* Workers 0 and 1 are at different clocks when they are set to a step, twice, as by a file that is
 * loaded. Before each time an update is by one sum of both. */
static void steps_are_set_at_different_clocks(void **state) {
    const kolo_plan_opts plan = {0};
    const kolo_owner_opts opts = {.owners = 1,
                                  .weighted = true,
                                  .adapts = true,
                                  .workers = 2,
                                  .schedule = {.lr = 100, .warmup = 100, .total = 1000}};
    kolo_owner *owner;
    kolo_division d;
    kolo_parameters_opts calls = {0};
    ASSERT_OK(kolo_owner_create(build(), &plan, &opts, &owner));
    ASSERT_OK(kolo_owner_divide(owner, &d));
    ASSERT_OK(kolo_owner_serve(owner, &d, &calls));
    const kolo_parameters_part part = kolo_division_part(&d, 0);
    float *values = kolo_zalloc((part.values + part.state) * sizeof *values);
    float *gradient = kolo_zalloc(part.gradient * sizeof *gradient);
    assert_true(values && gradient);
    calls.load(calls.arg, values);
    for (size_t i = KOLO_SUMMED_HEAD; i < part.gradient; i++) gradient[i] = 1;
    kolo_summed_set(gradient + KOLO_SUMMED_SAMPLES, 1);
    kolo_summed_set(gradient + KOLO_SUMMED_LABELS, 1);
    static const struct {
        int worker;     /* whose push an update is; -1: all that follow it are in a sum */
        int w0, w1;     /* the clocks of the pushes that are taken; -1: none */
        int64_t set_to; /* the steps that workers are set to after it; -1: they are not */
        float lr;       /* that of the step */
        int finished;   /* workers that have finished, whose part of the update is missing */
    } pushes[] = {
        {1, -1, 0, -1, 0.5F, 0},  {1, -1, 1, -1, 1, 0},     {1, -1, 2, -1, 1.5F, 0},
        {-1, 0, 3, 20, 4, 0},     {0, 1, -1, -1, 10.5F, 0}, {-1, 2, 4, 40, 21, 0},
        {0, 3, -1, -1, 20.5F, 0}, {1, -1, 5, -1, 20.5F, 0}, {-1, 4, 6, -1, 42, 0},
        {0, 5, -1, -1, 21.5F, 0}, {0, 6, -1, -1, 22, 0},    {-1, -1, 7, -1, 43, 0}, /* 0, too */
        {-1, -1, 8, -1, 22, 1},
    };
    float before = 0;
    for (size_t i = 0; i < KOLO_COUNT(pushes); i++) {
        const int clocks[] = {pushes[i].w0, pushes[i].w1};
        const kolo_parameters_update u = {
            .count = part.values,
            .gradient = gradient,
            .workers = pushes[i].worker < 0 ? 2 - pushes[i].finished : 1,
            .worker = pushes[i].worker,
            .not_lost = 2,
            .clock = (uint64_t)(clocks[0] > clocks[1] ? clocks[0] : clocks[1]),
            .latest = clocks[0] > clocks[1] ? 0 : 1};
        calls.update(calls.arg, &u);
        calls.copy_values(calls.arg, values);
        for (int w = 0; w < 2; w++) {
            const kolo_parameters_event e = {.worker = w, .clock = (uint64_t)clocks[w]};
            if (clocks[w] >= 0) calls.observe(calls.arg, &e);
        }
        const float now = values[part.values - 1];
        if (fabsf(before - now - pushes[i].lr) > 1e-3F) {
            fail_msg("push %zu: a rate of %g, not %g", i, (double)(before - now),
                     (double)pushes[i].lr);
        }
        before = now;
        const kolo_owner_settings settings = {.steps = pushes[i].set_to};
        ASSERT_OK(calls.configure(calls.arg, &settings, sizeof settings));
    }
    kolo_free(values);
    kolo_free(gradient);
    kolo_owner_destroy(owner);
    kolo_division_fini(&d);
}

TEST_MAIN(test_owner) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(owners_follow_the_equations),
        cmocka_unit_test(steps_are_set_at_different_clocks),
        cmocka_unit_test(pieces_are_not_too_many),
        cmocka_unit_test(pushes_are_unpacked),
        cmocka_unit_test(counts_of_pushes_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

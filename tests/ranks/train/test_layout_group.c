/* Layouts of ranks that have slices of the same values: one rank chooses them for all, also where
 * the ranks have other times of kernels. Layouts of parameters where ranks have other numbers of
 * samples, for which other kernels are faster: those of the most samples. */
#include "kernel/select/tune.h"
#include "kolo/models.h"
#include "plan/internal.h"
#include "support/ranks.h"
#include "support/support.h"
#include "support/train_job.h"

#include <stdlib.h>
#include <string.h>

/* A model on a mesh of two ranks. */
typedef struct setting {
    const char *model, *options, *mesh;
    kolo_shape sample;
    int64_t classes;
    const char *favoured; /* a layout that is fast on rank 1, and slow on rank 0 */
} setting;

enum { MOST = 500 };

/* The layouts of the values of a rank, in their order. */
typedef struct outcome {
    int n;
    char layouts[MOST][KOLO_LAYOUT_TEXT];
} outcome;

static kolo_status compile(kolo_comm *comm, const setting *s, const kolo_mesh *mesh,
                           kolo_mesh_comms *groups, kolo_tuner *tuner, kolo_store *store,
                           kolo_plan **plan) {
    const kolo_model *model;
    const kolo_model_opts model_opts = {
        .batch = 2, .sample = s->sample, .classes = s->classes, .options = s->options};
    const kolo_plan_opts opts = {.train = true,
                                 .mesh = *mesh,
                                 .groups = groups,
                                 .tuner = tuner,
                                 .bucket_bytes = 1 << 20,
                                 .threads = 1};
    kolo_graph *g;
    KOLO_TRY(kolo_model_find(s->model, &model));
    KOLO_TRY(kolo_graph_create(NULL, &g));
    kolo_status status = kolo_model_add(model, g, &model_opts);
    if (status != KOLO_OK) {
        kolo_graph_destroy(g);
        return status;
    }
    return kolo_plan_compile(g, &opts, store, comm, plan);
}

/* Times in which the favoured layout is a thousand times as fast as the others, or as slow. */
static kolo_status bias(const kolo_tuner *measured, const char *favoured, bool fast,
                        kolo_tuner **biased) {
    kolo_text all = {0}, text = {0};
    kolo_tuner_write(measured, false, &all);
    for (char *line = all.text; line && *line;) {
        char *end = strchr(line, '\n');
        *end = '\0';
        const char *key = strchr(line, ' ');
        const bool has = strstr(key, favoured) != NULL;
        if (line == all.text) {
            kolo_text_add(&text, "%s\n", line);
        } else {
            kolo_text_add(&text, "%g%s\n", has == fast ? 1e-6 : 1e-3, key);
        }
        line = end + 1;
    }
    kolo_status status = kolo_tuner_create("machine", biased);
    if (status == KOLO_OK) status = kolo_tuner_read(*biased, "biased times", text.text);
    kolo_text_fini(&all);
    kolo_text_fini(&text);
    return status;
}

static void list(const kolo_plan *p, outcome *o) {
    const kolo_graph *g = p->graph;
    int32_t end = 0; /* of the values that were there before layouts were chosen */
    for (int32_t v = 0; v < g->n_values; v++) {
        const kolo_value_info *info = &g->values[v];
        const bool has = info->kind == KOLO_VALUE_PARAM && kolo_value_ok(info->grad);
        if (has && info->grad.id > end) end = info->grad.id;
    }
    for (int32_t v = 0; v < end && o->n < MOST; v++) {
        kolo_layout_text(&g->values[v].tensor.layout, o->layouts[o->n++]);
    }
}

/* Alone, with times that are measured, then with those of this rank, with the group or without. */
static kolo_status choose(kolo_comm *comm, const setting *s, const kolo_mesh *mesh,
                          kolo_mesh_comms *groups, outcome *o) {
    kolo_tuner *measured, *biased = NULL;
    kolo_store *store;
    kolo_plan *plan = NULL;
    KOLO_TRY(kolo_tuner_create("machine", &measured));
    kolo_tuner_measure(measured, true, NULL, NULL);
    KOLO_TRY(kolo_store_create(NULL, &store));
    kolo_status status = compile(comm, s, mesh, NULL, measured, store, &plan);
    kolo_plan_destroy(plan);
    kolo_store_destroy(store);
    plan = NULL;
    if (status == KOLO_OK) {
        status = bias(measured, s->favoured, kolo_comm_rank(comm) == 1, &biased);
    }
    KOLO_TRY(status);
    KOLO_TRY(kolo_store_create(NULL, &store));
    status = compile(comm, s, mesh, groups, biased, store, &plan);
    if (status == KOLO_OK) list(plan, o);
    kolo_plan_destroy(plan);
    kolo_store_destroy(store);
    kolo_tuner_destroy(measured);
    kolo_tuner_destroy(biased);
    return status;
}

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const setting *s = arg;
    kolo_mesh mesh;
    kolo_mesh_comms *groups;
    KOLO_TRY(kolo_mesh_parse(s->mesh, kolo_comm_size(comm), &mesh));
    KOLO_TRY(kolo_mesh_comms_create(&mesh, comm, &groups));
    const kolo_status status = choose(comm, s, &mesh, groups, result);
    kolo_mesh_comms_destroy(groups);
    return status;
}

static kolo_status alone(kolo_comm *comm, const void *arg, void *result) {
    const setting *s = arg;
    kolo_mesh mesh;
    KOLO_TRY(kolo_mesh_parse(s->mesh, kolo_comm_size(comm), &mesh));
    return choose(comm, s, &mesh, NULL, result);
}

static int count_differences(rank_body which, const setting *s) {
    static outcome o[2];
    int differ = 0;
    memset(o, 0, sizeof o);
    ASSERT_OK(run_rank_job(&(rank_job){.n = 2,
                                       .transport = RANKS_THREAD,
                                       .body = which,
                                       .arg = s,
                                       .arg_bytes = sizeof *s,
                                       .results = o,
                                       .result_bytes = sizeof *o}));
    assert_int_equal(o[0].n, o[1].n);
    assert_true(o[0].n > 4);
    for (int i = 0; i < o[0].n; i++) differ += strcmp(o[0].layouts[i], o[1].layouts[i]) != 0;
    return differ;
}

/* Rows of images that do not divide, and positions of sequences. */
static void one_rank_chooses_for_its_group(void **state) {
    static const setting cases[] = {
        {"resnet20", NULL, "dp=1,sp=2", {3, {3, 18, 16}}, 10, "acdb"},
    };
    (void)state;
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        const int apart = count_differences(alone, &cases[i]);
        if (apart == 0) fail_msg("case %zu: the times do not separate the ranks", i);
        assert_int_equal(count_differences(body, &cases[i]), 0);
    }
}

/* ---- ranks with other numbers of samples ---- */

typedef struct uneven {
    const char *what;
    int ranks;
    const char *mesh;
    kolo_sync sync;
    int servers, zero;
    bool sync_bn;
} uneven;

/* A convolutional network, for which layouts of two samples and of three differ. */
static kolo_train_result train_uneven(const uneven *u) {
    const kolo_train_opts opts = {.model = "resnet20",
                                  .model_options = "width=5",
                                  .data = "synthetic:N=15,test=3,shape=3x31x31,classes=7",
                                  .global_batch = 5,
                                  .epochs = 1,
                                  .lr = 0.01,
                                  .mesh = u->mesh,
                                  .sync = u->sync,
                                  .servers = u->servers,
                                  .zero = u->zero,
                                  .sync_bn = u->sync_bn,
                                  .threads = 1,
                                  .seed = 3};
    return train_well(u->ranks, &opts);
}

/* Batches of five samples. Those without sync_bn normalize the samples of each of two ranks. */
static void parameters_have_the_layouts_for_the_most_samples(void **state) {
    static const uneven alone = {"alone", .ranks = 1}, two = {"two", .ranks = 2};
    static const uneven cases[] = {
        {"two at once", .ranks = 2, .sync_bn = true},
        {"three", .ranks = 3, .sync_bn = true},
        {"zero", .ranks = 2, .zero = 3},
        {"owners", .ranks = 2, .sync = KOLO_SYNC_MESH},
        {"servers", .ranks = 3, .sync = KOLO_SYNC_PS, .servers = 1},
        {"stages", .ranks = 4, .mesh = "dp=2,pp=2"},
        {"slices", .ranks = 4, .mesh = "dp=2,tp=2"},
    };
    (void)state;
    const kolo_train_result by_one = train_uneven(&alone), by_two = train_uneven(&two);
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        const kolo_train_result result = train_uneven(&cases[i]);
        assert_near_run(cases[i].what, &result, cases[i].sync_bn ? &by_one : &by_two);
    }
}

TEST_MAIN(test_layout_group) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_chooses_for_its_group),
        cmocka_unit_test(parameters_have_the_layouts_for_the_most_samples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

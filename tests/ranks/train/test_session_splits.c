/* Evaluation where each rank has a part of the parameters: the ranks may divide a batch in any way,
 * other than that of steps and data sets, and the results are those of one rank. */
#include "base/compiler.h"
#include "base/status.h"
#include "support/own_net.h"
#include "support/ranks.h"
#include "support/support.h"

#include <math.h>
#include <string.h>

enum { MOST = 8, MOST_RANKS = 4, ROWS = MOST * OWN_TOKENS, LOGITS = ROWS * OWN_WORDS };

/* The samples of each place on dp, one batch after the other. 8 and 2: as data sets divide them. */
static const int64_t splits[][3] = {{4, 4, 0}, {2, 6, 0}, {1, 1, 0}, {7, 1, 0}, {1, 7, 0}};
static const int64_t thirds[][3] = {{3, 3, 2}, {1, 1, 6}, {2, 2, 1}, {2, 1, 2}, {1, 1, 1}};
enum { SPLITS = KOLO_COUNT(splits) };

typedef struct layout {
    const char *mesh;
    int64_t reproducible;
    int ranks, places, zero;
    const int64_t (*splits)[3];
} layout;

typedef struct outcome {
    double sums[SPLITS]; /* the loss of this rank's samples */
    int64_t first[SPLITS], count[SPLITS];
    float logits[SPLITS][LOGITS];
    double data;
} outcome;

static kolo_status evaluate_data(kolo_session *s, int64_t count, double *loss) {
    int32_t ids[3 * ROWS], next[3 * ROWS];
    kolo_metrics metrics;
    kolo_dataset *data;
    own_net_fill(0, count, ids, next);
    const kolo_source source = {
        .count = count, .n_fields = 2, .fields = own_net_fields, .data = {ids, next}};
    KOLO_TRY(kolo_dataset_create(&source, &data));
    const kolo_status status = kolo_session_evaluate_dataset(s, data, &metrics);
    *loss = kolo_metrics_get(&metrics, "loss");
    kolo_dataset_close(data);
    return status;
}

/* The samples of split i from `first` on. */
static kolo_status evaluate_split(kolo_session *s, int i, outcome *o) {
    int32_t ids[ROWS], next[ROWS];
    kolo_metrics metrics;
    own_net_fill(o->first[i], o->count[i], ids, next);
    const kolo_batch batch = {
        .count = o->count[i], .n_fields = 2, .fields = own_net_fields, .data = {ids, next}};
    const size_t bytes = (size_t)(o->count[i] * OWN_TOKENS * OWN_WORDS) * sizeof(float);
    KOLO_TRY(kolo_session_evaluate(s, &batch, &metrics));
    o->sums[i] = kolo_metrics_get(&metrics, "loss") * (double)o->count[i];
    return kolo_session_predict(s, &batch, "logits", o->logits[i], bytes, NULL);
}

static kolo_status use(kolo_session *s, const layout *l, int place, outcome *o) {
    KOLO_TRY(evaluate_data(s, 18, &o->data)); /* batches of 4 and 2, or of 9 */
    for (int i = 0; i < SPLITS; i++) {
        for (int p = 0; p < place; p++) o->first[i] += l->splits[i][p];
        for (int p = 0; p < 3 && l->ranks == 1; p++) o->count[i] += l->splits[i][p];
        if (l->ranks > 1) o->count[i] = l->splits[i][place];
        KOLO_TRY(evaluate_split(s, i, o));
    }
    return KOLO_OK;
}

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const layout *l = arg;
    const kolo_session_opts opts = {.mesh = l->mesh,
                                    .global_batch = MOST,
                                    .reproducible = l->reproducible,
                                    .zero = l->zero,
                                    .seed = 5,
                                    .lr = 0.01};
    kolo_session *s;
    KOLO_TRY(kolo_session_create(comm, &opts, own_net_build, NULL, &s));
    const int place = kolo_comm_rank(comm) * l->places / l->ranks;
    const kolo_status status = use(s, l, place, result);
    kolo_session_destroy(s);
    return status;
}

static void run(const layout *l, outcome *outcomes) {
    memset(outcomes, 0, MOST_RANKS * sizeof *outcomes);
    const rank_job job = {.n = l->ranks,
                          .transport = RANKS_THREAD,
                          .body = body,
                          .arg = l,
                          .arg_bytes = sizeof *l,
                          .results = outcomes,
                          .result_bytes = sizeof *outcomes};
    if (run_rank_job(&job) != KOLO_OK) fail_msg("%s: %s", l->mesh, kolo_last_error());
}

static void assert_near(const char *what, const layout *l, double a, double b) {
    if (!(fabs(a - b) <= 1e-5 * fabs(b))) fail_msg("%s: %s is %.9g, not %.9g", l->mesh, what, a, b);
}

static void batches_are_divided_in_any_way(void **state) {
    const layout layouts[] = {
        {"dp=2,pp=2", 4, 4, 2, 0, splits}, /* logical shards of 2 samples */
        {"dp=2,pp=2", 0, 4, 2, 0, splits},
        {"dp=3", 0, 3, 3, 3, thirds},
    };
    static outcome alone[MOST_RANKS], o[MOST_RANKS];
    for (size_t k = 0; k < KOLO_COUNT(layouts); k++) {
        const layout *l = &layouts[k];
        const int same = l->ranks / l->places;
        layout one = *l;
        one.mesh = "dp=1";
        one.ranks = one.places = 1;
        one.zero = 0;
        run(&one, alone);
        run(l, o);
        for (int r = 0; r < l->ranks; r++) assert_near("data", l, o[r].data, alone->data);
        for (int i = 0; i < SPLITS; i++) {
            double sum = 0;
            for (int r = 0; r < l->ranks; r += same) sum += o[r].sums[i];
            assert_near("the loss", l, sum, alone->sums[i]);
            for (int r = 0; r < l->ranks; r++) {
                const float *rows = alone->logits[i] + o[r].first[i] * OWN_TOKENS * OWN_WORDS;
                const size_t n = (size_t)(o[r].count[i] * OWN_TOKENS * OWN_WORDS);
                assert_true(test_relative_l2_f32(o[r].logits[i], rows, n) < 1e-5);
            }
        }
    }
}

TEST_MAIN(test_session_splits) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_are_divided_in_any_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Data sets of a program in its sessions: from memory and from a callback, images of bytes and
 * floats, and what is refused. */
#include "base/compiler.h"
#include "base/status.h"
#include "data/prefetch.h"
#include "kolo/session.h"
#include "support/ranks.h"
#include "support/sum_model.h"
#include "support/support.h"

#include <math.h>
#include <string.h>

enum { OWN = 53, LABELS = 300 };

/* Field "id" names the sample, "y" has more classes than a byte. */
static kolo_status gather_own(void *arg, const int64_t *indices, int64_t n, void *const *data) {
    float *u_of = data[0];
    int32_t *y = data[1], *id = data[2];
    for (int64_t i = 0; i < n; i++) {
        if (indices[i] == *(const int64_t *)arg) return kolo_error_set(KOLO_ERR_IO, "lost sample");
        for (int k = 0; k < SUM_A; k++) u_of[i * SUM_A + k] = (float)(indices[i] + k) / OWN;
        y[i] = (int32_t)(indices[i] * 5 % LABELS);
        id[i] = (int32_t)indices[i];
    }
    return KOLO_OK;
}

static const kolo_field own_fields[] = {
    {"u", KOLO_DTYPE_F32, {1, {SUM_A}}, .mean = {0}},
    {"y", KOLO_DTYPE_I32, {0}, .mean = {0}},
    {"id", KOLO_DTYPE_I32, {0}, .mean = {0}},
};

static kolo_status build_many(kolo_graph *g, int64_t n, void *arg) {
    kolo_value x = kolo_input(g, "u", KOLO_DTYPE_F32, kolo_shape_2(n, SUM_A));
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(n));
    kolo_value w = kolo_param(g, "w", kolo_shape_2(LABELS, SUM_A), kolo_init_fan_in(SUM_A));
    kolo_value logits = kolo_linear(g, x, w);
    kolo_output(g, "loss", kolo_softmax_xent(g, logits, y));
    kolo_output(g, "correct", kolo_accuracy(g, logits, y));
    return KOLO_OK;
}

typedef struct walk {
    int64_t memory, shards, lost; /* lost: a sample that cannot be read; -1 */
} walk;

typedef struct walked {
    int seen[2][OWN]; /* times, by epoch */
    double loss, test;
    float w[LABELS * SUM_A];
} walked;

static kolo_status walk_loader(kolo_session *s, kolo_loader *loader, walked *r) {
    kolo_metrics metrics = {{0}};
    for (;;) {
        kolo_batch batch;
        KOLO_TRY(kolo_loader_next(loader, &batch));
        if (batch.global_count == 0) break;
        for (int64_t i = 0; i < batch.count; i++) {
            r->seen[batch.epoch][((const int32_t *)batch.data[2])[i]]++;
        }
        KOLO_TRY(kolo_session_step(s, &batch, &metrics));
    }
    r->loss = kolo_metrics_get(&metrics, "loss");
    return KOLO_OK;
}

static kolo_status walk_body(kolo_comm *comm, const void *arg, void *result) {
    const walk *w = arg;
    walked *r = result;
    kolo_session_opts opts = {.global_batch = 16, .reproducible = w->shards, .lr = 0.1, .seed = 4};
    float all_u[OWN * SUM_A];
    int32_t all_y[OWN], all_id[OWN];
    int64_t none = -1, indices[OWN];
    for (int i = 0; i < OWN; i++) indices[i] = i;
    KOLO_TRY(gather_own(&none, indices, OWN, (void *[]){all_u, all_y, all_id}));
    kolo_source source = {.count = OWN, .n_fields = 3, .fields = own_fields, .classes = LABELS};
    if (w->memory) {
        source.data[0] = all_u, source.data[1] = all_y, source.data[2] = all_id;
    } else {
        source.gather = gather_own;
        source.arg = (void *)&w->lost;
    }
    kolo_session *s = NULL;
    kolo_dataset *set = NULL;
    kolo_loader *loader = NULL;
    kolo_metrics metrics;
    kolo_status status;
    KOLO_TRY_GOTO(kolo_dataset_create(&source, &set), done);
    KOLO_TRY_GOTO(kolo_session_create(comm, &opts, build_many, NULL, &s), done);
    KOLO_TRY_GOTO(kolo_session_loader(s, set, NULL, 2, &loader), done);
    KOLO_TRY_GOTO(walk_loader(s, loader, r), done);
    KOLO_TRY_GOTO(kolo_session_evaluate_dataset(s, set, &metrics), done);
    r->test = kolo_metrics_get(&metrics, "accuracy");
    status = kolo_session_get(s, "w", r->w, sizeof r->w);
done:
    kolo_loader_destroy(loader);
    kolo_session_destroy(s);
    kolo_dataset_close(set);
    return status;
}

static kolo_status walk_data(int ranks, walk w, walked *r) {
    rank_job run = {.n = ranks,
                    .transport = RANKS_THREAD,
                    .body = walk_body,
                    .arg = &w,
                    .arg_bytes = sizeof w,
                    .results = r,
                    .result_bytes = sizeof *r};
    return run_rank_job(&run);
}

/* Each sample once per epoch, for any number of ranks, from memory and from a callback: 53 samples
 * in steps of 16. */
static void own_samples_come_once_per_epoch(void **state) {
    static const int ranks[] = {1, 2, 3, 7};
    static walked alone[1], r[7];
    ASSERT_OK(walk_data(1, (walk){.memory = 1, .lost = -1}, alone));
    for (size_t i = 0; i < KOLO_COUNT(ranks); i++) {
        for (int memory = 0; memory < 2; memory++) {
            ASSERT_OK(walk_data(ranks[i], (walk){.memory = memory, .lost = -1}, r));
            for (int e = 0; e < 2; e++) {
                for (int k = 0; k < OWN; k++) {
                    int seen = 0;
                    for (int rank = 0; rank < ranks[i]; rank++) seen += r[rank].seen[e][k];
                    assert_int_equal(seen, 1);
                }
            }
            assert_true(test_relative_l2_f32(r[0].w, alone->w, LABELS * SUM_A) < 1e-5);
            assert_true(fabs(r[0].loss - alone->loss) < 1e-5 * alone->loss);
            assert_true(fabs(r[0].test - alone->test) < 1e-9);
        }
    }
    static walked one[1], three[3];
    ASSERT_OK(walk_data(1, (walk){.shards = 4, .lost = -1}, one));
    ASSERT_OK(walk_data(3, (walk){.shards = 4, .lost = -1, .memory = 1}, three));
    assert_memory_equal(one->w, three[2].w, sizeof one->w);

    assert_int_equal(walk_data(1, (walk){.lost = 11}, r), KOLO_ERR_IO);
    assert_non_null(strstr(kolo_last_error(), "lost sample"));
}

/* Images of u8 and f32 in blocked and interleaved layouts: three channels, 1000 classes. */
static kolo_status build_images(kolo_graph *g, int64_t n, void *arg) {
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_4(n, 3, 8, 8));
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(n));
    kolo_value c = kolo_param(g, "conv", kolo_shape_4(16, 3, 3, 3), kolo_init_fan_in(27));
    kolo_value w = kolo_param(g, "w", kolo_shape_2(1000, 16), kolo_init_fan_in(16));
    kolo_value h = kolo_relu(g, kolo_conv2d(g, x, c, NULL));
    kolo_output(g, "features", h);
    h = kolo_flatten(g, kolo_global_avg_pool2d(g, h));
    kolo_output(g, "loss", kolo_softmax_xent(g, kolo_linear(g, h, w), y));
    return KOLO_OK;
}

static void images_of_bytes_and_floats_are_the_same(void **state) {
    enum { N = 16, PIXELS = 3 * 8 * 8 };
    static uint8_t bytes[N * PIXELS];
    static float floats[N * PIXELS], features[2][N * 16 * 6 * 6];
    int32_t y[N];
    const float mean[] = {0.5F, 0.25F, 0}, std[] = {0.5F, 0.25F, 1};
    kolo_field of[2][2] = {
        {{"x", KOLO_DTYPE_U8, {3, {3, 8, 8}}, .mean = {0.5F, 0.25F}, .std = {0.5F, 0.25F}},
         {"y", KOLO_DTYPE_I32, {0}, .mean = {0}}},
        {{"x", KOLO_DTYPE_F32, {3, {3, 8, 8}}, .mean = {0}},
         {"y", KOLO_DTYPE_I32, {0}, .mean = {0}}}};
    for (int i = 0; i < N; i++) y[i] = 999 - i;
    for (int i = 0; i < N * PIXELS; i++) {
        int c = i / 64 % 3;
        bytes[i] = (uint8_t)(i * 91 % 256);
        floats[i] = (float)bytes[i] * (float)(1 / (255 * (double)std[c])) + -mean[c] / std[c];
    }
    kolo_metrics metrics[2];
    for (int k = 0; k < 2; k++) {
        kolo_session *s;
        kolo_batch batch = {
            .count = N, .n_fields = 2, .fields = of[k], .data = {k ? (void *)floats : bytes, y}};
        ASSERT_OK(
            kolo_session_create(NULL, &(kolo_session_opts){.batch = N}, build_images, NULL, &s));
        ASSERT_OK(kolo_session_step(s, &batch, &metrics[k]));
        batch.n_fields = 1; /* no labels */
        ASSERT_OK(
            kolo_session_predict(s, &batch, "features", features[k], sizeof features[k], NULL));
        kolo_session_destroy(s);
    }
    assert_true(kolo_metrics_get(&metrics[0], "loss") == kolo_metrics_get(&metrics[1], "loss"));
    assert_memory_equal(features[0], features[1], sizeof features[0]);
}

static void data_that_cannot_be_is_refused(void **state) {
    kolo_dataset *d = NULL;
    kolo_session *s;
    kolo_loader *loader;
    kolo_metrics metrics;
    static float values[OWN * SUM_A];
    static int32_t labels[OWN];
    kolo_field other[3] = {own_fields[0], own_fields[1], own_fields[1]};
    kolo_source good = {.count = OWN,
                        .n_fields = 2,
                        .fields = own_fields,
                        .data = {values, labels},
                        .classes = LABELS};
    kolo_source none = good, bare = good, few = good, twice = good, wide = good, lost = good;
    none.count = 0;
    bare.n_fields = 0;
    few.fields = NULL;
    twice.fields = wide.fields = other;
    twice.n_fields = 3;
    lost.data[0] = NULL;
    ASSERT_REFUSED(kolo_dataset_create(NULL, &d), "no samples");
    ASSERT_REFUSED(kolo_dataset_create(&good, NULL), "no place");
    ASSERT_REFUSED(kolo_dataset_create(&none, &d), "0 samples");
    ASSERT_REFUSED(kolo_dataset_create(&bare, &d), "0 fields");
    ASSERT_REFUSED(kolo_dataset_create(&few, &d), "0 fields");
    ASSERT_REFUSED(kolo_dataset_create(&twice, &d), "two fields \"y\"");
    ASSERT_REFUSED(kolo_dataset_create(&lost, &d),
                   "field \"u\" of data of the program has no data");
    other[0].shape.dim[0] = INT64_MAX / 2;
    ASSERT_REFUSED(kolo_dataset_create(&wide, &d), "shape of rank 1 is invalid");
    other[0].shape = (kolo_shape){KOLO_MAX_RANK, {1, 1, 1, 1, 1, 1}};
    ASSERT_REFUSED(kolo_dataset_create(&wide, &d), "shape of rank 6 is invalid");
    other[0].dtype = (kolo_dtype)99;
    ASSERT_REFUSED(kolo_dataset_create(&wide, &d), "dtype 99");
    other[0].name = NULL;
    ASSERT_REFUSED(kolo_dataset_create(&wide, &d), "has no name");
    labels[7] = LABELS;
    assert_int_equal(kolo_dataset_create(&good, &d), KOLO_ERR_FORMAT);
    assert_non_null(strstr(kolo_last_error(), "label 300 of sample 7"));
    labels[7] = 0;
    assert_null(d);

    ASSERT_OK(kolo_dataset_create(&good, &d));
    ASSERT_OK(kolo_session_create(NULL, NULL, sum_build, NULL, &s));
    ASSERT_REFUSED(kolo_session_loader(s, NULL, NULL, 1, &loader), "no data set");
    ASSERT_REFUSED(kolo_session_loader(s, d, NULL, 1, NULL), "no place");
    ASSERT_REFUSED(kolo_session_loader(s, d, NULL, 0, &loader), "epochs");
    ASSERT_REFUSED(kolo_session_loader(s, d, "flip", 1, &loader), "cannot be augmented");
    ASSERT_REFUSED(kolo_session_loader(s, d, "flop", 1, &loader), "flop");
    ASSERT_REFUSED(kolo_session_evaluate_dataset(s, d, &metrics), "no field");
    ASSERT_REFUSED(kolo_session_evaluate_dataset(s, NULL, &metrics), "no data set");
    ASSERT_REFUSED(kolo_session_evaluate_dataset(s, d, NULL), "no place");
    kolo_session_destroy(s);
    kolo_dataset_close(d);
}

/* ---- a label that the loss does not have, in a batch of a loader ---- */

typedef struct refusal {
    bool has; /* this rank had the sample */
    kolo_status status, after;
    char text[256];
} refusal;

static kolo_status step_until_refused(kolo_session *s, kolo_loader *loader, refusal *r) {
    kolo_batch batch;
    while (r->status == KOLO_OK) {
        KOLO_TRY(kolo_loader_next(loader, &batch));
        if (batch.global_count == 0) return KOLO_OK;
        for (int64_t i = 0; i < batch.count; i++) {
            r->has |= ((const int32_t *)batch.data[1])[i] == LABELS;
        }
        r->status = kolo_session_step(s, &batch, NULL);
    }
    (void)snprintf(r->text, sizeof r->text, "%s", kolo_last_error());
    KOLO_TRY(kolo_loader_next(loader, &batch));
    r->after = kolo_session_step(s, &batch, NULL);
    return KOLO_OK;
}

static kolo_status wrong_label_body(kolo_comm *comm, const void *arg, void *result) {
    const kolo_session_opts opts = {.global_batch = 8, .lr = 0.1, .seed = 4};
    static const float all_u[OWN * SUM_A];
    static const int32_t all_y[OWN] = {[7] = LABELS}, all_id[OWN];
    const kolo_source source = {
        .count = OWN, .n_fields = 3, .fields = own_fields, .data = {all_u, all_y, all_id}};
    kolo_session *s = NULL;
    kolo_dataset *set = NULL;
    kolo_loader *loader = NULL;
    kolo_status status = kolo_dataset_create(&source, &set);
    if (status == KOLO_OK) status = kolo_session_create(comm, &opts, build_many, NULL, &s);
    if (status == KOLO_OK) status = kolo_session_loader(s, set, NULL, 9, &loader);
    if (status == KOLO_OK) status = step_until_refused(s, loader, result);
    kolo_loader_destroy(loader);
    kolo_session_destroy(s);
    kolo_dataset_close(set);
    return status;
}

/* No rank goes on: those that have other samples get the cause. */
static void a_wrong_label_of_a_loader_ends_all_ranks(void **state) {
    refusal r[3] = {{.has = false}};
    const rank_job run = {.n = 3,
                          .transport = RANKS_THREAD,
                          .body = wrong_label_body,
                          .results = r,
                          .result_bytes = sizeof *r};
    ASSERT_OK(run_rank_job(&run));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(r[i].status, r[i].has ? KOLO_ERR_ARG : KOLO_ERR_PEER);
        if (!strstr(r[i].text, "label 300 at index ")) fail_msg("rank %d: %s", i, r[i].text);
        assert_int_not_equal(r[i].after, KOLO_OK);
    }
    assert_int_equal(r[0].has + r[1].has + r[2].has, 1);
}

TEST_MAIN(test_session_data) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_samples_come_once_per_epoch),
        cmocka_unit_test(a_wrong_label_of_a_loader_ends_all_ranks),
        cmocka_unit_test(images_of_bytes_and_floats_are_the_same),
        cmocka_unit_test(data_that_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, sum_fill, NULL);
}

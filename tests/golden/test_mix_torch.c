/* mixup and cutmix: the bytes and weights of torchvision, the loss and gradients of PyTorch with
 * the weights of the classes (tools/golden/make_mix.py). */
#include "base/compiler.h"
#include "data/mix.h"
#include "data/safetensors/safetensors.h"
#include "kolo/graph.h"
#include "pass/mix_labels.h"
#include "pass/pass.h"
#include "support/graph_eval.h"
#include "support/support.h"

#include <math.h>
#include <string.h>

enum { HEIGHT = 16, WIDTH = 22, EACH = 3 * HEIGHT * WIDTH, CASES = 6, CLASSES = 7 };

static kolo_safetensors *file;

static const void *find(const char *name, size_t bytes) {
    const kolo_safetensors_entry *e = kolo_safetensors_find(file, name);
    if (!e || e->bytes != bytes) fail_msg("%s is not there, or of another size", name);
    return e->data;
}

static void weighted_means_are_those_of_torchvision(void **state) {
    const uint8_t *images = find("images", 2 * EACH);
    const float *wanted = find("mixup", CASES * EACH * sizeof *wanted);
    const double *weights = find("mixup_weights", CASES * sizeof *weights);
    for (int k = 0; k < CASES; k++, wanted += EACH) {
        uint8_t sample[EACH];
        memcpy(sample, images + EACH, EACH);
        const float weight = kolo_mix_images(weights[k], EACH, images, sample);
        assert_true(fabs((double)weight - weights[k]) <= 0x1p-17);
        for (int i = 0; i < EACH; i++) { /* rounded, with a weight of 16 bits */
            if (fabsf((float)sample[i] - wanted[i]) <= 0.504F) continue;
            fail_msg("weight %g: byte %d is %d, not %g", weights[k], i, sample[i],
                     (double)wanted[i]);
        }
    }
}

static void boxes_are_those_of_torchvision(void **state) {
    static const kolo_shape shape = {3, {3, HEIGHT, WIDTH}};
    const uint8_t *images = find("images", 2 * EACH), *wanted = find("cutmix", CASES * EACH);
    const double *boxes = find("boxes", 3 * CASES * sizeof *boxes);
    const double *weights = find("cutmix_weights", CASES * sizeof *weights);
    for (int k = 0; k < CASES; k++, boxes += 3, wanted += EACH) {
        uint8_t sample[EACH];
        memcpy(sample, images + EACH, EACH);
        const float weight = kolo_mix_box(boxes[0], boxes[1], boxes[2], &shape, images, sample);
        assert_true(fabs((double)weight - weights[k]) < 1e-6);
        assert_memory_equal(sample, wanted, EACH);
    }
}

/* With label smoothing where `smoothing` is 1. */
static void compare_loss(int smoothing) {
    enum { N = CASES * CLASSES };
    const kolo_loss_opts opts = {.smoothing = smoothing ? 0.1 : 0};
    const double wanted = ((const double *)find("losses", 2 * sizeof(double)))[smoothing];
    const double *slopes = find("gradients", 2 * N * sizeof *slopes);
    kolo_graph *g;
    graph_eval e;
    ASSERT_OK(kolo_graph_create(NULL, &g));
    const kolo_shape shape = kolo_shape_2(CASES, CLASSES);
    const kolo_value logits = kolo_param(g, "logits", shape, (kolo_init){KOLO_INIT_ZERO, 0});
    const kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(CASES));
    kolo_output(g, "loss", kolo_softmax_xent_opts(g, logits, y, &opts));
    ASSERT_OK(kolo_graph_check(g));
    ASSERT_OK(kolo_pass_mix_labels(g, "target"));
    const kolo_value seed = kolo_scalar(g, "seed");
    ASSERT_OK(kolo_pass_gradient(g, kolo_graph_output(g, "loss"), seed));
    ASSERT_OK(graph_eval_init(&e, g, KOLO_KERNELS_BEST));
    memcpy(graph_eval_f32(&e, logits), find("logits", N * sizeof(float)), N * sizeof(float));
    memcpy(graph_eval_f32(&e, kolo_graph_find(g, "target")), find("targets", N * sizeof(float)),
           N * sizeof(float));
    graph_eval_f32(&e, seed)[0] = 1;
    graph_eval_run(&e, g->n_nodes);
    const double loss = (double)graph_eval_f32(&e, kolo_graph_output(g, "loss"))[0];
    if (!(fabs(loss - wanted) < 1e-6 * wanted)) fail_msg("%.9g, not %.9g", loss, wanted);
    const float *found = graph_eval_f32(&e, kolo_info(g, logits)->grad);
    for (int i = 0; i < N; i++) {
        assert_true(fabs((double)found[i] - slopes[smoothing * N + i]) < 1e-6);
    }
    graph_eval_fini(&e);
    kolo_graph_destroy(g);
}

static void losses_are_those_of_pytorch(void **state) {
    compare_loss(0);
    compare_loss(1);
}

TEST_MAIN(test_mix_torch) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weighted_means_are_those_of_torchvision),
        cmocka_unit_test(boxes_are_those_of_torchvision),
        cmocka_unit_test(losses_are_those_of_pytorch),
    };
    ASSERT_OK(kolo_safetensors_open(KOLO_SOURCE_DIR "/tests/golden/mix.safetensors", &file));
    const int failures = cmocka_run_group_tests(tests, NULL, NULL);
    kolo_safetensors_close(file);
    return failures;
}

/* What a session costs: trains lenet by kolo_train, which takes it from the zoo, and the same net
 * of a builder of its own by a session and kolo_fit, alternately, on one thread. Prints the median
 * time of a step of each and the ratio of the pairs, beside that of two runs by kolo_train; the
 * parameters must have the same bits.
 *
 *     session-cost [PAIRS [STEPS]]     default: 20 pairs of 300 steps */
#include "base/integer.h"
#include "kolo/session.h"

#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 64, MOST_PAIRS = 100, CLASSES = 10 };

static const char data_name[] = "synthetic:N=6400,test=64,shape=1x28x28,classes=10";

static kolo_value parameter(kolo_graph *g, const char *layer, const char *suffix, kolo_shape shape,
                            int64_t fan_in) {
    char name[32];
    snprintf(name, sizeof name, "%s.%s", layer, suffix);
    return kolo_param(g, name, shape, kolo_init_fan_in(fan_in));
}

static kolo_value conv(kolo_graph *g, const char *name, kolo_value x, int64_t in, int64_t out,
                       int64_t pad) {
    const int64_t fan_in = in * 25;
    kolo_value w = parameter(g, name, "weight", kolo_shape_4(out, in, 5, 5), fan_in);
    kolo_value b = parameter(g, name, "bias", kolo_shape_1(out), fan_in);
    x = kolo_bias(g, kolo_conv2d(g, x, w, &(kolo_conv2d_opts){.pad_h = pad, .pad_w = pad}), b);
    return kolo_max_pool2d(g, kolo_relu(g, x), &(kolo_pool2d_opts){.kernel_h = 2, .kernel_w = 2});
}

static kolo_value dense(kolo_graph *g, const char *name, kolo_value x, int64_t in, int64_t out) {
    kolo_value w = parameter(g, name, "weight", kolo_shape_2(out, in), in);
    return kolo_linear_bias(g, x, w, parameter(g, name, "bias", kolo_shape_1(out), in));
}

static kolo_status build(kolo_graph *g, int64_t n, void *arg) {
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_4(n, 1, 28, 28));
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(n));
    kolo_value h = conv(g, "conv2", conv(g, "conv1", x, 1, 6, 2), 6, 16, 0);
    h = kolo_relu(g, dense(g, "fc1", kolo_flatten(g, h), 400, 120));
    h = kolo_relu(g, dense(g, "fc2", h, 120, 84));
    kolo_value logits = dense(g, "fc3", h, 84, CLASSES);
    kolo_output(g, "logits", logits);
    kolo_output(g, "loss", kolo_softmax_xent(g, logits, y));
    kolo_output(g, "correct", kolo_accuracy(g, logits, y));
    return KOLO_OK;
}

static kolo_status by_zoo(int64_t steps, kolo_train_result *result) {
    const kolo_train_opts opts = {.model = "lenet",
                                  .data = data_name,
                                  .batch = BATCH,
                                  .threads = 1,
                                  .steps = steps,
                                  .epochs = steps,
                                  .lr = 0.01,
                                  .no_eval = true,
                                  .optimizer = {.momentum = 0.9}};
    return kolo_train(NULL, &opts, NULL, NULL, result);
}

static kolo_status by_session(const kolo_dataset *data, int64_t steps, kolo_train_result *result) {
    const kolo_session_opts opts = {
        .batch = BATCH, .threads = 1, .lr = 0.01, .optimizer = {.momentum = 0.9}};
    const kolo_fit_opts fit = {.steps = steps, .epochs = steps};
    kolo_session *session;
    kolo_status status = kolo_session_create(NULL, &opts, build, NULL, &session);
    if (status != KOLO_OK) return status;
    status = kolo_fit(session, data, NULL, &fit, result);
    kolo_session_destroy(session);
    return status;
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, by_size);
    return x[n / 2];
}

/* The medians of the steps, in ms, and the ratios of each pair. */
typedef struct pairs {
    double zoo[MOST_PAIRS], own[MOST_PAIRS], ratio[MOST_PAIRS], same[MOST_PAIRS];
} pairs;

/* Trains a pair, `i`, and once more by kolo_train. */
static kolo_status run_pair(const kolo_dataset *data, int steps, int i, pairs *p) {
    kolo_train_result a, b, c;
    const bool first = i % 2 == 0; /* each is first in half of the pairs */
    kolo_status status = first ? by_zoo(steps, &a) : KOLO_OK;
    if (status == KOLO_OK) status = by_session(data, steps, &b);
    if (status == KOLO_OK && !first) status = by_zoo(steps, &a);
    if (status == KOLO_OK) status = by_zoo(steps, &c);
    if (status != KOLO_OK) return status;
    if (a.parameter_hash != b.parameter_hash) {
        return kolo_error_set(KOLO_ERR_FORMAT, "the parameters differ");
    }
    p->zoo[i] = a.step_ms_median;
    p->own[i] = b.step_ms_median;
    p->ratio[i] = p->own[i] / p->zoo[i];
    p->same[i] = c.step_ms_median / a.step_ms_median;
    printf("pair %2d  zoo %.4f ms  session %.4f ms  ratio %.3f  zoo again / zoo %.3f\n", i + 1,
           p->zoo[i], p->own[i], p->ratio[i], p->same[i]);
    return KOLO_OK;
}

static void print_medians(pairs *p, int n) {
    const double of_ratio = median(p->ratio, n), of_same = median(p->same, n);
    printf("median   zoo %.4f ms  session %.4f ms  ratio %.3f (%.3f to %.3f)  zoo again / zoo %.3f "
           "(%.3f to %.3f)\n",
           median(p->zoo, n), median(p->own, n), of_ratio, p->ratio[n / 4], p->ratio[n - 1 - n / 4],
           of_same, p->same[n / 4], p->same[n - 1 - n / 4]);
}

int main(int argc, char **argv) {
    const int asked = argc > 1 ? atoi(argv[1]) : 20, least = asked < 1 ? 1 : asked;
    const int n = least > MOST_PAIRS ? MOST_PAIRS : least, steps = argc > 2 ? atoi(argv[2]) : 300;
    kolo_dataset *data = NULL;
    pairs p;
    kolo_status status = kolo_dataset_open(data_name, KOLO_SPLIT_TRAIN, &data);
    for (int i = 0; i < n && status == KOLO_OK; i++) status = run_pair(data, steps, i, &p);
    if (status == KOLO_OK) print_medians(&p, n);
    if (status != KOLO_OK) fprintf(stderr, "session-cost: %s\n", kolo_last_error());
    kolo_dataset_close(data);
    return status == KOLO_OK ? 0 : 1;
}

/* A model whose backward pass sleeps for the times in a file, for bench/stragglers.py: a small
 * classifier, so that a step is nearly all sleep and more workers than processors do not compete.
 * With KOLO_SLOW_NET=cnn it is a small convolutional network.
 *
 * KOLO_SLEEPS names a file of 32-bit floats, milliseconds, a row for each backward pass with a
 * column for each of KOLO_SLEEPERS workers. KOLO_SLEPT names a file of doubles, in which the
 * workers write in seconds when their first sleeps began, a row, and when each sleep ended, in the
 * places of KOLO_SLEEPS. */
#include <kolo/custom_op.h>
#include <kolo/models.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static kolo_status shape(const kolo_custom_shapes *s) {
    s->out[0] = s->in[0];
    return KOLO_OK;
}

static double sleep_of(long pass, int worker, int workers) {
    static FILE *file;
    float ms;
    if (!file && !(file = fopen(getenv("KOLO_SLEEPS"), "rb"))) abort();
    const long at = (pass * workers + worker) * (long)sizeof ms;
    if (fseek(file, at, SEEK_SET) != 0 || fread(&ms, sizeof ms, 1, file) != 1) abort();
    return (double)ms;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void report(long at, double seconds) {
    static FILE *file;
    if (!file && !(file = fopen(getenv("KOLO_SLEPT"), "r+b"))) abort();
    if (fseek(file, at * (long)sizeof seconds, SEEK_SET) != 0 ||
        fwrite(&seconds, sizeof seconds, 1, file) != 1 || fflush(file) != 0)
        abort();
}

/* Once in each backward pass of a worker: evaluations do not sleep, and no kernels are measured. */
static void run_slow(const kolo_custom_call *c) {
    static long pass;
    const char *rank = getenv("RANK");
    const int worker = rank ? atoi(rank) : 0, workers = atoi(getenv("KOLO_SLEEPERS"));
    if (pass == 0) report(worker, now());
    const double ms = sleep_of(pass++, worker, workers);
    struct timespec left = {(time_t)(ms / 1000),
                            (long)((ms - 1000 * (double)(long)(ms / 1000)) * 1e6)};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
    memcpy(c->out_data[0], c->in_data[0], (size_t)kolo_shape_count(&c->in[0].shape) * 4);
    report(pass * workers + worker, now());
}

static void run(const kolo_custom_call *c) {
    memcpy(c->out_data[0], c->in_data[0], (size_t)kolo_shape_count(&c->in[0].shape) * 4);
}

static void gradient(kolo_graph *g, const kolo_custom_node *n, const kolo_value *d_out,
                     const bool *wants, kolo_value *d_in) {
    (void)n;
    if (wants[0]) kolo_custom(g, "slow_gradient", d_out, 1, NULL, &d_in[0]);
}

static const kolo_custom_op slow = {
    .version = KOLO_CUSTOM_OP_VERSION,
    .name = "slow",
    .n_in = 1,
    .n_out = 1,
    .index = "n*->n*",
    .shape = shape,
    .run = run,
    .grad = gradient,
};

static const kolo_custom_op slow_gradient = {
    .version = KOLO_CUSTOM_OP_VERSION,
    .name = "slow_gradient",
    .n_in = 1,
    .n_out = 1,
    .index = "n*->n*",
    .shape = shape,
    .run = run_slow,
};

/* A convolution that keeps the size, ReLU, and a pool that halves it. */
static kolo_value layer(kolo_graph *g, const char *name, kolo_value x, int64_t in, int64_t out) {
    const kolo_conv2d_opts same = {.pad_h = 2, .pad_w = 2};
    const kolo_pool2d_opts half = {.kernel_h = 2, .kernel_w = 2};
    kolo_value w = kolo_param(g, name, kolo_shape_4(out, in, 5, 5), kolo_init_fan_in(25 * in));
    return kolo_max_pool2d(g, kolo_relu(g, kolo_conv2d(g, x, w, &same)), &half);
}

static kolo_status build(kolo_graph *g, const kolo_model_opts *opts) {
    const int64_t n = opts->batch, inputs = kolo_shape_count(&opts->sample), *d = opts->sample.dim;
    const char *net = getenv("KOLO_SLOW_NET");
    kolo_status status = kolo_custom_op_register(&slow_gradient);
    if (status == KOLO_OK) status = kolo_custom_op_register(&slow);
    if (status != KOLO_OK) return status;
    if (!getenv("KOLO_SLEEPS") || !getenv("KOLO_SLEEPERS") || !getenv("KOLO_SLEPT") ||
        opts->sample.rank != 3)
        return kolo_error_set(KOLO_ERR_ARG, "run bench/stragglers.py --measure");
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_4(n, d[0], d[1], d[2]));
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(n));
    int64_t last = inputs;
    if (net && strcmp(net, "cnn") == 0) {
        x = layer(g, "conv1", x, d[0], 8);
        x = layer(g, "conv2", x, 8, 16);
        last = 16 * (d[1] / 4) * (d[2] / 4);
    }
    x = kolo_flatten(g, x);
    kolo_value w = kolo_param(g, "w", kolo_shape_2(opts->classes, last), kolo_init_fan_in(last));
    kolo_value logits;
    kolo_value slowed = kolo_linear(g, x, w);
    kolo_custom(g, "slow", &slowed, 1, NULL, &logits);
    kolo_output(g, "logits", logits);
    kolo_output(g, "loss", kolo_softmax_xent(g, logits, y));
    kolo_output(g, "correct", kolo_accuracy(g, logits, y));
    return kolo_graph_check(g);
}

static const kolo_model model = {
    .name = "slow",
    .summary = "a linear classifier whose steps sleep",
    .sample = {3, {1, 28, 28}},
    .classes = 10,
    .build = build,
};
KOLO_MODEL_ENTRY(model)

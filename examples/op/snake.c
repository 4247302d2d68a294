/* An op of one's own in a model of one's own: the activation snake, y = x + sin^2(alpha x) / alpha
 * with a trained alpha for each unit (Ziyin et al., "Neural networks fail to learn periodic
 * functions", 2020).
 *
 *     cc -std=c11 -O2 -shared -fPIC snake.c -o snake.so $(pkg-config --cflags --libs kolo) -lm
 *     kolo train --model ./snake.so --data fashion-mnist --workers 2 --epochs 1 --out run */
#include <kolo/custom_op.h>
#include <kolo/models.h>

#include <math.h>

/* x [N,C], alpha [C] -> y [N,C] */
static kolo_status shape(const kolo_custom_shapes *s) {
    const kolo_custom_tensor *x = &s->in[0], *alpha = &s->in[1];
    if (x->dtype != KOLO_DTYPE_F32 || x->shape.rank != 2 || alpha->shape.rank != 1 ||
        alpha->shape.dim[0] != x->shape.dim[1])
        return kolo_error_set(KOLO_ERR_ARG, "x is f32 [N,C], alpha is [C]");
    s->out[0] = *x;
    return KOLO_OK;
}

static void run(const kolo_custom_call *c) {
    const float *x = c->in_data[0], *alpha = c->in_data[1];
    float *y = c->out_data[0];
    const int64_t rows = c->in[0].shape.dim[0], columns = c->in[0].shape.dim[1];
    for (int64_t i = 0; i < rows * columns; i++) {
        const float a = alpha[i % columns], s = sinf(a * x[i]);
        y[i] = x[i] + s * s / a;
    }
}

/* Built-in ops would do here as well; a kernel of its own computes both gradients at once. */
static void gradient(kolo_graph *g, const kolo_custom_node *n, const kolo_value *d_out,
                     const bool *wants, kolo_value *d_in) {
    (void)wants;
    const kolo_value in[] = {d_out[0], n->in[0], n->in[1]};
    kolo_custom(g, "snake_bwd", in, 3, NULL, d_in);
}

/* dy, x [N,C], alpha [C] -> dx, dalpha */
static kolo_status shape_bwd(const kolo_custom_shapes *s) {
    s->out[0] = s->in[1];
    s->out[1] = s->in[2];
    return KOLO_OK;
}

static void run_bwd(const kolo_custom_call *c) {
    const float *dy = c->in_data[0], *x = c->in_data[1], *alpha = c->in_data[2];
    float *dx = c->out_data[0], *dalpha = c->out_data[1];
    const int64_t rows = c->in[1].shape.dim[0], columns = c->in[1].shape.dim[1];
    for (int64_t k = 0; k < columns; k++) {
        const float a = alpha[k];
        float sum = 0;
        for (int64_t i = k; i < rows * columns; i += columns) {
            const float s = sinf(a * x[i]), s2 = sinf(2 * a * x[i]);
            dx[i] = dy[i] * (1 + s2);
            sum += dy[i] * (x[i] * s2 / a - s * s / (a * a));
        }
        dalpha[k] = sum;
    }
}

static const kolo_custom_op snake = {
    .version = KOLO_CUSTOM_OP_VERSION,
    .name = "snake",
    .n_in = 2,
    .n_out = 1,
    .index = "nc,c->nc", /* each sample and unit on its own: workers can share them */
    .shape = shape,
    .run = run,
    .grad = gradient,
};
static const kolo_custom_op snake_bwd = {
    .version = KOLO_CUSTOM_OP_VERSION,
    .name = "snake_bwd",
    .n_in = 3,
    .n_out = 2,
    .index = "nc,nc,c->nc,c", /* the second output is a sum over n */
    .linear = 1,              /* in dy */
    .shape = shape_bwd,
    .run = run_bwd,
};

static kolo_status build(kolo_graph *g, const kolo_model_opts *opts) {
    enum { HIDDEN = 64 };
    const int64_t n = opts->batch, inputs = kolo_shape_count(&opts->sample);
    kolo_status status = kolo_custom_op_register(&snake);
    if (status == KOLO_OK) status = kolo_custom_op_register(&snake_bwd);
    if (status != KOLO_OK) return status;
    if (opts->sample.rank != 3)
        return kolo_error_set(KOLO_ERR_ARG, "the model takes images: choose another data set");
    const int64_t *image = opts->sample.dim;
    kolo_value x =
        kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_4(n, image[0], image[1], image[2]));
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(n));
    kolo_value w1 = kolo_param(g, "w1", kolo_shape_2(HIDDEN, inputs), kolo_init_fan_in(inputs));
    kolo_value w2 =
        kolo_param(g, "w2", kolo_shape_2(opts->classes, HIDDEN), kolo_init_fan_in(HIDDEN));
    const kolo_init one = {KOLO_INIT_ONE, 0};
    kolo_value alpha = kolo_param(g, "alpha", kolo_shape_1(HIDDEN), one), h;
    const kolo_value in[] = {kolo_linear(g, kolo_flatten(g, x), w1), alpha};
    kolo_custom(g, "snake", in, 2, NULL, &h);
    kolo_value logits = kolo_linear(g, h, w2);
    kolo_output(g, "logits", logits);
    kolo_output(g, "loss", kolo_softmax_xent(g, logits, y));
    kolo_output(g, "correct", kolo_accuracy(g, logits, y));
    return kolo_graph_check(g);
}

static const kolo_model model = {
    .name = "snake",
    .summary = "one hidden layer with an activation of its own",
    .options_help = "",
    .recipe = "optimizer=adam lr=0.002",
    .sample = {3, {1, 28, 28}},
    .classes = 10,
    .build = build,
};
KOLO_MODEL_ENTRY(model)

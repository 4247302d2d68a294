/* A model of one's own for the command:
 *
 *     cc -std=c11 -shared -fPIC mine.c -o mine.so $(pkg-config --cflags --libs kolo)
 *     kolo train --model ./mine.so:hidden=32 --data fashion-mnist --epochs 1 --out run
 *     kolo eval --model ./mine.so:hidden=32 --checkpoint run/checkpoint-final.safetensors --data
 * fashion-mnist */
#include <kolo/models.h>

static kolo_status build(kolo_graph *g, const kolo_model_opts *opts) {
    int64_t n = opts->batch, inputs = kolo_shape_count(&opts->sample), hidden = 64;
    const kolo_model_option table[] = {{.name = "hidden", .min = 1, .max = 4096, .value = &hidden}};
    kolo_status status = kolo_model_options_parse("mine", opts->options, table, 1);
    if (status != KOLO_OK) return status;
    if (opts->sample.rank != 3)
        return kolo_error_set(KOLO_ERR_ARG, "model mine takes images: choose another data set");
    const int64_t *image = opts->sample.dim;
    kolo_value x =
        kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_4(n, image[0], image[1], image[2]));
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(n));
    kolo_value w1 = kolo_param(g, "w1", kolo_shape_2(hidden, inputs), kolo_init_fan_in(inputs));
    kolo_value b1 = kolo_param(g, "b1", kolo_shape_1(hidden), kolo_init_fan_in(inputs));
    kolo_value w2 =
        kolo_param(g, "w2", kolo_shape_2(opts->classes, hidden), kolo_init_fan_in(hidden));
    kolo_value h = kolo_silu(g, kolo_linear_bias(g, kolo_flatten(g, x), w1, b1));
    kolo_value logits = kolo_linear(g, h, w2);
    kolo_output(g, "logits", logits);
    kolo_output(g, "loss", kolo_softmax_xent(g, logits, y));
    kolo_output(g, "correct", kolo_accuracy(g, logits, y));
    return kolo_graph_check(g);
}

static const kolo_model mine = {
    .name = "mine",
    .summary = "one hidden layer",
    .options_help = "hidden=64 (units)",
    .recipe = "optimizer=adam lr=0.002",
    .sample = {3, {1, 28, 28}},
    .classes = 10,
    .build = build,
};
KOLO_MODEL_ENTRY(mine)

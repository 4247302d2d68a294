/* vit_b_16 and vit_tiny: transformers over patches of an image.
 * Dosovitskiy et al., "An image is worth 16x16 words", ICLR 2021; as in torchvision. vit_tiny is
 * DeiT-Ti of Touvron et al., "Training data-efficient image transformers", ICML 2021.
 *
 *     patches -> linear -> a class token before them, + positions -> layers -> ln
 *       -> class token -> linear
 *     layer: x + out_proj(attention(ln_1(x))), then x + mlp.3(GELU(mlp.0(ln_2(x))))
 *
 * Parameter names are torchvision's. Weights of linear layers are initially normal with standard
 * deviation 0.02, as in the paper's code, and positions too; the class token and biases zero. */
#include "models/layers.h"
#include "models/options.h"
#include "models/sequence.h"
#include "models/zoo.h"

#include <math.h>
#include <stdio.h>

static const double eps = 1e-6;

typedef struct vit {
    const char *name;
    int64_t layers, width, heads, mlp, patch, dropout;
} vit;

static kolo_value layer(kolo_graph *g, const vit *m, int i, kolo_value x) {
    char name[MODEL_NAME];
#define PART(part) (snprintf(name, sizeof name, "encoder.layers.encoder_layer_%d." part, i), name)
    kolo_value y = kolo_layer_norm(g, x, PART("ln_1"), eps);
    kolo_value w =
        kolo_param(g, PART("self_attention.in_proj_weight"), kolo_shape_2(3 * m->width, m->width),
                   (kolo_init){KOLO_INIT_NORMAL, 0.02});
    kolo_value b = kolo_param(g, PART("self_attention.in_proj_bias"), kolo_shape_1(3 * m->width),
                              (kolo_init){KOLO_INIT_ZERO, 0});
    y = kolo_attention(g, kolo_linear_bias(g, y, w, b), &(kolo_attention_opts){.heads = m->heads});
    y = model_token_linear(g, PART("self_attention.out_proj"), y, m->width, m->width, 0.02);
    x = kolo_add(g, x, model_dropout(g, y, m->dropout));
    y = kolo_layer_norm(g, x, PART("ln_2"), eps);
    y = kolo_gelu(g, model_token_linear(g, PART("mlp.0"), y, m->width, m->mlp, 0.02), false);
    y = model_dropout(g, y, m->dropout);
    y = model_token_linear(g, PART("mlp.3"), y, m->mlp, m->width, 0.02);
#undef PART
    return kolo_add(g, x, model_dropout(g, y, m->dropout));
}

/* Patches of x [N,C,H,W] as tokens [N,1+P,width], the first of them the class token. */
static kolo_value tokens_of(kolo_graph *g, const vit *m, kolo_value x, const kolo_shape *sample,
                            int64_t batch) {
    const int64_t inputs = sample->dim[0], area = m->patch * m->patch, width = m->width;
    const int64_t patches = sample->dim[1] / m->patch * (sample->dim[2] / m->patch);
    const kolo_init zero = {KOLO_INIT_ZERO, 0};
    const kolo_conv2d_opts cut = {.stride_h = m->patch, .stride_w = m->patch};
    const kolo_init init = {KOLO_INIT_NORMAL, sqrt(1 / (double)(inputs * area))};
    kolo_value token = kolo_param(g, "class_token", kolo_shape_3(1, 1, width), zero);
    kolo_value w =
        kolo_param(g, "conv_proj.weight", kolo_shape_4(width, inputs, m->patch, m->patch), init);
    kolo_value b = kolo_param(g, "conv_proj.bias", kolo_shape_1(width), zero);
    kolo_value places = kolo_param(g, "encoder.pos_embedding", kolo_shape_3(1, 1 + patches, width),
                                   (kolo_init){KOLO_INIT_NORMAL, 0.02});
    x = kolo_bias(g, kolo_conv2d(g, x, w, &cut), b);
    x = kolo_transpose(g, kolo_reshape(g, x, kolo_shape_3(batch, width, patches)), 1, 2);
    /* The class token is added to a token of zeros, together with the positions. */
    places = kolo_add(g, places, kolo_pad(g, token, 1, 0, patches));
    const int64_t numbers = (1 + patches) * width;
    x = kolo_reshape(g, kolo_pad(g, x, 1, 1, 0), kolo_shape_2(batch, numbers));
    x = kolo_bias(g, x, kolo_reshape(g, places, kolo_shape_1(numbers)));
    return kolo_reshape(g, x, kolo_shape_3(batch, 1 + patches, width));
}

static kolo_status parse(vit *m, const kolo_model_opts *opts, int64_t *classes) {
    const kolo_model_option table[] = {
        {"layers", 1, 1000, &m->layers, 0},  {"width", 1, 1 << 16, &m->width, 0},
        {"heads", 1, 1 << 12, &m->heads, 0}, {"mlp", 1, 1 << 20, &m->mlp, 0},
        {"patch", 1, 1 << 12, &m->patch, 0}, {"dropout", 0, 99, &m->dropout, 100},
        {"classes", 1, 1 << 20, classes, 0},
    };
    kolo_status status = kolo_model_options_parse(m->name, opts->options, table, 7);
    if (status == KOLO_OK && m->width % m->heads != 0) {
        return kolo_error_set(KOLO_ERR_ARG, "model %s: width %d is not a multiple of %d heads",
                              m->name, (int)m->width, (int)m->heads);
    }
    const kolo_shape *s = &opts->sample;
    if (status == KOLO_OK && s->rank == 3 &&
        (s->dim[1] % m->patch != 0 || s->dim[2] % m->patch != 0)) {
        return kolo_error_set(KOLO_ERR_ARG,
                              "model %s: images of %dx%d are not whole patches of %d: give patch=N",
                              m->name, (int)s->dim[1], (int)s->dim[2], (int)m->patch);
    }
    return status;
}

static kolo_status build(kolo_graph *g, const kolo_model_opts *opts, vit m) {
    int64_t classes = opts->classes;
    kolo_value x;
    kolo_status status = parse(&m, opts, &classes);
    if (status == KOLO_OK) status = model_check_classes(m.name, classes, opts);
    if (status == KOLO_OK) status = model_images(g, m.name, opts, &x);
    if (status != KOLO_OK) return status;
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(opts->batch));
    x = model_dropout(g, tokens_of(g, &m, x, &opts->sample, opts->batch), m.dropout);
    for (int i = 0; i < m.layers; i++) x = layer(g, &m, i, x);
    x = kolo_slice(g, kolo_layer_norm(g, x, "encoder.ln", eps), 1, 0, 1);
    x = kolo_reshape(g, x, kolo_shape_2(opts->batch, m.width));
    model_classify(g, model_linear_normal(g, "heads.head", x, m.width, classes, 0.02), y);
    return kolo_graph_check(g);
}

#define VIT(id, help, n_layers, n_width, n_heads, n_mlp)                                       \
    static kolo_status build_##id(kolo_graph *g, const kolo_model_opts *opts) {                \
        return build(g, opts, (vit){#id, n_layers, n_width, n_heads, n_mlp, 16, 0});           \
    }                                                                                          \
    const kolo_model kolo_model_##id = {                                                       \
        .name = #id,                                                                           \
        .recipe = "optimizer=adamw lr=5e-4 scale-lr=512 weight-decay=0.05 "                    \
                  "decay-matrices-only=true schedule=cosine warmup-epochs=5/300 augment=flip", \
        .recipe_source = "Touvron et al., 2021, table 9",                                      \
        .summary = help,                                                                       \
        .options_help =                                                                        \
            "layers=" #n_layers ", width=" #n_width ", heads=" #n_heads ", mlp=" #n_mlp        \
            ", patch=16 (pixels of a side), dropout=0 (percent), classes",                     \
        .sample = {3, {3, 224, 224}},                                                          \
        .classes = 1000,                                                                       \
        .build = build_##id,                                                                   \
    }

VIT(vit_b_16, "vision transformer, base, patches of 16x16 (Dosovitskiy et al., 2021)", 12, 768, 12,
    3072);
VIT(vit_tiny, "vision transformer, tiny, patches of 16x16 (Touvron et al., 2021)", 12, 192, 3, 768);

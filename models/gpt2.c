/* GPT-2 in several sizes. Radford, Wu, Child, Luan, Amodei, Sutskever, "Language models are
 * unsupervised multitask learners", 2019.
 *
 *     tokens -> wte + wpe -> layers -> ln_f -> logits, by wte or with tied=0 by lm_head
 *     layer: x + c_proj(attention(c_attn(ln_1(x)))), then x + c_proj(GELU(c_fc(ln_2(x))))
 *
 * Weights are initially normal with standard deviation 0.02, those of the projections into the
 * residual stream 0.02 / sqrt(2 layers) (section 2.3), positions 0.01 as in OpenAI's code. GELU is
 * the tanh approximation. Parameter names of the published checkpoints; 124,439,808 parameters for
 * gpt2. */
#include "models/options.h"
#include "models/sequence.h"
#include "models/zoo.h"

#include <math.h>
#include <stdio.h>

typedef struct gpt2_size {
    const char *name;
    int64_t layers, width, heads, context, vocabulary, tied, dropout;
} gpt2_size;

static kolo_status parse(gpt2_size *m, const char *options) {
    const kolo_model_option table[] = {
        {"layers", 1, 1000, &m->layers, 0},       {"width", 1, 1 << 16, &m->width, 0},
        {"heads", 1, 1 << 12, &m->heads, 0},      {"context", 1, 1 << 20, &m->context, 0},
        {"vocab", 1, 1 << 24, &m->vocabulary, 0}, {"tied", 0, 1, &m->tied, 0},
        {"dropout", 0, 99, &m->dropout, 100},
    };
    kolo_status status = kolo_model_options_parse(m->name, options, table, 7);
    if (status == KOLO_OK && m->width % m->heads != 0) {
        return kolo_error_set(KOLO_ERR_ARG, "model %s: width %d is not a multiple of %d heads",
                              m->name, (int)m->width, (int)m->heads);
    }
    return status;
}

static kolo_value layer(kolo_graph *g, const gpt2_size *m, int i, kolo_value x) {
    char name[MODEL_NAME];
    double back = 0.02 / sqrt(2.0 * (double)m->layers);
#define PART(part) (snprintf(name, sizeof name, "h.%d." part, i), name)
    kolo_value y = kolo_layer_norm(g, x, PART("ln_1"), 0);
    y = model_token_linear(g, PART("attn.c_attn"), y, m->width, 3 * m->width, 0.02);
    y = kolo_attention(g, y,
                       &(kolo_attention_opts){
                           .heads = m->heads,
                           .causal = true,
                           .dropout = (double)m->dropout / 100,
                       });
    y = model_token_linear(g, PART("attn.c_proj"), y, m->width, m->width, back);
    x = kolo_add(g, x, model_dropout(g, y, m->dropout));
    y = kolo_layer_norm(g, x, PART("ln_2"), 0);
    y = model_token_linear(g, PART("mlp.c_fc"), y, m->width, 4 * m->width, 0.02);
    y = model_token_linear(g, PART("mlp.c_proj"), kolo_gelu(g, y, true), 4 * m->width, m->width,
                           back);
#undef PART
    return kolo_add(g, x, model_dropout(g, y, m->dropout));
}

static kolo_status build(kolo_graph *g, const kolo_model_opts *opts, gpt2_size m) {
    kolo_value x, y;
    kolo_status status = parse(&m, opts->options);
    if (status == KOLO_OK) status = model_token_inputs(g, m.name, opts, &x, &y);
    if (status != KOLO_OK) return status;
    int64_t length = opts->sample.dim[0];
    const kolo_shape table = kolo_shape_2(opts->classes, m.width);
    const kolo_init normal = {KOLO_INIT_NORMAL, 0.02};
    kolo_value wte = kolo_param(g, "wte.weight", table, normal);
    kolo_value wpe = kolo_param(g, "wpe.weight", kolo_shape_2(m.context, m.width),
                                (kolo_init){KOLO_INIT_NORMAL, 0.01});
    kolo_value h = model_dropout(g, kolo_embedding(g, wte, x, wpe), m.dropout);
    for (int i = 0; i < m.layers; i++) h = layer(g, &m, i, h);
    h = kolo_layer_norm(g, h, "ln_f", 0);
    int64_t tokens = opts->batch * length;
    kolo_value head = m.tied ? wte : kolo_param(g, "lm_head.weight", table, normal);
    kolo_value logits = kolo_linear(g, kolo_reshape(g, h, kolo_shape_2(tokens, m.width)), head);
    model_token_outputs(g, logits, kolo_reshape(g, y, kolo_shape_1(tokens)), 1,
                        (kolo_value){.id = -1});
    return kolo_graph_check(g);
}

static kolo_status windows(const char *options, kolo_dataset_opts *windows, gpt2_size m) {
    kolo_status status = parse(&m, options);
    *windows = (kolo_dataset_opts){.context = m.context, .vocabulary = m.vocabulary};
    return status;
}

/* Brown et al., "Language models are few-shot learners", 2020, table 2.1 and appendix B: 375 of
 * 300,000 million tokens of warm-up, a cosine down to a tenth of the rate. The paper of GPT-2
 * states none. */
#define RECIPE(lr, lr_min)                                                                   \
    "optimizer=adamw lr=" lr " beta2=0.95 weight-decay=0.1 decay-matrices-only=true clip=1 " \
    "schedule=cosine lr-min=" lr_min " warmup-epochs=0.375/300"
#define RECIPE_SOURCE "Brown et al., 2020, table 2.1 and appendix B"
#define TINY_RECIPE                                                                        \
    "optimizer=adamw lr=1e-3 beta2=0.99 weight-decay=0.1 decay-matrices-only=true clip=1 " \
    "schedule=cosine lr-min=1e-4 warmup-epochs=100/5000"

#define GPT2(id, text, help, from, source, n_layers, n_width, n_heads, n_context, n_vocabulary)    \
    static const gpt2_size id = {text, n_layers, n_width, n_heads, n_context, n_vocabulary, 1, 0}; \
    static kolo_status build_##id(kolo_graph *g, const kolo_model_opts *opts) {                    \
        return build(g, opts, id);                                                                 \
    }                                                                                              \
    static kolo_status windows_##id(const char *options, kolo_dataset_opts *opts) {                \
        return windows(options, opts, id);                                                         \
    }                                                                                              \
    const kolo_model kolo_model_##id = {                                                           \
        .name = text,                                                                              \
        .recipe = from,                                                                            \
        .recipe_source = source,                                                                   \
        .summary = help " (Radford et al., 2019)",                                                 \
        .options_help = "layers=" #n_layers ", width=" #n_width ", heads=" #n_heads                \
                        ", context=" #n_context " (tokens of a window), vocab=" #n_vocabulary      \
                        ", tied=1 (0: separate output matrix), dropout=0 (percent)",               \
        .sample = {1, {n_context}},                                                                \
        .classes = n_vocabulary,                                                                   \
        .windows = windows_##id,                                                                   \
        .build = build_##id,                                                                       \
    }

GPT2(gpt2, "gpt2", "GPT-2", RECIPE("6e-4", "6e-5"), RECIPE_SOURCE, 12, 768, 12, 1024, 50257);
GPT2(gpt2_tiny, "gpt2_tiny", "a small GPT-2", TINY_RECIPE, "nanoGPT's train_shakespeare_char", 4,
     128, 4, 128, 256);
GPT2(gpt2_medium, "gpt2_medium", "GPT-2 medium", RECIPE("3e-4", "3e-5"), RECIPE_SOURCE, 24, 1024,
     16, 1024, 50257);
GPT2(gpt2_large, "gpt2_large", "GPT-2 large", RECIPE("2.5e-4", "2.5e-5"), RECIPE_SOURCE, 36, 1280,
     20, 1024, 50257);
GPT2(gpt2_xl, "gpt2_xl", "GPT-2 XL", RECIPE("2e-4", "2e-5"), RECIPE_SOURCE, 48, 1600, 25, 1024,
     50257);

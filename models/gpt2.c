/* GPT-2 in several sizes, and one with mixtures of experts. Radford, Wu, Child, Luan, Amodei,
 * Sutskever, "Language models are unsupervised multitask learners", 2019.
 *
 *     tokens -> wte + wpe -> layers -> ln_f -> logits, by wte or with tied=0 by lm_head
 *     layer: x + c_proj(attention(c_attn(ln_1(x)))), then x + c_proj(GELU(c_fc(ln_2(x))))
 *     gpt2_moe: the second part is x + moe(ln_2(x)) (models/experts.c)
 *
 * Weights are initially normal with standard deviation 0.02, those of the projections into the
 * residual stream 0.02 / sqrt(2 layers) (section 2.3), positions 0.01 as in OpenAI's code. GELU is
 * the tanh approximation. Parameter names of the published checkpoints; 124,439,808 parameters for
 * gpt2. */
#include "models/experts.h"
#include "models/options.h"
#include "models/sequence.h"
#include "models/zoo.h"

#include <math.h>
#include <stdio.h>

typedef struct gpt2_size {
    const char *name;
    int64_t layers, width, heads, context, vocabulary, tied, dropout;
    int64_t experts, top, capacity, balance; /* 0 experts: none */
} gpt2_size;

static kolo_status parse(gpt2_size *m, const char *options) {
    const kolo_model_option table[] = {
        {"layers", 1, 1000, &m->layers, 0},       {"width", 1, 1 << 16, &m->width, 0},
        {"heads", 1, 1 << 12, &m->heads, 0},      {"context", 1, 1 << 20, &m->context, 0},
        {"vocab", 1, 1 << 24, &m->vocabulary, 0}, {"tied", 0, 1, &m->tied, 0},
        {"dropout", 0, 99, &m->dropout, 100},     {"experts", 1, 1 << 12, &m->experts, 0},
        {"top", 1, 1 << 12, &m->top, 0},          {"capacity", 1, 1000000, &m->capacity, 100},
        {"balance", 0, 1000, &m->balance, 100},
    };
    kolo_status status = kolo_model_options_parse(m->name, options, table, m->experts ? 11 : 7);
    if (status == KOLO_OK && m->width % m->heads != 0) {
        return kolo_error_set(KOLO_ERR_ARG, "model %s: width %d is not a multiple of %d heads",
                              m->name, (int)m->width, (int)m->heads);
    }
    if (status == KOLO_OK && m->top > m->experts) {
        return kolo_error_set(KOLO_ERR_ARG, "model %s: top=%d of %d experts: choose 1 to %d",
                              m->name, (int)m->top, (int)m->experts, (int)m->experts);
    }
    return status;
}

/* *balance: the sum of the balance losses of the layers so far. */
static kolo_value experts(kolo_graph *g, const gpt2_size *m, const char *name, kolo_value x,
                          double back, kolo_value *balance) {
    const model_experts_opts opts = {
        .experts = m->experts,
        .top = m->top,
        .capacity = m->capacity,
        .width = m->width,
        .hidden = 4 * m->width,
        .deviation = 0.02,
        .back = back,
    };
    kolo_value loss, y = model_experts(g, name, x, &opts, &loss);
    *balance = balance->id < 0 ? loss : kolo_add(g, *balance, loss);
    return y;
}

static kolo_value layer(kolo_graph *g, const gpt2_size *m, int i, kolo_value x,
                        kolo_value *balance) {
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
    if (m->experts) {
        y = experts(g, m, PART("moe"), y, back, balance);
    } else {
        y = model_token_linear(g, PART("mlp.c_fc"), y, m->width, 4 * m->width, 0.02);
        y = model_token_linear(g, PART("mlp.c_proj"), kolo_gelu(g, y, true), 4 * m->width, m->width,
                               back);
    }
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
    kolo_value balance = {.id = -1};
    for (int i = 0; i < m.layers; i++) h = layer(g, &m, i, h, &balance);
    h = kolo_layer_norm(g, h, "ln_f", 0);
    int64_t tokens = opts->batch * length;
    kolo_value head = m.tied ? wte : kolo_param(g, "lm_head.weight", table, normal);
    kolo_value logits = kolo_linear(g, kolo_reshape(g, h, kolo_shape_2(tokens, m.width)), head);
    model_token_outputs(g, logits, kolo_reshape(g, y, kolo_shape_1(tokens)), 1,
                        (kolo_value){.id = -1});
    if (m.experts && m.balance > 0) {
        kolo_output(g, "aux_loss", kolo_scale(g, balance, (double)m.balance / 100));
    }
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

#define GPT2_OPTIONS(n_layers, n_width, n_heads, n_context, n_vocabulary)               \
    "layers=" #n_layers ", width=" #n_width ", heads=" #n_heads ", context=" #n_context \
    " (tokens of a window), vocab=" #n_vocabulary                                       \
    ", tied=1 (0: separate output matrix), dropout=0 (percent)"

#define GPT2_MODEL(id, text, help, from, source, options, n_context, n_vocabulary)  \
    static kolo_status build_##id(kolo_graph *g, const kolo_model_opts *opts) {     \
        return build(g, opts, id);                                                  \
    }                                                                               \
    static kolo_status windows_##id(const char *text_of, kolo_dataset_opts *opts) { \
        return windows(text_of, opts, id);                                          \
    }                                                                               \
    const kolo_model kolo_model_##id = {                                            \
        .name = text,                                                               \
        .recipe = from,                                                             \
        .recipe_source = source,                                                    \
        .summary = help,                                                            \
        .options_help = options,                                                    \
        .sample = {1, {n_context}},                                                 \
        .classes = n_vocabulary,                                                    \
        .windows = windows_##id,                                                    \
        .build = build_##id,                                                        \
    }

#define GPT2(id, text, help, from, source, n_layers, n_width, n_heads, n_context, n_vocabulary) \
    static const gpt2_size id = {.name = text,                                                  \
                                 .layers = n_layers,                                            \
                                 .width = n_width,                                              \
                                 .heads = n_heads,                                              \
                                 .context = n_context,                                          \
                                 .vocabulary = n_vocabulary,                                    \
                                 .tied = 1};                                                    \
    GPT2_MODEL(id, text, help " (Radford et al., 2019)", from, source,                          \
               GPT2_OPTIONS(n_layers, n_width, n_heads, n_context, n_vocabulary), n_context,    \
               n_vocabulary)

GPT2(gpt2, "gpt2", "GPT-2", RECIPE("6e-4", "6e-5"), RECIPE_SOURCE, 12, 768, 12, 1024, 50257);
GPT2(gpt2_tiny, "gpt2_tiny", "a small GPT-2", TINY_RECIPE, "nanoGPT's train_shakespeare_char", 4,
     128, 4, 128, 256);
GPT2(gpt2_medium, "gpt2_medium", "GPT-2 medium", RECIPE("3e-4", "3e-5"), RECIPE_SOURCE, 24, 1024,
     16, 1024, 50257);
GPT2(gpt2_large, "gpt2_large", "GPT-2 large", RECIPE("2.5e-4", "2.5e-5"), RECIPE_SOURCE, 36, 1280,
     20, 1024, 50257);
GPT2(gpt2_xl, "gpt2_xl", "GPT-2 XL", RECIPE("2e-4", "2e-5"), RECIPE_SOURCE, 48, 1600, 25, 1024,
     50257);

/* The balance loss has the weight of Switch Transformers. */
static const gpt2_size gpt2_moe = {.name = "gpt2_moe",
                                   .layers = 4,
                                   .width = 128,
                                   .heads = 4,
                                   .context = 128,
                                   .vocabulary = 256,
                                   .tied = 1,
                                   .experts = 8,
                                   .top = 2,
                                   .capacity = 125,
                                   .balance = 1};
GPT2_MODEL(
    gpt2_moe, "gpt2_moe", "a small GPT-2 with mixtures of experts (Fedus et al., 2022)",
    TINY_RECIPE, "nanoGPT's train_shakespeare_char",
    GPT2_OPTIONS(
        4, 128, 4, 128,
        256) ", experts=8 (of each layer), top=2 (experts of a "
             "token), capacity=125 (tokens of a window that an expert takes, in percent of an even "
             "share), balance=1 (weight of the balance loss, percent)",
    128, 256);

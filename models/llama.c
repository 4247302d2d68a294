/* llama and llama_tiny: decoder-only transformers.
 * Touvron et al., "LLaMA: open and efficient foundation language models", 2023, and Llama 2, 2023.
 * The default sizes of llama are those of TinyLlama 1.1B (Zhang et al., 2024).
 *
 *     tokens -> embed_tokens -> layers -> norm -> logits, by lm_head or with tied=1 by embed_tokens
 *     layer: x + o_proj(attention(norm(x))), then x + down_proj(SiLU(gate_proj(h)) * up_proj(h))
 *     of h = norm(x)
 *
 * Root mean square normalization (Zhang, Sennrich, 2019), rotary positions of queries and keys (Su
 * et al., 2021), each head of keys and values for several heads of queries (Ainslie et al., 2023),
 * SwiGLU (Shazeer, 2020). No biases. Weights are initially normal with standard deviation 0.02.
 * Parameter names are Hugging Face's. */
#include "models/options.h"
#include "models/sequence.h"
#include "models/zoo.h"

#include <stdio.h>

enum { MOST_GROUPS = 64 };

typedef struct llama_size {
    const char *name;
    int64_t layers, width, heads, kv_heads, mlp, context, vocabulary, base, eps, tied;
} llama_size;

static kolo_status parse(llama_size *m, const char *options) {
    const kolo_model_option table[] = {
        {"layers", 1, 1000, &m->layers, 0},       {"width", 2, 1 << 16, &m->width, 0},
        {"heads", 1, 1 << 12, &m->heads, 0},      {"kv_heads", 1, 1 << 12, &m->kv_heads, 0},
        {"mlp", 1, 1 << 20, &m->mlp, 0},          {"context", 1, 1 << 20, &m->context, 0},
        {"vocab", 1, 1 << 24, &m->vocabulary, 0}, {"base", 1, INT32_MAX, &m->base, 0},
        {"eps", 1, 1000000, &m->eps, 0},          {"tied", 0, 1, &m->tied, 0},
    };
    kolo_status status = kolo_model_options_parse(m->name, options, table, 10);
    if (status == KOLO_OK && m->width % (2 * m->heads) != 0) {
        return kolo_error_set(KOLO_ERR_ARG,
                              "model %s: width %d is not a multiple of twice %d heads", m->name,
                              (int)m->width, (int)m->heads);
    }
    if (status == KOLO_OK &&
        (m->heads % m->kv_heads != 0 || m->heads / m->kv_heads > MOST_GROUPS)) {
        return kolo_error_set(KOLO_ERR_ARG, "model %s: %d heads are not 1 to %d times %d kv_heads",
                              m->name, (int)m->heads, MOST_GROUPS, (int)m->kv_heads);
    }
    return status;
}

static kolo_value linear(kolo_graph *g, const char *name, kolo_value x, int64_t inputs,
                         int64_t outputs) {
    char text[MODEL_NAME + 8];
    snprintf(text, sizeof text, "%s.weight", name);
    return kolo_linear(
        g, x,
        kolo_param(g, text, kolo_shape_2(outputs, inputs), (kolo_init){KOLO_INIT_NORMAL, 0.02}));
}

/* Repeats each head of x [N,T,kv_heads D] for its group: [N,T,heads D]. */
static kolo_value repeat_heads(kolo_graph *g, const llama_size *m, kolo_value x) {
    const kolo_shape s = kolo_value_shape(g, x);
    const int64_t groups = m->heads / m->kv_heads, each = m->width / m->heads;
    kolo_value parts[MOST_GROUPS];
    if (groups == 1) return x;
    x = kolo_reshape(g, x, (kolo_shape){5, {s.dim[0], s.dim[1], m->kv_heads, 1, each}});
    for (int64_t i = 0; i < groups; i++) parts[i] = x;
    x = kolo_concat_along(g, parts, (int)groups, 3);
    return kolo_reshape(g, x, kolo_shape_3(s.dim[0], s.dim[1], m->width));
}

static kolo_value layer(kolo_graph *g, const llama_size *m, int i, kolo_value x) {
    char name[MODEL_NAME];
    const double eps = (double)m->eps * 1e-6, base = (double)m->base;
    const int64_t few = m->width / m->heads * m->kv_heads;
#define PART(part) (snprintf(name, sizeof name, "model.layers.%d." part, i), name)
    kolo_value h = kolo_rms_norm(g, x, PART("input_layernorm"), eps);
    kolo_value q = linear(g, PART("self_attn.q_proj"), h, m->width, m->width);
    kolo_value k = linear(g, PART("self_attn.k_proj"), h, m->width, few);
    kolo_value v = linear(g, PART("self_attn.v_proj"), h, m->width, few);
    const kolo_value qkv[] = {
        kolo_rotary(g, q, m->heads, base, 0),
        repeat_heads(g, m, kolo_rotary(g, k, m->kv_heads, base, 0)),
        repeat_heads(g, m, v),
    };
    h = kolo_attention(g, kolo_concat_along(g, qkv, 3, 2),
                       &(kolo_attention_opts){.heads = m->heads, .causal = true});
    x = kolo_add(g, x, linear(g, PART("self_attn.o_proj"), h, m->width, m->width));
    h = kolo_rms_norm(g, x, PART("post_attention_layernorm"), eps);
    kolo_value gate = kolo_silu(g, linear(g, PART("mlp.gate_proj"), h, m->width, m->mlp));
    h = kolo_mul(g, gate, linear(g, PART("mlp.up_proj"), h, m->width, m->mlp));
    h = linear(g, PART("mlp.down_proj"), h, m->mlp, m->width);
#undef PART
    return kolo_add(g, x, h);
}

static kolo_status build(kolo_graph *g, const kolo_model_opts *opts, llama_size m) {
    kolo_value x, y;
    kolo_status status = parse(&m, opts->options);
    if (status == KOLO_OK) status = model_token_inputs(g, m.name, opts, &x, &y);
    if (status != KOLO_OK) return status;
    const kolo_shape table = kolo_shape_2(opts->classes, m.width);
    const kolo_init normal = {KOLO_INIT_NORMAL, 0.02};
    const int64_t tokens = opts->batch * opts->sample.dim[0];
    kolo_value words = kolo_param(g, "model.embed_tokens.weight", table, normal);
    kolo_value h = kolo_embedding(g, words, x, (kolo_value){.id = -1});
    for (int i = 0; i < m.layers; i++) h = layer(g, &m, i, h);
    h = kolo_rms_norm(g, h, "model.norm", (double)m.eps * 1e-6);
    kolo_value head = m.tied ? words : kolo_param(g, "lm_head.weight", table, normal);
    kolo_value logits = kolo_linear(g, kolo_reshape(g, h, kolo_shape_2(tokens, m.width)), head);
    model_token_outputs(g, logits, kolo_reshape(g, y, kolo_shape_1(tokens)), 1,
                        (kolo_value){.id = -1});
    return kolo_graph_check(g);
}

static kolo_status windows(const char *options, kolo_dataset_opts *windows, llama_size m) {
    kolo_status status = parse(&m, options);
    *windows = (kolo_dataset_opts){.context = m.context, .vocabulary = m.vocabulary};
    return status;
}

#define LLAMA(id, help, rate, last, n_layers, n_width, n_heads, n_kv_heads, n_mlp, n_context,      \
              n_vocabulary)                                                                        \
    static const llama_size id = {#id,       n_layers,     n_width, n_heads, n_kv_heads, n_mlp,    \
                                  n_context, n_vocabulary, 10000,   10,      0};                   \
    static kolo_status build_##id(kolo_graph *g, const kolo_model_opts *opts) {                    \
        return build(g, opts, id);                                                                 \
    }                                                                                              \
    static kolo_status windows_##id(const char *options, kolo_dataset_opts *opts) {                \
        return windows(options, opts, id);                                                         \
    }                                                                                              \
    const kolo_model kolo_model_##id = {                                                           \
        .name = #id,                                                                               \
        .recipe =                                                                                  \
            "optimizer=adamw lr=" rate " beta2=0.95 weight-decay=0.1 "                             \
            "decay-matrices-only=true clip=1 schedule=cosine lr-min=" last " warmup-epochs=2/715", \
        .recipe_source = "Zhang et al., 2024, section 2.3",                                        \
        .summary = help,                                                                           \
        .options_help = "layers=" #n_layers ", width=" #n_width ", heads=" #n_heads                \
                        ", kv_heads=" #n_kv_heads " (heads of keys and values), mlp=" #n_mlp       \
                        ", context=" #n_context " (tokens of a window), vocab=" #n_vocabulary      \
                        ", base=10000 (of the rotary positions), eps=10 (millionths), tied=0 (1: " \
                        "the embedding "                                                           \
                        "is the output matrix)",                                                   \
        .sample = {1, {n_context}},                                                                \
        .classes = n_vocabulary,                                                                   \
        .windows = windows_##id,                                                                   \
        .build = build_##id,                                                                       \
    }

LLAMA(llama, "Llama 2 in the size of TinyLlama 1.1B (Zhang et al., 2024)", "4e-4", "4e-5", 22, 2048,
      32, 4, 5632, 2048, 32000);
LLAMA(llama_tiny, "a small Llama (Touvron et al., 2023)", "1e-3", "1e-4", 4, 128, 4, 2, 352, 128,
      256);

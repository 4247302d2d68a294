#include "support/own_net.h"

#include <stdio.h>

const char *const own_net_rules = "words 0\n"
                                  "*.qkv 0 3\n"
                                  "*.mix 1\n"
                                  "*.gate 0\n"
                                  "*.up 0\n"
                                  "*.down 1\n";

const kolo_field own_net_fields[2] = {
    {"ids", KOLO_DTYPE_I32, {1, {OWN_TOKENS}}, .mean = {0}},
    {"next", KOLO_DTYPE_I32, {1, {OWN_TOKENS}}, .mean = {0}},
};

enum { HIDDEN = 24, NAME = 32 };
static const double drop = 0.1;

static const char *name_of(char name[NAME], int layer, const char *what) {
    snprintf(name, NAME, "layer%d.%s", layer, what);
    return name;
}

/* x [N,T,from] -> [N,T,to]. */
static kolo_value linear(kolo_graph *g, kolo_value x, int layer, const char *what, int64_t from,
                         int64_t to) {
    char name[NAME];
    const kolo_value w =
        kolo_param(g, name_of(name, layer, what), kolo_shape_2(to, from), kolo_init_fan_in(from));
    return kolo_linear(g, x, w);
}

static kolo_value norm(kolo_graph *g, kolo_value x, int layer, const char *what) {
    char name[NAME];
    return kolo_layer_norm(g, x, name_of(name, layer, what), 0);
}

static kolo_value attention(kolo_graph *g, kolo_value x, int layer) {
    const kolo_attention_opts opts = {.heads = OWN_HEADS, .causal = true, .dropout = drop};
    kolo_value y = norm(g, x, layer, "norm1");
    y = linear(g, y, layer, "qkv", OWN_WIDTH, (int64_t)3 * OWN_WIDTH);
    y = linear(g, kolo_attention(g, y, &opts), layer, "mix", OWN_WIDTH, OWN_WIDTH);
    return kolo_add(g, x, kolo_dropout(g, y, drop));
}

static kolo_value gated(kolo_graph *g, kolo_value x, int layer) {
    const kolo_value y = norm(g, x, layer, "norm2");
    const kolo_value gate = kolo_silu(g, linear(g, y, layer, "gate", OWN_WIDTH, HIDDEN));
    const kolo_value up = linear(g, y, layer, "up", OWN_WIDTH, HIDDEN);
    const kolo_value down = linear(g, kolo_mul(g, gate, up), layer, "down", HIDDEN, OWN_WIDTH);
    return kolo_add(g, x, kolo_dropout(g, down, drop));
}

kolo_status own_net_build(kolo_graph *g, int64_t n, void *arg) {
    const kolo_shape windows = kolo_shape_2(n, OWN_TOKENS);
    const int64_t tokens = n * OWN_TOKENS;
    (void)arg;
    const kolo_value ids = kolo_input(g, "ids", KOLO_DTYPE_I32, windows);
    const kolo_value next = kolo_input(g, "next", KOLO_DTYPE_I32, windows);
    const kolo_value words = kolo_param(g, "words", kolo_shape_2(OWN_WORDS, OWN_WIDTH),
                                        (kolo_init){KOLO_INIT_NORMAL, 0.1});
    const kolo_value places = kolo_param(g, "places", kolo_shape_2(OWN_TOKENS, OWN_WIDTH),
                                         (kolo_init){KOLO_INIT_NORMAL, 0.1});
    kolo_value x = kolo_dropout(g, kolo_embedding(g, words, ids, places), drop);
    for (int i = 0; i < OWN_LAYERS; i++) x = gated(g, attention(g, x, i), i);
    x = kolo_reshape(g, norm(g, x, OWN_LAYERS, "norm"), kolo_shape_2(tokens, OWN_WIDTH));
    const kolo_value logits = kolo_linear(g, x, words);
    const kolo_value labels = kolo_reshape(g, next, kolo_shape_1(tokens));
    kolo_output(g, "logits", logits);
    kolo_output(g, "loss", kolo_softmax_xent(g, logits, labels));
    kolo_output(g, "correct", kolo_accuracy(g, logits, labels));
    return KOLO_OK;
}

void own_net_fill(int64_t first, int64_t count, int32_t *ids, int32_t *next) {
    for (int64_t i = 0; i < count * OWN_TOKENS; i++) {
        const int64_t at = first * OWN_TOKENS + i + 1;
        ids[i] = (int32_t)((at * at + 7 * at) % OWN_WORDS);
        next[i] = (int32_t)((3 * ids[i] + at % 2) % OWN_WORDS);
    }
}

kolo_status own_net_batch(const kolo_session *session, int step, own_net_samples *samples,
                          kolo_batch *batch) {
    int64_t first, count;
    const kolo_status status = kolo_session_share(session, OWN_SAMPLES, &first, &count);
    if (status != KOLO_OK) return status;
    own_net_fill(step % OWN_BATCHES * OWN_SAMPLES + first, count, samples->ids, samples->next);
    *batch = (kolo_batch){.count = count,
                          .first = first,
                          .n_fields = 2,
                          .fields = own_net_fields,
                          .data = {samples->ids, samples->next}};
    return KOLO_OK;
}

kolo_status own_net_loop(kolo_session *session, const kolo_dataset *data, int64_t epochs) {
    kolo_loader *loader;
    kolo_batch batch;
    kolo_status status = kolo_session_loader(session, data, NULL, epochs, &loader);
    if (status != KOLO_OK) return status;
    while (status == KOLO_OK) {
        status = kolo_loader_next(loader, &batch);
        if (status != KOLO_OK || batch.global_count == 0) break;
        status = kolo_session_step(session, &batch, NULL);
    }
    kolo_loader_destroy(loader);
    return status;
}

/* Mixture-of-experts layers: a router sends each token to a few of many feed-forward networks.
 * Shazeer et al., "Outrageously large neural networks: the sparsely-gated mixture-of-experts
 * layer", 2017; Lepikhin et al., "GShard", 2021; Fedus, Zoph, Shazeer, "Switch Transformers", 2022;
 * Jiang et al., "Mixtral of experts", 2024.
 *
 *     p = softmax(gate(x)); gates: p of the chosen experts, with several divided by their sum
 *     y = sum over the experts of gates times c_proj(GELU(c_fc(x)))
 *
 * Capacity and balance loss are of each sequence by itself, as the sequence-wise loss of
 * DeepSeek-V3 (2024) is, so the sum over the samples of a batch does not depend on how ranks divide
 * it: with f the share of the choices that fall on an expert and P its mean probability, experts
 * times the sum of f P over the experts (Switch Transformers, equation 4). Experts have no biases,
 * as in Mixtral.
 */
#include "models/experts.h"

#include "models/sequence.h"

#include <stdio.h>

static kolo_value weight(kolo_graph *g, const char *name, const char *part, kolo_shape shape,
                         double deviation) {
    char text[MODEL_NAME + 32];
    snprintf(text, sizeof text, "%s.%s.weight", name, part);
    return kolo_param(g, text, shape, (kolo_init){KOLO_INIT_NORMAL, deviation});
}

/* The places of an expert in a sequence: 1 to all of its tokens. */
static int64_t capacity_of(const model_experts_opts *o, int64_t tokens) {
    const int64_t even = 100 * o->experts;
    const int64_t places = (o->capacity * o->top * tokens + even - 1) / even;
    return places < tokens ? places : tokens;
}

kolo_value model_experts(kolo_graph *g, const char *name, kolo_value x, const model_experts_opts *o,
                         kolo_value *balance) {
    const int64_t e = o->experts, tokens = kolo_value_shape(g, x).dim[1];
    const int of_experts = 2, of_tokens = 1;
    kolo_value gate = weight(g, name, "gate", kolo_shape_2(e, o->width), o->deviation);
    kolo_value c_fc =
        weight(g, name, "experts.c_fc", kolo_shape_3(e, o->hidden, o->width), o->deviation);
    kolo_value c_proj =
        weight(g, name, "experts.c_proj", kolo_shape_3(e, o->width, o->hidden), o->back);
    kolo_value p = kolo_softmax(g, kolo_linear(g, x, gate), of_experts), route[2];
    const int64_t capacity = capacity_of(o, tokens);
    kolo_expert_route(g, p, o->top, capacity, route);
    const kolo_value places = route[0], chosen = route[1];
    kolo_value gates = kolo_mul(g, p, chosen);
    if (o->top > 1) gates = kolo_div(g, gates, kolo_reduce_sum(g, gates, &of_experts, 1, true));
    kolo_value y = kolo_expert_dispatch(g, x, places, capacity);
    y = kolo_expert_linear(g, kolo_gelu(g, kolo_expert_linear(g, y, c_fc), true), c_proj);
    kolo_value share = kolo_reduce_mean(g, chosen, &of_tokens, 1, false);
    kolo_value mean = kolo_reduce_mean(g, p, &of_tokens, 1, false);
    *balance =
        kolo_scale(g, kolo_sum(g, kolo_mul(g, share, mean)), (double)(e * tokens) / (double)o->top);
    return kolo_expert_combine(g, y, places, gates);
}

#pragma once
/* Mixture-of-experts layers of transformers. */

#include "kolo/models.h"

typedef struct model_experts_opts {
    int64_t experts, top; /* each token goes to `top` of them */
    int64_t capacity; /* tokens of a sequence that an expert takes, in percent of an even share */
    int64_t width, hidden;
    double deviation, back; /* standard deviations of initial weights: of all, and of the last */
} model_experts_opts;

/* x [N,T,width] -> the weighted sum of the experts' outputs, [N,T,width]: zero for tokens without a
 * place. Adds the parameters NAME.gate.weight [E,width], NAME.experts.c_fc.weight [E,hidden,width]
 * and NAME.experts.c_proj.weight [E,width,hidden]. *balance: the balance loss of all tokens, a
 * scalar that is the number of tokens where experts are chosen evenly. */
kolo_value model_experts(kolo_graph *g, const char *name, kolo_value x,
                         const model_experts_opts *opts, kolo_value *balance);

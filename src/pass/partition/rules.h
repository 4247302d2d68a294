#pragma once
/* Rules of tensor parallelism: which parameters the axes of a mesh other than dp divide, and how.
 *
 *     *.mlp.c_fc.weight   0        # sharded along dimension 0
 *     *.attn.c_attn.weight 0 3     # each of 3 equal parts of dimension 0: queries, keys, values
 *     features.*          samples  # whole; each rank computes the layer for some of the samples
 *     lm_head.weight      whole    # as without a rule
 *
 *     sums                1        # activations [N,T,C] that are sums over the ranks: each has a
 *                                  # slice of dimension 1, the positions (sequence parallelism),
 *                                  # or of dimension 0, the samples
 *
 *     attention           ring     # on the axis sp keys and values go round; without the rule
 *                                  # each rank gets some of the heads
 *     attention           zigzag   # the same, and each rank has two ranges of the positions, as
 *                                  # far from the ends as each other
 *
 * A line for each rule: a pattern of parameter names (kolo/pass.h), a placement, and a comment
 * after '#'. The first rule that matches a parameter holds. */

#include "mesh/mesh.h"

#include <stdbool.h>

enum {
    KOLO_PLACE_WHOLE = -1,
    KOLO_PLACE_SAMPLES = -2,
    KOLO_PLACE_RING = -3,
    KOLO_PLACE_ZIGZAG = -4,
};

typedef struct kolo_placement_rule {
    char pattern[128];
    int dim;    /* or KOLO_PLACE_.. */
    int blocks; /* equal parts of the dimension, each of which is sharded; 0: one */
} kolo_placement_rule;

/* The first rule that matches the name of a parameter; its dim is KOLO_PLACE_WHOLE where there is
 * none. ARG: a line that is no rule, with its number. */
kolo_status kolo_placement_rule_of(const char *text, const char *name, kolo_placement_rule *rule);
/* The same for "sums" or "attention", which no pattern stands for. */
kolo_status kolo_placement_keyword(const char *text, const char *keyword,
                                   kolo_placement_rule *rule);
/* Whether the rule is that keys and values go round. */
static inline bool kolo_placement_rings(const kolo_placement_rule *rule) {
    return rule->dim == KOLO_PLACE_RING || rule->dim == KOLO_PLACE_ZIGZAG;
}
/* The built-in rules "megatron", "megatron-sp", "owt", "ring" and "zigzag", and those of all
 * models: NULL. NULL: no such name. */
const char *kolo_placement_rules(const char *name);
/* The rules of --placement for a mesh; NULL for NULL. Free *text with kolo_free. ARG: neither
 * built-in rules, a text nor a file of rules, or the mesh lacks the axis that they divide. NOMEM.
 */
kolo_status kolo_placement_read(const char *placement, const kolo_mesh *mesh, char **text);

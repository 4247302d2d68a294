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
 * A line for each rule: a pattern of parameter names (kolo/pass.h), a placement, and a comment
 * after '#'. The first rule that matches a parameter holds. */

#include "base/status.h"

#include <stdbool.h>

enum { KOLO_PLACE_WHOLE = -1, KOLO_PLACE_SAMPLES = -2 };

typedef struct kolo_placement_rule {
    char pattern[128];
    int dim;    /* or KOLO_PLACE_WHOLE, KOLO_PLACE_SAMPLES */
    int blocks; /* equal parts of the dimension, each of which is sharded; 0: one */
} kolo_placement_rule;

/* Reads the rule at *text and moves *text behind it; false at the end. `line` counts lines, from 0.
 * ARG: a line that is none, with its number. */
kolo_status kolo_placement_rule_next(const char **text, int *line, kolo_placement_rule *rule,
                                     bool *found);
/* The built-in rules "megatron", "megatron-sp" and "owt", and those of all models: NULL. NULL: no
 * such name. */
const char *kolo_placement_rules(const char *name);
/* The built-in rules of that name, else those of the file, which are checked; free *text with
 * kolo_free. ARG: neither, or no rules. NOMEM. */
kolo_status kolo_placement_rules_read(const char *name, char **text);

#pragma once
/* What a session requires of the graph of a model, and what it reads from it. */

#include "train/session/session.h"

/* The labels that the loss divides by. */
typedef struct kolo_label_rule {
    int input;    /* that holds them: its number among the inputs of the graph; -1: a sample counts
                     as one */
    bool ignores; /* a loss ignores `ignored`: only labels of [0, classes) other than it count */
    int64_t classes;
    int32_t ignored;
    const char *weights; /* the parameter with those of the classes, by whose sum the loss is
                            divided; of the graph; NULL: 1 */
} kolo_label_rule;

/* Checks that "x", "y" and every scalar of a graph are what the session fills for `batch` samples,
 * and that the outputs which metrics are computed from are scalars computed from them. ARG, with
 * the name. */
kolo_status kolo_model_check(const kolo_session_config *opts, int64_t batch, const kolo_graph *g);
/* Checks that the data has a field for every input. ARG, naming the input. */
kolo_status kolo_model_check_fields(const kolo_session_config *opts, const kolo_graph *g,
                                    const kolo_dataset_info *data);
/* The labels that cross-entropies read, else an i32 input "y". If they read several inputs, samples
 * count. ARG: two losses ignore different labels. */
kolo_status kolo_label_rule_find(const kolo_graph *g, kolo_label_rule *rule);

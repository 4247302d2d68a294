#pragma once
/* Losses, and what is counted of predictions. */

#include "graph/graph.h"

/* softmax_xent: logits [N,C,...], labels i32 [N,...], [weights [C]] -> loss [] (sum over all
 * labels), probs [N,C,...]. With the target t = weights ((1 - smoothing) onehot + smoothing / C) a
 * label's loss is -sum t log probs. With count, output 2 is that of accuracy. softmax_xent_bwd:
 * probs, labels, dloss [], [weights] -> dlogits = (probs sum t - t) * dloss. accuracy: logits,
 * labels -> count [] (of the graph's dtype). confusion: logits, labels -> counts [C,C]: those of
 * label i whose largest logit is j at [i,j]. A label outside [0, C), or the ignore index,
 * contributes no loss, gradient or count. */
enum {
    KOLO_LOSS_HAS_IGNORE_INDEX,
    KOLO_LOSS_IGNORE_INDEX,
    KOLO_LOSS_SMOOTHING,
    KOLO_LOSS_COUNT,  /* xent */
    KOLO_LOSS_CLASSES /* sums_xent */
};
extern const kolo_op kolo_op_softmax_xent, kolo_op_softmax_xent_bwd, kolo_op_accuracy,
    kolo_op_confusion;

/* score_counts: scores [...], labels, i32 or numbers, of that shape -> counts [2,2^bits] (of the
 * graph's dtype): of labels up to 1/2 in row 0, of others in row 1, by the bin of the score. A
 * label below 0 is not counted. */
enum { KOLO_SCORE_BITS };

/* The bin of a score, a truncation to its first `bits` bits: bins have the order of the scores. */
static inline int64_t kolo_score_bin(float score, int64_t bits) {
    const union {
        float number;
        uint32_t bits;
    } as = {.number = score + 0.0F}; /* no -0 */
    const uint32_t ordered = as.bits >> 31 ? ~as.bits : as.bits | 1U << 31;
    return ordered >> (32 - bits);
}
extern const kolo_op kolo_op_score_counts;

/* Softmax cross-entropy of logits that are sharded along the classes, of which a rank has those
 * from `first` on. class_max: logits [N,C,...] -> m [N,...], the largest. class_sums: logits, m,
 * labels -> sums [4,N,...]: of e^(logit - m); the logit of the label, less m; of logit - m; and how
 * many logits show that the label is not the first largest: 0 if it is. class_sums_bwd: dsums,
 * logits, m, labels -> dlogits; the last row has no gradient. sums_xent: sums, labels -> loss [],
 * [count []], as of softmax_xent for all `classes`. sums_xent_bwd: sums, labels, dloss [] -> dsums.
 * kolo_divide_xent adds the nodes that replace a softmax_xent (kolo_op.divide). */
enum { KOLO_CLASS_SUMS = 4 };
enum { KOLO_CLASS_FIRST };
void kolo_divide_xent(kolo_graph *g, const kolo_node *n, int64_t classes, kolo_value *by);
extern const kolo_op kolo_op_class_max, kolo_op_class_sums, kolo_op_class_sums_bwd,
    kolo_op_sums_xent, kolo_op_sums_xent_bwd;

/* ctc_loss: logits [N,T,C], labels i32 [N,S], [lengths i32 [N]] -> loss []. ctc_loss_bwd: logits,
 * labels, dloss [], [lengths] -> dlogits. */
enum { KOLO_CTC_BLANK };
extern const kolo_op kolo_op_ctc_loss, kolo_op_ctc_loss_bwd;

/* elementwise_loss: x, target like x -> loss [], the sum of the losses of all elements
 * (elementwise_loss.c has the formulas). elementwise_loss_bwd: x, target, dloss [] -> dx. */
enum { KOLO_ELEMENTWISE_LOSS_KIND, KOLO_ELEMENTWISE_LOSS_DELTA };
enum { KOLO_LOSS_MSE, KOLO_LOSS_L1, KOLO_LOSS_HUBER, KOLO_LOSS_BCE, KOLO_LOSS_KIND_COUNT };
extern const kolo_op kolo_op_elementwise_loss, kolo_op_elementwise_loss_bwd;

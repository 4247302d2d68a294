#pragma once
/* Updates of parameters, norms of gradients, sums over micro-batches. */

#include "graph/graph.h"

/* sgd: w, g, lr [], [v] -> w', [v']; with d = g + weight_decay w: v' = momentum v + d and
 * w' = w - lr v' (nesterov: w' = w - lr (d + momentum v')); without v (momentum 0): w' = w - lr d.
 * As in PyTorch (dampening 0); the first step has v = 0, so v' = d. */
enum { KOLO_SGD_MOMENTUM, KOLO_SGD_WEIGHT_DECAY, KOLO_SGD_NESTEROV };
extern const kolo_op kolo_op_sgd;

/* delayed_sgd: w, g, lr [], update [], v, s -> w', v', s': Nesterov's momentum, of which every
 * delay-th update alone changes the velocity v, by the mean of the gradients since, whose sum is s
 * (Liu et al., "Asynchronous local-SGD training for language modeling", 2024, algorithm 3). With d
 * = g + weight_decay w, n = delay and c = ahead, at most 1 / n: where n divides `update`, v' =
 * momentum v + (s + d) / n, s' = 0 and w' = w - lr (d / n + (1 - (n - 1) c) momentum v'); elsewhere
 * v' = v, s' = s + d and w' = w - lr (d / n + c momentum v). With a delay of 1: sgd with nesterov.
 */
enum {
    KOLO_DELAYED_SGD_MOMENTUM,
    KOLO_DELAYED_SGD_WEIGHT_DECAY,
    KOLO_DELAYED_SGD_DELAY,
    KOLO_DELAYED_SGD_AHEAD,
};
extern const kolo_op kolo_op_delayed_sgd;

/* adam: w, g, lr [], update [], m, v -> w', m', v', `update` counts updates from 1; with d = g +
 * weight_decay w (decoupled: d = g, and w is multiplied by 1 - lr weight_decay first): m' = beta1 m
 * + (1 - beta1) d, v' = beta2 v + (1 - beta2) d^2 and w' = w - lr (m' / (1 - beta1^update)) /
 * (sqrt(v' / (1 - beta2^update)) + eps). With `frozen`, g is m' itself, but 0 where v is 0; v'
 * = v, which is of the update of that number: beta2^frozen takes the place of beta2^update. */
enum {
    KOLO_ADAM_BETA1,
    KOLO_ADAM_BETA2,
    KOLO_ADAM_EPS,
    KOLO_ADAM_WEIGHT_DECAY,
    KOLO_ADAM_DECOUPLED,
    KOLO_ADAM_FROZEN,
};
extern const kolo_op kolo_op_adam;

/* lars: w, g, lr [], v, [w_blocks, g_blocks] -> w', v': v' = momentum v + lr rate (g + weight_decay
 * w), w' = w - v', with rate = trust |w| / (|g| + weight_decay |w|); 1 without the blocks or where
 * a norm is 0. The learning rate is part of v, as in the paper. */
enum { KOLO_LARS_MOMENTUM, KOLO_LARS_WEIGHT_DECAY, KOLO_LARS_TRUST };
extern const kolo_op kolo_op_lars;

/* lamb: w, g, update [], m, v -> m', v', u: the moments of adam (decoupled), and u = (m' / (1 -
 * beta1^update)) / (sqrt(v' / (1 - beta2^update)) + eps) + weight_decay w. The first attributes are
 * adam's. lamb_step: w, u, lr [], [w_blocks, u_blocks] -> w' = w - lr rate u, with rate = |w| /
 * |u|; 1 without the blocks or where a norm is 0. */
extern const kolo_op kolo_op_lamb, kolo_op_lamb_step;

/* sgd_rows: w [V,C], rows, ids, lr [] -> w': w - lr times the rows. adam_rows: w, rows, ids, lr [],
 * update [], m, v -> w', m', v': for rows in ids, m' = beta1 m + (1 - beta1) row, v' = beta2 v + (1
 * - beta2) row^2 and w' = w - lr sqrt(1 - beta2^update) / (1 - beta1^update) m' / (sqrt(v') + eps);
 * other rows keep their values. As PyTorch's SparseAdam: eps differs from kolo_op_adam, and the
 * moments of a row decay only when it occurs. The first three attributes are adam's. */
extern const kolo_op kolo_op_sgd_rows, kolo_op_adam_rows;

/* Norms of whole tensors. square_blocks: x -> [blocks]: the sum of the squares of each block of
 * KOLO_SQUARE_BLOCK elements, the last one maybe shorter, in row-major order. With `all`, x has the
 * blocks from `first` on of `all`, and the others are 0. square_sum: blocks,
 * [sum []] -> sum + the sum of the blocks, in order. With `all`: blocks, [sums [all]] -> sums
 * [all], of which number `place` is the sum of the blocks, 0 before; the others are 0 without the
 * input. The results thus depend neither on the layout of x nor on threads, nor on which rank
 * computes which blocks or has which parameters. clip_factor: sum [] -> min(1, norm / (sqrt(sum) +
 * 1e-6)). All are with_updates: they read synchronized gradients. */
enum { KOLO_SQUARE_BLOCK = 4096 };
enum { KOLO_SQUARE_FIRST, KOLO_SQUARE_ALL };    /* square_blocks */
enum { KOLO_SQUARE_PLACE, KOLO_SQUARE_PLACES }; /* square_sum: place, all */
static inline int64_t kolo_square_blocks(int64_t elements) {
    return (elements + KOLO_SQUARE_BLOCK - 1) / KOLO_SQUARE_BLOCK;
}
enum { KOLO_CLIP_NORM };
extern const kolo_op kolo_op_square_blocks, kolo_op_square_sum, kolo_op_clip_factor;

/* accumulate: x, fresh [] -> sum over the micro-batches of a step: x if fresh is not 0, else
 * keep * sum + x, with the previous contents of its memory as sum. No other value may share that
 * memory. Added by the accumulate pass. */
enum { KOLO_ACCUMULATE_KEEP };
extern const kolo_op kolo_op_accumulate;

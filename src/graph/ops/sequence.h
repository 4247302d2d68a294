#pragma once
/* Ops on tokens: embeddings, masking, recurrence, positions, mixtures of experts. */

#include "graph/graph.h"

/* embedding: w [V,C], ids i32 [N,T], [p [P,C]] -> y [N,T,C] with y[n,t] = w[ids[n,t]] + p[position
 * + t]. An id outside [0, V) selects a row of zeros. embedding_bwd: dy, ids, [w] -> dw [rows,C]; w
 * states that the table is sharded and is not read. position_bwd: dy [N,T,C] -> dp [rows,C], zero
 * but for T rows from `position` on. With `length` the positions are those of kolo_position_of. Row
 * 0 of a sharded table is that of id `first`. embedding has no rows. */
enum { KOLO_EMBEDDING_ROWS, KOLO_EMBEDDING_FIRST, KOLO_EMBEDDING_POSITION, KOLO_EMBEDDING_LENGTH };
/* The position of element t of `count` that begin with position `first`. With `length` they are two
 * ranges of a sequence of that length, as far from its ends as each other (zigzag): equally long,
 * or one range in the middle of any length. */
static inline int64_t kolo_position_of(int64_t first, int64_t length, int64_t count, int64_t t) {
    return length == 0 || t < count / 2 ? first + t : length - first - count + t;
}
/* By how much the positions of the second range are further than if it followed the first. */
static inline int64_t kolo_position_jump(int64_t first, int64_t length, int64_t count) {
    return length == 0 ? 0 : length - 2 * first - count;
}
extern const kolo_op kolo_op_embedding, kolo_op_embedding_bwd, kolo_op_position_bwd;

/* Row-sparse gradients, {rows [R,C], ids i32 [R]}, of tables [V,C]: ids are unique and
 * ascending, followed by -1 with rows of zeros. embedding_bwd_rows: dy [N,T,C], ids i32 [N,T], [w
 * [V,C]] -> rows, ids, the rows of embedding_bwd's dw for the ids that occur; w, a slice of the
 * table that begins with row `first`, makes the result one of it, and is not read. merge_rows: rows
 * [M,C], ids i32 [M] in any order, or -1 -> rows, ids; rows of one id are summed in their order. V
 * is `table`, R is the capacity `room`, at least the minimum of V and the number of input ids.
 * merge_rows is with_updates. accumulate_rows: rows [M,C], ids i32 [M] of a micro-batch, fresh ->
 * rows, ids: their sum with those that the outputs have, or with fresh not 0 they alone, as
 * accumulate (update.h). */
enum { KOLO_ROWS_TABLE, KOLO_ROWS_ROOM, KOLO_ROWS_FIRST };
extern const kolo_op kolo_op_embedding_bwd_rows, kolo_op_merge_rows, kolo_op_accumulate_rows;

/* mask_tokens: rng_key i64 [], first_sample i64 [], ids i32 [N,T], y i32 [N,T] -> masked, labels,
 * segments, all i32 [N,T], [random i32 [N]]: selects `count` tokens of
 * each window, one from each of as many nearly equal sections. Their labels are their ids, all
 * others -1. Of the selected ids 80 % become `mask`, 10 % a random id below `vocabulary`, 10 %
 * stay. A token with y below 0 is replaced by the next in its section with y of 0 or more; without
 * one the section is skipped. Segments are 0. With `pairs`, y is encoded as in kolo/data.h:
 * segments are 1 for tokens of second sentences; random is 1 for windows with a random second
 * sentence, else 0, and -1 if the first y is -1. Random numbers as for dropout. */
enum { KOLO_MASK_COUNT, KOLO_MASK_ID, KOLO_MASK_VOCABULARY, KOLO_MASK_PAIRS };
extern const kolo_op kolo_op_mask_tokens;

/* Mixtures of experts. expert_route: p [N,T,E] -> places i32 [N,T,E], chosen [N,T,E]: the `top`
 * largest of each token, the first of equal ones, are chosen; the place of a token is the number of
 * tokens of the sample before it that chose the expert, or -1 where that is `capacity` or more.
 * expert_dispatch: x [N,T,C], places, [gates [N,T,E]] -> y [E,N,capacity,C]: the sum of x[n,t]
 * (times gates[n,t,e]) over the tokens with a place of p at [e,n,p]. expert_combine: y [E,N,P,C],
 * places, [gates] -> x [N,T,C]: the sum over e of y[e,n,places[n,t,e]] (times gates[n,t,e]),
 * without places outside [0, P). expert_products: x, y, places -> [N,T,E]: the product of x[n,t]
 * and y[e,n,places[n,t,e]], the gradient of gates. */
enum { KOLO_EXPERT_CAPACITY, KOLO_EXPERT_TOP };
extern const kolo_op kolo_op_expert_route, kolo_op_expert_dispatch, kolo_op_expert_combine,
    kolo_op_expert_products;

/* lstm: gx [N,T,4H] (gate contributions of the input: input, forget, cell, output), w [4H,H], b
 * [4H], [h0, c0 [N,H]: the state before the first step, else zero] -> h [N,T,H], gates [N,T,4H]
 * (after sigmoid or tanh), c [N,T,H]. lstm_bwd: dh, gates, c, w, [c0] -> dgx, [dh0, dc0 with c0].
 * gru: gx [N,T,3H] (reset, update, new), w [3H,H], b [3H], [h0] -> h, gates [N,T,3H], q [N,T,H]:
 * the part of h[t-1] in the new gate before the reset. gru_bwd: dh, gates, q, h, w, [h0] -> dgx,
 * dgh (of w h[t-1] + b), [dh0 with h0]. shift: x [N,T,C] -> y[n,t] = x[n,t-1], zero for t = 0;
 * back: y[n,t] = x[n,t+1], zero for the last.
 */
enum { KOLO_SHIFT_BACK };
extern const kolo_op kolo_op_lstm, kolo_op_lstm_bwd, kolo_op_gru, kolo_op_gru_bwd, kolo_op_shift;

/* rotary: x [N,T,C], [positions i32 [N,T]] -> y: in each head at position t + first, or
 * positions[n,t], the pairs (i, i + D / 2) of its D channels are rotated by the position
 * times base^(-2 i / D), `inverse` backwards. causal_mask: x
 * [...,T,S]
 * -> y: `fill` where key j is after query i, j > i + S - T, and with a `window` where it is that
 * many or more before it. */
enum {
    KOLO_ROTARY_HEADS,
    KOLO_ROTARY_BASE,
    KOLO_ROTARY_FIRST,
    KOLO_ROTARY_INVERSE,
    KOLO_ROTARY_LENGTH, /* see kolo_position_of */
};
enum { KOLO_CAUSAL_FILL, KOLO_CAUSAL_WINDOW };
extern const kolo_op kolo_op_rotary, kolo_op_causal_mask;

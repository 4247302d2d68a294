/* How the ops of sequences are written in ONNX: attention, positions, recurrent layers. */
#include "graph/ops/ops.h"
#include "onnx/export/call.h"

#include <math.h>

/* [rows,columns] with `fill` where a column is after the row's own, or `window` (0: none) or more
 * before it. */
static const char *unseen(onnx_export *c, int64_t rows, int64_t columns, int64_t window,
                          double fill) {
    const kolo_shape shape = kolo_shape_2(rows, columns);
    float *data;
    const char *name = onnx_add_constant(c->w, NULL, &shape, &data);
    for (int64_t k = 0; k < rows * columns && !c->w->failed; k++) {
        const int64_t own = k / columns + columns - rows, at = k % columns;
        data[k] = at > own || (window > 0 && at <= own - window) ? (float)fill : 0;
    }
    return name;
}
static const double lowest = -1e30; /* a score that softmax makes 0 */

kolo_status onnx_export_causal_mask(onnx_export *c) {
    const kolo_shape *s = c->x;
    onnx_emit(
        c->w, "Add", c->out, c->in[0],
        unseen(c, s->dim[s->rank - 2], s->dim[s->rank - 1], integer(c, KOLO_CAUSAL_WINDOW), lowest),
        NULL);
    return KOLO_OK;
}

/* softmax(q k^T / sqrt(D)) v by heads. */
kolo_status onnx_export_attention(onnx_export *c) {
    static const int64_t by_head[] = {0, 2, 1, 3}, keys[] = {0, 2, 3, 1};
    const int64_t heads = integer(c, KOLO_ATTENTION_HEADS), tokens = c->x->dim[1];
    const int64_t width = c->y->dim[2] / heads,
                  parts[] = {c->y->dim[2], c->y->dim[2], c->y->dim[2]};
    const int64_t cut[] = {0, tokens, heads, width}, whole[] = {0, tokens, heads * width};
    if (c->n->n_in > KOLO_ATTENTION_INPUTS + kolo_attention_draws(c->n->attr)) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "attention with a mask cannot be exported to ONNX");
    }
    const char *sizes = onnx_int_list(c->w, parts, 3), *shape = onnx_int_list(c->w, cut, 4),
               *part[3];
    part[0] = onnx_emit(c->w, "Split", NULL, c->in[0], sizes, NULL);
    onnx_add_int(c->w, "axis", 2);
    part[1] = onnx_add_output(c->w, NULL);
    part[2] = onnx_add_output(c->w, NULL);
    for (int k = 0; k < 3; k++) {
        part[k] = onnx_emit(c->w, "Reshape", NULL, part[k], shape, NULL);
        part[k] = transposed(c, part[k], k == 1 ? keys : by_head, 4);
    }
    const char *p = onnx_emit(c->w, "MatMul", NULL, part[0], part[1], NULL);
    p = onnx_emit(c->w, "Mul", NULL, p, onnx_number_constant(c->w, 1 / sqrt((double)width)), NULL);
    if (integer(c, KOLO_ATTENTION_CAUSAL)) {
        p = onnx_emit(c->w, "Add", NULL, p, unseen(c, tokens, tokens, 0, lowest), NULL);
    }
    p = onnx_emit(c->w, "Softmax", NULL, p, NULL, NULL);
    onnx_add_int(c->w, "axis", -1);
    const char *y = transposed(c, onnx_emit(c->w, "MatMul", NULL, p, part[2], NULL), by_head, 4);
    onnx_emit(c->w, "Reshape", c->out, y, onnx_int_list(c->w, whole, 3), NULL);
    return KOLO_OK;
}

/* Halves a, b of each head: a cos - b sin, b cos + a sin. */
kolo_status onnx_export_rotary(onnx_export *c) {
    const int64_t heads = integer(c, KOLO_ROTARY_HEADS), tokens = c->x->dim[1];
    const int64_t width = c->x->dim[2] / heads, half = width / 2, parts[] = {half, half};
    const int64_t cut[] = {0, tokens, heads, width}, whole[] = {0, tokens, heads * width};
    const double sign = integer(c, KOLO_ROTARY_INVERSE) ? -1 : 1;
    const kolo_shape table = kolo_shape_3(tokens, 1, half);
    float *cosines, *sines;
    const char *cosine = onnx_add_constant(c->w, NULL, &table, &cosines);
    const char *sine = onnx_add_constant(c->w, NULL, &table, &sines);
    for (int64_t k = 0; k < tokens * half && !c->w->failed; k++) {
        const double t = (double)(k / half + integer(c, KOLO_ROTARY_FIRST));
        const double angle = t * pow(real(c, KOLO_ROTARY_BASE), -(double)(k % half) / (double)half);
        cosines[k] = (float)cos(angle);
        sines[k] = (float)(sign * sin(angle));
    }
    const char *x = onnx_emit(c->w, "Reshape", NULL, c->in[0], onnx_int_list(c->w, cut, 4), NULL);
    const char *a = onnx_emit(c->w, "Split", NULL, x, onnx_int_list(c->w, parts, 2), NULL);
    onnx_add_int(c->w, "axis", 3);
    const char *b = onnx_add_output(c->w, NULL);
    const char *first = onnx_emit(c->w, "Sub", NULL, onnx_emit(c->w, "Mul", NULL, a, cosine, NULL),
                                  onnx_emit(c->w, "Mul", NULL, b, sine, NULL), NULL);
    const char *second = onnx_emit(c->w, "Add", NULL, onnx_emit(c->w, "Mul", NULL, b, cosine, NULL),
                                   onnx_emit(c->w, "Mul", NULL, a, sine, NULL), NULL);
    const char *y = onnx_emit(c->w, "Concat", NULL, first, second, NULL);
    onnx_add_int(c->w, "axis", 3);
    onnx_emit(c->w, "Reshape", c->out, y, onnx_int_list(c->w, whole, 3), NULL);
    return KOLO_OK;
}

/* Tokens that are masked already, in a single segment. */
kolo_status onnx_export_mask_tokens(onnx_export *c) {
    onnx_emit(c->w, "Identity", c->out, c->in[2], NULL, NULL);
    const int64_t zero = 0;
    const char *shape = onnx_emit(c->w, "Shape", NULL, c->in[2], NULL, NULL);
    onnx_emit(c->w, "Expand", onnx_name(c->w, c->n->out[2]), onnx_int_list(c->w, &zero, 1), shape,
              NULL);
    return KOLO_OK;
}

/* A recurrent layer: gate k of ONNX is our gate order[k]. */
typedef struct recurrent {
    const char *op;
    int gates, order[4];
} recurrent;

/* Rows [gates H,...] with the gates in ONNX's order. */
static const char *gates(onnx_export *c, const recurrent *r, const char *rows, int64_t hidden) {
    const int *order = r->order;
    const int64_t axis = 0;
    const char *part[4], *axes = onnx_int_list(c->w, &axis, 1);
    for (int k = 0; k < r->gates; k++) {
        const int64_t first = order[k] * hidden, end = first + hidden;
        part[k] = onnx_emit(c->w, "Slice", NULL, rows, onnx_int_list(c->w, &first, 1),
                            onnx_int_list(c->w, &end, 1));
        onnx_add_input(c->w, axes);
    }
    const char *y = onnx_emit(c->w, "Concat", NULL, part[0], part[1], part[2]);
    if (r->gates > 3) onnx_add_input(c->w, part[3]);
    onnx_add_int(c->w, "axis", 0);
    return y;
}

/* The contributions of the input are gx already: its weights are the identity. */
static kolo_status recurrent_layer(onnx_export *c, const recurrent *layer) {
    static const int64_t time_first[] = {1, 0, 2}, batch_first[] = {1, 0, 2};
    const int64_t hidden = c->y->dim[2], wide = layer->gates * hidden, zero = 0, one = 1;
    const kolo_shape square = kolo_shape_2(wide, wide);
    float *data, *none;
    const char *identity = onnx_add_constant(c->w, NULL, &square, &data);
    for (int64_t k = 0; k < wide && !c->w->failed; k++) data[k * wide + k] = 1;
    const kolo_shape row = kolo_shape_1(wide);
    const char *zeros = onnx_add_constant(c->w, NULL, &row, &none),
               *axis = onnx_int_list(c->w, &zero, 1);
    const char *w =
        onnx_emit(c->w, "Unsqueeze", NULL, gates(c, layer, identity, hidden), axis, NULL);
    const char *r =
        onnx_emit(c->w, "Unsqueeze", NULL, gates(c, layer, c->in[1], hidden), axis, NULL);
    const char *own = gates(c, layer, c->in[2], hidden);
    const char *both = onnx_emit(c->w, "Concat", NULL, zeros, own, NULL); /* W, R */
    onnx_add_int(c->w, "axis", 0);
    const char *b = onnx_emit(c->w, "Unsqueeze", NULL, both, axis, NULL);
    const char *state[2];
    for (int k = 3; k < c->n->n_in; k++) {
        state[k - 3] = onnx_emit(c->w, "Unsqueeze", NULL, c->in[k], axis, NULL);
    }
    const char *x = transposed(c, c->in[0], time_first, 3);
    const char *y = onnx_emit(c->w, layer->op, NULL, x, w, r);
    onnx_add_input(c->w, b);
    if (c->n->n_in > 3) onnx_add_input(c->w, ""); /* all sequences have the same length */
    for (int k = 3; k < c->n->n_in; k++) onnx_add_input(c->w, state[k - 3]);
    onnx_add_int(c->w, "hidden_size", hidden);
    if (layer->gates == 3) onnx_add_int(c->w, "linear_before_reset", 1);
    const char *flat = onnx_emit(c->w, "Squeeze", NULL, y, onnx_int_list(c->w, &one, 1), NULL);
    onnx_emit(c->w, "Transpose", c->out, flat, NULL, NULL);
    onnx_add_ints(c->w, "perm", batch_first, 3);
    return KOLO_OK;
}

/* Input, output, forget, cell. */
kolo_status onnx_export_lstm(onnx_export *c) {
    return recurrent_layer(c, &(recurrent){"LSTM", 4, {0, 3, 1, 2}});
}

/* Update, reset, new. */
kolo_status onnx_export_gru(onnx_export *c) {
    return recurrent_layer(c, &(recurrent){"GRU", 3, {1, 0, 2}});
}

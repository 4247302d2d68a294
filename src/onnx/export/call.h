#pragma once
/* A node while it is written. */

#include "onnx/export/writer.h"

typedef struct onnx_export {
    onnx_writer *w;
    const kolo_node *n, *other; /* of the graphs for 2 and 3 samples */
    const char *in[KOLO_MAX_IO], *out;
    const kolo_shape *x, *y; /* of input 0 and output 0 */
} onnx_export;

static inline const kolo_shape *shape_of(const onnx_export *c, int i) {
    return &kolo_info(c->w->g, c->n->in[i])->tensor.shape;
}
static inline int64_t integer(const onnx_export *c, int attribute) {
    return c->n->attr[attribute].i;
}
static inline double real(const onnx_export *c, int attribute) { return c->n->attr[attribute].f; }

/* x with its dimensions in another order. */
static inline const char *transposed(onnx_export *c, const char *x, const int64_t *order,
                                     int rank) {
    const char *y = onnx_emit(c->w, "Transpose", NULL, x, NULL, NULL);
    onnx_add_ints(c->w, "perm", order, rank);
    return y;
}

/* Ops of sequences (sequence.c). UNSUPPORTED: what ONNX cannot express. */
kolo_status onnx_export_causal_mask(onnx_export *c);
kolo_status onnx_export_attention(onnx_export *c);
kolo_status onnx_export_rotary(onnx_export *c);
kolo_status onnx_export_mask_tokens(onnx_export *c);
kolo_status onnx_export_lstm(onnx_export *c);
kolo_status onnx_export_gru(onnx_export *c);
/* Mixtures of experts (experts.c). */
kolo_status onnx_export_expert_route(onnx_export *c);
kolo_status onnx_export_expert_dispatch(onnx_export *c);
kolo_status onnx_export_expert_combine(onnx_export *c);

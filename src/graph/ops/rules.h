#pragma once
/* Checks for the shape rules of ops, whose error texts include the input shapes, and helpers for
 * costs. The graph prefixes the op's name. */

#include "graph/graph.h"

/* Fails with KOLO_ERR_ARG: the text, then dtype and shape of each input. */
#define KOLO_RULE_FAIL(q, ...) kolo_rule_fail((q), __FILE__, __LINE__, __VA_ARGS__)
kolo_status kolo_rule_fail(const kolo_shape_query *q, const char *file, int line, const char *fmt,
                           ...) KOLO_PRINTF(4, 5);

/* The type of parameters and sums beside activations of this type: f32 for bf16. */
static inline kolo_dtype kolo_dtype_wide(kolo_dtype dtype) {
    return dtype == KOLO_DTYPE_BF16 ? KOLO_DTYPE_F32 : dtype;
}

/* The type of a product of input 0 and the parameter input 1: bf16 if either is. */
static inline kolo_dtype kolo_rule_product(const kolo_shape_query *q) {
    return q->in[0].dtype == KOLO_DTYPE_BF16 ? KOLO_DTYPE_BF16 : q->in[1].dtype;
}

/* Types of the inputs, a letter each: 'f' f64, or f32 and bf16 mixed; 'i' i32; 'l' i64; 'b' u8. */
kolo_status kolo_rule_types(const kolo_shape_query *q, const char *letters);
/* Input i has `rank` dimensions, which `dims` names: "N,C,H,W". */
kolo_status kolo_rule_rank(const kolo_shape_query *q, int i, int rank, const char *dims);
/* Inputs i and j have equal shapes. */
kolo_status kolo_rule_same(const kolo_shape_query *q, int i, int j);
/* The shape rule of an op that makes images of KOLO_SIZE_H times KOLO_SIZE_W of images; and its
 * gradient, by `op`, whose attributes are the size of the op's input. */
kolo_status kolo_rule_resized(kolo_shape_query *q);
kolo_value kolo_rule_resized_grad(kolo_graph *g, const kolo_node *n, const kolo_op *op,
                                  kolo_value d_out);

/* One spatial dimension under a sliding window. */
typedef struct kolo_window {
    int64_t kernel, stride, pad, dilation;
    int64_t more; /* rows of padding behind the last row, less `pad` */
} kolo_window;
/* The number of window positions along a dimension of `size`. Checks all attributes. `axis` is
 * "height" or "width". */
kolo_status kolo_rule_window(const kolo_shape_query *q, const char *axis, int64_t size,
                             kolo_window window, int64_t *places);

/* The rows that places of a window need (kolo_op.window). */
void kolo_window_rows(const kolo_window_query *q, kolo_window window, kolo_interval *rows);
/* The padding of a part of the places: in front, and `more` behind. */
kolo_window kolo_window_part(const kolo_window_query *q, kolo_window window, kolo_interval rows);

/* Sets output i, in plain layout, and the number of outputs to i + 1. Fails if the number of
 * elements overflows. */
kolo_status kolo_rule_out(kolo_shape_query *q, int i, kolo_dtype dtype, kolo_shape shape);

/* Bytes of all inputs and outputs. */
double kolo_query_bytes(const kolo_shape_query *q);

/* How mixtures of experts are written in ONNX: places of tokens as numbers, which are compared with
 * 0, 1, 2, ... to send tokens to their places and back. */
#include "graph/ops/ops.h"
#include "onnx/export/call.h"

static const char *as_floats(onnx_export *c, const char *x) {
    const char *y = onnx_emit(c->w, "Cast", NULL, x, NULL, NULL);
    onnx_add_int(c->w, "to", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT);
    return y;
}

static const char *with_dimension_3(onnx_export *c, const char *x) {
    const int64_t last = 3;
    return onnx_emit(c->w, "Unsqueeze", NULL, x, onnx_int_list(c->w, &last, 1), NULL);
}

/* x [A,B,C] of whole numbers -> [A,B,C,n], 1 where the last index is the number, else 0. */
static const char *one_hot(onnx_export *c, const char *x, int64_t n) {
    const kolo_shape shape = kolo_shape_1(n);
    float *number;
    const char *numbers = onnx_add_constant(c->w, NULL, &shape, &number);
    for (int64_t k = 0; k < n && !c->w->failed; k++) number[k] = (float)k;
    const char *equal = onnx_emit(c->w, "Equal", NULL, with_dimension_3(c, x), numbers, NULL);
    return as_floats(c, equal);
}

/* The place of a token is the number of tokens before it that chose the expert. */
kolo_status onnx_export_expert_route(onnx_export *c) {
    const int64_t top = integer(c, KOLO_EXPERT_TOP), experts = c->x->dim[2], one = 1, two = 2;
    const char *chosen = onnx_name(c->w, c->n->out[1]);
    const char *capacity = onnx_number_constant(c->w, (double)integer(c, KOLO_EXPERT_CAPACITY));
    const char *unit = onnx_number_constant(c->w, 1);
    onnx_emit(c->w, "TopK", NULL, c->in[0], onnx_int_list(c->w, &top, 1), NULL);
    onnx_add_int(c->w, "axis", 2);
    const char *best = onnx_add_output(c->w, NULL);
    onnx_emit(c->w, "ReduceSum", chosen, one_hot(c, as_floats(c, best), experts),
              onnx_int_list(c->w, &two, 1), NULL);
    onnx_add_int(c->w, "keepdims", 0);
    const char *before =
        onnx_emit(c->w, "CumSum", NULL, chosen, onnx_int_list(c->w, &one, 1), NULL);
    onnx_add_int(c->w, "exclusive", 1);
    const char *fits = as_floats(c, onnx_emit(c->w, "Less", NULL, before, capacity, NULL));
    fits = onnx_emit(c->w, "Mul", NULL, fits, chosen, NULL);
    const char *place = onnx_emit(c->w, "Add", NULL, before, unit, NULL);
    place = onnx_emit(c->w, "Mul", NULL, place, fits, NULL);
    onnx_emit(c->w, "Sub", c->out, place, unit, NULL); /* -1: none */
    return KOLO_OK;
}

kolo_status onnx_export_expert_dispatch(onnx_export *c) {
    const char *at = one_hot(c, c->in[1], integer(c, KOLO_EXPERT_CAPACITY));
    onnx_emit(c->w, "Einsum", c->out, at, c->in[0], NULL);
    onnx_add_text(c->w, "equation", "ntep,ntc->enpc");
    return KOLO_OK;
}

kolo_status onnx_export_expert_combine(onnx_export *c) {
    const char *at = one_hot(c, c->in[1], c->x->dim[2]);
    if (c->n->n_in > 2) {
        at = onnx_emit(c->w, "Mul", NULL, at, with_dimension_3(c, c->in[2]), NULL);
    }
    onnx_emit(c->w, "Einsum", c->out, at, c->in[0], NULL);
    onnx_add_text(c->w, "equation", "ntep,enpc->ntc");
    return KOLO_OK;
}

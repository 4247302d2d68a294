/* Mixtures of experts. */
#include "kernel/ref/ref.h"

#include <string.h>

static void expert_route(const kolo_call *call) {
    const kolo_attr *attr = call->spec->attr;
    const int64_t *dim = call->spec->in[0].shape.dim, tokens = dim[1], experts = dim[2];
    const double *p = call->in[0];
    int32_t *places = call->out[0];
    double *chosen = call->out[1];
    const size_t count = (size_t)kolo_shape_count(&call->spec->in[0].shape);
    memset(chosen, 0, sizeof(double) * count);
    for (size_t i = 0; i < count; i++) places[i] = -1;
    for (int64_t row = 0; row < dim[0] * tokens; row++) {
        const int64_t first = row - row % tokens; /* token of the sample */
        for (int64_t k = 0; k < attr[KOLO_EXPERT_TOP].i; k++) {
            int64_t best = -1, before = 0;
            for (int64_t e = 0; e < experts; e++) {
                if (chosen[row * experts + e] != 0) continue;
                if (best < 0 || p[row * experts + e] > p[row * experts + best]) best = e;
            }
            for (int64_t t = first; t < row; t++) before += chosen[t * experts + best] != 0;
            chosen[row * experts + best] = 1;
            if (before >= attr[KOLO_EXPERT_CAPACITY].i) continue;
            places[row * experts + best] = (int32_t)before;
        }
    }
}

/* Sizes of x [N,T,C], y [E,N,P,C] and places [N,T,E]. */
typedef struct sizes {
    int64_t samples, tokens, width, experts, room;
} sizes;

static sizes sizes_of(const kolo_shape *y, const kolo_shape *places) {
    return (sizes){places->dim[0], places->dim[1], y->dim[3], y->dim[0], y->dim[2]};
}

/* Where the token of [n,t,e], `i` in the places, is in y; -1: it has no place. */
static int64_t row_of(const sizes *s, const int32_t *places, int64_t i) {
    const int64_t e = i % s->experts, n = i / s->experts / s->tokens;
    const bool has = places[i] >= 0 && places[i] < s->room;
    return has ? ((e * s->samples + n) * s->room + places[i]) * s->width : -1;
}

static void expert_dispatch(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const sizes s = sizes_of(&spec->out[0].shape, &spec->in[1].shape);
    const double *x = call->in[0], *gates = spec->n_in > 2 ? call->in[2] : NULL;
    double *y = call->out[0];
    memset(y, 0, sizeof(double) * (size_t)kolo_shape_count(&spec->out[0].shape));
    for (int64_t i = 0; i < s.samples * s.tokens * s.experts; i++) {
        const int64_t to = row_of(&s, call->in[1], i);
        for (int64_t c = 0; c < s.width && to >= 0; c++) {
            y[to + c] += x[i / s.experts * s.width + c] * (gates ? gates[i] : 1);
        }
    }
}

static void expert_combine(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const sizes s = sizes_of(&spec->in[0].shape, &spec->in[1].shape);
    const double *y = call->in[0], *gates = spec->n_in > 2 ? call->in[2] : NULL;
    double *x = call->out[0];
    memset(x, 0, sizeof(double) * (size_t)kolo_shape_count(&spec->out[0].shape));
    for (int64_t i = 0; i < s.samples * s.tokens * s.experts; i++) {
        const int64_t from = row_of(&s, call->in[1], i);
        for (int64_t c = 0; c < s.width && from >= 0; c++) {
            x[i / s.experts * s.width + c] += y[from + c] * (gates ? gates[i] : 1);
        }
    }
}

static void expert_products(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const sizes s = sizes_of(&spec->in[1].shape, &spec->in[2].shape);
    const double *x = call->in[0], *y = call->in[1];
    double *d = call->out[0];
    for (int64_t i = 0; i < s.samples * s.tokens * s.experts; i++) {
        const int64_t from = row_of(&s, call->in[2], i);
        d[i] = 0;
        for (int64_t c = 0; c < s.width && from >= 0; c++) {
            d[i] += x[i / s.experts * s.width + c] * y[from + c];
        }
    }
}

#define EXPERT(name)                                                            \
    static void run_##name(const kolo_call *call) { kolo_ref_run(call, name); } \
    const kolo_kernel kolo_ref_##name = KOLO_REF_KERNEL("ref_" #name, &kolo_op_##name, run_##name)
EXPERT(expert_route);
EXPERT(expert_dispatch);
EXPERT(expert_combine);
EXPERT(expert_products);

/* Softmax cross-entropy of logits that are sharded along the classes. */
#include "kernel/ref/ref.h"

#include <math.h>
#include <string.h>

enum { EXPONENTIALS, OF_LABEL, ALL, BEFORE_LABEL };

/* Logits [N,C,...]: those of one position are `inner` elements apart; sums are `places` apart. */
typedef struct view {
    int64_t classes, inner, places, first;
} view;

static view view_of(const kolo_call *call, int logits) {
    const kolo_shape *s = &call->spec->in[logits].shape;
    view v = {.classes = s->dim[1], .first = call->spec->attr[KOLO_CLASS_FIRST].i};
    v.places = kolo_shape_count(s) / v.classes;
    v.inner = v.places / s->dim[0];
    return v;
}

/* The index of class 0 of a position. */
static int64_t place_of(const view *v, int64_t p) {
    return p / v->inner * v->classes * v->inner + p % v->inner;
}

static void class_max(const kolo_call *call) {
    view v = view_of(call, 0);
    double *max = call->out[0];
    for (int64_t p = 0; p < v.places; p++) {
        const double *x = (const double *)call->in[0] + place_of(&v, p);
        max[p] = x[0];
        for (int64_t c = 1; c < v.classes; c++) max[p] = fmax(max[p], x[c * v.inner]);
    }
}

static void class_sums(const kolo_call *call) {
    view v = view_of(call, 0);
    const double *max = call->in[1];
    const int32_t *labels = call->in[2];
    double *sums = call->out[0];
    memset(sums, 0, sizeof *sums * (size_t)(KOLO_CLASS_SUMS * v.places));
    for (int64_t p = 0; p < v.places; p++) {
        const double *x = (const double *)call->in[0] + place_of(&v, p);
        const int64_t label = labels[p] - v.first;
        for (int64_t c = 0; c < v.classes; c++) {
            const double above = x[c * v.inner] - max[p];
            sums[EXPONENTIALS * v.places + p] += exp(above);
            sums[ALL * v.places + p] += above;
            if (c == label) sums[OF_LABEL * v.places + p] = above;
            if (c == label ? above < 0 : c < label && above == 0) {
                sums[BEFORE_LABEL * v.places + p]++;
            }
        }
    }
}

static void class_sums_bwd(const kolo_call *call) {
    view v = view_of(call, 1);
    const double *d = call->in[0], *max = call->in[2];
    const int32_t *labels = call->in[3];
    for (int64_t p = 0; p < v.places; p++) {
        const double *x = (const double *)call->in[1] + place_of(&v, p);
        double *dx = (double *)call->out[0] + place_of(&v, p);
        const int64_t label = labels[p] - v.first;
        for (int64_t c = 0; c < v.classes; c++) { /* dx may be x */
            dx[c * v.inner] = d[EXPONENTIALS * v.places + p] * exp(x[c * v.inner] - max[p]) +
                              d[ALL * v.places + p] + (c == label ? d[OF_LABEL * v.places + p] : 0);
        }
    }
}

/* Whether a label counts. */
static bool counts(const kolo_attr *attr, int32_t label) {
    if (attr[KOLO_LOSS_HAS_IGNORE_INDEX].i && label == attr[KOLO_LOSS_IGNORE_INDEX].i) return false;
    return label >= 0 && label < attr[KOLO_LOSS_CLASSES].i;
}

static void sums_xent(const kolo_call *call) {
    const kolo_attr *attr = call->spec->attr;
    const int64_t places = kolo_shape_count(&call->spec->in[1].shape);
    const double *sums = call->in[0], smoothing = attr[KOLO_LOSS_SMOOTHING].f;
    const int32_t *labels = call->in[1];
    double loss = 0, count = 0;
    for (int64_t p = 0; p < places; p++) {
        if (!counts(attr, labels[p])) continue;
        const double all = sums[ALL * places + p] / (double)attr[KOLO_LOSS_CLASSES].i;
        loss += log(sums[EXPONENTIALS * places + p]) -
                (1 - smoothing) * sums[OF_LABEL * places + p] -
                (smoothing > 0 ? smoothing * all : 0);
        count += sums[BEFORE_LABEL * places + p] == 0;
    }
    *(double *)call->out[0] = loss;
    if (attr[KOLO_LOSS_COUNT].i) *(double *)call->out[1] = count;
}

static void sums_xent_bwd(const kolo_call *call) {
    const kolo_attr *attr = call->spec->attr;
    const int64_t places = kolo_shape_count(&call->spec->in[1].shape);
    const double *sums = call->in[0], *dloss = call->in[2], smoothing = attr[KOLO_LOSS_SMOOTHING].f;
    const int32_t *labels = call->in[1];
    double *d = call->out[0];
    for (int64_t p = 0; p < places; p++) {
        const double by = counts(attr, labels[p]) ? *dloss : 0;
        d[EXPONENTIALS * places + p] = by / sums[EXPONENTIALS * places + p];
        d[OF_LABEL * places + p] = -(1 - smoothing) * by;
        d[ALL * places + p] = -smoothing / (double)attr[KOLO_LOSS_CLASSES].i * by;
        d[BEFORE_LABEL * places + p] = 0;
    }
}

#define RUN(op)                                                             \
    static void run_##op(const kolo_call *call) { kolo_ref_run(call, op); } \
    const kolo_kernel kolo_ref_##op = KOLO_REF_KERNEL("ref_" #op, &kolo_op_##op, run_##op)
RUN(class_max);
RUN(class_sums);
RUN(class_sums_bwd);
RUN(sums_xent);
RUN(sums_xent_bwd);

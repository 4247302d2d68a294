/* dropout. */
#include "base/rng.h"
#include "kernel/ref/ref.h"

static void dropout(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const double *x = call->in[0];
    const int64_t *key = call->in[1], *first = call->in[2];
    double *y = call->out[0], p = spec->attr[KOLO_DROPOUT_P].f;
    const kolo_dropout_places at = kolo_dropout_places_of(spec->attr, &spec->in[0].shape, *first);
    kolo_rng rng =
        kolo_rng_make((uint64_t)*key, KOLO_RNG_DROPOUT, (uint64_t)spec->attr[KOLO_DROPOUT_LAYER].i);
    for (int64_t i = 0; i < at.rows * at.count; i++) {
        uint64_t place = (uint64_t)(kolo_dropout_place(&at, i / at.count) + i % at.count);
        y[i] = (double)kolo_rng_uniform(&rng, place) < p ? 0 : x[i] / (1 - p);
    }
}

static void run(const kolo_call *call) { kolo_ref_run(call, dropout); }

const kolo_kernel kolo_ref_dropout = KOLO_REF_KERNEL("ref_dropout", &kolo_op_dropout, run);

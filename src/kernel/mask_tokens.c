/* The computation of mask_tokens, shared by the reference and simd kernels. It draws random
 * numbers and moves integers, so one version serves both. */
#include "kernel/mask_tokens.h"

#include "base/rng.h"

/* The first position from `at` on, cyclic within [begin, end), that may be masked; -1: none. */
static int64_t place_from(const int32_t *y, int64_t begin, int64_t end, int64_t at) {
    for (int64_t k = 0; k < end - begin; k++) {
        int64_t place = at + k < end ? at + k : at + k - (end - begin);
        if (y[place] >= 0) return place;
    }
    return -1;
}

/* One window of T tokens, number `window` of the global batch. */
static void mask_window(const kolo_attr *attr, const kolo_rng *rng, uint64_t window, int64_t length,
                        const int32_t *ids, const int32_t *y, int32_t *masked, int32_t *labels) {
    int64_t count = attr[KOLO_MASK_COUNT].i;
    for (int64_t k = 0; k < count; k++) {
        uint32_t four[4];
        kolo_rng_draw(rng, window * (uint64_t)count + (uint64_t)k, four);
        int64_t begin = length * k / count, end = length * (k + 1) / count;
        int64_t i = place_from(
            y, begin, end, begin + (int64_t)((uint64_t)four[0] * (uint64_t)(end - begin) >> 32));
        uint64_t tenth = (uint64_t)four[1] * 10 >> 32;
        if (i < 0) continue;
        labels[i] = ids[i];
        if (tenth < 8) {
            masked[i] = (int32_t)attr[KOLO_MASK_ID].i;
        } else if (tenth == 8) {
            uint64_t any = (uint64_t)four[2] * (uint64_t)attr[KOLO_MASK_VOCABULARY].i >> 32;
            masked[i] = (int32_t)any;
        }
    }
}

/* Decodes the label of a sentence pair, for tokens that count and for those that do not. */
static int32_t pair_code(int32_t y) { return y >= -1 ? y : -2 - y; }

void kolo_kernel_mask_tokens(const kolo_call *call) {
    const int64_t *key = call->in[0], *first = call->in[1];
    const kolo_attr *attr = call->spec->attr;
    const int64_t *dim = call->spec->in[2].shape.dim;
    const int32_t *ids = call->in[2], *y = call->in[3];
    int32_t *masked = call->out[0], *labels = call->out[1], *segments = call->out[2];
    int32_t *random = attr[KOLO_MASK_PAIRS].i ? call->out[3] : NULL;
    kolo_rng rng = kolo_rng_make((uint64_t)*key, KOLO_RNG_MASK, 0);
    for (int64_t i = 0; i < dim[0] * dim[1]; i++) {
        masked[i] = ids[i];
        labels[i] = -1;
        segments[i] = random && y[i] != -1 ? pair_code(y[i]) % 2 : 0;
    }
    for (int64_t n = 0; n < dim[0]; n++) {
        int64_t at = n * dim[1];
        if (random) random[n] = y[at] == -1 ? -1 : pair_code(y[at]) / 2;
        mask_window(attr, &rng, (uint64_t)(*first + n), dim[1], ids + at, y + at, masked + at,
                    labels + at);
    }
}

/* Which gradients are compressed: the time of a choice, and the best one by descent. */
#include "pass/compression_plan.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

/* The step so far, by the clock of the kernels (bucket_plan.h). */
typedef struct line {
    double shift;   /* of the kernels, by encodings so far */
    double end;     /* of the collectives so far */
    double work;    /* of these */
    double kernels; /* the end of the backward pass and of the decoding behind it */
} line;

/* A collective starts at `ready` or later; its results take `decode` ms. */
static void add(line *l, double ready, const kolo_sum_time *time, double bytes, double decode) {
    l->end = fmax(l->end, ready + l->shift) + kolo_sum_wait_ms(time, bytes);
    l->work += kolo_sum_work_ms(time, bytes);
    l->kernels = fmax(l->kernels, l->end) + decode;
}

/* The encodings of the whole step. */
static double encoding(const kolo_ready_gradient *gradients, int n, const kolo_compression_costs *c,
                       const bool *compressed) {
    double ms = 0;
    for (int i = 0; i < n; i++) {
        if (compressed[i]) ms += c->encode_ms * (double)gradients[i].bytes;
    }
    return ms;
}

double kolo_compression_plan_end(const kolo_ready_gradient *gradients, int n,
                                 const kolo_compression_costs *c, const bool *compressed) {
    if (n == 0) return 0;
    const double last = gradients[n - 1].ready_ms;
    line l = {.kernels = last + encoding(gradients, n, c, compressed)};
    size_t filled = 0;
    int buckets = 0;
    for (int i = 0; i < n; i++) {
        const double bytes = (double)gradients[i].bytes;
        if (compressed[i]) {
            const double gathered = c->ranks * c->ratio * bytes;
            l.shift += c->encode_ms * bytes;
            add(&l, gradients[i].ready_ms, &c->gather, gathered, c->ranks * c->decode_ms * bytes);
        } else {
            filled += gradients[i].bytes;
        }
        const bool ends = i == n - 1 ? filled > 0 || buckets == 0 /* the loss is summed too */
                                     : filled > 0 && filled >= c->bucket_bytes;
        if (!ends) continue;
        add(&l, gradients[i].ready_ms, &c->sum, (double)filled, 0);
        buckets++;
        filled = 0;
    }
    return l.kernels + l.work;
}

/* Changes one mark after the other while that makes the end earlier, or removes one at no cost.
 * Returns the end. */
static double descend(const kolo_ready_gradient *gradients, int n, const kolo_compression_costs *c,
                      bool *compressed) {
    double end = kolo_compression_plan_end(gradients, n, c, compressed);
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = 0; i < n; i++) {
            if (gradients[i].bytes < c->min_bytes) continue;
            compressed[i] = !compressed[i];
            const double now = kolo_compression_plan_end(gradients, n, c, compressed);
            if (now < end || (now == end && !compressed[i])) {
                end = now;
                changed = true;
            } else {
                compressed[i] = !compressed[i];
            }
        }
    }
    return end;
}

kolo_status kolo_compression_plan_best(const kolo_ready_gradient *gradients, int n,
                                       const kolo_compression_costs *c, bool *compressed) {
    bool *all = kolo_alloc((size_t)n + 1);
    if (!all) return KOLO_NOMEM((size_t)n + 1);
    for (int i = 0; i < n; i++) {
        compressed[i] = false;
        all[i] = gradients[i].bytes >= c->min_bytes;
    }
    const double from_none = descend(gradients, n, c, compressed);
    const double from_all = descend(gradients, n, c, all);
    if (from_all < from_none) memcpy(compressed, all, (size_t)n);
    kolo_free(all);
    return KOLO_OK;
}

/* Softmax cross-entropy, position by position. The classes of a position form a row, used in
 * place when they are adjacent, otherwise gathered. */

#include "kernel/simd/loss.h"

#include "kernel/simd/math.h"

#include <math.h>

/* The index of class 0 of a position. */
INLINE int64_t place_at(const kolo_simd_image *v, int64_t place) {
    int64_t pixels = v->h * v->w;
    return place / pixels * kolo_simd_image_size(v) + place % pixels * v->inner;
}

/* True when the classes of a position are adjacent. */
INLINE bool is_row(const kolo_simd_image *v) { return v->planes == 1; }

/* The logits of a position; `row` is a buffer for gathering. */
INLINE const float *row_of(const kolo_simd_loss_job *job, int64_t place, float *row) {
    const kolo_simd_image *v = &job->image;
    const float *x = job->in + place_at(v, place);
    if (is_row(v)) return x;
    for (int64_t c = 0; c < v->c; c++) row[c] = x[kolo_simd_channel(v, c)];
    return row;
}

/* Scatters a row unless it is already in place. Padding channels become zero. */
INLINE void put_row(const kolo_simd_image *v, const float *row, float *to) {
    for (int64_t c = 0; c < v->c && row != to; c++) to[kolo_simd_channel(v, c)] = row[c];
    for (int64_t c = v->c; c < v->planes * v->inner; c++) to[kolo_simd_channel(v, c)] = 0;
}

/* The index of the maximum, the first of equals; the first of all when every value is NaN. */
INLINE int64_t largest_of(const float *logits, int64_t classes) {
    float largest = largest_in(logits, classes);
    for (int64_t i = 0; i < classes; i++) {
        if (logits[i] == largest) return i;
    }
    return 0;
}

/* True when `label` is largest_of, given the maximum. */
INLINE bool is_largest(const float *logits, float largest, int64_t label) {
    if (largest != largest) return label == 0;
    if (label < 0 || logits[label] != largest) return false;
    for (int64_t i = 0; i < label; i++) {
        if (logits[i] == largest) return false;
    }
    return true;
}

static void softmax_xent(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_loss_job *job = arg;
    const kolo_simd_image *v = &job->image;
    int64_t classes = v->c;
    float *rows = job->rows + part * 2 * classes;
    for (int64_t place = begin; place < end; place++) {
        const float *logits = row_of(job, place, rows);
        float *to = job->out + place_at(v, place), *probs = is_row(v) ? to : rows + classes;
        int64_t label = kolo_simd_label(job, place);
        float largest = largest_in(logits, classes), all = 0;
        float below = label >= 0 ? logits[label] - largest : 0;
        if (job->smoothing > 0) {
            for (int64_t i = 0; i < classes; i++) all += logits[i] - largest;
        }
        if (job->correct) job->correct[place] = is_largest(logits, largest, label) ? 1 : 0;
        /* The logits are no longer needed: probs may overwrite them. */
        float sum = exponentials_fetching(logits, largest, classes, probs, classes);
        float part_of = 1 / sum;
        for (int64_t i = 0; i < classes; i++) probs[i] *= part_of;
        float loss = logf(sum) - below;
        if (job->smoothing > 0) {
            float mean = logf(sum) - all / (float)classes;
            loss = (1 - job->smoothing) * loss + job->smoothing * mean;
        }
        if (job->weights && label >= 0) loss *= job->weights[label];
        job->per_position[place] = label >= 0 ? loss : 0;
        put_row(v, probs, to);
    }
}

/* out = (probs - share) * by; returns the sum. out may alias probs. */
INLINE float less_share(const float *probs, float share, float by, int64_t n, float *out) {
    vf sum = {0};
    int64_t i = 0;
    for (; i + VL <= n; i += VL) {
        vf d = (load(probs + i) - share) * by;
        store(out + i, d);
        sum += d;
    }
    float total = sum_lanes(sum);
    for (; i < n; i++) total += out[i] = (probs[i] - share) * by;
    return total;
}

/* The gradients of a position sum to zero, which determines that of the label: 1 - p computed
 * from a rounded probability near 1 (in bf16) is less accurate than the sum of the others. */
static void softmax_xent_bwd(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_loss_job *job = arg;
    const kolo_simd_image *v = &job->image;
    int64_t classes = v->c;
    float *rows = job->rows + part * 2 * classes;
    float dloss = *job->dloss, share = job->smoothing / (float)classes;
    for (int64_t place = begin; place < end; place++) {
        const float *probs = row_of(job, place, rows);
        float *to = job->out + place_at(v, place), *dlogits = is_row(v) ? to : rows + classes;
        int64_t label = kolo_simd_label(job, place);
        if (label < 0) {
            memset(dlogits, 0, sizeof(float) * (size_t)classes);
        } else { /* dlogits may overwrite probs */
            float by = job->weights ? dloss * job->weights[label] : dloss;
            float of_label = (probs[label] - share) * by;
            dlogits[label] = of_label - less_share(probs, share, by, classes, dlogits);
        }
        put_row(v, dlogits, to);
    }
}

static void accuracy(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_loss_job *job = arg;
    float *row = job->rows + part * 2 * job->image.c;
    for (int64_t place = begin; place < end; place++) {
        int64_t label = kolo_simd_label(job, place);
        bool right = label >= 0 && label == largest_of(row_of(job, place, row), job->image.c);
        job->per_position[place] = right ? 1 : 0;
    }
}

static void predict(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_loss_job *job = arg;
    float *row = job->rows + part * 2 * job->image.c;
    for (int64_t place = begin; place < end; place++) {
        job->predicted[place] = (int32_t)largest_of(row_of(job, place, row), job->image.c);
    }
}

const kolo_simd_loss_table KOLO_ISA_SYMBOL(kolo_simd_loss) = {
    .softmax_xent = softmax_xent,
    .softmax_xent_bwd = softmax_xent_bwd,
    .accuracy = accuracy,
    .predict = predict,
};

/* Softmax with cross-entropy, row by row. The exponential is written without branches so that the
 * compiler vectorises it: e^x = 2^n e^r with n = round(x / ln 2) and |r| <= ln 2 / 2, where what
 * Taylor's polynomial of degree six leaves out, r^7 / 7!, is below 2^-23. */

#include "kernel/simd/simd.h"
#include "kernel/simd/vector.h"

#include <math.h>

/* e^x for x <= 0; zero below -87, where a float's smallest normal number lies. */
INLINE float exp_negative(float x) {
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    float t = x * 1.44269504f + shift;
    float n = t - shift;
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f; /* ln 2 in two parts */
    float p = 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1;
    p = p * r + 1;
    int32_t bits;
    memcpy(&bits, &t, sizeof bits);
    uint32_t power = ((uint32_t)bits + 127u) << 23; /* the low bits of t hold n */
    float scale;
    memcpy(&scale, &power, sizeof scale);
    return x < -87.0f ? 0 : p * scale;
}

static void softmax_xent(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_loss_job *job = arg;
    int64_t classes = job->classes;
    for (int64_t row = begin; row < end; row++) {
        const float *logits = job->in + row * classes;
        float *probs = job->out + row * classes, largest = logits[0], sum = 0;
        for (int64_t i = 1; i < classes; i++) largest = logits[i] > largest ? logits[i] : largest;
        for (int64_t i = 0; i < classes; i++) probs[i] = exp_negative(logits[i] - largest);
        for (int64_t i = 0; i < classes; i++) sum += probs[i];
        for (int64_t i = 0; i < classes; i++) probs[i] /= sum;
        int64_t label = job->labels[row];
        bool valid = label >= 0 && label < classes;
        job->per_row[row] = valid ? logf(sum) - (logits[label] - largest) : 0;
    }
}

static void softmax_xent_bwd(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_loss_job *job = arg;
    int64_t classes = job->classes;
    float dloss = *job->dloss;
    for (int64_t row = begin; row < end; row++) {
        const float *probs = job->in + row * classes;
        float *dlogits = job->out + row * classes;
        int64_t label = job->labels[row];
        if (label < 0 || label >= classes) {
            memset(dlogits, 0, sizeof(float) * (size_t)classes);
            continue;
        }
        float of_label = (probs[label] - 1) * dloss; /* before dlogits overwrites probs */
        for (int64_t i = 0; i < classes; i++) dlogits[i] = probs[i] * dloss;
        dlogits[label] = of_label;
    }
}

static void accuracy(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_loss_job *job = arg;
    int64_t classes = job->classes;
    for (int64_t row = begin; row < end; row++) {
        const float *logits = job->in + row * classes;
        int64_t best = 0;
        for (int64_t i = 1; i < classes; i++) best = logits[i] > logits[best] ? i : best;
        job->per_row[row] = job->labels[row] == best ? 1 : 0;
    }
}

const kolo_simd_loss_table KOLO_SIMD_TABLE(kolo_simd_loss_) = {
    .softmax_xent = softmax_xent,
    .softmax_xent_bwd = softmax_xent_bwd,
    .accuracy = accuracy,
};

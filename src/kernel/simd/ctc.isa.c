/* Connectionist temporal classification by the forward-backward algorithm (Graves et al., 2006,
 * section 4). The lanes of a vector are states: the labels with a blank before, between and after
 * them. The variables are logarithms, less the largest one of each time step, where f32 is most
 * exact: probabilities themselves would leave the range of any float. States far behind the
 * likeliest prefix, by 1000, are exact to 1e-4 a step. The logits stand for logarithms of
 * probabilities, whose sums over the classes cancel in the gradient and are subtracted from the
 * loss. */
#include "kernel/simd/ctc.h"

#include "kernel/simd/math.h"

#include <math.h>
#include <string.h>

/* The logarithm of 0: sums of it with any logit, and a few of them, are finite. */
static const float none = -1e30F;

/* One sample. A row has two elements of `none` before the first state, and some behind the last. */
typedef struct sample {
    const float *logits; /* [steps,classes] */
    const int32_t *labels;
    int64_t steps, classes, blank, states, stride;
    float *alpha; /* rows of beginnings that end in a state: before step 0, then of each step */
    float *beta,
        *next;      /* rows of ends after a state: of a step, and of the next one with its logits */
    float *emitted; /* the logits of the states at a step */
    float *skip;    /* 0: a path may come from two states before this one; else none */
} sample;

static float *row(const sample *s, int i) { return s->alpha + (s->steps + 1 + i) * s->stride + 2; }

static void fill(const sample *s, float *states, float number) {
    for (int64_t k = -2; k < s->stride - 2; k++) states[k] = number;
}

static sample sample_of(const kolo_simd_ctc_job *job, int part, int64_t n) {
    const int64_t length = job->lengths ? job->lengths[n] : job->steps;
    sample s = {
        .logits = job->logits + n * job->steps * job->classes,
        .labels = job->labels + n * job->labels_at_most,
        .steps = length < 0            ? 0
                 : length < job->steps ? length
                                       : job->steps,
        .classes = job->classes,
        .blank = job->blank,
        .stride = kolo_simd_ctc_stride(job->labels_at_most),
        .alpha = job->memory + part * job->memory_floats,
    };
    int64_t count = 0;
    while (count < job->labels_at_most && s.labels[count] >= 0 && s.labels[count] < s.classes &&
           s.labels[count] != s.blank) {
        count++;
    }
    s.states = 2 * count + 1;
    s.beta = row(&s, 0);
    s.next = row(&s, 1);
    s.emitted = row(&s, 2);
    s.skip = row(&s, 3);
    fill(&s, s.emitted, none);
    fill(&s, s.next, none);
    fill(&s, s.skip, none);
    for (int64_t i = 1; i < count; i++) {
        if (s.labels[i] != s.labels[i - 1]) s.skip[2 * i + 1] = 0;
    }
    return s;
}

static void emit(const sample *s, const float *logits) {
    for (int64_t k = 0; k < s->states; k++) {
        const float x = logits[k % 2 ? s->labels[k / 2] : s->blank];
        s->emitted[k] = x > none ? x : none;
    }
}

/* log(e^a + e^b + e^c) */
INLINE vf log_add(vf a, vf b, vf c) {
    const vf most = larger(larger(a, b), c);
    return most + logarithm(exponential(a - most) + exponential(b - most) + exponential(c - most));
}

/* Subtracts the largest of the states, which it returns. */
static float normalize(const sample *s, float *states) {
    const float most = largest_in(states, s->states);
    for (int64_t k = 0; k < s->states; k += VL) store(states + k, load(states + k) - most);
    return most;
}

/* Fills the rows of alpha. Returns the logarithm of the sum over all paths that read the labels, of
 * logits in place of logarithms of probabilities; none or less: there is no such path. */
static double forward(const sample *s) {
    double total = 0;
    float *from = s->alpha + 2;
    fill(s, from, none);
    from[0] = 0;
    for (int64_t t = 0; t < s->steps; t++, from += s->stride) {
        float *to = from + s->stride;
        emit(s, s->logits + t * s->classes);
        fill(s, to, none);
        for (int64_t k = 0; k < s->states; k += VL) {
            const vf skipped = load(from + k - 2) + load(s->skip + k);
            const vf before = log_add(load(from + k), load(from + k - 1), skipped);
            store(to + k, before + load(s->emitted + k));
        }
        total += (double)normalize(s, to);
    }
    const float last = from[s->states - 1];
    return total + (double)log_add(splat(last), splat(from[s->states - 2]), splat(none))[0];
}

/* The sum over the steps of log(sum of e^logits); NaN if a logit is. `memory` has a row. */
static double normalizers(const sample *s, float *memory) {
    double total = 0;
    for (int64_t t = 0; t < s->steps; t++) {
        const float *x = s->logits + t * s->classes, most = largest_in(x, s->classes);
        float sum = 0;
        for (int64_t c = 0; c < s->classes; c += s->stride) {
            const int64_t n = s->classes - c < s->stride ? s->classes - c : s->stride;
            sum += exponentials(x + c, most, n, memory);
        }
        total += (double)most + log((double)sum);
    }
    return total;
}

static void loss(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_ctc_job *job = arg;
    for (int64_t n = begin; n < end; n++) {
        const sample s = sample_of(job, part, n);
        const double paths = s.steps > 0 ? forward(&s) : (double)none;
        const double all = normalizers(&s, s.beta - 2);
        job->losses[n] = paths > (double)none / 2 || isnan(all) ? all - paths : 0;
    }
}

/* Subtracts the probability of each class at step t, given the labels, times dloss, from d. */
static void subtract_posterior(const sample *s, int64_t t, float dloss, float *d) {
    float *p = s->alpha + (t + 1) * s->stride + 2;
    for (int64_t k = 0; k < s->states; k += VL) store(p + k, load(p + k) + load(s->beta + k));
    const float sum = exponentials(p, largest_in(p, s->states), s->states, p);
    const float by = dloss / sum;
    float blanks = 0;
    for (int64_t k = 0; k < s->states; k += 2) blanks += p[k];
    for (int64_t k = 1; k < s->states; k += 2) d[s->labels[k / 2]] -= by * p[k];
    d[s->blank] -= by * blanks;
}

/* d = dloss times the softmax of each step. False: a NaN is among the logits. */
static bool softmaxes(const sample *s, float dloss, float *d) {
    bool numbers = true;
    for (int64_t t = 0; t < s->steps; t++, d += s->classes) {
        const float *x = s->logits + t * s->classes;
        const float sum = exponentials(x, largest_in(x, s->classes), s->classes, d);
        const float by = dloss / sum;
        for (int64_t c = 0; c < s->classes; c++) d[c] *= by;
        numbers &= !isnan(sum);
    }
    return numbers;
}

/* Subtracts the probabilities given the labels, times dloss, from all steps of d. */
static void backward(const sample *s, float dloss, float *d) {
    for (int64_t t = s->steps - 1; t >= 0; t--) {
        if (t == s->steps - 1) {
            fill(s, s->beta, none);
            s->beta[s->states - 1] = 0;
            s->beta[s->states - 2] = 0; /* before the first state, if that is the only one */
        } else {
            emit(s, s->logits + (t + 1) * s->classes);
            for (int64_t k = 0; k < s->states; k++) s->next[k] = s->beta[k] + s->emitted[k];
            for (int64_t k = 0; k < s->states; k += VL) {
                const vf skipped = load(s->next + k + 2) + load(s->skip + k + 2);
                store(s->beta + k, log_add(load(s->next + k), load(s->next + k + 1), skipped));
            }
            (void)normalize(s, s->beta);
        }
        subtract_posterior(s, t, dloss, d + t * s->classes);
    }
}

static void loss_bwd(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_ctc_job *job = arg;
    const int64_t count = job->steps * job->classes;
    for (int64_t n = begin; n < end; n++) {
        const sample s = sample_of(job, part, n);
        float *d = job->dlogits + n * count;
        const bool possible = s.steps > 0 && forward(&s) > (double)none / 2;
        const bool numbers = softmaxes(&s, *job->dloss, d);
        if (possible || !numbers) backward(&s, numbers ? *job->dloss : NAN, d);
        const int64_t kept = possible || !numbers ? s.steps * s.classes : 0;
        memset(d + kept, 0, sizeof *d * (size_t)(count - kept));
    }
}

const kolo_simd_ctc_table KOLO_ISA_SYMBOL(kolo_simd_ctc) = {.loss = loss, .loss_bwd = loss_bwd};

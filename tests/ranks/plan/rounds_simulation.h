#pragma once
/* The equations of docs/consistency.md in f64, for all ranks in one loop: what test_rounds.c
 * compares plans with. */
#include "kolo/codec.h"
#include "support/support.h"

#include <math.h>
#include <string.h>

enum { STEPS = 14, RANKS = 3, BATCH = 4, IN = 5, HIDDEN = 4, CLASSES = 3 };
enum { W1 = HIDDEN * IN, W2 = CLASSES * HIDDEN, NUMBERS = W1 + W2 };

typedef struct setting {
    int ranks, every; /* every 0: gradients are summed in each step */
    bool outer, nesterov;
    double outer_lr, outer_momentum;
    double momentum; /* of the steps */
    kolo_codec codec;
    int power_rank;   /* 0: no PowerSGD */
    int lag;          /* in steps; with every 0 */
    bool has_nothing; /* the last rank, in every third step; with every 0 */
    int fragments;    /* 2: one for each tensor; 0: one */
    bool strided;
    int overlap; /* of fragments, in steps */
    double mix;
    int warm_up; /* with every 0: 1-bit Adam after so many updates, and 0: SGD; else the steps that
                    sum gradients, before the rounds */
    bool decoupled;
    double decay; /* of weights, with Adam */
    bool gated;   /* rank 1 begins when rank 0 has made the steps of the first overlap */
} setting;

/* After each step, averaged. */
typedef struct outcome {
    double parameters[STEPS][NUMBERS];
} outcome;

static const double lr = 0.3, adam_lr = 0.02, beta1 = 0.9, beta2 = 0.99, eps = 1e-6;

static double x_at(int rank, int step, int sample, int i) {
    return sin(1 + rank * 37 + step * 11 + sample * 5 + i * 3);
}
static int y_at(int rank, int step, int sample) { return (rank + step + sample * 2) % CLASSES; }
static double initial(int i) { return 0.4 * cos(3 + 7 * i); }

/* The gradient of the mean loss of a rank's batch, for hidden = relu(w1 x), w2 hidden. */
static void gradient(const double *w, int rank, int step, double *g) {
    memset(g, 0, NUMBERS * sizeof *g);
    for (int n = 0; n < BATCH; n++) {
        double h[HIDDEN], z[CLASSES], sum = 0, dh[HIDDEN] = {0};
        for (int k = 0; k < HIDDEN; k++) {
            h[k] = 0;
            for (int i = 0; i < IN; i++) h[k] += w[k * IN + i] * x_at(rank, step, n, i);
            if (h[k] < 0) h[k] = 0;
        }
        for (int c = 0; c < CLASSES; c++) {
            z[c] = 0;
            for (int k = 0; k < HIDDEN; k++) z[c] += w[W1 + c * HIDDEN + k] * h[k];
            sum += exp(z[c]);
        }
        for (int c = 0; c < CLASSES; c++) {
            double d = (exp(z[c]) / sum - (c == y_at(rank, step, n))) / BATCH;
            for (int k = 0; k < HIDDEN; k++) {
                g[W1 + c * HIDDEN + k] += d * h[k];
                dh[k] += d * w[W1 + c * HIDDEN + k];
            }
        }
        for (int k = 0; k < HIDDEN; k++) {
            for (int i = 0; i < IN && h[k] > 0; i++) {
                g[k * IN + i] += dh[k] * x_at(rank, step, n, i);
            }
        }
    }
}

typedef struct simulation {
    double w[RANKS][NUMBERS], v[RANKS][NUMBERS]; /* by rank */
    double anchor[NUMBERS], outer[NUMBERS], away[RANKS][NUMBERS];
    float residual[RANKS][NUMBERS];
    double lost[RANKS][NUMBERS], q[KOLO_POWER_RANKS][NUMBERS]; /* of PowerSGD; q: by tensor */
    double past[RANKS][STEPS][NUMBERS];                        /* gradients */
} simulation;

/* Where the tensors are. */
static const int first_of[] = {0, W1, NUMBERS};

/* Adds what arrives of a rank's numbers to sum, for tensor t. */
static void add_decoded(simulation *s, const kolo_codec *codec, int rank, int t, const double *x,
                        double *sum) {
    const int first = first_of[t];
    size_t n = (size_t)(first_of[t + 1] - first), bytes = kolo_codec_bytes(codec, n);
    float values[NUMBERS], decoded[NUMBERS];
    char code[8 * NUMBERS + 64];
    for (size_t i = 0; i < n; i++) values[i] = (float)x[(size_t)first + i];
    ASSERT_OK(kolo_codec_encode(codec, values, n, s->residual[rank] + first, code, bytes));
    ASSERT_OK(kolo_codec_decode(codec, code, bytes, decoded, n));
    for (size_t i = 0; i < n; i++) sum[(size_t)first + i] += decoded[i];
}

/* Adds the sum over the ranks of x[rank] as PowerSGD finds it, for one tensor of n x m numbers from
 * `first` on. */
static void add_factored(simulation *s, const setting *o, double x[RANKS][NUMBERS], int first,
                         int n, int m, double *sum) {
    double p[NUMBERS][KOLO_POWER_RANKS] = {{0}}, q[KOLO_POWER_RANKS][NUMBERS] = {{0}};
    for (int r = 0; r < o->ranks; r++) {
        for (int i = first; i < first + n * m; i++) s->lost[r][i] += x[r][i]; /* g + e */
    }
    for (int k = 0; k < o->power_rank; k++) {
        bool zero = true;
        for (int j = 0; j < m; j++) zero &= s->q[k][first + j] == 0;
        for (int j = 0; j < m && zero; j++) s->q[k][first + j] = kolo_power_start(k * m + j);
        for (int i = 0; i < n; i++) {
            for (int r = 0; r < o->ranks; r++) {
                for (int j = 0; j < m; j++) {
                    p[i][k] += s->lost[r][first + i * m + j] * s->q[k][first + j];
                }
            }
        }
        for (int l = 0; l < k; l++) {
            double dot = 0;
            for (int i = 0; i < n; i++) dot += p[i][k] * p[i][l];
            for (int i = 0; i < n; i++) p[i][k] -= dot * p[i][l];
        }
        double norm = 0;
        for (int i = 0; i < n; i++) norm += p[i][k] * p[i][k];
        for (int i = 0; i < n && norm > 0; i++) p[i][k] /= sqrt(norm);
    }
    for (int r = 0; r < o->ranks; r++) {
        double *lost = s->lost[r] + first, own[KOLO_POWER_RANKS][NUMBERS] = {{0}};
        for (int k = 0; k < o->power_rank; k++) {
            for (int j = 0; j < m; j++) {
                for (int i = 0; i < n; i++) own[k][j] += p[i][k] * lost[i * m + j];
                q[k][j] += own[k][j];
            }
        }
        for (int k = 0; k < o->power_rank; k++) {
            for (int i = 0; i < n * m; i++) lost[i] -= p[i / m][k] * own[k][i % m];
        }
    }
    for (int k = 0; k < o->power_rank; k++) {
        for (int i = 0; i < n * m; i++) sum[first + i] += p[i / m][k] * q[k][i % m];
        for (int j = 0; j < m; j++) s->q[k][first + j] = q[k][j];
    }
}

static void add_factors(simulation *s, const setting *o, int t, double x[RANKS][NUMBERS],
                        double *sum) {
    if (t == 0) {
        add_factored(s, o, x, 0, HIDDEN, IN, sum);
    } else if (o->power_rank == 1) { /* else the factors of w2 have more numbers than it */
        add_factored(s, o, x, W1, CLASSES, HIDDEN, sum);
    } else {
        for (int r = 0; r < o->ranks; r++) {
            for (int i = W1; i < NUMBERS; i++) sum[i] += x[r][i];
        }
    }
}

/* Adds the ranks' numbers of tensor t as they are exchanged. */
static void add_all(simulation *s, const setting *o, int t, double x[RANKS][NUMBERS], double *sum) {
    if (o->power_rank > 0) {
        add_factors(s, o, t, x, sum);
        return;
    }
    for (int r = 0; r < o->ranks; r++) {
        if (o->codec.kind != KOLO_CODEC_NONE) {
            add_decoded(s, &o->codec, r, t, x[r], sum);
        } else {
            for (int i = first_of[t]; i < first_of[t + 1]; i++) sum[i] += x[r][i];
        }
    }
}

static double mean_of(const simulation *s, int ranks, int i) {
    double sum = 0;
    for (int r = 0; r < ranks; r++) sum += s->w[r][i];
    return sum / ranks;
}

/* The outer update of tensor t, or the mean. */
static void combine(simulation *s, const setting *o, int t) {
    double away[RANKS][NUMBERS], deltas[NUMBERS] = {0};
    for (int r = 0; r < o->ranks; r++) {
        for (int i = 0; i < NUMBERS; i++) away[r][i] = s->away[r][i] / o->ranks;
    }
    if (o->outer) add_all(s, o, t, away, deltas);
    for (int i = first_of[t]; i < first_of[t + 1]; i++) {
        double w = mean_of(s, o->ranks, i);
        if (o->outer) {
            double delta = deltas[i];
            s->outer[i] = o->outer_momentum * s->outer[i] + delta;
            double by = o->nesterov ? delta + o->outer_momentum * s->outer[i] : s->outer[i];
            s->anchor[i] = w = s->anchor[i] - o->outer_lr * by;
        }
        for (int r = 0; r < o->ranks; r++) s->w[r][i] = o->mix * s->w[r][i] + (1 - o->mix) * w;
    }
}

/* After so many steps of the ranks on their own: w1 is the first fragment and w2 the second, half
 * of a round before it. */
static void combine_due(simulation *s, const setting *o, int steps) {
    for (int t = 0; t < 2; t++) {
        const int offset = o->fragments == 2 ? t * o->every / 2 : 0;
        const int cut = steps - o->overlap; /* of what is combined now */
        const bool due = o->overlap > 0 && cut > 0 && (cut + offset) % o->every == 0;
        if (due) combine(s, o, t);
        if ((steps + offset) % o->every != 0) continue;
        for (int r = 0; r < o->ranks; r++) {
            for (int i = first_of[t]; i < first_of[t + 1]; i++) {
                s->away[r][i] = s->anchor[i] - s->w[r][i];
            }
        }
        if (o->overlap == 0) combine(s, o, t);
    }
}

static bool is_empty(const setting *o, int rank, int step) {
    return o->has_nothing && rank == o->ranks - 1 && step % 3 == 2;
}

/* All make the same update, with the gradients of `lag` steps ago, compressed or not. */
static void step_together(simulation *s, const setting *given, int step) {
    setting plain = *given;
    plain.codec.kind = KOLO_CODEC_NONE;
    plain.power_rank = 0;
    const setting *o = given->every > 0 ? &plain : given; /* of a warm-up */
    double sum[NUMBERS] = {0}, all[RANKS][NUMBERS];
    for (int r = 0; r < o->ranks; r++) {
        double *g = all[r];
        if (!is_empty(o, r, step)) gradient(s->w[r], r, step, s->past[r][step]);
        for (int i = 0; i < NUMBERS; i++) {
            g[i] = step >= o->lag ? s->past[r][step - o->lag][i] / o->ranks : 0;
        }
    }
    for (int t = 0; t < 2; t++) add_all(s, o, t, all, sum);
    for (int i = 0; i < NUMBERS; i++) {
        s->v[0][i] = o->momentum * s->v[0][i] + sum[i];
        for (int r = 0; r < o->ranks; r++) s->w[r][i] -= lr * s->v[0][i];
    }
}

/* 1-bit Adam; v[0] is the momentum, outer the second moment, which stays after the warm-up. */
static void step_adam(simulation *s, const setting *o, int step) {
    double sum[NUMBERS] = {0}, part[RANKS][NUMBERS];
    const bool frozen = step >= o->warm_up;
    const double update = step + 1, seen = frozen ? o->warm_up : update, n = o->ranks;
    for (int r = 0; r < o->ranks; r++) {
        double g[NUMBERS] = {0};
        if (!is_empty(o, r, step)) gradient(s->w[r], r, step, g);
        for (int i = 0; i < NUMBERS; i++) {
            const double d = g[i] + (o->decoupled ? 0 : o->decay * s->w[r][i]); /* of its samples */
            part[r][i] = ((frozen ? beta1 * s->v[0][i] : 0) + (frozen ? 1 - beta1 : 1) * d) / n;
        }
    }
    for (int t = 0; t < 2; t++) {
        for (int r = 0; r < o->ranks && frozen; r++) add_decoded(s, &o->codec, r, t, part[r], sum);
    }
    for (int i = 0; i < NUMBERS; i++) {
        for (int r = 0; r < o->ranks && !frozen; r++) sum[i] += part[r][i];
        s->v[0][i] =
            frozen ? (s->outer[i] > 0 ? sum[i] : 0) : beta1 * s->v[0][i] + (1 - beta1) * sum[i];
        if (!frozen) s->outer[i] = beta2 * s->outer[i] + (1 - beta2) * sum[i] * sum[i];
        const double m = s->v[0][i] / (1 - pow(beta1, update));
        const double v = s->outer[i] / (1 - pow(beta2, seen));
        for (int r = 0; r < o->ranks; r++) {
            if (o->decoupled) s->w[r][i] *= 1 - adam_lr * o->decay;
            s->w[r][i] -= adam_lr * m / (sqrt(v) + eps);
        }
    }
}

static void step_alone(simulation *s, const setting *o, int step) {
    double g[NUMBERS];
    for (int r = 0; r < o->ranks; r++) {
        gradient(s->w[r], r, step, g);
        for (int i = 0; i < NUMBERS; i++) {
            s->v[r][i] = o->momentum * s->v[r][i] + g[i];
            s->w[r][i] -= lr * s->v[r][i];
        }
    }
    combine_due(s, o, step + 1 - o->warm_up);
}

/* The ranks have equal parameters and momenta, and train on their own from now on. */
static void part(simulation *s, const setting *o) {
    for (int r = 1; r < o->ranks; r++) memcpy(s->v[r], s->v[0], sizeof s->v[0]);
    memcpy(s->anchor, s->w[0], sizeof s->anchor);
}

static void simulate(const setting *o, outcome *result) {
    static simulation s;
    memset(&s, 0, sizeof s);
    for (int r = 0; r < o->ranks; r++) {
        for (int i = 0; i < NUMBERS; i++) s.anchor[i] = s.w[r][i] = initial(i);
    }
    for (int step = 0; step < STEPS; step++) {
        const bool alone = o->every > 0 && step >= o->warm_up;
        if (alone && step == o->warm_up) part(&s, o);
        alone                             ? step_alone(&s, o, step)
        : o->every == 0 && o->warm_up > 0 ? step_adam(&s, o, step)
                                          : step_together(&s, o, step);
        for (int i = 0; i < NUMBERS; i++) {
            result->parameters[step][i] = mean_of(&s, o->ranks, i);
        }
    }
}

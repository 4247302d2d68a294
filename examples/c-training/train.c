/* A small training program in plain C: a network with one hidden layer classifies points on three
 * spiral arms, trained by SGD with momentum. train_kolo.c is the data-parallel version; `diff train.c
 * train_kolo.c` shows the changes.
 *
 *     cc -O2 train.c -o train -lm && ./train */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { IN = 2, HIDDEN = 64, OUT = 3, SAMPLES = 1536, BATCH = 96, EPOCHS = 60 };

/* Each parameter with its gradient and its momentum. */
typedef struct tensor {
    int n;
    float *value, *gradient, *momentum;
} tensor;

static unsigned long long seed = 1;

static float uniform(void) { /* in [-1, 1) */
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (float)(seed >> 40) / (float)(1 << 23) - 1;
}

static tensor tensor_make(int n, float scale) {
    tensor t = {n, malloc(n * sizeof(float)), calloc(n, sizeof(float)), calloc(n, sizeof(float))};
    for (int i = 0; i < n; i++) t.value[i] = scale * uniform();
    return t;
}

static float points[SAMPLES][IN];
static int arms[SAMPLES];

static void make_data(void) {
    for (int i = 0; i < SAMPLES; i++) {
        float radius = (float)(i / OUT) / (SAMPLES / OUT);
        arms[i] = i % OUT;
        float angle = 4 * radius + 2.0944F * (float)arms[i] + 0.15F * uniform();
        points[i][0] = radius * sinf(angle);
        points[i][1] = radius * cosf(angle);
    }
}

/* Accumulates the gradients of one sample; returns its loss. */
static float learn(const float *x, int arm, tensor *w1, tensor *b1, tensor *w2, tensor *b2) {
    float hidden[HIDDEN], score[OUT], top = -1e30F, sum = 0;
    for (int h = 0; h < HIDDEN; h++) {
        float a = b1->value[h];
        for (int k = 0; k < IN; k++) a += w1->value[h * IN + k] * x[k];
        hidden[h] = tanhf(a);
    }
    for (int o = 0; o < OUT; o++) {
        score[o] = b2->value[o];
        for (int h = 0; h < HIDDEN; h++) score[o] += w2->value[o * HIDDEN + h] * hidden[h];
        top = fmaxf(top, score[o]);
    }
    for (int o = 0; o < OUT; o++) sum += score[o] = expf(score[o] - top);
    float loss = -logf(score[arm] / sum), back[HIDDEN] = {0};
    for (int o = 0; o < OUT; o++) {
        float d = (score[o] / sum - (o == arm)) / BATCH;
        b2->gradient[o] += d;
        for (int h = 0; h < HIDDEN; h++) {
            w2->gradient[o * HIDDEN + h] += d * hidden[h];
            back[h] += d * w2->value[o * HIDDEN + h];
        }
    }
    for (int h = 0; h < HIDDEN; h++) {
        float d = back[h] * (1 - hidden[h] * hidden[h]);
        b1->gradient[h] += d;
        for (int k = 0; k < IN; k++) w1->gradient[h * IN + k] += d * x[k];
    }
    return loss / BATCH;
}

static void update(tensor *t) {
    for (int i = 0; i < t->n; i++) {
        t->momentum[i] = 0.9F * t->momentum[i] + t->gradient[i];
        t->value[i] -= 0.05F * t->momentum[i];
        t->gradient[i] = 0;
    }
}

int main(void) {
    make_data();
    tensor w1 = tensor_make(HIDDEN * IN, 1), b1 = tensor_make(HIDDEN, 1);
    tensor w2 = tensor_make(OUT * HIDDEN, 0.2F), b2 = tensor_make(OUT, 0);
    float loss = 0;
    for (int step = 0; step < EPOCHS * SAMPLES / BATCH; step++) {
        loss = 0;
        for (int i = 0; i < BATCH; i++) {
            int sample = (step * BATCH + i) * 7 % SAMPLES;
            loss += learn(points[sample], arms[sample], &w1, &b1, &w2, &b2);
        }
        update(&w1), update(&b1), update(&w2), update(&b2);
    }
    printf("loss %.6f\n", loss);
    return 0;
}

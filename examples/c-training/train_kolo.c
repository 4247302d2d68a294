/* train.c on any number of ranks: each processes its share of every batch, and a reducer sums the
 * gradients and the loss.
 *
 *     cc -O2 train_kolo.c -o train_kolo -lm -lkolo-comm && kolo run -n 2 -- ./train_kolo */
#include <kolo/reducer.h>

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

static void check(kolo_status status) {
    if (status != KOLO_OK) fprintf(stderr, "%s\n", kolo_last_error()), exit(1);
}

int main(void) {
    kolo_comm *comm;
    kolo_reducer *reducer;
    check(kolo_comm_create(NULL, &comm));
    int rank = kolo_comm_rank(comm), size = kolo_comm_size(comm);
    make_data();
    tensor w1 = tensor_make(HIDDEN * IN, 1), b1 = tensor_make(HIDDEN, 1);
    tensor w2 = tensor_make(OUT * HIDDEN, 0.2F), b2 = tensor_make(OUT, 0);
    float loss = 0;
    kolo_part parts[] = {{0, w1.gradient, w1.n},
                         {0, b1.gradient, b1.n},
                         {0, w2.gradient, w2.n},
                         {0, b2.gradient, b2.n},
                         {0, &loss, 1}};
    check(kolo_reducer_create(comm, parts, 5, KOLO_DTYPE_F32, &(kolo_reducer_opts){.sum = true},
                              &reducer));
    for (int step = 0; step < EPOCHS * SAMPLES / BATCH; step++) {
        loss = 0;
        for (int i = BATCH * rank / size; i < BATCH * (rank + 1) / size; i++) {
            int sample = (step * BATCH + i) * 7 % SAMPLES;
            loss += learn(points[sample], arms[sample], &w1, &b1, &w2, &b2);
        }
        check(kolo_reducer_ready_range(reducer, 0, 5));
        check(kolo_reducer_wait(reducer));
        update(&w1), update(&b1), update(&w2), update(&b2);
    }
    if (rank == 0) printf("loss %.6f\n", loss);
    kolo_reducer_destroy(reducer);
    kolo_comm_destroy(comm);
    return 0;
}

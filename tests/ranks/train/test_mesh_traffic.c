/* The bytes that each rank of a mesh sends in a step, by the counters of tcp, against formulas.
 * With two ranks an allreduce sends as many bytes as the tensor has, any algorithm. */
#include "base/compiler.h"
#include "support/support.h"
#include "support/train_job.h"

#include <math.h>

enum {
    PIXEL_BATCH = 32,
    BATCH = 8,
    PARTS = 4,
    TOKENS = 32,
    WIDTH = 64,
    LAYERS = 3,
    MOST = TRAIN_JOB_RANKS
};

static const double activation = 4.0 * BATCH * TOKENS * WIDTH; /* bytes, of all micro-batches */
static const double of_loss = 4.0 * 5 * BATCH * TOKENS;        /* a maximum and four sums */

#define GPT2                                                                                \
    {                                                                                       \
        .model = "gpt2_tiny",                                                               \
        .model_options = "layers=3,width=64,heads=4,context=32,vocab=60,"                   \
                         "tied=0",                                                          \
        .data = "synthetic-tokens:N=67,test=1", .batch = BATCH / PARTS, .accumulate = PARTS \
    }

/* Four allreduces of an activation per layer, one of the embedding, one of the output layer. */
static double tensor_parallel(int rank) {
    (void)rank;
    return (4 * LAYERS + 2) * activation + of_loss;
}

/* An allgather and a reduce-scatter instead of each allreduce, half its bytes each; but the last
 * activation is gathered for the output layer, and its gradient summed. So are those of layer
 * norms. */
static double sequence_parallel(int rank) {
    const double norms = 4 * WIDTH * LAYERS + 2 * WIDTH;
    return tensor_parallel(rank) + activation / 2 + 4 * norms;
}

/* lstm_lm: of the states of a layer each rank has half, and gives that to the other in each time
 * step; the gradients come back in all but the last. Inputs of layers and of the output layer have
 * an allreduce of their gradient, the embedding one of itself. */
static double recurrence(int rank) {
    const double states = activation / TOKENS;
    (void)rank;
    return 2 * (2 * TOKENS - 1) * states / 2 + 4 * activation + of_loss;
}

/* lstm_lm: of the contributions to the four gates, 4 activations of which a rank has half the
 * positions, it sends half, and of the states that come back; their gradients move as much. All
 * gradients are summed. */
static double recurrence_by_samples(int rank) {
    const double parameters = 60 * WIDTH + 2 * (8 * WIDTH * WIDTH + 8 * WIDTH) + 60 * WIDTH + 60;
    (void)rank;
    return 2 * 2 * 5 * activation / 4 + 4 * parameters;
}

/* Queries, keys and values go one way and the outputs back; of 4 activations a rank has half the
 * positions and sends half of those. Their gradients move as much. All gradients are summed. */
static double context_parallel(int rank) {
    const double parameters =
        2 * 60 * WIDTH + TOKENS * WIDTH + LAYERS * (12 * WIDTH * WIDTH + 13 * WIDTH) + 2 * WIDTH;
    (void)rank;
    return 8 * LAYERS * activation / 4 + 4 * parameters;
}

/* Of what each of four experts reads, 20 places of a sequence, a rank has half the samples and
 * sends half of those; as much comes back, and gradients of both. All other gradients are summed.
 */
static double expert_parallel(int rank) {
    const double places = 4 * 20, parameters = 2 * 60 * WIDTH + TOKENS * WIDTH +
                                               LAYERS * (4 * WIDTH * WIDTH + 12 * WIDTH) +
                                               2 * WIDTH;
    (void)rank;
    return 4 * LAYERS * activation / TOKENS * places / 4 + 4 * parameters;
}

/* Keys and values, 2 activations of which a rank has its positions, go round once in the forward
 * and once in the backward pass, and so do their gradients. */
static double ring(int rank) {
    const int size = 4;
    const double parameters =
        2 * 60 * WIDTH + TOKENS * WIDTH + LAYERS * (12 * WIDTH * WIDTH + 13 * WIDTH) + 2 * WIDTH;
    (void)rank;
    return 6 * LAYERS * (size - 1) * activation / size + 2.0 * (size - 1) / size * 4 * parameters;
}

/* lenet: two rows of the image for the first convolution; of what the second one reads two rows,
 * these again for the gradient of its weights, and their gradients; for the second pool one row,
 * of rank 1, and its gradient back; then each gives its rows to the classifier. The gradients of
 * the convolutions are summed. */
static double rows_of_images(int rank) {
    const double first = 2 * 28, second = 3 * 2 * 14 * 6, pool = 10 * 16;
    const double given = (rank == 0 ? 3 : 2) * 5 * 16, convolutions = 156 + 2416;
    return 4 * (PIXEL_BATCH * (first + second + pool + given) + convolutions);
}

/* A stage sends activations to the next one and gradients to the one before. */
static double pipeline(int rank) { return (rank == 1 ? 2 : 1) * activation; }

/* Between two stages of two ranks each. Groups along tp count apart. */
static double divided_pipeline(int rank) {
    (void)rank;
    return activation;
}

/* One weird trick: gradients of convolutions are summed; features, their gradients and the second
 * linear layer are exchanged. No channels are padded. */
static double classic_hybrid(int rank) {
    const double convolutions = 158928, features = 2304, units = 48;
    (void)rank;
    return 4.0 / 2 * (2 * convolutions + 2 * BATCH * features + 2 * BATCH * units);
}

/* googlenet: sums of what the second convolutions of pairs give, and of the gradients of what the
 * first ones read, which those of a module share. No channels are padded. */
static double channels(int rank) {
    static const struct {
        int pixels, inputs, outputs;
    } pairs[] = {{64, 64, 192}, {16, 192, 160}, {16, 256, 288}, {4, 480, 256}, {4, 512, 288},
                 {4, 512, 320}, {4, 512, 352},  {4, 528, 448},  {1, 832, 448}, {1, 832, 512}};
    double sent = 1024 + 5; /* the gradient of what the classifier reads, and the loss */
    (void)rank;
    for (size_t i = 0; i < KOLO_COUNT(pairs); i++) {
        sent += pairs[i].pixels * (pairs[i].inputs + pairs[i].outputs);
    }
    return 4 * BATCH * sent;
}

static const struct {
    kolo_train_opts opts;
    const char *mesh;
    int ranks;
    double (*formula)(int rank);
    const char *placement;
} cases[] = {
    {GPT2, "tp=2", 2, tensor_parallel, NULL},
    {GPT2, "tp=2", 2, sequence_parallel, "megatron-sp"},
    {{.model = "lstm_lm",
      .model_options = "layers=2,width=64,hidden=64,context=32,vocab=60",
      .data = "synthetic-tokens:N=67,test=1",
      .batch = BATCH / PARTS,
      .accumulate = PARTS},
     "tp=2",
     2,
     recurrence,
     NULL},
    {{.model = "lstm_lm",
      .model_options = "layers=2,width=64,hidden=64,context=32,vocab=60",
      .data = "synthetic-tokens:N=67,test=1",
      .batch = BATCH / PARTS,
      .accumulate = PARTS},
     "sp=2",
     2,
     recurrence_by_samples,
     NULL},
    {GPT2, "sp=2", 2, context_parallel, NULL},
    {GPT2, "sp=4", 4, ring, "ring"},
    {GPT2, "sp=4", 4, ring, "zigzag"},
    {{.model = "gpt2_moe",
      .model_options = "layers=3,width=64,heads=4,context=32,vocab=60,tied=0,experts=4",
      .data = "synthetic-tokens:N=67,test=1",
      .batch = BATCH / PARTS,
      .accumulate = PARTS},
     "ep=2",
     2,
     expert_parallel,
     NULL},
    {{.model = "lenet", .data = "synthetic:N=300,test=1", .batch = PIXEL_BATCH},
     "sp=2",
     2,
     rows_of_images,
     NULL},
    {GPT2, "pp=3", 3, pipeline, NULL},
    {GPT2, "pp=2,tp=2", 4, divided_pipeline, NULL},
    {{.model = "alexnet",
      .model_options = "width=25,units=48",
      .data = "synthetic:N=67,test=1,shape=3x63x63,classes=10,seed=2",
      .batch = BATCH},
     "tp=2",
     2,
     classic_hybrid,
     NULL},
    {{.model = "googlenet",
      .model_options = "aux=0",
      .data = "synthetic:N=67,test=1,shape=3x32x32,classes=10,seed=2",
      .batch = BATCH},
     "tp=2",
     2,
     channels,
     NULL},
};

typedef struct traffic_job {
    size_t row;
    int64_t steps;
} traffic_job;

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const traffic_job *job = arg;
    kolo_train_opts opts = cases[job->row].opts;
    opts.mesh = cases[job->row].mesh;
    opts.placement = cases[job->row].placement;
    opts.no_eval = true;
    opts.epochs = 100;
    opts.steps = job->steps;
    return train_counted(comm, &opts, result);
}

static void bytes_on_the_wire_are_those_of_the_formulas(void **state) {
    enum { STEPS = 6, REPORTED = 256 /* bytes of a rank, in messages of their own */ };
    (void)state;
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        const traffic_job one = {i, 1}, several = {i, STEPS};
        double few[MOST], more[MOST];
        (void)train_traffic(cases[i].ranks, body, &one, sizeof one, few);
        (void)train_traffic(cases[i].ranks, body, &several, sizeof several, more);
        for (int r = 0; r < cases[i].ranks; r++) {
            const double measured = (more[r] - few[r]) / (STEPS - 1);
            const double formula = cases[i].formula(r);
            print_message("%s, rank %d: %.0f bytes a step, formula %.0f: %.4f\n", cases[i].mesh, r,
                          measured, formula, measured / formula);
            const bool near = fabs(measured - formula) < 0.01 * formula + REPORTED;
            if (!near) fail_msg("more than 1 %% and what steps report");
        }
    }
}

TEST_MAIN(test_mesh_traffic) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_on_the_wire_are_those_of_the_formulas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

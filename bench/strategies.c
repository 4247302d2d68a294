/* Strategies compared: what data, tensor, pipeline and mixed parallelism move, keep and leave idle
 * for a network, as a table in Markdown:
 *
 *     strategies [GFLOPS GBYTES_PER_S GBIT_PER_S]
 *
 * Nothing is trained. For each strategy the plan of each worker is compiled as for training,
 * without communication, and its numbers are added up: what its collectives and messages send, the
 * memory that it plans, and the times of its nodes. A node takes the larger of its flops over
 * GFLOPS (default 100) and its bytes over GBYTES_PER_S (10); what is sent GBIT_PER_S (10).
 *
 *     step = slowest worker x (m + p - 1) / m  +  sums that the passes wait for
 *            + sums of gradients, as far as the backward pass does not hide them
 *
 * with m micro-batches on p stages (1f1b). Messages between stages are hidden. Utilisation is the
 * time of the whole network on one worker, over that of all workers in a step; balance is the mean
 * time of the workers over that of the slowest. docs/parallelism.md has the table. */
#include "base/text.h"
#include "kolo/models.h"
#include "pass/partition/rules.h"
#include "plan/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORKERS = 4, MICRO_BATCHES = 8 };

typedef struct network {
    const char *title, *model, *options;
    int64_t batch; /* of all workers */
    kolo_optimizer_opts optimizer;
} network;

typedef struct strategy {
    const char *title, *mesh;
    int micro_batches, zero;
    const char *rules[4]; /* by network; NULL: the built-in ones; "": there are none */
} strategy;

#define MOMENTUM \
    { .momentum = 0.9 }
#define ADAMW \
    { .kind = KOLO_OPTIMIZER_ADAMW }
static const network networks[] = {
    {"AlexNet", "alexnet", NULL, 128, MOMENTUM},
    {"VGG-16", "vgg16", NULL, 64, MOMENTUM},
    {"ResNet-50", "resnet50", NULL, 64, MOMENTUM},
    {"gpt2", "gpt2", "context=1024", 16, ADAMW},
};

/* Convolutions in pairs, divided by output and by input channels, and the classifier. */
#define ALEXNET_CHANNELS                                              \
    "features.0.weight 0\nfeatures.3.weight 1\nfeatures.6.weight 0\n" \
    "features.8.weight 1\nclassifier.1.weight 0\nclassifier.4.weight 1\n"
#define VGG_CHANNELS                                                     \
    "features.0.weight 0\nfeatures.2.weight 1\nfeatures.5.weight 0\n"    \
    "features.7.weight 1\nfeatures.10.weight 0\nfeatures.12.weight 1\n"  \
    "features.17.weight 0\nfeatures.19.weight 1\nfeatures.24.weight 0\n" \
    "features.26.weight 1\nclassifier.0.weight 0\nclassifier.3.weight 1\n"

static const strategy strategies[] = {
    {"one worker", "dp=1", 1, 0, {NULL}},
    {"data", "dp=4", 1, 0, {NULL}},
    {"data, `--zero 1`", "dp=4", 1, 1, {NULL}},
    {"tensor", "dp=1,tp=4", 1, 0, {ALEXNET_CHANNELS, VGG_CHANNELS, NULL, NULL}},
    {"pipeline", "dp=1,pp=4", MICRO_BATCHES, 0, {NULL}},
    {"hybrid: convolutions by samples, classifier divided",
     "dp=1,tp=4",
     1,
     0,
     {NULL, NULL, "", ""}},
    {"hybrid: data x tensor", "dp=2,tp=2", 1, 0, {"", "", NULL, NULL}},
    {"hybrid: data x pipeline", "dp=2,pp=2", MICRO_BATCHES, 0, {NULL}},
    {"hybrid: pipeline x tensor", "dp=1,pp=2,tp=2", MICRO_BATCHES, 0, {"", "", NULL, NULL}},
};

typedef struct machine {
    double flops, memory, network; /* per second: flops, bytes, bytes */
} machine;

/* Of a worker in a step. */
typedef struct load {
    double seconds, backward;           /* of its nodes */
    double inside, gradients, messages; /* bytes that it sends */
    double memory;
} load;

static kolo_status build(const network *n, int64_t batch, kolo_graph **graph) {
    const kolo_model *model;
    kolo_shape sample;
    int64_t classes;
    kolo_graph *g;
    KOLO_TRY(kolo_model_find(n->model, &model));
    KOLO_TRY(kolo_model_sample(model, n->options, &sample, &classes));
    KOLO_TRY(kolo_graph_create(NULL, &g));
    const kolo_model_opts opts = {
        .batch = batch, .sample = sample, .classes = classes, .options = n->options};
    const kolo_status status = kolo_model_add(model, g, &opts);
    if (status != KOLO_OK) {
        kolo_graph_destroy(g);
        return status;
    }
    *graph = g;
    return KOLO_OK;
}

/* Bytes that a rank sends in the collective of a POST: a ring's. */
static double sent_by(const kolo_graph *g, const kolo_node *post, const kolo_bucket *bucket) {
    int ranks = 1;
    for (int a = 0; a < g->mesh.n_axes; a++) {
        if (post->attr[KOLO_COMM_AXES].i >> a & 1) ranks *= g->mesh.axes[a].size;
    }
    const double part = (double)bucket->bytes * (ranks - 1) / ranks;
    return bucket->collective == KOLO_COLLECTIVE_ALLREDUCE ? 2 * part : part;
}

static void add_communication(const kolo_plan *p, int micro_batches, load *l) {
    const kolo_graph *g = p->graph;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        if (n->op->comm != KOLO_OP_POST) continue;
        const bool inside = n->attr[KOLO_COMM_INSIDE].i != 0;
        const double bytes = sent_by(g, n, &p->map.buckets[n->attr[KOLO_COMM_BUCKET].i]);
        *(inside ? &l->inside : &l->gradients) += inside ? micro_batches * bytes : bytes;
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        if (g->outputs[i].crossing.number == 0) continue;
        l->messages +=
            micro_batches * (double)kolo_tensor_bytes(&kolo_info(g, g->outputs[i].value)->tensor);
    }
}

static void add_nodes(const kolo_plan *p, int micro_batches, const machine *m,
                      kolo_step_info *infos, load *l) {
    kolo_plan_describe(p, infos);
    for (int i = 0; i < kolo_plan_n_steps(p); i++) {
        if (infos[i].kind != KOLO_STEP_KERNEL) continue;
        const double flops = infos[i].cost.flops / m->flops,
                     bytes = infos[i].cost.bytes / m->memory;
        const double seconds =
            (flops > bytes ? flops : bytes) * (infos[i].once ? 1 : micro_batches);
        l->seconds += seconds;
        if (infos[i].phase == KOLO_PHASE_BACKWARD) l->backward += seconds;
    }
}

static kolo_status measure(const network *n, const strategy *s, const kolo_mesh *mesh, int rank,
                           const char *rules, const machine *m, load *l) {
    const int dp = mesh->axes[kolo_mesh_find(mesh, "dp")].size, stages = kolo_mesh_stages(mesh);
    kolo_store *store;
    kolo_plan *plan = NULL;
    kolo_graph *g = NULL;
    kolo_step_info *infos = NULL;
    KOLO_TRY(kolo_store_create(NULL, &store));
    if (kolo_mesh_size(mesh) == 1) kolo_store_set_alone(store);
    kolo_status status = build(n, n->batch / dp / s->micro_batches, &g);
    int slots = stages;
    const int pp = kolo_mesh_find(mesh, "pp");
    if (pp >= 0) slots -= kolo_mesh_coordinate(mesh, rank, pp); /* of 1f1b */
    const kolo_plan_opts opts = {.train = true,
                                 .optimizer = n->optimizer,
                                 .micro_batches = s->micro_batches,
                                 .slots = &slots,
                                 .zero = s->zero,
                                 .mesh = *mesh,
                                 .rank = rank,
                                 .kernels = KOLO_KERNELS_REF, /* plain layouts */
                                 .placement = rules};
    if (status == KOLO_OK) status = kolo_plan_compile(g, &opts, store, NULL, &plan);
    if (status == KOLO_OK) {
        infos = calloc((size_t)kolo_plan_n_steps(plan) + 1, sizeof *infos);
        if (!infos) status = KOLO_NOMEM(sizeof *infos);
    }
    if (status == KOLO_OK) {
        const kolo_plan_memory memory = kolo_plan_memory_of(plan);
        *l = (load){.memory =
                        (double)(memory.arena + memory.scratch + memory.gradients + memory.store)};
        add_nodes(plan, s->micro_batches, m, infos, l);
        add_communication(plan, s->micro_batches, l);
    }
    free(infos);
    kolo_plan_destroy(plan);
    kolo_store_destroy(store);
    return status;
}

/* Prints the row of a strategy; *one: the seconds of one worker, set by the first row. */
static kolo_status compare(const network *n, const strategy *s, const char *rules, const machine *m,
                           double *one) {
    kolo_mesh mesh;
    load loads[WORKERS] = {{0}}, most = {0};
    double sum = 0;
    KOLO_TRY(kolo_mesh_parse(s->mesh, 0, &mesh));
    const int workers = kolo_mesh_size(&mesh), stages = kolo_mesh_stages(&mesh);
    const int dp = kolo_mesh_find(&mesh, "dp");
    for (int r = 0; r < workers; r++) { /* places on dp are alike: their plans differ in nothing */
        const int first = kolo_mesh_neighbour(&mesh, r, dp, 0);
        load *l = &loads[r];
        *l = loads[first];
        if (first == r) KOLO_TRY(measure(n, s, &mesh, r, rules, m, l));
        sum += l->seconds;
        const double sent = l->inside + l->gradients + l->messages;
        if (sent > most.messages) most.messages = sent; /* of all kinds */
        if (l->inside > most.inside) most.inside = l->inside;
        if (l->gradients > most.gradients) most.gradients = l->gradients;
        if (l->memory > most.memory) most.memory = l->memory;
        if (l->seconds > most.seconds) {
            most.seconds = l->seconds;
            most.backward = l->backward;
        }
    }
    if (workers == 1) *one = sum;
    const double hidden = stages > 1 ? 0 : most.backward; /* sums follow the last micro-batch */
    const double exposed = most.gradients / m->network - hidden;
    const double parts = s->micro_batches;
    const double step = most.seconds * (parts + stages - 1) / parts + most.inside / m->network +
                        (exposed > 0 ? exposed : 0);
    printf("| %s | %s | `%s` | %.0f | %.0f | %.0f %% | %.0f %% | %.0f |\n", n->title, s->title,
           s->mesh, most.messages / 1e6, most.memory / 1e6, 100 * *one / (workers * step),
           100 * sum / workers / most.seconds, 1e3 * step);
    return KOLO_OK;
}

int main(int argc, char **argv) {
    machine m = {.flops = 100e9, .memory = 10e9, .network = 10e9 / 8};
    if (argc != 1 && argc != 4) {
        fputs("strategies [GFLOPS GBYTES_PER_S GBIT_PER_S]\n", stderr);
        return 2;
    }
    if (argc == 4) {
        m = (machine){1e9 * strtod(argv[1], NULL), 1e9 * strtod(argv[2], NULL),
                      1e9 / 8 * strtod(argv[3], NULL)};
    }
    puts("| network | strategy | mesh | MB sent by a worker | MB of a worker | utilisation | "
         "balance "
         "| step (ms) |\n| --- | --- | --- | --- | --- | --- | --- | --- |");
    for (size_t i = 0; i < KOLO_COUNT(networks); i++) {
        double one = 0;
        for (size_t k = 0; k < KOLO_COUNT(strategies); k++) {
            const char *rules = strategies[k].rules[i];
            if (rules && !*rules) continue;
            if (compare(&networks[i], &strategies[k], rules, &m, &one) != KOLO_OK) {
                fprintf(stderr, "strategies: %s, %s: %s\n", networks[i].title, strategies[k].title,
                        kolo_last_error());
                return 1;
            }
            fflush(stdout);
        }
    }
    return 0;
}

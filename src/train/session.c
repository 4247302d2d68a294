/* Sessions: the plan cache, filling a plan's inputs, running it. */
#include "train/session.h"

#include "base/integer.h"
#include "base/rng.h"
#include "kolo/train.h"

#include <inttypes.h>
#include <string.h>

typedef enum purpose {
    FINISH,   /* a step, or its last micro-batch: global samples are the key */
    ADD,      /* an earlier micro-batch of another size than the last: global samples */
    EVALUATE, /* local samples */
} purpose;

/* A compiled plan and how its samples lie. */
typedef struct cached {
    purpose purpose;
    int64_t key;
    int64_t local; /* this rank's samples; 0: the plan has one that does not count */
    kolo_plan *plan;
    bool tokens; /* x is i32 tokens, else f32 images */
    bool pairs;  /* it reports "next_loss" and "next_correct" */
    kolo_image_order order;
    size_t x_bytes;
    int64_t labels; /* elements of y */
} cached;

struct kolo_session {
    kolo_session_opts opts; /* strings are copied */
    char *model, *model_options;
    kolo_comm *comm;
    kolo_store *store;
    uint64_t seed, steps;       /* what dropout draws from */
    const kolo_plan *evaluated; /* the plan that evaluated last */
    cached *plans;
    size_t n_plans, cap_plans;
};

/* ---- life ---- */

/* The labels that the graph takes must be those of the data. */
static kolo_status check_labels(const kolo_session_opts *opts, const kolo_graph *g) {
    const kolo_shape *y = &kolo_info(g, kolo_graph_find(g, "y"))->tensor.shape;
    kolo_shape want = {y->rank - 1, {0}};
    for (int i = 1; i < y->rank; i++) want.dim[i - 1] = y->dim[i];
    if (kolo_shape_equal(&want, &opts->label)) return KOLO_OK;
    char model[KOLO_SHAPE_TEXT], data[KOLO_SHAPE_TEXT];
    return KOLO_FAIL(
        KOLO_ERR_ARG,
        "model %s takes labels of shape %s for each sample, and the data has %s: choose "
        "%s",
        opts->model, kolo_shape_text(&want, model), kolo_shape_text(&opts->label, data),
        want.rank > 0 ? "data with a label for each pixel, such as synthetic-seg"
                      : "data with one label a sample, or a model for segmentation");
}

kolo_status kolo_session_build(const kolo_session_opts *opts, int64_t batch, kolo_graph **graph) {
    const kolo_model *model;
    KOLO_TRY(kolo_model_find(opts->model, &model));
    kolo_graph *g;
    KOLO_TRY(kolo_graph_create(NULL, &g));
    kolo_model_opts model_opts = {
        .batch = batch,
        .sample = opts->sample,
        .classes = opts->classes,
        .options = opts->model_options,
    };
    kolo_status status = model->build(g, &model_opts);
    if (status == KOLO_OK) status = kolo_graph_check(g);
    if (status == KOLO_OK) status = check_labels(opts, g);
    if (status != KOLO_OK) {
        kolo_graph_destroy(g);
        return status;
    }
    *graph = g;
    return KOLO_OK;
}

/* How the samples lie: a plan may want them row-major or with the channels last. */
static kolo_status describe_inputs(cached *c) {
    kolo_tensor x, y, unused;
    (void)kolo_plan_input(c->plan, "x", &x);
    (void)kolo_plan_input(c->plan, "y", &y);
    c->tokens = x.dtype == KOLO_DTYPE_I32;
    c->x_bytes = kolo_tensor_bytes(&x);
    c->labels = kolo_shape_count(&y.shape);
    c->pairs = kolo_plan_output(c->plan, "next_loss", &unused) != NULL;
    char text[KOLO_LAYOUT_TEXT];
    kolo_layout_text(&x.layout, text);
    if (kolo_layout_is_plain(&x.layout)) {
        c->order = KOLO_NCHW;
    } else if (strcmp(text, "acdb") == 0) {
        c->order = KOLO_NHWC;
    } else {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "samples cannot be fed in the layout %s", text);
    }
    return KOLO_OK;
}

static const cached *find_plan(const kolo_session *s, purpose use, int64_t key) {
    for (size_t i = 0; i < s->n_plans; i++) {
        if (s->plans[i].purpose == use && s->plans[i].key == key) return &s->plans[i];
    }
    return NULL;
}

static int64_t ranks_of(const kolo_session *s) { return s->comm ? kolo_comm_size(s->comm) : 1; }

static int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Micro-batches of a step: as many as the largest share needs, the same on all ranks. */
static int64_t micro_batches(const kolo_session *s, int64_t global) {
    return divide_up(divide_up(global, ranks_of(s)), s->opts.batch);
}

/* Compiles a plan into the cache. */
static kolo_status add_plan(kolo_session *s, purpose use, int64_t key, int64_t local,
                            const cached **made) {
    if (!KOLO_GROW(s->plans, s->n_plans, s->cap_plans)) return KOLO_NOMEM(sizeof *s->plans);
    cached c = {.purpose = use, .key = key, .local = local};
    kolo_graph *graph;
    KOLO_TRY(kolo_session_build(&s->opts, kolo_max_i64(local, 1), &graph));
    kolo_plan_opts plan_opts = s->opts.plan;
    plan_opts.train = use != EVALUATE;
    if (plan_opts.train) plan_opts.micro_batches = micro_batches(s, key);
    if (use == FINISH) plan_opts.most_samples = divide_up(key, ranks_of(s));
    if (use == ADD) plan_opts.adds_to = find_plan(s, FINISH, key)->plan;
    kolo_comm *comm = use == FINISH ? s->comm : NULL;
    KOLO_TRY(kolo_plan_compile(graph, &plan_opts, s->store, comm, &c.plan));
    kolo_status status = describe_inputs(&c);
    if (status != KOLO_OK) {
        kolo_plan_destroy(c.plan);
        return status;
    }
    s->plans[s->n_plans] = c;
    *made = &s->plans[s->n_plans++];
    return KOLO_OK;
}

static kolo_status get_plan(kolo_session *s, purpose use, int64_t key, int64_t local,
                            const cached **found) {
    const cached *c = find_plan(s, use, key);
    if (!c) return add_plan(s, use, key, local, found);
    if (c->local != local) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "a global batch of %" PRId64 " samples has %" PRId64
                         " on this rank now and had %" PRId64 " before: split it alike",
                         key, local, c->local);
    }
    *found = c;
    return KOLO_OK;
}

kolo_status kolo_session_create(const kolo_session_opts *opts, kolo_comm *comm,
                                kolo_session **session) {
    kolo_status status;
    kolo_session *s = kolo_zalloc(sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    s->opts = *opts;
    s->comm = comm;
    if (s->opts.accumulate == 0) s->opts.accumulate = 1;
    s->opts.model = s->model = kolo_strdup(opts->model);
    s->opts.model_options = s->model_options =
        kolo_strdup(opts->model_options ? opts->model_options : "");
    if (!s->model || !s->model_options) {
        kolo_session_destroy(s);
        return KOLO_NOMEM(strlen(opts->model));
    }
    KOLO_TRY_GOTO(kolo_store_create(&s->store), fail);
    if (ranks_of(s) == 1) kolo_store_set_alone(s->store);
    int64_t global = opts->batch * s->opts.accumulate * ranks_of(s);
    const cached *unused;
    if (opts->evaluate_only) {
        KOLO_TRY_GOTO(get_plan(s, EVALUATE, opts->batch, opts->batch, &unused), fail);
    } else {
        KOLO_TRY_GOTO(get_plan(s, FINISH, global, opts->batch, &unused), fail);
    }
    *session = s;
    return KOLO_OK;
fail:
    kolo_session_destroy(s);
    return status;
}

void kolo_session_destroy(kolo_session *s) {
    if (!s) return;
    for (size_t i = 0; i < s->n_plans; i++) kolo_plan_destroy(s->plans[i].plan);
    kolo_free(s->plans);
    kolo_store_destroy(s->store);
    kolo_free(s->model);
    kolo_free(s->model_options);
    kolo_free(s);
}

kolo_status kolo_session_init(kolo_session *s, uint64_t seed) {
    s->seed = seed;
    s->steps = 0;
    KOLO_TRY(kolo_store_init(s->store, seed));
    return s->comm ? kolo_store_broadcast(s->store, s->comm) : KOLO_OK;
}

void kolo_session_set_steps(kolo_session *s, int64_t steps) { s->steps = (uint64_t)steps; }

kolo_store *kolo_session_store(const kolo_session *s) { return s->store; }

kolo_plan *kolo_session_plan(const kolo_session *s) { return s->plans[0].plan; }

int64_t kolo_session_parameters(const kolo_session *s) {
    int64_t total = 0;
    for (int i = 0; i < kolo_store_count(s->store); i++) {
        const kolo_store_entry *entry = kolo_store_entry_at(s->store, i);
        if (entry->kind == KOLO_VALUE_PARAM) total += kolo_shape_count(&entry->canon);
    }
    return total;
}

/* ---- running ---- */

/* Plans take turns in one arena, which may move when one is added: inputs are found each time. */
static void fill(const cached *c, const kolo_batch *batch) {
    void *x = kolo_plan_input(c->plan, "x", NULL);
    int32_t *y = kolo_plan_input(c->plan, "y", NULL);
    if (batch->count == 0) {                         /* a sample that does not count */
        memset(x, c->tokens ? 0xff : 0, c->x_bytes); /* tokens of -1: no row of a table is theirs */
        for (int64_t i = 0; i < c->labels; i++) y[i] = -1;
        return;
    }
    if (c->tokens) {
        memcpy(x, batch->samples, c->x_bytes);
    } else {
        kolo_batch_normalize(batch, c->order, x);
    }
    memcpy(y, batch->labels, (size_t)c->labels * sizeof *y);
}

void kolo_sums_add(kolo_sums *to, const kolo_sums *more) {
    to->loss += more->loss;
    to->correct += more->correct;
    to->next_loss += more->next_loss;
    to->next_correct += more->next_correct;
    to->samples += more->samples;
    to->labels += more->labels;
    to->pairs += more->pairs;
}

static kolo_status finish(const cached *c, kolo_sums *sums, int64_t samples, int64_t labels) {
    KOLO_TRY(kolo_plan_run(c->plan));
    *sums = (kolo_sums){
        .loss = kolo_plan_scalar(c->plan, "loss"),
        .correct = kolo_plan_scalar(c->plan, "correct"),
        .samples = samples,
        .labels = labels,
        .pairs = c->pairs ? samples : 0,
    };
    if (c->pairs) {
        sums->next_loss = kolo_plan_scalar(c->plan, "next_loss");
        sums->next_correct = kolo_plan_scalar(c->plan, "next_correct");
    }
    return KOLO_OK;
}

/* Labels that count in the batches of all ranks: the loss is a mean over them. */
static kolo_status count_labels(const kolo_session *s, const kolo_batch *batch, int64_t *labels) {
    *labels = batch->global_count;
    if (s->opts.label.rank == 0) return KOLO_OK; /* every sample has its one */
    *labels = batch->count > 0 ? kolo_batch_labels(batch) : 0;
    return s->comm ? kolo_allreduce(s->comm, labels, 1, KOLO_DTYPE_I64, KOLO_SUM) : KOLO_OK;
}

/* Scalars that only some graphs have. */
static void set_optional(kolo_plan *plan, const char *name, double number) {
    if (kolo_plan_has_scalar(plan, name)) kolo_plan_set_scalar(plan, name, number);
}

/* Where a share of `n` samples is cut into `parts`: the first n % parts have one more. */
static int64_t part_first(int64_t n, int64_t parts, int64_t i) {
    return i * (n / parts) + kolo_min_i64(i, n % parts);
}
static int64_t part_count(int64_t n, int64_t parts, int64_t i) {
    return n / parts + (i < n % parts);
}

/* Samples of all ranks in micro-batch i: two sizes of share there are (data/sampler.h). */
static int64_t micro_global(const kolo_session *s, int64_t global, int64_t parts, int64_t i) {
    int64_t ranks = ranks_of(s), larger = global % ranks, share = global / ranks;
    return larger * part_count(share + 1, parts, i) +
           (ranks - larger) * part_count(share, parts, i);
}

/* Fills what one micro-batch reads. Everything is of the step but its samples and its share. */
static void prepare(const kolo_session *s, const cached *c, const kolo_batch *micro, double lr,
                    int64_t labels, double share, bool fresh) {
    const uint64_t step[] = {s->seed, s->steps};
    fill(c, micro);
    kolo_plan_set_scalar(c->plan, "lr", lr);
    set_optional(c->plan, "update", (double)(s->steps + 1));
    kolo_plan_set_scalar(c->plan, "grad_scale", labels > 0 ? 1.0 / (double)labels : 0);
    set_optional(c->plan, "share", share);
    set_optional(c->plan, "fresh", fresh);
    set_optional(c->plan, "first_sample", (double)micro->first);
    set_optional(c->plan, "draw", (double)(kolo_hash_bytes(step, sizeof step) >> 40));
}

/* A share that is cut must be the sampler's: the sizes of the others' follow from it. */
static kolo_status check_share(const kolo_session *s, const kolo_batch *batch) {
    int64_t rank = s->comm ? kolo_comm_rank(s->comm) : 0;
    int64_t share = part_count(batch->global_count, ranks_of(s), rank);
    if (batch->count == share) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "%" PRId64 " samples of %" PRId64 " on rank %" PRId64
                     ": micro-batches need shares as equal as can be, %" PRId64 " here",
                     batch->count, batch->global_count, rank, share);
}

kolo_status kolo_session_step(kolo_session *s, const kolo_batch *batch, double lr,
                              kolo_sums *sums) {
    KOLO_ASSERT(!s->opts.evaluate_only && batch->global_count > 0);
    const int64_t global = batch->global_count, n = micro_batches(s, global);
    if (n > 1) KOLO_TRY(check_share(s, batch));
    const cached *last, *c;
    int64_t labels;
    KOLO_TRY(count_labels(s, batch, &labels));
    int64_t last_count = part_count(batch->count, n, n - 1);
    KOLO_TRY(get_plan(s, FINISH, global, last_count, &last));
    const cached finishing = *last; /* the cache may move */
    for (int64_t i = 0; i < n; i++) {
        int64_t count = part_count(batch->count, n, i);
        double all = (double)(n == 1 ? global : micro_global(s, global, n, i));
        kolo_batch micro = kolo_batch_part(batch, part_first(batch->count, n, i), count);
        c = &finishing;
        if (count != last_count) KOLO_TRY(get_plan(s, ADD, global, count, &c));
        prepare(s, c, &micro, lr, labels, (double)count / all, i == 0);
        if (i < n - 1) KOLO_TRY(kolo_plan_accumulate(c->plan));
    }
    KOLO_TRY(finish(&finishing, sums, global, labels));
    s->steps++; /* one that broke off is drawn again as it was */
    return KOLO_OK;
}

kolo_status kolo_session_evaluate(kolo_session *s, const kolo_batch *batch, kolo_sums *sums) {
    KOLO_ASSERT(batch->count > 0);
    const cached *c;
    KOLO_TRY(get_plan(s, EVALUATE, batch->count, batch->count, &c));
    fill(c, batch);
    set_optional(c->plan, "first_sample", (double)batch->first);
    s->evaluated = c->plan;
    bool maps = s->opts.label.rank > 0;
    return finish(c, sums, batch->count, maps ? kolo_batch_labels(batch) : batch->count);
}

const float *kolo_session_output(const kolo_session *s, const char *name, kolo_tensor *tensor) {
    return s->evaluated ? kolo_plan_output(s->evaluated, name, tensor) : NULL;
}

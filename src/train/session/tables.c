#include "train/session/tables.h"

#include "base/integer.h"
#include "base/memory.h"
#include "comm/table/table_owner.h"
#include "pass/pass.h"
#include "train/session/agree.h"
#include "train/session/tables_internal.h"

#include <string.h>

typedef kolo_row_updater updater;
typedef kolo_served_table table;

/* ---- updates at owners, in the thread of the service ---- */

static void update(void *arg, const kolo_table_update *u) {
    updater *x = arg;
    const int64_t step = x->steps + (int64_t)u->clock;
    x->lr = (float)kolo_lr_at(&x->schedule, kolo_min_i64(step, x->schedule.total - 1));
    x->update = (float)u->version;
    void *const in[] = {u->values,
                        (void *)(uintptr_t)u->gradients,
                        (void *)(uintptr_t)u->slots,
                        &x->lr,
                        &x->update,
                        u->state[0],
                        u->state[1]};
    memcpy(x->call.in, in, sizeof in);
    x->call.out[0] = u->values;
    x->call.out[1] = u->state[0];
    x->call.out[2] = u->state[1];
    x->kernel->run(&x->call);
}

static kolo_status check_optimizer(const kolo_optimizer_opts *o, const char *name) {
    const bool adam = o->kind == KOLO_OPTIMIZER_ADAM || o->kind == KOLO_OPTIMIZER_ADAMW;
    if ((adam || o->kind == KOLO_OPTIMIZER_SGD) && (adam || o->momentum == 0) &&
        o->weight_decay == 0 && o->clip == 0) {
        return KOLO_OK;
    }
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                     "--table %s: servers update the rows that have a gradient, by SGD without "
                     "momentum or Adam, without weight decay and clipping",
                     name);
}

static kolo_status prepare_update(updater *x, const kolo_optimizer_opts *o, int64_t width) {
    const bool adam = o->kind != KOLO_OPTIMIZER_SGD;
    const kolo_shape all = kolo_shape_2(INT32_MAX, width), one = kolo_shape_0();
    const kolo_shape shapes[] = {
        all, kolo_shape_2(KOLO_TABLE_CHUNK, width), kolo_shape_1(KOLO_TABLE_CHUNK), one, one, all,
        all};
    x->spec = (kolo_kernel_spec){.op = adam ? &kolo_op_adam_rows : &kolo_op_sgd_rows,
                                 .attr = x->attr,
                                 .n_in = adam ? 7 : 4,
                                 .n_out = adam ? 3 : 1,
                                 .threads = 1};
    x->attr[KOLO_ADAM_BETA1].f = o->beta1;
    x->attr[KOLO_ADAM_BETA2].f = o->beta2;
    x->attr[KOLO_ADAM_EPS].f = o->eps;
    for (int k = 0; k < x->spec.n_in; k++) {
        x->spec.in[k] = kolo_tensor_plain(k == 2 ? KOLO_DTYPE_I32 : KOLO_DTYPE_F32, shapes[k]);
    }
    for (int k = 0; k < x->spec.n_out; k++) x->spec.out[k] = x->spec.in[0];
    size_t scratch = 0;
    /* Also with reference kernels, which would convert the whole table. */
    KOLO_TRY(kolo_kernel_select(KOLO_KERNELS_BEST, &x->spec, &x->kernel, NULL));
    x->call.spec = &x->spec;
    return x->kernel->prepare(&x->spec, &x->call.state, &scratch);
}

/* ---- creation ---- */

static kolo_table_initial initial_of(kolo_init_kind kind) {
    return kind == KOLO_INIT_UNIFORM  ? KOLO_TABLE_UNIFORM
           : kind == KOLO_INIT_NORMAL ? KOLO_TABLE_NORMAL
                                      : KOLO_TABLE_ZEROS;
}

/* The number of an input, as a session lists them. */
static int input_number(const kolo_graph *g, int32_t value) {
    int n = 0;
    for (int32_t v = 0; v < value; v++) n += g->values[v].kind == KOLO_VALUE_INPUT;
    return n;
}

/* The input that the embedding of a table reads its ids from. */
static int32_t find_ids(const kolo_graph *dense, int32_t v) {
    for (int32_t i = 0; i < dense->n_nodes; i++) {
        const kolo_node *n = dense->nodes[i];
        if (n->op->lookup && n->in[0].id == v) return n->in[1].id;
    }
    return -1;
}

/* `dense`: the graph in which the table is a parameter, with the same numbers of values. */
static kolo_status add_table(kolo_tables *d, const kolo_graph *g, const kolo_graph *dense,
                             int32_t v, const kolo_session_config *config,
                             const kolo_tables_opts *o) {
    const kolo_value_info *info = &g->values[v];
    const int32_t ids = find_ids(dense, v);
    kolo_optimizer_opts optimizer;
    KOLO_TRY(kolo_optimizer_resolve(&config->plan.optimizer, &optimizer));
    if (d->n == KOLO_TABLES_MOST) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "--table: more than %d tables", KOLO_TABLES_MOST);
    }
    KOLO_ASSERT(ids >= 0);
    table *t = &d->tables[d->n++];
    *t = (table){.name = kolo_strdup(info->name),
                 .input = input_number(g, v),
                 .ids = input_number(g, ids),
                 .value = v,
                 .height = info->rows,
                 .length = info->tensor.shape.dim[1],
                 .width = info->tensor.shape.dim[2],
                 .init = info->init};
    if (!t->name) return KOLO_NOMEM(strlen(info->name));
    KOLO_TRY(check_optimizer(&optimizer, t->name));
    if (info->init.kind == KOLO_INIT_ONE || info->initial) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "--table %s: its initial values are given", t->name);
    }
    t->updater.steps = o->steps;
    t->updater.schedule = o->schedule;
    return prepare_update(&t->updater, &optimizer, t->width);
}

/* Finds the tables in a graph of the model. */
static kolo_status find_tables(kolo_tables *d, const kolo_session_config *config,
                               const kolo_tables_opts *o) {
    kolo_session_config whole = *config;
    kolo_graph *g = NULL, *dense = NULL;
    whole.tables.names = NULL;
    kolo_status status = kolo_session_build(config, 1, &g);
    if (status == KOLO_OK) status = kolo_session_build(&whole, 1, &dense);
    for (int32_t v = 0; status == KOLO_OK && v < g->n_values; v++) {
        if (kolo_is_pulled(g, v)) status = add_table(d, g, dense, v, config, o);
    }
    kolo_graph_destroy(g);
    kolo_graph_destroy(dense);
    return status;
}

/* The samples of the largest step of a worker. */
static int64_t most_samples(const kolo_session_config *config, int64_t workers) {
    const int64_t share = (config->global_batch + workers - 1) / workers;
    return kolo_max_i64(config->batch, share);
}

static kolo_table_opts options_of(table *t, const kolo_session_config *config,
                                  const kolo_tables_opts *o) {
    const kolo_table_config *c = &config->tables;
    const int64_t workers = kolo_comm_size(o->world) - o->servers;
    return (kolo_table_opts){
        .name = t->name,
        .width = (size_t)t->width,
        .states = t->updater.spec.n_out - 1,
        .seed = c->seed,
        .initial = initial_of(t->init.kind),
        .scale = t->init.scale,
        .bytes = (size_t)c->bytes,
        .refuse = c->refuse,
        .admit = (uint32_t)c->admit,
        .expire = (uint64_t)c->expire,
        .expire_ms = c->expire_ms,
        .batch = (size_t)(most_samples(config, workers) * t->length),
        .servers = o->servers,
        .staleness = c->staleness,
        .needs_all = !c->outlives,
        .replicas = o->replicas,
        .update = update,
        .arg = &t->updater,
    };
}

kolo_status kolo_tables_find(const kolo_session_config *config, const kolo_tables_opts *opts,
                             kolo_tables **tables) {
    kolo_tables *d = kolo_zalloc(sizeof *d);
    kolo_status status = d ? find_tables(d, config, opts) : KOLO_NOMEM(sizeof *d);
    status = kolo_agree(opts->world, status);
    if (status != KOLO_OK) {
        kolo_tables_destroy(d);
        return status;
    }
    KOLO_ASSERT(d);
    d->owners = opts->servers > 0 ? opts->servers : kolo_comm_size(opts->world);
    *tables = d;
    return KOLO_OK;
}

/* A table has no more rows than ids, and than the samples of all steps have. */
static uint64_t most_rows(const table *t, const kolo_session_config *config,
                          const kolo_tables_opts *o) {
    const double ids = (double)o->schedule.total * (double)config->global_batch * (double)t->length;
    return ids < (double)t->height ? (uint64_t)ids : (uint64_t)t->height;
}

size_t kolo_tables_needs(kolo_tables *d, const kolo_session_config *config,
                         const kolo_tables_opts *o) {
    const int workers = kolo_comm_size(o->world) - o->servers;
    const bool works = kolo_comm_rank(o->world) < workers, owns = !works || o->servers == 0;
    size_t bytes = 0;
    for (int i = 0; i < d->n; i++) {
        table *t = &d->tables[i];
        const kolo_table_opts opts = options_of(t, config, o);
        const size_t rows = opts.batch * opts.width * sizeof(float); /* pulled, and fed */
        bytes += kolo_table_needs(&opts, workers, works, owns, most_rows(t, config, o),
                                  config->tables.saved);
        if (works) bytes += 2 * rows;
    }
    return bytes;
}

kolo_status kolo_tables_open(kolo_tables *d, const kolo_session_config *config,
                             const kolo_tables_opts *o) {
    kolo_status status = KOLO_OK;
    for (int i = 0; status == KOLO_OK && i < d->n; i++) {
        const kolo_table_opts opts = options_of(&d->tables[i], config, o);
        d->tables[i].batch = opts.batch;
        status = kolo_table_create(o->world, &opts, &d->tables[i].rows_at);
    }
    if (status != KOLO_OK) kolo_tables_abandon(d);
    return status;
}

void kolo_tables_abandon(kolo_tables *d) {
    d->abandoned = true;
    for (int i = 0; i < d->n; i++) {
        if (d->tables[i].rows_at) kolo_table_abandon(d->tables[i].rows_at);
    }
}

void kolo_tables_destroy(kolo_tables *d) {
    if (!d) return;
    /* All of this worker's, before an owner here waits for the other workers. */
    for (int i = 0; i < d->n; i++) {
        kolo_table *rows = d->tables[i].rows_at;
        if (rows && kolo_table_works(rows) && !d->abandoned) (void)kolo_table_finish(rows);
    }
    for (int i = 0; i < d->n; i++) {
        table *t = &d->tables[i];
        kolo_table_destroy(t->rows_at);
        if (t->updater.kernel && t->updater.kernel->release) {
            t->updater.kernel->release(t->updater.call.state);
        }
        kolo_free(t->name);
        kolo_free(t->now.numbers);
        kolo_free(t->now.positions);
        kolo_free(t->next.numbers);
        kolo_free(t->next.positions);
        kolo_free(t->compact);
        kolo_free(t->rows);
    }
    kolo_free(d);
}

/* ---- steps of a worker ---- */

static kolo_status reserve_ids(kolo_batch_ids *ids, size_t n) {
    if (n <= ids->capacity) return KOLO_OK;
    kolo_free(ids->numbers);
    kolo_free(ids->positions);
    ids->capacity = 0;
    ids->numbers = kolo_alloc(n * sizeof *ids->numbers);
    ids->positions = kolo_alloc(n * sizeof *ids->positions);
    if (!ids->numbers || !ids->positions) return KOLO_NOMEM(n * sizeof *ids->numbers);
    ids->capacity = n;
    return KOLO_OK;
}

/* Room for the rows of n positions. */
static kolo_status reserve(table *t, size_t n) {
    const size_t width = (size_t)t->width;
    if (n <= t->capacity) return KOLO_OK;
    kolo_free(t->compact);
    kolo_free(t->rows);
    t->capacity = 0;
    t->compact = kolo_alloc(n * width * sizeof *t->compact);
    t->rows = kolo_alloc(n * width * sizeof *t->rows);
    if (!t->compact || !t->rows) return KOLO_NOMEM(n * width * sizeof *t->rows);
    t->capacity = n;
    return KOLO_OK;
}

/* Collects the ids; those outside of the table have rows of zeros, as for an embedding. */
static kolo_status collect(const table *t, const int32_t *ids, size_t n, kolo_batch_ids *to) {
    KOLO_TRY(reserve_ids(to, n));
    to->n_positions = n;
    to->n = 0;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= t->height) continue;
        to->numbers[to->n] = (uint64_t)ids[i];
        to->positions[to->n++] = (uint32_t)i;
    }
    return KOLO_OK;
}

static bool same_ids(const kolo_batch_ids *a, const kolo_batch_ids *b) {
    return a->n == b->n && a->n_positions == b->n_positions &&
           (a->n == 0 || (memcmp(a->numbers, b->numbers, a->n * sizeof *a->numbers) == 0 &&
                          memcmp(a->positions, b->positions, a->n * sizeof *a->positions) == 0));
}

/* Ends a read ahead: whether `rows` are those of the batch. */
static kolo_status take_ahead(table *t, float *rows, bool *right) {
    *right = t->ahead && same_ids(&t->now, &t->next);
    if (!t->ahead) return KOLO_OK;
    t->ahead = false;
    if (*right) t->n_ahead++;
    if (*right) return kolo_table_pull_wait(t->rows_at, rows);
    float *unused = kolo_alloc((t->next.n + 1) * (size_t)t->width * sizeof *unused);
    if (!unused) return KOLO_NOMEM(t->next.n * (size_t)t->width * sizeof *unused);
    const kolo_status status = kolo_table_pull_wait(t->rows_at, unused);
    kolo_free(unused);
    return status;
}

/* A step has no more ids than a batch of the table; an evaluation may have. */
static kolo_status read_rows(table *t, float *rows, bool train) {
    const kolo_batch_ids *ids = &t->now;
    bool read;
    KOLO_TRY(take_ahead(t, rows, &read));
    if (train) return read ? KOLO_OK : kolo_table_pull(t->rows_at, ids->numbers, ids->n, rows);
    for (size_t first = 0; first < ids->n; first += t->batch) {
        const size_t left = ids->n - first, n = left < t->batch ? left : t->batch;
        KOLO_TRY(
            kolo_table_read(t->rows_at, ids->numbers + first, n, rows + first * (size_t)t->width));
    }
    return KOLO_OK;
}

static kolo_status pull(table *t, const int32_t *ids, size_t n, bool train) {
    const size_t width = (size_t)t->width;
    KOLO_TRY(reserve(t, n));
    KOLO_TRY(collect(t, ids, n, &t->now));
    if (t->now.n == n) return read_rows(t, t->rows, train);
    KOLO_TRY(read_rows(t, t->compact, train));
    memset(t->rows, 0, n * width * sizeof *t->rows);
    for (size_t i = 0; i < t->now.n; i++) {
        memcpy(t->rows + t->now.positions[i] * width, t->compact + i * width,
               width * sizeof *t->rows);
    }
    return KOLO_OK;
}

/* The ids of a table in a batch. */
static const int32_t *ids_of(const table *t, const kolo_batch *batch, const int *field_of) {
    KOLO_ASSERT(field_of[t->ids] >= 0);
    return batch->data[field_of[t->ids]];
}

kolo_status kolo_tables_pull(kolo_tables *d, const kolo_batch *batch, const int *field_of,
                             bool train) {
    for (int i = 0; i < d->n; i++) {
        table *t = &d->tables[i];
        const size_t n = (size_t)(batch->count * t->length);
        KOLO_TRY(pull(t, ids_of(t, batch, field_of), n, train));
    }
    return KOLO_OK;
}

kolo_status kolo_tables_prefetch(kolo_tables *d, const kolo_batch *batch, const int *field_of) {
    for (int i = 0; i < d->n; i++) {
        table *t = &d->tables[i];
        const size_t n = (size_t)(batch->count * t->length);
        if (t->ahead || n == 0 || n > t->batch) continue;
        KOLO_TRY(collect(t, ids_of(t, batch, field_of), n, &t->next));
        KOLO_TRY(kolo_table_pull_start(t->rows_at, t->next.numbers, t->next.n));
        t->ahead = true;
    }
    return KOLO_OK;
}

uint64_t kolo_tables_count_ahead(const kolo_tables *d) {
    uint64_t n = 0;
    for (int i = 0; i < d->n; i++) n += d->tables[i].n_ahead;
    return n;
}

void kolo_tables_feed(const kolo_tables *d, int input, void *to) {
    for (int i = 0; i < d->n; i++) {
        const table *t = &d->tables[i];
        if (t->input != input) continue;
        memcpy(to, t->rows, t->now.n_positions * (size_t)t->width * sizeof *t->rows);
    }
}

/* The gradient of the rows of the batch. */
static const float *gradient_of(const table *t, const kolo_plan *plan) {
    char name[KOLO_GRADIENT_NAME];
    kolo_tensor tensor;
    const size_t width = (size_t)t->width;
    const float *all = kolo_plan_output(plan, kolo_gradient_name(t->value, name), &tensor);
    KOLO_ASSERT(all && tensor.dtype == KOLO_DTYPE_F32 && kolo_layout_is_plain(&tensor.layout));
    if (t->now.n == t->now.n_positions) return all;
    for (size_t i = 0; i < t->now.n; i++) {
        memcpy(t->compact + i * width, all + t->now.positions[i] * width, width * sizeof *all);
    }
    return t->compact;
}

kolo_status kolo_tables_push(kolo_tables *d, const kolo_plan *plan) {
    for (int i = 0; i < d->n; i++) {
        table *t = &d->tables[i];
        KOLO_TRY(kolo_table_push(t->rows_at, t->now.numbers, plan ? t->now.n : 0,
                                 plan ? gradient_of(t, plan) : NULL));
    }
    return KOLO_OK;
}

kolo_status kolo_tables_flush(kolo_tables *d) {
    for (int i = 0; i < d->n; i++) {
        table *t = &d->tables[i];
        bool unused;
        t->now.n = t->now.n_positions = 0; /* what is read ahead would be older than the pushes */
        KOLO_TRY(take_ahead(t, NULL, &unused));
        KOLO_TRY(kolo_table_flush(t->rows_at));
    }
    return KOLO_OK;
}

kolo_status kolo_tables_stats(kolo_tables *d, kolo_table_stats *stats) {
    *stats = (kolo_table_stats){0};
    for (int i = 0; i < d->n; i++) {
        kolo_table_stats s;
        KOLO_TRY(kolo_table_stats_get(d->tables[i].rows_at, &s));
        kolo_table_stats_add(stats, &s);
    }
    return KOLO_OK;
}

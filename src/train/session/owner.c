/* What an owner computes from a push, the `update` of kolo/parameters.h: it weighs or averages,
 * compensates for delay, sets the learning rate, and runs the steps of the plan that update its
 * ranges. When a push is applied, and who may read, is decided in comm/sync/parameters_owner.c. */
#include "train/session/owner.h"

#include "base/integer.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/sync/byte_split.h"
#include "plan/pieces.h"
#include "train/session/metrics.h"

#include <inttypes.h>
#include <string.h>

/* A worker: what it has read last, and where it is. */
typedef struct reader {
    uint64_t updates; /* that had been made */
    float *values;    /* of parameters; NULL: not needed */
    uint64_t clock;   /* after its latest push that was taken */
    int64_t first;    /* its steps at clock 0, which are below 0 if they were set to fewer */
} reader;

/* A part of the owner: one of each bucket. */
typedef struct owned_part {
    kolo_owner *owner;
    int part;
    uint64_t updates;
    int64_t pushes;
    double *totals;
} owned_part;

/* Of what workers set. */
static const double most_lr = 1e6;
static const int64_t most_steps = INT64_C(1) << 40;
static const double most_updates = 0x1p53; /* that a double counts */

struct kolo_owner {
    kolo_owner_opts opts;
    owned_part *parts;         /* by bucket */
    void **args;               /* by bucket: these */
    int *groups;               /* of the plan's steps: their first buckets; NULL: one bucket */
    kolo_plan_pieces **pieces; /* by first bucket: of a parameter that has several; else NULL */
    int *first;                /* by bucket: the first one of its parameter */
    int n_buckets;             /* of `pieces` and `first` */
    size_t piece_bytes;        /* of a large parameter; 0: it has one bucket */
    int part;                  /* that is served now; the same of updates, pushes and totals */
    kolo_store *store;
    kolo_plan *plan;
    kolo_value lr, update;
    kolo_optimizer_opts optimizer;
    kolo_plan_sum *sums;
    int n_sums;
    kolo_plan_norm *norms; /* whose squares are of the ranges of all owners */
    int n_norms;
    int step, norm; /* of the update that is being made: its next step, and norm */
    const kolo_division *division;
    float **sum_at, **value_at; /* by row: where sums arrive; where parameters and state are */
    uint64_t updates;
    double fixed_lr; /* in place of the schedule; 0: none */
    int64_t pushes;  /* of all workers, since the start; where each is an update */
    reader *readers; /* by worker */
    double *totals;  /* samples, labels, each metric, and updates */
    int loss;        /* place of the sum of losses in the totals */
};

static int readers_of(const kolo_owner *o) { return o->opts.workers + o->opts.joins; }

/* ---- creation ---- */

static kolo_status compile(kolo_owner *o, kolo_graph *graph, const kolo_plan_opts *plan) {
    const int owners = o->opts.owners;
    kolo_plan_opts opts = *plan;
    opts.train = true;
    opts.mesh = (kolo_mesh){1, {{"dp", owners > 1 ? owners : 2}}}; /* of one rank: no sums */
    opts.zero = owners > 1 ? 3 : 0;
    opts.rank = o->opts.index;
    opts.bucket_bytes = (size_t)1 << 40; /* no sum of a bucket shares memory with another */
    opts.unit_bytes = plan->bucket_bytes > 0 ? plan->bucket_bytes : KOLO_BUCKET_BYTES;
    opts.no_chains |= o->opts.buckets; /* of updates of several buckets */
    o->piece_bytes = o->opts.buckets ? opts.unit_bytes : 0;
    const size_t bytes = ((size_t)owners + 1) * sizeof(int64_t);
    int64_t *shares = o->opts.buckets ? kolo_alloc(bytes) : NULL;
    if (o->opts.buckets && !shares) {
        kolo_graph_destroy(graph);
        return KOLO_NOMEM(bytes);
    }
    const int working = o->opts.working > 0 ? o->opts.working : owners;
    const kolo_byte_split split = {
        .workers = working, .servers = owners - working, .hosts = o->opts.hosts};
    for (int i = 0; i <= owners && shares; i++)
        shares[i] = (int64_t)kolo_byte_split_before(split, i);
    opts.shares = shares;
    const kolo_status status = kolo_plan_compile(graph, &opts, o->store, NULL, &o->plan);
    kolo_free(shares);
    KOLO_TRY(status);
    o->optimizer = plan->optimizer;
    o->lr = kolo_plan_find_scalar(o->plan, "lr");
    o->update = kolo_plan_find_scalar(o->plan, "update");
    KOLO_TRY(kolo_plan_find_norms(o->plan, &o->norms, &o->n_norms));
    return kolo_plan_find_sums(o->plan, &o->sums, &o->n_sums);
}

kolo_status kolo_owner_create(kolo_graph *graph, const kolo_plan_opts *plan,
                              const kolo_owner_opts *opts, kolo_owner **owner) {
    kolo_owner *o = kolo_zalloc(sizeof *o);
    kolo_status status = o ? kolo_store_create(NULL, &o->store) : KOLO_NOMEM(sizeof *o);
    if (status == KOLO_OK) {
        o->opts = *opts;
        kolo_store_set_alone(o->store);
        status = compile(o, graph, plan);
    } else {
        kolo_graph_destroy(graph);
    }
    if (status != KOLO_OK) {
        kolo_owner_destroy(o);
        return status;
    }
    *owner = o;
    return KOLO_OK;
}

void kolo_owner_destroy(kolo_owner *o) {
    if (!o) return;
    kolo_plan_destroy(o->plan);
    kolo_store_destroy(o->store);
    kolo_free(o->sums);
    kolo_free(o->norms);
    kolo_free((void *)o->sum_at);
    kolo_free((void *)o->value_at);
    kolo_free(o->parts ? o->parts[0].totals : NULL);
    kolo_free(o->parts);
    kolo_free((void *)o->args);
    kolo_free(o->groups);
    for (int b = 0; o->pieces && b < o->n_buckets; b++) {
        kolo_plan_pieces_destroy(o->pieces[b]);
    }
    kolo_free((void *)o->pieces);
    kolo_free(o->first);
    for (int w = 0; w < readers_of(o) && o->readers; w++) kolo_free(o->readers[w].values);
    kolo_free(o->readers);
    kolo_free(o);
}

size_t kolo_owner_bytes(const kolo_owner *o) {
    size_t numbers = 0;
    for (int b = 0; b < o->division->buckets; b++) {
        const kolo_parameters_part part =
            kolo_division_part(o->division, b * o->opts.owners + o->opts.index);
        const size_t read = o->opts.compensation > 0 ? (size_t)readers_of(o) * part.values : 0;
        numbers += part.values + part.gradient + part.state + read;
    }
    return numbers * sizeof(float);
}

kolo_status kolo_owner_divide(const kolo_owner *o, kolo_division *division) {
    KOLO_TRY(
        kolo_division_make(o->opts.owners, o->store, o->sums, o->n_sums, o->piece_bytes, division));
    kolo_division_compress(division, &o->opts.codes, o->sums, o->n_sums);
    return KOLO_OK;
}

static void print_row(const kolo_division *d, int owner, int row, const char *name,
                      kolo_text *text) {
    int64_t first, end = 0, unused;
    kolo_division_range(d, row, kolo_division_bucket(d, row) * d->owners + owner, &first, &end);
    for (int r = row; r >= 0; r = kolo_division_next(d, r)) { /* one after the other */
        kolo_division_range(d, r, kolo_division_bucket(d, r) * d->owners + owner, &unused, &end);
    }
    if (first < end) {
        kolo_text_add(text, "  %s [%" PRId64 ", %" PRId64 ") of %" PRId64 "\n", name, first, end,
                      kolo_division_elements(d, row));
    }
}

kolo_status kolo_owner_print(const kolo_owner *o, kolo_text *text) {
    kolo_division d;
    KOLO_TRY(kolo_owner_divide(o, &d));
    const int workers = o->opts.working;
    for (int i = 0; i < o->opts.owners; i++) {
        kolo_parameters_part all = {0};
        for (int b = 0; b < d.buckets; b++) {
            const kolo_parameters_part part = kolo_division_part(&d, b * d.owners + i);
            all.values += part.values;
            all.gradient += part.pushed > 0 ? part.pushed : part.gradient;
            all.state += part.state;
        }
        kolo_text_add(text, "%s %d: ", i < workers ? "worker" : "server",
                      i < workers ? i : i - workers);
        if (d.buckets > 1) kolo_text_add(text, "%d buckets, ", d.buckets);
        kolo_text_add(text, "pulled %zu bytes, pushed %zu, state %zu\n", all.values * sizeof(float),
                      all.gradient * sizeof(float), all.state * sizeof(float));
        for (int s = 0; s < o->n_sums; s++) {
            print_row(&d, i, kolo_division_find(&d, o->sums[s].name), o->sums[s].name, text);
        }
    }
    kolo_division_fini(&d);
    return KOLO_OK;
}

/* ---- serving, in the thread of the service ---- */

/* The part that a call of the service is for becomes the current one. */
static kolo_owner *enter(const void *arg) {
    const owned_part *p = arg;
    kolo_owner *o = p->owner;
    o->part = p->part;
    o->updates = p->updates;
    o->pushes = p->pushes;
    o->totals = p->totals;
    return o;
}

static void leave(owned_part *p) {
    p->updates = p->owner->updates;
    p->pushes = p->owner->pushes;
}

/* What a push was summed over. */
static kolo_status check(void *arg, const float *pushed) {
    (void)arg;
    return kolo_summed_check(pushed, KOLO_SUMMED_HEAD / KOLO_SUMMED_FLOATS);
}

/* The gradient of a push. */
static kolo_status unpack(void *arg, const float *pushed, float *gradient) {
    const owned_part *p = arg;
    return kolo_division_unpack(p->owner->division, p->part, pushed, gradient);
}

static void take_values(const kolo_owner *o, int worker) {
    reader *r = &o->readers[worker];
    r->updates = o->updates;
    if (!r->values) return;
    kolo_division_gather(o->division, o->part, 1 << KOLO_ROW_GRADIENT, true, o->value_at,
                         r->values);
}

static void load(void *arg, const float *initial) {
    kolo_owner *o = enter(arg);
    const kolo_parameters_part part = kolo_division_part(o->division, o->part);
    memcpy(o->totals, initial, kolo_division_totals(o->division) * sizeof *initial);
    const double updates = o->totals[kolo_division_updates(o->division)];
    o->updates = updates >= 0 && updates <= most_updates ? (uint64_t)updates : 0;
    kolo_division_scatter(o->division, o->part, KOLO_ROWS_PULLED, true,
                          initial + kolo_division_totals(o->division), o->value_at);
    kolo_division_scatter(o->division, o->part, KOLO_ROWS_STATE, true, initial + part.values,
                          o->value_at);
    for (int w = 0; w < readers_of(o); w++) take_values(o, w);
    leave(arg);
}

/* Workers may be at different clocks, also where sums are made: each push is counted for itself. */
static void observe(void *arg, const kolo_parameters_event *event) {
    kolo_owner *o = enter(arg);
    if (event->read) {
        take_values(o, event->worker);
    } else {
        o->readers[event->worker].clock = event->clock + 1;
    }
}

/* Delay compensation: the gradient at the parameters now, w, from that at the ones that were read,
 * b, to first order, with the diagonal of the outer product of the gradient in place of the
 * Hessian: g + L g^2 (w - b). Zheng et al., "Asynchronous stochastic gradient descent with delay
 * compensation", ICML 2017. */
static void compensate(const kolo_owner *o, int worker) {
    const kolo_division *d = o->division;
    const float *read = o->readers[worker].values, factor = (float)o->opts.compensation;
    for (int row = 0; row < d->n_rows && read; row++) {
        int64_t first, end;
        if (kolo_division_kind(d, row) != KOLO_ROW_GRADIENT) continue;
        kolo_division_range(d, row, o->part, &first, &end);
        float *g = o->sum_at[row];
        const float *w = o->value_at[row];
        for (int64_t i = 0; i < end - first; i++) g[i] += factor * g[i] * g[i] * (w[i] - *read++);
    }
}

/* The step that a push is of. */
static int64_t step_of(const kolo_owner *o, const kolo_parameters_update *u, int64_t pushes) {
    if (o->opts.lease) return o->opts.steps + pushes / o->opts.workers;
    return o->readers[u->latest].first + (int64_t)u->clock;
}

/* The learning rate of a push; `pushes`: before it. Zhang et al., "Staleness-aware async-SGD for
 * distributed deep learning", IJCAI 2016: divided by the updates since the read, if there are any.
 */
static double rate_of(const kolo_owner *o, const kolo_parameters_update *u, int64_t pushes) {
    const int64_t step = kolo_min_i64(step_of(o, u, pushes), o->opts.schedule.total - 1);
    double lr = o->fixed_lr > 0 ? o->fixed_lr : kolo_lr_at(&o->opts.schedule, step);
    if (o->opts.adapts) lr *= (double)u->workers / u->not_lost; /* their part of a step of all */
    if (o->opts.rounds && u->least > u->workers) lr *= (double)u->workers / u->least; /* a part */
    if (!o->opts.scale || u->worker < 0) return lr;
    const uint64_t stale = o->updates - o->readers[u->worker].updates;
    return stale > 1 ? lr / (double)stale : lr;
}

static kolo_status configure(void *arg, const void *settings, size_t bytes) {
    kolo_owner *o = ((const owned_part *)arg)->owner;
    kolo_owner_settings s = {.lr = -1};
    if (bytes == sizeof s) memcpy(&s, settings, sizeof s);
    if (!(s.lr >= 0 && s.lr <= most_lr) || s.steps < -1 || s.steps > most_steps) {
        return KOLO_FAIL(KOLO_ERR_ARG, "settings of %zu bytes are not those of an owner", bytes);
    }
    o->fixed_lr = s.lr;
    for (int w = 0; w < readers_of(o) && s.steps >= 0; w++) {
        o->readers[w].first = s.steps - (int64_t)o->readers[w].clock;
    }
    return KOLO_OK;
}

static void save(void *arg, float *state) {
    const kolo_owner *o = enter(arg);
    kolo_division_gather(o->division, o->part, KOLO_ROWS_STATE, true, o->value_at, state);
}

static void progress(void *arg, double *labels, double *loss) {
    const kolo_owner *o = enter(arg);
    *labels = o->totals[1];
    *loss = o->totals[o->loss];
}

static void add_totals(const kolo_owner *o, const float *gradient) {
    const kolo_division *d = o->division;
    int metric = 0;
    o->totals[0] += (double)kolo_summed_get(gradient + KOLO_SUMMED_SAMPLES);
    o->totals[1] += (double)kolo_summed_get(gradient + KOLO_SUMMED_LABELS);
    for (int i = 0; i < d->n_rows; i++) {
        if (kolo_division_kind(d, i) != KOLO_ROW_METRIC) continue;
        if (o->part == kolo_division_totals_part(d)) o->totals[2 + metric] += (double)*o->sum_at[i];
        metric++;
    }
}

/* The sums become means over the labels and samples that are in them. If they are of fewer
 * gradients than a step waits for, as some workers wait for an evaluation, a gradient weighs no
 * more than in such a step. */
static void average(const kolo_owner *o, const kolo_parameters_update *u) {
    const kolo_division *d = o->division;
    const bool few = u->least > u->workers && !o->opts.rounds;
    const double missing = few ? (double)u->least / u->workers : 1;
    const double labels = (double)kolo_summed_get(u->gradient + KOLO_SUMMED_LABELS);
    const double samples = (double)kolo_summed_get(u->gradient + KOLO_SUMMED_SAMPLES);
    for (int row = 0; row < d->n_rows; row++) {
        int64_t first, end;
        const kolo_row_kind kind = kolo_division_kind(d, row);
        const double by = kind == KOLO_ROW_STATISTIC ? samples
                          : o->opts.rounds           ? samples
                                                     : labels * missing;
        if ((kind != KOLO_ROW_GRADIENT && kind != KOLO_ROW_STATISTIC) || by == 0) continue;
        kolo_division_range(d, row, o->part, &first, &end);
        float *sum = o->sum_at[row];
        for (int64_t i = 0; i < end - first; i++) sum[i] = (float)((double)sum[i] / by);
    }
}

/* Running statistics become the means of those of the workers. */
static void take_statistics(const kolo_owner *o) {
    const kolo_division *d = o->division;
    for (int row = 0; row < d->n_rows; row++) {
        int64_t first, end;
        if (kolo_division_kind(d, row) != KOLO_ROW_STATISTIC) continue;
        kolo_division_range(d, row, o->part, &first, &end);
        if (first == end) continue;
        memcpy(o->value_at[row], o->sum_at[row], (size_t)(end - first) * sizeof(float));
    }
}

/* Updates the parameters of a bucket, or its piece of one. */
static void run_update(const kolo_owner *o, int bucket) {
    const int first = o->first ? o->first[bucket] : 0;
    const kolo_plan_pieces *pieces = o->pieces ? o->pieces[first] : NULL;
    const kolo_status status =
        !o->groups ? kolo_plan_update(o->plan, o->step, 0)
                   : kolo_plan_update_group(o->plan, o->groups, pieces ? -1 : bucket);
    KOLO_ASSERT(status == KOLO_OK); /* it does not communicate */
    if (pieces) kolo_plan_pieces_update(o->plan, pieces, bucket - first);
}

/* The plan gets sums, or what one worker has. */
static void begin_update(kolo_owner *o, const kolo_parameters_update *u) {
    const int64_t pushes = o->pushes++;
    kolo_division_scatter(o->division, o->part, KOLO_ROWS_PUSHED, true,
                          u->gradient + KOLO_SUMMED_HEAD, o->sum_at);
    add_totals(o, u->gradient);
    if (o->opts.weighted) average(o, u);
    if (u->worker >= 0) compensate(o, u->worker);
    kolo_plan_set(o->plan, o->lr, rate_of(o, u, pushes));
    kolo_plan_set(o->plan, o->update, kolo_optimizer_number(&o->optimizer, ++o->updates));
    o->totals[kolo_division_updates(o->division)] = (double)o->updates;
    o->step = o->norm = 0;
}

/* What workers read. */
static void copy_values(void *arg, float *values) {
    const kolo_owner *o = enter(arg);
    const size_t totals = kolo_division_totals(o->division);
    memcpy(values, o->totals, totals * sizeof *values);
    kolo_division_gather(o->division, o->part, KOLO_ROWS_PULLED, true, o->value_at,
                         values + totals);
}

/* A push without samples, or a step of such, changes nothing. */
static bool has_samples(const kolo_parameters_update *u) {
    return kolo_summed_get(u->gradient + KOLO_SUMMED_SAMPLES) > 0;
}

static void update(void *arg, const kolo_parameters_update *u) {
    kolo_owner *o = enter(arg);
    if (!has_samples(u)) {
        o->pushes++;
    } else {
        if (o->n_norms == 0) begin_update(o, u);
        run_update(o, o->part / o->opts.owners);
        if (o->opts.rounds) take_statistics(o);
    }
    leave(arg);
}

/* Copies the squares that are read behind one step between the plan and `numbers`. Returns how many
 * they are. */
static size_t copy_squares(const kolo_owner *o, bool back, float *numbers) {
    size_t n = 0;
    for (int i = o->norm; i < o->n_norms && o->norms[i].step == o->step; i++) {
        const kolo_plan_norm *norm = &o->norms[i];
        float *at = kolo_plan_data(o->plan, back ? norm->arrived : norm->posted);
        const size_t count = (size_t)norm->count;
        memcpy(back ? at : numbers + n, back ? numbers + n : at, count * sizeof *at);
        n += count;
    }
    return n;
}

/* Runs the updates up to the next norms, of which the other owners have their squares. */
static size_t add_squares(void *arg, const kolo_parameters_update *u, int k, float *numbers) {
    kolo_owner *o = enter(arg);
    if (!has_samples(u)) return 0;
    if (k == 0) {
        begin_update(o, u);
    } else {
        copy_squares(o, true, numbers);
        while (o->norm < o->n_norms && o->norms[o->norm].step == o->step) o->norm++;
    }
    size_t n = 0;
    if (o->norm < o->n_norms) {
        const int end = o->norms[o->norm].step;
        const kolo_status status = kolo_plan_update(o->plan, o->step, end);
        KOLO_ASSERT(status == KOLO_OK); /* it does not communicate */
        o->step = end;
        n = copy_squares(o, false, numbers);
    }
    leave(arg);
    return n;
}

/* The most squares that are exchanged at once. */
static size_t most_squares(const kolo_owner *o) {
    size_t most = 0, n = 0;
    for (int i = 0; i < o->n_norms; i++) {
        if (i > 0 && o->norms[i].step != o->norms[i - 1].step) n = 0;
        n += (size_t)o->norms[i].count;
        if (n > most) most = n;
    }
    return most;
}

/* Finds where the plan has the rows. */
static void find_places(kolo_owner *o) {
    for (int i = 0; i < o->n_sums; i++) {
        int row = kolo_division_find(o->division, o->sums[i].name);
        for (; row >= 0; row = kolo_division_next(o->division, row)) {
            o->sum_at[row] = kolo_plan_data(o->plan, o->sums[i].arrived);
        }
    }
    for (int i = 0; i < kolo_store_count(o->store); i++) {
        const kolo_store_entry *entry = kolo_store_entry_at(o->store, i);
        int row = kolo_division_find(o->division, entry->name);
        for (; row >= 0; row = kolo_division_next(o->division, row)) {
            o->value_at[row] = kolo_store_data(o->store, entry);
        }
    }
}

/* Finds the losses among the metrics, which are in the order of their rows. */
static void find_loss(kolo_owner *o) {
    const kolo_division *d = o->division;
    const int row = kolo_division_find(d, kolo_metric_table()[KOLO_METRIC_LOSS].output);
    o->loss = 2;
    for (int i = 0; i < row; i++) o->loss += kolo_division_kind(d, i) == KOLO_ROW_METRIC;
    KOLO_ASSERT(row >= 0);
}

static kolo_status add_readers(kolo_owner *o) {
    const size_t bytes = kolo_division_part(o->division, o->opts.index).values * sizeof(float);
    o->readers = kolo_zalloc((size_t)readers_of(o) * sizeof *o->readers);
    if (!o->readers) return KOLO_NOMEM((size_t)readers_of(o) * sizeof *o->readers);
    for (int w = 0; w < readers_of(o); w++) o->readers[w].first = o->opts.steps;
    for (int w = 0; w < readers_of(o) && o->opts.compensation > 0; w++) {
        o->readers[w].values = kolo_zalloc(bytes);
        if (!o->readers[w].values) return KOLO_NOMEM(bytes);
    }
    return KOLO_OK;
}

static kolo_status add_parts(kolo_owner *o) {
    const int buckets = o->division->buckets;
    const size_t n = (size_t)buckets, totals = kolo_division_totals(o->division) / 2;
    o->parts = kolo_zalloc(n * sizeof *o->parts);
    o->args = kolo_zalloc(n * sizeof *o->args);
    double *all = kolo_zalloc(n * totals * sizeof *all);
    if (!o->parts || !o->args || !all) {
        kolo_free(all);
        return KOLO_NOMEM(n * totals * sizeof *all);
    }
    for (int b = 0; b < buckets; b++) {
        o->parts[b] = (owned_part){.owner = o,
                                   .part = b * o->opts.owners + o->opts.index,
                                   .totals = all + (size_t)b * totals};
        o->args[b] = &o->parts[b];
    }
    return KOLO_OK;
}

/* Finds which steps update which bucket. */
static kolo_status group_steps(kolo_owner *o) {
    const size_t n = (size_t)o->n_sums + 1, steps = (size_t)kolo_plan_n_steps(o->plan) + 1;
    if (o->division->buckets == 1) return KOLO_OK;
    int *group = kolo_alloc(n * sizeof *group);
    o->groups = kolo_alloc(steps * sizeof *o->groups);
    kolo_status status = group && o->groups ? KOLO_OK : KOLO_NOMEM((n + steps) * sizeof *group);
    for (int i = 0; i < o->n_sums && status == KOLO_OK; i++) {
        group[i] =
            kolo_division_bucket(o->division, kolo_division_find(o->division, o->sums[i].name));
    }
    if (status == KOLO_OK) {
        status = kolo_plan_group_updates(o->plan, o->sums, o->n_sums, group, o->groups);
    }
    kolo_free(group);
    return status;
}

/* The kernel that updates the parameter of a row in pieces. */
static kolo_status cut_update(kolo_owner *o, int row) {
    const kolo_division *d = o->division;
    const int first = kolo_division_bucket(d, row);
    int n = 0;
    for (int r = row; r >= 0; r = kolo_division_next(d, r)) n++;
    int64_t *cuts = kolo_alloc(((size_t)n + 1) * sizeof *cuts), begin = 0;
    if (!cuts) return KOLO_NOMEM((size_t)n * sizeof *cuts);
    for (int k = 0, r = row; k < n; k++, r = kolo_division_next(d, r)) {
        const int bucket = kolo_division_bucket(d, r);
        KOLO_ASSERT(bucket == first + k);
        o->first[bucket] = first;
        kolo_division_range(d, r, bucket * d->owners + o->opts.index, &cuts[k], &cuts[k + 1]);
        if (k == 0) begin = cuts[0];
        cuts[k] -= begin;
    }
    cuts[n] -= begin;
    const kolo_status status =
        kolo_plan_pieces_create(o->plan, o->groups, first, cuts, n, &o->pieces[first]);
    kolo_free(cuts);
    return status;
}

static kolo_status cut_updates(kolo_owner *o) {
    const kolo_division *d = o->division;
    const size_t n = (size_t)d->buckets;
    if (!o->groups) return KOLO_OK;
    o->first = kolo_alloc(n * sizeof *o->first);
    o->pieces = kolo_zalloc(n * sizeof *o->pieces);
    if (!o->first || !o->pieces) return KOLO_NOMEM(n * sizeof *o->pieces);
    o->n_buckets = d->buckets;
    for (int b = 0; b < d->buckets; b++) o->first[b] = b;
    for (int row = 0; row < d->n_rows; row++) {
        const bool begins = row == 0 || kolo_division_next(d, row - 1) < 0;
        if (begins && kolo_division_next(d, row) >= 0) KOLO_TRY(cut_update(o, row));
    }
    return KOLO_OK;
}

kolo_status kolo_owner_serve(kolo_owner *o, const kolo_division *division,
                             kolo_parameters_opts *opts) {
    const size_t rows = (size_t)division->n_rows + 1;
    o->division = division;
    o->sum_at = kolo_zalloc(rows * sizeof *o->sum_at);
    o->value_at = kolo_zalloc(rows * sizeof *o->value_at);
    if (!o->sum_at || !o->value_at) return KOLO_NOMEM(rows * sizeof *o->sum_at);
    KOLO_TRY(add_parts(o));
    KOLO_TRY(group_steps(o));
    KOLO_TRY(cut_updates(o));
    find_places(o);
    find_loss(o);
    KOLO_TRY(add_readers(o));
    opts->load = load;
    opts->configure = configure;
    opts->copy_values = copy_values;
    opts->save = save;
    opts->update = update;
    opts->check = check;
    opts->unpack = division->codec.kind == KOLO_CODEC_NONE ? NULL : unpack;
    opts->exchange = o->n_norms > 0 ? add_squares : NULL;
    opts->exchanged = most_squares(o);
    opts->observe = observe;
    opts->progress = progress;
    opts->arg = o->args[0];
    opts->bucket_args = o->args;
    return KOLO_OK;
}

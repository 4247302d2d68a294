#include "train/session/served.h"

#include "base/clock.h"
#include "base/memory.h"
#include "train/session/agree.h"
#include "train/session/internal.h"
#include "train/session/owner.h"

#include <math.h>
#include <string.h>

/* Where a plan of a worker has what it pushes. */
typedef struct exchange {
    const kolo_plan *plan;
    kolo_value *posted; /* by row; KOLO_NONE: nothing */
} exchange;

struct kolo_served {
    kolo_division division;
    kolo_owner *owner; /* NULL: none is here */
    kolo_parameters *parameters;
    kolo_parameters_part *parts; /* by owner */
    size_t values, gradient, state;
    float *pushed, *pulled; /* [gradient], [values]; registered memory */
    float *states;          /* [state] */
    int *entries;           /* by row: of the session's store; -1: none */
    float **places;         /* by row */
    exchange *exchanges;    /* of the plans that have run */
    size_t n_exchanges, cap_exchanges;
    double *totals, *before; /* of the run: samples, labels, and each metric */
};

/* ---- creation ---- */

/* Samples of the plan whose layouts the workers have. */
static int64_t samples_of(const kolo_session_config *config) {
    const int64_t ranks = config->plan.mesh.axes[0].size;
    const int64_t share = (config->global_batch - 1) / ranks + 1;
    const int64_t parts = (share - 1) / config->batch + 1;
    return share / parts;
}

static kolo_status make_owner(kolo_served *v, const kolo_session_config *config,
                              const kolo_served_opts *o) {
    const int ranks = kolo_comm_size(o->world), rank = kolo_comm_rank(o->world);
    const int owners = o->servers > 0 ? o->servers : ranks;
    const kolo_owner_opts opts = {
        .index = rank - (ranks - owners),
        .owners = owners,
        .every_push = kolo_consistency_is_alone(&config->consistency),
        .steps = o->steps,
        .workers = ranks - o->servers,
        .schedule = o->schedule,
        .compensation = config->consistency.compensation,
        .scale = config->consistency.scale,
    };
    if (opts.index < 0) return KOLO_OK;
    kolo_graph *graph;
    KOLO_TRY(kolo_session_build(config, samples_of(config), &graph));
    KOLO_TRY(kolo_owner_create(graph, &config->plan, &opts, &v->owner));
    return kolo_owner_divide(v->owner, &v->division);
}

/* Finds the tensors of the session, which must be what the owners have. */
static kolo_status find_entries(const kolo_served *v, const kolo_session *s) {
    int found = 0;
    for (int i = 0; i < v->division.n_rows; i++) v->entries[i] = -1;
    for (int i = 0; i < kolo_store_count(s->store); i++) {
        const kolo_store_entry *entry = kolo_store_entry_at(s->store, i);
        int row = kolo_division_find(&v->division, entry->name);
        if (row < 0) continue;
        found++;
        v->entries[row] = i;
        if (kolo_division_fits(&v->division, row, entry)) continue;
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "rank %d has another layout of %s than its owner: use the same kind of "
                         "processor and the same options on all ranks",
                         rank_of(s), entry->name);
    }
    if (found == v->division.n_rows - v->division.n_metrics) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, "rank %d has %d tensors, the owners have %d", rank_of(s), found,
                     v->division.n_rows - v->division.n_metrics);
}

/* The places become the memory of the session's tensors. */
static void place_entries(const kolo_served *v, const kolo_session *s) {
    for (int i = 0; i < v->division.n_rows; i++) {
        const int e = v->entries[i];
        v->places[i] = e < 0 ? NULL : kolo_store_data(s->store, kolo_store_entry_at(s->store, e));
    }
}

static kolo_status allocate(kolo_served *v, kolo_comm *world) {
    const size_t owners = (size_t)v->division.owners, rows = (size_t)v->division.n_rows + 1;
    const size_t totals = kolo_division_totals(&v->division) * sizeof(float);
    void *pushed, *pulled;
    v->parts = kolo_zalloc(owners * sizeof *v->parts);
    v->places = kolo_zalloc(rows * sizeof *v->places);
    v->entries = kolo_zalloc(rows * sizeof *v->entries);
    v->totals = kolo_zalloc(totals);
    v->before = kolo_zalloc(totals);
    if (!v->parts || !v->places || !v->entries || !v->totals || !v->before)
        return KOLO_NOMEM(totals);
    for (size_t i = 0; i < owners; i++) {
        v->parts[i] = kolo_division_part(&v->division, (int)i);
        v->values += v->parts[i].values;
        v->gradient += v->parts[i].gradient;
        v->state += v->parts[i].state;
    }
    v->states = kolo_alloc((v->state + 1) * sizeof *v->states);
    if (!v->states) return KOLO_NOMEM(v->state * sizeof *v->states);
    KOLO_TRY(kolo_comm_alloc(world, v->gradient * sizeof(float), &pushed));
    KOLO_TRY(kolo_comm_alloc(world, v->values * sizeof(float), &pulled));
    v->pushed = pushed;
    v->pulled = pulled;
    return KOLO_OK;
}

/* The values and states of all owners, from the session of rank 0. */
static void fill_initial(const kolo_served *v, const kolo_session *s, float *initial) {
    place_entries(v, s);
    for (int i = 0; i < v->division.owners; i++) {
        float *state = initial + v->parts[i].values;
        kolo_division_gather(&v->division, i, KOLO_ROWS_PULLED, false, v->places,
                             initial + kolo_division_totals(&v->division));
        kolo_division_gather(&v->division, i, KOLO_ROWS_STATE, false, v->places, state);
        initial = state + v->parts[i].state;
    }
}

static kolo_status connect(kolo_served *v, const kolo_session_config *config,
                           const kolo_served_opts *o, const kolo_session *session, float *initial) {
    const kolo_consistency *c = &config->consistency;
    kolo_parameters_opts opts = {
        .servers = o->servers,
        .parts = v->parts,
        .needs_all = true,
        .staleness = kolo_consistency_staleness(c),
    };
    if (initial) fill_initial(v, session, initial);
    kolo_status status = v->owner ? kolo_owner_serve(v->owner, &v->division, &opts) : KOLO_OK;
    KOLO_TRY(kolo_agree(o->world, status));
    return kolo_parameters_create(o->world, initial, v->values + v->state, &opts, &v->parameters);
}

static kolo_status prepare(kolo_served *v, const kolo_served_opts *o, kolo_session *session) {
    KOLO_TRY(allocate(v, o->world));
    return session ? find_entries(v, session) : KOLO_OK;
}

static kolo_status create(kolo_served *v, const kolo_session_config *config,
                          const kolo_served_opts *o, kolo_session *session, kolo_status status) {
    kolo_served_opts all = *o;
    KOLO_TRY(kolo_agree(o->world, status));
    KOLO_TRY(kolo_broadcast(o->world, &all.steps, 1, KOLO_DTYPE_I64, 0));
    KOLO_TRY(kolo_agree(o->world, make_owner(v, config, &all)));
    KOLO_TRY(kolo_division_broadcast(&v->division, o->world));
    KOLO_TRY(kolo_agree(o->world, prepare(v, o, session)));
    const size_t bytes = (v->values + v->state) * sizeof(float);
    float *initial = session && rank_of(session) == 0 ? kolo_zalloc(bytes) : NULL;
    const bool failed = session && rank_of(session) == 0 && !initial;
    status = kolo_agree(o->world, failed ? KOLO_NOMEM(bytes) : KOLO_OK);
    if (status == KOLO_OK) status = connect(v, config, o, session, initial);
    kolo_free(initial);
    return status;
}

kolo_status kolo_served_create(const kolo_session_config *config, const kolo_served_opts *opts,
                               kolo_session *session, kolo_status status, kolo_served **served) {
    kolo_served *v = kolo_zalloc(sizeof *v);
    if (!v && status == KOLO_OK) status = KOLO_NOMEM(sizeof *v);
    if (!v) return kolo_agree(opts->world, status);
    status = create(v, config, opts, session, status);
    if (status != KOLO_OK) {
        kolo_served_destroy(v);
        return status;
    }
    *served = v;
    return KOLO_OK;
}

void kolo_served_destroy(kolo_served *v) {
    if (!v) return;
    kolo_parameters_destroy(v->parameters);
    kolo_owner_destroy(v->owner);
    kolo_division_fini(&v->division);
    kolo_free(v->parts);
    kolo_free(v->states);
    kolo_free(v->entries);
    kolo_free((void *)v->places);
    for (size_t i = 0; i < v->n_exchanges; i++) kolo_free(v->exchanges[i].posted);
    kolo_free(v->exchanges);
    kolo_free(v->totals);
    kolo_free(v->before);
    kolo_free(v);
}

kolo_status kolo_served_wait(kolo_served *v) { return kolo_parameters_wait(v->parameters); }

void kolo_served_abandon(kolo_served *v) {
    if (v->parameters) kolo_parameters_abandon(v->parameters);
}

void kolo_served_count_reads(const kolo_served *v, uint64_t *counts) {
    kolo_parameters_count_reads(v->parameters, counts);
}

/* ---- the exchange of a step ---- */

static kolo_status add_exchange(kolo_served *v, const kolo_plan *plan) {
    const size_t rows = (size_t)v->division.n_rows + 1;
    kolo_plan_sum *sums;
    int n;
    if (!KOLO_GROW(v->exchanges, v->n_exchanges, v->cap_exchanges)) return KOLO_NOMEM(rows);
    KOLO_TRY(kolo_plan_find_sums(plan, &sums, &n));
    kolo_value *posted = kolo_alloc(rows * sizeof *posted);
    for (int i = 0; posted && i < v->division.n_rows; i++) posted[i] = KOLO_NONE;
    for (int i = 0; posted && i < n; i++) {
        int row = kolo_division_find(&v->division, sums[i].name);
        KOLO_ASSERT(row >= 0 && sums[i].posts == kolo_division_elements(&v->division, row));
        posted[row] = sums[i].posted;
    }
    kolo_free(sums);
    if (!posted) return KOLO_NOMEM(rows * sizeof *posted);
    v->exchanges[v->n_exchanges++] = (exchange){plan, posted};
    return KOLO_OK;
}

/* The places become those of what the plan that ran adds to the sums. */
static kolo_status place_summands(kolo_served *v, const kolo_plan *plan) {
    size_t i = 0;
    while (i < v->n_exchanges && v->exchanges[i].plan != plan) i++;
    if (i == v->n_exchanges) KOLO_TRY(add_exchange(v, plan));
    for (int row = 0; row < v->division.n_rows; row++) {
        kolo_value posted = v->exchanges[i].posted[row];
        v->places[row] = kolo_value_ok(posted) ? kolo_plan_data(plan, posted) : NULL;
    }
    return KOLO_OK;
}

/* `plan`: that ran; NULL: this worker has no samples. */
static kolo_status push(kolo_served *v, const kolo_plan *plan, int64_t samples, int64_t labels) {
    float *part = v->pushed;
    if (plan) {
        KOLO_TRY(place_summands(v, plan));
    } else {
        memset(v->pushed, 0, v->gradient * sizeof *v->pushed);
    }
    for (int i = 0; i < v->division.owners; i++) {
        kolo_summed_set(part + KOLO_SUMMED_SAMPLES, samples);
        kolo_summed_set(part + KOLO_SUMMED_LABELS, labels);
        if (plan) {
            kolo_division_gather(&v->division, i, KOLO_ROWS_PUSHED, false, v->places,
                                 part + KOLO_SUMMED_HEAD);
        }
        part += v->parts[i].gradient;
    }
    return kolo_parameters_push(v->parameters, v->pushed);
}

static kolo_status pull(kolo_served *v, const kolo_session *s) {
    const size_t totals = kolo_division_totals(&v->division);
    KOLO_TRY(kolo_parameters_pull(v->parameters, v->pulled));
    const float *part = v->pulled;
    memcpy(v->totals, v->pulled, totals * sizeof(float)); /* those of owner 0 */
    place_entries(v, s);
    for (int i = 0; i < v->division.owners; i++) {
        kolo_division_scatter(&v->division, i, KOLO_ROWS_PULLED, false, part + totals, v->places);
        part += v->parts[i].values;
    }
    return KOLO_OK;
}

kolo_status kolo_served_read_all(kolo_served *v, kolo_session *s) {
    KOLO_TRY(pull(v, s));
    KOLO_TRY(kolo_parameters_read_state(v->parameters, v->states));
    const float *part = v->states;
    for (int i = 0; i < v->division.owners; i++) {
        kolo_division_scatter(&v->division, i, KOLO_ROWS_STATE, false, part, v->places);
        part += v->parts[i].state;
    }
    return KOLO_OK;
}

/* What all workers have done since the last call, as far as this one has pulled it. */
static kolo_sums take_sums(kolo_served *v, const kolo_session *s) {
    const kolo_metric *m = kolo_metric_table();
    kolo_sums sums = {.samples = (int64_t)(v->totals[0] - v->before[0]),
                      .labels = (int64_t)(v->totals[1] - v->before[1])};
    for (int i = 0; i < KOLO_MAX_METRICS; i++) sums.metric[i] = NAN;
    for (int i = 0, k = 2; i < v->division.n_rows; i++) {
        if (kolo_division_kind(&v->division, i) != KOLO_ROW_METRIC) continue;
        for (int j = 0; m[j].name; j++) {
            bool scalar = m[j].output && kolo_value_ok(s->plans[0]->metrics[j]);
            if (!scalar || kolo_division_find(&v->division, m[j].output) != i) continue;
            sums.metric[j] = v->totals[k] - v->before[k];
        }
        k++;
    }
    memcpy(v->before, v->totals, kolo_division_totals(&v->division) * sizeof(float));
    return sums;
}

kolo_status kolo_session_step_served(kolo_session *s, const kolo_batch *batch, double lr,
                                     kolo_sums *sums) {
    kolo_batch own = *batch;
    const cached *finish = NULL;
    int64_t labels, own_labels = kolo_session_count_labels(s, batch);
    const bool alone = kolo_consistency_is_alone(&s->opts.consistency);
    if (alone) own.global_count = own.count;
    labels = own_labels;
    if (!alone) KOLO_TRY(kolo_session_sum_labels(s, batch, &labels));
    if (own.count > 0) {
        const kolo_step_scalars x = kolo_session_scalars(s, lr, labels);
        KOLO_TRY(kolo_session_run_micro_batches(s, &own, &x, &finish));
        s->trained = finish->plan;
    }
    const int64_t begin = kolo_now_ns();
    KOLO_TRY(push(s->served, finish ? finish->plan : NULL, own.count, own_labels));
    KOLO_TRY(pull(s->served, s));
    kolo_session_count_communication(s, begin);
    *sums = take_sums(s->served, s);
    s->evaluated = NULL;
    s->steps++;
    return KOLO_OK;
}

void kolo_session_add_rest(kolo_session *s, kolo_sums *sums) {
    if (!s->served) return;
    const kolo_sums rest = take_sums(s->served, s);
    kolo_sums_add(sums, &rest);
}

kolo_status kolo_session_connect(kolo_session *s, kolo_comm *world, int servers,
                                 kolo_status status) {
    const kolo_served_opts opts = {
        .world = world,
        .servers = servers,
        .steps = (int64_t)s->steps,
        .schedule = s->schedule,
    };
    return kolo_served_create(&s->opts, &opts, s, status, &s->served);
}

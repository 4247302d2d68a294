#include "train/session/served.h"

#include "base/clock.h"
#include "base/memory.h"
#include "plan/transfers.h"
#include "train/session/agree.h"
#include "train/session/served_internal.h"

#include <math.h>
#include <string.h>

/* The entry of a row, if it is the first of that entry, whose rows follow each other. */
static const kolo_store_entry *first_of(const kolo_served *d, const kolo_session *s, int row) {
    const int e = d->entries[row];
    const bool first = e >= 0 && (row == 0 || d->entries[row - 1] != e);
    return first ? kolo_store_entry_at(s->store, e) : NULL;
}

kolo_status kolo_served_place(const kolo_served *d, const kolo_session *s) {
    const kolo_store *store = s->store;
    KOLO_ASSERT(!store->deferring);
    kolo_served_make_room(d, s);
    for (int i = 0; i < d->division.n_rows; i++) {
        const kolo_store_entry *entry = first_of(d, s, i);
        if (!entry) continue;
        kolo_regions_fetch(store->regions, kolo_store_at(store, entry, store->current),
                           kolo_store_entry_bytes(entry));
    }
    return kolo_store_check(store);
}

void kolo_served_make_room(const kolo_served *d, const kolo_session *s) {
    const kolo_store *store = s->store;
    for (int i = 0; i < d->division.n_rows; i++) {
        const int e = d->entries[i];
        const kolo_store_entry *entry = e < 0 ? NULL : kolo_store_entry_at(store, e);
        d->places[i] = entry ? (void *)kolo_store_host(store, entry, store->current) : NULL;
    }
}

kolo_status kolo_served_put(const kolo_served *d, const kolo_session *s, unsigned kinds) {
    const kolo_store *store = s->store;
    for (int i = 0; i < d->division.n_rows; i++) {
        const kolo_store_entry *entry = first_of(d, s, i);
        if (!entry || !(kinds >> kolo_division_kind(&d->division, i) & 1)) continue;
        kolo_store_put(store, entry, store->current);
    }
    return kolo_store_check(store);
}

kolo_status kolo_served_wait(kolo_served *d) { return kolo_parameters_wait(d->parameters); }

bool kolo_served_ended(kolo_served *d, int64_t timeout_ms) {
    return kolo_parameters_ended(d->parameters, timeout_ms);
}

kolo_status kolo_served_stop(kolo_served *d) {
    uint64_t at;
    return kolo_parameters_stop(d->parameters, true, 0, &at);
}

void kolo_served_abandon(kolo_served *d) {
    if (d->tables) kolo_tables_abandon(d->tables);
    if (d->parameters) kolo_parameters_abandon(d->parameters);
}

void kolo_served_count_reads(const kolo_served *d, uint64_t *counts) {
    kolo_parameters_count_reads(d->parameters, counts);
}

void kolo_served_count_delays(const kolo_served *d, uint64_t *counts) {
    kolo_parameters_count_delays(d->parameters, counts);
}

uint64_t kolo_served_count_parts(const kolo_served *d) {
    return kolo_parameters_count_parts(d->parameters);
}

void kolo_served_count_bytes(const kolo_served *d, uint64_t *sent, uint64_t *received) {
    kolo_parameters_traffic(d->parameters, sent, received);
}

bool kolo_served_has_lost(const kolo_served *d, int server) {
    return kolo_parameters_has_lost(d->parameters, server);
}

kolo_status kolo_served_barrier(kolo_served *d, bool *asked, bool *any) {
    int64_t reports = any && *any;
    if (any) KOLO_TRY(kolo_served_add_group(d, &reports, 1));
    bool found[] = {false, reports > 0};
    if (kolo_served_leads(d)) {
        KOLO_TRY(kolo_parameters_barrier(d->parameters, d->lost, &found[0], &found[1]));
    }
    KOLO_TRY(kolo_served_share(d, found, sizeof found, KOLO_DTYPE_U8));
    if (asked) *asked = found[0];
    if (any) *any = found[1];
    return KOLO_OK;
}

int64_t kolo_served_lost(const kolo_served *d, int worker) {
    const int64_t pushes = (int64_t)d->lost[worker] - 1;
    return pushes > 0 && d->every > 0 ? pushes * d->every : pushes;
}

/* ---- the exchange of a step ---- */

static kolo_status add_exchange(kolo_served *d, const kolo_plan *plan) {
    const size_t rows = (size_t)d->division.n_rows + 1;
    kolo_plan_sum *sums;
    int n;
    if (!KOLO_GROW(d->exchanges, d->n_exchanges, d->cap_exchanges)) return KOLO_NOMEM(rows);
    KOLO_TRY(kolo_plan_find_sums(plan, &sums, &n));
    kolo_served_exchange e = {.plan = plan,
                              .posted = kolo_alloc(rows * sizeof *e.posted),
                              .post = kolo_alloc(rows * sizeof *e.post)};
    const bool made = e.posted && e.post;
    for (int i = 0; made && i < d->division.n_rows; i++) {
        e.posted[i] = KOLO_NONE;
        e.post[i] = -1;
    }
    for (int i = 0; made && i < n; i++) {
        int row = kolo_division_find(&d->division, sums[i].name);
        KOLO_ASSERT(row >= 0 && sums[i].posts == kolo_division_elements(&d->division, row));
        for (; row >= 0; row = kolo_division_next(&d->division, row)) {
            e.posted[row] = sums[i].posted;
            e.post[row] = sums[i].post;
        }
    }
    kolo_free(sums);
    if (!made) {
        kolo_free(e.posted);
        kolo_free(e.post);
        return KOLO_NOMEM(rows * sizeof *e.posted);
    }
    d->exchanges[d->n_exchanges++] = e;
    return KOLO_OK;
}

static const kolo_served_exchange *exchange_of(const kolo_served *d, const kolo_plan *plan) {
    for (size_t i = 0; i < d->n_exchanges; i++) {
        if (d->exchanges[i].plan == plan) return &d->exchanges[i];
    }
    return NULL;
}

/* The places become those of what the plan adds to the sums. */
static kolo_status place_summands(kolo_served *d, const kolo_plan *plan) {
    if (!exchange_of(d, plan)) KOLO_TRY(add_exchange(d, plan));
    const kolo_value *posted = exchange_of(d, plan)->posted;
    for (int row = 0; row < d->division.n_rows; row++) {
        d->places[row] = kolo_value_ok(posted[row]) ? kolo_plan_data(plan, posted[row]) : NULL;
    }
    return KOLO_OK;
}

void kolo_served_begin(kolo_served *d, int64_t samples, int64_t labels) {
    d->samples = samples;
    d->labels = labels;
    d->next = 0;
    memset(d->ready, 0, (size_t)d->division.n_rows * sizeof *d->ready);
    kolo_served_begin_pack(d);
    for (int i = 0; i < kolo_division_parts(&d->division); i++) {
        float *part = d->pushed + d->pushed_at[i];
        kolo_summed_set(part + KOLO_SUMMED_SAMPLES, samples);
        kolo_summed_set(part + KOLO_SUMMED_LABELS, labels);
        d->filled[i] = KOLO_SUMMED_HEAD;
    }
}

/* What a row is multiplied by. */
static double factor_of(const kolo_served *d, int row) {
    const kolo_row_kind kind = kolo_division_kind(&d->division, row);
    if (!d->weighted) return 1;
    return kind == KOLO_ROW_GRADIENT    ? (double)d->labels
           : kind == KOLO_ROW_STATISTIC ? (double)d->samples
                                        : 1;
}

/* Gathers the next rows, in the order of the vector, up to the first that is not ready. */
static void gather_ready(kolo_served *d) {
    const int owners = d->division.owners;
    for (; d->next < d->division.n_rows; d->next++) {
        const int row = d->next, first = kolo_division_bucket(&d->division, row) * owners;
        if (!(KOLO_ROWS_PUSHED >> kolo_division_kind(&d->division, row) & 1)) continue;
        if (!d->ready[row]) return;
        for (int i = first; i < first + owners; i++) {
            float *part = d->pushed + d->pushed_at[i];
            d->filled[i] += kolo_division_gather_row(&d->division, row, i, factor_of(d, row),
                                                     d->places[row], part + d->filled[i]);
        }
    }
}

/* A POST of the plan: its rows are ready, and pushed while the backward pass goes on. */
static kolo_status push_posted(void *arg, const kolo_plan *plan, int32_t node) {
    kolo_served *d = arg;
    KOLO_TRY(place_summands(d, plan));
    const int32_t *post = exchange_of(d, plan)->post;
    for (int row = 0; row < d->division.n_rows; row++) d->ready[row] |= post[row] == node;
    gather_ready(d);
    kolo_parameters_pull_early(d->parameters, d->pulled);
    if (d->group) return kolo_served_sum_ready(d);
    if (d->clip > 0) return KOLO_OK; /* a norm is of the whole */
    kolo_served_pack(d, d->next);
    return kolo_served_push_early(d, 0, kolo_division_parts(&d->division));
}

/* Copies the rows that no POST has reported to the host: of a last micro-batch without samples. */
static kolo_status fetch_rest(const kolo_served *d, const kolo_plan *plan) {
    const kolo_value *posted = exchange_of(d, plan)->posted;
    for (int row = 0; row < d->division.n_rows; row++) {
        if (!d->ready[row] && d->places[row]) (void)kolo_plan_pull(plan, posted[row]);
    }
    return kolo_store_check(plan->store);
}

/* The rest of the push. `plan`: that ran; NULL: this worker has no samples. */
static kolo_status push(kolo_served *d, const kolo_plan *plan) {
    if (plan) {
        KOLO_TRY(place_summands(d, plan));
        KOLO_TRY(fetch_rest(d, plan));
        memset(d->ready, true, (size_t)d->division.n_rows * sizeof *d->ready);
        gather_ready(d);
    } else {
        memset(d->pushed, 0, d->gradient * sizeof *d->pushed);
        kolo_served_begin_pack(d);
    }
    if (d->group) KOLO_TRY(kolo_served_sum_rest(d));
    kolo_served_clip(d);
    return kolo_served_leads(d) ? kolo_served_push(d) : KOLO_OK;
}

kolo_status kolo_served_pull(kolo_served *d, const kolo_session *s) {
    const size_t totals = kolo_division_totals(&d->division);
    if (kolo_served_leads(d)) KOLO_TRY(kolo_parameters_pull(d->parameters, d->pulled));
    KOLO_TRY(kolo_served_share(d, d->pulled, d->values, KOLO_DTYPE_F32));
    const int with_metrics = kolo_division_totals_part(&d->division);
    memcpy(d->totals, d->pulled + d->pulled_at[with_metrics], totals * sizeof(float));
    kolo_served_make_room(d, s);
    for (int i = 0; i < kolo_division_parts(&d->division); i++) {
        kolo_division_scatter(&d->division, i, KOLO_ROWS_PULLED, false,
                              d->pulled + d->pulled_at[i] + totals, d->places);
    }
    return kolo_served_put(d, s, KOLO_ROWS_PULLED);
}

kolo_status kolo_served_read_all(kolo_served *d, kolo_session *s) {
    KOLO_TRY(kolo_served_pull(d, s));
    if (kolo_served_leads(d)) KOLO_TRY(kolo_parameters_read_state(d->parameters, d->states));
    KOLO_TRY(kolo_served_share(d, d->states, d->state, KOLO_DTYPE_F32));
    const float *part = d->states;
    for (int i = 0; i < kolo_division_parts(&d->division); i++) {
        kolo_division_scatter(&d->division, i, KOLO_ROWS_STATE, false, part, d->places);
        part += d->parts[i].state;
    }
    KOLO_TRY(kolo_served_put(d, s, KOLO_ROWS_STATE));
    const bool own = d->packs && keeps_own_residuals(s);
    return own ? kolo_served_store_residuals(d, s, d->residual) : KOLO_OK;
}

/* Between two steps nothing is pushed. */
kolo_status kolo_served_sum_residuals(kolo_served *d, const kolo_session *s) {
    if (!d->packs || keeps_own_residuals(s)) return KOLO_OK;
    if (kolo_served_leads(d)) {
        KOLO_TRY(kolo_parameters_barrier_sum(d->parameters, d->residual, d->lost, NULL, NULL));
        KOLO_TRY(kolo_parameters_read_sum(d->parameters, d->pushed));
    }
    KOLO_TRY(kolo_served_share(d, d->pushed, d->gradient, KOLO_DTYPE_F32));
    return kolo_served_store_residuals(d, s, d->pushed);
}

kolo_sums kolo_served_sums(kolo_served *d, const kolo_session *s) {
    const kolo_metric *m = kolo_metric_table();
    kolo_sums sums = {.samples = (int64_t)(d->totals[0] - d->before[0]),
                      .labels = (int64_t)(d->totals[1] - d->before[1])};
    for (int i = 0; i < KOLO_MAX_METRICS; i++) sums.metric[i] = NAN;
    for (int i = 0, k = 2; i < d->division.n_rows; i++) {
        if (kolo_division_kind(&d->division, i) != KOLO_ROW_METRIC) continue;
        for (int j = 0; m[j].name; j++) {
            bool scalar = m[j].output && kolo_value_ok(s->plans[0]->metrics[j]);
            if (!scalar || kolo_division_find(&d->division, m[j].output) != i) continue;
            sums.metric[j] = d->totals[k] - d->before[k];
        }
        k++;
    }
    memcpy(d->before, d->totals, kolo_division_totals(&d->division) * sizeof(float));
    return sums;
}

/* The rows of the batch, before its forward pass. */
static kolo_status pull_rows(kolo_session *s, const kolo_batch *batch) {
    const int64_t begin = kolo_now_ns();
    KOLO_TRY(kolo_tables_pull(s->served->tables, batch, s->field_of, true));
    if (s->upcoming.count > 0) {
        KOLO_TRY(kolo_tables_prefetch(s->served->tables, &s->upcoming, s->field_of));
    }
    kolo_session_count_communication(s, begin);
    return KOLO_OK;
}

kolo_status kolo_session_step_served(kolo_session *s, const kolo_batch *batch, double lr,
                                     kolo_sums *sums) {
    kolo_batch own = *batch;
    const cached *finish = NULL;
    kolo_label_count labels, own_labels = kolo_session_count_labels(s, batch);
    const bool alone = kolo_consistency_is_alone(&s->opts.consistency);
    labels = own_labels;
    if (!alone) KOLO_TRY(kolo_session_sum_labels(s, batch, &labels));
    if (alone) {
        int64_t counts[] = {own.count, own_labels.count};
        KOLO_TRY(kolo_served_add_group(s->served, counts, 2));
        own.global_count = counts[0];
        labels = (kolo_label_count){.count = counts[1]};
    }
    kolo_tables *tables = s->served->tables;
    if (own.count > 0) {
        if (tables) KOLO_TRY(pull_rows(s, &own));
        kolo_served_begin(s->served, own.count, own_labels.count);
        s->posted = push_posted;
        const kolo_step_scalars x = kolo_session_scalars(s, lr, labels);
        KOLO_TRY(kolo_session_run_micro_batches(s, &own, &x, &finish));
        s->trained = finish->plan;
    }
    const int64_t begin = kolo_now_ns();
    if (tables) KOLO_TRY(kolo_tables_push(tables, finish ? finish->plan : NULL));
    KOLO_TRY(push(s->served, finish ? finish->plan : NULL));
    KOLO_TRY(kolo_served_pull(s->served, s));
    kolo_session_count_communication(s, begin);
    *sums = kolo_served_sums(s->served, s);
    s->evaluated = NULL;
    s->steps++;
    return KOLO_OK;
}

bool kolo_session_leases(const kolo_session *s) { return s->opts.consistency.lease; }

void kolo_session_seek(kolo_session *s, int64_t step) { s->steps = (uint64_t)step; }

kolo_status kolo_session_ask(kolo_session *s, int64_t end) {
    return kolo_parameters_ask(s->served->parameters, (uint64_t)end);
}

kolo_status kolo_session_lease(kolo_session *s, int64_t *lease) {
    bool given;
    uint64_t number = 0;
    KOLO_TRY(kolo_parameters_lease(s->served->parameters, &given, &number));
    *lease = given ? (int64_t)number : -1;
    return kolo_parameters_reads_again(s->served->parameters) ? kolo_served_pull(s->served, s)
                                                              : KOLO_OK;
}

typedef kolo_status ask_for_point(kolo_parameters *p, bool asks, uint64_t next, uint64_t *at);

/* A group of workers is one, with the next call of its first one. */
static kolo_status agree_on_point(const kolo_served *d, ask_for_point *ask, bool asks,
                                  int64_t *next, int64_t *at) {
    int64_t asking = asks, points[2] = {*next, 0};
    uint64_t point = 0;
    KOLO_TRY(kolo_served_add_group(d, &asking, 1));
    if (kolo_served_leads(d)) {
        KOLO_TRY(ask(d->parameters, asking > 0, (uint64_t)*next, &point));
    }
    points[1] = (int64_t)point;
    KOLO_TRY(kolo_served_share(d, points, 2, KOLO_DTYPE_I64));
    *next = points[0];
    *at = points[1];
    return KOLO_OK;
}

kolo_status kolo_session_stop(kolo_session *s, bool asks, int64_t *next, int64_t *at) {
    return agree_on_point(s->served, kolo_parameters_stop, asks, next, at);
}

kolo_status kolo_session_forget_stop(kolo_session *s) {
    if (!s->served) return KOLO_OK;
    const bool asks = rank_of(s) == 0; /* for points where all meet */
    return kolo_agree(s->comm, asks ? kolo_parameters_forget_stop(s->served->parameters) : KOLO_OK);
}

kolo_status kolo_session_pause(kolo_session *s, bool asks, int64_t *next, int64_t *at) {
    return agree_on_point(s->served, kolo_parameters_pause, asks, next, at);
}

kolo_status kolo_session_barrier(kolo_session *s, bool *asked, bool *any) {
    return kolo_served_barrier(s->served, asked, any);
}

int kolo_session_staleness(const kolo_session *s) {
    return kolo_parameters_staleness(s->served->parameters);
}

int64_t kolo_session_updates(const kolo_session *s) {
    const bool counts = s->served && kolo_consistency_is_alone(&s->opts.consistency);
    return counts ? (int64_t)s->served->totals[kolo_division_updates(&s->served->division)] : 0;
}

void kolo_session_add_rest(kolo_session *s, kolo_sums *sums) {
    if (!s->served) return;
    const kolo_sums rest = kolo_served_sums(s->served, s);
    kolo_sums_add(sums, &rest);
}

kolo_status kolo_session_table_stats(kolo_session *s, kolo_table_stats *stats) {
    *stats = (kolo_table_stats){0};
    return s->pulled ? kolo_tables_stats(s->served->tables, stats) : KOLO_OK;
}

kolo_status kolo_session_save_tables(kolo_session *s, const char *path, int64_t steps) {
    return s->pulled ? kolo_tables_save(s->served->tables, path, steps) : KOLO_OK;
}

void kolo_session_prefetch_rows(kolo_session *s, const kolo_batch *next) { s->upcoming = *next; }

uint64_t kolo_session_count_ahead(const kolo_session *s) {
    return s->pulled && s->served ? kolo_tables_count_ahead(s->served->tables) : 0;
}

bool kolo_session_has_tables(const kolo_session *s) { return s->pulled != 0; }

kolo_status kolo_session_copy_tables(kolo_session *s, const char *path, int64_t steps,
                                     kolo_tables_copy **copy) {
    return kolo_tables_copy_begin(s->served->tables, path, steps, copy);
}

kolo_status kolo_session_read_tables(kolo_session *s, const char *path) {
    return kolo_tables_read(s->served->tables, path);
}

kolo_status kolo_session_enter(kolo_session *s, int64_t *end) {
    uint64_t leases;
    KOLO_TRY(kolo_parameters_enter(s->served->parameters, &leases));
    *end = (int64_t)leases;
    KOLO_TRY(kolo_served_pull(s->served, s));
    (void)kolo_served_sums(s->served, s); /* what the others have done before */
    return KOLO_OK;
}

/* Rounds with servers: a worker trains on its own for H steps, pushes how far it has come from what
 * it has read, and reads what the owners have made of that (docs/consistency.md; Douillard et al.,
 * "DiLoCo: Distributed low-communication training of language models", 2023). */
#include "base/clock.h"
#include "train/session/served_internal.h"

#include <math.h>
#include <string.h>

/* This worker's values of all owners; totals are left out. */
static void gather_own(const kolo_served *d, float *values) {
    const size_t totals = kolo_division_totals(&d->division);
    for (int i = 0; i < d->division.owners; i++) {
        kolo_division_gather(&d->division, i, KOLO_ROWS_PULLED, false, d->places, values + totals);
        values += d->parts[i].values;
    }
}

void kolo_served_keep(kolo_served *d, const kolo_session *s) {
    if (d->every == 0) return;
    (void)kolo_served_place(d, s); /* the next run returns its error */
    gather_own(d, d->kept);
}

void kolo_served_restore(const kolo_served *d, const kolo_session *s) {
    const size_t totals = kolo_division_totals(&d->division);
    const float *part = d->kept;
    if (d->every == 0) return;
    kolo_served_make_room(d, s);
    for (int i = 0; i < d->division.owners; i++) {
        kolo_division_scatter(&d->division, i, KOLO_ROWS_PULLED, false, part + totals, d->places);
        part += d->parts[i].values;
    }
    (void)kolo_served_put(d, s, KOLO_ROWS_PULLED); /* the next run returns its error */
}

/* The places of metrics become their sums over the round. */
static void place_metrics(const kolo_served *d) {
    const kolo_metric *m = kolo_metric_table();
    for (int i = 0; i < d->division.n_rows; i++) {
        if (kolo_division_kind(&d->division, i) != KOLO_ROW_METRIC) continue;
        KOLO_ASSERT(kolo_division_elements(&d->division, i) == 1);
        d->summed[i] = 0;
        d->places[i] = &d->summed[i];
        for (int j = 0; m[j].name; j++) {
            if (!m[j].output || kolo_division_find(&d->division, m[j].output) != i) continue;
            if (isfinite(d->round.metric[j]) || j == KOLO_METRIC_LOSS) {
                d->summed[i] = (float)d->round.metric[j];
            }
        }
    }
}

/* A row of what owner i gets: how far a parameter has come from the beginning of the round, or a
 * running statistic, weighted. `base` is at this row. */
static size_t gather_change(const kolo_served *d, int row, int i, const float *base, float *part) {
    const kolo_row_kind kind = kolo_division_kind(&d->division, row);
    const size_t n = kolo_division_gather_row(&d->division, row, i, 1, d->places[row], part);
    const float factor = kind == KOLO_ROW_METRIC ? 1 : (float)d->samples;
    for (size_t k = 0; k < n && kind == KOLO_ROW_GRADIENT; k++) part[k] = base[k] - part[k];
    for (size_t k = 0; k < n; k++) part[k] *= factor;
    return n;
}

/* Pushes the round, and begins the next one with what the owners have then. */
static kolo_status exchange_round(kolo_served *d, const kolo_session *s) {
    const float *base = d->base;
    float *part = d->pushed;
    kolo_served_begin(d, d->round.samples, d->round.labels);
    KOLO_TRY(kolo_served_place(d, s));
    place_metrics(d);
    for (int i = 0; i < d->division.owners; i++) {
        size_t from = kolo_division_totals(&d->division), to = KOLO_SUMMED_HEAD;
        for (int row = 0; row < d->division.n_rows; row++) {
            const kolo_row_kind kind = kolo_division_kind(&d->division, row);
            if (!(KOLO_ROWS_PUSHED >> kind & 1)) continue;
            const size_t n = gather_change(d, row, i, base + from, part + to);
            to += n;
            if (KOLO_ROWS_PULLED >> kind & 1) from += n;
        }
        base += d->parts[i].values;
        part += d->parts[i].gradient;
    }
    d->round = (kolo_sums){0};
    KOLO_TRY(kolo_served_push(d));
    KOLO_TRY(kolo_served_pull(d, s));
    memcpy(d->base, d->pulled, d->values * sizeof *d->base);
    return KOLO_OK;
}

kolo_status kolo_session_step_between(kolo_session *s, const kolo_batch *batch, double lr,
                                      kolo_sums *sums) {
    kolo_served *d = s->served;
    kolo_batch own = *batch;
    own.global_count = own.count;
    *sums = (kolo_sums){0};
    if (!d->based) {
        KOLO_TRY(kolo_served_place(d, s));
        gather_own(d, d->base);
        d->based = true;
    }
    if (own.count > 0) {
        const cached *finish;
        const kolo_label_count labels = kolo_session_count_labels(s, &own);
        const kolo_step_scalars x = kolo_session_scalars(s, lr, labels);
        KOLO_TRY(kolo_session_run_micro_batches(s, &own, &x, &finish));
        const kolo_sums step = kolo_session_read_sums(finish, own.count, labels);
        kolo_sums_add(&d->round, &step);
        s->trained = finish->plan;
    }
    s->evaluated = NULL;
    s->steps++;
    if ((int64_t)s->steps % d->every != 0) return KOLO_OK;
    const int64_t begin = kolo_now_ns();
    KOLO_TRY(exchange_round(d, s));
    kolo_session_count_communication(s, begin);
    *sums = kolo_served_sums(d, s);
    return KOLO_OK;
}

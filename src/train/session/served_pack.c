/* Pushes as codes: a worker adds the errors of its latest codes to a gradient, pushes the code of
 * the sum, and keeps the new error (kolo/codec.h). The owner decodes (kolo_division_unpack). */
#include "plan/store.h"
#include "train/session/served_internal.h"

#include <string.h>

void kolo_served_begin_pack(kolo_served *d) {
    const size_t bytes = (size_t)kolo_division_parts(&d->division) * sizeof *d->n_packed;
    if (!d->packs) return;
    d->packed_rows = 0;
    memset(d->n_packed, 0, bytes);
    memset(d->n_taken, 0, bytes);
}

/* A part begins with what was summed over. */
static void pack_head(const kolo_served *d, int i) {
    const size_t bytes = KOLO_SUMMED_HEAD * sizeof *d->packed;
    if (d->n_packed[i] > 0) return;
    memcpy(d->packed + d->packed_at[i], d->pushed + d->pushed_at[i], bytes);
    d->n_packed[i] = d->n_taken[i] = KOLO_SUMMED_HEAD;
}

/* A push without samples, which changes nothing, leaves the errors for the next one. */
static void pack_row(const kolo_served *d, int row, int i) {
    const size_t from = d->pushed_at[i] + d->n_taken[i], to = d->packed_at[i] + d->n_packed[i];
    const bool counts = kolo_summed_get(d->pushed + d->pushed_at[i] + KOLO_SUMMED_SAMPLES) > 0;
    d->n_packed[i] += kolo_division_pack_row(&d->division, row, i, d->pushed + from,
                                             counts ? d->residual + from : NULL, d->packed + to);
    d->n_taken[i] += kolo_division_count(&d->division, row, i);
}

void kolo_served_pack(kolo_served *d, int end) {
    const int owners = d->division.owners;
    for (; d->packs && d->packed_rows < end; d->packed_rows++) {
        const int row = d->packed_rows, first = kolo_division_bucket(&d->division, row) * owners;
        if (!(KOLO_ROWS_PUSHED >> kolo_division_kind(&d->division, row) & 1)) continue;
        for (int i = first; i < first + owners; i++) {
            pack_head(d, i);
            pack_row(d, row, i);
        }
    }
}

/* The places become where the session has the errors; `fetch`: copied to the host. */
static kolo_status place_residuals(const kolo_served *d, const kolo_session *s, bool fetch) {
    const kolo_store *store = s->store;
    for (int row = 0; row < d->division.n_rows; row++) {
        const int e = d->residuals[row];
        d->places[row] = NULL;
        if (e < 0) continue;
        const kolo_store_entry *entry = kolo_store_entry_at(store, e);
        if (fetch) {
            kolo_regions_fetch(store->regions, kolo_store_at(store, entry, store->current),
                               kolo_store_entry_bytes(entry));
        }
        d->places[row] = (float *)(void *)kolo_store_host(store, entry, store->current);
    }
    return kolo_store_check(store);
}

/* Each of the workers that push has an equal part of a sum. */
static void divide_residuals(const kolo_served *d, const kolo_session *s) {
    const float part = 1 / (float)(ranks_of(s) / step_ranks(s));
    for (size_t i = 0; i < d->gradient && part < 1; i++) d->residual[i] *= part;
}

kolo_status kolo_served_load_residuals(const kolo_served *d, const kolo_session *s) {
    if (!d->packs) return KOLO_OK;
    KOLO_TRY(place_residuals(d, s, true));
    for (int i = 0; i < kolo_division_parts(&d->division); i++) {
        kolo_division_gather(&d->division, i, KOLO_ROWS_PUSHED, false, d->places,
                             d->residual + d->pushed_at[i] + KOLO_SUMMED_HEAD);
    }
    if (!keeps_own_residuals(s)) divide_residuals(d, s);
    return KOLO_OK;
}

kolo_status kolo_served_store_residuals(const kolo_served *d, const kolo_session *s,
                                        const float *numbers) {
    const kolo_store *store = s->store;
    KOLO_TRY(place_residuals(d, s, false));
    for (int i = 0; i < kolo_division_parts(&d->division); i++) {
        kolo_division_scatter(&d->division, i, KOLO_ROWS_PUSHED, false,
                              numbers + d->pushed_at[i] + KOLO_SUMMED_HEAD, d->places);
    }
    for (int row = 0; row < d->division.n_rows; row++) {
        if (d->residuals[row] < 0) continue;
        kolo_store_put(store, kolo_store_entry_at(store, d->residuals[row]), store->current);
    }
    return kolo_store_check(store);
}

static const float *vector_of(const kolo_served *d) { return d->packs ? d->packed : d->pushed; }

kolo_status kolo_served_push_early(kolo_served *d, int first, int end) {
    const size_t *ready = d->packs ? d->n_packed : d->filled;
    for (int i = first; i < end; i++) {
        KOLO_TRY(kolo_parameters_push_early(d->parameters, vector_of(d), i, ready[i]));
    }
    return KOLO_OK;
}

kolo_status kolo_served_push(kolo_served *d) {
    kolo_served_pack(d, d->division.n_rows);
    for (int i = 0; d->packs && i < kolo_division_parts(&d->division); i++) pack_head(d, i);
    return kolo_parameters_push(d->parameters, vector_of(d));
}

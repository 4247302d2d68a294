/* The state of a run as text: integers, and doubles in the shortest form that reads back exactly,
 * in a fixed order, each followed by a blank. Sums that only some models report stand at the end,
 * then the number of damaged samples, that of updates, the best evaluation (its step, value, the
 * evaluations since then, and its metric by name), the run's number in its ledger, and the place in
 * a text that is a stream (bytes, lines). Zeros at the end are left out. */
#include "train/session/run_state.h"

#include "base/number.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Rows whose sums are stored: of every model with the other numbers of an accumulator, the others
 * at the end. */
static bool is_stored(const kolo_metric *m, bool every_model) {
    return m->output && !m->reduce && m->every_model == every_model;
}

/* ---- writing ---- */

static void add_int(kolo_text *text, int64_t number) {
    kolo_text_add(text, "%" PRId64 " ", number);
}

static void add_double(kolo_text *text, double number) {
    char digits[32];
    kolo_double_text(number, digits);
    kolo_text_add(text, "%s ", digits);
}

static void add_metrics(kolo_text *text, const kolo_sums *sums, const kolo_sums *zero,
                        bool every_model) {
    const kolo_metric *m = kolo_metric_table();
    for (int i = 0; m[i].name; i++) {
        if (is_stored(&m[i], every_model) && !isnan(zero->metric[i])) {
            add_double(text, sums->metric[i]);
        }
    }
}

static void add_sums(kolo_text *text, const kolo_sums *sums, const kolo_sums *zero) {
    add_metrics(text, sums, zero, true);
    add_int(text, sums->samples);
    if (sums->weight == 0) {
        add_int(text, sums->labels);
    } else {
        kolo_text_add(text, "%" PRId64 ":", sums->labels);
        add_double(text, sums->weight);
    }
}

void kolo_run_state_write(const kolo_run_state *s, kolo_text *text) {
    const kolo_sums *zero = &s->run.sums; /* NaN where the model has no such output */
    add_int(text, s->steps);
    add_double(text, s->first_loss);
    add_sums(text, &s->run.sums, zero);
    add_int(text, s->run.ns);
    add_sums(text, &s->epoch.sums, zero);
    add_int(text, s->epoch.ns);
    for (int i = 0; i < KOLO_LAST_STEPS; i++) add_sums(text, &s->recent[i], zero);
    add_metrics(text, &s->run.sums, zero, false);
    add_metrics(text, &s->epoch.sums, zero, false);
    for (int i = 0; i < KOLO_LAST_STEPS; i++) add_metrics(text, &s->recent[i], zero, false);
    const bool has_place = s->place.bytes > 0 && s->place.samples == s->run.sums.samples;
    const bool has_ledger = s->ledger > 0 || has_place;
    const bool has_best = s->best_step > 0 || has_ledger;
    if (s->damaged > 0 || s->updates > 0 || has_best) add_int(text, s->damaged);
    if (s->updates > 0 || has_best) add_int(text, s->updates);
    if (!has_best) return;
    add_int(text, s->best_step);
    add_double(text, s->best);
    add_int(text, s->stale);
    kolo_text_add(text, "%s ", kolo_metric_table()[s->best_row].name);
    if (has_ledger) add_int(text, s->ledger);
    if (!has_place) return;
    add_int(text, (int64_t)s->place.bytes);
    add_int(text, s->place.lines);
}

/* ---- reading ---- */

typedef struct reader {
    const char *at;
    bool failed;
} reader;

/* A number ends at a blank. */
static void pass(reader *r, const char *end) {
    r->failed |= end == r->at || *end != ' ' || errno != 0;
    if (!r->failed) r->at = end + 1;
}

static int64_t next_int(reader *r) {
    char *end;
    errno = 0;
    long long number = strtoll(r->at, &end, 10);
    r->failed |= number < 0;
    pass(r, end);
    return number;
}

static double next_double(reader *r) {
    char *end;
    errno = 0;
    double number = kolo_parse_double(r->at, &end);
    if (errno == ERANGE && number < 1) errno = 0; /* denormals are valid */
    pass(r, end);
    return number;
}

/* The row of a metric, by name. */
static int64_t next_row(reader *r) {
    const kolo_metric *m = kolo_metric_table();
    const size_t length = strcspn(r->at, " ");
    errno = 0;
    for (int64_t i = 0; m[i].name; i++) {
        if (strlen(m[i].name) != length || strncmp(m[i].name, r->at, length) != 0) continue;
        pass(r, r->at + length);
        return i;
    }
    r->failed = true;
    return 0;
}

static void next_best(reader *r, kolo_run_state *s) {
    s->best_step = next_int(r);
    s->best = next_double(r);
    s->stale = next_int(r);
    s->best_row = next_row(r);
}

static void next_metrics(reader *r, const kolo_sums *zero, bool every_model, kolo_sums *sums) {
    const kolo_metric *m = kolo_metric_table();
    for (int i = 0; m[i].name; i++) {
        if (is_stored(&m[i], every_model) && !isnan(zero->metric[i])) {
            sums->metric[i] = next_double(r);
        }
    }
}

/* "120 ", or with weights of the classes "120:97.5 ". */
static void next_labels(reader *r, kolo_sums *sums) {
    const size_t digits = strspn(r->at, "0123456789");
    if (r->at[digits] != ':') {
        sums->labels = next_int(r);
        return;
    }
    sums->labels = strtoll(r->at, NULL, 10);
    r->at += digits + 1;
    sums->weight = next_double(r);
}

static kolo_sums next_sums(reader *r, const kolo_sums *zero) {
    kolo_sums sums = *zero;
    next_metrics(r, zero, true, &sums);
    sums.samples = next_int(r);
    next_labels(r, &sums);
    return sums;
}

kolo_status kolo_run_state_read(const char *where, const char *text, const kolo_sums *zero,
                                kolo_run_state *state) {
    reader r = {.at = text};
    kolo_run_state s = {0};
    s.steps = next_int(&r);
    s.first_loss = next_double(&r);
    s.run.sums = next_sums(&r, zero);
    s.run.ns = next_int(&r);
    s.epoch.sums = next_sums(&r, zero);
    s.epoch.ns = next_int(&r);
    for (int i = 0; i < KOLO_LAST_STEPS; i++) s.recent[i] = next_sums(&r, zero);
    next_metrics(&r, zero, false, &s.run.sums);
    next_metrics(&r, zero, false, &s.epoch.sums);
    for (int i = 0; i < KOLO_LAST_STEPS; i++) next_metrics(&r, zero, false, &s.recent[i]);
    s.damaged = *r.at ? next_int(&r) : 0;
    s.updates = *r.at ? next_int(&r) : 0;
    if (*r.at) next_best(&r, &s);
    s.ledger = *r.at ? next_int(&r) : 0;
    s.place.bytes = *r.at ? (uint64_t)next_int(&r) : 0;
    s.place.lines = *r.at ? next_int(&r) : 0;
    s.place.samples = s.run.sums.samples;
    if (r.failed || *r.at) {
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "%s: the metadata have an invalid run state: the file is "
                         "damaged",
                         where);
    }
    *state = s;
    return KOLO_OK;
}

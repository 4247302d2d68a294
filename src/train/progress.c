/* Where a run stands, as text: whole numbers and doubles in the shortest form that reads back as
 * the same double, in one fixed order, a blank between two; what only models of pairs of sentences
 * have stands at the end. */
#include "train/progress.h"

#include "base/json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

/* ---- writing ---- */

static void add_int(kolo_text *text, int64_t number) {
    kolo_text_add(text, "%" PRId64 " ", number);
}

static void add_double(kolo_text *text, double number) {
    char digits[32];
    kolo_double_text(number, digits);
    kolo_text_add(text, "%s ", digits);
}

static void add_sums(kolo_text *text, const kolo_sums *sums) {
    add_double(text, sums->loss);
    add_double(text, sums->correct);
    add_int(text, sums->samples);
    add_int(text, sums->labels);
}

static void add_next(kolo_text *text, const kolo_sums *sums) {
    add_double(text, sums->next_loss);
    add_double(text, sums->next_correct);
}

static void add_tally(kolo_text *text, const kolo_tally *tally) {
    add_sums(text, &tally->sums);
    add_int(text, tally->ns);
}

void kolo_progress_write(const kolo_progress *p, kolo_text *text) {
    add_int(text, p->steps);
    add_double(text, p->first_loss);
    add_tally(text, &p->run);
    add_tally(text, &p->epoch);
    for (int i = 0; i < KOLO_LAST_STEPS; i++) add_sums(text, &p->recent[i]);
    if (!p->run.sums.pairs) return;
    add_next(text, &p->run.sums);
    add_next(text, &p->epoch.sums);
    for (int i = 0; i < KOLO_LAST_STEPS; i++) add_next(text, &p->recent[i]);
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
    double number = strtod(r->at, &end);
    if (errno == ERANGE && number < 1) errno = 0; /* a denormal is a number too */
    pass(r, end);
    return number;
}

static kolo_sums next_sums(reader *r) {
    kolo_sums sums = {0};
    sums.loss = next_double(r);
    sums.correct = next_double(r);
    sums.samples = next_int(r);
    sums.labels = next_int(r);
    return sums;
}

static void read_next(reader *r, kolo_sums *sums) {
    sums->next_loss = next_double(r);
    sums->next_correct = next_double(r);
    sums->pairs = sums->samples;
}

static kolo_tally next_tally(reader *r) {
    kolo_tally tally;
    tally.sums = next_sums(r);
    tally.ns = next_int(r);
    return tally;
}

kolo_status kolo_progress_read(const char *where, const char *text, kolo_progress *progress) {
    reader r = {.at = text};
    kolo_progress p;
    p.steps = next_int(&r);
    p.first_loss = next_double(&r);
    p.run = next_tally(&r);
    p.epoch = next_tally(&r);
    for (int i = 0; i < KOLO_LAST_STEPS; i++) p.recent[i] = next_sums(&r);
    if (!r.failed && *r.at) {
        read_next(&r, &p.run.sums);
        read_next(&r, &p.epoch.sums);
        for (int i = 0; i < KOLO_LAST_STEPS; i++) read_next(&r, &p.recent[i]);
    }
    if (r.failed || *r.at) {
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "%s: its metadata has a progress that kolo does not write: the file is "
                         "damaged",
                         where);
    }
    *progress = p;
    return KOLO_OK;
}

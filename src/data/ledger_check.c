/* Checking of ledgers: each line is read twice, first to find out where the runs begin and end,
 * then to count samples. */
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/ledger.h"

#include <inttypes.h>
#include <string.h>

enum { NAMED = 10, MOST_TIMES = 255 }; /* samples that a line of the result names */

typedef struct run {
    kolo_ledger_run head;
    int64_t until; /* the next run resumed there: what this one has recorded from it on is not
                      used; 0: no later run goes on after this one */
    int64_t end;   /* after the last step that is recorded, of those that are not dropped */
} run;

typedef struct epoch {
    int64_t number;
    uint8_t *times; /* [room]: uses of each, at most MOST_TIMES; others are not used */
    int64_t room;
    int64_t used; /* samples, as often as they were used */
} epoch;

/* A worker that is lost in a run, after this many steps of it. */
typedef struct loss {
    size_t run;
    int64_t rank, steps;
} loss;

typedef struct check {
    const char *path;
    char *file; /* that is read */
    int rank;   /* whose that is */
    const char *at, *end;
    int64_t line;
    run *runs; /* those of worker 0, which takes part in all */
    size_t n_runs, cap_runs;
    size_t last;   /* the run whose parameters are asked about */
    size_t n_used; /* runs whose steps are in these */
    int64_t first; /* step from which the first of them began */
    size_t now;    /* the run whose steps are read */
    int64_t made;  /* steps of it that are read */
    loss *losses;
    size_t n_losses, cap_losses;
    bool counts;
    epoch *epochs;
    size_t n_epochs, cap_epochs;
} check;

/* A line with a step of a worker; samples: what follows. */
typedef struct step {
    int64_t epoch, number, of;
} step;

/* ---- lines ---- */

static kolo_status fail_line(const check *c, const char *why) {
    return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: line %" PRId64 " %s", c->file, c->line, why);
}

static bool skip(check *c, const char *text) {
    const size_t n = strlen(text);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, text, n) != 0) return false;
    c->at += n;
    return true;
}

static bool number(check *c, int64_t *n) {
    const char *from = c->at;
    *n = 0;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++) {
        const int digit = *c->at - '0';
        if (*n > (INT64_MAX - digit) / 10) return false;
        *n = 10 * *n + digit;
    }
    return c->at > from;
}

static bool read_run(check *c, kolo_ledger_run *r) {
    int64_t rank, ranks;
    const bool read = number(c, &r->number) && skip(c, " from step ") && number(c, &r->first) &&
                      skip(c, " after run ") && number(c, &r->after) && skip(c, ", rank ") &&
                      number(c, &rank) && skip(c, " of ") && number(c, &ranks) && skip(c, ", ") &&
                      number(c, &r->samples) && skip(c, " samples, ") && number(c, &r->steps) &&
                      skip(c, " steps, lag ") && number(c, &r->lag) && skip(c, "\n");
    if (!read || ranks > INT32_MAX || rank != c->rank || rank >= ranks) return false;
    r->rank = (int)rank;
    r->ranks = (int)ranks;
    return r->samples > 0 && r->steps > 0 && r->steps <= r->samples;
}

static bool read_step(check *c, step *s) {
    return number(c, &s->epoch) && skip(c, " step ") && number(c, &s->number) && skip(c, " of ") &&
           number(c, &s->of) && skip(c, ":");
}

/* ---- runs ---- */

/* Worker 0 states the runs; the others take part in those that have enough workers. */
static kolo_status begin_run(check *c) {
    kolo_ledger_run r;
    if (!read_run(c, &r)) return fail_line(c, "is not the line of a run: the ledger is damaged");
    if (c->rank == 0 && !c->counts) {
        const run *first = c->runs;
        if (first && (r.samples != first->head.samples || r.steps != first->head.steps)) {
            return fail_line(c, "begins a run with other data or another global batch");
        }
        if (!KOLO_GROW(c->runs, c->n_runs, c->cap_runs)) return KOLO_NOMEM(sizeof r);
        c->runs[c->n_runs++] = (run){.head = r};
    }
    c->made = 0;
    c->now = 0;
    while (c->now < c->n_runs && c->runs[c->now].head.number != r.number) c->now++;
    /* One that rank 0 refused has no steps. */
    if (c->now == c->n_runs || c->runs[c->now].head.ranks == r.ranks) return KOLO_OK;
    return fail_line(c, "begins a run with other workers than in the ledger of rank 0");
}

/* Follows the runs back from the last one that has made a step, to one whose predecessor is not in
 * this ledger. */
static void close_runs(check *c) {
    int64_t until = INT64_MAX, number;
    size_t i = c->n_runs;
    while (i > 1 && c->runs[i - 1].end == 0) i--;
    c->last = i - 1;
    number = c->runs[c->last].head.number;
    for (; i > 0; i--) {
        run *r = &c->runs[i - 1];
        if (r->head.number != number) continue;
        r->until = until;
        c->first = r->head.first;
        c->n_used++;
        if (r->head.first < until) until = r->head.first;
        number = r->head.after;
    }
}

/* Steps that are in the parameters at the end of the last run. */
static int64_t steps_used(const check *c) {
    int64_t end = c->runs[c->last].head.first;
    for (size_t i = 0; i < c->n_runs; i++) {
        if (c->runs[i].end > end) end = c->runs[i].end;
    }
    end -= c->runs[c->last].head.lag;
    return end > 0 ? end : 0;
}

/* Worker 0 states the losses. */
static kolo_status take_loss(check *c) {
    loss l = {.run = c->now};
    const bool read = number(c, &l.rank) && skip(c, " after ") && number(c, &l.steps) &&
                      skip(c, " steps\n") && c->rank == 0 && c->now < c->n_runs;
    if (!read) return fail_line(c, "is not the line of a loss: the ledger is damaged");
    if (c->counts) return KOLO_OK;
    if (!KOLO_GROW(c->losses, c->n_losses, c->cap_losses)) return KOLO_NOMEM(sizeof l);
    c->losses[c->n_losses++] = l;
    return KOLO_OK;
}

/* Whether the next step of this worker was made. */
static bool is_made(const check *c) {
    for (size_t i = 0; i < c->n_losses; i++) {
        const loss *l = &c->losses[i];
        if (l->run == c->now && l->rank == c->rank && c->made >= l->steps) return false;
    }
    return true;
}

/* ---- samples ---- */

static kolo_status epoch_of(check *c, int64_t n, epoch **found) {
    for (size_t i = c->n_epochs; i-- > 0;) {
        *found = &c->epochs[i];
        if (c->epochs[i].number == n) return KOLO_OK;
    }
    if (!KOLO_GROW(c->epochs, c->n_epochs, c->cap_epochs)) return KOLO_NOMEM(sizeof(epoch));
    size_t i = c->n_epochs++;
    for (; i > 0 && c->epochs[i - 1].number > n; i--) c->epochs[i] = c->epochs[i - 1];
    c->epochs[i] = (epoch){.number = n};
    *found = &c->epochs[i];
    return KOLO_OK;
}

/* Room for all samples of an epoch; of a stream for those up to `id`. */
static kolo_status make_room(const check *c, epoch *e, int64_t id) {
    const int64_t samples = c->runs[0].head.samples;
    if (id < e->room) return KOLO_OK;
    const int64_t room = samples == KOLO_STREAM_SAMPLES ? 2 * id + (1 << 16) : samples;
    uint8_t *times = kolo_zalloc((size_t)room);
    if (!times) return KOLO_NOMEM((size_t)room);
    if (e->room > 0) memcpy(times, e->times, (size_t)e->room);
    kolo_free(e->times);
    e->times = times;
    e->room = room;
    return KOLO_OK;
}

/* The samples of a line, into those of an epoch; NULL: they are only read. */
static kolo_status read_samples(check *c, epoch *e) {
    int64_t id;
    while (skip(c, " ")) {
        if (!number(c, &id) || id >= c->runs[0].head.samples) {
            return fail_line(c, "has no samples of the data: the ledger is damaged");
        }
        if (!e) continue;
        KOLO_TRY(make_room(c, e, id));
        e->used++;
        e->times[id] = (uint8_t)(e->times[id] + (e->times[id] < MOST_TIMES));
    }
    return skip(c, "\n") ? KOLO_OK : fail_line(c, "is incomplete: the ledger is damaged");
}

static kolo_status take_step(check *c, int64_t most) {
    step s;
    epoch *e = NULL;
    if (!read_step(c, &s)) return fail_line(c, "is not the line of a step: the ledger is damaged");
    if (c->now == c->n_runs) return fail_line(c, "is of a run that is not in the ledger of rank 0");
    run *r = &c->runs[c->now];
    const int64_t steps = r->head.steps;
    if (s.number >= steps || s.epoch > INT64_MAX / steps - 1 || s.of > r->head.samples) {
        return fail_line(c, "is of a step that the run does not have: the ledger is damaged");
    }
    const int64_t at = s.epoch * steps + s.number;
    const bool made = is_made(c);
    c->made++;
    if (!c->counts && made && at >= r->end) r->end = at + 1;
    if (c->counts && made && at < r->until && at < most) KOLO_TRY(epoch_of(c, s.epoch, &e));
    return read_samples(c, e);
}

/* ---- files ---- */

/* Whether a worker began to write its file and did not come to the first line. */
static bool is_begun(const check *c) {
    const size_t n = (size_t)(c->end - c->at);
    return c->rank > 0 && n < sizeof kolo_ledger_head - 1 &&
           memcmp(c->at, kolo_ledger_head, n) == 0;
}

/* Whether worker 0 has made a step of a run with this worker. Before the first one all have begun
 * their files; a run that is killed earlier may lack some. */
static bool is_needed(const check *c, int rank) {
    bool needed = rank == 0;
    for (size_t i = 0; i < c->n_runs; i++) {
        needed = needed || (c->runs[i].head.ranks > rank && c->runs[i].end > 0);
    }
    return needed;
}

static kolo_status read_lines(check *c, int64_t most) {
    c->line = 1;
    c->now = c->n_runs; /* none */
    if (is_begun(c) && !is_needed(c, c->rank)) return KOLO_OK;
    if (!skip(c, kolo_ledger_head)) return fail_line(c, "is not that of a ledger");
    while (c->at < c->end) {
        c->line++;
        if (!memchr(c->at, '\n', (size_t)(c->end - c->at))) return KOLO_OK; /* it was not written */
        if (skip(c, "run ")) {
            KOLO_TRY(begin_run(c));
        } else if (skip(c, "epoch ")) {
            KOLO_TRY(take_step(c, most));
        } else if (skip(c, "lost ")) {
            KOLO_TRY(take_loss(c));
        } else {
            return fail_line(c, "is not the line of a run, step or loss: the ledger is damaged");
        }
    }
    return KOLO_OK;
}

/* The steps of a worker before `most`. */
static kolo_status read_file(check *c, int rank, int64_t most) {
    kolo_file_view view;
    c->rank = rank;
    c->file = kolo_format("%s.%d", c->path, rank);
    if (!c->file) return KOLO_NOMEM(strlen(c->path));
    const bool reads = is_needed(c, rank) || kolo_file_exists(c->file);
    kolo_status status = reads ? kolo_file_map(c->file, &view) : KOLO_OK;
    if (reads && status == KOLO_OK) {
        c->at = view.data;
        c->end = c->at + view.bytes;
        status = read_lines(c, most);
        kolo_file_unmap(&view);
    }
    kolo_free(c->file);
    c->file = NULL;
    return status;
}

static int workers_of(const check *c) {
    int most = 0;
    for (size_t i = 0; i < c->n_runs; i++) {
        if (c->runs[i].head.ranks > most) most = c->runs[i].head.ranks;
    }
    return most;
}

static kolo_status read_files(check *c) {
    KOLO_TRY(read_file(c, 0, 0));
    if (c->n_runs == 0) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s.0 is the ledger of no run", c->path);
    }
    const int workers = workers_of(c);
    for (int r = 1; r < workers; r++) KOLO_TRY(read_file(c, r, 0));
    close_runs(c);
    for (size_t i = 0; i < c->n_runs; i++) {
        run *r = &c->runs[i];
        if (r->end > r->until) r->end = r->until;
    }
    c->counts = true;
    for (int r = 0; r < workers; r++) KOLO_TRY(read_file(c, r, steps_used(c)));
    return KOLO_OK;
}

/* ---- result ---- */

static int times_of(const epoch *e, int64_t id) { return id < e->room ? e->times[id] : 0; }

/* Of the first `samples`, those that are used `least` to `most` times. */
static int64_t count_samples(const epoch *e, int64_t samples, int least, int most) {
    int64_t n = 0;
    for (int64_t i = 0; i < samples && i < e->room; i++) {
        n += e->times[i] >= least && e->times[i] <= most;
    }
    return least == 0 && samples > e->room ? n + samples - e->room : n;
}

/* The samples of an epoch; of a stream up to the last one that was used. */
static int64_t samples_of(const check *c, const epoch *e) {
    int64_t n = c->runs[0].head.samples;
    if (n < KOLO_STREAM_SAMPLES) return n;
    for (n = e->room; n > 0 && e->times[n - 1] == 0;) n--;
    return n;
}

/* Appends "; 3 missing (4, 17, 23)": those that are used `least` to `most` times. */
static bool print_samples(const epoch *e, int64_t samples, const char *what, int least, int most,
                          kolo_text *text) {
    const int64_t all = count_samples(e, samples, least, most);
    int64_t n = 0;
    if (all == 0) return false;
    kolo_text_add(text, "; %" PRId64 " %s (", all, what);
    for (int64_t i = 0; i < samples && n < NAMED; i++) {
        if (times_of(e, i) < least || times_of(e, i) > most) continue;
        kolo_text_add(text, "%s%" PRId64, n++ > 0 ? ", " : "", i);
    }
    kolo_text_add(text, "%s)", all > NAMED ? ", ..." : "");
    return true;
}

static bool print_epoch(const check *c, const epoch *e, kolo_text *text) {
    const kolo_ledger_run *head = &c->runs[0].head;
    const int64_t steps = steps_used(c) - e->number * head->steps;
    const bool stream = head->samples == KOLO_STREAM_SAMPLES;
    const bool whole = (stream || steps >= head->steps) && c->first <= e->number * head->steps;
    const int64_t samples = samples_of(c, e);
    if (stream) {
        kolo_text_add(text, "stream: ");
    } else {
        kolo_text_add(text, "epoch %" PRId64 ": ", e->number + 1);
    }
    if (whole) {
        kolo_text_add(text, "%" PRId64 " samples", samples);
    } else {
        kolo_text_add(text, "%" PRId64 " of %" PRId64 " samples so far", e->used, samples);
    }
    const bool missing = whole && print_samples(e, samples, "missing", 0, 0, text);
    const bool doubled = print_samples(e, samples, "used more than once", 2, MOST_TIMES, text);
    if (!missing && !doubled) kolo_text_add(text, ", %s", whole ? "each once" : "none twice");
    kolo_text_add(text, "\n");
    return !missing && !doubled;
}

/* Epochs of which nothing is recorded. */
static bool print_gap(int64_t first, int64_t end, kolo_text *text) {
    if (first == end) return false;
    kolo_text_add(text, "epochs %" PRId64 " to %" PRId64 ": no samples\n", first + 1, end);
    return true;
}

static kolo_status print(const check *c, bool *exact, kolo_text *text) {
    const kolo_ledger_run *head = &c->runs[0].head;
    int64_t next = c->first / head->steps;
    *exact = true;
    for (size_t i = 0; i < c->n_epochs; i++) {
        if (print_gap(next, c->epochs[i].number, text)) *exact = false;
        next = c->epochs[i].number + 1;
        if (!print_epoch(c, &c->epochs[i], text)) *exact = false;
    }
    const int64_t lag = c->runs[c->last].head.lag;
    kolo_text_add(text, "%zu run%s, %" PRId64 " steps, at most %d workers", c->n_used,
                  c->n_used == 1 ? "" : "s", steps_used(c), workers_of(c));
    if (c->first > 0) {
        kolo_text_add(text, "; steps before %" PRId64 " are not in this ledger", c->first);
    }
    if (lag > 0) kolo_text_add(text, "; lag:%" PRId64 " drops the last gradients", lag);
    kolo_text_add(text, "\n");
    return text->failed ? KOLO_NOMEM(text->capacity) : KOLO_OK;
}

kolo_status kolo_ledger_check(const char *path, bool *exact, char **text) {
    check c = {.path = path};
    kolo_text made = {0};
    kolo_status status = read_files(&c);
    if (status == KOLO_OK) status = print(&c, exact, &made);
    for (size_t i = 0; i < c.n_epochs; i++) kolo_free(c.epochs[i].times);
    kolo_free(c.epochs);
    kolo_free(c.runs);
    kolo_free(c.losses);
    if (status != KOLO_OK) {
        kolo_text_fini(&made);
        return status;
    }
    *text = made.text;
    return KOLO_OK;
}

void kolo_ledger_text_free(char *text) { kolo_free(text); }

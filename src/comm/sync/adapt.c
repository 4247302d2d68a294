#include "comm/sync/adapt.h"

#include "base/compiler.h"
#include "base/memory.h"
#include "base/status.h"
#include "kolo/parameters.h"

#include <math.h>
#include <string.h>

enum {
    ROUNDS = 512, /* steps of each worker in a prediction */
    AGREEING = 8, /* windows that must want a smaller bound before it is taken */
    LOSSES = 8,   /* windows whose losses the latest is compared with */
    PATIENCE = 2, /* windows until a bound is tried again after the loss has risen with it */
    PATIENCE_MOST = 1 << 20,
    CALM = 8, /* times the patience: windows without a rise after which it halves */
};

static const int staleness[] = {0, 1, 3, 10, KOLO_STALENESS_ANY};
enum { LEVELS = KOLO_COUNT(staleness), BOUND_MOST = 10 };

static const double nearly = 0.98; /* of the most steps per second */
static const double worth = 1.15;  /* times those of bsp, from which stale gradients pay */
static const double rise = 1.1;    /* of the loss, that counts; */
static const double errors = 4;    /* and by this many standard errors: rare by chance in any run */

/* The latest steps of a worker: the first is `seconds[first % KOLO_ADAPT_LATEST]`. */
typedef struct track {
    double seconds[KOLO_ADAPT_LATEST];
    uint64_t made;
    int in_window;
    bool gone;
} track;

struct kolo_adapt {
    int n_workers;
    track *tracks; /* [n_workers] */
    double *ends;  /* [n_workers]: of their steps, in a prediction */
    /* Losses of the window: count, mean, and sum of squared differences (Welford). */
    int n_losses;
    double mean, squares;
    double means[LOSSES]; /* of the windows before: the latest n_windows, in a ring */
    uint64_t n_windows;
    int most;           /* level that may be chosen now */
    int wait, patience; /* windows until `most` rises; of the next time */
    int calm;           /* windows since the latest rise, or since the patience has halved */
    int agreeing;       /* windows in a row that wanted a smaller bound */
};

int kolo_adapt_levels(void) { return LEVELS; }
int kolo_adapt_staleness(int level) { return staleness[level]; }

kolo_status kolo_adapt_create(int workers, kolo_adapt **adapt) {
    const size_t n = (size_t)workers;
    kolo_adapt *a = kolo_zalloc(sizeof *a);
    if (!a) return KOLO_NOMEM(sizeof *a);
    a->n_workers = workers;
    a->most = LEVELS - 1;
    a->patience = PATIENCE;
    a->tracks = kolo_zalloc(n * sizeof *a->tracks);
    a->ends = kolo_zalloc(n * sizeof *a->ends);
    if (!a->tracks || !a->ends) {
        kolo_adapt_destroy(a);
        return KOLO_NOMEM(n * sizeof *a->tracks);
    }
    *adapt = a;
    return KOLO_OK;
}

void kolo_adapt_destroy(kolo_adapt *a) {
    if (!a) return;
    kolo_free(a->tracks);
    kolo_free(a->ends);
    kolo_free(a);
}

void kolo_adapt_add_step(kolo_adapt *a, int worker, double seconds) {
    track *t = &a->tracks[worker];
    t->seconds[t->made++ % KOLO_ADAPT_LATEST] = seconds;
    t->in_window++;
}

void kolo_adapt_add_loss(kolo_adapt *a, double loss) {
    const double before = loss - a->mean;
    a->mean += before / ++a->n_losses;
    a->squares += before * (loss - a->mean);
}

void kolo_adapt_leave(kolo_adapt *a, int worker) { a->tracks[worker].gone = true; }

bool kolo_adapt_is_due(const kolo_adapt *a) {
    int present = 0, made = 0;
    for (int w = 0; w < a->n_workers; w++) {
        const track *t = &a->tracks[w];
        if (t->gone) continue;
        if (t->made == 0) return false; /* nothing is known of it */
        present++;
        made += t->in_window;
    }
    return present > 0 && made >= present * KOLO_ADAPT_WINDOW;
}

/* ---- what a bound allows ---- */

static int kept(const track *t) {
    return t->made < KOLO_ADAPT_LATEST ? (int)t->made : KOLO_ADAPT_LATEST;
}

/* Step k of a worker if it repeats its latest ones. */
static double step_of(const track *t, int k) {
    const int n = kept(t);
    return t->seconds[(t->made - (uint64_t)n + (uint64_t)(k % n)) % KOLO_ADAPT_LATEST];
}

static double predict_unbounded(const kolo_adapt *a) {
    double rate = 0;
    for (int w = 0; w < a->n_workers; w++) {
        const track *t = &a->tracks[w];
        double all = 0;
        if (t->gone) continue;
        for (int k = 0; k < kept(t); k++) all += step_of(t, k);
        if (all > 0) rate += kept(t) / all;
    }
    return rate;
}

/* A worker begins step k once all have ended step k - bound. */
static double predict_bounded(const kolo_adapt *a, int bound) {
    double last[BOUND_MOST + 1] = {0}; /* by k: when all have ended this many steps */
    double end = 0;
    int present = 0;
    memset(a->ends, 0, (size_t)a->n_workers * sizeof *a->ends);
    for (int k = 0; k < ROUNDS; k++) {
        const double first = k < bound ? 0 : last[(k - bound) % (BOUND_MOST + 1)];
        end = 0;
        present = 0;
        for (int w = 0; w < a->n_workers; w++) {
            const track *t = &a->tracks[w];
            if (t->gone) continue;
            present++;
            a->ends[w] = (a->ends[w] > first ? a->ends[w] : first) + step_of(t, k);
            if (a->ends[w] > end) end = a->ends[w];
        }
        last[(k + 1) % (BOUND_MOST + 1)] = end;
    }
    return end > 0 ? ROUNDS * present / end : 0;
}

double kolo_adapt_predict(const kolo_adapt *a, int level) {
    for (int w = 0; w < a->n_workers; w++) {
        if (!a->tracks[w].gone && a->tracks[w].made == 0) return 0;
    }
    return staleness[level] == KOLO_STALENESS_ANY ? predict_unbounded(a)
                                                  : predict_bounded(a, staleness[level]);
}

/* ---- the loss ---- */

/* Ends the window: whether the loss is above the mean of the windows before by more than chance
 * explains, or NaN. */
static bool has_risen(kolo_adapt *a) {
    const int n = a->n_losses;
    const double mean = a->mean, squares = a->squares;
    double before = 0;
    int windows = 0;
    a->n_losses = 0;
    a->mean = a->squares = 0;
    if (n == 0) return false;
    for (uint64_t i = 0; i < LOSSES && i < a->n_windows; i++) {
        if (!isfinite(a->means[i])) continue;
        before += a->means[i];
        windows++;
    }
    a->means[a->n_windows++ % LOSSES] = mean;
    if (!isfinite(mean)) return true;
    if (windows == 0) return false;
    before /= windows;
    const double error = n > 1 ? sqrt(squares / (n - 1) / n) : 0;
    return mean > before + (rise - 1) * fabs(before) && mean > before + errors * error;
}

/* Later windows are compared with the latest one, and those that follow it: a loss that comes down
 * slowly has not risen again. */
static void forget_losses(kolo_adapt *a) {
    a->means[0] = a->means[(a->n_windows - 1) % LOSSES];
    a->n_windows = 1;
}

/* After a rise with a level above 0, smaller ones only, for a time that doubles with each rise, and
 * halves without any. */
static void restrict_levels(kolo_adapt *a, int level, bool risen) {
    a->calm++;
    if (risen && level > 0) {
        a->most = level - 1;
        a->wait = a->patience;
        a->calm = 0;
        if (a->patience < PATIENCE_MOST) a->patience *= 2;
        forget_losses(a);
    } else if (a->most < LEVELS - 1 && --a->wait == 0) {
        a->most++;
        a->wait = a->patience;
    }
    if (a->patience > PATIENCE && a->calm >= CALM * a->patience) {
        a->patience /= 2;
        a->calm = 0;
    }
}

int kolo_adapt_choose(kolo_adapt *a, int level) {
    double rates[LEVELS] = {0}, best = 0;
    int want = 0;
    restrict_levels(a, level, has_risen(a));
    for (int w = 0; w < a->n_workers; w++) a->tracks[w].in_window = 0;
    for (int i = 0; i <= a->most; i++) {
        rates[i] = kolo_adapt_predict(a, i);
        best = fmax(best, rates[i]);
    }
    while (best >= worth * rates[0] && want < a->most && rates[want] < nearly * best) want++;
    if (want >= level || level > a->most) {
        a->agreeing = 0;
        return want;
    }
    if (++a->agreeing < AGREEING) return level;
    a->agreeing = 0;
    return want;
}

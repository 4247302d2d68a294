/* The tuner: a hash table of times by key, its text form, and measuring.
 *
 * Only kernels of convolutions and matrix products are measured; other ops have hardly any
 * choice. Each kernel runs once to warm up and then a few times; the minimum counts, because
 * every disturbance makes a run longer. A kernel is skipped when its estimate, and abandoned
 * when its first run, exceeds the best time of the same work in any layout by a factor.
 *
 * For the cuts of pipelines (pass/unit_costs.c) nodes of all ops are measured.
 *
 * For lanes (pass/lanes.c) nodes of all ops are measured, with the kernel that is selected for
 * them: on all threads, and on single threads that run at the same time, each on tensors of its
 * own, so that they share caches and memory as lanes do. Their results are compared, on several
 * sets of inputs: only a node with the same bits either way may be in a lane. */
#include "kernel/select/tune.h"

#include "base/bf16.h"
#include "base/clock.h"
#include "base/number.h"
#include "base/process.h"
#include "base/rng.h"
#include "kernel/parallel.h"
#include "kernel/select/families.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 4096, RUNS = 5, MOST_NS = 200000000 };
static const char *const head = "kolo tuning 1\n";
static const double hopeless = 2.5; /* multiple of the best time of the same work */
static const int64_t enough = 60e6; /* nanoseconds of measured runs per kernel */

typedef struct entry {
    struct entry *next;
    const char *key;
    double seconds;
    bool asked;
} entry;

struct kolo_tuner {
    char *machine;
    entry *times[BUCKETS];
    entry *works[BUCKETS]; /* best time by work: the key without kernel and layouts */
    kolo_arena arena;
    bool measures;
    int measured;
    kolo_tuner_observer observer;
    void *arg;
};

/* ---- entries ---- */

static entry **bucket_of(entry **table, const char *key) {
    return &table[kolo_hash_text(key) % BUCKETS];
}

static entry *find(entry **table, const char *key) {
    entry *e = *bucket_of(table, key);
    while (e && strcmp(e->key, key) != 0) e = e->next;
    return e;
}

/* The entry of a key, created when missing; NULL when out of memory. */
static entry *put(kolo_tuner *t, entry **table, const char *key, double seconds) {
    entry *e = find(table, key);
    if (!e) {
        e = kolo_arena_alloc(&t->arena, sizeof *e);
        char *copy = kolo_arena_strdup(&t->arena, key);
        if (!e || !copy) return NULL;
        entry **bucket = bucket_of(table, key);
        *e = (entry){.next = *bucket, .key = copy};
        *bucket = e;
    }
    e->seconds = seconds;
    return e;
}

kolo_status kolo_tuner_create(const char *machine, kolo_tuner **tuner) {
    kolo_tuner *t = kolo_zalloc(sizeof *t);
    if (!t) return KOLO_NOMEM(sizeof *t);
    t->machine = kolo_strdup(machine);
    if (!t->machine) {
        kolo_free(t);
        return KOLO_NOMEM(strlen(machine));
    }
    *tuner = t;
    return KOLO_OK;
}

void kolo_tuner_destroy(kolo_tuner *t) {
    if (!t) return;
    kolo_arena_fini(&t->arena);
    kolo_free(t->machine);
    kolo_free(t);
}

void kolo_tuner_measure(kolo_tuner *t, bool on, kolo_tuner_observer observer, void *arg) {
    t->measures = on;
    t->observer = observer;
    t->arg = arg;
}

/* ---- text ---- */

/* Parses one line, "seconds key", and adds it to `t` unless NULL. False when malformed. */
static bool read_line(kolo_tuner *t, const char *line, size_t length, kolo_status *status) {
    char *copy = kolo_alloc(length + 1), *end;
    *status = copy ? KOLO_OK : KOLO_NOMEM(length + 1);
    if (!copy) return true;
    memcpy(copy, line, length);
    copy[length] = '\0';
    double seconds = kolo_parse_double(copy, &end);
    bool good = end > copy && *end == ' ' && end[1] && seconds > 0 && seconds < 1e6;
    if (good && t && !put(t, t->times, end + 1, seconds)) *status = KOLO_NOMEM(length);
    kolo_free(copy);
    return good;
}

static kolo_status read_lines(kolo_tuner *t, const char *name, const char *text) {
    int number = 2;
    for (const char *line = text + strlen(head); *line; number++) {
        size_t length = strcspn(line, "\n");
        kolo_status status;
        bool good = read_line(t, line, length, &status);
        KOLO_TRY(status);
        if (!good || !line[length]) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "%s, line %d: expected \"seconds key\"", name,
                             number);
        }
        line += length + 1;
    }
    return KOLO_OK;
}

kolo_status kolo_tuner_read(kolo_tuner *t, const char *name, const char *text) {
    if (strncmp(text, head, strlen(head)) != 0) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s does not begin with \"%.*s\"", name,
                         (int)strlen(head) - 1, head);
    }
    KOLO_TRY(read_lines(NULL, name, text));
    return read_lines(t, name, text);
}

static int by_key(const void *a, const void *b) {
    const entry *const *x = a, *const *y = b;
    return strcmp((*x)->key, (*y)->key);
}

void kolo_tuner_write(const kolo_tuner *t, bool asked_only, kolo_text *text) {
    const entry **entries = NULL;
    size_t n = 0, capacity = 0;
    for (int i = 0; i < BUCKETS; i++) {
        for (const entry *e = t->times[i]; e && !text->failed; e = e->next) {
            if (asked_only && !e->asked) continue;
            if (!KOLO_GROW(entries, n, capacity)) text->failed = true;
            if (!text->failed) entries[n++] = e;
        }
    }
    if (n > 1) qsort(entries, n, sizeof(entry *), by_key);
    kolo_text_add(text, "%s", head);
    for (size_t i = 0; i < n; i++) {
        kolo_text_add(text, "%.6g %s\n", entries[i]->seconds, entries[i]->key);
    }
    kolo_free((void *)entries);
}

/* ---- keys ---- */

static void add_tensors(kolo_text *key, const kolo_tensor *tensors, int n, bool layouts) {
    char shape[KOLO_SHAPE_TEXT], layout[KOLO_LAYOUT_TEXT];
    for (int i = 0; i < n; i++) {
        const kolo_tensor *t = &tensors[i];
        kolo_text_add(key, " %s%s", kolo_dtype_name(t->dtype), kolo_shape_text(&t->shape, shape));
        if (layouts) kolo_text_add(key, "%s", kolo_layout_text(&t->layout, layout));
    }
}

/* The key of a kernel on a spec; with `kernel` NULL, the key of the work. `how`: of the threads. */
static void add_key(const kolo_tuner *t, const kolo_kernel *kernel, const kolo_kernel_spec *spec,
                    const char *how, kolo_text *key) {
    kolo_text_add(key, "%s, %d threads%s: %s", t->machine, spec->threads, how,
                  kernel ? kernel->name : spec->op->name);
    int last = KOLO_MAX_ATTRS;
    while (last > 0 && spec->attr[last - 1].i == 0) last--;
    for (int i = 0; i < last; i++) kolo_text_add(key, "%c%" PRId64, i ? ',' : ' ', spec->attr[i].i);
    add_tensors(key, spec->in, spec->n_in, kernel != NULL);
    kolo_text_add(key, " ->");
    add_tensors(key, spec->out, spec->n_out, kernel != NULL);
}

uint64_t kolo_tuner_kernels(void) {
    uint64_t hash = 0;
    const kolo_kernel *kernel;
    for (size_t i = 0; (kernel = kolo_kernel_at(i)); i++) {
        if (kernel->op->tuned) hash += kolo_hash_text(kernel->name); /* independent of the order */
    }
    return hash;
}

/* ---- measuring ---- */

/* A call with its own buffers: inputs in f32, bf16 and f64 hold values in [-1, 1), whose sums
 * round, the rest zeros. */
typedef struct trial {
    const kolo_kernel *kernel;
    kolo_call call;
    size_t scratch_bytes;
} trial;

static void close_trial(trial *r) {
    const kolo_kernel_spec *spec = r->call.spec;
    if (r->kernel->unbind && r->call.bound) r->kernel->unbind(r->call.bound);
    if (r->kernel->release && r->call.state) r->kernel->release(r->call.state);
    for (int i = 0; i < spec->n_in; i++) {
        kolo_pages_unmap(r->call.in[i], kolo_tensor_bytes(&spec->in[i]));
    }
    for (int i = 0; i < spec->n_out; i++) {
        kolo_pages_unmap(r->call.out[i], kolo_tensor_bytes(&spec->out[i]));
    }
    kolo_pages_unmap(r->call.scratch, r->scratch_bytes);
}

/* Set 0, or other numbers. */
static void fill_tensor(const kolo_tensor *tensor, uint32_t set, void *data) {
    for (size_t i = 0; i < kolo_tensor_bytes(tensor) / kolo_dtype_bytes(tensor->dtype); i++) {
        uint32_t bits = (uint32_t)(i + 1) * 2654435761U;
        if (set > 0) bits = (bits ^ bits >> 15 ^ set) * 2246822519U;
        if (set > 0) bits = (bits ^ bits >> 13) * 3266489917U;
        const double number = (double)bits / 2147483648.0 - 1;
        switch (tensor->dtype) {
        case KOLO_DTYPE_F32:
            ((float *)data)[i] = (float)number;
            break;
        case KOLO_DTYPE_BF16:
            ((uint16_t *)data)[i] = kolo_bf16_narrow((float)number);
            break;
        case KOLO_DTYPE_F64:
            ((double *)data)[i] = number;
            break;
        default:
            return;
        }
    }
}

static void *map_tensor(const kolo_tensor *tensor, bool numbers) {
    void *data = kolo_pages_map(kolo_tensor_bytes(tensor));
    if (data && numbers) fill_tensor(tensor, 0, data);
    return data;
}

static bool open_trial(trial *r) {
    const kolo_kernel_spec *spec = r->call.spec;
    if (r->kernel->prepare &&
        r->kernel->prepare(spec, &r->call.state, &r->scratch_bytes) != KOLO_OK) {
        return false;
    }
    for (int i = 0; i < spec->n_in; i++) {
        if (!(r->call.in[i] = map_tensor(&spec->in[i], true))) return false;
    }
    for (int i = 0; i < spec->n_out; i++) {
        if (!(r->call.out[i] = map_tensor(&spec->out[i], false))) return false;
    }
    r->scratch_bytes += 64;
    r->call.scratch = kolo_pages_map(r->scratch_bytes);
    return r->call.scratch && (!r->kernel->bind || r->kernel->bind(&r->call) == KOLO_OK);
}

/* Seconds of the fastest run; negative when the kernel cannot run. `best`: the best time of the
 * same work so far, 0 for none. */
static double measure(const kolo_kernel *kernel, const kolo_kernel_spec *spec, double best) {
    trial r = {.kernel = kernel, .call = {.spec = spec}};
    int64_t least = -1, total = 0;
    if (open_trial(&r)) {
        for (int i = -1; i < RUNS && total < enough; i++) {
            int64_t start = kolo_now_ns();
            kernel->run(&r.call);
            int64_t ns = kolo_now_ns() - start;
            if (least < 0 || ns < least) least = ns;
            if (best > 0 && (double)ns > hopeless * 1e9 * best && i >= 0) break;
            if (i >= 0) total += ns;
        }
    }
    close_trial(&r);
    return (double)least * 1e-9;
}

/* Updates the best time of the work. */
static void note_work(kolo_tuner *t, const char *key, double seconds) {
    entry *e = find(t->works, key);
    if (!e || seconds < e->seconds) put(t, t->works, key, seconds);
}

double kolo_tuner_seconds(kolo_tuner *t, const kolo_kernel *kernel, const kolo_kernel_spec *spec,
                          double estimate) {
    if (!spec->op->tuned || kernel->device) return -1;
    kolo_text key = {0}, work = {0};
    add_key(t, kernel, spec, "", &key);
    add_key(t, NULL, spec, "", &work);
    double seconds = -1;
    if (key.failed || work.failed) goto done;
    entry *known = find(t->times, key.text), *best = find(t->works, work.text);
    if (!known && t->measures && (!best || estimate < hopeless * best->seconds)) {
        seconds = measure(kernel, spec, best ? best->seconds : 0);
        if (seconds > 0) known = put(t, t->times, key.text, seconds);
        if (known && t->observer) t->observer(t->arg, ++t->measured, kernel, spec, seconds);
    }
    if (known) {
        known->asked = true;
        seconds = known->seconds;
        note_work(t, work.text, seconds);
    }
done:
    kolo_text_fini(&key);
    kolo_text_fini(&work);
    return seconds;
}

/* Whether the tensors of this many runs at a time take a small part of the memory: a node that is
 * so large gains nothing in a lane. */
static bool are_small(const kolo_kernel_spec *spec, int runs) {
    const int64_t limit = kolo_memory_limit(), part = 16;
    int64_t bytes = 0;
    for (int i = 0; i < spec->n_in; i++) bytes += (int64_t)kolo_tensor_bytes(&spec->in[i]);
    for (int i = 0; i < spec->n_out; i++) bytes += (int64_t)kolo_tensor_bytes(&spec->out[i]);
    return limit <= 0 || bytes <= limit / part / runs;
}

/* ---- nodes of all ops ---- */

double kolo_tuner_time(kolo_tuner *t, const kolo_kernel *kernel, const kolo_kernel_spec *spec) {
    if (spec->op->tuned || kernel->device) return kolo_tuner_seconds(t, kernel, spec, 0);
    kolo_text key = {0};
    add_key(t, kernel, spec, "", &key);
    entry *known = key.failed ? NULL : find(t->times, key.text);
    if (!known && t->measures && !key.failed && are_small(spec, 1)) {
        const double seconds = measure(kernel, spec, 0);
        if (seconds > 0) known = put(t, t->times, key.text, seconds);
        if (known && t->observer) t->observer(t->arg, ++t->measured, kernel, spec, seconds);
    }
    kolo_text_fini(&key);
    if (!known) return -1;
    known->asked = true;
    return known->seconds;
}

/* ---- lanes ---- */

static void run_copies(const void *job, int part, int64_t begin, int64_t end) {
    const trial *copies = job;
    for (int64_t i = begin; i < end; i++) copies[i].kernel->run(&copies[i].call);
}

static bool same_results(const trial *a, const trial *b) {
    const kolo_kernel_spec *spec = a->call.spec;
    for (int i = 0; i < spec->n_out; i++) {
        if (memcmp(a->call.out[i], b->call.out[i], kolo_tensor_bytes(&spec->out[i])) != 0) {
            return false;
        }
    }
    return true;
}

/* Results other than 0, up to `most`. */
static size_t count_numbers(const trial *t, size_t most) {
    const kolo_kernel_spec *spec = t->call.spec;
    size_t n = 0;
    for (int i = 0; i < spec->n_out; i++) {
        const size_t each = kolo_dtype_bytes(spec->out[i].dtype);
        const char *out = t->call.out[i];
        for (size_t at = 0; at < kolo_tensor_bytes(&spec->out[i]) && n < most; at += each) {
            n += memcmp(out + at, &(double){0}, each) != 0;
        }
    }
    return n;
}

/* Whether the results, which are the same for one set of inputs, are so for any: sums in another
 * order often round alike, so many of them are compared, from several sets where a run has few. */
static bool have_same_bits(trial *a, trial *b) {
    enum { NUMBERS = 256, SETS = 64 };
    const kolo_kernel_spec *spec = a->call.spec;
    const int64_t start = kolo_now_ns();
    size_t numbers = count_numbers(a, NUMBERS);
    for (uint32_t set = 1; set <= SETS && numbers < NUMBERS; set++) {
        if (kolo_now_ns() - start > MOST_NS) return false; /* it is not known */
        for (int i = 0; i < spec->n_in; i++) {
            fill_tensor(&spec->in[i], set, a->call.in[i]);
            fill_tensor(&spec->in[i], set, b->call.in[i]);
        }
        a->kernel->run(&a->call);
        b->kernel->run(&b->call);
        if (!same_results(a, b)) return false;
        numbers += count_numbers(a, NUMBERS);
    }
    return true;
}

/* The fastest of some runs of the kernel on all threads, and of its copies on one thread each; in
 * turns, so that both see the same disturbances. False: the results differ. */
static bool race(trial *whole, trial *copies, int lanes, double *together, double *apart) {
    const int threads = whole->call.spec->threads;
    int64_t best[2] = {-1, -1}, total = 0;
    for (int i = -1; i < RUNS && total < 2 * enough; i++) {
        const int64_t start = kolo_now_ns();
        whole->kernel->run(&whole->call);
        const int64_t middle = kolo_now_ns();
        kolo_kernel_parallel(threads, lanes, run_copies, copies);
        const int64_t end = kolo_now_ns();
        if (i < 0 && !same_results(whole, &copies[0])) return false;
        if (best[0] < 0 || middle - start < best[0]) best[0] = middle - start;
        if (best[1] < 0 || end - middle < best[1]) best[1] = end - middle;
        if (i >= 0) total += end - start;
    }
    *together = (double)best[0] * 1e-9;
    *apart = (double)best[1] * 1e-9;
    return have_same_bits(whole, &copies[0]);
}

/* Measures both. False: one thread cannot run it with the same bits, or there is no memory. */
static bool measure_lanes(const kolo_kernel *kernel, const kolo_kernel_spec *spec, int lanes,
                          double *together, double *apart) {
    kolo_kernel_spec alone = *spec;
    alone.threads = 1;
    if (kernel->fit(&alone) < 0 || !are_small(spec, lanes + 1)) return false;
    trial whole = {.kernel = kernel, .call = {.spec = spec}};
    trial *copies = kolo_zalloc((size_t)lanes * sizeof *copies);
    bool open = copies && open_trial(&whole);
    for (int i = 0; copies && i < lanes; i++) {
        copies[i] = (trial){.kernel = kernel, .call = {.spec = &alone}};
        open = open && open_trial(&copies[i]);
    }
    const bool same = open && race(&whole, copies, lanes, together, apart);
    for (int i = 0; copies && i < lanes; i++) close_trial(&copies[i]);
    close_trial(&whole);
    kolo_free(copies);
    return same;
}

bool kolo_tuner_lanes(kolo_tuner *t, const kolo_kernel *kernel, const kolo_kernel_spec *spec,
                      int lanes, double *together, double *apart) {
    kolo_text key = {0}, lane_key = {0};
    char how[32];
    snprintf(how, sizeof how, ", in %d lanes", lanes);
    add_key(t, kernel, spec, ", all together", &key);
    add_key(t, kernel, spec, how, &lane_key);
    const bool failed = key.failed || lane_key.failed;
    entry *known = failed ? NULL : find(t->times, key.text);
    entry *in_lanes = known ? find(t->times, lane_key.text) : NULL;
    double times[2] = {1, 0}; /* without an entry of lanes, the other states that there is none */
    if (!known && t->measures && !failed) {
        const bool same = measure_lanes(kernel, spec, lanes, &times[0], &times[1]);
        known = put(t, t->times, key.text, times[0]);
        if (known && same) in_lanes = put(t, t->times, lane_key.text, times[1]);
        if (known && t->observer) t->observer(t->arg, ++t->measured, kernel, spec, times[0]);
    }
    if (known) known->asked = true;
    if (in_lanes) in_lanes->asked = true;
    kolo_text_fini(&key);
    kolo_text_fini(&lane_key);
    if (!in_lanes) return false;
    *together = known->seconds;
    *apart = in_lanes->seconds;
    return true;
}

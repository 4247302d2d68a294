/* kolo profile: the time of a training step by phase, op and kernel. */
#include "kolo/profile.h"

#include "base/json.h"
#include "cli/commands/commands.h"
#include "cli/launcher/error_report.h"
#include "cli/launcher/run_on_ranks.h"
#include "cli/options/train_opts.h"
#include "cli/output/output.h"
#include "cli/output/step_model.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const double mib = 1 << 20;

/* Sums over rows of one op and kernel. */
typedef struct kind {
    const kolo_profile_row *first;
    int count;
    double ms, alone_ms, bound_ms, flops, bytes;
} kind;

static double share(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

/* The fraction of the machine's peak compute or memory rate, whichever is larger, in percent. */
static double of_peak(const kolo_profile *p, double flops, double bytes, double ms) {
    double compute = flops / p->peak_flops, memory = bytes / p->peak_bytes;
    return share(1e3 * (compute > memory ? compute : memory), ms);
}

/* ---- tables ---- */

static void add_head(kolo_text *t, const kolo_profile *p, const char *model) {
    kolo_text_add(t, "model             %s, %" PRId64 " parameters, batch ", model, p->parameters);
    if (p->accumulate > 1) kolo_text_add(t, "%" PRId64 " x ", p->accumulate);
    kolo_text_add(t, "%" PRId64 "\n", p->batch);
    kolo_text_add(t, "workers           %d, threads %d each\n", p->workers, p->threads);
    kolo_text_add(t,
                  "machine           %s, %.1f GFLOP/s, %.1f GB/s over %.1f MiB, as measured with "
                  "these threads\n",
                  p->isa, p->peak_flops / 1e9, p->peak_bytes / 1e9, (double)p->swept_bytes / mib);
    kolo_text_add(t, "step, median      %.3f ms of %" PRId64 "\n", p->step_ms, p->steps);
    kolo_text_add(t, "step, fastest     %.3f ms\n", p->fastest_ms);
    kolo_text_add(t, "bound             %.3f ms, %.1f %% of the median, %.1f %% of the fastest\n\n",
                  p->bound_ms, share(p->bound_ms, p->step_ms), share(p->bound_ms, p->fastest_ms));
}

static void add_phases(kolo_text *t, const kolo_profile *p) {
    kolo_text_add(t, "%-12s %10s %7s\n", "phase", "ms", "share");
    for (int i = 0; i < KOLO_PHASES; i++) {
        /* The input is what no kernel takes: with the loop over the kernels and their starts. */
        const char *name = i == KOLO_PHASE_INPUT ? "input, rest" : kolo_phase_name((kolo_phase)i);
        kolo_text_add(t, "%-12s %10.3f %6.1f%%\n", name, p->phase_ms[i],
                      share(p->phase_ms[i], p->step_ms));
    }
}

static int by_time(const void *a, const void *b) {
    double x = ((const kind *)a)->ms, y = ((const kind *)b)->ms;
    return x > y ? -1 : x < y;
}

/* Groups the rows by op and kernel, the slowest first. `kinds` has room for one per row. Returns
 * the number of groups. */
static int group(const kolo_profile *p, kind *kinds) {
    int n = 0;
    for (int i = 0; i < p->n_rows; i++) {
        const kolo_profile_row *row = &p->rows[i];
        int k = 0;
        while (k < n && (strcmp(kinds[k].first->op, row->op) != 0 ||
                         strcmp(kinds[k].first->kernel, row->kernel) != 0 ||
                         strcmp(kinds[k].first->library, row->library) != 0)) {
            k++;
        }
        if (k == n) kinds[n++] = (kind){.first = row};
        kinds[k].count++;
        kinds[k].ms += row->ms;
        kinds[k].alone_ms += row->alone_ms;
        kinds[k].bound_ms += row->bound_ms;
        kinds[k].flops += row->flops;
        kinds[k].bytes += row->bytes;
    }
    qsort(kinds, (size_t)n, sizeof *kinds, by_time);
    return n;
}

static void add_numbers(kolo_text *t, const kolo_profile *p, const kind *k) {
    kolo_text_add(t, " %9.3f %6.1f%% %9.3f %9.3f %8.1f %7.1f %6.1f%%", k->ms,
                  share(k->ms, p->step_ms), k->alone_ms, k->bound_ms, k->flops / 1e6 / k->ms,
                  k->bytes / 1e6 / k->ms, of_peak(p, k->flops, k->bytes, k->ms));
}

static const char numbers[] = "        ms   share     alone     bound  GFLOP/s    GB/s of peak";

static void add_kinds(kolo_text *t, const kolo_profile *p, const kind *kinds, int n) {
    kolo_text_add(t, "\n%-20s %4s %s  kernel\n", "op", "n", numbers);
    for (int i = 0; i < n; i++) {
        kolo_text_add(t, "%-20s %4d", kinds[i].first->op, kinds[i].count);
        add_numbers(t, p, &kinds[i]);
        kolo_text_add(t, "  %s %s\n", kinds[i].first->kernel, kinds[i].first->library);
    }
}

/* The slowest `rows` kernels; 0: all in execution order. */
static void add_rows(kolo_text *t, const kolo_profile *p, kind *kinds, int64_t rows) {
    for (int i = 0; i < p->n_rows; i++) {
        const kolo_profile_row *r = &p->rows[i];
        kinds[i] = (kind){r, 1, r->ms, r->alone_ms, r->bound_ms, r->flops, r->bytes};
    }
    if (rows > 0) qsort(kinds, (size_t)p->n_rows, sizeof *kinds, by_time);
    int n = rows > 0 && rows < p->n_rows ? (int)rows : p->n_rows;
    kolo_text_add(t, "\n%-20s %4s %s  parameter, shape, library\n", "op", "step", numbers);
    for (int i = 0; i < n; i++) {
        const kolo_profile_row *r = kinds[i].first;
        kolo_text_add(t, "%-20s %4d", r->op, (int)(r - p->rows));
        add_numbers(t, p, &kinds[i]);
        kolo_text_add(t, "  %s %s %s\n", *r->parameter ? r->parameter : "-", r->shape, r->library);
    }
    if (n < p->n_rows) kolo_text_add(t, "and %d more: --rows 0 shows all\n", p->n_rows - n);
}

static void add_memory(kolo_text *t, const kolo_profile *p) {
    const struct {
        const char *name;
        int64_t bytes;
    } kinds[] = {
        {"values of a step", p->arena_bytes},     {"scratch", p->scratch_bytes},
        {"gradients", p->gradient_bytes},         {"parameters, state", p->store_bytes},
        {"resident, at most", p->peak_rss_bytes},
    };
    kolo_text_add(t, "\n%-18s %9s\n", "memory", "MiB");
    for (size_t i = 0; i < KOLO_COUNT(kinds); i++) {
        kolo_text_add(t, "%-18s %9.1f\n", kinds[i].name, (double)kinds[i].bytes / mib);
    }
}

/* A reference loop can be a thousand times slower: always warn. */
static void add_warnings(kolo_text *t, const kolo_profile *p) {
    for (int i = 0; i < p->n_rows; i++) {
        const kolo_profile_row *r = &p->rows[i];
        if (!r->slow) continue;
        kolo_text_add(t, "warning: step %d, %s %s %s, runs a reference loop (%s)\n", i, r->op,
                      r->parameter, r->shape, *r->library ? r->library : r->kernel);
    }
}

/* ---- JSON ---- */

static void add_row_json(kolo_json *j, const kolo_profile_row *r) {
    kolo_json_object(j, NULL);
    kolo_json_string(j, "phase", kolo_phase_name(r->phase));
    kolo_json_string(j, "op", r->op);
    kolo_json_string(j, "kernel", r->kernel);
    kolo_json_string(j, "library", r->library);
    kolo_json_string(j, "parameter", r->parameter);
    kolo_json_string(j, "shape", r->shape);
    kolo_json_double(j, "ms", r->ms);
    kolo_json_double(j, "alone_ms", r->alone_ms);
    kolo_json_double(j, "bound_ms", r->bound_ms);
    kolo_json_double(j, "flops", r->flops);
    kolo_json_double(j, "bytes", r->bytes);
    kolo_json_bool(j, "reference", r->slow);
    kolo_json_close(j);
}

static void add_json(kolo_text *t, const kolo_profile *p, const char *model) {
    kolo_json j = {.out = t, .indent = 2};
    kolo_json_object(&j, NULL);
    kolo_json_string(&j, "model", model);
    kolo_json_int(&j, "parameters", p->parameters);
    kolo_json_int(&j, "batch", p->batch);
    kolo_json_int(&j, "accumulate", p->accumulate);
    kolo_json_int(&j, "workers", p->workers);
    kolo_json_int(&j, "threads", p->threads);
    kolo_json_int(&j, "steps", p->steps);
    kolo_json_string(&j, "isa", p->isa);
    kolo_json_double(&j, "peak_flops", p->peak_flops);
    kolo_json_double(&j, "peak_bytes", p->peak_bytes);
    kolo_json_int(&j, "swept_bytes", p->swept_bytes);
    kolo_json_double(&j, "step_ms_median", p->step_ms);
    kolo_json_double(&j, "step_ms_min", p->fastest_ms);
    kolo_json_double(&j, "bound_ms", p->bound_ms);
    kolo_json_object(&j, "phase_ms");
    for (int i = 0; i < KOLO_PHASES; i++) {
        kolo_json_double(&j, kolo_phase_name((kolo_phase)i), p->phase_ms[i]);
    }
    kolo_json_close(&j);
    kolo_json_object(&j, "memory_bytes");
    kolo_json_int(&j, "arena", p->arena_bytes);
    kolo_json_int(&j, "scratch", p->scratch_bytes);
    kolo_json_int(&j, "gradients", p->gradient_bytes);
    kolo_json_int(&j, "store", p->store_bytes);
    kolo_json_int(&j, "peak_rss", p->peak_rss_bytes);
    kolo_json_close(&j);
    kolo_json_array(&j, "rows");
    for (int i = 0; i < p->n_rows; i++) add_row_json(&j, &p->rows[i]);
    kolo_json_close(&j);
    kolo_json_close(&j);
}

/* ---- the command ---- */

static kolo_status report(const kolo_profile *p, kolo_options *o) {
    const char *model = kolo_options_text(o, "model");
    kolo_text table = {0}, json = {0};
    size_t room = ((size_t)p->n_rows + 1) * sizeof(kind);
    kind *kinds = kolo_alloc(room);
    if (!kinds) return KOLO_NOMEM(room);
    add_head(&table, p, model);
    add_phases(&table, p);
    add_kinds(&table, p, kinds, group(p, kinds));
    add_rows(&table, p, kinds, kolo_options_int(o, "rows"));
    add_memory(&table, p);
    add_warnings(&table, p);
    add_json(&json, p, model);
    kolo_status status = output_result(&table, kolo_options_text(o, "json"), &json);
    kolo_free(kinds);
    kolo_text_fini(&table);
    kolo_text_fini(&json);
    return status;
}

static kolo_status predict(kolo_comm *comm, const kolo_train_opts *train, kolo_options *o) {
    kolo_step_model *prediction;
    KOLO_TRY(kolo_step_model_measure(comm, train, kolo_options_int(o, "steps"), &prediction));
    kolo_status status = KOLO_OK;
    if (kolo_comm_rank(comm) == 0) {
        status = step_model_report(prediction, kolo_options_text(o, "model"),
                                   kolo_options_text(o, "json"));
    }
    kolo_step_model_destroy(prediction);
    return status;
}

static kolo_status profile_as_rank(kolo_comm *comm, int threads, kolo_options *o) {
    kolo_train_opts train;
    kolo_profile *profile;
    KOLO_TRY(train_opts_make(o, threads, &train));
    if (kolo_options_flag(o, "predict")) return predict(comm, &train, o);
    kolo_profile_opts opts = {.steps = kolo_options_int(o, "steps")};
    KOLO_TRY(kolo_profile_train(comm, &train, &opts, &profile));
    kolo_status status = kolo_comm_rank(comm) == 0 ? report(profile, o) : KOLO_OK;
    kolo_profile_destroy(profile);
    return status;
}

static kolo_status check(const kolo_options *o) {
    static const char *const of_profiles[] = {"rows", "trace"};
    for (size_t i = 0; kolo_options_flag(o, "predict") && i < KOLO_COUNT(of_profiles); i++) {
        if (!kolo_options_typed(o, of_profiles[i])) continue;
        return KOLO_FAIL(KOLO_ERR_ARG, "--%s has no effect with --predict: remove one of them",
                         of_profiles[i]);
    }
    return KOLO_OK;
}

int cmd_profile(kolo_options *o) {
    kolo_status status = check(o);
    if (status != KOLO_OK) return report_failure(status);
    ranks_opts opts = ranks_opts_of(o, "workers");
    opts.threads = (int)kolo_options_int(o, "threads");
    return run_on_ranks(o, &opts, profile_as_rank);
}

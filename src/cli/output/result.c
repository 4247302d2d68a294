/* The result of a run, as a table and as JSON. */
#include "cli/output/result.h"

#include "base/integer.h"
#include "base/json.h"
#include "cli/output/metric.h"
#include "cli/output/output.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static void add_row(kolo_text *t, const char *name, const char *fmt, ...) KOLO_PRINTF(3, 4);
static void add_row(kolo_text *t, const char *name, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    kolo_text_add(t, "%-18s", name);
    kolo_text_addv(t, fmt, args);
    kolo_text_add(t, "\n");
    va_end(args);
}

/* The loss, its summands if the model has several, and the steps that it is averaged over. */
static void add_loss(kolo_text *t, const char *name, const kolo_metrics *values, int64_t steps) {
    const kolo_metric *m = kolo_metric_table();
    kolo_text_add(t, "%-18s%.4f", name, values->value[KOLO_METRIC_LOSS]);
    const char *sign = "=";
    for (int i = 0; m[i].name; i++) {
        if (!m[i].part_of_loss || isnan(values->value[i])) continue;
        kolo_text_add(t, " %s %.4f of %ss", sign, values->value[i], m[i].group);
        sign = "+";
    }
    if (steps > 1) kolo_text_add(t, ", mean of the last %" PRId64 " steps", steps);
    kolo_text_add(t, "\n");
}

/* "test", or the split that was evaluated instead. */
static const char *split_of(const result_about *about) {
    return about->split ? about->split : "test";
}

/* A row for each metric of a split: "test accuracy", or "of next sentences" for those of a group.
 */
static void add_evaluation(kolo_text *t, const char *split, const kolo_metrics *values) {
    const kolo_metric *m = kolo_metric_table();
    char name[64];
    snprintf(name, sizeof name, "%s loss", split);
    add_loss(t, name, values, 0);
    for (int i = 0; m[i].name; i++) {
        bool shown = i != KOLO_METRIC_LOSS && m[i].label && !m[i].part_of_loss;
        if (!shown || isnan(values->value[i])) continue;
        if (m[i].group) {
            snprintf(name, sizeof name, "of %ss", m[i].group);
            kolo_text_add(t, "%-18s%s ", name, m[i].label);
        } else {
            snprintf(name, sizeof name, "%s %s", split, m[i].label);
            kolo_text_add(t, "%-18s", name);
        }
        metric_add_value(t, &m[i], values->value[i]);
        kolo_text_add(t, "\n");
    }
}

static void describe_batch(const result_about *about, int64_t each, char *text, size_t bytes) {
    int64_t times = about->accumulate;
    if (about->shards > 0) {
        snprintf(text, bytes, "global batch %" PRId64 " in %" PRId64 " shards", about->global_batch,
                 about->shards);
    } else if (about->global_batch > 0) {
        snprintf(text, bytes, "global batch %" PRId64, about->global_batch);
    } else {
        char factor[32] = "", whose[48] = "each";
        if (times > 1) snprintf(factor, sizeof factor, "%" PRId64 " x ", times);
        if (about->together > 1) {
            snprintf(whose, sizeof whose, "for %d workers together", about->together);
        }
        snprintf(text, bytes, "batch %s%" PRId64 " %s", factor, each, whose);
    }
}

/* The mean idle time of the workers but the slowest one, which another may delay in some steps. */
static double idle_of_others(const kolo_time_report *times) {
    const double own = times->by_rank ? times->by_rank[times->slowest].ms[KOLO_TIME_IDLE] : 0;
    return (times->mean.ms[KOLO_TIME_IDLE] * times->ranks - own) / (times->ranks - 1);
}

/* "step, mean        1.310 ms: 0.020 input, 0.412 forward, ..." */
static void add_times(kolo_text *t, const kolo_time_report *times) {
    const double *ms = times->mean.ms, exposed = ms[KOLO_TIME_EXPOSED];
    const double communication = ms[KOLO_TIME_COMMUNICATION];
    if (times->steps == 0) return;
    kolo_text_add(t, "%-18s%.3f ms: %.3f input, %.3f forward, %.3f backward, ", "step, mean",
                  ms[KOLO_TIME_STEP], ms[KOLO_TIME_INPUT], ms[KOLO_TIME_FORWARD],
                  ms[KOLO_TIME_BACKWARD]);
    if (times->ranks > 1) kolo_text_add(t, "%.3f communication, ", exposed);
    kolo_text_add(t, "%.3f update, %.3f other\n", ms[KOLO_TIME_UPDATE], ms[KOLO_TIME_OTHER]);
    if (times->ranks == 1) return;
    double hidden = communication > exposed ? 1 - exposed / communication : 0;
    const double idle = idle_of_others(times);
    add_row(t, "communication", "%.3f ms in flight per step, %.0f %% behind computation",
            communication, 100 * hidden);
    add_row(t, "slowest worker", "rank %d: the others wait %.3f ms per step for it (%.0f %%)",
            times->slowest, idle, 100 * idle / ms[KOLO_TIME_STEP]);
}

/* The number of bins of a histogram of a run with servers up to the largest that is not empty. */
static int count_bins(const uint64_t *bins) {
    int n = (int)KOLO_COUNT(((kolo_train_result *)NULL)->reads);
    while (n > 0 && bins[n - 1] == 0) n--;
    return n;
}

static void add_histogram(kolo_text *t, const char *name, const uint64_t *bins) {
    kolo_text line = {0};
    const int n = count_bins(bins);
    for (int i = 0; i < n; i++) {
        kolo_text_add(&line, "%s%d: %" PRIu64, i > 0 ? "  " : "", i, bins[i]);
    }
    if (n > 0 && !line.failed) add_row(t, name, "%s", line.text);
    kolo_text_fini(&line);
}

/* Which worker has the most, where they have unequal parts, such as stages of a pipeline; those
 * that share parameters have nearly equal ones. */
static void add_unequal_memory(kolo_text *t, const kolo_train_result *r) {
    int64_t least = INT64_MAX, most = 0, sum = 0;
    int rank = 0;
    for (int i = 0; i < r->workers && r->memory_by_rank; i++) {
        const kolo_train_memory *m = &r->memory_by_rank[i];
        const int64_t bytes = m->store + m->exchanged + m->values;
        if (bytes > most) rank = i;
        most = kolo_max_i64(most, bytes);
        least = kolo_min_i64(least, bytes);
        sum += bytes;
    }
    if (least >= most || r->memory.shared > 0) return;
    const double mib = 1 << 20;
    add_row(t, "of all workers", "%.1f MiB, of rank %d, which has the most, %.1f",
            (double)sum / mib, rank, (double)most / mib);
}

void result_add_memory(kolo_text *t, const kolo_train_memory *m) {
    const double mib = 1 << 20;
    const int64_t all = m->store + m->shared + m->exchanged + m->values;
    add_row(t, "planned memory",
            "%.1f MiB: parameters and optimizer %.1f, exchanged %.1f, values of a step %.1f",
            (double)all / mib, (double)(m->store + m->shared) / mib, (double)m->exchanged / mib,
            (double)m->values / mib);
}

static void add_memory(kolo_text *t, const kolo_train_result *r) {
    const kolo_train_memory *m = &r->memory;
    const double mib = 1 << 20;
    if (m->store + m->shared + m->exchanged + m->values == 0) return;
    result_add_memory(t, m);
    add_unequal_memory(t, r);
    if (r->workers > 1 && m->shared > 0) {
        add_row(t, "shared by workers", "%.1f MiB of parameters", (double)m->shared / mib);
    } else if (r->workers > 1) {
        add_row(t, "shared by workers", "nothing: %s", r->unshared);
    }
}

/* The best evaluation of a run that keeps a record of it. */
static void add_best(kolo_text *t, const kolo_train_result *r) {
    const kolo_metric *m = kolo_metric_table();
    if (r->best_step > 0) {
        kolo_text_add(t, "%-18s", "best evaluation");
        while (m->name && strcmp(m->name, r->best_metric) != 0) m++;
        kolo_text_add(t, "%s ", r->best_metric);
        metric_add_value(t, m, r->best_value);
        kolo_text_add(t, " at step %" PRId64 "\n", r->best_step);
    }
    if (r->stopped_early) {
        add_row(t, "stopped early", "at step %" PRId64 ", as evaluations improved no more",
                r->steps);
    }
}

/* The rows of tables at servers. */
static void add_rows(kolo_text *t, const kolo_table_stats *s) {
    if (s->room == 0) return;
    add_row(t, "table rows",
            "%" PRIu64 ", room for %" PRIu64 "; %" PRIu64 " created, %" PRIu64
            " restored; removed %" PRIu64 " for others, %" PRIu64
            " unchanged; dropped gradients %" PRIu64 " of new ids, %" PRIu64 " without room",
            s->rows, s->room, s->created, s->restored, s->evicted, s->expired, s->early,
            s->refused);
}

static void add_table(kolo_text *t, const kolo_train_result *r, const result_about *about) {
    add_row(t, "model", "%s, %" PRId64 " parameters", r->model, r->parameters);
    if (about->data) add_row(t, "data", "%s", about->data);
    char batch[96];
    describe_batch(about, r->batch, batch, sizeof batch);
    add_row(t, "workers", "%d, threads %d each, %s", r->workers, r->threads, batch);
    if (r->servers > 0) add_row(t, "servers", "%d", r->servers);
    if (*r->lost) add_row(t, "lost", "%s", r->lost);
    add_rows(t, &r->table);
    if (about->trained) {
        add_row(t, "trained", "%" PRId64 " steps, %" PRId64 " epochs, %" PRId64 " samples",
                r->steps, r->epochs, r->samples);
        if (r->damaged > 0) {
            add_row(t, "damaged samples", "%" PRId64 ", whose places others took", r->damaged);
        }
        add_loss(t, "training loss", &r->final, kolo_min_i64(r->steps, KOLO_LAST_STEPS));
        if (r->losses_checked > 0) {
            add_row(t, "losses checked",
                    "first %" PRId64 " steps, bitwise equal to those of kolo train",
                    r->losses_checked);
        }
    }
    if (r->evaluated) add_evaluation(t, split_of(about), &r->test);
    add_best(t, r);
    if (about->trained) {
        add_row(t, "training time", "%.2f s", r->train_seconds);
        if (*r->consistency) add_row(t, "consistency", "%s", r->consistency);
        add_histogram(t, "reads, staleness", r->reads);
        add_histogram(t, "gradients, delay", r->delays);
        if (r->parts > 0) add_row(t, "parts of gradients sent early", "%" PRIu64, r->parts);
        if (r->sent_bytes > 0) {
            add_row(t, "between hosts", "%" PRIu64 " bytes sent, %" PRIu64 " received",
                    r->sent_bytes, r->received_bytes);
        }
        if (r->stage_moves > 0) {
            add_row(t, "stages moved", "%d times, they begin with %s", r->stage_moves, r->stages);
        }
        if (r->step_ms_median > 0) add_row(t, "step, median", "%.3f ms", r->step_ms_median);
        add_times(t, &r->times);
    }
    add_row(t, "samples/s", "%.0f", r->samples_per_second);
    add_row(t, "peak memory", "%.0f MiB", (double)r->peak_rss_bytes / (1 << 20));
    add_memory(t, r);
    if (r->preempted && !about->out) { /* it has joined a run, which saves */
        add_row(t, "preempted", "after step %" PRId64, r->steps);
    } else if (r->preempted) {
        add_row(t, "preempted", "after step %" PRId64 "; resume it with: kolo train --resume %s",
                r->steps, about->out);
    } else if (about->out) {
        add_row(t, "written to", "%s", about->out);
    }
}

static void add_metrics(kolo_json *j, const char *prefix, const kolo_metrics *values, bool final) {
    const kolo_metric *m = kolo_metric_table();
    for (int i = 0; m[i].name; i++) {
        char key[64];
        if ((final && !m[i].final) || (isnan(values->value[i]) && !m[i].every_model)) continue;
        snprintf(key, sizeof key, "%s%s", prefix, m[i].name);
        kolo_json_double(j, key, values->value[i]);
    }
}

static void add_json_times(kolo_json *j, const char *key, const kolo_step_time *time) {
    kolo_json_object(j, key);
    for (int i = 0; i < KOLO_TIMES; i++) {
        kolo_json_double(j, kolo_time_name((kolo_time)i), time->ms[i]);
    }
    kolo_json_close(j);
}

static void add_json_report(kolo_json *j, const kolo_time_report *times) {
    if (times->steps == 0) return;
    add_json_times(j, "ms_per_step", &times->mean);
    if (times->ranks == 1) return;
    kolo_json_int(j, "slowest_rank", times->slowest);
    kolo_json_array(j, "ms_per_step_by_rank");
    for (int r = 0; r < times->ranks && times->by_rank; r++) {
        add_json_times(j, NULL, &times->by_rank[r]);
    }
    kolo_json_close(j);
}

void result_add_json_memory(kolo_json *j, const kolo_train_memory *m) {
    kolo_json_int(j, "store_bytes", m->store);
    kolo_json_int(j, "shared_bytes", m->shared);
    kolo_json_int(j, "exchanged_bytes", m->exchanged);
    kolo_json_int(j, "value_bytes", m->values);
}

static void add_json_memories(kolo_json *j, const kolo_train_result *r) {
    result_add_json_memory(j, &r->memory);
    if (r->workers == 1 || !r->memory_by_rank) return;
    kolo_json_array(j, "memory_by_rank");
    for (int i = 0; i < r->workers; i++) {
        kolo_json_object(j, NULL);
        result_add_json_memory(j, &r->memory_by_rank[i]);
        kolo_json_close(j);
    }
    kolo_json_close(j);
}

static void add_json_histogram(kolo_json *j, const char *key, const uint64_t *bins) {
    const int n = count_bins(bins);
    if (n == 0) return;
    kolo_json_array(j, key);
    for (int i = 0; i < n; i++) kolo_json_int(j, NULL, (int64_t)bins[i]);
    kolo_json_close(j);
}

static void add_json_quantiles(kolo_json *j, const kolo_train_result *r) {
    if (r->step_ms_median <= 0) return;
    kolo_json_array(j, "step_ms_quantiles");
    for (int i = 0; i < KOLO_STEP_QUANTILES; i++)
        kolo_json_double(j, NULL, r->step_ms_quantiles[i]);
    kolo_json_close(j);
}

static void add_json_table(kolo_json *j, const kolo_train_result *r) {
    const kolo_table_stats *table = &r->table;
    if (table->room == 0) return;
    kolo_json_int(j, "table_rows", (int64_t)table->rows);
    kolo_json_int(j, "table_room", (int64_t)table->room);
    kolo_json_int(j, "table_created", (int64_t)table->created);
    kolo_json_int(j, "table_restored", (int64_t)table->restored);
    kolo_json_int(j, "table_evicted", (int64_t)table->evicted);
    kolo_json_int(j, "table_expired", (int64_t)table->expired);
    kolo_json_int(j, "table_early", (int64_t)table->early);
    kolo_json_int(j, "table_refused", (int64_t)table->refused);
    if (r->table_ahead > 0) kolo_json_int(j, "table_read_ahead", (int64_t)r->table_ahead);
}

/* What ran: model, data, workers, samples. */
static void add_json_run(kolo_json *j, const kolo_train_result *r, const result_about *about) {
    kolo_json_string(j, "model", r->model);
    kolo_json_string(j, "data", about->data);
    kolo_json_int(j, "workers", r->workers);
    kolo_json_int(j, "threads", r->threads);
    if (r->servers > 0) kolo_json_int(j, "servers", r->servers);
    if (*r->lost) kolo_json_string(j, "lost", r->lost);
    add_json_table(j, r);
    if (about->global_batch > 0) {
        kolo_json_int(j, "global_batch", about->global_batch);
    } else {
        kolo_json_int(j, "batch", r->batch);
    }
    if (about->shards > 0) kolo_json_int(j, "shards", about->shards);
    if (about->trained) kolo_json_int(j, "accumulate", about->accumulate);
    kolo_json_int(j, "parameters", r->parameters);
    kolo_json_int(j, "steps", r->steps);
    kolo_json_int(j, "epochs", r->epochs);
    kolo_json_int(j, "samples", r->samples);
    if (about->trained) kolo_json_int(j, "damaged_samples", r->damaged);
}

/* Losses and metrics. */
static void add_json_quality(kolo_json *j, const kolo_train_result *r, const result_about *about) {
    char prefix[16];
    if (r->best_step > 0) {
        kolo_json_string(j, "best_metric", r->best_metric);
        kolo_json_double(j, "best_value", r->best_value);
        kolo_json_int(j, "best_step", r->best_step);
    }
    if (r->stopped_early) kolo_json_bool(j, "stopped_early", true);
    if (r->preempted) kolo_json_bool(j, "preempted", true);
    if (about->trained) {
        kolo_json_double(j, "first_loss", r->first_loss);
        add_metrics(j, "final_", &r->final, true);
        if (r->losses_checked > 0) kolo_json_int(j, "losses_checked", r->losses_checked);
    }
    snprintf(prefix, sizeof prefix, "%s_", split_of(about));
    add_metrics(j, prefix, &r->test, false);
}

/* Times, bytes and memory. */
static void add_json_costs(kolo_json *j, const kolo_train_result *r, const result_about *about) {
    if (about->trained) {
        kolo_json_double(j, "train_seconds", r->train_seconds);
        kolo_json_double(j, "step_ms_median", r->step_ms_median > 0 ? r->step_ms_median : NAN);
        add_json_quantiles(j, r);
    }
    add_json_report(j, &r->times);
    if (*r->consistency) kolo_json_string(j, "consistency", r->consistency);
    add_json_histogram(j, "reads_by_staleness", r->reads);
    add_json_histogram(j, "gradients_by_delay", r->delays);
    if (r->stage_moves > 0) {
        kolo_json_int(j, "stage_moves", r->stage_moves);
        kolo_json_string(j, "stages", r->stages);
    }
    if (r->parts > 0) kolo_json_int(j, "parts_pushed_early", (int64_t)r->parts);
    if (r->sent_bytes > 0) {
        kolo_json_int(j, "bytes_sent", (int64_t)r->sent_bytes);
        kolo_json_int(j, "bytes_received", (int64_t)r->received_bytes);
    }
    kolo_json_double(j, "samples_per_second", r->samples_per_second);
    kolo_json_int(j, "peak_rss_bytes", r->peak_rss_bytes);
    if (about->trained) add_json_memories(j, r);
}

static void add_json(kolo_text *t, const kolo_train_result *r, const result_about *about) {
    kolo_json j = {.out = t, .indent = 2};
    char hash[24];
    snprintf(hash, sizeof hash, "%016" PRIx64, r->parameter_hash);
    kolo_json_object(&j, NULL);
    add_json_run(&j, r, about);
    add_json_quality(&j, r, about);
    add_json_costs(&j, r, about);
    kolo_json_string(&j, "parameter_hash", hash);
    kolo_json_close(&j);
}

kolo_status result_report(const kolo_train_result *result, const result_about *about,
                          const char *json) {
    kolo_text table = {0}, text = {0};
    add_table(&table, result, about);
    add_json(&text, result, about);
    kolo_status status = output_result(about->quiet ? NULL : &table, json, &text);
    kolo_text_fini(&table);
    kolo_text_fini(&text);
    return status;
}

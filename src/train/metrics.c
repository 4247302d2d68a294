/* Tallies, step times, the files of a run. metrics.jsonl is written in place, line by line, so that
 * a run can be watched; the other files appear whole. */
#include "train/metrics.h"

#include "base/file.h"
#include "base/integer.h"
#include "base/json.h"
#include "data/safetensors/safetensors.h"
#include "train/checkpoint/folder.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- tallies ---- */

void kolo_tally_add(kolo_tally *tally, const kolo_sums *step, int64_t ns) {
    kolo_sums_add(&tally->sums, step);
    tally->ns += ns;
}

static double per_label(double sum, const kolo_tally *tally) {
    return tally->sums.labels > 0 ? sum / (double)tally->sums.labels : 0;
}

double kolo_tally_loss(const kolo_tally *tally) { return per_label(tally->sums.loss, tally); }

double kolo_tally_accuracy(const kolo_tally *tally) {
    return per_label(tally->sums.correct, tally);
}

double kolo_tally_next_loss(const kolo_tally *tally) {
    return per_label(tally->sums.next_loss, tally);
}

double kolo_tally_next_accuracy(const kolo_tally *tally) {
    return per_label(tally->sums.next_correct, tally);
}

double kolo_tally_perplexity(const kolo_tally *tally) {
    return exp(kolo_tally_loss(tally) - kolo_tally_next_loss(tally));
}

double kolo_tally_rate(const kolo_tally *tally) {
    return tally->ns > 0 ? (double)tally->sums.samples * 1e9 / (double)tally->ns : 0;
}

/* ---- step times ---- */

enum { MAX_TIMES = 1 << 16 };

kolo_status kolo_step_times_init(kolo_step_times *times, int64_t steps) {
    size_t capacity = (size_t)kolo_max_i64(2, kolo_min_i64(steps, MAX_TIMES));
    *times = (kolo_step_times){.capacity = capacity, .stride = 1};
    times->ns = kolo_alloc(capacity * sizeof *times->ns);
    return times->ns ? KOLO_OK : KOLO_NOMEM(capacity * sizeof *times->ns);
}

void kolo_step_times_add(kolo_step_times *times, int64_t ns) {
    if (times->seen++ % times->stride != 0) return;
    if (times->count == times->capacity) {
        times->count = (times->count + 1) / 2;
        for (size_t i = 0; i < times->count; i++) times->ns[i] = times->ns[2 * i];
        times->stride *= 2;
        if ((times->seen - 1) % times->stride != 0) return;
    }
    times->ns[times->count++] = ns;
}

static int compare(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

double kolo_step_times_median_ms(kolo_step_times *times) {
    size_t n = times->count;
    if (n == 0) return 0;
    qsort(times->ns, n, sizeof *times->ns, compare);
    int64_t low = times->ns[(n - 1) / 2], high = times->ns[n / 2];
    return ((double)low + (double)high) / 2e6;
}

void kolo_step_times_fini(kolo_step_times *times) {
    kolo_free(times->ns);
    *times = (kolo_step_times){0};
}

/* ---- files ---- */

static const size_t metrics_most = (size_t)1 << 32; /* bytes */

struct kolo_run_files {
    char *folder, *config, *metrics, *checkpoint;
    FILE *lines;
};

/* The checkpoint is written last; a folder that will not take it is found out first. */
static kolo_status try_checkpoint(const char *path) {
    kolo_safetensors_writer *writer;
    KOLO_TRY(kolo_safetensors_create(path, &writer));
    kolo_safetensors_destroy(writer);
    return KOLO_OK;
}

/* One job writes a folder: metrics.jsonl is locked for as long as it is open. */
static kolo_status open_files(kolo_run_files *f, const char *folder) {
    f->folder = kolo_strdup(folder);
    f->config = kolo_format("%s/config.yaml", folder);
    f->metrics = kolo_format("%s/metrics.jsonl", folder);
    f->checkpoint = kolo_format("%s/checkpoint-final.safetensors", folder);
    if (!f->folder || !f->config || !f->metrics || !f->checkpoint)
        return KOLO_NOMEM(strlen(folder));
    KOLO_TRY(kolo_folder_make(folder));
    KOLO_TRY(kolo_file_open_alone(f->metrics, &f->lines));
    return try_checkpoint(f->checkpoint);
}

/* Bytes of the whole lines of reports up to `step`; they stand in the order of steps. */
static size_t bytes_until(const char *text, int64_t step) {
    static const char key[] = "\"step\": ";
    const char *line = text, *end;
    while ((end = strchr(line, '\n'))) {
        const char *at = strstr(line, key);
        if (!at || at > end || strtoll(at + sizeof key - 1, NULL, 10) > step) break;
        line = end + 1;
    }
    return (size_t)(line - text);
}

/* What an earlier run left behind `step` goes first, so a folder never mixes two runs. */
kolo_status kolo_run_files_begin(kolo_run_files *f, const char *config, int64_t step) {
    char *text;
    size_t bytes;
    KOLO_TRY(kolo_saves_begin(f->folder, step));
    KOLO_TRY(kolo_file_read(f->metrics, metrics_most, &text, &bytes));
    bytes = bytes_until(text, step);
    kolo_free(text);
    KOLO_TRY(kolo_file_cut(f->lines, f->metrics, bytes));
    KOLO_TRY(kolo_file_remove(f->checkpoint));
    return config ? kolo_file_write(f->config, config, strlen(config)) : KOLO_OK;
}

kolo_status kolo_run_files_try(const char *folder) {
    kolo_run_files *f = kolo_zalloc(sizeof *f);
    if (!f) return KOLO_NOMEM(sizeof *f);
    kolo_status status = open_files(f, folder);
    kolo_run_files_close(f);
    return status;
}

kolo_status kolo_run_files_open(const char *folder, int64_t step, kolo_run_files **files) {
    kolo_run_files *f = kolo_zalloc(sizeof *f);
    if (!f) return KOLO_NOMEM(sizeof *f);
    kolo_status status = open_files(f, folder);
    if (status == KOLO_OK && step == 0) status = kolo_saves_refuse(folder);
    if (status != KOLO_OK) {
        kolo_run_files_close(f);
        return status;
    }
    *files = f;
    return KOLO_OK;
}

static void print_report(const kolo_train_progress *p, kolo_text *line) {
    kolo_json j = {.out = line};
    kolo_json_object(&j, NULL);
    kolo_json_string(&j, "event", p->epoch_end ? "epoch" : "train");
    kolo_json_int(&j, "step", p->step);
    kolo_json_int(&j, "epoch", p->epoch);
    kolo_json_double(&j, "loss", p->loss);
    kolo_json_double(&j, "accuracy", p->accuracy);
    if (p->perplexity > 0) kolo_json_double(&j, "perplexity", p->perplexity);
    if (p->pairs) {
        kolo_json_double(&j, "masked_loss", p->loss - p->next_loss);
        kolo_json_double(&j, "next_loss", p->next_loss);
        kolo_json_double(&j, "next_accuracy", p->next_accuracy);
    }
    kolo_json_double(&j, "lr", p->lr);
    kolo_json_double(&j, "samples_per_second", p->samples_per_second);
    kolo_json_double(&j, "seconds", p->seconds);
    if (p->evaluated) {
        kolo_json_double(&j, "test_loss", p->test_loss);
        if (p->test_perplexity > 0) kolo_json_double(&j, "test_perplexity", p->test_perplexity);
        kolo_json_double(&j, "test_accuracy", p->test_accuracy);
        if (p->test_mean_iou >= 0) kolo_json_double(&j, "test_mean_iou", p->test_mean_iou);
        if (p->pairs) {
            kolo_json_double(&j, "test_masked_loss", p->test_loss - p->test_next_loss);
            kolo_json_double(&j, "test_next_loss", p->test_next_loss);
            kolo_json_double(&j, "test_next_accuracy", p->test_next_accuracy);
        }
    }
    kolo_json_close(&j);
    kolo_text_add(line, "\n");
}

kolo_status kolo_run_files_report(kolo_run_files *files, const kolo_train_progress *progress) {
    kolo_text line = {0};
    print_report(progress, &line);
    kolo_status status = KOLO_OK;
    if (line.failed) {
        status = KOLO_NOMEM(line.capacity);
    } else if (fwrite(line.text, 1, line.length, files->lines) != line.length ||
               fflush(files->lines) != 0) {
        status = kolo_file_fail("write", files->metrics, errno);
    }
    kolo_text_fini(&line);
    return status;
}

const char *kolo_run_files_checkpoint(const kolo_run_files *files) { return files->checkpoint; }

void kolo_run_files_close(kolo_run_files *files) {
    if (!files) return;
    if (files->lines) fclose(files->lines);
    kolo_free(files->folder);
    kolo_free(files->config);
    kolo_free(files->metrics);
    kolo_free(files->checkpoint);
    kolo_free(files);
}

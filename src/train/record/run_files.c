/* The files of a run. metrics.jsonl is appended to line by line, so that a run can be watched; the
 * other files are replaced atomically. */
#include "train/record/run_files.h"

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/safetensors/safetensors.h"
#include "train/checkpoint/folder.h"
#include "train/record/loss_curve.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t metrics_most = (size_t)1 << 32; /* bytes */

struct kolo_run_files {
    char *folder, *config, *metrics, *curve, *checkpoint, *best;
    FILE *lines;
};

/* The checkpoint is written at the end; detects early that this would fail. */
static kolo_status try_checkpoint(const char *path) {
    kolo_safetensors_writer *writer;
    KOLO_TRY(kolo_safetensors_create(path, &writer));
    kolo_safetensors_destroy(writer);
    return KOLO_OK;
}

/* A file that the user has written stays: one that does not begin as those of runs do. */
static kolo_status check_own(const char *path, const char *begin, size_t length, const char *what) {
    kolo_file_view view;
    if (!kolo_file_exists(path)) return KOLO_OK;
    KOLO_TRY(kolo_file_map(path, &view));
    const size_t most = view.bytes < length ? view.bytes : length;
    const bool own = most == 0 || memcmp(view.data, begin, most) == 0;
    kolo_file_unmap(&view);
    if (own) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "%s is not of a run, and the %s of this run would replace it: choose another "
                     "folder with --out",
                     path, what);
}

/* The first line of `config` is a comment if it is not the user's; NULL: none is going to be
 * written. */
static kolo_status check_files(const kolo_run_files *f, const char *config) {
    static const char line[] = "{\"event\": \"", curve[] = "<svg xmlns=";
    KOLO_TRY(check_own(f->metrics, line, sizeof line - 1, "metrics"));
    KOLO_TRY(check_own(f->curve, curve, sizeof curve - 1, "losses"));
    if (!config || *config != '#') return KOLO_OK;
    return check_own(f->config, config, strcspn(config, "\n"), "options");
}

/* metrics.jsonl is locked while it is open: one job writes to a folder. */
static kolo_status open_files(kolo_run_files *f, const char *folder, const char *config) {
    f->folder = kolo_strdup(folder);
    f->config = kolo_format("%s/config.yaml", folder);
    f->metrics = kolo_format("%s/metrics.jsonl", folder);
    f->curve = kolo_format("%s/loss.svg", folder);
    f->checkpoint = kolo_format("%s/" KOLO_CHECKPOINT_FINAL, folder);
    f->best = kolo_format("%s/" KOLO_CHECKPOINT_BEST, folder);
    if (!f->folder || !f->config || !f->metrics || !f->curve || !f->checkpoint || !f->best) {
        return KOLO_NOMEM(strlen(folder));
    }
    KOLO_TRY(check_files(f, config));
    KOLO_TRY(kolo_folder_make(folder));
    KOLO_TRY(kolo_file_open_locked(f->metrics, &f->lines));
    return try_checkpoint(f->checkpoint);
}

/* A new run does not replace what an earlier one trained; `again`: but for its best weights. */
static kolo_status check_new(const kolo_run_files *f, bool again) {
    KOLO_TRY(kolo_checkpoint_folder_check_empty(f->folder));
    const char *found = again || kolo_file_exists(f->checkpoint) ? f->checkpoint : f->best;
    if (!kolo_file_exists(found)) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "%s is of %s run: choose another folder with --out, or remove %s; "
                     "--init with that file starts from its weights",
                     found, found == f->best ? "an earlier" : "a finished", f->folder);
}

/* Bytes of the complete lines up to `step`; lines are in the order of steps. */
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

/* Lines of an earlier run after the step go, as the run writes them again. Checkpoints stay until
 * newer ones are complete. */
kolo_status kolo_run_files_begin(kolo_run_files *f, const char *config, int64_t step) {
    char *text;
    size_t bytes;
    KOLO_TRY(kolo_checkpoint_folder_begin(f->folder, step));
    KOLO_TRY(kolo_file_read(f->metrics, metrics_most, &text, &bytes));
    bytes = bytes_until(text, step);
    kolo_free(text);
    KOLO_TRY(kolo_file_truncate(f->lines, f->metrics, bytes));
    return config ? kolo_file_write(f->config, config, strlen(config)) : KOLO_OK;
}

kolo_status kolo_run_files_try(const char *folder, const char *config, bool resumes) {
    kolo_run_files *f = kolo_zalloc(sizeof *f);
    if (!f) return KOLO_NOMEM(sizeof *f);
    kolo_status status = open_files(f, folder, config);
    if (status == KOLO_OK && !resumes) status = check_new(f, false);
    kolo_run_files_close(f);
    return status;
}

kolo_status kolo_run_files_open(const char *folder, const char *config, int64_t step, bool again,
                                kolo_run_files **files) {
    kolo_run_files *f = kolo_zalloc(sizeof *f);
    if (!f) return KOLO_NOMEM(sizeof *f);
    kolo_status status = open_files(f, folder, config);
    if (status == KOLO_OK && step == 0) status = check_new(f, again);
    if (status != KOLO_OK) {
        kolo_run_files_close(f);
        return status;
    }
    *files = f;
    return KOLO_OK;
}

static void add_metrics(kolo_json *j, const char *prefix, const kolo_metrics *metrics) {
    const kolo_metric *m = kolo_metric_table();
    for (int i = 0; m[i].name; i++) {
        char key[64];
        if (isnan(metrics->value[i]) && !m[i].every_model) continue;
        snprintf(key, sizeof key, "%s%s", prefix, m[i].name);
        kolo_json_double(j, key, metrics->value[i]);
    }
}

static void add_times(kolo_json *j, const char *key, const kolo_step_time *time) {
    kolo_json_object(j, key);
    for (int i = 0; i < KOLO_TIMES; i++) {
        kolo_json_double(j, kolo_time_name((kolo_time)i), time->ms[i]);
    }
    kolo_json_close(j);
}

/* Where the steps spent their time: the mean over ranks; with several, the slowest one, how long
 * each idled, and at the end of an epoch all times of each. */
static void add_time_report(kolo_json *j, const kolo_time_report *times, bool epoch_end) {
    if (times->steps == 0) return;
    add_times(j, "ms_per_step", &times->mean);
    if (times->ranks == 1) return;
    kolo_json_int(j, "slowest_rank", times->slowest);
    kolo_json_array(j, epoch_end ? "ms_per_step_by_rank" : "idle_ms_by_rank");
    for (int r = 0; r < times->ranks; r++) {
        if (epoch_end) {
            add_times(j, NULL, &times->by_rank[r]);
        } else {
            kolo_json_double(j, NULL, times->by_rank[r].ms[KOLO_TIME_IDLE]);
        }
    }
    kolo_json_close(j);
}

static void print_report(const kolo_train_progress *p, kolo_text *line) {
    kolo_json j = {.out = line};
    kolo_json_object(&j, NULL);
    kolo_json_string(&j, "event", p->epoch_end ? "epoch" : "train");
    kolo_json_int(&j, "step", p->step);
    kolo_json_int(&j, "epoch", p->epoch);
    add_metrics(&j, p->epoch_end ? "epoch_" : "", &p->train);
    kolo_json_double(&j, "lr", p->lr);
    if (*p->consistency) kolo_json_string(&j, "consistency", p->consistency);
    kolo_json_double(&j, "samples_per_second", p->samples_per_second);
    kolo_json_double(&j, "seconds", p->seconds);
    if (p->damaged > 0) kolo_json_int(&j, "damaged_samples", p->damaged);
    if (p->evaluated) add_metrics(&j, "test_", &p->test);
    add_time_report(&j, &p->times, p->epoch_end);
    kolo_json_close(&j);
    kolo_text_add(line, "\n");
}

kolo_status kolo_run_files_report(kolo_run_files *files, const kolo_train_progress *progress) {
    kolo_text line = {0};
    print_report(progress, &line);
    kolo_status status =
        line.failed ? KOLO_NOMEM(line.capacity)
                    : kolo_file_extend(files->lines, files->metrics, line.text, line.length);
    kolo_text_fini(&line);
    return status;
}

kolo_status kolo_run_files_draw(const kolo_run_files *files) {
    return kolo_loss_curve_write(files->metrics, files->curve);
}

const char *kolo_run_files_checkpoint(const kolo_run_files *files) { return files->checkpoint; }

const char *kolo_run_files_best(const kolo_run_files *files) { return files->best; }

void kolo_run_files_close(kolo_run_files *files) {
    if (!files) return;
    if (files->lines) fclose(files->lines);
    kolo_free(files->folder);
    kolo_free(files->config);
    kolo_free(files->metrics);
    kolo_free(files->curve);
    kolo_free(files->checkpoint);
    kolo_free(files->best);
    kolo_free(files);
}

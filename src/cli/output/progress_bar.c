/* The progress bar and the plain lines of a run. Each update is one write. */
#include "cli/output/progress_bar.h"

#include "base/file.h"
#include "base/integer.h"
#include "base/text.h"
#include "cli/output/metric.h"
#include "cli/output/output.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { MIN_CELLS = 4, MAX_CELLS = 30, PLAIN_SECONDS = 10 };

progress_bar progress_bar_make(progress_style style) {
    if (style == PROGRESS_AUTO) style = output_moves_cursor() ? PROGRESS_BAR : PROGRESS_PLAIN;
    return (progress_bar){.style = style};
}

static void write_text(kolo_text *t) {
    if (!t->failed)
        (void)kolo_write_all(STDERR_FILENO, t->text,
                             t->length); /* informational: errors are ignored */
    kolo_text_fini(t);
}

/* 75 -> "1:15", 3675 -> "1:01:15". */
static void add_time(kolo_text *t, double seconds) {
    int64_t s = seconds > 0 ? (int64_t)(seconds + 0.5) : 0;
    if (s >= 3600) {
        kolo_text_add(t, "%" PRId64 ":%02d:%02d", s / 3600, (int)(s / 60 % 60), (int)(s % 60));
    } else {
        kolo_text_add(t, "%d:%02d", (int)(s / 60), (int)(s % 60));
    }
}

/* "epoch 2 [=====>    ]  52% loss 0.4123 acc 0.8471 20110 samples/s 0:12 left": the cells fill
 * the width of the terminal. */
static void draw_bar(progress_bar *state, const kolo_train_progress *p) {
    const kolo_metric *metrics = kolo_metric_table();
    double done = p->total_steps > 0 ? (double)p->step / (double)p->total_steps : 0;
    kolo_text figures = {0}, line = {0};
    kolo_text_add(&figures, "] %3.0f%% ", 100 * done);
    for (int i = 0; metrics[i].name; i++) {
        if (!metrics[i].bar || isnan(p->train.value[i])) continue;
        kolo_text_add(&figures, "%s ", metrics[i].bar);
        metric_add_value(&figures, &metrics[i], p->train.value[i]);
        kolo_text_add(&figures, " ");
    }
    kolo_text_add(&figures, "%.0f samples/s ", p->samples_per_second);
    add_time(&figures, p->seconds_left);
    kolo_text_add(&figures, " left");
    kolo_text_add(&line, "\r\033[K");
    size_t start = line.length;
    kolo_text_add(&line, "epoch %" PRId64 " [", p->epoch);
    /* One column less than the terminal, which might wrap. */
    int width = output_columns() - 1, used = (int)(line.length - start + figures.length);
    int cells = (int)kolo_max_i64(MIN_CELLS, kolo_min_i64(MAX_CELLS, width - used));
    int full = (int)(done * cells);
    for (int i = 0; i < cells; i++)
        kolo_text_add(&line, "%c", i < full ? '=' : i == full ? '>' : ' ');
    if (!figures.failed) kolo_text_add(&line, "%s", figures.text);
    kolo_text_fini(&figures);
    if (line.length > start + (size_t)width) line.length = start + (size_t)width;
    write_text(&line);
    state->bar_drawn = true;
}

/* "  test loss 0.4123  test accuracy 0.8471"; metrics of one group share its heading. */
static void add_metrics(kolo_text *t, const char *prefix, const kolo_metrics *values) {
    const kolo_metric *m = kolo_metric_table();
    const char *group = NULL;
    for (int i = 0; m[i].name; i++) {
        if (!m[i].label || isnan(values->value[i])) continue;
        if (!m[i].group) {
            kolo_text_add(t, "  %s", prefix);
        } else if (!group || strcmp(group, m[i].group) != 0) {
            kolo_text_add(t, "  %s%s: ", prefix, m[i].group);
        } else {
            kolo_text_add(t, " ");
        }
        kolo_text_add(t, "%s ", m[i].label);
        metric_add_value(t, &m[i], values->value[i]);
        group = m[i].group;
    }
}

static void print_line(const kolo_train_progress *p) {
    kolo_text t = {0};
    kolo_text_add(&t, "epoch %" PRId64 "  step %" PRId64 "/%" PRId64, p->epoch, p->step,
                  p->total_steps);
    add_metrics(&t, p->epoch_end ? "epoch " : "", &p->train);
    kolo_text_add(&t, "  %.0f samples/s  lr %.4g  %.1f s", p->samples_per_second, p->lr,
                  p->seconds);
    if (p->evaluated) add_metrics(&t, "test ", &p->test);
    kolo_text_add(&t, "\n");
    write_text(&t);
}

void progress_bar_end(progress_bar *state) {
    if (!state->bar_drawn) return;
    (void)kolo_write_all(STDERR_FILENO, "\r\033[K", 4);
    state->bar_drawn = false;
}

/* Reports arrive ten times a second; a plain line covers all since the previous line. */
static void add_report(progress_bar *state, const kolo_train_progress *p) {
    state->samples += p->samples;
    for (int i = 0; i < KOLO_MAX_METRICS && p->samples > 0; i++) {
        state->sums.value[i] += p->train.value[i] * (double)p->samples;
    }
    if (p->samples_per_second > 0) {
        state->step_seconds += (double)p->samples / p->samples_per_second;
    }
}

static void print_stretch(progress_bar *state, const kolo_train_progress *p) {
    kolo_train_progress line = *p;
    if (!p->epoch_end && state->samples > 0) {
        for (int i = 0; i < KOLO_MAX_METRICS; i++) {
            line.train.value[i] = state->sums.value[i] / (double)state->samples;
        }
        kolo_metrics_derive(&line.train);
        line.samples_per_second =
            state->step_seconds > 0 ? (double)state->samples / state->step_seconds : 0;
    }
    print_line(&line);
    state->last_line_seconds = p->seconds;
    state->samples = 0;
    state->sums = (kolo_metrics){0};
    state->step_seconds = 0;
}

void progress_bar_show(void *arg, const kolo_train_progress *p) {
    progress_bar *state = arg;
    if (state->style == PROGRESS_NONE) return;
    add_report(state, p);
    bool due = p->seconds - state->last_line_seconds >= PLAIN_SECONDS;
    if (p->epoch_end || p->evaluated || (due && state->style == PROGRESS_PLAIN)) {
        progress_bar_end(state);
        print_stretch(state, p);
    } else if (state->style == PROGRESS_BAR) {
        draw_bar(state, p);
    }
}

/* The progress bar and the plain lines of a run. Each is composed whole and written at once. */
#define _GNU_SOURCE
#include "cli/output/progress.h"

#include "base/file.h"
#include "base/integer.h"
#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { MIN_CELLS = 4, MAX_CELLS = 30, PLAIN_SECONDS = 10, WIDTH = 80 };

progress progress_make(progress_style style) {
    if (style == PROGRESS_AUTO) style = isatty(STDERR_FILENO) ? PROGRESS_BAR : PROGRESS_PLAIN;
    return (progress){.style = style};
}

static int terminal_width(void) {
    struct winsize size;
    bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return known ? size.ws_col : WIDTH;
}

static void write_text(kolo_text *t) {
    if (!t->failed) (void)kolo_write_all(STDERR_FILENO, t->text, t->length); /* only for the eye */
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

/* "epoch 2 [=====>    ]  52% loss 0.4123 acc 0.8471 20110 samples/s 0:12 left": the cells take the
 * room that the terminal leaves. */
static void draw_bar(progress *state, const kolo_train_progress *p) {
    double done = p->total_steps > 0 ? (double)p->step / (double)p->total_steps : 0;
    kolo_text figures = {0}, line = {0};
    kolo_text_add(&figures, "] %3.0f%% loss %.4f acc %.4f ", 100 * done, p->loss, p->accuracy);
    if (p->perplexity > 0) kolo_text_add(&figures, "ppl %.4g ", p->perplexity);
    kolo_text_add(&figures, "%.0f samples/s ", p->samples_per_second);
    add_time(&figures, p->seconds_left);
    kolo_text_add(&figures, " left");
    kolo_text_add(&line, "\r\033[K");
    size_t start = line.length;
    kolo_text_add(&line, "epoch %" PRId64 " [", p->epoch);
    /* One column less than the terminal has, or it might wrap. */
    int width = terminal_width() - 1, used = (int)(line.length - start + figures.length);
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

static void print_line(const kolo_train_progress *p) {
    kolo_text t = {0};
    kolo_text_add(&t, "epoch %" PRId64 "  step %" PRId64 "/%" PRId64 "  ", p->epoch, p->step,
                  p->total_steps);
    kolo_text_add(&t, "loss %.4f  accuracy %.4f  ", p->loss, p->accuracy);
    if (p->perplexity > 0) kolo_text_add(&t, "perplexity %.4g  ", p->perplexity);
    if (p->pairs) {
        kolo_text_add(&t, "next sentence: loss %.4f accuracy %.4f  ", p->next_loss,
                      p->next_accuracy);
    }
    kolo_text_add(&t, "%.0f samples/s  lr %.4g  %.1f s", p->samples_per_second, p->lr, p->seconds);
    if (p->evaluated) {
        kolo_text_add(&t, "  test loss %.4f  test accuracy %.4f", p->test_loss, p->test_accuracy);
        if (p->test_perplexity > 0) kolo_text_add(&t, "  test perplexity %.4g", p->test_perplexity);
        if (p->test_mean_iou >= 0) kolo_text_add(&t, "  test mean IoU %.4f", p->test_mean_iou);
        if (p->pairs) {
            kolo_text_add(&t, "  test next sentence: loss %.4f accuracy %.4f", p->test_next_loss,
                          p->test_next_accuracy);
        }
    }
    kolo_text_add(&t, "\n");
    write_text(&t);
}

void progress_end(progress *state) {
    if (!state->bar_drawn) return;
    (void)kolo_write_all(STDERR_FILENO, "\r\033[K", 4);
    state->bar_drawn = false;
}

/* Reports come ten times a second; a plain line is about all since the last one. */
static void add_report(progress *state, const kolo_train_progress *p) {
    state->samples += p->samples;
    state->loss += p->loss * (double)p->samples;
    state->correct += p->accuracy * (double)p->samples;
    state->next_loss += p->next_loss * (double)p->samples;
    state->next_correct += p->next_accuracy * (double)p->samples;
    if (p->samples_per_second > 0) {
        state->step_seconds += (double)p->samples / p->samples_per_second;
    }
}

static void print_stretch(progress *state, const kolo_train_progress *p) {
    kolo_train_progress line = *p;
    if (!p->epoch_end && state->samples > 0) {
        line.loss = state->loss / (double)state->samples;
        line.accuracy = state->correct / (double)state->samples;
        line.next_loss = state->next_loss / (double)state->samples;
        line.next_accuracy = state->next_correct / (double)state->samples;
        if (p->perplexity > 0) line.perplexity = exp(line.loss - line.next_loss);
        line.samples_per_second =
            state->step_seconds > 0 ? (double)state->samples / state->step_seconds : 0;
    }
    print_line(&line);
    state->last_line_seconds = p->seconds;
    state->samples = 0;
    state->loss = state->correct = state->step_seconds = 0;
    state->next_loss = state->next_correct = 0;
}

void progress_show(void *arg, const kolo_train_progress *p) {
    progress *state = arg;
    if (state->style == PROGRESS_NONE) return;
    add_report(state, p);
    bool due = p->seconds - state->last_line_seconds >= PLAIN_SECONDS;
    if (p->epoch_end || p->evaluated || (due && state->style == PROGRESS_PLAIN)) {
        progress_end(state);
        print_stretch(state, p);
    } else if (state->style == PROGRESS_BAR) {
        draw_bar(state, p);
    }
}

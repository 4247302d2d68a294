/* The progress bar and the plain lines of a run. Each is composed whole and written at once. */
#define _GNU_SOURCE
#include "cli/progress.h"

#include "base/file.h"

#include <inttypes.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { BAR_CELLS = 20, PLAIN_SECONDS = 10, WIDTH = 80 };

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

static void add_figures(kolo_text *t, const kolo_train_progress *p) {
    kolo_text_add(t, "loss %.4f  accuracy %.4f  %.0f samples/s", p->loss, p->accuracy,
                  p->samples_per_second);
}

static void draw_bar(progress *state, const kolo_train_progress *p) {
    double done = p->total_steps > 0 ? (double)p->step / (double)p->total_steps : 0;
    int cells = (int)(done * BAR_CELLS);
    kolo_text t = {0};
    kolo_text_add(&t, "epoch %" PRId64 "  [", p->epoch);
    for (int i = 0; i < BAR_CELLS; i++) {
        kolo_text_add(&t, "%c", i < cells ? '=' : i == cells ? '>' : ' ');
    }
    kolo_text_add(&t, "] %3.0f%%  ", 100 * done);
    add_figures(&t, p);
    kolo_text_add(&t, "  ");
    add_time(&t, p->seconds_left);
    kolo_text_add(&t, " left");
    if (t.failed) return;
    /* One column less than the terminal has, or it might wrap. */
    int width = terminal_width() - 1;
    kolo_text line = {0};
    kolo_text_add(&line, "\r\033[K%.*s", width, t.text);
    kolo_text_fini(&t);
    write_text(&line);
    state->bar_drawn = true;
}

static void print_line(const kolo_train_progress *p) {
    kolo_text t = {0};
    kolo_text_add(&t, "epoch %" PRId64 "  step %" PRId64 "/%" PRId64 "  ", p->epoch, p->step,
                  p->total_steps);
    add_figures(&t, p);
    kolo_text_add(&t, "  lr %.4g  %.1f s", p->lr, p->seconds);
    if (p->evaluated) {
        kolo_text_add(&t, "  test loss %.4f  test accuracy %.4f", p->test_loss, p->test_accuracy);
    }
    kolo_text_add(&t, "\n");
    write_text(&t);
}

void progress_end(progress *state) {
    if (!state->bar_drawn) return;
    (void)kolo_write_all(STDERR_FILENO, "\r\033[K", 4);
    state->bar_drawn = false;
}

void progress_show(void *arg, const kolo_train_progress *p) {
    progress *state = arg;
    if (state->style == PROGRESS_NONE) return;
    bool due = p->seconds - state->last_line_seconds >= PLAIN_SECONDS;
    if (p->epoch_end || p->evaluated || (due && state->style == PROGRESS_PLAIN)) {
        progress_end(state);
        print_line(p);
        state->last_line_seconds = p->seconds;
    } else if (state->style == PROGRESS_BAR) {
        draw_bar(state, p);
    }
}

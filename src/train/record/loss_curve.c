/* The curve has at most MOST points: each is the mean of as many neighbouring lines as needed. */
#include "train/record/loss_curve.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 400, WIDTH = 640, HEIGHT = 360, LEFT = 60, TOP = 30, RIGHT = 20, BOTTOM = 40 };

static const size_t metrics_most = (size_t)1 << 32; /* bytes */

typedef struct point {
    double step, loss;
} point;

typedef struct curve {
    point *points;
    size_t n, capacity;
} curve;

/* Adds the value of `key` in a line that ends at `end`, if there is one. */
static kolo_status add_value(curve *c, const char *line, const char *end, const char *key) {
    static const char step[] = "\"step\": ";
    const char *at = strstr(line, step), *value = strstr(line, key);
    if (!at || at > end || !value || value > end) return KOLO_OK;
    char *stop;
    double loss = kolo_parse_double(value + strlen(key), &stop);
    if (stop == value + strlen(key)) return KOLO_OK; /* null */
    if (!KOLO_GROW(c->points, c->n, c->capacity)) return KOLO_NOMEM(sizeof *c->points);
    c->points[c->n++] = (point){(double)strtoll(at + sizeof step - 1, NULL, 10), loss};
    return KOLO_OK;
}

static kolo_status read_curves(const char *text, curve *train, curve *test) {
    for (const char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        KOLO_TRY(add_value(train, line, end, "\"loss\": "));
        KOLO_TRY(add_value(test, line, end, "\"test_loss\": "));
    }
    return KOLO_OK;
}

static void reduce(curve *c) {
    size_t group = (c->n + MOST - 1) / MOST, n = 0;
    for (size_t i = 0; i < c->n; n++) {
        point sum = {0};
        size_t count = 0;
        for (; count < group && i < c->n; count++, i++) {
            sum.step += c->points[i].step;
            sum.loss += c->points[i].loss;
        }
        c->points[n] = (point){sum.step / (double)count, sum.loss / (double)count};
    }
    c->n = n;
}

static double highest(const curve *c, double most) {
    for (size_t i = 0; i < c->n; i++) {
        if (c->points[i].loss > most) most = c->points[i].loss;
    }
    return most;
}

static void draw(kolo_text *t, const curve *c, const char *colour, double steps, double most) {
    if (c->n == 0) return;
    kolo_text_add(t, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" points=\"",
                  colour);
    for (size_t i = 0; i < c->n; i++) {
        double x = LEFT + c->points[i].step / steps * (WIDTH - LEFT - RIGHT);
        double y = HEIGHT - BOTTOM - c->points[i].loss / most * (HEIGHT - TOP - BOTTOM);
        kolo_text_add(t, "%s%.1f,%.1f", i ? " " : "", x, y);
    }
    kolo_text_add(t, "\"/>\n");
}

static void print(kolo_text *t, const curve *train, const curve *test) {
    double most = highest(test, highest(train, 1e-9)), steps = train->points[train->n - 1].step;
    if (test->n > 0 && test->points[test->n - 1].step > steps)
        steps = test->points[test->n - 1].step;
    kolo_text_add(t,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                  "font-family=\"sans-serif\" font-size=\"12\">\n"
                  "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
                  "<path d=\"M%d %dV%dH%d\" fill=\"none\" stroke=\"black\"/>\n",
                  WIDTH, HEIGHT, LEFT, TOP, HEIGHT - BOTTOM, WIDTH - RIGHT);
    for (int i = 0; i <= 4; i++) {
        int y = HEIGHT - BOTTOM - i * (HEIGHT - TOP - BOTTOM) / 4;
        int x = LEFT + i * (WIDTH - LEFT - RIGHT) / 4;
        kolo_text_add(t,
                      "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%.3g</text>\n"
                      "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%.0f</text>\n",
                      LEFT - 6, y + 4, most * i / 4, x, HEIGHT - BOTTOM + 16, steps * i / 4);
    }
    draw(t, train, "#1f77b4", steps, most);
    draw(t, test, "#d62728", steps, most);
    kolo_text_add(t,
                  "<text x=\"%d\" y=\"18\" fill=\"#1f77b4\">training loss</text>\n"
                  "<text x=\"%d\" y=\"18\" fill=\"#d62728\">test loss</text>\n"
                  "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">step</text>\n</svg>\n",
                  LEFT, LEFT + 100, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8);
}

kolo_status kolo_loss_curve_write(const char *metrics, const char *path) {
    curve train = {0}, test = {0};
    kolo_text svg = {0};
    char *text;
    size_t bytes;
    KOLO_TRY(kolo_file_read(metrics, metrics_most, &text, &bytes));
    kolo_status status = read_curves(text, &train, &test);
    if (status == KOLO_OK && train.n > 0) {
        reduce(&train);
        reduce(&test);
        print(&svg, &train, &test);
        status = svg.failed ? KOLO_NOMEM(svg.length) : kolo_file_write(path, svg.text, svg.length);
    }
    kolo_text_fini(&svg);
    kolo_free(train.points);
    kolo_free(test.points);
    kolo_free(text);
    return status;
}

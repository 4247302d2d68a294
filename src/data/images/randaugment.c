/* The operations of RandAugment. Movements take 16 bits of fraction of a pixel; blends are in f32
 * and truncated, as those of Pillow. */
#include "data/images/randaugment.h"

#include "base/compiler.h"

#include <math.h>
#include <string.h>

typedef struct planes {
    int64_t channels, height, width;
    uint8_t *bytes, *work;
} planes;

static int64_t pixels_of(const planes *p) { return p->height * p->width; }

/* ---- movements ---- */

static int64_t fixed(double x) { return (int64_t)floor(x * 65536 + 0.5); }

/* Pixel (y, x) becomes that at a[0] x + a[1] y + a[2], a[3] x + a[4] y + a[5]. */
static void move(const planes *p, const double *a) {
    const int64_t by_x[2] = {fixed(a[0]), fixed(a[3])}, by_y[2] = {fixed(a[1]), fixed(a[4])};
    int64_t row[2] = {fixed(a[2] + a[0] * 0.5 + a[1] * 0.5), fixed(a[5] + a[3] * 0.5 + a[4] * 0.5)};
    const int64_t pixels = pixels_of(p);
    memcpy(p->work, p->bytes, (size_t)(p->channels * pixels));
    memset(p->bytes, 0, (size_t)(p->channels * pixels));
    for (int64_t y = 0; y < p->height; y++, row[0] += by_y[0], row[1] += by_y[1]) {
        for (int64_t x = 0; x < p->width; x++) {
            const int64_t from_x = (row[0] + x * by_x[0]) >> 16;
            const int64_t from_y = (row[1] + x * by_x[1]) >> 16;
            if (from_x < 0 || from_x >= p->width || from_y < 0 || from_y >= p->height) continue;
            for (int64_t c = 0; c < p->channels; c++) {
                p->bytes[c * pixels + y * p->width + x] =
                    p->work[c * pixels + from_y * p->width + from_x];
            }
        }
    }
}

static void identity(const planes *p, double strength) {}

static void shear_x(const planes *p, double by) { move(p, (const double[]){1, by, 0, 0, 1, 0}); }
static void shear_y(const planes *p, double by) { move(p, (const double[]){1, 0, 0, by, 1, 0}); }
static void translate_x(const planes *p, double by) {
    move(p, (const double[]){1, 0, -trunc(by), 0, 1, 0});
}
static void translate_y(const planes *p, double by) {
    move(p, (const double[]){1, 0, 0, 0, 1, -trunc(by)});
}

/* Counter-clockwise, around the middle. */
static void rotate(const planes *p, double degrees) {
    const double angle = -degrees * (3.14159265358979323846 / 180), c = cos(angle), s = sin(angle);
    const double x = (double)p->width / 2, y = (double)p->height / 2;
    if (degrees == 0) return;
    move(p, (const double[]){c, s, x - c * x - s * y, -s, c, y + s * x - c * y});
}

/* ---- blends ---- */

static uint8_t blend(int other, int own, float factor) {
    const float sum = (float)other + factor * (float)(own - other);
    return (uint8_t)(sum <= 0 ? 0 : sum >= 255 ? 255 : sum);
}

static uint8_t grey_of(const planes *p, int64_t i) {
    const int64_t n = pixels_of(p);
    const uint8_t *from = p->bytes + i;
    if (p->channels == 1) return *from;
    return (uint8_t)((from[0] * 19595 + from[n] * 38470 + from[2 * n] * 7471 + 0x8000) >> 16);
}

/* Blends with `work`. */
static void blend_all(const planes *p, double strength) {
    const float factor = (float)(1.0 + strength);
    for (int64_t i = 0; i < p->channels * pixels_of(p); i++) {
        p->bytes[i] = blend(p->work[i], p->bytes[i], factor);
    }
}

static void brightness(const planes *p, double strength) {
    memset(p->work, 0, (size_t)(p->channels * pixels_of(p)));
    blend_all(p, strength);
}

static void colour(const planes *p, double strength) {
    const int64_t n = pixels_of(p);
    for (int64_t i = 0; i < n; i++) p->work[i] = grey_of(p, i);
    for (int64_t c = 1; c < p->channels; c++) memcpy(p->work + c * n, p->work, (size_t)n);
    blend_all(p, strength);
}

static void contrast(const planes *p, double strength) {
    const int64_t n = pixels_of(p);
    int64_t sum = 0;
    for (int64_t i = 0; i < n; i++) sum += grey_of(p, i);
    memset(p->work, (int)((double)sum / (double)n + 0.5), (size_t)(p->channels * n));
    blend_all(p, strength);
}

/* Blends with the image smoothed by 1 1 1, 1 5 1, 1 1 1 over 13, but for its edges. */
static void sharpness(const planes *p, double strength) {
    const int64_t W = p->width;
    memcpy(p->work, p->bytes, (size_t)(p->channels * pixels_of(p)));
    for (int64_t c = 0; c < p->channels; c++) {
        for (int64_t y = 1; y < p->height - 1; y++) {
            for (int64_t x = 1; x < W - 1; x++) {
                const int64_t at = c * pixels_of(p) + y * W + x;
                const uint8_t *m = p->bytes + at, *up = m - W, *down = m + W;
                const int sum =
                    up[-1] + up[0] + up[1] + m[-1] + 5 * m[0] + m[1] + down[-1] + down[0] + down[1];
                p->work[at] = (uint8_t)((2 * sum + 13) / 26);
            }
        }
    }
    blend_all(p, strength);
}

/* ---- tables ---- */

static void look_up(uint8_t *bytes, int64_t n, const uint8_t *table) {
    for (int64_t i = 0; i < n; i++) bytes[i] = table[bytes[i]];
}

static void posterize(const planes *p, double bits) {
    uint8_t table[256];
    const int mask = ~((1 << (8 - (int)bits)) - 1);
    for (int i = 0; i < 256; i++) table[i] = (uint8_t)(i & mask);
    look_up(p->bytes, p->channels * pixels_of(p), table);
}

static void solarize(const planes *p, double threshold) {
    uint8_t table[256];
    for (int i = 0; i < 256; i++) table[i] = (uint8_t)(i < threshold ? i : 255 - i);
    look_up(p->bytes, p->channels * pixels_of(p), table);
}

static void count(const uint8_t *bytes, int64_t n, int64_t *counts) {
    memset(counts, 0, 256 * sizeof *counts);
    for (int64_t i = 0; i < n; i++) counts[bytes[i]]++;
}

/* Stretches the values of each channel over 0 to 255. */
static void autocontrast(const planes *p, double strength) {
    const int64_t n = pixels_of(p);
    for (int64_t c = 0; c < p->channels; c++) {
        uint8_t table[256];
        int64_t counts[256];
        int low = 0, high = 255;
        count(p->bytes + c * n, n, counts);
        while (low < 255 && counts[low] == 0) low++;
        while (high > 0 && counts[high] == 0) high--;
        if (high <= low) continue;
        const double scale = 255.0 / (high - low), offset = -low * scale;
        for (int i = 0; i < 256; i++) {
            const double value = trunc(i * scale + offset);
            table[i] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
        }
        look_up(p->bytes + c * n, n, table);
    }
}

/* Makes the values of each channel about equally frequent. */
static void equalize(const planes *p, double strength) {
    const int64_t n = pixels_of(p);
    for (int64_t c = 0; c < p->channels; c++) {
        uint8_t table[256];
        int64_t counts[256], last = 0;
        count(p->bytes + c * n, n, counts);
        for (int i = 0; i < 256; i++) last = counts[i] > 0 ? counts[i] : last;
        const int64_t step = (n - last) / 255;
        if (step == 0) continue; /* also of one value */
        int64_t sum = step / 2;
        for (int i = 0; i < 256; i++) {
            table[i] = (uint8_t)(sum / step > 255 ? 255 : sum / step);
            sum += counts[i];
        }
        look_up(p->bytes + c * n, n, table);
    }
}

/* ---- all ---- */

typedef struct operation {
    void (*apply)(const planes *p, double strength);
    bool has_sign;
    float first, last; /* strengths; both 0: none */
    int side;          /* the last one is a part of the height (1) or the width (2) */
} operation;

static const operation operations[] = {
    {identity, false, 0, 0, 0},     {shear_x, true, 0, 0.3F, 0},  {shear_y, true, 0, 0.3F, 0},
    {translate_x, true, 0, 0, 2},   {translate_y, true, 0, 0, 1}, {rotate, true, 0, 30, 0},
    {brightness, true, 0, 0.9F, 0}, {colour, true, 0, 0.9F, 0},   {contrast, true, 0, 0.9F, 0},
    {sharpness, true, 0, 0.9F, 0},  {posterize, false, 8, 4, 0},  {solarize, false, 255, 0, 0},
    {autocontrast, false, 0, 0, 0}, {equalize, false, 0, 0, 0},
};
_Static_assert(KOLO_COUNT(operations) == KOLO_RANDAUGMENT_OPS, "a row for each operation");

float kolo_randaugment_strength(int op, int step, int64_t height, int64_t width) {
    const operation *o = &operations[op];
    const int last = KOLO_RANDAUGMENT_STRENGTHS - 1;
    if (o->apply == posterize) return (float)(8 - (int)(step / 7.5 + 0.5));
    const double side = 150.0 / 331 * (double)(o->side == 1 ? height : width);
    const float end = o->side ? (float)side : o->last, each = (end - o->first) / (float)last;
    /* torch.linspace goes from both ends to the middle. */
    return step < (last + 1) / 2 ? fmaf(each, (float)step, o->first)
                                 : fmaf(-each, (float)(last - step), end);
}

bool kolo_randaugment_is_signed(int op) { return operations[op].has_sign; }

void kolo_randaugment_apply(int op, double strength, int64_t channels, int64_t height,
                            int64_t width, uint8_t *image, uint8_t *work) {
    const planes p = {channels, height, width, image, work};
    operations[op].apply(&p, strength);
}

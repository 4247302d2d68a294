/* Changes of colours, in f32 and truncated to bytes. */
#include "data/images/colour.h"

#include <math.h>

static uint8_t blend(float one, float other, float part, float rest) {
    const float sum = part * one + rest * other;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

static uint8_t grey_of(const uint8_t *planes, int64_t channels, int64_t pixels, int64_t i) {
    if (channels == 1) return planes[i];
    return (uint8_t)(0.2989F * planes[i] + 0.587F * planes[pixels + i] +
                     0.114F * planes[2 * pixels + i]);
}

/* Blends all bytes with one. */
static void blend_with(uint8_t *planes, int64_t bytes, float other, double factor) {
    const float part = (float)factor, rest = (float)(1 - factor);
    for (int64_t i = 0; i < bytes; i++) planes[i] = blend(planes[i], other, part, rest);
}

void kolo_colour_brightness(uint8_t *planes, int64_t channels, int64_t pixels, double factor) {
    blend_with(planes, channels * pixels, 0, factor);
}

void kolo_colour_contrast(uint8_t *planes, int64_t channels, int64_t pixels, double factor) {
    int64_t sum = 0;
    for (int64_t i = 0; i < pixels; i++) sum += grey_of(planes, channels, pixels, i);
    blend_with(planes, channels * pixels, (float)((double)sum / (double)pixels), factor);
}

void kolo_colour_saturation(uint8_t *planes, int64_t channels, int64_t pixels, double factor) {
    const float part = (float)factor, rest = (float)(1 - factor);
    if (channels == 1) return;
    for (int64_t i = 0; i < pixels; i++) {
        const float grey = grey_of(planes, channels, pixels, i);
        for (int64_t c = 0; c < 3; c++) {
            uint8_t *at = &planes[c * pixels + i];
            *at = blend(*at, grey, part, rest);
        }
    }
}

/* Hue and saturation of a colour, in [0, 1), whose largest channel is `most`. */
static void hue_of(float r, float g, float b, float most, float *hue, float *saturation) {
    const float range = most - fminf(r, fminf(g, b)), by = range == 0 ? 1 : range;
    const float rest_r = (most - r) / by, rest_g = (most - g) / by, rest_b = (most - b) / by;
    float h;
    if (most == r) {
        h = rest_b - rest_g;
    } else if (most == g) {
        h = 2.0F + rest_r - rest_b;
    } else {
        h = 4.0F + rest_g - rest_r;
    }
    *hue = fmodf(h / 6.0F + 1.0F, 1.0F);
    *saturation = range / (range == 0 ? 1 : most);
}

static uint8_t to_byte(float x) { return (uint8_t)(x * (255.0F + 1.0F - 1e-3F)); }

static float within(float x) { return x < 0 ? 0 : x > 1 ? 1 : x; }

void kolo_colour_hue(uint8_t *planes, int64_t channels, int64_t pixels, double turn) {
    if (channels == 1) return;
    for (int64_t i = 0; i < pixels; i++) {
        uint8_t *at[3] = {&planes[i], &planes[pixels + i], &planes[2 * pixels + i]};
        const float r = *at[0] / 255.0F, g = *at[1] / 255.0F, b = *at[2] / 255.0F;
        const float v = fmaxf(r, fmaxf(g, b));
        float h, s;
        hue_of(r, g, b, v, &h, &s);
        h = fmodf(h + (float)turn, 1.0F);
        if (h < 0) h += 1.0F;
        const float sector = floorf(h * 6.0F), f = h * 6.0F - sector;
        const float p = within(v * (1.0F - s)), q = within(v * (1.0F - s * f));
        const float t = within(v * (1.0F - s * (1.0F - f)));
        const float rgb[6][3] = {{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}};
        for (int c = 0; c < 3; c++) *at[c] = to_byte(rgb[(int)sector % 6][c]);
    }
}

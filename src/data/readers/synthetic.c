/* Synthetic images. Each class has a random pattern, and a sample is the mean of its class's
 * pattern and noise: benchmarks need no files, and training converges. Patterns depend on the seed
 * only, so training generalizes to the test split. */
#include "data/readers/synthetic.h"

#include "base/integer.h"
#include "base/memory.h"
#include "base/rng.h"
#include "data/readers/keys.h"
#include "data/readers/readers.h"

#include <inttypes.h>
#include <string.h>

static const size_t max_bytes = (size_t)16 << 30;

static bool parse_shape(const kolo_data_key *key, const char *text, const char *end) {
    kolo_synthetic *s = key->value;
    int64_t *const dims[3] = {&s->channels, &s->height, &s->width};
    for (int i = 0; i < 3; i++) {
        const char *stop = i < 2 ? memchr(text, 'x', (size_t)(end - text)) : end;
        kolo_data_key dim = {.value = dims[i], .min = 1, .max = i == 0 ? KOLO_MAX_CHANNELS : 65536};
        if (!stop || !kolo_key_count(&dim, text, stop)) return false;
        text = stop + 1;
    }
    return true;
}

kolo_status kolo_synthetic_parse(const kolo_reader *reader, const char *text, kolo_synthetic *s) {
    static const char whole[] = "a whole number, at least 1";
    const double many = 1099511627776; /* 2^40 */
    const kolo_data_key keys[] = {
        {"N", kolo_key_count, &s->n, 1, many, whole},
        {"test", kolo_key_count, &s->test, 1, many, whole},
        {"shape", parse_shape, s, .write = "shape=CxHxW, as in shape=1x28x28, C at most 16"},
        {"classes", kolo_key_count, &s->classes, 1, 1 << 20, whole},
        {"seed", kolo_key_seed, &s->seed, .write = "a whole number, at least 0"},
        {NULL},
    };
    KOLO_TRY(kolo_keys_parse(reader, text, keys));
    if (s->test == 0) s->test = (s->n + 5) / 6;
    return KOLO_OK;
}

void kolo_synthetic_fill(const kolo_rng *rng, uint64_t first, uint8_t *out, size_t n) {
    for (size_t i = 0; i < n; i += 16) {
        uint32_t draw[4];
        kolo_rng_draw(rng, (first + i) / 16, draw);
        memcpy(out + i, draw, n - i < 16 ? n - i : 16);
    }
}

typedef struct synthetic {
    uint8_t *samples;
    int32_t *labels;
} synthetic;

static void close_synthetic(kolo_dataset *d) {
    synthetic *own = d->own;
    if (!own) return;
    kolo_free(own->samples);
    kolo_free(own->labels);
    kolo_free(own);
}

/* Fills all samples; `pattern` is scratch memory of one sample. */
static void make(const kolo_synthetic *s, kolo_split split, int64_t count, size_t bytes,
                 uint8_t *pattern, synthetic *own) {
    kolo_rng patterns = kolo_rng_make(s->seed, KOLO_RNG_SYNTHETIC, KOLO_SYNTHETIC_PATTERNS);
    kolo_rng noise =
        kolo_rng_make(s->seed, KOLO_RNG_SYNTHETIC,
                      split == KOLO_SPLIT_TRAIN ? KOLO_SYNTHETIC_TRAIN : KOLO_SYNTHETIC_TEST);
    size_t stride = kolo_round_up(bytes, 16);
    /* The label of a sample is drawn after its noise. */
    for (int64_t i = 0; i < count; i++) {
        uint64_t first = (uint64_t)i * (stride + 16);
        uint8_t *sample = own->samples + (size_t)i * bytes;
        uint32_t draw[4];
        kolo_rng_draw(&noise, (first + stride) / 16, draw);
        own->labels[i] = (int32_t)((uint64_t)draw[0] * (uint64_t)s->classes >> 32);
        kolo_synthetic_fill(&patterns, (uint64_t)own->labels[i] * stride, pattern, bytes);
        kolo_synthetic_fill(&noise, first, sample, bytes);
        for (size_t p = 0; p < bytes; p++) sample[p] = (uint8_t)((sample[p] + pattern[p]) / 2);
    }
}

kolo_status kolo_read_synthetic(const kolo_reader *reader, const char *argument, kolo_dataset *d) {
    kolo_synthetic s = {.n = 60000, .channels = 1, .height = 28, .width = 28, .classes = 10};
    KOLO_TRY(kolo_synthetic_parse(reader, argument, &s));
    int64_t count = kolo_synthetic_count(&s, d->info.split);
    size_t bytes = (size_t)(s.channels * s.height * s.width);
    if ((size_t)count > max_bytes / bytes) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "data set synthetic: %" PRId64
                         " samples of %zu bytes are more than 16 GiB: choose a smaller N or shape",
                         count, bytes);
    }
    d->close = close_synthetic;
    d->place = kolo_strdup(argument ? argument : "");
    synthetic *own = d->own = kolo_zalloc(sizeof *own);
    if (!d->place || !own) return KOLO_NOMEM(sizeof *own);
    own->samples = kolo_alloc((size_t)count * bytes);
    own->labels = kolo_alloc((size_t)count * sizeof *own->labels);
    uint8_t *pattern = kolo_alloc(bytes);
    if (!own->samples || !own->labels || !pattern) {
        kolo_free(pattern);
        return KOLO_NOMEM((size_t)count * bytes);
    }
    make(&s, d->info.split, count, bytes, pattern, own);
    kolo_free(pattern);

    const kolo_shape image = {3, {s.channels, s.height, s.width}};
    d->data[KOLO_FIELD_X] = own->samples;
    d->data[KOLO_FIELD_Y] = own->labels;
    d->info.place = d->place;
    d->info.count = count;
    kolo_dataset_set_fields(&d->info, KOLO_DTYPE_U8, image, kolo_shape_0());
    d->info.classes = (int)s.classes;
    for (int64_t c = 0; c < s.channels; c++) {
        d->info.fields[KOLO_FIELD_X].mean[c] = 0.5F;
        d->info.fields[KOLO_FIELD_X].std[c] = 0.2041F; /* of the mean of two uniform draws:
                                                          sqrt(1 / 24) */
    }
    return KOLO_OK;
}

/* Synthetic labelled texts. Each class has rows of its own; a fifth of the features of a sample are
 * of these, and the others are of any row, of which a few are frequent, so that training converges
 * and generalizes. Nothing is stored: a sample is a pure function of the seed and its index. */
#include "base/memory.h"
#include "base/rng.h"
#include "data/readers/keys.h"
#include "data/readers/labelled.h"
#include "data/readers/readers.h"

#include <limits.h>

enum { OWN = 48, TRAIN, TEST }; /* random streams, distinct from those of other data */
enum { OWN_ROWS = 16 };         /* of a class */

typedef struct synthetic_labelled {
    kolo_rng own, draws;
} synthetic_labelled;

static void close_labelled(kolo_dataset *d) { kolo_free(d->own); }

static int32_t draw_row(const synthetic_labelled *own, uint64_t at, int32_t class, int64_t rows) {
    const double part = (double)kolo_rng_uniform(&own->draws, at);
    const double u = (double)kolo_rng_uniform(&own->draws, at + 1);
    if (part >= 0.2) return (int32_t)((double)rows * u * u * u);
    const uint64_t k = (uint64_t) class * OWN_ROWS + (uint64_t)(u * OWN_ROWS);
    return (int32_t)kolo_rng_below(&own->own, k, (uint64_t)rows);
}

static kolo_status gather(const kolo_dataset *d, const int64_t *indices, int64_t n,
                          const kolo_draw *draw, void *const *data) {
    const synthetic_labelled *own = d->own;
    const int64_t features = d->opts.features;
    float *x = data[KOLO_FIELD_X];
    int32_t *y = data[KOLO_FIELD_Y], *ids = data[KOLO_FIELD_IDS];
    for (int64_t i = 0; i < n; i++, ids += features) {
        uint64_t at = (uint64_t)indices[i] * (uint64_t)(2 * features + 2);
        y[i] = (int32_t)kolo_rng_below(&own->draws, at++, (uint64_t)d->info.classes);
        const int64_t length = 1 + (int64_t)kolo_rng_below(&own->draws, at++, (uint64_t)features);
        for (int64_t k = 0; k < features; k++, at += 2) {
            ids[k] = k < length ? draw_row(own, at, y[i], d->opts.rows) : -1;
        }
        x[i] = 1 / (float)length;
    }
    return KOLO_OK;
}

kolo_status kolo_read_synthetic_labelled(const kolo_reader *reader, const char *argument,
                                         kolo_dataset *d) {
    int64_t n = 65536, test = 8192, classes = 10;
    uint64_t seed = 0;
    const double many = 1099511627776; /* 2^40 */
    const kolo_data_key keys[] = {
        {"N", kolo_key_count, &n, 1, many, "N=NUMBER, at least 1"},
        {"test", kolo_key_count, &test, 1, many, "test=NUMBER, at least 1"},
        {"classes", kolo_key_count, &classes, 1, INT_MAX, "classes=NUMBER, at least 1"},
        {"seed", kolo_key_seed, &seed, .write = "seed=NUMBER, at least 0"},
        {NULL},
    };
    KOLO_TRY(kolo_labelled_describe(reader, d));
    KOLO_TRY(kolo_keys_parse(reader, argument, keys));
    const bool train = d->info.split == KOLO_SPLIT_TRAIN;
    d->close = close_labelled;
    d->info.place = d->place = kolo_strdup(argument ? argument : "");
    synthetic_labelled *own = d->own = kolo_zalloc(sizeof *own);
    if (!d->place || !own) return KOLO_NOMEM(sizeof *own);
    own->own = kolo_rng_make(seed, KOLO_RNG_SYNTHETIC, OWN);
    own->draws = kolo_rng_make(seed, KOLO_RNG_SYNTHETIC, train ? TRAIN : TEST);
    d->gather = gather;
    d->info.classes = (int)classes;
    d->info.count = train ? n : test;
    return KOLO_OK;
}

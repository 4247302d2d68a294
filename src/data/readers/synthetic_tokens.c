/* Synthetic tokens. With probability 3/4 a token is the successor of the previous one in a fixed
 * table, otherwise it is uniform. The table depends on the seed only, so training generalizes to
 * the test split. The loss of a model that has learned the table is about 0.75 ln(4/3) + 0.25 ln(4
 * V) for a vocabulary of V. Nothing is stored: a token is a pure function of the seed, the window
 * and the tokens before it. */
#include "base/memory.h"
#include "base/rng.h"
#include "data/readers/keys.h"
#include "data/readers/readers.h"

enum { FOLLOWS = 16, TRAIN, TEST }; /* random streams, distinct from those of synthetic images */

typedef struct synthetic_tokens {
    kolo_rng follows, draws;
} synthetic_tokens;

static void close_tokens(kolo_dataset *d) { kolo_free(d->own); }

static kolo_status gather(const kolo_dataset *d, const int64_t *indices, int64_t n,
                          const kolo_draw *by, void *const *data) {
    const synthetic_tokens *own = d->own;
    int64_t length = d->info.fields[KOLO_FIELD_X].shape.dim[0];
    uint64_t vocabulary = (uint64_t)d->info.classes;
    int32_t *x = data[KOLO_FIELD_X], *labels = data[KOLO_FIELD_Y];
    for (int64_t i = 0; i < n; i++, x += length, labels += length) {
        uint64_t token = 0;
        for (int64_t t = 0; t <= length; t++) {
            uint32_t draw[4];
            kolo_rng_draw(&own->draws, (uint64_t)indices[i] * (uint64_t)(length + 1) + (uint64_t)t,
                          draw);
            bool any = t == 0 || draw[0] >> 30 == 0;
            token = any ? (uint64_t)draw[1] * vocabulary >> 32
                        : kolo_rng_below(&own->follows, token, vocabulary);
            if (t < length) x[t] = (int32_t)token;
            if (t > 0) labels[t - 1] = (int32_t)token;
        }
    }
    return KOLO_OK;
}

kolo_status kolo_read_synthetic_tokens(const kolo_reader *reader, const char *argument,
                                       kolo_dataset *d) {
    int64_t n = 65536, test = 1024, seed = 0;
    const double many = 1099511627776; /* 2^40 */
    const kolo_data_key keys[] = {
        {"N", kolo_key_count, &n, 1, many, "N=NUMBER, at least 1"},
        {"test", kolo_key_count, &test, 1, many, "test=NUMBER, at least 1"},
        {"seed", kolo_key_count, &seed, 0, many, "seed=NUMBER, at least 0"},
        {NULL},
    };
    KOLO_TRY(kolo_tokens_describe(reader, d));
    KOLO_TRY(kolo_keys_parse(reader, argument, keys));
    bool train = d->info.split == KOLO_SPLIT_TRAIN;
    d->close = close_tokens;
    d->info.place = d->place = kolo_strdup(argument ? argument : "");
    synthetic_tokens *own = d->own = kolo_zalloc(sizeof *own);
    if (!d->place || !own) return KOLO_NOMEM(sizeof *own);
    own->follows = kolo_rng_make((uint64_t)seed, KOLO_RNG_SYNTHETIC, FOLLOWS);
    own->draws = kolo_rng_make((uint64_t)seed, KOLO_RNG_SYNTHETIC, train ? TRAIN : TEST);
    d->gather = gather;
    d->info.count = train ? n : test;
    return KOLO_OK;
}

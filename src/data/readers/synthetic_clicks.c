/* Synthetic click logs. Each row of each table and each number has a weight, the same in every
 * split; the sum of those of a sample is the log-odds of a click, so that training converges and
 * generalizes. A few rows of a table are frequent and most are rare, as in real logs. Nothing is
 * stored: a sample is a pure function of the seed and its index. */
#include "base/memory.h"
#include "base/rng.h"
#include "data/readers/clicks.h"
#include "data/readers/keys.h"
#include "data/readers/readers.h"

#include <math.h>

enum { ROWS = 32, NUMBERS, TRAIN, TEST }; /* random streams, distinct from those of other data */

static const double spread = 4; /* standard deviation of the log-odds, about */

typedef struct synthetic_clicks {
    kolo_rng rows, numbers, draws;
} synthetic_clicks;

static void close_clicks(kolo_dataset *d) { kolo_free(d->own); }

static double weight(const kolo_rng *rng, uint64_t i) {
    return 2 * (double)kolo_rng_uniform(rng, i) - 1;
}

static kolo_status gather(const kolo_dataset *d, const int64_t *indices, int64_t n,
                          const kolo_draw *draw, void *const *data) {
    const synthetic_clicks *own = d->own;
    const int64_t numbers = d->opts.numbers, categories = d->opts.categories, rows = d->opts.rows;
    const double scale = spread * sqrt(3.0 / (double)(numbers + categories));
    float *x = data[KOLO_FIELD_X], *y = data[KOLO_FIELD_Y];
    int32_t *ids = data[KOLO_FIELD_IDS];
    for (int64_t i = 0; i < n; i++, x += numbers, ids += categories) {
        uint64_t at = (uint64_t)indices[i] * (uint64_t)(numbers + categories + 1);
        double odds = 0;
        for (int64_t k = 0; k < numbers; k++) {
            x[k] = 2 * kolo_rng_uniform(&own->draws, at++);
            odds += weight(&own->numbers, (uint64_t)k) * ((double)x[k] - 1);
        }
        for (int64_t t = 0; t < categories; t++) {
            const double u = (double)kolo_rng_uniform(&own->draws, at++);
            const int64_t row = t * rows + (int64_t)((double)rows * u * u * u);
            odds += weight(&own->rows, (uint64_t)row);
            ids[t] = (int32_t)row;
        }
        const double click = 1 / (1 + exp(-scale * odds));
        y[i] = (double)kolo_rng_uniform(&own->draws, at) < click ? 1 : 0;
    }
    return KOLO_OK;
}

kolo_status kolo_read_synthetic_clicks(const kolo_reader *reader, const char *argument,
                                       kolo_dataset *d) {
    int64_t n = 65536, test = 8192;
    uint64_t seed = 0;
    const double many = 1099511627776; /* 2^40 */
    const kolo_data_key keys[] = {
        {"N", kolo_key_count, &n, 1, many, "N=NUMBER, at least 1"},
        {"test", kolo_key_count, &test, 1, many, "test=NUMBER, at least 1"},
        {"seed", kolo_key_seed, &seed, .write = "seed=NUMBER, at least 0"},
        {NULL},
    };
    KOLO_TRY(kolo_clicks_describe(reader, d));
    KOLO_TRY(kolo_keys_parse(reader, argument, keys));
    const bool train = d->info.split == KOLO_SPLIT_TRAIN;
    d->close = close_clicks;
    d->info.place = d->place = kolo_strdup(argument ? argument : "");
    synthetic_clicks *own = d->own = kolo_zalloc(sizeof *own);
    if (!d->place || !own) return KOLO_NOMEM(sizeof *own);
    own->rows = kolo_rng_make(seed, KOLO_RNG_SYNTHETIC, ROWS);
    own->numbers = kolo_rng_make(seed, KOLO_RNG_SYNTHETIC, NUMBERS);
    own->draws = kolo_rng_make(seed, KOLO_RNG_SYNTHETIC, train ? TRAIN : TEST);
    d->gather = gather;
    d->info.count = train ? n : test;
    return KOLO_OK;
}

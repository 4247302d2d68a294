/* Pairs of sentences for BERT (Devlin et al., 2019, appendix A.2). A window of T tokens
 *
 *     [first] A ... A [separator] B ... B [separator]
 *
 * is built from windows of T - 3 tokens of the underlying data set. A is the first half of a
 * window. B is its second half, or, with probability 1/2, the second half of another window. The
 * choice is a pure function of the split and the index, as in data prepared in advance. kolo/data.h
 * describes the labels. */
#include "base/memory.h"
#include "base/rng.h"
#include "data/readers/readers.h"

#include <string.h>

enum { ADDED = 3 };

static void close_pairs(kolo_dataset *d) { kolo_dataset_close(d->own); }

/* The window of the second half of pair i; i itself if it follows the first. */
static int64_t second_of(const kolo_dataset *d, int64_t i) {
    kolo_rng rng = kolo_rng_make(0, KOLO_RNG_PAIR, (uint64_t)d->info.split);
    uint32_t draw[4];
    kolo_rng_draw(&rng, (uint64_t)i, draw);
    if (d->info.count < 2 || draw[0] >> 31) return i;
    uint64_t others = (uint64_t)d->info.count - 1;
    uint64_t step = ((uint64_t)draw[2] << 32 | draw[1]) % others;
    return (i + 1 + (int64_t)step) % d->info.count;
}

/* Builds tokens x [T] and labels y [T] of a pair from two windows [T - ADDED]. */
static void make_pair(const kolo_dataset *d, const int32_t *window, const int32_t *other,
                      int32_t *x, int32_t *y) {
    int64_t length = d->info.fields[KOLO_FIELD_X].shape.dim[0], tokens = length - ADDED;
    int64_t front = tokens / 2;
    int32_t next = other != window ? KOLO_PAIR_RANDOM : 0;
    x[0] = (int32_t)d->opts.first;
    x[front + 1] = x[length - 1] = (int32_t)d->opts.separator;
    memcpy(x + 1, window, (size_t)front * sizeof *x);
    memcpy(x + front + 2, other + front, (size_t)(tokens - front) * sizeof *x);
    for (int64_t t = 0; t < length; t++) y[t] = next + (t > front + 1 ? KOLO_PAIR_SECOND : 0);
    y[0] = -2 - y[0];
    y[front + 1] = -2 - y[front + 1];
    y[length - 1] = -2 - y[length - 1];
}

static kolo_status gather(const kolo_dataset *d, const int64_t *indices, int64_t n,
                          const kolo_draw *draw, void *const *data) {
    const kolo_dataset *base = d->own;
    int64_t length = d->info.fields[KOLO_FIELD_X].shape.dim[0], tokens = length - ADDED;
    int32_t *x = data[KOLO_FIELD_X], *y = data[KOLO_FIELD_Y];
    int32_t *room = kolo_alloc(3 * (size_t)tokens * sizeof *room);
    if (!room) return KOLO_NOMEM(3 * (size_t)tokens * sizeof *room);
    kolo_status status = KOLO_OK;
    for (int64_t i = 0; i < n && status == KOLO_OK; i++) {
        const int64_t pair[] = {indices[i], second_of(d, indices[i])};
        int32_t *second = pair[1] != pair[0] ? room + tokens : room;
        status = base->gather(base, &pair[0], 1, NULL, (void *[]){room, room + 2 * tokens});
        if (status == KOLO_OK && second != room) {
            status = base->gather(base, &pair[1], 1, NULL, (void *[]){second, room + 2 * tokens});
        }
        if (status == KOLO_OK) make_pair(d, room, second, x + i * length, y + i * length);
    }
    kolo_free(room);
    return status;
}

kolo_status kolo_pairs_open(const kolo_reader *reader, const char *argument, kolo_dataset *d) {
    kolo_dataset_opts opts = d->opts;
    kolo_dataset *base;
    opts.pairs = false;
    opts.context -= ADDED;
    if (opts.context < 2) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "data set %s: pairs of sentences need windows of %d tokens or more",
                         reader->name, 2 + ADDED);
    }
    KOLO_TRY(kolo_dataset_open_with(reader, reader->open, argument, d->info.split, &opts, &base));
    d->own = base;
    d->close = close_pairs;
    if (base->info.fields[KOLO_FIELD_X].dtype != KOLO_DTYPE_I32) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "data set %s has no pairs of sentences: choose data such as text:FILE, "
                         "tokens:FILE or synthetic-tokens, or a model without them (nsp=0)",
                         reader->name);
    }
    KOLO_TRY(kolo_dataset_refuse_stream(base, "pairing sentences"));
    d->gather = gather;
    d->info = base->info;
    kolo_shape window = kolo_shape_1(d->opts.context);
    kolo_dataset_set_fields(&d->info, KOLO_DTYPE_I32, window, window);
    KOLO_ASSERT(base->gather);
    return KOLO_OK;
}

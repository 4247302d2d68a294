/* Streams of any bytes, of which the first chooses the kind: samples are valid, or the stream is
 * refused; and it goes on at each place between two samples. */
#define _GNU_SOURCE
#include "base/compiler.h"
#include "data/dataset.h"
#include "fuzz/file.h"
#include "fuzz/fuzz.h"

#include <math.h>
#include <string.h>

enum { WIDTH = 2, CLASSES = 3, VOCABULARY = 200, MOST = 64 };

typedef struct samples {
    int64_t count;
    float x[MOST][WIDTH];
    int32_t y[MOST][WIDTH];
    kolo_stream_place places[MOST + 1];
    kolo_status status; /* behind the last one */
} samples;

static void skip(void *arg, const char *line) { KOLO_ASSERT(line[0] && !strchr(line, '\n')); }

static void read_from(const char *spec, const kolo_stream_place *place, samples *s) {
    const kolo_dataset_opts opts = {.context = WIDTH, .vocabulary = VOCABULARY, .warn = skip};
    kolo_dataset *d;
    int64_t got = 1, damaged;
    s->count = 0;
    KOLO_ASSERT(kolo_dataset_open_for(spec, KOLO_SPLIT_TRAIN, &opts, &d) == KOLO_OK);
    s->status = kolo_dataset_begin(d, place);
    s->places[0] = *place;
    while (s->status == KOLO_OK && got > 0 && s->count < MOST) {
        void *data[KOLO_MAX_FIELDS] = {s->x[s->count], s->y[s->count]};
        s->status = kolo_dataset_next(d, 1, data, &got, &damaged);
        if (s->status != KOLO_OK || got == 0) break;
        s->count++;
        s->places[s->count] = kolo_dataset_place(d, place->samples + s->count);
    }
    KOLO_ASSERT(s->status == KOLO_OK || s->status == KOLO_ERR_FORMAT);
    KOLO_ASSERT(s->status == KOLO_OK || (kolo_last_error()[0] && !strchr(kolo_last_error(), '\n')));
    kolo_dataset_close(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    static const char *const kinds[] = {
        "csv:%s,columns=3,classes=3,follow=1e-9",
        "csv:%s,columns=3,type=value,target=2,follow=1e-9",
        "raw:%s,columns=3,classes=3,follow=1e-9",
        "tokens:%s,follow=1e-9",
        "text:%s,follow=1e-9",
    };
    static samples all, rest;
    char spec[128];
    if (length == 0) return 0;
    const size_t kind = bytes[0] % KOLO_COUNT(kinds);
    snprintf(spec, sizeof spec, kinds[kind], fuzz_file(bytes + 1, length - 1));
    memset(&all, 0, sizeof all);
    read_from(spec, &(kolo_stream_place){0}, &all);
    for (int64_t i = 0; i < all.count; i++) {
        const bool tokens = kind >= 3, classes = kind == 0 || kind == 2;
        for (int k = 0; k < WIDTH && !tokens; k++) KOLO_ASSERT(isfinite(all.x[i][k]));
        for (int k = 0; k < WIDTH && tokens; k++) {
            KOLO_ASSERT(all.y[i][k] >= 0 && all.y[i][k] < VOCABULARY);
        }
        KOLO_ASSERT(!classes || (all.y[i][0] >= 0 && all.y[i][0] < CLASSES));
    }
    const int64_t at = all.count / 2;
    if (all.count == 0 || all.count == MOST) return 0;
    read_from(spec, &all.places[at], &rest);
    KOLO_ASSERT(rest.count == all.count - at && rest.status == all.status);
    for (int64_t i = 0; i < rest.count; i++) {
        const size_t x = kind < 3 ? sizeof rest.x[i] : 0;
        const size_t y = kind < 3 ? sizeof rest.y[i][0] : sizeof rest.y[i];
        KOLO_ASSERT(memcmp(rest.x[i], all.x[at + i], x) == 0);
        KOLO_ASSERT(memcmp(rest.y[i], all.y[at + i], y) == 0);
    }
    return 0;
}

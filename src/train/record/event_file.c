/* Event files. A record is the length of its data (u64, little-endian), the masked CRC32C of these
 * 8 bytes, the data, and their masked CRC32C: the format of TFRecord. The data are an Event
 * (event.proto). */
#include "train/record/event_file.h"

#include "base/file.h"
#include "base/memory.h"
#include "train/record/scalars.h"

#ifndef KOLO_HAS_EVENTS

kolo_status kolo_event_file_create(const char *folder, kolo_event_file **file) {
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                     "this build writes no TensorBoard files: install libprotobuf-c-dev and "
                     "protobuf-c-compiler, and build again");
}
kolo_status kolo_event_file_report(kolo_event_file *file, const kolo_train_progress *progress) {
    return KOLO_OK;
}
void kolo_event_file_close(kolo_event_file *file) {}

#else

#include "base/text.h"

#include <errno.h>
#include <event.pb-c.h>
#include <string.h>
#include <time.h>

enum { POLYNOMIAL_BITS = 8, HEAD = 12, TAIL = 4 /* bytes of a record around its data */ };

struct kolo_event_file {
    char *path;
    FILE *out;
    uint32_t table[1 << POLYNOMIAL_BITS]; /* of CRC32C */
};

/* ---- records ---- */

/* CRC32C: the reflected polynomial 0x1EDC6F41 (RFC 3720, appendix B.4), byte by byte. */
static void make_table(uint32_t *table) {
    for (uint32_t i = 0; i < 1 << POLYNOMIAL_BITS; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < POLYNOMIAL_BITS; bit++) {
            crc = crc & 1 ? crc >> 1 ^ UINT32_C(0x82F63B78) : crc >> 1;
        }
        table[i] = crc;
    }
}

/* Rotated and offset, so that a CRC of data that hold CRCs is none of these. */
static uint32_t masked_crc(const kolo_event_file *f, const uint8_t *data, size_t bytes) {
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < bytes; i++) crc = f->table[(crc ^ data[i]) & 255] ^ crc >> 8;
    crc = ~crc;
    return (crc >> 15 | crc << 17) + UINT32_C(0xa282ead8);
}

static void put(uint8_t *to, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) to[i] = (uint8_t)(value >> 8 * i);
}

/* `record` has room for HEAD bytes before the data and TAIL bytes behind them. */
static kolo_status write_record(kolo_event_file *f, uint8_t *record, size_t bytes) {
    put(record, bytes, 8);
    put(record + 8, masked_crc(f, record, 8), 4);
    put(record + HEAD + bytes, masked_crc(f, record + HEAD, bytes), TAIL);
    return kolo_file_extend(f->out, f->path, record, HEAD + bytes + TAIL);
}

static kolo_status write_event(kolo_event_file *f, Tensorboard__Event *event) {
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    event->wall_time = (double)now.tv_sec + (double)now.tv_nsec / 1e9;
    size_t bytes = tensorboard__event__get_packed_size(event);
    uint8_t *record = kolo_alloc(HEAD + bytes + TAIL);
    if (!record) return KOLO_NOMEM(bytes);
    (void)tensorboard__event__pack(event, record + HEAD);
    kolo_status status = write_record(f, record, bytes);
    kolo_free(record);
    return status;
}

/* ---- the file ---- */

static kolo_status open_file(kolo_event_file *f, const char *folder) {
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    f->path = kolo_format("%s/events.out.tfevents.%010lld.%09ld.kolo", folder,
                          (long long)now.tv_sec, now.tv_nsec);
    if (!f->path) return KOLO_NOMEM(strlen(folder));
    KOLO_TRY(kolo_folder_make(folder));
    f->out = fopen(f->path, "wbe");
    if (!f->out) return kolo_file_fail("create", f->path, errno);
    Tensorboard__Event event = TENSORBOARD__EVENT__INIT;
    char version[] = "brain.Event:2";
    event.what_case = TENSORBOARD__EVENT__WHAT_FILE_VERSION;
    event.file_version = version;
    return write_event(f, &event);
}

kolo_status kolo_event_file_create(const char *folder, kolo_event_file **file) {
    kolo_event_file *f = kolo_zalloc(sizeof *f);
    if (!f) return KOLO_NOMEM(sizeof *f);
    make_table(f->table);
    kolo_status status = open_file(f, folder);
    if (status != KOLO_OK) {
        kolo_event_file_close(f);
        return status;
    }
    *file = f;
    return KOLO_OK;
}

void kolo_event_file_close(kolo_event_file *f) {
    if (!f) return;
    if (f->out) (void)fclose(f->out);
    kolo_free(f->path);
    kolo_free(f);
}

/* ---- reports ---- */

/* The values of an event, in an arena. */
typedef struct values {
    kolo_arena arena;
    Tensorboard__Summary__Value **at;
    size_t n, capacity;
    bool failed;
} values;

static void add_value(void *arg, const char *group, const char *name, int rank, double number) {
    values *v = arg;
    char tag[128];
    snprintf(tag, sizeof tag, rank < 0 ? "%s/%s" : "%s/%s_rank_%d", group, name, rank);
    Tensorboard__Summary__Value *value = kolo_arena_alloc(&v->arena, sizeof *value);
    char *copy = kolo_arena_strdup(&v->arena, tag);
    v->failed = v->failed || !value || !copy || !KOLO_GROW(v->at, v->n, v->capacity);
    if (v->failed) return;
    tensorboard__summary__value__init(value);
    value->tag = copy;
    value->value_case = TENSORBOARD__SUMMARY__VALUE__VALUE_SIMPLE_VALUE;
    value->simple_value = (float)number;
    v->at[v->n++] = value;
}

kolo_status kolo_event_file_report(kolo_event_file *f, const kolo_train_progress *progress) {
    values v = {0};
    kolo_scalars_of(progress, add_value, &v);
    Tensorboard__Summary summary = TENSORBOARD__SUMMARY__INIT;
    Tensorboard__Event event = TENSORBOARD__EVENT__INIT;
    summary.value = v.at;
    summary.n_value = v.n;
    event.step = progress->step;
    event.what_case = TENSORBOARD__EVENT__WHAT_SUMMARY;
    event.summary = &summary;
    kolo_status status = v.failed ? KOLO_NOMEM(sizeof *v.at * v.n) : write_event(f, &event);
    kolo_arena_fini(&v.arena);
    kolo_free((void *)v.at);
    return status;
}

#endif

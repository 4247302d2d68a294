/* Records on their way to and from a socket. */
#include "comm/transport/records.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>

enum { INPUT_BYTES = 4 * KOLO_SEAL_RECORD };

struct kolo_records {
    kolo_seal *seal;
    size_t out_first, out_end;
    size_t in_first, in_end;       /* received records, of which the first ones are opened */
    size_t plain_first, plain_end; /* content of the latest one opened; in `in` */
    unsigned char out[KOLO_SEAL_RECORD], in[INPUT_BYTES];
};

kolo_status kolo_records_create(const kolo_seal_keys *keys, kolo_records **records) {
    kolo_records *r = kolo_alloc(sizeof *r);
    if (!r) return KOLO_NOMEM(sizeof *r);
    r->out_first = r->out_end = r->in_first = r->in_end = r->plain_first = r->plain_end = 0;
    kolo_status status = kolo_seal_create(keys, &r->seal);
    if (status != KOLO_OK) {
        kolo_free(r);
        return status;
    }
    *records = r;
    return KOLO_OK;
}

void kolo_records_destroy(kolo_records *r) {
    if (!r) return;
    kolo_seal_destroy(r->seal);
    kolo_free(r);
}

struct iovec kolo_records_output(const kolo_records *r) {
    return (struct iovec){(unsigned char *)(uintptr_t)r->out + r->out_first,
                          r->out_end - r->out_first};
}

void kolo_records_wrote(kolo_records *r, size_t bytes) { r->out_first += bytes; }

void kolo_records_drop(kolo_records *r) { r->out_first = r->out_end = 0; }

/* A long first piece is read where it lies. */
size_t kolo_records_seal(kolo_records *r, const struct iovec *pieces, int n_pieces) {
    unsigned char *to = r->out + KOLO_SEAL_HEAD;
    const void *plain = to;
    size_t bytes = 0;
    int first = 0;
    KOLO_ASSERT(r->out_first == r->out_end);
    while (first < n_pieces - 1 && pieces[first].iov_len == 0) first++;
    if (pieces[first].iov_len >= KOLO_SEAL_PLAIN) {
        plain = pieces[first].iov_base;
        bytes = KOLO_SEAL_PLAIN;
    }
    for (int i = first; i < n_pieces && bytes < KOLO_SEAL_PLAIN; i++) {
        size_t left = KOLO_SEAL_PLAIN - bytes,
               n = pieces[i].iov_len < left ? pieces[i].iov_len : left;
        if (n > 0) memcpy(to + bytes, pieces[i].iov_base, n);
        bytes += n;
    }
    r->out_first = 0;
    r->out_end = kolo_seal_close(r->seal, plain, bytes, r->out);
    return bytes;
}

/* Opens the next record, if all of it is there. */
static bool open_next(kolo_records *r, bool *changed) {
    unsigned char *record = r->in + r->in_first;
    size_t held = r->in_end - r->in_first, size, bytes;
    if (held < KOLO_SEAL_HEAD) return false;
    size = kolo_seal_size(record);
    if (size > held) return false;
    *changed = size == 0 || !kolo_seal_open(r->seal, record, size, &bytes);
    if (*changed) return false;
    r->plain_first = r->in_first + KOLO_SEAL_HEAD;
    r->plain_end = r->plain_first + bytes;
    r->in_first += size;
    if (r->in_first == r->in_end) r->in_first = r->in_end = 0;
    return true;
}

size_t kolo_records_take(kolo_records *r, const struct iovec *pieces, int n_pieces, bool *changed) {
    size_t taken = 0;
    *changed = false;
    if (r->plain_first == r->plain_end && !open_next(r, changed)) return 0;
    for (int i = 0; i < n_pieces; i++) {
        size_t left = r->plain_end - r->plain_first;
        size_t n = pieces[i].iov_len < left ? pieces[i].iov_len : left;
        if (n > 0) memcpy(pieces[i].iov_base, r->in + r->plain_first, n);
        r->plain_first += n;
        taken += n;
    }
    return taken;
}

bool kolo_records_ready(const kolo_records *r) {
    size_t held = r->in_end - r->in_first;
    if (r->plain_first < r->plain_end) return true;
    return held >= KOLO_SEAL_HEAD && kolo_seal_size(r->in + r->in_first) <= held;
}

struct iovec kolo_records_room(kolo_records *r) {
    if (INPUT_BYTES - r->in_first < KOLO_SEAL_RECORD) {
        memmove(r->in, r->in + r->in_first, r->in_end - r->in_first);
        r->in_end -= r->in_first;
        r->in_first = 0;
    }
    return (struct iovec){r->in + r->in_end, INPUT_BYTES - r->in_end};
}

void kolo_records_filled(kolo_records *r, size_t bytes) { r->in_end += bytes; }

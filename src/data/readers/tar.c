/* Tar files: blocks of 512 bytes, a header before each member (POSIX.1-2001, pax). A name of GNU
 * tar (type L), and name and size of pax (type x), belong to the member that follows. */
#include "data/readers/tar.h"

#include "base/status.h"

#include <stdbool.h>
#include <string.h>

enum { BLOCK = 512, NAME = 100, SIZE = 124, SUM = 148, TYPE = 156, MAGIC = 257, PREFIX = 345 };
enum { MAX_NAME = 4096 };

typedef struct scanner {
    const uint8_t *bytes;
    size_t length, at; /* at: of the header */
    const char *where;
    char name[MAX_NAME]; /* of this member; of the next one, where `named` */
    bool named, sized;
    uint64_t size; /* of the next one, where `sized` */
} scanner;

static kolo_status damaged(const scanner *s, const char *what) {
    return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: offset %zu: %s: is it one whole, uncompressed tar file?",
                     s->where, s->at, what);
}

/* An octal number, or a binary one of GNU tar; false: neither, or too large. */
static bool number_of(const uint8_t *p, size_t bytes, uint64_t *value) {
    size_t i = 0;
    *value = 0;
    if (*p & 0x80) {
        for (i = 1; i < bytes; i++) {
            if (*value >> 48) return false;
            *value = *value << 8 | p[i];
        }
        return *p == 0x80;
    }
    while (i < bytes && p[i] == ' ') i++;
    for (; i < bytes && p[i] >= '0' && p[i] <= '7'; i++) *value = *value << 3 | (p[i] - '0');
    return i == bytes || p[i] == ' ' || p[i] == '\0';
}

static bool sum_is_right(const uint8_t *header) {
    uint64_t stored;
    unsigned sum = 0;
    for (int i = 0; i < BLOCK; i++) sum += i >= SUM && i < SUM + 8 ? ' ' : header[i];
    return number_of(header + SUM, 8, &stored) && stored == sum;
}

/* False: it is too long. */
static bool set_name(scanner *s, const uint8_t *text, size_t length) {
    const uint8_t *end = memchr(text, '\0', length);
    if (end) length = (size_t)(end - text);
    if (length >= sizeof s->name) return false;
    memcpy(s->name, text, length);
    s->name[length] = '\0';
    return true;
}

/* PREFIX/NAME in ustar, NAME in older ones. */
static void header_name(scanner *s, const uint8_t *header) {
    set_name(s, header, NAME);
    if (memcmp(header + MAGIC, "ustar", 6) != 0 || !header[PREFIX]) return;
    const uint8_t *prefix = header + PREFIX, *end = memchr(prefix, '\0', 155);
    const size_t length = end ? (size_t)(end - prefix) : 155;
    memmove(s->name + length + 1, s->name, strlen(s->name) + 1);
    memcpy(s->name, prefix, length);
    s->name[length] = '/';
}

/* A decimal number that ends at `end`. */
static bool decimal_of(const uint8_t *at, const uint8_t *end, uint64_t *value) {
    *value = 0;
    if (at == end || end - at > 18) return false;
    for (; at < end; at++) {
        if (*at < '0' || *at > '9') return false;
        *value = *value * 10 + (uint64_t)(*at - '0');
    }
    return true;
}

/* "path=NAME" or "size=BYTES" of a pax header; other keys are skipped. */
static bool read_record(scanner *s, const uint8_t *text, const uint8_t *end) {
    const size_t length = (size_t)(end - text);
    if (length >= 5 && memcmp(text, "path=", 5) == 0) {
        s->named = true;
        return set_name(s, text + 5, length - 5);
    }
    if (length >= 5 && memcmp(text, "size=", 5) == 0) {
        s->sized = true;
        return decimal_of(text + 5, end, &s->size);
    }
    return true;
}

/* The records of a pax header, "LENGTH KEY=VALUE\n"; false: it is damaged. */
static bool read_pax(scanner *s, const uint8_t *data, size_t size) {
    while (size > 0) {
        const uint8_t *blank = memchr(data, ' ', size);
        uint64_t record;
        if (!blank || !decimal_of(data, blank, &record) || record > size) return false;
        const uint8_t *last = data + record - 1;
        if (last <= blank || *last != '\n' || !read_record(s, blank + 1, last)) return false;
        data += record;
        size -= (size_t)record;
    }
    return true;
}

static bool is_empty(const uint8_t *block) {
    for (int i = 0; i < BLOCK; i++) {
        if (block[i]) return false;
    }
    return true;
}

/* Reads a header whose contents are `size` bytes; sets *regular. */
static kolo_status read_header(scanner *s, const uint8_t *header, size_t size, bool *regular) {
    const uint8_t *data = header + BLOCK;
    const char type = (char)header[TYPE];
    *regular = false;
    if (type == 'L') {
        s->named = true;
        return set_name(s, data, size) ? KOLO_OK : damaged(s, "a name of more than 4095 bytes");
    }
    if (type == 'x') return read_pax(s, data, size) ? KOLO_OK : damaged(s, "a damaged pax header");
    if (!s->named) header_name(s, header);
    s->named = s->sized = false;
    *regular = type == '0' || type == '\0';
    return KOLO_OK;
}

/* One header and its contents. */
static kolo_status
read_member(scanner *s, kolo_status (*each)(void *arg, const kolo_tar_member *member), void *arg) {
    const uint8_t *header = s->bytes + s->at;
    const size_t room = s->length - s->at - BLOCK;
    uint64_t size;
    bool regular;
    if (!sum_is_right(header)) return damaged(s, "no header of a member");
    if (!number_of(header + SIZE, 12, &size)) return damaged(s, "a member of unknown size");
    const bool extends = header[TYPE] == 'x' || header[TYPE] == 'L'; /* the next header */
    if (s->sized && !extends) size = s->size;
    if (size > room) return damaged(s, "the file ends within a member");
    KOLO_TRY(read_header(s, header, (size_t)size, &regular));
    const kolo_tar_member member = {s->name, s->at + BLOCK, (size_t)size};
    if (regular) KOLO_TRY(each(arg, &member));
    s->at += BLOCK + (size_t)((size + BLOCK - 1) / BLOCK * BLOCK);
    return KOLO_OK;
}

/* What follows the end mark, padding, must be zero: a hole, or an appended archive, would hide the
 * members behind it. */
static kolo_status check_padding(scanner *s) {
    while (s->at < s->length && !s->bytes[s->at]) s->at++;
    return s->at == s->length ? KOLO_OK : damaged(s, "data after the end mark");
}

kolo_status kolo_tar_each(const uint8_t *bytes, size_t length, const char *where,
                          kolo_status (*each)(void *arg, const kolo_tar_member *member),
                          void *arg) {
    scanner s = {.bytes = bytes, .length = length, .where = where};
    for (;;) {
        if (s.at > length || length - s.at < BLOCK) {
            return damaged(&s, "the file ends without an end mark");
        }
        if (is_empty(bytes + s.at)) return check_padding(&s);
        KOLO_TRY(read_member(&s, each, arg));
    }
}

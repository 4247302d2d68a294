/* The header of a .npy file. */
#include "data/readers/npy.h"

#include "base/status.h"

#include <inttypes.h>
#include <string.h>

typedef struct span {
    const char *at, *end;
} span;

static bool skip(span *s, const char *text) {
    const size_t n = strlen(text);
    while (s->at < s->end && *s->at == ' ') s->at++;
    if ((size_t)(s->end - s->at) < n || memcmp(s->at, text, n) != 0) return false;
    s->at += n;
    return true;
}

static bool number(span *s, int64_t *n) {
    while (s->at < s->end && *s->at == ' ') s->at++;
    const char *from = s->at;
    *n = 0;
    for (; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++) {
        if (*n > (INT64_C(1) << 56)) return false;
        *n = 10 * *n + (*s->at - '0');
    }
    return s->at > from;
}

/* What follows a key of the dictionary. */
static bool find(span header, const char *key, span *value) {
    const size_t n = strlen(key);
    for (const char *at = header.at; (size_t)(header.end - at) >= n; at++) {
        if (memcmp(at, key, n) != 0) continue;
        *value = (span){at + n, header.end};
        return skip(value, ":");
    }
    return false;
}

bool kolo_npy_is(const char *bytes, size_t length) {
    static const char magic[] = "\x93NUMPY";
    return length >= sizeof magic - 1 && memcmp(bytes, magic, sizeof magic - 1) == 0;
}

kolo_status kolo_npy_parse(const char *bytes, size_t length, const char *where, int64_t *rows,
                           int64_t *columns, size_t *data) {
    const uint8_t *b = (const uint8_t *)bytes;
    const bool known = length >= 12 && kolo_npy_is(bytes, length) && b[6] >= 1 && b[6] <= 3;
    if (!known) return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: not a .npy file", where);
    const size_t head = b[6] == 1 ? 10 : 12;
    size_t size = b[8] | (size_t)b[9] << 8;
    if (b[6] > 1) size |= (size_t)b[10] << 16 | (size_t)b[11] << 24;
    if (size > length - head) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: the file ends within its header: is it complete?",
                         where);
    }
    const span header = {bytes + head, bytes + head + size};
    span type, order, shape;
    if (!find(header, "'descr'", &type) || !find(header, "'fortran_order'", &order) ||
        !find(header, "'shape'", &shape)) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: the header lacks type, order or shape", where);
    }
    const bool table = skip(&type, "'<f4'") && skip(&order, "False") && skip(&shape, "(") &&
                       number(&shape, rows) && skip(&shape, ",") && number(&shape, columns) &&
                       skip(&shape, ")");
    if (!table) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "%s: not a table of two dimensions of float32 in C order: save "
                         "numpy.ascontiguousarray(table, 'float32')",
                         where);
    }
    *data = head + size;
    return KOLO_OK;
}

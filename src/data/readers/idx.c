/* The IDX reader. Elements of a plain file are read as they are needed. A gzipped one is
 * decompressed into one block of the size that its header announces; decompression stops at the
 * first byte beyond it, so a gzip bomb costs nothing. Sizes that no deflate stream of that length
 * can reach are refused before memory is allocated. */
#include "data/readers/idx.h"

#include "base/memory.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <zlib.h>

enum { HEADER_MAX = 4 + 3 * 4 };

/* Deflate encodes at most 258 bytes in two bits: the largest expansion of a stream. */
enum { DEFLATE_MAX_RATIO = 1032 };

typedef struct header {
    int64_t dim[3];
    size_t bytes;      /* of the header */
    size_t data_bytes; /* after the header */
} header;

static uint32_t big_endian_32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static const char *kind_name(uint32_t magic) {
    return magic == 0x801 ? "labels" : magic == 0x803 ? "images" : "not an IDX file of bytes";
}

static size_t header_bytes(kolo_idx_kind kind) { return 4 + 4 * (size_t)kind; }

static kolo_status read_header(const uint8_t *p, size_t length, kolo_idx_kind kind,
                               const char *where, header *h) {
    header read = {.dim = {1, 1, 1}, .bytes = header_bytes(kind)};
    uint32_t wanted = 0x800 | (uint32_t)kind;
    if (length >= 4 && big_endian_32(p) != wanted) {
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "%s: magic number 0x%08" PRIx32 " (%s), expected 0x%08" PRIx32
                         " (%s): check that this is the right file",
                         where, big_endian_32(p), kind_name(big_endian_32(p)), wanted,
                         kind_name(wanted));
    }
    if (length < read.bytes) {
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "%s: truncated: %zu bytes, the header alone takes %zu: download the "
                         "file again",
                         where, length, read.bytes);
    }
    size_t total = 1;
    for (int i = 0; i < (int)kind; i++) {
        read.dim[i] = big_endian_32(p + 4 + 4 * i);
        if (read.dim[i] == 0) {
            return KOLO_FAIL(KOLO_ERR_FORMAT,
                             "%s: dimension %d is 0, the file is empty: download it again", where,
                             i);
        }
        if (total > (size_t)PTRDIFF_MAX / (size_t)read.dim[i]) {
            return KOLO_FAIL(KOLO_ERR_FORMAT,
                             "%s: dimensions up to number %d (%" PRId64
                             ") exceed the address space: the file is damaged",
                             where, i, read.dim[i]);
        }
        total *= (size_t)read.dim[i];
    }
    read.data_bytes = total;
    *h = read;
    return KOLO_OK;
}

static kolo_status wrong_length(const char *where, const header *h, size_t found, bool more) {
    return KOLO_FAIL(KOLO_ERR_FORMAT,
                     "%s: %s: the header announces %zu bytes (%" PRId64 "x%" PRId64 "x%" PRId64
                     "), found %s%zu: download the file again",
                     where, more ? "too long" : "truncated", h->data_bytes, h->dim[0], h->dim[1],
                     h->dim[2], more ? "at least " : "", found);
}

/* State of decompressing a gzip file in memory: one or more members, back to back. */
typedef struct unpacker {
    z_stream z;
    const uint8_t *next;
    size_t left;
    const char *where;
    bool ended; /* the last member is complete and no input is left */
} unpacker;

/* Decompresses up to `want` bytes to `out`; fewer only at the end of the file. */
static kolo_status unpack(unpacker *u, uint8_t *out, size_t want, size_t *got) {
    size_t done = 0;
    while (done < want && !u->ended) {
        uInt in = u->left < UINT_MAX ? (uInt)u->left : UINT_MAX;
        uInt room = want - done < UINT_MAX ? (uInt)(want - done) : UINT_MAX;
        u->z.next_in = (Bytef *)u->next;
        u->z.avail_in = in;
        u->z.next_out = out + done;
        u->z.avail_out = room;
        int rc = inflate(&u->z, Z_NO_FLUSH);
        u->next += in - u->z.avail_in;
        u->left -= in - u->z.avail_in;
        done += room - u->z.avail_out;
        if (rc == Z_MEM_ERROR)
            return KOLO_FAIL(KOLO_ERR_NOMEM, "%s: no memory to decompress it", u->where);
        if (rc == Z_STREAM_END) {
            u->ended = u->left == 0;
            if (inflateReset(&u->z) != Z_OK) {
                return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: decompression failed", u->where);
            }
        } else if (rc == Z_BUF_ERROR || (rc == Z_OK && u->left == 0 && u->z.avail_out > 0)) {
            return KOLO_FAIL(KOLO_ERR_FORMAT,
                             "%s: truncated: the gzip stream ends early: download the file again",
                             u->where);
        } else if (rc != Z_OK) {
            return KOLO_FAIL(KOLO_ERR_FORMAT,
                             "%s: damaged gzip stream (%s): download the file again", u->where,
                             u->z.msg ? u->z.msg : "unknown cause");
        }
    }
    *got = done;
    return KOLO_OK;
}

static kolo_status parse_gzip_with(unpacker *u, size_t length, kolo_idx_kind kind, kolo_idx *idx) {
    uint8_t start[HEADER_MAX] = {0};
    header h = {0};
    size_t got = 0;
    KOLO_TRY(unpack(u, start, header_bytes(kind), &got));
    KOLO_TRY(read_header(start, got, kind, u->where, &h));
    if (h.data_bytes / DEFLATE_MAX_RATIO > length) {
        return KOLO_FAIL(
            KOLO_ERR_FORMAT,
            "%s: the header announces %zu bytes, more than %zu gzipped bytes can hold: "
            "the file is damaged",
            u->where, h.data_bytes, length);
    }
    uint8_t *data = kolo_alloc(h.data_bytes);
    if (!data) return KOLO_NOMEM(h.data_bytes);
    uint8_t extra;
    size_t more = 0;
    kolo_status status = unpack(u, data, h.data_bytes, &got);
    /* zlib verifies the length and checksum at the end of the stream. */
    if (status == KOLO_OK) status = unpack(u, &extra, 1, &more);
    if (status == KOLO_OK && got + more != h.data_bytes) {
        status = wrong_length(u->where, &h, got + more, more > 0);
    }
    if (status != KOLO_OK) {
        kolo_free(data);
        return status;
    }
    *idx = (kolo_idx){.data = data, .unpacked = data};
    memcpy(idx->dim, h.dim, sizeof h.dim);
    return KOLO_OK;
}

static kolo_status parse_gzip(const uint8_t *bytes, size_t length, kolo_idx_kind kind,
                              const char *where, kolo_idx *idx) {
    unpacker u = {.next = bytes, .left = length, .where = where};
    if (inflateInit2(&u.z, 15 + 16) != Z_OK) { /* largest window, gzip wrapper */
        return KOLO_FAIL(KOLO_ERR_NOMEM, "%s: no memory to decompress it", where);
    }
    kolo_status status = parse_gzip_with(&u, length, kind, idx);
    inflateEnd(&u.z);
    return status;
}

kolo_status kolo_idx_parse(const uint8_t *bytes, size_t length, kolo_idx_kind kind,
                           const char *where, kolo_idx *idx) {
    if (length >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b) {
        return parse_gzip(bytes, length, kind, where, idx);
    }
    header h = {0};
    KOLO_TRY(read_header(bytes, length, kind, where, &h));
    size_t found = length - h.bytes;
    if (found != h.data_bytes) return wrong_length(where, &h, found, found > h.data_bytes);
    *idx = (kolo_idx){.data = bytes + h.bytes};
    memcpy(idx->dim, h.dim, sizeof h.dim);
    return KOLO_OK;
}

static kolo_status parse_file(const char *path, kolo_idx_kind kind, kolo_idx *idx) {
    kolo_file_view view = {0};
    KOLO_TRY(kolo_file_map(path, &view));
    const kolo_status status = kolo_idx_parse(view.data, view.bytes, kind, path, idx);
    if (status == KOLO_OK && !idx->unpacked) {
        idx->begin = (uint64_t)(idx->data - (const uint8_t *)view.data);
        idx->data = NULL;
    }
    kolo_file_unmap(&view);
    return status;
}

kolo_status kolo_idx_open(const char *path, kolo_idx_kind kind, kolo_idx *idx) {
    kolo_idx parsed = {.data = NULL};
    KOLO_TRY(parse_file(path, kind, &parsed));
    if (!parsed.unpacked) KOLO_TRY(kolo_file_open(path, &parsed.file));
    *idx = parsed;
    return KOLO_OK;
}

kolo_status kolo_idx_read(const kolo_idx *idx, uint64_t first, size_t n, uint8_t *to) {
    if (idx->file) return kolo_file_read_at(idx->file, idx->begin + first, to, n);
    memcpy(to, idx->data + first, n);
    return KOLO_OK;
}

void kolo_idx_fini(kolo_idx *idx) {
    kolo_free(idx->unpacked);
    kolo_file_close(idx->file);
    *idx = (kolo_idx){0};
}

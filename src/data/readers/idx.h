#pragma once
/* IDX, the file format of MNIST: two zero bytes, an element type (8: unsigned byte), the number of
 * dimensions, each dimension as a big-endian 32-bit number, then the elements, row-major. Here:
 * images (three dimensions N,H,W) and labels (one). Gzipped files are detected by their contents.
 * Header fields are validated against the file size before use. */

#include "base/file.h"

#include <stdint.h>

typedef enum kolo_idx_kind { KOLO_IDX_LABELS = 1, KOLO_IDX_IMAGES = 3 } kolo_idx_kind;

typedef struct kolo_idx {
    int64_t dim[3];      /* N,H,W; labels: N,1,1 */
    const uint8_t *data; /* dim[0] * dim[1] * dim[2] elements; no alignment; NULL: in `file` */
    uint8_t *unpacked;   /* contents of a gzipped file; `data` points into it */
    kolo_file *file;     /* one that was opened by name and is not gzipped */
    uint64_t begin;      /* of the elements in it */
} kolo_idx;

/* Parses an IDX file in memory, which must outlive `idx` unless it is gzipped. `where` names it in
 * errors. FORMAT: not of this kind, damaged, truncated, too long; NOMEM. */
kolo_status kolo_idx_parse(const uint8_t *bytes, size_t length, kolo_idx_kind kind,
                           const char *where, kolo_idx *idx);
/* The same from a file, which stays open until fini unless it is gzipped. */
kolo_status kolo_idx_open(const char *path, kolo_idx_kind kind, kolo_idx *idx);
/* Copies elements [first, first + n). Errors of kolo_file_read_at. Any thread. */
kolo_status kolo_idx_read(const kolo_idx *idx, uint64_t first, size_t n, uint8_t *to);
/* Zeroed is allowed. */
void kolo_idx_fini(kolo_idx *idx);

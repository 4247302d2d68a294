#pragma once
/* Members of a tar file in memory. */

#include "kolo/status.h"

#include <stddef.h>
#include <stdint.h>

/* A regular file of the archive. */
typedef struct kolo_tar_member {
    const char *name; /* valid during the call */
    size_t at;        /* offset of its contents in the archive */
    size_t length;
} kolo_tar_member;

/* Calls `each` for each regular file of a tar file, in its order, until a call fails. Formats:
 * POSIX ustar and pax, GNU tar, uncompressed. `where` names the file in errors. FORMAT, with the
 * offset: damaged or truncated, or not all bytes after the end mark are zero. */
kolo_status kolo_tar_each(const uint8_t *bytes, size_t length, const char *where,
                          kolo_status (*each)(void *arg, const kolo_tar_member *member), void *arg);

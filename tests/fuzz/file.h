#pragma once
/* Any bytes as a file, for readers that take a path. Sources that include it define _GNU_SOURCE. */
#include "base/file.h"
#include "base/status.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/* The path of a file in memory with these contents, until the next call. */
static inline const char *fuzz_file(const uint8_t *bytes, size_t length) {
    static char path[32];
    static int fd = -1;
    if (fd < 0) {
        fd = memfd_create("input", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    KOLO_ASSERT(fd >= 0 && ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0);
    KOLO_ASSERT(kolo_write_all(fd, bytes, length));
    return path;
}

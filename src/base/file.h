#pragma once
/* Files: read whole, map, write atomically, make folders.
 *
 * A writer makes a temporary file beside its target; commit syncs it, renames it over the target
 * and syncs the folder, so a kill at any instant leaves the old file or the new one, never half of
 * one. A target that is no regular file (/dev/stdout, a FIFO) is written straight. Every failure
 * names the path, the system's reason and what to do about it. */

#include "base/compiler.h"
#include "kolo/status.h"

#include <stdbool.h>
#include <stdio.h>

/* The system's text for an errno value; static storage, any thread. */
KOLO_SHARED const char *kolo_errno_text(int error);
/* Writes the error slot for a system call on `path` that failed with `error`: "cannot open x: No
 * such file or directory: check the path". `verb` is "open", "read", ... Gives KOLO_ERR_IO. */
KOLO_SHARED kolo_status kolo_file_fail(const char *verb, const char *path, int error);

/* Reads the whole of a file into a block for kolo_free, with a NUL after it. FORMAT when it holds
 * more than `max_bytes`; IO when it cannot be read. */
KOLO_SHARED kolo_status kolo_file_read(const char *path, size_t max_bytes, char **data,
                                       size_t *bytes);

/* A file mapped for reading. The file must not shrink while it is mapped. */
typedef struct kolo_file_view {
    const void *data; /* never NULL, also for an empty file */
    size_t bytes;
} kolo_file_view;
KOLO_SHARED kolo_status kolo_file_map(const char *path, kolo_file_view *view);
/* Zeroed views are allowed. */
KOLO_SHARED void kolo_file_unmap(kolo_file_view *view);

/* Writes a file in one go, atomically; a device, or a pipe that is open (/dev/fd/N), as it is. IO:
 * it cannot be written, or is a named pipe. */
KOLO_SHARED kolo_status kolo_file_write(const char *path, const void *data, size_t bytes);

/* The same in pieces. */
typedef struct kolo_file_writer kolo_file_writer;
KOLO_SHARED kolo_status kolo_file_create(const char *path, kolo_file_writer **writer);
KOLO_SHARED kolo_status kolo_file_append(kolo_file_writer *writer, const void *data, size_t bytes);
/* Puts the file in its place; frees the writer, also on failure, when the old file stays. */
KOLO_SHARED kolo_status kolo_file_commit(kolo_file_writer *writer);
/* Drops what was written and frees the writer; the old file stays. NULL is allowed. */
KOLO_SHARED void kolo_file_abandon(kolo_file_writer *writer);

/* Writes all of `data` to a descriptor, through interruptions and short writes; false with errno
 * set when it cannot. */
KOLO_SHARED bool kolo_write_all(int fd, const void *data, size_t bytes);

/* Makes a folder and its parents; one that exists is fine. */
KOLO_SHARED kolo_status kolo_folder_make(const char *path);
/* Opens a text file for reading and writing, made where there is none, and locks it for as long as
 * it stays open (fclose). IO when another process has it open in this way, saying so. */
KOLO_SHARED kolo_status kolo_file_open_alone(const char *path, FILE **file);
/* Cuts an open file off behind its first `bytes`; what is written next stands there. `path` names
 * it in errors. */
KOLO_SHARED kolo_status kolo_file_cut(FILE *file, const char *path, size_t bytes);
/* Removes a file; one that is not there is no error. */
KOLO_SHARED kolo_status kolo_file_remove(const char *path);

/* Whether there is a folder, or anything at all, at a path; whether two paths lead to the same. */
KOLO_SHARED bool kolo_folder_exists(const char *path);
KOLO_SHARED bool kolo_file_exists(const char *path);
KOLO_SHARED bool kolo_file_same(const char *a, const char *b);
/* Calls `each` with the name of every entry of a folder but . and .., in no order, until it fails.
 * It may remove the entry. */
KOLO_SHARED kolo_status kolo_folder_each(const char *path,
                                         kolo_status (*each)(void *arg, const char *name),
                                         void *arg);

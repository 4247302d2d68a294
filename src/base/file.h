#pragma once
/* Files and folders: reading, mapping, atomic writing, locking.
 *
 * A writer creates a temporary file next to its target; commit syncs it, renames it over the target
 * and syncs the folder, so that a crash at any time leaves either the old or the new file. A target
 * that is not a regular file (/dev/stdout) is written directly. Errors contain the path, the
 * system's reason and a remedy. */

#include "base/compiler.h"
#include "kolo/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* The system's message for an errno value; static storage, thread-safe. */
KOLO_SHARED const char *kolo_errno_text(int error);
/* Sets the last error for a system call on `path` that failed with `error`: "cannot open x: No such
 * file or directory: check the path". `verb` is "open", "read", ... Returns KOLO_ERR_IO. */
KOLO_SHARED kolo_status kolo_file_fail(const char *verb, const char *path, int error);

/* Reads a file into a NUL-terminated block for kolo_free. FORMAT: it is larger than `max_bytes`;
 * IO: it cannot be read. */
KOLO_SHARED kolo_status kolo_file_read(const char *path, size_t max_bytes, char **data,
                                       size_t *bytes);

/* A file mapped for reading. The file must not shrink while it is mapped: the system then sends
 * SIGBUS to who reads what is gone. For files that are in use for long there is kolo_file. */
typedef struct kolo_file_view {
    const void *data; /* never NULL, not even for an empty file */
    size_t bytes;
} kolo_file_view;
KOLO_SHARED kolo_status kolo_file_map(const char *path, kolo_file_view *view);
/* A zeroed view is allowed. */
KOLO_SHARED void kolo_file_unmap(kolo_file_view *view);

/* A file whose parts are read while it is in use: what it has lost meanwhile is an error. */
typedef struct kolo_file kolo_file;
/* Opens a file, and keeps a descriptor. IO, NOMEM. */
KOLO_SHARED kolo_status kolo_file_open(const char *path, kolo_file **file);
/* Closes the descriptor of one of many files: from here on each read opens the file anew. */
KOLO_SHARED void kolo_file_release(kolo_file *file);
/* Bytes when it was opened. */
KOLO_SHARED uint64_t kolo_file_bytes(const kolo_file *file);
/* Copies the bytes from an offset on. FORMAT, naming the offset: the file was truncated, or
 * replaced by another one, since it was opened; IO: it cannot be read. Any thread. */
KOLO_SHARED kolo_status kolo_file_read_at(const kolo_file *file, uint64_t offset, void *to,
                                          size_t bytes);
/* The FORMAT error of bytes that are others than when the file was opened. */
KOLO_SHARED kolo_status kolo_file_changed(const kolo_file *file, uint64_t offset);
/* NULL is allowed. */
KOLO_SHARED void kolo_file_close(kolo_file *file);

/* Writes a file atomically; writes a device or an open pipe (/dev/fd/N) directly. IO: it cannot be
 * written, or it is a named pipe. */
KOLO_SHARED kolo_status kolo_file_write(const char *path, const void *data, size_t bytes);

/* The same, incrementally. */
typedef struct kolo_file_writer kolo_file_writer;
KOLO_SHARED kolo_status kolo_file_create(const char *path, kolo_file_writer **writer);
KOLO_SHARED kolo_status kolo_file_append(kolo_file_writer *writer, const void *data, size_t bytes);
/* Removes temporary files of this target whose writers were killed: those that live hold a lock. It
 * leaves those that it cannot read or remove. NOMEM; IO: the folder cannot be read. */
KOLO_SHARED kolo_status kolo_file_sweep(const char *path);
/* Replaces the target; on failure the old file is kept. Frees the writer in both cases. */
KOLO_SHARED kolo_status kolo_file_commit(kolo_file_writer *writer);
/* The same, but a target that exists, be it a link to nothing, is not replaced: IO. */
KOLO_SHARED kolo_status kolo_file_commit_new(kolo_file_writer *writer);
/* Discards the data and frees the writer; the old file is kept. NULL is allowed. */
KOLO_SHARED void kolo_file_abandon(kolo_file_writer *writer);

/* The same by several processes, each of which puts ranges. One creates the file and puts a mark of
 * its own at its beginning; the others join; all sync; the first commits. */
/* The temporary file, without dependence on the working folder, for kolo_free. IO: the target is
 * written directly; NOMEM. */
KOLO_SHARED kolo_status kolo_file_temporary(const kolo_file_writer *writer, char **path);
/* Opens the temporary file of another process, which must begin with `mark`. Abandon the writer
 * after use. IO: there is no such file, or another one; NOMEM. */
KOLO_SHARED kolo_status kolo_file_join(const char *temporary, uint64_t mark,
                                       kolo_file_writer **writer);
/* Writes at an offset. IO. */
KOLO_SHARED kolo_status kolo_file_put(kolo_file_writer *writer, uint64_t offset, const void *data,
                                      size_t bytes);
/* Makes what was put durable. IO. */
KOLO_SHARED kolo_status kolo_file_sync(kolo_file_writer *writer);

/* Writes all of `data` to a descriptor, retrying after interrupts and short writes; false with
 * errno set on failure. */
KOLO_SHARED bool kolo_write_all(int fd, const void *data, size_t bytes);

/* Creates a folder and its parents unless they exist. */
KOLO_SHARED kolo_status kolo_folder_make(const char *path);
/* Opens a text file for reading and writing, creating it if needed, with an exclusive lock until
 * fclose. IO: another process holds the lock. */
KOLO_SHARED kolo_status kolo_file_open_locked(const char *path, FILE **file);
/* Truncates an open file to `bytes` and seeks to its end. `path` is for errors. */
KOLO_SHARED kolo_status kolo_file_truncate(FILE *file, const char *path, size_t bytes);
/* Appends to an open file, past the stream's buffer, which must be empty. IO: the file is as
 * before. */
KOLO_SHARED kolo_status kolo_file_extend(FILE *file, const char *path, const void *data,
                                         size_t bytes);
/* The bytes that this process may still write to the file system of a path, or of its folder.
 * False: they are not known. */
KOLO_SHARED bool kolo_file_space(const char *path, uint64_t *bytes);
/* The bytes that a file takes on its disk; 0: there is none. */
KOLO_SHARED uint64_t kolo_file_disk_bytes(const char *path);
/* Removes a file; a missing one is not an error. */
KOLO_SHARED kolo_status kolo_file_remove(const char *path);

/* A path that does not depend on the working folder, for kolo_free; NULL: no memory. */
KOLO_SHARED char *kolo_file_absolute(const char *path);

/* A text that differs once the file has changed, for kolo_free. NOMEM; IO: it cannot be read. */
KOLO_SHARED kolo_status kolo_file_stamp(const char *path, char **stamp);

/* Whether a path is a folder; whether it is a file with contents of its own, no device or pipe;
 * whether it exists; the same, and a link to nothing does; whether two paths are the same file. */
KOLO_SHARED bool kolo_folder_exists(const char *path);
KOLO_SHARED bool kolo_file_regular(const char *path);
KOLO_SHARED bool kolo_file_exists(const char *path);
KOLO_SHARED bool kolo_name_exists(const char *path);
KOLO_SHARED bool kolo_file_same(const char *a, const char *b);
/* Calls `each` with the name of every entry of a folder except . and .., in no particular order,
 * until a call fails. The callback may remove the entry. */
KOLO_SHARED kolo_status kolo_folder_each(const char *path,
                                         kolo_status (*each)(void *arg, const char *name),
                                         void *arg);

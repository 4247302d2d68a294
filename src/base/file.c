/* Files and folders. Atomic writes: temporary file, fsync, rename, fsync of the folder. */
#define _GNU_SOURCE
#include "base/file.h"

#include "base/memory.h"
#include "base/rng.h"
#include "base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

const char *kolo_errno_text(int error) {
    const char *text = strerrordesc_np(error);
    return text ? text : "unknown system error";
}

static const char *advice(int error) {
    switch (error) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
        return "check the path";
    case EACCES:
    case EPERM:
        return "check its owner and permissions";
    case EROFS:
        return "choose a folder on a writable file system";
    case EFBIG:
        return "raise the limit of file sizes (ulimit -f)";
    case ENOSPC:
    case EDQUOT:
        return "free some space or choose another disk";
    case EMFILE:
    case ENFILE:
        return "raise the limit of open files (ulimit -n)";
    case ENAMETOOLONG:
        return "choose a shorter path";
    default:
        return NULL;
    }
}

kolo_status kolo_file_fail(const char *verb, const char *path, int error) {
    const char *hint = advice(error);
    return KOLO_FAIL(KOLO_ERR_IO, "cannot %s %s: %s%s%s", verb, path, kolo_errno_text(error),
                     hint ? ": " : "", hint ? hint : "");
}

/* Opens a file for reading. Rejects folders, which open() accepts, and pipes, which could block
 * forever. */
static kolo_status open_to_read(const char *path, int *fd, struct stat *info) {
    if (stat(path, info) == 0 && !S_ISREG(info->st_mode) && !S_ISDIR(info->st_mode)) {
        return KOLO_FAIL(KOLO_ERR_IO, "cannot read %s: it is a pipe or a device: give a file",
                         path);
    }
    int opened = open(path, O_RDONLY | O_CLOEXEC);
    if (opened < 0) return kolo_file_fail("open", path, errno);
    int error = fstat(opened, info) != 0 ? errno : S_ISDIR(info->st_mode) ? EISDIR : 0;
    if (error) {
        close(opened);
        return kolo_file_fail("read", path, error);
    }
    *fd = opened;
    return KOLO_OK;
}

/* Reads to the end of `fd` into a growing block; the size from fstat is only an estimate (0 in
 * /proc).
 */
static kolo_status read_all(int fd, const char *path, size_t max_bytes, size_t guess, char **data,
                            size_t *bytes) {
    size_t capacity = (guess < max_bytes ? guess : max_bytes) + 2, n = 0;
    char *block = kolo_alloc(capacity);
    if (!block) return KOLO_NOMEM(capacity);
    for (;;) {
        ssize_t got = read(fd, block + n, capacity - 1 - n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            kolo_status status = kolo_file_fail("read", path, errno);
            kolo_free(block);
            return status;
        }
        if (got == 0) break;
        n += (size_t)got;
        if (n > max_bytes) {
            kolo_free(block);
            return KOLO_FAIL(KOLO_ERR_FORMAT, "%s exceeds %zu bytes: is it the right file?", path,
                             max_bytes);
        }
        if (n < capacity - 1) continue;
        char *bigger = kolo_realloc(block, 2 * capacity);
        if (!bigger) {
            kolo_free(block);
            return KOLO_NOMEM(2 * capacity);
        }
        block = bigger;
        capacity *= 2;
    }
    block[n] = '\0';
    *data = block;
    *bytes = n;
    return KOLO_OK;
}

kolo_status kolo_file_read(const char *path, size_t max_bytes, char **data, size_t *bytes) {
    int fd = -1;
    struct stat info;
    KOLO_TRY(open_to_read(path, &fd, &info));
    size_t guess = info.st_size > 0 ? (size_t)info.st_size : 4096;
    kolo_status status = read_all(fd, path, max_bytes, guess, data, bytes);
    close(fd);
    return status;
}

kolo_status kolo_file_map(const char *path, kolo_file_view *view) {
    int fd = -1;
    struct stat info;
    KOLO_TRY(open_to_read(path, &fd, &info));
    size_t bytes = (size_t)info.st_size;
    const void *data = "";
    if (bytes > 0) data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    int error = errno;
    close(fd);
    if (data == MAP_FAILED) return kolo_file_fail("map", path, error);
    *view = (kolo_file_view){data, bytes};
    return KOLO_OK;
}

void kolo_file_unmap(kolo_file_view *view) {
    if (view->bytes > 0) munmap((void *)(uintptr_t)view->data, view->bytes);
    *view = (kolo_file_view){0};
}

struct kolo_file {
    char *path;
    int fd; /* -1: each read opens the file */
    uint64_t bytes;
    dev_t device;
    ino_t inode;
};

kolo_status kolo_file_open(const char *path, kolo_file **file) {
    struct stat info;
    kolo_file *made = kolo_zalloc(sizeof *made);
    if (!made) return KOLO_NOMEM(sizeof *made);
    made->fd = -1;
    made->path = kolo_strdup(path);
    kolo_status status =
        made->path ? open_to_read(path, &made->fd, &info) : KOLO_NOMEM(strlen(path));
    if (status != KOLO_OK) {
        kolo_file_close(made);
        return status;
    }
    made->bytes = (uint64_t)info.st_size;
    made->device = info.st_dev;
    made->inode = info.st_ino;
    *file = made;
    return KOLO_OK;
}

void kolo_file_release(kolo_file *file) {
    if (file->fd >= 0) close(file->fd);
    file->fd = -1;
}

uint64_t kolo_file_bytes(const kolo_file *file) { return file->bytes; }

/* Of the file that has the name of one without a descriptor. */
static kolo_status open_again(const kolo_file *file, uint64_t offset, int *fd) {
    struct stat info;
    KOLO_TRY(open_to_read(file->path, fd, &info));
    if (info.st_dev == file->device && info.st_ino == file->inode) return KOLO_OK;
    close(*fd);
    return KOLO_FAIL(KOLO_ERR_FORMAT,
                     "%s: offset %" PRIu64 ": replaced by another file while it was in use",
                     file->path, offset);
}

static kolo_status read_range(const kolo_file *file, int fd, uint64_t offset, char *to,
                              size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        const ssize_t got = pread(fd, to + done, bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return kolo_file_fail("read", file->path, errno);
        if (got == 0) {
            return KOLO_FAIL(KOLO_ERR_FORMAT,
                             "%s: offset %" PRIu64
                             ": truncated while it was in use: it had %" PRIu64
                             " bytes when it was opened",
                             file->path, offset, file->bytes);
        }
        done += (size_t)got;
    }
    return KOLO_OK;
}

kolo_status kolo_file_read_at(const kolo_file *file, uint64_t offset, void *to, size_t bytes) {
    if (file->fd >= 0) return read_range(file, file->fd, offset, to, bytes);
    int fd = -1;
    KOLO_TRY(open_again(file, offset, &fd));
    const kolo_status status = read_range(file, fd, offset, to, bytes);
    close(fd);
    return status;
}

kolo_status kolo_file_changed(const kolo_file *file, uint64_t offset) {
    return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: offset %" PRIu64 ": changed while it was in use",
                     file->path, offset);
}

void kolo_file_close(kolo_file *file) {
    if (!file) return;
    kolo_file_release(file);
    kolo_free(file->path);
    kolo_free(file);
}

bool kolo_write_all(int fd, const void *data, size_t bytes) {
    const char *next = data;
    while (bytes > 0) {
        ssize_t n = write(fd, next, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return false;
        next += n;
        bytes -= (size_t)n;
    }
    return true;
}

struct kolo_file_writer {
    int fd;
    char *path; /* the target, with symbolic links resolved */
    char *temp; /* NULL: the target is written directly */
};

/* Makes a rename durable. Some file systems cannot sync a folder and return EINVAL, which is
 * ignored.
 */
static int sync_folder_of(const char *path) {
    char *copy = kolo_strdup(path);
    if (!copy) return ENOMEM;
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    kolo_free(copy);
    if (fd < 0) return errno;
    int error = fsync(fd) == 0 || errno == EINVAL ? 0 : errno;
    close(fd);
    return error;
}

static void destroy_writer(kolo_file_writer *w) {
    if (w->fd >= 0) close(w->fd);
    kolo_free(w->path);
    kolo_free(w->temp);
    kolo_free(w);
}

/* The temporary file is in the target's folder, so that rename() does not cross file systems, and
 * its name contains the process id, so that two writers do not collide. */
static char *temp_name(const char *path) {
    const char *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash + 1 - path) : 0;
    return kolo_format("%.*s.%s.%ld.tmp", folder, path, path + folder, (long)getpid());
}

/* Creates a file with a lock; -1: errno. Another process may take it for one that is left, and
 * remove it, before it has the lock: then it is created again. */
static int create_locked(const char *path, mode_t mode) {
    enum { TRIES = 1000 };
    for (int left = TRIES;; left--) {
        /* A killed process with the same id may have left one. */
        unlink(path);
        const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (fd < 0) return fd;
        while (flock(fd, LOCK_EX) != 0 && errno == EINTR) continue; /* some have no locks */
        if (left == 1 || kolo_name_exists(path)) return fd;
        close(fd);
    }
}

static kolo_status open_temp(kolo_file_writer *w, mode_t mode) {
    w->temp = temp_name(w->path);
    if (!w->temp) return KOLO_NOMEM(strlen(w->path));
    w->fd = create_locked(w->temp, mode); /* until the end of the process: kolo_file_sweep */
    if (w->fd >= 0) return KOLO_OK;
    int error = errno;
    kolo_free(w->temp);
    w->temp = NULL;
    return kolo_file_fail("write", w->path, error);
}

kolo_status kolo_file_create(const char *path, kolo_file_writer **writer) {
    struct stat info;
    bool exists = stat(path, &info) == 0;
    if (exists && S_ISDIR(info.st_mode)) return kolo_file_fail("write", path, EISDIR);
    kolo_file_writer *w = kolo_alloc(sizeof *w);
    if (!w) return KOLO_NOMEM(sizeof *w);
    *w = (kolo_file_writer){.fd = -1};
    char *real = exists ? realpath(path, NULL) : NULL;
    bool pipe = real && S_ISFIFO(info.st_mode); /* a named one; an open one has no path */
    w->path = kolo_strdup(real ? real : path);
    free(real);
    kolo_status status = KOLO_OK;
    if (!w->path) {
        status = KOLO_NOMEM(strlen(path));
    } else if (pipe) {
        status = KOLO_FAIL(KOLO_ERR_IO, "cannot write %s: it is a named pipe: give a file", path);
    } else if (exists && !S_ISREG(info.st_mode)) {
        w->fd = open(path, O_WRONLY | O_CLOEXEC);
        if (w->fd < 0) status = kolo_file_fail("write", path, errno);
    } else {
        status = open_temp(w, exists ? info.st_mode & 0777 : 0666);
    }
    if (status != KOLO_OK) {
        destroy_writer(w);
        return status;
    }
    *writer = w;
    return KOLO_OK;
}

typedef struct sweep {
    const char *folder, *name; /* of the target */
} sweep;

/* ".NAME.1234.tmp" */
static bool is_temp_of(const char *entry, const char *name) {
    const size_t length = strlen(name);
    if (entry[0] != '.' || strncmp(entry + 1, name, length) != 0) return false;
    const char *id = entry + 1 + length;
    if (*id++ != '.') return false;
    const size_t digits = strspn(id, "0123456789");
    return digits > 0 && strcmp(id + digits, ".tmp") == 0;
}

/* One that cannot be removed stays, and so does what a writer has put in its place meanwhile. */
static kolo_status sweep_one(void *arg, const char *entry) {
    const sweep *s = arg;
    struct stat info, now;
    if (!is_temp_of(entry, s->name)) return KOLO_OK;
    char *path = kolo_format("%s/%s", s->folder, entry);
    if (!path) return KOLO_NOMEM(strlen(entry));
    const int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const bool left = fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
                      flock(fd, LOCK_EX | LOCK_NB) == 0;
    const bool there =
        left && lstat(path, &now) == 0 && now.st_dev == info.st_dev && now.st_ino == info.st_ino;
    if (there) (void)unlink(path);
    if (fd >= 0) close(fd);
    kolo_free(path);
    return KOLO_OK;
}

kolo_status kolo_file_sweep(const char *path) {
    char *real = realpath(path, NULL); /* as kolo_file_create */
    const char *target = real ? real : path, *slash = strrchr(target, '/');
    const int length = (int)(slash == target ? 1 : slash ? slash - target : 0);
    char *folder = length > 0 ? kolo_format("%.*s", length, target) : kolo_strdup(".");
    sweep s = {folder, slash ? slash + 1 : target};
    kolo_status status = folder ? KOLO_OK : KOLO_NOMEM(strlen(target));
    if (folder && access(folder, R_OK | X_OK) == 0 && kolo_folder_exists(folder)) {
        status = kolo_folder_each(folder, sweep_one, &s);
    }
    kolo_free(folder);
    free(real);
    return status;
}

kolo_status kolo_file_append(kolo_file_writer *w, const void *data, size_t bytes) {
    if (!kolo_write_all(w->fd, data, bytes)) return kolo_file_fail("write", w->path, errno);
    return KOLO_OK;
}

static kolo_status commit(kolo_file_writer *w, int (*move)(const char *from, const char *to)) {
    int error = 0;
    if (w->temp) {
        if (fsync(w->fd) != 0) error = errno;
        if (!error && move(w->temp, w->path) != 0) error = errno;
        if (error) unlink(w->temp);
        if (!error) error = sync_folder_of(w->path);
    }
    if (close(w->fd) != 0 && !error) error = errno;
    w->fd = -1;
    kolo_status status = error ? kolo_file_fail("write", w->path, error) : KOLO_OK;
    destroy_writer(w);
    return status;
}

kolo_status kolo_file_commit(kolo_file_writer *w) { return commit(w, rename); }

/* Unlike rename(), link() fails if the target exists. */
static int move_new(const char *from, const char *to) {
    if (link(from, to) != 0) return -1;
    unlink(from);
    return 0;
}

kolo_status kolo_file_commit_new(kolo_file_writer *w) { return commit(w, move_new); }

void kolo_file_abandon(kolo_file_writer *w) {
    if (!w) return;
    if (w->temp) unlink(w->temp);
    destroy_writer(w);
}

kolo_status kolo_file_temporary(const kolo_file_writer *w, char **path) {
    if (!w->temp) {
        return KOLO_FAIL(KOLO_ERR_IO,
                         "cannot write %s in parts: it is a pipe or a device: give a file",
                         w->path);
    }
    *path = kolo_file_absolute(w->temp);
    return *path ? KOLO_OK : KOLO_NOMEM(strlen(w->temp));
}

kolo_status kolo_file_join(const char *temporary, uint64_t mark, kolo_file_writer **writer) {
    uint64_t found = 0;
    int fd = open(temporary, O_RDWR | O_CLOEXEC);
    if (fd < 0) return kolo_file_fail("open", temporary, errno);
    bool same = pread(fd, &found, sizeof found, 0) == (ssize_t)sizeof found && found == mark;
    kolo_file_writer *w = same ? kolo_alloc(sizeof *w) : NULL;
    if (w) *w = (kolo_file_writer){.fd = fd, .path = kolo_strdup(temporary)};
    if (w && w->path) {
        *writer = w;
        return KOLO_OK;
    }
    kolo_free(w);
    close(fd);
    if (same) return KOLO_NOMEM(strlen(temporary));
    return KOLO_FAIL(KOLO_ERR_IO, "cannot open %s: there is another file of this name", temporary);
}

/* Writes all of `data` at an offset; false with errno set on failure. */
static bool put_all(int fd, uint64_t offset, const void *data, size_t bytes) {
    for (const char *next = data; bytes > 0;) {
        ssize_t n = pwrite(fd, next, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return false;
        next += n;
        offset += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return true;
}

kolo_status kolo_file_put(kolo_file_writer *w, uint64_t offset, const void *data, size_t bytes) {
    if (put_all(w->fd, offset, data, bytes)) return KOLO_OK;
    return kolo_file_fail("write", w->path, errno);
}

kolo_status kolo_file_sync(kolo_file_writer *w) {
    return fsync(w->fd) == 0 ? KOLO_OK : kolo_file_fail("write", w->path, errno);
}

kolo_status kolo_file_write(const char *path, const void *data, size_t bytes) {
    kolo_file_writer *w;
    KOLO_TRY(kolo_file_create(path, &w));
    kolo_status status = kolo_file_append(w, data, bytes);
    if (status != KOLO_OK) {
        kolo_file_abandon(w);
        return status;
    }
    return kolo_file_commit(w);
}

/* mkdir that accepts an existing folder; returns errno. */
static int make_one(const char *path) {
    if (mkdir(path, 0777) == 0) return 0;
    int error = errno;
    struct stat info;
    if (error == EEXIST && stat(path, &info) == 0) return S_ISDIR(info.st_mode) ? 0 : ENOTDIR;
    /* A parent without write permission exists too (EROFS, EACCES on "/"). */
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) return 0;
    return error;
}

kolo_status kolo_folder_make(const char *path) {
    char *part = kolo_strdup(path);
    if (!part) return KOLO_NOMEM(strlen(path));
    int error = 0;
    for (char *slash = part; *part && !error && (slash = strchr(slash + 1, '/'));) {
        *slash = '\0';
        error = make_one(part);
        *slash = '/';
    }
    if (!error) error = make_one(part);
    kolo_free(part);
    return error ? kolo_file_fail("create the folder", path, error) : KOLO_OK;
}

kolo_status kolo_file_open_locked(const char *path, FILE **file) {
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return kolo_file_fail("write", path, errno);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        int error = errno;
        close(fd);
        if (error != EWOULDBLOCK) return kolo_file_fail("lock", path, error);
        return KOLO_FAIL(KOLO_ERR_IO, "%s is being written by another job: choose another folder",
                         path);
    }
    FILE *opened = fdopen(fd, "r+");
    if (!opened) {
        int error = errno;
        close(fd);
        return kolo_file_fail("write", path, error);
    }
    *file = opened;
    return KOLO_OK;
}

kolo_status kolo_file_truncate(FILE *file, const char *path, size_t bytes) {
    if (fflush(file) != 0 || ftruncate(fileno(file), (off_t)bytes) != 0 ||
        fseeko(file, (off_t)bytes, SEEK_SET) != 0) {
        return kolo_file_fail("write", path, errno);
    }
    return KOLO_OK;
}

kolo_status kolo_file_extend(FILE *file, const char *path, const void *data, size_t bytes) {
    const int fd = fileno(file);
    struct stat info;
    if (fstat(fd, &info) != 0) return kolo_file_fail("write", path, errno);
    if (put_all(fd, (uint64_t)info.st_size, data, bytes)) return KOLO_OK;
    const int error = errno;
    (void)!ftruncate(fd, info.st_size);
    return kolo_file_fail("write", path, error);
}

bool kolo_file_space(const char *path, uint64_t *bytes) {
    char folder[PATH_MAX];
    struct statvfs fs;
    const int length = snprintf(folder, sizeof folder, "%s", path);
    if (length < 0 || (size_t)length >= sizeof folder) return false;
    if (statvfs(path, &fs) != 0 && statvfs(dirname(folder), &fs) != 0) return false;
    const uint64_t free = geteuid() == 0 ? fs.f_bfree : fs.f_bavail;
    if (fs.f_blocks == 0 || fs.f_frsize == 0) return false; /* of devices, and some others */
    *bytes = free < UINT64_MAX / fs.f_frsize ? free * fs.f_frsize : UINT64_MAX;
    return true;
}

uint64_t kolo_file_disk_bytes(const char *path) {
    enum { UNIT = 512 };
    struct stat info;
    return lstat(path, &info) == 0 && info.st_blocks > 0 ? (uint64_t)info.st_blocks * UNIT : 0;
}

kolo_status kolo_file_remove(const char *path) {
    if (unlink(path) == 0 || errno == ENOENT) return KOLO_OK;
    return kolo_file_fail("remove", path, errno);
}

char *kolo_file_absolute(const char *path) {
    char here[PATH_MAX];
    if (*path == '/' || !getcwd(here, sizeof here)) return kolo_strdup(path);
    return kolo_format("%s/%s", here, path);
}

/* The time of the last change, and a hash of the content, as the clock of files is coarse. */
kolo_status kolo_file_stamp(const char *path, char **stamp) {
    struct stat info;
    kolo_file_view view = {0};
    KOLO_TRY(kolo_file_map(path, &view));
    const uint64_t hash = kolo_hash_bytes(view.data, view.bytes);
    kolo_file_unmap(&view);
    if (stat(path, &info) != 0) return kolo_file_fail("read", path, errno);
    *stamp = kolo_format("%" PRId64 ".%09ld %016" PRIx64, (int64_t)info.st_mtim.tv_sec,
                         info.st_mtim.tv_nsec, hash);
    return *stamp ? KOLO_OK : KOLO_NOMEM(64);
}

bool kolo_folder_exists(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool kolo_file_regular(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

bool kolo_file_exists(const char *path) {
    struct stat info;
    return stat(path, &info) == 0;
}

bool kolo_name_exists(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0;
}

bool kolo_file_same(const char *a, const char *b) {
    struct stat one, other;
    return stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev &&
           one.st_ino == other.st_ino;
}

kolo_status kolo_folder_each(const char *path, kolo_status (*each)(void *arg, const char *name),
                             void *arg) {
    DIR *folder = opendir(path);
    if (!folder) return kolo_file_fail("read", path, errno);
    kolo_status status = KOLO_OK;
    for (struct dirent *entry; status == KOLO_OK && (entry = readdir(folder));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        status = each(arg, entry->d_name);
    }
    closedir(folder);
    return status;
}

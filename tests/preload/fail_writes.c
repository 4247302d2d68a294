/* A library to preload: system calls on files fail as on a full or broken disk. KOLO_FAIL is
 * "CALL PATH N ERRNO": from the N-th call of CALL (open, pwrite, fsync or rename) on a file whose
 * path contains PATH, counted from 1, all fail with ERRNO. A pwrite first writes half of its bytes.
 * "wait-pwrite": they wait until there is a file "go", and succeed if ERRNO is 0. "slow-open": each
 * takes ERRNO milliseconds, as of remote storage, and the file "opens" gets a byte for each call
 * whenever more of them are under way than ever before. "space": the file system has ERRNO KiB
 * free. With KOLO_FAIL_RANK only that rank's fail. One thread at a time writes a file. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <unistd.h>

typedef struct fault {
    char call[16], path[128];
    int from, error;
} fault;

/* The fault that is asked for, if it is of this rank. */
static bool read_fault(fault *f) {
    const char *text = getenv("KOLO_FAIL"), *only = getenv("KOLO_FAIL_RANK"),
               *rank = getenv("RANK");
    if (!text || (only && strcmp(only, rank ? rank : "") != 0)) return false;
    return sscanf(text, "%15s %127s %d %d", f->call, f->path, &f->from, &f->error) == 4;
}

/* The errno of this call, 0 if it does not fail; *first: it is the first that fails. */
static int error_of(const char *call, const char *path, bool *first) {
    static atomic_int calls;
    fault f;
    if (!read_fault(&f) || strcmp(call, f.call) != 0 || !strstr(path, f.path)) return 0;
    const int n = atomic_fetch_add(&calls, 1) + 1;
    *first = n == f.from;
    return n >= f.from ? f.error : 0;
}

static int error_of_open_file(const char *call, int fd, bool *first) {
    char link[32], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = '\0';
    return error_of(call, path, first);
}

static int fail(int error) {
    errno = error;
    return -1;
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset) {
    bool first = false, waits = false;
    const int error = error_of_open_file("pwrite", fd, &first);
    const int late = error_of_open_file("wait-pwrite", fd, &waits);
    ssize_t (*real)(int, const void *, size_t, off_t);
    *(void **)&real = dlsym(RTLD_NEXT, "pwrite");
    while (waits && access("go", F_OK) != 0) usleep(1000);
    if (late) return fail(late);
    if (error && first && bytes > 1) return real(fd, data, bytes / 2, offset);
    return error ? fail(error) : real(fd, data, bytes, offset);
}

int fsync(int fd) {
    bool first;
    const int error = error_of_open_file("fsync", fd, &first);
    int (*real)(int);
    *(void **)&real = dlsym(RTLD_NEXT, "fsync");
    return error ? fail(error) : real(fd);
}

int rename(const char *from, const char *to) {
    bool first;
    const int error = error_of("rename", from, &first);
    int (*real)(const char *, const char *);
    *(void **)&real = dlsym(RTLD_NEXT, "rename");
    return error ? fail(error) : real(from, to);
}

int statvfs(const char *path, struct statvfs *fs) {
    bool first;
    const int kib = error_of("space", path, &first);
    int (*real)(const char *, struct statvfs *);
    *(void **)&real = dlsym(RTLD_NEXT, "statvfs");
    const int status = real(path, fs);
    if (status != 0 || kib == 0) return status;
    fs->f_frsize = 1024;
    fs->f_bfree = fs->f_bavail = (fsblkcnt_t)kib;
    return 0;
}

/* Waits as an open of remote storage does, and records how many do so at once. */
static void be_slow(const char *path) {
    static atomic_int now, most;
    bool first;
    const int ms = error_of("slow-open", path, &first);
    if (ms == 0) return;
    int before = atomic_load(&most);
    const int calls = atomic_fetch_add(&now, 1) + 1;
    while (calls > before && !atomic_compare_exchange_weak(&most, &before, calls)) {
    }
    if (calls > before) {
        FILE *opens = fopen("opens", "a");
        if (opens) fputc('.', opens);
        if (opens) fclose(opens);
    }
    usleep((useconds_t)ms * 1000);
    atomic_fetch_sub(&now, 1);
}

int open(const char *path, int flags, ...) {
    bool first;
    be_slow(path);
    va_list args;
    va_start(args, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    const int error = error_of("open", path, &first);
    int (*real)(const char *, int, ...);
    *(void **)&real = dlsym(RTLD_NEXT, "open");
    return error ? fail(error) : real(path, flags, mode);
}

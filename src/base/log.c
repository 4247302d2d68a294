#define _GNU_SOURCE
#include "base/log.h"

#include "base/file.h"
#include "base/number.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const names[] = {
    [KOLO_LOG_WARN] = "warn", [KOLO_LOG_INFO] = "info", [KOLO_LOG_DEBUG] = "debug"};

/* Written once, by read_variable; `level` last. */
static struct {
    pthread_once_t once;
    _Atomic int level; /* release, acquire */
    int fd;
    kolo_status status;
    char error[256];
} log_state = {.once = PTHREAD_ONCE_INIT, .fd = STDERR_FILENO};

static kolo_log_level find_level(const char *text, size_t n) {
    for (int i = KOLO_LOG_WARN; i <= KOLO_LOG_DEBUG; i++) {
        if (strlen(names[i]) == n && strncmp(names[i], text, n) == 0) return (kolo_log_level)i;
    }
    return KOLO_LOG_OFF;
}

static void read_variable(void) {
    const char *text = getenv("KOLO_LOG");
    if (!text || !*text) return;
    size_t n = strcspn(text, ":");
    kolo_log_level level = find_level(text, n);
    if (level == KOLO_LOG_OFF) {
        log_state.status = KOLO_ERR_ARG;
        snprintf(log_state.error, sizeof log_state.error,
                 "KOLO_LOG is '%.100s': must be warn, info or debug, or one with a file "
                 "(info:FILE)",
                 text);
        return;
    }
    if (text[n] == ':') {
        int fd = open(text + n + 1, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        if (fd < 0) {
            log_state.status = KOLO_ERR_IO;
            snprintf(log_state.error, sizeof log_state.error, "KOLO_LOG: cannot open %.150s: %s",
                     text + n + 1, kolo_errno_text(errno));
            return;
        }
        log_state.fd = fd;
    }
    atomic_store_explicit(&log_state.level, level, memory_order_release);
}

kolo_status kolo_log_open(void) {
    pthread_once(&log_state.once, read_variable);
    if (log_state.status == KOLO_OK) return KOLO_OK;
    return KOLO_FAIL(log_state.status, "%s", log_state.error);
}

bool kolo_log_writes(kolo_log_level level) {
    return (int)level <= atomic_load_explicit(&log_state.level, memory_order_acquire);
}

void kolo_log_line(kolo_log_level level, int rank, const char *fmt, ...) {
    char line[1200], who[24] = "", when[40];
    struct timespec now;
    struct tm local;
    if (!kolo_log_writes(level)) return;
    clock_gettime(CLOCK_REALTIME, &now);
    size_t n = strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", localtime_r(&now.tv_sec, &local));
    snprintf(when + n, sizeof when - n, ".%03ld", now.tv_nsec / 1000000);
    if (rank >= 0) snprintf(who, sizeof who, " rank %d", rank);
    int head = snprintf(line, sizeof line, "kolo %s%s %s: ", when, who, names[level]);
    size_t used = (size_t)head;
    va_list args;
    va_start(args, fmt);
    kolo_vsnprintf(line + used, sizeof line - used - 1, fmt, args);
    va_end(args);
    used = strlen(line);
    line[used++] = '\n';
    ssize_t written = write(log_state.fd, line, used); /* one call: lines of ranks do not mix */
    (void)written;
}

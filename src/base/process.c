/* Child processes by posix_spawn, their environment, pipes, and signals through a signalfd. */
#define _GNU_SOURCE
#include "base/process.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/integer.h"
#include "base/rng.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

enum { POLL_STEP_MS = 5 }; /* polling interval for a child without a pidfd */

extern char **environ;

/* ---- environment ---- */

/* Index of `name` in the environment, or n. */
static size_t env_find(const kolo_env *env, const char *name) {
    size_t length = strlen(name), i = 0;
    while (i < env->n && (strncmp(env->vars[i], name, length) || env->vars[i][length] != '=')) i++;
    return i;
}

/* Stores `var` at index i (at most n) and keeps the terminating NULL. */
static kolo_status env_put(kolo_env *env, size_t i, char *var) {
    if (!var || !KOLO_GROW(env->vars, env->n + 1, env->capacity)) return KOLO_NOMEM(sizeof var);
    env->vars[i] = var;
    if (i == env->n) env->vars[++env->n] = NULL;
    return KOLO_OK;
}

kolo_status kolo_env_copy(kolo_env *env) {
    for (char **var = environ; var && *var; var++) {
        KOLO_TRY(env_put(env, env->n, kolo_arena_strdup(&env->arena, *var)));
    }
    return KOLO_OK;
}

kolo_status kolo_env_set(kolo_env *env, const char *name, const char *fmt, ...) {
    kolo_text text = {0};
    kolo_text_add(&text, "%s=", name);
    va_list args;
    va_start(args, fmt);
    kolo_text_addv(&text, fmt, args);
    va_end(args);
    char *var = text.failed ? NULL : kolo_arena_strdup(&env->arena, text.text);
    kolo_text_fini(&text);
    return env_put(env, env_find(env, name), var);
}

const char *kolo_env_get(const kolo_env *env, const char *name) {
    size_t i = env_find(env, name);
    return i < env->n ? env->vars[i] + strlen(name) + 1 : NULL;
}

void kolo_env_unset(kolo_env *env, const char *name) {
    size_t i = env_find(env, name);
    if (i == env->n) return;
    env->vars[i] = env->vars[--env->n];
    env->vars[env->n] = NULL;
}

void kolo_env_fini(kolo_env *env) {
    kolo_arena_fini(&env->arena);
    kolo_free(env->vars);
    *env = (kolo_env){0};
}

/* ---- children ---- */

/* Sets up the descriptors of the child. dup2 of a descriptor onto itself clears its close-on-exec
 * flag in the child, which preserves those in `keep`. */
static int add_descriptors(posix_spawn_file_actions_t *actions, const kolo_process_opts *opts) {
    const int wanted[3] = {opts->in, opts->out, opts->err};
    int error = 0;
    for (int fd = 0; fd < 3 && !error; fd++) {
        if (wanted[fd] == KOLO_FD_NULL) {
            error = posix_spawn_file_actions_addopen(actions, fd, "/dev/null", O_RDWR, 0);
        } else if (wanted[fd] != KOLO_FD_INHERIT) {
            error = posix_spawn_file_actions_adddup2(actions, wanted[fd], fd);
        }
    }
    for (int i = 0; i < opts->n_keep && !error; i++) {
        error = posix_spawn_file_actions_adddup2(actions, opts->keep[i], opts->keep[i]);
    }
    return error;
}

/* No blocked signals, and optionally a new process group. Ignored signals stay ignored, as nohup
 * requires. */
static int set_attributes(posix_spawnattr_t *attributes, const kolo_process_opts *opts) {
    sigset_t none;
    sigemptyset(&none);
    short flags = POSIX_SPAWN_SETSIGMASK;
    if (opts->own_group) flags |= POSIX_SPAWN_SETPGROUP;
    int error = posix_spawnattr_setflags(attributes, flags);
    if (!error) error = posix_spawnattr_setsigmask(attributes, &none);
    if (!error) error = posix_spawnattr_setpgroup(attributes, 0);
    return error;
}

kolo_status kolo_process_start(const kolo_process_opts *opts, kolo_process *process) {
    const char *program = opts->program ? opts->program : opts->argv[0];
    char *const *env = opts->env ? opts->env : environ;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int error = posix_spawn_file_actions_init(&actions);
    if (error) return kolo_file_fail("start", program, error);
    error = posix_spawnattr_init(&attributes);
    pid_t pid = -1;
    if (!error) {
        error = add_descriptors(&actions, opts);
        if (!error) error = set_attributes(&attributes, opts);
        if (!error) error = posix_spawnp(&pid, program, &actions, &attributes, opts->argv, env);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    if (error) return kolo_file_fail("start", program, error);
    /* A pidfd is always close-on-exec. */
    *process = (kolo_process){.pid = pid, .pidfd = (int)syscall(SYS_pidfd_open, pid, 0)};
    return KOLO_OK;
}

bool kolo_process_ended(const kolo_process *process) {
    siginfo_t info = {0};
    int rc = waitid(P_PID, (id_t)process->pid, &info, WEXITED | WNOHANG | WNOWAIT);
    return rc != 0 || info.si_pid == process->pid;
}

/* Waits for the end of a child until a deadline (-1: none) without reaping it. */
static bool wait_for_end(const kolo_process *process, int64_t deadline_ns) {
    while (!kolo_process_ended(process)) {
        int64_t left = deadline_ns < 0 ? INT64_MAX : deadline_ns - kolo_now_ns();
        if (left <= 0) return false;
        int64_t step = process->pidfd >= 0 ? 1000 : POLL_STEP_MS;
        struct pollfd ready = {.fd = process->pidfd, .events = POLLIN};
        poll(&ready, 1, (int)kolo_min_i64(step, left / 1000000 + 1));
    }
    return true;
}

kolo_status kolo_process_wait(kolo_process *process, int64_t timeout_ms, kolo_exit *how) {
    int64_t deadline = timeout_ms < 0 ? -1 : kolo_now_ns() + kolo_ms_to_ns(timeout_ms);
    if (!wait_for_end(process, deadline)) {
        return KOLO_FAIL(KOLO_ERR_TIMEOUT, "process %ld still runs after %lld ms",
                         (long)process->pid, (long long)timeout_ms);
    }
    int code;
    if (waitpid(process->pid, &code, 0) != process->pid) {
        return KOLO_FAIL(KOLO_ERR_IO, "process %ld is not a child of this process",
                         (long)process->pid);
    }
    bool killed = WIFSIGNALED(code);
    *how =
        (kolo_exit){.code = killed ? 0 : WEXITSTATUS(code), .signal = killed ? WTERMSIG(code) : 0};
    return KOLO_OK;
}

void kolo_process_signal(const kolo_process *process, int signal, bool group) {
    kill(group ? -process->pid : process->pid, signal);
}

void kolo_process_fini(kolo_process *process) {
    if (process->pidfd >= 0) close(process->pidfd);
    process->pidfd = -1;
}

void kolo_exit_describe(kolo_exit how, char *text, size_t bytes) {
    if (how.signal) {
        const char *name = sigdescr_np(how.signal);
        snprintf(text, bytes, "was killed by signal %d (%s)", how.signal, name ? name : "unknown");
    } else {
        snprintf(text, bytes, "exited with status %d", how.code);
    }
}

int kolo_processors(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    /* More processors than cpu_set_t can represent. */
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

uint64_t kolo_processors_key(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 0;
    return kolo_hash_bytes(&set, sizeof set);
}

/* The number in a file of a control group; INT64_MAX: no limit, or no such file. */
static int64_t read_limit(const char *path) {
    long long bytes;
    FILE *file = fopen(path, "re");
    bool read = file && fscanf(file, "%lld", &bytes) == 1; /* "max" does not parse */
    if (file) fclose(file);
    return read ? bytes : INT64_MAX;
}

/* The least limit of the control groups from `group` up to the root of the hierarchy. */
static int64_t least_limit(const char *root, char *group, const char *name) {
    int64_t least = INT64_MAX;
    for (;;) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s%s/%s", root, group, name);
        least = kolo_min_i64(least, read_limit(path));
        char *slash = strrchr(group, '/');
        if (!slash) return least;
        *slash = '\0';
    }
}

/* Lines of /proc/self/cgroup: "0::/group" (version 2), "4:memory:/group" (version 1). */
static int64_t group_limit(void) {
    char line[PATH_MAX];
    int64_t least = INT64_MAX;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *group = strrchr(line, ':'), *memory = strstr(line, ":memory:");
        bool second = strncmp(line, "0::", 3) == 0;
        if (!group || !(second || memory)) continue;
        int64_t limit =
            second ? least_limit("/sys/fs/cgroup", group + 1, "memory.max")
                   : least_limit("/sys/fs/cgroup/memory", group + 1, "memory.limit_in_bytes");
        least = kolo_min_i64(least, limit);
    }
    if (file) fclose(file);
    return least;
}

static _Thread_local int64_t pinned_limit;

void kolo_memory_limit_pin(int64_t bytes) { pinned_limit = bytes; }

int64_t kolo_memory_limit(void) {
    struct sysinfo info;
    if (pinned_limit > 0) return pinned_limit;
    if (sysinfo(&info) != 0) return 0;
    int64_t machine = (int64_t)((info.totalram + info.totalswap) * (uint64_t)info.mem_unit);
    return kolo_min_i64(machine, group_limit());
}

int64_t kolo_peak_rss_bytes(void) {
    /* Not getrusage first: its value starts with the peak of the parent process. */
    long long kib = 0;
    FILE *status = fopen("/proc/self/status", "re");
    char line[256];
    while (status && kib == 0 && fgets(line, sizeof line, status)) {
        if (strncmp(line, "VmHWM:", 6) == 0) kib = strtoll(line + 6, NULL, 10);
    }
    if (status) fclose(status);
    struct rusage usage;
    if (kib == 0 && getrusage(RUSAGE_SELF, &usage) == 0) kib = usage.ru_maxrss;
    return (int64_t)kib * 1024;
}

/* ---- pipes and signals ---- */

kolo_status kolo_pipe(int fds[2]) {
    if (pipe2(fds, O_CLOEXEC) != 0) return kolo_file_fail("create", "a pipe", errno);
    return KOLO_OK;
}

kolo_status kolo_signals_open(const int *signals, int n, kolo_signals *events) {
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < n; i++) sigaddset(&set, signals[i]);
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0) return kolo_file_fail("open", "a signal descriptor", errno);
    events->fd = fd;
    pthread_sigmask(SIG_BLOCK, &set, &events->before);
    return KOLO_OK;
}

int kolo_signals_next(kolo_signals *events) {
    struct signalfd_siginfo info;
    ssize_t n = read(events->fd, &info, sizeof info);
    return n == (ssize_t)sizeof info ? (int)info.ssi_signo : 0;
}

void kolo_signals_close(kolo_signals *events) {
    if (events->fd <= 0) return;
    while (kolo_signals_next(events)) continue; /* a pending one would be delivered now */
    close(events->fd);
    pthread_sigmask(SIG_SETMASK, &events->before, NULL);
    *events = (kolo_signals){.fd = -1};
}

#pragma once
/* Child processes, their environment, pipes, and signals as events.
 *
 * Children are created by posix_spawn only: a fork of a process that has run OpenMP hangs. They
 * inherit only the given descriptors, since everything Kolo opens is close-on-exec. Waiting uses a
 * pidfd (Linux 5.3) or else polls every few milliseconds. Signals used as events are blocked and
 * read from a signalfd; children start with no signal blocked. */

#include "base/compiler.h"
#include "base/memory.h"

#include <signal.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- environment ---- */

/* A modifiable copy of the environment for children. Zero-initialize it, then copy. */
typedef struct kolo_env {
    kolo_arena arena;
    char **vars; /* "NAME=value" ..., NULL at the end */
    size_t n, capacity;
} kolo_env;
/* Copies this process's environment. */
KOLO_SHARED kolo_status kolo_env_copy(kolo_env *env);
KOLO_SHARED kolo_status kolo_env_set(kolo_env *env, const char *name, const char *fmt, ...)
    KOLO_PRINTF(3, 4);
/* The value, or NULL. */
KOLO_SHARED const char *kolo_env_get(const kolo_env *env, const char *name);
KOLO_SHARED void kolo_env_unset(kolo_env *env, const char *name);
KOLO_SHARED void kolo_env_fini(kolo_env *env);

/* ---- children ---- */

enum { KOLO_FD_INHERIT = 0, KOLO_FD_NULL = -1 };

/* Zero means the default. */
typedef struct kolo_process_opts {
    const char *program; /* looked up in PATH when it has no slash; default argv[0] */
    char *const *argv;
    char *const *env; /* default this process's */
    /* Descriptors 0, 1 and 2 of the child: a descriptor of this process, KOLO_FD_INHERIT for the
     * same descriptor, KOLO_FD_NULL for /dev/null. */
    int in, out, err;
    const int *keep; /* descriptors that the child inherits under the same number */
    int n_keep;
    bool own_group; /* the child leads a new process group */
} kolo_process_opts;

typedef struct kolo_process {
    pid_t pid;
    int pidfd; /* -1: not supported by the kernel */
} kolo_process;

/* How a child ended. */
typedef struct kolo_exit {
    int code;   /* exit status if signal is 0 */
    int signal; /* the signal that killed it, or 0 */
} kolo_exit;

/* Starts a child. IO: the program cannot be executed. */
KOLO_SHARED kolo_status kolo_process_start(const kolo_process_opts *opts, kolo_process *process);
/* Waits for the child to end and reaps it. timeout_ms < 0: forever; 0: does not block. TIMEOUT: it
 * still runs. */
KOLO_SHARED kolo_status kolo_process_wait(kolo_process *process, int64_t timeout_ms,
                                          kolo_exit *how);
/* Whether the child has ended; does not reap it, so its pid and group id are not reused. */
KOLO_SHARED bool kolo_process_ended(const kolo_process *process);
/* Sends a signal to the child or to its process group; no effect after its end. */
KOLO_SHARED void kolo_process_signal(const kolo_process *process, int signal, bool group);
/* Closes the pidfd; the child is reaped or continues to run. */
KOLO_SHARED void kolo_process_fini(kolo_process *process);

/* Formats "exited with status 3" or "was killed by signal 9 (Killed)". */
KOLO_SHARED void kolo_exit_describe(kolo_exit how, char *text, size_t bytes);

/* The number of processors this process may run on, at least 1. */
KOLO_SHARED int kolo_processors(void);
/* A hash of the CPU affinity: equal for processes bound to the same processors of a machine. */
KOLO_SHARED uint64_t kolo_processors_key(void);
/* The memory that the processes of this machine may use, in bytes: physical memory and swap, or the
 * limit of this process's control group. 0: unknown. */
KOLO_SHARED int64_t kolo_memory_limit(void);
/* Test hook: the limit on this thread; 0: that of the machine. */
KOLO_SHARED void kolo_memory_limit_pin(int64_t bytes);
/* Peak resident set size of this process. */
KOLO_SHARED int64_t kolo_peak_rss_bytes(void);

/* ---- pipes and signals ---- */

/* Creates a pipe: fds[0] is the reading end; both are close-on-exec. */
KOLO_SHARED kolo_status kolo_pipe(int fds[2]);

/* Signals read as events. */
typedef struct kolo_signals {
    int fd; /* readable when a signal is pending; -1: closed */
    sigset_t before;
} kolo_signals;
/* Blocks the `n` signals in this thread and opens a descriptor that delivers them. Threads created
 * later inherit the mask; earlier ones can still be interrupted. */
KOLO_SHARED kolo_status kolo_signals_open(const int *signals, int n, kolo_signals *events);
/* The next pending signal or 0; does not block. */
KOLO_SHARED int kolo_signals_next(kolo_signals *events);
/* Discards pending signals and restores the mask. A zeroed or closed object is allowed. */
KOLO_SHARED void kolo_signals_close(kolo_signals *events);

#pragma once
/* Child processes, their environment, pipes, and signals as a descriptor.
 *
 * Children are made by posix_spawn only (a fork of a process that has run OpenMP hangs). They get
 * the descriptors that are named and no other: everything Kolo opens is close-on-exec. A child is
 * waited for by its pidfd where the kernel has them (Linux 5.3), else by asking every few
 * milliseconds. Signals that a program wants to treat as events are blocked and read from a
 * signalfd; children start with no signal blocked. */

#include "base/compiler.h"
#include "base/memory.h"

#include <signal.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- environment ---- */

/* A copy of an environment to be changed for a child. Zero-initialise, then copy. */
typedef struct kolo_env {
    kolo_arena arena;
    char **vars; /* "NAME=value" ..., NULL at the end */
    size_t n, capacity;
} kolo_env;
/* Fills `env` with this process's environment. */
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
    /* What the child has as descriptors 0, 1 and 2: a descriptor of ours, KOLO_FD_INHERIT for our
     * own, KOLO_FD_NULL for /dev/null. */
    int in, out, err;
    const int *keep; /* descriptors that the child gets under the same number */
    int n_keep;
    bool own_group; /* the child leads a process group of its own */
} kolo_process_opts;

typedef struct kolo_process {
    pid_t pid;
    int pidfd; /* -1 where the kernel has none */
} kolo_process;

/* How a child ended. */
typedef struct kolo_exit {
    int code;   /* exit status, when signal is 0 */
    int signal; /* the signal that killed it, or 0 */
} kolo_exit;

/* Starts a child. IO, with the program's name, when it cannot be executed. */
KOLO_SHARED kolo_status kolo_process_start(const kolo_process_opts *opts, kolo_process *process);
/* Waits until the child has ended, and reaps it. timeout_ms < 0: for ever; 0: does not block.
 * TIMEOUT when it still runs. */
KOLO_SHARED kolo_status kolo_process_wait(kolo_process *process, int64_t timeout_ms,
                                          kolo_exit *how);
/* True when the child has ended; does not reap it, so its id and group stay its own. */
KOLO_SHARED bool kolo_process_ended(const kolo_process *process);
/* Sends a signal to the child, or to its whole group. One that is gone is fine. */
KOLO_SHARED void kolo_process_signal(const kolo_process *process, int signal, bool group);
/* Closes the pidfd; the child must have been reaped, or is left to run. */
KOLO_SHARED void kolo_process_fini(kolo_process *process);

/* "exited with status 3", "was killed by signal 9 (Killed)", into `text`. */
KOLO_SHARED void kolo_exit_describe(kolo_exit how, char *text, size_t bytes);

/* The number of processors this process may run on, at least 1. */
KOLO_SHARED int kolo_processors(void);
/* Equal in two processes that may run on the same processors of a machine. */
KOLO_SHARED uint64_t kolo_processors_key(void);
/* The most memory that this process has had resident so far. */
KOLO_SHARED int64_t kolo_peak_rss_bytes(void);

/* ---- pipes and signals ---- */

/* fds[0] reads what is written to fds[1]; both close-on-exec. */
KOLO_SHARED kolo_status kolo_pipe(int fds[2]);

/* Signals read as events. */
typedef struct kolo_signals {
    int fd; /* readable when a signal waits; -1 when not open */
    sigset_t before;
} kolo_signals;
/* Blocks the `n` signals in this thread and opens a descriptor that delivers them. Threads made
 * later inherit the mask; threads made before would still be interrupted. */
KOLO_SHARED kolo_status kolo_signals_open(const int *signals, int n, kolo_signals *events);
/* The next waiting signal, or 0; does not block. */
KOLO_SHARED int kolo_signals_next(kolo_signals *events);
/* Drops what still waits and restores the mask. Zeroed or closed events are allowed. */
KOLO_SHARED void kolo_signals_close(kolo_signals *events);

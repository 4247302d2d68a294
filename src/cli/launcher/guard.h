#pragma once
/* The guard: a process that kills the descendants of the ranks if the launcher is killed; the
 * kernel kills the ranks themselves (launch_become_rank). It runs as `kolo __guard` and reads a
 * pipe whose only writer is the launcher: the process groups to kill when the pipe is closed. */

#include "base/process.h"

typedef struct guard {
    kolo_process process;
    int fd; /* the writing end of its pipe; -1: no guard */
} guard;

/* Starts the guard. IO: it cannot be started. */
kolo_status guard_open(guard *g);
/* Adds or removes the process group of `leader`. */
void guard_watch(const guard *g, pid_t leader);
void guard_forget(const guard *g, pid_t leader);
/* Closes the pipe and waits for the guard. A closed guard is allowed. */
void guard_close(guard *g);

/* The guard's process: reads standard input to its end. Returns the exit status. */
int guard_main(void);

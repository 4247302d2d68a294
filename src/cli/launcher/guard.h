#pragma once
/* A guard outlives the launcher for a moment: should the launcher be killed, the kernel ends the
 * ranks (launch_become_rank), and the guard what the ranks have started. It is this command again,
 * `kolo __guard`, asleep on a pipe of which the launcher alone has the other end; what it reads are
 * the process groups to end when the pipe does. */

#include "base/process.h"

typedef struct guard {
    kolo_process process;
    int fd; /* what it reads is written here; -1: no guard */
} guard;

/* Starts a guard. IO when it cannot be started. */
kolo_status guard_open(guard *g);
/* The group of that leader is to end with the launcher; or is no longer its business. */
void guard_watch(const guard *g, pid_t leader);
void guard_forget(const guard *g, pid_t leader);
/* Lets the guard end and waits for it. Closed guards are allowed. */
void guard_close(guard *g);

/* What the guard's process does: reads standard input to its end. Gives the exit status. */
int guard_main(void);

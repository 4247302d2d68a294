#pragma once
/* A temporary working folder per test, and commands started from it. */

#include "base/process.h"

/* Group set-up and tear-down: creates a folder under /tmp and enters it; leaves and removes it. */
int test_folder_enter(void **state);
int test_folder_leave(void **state);

/* The contents of a small file; the caller frees them with kolo_free. */
char *test_contents(const char *path);

/* Starts a program in a process group of its own; it is killed when this test ends. */
kolo_process test_job_start(char *const *argv);
/* Waits for a job and frees it; fails the test if the job hangs. */
kolo_exit test_job_end(kolo_process *job);

/* Descriptors that this process has open. */
int test_count_descriptors(void);

/* The time on kolo_now_ns()'s clock when an operation that starts now counts as hanging: late
 * enough that a slow or oversubscribed machine does not get there. */
int64_t test_hangs_ns(void);

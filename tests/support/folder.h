#pragma once
/* A temporary folder of the test's own to work in, and commands started from it. */

#include "base/process.h"

/* Group set-up and tear-down: makes a folder under /tmp and enters it; leaves and removes it. */
int test_folder_enter(void **state);
int test_folder_leave(void **state);

/* What a small file holds; the caller frees it with kolo_free. */
char *test_contents(const char *path);

/* Starts a program, in a process group of its own, that dies with this test. */
kolo_process test_job_start(char *const *argv);
/* Waits for a job, which must end before it counts as hanging, and frees it. */
kolo_exit test_job_end(kolo_process *job);

/* When what begins now counts as hanging: on kolo_now_ns()'s clock, so late that a slow or crowded
 * machine never gets there, which tells nothing, and a job that waits for ever does. */
int64_t test_hangs_ns(void);

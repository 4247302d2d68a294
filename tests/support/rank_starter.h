#pragma once
/* Starts ranks under the address sanitizer, for ranks.c. A program with the sanitizer takes 45 ms
 * of processor time to start, most of the time of some tests. So the test starts this program once
 * more, as the starter, which forks a process for each rank. Builds without the sanitizer start
 * each rank anew, at addresses of its own. */

#include "base/process.h"

#include <stdbool.h>

/* Sanitizers read their options when a program starts, so there is a starter for each set of them.
 */
enum { RANK_STARTERS = 2 };

/* As kolo_process_start with /proc/self/exe as the program; at most four `keep`. In the child,
 * rank_starter_main returns once the writing end of the pipe `gate` is closed: then the test may
 * have closed what the child keeps. A starter has the environment of the first rank. Aborts on a
 * failure. */
void rank_starter_start(int starter, const kolo_process_opts *opts, int gate, kolo_process *child);
/* As kolo_process_wait, for a child that rank_starter_start has started. */
kolo_status rank_starter_wait(int starter, const kolo_process *child, int64_t timeout_ms,
                              kolo_exit *how);

/* Whether this process is the starter of a test; if so, rank_starter_main() forks what the test
 * requests, and returns in the children. */
bool rank_starter_is(int argc, char **argv);
void rank_starter_main(char **argv);

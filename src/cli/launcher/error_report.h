#pragma once
/* Errors of a command, and the pipe through which a local rank reports its error to the launcher,
 * so that the launcher can print the one that matters, once. */

#include "kolo/status.h"

#include <stdbool.h>

/* The environment variable with the writing end of the pipe. */
#define REPORT_FD_ENV "KOLO_REPORT_FD"

/* Reports the last error: to the launcher if this process is a rank of launch_job, else as
 * "kolo: text" on standard error. Returns the exit status. */
int report_failure(kolo_status status);

/* Whether this process is a rank of launch_job with own_command. */
bool report_to_launcher(void);

/* Reads a rank's report after its end; KOLO_OK and NULL when there is none. The text is for
 * kolo_free. */
kolo_status report_read(int fd, kolo_status *reported, char **text);

#include "cli/launcher/error_report.h"

#include "base/memory.h"
#include "cli/output/exit_status.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

bool report_to_launcher(void) { return getenv(REPORT_FD_ENV) != NULL; }

/* A report is one write of at most PIPE_BUF bytes: the status as a character, then the text. */
static bool send_report(kolo_status status, const char *text) {
    const char *fd = getenv(REPORT_FD_ENV);
    if (!fd) return false;
    char report[PIPE_BUF];
    int n = snprintf(report, sizeof report, "%c%s", 'a' + (int)status, text);
    size_t bytes = (size_t)n < sizeof report ? (size_t)n : sizeof report - 1;
    return write((int)strtol(fd, NULL, 10), report, bytes) == (ssize_t)bytes;
}

kolo_status report_read(int fd, kolo_status *reported, char **text) {
    char report[PIPE_BUF + 1];
    ssize_t n = read(fd, report, PIPE_BUF);
    if (n < 2) return KOLO_OK;
    report[n] = '\0';
    *text = kolo_strdup(report + 1);
    if (!*text) return KOLO_NOMEM(n);
    *reported = (kolo_status)(report[0] - 'a');
    return KOLO_OK;
}

int report_failure(kolo_status status) {
    if (!send_report(status, kolo_last_error())) fprintf(stderr, "kolo: %s\n", kolo_last_error());
    return exit_status_of(status);
}

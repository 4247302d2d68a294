#pragma once
/* Messages of the library on request, for programs that cannot be edited.
 *
 * The environment variable KOLO_LOG=warn|info|debug[:FILE] selects the level, and a file instead of
 * standard error, to which all ranks of a host may append. Without it nothing is written. Messages
 * are lines; the error slot is not changed. May be used by any thread. */

#include "base/compiler.h"
#include "kolo/status.h"

#include <stdbool.h>

typedef enum kolo_log_level {
    KOLO_LOG_OFF,
    KOLO_LOG_WARN,  /* failures, rejected connections */
    KOLO_LOG_INFO,  /* a line or a few per communicator */
    KOLO_LOG_DEBUG, /* steps of joining, requests created */
} kolo_log_level;

/* Reads KOLO_LOG; the first call of the process counts. ARG: invalid; IO: the file cannot be
 * opened. */
KOLO_SHARED kolo_status kolo_log_open(void);
/* Whether messages of that level are written; false before kolo_log_open. */
KOLO_SHARED bool kolo_log_writes(kolo_log_level level);
/* Writes a message of a rank (-1: not known yet) if its level is selected. */
KOLO_SHARED void kolo_log_line(kolo_log_level level, int rank, const char *fmt, ...)
    KOLO_PRINTF(3, 4);

#pragma once
/* Exit statuses of the command. A command that a signal ended exits with 128 + the signal. */

#include "kolo/status.h"

#include <stdbool.h>

enum {
    EXIT_STATUS_FAILED = 1,
    EXIT_STATUS_USAGE = 2,            /* options that are invalid, or with this model and data */
    EXIT_STATUS_NOT_EXECUTABLE = 126, /* the program of 'kolo run', as shells report it */
    EXIT_STATUS_NOT_FOUND = 127,
    EXIT_STATUS_SIGNAL = 128,
};

static inline int exit_status_of(kolo_status status) {
    if (status == KOLO_OK) return 0;
    bool request = status == KOLO_ERR_ARG || status == KOLO_ERR_UNSUPPORTED;
    return request ? EXIT_STATUS_USAGE : EXIT_STATUS_FAILED;
}

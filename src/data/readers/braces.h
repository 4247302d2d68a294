#pragma once
/* Ranges of numbers in names of files: "a-{000..012}.tar". */

#include "kolo/status.h"

/* Calls `each` with the text for each number of its ranges, "{FIRST..LAST}", in their order, the
 * last range fastest, until a call fails. Numbers have as many digits as the longer one of FIRST
 * and LAST where one of them begins with 0. Other braces stay. ARG: FIRST is above LAST, more than
 * 2^20 texts; NOMEM. */
kolo_status kolo_braces_each(const char *text, kolo_status (*each)(void *arg, const char *text),
                             void *arg);

#pragma once
/* Range checks of numeric options. The messages name the option, its value and the allowed range.
 */

#include "base/compiler.h"
#include "kolo/status.h"

#include <stdbool.h>
#include <stdint.h>

/* ARG unless min <= value <= max. */
KOLO_SHARED kolo_status kolo_check_count(const char *what, int64_t value, int64_t min, int64_t max);

/* ARG unless min <= value <= max (min < value if `open`). Refuses NaN. */
KOLO_SHARED kolo_status kolo_check_real(const char *what, double value, double min, bool open,
                                        double max);

/* Range checks of numeric options. */
#include "base/range.h"

#include "base/status.h"

#include <inttypes.h>

kolo_status kolo_check_count(const char *what, int64_t value, int64_t min, int64_t max) {
    if (value >= min && value <= max) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, "%s is %" PRId64 ": choose %" PRId64 " to %" PRId64, what, value,
                     min, max);
}

kolo_status kolo_check_real(const char *what, double value, double min, bool open, double max) {
    if ((open ? value > min : value >= min) && value <= max) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, "%s is %g: choose a number %s %g, at most %g", what, value,
                     open ? "above" : "from", min, max);
}

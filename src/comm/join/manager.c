/* What all process managers have in common. */
#include "comm/join/manager.h"

#include "base/status.h"

#include <stdlib.h>

kolo_status kolo_manager_missing(const kolo_manager *m, int missing) {
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "rank %d: rank %d was started but has not published %s: all ranks must use "
                     "the same transport (--transport), mpi or another one",
                     m->rank, missing, missing == 0 ? "its address" : "that it joins");
}

kolo_status kolo_manager_number(const char *name, long least, long most, int *value) {
    const char *text = getenv(name);
    char *end = NULL;
    long n = text ? strtol(text, &end, 10) : 0;
    if (!text || end == text || *end || n < least || n > most) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s is '%s': must be a number from %ld to %ld", name,
                         text ? text : "", least, most);
    }
    *value = (int)n;
    return KOLO_OK;
}

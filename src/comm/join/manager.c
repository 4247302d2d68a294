/* Errors common to all process managers. */
#include "comm/join/manager.h"

#include "base/status.h"

kolo_status kolo_manager_missing(const kolo_manager *m, int missing) {
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "rank %d: rank %d was started but has not published %s: all ranks must use "
                     "the same transport (--transport), mpi or another one",
                     m->rank, missing, missing == 0 ? "its address" : "that it joins");
}

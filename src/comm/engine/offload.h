#pragma once
/* Requests that a backend carries out; see comm/transport/mpi/backend.h. */

#include "comm/engine/request.h"
#include "comm/transport/mpi/backend.h"

struct kolo_backend {
    const kolo_backend_ops *ops;
    void *state;
};

/* Prepares the backend's call for a request, and the schedule around it. UNSUPPORTED; NOMEM. */
kolo_status kolo_offload_prepare(kolo_request *q);
/* Passes the request to the backend once all that were started before have been passed; then polls
 * it. */
kolo_status kolo_offload_run(kolo_request *q, const kolo_entry *e, entry_progress *p);
/* Closes the communicator's backend, if it has one. */
void kolo_offload_close(kolo_comm *comm);

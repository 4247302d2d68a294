#pragma once
/* Selection of the algorithm and the schedules of a collective. */

#include "comm/engine/request.h"

/* The algorithm of a request: that of the options, of the communicator, or of the cost model. Only
 * an allreduce has a choice: other collectives use windows where the transport has them, and a
 * reproducible allreduce has an algorithm of its own. */
kolo_algorithm kolo_request_resolve(const kolo_request *q, const kolo_request_opts *o);
/* Builds the schedules and everything else that a collective has and a message does not. ARG: the
 * transport does not support the algorithm; UNSUPPORTED; NOMEM. */
kolo_status kolo_request_make_collective(kolo_request *q, kolo_algorithm algorithm);

#pragma once
/* Creation of a request: the part of a collective, which has schedules and a number. */

#include "comm/engine/request.h"

/* The algorithm of a request: of an allreduce the choice of `o`, the communicator or the cost
 * model; the other kinds use memory where all ranks reach it. COUNT: a reproducible allreduce. */
kolo_algorithm kolo_request_resolve(const kolo_request *q, const kolo_request_opts *o);
/* Schedules, working arrays, and what the announcement needs. ARG; NOMEM; UNSUPPORTED. */
kolo_status kolo_request_make_collective(kolo_request *q, kolo_algorithm algorithm);

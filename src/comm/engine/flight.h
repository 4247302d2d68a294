#pragma once
/* The collectives in flight: in the order of their start, and by priority. */

#include "comm/engine/request.h"

/* Adds a request, behind the last one of at least its priority. There must be room. */
void kolo_flight_add(kolo_comm *comm, kolo_request *q);
/* Removes the completed requests and publishes how far this rank is. */
void kolo_flight_retire(kolo_comm *comm);
/* Drops all requests, complete or not. */
void kolo_flight_drop(kolo_comm *comm);

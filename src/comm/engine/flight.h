#pragma once
/* The collectives in flight: in the order of their start, and by priority. */

#include "comm/engine/request.h"

/* Makes room for at least `most` collectives in flight: more than kolo_comm_opts.max_in_flight,
 * where a plan has more between POST and WAIT, so that its POSTs do not wait. Ranks may differ.
 * NOMEM. */
KOLO_SHARED kolo_status kolo_flight_reserve(kolo_comm *comm, int most);
/* Adds a request, behind the last one of at least its priority. There must be room. */
void kolo_flight_add(kolo_comm *comm, kolo_request *q);
/* Removes the completed requests and publishes how far this rank is. */
void kolo_flight_retire(kolo_comm *comm);
/* Drops all requests, complete or not. */
void kolo_flight_drop(kolo_comm *comm);

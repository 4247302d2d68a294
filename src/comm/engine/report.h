#pragma once
/* Which ranks a wait depends on: the text of deadlines, of lost ranks and of reports. */

#include "base/text.h"
#include "comm/engine/request.h"

/* The request that a wait depends on: the oldest collective in flight, else a send or receive.
 * NULL: none. */
const kolo_request *kolo_comm_oldest(const kolo_comm *comm);
/* Adds which ranks the oldest request in flight waits for, and what this rank finished last. */
void kolo_comm_describe(const kolo_comm *comm, kolo_text *text);
/* Adds what the oldest request in flight is that needs the lost `peer`, here or in another group of
 * the family, and which collective the peer has announced last there, or that its message has not
 * begun: " while waiting in barrier, sequence 3; the last collective of rank 1 was ...". If no
 * request needs it, adds its last collective here. */
void kolo_comm_describe_loss(const kolo_comm *comm, int peer, kolo_text *text);
/* Opens the signal that requests reports, if the options name one. IO. */
kolo_status kolo_report_open(const kolo_comm_opts *opts, kolo_signals *signals);
/* Writes a report if the signal has arrived. */
void kolo_report_if_signalled(kolo_comm *comm);

#pragma once
/* The numbers of the latest reports over HTTP, at the path /metrics, in Prometheus' text format. A
 * thread of its own answers; the caller never waits for it. */

#include "kolo/train.h"

typedef struct kolo_metrics_server kolo_metrics_server;

/* Listens at an address of this host (NULL: 127.0.0.1); port -1: a free one. ARG: it is no address;
 * IO: it cannot be used; UNSUPPORTED: a build without libmicrohttpd. */
kolo_status kolo_metrics_server_create(const char *address, int port, kolo_metrics_server **server);
/* The port it listens on. */
int kolo_metrics_server_port(const kolo_metrics_server *server);
/* Serves the numbers of the report from now on, beside earlier ones of other names. Does
 * not wait for readers; out of memory, a report is left out. */
void kolo_metrics_server_report(kolo_metrics_server *server, const kolo_train_progress *progress);
/* Ends the thread and all connections. NULL is allowed. */
void kolo_metrics_server_destroy(kolo_metrics_server *server);

#pragma once
/* Waits of a program that are no requests of a service, but for ranks that use it. */

#include "kolo/service.h"

/* Around a wait: this rank makes no progress meanwhile. Any thread. */
void kolo_service_begin_wait(kolo_service *service);
void kolo_service_end_wait(kolo_service *service);
/* Whether a client of a server makes progress, or has within timeout_ms (0: the service's), half of
 * which this waits for the answer, as kolo_service_await does. */
bool kolo_service_lives(kolo_service *service, int server, int64_t timeout_ms);

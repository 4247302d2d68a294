#pragma once
/* Waits of a program that are no requests of a service, but for ranks that use it. */

#include "kolo/service.h"

/* Between the two the caller only starts requests and waits for them: it makes progress itself, and
 * no thread of the library wakes up in between. */
void kolo_service_hold(kolo_service *service);
void kolo_service_release(kolo_service *service);
/* The same after requests whose replies are not needed before the next wait: sends them, and leaves
 * the replies to that wait. A thread wakes up only for what a connection does not take, and where
 * other requests were in flight before. */
void kolo_service_release_sent(kolo_service *service);
/* Around a wait: this rank makes no progress meanwhile. Any thread. */
void kolo_service_begin_wait(kolo_service *service);
void kolo_service_end_wait(kolo_service *service);
/* This rank makes progress, though one of its threads may wait. Any thread. */
void kolo_service_note_progress(kolo_service *service);
/* Whether a client of a server makes progress, or has within timeout_ms (0: the service's), half of
 * which this waits for the answer, as kolo_service_await does. */
bool kolo_service_has_progress(kolo_service *service, int server, int64_t timeout_ms);

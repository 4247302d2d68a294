#pragma once
/* Communicators in a forked child.
 *
 * A child has copies of its parent's communicators, but not its threads, and it is not a rank. So
 * they are inert there: all calls fail, destroying frees nothing, and the descriptors are closed,
 * so that peers detect the end of the parent even while the child lives. */

#include "comm/engine/comm.h"

/* Adds a whole group to the list of communicators that become inert after a fork; removes it. Never
 * fails: without memory for the fork handlers children stay as they are. */
void kolo_fork_register(kolo_comm *whole);
void kolo_fork_forget(kolo_comm *whole);
/* Adds a service to its group; removes it. */
void kolo_fork_add_service(kolo_comm *whole, kolo_service_link *service);
void kolo_fork_remove_service(kolo_comm *whole, kolo_service_link *service);

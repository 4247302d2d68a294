#pragma once
/* Stream sockets with deadlines. All are close-on-exec and non-blocking; no call raises SIGPIPE. */

#include "kolo/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KOLO_ADDRESS_BYTES = 64 }; /* of a numeric address, IPv4 or IPv6 with its scope */

/* A socket that listens at an address or name of this host; port 0: one that the kernel picks. A
 * name that is nobody's here (a service in front of this host) means all addresses. ARG, IO. */
kolo_status kolo_socket_listen_tcp(const char *address, int port, int *fd);
/* One attempt to connect to an address or name; PEER when nobody listens there or no way leads
 * there (yet), TIMEOUT, IO. */
kolo_status kolo_socket_connect_tcp(const char *address, int port, int64_t deadline_ns, int *fd);
/* The address and port of this end of a connection or of a listening socket. IO. */
kolo_status kolo_socket_own_address(int fd, char address[KOLO_ADDRESS_BYTES], int *port);
/* True when both ends of a connection have one address: the other end is on this host. */
bool kolo_socket_same_host(int fd);
/* This host's address on a network, and unless NULL the name of its interface there: `wanted` is
 * such a name ("eth1") or the start of an address ("10.1."). ARG, with what there is, when nothing
 * fits. */
kolo_status kolo_socket_find_address(const char *wanted, char address[KOLO_ADDRESS_BYTES],
                                     char interface[KOLO_ADDRESS_BYTES]);
/* All of this host's addresses at which others may reach it, by commas: those of version 4, or
 * where there are none, of version 6. `any` is the address to listen at for all of them. ARG: none.
 */
kolo_status kolo_socket_all_addresses(char *list, size_t bytes, const char **any);
/* For connections that carry collectives: nothing is held back for more to come, and data that
 * nobody acknowledges for so long ends the connection. */
void kolo_socket_tune(int fd, int64_t silence_ms);
/* The same with a name in the abstract namespace of local sockets, which leaves nothing behind. */
kolo_status kolo_socket_listen_local(const char *name, int *fd);
kolo_status kolo_socket_connect_local(const char *name, int64_t deadline_ns, int *fd);
/* Makes a socket that came from outside like ours. */
kolo_status kolo_socket_adopt(int fd);

/* Sends or receives exactly `bytes`, with a descriptor when `passed` is not NULL (recv: -1 if none
 * came). PEER: the other side has closed; TIMEOUT; IO. */
kolo_status kolo_socket_send(int fd, const void *data, size_t bytes, const int *passed,
                             int64_t deadline_ns);
kolo_status kolo_socket_recv(int fd, void *data, size_t bytes, int *passed, int64_t deadline_ns);
/* True when the other side has closed the connection. Never blocks. */
bool kolo_socket_closed(int fd);
/* True when the other end of a local socket belongs to this process's user. */
bool kolo_socket_same_user(int fd);

/* Milliseconds until the deadline for poll(), at least 0. */
int kolo_left_ms(int64_t deadline_ns);

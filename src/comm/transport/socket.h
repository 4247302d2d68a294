#pragma once
/* Stream sockets with deadlines. All are close-on-exec and non-blocking; no call raises SIGPIPE. */

#include "base/compiler.h"
#include "kolo/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KOLO_ADDRESS_BYTES = 64 }; /* of a numeric address, IPv4 or IPv6 with its scope */

/* Listens at an address or name of this host; port 0: chosen by the kernel. If the name has no
 * address of this host (a service in front of it), listens at all addresses. ARG, IO. */
kolo_status kolo_socket_listen_tcp(const char *address, int port, int *fd);
/* Listens at an address of this host, never at others. ARG, IO. */
KOLO_SHARED kolo_status kolo_socket_listen_only(const char *address, int port, int *fd);
/* Makes one attempt to connect to an address or name. PEER if the connection is refused or the
 * address unreachable, TIMEOUT, IO. */
kolo_status kolo_socket_connect_tcp(const char *address, int port, int64_t deadline_ns, int *fd);
/* Gets the local address and port of a socket. IO. */
KOLO_SHARED kolo_status kolo_socket_own_address(int fd, char address[KOLO_ADDRESS_BYTES],
                                                int *port);
/* Gets the address of the other end of a TCP connection; false for other sockets. */
bool kolo_socket_peer_address(int fd, char address[KOLO_ADDRESS_BYTES]);
/* True if both ends of a connection have the same address, so are on this host. */
bool kolo_socket_same_host(int fd);
/* Finds an address of this host, and unless NULL the name of its interface: `wanted` is the name of
 * an interface ("eth1") or the start of an address ("10.1."). ARG if there is none; the error lists
 * what exists. */
kolo_status kolo_socket_find_address(const char *wanted, char address[KOLO_ADDRESS_BYTES],
                                     char interface[KOLO_ADDRESS_BYTES]);
/* Lists the addresses of this host, separated by commas: those of IPv4, or if there are none, of
 * IPv6, or if there are none, that of loopback. `any` is the address to listen at. IO. */
kolo_status kolo_socket_all_addresses(char *list, size_t bytes, const char **any);
/* Options for connections that carry collectives: no Nagle delay, and the connection ends if data
 * is not acknowledged for `timeout_ms`. */
void kolo_socket_tune(int fd, int64_t timeout_ms);
/* The connection ends if the other host does not answer for about `timeout_ms`, also while nothing
 * is sent: the kernel probes it. */
void kolo_socket_keep_alive(int fd, int64_t timeout_ms);
/* Local sockets with a name in the abstract namespace, which leaves no file. */
kolo_status kolo_socket_listen_local(const char *name, int *fd);
kolo_status kolo_socket_connect_local(const char *name, int64_t deadline_ns, int *fd);
/* Makes an inherited socket non-blocking and close-on-exec. */
kolo_status kolo_socket_adopt(int fd);

/* Sends or receives exactly `bytes`, with a descriptor if `passed` is not NULL (recv: -1 if there
 * was none). PEER: closed by the other side, or its host does not answer; TIMEOUT; IO. */
kolo_status kolo_socket_send(int fd, const void *data, size_t bytes, const int *passed,
                             int64_t deadline_ns);
kolo_status kolo_socket_recv(int fd, void *data, size_t bytes, int *passed, int64_t deadline_ns);
/* Waits until there is something to receive, which may be the end of the connection; false at the
 * deadline. */
bool kolo_socket_readable(int fd, int64_t deadline_ns);
KOLO_SHARED void kolo_socket_close(int fd);
/* True if the other side has closed the connection. Never blocks. */
bool kolo_socket_closed(int fd);
/* True if the other end of a local socket belongs to this process's user. */
bool kolo_socket_same_user(int fd);

/* Milliseconds until the deadline for poll(), at least 0. */
int kolo_left_ms(int64_t deadline_ns);

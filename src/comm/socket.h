#pragma once
/* Stream sockets with deadlines. All are close-on-exec and non-blocking; no call raises SIGPIPE. */

#include "base/base.h"

/* A socket that listens on a loopback address; IO. */
kolo_status kolo_socket_listen_tcp(const char *address, int port, int *fd);
/* One attempt to connect; PEER when nobody listens there (yet), TIMEOUT, IO. */
kolo_status kolo_socket_connect_tcp(const char *address, int port, int64_t deadline_ns, int *fd);
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

/* Stream sockets with deadlines: TCP, and local sockets in the abstract namespace. */
#define _GNU_SOURCE
#include "comm/transport/socket.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/integer.h"
#include "base/status.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    BACKLOG = 1024,
    KIND = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
    UNSENT_BYTES = 256 << 10,
};

typedef union any_address {
    struct sockaddr any;
    struct sockaddr_in tcp;
    struct sockaddr_in6 tcp6;
    struct sockaddr_un local;
} any_address;

int kolo_left_ms(int64_t deadline_ns) {
    int64_t left = (deadline_ns - kolo_now_ns() + 999999) / 1000000;
    return left < 0 ? 0 : (int)kolo_min_i64(left, INT32_MAX);
}

/* Resolves an address or name; `n` is the length of the result. */
static kolo_status tcp_address(const char *text, int port, any_address *address, socklen_t *n) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    int error = getaddrinfo(text, service, &hints, &found);
    if (error != 0 || found->ai_addrlen > sizeof *address) {
        if (found) freeaddrinfo(found);
        bool later = error == EAI_AGAIN;
        return KOLO_FAIL(later ? KOLO_ERR_PEER : KOLO_ERR_ARG, "cannot resolve '%s' (%s)", text,
                         error ? gai_strerror(error) : "too long");
    }
    /* If a name has addresses of both kinds, prefer IPv4, as most clusters use it. */
    const struct addrinfo *best = found;
    for (const struct addrinfo *i = found; i; i = i->ai_next) {
        if (i->ai_family == AF_INET && best->ai_family != AF_INET) best = i;
    }
    *n = best->ai_addrlen;
    *address = (any_address){0};
    memcpy(address, best->ai_addr, *n);
    freeaddrinfo(found);
    return KOLO_OK;
}

static socklen_t local_address(const char *name, any_address *address) {
    *address = (any_address){.local.sun_family = AF_UNIX};
    size_t n = strlen(name);
    KOLO_ASSERT(n + 1 <= sizeof address->local.sun_path);
    memcpy(address->local.sun_path + 1, name, n); /* the leading NUL makes it abstract */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

/* Returns a listening socket, or -1 with errno. */
static int listen_at(const any_address *address, socklen_t n) {
    int fd = socket(address->any.sa_family, KIND, 0), one = 1;
    if (fd < 0) return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, &address->any, n) == 0 && listen(fd, BACKLOG) == 0) return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static kolo_status wait_for(int fd, short events, int64_t deadline_ns) {
    for (;;) {
        struct pollfd p = {.fd = fd, .events = events};
        int n = poll(&p, 1, kolo_left_ms(deadline_ns));
        if (n > 0) return KOLO_OK;
        if (n == 0) return KOLO_FAIL(KOLO_ERR_TIMEOUT, "the deadline has passed");
        if (errno != EINTR) return KOLO_FAIL(KOLO_ERR_IO, "poll: %s", kolo_errno_text(errno));
    }
}

static kolo_status connect_at(const any_address *address, socklen_t n, int64_t deadline_ns,
                              int *out) {
    int fd = socket(address->any.sa_family, KIND, 0), error = 0;
    if (fd < 0) return KOLO_FAIL(KOLO_ERR_IO, "socket: %s", kolo_errno_text(errno));
    kolo_status status = KOLO_OK;
    if (connect(fd, &address->any, n) != 0) {
        error = errno;
        if (error == EINPROGRESS || error == EINTR) {
            socklen_t size = sizeof error;
            status = wait_for(fd, POLLOUT, deadline_ns);
            if (status == KOLO_OK && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
                error = errno;
            }
        }
    }
    if (status == KOLO_OK && error != 0) {
        bool refused = error == ECONNREFUSED || error == ECONNRESET || error == EAGAIN ||
                       error == EHOSTUNREACH || error == ENETUNREACH || error == ETIMEDOUT;
        status = KOLO_FAIL(refused ? KOLO_ERR_PEER : KOLO_ERR_IO, "cannot connect: %s",
                           kolo_errno_text(error));
    }
    if (status != KOLO_OK) {
        close(fd);
        return status;
    }
    *out = fd;
    return KOLO_OK;
}

kolo_status kolo_socket_listen_tcp(const char *address, int port, int *fd) {
    any_address where;
    socklen_t n;
    KOLO_TRY(tcp_address(address, port, &where, &n));
    int made = listen_at(&where, n);
    if (made < 0 && errno == EADDRNOTAVAIL) {
        if (where.any.sa_family == AF_INET) {
            where.tcp.sin_addr.s_addr = htonl(INADDR_ANY);
        } else {
            where.tcp6.sin6_addr = in6addr_any;
        }
        made = listen_at(&where, n);
    }
    if (made < 0) {
        return KOLO_FAIL(KOLO_ERR_IO, "cannot listen on %s:%d: %s%s", address, port,
                         kolo_errno_text(errno),
                         errno == EADDRINUSE ? "; choose another MASTER_PORT" : "");
    }
    *fd = made;
    return KOLO_OK;
}

kolo_status kolo_socket_listen_only(const char *address, int port, int *fd) {
    any_address where;
    socklen_t n;
    KOLO_TRY(tcp_address(address, port, &where, &n));
    int made = listen_at(&where, n);
    if (made < 0) {
        return KOLO_FAIL(KOLO_ERR_IO, "cannot listen on %s:%d: %s: choose another address or port",
                         address, port, kolo_errno_text(errno));
    }
    *fd = made;
    return KOLO_OK;
}

kolo_status kolo_socket_connect_tcp(const char *address, int port, int64_t deadline_ns, int *fd) {
    any_address where;
    socklen_t n;
    KOLO_TRY(tcp_address(address, port, &where, &n));
    return connect_at(&where, n, deadline_ns, fd);
}

static bool print_address(const struct sockaddr *address, socklen_t n,
                          char text[KOLO_ADDRESS_BYTES]) {
    return getnameinfo(address, n, text, KOLO_ADDRESS_BYTES, NULL, 0, NI_NUMERICHOST) == 0;
}

kolo_status kolo_socket_own_address(int fd, char address[KOLO_ADDRESS_BYTES], int *port) {
    any_address own = {.any.sa_family = AF_UNSPEC};
    socklen_t n = sizeof own;
    if (getsockname(fd, &own.any, &n) != 0 || !print_address(&own.any, n, address)) {
        return KOLO_FAIL(KOLO_ERR_IO, "cannot get the address of a socket: %s",
                         kolo_errno_text(errno));
    }
    *port = ntohs(own.any.sa_family == AF_INET ? own.tcp.sin_port : own.tcp6.sin6_port);
    return KOLO_OK;
}

bool kolo_socket_peer_address(int fd, char address[KOLO_ADDRESS_BYTES]) {
    any_address peer = {.any.sa_family = AF_UNSPEC};
    socklen_t n = sizeof peer;
    return getpeername(fd, &peer.any, &n) == 0 && peer.any.sa_family != AF_UNIX &&
           print_address(&peer.any, n, address);
}

bool kolo_socket_same_host(int fd) {
    char own[KOLO_ADDRESS_BYTES], other[KOLO_ADDRESS_BYTES];
    int unused;
    return kolo_socket_peer_address(fd, other) &&
           kolo_socket_own_address(fd, own, &unused) == KOLO_OK && strcmp(own, other) == 0;
}

kolo_status kolo_socket_find_address(const char *wanted, char address[KOLO_ADDRESS_BYTES],
                                     char interface[KOLO_ADDRESS_BYTES]) {
    struct ifaddrs *all;
    if (getifaddrs(&all) != 0) {
        return KOLO_FAIL(KOLO_ERR_IO, "cannot list the network interfaces: %s",
                         kolo_errno_text(errno));
    }
    char there[256] = "";
    size_t used = 0;
    bool found = false;
    for (const struct ifaddrs *i = all; i && !found; i = i->ifa_next) {
        int family = i->ifa_addr ? i->ifa_addr->sa_family : 0;
        bool inet = family == AF_INET || family == AF_INET6;
        socklen_t n = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        char text[KOLO_ADDRESS_BYTES];
        if (!inet || !(i->ifa_flags & IFF_UP) || !print_address(i->ifa_addr, n, text)) continue;
        found = strcmp(i->ifa_name, wanted) == 0 || strncmp(text, wanted, strlen(wanted)) == 0;
        if (found) {
            memcpy(address, text, sizeof text);
            if (interface) snprintf(interface, KOLO_ADDRESS_BYTES, "%s", i->ifa_name);
        } else if (used < sizeof there) {
            used += (size_t)snprintf(there + used, sizeof there - used, "%s%s %s", used ? ", " : "",
                                     i->ifa_name, text);
        }
    }
    freeifaddrs(all);
    if (found) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, "no network interface or address matches '%s'; available: %s",
                     wanted, there);
}

/* True for an address that other hosts can use. */
static bool is_reachable(const struct ifaddrs *i, int family) {
    if (!i->ifa_addr || i->ifa_addr->sa_family != family) return false;
    if (!(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK)) return false;
    const struct sockaddr_in6 *six = (const void *)i->ifa_addr;
    return family == AF_INET || !IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr);
}

kolo_status kolo_socket_all_addresses(char *list, size_t bytes, const char **any) {
    struct ifaddrs *all;
    if (getifaddrs(&all) != 0) {
        return KOLO_FAIL(KOLO_ERR_IO, "cannot list the network interfaces: %s",
                         kolo_errno_text(errno));
    }
    size_t used = 0;
    for (int pass = 0; pass < 2 && used == 0; pass++) {
        int family = pass == 0 ? AF_INET : AF_INET6;
        socklen_t n = pass == 0 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        *any = pass == 0 ? "0.0.0.0" : "::";
        for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
            char text[KOLO_ADDRESS_BYTES];
            if (!is_reachable(i, family) || !print_address(i->ifa_addr, n, text)) continue;
            if (used + strlen(text) + 2 > bytes) break;
            used += (size_t)snprintf(list + used, bytes - used, "%s%s", used ? "," : "", text);
        }
    }
    freeifaddrs(all);
    if (used > 0) return KOLO_OK;
    *any = "127.0.0.1"; /* all ranks must be on this host */
    snprintf(list, bytes, "%s", *any);
    return KOLO_OK;
}

void kolo_socket_tune(int fd, int64_t timeout_ms) {
    int one = 1;
    unsigned ms = (unsigned)kolo_min_i64(timeout_ms, INT32_MAX);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
    /* Enough to keep a link busy until this process runs again. More would delay urgent frames, and
     * the kernel processes no acknowledgements while a long write fills the buffer. */
    int unsent = UNSENT_BYTES;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
}

void kolo_socket_keep_alive(int fd, int64_t timeout_ms) {
    enum { PROBES = 3 };
    int one = 1, probes = PROBES;
    unsigned ms = (unsigned)kolo_min_i64(timeout_ms, INT32_MAX);
    int seconds = (int)kolo_max_i64(1, ms / 1000 / (PROBES + 1));
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
}

kolo_status kolo_socket_listen_local(const char *name, int *fd) {
    any_address address;
    socklen_t n = local_address(name, &address);
    int made = listen_at(&address, n);
    if (made < 0)
        return KOLO_FAIL(KOLO_ERR_IO, "cannot listen on a local socket: %s",
                         kolo_errno_text(errno));
    *fd = made;
    return KOLO_OK;
}

kolo_status kolo_socket_connect_local(const char *name, int64_t deadline_ns, int *fd) {
    any_address address;
    socklen_t n = local_address(name, &address);
    return connect_at(&address, n, deadline_ns, fd);
}

kolo_status kolo_socket_adopt(int fd) {
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
        fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
        return KOLO_FAIL(KOLO_ERR_IO, "descriptor %d: %s", fd, kolo_errno_text(errno));
    }
    return KOLO_OK;
}

/* Classifies the errno of send or recv: retry (OK), connection closed, or another error. */
static kolo_status after_failure(int fd, short events, int64_t deadline_ns) {
    if (errno == EINTR) return KOLO_OK;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return wait_for(fd, events, deadline_ns);
    if (errno == ECONNRESET || errno == EPIPE) {
        return KOLO_FAIL(KOLO_ERR_PEER, "the connection was closed");
    }
    if (errno == ETIMEDOUT || errno == EHOSTUNREACH || errno == ENETUNREACH) {
        return KOLO_FAIL(KOLO_ERR_PEER, "its host does not answer (%s)", kolo_errno_text(errno));
    }
    return KOLO_FAIL(KOLO_ERR_IO, "connection: %s", kolo_errno_text(errno));
}

/* A control message with one descriptor. */
typedef union fd_message {
    struct cmsghdr header;
    char space[CMSG_SPACE(sizeof(int))];
} fd_message;

kolo_status kolo_socket_send(int fd, const void *data, size_t bytes, const int *passed,
                             int64_t deadline_ns) {
    size_t done = 0;
    while (done < bytes) {
        struct iovec piece = {(char *)data + done, bytes - done};
        struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
        fd_message control = {.header = {.cmsg_len = CMSG_LEN(sizeof(int)),
                                         .cmsg_level = SOL_SOCKET,
                                         .cmsg_type = SCM_RIGHTS}};
        if (passed && done == 0) {
            memcpy(CMSG_DATA(&control.header), passed, sizeof *passed);
            message.msg_control = &control;
            message.msg_controllen = sizeof control;
        }
        ssize_t n = sendmsg(fd, &message, MSG_NOSIGNAL);
        if (n < 0) {
            KOLO_TRY(after_failure(fd, POLLOUT, deadline_ns));
        } else {
            done += (size_t)n;
        }
    }
    return KOLO_OK;
}

/* Takes the descriptor of a message; closes any others. */
static void take_passed(struct msghdr *message, int *passed) {
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (passed && *passed < 0) {
                *passed = fd;
            } else {
                close(fd);
            }
        }
    }
}

kolo_status kolo_socket_recv(int fd, void *data, size_t bytes, int *passed, int64_t deadline_ns) {
    size_t done = 0;
    int passed_fd = -1;
    kolo_status status = KOLO_OK;
    while (done < bytes && status == KOLO_OK) {
        struct iovec piece = {(char *)data + done, bytes - done};
        fd_message control;
        struct msghdr message = {.msg_iov = &piece,
                                 .msg_iovlen = 1,
                                 .msg_control = &control,
                                 .msg_controllen = sizeof control};
        ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
        if (n > 0) {
            take_passed(&message, passed ? &passed_fd : NULL);
            done += (size_t)n;
        } else if (n == 0) {
            status = KOLO_FAIL(KOLO_ERR_PEER, "the connection was closed");
        } else {
            status = after_failure(fd, POLLIN, deadline_ns);
        }
    }
    if (status != KOLO_OK && passed_fd >= 0) close(passed_fd);
    if (status == KOLO_OK && passed) *passed = passed_fd;
    return status;
}

bool kolo_socket_readable(int fd, int64_t deadline_ns) {
    return wait_for(fd, POLLIN, deadline_ns) == KOLO_OK;
}

void kolo_socket_close(int fd) { close(fd); }

bool kolo_socket_closed(int fd) {
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

bool kolo_socket_same_user(int fd) {
    struct ucred peer;
    socklen_t n = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 && peer.uid == geteuid();
}

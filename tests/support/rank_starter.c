#define _GNU_SOURCE
#include "support/rank_starter.h"

#include "base/status.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KEEP_MOST = 4, FIXED = 6, FDS_MOST = FIXED + KEEP_MOST, FREE_FROM = 100 };

#define NAME "rank-starter" /* argv[0] */

/* To start a rank, with descriptors: its working folder, 0, 1, 2, its environment, the gate, and
 * those that it keeps. Or to wait for one. */
typedef struct request {
    pid_t wait_for; /* 0: start */
    int keep[KEEP_MOST], n_keep;
} request;

static int channels[RANK_STARTERS]; /* to the starters; 0: not started */

/* ---- the test ---- */

/* Starts a starter and returns the channel to it. It ends when this process does. */
static int start_starter(char *const *env) {
    int pair[2];
    char number[16];
    kolo_process starter;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) abort();
    snprintf(number, sizeof number, "%d", pair[1]);
    const kolo_process_opts opts = {.program = "/proc/self/exe",
                                    .argv = (char *[]){(char[]){NAME}, number, NULL},
                                    .env = env,
                                    .keep = &pair[1],
                                    .n_keep = 1};
    if (kolo_process_start(&opts, &starter) != KOLO_OK) abort();
    kolo_process_fini(&starter);
    close(pair[1]);
    return pair[0];
}

/* A file with the variables, each with its terminating zero. */
static int environment_file(char *const *vars) {
    int fd = memfd_create("test-environment", MFD_CLOEXEC);
    if (fd < 0) abort();
    for (; *vars; vars++) {
        size_t bytes = strlen(*vars) + 1;
        if (write(fd, *vars, bytes) != (ssize_t)bytes) abort();
    }
    return fd;
}

static void send_request(int channel, const request *r, const int *fds, int n_fds) {
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * FDS_MOST)];
    } control = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)r, .iov_len = sizeof *r};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (n_fds > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)n_fds);
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)n_fds);
        memcpy(CMSG_DATA(c), fds, sizeof(int) * (size_t)n_fds);
    }
    if (sendmsg(channel, &message, MSG_NOSIGNAL) != (ssize_t)sizeof *r) abort();
}

static int answer(int channel) {
    int number;
    if (read(channel, &number, sizeof number) != (ssize_t)sizeof number) abort();
    return number;
}

void rank_starter_start(int starter, const kolo_process_opts *opts, int gate, kolo_process *child) {
    request r = {.n_keep = opts->n_keep};
    if (opts->n_keep > KEEP_MOST) abort();
    if (!channels[starter]) channels[starter] = start_starter(opts->env);
    int folder = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fds[FDS_MOST] = {folder, 0, 1, 2, environment_file(opts->env), gate};
    for (int i = 0; i < r.n_keep; i++) fds[FIXED + i] = r.keep[i] = opts->keep[i];
    send_request(channels[starter], &r, fds, FIXED + r.n_keep);
    close(fds[4]);
    close(folder);
    child->pid = answer(channels[starter]);
    child->pidfd = (int)syscall(SYS_pidfd_open, child->pid, 0);
    if (child->pid <= 0 || child->pidfd < 0) abort();
}

kolo_status rank_starter_wait(int starter, const kolo_process *child, int64_t timeout_ms,
                              kolo_exit *how) {
    struct pollfd ended = {.fd = child->pidfd, .events = POLLIN};
    if (poll(&ended, 1, (int)timeout_ms) != 1) {
        return KOLO_FAIL(KOLO_ERR_TIMEOUT, "process %d still runs", (int)child->pid);
    }
    send_request(channels[starter], &(request){.wait_for = child->pid}, NULL, 0);
    int status = answer(channels[starter]);
    how->code = WIFSIGNALED(status) ? 0 : WEXITSTATUS(status);
    how->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return KOLO_OK;
}

/* ---- the starter ---- */

bool rank_starter_is(int argc, char **argv) { return argc == 2 && strcmp(argv[0], NAME) == 0; }

/* Receives a request; false: the test has ended. */
static bool receive(int from, request *r, int fds[FDS_MOST]) {
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * FDS_MOST)];
    } control = {0};
    struct iovec part = {.iov_base = r, .iov_len = sizeof *r};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    if (recvmsg(from, &message, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof *r) return false;
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    size_t bytes = c ? c->cmsg_len - CMSG_LEN(0) : 0;
    size_t expected = r->wait_for ? 0 : (size_t)(FIXED + r->n_keep) * sizeof *fds;
    if (bytes != expected) abort(); /* fewer arrive at the limit of open files */
    if (c) memcpy(fds, CMSG_DATA(c), bytes);
    return true;
}

static void set_environment(int fd) {
    off_t bytes = lseek(fd, 0, SEEK_END);
    char *vars = malloc((size_t)bytes + 1); /* stays: the environment points to it */
    if (!vars || pread(fd, vars, (size_t)bytes, 0) != bytes) abort();
    clearenv();
    for (char *v = vars; v < vars + bytes; v += strlen(v) + 1) putenv(v);
}

/* Gives this process the descriptors under the numbers that they have in the test. */
static void take_descriptors(const request *r, int *fds) {
    for (int i = 0; i < FIXED + r->n_keep; i++) {
        int high = fcntl(fds[i], F_DUPFD_CLOEXEC, FREE_FROM);
        if (high < 0) abort();
        close(fds[i]);
        fds[i] = high;
    }
    set_environment(fds[4]);
    bool taken = fchdir(fds[0]) == 0;
    for (int i = 0; i < 3; i++) taken = taken && dup2(fds[1 + i], i) == i;
    for (int i = 0; i < r->n_keep; i++)
        taken = taken && dup2(fds[FIXED + i], r->keep[i]) == r->keep[i];
    char none;
    taken = taken && read(fds[5], &none, 1) == 0;
    if (!taken) abort();
    for (int i = 0; i < FIXED + r->n_keep; i++) close(fds[i]);
}

/* Closes what the starter has inherited without a need: it would keep pipes of the test open. */
static void close_others(int kept) {
    const unsigned after = (unsigned)kept + 1;
    if (kept > 3 && close_range(3, (unsigned)kept - 1, 0) != 0) abort();
    if (close_range(after, ~0U, 0) != 0) abort();
}

void rank_starter_main(char **argv) {
    const int from = atoi(argv[1]);
    close_others(from);
    request r;
    int fds[FDS_MOST] = {0};
    while (receive(from, &r, fds)) {
        int reply = r.wait_for;
        if (r.wait_for) {
            if (waitpid(r.wait_for, &reply, 0) != r.wait_for) abort();
        } else {
            reply = fork();
            if (reply < 0) abort();
            if (reply == 0) {
                close(from);
                take_descriptors(&r, fds);
                return;
            }
            for (int i = 0; i < FIXED + r.n_keep; i++) close(fds[i]);
        }
        if (write(from, &reply, sizeof reply) != (ssize_t)sizeof reply) break;
    }
    _exit(0);
}

/* The guard. A message is a number: a group leader to add, or its negative to remove it. */
#include "cli/launcher/guard.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

kolo_status guard_open(guard *g) {
    int fds[2];
    KOLO_TRY(kolo_pipe(fds));
    kolo_process_opts opts = {
        .program = "/proc/self/exe",
        .argv = (char *[]){(char[]){"kolo"}, (char[]){"__guard"}, NULL},
        .in = fds[0],
        .out = KOLO_FD_NULL,
        .err = KOLO_FD_NULL,
        .own_group = true,
    };
    kolo_status status = kolo_process_start(&opts, &g->process);
    close(fds[0]);
    if (status == KOLO_OK) {
        g->fd = fds[1];
    } else {
        close(fds[1]);
    }
    return status;
}

/* Smaller than PIPE_BUF, so the write is atomic. Errors are ignored: the guard may have ended. */
static void send_message(const guard *g, int64_t message) {
    if (g->fd < 0) return;
    ssize_t written = write(g->fd, &message, sizeof message);
    (void)written;
}

void guard_watch(const guard *g, pid_t leader) { send_message(g, leader); }
void guard_forget(const guard *g, pid_t leader) { send_message(g, -(int64_t)leader); }

void guard_close(guard *g) {
    kolo_exit how;
    if (g->fd < 0) return;
    close(g->fd);
    g->fd = -1;
    kolo_process_wait(&g->process, -1, &how);
    kolo_process_fini(&g->process);
}

/* Reads the next message; false at the end. */
static bool read_message(int64_t *message) {
    ssize_t n;
    do n = read(STDIN_FILENO, message, sizeof *message);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof *message;
}

int guard_main(void) {
    static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    int64_t *leaders = NULL, message;
    size_t n = 0, capacity = 0;
    for (size_t i = 0; i < KOLO_COUNT(ignored); i++) signal(ignored[i], SIG_IGN);
    while (read_message(&message)) {
        if (message > 0) {
            if (!KOLO_GROW(leaders, n, capacity)) return 1;
            leaders[n++] = message;
        }
        for (size_t i = 0; i < n; i++) {
            if (leaders[i] == -message) leaders[i--] = leaders[--n];
        }
    }
    for (size_t i = 0; i < n; i++) kill((pid_t)-leaders[i], SIGKILL);
    kolo_free(leaders);
    return 0;
}

/* What the launcher gives its ranks: environment, secret, listening socket, report pipe. */
#define _GNU_SOURCE
#include "cli/launcher/rank_env.h"

#include "base/file.h"
#include "base/integer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SECRET_BYTES = 32 };

/* The secret in a sealed memory file: no name, gone with the last rank, and in nobody's environment
 * or arguments. Ranks open it through /proc/self/fd, each with an offset of its own. */
static kolo_status open_secret(int *fd) {
    unsigned char secret[SECRET_BYTES];
    char hex[2 * SECRET_BYTES + 1];
    if (getrandom(secret, sizeof secret, 0) != (ssize_t)sizeof secret) {
        return kolo_file_fail("draw", "a secret", errno);
    }
    for (int i = 0; i < SECRET_BYTES; i++) snprintf(hex + 2 * i, 3, "%02x", secret[i]);
    int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
    int made = memfd_create("kolo-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    bool good = made >= 0 && kolo_write_all(made, hex, sizeof hex - 1) && fchmod(made, 0400) == 0 &&
                fcntl(made, F_ADD_SEALS, seals) == 0;
    int error = errno;
    explicit_bzero(secret, sizeof secret);
    explicit_bzero(hex, sizeof hex);
    if (!good) {
        if (made >= 0) close(made);
        return kolo_file_fail("keep", "the job's secret", error);
    }
    *fd = made;
    return KOLO_OK;
}

/* A socket that is bound to the loopback interface, at a port that the kernel picks, and may listen
 * there. */
static kolo_status open_socket(bool listens, int *fd, int *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool good = made >= 0 && bind(made, (struct sockaddr *)&address, sizeof address) == 0 &&
                (!listens || listen(made, SOMAXCONN) == 0) &&
                getsockname(made, (struct sockaddr *)&address, &length) == 0;
    if (!good) {
        int error = errno;
        if (made >= 0) close(made);
        return kolo_file_fail("listen on", "127.0.0.1", error);
    }
    *fd = made;
    *port = ntohs(address.sin_port);
    return KOLO_OK;
}

/* Where the ranks meet: KOLO_MASTER_PORT, at which rank 0's socket listens already. MASTER_PORT is
 * left to the program, such as one that calls PyTorch, whose rank 0 wants to listen there itself: a
 * port that is free now. */
static kolo_status set_ports(contract *c) {
    int port = 0, spare = 0, spare_fd = -1;
    KOLO_TRY(open_socket(true, &c->listen_fd, &port));
    KOLO_TRY(open_socket(false, &spare_fd, &spare));
    close(spare_fd);
    KOLO_TRY(kolo_env_set(&c->env, "MASTER_ADDR", "127.0.0.1"));
    KOLO_TRY(kolo_env_set(&c->env, "MASTER_PORT", "%d", spare));
    return kolo_env_set(&c->env, "KOLO_MASTER_PORT", "%d", port);
}

int launch_thread_share(int processors, int n_ranks) {
    return (int)kolo_max_i64(1, processors / n_ranks);
}

/* Threads of OpenMP programs. A waiting thread sleeps rather than burn a core that another rank
 * needs; a short spin first is worth it where every thread has a core of its own. */
static kolo_status set_openmp(kolo_env *env, const launch_opts *opts) {
    if (opts->threads > 0) {
        KOLO_TRY(kolo_env_set(env, "OMP_NUM_THREADS", "%d", opts->threads));
    } else if (!kolo_env_get(env, "OMP_NUM_THREADS")) {
        KOLO_TRY(kolo_env_set(env, "OMP_NUM_THREADS", "%d",
                              launch_thread_share(kolo_processors(), opts->n_ranks)));
    }
    if (!kolo_env_get(env, "OMP_WAIT_POLICY")) {
        KOLO_TRY(kolo_env_set(env, "OMP_WAIT_POLICY", "passive"));
    }
    if (kolo_env_get(env, "GOMP_SPINCOUNT")) return KOLO_OK;
    int64_t threads = strtol(kolo_env_get(env, "OMP_NUM_THREADS"), NULL, 10);
    bool room = threads * opts->n_ranks <= kolo_processors();
    return kolo_env_set(env, "GOMP_SPINCOUNT", "%d", room ? LAUNCH_SPINS : 0);
}

kolo_status contract_open(contract *c, const launch_opts *opts) {
    *c = (contract){.opts = opts,
                    .secret_fd = -1,
                    .listen_fd = -1,
                    .report_fds = {-1, -1},
                    .ended_fds = {-1, -1},
                    .leader_fds = {-1, -1}};
    KOLO_TRY(open_secret(&c->secret_fd));
    if (opts->own_command) {
        size_t n = (size_t)opts->n_ranks;
        c->reports = kolo_alloc(n * sizeof *c->reports);
        if (!c->reports) return KOLO_NOMEM(n * sizeof *c->reports);
        for (size_t r = 0; r < n; r++) c->reports[r] = -1;
    }
    KOLO_TRY(kolo_pipe(c->ended_fds));
    KOLO_TRY(kolo_pipe(c->leader_fds));
    fcntl(c->ended_fds[1], F_SETFL, O_NONBLOCK);
    KOLO_TRY(kolo_env_copy(&c->env));
    KOLO_TRY(set_openmp(&c->env, opts));
    KOLO_TRY(kolo_env_set(&c->env, "WORLD_SIZE", "%d", opts->n_ranks));
    KOLO_TRY(kolo_env_set(&c->env, "LOCAL_WORLD_SIZE", "%d", opts->n_ranks));
    KOLO_TRY(set_ports(c));
    return kolo_env_set(&c->env, "KOLO_SECRET_FILE", "/proc/self/fd/%d", c->secret_fd);
}

kolo_status contract_of_rank(contract *c, int r, int keep[CONTRACT_FDS], int *n_keep) {
    int n = 0;
    keep[n++] = c->secret_fd;
    KOLO_TRY(kolo_env_set(&c->env, "RANK", "%d", r));
    KOLO_TRY(kolo_env_set(&c->env, "LOCAL_RANK", "%d", r));
    kolo_env_unset(&c->env, "KOLO_LISTEN_FD");
    kolo_env_unset(&c->env, "KOLO_REPORT_FD");
    if (r == 0) {
        keep[n++] = c->listen_fd;
        KOLO_TRY(kolo_env_set(&c->env, "KOLO_LISTEN_FD", "%d", c->listen_fd));
    }
    int ended_fd = r == 0 ? c->ended_fds[0] : c->leader_fds[0];
    keep[n++] = ended_fd;
    KOLO_TRY(kolo_env_set(&c->env, "KOLO_ENDED_FD", "%d", ended_fd));
    if (c->reports) {
        if (c->report_fds[1] >= 0) close(c->report_fds[1]); /* the rank before has it */
        KOLO_TRY(kolo_pipe(c->report_fds));
        c->reports[r] = c->report_fds[0];
        fcntl(c->report_fds[0], F_SETFL, O_NONBLOCK);
        keep[n++] = c->report_fds[1];
        KOLO_TRY(kolo_env_set(&c->env, "KOLO_REPORT_FD", "%d", c->report_fds[1]));
    }
    *n_keep = n;
    return KOLO_OK;
}

static void close_one(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

void contract_close_shared(contract *c) {
    close_one(&c->secret_fd);
    close_one(&c->listen_fd);
    close_one(&c->report_fds[1]);
    close_one(&c->ended_fds[0]);
    close_one(&c->leader_fds[0]);
}

void contract_tell_end(contract *c, int r) {
    int32_t ended[2] = {r, 0};
    if (r == 0) close_one(&c->leader_fds[1]);
    (void)!write(c->ended_fds[1], ended, sizeof ended); /* it may be gone, or have long joined */
}

/* A report is one write of at most PIPE_BUF bytes: the status as a character, then the text. */
kolo_status contract_read_report(contract *c, int r, kolo_status *reported, char **text) {
    if (!c->reports) return KOLO_OK;
    char report[PIPE_BUF + 1];
    ssize_t n = read(c->reports[r], report, PIPE_BUF);
    close_one(&c->reports[r]);
    if (n < 2) return KOLO_OK;
    report[n] = '\0';
    *text = kolo_strdup(report + 1);
    if (!*text) return KOLO_NOMEM(n);
    *reported = (kolo_status)(report[0] - 'a');
    return KOLO_OK;
}

bool launch_started_us(void) { return getenv("KOLO_REPORT_FD") != NULL; }

bool launch_report(kolo_status status, const char *text) {
    const char *fd = getenv("KOLO_REPORT_FD");
    if (!fd) return false;
    char report[PIPE_BUF];
    int n = snprintf(report, sizeof report, "%c%s", 'a' + (int)status, text);
    size_t bytes = (size_t)n < sizeof report ? (size_t)n : sizeof report - 1;
    return write((int)strtol(fd, NULL, 10), report, bytes) == (ssize_t)bytes;
}

void contract_close(contract *c) {
    if (!c->opts) return;
    contract_close_shared(c);
    close_one(&c->ended_fds[1]);
    close_one(&c->leader_fds[1]);
    for (int r = 0; c->reports && r < c->opts->n_ranks; r++) close_one(&c->reports[r]);
    kolo_free(c->reports);
    kolo_env_fini(&c->env);
    *c = (contract){0};
}

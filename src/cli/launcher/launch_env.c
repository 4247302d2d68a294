/* Sets the environment of ranks; comm/join/rank_env.c reads it. */
#define _GNU_SOURCE
#include "cli/launcher/launch_env.h"

#include "base/file.h"
#include "base/integer.h"
#include "cli/launcher/error_report.h"

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

/* Stores a secret in a sealed memfd: it has no name, is freed with the last rank, and appears in
 * no environment or argument list. Ranks open it through /proc/self/fd, each with its own offset.
 */
static kolo_status store_secret(const char *secret, size_t bytes, int *fd) {
    int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
    int made = memfd_create("kolo-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    bool good = made >= 0 && kolo_write_all(made, secret, bytes) && fchmod(made, 0400) == 0 &&
                fcntl(made, F_ADD_SEALS, seals) == 0;
    int error = errno;
    if (!good) {
        if (made >= 0) close(made);
        return kolo_file_fail("store", "the job's secret", error);
    }
    *fd = made;
    return KOLO_OK;
}

/* The user's secret, which processes that join the job later need too. A job within a job has one
 * of its own. */
static kolo_status copy_secret(const char *path, int *fd) {
    enum { MOST_BYTES = 4096 };
    struct stat about;
    char *secret;
    size_t bytes;
    if (stat(path, &about) != 0) return kolo_file_fail("read", path, errno);
    if (S_ISREG(about.st_mode) && (about.st_mode & 077)) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "secret file %s: others can access it: chmod 600 it, or unset "
                         "KOLO_SECRET_FILE",
                         path);
    }
    KOLO_TRY(kolo_file_read(path, MOST_BYTES, &secret, &bytes));
    kolo_status status = store_secret(secret, bytes, fd);
    explicit_bzero(secret, bytes);
    kolo_free(secret);
    return status;
}

static kolo_status open_secret(int *fd) {
    unsigned char secret[SECRET_BYTES];
    char hex[2 * SECRET_BYTES + 1];
    const char *given = getenv("KOLO_SECRET_FILE");
    if (given && *given && !getenv("RANK")) return copy_secret(given, fd);
    if (getrandom(secret, sizeof secret, 0) != (ssize_t)sizeof secret) {
        return kolo_file_fail("create", "the job's secret", errno);
    }
    for (int i = 0; i < SECRET_BYTES; i++) snprintf(hex + 2 * i, 3, "%02x", secret[i]);
    kolo_status status = store_secret(hex, sizeof hex - 1, fd);
    explicit_bzero(secret, sizeof secret);
    explicit_bzero(hex, sizeof hex);
    return status;
}

/* Binds a socket to a free port of the loopback interface and optionally listens on it. */
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

/* Ranks connect to KOLO_MASTER_PORT, on which rank 0's inherited socket listens. MASTER_PORT is a
 * currently free port for the program itself, such as one that uses PyTorch, whose rank 0 listens
 * on it. */
static kolo_status set_ports(rank_env *e) {
    int port = 0, spare = 0, spare_fd = -1;
    KOLO_TRY(open_socket(true, &e->listen_fd, &port));
    KOLO_TRY(open_socket(false, &spare_fd, &spare));
    close(spare_fd);
    KOLO_TRY(kolo_env_set(&e->vars, "MASTER_ADDR", "127.0.0.1"));
    KOLO_TRY(kolo_env_set(&e->vars, "MASTER_PORT", "%d", spare));
    return kolo_env_set(&e->vars, "KOLO_MASTER_PORT", "%d", port);
}

int launch_thread_share(int processors, int n_ranks) {
    return (int)kolo_max_i64(1, processors / n_ranks);
}

void launch_warn(int ranks, int threads, int processors) {
    fprintf(stderr,
            "kolo: warning: %d ranks of %d threads share %d processors: use fewer ranks or "
            "threads\n",
            ranks, threads, processors);
}

/* Threads of OpenMP programs. Waiting threads sleep instead of using a core that another rank
 * needs; they spin briefly first if every thread has its own core. */
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
    bool own_cores = threads * opts->n_ranks <= kolo_processors();
    return kolo_env_set(env, "GOMP_SPINCOUNT", "%d", own_cores ? LAUNCH_SPINS : 0);
}

kolo_status rank_env_open(rank_env *e, const launch_opts *opts) {
    *e = (rank_env){.opts = opts,
                    .secret_fd = -1,
                    .listen_fd = -1,
                    .report_fds = {-1, -1},
                    .ended_fds = {-1, -1},
                    .leader_fds = {-1, -1}};
    KOLO_TRY(open_secret(&e->secret_fd));
    if (opts->own_command) {
        size_t n = (size_t)opts->n_ranks;
        e->reports = kolo_alloc(n * sizeof *e->reports);
        if (!e->reports) return KOLO_NOMEM(n * sizeof *e->reports);
        for (size_t r = 0; r < n; r++) e->reports[r] = -1;
    }
    KOLO_TRY(kolo_pipe(e->ended_fds));
    KOLO_TRY(kolo_pipe(e->leader_fds));
    fcntl(e->ended_fds[1], F_SETFL, O_NONBLOCK);
    KOLO_TRY(kolo_env_copy(&e->vars));
    KOLO_TRY(set_openmp(&e->vars, opts));
    KOLO_TRY(kolo_env_set(&e->vars, "WORLD_SIZE", "%d", opts->n_ranks));
    KOLO_TRY(kolo_env_set(&e->vars, "LOCAL_WORLD_SIZE", "%d", opts->n_ranks));
    KOLO_TRY(set_ports(e));
    return kolo_env_set(&e->vars, "KOLO_SECRET_FILE", "/proc/self/fd/%d", e->secret_fd);
}

kolo_status rank_env_prepare(rank_env *e, int r, int keep[RANK_ENV_FDS], int *n_keep) {
    int n = 0;
    keep[n++] = e->secret_fd;
    KOLO_TRY(kolo_env_set(&e->vars, "RANK", "%d", r));
    KOLO_TRY(kolo_env_set(&e->vars, "LOCAL_RANK", "%d", r));
    kolo_env_unset(&e->vars, "KOLO_LISTEN_FD");
    kolo_env_unset(&e->vars, REPORT_FD_ENV);
    if (r == 0) {
        keep[n++] = e->listen_fd;
        KOLO_TRY(kolo_env_set(&e->vars, "KOLO_LISTEN_FD", "%d", e->listen_fd));
    }
    int ended_fd = r == 0 ? e->ended_fds[0] : e->leader_fds[0];
    keep[n++] = ended_fd;
    KOLO_TRY(kolo_env_set(&e->vars, "KOLO_ENDED_FD", "%d", ended_fd));
    if (e->reports) {
        if (e->report_fds[1] >= 0) close(e->report_fds[1]); /* inherited by the previous rank */
        KOLO_TRY(kolo_pipe(e->report_fds));
        e->reports[r] = e->report_fds[0];
        fcntl(e->report_fds[0], F_SETFL, O_NONBLOCK);
        keep[n++] = e->report_fds[1];
        KOLO_TRY(kolo_env_set(&e->vars, REPORT_FD_ENV, "%d", e->report_fds[1]));
    }
    *n_keep = n;
    return KOLO_OK;
}

static void close_one(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

void rank_env_close_inherited(rank_env *e) {
    close_one(&e->secret_fd);
    close_one(&e->listen_fd);
    close_one(&e->report_fds[1]);
    close_one(&e->ended_fds[0]);
    close_one(&e->leader_fds[0]);
}

void rank_env_notify_end(rank_env *e, int r, int signal) {
    int32_t ended[2] = {r, signal};
    if (r == 0) close_one(&e->leader_fds[1]);
    (void)!write(e->ended_fds[1], ended, sizeof ended); /* rank 0 may have ended */
}

kolo_status rank_env_read_report(rank_env *e, int r, kolo_status *reported, char **text) {
    if (!e->reports) return KOLO_OK;
    kolo_status status = report_read(e->reports[r], reported, text);
    close_one(&e->reports[r]);
    return status;
}

void rank_env_close(rank_env *e) {
    if (!e->opts) return;
    rank_env_close_inherited(e);
    close_one(&e->ended_fds[1]);
    close_one(&e->leader_fds[1]);
    for (int r = 0; e->reports && r < e->opts->n_ranks; r++) close_one(&e->reports[r]);
    kolo_free(e->reports);
    kolo_env_fini(&e->vars);
    *e = (rank_env){0};
}

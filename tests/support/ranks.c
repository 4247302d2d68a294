/* Ranks as threads or as processes, for tests. */
#define _GNU_SOURCE
#include "support/ranks.h"

#include "base/clock.h"
#include "base/integer.h"
#include "base/process.h"
#include "support/rank_starter.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { RANKS_MOST = 256, DEADLINE_MS = 60000, TIMEOUT_MS = 20000, SECRET_BYTES = 32 };

static const int64_t segment_default = (int64_t)1 << 30;

/* Input of a child process, at the start of the shared block; argument and results follow. */
typedef struct job_block {
    _Alignas(64) intptr_t body; /* its distance from run_rank_job, as the program's base address
                                   differs; what follows the block is aligned, too */
    size_t arg_bytes, result_bytes;
    int64_t timeout_ms, segment_bytes, heartbeat_ms;
    rank_transport transport;
    bool bare;
    rank_outcome outcomes[RANKS_MOST];
} job_block;

static void *arg_of(job_block *block) { return block + 1; }

static void *result_of(job_block *block, int rank) {
    size_t first = kolo_round_up(block->arg_bytes, 64);
    size_t stride = kolo_round_up(block->result_bytes, 64);
    return (char *)arg_of(block) + first + (size_t)rank * stride;
}

static size_t block_bytes(const rank_job *job) {
    return sizeof(job_block) + kolo_round_up(job->arg_bytes, 64) +
           (size_t)job->n * kolo_round_up(job->result_bytes, 64);
}

static void record(rank_outcome *outcome, kolo_status status) {
    outcome->status = status;
    outcome->ended_ns = kolo_now_ns();
    snprintf(outcome->error, sizeof outcome->error, "%s", status ? kolo_last_error() : "");
}

/* ---- threads ---- */

typedef struct thread_rank {
    pthread_t thread;
    const rank_job *job;
    kolo_comm *comm;
    void *result;
    rank_outcome outcome;
} thread_rank;

static void *thread_main(void *p) {
    thread_rank *r = p;
    record(&r->outcome, r->job->body(r->comm, r->job->arg, r->result));
    kolo_comm_destroy(r->comm);
    return NULL;
}

static kolo_status run_threads(const rank_job *job, rank_outcome *outcomes) {
    static thread_rank ranks[RANKS_MOST];
    kolo_comm *comms[RANKS_MOST];
    kolo_comm_opts opts = {.timeout_ms = job->timeout_ms ? job->timeout_ms : TIMEOUT_MS,
                           .segment_bytes =
                               job->segment_bytes ? job->segment_bytes : segment_default};
    KOLO_TRY(kolo_comm_create_threads(job->n, &opts, comms));
    for (int r = 0; r < job->n; r++) {
        ranks[r] = (thread_rank){.job = job, .comm = comms[r]};
        if (job->results) ranks[r].result = (char *)job->results + (size_t)r * job->result_bytes;
        if (pthread_create(&ranks[r].thread, NULL, thread_main, &ranks[r]) != 0) abort();
    }
    for (int r = 0; r < job->n; r++) {
        pthread_join(ranks[r].thread, NULL);
        outcomes[r] = ranks[r].outcome;
    }
    return KOLO_OK;
}

/* ---- processes ---- */

static int memory_file(const char *name, size_t bytes) {
    int fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) abort();
    return fd;
}

static int secret_file(void) {
    char secret[SECRET_BYTES];
    int fd = memory_file("test-secret", 0);
    for (int i = 0; i < SECRET_BYTES; i++) secret[i] = (char)('a' + i % 26);
    if (write(fd, secret, sizeof secret) != (ssize_t)sizeof secret) abort();
    return fd;
}

static int listening_socket(int *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, n) != 0 || listen(fd, 128) != 0) abort();
    if (getsockname(fd, (struct sockaddr *)&address, &n) != 0) abort();
    *port = ntohs(address.sin_port);
    return fd;
}

/* Descriptors that a child inherits under the same numbers. */
typedef struct job_files {
    int block, secret, listener, port, gate[2];
} job_files;

static bool by_mpi(rank_transport transport) {
    return transport == RANKS_OPENMPI || transport == RANKS_MPICH;
}

static bool has_ucx(const rank_job *job) {
    return job->transport == RANKS_UCX || job->transport == RANKS_HOSTS_UCX;
}

/* Whether ranks are forked (rank_starter.h). */
static bool by_starter(const rank_job *job) {
#ifdef __SANITIZE_ADDRESS__
    return !by_mpi(job->transport) && !job->no_fork;
#else
    return false;
#endif
}

static void spawn_rank(const rank_job *job, const job_files *files, int rank, kolo_process *child) {
    kolo_env env = {0};
    bool made = kolo_env_copy(&env) == KOLO_OK;
    made = made && kolo_env_set(&env, "RANK", "%d", rank) == KOLO_OK &&
           kolo_env_set(&env, "WORLD_SIZE", "%d", job->n) == KOLO_OK &&
           kolo_env_set(&env, "LOCAL_RANK", "%d", rank) == KOLO_OK &&
           kolo_env_set(&env, "LOCAL_WORLD_SIZE", "%d", job->n) == KOLO_OK &&
           kolo_env_set(&env, "MASTER_ADDR", "127.0.0.1") == KOLO_OK &&
           kolo_env_set(&env, "MASTER_PORT", "%d", files->port) == KOLO_OK &&
           kolo_env_set(&env, "KOLO_SECRET_FILE", "/proc/self/fd/%d", files->secret) == KOLO_OK &&
           kolo_env_set(&env, "KOLO_TEST_RANK", "/proc/self/fd/%d", files->block) == KOLO_OK;
    const char *asan = getenv("ASAN_OPTIONS");
    if (has_ucx(job) && asan) { /* the leak check crashes beside UCX's threads */
        made = made && kolo_env_set(&env, "ASAN_OPTIONS", "%s:detect_leaks=0", asan) == KOLO_OK;
    }
    if (job->transport == RANKS_HOSTS || job->transport == RANKS_HOSTS_UCX) {
        made = made && kolo_env_set(&env, "KOLO_HOST_ID", "host %d", rank / 2) == KOLO_OK;
    }
    if (rank == 0) {
        made = made && kolo_env_set(&env, "KOLO_LISTEN_FD", "%d", files->listener) == KOLO_OK;
    }
    char *argv[] = {(char[]){"rank"}, NULL};
    int keep[] = {files->block, files->secret, files->listener};
    kolo_process_opts opts = {.program = "/proc/self/exe",
                              .argv = argv,
                              .env = env.vars,
                              .keep = keep,
                              .n_keep = rank == 0 ? 3 : 2};
    if (!made) abort();
    if (by_starter(job)) {
        rank_starter_start(has_ucx(job), &opts, files->gate[0], child);
    } else if (kolo_process_start(&opts, child) != KOLO_OK) {
        abort();
    }
    kolo_env_fini(&env);
}

const char *ranks_mpiexec(rank_transport transport) {
#ifdef KOLO_TEST_OPENMPI
    if (transport == RANKS_OPENMPI) return KOLO_TEST_OPENMPI;
#endif
#ifdef KOLO_TEST_MPICH
    if (transport == RANKS_MPICH) return KOLO_TEST_MPICH;
#endif
    return NULL;
}

bool ranks_have(rank_transport transport) {
    static bool reported;
    if (transport == RANKS_UCX || transport == RANKS_HOSTS_UCX) {
        bool has = kolo_comm_has_ucx();
        if (!has && !reported) printf("skip: no module for UCX: rows without it\n");
        reported = reported || !has;
        return has;
    }
    return !by_mpi(transport) || ranks_mpiexec(transport);
}

/* Starts all ranks by their launcher, which passes no descriptors on: ranks open the shared block
 * through this process's /proc entry. */
static void spawn_mpi(const rank_job *job, const job_files *files, kolo_process *child) {
    char n[16], self[PATH_MAX] = "";
    snprintf(n, sizeof n, "%d", job->n);
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) abort();
    kolo_env env = {0};
    bool made = kolo_env_copy(&env) == KOLO_OK &&
                kolo_env_set(&env, "OMPI_ALLOW_RUN_AS_ROOT", "1") == KOLO_OK &&
                kolo_env_set(&env, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1") == KOLO_OK &&
                kolo_env_set(&env, "OMPI_MCA_rmaps_base_oversubscribe", "1") == KOLO_OK &&
                kolo_env_set(&env, "OMPI_MCA_hwloc_base_binding_policy", "none") == KOLO_OK &&
                kolo_env_set(&env, "KOLO_TEST_RANK", "/proc/%d/fd/%d", (int)getpid(),
                             files->block) == KOLO_OK;
    char *argv[] = {(char *)ranks_mpiexec(job->transport), (char[]){"-n"}, n, self, NULL};
    kolo_process_opts opts = {.argv = argv, .env = env.vars};
    if (!made || kolo_process_start(&opts, child) != KOLO_OK) abort();
    kolo_env_fini(&env);
}

static kolo_status wait_for(const rank_job *job, kolo_process *child, int64_t timeout_ms,
                            kolo_exit *how) {
    return by_starter(job) ? rank_starter_wait(has_ucx(job), child, timeout_ms, how)
                           : kolo_process_wait(child, timeout_ms, how);
}

/* Waits for a child until the deadline, then kills it. */
static kolo_exit wait_child(const rank_job *job, kolo_process *child, int64_t deadline_ns) {
    int64_t left_ms = (deadline_ns - kolo_now_ns()) / 1000000;
    kolo_exit how = {0};
    if (wait_for(job, child, left_ms > 0 ? left_ms : 0, &how) != KOLO_OK) {
        kolo_process_signal(child, SIGKILL, false);
        if (wait_for(job, child, -1, &how) != KOLO_OK) abort();
    }
    kolo_process_fini(child);
    return how;
}

static kolo_status run_processes(const rank_job *job, rank_outcome *outcomes) {
    size_t bytes = block_bytes(job);
    job_files files = {.block = memory_file("test-block", bytes), .secret = secret_file()};
    files.listener = listening_socket(&files.port);
    if (kolo_pipe(files.gate) != KOLO_OK) abort();
    job_block *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, files.block, 0);
    if (block == MAP_FAILED) abort();
    block->body = (intptr_t)job->body - (intptr_t)run_rank_job;
    block->arg_bytes = job->arg_bytes;
    block->result_bytes = job->result_bytes;
    block->timeout_ms = job->timeout_ms;
    block->segment_bytes = job->segment_bytes;
    block->heartbeat_ms = job->heartbeat_ms;
    block->transport = job->transport;
    block->bare = job->bare;
    if (job->arg_bytes) memcpy(arg_of(block), job->arg, job->arg_bytes);
    for (int r = 0; r < job->n; r++) {
        block->outcomes[r] = (rank_outcome){.status = KOLO_ERR_PEER, .error = "ended early"};
    }
    kolo_process children[RANKS_MOST];
    bool mpi = by_mpi(job->transport);
    if (mpi) spawn_mpi(job, &files, &children[0]);
    for (int r = 0; r < job->n && !mpi; r++) spawn_rank(job, &files, r, &children[r]);
    close(files.listener); /* rank 0 has its own */
    close(files.gate[0]);
    close(files.gate[1]); /* forked ranks begin */
    int64_t deadline_ns = kolo_now_ns() + (int64_t)DEADLINE_MS * 1000000;
    for (int r = 0; r < job->n; r++) {
        kolo_exit how = {0};
        if (!mpi || r == 0) how = wait_child(job, &children[r], deadline_ns);
        outcomes[r] = block->outcomes[r];
        outcomes[r].signal = how.signal;
        if (how.code != 0 && !outcomes[r].status && !mpi) { /* a sanitizer's finding at exit */
            outcomes[r].status = KOLO_ERR_PEER;
            snprintf(outcomes[r].error, sizeof outcomes[r].error, "exit status %d", how.code);
        }
        if (job->results) {
            memcpy((char *)job->results + (size_t)r * job->result_bytes, result_of(block, r),
                   job->result_bytes);
        }
    }
    munmap(block, bytes);
    close(files.block);
    close(files.secret);
    return KOLO_OK;
}

static int env_number(const char *name) {
    const char *text = getenv(name);
    return text ? atoi(text) : 0;
}

bool ranks_is_child(void) { return getenv("KOLO_TEST_RANK") != NULL; }

int ranks_own_rank(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK"};
    for (size_t i = 0; i < KOLO_COUNT(names); i++) {
        if (getenv(names[i])) return env_number(names[i]);
    }
    return env_number("RANK");
}

static job_block *map_block(off_t *bytes) {
    int fd = open(getenv("KOLO_TEST_RANK"), O_RDWR | O_CLOEXEC);
    if (fd < 0) return MAP_FAILED;
    *bytes = lseek(fd, 0, SEEK_END);
    void *block = mmap(NULL, (size_t)*bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return block;
}

static kolo_transport_choice transport_of(rank_transport transport) {
    if (by_mpi(transport)) return KOLO_TRANSPORT_MPI;
    switch (transport) {
    case RANKS_TCP:
        return KOLO_TRANSPORT_TCP;
    case RANKS_UCX:
        return KOLO_TRANSPORT_UCX;
    case RANKS_HOSTS_UCX:
        return KOLO_TRANSPORT_SHM_UCX;
    default:
        return KOLO_TRANSPORT_AUTO;
    }
}

static kolo_comm_opts opts_of(const job_block *block) {
    return (kolo_comm_opts){
        .timeout_ms = block->timeout_ms ? block->timeout_ms : TIMEOUT_MS,
        .segment_bytes = block->segment_bytes ? block->segment_bytes : segment_default,
        .heartbeat_ms = block->heartbeat_ms,
        .transport = transport_of(block->transport),
    };
}

kolo_comm_opts ranks_own_opts(void) {
    off_t bytes;
    job_block *block = map_block(&bytes);
    if (block == MAP_FAILED) abort();
    kolo_comm_opts opts = opts_of(block);
    munmap(block, (size_t)bytes);
    return opts;
}

int ranks_child(void) {
    int rank = ranks_own_rank();
    off_t bytes;
    job_block *block = map_block(&bytes);
    if (block == MAP_FAILED) return 1;
    rank_body body = (rank_body)((intptr_t)run_rank_job + block->body);
    kolo_comm_opts opts = opts_of(block);
    kolo_comm *comm = NULL;
    kolo_status status = block->bare ? KOLO_OK : kolo_comm_create(&opts, &comm);
    if (status == KOLO_OK) status = body(comm, arg_of(block), result_of(block, rank));
    record(&block->outcomes[rank], status);
    kolo_comm_destroy(comm);
    munmap(block, (size_t)bytes);
    return 0;
}

/* ---- both ---- */

kolo_status run_rank_job(const rank_job *job) {
    rank_outcome outcomes[RANKS_MOST];
    if (!ranks_have(job->transport))
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "that transport is not there");
    if (job->n < 1 || job->n > RANKS_MOST) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a test with %d ranks", job->n);
    }
    if (job->results) memset(job->results, 0, (size_t)job->n * job->result_bytes);
    KOLO_TRY(job->transport == RANKS_THREAD ? run_threads(job, outcomes)
                                            : run_processes(job, outcomes));
    if (job->outcomes) memcpy(job->outcomes, outcomes, (size_t)job->n * sizeof *outcomes);
    for (int r = 0; r < job->n; r++) {
        if (outcomes[r].status != KOLO_OK) {
            return KOLO_FAIL(outcomes[r].status, "rank %d of %d: %s", r, job->n, outcomes[r].error);
        }
    }
    return KOLO_OK;
}

kolo_status run_ranks(int n, rank_transport transport, rank_body body, const void *arg,
                      size_t arg_bytes) {
    return run_rank_job(&(rank_job){
        .n = n, .transport = transport, .body = body, .arg = arg, .arg_bytes = arg_bytes});
}

void ranks_die_after(int64_t us) {
    struct itimerval timer = {.it_value = {.tv_sec = us / 1000000, .tv_usec = us % 1000000}};
    setitimer(ITIMER_REAL, &timer, NULL); /* nothing catches SIGALRM */
}

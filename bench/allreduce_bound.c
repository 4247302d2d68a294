/* Measures the lower bound of an allreduce in shared memory on this machine:
 *
 *     allreduce_bound RANKS clean|dirty SECONDS BYTES...
 *
 * RANKS processes, one per processor as far as possible, hold a buffer each in shared memory. In a
 * call each process waits for all others, then adds its slice of all buffers and writes the sum to
 * all of them: every byte is read once and written once, and nothing else happens. With `dirty`
 * each process rewrites its buffer before a call, untimed. Rank 0 prints a line per size: bytes,
 * median and minimum in us. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS_MOST = 64, SAMPLES = 200, BLOCK = 1024, SPINS = 2000 };

typedef struct group {
    _Alignas(64) atomic_uint arrived[RANKS_MOST][16]; /* a line each */
    _Alignas(64) atomic_bool over;
} group;

static group *all;
static float *buffers[RANKS_MOST];
static int n_ranks;
static bool oversubscribed;
static unsigned generation;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void meet(int rank) {
    atomic_store_explicit(&all->arrived[rank][0], ++generation, memory_order_release);
    for (int r = 0; r < n_ranks; r++) {
        for (int spins = 0; (int)(atomic_load_explicit(&all->arrived[r][0], memory_order_acquire) -
                                  generation) < 0;
             spins++) {
            if (spins >= SPINS || oversubscribed) sched_yield();
        }
    }
}

static void add_two(float *restrict a, float *restrict b, size_t n) {
    for (size_t i = 0; i < n; i++) a[i] = b[i] = a[i] + b[i];
}

static void reduce(int rank, size_t count) {
    size_t begin = count * (size_t)rank / (size_t)n_ranks;
    size_t end = count * (size_t)(rank + 1) / (size_t)n_ranks;
    if (n_ranks == 2) {
        add_two(buffers[0] + begin, buffers[1] + begin, end - begin);
        return;
    }
    for (size_t i = begin; i < end; i += BLOCK) {
        float sum[BLOCK];
        size_t n = end - i < BLOCK ? end - i : BLOCK;
        memcpy(sum, buffers[0] + i, n * sizeof *sum);
        for (int r = 1; r < n_ranks; r++) {
            const float *from = buffers[r] + i;
            for (size_t k = 0; k < n; k++) sum[k] += from[k];
        }
        for (int r = 0; r < n_ranks; r++) memcpy(buffers[r] + i, sum, n * sizeof *sum);
    }
}

static int by_time(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Zeros, so that sums of sums stay finite. */
static void measure(int rank, size_t bytes, bool dirty, double seconds) {
    static double us[SAMPLES];
    size_t count = bytes / sizeof(float);
    int n = 0, calls = bytes >= 65536 || dirty ? 1 : 100;
    double end = now() + seconds;
    memset(buffers[rank], 0, bytes);
    for (int sample = -2;; sample++) {
        if (rank == 0) atomic_store(&all->over, n == SAMPLES || (n >= 5 && now() > end));
        if (dirty) memset(buffers[rank], 0, bytes);
        meet(rank);
        bool over = atomic_load(&all->over);
        meet(rank);
        if (over) break;
        double start = now();
        for (int i = 0; i < calls; i++) {
            reduce(rank, count);
            meet(rank);
        }
        if (sample >= 0) us[n++] = 1e6 * (now() - start) / calls;
        if (rank != 0 && n == SAMPLES) n = 0; /* rank 0 counts */
    }
    if (rank > 0) return;
    qsort(us, (size_t)n, sizeof *us, by_time);
    printf("%zu %.3f %.3f\n", bytes, us[n / 2], us[0]);
    fflush(stdout);
}

static void *map_shared(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        perror("allreduce_bound: mmap");
        exit(1);
    }
    madvise(p, bytes, MADV_HUGEPAGE); /* a hint */
    return p;
}

static void run_rank(int rank, bool dirty, double seconds, int argc, char **argv) {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET((size_t)rank % (size_t)sysconf(_SC_NPROCESSORS_ONLN), &cpus);
    sched_setaffinity(0, sizeof cpus, &cpus); /* a hint */
    for (int i = 4; i < argc; i++) measure(rank, (size_t)atoll(argv[i]), dirty, seconds);
}

int main(int argc, char **argv) {
    size_t most = 0;
    n_ranks = argc > 4 ? atoi(argv[1]) : 0;
    if (n_ranks < 1 || n_ranks > RANKS_MOST) {
        fprintf(stderr, "usage: %s RANKS clean|dirty SECONDS BYTES...\n", argv[0]);
        return 2;
    }
    for (int i = 4; i < argc; i++) {
        if ((size_t)atoll(argv[i]) > most) most = (size_t)atoll(argv[i]);
    }
    all = map_shared(sizeof *all);
    for (int r = 0; r < n_ranks; r++) buffers[r] = map_shared(most + sizeof(float));
    oversubscribed = n_ranks > sysconf(_SC_NPROCESSORS_ONLN);
    bool dirty = strcmp(argv[2], "dirty") == 0;
    for (int r = 1; r < n_ranks; r++) {
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            run_rank(r, dirty, atof(argv[3]), argc, argv);
            _exit(0);
        }
    }
    run_rank(0, dirty, atof(argv[3]), argc, argv);
    while (wait(NULL) > 0) continue;
    return 0;
}

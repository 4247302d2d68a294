/* The step loop after warm-up allocates no memory, also not in the libraries that lenet and mlp
 * call, and makes no system call except to wait.
 *
 * Allocations are counted per thread by replacing malloc in this program. System calls are counted
 * by ptrace: the traced process, this program started again, stops itself before and after the
 * counted steps. */
#define _GNU_SOURCE
#include "base/process.h"
#include "data/prefetch.h"
#include "support/ranks.h"
#include "support/support.h"
#include "train/session/session.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OWN_MALLOC 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define OWN_MALLOC 0
#endif
#endif
#if !defined(OWN_MALLOC)
#define OWN_MALLOC 1
#endif

enum { WARM_UP = 5, COUNTED = 20, BATCH = 8 };

/* ---- counting allocations ---- */

typedef struct counters {
    int64_t ours, others;
} counters;

static _Thread_local counters allocations;

#if OWN_MALLOC
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *block, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

#define NOINLINE __attribute__((noinline))       /* its caller is who asks */
extern const char __executable_start[], etext[]; /* the linker's: this program's code */

static void count(const void *caller) {
    bool ours =
        (uintptr_t)caller >= (uintptr_t)__executable_start && (uintptr_t)caller < (uintptr_t)etext;
    allocations.ours += ours;
    allocations.others += !ours;
}

KOLO_SHARED NOINLINE void *malloc(size_t bytes) {
    count(__builtin_return_address(0));
    return __libc_malloc(bytes);
}

KOLO_SHARED NOINLINE void *calloc(size_t n, size_t bytes) {
    count(__builtin_return_address(0));
    return __libc_calloc(n, bytes);
}

KOLO_SHARED NOINLINE void *realloc(void *block, size_t bytes) {
    count(__builtin_return_address(0));
    return __libc_realloc(block, bytes);
}

KOLO_SHARED NOINLINE void *aligned_alloc(size_t alignment, size_t bytes) {
    count(__builtin_return_address(0));
    return __libc_memalign(alignment, bytes);
}

KOLO_SHARED NOINLINE int posix_memalign(void **block, size_t alignment, size_t bytes) {
    count(__builtin_return_address(0));
    *block = __libc_memalign(alignment, bytes);
    return *block ? 0 : ENOMEM;
}
#endif

/* ---- the steps ---- */

typedef struct setting {
    char model[32], options[32];
    int64_t accumulate;
    double momentum;
    kolo_kernel_set kernels;
} setting;

static const setting settings[] = {
    {"mlp", "", 1, 0.9, KOLO_KERNELS_BEST},
    {"mlp", "", 2, 0.9, KOLO_KERNELS_REF},
    {"lenet", "", 1, 0, KOLO_KERNELS_BEST},
    {"lenet", "", 2, 0.9, KOLO_KERNELS_BEST},
    {"resnet20", "width=16", 1, 0.9, KOLO_KERNELS_BEST},
};

static void nothing(void) {}

/* Trains for WARM_UP steps and then COUNTED, around which `mark` is called. */
static kolo_status train(const setting *s, kolo_comm *comm, void (*mark)(void), counters *counted) {
    kolo_dataset *data = NULL;
    kolo_loader *loader = NULL;
    kolo_session *session = NULL;
    kolo_status status;
    int ranks = comm ? kolo_comm_size(comm) : 1;
    KOLO_TRY_GOTO(kolo_dataset_open("synthetic:N=512,test=1", KOLO_SPLIT_TRAIN, &data), done);
    kolo_loader_opts batches = {.dataset = data,
                                .global_batch = BATCH * s->accumulate * ranks,
                                .rank = comm ? kolo_comm_rank(comm) : 0,
                                .world = ranks,
                                .end = WARM_UP + COUNTED};
    KOLO_TRY_GOTO(kolo_loader_create(&batches, &loader), done);
    kolo_session_config opts = {
        .model = s->model,
        .model_options = s->options,
        .sample = kolo_dataset_describe(data)->fields[KOLO_FIELD_X].shape,
        .classes = kolo_dataset_describe(data)->classes,
        .batch = BATCH,
        .accumulate = s->accumulate,
        .plan = {.kernels = s->kernels, .optimizer.momentum = s->momentum, .bucket_bytes = 4096},
    };
    KOLO_TRY_GOTO(kolo_session_create_for(&opts, comm, &session), done);
    KOLO_TRY_GOTO(kolo_session_init(session, 1), done);
    counters before = {0, 0};
    for (int k = 0; k < WARM_UP + COUNTED; k++) {
        kolo_batch batch;
        kolo_sums sums;
        if (k == WARM_UP) {
            mark();
            before = allocations;
        }
        KOLO_TRY_GOTO(kolo_loader_next(loader, &batch), done);
        KOLO_TRY_GOTO(kolo_session_step_batch(session, &batch, 0.01, &sums), done);
    }
    *counted = (counters){allocations.ours - before.ours, allocations.others - before.others};
    mark();
done:
    kolo_session_destroy(session);
    kolo_loader_destroy(loader);
    kolo_dataset_close(data);
    return status;
}

/* ---- allocations ---- */

/* `arg` is the number of a setting: pointers are for one process alone. */
static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    return train(&settings[*(const size_t *)arg], comm, nothing, result);
}

static void steps_allocate_nothing(void **state) {
    if (!OWN_MALLOC) {
        printf("skip: a sanitizer has malloc's place\n");
        skip();
    }
    int64_t before = allocations.ours;
    kolo_free(kolo_alloc(1));
    assert_int_equal(allocations.ours, before + 1); /* the counter counts */
    static const struct {
        int n;
        rank_transport transport;
    } groups[] = {{1, RANKS_THREAD}, {2, RANKS_THREAD}, {2, RANKS_SHM}};
    for (size_t i = 0; i < KOLO_COUNT(settings) * KOLO_COUNT(groups); i++) {
        const size_t number = i / KOLO_COUNT(groups);
        const setting *s = &settings[number];
        counters counts[2] = {{0, 0}, {0, 0}};
        rank_job job = {
            .n = groups[i % KOLO_COUNT(groups)].n,
            .transport = groups[i % KOLO_COUNT(groups)].transport,
            .body = body,
            .arg = &number,
            .arg_bytes = sizeof number,
            .results = counts,
            .result_bytes = sizeof *counts,
        };
        ASSERT_OK(run_rank_job(&job));
        for (int r = 0; r < job.n; r++) {
            bool no_library = !KOLO_HAS_DNNL || s->kernels == KOLO_KERNELS_REF;
            if (counts[r].ours == 0 && !(no_library && counts[r].others > 0)) continue;
            fail_msg(
                "%s, %d ranks (%d): %lld allocations of ours and %lld of libraries in %d steps of "
                "rank %d",
                s->model, job.n, (int)job.transport, (long long)counts[r].ours,
                (long long)counts[r].others, COUNTED, r);
        }
    }
}

/* ---- system calls ---- */

static void stop(void) { raise(SIGSTOP); }

/* The traced process: setting number `number`. */
static int traced_main(const char *number) {
    counters unused;
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) return 77;
    return train(&settings[atoi(number)], NULL, stop, &unused) == KOLO_OK ? 0 : 1;
}

static bool is_waiting(long call) {
    return call == SYS_futex || call == SYS_sched_yield || call == SYS_clock_nanosleep;
}

typedef struct trace {
    bool refused;
    int calls, waits;
    long last; /* number of the last call that is no waiting */
} trace;

/* Traces the system calls of the child between its two stops. */
static bool follow(pid_t child, trace *t) {
    int status, stops = 0;
    *t = (trace){0};
    while (waitpid(child, &status, 0) == child) {
        if (WIFEXITED(status)) {
            t->refused = WEXITSTATUS(status) == 77;
            return t->refused || (stops == 2 && WEXITSTATUS(status) == 0);
        }
        if (!WIFSTOPPED(status)) return false;
        int signal = WSTOPSIG(status);
        if (signal == SIGSTOP) {
            stops++;
            ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)PTRACE_O_TRACESYSGOOD);
        } else if (signal == (SIGTRAP | 0x80) && stops == 1) {
            struct __ptrace_syscall_info info;
            long n = ptrace(PTRACE_GET_SYSCALL_INFO, child, (void *)sizeof info, &info);
            if (n > 0 && info.op == PTRACE_SYSCALL_INFO_ENTRY) {
                bool waits = is_waiting((long)info.entry.nr);
                t->waits += waits;
                t->calls += !waits;
                if (!waits) t->last = (long)info.entry.nr;
            }
        }
        bool ours = signal == SIGSTOP || signal == SIGTRAP || signal == (SIGTRAP | 0x80);
        int request = stops == 1 ? PTRACE_SYSCALL : PTRACE_CONT;
        ptrace(request, child, NULL, (void *)(intptr_t)(ours ? 0 : signal));
    }
    return false;
}

static void steps_make_no_system_call(void **state) {
    if (!OWN_MALLOC) {
        printf("skip: a sanitizer looks for leaks, which it cannot where it is traced\n");
        skip();
    }
    for (size_t i = 0; i < KOLO_COUNT(settings); i++) {
        char number[8];
        snprintf(number, sizeof number, "%d", (int)i);
        kolo_process child;
        kolo_process_opts opts = {.program = "/proc/self/exe",
                                  .argv =
                                      (char *[]){(char[]){"kolo-tests"}, (char[]){"test_step_loop"},
                                                 (char[]){"--traced"}, number, NULL}};
        ASSERT_OK(kolo_process_start(&opts, &child));
        trace t;
        bool good = follow(child.pid, &t);
        kolo_process_fini(&child);
        assert_true(good);
        if (t.refused) {
            printf("skip: this system does not let processes be traced\n");
            skip();
        }
        /* The second stop is made by two calls or three: getpid, gettid, tgkill. */
        if (t.calls > 3) {
            fail_msg("%s: %d system calls in %d steps, the last has number %ld", settings[i].model,
                     t.calls, COUNTED, t.last);
        }
    }
}

TEST_MAIN(test_step_loop) {
    if (argc > 2 && strcmp(argv[1], "--traced") == 0) return traced_main(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_allocate_nothing),
        cmocka_unit_test(steps_make_no_system_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

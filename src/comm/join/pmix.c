/* Client of PMIx (pmix.org, standard 4), the process management interface of Open MPI's mpirun,
 * PRRTE and srun --mpi=pmix. libpmix is loaded on demand: nothing else depends on it, and its
 * thread runs only in processes that mpirun or srun has started.
 *
 * Rank 0 puts its text under a key and commits it; a fence with data collection makes it readable
 * on all ranks. Only the fence waits for other ranks. It uses the non-blocking call, whose callback
 * runs in PMIx's thread, so that the wait has a deadline: of the waiter and the callback, the last
 * one frees their shared state. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/compiler.h"
#include "base/memory.h"
#include "comm/join/manager.h"

#if KOLO_HAS_PMIX

#include <dlfcn.h>
#include <pmix.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char library_name[] = "libpmix.so.2", key[] = "kolo.rank0";

typedef struct calls {
    pmix_status_t (*init)(pmix_proc_t *, pmix_info_t *, size_t);
    pmix_status_t (*finalize)(const pmix_info_t *, size_t);
    pmix_status_t (*put)(pmix_scope_t, const char *, pmix_value_t *);
    pmix_status_t (*commit)(void);
    pmix_status_t (*fence)(const pmix_proc_t *, size_t, const pmix_info_t *, size_t,
                           pmix_op_cbfunc_t, void *);
    pmix_status_t (*get)(const pmix_proc_t *, const char *, const pmix_info_t *, size_t,
                         pmix_value_t **);
    const char *(*error_string)(pmix_status_t);
} calls;

typedef struct pmix_manager {
    kolo_manager base;
    void *library;
    calls pmix;
    pmix_proc_t self;
} pmix_manager;

/* State shared by a fence and its callback. */
typedef struct fence {
    pthread_mutex_t lock; /* protects all fields below */
    pthread_cond_t changed;
    bool done, abandoned;
    pmix_status_t status;
    pmix_info_t collect; /* read by the library until the fence is done */
} fence;

static kolo_status load(pmix_manager *m) {
    struct {
        const char *name;
        void *call;
    } wanted[] = {
        {"PMIx_Init", &m->pmix.init},
        {"PMIx_Finalize", &m->pmix.finalize},
        {"PMIx_Put", &m->pmix.put},
        {"PMIx_Commit", &m->pmix.commit},
        {"PMIx_Fence_nb", &m->pmix.fence},
        {"PMIx_Get", &m->pmix.get},
        {"PMIx_Error_string", &m->pmix.error_string},
    };
    m->library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!m->library) return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "PMIx: %s", dlerror());
    for (size_t i = 0; i < KOLO_COUNT(wanted); i++) {
        void *call = dlsym(m->library, wanted[i].name);
        if (!call) return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "PMIx: %s", dlerror());
        memcpy(wanted[i].call, &call, sizeof call);
    }
    return KOLO_OK;
}

static kolo_status fail(const pmix_manager *m, const char *what, pmix_status_t status) {
    return KOLO_FAIL(status == PMIX_ERR_NOMEM ? KOLO_ERR_NOMEM : KOLO_ERR_IO, "PMIx, %s: %s", what,
                     m->pmix.error_string(status));
}

/* Gets a numeric attribute of the job. */
static pmix_status_t get_number(const pmix_manager *m, const char *name, uint32_t *number) {
    pmix_proc_t job = m->self;
    job.rank = PMIX_RANK_WILDCARD;
    pmix_value_t *value = NULL;
    pmix_status_t status = m->pmix.get(&job, name, NULL, 0, &value);
    if (status != PMIX_SUCCESS) return status;
    if (value->type == PMIX_UINT32) {
        *number = value->data.uint32;
    } else {
        status = PMIX_ERR_TYPE_MISMATCH;
    }
    free(value);
    return status;
}

/* ---- the fence ---- */

static void fence_free(fence *f) {
    pthread_mutex_destroy(&f->lock);
    pthread_cond_destroy(&f->changed);
    kolo_free(f);
}

static void fence_done(pmix_status_t status, void *data) {
    fence *f = data;
    pthread_mutex_lock(&f->lock);
    f->done = true;
    f->status = status;
    bool last = f->abandoned;
    pthread_cond_signal(&f->changed);
    pthread_mutex_unlock(&f->lock);
    if (last) fence_free(f);
}

/* Waits for the callback; false past the deadline. */
static bool fence_wait(fence *f, int64_t deadline_ns, pmix_status_t *status) {
    struct timespec until = {.tv_sec = (time_t)(deadline_ns / 1000000000),
                             .tv_nsec = (long)(deadline_ns % 1000000000)};
    int error = 0;
    pthread_mutex_lock(&f->lock);
    while (!f->done && error == 0) error = pthread_cond_timedwait(&f->changed, &f->lock, &until);
    bool done = f->done;
    f->abandoned = !done;
    *status = f->status;
    pthread_mutex_unlock(&f->lock);
    if (done) fence_free(f);
    return done;
}

static kolo_status run_fence(pmix_manager *m, int64_t deadline_ns) {
    int64_t began_ns = kolo_now_ns();
    fence *f = kolo_zalloc(sizeof *f);
    if (!f) return KOLO_NOMEM(sizeof *f);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, &clock);
    pthread_condattr_destroy(&clock);
    snprintf(f->collect.key, sizeof f->collect.key, "%s", PMIX_COLLECT_DATA);
    f->collect.value.type = PMIX_BOOL;
    f->collect.value.data.flag = true;
    pmix_status_t status = m->pmix.fence(NULL, 0, &f->collect, 1, fence_done, f);
    if (status != PMIX_SUCCESS) { /* the callback will not be called */
        fence_free(f);
        return fail(m, "waiting for the other ranks", status);
    }
    if (!fence_wait(f, deadline_ns, &status)) {
        return KOLO_FAIL(
            KOLO_ERR_TIMEOUT,
            "rank %d: not all %d processes of the launcher joined within %.1f s: check "
            "that all of them are ranks of this job",
            m->base.rank, m->base.world, (double)(kolo_now_ns() - began_ns) * 1e-9);
    }
    return status == PMIX_SUCCESS ? KOLO_OK : fail(m, "waiting for the other ranks", status);
}

/* ---- the manager ---- */

static kolo_status publish(pmix_manager *m, char *text) {
    pmix_value_t value = {.type = PMIX_STRING, .data.string = text};
    pmix_status_t status = m->pmix.put(PMIX_GLOBAL, key, &value); /* copies it */
    if (status == PMIX_SUCCESS) status = m->pmix.commit();
    return status == PMIX_SUCCESS ? KOLO_OK : fail(m, "publishing rank 0's address", status);
}

static kolo_status lookup(pmix_manager *m, char *text) {
    pmix_proc_t first = m->self;
    first.rank = 0;
    pmix_value_t *value = NULL;
    pmix_status_t status = m->pmix.get(&first, key, NULL, 0, &value);
    if (status == PMIX_ERR_NOT_FOUND || status == PMIX_ERR_TIMEOUT) {
        return kolo_manager_missing(&m->base, 0);
    }
    if (status != PMIX_SUCCESS) return fail(m, "reading rank 0's address", status);
    bool good = value->type == PMIX_STRING && value->data.string &&
                strlen(value->data.string) < KOLO_MANAGER_TEXT_BYTES;
    if (good) snprintf(text, KOLO_MANAGER_TEXT_BYTES, "%s", value->data.string);
    if (value->type == PMIX_STRING && value->data.string) {
        explicit_bzero(value->data.string, strlen(value->data.string));
        free(value->data.string);
    }
    free(value);
    return good ? KOLO_OK : KOLO_FAIL(KOLO_ERR_FORMAT, "PMIx: rank 0's address is malformed");
}

static kolo_status share(kolo_manager *base, char text[KOLO_MANAGER_TEXT_BYTES],
                         int64_t deadline_ns) {
    pmix_manager *m = (pmix_manager *)base;
    if (base->rank == 0) KOLO_TRY(publish(m, text));
    KOLO_TRY(run_fence(m, deadline_ns));
    return base->rank == 0 ? KOLO_OK : lookup(m, text);
}

static void unload(pmix_manager *m) {
    if (m->library) dlclose(m->library);
    kolo_free(m);
}

static void pmix_close(kolo_manager *base) {
    pmix_manager *m = (pmix_manager *)base;
    m->pmix.finalize(NULL, 0);
    unload(m);
}

static const kolo_manager_ops ops = {.name = "PMIx", .share = share, .close = pmix_close};

static kolo_status find_rank(pmix_manager *m) {
    uint32_t world = 0, local = 0;
    pmix_status_t status = get_number(m, PMIX_JOB_SIZE, &world);
    if (status != PMIX_SUCCESS) return fail(m, "getting the number of ranks", status);
    if (world < 1 || m->self.rank >= world || world > INT32_MAX) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "PMIx: this is rank %u of %u, out of range",
                         (unsigned)m->self.rank, (unsigned)world);
    }
    m->base.rank = (int)m->self.rank;
    m->base.world = (int)world;
    m->base.one_host = get_number(m, PMIX_LOCAL_SIZE, &local) == PMIX_SUCCESS && local == world;
    return KOLO_OK;
}

kolo_status kolo_pmix_open(int64_t deadline_ns, kolo_manager **manager) {
    pmix_manager *m = kolo_zalloc(sizeof *m);
    if (!m) return KOLO_NOMEM(sizeof *m);
    m->base.ops = &ops;
    kolo_status status = load(m);
    if (status != KOLO_OK) {
        unload(m);
        return status;
    }
    pmix_status_t started = m->pmix.init(&m->self, NULL, 0);
    if (started != PMIX_SUCCESS) {
        status =
            KOLO_FAIL(KOLO_ERR_IO,
                      "PMIx: cannot connect to the launcher (mpirun, srun): %s; to run a single "
                      "process without one, unset PMIX_RANK",
                      m->pmix.error_string(started));
        unload(m);
        return status;
    }
    status = find_rank(m);
    if (status != KOLO_OK) {
        pmix_close(&m->base);
        return status;
    }
    *manager = &m->base;
    return KOLO_OK;
}

kolo_pmix_condition kolo_pmix_state(void) {
    void *library = dlopen(library_name, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) return KOLO_PMIX_NOT_INSTALLED;
    dlclose(library);
    return KOLO_PMIX_USABLE;
}

#else

kolo_status kolo_pmix_open(int64_t deadline_ns, kolo_manager **manager) {
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                     "started through PMIx (mpirun, srun), but this kolo was built without it: "
                     "install libpmix-dev and rebuild, or start the ranks with kolo run");
}

kolo_pmix_condition kolo_pmix_state(void) { return KOLO_PMIX_NOT_BUILT; }

#endif

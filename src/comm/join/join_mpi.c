/* Joining through MPI: loads the backend that links MPI, and lets it act as the process manager.
 *
 * MPI provides rank and world size, so the backend only has to broadcast rank 0's address and a
 * secret; the group then forms as any other. The launcher's own process manager is not used: it
 * accepts one connection, which is MPI's. */
#include "comm/join/join_mpi.h"

#include "base/clock.h"
#include "base/compiler.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/engine/offload.h"
#include "comm/join/bootstrap.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* ---- loading ---- */

static const char *const mpis[] = {"openmpi", "mpich"};

/* Loads the library for an MPI; NULL on failure, with the reason in `why`. */
static const kolo_backend_ops *load_mpi(const char *mpi, char why[256]) {
    char file[64];
    snprintf(file, sizeof file, "libkolo-mpi-%s.so", mpi);
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    const kolo_backend_ops *ops = library ? dlsym(library, "kolo_backend_table") : NULL;
    if (!ops) snprintf(why, 256, "%s", dlerror());
    return ops;
}

/* Loads the library for the MPI whose launcher started this process, else any. */
static kolo_status load(const char *launcher, const kolo_backend_ops **ops) {
    char why[256] = "";
    *ops = NULL;
    for (size_t i = 0; i < KOLO_COUNT(mpis) && !*ops; i++) {
        if (!launcher || strcmp(launcher, mpis[i]) == 0) *ops = load_mpi(mpis[i], why);
    }
    if (*ops) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                     "transport mpi is not available (%s): build Kolo with -DKOLO_MPI=%s", why,
                     launcher ? launcher : "openmpi or mpich");
}

/* ---- joining ---- */

/* The backend as a process manager. */
typedef struct backend_manager {
    kolo_manager base;
    const kolo_backend *backend;
} backend_manager;

static kolo_status share(kolo_manager *m, char text[KOLO_MANAGER_TEXT_BYTES], int64_t deadline_ns) {
    const kolo_backend *b = ((backend_manager *)m)->backend;
    return b->ops->share(b->state, text, KOLO_MANAGER_TEXT_BYTES);
}

static void keep_open(kolo_manager *m) {} /* closed with the communicator */

static kolo_status join_group(const kolo_backend *b, const kolo_backend_env *env, kolo_joining *j,
                              kolo_comm **comm) {
    static const kolo_manager_ops ops = {.name = "mpi", .share = share, .close = keep_open};
    backend_manager m = {
        .base = {.ops = &ops, .rank = env->rank, .world = env->world, .one_host = env->one_host},
        .backend = b};
    j->opts.transport = KOLO_TRANSPORT_AUTO;
    KOLO_TRY(kolo_rank_env_from_manager(&m.base, &j->opts, j->deadline_ns, &j->env, &j->key));
    return kolo_comm_join(j, comm);
}

/* If the launcher belongs to another MPI, each process gets a world of its own. */
static kolo_status check_world(const kolo_joining *j, long launched, const kolo_backend_env *env) {
    long world = j->opts.world ? j->opts.world : launched;
    if (world == 0 || world == env->world) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "a job of %ld ranks, but MPI has %d: start it with the mpirun of an MPI for "
                     "which Kolo was built",
                     world, env->world);
}

/* The result is the same on all ranks, so all can finalize MPI in order. */
static kolo_status check_wait(const kolo_backend_env *env) {
    if (env->waited_ns <= env->timeout_ns) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_TIMEOUT,
                     "rank %d: MPI has waited %.1f s for the last of its %d ranks to start, more "
                     "than the timeout of %.1f s: check why that rank was late, or raise the "
                     "timeout (--timeout, timeout_ms)",
                     env->rank, (double)env->waited_ns * 1e-9, env->world,
                     (double)env->timeout_ns * 1e-9);
}

kolo_status kolo_join_mpi(kolo_joining *j, kolo_comm **comm) {
    long launched;
    const char *launcher = kolo_bootstrap_mpi(&launched);
    kolo_backend_env env;
    if (j->opts.algorithm != KOLO_ALGORITHM_AUTO) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "algorithm %s: with transport mpi, MPI selects the algorithm; use auto",
                         kolo_algorithm_name(j->opts.algorithm));
    }
    kolo_backend *b = kolo_zalloc(sizeof *b);
    if (!b) return KOLO_NOMEM(sizeof *b);
    kolo_status status = load(launcher, &b->ops);
    if (status == KOLO_OK)
        status = b->ops->open(&b->state, j->started_ns, kolo_ms_to_ns(j->opts.timeout_ms), &env);
    if (status != KOLO_OK) {
        kolo_free(b);
        return status;
    }
    kolo_comm *made = NULL;
    status = check_world(j, launched, &env);
    if (status == KOLO_OK) status = check_wait(&env);
    bool late = status == KOLO_ERR_TIMEOUT;
    if (status == KOLO_OK) status = join_group(b, &env, j, &made);
    if (status != KOLO_OK) {
        b->ops->close(b->state, late);
        kolo_free(b);
        return status;
    }
    made->backend = b;
    made->transport->no_wakeup = true; /* MPI has no event descriptor */
    *comm = made;
    return KOLO_OK;
}

#pragma once
/* Backends: libraries that execute whole collectives in place of Kolo's schedules.
 *
 * A communicator with a backend keeps its transport, over which ranks join, announce collectives,
 * monitor each other, send and receive. So mismatched calls, deadlines and lost peers are detected
 * as without a backend. When all ranks have announced a collective and agree on it, the single
 * entry of its schedule (alg_offload.c) offloads it to the backend, on all ranks in the order of
 * their start. The backend never gets a collective in which some rank does not take part.
 *
 * A backend is a shared library, loaded on demand, so that nothing else depends on the libraries
 * that it links. It exports one kolo_backend_ops with the name kolo_backend_table. */

#include "comm/schedule/schedule.h"

typedef struct kolo_backend_env {
    int rank, world;
    bool one_host; /* all ranks are on this host */
    /* The longest time that a rank waited for all to start, and the shortest timeout of all ranks;
     * the same on all ranks. */
    int64_t waited_ns, timeout_ns;
} kolo_backend_env;

/* All calls are made by the thread that holds the communicator; `start` and `test` do not block. */
typedef struct kolo_backend_ops {
    const char *name; /* as in --transport */
    /* Initializes the library, unless the program has, and gets this rank's environment. The rank
     * began to join at `started_ns`, with this timeout. Blocks until all ranks have called it,
     * regardless of the timeout. ARG; UNSUPPORTED; IO. */
    kolo_status (*open)(void **state, int64_t started_ns, int64_t timeout_ns,
                        kolo_backend_env *env);
    /* Broadcasts from rank 0; blocks. IO. */
    kolo_status (*share)(void *state, void *data, size_t bytes);
    /* Prepares a persistent collective; `op` is never MEAN. UNSUPPORTED if the library does not
     * have the reduction, or not for that many elements; NOMEM. */
    kolo_status (*prepare)(void *state, const kolo_schedule_spec *spec, kolo_dtype dtype,
                           kolo_reduce_op op, void **call);
    /* `input` NULL: this rank's contribution is in `output`. */
    kolo_status (*start)(void *call, const void *input, void *output);
    kolo_status (*test)(void *call, bool *complete);
    void (*release)(void *call);
    /* `sound` false: operations that cannot be cancelled may be in flight, or not all ranks will
     * finalize the library. */
    void (*close)(void *state, bool sound);
} kolo_backend_ops;

#pragma once
/* Backends: libraries that carry out whole collectives, in the place of schedules of ours.
 *
 * A communicator with a backend keeps its transport: over that ranks join, announce what they
 * start, watch each other, send and receive. So ranks that disagree, deadlines and lost peers are
 * found as everywhere. When all ranks have announced a collective and agree on it, the one entry of
 * its schedule (alg_offload.c) hands it to the backend, on all ranks in the order of their start.
 * The backend never sees a collective that some rank does not take part in.
 *
 * A backend is a shared library of its own, loaded when it is asked for, so that nothing else
 * depends on what it stands on. It exports one kolo_backend_ops under the name kolo_backend_table.
 */

#include "comm/schedule/schedule.h"

typedef struct kolo_backend_place {
    int rank, world;
    bool one_host;                 /* all ranks are on this host */
    int64_t waited_ns, timeout_ns; /* the longest that a rank has waited for all to come, and the
                                      least that one would: the same on all ranks */
} kolo_backend_place;

/* All calls belong to the communicator's thread; `start` and `test` do not block. */
typedef struct kolo_backend_ops {
    const char *name; /* as in --transport */
    /* Starts the library, unless the program has, and says which rank this is, of a rank that began
     * to join at `started_ns` and has so much time for it. Blocks until all ranks have come,
     * however late. ARG; UNSUPPORTED; IO. */
    kolo_status (*open)(void **state, int64_t started_ns, int64_t timeout_ns,
                        kolo_backend_place *place);
    /* Rank 0's bytes to all; blocks. IO. */
    kolo_status (*share)(void *state, void *data, size_t bytes);
    /* A collective that may be started again and again; `op` is never MEAN. UNSUPPORTED when the
     * library has no such reduction, or not for so many elements; NOMEM. */
    kolo_status (*prepare)(void *state, const kolo_schedule_spec *spec, kolo_dtype dtype,
                           kolo_reduce_op op, void **call);
    /* `input` NULL: what this rank contributes stands in `output`. */
    kolo_status (*start)(void *call, const void *input, void *output);
    kolo_status (*test)(void *call, bool *complete);
    void (*release)(void *call);
    /* `sound` false: something may still be in flight, which no library can take back, or not all
     * ranks will come to the library's end. */
    void (*close)(void *state, bool sound);
} kolo_backend_ops;

#pragma once
/* Parameters on servers: training whose workers push gradients to the owners of the parameters and
 * pull the updated values.
 *
 * The parameters are one vector of floats. Each server owns a range of it; ranges differ by at
 * most one element, so large tensors are split. The owner updates its range with the program's own
 * rule. In each step a worker pulls the parameters, computes a gradient, and pushes it:
 *
 *     KOLO_TRY(kolo_parameters_create(comm, initial, count, &opts, &p));
 *     for (...) {
 *         KOLO_TRY(kolo_parameters_pull(p, values));
 *         ...                                                // gradient of this rank's samples
 *         KOLO_TRY(kolo_parameters_push(p, gradient));
 *     }
 *     KOLO_TRY(kolo_parameters_finish(p));
 *
 * A worker's *clock* is the number of its pushes. The policy bounds how far workers may drift apart
 * (docs/servers.md):
 *
 *     bsp    staleness 0: the owner waits for the pushes of a clock from all workers, adds them in
 *            the order of ranks, and updates once. All workers read the same values. With drop = m
 *            it waits for all but m of them; one that comes later is added to the next one of its
 *            worker, or discarded.
 *     ssp:s  staleness s > 0: each push updates at once. A worker at clock c reads when all workers
 *            have reached clock c - s.
 *     asp    staleness KOLO_STALENESS_ANY: each push updates at once, and no worker waits.
 *     auto   `adapts`: one of these at a time.
 *
 * (Ho et al., "More effective distributed ML via a stale synchronous parallel parameter server",
 * NIPS 2013.) A worker that has finished or is lost is waited for no longer. If gradients and
 * values are in registered memory (kolo_comm_alloc), owners on the same host read and write them in
 * place; from `servers` that own everything, with plain bsp (no drop, quorum, adapts, replicas),
 * workers copy the values themselves until they finish. Functions are called by one thread of a
 * rank at a time. */

#include "kolo/comm.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kolo_parameters kolo_parameters;

enum { KOLO_STALENESS_ANY = -1 };

/* What an owner does with gradients: changes `values` in place. */
typedef struct kolo_parameters_update {
    size_t first, count;   /* the elements of the whole vector that this rank owns */
    float *values;         /* [count] */
    const float *gradient; /* [count], or of a part its own number: one worker's, or with bsp the
                              sum of all workers' */
    int workers;           /* how many gradients it is the sum of */
    int least;             /* with drop or a quorum: a mean is over at least this many gradients, as
                              many as a step of all workers waits for; otherwise 0 */
    int worker;            /* whose it is; bsp: -1 */
    uint64_t clock;        /* at which it was computed, from 0; of a sum the largest, */
    int latest;            /* which is that of this worker */
    uint64_t version;      /* updates of this range so far */
    int not_lost;          /* workers that have not been lost, finished ones included */
} kolo_parameters_update;

/* A read or an update, for the log of a run. */
typedef struct kolo_parameters_event {
    bool read; /* otherwise a push that an update has taken, or a late one */
    bool late; /* a push with `drop` whose step was over */
    int worker;
    uint64_t clock;         /* of the worker; of a push: before it */
    const uint64_t *pushes; /* [workers]: of each worker, that have been taken so far */
    int workers;
} kolo_parameters_event;

/* What an owner has, where owners have other things than equal ranges of one vector. In numbers. */
typedef struct kolo_parameters_part {
    size_t values;   /* that workers pull */
    size_t gradient; /* that it updates these by, and workers push, unless `pushed` is given */
    size_t state;    /* that the owner keeps, such as momentum; see kolo_parameters_read_state */
    size_t pushed;   /* with `unpack`: that workers push; otherwise 0 */
} kolo_parameters_part;

/* A zero field takes its default. All ranks pass the same numbers. */
typedef struct kolo_parameters_opts {
    int servers; /* the last ranks, which then only serve; default: every rank is a worker and
                    owns a range */
    /* bsp, with `servers`: workers own parts, too, in front of those of the servers. Without
     * `parts` they are of such sizes that all links are equally long busy (docs/servers.md). */
    bool shared;
    /* bsp: the parts of each owner, default 1. Part i of all is of owner i modulo the owners, and
     * is pushed, updated and pulled for itself, so that workers receive while they send. */
    int buckets;
    /* By part; copied. Workers then pull and push the parts of all owners, one after the other,
     * and the initial values are the values and the state of each. NULL: equal ranges. */
    const kolo_parameters_part *parts;
    bool needs_all; /* a lost worker ends the job: all requests fail with an error that names it */
    int spared;     /* but the loss of this worker or a later one ends it only if that left after an
                       error; default: none is spared */
    int staleness;  /* see above; default 0, bsp */
    int drop;       /* bsp: gradients that a step does not wait for; less than the workers */
    bool discard;   /* those that come later are discarded, instead of kept */
    /* bsp: a step ends once this many gradients of workers that have read the newest values are in,
     * or those of all that are waited for, and if not all are in, grace_ms later; those that come
     * later are in the next step. Without `drop`; with a grace without `replicas`, `record` and
     * `replay`; the grace is shorter than timeout_ms. 0: all. */
    int quorum;
    int64_t grace_ms;
    /* Begins with bsp, and takes other bounds while the run goes on, from the time of the workers'
     * steps and the loss (docs/servers.md). Only with a staleness of 0, and without `drop`,
     * `record` and `replay`. */
    bool adapts;
    bool leases;          /* workers take parts of the work, see kolo_parameters_lease; they make
                             different numbers of pushes: not with a staleness of 0 */
    uint64_t first_lease; /* the number of the first */
    bool sums; /* barriers have sums over the workers (kolo_parameters_barrier_sum), for which each
                  owner has memory; not with `shared` or `buckets` */
    int joins; /* processes that may join as workers later (kolo_parameters_join), also those that
                  have ended by then; with `leases` and `servers`, without `record` and `replay` */
    /* 1: the next server has a replica of each part, which is the first to take each push; if a
     * server is lost, its part continues from the replica. Not with `record` or `replay`. It needs
     * 2 servers, and calls the functions below with `replica_arg`. 0: the loss of a server ends the
     * job. */
    int replicas;
    /* Called at the owner, in the service's thread, for each push: an error of what a worker has
     * pushed is that of the push, which is then not taken. Where workers are on the owner's host,
     * these may still change what they have pushed until its update is made. May be NULL. */
    kolo_status (*check)(void *arg, const float *pushed);
    /* Called at the owner, in the service's thread, for each push: makes the gradient of the part
     * from what a worker has pushed, such as codes. An error is that of the push, which is then not
     * taken. With `parts` alone. NULL: workers push gradients. */
    kolo_status (*unpack)(void *arg, const float *pushed, float *gradient);
    /* Called at the owner, in the service's thread. Required there. */
    void (*update)(void *arg, const kolo_parameters_update *update);
    /* bsp, with needs_all: an update may need sums over the parts of all owners, such as the norm
     * of the gradient. Called at the owner before `update`, with k = 0, 1, ... and the same
     * gradient: fills `numbers` with what this owner adds to sum k, and returns how many these are,
     * up to `exchanged`; 0: `update` follows. From k = 1 on `numbers` has sum k - 1, in the order
     * of owners. All owners return the same. Nobody reads values or state between the first sum and
     * the end of the update. Not with drop, quorum, adapts, spared, shared, buckets, replicas,
     * record or replay. NULL: none. */
    size_t (*exchange)(void *arg, const kolo_parameters_update *update, int k, float *numbers);
    size_t exchanged;
    /* Called at the owner with its values and then its state: the initial ones before the first
     * update, then those of each kolo_parameters_assign, in the service's thread. May be NULL. */
    void (*load)(void *arg, const float *initial);
    /* Called at the owner, in the service's thread, with the settings of kolo_parameters_configure,
     * for each of its parts. An error is that of the call. NULL: there are no settings. */
    kolo_status (*configure)(void *arg, const void *settings, size_t bytes);
    /* Copies the values of the owner to `values`, in the service's thread, when a worker reads
     * them: to the memory of that worker, where that is mapped. Then updates keep the values
     * themselves. NULL: they are in `values` of kolo_parameters_update. */
    void (*copy_values)(void *arg, float *values);
    /* Copies the state of the owner to `state`; in the service's thread. Required there with a
     * state.
     */
    void (*save)(void *arg, float *state);
    /* With `adapts`, called at the first owner after an update: the samples of all gradients so
     * far, and the sum of their losses. NULL: bounds do not depend on the loss. */
    void (*progress)(void *arg, double *samples, double *loss);
    /* Called at the owner, in the service's thread, for each event in order. May be NULL. */
    void (*observe)(void *arg, const kolo_parameters_event *event);
    void *arg, *replica_arg; /* of the part that the server owns; of that of the server before it */
    void *const *bucket_args; /* [buckets]: of each of its parts, in place of `arg`; borrowed.
                                NULL: `arg` is of them all */
    /* Files, with ".0" appended for the first owner and so on, of the order in which owners take
     * requests; they are read and written at the owner. With `replay` owners take them in the order
     * of an earlier run with `record`, whose bits they then have; one of the two.
     * kolo_parameters_wait completes a record. ARG: a file to record exists, or one to replay is of
     * other options. */
    const char *record, *replay;
    uint64_t update_hash; /* with these: of the options on which updates depend; a replay has that
                             of its record */
    int64_t timeout_ms;   /* of creation, and of waits while no worker makes progress: see
                             kolo_service_report_progress; default the communicator's */
} kolo_parameters_opts;

enum { KOLO_STALENESS_BINS = 32 };

/* What the owner of a range has seen. */
typedef struct kolo_parameters_stats {
    uint64_t version; /* updates of the range */
    int lost;         /* workers lost */
    uint64_t parts;   /* of gradients, that came before the rest: see kolo_parameters_push_early */
    int largest;      /* largest staleness of a read: its worker's clock minus the smallest */
    uint64_t reads[KOLO_STALENESS_BINS]; /* by staleness; the last bin: that and above */
} kolo_parameters_stats;

/* Creates the parameters of a group from rank 0's initial values. A collective call; blocks.
 * `initial` [count] is read on rank 0 only; with parts, `count` is that of all values and states.
 * Destroy them before `comm`. ARG: invalid options; NOMEM; the errors of kolo_service_create. */
KOLO_API kolo_status kolo_parameters_create(kolo_comm *comm, const float *initial, size_t count,
                                            const kolo_parameters_opts *opts,
                                            kolo_parameters **parameters);
/* Finishes, if that was not done, and frees them. A rank that owns a range first waits until all
 * workers have finished or are lost. NULL is allowed. Blocks. */
KOLO_API void kolo_parameters_destroy(kolo_parameters *parameters);
/* After an error of this rank: kolo_parameters_destroy then does not wait, and this rank is lost to
 * the others, whose errors have the text of this thread's last error. Owners that are threads of
 * the same process may read what this rank has pushed until they are destroyed. */
KOLO_API void kolo_parameters_abandon(kolo_parameters *parameters);

/* Waits until all workers have finished or are lost, as kolo_parameters_destroy does, and completes
 * a record, after which no request is possible. A rank that owns a part; once. Blocks. PEER: with
 * needs_all, the worker that was lost; ARG: recorded requests were not made in the replay; IO: the
 * record cannot be written. */
KOLO_API kolo_status kolo_parameters_wait(kolo_parameters *parameters);

/* What a process needs to join, besides the job's secret: valid until the next call or until the
 * parameters are destroyed. NULL: none may. Servers that this rank has found lost are not needed,
 * with `replicas`: so a process that joins after such a loss needs a text from after it. */
KOLO_API const char *kolo_parameters_address(const kolo_parameters *parameters);
/* Creates the parameters of a process that is no rank of the group, as one more worker. `count` and
 * `opts` are those of the group, with parts if that has parts; functions are not called. See
 * kolo_service_join, whose errors it has. */
KOLO_API kolo_status kolo_parameters_join(const char *address, const char *secret_file,
                                          size_t count, const kolo_parameters_opts *opts,
                                          kolo_parameters **parameters);
/* Of a process that has joined: its number among the workers, behind those of the group. */
KOLO_API int kolo_parameters_number(const kolo_parameters *parameters);
/* After kolo_parameters_join: takes part from now on, at a moment in which the workers do not wait
 * for each other. Fills `end`, as they ask for leases now. Blocks. ARG: the run is about to end;
 * PEER; TIMEOUT. */
KOLO_API kolo_status kolo_parameters_enter(kolo_parameters *parameters, uint64_t *end);

/* Whether this rank is a worker. */
KOLO_API bool kolo_parameters_works(const kolo_parameters *parameters);
/* Reads all parameters into `values` [count], as new as the policy demands. A worker. Blocks; then
 * its earlier push is complete too. PEER: an owner is lost; TIMEOUT. */
KOLO_API kolo_status kolo_parameters_pull(kolo_parameters *parameters, float *values);
/* Sends a gradient [count] to the owners, and advances this worker's clock. Does not wait for the
 * update: the gradient is borrowed until the next pull, or the end. With `pushed` of a part it is
 * what the parts are unpacked from, one after the other. ARG: the latest push was not
 * followed by a pull; PEER. */
KOLO_API kolo_status kolo_parameters_push(kolo_parameters *parameters, const float *gradient);
/* Sends a piece of the next gradient [count] while its rest is computed: the first `ready` numbers
 * of part `part`, which is that of owner `part` but with `buckets`, are final. Call it as often as
 * they get more; kolo_parameters_push then sends the rest, of the same memory. Does nothing for
 * owners that read the gradient in place, and waits for more numbers where there are few; with
 * `buckets` a part is sent once it is complete. Does not block. ARG: the latest push was not
 * followed by a pull, there is no such part, or it has fewer numbers; PEER. */
KOLO_API kolo_status kolo_parameters_push_early(kolo_parameters *parameters, const float *gradient,
                                                int part, size_t ready);
/* With `buckets`, before the first kolo_parameters_push_early of a step: the next pull reads into
 * `values` [count], parts of which may be written from now on. */
KOLO_API void kolo_parameters_pull_early(kolo_parameters *parameters, float *values);
/* The parts that this worker has sent so. */
KOLO_API uint64_t kolo_parameters_count_parts(const kolo_parameters *parameters);
/* The bytes that this rank has exchanged with other hosts so far, as a worker and as an owner. */
KOLO_API void kolo_parameters_traffic(kolo_parameters *parameters, uint64_t *sent,
                                      uint64_t *received);
/* With `adapts`: the bound that the first owner has chosen, as this worker's latest pull has found
 * it; it holds from the first push after that on. Otherwise `staleness`. */
KOLO_API int kolo_parameters_staleness(const kolo_parameters *parameters);
/* Waits for this worker's latest push and leaves: no worker waits for it any longer. With bsp the
 * others go on without its gradients. Reading is still allowed. Blocks. PEER; TIMEOUT. */
KOLO_API kolo_status kolo_parameters_finish(kolo_parameters *parameters);
/* Reads the state of all owners into `state`, as it is after this worker's latest push that a pull
 * has completed. A worker. Blocks. PEER; TIMEOUT. */
KOLO_API kolo_status kolo_parameters_read_state(kolo_parameters *parameters, float *state);
/* Replaces the values and the state of all owners by `initial`, as in kolo_parameters_create, while
 * no worker pushes or pulls; the others pull afterwards. A worker. Blocks. ARG: the latest push was
 * not followed by a pull, or this worker has finished, or an owner has pushes of a step that is
 * not complete; with `replicas`, `record` or `replay`; PEER; TIMEOUT. */
KOLO_API kolo_status kolo_parameters_assign(kolo_parameters *parameters, const float *initial);
enum { KOLO_SETTINGS_MOST = 64 };
/* Sends the program's settings, such as a learning rate, to all owners: up to KOLO_SETTINGS_MOST
 * bytes. They take effect before the next push of this worker, and after its earlier ones. A
 * worker. Blocks. ARG: as kolo_parameters_assign, or the owners have no `configure`; its errors;
 * PEER; TIMEOUT. */
KOLO_API kolo_status kolo_parameters_configure(kolo_parameters *parameters, const void *settings,
                                               size_t bytes);
/* The reads of this worker by staleness: adds them to counts[KOLO_STALENESS_BINS]. The staleness of
 * a read is the largest over the owners. */
KOLO_API void kolo_parameters_count_reads(const kolo_parameters *parameters, uint64_t *counts);
/* The gradients of this worker by delay, which is the number of updates between their read and
 * their arrival: adds them to counts[KOLO_STALENESS_BINS]. The largest over the owners. */
KOLO_API void kolo_parameters_count_delays(const kolo_parameters *parameters, uint64_t *counts);
/* Waits until all workers have called this, or have left: a barrier that survives lost workers. No
 * step waits for a worker that is here, and the bound of ssp counts clocks from its end, unless
 * with `leases`. With `drop` the owners then apply what they have kept of late gradients. Fills
 * lost[workers + joins], the same on all workers: 0, or of a worker whose process has ended 1 more
 * than the pushes that the first owner has taken of it. Fills `asked`, the same on all workers:
 * whether any rank has asked all to stop (kolo_parameters_stop). `any`: whether this worker has
 * something to report, for example that the run is complete; filled with whether any worker has
 * that leaves the barrier, the same on all of them. NULL: not needed; of `any`: nothing to report.
 * A worker. Blocks. ARG: the latest push was not followed by a pull, or this worker has finished;
 * PEER; TIMEOUT. */
KOLO_API kolo_status kolo_parameters_barrier(kolo_parameters *parameters, uint64_t *lost,
                                             bool *asked, bool *any);
/* With `sums`: the same, and the owners add up what the workers give, `numbers` [gradient] each, in
 * the order of arrival; one that is lost in the barrier may be in the sum or not. The numbers of a
 * single worker are kept bitwise. NULL: this worker gives none. */
KOLO_API kolo_status kolo_parameters_barrier_sum(kolo_parameters *parameters, const float *numbers,
                                                 uint64_t *lost, bool *asked, bool *any);
/* With `sums`: reads the sum [gradient] of the latest barrier for which any worker has given
 * numbers; zeros before the first. Another barrier of all workers must separate it from the next
 * one that has a sum. A worker. Blocks. PEER; TIMEOUT. */
KOLO_API kolo_status kolo_parameters_read_sum(kolo_parameters *parameters, float *sum);
/* With `leases` the work has numbered parts, such as ranges of samples, that workers take from one
 * counter at the first owner:
 *
 *     KOLO_TRY(kolo_parameters_ask(p, end));
 *     KOLO_TRY(kolo_parameters_lease(p, &given, &number));
 *     if (kolo_parameters_reads_again(p)) KOLO_TRY(kolo_parameters_pull(p, values));
 *     ...                                          // gradient of part `number`
 *     KOLO_TRY(kolo_parameters_push(p, gradient));
 *     KOLO_TRY(kolo_parameters_pull(p, values));
 *
 * A push acknowledges the oldest lease of its worker. The leases of a lost worker that its pushes
 * have not acknowledged are given to others, so that each part is used once. */
/* Asks for a lease below `end`. A worker may ask for the next ones before it has pushed, and have
 * up to 4 leases. With a bound and without a lease it reports that to the owners first, and waits
 * for their answers; otherwise it does not block. ARG: the answer to an earlier request was not
 * taken; with a bound and without a lease, between a push and a pull, where others may wait for
 * this worker's clock; PEER; TIMEOUT. */
KOLO_API kolo_status kolo_parameters_ask(kolo_parameters *parameters, uint64_t end);
/* Takes the answer: a lease, and `given`; otherwise there is none now, if this worker has others,
 * or all below `end` are acknowledged. Until that is so, a worker that has none waits for one that
 * returns. Blocks. ARG: it has not asked; PEER; TIMEOUT. */
KOLO_API kolo_status kolo_parameters_lease(kolo_parameters *parameters, bool *given,
                                           uint64_t *number);
/* With a bound, clocks do not wait for a worker without a lease. Once it gets one, it goes on with
 * the clock of the slowest that has one: whether it has to pull before it computes a gradient,
 * since the others may have gone on. */
KOLO_API bool kolo_parameters_reads_again(const kolo_parameters *parameters);
/* Lets all workers stop at one point, though each is at another: a point is a number, such as the
 * steps done, that grows. A worker that is at a point calls this to learn whether it is to stop
 * there or later, and states before which point it calls again (`next`, above 0). `asks`: this rank
 * wants all to stop. Fills `at`: the point, which no worker has passed, or 0: none was requested,
 * or some worker has not called. With `leases`, point k is before lease k times the workers, and
 * owners give no leases after `at`. Any rank may call it; `next` is of workers. Blocks. ARG: with
 * `record` or `replay`; PEER; TIMEOUT. */
KOLO_API kolo_status kolo_parameters_stop(kolo_parameters *parameters, bool asks, uint64_t next,
                                          uint64_t *at);
/* Lets all workers meet at one point, such as for a checkpoint, and go on: as kolo_parameters_stop,
 * but repeatedly. `asks`: this worker wants another point, and has met the others at the latest
 * one. Fills `at`: the latest point, which this worker has not passed if it is new, or 0: there was
 * none. What to do there, for example kolo_parameters_barrier, is up to the workers. A
 * worker, without `leases`. Blocks. ARG: with `record` or `replay`; PEER; TIMEOUT. */
KOLO_API kolo_status kolo_parameters_pause(kolo_parameters *parameters, bool asks, uint64_t next,
                                           uint64_t *at);
/* Before another run of the same workers: forgets that any rank has asked all to stop or to meet,
 * and the points of all workers. The others call neither of these functions meanwhile; the worker
 * that asks for points with kolo_parameters_pause calls this. A worker, without `leases`. Blocks.
 * ARG: with `record` or `replay`; PEER; TIMEOUT. */
KOLO_API kolo_status kolo_parameters_forget_stop(kolo_parameters *parameters);
/* With `replicas`: whether this rank has found server i lost, so that its requests go to the
 * replica. */
KOLO_API bool kolo_parameters_has_lost(const kolo_parameters *parameters, int i);
/* Waits until all workers have finished or are lost, up to `timeout_ms`: whether that is so. A rank
 * that owns a part. */
KOLO_API bool kolo_parameters_ended(kolo_parameters *parameters, int64_t timeout_ms);
/* Copies what this rank's range has seen. ARG: it owns none. */
KOLO_API kolo_status kolo_parameters_stats_get(kolo_parameters *parameters,
                                               kolo_parameters_stats *stats);

#ifdef __cplusplus
}
#endif

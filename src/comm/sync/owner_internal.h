#pragma once
/* The owner of a part of the parameters, as the files that implement it see it: owner_state.c has
 * what they share, parameters_owner.c takes requests, owner_bsp.c completes steps of several
 * workers, owner_exchange.c sums over the owners, owner_lease.c has leases, the common end of the
 * run, and workers that join, owner_assign.c takes values and settings. */

#include "comm/sync/adapt.h"
#include "comm/sync/leases.h"
#include "comm/sync/parameters_owner.h"
#include "comm/transport/transport.h"

#include <pthread.h>

/* A worker, as an owner sees it. */
typedef struct kolo_owner_worker {
    bool gone;                  /* has finished or is lost */
    bool idle;                  /* has no lease: clocks do not wait for it */
    uint64_t skipped;           /* of its clock, without a push */
    uint64_t from;              /* of its clock: the bound counts from here, modulo 2^64 */
    int64_t read_ns;            /* when it has read last; 0: its step is not timed, */
    bool after_barrier;         /* since it waits in a barrier before it */
    uint64_t read_at;           /* the version that it has read last */
    uint64_t delay;             /* of its latest push */
    kolo_service_call *barrier; /* it waits until no worker is active */
    uint32_t barriers;          /* that have ended */
    kolo_service_call *push;    /* kept until the step is complete; bsp only */
    const float *gradient;      /* of `push` */
    float *unpacked;            /* its gradient; NULL: it is pushed as it is */
    float *staged; /* the first n_staged numbers of its next push; NULL: it sends no parts */
    size_t n_staged;
    kolo_service_call *pull;  /* kept until the others have caught up, and an update has ended; */
    kolo_service_call *state; /* until an update has ended */
    kolo_service_call *lease; /* kept until one returns, or all are acknowledged */
    uint32_t asked;           /* for leases, and answered; the latest answer: */
    uint64_t number, resume;  /* as in the reply */
    uint64_t point; /* it asks where to stop or pause again before it passes this; 0: never */
    float *late;    /* the sum of n_late gradients that came after their steps */
    int n_late;
    uint64_t late_clock; /* of the latest of them */
} kolo_owner_worker;

/* Sums over the owners: owner_exchange.c. */
typedef struct kolo_owner_sums kolo_owner_sums;

/* The service's thread owns all but what the mutex protects. */
struct kolo_parameters_owner {
    const kolo_parameters_opts *opts;
    kolo_owner_reply *reply;
    kolo_owned has;
    int n_workers, n_first; /* those who may join included; without them */
    int n_present;
    int n_not_lost; /* present, or finished */
    float *values, *state;
    bool placed;                   /* values are in memory of the caller */
    bool current;                  /* `values` has those of the latest update */
    float *sum;                    /* of gradients; bsp only, */
    bool sum_shared;               /* in memory of the caller */
    const void **summands;         /* [2 n_workers]: of a step, late ones included; */
    int latest;                    /* the worker whose clock it has */
    kolo_owner_worker *workers;    /* [n_workers] */
    float *late;                   /* of all workers; only if late gradients are kept */
    uint64_t *pushes;              /* [n_workers]: taken, and skipped with leases: the clock */
    uint64_t *lost;                /* [n_workers]: as kolo_parameters_barrier gives it */
    uint64_t *reported;            /* [n_workers]: the same, at the end of a barrier, */
    uint64_t reported_flags;       /* and kolo_barrier_flag */
    float *barrier_sum;            /* of the latest barrier that has one; NULL: none has */
    int n_given;                   /* workers that have added to it in this barrier */
    kolo_service_call **taken;     /* [n_workers]: of the step that is being completed */
    kolo_owner_sums *sums;         /* that updates need; NULL: none */
    kolo_leases *leases;           /* NULL: none */
    int staleness;                 /* the bound now */
    kolo_adapt *adapt;             /* at the first owner, of a bound that adapts; else NULL */
    uint32_t choice, taken_choice; /* the latest, which this owner has made; which it has taken */
    double samples, loss;          /* as `progress` gave them last */
    int64_t (*now_ns)(void);
    bool again;        /* workers may send what it has taken: kolo_parameters_owner_lead */
    int64_t quorum_ns; /* when a quorum of the step was in; 0: it is not */
    bool stops;        /* a rank has asked for it */
    uint64_t stop_at;  /* the point where all workers stop; 0: not known */
    bool pauses;       /* a worker has asked for it; the point is not known */
    uint64_t pause_at; /* the latest; 0: none so far */
    uint64_t end;      /* of the leases that are asked for since the latest barrier; 0: none */
    uint64_t version;
    bool ends;                   /* a worker, or another owner, is lost that the job needs: */
    char why[KOLO_REPORT_BYTES]; /* which one, and why */
    pthread_mutex_t mutex;       /* protects the following; the others are constant once `ended` */
    pthread_cond_t all_gone;
    bool ended; /* no worker is present */
    kolo_parameters_stats stats;
};

/* Removes a kept call. Before the reply: one that fails ends its worker, whose calls get replies.
 */
static inline kolo_service_call *kolo_owner_take(kolo_service_call **kept) {
    kolo_service_call *call = *kept;
    *kept = NULL;
    return call;
}

/* Whether steps wait for a worker, unless they drop it. */
static inline bool kolo_owner_is_active(const kolo_owner_worker *w) {
    return !w->gone && !w->barrier;
}

/* owner_state.c */
/* The smallest clock of a worker that is still waited for, without what is before a change of the
 * bound; UINT64_MAX: there is none. */
uint64_t kolo_owner_slowest(const kolo_parameters_owner *o);
/* Reports an event to the program. */
void kolo_owner_observe(const kolo_parameters_owner *o, kolo_parameters_event event);
/* What the program gets of an update: see kolo_owner_apply. */
kolo_parameters_update kolo_owner_describe(const kolo_parameters_owner *o, const float *gradient,
                                           int n, int w, uint64_t clock);
/* Changes the values by a gradient: that of worker w, or if w is -1 the sum of n. */
void kolo_owner_apply(kolo_parameters_owner *o, const float *gradient, int n, int w,
                      uint64_t clock);

/* The job ends, since this rank is lost: what is kept, and comes, gets an error. */
void kolo_owner_end_job(kolo_parameters_owner *o, const char *what, int number, const char *reason);
/* That error. */
kolo_status kolo_owner_fail(const kolo_parameters_owner *o);

/* owner_bsp.c */
/* Makes the update of a step if its gradients are in. */
void kolo_owner_complete_step(kolo_parameters_owner *o);
/* Adds n gradients to the sum of `total`. */
void kolo_owner_add(const kolo_parameters_owner *o, float *sum, int *total, const float *gradient,
                    int n);
/* A gradient whose step is over: it waits for the next one of its worker, or is discarded. */
void kolo_owner_take_late(kolo_parameters_owner *o, int w, kolo_service_call *call,
                          const float *gradient);
/* Once no worker is active, those in the barrier go on together, with the same report and knowledge
 * of whether a rank has asked for the end of the run. */
void kolo_owner_end_barrier(kolo_parameters_owner *o);

/* owner_exchange.c */
void kolo_owner_sums_destroy(kolo_owner_sums *sums);
/* Begins an update by this sum of n gradients, which stays where it is. */
void kolo_owner_sums_begin(kolo_owner_sums *sums, const float *gradient, int n, uint64_t clock);
/* Whether an update has begun. */
bool kolo_owner_sums_are_open(const kolo_owner_sums *sums);
/* Makes the sums for which the other owners have sent their parts: whether there is no other one.
 * Then the update is that of these arguments. The job ends if an owner is lost. */
bool kolo_owner_sums_advance(kolo_parameters_owner *o, const float **gradient, int *n,
                             uint64_t *clock);
/* Whether a client is another owner that an update needs, now or, unless it has left, later. */
bool kolo_owner_sums_need(const kolo_owner_sums *sums, int client, bool left);
/* Whether a request has what another owner may send now; takes it. */
bool kolo_owner_sums_fit(const kolo_owner_sums *sums, const kolo_service_call *call);
void kolo_owner_sums_take(kolo_owner_sums *sums, const kolo_service_call *call);

/* owner_lease.c */
/* Clocks wait for a worker again, which had no lease. */
void kolo_owner_go_on_at(kolo_parameters_owner *o, int w, uint64_t clock);
/* Answers a kept request for a lease, if there is one or none can come. */
void kolo_owner_answer_lease(kolo_parameters_owner *o, int w);
/* Answers a request to agree on a point where all pause. */
void kolo_owner_pause(kolo_parameters_owner *o, int w, kolo_service_call *call);
/* Answers a request to agree on the end of the run. */
void kolo_owner_stop(kolo_parameters_owner *o, int w, kolo_service_call *call);
/* A worker joins while the others make steps, unless they are about to end. */
void kolo_owner_join(kolo_parameters_owner *o, int w, kolo_service_call *call);

/* owner_assign.c */
/* Whether values and settings may be changed during a run. */
bool kolo_owner_is_settable(const kolo_parameters_owner *o);
/* The values and the state become these, and the program gets them. */
void kolo_owner_set_values(kolo_parameters_owner *o, const float *own);
/* Whether a request for new values, or with settings, is valid. */
bool kolo_owner_may_assign(const kolo_parameters_owner *o, const kolo_service_call *call);
bool kolo_owner_may_configure(const kolo_parameters_owner *o, const kolo_service_call *call);
/* Answers them. */
void kolo_owner_assign(kolo_parameters_owner *o, kolo_service_call *call);
void kolo_owner_configure(kolo_parameters_owner *o, kolo_service_call *call);

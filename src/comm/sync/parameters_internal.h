#pragma once
/* What the files of kolo/parameters.h share: the object, and requests to the owners of its parts.
 */

#include "comm/engine/comm.h"
#include "comm/sync/parameters_order.h"
#include "comm/sync/parameters_owner.h"
#include "comm/sync/parameters_parts.h"
#include "comm/sync/parameters_replica.h"
#include "kolo/parameters.h"
#include "kolo/service.h"

/* Buckets whose parts are in flight, so that the links to all owners are busy for the same time. */
enum { KOLO_BUCKETS_AHEAD = 3 };

/* What an owner has been sent of the next push, or of the one that is in flight. */
typedef struct early_push {
    kolo_service_request part[KOLO_PUSH_PARTS_MOST];
    int n;
    size_t sent; /* numbers */
} early_push;

struct kolo_parameters {
    kolo_comm *comm;
    kolo_parameters_opts opts;
    kolo_service *service;
    size_t count;                     /* of the initial values */
    size_t largest;                   /* part of a vector */
    int n_workers, n_servers, number; /* number: of a worker that has joined; -1: a rank */
    int n_parts;                      /* of all owners, which are n_servers */
    bool works, pushing, finished, abandoned;
    uint64_t clock;
    uint32_t choice;                      /* of the bound, as a read has returned it last */
    void *exposed;                        /* values that workers on this host copy, registered; */
    size_t exposed_bytes;                 /* NULL: the owner copies them */
    kolo_owner_parts *parts_here;         /* what this rank owns; NULL: nothing, */
    kolo_parameters_owner *owner;         /* and its first part */
    kolo_order *order;                    /* recorded or replayed; NULL: neither */
    kolo_parameters_opts followed;        /* of `follower` */
    kolo_parameters_owner *follower;      /* of the part of the server before; NULL: none */
    kolo_replicas *replicas;              /* both; NULL: none */
    bool *moved;                          /* [n_servers]: its part is at the next one */
    kolo_owned *owned;                    /* [n_parts] */
    kolo_service_request *pushes, *pulls; /* [n_parts] */
    kolo_service_request *signals;        /* [n_parts] */
    bool *ready;                          /* [n_parts]: with buckets, the gradient is final */
    int n_pushed, n_pulled;               /* parts that are requested in this step */
    float *reads_into;                    /* see kolo_parameters_pull_early */
    early_push *early;                    /* [n_parts] */
    kolo_comm_wait_hooks wait_hooks;      /* of `group`, */
    kolo_comm *group;                     /* of workers; NULL: none */
    kolo_service_request lease;           /* in flight if `asked` */
    bool asked;
    int held;                  /* leases that no push has acknowledged */
    bool idle;                 /* it has reported to the owners that it has none */
    bool goes_on;              /* it has one again, and reads before it computes */
    uint64_t resume;           /* the clock of the reply to `lease` */
    uint64_t paused_at;        /* the latest point of a pause, as an owner has replied it */
    uint32_t barriers, leases; /* requests of these kinds that were answered */
    const float *pushed;       /* the gradient of the latest push */
    uint64_t parts;            /* sent before the rest of pushes */
    uint64_t reads[KOLO_STALENESS_BINS];  /* of this worker, by staleness */
    uint64_t delays[KOLO_STALENESS_BINS]; /* of its gradients */
};

/* The parts of each owner. */
static inline int kolo_parameters_buckets(const kolo_parameters *p) {
    return p->opts.buckets > 1 ? p->opts.buckets : 1;
}
/* Allocates what requests need, and finds what each part has. */
kolo_status kolo_parameters_allocate(kolo_parameters *p);
void kolo_parameters_free(kolo_parameters *p);

/* ARG: this rank is no worker, or the service has ended. */
kolo_status kolo_parameters_check_worker(const kolo_parameters *p);
/* A request to the owner of part i without data, as errors name it. */
kolo_service_request kolo_parameters_request(const kolo_parameters *p, int i, uint32_t kind);
/* The data of a push to the owner of part i: what no part has sent. */
void kolo_parameters_add_gradient(const kolo_parameters *p, int i, kolo_service_request *q);
/* Waits for the parts of the push to the owner of part i; returns the first error. */
kolo_status kolo_parameters_end_parts(kolo_parameters *p, int i);
/* After a request to the owner of part i has failed, returns OK if the replica has the part now.
 * Then it has got the latest push, unless that was complete. */
kolo_status kolo_parameters_move(kolo_parameters *p, int i, kolo_status status);
/* Starts a request to the owner of part i. */
kolo_status kolo_parameters_start(kolo_parameters *p, int i, kolo_service_request *q);
/* Waits for a request to the owner of part i, which the replica gets again if that is lost. */
kolo_status kolo_parameters_await(kolo_parameters *p, int i, kolo_service_request *q);
/* Whether a worker makes progress, or has within the timeout. */
bool kolo_parameters_has_progress(kolo_parameters *p);
/* Both. */
kolo_status kolo_parameters_run(kolo_parameters *p, int i, kolo_service_request *q);
/* Waits for the requests to the owners of parts [first, end); returns the first error. */
kolo_status kolo_parameters_wait_for(kolo_parameters *p, kolo_service_request *requests, int first,
                                     int end);
/* After an error: waits for the requests to the owners of the first n parts. */
kolo_status kolo_parameters_fail_after(kolo_parameters *p, kolo_service_request *requests, int n,
                                       kolo_status status);
/* Sends a request without data to each owner; also if one is lost: the others wait for it. Returns
 * `first`, or else the first error. */
kolo_status kolo_parameters_signal_all(kolo_parameters *p, uint32_t kind, kolo_status first);

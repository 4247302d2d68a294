#pragma once
/* The exchange of a worker with the owners of parameters, as the files that implement it see it. */

#include "train/session/internal.h"
#include "train/session/owner.h"

/* Where a plan of a worker has what it pushes. */
typedef struct kolo_served_exchange {
    const kolo_plan *plan;
    kolo_value *posted; /* by row; KOLO_NONE: nothing */
    int32_t *post;      /* by row: the node that posts it; -1: none */
} kolo_served_exchange;

struct kolo_served {
    kolo_division division;
    kolo_owner *owner;    /* NULL: none is here */
    kolo_owner *follower; /* of another part; NULL: none is here */
    kolo_parameters *parameters;
    /* Those that sum their gradients; the first one pushes. NULL: this worker alone. */
    kolo_comm *group;
    kolo_request **sums;         /* by bucket, of `pushed`; in this step this many are */
    int n_summing, n_summed;     /* started, and complete */
    kolo_tables *tables;         /* NULL: there are none */
    kolo_parameters_part *parts; /* by part; their first number in `pushed` and `pulled`: */
    size_t *pushed_at, *pulled_at;
    bool shared; /* workers own parts, too, beside servers */
    size_t values, gradient, state;
    double clip;            /* by which this worker clips its gradient: see kolo_served_clip */
    bool weighted;          /* pushes are weighted by labels and samples: see kolo_owner_opts */
    float *pushed, *pulled; /* [gradient], [values]; registered memory, unless it has joined */
    bool joined;
    float *states; /* [state] */
    /* With a codec a worker pushes this, in place of `pushed` (served_pack.c); else NULL: */
    bool packs;
    float *packed;   /* registered memory, unless it has joined */
    float *residual; /* [gradient]: the errors of codes */
    /* By part: its first number in `packed`; how many it has, of how many of `pushed`. */
    size_t *packed_at, *n_packed, *n_taken;
    int packed_rows; /* rows before this one are packed */
    /* Of rounds; otherwise NULL, and 0: */
    int64_t every;                   /* steps of a round */
    float *base;                     /* [values]: that the round has begun with */
    float *kept;                     /* [values]: this worker's, in evaluations and the like */
    bool based;                      /* `base` is set */
    kolo_sums round;                 /* of the round so far */
    float *summed;                   /* by row: of the metrics of the round */
    int *entries;                    /* by row: of the session's store; -1: none */
    int *residuals;                  /* the same, of the errors of its codes */
    float **places;                  /* by row */
    kolo_served_exchange *exchanges; /* of the plans that have run */
    size_t n_exchanges, cap_exchanges;
    /* Of the push of this step. */
    int64_t samples, labels;
    bool *ready;             /* by row: the backward pass has completed it */
    int next;                /* row to gather; all before are in the vector, */
    size_t *filled;          /* of which this many numbers are final, by part */
    double *totals, *before; /* of the run: see train/session/division.h */
    uint64_t *lost;          /* by worker: see kolo_parameters_barrier */
};

/* The places become what the session's tensors have, copied to the host. The error of its device.
 */
kolo_status kolo_served_place(const kolo_served *served, const kolo_session *session);
/* The places become where the host writes them; then what rows of some kinds have there goes to the
 * session's device. The error of the device. */
void kolo_served_make_room(const kolo_served *served, const kolo_session *session);
kolo_status kolo_served_put(const kolo_served *served, const kolo_session *session, unsigned kinds);
/* Before the numbers of a push: the vector gets its heads. */
void kolo_served_begin(kolo_served *served, int64_t samples, int64_t labels);
/* What all workers have done since the last call, as far as this one has pulled it. */
kolo_sums kolo_served_sums(kolo_served *served, const kolo_session *session);
/* served_clip.c */
/* Clips the gradient that is going to be pushed, which is complete, by its norm; nothing without
 * `clip`. */
void kolo_served_clip(const kolo_served *served);
/* served_pack.c */
/* Before the numbers of a push: nothing is packed. */
void kolo_served_begin_pack(kolo_served *served);
/* Packs what the parts have of the rows before `end`, unless gradients are pushed as they are. */
void kolo_served_pack(kolo_served *served, int end);
/* Pushes early what parts [first, end) have so far. PEER. */
kolo_status kolo_served_push_early(kolo_served *served, int first, int end);
/* The errors of codes become those of the session's store, or an equal part where that has the sum
 * of all workers (keeps_own_residuals); nothing without codes. The error of the session's device.
 */
kolo_status kolo_served_load_residuals(const kolo_served *served, const kolo_session *session);
/* Those of the session's store become these numbers [gradient]. The error of its device. */
kolo_status kolo_served_store_residuals(const kolo_served *served, const kolo_session *session,
                                        const float *numbers);
/* Pushes everything; `pushed` is complete. PEER. */
kolo_status kolo_served_push(kolo_served *served);
/* served_group.c */
/* Hosts whose workers sum their gradients before they push; 0: each pushes its own. The same on all
 * ranks. */
int kolo_served_hosts(const kolo_session_config *config, const kolo_served_opts *opts);
/* A worker joins its group, if it has one. Collective over workers. PEER, TIMEOUT, NOMEM. */
kolo_status kolo_served_join_group(kolo_served *served, const kolo_session *session,
                                   const kolo_served_opts *opts);
void kolo_served_leave_group(kolo_served *served);
/* Whether this worker pushes and pulls, of its group. */
bool kolo_served_leads(const kolo_served *served);
/* Sums and pushes the buckets that are complete, and makes progress on those before. */
kolo_status kolo_served_sum_ready(kolo_served *served);
/* Sums and pushes the other buckets, but for what kolo_parameters_push ends. Collective. */
kolo_status kolo_served_sum_rest(kolo_served *served);
/* Copies what the first one of the group has to the others. Collective. */
kolo_status kolo_served_share(const kolo_served *served, void *data, size_t count,
                              kolo_dtype dtype);
/* Adds numbers over the group. Collective. */
kolo_status kolo_served_add_group(const kolo_served *served, int64_t *counts, size_t n);

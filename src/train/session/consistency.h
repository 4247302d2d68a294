#pragma once
/* The policy of updates: when the ranks synchronize (docs/consistency.md).
 *
 *     bsp         the sum of all gradients, in every step
 *     bsp:drop=M  with servers: a step does not wait for M of the gradients, which join the next
 *                 one of their ranks; "bsp:drop=M,discard": they are discarded
 *     ssp:S       with servers: each gradient at once; a rank is at most S steps ahead of another
 *     asp         with servers: each gradient at once
 *                 both: ",dc=L", delay compensation; ",scale=1", smaller rates for stale gradients;
 *                 ",delay=N,ahead=C", delayed Nesterov momentum; ",group=G", synchronous
 *                 groups of G neighbours; ",lease=1", samples from one counter
 *     auto        with servers: bsp, ssp:S or asp, by the times of steps and the loss
 *     lag:S       the sum of all gradients, S steps later
 *     local:H     every rank trains on its own; parameters are averaged every H steps
 *     bmuf:H      the same; a momentum of the averages is added
 *     diloco:H    the same; Nesterov's momentum
 *                 all three: ",warmup=W", the first W steps are those of bsp
 *                 bmuf and diloco with servers: these make the update of a round, ",quorum=Q" once
 *                 Q ranks are done, ",grace=MS" and so much later */

#include "kolo/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum kolo_consistency_kind {
    KOLO_CONSISTENCY_BSP,
    KOLO_CONSISTENCY_DROP,
    KOLO_CONSISTENCY_SSP,
    KOLO_CONSISTENCY_ASP,
    KOLO_CONSISTENCY_AUTO,
    KOLO_CONSISTENCY_LAG,
    KOLO_CONSISTENCY_LOCAL,
    KOLO_CONSISTENCY_BMUF,
    KOLO_CONSISTENCY_DILOCO,
} kolo_consistency_kind;

typedef struct kolo_consistency { /* a new member goes into kolo_consistency_hash, too */
    kolo_consistency_kind kind;
    int64_t steps;   /* of a lag, ahead of another rank, or between rounds */
    int drop;        /* gradients that a step does not wait for */
    bool discard;    /* they are not used */
    int64_t warm_up; /* of rounds: steps of bsp before them */
    /* Of the update of a round, where there is one. */
    double lr, momentum;
    bool nesterov;
    int64_t fragments; /* that are combined at different times; at least 1 */
    bool strided;      /* their layers, see plan/fragments.h */
    int64_t overlap;   /* steps during which the sums are in flight */
    double mix;        /* of a worker's own version in the combined one */
    int64_t quorum;    /* with servers: ranks that a round waits for; 0: all */
    int64_t grace_ms;  /* and so long for the others */
    /* With servers, of ssp and asp: delay compensation of gradients, and learning rates divided by
     * the updates since the gradient's read. */
    double compensation;
    bool scale;
    int64_t delay; /* and of rounds: momentum every `delay` updates (kolo/pass.h); 0: in each */
    double ahead;  /* part of the momentum in the others */
    int64_t group; /* this many neighbours sum their gradients in each step, and push once; 0: 1 */
    bool lease;    /* workers take ranges of samples from one counter */
} kolo_consistency;

/* Parses "bsp", "bsp:drop=1", "ssp:3,dc=0.04", "asp,scale=1", "auto", "lag:1", "local:8",
 * "local:8,warmup=100", "bmuf:8,momentum=0.5,lr=1,nesterov=1",
 * "diloco:50,fragments=4,strided=1,overlap=5,mix=0.5". NULL: bsp. `ranks` determines the default
 * momentum of bmuf. ARG: names what is wrong. */
kolo_status kolo_consistency_parse(const char *text, int ranks, kolo_consistency *consistency);
/* Whether rounds combine what ranks have learned on their own. */
bool kolo_consistency_has_rounds(const kolo_consistency *consistency);
/* Whether a rank's step has its own samples only. */
bool kolo_consistency_is_alone(const kolo_consistency *consistency);
/* Whether each push of a rank is an update at a server. */
bool kolo_consistency_updates_at_push(const kolo_consistency *consistency);
/* Whether the gradients of a step may be of any number of workers, so that they are weighted by
 * their labels. */
bool kolo_consistency_is_weighted(const kolo_consistency *consistency);
/* The policy that has a bound of kolo/parameters.h, as text: "ssp:3". */
enum { KOLO_CONSISTENCY_NAME = 16 };
void kolo_consistency_print(int staleness, char text[KOLO_CONSISTENCY_NAME]);
/* Whether a run with servers apart from the workers goes on when a worker dies. */
bool kolo_consistency_outlives(const kolo_consistency *consistency);
/* Whether servers can have the policy, and whether an allreduce can. */
bool kolo_consistency_is_for(const kolo_consistency *consistency, bool servers);
/* A hash of all members of the policy: the same of equal ones. */
uint64_t kolo_consistency_hash(const kolo_consistency *consistency);
/* With servers: the bound of kolo/parameters.h. */
int kolo_consistency_staleness(const kolo_consistency *consistency);

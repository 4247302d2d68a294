#pragma once
/* The verdict of an audit: which rank computed a wrong gradient.
 *
 * In an audited step each rank also computes the shards of the next rank, and the hashes of their
 * gradients are compared before the gradients are summed. Where two differ, all ranks compute that
 * shard once more. The right value is the one that most of all these computations gave. */

#include "kolo/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct kolo_audit_mismatch {
    int64_t step; /* counts from 1 */
    int shard;
    int owner, auditor;            /* ranks */
    uint64_t of_owner, of_auditor; /* hashes that differ */
    const uint64_t *again;         /* by rank: of the repeated computations */
    int ranks;
} kolo_audit_mismatch;

/* Returns PEER with a message that names the rank that was wrong, and whether it was so again; or
 * both ranks, if neither value has a majority. */
kolo_status kolo_audit_verdict(const kolo_audit_mismatch *m);

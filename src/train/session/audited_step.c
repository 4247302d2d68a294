/* Audited steps: the gradient of each shard is computed by two ranks. */
#include "base/integer.h"
#include "train/session/audit.h"
#include "train/session/internal.h"

#include <string.h>

/* Computes the shards of `rank`; hashes[k] is that of shard k, 0 without samples. */
static kolo_status hash_shards(kolo_session *s, const kolo_batch *batch, int64_t rank,
                               const kolo_step_scalars *x, const cached *finish, uint64_t *hashes) {
    const bool own = rank == rank_of(s);
    const int rounds = kolo_session_shard_rounds(s, (int)rank);
    int first, end;
    kolo_session_shards(s, (int)rank, &first, &end);
    for (int k = first; k < first + rounds; k++) {
        const cached *c;
        if (k >= end || kolo_session_shard_count(s, batch->global_count, k) == 0) {
            if (own && k < end) kolo_plan_skip_shard(finish->plan, k);
            KOLO_TRY(kolo_session_follow(s, finish, x, false));
            continue;
        }
        KOLO_TRY(kolo_session_prepare_shard(s, batch, k, x, finish, &c));
        KOLO_TRY(kolo_plan_hash_shard(c->plan, own ? k : -1, &hashes[k]));
    }
    return KOLO_OK;
}

/* Bytes of a field of `count` samples, rounded up: the next one is aligned. */
static size_t bytes_of(const kolo_field *field, int64_t count) {
    return kolo_round_up((size_t)count * kolo_field_bytes(field), 64);
}

/* Shard k, broadcast by its owner into `memory`, field after field. */
static kolo_status share_shard(const kolo_session *s, const kolo_batch *batch, int k, int owner,
                               char *memory, kolo_batch *shard) {
    const int64_t count = kolo_session_shard_count(s, batch->global_count, k),
                  first = k * s->opts.batch;
    kolo_batch own = {0};
    if (rank_of(s) == owner) own = kolo_batch_part(batch, first - batch->first, count);
    *shard = *batch;
    shard->first = first;
    shard->count = count;
    for (int f = 0; f < batch->n_fields; f++) {
        size_t bytes = (size_t)count * kolo_field_bytes(&batch->fields[f]);
        shard->data[f] = memory;
        if (own.data[f]) memcpy(memory, own.data[f], bytes);
        KOLO_TRY(kolo_broadcast(s->comm, memory, bytes, KOLO_DTYPE_U8, owner));
        memory += bytes_of(&batch->fields[f], count);
    }
    return KOLO_OK;
}

/* Shard k has two gradients: all ranks compute it again, and the error names the rank that was
 * wrong. */
static kolo_status find_mismatch(kolo_session *s, const kolo_batch *batch, int k,
                                 const kolo_step_scalars *x, const cached *finish,
                                 kolo_audit_mismatch d) {
    size_t bytes = 0;
    for (int f = 0; f < batch->n_fields; f++) {
        bytes += bytes_of(&batch->fields[f], s->opts.batch);
    }
    char *memory = kolo_alloc(bytes);
    uint64_t *again = kolo_zalloc((size_t)d.ranks * sizeof *again), own = 0;
    kolo_batch shard;
    const cached *c;
    kolo_status status = memory && again ? KOLO_OK : KOLO_NOMEM(bytes);
    if (status == KOLO_OK) status = share_shard(s, batch, k, d.owner, memory, &shard);
    if (status == KOLO_OK) status = kolo_session_prepare_shard(s, &shard, k, x, finish, &c);
    if (status == KOLO_OK) status = kolo_plan_hash_shard(c->plan, -1, &own);
    if (status == KOLO_OK) {
        status = kolo_allgather(s->comm, &own, again, sizeof own, KOLO_DTYPE_U8);
    }
    d.again = again;
    if (status == KOLO_OK) status = kolo_audit_verdict(&d);
    kolo_free(memory);
    kolo_free(again);
    return status;
}

/* Compares the gradients that owners and auditors computed; hashes: of the owners, of the auditors.
 */
static kolo_status compare(kolo_session *s, const kolo_batch *batch, const kolo_step_scalars *x,
                           const cached *finish, const uint64_t *hashes) {
    const int shards = s->opts.shards, ranks = (int)ranks_of(s);
    for (int owner = 0; owner < ranks; owner++) {
        int first, end;
        kolo_session_shards(s, owner, &first, &end);
        for (int k = first; k < end; k++) {
            if (hashes[k] == hashes[shards + k]) continue;
            return find_mismatch(s, batch, k, x, finish,
                                 (kolo_audit_mismatch){.step = (int64_t)s->steps + 1,
                                                       .shard = k,
                                                       .owner = owner,
                                                       .auditor = (owner + ranks - 1) % ranks,
                                                       .of_owner = hashes[k],
                                                       .of_auditor = hashes[shards + k],
                                                       .ranks = ranks});
        }
    }
    return KOLO_OK;
}

/* Each rank computes the shards of the next rank, then its own. */
kolo_status kolo_session_run_audited(kolo_session *s, const kolo_batch *batch,
                                     const kolo_step_scalars *x, const cached **finish) {
    const size_t shards = (size_t)s->opts.shards;
    const int64_t rank = rank_of(s), next = (rank + 1) % ranks_of(s);
    KOLO_TRY(kolo_session_get_plan(s, FINISH, s->opts.batch, s->opts.batch, finish));
    uint64_t *hashes = kolo_zalloc(2 * shards * sizeof *hashes);
    if (!hashes) return KOLO_NOMEM(2 * shards * sizeof *hashes);
    kolo_status status = hash_shards(s, &s->audited, next, x, *finish, hashes + shards);
    if (status == KOLO_OK) {
        status = hash_shards(s, batch, rank, x, *finish, hashes);
    }
    if (status == KOLO_OK) { /* each is of one rank; the others have 0 */
        status = kolo_allreduce(s->comm, hashes, 2 * shards, KOLO_DTYPE_I64, KOLO_SUM);
    }
    if (status == KOLO_OK) status = compare(s, batch, x, *finish, hashes);
    kolo_free(hashes);
    return status == KOLO_OK ? kolo_session_complete_step(*finish, x) : status;
}

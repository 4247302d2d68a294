/* Workers that sum their gradients before they push, and then pull once: the neighbours of a policy
 * with group=G, or with bsp the workers of each host (Jiang et al., "A unified architecture for
 * accelerating distributed DNN training in heterogeneous GPU/CPU clusters", OSDI 2020,
 * section 4.3). The first one of a group pushes the sum and pulls; the others get what it has read.
 *
 * A bucket is summed as soon as all members have completed it, while the backward pass goes on.
 * Members start the sums of buckets in the same order. */
#include "base/memory.h"
#include "comm/sync/parameters_group.h"
#include "kolo/host_memory.h"
#include "train/session/served_internal.h"

#include <stdio.h>

/* Sums of buckets in flight. */
enum { SUMS_AHEAD = 3 };

int kolo_served_hosts(const kolo_session_config *config, const kolo_served_opts *o) {
    const int workers = kolo_comm_size(o->world) - o->servers;
    int hosts = 0; /* of workers, which are the first ranks */
    if (config->no_local_aggregate || config->consistency.kind != KOLO_CONSISTENCY_BSP) return 0;
    if (kolo_comm_host_count(o->world) == 1) return 0; /* owners read gradients in place */
    for (int r = 0; r < workers; r++) {
        const int host = kolo_comm_host(o->world, r);
        if (host >= hosts) hosts = host + 1;
    }
    return hosts < workers ? hosts : 0;
}

bool kolo_served_leads(const kolo_served *d) { return !d->group || kolo_comm_rank(d->group) == 0; }

/* ---- creation ---- */

/* The numbers of a bucket are next to each other in the vector. */
static kolo_status create_sum(kolo_served *d, int bucket, kolo_algorithm algorithm) {
    const int owners = d->division.owners, first = bucket * owners;
    char site[32];
    kolo_part part = {.data = d->pushed + d->pushed_at[first]};
    for (int i = first; i < first + owners; i++) part.count += d->parts[i].gradient;
    snprintf(site, sizeof site, "gradients, bucket %d", bucket);
    return kolo_allreduce_create(d->group, &part, 1, KOLO_DTYPE_F32, KOLO_SUM, algorithm, site,
                                 &d->sums[bucket]);
}

static kolo_status create_sums(kolo_served *d, bool by_host) {
    const size_t bytes = (size_t)d->division.buckets * sizeof *d->sums;
    const bool direct = kolo_comm_sums_in_rank_order(d->group, KOLO_ALGORITHM_DIRECT);
    const kolo_algorithm algorithm = !by_host ? KOLO_ALGORITHM_AUTO
                                     : direct ? KOLO_ALGORITHM_DIRECT
                                              : KOLO_ALGORITHM_MESH; /* the same order */
    d->sums = kolo_zalloc(bytes);
    if (!d->sums) return KOLO_NOMEM(bytes);
    for (int b = 0; b < d->division.buckets; b++) KOLO_TRY(create_sum(d, b, algorithm));
    return KOLO_OK;
}

kolo_status kolo_served_join_group(kolo_served *d, const kolo_session *s,
                                   const kolo_served_opts *o) {
    const int size = (int)s->opts.consistency.group;
    const bool by_host = kolo_served_hosts(&s->opts, o) > 0;
    const int rank = rank_of(s);
    if (size <= 1 && !by_host) return KOLO_OK;
    const int group = by_host ? kolo_comm_host(o->world, rank) : rank / size;
    KOLO_TRY(kolo_comm_split(s->comm, group, rank, &d->group));
    if (kolo_comm_size(d->group) == 1) {
        kolo_comm_destroy(d->group);
        d->group = NULL;
        return KOLO_OK;
    }
    kolo_parameters_extend_waits(d->parameters, d->group);
    KOLO_TRY(create_sums(d, by_host));
    /* No worker waits for those of it that do not push. */
    return kolo_served_leads(d) ? KOLO_OK : kolo_parameters_finish(d->parameters);
}

void kolo_served_leave_group(kolo_served *d) {
    for (int b = 0; d->sums && b < d->division.buckets; b++) kolo_request_destroy(d->sums[b]);
    kolo_free((void *)d->sums);
    kolo_comm_destroy(d->group);
}

/* ---- the sum of a step ---- */

/* Whether this worker has all numbers of a bucket. */
static bool is_filled(const kolo_served *d, int bucket) {
    const int owners = d->division.owners;
    bool filled = true;
    for (int i = bucket * owners; i < (bucket + 1) * owners; i++) {
        filled = filled && d->filled[i] == d->parts[i].gradient;
    }
    return filled;
}

/* Rows are in the order of buckets; statistics and metrics, in the last one, are behind the
 * gradients, and what is not pushed is last. */
static int rows_before(const kolo_served *d, int bucket) {
    int row = 0;
    while (row < d->division.n_rows && kolo_division_bucket(&d->division, row) < bucket) row++;
    return row;
}

/* The first one pushes a bucket that is summed. */
static kolo_status push_bucket(kolo_served *d, int bucket) {
    const int owners = d->division.owners;
    if (!kolo_served_leads(d) || d->division.buckets == 1) return KOLO_OK;
    for (int i = bucket * owners; i < (bucket + 1) * owners; i++)
        d->filled[i] = d->parts[i].gradient;
    kolo_served_pack(d, rows_before(d, bucket + 1));
    return kolo_served_push_early(d, bucket * owners, (bucket + 1) * owners);
}

/* Takes the sums that are complete, up to one that is not; `wait`: waits for the first. */
static kolo_status take_sums(kolo_served *d, bool wait) {
    while (d->n_summed < d->n_summing) {
        bool complete = true;
        if (wait) {
            KOLO_TRY(kolo_request_wait(d->sums[d->n_summed], 0));
        } else {
            KOLO_TRY(kolo_request_test(d->sums[d->n_summed], &complete));
        }
        if (!complete) return KOLO_OK;
        wait = false;
        KOLO_TRY(push_bucket(d, d->n_summed++));
    }
    return KOLO_OK;
}

/* Starts the next sums, few ahead of those that are complete; `all`: the vector is. */
static kolo_status start_sums(kolo_served *d, bool all) {
    while (d->n_summing < d->division.buckets && d->n_summing < d->n_summed + SUMS_AHEAD &&
           (all || is_filled(d, d->n_summing))) {
        KOLO_TRY(kolo_request_start(d->sums[d->n_summing++]));
    }
    return KOLO_OK;
}

kolo_status kolo_served_sum_ready(kolo_served *d) {
    KOLO_TRY(take_sums(d, false));
    return start_sums(d, false);
}

kolo_status kolo_served_sum_rest(kolo_served *d) {
    while (d->n_summed < d->division.buckets) {
        KOLO_TRY(start_sums(d, true));
        KOLO_TRY(take_sums(d, true));
    }
    d->n_summed = d->n_summing = 0;
    return KOLO_OK;
}

/* ---- what the first one has got ---- */

kolo_status kolo_served_share(const kolo_served *d, void *data, size_t count, kolo_dtype dtype) {
    return d->group ? kolo_broadcast(d->group, data, count, dtype, 0) : KOLO_OK;
}

kolo_status kolo_served_add_group(const kolo_served *d, int64_t *counts, size_t n) {
    return d->group ? kolo_allreduce(d->group, counts, n, KOLO_DTYPE_I64, KOLO_SUM) : KOLO_OK;
}

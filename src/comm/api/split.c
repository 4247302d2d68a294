/* Sub-groups by colour and key.
 *
 * A split is a collective of the parent. An allgather distributes colours and keys, from which each
 * rank finds the members of its sub-group. It creates a transport over the parent's (control blocks
 * in its segment, group numbers on its connections). A second allgather distributes the addresses
 * of these transports, to which the members attach. */
#include "base/memory.h"
#include "base/status.h"
#include "comm/engine/failure.h"
#include "comm/engine/family.h"
#include "comm/engine/lifetime.h"
#include "comm/engine/lock.h"

#include <stdio.h>
#include <string.h>

/* What a rank gives to a split. */
typedef struct split_key {
    int32_t colour, key;
} split_key;

/* Lists the members of this rank's sub-group, by key and then by rank; returns their number. */
static int find_members(const split_key *keys, int size, int rank, int *members) {
    int n = 0;
    for (int r = 0; r < size; r++) {
        if (keys[r].colour != keys[rank].colour) continue;
        int at = n++;
        while (at > 0 && keys[members[at - 1]].key > keys[r].key) {
            members[at] = members[at - 1];
            at--;
        }
        members[at] = r;
    }
    return n;
}

static void adopt(kolo_comm *parent, kolo_comm *child, const int *members) {
    child->parent = parent;
    child->sibling = parent->children;
    parent->children = child;
    child->lock = parent->lock;
    child->trace = parent->trace;
    if (child->transport->windows == parent->transport->windows) { /* else it keeps the defaults */
        child->tuning = parent->tuning;
        child->costs = parent->costs;
    }
    child->oversubscribed = parent->oversubscribed;
    child->spins = parent->oversubscribed ? 0 : child->spins;
    child->local_rank = child->local_size = 0;
    for (int i = 0; i < child->size; i++) {
        bool here = kolo_comm_host(parent, members[i]) == kolo_comm_host(parent, parent->rank);
        if (i == child->rank) child->local_rank = child->local_size;
        child->local_size += here;
    }
}

/* Sets the sub-group's name for messages and its ranks' numbers in the whole group. */
static kolo_status set_names(const kolo_comm *parent, kolo_comm *child, int colour,
                             const int *members) {
    child->whole_rank = kolo_zalloc((size_t)child->size * sizeof(int));
    if (!child->whole_rank) return KOLO_NOMEM((size_t)child->size * sizeof(int));
    for (int i = 0; i < child->size; i++) {
        child->whole_rank[i] = kolo_comm_whole_rank(parent, members[i]);
    }
    snprintf(child->group, sizeof child->group, "%.28s%c%d",
             parent->parent ? parent->group : "sub-group", parent->parent ? '/' : ' ', colour);
    return KOLO_OK;
}

static kolo_status set_hosts(const kolo_comm *parent, kolo_comm *child, const int *members,
                             int *hosts) {
    if (kolo_comm_host_count(parent) == 1) return KOLO_OK;
    for (int i = 0; i < child->size; i++) hosts[i] = kolo_comm_host(parent, members[i]);
    return kolo_comm_set_hosts(child, hosts);
}

/* Creates this rank's part of the sub-group: the address of its transport is `address`. */
static kolo_status make_child(kolo_comm *parent, int colour, const int *members, int n, int *hosts,
                              kolo_subgroup_address *address, kolo_comm **child) {
    KOLO_COMM_LOCK_SCOPE(parent);
    const kolo_transport_ops *ops = parent->transport->ops;
    int rank = 0;
    while (members[rank] != parent->rank) rank++;
    kolo_transport *t;
    kolo_comm_opts opts = {.algorithm = parent->algorithm,
                           .max_in_flight = parent->max_in_flight,
                           .timeout_ms = parent->timeout_ns / 1000000};
    kolo_comm *made;
    KOLO_TRY(ops->subgroup(parent->transport, members, n, rank, &t, address));
    KOLO_TRY(kolo_comm_over(t, &opts, 0, n, parent->processors, &made));
    kolo_status status = set_hosts(parent, made, members, hosts);
    if (status == KOLO_OK) status = set_names(parent, made, colour, members);
    if (status != KOLO_OK) {
        kolo_comm_destroy(made);
        return status;
    }
    adopt(parent, made, members);
    *child = made;
    return KOLO_OK;
}

/* Attaches to the members' transports. An address of zeros is that of a rank that failed. */
static kolo_status attach(kolo_comm *parent, kolo_comm *child,
                          const kolo_subgroup_address *addresses, const int *members) {
    KOLO_COMM_LOCK_SCOPE(parent);
    for (int r = 0; r < parent->size; r++) {
        if (addresses[r].block == 0 && addresses[r].group == 0) {
            return KOLO_FAIL(KOLO_ERR_NOMEM, "rank %d has no memory for its sub-group",
                             kolo_comm_whole_rank(parent, r));
        }
    }
    for (int i = 0; child && i < child->size; i++) {
        kolo_transport *t = child->transport;
        KOLO_TRY(t->ops->attach(t, i, &addresses[members[i]]));
    }
    return KOLO_OK;
}

static kolo_status split(kolo_comm *comm, split_key own, split_key *keys,
                         kolo_subgroup_address *addresses, int *members, kolo_comm **sub) {
    kolo_comm *child = NULL;
    kolo_subgroup_address address = {.block = 1};
    KOLO_TRY(kolo_request_run(comm,
                              &(kolo_request_opts){.kind = KOLO_COLLECTIVE_ALLGATHER,
                                                   .dtype = KOLO_DTYPE_I32,
                                                   .input = &own,
                                                   .output = keys,
                                                   .count = 2,
                                                   .site = "split"},
                              0));
    if (own.colour >= 0) {
        int n = find_members(keys, comm->size, comm->rank, members);
        kolo_status made =
            make_child(comm, own.colour, members, n, members + comm->size, &address, &child);
        if (made != KOLO_OK) address = (kolo_subgroup_address){0};
    }
    kolo_status status = kolo_request_run(comm,
                                          &(kolo_request_opts){.kind = KOLO_COLLECTIVE_ALLGATHER,
                                                               .dtype = KOLO_DTYPE_I64,
                                                               .input = &address,
                                                               .output = addresses,
                                                               .count = 2,
                                                               .site = "split"},
                                          0);
    if (status == KOLO_OK) status = attach(comm, child, addresses, members);
    if (status != KOLO_OK) {
        kolo_comm_destroy(child);
        return status;
    }
    *sub = child;
    return KOLO_OK;
}

kolo_status kolo_comm_split(kolo_comm *comm, int colour, int key, kolo_comm **sub) {
    KOLO_COMM_CLAIM(comm);
    if (!comm->transport->ops->subgroup) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "transport %s does not support sub-groups: use another one",
                         kolo_comm_transport(comm));
    }
    size_t n = (size_t)comm->size;
    split_key *keys = kolo_zalloc(n * sizeof *keys);
    kolo_subgroup_address *addresses = kolo_zalloc(n * sizeof *addresses);
    int *members = kolo_zalloc(2 * n * sizeof *members); /* [n], and their hosts: [n] */
    kolo_status status = KOLO_OK;
    if (!keys || !addresses || !members) status = KOLO_NOMEM(2 * n * sizeof *members);
    if (status == KOLO_OK) {
        status = split(comm, (split_key){colour, key}, keys, addresses, members, sub);
    } else { /* the other ranks already wait */
        status = kolo_comm_break(comm, status, "%s", kolo_last_error());
    }
    kolo_free(keys);
    kolo_free(addresses);
    kolo_free(members);
    return status;
}

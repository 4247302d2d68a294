/* Sub-groups by colour and key.
 *
 * A split is a collective of the parent. An allgather distributes colours and keys, from which each
 * rank finds the members of its sub-group. It creates a transport over the parent's (control blocks
 * in its segment, group numbers on its connections). A second allgather distributes the addresses
 * of these transports, to which the members attach. The members that create a group among
 * themselves exchange these addresses by messages, since the other ranks take no part: directly, or
 * where ranks connect on demand, passed on by members at distances of powers of two in the list
 * (Bruck et al., "Efficient algorithms for all-to-all communications in multiport message-passing
 * systems", 1997), which the new group connects too. */
#include "comm/api/split.h"

#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "comm/engine/failure.h"
#include "comm/engine/family.h"
#include "comm/engine/lifetime.h"
#include "comm/engine/lock.h"
#include "comm/engine/request.h"
#include "kolo/group.h"

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
    child->successor = parent->broken != KOLO_OK;
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

kolo_status kolo_subgroup_check(const kolo_comm *parent) {
    if (parent->transport->ops->subgroup) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                     "transport %s does not support sub-groups: use another one",
                     kolo_comm_transport(parent));
}

kolo_status kolo_subgroup_make(kolo_comm *parent, int colour, const int *members, int n, int *hosts,
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
        kolo_status made = kolo_subgroup_make(comm, own.colour, members, n, members + comm->size,
                                              &address, &child);
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
    KOLO_TRY(kolo_subgroup_check(comm));
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

/* ---- groups that their members create ---- */

static kolo_status check_members(const kolo_comm *comm, const int *ranks, int n) {
    bool own = false;
    for (int i = 0; ranks && i < n; i++) {
        if (ranks[i] < 0 || ranks[i] >= comm->size) {
            return KOLO_FAIL(KOLO_ERR_ARG, "rank %d outside [0, %d)", ranks[i], comm->size);
        }
        for (int k = 0; k < i; k++) {
            if (ranks[k] == ranks[i]) {
                return KOLO_FAIL(KOLO_ERR_ARG, "rank %d is twice in the list", ranks[i]);
            }
        }
        own = own || ranks[i] == comm->rank;
    }
    if (own) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, "rank %d creates a group without itself", comm->rank);
}

enum { PASSED_RANKS = 4 };

/* What members give to each other. */
typedef struct passed_entry {
    kolo_subgroup_address address;
    uint64_t hash;                        /* of the list of the member */
    int32_t rank, n, ranks[PASSED_RANKS]; /* in messages: its rank, and the first of the list */
} passed_entry;

struct kolo_creation {
    kolo_comm *comm, *child;
    int n, own;                       /* members; this one's place in the list */
    int *ranks, *hosts;               /* [n]; `hosts` for the child */
    kolo_subgroup_address *addresses; /* of each rank of `comm` */
    passed_entry *passed;             /* [n]: of this member, the one before it in the list, ... */
    kolo_request **receives, **sends; /* [n_messages] */
    int n_messages;
};

/* Requests in flight break the communicator: the other members wait for them. */
static void free_creation(kolo_creation *c) {
    for (int i = 0; i < c->n_messages; i++) {
        kolo_request_destroy(c->sends[i]);
        kolo_request_destroy(c->receives[i]);
    }
    kolo_free(c->sends);
    kolo_free(c->receives);
    kolo_free(c->passed);
    kolo_free(c->addresses);
    kolo_free(c->ranks);
    kolo_free(c->hosts);
    kolo_free(c);
}

static kolo_status alloc_creation(kolo_comm *comm, const int *ranks, int n, kolo_creation **made) {
    size_t size = (size_t)comm->size, members = (size_t)n;
    kolo_creation *c = kolo_zalloc(sizeof *c);
    if (!c) return KOLO_NOMEM(sizeof *c);
    *c = (kolo_creation){.comm = comm, .n = n};
    c->ranks = kolo_zalloc(members * sizeof *c->ranks);
    c->hosts = kolo_zalloc(members * sizeof *c->hosts);
    c->addresses = kolo_zalloc(size * sizeof *c->addresses);
    c->passed = kolo_zalloc(members * sizeof *c->passed);
    c->receives = kolo_zalloc(members * sizeof *c->receives);
    c->sends = kolo_zalloc(members * sizeof *c->sends);
    if (!c->ranks || !c->hosts || !c->addresses || !c->passed || !c->receives || !c->sends) {
        free_creation(c);
        return KOLO_NOMEM(size * sizeof *c->addresses);
    }
    memcpy(c->ranks, ranks, members * sizeof *ranks);
    while (ranks[c->own] != comm->rank) c->own++;
    passed_entry *own = &c->passed[0];
    own->hash = kolo_hash_bytes(ranks, members * sizeof *ranks);
    own->rank = comm->rank;
    own->n = n;
    memcpy(own->ranks, ranks, (size_t)(n < PASSED_RANKS ? n : PASSED_RANKS) * sizeof *ranks);
    for (size_t r = 0; r < size; r++) c->addresses[r].block = 1; /* of ranks that take no part */
    *made = c;
    return KOLO_OK;
}

/* Addresses to or from a member at a distance in the list; sends wait for `after` receives. */
static kolo_status start_message(kolo_creation *c, bool sends, int distance, int count, int tag,
                                 int after) {
    int place = (c->own + (sends ? distance : c->n - distance)) % c->n;
    kolo_request **request = sends ? &c->sends[c->n_messages] : &c->receives[c->n_messages];
    kolo_request_opts opts = {.kind = sends ? KOLO_COLLECTIVE_SEND : KOLO_COLLECTIVE_RECV,
                              .dtype = KOLO_DTYPE_I64,
                              .input = sends ? c->passed : NULL,
                              .output = sends ? NULL : &c->passed[distance],
                              .count = (size_t)count * sizeof *c->passed / sizeof(int64_t),
                              .root = c->ranks[place],
                              .tag = tag,
                              .site = "group"};
    KOLO_TRY(kolo_request_create(c->comm, &opts, request));
    (*request)->after = c->receives;
    (*request)->n_after = sends ? after : 0;
    return kolo_request_start(*request);
}

/* In each stage a member gives the addresses that it has to `radix` - 1 others, and so has `radix`
 * times as many after it. */
static kolo_status exchange_addresses(kolo_creation *c, int tag) {
    int radix = c->comm->transport->sparse ? 2 : c->n;
    for (int has = 1; has < c->n; has *= radix) {
        int after = c->n_messages;
        for (int to = has; to < c->n && to < radix * has; to += has) {
            int count = c->n - to < has ? c->n - to : has;
            kolo_status status = start_message(c, false, to, count, tag, 0);
            if (status == KOLO_OK) status = start_message(c, true, to, count, tag, after);
            c->n_messages++;
            KOLO_TRY(status);
        }
    }
    return KOLO_OK;
}

/* A member without memory sends an address of zeros. */
static kolo_status start_creation(kolo_creation *c, int tag) {
    if (kolo_subgroup_make(c->comm, c->ranks[0], c->ranks, c->n, c->hosts, &c->passed[0].address,
                           &c->child) != KOLO_OK) {
        c->passed[0].address = (kolo_subgroup_address){0};
    }
    return exchange_addresses(c, tag);
}

kolo_status kolo_creation_start(kolo_comm *comm, const int *ranks, int n, int tag,
                                kolo_creation **creation) {
    KOLO_COMM_CLAIM(comm);
    KOLO_TRY(kolo_comm_check(comm));
    KOLO_TRY(check_members(comm, ranks, n));
    if (tag < 0) return KOLO_FAIL(KOLO_ERR_ARG, "tag %d of a group: give 0 or more", tag);
    KOLO_TRY(kolo_subgroup_check(comm));
    kolo_creation *c = NULL;
    kolo_status status = alloc_creation(comm, ranks, n, &c);
    if (status == KOLO_OK) status = start_creation(c, tag);
    if (status == KOLO_OK) {
        *creation = c;
        return KOLO_OK;
    }
    (void)kolo_comm_break(comm, status, "%s", kolo_last_error()); /* the others wait, or will */
    if (c) {
        kolo_comm_destroy(c->child);
        free_creation(c);
    }
    return status;
}

kolo_status kolo_creation_test(kolo_creation *c, bool *complete) {
    *complete = true;
    for (int i = 0; i < c->n_messages && *complete; i++) {
        KOLO_TRY(kolo_request_test(c->receives[i], complete));
        if (*complete) KOLO_TRY(kolo_request_test(c->sends[i], complete));
    }
    return KOLO_OK;
}

/* "0,1 (2 ranks)" */
static void write_list(const passed_entry *list, char text[static 96]) {
    int at = 0;
    for (int i = 0; i < list->n && i < PASSED_RANKS; i++) {
        at += snprintf(text + at, 96 - (size_t)at, "%d,", list->ranks[i]);
    }
    const char *rest = list->n > PASSED_RANKS ? "..." : "";
    snprintf(text + at - (*rest == 0), 96 - (size_t)at, "%s (%d ranks)", rest, list->n);
}

/* A member with another list may wait for ranks that do not come: a difference breaks the group. */
static kolo_status check_lists(kolo_creation *c) {
    for (int i = 1; i < c->n; i++) {
        char own[96], other[96];
        if (c->passed[i].hash == c->passed[0].hash) continue;
        write_list(&c->passed[0], own);
        write_list(&c->passed[i], other);
        return kolo_comm_break(c->comm, KOLO_ERR_ARG,
                               "ranks disagree on a group: rank %d creates one of the ranks %s, "
                               "rank %d one of %s; all members must give the same list",
                               c->passed[0].rank, own, c->passed[i].rank, other);
    }
    return KOLO_OK;
}

kolo_status kolo_creation_wait(kolo_creation *c, kolo_comm **sub) {
    kolo_status status = KOLO_OK;
    for (int i = 0; i < c->n_messages && status == KOLO_OK; i++) {
        status = kolo_request_wait(c->receives[i], 0);
        if (status == KOLO_OK) status = kolo_request_wait(c->sends[i], 0);
    }
    if (status == KOLO_OK) status = check_lists(c);
    for (int i = 0; i < c->n; i++)
        c->addresses[c->ranks[(c->own + c->n - i) % c->n]] = c->passed[i].address;
    if (status == KOLO_OK) status = attach(c->comm, c->child, c->addresses, c->ranks);
    if (status == KOLO_OK) {
        *sub = c->child;
    } else {
        kolo_comm_destroy(c->child);
    }
    free_creation(c);
    return status;
}

kolo_status kolo_comm_create_group(kolo_comm *comm, const int *ranks, int n, int tag,
                                   kolo_comm **sub) {
    kolo_creation *creation;
    KOLO_TRY(kolo_creation_start(comm, ranks, n, tag, &creation));
    return kolo_creation_wait(creation, sub);
}

/* Shrinking: the group of the surviving ranks.
 *
 * The group has channels for agreements (engine/agreement.c), which stay intact when it breaks.
 * After ranks have died, the others agree on the set of survivors. Each survivor creates its part
 * of the new group and of that group's channels, and they exchange the addresses. A second
 * agreement confirms that no member has died meanwhile, so that all have all addresses; otherwise
 * they start over without it. */
#include "base/memory.h"
#include "base/status.h"
#include "comm/api/split.h"
#include "comm/engine/agreement.h"
#include "comm/engine/engine.h"
#include "comm/engine/failure.h"
#include "comm/engine/family.h"
#include "comm/engine/lock.h"
#include "comm/engine/watch.h"
#include "kolo/group.h"

#include <stdio.h>
#include <string.h>

/* What a member gives to the others. */
typedef struct member_record {
    kolo_subgroup_address group, channels; /* zeros: it has no memory */
} member_record;

_Static_assert(sizeof(member_record) == KOLO_RECORD_BYTES, "a record of an agreement");

/* Creates a transport for agreements of the sub-group `members`. */
static kolo_status make_channels(kolo_comm *parent, const int *members, int n,
                                 kolo_subgroup_address *address, kolo_transport **channels) {
    KOLO_COMM_LOCK_SCOPE(parent);
    int rank = 0;
    while (members[rank] != parent->rank) rank++;
    return parent->transport->ops->subgroup(parent->transport, members, n, rank, channels, address);
}

static kolo_status check_address(const kolo_comm *comm, int rank,
                                 const kolo_subgroup_address *address) {
    if (address->block != 0 || address->group != 0) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_NOMEM, "rank %d has no memory for its sub-group",
                     kolo_comm_whole_rank(comm, rank));
}

/* ---- before any death ---- */

/* Attaches all others also if this rank fails, so that they receive that it leaves. */
static kolo_status open_channels(kolo_comm *comm, kolo_transport *channels,
                                 const kolo_subgroup_address *addresses) {
    KOLO_COMM_LOCK_SCOPE(comm);
    kolo_status status = KOLO_OK;
    for (int r = 0; r < comm->size; r++) {
        kolo_status one = check_address(comm, r, &addresses[r]);
        if (one == KOLO_OK && channels) one = channels->ops->attach(channels, r, &addresses[r]);
        if (status == KOLO_OK) status = one;
    }
    if (status == KOLO_OK) return kolo_agreement_create(comm, channels, &comm->agreement);
    if (channels) channels->ops->destroy(channels, NULL);
    return status;
}

static void close_channels(kolo_comm *comm) {
    KOLO_COMM_LOCK_SCOPE(comm);
    kolo_agreement_destroy(comm->agreement);
    comm->agreement = NULL;
}

/* Completes on a rank only after all others have opened their channels. A rank on which it fails
 * leaves the channels, which the others receive at once. */
static kolo_status confirm(kolo_comm *comm) {
    const kolo_request_opts opts = {.kind = KOLO_COLLECTIVE_BARRIER, .site = "shrink"};
    kolo_status status = kolo_request_run(comm, &opts, 0);
    if (status != KOLO_OK) close_channels(comm);
    return status;
}

/* A rank without memory gives an address of zeros. */
static kolo_status allow(kolo_comm *comm, int *members, kolo_subgroup_address *addresses) {
    kolo_subgroup_address own = {0};
    kolo_transport *channels = NULL;
    for (int r = 0; r < comm->size; r++) members[r] = r;
    if (make_channels(comm, members, comm->size, &own, &channels) != KOLO_OK) {
        own = (kolo_subgroup_address){0};
    }
    kolo_request_opts opts = {.kind = KOLO_COLLECTIVE_ALLGATHER,
                              .dtype = KOLO_DTYPE_I64,
                              .input = &own,
                              .output = addresses,
                              .count = 2,
                              .site = "shrink"};
    kolo_status status = kolo_request_run(comm, &opts, 0);
    if (status == KOLO_OK) {
        status = open_channels(comm, channels, addresses);
        if (status == KOLO_OK) status = confirm(comm);
    } else if (channels) {
        KOLO_COMM_LOCK_SCOPE(comm);
        channels->ops->destroy(channels, NULL);
    }
    if (status != KOLO_OK && comm->broken == KOLO_OK) { /* the others have it, perhaps */
        status = kolo_comm_break(comm, status, "%s", kolo_last_error());
    }
    return status;
}

kolo_status kolo_comm_allow_shrink(kolo_comm *comm) {
    KOLO_COMM_CLAIM(comm);
    KOLO_TRY(kolo_subgroup_check(comm));
    KOLO_TRY(kolo_comm_check(comm));
    if (comm->agreement) return KOLO_OK;
    size_t n = (size_t)comm->size;
    int *members = kolo_zalloc(n * sizeof *members);
    kolo_subgroup_address *addresses = kolo_zalloc(n * sizeof *addresses);
    kolo_status status = KOLO_OK;
    if (!members || !addresses) { /* the other ranks wait, or will */
        status = KOLO_NOMEM(n * sizeof *addresses);
        status = kolo_comm_break(comm, status, "%s", kolo_last_error());
    } else {
        status = allow(comm, members, addresses);
    }
    kolo_free(members);
    kolo_free(addresses);
    return status;
}

/* ---- afterwards ---- */

/* A sub-group that is being created. */
typedef struct successor {
    int n;
    int *members; /* [size of the group], of which n are used; then as many hosts */
    unsigned char (*records)[KOLO_RECORD_BYTES];
    kolo_comm *child;
    kolo_transport *channels;
} successor;

static void list_members(const kolo_comm *comm, successor *s) {
    s->n = 0;
    for (int r = 0; r < comm->size; r++) {
        if (!kolo_agreement_gone(comm->agreement, r)) s->members[s->n++] = r;
    }
}

static void drop(successor *s) {
    if (s->channels) s->channels->ops->destroy(s->channels, NULL);
    kolo_comm_destroy(s->child);
    s->channels = NULL;
    s->child = NULL;
}

/* This rank's part. Without memory, the record has zeros. */
static void make_part(kolo_comm *comm, successor *s, member_record *own) {
    *own = (member_record){0};
    kolo_status status = kolo_subgroup_make(comm, s->members[0], s->members, s->n,
                                            s->members + comm->size, &own->group, &s->child);
    if (status == KOLO_OK) {
        status = make_channels(comm, s->members, s->n, &own->channels, &s->channels);
    }
    if (status == KOLO_OK) return;
    *own = (member_record){0};
    drop(s);
}

static bool is_known(const successor *s, int i) {
    static const unsigned char none[KOLO_RECORD_BYTES];
    return memcmp(s->records[s->members[i]], none, sizeof none) != 0;
}

static kolo_status attach_one(const successor *s, int i) {
    kolo_transport *t = s->child->transport;
    member_record r;
    memcpy(&r, s->records[s->members[i]], sizeof r);
    KOLO_TRY(t->ops->attach(t, i, &r.group));
    return s->channels->ops->attach(s->channels, i, &r.channels);
}

/* A failure before the others were known has reached none of them. */
static void report_again(const kolo_comm *child) {
    kolo_transport *t = child->transport;
    if (child->broken != KOLO_OK) t->ops->report(t, child->broken, child->broken_text);
}

/* The others may complete the group although this rank fails: then they learn that it leaves. */
static void attach_to_leave(const successor *s) {
    for (int i = 0; i < s->n && s->child; i++) {
        if (is_known(s, i)) (void)attach_one(s, i);
    }
    if (s->child) report_again(s->child);
}

static kolo_status attach(kolo_comm *comm, successor *s) {
    for (int i = 0; i < s->n; i++) {
        member_record r;
        memcpy(&r, s->records[s->members[i]], sizeof r);
        KOLO_TRY(check_address(comm, s->members[i], &r.channels));
    }
    KOLO_ASSERT(s->child && s->channels); /* without them this rank's record has zeros */
    for (int i = 0; i < s->n; i++) KOLO_TRY(attach_one(s, i));
    report_again(s->child);
    kolo_transport *channels = s->channels;
    s->channels = NULL;
    return kolo_agreement_create(s->child, channels, &s->child->agreement);
}

/* Whether all members of the sub-group live. */
static bool all_live(const kolo_comm *comm, const successor *s) {
    for (int i = 0; i < s->n; i++) {
        if (kolo_agreement_gone(comm->agreement, s->members[i])) return false;
    }
    return true;
}

static kolo_status succeed(kolo_comm *comm, successor *s) {
    kolo_agreement *a = comm->agreement;
    uint64_t unused = 0;
    KOLO_TRY(kolo_agreement_decide(a, &unused));
    for (;;) {
        member_record own;
        list_members(comm, s);
        make_part(comm, s, &own);
        KOLO_TRY(kolo_agreement_exchange(a, &own, s->records));
        kolo_status status = kolo_agreement_decide(a, &unused);
        if (status != KOLO_OK) attach_to_leave(s);
        KOLO_TRY(status);
        if (all_live(comm, s)) return attach(comm, s);
        drop(s);
    }
}

/* Other ranks may wait in the group, and come only when it breaks. */
static void break_group(kolo_comm *comm) {
    bool moved;
    (void)kolo_engine_progress(comm, &moved);
    (void)kolo_comm_watch(comm);
    if (comm->broken != KOLO_OK) return;
    char reason[64];
    snprintf(reason, sizeof reason, "rank %d shrinks the group",
             kolo_comm_whole_rank(comm, comm->rank));
    (void)kolo_comm_break_one(comm, KOLO_ERR_PEER, "%s", reason); /* sub-groups may go on */
}

static kolo_status check_allowed(const kolo_comm *comm) {
    if (comm->agreement) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, "call kolo_comm_allow_shrink on all ranks first, while they "
                                   "live");
}

kolo_status kolo_comm_shrink(kolo_comm *comm, kolo_comm **survivors) {
    KOLO_COMM_CLAIM(comm);
    KOLO_COMM_LOCK_SCOPE(comm);
    KOLO_TRY(check_allowed(comm));
    if (comm->inherited) return kolo_comm_check(comm);
    size_t n = (size_t)comm->size;
    break_group(comm);
    successor s = {.members = kolo_zalloc(2 * n * sizeof *s.members),
                   .records = kolo_zalloc(n * sizeof *s.records)};
    kolo_status status;
    if (s.members && s.records) {
        status = succeed(comm, &s);
    } else { /* the other ranks wait, or will */
        status = kolo_agreement_give_up(comm->agreement, KOLO_NOMEM(n * sizeof *s.records));
    }
    if (status == KOLO_OK) {
        kolo_comm_whole(comm)->leaves_for[0] = '\0'; /* it goes on */
        *survivors = s.child;
    } else {
        drop(&s);
    }
    kolo_free(s.members);
    kolo_free(s.records);
    return status;
}

kolo_status kolo_comm_agree(kolo_comm *comm, uint64_t *flags, int *lost) {
    KOLO_COMM_CLAIM(comm);
    KOLO_COMM_LOCK_SCOPE(comm);
    KOLO_TRY(check_allowed(comm));
    if (comm->inherited) return kolo_comm_check(comm);
    KOLO_TRY(kolo_agreement_decide(comm->agreement, flags));
    int n = 0;
    for (int r = 0; r < comm->size; r++) n += kolo_agreement_gone(comm->agreement, r);
    if (lost) *lost = n;
    return KOLO_OK;
}

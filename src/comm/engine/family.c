/* The tree of sub-groups, and how ranks are named in it. */
#include "comm/engine/family.h"

#include <stdio.h>

void kolo_comm_unlink(kolo_comm *comm) {
    if (!comm->parent) return;
    kolo_comm **p = &comm->parent->children;
    while (*p != comm) p = &(*p)->sibling;
    *p = comm->sibling;
}

bool kolo_comm_in_flight(const kolo_comm *comm) {
    return comm->n_flight > 0 || comm->n_messages > 0;
}

static bool in_flight_below(const kolo_comm *comm) {
    bool any = kolo_comm_in_flight(comm);
    for (const kolo_comm *c = comm->children; c && !any; c = c->sibling) any = in_flight_below(c);
    return any;
}

bool kolo_family_in_flight(const kolo_comm *comm) {
    while (comm->parent) comm = comm->parent;
    return in_flight_below(comm);
}

int kolo_comm_whole_rank(const kolo_comm *comm, int rank) {
    return comm->whole_rank ? comm->whole_rank[rank] : rank;
}

int kolo_comm_member(const kolo_comm *comm, int whole_rank) {
    if (!comm->whole_rank) return whole_rank;
    int p = 0;
    while (p < comm->size && comm->whole_rank[p] != whole_rank) p++;
    return p < comm->size ? p : -1;
}

const char *kolo_comm_rank_text(const kolo_comm *comm, int rank, char *text, size_t bytes) {
    const int whole = kolo_comm_whole_rank(comm, rank);
    char name[KOLO_RANK_BYTES / 2] = "";
    const kolo_comm *named = comm;
    while (named && !named->namer) named = named->parent;
    if (named) named->namer(named->namer_arg, kolo_comm_member(named, whole), name, sizeof name);
    const char *between = name[0] && comm->parent ? "; " : "";
    int n = snprintf(text, bytes, "rank %d%s%s%s", whole, name[0] || comm->parent ? " (" : "", name,
                     between);
    if (comm->parent) {
        n += snprintf(text + n, bytes - (size_t)n, "%d in %s", rank, comm->group);
    }
    if (name[0] || comm->parent) snprintf(text + n, bytes - (size_t)n, ")");
    return text;
}

bool kolo_comm_maps(const kolo_comm *comm, int peer) {
    kolo_transport *t = comm->transport;
    return t->ops->reaches ? t->ops->reaches(t, peer) : t->windows;
}

#pragma once
/* Links: redistributions that are prepared once and run in every step.
 *
 * A link reads a rank's local tensor at `source` and writes its local tensor at `target`, both in
 * row-major order. It is planned without a communicator; `attach` makes its requests and `detach`
 * drops them, so that a link outlives a group. POST starts it, WAIT completes it: between the two
 * the source must stay as it is and the target belongs to the link. A link of several moves runs
 * the first communicating one between POST and WAIT, and the others inside WAIT.
 *
 * Links of one rank belong to the thread of its communicator. */

#include "mesh/redistribute.h"

/* ---- communicators of the groups of a mesh ---- */

/* Adds the place of each rank to its number in the errors of `world` and its sub-groups, "rank 3
 * (dp=1,tp=1)", from now on. The mesh is borrowed until they are unnamed. */
void kolo_mesh_name_ranks(const kolo_mesh *mesh, kolo_comm *world);
/* Ranks have their numbers alone again, if the names are those of this mesh. */
void kolo_mesh_unname_ranks(const kolo_mesh *mesh, kolo_comm *world);

typedef struct kolo_mesh_comms kolo_mesh_comms;

/* `world` has a rank for each of the mesh, in its order, and is borrowed; it names them, unless
 * they have names. ARG: another size. NOMEM. */
kolo_status kolo_mesh_comms_create(const kolo_mesh *mesh, kolo_comm *world,
                                   kolo_mesh_comms **comms);
/* The communicator of this rank's group of `axes`, in which ranks are numbered by their place in
 * the group; owned by `comms`. Made when first asked for, by a collective call of the world: all
 * ranks ask for the same sets in the same order. The errors of kolo_comm_split. */
kolo_status kolo_mesh_comms_get(kolo_mesh_comms *comms, kolo_axes axes, kolo_comm **comm);
/* After an error of this rank that its peers do not have: fails its groups with the text of the
 * last error, so that a rank that waits in one of them gets the cause, not that this rank has left.
 * The world fails too if it has requests in flight, for which no rank will wait. */
void kolo_mesh_comms_fail(kolo_mesh_comms *comms, kolo_status status);
void kolo_mesh_comms_destroy(kolo_mesh_comms *comms);

/* ---- links ---- */

typedef struct kolo_mesh_link kolo_mesh_link;

typedef struct kolo_mesh_link_opts {
    const kolo_mesh *mesh;
    int rank;         /* in the mesh */
    kolo_shape shape; /* of the whole tensor */
    kolo_dtype dtype;
    kolo_placements from, to;
    const void *source;  /* borrowed; never written */
    void *target;        /* borrowed; does not overlap source */
    const char *site;    /* names the link in errors ("fc1.weight"); copied */
    void *buffers;       /* borrowed, in use from POST to WAIT: for what is packed and unpacked */
    size_t buffer_bytes; /* their size; what does not fit is allocated */
    int priority;        /* as kolo_request_opts.priority */
    bool moves;          /* addresses may change from POST to POST: kolo_mesh_link_bind */
} kolo_mesh_link_opts;

/* Plans the moves and allocates what lies between them. ARG, as kolo_redistribution_plan; NOMEM. */
kolo_status kolo_mesh_link_create(const kolo_mesh_link_opts *opts, kolo_mesh_link **link);
void kolo_mesh_link_destroy(kolo_mesh_link *link);
/* Makes the requests. All ranks of the mesh attach their links in the same order. ARG; NOMEM; the
 * errors of kolo_comm_split. */
kolo_status kolo_mesh_link_attach(kolo_mesh_link *link, kolo_mesh_comms *comms);
void kolo_mesh_link_detach(kolo_mesh_link *link);
/* The request of collective `i`, from 0, in the order in which they run; NULL: there are fewer, or
 * the link is not attached. Owned by the link. */
kolo_request *kolo_mesh_link_request(const kolo_mesh_link *link, int i);
/* Bytes of the buffers that a link has allocated. */
size_t kolo_mesh_link_bytes(const kolo_mesh_link *link);
/* Other addresses for a link of one move between neighbours that `moves`, or of none that
 * communicates; not between POST and WAIT. */
void kolo_mesh_link_bind(kolo_mesh_link *link, const void *source, void *target);
/* Starts; does not block. ARG: not attached. */
kolo_status kolo_mesh_link_post(kolo_mesh_link *link);
/* Makes progress, and sets `complete` if what POST has begun is complete, after which WAIT goes on
 * with the other moves. The errors of kolo_request_test. */
kolo_status kolo_mesh_link_test(kolo_mesh_link *link, bool *complete);
/* Completes; blocks. The errors of kolo_request_wait. */
kolo_status kolo_mesh_link_wait(kolo_mesh_link *link);

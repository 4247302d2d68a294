/* Links. See link.h.
 *
 * Each move has an input, the output of the move before or the link's source, and an output. Its
 * collective works on a send and a receive buffer; where the elements to send are one contiguous
 * range of the input, or those received of the output, the buffer is that range and nothing is
 * copied. */
#include "mesh/link.h"

#include "base/integer.h"
#include "comm/engine/failure.h"

#include <stdio.h>
#include <string.h>

/* ---- communicators ---- */

typedef struct group_comm {
    kolo_axes axes;
    kolo_comm *comm;
} group_comm;

struct kolo_mesh_comms {
    kolo_mesh mesh;
    kolo_comm *world;
    int next_tag;                           /* of links that send and receive */
    group_comm groups[1 << KOLO_MESH_AXES]; /* one for each set of axes that was asked for */
    size_t n_groups;
};

/* The place of a rank: "dp=1,tp=0". */
static void name_place(const void *arg, int rank, char *text, size_t bytes) {
    const kolo_mesh *mesh = arg;
    size_t used = 0;
    for (int a = 0; a < mesh->n_axes && used < bytes; a++) {
        if (mesh->axes[a].size == 1) continue;
        const int at = kolo_mesh_coordinate(mesh, rank, a);
        used += (size_t)snprintf(text + used, bytes - used, "%s%s=%d", used > 0 ? "," : "",
                                 mesh->axes[a].name, at);
    }
}

void kolo_mesh_name_ranks(const kolo_mesh *mesh, kolo_comm *world) {
    kolo_comm_name_ranks(world, name_place, mesh);
}

void kolo_mesh_unname_ranks(const kolo_mesh *mesh, kolo_comm *world) {
    if (world->namer_arg == mesh) kolo_comm_name_ranks(world, NULL, NULL);
}

kolo_status kolo_mesh_comms_create(const kolo_mesh *mesh, kolo_comm *world,
                                   kolo_mesh_comms **comms) {
    if (kolo_comm_size(world) != kolo_mesh_size(mesh)) {
        char text[KOLO_MESH_TEXT];
        return KOLO_FAIL(KOLO_ERR_ARG, "mesh %s for %d workers", kolo_mesh_text(mesh, text),
                         kolo_comm_size(world));
    }
    kolo_mesh_comms *c = kolo_zalloc(sizeof *c);
    if (!c) return KOLO_NOMEM(sizeof *c);
    c->mesh = *mesh;
    c->world = world;
    if (!world->namer) kolo_mesh_name_ranks(&c->mesh, world);
    *comms = c;
    return KOLO_OK;
}

kolo_status kolo_mesh_comms_get(kolo_mesh_comms *comms, kolo_axes axes, kolo_comm **comm) {
    int rank = kolo_comm_rank(comms->world);
    if (kolo_mesh_group_size(&comms->mesh, axes) == kolo_comm_size(comms->world)) {
        *comm = comms->world;
        return KOLO_OK;
    }
    for (size_t i = 0; i < comms->n_groups; i++) {
        if (comms->groups[i].axes != axes) continue;
        *comm = comms->groups[i].comm;
        return KOLO_OK;
    }
    kolo_comm *made;
    KOLO_TRY(kolo_comm_split(comms->world, kolo_mesh_group_colour(&comms->mesh, axes, rank),
                             kolo_mesh_group_index(&comms->mesh, axes, rank), &made));
    comms->groups[comms->n_groups++] = (group_comm){axes, made};
    *comm = made;
    return KOLO_OK;
}

void kolo_mesh_comms_fail(kolo_mesh_comms *comms, kolo_status status) {
    for (size_t i = 0; i < comms->n_groups; i++) {
        (void)kolo_comm_break_one(comms->groups[i].comm, status, "%s", kolo_last_error());
    }
    kolo_comm_break_pending(comms->world, status, kolo_last_error());
}

void kolo_mesh_comms_destroy(kolo_mesh_comms *comms) {
    if (!comms) return;
    for (size_t i = 0; i < comms->n_groups; i++) kolo_comm_destroy(comms->groups[i].comm);
    kolo_mesh_unname_ranks(&comms->mesh, comms->world);
    kolo_free(comms);
}

/* ---- moves, prepared for one rank ---- */

typedef struct stage {
    const kolo_move *move;
    int size, me;      /* of the group, and this rank's place in it */
    const void *input; /* local tensors before and after */
    void *output;
    int64_t n_output;               /* elements */
    kolo_overlap *out, *in;         /* [size]: what goes to each rank and what comes from it */
    size_t *out_counts, *in_counts; /* [size]: the same in elements */
    size_t *counts;   /* [size]: slices of a collective, the same on all ranks of the group */
    const void *send; /* what the collective reads: the input, or packed */
    void *receive;    /* what it writes: the output, or to be unpacked */
    void *packed, *unpacked; /* buffers of our own; NULL where none is needed */
    kolo_request **requests; /* [2 size] NEIGHBOUR: sends and receives; else the collective */
    int n_requests;
} stage;

struct kolo_mesh_link {
    kolo_mesh_link_opts opts;
    char *site;
    kolo_arena arena;
    kolo_move moves[KOLO_MOVES_MOST];
    stage stages[KOLO_MOVES_MOST];
    int n;
    void *between[KOLO_MOVES_MOST]; /* outputs of all moves but the last */
    int64_t n_copied;               /* elements, where there is no move */
    size_t borrowed, allocated;     /* bytes of what is packed, unpacked and between moves */
    int running;                    /* the stage that WAIT goes on with */
    bool attached;
};

static size_t bytes_of(const kolo_mesh_link *link) { return kolo_dtype_bytes(link->opts.dtype); }

/* Whether the tensor has what the collective wants, one message behind the other, in this order
 * already, from its first element on. The message to place `but` is none. */
static bool in_order(const kolo_overlap *overlaps, int n, int but, bool of_source) {
    int64_t next = 0;
    for (int i = 0; i < n; i++) {
        int64_t first;
        if (overlaps[i].count == 0 || i == but) continue;
        if (!kolo_overlap_contiguous(&overlaps[i], of_source, &first) || first != next)
            return false;
        next += overlaps[i].count;
    }
    return true;
}

static int64_t sum_of(const size_t *counts, int n) {
    size_t sum = 0;
    for (int i = 0; i < n; i++) sum += counts[i];
    return (int64_t)sum;
}

/* Whether a move sends parts of the input, which may have to be packed; an allgather, broadcast,
 * reduce or allreduce sends the input as it is. */
static bool sends_parts(kolo_move_kind kind) {
    return kind == KOLO_MOVE_REDUCE_SCATTER || kind == KOLO_MOVE_GATHER ||
           kind == KOLO_MOVE_SCATTER || kind == KOLO_MOVE_EXCHANGE || kind == KOLO_MOVE_NEIGHBOUR;
}

/* Whether a move's messages come from several ranks, and so may have to be unpacked. */
static bool receives_parts(kolo_move_kind kind) {
    return kind == KOLO_MOVE_ALLGATHER || kind == KOLO_MOVE_GATHER || kind == KOLO_MOVE_EXCHANGE ||
           kind == KOLO_MOVE_NEIGHBOUR;
}

static kolo_status buffer(kolo_mesh_link *link, int64_t elements, void **block) {
    const kolo_mesh_link_opts *o = &link->opts;
    size_t bytes = (size_t)elements * bytes_of(link), room = kolo_round_up(bytes, 64);
    if (o->buffers && link->borrowed + room <= o->buffer_bytes) {
        *block = (char *)o->buffers + link->borrowed;
        link->borrowed += room;
        return KOLO_OK;
    }
    *block = kolo_arena_alloc(&link->arena, bytes ? bytes : 1);
    link->allocated += bytes;
    return *block ? KOLO_OK : KOLO_NOMEM(bytes);
}

/* Elements of `other`'s slice in a collective of slices, which all ranks of the group must give
 * alike: what it sends to the root of a gather or to all, or what it is to hold afterwards. */
static kolo_status count_slice(kolo_mesh_link *link, const stage *s, int other,
                               const kolo_overlap *out, const kolo_overlap *in, size_t *count) {
    const kolo_mesh_link_opts *o = &link->opts;
    kolo_overlap overlap = s->move->kind == KOLO_MOVE_ALLGATHER ? *in : *out;
    if (s->move->kind == KOLO_MOVE_GATHER || s->move->kind == KOLO_MOVE_SCATTER) {
        int root = kolo_mesh_group_rank(o->mesh, s->move->axes, o->rank, s->move->root);
        bool gathers = s->move->kind == KOLO_MOVE_GATHER;
        KOLO_TRY(kolo_move_overlap(o->mesh, &o->shape, s->move, gathers ? other : root,
                                   gathers ? root : other, &link->arena, &overlap));
    }
    *count = (size_t)overlap.count;
    return KOLO_OK;
}

/* What each rank of the group gives this one and takes from it. */
static kolo_status find_overlaps(kolo_mesh_link *link, stage *s) {
    const kolo_mesh_link_opts *o = &link->opts;
    size_t n = (size_t)s->size;
    s->out = kolo_arena_alloc(&link->arena, n * sizeof *s->out);
    s->in = kolo_arena_alloc(&link->arena, n * sizeof *s->in);
    s->out_counts = kolo_arena_alloc(&link->arena, n * sizeof *s->out_counts);
    s->in_counts = kolo_arena_alloc(&link->arena, n * sizeof *s->in_counts);
    s->counts = kolo_arena_alloc(&link->arena, n * sizeof *s->counts);
    s->requests = kolo_arena_alloc(&link->arena, 2 * n * sizeof(kolo_request *));
    if (!s->out || !s->in || !s->out_counts || !s->in_counts || !s->counts || !s->requests) {
        return KOLO_NOMEM(n * sizeof *s->out);
    }
    for (int i = 0; i < s->size; i++) {
        int other = kolo_mesh_group_rank(o->mesh, s->move->axes, o->rank, i);
        KOLO_TRY(kolo_move_overlap(o->mesh, &o->shape, s->move, o->rank, other, &link->arena,
                                   &s->out[i]));
        KOLO_TRY(kolo_move_overlap(o->mesh, &o->shape, s->move, other, o->rank, &link->arena,
                                   &s->in[i]));
        s->out_counts[i] = (size_t)s->out[i].count;
        s->in_counts[i] = (size_t)s->in[i].count;
        KOLO_TRY(count_slice(link, s, other, &s->out[i], &s->in[i], &s->counts[i]));
        if (i == s->me && s->move->kind == KOLO_MOVE_NEIGHBOUR) {
            s->out_counts[i] = s->in_counts[i] = 0; /* copied, not sent */
        }
    }
    return KOLO_OK;
}

static kolo_status prepare(kolo_mesh_link *link, stage *s, const void *input, void *output) {
    const kolo_mesh_link_opts *o = &link->opts;
    const kolo_move *move = s->move;
    kolo_mesh_region after;
    s->size = kolo_mesh_group_size(o->mesh, move->axes);
    s->me = kolo_mesh_group_index(o->mesh, move->axes, o->rank);
    s->input = s->send = input;
    s->output = s->receive = output;
    KOLO_TRY(find_overlaps(link, s));
    KOLO_TRY(kolo_mesh_region_of(o->mesh, &move->to, &o->shape, o->rank, move->flat, &link->arena,
                                 &after));
    s->n_output = kolo_mesh_region_count(&after);
    const int but = move->kind == KOLO_MOVE_NEIGHBOUR ? s->me : -1;
    const bool packs = move->adds || o->moves || !in_order(s->out, s->size, but, true);
    const bool unpacks = move->adds || o->moves || !in_order(s->in, s->size, but, false);
    if (sends_parts(move->kind) && packs) {
        KOLO_TRY(buffer(link, sum_of(s->out_counts, s->size), &s->packed));
        s->send = s->packed;
    }
    if (receives_parts(move->kind) && unpacks) {
        KOLO_TRY(buffer(link, sum_of(s->in_counts, s->size), &s->unpacked));
        s->receive = s->unpacked;
    }
    return KOLO_OK;
}

/* ---- creating ---- */

static kolo_status plan(kolo_mesh_link *link) {
    const kolo_mesh_link_opts *o = &link->opts;
    KOLO_TRY(kolo_redistribution_plan(o->mesh, &o->shape, &o->from, &o->to, link->moves, &link->n));
    if (link->n == 0) {
        kolo_mesh_region held;
        bool flat = false;
        for (int a = 0; a < o->mesh->n_axes; a++) {
            const kolo_placement *p = &o->from.axis[a];
            flat = flat || (p->kind == KOLO_PLACEMENT_SHARDED && p->dim == KOLO_DIM_FLAT);
        }
        KOLO_TRY(
            kolo_mesh_region_of(o->mesh, &o->from, &o->shape, o->rank, flat, &link->arena, &held));
        link->n_copied = kolo_mesh_region_count(&held);
    }
    const void *input = o->source;
    for (int i = 0; i < link->n; i++) {
        link->stages[i].move = &link->moves[i];
        void *output = o->target;
        if (i + 1 < link->n) {
            kolo_mesh_region after;
            KOLO_TRY(kolo_mesh_region_of(o->mesh, &link->moves[i].to, &o->shape, o->rank,
                                         link->moves[i].flat, &link->arena, &after));
            KOLO_TRY(buffer(link, kolo_mesh_region_count(&after), &link->between[i]));
            output = link->between[i];
        }
        KOLO_TRY(prepare(link, &link->stages[i], input, output));
        input = output;
    }
    return KOLO_OK;
}

kolo_status kolo_mesh_link_create(const kolo_mesh_link_opts *opts, kolo_mesh_link **link) {
    kolo_mesh_link *l = kolo_zalloc(sizeof *l);
    if (!l) return KOLO_NOMEM(sizeof *l);
    l->opts = *opts;
    l->site = kolo_strdup(opts->site ? opts->site : "link");
    kolo_status status = l->site ? plan(l) : KOLO_NOMEM(1);
    if (status != KOLO_OK) {
        kolo_mesh_link_destroy(l);
        return status;
    }
    *link = l;
    return KOLO_OK;
}

void kolo_mesh_link_destroy(kolo_mesh_link *link) {
    if (!link) return;
    kolo_mesh_link_detach(link);
    kolo_arena_fini(&link->arena);
    kolo_free(link->site);
    kolo_free(link);
}

/* ---- attaching ---- */

static kolo_status make_request(stage *s, kolo_comm *comm, const kolo_request_opts *opts) {
    KOLO_TRY(kolo_request_create(comm, opts, &s->requests[s->n_requests]));
    s->n_requests++;
    return KOLO_OK;
}

/* The message to a place of the group, within the send buffer. */
static const void *message_to(const kolo_mesh_link *link, const stage *s, int place) {
    return (const char *)s->send + (size_t)sum_of(s->out_counts, place) * bytes_of(link);
}

static void *message_from(const kolo_mesh_link *link, const stage *s, int place) {
    return (char *)s->receive + (size_t)sum_of(s->in_counts, place) * bytes_of(link);
}

static kolo_status attach_neighbour(const kolo_mesh_link *link, stage *s, kolo_comm *comm,
                                    kolo_request_opts o) {
    for (int i = 0; i < s->size; i++) {
        if (s->out_counts[i] == 0) continue;
        o.kind = KOLO_COLLECTIVE_SEND;
        o.root = i;
        o.input = message_to(link, s, i);
        o.output = NULL;
        o.count = s->out_counts[i];
        KOLO_TRY(make_request(s, comm, &o));
    }
    for (int i = 0; i < s->size; i++) {
        if (s->in_counts[i] == 0) continue;
        o.kind = KOLO_COLLECTIVE_RECV;
        o.root = i;
        o.input = NULL;
        o.output = message_from(link, s, i);
        o.count = s->in_counts[i];
        KOLO_TRY(make_request(s, comm, &o));
    }
    return KOLO_OK;
}

static kolo_status attach(const kolo_mesh_link *link, stage *s, kolo_comm *comm, int tag) {
    kolo_request_opts o = {
        .dtype = link->opts.dtype,
        .op = s->move->op,
        .input = s->send,
        .output = s->receive,
        .root = s->move->root,
        .tag = tag,
        .priority = link->opts.priority,
        .site = link->site,
    };
    bool is_root = s->me == s->move->root;
    switch (s->move->kind) {
    case KOLO_MOVE_NEIGHBOUR:
        return attach_neighbour(link, s, comm, o);
    case KOLO_MOVE_ALLREDUCE:
        o.kind = KOLO_COLLECTIVE_ALLREDUCE;
        o.count = (size_t)s->n_output;
        break;
    case KOLO_MOVE_REDUCE:
        o.kind = KOLO_COLLECTIVE_REDUCE;
        o.count = s->out_counts[s->move->root];
        if (!is_root) o.output = NULL;
        break;
    case KOLO_MOVE_BROADCAST: /* from the output, into which the root copies its input */
        o.kind = KOLO_COLLECTIVE_BROADCAST;
        o.input = NULL;
        o.count = (size_t)s->n_output;
        break;
    case KOLO_MOVE_REDUCE_SCATTER:
        o.kind = KOLO_COLLECTIVE_REDUCE_SCATTER;
        o.counts = s->counts;
        break;
    case KOLO_MOVE_ALLGATHER:
        o.kind = KOLO_COLLECTIVE_ALLGATHER;
        o.counts = s->counts;
        break;
    case KOLO_MOVE_GATHER:
        o.kind = KOLO_COLLECTIVE_GATHER;
        o.counts = s->counts;
        if (!is_root) o.output = NULL;
        break;
    case KOLO_MOVE_SCATTER:
        o.kind = KOLO_COLLECTIVE_SCATTER;
        o.counts = s->counts;
        if (!is_root) o.input = NULL;
        break;
    case KOLO_MOVE_EXCHANGE:
        o.kind = KOLO_COLLECTIVE_ALLTOALL;
        o.counts = s->out_counts;
        o.output_counts = s->in_counts;
        break;
    case KOLO_MOVE_SLICE:
    case KOLO_MOVE_PAD:
    case KOLO_MOVE_COUNT:
        return KOLO_OK;
    }
    return make_request(s, comm, &o);
}

kolo_status kolo_mesh_link_attach(kolo_mesh_link *link, kolo_mesh_comms *comms) {
    KOLO_ASSERT(!link->attached);
    link->attached = true;
    for (int i = 0; i < link->n; i++) {
        stage *s = &link->stages[i];
        kolo_comm *comm;
        if (s->size == 1) continue;
        kolo_status status = kolo_mesh_comms_get(comms, s->move->axes, &comm);
        if (status == KOLO_OK) status = attach(link, s, comm, comms->next_tag++);
        if (status != KOLO_OK) {
            kolo_mesh_link_detach(link);
            return status;
        }
    }
    return KOLO_OK;
}

void kolo_mesh_link_detach(kolo_mesh_link *link) {
    for (int i = 0; i < link->n; i++) {
        stage *s = &link->stages[i];
        while (s->n_requests > 0) kolo_request_destroy(s->requests[--s->n_requests]);
    }
    link->attached = false;
}

kolo_request *kolo_mesh_link_request(const kolo_mesh_link *link, int i) {
    for (int s = 0; s < link->n; i -= link->stages[s++].n_requests) {
        if (i < link->stages[s].n_requests) return link->stages[s].requests[i];
    }
    return NULL;
}

size_t kolo_mesh_link_bytes(const kolo_mesh_link *link) { return link->allocated; }

/* ---- running ---- */

static void begin_stage(const kolo_mesh_link *link, stage *s) {
    size_t bytes = bytes_of(link);
    bool copies = s->move->kind == KOLO_MOVE_BROADCAST && s->me == s->move->root;
    if (s->packed) {
        char *message = s->packed;
        for (int i = 0; i < s->size; i++) {
            if (s->out_counts[i] == 0) continue;
            kolo_overlap_pack(&s->out[i], bytes, s->input, message);
            message += s->out_counts[i] * bytes;
        }
    }
    if (copies || (s->size == 1 && s->move->kind != KOLO_MOVE_PAD)) {
        kolo_overlap_copy(&s->in[s->me], bytes, s->input, s->output);
    }
    if (s->move->kind == KOLO_MOVE_PAD) {
        memset(s->output, 0, (size_t)s->n_output * bytes);
        kolo_overlap_copy(&s->in[s->me], bytes, s->input, s->output);
    }
    if (s->move->kind == KOLO_MOVE_NEIGHBOUR && s->size > 1) {
        if (s->move->adds) memset(s->output, 0, (size_t)s->n_output * bytes);
        kolo_overlap_copy(&s->in[s->me], bytes, s->input, s->output);
    }
}

static void end_stage(const kolo_mesh_link *link, stage *s) {
    const char *message = s->unpacked;
    for (int i = 0; message && s->size > 1 && i < s->size; i++) {
        if (s->in_counts[i] == 0) continue;
        if (s->move->adds) {
            kolo_overlap_add(&s->in[i], link->opts.dtype, message, s->output);
        } else {
            kolo_overlap_unpack(&s->in[i], bytes_of(link), message, s->output);
        }
        message += s->in_counts[i] * bytes_of(link);
    }
}

/* Runs stages from `link->running` on, as far as one that communicates and is not to be waited for.
 */
static kolo_status run(kolo_mesh_link *link, bool wait) {
    for (; link->running < link->n; link->running++) {
        stage *s = &link->stages[link->running];
        begin_stage(link, s);
        for (int i = 0; i < s->n_requests; i++) KOLO_TRY(kolo_request_start(s->requests[i]));
        if (s->size > 1 && !wait) return KOLO_OK;
        for (int i = 0; i < s->n_requests; i++) KOLO_TRY(kolo_request_wait(s->requests[i], 0));
        end_stage(link, s);
    }
    return KOLO_OK;
}

void kolo_mesh_link_bind(kolo_mesh_link *link, const void *source, void *target) {
    link->opts.source = source;
    link->opts.target = target;
    if (link->n == 0) return;
    KOLO_ASSERT(link->n == 1);
    link->stages[0].input = source;
    link->stages[0].output = target;
}

kolo_status kolo_mesh_link_post(kolo_mesh_link *link) {
    if (!link->attached) {
        return KOLO_FAIL(KOLO_ERR_ARG, "link %s is started without a communicator", link->site);
    }
    link->running = 0;
    if (link->n == 0) {
        memcpy(link->opts.target, link->opts.source, (size_t)link->n_copied * bytes_of(link));
    }
    return run(link, false);
}

kolo_status kolo_mesh_link_test(kolo_mesh_link *link, bool *complete) {
    bool all = true;
    for (int i = 0; link->running < link->n && i < link->stages[link->running].n_requests; i++) {
        bool one;
        KOLO_TRY(kolo_request_test(link->stages[link->running].requests[i], &one));
        all = all && one;
    }
    *complete = all;
    return KOLO_OK;
}

kolo_status kolo_mesh_link_wait(kolo_mesh_link *link) {
    if (link->running < link->n) { /* the stage that POST began */
        stage *s = &link->stages[link->running];
        for (int i = 0; i < s->n_requests; i++) KOLO_TRY(kolo_request_wait(s->requests[i], 0));
        end_stage(link, s);
        link->running++;
    }
    return run(link, true);
}

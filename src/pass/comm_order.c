/* List scheduling of computation and communication. */
#include "pass/comm_order.h"

#include <string.h>

typedef enum bucket_state { IDLE, IN_FLIGHT, DONE } bucket_state;

typedef struct scheduler {
    kolo_graph *g;
    const kolo_comm_order_opts *o;
    kolo_node **order;
    int32_t n;
    bool *emitted;       /* by node */
    bool *skipped;       /* by node: posts, waits and redistributions */
    int *demand;         /* by node: the bucket on demand that it belongs to; -1: none */
    int32_t *after;      /* by node: one that it comes after; -1: none */
    int *left;           /* by bucket: nodes that its POST waits for */
    int *first, *next;   /* lists of o->before: first by node, next by entry; -1: end */
    bucket_state *state; /* by bucket */
    int *queue;          /* buckets in the order of their POSTs */
    int n_posted, n_done;
    size_t in_flight; /* bytes of limited buckets */
    bool updates;     /* they may run */
} scheduler;

static int32_t index_of(const scheduler *s, const kolo_node *n) {
    return kolo_info(s->g, n->out[0])->producer;
}

static void await(scheduler *s, int bucket) {
    const kolo_comm_bucket *b = &s->o->buckets[bucket];
    s->order[s->n++] = b->wait;
    s->emitted[index_of(s, b->wait)] = true;
    s->state[bucket] = DONE;
    s->n_done++;
    if (b->limited) s->in_flight -= b->bytes;
}

/* The bucket that has been in flight longest, of all or of the limited ones; -1: none. */
static int oldest(const scheduler *s, bool limited) {
    for (int i = 0; i < s->n_posted; i++) {
        int b = s->queue[i];
        if (s->state[b] == IN_FLIGHT && (!limited || s->o->buckets[b].limited)) return b;
    }
    return -1;
}

static bool exceeds(const scheduler *s, int bucket) {
    return s->in_flight > 0 && s->in_flight + s->o->buckets[bucket].bytes > s->o->in_flight;
}

static void emit_readers(scheduler *s, const kolo_node *wait);

/* A bucket beyond the limit waits for earlier ones, whose readers run at once: their memory is then
 * free. */
static void post(scheduler *s, int bucket) {
    const kolo_comm_bucket *b = &s->o->buckets[bucket];
    while (b->limited && exceeds(s, bucket)) {
        int first = oldest(s, true);
        await(s, first);
        emit_readers(s, s->o->buckets[first].wait);
    }
    s->order[s->n++] = b->post;
    s->emitted[index_of(s, b->post)] = true;
    s->state[bucket] = IN_FLIGHT;
    s->queue[s->n_posted++] = bucket;
    if (b->limited) s->in_flight += b->bytes;
}

static void emit(scheduler *s, int32_t node) {
    s->order[s->n++] = s->g->nodes[node];
    s->emitted[node] = true;
    for (int i = s->first[node]; i >= 0; i = s->next[i]) {
        int bucket = s->o->before[i].bucket;
        if (--s->left[bucket] == 0) post(s, bucket);
    }
}

/* Posts a bucket on demand. */
static void issue(scheduler *s, int bucket) {
    for (int32_t i = 0; i < s->g->n_nodes; i++) {
        if (s->demand[i] == bucket) emit(s, i);
    }
    if (s->state[bucket] == IDLE) post(s, bucket); /* without nodes of its own */
}

/* Posts the buckets on demand that are needed next, within the limit. */
static void prefetch(scheduler *s) {
    for (int b = 0; b < s->o->n_buckets; b++) {
        if (!s->o->buckets[b].on_demand || s->state[b] != IDLE) continue;
        if (exceeds(s, b)) return;
        issue(s, b);
    }
}

/* The bucket whose WAIT a node lacks; -1: none. *ready: all else that it reads is there. */
static int lacks(const scheduler *s, const kolo_node *n, bool *ready) {
    int lacking = -1;
    *ready = true;
    for (int k = 0; k < n->n_in; k++) {
        int32_t producer = kolo_info(s->g, n->in[k])->producer;
        if (producer < 0 || s->emitted[producer]) continue;
        const kolo_node *from = s->g->nodes[producer];
        if (from->op->comm != KOLO_OP_WAIT) {
            *ready = false;
        } else if (lacking < 0) {
            lacking = (int)from->attr[0].i;
        }
    }
    return lacking;
}

static bool may_run(const scheduler *s, int32_t i) {
    const kolo_node *n = s->g->nodes[i];
    bool ready;
    if (s->emitted[i] || s->skipped[i] || s->demand[i] >= 0) return false;
    if (s->after[i] >= 0 && !s->emitted[s->after[i]]) return false;
    if (n->op->in_place && s->n_done < s->o->n_buckets) return false;
    if (!s->updates && kolo_node_is_update(s->g, n)) return false;
    return lacks(s, n, &ready) < 0 && ready;
}

static bool reads(const kolo_node *n, const kolo_node *wait) {
    for (int k = 0; k < n->n_in; k++) {
        for (int i = 0; i < wait->n_out; i++) {
            if (n->in[k].id == wait->out[i].id) return true;
        }
    }
    return false;
}

static void emit_readers(scheduler *s, const kolo_node *wait) {
    for (int32_t i = 0; i < s->g->n_nodes; i++) {
        if (!s->emitted[i] && reads(s->g->nodes[i], wait) && may_run(s, i)) emit(s, i);
    }
}

static void emit_ready(scheduler *s) {
    for (int32_t i = 0; i < s->g->n_nodes; i++) {
        if (may_run(s, i)) emit(s, i);
    }
}

/* Whether a bucket can be awaited: it has been posted, or can be on demand. Another one waits for
 * nodes that lack a bucket themselves. */
static bool may_be_awaited(const scheduler *s, int bucket) {
    return s->state[bucket] != IDLE || s->o->buckets[bucket].on_demand || s->left[bucket] == 0;
}

/* The bucket that the forward and backward pass need first; -1: they are complete. */
static int needed(const scheduler *s) {
    for (int32_t i = 0; i < s->g->n_nodes; i++) {
        const kolo_node *n = s->g->nodes[i];
        bool ready;
        if (s->emitted[i] || s->skipped[i] || s->demand[i] >= 0) continue;
        if (kolo_node_is_update(s->g, n)) continue;
        int bucket = lacks(s, n, &ready);
        if (bucket >= 0 && may_be_awaited(s, bucket)) return bucket;
    }
    return -1;
}

/* The next WAIT. False: all are done. */
static bool advance(scheduler *s) {
    int bucket = needed(s);
    if (bucket >= 0) {
        if (s->state[bucket] == IDLE) issue(s, bucket);
        prefetch(s);
        if (s->state[bucket] == IN_FLIGHT) await(s, bucket); /* else to keep the limit */
        return true;
    }
    bool opens = !s->updates;
    s->updates = true;
    bucket = oldest(s, false);
    if (bucket >= 0) await(s, bucket);
    return bucket >= 0 || opens;
}

static kolo_status run(scheduler *s) {
    do {
        emit_ready(s);
    } while (advance(s));
    int32_t removed = 0;
    for (int32_t i = 0; i < s->g->n_nodes; i++) {
        removed += s->g->nodes[i]->op->comm == KOLO_OP_REDISTRIBUTE;
    }
    if (s->n + removed != s->g->n_nodes) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "the communication of the graph has a cycle");
    }
    return kolo_graph_set_nodes(s->g, s->order, s->n);
}

static void mark(scheduler *s) {
    const kolo_graph *g = s->g;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        kolo_op_comm comm = g->nodes[i]->op->comm;
        s->emitted[i] = false;
        s->skipped[i] =
            comm == KOLO_OP_REDISTRIBUTE || comm == KOLO_OP_POST || comm == KOLO_OP_WAIT;
        s->demand[i] = s->first[i] = s->after[i] = -1;
    }
    for (int b = 0; b < s->o->n_buckets; b++) {
        s->left[b] = 0;
        s->state[b] = IDLE;
    }
    for (int i = s->o->n_before - 1; i >= 0; i--) {
        const kolo_comm_before *before = &s->o->before[i];
        s->next[i] = s->first[before->node];
        s->first[before->node] = i;
        s->left[before->bucket]++;
        if (s->o->buckets[before->bucket].on_demand) s->demand[before->node] = before->bucket;
    }
    for (int i = 0; i < s->o->n_after; i++) s->after[s->o->after[i].node] = s->o->after[i].after;
}

kolo_status kolo_comm_order(kolo_graph *g, const kolo_comm_order_opts *opts) {
    size_t nodes = (size_t)g->n_nodes + 1, buckets = (size_t)opts->n_buckets + 1;
    size_t entries = (size_t)opts->n_before + 1;
    scheduler s = {.g = g, .o = opts};
    kolo_arena arena = {0};
    s.order = kolo_arena_alloc(&arena, nodes * sizeof *s.order);
    s.emitted = kolo_arena_alloc(&arena, nodes * sizeof *s.emitted);
    s.skipped = kolo_arena_alloc(&arena, nodes * sizeof *s.skipped);
    s.demand = kolo_arena_alloc(&arena, nodes * sizeof *s.demand);
    s.after = kolo_arena_alloc(&arena, nodes * sizeof *s.after);
    s.left = kolo_arena_alloc(&arena, buckets * sizeof *s.left);
    s.first = kolo_arena_alloc(&arena, nodes * sizeof *s.first);
    s.next = kolo_arena_alloc(&arena, entries * sizeof *s.next);
    s.state = kolo_arena_alloc(&arena, buckets * sizeof *s.state);
    s.queue = kolo_arena_alloc(&arena, buckets * sizeof *s.queue);
    kolo_status status = KOLO_OK;
    if (s.order && s.emitted && s.skipped && s.demand && s.after && s.left && s.first && s.next &&
        s.state && s.queue) {
        mark(&s);
        status = run(&s);
    } else {
        status = KOLO_NOMEM(nodes * sizeof *s.order);
    }
    kolo_arena_fini(&arena);
    return status;
}

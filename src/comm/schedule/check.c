/* Symbolic execution of the schedules of a whole group.
 *
 * The symbolic value of an element is its index in the vector (all-to-all: in its rank's input),
 * the set of ranks whose contributions it holds (a bit mask, hence at most 64 ranks), its node of
 * the fixed tree, and whether it is scaled. Ranks run in turn, each as far as it can. A message is
 * delivered when the sender has issued its SEND and the receiver the matching RECV: no buffering is
 * assumed. Barriers divide a run into phases that are common to all ranks. For each element of
 * memory that other ranks access, the latest reader and writer are kept with their phase; two
 * ranks that access an element in the same phase, at least one of them writing, race. */
#include "base/memory.h"
#include "comm/schedule/schedule.h"

#include <string.h>

enum { RANKS_MAX = 64, NO_RANK = -1, SEVERAL = -2 };

typedef struct value {
    size_t element;
    uint64_t ranks; /* whose contributions it holds; 0: uninitialized */
    uint32_t node;  /* of the fixed tree; else 0 */
    bool prescaled, postscaled;
} value;

/* The latest reader and writer of an element, and their phases. */
typedef struct access {
    int reader, writer;
    size_t read_phase, write_phase;
} access;

typedef struct memory {
    value *values;
    access *accesses;
    size_t count;
} memory;

typedef struct checker {
    const kolo_schedule_spec *specs; /* of each rank */
    int size;
    const kolo_schedule *schedules;
    memory buffers[RANKS_MAX][KOLO_BUFFERS];
    size_t round[RANKS_MAX];     /* of each rank */
    size_t phase[RANKS_MAX];     /* barriers that the rank has reached */
    uint64_t started[RANKS_MAX]; /* ranks known to have started */
    bool stored[RANKS_MAX];      /* SUM has been stored: it must be started again */
    bool *issued[RANKS_MAX];     /* per entry */
    bool *done[RANKS_MAX];
} checker;

static const kolo_entry *entry_of(const checker *p, int rank, size_t i) {
    return &p->schedules[rank].entries[i];
}

static kolo_status access_element(checker *p, int rank, int owner, kolo_buffer buffer, size_t i,
                                  bool write) {
    if (buffer == KOLO_BUFFER_SUM || !p->schedules[rank].windows) return KOLO_OK;
    access *t = &p->buffers[owner][buffer].accesses[i];
    size_t phase = p->phase[rank];
    bool written = t->writer != NO_RANK && t->write_phase == phase && t->writer != rank;
    bool read = t->reader != NO_RANK && t->read_phase == phase && t->reader != rank;
    if (written || (write && read)) {
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "race: rank %d %s element %zu of buffer %d of rank %d in phase %zu, in "
                         "which another rank %s it",
                         rank, write ? "writes" : "reads", i, (int)buffer, owner, phase,
                         written ? "writes" : "reads");
    }
    if (write) {
        t->writer = rank;
        t->write_phase = phase;
    } else {
        t->reader = read ? SEVERAL : rank;
        t->read_phase = phase;
    }
    return KOLO_OK;
}

static kolo_status check_range(const checker *p, int owner, kolo_buffer buffer, size_t first,
                               size_t count) {
    size_t limit = p->buffers[owner][buffer].count;
    if (first > limit || count > limit - first) {
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "range [%zu, +%zu) outside buffer %d of rank %d, which has %zu elements",
                         first, count, (int)buffer, owner, limit);
    }
    return KOLO_OK;
}

/* A node without a sibling has the value of its parent. */
static uint32_t promote(uint32_t node, int shards) {
    while (node > 1 && node % 2 == 0 && !kolo_tree_has(node + 1, (uint32_t)shards)) node /= 2;
    return node;
}

/* The parent of two nodes, which must be its left and its right child in this order. */
static kolo_status join_nodes(const checker *p, int rank, uint32_t left, uint32_t right,
                              uint32_t *parent) {
    int shards = p->specs[rank].shards;
    uint32_t l = promote(left, shards), r = promote(right, shards);
    if (l % 2 != 0 || r != l + 1) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d reduces node %u with node %u", rank,
                         (unsigned)left, (unsigned)right);
    }
    *parent = promote(l / 2, shards);
    return KOLO_OK;
}

/* Executes an entry of `rank`: copies or reduces elements of `from_rank` to `to_rank`. */
static kolo_status apply(checker *p, int rank, const kolo_entry *e, int to_rank, int from_rank,
                         bool combine) {
    KOLO_TRY(check_range(p, to_rank, e->to, e->to_first, e->count));
    KOLO_TRY(check_range(p, from_rank, e->from, e->from_first, e->count));
    if (e->to == KOLO_BUFFER_INPUT) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d writes the input of rank %d", rank, to_rank);
    }
    int reader = e->kind == KOLO_ENTRY_RECV ? from_rank : rank; /* the sender reads its own data */
    for (size_t i = 0; i < e->count; i++) {
        value *to = &p->buffers[to_rank][e->to].values[e->to_first + i];
        const value *from = &p->buffers[from_rank][e->from].values[e->from_first + i];
        KOLO_TRY(access_element(p, reader, from_rank, e->from, e->from_first + i, false));
        KOLO_TRY(access_element(p, rank, to_rank, e->to, e->to_first + i, true));
        if (combine && (to->element != from->element || !to->ranks || !from->ranks)) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d reduces element %zu with element %zu%s",
                             rank, to->element, from->element,
                             to->ranks && from->ranks ? "" : ", which is uninitialized");
        }
        bool nodes = p->specs[rank].shards > 0; /* of which a rank may have several */
        if (combine && !nodes && (to->ranks & from->ranks)) {
            return KOLO_FAIL(KOLO_ERR_FORMAT,
                             "rank %d reduces a contribution twice into element %zu", rank,
                             to->element);
        }
        if (combine && (to->prescaled != from->prescaled || to->postscaled || from->postscaled)) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d reduces element %zu with different scaling",
                             rank, to->element);
        }
        value moved = *from;
        if (combine) moved.ranks |= to->ranks;
        if (combine && p->specs[rank].shards > 0) {
            KOLO_TRY(join_nodes(p, rank, to->node, from->node, &moved.node));
        }
        *to = moved;
    }
    return KOLO_OK;
}

static kolo_status scale(checker *p, int rank, const kolo_entry *e) {
    KOLO_TRY(check_range(p, rank, e->to, e->to_first, e->count));
    if (e->to == KOLO_BUFFER_INPUT) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d scales its input", rank);
    }
    for (size_t i = 0; i < e->count; i++) {
        value *v = &p->buffers[rank][e->to].values[e->to_first + i];
        KOLO_TRY(access_element(p, rank, rank, e->to, e->to_first + i, true));
        bool *scaled = e->kind == KOLO_ENTRY_PRESCALE ? &v->prescaled : &v->postscaled;
        if (*scaled || !v->ranks ||
            (e->kind == KOLO_ENTRY_PRESCALE && (v->ranks & (v->ranks - 1)))) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d scales element %zu %s", rank, v->element,
                             *scaled ? "twice" : "at the wrong time");
        }
        *scaled = true;
    }
    return KOLO_OK;
}

/* Finds an issued, incomplete entry of `rank` of that kind and peer. */
static bool find_open(const checker *p, int rank, kolo_entry_kind kind, int peer, size_t *index) {
    const kolo_schedule *s = &p->schedules[rank];
    if (p->round[rank] >= s->n_rounds) return false;
    size_t end = kolo_schedule_round_end(s, p->round[rank]);
    for (size_t i = s->rounds[p->round[rank]]; i < end; i++) {
        bool open = p->issued[rank][i] && !p->done[rank][i];
        if (open && s->entries[i].kind == kind && s->entries[i].peer == peer) {
            *index = i;
            return true;
        }
    }
    return false;
}

/* The receiving side of a message: delivers it if the sender has issued its SEND. */
static kolo_status receive(checker *p, int rank, size_t i) {
    const kolo_entry *recv = entry_of(p, rank, i);
    size_t j;
    if (!find_open(p, recv->peer, KOLO_ENTRY_SEND, rank, &j)) return KOLO_OK;
    const kolo_entry *send = entry_of(p, recv->peer, j);
    if (send->count != recv->count) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d sends %zu elements, rank %d receives %zu",
                         recv->peer, send->count, rank, recv->count);
    }
    kolo_entry move = *recv;
    move.from = send->from;
    move.from_first = send->from_first;
    KOLO_TRY(apply(p, rank, &move, rank, recv->peer, false));
    p->started[rank] |= p->started[recv->peer];
    p->done[rank][i] = p->done[recv->peer][j] = true;
    return KOLO_OK;
}

/* A barrier completes when all ranks have reached it; `phase` counts those a rank has reached. */
static void pass_barrier(checker *p, int rank, size_t i, bool *reached) {
    if (!reached[rank]) {
        reached[rank] = true;
        p->phase[rank]++;
    }
    for (int q = 0; q < p->size; q++) {
        if (p->phase[q] < p->phase[rank]) return;
    }
    p->done[rank][i] = true;
    reached[rank] = false;
}

static kolo_status run_entry(checker *p, int rank, size_t i, bool *reached) {
    const kolo_entry *e = entry_of(p, rank, i);
    bool scales = e->kind == KOLO_ENTRY_PRESCALE || e->kind == KOLO_ENTRY_POSTSCALE;
    if (e->kind != KOLO_ENTRY_BARRIER && !scales && (e->peer < 0 || e->peer >= p->size)) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "entry %zu of rank %d: peer %d outside [0, %d)", i, rank,
                         e->peer, p->size);
    }
    p->issued[rank][i] = true;
    switch (e->kind) {
    case KOLO_ENTRY_SEND:
        return KOLO_OK; /* delivered by the receiver */
    case KOLO_ENTRY_RECV:
        return receive(p, rank, i);
    case KOLO_ENTRY_BARRIER:
        pass_barrier(p, rank, i, reached);
        return KOLO_OK;
    case KOLO_ENTRY_REDUCE:
        KOLO_TRY(apply(p, rank, e, rank, rank, true));
        break;
    case KOLO_ENTRY_COPY:
        KOLO_TRY(apply(p, rank, e, rank, rank, false));
        break;
    case KOLO_ENTRY_REDUCE_FROM:
        if (e->to == KOLO_BUFFER_SUM && p->stored[rank]) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d accumulates into a sum that has been stored",
                             rank);
        }
        KOLO_TRY(apply(p, rank, e, rank, e->peer, true));
        break;
    case KOLO_ENTRY_COPY_FROM:
        if (e->to == KOLO_BUFFER_SUM) p->stored[rank] = false;
        KOLO_TRY(apply(p, rank, e, rank, e->peer, false));
        break;
    case KOLO_ENTRY_COPY_TO:
        if (e->from == KOLO_BUFFER_SUM) p->stored[rank] = true;
        KOLO_TRY(apply(p, rank, e, e->peer, rank, false));
        break;
    case KOLO_ENTRY_PRESCALE:
    case KOLO_ENTRY_POSTSCALE:
        KOLO_TRY(scale(p, rank, e));
        break;
    case KOLO_ENTRY_OFFLOADED:
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "collectives of a backend cannot be checked");
    }
    p->done[rank][i] = true;
    return KOLO_OK;
}

/* Runs the incomplete entries of a rank's round; sets `moved` if there was progress. */
static kolo_status run_round(checker *p, int rank, bool *reached, bool *moved) {
    const kolo_schedule *s = &p->schedules[rank];
    size_t end = kolo_schedule_round_end(s, p->round[rank]);
    bool complete = true;
    for (size_t i = s->rounds[p->round[rank]]; i < end; i++) {
        if (p->done[rank][i]) continue;
        bool first = !p->issued[rank][i];
        KOLO_TRY(run_entry(p, rank, i, reached));
        *moved = *moved || first || p->done[rank][i];
        complete = complete && p->done[rank][i];
    }
    if (complete) {
        p->round[rank]++;
        *moved = true;
    }
    return KOLO_OK;
}

/* Runs the local rounds before the announcement, then all others. */
static kolo_status run_all(checker *p) {
    bool reached[RANKS_MAX] = {false}, moved = true, finished = false;
    for (int r = 0; r < p->size; r++) {
        for (size_t i = 0; i < p->schedules[r].prologue; i++) {
            KOLO_TRY(run_round(p, r, reached, &moved));
        }
    }
    for (int r = 0; r < p->size; r++) { /* the announcement acts as a barrier */
        p->phase[r]++;
        p->started[r] = p->schedules[r].windows ? UINT64_MAX >> (64 - p->size) : (uint64_t)1 << r;
    }
    while (moved && !finished) {
        moved = false;
        finished = true;
        for (int r = 0; r < p->size; r++) {
            if (p->round[r] >= p->schedules[r].n_rounds) continue;
            finished = false;
            KOLO_TRY(run_round(p, r, reached, &moved));
        }
    }
    for (int r = 0; r < p->size && !finished; r++) {
        if (p->round[r] < p->schedules[r].n_rounds) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "deadlock: rank %d is stuck in round %zu of %zu", r,
                             p->round[r], p->schedules[r].n_rounds);
        }
    }
    return KOLO_OK;
}

/* The rank that owns element i. */
static int owner_of(const size_t *firsts, size_t i) {
    int rank = 0;
    while (firsts[rank + 1] <= i) rank++;
    return rank;
}

/* The required value of element i of DATA; ranks 0: any. */
static value expected(const checker *p, int rank, size_t i) {
    const kolo_schedule_spec *spec = &p->specs[rank];
    uint64_t all = UINT64_MAX >> (64 - p->size), one = 1;
    value v = {
        .element = i, .ranks = all, .prescaled = spec->prescale, .postscaled = spec->postscale};
    int from;
    if (spec->shards > 0) { /* the root node, with contributions of all ranks that have shards */
        v.node = 1;
        for (int r = 0; r < p->size; r++) {
            if (p->buffers[r][KOLO_BUFFER_INPUT].count == 0) v.ranks &= ~(one << r);
        }
        return v;
    }
    switch (spec->kind) {
    case KOLO_COLLECTIVE_REDUCE_SCATTER:
        if (!spec->in_place) v.element = spec->firsts[rank] + i;
        if (spec->in_place && owner_of(spec->firsts, i) != rank) v.ranks = 0;
        break;
    case KOLO_COLLECTIVE_BROADCAST:
        v.ranks = one << spec->root;
        break;
    case KOLO_COLLECTIVE_SCATTER:
        v.element = spec->firsts[rank] + i;
        v.ranks = one << spec->root;
        break;
    case KOLO_COLLECTIVE_ALLGATHER:
    case KOLO_COLLECTIVE_GATHER:
        v.ranks = one << owner_of(spec->firsts, i);
        break;
    case KOLO_COLLECTIVE_ALLTOALL:
        from = owner_of(spec->output_firsts, i);
        v.element = p->specs[from].firsts[rank] + i - spec->output_firsts[from];
        v.ranks = one << from;
        break;
    default:
        break;
    }
    return v;
}

static kolo_status check_result(const checker *p) {
    uint64_t all = UINT64_MAX >> (64 - p->size);
    for (int r = 0; r < p->size; r++) {
        if (p->specs[r].kind == KOLO_COLLECTIVE_BARRIER && p->started[r] != all) {
            return KOLO_FAIL(KOLO_ERR_FORMAT,
                             "rank %d leaves the barrier before all ranks have reached it", r);
        }
        for (size_t i = 0; i < p->buffers[r][KOLO_BUFFER_DATA].count; i++) {
            const value *v = &p->buffers[r][KOLO_BUFFER_DATA].values[i];
            value want = expected(p, r, i);
            if (!want.ranks ||
                (v->element == want.element && v->ranks == want.ranks && v->node == want.node &&
                 v->prescaled == want.prescaled && v->postscaled == want.postscaled)) {
                continue;
            }
            return KOLO_FAIL(KOLO_ERR_FORMAT,
                             "rank %d ends with contributions %llx of element %zu%s in element "
                             "%zu, expected %llx of %zu%s",
                             r, (unsigned long long)v->ranks, v->element,
                             v->prescaled || v->postscaled ? " (scaled)" : "", i,
                             (unsigned long long)want.ranks, want.element,
                             want.prescaled || want.postscaled ? " (scaled)" : "");
        }
    }
    return KOLO_OK;
}

static kolo_status memory_init(memory *m, size_t count) {
    m->count = count;
    m->values = kolo_zalloc((count ? count : 1) * sizeof *m->values);
    m->accesses = kolo_zalloc((count ? count : 1) * sizeof *m->accesses);
    if (!m->values || !m->accesses) return KOLO_NOMEM(count * sizeof *m->accesses);
    for (size_t i = 0; i < count; i++) m->accesses[i].reader = m->accesses[i].writer = NO_RANK;
    return KOLO_OK;
}

/* Sets the values of a rank's nodes. */
static void set_nodes(checker *p, int rank) {
    const kolo_schedule_spec *spec = &p->specs[rank];
    memory *input = &p->buffers[rank][KOLO_BUFFER_INPUT];
    uint32_t nodes[64];
    kolo_spec_nodes(spec, rank, nodes);
    for (size_t i = 0; i < input->count; i++) {
        input->values[i] = (value){.element = i % spec->count,
                                   .ranks = (uint64_t)1 << rank,
                                   .node = promote(nodes[i / spec->count], spec->shards)};
    }
}

/* Sets the initial values of a rank: INPUT, or in place its part of DATA. */
static void set_input(checker *p, int rank) {
    const kolo_schedule_spec *spec = &p->specs[rank];
    memory *data = &p->buffers[rank][KOLO_BUFFER_DATA],
           *input = &p->buffers[rank][KOLO_BUFFER_INPUT];
    if (spec->shards > 0) {
        set_nodes(p, rank);
        return;
    }
    bool slice = spec->kind == KOLO_COLLECTIVE_ALLGATHER || spec->kind == KOLO_COLLECTIVE_GATHER;
    size_t first = slice ? spec->firsts[rank] : 0;
    for (size_t i = 0; i < input->count; i++) {
        input->values[i] = (value){.element = first + i, .ranks = (uint64_t)1 << rank};
    }
    bool scatter = spec->kind == KOLO_COLLECTIVE_SCATTER;
    bool broadcast = spec->kind == KOLO_COLLECTIVE_BROADCAST;
    if (broadcast ? rank != spec->root : scatter || !spec->in_place) return;
    size_t n = slice && data->count ? spec->firsts[rank + 1] - first : data->count;
    for (size_t i = 0; i < n; i++) {
        data->values[first + i] = (value){.element = first + i, .ranks = (uint64_t)1 << rank};
    }
}

static kolo_status checker_init(checker *p) {
    for (int r = 0; r < p->size; r++) {
        const kolo_schedule *s = &p->schedules[r];
        const kolo_schedule_spec *spec = &p->specs[r];
        size_t longest = 0;
        p->issued[r] = kolo_zalloc(s->n_entries + 1);
        p->done[r] = kolo_zalloc(s->n_entries + 1);
        if (!p->issued[r] || !p->done[r]) return KOLO_NOMEM(s->n_entries);
        for (size_t i = 0; i < s->n_entries; i++) {
            if (s->entries[i].count > longest) longest = s->entries[i].count;
        }
        KOLO_TRY(memory_init(&p->buffers[r][KOLO_BUFFER_DATA], kolo_spec_data(spec)));
        KOLO_TRY(memory_init(&p->buffers[r][KOLO_BUFFER_INPUT], kolo_spec_input(spec)));
        KOLO_TRY(memory_init(&p->buffers[r][KOLO_BUFFER_SCRATCH], s->scratch));
        KOLO_TRY(memory_init(&p->buffers[r][KOLO_BUFFER_SUM], longest));
        set_input(p, r);
    }
    return KOLO_OK;
}

static void checker_fini(checker *p) {
    for (int r = 0; r < p->size; r++) {
        kolo_free(p->issued[r]);
        kolo_free(p->done[r]);
        for (int b = 0; b < KOLO_BUFFERS; b++) {
            kolo_free(p->buffers[r][b].values);
            kolo_free(p->buffers[r][b].accesses);
        }
    }
    kolo_free(p);
}

kolo_status kolo_schedule_check(const kolo_schedule_spec *specs, const kolo_schedule *schedules,
                                int size) {
    if (size < 1 || size > RANKS_MAX) {
        return KOLO_FAIL(KOLO_ERR_ARG, "schedule check of %d ranks: 1 to %d are supported", size,
                         RANKS_MAX);
    }
    checker *p = kolo_zalloc(sizeof *p);
    if (!p) return KOLO_NOMEM(sizeof *p);
    *p = (checker){.specs = specs, .size = size, .schedules = schedules};
    kolo_status status = checker_init(p);
    if (status == KOLO_OK) status = run_all(p);
    if (status == KOLO_OK) status = check_result(p);
    checker_fini(p);
    return status;
}

/* The event loop of the modelled network; see sim.h for the model.
 *
 * A heap holds three kinds of events, ordered by time and then by creation: a rank continues, a
 * message arrives, a link becomes free and carries its next message. A rank issues the entries of a
 * round one by one, and yields at an entry that takes time of its own. At most one message from one
 * rank to another is outstanding (a send completes with its receive), so two tables of ranks by
 * ranks hold the open receives and the messages. */
#include "comm/schedule/sim.h"

#include "base/integer.h"
#include "base/memory.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

enum { RANKS_MOST = 4096 };

#define PS_PER_US 1e6

typedef enum wake_kind { WAKE_RANK, WAKE_START, WAKE_MESSAGE, WAKE_LINK } wake_kind;

typedef struct wake {
    int64_t ps;
    uint64_t order;
    wake_kind kind;
    int rank, peer; /* WAKE_MESSAGE, WAKE_LINK: of the message to rank, from peer */
} wake;

/* A message that waits for its link, is in transit, or has arrived and is not yet received. */
typedef struct message {
    const kolo_entry *send; /* NULL: none */
    int from;
    int64_t latency_ps;
    bool arrived;
    struct message *next; /* that waits for the link */
} message;

typedef struct sim_rank {
    const kolo_schedule *schedule;
    float *data, *scratch; /* NULL: only time is modelled */
    const float *input;
    size_t round;
    size_t next;   /* next entry to issue */
    size_t open;   /* incomplete entries of the round, plus one until all are issued */
    int64_t ps;    /* its clock */
    uint64_t sent; /* messages so far */
    bool done;
} sim_rank;

/* The two directions of a link: the messages that wait to be sent, in the order of sending; when
 * the receiving side becomes free; and the traffic. */
typedef struct sim_link {
    bool sending;
    message *first, *last;
    int64_t in_ps;
    uint64_t out_bytes, in_bytes;
} sim_link;

typedef struct sim {
    kolo_sim_network net;
    int n, hosts;
    sim_rank *ranks;
    sim_link *local, *host;      /* [n], [hosts] */
    message *messages;           /* [to][from] */
    const kolo_entry **receives; /* [to][from]: the open receive of the round */
    wake *heap;
    size_t n_heap, cap_heap;
    uint64_t order;
    kolo_rng jitter;
    kolo_sim_watch watch;
    void *arg;
    kolo_sim_result result;
} sim;

/* ---- the heap ---- */

static bool earlier(const wake *a, const wake *b) {
    return a->ps != b->ps ? a->ps < b->ps : a->order < b->order;
}

static kolo_status push(sim *s, wake w) {
    if (!KOLO_GROW(s->heap, s->n_heap, s->cap_heap)) return KOLO_NOMEM(s->n_heap * sizeof *s->heap);
    w.order = s->order++;
    size_t i = s->n_heap++;
    for (; i > 0 && earlier(&w, &s->heap[(i - 1) / 2]); i = (i - 1) / 2) {
        s->heap[i] = s->heap[(i - 1) / 2];
    }
    s->heap[i] = w;
    return KOLO_OK;
}

static wake pop(sim *s) {
    wake top = s->heap[0], last = s->heap[--s->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < s->n_heap; i = child) {
        if (child + 1 < s->n_heap && earlier(&s->heap[child + 1], &s->heap[child])) child++;
        if (!earlier(&s->heap[child], &last)) break;
        s->heap[i] = s->heap[child];
    }
    s->heap[i] = last;
    return top;
}

/* ---- the model ---- */

static void log_event(sim *s, int64_t ps, kolo_sim_kind kind, int rank, int peer, size_t bytes) {
    kolo_sim_event e = {
        .ps = ps, .kind = (int32_t)kind, .rank = rank, .peer = peer, .bytes = bytes};
    struct {
        uint64_t before;
        kolo_sim_event event;
    } link = {s->result.hash, e};
    s->result.hash = kolo_hash_bytes(&link, sizeof link);
    s->result.events++;
    if (s->watch) s->watch(s->arg, &e);
}

static int64_t transfer_ps(size_t bytes, double gbit_per_s) {
    return (int64_t)llround((double)bytes * 8e3 / gbit_per_s);
}

/* An exponentially distributed random number with mean 1. */
static double exponential(uint64_t seed, uint64_t index, uint64_t i) {
    kolo_rng rng = kolo_rng_make(seed, KOLO_RNG_NETWORK, index);
    return -log(1 - (double)kolo_rng_uniform(&rng, i));
}

static bool same_host(const sim *s, int a, int b) {
    return a / s->net.ranks_per_host == b / s->net.ranks_per_host;
}

/* The link of `rank` that carries its messages to or from `peer`. */
static sim_link *link_to(sim *s, int rank, int peer) {
    return same_host(s, rank, peer) ? &s->local[rank] : &s->host[rank / s->net.ranks_per_host];
}

static int64_t draw_latency_ps(sim *s, int from, int to) {
    double us = same_host(s, from, to) ? s->net.local_latency_us : s->net.latency_us;
    uint64_t number = s->ranks[from].sent++;
    if (s->net.jitter > 0) {
        us *= 1 + s->net.jitter * exponential(s->net.seed, 1 + (uint64_t)from, number);
    }
    return (int64_t)llround(us * PS_PER_US);
}

/* Starts to send a message at `ps`, on a link that is free, once the receiver's link is. */
static kolo_status start_transfer(sim *s, const message *m, int64_t ps) {
    int to = m->send->peer;
    sim_link *out = link_to(s, m->from, to), *in = link_to(s, to, m->from);
    double gbit_per_s = same_host(s, m->from, to) ? s->net.local_gbit_per_s : s->net.gbit_per_s;
    size_t bytes = m->send->count * sizeof(float);
    int64_t start_ps = kolo_max_i64(ps, in->in_ps - m->latency_ps);
    int64_t sent_ps = start_ps + transfer_ps(bytes, gbit_per_s);
    in->in_ps = sent_ps + m->latency_ps;
    out->out_bytes += bytes;
    in->in_bytes += bytes;
    out->sending = true;
    KOLO_TRY(push(s, (wake){.ps = sent_ps, .kind = WAKE_LINK, .rank = to, .peer = m->from}));
    return push(s, (wake){.ps = in->in_ps, .kind = WAKE_MESSAGE, .rank = to, .peer = m->from});
}

/* Sends a message, behind those that wait for the same link. */
static kolo_status enqueue(sim *s, message *m, int64_t ps) {
    sim_link *out = link_to(s, m->from, m->send->peer);
    s->result.messages++;
    if (!out->sending) return start_transfer(s, m, ps);
    if (out->first) {
        out->last->next = m;
    } else {
        out->first = m;
    }
    out->last = m;
    return KOLO_OK;
}

/* Sends the next message on a link that has become free. */
static kolo_status free_link(sim *s, sim_link *out, int64_t ps) {
    const message *m = out->first;
    out->sending = false;
    if (!m) return KOLO_OK;
    out->first = m->next;
    return start_transfer(s, m, ps);
}

/* ---- entries ---- */

static float *location(const sim_rank *r, kolo_buffer buffer, size_t first) {
    if (!r->data) return NULL;
    return (buffer == KOLO_BUFFER_SCRATCH ? r->scratch : r->data) + first;
}

static const float *source(const sim_rank *r, kolo_buffer buffer, size_t first) {
    if (!r->data || buffer != KOLO_BUFFER_INPUT) return location(r, buffer, first);
    return r->input + first;
}

/* Runs an entry without a peer and advances the rank's clock. */
static void run_local(sim *s, sim_rank *r, const kolo_entry *e) {
    float *to = location(r, e->to, e->to_first);
    const float *from = source(r, e->from, e->from_first);
    r->ps += transfer_ps(e->count * sizeof *to, s->net.reduce_gbit_per_s);
    r->open--;
    if (!to || !from) return;
    if (e->kind == KOLO_ENTRY_COPY) {
        memmove(to, from, e->count * sizeof *to);
    } else {
        for (size_t i = 0; i < e->count; i++) to[i] += from[i];
    }
}

/* Runs the entries of a local sweep, into SUM and out of it, in the time of its additions. Returns
 * the number of entries. */
static size_t run_sweep(sim *s, sim_rank *r, const kolo_entry *e, size_t left) {
    size_t n_from = 0, n_to = 0;
    while (n_from < left && e[n_from].to == KOLO_BUFFER_SUM) n_from++;
    while (n_from + n_to < left && e[n_from + n_to].kind == KOLO_ENTRY_COPY_TO) n_to++;
    size_t passes = n_from > 2 ? n_from - 1 : 1;
    r->ps += transfer_ps(passes * e->count * sizeof(float), s->net.reduce_gbit_per_s);
    r->open -= n_from + n_to;
    for (size_t i = 0; r->data && i < e->count; i++) {
        float sum = source(r, e->from, e->from_first)[i];
        for (size_t k = 1; k < n_from; k++) sum += source(r, e[k].from, e[k].from_first)[i];
        for (size_t k = n_from; k < n_from + n_to; k++)
            location(r, e[k].to, e[k].to_first)[i] = sum;
    }
    return n_from + n_to;
}

/* Completes an entry of a rank's round; the last one wakes the rank. */
static kolo_status close_entry(sim *s, int rank, int64_t ps) {
    sim_rank *r = &s->ranks[rank];
    r->ps = kolo_max_i64(r->ps, ps);
    if (--r->open > 0) return KOLO_OK;
    r->round++;
    return push(s, (wake){.ps = r->ps, .rank = rank});
}

/* Delivers an arrived message to an open receive, which completes both sides. */
static kolo_status deliver(sim *s, int to, int from, int64_t ps) {
    size_t at = (size_t)to * (size_t)s->n + (size_t)from;
    const kolo_entry *send = s->messages[at].send, *receive = s->receives[at];
    if (send->count != receive->count) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d sends %zu elements, rank %d receives %zu", from,
                         send->count, to, receive->count);
    }
    float *into = location(&s->ranks[to], receive->to, receive->to_first);
    const float *data = source(&s->ranks[from], send->from, send->from_first);
    if (into && data) memcpy(into, data, send->count * sizeof *into);
    s->messages[at] = (message){0};
    s->receives[at] = NULL;
    log_event(s, ps, KOLO_SIM_TAKE, to, from, send->count * sizeof(float));
    KOLO_TRY(close_entry(s, to, ps));
    return close_entry(s, from, ps);
}

/* Issues the first of `left` entries of the round; a sweep issues several at once. */
static kolo_status issue(sim *s, int rank, const kolo_entry *e, size_t left, size_t *n_issued) {
    sim_rank *r = &s->ranks[rank];
    *n_issued = 1;
    size_t n = (size_t)s->n, own = (size_t)rank, peer = (size_t)e->peer;
    switch (e->kind) {
    case KOLO_ENTRY_SEND: {
        message *m = &s->messages[peer * n + own];
        if (m->send) return KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d sends to %d twice", rank, e->peer);
        *m = (message){.send = e, .from = rank, .latency_ps = draw_latency_ps(s, rank, e->peer)};
        log_event(s, r->ps, KOLO_SIM_SEND, rank, e->peer, e->count * sizeof(float));
        return enqueue(s, m, r->ps);
    }
    case KOLO_ENTRY_RECV:
        s->receives[own * n + peer] = e;
        return s->messages[own * n + peer].arrived ? deliver(s, rank, e->peer, r->ps) : KOLO_OK;
    case KOLO_ENTRY_REDUCE:
    case KOLO_ENTRY_COPY:
        run_local(s, r, e);
        return KOLO_OK;
    case KOLO_ENTRY_COPY_FROM:
        if (e->peer != rank || e->to != KOLO_BUFFER_SUM) break;
        *n_issued = run_sweep(s, r, e, left);
        return KOLO_OK;
    default:
        break;
    }
    return KOLO_FAIL(
        KOLO_ERR_UNSUPPORTED,
        "schedule %s accesses the peers' memory: a modelled network supports messages only",
        r->schedule->row->name);
}

/* Issues entries up to the next one that takes time, or to the end of the round. */
static kolo_status advance(sim *s, int rank, int64_t ps) {
    sim_rank *r = &s->ranks[rank];
    const kolo_schedule *schedule = r->schedule;
    r->ps = kolo_max_i64(r->ps, ps);
    if (r->open == 0) { /* start the next round */
        if (r->round == schedule->n_rounds) {
            r->done = true;
            log_event(s, r->ps, KOLO_SIM_END, rank, rank, 0);
            return KOLO_OK;
        }
        r->next = schedule->rounds[r->round];
        r->open = kolo_schedule_round_end(schedule, r->round) - r->next + 1;
    }
    size_t end = kolo_schedule_round_end(schedule, r->round);
    while (r->next < end) {
        int64_t before_ps = r->ps;
        size_t n;
        KOLO_TRY(issue(s, rank, &schedule->entries[r->next], end - r->next, &n));
        r->next += n;
        if (r->ps > before_ps) return push(s, (wake){.ps = r->ps, .rank = rank});
    }
    return close_entry(s, rank, r->ps);
}

static kolo_status run_events(sim *s) {
    while (s->n_heap > 0) {
        wake w = pop(s);
        if (w.kind == WAKE_LINK) {
            KOLO_TRY(free_link(s, link_to(s, w.peer, w.rank), w.ps));
            continue;
        }
        if (w.kind != WAKE_MESSAGE) {
            if (w.kind == WAKE_START) log_event(s, w.ps, KOLO_SIM_START, w.rank, w.rank, 0);
            KOLO_TRY(advance(s, w.rank, w.ps));
            continue;
        }
        size_t at = (size_t)w.rank * (size_t)s->n + (size_t)w.peer;
        s->messages[at].arrived = true;
        log_event(s, w.ps, KOLO_SIM_ARRIVE, w.rank, w.peer,
                  s->messages[at].send->count * sizeof(float));
        if (s->receives[at]) KOLO_TRY(deliver(s, w.rank, w.peer, w.ps));
    }
    return KOLO_OK;
}

/* ---- a run ---- */

static kolo_status resolve(const kolo_sim_network *network, int ranks, kolo_sim_network *out) {
    kolo_sim_network net = network ? *network : (kolo_sim_network){0};
    if (ranks < 1 || ranks > RANKS_MOST) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a modelled network of %d ranks: 1 to %d are supported",
                         ranks, RANKS_MOST);
    }
    if (!(net.latency_us >= 0 && net.gbit_per_s >= 0 && net.local_latency_us >= 0 &&
          net.local_gbit_per_s >= 0 && net.reduce_gbit_per_s >= 0 && net.jitter >= 0 &&
          net.late_us >= 0) ||
        net.ranks_per_host < 0) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "a modelled network needs latencies, bandwidths and delays >= 0");
    }
    if (net.ranks_per_host == 0) net.ranks_per_host = 1;
    if (net.latency_us == 0) net.latency_us = 5;
    if (net.gbit_per_s == 0) net.gbit_per_s = 100;
    if (net.local_latency_us == 0) net.local_latency_us = 0.5;
    if (net.local_gbit_per_s == 0) net.local_gbit_per_s = 80;
    if (net.reduce_gbit_per_s == 0) net.reduce_gbit_per_s = 80;
    *out = net;
    return KOLO_OK;
}

static kolo_status open_sim(sim *s, const kolo_schedule *schedules, const kolo_sim_data *data) {
    size_t n = (size_t)s->n;
    s->hosts = (s->n + s->net.ranks_per_host - 1) / s->net.ranks_per_host;
    s->ranks = kolo_zalloc(n * sizeof *s->ranks);
    s->local = kolo_zalloc(n * sizeof *s->local);
    s->host = kolo_zalloc((size_t)s->hosts * sizeof *s->host);
    s->messages = kolo_zalloc(n * n * sizeof *s->messages);
    s->receives = kolo_zalloc(n * n * sizeof *s->receives);
    if (!s->ranks || !s->local || !s->host || !s->messages || !s->receives) {
        return KOLO_NOMEM(n * n * sizeof *s->messages);
    }
    for (int r = 0; r < s->n; r++) {
        sim_rank *rank = &s->ranks[r];
        rank->schedule = &schedules[r];
        if (data) {
            size_t bytes = schedules[r].scratch * sizeof(float);
            rank->data = data[r].elements;
            rank->input = data[r].input;
            rank->scratch = kolo_zalloc(bytes ? bytes : 1);
            if (!rank->scratch) return KOLO_NOMEM(bytes);
        }
        double late = s->net.late_us > 0 ? exponential(s->net.seed, 0, (uint64_t)r) : 0;
        int64_t ps = (int64_t)llround(late * s->net.late_us * PS_PER_US);
        KOLO_TRY(push(s, (wake){.ps = ps, .kind = WAKE_START, .rank = r}));
    }
    return KOLO_OK;
}

static kolo_status close_result(sim *s, kolo_sim_result *result) {
    int64_t end_ps = 0;
    for (int r = 0; r < s->n; r++) {
        if (!s->ranks[r].done) {
            return KOLO_FAIL(
                KOLO_ERR_FORMAT, "deadlock: rank %d of schedule %s is stuck in round %zu of %zu", r,
                s->ranks[r].schedule->row->name, s->ranks[r].round, s->ranks[r].schedule->n_rounds);
        }
        end_ps = kolo_max_i64(end_ps, s->ranks[r].ps);
    }
    for (int h = 0; h < s->hosts; h++) {
        const sim_link *link = &s->host[h];
        uint64_t most = link->out_bytes > link->in_bytes ? link->out_bytes : link->in_bytes;
        if (most > s->result.bytes_most) s->result.bytes_most = most;
    }
    s->result.us = (double)end_ps / PS_PER_US;
    s->result.rounds = s->ranks[0].schedule->n_rounds;
    *result = s->result;
    return KOLO_OK;
}

kolo_status kolo_sim_run(const kolo_sim_network *network, const kolo_schedule *schedules, int ranks,
                         const kolo_sim_data *data, kolo_sim_watch watch, void *arg,
                         kolo_sim_result *result) {
    sim s = {.n = ranks, .watch = watch, .arg = arg};
    KOLO_TRY(resolve(network, ranks, &s.net));
    kolo_status status = open_sim(&s, schedules, data);
    if (status == KOLO_OK) status = run_events(&s);
    if (status == KOLO_OK) status = close_result(&s, result);
    for (int r = 0; s.ranks && r < ranks; r++) kolo_free(s.ranks[r].scratch);
    kolo_free(s.ranks);
    kolo_free(s.local);
    kolo_free(s.host);
    kolo_free(s.messages);
    kolo_free(s.receives);
    kolo_free(s.heap);
    return status;
}

/* ---- allreduce ---- */

enum {
    CHUNK_BYTES = 256 << 10,
    ALIGN_BYTES = 64,
    DATA_MOST = 1 << 26,
    SHARDS_MOST = 1 << 16,
    SAMPLE_RANKS = 16
};

typedef struct allreduce {
    kolo_sim_network network;
    int ranks, shards;
    size_t count;
    const kolo_algorithm_row *row;
    int *hosts;                /* [ranks] */
    kolo_schedule *schedules;  /* [ranks] */
    kolo_schedule_spec *specs; /* [ranks] */
} allreduce;

static kolo_status find_row(allreduce *a, kolo_algorithm algorithm) {
    if (algorithm == KOLO_ALGORITHM_AUTO) algorithm = KOLO_ALGORITHM_RING;
    kolo_algorithm row = a->shards > 0 ? KOLO_ALGORITHM_REPRODUCIBLE : algorithm;
    a->row = kolo_algorithm_find(KOLO_COLLECTIVE_ALLREDUCE, row, KOLO_VARIANT_MESSAGES);
    if (a->row) return KOLO_OK;
    return KOLO_FAIL(
        KOLO_ERR_UNSUPPORTED,
        "algorithm %s accesses the peers' memory: a modelled network supports messages only",
        kolo_algorithm_name(algorithm));
}

static kolo_status alloc_ranks(allreduce *a) {
    size_t n = (size_t)a->ranks;
    a->hosts = kolo_zalloc(n * sizeof *a->hosts);
    a->schedules = kolo_zalloc(n * sizeof *a->schedules);
    a->specs = kolo_zalloc(n * sizeof *a->specs);
    if (!a->hosts || !a->schedules || !a->specs) return KOLO_NOMEM(n * sizeof *a->specs);
    for (int r = 0; r < a->ranks; r++) a->hosts[r] = r / a->network.ranks_per_host;
    return KOLO_OK;
}

static kolo_status build_schedule(allreduce *a, int rank) {
    a->specs[rank] = (kolo_schedule_spec){
        .kind = KOLO_COLLECTIVE_ALLREDUCE,
        .rank = rank,
        .size = a->ranks,
        .shards = a->shards,
        .in_place = a->shards == 0,
        .count = a->count,
        .hosts = a->hosts,
        .chunk = CHUNK_BYTES / sizeof(float),
        .align = ALIGN_BYTES / sizeof(float),
    };
    return kolo_schedule_build(a->row, &a->specs[rank], &a->schedules[rank]);
}

/* Small integers, whose sums are exact in any order. */
static float value_of(size_t contribution, size_t i) { return (float)(contribution % 8 + i % 16); }

/* Shard s (without shards: rank s) contributes value_of(s, i); a node is the sum of its shards. */
static void fill_nodes(const allreduce *a, int rank, float *input) {
    uint32_t nodes[64];
    int n = kolo_tree_nodes(a->shards, a->ranks, rank, nodes);
    for (int k = 0; k < n; k++) {
        uint32_t first, end;
        kolo_tree_span(nodes[k], (uint32_t)a->shards, &first, &end);
        for (size_t i = 0; i < a->count; i++) {
            float sum = 0;
            for (uint32_t s = first; s < end; s++) sum += value_of(s, i);
            input[(size_t)k * a->count + i] = sum;
        }
    }
}

static kolo_status check_sums(const allreduce *a, const kolo_sim_data *data) {
    size_t n = (size_t)(a->shards > 0 ? a->shards : a->ranks), of_all = 0;
    for (size_t s = 0; s < n; s++) of_all += s % 8;
    for (int r = 0; r < a->ranks; r++) {
        for (size_t i = 0; i < a->count; i++) {
            float want = (float)(of_all + n * (i % 16));
            if (data[r].elements[i] == want) continue;
            return KOLO_FAIL(KOLO_ERR_FORMAT, "element %zu of rank %d is %g, expected %g", i, r,
                             (double)data[r].elements[i], (double)want);
        }
    }
    return KOLO_OK;
}

static kolo_status run_with_data(const allreduce *a, kolo_sim_result *result) {
    size_t total =
        a->count * (size_t)(a->ranks + a->shards); /* there are at most as many nodes as shards */
    float *all = kolo_zalloc((total + 1) * sizeof *all), *next = all;
    kolo_sim_data *data = kolo_alloc((size_t)a->ranks * sizeof *data);
    kolo_status status = KOLO_OK;
    if (!all || !data) status = KOLO_NOMEM(total * sizeof *all);
    for (int r = 0; status == KOLO_OK && r < a->ranks; r++) {
        data[r] = (kolo_sim_data){.elements = next, .input = next + a->count};
        if (a->shards > 0) fill_nodes(a, r, next + a->count);
        for (size_t i = 0; a->shards == 0 && i < a->count; i++) next[i] = value_of((size_t)r, i);
        next += a->count + kolo_spec_input(&a->specs[r]);
    }
    if (status == KOLO_OK) {
        status = kolo_sim_run(&a->network, a->schedules, a->ranks, data, NULL, NULL, result);
    }
    if (status == KOLO_OK) status = check_sums(a, data);
    kolo_free(data);
    kolo_free(all);
    return status;
}

static kolo_status run_allreduce(allreduce *a, kolo_sim_result *result) {
    for (int r = 0; r < a->ranks; r++) KOLO_TRY(build_schedule(a, r));
    size_t parts = (size_t)a->ranks + (size_t)a->shards;
    if (a->count <= DATA_MOST / parts) return run_with_data(a, result);
    return kolo_sim_run(&a->network, a->schedules, a->ranks, NULL, NULL, NULL, result);
}

static kolo_status open_allreduce(allreduce *a, const kolo_sim_network *network, int ranks,
                                  size_t count, kolo_algorithm algorithm, int shards) {
    *a = (allreduce){.ranks = ranks, .shards = shards, .count = count};
    KOLO_TRY(resolve(network, ranks, &a->network));
    if (shards < 0 || shards > SHARDS_MOST) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%d shards: an allreduce supports 0 to %d", shards,
                         SHARDS_MOST);
    }
    KOLO_TRY(find_row(a, algorithm));
    return alloc_ranks(a);
}

static void close_allreduce(allreduce *a) {
    for (int i = 0; a->schedules && i < a->ranks; i++) kolo_schedule_fini(&a->schedules[i]);
    kolo_free(a->schedules);
    kolo_free(a->specs);
    kolo_free(a->hosts);
}

kolo_status kolo_sim_allreduce(const kolo_sim_network *network, int ranks, size_t count,
                               kolo_algorithm algorithm, int shards, kolo_sim_result *result) {
    allreduce a;
    kolo_sim_result r = {0};
    kolo_status status = open_allreduce(&a, network, ranks, count, algorithm, shards);
    if (status == KOLO_OK) status = run_allreduce(&a, &r);
    close_allreduce(&a);
    if (status == KOLO_OK) *result = r;
    return status;
}

static uint64_t count_sends(const kolo_schedule *s) {
    uint64_t n = 0;
    for (size_t i = 0; i < s->n_entries; i++) n += s->entries[i].kind == KOLO_ENTRY_SEND;
    return n;
}

kolo_status kolo_sim_messages(const kolo_sim_network *network, int ranks, size_t count,
                              kolo_algorithm algorithm, int shards, uint64_t *messages) {
    allreduce a;
    kolo_status status = open_allreduce(&a, network, ranks, count, algorithm, shards);
    int step = ranks / SAMPLE_RANKS | 1; /* odd: even ranks of a tree send more */
    uint64_t sends = 0, built = 0;
    for (int r = 0; r < ranks && status == KOLO_OK; r += step, built++) {
        status = build_schedule(&a, r);
        if (status != KOLO_OK) break;
        sends += count_sends(&a.schedules[r]);
        kolo_schedule_fini(&a.schedules[r]);
    }
    close_allreduce(&a);
    if (status == KOLO_OK) *messages = sends * (uint64_t)ranks / built;
    return status;
}

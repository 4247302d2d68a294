#include "comm/sync/parameters_replica.h"

#include "base/memory.h"
#include "base/status.h"
#include "comm/transport/transport.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* Requests of a client that have no answer: the parts of a push, and others such as the push, a
 * read and a lease; one more would be an error of the program. Of each there may be a loss, too. */
enum { OPEN_MOST = KOLO_PUSH_PARTS_MOST + 8 };

/* Kinds between servers. */
enum { COPY = 100, LOSS };

/* What a leader is about to take: a request, or the loss of a worker. */
typedef struct entry {
    kolo_service_call *call; /* NULL: a loss, which is in `losses` */
    int client;
    kolo_service_request copy;
    bool used;
    bool sent; /* the copy; else the leader takes it once it is the first */
} entry;

/* A request that a follower takes, which it may keep. */
typedef struct replayed {
    kolo_service_call call; /* first */
    bool kept;
} replayed;

typedef struct loss {
    bool lost, left;
    char reason[KOLO_REPORT_BYTES];
} loss;

struct kolo_replicas {
    kolo_replicas_opts opts;
    _Atomic(void *) service; /* arg of the channel; release by connect, acquire by `serve` */
    int leads, follows;      /* parts */
    /* The part that this server leads. */
    bool followed;  /* its follower is not known to be lost */
    bool taking;    /* an entry: a reply may detect a loss, whose entry comes after it */
    entry *entries; /* [n_entries] */
    int n_entries;
    int *queue; /* [n_entries]: entries that are not acknowledged, in their order */
    int n_queue;
    /* The part that it follows. */
    bool taken_over;
    replayed *replayed; /* [clients][kinds] */
    char *pushes;       /* [n_workers][push_stride]: that are kept; NULL: none are */
    size_t push_stride;
    kolo_service_call **held; /* [n_entries]: requests of workers, until it leads; as they came */
    int n_held;
    loss *losses; /* [n_workers]: seen by this server */
};

typedef kolo_replicas replicas;
typedef kolo_replicas_opts replicas_opts;

int kolo_replicas_follower(int part, int servers) { return (part + 1) % servers; }
int kolo_replicas_followed(int server, int servers) { return (server + servers - 1) % servers; }

/* Bits 0 to 7: the kind; to 23: the part; then, of a copy, the kind of the request. */
uint32_t kolo_replicas_kind(uint32_t kind, int part) { return kind | (uint32_t)part << 8; }
static uint32_t kind_of(uint32_t kind) { return kind & 0xff; }
static int part_of(uint32_t kind) { return (int)(kind >> 8 & 0xffff); }
static uint32_t copied_kind(uint32_t kind) { return kind >> 24; }

static int rank_of(const replicas *r, int server) { return r->opts.workers + server; }

/* Ranks, and those who may join. */
static int clients_of(const replicas_opts *o) { return o->ranks + o->joins; }
static int workers_of(const replicas_opts *o) { return o->workers + o->joins; }

/* The worker that a client is, and the client that a worker is; -1: it is none. */
static int worker_of(const replicas *r, int client) {
    if (client >= r->opts.ranks) return client - r->opts.servers;
    return client < r->opts.workers ? client : -1;
}
static int client_of(const replicas *r, int worker) {
    return worker < r->opts.workers ? worker : worker + r->opts.servers;
}

static kolo_service_call *take_first(kolo_service_call **list, int *n) {
    kolo_service_call *first = list[0];
    memmove((void *)list, (void *)(list + 1), (size_t)-- * n * sizeof *list);
    return first;
}

static void refuse(const replicas *r, kolo_service_call *call, const char *why) {
    r->opts.channel.reply(call, KOLO_FAIL(KOLO_ERR_ARG, "%s", why), 0, NULL, 0);
}

/* ---- the leader ---- */

/* Takes the first entry. Before that it is removed: a reply may detect the loss of a worker. */
static void take_entry(replicas *r) {
    entry *e = &r->entries[r->queue[0]];
    memmove(r->queue, r->queue + 1, (size_t)--r->n_queue * sizeof *r->queue);
    if (e->call) {
        r->opts.of->serve(r->opts.leader, e->call);
    } else {
        const loss *l = &r->losses[worker_of(r, e->client)];
        r->opts.of->lost(r->opts.leader, e->client, l->left, l->reason);
    }
    e->used = false;
}

/* Takes the entries whose copies are complete: acknowledged, or failed since the follower is lost;
 * until then the channel may read their input. */
void kolo_replicas_completed(void *arg) {
    replicas *r = arg;
    const kolo_owner_channel *channel = &r->opts.channel;
    void *service = atomic_load_explicit(&r->service, memory_order_acquire);
    if (r->taking) return;
    r->taking = true;
    while (r->n_queue > 0) {
        entry *e = &r->entries[r->queue[0]];
        if (e->sent && !channel->test(service, &e->copy)) break;
        if (e->sent && channel->wait(service, &e->copy) != KOLO_OK) r->followed = false;
        take_entry(r);
    }
    r->taking = false;
}

static entry *find_entry(const replicas *r) {
    for (int i = 0; i < r->n_entries; i++) {
        if (!r->entries[i].used) return &r->entries[i];
    }
    return NULL;
}

/* Adds an entry behind the others. */
static void queue_entry(replicas *r, entry *e) {
    e->used = true;
    e->sent = false;
    r->queue[r->n_queue++] = (int)(e - r->entries);
}

/* The same, and sends it to the follower. There is no service yet if a worker leaves while it is
 * created, which then fails on all ranks. */
static void copy_entry(replicas *r, entry *e, uint32_t kind, uint64_t key, const void *input,
                       size_t bytes) {
    const int follower = kolo_replicas_follower(r->leads, r->opts.servers);
    void *service = atomic_load_explicit(&r->service, memory_order_acquire);
    queue_entry(r, e);
    e->copy = (kolo_service_request){
        .server = rank_of(r, follower),
        .name = "a copy of a request",
        .kind = kolo_replicas_kind(COPY, r->leads) | kind << 24,
        .key = (uint64_t)e->client << 32 | (uint32_t)key,
        .clock = e->call ? e->call->clock : 0,
        .input = input,
        .input_bytes = bytes,
    };
    e->sent = r->followed && service && r->opts.channel.start(service, &e->copy) == KOLO_OK;
    if (!e->sent) r->followed = false;
    kolo_replicas_completed(r);
}

static void lead(replicas *r, kolo_service_call *call) {
    const bool copies = r->followed && r->opts.of->changes(r->opts.leader, call);
    if (r->n_queue == 0 && !copies) {
        r->opts.of->serve(r->opts.leader, call);
        return;
    }
    int open = 0;
    for (int i = 0; i < r->n_queue; i++) {
        const entry *e = &r->entries[r->queue[i]];
        open += e->call && e->client == call->client;
    }
    entry *e = open < OPEN_MOST ? find_entry(r) : NULL;
    if (!e) {
        refuse(r, call, "too many requests without an answer");
        return;
    }
    e->call = call;
    e->client = call->client;
    if (copies) {
        copy_entry(r, e, call->kind, call->key, call->input, call->input_bytes);
    } else {
        queue_entry(r, e); /* behind what its worker has asked before */
    }
}

static void lead_without(replicas *r, int client, const loss *l) {
    entry *e = find_entry(r);
    KOLO_ASSERT(e); /* there is one for the loss of each worker */
    e->call = NULL;
    e->client = client;
    copy_entry(r, e, LOSS, l->left, l->reason, strlen(l->reason));
}

/* ---- the follower ---- */

void kolo_replicas_reply(kolo_service_call *call, kolo_status status, uint64_t clock,
                         const void *data, size_t bytes) {
    ((replayed *)(void *)call)->kept = false;
    (void)status, (void)clock, (void)data, (void)bytes; /* the leader answers */
}

/* Takes what the leader is about to take. */
static void follow(replicas *r, kolo_service_call *copy) {
    const uint32_t kind = copied_kind(copy->kind);
    const int client = (int)(copy->key >> 32);
    const bool loses = kind == LOSS, asks = kind < r->opts.of->kinds;
    const bool right = client >= 0 && client < clients_of(&r->opts) && !r->taken_over &&
                       (asks || (loses && worker_of(r, client) >= 0)) &&
                       copy->client == rank_of(r, r->follows) && part_of(copy->kind) == r->follows;
    if (!right) {
        refuse(r, copy, "a copy of a request from a server that does not lead");
        return;
    }
    if (loses) {
        char reason[KOLO_REPORT_BYTES];
        const int n = copy->input_bytes < sizeof reason ? (int)copy->input_bytes : 0;
        snprintf(reason, sizeof reason, "%.*s", n, n > 0 ? (const char *)copy->input : "");
        r->opts.of->lost(r->opts.follower, client, copy->key & 1, reason);
    } else {
        replayed other, *e = &r->replayed[(uint32_t)client * r->opts.of->kinds + kind];
        const void *input = copy->input;
        if (e->kept) e = &other; /* the owner refuses a second one */
        const int worker = worker_of(r, client);
        if (kind == r->opts.of->push && r->pushes && copy->input_bytes <= r->opts.push_bytes &&
            e != &other && worker >= 0) {
            char *own = r->pushes + (size_t)worker * r->push_stride;
            if (copy->input_bytes > 0) memcpy(own, input, copy->input_bytes);
            input = own;
        }
        *e = (replayed){
            .call = {.client = client,
                     .kind = kind,
                     .key = copy->key & UINT32_MAX,
                     .clock = copy->clock,
                     .input = input,
                     .input_bytes = copy->input_bytes,
                     .output_bytes = r->opts.of->room(r->opts.follower, kind)},
            .kept = true,
        };
        r->opts.of->serve(r->opts.follower, &e->call);
    }
    r->opts.channel.reply(copy, KOLO_OK, 0, NULL, 0);
}

/* A worker has seen the loss of the leader before this server has. */
static void hold(replicas *r, kolo_service_call *call) {
    int open = 0;
    for (int i = 0; i < r->n_held; i++) open += r->held[i]->client == call->client;
    if (open < OPEN_MOST) {
        r->held[r->n_held++] = call;
    } else {
        refuse(r, call, "too many requests without an answer");
    }
}

/* The client's calls get replies, which only free them. */
static void drop_held(replicas *r, int client) {
    int n = 0;
    for (int i = 0; i < r->n_held; i++) {
        if (r->held[i]->client == client) {
            r->opts.channel.reply(r->held[i], KOLO_OK, 0, NULL, 0);
        } else {
            r->held[n++] = r->held[i];
        }
    }
    r->n_held = n;
}

static void take_over(replicas *r) {
    r->taken_over = true;
    r->opts.of->lead(r->opts.follower);
    r->opts.of->set_reply(r->opts.follower, r->opts.channel.reply);
    for (int w = 0; w < workers_of(&r->opts); w++) {
        const loss *l = &r->losses[w];
        if (!l->lost) continue;
        r->opts.of->lost(r->opts.follower, client_of(r, w), l->left, l->reason);
    }
    while (r->n_held > 0) {
        r->opts.of->serve(r->opts.follower, take_first(r->held, &r->n_held));
    }
}

/* ---- both ---- */

void kolo_replicas_serve(void *arg, kolo_service_call *call) {
    replicas *r = arg;
    const uint32_t kind = kind_of(call->kind);
    const int part = part_of(call->kind);
    if (kind == COPY) {
        follow(r, call);
        return;
    }
    call->kind = kind;
    if (part == r->leads) {
        lead(r, call);
    } else if (part != r->follows) {
        refuse(r, call, "a request for a part that this server does not have");
    } else if (r->taken_over) {
        r->opts.of->serve(r->opts.follower, call);
    } else {
        hold(r, call);
    }
}

void kolo_replicas_lost(void *arg, int client, bool left, const char *reason) {
    replicas *r = arg;
    const int follower = kolo_replicas_follower(r->leads, r->opts.servers);
    const int worker = worker_of(r, client);
    if (worker >= 0) {
        loss *l = &r->losses[worker];
        *l = (loss){.lost = true, .left = left};
        snprintf(l->reason, sizeof l->reason, "%s", reason);
        lead_without(r, client, l);
        if (r->taken_over) r->opts.of->lost(r->opts.follower, client, left, reason);
        drop_held(r, client); /* while it takes over, too */
    }
    if (client == rank_of(r, follower)) r->followed = false;
    if (client == rank_of(r, r->follows) && !r->taken_over) take_over(r);
}

void kolo_replicas_connect(replicas *r, void *arg) {
    atomic_store_explicit(&r->service, arg, memory_order_release);
}

void kolo_replicas_destroy(replicas *r) {
    if (!r) return;
    kolo_free(r->entries);
    kolo_free(r->queue);
    kolo_free(r->replayed);
    kolo_free(r->pushes);
    kolo_free((void *)r->held);
    kolo_free(r->losses);
    kolo_free(r);
}

/* ---- owners of parameters ---- */

static bool changes_parameters(const void *owner, const kolo_service_call *call) {
    const bool reads = call->kind == KOLO_OWNER_STATE || call->kind == KOLO_OWNER_SUM;
    return !reads && kolo_parameters_owner_fits(owner, call);
}

static size_t room_of_parameters(const void *owner, uint32_t kind) {
    return kolo_parameters_owner_room(owner, kind);
}

static void lead_parameters(void *owner) { kolo_parameters_owner_lead(owner); }

static void set_reply_of_parameters(void *owner, kolo_owner_reply *reply) {
    kolo_parameters_owner_set_reply(owner, reply);
}

const kolo_replicated kolo_replicated_parameters = {
    .kinds = KOLO_OWNER_KINDS,
    .push = KOLO_OWNER_PUSH,
    .changes = changes_parameters,
    .serve = kolo_parameters_owner_serve,
    .lost = kolo_parameters_owner_lost,
    .room = room_of_parameters,
    .lead = lead_parameters,
    .set_reply = set_reply_of_parameters,
};

kolo_status kolo_replicas_create(const kolo_replicas_opts *opts, replicas **made) {
    const size_t clients = (size_t)clients_of(opts), workers = (size_t)workers_of(opts);
    enum { LINE = 64 };
    const size_t open = clients * OPEN_MOST + workers;
    const size_t stride = (opts->push_bytes + LINE - 1) / LINE * LINE;
    replicas *r = kolo_zalloc(sizeof *r);
    if (!r) return KOLO_NOMEM(sizeof *r);
    r->opts = *opts;
    r->leads = opts->index;
    r->follows = kolo_replicas_followed(opts->index, opts->servers);
    r->followed = true;
    r->n_entries = (int)open;
    r->push_stride = stride;
    const size_t bytes = opts->keeps ? workers * stride + 1 : 0;
    r->entries = kolo_zalloc(open * sizeof *r->entries);
    r->queue = kolo_alloc(open * sizeof *r->queue);
    r->replayed = kolo_zalloc(clients * opts->of->kinds * sizeof *r->replayed);
    r->pushes = opts->keeps ? kolo_alloc(bytes) : NULL;
    r->held = kolo_alloc(open * sizeof *r->held);
    r->losses = kolo_zalloc(workers * sizeof *r->losses);
    if (r->entries && r->queue && r->replayed && (r->pushes || !opts->keeps) && r->held &&
        r->losses) {
        *made = r;
        return KOLO_OK;
    }
    kolo_replicas_destroy(r);
    return KOLO_NOMEM(open * sizeof *r->entries + bytes);
}

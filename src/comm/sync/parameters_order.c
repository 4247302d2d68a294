#include "comm/sync/parameters_order.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"

#include <string.h>

/* Of a client: its push, its read and a lease; one more would be an error of the program. */
enum { EARLY = 5, MOST_BYTES = 1 << 30 };

/* The file: this, and the worker of each request. */
typedef struct header {
    char name[8];
    uint32_t workers, owners, index; /* index: of this owner */
    int32_t staleness, drop;
    uint16_t leases, lost; /* lost: any worker */
    uint64_t update_hash;
    uint64_t count, hash; /* of the requests */
} header;

static const char name[8] = {'k', 'o', 'l', 'o', 'o', 'r', 'd', '4'};

/* Requests of a client that wait for their turn, in their order. */
typedef struct early {
    kolo_service_call *call[EARLY];
    int n;
} early;

struct kolo_order {
    kolo_order_opts opts;
    bool records;           /* otherwise it is a replay */
    kolo_file_writer *file; /* of a record, until it is written */
    bool lost;
    uint16_t *worker; /* of each request */
    size_t count, capacity, next;
    early *early; /* [workers]; of a replay */
    char *data;   /* the file of a replay */
    bool failed;  /* no memory */
    bool ends;    /* a worker is lost whose requests a replay needs: it cannot go on */
};

/* ---- record ---- */

static void record(kolo_order *r, int client) {
    if (!r->failed && !KOLO_GROW(r->worker, r->count, r->capacity)) r->failed = true;
    if (!r->failed) r->worker[r->count++] = (uint16_t)client;
}

/* What a replay must have in common with the record. */
static header header_of(const kolo_order_opts *o) {
    header h = {.workers = (uint32_t)o->workers,
                .owners = (uint32_t)o->owners,
                .index = (uint32_t)o->index,
                .staleness = o->staleness,
                .drop = o->drop,
                .leases = o->leases,
                .update_hash = o->update_hash};
    memcpy(h.name, name, sizeof name);
    return h;
}

/* An earlier record is kept. */
static kolo_status open_record(kolo_order *r) {
    const char *path = r->opts.record;
    if (kolo_file_exists(path)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s exists: remove it, or record in another file", path);
    }
    return kolo_file_create(path, &r->file);
}

static kolo_status write(kolo_order *r) {
    const size_t bytes = r->count * sizeof *r->worker;
    header h = header_of(&r->opts);
    if (r->failed) return KOLO_NOMEM(bytes);
    h.lost = r->lost;
    h.count = r->count;
    h.hash = kolo_hash_bytes(r->worker, bytes);
    KOLO_TRY(kolo_file_append(r->file, &h, sizeof h));
    if (bytes > 0) KOLO_TRY(kolo_file_append(r->file, r->worker, bytes));
    kolo_status status = kolo_file_commit(r->file);
    r->file = NULL;
    return status;
}

/* ---- replay ---- */

static kolo_status fail_damaged(const char *path) {
    return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: no record of a run, or a damaged one: record it again",
                     path);
}

/* Whether a record is of a run like this one. */
static kolo_status check_header(const kolo_order_opts *o, const header *h) {
    const char *path = o->replay;
    if ((int)h->workers != o->workers || (int)h->owners != o->owners) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s is of a run with %u workers and %u owners of parameters, not %d and "
                         "%d: start as many",
                         path, h->workers, h->owners, o->workers, o->owners);
    }
    if ((int)h->index != o->index) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s is of server %u, not %d: rename the files back", path,
                         h->index, o->index);
    }
    if (h->staleness != o->staleness || h->drop != o->drop || h->leases != o->leases ||
        h->update_hash != o->update_hash) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s is of a run with another --consistency: use that", path);
    }
    if (!h->lost) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, "%s is of a run that lost a worker: it cannot be replayed",
                     path);
}

static kolo_status read(kolo_order *r) {
    const char *path = r->opts.replay;
    size_t bytes;
    header h;
    KOLO_TRY(kolo_file_read(path, MOST_BYTES, &r->data, &bytes));
    bool right = bytes >= sizeof h;
    if (right) memcpy(&h, r->data, sizeof h);
    right = right && memcmp(h.name, name, sizeof name) == 0 &&
            h.count == (bytes - sizeof h) / sizeof *r->worker &&
            h.hash == kolo_hash_bytes(r->data + sizeof h, bytes - sizeof h);
    if (!right) return fail_damaged(path);
    KOLO_TRY(check_header(&r->opts, &h));
    r->count = (size_t)h.count;
    r->worker = kolo_alloc((r->count + 1) * sizeof *r->worker);
    if (!r->worker) return KOLO_NOMEM(bytes);
    if (r->count > 0) memcpy(r->worker, r->data + sizeof h, r->count * sizeof *r->worker);
    for (size_t i = 0; i < r->count; i++) {
        if (r->worker[i] >= r->opts.workers) return fail_damaged(path);
    }
    return KOLO_OK;
}

static void refuse(const kolo_order *r, kolo_service_call *call) {
    kolo_status status =
        KOLO_FAIL(KOLO_ERR_ARG,
                  "worker %d makes another request than in the recorded run: replay it "
                  "with the same options, such as --epochs and --steps",
                  call->client);
    r->opts.reply(call, status, 0, NULL, 0);
}

/* Removes the first of the calls that wait. Before the reply: one that fails ends its client. */
static kolo_service_call *take(early *e) {
    kolo_service_call *call = e->call[0];
    memmove(e->call, e->call + 1, (size_t)--e->n * sizeof e->call[0]);
    return call;
}

/* The owner takes the requests whose turn it is. */
static void replay(kolo_order *r) {
    while (r->next < r->count) {
        early *e = &r->early[r->worker[r->next]];
        if (e->n == 0) return;
        r->next++;
        kolo_parameters_owner_serve(r->opts.owner, take(e));
    }
}

static bool is_needed(const kolo_order *r, int client) {
    for (size_t i = r->next; i < r->count && !r->records; i++) {
        if (r->worker[i] == client) return true;
    }
    return false;
}

/* The owner takes all requests that wait, in any order. */
static void release(const kolo_order *r) {
    for (int w = 0; w < r->opts.workers; w++) {
        early *e = &r->early[w];
        while (e->n > 0) kolo_parameters_owner_serve(r->opts.owner, take(e));
    }
}

/* ---- both ---- */

void kolo_order_serve(void *arg, kolo_service_call *call) {
    kolo_order *r = arg;
    if (call->client >= r->opts.workers) { /* the owner refuses it */
        kolo_parameters_owner_serve(r->opts.owner, call);
    } else if (call->kind == KOLO_OWNER_PART) {
        kolo_parameters_owner_serve(r->opts.owner, call); /* the push of a part is in the order */
    } else if (r->records) {
        record(r, call->client);
        kolo_parameters_owner_serve(r->opts.owner, call);
    } else {
        early *e = &r->early[call->client];
        const bool reads = r->next == r->count && call->kind != KOLO_OWNER_PUSH;
        if (reads || r->ends) {
            kolo_parameters_owner_serve(r->opts.owner, call);
        } else if (r->next == r->count || e->n == EARLY) {
            refuse(r, call);
        } else {
            e->call[e->n++] = call;
            replay(r);
        }
    }
}

void kolo_order_lost(void *arg, int client, bool left, const char *reason) {
    kolo_order *r = arg;
    early *e = client < r->opts.workers ? &r->early[client] : NULL;
    r->lost |= !left;
    /* The connection is closed: a reply only frees the call. */
    while (e && e->n > 0) r->opts.reply(take(e), KOLO_OK, 0, NULL, 0);
    r->ends |= is_needed(r, client);
    kolo_parameters_owner_lost(r->opts.owner, client, left, reason);
    if (r->ends) release(r);
}

kolo_status kolo_order_finish(kolo_order *r) {
    if (r->records) return write(r);
    if (r->next == r->count) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "%zu of %zu recorded requests were not made: replay a run with the same "
                     "options, such as --epochs and --steps",
                     r->count - r->next, r->count);
}

void kolo_order_destroy(kolo_order *r) {
    if (!r) return;
    kolo_file_abandon(r->file);
    kolo_free(r->worker);
    kolo_free(r->early);
    kolo_free(r->data);
    kolo_free(r);
}

kolo_status kolo_order_create(const kolo_order_opts *opts, kolo_order **order) {
    kolo_order *r = kolo_zalloc(sizeof *r);
    if (!r) return KOLO_NOMEM(sizeof *r);
    *r = (kolo_order){.opts = *opts, .records = opts->record != NULL};
    const size_t bytes = (size_t)opts->workers * sizeof *r->early;
    r->early = kolo_zalloc(bytes);
    kolo_status status = r->early ? KOLO_OK : KOLO_NOMEM(bytes);
    if (status == KOLO_OK) status = r->records ? open_record(r) : read(r);
    r->opts.record = r->opts.replay = NULL; /* of the caller */
    if (status != KOLO_OK) {
        kolo_order_destroy(r);
        return status;
    }
    *order = r;
    return KOLO_OK;
}

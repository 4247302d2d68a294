#include "comm/table/table_owner.h"

#include "base/memory.h"
#include "comm/table/id_batch.h"
#include "comm/table/row_copy.h"
#include "comm/transport/transport.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* A worker, as an owner sees it. */
typedef struct worker {
    bool gone;                /* has finished or is lost */
    uint64_t clock;           /* its pushes that have been taken */
    kolo_service_call *push;  /* kept until the step is complete, or there is room */
    uint64_t arrived;         /* its number */
    kolo_service_call *taken; /* of the step that is being completed */
    kolo_service_call *pull;  /* kept until the others have caught up, and `push` is taken */
} worker;

/* The service's thread owns all but what the mutex protects. */
struct kolo_table_owner {
    const kolo_table_opts *opts;
    kolo_owner_reply *reply;
    bool again; /* workers may send what it has taken: kolo_parameters_owner_lead */
    kolo_rows *rows;
    int n_workers, n_present;
    worker *workers;             /* [n_workers] */
    uint64_t arrivals;           /* pushes that have come */
    int saver;                   /* the client that saves rows; -1: none */
    kolo_id_batch ids;           /* of a step of several workers; bsp only, */
    float *sums;                 /* as the sums of their gradients */
    float *read;                 /* [batch][width]: rows on their way */
    int missing;                 /* a lost worker that ends the job; -1: none */
    char why[KOLO_REPORT_BYTES]; /* it is missing */
    pthread_mutex_t lock;        /* protects `ended` */
    pthread_cond_t all_gone;
    bool ended; /* no worker is present */
};

typedef kolo_table_owner owner;

/* ---- pages ---- */

size_t kolo_table_page_bytes(const kolo_table_opts *opts, size_t room) {
    const size_t row =
        2 * sizeof(uint64_t) + sizeof(uint32_t) + kolo_rows_saved_width(opts) * sizeof(float);
    return sizeof(kolo_table_page) + room * row;
}

kolo_table_rows kolo_table_page_rows(void *page, size_t room) {
    kolo_table_page *head = page;
    uint64_t *ids = (uint64_t *)(head + 1);
    uint32_t *pushes = (uint32_t *)(ids + 2 * room);
    return (kolo_table_rows){.n = (size_t)head->n,
                             .version = head->version,
                             .ids = ids,
                             .ages = ids + room,
                             .pushes = pushes,
                             .values = (float *)(pushes + room)};
}

/* How many rows a message of this many bytes has room for; none: it is no page. */
static size_t page_room(const kolo_table_opts *opts, size_t bytes) {
    const size_t row = kolo_table_page_bytes(opts, 1) - sizeof(kolo_table_page);
    if (bytes <= sizeof(kolo_table_page) || (bytes - sizeof(kolo_table_page)) % row) return 0;
    return (bytes - sizeof(kolo_table_page)) / row;
}

/* ---- reads ---- */

/* The smallest clock of a worker that is still waited for; UINT64_MAX: there is none. */
static uint64_t slowest(const owner *o) {
    uint64_t least = UINT64_MAX;
    for (int w = 0; w < o->n_workers; w++) {
        if (!o->workers[w].gone && o->workers[w].clock < least) least = o->workers[w].clock;
    }
    return least;
}

/* A read lacks none of its worker's own pushes, also while one of them waits for room. */
static bool may_read(const owner *o, const worker *w, uint64_t clock) {
    const uint64_t bound = (uint64_t)o->opts->staleness;
    if (w->push && clock > w->clock) return false;
    if (o->opts->staleness == KOLO_STALENESS_ANY || clock <= bound) return true;
    return slowest(o) >= clock - bound;
}

/* Reads to the worker's memory, or for the connection. */
static void read_rows(const owner *o, kolo_service_call *call, uint64_t clock) {
    float *to = call->output ? call->output : o->read;
    kolo_rows_read(o->rows, call->input, (size_t)call->key, to);
    o->reply(call, KOLO_OK, clock, to, call->output_bytes);
}

/* Removes a kept call. Before the reply: one that fails ends its worker, whose calls get replies.
 */
static kolo_service_call *take(kolo_service_call **kept) {
    kolo_service_call *call = *kept;
    *kept = NULL;
    return call;
}

static void answer_pull(const owner *o, worker *w) {
    if (!w->pull || !may_read(o, w, w->pull->clock)) return;
    kolo_service_call *call = take(&w->pull);
    const uint64_t least = slowest(o);
    read_rows(o, call, least < call->clock ? call->clock - least : 0);
}

/* ---- pushes ---- */

/* NULL: the push has no ids. */
static const float *gradients_of(const kolo_service_call *call) {
    if (call->key == 0) return NULL;
    return (const float *)((const uint64_t *)call->input + call->key);
}

/* Adds the gradients of a push to the sums of their ids. */
static void add_push(owner *o, const kolo_service_call *call) {
    const uint64_t *ids = call->input;
    const float *gradients = gradients_of(call);
    const size_t width = o->opts->width;
    for (size_t i = 0; i < call->key; i++) {
        const size_t before = o->ids.count, place = kolo_id_batch_add(&o->ids, ids[i]);
        float *sum = o->sums + place * width;
        const float *gradient = gradients + i * width;
        if (place == before) {
            kolo_row_copy(sum, gradient, width);
        } else {
            for (size_t c = 0; c < width; c++) sum[c] += gradient[c];
        }
    }
}

/* Once the gradients of all workers are in, their sum is an update. */
static void complete_step(owner *o) {
    kolo_table_update about = {.worker = -1};
    int active = 0;
    size_t ids = 0;
    const kolo_service_call *only = NULL;
    for (int w = 0; w < o->n_workers; w++) {
        const worker *x = &o->workers[w];
        if (!x->gone && !x->push) return;
        active += !x->gone;
        if (!x->push) continue;
        only = x->push;
        about.workers++;
        ids += (size_t)x->push->key;
        if (x->push->clock > about.clock) about.clock = x->push->clock;
    }
    if (active == 0 || !only || !kolo_rows_has_room(o->rows, ids)) return;
    if (about.workers == 1) {
        kolo_rows_update(o->rows, only->input, gradients_of(only), (size_t)only->key, &about);
    } else {
        kolo_id_batch_begin(&o->ids, ids);
        for (int w = 0; w < o->n_workers; w++) {
            if (o->workers[w].push) add_push(o, o->workers[w].push);
        }
        kolo_rows_update(o->rows, o->ids.ids, o->sums, o->ids.count, &about);
    }
    for (int w = 0; w < o->n_workers; w++) { /* all, before a reply detects a lost worker */
        worker *x = &o->workers[w];
        x->taken = take(&x->push);
        x->clock += x->taken != NULL;
    }
    for (int w = 0; w < o->n_workers; w++) {
        kolo_service_call *call = take(&o->workers[w].taken);
        if (call) o->reply(call, KOLO_OK, 0, NULL, 0);
    }
}

/* The worker whose push is the first of those that are kept; NULL: none is. */
static worker *first_push(const owner *o) {
    worker *first = NULL;
    for (int i = 0; i < o->n_workers; i++) {
        worker *w = &o->workers[i];
        if (w->push && (!first || w->arrived < first->arrived)) first = w;
    }
    return first;
}

/* Takes the pushes in the order of their arrival. A reply may detect a lost worker. */
static void take_pushes(owner *o) {
    for (worker *w; (w = first_push(o)) && kolo_rows_has_room(o->rows, (size_t)w->push->key);) {
        kolo_service_call *call = take(&w->push);
        const kolo_table_update about = {
            .workers = 1, .worker = call->client, .clock = call->clock};
        kolo_rows_update(o->rows, call->input, gradients_of(call), (size_t)call->key, &about);
        w->clock++;
        o->reply(call, KOLO_OK, 0, NULL, 0);
    }
}

/* After a push, after a worker has gone, or once rows have been saved. */
static void go_on(owner *o) {
    if (o->opts->staleness == 0) {
        complete_step(o);
    } else {
        take_pushes(o);
    }
    for (int w = 0; w < o->n_workers; w++) answer_pull(o, &o->workers[w]);
}

static void push(owner *o, kolo_service_call *call) {
    worker *w = &o->workers[call->client];
    w->push = call;
    w->arrived = o->arrivals++;
    go_on(o);
}

/* ---- workers that go ---- */

static void leave(owner *o, int w) {
    if (o->workers[w].gone) return;
    o->workers[w].gone = true;
    o->n_present--;
    pthread_mutex_lock(&o->lock);
    o->ended = o->n_present == 0;
    pthread_cond_signal(&o->all_gone);
    pthread_mutex_unlock(&o->lock);
}

static void refuse(const owner *o, kolo_service_call *call) {
    if (!call) return;
    const kolo_status status =
        KOLO_FAIL(KOLO_ERR_PEER, "%s: worker %d is lost: %s", o->opts->name, o->missing, o->why);
    o->reply(call, status, 0, NULL, 0);
}

/* The connection is closed: the reply only frees the call. */
static void free_call(const owner *o, kolo_service_call *call) {
    if (call) o->reply(call, KOLO_OK, 0, NULL, 0);
}

static void end_save(owner *o, int client) {
    if (o->saver != client) return;
    o->saver = -1;
    kolo_rows_forget(o->rows);
}

void kolo_table_owner_lost(void *arg, int client, bool left, const char *reason) {
    owner *o = arg;
    end_save(o, client);
    if (client >= o->n_workers) {
        if (o->missing < 0) go_on(o);
        return;
    }
    worker *w = &o->workers[client];
    if (o->opts->staleness == 0) free_call(o, take(&w->push)); /* others only wait for room */
    free_call(o, take(&w->pull));
    if (o->opts->needs_all && !w->gone && o->missing < 0) {
        o->missing = client;
        snprintf(o->why, sizeof o->why, "%s", reason);
    }
    leave(o, client);
    if (o->missing < 0) {
        go_on(o);
        return;
    }
    for (int i = 0; i < o->n_workers; i++) { /* the job ends */
        refuse(o, take(&o->workers[i].push));
        refuse(o, take(&o->workers[i].pull));
    }
}

void kolo_table_owner_wait(owner *o) {
    pthread_mutex_lock(&o->lock);
    while (!o->ended) pthread_cond_wait(&o->all_gone, &o->lock);
    pthread_mutex_unlock(&o->lock);
}

/* ---- requests ---- */

static bool is_aligned(const void *at, size_t to) { return (uintptr_t)at % to == 0; }

static bool is_page(const owner *o, const kolo_service_call *call) {
    const size_t input = page_room(o->opts, call->input_bytes);
    const size_t output = page_room(o->opts, call->output_bytes);
    if (call->kind == KOLO_TABLE_SAVE) {
        return call->input_bytes == 0 && output > 0 && output <= o->opts->batch &&
               is_aligned(call->output, sizeof(uint64_t));
    }
    return call->output_bytes == 0 && input > 0 && input <= o->opts->batch && call->key <= input &&
           is_aligned(call->input, sizeof(uint64_t)) && o->saver < 0;
}

/* Of requests that change nothing for clocks. */
static bool is_general(const owner *o, const kolo_service_call *call) {
    switch (call->kind) {
    case KOLO_TABLE_SAVE:
    case KOLO_TABLE_LOAD:
        return is_page(o, call);
    case KOLO_TABLE_FORGET:
        return call->input_bytes == 0 && call->output_bytes == 0;
    case KOLO_TABLE_MARK:
    case KOLO_TABLE_STATS:
        return call->input_bytes == 0 && call->output_bytes == sizeof(kolo_table_stats);
    default:
        return false;
    }
}

static bool is_valid(const owner *o, const kolo_service_call *call) {
    const bool works = call->client < o->n_workers;
    const worker *w = works ? &o->workers[call->client] : NULL;
    const size_t n = (size_t)call->key, row = o->opts->width * sizeof(float);
    switch (call->kind) {
    case KOLO_TABLE_PULL:
    case KOLO_TABLE_READ:
        if (call->kind == KOLO_TABLE_PULL && (!works || w->pull)) return false;
        return call->key <= o->opts->batch && call->input_bytes == n * sizeof(uint64_t) &&
               call->output_bytes == n * row && is_aligned(call->input, sizeof(uint64_t)) &&
               is_aligned(call->output, sizeof(float));
    case KOLO_TABLE_PUSH:
        return works && !w->gone && !w->push && call->clock == w->clock &&
               call->key <= o->opts->batch && call->input_bytes == n * (sizeof(uint64_t) + row) &&
               call->output_bytes == 0 && is_aligned(call->input, sizeof(uint64_t));
    case KOLO_TABLE_FINISH:
        return works && call->input_bytes == 0 && call->output_bytes == 0;
    default:
        return is_general(o, call);
    }
}

static void reply_stats(const owner *o, kolo_service_call *call) {
    kolo_table_stats stats = {0};
    kolo_rows_add_stats(o->rows, &stats);
    o->reply(call, KOLO_OK, 0, &stats, sizeof stats);
}

static void mark(owner *o, kolo_service_call *call) {
    o->saver = call->client;
    kolo_rows_mark(o->rows);
    reply_stats(o, call);
    go_on(o); /* of an earlier mark nothing is to be saved any more */
}

/* To the worker's memory, or for the connection. */
static void save(owner *o, kolo_service_call *call) {
    const size_t room = page_room(o->opts, call->output_bytes);
    if (o->saver != call->client) {
        const kolo_status status =
            KOLO_FAIL(KOLO_ERR_FORMAT, "%s: the rows to be saved are not those that were marked",
                      o->opts->name);
        o->reply(call, status, 0, NULL, 0);
        return;
    }
    kolo_table_page *own = call->output ? NULL : kolo_zalloc(call->output_bytes);
    kolo_table_page *page = call->output ? call->output : own;
    if (!page) {
        o->reply(call, KOLO_NOMEM(call->output_bytes), 0, NULL, 0);
        return;
    }
    kolo_table_rows rows = kolo_table_page_rows(page, room);
    if (call->clock == 0) rows.pushes = NULL;
    const bool more = kolo_rows_save(o->rows, room, &rows);
    if (!more) o->saver = -1;
    *page = (kolo_table_page){.version = rows.version, .n = rows.n};
    o->reply(call, KOLO_OK, more, page, call->output_bytes);
    kolo_free(own);
    go_on(o);
}

static void forget(owner *o, kolo_service_call *call) {
    end_save(o, call->client);
    o->reply(call, KOLO_OK, 0, NULL, 0);
    go_on(o);
}

/* Of a copy: the worker's memory may change meanwhile. */
static void load(const owner *o, kolo_service_call *call) {
    kolo_table_page *page = kolo_alloc(call->input_bytes);
    if (!page) {
        o->reply(call, KOLO_NOMEM(call->input_bytes), 0, NULL, 0);
        return;
    }
    memcpy(page, call->input, call->input_bytes);
    page->n = call->key;
    const kolo_table_rows rows = kolo_table_page_rows(page, page_room(o->opts, call->input_bytes));
    kolo_rows_load(o->rows, &rows);
    kolo_free(page);
    o->reply(call, KOLO_OK, 0, NULL, 0);
}

/* Answers a push that was taken before, as a copy. */
static bool answer_again(const owner *o, kolo_service_call *call) {
    const bool taken = o->again && call->kind == KOLO_TABLE_PUSH && call->client < o->n_workers &&
                       call->clock + 1 == o->workers[call->client].clock;
    if (taken) o->reply(call, KOLO_OK, 0, NULL, 0);
    return taken;
}

/* Whether a worker has made pushes that a lost owner took, and this one has no copies of. */
static bool lacks_pushes(const owner *o, const kolo_service_call *call) {
    const bool counts = call->kind == KOLO_TABLE_PUSH || call->kind == KOLO_TABLE_PULL;
    if (!o->again || !counts || call->client >= o->n_workers) return false;
    const worker *w = &o->workers[call->client];
    return call->clock > w->clock + (w->push != NULL);
}

void kolo_table_owner_serve(void *arg, kolo_service_call *call) {
    owner *o = arg;
    if (answer_again(o, call)) return;
    if (lacks_pushes(o, call)) {
        const kolo_status status =
            KOLO_FAIL(KOLO_ERR_PEER,
                      "%s: the replica lacks pushes that its leader has taken: the connection "
                      "between the servers was lost",
                      o->opts->name);
        o->reply(call, status, 0, NULL, 0);
        return;
    }
    if (!is_valid(o, call)) {
        const kolo_status status =
            KOLO_FAIL(KOLO_ERR_ARG,
                      "%s: an invalid request: kind %u, key %llu, clock %llu, %zu and %zu bytes",
                      o->opts->name, call->kind, (unsigned long long)call->key,
                      (unsigned long long)call->clock, call->input_bytes, call->output_bytes);
        o->reply(call, status, 0, NULL, 0);
        return;
    }
    if (o->missing >= 0 && call->kind != KOLO_TABLE_FINISH) {
        refuse(o, call);
        return;
    }
    switch (call->kind) {
    case KOLO_TABLE_PULL:
        o->workers[call->client].pull = call;
        answer_pull(o, &o->workers[call->client]);
        break;
    case KOLO_TABLE_PUSH:
        push(o, call);
        break;
    case KOLO_TABLE_READ:
        read_rows(o, call, 0);
        break;
    case KOLO_TABLE_STATS:
        reply_stats(o, call);
        break;
    case KOLO_TABLE_MARK:
        mark(o, call);
        break;
    case KOLO_TABLE_SAVE:
        save(o, call);
        break;
    case KOLO_TABLE_FORGET:
        forget(o, call);
        break;
    case KOLO_TABLE_LOAD:
        load(o, call);
        break;
    default: /* FINISH */
        o->reply(call, KOLO_OK, 0, NULL, 0);
        leave(o, call->client);
        go_on(o);
    }
}

/* ---- replicas ---- */

static bool changes_rows(const void *arg, const kolo_service_call *call) {
    (void)arg;
    return call->kind == KOLO_TABLE_PUSH || call->kind == KOLO_TABLE_FINISH ||
           call->kind == KOLO_TABLE_LOAD;
}

static size_t room_of_change(const void *arg, uint32_t kind) {
    (void)arg, (void)kind;
    return 0;
}

static void lead(void *arg) {
    owner *o = arg;
    for (int w = 0; w < o->n_workers; w++) o->workers[w].push = o->workers[w].pull = NULL;
    o->again = true;
}

static void set_reply(void *arg, kolo_owner_reply *reply) { ((owner *)arg)->reply = reply; }

const kolo_replicated kolo_replicated_rows = {
    .kinds = KOLO_TABLE_KINDS,
    .push = KOLO_TABLE_PUSH,
    .changes = changes_rows,
    .serve = kolo_table_owner_serve,
    .lost = kolo_table_owner_lost,
    .room = room_of_change,
    .lead = lead,
    .set_reply = set_reply,
};

/* ---- creation ---- */

void kolo_table_owner_destroy(owner *o) {
    if (!o) return;
    pthread_cond_destroy(&o->all_gone);
    pthread_mutex_destroy(&o->lock);
    kolo_rows_destroy(o->rows);
    kolo_id_batch_fini(&o->ids);
    kolo_free(o->sums);
    kolo_free(o->read);
    kolo_free(o->workers);
    kolo_free(o);
}

/* Whether an update is by the pushes of several workers. */
static bool sums_pushes(const kolo_table_opts *o, int workers) {
    return o->staleness == 0 && workers > 1;
}

size_t kolo_table_owner_needs(const kolo_table_opts *o, int workers, uint64_t n, bool saved) {
    const size_t batches = 1 + (sums_pushes(o, workers) ? (size_t)workers : 0);
    return kolo_rows_needs(o, n, saved) + batches * o->batch * o->width * sizeof(float);
}

static kolo_status build(owner *o, uint64_t secret) {
    const kolo_table_opts *opts = o->opts;
    const bool sums = sums_pushes(opts, o->n_workers);
    const size_t row = opts->width * sizeof(float);
    const size_t most = opts->batch * (sums ? (size_t)o->n_workers : 1);
    KOLO_TRY(kolo_rows_create(opts, most, secret, &o->rows));
    o->workers = kolo_zalloc((size_t)o->n_workers * sizeof *o->workers);
    o->read = kolo_alloc(opts->batch * row);
    if (!o->workers || !o->read) return KOLO_NOMEM(opts->batch * row);
    if (!sums) return KOLO_OK;
    KOLO_TRY(kolo_id_batch_init(&o->ids, most, secret));
    o->sums = kolo_alloc(most * row);
    return o->sums ? KOLO_OK : KOLO_NOMEM(most * row);
}

kolo_status kolo_table_owner_create(const kolo_table_opts *opts, int workers, uint64_t secret,
                                    kolo_owner_reply *reply, owner **made) {
    owner *o = kolo_zalloc(sizeof *o);
    if (!o) return KOLO_NOMEM(sizeof *o);
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->all_gone, NULL);
    o->opts = opts;
    o->reply = reply;
    o->n_workers = o->n_present = workers;
    o->missing = o->saver = -1;
    const kolo_status status = build(o, secret);
    if (status != KOLO_OK) {
        kolo_table_owner_destroy(o);
        return status;
    }
    *made = o;
    return KOLO_OK;
}

/* Prefetching: loader threads and one consumer with a ring of slots between them.
 *
 * Slot i % slots holds batch i. Batches begin in order, one after the other: a thread takes the
 * samples of batch `begun` from the sampler while begun - used < slots. All threads then take parts
 * of the newest batch, whose samples go to fixed places, so batches do not depend on the threads.
 * The next one begins when no part is left. The consumer takes batch `used` once all its samples
 * are there, and returns it in its next call by incrementing `used`.
 *
 * Where samples are mixed, each with the one before it in the step, a batch has one sample more
 * while it is read: that before the first. The thread that completes the batch mixes it.
 *
 * Without threads the consumer does the same work in kolo_loader_next.
 *
 * Of a stream one thread reads whole batches. It finds the end when it has fewer samples than a
 * batch takes, which is then the last one and may be empty. */
#include "data/prefetch.h"

#include "base/file.h"
#include "base/integer.h"
#include "base/memory.h"
#include "base/task.h"
#include "data/dataset.h"
#include "data/mix.h"
#include "data/sampler.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

enum { PARTS = 4 /* of a batch, for each thread */, ANNOUNCED = 256 /* samples at a time */ };

typedef struct slot {
    kolo_batch batch;
    int64_t step; /* on demand, with `part`: under lock until the batch begins */
    int part;
    int64_t room;                /* samples */
    int64_t total;               /* samples to read: those of the batch, and one to mix with */
    int64_t *indices;            /* of the samples in the data set */
    int64_t *used;               /* the same, but where another takes the place of a damaged one */
    void *data[KOLO_MAX_FIELDS]; /* what the batch points to */
    kolo_stream_place end;       /* behind the batch of a stream */
    /* Under lock: */
    int64_t taken, done; /* samples that threads have taken, and completed */
    kolo_status failed;  /* the error of the first part that failed, at sample failed_at */
    int64_t failed_at;
    char *failed_text;
} slot;

/* The shards of this rank from a step on. */
typedef struct shard_range {
    int64_t from;
    int first, end;
} shard_range;

/* A thread, or the consumer where there is none. */
typedef struct worker {
    kolo_loader *loader;
    pthread_t thread;
    uint8_t *scratch; /* of augmentation */
} worker;

struct kolo_loader {
    kolo_loader_opts opts; /* resolved; constant while threads run */
    kolo_sampler_opts order;
    int n_fields; /* of batches: those of the data set, and the target of mixed samples */
    kolo_field fields[KOLO_MAX_FIELDS];
    kolo_sampler *sampler; /* of the thread that begins a batch */
    slot *ring;
    shard_range now;   /* of the thread that begins a batch, as the next one */
    int64_t announced; /* batches */
    worker *workers;
    int started; /* threads */
    bool held;   /* the consumer's: it owns slot `used` */

    pthread_mutex_t lock;
    pthread_cond_t filled; /* a batch is complete; the consumer waits */
    pthread_cond_t work;   /* used, stop, begun; threads wait */
    int64_t begun, used;   /* under lock: batches begun, batches returned */
    int64_t position;      /* of the thread: samples of a stream that were read */
    int64_t asked;         /* under lock: batches that were asked for, on demand */
    bool beginning;        /* under lock: a thread begins batch `begun` */
    bool failed;           /* under lock: a batch has; none begins after it */
    bool ended;            /* under lock: the stream has; the batch begun last is the last one */
    shard_range next;      /* under lock: replaces `now` when its step comes */
    bool stop;             /* under lock: destroy was called */
};

/* ---- work ---- */

/* Under lock, if on demand or of a stream. */
static int64_t batches_of(const kolo_loader *l) {
    if (l->opts.on_demand) return l->asked;
    if (l->ended) return l->begun;
    return (l->opts.end - l->opts.first + l->opts.every - 1) / l->opts.every;
}

static slot *slot_of(const kolo_loader *l, int64_t batch) {
    return &l->ring[batch % l->opts.slots];
}

static kolo_share share_of(const kolo_loader *l, int64_t step, int part, shard_range r) {
    const kolo_loader_opts *o = &l->opts;
    return o->shards > 0 ? kolo_sampler_shards(&l->order, step, o->shards, r.first, r.end)
                         : kolo_sampler_share(&l->order, step, part, o->world);
}

/* Gives a slot room for `count` samples. Slots begin on cache lines: two threads rarely write to
 * the same one. */
static kolo_status reserve(const kolo_loader *l, slot *s, int64_t count) {
    const size_t n = (size_t)count + kolo_augment_mixes(&l->opts.augment);
    size_t sample = 2 * sizeof *s->indices;
    if (s->indices && count <= s->room) return KOLO_OK;
    for (int f = 0; f < l->n_fields; f++) sample += kolo_field_bytes(&l->fields[f]);
    if (n > PTRDIFF_MAX / (size_t)l->opts.slots / sample) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a batch of %zu samples of %zu bytes: choose a smaller one",
                         n, sample);
    }
    s->room = count;
    kolo_free(s->indices);
    s->indices = kolo_alloc(2 * (n + 1) * sizeof *s->indices);
    if (!s->indices) return KOLO_NOMEM(n * sample);
    s->used = s->indices + n;
    for (int f = 0; f < l->n_fields; f++) {
        kolo_free(s->data[f]);
        s->data[f] = kolo_alloc(kolo_round_up(n * kolo_field_bytes(&l->fields[f]) + 1, 64));
        if (!s->data[f]) return KOLO_NOMEM(n * sample);
    }
    return KOLO_OK;
}

/* Takes the samples of step `number` from the sampler. */
static kolo_status begin(kolo_loader *l, int64_t number, slot *s) {
    const int64_t steps = kolo_sampler_steps(&l->order), epoch = number / steps;
    const int64_t step = number % steps;
    const int part = l->opts.on_demand ? s->part : l->opts.rank;
    const kolo_share share = share_of(l, step, part, l->now);
    const int64_t start = step * l->order.global_batch;
    s->total = 0;
    s->batch = (kolo_batch){
        .epoch = epoch,
        .step = step,
        .first = share.first - start,
        .global_count = share.global_count,
        .n_fields = l->n_fields,
        .fields = l->fields,
    };
    KOLO_TRY(reserve(l, s, share.count));
    s->batch.count = share.count;
    for (int f = 0; f < l->n_fields; f++) s->batch.data[f] = s->data[f];
    s->batch.indices = s->used;
    if (share.count == 0) return KOLO_OK;
    s->total = share.count;
    if (l->opts.streams) return KOLO_OK;
    kolo_sampler_take(l->sampler, epoch, share.first, share.count, s->indices);
    if (kolo_augment_mixes(&l->opts.augment) && share.count < share.global_count) {
        const int64_t last = start + share.global_count - 1;
        kolo_sampler_take(l->sampler, epoch, share.first > start ? share.first - 1 : last, 1,
                          &s->indices[s->total++]);
    }
    memcpy(s->used, s->indices, (size_t)s->total * sizeof *s->indices);
    return KOLO_OK;
}

static int64_t number_of(const kolo_loader *l, int64_t batch) {
    return l->opts.first + batch * l->opts.every;
}

/* Announces the samples of batches that will begin, each once: those of batch `begun` and of as
 * many after it as there are slots. Version 1 of the order would shuffle for each change of the
 * epoch. */
static void announce(kolo_loader *l, int64_t begun) {
    const kolo_dataset *d = l->opts.dataset;
    const int64_t steps = kolo_sampler_steps(&l->order), epoch = number_of(l, begun) / steps;
    const int64_t batches = (l->opts.end - l->opts.first + l->opts.every - 1) / l->opts.every;
    const int64_t end = kolo_min_i64(batches, begun + l->opts.slots);
    if (!d->announce || l->opts.on_demand) return;
    for (; l->announced < end; l->announced++) {
        const int64_t number = number_of(l, l->announced);
        if (l->order.order == 1 && number / steps != epoch) return;
        const kolo_share share = share_of(l, number % steps, l->opts.rank, l->now);
        for (int64_t i = 0; i < share.count; i += ANNOUNCED) {
            int64_t indices[ANNOUNCED];
            const int64_t n = kolo_min_i64(ANNOUNCED, share.count - i);
            kolo_sampler_take(l->sampler, number / steps, share.first + i, n, indices);
            d->announce(d, indices, n);
        }
    }
}

/* Reads and augments samples [first, first + n) of a batch. */
static kolo_status fill(const kolo_loader *l, const slot *s, int64_t first, int64_t n,
                        uint8_t *scratch) {
    const kolo_dataset_info *info = kolo_dataset_describe(l->opts.dataset);
    const kolo_draw draw = {.augment = &l->opts.augment,
                            .seed = l->opts.seed,
                            .epoch = s->batch.epoch,
                            .used = s->used + first};
    const int64_t *indices = s->indices + first;
    size_t bytes[KOLO_MAX_FIELDS] = {0};
    void *data[KOLO_MAX_FIELDS] = {NULL};
    for (int f = 0; f < info->n_fields; f++) {
        bytes[f] = kolo_field_bytes(&info->fields[f]);
        data[f] = (char *)s->data[f] + (size_t)first * bytes[f];
    }
    KOLO_TRY(kolo_dataset_gather_for(l->opts.dataset, indices, n, &draw, data));
    if (!kolo_augment_any(&l->opts.augment)) return KOLO_OK;
    uint8_t *x = data[KOLO_FIELD_X], *y = data[KOLO_FIELD_Y];
    for (int64_t i = 0; i < n; i++) {
        kolo_augment_apply(&l->opts.augment, l->opts.seed, s->batch.epoch, indices[i], info->fields,
                           x, (int32_t *)(void *)y, scratch);
        x += bytes[KOLO_FIELD_X];
        y += bytes[KOLO_FIELD_Y];
    }
    return KOLO_OK;
}

/* Reads all of a batch from a stream. */
static kolo_status read_stream(kolo_loader *l, slot *s) {
    int64_t got = 0, damaged = 0;
    KOLO_TRY(kolo_dataset_next(l->opts.dataset, s->total, s->data, &got, &damaged));
    for (int64_t i = 0; i < got; i++) s->indices[i] = s->used[i] = l->position + i;
    l->position += got;
    s->end = kolo_dataset_place(l->opts.dataset, l->position);
    s->batch.count = s->batch.global_count = got;
    s->batch.damaged = damaged;
    return KOLO_OK;
}

static kolo_status mix(const kolo_loader *l, const slot *s) {
    const kolo_mix_batch batch = {
        .augment = &l->opts.augment,
        .seed = l->opts.seed,
        .epoch = s->batch.epoch,
        .count = s->batch.count,
        .total = s->total,
        .classes = kolo_shape_count(&l->fields[l->n_fields - 1].shape),
        .image = &l->fields[KOLO_FIELD_X].shape,
        .indices = s->indices,
        .used = s->used,
        .images = s->data[KOLO_FIELD_X],
        .labels = s->data[KOLO_FIELD_Y],
        .targets = s->data[l->n_fields - 1],
    };
    return kolo_mix_apply_batch(&batch);
}

/* Of the samples [first, first + n), those in whose place another one is. */
static int64_t count_damaged(const slot *s, int64_t first, int64_t n) {
    int64_t damaged = 0;
    for (int64_t i = first; i < first + n && i < s->batch.count; i++) {
        damaged += s->used[i] != s->indices[i];
    }
    return damaged;
}

/* ---- threads ---- */

/* All samples are there, or failed. Under lock, as the following. */
static bool is_complete(const kolo_loader *l, int64_t batch) {
    const slot *s = slot_of(l, batch);
    return batch < l->begun && s->done == s->total;
}

static bool has_parts(const kolo_loader *l) {
    if (l->begun == 0) return false;
    const slot *s = slot_of(l, l->begun - 1);
    return s->taken < s->total;
}

static bool can_begin(const kolo_loader *l) {
    return !l->beginning && !l->failed && !l->ended && l->begun < batches_of(l) &&
           l->begun - l->used < l->opts.slots;
}

/* Records the first failure of a batch. The text of an error is thread-local, so it is copied. */
static void record_failure(kolo_loader *l, slot *s, int64_t at, kolo_status status) {
    if (status == KOLO_OK || (s->failed && s->failed_at < at)) return;
    kolo_free(s->failed_text);
    s->failed_text = kolo_strdup(kolo_last_error());
    s->failed = status;
    s->failed_at = at;
    l->failed = true;
}

static void begin_next(kolo_loader *l) {
    slot *s = slot_of(l, l->begun);
    const int64_t number = l->opts.on_demand ? s->step : number_of(l, l->begun);
    if (l->next.from <= number) l->now = l->next;
    l->beginning = true;
    pthread_mutex_unlock(&l->lock);
    announce(l, l->begun);
    kolo_status status = begin(l, number, s);
    pthread_mutex_lock(&l->lock);
    s->taken = s->done = 0;
    record_failure(l, s, 0, status);
    l->beginning = false;
    l->begun++;
    if (s->total == 0) pthread_cond_signal(&l->filled);
    pthread_cond_broadcast(&l->work);
}

/* Samples of a part: all for one thread, else few enough that none waits long for another. */
static int64_t part_of(const kolo_loader *l, int64_t count) {
    return l->opts.threads <= 1 ? count : (count - 1) / (PARTS * l->opts.threads) + 1;
}

static void take_part(kolo_loader *l, uint8_t *scratch) {
    slot *s = slot_of(l, l->begun - 1);
    const int64_t first = s->taken;
    const int64_t n = kolo_min_i64(s->total - first, part_of(l, s->total));
    s->taken += n;
    pthread_mutex_unlock(&l->lock);
    const bool streams = l->opts.streams;
    kolo_status status = streams ? read_stream(l, s) : fill(l, s, first, n, scratch);
    const int64_t damaged = status == KOLO_OK && !streams ? count_damaged(s, first, n) : 0;
    pthread_mutex_lock(&l->lock);
    if (streams && s->batch.count < s->total) l->ended = true;
    s->batch.damaged += damaged;
    record_failure(l, s, first, status);
    if (s->done + n == s->total && !s->failed && kolo_augment_mixes(&l->opts.augment)) {
        pthread_mutex_unlock(&l->lock); /* the last part: no other thread has this batch */
        status = mix(l, s);
        pthread_mutex_lock(&l->lock);
        record_failure(l, s, first, status);
    }
    s->done += n;
    if (s->done == s->total) pthread_cond_signal(&l->filled);
}

/* Does one piece of work, if there is one. */
static bool work_once(kolo_loader *l, uint8_t *scratch) {
    if (has_parts(l)) {
        take_part(l, scratch);
    } else if (can_begin(l)) {
        begin_next(l);
    } else {
        return false;
    }
    return true;
}

static void *run(void *arg) {
    const worker *w = arg;
    kolo_loader *l = w->loader;
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        if (!work_once(l, w->scratch)) pthread_cond_wait(&l->work, &l->lock);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* ---- life ---- */

/* Takes the options, if they are valid. */
static kolo_status set_up(const kolo_loader_opts *given, kolo_loader *l) {
    kolo_loader_opts opts;
    KOLO_TRY(kolo_loader_resolve(given, &opts, &l->order));
    KOLO_TRY(kolo_loader_fields(&opts, l->fields, &l->n_fields));
    l->opts = opts;
    l->position = opts.from.samples;
    l->now = l->next = (shard_range){.first = opts.first_shard, .end = opts.end_shard};
    return KOLO_OK;
}

static kolo_status make_ring(kolo_loader *l) {
    size_t slots = (size_t)l->opts.slots;
    l->ring = kolo_zalloc(slots * sizeof *l->ring);
    if (!l->ring) return KOLO_NOMEM(slots * sizeof *l->ring);
    for (size_t i = 0; i < slots; i++) KOLO_TRY(reserve(l, &l->ring[i], kolo_loader_largest(l)));
    return KOLO_OK;
}

static int workers_of(const kolo_loader *l) { return l->opts.threads > 0 ? l->opts.threads : 1; }

static kolo_status make_workers(kolo_loader *l) {
    const int n = workers_of(l);
    const kolo_field *fields = kolo_dataset_describe(l->opts.dataset)->fields;
    const size_t bytes = kolo_augment_any(&l->opts.augment) ? kolo_augment_work(fields) : 0;
    l->workers = kolo_zalloc((size_t)n * sizeof *l->workers);
    if (!l->workers) return KOLO_NOMEM((size_t)n * sizeof *l->workers);
    for (int i = 0; i < n; i++) {
        l->workers[i].loader = l;
        if (bytes > 0) l->workers[i].scratch = kolo_alloc(bytes);
        if (bytes > 0 && !l->workers[i].scratch) return KOLO_NOMEM(bytes);
    }
    return KOLO_OK;
}

static kolo_status start(kolo_loader *l) {
    int rc = 0;
    while (rc == 0 && l->started < l->opts.threads) {
        worker *w = &l->workers[l->started];
        rc = kolo_thread_create(&w->thread, run, w);
        if (rc == 0) l->started++;
    }
    if (rc == 0) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_IO, "cannot start a loader thread: %s", kolo_errno_text(rc));
}

kolo_status kolo_loader_create(const kolo_loader_opts *opts, kolo_loader **loader) {
    kolo_status status;
    kolo_loader *l = kolo_zalloc(sizeof *l);
    if (!l) return KOLO_NOMEM(sizeof *l);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->filled, &clock);
    pthread_cond_init(&l->work, NULL);
    pthread_condattr_destroy(&clock);

    KOLO_TRY_GOTO(set_up(opts, l), fail);
    KOLO_TRY_GOTO(kolo_sampler_create(&l->order, &l->sampler), fail);
    KOLO_TRY_GOTO(make_ring(l), fail);
    if (l->opts.streams) {
        KOLO_TRY_GOTO(kolo_dataset_begin(l->opts.dataset, &l->opts.from), fail);
    }
    KOLO_TRY_GOTO(make_workers(l), fail);
    KOLO_TRY_GOTO(start(l), fail);
    *loader = l;
    return KOLO_OK;
fail:
    kolo_loader_destroy(l);
    return status;
}

static void free_slot(slot *s) {
    for (int f = 0; f < KOLO_MAX_FIELDS; f++) kolo_free(s->data[f]);
    kolo_free(s->indices);
    kolo_free(s->failed_text);
}

void kolo_loader_destroy(kolo_loader *loader) {
    if (!loader) return;
    pthread_mutex_lock(&loader->lock);
    loader->stop = true;
    if (loader->opts.streams) kolo_feed_stop(loader->opts.dataset->stream->source);
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->lock);
    for (int i = 0; i < loader->started; i++) pthread_join(loader->workers[i].thread, NULL);
    pthread_cond_destroy(&loader->work);
    pthread_cond_destroy(&loader->filled);
    pthread_mutex_destroy(&loader->lock);
    kolo_sampler_destroy(loader->sampler);
    for (int i = 0; loader->ring && i < loader->opts.slots; i++) free_slot(&loader->ring[i]);
    kolo_free(loader->ring);
    for (int i = 0; loader->workers && i < workers_of(loader); i++) {
        kolo_free(loader->workers[i].scratch);
    }
    kolo_free(loader->workers);
    kolo_free(loader);
}

int64_t kolo_loader_steps(const kolo_loader *loader) { return kolo_sampler_steps(&loader->order); }

int64_t kolo_loader_largest(const kolo_loader *loader) {
    return share_of(loader, 0, loader->opts.on_demand ? 0 : loader->opts.rank,
                    (shard_range){.first = loader->opts.first_shard, .end = loader->opts.end_shard})
        .count;
}

void kolo_loader_deal(kolo_loader *l, int64_t from, int first_shard, int end_shard) {
    int64_t number = from - l->opts.first;
    KOLO_ASSERT(l->opts.every == 1);
    KOLO_ASSERT(first_shard >= 0 && first_shard <= end_shard && end_shard <= l->opts.shards);
    pthread_mutex_lock(&l->lock);
    KOLO_ASSERT(number >= l->used + l->opts.slots);
    l->next = (shard_range){from, first_shard, end_shard};
    pthread_mutex_unlock(&l->lock);
}

void kolo_loader_ask(kolo_loader *l, int64_t step, int part) {
    KOLO_ASSERT(l->opts.on_demand && step >= 0 && part >= 0 && part < l->opts.world);
    pthread_mutex_lock(&l->lock);
    KOLO_ASSERT(l->asked - l->used < l->opts.slots);
    slot *s = slot_of(l, l->asked++);
    s->step = step;
    s->part = part;
    pthread_cond_signal(&l->work);
    pthread_mutex_unlock(&l->lock);
}

/* ---- consumer ---- */

static struct timespec deadline_in(int64_t ms) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t ns = t.tv_nsec + ms % 1000 * 1000000;
    t.tv_sec += (time_t)(ms / 1000 + ns / 1000000000);
    t.tv_nsec = (long)(ns % 1000000000);
    return t;
}

/* Waits until batch `used` is complete, or makes it. Under lock; false: the time is over. */
static bool wait_for_batch(kolo_loader *l) {
    const struct timespec deadline = deadline_in(l->opts.timeout_ms);
    int rc = 0;
    while (!is_complete(l, l->used) && rc != ETIMEDOUT) {
        if (l->opts.threads > 0) {
            rc = pthread_cond_timedwait(&l->filled, &l->lock, &deadline);
        } else if (!work_once(l, l->workers[0].scratch)) {
            break;
        }
    }
    return is_complete(l, l->used);
}

static kolo_status take_batch(kolo_loader *l, kolo_batch *batch) {
    const slot *s = slot_of(l, l->used);
    if (!wait_for_batch(l)) {
        return KOLO_FAIL(KOLO_ERR_TIMEOUT,
                         "no batch within %" PRId64 " ms: is the storage of %s reachable?",
                         l->opts.timeout_ms, kolo_dataset_describe(l->opts.dataset)->name);
    }
    if (s->failed) {
        return KOLO_FAIL(s->failed, "%s", s->failed_text ? s->failed_text : "the loader failed");
    }
    l->held = true;
    *batch = s->batch;
    return KOLO_OK;
}

bool kolo_loader_peek(kolo_loader *l, kolo_batch *batch) {
    pthread_mutex_lock(&l->lock);
    const int64_t next = l->used + l->held;
    const slot *s = slot_of(l, next);
    const bool complete = next < batches_of(l) && is_complete(l, next) && !s->failed;
    if (complete) *batch = s->batch;
    pthread_mutex_unlock(&l->lock);
    return complete;
}

kolo_stream_place kolo_loader_place(const kolo_loader *l) {
    KOLO_ASSERT(l->opts.streams && l->held);
    return slot_of(l, l->used)->end;
}

kolo_status kolo_loader_next(kolo_loader *l, kolo_batch *batch) {
    kolo_status status = KOLO_OK;
    if (!l) return KOLO_FAIL(KOLO_ERR_ARG, "no loader for the next batch");
    if (!batch) return KOLO_FAIL(KOLO_ERR_ARG, "no place for the next batch of the loader");
    pthread_mutex_lock(&l->lock);
    if (l->held) {
        l->used++;
        l->held = false;
        pthread_cond_signal(&l->work);
    }
    if (l->used < batches_of(l)) {
        status = take_batch(l, batch);
    } else {
        *batch = (kolo_batch){0};
    }
    pthread_mutex_unlock(&l->lock);
    return status;
}

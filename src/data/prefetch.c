/* Prefetching: one producer thread and one consumer with a ring of slots between them.
 *
 * Slot i % slots holds batch i. The producer fills batch `made` while made - used < slots. The
 * consumer takes batch `used` once used < made, and returns it in its next call by incrementing
 * `used`. `made` and `used` are protected by `lock` and determine the owner of a slot: the producer
 * until `made` passes it, then the consumer until `used` does. */
#include "data/prefetch.h"

#include "base/file.h"
#include "base/integer.h"
#include "base/memory.h"
#include "data/dataset.h"
#include "data/sampler.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

typedef struct slot {
    kolo_batch batch;
    int64_t room;                /* samples */
    void *data[KOLO_MAX_FIELDS]; /* what the batch points to */
} slot;

/* The shards of this rank from a step on. */
typedef struct deal {
    int64_t from;
    int first, end;
} deal;

struct kolo_loader {
    kolo_loader_opts opts; /* resolved; constant while the thread runs */
    kolo_sampler_opts order;
    kolo_sampler *sampler; /* the producer's */
    slot *ring;
    deal now;      /* the producer's */
    uint8_t *work; /* the producer's: scratch memory of augmentation */
    pthread_t thread;
    bool started;
    bool lent; /* the consumer's: it owns slot `used` */

    pthread_mutex_t lock;
    pthread_cond_t filled; /* made, failed; the consumer waits */
    pthread_cond_t freed;  /* used, stop; the producer waits */
    int64_t made, used;    /* under lock: batches filled, batches returned */
    deal next;             /* under lock: replaces `now` when its step comes */
    bool stop;             /* under lock: destroy was called */
    kolo_status failed;    /* under lock: the error that ended the producer */
    char *failed_text;     /* under lock */
};

/* ---- producer ---- */

static int64_t batches_of(const kolo_loader *l) {
    return (l->opts.end - l->opts.first + l->opts.every - 1) / l->opts.every;
}

static kolo_share share_of(const kolo_loader *l, int64_t step, deal d) {
    const kolo_loader_opts *o = &l->opts;
    return o->shards > 0 ? kolo_sampler_shards(&l->order, step, o->shards, d.first, d.end)
                         : kolo_sampler_share(&l->order, step, o->rank, o->world);
}

/* Gives a slot room for `count` samples. Slots begin on cache lines: the two threads never write to
 * the same one. */
static kolo_status reserve(const kolo_loader *l, slot *s, int64_t count) {
    const kolo_dataset_info *info = kolo_dataset_describe(l->opts.dataset);
    const size_t n = (size_t)count;
    size_t sample = 0;
    if (s->data[0] && count <= s->room) return KOLO_OK;
    for (int f = 0; f < info->n_fields; f++) sample += kolo_field_bytes(&info->fields[f]);
    if (sample > 0 && n > PTRDIFF_MAX / (size_t)l->opts.slots / sample) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a batch of %zu samples of %zu bytes: choose a smaller one",
                         n, sample);
    }
    s->room = count;
    for (int f = 0; f < info->n_fields; f++) {
        kolo_free(s->data[f]);
        s->data[f] = kolo_alloc(kolo_round_up(n * kolo_field_bytes(&info->fields[f]) + 1, 64));
        if (!s->data[f]) return KOLO_NOMEM(n * sample);
    }
    return KOLO_OK;
}

static kolo_status fill(kolo_loader *l, int64_t number, slot *s) {
    int64_t steps = kolo_sampler_steps(&l->order), epoch = number / steps, step = number % steps;
    pthread_mutex_lock(&l->lock);
    if (l->next.from <= number) l->now = l->next;
    pthread_mutex_unlock(&l->lock);
    kolo_share share = share_of(l, step, l->now);
    KOLO_TRY(reserve(l, s, share.count));
    const kolo_dataset_info *info = kolo_dataset_describe(l->opts.dataset);
    s->batch = (kolo_batch){
        .epoch = epoch,
        .step = step,
        .count = share.count,
        .first = share.first - step * l->order.global_batch,
        .global_count = share.global_count,
        .n_fields = info->n_fields,
        .fields = info->fields,
    };
    for (int f = 0; f < info->n_fields; f++) s->batch.data[f] = s->data[f];
    if (share.count == 0) return KOLO_OK;
    const int64_t *indices = kolo_sampler_epoch(l->sampler, epoch) + share.first;
    const kolo_draw draw = {&l->opts.augment, l->opts.seed, epoch};
    KOLO_TRY(kolo_dataset_gather_for(l->opts.dataset, indices, share.count, &draw, s->data));
    if (!kolo_augment_any(&l->opts.augment)) return KOLO_OK;
    uint8_t *x = s->data[KOLO_FIELD_X];
    int32_t *y = s->data[KOLO_FIELD_Y];
    int64_t bytes = kolo_shape_count(&info->fields[KOLO_FIELD_X].shape);
    int64_t each = kolo_shape_count(&info->fields[KOLO_FIELD_Y].shape);
    for (int64_t i = 0; i < share.count; i++) {
        kolo_augment_apply(&l->opts.augment, l->opts.seed, epoch, indices[i], info->fields,
                           x + i * bytes, y + i * each, l->work);
    }
    return KOLO_OK;
}

/* Waits for a free slot; false if the loader is being destroyed. */
static bool wait_for_room(kolo_loader *l) {
    pthread_mutex_lock(&l->lock);
    while (!l->stop && l->made - l->used == l->opts.slots) pthread_cond_wait(&l->freed, &l->lock);
    bool go_on = !l->stop;
    pthread_mutex_unlock(&l->lock);
    return go_on;
}

static void *produce(void *arg) {
    kolo_loader *l = arg;
    kolo_status status = KOLO_OK;
    int64_t total = batches_of(l);
    for (int64_t i = 0; i < total && status == KOLO_OK && wait_for_room(l); i++) {
        status = fill(l, l->opts.first + i * l->opts.every, &l->ring[i % l->opts.slots]);
        /* The error text is thread-local, so it is copied for the consumer. */
        char *text = status == KOLO_OK ? NULL : kolo_strdup(kolo_last_error());
        pthread_mutex_lock(&l->lock);
        if (status == KOLO_OK) l->made++;
        l->failed = status;
        l->failed_text = text;
        pthread_cond_signal(&l->filled);
        pthread_mutex_unlock(&l->lock);
    }
    return NULL;
}

/* ---- life ---- */

static kolo_status resolve(const kolo_loader_opts *given, kolo_loader *l) {
    kolo_loader_opts o = *given;
    KOLO_ASSERT(o.dataset != NULL);
    if (o.world == 0) o.world = 1;
    if (o.slots == 0) o.slots = 4;
    if (o.every == 0) o.every = 1;
    if (o.timeout_ms == 0) o.timeout_ms = 300000;
    if (o.world < 1 || o.rank < 0 || o.rank >= o.world) {
        return KOLO_FAIL(KOLO_ERR_ARG, "rank %d outside [0, %d)", o.rank, o.world);
    }
    if (o.global_batch < 1) {
        return KOLO_FAIL(KOLO_ERR_ARG, "global batch %" PRId64 ": choose at least 1",
                         o.global_batch);
    }
    if (o.shards > 0 && (o.global_batch % o.shards != 0 || o.first_shard < 0 ||
                         o.end_shard < o.first_shard || o.end_shard > o.shards)) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "shards %d to %d of %d for a global batch of %" PRId64
                         ": the batch must be a multiple of the shards",
                         o.first_shard, o.end_shard, o.shards, o.global_batch);
    }
    const kolo_dataset_info *info = kolo_dataset_describe(o.dataset);
    const kolo_field *x = &info->fields[KOLO_FIELD_X], *y = &info->fields[KOLO_FIELD_Y];
    if (kolo_augment_any(&o.augment) &&
        (info->n_fields < 2 || x->dtype != KOLO_DTYPE_U8 || x->shape.rank != 3 ||
         x->shape.dim[0] > KOLO_MAX_CHANNELS || y->dtype != KOLO_DTYPE_I32)) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s cannot be augmented: that takes images as the first field, u8 [C,H,W] "
                         "with at most %d channels, and i32 labels as the second",
                         info->name, KOLO_MAX_CHANNELS);
    }
    if (o.augment.least_area > 0 && !o.dataset->crops) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "augment: resized-crop is for images of their own sizes, such as "
                         "folder:DIR, and those of %s have one",
                         info->name);
    }
    if (o.slots < 2 || o.slots > 1024) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%d loader slots: choose 2 to 1024", o.slots);
    }
    if (o.timeout_ms < 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "loader timeout of %" PRId64 " ms: choose at least 1",
                         o.timeout_ms);
    }
    l->order = (kolo_sampler_opts){
        .samples = info->count,
        .global_batch = o.global_batch,
        .seed = o.seed,
        .no_shuffle = o.no_shuffle,
    };
    int64_t steps = kolo_sampler_steps(&l->order);
    if (o.end == 0 && o.first >= 0) o.end = (o.first / steps + 1) * steps;
    if (o.first < 0 || o.end < o.first) {
        return KOLO_FAIL(KOLO_ERR_ARG, "loader steps from %" PRId64 " to %" PRId64, o.first, o.end);
    }
    l->opts = o;
    l->now = l->next = (deal){.first = o.first_shard, .end = o.end_shard};
    return KOLO_OK;
}

static kolo_status make_ring(kolo_loader *l) {
    size_t slots = (size_t)l->opts.slots;
    l->ring = kolo_zalloc(slots * sizeof *l->ring);
    bool augments = kolo_augment_any(&l->opts.augment);
    const kolo_field *fields = kolo_dataset_describe(l->opts.dataset)->fields;
    if (augments) l->work = kolo_alloc(kolo_augment_work(fields));
    if (!l->ring || (augments && !l->work)) return KOLO_NOMEM(slots * sizeof *l->ring);
    for (size_t i = 0; i < slots; i++) KOLO_TRY(reserve(l, &l->ring[i], kolo_loader_largest(l)));
    return KOLO_OK;
}

static kolo_status start(kolo_loader *l) {
    /* Signals are delivered to the program's own threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&l->thread, NULL, produce, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc)
        return KOLO_FAIL(KOLO_ERR_IO, "cannot start the loader thread: %s", kolo_errno_text(rc));
    l->started = true;
    return KOLO_OK;
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
    pthread_cond_init(&l->freed, NULL);
    pthread_condattr_destroy(&clock);

    KOLO_TRY_GOTO(resolve(opts, l), fail);
    KOLO_TRY_GOTO(kolo_sampler_create(&l->order, &l->sampler), fail);
    KOLO_TRY_GOTO(make_ring(l), fail);
    KOLO_TRY_GOTO(start(l), fail);
    *loader = l;
    return KOLO_OK;
fail:
    kolo_loader_destroy(l);
    return status;
}

void kolo_loader_destroy(kolo_loader *loader) {
    if (!loader) return;
    if (loader->started) {
        pthread_mutex_lock(&loader->lock);
        loader->stop = true;
        pthread_cond_signal(&loader->freed);
        pthread_mutex_unlock(&loader->lock);
        pthread_join(loader->thread, NULL);
    }
    pthread_cond_destroy(&loader->freed);
    pthread_cond_destroy(&loader->filled);
    pthread_mutex_destroy(&loader->lock);
    kolo_sampler_destroy(loader->sampler);
    kolo_free(loader->failed_text);
    for (int i = 0; loader->ring && i < loader->opts.slots; i++) {
        for (int f = 0; f < KOLO_MAX_FIELDS; f++) kolo_free(loader->ring[i].data[f]);
    }
    kolo_free(loader->ring);
    kolo_free(loader->work);
    kolo_free(loader);
}

int64_t kolo_loader_steps(const kolo_loader *loader) { return kolo_sampler_steps(&loader->order); }

int64_t kolo_loader_largest(const kolo_loader *loader) {
    return share_of(loader, 0,
                    (deal){.first = loader->opts.first_shard, .end = loader->opts.end_shard})
        .count;
}

void kolo_loader_deal(kolo_loader *l, int64_t from, int first_shard, int end_shard) {
    int64_t number = from - l->opts.first;
    KOLO_ASSERT(l->opts.every == 1);
    KOLO_ASSERT(first_shard >= 0 && first_shard <= end_shard && end_shard <= l->opts.shards);
    pthread_mutex_lock(&l->lock);
    KOLO_ASSERT(number >= l->used + l->opts.slots);
    l->next = (deal){from, first_shard, end_shard};
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

kolo_status kolo_loader_next(kolo_loader *l, kolo_batch *batch) {
    int64_t total = batches_of(l);
    struct timespec deadline = deadline_in(l->opts.timeout_ms);
    kolo_status status = KOLO_OK;
    pthread_mutex_lock(&l->lock);
    if (l->lent) {
        l->used++;
        l->lent = false;
        pthread_cond_signal(&l->freed);
    }
    int64_t number = l->used;
    int rc = 0;
    while (number < total && l->made == number && !l->failed && rc != ETIMEDOUT) {
        rc = pthread_cond_timedwait(&l->filled, &l->lock, &deadline);
    }
    if (number < total && l->made == number) {
        status =
            l->failed
                ? KOLO_FAIL(l->failed, "%s", l->failed_text ? l->failed_text : "the loader failed")
                : KOLO_FAIL(KOLO_ERR_TIMEOUT,
                            "no batch within %" PRId64 " ms: is the storage of %s reachable?",
                            l->opts.timeout_ms, kolo_dataset_describe(l->opts.dataset)->name);
    }
    pthread_mutex_unlock(&l->lock);
    if (status != KOLO_OK) return status;
    if (number == total) {
        *batch = (kolo_batch){0};
    } else {
        l->lent = true;
        *batch = l->ring[number % l->opts.slots].batch;
    }
    return KOLO_OK;
}

/* A device for tests: memory of its own, and a queue of work on a thread of its own, in order.
 *
 * An allocation has two halves of equal size. Its address is that of the first, which nobody may
 * access, so that a pointer of the device faults where the host takes it for its own. The second
 * has the contents; only kernels get its address, and copies and fills, which the thread of the
 * queue executes. A pointer of the host instead of one of the device is a failed assertion. Copies
 * of host memory that is not page-locked block.
 *
 * The lock of a stream guards the queue; the thread is the only one that takes jobs out of it. */
#define _GNU_SOURCE
#include "base/integer.h"
#include "base/memory.h"
#include "base/task.h"
#include "device/device.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { DEVICES = 16, QUEUE = 1024, PAGE = 4096, ERROR_TEXT = 512 };
static const size_t default_bytes = (size_t)8 << 30;

static _Thread_local size_t pinned_bytes;
static _Thread_local uint64_t pinned_failure;

void kolo_device_fake_pin(size_t bytes) { pinned_bytes = bytes; }
void kolo_device_fake_fail(uint64_t nth) { pinned_failure = nth; }

/* ---- memory ---- */

typedef struct block {
    char *at;
    size_t bytes; /* whole pages */
} block;

typedef struct fake {
    kolo_device base;
    block *blocks, *pins; /* of the device; of the host, page-locked */
    size_t n_blocks, cap_blocks, n_pins, cap_pins, total, used;
    uint64_t fails; /* of its streams */
} fake;

static kolo_status open_fake(int number, kolo_device **device) {
    fake *f = kolo_zalloc(sizeof *f);
    if (!f) return KOLO_NOMEM(sizeof *f);
    f->base = (kolo_device){&kolo_device_fake, number};
    f->total = pinned_bytes > 0 ? pinned_bytes : default_bytes;
    f->fails = pinned_failure;
    *device = &f->base;
    return KOLO_OK;
}

static void close_fake(kolo_device *device) {
    fake *f = (fake *)device;
    KOLO_ASSERT(f->n_blocks == 0 && f->n_pins == 0);
    kolo_free(f->blocks);
    kolo_free(f->pins);
    kolo_free(f);
}

static kolo_device_memory memory_of(const kolo_device *device) {
    const fake *f = (const fake *)device;
    return (kolo_device_memory){f->total, f->total - f->used};
}

static size_t size_of(size_t bytes) { return kolo_round_up(bytes ? bytes : 1, PAGE); }

static void *alloc_block(kolo_device *device, size_t bytes) {
    fake *f = (fake *)device;
    if (bytes > f->total - f->used) return NULL;
    const size_t size = size_of(bytes);
    if (size > f->total - f->used) return NULL;
    if (!KOLO_GROW(f->blocks, f->n_blocks, f->cap_blocks)) return NULL;
    char *at = mmap(NULL, 2 * size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return NULL;
    if (mprotect(at + size, size, PROT_READ | PROT_WRITE) != 0) {
        munmap(at, 2 * size);
        return NULL;
    }
    f->blocks[f->n_blocks++] = (block){at, size};
    f->used += size;
    return at;
}

static void free_block(kolo_device *device, void *at, size_t bytes) {
    fake *f = (fake *)device;
    for (size_t i = 0; at && i < f->n_blocks; i++) {
        if (f->blocks[i].at != at) continue;
        KOLO_ASSERT(f->blocks[i].bytes == size_of(bytes));
        munmap(at, 2 * f->blocks[i].bytes);
        f->used -= f->blocks[i].bytes;
        f->blocks[i] = f->blocks[--f->n_blocks];
        return;
    }
    KOLO_ASSERT(!at);
}

static void *contents(const kolo_device *device, void *at) {
    const fake *f = (const fake *)device;
    for (size_t i = 0; i < f->n_blocks; i++) {
        const block *b = &f->blocks[i];
        if ((char *)at >= b->at && (char *)at <= b->at + b->bytes) return (char *)at + b->bytes;
    }
    KOLO_ASSERT(!"memory of the device");
    return NULL;
}

static bool pin_block(kolo_device *device, void *host, size_t bytes) {
    fake *f = (fake *)device;
    if (!KOLO_GROW(f->pins, f->n_pins, f->cap_pins)) return false;
    f->pins[f->n_pins++] = (block){host, bytes};
    return true;
}

static void unpin_block(kolo_device *device, void *host, size_t bytes) {
    fake *f = (fake *)device;
    size_t i = 0;
    while (i < f->n_pins && f->pins[i].at != host) i++;
    KOLO_ASSERT(i < f->n_pins && f->pins[i].bytes == bytes);
    f->pins[i] = f->pins[--f->n_pins];
}

static bool is_pinned(const fake *f, const char *host, size_t bytes) {
    for (size_t i = 0; i < f->n_pins; i++) {
        const block *b = &f->pins[i];
        if (host >= b->at && host + bytes <= b->at + b->bytes) return true;
    }
    return false;
}

/* ---- the queue ---- */

typedef struct job {
    kolo_launched *run; /* NULL: a copy, or with `from` NULL a fill */
    const void *a, *b;
    void *to;
    const void *from;
    size_t bytes;
    int byte;
} job;

typedef struct queue {
    kolo_device_stream base;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* jobs were added, have ended, or `ends` was set */
    job jobs[QUEUE];
    uint64_t added, done;
    bool ends;
    uint64_t fails;         /* number of the operation that fails, from 1; 0: none */
    kolo_status status;     /* of the first operation that failed, */
    char error[ERROR_TEXT]; /* and its text */
} queue;

/* A launch fails by setting the last error of its thread. */
static kolo_status run_job(const job *j, bool fails) {
    const uint64_t errors = kolo_error_count();
    if (fails) {
        return KOLO_FAIL(KOLO_ERR_IO, "a %s of %zu bytes has failed",
                         j->run    ? "launch"
                         : j->from ? "copy"
                                   : "fill",
                         j->bytes);
    }
    if (j->run) {
        j->run(j->a, j->b);
    } else if (j->from) {
        memcpy(j->to, j->from, j->bytes);
    } else {
        memset(j->to, j->byte, j->bytes);
    }
    return kolo_error_count() == errors ? KOLO_OK : KOLO_ERR_ARG;
}

/* What follows a failure is not run, as on a device whose context is lost. */
static void *run_queue(void *arg) {
    queue *q = arg;
    pthread_mutex_lock(&q->lock);
    for (;;) {
        while (q->done == q->added && !q->ends) pthread_cond_wait(&q->changed, &q->lock);
        if (q->done == q->added) break;
        const job *next = &q->jobs[q->done % QUEUE];
        const bool skip = q->status != KOLO_OK, fails = q->done + 1 == q->fails;
        pthread_mutex_unlock(&q->lock);
        const kolo_status status = skip ? KOLO_OK : run_job(next, fails);
        pthread_mutex_lock(&q->lock);
        if (status != KOLO_OK) {
            q->status = status;
            (void)snprintf(q->error, sizeof q->error, "%s", kolo_last_error());
        }
        q->done++;
        pthread_cond_broadcast(&q->changed);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

static kolo_status create(kolo_device *device, kolo_device_stream **stream) {
    queue *q = kolo_zalloc(sizeof *q);
    if (!q) return KOLO_NOMEM(sizeof *q);
    q->base.device = device;
    q->fails = ((fake *)device)->fails;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->changed, NULL);
    if (kolo_thread_create(&q->thread, run_queue, q) != 0) {
        pthread_cond_destroy(&q->changed);
        pthread_mutex_destroy(&q->lock);
        kolo_free(q);
        return KOLO_FAIL(KOLO_ERR_NOMEM, "cannot start the thread of a fake device");
    }
    *stream = &q->base;
    return KOLO_OK;
}

static void destroy(kolo_device_stream *stream) {
    queue *q = (queue *)stream;
    pthread_mutex_lock(&q->lock);
    q->ends = true;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
    pthread_join(q->thread, NULL);
    pthread_cond_destroy(&q->changed);
    pthread_mutex_destroy(&q->lock);
    kolo_free(q);
}

static void add(kolo_device_stream *stream, job j) {
    queue *q = (queue *)stream;
    pthread_mutex_lock(&q->lock);
    while (q->added - q->done == QUEUE) pthread_cond_wait(&q->changed, &q->lock);
    q->jobs[q->added++ % QUEUE] = j;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
}

static void fill(kolo_device_stream *stream, void *at, int byte, size_t bytes) {
    if (bytes == 0) return;
    add(stream, (job){.to = contents(stream->device, at), .byte = byte, .bytes = bytes});
}

static void launch(kolo_device_stream *stream, kolo_launched *run, const void *a, const void *b) {
    add(stream, (job){.run = run, .a = a, .b = b});
}

static kolo_event record(kolo_device_stream *stream) {
    queue *q = (queue *)stream;
    return q->added; /* written by this thread alone */
}

static bool query(kolo_device_stream *stream, kolo_event event) {
    queue *q = (queue *)stream;
    pthread_mutex_lock(&q->lock);
    const bool ended = q->done >= event;
    pthread_mutex_unlock(&q->lock);
    return ended;
}

static void wait_for(kolo_device_stream *stream, kolo_event event) {
    queue *q = (queue *)stream;
    pthread_mutex_lock(&q->lock);
    while (q->done < event) pthread_cond_wait(&q->changed, &q->lock);
    pthread_mutex_unlock(&q->lock);
}

static void copy(kolo_device_stream *stream, kolo_copy_kind kind, void *to, const void *from,
                 size_t bytes) {
    const kolo_device *device = stream->device;
    const void *host = kind == KOLO_COPY_TO_HOST ? to : from;
    if (bytes == 0) return;
    if (kind != KOLO_COPY_TO_HOST) to = contents(device, to);
    if (kind != KOLO_COPY_TO_DEVICE) from = contents(device, (void *)(uintptr_t)from);
    add(stream, (job){.to = to, .from = from, .bytes = bytes});
    if (kind == KOLO_COPY_ON_DEVICE || is_pinned((const fake *)device, host, bytes)) return;
    wait_for(stream, record(stream));
}

static kolo_status error_of(kolo_device_stream *stream) {
    queue *q = (queue *)stream;
    pthread_mutex_lock(&q->lock);
    const kolo_status status = q->status;
    pthread_mutex_unlock(&q->lock);
    return status == KOLO_OK ? KOLO_OK : KOLO_FAIL(status, "%s", q->error); /* written once */
}

const kolo_device_kind kolo_device_fake = {
    .name = "fake",
    .hidden = true,
    .host_kernels = true,
    .count = DEVICES,
    .open = open_fake,
    .close = close_fake,
    .memory = memory_of,
    .alloc = alloc_block,
    .free = free_block,
    .kernel_address = contents,
    .pin = pin_block,
    .unpin = unpin_block,
    .stream = {create, destroy, copy, fill, launch, record, query, wait_for, error_of},
};

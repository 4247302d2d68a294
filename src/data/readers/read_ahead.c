/* Reading ahead: a list of announced samples under one lock, and threads that read them. */
#include "data/readers/read_ahead.h"

#include "base/clock.h"
#include "base/integer.h"
#include "base/memory.h"
#include "base/task.h"

#include <string.h>

enum { MOST_SAMPLES = 512, MOST_THREADS = 64 };
static const int64_t slow_ns = 2000000;

typedef enum state { WAITS, IS_READ, IS_THERE } state;

typedef struct sample {
    int64_t index;
    state state;
    kolo_status status;
    char *error; /* of the thread that read it */
    kolo_encoded files[KOLO_READ_AHEAD_FILES];
} sample;

struct kolo_read_ahead {
    kolo_read_files *read;
    const void *arg;
    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t more;  /* samples wait, or the end */
    pthread_cond_t there; /* a sample is there */
    sample *samples[MOST_SAMPLES];
    int count;   /* in the order in which they were announced */
    int waiting; /* of them */
    int64_t read_by_threads;
    pthread_t threads[MOST_THREADS];
    int started;
    bool stop;
};

static void free_files(kolo_encoded *files) {
    for (int i = 0; i < KOLO_READ_AHEAD_FILES; i++) {
        kolo_free(files[i].name);
        kolo_free(files[i].bytes);
        files[i] = (kolo_encoded){0};
    }
}

static void free_sample(sample *s) {
    free_files(s->files);
    kolo_free(s->error);
    kolo_free(s);
}

/* ---- threads; under lock ---- */

static sample *find(const kolo_read_ahead *a, int64_t index) {
    for (int i = 0; i < a->count; i++) {
        if (a->samples[i]->index == index) return a->samples[i];
    }
    return NULL;
}

static void leave_out(kolo_read_ahead *a, int i) {
    a->count--;
    memmove(a->samples + i, a->samples + i + 1, (size_t)(a->count - i) * sizeof *a->samples);
}

static void forget(kolo_read_ahead *a, const sample *s) {
    for (int i = 0; i < a->count; i++) {
        if (a->samples[i] == s) leave_out(a, i);
    }
}

static sample *next_waiting(const kolo_read_ahead *a) {
    for (int i = 0; i < a->count && a->waiting > 0; i++) {
        if (a->samples[i]->state == WAITS) return a->samples[i];
    }
    return NULL;
}

static void *run(void *arg) {
    kolo_read_ahead *a = arg;
    pthread_mutex_lock(&a->lock);
    while (!a->stop) {
        sample *s = next_waiting(a);
        if (!s) {
            pthread_cond_wait(&a->more, &a->lock);
            continue;
        }
        s->state = IS_READ;
        a->waiting--;
        pthread_mutex_unlock(&a->lock);
        s->status = a->read(a->arg, s->index, s->files);
        if (s->status != KOLO_OK) s->error = kolo_strdup(kolo_last_error());
        pthread_mutex_lock(&a->lock);
        s->state = IS_THERE;
        a->read_by_threads++;
        pthread_cond_broadcast(&a->there);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

/* Storage was slow: twice as many threads, if they have something to read. Without a thread samples
 * are read by those who need them. */
static void add_threads(kolo_read_ahead *a) {
    const int wanted = a->waiting > 0 ? (int)kolo_min_i64(2 * a->started + 1, MOST_THREADS) : 0;
    while (a->started < wanted) {
        if (kolo_thread_create(&a->threads[a->started], run, a) != 0) return;
        a->started++;
    }
}

/* ---- interface ---- */

kolo_status kolo_read_ahead_create(kolo_read_files *read, const void *arg,
                                   kolo_read_ahead **ahead) {
    kolo_read_ahead *a = kolo_zalloc(sizeof *a);
    if (!a) return KOLO_NOMEM(sizeof *a);
    a->read = read;
    a->arg = arg;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->more, NULL);
    pthread_cond_init(&a->there, NULL);
    *ahead = a;
    return KOLO_OK;
}

void kolo_read_ahead_destroy(kolo_read_ahead *a) {
    if (!a) return;
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_broadcast(&a->more);
    pthread_mutex_unlock(&a->lock);
    for (int i = 0; i < a->started; i++) pthread_join(a->threads[i], NULL);
    for (int i = 0; i < a->count; i++) free_sample(a->samples[i]);
    pthread_cond_destroy(&a->there);
    pthread_cond_destroy(&a->more);
    pthread_mutex_destroy(&a->lock);
    kolo_free(a);
}

/* Makes room: samples that are there and that no thread has taken may have become those of another
 * worker. */
static bool make_room(kolo_read_ahead *a) {
    for (int i = 0; i < a->count && a->count == MOST_SAMPLES; i++) {
        if (a->samples[i]->state != IS_THERE) continue;
        free_sample(a->samples[i]);
        leave_out(a, i);
    }
    return a->count < MOST_SAMPLES;
}

void kolo_read_ahead_announce(kolo_read_ahead *a, const int64_t *indices, int64_t n) {
    pthread_mutex_lock(&a->lock);
    for (int64_t i = 0; i < n; i++) {
        if (find(a, indices[i])) continue;
        sample *s = make_room(a) ? kolo_zalloc(sizeof *s) : NULL;
        if (!s) break;
        s->index = indices[i];
        a->samples[a->count++] = s;
        a->waiting++;
    }
    if (a->started > 0) pthread_cond_broadcast(&a->more);
    pthread_mutex_unlock(&a->lock);
}

kolo_status kolo_read_ahead_take(kolo_read_ahead *a, int64_t index, kolo_encoded *files) {
    const int64_t begun = kolo_now_ns();
    kolo_status status;
    pthread_mutex_lock(&a->lock);
    sample *s = find(a, index);
    while (s && s->state == IS_READ) { /* others may take it, or need its room, meanwhile */
        pthread_cond_wait(&a->there, &a->lock);
        s = find(a, index);
    }
    if (!s || s->state == WAITS) {
        if (s) {
            a->waiting--;
            forget(a, s);
            free_sample(s);
        }
        pthread_mutex_unlock(&a->lock);
        status = a->read(a->arg, index, files);
        if (kolo_now_ns() - begun < slow_ns) return status;
        pthread_mutex_lock(&a->lock);
        add_threads(a);
        pthread_mutex_unlock(&a->lock);
        return status;
    }
    forget(a, s);
    if (kolo_now_ns() - begun >= slow_ns) add_threads(a);
    pthread_mutex_unlock(&a->lock);
    status = s->status == KOLO_OK ? KOLO_OK : KOLO_FAIL(s->status, "%s", s->error ? s->error : "");
    memcpy(files, s->files, sizeof s->files);
    memset(s->files, 0, sizeof s->files);
    free_sample(s);
    return status;
}

void kolo_read_ahead_count(kolo_read_ahead *a, int *threads, int64_t *samples) {
    pthread_mutex_lock(&a->lock);
    *threads = a->started;
    *samples = a->read_by_threads;
    pthread_mutex_unlock(&a->lock);
}

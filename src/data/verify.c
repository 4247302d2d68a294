/* Reading all samples of a data set: by threads, a block after the other, so that lines on samples
 * that cannot be read are in the order of the data set. */
#include "base/file.h"
#include "base/integer.h"
#include "base/memory.h"
#include "base/task.h"
#include "data/batch.h"
#include "data/dataset.h"
#include "data/sampler.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>

enum { BLOCK = 1024, MOST_THREADS = 256 };

typedef struct verifier {
    const kolo_dataset *dataset;
    int64_t first, count; /* of the block */
    atomic_llong next;    /* sample of the block that no thread reads yet */
    char *lines[BLOCK];   /* errors of samples; of the thread that reads the sample */
} verifier;

typedef struct reader {
    verifier *all;
    pthread_t thread;
    void *data[KOLO_MAX_FIELDS]; /* of one sample */
    kolo_status failed;          /* an error that is not of a sample */
    char *why;
} reader;

static bool is_of_sample(kolo_status status) {
    return status == KOLO_ERR_FORMAT || status == KOLO_ERR_IO || status == KOLO_ERR_ARG;
}

/* The text of an error is thread-local. */
static void fail(reader *r, kolo_status status) {
    r->failed = status;
    r->why = kolo_strdup(kolo_last_error());
}

static void *read_block(void *arg) {
    reader *r = arg;
    verifier *v = r->all;
    while (r->failed == KOLO_OK) {
        const int64_t i = atomic_fetch_add(&v->next, 1);
        if (i >= v->count) break;
        const int64_t index = v->first + i;
        const kolo_draw all = {.whole = true};
        kolo_status status = kolo_dataset_gather_for(v->dataset, &index, 1, &all, r->data);
        if (status == KOLO_OK) continue;
        if (is_of_sample(status)) v->lines[i] = kolo_strdup(kolo_last_error());
        if (!is_of_sample(status) || !v->lines[i]) fail(r, status);
    }
    return NULL;
}

/* Reads a block with all readers; this thread is the first of them. */
static kolo_status read_by(reader *readers, int n) {
    int started = 1, rc = 0;
    while (started < n && rc == 0) {
        rc = kolo_thread_create(&readers[started].thread, read_block, &readers[started]);
        if (rc == 0) started++;
    }
    if (rc == 0) read_block(&readers[0]);
    for (int i = 1; i < started; i++) pthread_join(readers[i].thread, NULL);
    if (rc == 0) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_IO, "cannot start a thread: %s", kolo_errno_text(rc));
}

static kolo_status verify(verifier *v, reader *readers, int n, const kolo_verify_opts *o,
                          int64_t *damaged) {
    const int64_t count = v->dataset->info.count;
    for (v->first = 0; v->first < count; v->first += BLOCK) {
        v->count = kolo_min_i64(count - v->first, BLOCK);
        atomic_store(&v->next, 0);
        KOLO_TRY(read_by(readers, n));
        for (int64_t i = 0; i < v->count; i++) {
            if (!v->lines[i]) continue;
            char line[1024];
            snprintf(line, sizeof line, "sample %" PRId64 ": %s", v->first + i, v->lines[i]);
            if (o->report) o->report(o->arg, line);
            kolo_free(v->lines[i]);
            v->lines[i] = NULL;
            ++*damaged;
        }
        for (int i = 0; i < n; i++) {
            if (readers[i].failed == KOLO_OK) continue;
            return KOLO_FAIL(readers[i].failed, "%s",
                             readers[i].why ? readers[i].why : "no memory");
        }
    }
    return KOLO_OK;
}

static kolo_status make_room(reader *r, const kolo_dataset_info *info) {
    for (int f = 0; f < info->n_fields; f++) {
        const size_t bytes = kolo_field_bytes(&info->fields[f]);
        r->data[f] = kolo_alloc(bytes);
        if (!r->data[f]) return KOLO_NOMEM(bytes);
    }
    return KOLO_OK;
}

kolo_status kolo_dataset_verify(const kolo_dataset *dataset, const kolo_verify_opts *opts,
                                int64_t *damaged) {
    const kolo_verify_opts o = opts ? *opts : (kolo_verify_opts){0};
    const int n = o.threads > 0 ? o.threads : 1;
    int64_t found = 0;
    if (!dataset || !damaged || o.threads < 0 || n > MOST_THREADS) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "to verify takes a data set, a place for the number of damaged samples "
                         "and at most %d threads",
                         MOST_THREADS);
    }
    KOLO_TRY(kolo_dataset_refuse_stream(dataset, "verifying"));
    verifier *v = kolo_zalloc(sizeof *v);
    reader *readers = kolo_zalloc((size_t)n * sizeof *readers);
    kolo_status status = v && readers ? KOLO_OK : KOLO_NOMEM((size_t)n * sizeof *readers);
    for (int i = 0; i < n && status == KOLO_OK; i++) {
        readers[i].all = v;
        status = make_room(&readers[i], &dataset->info);
    }
    if (status == KOLO_OK) {
        v->dataset = dataset;
        status = verify(v, readers, n, &o, &found);
    }
    for (int i = 0; readers && i < n; i++) {
        for (int f = 0; f < KOLO_MAX_FIELDS; f++) kolo_free(readers[i].data[f]);
        kolo_free(readers[i].why);
    }
    for (int64_t i = 0; v && i < BLOCK; i++) kolo_free(v->lines[i]);
    kolo_free(readers);
    kolo_free(v);
    if (status == KOLO_OK) *damaged = found;
    return status;
}

kolo_status kolo_dataset_order(const kolo_dataset *dataset, uint64_t seed, int64_t epoch, int64_t n,
                               int64_t *indices) {
    kolo_sampler *sampler;
    if (!dataset || epoch < 0 || n < 0 || n > dataset->info.count) {
        return KOLO_FAIL(KOLO_ERR_ARG, "the first %" PRId64 " samples of epoch %" PRId64 "%s", n,
                         epoch, dataset ? ": the data set has fewer, or none" : " of no data set");
    }
    KOLO_TRY(kolo_dataset_refuse_stream(dataset, "an order of samples"));
    const kolo_sampler_opts opts = {
        .samples = dataset->info.count, .global_batch = 1, .seed = seed};
    KOLO_TRY(kolo_sampler_create(&opts, &sampler));
    kolo_sampler_take(sampler, epoch, 0, n, indices);
    kolo_sampler_destroy(sampler);
    return KOLO_OK;
}

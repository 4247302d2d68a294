/* What the stages of a loader cost, in processor time: samples of one epoch after the other, on
 * this thread; and how many a loader with threads gives. */
#include "base/clock.h"
#include "base/integer.h"
#include "base/memory.h"
#include "data/dataset.h"
#include "data/mix.h"
#include "data/normalize.h"
#include "data/prefetch.h"
#include "data/sampler.h"
#include "data/stage_time.h"

#include <time.h>

enum { DEFAULT_BATCH = 64, DEFAULT_MS = 1000 };

typedef struct bench {
    const kolo_dataset *dataset;
    kolo_loader_bench_opts opts; /* resolved */
    kolo_augment augment;
    kolo_sampler *sampler;
    int64_t *indices;
    void *data[KOLO_MAX_FIELDS];
    uint8_t *scratch;
    float *input;   /* the samples as a network reads them */
    float *targets; /* of mixed samples; NULL: they are not mixed */
    int64_t ns[KOLO_STAGE_TIMES];
} bench;

static void bench_fini(bench *b) {
    for (int f = 0; f < KOLO_MAX_FIELDS; f++) kolo_free(b->data[f]);
    kolo_free(b->scratch);
    kolo_free(b->input);
    kolo_free(b->targets);
    kolo_free(b->indices);
    kolo_sampler_destroy(b->sampler);
}

static kolo_status bench_init(bench *b) {
    const kolo_dataset_info *info = kolo_dataset_describe(b->dataset);
    const bool mixes = kolo_augment_mixes(&b->augment);
    const size_t n = (size_t)b->opts.batch + mixes; /* one more to mix with */
    const kolo_sampler_opts order = {.samples = info->count, .global_batch = b->opts.batch};
    b->indices = kolo_alloc(n * sizeof *b->indices);
    if (!b->indices) return KOLO_NOMEM(n * sizeof *b->indices);
    for (int f = 0; f < info->n_fields; f++) {
        const size_t bytes = n * kolo_field_bytes(&info->fields[f]);
        b->data[f] = kolo_alloc(bytes);
        if (!b->data[f]) return KOLO_NOMEM(bytes);
    }
    if (info->fields[0].dtype == KOLO_DTYPE_U8) {
        const size_t bytes = n * kolo_field_bytes(&info->fields[0]) * sizeof(float);
        b->input = kolo_alloc(bytes);
        b->scratch = kolo_alloc(kolo_augment_work(info->fields));
        if (!b->input || !b->scratch) return KOLO_NOMEM(bytes);
    }
    if (mixes) {
        b->targets = kolo_alloc(n * (size_t)info->classes * sizeof *b->targets);
        if (!b->targets) return KOLO_NOMEM(n * (size_t)info->classes * sizeof *b->targets);
    }
    return kolo_sampler_create(&order, &b->sampler);
}

/* The loader's own call, on the thread that completes a batch; the sample before it is its last. */
static kolo_status mix_batch(const bench *b, int64_t epoch, const int64_t *indices, int64_t n) {
    const kolo_dataset_info *info = kolo_dataset_describe(b->dataset);
    const kolo_mix_batch batch = {
        .augment = &b->augment,
        .epoch = epoch,
        .count = n,
        .total = n,
        .classes = info->classes,
        .image = &info->fields[KOLO_FIELD_X].shape,
        .indices = indices,
        .used = indices,
        .images = b->data[KOLO_FIELD_X],
        .labels = b->data[KOLO_FIELD_Y],
        .targets = b->targets,
    };
    return kolo_mix_apply_batch(&batch);
}

static kolo_status run_batch(bench *b, int64_t epoch, const int64_t *indices, int64_t n) {
    const kolo_field *x = &kolo_dataset_describe(b->dataset)->fields[KOLO_FIELD_X];
    const kolo_draw draw = {.augment = &b->augment, .epoch = epoch, .stage_ns = b->ns};
    const bool reads = !b->dataset->encoded; /* else it adds the times of its stages */
    int64_t since = 0;
    kolo_stage_time_add(b->ns, KOLO_LOADER_READ, &since);
    KOLO_TRY(kolo_dataset_gather_for(b->dataset, indices, n, &draw, b->data));
    if (!reads) since = 0;
    kolo_stage_time_add(b->ns, KOLO_LOADER_READ, &since);
    if (!b->input) return KOLO_OK;
    for (int64_t i = 0; i < n && kolo_augment_any(&b->augment); i++) {
        uint8_t *sample = (uint8_t *)b->data[KOLO_FIELD_X] + (size_t)i * kolo_field_bytes(x);
        int32_t *labels = (int32_t *)b->data[KOLO_FIELD_Y] + i * kolo_shape_count(&x[1].shape);
        kolo_augment_apply(&b->augment, 0, epoch, indices[i], x, sample, labels, b->scratch);
    }
    kolo_stage_time_add(b->ns, KOLO_LOADER_AUGMENT, &since);
    if (b->targets) {
        KOLO_TRY(mix_batch(b, epoch, indices, n));
        kolo_stage_time_add(b->ns, KOLO_LOADER_MIX, &since);
    }
    kolo_normalize(x, b->data[KOLO_FIELD_X], n, KOLO_NHWC, b->input);
    kolo_stage_time_add(b->ns, KOLO_LOADER_CONVERT, &since);
    return KOLO_OK;
}

static kolo_status run_stages(bench *b, kolo_loader_bench *result) {
    const int64_t count = kolo_dataset_describe(b->dataset)->count, start = kolo_now_ns();
    kolo_stage_time_init(b->ns);
    for (int64_t epoch = 0;; epoch++) {
        for (int64_t i = 0; i < count; i += b->opts.batch) {
            const int64_t n = kolo_min_i64(b->opts.batch, count - i);
            kolo_sampler_take(b->sampler, epoch, i, n, b->indices);
            KOLO_TRY(run_batch(b, epoch, b->indices, n));
            result->samples += n;
            if (kolo_now_ns() - start < b->opts.budget_ms * 1000000) continue;
            for (int s = 0; s < KOLO_LOADER_STAGES; s++)
                result->seconds[s] = (double)b->ns[s] / 1e9;
            return KOLO_OK;
        }
    }
}

/* Processor time of all threads. */
static double process_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* What a loader gives to a consumer that does nothing else, and what it takes. Both are read when a
 * batch has just been completed: the next one has hardly begun. */
static kolo_status run_loader(const bench *b, kolo_loader_bench *result) {
    kolo_loader *loader;
    kolo_batch batch;
    int64_t samples = 0, start = 0, ns = 0;
    const kolo_loader_opts opts = {.dataset = b->dataset,
                                   .global_batch = b->opts.batch,
                                   .end = (int64_t)1 << 40,
                                   .threads = b->opts.threads,
                                   .augment = b->augment};
    KOLO_TRY(kolo_loader_create(&opts, &loader));
    kolo_status status = kolo_loader_next(loader, &batch); /* threads have begun */
    start = kolo_now_ns();
    const double used = process_seconds();
    while (status == KOLO_OK && ns < b->opts.budget_ms * 1000000) {
        status = kolo_loader_next(loader, &batch);
        samples += batch.count;
        ns = kolo_now_ns() - start;
    }
    result->loader_seconds_per_sample = (process_seconds() - used) / (double)samples;
    kolo_loader_destroy(loader);
    result->loader_samples_per_second = (double)samples / ((double)ns / 1e9);
    return status;
}

const char *kolo_loader_stage_name(kolo_loader_stage stage) {
#define NAME(code, name, help) name,
    static const char *const names[] = {KOLO_LOADER_STAGE_LIST(NAME)};
#undef NAME
    return (unsigned)stage < KOLO_LOADER_STAGES ? names[stage] : "unknown";
}

kolo_status kolo_bench_loader(const kolo_dataset *dataset, const kolo_loader_bench_opts *opts,
                              kolo_loader_bench *result) {
    bench b = {.dataset = dataset, .opts = opts ? *opts : (kolo_loader_bench_opts){0}};
    kolo_loader_bench r = {0};
    if (b.opts.batch == 0) b.opts.batch = DEFAULT_BATCH;
    if (b.opts.budget_ms == 0) b.opts.budget_ms = DEFAULT_MS;
    if (b.opts.threads == 0) b.opts.threads = 1;
    if (!dataset || b.opts.batch < 1 || b.opts.budget_ms < 1) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "a benchmark of a loader needs a data set, a batch and time");
    }
    KOLO_TRY(kolo_dataset_refuse_stream(dataset, "a benchmark of a loader"));
    KOLO_TRY(kolo_augment_parse(b.opts.augment, &b.augment));
    /* The loader comes first: it checks the options. */
    kolo_status status = run_loader(&b, &r);
    if (status == KOLO_OK) status = bench_init(&b);
    if (status == KOLO_OK) status = run_stages(&b, &r);
    bench_fini(&b);
    if (status == KOLO_OK) *result = r;
    return status;
}

/* Speed and error of codecs; see kolo/bench.h. */
#include "base/clock.h"
#include "base/integer.h"
#include "base/memory.h"
#include "base/rng.h"
#include "comm/codec/speed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TIMES_MOST = 4096, TIMES_LEAST = 5, ERROR_COUNT = 1 << 18, FEEDBACK_ROUNDS = 64 };

typedef struct codec_bench {
    const kolo_codec *codec;
    size_t count, code_bytes;
    float *values, *residual, *sum;
    void *code;
} codec_bench;

/* Random vector number `round`. */
static void fill(float *values, size_t n, uint64_t round) {
    kolo_rng rng = kolo_rng_make(1, KOLO_RNG_BENCH, round);
    for (size_t i = 0; i < n; i++) values[i] = kolo_rng_normal(&rng, i);
}

static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static double gigabytes_per_s(const codec_bench *b, int64_t *times, int n) {
    qsort(times, (size_t)n, sizeof *times, ascending);
    double median = (double)kolo_max_i64(times[n / 2], 1);
    return (double)(b->count * sizeof(float)) / median;
}

static kolo_status measure(const codec_bench *b, int64_t budget_ns, kolo_bench_codec_row *row) {
    int64_t *times = kolo_alloc((size_t)2 * TIMES_MOST * sizeof *times);
    if (!times) return KOLO_NOMEM(2 * TIMES_MOST * sizeof *times);
    int64_t *encode = times, *decode = times + TIMES_MOST, until_ns = 0;
    kolo_status status = KOLO_OK;
    int n = -1; /* the first round warms up */
    for (; n < TIMES_MOST && (n < TIMES_LEAST || kolo_now_ns() < until_ns); n++) {
        int64_t start_ns = kolo_now_ns();
        KOLO_TRY_GOTO(
            kolo_codec_encode(b->codec, b->values, b->count, b->residual, b->code, b->code_bytes),
            done);
        int64_t middle_ns = kolo_now_ns();
        KOLO_TRY_GOTO(kolo_codec_add(b->codec, b->code, b->code_bytes, b->sum, b->count, 1), done);
        int64_t end_ns = kolo_now_ns();
        if (n < 0) {
            until_ns = end_ns + budget_ns;
        } else {
            encode[n] = middle_ns - start_ns;
            decode[n] = end_ns - middle_ns;
        }
    }
    row->encode_gigabytes_per_s = gigabytes_per_s(b, encode, n);
    row->decode_gigabytes_per_s = gigabytes_per_s(b, decode, n);
done:
    kolo_free(times);
    return status;
}

/* Errors on the first elements: of one vector, and of sums with error feedback. */
static kolo_status measure_error(codec_bench b, kolo_bench_codec_row *row) {
    if (b.count > ERROR_COUNT) b.count = ERROR_COUNT;
    b.code_bytes = kolo_codec_bytes(b.codec, b.count);
    double *exact = kolo_zalloc(b.count * sizeof *exact);
    if (!exact) return KOLO_NOMEM(b.count * sizeof *exact);
    memset(b.residual, 0, b.count * sizeof(float));
    memset(b.sum, 0, b.count * sizeof(float));
    kolo_status status = KOLO_OK;
    for (int round = 0; round < FEEDBACK_ROUNDS; round++) {
        fill(b.values, b.count, (uint64_t)round);
        KOLO_TRY_GOTO(
            kolo_codec_encode(b.codec, b.values, b.count, b.residual, b.code, b.code_bytes), done);
        KOLO_TRY_GOTO(kolo_codec_add(b.codec, b.code, b.code_bytes, b.sum, b.count, 1), done);
        double off = 0, norm = 0;
        for (size_t i = 0; i < b.count; i++) {
            exact[i] += (double)b.values[i];
            off += (exact[i] - (double)b.sum[i]) * (exact[i] - (double)b.sum[i]);
            norm += exact[i] * exact[i];
        }
        row->error_feedback = sqrt(off / norm);
        if (round == 0) row->error = row->error_feedback;
    }
done:
    kolo_free(exact);
    return status;
}

static kolo_status run(const kolo_codec *codec, size_t count, int64_t budget_ms, bool errors,
                       kolo_bench_codec_row *row) {
    if (count == 0 || count > SIZE_MAX / 64 || budget_ms < 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "codec benchmark of %zu floats for %lld ms: out of range",
                         count, (long long)budget_ms);
    }
    size_t bytes = count * sizeof(float);
    codec_bench b = {.codec = codec, .count = count};
    KOLO_TRY(kolo_codec_encode(codec, NULL, 0, NULL, NULL, 0)); /* checks the codec */
    b.code_bytes = kolo_codec_bytes(codec, count);
    b.values = kolo_pages_map(3 * bytes);
    b.code = kolo_pages_map(b.code_bytes);
    kolo_status status = KOLO_OK;
    kolo_bench_codec_row r = {.bytes = bytes, .code_bytes = b.code_bytes};
    if (!b.values || !b.code) {
        status = KOLO_NOMEM(3 * bytes);
    } else {
        b.residual = b.values + count;
        b.sum = b.residual + count;
        fill(b.values, count, 0);
        status = measure(&b, kolo_ms_to_ns(budget_ms ? budget_ms : 500), &r);
        if (status == KOLO_OK && errors) status = measure_error(b, &r);
    }
    kolo_pages_unmap(b.values, 3 * bytes);
    kolo_pages_unmap(b.code, b.code_bytes);
    if (status == KOLO_OK) *row = r;
    return status;
}

kolo_status kolo_bench_codec(const kolo_codec *codec, size_t count, int64_t budget_ms,
                             kolo_bench_codec_row *row) {
    return run(codec, count, budget_ms, true, row);
}

kolo_status kolo_bench_codec_speed(const kolo_codec *codec, size_t count, int64_t budget_ms,
                                   kolo_bench_codec_row *row) {
    return run(codec, count, budget_ms, false, row);
}

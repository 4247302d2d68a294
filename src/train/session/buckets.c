/* Buckets of gradients, or what of them is compressed, by measured times.
 *
 * The first steps run plans with a bucket for each gradient, whose POSTs show when the backward
 * pass completes it. Then the ranks measure sums of a few sizes, rank 0 computes the best buckets
 * (pass/bucket_plan.h) or where compression pays (compression.c), and all ranks compile their plans
 * with these. */
#include "train/session/buckets.h"

#include "base/clock.h"
#include "base/option.h"
#include "base/text.h"
#include "train/session/agree.h"
#include "train/session/compression.h"
#include "train/session/internal.h"
#include "train/session/sum_time.h"

#include <math.h>

enum { WARM_UP = 1 /* step */, SUM_MS = 50 /* to measure sums of one size */ };

/* ---- sizes ---- */

/* The number of sizes; 0: not a list of positive ones. `sizes` NULL: counts them. */
static int read_sizes(const char *text, size_t *sizes) {
    int n = 0;
    for (const char *at = text;; n++) {
        char one[32];
        int64_t bytes;
        const size_t length = strcspn(at, ",");
        if (length >= sizeof one) return 0;
        memcpy(one, at, length);
        one[length] = '\0';
        if (!kolo_parse_bytes(one, &bytes) || bytes < 1) return 0;
        if (sizes) sizes[n] = (size_t)bytes;
        at += length;
        if (!*at++) return n + 1;
    }
}

kolo_status kolo_bucket_sizes_parse(const char *text, size_t **sizes, int *n) {
    const int count = read_sizes(text, NULL);
    if (count == 0) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "buckets \"%s\": must be auto or the bytes of each, such as 1M,400K",
                         text);
    }
    size_t *list = kolo_alloc((size_t)count * sizeof *list);
    if (!list) return KOLO_NOMEM((size_t)count * sizeof *list);
    *n = read_sizes(text, list);
    *sizes = list;
    return KOLO_OK;
}

/* ---- measurement ---- */

/* Keeps the least times of a few steps. */
kolo_status kolo_session_measure_buckets(kolo_session *s, const cached *finish) {
    kolo_bucket_search *b = &s->buckets;
    if (!b->measures || finish != s->plans[0] || b->steps == KOLO_BUCKETS_STEPS) return KOLO_OK;
    const size_t bytes = ((size_t)kolo_plan_n_requests(finish->plan) + 1) * sizeof *b->gradients;
    kolo_ready_gradient *now = kolo_zalloc(bytes);
    if (!b->gradients) b->gradients = kolo_zalloc(bytes);
    if (!now || !b->gradients) {
        kolo_free(now);
        return KOLO_NOMEM(bytes);
    }
    b->n = kolo_plan_list_gradients(finish->plan, now);
    for (int i = 0; i < b->n; i++) {
        if (b->steps > WARM_UP) now[i].ready_ms = fmin(now[i].ready_ms, b->gradients[i].ready_ms);
        b->gradients[i] = now[i];
    }
    b->steps++;
    kolo_free(now);
    return KOLO_OK;
}

/* A POST may also wait for the last reader of a parameter, and a forward pass may read parameters
 * in another order than that in which the backward pass completes their gradients. */
static void put_in_order(kolo_bucket_search *b) {
    for (int i = 1; i < b->n; i++) {
        kolo_ready_gradient *g = &b->gradients[i];
        g->ready_ms = fmax(g->ready_ms, g[-1].ready_ms);
        g->needed_ms = fmin(g->needed_ms, g[-1].needed_ms);
    }
}

/* The most buckets that can have priorities, where these matter. */
static int most_of(const kolo_bucket_search *b) {
    return b->n > 0 && b->gradients[0].needed_ms > 0 ? KOLO_BUCKETS_MOST : b->n;
}

/* Rank 0: the best sizes. */
static kolo_status find_sizes(kolo_bucket_search *b, uint64_t *n) {
    bool *ends = kolo_alloc((size_t)b->n + 1);
    if (!ends) return KOLO_NOMEM((size_t)b->n + 1);
    put_in_order(b);
    kolo_status status = kolo_bucket_plan_best(b->gradients, b->n, most_of(b), &b->sum, ends);
    *n = 0;
    for (int i = 0; i < b->n && status == KOLO_OK; i++) {
        b->sizes[*n] += b->gradients[i].bytes;
        *n += ends[i];
    }
    kolo_free(ends);
    return status;
}

/* Gives all ranks the sizes of rank 0. */
static kolo_status agree_on_sizes(kolo_session *s) {
    kolo_bucket_search *b = &s->buckets;
    uint64_t n = 0;
    b->sizes = kolo_zalloc(((size_t)b->n + 1) * sizeof *b->sizes);
    kolo_status status = b->sizes ? KOLO_OK : KOLO_NOMEM((size_t)b->n * sizeof *b->sizes);
    if (status == KOLO_OK && rank_of(s) == 0) status = find_sizes(b, &n);
    KOLO_TRY(kolo_agree(s->comm, status));
    KOLO_TRY(kolo_broadcast(s->comm, &n, sizeof n, KOLO_DTYPE_U8, 0));
    KOLO_TRY(kolo_broadcast(s->comm, b->sizes, n * sizeof *b->sizes, KOLO_DTYPE_U8, 0));
    s->opts.plan.bucket_sizes = b->sizes;
    s->opts.plan.n_bucket_sizes = (int)n;
    return KOLO_OK;
}

bool kolo_session_has_measured_buckets(const kolo_session *s) {
    return s->buckets.measures && s->buckets.steps == KOLO_BUCKETS_STEPS;
}

kolo_status kolo_session_choose_buckets(kolo_session *s) {
    kolo_bucket_search *b = &s->buckets;
    const int64_t begin = kolo_now_ns();
    KOLO_TRY(kolo_session_consolidate(s)); /* with the plans that deferred updates */
    b->measures = false;
    if (!s->opts.costs) {
        KOLO_TRY(kolo_sum_time_measure(s->comm, s->opts.plan.algorithm, SUM_MS, &b->sum));
    }
    KOLO_TRY(s->opts.measure_compression ? kolo_session_choose_compression(s) : agree_on_sizes(s));
    b->seconds = (double)(kolo_now_ns() - begin) * 1e-9;
    return kolo_session_replan(s);
}

/* "bf16,only=fc1.weight (a step's sums end ...)". */
static void describe_compression(const kolo_session *s, kolo_text *text) {
    const kolo_compression_costs *c = &s->buckets.costs;
    kolo_compression_describe(&s->opts.plan.compression, text);
    kolo_text_add(
        text,
        " (predicted end of the sums: %.3g ms, uncompressed %.3g ms; per MiB a sum takes "
        "%.3g ms, a gather of codes %.3g ms, encoding %.3g ms, decoding %.3g ms, as measured "
        "in %.1f s)",
        s->buckets.end_ms[1], s->buckets.end_ms[0], c->sum.ms_per_byte * (1 << 20),
        c->gather.ms_per_byte * (1 << 20), c->encode_ms * (1 << 20), c->decode_ms * (1 << 20),
        s->buckets.seconds);
}

void kolo_session_describe_buckets(const kolo_session *s, kolo_text *text) {
    const kolo_plan_opts *o = &s->opts.plan;
    if (s->opts.measure_compression) {
        describe_compression(s, text);
        return;
    }
    for (int i = 0; i < o->n_bucket_sizes; i++) {
        kolo_text_add(text, "%s%zu", i > 0 ? "," : "", o->bucket_sizes[i]);
    }
    const kolo_sum_time *sum = &s->buckets.sum;
    kolo_text_add(text,
                  " (a sum takes %.3g ms and %.3g ms per MiB, with work of %.3g ms and %.3g ms per "
                  "MiB, as measured in %.1f s)",
                  sum->fixed_ms, sum->ms_per_byte * (1 << 20), sum->work_fixed_ms,
                  sum->work_ms_per_byte * (1 << 20), s->buckets.seconds);
}

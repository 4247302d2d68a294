/* Compression of gradients where it pays: the text of the option, the costs of codes, and the
 * choice of rank 0 by pass/compression_plan.h, between two steps (buckets.c measures the first
 * ones). */
#include "train/session/compression.h"

#include "base/clock.h"
#include "base/text.h"
#include "comm/codec/speed.h"
#include "train/session/agree.h"
#include "train/session/internal.h"
#include "train/session/sum_time.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- text ---- */

static const char only_key[] = ",only=", automatic[] = "auto", power[] = "powersgd";
static const char warm_up_key[] = "1bit,warmup=";
enum { CODEC_TEXT = 64 };

/* "1bit,warmup=N". */
static kolo_status parse_warm_up(const char *text, kolo_compression *c) {
    const char *digits = text + sizeof warm_up_key - 1;
    char *end = NULL;
    const bool digit = *digits >= '0' && *digits <= '9';
    const long long updates = digit ? strtoll(digits, &end, 10) : 0;
    c->codec = (kolo_codec){.kind = KOLO_CODEC_ONEBIT};
    c->frozen = updates;
    if (digit && !*end && updates > 0 && updates < INT32_MAX) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "compression %s: give 1bit,warmup=N with the number N of updates without "
                     "compression, at least 1",
                     text);
}

/* A codec of kolo/codec.h; 1bit is its onebit. */
static kolo_status parse_codec_name(const char *text, kolo_codec *codec) {
    static const char *const names[] = {"none", "f16", "bf16", "int8", "1bit", "topk", power, NULL};
    const size_t length = strcspn(text, ":");
    for (int i = 0; names[i]; i++) {
        if (strlen(names[i]) != length || memcmp(names[i], text, length) != 0) continue;
        return kolo_codec_parse(strcmp(text, "1bit") == 0 ? "onebit" : text, codec);
    }
    const char *closest = kolo_closest(text, names);
    return KOLO_FAIL(KOLO_ERR_ARG, "compression \"%s\": %s%s%s", text,
                     closest
                         ? "did you mean "
                         : "choose one of none, f16, bf16, int8, 1bit, topk:R, powersgd:R, auto",
                     closest ? closest : "", closest ? "?" : "");
}

static kolo_status parse_codec(const char *text, kolo_compression *c) {
    const size_t length = sizeof power - 1;
    if (strncmp(text, warm_up_key, sizeof warm_up_key - 1) == 0) return parse_warm_up(text, c);
    if (strncmp(text, power, length) != 0) return parse_codec_name(text, &c->codec);
    c->power_rank = 2;
    if (!text[length]) return KOLO_OK;
    const bool digit = text[length] == ':' && strlen(text) == length + 2;
    c->power_rank = digit ? text[length + 1] - '0' : 0;
    if (c->power_rank >= 1 && c->power_rank <= KOLO_POWER_RANKS) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, "compression %s: give powersgd:R with a rank R from 1 to %d",
                     text, KOLO_POWER_RANKS);
}

/* "auto" or "auto=CODEC". */
static kolo_status parse_automatic(const char *text, kolo_compression *c) {
    const char *codec = text + sizeof automatic - 1;
    c->only = "";
    c->codec.kind = KOLO_CODEC_BF16;
    if (*codec) KOLO_TRY(parse_codec(codec + 1, c));
    if (c->power_rank == 0 && c->codec.kind != KOLO_CODEC_NONE && c->frozen == 0) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "compression %s: auto chooses where to use a codec: give auto=f16, bf16, "
                     "int8, 1bit or topk:R",
                     text);
}

kolo_status kolo_compression_parse(const char *text, kolo_compression *compression,
                                   bool *measured) {
    const char *only = strstr(text, only_key);
    const size_t length = only ? (size_t)(only - text) : strlen(text);
    const size_t prefix = sizeof automatic - 1;
    char codec[CODEC_TEXT];
    compression->power_rank = 0;
    compression->frozen = 0;
    compression->only = NULL;
    *measured = strncmp(text, automatic, prefix) == 0 && (!text[prefix] || text[prefix] == '=');
    if (*measured && !only) return parse_automatic(text, compression);
    if (!only) return parse_codec(text, compression);
    compression->only = only + sizeof only_key - 1;
    if (length < sizeof codec && *compression->only && !*measured) {
        memcpy(codec, text, length);
        codec[length] = '\0';
        KOLO_TRY(parse_codec(codec, compression));
        if (kolo_compresses(compression)) return KOLO_OK;
    }
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "compression %s: \"only\" is for a codec, with names or patterns of "
                     "parameters, such as bf16,only=fc1.weight,h.*",
                     text);
}

void kolo_compression_describe(const kolo_compression *c, kolo_text *text) {
    const char *name = c->codec.kind == KOLO_CODEC_ONEBIT ? "1bit" : kolo_codec_name(c->codec.kind);
    if (c->only && !*c->only) {
        kolo_text_add(text, "none");
        return;
    }
    kolo_text_add(text, "%s", c->power_rank > 0 ? power : name);
    if (c->power_rank > 0) kolo_text_add(text, ":%d", c->power_rank);
    if (c->frozen > 0) kolo_text_add(text, ",warmup=%" PRId64, c->frozen);
    if (c->codec.kind == KOLO_CODEC_TOPK && c->codec.ratio > 0) {
        kolo_text_add(text, ":%.17g", c->codec.ratio);
    }
    if (c->only) kolo_text_add(text, "%s%s", only_key, c->only);
}

/* ---- costs ---- */

enum { GATHER_MS = 30 /* to measure gathers of one size */, CODEC_MS = 10 };
enum { FIRST_GATHERS = 2, LEAST_GATHERS = 3, MOST_GATHERS = 200 };
enum { CODED = 1 << 16 /* floats to encode */ };

static kolo_status run_gathers(kolo_request *request, int n, int64_t *ns) {
    const int64_t begin = kolo_now_ns();
    for (int i = 0; i < n; i++) {
        KOLO_TRY(kolo_request_start(request));
        KOLO_TRY(kolo_request_wait(request, 0));
    }
    *ns = kolo_now_ns() - begin;
    return KOLO_OK;
}

/* Times gathers to `bytes` on each rank: as many as fit into the time by rank 0's first ones. */
static kolo_status time_gathers(kolo_comm *comm, char *memory, size_t bytes, double *us) {
    const size_t each = bytes / (size_t)kolo_comm_size(comm) / 8 * 8 + 8;
    const kolo_request_opts opts = {
        .kind = KOLO_COLLECTIVE_ALLGATHER,
        .dtype = KOLO_DTYPE_U8,
        .input = memory + each * (size_t)kolo_comm_rank(comm),
        .output = memory,
        .count = each,
        .site = "measurement of gathers",
    };
    kolo_request *request;
    int64_t ns = 0, n = 0;
    KOLO_TRY(kolo_request_create(comm, &opts, &request));
    kolo_status status = run_gathers(request, FIRST_GATHERS, &ns);
    n = FIRST_GATHERS * kolo_ms_to_ns(GATHER_MS) / (ns + 1);
    n = kolo_min_i64(kolo_max_i64(n, LEAST_GATHERS), MOST_GATHERS);
    if (status == KOLO_OK) status = kolo_broadcast(comm, &n, 1, KOLO_DTYPE_I64, 0);
    if (status == KOLO_OK) status = run_gathers(request, (int)n, &ns);
    kolo_request_destroy(request);
    *us = (double)ns / 1e3 / (double)n;
    return status;
}

/* Of a gather the same part is work as of a sum of 1 MiB: both consist of messages. */
static void set_work(kolo_compression_costs *costs) {
    const double mib = 1 << 20, ms = costs->sum.fixed_ms + costs->sum.ms_per_byte * mib;
    const double part = ms > 0 ? kolo_sum_work_ms(&costs->sum, mib) / ms : 0;
    costs->gather.work_fixed_ms = part * costs->gather.fixed_ms;
    costs->gather.work_ms_per_byte = part * costs->gather.ms_per_byte;
}

/* Measures gathers of 16 KiB to 4 MiB over the ranks, on slow links of less, and the codec on this
 * rank. Collective. */
static kolo_status measure_codec(kolo_comm *comm, const kolo_codec *codec,
                                 kolo_compression_costs *costs) {
    static const size_t sizes[] = {1 << 14, 1 << 18, 1 << 20, 1 << 22};
    enum { N = KOLO_COUNT(sizes) };
    const int64_t end_ns = kolo_now_ns() + kolo_ms_to_ns(KOLO_SUM_TIME_MOST * GATHER_MS);
    kolo_bench_row rows[N];
    void *memory;
    int n = 0;
    KOLO_TRY(kolo_comm_alloc(comm, sizes[N - 1] + 8 * (size_t)kolo_comm_size(comm), &memory));
    for (bool goes_on = true; n < N && goes_on;) {
        rows[n] = (kolo_bench_row){.bytes = sizes[n], .us_work = NAN};
        KOLO_TRY(time_gathers(comm, memory, sizes[n], &rows[n].us_median));
        if (++n == N) break;
        KOLO_TRY(kolo_sum_time_goes_on(comm, rows, n, sizes[n], FIRST_GATHERS + LEAST_GATHERS,
                                       end_ns - kolo_now_ns(), &goes_on));
    }
    costs->gather = kolo_sum_time_fit(rows, n);
    set_work(costs);
    kolo_bench_codec_row row;
    KOLO_TRY(kolo_agree(comm, kolo_bench_codec_speed(codec, CODED, CODEC_MS, &row)));
    costs->encode_ms = 1e-6 / row.encode_gigabytes_per_s;
    costs->decode_ms = 1e-6 / row.decode_gigabytes_per_s;
    costs->ratio = (double)row.code_bytes / (double)row.bytes;
    return KOLO_OK;
}

/* ---- choice ---- */

/* Rank 0: the names of the parameters whose gradients are compressed. */
static kolo_status list_names(kolo_session *s, const bool *compressed, kolo_text *names) {
    const kolo_bucket_search *b = &s->buckets;
    for (int i = 0; i < b->n; i++) {
        if (!compressed[i]) continue;
        const char *name = kolo_plan_gradient_name(s->plans[0]->plan, i);
        kolo_text_add(names, "%s%s", names->length > 0 ? "," : "", name);
    }
    return names->failed ? KOLO_NOMEM(names->length) : KOLO_OK;
}

static kolo_status find_names(kolo_session *s, kolo_text *names) {
    kolo_bucket_search *b = &s->buckets;
    bool *compressed = kolo_alloc((size_t)b->n + 1);
    kolo_ready_gradient *known = kolo_alloc(((size_t)b->n + 1) * sizeof *known);
    kolo_status status = compressed && known ? KOLO_OK : KOLO_NOMEM((size_t)b->n * sizeof *known);
    for (int i = 0; i < b->n && status == KOLO_OK; i++) {
        known[i] = b->gradients[i];
        const double before = i > 0 ? known[i - 1].ready_ms : 0;
        known[i].ready_ms = fmax(known[i].ready_ms, before);
    }
    if (status == KOLO_OK) {
        status = kolo_compression_plan_best(known, b->n, &b->costs, compressed);
    }
    if (status == KOLO_OK) {
        memset(b->end_ms, 0, sizeof b->end_ms);
        b->end_ms[1] = kolo_compression_plan_end(known, b->n, &b->costs, compressed);
        status = list_names(s, compressed, names);
        memset(compressed, 0, (size_t)b->n);
        b->end_ms[0] = kolo_compression_plan_end(known, b->n, &b->costs, compressed);
    }
    kolo_free(compressed);
    kolo_free(known);
    return status;
}

/* Gives all ranks the names of rank 0. */
static kolo_status agree_on_names(kolo_session *s) {
    kolo_text names = {0};
    kolo_status status = rank_of(s) == 0 ? find_names(s, &names) : KOLO_OK;
    uint64_t bytes = names.length + 1;
    status = kolo_agree(s->comm, status);
    if (status == KOLO_OK) status = kolo_broadcast(s->comm, &bytes, sizeof bytes, KOLO_DTYPE_U8, 0);
    char *text = status == KOLO_OK ? kolo_zalloc(bytes) : NULL;
    if (status == KOLO_OK) status = kolo_agree(s->comm, text ? KOLO_OK : KOLO_NOMEM(bytes));
    if (status == KOLO_OK && text && names.text) memcpy(text, names.text, bytes);
    if (status == KOLO_OK) status = kolo_broadcast(s->comm, text, bytes, KOLO_DTYPE_U8, 0);
    kolo_text_fini(&names);
    if (status != KOLO_OK) {
        kolo_free(text);
        return status;
    }
    s->buckets.compressed = text;
    s->opts.plan.compression.only = text;
    return KOLO_OK;
}

const char *kolo_session_compressed(const kolo_session *s) { return s->buckets.compressed; }

kolo_status kolo_session_choose_compression(kolo_session *s) {
    kolo_compression_costs *costs = &s->buckets.costs;
    const kolo_compression *how = &s->opts.plan.compression;
    if (s->opts.costs) {
        *costs = *s->opts.costs;
    } else {
        costs->sum = s->buckets.sum;
        KOLO_TRY(measure_codec(s->comm, &how->codec, costs));
    }
    costs->ranks = ranks_of(s);
    costs->min_bytes = how->min_bytes;
    const size_t bytes = s->opts.plan.bucket_bytes;
    costs->bucket_bytes = bytes ? bytes : KOLO_BUCKET_BYTES;
    return agree_on_names(s);
}

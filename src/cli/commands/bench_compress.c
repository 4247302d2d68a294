/* kolo bench compress: speed, compression ratio and error of the codecs. */
#include "base/integer.h"
#include "base/json.h"
#include "cli/commands/commands.h"
#include "cli/launcher/error_report.h"
#include "cli/output/output.h"
#include "kolo/bench.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_CODECS = 32, NAME_BYTES = 32 };

typedef struct codec_list {
    int n;
    char name[MAX_CODECS][NAME_BYTES];
    kolo_codec codec[MAX_CODECS];
} codec_list;

static kolo_status parse_codecs(const char *text, codec_list *list) {
    list->n = 0;
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ",");
        if (list->n == MAX_CODECS || length >= NAME_BYTES) {
            return KOLO_FAIL(KOLO_ERR_ARG, "--codecs %s: at most %d names", text, MAX_CODECS);
        }
        snprintf(list->name[list->n], NAME_BYTES, "%.*s", (int)length, at);
        KOLO_TRY(kolo_codec_parse(list->name[list->n], &list->codec[list->n]));
        list->n++;
        at += length;
        if (!*at) return KOLO_OK;
    }
}

static void add_row(kolo_text *table, kolo_json *json, const char *name,
                    const kolo_bench_codec_row *r) {
    double ratio = (double)r->bytes / (double)r->code_bytes;
    kolo_text_add(table, "%-12s %12zu %8.2f %12.2f %12.2f %12.3g %14.3g\n", name, r->code_bytes,
                  ratio, r->encode_gigabytes_per_s, r->decode_gigabytes_per_s, r->error,
                  r->error_feedback);
    kolo_json_object(json, NULL);
    kolo_json_string(json, "codec", name);
    kolo_json_int(json, "bytes", (int64_t)r->bytes);
    kolo_json_int(json, "code_bytes", (int64_t)r->code_bytes);
    kolo_json_double(json, "ratio", ratio);
    kolo_json_double(json, "encode_gigabytes_per_s", r->encode_gigabytes_per_s);
    kolo_json_double(json, "decode_gigabytes_per_s", r->decode_gigabytes_per_s);
    kolo_json_double(json, "error", r->error);
    kolo_json_double(json, "error_feedback", r->error_feedback);
    kolo_json_close(json);
}

static kolo_status bench_codecs(kolo_options *o, const codec_list *list, kolo_text *table,
                                kolo_json *json) {
    size_t count = (size_t)kolo_options_int(o, "bytes") / sizeof(float);
    int64_t budget_ms = kolo_max_i64(1, (int64_t)(1000 * kolo_options_float(o, "seconds")));
    kolo_text_add(table,
                  "codecs on %zu normally distributed floats, one thread, with error feedback\n\n"
                  "%-12s %12s %8s %12s %12s %12s %14s\n",
                  count, "codec", "code bytes", "ratio", "encode GB/s", "decode GB/s", "error",
                  "over 64 rounds");
    kolo_json_object(json, NULL);
    kolo_json_array(json, "rows");
    for (int i = 0; i < list->n; i++) {
        kolo_bench_codec_row row;
        KOLO_TRY(kolo_bench_codec(&list->codec[i], count, budget_ms, &row));
        add_row(table, json, list->name[i], &row);
    }
    kolo_json_close(json);
    kolo_json_close(json);
    return KOLO_OK;
}

static kolo_status check_bytes(int64_t bytes) {
    if (bytes % (int64_t)sizeof(float) == 0) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "--bytes %" PRId64 ": it must be a multiple of the f32 size, %zu", bytes,
                     sizeof(float));
}

int cmd_bench_compress(kolo_options *o) {
    codec_list list;
    kolo_status status = parse_codecs(kolo_options_text(o, "codecs"), &list);
    if (status == KOLO_OK) status = check_bytes(kolo_options_int(o, "bytes"));
    if (status == KOLO_OK) status = output_check_json(kolo_options_text(o, "json"));
    if (status != KOLO_OK) return report_failure(status);
    kolo_text table = {0}, text = {0};
    kolo_json json = {.out = &text, .indent = 2};
    status = bench_codecs(o, &list, &table, &json);
    if (status == KOLO_OK) status = output_result(&table, kolo_options_text(o, "json"), &text);
    kolo_text_fini(&table);
    kolo_text_fini(&text);
    return status == KOLO_OK ? 0 : report_failure(status);
}

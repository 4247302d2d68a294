/* kolo bench sim: predicts allreduces on a modelled network. */
#include "base/json.h"
#include "cli/commands/commands.h"
#include "cli/launcher/error_report.h"
#include "cli/options/sizes.h"
#include "cli/output/output.h"
#include "kolo/sim.h"

#include <stdio.h>

enum { MESSAGES_MOST = 4000000 }; /* of a row whose algorithm is not asked for */

static kolo_sim_network network_of(const kolo_options *o) {
    return (kolo_sim_network){
        .ranks_per_host = (int)kolo_options_int(o, "ranks-per-host"),
        .latency_us = kolo_options_float(o, "latency"),
        .gbit_per_s = kolo_options_float(o, "gbps"),
        .local_latency_us = kolo_options_float(o, "local-latency"),
        .local_gbit_per_s = kolo_options_float(o, "local-gbps"),
        .reduce_gbit_per_s = kolo_options_float(o, "reduce-gbps"),
        .jitter = kolo_options_float(o, "jitter"),
        .late_us = kolo_options_float(o, "late"),
        .seed = (uint64_t)kolo_options_int(o, "seed"),
    };
}

/* Where results go. */
typedef struct sink {
    const char *path; /* of --json; NULL: none */
    kolo_text table;  /* rows that are not printed yet */
    kolo_text text;
    kolo_json json;
} sink;

/* Prints the rows so far: a large group takes long. */
static kolo_status print_rows(sink *out) {
    kolo_status status = output_rows(&out->table, out->path);
    kolo_text_fini(&out->table);
    out->table = (kolo_text){0};
    return status;
}

static void begin_row(sink *out, size_t bytes, int ranks, const char *algorithm) {
    kolo_text_add(&out->table, "%12zu  %-16s ", bytes, algorithm);
    kolo_json_object(&out->json, NULL);
    kolo_json_int(&out->json, "bytes", (int64_t)bytes);
    kolo_json_int(&out->json, "ranks", ranks);
    kolo_json_string(&out->json, "algorithm", algorithm);
}

static kolo_status add_row(sink *out, size_t bytes, int ranks, const char *algorithm,
                           const kolo_sim_result *r) {
    kolo_json *json = &out->json;
    char hash[20];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)r->hash);
    const double algbw = r->us > 0 ? (double)bytes / r->us * 1e-3 : 0; /* a rank alone: no time */
    const double busbw = algbw * (2.0 * (ranks - 1) / ranks);
    begin_row(out, bytes, ranks, algorithm);
    kolo_text_add(&out->table, "%14.2f %10.3f %8llu %10llu %14llu %10llu  %s\n", r->us, busbw,
                  (unsigned long long)r->rounds, (unsigned long long)r->messages,
                  (unsigned long long)r->bytes_most, (unsigned long long)r->events, hash);
    kolo_json_double(json, "us", r->us);
    kolo_json_double(json, "busbw_gigabytes_per_s", busbw);
    kolo_json_int(json, "rounds", (int64_t)r->rounds);
    kolo_json_int(json, "messages", (int64_t)r->messages);
    kolo_json_int(json, "link_bytes_most", (int64_t)r->bytes_most);
    kolo_json_int(json, "events", (int64_t)r->events);
    kolo_json_string(json, "log_hash", hash);
    kolo_json_close(json);
    return print_rows(out);
}

/* A row that takes long is only simulated if its algorithm is asked for. */
static kolo_status add_left_out(sink *out, size_t bytes, int ranks, const char *algorithm,
                                uint64_t messages) {
    begin_row(out, bytes, ranks, algorithm);
    kolo_text_add(&out->table, "left out: %.0f million messages; --algorithm %s simulates it\n",
                  (double)messages * 1e-6, algorithm);
    kolo_json_bool(&out->json, "left_out", true);
    kolo_json_int(&out->json, "messages", (int64_t)messages);
    kolo_json_close(&out->json);
    return print_rows(out);
}

/* Rejects an algorithm that needs more than messages, with a list of the others. */
static kolo_status check_algorithm(const kolo_options *o) {
    kolo_algorithm wanted = (kolo_algorithm)kolo_options_choice(o, "algorithm");
    kolo_sim_network network = network_of(o);
    bool found = wanted == KOLO_ALGORITHM_AUTO;
    kolo_text possible = {0};
    kolo_sim_result result;
    for (int i = KOLO_ALGORITHM_AUTO + 1; i < KOLO_ALGORITHM_COUNT; i++) {
        kolo_algorithm a = (kolo_algorithm)i;
        kolo_status status = kolo_sim_allreduce(&network, 2, 1, a, 0, &result);
        if (status == KOLO_ERR_UNSUPPORTED) continue;
        kolo_text_add(&possible, ", %s", kolo_algorithm_name(a));
        found |= a == wanted;
    }
    kolo_status status = KOLO_OK;
    if (possible.failed) {
        status = KOLO_NOMEM(possible.length);
    } else if (!found) {
        status = KOLO_FAIL(KOLO_ERR_ARG,
                           "--algorithm %s accesses the peers' memory, a modelled network supports "
                           "messages only: choose auto%s",
                           kolo_algorithm_name(wanted), possible.text);
    }
    kolo_text_fini(&possible);
    return status;
}

/* Predicts one size with one algorithm or with all that use messages, and with the reproducible
 * allreduce of `shards` if not 0. */
static kolo_status predict(const kolo_sim_network *network, int ranks, size_t bytes,
                           kolo_algorithm wanted, int shards, sink *out) {
    bool all = wanted == KOLO_ALGORITHM_AUTO;
    size_t count = bytes / sizeof(float);
    kolo_sim_result result;
    for (int i = KOLO_ALGORITHM_AUTO + 1; i < KOLO_ALGORITHM_COUNT; i++) {
        kolo_algorithm a = (kolo_algorithm)i;
        uint64_t messages;
        if (!all && a != wanted) continue;
        kolo_status status = kolo_sim_messages(network, ranks, count, a, 0, &messages);
        if (all && status == KOLO_ERR_UNSUPPORTED) continue;
        if (status != KOLO_OK) return status;
        if (all && messages > MESSAGES_MOST) {
            KOLO_TRY(add_left_out(out, bytes, ranks, kolo_algorithm_name(a), messages));
            continue;
        }
        KOLO_TRY(kolo_sim_allreduce(network, ranks, count, a, 0, &result));
        KOLO_TRY(add_row(out, bytes, ranks, kolo_algorithm_name(a), &result));
    }
    if (shards == 0) return KOLO_OK;
    KOLO_TRY(kolo_sim_allreduce(network, ranks, count, KOLO_ALGORITHM_AUTO, shards, &result));
    return add_row(out, bytes, ranks, "reproducible", &result);
}

static kolo_status bench_sim(kolo_options *o, const size_t *sizes, int n, sink *out) {
    int ranks = (int)kolo_options_int(o, "ranks");
    kolo_sim_network network = network_of(o);
    kolo_text_add(&out->table,
                  "allreduce of f32, %d ranks, %d on a host, on a modelled network of %g us and %g "
                  "Gbit/s, seed %llu\n\n%12s  %-16s %14s %10s %8s %10s %14s %10s  %s\n",
                  ranks, network.ranks_per_host, network.latency_us, network.gbit_per_s,
                  (unsigned long long)network.seed, "bytes", "algorithm", "us", "bus GB/s",
                  "rounds", "messages", "busiest link", "events", "hash of log");
    KOLO_TRY(print_rows(out));
    kolo_json_object(&out->json, NULL);
    kolo_json_int(&out->json, "ranks", ranks);
    kolo_json_string(&out->json, "transport", "sim");
    kolo_json_array(&out->json, "rows");
    for (int i = 0; i < n; i++) {
        kolo_algorithm algorithm = (kolo_algorithm)kolo_options_choice(o, "algorithm");
        KOLO_TRY(
            predict(&network, ranks, sizes[i], algorithm, (int)kolo_options_int(o, "shards"), out));
    }
    kolo_json_close(&out->json);
    kolo_json_close(&out->json);
    return output_result(NULL, out->path, &out->text);
}

int cmd_bench_sim(kolo_options *o) {
    size_t sizes[MAX_SIZES];
    int n;
    kolo_status status = sizes_parse(kolo_options_text(o, "sizes"), KOLO_DTYPE_F32, sizes, &n);
    if (status == KOLO_OK) status = check_algorithm(o);
    if (status == KOLO_OK) status = output_check_json(kolo_options_text(o, "json"));
    if (status != KOLO_OK) return report_failure(status);
    sink out = {.path = kolo_options_text(o, "json"), .json = {.indent = 2}};
    out.json.out = &out.text;
    status = bench_sim(o, sizes, n, &out);
    kolo_text_fini(&out.table);
    kolo_text_fini(&out.text);
    return status == KOLO_OK ? 0 : report_failure(status);
}

/* kolo bench sim: predicts allreduces on a modelled network. */
#include "base/json.h"
#include "cli/commands/commands.h"
#include "cli/launcher/error_report.h"
#include "cli/options/sizes.h"
#include "cli/output/output.h"
#include "kolo/sim.h"

#include <stdio.h>

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

static void add_row(kolo_text *table, kolo_json *json, size_t bytes, int ranks,
                    const char *algorithm, const kolo_sim_result *r) {
    char hash[20];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)r->hash);
    double busbw = (double)bytes / r->us * 1e-3 * (2.0 * (ranks - 1) / ranks);
    kolo_text_add(table, "%12zu  %-16s %14.2f %10.3f %8llu %10llu %14llu %10llu  %s\n", bytes,
                  algorithm, r->us, busbw, (unsigned long long)r->rounds,
                  (unsigned long long)r->messages, (unsigned long long)r->bytes_most,
                  (unsigned long long)r->events, hash);
    kolo_json_object(json, NULL);
    kolo_json_int(json, "bytes", (int64_t)bytes);
    kolo_json_int(json, "ranks", ranks);
    kolo_json_string(json, "algorithm", algorithm);
    kolo_json_double(json, "us", r->us);
    kolo_json_double(json, "busbw_gigabytes_per_s", busbw);
    kolo_json_int(json, "rounds", (int64_t)r->rounds);
    kolo_json_int(json, "messages", (int64_t)r->messages);
    kolo_json_int(json, "link_bytes_most", (int64_t)r->bytes_most);
    kolo_json_int(json, "events", (int64_t)r->events);
    kolo_json_string(json, "log_hash", hash);
    kolo_json_close(json);
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
                           kolo_algorithm wanted, int shards, kolo_text *table, kolo_json *json) {
    bool all = wanted == KOLO_ALGORITHM_AUTO;
    size_t count = bytes / sizeof(float);
    kolo_sim_result result;
    for (int i = KOLO_ALGORITHM_AUTO + 1; i < KOLO_ALGORITHM_COUNT; i++) {
        kolo_algorithm a = (kolo_algorithm)i;
        if (!all && a != wanted) continue;
        kolo_status status = kolo_sim_allreduce(network, ranks, count, a, 0, &result);
        if (all && status == KOLO_ERR_UNSUPPORTED) continue;
        if (status != KOLO_OK) return status;
        add_row(table, json, bytes, ranks, kolo_algorithm_name(a), &result);
    }
    if (shards == 0) return KOLO_OK;
    KOLO_TRY(kolo_sim_allreduce(network, ranks, count, KOLO_ALGORITHM_AUTO, shards, &result));
    add_row(table, json, bytes, ranks, "reproducible", &result);
    return KOLO_OK;
}

static kolo_status bench_sim(kolo_options *o, const size_t *sizes, int n, kolo_text *table,
                             kolo_json *json) {
    int ranks = (int)kolo_options_int(o, "ranks");
    kolo_sim_network network = network_of(o);
    kolo_text_add(table,
                  "allreduce of f32, %d ranks, %d on a host, on a modelled network of %g us and %g "
                  "Gbit/s, seed %llu\n\n%12s  %-16s %14s %10s %8s %10s %14s %10s  %s\n",
                  ranks, network.ranks_per_host, network.latency_us, network.gbit_per_s,
                  (unsigned long long)network.seed, "bytes", "algorithm", "us", "bus GB/s",
                  "rounds", "messages", "busiest link", "events", "hash of log");
    kolo_json_object(json, NULL);
    kolo_json_int(json, "ranks", ranks);
    kolo_json_string(json, "transport", "sim");
    kolo_json_array(json, "rows");
    for (int i = 0; i < n; i++) {
        kolo_algorithm algorithm = (kolo_algorithm)kolo_options_choice(o, "algorithm");
        KOLO_TRY(predict(&network, ranks, sizes[i], algorithm, (int)kolo_options_int(o, "shards"),
                         table, json));
    }
    kolo_json_close(json);
    kolo_json_close(json);
    return KOLO_OK;
}

int cmd_bench_sim(kolo_options *o) {
    size_t sizes[MAX_SIZES];
    int n;
    kolo_status status = sizes_parse(kolo_options_text(o, "sizes"), KOLO_DTYPE_F32, sizes, &n);
    if (status == KOLO_OK) status = check_algorithm(o);
    if (status == KOLO_OK) status = output_check_json(kolo_options_text(o, "json"));
    if (status != KOLO_OK) return report_failure(status);
    kolo_text table = {0}, text = {0};
    kolo_json json = {.out = &text, .indent = 2};
    status = bench_sim(o, sizes, n, &table, &json);
    if (status == KOLO_OK) status = output_result(&table, kolo_options_text(o, "json"), &text);
    kolo_text_fini(&table);
    kolo_text_fini(&text);
    return status == KOLO_OK ? 0 : report_failure(status);
}

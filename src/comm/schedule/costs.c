/* The cost model of allreduces, its built-in constants and its file. See costs.h. */
#include "comm/schedule/costs.h"

#include "base/file.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

enum { FILE_MOST = 1 << 16 };

/* Of ranks that share memory, measured by kolo bench allreduce --calibrate with 2 processes on two
 * cores (AMD EPYC); orders of magnitude, which is what the choice hangs on. */
static const kolo_comm_costs of_memory = {{
    [KOLO_ALGORITHM_RING] = {0.3, 50},
    [KOLO_ALGORITHM_DIRECT] = {0.3, 20},
    [KOLO_ALGORITHM_TREE] = {0.4, 70},
    [KOLO_ALGORITHM_DOUBLE_TREE] = {0.5, 80},
    [KOLO_ALGORITHM_HALVING_DOUBLING] = {0.3, 50},
    [KOLO_ALGORITHM_MESH] = {0.4, 60},
    [KOLO_ALGORITHM_HIERARCHICAL] = {0.4, 60},
}};

/* Of a network: bytes cost all alike, but many messages at once to one rank get in each other's
 * way, and whole halves that are exchanged at the end overlap with nothing. */
static const kolo_comm_costs of_network = {{
    [KOLO_ALGORITHM_RING] = {30, 900},
    [KOLO_ALGORITHM_DIRECT] = {30, 900},
    [KOLO_ALGORITHM_TREE] = {30, 950},
    [KOLO_ALGORITHM_DOUBLE_TREE] = {35, 950},
    [KOLO_ALGORITHM_HALVING_DOUBLING] = {30, 950},
    [KOLO_ALGORITHM_MESH] = {45, 1000},
    [KOLO_ALGORITHM_HIERARCHICAL] = {30, 900},
}};

kolo_comm_costs kolo_comm_costs_builtin(bool windows) { return windows ? of_memory : of_network; }

static double log2_up(int n) {
    double k = 0;
    for (int p = 1; p < n; p *= 2) k++;
    return k;
}

static bool is_power(int n) { return (n & (n - 1)) == 0; }

double kolo_comm_cost_steps(kolo_algorithm algorithm, int n, int hosts) {
    switch (algorithm) {
    case KOLO_ALGORITHM_RING:
        return 2 * (n - 1);
    case KOLO_ALGORITHM_TREE:
    case KOLO_ALGORITHM_DOUBLE_TREE:
        return 2 * log2_up(n);
    case KOLO_ALGORITHM_HALVING_DOUBLING:
        return 2 * log2_up(n); /* the fold takes the place of what rounding up adds */
    case KOLO_ALGORITHM_MESH:
        return 2;
    case KOLO_ALGORITHM_HIERARCHICAL:
        return 2 + 2 * (hosts - 1);
    default:
        return 1;
    }
}

double kolo_comm_cost_volume(kolo_algorithm algorithm, int n, int hosts) {
    double all = 2.0 * (n - 1) / n, per_host = hosts > 1 ? (double)n / hosts : 1;
    switch (algorithm) {
    case KOLO_ALGORITHM_RING: /* one rank of each host passes data on to the next host */
        return all;
    case KOLO_ALGORITHM_TREE:
        return 2 * log2_up(n);
    case KOLO_ALGORITHM_DOUBLE_TREE:
        return 2 * per_host;
    case KOLO_ALGORITHM_HALVING_DOUBLING:
        return (is_power(n) ? all : all + 2) * per_host;
    case KOLO_ALGORITHM_MESH:
        return all * per_host;
    case KOLO_ALGORITHM_HIERARCHICAL:
        return 2.0 * (hosts - 1) / hosts + (hosts == 1 ? all : 0);
    default:
        return all;
    }
}

double kolo_comm_cost_us(const kolo_comm_costs *costs, kolo_algorithm algorithm, int n, int hosts,
                         size_t bytes) {
    const kolo_comm_cost *c = &costs->of[algorithm];
    return kolo_comm_cost_steps(algorithm, n, hosts) * c->step_us +
           kolo_comm_cost_volume(algorithm, n, hosts) * ((double)bytes * 0x1p-20) * c->mib_us;
}

kolo_algorithm kolo_comm_costs_choose(const kolo_comm_costs *costs, bool windows, int n, int hosts,
                                      size_t bytes) {
    kolo_algorithm best = KOLO_ALGORITHM_RING;
    double least = kolo_comm_cost_us(costs, best, n, hosts, bytes);
    for (int i = KOLO_ALGORITHM_RING + 1; i < KOLO_ALGORITHM_COUNT; i++) {
        kolo_algorithm a = (kolo_algorithm)i;
        if (a == KOLO_ALGORITHM_DIRECT && !windows) continue;
        if (a == KOLO_ALGORITHM_HIERARCHICAL && hosts == 1) continue;
        double us = kolo_comm_cost_us(costs, a, n, hosts, bytes);
        if (us >= least) continue;
        best = a;
        least = us;
    }
    return best;
}

/* ---- the file ---- */

enum { LINE_MOST = 128, WORD_MOST = 32 };

/* A line of the file, and its words. */
typedef struct cost_line {
    char text[LINE_MOST], transport[WORD_MOST], name[WORD_MOST];
    kolo_comm_cost cost;
} cost_line;

/* Reads the line at *text and goes on behind it; false when it is no line of costs. */
static bool read_line(const char **text, cost_line *line) {
    char rest[2];
    size_t n = strcspn(*text, "\n");
    snprintf(line->text, sizeof line->text, "%.*s", (int)(n < LINE_MOST ? n : LINE_MOST), *text);
    *text += n + 1;
    kolo_comm_cost *c = &line->cost;
    return n < LINE_MOST &&
           sscanf(line->text, "%31s %31s %lf %lf %1s", line->transport, line->name, &c->step_us,
                  &c->mib_us, rest) == 4 &&
           c->step_us >= 0 && c->mib_us >= 0 && c->step_us < 1e12 && c->mib_us < 1e12;
}

kolo_status kolo_comm_costs_read(const char *path, const char *transport, kolo_comm_costs *costs) {
    char *text;
    size_t bytes;
    KOLO_TRY(kolo_file_read(path, FILE_MOST, &text, &bytes));
    kolo_comm_costs read = *costs;
    kolo_status status = KOLO_OK;
    int number = 1;
    for (const char *at = text; at < text + bytes && status == KOLO_OK; number++) {
        cost_line line;
        kolo_algorithm algorithm;
        if (!read_line(&at, &line) || kolo_algorithm_parse(line.name, &algorithm) != KOLO_OK ||
            algorithm == KOLO_ALGORITHM_AUTO) {
            status =
                KOLO_FAIL(KOLO_ERR_FORMAT,
                          "%s:%d: not 'transport algorithm step_us mib_us'; remove the file, or "
                          "make it anew with kolo bench allreduce --calibrate",
                          path, number);
        } else if (strcmp(line.transport, transport) == 0) {
            read.of[algorithm] = line.cost;
        }
    }
    kolo_free(text);
    if (status == KOLO_OK) *costs = read;
    return status;
}

/* The lines of an older file that stay. */
static void keep_others(const char *path, const char *transport, kolo_text *out) {
    char *text;
    size_t bytes;
    if (kolo_file_read(path, FILE_MOST, &text, &bytes) != KOLO_OK) return;
    for (const char *at = text; at < text + bytes;) {
        cost_line line;
        if (!read_line(&at, &line) || strcmp(line.transport, transport) == 0) continue;
        kolo_text_add(out, "%s\n", line.text);
    }
    kolo_free(text);
}

kolo_status kolo_comm_costs_write(const char *path, const char *transport,
                                  const kolo_comm_costs *costs) {
    kolo_text out = {0};
    keep_others(path, transport, &out);
    for (int a = KOLO_ALGORITHM_RING; a < KOLO_ALGORITHM_COUNT; a++) {
        kolo_text_add(&out, "%s %s %.4g %.5g\n", transport, kolo_algorithm_name((kolo_algorithm)a),
                      costs->of[a].step_us, costs->of[a].mib_us);
    }
    kolo_status status =
        out.failed ? KOLO_NOMEM(FILE_MOST) : kolo_file_write(path, out.text, strlen(out.text));
    kolo_text_fini(&out);
    return status;
}

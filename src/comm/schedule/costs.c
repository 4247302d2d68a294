/* The cost model of allreduces and its file; see costs.h. */
#include "comm/schedule/costs.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/number.h"

#include <stdio.h>
#include <string.h>

enum { FILE_MOST = 1 << 16 };

kolo_comm_costs kolo_comm_costs_builtin(bool windows) {
    kolo_comm_costs costs = {0};
    for (int a = KOLO_ALGORITHM_AUTO + 1; a < KOLO_ALGORITHM_COUNT; a++) {
        const kolo_algorithm_info *info = kolo_algorithm_info_of((kolo_algorithm)a);
        costs.of[a] = windows ? info->memory_cost : info->network_cost;
    }
    return costs;
}

double kolo_comm_cost_us(const kolo_comm_costs *costs, kolo_algorithm algorithm, int n, int hosts,
                         size_t bytes) {
    const kolo_comm_cost *c = &costs->of[algorithm];
    const kolo_algorithm_info *info = kolo_algorithm_info_of(algorithm);
    return info->steps(n, hosts) * c->step_us +
           info->volume(n, hosts) * ((double)bytes * 0x1p-20) * c->mib_us;
}

kolo_algorithm kolo_comm_costs_choose(const kolo_comm_costs *costs, bool windows, int n, int hosts,
                                      size_t bytes) {
    kolo_algorithm best = KOLO_ALGORITHM_AUTO;
    double least = 0;
    for (int i = KOLO_ALGORITHM_AUTO + 1; i < KOLO_ALGORITHM_COUNT; i++) {
        kolo_algorithm a = (kolo_algorithm)i;
        if (!kolo_algorithm_usable(a, windows, hosts)) continue;
        double us = kolo_comm_cost_us(costs, a, n, hosts, bytes);
        if (best != KOLO_ALGORITHM_AUTO && us >= least) continue;
        best = a;
        least = us;
    }
    return best;
}

/* ---- the file ---- */

enum { LINE_MOST = 128, WORD_MOST = 32 };

/* A line of the file and its fields. */
typedef struct cost_line {
    char text[LINE_MOST], transport[WORD_MOST], name[WORD_MOST];
    kolo_comm_cost cost;
} cost_line;

/* Parses the line at *text and advances past it; false if it is malformed. */
static bool read_line(const char **text, cost_line *line) {
    char step[WORD_MOST], mib[WORD_MOST], rest[2], *step_end, *mib_end;
    size_t n = strcspn(*text, "\n");
    snprintf(line->text, sizeof line->text, "%.*s", (int)(n < LINE_MOST ? n : LINE_MOST), *text);
    *text += n + 1;
    kolo_comm_cost *c = &line->cost;
    if (n >= LINE_MOST || sscanf(line->text, "%31s %31s %31s %31s %1s", line->transport, line->name,
                                 step, mib, rest) != 4) {
        return false;
    }
    c->step_us = kolo_parse_double(step, &step_end);
    c->mib_us = kolo_parse_double(mib, &mib_end);
    return *step_end == '\0' && *mib_end == '\0' && c->step_us >= 0 && c->mib_us >= 0 &&
           c->step_us < 1e12 && c->mib_us < 1e12;
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
            status = KOLO_FAIL(
                KOLO_ERR_FORMAT,
                "%s:%d: expected 'transport algorithm step_us mib_us': remove the file, or "
                "write it again with kolo bench allreduce --calibrate",
                path, number);
        } else if (strcmp(line.transport, transport) == 0) {
            read.of[algorithm] = line.cost;
        }
    }
    kolo_free(text);
    if (status == KOLO_OK) *costs = read;
    return status;
}

/* Copies the lines of other transports from the existing file. */
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
    for (int a = KOLO_ALGORITHM_AUTO + 1; a < KOLO_ALGORITHM_COUNT; a++) {
        kolo_text_add(&out, "%s %s %.4g %.5g\n", transport, kolo_algorithm_name((kolo_algorithm)a),
                      costs->of[a].step_us, costs->of[a].mib_us);
    }
    kolo_status status =
        out.failed ? KOLO_NOMEM(FILE_MOST) : kolo_file_write(path, out.text, strlen(out.text));
    kolo_text_fini(&out);
    return status;
}

/* The time of a policy of parameter servers in virtual time, for bench/stragglers.py:
 *
 *     policies POLICY WORKERS TARGET FILE
 *
 * FILE has a double for each step of each worker, in seconds: those of the first step, then those
 * of the second. Prints when TARGET gradients are applied, and the changes of a bound that adapts,
 * as JSON. The owner of the parameters is the library's. */
#include "base/file.h"
#include "base/memory.h"
#include "support/policy_sim.h"
#include "train/session/consistency.h"

#include <stdio.h>
#include <stdlib.h>

static int fail(void) {
    fprintf(stderr, "policies: %s\n", kolo_last_error());
    return 1;
}

static void print(const policy_sim *sim) {
    char name[KOLO_CONSISTENCY_NAME];
    printf("{\"seconds\": %.9g, \"applied\": %llu, \"changes\": [", sim->seconds,
           (unsigned long long)sim->applied);
    for (int i = 0; i < sim->n_changes; i++) {
        kolo_consistency_print(sim->changes[i].staleness, name);
        printf("%s[%.9g, \"%s\"]", i > 0 ? ", " : "", sim->changes[i].seconds, name);
    }
    printf("]}\n");
}

int main(int argc, char **argv) {
    kolo_consistency c;
    char *data;
    size_t bytes;
    if (argc != 5) {
        fprintf(stderr, "usage: policies POLICY WORKERS TARGET FILE\n");
        return 2;
    }
    const int workers = atoi(argv[2]);
    if (workers < 1 || kolo_consistency_parse(argv[1], workers, &c) != KOLO_OK) return fail();
    if (kolo_file_read(argv[4], (size_t)1 << 30, &data, &bytes) != KOLO_OK) return fail();
    policy_sim sim = {
        .workers = workers,
        .steps = (int)(bytes / sizeof(double) / (size_t)workers),
        .units = (const double *)(const void *)data,
        .target = strtoull(argv[3], NULL, 10),
        .opts = {.staleness = kolo_consistency_staleness(&c),
                 .drop = c.drop,
                 .discard = c.discard,
                 .adapts = c.kind == KOLO_CONSISTENCY_AUTO},
    };
    policy_sim_run(&sim);
    print(&sim);
    kolo_free(data);
    return 0;
}

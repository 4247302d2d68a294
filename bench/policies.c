/* The time of a policy of parameter servers in virtual time, for bench/stragglers.py:
 *
 *     policies POLICY WORKERS TARGET FILE
 *     policies POLICY WORKERS accuracy=A FILE SEED
 *     policies POLICY WORKERS mean=A FILE SEED
 *
 * FILE has a double for each step of each worker, in seconds: those of the first step, then those
 * of the second. Ends when TARGET gradients are applied, or when a network that is trained by them
 * has this test accuracy in an evaluation, or in the mean of 5 that follow each other. Prints the
 * seconds, the changes of a bound that adapts, and the evaluations, as JSON. The owner of the
 * parameters is the library's. */
#include "base/file.h"
#include "base/memory.h"
#include "support/policy_sim.h"
#include "train/session/consistency.h"
#include "virtual_training.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(void) {
    fprintf(stderr, "policies: %s\n", kolo_last_error());
    return 1;
}

/* `training`: NULL, or what was trained. */
static void print(const policy_sim *sim, const virtual_training *training) {
    char name[KOLO_CONSISTENCY_NAME];
    double at, accuracy;
    printf("{\"seconds\": %.9g, \"applied\": %llu, \"changes\": [", sim->seconds,
           (unsigned long long)sim->applied);
    for (int i = 0; i < sim->n_changes; i++) {
        kolo_consistency_print(sim->changes[i].staleness, name);
        printf("%s[%.9g, \"%s\"]", i > 0 ? ", " : "", sim->changes[i].seconds, name);
    }
    printf("], \"evaluations\": [");
    for (int i = 0; training && virtual_training_evaluation(training, i, &at, &accuracy); i++) {
        printf("%s[%.9g, %.9g]", i > 0 ? ", " : "", at, accuracy);
    }
    printf("]}\n");
}

/* Trains until an accuracy is reached, or counts gradients. */
static kolo_status run(policy_sim *sim, const char *target, const char *seed) {
    enum { MEAN_OF = 5 };
    const bool mean = strncmp(target, "mean=", 5) == 0;
    virtual_training *training = NULL;
    if (mean || strncmp(target, "accuracy=", 9) == 0) {
        KOLO_TRY(virtual_training_create(seed ? strtoull(seed, NULL, 10) : 0, sim->workers,
                                         sim->opts.adapts, strtod(strchr(target, '=') + 1, NULL),
                                         mean ? MEAN_OF : 1, &training));
        sim->model = virtual_training_model(training);
    } else {
        sim->target = strtoull(target, NULL, 10);
    }
    policy_sim_run(sim);
    print(sim, training);
    virtual_training_destroy(training);
    return KOLO_OK;
}

int main(int argc, char **argv) {
    kolo_consistency c;
    char *data;
    size_t bytes;
    if (argc != 5 && argc != 6) {
        fprintf(stderr, "usage: policies POLICY WORKERS TARGET FILE\n"
                        "       policies POLICY WORKERS accuracy=A FILE SEED\n"
                        "       policies POLICY WORKERS mean=A FILE SEED\n");
        return 2;
    }
    const int workers = atoi(argv[2]);
    if (workers < 1 || kolo_consistency_parse(argv[1], workers, &c) != KOLO_OK) return fail();
    if (kolo_file_read(argv[4], (size_t)1 << 30, &data, &bytes) != KOLO_OK) return fail();
    policy_sim sim = {
        .workers = workers,
        .steps = (int)(bytes / sizeof(double) / (size_t)workers),
        .units = (const double *)(const void *)data,
        .opts = {.staleness = kolo_consistency_staleness(&c),
                 .drop = c.drop,
                 .discard = c.discard,
                 .adapts = c.kind == KOLO_CONSISTENCY_AUTO},
    };
    const kolo_status status = run(&sim, argv[3], argv[5]);
    kolo_free(data);
    return status == KOLO_OK ? 0 : fail();
}

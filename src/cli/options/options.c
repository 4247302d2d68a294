/* The options of all commands: the table, whose rows are in rows/, by section of the help pages. */
#include "cli/options/options.h"

#include "cli/options/command_list.h"
#include "cli/options/train_opts.h"
#include "cli/output/progress_bar.h"
#include "kolo/checkpoint.h"
#include "kolo/comm.h"
#include "kolo/data.h"
#include "kolo/dump.h"
#include "kolo/train.h"

#include <string.h>

enum {
    MAX_RANKS = 1024,
    MAX_THREADS = 1024,
    STEPS = CMD_TRAIN | CMD_BENCH_TRAIN | CMD_PROFILE, /* run training steps */
    WORK = STEPS | CMD_EVAL,                           /* have workers */
    TRAINED = CMD_EVAL | CMD_PREDICT,                  /* run a trained model */
    JOB = WORK | CMD_BENCH_ALLREDUCE | CMD_BENCH_PS,   /* run on ranks */
    MODEL = STEPS | CMD_DUMP,                          /* compile a training plan */
};

/* Limits of numbers without a natural one. */
#define MANY 1e12
#define MAX_SEED 9007199254740991.0 /* 2^53 - 1: exact in JSON */

/* The values of an enumerated option, from the list of its enum: CHOICES(KOLO_SYNC_LIST). */
/* clang-format off */
#define CHOICES_BY(ROW, LIST) (const kolo_choice[]){LIST(ROW) {0}}
#define CHOICES(LIST) CHOICES_BY(CHOICE, LIST)
#define CHOICE(code, name, help) {name, help},
#define CHOICE_NAMED(code, name) {name, NULL},
#define CHOICE_DTYPE(code, name, bytes) {name, NULL},
#define CHOICE_ALGORITHM(code, row, name, help) {name, help},
#define CHOICE_TRANSPORT(code, memory, network, name, help) {name, help},
static const kolo_choice one_or_all_splits[] = {KOLO_SPLIT_LIST(CHOICE) {"both", "all samples"}, {0}};
static const kolo_choice algorithms[] = {
    {"auto", "selected by size, group and transport"}, KOLO_ALGORITHM_LIST(CHOICE_ALGORITHM) {0}};
static const kolo_choice simulated[] = {
    {"auto", "each algorithm that uses messages"}, KOLO_ALGORITHM_LIST(CHOICE_ALGORITHM) {0}};
/* clang-format on */

/* Where values hold paths. */
static const char *whole(const char *text, const char *after, size_t *length) {
    *length = strlen(text);
    return after ? NULL : text;
}
static const char *whole_file(const char *text, const char *after, size_t *length) {
    return strcmp(text, "-") == 0 ? NULL : whole(text, after, length);
}
static const char *placement_file(const char *text, const char *after, size_t *length) {
    return kolo_placement_path(text) ? whole(text, after, length) : NULL;
}
static const char *model_file(const char *text, const char *after, size_t *path_length) {
    const char *const ends[] = {".onnx", ".so"};
    const size_t length = strcspn(text, ":"); /* options follow */
    for (size_t i = 0; i < KOLO_COUNT(ends); i++) {
        const size_t n = strlen(ends[i]);
        if (length <= n || strncmp(text + length - n, ends[i], n) != 0) continue;
        *path_length = length;
        return after ? NULL : text;
    }
    return NULL;
}

/* The rows in the order of help pages. A row is a few lines, not one line for each field. */
/* clang-format off */
const kolo_option cli_options[] = {
#include "cli/options/rows/data.h"
#include "cli/options/rows/ranks.h"
#include "cli/options/rows/distribution.h"
#include "cli/options/rows/amounts.h"
#include "cli/options/rows/optimizer.h"
#include "cli/options/rows/computation.h"
#include "cli/options/rows/output.h"
};
/* clang-format on */

const size_t cli_n_options = KOLO_COUNT(cli_options);

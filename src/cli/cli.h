#pragma once
/* The command `kolo`: what its commands share.
 *
 * A command is one cmd_*.c, a row in main.c's table of commands and the bits of its options in
 * options.c. It gets resolved options and gives the exit status: 0; 2 when what was asked for
 * cannot be (KOLO_ERR_ARG: options, config file, an unknown model, data that the model does not
 * take); 1 for all other failures; 128 + the signal that ended it. One line on standard error says
 * why. */

#include "base/option.h"
#include "kolo/dtype.h"

enum {
    CMD_TRAIN = 1 << 0,
    CMD_EVAL = 1 << 1,
    CMD_BENCH_TRAIN = 1 << 2,
    CMD_BENCH_ALLREDUCE = 1 << 3,
    CMD_RUN = 1 << 4,
    CMD_DUMP = 1 << 5,
    CMD_INFO = 1 << 6,
    CMD_HELP = 1 << 7,
    CMD_BENCH_COMPRESS = 1 << 8,
    CMD_PROFILE = 1 << 9,
    CMD_CHECKPOINT_INFO = 1 << 10,
    CMD_CHECKPOINT_VERIFY = 1 << 11,
    CMD_CHECKPOINT_DIFF = 1 << 12,
    CMD_CHECKPOINT_EXPORT = 1 << 13,
    CMD_BENCH_SIM = 1 << 14,
};

enum { CLI_N_COMMANDS = 15 };

extern const kolo_option_command cli_commands[CLI_N_COMMANDS]; /* src/cli/main.c */
extern const kolo_option_table cli_table;                      /* src/cli/options/options.c */

int cmd_train(kolo_options *o);
int cmd_eval(kolo_options *o);
int cmd_bench_train(kolo_options *o);
int cmd_bench_allreduce(kolo_options *o);
int cmd_bench_compress(kolo_options *o);
int cmd_profile(kolo_options *o);
int cmd_bench_sim(kolo_options *o);
int cmd_run(kolo_options *o);
int cmd_checkpoint_info(kolo_options *o);
int cmd_checkpoint_verify(kolo_options *o);
int cmd_checkpoint_diff(kolo_options *o);
int cmd_checkpoint_export(kolo_options *o);
int cmd_dump(kolo_options *o);
int cmd_info(kolo_options *o);

/* Prints the latest failure as "kolo: text" on standard error, or hands it to the launcher when
 * this is one of its ranks. Gives the exit status. */
int cli_fail(kolo_status status);
/* The exit status of a failure: 2 for ARG, else 1. */
int cli_exit_status(kolo_status status);

/* Reads the config file that --config names, if any. src/cli/options/config.c */
kolo_status cli_read_config(kolo_options *o, const char *path);
/* Reads the config.yaml of the run that `resume` names, by its folder or by a checkpoint in it, and
 * makes that folder the job's own. "latest" names none. */
kolo_status cli_read_run_config(kolo_options *o, const char *resume);

enum { CLI_SIZES = 64 };
/* Reads the list of --sizes, "8,1K,1M", whole elements of a type. src/cli/commands/bench.c */
kolo_status cli_parse_sizes(const char *list, kolo_dtype dtype, size_t sizes[CLI_SIZES], int *n);

/* Prints a text on standard output; IO when it cannot be written. */
kolo_status cli_print(const kolo_text *text);
/* Finds out whether --json names what can be written: better before the work than after it. IO. */
kolo_status cli_check_json(const char *path);
/* Prints a result as a table and writes it as JSON where --json says: NULL is nowhere; "-" is
 * standard output, and then the table goes to standard error. */
kolo_status cli_report(const kolo_text *table, const char *path, kolo_text *json);

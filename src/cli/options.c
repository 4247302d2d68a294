/* The table of every option of every command. */
#include "cli/cli.h"

enum { MAX_RANKS = 1024, MAX_THREADS = 1024 };

static const kolo_option rows[] = {
    /* ---- where ranks run ---- */
    {.name = "ranks",
     .letter = 'n',
     .type = KOLO_OPTION_INT,
     .metavar = "N",
     .preset = "2",
     .min = 1,
     .max = MAX_RANKS,
     .commands = CMD_RUN | CMD_BENCH_ALLREDUCE,
     .help = "local ranks to start"},
    {.name = "threads",
     .type = KOLO_OPTION_INT,
     .metavar = "T",
     .without = "what OMP_NUM_THREADS says, else an equal share of the processors",
     .min = 1,
     .max = MAX_THREADS,
     .commands = CMD_RUN,
     .help = "OpenMP threads of each rank"},
    /* ---- help ---- */
    {.name = "markdown",
     .type = KOLO_OPTION_FLAG,
     .commands = CMD_HELP,
     .not_in_file = true,
     .help = "print the manual of all commands as Markdown"},
};

const kolo_option_table cli_table = {
    .program = "kolo",
    .rows = rows,
    .n_rows = KOLO_COUNT(rows),
    .commands = cli_commands,
    .n_commands = CLI_N_COMMANDS,
};

/* The command `kolo`: finds the command, resolves its options, runs it. */
#define _GNU_SOURCE
#include "base/file.h"
#include "cli/cli.h"
#include "cli/launcher/guard.h"
#include "cli/launcher/launch.h"
#include "kolo/dump.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static int cmd_help(kolo_options *o);

static const char exit_statuses[] =
    "0 when it worked; 2 when what was asked for cannot be (options, a config file, an unknown "
    "model, data that the model does not take); 127 when 'kolo run' finds no such program, 126 "
    "when it is none; 1 for every other failure; 128 and the number of the signal that ended it";

const kolo_option_command cli_commands[] = {
    {.name = "train",
     .bit = CMD_TRAIN,
     .summary = "Trains a model on a data set, on any number of local workers",
     .run = cmd_train},
    {.name = "eval",
     .bit = CMD_EVAL,
     .summary = "Evaluates a checkpoint on the test data",
     .run = cmd_eval},
    {.name = "bench train",
     .bit = CMD_BENCH_TRAIN,
     .summary = "Measures training steps, with the data in memory",
     .run = cmd_bench_train},
    {.name = "bench allreduce",
     .bit = CMD_BENCH_ALLREDUCE,
     .summary = "Measures allreduces between local ranks",
     .run = cmd_bench_allreduce},
    {.name = "bench compress",
     .bit = CMD_BENCH_COMPRESS,
     .summary = "Measures the codecs: speed, size and error",
     .run = cmd_bench_compress},
    {.name = "bench sim",
     .bit = CMD_BENCH_SIM,
     .summary = "Predicts allreduces on a modelled network of up to 4096 ranks",
     .run = cmd_bench_sim},
    {.name = "profile",
     .bit = CMD_PROFILE,
     .summary = "Shows where the time of a training step goes, beside what the machine could do",
     .run = cmd_profile},
    {.name = "run",
     .bit = CMD_RUN,
     .arguments = "-- program [args]",
     .summary = "Starts local ranks of any program and prefixes their lines with [rank]",
     .run = cmd_run},
    {.name = "checkpoint info",
     .bit = CMD_CHECKPOINT_INFO,
     .arguments = "FILE",
     .summary = "Prints what a file of weights holds",
     .run = cmd_checkpoint_info},
    {.name = "checkpoint verify",
     .bit = CMD_CHECKPOINT_VERIFY,
     .arguments = "FILE",
     .summary = "Finds out whether a checkpoint is whole and fits its model",
     .run = cmd_checkpoint_verify},
    {.name = "checkpoint diff",
     .bit = CMD_CHECKPOINT_DIFF,
     .arguments = "FILE FILE",
     .summary = "Compares two files of weights; gives 1 when they differ",
     .run = cmd_checkpoint_diff},
    {.name = "checkpoint export",
     .bit = CMD_CHECKPOINT_EXPORT,
     .arguments = "FILE",
     .summary = "Writes a checkpoint's weights under the names of another program",
     .run = cmd_checkpoint_export},
    {.name = "dump",
     .bit = CMD_DUMP,
     .summary = "Prints the graph of a model, the plan of its training step, or its allreduce",
     .run = cmd_dump},
    {.name = "info",
     .bit = CMD_INFO,
     .summary = "Prints what this build is, what it runs on and what it stands on",
     .run = cmd_info},
    {.name = "help",
     .bit = CMD_HELP,
     .arguments = "[command]",
     .summary = "Prints the help of a command, or the whole manual",
     .run = cmd_help},
};

int cli_fail(kolo_status status) {
    if (!launch_report(status, kolo_last_error())) fprintf(stderr, "kolo: %s\n", kolo_last_error());
    return cli_exit_status(status);
}

int cli_exit_status(kolo_status status) { return status == KOLO_ERR_ARG ? 2 : 1; }

kolo_status cli_print(const kolo_text *text) {
    if (text->failed) return KOLO_NOMEM(text->length);
    if (!kolo_write_all(STDOUT_FILENO, text->text, text->length)) {
        return kolo_file_fail("write", "standard output", errno);
    }
    return KOLO_OK;
}

kolo_status cli_check_json(const char *path) {
    if (!path || strcmp(path, "-") == 0) return KOLO_OK;
    kolo_file_writer *writer;
    KOLO_TRY(kolo_file_create(path, &writer));
    kolo_file_abandon(writer);
    return KOLO_OK;
}

static kolo_status write_json(const char *path, kolo_text *json) {
    kolo_text_add(json, "\n");
    if (strcmp(path, "-") == 0) return cli_print(json);
    if (json->failed) return KOLO_NOMEM(json->length);
    return kolo_file_write(path, json->text, json->length);
}

kolo_status cli_report(const kolo_text *table, const char *path, kolo_text *json) {
    if (table->failed) return KOLO_NOMEM(table->length);
    if (path && strcmp(path, "-") == 0) {
        fputs(table->text, stderr);
    } else {
        KOLO_TRY(cli_print(table));
    }
    return path ? write_json(path, json) : KOLO_OK;
}

/* The command that `argv` names, and how many words its name took. */
static const kolo_option_command *find_command(int argc, char **argv, int *n_words) {
    for (size_t i = 0; i < CLI_N_COMMANDS; i++) {
        const char *second = strchr(cli_commands[i].name, ' ');
        size_t first =
            second ? (size_t)(second - cli_commands[i].name) : strlen(cli_commands[i].name);
        if (strlen(argv[0]) != first || strncmp(argv[0], cli_commands[i].name, first)) continue;
        if (second && (argc < 2 || strcmp(argv[1], second + 1) != 0)) continue;
        *n_words = second ? 2 : 1;
        return &cli_commands[i];
    }
    return NULL;
}

/* "kolo tarin", "kolo bench", "kolo bench allredcue". */
static int fail_unknown_command(int argc, char **argv) {
    const char *names[CLI_N_COMMANDS + 1], *seconds[CLI_N_COMMANDS + 1];
    size_t n = 0, n_seconds = 0, length = strlen(argv[0]);
    kolo_text list = {0};
    for (size_t i = 0; i < CLI_N_COMMANDS; i++) {
        names[n++] = cli_commands[i].name;
        if (strncmp(cli_commands[i].name, argv[0], length) || cli_commands[i].name[length] != ' ')
            continue;
        seconds[n_seconds++] = cli_commands[i].name + length + 1;
        kolo_text_add(&list, "%s%s", n_seconds > 1 ? ", " : "", seconds[n_seconds - 1]);
    }
    names[n] = seconds[n_seconds] = NULL;
    const char *word = n_seconds && argc > 1 ? argv[1] : argv[0];
    const char *closest = kolo_closest(word, n_seconds ? seconds : names);
    if (n_seconds && argc < 2) {
        fprintf(stderr, "kolo: '%s' needs one of: %s\n", argv[0], list.failed ? "" : list.text);
    } else if (closest) {
        fprintf(stderr, "kolo: unknown command '%s%s%s': did you mean '%s%s%s'?\n",
                n_seconds ? argv[0] : "", n_seconds ? " " : "", word, n_seconds ? argv[0] : "",
                n_seconds ? " " : "", closest);
    } else {
        fprintf(stderr, "kolo: unknown command '%s': 'kolo --help' lists what there is\n", word);
    }
    kolo_text_fini(&list);
    return 2;
}

/* Prints and frees. */
static int print(kolo_text *text) {
    kolo_status status = cli_print(text);
    kolo_text_fini(text);
    return status == KOLO_OK ? 0 : cli_fail(status);
}

static int print_help(const kolo_option_command *command) {
    kolo_text text = {0};
    if (command) {
        kolo_options_help(&cli_table, command, &text);
    } else {
        kolo_text_add(&text, "usage: kolo COMMAND [options]\n\n"
                             "Kolo trains neural networks on many workers.\n\ncommands:\n");
        kolo_options_help_program(&cli_table, NULL, &text);
        kolo_text_add(&text,
                      "\n'kolo COMMAND --help' explains a command; 'kolo help models' lists the "
                      "models and\ntheir options; 'kolo --version' prints the version.\n"
                      "exit status: %s.\n",
                      exit_statuses);
    }
    return print(&text);
}

/* The commands that begin with a word: "bench". */
static int print_family(const char *word) {
    kolo_text text = {0};
    kolo_text_add(&text, "usage: kolo %s COMMAND [options]\n\ncommands:\n", word);
    kolo_options_help_program(&cli_table, word, &text);
    return print(&text);
}

static bool is_family(const char *word) {
    size_t length = strlen(word);
    for (size_t i = 0; i < CLI_N_COMMANDS; i++) {
        const char *name = cli_commands[i].name;
        if (strncmp(name, word, length) == 0 && name[length] == ' ') return true;
    }
    return false;
}

static int print_manual(bool man) {
    kolo_text text = {0};
    if (man) {
        kolo_options_man(&cli_table, kolo_version(), exit_statuses, &text);
    } else {
        kolo_text_add(&text,
                      "# The command line\n\nMade from the option table by "
                      "`kolo help --markdown`. Every option of a command that takes\n`--config` "
                      "can also stand in a YAML file, without the dashes; flags win. A file may "
                      "serve several\ncommands: each passes over the options of others, so the "
                      "`config.yaml` of a run is good for `eval`\nand `bench train` too.\n\n"
                      "Exit status: %s.\n",
                      exit_statuses);
        kolo_options_markdown(&cli_table, &text);
    }
    return print(&text);
}

static int print_models(bool markdown) {
    char *page;
    kolo_status status = kolo_dump_models(markdown, &page);
    if (status != KOLO_OK) return cli_fail(status);
    kolo_text text = {0};
    kolo_text_add(&text, "%s", page);
    kolo_dump_free(page);
    return print(&text);
}

static int cmd_help(kolo_options *o) {
    bool man = kolo_options_flag(o, "man"), markdown = kolo_options_flag(o, "markdown");
    if (o->n_rest == 1 && strcmp(o->rest[0], "models") == 0 && !man) return print_models(markdown);
    if (man || markdown) return print_manual(man);
    if (o->n_rest == 0) return print_help(NULL);
    int n_words;
    const kolo_option_command *command = find_command(o->n_rest, o->rest, &n_words);
    if (!command && o->n_rest == 1 && is_family(o->rest[0])) return print_family(o->rest[0]);
    return command ? print_help(command) : fail_unknown_command(o->n_rest, o->rest);
}

static bool takes(const kolo_option_command *command, const char *name) {
    for (size_t i = 0; i < cli_table.n_rows; i++) {
        const kolo_option *row = &cli_table.rows[i];
        if ((row->commands & command->bit) && strcmp(row->name, name) == 0) return true;
    }
    return false;
}

/* Arguments, then the config file, then what must be there. */
static kolo_status resolve(kolo_options *o, const kolo_option_command *command, int argc,
                           char **argv) {
    KOLO_TRY(kolo_options_init(o, &cli_table, command));
    KOLO_TRY(kolo_options_parse(o, argc, argv));
    if (o->help) return KOLO_OK;
    const char *config = takes(command, "config") ? kolo_options_text(o, "config") : NULL;
    if (config) {
        KOLO_TRY(cli_read_config(o, config));
    } else if (takes(command, "resume")) {
        KOLO_TRY(cli_read_run_config(o, kolo_options_text(o, "resume")));
    }
    return kolo_options_check(o);
}

/* A program started with standard descriptors closed would get its first files in their place. What
 * takes the place of standard output cannot be written: nothing is lost without a word. */
static void fill_standard_descriptors(void) {
    for (int fd = open("/dev/null", O_RDONLY); fd >= 0; fd = open("/dev/null", O_RDONLY)) {
        if (fd <= STDERR_FILENO) continue;
        close(fd);
        break;
    }
}

/* Better to know before the work than after it. */
static kolo_status check_output(void) {
    int flags = fcntl(STDOUT_FILENO, F_GETFL);
    if (flags >= 0 && (flags & O_ACCMODE) != O_RDONLY) return KOLO_OK;
    return kolo_file_fail("write", "standard output", EBADF);
}

static int run_command(const kolo_option_command *command, int argc, char **argv) {
    kolo_options o = {0};
    kolo_status status = check_output();
    if (status == KOLO_OK) status = resolve(&o, command, argc, argv);
    int exit_status;
    if (status != KOLO_OK) {
        exit_status = cli_fail(status);
    } else {
        exit_status = o.help ? print_help(command) : command->run(&o);
    }
    kolo_options_fini(&o);
    return exit_status;
}

int main(int argc, char **argv) {
    fill_standard_descriptors();
    prctl(PR_SET_NAME, "kolo"); /* not "exe", as ranks are started by */
    signal(SIGXFSZ, SIG_IGN);   /* a file that may not grow is an error of its write */
    if (argc < 2) {
        fprintf(stderr, "kolo: which command? 'kolo --help' lists what there is\n");
        return 2;
    }
    if (strcmp(argv[1], "__guard") == 0) return guard_main();
    if (strcmp(argv[1], "__rank") == 0) return launch_become_rank(argc - 2, argv + 2);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) return print_help(NULL);
    if (strcmp(argv[1], "--version") == 0) {
        kolo_text text = {0};
        kolo_text_add(&text, "kolo %s\n", kolo_version());
        return print(&text);
    }
    int n_words;
    bool asks = argc == 3 && (strcmp(argv[2], "--help") == 0 || strcmp(argv[2], "-h") == 0);
    if (asks && is_family(argv[1])) return print_family(argv[1]);
    const kolo_option_command *command = find_command(argc - 1, argv + 1, &n_words);
    if (!command) return fail_unknown_command(argc - 1, argv + 1);
    return run_command(command, argc - 1 - n_words, argv + 1 + n_words);
}

/* The command `kolo`: finds the command, resolves its options, runs it. */
#define _GNU_SOURCE
#include "base/file.h"
#include "cli/commands/commands.h"
#include "cli/commands/help.h"
#include "cli/launcher/error_report.h"
#include "cli/launcher/guard.h"
#include "cli/launcher/launch.h"
#include "cli/options/command_name.h"
#include "cli/options/config.h"
#include "cli/options/options.h"
#include "cli/output/exit_status.h"
#include "cli/output/output.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static const kolo_option_command commands[] = {
#define COMMAND(flag, function, words, follow, text) \
    {.name = words, .bit = flag, .arguments = follow, .summary = text, .run = function},
    CLI_COMMAND_LIST(COMMAND)
#undef COMMAND
};

/* Reads the arguments, then the config file, and checks that required options are given and that
 * files have one use. */
static kolo_status resolve(kolo_options *o, const kolo_option_table *table,
                           const kolo_option_command *command, int argc, char **argv) {
    KOLO_TRY(kolo_options_init(o, table, command));
    KOLO_TRY(kolo_options_parse(o, argc, argv));
    if (o->help) return KOLO_OK;
    const char *config = kolo_options_has(o, "config") ? kolo_options_text(o, "config") : NULL;
    if (config) {
        KOLO_TRY(config_read(o, config));
    } else if (kolo_options_has(o, "resume")) {
        KOLO_TRY(config_read_run(o, kolo_options_text(o, "resume")));
    }
    KOLO_TRY(kolo_options_check(o));
    return output_check_files(o);
}

/* Opens /dev/null for standard descriptors that are closed, so that no other file gets their
 * numbers. It is read-only: writing to standard output stays an error. */
static void fill_standard_descriptors(void) {
    for (int fd = open("/dev/null", O_RDONLY); fd >= 0; fd = open("/dev/null", O_RDONLY)) {
        if (fd <= STDERR_FILENO) continue;
        close(fd);
        break;
    }
}

/* Checks that standard output is writable, before the work starts. */
static kolo_status check_output(void) {
    int flags = fcntl(STDOUT_FILENO, F_GETFL);
    if (flags >= 0 && (flags & O_ACCMODE) != O_RDONLY) return KOLO_OK;
    return kolo_file_fail("write", "standard output", EBADF);
}

static int run_command(const kolo_option_table *table, const kolo_option_command *command, int argc,
                       char **argv) {
    kolo_options o = {0};
    kolo_status status = check_output();
    if (status == KOLO_OK) status = resolve(&o, table, command, argc, argv);
    int exit_status;
    if (status != KOLO_OK) {
        exit_status = report_failure(status);
    } else {
        exit_status = o.help ? help_print(table, command) : command->run(&o);
    }
    kolo_options_fini(&o);
    return exit_status;
}

static bool is_help(const char *word) {
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static int dispatch(const kolo_option_table *table, int argc, char **argv) {
    if (is_help(argv[0])) return help_print(table, NULL);
    if (argc == 2 && is_help(argv[1]) && command_is_family(table, argv[0])) {
        return help_print_family(table, argv[0]);
    }
    int n_words;
    const kolo_option_command *command = command_find(table, argc, argv, &n_words);
    if (!command) return report_failure(command_fail_unknown(table, argc, argv));
    return run_command(table, command, argc - n_words, argv + n_words);
}

int main(int argc, char **argv) {
    const kolo_option_table table = {.program = "kolo",
                                     .rows = cli_options,
                                     .n_rows = cli_n_options,
                                     .commands = commands,
                                     .n_commands = KOLO_COUNT(commands)};
    fill_standard_descriptors();
    prctl(PR_SET_NAME, "kolo"); /* ranks are started as /proc/self/exe, whose name is "exe" */
    signal(SIGXFSZ, SIG_IGN);   /* exceeding the file size limit is an error of write() */
    if (argc < 2) {
        fprintf(stderr, "kolo: no command: 'kolo --help' lists the commands\n");
        return EXIT_STATUS_USAGE;
    }
    if (strcmp(argv[1], "__guard") == 0) return guard_main();
    if (strcmp(argv[1], "__rank") == 0) return launch_become_rank(argc - 2, argv + 2);
    if (strcmp(argv[1], "--version") == 0) return help_print_version();
    return dispatch(&table, argc - 1, argv + 1);
}

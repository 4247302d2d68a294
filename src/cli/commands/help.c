/* kolo help, and --help of every command: help pages and the manual, from the option table. */
#include "cli/commands/help.h"

#include "cli/commands/commands.h"
#include "cli/launcher/error_report.h"
#include "cli/options/command_name.h"
#include "cli/output/output.h"
#include "kolo/dump.h"

#include <string.h>

static const char exit_statuses[] =
    "0 on success; 2 if the request is invalid (options, alone or for this\n"
    "model and data); of 'kolo run' that of the rank that it names, 1 if a signal ended\n"
    "that, or 126 or 127 if it cannot execute or find the program; 128 + N if signal N\n"
    "ended the command; 1 for all other failures, such as files that are missing or\n"
    "damaged";

/* Prints a text and frees it. */
static int print(kolo_text *text) {
    kolo_status status = output_print(text);
    kolo_text_fini(text);
    return status == KOLO_OK ? 0 : report_failure(status);
}

int help_print(const kolo_option_table *table, const kolo_option_command *command) {
    kolo_text text = {0};
    if (command) {
        kolo_options_help(table, command, &text);
    } else {
        kolo_text_add(&text, "usage: kolo COMMAND [options]\n\n"
                             "Kolo trains neural networks on many workers.\n\ncommands:\n");
        kolo_options_help_program(table, NULL, &text);
        kolo_text_add(&text,
                      "\n'kolo COMMAND --help' prints the options of a command, 'kolo help models' "
                      "the\nmodels and their options, 'kolo --version' the version.\n\n"
                      "exit status: %s.\n",
                      exit_statuses);
    }
    return print(&text);
}

int help_print_family(const kolo_option_table *table, const char *word) {
    kolo_text text = {0};
    kolo_text_add(&text, "usage: kolo %s COMMAND [options]\n\ncommands:\n", word);
    kolo_options_help_program(table, word, &text);
    return print(&text);
}

int help_print_version(void) {
    kolo_text text = {0};
    kolo_text_add(&text, "kolo %s\n", kolo_version());
    return print(&text);
}

static int print_manual(const kolo_option_table *table, bool man) {
    kolo_text text = {0};
    if (man) {
        kolo_options_man(table, kolo_version(), exit_statuses, &text);
    } else {
        kolo_text_add(&text,
                      "# The command line\n\nGenerated from the option table by "
                      "`kolo help --markdown`. Every option of a command that takes\n`--config` "
                      "can also be set in a YAML file, without the dashes; flags take precedence. "
                      "Several commands may\nshare a file: each ignores the options of others, so "
                      "the `config.yaml` of a run also serves `eval`\nand `bench train`.\n\n"
                      "Exit status: %s.\n",
                      exit_statuses);
        kolo_options_markdown(table, &text);
    }
    return print(&text);
}

static int print_models(bool markdown) {
    char *page;
    kolo_status status = kolo_dump_models(markdown, &page);
    if (status != KOLO_OK) return report_failure(status);
    kolo_text text = {0};
    kolo_text_add(&text, "%s", page);
    kolo_dump_free(page);
    return print(&text);
}

int cmd_help(kolo_options *o) {
    bool man = kolo_options_flag(o, "man"), markdown = kolo_options_flag(o, "markdown");
    if (o->n_rest == 1 && strcmp(o->rest[0], "models") == 0 && !man) return print_models(markdown);
    if (kolo_options_flag(o, "completion")) {
        kolo_text script = {0};
        kolo_options_completion(o->table, &script);
        return print(&script);
    }
    if (man || markdown) return print_manual(o->table, man);
    if (o->n_rest == 0) return help_print(o->table, NULL);
    int n_words;
    const kolo_option_command *command = command_find(o->table, o->n_rest, o->rest, &n_words);
    if (!command && o->n_rest == 1 && command_is_family(o->table, o->rest[0]))
        return help_print_family(o->table, o->rest[0]);
    if (command) return help_print(o->table, command);
    return report_failure(command_fail_unknown(o->table, o->n_rest, o->rest));
}

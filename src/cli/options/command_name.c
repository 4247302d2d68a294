#include "cli/options/command_name.h"

#include <string.h>

const kolo_option_command *command_find(const kolo_option_table *table, int argc, char **argv,
                                        int *n_words) {
    for (size_t i = 0; i < table->n_commands; i++) {
        const kolo_option_command *command = &table->commands[i];
        size_t first = strcspn(command->name, " ");
        const char *second = command->name[first] ? command->name + first + 1 : NULL;
        if (strlen(argv[0]) != first || strncmp(argv[0], command->name, first) != 0) continue;
        if (second && (argc < 2 || strcmp(argv[1], second) != 0)) continue;
        *n_words = second ? 2 : 1;
        return command;
    }
    return NULL;
}

/* The second word of a command's name if `word` is the first; else NULL. */
static const char *second_word(const kolo_option_command *command, const char *word) {
    size_t length = strlen(word);
    bool member = strncmp(command->name, word, length) == 0 && command->name[length] == ' ';
    return member ? command->name + length + 1 : NULL;
}

bool command_is_family(const kolo_option_table *table, const char *word) {
    for (size_t i = 0; i < table->n_commands; i++) {
        if (second_word(&table->commands[i], word)) return true;
    }
    return false;
}

/* "kolo bench": lists the commands of the family. */
static kolo_status fail_incomplete(const kolo_option_table *table, const char *word) {
    kolo_text list = {0};
    for (size_t i = 0; i < table->n_commands; i++) {
        const char *second = second_word(&table->commands[i], word);
        if (second) kolo_text_add(&list, "%s%s", list.length ? ", " : "", second);
    }
    kolo_status status = KOLO_ERR_ARG;
    if (list.failed) {
        status = KOLO_NOMEM(list.length);
    } else {
        KOLO_FAIL(status, "'%s' needs one of: %s", word, list.text);
    }
    kolo_text_fini(&list);
    return status;
}

kolo_status command_fail_unknown(const kolo_option_table *table, int argc, char **argv) {
    bool family = command_is_family(table, argv[0]);
    if (family && argc < 2) return fail_incomplete(table, argv[0]);
    const char **names = kolo_zalloc((table->n_commands + 1) * sizeof *names);
    if (!names) return KOLO_NOMEM((table->n_commands + 1) * sizeof *names);
    size_t n = 0;
    for (size_t i = 0; i < table->n_commands; i++) {
        const kolo_option_command *command = &table->commands[i];
        const char *name = family ? second_word(command, argv[0]) : command->name;
        if (name) names[n++] = name;
    }
    const char *word = family ? argv[1] : argv[0], *closest = kolo_closest(word, names);
    const char *first = family ? argv[0] : "", *space = family ? " " : "";
    kolo_free(names);
    if (closest) {
        return KOLO_FAIL(KOLO_ERR_ARG, "unknown command '%s%s%s': did you mean '%s%s%s'?", first,
                         space, word, first, space, closest);
    }
    return KOLO_FAIL(KOLO_ERR_ARG, "unknown command '%s%s%s': 'kolo --help' lists the commands",
                     first, space, word);
}

/* The completion script: a shell function with the words that may follow each command, and the
 * values of enumerated options. */
#include "base/option.h"

#include <string.h>

/* The first words of all commands, each once. */
static void add_first_words(const kolo_option_table *table, kolo_text *t) {
    for (size_t i = 0; i < table->n_commands; i++) {
        const char *name = table->commands[i].name;
        size_t length = strcspn(name, " "), before = 0;
        while (before < i && (strncmp(table->commands[before].name, name, length) != 0 ||
                              strcspn(table->commands[before].name, " ") != length)) {
            before++;
        }
        if (before == i) kolo_text_add(t, " %.*s", (int)length, name);
    }
}

/* The second words of the commands whose first is that of command `of`. */
static void add_second_words(const kolo_option_table *table, size_t of, kolo_text *t) {
    const char *first = table->commands[of].name;
    size_t length = strcspn(first, " ");
    for (size_t i = 0; i < table->n_commands; i++) {
        const char *name = table->commands[i].name;
        if (strncmp(name, first, length) == 0 && name[length] == ' ') {
            kolo_text_add(t, " %s", name + length + 1);
        }
    }
}

static void add_options(const kolo_option_table *table, uint32_t command, kolo_text *t) {
    for (size_t i = 0; i < table->n_rows; i++) {
        const kolo_option *row = &table->rows[i];
        bool on = row->preset && strcmp(row->preset, "true") == 0;
        if (row->commands & command) kolo_text_add(t, " --%s%s", on ? "no-" : "", row->name);
    }
    kolo_text_add(t, " --help");
}

static void add_values(const kolo_option_table *table, kolo_text *t) {
    for (size_t i = 0; i < table->n_rows; i++) {
        const kolo_option *row = &table->rows[i];
        if (row->type != KOLO_OPTION_CHOICE) continue;
        kolo_text_add(t, "    --%s) words=\"", row->name);
        for (int k = 0; k < kolo_option_choices(row); k++) {
            kolo_text_add(t, "%s%s", k ? " " : "", row->choices[k].name);
        }
        kolo_text_add(t, "\" ;;\n");
    }
}

void kolo_options_completion(const kolo_option_table *table, kolo_text *t) {
    const char *p = table->program;
    kolo_text_add(t,
                  "# Completion of %s for bash and zsh: source this file in the shell's start-up "
                  "file.\n"
                  "[ -z \"${ZSH_VERSION-}\" ] || { autoload -Uz bashcompinit && bashcompinit; }\n"
                  "_%s() {\n"
                  "    local words current=\"${COMP_WORDS[COMP_CWORD]}\"\n"
                  "    case \"${COMP_WORDS[1]} ${COMP_WORDS[2]}\" in\n",
                  p, p);
    for (size_t i = 0; i < table->n_commands; i++) { /* those of two words first */
        const kolo_option_command *c = &table->commands[i];
        if (!strchr(c->name, ' ')) continue;
        kolo_text_add(t, "    \"%s\") words=\"", c->name);
        add_options(table, c->bit, t);
        kolo_text_add(t, "\" ;;\n");
    }
    for (size_t i = 0; i < table->n_commands; i++) {
        const kolo_option_command *c = &table->commands[i];
        size_t length = strcspn(c->name, " ");
        kolo_text_add(t, "    \"%.*s \"*) words=\"", (int)length, c->name);
        if (c->name[length]) {
            add_second_words(table, i, t);
        } else {
            add_options(table, c->bit, t);
        }
        kolo_text_add(t, "\" ;;\n");
    }
    kolo_text_add(t, "    esac\n    [ \"$COMP_CWORD\" != 1 ] || words=\"");
    add_first_words(table, t);
    kolo_text_add(t, "\"\n    case \"${COMP_WORDS[COMP_CWORD - 1]}\" in\n");
    add_values(table, t);
    kolo_text_add(t,
                  "    esac\n"
                  "    COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
                  "}\n"
                  "complete -o default -F _%s %s\n",
                  p, p);
}

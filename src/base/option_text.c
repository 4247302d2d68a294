/* Output generated from the option table: help pages, the manual, config files. */
#include "base/file.h"
#include "base/json.h"
#include "base/number.h"
#include "base/option.h"

#include <inttypes.h>
#include <string.h>

enum { WIDTH = 80, HELP_COLUMN = 26, ONE_SECTION = 16 };

/* ---- allowed values ---- */

static void add_bytes(kolo_text *t, double bytes) {
    static const char suffixes[] = {'K', 'M', 'G'};
    int64_t n = (int64_t)bytes;
    int i = -1;
    while (i < 2 && n >= 1024 && n % 1024 == 0) {
        n /= 1024;
        i++;
    }
    kolo_text_add(t, "%" PRId64, n);
    if (i >= 0) kolo_text_add(t, "%c", suffixes[i]);
}

static void add_limit(const kolo_option *row, kolo_text *t, double limit) {
    if (row->type == KOLO_OPTION_BYTES) {
        add_bytes(t, limit);
    } else if (row->type == KOLO_OPTION_INT) {
        kolo_text_add(t, "%" PRId64, (int64_t)limit);
    } else {
        kolo_text_add(t, "%g", limit);
    }
}

static void add_range(const kolo_option *row, kolo_text *t) {
    if (row->min == 0 && row->max == 0) return;
    kolo_text_add(t, " from ");
    add_limit(row, t, row->min);
    kolo_text_add(t, " to ");
    add_limit(row, t, row->max);
}

int kolo_option_choices(const kolo_option *row) {
    int n = 0;
    while (row->choices[n].name && (row->n_choices == 0 || n < row->n_choices)) n++;
    return n;
}

static void add_choices(const kolo_option *row, kolo_text *t, const char *between) {
    for (int i = 0; i < kolo_option_choices(row); i++) {
        kolo_text_add(t, "%s%s", i ? between : "", row->choices[i].name);
    }
}

void kolo_option_allowed(const kolo_option *row, kolo_text *t) {
    switch (row->type) {
    case KOLO_OPTION_TEXT:
        kolo_text_add(t, "a non-empty string");
        break;
    case KOLO_OPTION_FLAG:
        kolo_text_add(t, "true or false");
        break;
    case KOLO_OPTION_CHOICE:
        kolo_text_add(t, "one of ");
        add_choices(row, t, ", ");
        break;
    case KOLO_OPTION_INT:
        kolo_text_add(t, "an integer");
        break;
    case KOLO_OPTION_FLOAT:
        kolo_text_add(t, "a number");
        break;
    case KOLO_OPTION_BYTES:
        kolo_text_add(t, "a number of bytes, such as 4096, 64K or 1M,");
        break;
    }
    if (row->type != KOLO_OPTION_CHOICE) add_range(row, t);
}

/* ---- help pages ---- */

/* Prints words wrapped between `column`, the current column, and WIDTH. */
static void add_wrapped(kolo_text *t, const char *words, int column) {
    int at = column;
    for (const char *word = words; *word;) {
        int length = (int)strcspn(word, " \n");
        if (at > column && at + 1 + length > WIDTH) {
            kolo_text_add(t, "\n%*s", column, "");
            at = column;
        }
        kolo_text_add(t, "%s%.*s", at > column ? " " : "", length, word);
        at += length + (at > column);
        word += length;
        word += strspn(word, " \n");
    }
    kolo_text_add(t, "\n");
}

/* "-n, --ranks N", "--no-shuffle", "--schedule constant|step|cosine". */
static void add_form(const kolo_option *row, kolo_text *t) {
    if (row->letter) kolo_text_add(t, "-%c, ", row->letter);
    bool on = row->type == KOLO_OPTION_FLAG && row->preset && strcmp(row->preset, "true") == 0;
    kolo_text_add(t, "--%s%s", on ? "no-" : "", row->name);
    if (row->type == KOLO_OPTION_CHOICE && !row->metavar) {
        kolo_text_add(t, " ");
        add_choices(row, t, "|");
    } else if (row->type != KOLO_OPTION_FLAG) {
        kolo_text_add(t, " %s", row->metavar);
    }
}

/* "(default 64; from 1 to 65536)", or nothing. */
static void add_facts(const kolo_option *row, uint32_t command, kolo_text *t) {
    kolo_text facts = {0};
    if (row->required & command) kolo_text_add(&facts, "; required");
    if (row->preset && row->type != KOLO_OPTION_FLAG) {
        kolo_text_add(&facts, "; default: %s", row->preset);
    } else if (row->unset) {
        kolo_text_add(&facts, "; default: %s", row->unset);
    }
    if (row->min != 0 || row->max != 0) {
        kolo_text_add(&facts, ";");
        add_range(row, &facts);
    }
    if (facts.length > 0) kolo_text_add(t, " (%s)", facts.text + 2);
    t->failed |= facts.failed;
    kolo_text_fini(&facts);
}

static bool has_choice_help(const kolo_option *row) {
    return row->type == KOLO_OPTION_CHOICE && row->choices[0].help;
}

/* ". none: nothing; cheap: ..." in running text. */
static void add_choice_text(const kolo_option *row, kolo_text *t) {
    if (!has_choice_help(row)) return;
    for (int i = 0; i < kolo_option_choices(row); i++) {
        kolo_text_add(t, "%s%s: %s", i ? "; " : ". ", row->choices[i].name, row->choices[i].help);
    }
}

/* The values of an option, one on a line. */
static void add_choice_lines(const kolo_option *row, kolo_text *t) {
    int width = 0;
    if (!has_choice_help(row)) return;
    for (int i = 0; i < kolo_option_choices(row); i++) {
        int length = (int)strlen(row->choices[i].name);
        if (length > width) width = length;
    }
    for (int i = 0; i < kolo_option_choices(row); i++) {
        kolo_text_add(t, "%*s%-*s  ", HELP_COLUMN + 2, "", width, row->choices[i].name);
        add_wrapped(t, row->choices[i].help, HELP_COLUMN + 4 + width);
    }
}

static void add_option_help(const kolo_option *row, uint32_t command, kolo_text *t) {
    size_t start = t->length;
    kolo_text_add(t, "  ");
    add_form(row, t);
    int used = (int)(t->length - start);
    if (used > HELP_COLUMN - 2) {
        kolo_text_add(t, "\n");
        used = 0;
    }
    kolo_text_add(t, "%*s", HELP_COLUMN - used, "");
    kolo_text words = {0};
    kolo_text_add(&words, "%s", row->help);
    add_facts(row, command, &words);
    if (!words.failed) add_wrapped(t, words.text, HELP_COLUMN);
    add_choice_lines(row, t);
    t->failed |= words.failed;
    kolo_text_fini(&words);
}

static bool has_options(const kolo_option_table *table, const kolo_option_command *command) {
    for (size_t i = 0; i < table->n_rows; i++) {
        if (table->rows[i].commands & command->bit) return true;
    }
    return false;
}

/* "kolo train --model NAME --data NAME [options]". */
static void add_usage(const kolo_option_table *table, const kolo_option_command *command,
                      kolo_text *t) {
    kolo_text_add(t, "%s %s", table->program, command->name);
    for (size_t i = 0; i < table->n_rows; i++) {
        const kolo_option *row = &table->rows[i];
        if (!(row->required & row->commands & command->bit)) continue;
        kolo_text_add(t, " ");
        if (row->letter) {
            kolo_text_add(t, "-%c %s", row->letter, row->metavar);
        } else {
            add_form(row, t);
        }
    }
    if (has_options(table, command)) kolo_text_add(t, " [options]");
    if (command->arguments) kolo_text_add(t, " %s", command->arguments);
}

/* The options of a command, in sections if they are many. */
static void add_option_list(const kolo_option_table *table, uint32_t command, kolo_text *t) {
    const char *section = NULL, *shown = NULL;
    int n = 0;
    for (size_t i = 0; i < table->n_rows; i++) n += (table->rows[i].commands & command) != 0;
    bool sections = n > ONE_SECTION && table->rows[0].section;
    if (n > 0 && !sections) kolo_text_add(t, "\noptions:\n");
    for (size_t i = 0; i < table->n_rows; i++) {
        const kolo_option *row = &table->rows[i];
        if (row->section) section = row->section;
        if (!(row->commands & command)) continue;
        if (sections && section != shown) kolo_text_add(t, "\n%s:\n", section);
        shown = section;
        add_option_help(row, command, t);
    }
}

void kolo_options_help(const kolo_option_table *table, const kolo_option_command *command,
                       kolo_text *t) {
    kolo_text_add(t, "usage: ");
    add_usage(table, command, t);
    kolo_text_add(t, "\n\n");
    add_wrapped(t, command->summary, 0);
    if (command->details) kolo_text_add(t, "\n%s\n", command->details);
    add_option_list(table, command->bit, t);
}

void kolo_options_help_program(const kolo_option_table *table, const char *word, kolo_text *t) {
    size_t length = word ? strlen(word) : 0;
    for (size_t i = 0; i < table->n_commands; i++) {
        const char *name = table->commands[i].name;
        if (word && (strncmp(name, word, length) != 0 || name[length] != ' ')) continue;
        kolo_text_add(t, "  %-18s%s\n", table->commands[i].name, table->commands[i].summary);
    }
}

/* ---- options on a page ---- */

/* What stands around the form of an option and its explanation, and how both are escaped. */
typedef struct page_format {
    const char *before, *between, *after;
    void (*escape)(kolo_text *t, const char *text);
} page_format;

static void add_option(const kolo_option *row, uint32_t command, const page_format *f,
                       kolo_text *t) {
    kolo_text form = {0}, words = {0};
    add_form(row, &form);
    kolo_text_add(&words, "%s", row->help);
    add_facts(row, command, &words);
    add_choice_text(row, &words);
    if (!form.failed && !words.failed) {
        kolo_text_add(t, "%s", f->before);
        f->escape(t, form.text);
        kolo_text_add(t, "%s", f->between);
        f->escape(t, words.text);
        kolo_text_add(t, "%s", f->after);
    }
    t->failed |= form.failed || words.failed;
    kolo_text_fini(&form);
    kolo_text_fini(&words);
}

/* ---- the manual ---- */

/* Escapes bars, which end a table cell. */
static void add_cell(kolo_text *t, const char *text) {
    for (const char *c = text; *c; c++) kolo_text_add(t, *c == '|' ? "\\|" : "%c", *c);
}

void kolo_options_markdown(const kolo_option_table *table, kolo_text *t) {
    static const page_format row = {"| `", "` | ", " |\n", add_cell};
    for (size_t c = 0; c < table->n_commands; c++) {
        const kolo_option_command *command = &table->commands[c];
        kolo_text_add(t, "\n## %s %s\n\n    ", table->program, command->name);
        add_usage(table, command, t);
        kolo_text_add(t, "\n\n%s.\n", command->summary);
        if (command->details) kolo_text_add(t, "\n%s\n", command->details);
        if (!has_options(table, command)) continue;
        kolo_text_add(t, "\n| option | meaning |\n| --- | --- |\n");
        for (size_t i = 0; i < table->n_rows; i++) {
            if (table->rows[i].commands & command->bit) {
                add_option(&table->rows[i], command->bit, &row, t);
            }
        }
    }
}

/* ---- the page for man ---- */

/* Escapes text for troff: hyphens, backslashes, and lines that start like a request. */
static void add_troff(kolo_text *t, const char *text) {
    if (*text == '.' || *text == '\'') kolo_text_add(t, "\\&");
    for (const char *c = text; *c; c++) {
        if (*c == '-' || *c == '\\') {
            kolo_text_add(t, "\\%s", *c == '-' ? "-" : "e");
        } else {
            kolo_text_add(t, "%c", *c);
        }
    }
}

void kolo_options_man(const kolo_option_table *table, const char *version, const char *exits,
                      kolo_text *t) {
    static const page_format option = {".TP\n.B ", "\n", "\n", add_troff};
    kolo_text_add(
        t, ".TH %s 1 \"\" \"%s %s\"\n.SH NAME\n%s \\- trains neural networks on many workers\n",
        table->program, table->program, version, table->program);
    kolo_text_add(t, ".SH SYNOPSIS\n.B %s\nCOMMAND [options]\n.SH COMMANDS\n", table->program);
    for (size_t c = 0; c < table->n_commands; c++) {
        const kolo_option_command *command = &table->commands[c];
        kolo_text usage = {0};
        add_usage(table, command, &usage);
        kolo_text_add(t, ".SS %s %s\n", table->program, command->name);
        add_troff(t, usage.failed ? "" : usage.text);
        kolo_text_add(t, "\n.PP\n%s.\n", command->summary);
        t->failed |= usage.failed;
        kolo_text_fini(&usage);
        for (size_t i = 0; i < table->n_rows; i++) {
            if (table->rows[i].commands & command->bit) {
                add_option(&table->rows[i], command->bit, &option, t);
            }
        }
    }
    kolo_text_add(t, ".SH \"EXIT STATUS\"\n%s.\n", exits);
}

/* ---- config files ---- */

/* A path as a config file in `folder` has it. */
static void add_path(kolo_text *t, const char *path, const char *folder) {
    const size_t length = folder ? strlen(folder) : 0;
    const bool within = length > 0 && strncmp(path, folder, length) == 0;
    const bool kept = *path == '/' || *path == '\0';
    char *absolute = NULL;
    if (!kept && within && !path[length]) {
        path = ".";
    } else if (!kept && within && path[length] == '/') {
        path += length + 1;
    } else if (!kept) {
        path = absolute = kolo_file_absolute(path);
    }
    if (path) kolo_text_add(t, "%s", path);
    t->failed |= !path;
    kolo_free(absolute);
}

/* A value as a config file in `folder` has it. */
static void add_text_value(kolo_text *t, const kolo_option *row, const char *text,
                           const char *folder) {
    kolo_text value = {0};
    size_t length;
    const char *rest = text, *path = row->path ? row->path(text, NULL, &length) : NULL;
    for (; path; path = row->path(text, path, &length)) {
        char *own = kolo_format("%.*s", (int)length, path);
        kolo_text_add(&value, "%.*s", (int)(path - rest), rest);
        if (own) add_path(&value, own, folder);
        value.failed |= !own;
        kolo_free(own);
        rest = path + length;
    }
    kolo_text_add(&value, "%s", rest);
    if (!value.failed) kolo_text_add_quoted(t, value.text);
    t->failed |= value.failed;
    kolo_text_fini(&value);
}

void kolo_options_yaml(const kolo_options *o, const char *folder, kolo_text *t) {
    for (size_t i = 0; i < o->table->n_rows; i++) {
        const kolo_option *row = &o->table->rows[i];
        const kolo_option_value *v = &o->values[i];
        if (v->source == KOLO_OPTION_UNSET || row->not_in_file || row->not_kept) continue;
        kolo_text_add(t, "%s: ", row->name);
        if (row->type == KOLO_OPTION_TEXT || row->type == KOLO_OPTION_CHOICE) {
            /* Quoted, since plain words like no and null are not strings in YAML. */
            add_text_value(t, row, v->text, folder);
        } else if (row->type == KOLO_OPTION_FLOAT) {
            char text[32];
            kolo_double_text(v->number, text);
            kolo_text_add(t, "%s", text);
        } else if (row->type == KOLO_OPTION_FLAG) {
            kolo_text_add(t, "%s", v->integer ? "true" : "false");
        } else {
            kolo_text_add(t, "%" PRId64, v->integer);
        }
        kolo_text_add(t, "\n");
    }
}

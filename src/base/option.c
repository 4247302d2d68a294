/* Values of options: parsing of arguments and config files, checks, typed access. Output generated
 * from the table (help, manual, YAML) is in option_text.c. */
#include "base/option.h"

#include "base/number.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table ---- */

static const kolo_option *find_row(const kolo_options *o, const char *name) {
    for (size_t i = 0; i < o->table->n_rows; i++) {
        const kolo_option *row = &o->table->rows[i];
        if ((row->commands & o->command->bit) && strcmp(row->name, name) == 0) return row;
    }
    return NULL;
}

static kolo_option_value *value_of(const kolo_options *o, const kolo_option *row) {
    return &o->values[row - o->table->rows];
}

/* The first command that takes an option of this name. */
static const char *other_command(const kolo_options *o, const char *name) {
    for (size_t i = 0; i < o->table->n_rows; i++) {
        const kolo_option *row = &o->table->rows[i];
        if (strcmp(row->name, name) != 0) continue;
        for (size_t c = 0; c < o->table->n_commands; c++) {
            if (row->commands & o->table->commands[c].bit) return o->table->commands[c].name;
        }
    }
    return NULL;
}

/* An unknown option of this command. `dashes` is "--" on the command line and "" in a file. */
static kolo_status fail_unknown(const kolo_options *o, const char *where, const char *dashes,
                                const char *name) {
    const kolo_option_table *t = o->table;
    const char *other = other_command(o, name);
    if (other) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s%s%s is an option of '%s %s', not of '%s %s'", where,
                         dashes, name, t->program, other, t->program, o->command->name);
    }
    const char **names = kolo_alloc((t->n_rows + 1) * sizeof *names);
    if (!names) return KOLO_NOMEM((t->n_rows + 1) * sizeof *names);
    size_t n = 0;
    for (size_t i = 0; i < t->n_rows; i++) {
        if (t->rows[i].commands & o->command->bit) names[n++] = t->rows[i].name;
    }
    names[n] = NULL;
    const char *closest = kolo_closest(name, names);
    kolo_free(names);
    const char *what = *dashes ? "option" : "key";
    if (closest) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%sunknown %s %s%s: did you mean %s%s?", where, what, dashes,
                         name, dashes, closest);
    }
    return KOLO_FAIL(KOLO_ERR_ARG, "%sunknown %s %s%s: '%s %s --help' lists the options", where,
                     what, dashes, name, t->program, o->command->name);
}

/* ---- one value ---- */

static bool parse_int(const char *text, int64_t *value, const char **end) {
    if (!isdigit((unsigned char)*text) && *text != '-' && *text != '+') return false;
    char *stop;
    errno = 0;
    long long read = strtoll(text, &stop, 10);
    if (stop == text || errno == ERANGE) return false;
    *value = read;
    *end = stop;
    return true;
}

bool kolo_parse_bytes(const char *text, int64_t *bytes) {
    static const char suffixes[] = "KMG";
    int64_t value;
    const char *end;
    if (!parse_int(text, &value, &end) || value < 0) return false;
    if (*end) {
        const char *suffix = strchr(suffixes, toupper((unsigned char)*end));
        if (!suffix || end[1]) return false;
        int shift = 10 * (int)(suffix - suffixes + 1);
        if (value > INT64_MAX >> shift) return false;
        value <<= shift;
    }
    *bytes = value;
    return true;
}

static bool parse_float(const char *text, double *value) {
    if (!*text || isspace((unsigned char)*text)) return false;
    char *end;
    *value = kolo_parse_double(text, &end);
    return *end == '\0' && isfinite(*value);
}

static bool parse_flag(const char *text, int64_t *value) {
    *value = strcmp(text, "true") == 0;
    return *value || strcmp(text, "false") == 0;
}

static bool parse_choice(const kolo_option *row, const char *text, int64_t *value) {
    for (int i = 0; i < kolo_option_choices(row); i++) {
        if (strcmp(row->choices[i].name, text) != 0) continue;
        *value = i;
        return true;
    }
    return false;
}

/* Parses `text` as the row's type and checks the range. */
static bool parse_value(const kolo_option *row, const char *text, kolo_option_value *v) {
    const char *end = "";
    bool read = false;
    switch (row->type) {
    case KOLO_OPTION_TEXT:
        return *text != '\0';
    case KOLO_OPTION_FLAG:
        return parse_flag(text, &v->integer);
    case KOLO_OPTION_CHOICE:
        return parse_choice(row, text, &v->integer);
    case KOLO_OPTION_INT:
        read = parse_int(text, &v->integer, &end) && *end == '\0';
        break;
    case KOLO_OPTION_BYTES:
        read = kolo_parse_bytes(text, &v->integer);
        break;
    case KOLO_OPTION_FLOAT:
        read = parse_float(text, &v->number);
        break;
    }
    if (row->type != KOLO_OPTION_FLOAT) v->number = (double)v->integer;
    bool any = row->min == 0 && row->max == 0;
    return read && (any || (v->number >= row->min && v->number <= row->max));
}

static const char *closest_choice(const kolo_option *row, const char *text) {
    enum { MAX_CHOICES = 64 };
    const char *names[MAX_CHOICES + 1] = {NULL};
    for (int i = 0; i < kolo_option_choices(row) && i < MAX_CHOICES; i++) {
        names[i] = row->choices[i].name;
    }
    return kolo_closest(text, names);
}

static kolo_status fail_value(const kolo_option *row, const char *where, const char *dashes,
                              const char *text) {
    kolo_text allowed = {0};
    kolo_option_allowed(row, &allowed);
    const char *closest = row->type == KOLO_OPTION_CHOICE ? closest_choice(row, text) : NULL;
    if (closest) kolo_text_add(&allowed, "; did you mean %s?", closest);
    kolo_status status = KOLO_ERR_ARG;
    if (allowed.failed) {
        status = KOLO_NOMEM(sizeof allowed);
    } else {
        KOLO_FAIL(status, "%s%s%s %s: must be %s", where, dashes, row->name, *text ? text : "''",
                  allowed.text);
    }
    kolo_text_fini(&allowed);
    return status;
}

/* Checks `text` and stores it unless a source of higher precedence has set the value. */
static kolo_status set_value(kolo_options *o, const kolo_option *row, kolo_option_source source,
                             const char *where, const char *text) {
    kolo_option_value *v = value_of(o, row), read = {.source = source};
    if (!parse_value(row, text, &read)) {
        return fail_value(row, where, source == KOLO_OPTION_ARGUMENT ? "--" : "", text);
    }
    if (v->source > source) return KOLO_OK;
    read.text = kolo_arena_strdup(&o->arena, text);
    if (!read.text) return KOLO_NOMEM(strlen(text));
    *v = read;
    return KOLO_OK;
}

/* ---- all values ---- */

kolo_status kolo_options_init(kolo_options *o, const kolo_option_table *table,
                              const kolo_option_command *command) {
    *o = (kolo_options){.table = table, .command = command};
    o->values = kolo_arena_alloc(&o->arena, table->n_rows * sizeof *o->values);
    if (!o->values) return KOLO_NOMEM(table->n_rows * sizeof *o->values);
    for (size_t i = 0; i < table->n_rows; i++) {
        const kolo_option *row = &table->rows[i];
        if (!(row->commands & command->bit) || !row->preset) continue;
        kolo_status status = set_value(o, row, KOLO_OPTION_PRESET, "", row->preset);
        KOLO_ASSERT(status != KOLO_ERR_ARG);
        KOLO_TRY(status);
    }
    return KOLO_OK;
}

void kolo_options_fini(kolo_options *o) {
    kolo_arena_fini(&o->arena);
    *o = (kolo_options){0};
}

/* Parses an argument that starts with two dashes; `next` is the following argument or NULL. Sets
 * `used` if `next` is its value. */
static kolo_status parse_long(kolo_options *o, const char *arg, const char *next, bool *used) {
    char name[64];
    size_t length = strcspn(arg + 2, "=");
    if (length >= sizeof name) length = sizeof name - 1;
    memcpy(name, arg + 2, length);
    name[length] = '\0';
    const char *value = arg[2 + length] == '=' ? arg + 3 + length : NULL;
    const kolo_option *row = find_row(o, name);
    const char *preset = "true";
    if (!row && strncmp(name, "no-", 3) == 0) {
        row = find_row(o, name + 3);
        preset = "false";
        if (row && row->type != KOLO_OPTION_FLAG) row = NULL;
        if (row && value) return KOLO_FAIL(KOLO_ERR_ARG, "--%s takes no value", name);
    }
    if (!row) return fail_unknown(o, "", "--", name);
    if (row->type == KOLO_OPTION_FLAG && !value) value = preset;
    if (!value) {
        /* An option in place of the value means that the value is missing; --name=--value is
         * allowed. */
        if (!next || strncmp(next, "--", 2) == 0) {
            return KOLO_FAIL(KOLO_ERR_ARG, "--%s needs a value: --%s %s", name, name,
                             row->metavar ? row->metavar : "VALUE");
        }
        value = next;
        *used = true;
    }
    return set_value(o, row, KOLO_OPTION_ARGUMENT, "", value);
}

/* Parses -n 4 or -n4. */
static kolo_status parse_letter(kolo_options *o, const char *arg, const char *next, bool *used) {
    const kolo_option *row = NULL;
    for (size_t i = 0; i < o->table->n_rows && !row; i++) {
        const kolo_option *r = &o->table->rows[i];
        if ((r->commands & o->command->bit) && r->letter == arg[1]) row = r;
    }
    if (!row) {
        return KOLO_FAIL(KOLO_ERR_ARG, "unknown option %s: '%s %s --help' lists the options", arg,
                         o->table->program, o->command->name);
    }
    const char *value = arg[2] ? arg + 2 : row->type == KOLO_OPTION_FLAG ? "true" : next;
    if (!value) {
        return KOLO_FAIL(KOLO_ERR_ARG, "-%c needs a value: -%c %s", arg[1], arg[1],
                         row->metavar ? row->metavar : "VALUE");
    }
    *used = value == next;
    return set_value(o, row, KOLO_OPTION_ARGUMENT, "", value);
}

kolo_status kolo_options_parse(kolo_options *o, int argc, char **argv) {
    /* The arguments of another program follow all options; file arguments may precede some. */
    const bool among = o->command->arguments && strncmp(o->command->arguments, "--", 2) != 0;
    int i = 0;
    o->argv = argv;
    o->argc = argc;
    o->n_rest = 0;
    o->rest = kolo_arena_alloc(&o->arena, ((size_t)argc + 1) * sizeof *o->rest);
    if (!o->rest) return KOLO_NOMEM((size_t)argc * sizeof *o->rest);
    for (; i < argc; i++) {
        const char *arg = argv[i], *next = i + 1 < argc ? argv[i + 1] : NULL;
        if (arg[0] != '-' || arg[1] == '\0') {
            if (!among) break;
            o->rest[o->n_rest++] = argv[i];
            continue;
        }
        if (strcmp(arg, "--") == 0) {
            i++;
            break;
        }
        if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0) {
            o->help = true;
            return KOLO_OK;
        }
        bool used = false;
        KOLO_TRY(arg[1] == '-' ? parse_long(o, arg, next, &used)
                               : parse_letter(o, arg, next, &used));
        i += used;
    }
    while (i < argc) o->rest[o->n_rest++] = argv[i++];
    o->rest[o->n_rest] = NULL;
    if (o->n_rest > 0 && !o->command->arguments) {
        return KOLO_FAIL(KOLO_ERR_ARG, "unexpected argument '%s': options of '%s %s' start with --",
                         o->rest[0], o->table->program, o->command->name);
    }
    return KOLO_OK;
}

static bool in_files_of_others(const kolo_options *o, const char *name) {
    for (size_t i = 0; i < o->table->n_rows; i++) {
        const kolo_option *row = &o->table->rows[i];
        if (!row->not_in_file && strcmp(row->name, name) == 0) return true;
    }
    return false;
}

/* Relative paths in a config file refer to the file's folder. A path that is resolved may be
 * what the next one is recognized by. */
static kolo_status resolve_paths(kolo_options *o, const kolo_option *row, const char **text) {
    size_t length;
    const char *path = row->path && o->folder ? row->path(*text, NULL, &length) : NULL;
    while (path) {
        const size_t at = (size_t)(path - *text);
        if (length > 0 && *path != '/') {
            const bool same = length == 1 && *path == '.';
            char *joined = kolo_format("%.*s%s%s%s", (int)at, *text, o->folder, same ? "" : "/",
                                       same ? path + 1 : path);
            *text = joined ? kolo_arena_strdup(&o->arena, joined) : NULL;
            kolo_free(joined);
            if (!*text) return KOLO_NOMEM(strlen(o->folder));
        }
        path = row->path(*text, *text + at, &length);
    }
    return KOLO_OK;
}

kolo_status kolo_options_set_from_file(kolo_options *o, const char *where, const char *name,
                                       const char *text) {
    char prefix[512];
    snprintf(prefix, sizeof prefix, "%s: ", where);
    const kolo_option *row = find_row(o, name);
    if (!row && in_files_of_others(o, name)) return KOLO_OK;
    if (!row) return fail_unknown(o, prefix, "", name);
    if (row->not_in_file) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s%s is allowed on the command line only", prefix, name);
    }
    KOLO_TRY(resolve_paths(o, row, &text));
    return set_value(o, row, KOLO_OPTION_FILE, prefix, text);
}

void kolo_options_unset(kolo_options *o, const char *name) {
    const kolo_option *row = find_row(o, name);
    kolo_option_value v = {0};
    KOLO_ASSERT(row);
    if (row->preset) {
        const bool valid = parse_value(row, row->preset, &v);
        KOLO_ASSERT(valid);
        v.source = KOLO_OPTION_PRESET;
        v.text = row->preset;
    }
    *value_of(o, row) = v;
}

kolo_status kolo_options_check(const kolo_options *o) {
    for (size_t i = 0; i < o->table->n_rows; i++) {
        const kolo_option *row = &o->table->rows[i];
        if (!(row->required & o->command->bit) || o->values[i].source != KOLO_OPTION_UNSET)
            continue;
        return KOLO_FAIL(KOLO_ERR_ARG, "'%s %s' needs --%s %s (%s)", o->table->program,
                         o->command->name, row->name, row->metavar ? row->metavar : "VALUE",
                         row->help);
    }
    return KOLO_OK;
}

/* ---- typed values ---- */

static const kolo_option_value *get(const kolo_options *o, const char *name,
                                    kolo_option_type type) {
    const kolo_option *row = find_row(o, name);
    KOLO_ASSERT(row && row->type == type);
    return value_of(o, row);
}

const char *kolo_options_text(const kolo_options *o, const char *name) {
    return get(o, name, KOLO_OPTION_TEXT)->text;
}

int64_t kolo_options_int(const kolo_options *o, const char *name) {
    const kolo_option *row = find_row(o, name);
    KOLO_ASSERT(row && (row->type == KOLO_OPTION_INT || row->type == KOLO_OPTION_BYTES));
    return value_of(o, row)->integer;
}

double kolo_options_float(const kolo_options *o, const char *name) {
    return get(o, name, KOLO_OPTION_FLOAT)->number;
}

bool kolo_options_flag(const kolo_options *o, const char *name) {
    return get(o, name, KOLO_OPTION_FLAG)->integer;
}

int kolo_options_choice(const kolo_options *o, const char *name) {
    const kolo_option_value *v = get(o, name, KOLO_OPTION_CHOICE);
    return v->source == KOLO_OPTION_UNSET ? -1 : (int)v->integer;
}

const char *kolo_options_value_text(const kolo_options *o, const char *name) {
    const kolo_option *row = find_row(o, name);
    KOLO_ASSERT(row);
    return value_of(o, row)->text;
}

bool kolo_options_has(const kolo_options *o, const char *name) { return find_row(o, name) != NULL; }

bool kolo_options_given(const kolo_options *o, const char *name) {
    const kolo_option *row = find_row(o, name);
    KOLO_ASSERT(row);
    return value_of(o, row)->source >= KOLO_OPTION_FILE;
}

bool kolo_options_typed(const kolo_options *o, const char *name) {
    const kolo_option *row = find_row(o, name);
    KOLO_ASSERT(row);
    return value_of(o, row)->source > KOLO_OPTION_FILE;
}

#pragma once
/* Options: a typed table that defines the command line, config files, help and manual.
 *
 * A row has the name, type, range, default and description of an option, and the commands that take
 * it. Values start as defaults, are overridden by a config file, and both by the command line. Each
 * value is checked when it is read, so commands get typed values within range. Errors contain the
 * option, the value and the allowed values; those of a config file also file, line and column.
 *
 *     kolo_options o = {0};
 *     KOLO_TRY(kolo_options_init(&o, &table, command));
 *     KOLO_TRY(kolo_options_parse(&o, argc, argv));       // then the config file, if one is named
 *     KOLO_TRY(kolo_options_check(&o));
 *     int64_t batch = kolo_options_int(&o, "batch");
 *     kolo_options_fini(&o); */

#include "base/compiler.h"
#include "base/memory.h"
#include "base/text.h"

#include <stdint.h>

typedef enum kolo_option_type {
    KOLO_OPTION_TEXT,
    KOLO_OPTION_INT,
    KOLO_OPTION_FLOAT, /* finite */
    KOLO_OPTION_FLAG,  /* --name, --no-name */
    KOLO_OPTION_BYTES, /* an integer, optionally with K, M or G (powers of 1024) */
    KOLO_OPTION_CHOICE,
} kolo_option_type;

/* A value of an enumerated option. An array of them is ordered by its enum and generated from the
 * same list, so that an index is a value of the enum; the last row has no name. */
typedef struct kolo_choice {
    const char *name;
    const char *help; /* may be NULL */
} kolo_choice;

typedef struct kolo_option {
    const char *section; /* heading of this row and those after it, on long help pages; or NULL */
    const char *name;    /* without dashes */
    kolo_option_type type;
    char letter;      /* short form, or 0 */
    bool not_in_file; /* allowed on the command line only */
    bool not_kept;    /* not written to the config of a run */
    /* The first path in a value after the one at `after` (NULL: the first of all), which in a
     * config file refers to the file's folder; NULL: there is none, as in all values of a row
     * without it. */
    const char *(*path)(const char *text, const char *after, size_t *length);
    bool written;               /* the path is a file that the command writes; else it reads it */
    const char *metavar;        /* the value's name in help; NULL for flags, and for choices that
                                   are listed in its place */
    const char *preset;         /* default, as written by a user; NULL: none */
    const char *unset;          /* the behaviour without a value, for help, if there is no preset */
    double min, max;            /* inclusive; both 0: any */
    const kolo_choice *choices; /* of KOLO_OPTION_CHOICE */
    int n_choices;              /* only the first n of them are allowed; 0: all */
    uint32_t commands;          /* bits of the commands that take it */
    uint32_t required;          /* bits of the commands that require it */
    const char *help;
} kolo_option;

typedef struct kolo_options kolo_options;

/* A command; its name may have several words ("bench train"). */
typedef struct kolo_option_command {
    const char *name;
    uint32_t bit;
    const char *arguments; /* arguments besides options ("-- program args"); NULL: none */
    const char *summary;   /* one line, no full stop */
    const char *details;   /* paragraphs for its help page, or NULL */
    int (*run)(kolo_options *options); /* returns the exit status */
} kolo_option_command;

typedef struct kolo_option_table {
    const char *program; /* "kolo" */
    const kolo_option *rows;
    size_t n_rows;
    const kolo_option_command *commands;
    size_t n_commands;
} kolo_option_table;

/* The source of a value; a later one takes precedence. */
typedef enum kolo_option_source {
    KOLO_OPTION_UNSET,
    KOLO_OPTION_PRESET,
    KOLO_OPTION_FILE,
    KOLO_OPTION_ARGUMENT,
} kolo_option_source;

typedef struct kolo_option_value {
    kolo_option_source source;
    const char *text; /* as written by the user */
    int64_t integer;  /* integers, bytes, flags, index of a choice */
    double number;
} kolo_option_value;

/* The resolved values of one command. */
struct kolo_options {
    const kolo_option_table *table;
    const kolo_option_command *command;
    kolo_arena arena;
    kolo_option_value *values; /* one for each row */
    const char *folder;        /* of the config file that is read; NULL: the working folder */
    bool help;                 /* --help was given; parsing stopped there */
    char **argv;               /* the parsed arguments; borrowed */
    int argc;
    char **rest; /* the arguments after the options, NULL-terminated; borrowed */
    int n_rest;
};

/* Sets the defaults of `command`. Asserts that they are valid. */
KOLO_SHARED kolo_status kolo_options_init(kolo_options *o, const kolo_option_table *table,
                                          const kolo_option_command *command);
/* Parses the arguments after the command's name. Parsing stops at --, and for a command that takes
 * the arguments of another program ("-- ...") at the first argument that is not an option; for
 * other commands, arguments and options may be mixed. `argv` is borrowed. */
KOLO_SHARED kolo_status kolo_options_parse(kolo_options *o, int argc, char **argv);
/* Sets a value from a config file; `where` is file:line:col. It is checked, but does not override
 * the command line. Relative paths refer to o->folder. Options of other commands are skipped: a
 * file may serve several commands. */
KOLO_SHARED kolo_status kolo_options_set_from_file(kolo_options *o, const char *where,
                                                   const char *name, const char *text);
/* Removes the value of an option: it has its preset again, if any. */
KOLO_SHARED void kolo_options_unset(kolo_options *o, const char *name);
/* ARG: a required option is missing. */
KOLO_SHARED kolo_status kolo_options_check(const kolo_options *o);
KOLO_SHARED void kolo_options_fini(kolo_options *o);

/* Typed values by name; 0 or NULL if unset. Asserts that the command has an option of that name and
 * type. */
KOLO_SHARED const char *kolo_options_text(const kolo_options *o, const char *name);
KOLO_SHARED int64_t kolo_options_int(const kolo_options *o, const char *name); /* and bytes */
KOLO_SHARED double kolo_options_float(const kolo_options *o, const char *name);
KOLO_SHARED bool kolo_options_flag(const kolo_options *o, const char *name);
/* Index in the row's choices; -1 if unset. */
KOLO_SHARED int kolo_options_choice(const kolo_options *o, const char *name);
/* The value of an option of any type as text; NULL if unset. */
KOLO_SHARED const char *kolo_options_value_text(const kolo_options *o, const char *name);
/* Whether the command has an option of this name. */
KOLO_SHARED bool kolo_options_has(const kolo_options *o, const char *name);
/* Whether the value comes from the command line or a file; from the command line. */
KOLO_SHARED bool kolo_options_given(const kolo_options *o, const char *name);
KOLO_SHARED bool kolo_options_typed(const kolo_options *o, const char *name);

/* Parses "4096", "4K", "1M", "2G" as bytes; false if invalid. */
KOLO_SHARED bool kolo_parse_bytes(const char *text, int64_t *bytes);

/* Output generated from the table; appended to `t`. */

/* The help page of a command, 80 columns wide. */
KOLO_SHARED void kolo_options_help(const kolo_option_table *table,
                                   const kolo_option_command *command, kolo_text *t);
/* The list of commands, or of those whose first word is `word`. */
KOLO_SHARED void kolo_options_help_program(const kolo_option_table *table, const char *word,
                                           kolo_text *t);
/* A completion script for bash and zsh. */
KOLO_SHARED void kolo_options_completion(const kolo_option_table *table, kolo_text *t);
/* The manual as Markdown. */
KOLO_SHARED void kolo_options_markdown(const kolo_option_table *table, kolo_text *t);
/* The manual as a man page. `exits` describes the exit statuses. */
KOLO_SHARED void kolo_options_man(const kolo_option_table *table, const char *version,
                                  const char *exits, kolo_text *t);
/* The resolved values as a config file in `folder` (NULL: any) that reproduces the command from any
 * working folder: paths are relative to it if they lie in it, otherwise absolute. */
KOLO_SHARED void kolo_options_yaml(const kolo_options *o, const char *folder, kolo_text *t);
/* The number of values that a row of type KOLO_OPTION_CHOICE allows. */
int kolo_option_choices(const kolo_option *row);
/* The allowed values of a row: "an integer from 1 to 512". */
KOLO_SHARED void kolo_option_allowed(const kolo_option *row, kolo_text *t);

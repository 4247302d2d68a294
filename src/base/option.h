#pragma once
/* Options: one typed table from which come the command line, the config file, the help and the
 * manual.
 *
 * A row says an option's name, type, range, default and meaning, and which commands take it. A
 * command's values start as the defaults; a config file may change them and flags win over it. Each
 * value is checked once, where it comes in, so a command reads typed values that lie in range. An
 * error says the option, the value and what is allowed; one from a file says file, line and column.
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
    KOLO_OPTION_BYTES, /* an integer, perhaps with K, M or G (powers of 1024) */
    KOLO_OPTION_CHOICE,
} kolo_option_type;

/* A value of an enumerated option. An array of them is ordered by its enum and generated from the
 * same list, so that an index is a value of the enum; the last row has no name. */
typedef struct kolo_choice {
    const char *name;
    const char *help; /* may be NULL */
} kolo_choice;

typedef struct kolo_option {
    const char *name; /* without dashes */
    kolo_option_type type;
    char letter;                /* short form, or 0 */
    bool not_in_file;           /* a flag only, no key of config files */
    bool not_kept;              /* of one job: a run's resolved options leave it out */
    const char *metavar;        /* the value's name in help; NULL for flags, and for choices that
                                   are listed in its place */
    const char *preset;         /* default, as a user would write it; NULL: none */
    const char *without;        /* what happens without it, for help, when there is no preset */
    double min, max;            /* inclusive; both 0: any */
    const kolo_choice *choices; /* of KOLO_OPTION_CHOICE */
    int n_choices;              /* only the first n of them are allowed; 0: all */
    uint32_t commands;          /* bits of the commands that take it */
    uint32_t required;          /* bits of the commands that cannot do without it */
    const char *help;
} kolo_option;

typedef struct kolo_options kolo_options;

/* A command, as the table knows it. Several words are fine ("bench train"). */
typedef struct kolo_option_command {
    const char *name;
    uint32_t bit;
    const char *arguments; /* what may follow the options ("-- program args"); NULL: nothing */
    const char *summary;   /* one line, no full stop */
    const char *details;   /* paragraphs for its help page, or NULL */
    int (*run)(kolo_options *options); /* gives the exit status */
} kolo_option_command;

typedef struct kolo_option_table {
    const char *program; /* "kolo" */
    const kolo_option *rows;
    size_t n_rows;
    const kolo_option_command *commands;
    size_t n_commands;
} kolo_option_table;

/* Where a value comes from; a later source wins. */
typedef enum kolo_option_source {
    KOLO_OPTION_UNSET,
    KOLO_OPTION_PRESET,
    KOLO_OPTION_FILE,
    KOLO_OPTION_ARGUMENT,
} kolo_option_source;

typedef struct kolo_option_value {
    kolo_option_source source;
    const char *text; /* as it was written */
    int64_t integer;  /* integers, bytes, flags, index of a choice */
    double number;
} kolo_option_value;

/* The resolved values of one command. */
struct kolo_options {
    const kolo_option_table *table;
    const kolo_option_command *command;
    kolo_arena arena;
    kolo_option_value *values; /* one for each row */
    bool help;                 /* --help was given; nothing after it was read */
    char **argv;               /* all that was parsed; borrowed */
    int argc;
    char **rest; /* the arguments after the options, NULL-terminated; borrowed */
    int n_rest;
};

/* Fills in the defaults of `command`. A default that its own row refuses is a bug: asserts. */
KOLO_SHARED kolo_status kolo_options_init(kolo_options *o, const kolo_option_table *table,
                                          const kolo_option_command *command);
/* Reads the arguments that follow the command's name. Reading stops at --, and for a command that
 * takes another program's arguments ("-- ...") at the first that is no option; arguments of other
 * commands may stand among the options. `argv` is borrowed. */
KOLO_SHARED kolo_status kolo_options_parse(kolo_options *o, int argc, char **argv);
/* Sets one value from a config file; `where` is file:line:col. A value that a flag has given is
 * checked and kept. An option of other commands alone is passed over: a file may serve several. */
KOLO_SHARED kolo_status kolo_options_set_from_file(kolo_options *o, const char *where,
                                                   const char *name, const char *text);
/* Takes back what a file gave, of an option without a preset. */
KOLO_SHARED void kolo_options_unset(kolo_options *o, const char *name);
/* ARG when a required option is missing. */
KOLO_SHARED kolo_status kolo_options_check(const kolo_options *o);
KOLO_SHARED void kolo_options_fini(kolo_options *o);

/* Typed values, by name; 0 or NULL when unset. A name or type that the table does not have for this
 * command asserts. */
KOLO_SHARED const char *kolo_options_text(const kolo_options *o, const char *name);
KOLO_SHARED int64_t kolo_options_int(const kolo_options *o, const char *name); /* and bytes */
KOLO_SHARED double kolo_options_float(const kolo_options *o, const char *name);
KOLO_SHARED bool kolo_options_flag(const kolo_options *o, const char *name);
/* Index in the row's choices; -1 when unset. */
KOLO_SHARED int kolo_options_choice(const kolo_options *o, const char *name);
/* Whether the command has an option of this name. */
KOLO_SHARED bool kolo_options_has(const kolo_options *o, const char *name);
/* True when a flag or the file gave the value; when a flag did. */
KOLO_SHARED bool kolo_options_given(const kolo_options *o, const char *name);
KOLO_SHARED bool kolo_options_typed(const kolo_options *o, const char *name);

/* "4096", "4K", "1M", "2G" as bytes; false when it is none of these. */
KOLO_SHARED bool kolo_parse_bytes(const char *text, int64_t *bytes);

/* What is written from the table. Each appends to `t`. */

/* The command's help page, for a terminal of 80 columns. */
KOLO_SHARED void kolo_options_help(const kolo_option_table *table,
                                   const kolo_option_command *command, kolo_text *t);
/* The list of commands, for the program's own help; with `word`, of those that begin with it. */
KOLO_SHARED void kolo_options_help_program(const kolo_option_table *table, const char *word,
                                           kolo_text *t);
/* The manual: every command with its options, as Markdown. */
KOLO_SHARED void kolo_options_markdown(const kolo_option_table *table, kolo_text *t);
/* The manual as a page for man(1). `exits` says what the exit status means. */
KOLO_SHARED void kolo_options_man(const kolo_option_table *table, const char *version,
                                  const char *exits, kolo_text *t);
/* The resolved values as a config file that repeats the command. */
KOLO_SHARED void kolo_options_yaml(const kolo_options *o, kolo_text *t);
/* The number of values that a row of type KOLO_OPTION_CHOICE allows. */
int kolo_option_choices(const kolo_option *row);
/* "a whole number from 1 to 512": what a row allows. */
KOLO_SHARED void kolo_option_allowed(const kolo_option *row, kolo_text *t);

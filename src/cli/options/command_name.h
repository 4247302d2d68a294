#pragma once
/* Commands by name. A name has one word ("train") or two ("bench train"); commands with the same
 * first word are a family. */

#include "base/option.h"

/* The command that `argv` names and the number of words of its name; NULL: unknown. */
const kolo_option_command *command_find(const kolo_option_table *table, int argc, char **argv,
                                        int *n_words);
/* Whether `word` is the first word of a family. */
bool command_is_family(const kolo_option_table *table, const char *word);
/* The error for an unknown command: "kolo tarin", "kolo bench", "kolo bench allredcue". */
kolo_status command_fail_unknown(const kolo_option_table *table, int argc, char **argv);

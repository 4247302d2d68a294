#pragma once
/* Help pages, as `kolo help` and --help print them. Each function returns the exit status. */

#include "base/option.h"

/* The help of one command; NULL: of the program. */
int help_print(const kolo_option_table *table, const kolo_option_command *command);
/* The commands of a family, such as "bench". */
int help_print_family(const kolo_option_table *table, const char *word);
/* The line of kolo --version. */
int help_print_version(void);

#pragma once
/* Standard output, and results as JSON. */

#include "base/option.h"
#include "base/text.h"
#include "kolo/status.h"

#include <stdbool.h>

/* Prints a text on standard output. IO: it cannot be written. */
kolo_status output_print(const kolo_text *text);
/* Checks that no file that a command writes is one that it reads or another one that it writes,
 * before the work starts. ARG. */
kolo_status output_check_files(const kolo_options *o);
/* Checks whether the file of --json can be written, before the work starts. IO. */
kolo_status output_check_json(const char *path);
/* Prints rows of a table, where output_result prints one with that `path`. */
kolo_status output_rows(const kolo_text *rows, const char *path);
/* Prints a result as a table, if that is not NULL, and writes it as JSON to `path`: NULL is
 * nowhere; "-" is standard output, and the table then goes to standard error. */
kolo_status output_result(const kolo_text *table, const char *path, kolo_text *json);

/* Whether standard error is a terminal that can redraw a line (TERM is not "dumb"). */
bool output_moves_cursor(void);
/* The width of that terminal in columns; 80 if unknown. */
int output_columns(void);

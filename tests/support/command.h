#pragma once
/* Runs the command `kolo` in the test's folder (folder.h) and reads the JSON that it writes. A
 * failed check ends the test. */

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Runs `kolo arguments` with its output in the files "out" and "err"; returns the exit status. */
int test_run(const char *arguments);
/* Runs it: it must exit with `code` and print only `text` on standard error, apart from the warning
 * that ranks outnumber the processors. */
void test_run_fails(const char *arguments, int code, const char *text);
/* Whether a file contains a text. */
bool test_contains(const char *path, const char *text);

/* Parses the JSON in a file; the caller releases it with json_decref. */
json_t *test_json(const char *path);
/* Members of an object, which must exist and have the type. */
int64_t test_json_int(const json_t *object, const char *key);
double test_json_number(const json_t *object, const char *key);

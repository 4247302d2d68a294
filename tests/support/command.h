#pragma once
/* The command `kolo`, run in the folder of the test (folder.h), and the JSON that it writes. A
 * check that fails ends the test. */

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Runs `kolo arguments`; its output goes to the files "out" and "err". Gives the exit status. */
int test_run(const char *arguments);
/* Runs it: it must exit with `code`, say `text` on standard error and nothing else, but that ranks
 * outnumber the processors. */
void test_run_fails(const char *arguments, int code, const char *text);
/* Whether a file has a text in it. */
bool test_says(const char *path, const char *text);

/* The JSON in a file; the caller gives it back with json_decref. */
json_t *test_json(const char *path);
/* Members of an object, which must be there and of that type. */
int64_t test_json_int(const json_t *object, const char *key);
double test_json_number(const json_t *object, const char *key);

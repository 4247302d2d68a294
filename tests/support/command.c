#include "support/command.h"

#include "support/folder.h"
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

int test_run(const char *arguments) {
    char line[1024];
    snprintf(line, sizeof line, "'%s' %s >out 2>err </dev/null", KOLO_COMMAND, arguments);
    int status = system(line);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* The text after the oversubscription warning, which small machines print. */
static const char *behind_crowding(const char *text) {
    const char *end = strchr(text, '\n');
    bool oversubscribed =
        strncmp(text, "kolo: warning: ", 15) == 0 && strstr(text, " threads share ");
    return oversubscribed && end ? end + 1 : text;
}

void test_run_fails(const char *arguments, int code, const char *text) {
    int got = test_run(arguments);
    char *err = test_contents("err"), *out = test_contents("out");
    if (got != code || strcmp(behind_crowding(err), text) != 0 || *out) {
        fail_msg("kolo %s: exit %d, wanted %d\n%swanted:\n%s", arguments, got, code, err, text);
    }
    kolo_free(err);
    kolo_free(out);
}

bool test_contains(const char *path, const char *text) {
    char *contents = test_contents(path);
    bool found = strstr(contents, text) != NULL;
    kolo_free(contents);
    return found;
}

json_t *test_json(const char *path) {
    json_error_t error;
    json_t *read = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!read) fail_msg("%s:%d: %s", path, error.line, error.text);
    return read;
}

int64_t test_json_int(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value)) fail_msg("%s is no integer", key);
    return json_integer_value(value);
}

double test_json_number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value)) fail_msg("%s is not a number", key);
    return json_number_value(value);
}

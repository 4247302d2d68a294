#define _GNU_SOURCE
#include "cli/output/output.h"

#include "base/file.h"
#include "base/memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { WIDTH = 80 };

kolo_status output_print(const kolo_text *text) {
    if (text->failed) return KOLO_NOMEM(text->length);
    if (!kolo_write_all(STDOUT_FILENO, text->text, text->length)) {
        return kolo_file_fail("write", "standard output", errno);
    }
    return KOLO_OK;
}

kolo_status output_check_json(const char *path) {
    if (!path || strcmp(path, "-") == 0) return KOLO_OK;
    kolo_file_writer *writer;
    KOLO_TRY(kolo_file_create(path, &writer));
    kolo_file_abandon(writer);
    return KOLO_OK;
}

static kolo_status write_json(const char *path, kolo_text *json) {
    kolo_text_add(json, "\n");
    if (strcmp(path, "-") == 0) return output_print(json);
    if (json->failed) return KOLO_NOMEM(json->length);
    return kolo_file_write(path, json->text, json->length);
}

kolo_status output_rows(const kolo_text *rows, const char *path) {
    if (rows->failed) return KOLO_NOMEM(rows->length);
    if (!path || strcmp(path, "-") != 0) return output_print(rows);
    fputs(rows->text, stderr);
    return KOLO_OK;
}

kolo_status output_result(const kolo_text *table, const char *path, kolo_text *json) {
    if (table) KOLO_TRY(output_rows(table, path));
    return path ? write_json(path, json) : KOLO_OK;
}

bool output_moves_cursor(void) {
    const char *term = getenv("TERM");
    return isatty(STDERR_FILENO) && term && *term && strcmp(term, "dumb") != 0;
}

int output_columns(void) {
    struct winsize size;
    bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return known ? size.ws_col : WIDTH;
}

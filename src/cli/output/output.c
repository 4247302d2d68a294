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

/* Whether writing `file` replaces the one at `path`. A device is no file to replace. */
static bool replaces(const char *file, const char *path) {
    if (!kolo_file_exists(file)) return strcmp(file, path) == 0;
    return kolo_file_regular(file) && kolo_file_same(file, path);
}

/* Checks a file that the option `row` writes against the paths of `other`. */
static kolo_status check_paths(const kolo_options *o, const kolo_option *row, const char *file,
                               const kolo_option *other) {
    const char *text = kolo_options_text(o, other->name);
    size_t length;
    bool found = false;
    const char *at = text ? other->path(text, NULL, &length) : NULL;
    for (; at && !found; at = other->path(text, at, &length)) {
        char *path = kolo_format("%.*s", (int)length, at);
        if (!path) return KOLO_NOMEM(length);
        found = replaces(file, path);
        kolo_free(path);
    }
    if (!found) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, "--%s %s is the file that --%s %s: choose another", row->name,
                     file, other->name, other->written ? "writes" : "reads");
}

kolo_status output_check_files(const kolo_options *o) {
    const uint32_t command = o->command->bit;
    const kolo_option *rows = o->table->rows, *end = rows + o->table->n_rows;
    for (const kolo_option *row = rows; row < end; row++) {
        if (!row->written || !row->path || !(row->commands & command)) continue;
        const char *text = kolo_options_text(o, row->name);
        size_t length;
        const char *file = text ? row->path(text, NULL, &length) : NULL;
        for (const kolo_option *other = rows; file && other < end; other++) {
            if (other == row || !other->path || !(other->commands & command)) continue;
            KOLO_TRY(check_paths(o, row, file, other));
        }
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

#include "cli/output/output.h"

#include "base/file.h"
#include "base/memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

kolo_status output_result(const kolo_text *table, const char *path, kolo_text *json) {
    if (table->failed) return KOLO_NOMEM(table->length);
    if (path && strcmp(path, "-") == 0) {
        fputs(table->text, stderr);
    } else {
        KOLO_TRY(output_print(table));
    }
    return path ? write_json(path, json) : KOLO_OK;
}

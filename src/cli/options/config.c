/* Config files, parsed by libfyaml. Errors name file, line and column. */
#include "cli/options/config.h"

#include "base/file.h"

#include <errno.h>
#include <libfyaml.h>
#include <string.h>

enum { CONFIG_LIMIT = 1 << 20 };

/* Formats the position of a node, "job.yaml:3:8"; libfyaml counts from 0. */
static void format_position(struct fy_node *node, const char *path, char *position, size_t bytes) {
    const struct fy_mark *mark = NULL;
    if (fy_node_is_scalar(node)) mark = fy_token_start_mark(fy_node_get_scalar_token(node));
    if (mark) {
        snprintf(position, bytes, "%s:%d:%d", path, mark->line + 1, mark->column + 1);
    } else {
        snprintf(position, bytes, "%s", path);
    }
}

static kolo_status read_pair(kolo_options *o, const char *path, struct fy_node_pair *pair) {
    struct fy_node *key = fy_node_pair_key(pair), *value = fy_node_pair_value(pair);
    char position[512];
    format_position(key, path, position, sizeof position);
    const char *name = fy_node_get_scalar0(key);
    if (!name) return KOLO_FAIL(KOLO_ERR_ARG, "%s: a key must be the name of an option", position);
    if (fy_node_is_alias(value)) value = fy_node_resolve_alias(value);
    if (!value) return KOLO_FAIL(KOLO_ERR_ARG, "%s: %s is an undefined alias", position, name);
    if (fy_node_is_null(value))
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: %s has no value", position, name);
    const char *text = fy_node_get_scalar0(value);
    if (!text) return KOLO_FAIL(KOLO_ERR_ARG, "%s: %s must have a scalar value", position, name);
    return kolo_options_set_from_file(o, position, name, text);
}

static kolo_status read_document(kolo_options *o, const char *path, struct fy_document *document) {
    struct fy_node *root = fy_document_root(document);
    if (!root || fy_node_is_null(root)) return KOLO_OK; /* only comments */
    if (!fy_node_is_mapping(root)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: must consist of lines 'option: value'", path);
    }
    void *at = NULL;
    for (struct fy_node_pair *pair; (pair = fy_node_mapping_iterate(root, &at));) {
        KOLO_TRY(read_pair(o, path, pair));
    }
    return KOLO_OK;
}

/* The first error of libfyaml. */
static kolo_status fail_syntax(const char *path, struct fy_diag *diag) {
    void *at = NULL;
    struct fy_diag_error *error = fy_diag_errors_iterate(diag, &at);
    if (!error) return KOLO_FAIL(KOLO_ERR_ARG, "%s: is not valid YAML", path);
    return KOLO_FAIL(KOLO_ERR_ARG, "%s:%d:%d: %s", path, error->line, error->column, error->msg);
}

/* Whether a text has no content but blank lines, comments and document markers. */
static bool is_empty(const char *text, size_t bytes) {
    for (const char *line = text, *end = text + bytes; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop) stop = end;
        while (line < stop && *line && strchr(" \t\r", *line)) line++;
        bool mark = stop - line >= 3 && (!memcmp(line, "---", 3) || !memcmp(line, "...", 3));
        if (line < stop && *line != '#' && !mark) return false;
        line = stop + 1;
    }
    return true;
}

static kolo_status read_stream(kolo_options *o, const char *path, struct fy_parser *parser,
                               struct fy_diag *diag) {
    struct fy_document *document = fy_parse_load_document(parser);
    if (!document) return fail_syntax(path, diag);
    kolo_status status = read_document(o, path, document);
    fy_parse_document_destroy(parser, document);
    if (status != KOLO_OK) return status;
    document = fy_parse_load_document(parser);
    bool more = document != NULL;
    fy_parse_document_destroy(parser, document);
    if (more) return KOLO_FAIL(KOLO_ERR_ARG, "%s: holds more than one YAML document", path);
    return fy_diag_got_error(diag) ? fail_syntax(path, diag) : KOLO_OK;
}

/* libfyaml prints some errors even when it collects them. */
static void discard(struct fy_diag *diag, void *user, const char *text, size_t bytes) {}

static kolo_status read_text(kolo_options *o, const char *path, const char *text, size_t bytes) {
    struct fy_diag_cfg diag_cfg;
    fy_diag_cfg_default(&diag_cfg);
    diag_cfg.fp = NULL;
    diag_cfg.output_fn = discard;
    struct fy_diag *diag = fy_diag_create(&diag_cfg);
    if (!diag) return KOLO_NOMEM(sizeof diag_cfg);
    fy_diag_set_collect_errors(diag, true);
    /* Without FYPCF_RESOLVE_DOCUMENT: nested aliases would expand to any size. */
    struct fy_parse_cfg cfg = {.flags = FYPCF_DEFAULT_PARSE, .diag = diag};
    struct fy_parser *parser = fy_parser_create(&cfg);
    kolo_status status = KOLO_OK;
    if (!parser || fy_parser_set_string(parser, text, bytes) != 0) {
        status = KOLO_NOMEM(bytes);
    } else {
        status = read_stream(o, path, parser, diag);
    }
    fy_parser_destroy(parser);
    fy_diag_destroy(diag);
    return status;
}

/* Sets the folder that relative paths of the file refer to; NULL: the working folder. */
static kolo_status set_folder(kolo_options *o, const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) return KOLO_OK;
    char *folder = kolo_arena_strdup(&o->arena, path);
    if (!folder) return KOLO_NOMEM(strlen(path));
    folder[slash > path ? slash - path : 1] = '\0';
    o->folder = folder;
    return KOLO_OK;
}

kolo_status config_read(kolo_options *o, const char *path) {
    kolo_file_view view; /* not a pipe: every rank reads the file */
    KOLO_TRY(set_folder(o, path));
    KOLO_TRY(kolo_file_map(path, &view));
    kolo_status status;
    if (view.bytes > CONFIG_LIMIT) {
        status = KOLO_FAIL(KOLO_ERR_ARG, "%s exceeds %d bytes: is it the right file?", path,
                           CONFIG_LIMIT);
    } else if (memchr(view.data, '\0', view.bytes)) {
        status = KOLO_FAIL(KOLO_ERR_ARG, "%s contains a NUL byte: is it the right file?", path);
    } else {
        status =
            is_empty(view.data, view.bytes) ? KOLO_OK : read_text(o, path, view.data, view.bytes);
    }
    kolo_file_unmap(&view);
    o->folder = NULL;
    return status;
}

kolo_status config_read_run(kolo_options *o, const char *resume) {
    if (!resume) return KOLO_OK;
    if (strcmp(resume, "latest") == 0) {
        if (kolo_options_given(o, "model")) return KOLO_OK;
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "--resume latest requires all options of the run, such as --model, --data "
                         "and --out: repeat the command that started it, or resume by its folder "
                         "alone with --resume DIR");
    }
    const char *slash = strrchr(resume, '/');
    char *folder = kolo_folder_exists(resume) ? kolo_strdup(resume)
                   : slash                    ? kolo_format("%.*s", (int)(slash - resume), resume)
                                              : kolo_strdup(".");
    char *config = folder ? kolo_format("%s/config.yaml", folder) : NULL;
    kolo_status status = config ? KOLO_OK : KOLO_NOMEM(strlen(resume));
    bool there = status == KOLO_OK && kolo_file_exists(config);
    if (status == KOLO_OK && !there && !kolo_options_given(o, "model")) {
        status =
            kolo_file_exists(resume)
                ? KOLO_FAIL(KOLO_ERR_ARG,
                            "--resume %s: no config.yaml found: give --model and the other options "
                            "of the run",
                            resume)
                : kolo_file_fail("resume", resume, ENOENT);
    }
    if (there) {
        status = config_read(o, config);
        if (status == KOLO_OK) status = kolo_options_set_from_file(o, "--resume", "out", folder);
    }
    kolo_free(folder);
    kolo_free(config);
    return status;
}

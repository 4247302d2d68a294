/* Config files: a YAML mapping from option names to values, read by libfyaml. An error says file,
 * line and column. */
#include <libfyaml.h>
#include <string.h>

#include "base/file.h"
#include "cli/cli.h"

enum { CONFIG_LIMIT = 1 << 20 };

/* "job.yaml:3:8" for a node; libfyaml counts from 0. */
static void place_of(struct fy_node *node, const char *path, char *place, size_t bytes) {
    const struct fy_mark *mark = NULL;
    if (fy_node_is_scalar(node)) mark = fy_token_start_mark(fy_node_get_scalar_token(node));
    if (mark) {
        snprintf(place, bytes, "%s:%d:%d", path, mark->line + 1, mark->column + 1);
    } else {
        snprintf(place, bytes, "%s", path);
    }
}

static kolo_status take_pair(kolo_options *o, const char *path, struct fy_node_pair *pair) {
    struct fy_node *key = fy_node_pair_key(pair), *value = fy_node_pair_value(pair);
    char place[512];
    place_of(key, path, place, sizeof place);
    const char *name = fy_node_get_scalar0(key);
    if (!name) return KOLO_FAIL(KOLO_ERR_ARG, "%s: a key must be the name of an option", place);
    if (fy_node_is_null(value)) return KOLO_FAIL(KOLO_ERR_ARG, "%s: %s has no value", place, name);
    const char *text = fy_node_get_scalar0(value);
    if (!text) return KOLO_FAIL(KOLO_ERR_ARG, "%s: %s must have one plain value", place, name);
    return kolo_options_set_from_file(o, place, name, text);
}

static kolo_status take_document(kolo_options *o, const char *path, struct fy_document *document) {
    struct fy_node *root = fy_document_root(document);
    if (!root || fy_node_is_null(root)) return KOLO_OK; /* nothing but comments */
    if (!fy_node_is_mapping(root)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s: must hold lines of the form 'option: value'", path);
    }
    void *at = NULL;
    for (struct fy_node_pair *pair; (pair = fy_node_mapping_iterate(root, &at));) {
        KOLO_TRY(take_pair(o, path, pair));
    }
    return KOLO_OK;
}

/* The first thing that libfyaml did not like. */
static kolo_status fail_syntax(const char *path, struct fy_diag *diag) {
    void *at = NULL;
    struct fy_diag_error *error = fy_diag_errors_iterate(diag, &at);
    if (!error) return KOLO_FAIL(KOLO_ERR_ARG, "%s: cannot be read as YAML", path);
    return KOLO_FAIL(KOLO_ERR_ARG, "%s:%d:%d: %s", path, error->line + 1, error->column + 1,
                     error->msg);
}

kolo_status cli_read_config(kolo_options *o, const char *path) {
    char *text;
    size_t bytes;
    KOLO_TRY(kolo_file_read(path, CONFIG_LIMIT, &text, &bytes));
    kolo_status status;
    struct fy_diag *diag = fy_diag_create(NULL);
    if (!diag) {
        status = KOLO_NOMEM(bytes);
    } else {
        fy_diag_set_collect_errors(diag, true);
        struct fy_parse_cfg cfg = {.flags = FYPCF_DEFAULT_PARSE, .diag = diag};
        struct fy_document *document = fy_document_build_from_string(&cfg, text, bytes);
        status = document ? take_document(o, path, document) : fail_syntax(path, diag);
        fy_document_destroy(document);
        fy_diag_destroy(diag);
    }
    kolo_free(text);
    return status;
}

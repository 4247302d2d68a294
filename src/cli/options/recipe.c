/* Recipes. A value of a recipe depends on others of it: a momentum is that of its optimizer, a
 * warm-up that of its schedule. It is used only if these have the values of the recipe too. */
#include "cli/options/recipe.h"

#include "base/file.h"
#include "base/number.h"
#include "cli/options/train_opts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 32, VALUE = 64 };

/* `option` is used if `other` has this value, which holds unless the recipe sets it, or with NULL
 * that of the recipe. Rows of the same option must all hold. */
static const struct {
    const char *option, *other, *value;
} needs[] = {
    {"optimizer", "sparse-embedding", "false"},
    {"optimizer", "momentum", "0"}, /* else the optimizer is one that has none */
    {"lr", "optimizer", NULL},
    {"momentum", "optimizer", NULL},
    {"beta2", "optimizer", NULL},
    {"batch", "global-batch", "false"},
    {"weight-decay", "optimizer", NULL},
    {"weight-decay", "sparse-embedding", "false"},
    {"momentum", "sparse-embedding", "false"},
    {"scale-lr", "lr", NULL},
    {"lr-min", "lr", NULL},
    {"lr-min", "schedule", NULL},
    {"lr-power", "schedule", NULL},
    {"lr-step-factor", "schedule", NULL},
    {"lr-step-epochs", "schedule", NULL},
};

/* The value of an option in the recipe; false: it has none. */
static bool find(const char *recipe, const char *name, char value[VALUE]) {
    size_t length = strlen(name);
    for (const char *at = recipe; *at; at += strspn(at, " ")) {
        size_t n = strcspn(at, " ");
        if (n > length && strncmp(at, name, length) == 0 && at[length] == '=') {
            snprintf(value, VALUE, "%.*s", (int)(n - length - 1), at + length + 1);
            return true;
        }
        at += n;
    }
    return false;
}

static bool is_same(const kolo_options *o, const char *name, const char *value) {
    const char *text = kolo_options_value_text(o, name);
    char *end;
    if (!text) return strcmp(value, "false") == 0; /* unset */
    double number = kolo_parse_double(value, &end);
    return strcmp(text, value) == 0 || (!*end && kolo_parse_double(text, &end) == number && !*end);
}

static bool fits(const kolo_options *o, const char *recipe, const char *name) {
    for (size_t i = 0; i < KOLO_COUNT(needs); i++) {
        char value[VALUE];
        const char *wanted = needs[i].value;
        if (strcmp(needs[i].option, name) != 0) continue;
        if (!wanted != find(recipe, needs[i].other, value)) continue;
        if (!is_same(o, needs[i].other, wanted ? wanted : value)) return false;
    }
    return true;
}

/* Turns "5/90", epochs of a run of 90, into epochs of this run, whole ones where the option takes
 * only these. False: their number is unknown. */
static bool to_epochs(const kolo_options *o, const char *name, char value[VALUE]) {
    char *end, digits[32];
    double part = kolo_parse_double(value, &end);
    if (*end != '/') return true;
    bool by_steps = kolo_options_given(o, "steps") && !kolo_options_given(o, "epochs");
    if (by_steps) return false;
    double epochs = kolo_options_given(o, "epochs") ? (double)kolo_options_int(o, "epochs") : 1;
    double own = part * epochs / kolo_parse_double(end + 1, &end);
    kolo_double_text(strcmp(name, "lr-step-epochs") == 0 ? ceil(own) : own, digits);
    snprintf(value, VALUE, "%s", digits);
    return true;
}

/* A file that gives all of a recipe's options that have presets is the record of a run: what it
 * lacks was unset there. */
static bool is_record(const kolo_options *o, const char *recipe) {
    char value[VALUE];
    bool any = false, all = true;
    for (size_t i = 0; i < o->table->n_rows; i++) {
        const kolo_option *row = &o->table->rows[i];
        if (!(row->commands & o->command->bit) || !row->preset) continue;
        if (!find(recipe, row->name, value)) continue;
        all &= o->values[i].source == KOLO_OPTION_FILE;
        any = true;
    }
    return any && all;
}

/* Whether --resume latest continues a run of an earlier version, or one with --no-recipe. */
static kolo_status began_without(const kolo_options *o, bool *without) {
    const char *resume = kolo_options_text(o, "resume"), *out = kolo_options_text(o, "out");
    size_t bytes;
    char *text;
    *without = resume != NULL;
    if (!resume || strcmp(resume, "latest") != 0) return KOLO_OK;
    char *path = kolo_format("%s/config.yaml", out ? out : ".");
    if (!path) return KOLO_NOMEM(64);
    kolo_status status = KOLO_OK;
    *without = false;
    if (kolo_file_exists(path)) {
        status = kolo_file_read(path, 1 << 20, &text, &bytes);
        if (status == KOLO_OK) *without = !strstr(text, "\nrecipe: true\n");
        if (status == KOLO_OK) kolo_free(text);
    }
    kolo_free(path);
    return status;
}

/* Sets the options in the order of the recipe. */
static kolo_status fill(kolo_options *o, const char *recipe, const char *where, kolo_text *set) {
    for (const char *at = recipe; *at; at += strspn(at, " ")) {
        char name[NAME], value[VALUE];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, "="), at);
        if (!find(recipe, name, value) || !kolo_options_has(o, name)) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: \"%.*s\": give OPTION=VALUE of kolo train",
                             where, (int)strcspn(at, " "), at);
        }
        at += strcspn(at, " ");
        if (kolo_options_given(o, name) || !fits(o, recipe, name) || !to_epochs(o, name, value))
            continue;
        KOLO_TRY(kolo_options_set_from_file(o, where, name, value));
        kolo_text_add(set, " --%s %s", name, value);
    }
    return set->failed ? KOLO_NOMEM(set->length) : KOLO_OK;
}

kolo_status recipe_apply(kolo_options *o, const char **line) {
    const char *name, *options;
    const kolo_model *model;
    bool without;
    *line = NULL;
    if (!kolo_options_flag(o, "recipe")) return KOLO_OK;
    KOLO_TRY(began_without(o, &without));
    KOLO_TRY(train_opts_model(o, &name, &options));
    KOLO_TRY(kolo_model_find(name, &model));
    if (!model->recipe || without || is_record(o, model->recipe)) return KOLO_OK;
    kolo_text set = {0}, where = {0};
    kolo_text_add(&where, "recipe of %s", model->name);
    kolo_status status = fill(o, model->recipe, where.text, &set);
    if (model->recipe_source) kolo_text_add(&where, " (%s)", model->recipe_source);
    kolo_text_add(&where, ":%s; --no-recipe omits it", set.text ? set.text : "");
    if (status == KOLO_OK && set.text) {
        *line = kolo_arena_strdup(&o->arena, where.text);
        if (!*line) status = KOLO_NOMEM(where.length);
    }
    kolo_text_fini(&set);
    kolo_text_fini(&where);
    return status;
}

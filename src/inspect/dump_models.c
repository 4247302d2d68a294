/* The zoo as a page: what `kolo help models` prints, and docs/models.md. All of it is what the
 * models say of themselves; the parameters are those of the graph that each builds for what it is
 * usually trained on. */
#include "base/memory.h"
#include "base/text.h"
#include "kolo/dump.h"
#include "kolo/graph.h"
#include "kolo/train.h"

#include <inttypes.h>

static const char *const introduction =
    "A model's options stand behind its name: `--model resnet50:classes=100,width=0.5`. They are\n"
    "whole numbers; channels and percents also shares, with a point: `width=0.5` has half of a\n"
    "network's channels, `dropout=0.1` is `dropout=10`. `classes` are those of the data, unless\n"
    "more are wanted; made-up data has those that are asked for.";

static kolo_status count_parameters(const kolo_model *m, int64_t *parameters) {
    kolo_model_opts opts = {.batch = 1, .sample = m->sample, .classes = m->classes};
    kolo_graph *g;
    KOLO_TRY(kolo_graph_create(NULL, &g));
    kolo_status status = m->build(g, &opts);
    if (status == KOLO_OK) *parameters = kolo_graph_parameters(g);
    kolo_graph_destroy(g);
    return status;
}

static kolo_status describe(bool markdown, kolo_text *t) {
    if (markdown) {
        kolo_text_add(t,
                      "# The models\n\nMade from the zoo by `kolo help models --markdown`. %s\n\n"
                      "| model | what | sample | classes | parameters | options and defaults |\n"
                      "| --- | --- | --- | --- | --- | --- |\n",
                      introduction);
    } else {
        kolo_text_add(t, "%s\n", introduction);
    }
    for (const kolo_model *const *each = kolo_models(); *each; each++) {
        const kolo_model *m = *each;
        const char *options = m->options_help[0] ? m->options_help : "none";
        char sample[KOLO_SHAPE_TEXT];
        int64_t parameters;
        KOLO_TRY(count_parameters(m, &parameters));
        kolo_text_add(t,
                      markdown ? "| `%s` | %s | %s | %" PRId64 " | %" PRId64 " | %s |\n"
                               : "\n%s: %s\n  samples %s, %" PRId64 " classes, %" PRId64
                                 " parameters\n  options: %s\n",
                      m->name, m->summary, kolo_shape_text(&m->sample, sample), m->classes,
                      parameters, options);
    }
    return KOLO_OK;
}

kolo_status kolo_dump_models(bool markdown, char **out) {
    kolo_text text = {0};
    kolo_status status = describe(markdown, &text);
    if (status == KOLO_OK && text.failed) status = KOLO_NOMEM(text.length);
    if (status != KOLO_OK) {
        kolo_text_fini(&text);
        return status;
    }
    *out = text.text;
    return KOLO_OK;
}

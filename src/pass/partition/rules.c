/* Rules of tensor parallelism: the built-in ones, and reading them. */
#include "pass/partition/rules.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "kolo/mesh.h"
#include "kolo/pass.h"
#include "pass/pass.h"
#include "tensor/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Channels between two convolutions: the first by outputs, the second by inputs; normalization and
 * depthwise convolutions between them follow. */
#define CHANNELS                                                              \
    "*layer?.*.conv1.weight 0 # resnet, also that of deeplabv3\n"             \
    "*layer?.*.conv2.weight 1\n"                                              \
    "classifier.0.convs.*.weight 0 # deeplabv3: five branches\n"              \
    "classifier.0.project.0.weight 1 5\n"                                     \
    "aux_classifier.0.weight 0\n"                                             \
    "aux_classifier.4.weight 1\n"                                             \
    "conv2.conv.weight 0 # googlenet\n"                                       \
    "conv3.conv.weight 1\n"                                                   \
    "inception??.branch?.0.conv.weight 0\n"                                   \
    "inception??.branch2.1.conv.weight 1\n"                                   \
    "inception??.branch3.1.conv.weight 1\n"                                   \
    "aux?.fc1.weight 0\n"                                                     \
    "aux?.fc2.weight 1\n"                                                     \
    "*.denselayer*.conv1.weight 0 # densenet121\n"                            \
    "*.denselayer*.conv2.weight 1\n"                                          \
    "classifier.weight 0\n"                                                   \
    "features.1.conv.* whole # mobilenet_v2: begins with the depthwise one\n" \
    "features.*.conv.0.0.weight 0\n"                                          \
    "features.*.conv.2.weight 1\n"                                            \
    "*.double_conv.0.weight 0 # unet\n"                                       \
    "*.double_conv.3.weight 1\n"                                              \
    "fc.weight 0 # resnet, googlenet\n"

/* Pairs of layers of which the first is sharded by outputs and the second by inputs; tables and
 * output layers by words. Biases follow the weights that they are added to. Shoeybi et al.,
 * "Megatron-LM", 2019. */
#define MEGATRON                                          \
    "wte.weight 0 # gpt2\n"                               \
    "lm_head.weight 0\n"                                  \
    "*.attn.c_attn.weight 0 3\n"                          \
    "*.attn.c_proj.weight 1\n"                            \
    "*.mlp.c_fc.weight 0\n"                               \
    "*.mlp.c_proj.weight 1\n"                             \
    "*.experts.c_fc.weight 1 # gpt2_moe: each expert\n"   \
    "*.experts.c_proj.weight 2\n"                         \
    "bert.embeddings.word_embeddings.weight 0\n"          \
    "*.attention.self.qkv.weight 0 3\n"                   \
    "*.attention.output.dense.weight 1\n"                 \
    "*.intermediate.dense.weight 0\n"                     \
    "bert.encoder.layer.*.output.dense.weight 1\n"        \
    "*.self_attention.in_proj_weight 0 3 # vit\n"         \
    "*.self_attention.out_proj.weight 1\n"                \
    "encoder.layers.*.mlp.0.weight 0\n"                   \
    "encoder.layers.*.mlp.3.weight 1\n"                   \
    "model.embed_tokens.weight 0 # llama\n"               \
    "model.layers.*.self_attn.o_proj.weight 1\n"          \
    "model.layers.*.self_attn.?_proj.weight 0\n"          \
    "*.mlp.gate_proj.weight 0\n"                          \
    "*.mlp.up_proj.weight 0\n"                            \
    "*.mlp.down_proj.weight 1\n"                          \
    "encoder.weight 0 # lstm_lm: tables\n"                \
    "decoder.weight 0\n"                                  \
    "rnn.weight_?h_l* 0 4 # its gates, by hidden units\n" \
    "emb.weight 0 # dlrm\n"                               \
    "fc1.weight 0 # mlp, lenet\n"                         \
    "fc2.weight 1\n" CHANNELS

/* Convolutions by samples, linear layers as above. Krizhevsky, "One weird trick for parallelizing
 * convolutional neural networks", 2014. */
#define OWT                                        \
    "features.?.weight samples # alexnet, vgg16\n" \
    "features.??.weight samples\n"                 \
    "classifier.1.weight 0 # alexnet, deeplabv3\n" \
    "classifier.4.weight 1\n"                      \
    "classifier.0.weight 0 # vgg16\n"              \
    "classifier.3.weight 1\n"

static const struct {
    const char *name, *text;
} built_in[] = {
    {"megatron", MEGATRON},
    {"megatron-sp", "sums 1\n" MEGATRON}, /* Korthikanti et al., 2022 */
    {"owt", OWT},
    {"ring", "attention ring\n" MEGATRON OWT},
    {"zigzag", "attention zigzag\n" MEGATRON OWT},
};

const char *kolo_placement_rules(const char *name) {
    if (!name) return MEGATRON OWT;
    for (size_t i = 0; i < KOLO_COUNT(built_in); i++) {
        if (strcmp(built_in[i].name, name) == 0) return built_in[i].text;
    }
    return NULL;
}

/* Whether sums of activations [N,T,C] can be placed so: by samples or positions. */
static bool fits_sums(const kolo_placement_rule *rule) {
    return rule->dim == KOLO_PLACE_WHOLE ||
           ((rule->dim == 0 || rule->dim == 1) && rule->blocks == 0);
}

/* Whether a placement is a text of rules, not the name of some: a name has one line. */
static bool is_text(const char *placement) { return strchr(placement, '\n') != NULL; }

const char *kolo_placement_path(const char *placement) {
    return kolo_placement_rules(placement) || is_text(placement) ? NULL : placement;
}

/* Reads the placement of a rule from the words after its pattern. */
static bool read_placement(const char *dim, const char *blocks, kolo_placement_rule *rule) {
    char *end;
    rule->blocks = 0;
    rule->dim = strcmp(dim, "whole") == 0     ? KOLO_PLACE_WHOLE
                : strcmp(dim, "samples") == 0 ? KOLO_PLACE_SAMPLES
                : strcmp(dim, "ring") == 0    ? KOLO_PLACE_RING
                : strcmp(dim, "zigzag") == 0  ? KOLO_PLACE_ZIGZAG
                                              : 0;
    if (rule->dim < 0) return *blocks == 0;
    if (dim[0] < '0' || dim[0] >= '0' + KOLO_MAX_RANK || dim[1] != 0) return false;
    rule->dim = dim[0] - '0';
    if (*blocks == 0) return true;
    rule->blocks = (int)strtol(blocks, &end, 10);
    return *end == 0 && rule->blocks > 0 && rule->blocks <= 1024;
}

/* Reads the rule at *text and moves *text behind it; false at the end. `line` counts lines, from 0.
 * ARG: a line that is none, with its number. */
static kolo_status next_rule(const char **text, int *line, kolo_placement_rule *rule, bool *found) {
    for (*found = false; **text && !*found; ++*line) {
        char copy[256], dim[16] = "", blocks[16] = "", rest[2] = "";
        const size_t length = strcspn(*text, "\n"), used = strcspn(*text, "#\n");
        snprintf(copy, sizeof copy, "%.*s", (int)used, *text);
        *text += length + ((*text)[length] == '\n');
        int words = sscanf(copy, "%127s %15s %15s %1s", rule->pattern, dim, blocks, rest);
        if (words <= 0) continue;
        *found = true;
        if (used < sizeof copy && words > 1 && words < 4 && read_placement(dim, blocks, rule)) {
            const bool attention = strcmp(rule->pattern, "attention") == 0;
            if (attention != kolo_placement_rings(rule)) {
                return KOLO_FAIL(KOLO_ERR_ARG,
                                 "line %d of the placement rules, \"%s\": \"ring\" and \"zigzag\" "
                                 "are for \"attention\", which takes nothing else: give "
                                 "\"attention ring\"",
                                 *line + 1, copy);
            }
            if (strcmp(rule->pattern, "sums") != 0 || fits_sums(rule)) continue;
            return KOLO_FAIL(KOLO_ERR_ARG,
                             "line %d of the placement rules, \"%s\": sums are sharded along "
                             "dimension 0, the samples, or 1, the positions",
                             *line + 1, copy);
        }
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "line %d of the placement rules, \"%s\": give a pattern and a dimension "
                         "with its number of parts, if there are several, or \"samples\" or "
                         "\"whole\": *.attn.c_attn.weight 0 3",
                         *line + 1, copy);
    }
    return KOLO_OK;
}

static bool is_keyword(const char *pattern) {
    return strcmp(pattern, "sums") == 0 || strcmp(pattern, "attention") == 0;
}

/* The first rule of a keyword, or of parameters whose pattern matches the name. */
static kolo_status first_rule(const char *text, const char *name, bool keyword,
                              kolo_placement_rule *rule) {
    int line = 0;
    for (bool found = true; found;) {
        KOLO_TRY(next_rule(&text, &line, rule, &found));
        if (!found || is_keyword(rule->pattern) != keyword) continue;
        const bool is =
            keyword ? strcmp(rule->pattern, name) == 0 : kolo_name_matches(rule->pattern, name);
        if (is) return KOLO_OK;
    }
    rule->dim = KOLO_PLACE_WHOLE;
    return KOLO_OK;
}

kolo_status kolo_placement_rule_of(const char *text, const char *name, kolo_placement_rule *rule) {
    return first_rule(text, name, false, rule);
}

kolo_status kolo_placement_keyword(const char *text, const char *keyword,
                                   kolo_placement_rule *rule) {
    return first_rule(text, keyword, true, rule);
}

/* A placement in messages. */
static const char *name_of(const char *placement) {
    return is_text(placement) ? "the text of the program" : placement;
}

/* The built-in rules of that name, else the text itself or the file, which are checked; free *text
 * with kolo_free. ARG: none of these, or no rules. NOMEM. */
static kolo_status read_rules(const char *name, char **text) {
    kolo_placement_rule rule;
    const char *built = is_text(name) ? name : kolo_placement_rules(name);
    int line = 0, rules = 0;
    size_t bytes;
    char *read = NULL;
    if (built) {
        read = kolo_format("%s", built);
        if (!read) return KOLO_NOMEM(strlen(built));
    } else if (kolo_file_read(name, 1 << 20, &read, &bytes) != KOLO_OK) {
        return kolo_fail_in(
            KOLO_ERR_ARG,
            "placement %s is neither megatron, megatron-sp, owt, ring, zigzag nor a "
            "file",
            name);
    }
    const char *at = read;
    for (bool found = true; found; rules += found) {
        kolo_status status = next_rule(&at, &line, &rule, &found);
        if (status == KOLO_OK) continue;
        kolo_free(read);
        return is_text(name) ? status : kolo_fail_in(status, "%s", name);
    }
    if (rules > 0) {
        *text = read;
        return KOLO_OK;
    }
    kolo_free(read);
    return KOLO_FAIL(KOLO_ERR_ARG, "%s contains no placement rule", name_of(name));
}

static bool has_ranks(const kolo_mesh *mesh, const char *axis) {
    const int a = kolo_mesh_find(mesh, axis);
    return a >= 0 && mesh->axes[a].size > 1;
}

kolo_status kolo_placement_read(const char *placement, const kolo_mesh *mesh, char **text) {
    const bool tp = has_ranks(mesh, "tp"), sp = has_ranks(mesh, "sp");
    kolo_placement_rule attention = {.dim = KOLO_PLACE_WHOLE};
    *text = NULL;
    if (!placement) return KOLO_OK;
    if (tp || sp || !kolo_placement_path(placement)) {
        KOLO_TRY(read_rules(placement, text));
        KOLO_TRY(kolo_placement_keyword(*text, "attention", &attention));
    }
    const bool rings = kolo_placement_rings(&attention);
    if ((tp && !rings) || (sp && rings)) return KOLO_OK;
    kolo_free(*text);
    *text = NULL;
    if (rings) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "placement %s has the rule \"attention %s\", which is of positions that "
                         "an axis sp divides: give --mesh dp=*,sp=2, for example",
                         name_of(placement), attention.dim == KOLO_PLACE_RING ? "ring" : "zigzag");
    }
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "placement %s is of the layers that an axis tp divides: give "
                     "--mesh dp=*,tp=2, for example",
                     name_of(placement));
}

const char *kolo_placement_axis(const char *placement) {
    kolo_placement_rule attention = {.dim = KOLO_PLACE_WHOLE};
    char *text = NULL;
    if (read_rules(placement, &text) == KOLO_OK && text) {
        (void)kolo_placement_keyword(text, "attention", &attention); /* they have been read */
    }
    kolo_free(text);
    return kolo_placement_rings(&attention) ? "sp" : "tp";
}

/* Naming conventions of other programs, and pattern matching. */
#include "train/checkpoint/name_conventions.h"

#include "base/compiler.h"

#include <stdio.h>
#include <string.h>

/* ---- the conventions ---- */

/* Our module names are torchvision's. Its batch normalization also counts batches, which is unused
 * here. */
static const char *const torchvision_models[] = {
    "alexnet", "googlenet",           "resnet18",     "resnet34",    "resnet50", "resnet101",
    "vgg16",   "deeplabv3_resnet101", "mobilenet_v2", "densenet121", "vit_b_16", "vit_tiny",
    NULL};
static const kolo_name_rule torchvision_rules[] = {
    {.theirs = "*.num_batches_tracked"},
};

/* Hugging Face's GPT2LMHeadModel, and GPT2Model, which has no prefix. Weights of its linear layers
 * are [inputs,outputs]; bias and masked_bias of its attention are masks. */
static const char *const gpt2_models[] = {"gpt2",       "gpt2_tiny", "gpt2_medium",
                                          "gpt2_large", "gpt2_xl",   NULL};
static const kolo_name_rule gpt2_rules[] = {
    {.theirs = "lm_head.weight", .ours = "wte.weight", .kind = KOLO_NAME_COPY},
    {.theirs = "lm_head.weight", .ours = "lm_head.weight"}, /* untied */
    {.theirs = "transformer.h.*.attn.bias"},
    {.theirs = "transformer.h.*.attn.masked_bias"},
    {.theirs = "h.*.attn.bias"},
    {.theirs = "h.*.attn.masked_bias"},
    {.theirs = "transformer.h.*.c_*.weight",
     .ours = "h.*.c_*.weight",
     .kind = KOLO_NAME_TRANSPOSED},
    {.theirs = "transformer.*", .ours = "*"},
    {.theirs = "h.*.c_*.weight", .ours = "h.*.c_*.weight", .kind = KOLO_NAME_TRANSPOSED},
};

/* Hugging Face's LlamaForCausalLM, whose names are ours. */
static const char *const llama_models[] = {"llama", "llama_tiny", NULL};
static const kolo_name_rule llama_rules[] = {
    {.theirs = "lm_head.weight", .ours = "model.embed_tokens.weight", .kind = KOLO_NAME_COPY},
    {.theirs = "lm_head.weight", .ours = "lm_head.weight"}, /* untied */
    {.theirs = "*.rotary_emb.inv_freq"},
};

/* Hugging Face's BertForMaskedLM and BertForPreTraining. Early checkpoints use gamma and beta, as
 * in TensorFlow. */
static const char *const bert_models[] = {"bert_tiny", "bert_mini",  "bert_small", "bert_medium",
                                          "bert_base", "bert_large", NULL};
static const kolo_name_rule bert_rules[] = {
    {.theirs = "cls.predictions.decoder.weight",
     .ours = "bert.embeddings.word_embeddings.weight",
     .kind = KOLO_NAME_COPY},
    {.theirs = "cls.predictions.decoder.bias",
     .ours = "cls.predictions.bias",
     .kind = KOLO_NAME_COPY},
    {.theirs = "bert.embeddings.position_ids"},
    {.theirs = "bert.pooler.*", .ours = "bert.pooler.*", .kind = KOLO_NAME_OPTIONAL},
    {.theirs = "cls.seq_relationship.*",
     .ours = "cls.seq_relationship.*",
     .kind = KOLO_NAME_OPTIONAL},
    {.theirs = "*.self.query.*", .ours = "*.self.qkv.*", .part = 0, .parts = 3},
    {.theirs = "*.self.key.*", .ours = "*.self.qkv.*", .part = 1, .parts = 3},
    {.theirs = "*.self.value.*", .ours = "*.self.qkv.*", .part = 2, .parts = 3},
    {.theirs = "*.LayerNorm.weight", .ours = "*.LayerNorm.weight"},
    {.theirs = "*.LayerNorm.bias", .ours = "*.LayerNorm.bias"},
    {.theirs = "*.LayerNorm.gamma", .ours = "*.LayerNorm.weight"},
    {.theirs = "*.LayerNorm.beta", .ours = "*.LayerNorm.bias"},
};

#define CONVENTION(format, which) \
    { format, which##_models, which##_rules, KOLO_COUNT(which##_rules) }
static const kolo_names conventions[] = {
    CONVENTION(KOLO_FORMAT_TORCHVISION, torchvision),
    CONVENTION(KOLO_FORMAT_HUGGINGFACE, gpt2),
    CONVENTION(KOLO_FORMAT_HUGGINGFACE, llama),
    CONVENTION(KOLO_FORMAT_HUGGINGFACE, bert),
};

const kolo_names *kolo_names_of(const char *model) {
    for (size_t i = 0; i < KOLO_COUNT(conventions); i++) {
        for (const char *const *m = conventions[i].models; *m; m++) {
            if (strcmp(*m, model) == 0) return &conventions[i];
        }
    }
    return NULL;
}

/* ---- matching ---- */

enum { MAX_STARS = 4 };

typedef struct span {
    const char *at;
    size_t length;
} span;

/* Whether `text` matches `pattern`, with shortest matches of the stars. */
static bool fits(const char *pattern, const char *text, span *stars) {
    for (; *pattern && *pattern != '*'; pattern++, text++) {
        if (*pattern != *text) return false;
    }
    if (!*pattern) return !*text;
    for (size_t n = 1; n <= strlen(text); n++) {
        *stars = (span){text, n};
        if (fits(pattern + 1, text + n, stars + 1)) return true;
    }
    return false;
}

static void substitute(const char *pattern, const span *stars, char *out, size_t room) {
    size_t n = 0;
    for (; *pattern && n < room; pattern++) {
        span piece = {pattern, 1};
        if (*pattern == '*') piece = *stars++;
        n += (size_t)snprintf(out + n, room - n, "%.*s", (int)piece.length, piece.at);
    }
}

static kolo_tensor_name translate(const kolo_names *names, const char *name, bool to_ours,
                                  int part) {
    kolo_tensor_name result = {.part = part, .parts = 1};
    for (int i = 0; names && i < names->n_rules; i++) {
        const kolo_name_rule *rule = &names->rules[i];
        const char *from = to_ours ? rule->theirs : rule->ours;
        const char *to = to_ours ? rule->ours : rule->theirs;
        span stars[MAX_STARS + 1] = {{0}};
        if (!to_ours && (rule->kind == KOLO_NAME_COPY || rule->part != part)) continue;
        if (!from || !fits(from, name, stars)) continue;
        result.kind = rule->kind;
        result.part = rule->part;
        result.parts = rule->parts > 0 ? rule->parts : 1;
        result.ignored = !to;
        if (to) substitute(to, stars, result.text, sizeof result.text);
        return result;
    }
    snprintf(result.text, sizeof result.text, "%s", name);
    return result;
}

kolo_tensor_name kolo_name_ours(const kolo_names *names, const char *theirs) {
    return translate(names, theirs, true, 0);
}

kolo_tensor_name kolo_name_theirs(const kolo_names *names, const char *ours, int part) {
    return translate(names, ours, false, part);
}

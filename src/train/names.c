/* Conventions of naming tensors, and matching names by their patterns. */
#include "train/names.h"

#include <stdio.h>
#include <string.h>

/* ---- the conventions ---- */

/* Modules are named here as torchvision names them; it also counts the batches that a normalisation
 * has seen, which nothing depends on. */
static const char *const torchvision_models[] = {
    "alexnet", "googlenet",           "resnet18", "resnet34", "resnet50", "resnet101",
    "vgg16",   "deeplabv3_resnet101", NULL};
static const kolo_name_rule torchvision_rules[] = {
    {"*.num_batches_tracked", NULL, false},
};

#define CONVENTION(name, which) \
    { name, which##_models, which##_rules, KOLO_COUNT(which##_rules) }
static const kolo_names conventions[] = {
    CONVENTION("torchvision", torchvision),
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

/* Whether `text` fits `pattern`; the stars take as little as they can. */
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

static kolo_tensor_name translate(const kolo_names *names, const char *name, bool to_ours) {
    kolo_tensor_name result = {.ignored = false};
    for (int i = 0; names && i < names->n_rules; i++) {
        const kolo_name_rule *rule = &names->rules[i];
        const char *from = to_ours ? rule->theirs : rule->ours;
        const char *to = to_ours ? rule->ours : rule->theirs;
        span stars[MAX_STARS + 1] = {{0}};
        if (!from || !fits(from, name, stars)) continue;
        result.transposed = rule->transposed;
        result.ignored = !to;
        if (to) substitute(to, stars, result.text, sizeof result.text);
        return result;
    }
    snprintf(result.text, sizeof result.text, "%s", name);
    return result;
}

kolo_tensor_name kolo_name_ours(const kolo_names *names, const char *theirs) {
    return translate(names, theirs, true);
}

kolo_tensor_name kolo_name_theirs(const kolo_names *names, const char *ours) {
    return translate(names, ours, false);
}

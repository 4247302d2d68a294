#pragma once
/* Tensor names in the files of other programs.
 *
 * A naming convention (torchvision, ...) is a list of rules for some of the models. A rule pairs a
 * pattern of their names with one of ours; '*' matches the same text, of one character or more, in
 * both. The first matching rule applies; a name without one is equal on both sides, so a model with
 * our names only needs rules for tensors that it lacks. If several of their patterns map to one of
 * ours, the first is written and all are read. One of our tensors may be the concatenation of
 * several of theirs. Adding a convention takes a list of rules and a row of the table in
 * name_conventions.c.
 */

#include "kolo/checkpoint.h"

#include <stdbool.h>

typedef enum kolo_name_kind {
    KOLO_NAME_SAME,
    KOLO_NAME_TRANSPOSED, /* their matrix is the transpose of ours */
    KOLO_NAME_COPY,       /* a duplicate of another of their tensors; never written */
    KOLO_NAME_OPTIONAL,   /* ignored by models that lack it */
} kolo_name_kind;

typedef struct kolo_name_rule {
    const char *theirs;
    const char *ours; /* NULL: not used here */
    kolo_name_kind kind;
    int part, parts; /* theirs is part `part` (from 0) of the rows of ours; parts 0: all rows */
} kolo_name_rule;

typedef struct kolo_names {
    kolo_checkpoint_format format;
    const char *const *models; /* NULL-terminated */
    const kolo_name_rule *rules;
    int n_rules;
} kolo_names;

enum { KOLO_TENSOR_NAME = 256, KOLO_NAME_PARTS = 3 };

/* A translated name. */
typedef struct kolo_tensor_name {
    char text[KOLO_TENSOR_NAME];
    bool ignored;
    kolo_name_kind kind;
    int part, parts; /* parts is 1 or more */
} kolo_tensor_name;

/* The naming convention of other programs for `model`; NULL: none. */
const kolo_names *kolo_names_of(const char *model);

/* Translates one of their names to ours, and the name of a part of one of our tensors to theirs.
 * Part 0 always exists; its result has the number of parts. `names` NULL: names are equal. A name
 * that is too long gives a text that no model has. */
kolo_tensor_name kolo_name_ours(const kolo_names *names, const char *theirs);
kolo_tensor_name kolo_name_theirs(const kolo_names *names, const char *ours, int part);

#pragma once
/* What tensors are called in the files of other programs.
 *
 * A convention (torchvision's, ...) is a list of rules for some of the models. A rule pairs a
 * pattern of a foreign name with one of ours, in which '*' stands for the same text, of one
 * character or more; the first rule that fits counts, and a name that none fits is the same on both
 * sides. So a network whose names are ours already needs no rule but those for tensors that it does
 * not have. Where several of their patterns mean one of ours, the first is written and the others
 * are understood. A tensor of ours may be several of theirs, one above the other. Adding a
 * convention is a list of rules and a row of the table in names.c. */

#include "kolo/checkpoint.h"

#include <stdbool.h>

typedef enum kolo_name_kind {
    KOLO_NAME_SAME,
    KOLO_NAME_TRANSPOSED, /* a matrix whose two dimensions are the other way round there */
    KOLO_NAME_COPY,       /* the same numbers as another tensor of theirs; never written */
    KOLO_NAME_OPTIONAL,   /* of no use to models that do not have it */
} kolo_name_kind;

typedef struct kolo_name_rule {
    const char *theirs;
    const char *ours; /* NULL: a tensor that is not needed here */
    kolo_name_kind kind;
    int part, parts; /* theirs is that part, from 0, of the rows of ours; parts 0: all of them */
} kolo_name_rule;

typedef struct kolo_names {
    kolo_checkpoint_format format;
    const char *const *models; /* NULL-terminated */
    const kolo_name_rule *rules;
    int n_rules;
} kolo_names;

enum { KOLO_TENSOR_NAME = 256, KOLO_NAME_PARTS = 3 };

/* A name on the other side. */
typedef struct kolo_tensor_name {
    char text[KOLO_TENSOR_NAME];
    bool ignored;
    kolo_name_kind kind;
    int part, parts; /* parts is 1 or more */
} kolo_tensor_name;

/* The convention by which other programs exchange weights of `model`; NULL: there is none. */
const kolo_names *kolo_names_of(const char *model);

/* What a tensor of theirs is called here, and the other way round: what the part of one of ours is
 * called there; every tensor has a part 0, which says how many there are. `names` NULL: the same.
 * A name that is too long gives a text that is none of a model's. */
kolo_tensor_name kolo_name_ours(const kolo_names *names, const char *theirs);
kolo_tensor_name kolo_name_theirs(const kolo_names *names, const char *ours, int part);

/* Masking for masked language models: masks random tokens of each window and makes them the labels.
 * Devlin, Chang, Lee, Toutanova, "BERT", NAACL 2019, section 3.1.
 *
 * The selection is a pure function of the step and the index of the window in the global batch, as
 * for dropout. It takes one token from each of `count` nearly equal sections of a window, so that
 * every window has the same number of labels and the mean over a batch does not depend on its
 * partition. */
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/mask_tokens.h"
#include "kernel/ref/ref.h"

#include <inttypes.h>

static const char *const attrs[] = {"count", "mask", "vocabulary", "pairs", NULL};

static kolo_status mask_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "llii"));
    for (int i = 0; i < 2; i++) KOLO_TRY(kolo_rule_rank(q, i, 0, "a scalar"));
    KOLO_TRY(kolo_rule_rank(q, 2, 2, "N,T"));
    KOLO_TRY(kolo_rule_same(q, 2, 3));
    int64_t length = q->in[2].shape.dim[1], count = q->attr[KOLO_MASK_COUNT].i;
    if (count < 1 || count > length) {
        return KOLO_RULE_FAIL(q, "%" PRId64 " tokens to mask of %" PRId64 "; choose 1 to all",
                              count, length);
    }
    if (q->attr[KOLO_MASK_VOCABULARY].i < 1) return KOLO_RULE_FAIL(q, "the vocabulary is empty");
    for (int i = 0; i < 3; i++) KOLO_TRY(kolo_rule_out(q, i, KOLO_DTYPE_I32, q->in[2].shape));
    if (!q->attr[KOLO_MASK_PAIRS].i) return KOLO_OK;
    return kolo_rule_out(q, 3, KOLO_DTYPE_I32, kolo_shape_1(q->in[2].shape.dim[0]));
}

const kolo_op kolo_op_mask_tokens = {
    .name = "mask_tokens",
    .index = ",s,nT,nT->nT,nT,nT,n",
    .min_in = 4,
    .max_in = 4,
    .layout = {.in = "pppp", .out = "pppp"},
    .attrs = attrs,
    .shape = mask_shape,
};

void kolo_mask_tokens(kolo_graph *g, kolo_value ids, kolo_value y, const kolo_mask_opts *opts,
                      kolo_value out[4]) {
    kolo_mask_opts o = opts ? *opts : (kolo_mask_opts){0};
    const kolo_value in[] = {kolo_graph_scalar(g, "rng_key", KOLO_DTYPE_I64),
                             kolo_graph_scalar(g, "first_sample", KOLO_DTYPE_I64), ids, y};
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_MASK_COUNT].i = o.count,
        [KOLO_MASK_ID].i = o.mask,
        [KOLO_MASK_VOCABULARY].i = o.vocabulary,
        [KOLO_MASK_PAIRS].i = o.pairs,
    };
    kolo_value all[KOLO_MAX_IO];
    kolo_graph_add(g, &kolo_op_mask_tokens, in, 4, attr, all);
    for (int i = 0; i < 4; i++) out[i] = i < 3 || o.pairs ? all[i] : KOLO_NONE;
}

/* ---- reference ---- */

const kolo_kernel kolo_ops_mask[] = {
    KOLO_REF_KERNEL("ref_mask_tokens", &kolo_op_mask_tokens, kolo_kernel_mask_tokens),
    {0},
};

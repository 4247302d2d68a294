/* encode, decode, momentum_part: compressed sums over the ranks (pass/compress.c), which gives
 * codes their tensors. */
#include "kolo/codec.h"

#include "graph/ops/ops.h"
#include "graph/ops/rules.h"

static const char *const attrs[] = {"codec", "%ratio", NULL};
static const char *const part_attrs[] = {"%part", "%of_gradient", "%of_weight", NULL};

kolo_codec kolo_node_codec(const kolo_attr *attr) {
    return (kolo_codec){.kind = (kolo_codec_kind)attr[KOLO_CODE_KIND].i,
                        .ratio = attr[KOLO_CODE_RATIO].f};
}

int64_t kolo_code_bytes(const kolo_codec *codec, int64_t count) {
    return ((int64_t)kolo_codec_bytes(codec, (size_t)count) + 7) / 8 * 8;
}

static kolo_status momentum_part_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "fff"));
    for (int i = 1; i < q->n_in; i++) KOLO_TRY(kolo_rule_same(q, 0, i));
    return kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape);
}

const kolo_op kolo_op_encode = {
    .name = "encode",
    .min_in = 2,
    .max_in = 2,
    .layout = {.in = "ee", .out = "pe"},
    .attrs = attrs,
    .comm = KOLO_OP_ENCODE,
};
const kolo_op kolo_op_decode = {
    .name = "decode",
    .index = "A->B",
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "p", .out = "x"},
    .attrs = attrs,
    .with_updates = true,
};
const kolo_op kolo_op_momentum_part = {
    .name = "momentum_part",
    .min_in = 2,
    .max_in = 3,
    .layout = {.in = "eee", .out = "e"},
    .attrs = part_attrs,
    .shape = momentum_part_shape,
    .comm = KOLO_OP_ENCODE,
};

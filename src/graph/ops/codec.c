/* encode, decode: compressed sums over the ranks (pass/compress.c). No shape rules: the pass gives
 * the outputs their tensors. */
#include "kolo/codec.h"

#include "graph/ops/ops.h"

static const char *const attrs[] = {"codec", "%ratio", NULL};

kolo_codec kolo_node_codec(const kolo_attr *attr) {
    return (kolo_codec){.kind = (kolo_codec_kind)attr[KOLO_CODE_KIND].i,
                        .ratio = attr[KOLO_CODE_RATIO].f};
}

int64_t kolo_code_bytes(const kolo_codec *codec, int64_t count) {
    return ((int64_t)kolo_codec_bytes(codec, (size_t)count) + 7) / 8 * 8;
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

/* PowerSGD: sums of gradients over the ranks by factors of low rank (pass/compress.c). No shape
 * rules: the pass gives the outputs their tensors. */
#include "base/rng.h"
#include "graph/ops/ops.h"

double kolo_power_start(int64_t i) {
    return 2 * (double)(kolo_hash_bytes(&i, sizeof i) >> 11) / (double)(INT64_C(1) << 53) - 1;
}

const kolo_op kolo_op_power_project = {
    .name = "power_project",
    .min_in = 3,
    .max_in = 3,
    .layout = {.in = "eep", .out = "p"},
    .comm = KOLO_OP_ENCODE,
};
const kolo_op kolo_op_power_basis = {
    .name = "power_basis",
    .index = "A->B",
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "p", .out = "p"},
    .with_updates = true,
};
const kolo_op kolo_op_power_back = {
    .name = "power_back",
    .min_in = 3,
    .max_in = 3,
    .layout = {.in = "eep", .out = "pe"},
    .comm = KOLO_OP_ENCODE,
    .with_updates = true,
};
const kolo_op kolo_op_power_sum = {
    .name = "power_sum",
    .index = "A,B->C",
    .min_in = 2,
    .max_in = 2,
    .layout = {.in = "pp", .out = "x"},
    .with_updates = true,
};

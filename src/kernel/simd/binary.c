/* Elementwise functions of two inputs with broadcasting, in f32 and bf16, mixed too. Tensors
 * without padding in any layouts; inputs that are not repeated have the layout of the output. */
#include "kernel/simd/binary.h"

#include <stddef.h>

#define ROW(name) {&kolo_op_##name, offsetof(kolo_simd_binary_table, name)},
static const struct {
    const kolo_op *op;
    size_t at; /* of its loop in the table */
} rows[] = {KOLO_BINARY_LIST(KOLO_BINARY_OP, ROW)};

static kolo_kernel_loop loop_of(const kolo_op *op) {
    size_t i = 0;
    while (rows[i].op != op) i++;
    const char *table = (const char *)KOLO_ISA_PICK(kolo_simd_binary);
    return *(const kolo_kernel_loop *)(const void *)(table + rows[i].at);
}

static bool is_half(const kolo_tensor *t) { return t->dtype == KOLO_DTYPE_BF16; }

/* Whether the output may lie on an input of its size: they have the same order. */
static bool may_overwrite(const kolo_kernel_spec *spec, const kolo_simd_nest *nest, int i) {
    bool same = kolo_tensor_elements(&spec->in[i]) == kolo_tensor_elements(&spec->out[0]);
    for (int d = 0; same && d < nest->n_dims && nest->size[d] > 1; d++) {
        if (nest->stride[i][d] != nest->stride[2][d]) return false;
    }
    return true;
}

static bool init_nest(const kolo_kernel_spec *spec, kolo_simd_nest *nest) {
    const kolo_tensor *y = &spec->out[0];
    kolo_simd_nested tensors[3] = {{&spec->in[0], {0}}, {&spec->in[1], {0}}, {y, {0}}};
    for (int i = 0; i < 2; i++) {
        const kolo_tensor *in = &spec->in[i];
        for (int d = 0; d < y->shape.rank; d++) {
            tensors[i].dim[d] = kolo_binary_dim(spec->attr, i, &in->shape, y->shape.rank, d);
        }
    }
    for (int d = 0; d < y->shape.rank; d++) tensors[2].dim[d] = d;
    if (!kolo_simd_nest_init(nest, &y->shape, 2, 3, tensors)) return false;
    return may_overwrite(spec, nest, 0) && may_overwrite(spec, nest, 1);
}

static double fit(kolo_kernel_spec *spec) {
    kolo_simd_nest nest;
    double bytes = (double)kolo_tensor_bytes(&spec->out[0]);
    for (int i = 0; i < 3; i++) {
        const kolo_dtype dtype = i < 2 ? spec->in[i].dtype : spec->out[0].dtype;
        if (dtype != KOLO_DTYPE_F32 && dtype != KOLO_DTYPE_BF16) return -1;
    }
    if (!init_nest(spec, &nest)) return -1;
    for (int i = 0; i < 2; i++) bytes += (double)kolo_tensor_bytes(&spec->in[i]);
    return kolo_kernel_seconds(0, bytes, 2);
}

static kolo_status prepare(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    kolo_simd_nest *nest = kolo_alloc(sizeof *nest);
    if (!nest) return KOLO_NOMEM(sizeof *nest);
    KOLO_ASSERT(init_nest(spec, nest));
    *state = nest;
    *scratch_bytes = 0;
    return KOLO_OK;
}

static void run(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    kolo_simd_binary_job job = {.nest = call->state,
                                .a = call->in[0],
                                .b = call->in[1],
                                .out = call->out[0],
                                .bf16_a = is_half(&spec->in[0]),
                                .bf16_b = is_half(&spec->in[1]),
                                .bf16_out = is_half(&spec->out[0])};
    kolo_kernel_parallel(spec->threads, kolo_simd_binary_items(job.nest), loop_of(spec->op), &job);
}

#define KERNEL(op_name) KOLO_SIMD_KERNEL(op_name, run);
KOLO_BINARY_LIST(KOLO_BINARY_OP, KERNEL)

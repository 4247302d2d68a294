/* Runs ops of a program. */
#include "kernel/select/custom.h"

#include "graph/ops/custom.h"

/* The arguments of the op's functions. */
typedef struct arguments {
    double attr[KOLO_MAX_ATTRS];
    kolo_custom_tensor in[KOLO_MAX_IO], out[KOLO_MAX_IO];
} arguments;

static void fill(arguments *a, const kolo_kernel_spec *spec) {
    kolo_custom_attrs(spec->attr, a->attr);
    kolo_custom_tensors(spec->in, spec->n_in, a->in);
    kolo_custom_tensors(spec->out, spec->n_out, a->out);
}

static double fit(kolo_kernel_spec *spec) {
    double bytes = 0;
    if (!spec->op->custom || !kolo_spec_is_plain(spec)) return -1;
    for (int i = 0; i < spec->n_in; i++) {
        if (spec->in[i].dtype == KOLO_DTYPE_BF16) return -1;
        bytes += (double)kolo_tensor_bytes(&spec->in[i]);
    }
    for (int i = 0; i < spec->n_out; i++) bytes += (double)kolo_tensor_bytes(&spec->out[i]);
    kolo_tensor out[KOLO_MAX_IO];
    for (int i = 0; i < spec->n_out; i++) out[i] = spec->out[i];
    kolo_shape_query q = {spec->attr, spec->n_in, spec->in, spec->n_out, out, spec->op};
    return kolo_kernel_seconds(spec->op->cost ? spec->op->cost(&q).flops : 0, bytes, 0.5);
}

static kolo_status prepare(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    const kolo_custom_op *op = spec->op->custom;
    arguments a;
    fill(&a, spec);
    *state = NULL;
    *scratch_bytes =
        op->scratch_bytes ? op->scratch_bytes(&(kolo_custom_shapes){a.attr, a.in, a.out}) : 0;
    return KOLO_OK;
}

static void run(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    arguments a;
    fill(&a, spec);
    const kolo_custom_mark begin = kolo_custom_begin();
    spec->op->custom->run(&(kolo_custom_call){
        .attr = a.attr,
        .in = a.in,
        .out = a.out,
        .in_data = (const void *const *)call->in,
        .out_data = call->out,
        .scratch = call->scratch,
        .threads = spec->threads,
    });
    kolo_custom_end(spec->op, begin);
}

static void release(void *state) { KOLO_ASSERT(!state); }

const kolo_kernel kolo_custom_kernel = {
    .name = "custom", .fit = fit, .prepare = prepare, .run = run, .release = release};

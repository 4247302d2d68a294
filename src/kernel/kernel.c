/* Kernel specs, and the nominal machine behind time estimates. */
#include "kernel/kernel.h"

#include "base/isa.h"

void kolo_kernel_spec_init(kolo_kernel_spec *spec, const kolo_graph *g, const kolo_node *n,
                           int threads) {
    *spec = (kolo_kernel_spec){
        .op = n->op, .attr = n->attr, .n_in = n->n_in, .n_out = n->n_out, .threads = threads};
    spec->device = g->device;
    kolo_node_query(g, n, spec->in, spec->out);
}

bool kolo_spec_floats_are(const kolo_kernel_spec *spec, kolo_dtype dtype) {
    for (int i = 0; i < spec->n_in + spec->n_out; i++) {
        const kolo_tensor *t = i < spec->n_in ? &spec->in[i] : &spec->out[i - spec->n_in];
        bool integer =
            t->dtype == KOLO_DTYPE_I32 || t->dtype == KOLO_DTYPE_I64 || t->dtype == KOLO_DTYPE_U8;
        if (!integer && t->dtype != dtype) return false;
    }
    return true;
}

bool kolo_spec_is_plain(const kolo_kernel_spec *spec) {
    for (int i = 0; i < spec->n_in + spec->n_out; i++) {
        const kolo_tensor *t = i < spec->n_in ? &spec->in[i] : &spec->out[i - spec->n_in];
        if (t->layout.rank != t->shape.rank || !kolo_layout_is_plain(&t->layout)) return false;
    }
    return true;
}

double kolo_kernel_seconds(double flops, double bytes, double efficiency) {
    double compute = flops / (kolo_isa_flops_per_cycle(kolo_isa_best()) * 3e9),
           memory = bytes / 10e9;
    return (compute > memory ? compute : memory) / efficiency;
}

/* The links of a chain. */
#include "kernel/chain.h"

void kolo_link_spec(const kolo_kernel_spec *of_chain, const kolo_chain *chain, int l,
                    const kolo_shape *shape, kolo_link_run *run) {
    const kolo_chain_link *link = &chain->link[l];
    *run = (kolo_link_run){.spec = {.op = link->op, .n_in = link->n_in, .n_out = 1, .threads = 1}};
    for (int k = 0; k < KOLO_LINK_ATTRS; k++) run->attr[k] = link->attr[k];
    run->spec.attr = run->attr;
    run->spec.out[0] = kolo_tensor_plain(link->dtype, *shape);
    for (int k = 0; k < link->n_in; k++) {
        const int in = link->in[k];
        run->spec.in[k] = kolo_tensor_plain(in < KOLO_MAX_IO ? of_chain->in[in].dtype
                                                             : chain->link[in - KOLO_MAX_IO].dtype,
                                            *shape);
    }
}

kolo_status kolo_link_prepare(const kolo_kernel *kernel, kolo_link_run *run) {
    run->kernel = kernel;
    return kernel->prepare ? kernel->prepare(&run->spec, &run->state, &run->scratch_bytes)
                           : KOLO_OK;
}

void kolo_link_release(kolo_link_run *run) {
    if (run->kernel && run->kernel->release) run->kernel->release(run->state);
    run->kernel = NULL;
}

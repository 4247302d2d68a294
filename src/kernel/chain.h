#pragma once
/* The links of a chain (graph/ops/chain.h), each run by a kernel of its own op: what the kernels of
 * both families share. */

#include "graph/ops/chain.h"
#include "kernel/kernel.h"

extern const kolo_kernel kolo_simd_chain;

/* A link that is prepared for pieces of one shape. It must not move. */
typedef struct kolo_link_run {
    const kolo_kernel *kernel;
    kolo_kernel_spec spec;
    kolo_attr attr[KOLO_MAX_ATTRS];
    void *state;
    size_t scratch_bytes;
} kolo_link_run;

/* Sets the spec of link l of a chain for pieces of this shape, in plain layout, for one thread. */
void kolo_link_spec(const kolo_kernel_spec *of_chain, const kolo_chain *chain, int l,
                    const kolo_shape *shape, kolo_link_run *run);
/* Prepares the kernel of such a link. Its errors. */
kolo_status kolo_link_prepare(const kolo_kernel *kernel, kolo_link_run *run);
void kolo_link_release(kolo_link_run *run);

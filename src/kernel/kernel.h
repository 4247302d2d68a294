#pragma once
/* Kernels: what runs a node of the graph.
 *
 * Each op has several kernels, listed in kernel.c: ref_* (plain C, plain layouts, f32 and f64: the
 * truth), simd_* (ours, vectorised per instruction set), dnn_* (oneDNN). All that is slow happens
 * when a plan is compiled: `fit` says whether and how well a kernel suits, `prepare` makes its
 * primitives, `bind` ties them to addresses; `run` only runs: it allocates nothing and cannot fail.
 *
 * Threads: a prepared kernel belongs to one plan and so to one thread at a time; inside `run` it
 * may use up to spec->threads OpenMP threads. */

#include "base/isa.h"
#include "graph/graph.h"
#include "graph/ops/ops.h"

/* Which kernels a plan may use. */
typedef enum kolo_kernel_set {
    KOLO_KERNELS_BEST,   /* the fastest that fits */
    KOLO_KERNELS_REF,    /* reference kernels only */
    KOLO_KERNELS_DIRECT, /* the fastest that fits and multiplies each number with each as the op
                            says: no Winograd */
} kolo_kernel_set;

static inline kolo_kernel_set kolo_kernel_set_of(bool reference, bool no_winograd) {
    return reference ? KOLO_KERNELS_REF : no_winograd ? KOLO_KERNELS_DIRECT : KOLO_KERNELS_BEST;
}

struct kolo_tuner;
struct kolo_kernel;
struct kolo_kernel_spec;

/* kolo_kernel_select_tuned of select/select.h. */
typedef kolo_status (*kolo_kernel_selector)(kolo_kernel_set set, struct kolo_tuner *tuner,
                                            struct kolo_kernel_spec *spec,
                                            const struct kolo_kernel **kernel, double *seconds);

/* A node with everything resolved: what a kernel is made from. */
typedef struct kolo_kernel_spec {
    const kolo_op *op;
    const kolo_attr *attr;
    int n_in, n_out, threads;
    kolo_tensor in[KOLO_MAX_IO], out[KOLO_MAX_IO];
    /* Set by the selection, for kernels that run other kernels: see kolo_kernel_select_inner. */
    kolo_kernel_selector select;
    kolo_kernel_set kernels;
    struct kolo_tuner *tuner; /* may be NULL */
} kolo_kernel_spec;

/* A layout that `fit` may choose: rank 0 on a tensor of higher rank. Only weights (input 1 of
 * conv2d, linear and linear_gelu) are ever left open. */
static inline bool kolo_layout_is_open(const kolo_tensor *t) {
    return t->layout.rank == 0 && t->shape.rank > 0;
}

/* One node's run: addresses of its tensors in one bank of the plan's memory. */
typedef struct kolo_call {
    const kolo_kernel_spec *spec;
    void *state;           /* of prepare */
    void *bound;           /* of bind */
    void *in[KOLO_MAX_IO]; /* addresses, in the order of the node's inputs */
    void *out[KOLO_MAX_IO];
    void *scratch; /* scratch_bytes of prepare, 64-byte aligned, shared between nodes */
} kolo_call;

typedef struct kolo_kernel {
    const char *name; /* "dnn_conv2d" */
    const kolo_op *op;
    /* Whether this kernel runs the spec, and the time it would take, in seconds (an estimate that
     * ranks kernels and layouts, never a promise); negative: it does not. Chooses open layouts. */
    double (*fit)(kolo_kernel_spec *spec);
    /* Makes what the kernel keeps for a spec that fits: *state (may stay NULL) and the scratch
     * memory that a run needs. NULL: nothing to prepare. */
    kolo_status (*prepare)(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes);
    /* Ties the state to the addresses of `call`, leaving its result in call->bound. NULL: nothing.
     */
    kolo_status (*bind)(kolo_call *call);
    void (*run)(const kolo_call *call);
    void (*unbind)(void *bound);  /* frees what bind made; NULL when bind is NULL */
    void (*release)(void *state); /* frees what prepare made; NULL when prepare is NULL */
    /* The library's own name for the code that runs, valid as long as the state. NULL: none. */
    const char *(*implementation)(const void *state);
    bool winograd; /* saves multiplications, and rounds more */
    /* Computes in bf16 on tensors of bf16, by emulation where kolo_kernel_has_bf16 is false: it is
     * not chosen for them there. */
    bool bf16;
} kolo_kernel;

/* Fills a spec from a node (layouts as they stand in the graph). */
void kolo_kernel_spec_init(kolo_kernel_spec *spec, const kolo_graph *g, const kolo_node *n,
                           int threads);

/* True when every tensor of the spec has the dtype (inputs and outputs that are not i32 or u8). */
bool kolo_spec_floats_are(const kolo_kernel_spec *spec, kolo_dtype dtype);
/* True when every tensor of the spec is in plain layout. */
bool kolo_spec_is_plain(const kolo_kernel_spec *spec);
/* Seconds that `flops` and `bytes` would take on one core at the given fractions of a nominal
 * machine (32 flops a cycle with avx2, 64 with avx512, at 3 GHz; 10 GB/s): the scale on which fits
 * compare. */
double kolo_kernel_seconds(double flops, double bytes, double efficiency);

/* In `fit` and `prepare` of a kernel that runs others: selects the kernel of `inner` by the rules
 * that selected `outer`. Kernels do not call the selection directly: it is above all of them. */
static inline kolo_status kolo_kernel_select_inner(const kolo_kernel_spec *outer,
                                                   kolo_kernel_spec *inner,
                                                   const kolo_kernel **kernel, double *seconds) {
    return outer->select(outer->kernels, outer->tuner, inner, kernel, seconds);
}

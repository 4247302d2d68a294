#pragma once
/* The kernel interface: the code that executes a node of the graph.
 *
 * Each op has kernels from up to three families: ref_* (plain C loops on plain layouts, in f64:
 * the reference for tests), simd_* (vectorized, one copy per instruction set) and dnn_*
 * (oneDNN). select/ lists the families and picks the kernel of a node; the families see this
 * interface only.
 *
 * All expensive work happens while a plan is compiled: `fit` estimates the time, `prepare`
 * creates primitives and tables, `bind` attaches them to addresses. `run` does not allocate and
 * cannot fail, but for ops of the program and kernels of other devices than the host, which set the
 * last error of their thread.
 *
 * Threads: a prepared kernel belongs to one plan and is used by one thread at a time; `run` may
 * use up to spec->threads OpenMP threads. */

#include "base/isa.h"
#include "graph/graph.h"
#include "graph/ops/ops.h"

/* The kernels that a plan may use. */
typedef enum kolo_kernel_set {
    KOLO_KERNELS_BEST,   /* the fastest kernel that fits */
    KOLO_KERNELS_REF,    /* reference kernels only */
    KOLO_KERNELS_DIRECT, /* as BEST, without Winograd kernels */
} kolo_kernel_set;

static inline kolo_kernel_set kolo_kernel_set_of(bool reference, bool no_winograd) {
    return reference ? KOLO_KERNELS_REF : no_winograd ? KOLO_KERNELS_DIRECT : KOLO_KERNELS_BEST;
}

struct kolo_device_kind;
struct kolo_tuner;
struct kolo_selections; /* select/cache.h */
struct kolo_kernel;
struct kolo_kernel_spec;

/* The type of kolo_kernel_select_tuned (select/select.h). */
typedef kolo_status (*kolo_kernel_selector)(kolo_kernel_set set, struct kolo_tuner *tuner,
                                            struct kolo_kernel_spec *spec,
                                            const struct kolo_kernel **kernel, double *seconds);

/* A node with resolved tensors: the input of kernel selection and preparation. */
typedef struct kolo_kernel_spec {
    const kolo_op *op;
    const kolo_attr *attr;
    int n_in, n_out, threads;
    const struct kolo_device_kind *device; /* that runs it; NULL: the CPU */
    kolo_tensor in[KOLO_MAX_IO], out[KOLO_MAX_IO];
    /* Set by the selection, for kernels that run other kernels: see kolo_kernel_select_inner. */
    kolo_kernel_selector select;
    kolo_kernel_set kernels;
    struct kolo_tuner *tuner; /* may be NULL */
} kolo_kernel_spec;

/* True for a layout that `fit` may choose: rank 0 on a tensor of higher rank. Only weights
 * (input 1 of conv2d, linear and linear_gelu) have open layouts. */
static inline bool kolo_layout_is_open(const kolo_tensor *t) {
    return t->layout.rank == 0 && t->shape.rank > 0;
}

/* One execution of a node: the addresses of its tensors. */
typedef struct kolo_call {
    const kolo_kernel_spec *spec;
    void *state;           /* from prepare */
    void *bound;           /* from bind */
    void *in[KOLO_MAX_IO]; /* in the order of the node's inputs */
    void *out[KOLO_MAX_IO];
    void *scratch; /* scratch_bytes bytes, 64-byte aligned, shared between nodes */
    /* In place of input kernel->summands: its summands, to be added in this order. NULL: the
     * input is complete. */
    const void *const *summands;
    int n_summands;
} kolo_call;

typedef struct kolo_kernel {
    const char *name; /* "dnn_conv2d" */
    const kolo_op *op;
    /* Returns the estimated time in seconds, or a negative number when the kernel does not
     * support the spec. The estimate only ranks kernels and layouts. Sets open layouts to the
     * kernel's choice. */
    double (*fit)(kolo_kernel_spec *spec);
    /* Creates the kernel's state for a spec that fits: *state (may stay NULL) and the size of
     * the scratch memory of a run. NULL: no preparation. */
    kolo_status (*prepare)(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes);
    /* Attaches the state to the addresses of `call`; the result goes to call->bound. NULL: no
     * binding. */
    kolo_status (*bind)(kolo_call *call);
    void (*run)(const kolo_call *call);
    void (*unbind)(void *bound);  /* frees call->bound; NULL when bind is NULL */
    void (*release)(void *state); /* frees the state; NULL when prepare is NULL */
    /* The library's name of the implementation, valid as long as the state. NULL: none. */
    const char *(*implementation)(const void *state);
    int summands;  /* the input, not 0, that may be given as summands (kolo_call); 0: none */
    bool winograd; /* fewer multiplications, larger rounding errors */
    /* Computes in bf16. Without native support (kolo_kernel_has_bf16) it would emulate bf16, so
     * it is not selected for bf16 tensors. */
    bool bf16;
    /* The kind of device that runs it, to whose memory the addresses of a call belong. NULL: it is
     * code of the host, for devices whose kind has host_kernels. */
    const struct kolo_device_kind *device;
} kolo_kernel;

/* Fills a spec from a node, with the layouts that the graph has now. */
void kolo_kernel_spec_init(kolo_kernel_spec *spec, const kolo_graph *g, const kolo_node *n,
                           int threads);

/* True when every tensor of the spec has the dtype (inputs and outputs that are not integers). */
bool kolo_spec_floats_are(const kolo_kernel_spec *spec, kolo_dtype dtype);
/* True when every tensor of the spec is in plain layout. */
bool kolo_spec_is_plain(const kolo_kernel_spec *spec);
/* The time in seconds of `flops` and `bytes` on one core of a nominal machine, divided by
 * `efficiency`: the larger of compute time (32 flops per cycle with AVX2 and on Zen 4, 64 with
 * AVX-512, at 3 GHz) and memory time (10 GB/s). All estimates use this scale. */
double kolo_kernel_seconds(double flops, double bytes, double efficiency);

/* Selects the kernel of `inner` by the rules that selected `outer`: for the `fit` and `prepare`
 * of kernels that run other kernels. The function pointer keeps the families independent of the
 * selection, which lists them. */
static inline kolo_status kolo_kernel_select_inner(const kolo_kernel_spec *outer,
                                                   kolo_kernel_spec *inner,
                                                   const kolo_kernel **kernel, double *seconds) {
    return outer->select(outer->kernels, outer->tuner, inner, kernel, seconds);
}

#pragma once
/* Shared by the oneDNN kernels. Vendor types stay within this folder.
 *
 * A node becomes a kolo_dnn_plan: its primitive, with reorders and copies around it as separate
 * steps (a reorder of weights into scratch memory, a copy of the bias gradient). Model
 * inputs are f32 even when all else is bf16; a step narrows them. Each kernel has one function that
 * builds the plan of a spec from primitive descriptors alone. `fit` builds it for the estimate and
 * the layout of the weights and drops it; `prepare` builds the same plan again and creates the
 * primitives. Everything else is common.
 *
 * oneDNN accepts a blocked tensor either by its logical or by its padded sizes, since padding
 * holds zeros. Padded sizes avoid remainder loops, which some of its implementations do not
 * support. Reference implementations of oneDNN, up to a thousand times slower, never fit.
 *
 * Threads: primitives partition their work for the thread count at creation, spec->threads,
 * which also determines the bits of weight gradients. Every run sets the calling thread's OpenMP
 * team size to it. Binding does not write to the bound memory. */

#include "kernel/dnn/kernels.h"

#include <dnnl.h>

enum { KOLO_DNN_ARGS = 6, KOLO_DNN_STEPS = 4 };

/* A location in a call: tensor `index` of the inputs or outputs, or an offset in scratch memory. */
typedef enum kolo_dnn_side { KOLO_DNN_IN, KOLO_DNN_OUT, KOLO_DNN_SCRATCH } kolo_dnn_side;
typedef struct kolo_dnn_place {
    kolo_dnn_side side;
    int index;
    size_t offset;
} kolo_dnn_place;

typedef struct kolo_dnn_arg {
    int arg; /* DNNL_ARG_... */
    dnnl_memory_desc_t desc;
    kolo_dnn_place place;
} kolo_dnn_arg;

/* A primitive; or, when `desc` is NULL, a copy of `bytes` from `from` to `to`, then `zeros` zero
 * bytes. */
typedef struct kolo_dnn_step {
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t primitive;
    int n_args;
    kolo_dnn_arg args[KOLO_DNN_ARGS];
    kolo_dnn_place from, to;
    size_t bytes, zeros;
} kolo_dnn_step;

typedef struct kolo_dnn_plan {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    int threads, n_steps;
    kolo_dnn_step steps[KOLO_DNN_STEPS];
    size_t scratch_bytes;
    double seconds;        /* estimated seconds of one run */
    kolo_tensor weights;   /* the weights as the primitive expects them, for ops with weights */
    bool weights_in_place; /* the node's weights have that layout; else a step reorders them */
} kolo_dnn_plan;

/* ---- dnn/layout.c ---- */

/* The oneDNN descriptor of an f32 or bf16 tensor; false when oneDNN cannot describe it. With
 * groups > 1 the tensor holds convolution weights, which become [G, O/G, I, H, W]. */
bool kolo_dnn_desc(const kolo_tensor *tensor, int64_t groups, dnnl_memory_desc_t *desc);
/* The layout of a descriptor, the inverse of kolo_dnn_desc; false for opaque formats and for
 * those that kolo_layout cannot express. */
bool kolo_dnn_layout(const dnnl_memory_desc_t *desc, int64_t groups, kolo_layout *layout);
/* True when every element has the same offset in both tensors: they are equal up to dimensions
 * of one and up to padding, which may count as elements in one and as padding in the other. */
bool kolo_dnn_same_memory(const kolo_tensor *a, const kolo_tensor *b);
/* The padded size of dimension `dim`. */
kolo_tensor kolo_dnn_pad(const kolo_tensor *tensor, int dim);

/* ---- dnn/plan.c ---- */

kolo_status kolo_dnn_plan_init(kolo_dnn_plan *plan, int threads);
/* NULL members are allowed. */
void kolo_dnn_plan_fini(kolo_dnn_plan *plan);
/* Keeps the faster of two plans and frees the other; either may be empty (n_steps 0). */
void kolo_dnn_plan_keep_best(kolo_dnn_plan *best, kolo_dnn_plan *other);

/* The primitive descriptor of an operation; NULL when oneDNN supports it only by a reference
 * implementation. */
dnnl_primitive_desc_t kolo_dnn_create(kolo_dnn_plan *plan, const void *op_desc, bool relu,
                                      const_dnnl_primitive_desc_t hint);
/* oneDNN's name of the implementation. */
const char *kolo_dnn_impl(const_dnnl_primitive_desc_t desc);
/* The approximate speedup of products in `dtype` over f32. */
double kolo_dnn_gain(const char *impl, kolo_dtype dtype);

/* Allocates `bytes` of scratch memory that no other step of the plan uses. */
kolo_dnn_place kolo_dnn_scratch(kolo_dnn_plan *plan, size_t bytes);
/* Appends a step: a primitive (the plan takes ownership of its descriptor) or a copy. */
kolo_dnn_step *kolo_dnn_add(kolo_dnn_plan *plan, dnnl_primitive_desc_t desc);
void kolo_dnn_add_copy(kolo_dnn_plan *plan, kolo_dnn_place from, kolo_dnn_place to, size_t bytes,
                       size_t zeros);
/* Appends a reorder between two tensors of equal shape; false when oneDNN has no optimized one. */
bool kolo_dnn_add_reorder(kolo_dnn_plan *plan, const kolo_tensor *from, kolo_dnn_place from_place,
                          const kolo_tensor *to, kolo_dnn_place to_place, int64_t groups);
/* x as an operation of type `dtype` reads it, and its location: the node's tensor, or, for f32
 * in a bf16 operation, a copy narrowed by a step that this appends. False when oneDNN has no
 * optimized reorder. */
bool kolo_dnn_narrow(kolo_dnn_plan *plan, kolo_tensor *x, kolo_dnn_place *place, kolo_dtype dtype);
/* Adds an argument to a step's primitive. */
void kolo_dnn_arg_at(kolo_dnn_step *step, int arg, const dnnl_memory_desc_t *desc,
                     kolo_dnn_place place);
static inline kolo_dnn_place kolo_dnn_in(int index) {
    return (kolo_dnn_place){KOLO_DNN_IN, index, 0};
}
static inline kolo_dnn_place kolo_dnn_out(int index) {
    return (kolo_dnn_place){KOLO_DNN_OUT, index, 0};
}

/* Builds the plan of a spec; leaves it empty (n_steps 0) when the spec is not supported. The
 * engine exists, primitives are not created yet. */
typedef kolo_status (*kolo_dnn_builder)(const kolo_kernel_spec *spec, kolo_dnn_plan *plan);

/* The kernel functions, for a given builder. */
double kolo_dnn_fit(kolo_kernel_spec *spec, kolo_dnn_builder build);
kolo_status kolo_dnn_prepare(const kolo_kernel_spec *spec, kolo_dnn_builder build, void **state,
                             size_t *scratch_bytes);
kolo_status kolo_dnn_bind(kolo_call *call);
void kolo_dnn_run(const kolo_call *call);
void kolo_dnn_unbind(void *bound);
void kolo_dnn_release(void *state);
const char *kolo_dnn_implementation(const void *state);

/* Defines a kernel; `name` is also the prefix of its builder. */
#define KOLO_DNN_KERNEL_AS(name_, op_, winograd_, bf16_)                           \
    static double name_##_fit(kolo_kernel_spec *spec) {                            \
        return kolo_dnn_fit(spec, name_##_build);                                  \
    }                                                                              \
    static kolo_status name_##_prepare(const kolo_kernel_spec *spec, void **state, \
                                       size_t *bytes) {                            \
        return kolo_dnn_prepare(spec, name_##_build, state, bytes);                \
    }                                                                              \
    const kolo_kernel kolo_dnn_##name_ = {                                         \
        .name = "dnn_" #name_,                                                     \
        .op = &kolo_op_##op_,                                                      \
        .fit = name_##_fit,                                                        \
        .prepare = name_##_prepare,                                                \
        .bind = kolo_dnn_bind,                                                     \
        .run = kolo_dnn_run,                                                       \
        .unbind = kolo_dnn_unbind,                                                 \
        .release = kolo_dnn_release,                                               \
        .implementation = kolo_dnn_implementation,                                 \
        .winograd = winograd_,                                                     \
        .bf16 = bf16_,                                                             \
    }
#define KOLO_DNN_KERNEL(op_) KOLO_DNN_KERNEL_AS(op_, op_, false, true)

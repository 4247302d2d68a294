#pragma once
/* What the oneDNN kernels share. Vendor types stay in this header and the files of this folder.
 *
 * A node becomes a kolo_dnn_plan: the node's primitive with what must happen around it, as a few
 * steps (a reorder of weights into scratch memory, the primitive, a copy of the bias gradient).
 * What a model reads comes in f32, also where all else is bf16: a step narrows it.
 * Each kernel has one function that builds the plan of a spec, with primitive descriptors only.
 * `fit` builds it for the estimate and the layout of the weights and drops it; `prepare` builds it
 * again, to the same result, and makes the primitives. The rest is common.
 *
 * oneDNN takes a tensor in blocks either by its logical size or by its padded one, since the
 * padding holds zeros; the padded form spares it the tails, which some of its implementations
 * cannot do. Reference implementations of oneDNN, slower by factors up to a thousand, never fit.
 *
 * Threads: primitives split their work for the thread count at their creation, spec->threads; this
 * holds for the bits of weight gradients. Each run sets the calling thread's OpenMP team to it.
 * Binding writes nothing into the memory that it binds. */

#include "kernel/dnn/kernels.h"

#include <dnnl.h>

enum { KOLO_DNN_ARGS = 6, KOLO_DNN_STEPS = 4 };

/* Where bytes lie in a call: tensor `index` of its inputs or outputs, or in its scratch memory. */
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

/* A primitive, or a copy when `desc` is NULL: `bytes` from `from` to `to`, then `zeros` zero bytes.
 */
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
    double seconds;        /* of one run, estimated */
    kolo_tensor weights;   /* what the primitive wants as weights, where the op has some */
    bool weights_in_place; /* the node's weights are laid out so; else a step reorders them */
} kolo_dnn_plan;

/* ---- dnn/layout.c ---- */

/* oneDNN's descriptor of a tensor of f32 or bf16; false where it has none. With groups > 1 the
 * tensor holds convolution weights, which become [G, O/G, I, H, W]. */
bool kolo_dnn_desc(const kolo_tensor *tensor, int64_t groups, dnnl_memory_desc_t *desc);
/* The layout behind a descriptor, the inverse of kolo_dnn_desc; false for opaque formats and for
 * those that no layout can say. */
bool kolo_dnn_layout(const dnnl_memory_desc_t *desc, int64_t groups, kolo_layout *layout);
/* True when two tensors have each element at the same place: equal up to dimensions of one and to
 * padding, which may count as elements in one and as padding in the other. */
bool kolo_dnn_same_memory(const kolo_tensor *a, const kolo_tensor *b);
/* Dimension `dim` as large as its blocks make it in memory. */
kolo_tensor kolo_dnn_pad(const kolo_tensor *tensor, int dim);

/* ---- dnn/plan.c ---- */

kolo_status kolo_dnn_plan_init(kolo_dnn_plan *plan, int threads);
/* NULL members are allowed. */
void kolo_dnn_plan_fini(kolo_dnn_plan *plan);
/* Takes the better of two plans, drops the other; either may be empty (n_steps 0). */
void kolo_dnn_plan_keep_best(kolo_dnn_plan *best, kolo_dnn_plan *other);

/* The primitive descriptor of an operation; NULL when oneDNN has none but a reference one. */
dnnl_primitive_desc_t kolo_dnn_create(kolo_dnn_plan *plan, const void *op_desc, bool relu,
                                      const_dnnl_primitive_desc_t hint);
/* oneDNN's name for the implementation. */
const char *kolo_dnn_impl(const_dnnl_primitive_desc_t desc);
/* How many times faster than f32 it multiplies numbers of a type, about. */
double kolo_dnn_gain(const char *impl, kolo_dtype dtype);

/* A place of `bytes` in scratch memory that no other step of the plan uses. */
kolo_dnn_place kolo_dnn_scratch(kolo_dnn_plan *plan, size_t bytes);
/* Appends a step: a primitive (the plan owns its descriptor from here on), or a copy. */
kolo_dnn_step *kolo_dnn_add(kolo_dnn_plan *plan, dnnl_primitive_desc_t desc);
void kolo_dnn_add_copy(kolo_dnn_plan *plan, kolo_dnn_place from, kolo_dnn_place to, size_t bytes,
                       size_t zeros);
/* Appends a reorder between two tensors of one shape; false when oneDNN has no fast one. */
bool kolo_dnn_add_reorder(kolo_dnn_plan *plan, const kolo_tensor *from, kolo_dnn_place from_place,
                          const kolo_tensor *to, kolo_dnn_place to_place, int64_t groups);
/* x as an operation takes it whose other tensors have the type `dtype`, and where it lies: as the
 * node has it, or, where that is f32 beside bf16, narrowed by a step that this appends. False when
 * oneDNN has no fast one. */
bool kolo_dnn_narrow(kolo_dnn_plan *plan, kolo_tensor *x, kolo_dnn_place *place, kolo_dtype dtype);
/* Gives a step's primitive an argument. */
void kolo_dnn_arg_at(kolo_dnn_step *step, int arg, const dnnl_memory_desc_t *desc,
                     kolo_dnn_place place);
static inline kolo_dnn_place kolo_dnn_in(int index) {
    return (kolo_dnn_place){KOLO_DNN_IN, index, 0};
}
static inline kolo_dnn_place kolo_dnn_out(int index) {
    return (kolo_dnn_place){KOLO_DNN_OUT, index, 0};
}

/* Builds the plan of a spec; leaves it empty (n_steps 0) when the spec does not fit. The plan's
 * engine is made; primitives are not. */
typedef kolo_status (*kolo_dnn_builder)(const kolo_kernel_spec *spec, kolo_dnn_plan *plan);

/* The kernel functions, given the builder. */
double kolo_dnn_fit(kolo_kernel_spec *spec, kolo_dnn_builder build);
kolo_status kolo_dnn_prepare(const kolo_kernel_spec *spec, kolo_dnn_builder build, void **state,
                             size_t *scratch_bytes);
kolo_status kolo_dnn_bind(kolo_call *call);
void kolo_dnn_run(const kolo_call *call);
void kolo_dnn_unbind(void *bound);
void kolo_dnn_release(void *state);
const char *kolo_dnn_implementation(const void *state);

/* A kernel row: `name` is also the start of its builder's. */
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

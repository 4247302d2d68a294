/* bf16 via f32: widens the inputs, runs the f32 kernel, narrows the outputs. All copies are in
 * scratch memory, so an output may alias an input.
 *
 * Ops that can run on a subset of the samples (op->samples) run in slices of the batch, which
 * bounds the scratch memory. Slices of memory-bound ops keep their copies in cache. Slices of
 * compute-bound ops are larger, since kernels prepare all of their parameters in every slice.
 * Outputs that are sums over samples are accumulated. The slicing depends only on shapes and
 * threads. */
#include "kernel/select/via_f32.h"

#include "base/integer.h"
#include "graph/ops/chain.h"
#include "kernel/simd/pointwise.h"
#include "kernel/simd/simd.h"

#include <string.h>

/* Bytes of the copies of a slice: per thread for memory-bound ops; for compute-bound ops. */
#define CACHED ((size_t)256 << 10)
#define LARGE ((size_t)16 << 20)
enum { FLOPS_A_BYTE = 8 }; /* arithmetic intensity from which an op counts as compute-bound */

static _Thread_local size_t pinned_slice;

void kolo_via_f32_pin_slice(size_t bytes) { pinned_slice = bytes; }

typedef struct via_state {
    const kolo_kernel *kernel;
    kolo_kernel_spec spec; /* of a slice, in f32 */
    int64_t slices;
    void *state;
    size_t offset[2 * KOLO_MAX_IO]; /* in scratch memory: copies of inputs, then of outputs */
    size_t inner;                   /* scratch bytes of the f32 kernel */
    kolo_kernel_loop widen, narrow, add;
} via_state;

static const kolo_tensor *tensor_of(const kolo_kernel_spec *spec, int i) {
    return i < spec->n_in ? &spec->in[i] : &spec->out[i - spec->n_in];
}

static size_t plain_bytes(const kolo_kernel_spec *spec, int i) {
    const kolo_tensor *t = tensor_of(spec, i);
    return (size_t)kolo_shape_count(&t->shape) * kolo_dtype_bytes(t->dtype);
}

static bool is_bf16(const kolo_kernel_spec *spec, int i) {
    return tensor_of(spec, i)->dtype == KOLO_DTYPE_BF16;
}

static bool is_by_sample(const kolo_kernel_spec *spec, int i) {
    int out = i - spec->n_in;
    return out < 0 ? spec->op->samples.in >> i & 1 : spec->op->samples.out >> out & 1;
}

static bool is_sum(const kolo_kernel_spec *spec, int i) {
    return i >= spec->n_in && spec->op->samples.sums >> (i - spec->n_in) & 1;
}

/* True when the kernel sees a copy of tensor i. With one slice, only bf16 tensors are copied. */
static bool is_copied(const kolo_kernel_spec *spec, int i, int64_t slices) {
    return is_bf16(spec, i) || (slices > 1 && (is_by_sample(spec, i) || is_sum(spec, i)));
}

/* ---- slices ---- */

/* True when samples are contiguous and in order. */
static bool is_by_rows(const kolo_tensor *t) {
    const kolo_layout *layout = &t->layout;
    if (t->shape.rank == 0 || layout->rank != t->shape.rank || layout->order[0] != 0) return false;
    for (int i = 0; i < layout->n_blocks; i++) {
        if (layout->block_dim[i] == 0) return false;
    }
    return true;
}

/* The number of samples that the spec can be cut into; 1 when it cannot be cut. */
static int64_t samples_of(const kolo_kernel_spec *spec) {
    int64_t samples = 1;
    if (!spec->op->samples.in) return 1;
    for (int i = 0; i < spec->n_in + spec->n_out; i++) {
        const kolo_tensor *t = tensor_of(spec, i);
        if (is_sum(spec, i) && t->dtype != KOLO_DTYPE_F32) return 1;
        if (!is_by_sample(spec, i)) {
            if (i >= spec->n_in && !is_sum(spec, i)) return 1;
            continue;
        }
        if (!is_by_rows(t)) return 1;
        if (samples > 1 && t->shape.dim[0] != samples) return 1;
        samples = t->shape.dim[0];
    }
    return samples;
}

/* True for compute-bound ops. Uses shapes only: weights may have no layout yet, and slicing must
 * not change when they get one. */
static bool computes(const kolo_kernel_spec *spec) {
    double bytes = 0;
    kolo_shape_query q = {.attr = spec->attr,
                          .n_in = spec->n_in,
                          .in = spec->in,
                          .n_out = spec->n_out,
                          .op = spec->op};
    q.out = (kolo_tensor *)spec->out; /* cost functions only read them */
    for (int i = 0; i < spec->n_in + spec->n_out; i++) bytes += (double)plain_bytes(spec, i);
    return spec->op->cost && spec->op->cost(&q).flops >= FLOPS_A_BYTE * bytes;
}

/* The smallest number of equal slices whose copies fit the limit. Compute-bound ops stay whole
 * when only far too small slices divide the batch (a prime number of samples). */
static int64_t slices_of(const kolo_kernel_spec *spec) {
    bool whole = computes(spec) && !pinned_slice;
    int64_t samples = samples_of(spec);
    size_t bytes = 0, sums = 0, limit = whole ? LARGE : (size_t)spec->threads * CACHED;
    if (pinned_slice) limit = pinned_slice;
    for (int i = 0; i < spec->n_in + spec->n_out && samples > 1; i++) {
        size_t each = plain_bytes(spec, i);
        if (is_sum(spec, i)) sums += each;
        if (whole && i < spec->n_in && !is_by_sample(spec, i)) limit += 2 * each;
        if (is_by_sample(spec, i)) bytes += each * (is_bf16(spec, i) ? 2 : 1);
    }
    if (sums > bytes / 2 && !pinned_slice) return 1; /* sums would be copied in every slice */
    int64_t n = 1;
    while (n < samples && (samples % n != 0 || bytes / (size_t)n > limit)) n++;
    return whole && (size_t)n > 4 * (bytes / limit + 1) ? 1 : n;
}

/* The spec of a slice, in f32. */
static kolo_kernel_spec slice_of(const kolo_kernel_spec *spec, int64_t slices) {
    kolo_kernel_spec slice = *spec;
    for (int i = 0; i < spec->n_in + spec->n_out; i++) {
        kolo_tensor *t = i < spec->n_in ? &slice.in[i] : &slice.out[i - spec->n_in];
        if (is_bf16(spec, i)) t->dtype = KOLO_DTYPE_F32;
        if (is_by_sample(spec, i)) t->shape.dim[0] /= slices;
    }
    return slice;
}

/* ---- the kernel ---- */

static double fit(kolo_kernel_spec *spec) {
    bool any = false;
    double bytes = 0, seconds;
    const kolo_kernel *kernel;
    if (spec->op == &kolo_op_convert || spec->op == &kolo_op_reorder) return -1;
    if (spec->op == &kolo_op_chain) return -1; /* types of results are among its attributes */
    for (int i = 0; i < spec->n_in + spec->n_out; i++) any |= is_bf16(spec, i);
    if (!any) return -1;
    int64_t slices = slices_of(spec);
    kolo_kernel_spec slice = slice_of(spec, slices);
    if (kolo_kernel_select_inner(spec, &slice, &kernel, &seconds) != KOLO_OK) {
        return -1;
    }
    for (int i = 0; i < spec->n_in; i++) spec->in[i].layout = slice.in[i].layout;
    for (int i = 0; i < spec->n_in + spec->n_out; i++) {
        if (is_bf16(spec, i)) bytes += 3.0 * (double)kolo_tensor_bytes(tensor_of(spec, i));
    }
    return (double)slices * seconds + kolo_kernel_seconds(0, bytes, 1);
}

static kolo_status prepare(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    via_state *s = kolo_zalloc(sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    *state = s;
    s->widen = KOLO_ISA_PICK(kolo_simd_point)->widen;
    s->narrow = KOLO_ISA_PICK(kolo_simd_point)->narrow;
    s->add = KOLO_ISA_PICK(kolo_simd_point)->add;
    s->slices = slices_of(spec);
    s->spec = slice_of(spec, s->slices);
    KOLO_TRY(kolo_kernel_select_inner(spec, &s->spec, &s->kernel, NULL));
    if (s->kernel->prepare) KOLO_TRY(s->kernel->prepare(&s->spec, &s->state, &s->inner));
    size_t bytes = kolo_round_up(s->inner, 64);
    for (int i = 0; i < spec->n_in + spec->n_out; i++) {
        if (!is_copied(spec, i, s->slices)) continue;
        s->offset[i] = bytes;
        bytes += kolo_round_up(kolo_tensor_bytes(tensor_of(&s->spec, i)), 64);
    }
    *scratch_bytes = bytes;
    return KOLO_OK;
}

/* The call of the f32 kernel, with the addresses of the copies. */
typedef struct via_bound {
    const kolo_kernel *kernel;
    kolo_call inner;
} via_bound;

static kolo_status bind(kolo_call *call) {
    const via_state *s = call->state;
    const kolo_kernel_spec *spec = call->spec;
    via_bound *bound = kolo_alloc(sizeof *bound);
    if (!bound) return KOLO_NOMEM(sizeof *bound);
    *bound = (via_bound){s->kernel, *call};
    kolo_call *inner = &bound->inner;
    inner->spec = &s->spec;
    inner->state = s->state;
    inner->bound = NULL;
    for (int i = 0; i < spec->n_in + spec->n_out; i++) {
        void **address = i < spec->n_in ? &inner->in[i] : &inner->out[i - spec->n_in];
        if (is_copied(spec, i, s->slices)) *address = (char *)call->scratch + s->offset[i];
    }
    call->bound = bound; /* the caller unbinds it, also on failure */
    return s->kernel->bind ? s->kernel->bind(inner) : KOLO_OK;
}

/* Converts a slice of tensor i with `loop`, or copies its bytes. */
static void copy(const kolo_call *call, int i, kolo_kernel_loop loop, const void *from, void *to) {
    const via_state *s = call->state;
    const kolo_tensor *t = tensor_of(&s->spec, i);
    if (is_bf16(call->spec, i)) {
        kolo_simd_convert_job job = {from, to};
        kolo_kernel_parallel(call->spec->threads, kolo_tensor_elements(t), loop, &job);
    } else {
        memcpy(to, from, kolo_tensor_bytes(t));
    }
}

/* The address of slice k of tensor i. */
static void *at(const kolo_call *call, int i, int64_t k) {
    const via_state *s = call->state;
    const kolo_kernel_spec *spec = call->spec;
    char *begin = i < spec->n_in ? call->in[i] : call->out[i - spec->n_in];
    size_t bytes = kolo_tensor_bytes(tensor_of(&s->spec, i)) / (is_bf16(spec, i) ? 2 : 1);
    return is_by_sample(spec, i) ? begin + (size_t)k * bytes : begin;
}

static void put(const kolo_call *call, int i, int64_t k, void *from) {
    const via_state *s = call->state;
    if (!is_sum(call->spec, i) || k == 0) {
        copy(call, i, s->narrow, from, at(call, i, k));
        return;
    }
    float *sum = at(call, i, k);
    kolo_simd_pair_job job = {.a = sum, .b = from, .out = sum};
    kolo_kernel_parallel(call->spec->threads, kolo_tensor_elements(tensor_of(&s->spec, i)), s->add,
                         &job);
}

static void run(const kolo_call *call) {
    const via_state *s = call->state;
    const kolo_kernel_spec *spec = call->spec;
    const kolo_call *inner = &((const via_bound *)call->bound)->inner;
    for (int64_t k = 0; k < s->slices; k++) {
        for (int i = 0; i < spec->n_in; i++) {
            bool fresh = k == 0 || is_by_sample(spec, i);
            if (is_copied(spec, i, s->slices) && fresh) {
                copy(call, i, s->widen, at(call, i, k), inner->in[i]);
            }
        }
        s->kernel->run(inner);
        for (int i = 0; i < spec->n_out; i++) {
            if (is_copied(spec, spec->n_in + i, s->slices)) {
                put(call, spec->n_in + i, k, inner->out[i]);
            }
        }
    }
}

static void unbind(void *bound) {
    via_bound *b = bound;
    if (b->kernel->unbind && b->inner.bound) b->kernel->unbind(b->inner.bound);
    kolo_free(b);
}

static void release(void *state) {
    via_state *s = state;
    if (s->kernel && s->kernel->release && s->state) s->kernel->release(s->state);
    kolo_free(s);
}

const kolo_kernel kolo_via_f32_kernel = {
    .name = "bf16_by_f32",
    .fit = fit,
    .prepare = prepare,
    .bind = bind,
    .run = run,
    .unbind = unbind,
    .release = release,
};

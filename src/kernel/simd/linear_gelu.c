/* linear_gelu: a linear layer fused with GELU. Blocks of rows run through the best kernel of
 * linear; GELU follows while the block is in cache, so the result is written once and not read
 * back from memory. Without `keep`, GELU runs in place.
 *
 * In bf16 the product is computed by the inner kernel in its own way; GELU is computed in f32, a
 * few elements at a time.
 *
 * All blocks but the last have equal size, so at most two linear kernels are prepared. A block
 * has at least as many rows as it takes to amortize the packing of the weights. */
#include "base/integer.h"
#include "kernel/simd/activation.h"
#include "kernel/simd/pointwise.h"
#include "kernel/simd/simd.h"

enum { X, W, B };
enum { BLOCK_ELEMENTS = 1 << 18, LEAST_ROWS = 1024, SOME = 1024 };

/* The linear kernel of one block of rows. */
typedef struct block {
    const kolo_kernel *kernel;
    kolo_kernel_spec spec;
    void *state;
} block;

typedef struct state {
    int64_t rows, rows_of_block;
    block block, last;
    bool bf16; /* in bf16 */
    kolo_kernel_loop gelu, widen, narrow;
} state;

typedef struct bound {
    int64_t n_calls;
    struct {
        const block *block;
        void (*unbind)(void *bound);
        kolo_call call;
    } calls[];
} bound;

static int64_t columns_of(const kolo_tensor *t) { return t->shape.dim[t->shape.rank - 1]; }
static int64_t rows_of(const kolo_tensor *t) { return kolo_shape_count(&t->shape) / columns_of(t); }

static kolo_tensor with_rows(const kolo_tensor *t, int64_t rows) {
    return kolo_tensor_plain(t->dtype, kolo_shape_2(rows, columns_of(t)));
}

/* The spec of the linear layer on `rows` rows. */
static kolo_kernel_spec linear_of(const kolo_kernel_spec *spec, int64_t rows) {
    static const kolo_attr no_attrs[KOLO_MAX_ATTRS];
    kolo_kernel_spec linear = *spec;
    linear.op = &kolo_op_linear;
    linear.attr = no_attrs;
    linear.n_out = 1;
    linear.in[X] = with_rows(&spec->in[X], rows);
    linear.out[0] = with_rows(&spec->out[0], rows);
    return linear;
}

static int64_t rows_of_block(const kolo_kernel_spec *spec) {
    int64_t fit_cache = BLOCK_ELEMENTS / columns_of(&spec->out[0]);
    return kolo_min_i64(rows_of(&spec->in[X]), kolo_max_i64(fit_cache, LEAST_ROWS));
}

/* Selects the kernel of the linear layer on `rows` rows, and its layout of weights. */
static kolo_status select_linear(const kolo_kernel_spec *spec, int64_t rows,
                                 kolo_kernel_spec *linear, const kolo_kernel **kernel,
                                 double *seconds) {
    *linear = linear_of(spec, rows);
    return kolo_kernel_select_inner(spec, linear, kernel, seconds);
}

/* All tensors f32, or all bf16 except the bias. */
static bool types_fit(const kolo_kernel_spec *spec) {
    kolo_dtype dtype = spec->out[0].dtype;
    return (dtype == KOLO_DTYPE_F32 || dtype == KOLO_DTYPE_BF16) && spec->in[X].dtype == dtype &&
           spec->in[W].dtype == dtype && (spec->n_in <= B || spec->in[B].dtype == KOLO_DTYPE_F32);
}

static double fit(kolo_kernel_spec *spec) {
    const kolo_kernel *kernel;
    kolo_kernel_spec linear;
    double seconds, bytes = 2 * (double)kolo_tensor_bytes(&spec->out[0]);
    if (!types_fit(spec)) return -1;
    for (int i = 0; i < spec->n_in + spec->n_out; i++) {
        const kolo_tensor *t = i < spec->n_in ? &spec->in[i] : &spec->out[i - spec->n_in];
        if (i != W && !kolo_layout_is_plain(&t->layout)) return -1;
    }
    int64_t rows = rows_of(&spec->in[X]), block_rows = rows_of_block(spec);
    if (select_linear(spec, block_rows, &linear, &kernel, &seconds) != KOLO_OK) return -1;
    spec->in[W].layout = linear.in[W].layout;
    return seconds * (double)rows / (double)block_rows + kolo_kernel_seconds(0, bytes, 2);
}

static kolo_status prepare_block(block *b, const kolo_kernel_spec *spec, int64_t rows,
                                 size_t *scratch_bytes) {
    size_t bytes = 0;
    KOLO_TRY(select_linear(spec, rows, &b->spec, &b->kernel, NULL));
    if (b->kernel->prepare) KOLO_TRY(b->kernel->prepare(&b->spec, &b->state, &bytes));
    if (bytes > *scratch_bytes) *scratch_bytes = bytes;
    return KOLO_OK;
}

static kolo_status prepare(const kolo_kernel_spec *spec, void **made, size_t *scratch_bytes) {
    state *s = kolo_zalloc(sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    *made = s;
    *scratch_bytes = 0;
    s->gelu = KOLO_ISA_PICK(kolo_simd_activation)->gelu[spec->attr[KOLO_LINEAR_GELU_TANH].i != 0];
    s->widen = KOLO_ISA_PICK(kolo_simd_point)->widen;
    s->narrow = KOLO_ISA_PICK(kolo_simd_point)->narrow;
    s->bf16 = spec->out[0].dtype == KOLO_DTYPE_BF16;
    s->rows = rows_of(&spec->in[X]);
    s->rows_of_block = rows_of_block(spec);
    KOLO_TRY(prepare_block(&s->block, spec, s->rows_of_block, scratch_bytes));
    int64_t rest = s->rows % s->rows_of_block;
    return rest ? prepare_block(&s->last, spec, rest, scratch_bytes) : KOLO_OK;
}

/* The block of call i. */
static const block *block_of(const state *s, int64_t i) {
    return (i + 1) * s->rows_of_block <= s->rows ? &s->block : &s->last;
}

static kolo_status bind(kolo_call *call) {
    const state *s = call->state;
    const kolo_kernel_spec *spec = call->spec;
    int64_t n = (s->rows + s->rows_of_block - 1) / s->rows_of_block;
    bound *b = kolo_zalloc(sizeof *b + (size_t)n * sizeof *b->calls);
    if (!b) return KOLO_NOMEM((size_t)n * sizeof *b->calls);
    call->bound = b; /* the caller unbinds it, also on failure */
    char *x = call->in[X], *z = call->out[spec->n_out - 1];
    int64_t bytes = (int64_t)kolo_dtype_bytes(spec->out[0].dtype);
    for (int64_t i = 0; i < n; i++) {
        const block *of = block_of(s, i);
        int64_t row = i * s->rows_of_block;
        kolo_call *inner = &b->calls[b->n_calls].call;
        *inner = (kolo_call){
            .spec = &of->spec,
            .state = of->state,
            .in = {x + row * columns_of(&spec->in[X]) * bytes, call->in[W], call->in[B]},
            .out = {z + row * columns_of(&spec->out[0]) * bytes},
            .scratch = call->scratch,
        };
        b->calls[b->n_calls].block = of;
        b->calls[b->n_calls++].unbind = of->kernel->unbind;
        if (of->kernel->bind) KOLO_TRY(of->kernel->bind(inner));
    }
    return KOLO_OK;
}

typedef struct bf16_job { /* parallel over elements */
    const state *state;
    const uint16_t *z;
    uint16_t *y;
} bf16_job;

static void bf16_gelu(const void *arg, int part, int64_t begin, int64_t end) {
    const bf16_job *job = arg;
    float wide[SOME];
    for (int64_t i = begin; i < end; i += SOME) {
        int64_t n = kolo_min_i64(SOME, end - i);
        job->state->widen(&(kolo_simd_convert_job){job->z + i, wide}, part, 0, n);
        job->state->gelu(&(kolo_simd_pair_job){.a = wide, .out = wide}, part, 0, n);
        job->state->narrow(&(kolo_simd_convert_job){wide, job->y + i}, part, 0, n);
    }
}

static void gelu(const state *s, int threads, const void *z, void *y, int64_t count) {
    if (s->bf16) {
        kolo_kernel_parallel(threads, count, bf16_gelu, &(bf16_job){s, z, y});
    } else {
        kolo_kernel_parallel(threads, count, s->gelu, &(kolo_simd_pair_job){.a = z, .out = y});
    }
}

static void run(const kolo_call *call) {
    const state *s = call->state;
    const bound *b = call->bound;
    char *y = call->out[0];
    for (int64_t i = 0; i < b->n_calls; i++) {
        const block *of = b->calls[i].block;
        const kolo_call *linear = &b->calls[i].call;
        int64_t count = kolo_shape_count(&of->spec.out[0].shape);
        of->kernel->run(linear);
        gelu(s, call->spec->threads, linear->out[0], y, count);
        y += kolo_tensor_bytes(&of->spec.out[0]);
    }
}

static void unbind(void *made) {
    bound *b = made;
    for (int64_t i = 0; b && i < b->n_calls; i++) {
        void *inner = b->calls[i].call.bound;
        if (b->calls[i].unbind && inner) b->calls[i].unbind(inner);
    }
    kolo_free(b);
}

static void release_block(const block *b) {
    if (b->kernel && b->kernel->release && b->state) b->kernel->release(b->state);
}

static void release(void *made) {
    state *s = made;
    release_block(&s->block);
    release_block(&s->last);
    kolo_free(s);
}

static const char *implementation(const void *made) {
    const block *b = &((const state *)made)->block;
    return b->kernel->implementation ? b->kernel->implementation(b->state) : b->kernel->name;
}

const kolo_kernel kolo_simd_linear_gelu = {
    .name = "simd_linear_gelu",
    .op = &kolo_op_linear_gelu,
    .fit = fit,
    .prepare = prepare,
    .bind = bind,
    .run = run,
    .unbind = unbind,
    .release = release,
    .implementation = implementation,
    .bf16 = true,
};

/* Linear layers on many rows, of tokens or images: forward, with GELU, and data gradient (loops:
 * linear_many.isa.c). For few rows see linear.c, for weight gradients linear_weights.c. x, y and
 * the weights are plain matrices; all dimensions but the last are rows. */
#include "kernel/simd/linear_many.h"

#include "base/integer.h"

enum {
    LEAST_ROWS = 256,   /* fewer do not amortize the packing of the weights */
    DEPTH = 1024,       /* rows of a block of b, at most, */
    BLOCK = 192 * 1024, /* and its floats: 768 KB, in L2 */
    STREAMED = 4 << 20, /* bytes of a result that is written past the cache, at least */
};

typedef struct many_state {
    const kolo_simd_many_table *table;
    kolo_simd_many_job job; /* without the addresses */
    int64_t depth, columns; /* of a block, at most */
    int64_t packed;         /* floats */
} many_state;

static int64_t parts_of(int64_t n, int64_t size) { return (n + size - 1) / size; }

/* n in parts of nearly equal size, at most `most` and in multiples of `unit` but for the last. */
static int64_t part_size(int64_t n, int64_t most, int64_t unit) {
    return parts_of(parts_of(n, parts_of(n, most)), unit) * unit;
}

static bool is_forward(const kolo_kernel_spec *spec) {
    return spec->op != &kolo_op_linear_bwd_data;
}

/* The job of a spec that fits, without the addresses. */
static kolo_simd_many_job job_of(const kolo_kernel_spec *spec) {
    const kolo_shape *w = &spec->in[1].shape;
    const bool forward = is_forward(spec);
    kolo_simd_many_job job = {
        .inner = w->dim[forward ? 1 : 0],
        .outer = w->dim[forward ? 0 : 1],
        .transposed = forward,
    };
    job.rows = kolo_shape_count(&spec->in[0].shape) / job.inner;
    if (spec->op == &kolo_op_linear && spec->attr[KOLO_LINEAR_RELU].i) {
        job.finish = KOLO_SIMD_FINISH_RELU;
    }
    if (spec->op == &kolo_op_linear_gelu) {
        job.finish = spec->attr[KOLO_LINEAR_GELU_TANH].i ? KOLO_SIMD_FINISH_GELU_TANH
                                                         : KOLO_SIMD_FINISH_GELU;
    }
    return job;
}

/* ---- fit ---- */

/* Calibrated as the estimate of oneDNN's inner product; the weights are packed, and those with many
 * rows in several blocks, for each of which the result is read and written again. */
static double seconds_of(const kolo_simd_many_job *job, bool keeps) {
    const double least = (double)kolo_min_i64(job->inner, job->outer);
    const double rows = (double)job->rows, inner = (double)job->inner, outer = (double)job->outer;
    const double passes = (double)parts_of(job->inner, DEPTH) + keeps;
    const double bytes = 4 * (rows * (inner + passes * outer) + inner * outer);
    return kolo_kernel_seconds(2 * rows * inner * outer, bytes, 0.9 * least / (least + 10)) +
           kolo_kernel_seconds(0, 4 * inner * outer, 0.75);
}

static double fit(kolo_kernel_spec *spec) {
    if (!kolo_spec_floats_are(spec, KOLO_DTYPE_F32) || spec->in[1].shape.rank != 2) return -1;
    kolo_tensor *w = &spec->in[1];
    if (kolo_layout_is_open(w)) *w = kolo_tensor_plain(w->dtype, w->shape);
    if (!kolo_spec_is_plain(spec)) return -1;
    const kolo_simd_many_job job = job_of(spec);
    return job.rows < LEAST_ROWS ? -1 : seconds_of(&job, spec->n_out > 1);
}

/* ---- prepare ---- */

static kolo_status prepare(const kolo_kernel_spec *spec, void **made, size_t *scratch_bytes) {
    many_state *s = kolo_zalloc(sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    const kolo_simd_many_table *table = s->table = KOLO_ISA_PICK(kolo_simd_many);
    s->job = job_of(spec);
    s->job.strips = kolo_simd_many_strips(s->job.rows, table->strip, spec->threads);
    s->depth = part_size(s->job.inner, DEPTH, 1);
    s->columns =
        part_size(s->job.outer, kolo_max_i64(BLOCK / s->depth, table->panel), table->panel);
    s->packed = s->columns * (1 + s->depth);
    s->job.part_stride = parts_of(table->strip * (s->depth + table->pad), 16) * 16;
    *scratch_bytes = sizeof(float) * (size_t)(s->packed + spec->threads * s->job.part_stride);
    *made = s;
    return KOLO_OK;
}

/* ---- run ---- */

static void run_blocks(const kolo_call *call, kolo_simd_many_job job) {
    const many_state *s = call->state;
    const int threads = call->spec->threads;
    job.a = call->in[0];
    job.w = call->in[1];
    job.bias = is_forward(call->spec) && call->spec->n_in > 2 ? call->in[2] : NULL;
    job.packed = call->scratch;
    job.scratch = job.packed + s->packed;
    for (job.column = 0; job.column < job.outer; job.column += s->columns) {
        job.columns = kolo_min_i64(s->columns, job.outer - job.column);
        for (job.first = 0; job.first < job.inner; job.first += s->depth) {
            job.depth = kolo_min_i64(s->depth, job.inner - job.first);
            kolo_kernel_parallel(threads, parts_of(job.columns, s->table->panel), s->table->pack,
                                 &job);
            kolo_kernel_parallel(threads, job.strips, s->table->multiply, &job);
        }
    }
}

/* What is much larger than the cache of a core would drive all else out of it: an ordinary store
 * reads its line first. */
static bool writes_past_the_cache(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const kolo_tensor *y = &spec->out[0];
    const size_t line = 64, row = sizeof(float) * (size_t)y->shape.dim[y->shape.rank - 1];
    if (spec->op != &kolo_op_linear_gelu || kolo_tensor_bytes(y) < STREAMED) return false;
    for (int i = 0; i < spec->n_out; i++) {
        if ((uintptr_t)call->out[i] % line != 0) return false;
    }
    return row % line == 0;
}

static void run(const kolo_call *call) {
    const many_state *s = call->state;
    kolo_simd_many_job job = s->job;
    job.out = call->out[call->spec->n_out - 1];
    job.gelu = call->out[0];
    job.streams = writes_past_the_cache(call);
    run_blocks(call, job);
}

#define MANY_KERNEL(op_name)                         \
    const kolo_kernel kolo_simd_##op_name##_many = { \
        .name = "simd_" #op_name "_many",            \
        .op = &kolo_op_##op_name,                    \
        .fit = fit,                                  \
        .prepare = prepare,                          \
        .run = run,                                  \
        .release = kolo_free,                        \
    }
MANY_KERNEL(linear);
MANY_KERNEL(linear_gelu);
MANY_KERNEL(linear_bwd_data);

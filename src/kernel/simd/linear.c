/* Linear layers on few rows (image classifiers): forward and data gradient (loops:
 * linear.isa.c). For many rows see linear_many.c, for weight gradients linear_weights.c.
 *
 * x and w are matrices in any common order of the dimensions after the first, padding included,
 * as in the oneDNN kernels. */
#include "kernel/simd/linear.h"

#include "base/integer.h"

enum {
    LEAST_ROWS = 4, /* fewer do not fill a tile */
    MOST_ROWS = 64,
    STRIP = 6144,    /* floats of a strip of dx, which fits the L1 cache, */
    MOST_UNITS = 32, /* and its maximum width, in units of the loop */
};

/* x (or dx), weights and y (or dy) of a spec. */
typedef struct linear_roles {
    const kolo_tensor *x, *w, *y;
} linear_roles;

static linear_roles roles_of(const kolo_kernel_spec *spec) {
    bool forward = spec->op == &kolo_op_linear;
    return (linear_roles){
        .x = forward ? &spec->in[0] : &spec->out[0],
        .w = &spec->in[1],
        .y = forward ? &spec->out[0] : &spec->in[0],
    };
}

typedef struct linear_state {
    const kolo_simd_linear_table *table;
    kolo_simd_linear_job job; /* without the addresses */
    int64_t packed;           /* floats */
} linear_state;

/* ---- fit ---- */

static bool leads_with_rows(const kolo_layout *layout) {
    for (int i = 0; i < layout->n_blocks; i++) {
        if (layout->block_dim[i] == 0) return false;
    }
    return layout->order[0] == 0;
}

/* The estimate: products, and one pass over the weights. Calibrated by measurements of 4 to 64
 * rows (bench/linear_kernels). */
static double seconds(double rows, double inner, double outer) {
    return kolo_kernel_seconds(2 * rows * inner * outer, 0, 0.85 * inner / (inner + 400)) +
           kolo_kernel_seconds(0, 4 * inner * outer, 2);
}

static double fit(kolo_kernel_spec *spec) {
    linear_roles role = roles_of(spec);
    if (!kolo_spec_floats_are(spec, KOLO_DTYPE_F32)) return -1;
    if (role.x->shape.rank != role.w->shape.rank || role.x->shape.rank < 2) return -1;
    int64_t rows = role.x->shape.dim[0];
    if (rows < LEAST_ROWS || rows > MOST_ROWS) return -1;
    if (!leads_with_rows(&role.x->layout) || !kolo_layout_is_plain(&role.y->layout)) return -1;
    if (kolo_layout_is_open(role.w)) {
        spec->in[1].layout = role.x->layout;
    } else if (!kolo_layout_equal(&role.w->layout, &role.x->layout)) {
        return -1;
    }
    double outer = (double)role.w->shape.dim[0];
    double inner = (double)kolo_tensor_elements(role.w) / outer;
    return seconds((double)rows, inner, outer);
}

/* ---- prepare ---- */

static int64_t parts_of(int64_t n, int64_t size) { return (n + size - 1) / size; }

static kolo_status prepare(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    linear_roles role = roles_of(spec);
    linear_state *s = kolo_zalloc(sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    const kolo_simd_linear_table *table = s->table = KOLO_ISA_PICK(kolo_simd_linear);
    kolo_simd_linear_job *job = &s->job;
    job->rows = role.x->shape.dim[0];
    job->outer = role.w->shape.dim[0];
    job->inner = kolo_tensor_elements(role.w) / job->outer;
    if (spec->op == &kolo_op_linear) {
        int64_t tiles = parts_of(job->rows, table->rows);
        job->relu = spec->attr[KOLO_LINEAR_RELU].i != 0;
        job->part_stride = tiles * table->sums + table->lines;
        s->packed = tiles * table->rows * parts_of(job->inner, table->depth) * table->pitch;
    } else {
        int64_t most = parts_of(job->inner, table->width);
        int64_t units = kolo_max_i64(2, STRIP / (job->rows * table->width));
        job->strip = table->width * kolo_min_i64(kolo_min_i64(units, MOST_UNITS), most);
        job->part_stride = job->rows * job->strip;
        s->packed = parts_of(job->outer, table->terms) * table->terms * job->rows;
    }
    s->packed = parts_of(s->packed, 16) * 16;
    *scratch_bytes = sizeof(float) * (size_t)(s->packed + spec->threads * job->part_stride);
    *state = s;
    return KOLO_OK;
}

/* ---- run ---- */

static kolo_simd_linear_job job_of(const kolo_call *call) {
    const linear_state *s = call->state;
    kolo_simd_linear_job job = s->job;
    job.out = call->out[0];
    job.packed = call->scratch;
    job.scratch = job.packed + s->packed;
    return job;
}

static void run(const kolo_call *call) {
    const linear_state *s = call->state;
    int threads = call->spec->threads;
    kolo_simd_linear_job job = job_of(call);
    job.x = call->in[0];
    job.w = call->in[1];
    job.b = call->spec->n_in > 2 ? call->in[2] : NULL;
    int64_t blocks = parts_of(job.inner, s->table->depth);
    kolo_kernel_parallel(threads, blocks, s->table->pack_rows, &job);
    kolo_kernel_parallel(threads, job.outer, s->table->forward, &job);
}

static void run_bwd_data(const kolo_call *call) {
    const linear_state *s = call->state;
    int threads = call->spec->threads;
    kolo_simd_linear_job job = job_of(call);
    job.dy = call->in[0];
    job.w = call->in[1];
    int64_t tiles = parts_of(job.outer, s->table->terms);
    kolo_kernel_parallel(threads, tiles, s->table->pack_terms, &job);
    kolo_kernel_parallel(threads, parts_of(job.inner, job.strip), s->table->bwd_data, &job);
}

KOLO_SIMD_KERNEL(linear, run);
KOLO_SIMD_KERNEL(linear_bwd_data, run_bwd_data);

/* Weight gradients of linear layers on many rows, of tokens or images (loops:
 * linear_weights.isa.c). oneDNN's product is as fast on most shapes, but not on small matrices,
 * where it does not pack. */
#include "kernel/simd/linear_weights.h"

#include "base/integer.h"

enum { DY, X, DW = 0, DB };
enum {
    LEAST_ROWS = 256, /* fewer do not amortize the sweep over dw */
    COLUMNS = 3072,   /* of x that are packed at a time: 3 MB, in the cache that cores share */
};

static int64_t parts_of(int64_t n, int64_t size) { return (n + size - 1) / size; }
static int64_t rows_of(const kolo_kernel_spec *spec) {
    return kolo_shape_count(&spec->in[DY].shape) / spec->out[DW].shape.dim[0];
}

/* Calibrated as the estimate of oneDNN's inner product, on AVX2. All threads take as long as the
 * one with the most tiles. */
static double fit(kolo_kernel_spec *spec) {
    if (!kolo_spec_floats_are(spec, KOLO_DTYPE_F32) || !kolo_spec_is_plain(spec)) return -1;
    if (spec->out[DW].shape.rank != 2 || rows_of(spec) < LEAST_ROWS) return -1;
    const kolo_simd_weights_table *table = KOLO_ISA_PICK(kolo_simd_weights);
    int64_t outer = spec->out[DW].shape.dim[0], inner = spec->out[DW].shape.dim[1];
    double least = (double)kolo_min_i64(outer, inner);
    int64_t parts = parts_of(outer, table->tile_rows);
    int64_t busy_or_idle = parts_of(parts, spec->threads) * spec->threads;
    double tiles = (double)(busy_or_idle * parts_of(inner, table->tile_columns));
    double flops = 2 * tiles * (double)(table->tile_rows * table->tile_columns * rows_of(spec));
    double bytes = 4.0 * (double)(rows_of(spec) * (outer + inner) + outer * inner);
    double share = kolo_isa_now() == KOLO_ISA_AVX2 ? 0.99 : 0.9;
    return kolo_kernel_seconds(flops, bytes, share * least / (least + 10));
}

typedef struct state {
    const kolo_simd_weights_table *table;
    kolo_simd_weights_job job; /* without the addresses */
    int64_t packed;            /* floats */
} state;

static kolo_status prepare(const kolo_kernel_spec *spec, void **made, size_t *scratch_bytes) {
    state *s = kolo_zalloc(sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    s->table = KOLO_ISA_PICK(kolo_simd_weights);
    s->job.rows = rows_of(spec);
    s->job.outer = spec->out[DW].shape.dim[0];
    s->job.inner = spec->out[DW].shape.dim[1];
    s->job.part_stride = parts_of(s->table->scratch, 16) * 16;
    int64_t columns = kolo_min_i64(COLUMNS, s->job.inner);
    s->packed = parts_of(columns, s->table->tile_columns) * s->table->packed_panel;
    *scratch_bytes = sizeof(float) * (size_t)(s->packed + spec->threads * s->job.part_stride);
    *made = s;
    return KOLO_OK;
}

static void run(const kolo_call *call) {
    const state *s = call->state;
    const kolo_simd_weights_table *table = s->table;
    int threads = call->spec->threads;
    kolo_simd_weights_job job = s->job;
    job.dy = call->in[DY];
    job.x = call->in[X];
    job.dw = call->out[DW];
    job.db = call->spec->n_out > DB ? call->out[DB] : NULL;
    job.packed = call->scratch;
    job.scratch = job.packed + s->packed;
    for (job.column = 0; job.column < job.inner; job.column += COLUMNS) {
        job.columns = kolo_min_i64(COLUMNS, job.inner - job.column);
        for (job.row = 0; job.row < job.rows; job.row += table->depth) {
            job.depth = kolo_min_i64(table->depth, job.rows - job.row);
            kolo_kernel_parallel(threads, parts_of(job.columns, table->tile_columns), table->pack,
                                 &job);
            kolo_kernel_parallel(threads, parts_of(job.outer, table->tile_rows), table->multiply,
                                 &job);
        }
    }
}

KOLO_SIMD_KERNEL(linear_bwd_weights, run);

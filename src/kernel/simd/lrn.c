/* Local response normalization and its gradient on f32 or bf16 images in any layout of
 * kolo_simd_image (loops: lrn.isa.c). */
#include "kernel/simd/lrn.h"

typedef struct lrn_state {
    kolo_kernel_loop loop;
    kolo_simd_lrn_job job; /* without the addresses */
} lrn_state;

static double fit(kolo_kernel_spec *spec) {
    kolo_simd_image image;
    double bytes = 0;
    if (!kolo_simd_supports(spec) || !kolo_simd_image_of(&spec->in[0], &image)) return -1;
    for (int i = 0; i < spec->n_in + spec->n_out; i++) {
        const kolo_tensor *t = i < spec->n_in ? &spec->in[i] : &spec->out[i - spec->n_in];
        if (!kolo_layout_equal(&t->layout, &spec->in[0].layout)) return -1;
        bytes += (double)kolo_tensor_bytes(t);
    }
    return kolo_kernel_seconds(0, bytes, 0.5);
}

static kolo_status prepare(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    const kolo_simd_lrn_table *table = KOLO_ISA_PICK(kolo_simd_lrn);
    const kolo_attr *attr = spec->attr;
    lrn_state *s = kolo_zalloc(sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    s->loop = spec->op == &kolo_op_lrn ? table->forward : table->backward;
    kolo_simd_lrn_job *job = &s->job;
    KOLO_ASSERT(kolo_simd_image_of(&spec->in[0], &job->image));
    job->bf16 = kolo_simd_is_bf16(spec);
    int64_t pixels = job->image.h * job->image.w;
    job->size = attr[KOLO_LRN_SIZE].i;
    job->tile = job->image.inner == 1 ? KOLO_SIMD_LRN_TILE : 1;
    job->tiles = (pixels + job->tile - 1) / job->tile;
    job->alpha = (float)(attr[KOLO_LRN_ALPHA].f / (double)job->size);
    job->beta = (float)attr[KOLO_LRN_BETA].f;
    job->k = (float)attr[KOLO_LRN_K].f;
    /* Scratch memory: x; squares or products with a zero margin of one window on either side;
     * sums. */
    int64_t channels = job->image.planes * job->image.inner;
    job->part_stride = job->tile * (3 * channels + job->size);
    *state = s;
    *scratch_bytes = sizeof(float) * (size_t)(spec->threads * job->part_stride);
    return KOLO_OK;
}

static void run(const kolo_call *call) {
    const lrn_state *s = call->state;
    kolo_simd_lrn_job job = s->job;
    job.scratch = call->scratch;
    if (call->spec->op == &kolo_op_lrn) {
        job.x = call->in[0];
        job.y = call->out[0];
        job.s_out = call->out[1];
    } else {
        job.dy = call->in[0];
        job.x = call->in[1];
        job.s = call->in[2];
        job.dx = call->out[0];
    }
    kolo_kernel_parallel(call->spec->threads, job.image.n * job.tiles, s->loop, &job);
}

const kolo_kernel kolo_simd_lrn = {
    .name = "simd_lrn",
    .op = &kolo_op_lrn,
    .fit = fit,
    .prepare = prepare,
    .run = run,
    .release = kolo_free,
};
const kolo_kernel kolo_simd_lrn_bwd = {
    .name = "simd_lrn_bwd",
    .op = &kolo_op_lrn_bwd,
    .fit = fit,
    .prepare = prepare,
    .run = run,
    .release = kolo_free,
};

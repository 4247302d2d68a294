/* Resizing and its gradient on f32 or bf16 images in any layout of kolo_simd_image
 * (loops: resize.isa.c). Interpolation weights are precomputed in doubles. */
#include "kernel/simd/resize.h"

typedef struct resize_state {
    kolo_kernel_loop loop;
    kolo_simd_resize_job job; /* without the addresses */
    kolo_simd_between *table; /* for rows, then for columns */
} resize_state;

static bool is_bwd(const kolo_kernel_spec *spec) { return spec->op == &kolo_op_resize_bwd; }

static double fit(kolo_kernel_spec *spec) {
    kolo_simd_image image;
    if (!kolo_simd_supports(spec) || !kolo_simd_image_of(&spec->in[0], &image)) return -1;
    if (!kolo_layout_equal(&spec->in[0].layout, &spec->out[0].layout)) return -1;
    double bytes =
        (double)kolo_tensor_bytes(&spec->in[0]) + (double)kolo_tensor_bytes(&spec->out[0]);
    return kolo_kernel_seconds(0, bytes, image.inner % 8 == 0 ? 1.5 : 0.5);
}

static kolo_simd_between narrow(kolo_between b) {
    return (kolo_simd_between){(int32_t)b.low, (int32_t)b.high, (float)b.part};
}

/* Both sides must use the same view: an image of one pixel has two. */
static void see_alike(kolo_simd_image *a, kolo_simd_image *b) {
    if (a->inner == b->inner) return;
    kolo_simd_image *other = a->inner > b->inner ? a : b;
    other->planes = other->c;
    other->inner = 1;
}

static void release(void *state) {
    resize_state *s = state;
    if (s) kolo_free(s->table);
    kolo_free(s);
}

static kolo_status prepare(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    const kolo_simd_resize_table *loops = KOLO_ISA_PICK(kolo_simd_resize);
    resize_state *s = kolo_zalloc(sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    kolo_simd_resize_job *job = &s->job;
    KOLO_ASSERT(kolo_simd_image_of(&spec->in[0], is_bwd(spec) ? &job->y : &job->x));
    KOLO_ASSERT(kolo_simd_image_of(&spec->out[0], is_bwd(spec) ? &job->x : &job->y));
    see_alike(&job->x, &job->y);
    size_t bytes = (size_t)(job->y.h + job->y.w) * sizeof *s->table;
    s->table = kolo_alloc(bytes);
    if (!s->table) {
        release(s);
        return KOLO_NOMEM(bytes);
    }
    const kolo_resize_mode mode = (kolo_resize_mode)spec->attr[KOLO_SIZE_MODE].i;
    for (int64_t i = 0; i < job->y.h; i++) {
        s->table[i] = narrow(kolo_resize_row(spec->attr, i, job->x.h, job->y.h));
    }
    for (int64_t i = 0; i < job->y.w; i++) {
        s->table[job->y.h + i] = narrow(kolo_resize_between(i, job->x.w, job->y.w, mode));
    }
    job->rows = s->table;
    job->columns = s->table + job->y.h;
    s->loop = is_bwd(spec) ? loops->backward : loops->forward;
    *state = s;
    job->bf16 = kolo_simd_is_bf16(spec);
    job->part_stride = job->x.w * job->x.inner;
    if (job->bf16 && is_bwd(spec)) job->part_stride += kolo_simd_plane_size(&job->x);
    *scratch_bytes = sizeof(float) * (size_t)(spec->threads * job->part_stride);
    return KOLO_OK;
}

static void run(const kolo_call *call) {
    const resize_state *s = call->state;
    kolo_simd_resize_job job = s->job;
    job.in = call->in[0];
    job.out = call->out[0];
    job.scratch = call->scratch;
    kolo_kernel_parallel(call->spec->threads, job.x.n * job.x.planes, s->loop, &job);
}

const kolo_kernel kolo_simd_resize = {
    .name = "simd_resize",
    .op = &kolo_op_resize,
    .fit = fit,
    .prepare = prepare,
    .run = run,
    .release = release,
};
const kolo_kernel kolo_simd_resize_bwd = {
    .name = "simd_resize_bwd",
    .op = &kolo_op_resize_bwd,
    .fit = fit,
    .prepare = prepare,
    .run = run,
    .release = release,
};

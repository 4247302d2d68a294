/* Batch normalization, the update of its running statistics, and scale, on images in any layout
 * of kolo_simd_image (loops: norm.isa.c).
 *
 * Forward: sums per plane, mean and variance per channel, then y. Backward: the sums of dy and
 * of dy (x - mean), then dx. Both read their inputs twice. They work on a slab of channels at a
 * time, and the second pass runs in reverse order, so that the data is still in cache. */
#include "kernel/simd/norm.h"

#include "base/integer.h"

#include <math.h>
#include <string.h>

typedef struct norm_state {
    const kolo_simd_norm_table *loops;
    kolo_simd_image image;
    int64_t lanes; /* channels including padding */
} norm_state;

enum { BWD_DY, BWD_X, BWD_GAMMA, BWD_MEAN, BWD_VAR, BWD_BETA };
enum { X, GAMMA, BETA, MEAN, VAR, RESIDUAL };
enum { SYNC_RESIDUAL = 6 }; /* of sync_norm; others as above */
enum { DATA_WEIGHT = 2, DATA_SUMS, DATA_GAMMA, DATA_MEAN, DATA_VAR, DATA_BETA };
/* In scratch memory: the coefficients center, slope, offset, tilt, and those of the gate; a mean
 * and a variance. Whole vectors of them are read, beyond the last one too. */
enum { VECTORS = 8 };

static double seconds(const kolo_kernel_spec *spec) {
    double bytes = 0;
    for (int i = 0; i < spec->n_in; i++) bytes += (double)kolo_tensor_bytes(&spec->in[i]);
    for (int i = 0; i < spec->n_out; i++) bytes += (double)kolo_tensor_bytes(&spec->out[i]);
    return kolo_kernel_seconds(0, bytes, 2);
}

/* True when every tensor of x's rank has x's layout and dtype, and vectors are f32. */
static double fit(kolo_kernel_spec *spec) {
    kolo_simd_image image;
    const kolo_tensor *x = &spec->in[0];
    if (!kolo_simd_supports(spec) || !kolo_simd_image_of(x, &image)) return -1;
    for (int i = 0; i < spec->n_in + spec->n_out; i++) {
        const kolo_tensor *t = i < spec->n_in ? &spec->in[i] : &spec->out[i - spec->n_in];
        bool vector = t->shape.rank <= 1;
        if (vector ? !kolo_layout_is_plain(&t->layout)
                   : !kolo_layout_equal(&t->layout, &x->layout)) {
            return -1;
        }
    }
    return seconds(spec);
}

static kolo_status prepare(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    norm_state *s = kolo_zalloc(sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    s->loops = KOLO_ISA_PICK(kolo_simd_norm);
    KOLO_ASSERT(kolo_simd_image_of(&spec->in[0], &s->image));
    s->lanes = s->image.planes * s->image.inner;
    bool sums = spec->op != &kolo_op_batch_norm_infer && spec->op != &kolo_op_sync_norm &&
                spec->op != &kolo_op_sync_norm_bwd_data;
    const int64_t vectors = VECTORS + (sums ? 3 * s->image.n : 0);
    *scratch_bytes = sizeof(float) * (size_t)(s->lanes * vectors + KOLO_SIMD_LINE);
    *state = s;
    return KOLO_OK;
}

static float ceiling_of(int64_t relu) { return relu > 1 ? (float)relu : NAN; }

/* A job with its buffers in scratch memory; coefficients of padding channels are zero. */
static kolo_simd_norm_job job_of(const kolo_call *call) {
    const norm_state *s = call->state;
    float *scratch = call->scratch;
    memset(scratch, 0, sizeof(float) * (size_t)(s->lanes * VECTORS));
    return (kolo_simd_norm_job){
        .image = s->image,
        .bf16 = kolo_simd_is_bf16(call->spec),
        .eps = call->spec->attr[KOLO_NORM_EPS].f,
        .ceiling = ceiling_of(call->spec->attr[KOLO_NORM_RELU].i),
        .out = call->out[0],
        .center = scratch,
        .slope = scratch + s->lanes,
        .offset = scratch + 2 * s->lanes,
        .tilt = scratch + 3 * s->lanes,
        .gate_slope = scratch + 4 * s->lanes,
        .sums = scratch + VECTORS * s->lanes,
    };
}

static bool writes_past_the_cache(const kolo_call *call) {
    const norm_state *s = call->state;
    const int64_t inner = s->image.inner;
    const bool whole =
        64 % inner == 0 || inner % KOLO_SIMD_LINE == 0; /* lines, by lanes of a pixel */
    return whole && kolo_simd_writes_past(call, kolo_simd_plane_size(&s->image));
}

/* One pass over a slab. */
typedef struct pass {
    kolo_kernel_loop loop;
    bool channels; /* its number of items */
} pass;

/* Bytes per thread of the tensors that a slab reads twice; and of those of a slab that is fetched
 * while the one before it is written: the outer cache has both. */
enum { SLAB_BYTES = 256 << 10, AHEAD_BYTES = 2 << 20 };

/* Runs all passes, slab after slab; `tensors` tensors are read twice. A slab has the same number
 * of planes of each image for every thread, at least one, or all planes where none is read twice.
 */
static void run_passes(const kolo_call *call, kolo_simd_norm_job *job, int tensors,
                       const pass *passes, int n) {
    const kolo_simd_image *v = &job->image;
    int threads = call->spec->threads;
    int64_t bytes = tensors * v->n * kolo_simd_plane_size(v) * (job->bf16 ? 2 : 4);
    int64_t slab = bytes > 0 ? threads * kolo_max_i64(1, SLAB_BYTES / bytes) : v->planes;
    job->ahead = bytes * slab <= threads * (int64_t)AHEAD_BYTES;
    for (job->first = 0; job->first < v->planes; job->first += job->planes) {
        job->planes = kolo_min_i64(slab, v->planes - job->first);
        int64_t channels = kolo_min_i64(job->planes * v->inner, v->c - job->first * v->inner);
        for (int k = 0; k < n; k++) {
            int64_t items = passes[k].channels ? channels : v->n * job->planes;
            kolo_kernel_parallel(threads, items, passes[k].loop, job);
        }
    }
}

static void run_forward(const kolo_call *call) {
    const norm_state *s = call->state;
    bool train = call->spec->op == &kolo_op_batch_norm;
    int residual = call->spec->op == &kolo_op_sync_norm ? SYNC_RESIDUAL : RESIDUAL;
    kolo_simd_norm_job job = job_of(call);
    job.relu = call->spec->attr[KOLO_NORM_RELU].i;
    job.x = call->in[X];
    job.gamma = call->in[GAMMA];
    job.beta = call->in[BETA];
    job.mean = call->in[MEAN];
    job.var = call->in[VAR];
    job.residual = call->spec->n_in > residual ? call->in[residual] : NULL;
    job.past = writes_past_the_cache(call);
    if (train) {
        job.mean_out = call->out[1];
        job.var_out = call->out[2];
    }
    const pass passes[] = {{s->loops->moments, false},
                           {train ? s->loops->moments_end : s->loops->infer_begin, true},
                           {s->loops->apply, false}};
    run_passes(call, &job, train, train ? passes : passes + 1, train ? 3 : 2);
}

/* beta, zero-padded as all coefficients are. */
static const float *padded(const kolo_call *call, const float *beta) {
    const norm_state *s = call->state;
    float *copy = (float *)call->scratch + 5 * s->lanes;
    return memcpy(copy, beta, sizeof(float) * (size_t)s->image.c);
}

/* The sums of batch_norm_bwd, or of sync_norm_bwd_sums, without dx. */
static void run_bwd(const kolo_call *call) {
    const norm_state *s = call->state;
    bool data = call->spec->op == &kolo_op_batch_norm_bwd;
    kolo_simd_norm_job job = job_of(call);
    job.dy = call->in[BWD_DY];
    job.x = call->in[BWD_X];
    job.gamma = call->in[BWD_GAMMA];
    job.mean = call->in[BWD_MEAN];
    job.var = call->in[BWD_VAR];
    if (call->spec->n_in > BWD_BETA) job.beta = padded(call, call->in[BWD_BETA]);
    job.past = data && writes_past_the_cache(call);
    job.dgamma = call->out[data ? 1 : 0];
    job.dbeta = call->out[data ? 2 : 1];
    const pass passes[] = {{s->loops->products_begin, true},
                           {s->loops->products, false},
                           {s->loops->products_end, true},
                           {s->loops->apply_bwd, false}};
    run_passes(call, &job, data ? 2 : 0, passes, data ? 4 : 3);
}

/* ---- synchronized ---- */

/* The mean and variance of this rank, as summands of those about the running mean. */
static void run_sync_sums(const kolo_call *call) {
    const norm_state *s = call->state;
    const float *shift = call->in[1];
    const int64_t channels = s->image.c;
    float *scratch = call->scratch, *sums = call->out[0];
    kolo_simd_norm_job job = job_of(call);
    job.x = call->in[0];
    job.gamma = scratch + 4 * s->lanes; /* zeros: of coefficients that are not used */
    job.beta = scratch + 5 * s->lanes;
    job.mean_out = scratch + 6 * s->lanes;
    job.var_out = scratch + 7 * s->lanes;
    const pass passes[] = {{s->loops->moments, false}, {s->loops->moments_end, true}};
    run_passes(call, &job, 0, passes, KOLO_COUNT(passes));
    const double elements = (double)(s->image.n * s->image.h * s->image.w);
    const double share = elements * (double)*(const float *)call->in[2] /
                         (double)call->spec->attr[KOLO_SYNC_SUMS_PLANE].i;
    for (int64_t c = 0; c < channels; c++) {
        double away = (double)job.mean_out[c] - (double)shift[c];
        sums[c] = (float)(share * away);
        sums[channels + c] = (float)(share * ((double)job.var_out[c] + away * away));
    }
}

static void run_sync_bwd_sums(const kolo_call *call) {
    const norm_state *s = call->state;
    const size_t bytes = sizeof(float) * (size_t)s->image.c;
    float *sums = call->out[2];
    run_bwd(call);
    memcpy(sums, call->out[1], bytes);
    memcpy(sums + s->image.c, call->out[0], bytes);
}

static void run_sync_bwd_data(const kolo_call *call) {
    const norm_state *s = call->state;
    const float *sums = call->in[DATA_SUMS];
    const int64_t channels = s->image.c;
    kolo_simd_norm_job job = job_of(call);
    job.dy = call->in[BWD_DY];
    job.x = call->in[BWD_X];
    job.gamma = call->in[DATA_GAMMA];
    job.mean = call->in[DATA_MEAN];
    job.var = call->in[DATA_VAR];
    if (call->spec->n_in > DATA_BETA) job.beta = padded(call, call->in[DATA_BETA]);
    job.past = writes_past_the_cache(call);
    const double share = (double)*(const float *)call->in[DATA_WEIGHT] /
                         (double)call->spec->attr[KOLO_SYNC_NORM_PIXELS].i;
    for (int64_t c = 0; c < channels; c++) {
        double rstd = 1 / sqrt((double)job.var[c] + job.eps);
        job.slope[c] = (float)((double)job.gamma[c] * rstd);
        job.offset[c] = (float)(share * (double)sums[c]);
        job.tilt[c] = (float)(share * rstd * (double)sums[channels + c]);
    }
    const pass passes[] = {{s->loops->products_begin, true}, {s->loops->apply_bwd, false}};
    run_passes(call, &job, 1, passes, KOLO_COUNT(passes));
}

static double fit_statistics(kolo_kernel_spec *spec) {
    if (!kolo_spec_floats_are(spec, KOLO_DTYPE_F32) || !kolo_spec_is_plain(spec)) return -1;
    return seconds(spec);
}

static void run_statistics(const kolo_call *call) {
    const int64_t channels = call->spec->in[1].shape.dim[0];
    const float *sums = call->in[0], *shift = call->in[1];
    float *mean = call->out[0], *var = call->out[1], *unbiased = call->out[2];
    const double plane = (double)call->spec->attr[KOLO_SYNC_NORM_PLANE].i;
    const double count = plane / (double)*(const float *)call->in[3];
    for (int64_t c = 0; c < channels; c++) {
        double away = (double)sums[c];
        double v = fmax((double)sums[channels + c] - away * away, 0);
        mean[c] = (float)((double)shift[c] + away);
        var[c] = (float)v;
        unbiased[c] = (float)(count > 1 ? v * count / (count - 1) : v);
    }
}

#define NORM(text, op_name, run_)             \
    const kolo_kernel kolo_simd_##op_name = { \
        .name = text,                         \
        .op = &kolo_op_##op_name,             \
        .fit = fit,                           \
        .prepare = prepare,                   \
        .run = run_,                          \
        .release = kolo_free,                 \
    }
NORM("simd_batch_norm", batch_norm, run_forward);
NORM("simd_batch_norm_infer", batch_norm_infer, run_forward);
NORM("simd_batch_norm_bwd", batch_norm_bwd, run_bwd);
NORM("simd_sync_norm_sums", sync_norm_sums, run_sync_sums);
NORM("simd_sync_norm", sync_norm, run_forward);
NORM("simd_sync_norm_bwd_sums", sync_norm_bwd_sums, run_sync_bwd_sums);
NORM("simd_sync_norm_bwd_data", sync_norm_bwd_data, run_sync_bwd_data);
const kolo_kernel kolo_simd_sync_norm_statistics = {.name = "simd_sync_norm_statistics",
                                                    .op = &kolo_op_sync_norm_statistics,
                                                    .fit = fit_statistics,
                                                    .run = run_statistics};

/* ---- batch_norm_update, scale ---- */

/* Element-wise in memory order, which all non-scalar tensors share. */
static double fit_vectors(kolo_kernel_spec *spec) {
    if (!kolo_spec_floats_are(spec, KOLO_DTYPE_F32)) return -1;
    for (int i = 0; i < spec->n_in; i++) {
        bool scalar = spec->in[i].shape.rank == 0;
        if (!scalar && !kolo_layout_equal(&spec->in[i].layout, &spec->out[0].layout)) return -1;
    }
    for (int i = 1; i < spec->n_out; i++) {
        if (!kolo_layout_equal(&spec->out[i].layout, &spec->out[0].layout)) return -1;
    }
    return seconds(spec);
}

static kolo_status prepare_vectors(const kolo_kernel_spec *spec, void **state,
                                   size_t *scratch_bytes) {
    norm_state *s = kolo_zalloc(sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    s->loops = KOLO_ISA_PICK(kolo_simd_norm);
    s->lanes = kolo_tensor_elements(&spec->out[0]);
    *scratch_bytes = 0;
    *state = s;
    return KOLO_OK;
}

static void run_update(const kolo_call *call) {
    const norm_state *s = call->state;
    const kolo_attr *attr = call->spec->attr;
    for (int k = 0; k < 2; k++) {
        kolo_simd_blend_job job = {.a = call->in[k],
                                   .b = call->in[2 + k],
                                   .keep = (float)attr[KOLO_NORM_UPDATE_KEEP].f,
                                   .factor = (float)attr[KOLO_NORM_UPDATE_FACTOR].f,
                                   .out = call->out[k]};
        kolo_kernel_parallel(call->spec->threads, s->lanes, s->loops->blend, &job);
    }
}

static void run_scale(const kolo_call *call) {
    const norm_state *s = call->state;
    double factor = call->spec->attr[KOLO_SCALE_FACTOR].f;
    if (call->spec->n_in == 2) factor *= *(const float *)call->in[1];
    kolo_simd_blend_job job = {.a = call->in[0], .factor = (float)factor, .out = call->out[0]};
    kolo_kernel_parallel(call->spec->threads, s->lanes, s->loops->blend, &job);
}

#define VECTORS_KERNEL(text, op_name, run_)   \
    const kolo_kernel kolo_simd_##op_name = { \
        .name = text,                         \
        .op = &kolo_op_##op_name,             \
        .fit = fit_vectors,                   \
        .prepare = prepare_vectors,           \
        .run = run_,                          \
        .release = kolo_free,                 \
    }
VECTORS_KERNEL("simd_batch_norm_update", batch_norm_update, run_update);
VECTORS_KERNEL("simd_scale", scale, run_scale);

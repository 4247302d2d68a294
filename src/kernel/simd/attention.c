/* Attention and its gradient (loops: attention.isa.c). Parallel over heads of samples. Each
 * thread has scratch memory for one head: packed keys and values, and blocks of scores. */
#include "kernel/simd/attention.h"

#include "base/rng.h"

enum { ATTENTION_QKV };
enum { BWD_DO, BWD_QKV, BWD_O, BWD_LSE };

typedef struct attention_state {
    kolo_kernel_loop loop;
    int64_t part_stride;
} attention_state;

static double fit(kolo_kernel_spec *spec) {
    if (!kolo_spec_floats_are(spec, KOLO_DTYPE_F32) || !kolo_spec_is_plain(spec)) return -1;
    kolo_tensor out[KOLO_MAX_IO];
    for (int i = 0; i < spec->n_out; i++) out[i] = spec->out[i];
    kolo_cost cost = spec->op->cost(
        &(kolo_shape_query){spec->attr, spec->n_in, spec->in, spec->n_out, out, spec->op});
    return kolo_kernel_seconds(cost.flops, cost.bytes, 0.5);
}

/* Floats of scratch memory per part, in whole cache lines: see workspace_of. */
static int64_t part_floats(const kolo_kernel_spec *spec, int64_t tile) {
    bool backwards = spec->op == &kolo_op_attention_bwd;
    const int64_t *dim = spec->in[backwards ? BWD_QKV : ATTENTION_QKV].shape.dim;
    int64_t width = dim[2] / 3 / spec->attr[KOLO_ATTENTION_HEADS].i;
    int64_t padded = (width + tile - 1) / tile * tile, length = (dim[1] + tile - 1) / tile * tile;
    int64_t keys = length * padded, scores = KOLO_SIMD_QUERIES * KOLO_SIMD_KEYS;
    int64_t block = KOLO_SIMD_QUERIES * padded;
    return backwards ? 5 * keys + 2 * scores + 3 * block : 2 * keys + scores + block;
}

static kolo_status prepare(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    const kolo_simd_attention_table *table = KOLO_ISA_PICK(kolo_simd_attention);
    attention_state *s = kolo_zalloc(sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    s->loop = spec->op == &kolo_op_attention ? table->forward : table->backward;
    s->part_stride = (part_floats(spec, table->tile) + 15) / 16 * 16;
    *scratch_bytes = sizeof(float) * (size_t)(s->part_stride * spec->threads);
    *state = s;
    return KOLO_OK;
}

/* The part of a job that both directions share. `qkv` is the index of that input, `more` the
 * index of the first optional input. */
static kolo_simd_attention_job job_of(const kolo_call *call, int qkv, int more) {
    const kolo_kernel_spec *spec = call->spec;
    const attention_state *s = call->state;
    const int64_t *dim = spec->in[qkv].shape.dim;
    int draws = kolo_attention_draws(spec->attr), mask = more + draws;
    const int64_t *key = call->in[more], *first = call->in[more + 1];
    kolo_rng rng = {0};
    if (draws) {
        rng = kolo_rng_make((uint64_t)*key, KOLO_RNG_ATTENTION,
                            (uint64_t)spec->attr[KOLO_ATTENTION_LAYER].i);
    }
    return (kolo_simd_attention_job){
        .limit = draws ? kolo_attention_limit(spec->attr) : 0,
        .seed = rng.seed,
        .stream = rng.stream,
        .first = draws ? *first + spec->attr[KOLO_ATTENTION_SAMPLE].i : 0,
        .heads = spec->attr[KOLO_ATTENTION_HEADS].i,
        .first_head = spec->attr[KOLO_ATTENTION_FIRST_HEAD].i,
        .all_heads = kolo_attention_all_heads(spec->attr),
        .length = dim[1],
        .channels = dim[2] / 3,
        .causal = spec->attr[KOLO_ATTENTION_CAUSAL].i != 0,
        .qkv = call->in[qkv],
        .mask = spec->n_in > mask ? call->in[mask] : NULL,
        .out = call->out[0],
        .scratch = call->scratch,
        .part_stride = s->part_stride,
    };
}

static void run_forward(const kolo_call *call) {
    const attention_state *s = call->state;
    kolo_simd_attention_job job = job_of(call, ATTENTION_QKV, KOLO_ATTENTION_INPUTS);
    job.lse_out = call->out[1];
    int64_t items = call->spec->in[ATTENTION_QKV].shape.dim[0] * job.heads;
    kolo_kernel_parallel(call->spec->threads, items, s->loop, &job);
}

static void run_backward(const kolo_call *call) {
    const attention_state *s = call->state;
    kolo_simd_attention_job job = job_of(call, BWD_QKV, KOLO_ATTENTION_BWD_INPUTS);
    job.d_o = call->in[BWD_DO];
    job.o = call->in[BWD_O];
    job.lse = call->in[BWD_LSE];
    int64_t items = call->spec->in[BWD_QKV].shape.dim[0] * job.heads;
    kolo_kernel_parallel(call->spec->threads, items, s->loop, &job);
}

const kolo_kernel kolo_simd_attention = {
    .name = "simd_attention",
    .op = &kolo_op_attention,
    .fit = fit,
    .prepare = prepare,
    .run = run_forward,
    .release = kolo_free,
};
const kolo_kernel kolo_simd_attention_bwd = {
    .name = "simd_attention_bwd",
    .op = &kolo_op_attention_bwd,
    .fit = fit,
    .prepare = prepare,
    .run = run_backward,
    .release = kolo_free,
};

/* Attention and its gradient, also for a block of the keys (loops: attention.isa.c). Parallel over
 * heads of samples. Each thread has scratch memory for one head: packed keys and values, and blocks
 * of scores. */
#include "kernel/simd/attention.h"

#include "base/rng.h"

#include <string.h>

/* Where the inputs of an op are. `kv` is `qkv` itself, or keys and values alone; o and lse follow
 * it. `more` is the first optional input. */
typedef struct places {
    const kolo_op *op;
    bool backwards;
    int qkv, kv, more;
} places;

static const places of_ops[] = {
    {&kolo_op_attention, false, 0, 0, KOLO_ATTENTION_INPUTS},
    {&kolo_op_attention_bwd, true, 1, 1, KOLO_ATTENTION_BWD_INPUTS},
    {&kolo_op_attention_block, false, 0, 1, KOLO_ATTENTION_BLOCK_INPUTS},
    {&kolo_op_attention_block_bwd, true, 1, 2, KOLO_ATTENTION_BLOCK_BWD_INPUTS},
};

static const places *places_of(const kolo_kernel_spec *spec) {
    const places *at = of_ops;
    while (at->op != spec->op) at++;
    return at;
}

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
    const places *at = places_of(spec);
    int64_t width = spec->in[at->qkv].shape.dim[2] / 3 / spec->attr[KOLO_ATTENTION_HEADS].i;
    int64_t padded = (width + tile - 1) / tile * tile;
    int64_t length = (spec->in[at->kv].shape.dim[1] + tile - 1) / tile * tile;
    int64_t keys = length * padded, scores = KOLO_SIMD_QUERIES * KOLO_SIMD_KEYS;
    int64_t block = KOLO_SIMD_QUERIES * padded;
    return at->backwards ? 5 * keys + 2 * scores + 3 * block : 2 * keys + scores + block;
}

static kolo_status prepare(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    const kolo_simd_attention_table *table = KOLO_ISA_PICK(kolo_simd_attention);
    attention_state *s = kolo_zalloc(sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    s->loop = places_of(spec)->backwards ? table->backward : table->forward;
    s->part_stride = (part_floats(spec, table->tile) + 15) / 16 * 16;
    *scratch_bytes = sizeof(float) * (size_t)(s->part_stride * spec->threads);
    *state = s;
    return KOLO_OK;
}

/* The part of a job that both directions share. */
static kolo_simd_attention_job job_of(const kolo_call *call, const places *at) {
    const kolo_kernel_spec *spec = call->spec;
    const attention_state *s = call->state;
    const kolo_attr *attr = spec->attr;
    const int64_t *dim = spec->in[at->qkv].shape.dim, *of_kv = spec->in[at->kv].shape.dim;
    const bool apart = at->kv != at->qkv;
    int draws = kolo_attention_draws(attr), mask = at->more + draws;
    const int64_t *key = call->in[at->more], *first = call->in[at->more + 1];
    kolo_rng rng = {0};
    if (draws) {
        rng = kolo_rng_make((uint64_t)*key, KOLO_RNG_ATTENTION,
                            (uint64_t)attr[KOLO_ATTENTION_LAYER].i);
    }
    return (kolo_simd_attention_job){
        .limit = draws ? kolo_attention_limit(attr) : 0,
        .seed = rng.seed,
        .stream = rng.stream,
        .first = draws ? *first + attr[KOLO_ATTENTION_SAMPLE].i : 0,
        .heads = attr[KOLO_ATTENTION_HEADS].i,
        .first_head = attr[KOLO_ATTENTION_FIRST_HEAD].i,
        .all_heads = kolo_attention_all_heads(attr),
        .channels = dim[2] / 3,
        .queries = dim[1],
        .keys = of_kv[1],
        .q_rows = dim[1],
        .kv_rows = of_kv[1],
        .causal = !apart && attr[KOLO_ATTENTION_CAUSAL].i != 0,
        .continues = apart,
        .q = call->in[at->qkv],
        .k = (const float *)call->in[at->kv] + (apart ? 0 : dim[2] / 3),
        .q_stride = dim[2],
        .kv_stride = of_kv[2],
        .position = attr[KOLO_ATTENTION_POSITION].i,
        .key_position = attr[apart ? KOLO_ATTENTION_KEY : KOLO_ATTENTION_POSITION].i,
        .length = kolo_attention_length(attr, dim[1]),
        .mask = spec->n_in > mask ? call->in[mask] : NULL,
        .scratch = call->scratch,
        .part_stride = s->part_stride,
    };
}

/* Queries and keys of a zigzag that are computed as one: all that see the same, or with dropout,
 * the numbers of which follow the positions, one range of each. */
typedef struct piece {
    int64_t query, queries, key, keys;
    bool causal;
} piece;

/* The pieces of a call, by queries and then by keys; their number. */
static int pieces_of(const kolo_call *call, const kolo_simd_attention_job *job, piece pieces[4]) {
    const kolo_attr *attr = call->spec->attr;
    const kolo_seen seen =
        job->continues ? (kolo_seen)attr[KOLO_ATTENTION_SEEN].i : KOLO_SEEN_BY_ALL;
    const int64_t half = job->queries / 2, of_keys = job->keys / 2;
    const piece all = {.query = seen == KOLO_SEEN_BY_SECOND ? half : 0,
                       .queries = seen == KOLO_SEEN_BY_SECOND ? job->queries - half : job->queries,
                       .keys = seen == KOLO_SEEN_FIRST_BY_ALL ? of_keys : job->keys,
                       .causal = job->causal};
    int n = 0;
    if (seen == KOLO_SEEN_BY_NONE) return 0;
    if (!(attr[KOLO_ATTENTION_RING].i & KOLO_RING_ZIGZAG) || job->limit == 0) {
        pieces[0] = all;
        return 1;
    }
    const int64_t queries[] = {0, half, job->queries}, keys[] = {0, of_keys, job->keys};
    for (int q = 0; q < 2; q++) {
        for (int k = 0; k < 2; k++) {
            const piece of = {.query = queries[q],
                              .queries = queries[q + 1] - queries[q],
                              .key = keys[k],
                              .keys = keys[k + 1] - keys[k],
                              .causal = all.causal && k == q};
            const bool seen_by_none = all.causal && k > q;
            if (of.query < all.query || of.key >= all.keys || seen_by_none) continue;
            if (of.queries > 0 && of.keys > 0) pieces[n++] = of;
        }
    }
    return n;
}

/* The job of a piece. */
static kolo_simd_attention_job job_of_piece(const kolo_call *call,
                                            const kolo_simd_attention_job *job, const piece *p) {
    const bool zigzag = call->spec->attr[KOLO_ATTENTION_RING].i & KOLO_RING_ZIGZAG;
    const int64_t length = zigzag ? job->length : 0, rows = p->query * job->channels;
    kolo_simd_attention_job part = *job;
    part.position = kolo_position_of(job->position, length, job->queries, p->query);
    part.key_position = kolo_position_of(job->key_position, length, job->keys, p->key);
    part.queries = p->queries;
    part.keys = p->keys;
    part.causal = p->causal;
    part.continues |= p->key > 0;
    part.q += p->query * job->q_stride;
    part.k += p->key * job->kv_stride;
    if (part.mask) part.mask += p->key;
    if (part.o_out) {
        part.o_out += rows;
        part.lse_out += p->query;
    } else {
        part.d_o += rows;
        part.o += rows;
        part.lse += p->query;
        part.dq += p->query * job->dq_stride;
        part.dk += p->key * job->kv_stride;
    }
    return part;
}

static void run_loops(const kolo_call *call, const places *at, const kolo_simd_attention_job *job) {
    const attention_state *s = call->state;
    const int64_t items = call->spec->in[at->qkv].shape.dim[0] * job->heads;
    piece pieces[4];
    const int n = pieces_of(call, job, pieces);
    for (int i = 0; i < n; i++) {
        const kolo_simd_attention_job part = job_of_piece(call, job, &pieces[i]);
        kolo_kernel_parallel(call->spec->threads, items, s->loop, &part);
    }
}

static void run_forward(const kolo_call *call) {
    const places *at = places_of(call->spec);
    kolo_simd_attention_job job = job_of(call, at);
    job.o_out = call->out[0];
    job.lse_out = call->out[1];
    for (int i = 0; i < 2 && job.continues; i++) {
        const void *before = call->in[at->kv + 1 + i];
        if (call->out[i] == before) continue;
        memcpy(call->out[i], before, kolo_tensor_bytes(&call->spec->out[i]));
    }
    run_loops(call, at, &job);
}

static void run_backward(const kolo_call *call) {
    const places *at = places_of(call->spec);
    const kolo_kernel_spec *spec = call->spec;
    kolo_simd_attention_job job = job_of(call, at);
    piece pieces[4];
    const int n = pieces_of(call, &job, pieces);
    const bool whole = n == 1 && pieces[0].queries == job.queries && pieces[0].keys == job.keys;
    for (int i = 0; i < spec->n_out && !whole; i++) {
        memset(call->out[i], 0, kolo_tensor_bytes(&spec->out[i]));
    }
    job.adds = !whole;
    job.d_o = call->in[0];
    job.o = call->in[at->kv + 1];
    job.lse = call->in[at->kv + 2];
    job.dq = call->out[0];
    job.dq_stride = spec->out[0].shape.dim[2];
    job.dk = job.continues ? call->out[1] : job.dq + job.channels;
    run_loops(call, at, &job);
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
const kolo_kernel kolo_simd_attention_block = {
    .name = "simd_attention_block",
    .op = &kolo_op_attention_block,
    .fit = fit,
    .prepare = prepare,
    .run = run_forward,
    .release = kolo_free,
};
const kolo_kernel kolo_simd_attention_block_bwd = {
    .name = "simd_attention_block_bwd",
    .op = &kolo_op_attention_block_bwd,
    .fit = fit,
    .prepare = prepare,
    .run = run_backward,
    .release = kolo_free,
};

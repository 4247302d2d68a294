/* Mixtures of experts on plain tensors (loops: expert.isa.c): tokens in f32 or bf16, probabilities
 * and gates in f32. */
#include "kernel/simd/expert.h"

#include <string.h>

static bool is_number(const kolo_tensor *t, bool or_bf16) {
    return t->dtype == KOLO_DTYPE_F32 || t->dtype == KOLO_DTYPE_I32 ||
           (or_bf16 && t->dtype == KOLO_DTYPE_BF16);
}

/* Tokens and places, [N,T,C] and [E,N,P,C], have one type; they are what mixed precision passes in
 * bf16, and the output of those that give such. */
static bool fits(const kolo_kernel_spec *spec) {
    if (!kolo_spec_is_plain(spec)) return false;
    for (int i = 0; i < spec->n_in; i++) {
        const bool is_data = spec->op->bf16 >> i & 1;
        if (!is_number(&spec->in[i], is_data)) return false;
        if (is_data && spec->in[i].dtype != spec->in[0].dtype) return false;
    }
    const bool narrow = spec->op != &kolo_op_expert_products && spec->op->bf16;
    return is_number(&spec->out[0], narrow) && (!narrow || spec->out[0].dtype == spec->in[0].dtype);
}

static double fit(kolo_kernel_spec *spec) {
    if (!fits(spec)) return -1;
    double bytes = (double)kolo_tensor_bytes(&spec->out[0]);
    for (int i = 0; i < spec->n_in; i++) bytes += (double)kolo_tensor_bytes(&spec->in[i]);
    return kolo_kernel_seconds(0, bytes, 1);
}

/* ---- routing ---- */

/* The number of tokens that chose each expert, for each thread. */
static kolo_status prepare_route(const kolo_kernel_spec *spec, void **state,
                                 size_t *scratch_bytes) {
    *state = NULL;
    *scratch_bytes = sizeof(int64_t) * (size_t)(spec->threads * spec->in[0].shape.dim[2]);
    return KOLO_OK;
}

static void release_route(void *state) { KOLO_ASSERT(!state); }

static void route_token(const kolo_call *call, int64_t row, int64_t *count) {
    const int64_t experts = call->spec->in[0].shape.dim[2];
    const float *p = (const float *)call->in[0] + row * experts;
    int32_t *places = (int32_t *)call->out[0] + row * experts;
    float *chosen = (float *)call->out[1] + row * experts;
    for (int64_t e = 0; e < experts; e++) {
        places[e] = -1;
        chosen[e] = 0;
    }
    for (int64_t k = 0; k < call->spec->attr[KOLO_EXPERT_TOP].i; k++) {
        int64_t best = -1;
        for (int64_t e = 0; e < experts; e++) {
            if (chosen[e] == 0 && (best < 0 || p[e] > p[best])) best = e;
        }
        chosen[best] = 1;
        if (count[best] < call->spec->attr[KOLO_EXPERT_CAPACITY].i) {
            places[best] = (int32_t)count[best];
        }
        count[best]++;
    }
}

static void route_samples(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_call *call = arg;
    const int64_t tokens = call->spec->in[0].shape.dim[1], experts = call->spec->in[0].shape.dim[2];
    int64_t *count = (int64_t *)call->scratch + part * experts;
    for (int64_t n = begin; n < end; n++) {
        memset(count, 0, sizeof *count * (size_t)experts);
        for (int64_t t = 0; t < tokens; t++) route_token(call, n * tokens + t, count);
    }
}

static void run_route(const kolo_call *call) {
    kolo_kernel_parallel(call->spec->threads, call->spec->in[0].shape.dim[0], route_samples, call);
}

const kolo_kernel kolo_simd_expert_route = {
    .name = "simd_expert_route",
    .op = &kolo_op_expert_route,
    .fit = fit,
    .prepare = prepare_route,
    .run = run_route,
    .release = release_route,
};

/* ---- to the experts and back ---- */

/* Inputs by their numbers; -1: y is the output, there are no gates. */
static kolo_simd_expert_job job_of(const kolo_call *call, int y, int places, int gates) {
    const kolo_kernel_spec *spec = call->spec;
    const kolo_shape *of_y = y < 0 ? &spec->out[0].shape : &spec->in[y].shape;
    const int64_t *dim = spec->in[places].shape.dim;
    return (kolo_simd_expert_job){
        .samples = dim[0],
        .tokens = dim[1],
        .width = of_y->dim[3],
        .experts = dim[2],
        .room = of_y->dim[2],
        .places = call->in[places],
        .gates = gates >= 0 && gates < spec->n_in ? call->in[gates] : NULL,
        .from = call->in[0],
        .to = call->out[0],
        .bf16 = kolo_simd_is_bf16(spec),
    };
}

static void run_dispatch(const kolo_call *call) {
    const kolo_simd_expert_job job = job_of(call, -1, 1, 2);
    kolo_kernel_parallel(call->spec->threads, job.experts * job.samples,
                         KOLO_ISA_PICK(kolo_simd_expert)->dispatch, &job);
}

static void run_combine(const kolo_call *call) {
    const kolo_simd_expert_job job = job_of(call, 0, 1, 2);
    kolo_kernel_parallel(call->spec->threads, job.samples * job.tokens,
                         KOLO_ISA_PICK(kolo_simd_expert)->combine, &job);
}

static void run_products(const kolo_call *call) {
    kolo_simd_expert_job job = job_of(call, 1, 2, -1);
    job.with = call->in[1];
    kolo_kernel_parallel(call->spec->threads, job.samples * job.tokens,
                         KOLO_ISA_PICK(kolo_simd_expert)->products, &job);
}

#define EXPERT(part)                              \
    const kolo_kernel kolo_simd_expert_##part = { \
        .name = "simd_expert_" #part,             \
        .op = &kolo_op_expert_##part,             \
        .fit = fit,                               \
        .run = run_##part,                        \
    }
EXPERT(dispatch);
EXPERT(combine);
EXPERT(products);

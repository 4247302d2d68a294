/* encode, decode, momentum_part: compressed sums over the ranks (pass/compress.c), which gives
 * codes their tensors. */
#include "kolo/codec.h"

#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/ref/ref.h"

#include <string.h>

static const char *const attrs[] = {"codec", "%ratio", NULL};
static const char *const part_attrs[] = {"%part", "%of_gradient", "%of_weight", NULL};

static kolo_codec codec_of(const kolo_attr *attr) {
    return (kolo_codec){.kind = (kolo_codec_kind)attr[KOLO_CODE_KIND].i,
                        .ratio = attr[KOLO_CODE_RATIO].f};
}

int64_t kolo_code_bytes(const kolo_codec *codec, int64_t count) {
    return ((int64_t)kolo_codec_bytes(codec, (size_t)count) + 7) / 8 * 8;
}

static kolo_status momentum_part_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "fff"));
    for (int i = 1; i < q->n_in; i++) KOLO_TRY(kolo_rule_same(q, 0, i));
    return kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape);
}

const kolo_op kolo_op_encode = {
    .name = "encode",
    .min_in = 2,
    .max_in = 2,
    .layout = {.in = "ee", .out = "pe"},
    .attrs = attrs,
    .comm = KOLO_OP_ENCODE,
};
const kolo_op kolo_op_decode = {
    .name = "decode",
    .index = "A->B",
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "p", .out = "x"},
    .attrs = attrs,
    .with_updates = true,
};
const kolo_op kolo_op_momentum_part = {
    .name = "momentum_part",
    .min_in = 2,
    .max_in = 3,
    .layout = {.in = "eee", .out = "e"},
    .attrs = part_attrs,
    .shape = momentum_part_shape,
    .comm = KOLO_OP_ENCODE,
};

/* ---- reference ---- */

/* encode, decode, momentum_part. Codecs work on floats: f64 is converted. Layouts may be any: codes
 * are of the memory, padding included, which is zero. */

static double fit(kolo_kernel_spec *spec) {
    kolo_dtype dtype = spec->op == &kolo_op_encode ? spec->in[0].dtype : spec->out[0].dtype;
    return dtype == KOLO_DTYPE_F32 || dtype == KOLO_DTYPE_F64 ? kolo_ref_seconds(spec) : -1;
}

static size_t count_of(const kolo_tensor *t) { return (size_t)kolo_tensor_elements(t); }

/* Room for values and residual in f32. */
static kolo_status prepare_encode(const kolo_kernel_spec *spec, void **state, size_t *bytes) {
    bool wide = spec->in[0].dtype == KOLO_DTYPE_F64;
    *bytes = wide ? 2 * sizeof(float) * count_of(&spec->in[0]) : 0;
    return KOLO_OK;
}

static void encode_floats(const kolo_call *call, const float *values, float *residual) {
    const kolo_codec codec = codec_of(call->spec->attr);
    size_t count = count_of(&call->spec->in[0]);
    kolo_status status = kolo_codec_encode(&codec, values, count, residual, call->out[0],
                                           kolo_codec_bytes(&codec, count));
    KOLO_ASSERT(status == KOLO_OK);
}

static void encode(const kolo_call *call) {
    size_t count = count_of(&call->spec->in[0]);
    if (call->spec->in[0].dtype == KOLO_DTYPE_F32) {
        memcpy(call->out[1], call->in[1], count * sizeof(float));
        encode_floats(call, call->in[0], call->out[1]);
        return;
    }
    const double *values = call->in[0], *old = call->in[1];
    float *narrow = call->scratch, *residual = narrow + count;
    double *error = call->out[1];
    for (size_t i = 0; i < count; i++) {
        narrow[i] = (float)values[i];
        residual[i] = (float)old[i];
    }
    encode_floats(call, narrow, residual);
    for (size_t i = 0; i < count; i++) error[i] = (double)residual[i];
}

static kolo_status prepare_decode(const kolo_kernel_spec *spec, void **state, size_t *bytes) {
    bool wide = spec->out[0].dtype == KOLO_DTYPE_F64;
    *bytes = wide ? sizeof(float) * count_of(&spec->out[0]) : 0;
    return KOLO_OK;
}

/* The sum of the codes of all ranks, in their order. */
static void decode(const kolo_call *call) {
    const kolo_codec codec = codec_of(call->spec->attr);
    const bool wide = call->spec->out[0].dtype == KOLO_DTYPE_F64;
    const size_t count = count_of(&call->spec->out[0]), bytes = kolo_codec_bytes(&codec, count);
    const size_t stride = (size_t)kolo_code_bytes(&codec, (int64_t)count);
    const char *code = call->in[0], *end = code + count_of(&call->spec->in[0]);
    memset(call->out[0], 0, kolo_tensor_bytes(&call->spec->out[0]));
    for (; code < end; code += stride) {
        kolo_status status = wide ? kolo_codec_decode(&codec, code, bytes, call->scratch, count)
                                  : kolo_codec_add(&codec, code, bytes, call->out[0], count, 1);
        KOLO_ASSERT(status == KOLO_OK);
        double *sum = call->out[0];
        for (size_t i = 0; wide && i < count; i++) sum[i] += ((const float *)call->scratch)[i];
    }
}

/* What a rank adds to the momentum of 1-bit Adam (Tang et al., 2021). */
static void momentum_part(const kolo_call *call) {
    const kolo_attr *attr = call->spec->attr;
    const double *g = call->in[0], *m = call->in[1];
    const double *w = call->spec->n_in == 3 ? call->in[2] : NULL;
    double *part = call->out[0];
    for (int64_t i = 0; i < kolo_shape_count(&call->spec->in[0].shape); i++) {
        part[i] = attr[KOLO_MOMENTUM_PART].f * m[i] + attr[KOLO_MOMENTUM_OF_GRADIENT].f * g[i];
        if (w) part[i] += attr[KOLO_MOMENTUM_OF_WEIGHT].f * w[i];
    }
}

static void run_momentum_part(const kolo_call *call) { kolo_ref_run(call, momentum_part); }

const kolo_kernel kolo_ops_codec[] = {
    {
        .name = "ref_encode",
        .op = &kolo_op_encode,
        .fit = fit,
        .prepare = prepare_encode,
        .run = encode,
        .release = kolo_ref_release,
    },
    {
        .name = "ref_decode",
        .op = &kolo_op_decode,
        .fit = fit,
        .prepare = prepare_decode,
        .run = decode,
        .release = kolo_ref_release,
    },
    KOLO_REF_KERNEL("ref_momentum_part", &kolo_op_momentum_part, run_momentum_part),
    {0},
};

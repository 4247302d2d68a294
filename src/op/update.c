/* Optimizer updates as ops: the next version of a parameter and its state from the gradient; the
 * sum of gradients over micro-batches; gradient clipping. */
#include "base/integer.h"
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/ref/ref.h"

#include <inttypes.h>
#include <math.h>

static const char *const square_attrs[] = {"first", "all", NULL};
static const char *const sum_attrs[] = {"place", "all", NULL};
static const char *const sgd_attrs[] = {"%momentum", "%weight_decay", "nesterov", NULL};
static const char *const delayed_sgd_attrs[] = {"%momentum", "%weight_decay", "delay", "%ahead",
                                                NULL};
static const char *const accumulate_attrs[] = {"%keep", NULL};

static const char *const adam_attrs[] = {"%beta1",    "%beta2", "%eps", "%weight_decay",
                                         "decoupled", "frozen", NULL};
static const char *const clip_attrs[] = {"%norm", NULL};

static kolo_status adam_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ffffff"));
    KOLO_TRY(kolo_rule_same(q, 0, 1));
    KOLO_TRY(kolo_rule_rank(q, 2, 0, "a scalar, the learning rate"));
    KOLO_TRY(kolo_rule_rank(q, 3, 0, "a scalar, the number of the update"));
    for (int i = KOLO_ADAM_BETA1; i <= KOLO_ADAM_BETA2; i++) {
        if (q->attr[i].f >= 0 && q->attr[i].f < 1) continue;
        return KOLO_RULE_FAIL(q, "beta%d is %g; it must be in [0, 1)", i + 1, q->attr[i].f);
    }
    if (q->attr[KOLO_ADAM_FROZEN].i < 0) {
        return KOLO_RULE_FAIL(q, "frozen is %" PRId64 "; it must be the number of an update, or 0",
                              q->attr[KOLO_ADAM_FROZEN].i);
    }
    KOLO_TRY(kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape));
    for (int i = 1; i < 3; i++) {
        KOLO_TRY(kolo_rule_same(q, 0, 3 + i));
        KOLO_TRY(kolo_rule_out(q, i, q->in[0].dtype, q->in[0].shape));
    }
    return KOLO_OK;
}

static kolo_status square_blocks_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "f"));
    int64_t own = kolo_square_blocks(kolo_shape_count(&q->in[0].shape));
    int64_t first = q->attr[KOLO_SQUARE_FIRST].i, all = q->attr[KOLO_SQUARE_ALL].i;
    int64_t blocks = all > 0 ? all : own;
    if (first < 0 || first + own > blocks) {
        return KOLO_RULE_FAIL(q, "blocks %" PRId64 " to %" PRId64 " of %" PRId64, first,
                              first + own, blocks);
    }
    return kolo_rule_out(q, 0, q->in[0].dtype, kolo_shape_1(blocks));
}

static kolo_status square_sum_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ff"));
    const int64_t place = q->attr[KOLO_SQUARE_PLACE].i, all = q->attr[KOLO_SQUARE_PLACES].i;
    KOLO_TRY(kolo_rule_rank(q, 0, 1, "blocks"));
    if (all == 0) {
        if (q->n_in == 2) KOLO_TRY(kolo_rule_rank(q, 1, 0, "a scalar"));
        return kolo_rule_out(q, 0, q->in[0].dtype, kolo_shape_0());
    }
    const kolo_shape sums = kolo_shape_1(all);
    if (place < 0 || place >= all || (q->n_in == 2 && !kolo_shape_equal(&q->in[1].shape, &sums))) {
        return KOLO_RULE_FAIL(q, "place %" PRId64 " of %" PRId64 " sums", place, all);
    }
    return kolo_rule_out(q, 0, q->in[0].dtype, sums);
}

static kolo_status clip_factor_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "f"));
    KOLO_TRY(kolo_rule_rank(q, 0, 0, "a scalar"));
    if (!(q->attr[KOLO_CLIP_NORM].f > 0)) return KOLO_RULE_FAIL(q, "the norm must be above 0");
    return kolo_rule_out(q, 0, q->in[0].dtype, kolo_shape_0());
}

static kolo_status sgd_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ffff"));
    KOLO_TRY(kolo_rule_same(q, 0, 1));
    KOLO_TRY(kolo_rule_rank(q, 2, 0, "a scalar, the learning rate"));
    double momentum = q->attr[KOLO_SGD_MOMENTUM].f;
    if (q->n_in == 3 && momentum != 0) {
        return KOLO_RULE_FAIL(q, "momentum %g without a velocity; give one", momentum);
    }
    if (q->attr[KOLO_SGD_NESTEROV].i && momentum == 0) {
        return KOLO_RULE_FAIL(q, "nesterov without momentum; give one above 0");
    }
    KOLO_TRY(kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape));
    if (q->n_in == 3) return KOLO_OK;
    KOLO_TRY(kolo_rule_same(q, 0, 3));
    return kolo_rule_out(q, 1, q->in[0].dtype, q->in[0].shape);
}

static kolo_status delayed_sgd_shape(kolo_shape_query *q) {
    const int64_t delay = q->attr[KOLO_DELAYED_SGD_DELAY].i;
    const double ahead = q->attr[KOLO_DELAYED_SGD_AHEAD].f;
    KOLO_TRY(kolo_rule_types(q, "ffffff"));
    KOLO_TRY(kolo_rule_same(q, 0, 1));
    KOLO_TRY(kolo_rule_rank(q, 2, 0, "a scalar, the learning rate"));
    KOLO_TRY(kolo_rule_rank(q, 3, 0, "a scalar, the number of the update"));
    if (delay < 1) return KOLO_RULE_FAIL(q, "a delay of %" PRId64 "; give one above 0", delay);
    if (!(ahead >= 0 && ahead * (double)delay <= 1)) {
        return KOLO_RULE_FAIL(q, "ahead is %g; it must be in [0, 1 / delay]", ahead);
    }
    KOLO_TRY(kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape));
    for (int i = 1; i < 3; i++) {
        KOLO_TRY(kolo_rule_same(q, 0, 3 + i));
        KOLO_TRY(kolo_rule_out(q, i, q->in[0].dtype, q->in[0].shape));
    }
    return KOLO_OK;
}

static kolo_status accumulate_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ff"));
    KOLO_TRY(kolo_rule_rank(q, 1, 0, "a scalar"));
    return kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape);
}

const kolo_op kolo_op_sgd = {
    .name = "sgd",
    .index = "*,*,,*->*,*",
    .min_in = 3,
    .max_in = 4,
    .layout = {.in = "eepe", .out = "ee"},
    .attrs = sgd_attrs,
    .shape = sgd_shape,
    .with_updates = true,
};
const kolo_op kolo_op_delayed_sgd = {
    .name = "delayed_sgd",
    .index = "*,*,,,*,*->*,*,*",
    .min_in = 6,
    .max_in = 6,
    .layout = {.in = "eeppee", .out = "eee"},
    .attrs = delayed_sgd_attrs,
    .shape = delayed_sgd_shape,
    .with_updates = true,
};
const kolo_op kolo_op_adam = {
    .name = "adam",
    .index = "*,*,,,*,*->*,*,*",
    .min_in = 6,
    .max_in = 6,
    .layout = {.in = "eeppee", .out = "eee"},
    .attrs = adam_attrs,
    .shape = adam_shape,
    .with_updates = true,
};
/* Ranges of x give summands of the blocks. */
static const char *square_blocks_index(const kolo_attr *attr, int n_in, const kolo_shape *in,
                                       char *buffer) {
    return attr[KOLO_SQUARE_ALL].i > 0 ? "*->B" : "#->B";
}

const kolo_op kolo_op_square_blocks = {
    .name = "square_blocks",
    .index_of = square_blocks_index,
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "x", .out = "p"},
    .attrs = square_attrs,
    .shape = square_blocks_shape,
    .with_updates = true,
};
/* One sum, or one of several. */
static const char *square_sum_index(const kolo_attr *attr, int n_in, const kolo_shape *in,
                                    char *buffer) {
    return attr[KOLO_SQUARE_PLACES].i > 0 ? "B+#->P" : "b+->";
}

const kolo_op kolo_op_square_sum = {
    .name = "square_sum",
    .index_of = square_sum_index,
    .linear = 0x3u,
    .min_in = 1,
    .max_in = 2,
    .layout = {.in = "pp", .out = "p"},
    .attrs = sum_attrs,
    .shape = square_sum_shape,
    .with_updates = true,
};
const kolo_op kolo_op_clip_factor = {
    .name = "clip_factor",
    .index = "->",
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "p", .out = "p"},
    .attrs = clip_attrs,
    .shape = clip_factor_shape,
    .with_updates = true,
};
const kolo_op kolo_op_accumulate = {
    .name = "accumulate",
    .index = "*,->*",
    .linear = 0x1u,
    .min_in = 2,
    .max_in = 2,
    .layout = {.in = "ep", .out = "e"},
    .attrs = accumulate_attrs,
    .shape = accumulate_shape,
};

/* ---- reference ---- */

static void sgd(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const double *w = call->in[0], *g = call->in[1], lr = *(const double *)call->in[2];
    const double *v = spec->n_in == 4 ? call->in[3] : NULL;
    double *w_next = call->out[0], *v_next = v ? call->out[1] : NULL;
    double momentum = spec->attr[KOLO_SGD_MOMENTUM].f, decay = spec->attr[KOLO_SGD_WEIGHT_DECAY].f;
    bool nesterov = spec->attr[KOLO_SGD_NESTEROV].i;
    for (int64_t i = 0; i < kolo_shape_count(&spec->in[0].shape); i++) {
        double d = g[i] + decay * w[i], step = d;
        if (v) {
            double velocity = momentum * v[i] + d;
            v_next[i] = velocity;
            step = nesterov ? d + momentum * velocity : velocity;
        }
        w_next[i] = w[i] - lr * step;
    }
}

static void run_sgd(const kolo_call *call) { kolo_ref_run(call, sgd); }

static void delayed_sgd(const kolo_call *call) {
    const kolo_attr *attr = call->spec->attr;
    const double *w = call->in[0], *g = call->in[1], lr = *(const double *)call->in[2];
    const double *v = call->in[4], *s = call->in[5];
    double *w_next = call->out[0], *v_next = call->out[1], *s_next = call->out[2];
    const double momentum = attr[KOLO_DELAYED_SGD_MOMENTUM].f;
    const double decay = attr[KOLO_DELAYED_SGD_WEIGHT_DECAY].f;
    const double n = (double)attr[KOLO_DELAYED_SGD_DELAY].i, c = attr[KOLO_DELAYED_SGD_AHEAD].f;
    const bool due = fmod(*(const double *)call->in[3], n) == 0;
    const double ahead = momentum * (due ? 1 - (n - 1) * c : c);
    for (int64_t i = 0; i < kolo_shape_count(&call->spec->in[0].shape); i++) {
        const double d = g[i] + decay * w[i], sum = s[i] + d;
        v_next[i] = due ? momentum * v[i] + sum / n : v[i];
        s_next[i] = due ? 0 : sum;
        w_next[i] = w[i] - lr * (d / n + ahead * v_next[i]);
    }
}

static void run_delayed_sgd(const kolo_call *call) { kolo_ref_run(call, delayed_sgd); }

/* ---- sums over micro-batches ---- */

/* Runs in place: kolo_ref_run would not copy the output in. */
static void run_accumulate(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    int64_t count = kolo_shape_count(&spec->out[0].shape);
    double keep = spec->attr[KOLO_ACCUMULATE_KEEP].f;
    if (spec->out[0].dtype == KOLO_DTYPE_F64) {
        const double *x = call->in[0], *fresh = call->in[1];
        double *sum = call->out[0];
        for (int64_t i = 0; i < count; i++) sum[i] = *fresh != 0 ? x[i] : keep * sum[i] + x[i];
    } else {
        const float *x = call->in[0], *fresh = call->in[1];
        float *sum = call->out[0];
        for (int64_t i = 0; i < count; i++) {
            sum[i] = *fresh != 0 ? x[i] : (float)(keep * (double)sum[i] + (double)x[i]);
        }
    }
}

/* Kingma, Ba, "Adam", ICLR 2015; decoupled: Loshchilov, Hutter, "Decoupled weight decay
 * regularization", ICLR 2019. In the form that PyTorch gives them. */
static void adam(const kolo_call *call) {
    const kolo_attr *attr = call->spec->attr;
    const double *w = call->in[0], *g = call->in[1], *m = call->in[4], *v = call->in[5];
    double lr = *(const double *)call->in[2], update = *(const double *)call->in[3];
    double beta1 = attr[KOLO_ADAM_BETA1].f, beta2 = attr[KOLO_ADAM_BETA2].f;
    double decay = attr[KOLO_ADAM_WEIGHT_DECAY].f;
    bool decoupled = attr[KOLO_ADAM_DECOUPLED].i, frozen = attr[KOLO_ADAM_FROZEN].i > 0;
    double *w_next = call->out[0], *m_next = call->out[1], *v_next = call->out[2];
    double seen = frozen ? (double)attr[KOLO_ADAM_FROZEN].i : update;
    double step = lr / (1 - pow(beta1, update)), widen = sqrt(1 - pow(beta2, seen));
    for (int64_t i = 0; i < kolo_shape_count(&call->spec->in[0].shape); i++) {
        double d = decoupled ? g[i] : g[i] + decay * w[i];
        double kept = decoupled ? w[i] * (1 - lr * decay) : w[i];
        m_next[i] = frozen ? (v[i] > 0 ? g[i] : 0) : beta1 * m[i] + (1 - beta1) * d;
        v_next[i] = frozen ? v[i] : beta2 * v[i] + (1 - beta2) * d * d;
        w_next[i] = kept - step * m_next[i] / (sqrt(v_next[i]) / widen + attr[KOLO_ADAM_EPS].f);
    }
}

static void square_blocks(const kolo_call *call) {
    const double *x = call->in[0];
    const kolo_attr *attr = call->spec->attr;
    double *sums = call->out[0];
    int64_t count = kolo_shape_count(&call->spec->in[0].shape);
    for (int64_t b = 0; b < attr[KOLO_SQUARE_ALL].i; b++) sums[b] = 0;
    sums += attr[KOLO_SQUARE_FIRST].i;
    for (int64_t b = 0, i = 0; i < count; b++) {
        int64_t end = kolo_min_i64(i + KOLO_SQUARE_BLOCK, count);
        for (sums[b] = 0; i < end; i++) sums[b] += x[i] * x[i];
    }
}

static void square_sum(const kolo_call *call) {
    const double *blocks = call->in[0], *before = call->spec->n_in == 2 ? call->in[1] : NULL;
    const int64_t all = call->spec->attr[KOLO_SQUARE_PLACES].i;
    double *sums = call->out[0], sum = before && all == 0 ? *before : 0;
    for (int64_t i = 0; i < call->spec->in[0].shape.dim[0]; i++) sum += blocks[i];
    for (int64_t i = 0; i < all; i++) sums[i] = before ? before[i] : 0;
    sums[all > 0 ? call->spec->attr[KOLO_SQUARE_PLACE].i : 0] = sum;
}

static void clip_factor(const kolo_call *call) {
    double norm = sqrt(*(const double *)call->in[0]);
    *(double *)call->out[0] = fmin(1, call->spec->attr[KOLO_CLIP_NORM].f / (norm + 1e-6));
}

static void run_adam(const kolo_call *call) { kolo_ref_run(call, adam); }
static void run_square_blocks(const kolo_call *call) { kolo_ref_run(call, square_blocks); }
static void run_square_sum(const kolo_call *call) { kolo_ref_run(call, square_sum); }
static void run_clip_factor(const kolo_call *call) { kolo_ref_run(call, clip_factor); }

const kolo_kernel kolo_ops_update[] = {
    KOLO_REF_KERNEL("ref_sgd", &kolo_op_sgd, run_sgd),
    KOLO_REF_KERNEL("ref_delayed_sgd", &kolo_op_delayed_sgd, run_delayed_sgd),
    {
        .name = "ref_accumulate",
        .op = &kolo_op_accumulate,
        .fit = kolo_ref_fit,
        .run = run_accumulate,
    },
    KOLO_REF_KERNEL("ref_adam", &kolo_op_adam, run_adam),
    KOLO_REF_KERNEL("ref_square_blocks", &kolo_op_square_blocks, run_square_blocks),
    KOLO_REF_KERNEL("ref_square_sum", &kolo_op_square_sum, run_square_sum),
    KOLO_REF_KERNEL("ref_clip_factor", &kolo_op_clip_factor, run_clip_factor),
    {0},
};

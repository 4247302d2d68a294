/* Synchronized batch normalization: by the mean and variance of the samples of all ranks. The pass
 * sync_batch_norm replaces batch_norm by these ops, with a sum over the ranks between the first
 * two:
 *
 *     sums -> [sum over ranks] -> statistics -> apply
 *
 * and its gradient is bwd_sums -> [sum over ranks] -> bwd_data (as in PyTorch's SyncBatchNorm). */
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "graph/propagate.h"
#include "kernel/ref/planes.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *const plane_attrs[] = {"%momentum", "plane", NULL};
static const char *const attrs[] = {"%eps", "%momentum", "relu", "of_rank", "plane", NULL};
static const char *const sums_attrs[] = {"of_rank", "plane", NULL};

/* Inputs [first, end) have a channel for each of x, the input of that number; `sums` (0: none) has
 * two. */
static kolo_status check_channels(const kolo_shape_query *q, int x, int first, int end, int sums) {
    const kolo_shape *s = &q->in[x].shape;
    if (s->rank < 2) return KOLO_RULE_FAIL(q, "x must have two or more dimensions: N,C,...");
    for (int i = first; i < end; i++) {
        int64_t want = i == sums ? 2 * s->dim[1] : s->dim[1];
        KOLO_TRY(kolo_rule_rank(q, i, 1, i == sums ? "2 C" : "C"));
        if (q->in[i].shape.dim[0] == want) continue;
        return KOLO_RULE_FAIL(q, "input %d must have %" PRId64 " elements", i, want);
    }
    return KOLO_OK;
}

static kolo_status check_weight(const kolo_shape_query *q, int i) {
    return kolo_rule_rank(q, i, 0, "a scalar, one over the samples of all ranks");
}

static kolo_status sums_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "fff"));
    KOLO_TRY(check_channels(q, 0, 1, 2, 0));
    KOLO_TRY(check_weight(q, 2));
    return kolo_rule_out(q, 0, q->in[1].dtype, kolo_shape_1(2 * q->in[1].shape.dim[0]));
}

static kolo_status statistics_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ffff"));
    KOLO_TRY(kolo_rule_rank(q, 0, 1, "2 C"));
    KOLO_TRY(kolo_rule_rank(q, 1, 1, "C"));
    KOLO_TRY(kolo_rule_same(q, 1, 2));
    KOLO_TRY(check_weight(q, 3));
    if (q->in[0].shape.dim[0] != 2 * q->in[1].shape.dim[0]) {
        return KOLO_RULE_FAIL(q, "the sums must have two elements for each channel");
    }
    for (int i = 0; i < 3; i++) KOLO_TRY(kolo_rule_out(q, i, q->in[1].dtype, q->in[1].shape));
    return KOLO_OK;
}

static kolo_status apply_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "fffffff"));
    KOLO_TRY(check_channels(q, 0, 1, 5, 0));
    KOLO_TRY(check_weight(q, 5));
    if (q->n_in == 7) KOLO_TRY(kolo_rule_same(q, 0, 6));
    return kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape);
}

static kolo_status bwd_sums_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ffffff"));
    KOLO_TRY(kolo_rule_same(q, 0, 1));
    KOLO_TRY(check_channels(q, 1, 2, q->n_in, 0));
    const kolo_shape *c = &q->in[2].shape;
    KOLO_TRY(kolo_rule_out(q, 0, q->in[2].dtype, *c));
    KOLO_TRY(kolo_rule_out(q, 1, q->in[2].dtype, *c));
    return kolo_rule_out(q, 2, q->in[2].dtype, kolo_shape_1(2 * c->dim[0]));
}

static kolo_status bwd_data_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ffffffff"));
    KOLO_TRY(kolo_rule_same(q, 0, 1));
    KOLO_TRY(check_weight(q, 2));
    KOLO_TRY(check_channels(q, 1, 3, q->n_in, 3));
    return kolo_rule_out(q, 0, q->in[0].dtype, q->in[1].shape);
}

/* As norm_cost of norm.c. */
static kolo_cost apply_cost(const kolo_shape_query *q) {
    return (kolo_cost){4.0 * (double)kolo_shape_count(&q->in[0].shape), kolo_query_bytes(q)};
}

/* dx includes what reaches x by way of the mean and the variance. */
static void apply_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                       const bool *wants, kolo_value *d_in) {
    kolo_value dy = d_out[0], out[KOLO_MAX_IO];
    const kolo_value x = n->in[0], gamma = n->in[1], beta = n->in[2];
    bool relu = n->attr[KOLO_NORM_RELU].i, residual = n->n_in == 7;
    bool masked = relu && !residual; /* by a sign that is recomputed */
    if (relu && residual) {
        dy = kolo_graph_add1(g, &kolo_op_relu_bwd, (kolo_value[]){dy, n->out[0]}, 2, NULL);
    }
    if (residual && wants[6]) d_in[6] = dy;
    if (!wants[0] && !wants[1] && !wants[2]) return;
    kolo_attr attr[KOLO_MAX_ATTRS];
    memcpy(attr, n->attr, sizeof attr);
    if (!masked) attr[KOLO_NORM_RELU].i = 0;
    const kolo_value in[] = {dy, x, gamma, n->in[3], n->in[4], beta};
    kolo_graph_add(g, &kolo_op_sync_norm_bwd_sums, in, masked ? 6 : 5, attr, out);
    if (wants[1]) d_in[1] = out[0];
    if (wants[2]) d_in[2] = out[1];
    if (!wants[0] || kolo_graph_check(g) != KOLO_OK) return;
    kolo_value sums = kolo_sum_over_samples(g, out[2], x, attr[KOLO_SYNC_NORM_OF_RANK].i);
    const kolo_value data[] = {dy, x, n->in[5], sums, gamma, n->in[3], n->in[4], beta};
    d_in[0] = kolo_graph_add1(g, &kolo_op_sync_norm_bwd_data, data, masked ? 8 : 7, attr);
}

/* ---- notation: statistics belong to a shard of the samples, or to all ---- */

static const char *sums_index(const kolo_attr *attr, int n_in, const kolo_shape *in, char *text) {
    return attr[KOLO_SYNC_SUMS_OF_RANK].i ? "nc*,c,s->s2c" : "nc*,c,->2c";
}
static const char *apply_index(const kolo_attr *attr, int n_in, const kolo_shape *in, char *text) {
    return attr[KOLO_SYNC_NORM_OF_RANK].i ? "nc*,c,c,sc,sc,s,nc*->nc*" : "nc*,c,c,c,c,,nc*->nc*";
}
static const char *bwd_sums_index(const kolo_attr *attr, int n_in, const kolo_shape *in,
                                  char *text) {
    return attr[KOLO_SYNC_NORM_OF_RANK].i ? "nc*,nc*,c,sc,sc,c->c,c,s2c"
                                          : "nc*,nc*,c,c,c,c->c,c,2c";
}
static const char *bwd_data_index(const kolo_attr *attr, int n_in, const kolo_shape *in,
                                  char *text) {
    return attr[KOLO_SYNC_NORM_OF_RANK].i ? "nc*,nc*,s,s2c,c,sc,sc,c->nc*"
                                          : "nc*,nc*,,2c,c,c,c,c->nc*";
}

const kolo_op kolo_op_sync_norm_sums = {
    .name = "sync_norm_sums",
    .index_of = sums_index,
    .min_in = 3,
    .max_in = 3,
    .layout = {.in = "app", .out = "p"},
    .attrs = sums_attrs,
    .shape = sums_shape,
    .bf16 = 1u << 0,
};
const kolo_op kolo_op_sync_norm_statistics = {
    .name = "sync_norm_statistics",
    .index = "2c,c,c,->c,c,c",
    .min_in = 4,
    .max_in = 4,
    .layout = {.in = "pppp", .out = "ppp"},
    .attrs = plane_attrs,
    .shape = statistics_shape,
    .kept = true,
};
const kolo_op kolo_op_sync_norm = {
    .name = "sync_norm",
    .index_of = apply_index,
    .min_in = 6,
    .max_in = 7,
    .layout = {.in = "apppppa", .out = "a"},
    .attrs = attrs,
    .shape = apply_shape,
    .grad = apply_grad,
    .cost = apply_cost,
    .overwrite = 1u << 6,
    .cheap = true,
    .bf16 = 1u << 0 | 1u << 6,
};
const kolo_op kolo_op_sync_norm_bwd_sums = {
    .name = "sync_norm_bwd_sums",
    .index_of = bwd_sums_index,
    .min_in = 5,
    .max_in = 6,
    .layout = {.in = "aapppp", .out = "ppp"},
    .attrs = attrs,
    .shape = bwd_sums_shape,
    .bf16 = 1u << 0 | 1u << 1,
};
const kolo_op kolo_op_sync_norm_bwd_data = {
    .name = "sync_norm_bwd_data",
    .index_of = bwd_data_index,
    .min_in = 7,
    .max_in = 8,
    .layout = {.in = "aapppppp", .out = "a"},
    .attrs = attrs,
    .shape = bwd_data_shape,
    .cost = apply_cost,
    .overwrite = 1u << 0 | 1u << 1,
    .bf16 = 1u << 0 | 1u << 1,
};

/* ---- reference ---- */

/* sums: those of x - shift of all channels, then those of its square, both times weight / plane,
 * where the plane is that of the whole image. */
static void sync_norm_sums(const kolo_call *call) {
    kolo_ref_planes r = kolo_ref_planes_of(&call->spec->in[0]);
    const double *x = call->in[0], *shift = call->in[1], weight = *(const double *)call->in[2];
    const double plane = (double)call->spec->attr[KOLO_SYNC_SUMS_PLANE].i;
    double *sums = call->out[0];
    for (int64_t c = 0; c < r.c; c++) {
        double sum = 0, squares = 0;
        for (int64_t n = 0; n < r.n; n++) {
            for (int64_t i = (n * r.c + c) * r.plane, end = i + r.plane; i < end; i++) {
                double d = x[i] - shift[c];
                sum += d;
                squares += d * d;
            }
        }
        sums[c] = sum * weight / plane;
        sums[r.c + c] = squares * weight / plane;
    }
}

static void sync_norm_statistics(const kolo_call *call) {
    const int64_t channels = call->spec->in[1].shape.dim[0];
    const double *sums = call->in[0], *shift = call->in[1], weight = *(const double *)call->in[3];
    double *mean = call->out[0], *var = call->out[1], *unbiased = call->out[2];
    double count = (double)call->spec->attr[KOLO_SYNC_NORM_PLANE].i / weight;
    for (int64_t c = 0; c < channels; c++) {
        mean[c] = shift[c] + sums[c];
        var[c] = fmax(sums[channels + c] - sums[c] * sums[c], 0);
        unbiased[c] = count > 1 ? var[c] * count / (count - 1) : var[c];
    }
}

static void sync_norm(const kolo_call *call) {
    const kolo_attr *attr = call->spec->attr;
    kolo_ref_planes r = kolo_ref_planes_of(&call->spec->in[0]);
    const double *x = call->in[0], *gamma = call->in[1], *beta = call->in[2];
    const double *mean = call->in[3], *var = call->in[4];
    const double *residual = call->spec->n_in > 6 ? call->in[6] : NULL;
    double *y = call->out[0];
    for (int64_t k = 0; k < r.n * r.c; k++) {
        int64_t c = k % r.c;
        double scale = gamma[c] / sqrt(var[c] + attr[KOLO_NORM_EPS].f);
        for (int64_t i = k * r.plane; i < (k + 1) * r.plane; i++) {
            double v = scale * (x[i] - mean[c]) + beta[c] + (residual ? residual[i] : 0);
            y[i] = kolo_ref_clip(v, attr[KOLO_NORM_RELU].i);
        }
    }
}

static void sync_norm_bwd_sums(const kolo_call *call) {
    kolo_ref_planes r = kolo_ref_planes_of(&call->spec->in[0]);
    const double *dy = call->in[0], *x = call->in[1], *gamma = call->in[2], *mean = call->in[3];
    const double *var = call->in[4], *beta = call->spec->n_in > 5 ? call->in[5] : NULL;
    double *dgamma = call->out[0], *dbeta = call->out[1], *sums = call->out[2];
    const int64_t relu = call->spec->attr[KOLO_NORM_RELU].i;
    for (int64_t c = 0; c < r.c; c++) {
        double rstd = 1 / sqrt(var[c] + call->spec->attr[KOLO_NORM_EPS].f), sum = 0, product = 0;
        for (int64_t n = 0; n < r.n; n++) {
            for (int64_t i = (n * r.c + c) * r.plane, end = i + r.plane; i < end; i++) {
                double normal = (x[i] - mean[c]) * rstd;
                double d = beta && !kolo_ref_passes(gamma[c] * normal + beta[c], relu) ? 0 : dy[i];
                sum += d;
                product += d * normal;
            }
        }
        dgamma[c] = sums[r.c + c] = product;
        dbeta[c] = sums[c] = sum;
    }
}

static void sync_norm_bwd_data(const kolo_call *call) {
    kolo_ref_planes r = kolo_ref_planes_of(&call->spec->in[0]);
    const double *dy = call->in[0], *x = call->in[1], *sums = call->in[3], *gamma = call->in[4];
    const double *mean = call->in[5], *var = call->in[6];
    const double *beta = call->spec->n_in > 7 ? call->in[7] : NULL;
    const double plane = (double)call->spec->attr[KOLO_SYNC_NORM_PIXELS].i;
    double *dx = call->out[0], share = *(const double *)call->in[2] / plane;
    const int64_t relu = call->spec->attr[KOLO_NORM_RELU].i;
    for (int64_t k = 0; k < r.n * r.c; k++) {
        int64_t c = k % r.c;
        double rstd = 1 / sqrt(var[c] + call->spec->attr[KOLO_NORM_EPS].f);
        for (int64_t i = k * r.plane; i < (k + 1) * r.plane; i++) {
            double normal = (x[i] - mean[c]) * rstd;
            double d = beta && !kolo_ref_passes(gamma[c] * normal + beta[c], relu) ? 0 : dy[i];
            dx[i] = gamma[c] * rstd * (d - share * (sums[c] + normal * sums[r.c + c]));
        }
    }
}

#define RUN(op_name) \
    static void run_##op_name(const kolo_call *call) { kolo_ref_run(call, op_name); }
RUN(sync_norm_sums)
RUN(sync_norm_statistics)
RUN(sync_norm)
RUN(sync_norm_bwd_sums)
RUN(sync_norm_bwd_data)

const kolo_kernel kolo_ops_sync_norm[] = {
    KOLO_REF_KERNEL("ref_sync_norm_sums", &kolo_op_sync_norm_sums, run_sync_norm_sums),
    KOLO_REF_KERNEL("ref_sync_norm_statistics", &kolo_op_sync_norm_statistics,
                    run_sync_norm_statistics),
    KOLO_REF_KERNEL("ref_sync_norm", &kolo_op_sync_norm, run_sync_norm),
    KOLO_REF_KERNEL("ref_sync_norm_bwd_sums", &kolo_op_sync_norm_bwd_sums, run_sync_norm_bwd_sums),
    KOLO_REF_KERNEL("ref_sync_norm_bwd_data", &kolo_op_sync_norm_bwd_data, run_sync_norm_bwd_data),
    {0},
};

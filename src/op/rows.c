/* Row-sparse gradients of embedding tables: {rows [R,C], ids i32 [R]} represents a table of zeros
 * with rows[k] at ids[k]. Ids are unique and ascending, followed by -1 with rows of zeros, so that
 * elementwise ops (scale, norms) need no count. The capacity R is static: every row that a batch
 * can touch.
 *
 * embedding_bwd_rows computes that of a batch, accumulate_rows adds those of micro-batches, and
 * merge_rows combines those of all ranks. Duplicate rows are summed in the order of their
 * positions, which makes the result bitwise reproducible. The updates write only the rows in ids,
 * so the next version may overwrite the old one. */
#include "base/integer.h"
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/ref/ref.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *const rows_attrs[] = {"table", "room", "first", NULL};
static const char *const merge_attrs[] = {"table", "room", NULL}, *const no_attrs[] = {NULL};
static const char *const adam_attrs[] = {"%beta1", "%beta2", "%eps", NULL};

/* Sets the outputs, with capacity for `count` ids. */
static kolo_status rows_out(kolo_shape_query *q, int64_t count, int64_t channels) {
    int64_t table = q->attr[KOLO_ROWS_TABLE].i, room = q->attr[KOLO_ROWS_ROOM].i;
    int64_t least = kolo_min_i64(table, count);
    if (table < 1) return KOLO_RULE_FAIL(q, "a table of %" PRId64 " rows", table);
    if (room < least) {
        return KOLO_RULE_FAIL(q, "a capacity of %" PRId64 " rows; it must be %" PRId64 " or more",
                              room, least);
    }
    KOLO_TRY(kolo_rule_out(q, 0, kolo_dtype_wide(q->in[0].dtype), kolo_shape_2(room, channels)));
    return kolo_rule_out(q, 1, KOLO_DTYPE_I32, kolo_shape_1(room));
}

static kolo_status embedding_bwd_rows_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "fif"));
    KOLO_TRY(kolo_rule_rank(q, 0, 3, "N,T,C"));
    const int64_t *dy = q->in[0].shape.dim;
    kolo_shape ids = kolo_shape_2(dy[0], dy[1]);
    if (!kolo_shape_equal(&q->in[1].shape, &ids)) return KOLO_RULE_FAIL(q, "the ids must be N,T");
    const kolo_shape table = kolo_shape_2(q->attr[KOLO_ROWS_TABLE].i, dy[2]);
    if (q->n_in > 2 && !kolo_shape_equal(&q->in[2].shape, &table)) {
        return KOLO_RULE_FAIL(q, "the table must be V,C");
    }
    return rows_out(q, dy[0] * dy[1], dy[2]);
}

/* Inputs i and i + 1 are rows and their ids. */
static kolo_status check_rows(const kolo_shape_query *q, int i) {
    KOLO_TRY(kolo_rule_rank(q, i, 2, "R,C"));
    kolo_shape ids = kolo_shape_1(q->in[i].shape.dim[0]);
    if (kolo_shape_equal(&q->in[i + 1].shape, &ids)) return KOLO_OK;
    return KOLO_RULE_FAIL(q, "there must be an id for each row");
}

static kolo_status merge_rows_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "fi"));
    KOLO_TRY(check_rows(q, 0));
    return rows_out(q, q->in[0].shape.dim[0], q->in[0].shape.dim[1]);
}

static kolo_status accumulate_rows_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "fif"));
    KOLO_TRY(check_rows(q, 0));
    KOLO_TRY(kolo_rule_rank(q, 2, 0, "a scalar, whether the micro-batch is the first"));
    return rows_out(q, q->in[0].shape.dim[0], q->in[0].shape.dim[1]);
}

/* The first inputs of both updates: w, rows, ids, lr. */
static kolo_status check_update(const kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_rank(q, 0, 2, "V,C"));
    KOLO_TRY(check_rows(q, 1));
    if (q->in[0].shape.dim[1] != q->in[1].shape.dim[1]) {
        return KOLO_RULE_FAIL(q, "the rows must be as wide as the table");
    }
    return kolo_rule_rank(q, 3, 0, "a scalar, the learning rate");
}

static kolo_status sgd_rows_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ffif"));
    KOLO_TRY(check_update(q));
    return kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape);
}

static kolo_status adam_rows_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ffiffff"));
    KOLO_TRY(check_update(q));
    KOLO_TRY(kolo_rule_rank(q, 4, 0, "a scalar, the number of the update"));
    KOLO_TRY(kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape));
    for (int i = 1; i < 3; i++) {
        if (!(q->attr[i - 1].f >= 0 && q->attr[i - 1].f < 1)) {
            return KOLO_RULE_FAIL(q, "beta%d is %g; it must be in [0, 1)", i, q->attr[i - 1].f);
        }
        KOLO_TRY(kolo_rule_same(q, 0, 4 + i));
        KOLO_TRY(kolo_rule_out(q, i, q->in[0].dtype, q->in[0].shape));
    }
    return KOLO_OK;
}

/* The gradient, and the rows of each table that change, read and written. */
static kolo_cost update_cost(const kolo_shape_query *q) {
    double rows = (double)kolo_tensor_bytes(&q->in[1]);
    return (kolo_cost){0, rows * (1 + 2 * q->n_out) + (double)kolo_tensor_bytes(&q->in[2])};
}

const kolo_op kolo_op_embedding_bwd_rows = {
    .name = "embedding_bwd_rows",
    .index = "ntc,nt,vc->s@vc/t,s@v/tc",
    .min_in = 2,
    .max_in = 3,
    .layout = {.in = "app", .out = "pp"},
    .attrs = rows_attrs,
    .shape = embedding_bwd_rows_shape,
    .bf16 = 1u << 0,
};
const kolo_op kolo_op_merge_rows = {
    .name = "merge_rows",
    .index = "@vc,@v->@vc,@v/c",
    .min_in = 2,
    .max_in = 2,
    .layout = {.in = "pp", .out = "pp"},
    .attrs = merge_attrs,
    .shape = merge_rows_shape,
    .with_updates = true,
};
const kolo_op kolo_op_accumulate_rows = {
    .name = "accumulate_rows",
    .index = "@vc,@v,->@vc,@v/c",
    .min_in = 3,
    .max_in = 3,
    .layout = {.in = "ppp", .out = "pp"},
    .attrs = merge_attrs,
    .shape = accumulate_rows_shape,
};
const kolo_op kolo_op_sgd_rows = {
    .name = "sgd_rows",
    .index = "vc,@vc,@v,->vc",
    .min_in = 4,
    .max_in = 4,
    .layout = {.in = "pppp", .out = "p"},
    .attrs = no_attrs,
    .shape = sgd_rows_shape,
    .cost = update_cost,
    .in_place = true,
};
const kolo_op kolo_op_adam_rows = {
    .name = "adam_rows",
    .index = "vc,@vc,@v,,,vc,vc->vc,vc,vc",
    .min_in = 7,
    .max_in = 7,
    .layout = {.in = "ppppppp", .out = "ppp"},
    .attrs = adam_attrs,
    .shape = adam_rows_shape,
    .cost = update_cost,
    .in_place = true,
};

/* ---- reference ---- */

/* Row-sparse gradients of embedding tables, and the optimizer updates that use them. Updates may
 * run in place. */

/* Sums the rows of each id that occurs, in ascending order of ids, which count from `first`. */
static void sum_rows(const kolo_call *call, int64_t first) {
    const kolo_kernel_spec *spec = call->spec;
    int64_t room = spec->out[0].shape.dim[0], channels = spec->out[0].shape.dim[1];
    int64_t count = kolo_shape_count(&spec->in[1].shape);
    const double *x = call->in[0];
    const int32_t *ids = call->in[1];
    double *rows = call->out[0];
    int32_t *found = call->out[1];
    memset(rows, 0, sizeof(double) * (size_t)(room * channels));
    for (int64_t k = 0, last = -1; k < room; k++) {
        int64_t next = spec->attr[KOLO_ROWS_TABLE].i, end = next;
        for (int64_t i = 0; i < count; i++) {
            if (ids[i] - first > last && ids[i] - first < next) next = ids[i] - first;
        }
        found[k] = next < end ? (int32_t)next : -1;
        for (int64_t i = 0; i < count && next < end; i++) {
            if (ids[i] - first != next) continue;
            for (int64_t c = 0; c < channels; c++) rows[k * channels + c] += x[i * channels + c];
        }
        last = next;
    }
}

static void embedding_bwd_rows(const kolo_call *call) {
    sum_rows(call, call->spec->attr[KOLO_ROWS_FIRST].i);
}

static void merge_rows(const kolo_call *call) { sum_rows(call, 0); }

static int64_t count_ids(const int32_t *ids, int64_t most) {
    int64_t n = 0;
    while (n < most && ids[n] >= 0) n++;
    return n;
}

/* The ids of both lists, each of which is ascending. */
static int64_t count_union(const int32_t *a, int64_t n, const int32_t *b, int64_t m) {
    int64_t i = 0, j = 0, count = 0;
    for (; i < n || j < m; count++) {
        const bool both = i < n && j < m && a[i] == b[j];
        const bool first = j == m || (i < n && a[i] <= b[j]);
        i += first;
        j += !first || both;
    }
    return count;
}

static void add_row(void *to, const void *from, int64_t channels, bool is_f64) {
    for (int64_t c = 0; c < channels; c++) {
        if (is_f64) {
            ((double *)to)[c] += ((const double *)from)[c];
        } else {
            ((float *)to)[c] += ((const float *)from)[c];
        }
    }
}

/* Merges from the end, so that the rows that are there make room for others between them. */
static void run_accumulate_rows(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const int64_t room = spec->out[0].shape.dim[0], channels = spec->out[0].shape.dim[1];
    const bool is_f64 = spec->out[0].dtype == KOLO_DTYPE_F64;
    const size_t width = (size_t)channels * kolo_dtype_bytes(spec->out[0].dtype);
    const bool fresh =
        is_f64 ? *(const double *)call->in[2] != 0 : *(const float *)call->in[2] != 0;
    const char *rows = call->in[0];
    const int32_t *ids = call->in[1];
    char *sums = call->out[0];
    int32_t *found = call->out[1];
    if (fresh) {
        memset(sums, 0, width * (size_t)room);
        memset(found, 0xff, sizeof *found * (size_t)room);
    }
    int64_t i = count_ids(found, room), j = count_ids(ids, spec->in[1].shape.dim[0]);
    int64_t at = count_union(found, i, ids, j);
    KOLO_ASSERT(at <= room);
    for (i--, j--, at--; j >= 0; at--) {
        const bool kept = i >= 0 && found[i] >= ids[j], both = kept && found[i] == ids[j];
        if (kept) memmove(sums + (size_t)at * width, sums + (size_t)i * width, width);
        if (both) add_row(sums + (size_t)at * width, rows + (size_t)j * width, channels, is_f64);
        if (!kept) memcpy(sums + (size_t)at * width, rows + (size_t)j * width, width);
        found[at] = kept ? found[i] : ids[j];
        i -= kept;
        j -= !kept || both;
    }
}

/* Output i starts as a copy of input `from`. */
static double *copy(const kolo_call *call, int i, int from) {
    size_t count = (size_t)kolo_shape_count(&call->spec->out[i].shape);
    if (call->out[i] != call->in[from])
        memcpy(call->out[i], call->in[from], count * sizeof(double));
    return call->out[i];
}

static void sgd_rows(const kolo_call *call) {
    int64_t room = call->spec->in[1].shape.dim[0], channels = call->spec->in[1].shape.dim[1];
    const double *rows = call->in[1], lr = *(const double *)call->in[3];
    const int32_t *ids = call->in[2];
    double *w = copy(call, 0, 0);
    for (int64_t k = 0; k < room && ids[k] >= 0; k++) {
        for (int64_t c = 0; c < channels; c++) {
            w[ids[k] * channels + c] -= lr * rows[k * channels + c];
        }
    }
}

/* Kingma, Ba, "Adam", ICLR 2015, the form at the end of section 2, as PyTorch's SparseAdam. */
static void adam_rows(const kolo_call *call) {
    int64_t room = call->spec->in[1].shape.dim[0], channels = call->spec->in[1].shape.dim[1];
    const kolo_attr *attr = call->spec->attr;
    const double *rows = call->in[1], lr = *(const double *)call->in[3];
    const int32_t *ids = call->in[2];
    double update = *(const double *)call->in[4];
    double beta1 = attr[KOLO_ADAM_BETA1].f, beta2 = attr[KOLO_ADAM_BETA2].f;
    double step = lr * sqrt(1 - pow(beta2, update)) / (1 - pow(beta1, update));
    double *w = copy(call, 0, 0), *m = copy(call, 1, 5), *v = copy(call, 2, 6);
    for (int64_t k = 0; k < room && ids[k] >= 0; k++) {
        for (int64_t c = 0; c < channels; c++) {
            int64_t i = ids[k] * channels + c;
            double g = rows[k * channels + c];
            m[i] = beta1 * m[i] + (1 - beta1) * g;
            v[i] = beta2 * v[i] + (1 - beta2) * g * g;
            w[i] -= step * m[i] / (sqrt(v[i]) + attr[KOLO_ADAM_EPS].f);
        }
    }
}

static void run_embedding_bwd_rows(const kolo_call *call) {
    kolo_ref_run(call, embedding_bwd_rows);
}
static void run_merge_rows(const kolo_call *call) { kolo_ref_run(call, merge_rows); }
static void run_sgd_rows(const kolo_call *call) { kolo_ref_run(call, sgd_rows); }
static void run_adam_rows(const kolo_call *call) { kolo_ref_run(call, adam_rows); }

const kolo_kernel kolo_ops_rows[] = {
    KOLO_REF_KERNEL("ref_embedding_bwd_rows", &kolo_op_embedding_bwd_rows, run_embedding_bwd_rows),
    KOLO_REF_KERNEL("ref_merge_rows", &kolo_op_merge_rows, run_merge_rows),
    {
        .name = "ref_accumulate_rows",
        .op = &kolo_op_accumulate_rows,
        .fit = kolo_ref_fit,
        .run = run_accumulate_rows,
    },
    KOLO_REF_KERNEL("ref_sgd_rows", &kolo_op_sgd_rows, run_sgd_rows),
    KOLO_REF_KERNEL("ref_adam_rows", &kolo_op_adam_rows, run_adam_rows),
    {0},
};

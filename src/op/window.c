/* Ops on ranges of one dimension: concat and window, which is the gradient of both. */
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/ref/ref.h"

#include <inttypes.h>

static const char *const concat_attrs[] = {"axis", NULL};
static const char *const window_attrs[] = {"first", "count", "axis", NULL};

static kolo_status check_axis(const kolo_shape_query *q, int64_t axis) {
    const int rank = q->in[0].shape.rank;
    if (axis >= 1 && axis < rank) return KOLO_OK;
    return KOLO_RULE_FAIL(q, "dimension %" PRId64 " of %d; there must be two or more, N,C,...",
                          axis, rank);
}

static kolo_status concat_shape(kolo_shape_query *q) {
    const int64_t axis = q->attr[KOLO_CONCAT_AXIS].i;
    KOLO_TRY(kolo_rule_types(q, "ffffffff"));
    KOLO_TRY(check_axis(q, axis));
    kolo_shape y = q->in[0].shape;
    for (int i = 1; i < q->n_in; i++) {
        kolo_shape same = q->in[i].shape;
        const int64_t length = same.rank == y.rank ? same.dim[axis] : 0;
        if (same.rank == y.rank) same.dim[axis] = y.dim[axis];
        if (!kolo_shape_equal(&same, &y)) {
            return KOLO_RULE_FAIL(q, "inputs 0 and %d differ in more than dimension %" PRId64, i,
                                  axis);
        }
        if (__builtin_add_overflow(y.dim[axis], length, &y.dim[axis])) {
            return KOLO_RULE_FAIL(q, "a dimension is larger than can be counted");
        }
    }
    return kolo_rule_out(q, 0, q->in[0].dtype, y);
}

static kolo_status window_shape(kolo_shape_query *q) {
    const int64_t axis = q->attr[KOLO_WINDOW_AXIS].i;
    const int64_t first = q->attr[KOLO_WINDOW_FIRST].i, count = q->attr[KOLO_WINDOW_COUNT].i;
    KOLO_TRY(kolo_rule_types(q, "f"));
    KOLO_TRY(check_axis(q, axis));
    kolo_shape y = q->in[0].shape;
    if (count < 1 || count > INT32_MAX || first <= -count || first >= y.dim[axis]) {
        return KOLO_RULE_FAIL(
            q, "%" PRId64 " elements from %" PRId64 " on; at least one must be in x", count, first);
    }
    y.dim[axis] = count;
    return kolo_rule_out(q, 0, q->in[0].dtype, y);
}

static kolo_value window(kolo_graph *g, kolo_value x, int64_t axis, int64_t first, int64_t count) {
    const kolo_attr attr[KOLO_MAX_ATTRS] = {
        [KOLO_WINDOW_FIRST].i = first, [KOLO_WINDOW_COUNT].i = count, [KOLO_WINDOW_AXIS].i = axis};
    return kolo_graph_add1(g, &kolo_op_window, &x, 1, attr);
}

static void concat_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                        const bool *wants, kolo_value *d_in) {
    const int64_t axis = n->attr[KOLO_CONCAT_AXIS].i;
    int64_t first = 0;
    for (int i = 0; i < n->n_in; i++) {
        int64_t length = kolo_info(g, n->in[i])->tensor.shape.dim[axis];
        if (wants[i]) d_in[i] = window(g, d_out[0], axis, first, length);
        first += length;
    }
}

static void window_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                        const bool *wants, kolo_value *d_in) {
    const int64_t axis = n->attr[KOLO_WINDOW_AXIS].i;
    int64_t length = kolo_info(g, n->in[0])->tensor.shape.dim[axis];
    if (wants[0]) d_in[0] = window(g, d_out[0], axis, -n->attr[KOLO_WINDOW_FIRST].i, length);
}

/* Writes a term: "nawb", of `parts` parts along `axis`, or "naWb" for 0: whole. */
static char *write_term(char *text, int rank, int axis, int64_t parts) {
    for (int d = 0; d < rank; d++) {
        if (d != axis) {
            *text++ = d == 0 ? 'n' : (char)('a' + d - 1);
            continue;
        }
        if (parts > 1) *text++ = (char)('0' + parts);
        *text++ = parts > 0 ? 'w' : 'W';
    }
    *text = 0;
    return text;
}

/* "naw+naw->na2w" for inputs of one length, else the dimension is whole. */
static const char *concat_index(const kolo_attr *attr, int n_in, const kolo_shape *in, char *text) {
    const int axis = (int)attr[KOLO_CONCAT_AXIS].i, rank = in[0].rank;
    bool equal = true;
    for (int i = 1; i < n_in; i++) equal &= in[i].dim[axis] == in[0].dim[axis];
    char *end = text;
    for (int i = 0; i < n_in; i++) {
        if (i > 0) *end++ = '+';
        end = write_term(end, rank, axis, equal);
    }
    *end++ = '-';
    *end++ = '>';
    (void)write_term(end, rank, axis, equal ? n_in : 0);
    return text;
}

/* Whether `part` elements from `first` on are one of up to nine equal parts of `whole`. */
static bool is_part(int64_t whole, int64_t first, int64_t part) {
    return whole % part == 0 && whole / part <= 9 && first >= 0 && first % part == 0 &&
           first + part <= whole;
}

/* "na3w->naw" for one of equal parts, "naw->na3w" for its gradient, else the dimension is whole. */
static const char *window_index(const kolo_attr *attr, int n_in, const kolo_shape *in, char *text) {
    const int axis = (int)attr[KOLO_WINDOW_AXIS].i, rank = in[0].rank;
    const int64_t first = attr[KOLO_WINDOW_FIRST].i, count = attr[KOLO_WINDOW_COUNT].i;
    const int64_t length = in[0].dim[axis];
    int64_t from = 0, to = 0;
    if (count > 0 && is_part(length, first, count)) {
        from = length / count;
        to = 1;
    } else if (count > 0 && is_part(count, -first, length)) {
        from = 1;
        to = count / length;
    }
    char *end = write_term(text, rank, axis, from);
    *end++ = '-';
    *end++ = '>';
    (void)write_term(end, rank, axis, to);
    return text;
}

const kolo_op kolo_op_concat = {
    .name = "concat",
    .index_of = concat_index,
    .linear = 0xffu,
    .min_in = 1,
    .max_in = KOLO_MAX_IO,
    .layout = {.in = "aaaaaaaa", .out = "a"},
    .attrs = concat_attrs,
    .shape = concat_shape,
    .grad = concat_grad,
    .cheap = true,
    .bf16 = 0xFFu,
    .samples = {.in = 0xffu, .out = 0x1u},
};
const kolo_op kolo_op_window = {
    .name = "window",
    .index_of = window_index,
    .linear = 0x1u,
    .part = {.index = 'w', .lengths = 1u << KOLO_WINDOW_FIRST | 1u << KOLO_WINDOW_COUNT},
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "a", .out = "a"},
    .attrs = window_attrs,
    .shape = window_shape,
    .grad = window_grad,
    .cheap = true,
    .bf16 = 1u << 0,
    .samples = {.in = 0x1u, .out = 0x1u},
};

kolo_value kolo_channel_window(kolo_graph *g, kolo_value x, int64_t first, int64_t count) {
    return window(g, x, 1, first, count);
}

/* ---- reference ---- */

/* Copies numbers, or zeros where x is NULL. */
static double *copy(double *y, const double *x, int64_t count) {
    for (int64_t i = 0; i < count; i++) *y++ = x ? x[i] : 0;
    return y;
}

/* The number of elements of dimensions [first, end). */
static int64_t count_of(const kolo_tensor *t, int64_t first, int64_t end) {
    int64_t count = 1;
    for (int64_t d = first; d < end; d++) count *= t->shape.dim[d];
    return count;
}

static void concat(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const kolo_tensor *out = &spec->out[0];
    const int64_t axis = spec->attr[KOLO_CONCAT_AXIS].i, outer = count_of(out, 0, axis);
    double *y = call->out[0];
    for (int64_t n = 0; n < outer; n++) {
        for (int i = 0; i < spec->n_in; i++) {
            int64_t size = count_of(&spec->in[i], axis, out->shape.rank);
            y = copy(y, (const double *)call->in[i] + n * size, size);
        }
    }
}

static void ref_window(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const kolo_tensor *out = &spec->out[0];
    const int64_t axis = spec->attr[KOLO_WINDOW_AXIS].i, outer = count_of(out, 0, axis);
    const int64_t inner = count_of(out, axis + 1, out->shape.rank);
    const int64_t length = spec->in[0].shape.dim[axis];
    const double *x = call->in[0];
    double *y = call->out[0];
    for (int64_t n = 0; n < outer; n++) {
        for (int64_t i = 0; i < out->shape.dim[axis]; i++) {
            int64_t at = i + spec->attr[KOLO_WINDOW_FIRST].i;
            bool inside = at >= 0 && at < length;
            y = copy(y, inside ? x + (n * length + at) * inner : NULL, inner);
        }
    }
}

static void run_concat(const kolo_call *call) { kolo_ref_run(call, concat); }
static void run_window(const kolo_call *call) { kolo_ref_run(call, ref_window); }

const kolo_kernel kolo_ops_window[] = {
    KOLO_REF_KERNEL("ref_concat", &kolo_op_concat, run_concat),
    KOLO_REF_KERNEL("ref_window", &kolo_op_window, run_window),
    {0},
};

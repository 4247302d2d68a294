/* deinterleave: x -> y0, y1, ...: runs of `length` elements along a dimension, given to `parts`
 * outputs in turn; interleave: the other way. Each is the gradient of the other. A slice of x that
 * begins and ends with whole rounds is divided into the slices of the outputs. */
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/ref/ref.h"

#include <inttypes.h>

static const char *const deinterleave_attrs[] = {"axis", "length", "parts", NULL};

/* Whether x can be divided by these attributes. */
static kolo_status check_round(const kolo_shape_query *q, const kolo_shape *x, int64_t parts) {
    const int64_t axis = q->attr[KOLO_INTERLEAVE_AXIS].i,
                  length = q->attr[KOLO_INTERLEAVE_LENGTH].i;
    if (parts < 1 || parts > KOLO_MAX_IO || length < 1 || axis < 0 || axis >= x->rank) {
        return KOLO_RULE_FAIL(
            q, "%" PRId64 " parts of %" PRId64 " elements along dimension %" PRId64 " of %d", parts,
            length, axis, x->rank);
    }
    return KOLO_OK;
}

static kolo_status deinterleave_shape(kolo_shape_query *q) {
    const int64_t axis = q->attr[KOLO_INTERLEAVE_AXIS].i, parts = q->attr[KOLO_INTERLEAVE_PARTS].i;
    kolo_shape y = q->in[0].shape;
    KOLO_TRY(kolo_rule_types(q, "f"));
    KOLO_TRY(check_round(q, &y, parts));
    if (y.dim[axis] % (parts * q->attr[KOLO_INTERLEAVE_LENGTH].i) != 0) {
        return KOLO_RULE_FAIL(q, "dimension %" PRId64 " is not made of whole rounds", axis);
    }
    y.dim[axis] /= parts;
    for (int k = 0; k < parts; k++) KOLO_TRY(kolo_rule_out(q, k, q->in[0].dtype, y));
    return KOLO_OK;
}

static kolo_status interleave_shape(kolo_shape_query *q) {
    const int64_t axis = q->attr[KOLO_INTERLEAVE_AXIS].i;
    kolo_shape y = q->in[0].shape;
    KOLO_TRY(kolo_rule_types(q, "ffffffff"));
    KOLO_TRY(check_round(q, &y, q->n_in));
    for (int k = 1; k < q->n_in; k++) {
        if (kolo_shape_equal(&q->in[k].shape, &y)) continue;
        return KOLO_RULE_FAIL(q, "inputs 0 and %d differ in shape", k);
    }
    if (y.dim[axis] % q->attr[KOLO_INTERLEAVE_LENGTH].i != 0) {
        return KOLO_RULE_FAIL(q, "dimension %" PRId64 " is not made of whole runs", axis);
    }
    if (__builtin_mul_overflow(y.dim[axis], q->n_in, &y.dim[axis])) {
        return KOLO_RULE_FAIL(q, "a dimension is larger than can be counted");
    }
    return kolo_rule_out(q, 0, q->in[0].dtype, y);
}

/* Writes `n` terms "abc", with a sign between them; returns the end. */
static char *write_terms(char *text, int rank, int n, char sign) {
    for (int k = 0; k < n; k++) {
        if (k > 0) *text++ = sign;
        for (int d = 0; d < rank; d++) *text++ = (char)('a' + d);
    }
    *text = 0;
    return text;
}

/* "abc->abc,abc" */
static const char *deinterleave_index(const kolo_attr *attr, int n_in, const kolo_shape *in,
                                      char *text) {
    char *end = write_terms(text, in[0].rank, 1, ',');
    *end++ = '-';
    *end++ = '>';
    (void)write_terms(end, in[0].rank, (int)attr[KOLO_INTERLEAVE_PARTS].i, ',');
    return text;
}

/* "abc+abc->abc" */
static const char *interleave_index(const kolo_attr *attr, int n_in, const kolo_shape *in,
                                    char *text) {
    char *end = write_terms(text, in[0].rank, n_in, '+');
    *end++ = '-';
    *end++ = '>';
    (void)write_terms(end, in[0].rank, 1, '+');
    return text;
}

static void deinterleave_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                              const bool *wants, kolo_value *d_in) {
    const int parts = (int)n->attr[KOLO_INTERLEAVE_PARTS].i;
    kolo_value dy[KOLO_MAX_IO];
    for (int k = 0; k < parts; k++) {
        const kolo_attr none[KOLO_MAX_ATTRS] = {[KOLO_SCALE_FACTOR].f = 0};
        dy[k] = kolo_value_ok(d_out[k]) ? d_out[k]
                                        : kolo_graph_add1(g, &kolo_op_scale, &n->out[k], 1, none);
    }
    if (wants[0]) d_in[0] = kolo_graph_add1(g, &kolo_op_interleave, dy, parts, n->attr);
}

static void interleave_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                            const bool *wants, kolo_value *d_in) {
    kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_INTERLEAVE_AXIS] = n->attr[KOLO_INTERLEAVE_AXIS],
                                      [KOLO_INTERLEAVE_LENGTH] = n->attr[KOLO_INTERLEAVE_LENGTH],
                                      [KOLO_INTERLEAVE_PARTS].i = n->n_in};
    kolo_value dx[KOLO_MAX_IO];
    kolo_graph_add(g, &kolo_op_deinterleave, d_out, 1, attr, dx);
    for (int k = 0; k < n->n_in; k++) {
        if (wants[k]) d_in[k] = dx[k];
    }
}

const kolo_op kolo_op_deinterleave = {
    .name = "deinterleave",
    .index_of = deinterleave_index,
    .linear = 0x1u,
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "p", .out = "pppppppp"},
    .attrs = deinterleave_attrs,
    .shape = deinterleave_shape,
    .grad = deinterleave_grad,
};
const kolo_op kolo_op_interleave = {
    .name = "interleave",
    .index_of = interleave_index,
    .linear = 0xffu,
    .min_in = 1,
    .max_in = KOLO_MAX_IO,
    .layout = {.in = "pppppppp", .out = "p"},
    .attrs = deinterleave_attrs,
    .shape = interleave_shape,
    .grad = interleave_grad,
};

/* ---- reference ---- */

/* Where element i of part k is in the whole: [rounds, parts, run]. */
static int64_t place_of(int64_t i, int k, int64_t parts, int64_t run) {
    return (i / run * parts + k) * run + i % run;
}

/* Elements of a run. */
static int64_t run_of(const kolo_kernel_spec *spec) {
    const kolo_shape *s = &spec->in[0].shape;
    int64_t run = spec->attr[KOLO_INTERLEAVE_LENGTH].i;
    for (int d = (int)spec->attr[KOLO_INTERLEAVE_AXIS].i + 1; d < s->rank; d++) run *= s->dim[d];
    return run;
}

static void deinterleave(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const double *x = call->in[0];
    for (int k = 0; k < spec->n_out; k++) {
        double *y = call->out[k];
        for (int64_t i = 0; i < kolo_shape_count(&spec->out[k].shape); i++) {
            y[i] = x[place_of(i, k, spec->n_out, run_of(spec))];
        }
    }
}

static void interleave(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    double *y = call->out[0];
    for (int k = 0; k < spec->n_in; k++) {
        const double *x = call->in[k];
        for (int64_t i = 0; i < kolo_shape_count(&spec->in[k].shape); i++) {
            y[place_of(i, k, spec->n_in, run_of(spec))] = x[i];
        }
    }
}

static void run_deinterleave(const kolo_call *call) { kolo_ref_run(call, deinterleave); }
static void run_interleave(const kolo_call *call) { kolo_ref_run(call, interleave); }

const kolo_kernel kolo_ops_interleave[] = {
    KOLO_REF_KERNEL("ref_deinterleave", &kolo_op_deinterleave, run_deinterleave),
    KOLO_REF_KERNEL("ref_interleave", &kolo_op_interleave, run_interleave),
    {0},
};

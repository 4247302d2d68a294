/* Ops of a program: the table of registered ones, and the rules that call a descriptor. */
#include "graph/ops/custom.h"

#include "graph/index.h"
#include "graph/ops/arrays.h"
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kolo/custom_binding.h"

#include <ctype.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

_Static_assert((int)KOLO_CUSTOM_IO == (int)KOLO_MAX_IO, "inputs of an op");
_Static_assert((int)KOLO_CUSTOM_ATTRS <= (int)KOLO_MAX_ATTRS, "attributes of an op");

enum { MAX_REGISTERED = 256, MAX_NAME = 60 };

/* An op of the graph, from a descriptor. */
typedef struct registered_op {
    kolo_op op;
    bool bound;                              /* by kolo_custom_bind */
    char attr[KOLO_MAX_ATTRS][MAX_NAME + 2]; /* "%name": a double */
    const char *attrs[KOLO_MAX_ATTRS + 1];
} registered_op;

/* Filled from the front, by any thread; never freed. */
static registered_op *_Atomic registered[MAX_REGISTERED];

static const registered_op *find(const char *name) {
    for (int i = 0; i < MAX_REGISTERED; i++) {
        const registered_op *r = atomic_load(&registered[i]);
        if (!r || strcmp(r->op.name, name) == 0) return r;
    }
    return NULL;
}

static const registered_op *find_descriptor(const kolo_custom_op *op) {
    for (int i = 0; i < MAX_REGISTERED; i++) {
        const registered_op *r = atomic_load(&registered[i]);
        if (!r || r->op.custom == op) return r;
    }
    return NULL;
}

/* ---- functions that end early ---- */

static _Thread_local uint64_t done_count;

void kolo_custom_done(void) { done_count++; }

kolo_custom_mark kolo_custom_begin(void) {
    return (kolo_custom_mark){kolo_error_count(), done_count};
}

void kolo_custom_end(const kolo_op *op, kolo_custom_mark begin) {
    const registered_op *r = find_descriptor(op->custom);
    if (!r || !r->bound || done_count != begin.done || kolo_error_count() != begin.errors) return;
    (void)KOLO_FAIL(KOLO_ERR_ARG, "its function was interrupted before it returned");
}

/* ---- the rules ---- */

void kolo_custom_attrs(const kolo_attr *attr, double numbers[KOLO_MAX_ATTRS]) {
    for (int i = 0; i < KOLO_MAX_ATTRS; i++) numbers[i] = attr ? attr[i].f : 0;
}

void kolo_custom_tensors(const kolo_tensor *from, int n, kolo_custom_tensor *to) {
    for (int i = 0; i < n; i++) to[i] = (kolo_custom_tensor){from[i].dtype, from[i].shape};
}

static bool is_dtype(kolo_dtype dtype) {
    return dtype == KOLO_DTYPE_F32 || dtype == KOLO_DTYPE_F64 || dtype == KOLO_DTYPE_I32 ||
           dtype == KOLO_DTYPE_I64 || dtype == KOLO_DTYPE_U8;
}

static kolo_status take_output(kolo_shape_query *q, int i, const kolo_custom_tensor *t) {
    bool fits = t->shape.rank >= 0 && t->shape.rank <= KOLO_MAX_RANK;
    if (!is_dtype(t->dtype)) {
        return KOLO_RULE_FAIL(
            q, "its shape rule gives output %d the dtype %d; choose f32, f64, i32, i64 or u8", i,
            (int)t->dtype);
    }
    for (int d = 0; fits && d < t->shape.rank; d++) fits = t->shape.dim[d] > 0;
    if (!fits) {
        return KOLO_RULE_FAIL(q,
                              "its shape rule sets no shape of output %d: 0 to %d dimensions "
                              "above 0",
                              i, KOLO_MAX_RANK);
    }
    return kolo_rule_out(q, i, t->dtype, t->shape);
}

static kolo_status check_index(const kolo_shape_query *q) {
    kolo_shape in[KOLO_MAX_IO], out[KOLO_MAX_IO];
    kolo_index index;
    if (!q->op->index) return KOLO_OK;
    for (int i = 0; i < q->n_in; i++) in[i] = q->in[i].shape;
    for (int i = 0; i < q->n_out; i++) out[i] = q->out[i].shape;
    return kolo_index_read(q->op, q->attr, q->n_in, in, q->n_out, out, &index);
}

static kolo_status shape(kolo_shape_query *q) {
    const kolo_custom_op *op = q->op->custom;
    kolo_custom_tensor in[KOLO_MAX_IO], out[KOLO_MAX_IO];
    double attr[KOLO_MAX_ATTRS];
    kolo_custom_tensors(q->in, q->n_in, in);
    kolo_custom_attrs(q->attr, attr);
    for (int i = 0; i < KOLO_MAX_IO; i++) out[i] = (kolo_custom_tensor){q->in[0].dtype, {-1, {0}}};
    const uint64_t errors = kolo_error_count();
    const kolo_status status = op->shape(&(kolo_custom_shapes){attr, in, out});
    KOLO_TRY(kolo_callback_status(status, errors, "its shape rule refuses the inputs"));
    for (int i = 0; i < op->n_out; i++) KOLO_TRY(take_output(q, i, &out[i]));
    return check_index(q);
}

/* The shapes of a query that has outputs. */
typedef struct shapes {
    double attr[KOLO_MAX_ATTRS];
    kolo_custom_tensor in[KOLO_MAX_IO], out[KOLO_MAX_IO];
} shapes;

static kolo_cost cost(const kolo_shape_query *q) {
    shapes s;
    kolo_custom_attrs(q->attr, s.attr);
    kolo_custom_tensors(q->in, q->n_in, s.in);
    kolo_custom_tensors(q->out, q->n_out, s.out);
    const kolo_custom_shapes of = {s.attr, s.in, s.out};
    return (kolo_cost){q->op->custom->flops(&of), kolo_query_bytes(q)};
}

/* Fails the graph unless a gradient is like its input. */
static void check_gradient(kolo_graph *g, const kolo_node *n, int i, kolo_value d) {
    char have[KOLO_SHAPE_TEXT], want[KOLO_SHAPE_TEXT];
    if (!kolo_value_ok(d) || kolo_graph_check(g) != KOLO_OK) return;
    if (!kolo_value_is_of(g, d)) {
        kolo_graph_set_failed(g, KOLO_FAIL(KOLO_ERR_ARG,
                                           "%s: its gradient rule gives input %d a value of "
                                           "another graph",
                                           n->op->name, i));
        return;
    }
    const kolo_tensor *is = &kolo_info(g, d)->tensor, *in = &kolo_info(g, n->in[i])->tensor;
    if (is->dtype == in->dtype && kolo_shape_equal(&is->shape, &in->shape)) return;
    kolo_graph_set_failed(
        g, KOLO_FAIL(KOLO_ERR_ARG, "%s: its gradient rule gives %s %s for input %d, which is %s %s",
                     n->op->name, kolo_dtype_name(is->dtype), kolo_shape_text(&is->shape, have), i,
                     kolo_dtype_name(in->dtype), kolo_shape_text(&in->shape, want)));
}

static void grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out, const bool *wants,
                 kolo_value *d_in) {
    double attr[KOLO_MAX_ATTRS];
    kolo_custom_attrs(n->attr, attr);
    const kolo_custom_mark begin = kolo_custom_begin();
    n->op->custom->grad(g, &(kolo_custom_node){attr, n->in, n->out}, d_out, wants, d_in);
    kolo_custom_end(n->op, begin);
    if (kolo_error_count() != begin.errors &&
        kolo_graph_check(g) == KOLO_OK) { /* not one of the graph */
        kolo_graph_set_failed(g, kolo_fail_in(KOLO_ERR_ARG, "op %s", n->op->name));
    }
    for (int i = 0; i < n->n_in; i++) {
        if (wants[i]) check_gradient(g, n, i, d_in[i]);
    }
}

/* ---- registration ---- */

static bool is_name(const char *name) {
    size_t length = strlen(name);
    bool fits = length > 0 && length <= MAX_NAME && islower((unsigned char)*name);
    for (const char *c = name; *c && fits; c++) {
        fits = islower((unsigned char)*c) || isdigit((unsigned char)*c) || *c == '_';
    }
    return fits;
}

static bool is_built_in(const char *name) {
    const kolo_op *op;
    for (size_t i = 0; (op = kolo_op_at(i)); i++) {
        if (strcmp(op->name, name) == 0) return true;
    }
    return false;
}

static bool is_notation(const char *index) {
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ23456789*#,+/|->";
    return strlen(index) < KOLO_NOTATION && index[strspn(index, letters)] == 0 &&
           strstr(index, "->");
}

static int count_attrs(const char *const *attrs) {
    int n = 0;
    while (attrs && attrs[n]) n++;
    return n;
}

static kolo_status check(const kolo_custom_op *op, int most_attrs) {
    if (!op) return KOLO_FAIL(KOLO_ERR_ARG, "kolo_custom_op_register: no op");
    if (op->version != KOLO_CUSTOM_OP_VERSION) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "an op has version %d of kolo_custom_op, this Kolo %d: set .version and "
                         "compile it with <kolo/custom_op.h> of this Kolo",
                         op->version, KOLO_CUSTOM_OP_VERSION);
    }
    if (!op->name || !is_name(op->name)) {
        return KOLO_FAIL(
            KOLO_ERR_ARG,
            "op name \"%.80s\": at most %d lower-case letters, digits and _, the first "
            "one a letter",
            op->name ? op->name : "", (int)MAX_NAME);
    }
    if (op->n_in < 1 || op->n_in > KOLO_MAX_IO || op->n_out < 1 || op->n_out > KOLO_MAX_IO) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "the op %s has %d inputs and %d outputs; 1 to %d are possible", op->name,
                         op->n_in, op->n_out, (int)KOLO_MAX_IO);
    }
    if (!op->shape || !op->run) {
        return KOLO_FAIL(KOLO_ERR_ARG, "the op %s has no function %s", op->name,
                         op->shape ? "run" : "shape");
    }
    if (op->linear >> op->n_in) {
        return KOLO_FAIL(KOLO_ERR_ARG, "the op %s is linear in 0x%x, of %d inputs", op->name,
                         op->linear, op->n_in);
    }
    if (op->index && !is_notation(op->index)) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "the op %s has the index notation \"%.80s\": a letter for each dimension, "
                         "such as \"ni,oi->no\"",
                         op->name, op->index);
    }
    int n = count_attrs(op->attrs);
    for (int i = 0; i < n && i < KOLO_MAX_ATTRS; i++) {
        if (is_name(op->attrs[i])) continue;
        return KOLO_FAIL(KOLO_ERR_ARG, "the op %s has an attribute named \"%.80s\"", op->name,
                         op->attrs[i]);
    }
    if (n > most_attrs) {
        return KOLO_FAIL(KOLO_ERR_ARG, "the op %s has %d attributes; %d are possible", op->name, n,
                         most_attrs);
    }
    return KOLO_OK;
}

static void make(registered_op *r, const kolo_custom_op *op, bool bound) {
    static const char plain[KOLO_MAX_IO + 1] = "pppppppp";
    for (int i = 0; i < count_attrs(op->attrs); i++) {
        (void)snprintf(r->attr[i], sizeof r->attr[i], "%%%s", op->attrs[i]);
        r->attrs[i] = r->attr[i];
    }
    r->bound = bound;
    r->op = (kolo_op){
        .name = op->name,
        .min_in = op->n_in,
        .max_in = op->n_in,
        .attrs = r->attrs,
        .shape = shape,
        .grad = op->grad ? grad : NULL,
        .cost = op->flops ? cost : NULL,
        .index = op->index,
        .linear = op->linear,
        .layout = {.in = plain, .out = plain},
        .custom = op,
    };
}

static kolo_status add(const kolo_custom_op *op, bool bound) {
    KOLO_TRY(check(op, bound ? KOLO_CUSTOM_ATTRS - 1 : KOLO_CUSTOM_ATTRS));
    registered_op *r = NULL;
    for (int i = 0; i < MAX_REGISTERED; i++) {
        registered_op *none = NULL;
        const registered_op *known = find(op->name);
        if (find_descriptor(op)) {
            kolo_free(r);
            return KOLO_OK;
        }
        if ((known && !(bound && known->bound)) || is_built_in(op->name)) {
            kolo_free(r);
            return KOLO_FAIL(KOLO_ERR_ARG, "there is an op %s: choose another name", op->name);
        }
        if (!r && !(r = kolo_zalloc(sizeof *r))) return KOLO_NOMEM(sizeof *r);
        make(r, op, bound);
        if (atomic_compare_exchange_strong(&registered[i], &none, r)) return KOLO_OK;
    }
    kolo_free(r);
    return KOLO_FAIL(KOLO_ERR_NOMEM, "%d ops are registered: no more are possible",
                     (int)MAX_REGISTERED);
}

kolo_status kolo_custom_op_register(const kolo_custom_op *op) { return add(op, false); }
kolo_status kolo_custom_bind(const kolo_custom_op *op) { return add(op, true); }

static void add_node(kolo_graph *g, const registered_op *r, const kolo_value *in, int n_in,
                     const double *attr, kolo_value *out) {
    kolo_value outputs[KOLO_MAX_IO];
    kolo_attr numbers[KOLO_MAX_ATTRS] = {{0}};
    const int n = count_attrs(r->attrs) + r->bound; /* one that no name is for is not printed */
    for (int i = 0; i < KOLO_MAX_IO; i++) outputs[i] = KOLO_NONE;
    for (int i = 0; attr && i < n; i++) numbers[i].f = attr[i];
    if (!kolo_graph_takes_array(g, r->op.name, "outputs", out, r->op.custom->n_out, 0)) return;
    if (n_in == r->op.min_in) {
        const bool takes = kolo_graph_takes_array(g, r->op.name, "inputs", in, n_in, 0);
        if (takes) kolo_graph_add(g, &r->op, in, n_in, numbers, outputs);
    } else {
        kolo_graph_set_failed(g, KOLO_FAIL(KOLO_ERR_ARG, "%s: %d inputs instead of %d", r->op.name,
                                           n_in, r->op.min_in));
    }
    for (int i = 0; i < r->op.custom->n_out; i++) out[i] = outputs[i];
}

void kolo_custom(kolo_graph *g, const char *name, const kolo_value *in, int n_in,
                 const double *attr, kolo_value *out) {
    const registered_op *r = find(name ? name : "");
    if (r && !r->bound) {
        add_node(g, r, in, n_in, attr, out);
        return;
    }
    if (out) out[0] = KOLO_NONE;
    kolo_graph_set_failed(g, KOLO_FAIL(KOLO_ERR_ARG,
                                       "no op \"%.80s\": register it with "
                                       "kolo_custom_op_register",
                                       name ? name : ""));
}

void kolo_custom_bound(kolo_graph *g, const kolo_custom_op *op, const kolo_value *in, int n_in,
                       const double *attr, kolo_value *out) {
    const registered_op *r = op ? find_descriptor(op) : NULL;
    if (r && r->bound) {
        add_node(g, r, in, n_in, attr, out);
        return;
    }
    out[0] = KOLO_NONE;
    kolo_graph_set_failed(g, KOLO_FAIL(KOLO_ERR_ARG, "the op %s is not one of kolo_custom_bind",
                                       op ? op->name : "NULL"));
}

/* What operators work with: items, attributes, inputs and outputs of nodes, helpers. */
#include "base/text.h"
#include "onnx/import/import.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

kolo_status onnx_fail(const onnx_call *c, const char *file, int line, const char *fmt, ...) {
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    const char *name = onnx_text(c->node->name);
    if (!*name && c->node->n_output > 0) name = onnx_text(c->node->output[0]);
    return kolo_fail(KOLO_ERR_UNSUPPORTED, file, line, "%s: node \"%.100s\" (%.60s): %s",
                     c->m->onnx->path, name, onnx_text(c->node->op_type), text);
}

/* ---- items ---- */

onnx_item *onnx_find_item(const onnx_import *m, const char *name) {
    int32_t k = kolo_name_index_find(&m->index, name);
    return k >= 0 ? m->items[k] : NULL;
}

kolo_status onnx_add_item(onnx_import *m, const char *name, onnx_item **out) {
    if (onnx_find_item(m, name)) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: \"%.200s\" is defined twice", m->onnx->path, name);
    }
    onnx_item *item = kolo_arena_alloc(&m->arena, sizeof *item);
    if (!item || !KOLO_GROW(m->items, m->n_items, m->cap_items) ||
        !kolo_name_index_add(&m->index, name, (int32_t)m->n_items)) {
        return KOLO_NOMEM(sizeof *item);
    }
    *item = (onnx_item){.name = name, .value = KOLO_NONE, .rows = KOLO_NONE};
    m->items[m->n_items++] = item;
    *out = item;
    return KOLO_OK;
}

/* ---- leaves ---- */

char *onnx_leaf_name(onnx_import *m, const char *name) {
    static const char *const reserved[] = {"lr",   "update",  "grad_scale",   "share", "fresh",
                                           "once", "rng_key", "first_sample", "x",     "y"};
    char buffer[160];
    size_t n = 0;
    for (const char *at = name; *at && n < sizeof buffer - 40; at++) {
        bool plain = *at > 0x20 && *at < 0x7f;
        buffer[n++] = plain ? *at : '_';
    }
    buffer[n] = '\0';
    bool bad = n == 0 || strncmp(buffer, "__", 2) == 0 || strncmp(buffer, "optimizer.", 10) == 0;
    for (size_t i = 0; i < KOLO_COUNT(reserved); i++) bad |= strcmp(buffer, reserved[i]) == 0;
    char full[200];
    snprintf(full, sizeof full, "%s%s", bad ? "onnx." : "", buffer);
    for (int k = 2; kolo_graph_find(m->g, full).id >= 0; k++) {
        snprintf(full, sizeof full, "%s%s.%d", bad ? "onnx." : "", buffer, k);
    }
    return kolo_arena_strdup(&m->arena, full);
}

static kolo_status leaf(onnx_import *m, onnx_item *item) {
    if (item->tied) {
        if (item->tied->value.id < 0) KOLO_TRY(leaf(m, item->tied));
        item->value = kolo_transpose(m->g, item->tied->value, 0, 1);
        return kolo_graph_check(m->g);
    }
    char *name = onnx_leaf_name(m, item->name);
    if (!name) return KOLO_NOMEM(64);
    item->value = kolo_param(m->g, name, item->tensor.shape, (kolo_init){KOLO_INIT_ZERO, 0});
    KOLO_TRY(kolo_graph_check(m->g));
    kolo_info(m->g, item->value)->initial = item->tensor.f;
    return KOLO_OK;
}

kolo_status onnx_table(onnx_call *c, const char *wanted, const kolo_shape *shape, const float *f,
                       kolo_value *v) {
    const int64_t count = kolo_shape_count(shape);
    char *name = onnx_leaf_name(c->m, wanted);
    float *copy = kolo_arena_alloc(&c->g->arena, (size_t)count * sizeof *copy);
    if (!name || !copy) return KOLO_NOMEM((size_t)count * sizeof *copy);
    memcpy(copy, f, (size_t)count * sizeof *copy);
    *v = kolo_frozen_param(c->g, name, *shape, (kolo_init){KOLO_INIT_ZERO, 0});
    KOLO_TRY(kolo_graph_check(c->g));
    kolo_info(c->g, *v)->initial = copy;
    return KOLO_OK;
}

/* Elements of a constant as floats; infinities become the largest numbers, since graphs multiply
 * them with zeros. */
static float finite(double number) {
    const double most = 3.4028234663852886e38;
    return (float)(number > most ? most : number < -most ? -most : number);
}

/* A constant as a frozen parameter. The first dimension becomes 1 where all its slices are equal:
 * it may be the batch, on which no parameter depends. */
static kolo_status constant_value(onnx_call *c, onnx_item *item) {
    const host_tensor *t = &item->tensor;
    kolo_shape shape = t->shape;
    if (t->count < 1) return ONNX_FAIL(c, "the constant \"%.100s\" is empty", item->name);
    bool equal = shape.rank > 1 && shape.dim[0] > 1;
    const int64_t each = equal ? t->count / shape.dim[0] : t->count;
    for (int64_t k = each; k < t->count && equal; k++) {
        equal = host_number(t, k) == host_number(t, k % each);
    }
    const int64_t count = equal ? each : t->count;
    if (equal) shape.dim[0] = 1;
    float *f = NULL;
    KOLO_TRY(onnx_floats(c, count, &f));
    KOLO_ASSERT(f);
    for (int64_t k = 0; k < count; k++) f[k] = finite(host_number(t, k));
    return onnx_table(c, item->name, &shape, f, &item->value);
}

/* ---- attributes ---- */

const Onnx__AttributeProto *onnx_attribute(const onnx_call *c, const char *name) {
    for (size_t i = 0; i < c->node->n_attribute; i++) {
        const Onnx__AttributeProto *a = c->node->attribute[i];
        if (a->name && strcmp(a->name, name) == 0) return a;
    }
    return NULL;
}

int64_t onnx_int(const onnx_call *c, const char *name, int64_t preset) {
    const Onnx__AttributeProto *a = onnx_attribute(c, name);
    return a && a->has_i ? a->i : preset;
}

double onnx_float(const onnx_call *c, const char *name, double preset) {
    const Onnx__AttributeProto *a = onnx_attribute(c, name);
    return a && a->has_f ? (double)a->f : preset;
}

bool onnx_text_is(const onnx_call *c, const char *name, const char *text, bool preset) {
    const Onnx__AttributeProto *a = onnx_attribute(c, name);
    if (!a || !a->has_s) return preset;
    return a->s.len == strlen(text) && memcmp(a->s.data, text, a->s.len) == 0;
}

kolo_status onnx_ints(const onnx_call *c, const char *name, int64_t *out, int most, int *n) {
    const Onnx__AttributeProto *a = onnx_attribute(c, name);
    *n = -1;
    if (!a) return KOLO_OK;
    if (a->n_ints > (size_t)most) {
        return ONNX_FAIL(c, "attribute %s has %zu numbers; at most %d fit", name, a->n_ints, most);
    }
    *n = (int)a->n_ints;
    for (int k = 0; k < *n; k++) out[k] = a->ints[k];
    return KOLO_OK;
}

/* ---- inputs ---- */

bool onnx_is_integer(const onnx_call *c, int i) {
    const onnx_item *item = c->in[i];
    return item->constant ? item->tensor.integer
                          : item->boolean || item->whole ||
                                kolo_value_dtype(c->g, item->value) == KOLO_DTYPE_I32;
}

bool onnx_is_boolean(const onnx_call *c, int i) {
    const onnx_item *item = c->in[i];
    return item->constant ? item->tensor.boolean : item->boolean;
}

kolo_shape onnx_shape(const onnx_call *c, int i) {
    const onnx_item *item = c->in[i];
    return item->constant ? item->tensor.shape : kolo_value_shape(c->g, item->value);
}

/* Whether a vector, or one along a dimension of several, is as layers begin, all zeros or ones.
 * Exporters store equal ones once; each layer that reads it gets a parameter of its own. */
static bool is_fresh(const onnx_item *item) {
    const host_tensor *t = &item->tensor;
    bool equal = item->trained && t->count > 1 && t->shape.rank != 2;
    for (int d = 0; d < t->shape.rank && equal; d++) {
        equal = t->shape.dim[d] == 1 || t->shape.dim[d] == t->count;
    }
    for (int64_t k = 1; k < t->count && equal; k++) equal = t->f[k] == t->f[0];
    return equal;
}

kolo_status onnx_operand(onnx_call *c, int i, kolo_value *v) {
    if (!onnx_has(c, i)) return ONNX_FAIL(c, "input %d is missing", i);
    onnx_item *item = c->in[i];
    if (item->value.id < 0 || is_fresh(item)) {
        KOLO_TRY(item->trained ? leaf(c->m, item) : constant_value(c, item));
    }
    *v = item->value;
    return KOLO_OK;
}

kolo_status onnx_value(onnx_call *c, int i, kolo_value *v) {
    KOLO_TRY(onnx_operand(c, i, v));
    if (!c->in[i]->constant) return KOLO_OK;
    return onnx_expand(c, *v, &c->in[i]->tensor.shape, v);
}

kolo_status onnx_constant(onnx_call *c, int i, const host_tensor **t) {
    if (!onnx_has(c, i)) return ONNX_FAIL(c, "input %d is missing", i);
    if (!c->in[i]->constant) {
        return ONNX_FAIL(c,
                         "input %d (\"%.100s\") is computed from the samples; it must be constant",
                         i, c->in[i]->name);
    }
    *t = &c->in[i]->tensor;
    return KOLO_OK;
}

kolo_status onnx_list(onnx_call *c, int i, int64_t *out, int most, int *n) {
    const host_tensor *t = NULL;
    *n = -1;
    if (!onnx_has(c, i)) return KOLO_OK;
    KOLO_TRY(onnx_constant(c, i, &t));
    KOLO_ASSERT(t);
    if (!t->integer || t->count > most) {
        return ONNX_FAIL(c, "input %d must hold at most %d integers", i, most);
    }
    *n = (int)t->count;
    for (int k = 0; k < *n; k++) out[k] = t->i[k];
    return KOLO_OK;
}

kolo_status onnx_list_since(onnx_call *c, int64_t since, int i, const char *name, int64_t *out,
                            int most, int *n) {
    return c->opset < since ? onnx_ints(c, name, out, most, n) : onnx_list(c, i, out, most, n);
}

kolo_status onnx_number(onnx_call *c, int i, double preset, double *number) {
    const host_tensor *t = NULL;
    *number = preset;
    if (!onnx_has(c, i)) return KOLO_OK;
    KOLO_TRY(onnx_constant(c, i, &t));
    KOLO_ASSERT(t);
    if (t->count != 1) return ONNX_FAIL(c, "input %d must be one number", i);
    *number = host_number(t, 0);
    return KOLO_OK;
}

bool onnx_is_number(const onnx_call *c, int i, double *number) {
    if (!onnx_has(c, i)) return false;
    const onnx_item *item = c->in[i];
    if (!item->constant || item->trained || item->tensor.count != 1) return false;
    *number = finite(host_number(&item->tensor, 0));
    return true;
}

kolo_status onnx_axis(const onnx_call *c, int64_t axis, int rank, int *out) {
    if (axis < -rank || axis >= rank) {
        return ONNX_FAIL(c, "axis %" PRId64 " of a tensor of %d dimensions", axis, rank);
    }
    *out = (int)(axis < 0 ? axis + rank : axis);
    return KOLO_OK;
}

/* ---- outputs ---- */

static kolo_status output_item(onnx_call *c, int i, onnx_item **item) {
    if (i >= c->n_out || !*onnx_text(c->node->output[i])) {
        *item = kolo_arena_alloc(&c->m->arena, sizeof **item); /* not read */
        return *item ? KOLO_OK : KOLO_NOMEM(sizeof **item);
    }
    return onnx_add_item(c->m, c->node->output[i], item);
}

int onnx_decide(onnx_import *m, int own) {
    onnx_decisions *d = m->decisions;
    if (!m->decide) {
        while (m->decided < d->n && d->items[m->decided].node < m->node) m->decided++;
        const bool before = m->decided < d->n && d->items[m->decided].node == m->node;
        return before ? d->items[m->decided++].value : own;
    }
    if (!KOLO_GROW(d->items, d->n, d->cap)) {
        m->failed = true;
        return own;
    }
    d->items[d->n++] = (onnx_decision){m->node, own};
    return own;
}

/* Whether the results of an operator are of the type of input k. */
static bool has_type_of(const onnx_call *c, int k) {
    const char *name = c->node->op_type;
    if (strcmp(name, "Cast") == 0 || strcmp(name, "CastLike") == 0) return false;
    return strcmp(name, "Pow") == 0 ? k == 0 : strcmp(name, "OneHot") != 0;
}

kolo_status onnx_set(onnx_call *c, int i, kolo_value v) {
    onnx_item *item;
    KOLO_TRY(output_item(c, i, &item));
    item->value = v;
    for (int k = 0; k < c->n_in; k++) {
        item->batched |= c->in[k] && c->in[k]->batched;
        item->whole |= c->in[k] && c->in[k]->whole && has_type_of(c, k);
    }
    kolo_shape shape = kolo_value_shape(c->g, v);
    const int batch =
        onnx_decide(c->m, item->batched && shape.rank > 0 && shape.dim[0] == c->m->samples);
    if (batch && kolo_value_dtype(c->g, v) == KOLO_DTYPE_F32) c->m->batch_of = v;
    return KOLO_OK;
}

kolo_status onnx_set_rows(onnx_call *c, kolo_value rows) {
    const kolo_shape s = kolo_value_shape(c->g, rows);
    KOLO_TRY(kolo_graph_check(c->g));
    kolo_value merged = kolo_reshape(c->g, rows, kolo_shape_2(s.dim[0] * s.dim[1], s.dim[2]));
    KOLO_TRY(onnx_set(c, 0, merged));
    if (*onnx_text(c->node->output[0])) c->m->items[c->m->n_items - 1]->rows = rows;
    return KOLO_OK;
}

/* The item of output i; NULL: the file does not name it. */
static onnx_item *item_of(const onnx_call *c, int i) {
    return i < c->n_out ? onnx_find_item(c->m, onnx_text(c->node->output[i])) : NULL;
}

kolo_status onnx_set_boolean(onnx_call *c, int i, kolo_value v) {
    KOLO_TRY(onnx_set(c, i, v));
    onnx_item *item = item_of(c, i);
    if (!item) return KOLO_OK;
    item->boolean = true;
    item->whole = false;
    return KOLO_OK;
}

kolo_status onnx_set_whole(onnx_call *c, int i, kolo_value v) {
    KOLO_TRY(onnx_set(c, i, v));
    onnx_item *item = item_of(c, i);
    if (item) item->whole = true;
    return KOLO_OK;
}

kolo_status onnx_set_constant(onnx_call *c, int i, const host_tensor *t) {
    onnx_item *item;
    KOLO_TRY(output_item(c, i, &item));
    item->constant = true;
    item->tensor = *t;
    return KOLO_OK;
}

kolo_status onnx_new_constant(onnx_call *c, const kolo_shape *shape, bool integer, host_tensor *t,
                              float **f, int64_t **i) {
    *t = (host_tensor){.shape = *shape, .integer = integer, .count = host_count(shape, HOST_MOST)};
    if (integer) {
        KOLO_TRY(onnx_indices(c, t->count, i));
        t->i = *i;
    } else {
        KOLO_TRY(onnx_floats(c, t->count, f));
        t->f = *f;
    }
    return KOLO_OK;
}

/* ---- helpers ---- */

enum { COPY = 256 }; /* a copy of a value is a part of a node of the graph */

/* `weight`: what an element counts for. */
static kolo_status take(onnx_call *c, int64_t count, int64_t weight, size_t each, void **data) {
    if (count < 0 || count > (HOST_MOST - c->m->computed) / weight) {
        return ONNX_FAIL(c, "more than %d elements of constants or %d copies of values in all",
                         HOST_MOST, HOST_MOST / COPY);
    }
    c->m->computed += count * weight;
    const size_t bytes = (size_t)(count ? count : 1) * each;
    *data = kolo_arena_alloc(&c->m->arena, bytes);
    return *data ? KOLO_OK : KOLO_NOMEM(bytes);
}

kolo_status onnx_floats(onnx_call *c, int64_t count, float **f) {
    void *data = NULL;
    KOLO_TRY(take(c, count, 1, sizeof **f, &data));
    *f = data;
    return KOLO_OK;
}

kolo_status onnx_indices(onnx_call *c, int64_t count, int64_t **i) {
    void *data = NULL;
    KOLO_TRY(take(c, count, 1, sizeof **i, &data));
    *i = data;
    return KOLO_OK;
}

kolo_status onnx_copies(onnx_call *c, int64_t count, kolo_value **v) {
    void *data = NULL;
    KOLO_TRY(take(c, count, COPY, sizeof **v, &data));
    *v = data;
    return KOLO_OK;
}

bool onnx_broadcast(const kolo_shape *a, const kolo_shape *b, kolo_shape *out) {
    kolo_shape joined = {.rank = a->rank > b->rank ? a->rank : b->rank};
    for (int d = 0; d < joined.rank; d++) {
        int i = d - (joined.rank - a->rank), j = d - (joined.rank - b->rank);
        int64_t m = i >= 0 ? a->dim[i] : 1, n = j >= 0 ? b->dim[j] : 1;
        if (m != n && m != 1 && n != 1) return false;
        joined.dim[d] = m == 1 ? n : m;
    }
    *out = joined; /* which may be a or b */
    return true;
}

/* Zeros [n,1,...] of `rank` dimensions. */
static kolo_value zero_of_batch(onnx_call *c, int rank) {
    const kolo_value x = c->m->batch_of;
    const kolo_shape s = kolo_value_shape(c->g, x);
    const kolo_shape rows = kolo_shape_2(s.dim[0], kolo_shape_count(&s) / s.dim[0]);
    const kolo_shape one = {.rank = rank, .dim = {s.dim[0], 1, 1, 1, 1, 1}};
    kolo_value first = kolo_slice(c->g, kolo_reshape(c->g, x, rows), 1, 0, 1);
    return kolo_scale(c->g, kolo_stop_gradient(c->g, kolo_reshape(c->g, first, one)), 0);
}

kolo_status onnx_expand(onnx_call *c, kolo_value x, const kolo_shape *shape, kolo_value *y) {
    kolo_shape have = kolo_value_shape(c->g, x), joined;
    const bool differs = have.rank < shape->rank || (have.rank == shape->rank && have.rank > 0 &&
                                                     have.dim[0] != shape->dim[0]);
    const int batch = onnx_decide(c->m, differs && shape->dim[0] == c->m->samples);
    *y = x;
    if (!batch && kolo_shape_equal(&have, shape)) return KOLO_OK;
    if (!onnx_broadcast(&have, shape, &joined) || !kolo_shape_equal(&joined, shape)) {
        char a[KOLO_SHAPE_TEXT], b[KOLO_SHAPE_TEXT];
        return ONNX_FAIL(c, "%s cannot be repeated to %s", kolo_shape_text(&have, a),
                         kolo_shape_text(shape, b));
    }
    kolo_shape full = {.rank = shape->rank};
    for (int d = 0; d < full.rank; d++) {
        int from = d - (full.rank - have.rank);
        full.dim[d] = from >= 0 ? have.dim[from] : 1;
    }
    if (full.rank != have.rank) *y = kolo_reshape(c->g, x, full);
    for (int d = 0; d < full.rank; d++) {
        if (d == 0 && batch && c->m->batch_of.id >= 0) {
            *y = kolo_add(c->g, zero_of_batch(c, full.rank), *y);
            continue;
        }
        if (full.dim[d] == shape->dim[d]) continue;
        kolo_value *copies = NULL;
        KOLO_TRY(onnx_copies(c, shape->dim[d], &copies));
        KOLO_ASSERT(copies);
        for (int64_t k = 0; k < shape->dim[d]; k++) copies[k] = *y;
        *y = kolo_concat_along(c->g, copies, (int)shape->dim[d], d);
    }
    return kolo_graph_check(c->g);
}

/* Selection along dimension 1, which another one changes places with: the ops on others view x as
 * [outer,size,inner], which would merge the samples with dimensions outside them. */
static kolo_status pick_swapped(onnx_call *c, kolo_value x, int axis, const int64_t *index,
                                int64_t n, kolo_value *y) {
    KOLO_TRY(onnx_pick(c, kolo_transpose(c->g, x, axis, 1), 1, index, n, y));
    *y = kolo_transpose(c->g, *y, axis, 1);
    return kolo_graph_check(c->g);
}

/* The end of the run of successive indices that begins at k. */
static int64_t run_end(const int64_t *index, int64_t k, int64_t n) {
    int64_t end = k + 1;
    while (end < n && index[end] == index[end - 1] + 1) end++;
    return end;
}

kolo_status onnx_pick(onnx_call *c, kolo_value x, int axis, const int64_t *index, int64_t n,
                      kolo_value *y) {
    const kolo_shape s = kolo_value_shape(c->g, x);
    const int inside =
        onnx_decide(c->m, c->in[0]->batched && s.rank > 2 && s.dim[0] != c->m->samples);
    if (inside && axis != 1) return pick_swapped(c, x, axis, index, n, y);
    int64_t runs = 0;
    kolo_value *part = NULL;
    for (int64_t k = 0; k < n; k++) {
        if (index[k] >= 0 && index[k] < s.dim[axis]) continue;
        return ONNX_FAIL(c, "index %" PRId64 " outside [0, %" PRId64 ")", index[k], s.dim[axis]);
    }
    for (int64_t k = 0; k < n; k = run_end(index, k, n)) runs++;
    if (runs < 1) return ONNX_FAIL(c, "an empty selection along dimension %d", axis);
    KOLO_TRY(onnx_copies(c, runs, &part));
    KOLO_ASSERT(part);
    for (int64_t k = 0, r = 0; k < n; r++) {
        const int64_t end = run_end(index, k, n);
        const bool all = end - k == s.dim[axis];
        part[r] = all ? x : kolo_slice(c->g, x, axis, index[k], end - k);
        k = end;
    }
    *y = runs == 1 ? part[0] : kolo_concat_along(c->g, part, (int)runs, axis);
    return kolo_graph_check(c->g);
}

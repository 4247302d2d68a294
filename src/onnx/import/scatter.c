/* Elements, or slices, of data that constant indices select: GatherND and GatherElements take them,
 * ScatterND and ScatterElements replace them by updates, or combine them with these. Exporters
 * write assignments to slices so. */
#include "base/integer.h"
#include "onnx/import/fold.h"
#include "onnx/import/ops.h"

#include <inttypes.h>
#include <string.h>

/* The first `depth` dimensions of data are one: `rows` rows of `width` elements. Update k is for
 * row row[k] of them. */
typedef struct scatter {
    int depth;
    int64_t rows, width, n;
    int64_t *row;
} scatter;

/* The row that a tuple of indices selects. */
static kolo_status row_of(onnx_call *c, const kolo_shape *data, int depth, const int64_t *tuple,
                          int64_t *row) {
    *row = 0;
    for (int d = 0; d < depth; d++) {
        const int64_t index = tuple[d] < 0 ? tuple[d] + data->dim[d] : tuple[d];
        if (index < 0 || index >= data->dim[d]) {
            return ONNX_FAIL(c, "index %" PRId64 " of dimension %d is outside [0, %" PRId64 ")",
                             tuple[d], d, data->dim[d]);
        }
        *row = *row * data->dim[d] + index;
    }
    return KOLO_OK;
}

/* An index for an element, instead of a tuple for a slice: of the element at its own place, but for
 * one dimension, where it counts. */
static bool is_by_element(const onnx_call *c) { return strstr(c->node->op_type, "ND") == NULL; }

static kolo_status read_elements(onnx_call *c, const kolo_shape *data, scatter *s) {
    const host_tensor *at = NULL;
    int64_t tuple[KOLO_MAX_RANK] = {0};
    int axis;
    KOLO_TRY(onnx_constant(c, 1, &at));
    KOLO_ASSERT(at);
    KOLO_TRY(onnx_axis(c, onnx_int(c, "axis", 0), data->rank, &axis));
    if (!at->integer || at->count < 1 || at->shape.rank != data->rank) {
        return ONNX_FAIL(c, "the indices do not fit the data");
    }
    *s = (scatter){.depth = data->rank, .rows = kolo_shape_count(data), .width = 1, .n = at->count};
    KOLO_TRY(onnx_indices(c, s->n, &s->row));
    KOLO_ASSERT(s->row);
    for (int64_t k = 0; k < s->n; k++) {
        int64_t rest = k;
        for (int d = data->rank - 1; d >= 0; d--) {
            tuple[d] = d == axis ? at->i[k] : rest % at->shape.dim[d];
            rest /= at->shape.dim[d];
        }
        KOLO_TRY(row_of(c, data, data->rank, tuple, &s->row[k]));
    }
    return KOLO_OK;
}

/* Reads the indices, of data with these sizes. */
static kolo_status read_scatter(onnx_call *c, const kolo_shape *data, scatter *s) {
    const host_tensor *at = NULL;
    if (is_by_element(c)) return read_elements(c, data, s);
    KOLO_TRY(onnx_constant(c, 1, &at));
    KOLO_ASSERT(at);
    const int last = at->shape.rank - 1;
    *s = (scatter){.rows = 1, .width = 1};
    if (!at->integer || last < 0 || at->count < 1 || at->shape.dim[last] > data->rank) {
        return ONNX_FAIL(c, "the indices do not fit the data");
    }
    s->depth = (int)at->shape.dim[last];
    s->n = at->count / s->depth;
    for (int d = 0; d < data->rank; d++) *(d < s->depth ? &s->rows : &s->width) *= data->dim[d];
    KOLO_TRY(onnx_indices(c, s->n, &s->row));
    KOLO_ASSERT(s->row);
    for (int64_t k = 0; k < s->n; k++) {
        KOLO_TRY(row_of(c, data, s->depth, at->i + k * s->depth, &s->row[k]));
    }
    return KOLO_OK;
}

/* ---- on constants ---- */

static float joined(char how, float a, float b) {
    switch (how) {
    case 'a':
        return a + b;
    case 'u':
        return a * b;
    case 'i':
        return a < b ? a : b;
    case 'x':
        return a > b ? a : b;
    default:
        return b;
    }
}

/* Integers wrap, as in ONNX. */
static int64_t joined_integers(char how, int64_t a, int64_t b) {
    switch (how) {
    case 'a':
        return (int64_t)((uint64_t)a + (uint64_t)b);
    case 'u':
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case 'i':
        return kolo_min_i64(a, b);
    case 'x':
        return kolo_max_i64(a, b);
    default:
        return b;
    }
}

/* A letter for each reduction: of add, mul, min and max one that only it has; 'n': none. */
static kolo_status reduction_of(onnx_call *c, char *how) {
    static const char *const names[] = {"add", "mul", "min", "max", "none"};
    for (size_t i = 0; i < KOLO_COUNT(names); i++) {
        if (!onnx_text_is(c, "reduction", names[i], i == KOLO_COUNT(names) - 1)) continue;
        *how = names[i][0] == 'm' ? names[i][1] == 'a' ? 'x' : names[i][1] : names[i][0];
        return KOLO_OK;
    }
    return ONNX_FAIL(c, "attribute reduction: add, mul, min, max and none are supported");
}

kolo_status onnx_fold_scatter(onnx_call *c) {
    const host_tensor *x = &c->in[0]->tensor, *updates = &c->in[2]->tensor;
    scatter s = {0};
    host_tensor y;
    float *f = NULL;
    int64_t *i = NULL;
    char how = 0;
    KOLO_TRY(reduction_of(c, &how));
    KOLO_TRY(read_scatter(c, &x->shape, &s));
    if (updates->count != s.n * s.width || updates->integer != x->integer) {
        return ONNX_FAIL(c, "the updates do not fit the indices");
    }
    KOLO_TRY(onnx_new_constant(c, &x->shape, x->integer, &y, &f, &i));
    y.boolean = x->boolean;
    if (i) memcpy(i, x->i, (size_t)x->count * sizeof *i);
    if (f) memcpy(f, x->f, (size_t)x->count * sizeof *f);
    for (int64_t k = 0; k < updates->count; k++) {
        const int64_t to = s.row[k / s.width] * s.width + k % s.width;
        if (i) i[to] = joined_integers(how, i[to], updates->i[k]);
        if (f) f[to] = joined(how, f[to], updates->f[k]);
    }
    return onnx_set_constant(c, 0, &y);
}

/* ---- on values ---- */

/* Replaces rows of x along `axis` by those of the updates; of several for a row the last counts. */
static kolo_status replace_rows(onnx_call *c, const scatter *s, kolo_value x, kolo_value updates,
                                int axis, kolo_value *y) {
    const int64_t rows = kolo_value_shape(c->g, x).dim[axis];
    int64_t *source;
    KOLO_TRY(onnx_indices(c, rows, &source));
    for (int64_t r = 0; r < rows; r++) source[r] = r;
    for (int64_t k = 0; k < s->n; k++) source[s->row[k]] = rows + k;
    *y = kolo_concat_along(c->g, (kolo_value[]){x, updates}, 2, axis);
    KOLO_TRY(kolo_graph_check(c->g));
    return onnx_pick(c, *y, axis, source, rows, y);
}

/* Update `from` of each row that has as many: source[row], and 1 in f[row]. `seen`: room for a
 * number of each row. False: none has. */
static bool next_updates(const scatter *s, int64_t from, int64_t rows, int64_t *seen,
                         int64_t *source, float *f) {
    bool any = false;
    for (int64_t r = 0; r < rows; r++) {
        seen[r] = source[r] = 0;
        f[r] = 0;
    }
    for (int64_t k = 0; k < s->n; k++) {
        const int64_t r = s->row[k];
        if (seen[r]++ != from) continue;
        source[r] = k;
        f[r] = 1;
        any = true;
    }
    return any;
}

static kolo_value reduce(kolo_graph *g, char how, kolo_value a, kolo_value b) {
    return how == 'a'   ? kolo_add(g, a, b)
           : how == 'u' ? kolo_mul(g, a, b)
           : how == 'i' ? kolo_minimum(g, a, b)
                        : kolo_maximum(g, a, b);
}

/* Combines rows of x along `axis` with those of the updates, one update of each row after the
 * other. */
static kolo_status reduce_rows(onnx_call *c, const scatter *s, char how, kolo_value x,
                               kolo_value updates, int axis, kolo_value *y) {
    kolo_shape of_rows = kolo_value_shape(c->g, x);
    const int64_t rows = of_rows.dim[axis];
    of_rows.rank -= axis;
    for (int d = 0; d < of_rows.rank; d++) of_rows.dim[d] = d == 0 ? rows : 1;
    for (int64_t from = 0;; from++) {
        int64_t *seen = NULL, *source = NULL;
        float *f = NULL;
        kolo_value part, has;
        KOLO_TRY(onnx_indices(c, rows, &seen));
        KOLO_TRY(onnx_indices(c, rows, &source));
        KOLO_TRY(onnx_floats(c, rows, &f));
        if (!next_updates(s, from, rows, seen, source, f)) break;
        KOLO_TRY(onnx_pick(c, updates, axis, source, rows, &part));
        KOLO_TRY(onnx_table(c, c->node->output[0], &of_rows, f, &has));
        const kolo_value lacks = kolo_add_number(c->g, kolo_scale(c->g, has, -1), 1);
        x = kolo_add(c->g, kolo_mul(c->g, x, lacks),
                     kolo_mul(c->g, reduce(c->g, how, x, part), has));
        KOLO_TRY(kolo_graph_check(c->g));
    }
    *y = x;
    return KOLO_OK;
}

/* Indices that select the same rows of every sample become those of one sample. The first index of
 * a tuple is the sample, of as many as the file states or the graph has. */
static kolo_status rows_of_a_sample(onnx_call *c, const kolo_shape *data, scatter *s, bool *same) {
    const int64_t samples = data->dim[0], stated = c->m->stated;
    kolo_shape most = *data;
    most.dim[0] = kolo_max_i64(samples, stated);
    KOLO_TRY(read_scatter(c, &most, s));
    const int64_t of_sample = s->rows / most.dim[0];
    int64_t last = 0;
    for (int64_t k = 0; k < s->n; k++) last = kolo_max_i64(last, s->row[k] / of_sample);
    const int64_t groups = last + 1, each = s->n / groups;
    *same = s->depth > 1 && s->n % groups == 0 && (groups == samples || groups == stated);
    for (int64_t k = 0; k < s->n && *same; k++) {
        *same = s->row[k] == k / each * of_sample + s->row[k % each];
    }
    if (!*same) return KOLO_OK;
    s->n = each;
    s->rows = of_sample;
    return KOLO_OK;
}

/* The updates as [samples, n, ...]. Those for one sample count for each. */
static kolo_status updates_as(onnx_call *c, kolo_value updates, const kolo_shape *shape,
                              kolo_value *as) {
    const kolo_shape have = kolo_value_shape(c->g, updates);
    kolo_shape one = *shape;
    const int64_t count = kolo_shape_count(&have);
    const bool fits = count == kolo_shape_count(shape); /* for a single sample also those for one */
    if (onnx_decide(c->m, fits) && fits) {
        *as = onnx_as(c, updates, *shape);
        return KOLO_OK;
    }
    one.dim[0] = 1;
    if (count != kolo_shape_count(&one)) {
        return ONNX_FAIL(c, "the updates do not fit the indices");
    }
    return onnx_expand(c, onnx_as(c, updates, one), shape, as);
}

/* Whether all elements of an initializer are equal. Written into a constant they are no parameter,
 * but the number that `mask[:4] = 1` assigns, which exporters repeat to the slice. */
static bool is_filled(const onnx_item *item) {
    const host_tensor *t = &item->tensor;
    bool equal = item->constant && t->count > 0;
    for (int64_t k = 1; k < t->count && equal; k++) equal = host_number(t, k) == host_number(t, 0);
    return equal;
}

/* The rows that the indices select, of each sample (*first) or of all data. Of data with the
 * samples first, some of them are selected only where the graph has as many as the file states. */
static kolo_status read_rows(onnx_call *c, const kolo_shape *data, scatter *s, bool *first) {
    const bool batched = c->in[0]->batched;
    const bool stated = c->m->samples == c->m->stated && !c->m->decide;
    bool same = false;
    if (onnx_decide(c->m, batched && data->dim[0] == c->m->samples)) {
        KOLO_TRY(rows_of_a_sample(c, data, s, &same));
        *first = same;
        if (same) return KOLO_OK;
        if (!stated)
            return ONNX_FAIL(c, "the indices must select the same elements of every sample");
    }
    *first = false;
    KOLO_TRY(read_scatter(c, data, s));
    if (!batched || s->depth <= 1 || stated) return KOLO_OK;
    return ONNX_FAIL(c, "%d indices for an element, the first of which is not the sample",
                     s->depth);
}

/* Data as rows, of each sample or in all. */
static kolo_shape as_rows(const kolo_shape *data, const scatter *s, bool first) {
    kolo_shape flat = {.rank = first};
    if (first) flat.dim[0] = data->dim[0];
    flat.dim[flat.rank++] = s->rows;
    for (int d = s->depth; d < data->rank; d++) flat.dim[flat.rank++] = data->dim[d];
    return flat;
}

/* The shape of what GatherND or GatherElements takes from data. */
static kolo_status gathered_shape(onnx_call *c, const kolo_shape *data, const scatter *s,
                                  kolo_shape *y) {
    *y = c->in[1]->tensor.shape;
    if (onnx_int(c, "batch_dims", 0) != 0) return ONNX_FAIL(c, "attribute batch_dims");
    if (is_by_element(c)) return KOLO_OK;
    y->rank--;
    if (y->rank + data->rank - s->depth > KOLO_MAX_RANK) {
        return ONNX_FAIL(c, "a result of too many dimensions");
    }
    for (int d = s->depth; d < data->rank; d++) y->dim[y->rank++] = data->dim[d];
    return KOLO_OK;
}

kolo_status onnx_fold_gather_places(onnx_call *c) {
    const host_tensor *x = &c->in[0]->tensor;
    kolo_shape shape;
    scatter s = {0};
    host_tensor y;
    float *f = NULL;
    int64_t *i = NULL;
    KOLO_TRY(read_scatter(c, &x->shape, &s));
    KOLO_TRY(gathered_shape(c, &x->shape, &s, &shape));
    KOLO_TRY(onnx_new_constant(c, &shape, x->integer, &y, &f, &i));
    y.boolean = x->boolean;
    for (int64_t k = 0; k < y.count; k++) {
        const int64_t from = s.row[k / s.width] * s.width + k % s.width;
        if (i) i[k] = x->i[from];
        if (f) f[k] = x->f[from];
    }
    return onnx_set_constant(c, 0, &y);
}

/* GatherND and GatherElements. */
kolo_status onnx_map_gather_places(onnx_call *c) {
    kolo_value x;
    scatter s = {0};
    kolo_shape y;
    bool first = false;
    KOLO_TRY(onnx_value(c, 0, &x));
    const kolo_shape data = kolo_value_shape(c->g, x);
    KOLO_TRY(read_rows(c, &data, &s, &first));
    KOLO_TRY(gathered_shape(c, &data, &s, &y));
    if (first) y.dim[0] = data.dim[0];
    if (kolo_shape_count(&y) != (first ? data.dim[0] : 1) * s.n * s.width) {
        return ONNX_FAIL(c, "the first dimension of the indices must be the samples");
    }
    x = onnx_as(c, x, as_rows(&data, &s, first));
    KOLO_TRY(onnx_pick(c, x, first, s.row, s.n, &x));
    return onnx_set(c, 0, onnx_as(c, x, y));
}

/* ScatterND and ScatterElements. */
kolo_status onnx_map_scatter(onnx_call *c) {
    if (c->in[0]->constant && !c->in[0]->trained && c->in[1]->constant && is_filled(c->in[2])) {
        return onnx_fold_scatter(c);
    }
    kolo_value x, updates, y;
    scatter s = {0};
    char how = 0;
    bool first = false;
    KOLO_TRY(reduction_of(c, &how));
    KOLO_TRY(onnx_value(c, 0, &x));
    KOLO_TRY(onnx_value(c, 2, &updates));
    const kolo_shape data = kolo_value_shape(c->g, x);
    KOLO_TRY(read_rows(c, &data, &s, &first));
    const kolo_shape flat = as_rows(&data, &s, first);
    kolo_shape of_updates = flat;
    of_updates.dim[first] = s.n;
    x = onnx_as(c, x, flat);
    if (first) {
        KOLO_TRY(updates_as(c, updates, &of_updates, &updates));
    } else {
        updates = onnx_as(c, updates, of_updates);
    }
    /* Samples behind the rows: as in onnx_pick. */
    const bool behind = onnx_decide(c->m, !first && c->in[0]->batched && flat.rank > 2) != 0;
    const int axis = first || behind ? 1 : 0;
    if (behind) {
        x = kolo_transpose(c->g, x, 0, 1);
        updates = kolo_transpose(c->g, updates, 0, 1);
    }
    KOLO_TRY(how == 'n' ? replace_rows(c, &s, x, updates, axis, &y)
                        : reduce_rows(c, &s, how, x, updates, axis, &y));
    if (behind) y = kolo_transpose(c->g, y, 0, 1);
    return onnx_set(c, 0, onnx_as(c, y, data));
}

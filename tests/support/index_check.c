/* Compares the index notation of ops with their reference kernels. */
#include "support/index_check.h"

#include "graph/index.h"
#include "kernel/select/select.h"
#include "support/support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The inputs and outputs of one run, in plain layout. */
typedef struct run {
    kolo_kernel_spec spec;
    kolo_attr attr[KOLO_MAX_ATTRS]; /* of a slice */
    void *in[KOLO_MAX_IO], *out[KOLO_MAX_IO];
} run;

static void run_init(run *r, const graph_eval *e, const kolo_node *n) {
    memset(r, 0, sizeof *r);
    kolo_kernel_spec_init(&r->spec, e->g, n, 1);
}

static size_t bytes_of(const kolo_tensor *t) { return kolo_tensor_bytes(t); }

/* Copies elements [first, first + count) of dimension d, or all of it for d < 0; of each of `parts`
 * equal parts of it. */
static void *slice(const kolo_tensor *whole, const char *data, int d, int parts, int64_t first,
                   int64_t count, kolo_tensor *part) {
    kolo_shape shape = whole->shape;
    size_t element = kolo_dtype_bytes(whole->dtype);
    int64_t outer = 1, inner = 1;
    if (d >= 0) shape.dim[d] = parts * count;
    *part = kolo_tensor_plain(whole->dtype, shape);
    char *copy = kolo_zalloc(bytes_of(part) + 1);
    assert_non_null(copy);
    if (d < 0) return memcpy(copy, data, bytes_of(part));
    for (int i = 0; i < d; i++) outer *= shape.dim[i];
    outer *= parts;
    for (int i = d + 1; i < shape.rank; i++) inner *= shape.dim[i];
    size_t row = (size_t)(count * inner) * element;
    for (int64_t i = 0; i < outer; i++) {
        int64_t from = (i * (whole->shape.dim[d] / parts) + first) * inner;
        memcpy(copy + (size_t)i * row, data + (size_t)from * element, row);
    }
    return copy;
}

/* Infers the outputs and runs the reference kernel; false: the op rejects the slice. */
static bool run_kernel(run *r) {
    const kolo_kernel *kernel;
    kolo_shape_query q = {.attr = r->spec.attr,
                          .n_in = r->spec.n_in,
                          .in = r->spec.in,
                          .out = r->spec.out,
                          .op = r->spec.op};
    size_t scratch = 0;
    if (r->spec.op->shape(&q) != KOLO_OK) return false;
    if (r->spec.op->view) {
        kolo_tensor plain = kolo_tensor_plain(r->spec.out[0].dtype, r->spec.out[0].shape);
        r->spec.out[0] = plain;
        r->out[0] = kolo_alloc(bytes_of(&plain) + 1);
        assert_non_null(r->out[0]);
        memcpy(r->out[0], r->in[0], bytes_of(&plain));
        return true;
    }
    ASSERT_OK(kolo_kernel_select(KOLO_KERNELS_REF, &r->spec, &kernel, NULL));
    kolo_call call = {.spec = &r->spec};
    if (kernel->prepare) ASSERT_OK(kernel->prepare(&r->spec, &call.state, &scratch));
    call.scratch = kolo_zalloc(scratch + 1);
    for (int k = 0; k < r->spec.n_in; k++) call.in[k] = r->in[k];
    for (int k = 0; k < r->spec.n_out; k++) {
        call.out[k] = r->out[k] = kolo_zalloc(bytes_of(&r->spec.out[k]) + 1);
        assert_non_null(r->out[k]);
    }
    if (kernel->bind) ASSERT_OK(kernel->bind(&call));
    kernel->run(&call);
    if (kernel->unbind && call.bound) kernel->unbind(call.bound);
    if (kernel->release && call.state) kernel->release(call.state);
    kolo_free(call.scratch);
    return true;
}

static void run_fini(run *r) {
    for (int k = 0; k < KOLO_MAX_IO; k++) {
        kolo_free(r->in[k]);
        kolo_free(r->out[k]);
    }
}

static bool is_float(const kolo_tensor *t) {
    return t->dtype == KOLO_DTYPE_F64 || t->dtype == KOLO_DTYPE_F32;
}

static double number(const kolo_tensor *t, const void *data, int64_t i) {
    if (t->dtype == KOLO_DTYPE_F64) return ((const double *)data)[i];
    if (t->dtype == KOLO_DTYPE_F32) return (double)((const float *)data)[i];
    if (t->dtype == KOLO_DTYPE_I32) return ((const int32_t *)data)[i];
    if (t->dtype == KOLO_DTYPE_I64) return (double)((const int64_t *)data)[i];
    return ((const uint8_t *)data)[i];
}

static void check_equal(const graph_eval *e, const kolo_node *n, const char *what,
                        const kolo_tensor *t, const void *have, const double *want) {
    kolo_shape in[KOLO_MAX_IO];
    char text[KOLO_NOTATION];
    for (int k = 0; k < n->n_in; k++) in[k] = kolo_info(e->g, n->in[k])->tensor.shape;
    for (int64_t i = 0; i < kolo_shape_count(&t->shape); i++) {
        double a = number(t, have, i), b = want[i];
        if (a == b || fabs(a - b) <= 1e-9 * fmax(1, fabs(b))) continue;
        fail_msg("%s, notation \"%s\": %s: element %d is %g, not %g", n->op->name,
                 kolo_op_notation(n->op, n->attr, n->n_in, in, text), what, (int)i, a, b);
    }
}

static double *numbers(const kolo_tensor *t, const void *data) {
    int64_t count = kolo_shape_count(&t->shape);
    double *copy = kolo_alloc((size_t)(count + 1) * sizeof *copy);
    assert_non_null(copy);
    for (int64_t i = 0; i < count; i++) copy[i] = number(t, data, i);
    return copy;
}

static bool is_without(const kolo_index_term *term, int code) {
    for (int i = 0; i < term->n_without; i++) {
        if (term->without[i] == code) return true;
    }
    return false;
}

/* Whether an output is a sum over the index. */
static bool is_summed(const kolo_node *n, const kolo_index *index, int code) {
    for (int k = 0; k < n->n_out; k++) {
        const kolo_index_term *term = &index->out[k];
        if (kolo_index_find(term, code) < 0 && !is_without(term, code)) return true;
    }
    return false;
}

static bool addend_has(const kolo_index *index, int n_in, int addend, int code) {
    for (int k = 0; k < n_in; k++) {
        if (index->in[k].addend == addend && kolo_index_find(&index->in[k], code) >= 0) return true;
    }
    return false;
}

static int parts_of(const kolo_index_term *term, int d, int code) {
    return d < 0 ? 1 : (int)kolo_index_parts(term, d, code);
}

/* Elements of one part of dimension d for each value of its index, of which there are `size`. */
static int64_t elements_each(const kolo_tensor *t, const kolo_index_term *term, int d, int code,
                             int64_t size) {
    return d < 0 ? 1 : t->shape.dim[d] / parts_of(term, d, code) / size;
}

/* An attribute that counts along the index is that of the slice. dim: that of input 0 with the
 * index; to: that of output 0, or -1. */
static void slice_attributes(run *r, const kolo_node *n, int code, int dim, int to, int64_t size,
                             int64_t first, int64_t count) {
    if (n->op->part.dims > 0 && to >= 0) {
        memcpy(r->attr, n->attr, sizeof r->attr);
        r->spec.attr = r->attr;
        int64_t *length = &r->attr[n->op->part.dims - 1 + to].i;
        *length = *length * count / size;
    }
    if (n->op->part.position > 0 && code == 't') {
        memcpy(r->attr, n->attr, sizeof r->attr);
        r->spec.attr = r->attr;
        r->attr[n->op->part.position - 1].i += first;
    }
    const int of_size = n->op->part.size, of_all = n->op->part.all;
    const bool any = n->op->part.index == '*' && code >= KOLO_INDEX_STAR;
    if (n->op->part.index == 0 || (n->op->part.index != code && !any)) return;
    memcpy(r->attr, n->attr, sizeof r->attr);
    r->spec.attr = r->attr;
    for (int i = 0; i < KOLO_MAX_ATTRS; i++) {
        if (n->op->part.lengths >> i & 1) r->attr[i].i = n->attr[i].i * count / size;
    }
    if (of_size > 0) r->attr[of_size - 1].i = count;
    if (n->op->part.first > 0) r->attr[n->op->part.first - 1].i += first;
    if (of_all > 0) r->attr[of_all - 1].i = of_size > 0 && !any ? n->attr[of_size - 1].i : size;
    if (any) r->attr[n->op->part.dim - 1].i = dim;
}

/* The inputs of one slice. Addends without the index are kept by the first slice. */
static void slice_inputs(run *r, const graph_eval *e, const kolo_node *n, const kolo_index *index,
                         int code, int64_t size, int64_t first, int64_t count) {
    for (int k = 0; k < n->n_in; k++) {
        const kolo_tensor *whole = &kolo_info(e->g, n->in[k])->tensor;
        int d = kolo_index_find(&index->in[k], code);
        int64_t each = elements_each(whole, &index->in[k], d, code, size);
        r->in[k] = slice(whole, e->data[n->in[k].id], d, parts_of(&index->in[k], d, code),
                         first * each, count * each, &r->spec.in[k]);
        bool elsewhere = !addend_has(index, n->n_in, index->in[k].addend, code);
        if (elsewhere && is_summed(n, index, code) && index->n_addends > 1 && first > 0) {
            memset(r->in[k], 0, bytes_of(&r->spec.in[k]));
        }
        bool samples = kolo_index_find(&index->in[0], code) == 0;
        bool position = samples && index->in[k].by_shard && whole->dtype == KOLO_DTYPE_I64;
        if (position) *(int64_t *)r->in[k] += first; /* of the first sample */
    }
}

/* Whether the index may be cut so that each slice gives a part of this node's own result: batch
 * statistics are those of a shard. */
static bool is_comparable(const graph_eval *e, const kolo_node *n, const kolo_index *index,
                          int code) {
    for (int k = 0; k < n->n_in + n->n_out; k++) {
        const kolo_index_term *term = k < n->n_in ? &index->in[k] : &index->out[k - n->n_in];
        kolo_value v = k < n->n_in ? n->in[k] : n->out[k - n->n_in];
        bool statistic = term->by_shard && is_float(&kolo_info(e->g, v)->tensor);
        if (statistic && kolo_index_find(term, code) < 0) return false;
    }
    return true;
}

static bool sums_nonlinear(const kolo_node *n, const kolo_index *index, int code) {
    bool relu = n->op->fuse.relu && n->attr[n->op->fuse.relu - 1].i != 0;
    for (int k = 0; relu && k < n->n_out; k++) {
        if (kolo_index_find(&index->out[k], code) < 0) return true; /* placements refuse it */
    }
    return false;
}

static void check_outputs(const graph_eval *e, const kolo_node *n, const kolo_index *index,
                          int code, int64_t size, const run *parts, const int64_t *firsts) {
    for (int k = 0; k < n->n_out; k++) {
        const kolo_tensor *whole = &kolo_info(e->g, n->out[k])->tensor;
        const kolo_index_term *term = &index->out[k];
        int d = kolo_index_find(term, code);
        bool sum = d < 0 && !is_without(term, code);
        double *total = sum ? numbers(&parts[0].spec.out[k], parts[0].out[k]) : NULL;
        for (int p = 0; p < 2; p++) {
            kolo_tensor part;
            const kolo_tensor *have = &parts[p].spec.out[k];
            if (sum) {
                for (int64_t i = 0; p && i < kolo_shape_count(&whole->shape); i++) {
                    double x = number(have, parts[p].out[k], i);
                    total[i] = n->op->combine == KOLO_MAX ? fmax(total[i], x) : total[i] + x;
                }
                continue;
            }
            int64_t each = elements_each(whole, term, d, code, size);
            int64_t count = d >= 0 ? have->shape.dim[d] / parts_of(term, d, code) : 0;
            void *want = slice(whole, e->data[n->out[k].id], d, parts_of(term, d, code),
                               d >= 0 ? firsts[p] * each : 0, count, &part);
            assert_true(kolo_shape_equal(&part.shape, &have->shape));
            double *expected = numbers(&part, want);
            check_equal(e, n, "a slice", have, parts[p].out[k], expected);
            kolo_free(expected);
            kolo_free(want);
        }
        if (sum) check_equal(e, n, "a sum", whole, e->data[n->out[k].id], total);
        kolo_free(total);
    }
}

/* Cuts one index of `size` in two. Whether the op takes the slices. */
static bool check_code(const graph_eval *e, const kolo_node *n, const kolo_index *index, int code,
                       int64_t size) {
    run parts[2];
    const int64_t firsts[2] = {0, (size + 2) / 3}, counts[2] = {firsts[1], size - firsts[1]};
    bool runs = true;
    for (int p = 0; p < 2; p++) run_init(&parts[p], e, n);
    for (int p = 0; p < 2 && runs; p++) {
        slice_inputs(&parts[p], e, n, index, code, size, firsts[p], counts[p]);
        slice_attributes(&parts[p], n, code, kolo_index_find(&index->in[0], code),
                         kolo_index_find(&index->out[0], code), size, firsts[p], counts[p]);
        runs = run_kernel(&parts[p]);
    }
    if (runs) check_outputs(e, n, index, code, size, parts, firsts);
    for (int p = 0; p < 2; p++) run_fini(&parts[p]);
    return runs;
}

/* ---- windows ---- */

/* Whether a node has a window along the index. The first side of its rows and of its places:
 * inputs, then outputs. */
static bool find_window(const kolo_node *n, const kolo_index *index, int code, int *rows,
                        int *places) {
    *rows = *places = -1;
    for (int k = 0; k < n->n_in + n->n_out; k++) {
        const kolo_index_term *term = k < n->n_in ? &index->in[k] : &index->out[k - n->n_in];
        const int d = kolo_index_find(term, code);
        if (d < 0) continue;
        int *side = term->window[d] ? rows : places;
        if (*side < 0) *side = k;
    }
    return *rows >= 0;
}

static int64_t length_at(const graph_eval *e, const kolo_node *n, const kolo_index *index, int k,
                         int code) {
    const kolo_index_term *term = k < n->n_in ? &index->in[k] : &index->out[k - n->n_in];
    const kolo_value v = k < n->n_in ? n->in[k] : n->out[k - n->n_in];
    return kolo_info(e->g, v)->tensor.shape.dim[kolo_index_find(term, code)];
}

/* Adds rows [first, first + count) of dimension d to those of the whole. */
static void add_rows(const kolo_tensor *part, const double *from, int d, int64_t first,
                     const kolo_tensor *whole, double *to) {
    int64_t outer = 1, inner = 1;
    for (int i = 0; i < d; i++) outer *= part->shape.dim[i];
    for (int i = d + 1; i < part->shape.rank; i++) inner *= part->shape.dim[i];
    const int64_t count = part->shape.dim[d] * inner;
    for (int64_t o = 0; o < outer; o++) {
        for (int64_t i = 0; i < count; i++) {
            to[(o * whole->shape.dim[d] + first) * inner + i] += from[o * count + i];
        }
    }
}

/* Gives two nodes some of the places of a window each, and the rows that these need: their results
 * are those of the whole one, or add up to these. */
static bool check_window(const graph_eval *e, const kolo_node *n, const kolo_index *index, int code,
                         int rows_at, int places_at) {
    kolo_shape in[KOLO_MAX_IO];
    double *total[KOLO_MAX_IO] = {NULL};
    for (int k = 0; k < n->n_in; k++) in[k] = kolo_info(e->g, n->in[k])->tensor.shape;
    kolo_window_query q = {.attr = n->attr,
                           .in = in,
                           .length = length_at(e, n, index, rows_at, code),
                           .all = length_at(e, n, index, places_at, code)};
    q.places = (kolo_interval){0, q.all};
    kolo_interval rows;
    const int64_t cuts[] = {0, (q.all + 2) / 3, q.all};
    if (!n->op->window || q.all < 2 || !n->op->window(&q, &rows)) return false;
    for (int k = 0; k < n->n_out; k++) {
        total[k] = calloc((size_t)kolo_tensor_elements(&kolo_info(e->g, n->out[k])->tensor) + 1,
                          sizeof *total[k]);
        assert_non_null(total[k]);
    }
    for (int p = 0; p < 2; p++) {
        run r;
        run_init(&r, e, n);
        q.places = (kolo_interval){cuts[p], cuts[p + 1]};
        assert_true(n->op->window(&q, &rows) && rows.first < rows.end);
        memcpy(r.attr, n->attr, sizeof r.attr);
        n->op->divide_window(&q, rows, r.attr);
        r.spec.attr = r.attr;
        for (int k = 0; k < n->n_in; k++) {
            const int d = kolo_index_find(&index->in[k], code);
            const kolo_interval *own = d >= 0 && index->in[k].window[d] ? &rows : &q.places;
            r.in[k] = slice(&kolo_info(e->g, n->in[k])->tensor, e->data[n->in[k].id], d, 1,
                            own->first, own->end - own->first, &r.spec.in[k]);
        }
        assert_true(run_kernel(&r));
        for (int k = 0; k < n->n_out; k++) {
            const kolo_tensor *part = &r.spec.out[k];
            const int d = kolo_index_find(&index->out[k], code);
            double *numbers_of = numbers(part, r.out[k]);
            assert_true(d >= 0);
            add_rows(part, numbers_of, d, index->out[k].window[d] ? rows.first : q.places.first,
                     &kolo_info(e->g, n->out[k])->tensor, total[k]);
            kolo_free(numbers_of);
        }
        run_fini(&r);
    }
    for (int k = 0; k < n->n_out; k++) {
        check_equal(e, n, "places of a window", &kolo_info(e->g, n->out[k])->tensor,
                    e->data[n->out[k].id], total[k]);
        free(total[k]);
    }
    return true;
}

/* Doubles one linear factor of each addend: outputs double. */
static void check_linear(const graph_eval *e, const kolo_node *n, const kolo_index *index) {
    bool relu = n->op->fuse.relu && n->attr[n->op->fuse.relu - 1].i != 0;
    if (!n->op->linear || relu) return;
    for (int which = 0; which < KOLO_MAX_IO; which++) {
        run r;
        bool doubled[KOLO_MAX_IO] = {false}, any = false;
        run_init(&r, e, n);
        slice_inputs(&r, e, n, index, 0, 1, 0, 0);
        for (int k = 0; k < n->n_in;
             k++) { /* input `which` of its addend, the first of the others */
            int addend = index->in[k].addend;
            bool own = which < n->n_in && addend == index->in[which].addend;
            bool chosen = own ? k == which : !doubled[addend];
            if (!(n->op->linear >> k & 1) || !chosen || !is_float(&r.spec.in[k])) continue;
            any |= k == which;
            doubled[addend] = true;
            for (int64_t i = 0; i < kolo_shape_count(&r.spec.in[k].shape); i++) {
                if (r.spec.in[k].dtype == KOLO_DTYPE_F64) ((double *)r.in[k])[i] *= 2;
                if (r.spec.in[k].dtype == KOLO_DTYPE_F32) ((float *)r.in[k])[i] *= 2;
            }
        }
        for (int a = 0; a < index->n_addends && any; a++) { /* linear in all addends at once */
            bool there = false;
            for (int k = 0; k < n->n_in; k++) there |= index->in[k].addend == a;
            any = doubled[a] || !there;
        }
        if (any && run_kernel(&r)) {
            for (int k = 0; k < n->n_out; k++) {
                const kolo_tensor *t = &kolo_info(e->g, n->out[k])->tensor;
                double *want = numbers(t, e->data[n->out[k].id]);
                for (int64_t i = 0; i < kolo_shape_count(&t->shape); i++) want[i] *= 2;
                if (is_float(t)) check_equal(e, n, "a double", t, r.out[k], want);
                kolo_free(want);
            }
        }
        run_fini(&r);
    }
}

/* Values of an index: the dimensions that have it are multiples of that. */
static int64_t index_size(const graph_eval *e, const kolo_node *n, const kolo_index *index,
                          int code) {
    int64_t size = INT64_MAX;
    for (int k = 0; k < n->n_in + n->n_out; k++) {
        const kolo_index_term *term = k < n->n_in ? &index->in[k] : &index->out[k - n->n_in];
        kolo_value v = k < n->n_in ? n->in[k] : n->out[k - n->n_in];
        int d = kolo_index_find(term, code);
        if (d < 0) continue;
        int64_t own = kolo_info(e->g, v)->tensor.shape.dim[d] / parts_of(term, d, code);
        if (own < size) size = own;
    }
    const bool counted = n->op->part.size > 0 && n->op->part.index == code;
    if (counted && n->attr[n->op->part.size - 1].i < size) size = n->attr[n->op->part.size - 1].i;
    return size;
}

/* Whether the index has a dimension that lists some of its values: no slice of it is one of these.
 */
static bool is_listed(const kolo_node *n, const kolo_index *index, int code) {
    for (int k = 0; k < n->n_in + n->n_out; k++) {
        const kolo_index_term *term = k < n->n_in ? &index->in[k] : &index->out[k - n->n_in];
        const int d = kolo_index_find(term, code);
        if (d >= 0 && term->listed[d]) return true;
    }
    return false;
}

int test_index_of_node(const graph_eval *e, const kolo_node *n) {
    int checked = 0;
    kolo_index index;
    ASSERT_OK(kolo_index_of(e->g, n, &index));
    check_linear(e, n, &index);
    for (int k = 0; k < n->n_in; k++) {
        for (int d = 0; d < index.in[k].n; d++) {
            const int code = index.in[k].code[d];
            int64_t size = index_size(e, n, &index, code);
            bool seen = false;
            for (int j = 0; j < k; j++) seen |= kolo_index_find(&index.in[j], code) >= 0;
            if (seen || code == KOLO_INDEX_WHOLE || size < 2) continue;
            if (is_listed(n, &index, code)) continue;
            int rows, places;
            if (find_window(n, &index, code, &rows, &places)) {
                if (places >= 0) checked += check_window(e, n, &index, code, rows, places);
                continue;
            }
            if (!is_comparable(e, n, &index, code) || sums_nonlinear(n, &index, code)) continue;
            checked += check_code(e, n, &index, code, size);
        }
    }
    return checked;
}

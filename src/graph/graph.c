/* The graph core: values, nodes, leaves and outputs.
 *
 * A failing builder call stores its error in the graph and returns an invalid value. Later calls do
 * nothing, so that a model builder needs no check on each line. */
#include "graph/graph.h"

#include "base/integer.h"

#include <math.h>
#include <string.h>

enum { MOST_NAME = 200 }; /* bytes */

kolo_status kolo_graph_create(const kolo_graph_opts *opts, kolo_graph **graph) {
    if (!graph) return KOLO_FAIL(KOLO_ERR_ARG, "kolo_graph_create: no place for the graph");
    kolo_dtype dtype = opts ? opts->dtype : KOLO_DTYPE_F32;
    if (dtype != KOLO_DTYPE_F32 && dtype != KOLO_DTYPE_F64) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a graph of dtype %d; choose f32 or f64", (int)dtype);
    }
    kolo_graph *g = kolo_zalloc(sizeof *g);
    if (!g) return KOLO_NOMEM(sizeof *g);
    g->dtype = dtype;
    *graph = g;
    return KOLO_OK;
}

void kolo_graph_destroy(kolo_graph *g) {
    if (!g) return;
    kolo_arena_fini(&g->arena);
    kolo_name_index_fini(&g->names);
    kolo_free(g->values);
    kolo_free(g->nodes);
    kolo_free(g->outputs);
    kolo_free(g->failure);
    kolo_free(g);
}

/* A copy of n values, which belong to any graph. */
static void copy_values(kolo_value *to, const kolo_value *from, int n) {
    for (int i = 0; i < n; i++) to[i] = (kolo_value){.id = from[i].id};
}

static kolo_node *copy_node(kolo_arena *arena, const kolo_node *n) {
    kolo_node *copy = kolo_arena_alloc(arena, sizeof *copy);
    kolo_value *values = kolo_arena_alloc(arena, (size_t)(n->n_in + n->n_out + 1) * sizeof *values);
    if (!copy || !values) return NULL;
    *copy = *n;
    copy->in = values;
    copy->out = values + n->n_in;
    copy_values(copy->in, n->in, n->n_in);
    copy_values(copy->out, n->out, n->n_out);
    return copy;
}

static bool copy_all(kolo_graph *to, const kolo_graph *g) {
    to->cap_values = (size_t)g->n_values + 1;
    to->cap_nodes = (size_t)g->n_nodes + 1;
    to->cap_outputs = (size_t)g->n_outputs + 1;
    to->values = kolo_alloc(to->cap_values * sizeof *to->values);
    to->nodes = kolo_alloc(to->cap_nodes * sizeof *to->nodes);
    to->outputs = kolo_alloc(to->cap_outputs * sizeof *to->outputs);
    if (!to->values || !to->nodes || !to->outputs) return false;
    for (int32_t v = 0; v < g->n_values; v++) {
        to->values[v] = g->values[v];
        copy_values(&to->values[v].grad, &g->values[v].grad, 1);
        copy_values(&to->values[v].next_of, &g->values[v].next_of, 1);
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        to->outputs[i] = g->outputs[i];
        copy_values(&to->outputs[i].value, &g->outputs[i].value, 1);
        copy_values(&to->outputs[i].gradient, &g->outputs[i].gradient, 1);
        copy_values(&to->outputs[i].parameter, &g->outputs[i].parameter, 1);
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        to->nodes[i] = copy_node(&to->arena, g->nodes[i]);
        if (!to->nodes[i]) return false;
    }
    return true;
}

kolo_status kolo_graph_copy(const kolo_graph *g, kolo_graph **copy) {
    KOLO_TRY(kolo_graph_check(g));
    kolo_graph *c = kolo_zalloc(sizeof *c);
    if (!c) return KOLO_NOMEM(sizeof *c);
    *c = *g;
    c->arena = (kolo_arena){0};
    c->names = (kolo_name_index){0};
    c->values = NULL;
    c->nodes = NULL;
    c->outputs = NULL;
    if (!copy_all(c, g)) {
        kolo_graph_destroy(c);
        return KOLO_NOMEM((size_t)g->n_values * sizeof *c->values);
    }
    *copy = c;
    return KOLO_OK;
}

void kolo_graph_set_failed(kolo_graph *g, kolo_status status) {
    if (g->status != KOLO_OK) return;
    g->status = status;
    g->failure = kolo_strdup(kolo_last_error()); /* NULL if out of memory */
}

kolo_status kolo_graph_check(const kolo_graph *g) {
    if (!g) return KOLO_FAIL(KOLO_ERR_ARG, "kolo_graph_check: no graph");
    if (g->status == KOLO_OK) return KOLO_OK;
    return KOLO_FAIL(g->status, "%s", g->failure ? g->failure : "out of memory for the graph");
}

int64_t kolo_graph_parameters(const kolo_graph *g) {
    int64_t total = 0;
    for (int i = 0; g && i < g->n_values; i++) {
        const kolo_value_info *v = &g->values[i];
        if (v->kind == KOLO_VALUE_PARAM && !v->frozen) total += kolo_shape_count(&v->canon);
    }
    return total;
}

/* ---- values ---- */

/* Identifies a graph among those that exist: their addresses differ in these bits. Never 0. */
static uint32_t tag_of(const kolo_graph *g) { return (uint32_t)((uintptr_t)g >> 4) | 1U << 31; }

bool kolo_value_is_of(const kolo_graph *g, kolo_value v) {
    return v.id >= 0 && v.id < g->n_values && (v.graph == 0 || v.graph == tag_of(g));
}

/* "is not a value of this graph", more exactly if possible. */
static const char *why_not(const kolo_graph *g, kolo_value v) {
    bool other = v.id >= 0 && v.graph != 0 && v.graph != tag_of(g);
    return other ? "is a value of another graph" : "is not a value of this graph";
}

kolo_shape kolo_value_shape(const kolo_graph *g, kolo_value v) {
    const kolo_shape none = {.rank = 0, .dim = {1, 1, 1, 1, 1, 1}};
    return g && kolo_value_is_of(g, v) ? kolo_info(g, v)->tensor.shape : none;
}

kolo_dtype kolo_value_dtype(const kolo_graph *g, kolo_value v) {
    return g && kolo_value_is_of(g, v) ? kolo_info(g, v)->tensor.dtype : KOLO_DTYPE_F32;
}

/* Adds a value; name may be NULL. KOLO_NONE if the graph has failed. */
static kolo_value add_value(kolo_graph *g, const char *name, kolo_value_kind kind,
                            kolo_tensor tensor) {
    if (g->status != KOLO_OK) return KOLO_NONE;
    char *copy = name ? kolo_arena_strdup(&g->arena, name) : NULL;
    if ((name && !copy) || !KOLO_GROW(g->values, g->n_values, g->cap_values) ||
        (name && !kolo_name_index_add(&g->names, copy, g->n_values))) {
        kolo_graph_set_failed(g, KOLO_NOMEM(sizeof *g->values));
        return KOLO_NONE;
    }
    g->values[g->n_values] = (kolo_value_info){
        .name = copy,
        .kind = kind,
        .tensor = tensor,
        .producer = -1,
        .canon = tensor.shape,
        .grad = KOLO_NONE,
        .next_of = KOLO_NONE,
    };
    return (kolo_value){.id = g->n_values++, .graph = tag_of(g)};
}

static bool is_utf8(const char *text) {
    for (const unsigned char *c = (const unsigned char *)text; *c;) {
        int length = kolo_utf8_length(c);
        if (length == 0) return false;
        c += length;
    }
    return true;
}

static bool has_control(const char *text) {
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c < 0x20 || *c == 0x7f) return true;
    }
    return false;
}

/* Whether a value may have this name: files store it. If not, fails the graph. */
static bool may_name(kolo_graph *g, const char *what, const char *name) {
    if (g->status != KOLO_OK) return false;
    kolo_status status = KOLO_OK;
    if (!name || !*name) {
        status = KOLO_FAIL(KOLO_ERR_ARG, "%s: no name; give it one", what);
    } else if (strlen(name) > MOST_NAME) {
        status = KOLO_FAIL(KOLO_ERR_ARG, "%s %.20s...: a name of %zu characters; at most %d fit",
                           what, name, strlen(name), MOST_NAME);
    } else if (!is_utf8(name)) {
        status = KOLO_FAIL(KOLO_ERR_ARG, "%s: its name is not UTF-8", what);
    } else if (has_control(name)) {
        status = KOLO_FAIL(KOLO_ERR_ARG, "%s \"%s\": its name has a control character", what, name);
    } else if (strncmp(name, "__", 2) == 0) {
        status = KOLO_FAIL(
            KOLO_ERR_ARG, "%s %s: names that begin with \"__\" are reserved for files", what, name);
    }
    if (status != KOLO_OK) kolo_graph_set_failed(g, status);
    return status == KOLO_OK;
}

/* The same for an input or parameter. */
static bool may_name_leaf(kolo_graph *g, const char *what, const char *name) {
    static const char *const scalars[] = {"lr",    "update",  "grad_scale",  "share",
                                          "fresh", "rng_key", "first_sample"};
    if (!may_name(g, what, name)) return false;
    kolo_status status = KOLO_OK;
    if (strncmp(name, "optimizer.", 10) == 0) {
        status = KOLO_FAIL(KOLO_ERR_ARG,
                           "%s %s: names that begin with \"optimizer.\" are reserved for its state",
                           what, name);
    }
    for (size_t i = 0; i < KOLO_COUNT(scalars); i++) {
        if (strcmp(name, scalars[i]) != 0) continue;
        status = KOLO_FAIL(KOLO_ERR_ARG, "%s %s: the name of a scalar of training; choose another",
                           what, name);
    }
    if (status != KOLO_OK) kolo_graph_set_failed(g, status);
    return status == KOLO_OK;
}

/* Adds a leaf; checks that its name is unique and its shape valid. */
static kolo_value add_leaf(kolo_graph *g, const char *name, kolo_value_kind kind, kolo_dtype dtype,
                           const kolo_shape *shape) {
    if (g->status != KOLO_OK) return KOLO_NONE;
    char text[KOLO_SHAPE_TEXT];
    kolo_status status = KOLO_OK;
    if ((unsigned)dtype >= KOLO_TENSOR_DTYPE_COUNT) {
        status = KOLO_FAIL(KOLO_ERR_ARG, "%s: no such dtype: %d", name, (int)dtype);
    } else if (kolo_value_ok(kolo_graph_find(g, name))) {
        status = KOLO_FAIL(KOLO_ERR_ARG, "\"%s\" is defined twice; names are unique", name);
    } else if (shape->rank < 0 || shape->rank > KOLO_MAX_RANK) {
        status = KOLO_FAIL(KOLO_ERR_ARG, "%s: rank %d outside [0, %d]", name, shape->rank,
                           KOLO_MAX_RANK);
    }
    int64_t count = 1;
    for (int i = 0; status == KOLO_OK && i < shape->rank; i++) {
        if (shape->dim[i] < 1 || count > INT64_MAX / 64 / shape->dim[i]) {
            status = KOLO_FAIL(KOLO_ERR_ARG,
                               "%s: shape %s has a dimension below 1, or too many elements", name,
                               kolo_shape_text(shape, text));
        } else {
            count *= shape->dim[i];
        }
    }
    if (status != KOLO_OK) {
        kolo_graph_set_failed(g, status);
        return KOLO_NONE;
    }
    return add_value(g, name, kind, kolo_tensor_plain(dtype, *shape));
}

kolo_value kolo_input(kolo_graph *g, const char *name, kolo_dtype dtype, kolo_shape shape) {
    if (!may_name_leaf(g, "input", name)) return KOLO_NONE;
    return add_leaf(g, name, KOLO_VALUE_INPUT, dtype == KOLO_DTYPE_F32 ? g->dtype : dtype, &shape);
}

kolo_value kolo_scalar(kolo_graph *g, const char *name) {
    if (!may_name(g, "scalar", name)) return KOLO_NONE;
    kolo_shape scalar = kolo_shape_0();
    return add_leaf(g, name, KOLO_VALUE_SCALAR, g->dtype, &scalar);
}

kolo_value kolo_graph_scalar(kolo_graph *g, const char *name, kolo_dtype dtype) {
    kolo_shape scalar = kolo_shape_0();
    kolo_value v = kolo_graph_find(g, name);
    return kolo_value_ok(v) ? v : add_leaf(g, name, KOLO_VALUE_SCALAR, dtype, &scalar);
}

kolo_init kolo_init_fan_in(int64_t fan_in) {
    return (kolo_init){KOLO_INIT_UNIFORM, 1.0 / sqrt((double)kolo_max_i64(fan_in, 1))};
}

/* Fails the graph if the initial distribution of parameter `name` is invalid. */
static bool may_init(kolo_graph *g, const char *name, kolo_init init) {
    kolo_status status = KOLO_OK;
    if ((unsigned)init.kind > KOLO_INIT_NORMAL) {
        status =
            KOLO_FAIL(KOLO_ERR_ARG, "%s: no such initial distribution: %d", name, (int)init.kind);
    } else if (!isfinite(init.scale)) {
        status = KOLO_FAIL(KOLO_ERR_ARG, "%s: initial values with a scale of %g; give a finite one",
                           name, init.scale);
    }
    if (status != KOLO_OK) kolo_graph_set_failed(g, status);
    return status == KOLO_OK;
}

kolo_value kolo_param(kolo_graph *g, const char *name, kolo_shape shape, kolo_init init) {
    if (!may_name_leaf(g, "parameter", name) || !may_init(g, name, init)) return KOLO_NONE;
    kolo_value v = add_leaf(g, name, KOLO_VALUE_PARAM, g->dtype, &shape);
    if (kolo_value_ok(v)) kolo_info(g, v)->init = init;
    return v;
}

void kolo_freeze(kolo_graph *g, kolo_value v) {
    if (g->status != KOLO_OK) return;
    if (kolo_value_is_of(g, v) && kolo_info(g, v)->kind == KOLO_VALUE_PARAM) {
        kolo_info(g, v)->frozen = true;
        return;
    }
    const char *why = kolo_value_is_of(g, v) ? "is not a parameter" : why_not(g, v);
    kolo_graph_set_failed(g, KOLO_FAIL(KOLO_ERR_ARG, "freeze: the value %s", why));
}

kolo_value kolo_frozen_param(kolo_graph *g, const char *name, kolo_shape shape, kolo_init init) {
    kolo_value v = kolo_param(g, name, shape, init);
    if (kolo_value_ok(v)) kolo_freeze(g, v);
    return v;
}

kolo_value kolo_graph_state(kolo_graph *g, const char *name, kolo_value like) {
    if (!kolo_value_ok(like)) return KOLO_NONE;
    kolo_value_info info = *kolo_info(g, like);
    kolo_value v = add_leaf(g, name, KOLO_VALUE_STATE, info.tensor.dtype, &info.tensor.shape);
    if (kolo_value_ok(v)) {
        kolo_info(g, v)->tensor.layout = info.tensor.layout;
        kolo_info(g, v)->canon = info.canon;
        kolo_info(g, v)->in_place = info.in_place;
        kolo_info(g, v)->placements = info.placements;
        kolo_info(g, v)->whole = info.whole;
        kolo_info(g, v)->holders = info.holders;
        kolo_info(g, v)->of_unit = info.of_unit;
    }
    return v;
}

kolo_value kolo_graph_buffer(kolo_graph *g, const char *name, kolo_shape shape) {
    kolo_value v = add_leaf(g, name, KOLO_VALUE_STATE, g->dtype, &shape);
    if (kolo_value_ok(v)) {
        kolo_info(g, v)->canon = shape;
        kolo_info(g, v)->in_place = true;
    }
    return v;
}

void kolo_output(kolo_graph *g, const char *name, kolo_value value) {
    if (!may_name(g, "output", name)) return;
    if (!kolo_value_is_of(g, value) || kolo_value_ok(kolo_graph_output(g, name))) {
        const char *why = kolo_value_is_of(g, value) ? "is named twice" : why_not(g, value);
        kolo_graph_set_failed(g, KOLO_FAIL(KOLO_ERR_ARG, "output \"%s\" %s", name, why));
        return;
    }
    char *copy = kolo_arena_strdup(&g->arena, name);
    if (!copy || !KOLO_GROW(g->outputs, g->n_outputs, g->cap_outputs)) {
        kolo_graph_set_failed(g, KOLO_NOMEM(sizeof *g->outputs));
        return;
    }
    g->outputs[g->n_outputs++] = (kolo_named_value){
        .name = copy, .value = value, .gradient = KOLO_NONE, .parameter = KOLO_NONE};
}

kolo_value kolo_graph_find(const kolo_graph *g, const char *name) {
    return (kolo_value){.id = kolo_name_index_find(&g->names, name)};
}

kolo_value kolo_viewed(const kolo_graph *g, kolo_value v) {
    int32_t producer = kolo_info(g, v)->producer;
    while (producer >= 0 && g->nodes[producer]->op->view) {
        v = g->nodes[producer]->in[0];
        producer = kolo_info(g, v)->producer;
    }
    return v;
}

kolo_value kolo_graph_output(const kolo_graph *g, const char *name) {
    for (int32_t i = 0; i < g->n_outputs; i++) {
        if (strcmp(g->outputs[i].name, name) == 0) return g->outputs[i].value;
    }
    return KOLO_NONE;
}

/* ---- nodes ---- */

/* Whether a node can be added. An invalid input fails the graph. */
static bool may_add(kolo_graph *g, const kolo_op *op, const kolo_value *in, int n) {
    for (int i = 0; i < n && g->status == KOLO_OK; i++) {
        if (kolo_value_is_of(g, in[i])) continue;
        kolo_graph_set_failed(
            g, KOLO_FAIL(KOLO_ERR_ARG, "%s: input %d %s", op->name, i, why_not(g, in[i])));
    }
    return g->status == KOLO_OK;
}

kolo_node *kolo_graph_add_raw(kolo_graph *g, const kolo_op *op, const kolo_value *in, int n_in,
                              int n_out, const kolo_tensor *out, const kolo_attr *attr) {
    if (!may_add(g, op, in, n_in)) return NULL;
    kolo_node *n = kolo_arena_alloc(&g->arena, sizeof *n);
    kolo_value *handles = kolo_arena_alloc(&g->arena, (size_t)(n_in + n_out) * sizeof(kolo_value));
    if (!n || !handles || !KOLO_GROW(g->nodes, g->n_nodes, g->cap_nodes)) {
        kolo_graph_set_failed(g, KOLO_NOMEM(sizeof *n));
        return NULL;
    }
    *n = (kolo_node){.op = op, .n_in = n_in, .n_out = n_out, .in = handles, .out = handles + n_in};
    if (n_in) memcpy(n->in, in, (size_t)n_in * sizeof *in);
    if (attr) memcpy(n->attr, attr, sizeof n->attr);
    for (int i = 0; i < n_out; i++) {
        n->out[i] = add_value(g, NULL, KOLO_VALUE_TEMP, out[i]);
        if (!kolo_value_ok(n->out[i])) return NULL;
        kolo_info(g, n->out[i])->producer = g->n_nodes;
    }
    g->nodes[g->n_nodes++] = n;
    return n;
}

/* Appends the name of v, or "relu after conv1.weight": its op and the nearest name before it. */
static void add_origin(const kolo_graph *g, kolo_value v, kolo_text *text) {
    const kolo_value_info *info = kolo_info(g, v);
    if (info->producer >= 0) kolo_text_add(text, "%s after ", g->nodes[info->producer]->op->name);
    while (info->producer >= 0) {
        const kolo_node *n = g->nodes[info->producer];
        kolo_value from = n->in[0];
        for (int k = 0; k < n->n_in; k++) {
            if (kolo_info(g, n->in[k])->kind != KOLO_VALUE_PARAM) continue;
            from = n->in[k];
            break;
        }
        info = kolo_info(g, from);
    }
    kolo_text_add(text, "%s", info->name);
}

/* Stores the error of a shape rule, with the op and the names of its inputs. */
static void fail_rule(kolo_graph *g, kolo_status status, const kolo_op *op, const kolo_value *in,
                      int n_in) {
    kolo_text text = {0};
    kolo_text_add(&text, "%s: %s", op->name, kolo_last_error());
    for (int i = 0; i < n_in; i++) {
        kolo_text_add(&text, "%s", i ? ", " : ": ");
        add_origin(g, in[i], &text);
    }
    kolo_graph_set_failed(g, text.failed ? status : KOLO_FAIL(status, "%s", text.text));
    kolo_text_fini(&text);
}

void kolo_graph_add(kolo_graph *g, const kolo_op *op, const kolo_value *in, int n_in,
                    const kolo_attr *attr, kolo_value *out) {
    for (int i = 0; i < KOLO_MAX_IO; i++) out[i] = KOLO_NONE;
    static const kolo_attr none[KOLO_MAX_ATTRS];
    if (!may_add(g, op, in, n_in)) return;
    KOLO_ASSERT(n_in >= op->min_in && n_in <= op->max_in && op->max_in <= KOLO_MAX_IO);
    kolo_tensor in_desc[KOLO_MAX_IO], out_desc[KOLO_MAX_IO];
    for (int i = 0; i < n_in; i++) in_desc[i] = kolo_info(g, in[i])->tensor;
    kolo_shape_query q = {
        .attr = attr ? attr : none, .n_in = n_in, .in = in_desc, .out = out_desc, .op = op};
    kolo_status status = op->shape(&q);
    if (status != KOLO_OK) {
        fail_rule(g, status, op, in, n_in);
        return;
    }
    kolo_node *n = kolo_graph_add_raw(g, op, in, n_in, q.n_out, out_desc, q.attr);
    if (n) memcpy(out, n->out, (size_t)n->n_out * sizeof *out);
}

kolo_value kolo_graph_add1(kolo_graph *g, const kolo_op *op, const kolo_value *in, int n_in,
                           const kolo_attr *attr) {
    kolo_value out[KOLO_MAX_IO];
    kolo_graph_add(g, op, in, n_in, attr, out);
    return out[0];
}

kolo_status kolo_graph_set_nodes(kolo_graph *g, kolo_node *const *nodes, int32_t n) {
    kolo_node **copy = kolo_alloc((size_t)(n ? n : 1) * sizeof *copy);
    if (!copy) return KOLO_NOMEM((size_t)n * sizeof *copy);
    if (n) memcpy(copy, nodes, (size_t)n * sizeof *copy);
    for (int32_t v = 0; v < g->n_values; v++) g->values[v].producer = -1;
    for (int32_t i = 0; i < n; i++) {
        for (int k = 0; k < copy[i]->n_out; k++) kolo_info(g, copy[i]->out[k])->producer = i;
    }
    kolo_free(g->nodes);
    g->nodes = copy;
    g->n_nodes = n;
    g->cap_nodes = (size_t)(n ? n : 1);
    return KOLO_OK;
}

kolo_status kolo_graph_prune(kolo_graph *g) {
    bool *used = kolo_zalloc((size_t)g->n_values + 1);
    kolo_node **kept = kolo_alloc(((size_t)g->n_nodes + 1) * sizeof *kept);
    kolo_status status = KOLO_OK;
    if (!used || !kept) {
        status = KOLO_NOMEM((size_t)g->n_nodes * sizeof *kept);
        goto done;
    }
    for (int32_t i = 0; i < g->n_outputs; i++) used[g->outputs[i].value.id] = true;
    int32_t n_kept = 0;
    for (int32_t i = g->n_nodes - 1; i >= 0; i--) {
        kolo_node *n = g->nodes[i];
        bool keep = false;
        for (int k = 0; k < n->n_out; k++) {
            keep |= used[n->out[k].id] || kolo_value_ok(kolo_info(g, n->out[k])->next_of);
        }
        if (!keep) continue;
        kept[n_kept++] = n;
        for (int k = 0; k < n->n_in; k++) used[n->in[k].id] = true;
    }
    for (int32_t i = 0; i < n_kept / 2; i++) {
        kolo_node *n = kept[i];
        kept[i] = kept[n_kept - 1 - i];
        kept[n_kept - 1 - i] = n;
    }
    status = kolo_graph_set_nodes(g, kept, n_kept);
done:
    kolo_free(used);
    kolo_free(kept);
    return status;
}

kolo_shape_query kolo_node_query(const kolo_graph *g, const kolo_node *n, kolo_tensor *in,
                                 kolo_tensor *out) {
    KOLO_ASSERT(n->n_in <= KOLO_MAX_IO && n->n_out <= KOLO_MAX_IO);
    for (int i = 0; i < n->n_in; i++) in[i] = kolo_info(g, n->in[i])->tensor;
    for (int i = 0; i < n->n_out; i++) out[i] = kolo_info(g, n->out[i])->tensor;
    return (kolo_shape_query){n->attr, n->n_in, in, n->n_out, out, n->op};
}

kolo_cost kolo_node_cost(const kolo_graph *g, const kolo_node *n) {
    kolo_tensor in[KOLO_MAX_IO], out[KOLO_MAX_IO];
    if (n->op->view) return (kolo_cost){0, 0};
    kolo_shape_query q = kolo_node_query(g, n, in, out);
    if (n->op->cost) return n->op->cost(&q);
    kolo_cost cost = {0, 0};
    for (int i = 0; i < n->n_in; i++) cost.bytes += (double)kolo_tensor_bytes(&in[i]);
    for (int i = 0; i < n->n_out; i++) cost.bytes += (double)kolo_tensor_bytes(&out[i]);
    return cost;
}

static bool reads_sums(const kolo_node *n) { return n->op->with_updates || n->with_updates; }

bool kolo_node_is_update(const kolo_graph *g, const kolo_node *n) {
    if (reads_sums(n)) return true;
    for (int k = 0; k < n->n_out; k++) {
        if (kolo_value_ok(kolo_info(g, n->out[k])->next_of)) return true;
    }
    for (int k = 0; k < n->n_in; k++) {
        int32_t producer = kolo_info(g, n->in[k])->producer;
        if (producer >= 0 && reads_sums(g->nodes[producer])) return true;
    }
    return false;
}

bool kolo_value_is_read(const kolo_graph *g, kolo_value v) {
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        for (int k = 0; k < n->n_in; k++) {
            if (n->in[k].id == v.id) return true;
        }
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        if (g->outputs[i].value.id == v.id) return true;
    }
    return false;
}

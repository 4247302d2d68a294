/* kolo/session.h: what a session has computed, and its parameters. */
#include "train/session/agree.h"
#include "train/session/internal.h"
#include "train/session/own_batch.h"

#include <math.h>
#include <string.h>

/* ---- evaluation ---- */

/* A tensor output of the latest batch in f64; NULL where this rank has none. */
static kolo_status copy_output(const kolo_session *s, const char *name, double **data,
                               kolo_shape *shape) {
    kolo_tensor tensor;
    const void *output = kolo_session_output(s, name, &tensor);
    *data = NULL;
    if (!output) return KOLO_OK;
    const int64_t n = kolo_shape_count(&tensor.shape);
    *shape = tensor.shape;
    *data = kolo_alloc((size_t)n * sizeof **data);
    if (!*data) return KOLO_NOMEM((size_t)n * sizeof **data);
    for (int64_t k = 0; k < n; k++) {
        (*data)[k] = tensor.dtype == KOLO_DTYPE_F64 ? ((const double *)output)[k]
                                                    : (double)((const float *)output)[k];
    }
    return KOLO_OK;
}

/* The metrics of tensors, from those that the batch has left. */
static kolo_status reduce_tensors(const kolo_session *s, kolo_metrics *metrics) {
    const kolo_metric *m = kolo_metric_table();
    for (int i = 0; m[i].name; i++) {
        double *sum = NULL;
        kolo_shape shape = {0};
        if (!m[i].reduce) continue;
        kolo_status status = copy_output(s, m[i].output, &sum, &shape);
        if (kolo_session_stages(s) > 1) status = kolo_agree(s->comm, status);
        if (status == KOLO_OK) status = kolo_session_share_tensor(s, &sum, &shape);
        if (status == KOLO_OK && sum) metrics->value[i] = m[i].reduce(sum, &shape);
        kolo_free(sum);
        KOLO_TRY(status);
    }
    return KOLO_OK;
}

/* Before a forward pass of this purpose. */
static kolo_status prepare(kolo_session *s, kolo_purpose use, int64_t key, int64_t samples) {
    KOLO_TRY(kolo_session_end(s, kolo_session_refresh(s, false)));
    return kolo_session_compile_forward(s, use, key, samples);
}

static kolo_status evaluate(kolo_session *s, const kolo_batch *batch, int64_t key,
                            kolo_metrics *metrics) {
    kolo_sums sums;
    KOLO_TRY(kolo_session_evaluate_split(s, batch, key, &sums));
    *metrics = kolo_sums_metrics(&sums, kolo_session_has_tokens(s));
    return reduce_tensors(s, metrics);
}

kolo_status kolo_session_evaluate(kolo_session *s, const kolo_batch *batch, kolo_metrics *metrics) {
    kolo_batch whole;
    int64_t key;
    KOLO_TRY(check_session(s));
    if (!metrics) return KOLO_FAIL(KOLO_ERR_ARG, "no place for the metrics of an evaluation");
    KOLO_TRY(kolo_own_batch_complete_evaluation(s, batch, UINT32_MAX, &whole, &key));
    KOLO_TRY(prepare(s, EVALUATE, key, whole.count));
    return kolo_session_end(s, evaluate(s, &whole, key, metrics));
}

static kolo_status fail_output(const kolo_session *s, const char *output) {
    kolo_text names = {0};
    for (int i = 0; i < s->n_needs; i++) {
        kolo_text_add(&names, "%s%s", i ? ", " : "", s->needs[i].output);
    }
    if (s->n_needs > 0) kolo_text_add(&names, ": give one of these (--output)");
    kolo_status status = KOLO_FAIL(
        KOLO_ERR_ARG, "the graph has no output \"%s\" in evaluation; it has %s",
        output ? output : "(null)", s->n_needs > 0 && !names.failed ? names.text : "none");
    kolo_text_fini(&names);
    return status;
}

static kolo_status check_bytes(const char *name, const kolo_tensor *plain, const void *data,
                               size_t bytes) {
    char text[KOLO_SHAPE_TEXT];
    size_t need = kolo_tensor_bytes(plain);
    if (data && bytes == need) return KOLO_OK;
    kolo_shape_text(&plain->shape, text);
    if (!data) {
        return KOLO_FAIL(KOLO_ERR_ARG, "\"%s\" is %s %s, %zu bytes: give an array, not NULL", name,
                         kolo_dtype_name(plain->dtype), text, need);
    }
    return KOLO_FAIL(KOLO_ERR_ARG, "\"%s\" is %s %s, %zu bytes, not %zu: give its size", name,
                     kolo_dtype_name(plain->dtype), text, need, bytes);
}

/* Where a prediction goes. */
typedef struct prediction {
    const char *output;
    void *data;
    size_t bytes;
    kolo_shape *shape;
} prediction;

/* Whether the shape alone is asked for. */
static bool asks_shape(const prediction *p) { return !p->data && p->bytes == 0 && p->shape; }

/* The output of the latest forward pass of this rank alone. */
static kolo_status take_own(const kolo_session *s, const prediction *p) {
    kolo_tensor is;
    const void *result = kolo_session_output(s, p->output, &is);
    if (!result) return fail_output(s, p->output);
    const kolo_tensor plain = kolo_tensor_plain(is.dtype, is.shape);
    if (!asks_shape(p)) KOLO_TRY(check_bytes(p->output, &plain, p->data, p->bytes));
    if (p->shape) *p->shape = is.shape;
    if (asks_shape(p)) return KOLO_OK;
    if (kolo_layout_is_plain(&is.layout)) {
        memcpy(p->data, result, p->bytes);
    } else {
        kolo_tensor_reorder(&plain, p->data, &is, result);
    }
    return KOLO_OK;
}

/* Gives the ranks with the same samples the shape of an output that some of them have; whether any
 * has. */
static kolo_status share_shape(kolo_comm *group, bool *any, kolo_tensor *plain) {
    enum { ANY, DTYPE, RANK, DIM, N = DIM + KOLO_MAX_RANK };
    int64_t all[N] = {0}; /* zeros where this rank has none */
    if (*any) {
        all[ANY] = 1;
        all[DTYPE] = plain->dtype;
        all[RANK] = plain->shape.rank;
        memcpy(&all[DIM], plain->shape.dim, sizeof plain->shape.dim);
    }
    KOLO_TRY(kolo_allreduce(group, all, N, KOLO_DTYPE_I64, KOLO_MAX));
    kolo_shape shape = {.rank = (int)all[RANK]};
    memcpy(shape.dim, &all[DIM], sizeof shape.dim);
    *plain = kolo_tensor_plain((kolo_dtype)all[DTYPE], shape);
    *any = all[ANY] > 0;
    return KOLO_OK;
}

/* The output of the latest forward pass of a mesh, of which each rank has a slice or nothing: every
 * rank sets its own bits. */
static kolo_status take_from_mesh(const kolo_session *s, const prediction *p) {
    const kolo_mesh *mesh = &s->opts.plan.mesh;
    const kolo_axes axes = kolo_mesh_all(mesh) & ~((kolo_axes)1 << kolo_mesh_find(mesh, "dp"));
    kolo_tensor plain = {.dtype = KOLO_DTYPE_F32};
    kolo_comm *group;
    KOLO_TRY(kolo_mesh_comms_get(s->groups, axes, &group));
    const bool own = kolo_plan_whole_output(s->evaluated, p->output, &plain);
    bool any = own;
    KOLO_TRY(share_shape(group, &any, &plain));
    kolo_status status = any ? KOLO_OK : fail_output(s, p->output);
    const bool fills = any && !asks_shape(p);
    if (fills) status = check_bytes(p->output, &plain, p->data, p->bytes);
    KOLO_TRY(kolo_agree(s->comm, status));
    if (p->shape) *p->shape = plain.shape;
    if (!fills) return KOLO_OK;
    memset(p->data, 0, p->bytes);
    status = own ? kolo_plan_place_output(s->evaluated, p->output, p->data) : KOLO_OK;
    KOLO_TRY(kolo_agree(s->comm, status));
    return kolo_allreduce(group, p->data, p->bytes, KOLO_DTYPE_U8, KOLO_OR);
}

/* Ranks that compute together ask for the same. */
static kolo_status agree_on_output(const kolo_session *s, const prediction *p, kolo_status status) {
    if (!evaluates_together(s)) return status;
    KOLO_TRY(kolo_session_check_together(s));
    KOLO_TRY(kolo_agree(s->comm, status));
    KOLO_TRY(kolo_agree_text(s->comm, p->output));
    const int64_t asks = asks_shape(p);
    int64_t all = asks;
    KOLO_TRY(kolo_allreduce(s->comm, &all, 1, KOLO_DTYPE_I64, KOLO_SUM));
    if (all == asks * ranks_of(s)) return KOLO_OK;
    return kolo_agree(
        s->comm,
        KOLO_FAIL(KOLO_ERR_ARG, "some ranks gave no room for \"%s\": all do, or none", p->output));
}

kolo_status kolo_session_predict(kolo_session *s, const kolo_batch *batch, const char *output,
                                 void *data, size_t bytes, kolo_shape *shape) {
    const prediction p = {output, data, bytes, shape};
    kolo_batch whole;
    int64_t key;
    KOLO_TRY(check_session(s));
    int i = 0;
    while (i < s->n_needs && output && strcmp(s->needs[i].output, output) != 0) i++;
    const bool found = output && i < s->n_needs;
    KOLO_TRY(agree_on_output(s, &p, found ? KOLO_OK : fail_output(s, output)));
    KOLO_TRY(kolo_own_batch_complete_evaluation(s, batch, s->needs[i].inputs, &whole, &key));
    KOLO_TRY(prepare(s, kolo_session_predicts(s), key, whole.count));
    KOLO_TRY(kolo_session_end(s, kolo_session_forward(s, &whole, key)));
    if (!s->groups) return take_own(s, &p);
    const kolo_status status = take_from_mesh(s, &p); /* all ranks agree on ARG */
    return status == KOLO_ERR_ARG ? status : kolo_session_end(s, status);
}

/* ---- parameters ---- */

kolo_status kolo_session_tensor(const kolo_session *s, int i, kolo_field *tensor) {
    KOLO_TRY(check_session(s));
    const int n = kolo_store_count(s->store);
    if (!tensor) return KOLO_FAIL(KOLO_ERR_ARG, "no place for the description of a tensor");
    if (i < 0 || i >= n) {
        return KOLO_FAIL(KOLO_ERR_ARG, "tensor %d: the session has %d, numbered from 0", i, n);
    }
    const kolo_store_entry *entry = kolo_store_entry_at(s->store, i);
    *tensor =
        (kolo_field){.name = entry->name, .dtype = entry->tensor.dtype, .shape = entry->canon};
    return KOLO_OK;
}

static kolo_status fail_tensor(const kolo_session *s, const char *name) {
    const int n = kolo_store_count(s->store);
    const char **names = kolo_zalloc(((size_t)n + 1) * sizeof *names);
    for (int i = 0; names && i < n; i++) names[i] = kolo_store_entry_at(s->store, i)->name;
    const char *closest = names && name ? kolo_closest(name, names) : NULL;
    kolo_status status =
        KOLO_FAIL(KOLO_ERR_ARG, "no tensor \"%s\"%s%s%s", name ? name : "(null)",
                  closest ? ": did you mean \"" : "; kolo_session_tensor lists them",
                  closest ? closest : "", closest ? "\"?" : "");
    kolo_free((void *)names);
    return status;
}

/* Finds a tensor for data of `bytes`. */
static kolo_status find_tensor(const kolo_session *s, const char *name, const void *data,
                               size_t bytes, const kolo_store_entry **found) {
    const kolo_store_entry *entry = name ? kolo_store_find(s->store, name) : NULL;
    if (!entry) return fail_tensor(s, name);
    const kolo_tensor plain = kolo_tensor_plain(entry->tensor.dtype, entry->canon);
    KOLO_TRY(check_bytes(name, &plain, data, bytes));
    *found = entry;
    return KOLO_OK;
}

/* Of a mesh that divides the model all ranks ask for the same tensor. */
static kolo_status agree_on_tensor(const kolo_session *s, const char *name, kolo_status status) {
    if (!s->groups) return status;
    KOLO_TRY(kolo_session_check_together(s));
    KOLO_TRY(kolo_agree(s->comm, status));
    return kolo_agree_text(s->comm, name);
}

kolo_status kolo_session_get(const kolo_session *s, const char *name, void *data, size_t bytes) {
    const kolo_store_entry *entry = NULL;
    KOLO_TRY(check_session(s));
    KOLO_TRY(agree_on_tensor(s, name, find_tensor(s, name, data, bytes, &entry)));
    KOLO_ASSERT(entry);
    const bool state = s->served && kolo_name_is_optimizer(entry->name);
    if (kolo_store_entry_is_sharded(entry) || state) KOLO_TRY(kolo_session_check_together(s));
    KOLO_TRY(kolo_session_refresh((kolo_session *)s, state));
    return kolo_store_read(s->store, entry, data);
}

static kolo_status check_values(const char *name, kolo_dtype dtype, const void *data,
                                size_t bytes) {
    const bool wide = dtype == KOLO_DTYPE_F64;
    if (dtype != KOLO_DTYPE_F32 && !wide) return KOLO_OK;
    for (size_t i = 0; i < bytes / kolo_dtype_bytes(dtype); i++) {
        if (isfinite(wide ? ((const double *)data)[i] : (double)((const float *)data)[i])) continue;
        return KOLO_FAIL(KOLO_ERR_ARG, "value %zu for \"%s\" is not finite", i, name);
    }
    return KOLO_OK;
}

kolo_status kolo_session_set(kolo_session *s, const char *name, const void *data, size_t bytes) {
    const kolo_store_entry *entry = NULL;
    KOLO_TRY(check_session(s));
    KOLO_TRY(kolo_session_check_together(s));
    KOLO_TRY(kolo_session_check_new(s, "setting tensors"));
    KOLO_TRY(kolo_session_consolidate_errors(s)); /* which the owners are assigned, too */
    KOLO_TRY(kolo_session_consolidate(s));
    const bool root = !s->comm || kolo_comm_rank(s->comm) == 0;
    kolo_status status = find_tensor(s, name, root ? data : &entry, bytes, &entry);
    if (status == KOLO_OK && root && data) {
        KOLO_ASSERT(entry);
        status = check_values(name, entry->tensor.dtype, data, bytes);
    }
    KOLO_TRY(kolo_agree(s->comm, status));
    KOLO_TRY(kolo_agree_text(s->comm, name));
    void *copy = kolo_alloc(bytes);
    status = kolo_agree(s->comm, copy ? KOLO_OK : KOLO_NOMEM(bytes));
    if (status == KOLO_OK && root && copy && data) memcpy(copy, data, bytes);
    if (status == KOLO_OK && s->comm) {
        status = kolo_broadcast(s->comm, copy, bytes, KOLO_DTYPE_U8, 0);
    }
    if (status == KOLO_OK) status = kolo_store_write(s->store, entry, copy);
    kolo_free(copy);
    KOLO_TRY(kolo_agree(s->comm, status));
    KOLO_TRY(kolo_session_refresh_labels(s));
    return kolo_session_assign(s, kolo_session_updates(s), -1);
}

static kolo_status check_gradients(const kolo_session *s) {
    if (!s->opts.plan.keep_gradients) {
        return KOLO_FAIL(KOLO_ERR_ARG, "gradients are not kept: set the option keep_gradients");
    }
    if (s->trained && !s->evaluated) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "no gradients: they are those of a step, until the next call that computes");
}

/* Whether a rank has a gradient of the parameter. */
static kolo_status check_gradient(const kolo_session *s, const kolo_store_entry *entry,
                                  const void *gradient) {
    int64_t any = gradient != NULL;
    if (s->groups) KOLO_TRY(kolo_allreduce(s->comm, &any, 1, KOLO_DTYPE_I64, KOLO_MAX));
    if (any) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, "\"%s\" has no gradient%s", entry->name,
                     entry->kind == KOLO_VALUE_PARAM
                         ? ": the loss does not depend on it, or it is row-sparse"
                         : ": it is not a parameter");
}

kolo_status kolo_session_get_gradient(const kolo_session *s, const char *name, void *data,
                                      size_t bytes) {
    const kolo_store_entry *entry = NULL;
    kolo_tensor tensor = {.dtype = KOLO_DTYPE_F32};
    KOLO_TRY(check_session(s));
    kolo_status status = find_tensor(s, name, data, bytes, &entry);
    if (status == KOLO_OK) status = check_gradients(s);
    KOLO_TRY(agree_on_tensor(s, name, status));
    KOLO_ASSERT(entry);
    const void *gradient = kolo_plan_gradient(s->trained, name, &tensor);
    KOLO_TRY(check_gradient(s, entry, gradient));
    return kolo_store_gather(s->store, entry, &tensor, gradient, data);
}

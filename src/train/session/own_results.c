/* kolo/session.h: what a session has computed, and its parameters. */
#include "train/session/agree.h"
#include "train/session/internal.h"
#include "train/session/own_batch.h"

#include <math.h>
#include <string.h>

/* ---- evaluation ---- */

/* Whether this rank can run the forward pass by itself. */
static kolo_status check_whole(const kolo_session *s) {
    if (!kolo_session_evaluates_together(s)) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                     "with zero 3 each rank has a range of the parameters: use "
                     "kolo_session_evaluate_dataset, or zero 2");
}

/* The metrics of tensors, from those that the batch has left. */
static kolo_status reduce_tensors(const kolo_session *s, kolo_metrics *metrics) {
    const kolo_metric *m = kolo_metric_table();
    for (int i = 0; m[i].name; i++) {
        kolo_tensor tensor;
        const void *output = m[i].reduce ? kolo_session_output(s, m[i].output, &tensor) : NULL;
        if (!output) continue;
        const int64_t n = kolo_shape_count(&tensor.shape);
        double *sum = kolo_alloc((size_t)n * sizeof *sum);
        if (!sum) return KOLO_NOMEM((size_t)n * sizeof *sum);
        for (int64_t k = 0; k < n; k++) {
            sum[k] = tensor.dtype == KOLO_DTYPE_F64 ? ((const double *)output)[k]
                                                    : (double)((const float *)output)[k];
        }
        metrics->value[i] = m[i].reduce(sum, &tensor.shape);
        kolo_free(sum);
    }
    return KOLO_OK;
}

kolo_status kolo_session_evaluate(kolo_session *s, const kolo_batch *batch, kolo_metrics *metrics) {
    kolo_sums sums;
    KOLO_TRY(check_session(s));
    KOLO_TRY(check_whole(s));
    if (!metrics) return KOLO_FAIL(KOLO_ERR_ARG, "no place for the metrics of an evaluation");
    KOLO_TRY(kolo_own_batch_check(s, batch, UINT32_MAX));
    KOLO_TRY(kolo_own_batch_check_any(batch));
    KOLO_TRY(kolo_session_settle(s)); /* in a callback of kolo_fit */
    KOLO_TRY(kolo_session_evaluate_batch(s, batch, &sums));
    *metrics = kolo_sums_metrics(&sums, kolo_session_has_tokens(s));
    return reduce_tensors(s, metrics);
}

static kolo_status fail_output(const kolo_session *s, const char *output) {
    kolo_text names = {0};
    for (int i = 0; i < s->n_needs; i++) {
        kolo_text_add(&names, "%s%s", i ? ", " : "", s->needs[i].output);
    }
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
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "\"%s\" is %s %s, %zu bytes, and there is %s of %zu: give its size", name,
                     kolo_dtype_name(plain->dtype), kolo_shape_text(&plain->shape, text), need,
                     data ? "room" : "no room instead", bytes);
}

kolo_status kolo_session_predict(kolo_session *s, const kolo_batch *batch, const char *output,
                                 void *data, size_t bytes, kolo_shape *shape) {
    KOLO_TRY(check_session(s));
    KOLO_TRY(check_whole(s));
    int i = 0;
    while (i < s->n_needs && output && strcmp(s->needs[i].output, output) != 0) i++;
    if (!output || i == s->n_needs) return fail_output(s, output);
    KOLO_TRY(kolo_own_batch_check(s, batch, s->needs[i].inputs));
    KOLO_TRY(kolo_own_batch_check_any(batch));
    KOLO_TRY(kolo_session_settle(s));
    KOLO_TRY(kolo_session_forward(s, batch));
    kolo_tensor tensor;
    const void *result = kolo_session_output(s, output, &tensor);
    if (!result) return fail_output(s, output);
    const kolo_tensor plain = kolo_tensor_plain(tensor.dtype, tensor.shape);
    if (shape) *shape = tensor.shape;
    if (!data && bytes == 0 && shape) return KOLO_OK;
    KOLO_TRY(check_bytes(output, &plain, data, bytes));
    if (kolo_layout_is_plain(&tensor.layout)) {
        memcpy(data, result, bytes);
    } else {
        kolo_tensor_reorder(&plain, data, &tensor, result);
    }
    return KOLO_OK;
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
    KOLO_TRY(check_session(s));
    const kolo_store_entry *entry = name ? kolo_store_find(s->store, name) : NULL;
    if (!entry) return fail_tensor(s, name);
    const kolo_tensor plain = kolo_tensor_plain(entry->tensor.dtype, entry->canon);
    KOLO_TRY(check_bytes(name, &plain, data, bytes));
    *found = entry;
    return KOLO_OK;
}

kolo_status kolo_session_get(const kolo_session *s, const char *name, void *data, size_t bytes) {
    const kolo_store_entry *entry = NULL;
    KOLO_TRY(find_tensor(s, name, data, bytes, &entry));
    KOLO_ASSERT(entry);
    KOLO_TRY(kolo_session_settle((kolo_session *)s));
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
    KOLO_TRY(kolo_session_settle(s));
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
    return kolo_agree(s->comm, status);
}

kolo_status kolo_session_get_gradient(const kolo_session *s, const char *name, void *data,
                                      size_t bytes) {
    const kolo_store_entry *entry = NULL;
    kolo_tensor tensor;
    KOLO_TRY(find_tensor(s, name, data, bytes, &entry));
    KOLO_ASSERT(entry);
    if (!s->opts.plan.keep_gradients) {
        return KOLO_FAIL(KOLO_ERR_ARG, "gradients are not kept: set the option keep_gradients");
    }
    if (!s->trained || s->evaluated) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "no gradients: they are those of a step, until the next call that "
                         "computes");
    }
    const void *gradient = kolo_plan_gradient(s->trained, name, &tensor);
    if (!gradient) {
        return KOLO_FAIL(KOLO_ERR_ARG, "\"%s\" has no gradient%s", name,
                         entry->kind == KOLO_VALUE_PARAM
                             ? ": the loss does not depend on it, or it is row-sparse"
                             : ": it is not a parameter");
    }
    const kolo_tensor plain = kolo_tensor_plain(tensor.dtype, tensor.shape);
    kolo_tensor_reorder(&plain, data, &tensor, gradient);
    return KOLO_OK;
}

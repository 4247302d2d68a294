/* Batches: the fields that fill the inputs of the graph, and the labels that count. */
#include "data/mix.h"
#include "plan/chunk_inputs.h"
#include "train/session/agree.h"
#include "train/session/internal.h"

#include <math.h>
#include <string.h>

static kolo_status fail_field(const kolo_session *s, const kolo_field *input,
                              const kolo_field *given) {
    char have[KOLO_SHAPE_TEXT], want[KOLO_SHAPE_TEXT];
    return KOLO_FAIL(
        KOLO_ERR_ARG,
        "the field \"%s\" is %s %s for each sample, and the input of model %s is %s %s",
        input->name, kolo_dtype_name(given->dtype), kolo_shape_text(&given->shape, have),
        s->opts.model, kolo_dtype_name(input->dtype), kolo_shape_text(&input->shape, want));
}

static kolo_status fail_missing(const kolo_session *s, const char *input, const kolo_batch *batch) {
    kolo_text names = {0};
    for (int f = 0; f < batch->n_fields; f++) {
        kolo_text_add(&names, "%s%s", f ? ", " : "", batch->fields[f].name);
    }
    kolo_status status =
        KOLO_FAIL(KOLO_ERR_ARG, "the batch has no field \"%s\", an input of model %s; it has %s",
                  input, s->opts.model, batch->n_fields > 0 && !names.failed ? names.text : "none");
    kolo_text_fini(&names);
    return status;
}

/* Whether a field can fill an input: types that differ are converted by kolo_normalize. */
static bool fits(const kolo_field *field, const kolo_field *input) {
    bool bytes = field->dtype == KOLO_DTYPE_U8 && input->dtype == KOLO_DTYPE_F32 &&
                 (field->shape.rank != 3 || field->shape.dim[0] <= KOLO_MAX_CHANNELS);
    return (bytes || field->dtype == input->dtype) &&
           kolo_shape_equal(&field->shape, &input->shape);
}

kolo_status kolo_session_check_batch(kolo_session *s, const kolo_batch *batch, uint32_t inputs) {
    for (int i = 0; i < s->n_inputs; i++) {
        int f = 0;
        s->field_of[i] = -1;
        if (!(inputs >> i & 1) || s->pulled >> i & 1) continue;
        while (f < batch->n_fields && strcmp(batch->fields[f].name, s->inputs[i].name) != 0) f++;
        if (f == batch->n_fields) return fail_missing(s, s->inputs[i].name, batch);
        if (!fits(&batch->fields[f], &s->inputs[i])) {
            return fail_field(s, &s->inputs[i], &batch->fields[f]);
        }
        s->field_of[i] = f;
    }
    return KOLO_OK;
}

uint32_t kolo_session_evaluated(const kolo_session *s) {
    uint32_t inputs = UINT32_MAX;
    for (int i = 0; i < s->n_inputs && s->opts.mixes; i++) {
        if (strcmp(s->inputs[i].name, KOLO_MIX_TARGET) == 0) inputs &= ~(UINT32_C(1) << i);
    }
    return inputs;
}

/* Copies a batch into the inputs of a plan that its current pass reads. Plans share one arena,
 * which may move when a plan is added, so the addresses are looked up each time. */
void kolo_session_feed(const kolo_session *s, const cached *c, const kolo_batch *batch) {
    for (int i = 0; i < s->n_inputs && batch->count > 0; i++) {
        if (!kolo_value_ok(c->inputs[i]) || !kolo_chunk_reads(c->plan, c->inputs[i])) continue;
        void *to = kolo_plan_data(c->plan, c->inputs[i]);
        if (s->pulled >> i & 1) {
            kolo_tables_feed(s->tables, i, to);
            continue;
        }
        if (s->field_of[i] < 0) {
            memset(to, 0, (size_t)batch->count * kolo_field_bytes(&s->inputs[i]));
            continue;
        }
        const kolo_field *field = &batch->fields[s->field_of[i]];
        const void *from = batch->data[s->field_of[i]];
        if (field->dtype != s->inputs[i].dtype) {
            kolo_normalize(field, from, batch->count, c->orders[i], to);
        } else if (c->orders[i] == KOLO_NHWC) {
            kolo_interleave(field, from, batch->count, to);
        } else {
            memcpy(to, from, (size_t)batch->count * kolo_field_bytes(field));
        }
    }
}

kolo_sums kolo_session_read_sums(const cached *c, int64_t samples, kolo_label_count labels) {
    kolo_sums sums = {.samples = samples, .labels = labels.count, .weight = labels.weight};
    for (int i = 0; i < KOLO_MAX_METRICS; i++) {
        bool there = kolo_value_ok(c->metrics[i]);
        sums.metric[i] = there ? kolo_plan_get(c->plan, c->metrics[i]) : NAN;
    }
    return sums;
}

/* Whether every sample has one label, which counts as one. */
static bool is_label_each(const kolo_session *s) {
    const kolo_label_rule *rule = &s->rule;
    if (rule->input < 0) return true;
    return !rule->ignores && !rule->weights && s->inputs[rule->input].shape.rank == 0;
}

/* Rounds weights to multiples of a 2^-33rd of the largest, so that sums over up to a million labels
 * are exact: the same in any order, for any division of the labels. Weights of f32 from a 512th of
 * the largest on have no other digits. */
static void round_weights(double *w, int64_t n) {
    enum { DIGITS = 33 };
    double most = 0;
    int exponent;
    for (int64_t c = 0; c < n; c++) most = fmax(most, fabs(w[c]));
    (void)frexp(most, &exponent);
    const double unit = ldexp(1, exponent - DIGITS);
    for (int64_t c = 0; c < n; c++) w[c] = nearbyint(w[c] / unit) * unit;
}

kolo_status kolo_session_refresh_labels(kolo_session *s) {
    if (!s->rule.weights) return KOLO_OK;
    const kolo_store_entry *entry = kolo_store_find(s->store, s->rule.weights);
    KOLO_ASSERT(entry && kolo_shape_count(&entry->canon) == s->rule.classes);
    const bool wide = entry->tensor.dtype == KOLO_DTYPE_F64;
    const size_t bytes = kolo_tensor_bytes(&entry->tensor);
    void *canonical = kolo_alloc(bytes);
    kolo_status status = kolo_agree(s->comm, canonical ? KOLO_OK : KOLO_NOMEM(bytes));
    if (status == KOLO_OK) status = kolo_store_read(s->store, entry, canonical);
    for (int64_t c = 0; canonical && status == KOLO_OK && c < s->rule.classes; c++) {
        s->of_class[c] =
            wide ? ((const double *)canonical)[c] : (double)((const float *)canonical)[c];
    }
    kolo_free(canonical);
    if (status == KOLO_OK) round_weights(s->of_class, s->rule.classes);
    return status;
}

kolo_label_count kolo_session_count_labels(const kolo_session *s, const kolo_batch *batch) {
    const kolo_label_rule *rule = &s->rule;
    kolo_label_count sum = {.count = batch->count};
    if (batch->count == 0 || is_label_each(s)) return sum;
    const int32_t *labels = batch->data[s->field_of[rule->input]];
    int64_t n = batch->count * kolo_shape_count(&s->inputs[rule->input].shape);
    sum.count = 0;
    for (int64_t i = 0; i < n; i++) {
        const bool valid = labels[i] >= 0 && labels[i] < rule->classes;
        const bool counts = valid && !(rule->ignores && labels[i] == rule->ignored);
        sum.count += labels[i] >= 0 && (counts || !rule->ignores);
        if (rule->weights && counts) sum.weight += s->of_class[labels[i]];
    }
    return sum;
}

kolo_status kolo_session_sum_labels(const kolo_session *s, const kolo_batch *batch,
                                    kolo_label_count *labels) {
    const bool known = is_label_each(s), of_others = s->comm && !counts_samples(s);
    *labels = known       ? (kolo_label_count){.count = batch->global_count}
              : of_others ? (kolo_label_count){0}
                          : kolo_session_count_labels(s, batch);
    if (known || !s->comm) return KOLO_OK;
    if (s->rule.weights) {
        KOLO_TRY(kolo_allreduce(s->comm, &labels->weight, 1, KOLO_DTYPE_F64, KOLO_SUM));
    }
    return kolo_allreduce(s->comm, &labels->count, 1, KOLO_DTYPE_I64, KOLO_SUM);
}

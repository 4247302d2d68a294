/* Checking and completing batches. */
#include "train/session/own_batch.h"

#include "base/integer.h"
#include "train/session/agree.h"
#include "train/session/internal.h"

#include <inttypes.h>

kolo_share kolo_own_batch_share(const kolo_session *s, int64_t samples, int rank) {
    const kolo_sampler_opts one = {.samples = kolo_max_i64(samples, 1),
                                   .global_batch = kolo_max_i64(samples, 1)};
    int first, end;
    if (samples == 0) return (kolo_share){0};
    if (s->opts.shards == 0) return kolo_sampler_share(&one, 0, rank, ranks_of(s));
    const int64_t size = s->opts.batch;
    kolo_session_shards(s, rank, &first, &end);
    const int64_t from = kolo_min_i64(first * size, samples);
    return (kolo_share){from, kolo_min_i64(end * size, samples) - from, samples};
}

/* ---- checks ---- */

static kolo_status check_form(const kolo_batch *b) {
    if (!b) return KOLO_FAIL(KOLO_ERR_ARG, "no batch: give one");
    if (b->count < 0 || b->n_fields < 0 || b->n_fields > KOLO_MAX_FIELDS) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "a batch of %" PRId64 " samples with %d fields: give 0 samples or more, "
                         "and at most %d fields",
                         b->count, b->n_fields, KOLO_MAX_FIELDS);
    }
    if (b->n_fields > 0 && !b->fields) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a batch with %d fields describes none: set `fields`",
                         b->n_fields);
    }
    for (int f = 0; f < b->n_fields; f++) {
        const kolo_field *field = &b->fields[f];
        if (!field->name) return KOLO_FAIL(KOLO_ERR_ARG, "field %d of the batch has no name", f);
        if ((unsigned)field->dtype >= KOLO_TENSOR_DTYPE_COUNT || field->shape.rank < 0 ||
            field->shape.rank >= KOLO_MAX_RANK) {
            return KOLO_FAIL(KOLO_ERR_ARG, "field \"%s\" has dtype %d and a shape of rank %d",
                             field->name, (int)field->dtype, field->shape.rank);
        }
    }
    return KOLO_OK;
}

static kolo_status check_data(const kolo_session *s, const kolo_batch *b) {
    for (int i = 0; i < s->n_inputs && b->count > 0; i++) {
        if (s->field_of[i] < 0 || b->data[s->field_of[i]]) continue;
        return KOLO_FAIL(KOLO_ERR_ARG, "field \"%s\" of a batch of %" PRId64 " samples has no data",
                         s->inputs[i].name, b->count);
    }
    return KOLO_OK;
}

/* Labels outside the classes would silently count as samples with a loss of 0. Those below 0 are
 * without a label where a sample has several. */
static kolo_status check_labels(const kolo_session *s, const kolo_batch *b) {
    const kolo_label_rule *rule = &s->rule;
    if (rule->input < 0 || rule->classes == 0 || s->field_of[rule->input] < 0) return KOLO_OK;
    const kolo_field *input = &s->inputs[rule->input];
    const int32_t *labels = b->data[s->field_of[rule->input]];
    const int64_t n = b->count * kolo_shape_count(&input->shape);
    for (int64_t i = 0; i < n; i++) {
        bool none = labels[i] < 0 && input->shape.rank > 0;
        bool ignored = rule->ignores && labels[i] == rule->ignored;
        if (none || ignored || (labels[i] >= 0 && labels[i] < rule->classes)) continue;
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "label %" PRId32 " at index %" PRId64
                         " of field \"%s\" is outside 0..%" PRId64 ", the classes of the loss",
                         labels[i], i, input->name, rule->classes - 1);
    }
    return KOLO_OK;
}

kolo_status kolo_own_batch_check(kolo_session *s, const kolo_batch *batch, uint32_t inputs) {
    KOLO_TRY(check_form(batch));
    KOLO_TRY(kolo_session_check_batch(s, batch, inputs));
    KOLO_TRY(check_data(s, batch));
    return check_labels(s, batch);
}

kolo_status kolo_own_batch_check_any(const kolo_batch *batch) {
    return batch->count > 0 ? KOLO_OK : KOLO_FAIL(KOLO_ERR_ARG, "a batch without samples");
}

/* ---- steps ---- */

static kolo_status check_step(kolo_session *s, const kolo_batch *batch) {
    if (s->opts.evaluate_only) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a session that evaluates only makes no steps");
    }
    return kolo_own_batch_check(s, batch, UINT32_MAX);
}

/* All ranks have the same counts, so all fail alike. */
static kolo_status check_shares(const kolo_session *s, int64_t samples, const int64_t *counts) {
    const int64_t full = s->opts.shards * s->opts.batch;
    if (samples == 0) return KOLO_FAIL(KOLO_ERR_ARG, "a step without samples on any rank");
    if (s->opts.shards > 0 && samples > full) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "a step of %" PRId64 " samples exceeds the global batch of %" PRId64,
                         samples, full);
    }
    for (int rank = 0; rank < ranks_of(s); rank++) {
        const int64_t share = kolo_own_batch_share(s, samples, rank).count;
        if (counts[rank] == share) continue;
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "rank %d gave %" PRId64 " of the %" PRId64
                         " samples of a step, its share is %" PRId64 " (kolo_session_share)",
                         rank, counts[rank], samples, share);
    }
    return KOLO_OK;
}

/* Exchanges the numbers of samples: counts[rank]; below 0 on a rank that failed. */
static kolo_status exchange(kolo_session *s, int64_t own, int64_t *counts) {
    if (s->comm) return kolo_allgather(s->comm, &own, counts, 1, KOLO_DTYPE_I64);
    counts[0] = own;
    return KOLO_OK;
}

kolo_status kolo_own_batch_complete(kolo_session *s, const kolo_batch *batch, kolo_batch *whole) {
    kolo_status status = check_step(s, batch);
    int64_t samples = 0, failed = 0;
    if (batch && batch->global_count > 0) { /* of a loader, which all ranks have */
        if (status == KOLO_OK) *whole = *batch;
        return status;
    }
    KOLO_TRY(exchange(s, status == KOLO_OK && batch ? batch->count : -1, s->sizes));
    for (int rank = 0; rank < ranks_of(s); rank++) {
        failed += s->sizes[rank] < 0;
        samples += s->sizes[rank];
    }
    if (failed > 0 || !batch) return kolo_agree(s->comm, status);
    KOLO_TRY(check_shares(s, samples, s->sizes));
    *whole = *batch;
    whole->global_count = samples;
    whole->first = kolo_own_batch_share(s, samples, rank_of(s)).first;
    return KOLO_OK;
}

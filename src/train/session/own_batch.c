/* Checking and completing batches. */
#include "train/session/own_batch.h"

#include "base/integer.h"
#include "base/rng.h"
#include "train/session/agree.h"
#include "train/session/internal.h"

#include <inttypes.h>

/* The part of a place on dp, as equal as possible. */
static kolo_share equal_share(const kolo_session *s, int64_t samples, int place) {
    const kolo_sampler_opts one = {.samples = kolo_max_i64(samples, 1),
                                   .global_batch = kolo_max_i64(samples, 1)};
    return samples == 0 ? (kolo_share){0} : kolo_sampler_share(&one, 0, place, data_ranks(s));
}

kolo_share kolo_own_batch_share(const kolo_session *s, int64_t samples, int place) {
    int first, end;
    if (samples == 0 || s->opts.shards == 0) return equal_share(s, samples, place);
    const int64_t size = s->opts.batch;
    kolo_session_shards(s, place, &first, &end);
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

kolo_status kolo_session_check_loaded(kolo_session *s, const kolo_batch *batch, bool trains) {
    const uint32_t inputs = trains ? UINT32_MAX : kolo_session_evaluated(s);
    KOLO_TRY(kolo_session_check_batch(s, batch, inputs));
    return batch->count > 0 ? check_labels(s, batch) : KOLO_OK;
}

static kolo_status check(kolo_session *s, const kolo_batch *batch, uint32_t inputs) {
    KOLO_TRY(check_form(batch));
    KOLO_TRY(kolo_session_check_batch(s, batch, inputs));
    return check_data(s, batch);
}

/* ---- what the ranks pass ---- */

/* The place of a rank on the axis dp. */
static int place_of(const kolo_session *s, int rank) {
    const kolo_mesh *mesh = &s->opts.plan.mesh;
    return s->groups ? kolo_mesh_coordinate(mesh, rank, kolo_mesh_find(mesh, "dp")) : rank;
}

/* The first rank with the samples of this one. */
static int first_with(const kolo_session *s, int rank) {
    const kolo_mesh *mesh = &s->opts.plan.mesh;
    for (int a = 0; s->groups && a < mesh->n_axes; a++) {
        if (strcmp(mesh->axes[a].name, "dp") != 0) rank = kolo_mesh_neighbour(mesh, rank, a, 0);
    }
    return rank;
}

/* A hash of the samples, where other ranks of the mesh must have the same. */
static uint64_t hash_of(const kolo_session *s, const kolo_batch *b) {
    uint64_t all[KOLO_MAX_FIELDS] = {0};
    for (int i = 0; i < s->n_inputs && s->groups && b->count > 0; i++) {
        const int f = s->field_of[i];
        if (f < 0) continue;
        all[i] = kolo_hash_bytes(b->data[f], (size_t)b->count * kolo_field_bytes(&b->fields[f]));
    }
    return kolo_hash_bytes(all, sizeof all);
}

/* Exchanges what the ranks pass: s->given. `status`: of the checks of this one. */
static kolo_status exchange(kolo_session *s, kolo_status status, const kolo_batch *batch) {
    kolo_given_batch own = {.count = -1};
    if (status == KOLO_OK && batch) own = (kolo_given_batch){batch->count, hash_of(s, batch)};
    if (s->comm) return kolo_allgather(s->comm, &own, s->given, 2, KOLO_DTYPE_I64);
    s->given[0] = own;
    return KOLO_OK;
}

/* Whether any rank has failed; else *samples are those of all. */
static bool has_failed(const kolo_session *s, int64_t *samples) {
    bool failed = false;
    *samples = 0;
    for (int rank = 0; rank < ranks_of(s); rank++) {
        failed |= s->given[rank].count < 0;
        if (first_with(s, rank) == rank) *samples += s->given[rank].count;
    }
    return failed;
}

/* All ranks have the same numbers, so all fail alike. */
static kolo_status check_share(const kolo_session *s, int64_t samples, int rank) {
    const int64_t given = s->given[rank].count;
    const int64_t share = kolo_own_batch_share(s, samples, place_of(s, rank)).count;
    if (given == share) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "rank %d gave %" PRId64 " of the %" PRId64
                     " samples of a step, its share is %" PRId64 " (kolo_session_share)",
                     rank, given, samples, share);
}

static kolo_status check_same(const kolo_session *s, int rank) {
    const int first = first_with(s, rank);
    const kolo_given_batch *given = &s->given[rank], *same = &s->given[first];
    char mesh[KOLO_MESH_TEXT];
    if (given->count == same->count && given->hash == same->hash) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "rank %d gave other samples than rank %d: on the mesh %s both are at place %d "
                     "of dp, whose ranks pass the same batch",
                     rank, first, kolo_mesh_text(&s->opts.plan.mesh, mesh), place_of(s, rank));
}

static kolo_status complete_step(const kolo_session *s, const kolo_batch *batch, int64_t samples,
                                 kolo_batch *whole) {
    for (int rank = 0; rank < ranks_of(s); rank++) {
        KOLO_TRY(check_share(s, samples, rank));
        KOLO_TRY(check_same(s, rank));
    }
    *whole = *batch;
    whole->global_count = samples;
    whole->first = kolo_own_batch_share(s, samples, data_rank(s)).first;
    return KOLO_OK;
}

static kolo_status complete_evaluation(const kolo_session *s, const kolo_batch *batch,
                                       int64_t samples, kolo_batch *whole, int64_t *key) {
    int64_t first = 0, split = 0;
    for (int rank = 0; rank < ranks_of(s); rank++) KOLO_TRY(check_same(s, rank));
    for (int rank = 0; rank < ranks_of(s); rank++) {
        if (first_with(s, rank) != rank) continue;
        split = add_place(split, s->given[rank].count);
        if (place_of(s, rank) < data_rank(s)) first += s->given[rank].count;
    }
    *whole = *batch;
    whole->global_count = samples;
    whole->first = first;
    *key = split;
    return KOLO_OK;
}

/* ---- steps and evaluations ---- */

/* A batch of a loader, which all ranks have: they exchange nothing. Labels are of this rank alone,
 * so that the others would begin the step without it. */
static kolo_status check_loaded(const kolo_session *s, const kolo_batch *batch) {
    const kolo_status status = check_labels(s, batch);
    return status == KOLO_OK ? KOLO_OK : kolo_end_group(s->comm, status);
}

static kolo_status check_step(const kolo_session *s, int64_t samples) {
    const int64_t full = s->opts.shards * s->opts.batch;
    if (samples == 0) return KOLO_FAIL(KOLO_ERR_ARG, "a step without samples on any rank");
    if (s->opts.shards == 0 || samples <= full) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "a step of %" PRId64 " samples exceeds the global batch of %" PRId64, samples,
                     full);
}

/* Workers that make steps on their own exchange nothing: an error is that of this rank alone. */
static kolo_status complete_alone(const kolo_session *s, const kolo_batch *batch,
                                  kolo_batch *whole) {
    KOLO_TRY(check_labels(s, batch));
    *whole = *batch;
    if (batch->global_count > 0) return KOLO_OK; /* of a loader */
    whole->global_count = kolo_max_i64(batch->count, 1);
    whole->first = batch->count * data_rank(s); /* for random draws, as if all had as many */
    return KOLO_OK;
}

kolo_status kolo_own_batch_complete(kolo_session *s, const kolo_batch *batch, kolo_batch *whole) {
    int64_t samples;
    KOLO_TRY(kolo_session_check_together(s));
    if (s->opts.evaluate_only) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a session that evaluates only makes no steps");
    }
    kolo_status status = check(s, batch, UINT32_MAX);
    if (s->served && kolo_consistency_is_alone(&s->opts.consistency)) {
        return status == KOLO_OK ? complete_alone(s, batch, whole) : status;
    }
    if (batch && batch->global_count > 0) {
        KOLO_TRY(status);
        KOLO_TRY(check_loaded(s, batch));
        *whole = *batch;
        return KOLO_OK;
    }
    if (status == KOLO_OK) status = check_labels(s, batch);
    KOLO_TRY(exchange(s, status, batch));
    if (has_failed(s, &samples) || !batch) return kolo_agree(s->comm, status);
    KOLO_TRY(check_step(s, samples));
    return complete_step(s, batch, samples, whole);
}

kolo_status kolo_own_batch_complete_evaluation(kolo_session *s, const kolo_batch *batch,
                                               uint32_t inputs, kolo_batch *whole, int64_t *key) {
    int64_t samples;
    kolo_status status = check(s, batch, inputs);
    if (status == KOLO_OK) status = check_labels(s, batch);
    if (status == KOLO_OK && batch->count == 0) {
        status = KOLO_FAIL(KOLO_ERR_ARG, "a batch without samples");
    }
    if (!evaluates_together(s)) {
        KOLO_TRY(status);
        *whole = *batch;
        *key = batch->count;
        return KOLO_OK;
    }
    KOLO_TRY(kolo_session_check_together(s));
    KOLO_TRY(exchange(s, status, batch));
    if (has_failed(s, &samples) || !batch) return kolo_agree(s->comm, status);
    return complete_evaluation(s, batch, samples, whole, key);
}

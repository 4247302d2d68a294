/* Resolves and checks the options of a loader. */
#include "data/loader_opts.h"

#include "base/status.h"
#include "data/dataset.h"
#include "data/mix.h"

#include <inttypes.h>
#include <string.h>

static kolo_status check_share(const kolo_loader_opts *o) {
    if (o->world < 1 || o->rank < 0 || o->rank >= o->world) {
        return KOLO_FAIL(KOLO_ERR_ARG, "rank %d outside [0, %d)", o->rank, o->world);
    }
    if (o->global_batch < 1) {
        return KOLO_FAIL(KOLO_ERR_ARG, "global batch %" PRId64 ": choose at least 1",
                         o->global_batch);
    }
    if (o->shards > 0 && (o->global_batch % o->shards != 0 || o->first_shard < 0 ||
                          o->end_shard < o->first_shard || o->end_shard > o->shards)) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "shards %d to %d of %d for a global batch of %" PRId64
                         ": the batch must be a multiple of the shards",
                         o->first_shard, o->end_shard, o->shards, o->global_batch);
    }
    return KOLO_OK;
}

/* ---- augmentation ---- */

static kolo_status check_images(const kolo_loader_opts *o, const kolo_dataset_info *info) {
    const kolo_field *x = &info->fields[KOLO_FIELD_X], *y = &info->fields[KOLO_FIELD_Y];
    if (kolo_augment_any(&o->augment) &&
        (info->n_fields < 2 || x->dtype != KOLO_DTYPE_U8 || x->shape.rank != 3 ||
         x->shape.dim[0] > KOLO_MAX_CHANNELS || y->dtype != KOLO_DTYPE_I32)) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s cannot be augmented: that takes images as the first field, u8 [C,H,W] "
                         "with at most %d channels, and i32 labels as the second",
                         info->name, KOLO_MAX_CHANNELS);
    }
    if (kolo_augment_mixes(&o->augment) && y->shape.rank > 0) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "augment: mixup and cutmix mix the classes of two samples, and the labels "
                         "of %s are of pixels: leave them out",
                         info->name);
    }
    return KOLO_OK;
}

static kolo_status check_jitter(const kolo_loader_opts *o, const kolo_dataset_info *info) {
    const int64_t channels = info->fields[KOLO_FIELD_X].shape.dim[0];
    const bool colours = o->augment.jitter[KOLO_SATURATION] > 0 || o->augment.jitter[KOLO_HUE] > 0;
    if (kolo_augment_jitters(&o->augment) && channels != 3 && (channels != 1 || colours)) {
        return KOLO_FAIL(
            KOLO_ERR_ARG,
            "augment: jitter is for images of 3 channels, red, green and blue; of grey "
            "ones brightness and contrast alone (jitter=B:C): those of %s have %" PRId64,
            info->name, channels);
    }
    return KOLO_OK;
}

static kolo_status check_operations(const kolo_loader_opts *o, const kolo_dataset_info *info) {
    const int64_t channels = info->fields[KOLO_FIELD_X].shape.dim[0];
    if (o->augment.operations > 0 && channels != 3 && channels != 1) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "augment: randaugment is for images of one channel or three: those of %s "
                         "have %" PRId64,
                         info->name, channels);
    }
    if (o->augment.operations > 0 && info->fields[KOLO_FIELD_Y].shape.rank > 0) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "augment: randaugment moves pixels, and the labels of %s, one for each "
                         "pixel, would stay: leave it out",
                         info->name);
    }
    return KOLO_OK;
}

static kolo_status check_augment(const kolo_loader_opts *o, const kolo_dataset_info *info) {
    KOLO_TRY(check_images(o, info));
    KOLO_TRY(check_jitter(o, info));
    KOLO_TRY(check_operations(o, info));
    if ((o->augment.least_area > 0 || o->augment.scale[1] > 0) && !o->dataset->encoded) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "augment: %s is for images of their own sizes, such as "
                         "folder:DIR, and those of %s have one",
                         o->augment.least_area > 0 ? "resized-crop" : "scale", info->name);
    }
    return KOLO_OK;
}

/* The field with the weights of the classes of mixed samples. */
static kolo_status add_target(const kolo_dataset_info *info, kolo_field *fields, int *n_fields) {
    for (int f = 0; f < info->n_fields; f++) {
        if (strcmp(info->fields[f].name, KOLO_MIX_TARGET) != 0) continue;
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "augment: mixup and cutmix add a field \"%s\", and %s has one: rename it",
                         KOLO_MIX_TARGET, info->name);
    }
    if (info->n_fields == KOLO_MAX_FIELDS || info->classes < 1) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "augment: mixup and cutmix need the number of classes, and room for a "
                         "field: %s has %d classes and %d fields of at most %d",
                         info->name, info->classes, info->n_fields, KOLO_MAX_FIELDS);
    }
    fields[(*n_fields)++] = (kolo_field){
        .name = KOLO_MIX_TARGET, .dtype = KOLO_DTYPE_F32, .shape = {1, {info->classes}}};
    return KOLO_OK;
}

/* ---- the whole ---- */

static kolo_status check_ring(const kolo_loader_opts *o) {
    if (o->slots < 2 || o->slots > 1024) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%d loader slots: choose 2 to 1024", o->slots);
    }
    if (o->threads < KOLO_LOADER_NO_THREAD || o->threads > KOLO_LOADER_MAX_THREADS) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%d loader threads: choose at most %d", o->threads,
                         KOLO_LOADER_MAX_THREADS);
    }
    if (o->timeout_ms < 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "loader timeout of %" PRId64 " ms: choose at least 1",
                         o->timeout_ms);
    }
    return KOLO_OK;
}

static kolo_status check_stream(const kolo_loader_opts *o) {
    if (!o->streams) {
        KOLO_TRY(kolo_dataset_refuse_stream(o->dataset, "this"));
    } else if (o->world != 1 || o->shards > 0 || o->on_demand || o->every != 1) {
        return KOLO_FAIL(KOLO_ERR_ARG, "the loader of a stream has all samples of each step");
    }
    return KOLO_OK;
}

kolo_status kolo_loader_resolve(const kolo_loader_opts *given, kolo_loader_opts *resolved,
                                kolo_sampler_opts *order) {
    kolo_loader_opts o = *given;
    KOLO_ASSERT(o.dataset != NULL);
    if (o.world == 0) o.world = 1;
    if (o.slots == 0) o.slots = 4;
    if (o.threads == 0) o.threads = 1;
    if (o.every == 0) o.every = 1;
    if (o.timeout_ms == 0) o.timeout_ms = 300000;
    const kolo_dataset_info *info = kolo_dataset_describe(o.dataset);
    KOLO_TRY(check_share(&o));
    KOLO_TRY(check_augment(&o, info));
    KOLO_TRY(check_ring(&o));
    KOLO_TRY(check_stream(&o));
    if (o.streams) {
        o.threads = 1;
        o.no_shuffle = true;
    }
    *order = (kolo_sampler_opts){
        .samples = info->count,
        .global_batch = o.global_batch,
        .seed = o.seed,
        .order = o.order,
        .no_shuffle = o.no_shuffle,
    };
    int64_t steps = kolo_sampler_steps(order);
    if (o.end == 0 && o.first >= 0) o.end = (o.first / steps + 1) * steps;
    if (o.first < 0 || o.end < o.first) {
        return KOLO_FAIL(KOLO_ERR_ARG, "loader steps from %" PRId64 " to %" PRId64, o.first, o.end);
    }
    *resolved = o;
    return KOLO_OK;
}

kolo_status kolo_loader_fields(const kolo_loader_opts *opts, kolo_field fields[KOLO_MAX_FIELDS],
                               int *n_fields) {
    const kolo_dataset_info *info = kolo_dataset_describe(opts->dataset);
    memcpy(fields, info->fields, KOLO_MAX_FIELDS * sizeof *fields);
    *n_fields = info->n_fields;
    return kolo_augment_mixes(&opts->augment) ? add_target(info, fields, n_fields) : KOLO_OK;
}

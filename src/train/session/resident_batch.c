/* Loading the resident batch. */
#include "train/session/resident_batch.h"

#include "data/dataset.h"
#include "data/sampler.h"

/* This rank's part of the first global batch. */
static kolo_share share_of(const kolo_setup *setup, int rank) {
    const kolo_sampler_opts order = {.samples = setup->global_batch,
                                     .global_batch = setup->global_batch};
    if (!setup->counts) return kolo_sampler_share(&order, 0, rank, setup->workers);
    int first = 0;
    for (int r = 0; r < rank; r++) first += setup->counts[r];
    return kolo_sampler_shards(&order, 0, (int)setup->opts.reproducible, first,
                               first + setup->counts[rank]);
}

kolo_status kolo_resident_batch_load(const kolo_setup *setup, int rank,
                                     kolo_resident_batch *resident) {
    const kolo_dataset_info *info = kolo_dataset_describe(setup->train);
    kolo_share share = share_of(setup, rank);
    const int64_t n = share.count;
    kolo_resident_batch r = {.batch = {.count = n,
                                       .first = share.first,
                                       .global_count = setup->global_batch,
                                       .n_fields = info->n_fields,
                                       .fields = info->fields}};
    int64_t *indices = kolo_alloc((size_t)n * sizeof *indices);
    kolo_status status = indices ? KOLO_OK : KOLO_NOMEM((size_t)n * sizeof *indices);
    for (int f = 0; f < info->n_fields && status == KOLO_OK; f++) {
        size_t bytes = (size_t)n * kolo_field_bytes(&info->fields[f]);
        r.batch.data[f] = r.data[f] = kolo_alloc(bytes);
        if (!r.data[f]) status = KOLO_NOMEM(bytes);
    }
    if (status == KOLO_OK) {
        for (int64_t i = 0; i < n; i++) indices[i] = share.first + i;
        const kolo_draw draw = {.augment = &setup->augment, .damaged = &r.batch.damaged};
        status = kolo_dataset_gather_for(setup->train, indices, n, &draw, r.data);
    }
    kolo_free(indices);
    if (status != KOLO_OK) {
        kolo_resident_batch_fini(&r);
        return status;
    }
    *resident = r;
    return KOLO_OK;
}

void kolo_resident_batch_fini(kolo_resident_batch *resident) {
    for (int f = 0; f < KOLO_MAX_FIELDS; f++) kolo_free(resident->data[f]);
    *resident = (kolo_resident_batch){0};
}

/* Loading the resident batch. */
#include "train/session/resident_batch.h"

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
    int64_t n = share.count;
    size_t bytes =
        (size_t)n * (size_t)kolo_shape_count(&info->sample) * kolo_dtype_bytes(info->dtype);
    size_t labels = (size_t)n * (size_t)kolo_shape_count(&info->label);
    kolo_resident_batch f = {.samples = kolo_alloc(bytes),
                             .labels = kolo_alloc(labels * sizeof *f.labels)};
    int64_t *indices = kolo_alloc((size_t)n * sizeof *indices);
    kolo_status status = KOLO_OK;
    if (!f.samples || !f.labels || !indices) {
        status = KOLO_NOMEM(bytes);
    } else {
        for (int64_t i = 0; i < n; i++) indices[i] = share.first + i;
        status = kolo_dataset_gather(setup->train, indices, n, f.samples, f.labels);
    }
    kolo_free(indices);
    if (status != KOLO_OK) {
        kolo_resident_batch_fini(&f);
        return status;
    }
    f.batch = (kolo_batch){
        .count = n,
        .first = share.first,
        .global_count = setup->global_batch,
        .samples = f.samples,
        .labels = f.labels,
        .info = info,
    };
    *resident = f;
    return KOLO_OK;
}

void kolo_resident_batch_fini(kolo_resident_batch *resident) {
    kolo_free(resident->samples);
    kolo_free(resident->labels);
    *resident = (kolo_resident_batch){0};
}

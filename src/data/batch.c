/* Parts of batches. */
#include "data/batch.h"

#include "base/status.h"
#include "kolo/dtype.h"

kolo_batch kolo_batch_part(const kolo_batch *batch, int64_t first, int64_t count) {
    KOLO_ASSERT(first >= 0 && count >= 0 && first + count <= batch->count);
    kolo_batch part = *batch;
    part.count = count;
    part.first += first;
    if (count == 0) return part;
    size_t sample = (size_t)kolo_shape_count(&batch->info->sample);
    part.samples += (size_t)first * sample * kolo_dtype_bytes(batch->info->dtype);
    part.labels += first * kolo_shape_count(&batch->info->label);
    return part;
}

int64_t kolo_batch_labels(const kolo_batch *batch) {
    int64_t n = batch->count * kolo_shape_count(&batch->info->label), count = 0;
    for (int64_t i = 0; i < n; i++) count += batch->labels[i] >= 0;
    return count;
}

/* Parts of batches. */
#include "data/batch.h"

#include "base/status.h"
#include "kolo/dtype.h"

size_t kolo_field_bytes(const kolo_field *field) {
    return (size_t)kolo_shape_count(&field->shape) * kolo_dtype_bytes(field->dtype);
}

kolo_batch kolo_batch_part(const kolo_batch *batch, int64_t first, int64_t count) {
    KOLO_ASSERT(first >= 0 && count >= 0 && first + count <= batch->count);
    kolo_batch part = *batch;
    part.count = count;
    part.first += first;
    if (batch->indices) part.indices += first;
    for (int f = 0; f < batch->n_fields && count > 0; f++) {
        part.data[f] =
            (const char *)batch->data[f] + (size_t)first * kolo_field_bytes(&batch->fields[f]);
    }
    return part;
}

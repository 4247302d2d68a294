#pragma once
/* Parts of batches (kolo/data.h). */

#include "kolo/data.h"

/* Bytes of a field of one sample. */
size_t kolo_field_bytes(const kolo_field *field);
/* Samples [first, first + count) of a batch. */
kolo_batch kolo_batch_part(const kolo_batch *batch, int64_t first, int64_t count);

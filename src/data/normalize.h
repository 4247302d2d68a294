#pragma once
/* Normalization of images: from bytes to the floats that a network reads. It writes straight into
 * the input of a plan, so samples are swept once. */

#include "data/batch.h"

/* Memory order of a batch of images. */
typedef enum kolo_image_order { KOLO_NCHW, KOLO_NHWC } kolo_image_order;

/* Writes (x / 255 - mean_c) / std_c for the count * C*H*W elements of the batch, computed as
 * x * a_c + b_c with a_c = 1 / (255 std_c) and b_c = -mean_c / std_c rounded to f32: bitwise equal
 * on every machine. */
void kolo_batch_normalize(const kolo_batch *batch, kolo_image_order order, float *dst);

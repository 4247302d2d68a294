#pragma once
/* From the samples of a batch to what a network reads. Writes straight into the input of a plan, so
 * samples are swept once. */

#include "data/batch.h"

/* Memory order of a batch of images. */
typedef enum kolo_image_order { KOLO_NCHW, KOLO_NHWC } kolo_image_order;

/* Writes (x / 255 - mean) / std for the elements of `count` samples of a field of u8, computed as
 * x * a + b with a = 1 / (255 std) and b = -mean / std rounded to f32: bitwise equal on every
 * machine. NHWC: an image of at most KOLO_MAX_CHANNELS. */
void kolo_normalize(const kolo_field *field, const uint8_t *src, int64_t count,
                    kolo_image_order order, float *dst);
/* Copies `count` images of f32 from NCHW to NHWC. */
void kolo_interleave(const kolo_field *field, const float *src, int64_t count, float *dst);

#pragma once
/* Memory of images that are decoded and resized one after the other. Allocating it for each image
 * would make the kernel map and clear its pages for each image, and threads contend for the lock of
 * the address space. */

#include "kolo/status.h"

#include <stddef.h>

/* What the blocks hold. */
typedef enum kolo_image_block {
    KOLO_IMAGE_PIXELS,
    KOLO_IMAGE_ROW_FILTER,
    KOLO_IMAGE_COLUMN_FILTER,
    KOLO_IMAGE_WEIGHTS, /* of a pixel, before they are rounded */
    KOLO_IMAGE_BETWEEN, /* rows of the result, before columns are filtered */
    KOLO_IMAGE_WORK,
    KOLO_IMAGE_TURNED,
    KOLO_IMAGE_SPARE,
    KOLO_IMAGE_BLOCKS
} kolo_image_block;

/* Zeroed: it holds nothing yet. One thread at a time. */
typedef struct kolo_image_memory {
    void *block[KOLO_IMAGE_BLOCKS];
    size_t room[KOLO_IMAGE_BLOCKS];
    struct kolo_image_memory *next; /* in a pool */
} kolo_image_memory;

/* Room for `bytes`, whose contents are lost; NULL: there is no memory. It stays until the next call
 * for the block. */
void *kolo_image_reserve(kolo_image_memory *memory, kolo_image_block block, size_t bytes);
void kolo_image_memory_fini(kolo_image_memory *memory);

/* Memories that threads use in turn. Any thread. */
typedef struct kolo_image_pool kolo_image_pool;
kolo_status kolo_image_pool_create(kolo_image_pool **pool);
void kolo_image_pool_destroy(kolo_image_pool *pool);
/* One that no other thread has; NOMEM. */
kolo_status kolo_image_pool_take(kolo_image_pool *pool, kolo_image_memory **memory);
/* Returns it. Blocks of unusually large images are freed. */
void kolo_image_pool_give(kolo_image_pool *pool, kolo_image_memory *memory);

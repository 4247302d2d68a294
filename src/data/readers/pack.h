#pragma once
/* Packed data sets: a safetensors file with both splits of another data set, which is read
 * at random. SPLIT is "train" or "test".
 *
 *     metadata        kolo_pack (version, 1), kind (of the data set), classes; of images mean
 *                     and std (of the channels, numbers with blanks between); of encoded ones
 *                     size (HxW of a sample)
 *     SPLIT.x         decoded: the samples [n, ...]
 *     SPLIT.y         their labels [n, ...]
 *     SPLIT.images    encoded: the bytes of all files, one after the other
 *     SPLIT.ends      i64 [n]: where the files end
 *     SPLIT.labels    i32 [n], or masks in SPLIT.masks and SPLIT.mask_ends
 *     NAME.blocks     i64: the XXH3 of each block of 1 MiB of tensor NAME
 *
 * A block is checked when it is first used, the header when the file is opened. */

#include "data/dataset.h"
#include "data/safetensors/safetensors.h"

enum { KOLO_PACK_VERSION = 1, KOLO_PACK_BLOCK = 1 << 20 /* bytes */ };

/* Of encoded images. */
typedef struct kolo_pack_request {
    int64_t size[2]; /* of samples; 0: that of the file */
    bool scaled;     /* decode=scaled */
} kolo_pack_request;

/* Describes a data set of a file, which must outlive it; `path` names it in errors. FORMAT: no
 * pack, or a damaged one; IO: a damaged block; ARG; NOMEM. */
kolo_status kolo_pack_take(kolo_dataset *dataset, kolo_safetensors *file, const char *path,
                           const kolo_pack_request *opts);

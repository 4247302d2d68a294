#pragma once
/* What data sets of encoded images have in common: images are decoded as they are gathered, cropped
 * and resized to the size of a sample. A damaged image is an error, or is skipped: the next one
 * takes its place. */

#include "data/dataset.h"
#include "data/images/memory.h"
#include "data/readers/keys.h"

#include <stdatomic.h>

/* The bytes of an image. */
typedef struct kolo_encoded {
    char *bytes;
    size_t length;
    char *name; /* for messages */
} kolo_encoded;

typedef struct kolo_images kolo_images;
typedef struct kolo_read_ahead kolo_read_ahead;
/* Reads the bytes of image `index`; the caller frees name and bytes. Any thread. */
typedef kolo_status kolo_images_fetch(const kolo_images *images, int64_t index, kolo_encoded *e);

/* The first member of what a reader of images keeps in `own`. */
struct kolo_images {
    int64_t size[2];       /* of a sample: height, width */
    double test;           /* part of the samples that is the test split */
    uint64_t seed;         /* which these are */
    bool scaled;           /* decodes JPEGs at 1/2, 1/4 or 1/8 where the sample is that small */
    int32_t *labels;       /* by sample; NULL: masks have one for each pixel */
    int classes;           /* set by kolo_images_open */
    atomic_uchar *damaged; /* by sample: found to be */
    atomic_llong skipped;
    kolo_image_pool *pool;  /* memory of decoding threads */
    kolo_read_ahead *ahead; /* calls the following */
    kolo_images_fetch *fetch;
    kolo_images_fetch *fetch_mask; /* a PNG of the image's size, 255: no label; NULL: `labels` */
};

/* decode=exact or decode=scaled, into bool. */
bool kolo_images_parse_decode(const kolo_data_key *key, const char *text, const char *end);

/* Rows of a table of keys, for kolo_keys_parse. */
#define KOLO_IMAGES_DECODE(scaled) \
    { "decode", kolo_images_parse_decode, scaled, .write = "decode=exact or decode=scaled" }
#define KOLO_IMAGES_KEYS(images)                                                                  \
    KOLO_IMAGES_DECODE(&(images)->scaled),                                                        \
        {"size", kolo_key_size, (images)->size, 1, 8192, "size=HxW, or size=N for a square"},     \
        {"split", kolo_key_real, &(images)->test, 1e-6, 1 - 1e-6, "split=PART, between 0 and 1"}, \
    {                                                                                             \
        "seed", kolo_key_seed, &(images)->seed, .write = "seed=NUMBER, at least 0"                \
    }

/* The defaults of the keys. */
void kolo_images_init(kolo_images *images);

/* Completes a data set whose `own` begins with images, count, fetch, and labels or fetch_mask set.
 */
kolo_status kolo_images_open(kolo_dataset *dataset, int classes);
/* First in `close`: ends what is read ahead. */
void kolo_images_fini(kolo_images *images);

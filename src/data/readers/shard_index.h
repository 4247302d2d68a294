#pragma once
/* Indexes of tar shards on disk: where the samples of a shard lie, so that a later run does not
 * read a page of each member. A shard, for each kind of class, has one file NAME-HASH.kolo-index in
 * a folder of the user's choice.
 *
 * An index is valid if its shard has the size and the times of modification and of change of the
 * indexed one; a stale or damaged index is rebuilt. It is written atomically, by the process or
 * thread that holds the lock of the folder; others use the index that they built. A file of that
 * name that is no index is an error, and is not overwritten. */

#include "kolo/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KOLO_SHARD_INDEX_MAGIC "kolo tar index 1"

typedef struct kolo_shard_sample {
    uint64_t at, length; /* of its image */
    int32_t label, zero;
} kolo_shard_sample;

/* Which shard, and what of it. Zero-initialize it. */
typedef struct kolo_shard_key {
    uint64_t bytes;      /* of the shard */
    int64_t modified[2]; /* seconds and nanoseconds */
    int64_t changed[2];
    char *text; /* its path, and what names the class */
    char *path; /* of the index */
} kolo_shard_key;

/* Sets the key of the shard at `path` in the folder of indexes. `kind` and `label` name the member
 * and the number in it that is the class. IO, NOMEM. */
kolo_status kolo_shard_key_init(kolo_shard_key *key, const char *folder, const char *path,
                                const char *kind, const char *label);
void kolo_shard_key_fini(kolo_shard_key *key);

/* Finds the samples in an index of `length` bytes; they point into it. False: it is stale or
 * damaged. */
bool kolo_shard_index_parse(const void *bytes, size_t length, const kolo_shard_key *key,
                            const kolo_shard_sample **samples, size_t *n);

/* Reads the index of a shard: *samples for kolo_free; NULL: there is none that counts. ARG: another
 * file has its name; IO; NOMEM. */
kolo_status kolo_shard_index_read(const kolo_shard_key *key, kolo_shard_sample **samples,
                                  size_t *n);
/* Writes it, unless another process or thread writes to the folder, which is made if there is none.
 * ARG as above; IO: the folder cannot be written; NOMEM. */
kolo_status kolo_shard_index_write(const char *folder, const kolo_shard_key *key,
                                   const kolo_shard_sample *samples, size_t n);

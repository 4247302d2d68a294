/* Indexes of shards of any bytes, whose hash is right: samples lie within the shard. */
#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "data/readers/shard_index.h"
#include "fuzz/fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    char text[] = "cls\n\n/a.tar"; /* as the seeds have it */
    const kolo_shard_key key = {
        .bytes = 4096, .modified = {1700000000, 1}, .changed = {1700000001, 2}, .text = text};
    const kolo_shard_sample *samples;
    size_t n = 0, sum = 0;
    if (kolo_shard_index_parse(bytes, length, &key, &samples, &n)) sum++;
    uint8_t *copy = kolo_alloc(length + 1);
    KOLO_ASSERT(copy != NULL);
    memcpy(copy, bytes, length);
    if (length >= sizeof(uint64_t)) {
        const size_t rest = length - sizeof(uint64_t);
        const uint64_t hash = kolo_hash_bytes(copy, rest);
        memcpy(copy + rest, &hash, sizeof hash);
    }
    if (kolo_shard_index_parse(copy, length, &key, &samples, &n)) {
        for (size_t i = 0; i < n; i++) {
            KOLO_ASSERT(samples[i].at <= key.bytes && samples[i].label >= 0);
            KOLO_ASSERT(samples[i].length <= key.bytes - samples[i].at);
        }
    } else {
        KOLO_ASSERT(sum == 0);
    }
    kolo_free(copy);
    return 0;
}

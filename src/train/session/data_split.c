/* How the ranks divide the batches of a data set that they evaluate. */
#include "train/session/internal.h"

/* The samples of a place in a batch of a data set: with logical shards all batches but the last are
 * full, on any number of ranks (inference/evaluate.c). */
static int64_t data_share(const kolo_session *s, int64_t global, int place) {
    const int places = data_ranks(s);
    const kolo_sampler_opts full = {.samples = global, .global_batch = s->opts.batch * places};
    if (s->opts.shards == 0) return kolo_part_count(global, places, place);
    return kolo_sampler_shards(&full, 0, places, place, place + 1).count;
}

int64_t kolo_session_data_share(const kolo_session *s, int64_t global) {
    return data_share(s, global, data_rank(s));
}

int64_t kolo_session_data_key(const kolo_session *s, int64_t global, int64_t samples) {
    int64_t key = 0;
    if (!evaluates_together(s)) return samples;
    for (int p = 0; p < data_ranks(s); p++) key = add_place(key, data_share(s, global, p));
    return key;
}

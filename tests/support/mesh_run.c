#include "support/mesh_run.h"

#include "support/support.h"

#include <math.h>
#include <stdlib.h>

kolo_status mesh_read_parameters(const kolo_store *store, double to[MESH_NUMBERS]) {
    int64_t used = 0;
    for (int i = 0; i < kolo_store_count(store); i++) {
        const kolo_store_entry *entry = kolo_store_entry_at(store, i);
        if (!kolo_store_entry_is_model(entry)) continue;
        if (used + kolo_shape_count(&entry->canon) > MESH_NUMBERS) return KOLO_ERR_NOMEM;
        KOLO_TRY(kolo_store_read(store, entry, to + used));
        used += kolo_shape_count(&entry->canon);
    }
    return KOLO_OK;
}

const mesh_outcome *mesh_run(int ranks, rank_transport transport, rank_body body, const void *arg,
                             size_t arg_bytes) {
    static mesh_outcome *outcomes[2];
    static int turn;
    free(outcomes[turn ^= 1]);
    mesh_outcome *own = outcomes[turn] = calloc((size_t)ranks, sizeof *own);
    assert_non_null(own);
    rank_job job = {
        .n = ranks,
        .transport = transport,
        .body = body,
        .arg = arg,
        .arg_bytes = arg_bytes,
        .results = own,
        .result_bytes = sizeof *own,
    };
    ASSERT_OK(run_rank_job(&job));
    for (int rank = 1; rank < ranks; rank++) {
        assert_memory_equal(own[rank].losses, own[0].losses, sizeof own->losses);
        assert_memory_equal(own[rank].first, own[0].first, sizeof own->first);
        assert_memory_equal(own[rank].last, own[0].last, sizeof own->last);
    }
    return own;
}

void mesh_assert_close(const char *what, const mesh_outcome *a, const mesh_outcome *b) {
    double loss = fabs(a->losses[0] - b->losses[0]) / b->losses[0];
    double losses = test_relative_l2_f64(a->losses, b->losses, MESH_STEPS);
    double first = test_relative_l2_f64(a->first, b->first, MESH_NUMBERS);
    double last = test_relative_l2_f64(a->last, b->last, MESH_NUMBERS);
    if (loss < 1e-12 && first < 1e-12 && losses < 1e-10 && last < 1e-10) return;
    fail_msg("%s: losses differ by %g, then %g; parameters by %g, then %g", what, loss, losses,
             first, last);
}

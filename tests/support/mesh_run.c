#include "support/mesh_run.h"

#include "plan/internal.h"
#include "support/support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

void mesh_feed_tokens(kolo_plan *p, int step, int64_t first, int64_t count, int words) {
    int32_t *x = kolo_plan_input(p, "x", &(kolo_tensor){0});
    int32_t *y = kolo_plan_input(p, "y", &(kolo_tensor){0});
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = step % 3 * 1000 + first + i;
        x[i] = (int32_t)(at * 7 % words);
        y[i] = (int32_t)(at * at % words);
    }
}

/* The samples that this rank has of each micro-batch, as place `dp` of `ranks`. */
typedef struct share {
    int dp, ranks;
} share;

static kolo_status run_step(kolo_plan *p, const mesh_model *m, const share *of, int step) {
    const int64_t count = m->samples / of->ranks, first = of->dp * count;
    kolo_plan_set(p, kolo_plan_find_scalar(p, "lr"), 0.05);
    kolo_plan_set(p, kolo_plan_find_scalar(p, "update"), step + 1);
    kolo_plan_set(p, kolo_plan_find_scalar(p, "grad_scale"),
                  1.0 / (double)(m->samples * m->terms * m->micro_batches));
    kolo_plan_set(p, kolo_plan_find_scalar(p, "share"),
                  1.0 / (double)(of->ranks * m->micro_batches));
    kolo_plan_set(p, kolo_plan_find_scalar(p, "rank_weight"), 1.0 / (double)count);
    kolo_plan_set(p, kolo_plan_find_scalar(p, "sample_weight"), 1.0 / (double)m->samples);
    kolo_plan_set_integer(p, kolo_plan_find_scalar(p, "rng_key"), 77 + step);
    for (int64_t k = 0; k < m->micro_batches; k++) {
        const int64_t from = k * m->samples + first;
        m->feed(p, step, from, count, m->arg);
        kolo_plan_set_integer(p, kolo_plan_find_scalar(p, "first_sample"), from);
        kolo_plan_set(p, kolo_plan_find_scalar(p, "fresh"), k == 0);
        KOLO_TRY(k == m->micro_batches - 1 ? kolo_plan_run(p) : kolo_plan_accumulate(p));
    }
    return KOLO_OK;
}

static kolo_status train(kolo_comm *comm, kolo_store *store, const mesh_model *m,
                         kolo_mesh_comms *groups, const kolo_mesh *mesh, kolo_plan **plan,
                         mesh_outcome *o) {
    const int axis = kolo_mesh_find(mesh, "dp");
    const share of = {kolo_mesh_coordinate(mesh, kolo_comm_rank(comm), axis),
                      mesh->axes[axis].size};
    kolo_graph *g;
    KOLO_TRY(kolo_graph_create(&(kolo_graph_opts){KOLO_DTYPE_F64}, &g));
    kolo_status status = m->build(g, m->samples / of.ranks, m->arg);
    if (status != KOLO_OK) {
        kolo_graph_destroy(g);
        return status;
    }
    const kolo_plan_opts opts = {.train = true,
                                 .optimizer = m->optimizer,
                                 .micro_batches = m->micro_batches,
                                 .sync_batch_norm = m->sync_batch_norm,
                                 .sparse_embedding = m->sparse_embedding,
                                 .recompute = m->recompute,
                                 .zero = m->zero,
                                 .mesh = *mesh,
                                 .placement = m->placement,
                                 .groups = groups,
                                 .kernels = KOLO_KERNELS_REF,
                                 .bucket_bytes = 2000};
    KOLO_TRY(kolo_plan_compile(g, &opts, store, comm, plan));
    KOLO_TRY(kolo_store_init(store, 5));
    KOLO_TRY(mesh_read_parameters(store, o->initial));
    for (int k = 0; k < MESH_STEPS; k++) {
        KOLO_TRY(run_step(*plan, m, &of, k));
        o->losses[k] = kolo_plan_scalar(*plan, "loss");
        if (k == 0) KOLO_TRY(mesh_read_parameters(store, o->first));
    }
    return mesh_read_parameters(store, o->last);
}

kolo_status mesh_train(kolo_comm *comm, const mesh_model *m, mesh_outcome *o) {
    kolo_mesh mesh;
    kolo_mesh_comms *groups;
    kolo_store *store;
    kolo_plan *plan = NULL;
    KOLO_TRY(kolo_mesh_parse(m->mesh, kolo_comm_size(comm), &mesh));
    KOLO_TRY(kolo_mesh_comms_create(&mesh, comm, &groups));
    KOLO_TRY(kolo_store_create(NULL, &store));
    kolo_status status = train(comm, store, m, groups, &mesh, &plan, o);
    kolo_plan_destroy(plan);
    kolo_store_destroy(store);
    kolo_mesh_comms_destroy(groups);
    return status;
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

void mesh_assert_learns(const char *what, const mesh_outcome *o, int period) {
    const int last = (MESH_STEPS - 1) / period * period;
    if (!(o->losses[last] < o->losses[0])) {
        fail_msg("%s: the loss of step %d is %.6g, of the same samples in step 0 %.6g", what, last,
                 o->losses[last], o->losses[0]);
    }
}

void mesh_assert_close(const char *what, const mesh_outcome *a, const mesh_outcome *b) {
    if (memcmp(a->initial, b->initial, sizeof a->initial) != 0) {
        fail_msg("%s: initial parameters differ", what);
    }
    double loss = fabs(a->losses[0] - b->losses[0]) / b->losses[0];
    double losses = test_relative_l2_f64(a->losses, b->losses, MESH_STEPS);
    double first = test_relative_l2_f64(a->first, b->first, MESH_NUMBERS);
    double last = test_relative_l2_f64(a->last, b->last, MESH_NUMBERS);
    if (loss < 1e-12 && first < 1e-12 && losses < 1e-10 && last < 1e-10) return;
    fail_msg("%s: losses differ by %g, then %g; parameters by %g, then %g", what, loss, losses,
             first, last);
}

void mesh_assert_equals(const char *what, rank_body body, const void *meshed, int ranks,
                        const void *alone, int alone_ranks, size_t bytes) {
    static mesh_outcome expected;
    expected = *mesh_run(alone_ranks, RANKS_THREAD, body, alone, bytes);
    mesh_assert_learns(what, &expected, 3);
    mesh_assert_close(what, mesh_run(ranks, RANKS_THREAD, body, meshed, bytes), &expected);
}

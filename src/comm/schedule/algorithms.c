/* The table of algorithms, and their names on the command line. */
#include "comm/schedule/algorithms.h"

#include "base/status.h"

#include <string.h>

static const kolo_algorithm_row *const rows[] = {
    &kolo_ring_allreduce,        &kolo_tree_allreduce,
    &kolo_double_tree_allreduce, &kolo_halving_allreduce,
    &kolo_mesh_allreduce,        &kolo_hierarchical_allreduce,
    &kolo_fixed_allreduce,       &kolo_fixed_window_allreduce,
    &kolo_fixed_eager_allreduce, &kolo_direct_allreduce,
    &kolo_staged_allreduce,      &kolo_eager_allreduce,
    &kolo_tree_broadcast,        &kolo_direct_broadcast,
    &kolo_staged_broadcast,      &kolo_eager_broadcast,
    &kolo_dissemination_barrier, &kolo_direct_barrier,
    &kolo_tree_reduce,           &kolo_window_reduce,
    &kolo_mesh_reduce_scatter,   &kolo_window_reduce_scatter,
    &kolo_mesh_allgather,        &kolo_window_allgather,
    &kolo_mesh_gather,           &kolo_mesh_scatter,
    &kolo_mesh_alltoall,         &kolo_hierarchical_window_allreduce,
};

const kolo_algorithm_row *kolo_algorithm_row_at(size_t i) {
    return i < KOLO_COUNT(rows) ? rows[i] : NULL;
}

const kolo_algorithm_row *kolo_algorithm_find(kolo_collective kind, kolo_algorithm algorithm,
                                              kolo_variant variant) {
    for (size_t i = 0; i < KOLO_COUNT(rows); i++) {
        const kolo_algorithm_row *row = rows[i];
        if (row->kind == kind && row->algorithm == algorithm && row->variant == variant) return row;
    }
    return NULL;
}

static const char *const names[] = {
    [KOLO_ALGORITHM_AUTO] = "auto",
    [KOLO_ALGORITHM_RING] = "ring",
    [KOLO_ALGORITHM_DIRECT] = "direct",
    [KOLO_ALGORITHM_TREE] = "tree",
    [KOLO_ALGORITHM_DOUBLE_TREE] = "double-tree",
    [KOLO_ALGORITHM_HALVING_DOUBLING] = "halving-doubling",
    [KOLO_ALGORITHM_MESH] = "mesh",
    [KOLO_ALGORITHM_HIERARCHICAL] = "hierarchical",
    NULL,
};

const char *kolo_algorithm_name(kolo_algorithm algorithm) {
    size_t i = (size_t)algorithm;
    return i < KOLO_COUNT(names) - 1 ? names[i] : "unknown";
}

kolo_status kolo_algorithm_parse(const char *name, kolo_algorithm *algorithm) {
    if (!name) return KOLO_FAIL(KOLO_ERR_ARG, "the name of an algorithm is missing");
    for (size_t i = 0; names[i]; i++) {
        if (strcmp(name, names[i]) == 0) {
            *algorithm = (kolo_algorithm)i;
            return KOLO_OK;
        }
    }
    const char *closest = kolo_closest(name, names);
    return KOLO_FAIL(KOLO_ERR_ARG, "unknown algorithm '%s': %s%s%s", name,
                     closest ? "did you mean '"
                             : "choose one of auto, ring, direct, tree, double-tree, "
                               "halving-doubling, mesh, hierarchical",
                     closest ? closest : "", closest ? "'?" : "");
}

/* The table of algorithms: lookup by name and by use. */
#include "comm/schedule/algorithms.h"

#include "base/status.h"

#include <string.h>

static const kolo_algorithm_info *const infos[KOLO_ALGORITHM_COUNT] = {
#define INFO(code, row, name, description) [code] = &kolo_allreduce_##row,
    KOLO_ALGORITHM_LIST(INFO)
#undef INFO
};

/* The reproducible allreduce and the other collectives. */
static const kolo_algorithm_row *const rows[] = {
    &kolo_reproducible_allreduce,
    &kolo_reproducible_window_allreduce,
    &kolo_reproducible_eager_allreduce,
    &kolo_tree_broadcast,
    &kolo_direct_broadcast,
    &kolo_staged_broadcast,
    &kolo_eager_broadcast,
    &kolo_dissemination_barrier,
    &kolo_direct_barrier,
    &kolo_tree_reduce,
    &kolo_mesh_reduce,
    &kolo_window_reduce,
    &kolo_mesh_reduce_scatter,
    &kolo_window_reduce_scatter,
    &kolo_ring_reduce_scatter,
    &kolo_bruck_reduce_scatter,
    &kolo_mesh_allgather,
    &kolo_window_allgather,
    &kolo_bruck_allgather,
    &kolo_mesh_gather,
    &kolo_mesh_scatter,
    &kolo_mesh_alltoall,
};

const kolo_algorithm_info *kolo_algorithm_info_of(kolo_algorithm algorithm) {
    KOLO_ASSERT(algorithm > KOLO_ALGORITHM_AUTO && algorithm < KOLO_ALGORITHM_COUNT);
    return infos[algorithm];
}

/* The algorithm's row of a variant, NULL if there is none. */
static const kolo_algorithm_row *find_variant(kolo_algorithm algorithm, kolo_variant variant) {
    const kolo_algorithm_row *row = kolo_algorithm_info_of(algorithm)->rows;
    while (row->write && row->variant != variant) row++;
    return row->write ? row : NULL;
}

bool kolo_algorithm_spans_hosts(kolo_algorithm algorithm) {
    bool named = algorithm > KOLO_ALGORITHM_AUTO && algorithm < KOLO_ALGORITHM_COUNT;
    return named && infos[algorithm]->spans_hosts;
}

bool kolo_algorithm_usable(kolo_algorithm algorithm, bool windows, int hosts) {
    if (hosts == 1 && kolo_algorithm_spans_hosts(algorithm)) return false;
    return windows || find_variant(algorithm, KOLO_VARIANT_MESSAGES);
}

bool kolo_algorithm_all_pairs(kolo_algorithm algorithm) {
    bool named = algorithm > KOLO_ALGORITHM_AUTO && algorithm < KOLO_ALGORITHM_COUNT;
    return named && infos[algorithm]->all_pairs;
}

bool kolo_algorithm_in_order(kolo_algorithm algorithm) {
    bool named = algorithm > KOLO_ALGORITHM_AUTO && algorithm < KOLO_ALGORITHM_COUNT;
    return named && infos[algorithm]->in_order;
}

const kolo_algorithm_row *kolo_algorithm_row_at(size_t i) {
    for (int a = KOLO_ALGORITHM_AUTO + 1; a < KOLO_ALGORITHM_COUNT; a++) {
        for (const kolo_algorithm_row *row = infos[a]->rows; row->write; row++, i--) {
            if (i == 0) return row;
        }
    }
    return i < KOLO_COUNT(rows) ? rows[i] : NULL;
}

const kolo_algorithm_row *kolo_algorithm_find(kolo_collective kind, kolo_algorithm algorithm,
                                              kolo_variant variant) {
    bool named = algorithm > KOLO_ALGORITHM_AUTO && algorithm < KOLO_ALGORITHM_COUNT;
    if (named && kind == KOLO_COLLECTIVE_ALLREDUCE) return find_variant(algorithm, variant);
    for (size_t i = 0; i < KOLO_COUNT(rows); i++) {
        const kolo_algorithm_row *row = rows[i];
        if (row->kind == kind && row->algorithm == algorithm && row->variant == variant) return row;
    }
    return NULL;
}

static const char *const names[] = {
    "auto",
#define NAME(code, row, name, description) name,
    KOLO_ALGORITHM_LIST(NAME) NULL,
#undef NAME
};

static const char *const descriptions[] = {"the cheapest algorithm by size, group and transport",
#define DESCRIPTION(code, row, name, description) description,
                                           KOLO_ALGORITHM_LIST(DESCRIPTION)
#undef DESCRIPTION
};

const char *kolo_algorithm_name(kolo_algorithm algorithm) {
    return (size_t)algorithm < KOLO_ALGORITHM_COUNT ? names[algorithm] : "unknown";
}

const char *kolo_algorithm_description(kolo_algorithm algorithm) {
    return (size_t)algorithm < KOLO_ALGORITHM_COUNT ? descriptions[algorithm] : "unknown";
}

kolo_status kolo_algorithm_parse(const char *name, kolo_algorithm *algorithm) {
    if (!name) return KOLO_FAIL(KOLO_ERR_ARG, "missing algorithm name");
    for (size_t i = 0; names[i]; i++) {
        if (strcmp(name, names[i]) == 0) {
            *algorithm = (kolo_algorithm)i;
            return KOLO_OK;
        }
    }
    const char *closest = kolo_closest(name, names);
    if (closest) {
        return KOLO_FAIL(KOLO_ERR_ARG, "unknown algorithm '%s': did you mean '%s'?", name, closest);
    }
#define COMMA_NAME(code, row, name, description) ", " name
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "unknown algorithm '%s': choose one of auto" KOLO_ALGORITHM_LIST(COMMA_NAME),
                     name);
#undef COMMA_NAME
}

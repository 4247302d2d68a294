/* The entries of the store that a plan reads and updates: finding them, adding missing ones, and
 * checking that the plan fits them. */
#include "plan/internal.h"

bool kolo_plan_layout_in_store(void *arg, const char *name, kolo_tensor *tensor) {
    const kolo_store_entry *entry = kolo_store_find(arg, name);
    if (!entry) return false;
    *tensor = entry->mesh           ? entry->slice
              : entry->versions > 0 ? kolo_tensor_unstack(&entry->tensor)
                                    : entry->tensor;
    return true;
}

bool kolo_plan_cut_in_store(void *arg, const char *name, kolo_zero_cut *cut) {
    const kolo_store_entry *entry = kolo_store_find(arg, name);
    if (!entry || entry->versions > 0 || !(entry->cuts || entry->joins)) return false;
    *cut = (kolo_zero_cut){entry->cuts ? entry->cuts : entry->joins, entry->unit, entry->place};
    return true;
}

/* Whether an entry is the parameter or state v, sharded alike. */
static bool is_entry(const kolo_graph *g, const kolo_store_entry *entry, kolo_value v) {
    const kolo_value_info *info = kolo_info(g, v);
    int64_t first, count;
    bool sharded = kolo_flat_range(g, v, &first, &count);
    const kolo_tensor *tensor = info->versions > 0 ? &info->whole
                                : sharded          ? &info->slice
                                                   : &info->tensor;
    const bool cut_alike = sharded == (entry->cuts != NULL) &&
                           (!sharded || (entry->first == first && entry->count == count));
    if (kolo_store_slices(g, v) != (entry->mesh != NULL)) return false;
    if ((info->holders != 0) != entry->staged || kolo_is_held(g, info) == entry->elsewhere) {
        return false;
    }
    if (entry->mesh) {
        return kolo_shape_equal(&entry->tensor.shape, &info->whole.shape) &&
               kolo_shape_equal(&entry->slice.shape, &tensor->shape) &&
               kolo_layout_equal(&entry->slice.layout, &tensor->layout) && cut_alike;
    }
    return kolo_shape_equal(&entry->tensor.shape, &tensor->shape) &&
           kolo_layout_equal(&entry->tensor.layout, &tensor->layout) && cut_alike;
}

/* Maps parameters and state to the entries of the store; adds missing entries. */
static kolo_status find_entries(kolo_plan *p) {
    const kolo_graph *g = p->graph;
    for (int32_t v = 0; v < g->n_values; v++) {
        const kolo_value_info *info = &g->values[v];
        if (info->kind != KOLO_VALUE_PARAM && info->kind != KOLO_VALUE_STATE) continue;
        const kolo_store_entry *entry = kolo_store_find(p->store, info->name);
        if (!entry) {
            KOLO_TRY(kolo_store_add(p->store, g, (kolo_value){.id = v}));
            entry = kolo_store_entry_at(p->store, kolo_store_count(p->store) - 1);
        } else if (!is_entry(g, entry, (kolo_value){.id = v})) {
            return KOLO_FAIL(KOLO_ERR_ARG, "parameter %s has another shape in another plan",
                             info->name);
        }
        p->entries[v] = (int)(entry - kolo_store_entry_at(p->store, 0));
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        bool joins = n->op->comm == KOLO_OP_WAIT && kolo_value_ok(kolo_info(g, n->out[0])->next_of);
        if (joins) KOLO_TRY(kolo_store_join(p->store, g, n));
    }
    if (p->comm) p->store->comm = p->comm;
    KOLO_TRY(kolo_plan_check_device(p)); /* scratch memory is not known yet */
    return kolo_store_grow(p->store, p->comm);
}

/* In-place updates follow all readers of the old version and, with other ranks, every WAIT. */
static kolo_status check_overwrites(const kolo_plan *p) {
    const kolo_graph *g = p->graph;
    int32_t *reader = kolo_zalloc(((size_t)g->n_values + 1) * sizeof *reader), wait = -1;
    if (!reader) return KOLO_NOMEM((size_t)g->n_values * sizeof *reader);
    for (int32_t i = 0; i < g->n_nodes; i++) {
        if (p->comm && !p->store->alone && g->nodes[i]->op->comm == KOLO_OP_WAIT) wait = i;
        for (int k = 0; k < g->nodes[i]->n_in; k++)
            reader[g->nodes[i]->in[k].id] = i; /* the last */
    }
    kolo_status status = KOLO_OK;
    for (int32_t v = 0; status == KOLO_OK && v < g->n_values; v++) {
        kolo_value old = g->values[v].next_of;
        if (!kolo_value_ok(old) || !kolo_plan_entry(p, old.id)->single) continue;
        if (wait > g->values[v].producer) {
            status = KOLO_FAIL(KOLO_ERR_FORMAT, "%s is overwritten before the last WAIT",
                               kolo_info(g, old)->name);
        } else if (reader[old.id] > g->values[v].producer) {
            status =
                KOLO_FAIL(KOLO_ERR_FORMAT, "%s is read after its update", kolo_info(g, old)->name);
        }
    }
    kolo_free(reader);
    return status;
}

kolo_status kolo_plan_tie_store(kolo_plan *p) {
    p->entries = kolo_zalloc(((size_t)p->graph->n_values + 1) * sizeof *p->entries);
    if (!p->entries) return KOLO_NOMEM((size_t)p->graph->n_values * sizeof *p->entries);
    KOLO_TRY(find_entries(p));
    return check_overwrites(p);
}

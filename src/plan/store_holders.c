/* Which ranks of a mesh hold a parameter: the stages that have it, and how the ranks of a stage
 * divide it. Ranges of ZeRO are left out: files do not depend on them. */
#include "plan/store.h"

static void add_stages(const kolo_graph *g, uint64_t holders, kolo_text *text) {
    const char *separator = "pp:";
    for (int stage = 0; stage < g->stages; stage++) {
        if (!(holders >> stage & 1)) continue;
        kolo_text_add(text, "%s%d", separator, stage);
        separator = ",";
    }
}

kolo_status kolo_store_describe_holders(kolo_store *s, const kolo_graph *g, kolo_value v,
                                        const char **holders) {
    const kolo_value_info *value = kolo_info(g, v);
    const int dp = kolo_mesh_find(&g->mesh, "dp");
    const bool slice = kolo_is_slice(g, v), staged = value->holders != 0;
    char mesh[KOLO_MESH_TEXT], placed[KOLO_PLACEMENT_TEXT];
    kolo_placements placements = value->placements;
    kolo_text text = {0};
    *holders = NULL;
    if (!slice && !staged) return KOLO_OK;
    if (dp >= 0) placements.axis[dp] = (kolo_placement){0};
    if (staged) add_stages(g, value->holders, &text);
    if (staged && slice) kolo_text_add(&text, " ");
    if (slice) kolo_text_add(&text, "%s", kolo_placements_text(&g->mesh, &placements, placed));
    *holders = !text.failed ? kolo_arena_strdup(&s->names, text.text) : NULL;
    if (!s->mesh) s->mesh = kolo_arena_strdup(&s->names, kolo_mesh_text(&g->mesh, mesh));
    kolo_text_fini(&text);
    return *holders && s->mesh ? KOLO_OK : KOLO_NOMEM(64);
}

const char *kolo_store_mesh(const kolo_store *s) { return s->mesh; }

/* The layouts of a whole model, for one of its stages: all passes run on it, as for one worker. */
#include "kernel/select/cache.h"
#include "pass/pass.h"

kolo_status kolo_whole_layouts_find(kolo_graph *g, const kolo_pipeline_opts *opts, int place,
                                    kolo_whole_layouts *w) {
    kolo_selections selections = {0};
    kolo_pipeline_opts o = *opts;
    o.mesh.axes[kolo_mesh_find(&o.mesh, "pp")].size = 1;
    o.rank = place;
    o.parts = (kolo_parts){0};
    o.splits = false;
    o.share = false;
    o.zero = 0;
    o.no_chains = true; /* nodes stay what the pass layout has chosen for */
    o.lanes = KOLO_LANES_OFF;
    o.selections = &selections;
    *w = (kolo_whole_layouts){0};
    kolo_status status = kolo_pipeline_run(g, &o);
    if (status == KOLO_OK) status = kolo_whole_layouts_take(g, w);
    if (status != KOLO_OK) kolo_whole_layouts_fini(w);
    kolo_selections_fini(&selections);
    return status;
}

void kolo_whole_layouts_fini(kolo_whole_layouts *w) {
    kolo_arena_fini(&w->arena);
    *w = (kolo_whole_layouts){0};
}

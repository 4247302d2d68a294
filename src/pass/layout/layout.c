/* Layout: chooses the memory order of each value by the estimated times of the kernels.
 *
 * Values that must share a layout form *components* (components.c): the activations of one
 * image size that a chain of convolutions, pools and pointwise ops passes on; a parameter with its
 * gradient, optimizer state and next version. Each component of activations takes one of a few
 * families (NCHW, NHWC, channels in blocks of 8 or 16). Each input is NCHW or NHWC, which a loader
 * can write. Weights are open: the first kernel that reads them chooses. Everything else is plain.
 *
 * Ranks that have slices of the same values, which may be of different sizes, take the layouts that
 * one of them has chosen (group.c).
 *
 * The time of an assignment is the sum over nodes of the estimate of the best kernel
 * (search.c). A node may make a *detour*: its activations are reordered into another family,
 * for a node that is slow or unsupported in the family around it, and for nodes between two
 * regions. The search tries each family for all components together, then improves one component at
 * a time.
 *
 * With blocks of tensor parallelism (partition/blocks.c) images are plain outside of detours: the
 * fastest assignment depends on how many of the blocks the rank has, and the kernels must not.
 *
 * A stage of a pipeline takes the layouts of the whole model where its results must have the bits
 * of one worker (whole.c).
 *
 * Where a layout has to change (in a detour, before a view, at an output, for weights that a kernel
 * cannot take as they are) the pass inserts a reorder node, one for each value and layout, and
 * removes those that change nothing (reorders.c). */
#include "pass/layout/layout.h"

#include "kernel/select/families.h"

static const char *const family_names[N_FAMILIES] = {"abcd", "acdb", "aBcd8b", "aBcd16b"};

kolo_status kolo_pass_layout(kolo_graph *g, const kolo_layout_opts *opts) {
    if (opts->kernels == KOLO_KERNELS_REF) return KOLO_OK; /* all is plain already */
    KOLO_TRY(kolo_kernel_check_graph(opts->kernels, g));   /* the search names other ops, too */
    KOLO_TRY(kolo_layout_add_borders(g));
    layouter l = {.g = g,
                  .kernels = opts->kernels,
                  .tuner = opts->tuner,
                  .selections = opts->selections,
                  .threads = opts->threads};
    kolo_status status = KOLO_OK;
    size_t n_values = (size_t)g->n_values + 1, n_nodes = (size_t)g->n_nodes + 1;
    l.root = kolo_arena_alloc(&l.arena, n_values * sizeof *l.root);
    l.components = kolo_arena_alloc(&l.arena, n_values * sizeof *l.components);
    l.twin = kolo_arena_alloc(&l.arena, n_nodes * sizeof *l.twin);
    l.memos = kolo_arena_alloc(&l.arena, n_nodes * sizeof(memo *));
    l.reordered = kolo_arena_alloc(&l.arena, n_nodes * sizeof *l.reordered);
    l.detour = kolo_arena_alloc(&l.arena, n_nodes * sizeof *l.detour);
    l.copies = kolo_arena_alloc(&l.arena, n_values * sizeof(copy *));
    if (!l.root || !l.components || !l.twin || !l.memos || !l.reordered || !l.detour || !l.copies) {
        status = KOLO_NOMEM(n_values * sizeof *l.components);
        goto done;
    }
    for (int f = 0; f < N_FAMILIES; f++) {
        KOLO_TRY_GOTO(kolo_layout_parse(family_names[f], &l.families[f]), done);
    }
    KOLO_TRY_GOTO(kolo_layout_find_components(&l, opts->fixed, opts->fixed_arg), done);
    if (opts->whole) kolo_layout_take_whole(&l, opts->whole);
    if (opts->decider) {
        KOLO_TRY_GOTO(kolo_layout_decide(&l, opts->decider), done);
    } else {
        KOLO_TRY_GOTO(kolo_layout_search(&l), done);
    }
    status = kolo_layout_apply(&l);
    if (status == KOLO_OK && opts->whole) status = kolo_layout_check_whole(g, opts->whole);
done:
    kolo_arena_fini(&l.arena);
    return status;
}

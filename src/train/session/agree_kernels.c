/* Comparison of kernels, as text: a line for the instruction set and one for each kernel. */
#include "train/session/agree_kernels.h"

#include "base/isa.h"
#include "base/memory.h"
#include "train/session/agree.h"
#include "train/session/internal.h"

/* With `ranges`, updates, and copies of parameters that are gathered, are of ranges, which may be
 * empty on some ranks: they go element by element and round alike in any kernel. */
static kolo_status describe(const kolo_plan *plan, bool ranges, kolo_text *text) {
    int n = kolo_plan_n_steps(plan);
    kolo_step_info *steps = kolo_alloc((size_t)n * sizeof *steps);
    if (!steps) return KOLO_NOMEM((size_t)n * sizeof *steps);
    kolo_plan_describe(plan, steps);
    for (int i = 0; i < n; i++) {
        const kolo_step_info *s = &steps[i];
        if (s->kind != KOLO_STEP_KERNEL || (ranges && (s->once || s->range))) {
            continue;
        }
        kolo_text_add(text, "kernel of %s%s%s: %s %s\n", s->op, s->parameter ? " with " : "",
                      s->parameter ? s->parameter : "", s->kernel, s->implementation);
    }
    kolo_free(steps);
    return KOLO_OK;
}

/* Ends all ranks with the text of one whose text differs. */
static kolo_status agree(kolo_comm *comm, kolo_status status, kolo_text *text) {
    if (status == KOLO_OK && text->failed) status = KOLO_NOMEM(text->length);
    status = kolo_agree(comm, status);
    if (status == KOLO_OK) status = kolo_agree_text(comm, text->text);
    kolo_text_fini(text);
    return status;
}

kolo_status kolo_session_agree_kernels(const kolo_session *s, bool ranges) {
    const kolo_mesh *mesh = &s->opts.plan.mesh;
    const int dp = kolo_mesh_find(mesh, "dp");
    kolo_comm *alike = s->comm;
    kolo_text set = {0}, kernels = {0};
    kolo_text_add(&set, "instruction set: %s\n", kolo_isa_describe(kolo_isa_now())->label);
    KOLO_TRY(agree(s->comm, KOLO_OK, &set));
    if (kolo_session_stages(s) > 1) { /* other stages have other kernels */
        const kolo_axes axes = (kolo_axes)(mesh->axes[dp].size > 1) << dp;
        KOLO_TRY(kolo_mesh_comms_get(s->groups, axes, &alike));
    }
    const kolo_plan *plan = kolo_session_plan(s);
    return kolo_agree(s->comm, agree(alike, describe(plan, ranges, &kernels), &kernels));
}

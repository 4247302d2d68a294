/* Comparison of kernels, as text: a line for the instruction set and one for each kernel. */
#include "train/session/agree_kernels.h"

#include "base/isa.h"
#include "base/memory.h"
#include "train/session/agree.h"

/* With `shards`, updates, and copies of parameters that are gathered, are of ranges, which may be
 * empty on some ranks: they go element by element and round alike in any kernel. */
static kolo_status describe(const kolo_plan *plan, bool shards, kolo_text *text) {
    int n = kolo_plan_n_steps(plan);
    kolo_step_info *steps = kolo_alloc((size_t)n * sizeof *steps);
    if (!steps) return KOLO_NOMEM((size_t)n * sizeof *steps);
    kolo_plan_describe(plan, steps);
    kolo_text_add(text, "instruction set: %s\n", kolo_isa_describe(kolo_isa_now())->label);
    for (int i = 0; i < n; i++) {
        const kolo_step_info *s = &steps[i];
        if (s->kind != KOLO_STEP_KERNEL || (shards && (s->once || s->range))) {
            continue;
        };
        kolo_text_add(text, "kernel of %s%s%s: %s %s\n", s->op, s->parameter ? " with " : "",
                      s->parameter ? s->parameter : "", s->kernel, s->implementation);
    }
    kolo_free(steps);
    return text->failed ? KOLO_NOMEM(text->length) : KOLO_OK;
}

kolo_status kolo_agree_kernels(kolo_comm *comm, const kolo_plan *plan, bool shards) {
    kolo_text text = {0};
    kolo_status status = kolo_agree(comm, describe(plan, shards, &text));
    if (status == KOLO_OK) status = kolo_agree_text(comm, text.text);
    kolo_text_fini(&text);
    return status;
}

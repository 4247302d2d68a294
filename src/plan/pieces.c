#include "plan/pieces.h"

#include "base/memory.h"
#include "base/status.h"
#include "plan/internal.h"

#include <string.h>

typedef struct piece {
    kolo_kernel_spec spec;
    void *state;
    size_t at; /* of the range, in bytes */
    int64_t count;
} piece;

struct kolo_plan_pieces {
    const kolo_step *step;
    const kolo_kernel *kernel;
    int64_t count; /* of the range */
    char *scratch;
    int n;
    piece piece[]; /* [n] */
};

static bool is_range(const kolo_tensor *t, int64_t count) {
    return t->shape.rank == 1 && t->shape.dim[0] == count && t->dtype == KOLO_DTYPE_F32;
}

/* The step of a group; NULL: there is none, or several. */
static const kolo_step *only_step(const kolo_plan *p, const int *groups, int group) {
    const kolo_step *found = NULL;
    for (int s = 0; s < p->n_steps; s++) {
        if (groups[s] != group || p->steps[s].kind != KOLO_STEP_KERNEL) continue;
        if (found) return NULL;
        found = &p->steps[s];
    }
    return found;
}

/* The tensors of the range become those of a piece; all others are scalars. */
static bool narrow(kolo_tensor *tensors, int n, int64_t range, int64_t count) {
    for (int i = 0; i < n; i++) {
        if (is_range(&tensors[i], range)) {
            tensors[i] = kolo_tensor_plain(KOLO_DTYPE_F32, kolo_shape_1(count));
        } else if (tensors[i].shape.rank != 0) {
            return false;
        }
    }
    return true;
}

static kolo_status prepare(kolo_plan_pieces *x, piece *p, int64_t first, int64_t count,
                           size_t *scratch) {
    size_t bytes = 0;
    KOLO_ASSERT(x->step); /* of a range that is not empty */
    p->spec = x->step->all.spec;
    p->at = (size_t)first * sizeof(float);
    p->count = count;
    const bool narrows = narrow(p->spec.in, p->spec.n_in, x->count, count) &&
                         narrow(p->spec.out, p->spec.n_out, x->count, count);
    if (!narrows || x->kernel->bind || x->kernel->fit(&p->spec) < 0) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "%s does not update a range in pieces",
                         x->kernel->name);
    }
    if (x->kernel->prepare) KOLO_TRY(x->kernel->prepare(&p->spec, &p->state, &bytes));
    if (bytes > *scratch) *scratch = bytes;
    return KOLO_OK;
}

static kolo_status build(kolo_plan_pieces *x, const int64_t *cuts) {
    size_t scratch = 0;
    for (int k = 0; k < x->n; k++) {
        if (cuts[k + 1] == cuts[k]) continue;
        KOLO_TRY(prepare(x, &x->piece[k], cuts[k], cuts[k + 1] - cuts[k], &scratch));
    }
    if (scratch == 0) return KOLO_OK;
    x->scratch = kolo_alloc(scratch);
    return x->scratch ? KOLO_OK : KOLO_NOMEM(scratch);
}

kolo_status kolo_plan_pieces_create(const kolo_plan *plan, const int *groups, int group,
                                    const int64_t *cuts, int n, kolo_plan_pieces **made) {
    const size_t bytes = sizeof(kolo_plan_pieces) + (size_t)n * sizeof(piece);
    const kolo_step *step = only_step(plan, groups, group);
    if (!step && cuts[n] > 0) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "a parameter is not updated by one kernel");
    }
    kolo_plan_pieces *x = kolo_zalloc(bytes);
    if (!x) return KOLO_NOMEM(bytes);
    x->step = step;
    x->kernel = step ? step->kernel : NULL;
    x->count = cuts[n];
    x->n = n;
    const kolo_status status = build(x, cuts);
    if (status != KOLO_OK) {
        kolo_plan_pieces_destroy(x);
        return status;
    }
    *made = x;
    return KOLO_OK;
}

/* The addresses of a piece. */
static void move(void **at, const kolo_tensor *whole, int n, int64_t range, size_t bytes) {
    for (int i = 0; i < n; i++) {
        if (is_range(&whole[i], range)) at[i] = (char *)at[i] + bytes;
    }
}

void kolo_plan_pieces_update(const kolo_plan *plan, const kolo_plan_pieces *pieces, int k) {
    const piece *p = &pieces->piece[k];
    if (p->count == 0) return;
    kolo_call call = pieces->step->all.calls[plan->store->current];
    KOLO_ASSERT(!call.summands);
    call.spec = &p->spec;
    call.state = p->state;
    call.bound = NULL;
    call.scratch = pieces->scratch;
    move(call.in, pieces->step->all.spec.in, pieces->step->all.spec.n_in, pieces->count, p->at);
    move(call.out, pieces->step->all.spec.out, pieces->step->all.spec.n_out, pieces->count, p->at);
    pieces->kernel->run(&call);
}

void kolo_plan_pieces_destroy(kolo_plan_pieces *pieces) {
    if (!pieces) return;
    for (int k = 0; k < pieces->n && pieces->kernel; k++) {
        if (pieces->kernel->release && pieces->piece[k].state)
            pieces->kernel->release(pieces->piece[k].state);
    }
    kolo_free(pieces->scratch);
    kolo_free(pieces);
}

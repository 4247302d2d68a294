/* The cache of selections: a hash table of specs. A selection depends only on the op, its
 * attributes, the tensors and the number of threads. */
#include "kernel/select/cache.h"

#include "base/rng.h"

#include <string.h>

/* The result for one spec. */
typedef struct kolo_selection {
    struct kolo_selection *next;
    kolo_kernel_spec asked, chosen;
    kolo_attr attr[KOLO_MAX_ATTRS]; /* of `asked` */
    const kolo_kernel *kernel;
    double seconds;
    kolo_status status;
} kolo_selection;

/* Tensor k of a spec, its outputs after its inputs. */
static const kolo_tensor *tensor_at(const kolo_kernel_spec *spec, int k) {
    return k < spec->n_in ? &spec->in[k] : &spec->out[k - spec->n_in];
}

static uint64_t hash_spec(const kolo_kernel_spec *spec) {
    uint64_t hash = kolo_hash_text(spec->op->name);
    for (int k = 0; k < spec->n_in + spec->n_out; k++) {
        const kolo_tensor *t = tensor_at(spec, k);
        hash = 31 * hash + kolo_hash_bytes(t->shape.dim, (size_t)t->shape.rank * sizeof(int64_t));
        hash = 31 * hash + kolo_hash_bytes(t->layout.order, t->layout.rank);
    }
    return hash;
}

static bool equal(const kolo_kernel_spec *a, const kolo_attr *attr, const kolo_kernel_spec *b) {
    if (a->op != b->op || a->n_in != b->n_in || a->n_out != b->n_out || a->threads != b->threads) {
        return false;
    }
    static const kolo_attr none[KOLO_MAX_ATTRS];
    const kolo_attr *other = b->attr ? b->attr : none;
    for (int i = 0; i < KOLO_MAX_ATTRS; i++) {
        if (attr[i].i != other[i].i) return false; /* the bits, also of doubles */
    }
    for (int k = 0; k < a->n_in + a->n_out; k++) {
        const kolo_tensor *x = tensor_at(a, k), *y = tensor_at(b, k);
        if (x->dtype != y->dtype || !kolo_shape_equal(&x->shape, &y->shape) ||
            !kolo_layout_equal(&x->layout, &y->layout)) {
            return false;
        }
    }
    return true;
}

/* Adds the selection for a spec; without memory, the result is returned and not kept. */
static kolo_status add(kolo_selections *cache, kolo_selection **chain, kolo_kernel_set set,
                       struct kolo_tuner *tuner, kolo_kernel_spec *spec, const kolo_kernel **kernel,
                       double *seconds) {
    kolo_selection *s = kolo_arena_alloc(&cache->arena, sizeof *s);
    if (!s) return kolo_kernel_select_tuned(set, tuner, spec, kernel, seconds);
    s->asked = *spec;
    if (spec->attr) memcpy(s->attr, spec->attr, sizeof s->attr);
    s->status = kolo_kernel_select_tuned(set, tuner, spec, &s->kernel, &s->seconds);
    s->chosen = *spec;
    s->next = *chain;
    *chain = s;
    if (s->status != KOLO_OK) return s->status;
    *kernel = s->kernel;
    if (seconds) *seconds = s->seconds;
    return KOLO_OK;
}

kolo_status kolo_kernel_select_cached(kolo_selections *cache, kolo_kernel_set set,
                                      struct kolo_tuner *tuner, kolo_kernel_spec *spec,
                                      const kolo_kernel **kernel, double *seconds) {
    kolo_selection **chain = &cache->chains[hash_spec(spec) % KOLO_SELECTION_CHAINS];
    for (const kolo_selection *s = *chain; s; s = s->next) {
        if (!equal(&s->asked, s->attr, spec)) continue;
        if (s->status != KOLO_OK) return s->status;
        const kolo_attr *attr = spec->attr;
        *spec = s->chosen;
        spec->attr = attr;
        *kernel = s->kernel;
        if (seconds) *seconds = s->seconds;
        return KOLO_OK;
    }
    return add(cache, chain, set, tuner, spec, kernel, seconds);
}

void kolo_selections_fini(kolo_selections *cache) { kolo_arena_fini(&cache->arena); }

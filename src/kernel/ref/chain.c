/* Chains of elementwise ops: each link on the whole tensors, one after the other. */
#include "kernel/chain.h"

#include "base/compiler.h"
#include "base/integer.h"
#include "kernel/ref/ref.h"

typedef struct chain_state {
    kolo_chain chain;
    kolo_link_run link[KOLO_CHAIN_LINKS];
    size_t result_bytes; /* of all results that only links read */
} chain_state;

static const kolo_kernel *kernel_of(const kolo_op *op) {
#define ADDRESS(name) &kolo_ref_##name,
    static const kolo_kernel *const kernels[] = {KOLO_OP_LIST(ADDRESS)};
#undef ADDRESS
    size_t i = 0;
    while (i < KOLO_COUNT(kernels) && kernels[i]->op != op) i++;
    KOLO_ASSERT(i < KOLO_COUNT(kernels));
    return kernels[i];
}

static void release(void *state) {
    chain_state *s = state;
    for (int l = 0; s && l < s->chain.n; l++) kolo_link_release(&s->link[l]);
    kolo_free(s);
}

/* Bytes of the result of a link, in whole cache lines. */
static size_t bytes_of(const kolo_link_run *link) {
    return kolo_round_up(kolo_tensor_bytes(&link->spec.out[0]), 64);
}

static kolo_status prepare(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    chain_state *s = kolo_zalloc(sizeof *s);
    size_t most = 0;
    if (!s) return KOLO_NOMEM(sizeof *s);
    s->chain = kolo_chain_read(spec->attr);
    for (int l = 0; l < s->chain.n; l++) {
        kolo_link_run *run = &s->link[l];
        kolo_link_spec(spec, &s->chain, l, &spec->in[0].shape, run);
        const kolo_status status = kolo_link_prepare(kernel_of(run->spec.op), run);
        if (status != KOLO_OK) {
            release(s);
            return status;
        }
        if (s->chain.link[l].out < 0) s->result_bytes += bytes_of(run);
        if (run->scratch_bytes > most) most = run->scratch_bytes;
    }
    *scratch_bytes = s->result_bytes + most;
    *state = s;
    return KOLO_OK;
}

static void run(const kolo_call *call) {
    chain_state *s = call->state;
    void *results[KOLO_CHAIN_LINKS];
    char *place = call->scratch;
    for (int l = 0; l < s->chain.n; l++) {
        const kolo_chain_link *link = &s->chain.link[l];
        kolo_call inner = {.spec = &s->link[l].spec,
                           .state = s->link[l].state,
                           .scratch = (char *)call->scratch + s->result_bytes};
        results[l] = link->out < 0 ? place : call->out[link->out];
        if (link->out < 0) place += bytes_of(&s->link[l]);
        for (int k = 0; k < link->n_in; k++) {
            const int in = link->in[k];
            inner.in[k] = in < KOLO_MAX_IO ? call->in[in] : results[in - KOLO_MAX_IO];
        }
        inner.out[0] = results[l];
        s->link[l].kernel->run(&inner);
    }
}

const kolo_kernel kolo_ref_chain = {
    .name = "ref_chain",
    .op = &kolo_op_chain,
    .fit = kolo_ref_fit,
    .prepare = prepare,
    .run = run,
    .release = release,
};

/* Chains of elementwise ops, in f32 and bf16. All links run on a piece of the tensors before the
 * next piece, so that the results of links are read from the first cache. They are the loops that
 * run the ops by themselves, so bits are the same. All tensors share one layout, without padding.
 */
#include "kernel/chain.h"

#include "base/compiler.h"
#include "base/integer.h"
#include "kernel/parallel.h"
#include "kernel/simd/kernels.h"

/* Elements of a piece: a few tensors of them are in the first cache. Of tensors beyond the caches
 * short ones are faster: while the processor waits for the memory of one link it computes the next.
 * In a cache these take longer by a tenth. */
enum { PIECE = 1024, SHORT_PIECE = 512, PIECE_BYTES = PIECE * 4, LARGE_BYTES = 32 << 20 };

typedef struct chain_state {
    kolo_chain chain;
    int64_t count, piece, pieces;
    /* Of whole pieces, and of the last one where it is shorter. */
    kolo_link_run link[2][KOLO_CHAIN_LINKS];
    int64_t place[KOLO_CHAIN_LINKS]; /* of the result of a link in the memory of a part; -1: none */
    int64_t part_bytes;
} chain_state;

static const kolo_kernel *kernel_of(const kolo_op *op) {
#define ADDRESS(name) &kolo_simd_##name,
    static const kolo_kernel *const kernels[] = {KOLO_SIMD_KERNELS(ADDRESS)};
#undef ADDRESS
    for (size_t i = 0; i < KOLO_COUNT(kernels); i++) {
        if (kernels[i]->op == op) return kernels[i];
    }
    return NULL;
}

static bool fits_links(const kolo_kernel_spec *spec) {
    const kolo_chain chain = kolo_chain_read(spec->attr);
    const kolo_shape piece = kolo_shape_1(PIECE);
    for (int l = 0; l < chain.n; l++) {
        kolo_link_run run;
        const kolo_kernel *kernel = kernel_of(chain.link[l].op);
        kolo_link_spec(spec, &chain, l, &piece, &run);
        if (!kernel || kernel->bind || kernel->fit(&run.spec) < 0) return false;
    }
    return true;
}

static double bytes_of(const kolo_kernel_spec *spec) {
    double bytes = 0;
    for (int i = 0; i < spec->n_in; i++) bytes += (double)kolo_tensor_bytes(&spec->in[i]);
    for (int i = 0; i < spec->n_out; i++) bytes += (double)kolo_tensor_bytes(&spec->out[i]);
    return bytes;
}

static double fit(kolo_kernel_spec *spec) {
    for (int i = 0; i < spec->n_in + spec->n_out; i++) {
        const kolo_tensor *t = i < spec->n_in ? &spec->in[i] : &spec->out[i - spec->n_in];
        if (!kolo_layout_equal(&t->layout, &spec->in[0].layout)) return -1;
        if (t->dtype != KOLO_DTYPE_F32 && t->dtype != KOLO_DTYPE_BF16) return -1;
        if (kolo_tensor_elements(t) != kolo_shape_count(&t->shape)) return -1;
    }
    return fits_links(spec) ? kolo_kernel_seconds(0, bytes_of(spec), 2) : -1;
}

static void release(void *state) {
    chain_state *s = state;
    for (int l = 0; s && l < 2 * s->chain.n; l++) kolo_link_release(&s->link[l % 2][l / 2]);
    kolo_free(s);
}

static kolo_status prepare_links(const kolo_kernel_spec *spec, chain_state *s) {
    const int64_t rest = s->count % s->piece;
    for (int i = 0; i < 2; i++) {
        const kolo_shape piece = kolo_shape_1(i == 0 || rest == 0 ? s->piece : rest);
        for (int l = 0; l < s->chain.n; l++) {
            kolo_link_run *run = &s->link[i][l];
            kolo_link_spec(spec, &s->chain, l, &piece, run);
            KOLO_TRY(kolo_link_prepare(kernel_of(run->spec.op), run));
            KOLO_ASSERT(run->scratch_bytes == 0);
        }
    }
    return KOLO_OK;
}

static kolo_status prepare(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    chain_state *s = kolo_zalloc(sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    s->chain = kolo_chain_read(spec->attr);
    s->count = kolo_shape_count(&spec->in[0].shape);
    s->piece = bytes_of(spec) < LARGE_BYTES ? PIECE : SHORT_PIECE;
    s->pieces = (s->count + s->piece - 1) / s->piece;
    for (int l = 0; l < s->chain.n; l++) {
        s->place[l] = s->chain.link[l].out < 0 ? s->part_bytes : -1;
        if (s->place[l] >= 0) s->part_bytes += PIECE_BYTES;
    }
    const kolo_status status = prepare_links(spec, s);
    if (status != KOLO_OK) {
        release(s);
        return status;
    }
    *scratch_bytes = (size_t)(s->part_bytes * spec->threads);
    *state = s;
    return KOLO_OK;
}

static void *piece_of(const chain_state *s, void *tensor, kolo_dtype dtype, int64_t piece) {
    return (char *)tensor + piece * s->piece * (int64_t)kolo_dtype_bytes(dtype);
}

/* Runs all links on a piece; `memory` is that of the part. */
static void run_piece(const kolo_call *call, const chain_state *s, char *memory, int64_t piece) {
    const bool is_short = (piece + 1) * s->piece > s->count;
    void *results[KOLO_CHAIN_LINKS];
    for (int l = 0; l < s->chain.n; l++) {
        const kolo_chain_link *link = &s->chain.link[l];
        const kolo_link_run *run = &s->link[is_short][l];
        kolo_call inner = {.spec = &run->spec, .state = run->state};
        for (int k = 0; k < link->n_in; k++) {
            const int in = link->in[k];
            inner.in[k] = in < KOLO_MAX_IO
                              ? piece_of(s, call->in[in], call->spec->in[in].dtype, piece)
                              : results[in - KOLO_MAX_IO];
        }
        results[l] = s->place[l] >= 0 ? memory + s->place[l]
                                      : piece_of(s, call->out[link->out], link->dtype, piece);
        inner.out[0] = results[l];
        run->kernel->run(&inner);
    }
}

/* Items: pieces. */
static void run_pieces(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_call *call = arg;
    const chain_state *s = call->state;
    char *memory = (char *)call->scratch + part * s->part_bytes;
    for (int64_t piece = begin; piece < end; piece++) run_piece(call, s, memory, piece);
}

static void run(const kolo_call *call) {
    const chain_state *s = call->state;
    kolo_kernel_parallel(call->spec->threads, s->pieces, run_pieces, call);
}

const kolo_kernel kolo_simd_chain = {
    .name = "simd_chain",
    .op = &kolo_op_chain,
    .fit = fit,
    .prepare = prepare,
    .run = run,
    .release = release,
};

/* Ops that are bound by the bytes that they move, on one thread, beside a plain copy: softmax,
 * normalizations, elementwise functions and chains, losses, and ops that only move.
 *
 *     memory-kernels [ROUNDS [PART]]     the ops whose name has PART
 *
 * Bytes are those of all inputs and outputs, each once. The copy reads half of as many and writes
 * the other half, in turns with the op, in the same round. Three sizes: inside the second cache,
 * inside the third, and beyond. Printed are GB/s of processor time, minima over the rounds, and the
 * share of the copy that the op reaches: 100 % is the bytes' bound. Below it in a cache are ops
 * that compute more than such a cache hides, such as exponentials. */
#include "bench/kernel_timing.h"
#include "graph/ops/binary.h"
#include "graph/ops/chain.h"
#include "kernel/kernel.h"
#include "kernel/select/families.h"
#include "tests/support/shapes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CLASSES = 1000 };

static const int64_t sizes[] = {512 << 10, 8 << 20, 128 << 20}; /* bytes of an op */

/* An op on shapes whose dimension of 0 is as long as the bytes ask for. */
typedef struct subject {
    const char *name, *kernel;
    int n_in;
    kolo_shape in[5];
    kolo_attr attr[KOLO_MAX_ATTRS];
    int labels; /* input that is i32; 0: none */
} subject;

#define TOKENS S3(0, 64, 384)
#define IMAGES S4(0, 64, 28, 28)
#define GROUPS S4(0, 8, 8, 784)
#define PLANES S4(0, 64, 1, 784)

static const subject subjects[] = {
    {"softmax, rows of 256", "simd_softmax", 1, .in = {S2(0, 256)}},
    {"softmax, rows of 1000", "simd_softmax", 1, .in = {S2(0, CLASSES)}},
    {"softmax, of 64 in rows of 49", "simd_softmax", 1, .in = {S3(0, 64, 49)}},
    {"softmax, rows of 49", "simd_softmax", 1, .in = {S2(0, 49)}},
    {"softmax, rows of 10", "simd_softmax", 1, .in = {S2(0, 10)}},
    {"softmax gradient, rows of 49", "simd_softmax_bwd", 2, .in = {S2(0, 49), S2(0, 49)}},
    {"softmax gradient, rows of 10", "simd_softmax_bwd", 2, .in = {S2(0, 10), S2(0, 10)}},
    {"softmax gradient, rows of 256", "simd_softmax_bwd", 2, .in = {S2(0, 256), S2(0, 256)}},
    {"log-softmax, rows of 1000", "simd_softmax", 1, .in = {S2(0, CLASSES)}, .attr = {{1}}},
    {"log-softmax gradient", "simd_softmax_bwd", 2, .in = {S2(0, CLASSES), S2(0, CLASSES)},
     .attr = {{1}}},
    {"softmax_xent, 1000 classes", "simd_softmax_xent", 2, .in = {S2(0, CLASSES), S1(0)},
     .labels = 1},
    {"softmax_xent gradient", "simd_softmax_xent_bwd", 3, .in = {S2(0, CLASSES), S1(0), {0}},
     .labels = 1},
    {"layer_norm, 384", "simd_layer_norm", 3, .in = {TOKENS, S1(384), S1(384)},
     .attr = {{.f = 1e-5}}},
    {"layer_norm gradient", "simd_layer_norm_bwd", 5,
     .in = {TOKENS, TOKENS, S1(384), S2(0, 64), S2(0, 64)}},
    {"rms_norm, 384", "simd_rms_norm", 2, .in = {TOKENS, S1(384)}, .attr = {{.f = 1e-5}}},
    {"rms_norm gradient", "simd_rms_norm_bwd", 4, .in = {TOKENS, TOKENS, S1(384), S2(0, 64)}},
    {"group_norm, 8 of 64, 28x28", "simd_group_norm", 3, .in = {GROUPS, S2(8, 8), S2(8, 8)},
     .attr = {{.f = 1e-5}}},
    {"group_norm gradient", "simd_group_norm_bwd", 5,
     .in = {GROUPS, GROUPS, S2(0, 8), S2(0, 8), S2(8, 8)}},
    {"instance_norm, 64, 28x28", "simd_group_norm", 1, .in = {PLANES}, .attr = {{.f = 1e-5}}},
    {"instance_norm gradient", "simd_group_norm_bwd", 4,
     .in = {PLANES, PLANES, S2(0, 64), S2(0, 64)}},
    {"batch_norm, 64, 28x28", "simd_batch_norm", 5, .in = {IMAGES, S1(64), S1(64), S1(64), S1(64)},
     .attr = {{.f = 1e-5}, {.f = 0.9}}},
    {"batch_norm gradient", "simd_batch_norm_bwd", 5,
     .in = {IMAGES, IMAGES, S1(64), S1(64), S1(64)}, .attr = {{.f = 1e-5}}},
    {"relu", "simd_relu", 1, .in = {IMAGES}},
    {"add", "simd_add", 2, .in = {TOKENS, TOKENS}},
    {"mul", "simd_mul", 2, .in = {TOKENS, TOKENS}},
    {"broadcast_mul, by rows", "simd_broadcast_mul", 2, .in = {TOKENS, S1(384)},
     .attr = {{0}, {3}}},
    {"exp", "simd_exp", 1, .in = {TOKENS}},
    {"silu", "simd_silu", 1, .in = {TOKENS}},
    {"silu gradient", "simd_silu_bwd", 2, .in = {TOKENS, TOKENS}},
    {"gelu", "simd_gelu", 1, .in = {TOKENS}},
    {"gelu gradient, with bias", "simd_gelu_bwd", 2, .in = {TOKENS, TOKENS},
     .attr = {[KOLO_GELU_BWD_BIAS].i = 1}},
    {"chain add, mul", "simd_chain", 3, .in = {TOKENS, TOKENS, TOKENS}},
    {"chain silu, mul", "simd_chain", 2, .in = {TOKENS, TOKENS}},
    {"rotary, 6 heads of 64", "simd_rotary", 1, .in = {TOKENS}, .attr = {{6}, {.f = 10000}}},
    {"concat, 3 of 384 channels", "simd_concat", 3, .in = {TOKENS, TOKENS, TOKENS},
     .attr = {[KOLO_CONCAT_AXIS].i = 2}},
    {"concat, 2 of 64 planes", "simd_concat", 2, .in = {IMAGES, IMAGES},
     .attr = {[KOLO_CONCAT_AXIS].i = 1}},
    {"concat, 2 of 16 numbers", "simd_concat", 2, .in = {S2(0, 16), S2(0, 16)},
     .attr = {[KOLO_CONCAT_AXIS].i = 1}},
    {"split, a third of 1152", "simd_window", 1, .in = {S3(0, 64, 1152)},
     .attr = {[KOLO_WINDOW_FIRST].i = 384, [KOLO_WINDOW_COUNT].i = 384, [KOLO_WINDOW_AXIS].i = 2}},
    {"split, half of 32 numbers", "simd_window", 1, .in = {S2(0, 32)},
     .attr = {[KOLO_WINDOW_FIRST].i = 16, [KOLO_WINDOW_COUNT].i = 16, [KOLO_WINDOW_AXIS].i = 1}},
    {"slice, 26 of 28 columns", "simd_window", 1, .in = {S4(0, 64, 28, 28)},
     .attr = {[KOLO_WINDOW_FIRST].i = 1, [KOLO_WINDOW_COUNT].i = 26, [KOLO_WINDOW_AXIS].i = 3}},
    {"pad, 28 to 30 columns", "simd_window", 1, .in = {S4(0, 64, 28, 28)},
     .attr = {[KOLO_WINDOW_FIRST].i = -1, [KOLO_WINDOW_COUNT].i = 30, [KOLO_WINDOW_AXIS].i = 3}},
    {"pad, 28 to 30 rows", "simd_window", 1, .in = {S4(0, 64, 28, 28)},
     .attr = {[KOLO_WINDOW_FIRST].i = -1, [KOLO_WINDOW_COUNT].i = 30, [KOLO_WINDOW_AXIS].i = 2}},
    {"permute, tokens by head", "simd_permute", 1, .in = {S4(0, 64, 6, 64)},
     .attr = {{0}, {2}, {1}, {3}}},
    {"permute, 64x784 to 784x64", "simd_permute", 1, .in = {S3(0, 64, 784)},
     .attr = {{0}, {2}, {1}}},
    {"flip, rows of 28", "simd_flip", 1, .in = {IMAGES}, .attr = {{3}}},
    {"sum, of rows of 384", "simd_sum", 1, .in = {TOKENS}, .attr = {{4}}},
    {"sum, over the first dimension", "simd_sum", 1, .in = {S2(0, 384)}, .attr = {{1}}},
};

/* x + y times z, or silu(x) y. */
static void write_chain(const subject *s, kolo_attr *attr) {
    const bool adds = s->n_in == 3;
    const kolo_chain_link first = {.op = adds ? &kolo_op_add : &kolo_op_silu,
                                   .dtype = KOLO_DTYPE_F32,
                                   .n_in = adds ? 2 : 1,
                                   .in = {0, 1},
                                   .out = -1};
    const kolo_chain_link second = {
        .op = &kolo_op_mul, .dtype = KOLO_DTYPE_F32, .n_in = 2, .in = {KOLO_MAX_IO, adds ? 2 : 1}};
    const kolo_chain chain = {.n = 2, .link = {first, second}};
    if (!kolo_chain_write(&chain, attr)) exit(1);
}

/* The op with its dimension of 0 of length n; its bytes. */
static size_t resolve(const subject *s, const kolo_kernel *k, const kolo_attr *attr, int64_t n,
                      kolo_kernel_spec *spec) {
    size_t bytes = 0;
    *spec = (kolo_kernel_spec){.op = k->op, .attr = attr, .n_in = s->n_in, .threads = 1};
    for (int i = 0; i < s->n_in; i++) {
        kolo_shape shape = s->in[i];
        if (shape.rank > 0 && shape.dim[0] == 0) shape.dim[0] = n;
        spec->in[i] =
            kolo_tensor_plain(s->labels && i == s->labels ? KOLO_DTYPE_I32 : KOLO_DTYPE_F32, shape);
    }
    kolo_shape_query q = {
        .attr = attr, .n_in = s->n_in, .in = spec->in, .out = spec->out, .op = k->op};
    if (k->op->shape(&q) != KOLO_OK) {
        fprintf(stderr, "%s: %s\n", s->name, kolo_last_error());
        exit(1);
    }
    spec->n_out = q.n_out;
    for (int i = 0; i < s->n_in; i++) bytes += kolo_tensor_bytes(&spec->in[i]);
    for (int i = 0; i < q.n_out; i++) bytes += kolo_tensor_bytes(&spec->out[i]);
    return bytes;
}

typedef struct race {
    const kolo_kernel *kernel;
    kolo_kernel_spec spec;
    kolo_call call;
    size_t bytes, scratch_bytes;
    char *from, *to; /* of the copy */
    int times;       /* in a round: long beside a reading of the clock */
    double best, best_copy;
} race;

static void race_init(race *r, const subject *s, const kolo_attr *attr, int64_t bytes) {
    const kolo_kernel *k;
    for (size_t i = 0; (k = kolo_kernel_at(i)) && strcmp(k->name, s->kernel) != 0; i++) continue;
    if (!k) exit(1);
    *r = (race){.kernel = k};
    const size_t one = resolve(s, k, attr, 1, &r->spec);
    const size_t two = resolve(s, k, attr, 2, &r->spec);
    const int64_t n = (bytes - (int64_t)(2 * one - two)) / (int64_t)(two - one);
    r->bytes = resolve(s, k, attr, n > 0 ? n : 1, &r->spec);
    r->times = 1 + (int)((64 << 20) / r->bytes);
    r->call.spec = &r->spec;
    for (int i = 0; i < s->n_in; i++) {
        r->call.in[i] = buffer(kolo_tensor_bytes(&r->spec.in[i]));
        if (!s->labels || i != s->labels) continue;
        int32_t *label = r->call.in[i];
        for (int64_t p = 0; p < n; p++) label[p] = (int32_t)(p * 7 % CLASSES);
    }
    for (int i = 0; i < r->spec.n_out; i++) {
        r->call.out[i] = buffer(kolo_tensor_bytes(&r->spec.out[i]));
    }
    if (k->fit(&r->spec) < 0) exit(1);
    if (k->prepare && k->prepare(&r->spec, &r->call.state, &r->scratch_bytes) != KOLO_OK) exit(1);
    r->call.scratch = buffer(r->scratch_bytes);
    r->from = buffer(r->bytes / 2);
    r->to = buffer(r->bytes / 2);
}

static void race_round(race *r) {
    double start = processor_seconds();
    for (int i = 0; i < r->times; i++) r->kernel->run(&r->call);
    const double seconds = (processor_seconds() - start) / r->times;
    if (r->best == 0 || seconds < r->best) r->best = seconds;
    start = processor_seconds();
    for (int i = 0; i < r->times; i++) memcpy(r->to, r->from, r->bytes / 2);
    const double copy = (processor_seconds() - start) / r->times;
    if (r->best_copy == 0 || copy < r->best_copy) r->best_copy = copy;
}

static void race_fini(race *r) {
    if (r->kernel->release) r->kernel->release(r->call.state);
    for (int i = 0; i < r->spec.n_in; i++) {
        kolo_pages_unmap(r->call.in[i], kolo_tensor_bytes(&r->spec.in[i]) + MARGIN);
    }
    for (int i = 0; i < r->spec.n_out; i++) {
        kolo_pages_unmap(r->call.out[i], kolo_tensor_bytes(&r->spec.out[i]) + MARGIN);
    }
    kolo_pages_unmap(r->call.scratch, r->scratch_bytes + MARGIN);
    kolo_pages_unmap(r->from, r->bytes / 2 + MARGIN);
    kolo_pages_unmap(r->to, r->bytes / 2 + MARGIN);
}

int main(int argc, char **argv) {
    const int rounds = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 10;
    const char *part = argc > 2 ? argv[2] : "";
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("| op |");
    for (size_t z = 0; z < KOLO_COUNT(sizes); z++) {
        printf(" %.1f MB: GB/s, copy, share |", 1e-6 * (double)sizes[z]);
    }
    printf("\n| --- | --- | --- | --- |\n");
    for (size_t i = 0; i < KOLO_COUNT(subjects); i++) {
        const subject *s = &subjects[i];
        kolo_attr attr[KOLO_MAX_ATTRS];
        if (!strstr(s->name, part)) continue;
        memcpy(attr, s->attr, sizeof attr);
        if (strcmp(s->kernel, "simd_chain") == 0) write_chain(s, attr);
        printf("| %s |", s->name);
        for (size_t z = 0; z < KOLO_COUNT(sizes); z++) {
            race r;
            race_init(&r, s, attr, sizes[z]);
            for (int round = 0; round < rounds; round++) race_round(&r);
            printf(" %.1f, %.1f, %.0f %% |", 1e-9 * (double)r.bytes / r.best,
                   1e-9 * (double)r.bytes / r.best_copy, 100 * r.best_copy / r.best);
            race_fini(&r);
        }
        printf("\n");
    }
    return 0;
}

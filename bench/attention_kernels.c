/* Attention and its gradient by the copies of each instruction set, in turns, on one thread:
 * processor time and GFLOP/s of counted operations, minima over the rounds.
 *
 *     attention-kernels [ROUNDS [SAMPLES QUERIES HEADS WIDTH CAUSAL]]     by default head sizes in
 * use */
#include "base/clock.h"
#include "bench/kernel_timing.h"
#include "kernel/kernel.h"
#include "kernel/select/families.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COPIES = KOLO_ISA_COUNT };

static const int64_t cases[][5] = {
    {8, 256, 6, 64, 1},  {8, 256, 4, 32, 1},   {4, 256, 6, 80, 1},  {4, 256, 4, 128, 1},
    {16, 197, 3, 64, 0}, {8, 128, 12, 64, 0},  {16, 197, 4, 32, 0}, {8, 256, 4, 80, 0},
    {4, 256, 4, 128, 0}, {1, 1024, 12, 64, 1},
};

/* The forward or backward pass on the buffers of `call`, by each copy. */
typedef struct race {
    const kolo_kernel *kernel;
    kolo_kernel_spec spec;
    kolo_call call[COPIES];
    size_t scratch_bytes[COPIES];
    double best[COPIES];
} race;

static void race_init(race *r, const char *name, const kolo_attr *attr, int n_in,
                      const kolo_shape *in) {
    const kolo_kernel *k;
    for (size_t i = 0; (k = kolo_kernel_at(i)) && strcmp(k->name, name) != 0; i++) continue;
    *r = (race){.kernel = k, .spec = {.op = k->op, .attr = attr, .n_in = n_in, .threads = 1}};
    for (int i = 0; i < n_in; i++) r->spec.in[i] = kolo_tensor_plain(KOLO_DTYPE_F32, in[i]);
    kolo_shape_query q = {
        .attr = attr, .n_in = n_in, .in = r->spec.in, .out = r->spec.out, .op = k->op};
    if (k->op->shape(&q) != KOLO_OK) exit(1);
    r->spec.n_out = q.n_out;
    kolo_call call = {.spec = &r->spec};
    for (int i = 0; i < n_in; i++) call.in[i] = buffer(kolo_tensor_bytes(&r->spec.in[i]));
    for (int i = 0; i < q.n_out; i++) call.out[i] = buffer(kolo_tensor_bytes(&r->spec.out[i]));
    for (int isa = 0; isa < COPIES; isa++) {
        if (!kolo_isa_runs((kolo_isa)isa)) continue;
        r->call[isa] = call;
        kolo_isa_pin(isa);
        if (k->prepare(&r->spec, &r->call[isa].state, &r->scratch_bytes[isa]) != KOLO_OK) exit(1);
        r->call[isa].scratch = buffer(r->scratch_bytes[isa]);
    }
    kolo_isa_pin(-1);
}

static void race_run(race *r, int isa) {
    if (!r->call[isa].spec) return;
    kolo_isa_pin(isa);
    const double start = processor_seconds();
    r->kernel->run(&r->call[isa]);
    const double seconds = processor_seconds() - start;
    if (r->best[isa] == 0 || seconds < r->best[isa]) r->best[isa] = seconds;
    kolo_isa_pin(-1);
}

static void race_fini(race *r) {
    const kolo_call *first = NULL;
    for (int isa = 0; isa < COPIES; isa++) {
        if (!r->call[isa].spec) continue;
        first = &r->call[isa];
        r->kernel->release(r->call[isa].state);
        kolo_pages_unmap(r->call[isa].scratch, r->scratch_bytes[isa] + MARGIN);
    }
    for (int i = 0; i < r->spec.n_in; i++) {
        kolo_pages_unmap(first->in[i], kolo_tensor_bytes(&r->spec.in[i]) + MARGIN);
    }
    for (int i = 0; i < r->spec.n_out; i++) {
        kolo_pages_unmap(first->out[i], kolo_tensor_bytes(&r->spec.out[i]) + MARGIN);
    }
}

static void measure(const int64_t *c, int rounds) {
    const int64_t n = c[0], t = c[1], heads = c[2], width = c[3];
    const kolo_attr attr[KOLO_MAX_ATTRS] = {{heads}, {c[4]}};
    const kolo_shape qkv = kolo_shape_3(n, t, 3 * heads * width),
                     o = kolo_shape_3(n, t, heads * width), lse = kolo_shape_3(n, heads, t);
    const kolo_shape in[] = {qkv}, in_bwd[] = {o, qkv, o, lse};
    race races[2];
    race_init(&races[0], "simd_attention", attr, 1, in);
    race_init(&races[1], "simd_attention_bwd", attr, 4, in_bwd);
    /* Outputs and log-sum-exp are those of a forward pass: exponentials of numbers as in training.
     */
    for (int isa = 0; isa < COPIES; isa++) race_run(&races[0], isa);
    for (int i = 0; i < 2; i++) {
        memcpy(races[1].call[kolo_isa_best()].in[2 + i], races[0].call[kolo_isa_best()].out[i],
               kolo_tensor_bytes(&races[0].spec.out[i]));
    }
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < 2; i++) {
            for (int isa = 0; isa < COPIES; isa++) race_run(&races[i], isa);
        }
    }
    for (int i = 0; i < 2; i++) {
        const race *r = &races[i];
        kolo_tensor out[KOLO_MAX_IO];
        memcpy(out, r->spec.out, sizeof out);
        const double flops = r->spec.op
                                 ->cost(&(kolo_shape_query){attr, r->spec.n_in, r->spec.in,
                                                            r->spec.n_out, out, r->spec.op})
                                 .flops;
        printf("%3d x %4d, %2d of %3d%s %s ", (int)n, (int)t, (int)heads, (int)width,
               c[4] ? ", causal" : "        ", i ? "backward" : "forward ");
        for (int isa = 1; isa < COPIES; isa++) {
            if (!r->call[isa].spec) continue;
            printf(" %s %8.3f ms %6.1f", kolo_isa_describe((kolo_isa)isa)->name, 1e3 * r->best[isa],
                   1e-9 * flops / r->best[isa]);
        }
        printf("\n");
    }
    for (int i = 0; i < 2; i++) race_fini(&races[i]);
}

int main(int argc, char **argv) {
    const int rounds = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 20;
    int64_t given[5];
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 0; argc == 7 && i < 5; i++) given[i] = strtol(argv[i + 2], NULL, 10);
    for (size_t i = 0; i < (argc == 7 ? 1 : KOLO_COUNT(cases)); i++) {
        measure(argc == 7 ? given : cases[i], rounds);
    }
    return 0;
}

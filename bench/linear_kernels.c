/* Times every kernel that supports a linear layer, forward (f), data gradient (d) and weight
 * gradient (w), on one thread: linear-kernels [ROWS INPUTS OUTPUTS]; by default the classifiers of
 * the model zoo. The kernels of a layer alternate. Used to calibrate the estimates of kernels. */
#include "bench/kernel_timing.h"
#include "kernel/kernel.h"
#include "kernel/select/families.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 7, KERNELS = 8 };

static const int64_t layers[][3] = {
    {32, 9216, 4096}, {32, 4096, 4096}, {32, 4096, 1000}, {8, 25088, 4096},
    {8, 4096, 4096},  {16, 512, 1000},  {16, 2048, 1000}, {64, 400, 120},
    {64, 4096, 4096}, {4, 4096, 4096},  {1, 4096, 4096},
};

static kolo_kernel_spec spec_of(char pass, int64_t rows, int64_t in, int64_t out,
                                const kolo_attr *attr) {
    kolo_tensor x = kolo_tensor_plain(KOLO_DTYPE_F32, kolo_shape_2(rows, in));
    kolo_tensor w = kolo_tensor_plain(KOLO_DTYPE_F32, kolo_shape_2(out, in));
    kolo_tensor y = kolo_tensor_plain(KOLO_DTYPE_F32, kolo_shape_2(rows, out));
    kolo_kernel_spec spec = {.attr = attr, .n_in = 2, .n_out = 1, .threads = 1};
    spec.op = pass == 'f'   ? &kolo_op_linear
              : pass == 'd' ? &kolo_op_linear_bwd_data
                            : &kolo_op_linear_bwd_weights;
    spec.in[0] = pass == 'f' ? x : y;
    spec.in[1] = pass == 'w' ? x : w;
    spec.out[0] = pass == 'f' ? y : pass == 'd' ? x : w;
    return spec;
}

/* One kernel on the buffers of `call`. */
typedef struct racer {
    const kolo_kernel *kernel;
    kolo_call call;
    size_t scratch_bytes;
    double estimate, best;
} racer;

static void run_once(racer *r) {
    const double start = processor_seconds();
    r->kernel->run(&r->call);
    const double seconds = processor_seconds() - start;
    if (r->best == 0 || seconds < r->best) r->best = seconds;
}

static void close_racer(racer *r) {
    if (r->kernel->unbind) r->kernel->unbind(r->call.bound);
    if (r->kernel->release) r->kernel->release(r->call.state);
    kolo_pages_unmap(r->call.scratch, r->scratch_bytes + MARGIN);
}

static void race(char pass, const int64_t *layer) {
    kolo_attr attr[KOLO_MAX_ATTRS] = {{0}};
    kolo_kernel_spec spec = spec_of(pass, layer[0], layer[1], layer[2], attr);
    racer racers[KERNELS] = {{0}};
    int n = 0;
    kolo_call call = {.spec = &spec};
    for (int i = 0; i < 2; i++) call.in[i] = buffer(kolo_tensor_bytes(&spec.in[i]));
    call.out[0] = buffer(kolo_tensor_bytes(&spec.out[0]));
    const kolo_kernel *k;
    for (size_t i = 0; n < KERNELS && (k = kolo_kernel_at(i)); i++) {
        if (k->op != spec.op || kolo_kernel_is_ref(k)) continue;
        racer *r = &racers[n];
        *r = (racer){.kernel = k, .call = call, .estimate = k->fit(&spec)};
        if (r->estimate < 0 || k->prepare(&spec, &r->call.state, &r->scratch_bytes) != KOLO_OK) {
            continue;
        }
        r->call.scratch = buffer(r->scratch_bytes);
        if (k->bind && k->bind(&r->call) != KOLO_OK) exit(1);
        n++;
    }
    for (int i = 0; i < ROUNDS * n; i++) run_once(&racers[i % n]);
    double flops = 2e-9 * (double)(layer[0] * layer[1] * layer[2]);
    for (int i = 0; i < n; i++) {
        printf("%5d x %5d -> %5d %c  %-24s %9.3f %9.1f %9.3f\n", (int)layer[0], (int)layer[1],
               (int)layer[2], pass, racers[i].kernel->name, racers[i].best * 1e3,
               flops / racers[i].best, racers[i].estimate * 1e3);
        close_racer(&racers[i]);
    }
    for (int i = 0; i < 2; i++)
        kolo_pages_unmap(call.in[i], kolo_tensor_bytes(&spec.in[i]) + MARGIN);
    kolo_pages_unmap(call.out[0], kolo_tensor_bytes(&spec.out[0]) + MARGIN);
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("%-24s %-24s %9s %9s %9s\n", "layer", "kernel", "ms", "GFLOP/s", "estimate");
    int64_t given[3];
    for (int i = 0; argc == 4 && i < 3; i++) given[i] = strtol(argv[i + 1], NULL, 10);
    for (size_t i = 0; i < (argc == 4 ? 1 : KOLO_COUNT(layers)); i++) {
        for (const char *pass = "fdw"; *pass; pass++) race(*pass, argc == 4 ? given : layers[i]);
    }
    return 0;
}

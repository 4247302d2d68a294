/* Times every kernel that supports the nodes of LeNet-5's training step at batch 64 on one thread,
 * in each layout of the list, next to the time that its fit estimates: lenet_kernels [NODE]. Used
 * to calibrate the estimates of kernels. The network's input stays plain. */
#include "base/clock.h"
#include "kernel/kernel.h"
#include "kernel/select/families.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 40 };

typedef struct work {
    const char *what;
    const kolo_op *op;
    int n_in, n_out;
    int64_t in[4][4]; /* dimensions, 0 where there are fewer */
    kolo_attr attr[KOLO_MAX_ATTRS];
    unsigned images; /* bit i: tensor i (outputs after inputs) takes the layout of images */
    kolo_dtype dtype[4];
} work;

#define CONV_1 \
    {1}, {1}, {2}, {2}, {1}, {1}, { 1 }
#define CONV_2 \
    {1}, {1}, {0}, {0}, {1}, {1}, { 1 }
#define POOL \
    {2}, {2}, {2}, {2}, {0}, {0}, { 1 }
#define F32 KOLO_DTYPE_F32
#define I32 KOLO_DTYPE_I32
#define U8 KOLO_DTYPE_U8

static const work works[] = {
    {"conv 1", &kolo_op_conv2d, 3, 1, {{64, 1, 28, 28}, {6, 1, 5, 5}, {6}}, {CONV_1}, 8, {0}},
    {"conv 1 dw",
     &kolo_op_conv2d_bwd_weights,
     2,
     2,
     {{64, 6, 28, 28}, {64, 1, 28, 28}},
     {CONV_1, {0}, {5}, {5}, {1}},
     1,
     {0}},
    {"pool 1", &kolo_op_max_pool2d, 1, 2, {{64, 6, 28, 28}}, {POOL}, 7, {0}},
    {"pool 1 dx",
     &kolo_op_max_pool2d_bwd,
     3,
     1,
     {{64, 6, 14, 14}, {64, 6, 14, 14}, {64, 6, 14, 14}},
     {POOL, {28}, {28}},
     15,
     {F32, U8, F32}},
    {"conv 2", &kolo_op_conv2d, 3, 1, {{64, 6, 14, 14}, {16, 6, 5, 5}, {16}}, {CONV_2}, 9, {0}},
    {"conv 2 dx",
     &kolo_op_conv2d_bwd_data,
     2,
     1,
     {{64, 16, 10, 10}, {16, 6, 5, 5}},
     {CONV_2, {0}, {14}, {14}},
     5,
     {0}},
    {"conv 2 dw",
     &kolo_op_conv2d_bwd_weights,
     2,
     2,
     {{64, 16, 10, 10}, {64, 6, 14, 14}},
     {CONV_2, {0}, {5}, {5}, {1}},
     3,
     {0}},
    {"pool 2", &kolo_op_max_pool2d, 1, 2, {{64, 16, 10, 10}}, {POOL}, 7, {0}},
    {"pool 2 dx",
     &kolo_op_max_pool2d_bwd,
     3,
     1,
     {{64, 16, 5, 5}, {64, 16, 5, 5}, {64, 16, 5, 5}},
     {POOL, {10}, {10}},
     15,
     {F32, U8, F32}},
    {"linear 1", &kolo_op_linear, 3, 1, {{64, 16, 5, 5}, {120, 16, 5, 5}, {120}}, {{1}}, 1, {0}},
    {"linear 1 dx", &kolo_op_linear_bwd_data, 2, 1, {{64, 120}, {120, 16, 5, 5}}, {{0}}, 4, {0}},
    {"linear 1 dw", &kolo_op_linear_bwd_weights, 2, 2, {{64, 120}, {64, 16, 5, 5}}, {{1}}, 6, {0}},
    {"linear 2", &kolo_op_linear, 3, 1, {{64, 120}, {84, 120}, {84}}, {{1}}, 0, {0}},
    {"linear 2 dx", &kolo_op_linear_bwd_data, 2, 1, {{64, 84}, {84, 120}}, {{0}}, 0, {0}},
    {"linear 2 dw", &kolo_op_linear_bwd_weights, 2, 2, {{64, 84}, {64, 120}}, {{1}}, 0, {0}},
    {"linear 3", &kolo_op_linear, 3, 1, {{64, 84}, {10, 84}, {10}}, {{0}}, 0, {0}},
    {"linear 3 dx", &kolo_op_linear_bwd_data, 2, 1, {{64, 10}, {10, 84}}, {{0}}, 0, {0}},
    {"linear 3 dw", &kolo_op_linear_bwd_weights, 2, 2, {{64, 10}, {64, 84}}, {{1}}, 0, {0}},
    {"loss", &kolo_op_softmax_xent, 2, 2, {{64, 10}, {64}}, {{0}}, 0, {F32, I32}},
    {"loss dx", &kolo_op_softmax_xent_bwd, 3, 1, {{64, 10}, {64}, {0}}, {{0}}, 0, {F32, I32}},
    {"sgd 48000", &kolo_op_sgd, 4, 2, {{48000}, {48000}, {0}, {48000}}, {{.f = 0.9}}, 0, {0}},
    {"relu 1", &kolo_op_relu, 1, 1, {{64, 6, 28, 28}}, {{0}}, 3, {0}},
    {"relu 1 dx", &kolo_op_relu_bwd, 2, 1, {{64, 6, 28, 28}, {64, 6, 28, 28}}, {{0}}, 7, {0}},
    {"in reorder", &kolo_op_reorder, 1, 1, {{64, 6, 28, 28}}, {{0}}, 2, {0}},
    {"out reorder", &kolo_op_reorder, 1, 1, {{64, 6, 28, 28}}, {{0}}, 1, {0}},
};

static const char *const layouts[] = {"abcd", "acdb", "aBcd8b", "aBcd16b"};

static void set_layout(kolo_tensor *t, const char *images) {
    t->layout = kolo_layout_plain(t->shape.rank);
    if (images && t->shape.rank == 4 && kolo_layout_parse(images, &t->layout) != KOLO_OK) exit(1);
}

static bool make_spec(const work *job, const char *layout, kolo_kernel_spec *spec) {
    *spec = (kolo_kernel_spec){
        .op = job->op, .attr = job->attr, .n_in = job->n_in, .n_out = job->n_out, .threads = 1};
    for (int i = 0; i < job->n_in; i++) {
        kolo_shape shape = {0};
        while (shape.rank < 4 && job->in[i][shape.rank]) {
            shape.dim[shape.rank] = job->in[i][shape.rank];
            shape.rank++;
        }
        spec->in[i] = kolo_tensor_plain(job->dtype[i], shape);
    }
    kolo_shape_query q = {.attr = job->attr, .n_in = job->n_in, .in = spec->in, .out = spec->out};
    if (job->op == &kolo_op_reorder) {
        spec->out[0] = spec->in[0];
    } else if (job->op->shape(&q) != KOLO_OK) {
        fprintf(stderr, "%s: %s\n", job->what, kolo_last_error());
        return false;
    }
    for (int i = 0; i < job->n_in + job->n_out; i++) {
        kolo_tensor *t = i < job->n_in ? &spec->in[i] : &spec->out[i - job->n_in];
        set_layout(t, job->images >> i & 1 ? layout : NULL);
    }
    /* Weights: open forwards, elsewhere as the image that they multiply (linear) or plain. */
    if (job->op == &kolo_op_conv2d || job->op == &kolo_op_linear) {
        spec->in[1].layout = (kolo_layout){0};
    }
    if (job->op == &kolo_op_linear_bwd_data) set_layout(&spec->in[1], layout);
    if (job->op == &kolo_op_linear_bwd_weights) set_layout(&spec->out[0], layout);
    return true;
}

static void *buffer(const kolo_tensor *t) {
    size_t bytes = kolo_tensor_bytes(t);
    float *p = kolo_zalloc(bytes);
    if (!p) exit(1);
    for (size_t i = 0; t->dtype == KOLO_DTYPE_F32 && i < bytes / 4; i++) {
        p[i] = (float)(i * 2654435761u % 1024) / 512 - 1;
    }
    return p;
}

/* The least of ROUNDS times, in milliseconds; negative when the kernel cannot be made. */
static double time_of(const kolo_kernel *kernel, const kolo_kernel_spec *spec) {
    kolo_call call = {.spec = spec};
    size_t scratch = 0;
    double best = -1;
    if (kernel->prepare && kernel->prepare(spec, &call.state, &scratch) != KOLO_OK) return -1;
    for (int i = 0; i < spec->n_in; i++) call.in[i] = buffer(&spec->in[i]);
    for (int i = 0; i < spec->n_out; i++) call.out[i] = buffer(&spec->out[i]);
    call.scratch = kolo_zalloc(scratch + 64);
    if (kernel->bind && kernel->bind(&call) != KOLO_OK) return -1;
    for (int i = 0; i < ROUNDS; i++) {
        int64_t start = kolo_now_ns();
        kernel->run(&call);
        double ms = (double)(kolo_now_ns() - start) * 1e-6;
        if (best < 0 || ms < best) best = ms;
    }
    if (kernel->unbind) kernel->unbind(call.bound);
    if (kernel->release) kernel->release(call.state);
    for (int i = 0; i < spec->n_in; i++) kolo_free(call.in[i]);
    for (int i = 0; i < spec->n_out; i++) kolo_free(call.out[i]);
    kolo_free(call.scratch);
    return best;
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("%-12s %-8s %-26s %8s %9s\n", "node", "images", "kernel", "ms", "estimate");
    for (size_t i = 0; i < KOLO_COUNT(works); i++) {
        if (argc > 1 && !strstr(works[i].what, argv[1])) continue;
        for (size_t j = 0; j < (works[i].images ? KOLO_COUNT(layouts) : 1); j++) {
            const kolo_kernel *k;
            for (size_t n = 0; (k = kolo_kernel_at(n)); n++) {
                kolo_kernel_spec spec;
                if (k->op != works[i].op || kolo_kernel_is_ref(k)) continue;
                if (!make_spec(&works[i], layouts[j], &spec)) return 1;
                double estimate = k->fit(&spec);
                if (estimate < 0) continue;
                printf("%-12s %-8s %-26s %8.4f %9.4f\n", works[i].what,
                       works[i].images ? layouts[j] : "", k->name, time_of(k, &spec),
                       estimate * 1e3);
            }
        }
    }
    return 0;
}

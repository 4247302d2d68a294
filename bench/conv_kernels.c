/* Times every kernel that supports the convolutions of the model zoo, forward (f), data gradient
 * (d) and weight gradient (w), in each layout of images, on one thread: conv-kernels [SHAPE [PASS
 * [LAYOUT [KERNEL]]]]. SHAPE, LAYOUT and KERNEL are parts of names. GFLOP/s count the operations of
 * the direct form, so Winograd may exceed the processor's peak. Used to calibrate the estimates of
 * kernels. */
#include "bench/kernel_timing.h"
#include "kernel/kernel.h"
#include "kernel/select/select.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct shape {
    const char *name;
    int64_t n, c, h, o, kernel, stride, pad;
    int64_t groups;
} shape;

static const shape shapes[] = {
    {"resnet18-1", 16, 64, 56, 64, 3, 1, 1, 1},    {"resnet18-2", 16, 128, 28, 128, 3, 1, 1, 1},
    {"resnet18-3", 16, 256, 14, 256, 3, 1, 1, 1},  {"resnet18-4", 16, 512, 7, 512, 3, 1, 1, 1},
    {"resnet18-in", 16, 3, 224, 64, 7, 2, 3, 1},   {"resnet18-s2", 16, 64, 56, 128, 3, 2, 1, 1},
    {"resnet18-s4", 16, 256, 14, 512, 3, 2, 1, 1}, {"resnet50-a", 16, 256, 56, 64, 1, 1, 0, 1},
    {"resnet50-b", 16, 64, 56, 256, 1, 1, 0, 1},   {"resnet50-c", 16, 1024, 14, 256, 1, 1, 0, 1},
    {"resnet50-1a", 8, 64, 56, 256, 1, 1, 0, 1},   {"resnet50-1b", 8, 256, 56, 64, 1, 1, 0, 1},
    {"resnet50-2a", 8, 128, 28, 512, 1, 1, 0, 1},  {"resnet50-2b", 8, 512, 28, 128, 1, 1, 0, 1},
    {"resnet50-3a", 8, 256, 14, 1024, 1, 1, 0, 1}, {"resnet50-3b", 8, 1024, 14, 256, 1, 1, 0, 1},
    {"resnet50-4a", 8, 512, 7, 2048, 1, 1, 0, 1},  {"resnet50-4b", 8, 2048, 7, 512, 1, 1, 0, 1},
    {"resnet50-s2", 16, 256, 56, 512, 1, 2, 0, 1}, {"vgg16-in", 8, 3, 224, 64, 3, 1, 1, 1},
    {"vgg16-1", 8, 64, 224, 64, 3, 1, 1, 1},       {"vgg16-2", 8, 128, 112, 128, 3, 1, 1, 1},
    {"vgg16-3", 8, 256, 56, 256, 3, 1, 1, 1},      {"vgg16-4", 8, 512, 28, 512, 3, 1, 1, 1},
    {"vgg16-5", 8, 512, 14, 512, 3, 1, 1, 1},      {"alexnet-in", 32, 3, 224, 64, 11, 4, 2, 1},
    {"alexnet-2", 32, 64, 27, 192, 5, 1, 2, 1},    {"alexnet-3", 32, 192, 13, 384, 3, 1, 1, 1},
    {"alexnet-5", 32, 256, 13, 256, 3, 1, 1, 1},   {"googlenet-2", 16, 64, 56, 192, 3, 1, 1, 1},
    {"googlenet-3a", 16, 96, 28, 128, 3, 1, 1, 1}, {"googlenet-4b", 16, 112, 14, 224, 3, 1, 1, 1},
    {"googlenet-5b", 16, 192, 7, 384, 3, 1, 1, 1}, {"googlenet-3a5", 16, 16, 28, 32, 3, 1, 1, 1},
    {"resnet20-in", 128, 1, 28, 16, 3, 1, 1, 1},   {"resnet20-1", 128, 16, 28, 16, 3, 1, 1, 1},
    {"resnet20-2", 128, 32, 14, 32, 3, 1, 1, 1},   {"resnet20-3", 128, 64, 7, 64, 3, 1, 1, 1},
    {"resnet20-s2", 128, 16, 28, 32, 3, 2, 1, 1},
};

static const shape depthwise[] = {
    {"mobile-1", 16, 32, 112, 32, 3, 1, 1, 32},    {"mobile-2", 16, 96, 112, 96, 3, 2, 1, 96},
    {"mobile-3", 16, 144, 56, 144, 3, 1, 1, 144},  {"mobile-4", 16, 144, 56, 144, 3, 2, 1, 144},
    {"mobile-5", 16, 192, 28, 192, 3, 1, 1, 192},  {"mobile-8", 16, 384, 14, 384, 3, 1, 1, 384},
    {"mobile-14", 16, 576, 14, 576, 3, 2, 1, 576}, {"mobile-15", 16, 960, 7, 960, 3, 1, 1, 960},
    {"convnext-1", 8, 96, 56, 96, 7, 1, 3, 96},
};

static const char *const layouts[] = {"abcd", "acdb", "aBcd8b", "aBcd16b"};

static int64_t out_size(const shape *s) { return (s->h + 2 * s->pad - s->kernel) / s->stride + 1; }

/* The spec of one pass; images of less than eight channels stay plain or NHWC. */
static bool make_spec(const shape *s, char pass, const char *layout, const kolo_attr *attr,
                      kolo_kernel_spec *spec) {
    int64_t size = out_size(s);
    kolo_tensor x = kolo_tensor_plain(KOLO_DTYPE_F32, kolo_shape_4(s->n, s->c, s->h, s->h));
    kolo_tensor y = kolo_tensor_plain(KOLO_DTYPE_F32, kolo_shape_4(s->n, s->o, size, size));
    kolo_tensor w = kolo_tensor_plain(KOLO_DTYPE_F32,
                                      kolo_shape_4(s->o, s->c / s->groups, s->kernel, s->kernel));
    if (kolo_layout_parse(layout, &y.layout) != KOLO_OK) return false;
    if (s->c >= 8) x.layout = y.layout;
    w.layout = (kolo_layout){0};
    *spec = (kolo_kernel_spec){
        .op = &kolo_op_conv2d, .attr = attr, .n_in = 2, .n_out = 1, .threads = 1};
    spec->in[0] = x;
    spec->in[1] = w;
    spec->out[0] = y;
    const kolo_kernel *best;
    if (kolo_kernel_select(KOLO_KERNELS_BEST, spec, &best, NULL) != KOLO_OK) return false;
    w = spec->in[1];
    if (pass == 'd') {
        spec->op = &kolo_op_conv2d_bwd_data;
        spec->in[0] = y;
        spec->out[0] = x;
    } else if (pass == 'w') {
        spec->op = &kolo_op_conv2d_bwd_weights;
        spec->in[0] = y;
        spec->in[1] = x;
        spec->out[0] = w;
    }
    return true;
}

/* The least of some processor times, in seconds; negative when the kernel cannot be made. */
static double time_of(const kolo_kernel *kernel, const kolo_kernel_spec *spec) {
    kolo_call call = {.spec = spec};
    size_t scratch = 0;
    double best = -1, total = 0;
    if (kernel->prepare && kernel->prepare(spec, &call.state, &scratch) != KOLO_OK) return -1;
    for (int i = 0; i < spec->n_in; i++) {
        call.in[i] = buffer(kolo_tensor_bytes(&spec->in[i]));
    }
    for (int i = 0; i < spec->n_out; i++) {
        call.out[i] = buffer(kolo_tensor_bytes(&spec->out[i]));
    }
    call.scratch = buffer(scratch);
    if (kernel->bind && kernel->bind(&call) != KOLO_OK) return -1;
    for (int i = 0; i < 3 || (i < 30 && total < 0.3); i++) {
        const double start = processor_seconds();
        kernel->run(&call);
        const double seconds = processor_seconds() - start;
        if (best < 0 || seconds < best) best = seconds;
        total += seconds;
    }
    if (kernel->unbind) kernel->unbind(call.bound);
    if (kernel->release) kernel->release(call.state);
    for (int i = 0; i < spec->n_in; i++) {
        kolo_pages_unmap(call.in[i], kolo_tensor_bytes(&spec->in[i]) + MARGIN);
    }
    for (int i = 0; i < spec->n_out; i++) {
        kolo_pages_unmap(call.out[i], kolo_tensor_bytes(&spec->out[i]) + MARGIN);
    }
    kolo_pages_unmap(call.scratch, scratch + MARGIN);
    return best;
}

static void time_all(const shape *s, char pass, const char *layout, const char *only) {
    int64_t size = out_size(s);
    kolo_attr attr[KOLO_MAX_ATTRS] = {{s->stride}, {s->stride}, {s->pad}, {s->pad}, {1}, {1}};
    attr[KOLO_CONV_GROUPS].i = s->groups;
    attr[KOLO_CONV_SIZE_H].i = attr[KOLO_CONV_SIZE_W].i = pass == 'd' ? s->h : s->kernel;
    double flops = 2e-9 * (double)(s->n * s->o * size * size) *
                   (double)(s->c / s->groups * s->kernel * s->kernel);
    const kolo_kernel *k;
    for (size_t n = 0; (k = kolo_kernel_at(n)); n++) {
        kolo_kernel_spec spec;
        if (!make_spec(s, pass, layout, attr, &spec)) return;
        if (k->op != spec.op || kolo_kernel_is_ref(k) || !strstr(k->name, only)) continue;
        double estimate = k->fit(&spec);
        if (estimate < 0) continue;
        double seconds = time_of(k, &spec);
        printf("%-14s %c  %-8s %-26s %9.3f %9.1f %9.3f\n", s->name, pass, layout, k->name,
               seconds * 1e3, flops / seconds, estimate * 1e3);
    }
}

static void time_shapes(const shape *shapes_of, size_t n, int argc, char **argv) {
    for (size_t i = 0; i < n; i++) {
        if (argc > 1 && !strstr(shapes_of[i].name, argv[1])) continue;
        for (const char *pass = "fdw"; *pass; pass++) {
            if (argc > 2 && !strchr(argv[2], *pass)) continue;
            for (size_t j = 0; j < KOLO_COUNT(layouts); j++) {
                if (argc > 3 && !strstr(layouts[j], argv[3])) continue;
                time_all(&shapes_of[i], *pass, layouts[j], argc > 4 ? argv[4] : "");
            }
        }
    }
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("%-14s %-2s %-8s %-26s %9s %9s %9s\n", "shape", "", "images", "kernel", "ms", "GFLOP/s",
           "estimate");
    time_shapes(shapes, KOLO_COUNT(shapes), argc, argv);
    time_shapes(depthwise, KOLO_COUNT(depthwise), argc, argv);
    return 0;
}

/* Kernel selection: the kernel with the smallest measured or estimated time among those that
 * fit. */
#include "kernel/select/select.h"

#include "base/status.h"
#include "base/text.h"
#include "device/device.h"
#include "kernel/ref/table.h"
#include "kernel/select/custom.h"
#include "kernel/select/via_f32.h"

/* "f32 [8,1,28,28] abcd, f32 [6,1,5,5] any". */
static void describe(kolo_text *text, const kolo_tensor *tensors, int n) {
    char shape[KOLO_SHAPE_TEXT], layout[KOLO_LAYOUT_TEXT];
    for (int i = 0; i < n; i++) {
        const kolo_tensor *t = &tensors[i];
        kolo_text_add(text, "%s%s %s", i ? ", " : "", kolo_dtype_name(t->dtype),
                      kolo_shape_text(&t->shape, shape));
        if (t->shape.rank == 0) continue;
        kolo_text_add(text, " %s",
                      kolo_layout_is_open(t) ? "any" : kolo_layout_text(&t->layout, layout));
    }
}

static kolo_status none_fits(kolo_kernel_set set, const kolo_kernel_spec *spec) {
    const bool other = spec->device && !spec->device->host_kernels;
    kolo_text text = {0};
    KOLO_TRY(kolo_kernel_check_device(set, spec->op, spec->device));
    describe(&text, spec->in, spec->n_in);
    kolo_text_add(&text, " -> ");
    describe(&text, spec->out, spec->n_out);
    kolo_status status = KOLO_FAIL(
        KOLO_ERR_UNSUPPORTED,
        "%s: no %skernel of this build%s%s supports %s; use f32 tensors in plain layouts",
        spec->op->name, set == KOLO_KERNELS_REF ? "reference " : "", other ? " on device " : "",
        other ? spec->device->name : "", text.text ? text.text : "these tensors");
    kolo_text_fini(&text);
    return status;
}

/* A candidate that fits the spec. */
typedef struct choice {
    const kolo_kernel *kernel; /* NULL: none */
    kolo_kernel_spec spec;     /* with its choice of open layouts */
    double seconds;
    bool measured;
} choice;

/* Replaces *best by the kernel when that runs on the device, fits and is faster. */
static void consider(const kolo_kernel *kernel, const kolo_kernel_spec *spec, choice *best) {
    choice c = {.kernel = kernel, .spec = *spec};
    if (!kolo_kernel_runs_on(kernel, spec->device)) return;
    c.seconds = kernel->fit(&c.spec);
    if (c.seconds < 0) return;
    bool tune = spec->tuner && !kolo_kernel_is_ref(kernel);
    double known = tune ? kolo_tuner_seconds(spec->tuner, kernel, &c.spec, c.seconds) : -1;
    c.measured = known >= 0;
    if (c.measured) c.seconds = known;
    if (best->kernel && c.measured < best->measured) return;
    if (best->kernel && c.measured == best->measured && c.seconds >= best->seconds) return;
    *best = c;
}

static bool has_bf16(const kolo_kernel_spec *spec) {
    for (int i = 0; i < spec->n_in + spec->n_out; i++) {
        const kolo_tensor *t = i < spec->n_in ? &spec->in[i] : &spec->out[i - spec->n_in];
        if (t->dtype == KOLO_DTYPE_BF16) return true;
    }
    return false;
}

/* Running in f32 between conversions replaces a missing bf16 kernel. If a bf16 kernel exists,
 * only a measured time can prefer the conversions, never an estimate. */
static void consider_via_f32(const kolo_kernel_spec *spec, choice *best) {
    choice converted = {0};
    bool missing = !best->kernel || kolo_kernel_is_ref(best->kernel);
    if (!missing && !spec->tuner) return;
    consider(&kolo_via_f32_kernel, spec, &converted);
    if (!converted.kernel || (!missing && !converted.measured)) return;
    if (best->measured && converted.seconds >= best->seconds) return;
    if (missing && best->kernel && converted.seconds >= best->seconds) return;
    *best = converted;
}

kolo_status kolo_kernel_select_tuned(kolo_kernel_set set, kolo_tuner *tuner, kolo_kernel_spec *spec,
                                     const kolo_kernel **kernel, double *seconds) {
    choice best = {0};
    const kolo_kernel *candidate = kolo_reference_of(spec->op);
    bool bf16 = has_bf16(spec);
    spec->select = kolo_kernel_select_tuned;
    spec->kernels = set;
    spec->tuner = tuner;
    if (candidate) consider(candidate, spec, &best);
    for (size_t i = 0; set != KOLO_KERNELS_REF && (candidate = kolo_fast_kernel_at(i)); i++) {
        if (candidate->op != spec->op) continue;
        if (set == KOLO_KERNELS_DIRECT && candidate->winograd) continue;
        if (bf16 && candidate->bf16 && !kolo_kernel_has_bf16()) continue;
        consider(candidate, spec, &best);
    }
    if (spec->op->custom) consider(&kolo_custom_kernel, spec, &best);
    if (bf16 && set != KOLO_KERNELS_REF) consider_via_f32(spec, &best);
    if (!best.kernel) return none_fits(set, spec);
    *spec = best.spec;
    *kernel = best.kernel;
    if (seconds) *seconds = best.seconds;
    return KOLO_OK;
}

kolo_status kolo_kernel_select(kolo_kernel_set set, kolo_kernel_spec *spec,
                               const kolo_kernel **kernel, double *seconds) {
    return kolo_kernel_select_tuned(set, NULL, spec, kernel, seconds);
}

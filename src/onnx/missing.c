/* ONNX files without protobuf-c. */
#include "base/status.h"
#include "kolo/onnx.h"
#include "onnx/export/export.h"

#ifndef KOLO_HAS_ONNX

static kolo_status missing(void) {
    return KOLO_FAIL(
        KOLO_ERR_UNSUPPORTED,
        "this build reads no ONNX files: install libprotobuf-c-dev, protobuf-c-compiler "
        "and libonnx-dev, and build again");
}

kolo_status kolo_onnx_write(const char *path, onnx_build_fn *build, void *build_arg,
                            onnx_read_fn *read, void *read_arg) {
    return missing();
}
kolo_status kolo_onnx_open(const char *path, const kolo_onnx_opts *opts, kolo_onnx **onnx) {
    return missing();
}
void kolo_onnx_close(kolo_onnx *onnx) {}
const char *kolo_onnx_notice(const kolo_onnx *onnx) { return NULL; }
kolo_status kolo_onnx_build(kolo_graph *g, int64_t samples, void *onnx) { return missing(); }
void kolo_onnx_describe(const kolo_onnx *onnx, kolo_shape *sample, bool *integers,
                        int64_t *classes) {
    *sample = kolo_shape_0();
    *integers = false;
    *classes = 0;
}

#endif

/* The ONNX reader on any bytes: it accepts them or names what is wrong in one line; what it accepts
 * can be built again, for another batch too. */
#include "base/status.h"
#include "fuzz/fuzz.h"

#ifdef KOLO_HAS_ONNX

#include "onnx/import/file.h"

#include <string.h>

static void check_error(void) {
    KOLO_ASSERT(kolo_last_error()[0] && !strchr(kolo_last_error(), '\n'));
}

static void build(kolo_onnx *onnx, int64_t samples) {
    kolo_graph *g;
    if (kolo_graph_create(NULL, &g) != KOLO_OK) return;
    const kolo_status status = kolo_onnx_build(g, samples, onnx);
    KOLO_ASSERT(samples != 0 || status == KOLO_OK);
    if (status != KOLO_OK) check_error();
    kolo_graph_destroy(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    const kolo_onnx_opts opts = {.no_loss = length % 2 == 0};
    kolo_onnx *onnx;
    if (onnx_open_bytes(bytes, length, "input", &opts, &onnx) != KOLO_OK) {
        check_error();
        return 0;
    }
    build(onnx, 0);
    build(onnx, 3);
    kolo_onnx_close(onnx);
    return 0;
}

#else

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) { return 0; }

#endif

#pragma once
/* ONNX test cases, as the onnx package writes them: a folder holds model.onnx and
 * test_data_set_0/{input,output}_K.pb. With KOLO_HAS_ONNX only. */

#include "kolo/status.h"

enum { ONNX_CASE_OP = 64 };

/* Imports the model, runs it for evaluation and compares its outputs, up to tolerance (1 + |y|).
 * Inputs that an operator needs as constants become initializers. `op`: the operator, or "several
 * nodes". */
kolo_status onnx_case_run(const char *folder, double tolerance, char op[ONNX_CASE_OP]);

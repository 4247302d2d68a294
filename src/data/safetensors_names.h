#pragma once
/* The format's names of element types, shared by its reader and writer. */

#include "kolo/dtype.h"

static const char *const kolo_safetensors_dtype[] = {
    [KOLO_DTYPE_F32] = "F32",   [KOLO_DTYPE_F64] = "F64", [KOLO_DTYPE_F16] = "F16",
    [KOLO_DTYPE_BF16] = "BF16", [KOLO_DTYPE_I8] = "I8",   [KOLO_DTYPE_U8] = "U8",
    [KOLO_DTYPE_I32] = "I32",   [KOLO_DTYPE_I64] = "I64",
};
_Static_assert(sizeof kolo_safetensors_dtype / sizeof *kolo_safetensors_dtype == KOLO_DTYPE_COUNT,
               "every element type has a name in files");

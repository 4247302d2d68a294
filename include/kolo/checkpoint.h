#pragma once
/* Weight files: inspection, verification, comparison, export. They are safetensors files; the
 * metadata of Kolo's checkpoints also names the model. */

#include "kolo/status.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Lists the metadata, and name, type and shape of each tensor, of any safetensors file; of one that
 * a mesh of workers wrote, also the stages and slices of each. The tensor data are not read (see
 * kolo_checkpoint_check). Free *text with kolo_checkpoint_text_free. IO: the
 * file cannot be read; FORMAT: it is not a safetensors file. */
KOLO_API kolo_status kolo_checkpoint_describe(const char *path, char **text);

/* Reads a whole file and verifies its hashes; a file without hashes passes. FORMAT, naming what is
 * damaged; IO. */
KOLO_API kolo_status kolo_checkpoint_check(const char *path);

/* Verifies a checkpoint: header and hashes, that its tensors match the model, that all values are
 * finite. For files of other programs, which name no model: header and values. *text describes what
 * was verified. FORMAT: the check that failed. */
KOLO_API kolo_status kolo_checkpoint_verify(const char *path, char **text);

/* Compares the tensors of two files. *equal: same names, types and shapes, and bitwise equal data.
 * *text has a line for each tensor that differs, with the relative L2 distance if the shapes are
 * equal. */
KOLO_API kolo_status kolo_checkpoint_compare(const char *a, const char *b, bool *equal,
                                             char **text);

/* The list of naming conventions for tensors: code, name, description. */
#define KOLO_CHECKPOINT_FORMAT_LIST(X)                                              \
    X(KOLO_FORMAT_NATIVE, "native", "Kolo's names and metadata")                    \
    X(KOLO_FORMAT_TORCHVISION, "torchvision", "the names of torchvision's models")  \
    X(KOLO_FORMAT_HUGGINGFACE, "huggingface", "the names of Hugging Face's models") \
    X(KOLO_FORMAT_ONNX, "onnx", "an ONNX file: the network for evaluation, with its weights")

typedef enum kolo_checkpoint_format {
#define KOLO_CHECKPOINT_FORMAT_ENUM(code, name, help) code,
    KOLO_CHECKPOINT_FORMAT_LIST(KOLO_CHECKPOINT_FORMAT_ENUM)
#undef KOLO_CHECKPOINT_FORMAT_ENUM
        KOLO_FORMAT_COUNT
} kolo_checkpoint_format;
/* The name in the list; "unknown" outside it. Static storage. */
KOLO_API const char *kolo_checkpoint_format_name(kolo_checkpoint_format format);

/* Writes the parameters of a checkpoint of Kolo to the file `to`, with tensors named by `format`,
 * or its network as an ONNX file (docs/onnx.md). UNSUPPORTED: an op that ONNX does not have. ARG:
 * the format is unknown or does not support the model, or `to` is the file `from`, which stays as
 * it is; FORMAT, IO. */
KOLO_API kolo_status kolo_checkpoint_export(const char *from, const char *to,
                                            kolo_checkpoint_format format);

KOLO_API void kolo_checkpoint_text_free(char *text);

#ifdef __cplusplus
}
#endif

#pragma once
/* Files of weights: looking into them, comparing them, handing them to other programs. They are
 * safetensors files; a checkpoint that kolo wrote also says which model it is of. */

#include "kolo/status.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a file holds: its metadata, and name, type and shape of each tensor. Any safetensors file.
 * The numbers are not read: damage in them is for kolo_checkpoint_check to find. *text is freed
 * with kolo_checkpoint_text_free. IO: it cannot be read; FORMAT: it is none. */
KOLO_API kolo_status kolo_checkpoint_describe(const char *path, char **text);

/* Reads all of a file and holds it against the hashes that it carries; one without passes. FORMAT,
 * naming what is not what was written; IO. */
KOLO_API kolo_status kolo_checkpoint_check(const char *path);

/* Finds out whether a checkpoint is whole: its header, the tensors of its model with their shapes,
 * all numbers finite. Of a file that kolo did not write, which names no model: header and numbers.
 * *text says what was found good. FORMAT: what is not. */
KOLO_API kolo_status kolo_checkpoint_verify(const char *path, char **text);

/* Compares the tensors of two files: *equal when they have the same names, types, shapes and bits.
 * *text has a line for each tensor that differs, with the relative L2 distance of two tensors of
 * one shape. */
KOLO_API kolo_status kolo_checkpoint_compare(const char *a, const char *b, bool *equal,
                                             char **text);

/* The list of naming conventions for tensors: code, name, description. */
#define KOLO_CHECKPOINT_FORMAT_LIST(X)                                             \
    X(KOLO_FORMAT_NATIVE, "native", "Kolo's names and metadata")                   \
    X(KOLO_FORMAT_TORCHVISION, "torchvision", "the names of torchvision's models") \
    X(KOLO_FORMAT_HUGGINGFACE, "huggingface", "the names of Hugging Face's models")

typedef enum kolo_checkpoint_format {
#define KOLO_CHECKPOINT_FORMAT_ENUM(code, name, help) code,
    KOLO_CHECKPOINT_FORMAT_LIST(KOLO_CHECKPOINT_FORMAT_ENUM)
#undef KOLO_CHECKPOINT_FORMAT_ENUM
        KOLO_FORMAT_COUNT
} kolo_checkpoint_format;

/* Writes the parameters of a checkpoint of Kolo to the file `to`, with tensors named by `format`.
 * ARG: the format is unknown or does not support the model; FORMAT, IO. */
KOLO_API kolo_status kolo_checkpoint_export(const char *from, const char *to,
                                            kolo_checkpoint_format format);

KOLO_API void kolo_checkpoint_text_free(char *text);

#ifdef __cplusplus
}
#endif

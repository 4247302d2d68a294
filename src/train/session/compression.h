#pragma once
/* Compression of gradients: its text, and where it pays by measured times. */

#include "pass/pass.h"

enum { KOLO_COMPRESS_MIN_BYTES = 1 << 16 }; /* of a gradient, where none are given */

/* Parses "none", "int8", "topk:0.01", "powersgd:2", also with the parameters whose gradients are
 * compressed, "bf16,only=fc1.weight,h.*" (*compression borrows them); and "auto" or "auto=int8":
 * *measured, and nothing is compressed yet; auto alone means bf16. ARG: something else. */
kolo_status kolo_compression_parse(const char *text, kolo_compression *compression, bool *measured);
/* Appends a codec as kolo_compression_parse reads it. */
void kolo_compression_describe(const kolo_compression *compression, kolo_text *text);

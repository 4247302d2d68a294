#pragma once
/* Initial weights from safetensors files, with our tensor names or those of another convention
 * (name_conventions.h). */

#include "plan/plan.h"

/* Copies all tensors of `path` into `store`, which holds `model`. Names are ours if Kolo wrote the
 * file, else those of the model's convention. Converts from f32, f64, f16 and bf16. IO: no such
 * file; FORMAT, with `store` unchanged: not a safetensors file, or tensors are missing, unexpected
 * or of another shape; the message lists them. With `rest`, what fits is copied instead, and *rest
 * lists the tensors that do not, a line for each reason. FORMAT if none fits. */
kolo_status kolo_weights_load(const char *path, const char *model, kolo_store *store,
                              kolo_text *rest);

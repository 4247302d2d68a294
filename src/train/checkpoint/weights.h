#pragma once
/* Weights from and for other programs: safetensors files under the names of their conventions
 * (train/names.h), or under ours. */

#include "plan/plan.h"

/* Copies every tensor of `path` into `store`, which holds `model`: by our names when kolo wrote the
 * file, else by those of the model's convention. f32, f64, f16 and bf16 are taken. IO: no such
 * file; FORMAT, and the store is as before: no safetensors file, or tensors that are missing,
 * unexpected or of another shape, all named in one line. */
kolo_status kolo_weights_load(const char *path, const char *model, kolo_store *store);

#pragma once
/* The text of a mesh of workers, "dp=2,tp=4", and what is placed on it (docs/parallelism.md). */

#include "kolo/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The workers along an axis, 1 where the mesh has none of that name; axis NULL: of the whole mesh.
 * 0: the text does not state them, as an axis has the size "*", or it is NULL or no mesh. */
KOLO_API int kolo_mesh_workers(const char *text, const char *axis);
/* The axis without which a placement (kolo_train_opts) cannot be used: "sp" if keys and values go
 * round its workers, else "tp"; the latter also of a file that cannot be read. */
KOLO_API const char *kolo_placement_axis(const char *placement);

#ifdef __cplusplus
}
#endif

#pragma once
/* Device meshes: the workers of a job as a named grid.
 *
 * A mesh has up to KOLO_MESH_AXES axes, such as dp=2,tp=4. Ranks are numbered in row-major order:
 * the last axis varies fastest, so its groups lie inside a host. (DeviceMesh of PyTorch, Mesh of
 * JAX.)
 */

#include "base/status.h"

#include <stdint.h>

enum {
    KOLO_MESH_AXES = 6,
    KOLO_MESH_NAME_BYTES = 8, /* of an axis, with its NUL */
    KOLO_MESH_RANKS = 1024,
    KOLO_MESH_TEXT = 128,
};

typedef struct kolo_mesh_axis {
    char name[KOLO_MESH_NAME_BYTES];
    int size;
} kolo_mesh_axis;

/* A plain value. Axes beyond n_axes are zero. */
typedef struct kolo_mesh {
    int n_axes;
    kolo_mesh_axis axes[KOLO_MESH_AXES];
} kolo_mesh;

/* A set of axes: bit a stands for axis a. */
typedef uint32_t kolo_axes;

/* Reads "dp=2,tp=4". `world` is the number of workers that the sizes must multiply to; 0: any. One
 * axis may have the size "*", which then takes what the others leave of the world. ARG: names the
 * part that is wrong. */
kolo_status kolo_mesh_parse(const char *text, int world, kolo_mesh *mesh);
/* "dp=2,tp=4"; gives `text` back. */
const char *kolo_mesh_text(const kolo_mesh *mesh, char text[KOLO_MESH_TEXT]);
int kolo_mesh_size(const kolo_mesh *mesh);
/* The index of an axis; -1 when the mesh has none of that name. */
int kolo_mesh_find(const kolo_mesh *mesh, const char *name);
/* All axes of the mesh. */
kolo_axes kolo_mesh_all(const kolo_mesh *mesh);

/* The coordinate of `rank` on `axis`. */
int kolo_mesh_coordinate(const kolo_mesh *mesh, int rank, int axis);
/* The rank whose coordinates are those of `rank`, but for `axis`, where it is `coordinate`. */
int kolo_mesh_neighbour(const kolo_mesh *mesh, int rank, int axis, int coordinate);

/* Groups: the ranks whose coordinates differ from those of `rank` on the axes of the set only, in
 * ascending order. */
int kolo_mesh_group_size(const kolo_mesh *mesh, kolo_axes axes);
/* The place of `rank` in its group. */
int kolo_mesh_group_index(const kolo_mesh *mesh, kolo_axes axes, int rank);
/* The rank at place `index` of the group of `rank`. */
int kolo_mesh_group_rank(const kolo_mesh *mesh, kolo_axes axes, int rank, int index);
/* The number of the group of `rank` among the groups of the set, from 0: a colour to split by. */
int kolo_mesh_group_colour(const kolo_mesh *mesh, kolo_axes axes, int rank);

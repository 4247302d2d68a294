/* Meshes: parsing, coordinates, groups. */
#include "mesh/mesh.h"

#include "kolo/mesh.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- text ---- */

enum { SIZE_OPEN = -1 }; /* "*" */

/* Reads one "name=size" of `length` characters. */
static kolo_status parse_axis(const char *text, size_t length, kolo_mesh *mesh) {
    if (mesh->n_axes == KOLO_MESH_AXES) {
        return KOLO_FAIL(KOLO_ERR_ARG, "mesh: more than %d axes", KOLO_MESH_AXES);
    }
    kolo_mesh_axis axis = {0};
    const char *equals = memchr(text, '=', length);
    size_t name = equals ? (size_t)(equals - text) : length;
    if (!equals || name == 0 || name >= sizeof axis.name) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "mesh: \"%.*s\" is not NAME=SIZE with a name of 1 to %d letters",
                         (int)length, text, KOLO_MESH_NAME_BYTES - 1);
    }
    for (size_t i = 0; i < name; i++) {
        if (!islower((unsigned char)text[i])) {
            return KOLO_FAIL(KOLO_ERR_ARG, "mesh: axis \"%.*s\": names are lower-case letters",
                             (int)name, text);
        }
        axis.name[i] = text[i];
    }
    if (kolo_mesh_find(mesh, axis.name) >= 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "mesh: axis %s is given twice", axis.name);
    }
    size_t digits = length - name - 1;
    if (digits == 1 && equals[1] == '*') {
        axis.size = SIZE_OPEN;
    } else {
        for (size_t i = 0; i < digits; i++) {
            int digit = isdigit((unsigned char)equals[1 + i]) ? equals[1 + i] - '0' : -1;
            if (digit < 0 || (axis.size = axis.size * 10 + digit) > KOLO_MESH_RANKS) {
                axis.size = 0;
                break;
            }
        }
        if (axis.size < 1) {
            return KOLO_FAIL(KOLO_ERR_ARG, "mesh: size \"%.*s\" of axis %s is not 1 to %d or *",
                             (int)digits, equals + 1, axis.name, KOLO_MESH_RANKS);
        }
    }
    mesh->axes[mesh->n_axes++] = axis;
    return KOLO_OK;
}

/* Gives the axis of open size what the others leave, and holds the product against the world. */
static kolo_status resolve_sizes(kolo_mesh *mesh, int world) {
    char text[KOLO_MESH_TEXT];
    int64_t product = 1;
    int open = -1;
    for (int a = 0; a < mesh->n_axes; a++) {
        if (mesh->axes[a].size != SIZE_OPEN) {
            product *= mesh->axes[a].size;
        } else if (open >= 0) {
            return KOLO_FAIL(KOLO_ERR_ARG, "mesh: both %s and %s have the size *",
                             mesh->axes[open].name, mesh->axes[a].name);
        } else {
            open = a;
        }
        if (product > KOLO_MESH_RANKS) {
            return KOLO_FAIL(KOLO_ERR_ARG, "mesh: more than %d workers", KOLO_MESH_RANKS);
        }
    }
    if (open >= 0) {
        if (world == 0 || world % product != 0) {
            return KOLO_FAIL(KOLO_ERR_ARG,
                             "mesh: %d workers cannot be divided by the %lld of the other axes "
                             "than %s",
                             world, (long long)product, mesh->axes[open].name);
        }
        mesh->axes[open].size = (int)(world / product);
    } else if (world != 0 && product != world) {
        return KOLO_FAIL(KOLO_ERR_ARG, "mesh: %s has %lld workers, the job %d: change one of them",
                         kolo_mesh_text(mesh, text), (long long)product, world);
    }
    return KOLO_OK;
}

static kolo_status parse_axes(const char *text, kolo_mesh *mesh) {
    for (const char *part = text;;) {
        size_t length = strcspn(part, ",");
        KOLO_TRY(parse_axis(part, length, mesh));
        if (part[length] == '\0') return KOLO_OK;
        part += length + 1;
    }
}

kolo_status kolo_mesh_parse(const char *text, int world, kolo_mesh *mesh) {
    kolo_mesh m = {0};
    KOLO_TRY(parse_axes(text, &m));
    KOLO_TRY(resolve_sizes(&m, world));
    *mesh = m;
    return KOLO_OK;
}

static bool has_open_axis(const kolo_mesh *mesh) {
    for (int a = 0; a < mesh->n_axes; a++) {
        if (mesh->axes[a].size == SIZE_OPEN) return true;
    }
    return false;
}

int kolo_mesh_workers(const char *text, const char *axis) {
    kolo_mesh mesh = {0};
    if (!text || parse_axes(text, &mesh) != KOLO_OK) return 0;
    const int found = axis ? kolo_mesh_find(&mesh, axis) : -1;
    if (axis) return found < 0 ? 1 : mesh.axes[found].size == SIZE_OPEN ? 0 : mesh.axes[found].size;
    if (has_open_axis(&mesh)) return 0; /* no error */
    return resolve_sizes(&mesh, 0) == KOLO_OK ? kolo_mesh_size(&mesh) : 0;
}

const char *kolo_mesh_text(const kolo_mesh *mesh, char text[KOLO_MESH_TEXT]) {
    size_t used = 0;
    text[0] = '\0';
    for (int a = 0; a < mesh->n_axes && used < KOLO_MESH_TEXT; a++) {
        int n = snprintf(text + used, KOLO_MESH_TEXT - used, "%s%s=%d", a ? "," : "",
                         mesh->axes[a].name, mesh->axes[a].size);
        used += (size_t)n;
    }
    return text;
}

/* ---- coordinates ---- */

int kolo_mesh_size(const kolo_mesh *mesh) {
    return kolo_mesh_group_size(mesh, kolo_mesh_all(mesh));
}

int kolo_mesh_find(const kolo_mesh *mesh, const char *name) {
    for (int a = 0; a < mesh->n_axes; a++) {
        if (strcmp(mesh->axes[a].name, name) == 0) return a;
    }
    return -1;
}

kolo_axes kolo_mesh_all(const kolo_mesh *mesh) { return ((kolo_axes)1 << mesh->n_axes) - 1; }

/* Ranks between two neighbours along an axis. */
static int stride_of(const kolo_mesh *mesh, int axis) {
    int stride = 1;
    for (int a = axis + 1; a < mesh->n_axes; a++) stride *= mesh->axes[a].size;
    return stride;
}

int kolo_mesh_coordinate(const kolo_mesh *mesh, int rank, int axis) {
    return rank / stride_of(mesh, axis) % mesh->axes[axis].size;
}

int kolo_mesh_neighbour(const kolo_mesh *mesh, int rank, int axis, int coordinate) {
    return rank + (coordinate - kolo_mesh_coordinate(mesh, rank, axis)) * stride_of(mesh, axis);
}

/* ---- groups ---- */

static bool has(kolo_axes axes, int axis) { return axes >> axis & 1; }

int kolo_mesh_group_size(const kolo_mesh *mesh, kolo_axes axes) {
    int size = 1;
    for (int a = 0; a < mesh->n_axes; a++) {
        if (has(axes, a)) size *= mesh->axes[a].size;
    }
    return size;
}

int kolo_mesh_group_index(const kolo_mesh *mesh, kolo_axes axes, int rank) {
    int index = 0;
    for (int a = 0; a < mesh->n_axes; a++) {
        if (has(axes, a)) {
            index = index * mesh->axes[a].size + kolo_mesh_coordinate(mesh, rank, a);
        }
    }
    return index;
}

int kolo_mesh_group_rank(const kolo_mesh *mesh, kolo_axes axes, int rank, int index) {
    for (int a = mesh->n_axes - 1; a >= 0; a--) {
        if (!has(axes, a)) continue;
        rank = kolo_mesh_neighbour(mesh, rank, a, index % mesh->axes[a].size);
        index /= mesh->axes[a].size;
    }
    return rank;
}

int kolo_mesh_group_colour(const kolo_mesh *mesh, kolo_axes axes, int rank) {
    return kolo_mesh_group_index(mesh, kolo_mesh_all(mesh) & ~axes, rank);
}

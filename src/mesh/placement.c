/* Placements and the regions that follow from them. See placement.h. */
#include "mesh/placement.h"

#include "base/compiler.h"
#include "base/integer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const kind_names[KOLO_PLACEMENT_COUNT] = {
    [KOLO_PLACEMENT_INVARIANT] = "invariant",
    [KOLO_PLACEMENT_REPLICATED] = "replicated",
    [KOLO_PLACEMENT_SHARDED] = "sharded",
    [KOLO_PLACEMENT_PARTIAL] = "partial",
    [KOLO_PLACEMENT_AT] = "at",
    [KOLO_PLACEMENT_LOCAL] = "local",
};

static int blocks_of(const kolo_placement *p) { return p->blocks > 1 ? p->blocks : 1; }

/* ---- slices ---- */

static int64_t even_cut(int64_t length, int size, int index) {
    const int64_t rest = length % size;
    return length / size * index + (index < rest ? index : rest);
}

kolo_interval kolo_even_slice(int64_t length, int size, int c) {
    return (kolo_interval){even_cut(length, size, c), even_cut(length, size, c + 1)};
}

/* The ranges that coordinate c has of a part of `length` elements, in ascending order; their
 * number. */
static int ranges_of(const kolo_placement *p, int64_t length, int size, int c,
                     kolo_interval ranges[2]) {
    const int own = (c + p->rotation) % size;
    if (p->halo) { /* of a whole dimension */
        ranges[0] = p->halo->rows[own];
        return 1;
    }
    if (p->zigzag) {
        const kolo_interval near = kolo_even_slice(length / 2, size, own);
        ranges[0] = near;
        ranges[1] = (kolo_interval){length - near.end, length - near.first};
        if (own == size - 1) ranges[0].end = ranges[1].first; /* one more of an odd number */
        return 2;
    }
    ranges[0] = p->cuts ? (kolo_interval){p->cuts[own], p->cuts[own + 1]}
                        : kolo_even_slice(length, size, own);
    return 1;
}

int64_t kolo_placement_count(const kolo_placement *p, int64_t length, int size, int c) {
    kolo_interval ranges[2];
    const int n = ranges_of(p, length / blocks_of(p), size, c, ranges);
    int64_t count = 0;
    for (int i = 0; i < n; i++) count += ranges[i].end - ranges[i].first;
    return blocks_of(p) * count;
}

int64_t kolo_placement_first(const kolo_placement *p, int64_t length, int size, int c) {
    kolo_interval ranges[2];
    (void)ranges_of(p, length / blocks_of(p), size, c, ranges);
    return ranges[0].first;
}

/* ---- comparing, checking ---- */

static bool halo_equal(const kolo_halo *a, const kolo_halo *b, int axis_size) {
    if (a == b) return true;
    if (!a || !b || a->length != b->length || a->places != b->places) return false;
    return memcmp(a->rows, b->rows, (size_t)axis_size * sizeof *a->rows) == 0;
}

bool kolo_placement_equal(const kolo_placement *a, const kolo_placement *b, int axis_size) {
    if (a->kind != b->kind) return false;
    switch (a->kind) {
    case KOLO_PLACEMENT_SHARDED:
        if (a->dim != b->dim || a->depth != b->depth || blocks_of(a) != blocks_of(b) ||
            a->rotation % axis_size != b->rotation % axis_size || a->zigzag != b->zigzag ||
            !a->cuts != !b->cuts || a->summands != b->summands ||
            !halo_equal(a->halo, b->halo, axis_size)) {
            return false;
        }
        return !a->cuts || memcmp(a->cuts, b->cuts, ((size_t)axis_size + 1) * sizeof *a->cuts) == 0;
    case KOLO_PLACEMENT_PARTIAL:
        return a->op == b->op;
    case KOLO_PLACEMENT_AT:
        return a->at == b->at;
    default:
        return true;
    }
}

static kolo_status check_halo(const kolo_mesh_axis *axis, const kolo_placement *p,
                              const kolo_shape *shape) {
    const int64_t length = shape->dim[p->dim];
    bool good = p->halo->length == length && blocks_of(p) == 1 && p->rotation == 0 && !p->cuts;
    for (int c = 0; good && c < axis->size; c++) {
        const kolo_interval *rows = &p->halo->rows[c];
        good = rows->first >= 0 && rows->first <= rows->end && rows->end <= length;
    }
    if (good) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "placement on %s: a halo is one range of the %lld rows for each coordinate, "
                     "without cuts, blocks and rotation",
                     axis->name, (long long)length);
}

static kolo_status check_sharded(const kolo_mesh_axis *axis, const kolo_placement *p,
                                 const kolo_shape *shape) {
    if (p->dim == KOLO_DIM_FLAT) {
        if (blocks_of(p) == 1 && p->rotation == 0 && !p->cuts) return KOLO_OK;
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "placement on %s: a flat shard has neither cuts, blocks nor rotation",
                         axis->name);
    }
    if (p->dim < 0 || p->dim >= shape->rank) {
        return KOLO_FAIL(KOLO_ERR_ARG, "placement on %s: dimension %d of a tensor of %d",
                         axis->name, p->dim, shape->rank);
    }
    if (p->rotation < 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "placement on %s: rotation %d is negative", axis->name,
                         p->rotation);
    }
    if (p->zigzag && (p->cuts || p->halo)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "placement on %s: a zigzag has neither cuts nor a halo",
                         axis->name);
    }
    return p->halo ? check_halo(axis, p, shape) : KOLO_OK;
}

static kolo_status check_axis(const kolo_mesh_axis *axis, const kolo_placement *p,
                              const kolo_shape *shape) {
    switch (p->kind) {
    case KOLO_PLACEMENT_INVARIANT:
    case KOLO_PLACEMENT_REPLICATED:
    case KOLO_PLACEMENT_LOCAL:
        return KOLO_OK;
    case KOLO_PLACEMENT_SHARDED:
        return check_sharded(axis, p, shape);
    case KOLO_PLACEMENT_PARTIAL:
        if (p->op == KOLO_SUM || p->op == KOLO_MIN || p->op == KOLO_MAX) return KOLO_OK;
        return KOLO_FAIL(KOLO_ERR_ARG, "placement on %s: partial values are sums, minima or maxima",
                         axis->name);
    case KOLO_PLACEMENT_AT:
        if (p->at >= 0 && p->at < axis->size) return KOLO_OK;
        return KOLO_FAIL(KOLO_ERR_ARG, "placement on %s: coordinate %d outside [0, %d)", axis->name,
                         p->at, axis->size);
    case KOLO_PLACEMENT_COUNT:
        break;
    }
    return KOLO_FAIL(KOLO_ERR_ARG, "placement on %s: unknown kind %d", axis->name, (int)p->kind);
}

/* The axes that cut `dim`, in the order in which they do. */
static int sharders_of(const kolo_mesh *mesh, const kolo_placements *placements, int dim,
                       int axes[KOLO_MESH_AXES]) {
    int n = 0;
    for (int a = 0; a < mesh->n_axes; a++) {
        const kolo_placement *p = &placements->axis[a];
        if (p->kind != KOLO_PLACEMENT_SHARDED || p->dim != dim) continue;
        int at = n++;
        while (at > 0 && placements->axis[axes[at - 1]].depth > p->depth) {
            axes[at] = axes[at - 1];
            at--;
        }
        axes[at] = a;
    }
    return n;
}

/* Cuts that are given must ascend from 0 to the length of a part, whichever axis cut the dimension
 * before: then that length must be the same on all coordinates. */
static kolo_status check_cuts(const kolo_mesh *mesh, const kolo_placements *placements, int dim,
                              int64_t extent) {
    int axes[KOLO_MESH_AXES];
    int n = sharders_of(mesh, placements, dim, axes);
    bool even = true; /* every coordinate so far has `extent` elements */
    for (int i = 0; i < n; i++) {
        const kolo_mesh_axis *axis = &mesh->axes[axes[i]];
        const kolo_placement *p = &placements->axis[axes[i]];
        int blocks = blocks_of(p);
        if (p->halo && n > 1) {
            return KOLO_FAIL(KOLO_ERR_ARG,
                             "placement on %s: another axis cuts dimension %d, which has a halo",
                             axis->name, dim);
        }
        if (even ? extent % blocks != 0 : blocks > 1) {
            return KOLO_FAIL(KOLO_ERR_ARG, "placement on %s: %lld elements are not %d equal parts",
                             axis->name, (long long)extent, blocks);
        }
        const int64_t part = extent / blocks,
                      first = kolo_placement_count(p, extent, axis->size, 0);
        int64_t longest = first;
        if (p->cuts) {
            bool good = even && p->cuts[0] == 0 && p->cuts[axis->size] == part;
            for (int c = 0; good && c < axis->size; c++) good = p->cuts[c] <= p->cuts[c + 1];
            if (!good) {
                return KOLO_FAIL(
                    KOLO_ERR_ARG,
                    "placement on %s: cuts do not ascend from 0 to %lld, the length of "
                    "dimension %d on every rank",
                    axis->name, (long long)part, dim);
            }
        }
        for (int c = 1; c < axis->size; c++) {
            const int64_t count = kolo_placement_count(p, extent, axis->size, c);
            even = even && count == first;
            longest = kolo_max_i64(longest, count);
        }
        extent = longest;
    }
    return KOLO_OK;
}

kolo_status kolo_placements_check(const kolo_mesh *mesh, const kolo_placements *placements,
                                  const kolo_shape *shape) {
    for (int a = 0; a < mesh->n_axes; a++) {
        KOLO_TRY(check_axis(&mesh->axes[a], &placements->axis[a], shape));
    }
    for (int d = 0; d < shape->rank; d++) {
        KOLO_TRY(check_cuts(mesh, placements, d, shape->dim[d]));
    }
    return KOLO_OK;
}

kolo_status kolo_placements_gradient(const kolo_mesh *mesh, const kolo_placements *placements,
                                     kolo_placements *gradient) {
    kolo_placements g = *placements;
    for (int a = 0; a < mesh->n_axes; a++) {
        kolo_placement *p = &g.axis[a];
        if (p->halo) p->summands = !p->summands;
        if (p->kind == KOLO_PLACEMENT_REPLICATED) {
            *p = (kolo_placement){.kind = KOLO_PLACEMENT_PARTIAL, .op = KOLO_SUM};
        } else if (p->kind == KOLO_PLACEMENT_PARTIAL && p->op == KOLO_SUM) {
            *p = (kolo_placement){.kind = KOLO_PLACEMENT_REPLICATED};
        } else if (p->kind == KOLO_PLACEMENT_PARTIAL) {
            return KOLO_FAIL(KOLO_ERR_ARG,
                             "a tensor that is a %s over %s has no gradient: reduce it first",
                             p->op == KOLO_MAX ? "maximum" : "minimum", mesh->axes[a].name);
        }
    }
    *gradient = g;
    return KOLO_OK;
}

/* ---- text ---- */

/* Text in a buffer of KOLO_PLACEMENT_TEXT, which ends where it is full: ranks compare these texts,
 * which no lack of memory must change. */
typedef struct line {
    char *text;
    size_t length;
} line;

static void add(line *l, const char *format, ...) KOLO_PRINTF(2, 3);
static void add(line *l, const char *format, ...) {
    const size_t room = KOLO_PLACEMENT_TEXT - l->length;
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(l->text + l->length, room, format, args);
    va_end(args);
    if (n > 0) l->length += (size_t)n < room ? (size_t)n : room - 1;
}

static void placement_text(const kolo_placement *p, line *text) {
    add(text, "%s", kind_names[p->kind]);
    if (p->kind == KOLO_PLACEMENT_AT) add(text, "%d", p->at);
    if (p->kind == KOLO_PLACEMENT_PARTIAL && p->op != KOLO_SUM) {
        add(text, "(%s)", p->op == KOLO_MAX ? "max" : "min");
    }
    if (p->kind != KOLO_PLACEMENT_SHARDED) return;
    if (p->dim == KOLO_DIM_FLAT) {
        add(text, "(flat)");
    } else {
        add(text, "%d", p->dim);
    }
    if (blocks_of(p) > 1) add(text, "/%d", blocks_of(p));
    if (p->zigzag) add(text, "~");
    if (p->rotation) add(text, "+%d", p->rotation);
    if (p->halo) {
        add(text, "-%lld+%lld%s", (long long)p->halo->before, (long long)p->halo->after,
            p->summands ? "(sum)" : "");
    }
    if (p->cuts) add(text, "*");
}

const char *kolo_placements_text(const kolo_mesh *mesh, const kolo_placements *placements,
                                 char text[KOLO_PLACEMENT_TEXT]) {
    line t = {.text = text};
    snprintf(text, KOLO_PLACEMENT_TEXT, "invariant");
    for (int a = 0; a < mesh->n_axes; a++) {
        if (placements->axis[a].kind == KOLO_PLACEMENT_INVARIANT) continue;
        add(&t, "%s%s:", t.length ? " " : "", mesh->axes[a].name);
        placement_text(&placements->axis[a], &t);
    }
    return text;
}

/* ---- regions ---- */

/* Replaces the intervals of one dimension by those of this rank's slice: positions [first, end) of
 * each part, counted along the intervals. */
static kolo_status cut_intervals(const kolo_placement *p, int size, int coordinate,
                                 kolo_arena *arena, int *n, kolo_interval **intervals) {
    const int blocks = blocks_of(p);
    int64_t length = 0;
    for (int i = 0; i < *n; i++) length += (*intervals)[i].end - (*intervals)[i].first;
    const int64_t part = length / blocks;
    kolo_interval ranges[2];
    const int n_ranges = ranges_of(p, part, size, coordinate, ranges);
    const size_t most = (size_t)*n + (size_t)blocks * (size_t)n_ranges;
    kolo_interval *cut = kolo_arena_alloc(arena, most * sizeof *cut);
    if (!cut) return KOLO_NOMEM(most * sizeof *cut);
    int made = 0, i = 0;
    int64_t passed = 0; /* elements before interval i */
    for (int r = 0; r < blocks * n_ranges; r++) {
        int64_t first = r / n_ranges * part + ranges[r % n_ranges].first;
        const int64_t end = r / n_ranges * part + ranges[r % n_ranges].end;
        while (first < end) {
            const kolo_interval *in = &(*intervals)[i];
            int64_t here = in->end - in->first;
            if (passed + here <= first) {
                passed += here;
                i++;
                continue;
            }
            int64_t stop = kolo_min_i64(end, passed + here);
            cut[made++] = (kolo_interval){in->first + first - passed, in->first + stop - passed};
            first = stop;
        }
    }
    *n = made;
    *intervals = cut;
    return KOLO_OK;
}

/* The intervals of one dimension, whole at first, after all axes that cut it. */
static kolo_status shard_dim(const kolo_mesh *mesh, const kolo_placements *placements, int rank,
                             int dim, kolo_arena *arena, int *n, kolo_interval **intervals) {
    int axes[KOLO_MESH_AXES];
    int sharders = sharders_of(mesh, placements, dim, axes);
    for (int i = 0; i < sharders; i++) {
        KOLO_TRY(cut_intervals(&placements->axis[axes[i]], mesh->axes[axes[i]].size,
                               kolo_mesh_coordinate(mesh, rank, axes[i]), arena, n, intervals));
    }
    return KOLO_OK;
}

static kolo_status whole_dim(int64_t extent, kolo_arena *arena, int *n, kolo_interval **intervals) {
    *intervals = kolo_arena_alloc(arena, sizeof **intervals);
    if (!*intervals) return KOLO_NOMEM(sizeof **intervals);
    **intervals = (kolo_interval){0, extent};
    *n = extent > 0;
    return KOLO_OK;
}

/* Whether the rank holds nothing because the tensor is on another coordinate. */
static bool elsewhere(const kolo_mesh *mesh, const kolo_placements *placements, int rank) {
    for (int a = 0; a < mesh->n_axes; a++) {
        const kolo_placement *p = &placements->axis[a];
        if (p->kind == KOLO_PLACEMENT_AT && kolo_mesh_coordinate(mesh, rank, a) != p->at)
            return true;
    }
    return false;
}

static void measure(kolo_mesh_region *r) {
    r->shape.rank = r->rank;
    for (int d = 0; d < r->rank; d++) {
        r->shape.dim[d] = 0;
        for (int i = 0; i < r->n[d]; i++) {
            r->shape.dim[d] += r->intervals[d][i].end - r->intervals[d][i].first;
        }
    }
}

kolo_status kolo_mesh_region_of(const kolo_mesh *mesh, const kolo_placements *placements,
                                const kolo_shape *shape, int rank, bool flat, kolo_arena *arena,
                                kolo_mesh_region *region) {
    kolo_mesh_region r = {.rank = shape->rank};
    if (shape->rank == 0) { /* a scalar is as a vector of one element */
        r.rank = 1;
        KOLO_TRY(whole_dim(1, arena, &r.n[0], &r.intervals[0]));
    }
    for (int d = 0; d < shape->rank; d++) {
        KOLO_TRY(whole_dim(shape->dim[d], arena, &r.n[d], &r.intervals[d]));
        KOLO_TRY(shard_dim(mesh, placements, rank, d, arena, &r.n[d], &r.intervals[d]));
    }
    measure(&r);
    if (flat) {
        int64_t count = kolo_mesh_region_count(&r);
        r = (kolo_mesh_region){.rank = 1};
        KOLO_TRY(whole_dim(count, arena, &r.n[0], &r.intervals[0]));
        KOLO_TRY(shard_dim(mesh, placements, rank, KOLO_DIM_FLAT, arena, &r.n[0], &r.intervals[0]));
    }
    if (elsewhere(mesh, placements, rank)) r.n[0] = 0;
    measure(&r);
    *region = r;
    return KOLO_OK;
}

int64_t kolo_mesh_region_count(const kolo_mesh_region *region) {
    return kolo_shape_count(&region->shape);
}

static bool contains_interval(const kolo_mesh_region *outer, int dim, kolo_interval inner) {
    while (inner.first <
           inner.end) { /* neighbours of `outer` may share what one of `inner` spans */
        int64_t reached = inner.first;
        for (int i = 0; i < outer->n[dim]; i++) {
            const kolo_interval *o = &outer->intervals[dim][i];
            if (o->first <= inner.first && inner.first < o->end) reached = o->end;
        }
        if (reached == inner.first) return false;
        inner.first = reached;
    }
    return true;
}

bool kolo_mesh_region_contains(const kolo_mesh_region *outer, const kolo_mesh_region *inner) {
    if (kolo_mesh_region_count(inner) == 0) return true;
    for (int d = 0; d < inner->rank; d++) {
        for (int i = 0; i < inner->n[d]; i++) {
            if (!contains_interval(outer, d, inner->intervals[d][i])) return false;
        }
    }
    return true;
}

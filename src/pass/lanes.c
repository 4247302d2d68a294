/* Lanes: independent nodes run at the same time, each on one thread of the rank.
 *
 * A *region* is a sequence of nodes that fall into several parts without a value from one to
 * another: the branches of an inception block, or the gradients of the weights and of the input of
 * a convolution. Each part runs on one thread, in its *lane*, and all threads meet at the end of
 * the region. Without lanes the nodes run one after another, each on all threads, which costs a
 * barrier for each loop and leaves threads idle where the loops are short or do not divide.
 *
 * Regions are chosen by measured times (kernel/select/tune.h): of a node on all threads, and on one
 * thread while others run such nodes too. Parts are dealt to lanes longest first; a region counts
 * the time of its longest lane. Dynamic programming over the order of the nodes takes the regions
 * with the least time in all. A node whose results on one thread have other bits is in no region.
 * These are predictions: the first runs decide which regions run in lanes (plan/lane_trial.h).
 *
 * What is communicated, updates, and what runs once per step stay outside: a region is of one
 * segment and chunk of a stage. The memory of what a region touches is not reused within it
 * (memory_plan.c). */
#include "pass/lanes.h"

#include "base/integer.h"
#include "kernel/select/cache.h"
#include "kernel/select/tune.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_NODES = 64 /* of a region */ };

/* Seconds of the start and the end of a region, and the least gain that makes one. */
static const double overhead = 10e-6, least_gain = 0.05;

/* A part of a region: nodes that depend on each other. */
typedef struct part {
    int32_t first; /* node */
    double seconds;
    int lane;
} part;

typedef struct scheduler {
    kolo_graph *g;
    const kolo_lanes_opts *opts;
    kolo_arena arena;
    int lanes;
    /* By node: */
    bool *once;             /* it runs once per step */
    bool *may;              /* it may be in a region */
    double *together;       /* seconds on all threads */
    double *apart;          /* and on one, beside others */
    int32_t *part_of;       /* in the region that is tried: a node of its part, towards the first */
    double *best;           /* the least seconds of all nodes before it */
    int32_t *from;          /* where the region begins that ends before it; -1: none ends there */
    part parts[MOST_NODES]; /* of the region that is tried */
    int n_parts;
} scheduler;

/* ---- which nodes may be in a region, and their times ---- */

static bool is_candidate(const scheduler *s, int32_t i) {
    const kolo_graph *g = s->g;
    const kolo_node *n = g->nodes[i];
    if (n->op->comm != KOLO_OP_LOCAL || n->op->custom || n->op->with_updates || s->once[i] ||
        kolo_node_is_update(g, n)) {
        return false;
    }
    for (int k = 0; k < n->n_out; k++) {
        if (kolo_value_ok(kolo_info(g, n->out[k])->next_of)) return false;
    }
    return true;
}

static bool follows(const scheduler *s, int32_t first, int32_t i) {
    const kolo_node *a = s->g->nodes[first], *b = s->g->nodes[i];
    return s->may[i] && i - first < MOST_NODES && a->segment == b->segment && a->chunk == b->chunk;
}

static int32_t root_of(const scheduler *s, int32_t i) {
    while (s->part_of[i] != i) i = s->part_of[i] = s->part_of[s->part_of[i]];
    return i;
}

/* Adds node i, a part by itself, to the region that begins at `first`, and joins it with the parts
 * that it depends on; returns how many these are. */
static int join_parts(const scheduler *s, int32_t first, int32_t i) {
    const kolo_node *n = s->g->nodes[i];
    int joined = 0;
    s->part_of[i] = i;
    for (int k = 0; k < n->n_in; k++) {
        const int32_t producer = kolo_info(s->g, n->in[k])->producer;
        if (producer < first) continue;
        const int32_t a = root_of(s, producer), b = root_of(s, i);
        if (a == b) continue;
        s->part_of[kolo_max_i64(a, b)] = (int32_t)kolo_min_i64(a, b);
        joined++;
    }
    return joined;
}

/* Whether a kernel runs node i on one thread with the same bits, and how fast. */
static bool find_times(scheduler *s, int32_t i) {
    const kolo_lanes_opts *o = s->opts;
    const kolo_kernel *kernel;
    kolo_kernel_spec spec;
    kolo_kernel_spec_init(&spec, s->g, s->g->nodes[i], o->threads);
    if (kolo_kernel_select_cached(o->selections, o->kernels, o->tuner, &spec, &kernel, NULL) !=
        KOLO_OK) {
        return false;
    }
    if (o->which == KOLO_LANES_ALL) {
        kolo_kernel_spec alone = spec;
        alone.threads = 1;
        s->together[i] = s->apart[i] = 1;
        return kernel->fit(&alone) >= 0;
    }
    return kolo_tuner_lanes(o->tuner, kernel, &spec, s->lanes, &s->together[i], &s->apart[i]);
}

/* Measures the nodes of regions that have several parts, and no others. */
static void find_candidates(scheduler *s) {
    const int32_t n = s->g->n_nodes;
    int32_t wanted = 0; /* the end of the nodes that some region would have */
    for (int32_t i = 0; i < n; i++) s->once[i] = kolo_node_is_once_per_step(s->g, i, s->once);
    for (int32_t i = 0; i < n; i++) s->may[i] = is_candidate(s, i);
    bool *measured = kolo_arena_alloc(&s->arena, (size_t)n + 1);
    for (int32_t i = 0; measured && i < n; i++) {
        int parts = 0;
        for (int32_t j = i; j < n && follows(s, i, j); j++) {
            parts += 1 - join_parts(s, i, j);
            if (parts > 1 && j + 1 > wanted) wanted = j + 1;
        }
        measured[i] = i < wanted;
    }
    for (int32_t i = 0; i < n; i++) {
        if (!s->may[i] || s->g->nodes[i]->op->view) continue;
        s->may[i] = measured && measured[i] && find_times(s, i);
    }
}

/* ---- one region ---- */

static int longest_first(const void *a, const void *b) {
    const part *x = a, *y = b;
    if (x->seconds != y->seconds) return x->seconds > y->seconds ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Deals the parts of the nodes [first, end) to lanes; returns the seconds of the longest lane. */
static double deal(scheduler *s, int32_t first, int32_t end) {
    double lanes[KOLO_LANES_MOST] = {0}, longest = 0;
    int of[MOST_NODES]; /* by node of the region: the place of the part that begins with it */
    s->n_parts = 0;
    for (int32_t i = first; i < end; i++) {
        const int32_t root = root_of(s, i);
        if (root == i) {
            of[i - first] = s->n_parts;
            s->parts[s->n_parts++] = (part){.first = i};
        }
        s->parts[of[root - first]].seconds += s->apart[i];
    }
    qsort(s->parts, (size_t)s->n_parts, sizeof *s->parts, longest_first);
    for (int p = 0; p < s->n_parts; p++) {
        int lane = 0;
        for (int l = 1; l < s->lanes; l++) {
            if (lanes[l] < lanes[lane]) lane = l;
        }
        s->parts[p].lane = lane;
        lanes[lane] += s->parts[p].seconds;
        if (lanes[lane] > longest) longest = lanes[lane];
    }
    return longest;
}

/* The regions of the least time in all: best[i] is that of the nodes before node i. */
static void choose(scheduler *s) {
    const int32_t n = s->g->n_nodes;
    const double start = s->opts->which == KOLO_LANES_ALL ? 0 : overhead;
    for (int32_t i = 0; i <= n; i++) s->from[i] = -1;
    for (int32_t i = 1; i <= n; i++) s->best[i] = -1;
    s->best[0] = 0;
    for (int32_t i = 0; i < n; i++) {
        double together = s->together[i];
        if (s->best[i + 1] < 0 || s->best[i] + together <= s->best[i + 1]) {
            s->best[i + 1] = s->best[i] + together;
            s->from[i + 1] = -1;
        }
        if (s->g->nodes[i]->op->view || !follows(s, i, i)) continue;
        (void)join_parts(s, i, i);
        for (int32_t j = i + 1; j < n && follows(s, i, j); j++) {
            (void)join_parts(s, i, j);
            together += s->together[j];
            if (s->g->nodes[j]->op->view) continue;
            const double seconds = deal(s, i, j + 1) + start;
            if (seconds > (1 - least_gain) * together) continue;
            if (s->best[j + 1] >= 0 && s->best[i] + seconds >= s->best[j + 1]) continue;
            s->best[j + 1] = s->best[i] + seconds;
            s->from[j + 1] = i;
        }
    }
}

/* Gives the nodes of the chosen regions their numbers and lanes. */
static void mark(scheduler *s) {
    int region = 0;
    for (int32_t end = s->g->n_nodes; end > 0;) {
        const int32_t first = s->from[end];
        if (first < 0) {
            end--;
            continue;
        }
        region++;
        for (int32_t i = first; i < end; i++) (void)join_parts(s, first, i);
        (void)deal(s, first, end);
        for (int32_t i = first; i < end; i++) {
            const int32_t root = root_of(s, i);
            for (int p = 0; p < s->n_parts; p++) {
                if (s->parts[p].first == root) s->g->nodes[i]->lane = s->parts[p].lane;
            }
            s->g->nodes[i]->region = region;
        }
        end = first;
    }
    for (int32_t i = 0; i < s->g->n_nodes; i++) { /* in the order of the nodes */
        kolo_node *n = s->g->nodes[i];
        if (n->region > 0) n->region = region + 1 - n->region;
    }
}

kolo_status kolo_pass_lanes(kolo_graph *g, const kolo_lanes_opts *opts) {
    const size_t n = (size_t)g->n_nodes + 1;
    scheduler s = {.g = g, .opts = opts};
    s.lanes = (int)kolo_min_i64(opts->threads, KOLO_LANES_MOST);
    s.once = kolo_arena_alloc(&s.arena, n * sizeof *s.once);
    s.may = kolo_arena_alloc(&s.arena, n * sizeof *s.may);
    s.together = kolo_arena_alloc(&s.arena, n * sizeof *s.together);
    s.apart = kolo_arena_alloc(&s.arena, n * sizeof *s.apart);
    s.part_of = kolo_arena_alloc(&s.arena, n * sizeof *s.part_of);
    s.best = kolo_arena_alloc(&s.arena, n * sizeof *s.best);
    s.from = kolo_arena_alloc(&s.arena, n * sizeof *s.from);
    const bool has_memory =
        s.once && s.may && s.together && s.apart && s.part_of && s.best && s.from;
    if (has_memory) {
        find_candidates(&s);
        choose(&s);
        mark(&s);
    }
    kolo_arena_fini(&s.arena);
    return has_memory ? KOLO_OK : KOLO_NOMEM(n * sizeof *s.best);
}

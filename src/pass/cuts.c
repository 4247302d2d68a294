/* Where to cut a model into parts, see cuts.h: times of nodes, or of units, and the choice. */
#include "pass/cuts.h"

#include "graph/ops/ops.h"

#include <string.h>

/* For the comparison of nodes: operations and bytes per nanosecond, in memory and between stages.
 */
static const double flops_per_ns = 20, bytes_per_ns = 8, sent_per_ns = 2;

typedef struct cutter {
    const kolo_graph *g;
    const kolo_cut_opts *opts;
    int n_parts;
    const char **begins; /* by node: the unit that begins there, or NULL */
    double *time;        /* by node: nanoseconds of all nodes before it; */
    double *kept;        /* bytes that they keep of a micro-batch, */
    double *state;       /* and of their parameters */
    double *sent;        /* by node: nanoseconds of what would cross a cut before it */
    kolo_arena arena;
} cutter;

/* ---- units ---- */

/* The node whose parameters node i leads to: batch normalization by rows of several ranks sums
 * before it reads them, and belongs to one part. */
static const kolo_node *reader_of(const kolo_graph *g, int32_t i) {
    int32_t reader = i;
    while (g->nodes[i]->op == &kolo_op_sync_norm_sums && reader + 1 < g->n_nodes &&
           g->nodes[reader]->op != &kolo_op_sync_norm) {
        reader++;
    }
    return g->nodes[reader];
}

kolo_status kolo_find_units(const kolo_graph *g, const char **begins) {
    bool *seen = kolo_zalloc((size_t)g->n_values + 1);
    if (!seen) return KOLO_NOMEM(g->n_values);
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *reader = reader_of(g, i);
        begins[i] = NULL;
        for (int k = 0; k < reader->n_in; k++) {
            const kolo_value v = reader->in[k];
            if (kolo_info(g, v)->kind != KOLO_VALUE_PARAM || seen[v.id]) continue;
            if (!begins[i]) begins[i] = kolo_info(g, v)->name;
            seen[v.id] = true;
        }
    }
    kolo_free(seen);
    return KOLO_OK;
}

kolo_status kolo_pass_units(kolo_graph *g) {
    const size_t bytes = ((size_t)g->n_nodes + 1) * sizeof(char *);
    const char **begins = kolo_arena_alloc(&g->arena, bytes);
    g->units = kolo_arena_alloc(&g->arena, bytes);
    if (!begins || !g->units) return KOLO_NOMEM(bytes);
    KOLO_TRY(kolo_find_units(g, begins));
    g->n_units = 1; /* the nodes before the first parameter is read */
    for (int32_t i = 0; i < g->n_nodes; i++) {
        if (begins[i]) g->units[g->n_units++] = begins[i];
        g->nodes[i]->unit = g->n_units;
        for (int k = 0; k < g->nodes[i]->n_in; k++) {
            kolo_value_info *in = kolo_info(g, g->nodes[i]->in[k]);
            const bool leaf = in->kind == KOLO_VALUE_PARAM || in->kind == KOLO_VALUE_STATE;
            if (leaf && in->of_unit == 0) in->of_unit = g->n_units;
        }
    }
    return KOLO_OK;
}

/* ---- times ---- */

static void estimate(cutter *c) {
    const kolo_graph *g = c->g;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const kolo_node *n = g->nodes[i];
        const kolo_cost cost = kolo_node_cost(g, n);
        const double flops = cost.flops / flops_per_ns, bytes = cost.bytes / bytes_per_ns;
        c->time[i + 1] = c->time[i] + (n->op->view ? 0 : flops > bytes ? flops : bytes);
    }
}

/* A unit costs what it does at its first node. */
static kolo_status take_costs(cutter *c) {
    const kolo_unit_costs *costs = c->opts->costs;
    int at = 0;
    for (int32_t i = 0; i < c->g->n_nodes; i++) {
        const bool begins = c->begins[i] != NULL;
        at += begins;
        if (at == costs->n || (begins && strcmp(c->begins[i], costs->units[at].name) != 0)) {
            return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                             "the costs of layers are of another model: it has no %s there",
                             c->begins[i]);
        }
        const kolo_unit *unit = &costs->units[at];
        const bool first = begins || i == 0;
        c->time[i + 1] = c->time[i] + (first ? unit->seconds * 1e9 : 0);
        c->kept[i + 1] = c->kept[i] + (first ? unit->kept : 0);
        c->state[i + 1] = c->state[i] + (first ? unit->state : 0);
    }
    return KOLO_OK;
}

/* What crosses a cut: values that are made before a node and read from it on. With costs, which are
 * of both passes, gradients too. */
static kolo_status find_sent(cutter *c) {
    const kolo_graph *g = c->g;
    const double passes = c->opts->costs ? 2 : 1;
    int32_t *last = kolo_arena_alloc(&c->arena, ((size_t)g->n_values + 1) * sizeof *last);
    if (!last) return KOLO_NOMEM((size_t)g->n_values * sizeof *last);
    for (int32_t v = 0; v < g->n_values; v++) last[v] = -1;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        for (int k = 0; k < g->nodes[i]->n_in; k++) last[g->nodes[i]->in[k].id] = i;
    }
    for (int32_t v = 0; v < g->n_values; v++) {
        if (g->values[v].kind != KOLO_VALUE_TEMP) continue;
        const double bytes = (double)kolo_tensor_bytes(&g->values[v].tensor);
        for (int32_t i = g->values[v].producer + 1; i <= last[v]; i++) {
            c->sent[i] += passes * bytes / sent_per_ns;
        }
    }
    return KOLO_OK;
}

kolo_status kolo_parts_check(const kolo_parts *parts) {
    const int n = parts->stages * parts->chunks;
    if (n <= KOLO_PARTS_MOST) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "a pipeline has at most %d parts, and pp times the chunks of a stage are %d",
                     KOLO_PARTS_MOST, n);
}

static kolo_status prepare(cutter *c) {
    const size_t n = (size_t)c->g->n_nodes + 2;
    KOLO_TRY(kolo_parts_check(&c->opts->parts));
    c->begins = kolo_arena_alloc(&c->arena, n * sizeof *c->begins);
    c->time = kolo_arena_alloc(&c->arena, n * sizeof *c->time);
    c->kept = kolo_arena_alloc(&c->arena, n * sizeof *c->kept);
    c->state = kolo_arena_alloc(&c->arena, n * sizeof *c->state);
    c->sent = kolo_arena_alloc(&c->arena, n * sizeof *c->sent);
    if (!c->begins || !c->time || !c->kept || !c->state || !c->sent) {
        return KOLO_NOMEM(n * sizeof *c->time);
    }
    KOLO_TRY(kolo_find_units(c->g, c->begins));
    if (c->opts->costs) {
        KOLO_TRY(take_costs(c));
    } else {
        estimate(c);
    }
    return find_sent(c);
}

/* ---- the choice ---- */

/* Nanoseconds that part k takes with the nodes [first, end), and its bytes. */
static double computing(const cutter *c, int k, int32_t first, int32_t end) {
    int chunk;
    const int stage = kolo_parts_stage(&c->opts->parts, k, &chunk);
    const double speed = c->opts->speeds ? c->opts->speeds[stage] : 1;
    return (c->time[end] - c->time[first]) / speed;
}
static double part_time(const cutter *c, int k, int32_t first, int32_t end) {
    return computing(c, k, first, end) + c->sent[first] + c->sent[end];
}
static double part_bytes(const cutter *c, int k, int32_t first, int32_t end) {
    const int slots = c->opts->slots ? c->opts->slots[k] : 1;
    return c->state[end] - c->state[first] + slots * (c->kept[end] - c->kept[first]);
}

/* Each chunk of a stage has an equal part of its memory. */
static double most_bytes(const cutter *c) {
    const double most = c->opts->most_bytes / c->opts->parts.chunks;
    return c->opts->costs && most > 0 ? most : 0;
}

/* The cuts: starts[k] is the first node of part k. best[k][i]: the slowest of the parts 0 to k if
 * these are the nodes before i; negative: there are no such parts within `most` bytes, if that is
 * not 0. *found: whether there are. */
static kolo_status search(cutter *c, double most, int32_t *starts, bool *found) {
    const size_t n = (size_t)c->g->n_nodes + 1, parts = (size_t)c->n_parts;
    double *best = kolo_arena_alloc(&c->arena, parts * n * sizeof *best);
    int32_t *from = kolo_arena_alloc(&c->arena, parts * n * sizeof *from);
    if (!best || !from) return KOLO_NOMEM(parts * n * sizeof *best);
    for (size_t k = 0; k < parts; k++) {
        for (size_t i = 0; i < n; i++) {
            best[k * n + i] = -1;
            for (size_t j = k == 0 ? 0 : 1; j < (k == 0 ? 1 : i); j++) {
                const double before = k == 0 ? 0 : best[(k - 1) * n + j];
                if ((k > 0 && !c->begins[j]) || before < 0) continue;
                const int32_t first = (int32_t)j, end = (int32_t)i;
                if (most > 0 && part_bytes(c, (int)k, first, end) > most) continue;
                const double own = part_time(c, (int)k, first, end);
                const double slowest = own > before ? own : before;
                if (best[k * n + i] >= 0 && slowest >= best[k * n + i]) continue;
                best[k * n + i] = slowest;
                from[k * n + i] = first;
            }
        }
    }
    *found = best[parts * n - 1] >= 0;
    if (!*found) return KOLO_OK;
    starts[0] = 0;
    for (int32_t k = c->n_parts - 1, end = c->g->n_nodes; k > 0; k--) {
        end = starts[k] = from[(size_t)k * n + (size_t)end];
    }
    return KOLO_OK;
}

static kolo_status choose(cutter *c, int32_t *starts) {
    const double most = most_bytes(c);
    bool found;
    KOLO_TRY(search(c, most, starts, &found));
    if (found) return KOLO_OK;
    if (most > 0) KOLO_TRY(search(c, 0, starts, &found));
    if (found) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "no cut of the model into %d parts keeps every stage within %.1f MiB, by "
                         "the bytes of its parameters, their state and the values that it keeps: "
                         "give --stage-memory more, more stages, a smaller batch or --recompute",
                         c->n_parts, c->opts->most_bytes / (1 << 20));
    }
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "the model has too few layers with parameters for %d parts of a "
                     "pipeline: choose a smaller pp, or fewer chunks",
                     c->n_parts);
}

static kolo_status decide(cutter *c, kolo_stage_cuts *cuts, kolo_arena *names) {
    int32_t starts[KOLO_PARTS_MOST] = {0};
    const size_t bytes = (size_t)c->n_parts * sizeof *cuts->names;
    KOLO_TRY(choose(c, starts));
    const char **list = kolo_arena_alloc(names, bytes);
    if (!list) return KOLO_NOMEM(bytes);
    for (int k = 1; k < c->n_parts; k++) {
        list[k - 1] = kolo_arena_strdup(names, c->begins[starts[k]]);
        if (!list[k - 1]) return KOLO_NOMEM(64);
    }
    *cuts = (kolo_stage_cuts){c->n_parts - 1, list};
    return KOLO_OK;
}

void kolo_stage_speeds(const kolo_mesh *mesh, const double *by_rank, double *speeds) {
    const int axis = kolo_mesh_find(mesh, "pp");
    for (int stage = 0; stage < mesh->axes[axis].size; stage++) speeds[stage] = 0;
    for (int r = 0; r < kolo_mesh_size(mesh); r++) {
        double *speed = &speeds[kolo_mesh_coordinate(mesh, r, axis)];
        if (*speed == 0 || by_rank[r] < *speed) *speed = by_rank[r];
    }
}

static cutter cutter_of(const kolo_graph *g, const kolo_cut_opts *opts) {
    return (cutter){.g = g, .opts = opts, .n_parts = opts->parts.stages * opts->parts.chunks};
}

kolo_status kolo_pass_cuts(const kolo_graph *g, const kolo_cut_opts *opts, kolo_stage_cuts *cuts,
                           kolo_arena *names) {
    cutter c = cutter_of(g, opts);
    if (cuts->n > 0) return KOLO_OK;
    kolo_status status = prepare(&c);
    if (status == KOLO_OK) status = decide(&c, cuts, names);
    kolo_arena_fini(&c.arena);
    return status;
}

/* ---- what cuts cost ---- */

static void add_seconds(const cutter *c, const kolo_stage_cuts *cuts, double *seconds) {
    int part = 0, chunk;
    int32_t first = 0;
    for (int32_t i = 0; i <= c->g->n_nodes; i++) {
        const bool ends = i == c->g->n_nodes || (part < cuts->n && c->begins[i] &&
                                                 strcmp(c->begins[i], cuts->names[part]) == 0);
        if (!ends) continue;
        seconds[kolo_parts_stage(&c->opts->parts, part, &chunk)] +=
            1e-9 * computing(c, part, first, i);
        first = i;
        part++;
    }
}

kolo_status kolo_cuts_seconds(const kolo_graph *g, const kolo_cut_opts *opts,
                              const kolo_stage_cuts *cuts, double *seconds) {
    cutter c = cutter_of(g, opts);
    for (int s = 0; s < opts->parts.stages; s++) seconds[s] = 0;
    kolo_status status = prepare(&c);
    if (status == KOLO_OK) add_seconds(&c, cuts, seconds);
    kolo_arena_fini(&c.arena);
    return status;
}

/* The slowest stage, in milliseconds. */
static kolo_status find_slowest(const kolo_graph *g, const kolo_cut_opts *costs,
                                const kolo_cut_opts *chosen_by, double *ms) {
    double seconds[KOLO_PARTS_MOST] = {0};
    kolo_stage_cuts cuts = {0};
    kolo_arena names = {0};
    kolo_status status = kolo_pass_cuts(g, chosen_by, &cuts, &names);
    if (status == KOLO_OK) status = kolo_cuts_seconds(g, costs, &cuts, seconds);
    kolo_arena_fini(&names);
    *ms = 0;
    for (int s = 0; status == KOLO_OK && s < costs->parts.stages; s++) {
        if (1e3 * seconds[s] > *ms) *ms = 1e3 * seconds[s];
    }
    return status;
}

static void print_parts(const cutter *c, const int32_t *starts, kolo_text *text) {
    const double ns = c->time[c->g->n_nodes], passes = c->opts->costs ? 2 : 1;
    for (int k = 0; k < c->n_parts; k++) {
        const int32_t first = starts[k], end = k + 1 < c->n_parts ? starts[k + 1] : c->g->n_nodes;
        const char *name = first > 0 ? c->begins[first] : "the inputs";
        kolo_text_add(text, "part %d: from %s, %d nodes, %.1f %% of the time", k, name,
                      (int)(end - first), 100 * (c->time[end] - c->time[first]) / ns);
        if (c->opts->costs) {
            kolo_text_add(text, ", %.3f ms, %.1f MiB", 1e-6 * computing(c, k, first, end),
                          part_bytes(c, k, first, end) / (1 << 20));
        }
        if (k + 1 < c->n_parts) {
            kolo_text_add(text, ", sends %.0f bytes for each micro-batch",
                          c->sent[end] * sent_per_ns / passes);
        }
        kolo_text_add(text, "\n");
    }
}

kolo_status kolo_cuts_print(const kolo_graph *g, const kolo_cut_opts *opts, kolo_text *text) {
    cutter c = cutter_of(g, opts);
    int32_t starts[KOLO_PARTS_MOST + 1] = {0};
    kolo_status status = prepare(&c);
    if (status == KOLO_OK) status = choose(&c, starts);
    if (status == KOLO_OK) print_parts(&c, starts, text);
    kolo_arena_fini(&c.arena);
    if (status != KOLO_OK || !opts->costs) return status;
    const kolo_cut_opts estimated = {.parts = opts->parts};
    double slowest, without;
    KOLO_TRY(find_slowest(g, opts, opts, &slowest));
    KOLO_TRY(find_slowest(g, opts, &estimated, &without));
    kolo_text_add(text,
                  "slowest stage: %.3f ms, with the cuts by estimates %.3f ms; %.0f %% of the time "
                  "is measured\n",
                  slowest, without, 100 * opts->costs->measured);
    return KOLO_OK;
}

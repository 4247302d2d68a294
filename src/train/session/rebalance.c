/* Other cuts of a pipeline between two steps: by the measured times of the stages layers move to
 * other stages, with their parameters and optimizer state. */
#include "base/rng.h"
#include "train/session/agree.h"
#include "train/session/internal.h"
#include "train/session/stage_cuts.h"

/* Steps after plans were compiled that are not measured, how often windows double at most, and the
 * gain that other cuts must have. */
enum { WARM_UP = 2, DOUBLED = 16 };
static const double least_gain = 1.05;

/* Nanoseconds that this rank computed in the latest step, without waits for others. */
static int64_t computed_ns(const kolo_session *s) {
    const int64_t *ns = s->times.phase_ns;
    return ns[KOLO_PHASE_FORWARD] + ns[KOLO_PHASE_BACKWARD] + ns[KOLO_PHASE_UPDATE];
}

/* Rank 0: the speeds of the stages, by the time that the cuts let them expect and by what they
 * took; ns: by rank. */
static kolo_status measure_speeds(const kolo_session *s, const kolo_cut_choice *c,
                                  const int64_t *ns, double *speeds) {
    const kolo_mesh *mesh = &s->opts.plan.mesh;
    const int axis = kolo_mesh_find(mesh, "pp"), stages = kolo_session_stages(s);
    double expected[KOLO_PARTS_MOST], took[KOLO_PARTS_MOST] = {0}, fastest = 0;
    const kolo_cut_opts alike = {.parts = c->opts.parts, .costs = c->opts.costs};
    KOLO_TRY(kolo_cuts_seconds(c->graph, &alike, kolo_store_cuts(s->store), expected));
    for (int r = 0; r < ranks_of(s); r++) {
        double *of = &took[kolo_mesh_coordinate(mesh, r, axis)];
        if ((double)ns[r] > *of) *of = (double)ns[r];
    }
    for (int i = 0; i < stages; i++) {
        speeds[i] = expected[i] > 0 && took[i] > 0 ? expected[i] / took[i] : 0;
        if (speeds[i] > fastest) fastest = speeds[i];
    }
    for (int i = 0; i < stages; i++) speeds[i] = speeds[i] > 0 ? speeds[i] / fastest : 1;
    return KOLO_OK;
}

static double slowest_of(const double *seconds, int n) {
    double slowest = 0;
    for (int i = 0; i < n; i++) slowest = seconds[i] > slowest ? seconds[i] : slowest;
    return slowest;
}

/* Rank 0: other cuts, a line each, and their predicted gain; no text: there are no better ones. */
static kolo_status find_better(const kolo_session *s, kolo_cut_choice *c, const int64_t *ns,
                               kolo_text *lines, double *gain) {
    const int stages = kolo_session_stages(s);
    double before[KOLO_PARTS_MOST], after[KOLO_PARTS_MOST];
    kolo_stage_cuts cuts = {0};
    kolo_arena names = {0};
    if (s->opts.stage_speeds) {
        for (int i = 0; i < stages; i++) c->speeds[i] = s->opts.stage_speeds[i];
    } else {
        KOLO_TRY(measure_speeds(s, c, ns, c->speeds));
    }
    c->opts.speeds = c->speeds;
    kolo_status status = kolo_pass_cuts(c->graph, &c->opts, &cuts, &names);
    if (status == KOLO_OK) {
        status = kolo_cuts_seconds(c->graph, &c->opts, kolo_store_cuts(s->store), before);
    }
    if (status == KOLO_OK) status = kolo_cuts_seconds(c->graph, &c->opts, &cuts, after);
    if (status == KOLO_OK) {
        *gain = slowest_of(before, stages) / slowest_of(after, stages);
        for (int i = 0; *gain >= least_gain && i < cuts.n; i++) {
            kolo_text_add(lines, "%s\n", cuts.names[i]);
        }
    }
    kolo_arena_fini(&names);
    return status;
}

/* Moves the layers to the stages of other cuts. */
static kolo_status move(kolo_session *s, const char *lines) {
    kolo_store *old = NULL;
    KOLO_TRY(kolo_barrier(s->comm)); /* all have done with the messages of the old plans */
    kolo_session_destroy_plans(s);
    kolo_status status = kolo_store_detach(s->store, &old);
    if (status == KOLO_OK) status = kolo_store_set_cuts(s->store, lines);
    status = kolo_agree(s->comm, status);
    if (status == KOLO_OK) status = kolo_session_replan(s);
    if (status == KOLO_OK) {
        status = kolo_store_take_over(s->store, old, kolo_plan_level(&s->opts.plan) > 0);
    }
    kolo_store_destroy(old);
    return status;
}

static uint64_t hash_cuts(const kolo_stage_cuts *cuts) {
    uint64_t hash = 1;
    for (int i = 0; i < cuts->n; i++) hash = 31 * hash + kolo_hash_text(cuts->names[i]);
    return hash;
}

/* All ranks count alike, so that they end the next window at the same step. */
static void count_move(kolo_session *s, uint64_t before, double gain) {
    kolo_stage_window *w = &s->window;
    const bool back = w->moves > 0 && hash_cuts(kolo_store_cuts(s->store)) == w->left;
    if (back && w->returns < DOUBLED) w->returns++;
    w->moves++;
    w->left = before;
    w->gain = gain;
}

kolo_status kolo_session_rebalance(kolo_session *s, bool *moved) {
    kolo_stage_window *w = &s->window;
    const size_t bytes = (size_t)ranks_of(s) * sizeof(int64_t);
    const uint64_t before = hash_cuts(kolo_store_cuts(s->store));
    int64_t *ns = kolo_alloc(bytes);
    kolo_text lines = {0};
    double gain = 0;
    kolo_status status = kolo_agree(s->comm, ns ? KOLO_OK : KOLO_NOMEM(bytes));
    if (status == KOLO_OK) status = kolo_allgather(s->comm, &w->ns, ns, 1, KOLO_DTYPE_I64);
    if (status == KOLO_OK) {
        kolo_status found = KOLO_OK;
        if (rank_of(s) == 0 && ns) {
            kolo_cut_choice c;
            found = kolo_session_open_choice(s, s->opts.global_batch, &c);
            if (found == KOLO_OK) found = find_better(s, &c, ns, &lines, &gain);
            kolo_cut_choice_fini(&c);
        }
        status = kolo_share_text(s->comm, found, &lines);
    }
    *moved = status == KOLO_OK && lines.length > 0;
    if (*moved) status = move(s, lines.text);
    if (status == KOLO_OK && *moved) count_move(s, before, gain);
    w->steps = w->ns = 0;
    kolo_text_fini(&lines);
    kolo_free(ns);
    return status;
}

void kolo_session_count_window(kolo_session *s) {
    kolo_stage_window *w = &s->window;
    if (s->opts.rebalance == 0 || kolo_session_stages(s) <= 1) return;
    if (++w->steps > WARM_UP) w->ns += computed_ns(s);
}

bool kolo_session_has_measured_stages(const kolo_session *s) {
    const int64_t window = s->opts.rebalance << s->window.returns;
    return s->opts.rebalance > 0 && s->window.steps >= window + WARM_UP;
}

int kolo_session_stage_moves(const kolo_session *s) { return s->window.moves; }

void kolo_session_describe_stages(const kolo_session *s, bool gain, kolo_text *text) {
    const kolo_stage_cuts *cuts = kolo_store_cuts(s->store);
    for (int i = 0; i < cuts->n; i++) kolo_text_add(text, "%s%s", i ? ", " : "", cuts->names[i]);
    if (gain) kolo_text_add(text, " (the slowest one: %.2f times as fast)", s->window.gain);
}

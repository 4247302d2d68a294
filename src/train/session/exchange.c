/* What the ranks exchange, where it is not the same in all steps: with "auto" once it is chosen by
 * measured steps, with rounds and 1-bit Adam after their warm-up. Steps begin what is due; a file
 * that is loaded may be from before or after. */
#include "train/session/exchange.h"

#include "train/session/agree.h"
#include "train/session/buckets.h"
#include "train/session/internal.h"

int64_t kolo_exchange_warm_up(const kolo_session_config *config, int ranks) {
    if (config->consistency.warm_up > 0) return config->consistency.warm_up;
    return ranks > 1 ? config->plan.compression.frozen : 0;
}

static int64_t warm_up_of(const kolo_session *s) {
    return kolo_exchange_warm_up(&s->opts, ranks_of(s));
}

bool kolo_session_exchange_changes(const kolo_session *s) {
    const bool measures = ranks_of(s) > 1 && s->opts.measure_compression;
    return (measures || warm_up_of(s) > 0) && !s->opts.evaluate_only;
}

bool kolo_session_warms_up(const kolo_session *s) { return s->opts.warms_up; }

/* A file after the last step of the warm-up is one of the warm-up. */
static bool warms_up_at(const kolo_session *s, int64_t steps) { return steps <= warm_up_of(s); }

/* ---- another exchange ---- */

/* Takes `chosen`, which is freed later; NULL: gradients are measured, from the next step on. */
static void set(kolo_session *s, bool warms_up, char *chosen) {
    kolo_bucket_search *b = &s->buckets;
    if (!s->opts.measure_compression) {
        s->opts.warms_up = warms_up;
        return;
    }
    kolo_free(b->gradients);
    kolo_free(b->compressed);
    *b = (kolo_bucket_search){.measures = !chosen, .compressed = chosen};
    s->opts.plan.compression.only = chosen ? chosen : "";
}

/* Compiles the plans of another exchange. *before: the entries of the store so far, of which those
 * that the plans have keep their values. */
static kolo_status replan(kolo_session *s, bool warms_up, char *chosen, kolo_store **before) {
    kolo_text cuts = {0};
    const kolo_stage_cuts *are = kolo_store_cuts(s->store);
    for (int i = 0; i < are->n; i++) kolo_text_add(&cuts, "%s\n", are->names[i]);
    kolo_status status = cuts.failed ? KOLO_NOMEM(cuts.length) : KOLO_OK;
    kolo_session_destroy_plans(s);
    kolo_rounds_destroy(s->rounds);
    s->rounds = NULL;
    set(s, warms_up, chosen);
    if (status == KOLO_OK) status = kolo_store_detach(s->store, before);
    if (status == KOLO_OK && cuts.text) status = kolo_store_set_cuts(s->store, cuts.text);
    kolo_text_fini(&cuts);
    KOLO_TRY(kolo_agree(s->comm, status));
    KOLO_TRY(kolo_session_replan(s));
    return kolo_store_take_over(s->store, *before, kolo_plan_level(&s->opts.plan) > 0);
}

kolo_status kolo_session_end_warm_up(kolo_session *s) {
    kolo_store *before = NULL;
    KOLO_TRY(kolo_session_consolidate(s)); /* with the plans that left updates */
    const kolo_status status = replan(s, false, NULL, &before);
    kolo_store_destroy(before);
    return status;
}

kolo_status kolo_session_begin_exchange(kolo_session *s) {
    if (kolo_session_has_measured_buckets(s)) return kolo_session_choose_buckets(s);
    if (s->opts.warms_up && (int64_t)s->steps >= warm_up_of(s)) return kolo_session_end_warm_up(s);
    return KOLO_OK;
}

/* ---- that of a file ---- */

/* Of a session after `steps` steps: what it compresses. */
static bool is_at(const kolo_session *s, int64_t steps, const char *chosen) {
    const char *has = s->buckets.compressed;
    if (!s->opts.measure_compression) return s->opts.warms_up == warms_up_at(s, steps);
    return chosen && has ? strcmp(chosen, has) == 0 : !chosen && !has;
}

kolo_status kolo_session_enter_exchange(kolo_session *s, int64_t steps, const char *compressed,
                                        kolo_exchange_before *before) {
    const char *has = s->buckets.compressed;
    *before = (kolo_exchange_before){0};
    if (!kolo_session_exchange_changes(s) || is_at(s, steps, compressed)) return KOLO_OK;
    char *chosen = compressed ? kolo_strdup(compressed) : NULL;
    *before = (kolo_exchange_before){.steps = (int64_t)s->steps,
                                     .compressed = has ? kolo_strdup(has) : NULL};
    const bool copied = (chosen || !compressed) && (before->compressed || !has);
    const kolo_status status = kolo_agree(s->comm, copied ? KOLO_OK : KOLO_NOMEM(64));
    if (status != KOLO_OK) {
        kolo_free(chosen);
        return status;
    }
    before->entered = true;
    return replan(s, warms_up_at(s, steps), chosen, &before->store);
}

kolo_status kolo_session_leave_exchange(kolo_session *s, kolo_exchange_before *before,
                                        kolo_status status) {
    kolo_store *unused = NULL;
    if (status == KOLO_OK || !before->entered) {
        kolo_free(before->compressed);
        kolo_store_destroy(before->store);
        return status;
    }
    char *error = kolo_strdup(kolo_last_error());
    kolo_status back = kolo_agree(s->comm, before->store ? KOLO_OK : KOLO_NOMEM(sizeof *s));
    if (back == KOLO_OK) {
        back = replan(s, warms_up_at(s, before->steps), before->compressed, &unused);
    } else {
        kolo_free(before->compressed);
    }
    if (back == KOLO_OK) {
        back = kolo_store_take_over(s->store, before->store, kolo_plan_level(&s->opts.plan) > 0);
    }
    kolo_store_destroy(unused);
    kolo_store_destroy(before->store);
    if (back == KOLO_OK) {
        back = kolo_error_set(status, "%s", error ? error : "out of memory");
    }
    kolo_free(error);
    return back;
}

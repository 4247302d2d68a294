/* What a worker changes at all owners other than by pushes: values and state, or settings. */
#include "base/status.h"
#include "comm/sync/parameters_internal.h"

static kolo_status check(const kolo_parameters *p) {
    const kolo_parameters_opts *o = &p->opts;
    KOLO_TRY(kolo_parameters_check_worker(p));
    if (o->replicas > 0 || o->record || o->replay) {
        return KOLO_FAIL(KOLO_ERR_ARG, "new values or settings of the owners cannot be combined "
                                       "with replicas, a record or a replay");
    }
    if (!p->pushing && !p->finished) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, p->finished ? "new values or settings after the end"
                                               : "new values or settings after a push: pull first");
}

/* The input of a request to the owner of part i. */
typedef struct sent {
    uint32_t kind;
    const float *initial; /* of all parts; NULL: the settings */
    const void *settings;
    size_t bytes;
} sent;

static kolo_status start(kolo_parameters *p, int i, const sent *s) {
    const kolo_owned *has = &p->owned[i];
    kolo_service_request *q = &p->pulls[i];
    *q = kolo_parameters_request(p, i, s->kind);
    q->input = s->settings;
    q->input_bytes = s->bytes;
    if (s->initial) {
        q->input = s->initial + has->values.first + has->state.first;
        q->input_bytes = (has->values.count + has->state.count) * sizeof *s->initial;
    }
    return kolo_parameters_start(p, i, q);
}

static kolo_status send_to_all(kolo_parameters *p, const sent *s) {
    KOLO_TRY(check(p));
    for (int i = 0; i < p->n_parts; i++) {
        const kolo_status status = start(p, i, s);
        if (status != KOLO_OK) return kolo_parameters_fail_after(p, p->pulls, i, status);
    }
    return kolo_parameters_wait_for(p, p->pulls, 0, p->n_parts);
}

kolo_status kolo_parameters_assign(kolo_parameters *p, const float *initial) {
    const sent s = {.kind = KOLO_OWNER_ASSIGN, .initial = initial};
    if (!initial) return KOLO_FAIL(KOLO_ERR_ARG, "no values for the owners");
    return send_to_all(p, &s);
}

kolo_status kolo_parameters_configure(kolo_parameters *p, const void *settings, size_t bytes) {
    const sent s = {.kind = KOLO_OWNER_CONFIGURE, .settings = settings, .bytes = bytes};
    if (!settings || bytes == 0 || bytes > KOLO_SETTINGS_MOST) {
        return KOLO_FAIL(KOLO_ERR_ARG, "settings of %zu bytes: give 1 to %d", bytes,
                         (int)KOLO_SETTINGS_MOST);
    }
    return send_to_all(p, &s);
}

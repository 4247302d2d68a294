/* What a worker changes at an owner other than by pushes: all values and the state, or settings of
 * the program, such as a learning rate. */
#include "comm/sync/owner_internal.h"

#include <string.h>

/* A replica would need copies, and a record would have to be replayed with them. */
bool kolo_owner_is_settable(const kolo_parameters_owner *o) {
    const kolo_parameters_opts *p = o->opts;
    return p->replicas == 0 && !p->record && !p->replay;
}

void kolo_owner_set_values(kolo_parameters_owner *o, const float *own) {
    const size_t values = o->has.values.count;
    memcpy(o->values, own, values * sizeof *own);
    o->current = true;
    memcpy(o->state, own + values, o->has.state.count * sizeof *own);
    if (o->opts->load) o->opts->load(o->opts->arg, own);
}

bool kolo_owner_may_assign(const kolo_parameters_owner *o, const kolo_service_call *call) {
    const size_t numbers = o->has.values.count + o->has.state.count;
    bool kept = false; /* a step is open */
    for (int w = 0; w < o->n_workers; w++) kept = kept || o->workers[w].push != NULL;
    return !kept && call->input_bytes == numbers * sizeof(float) &&
           (uintptr_t)call->input % sizeof(float) == 0;
}

bool kolo_owner_may_configure(const kolo_parameters_owner *o, const kolo_service_call *call) {
    return o->opts->configure && call->input_bytes > 0 && call->input_bytes <= KOLO_SETTINGS_MOST;
}

void kolo_owner_assign(kolo_parameters_owner *o, kolo_service_call *call) {
    if (call->input_bytes > 0) kolo_owner_set_values(o, call->input);
    o->reply(call, KOLO_OK, 0, NULL, 0);
}

void kolo_owner_configure(kolo_parameters_owner *o, kolo_service_call *call) {
    const kolo_status status = o->opts->configure(o->opts->arg, call->input, call->input_bytes);
    o->reply(call, status, 0, NULL, 0);
}

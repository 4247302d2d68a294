#pragma once
/* Sessions of a program that compress other gradients in some steps than in others: "auto" and
 * "1bit,warmup=N". */

#include "train/session/session.h"

/* Whether the session is such. */
bool kolo_session_exchange_changes(const kolo_session *session);
/* Before a step: begins what is due, compression where it was chosen or second moments that stay.
 * Collective; NOMEM, PEER, TIMEOUT. */
kolo_status kolo_session_begin_exchange(kolo_session *session);

/* What a session had before kolo_session_enter_exchange. */
typedef struct kolo_exchange_before {
    bool entered; /* there are other plans now, or none */
    kolo_store *store;
    int64_t steps;
    char *compressed;
} kolo_exchange_before;

/* Before the state of `steps` steps is loaded, in which `compressed` was chosen by "auto" (NULL:
 * nothing yet): compiles the plans of such a session, unless these are. Then, always,
 * kolo_session_leave_exchange. Collective; NOMEM, PEER, TIMEOUT. */
kolo_status kolo_session_enter_exchange(kolo_session *session, int64_t steps,
                                        const char *compressed, kolo_exchange_before *before);
/* After it was loaded, with `status`, the same on all ranks, which it returns: the session is as
 * before unless that is OK. Collective; also NOMEM, PEER, TIMEOUT. */
kolo_status kolo_session_leave_exchange(kolo_session *session, kolo_exchange_before *before,
                                        kolo_status status);

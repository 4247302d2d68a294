#pragma once
/* Sessions whose steps exchange something else after some steps than before: with a warm-up, which
 * is of bsp without compression, as with "diloco:50,warmup=500" and "1bit,warmup=500"; and with
 * "auto", which chooses what is compressed. */

#include "train/session/session.h"

/* The steps of the warm-up on `ranks` ranks; 0: there is none. */
int64_t kolo_exchange_warm_up(const kolo_session_config *config, int ranks);
/* Whether the session is one of these. */
bool kolo_session_exchange_changes(const kolo_session *session);
/* Before a step of a session of a program: begins what is due. Collective; NOMEM, PEER, TIMEOUT. */
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

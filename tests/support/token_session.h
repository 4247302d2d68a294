#pragma once
/* Training of token models in tests: synthetic windows, a loader of this rank's share of each step,
 * and a session, for all ranks of a communicator. */

#include "data/prefetch.h"
#include "kolo/data.h"
#include "train/session/session.h"

typedef struct token_session {
    kolo_dataset *set, *test;
    kolo_loader *loader;
    kolo_session *session;
} token_session;

/* `data` names the data set as --data does; sample, label and classes of `opts` are filled in from
 * it. The loader ends after `steps`. To be closed even after a failure. */
kolo_status token_session_open(kolo_comm *comm, const char *data, const kolo_dataset_opts *windows,
                               int64_t steps, const kolo_session_config *opts, token_session *t);
void token_session_close(token_session *t);

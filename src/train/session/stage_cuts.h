#pragma once
/* Where the sessions of a pipeline cut the model, and other cuts by measured times of the stages.
 */

#include "pass/cuts.h"
#include "train/session/session.h"

/* What the layers of a model cost in steps of micro-batches of `batch` samples, for the caller to
 * kolo_unit_costs_fini. The errors of kolo_session_build and kolo_unit_costs_find. */
kolo_status kolo_session_unit_costs(const kolo_session_config *opts, int64_t batch,
                                    kolo_unit_costs *costs);
/* By what rank 0 chooses the cuts for steps of `global` samples, for the caller to
 * kolo_cut_choice_fini, also after an error. The errors of kolo_session_unit_costs; ARG: too many
 * parts. */
kolo_status kolo_session_open_choice(kolo_session *session, int64_t global,
                                     kolo_cut_choice *choice);

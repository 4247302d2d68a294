#pragma once
/* Runs a command on ranks that are threads of this process. */

#include "cli/launcher/run_on_ranks.h"

/* Runs `body` on opts->workers threads, each with a copy of `o`. The error is that of the rank that
 * failed first, as far as that is known. NOMEM; errors of `body`. */
kolo_status run_on_threads(const kolo_options *o, const ranks_opts *opts, rank_body body);

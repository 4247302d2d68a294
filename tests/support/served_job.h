#pragma once
/* Training jobs with parameter servers. */

#include "support/train_job.h"

/* Nine steps with running statistics, in some of which a rank has no samples; summed in the order
 * of ranks. */
kolo_train_opts served_opts(kolo_sync sync, int servers);
/* Fails unless a run with servers is bitwise one without; who trained is not compared. */
void assert_same_served(const char *what, const kolo_train_result *plain,
                        const kolo_train_result *served);

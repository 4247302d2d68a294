#pragma once
/* Agreement of all ranks on a status or a text. */

#include "base/text.h"
#include "comm/sync/agree.h"
#include "kolo/tensor.h"

/* Fails on all ranks, as kolo_agree does, unless `text` (lines "name: value") is equal on all. The
 * message names the rank, the first line that differs and both values. Collective. */
kolo_status kolo_agree_text(kolo_comm *comm, const char *text);
/* Replaces the text of all ranks by that of rank 0, which fails on all with `status`, an error of
 * any rank. Collective. */
kolo_status kolo_share_text(kolo_comm *comm, kolo_status status, kolo_text *text);
/* The sum over the ranks of a tensor that some of them have: `*data`, of kolo_alloc, of `*shape`;
 * NULL where a rank has none, which gets the sum too. NULL on all: none has one. `comm` NULL: one
 * rank. Collective; PEER, TIMEOUT, NOMEM on all ranks. */
kolo_status kolo_sum_tensor(kolo_comm *comm, double **data, kolo_shape *shape);
/* An error of this rank alone, which it cannot agree on with the others: breaks the group with the
 * text of the last error, and returns `status`. `comm` NULL: there are no others. */
kolo_status kolo_end_group(kolo_comm *comm, kolo_status status);

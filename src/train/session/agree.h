#pragma once
/* Agreement of all ranks on a status or a text. */

#include "base/text.h"
#include "comm/sync/agree.h"

/* Fails on all ranks, as kolo_agree does, unless `text` (lines "name: value") is equal on all. The
 * message names the rank, the first line that differs and both values. Collective. */
kolo_status kolo_agree_text(kolo_comm *comm, const char *text);
/* Replaces the text of all ranks by that of rank 0, which fails on all with `status`, an error of
 * any rank. Collective. */
kolo_status kolo_share_text(kolo_comm *comm, kolo_status status, kolo_text *text);
/* An error of this rank alone, which it cannot agree on with the others: breaks the group with the
 * text of the last error, and returns `status`. `comm` NULL: there are no others. */
kolo_status kolo_end_group(kolo_comm *comm, kolo_status status);

#pragma once
/* Groups of tensors that all ranks have posted. All ranks make the same groups in the same order:
 * by ascending id, tensors of one type and operation up to fusion_bytes. */

#include "comm/sync/named.h"

/* Makes the groups of the tensors agreed on. FORMAT: this rank has not posted one of them. NOMEM.
 */
kolo_status kolo_named_make_groups(kolo_named *m);
/* Starts groups in order, up to a limit of requests in flight; sets `all` if none is left. */
kolo_status kolo_named_start_groups(kolo_named *m, bool *all);
/* Ends the groups whose reductions are complete; sets `moved` if there is one. */
void kolo_named_complete_groups(kolo_named *m, bool *moved);
void kolo_named_free_groups(kolo_named *m);

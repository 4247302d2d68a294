#pragma once
/* The text of a wait that takes long. */

#include "base/text.h"
#include "comm/sync/named.h"

/* Adds the tensor, and the ranks that have not posted it, by the table or by the agreement that
 * they have not joined. `answered`: the table is the answer to this wait's request. Then it comes
 * first: a rank of an oversubscribed host may be absent from an agreement for long although it has
 * posted its tensors. */
void kolo_named_describe_stall(kolo_named *m, kolo_text *text, const kolo_named_tensor *t,
                               bool answered);

#pragma once
/* Sub-groups of transports that have windows. */

#include "comm/transport.h"

/* The transport of place `rank` among `members` (ranks of `parent`, which must outlive it), without
 * peers; `name` is what the peers need to attach it. NOMEM. */
kolo_status kolo_sub_create(kolo_transport *parent, const int *members, int size, int rank,
                            kolo_transport **transport, uint64_t *name);
/* Every member must be attached, this one too, before the first use. FORMAT. */
kolo_status kolo_sub_attach(kolo_transport *transport, int peer, uint64_t name);

#pragma once
/* Parts of the creation of a sub-group (split.c). */

#include "comm/engine/comm.h"

/* Creates this rank's part of the sub-group of `members`, n ranks of `parent` and among them this
 * one: the address of its transport is `address`. `hosts` is room for n numbers. NOMEM; UNSUPPORTED
 * after too many sub-groups. */
kolo_status kolo_subgroup_make(kolo_comm *parent, int colour, const int *members, int n, int *hosts,
                               kolo_subgroup_address *address, kolo_comm **child);
/* UNSUPPORTED, if the transport has no sub-groups. */
kolo_status kolo_subgroup_check(const kolo_comm *parent);

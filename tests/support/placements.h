#pragma once
/* Initializers of placements (mesh/placement.h), for tables of cases. */

#define INVARIANT \
    { .kind = KOLO_PLACEMENT_INVARIANT }
#define REPLICATED \
    { .kind = KOLO_PLACEMENT_REPLICATED }
#define SHARDED(...) \
    { .kind = KOLO_PLACEMENT_SHARDED, __VA_ARGS__ }
#define PARTIAL \
    { .kind = KOLO_PLACEMENT_PARTIAL }
#define AT(k) \
    { .kind = KOLO_PLACEMENT_AT, .at = (k) }
#define LOCAL \
    { .kind = KOLO_PLACEMENT_LOCAL }

/* Which stage of a pipeline has which part of the model. */
#include "pass/parts.h"

#include <stdbool.h>

int kolo_parts_at(const kolo_parts *p, int stage, int chunk) {
    bool back = p->path == KOLO_PARTS_V && chunk % 2 == 1;
    return chunk * p->stages + (back ? p->stages - 1 - stage : stage);
}

int kolo_parts_stage(const kolo_parts *p, int part, int *chunk) {
    *chunk = part / p->stages;
    bool back = p->path == KOLO_PARTS_V && *chunk % 2 == 1;
    return back ? p->stages - 1 - part % p->stages : part % p->stages;
}

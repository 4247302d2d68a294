#include "graph/ops/arrays.h"

#include "base/status.h"

bool kolo_graph_takes_array(kolo_graph *g, const char *op, const char *what, const void *array,
                            int n, int least) {
    if (n >= least && (array || n == 0)) return true;
    const kolo_status status =
        n < least ? KOLO_FAIL(KOLO_ERR_ARG, "%s: %d %s; give %d or more", op, n, what, least)
                  : KOLO_FAIL(KOLO_ERR_ARG, "%s: %s are NULL, not an array of %d", op, what, n);
    kolo_graph_set_failed(g, status);
    return false;
}

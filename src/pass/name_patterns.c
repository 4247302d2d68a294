/* Patterns of names: * stands for any text, ? for any character. The pass freeze selects by them.
 */
#include "pass/pass.h"

#include <string.h>

/* Backtracks to the latest star only: an earlier one cannot do better. */
static bool matches(const char *pattern, size_t n, const char *name) {
    size_t p = 0, star = n; /* star: n before the first */
    const char *retry = NULL;
    while (*name) {
        if (p < n && pattern[p] == '*') {
            star = p++;
            retry = name;
        } else if (p < n && (pattern[p] == '?' || pattern[p] == *name)) {
            p++;
            name++;
        } else if (star < n) {
            p = star + 1;
            name = ++retry;
        } else {
            return false;
        }
    }
    while (p < n && pattern[p] == '*') p++;
    return p == n;
}

bool kolo_name_matches(const char *list, const char *name) {
    for (size_t n; list && *list; list += n + (list[n] == ',')) {
        n = strcspn(list, ",");
        if (matches(list, n, name)) return true;
    }
    return false;
}

kolo_status kolo_patterns_check(const kolo_graph *g, const char *option, const char *list) {
    for (size_t n; list && *list; list += n + (list[n] == ',')) {
        bool found = false;
        n = strcspn(list, ",");
        for (int32_t v = 0; !found && v < g->n_values; v++) {
            bool parameter = g->values[v].kind == KOLO_VALUE_PARAM;
            found = parameter && matches(list, n, g->values[v].name);
        }
        if (found) continue;
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "--%s: no parameter matches \"%.*s\"; kolo dump --what graph lists the "
                         "names",
                         option, (int)n, list);
    }
    return KOLO_OK;
}

kolo_status kolo_pass_freeze(kolo_graph *g, const char *list) {
    bool any = false;
    KOLO_TRY(kolo_patterns_check(g, "freeze", list));
    for (int32_t v = 0; v < g->n_values; v++) {
        kolo_value_info *info = &g->values[v];
        if (info->kind != KOLO_VALUE_PARAM) continue;
        info->frozen |= kolo_name_matches(list, info->name);
        any |= !info->frozen;
    }
    if (any) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "--freeze %s matches all parameters, and none is left to train: give fewer "
                     "patterns",
                     list);
}

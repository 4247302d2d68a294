/* Patterns of names: * stands for any text, ? for any character. */
#include "pass/pass.h"

#include <string.h>

/* Backtracks to the latest star only: an earlier one cannot do better. */
bool kolo_pattern_matches(const char *pattern, size_t n, const char *name) {
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
        if (kolo_pattern_matches(list, n, name)) return true;
    }
    return false;
}

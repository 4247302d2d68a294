/* "did you mean": the name closest to a word by edit distance (Damerau, 1964). */

#include "kolo/status.h"

#include <limits.h>
#include <stdbool.h>
#include <string.h>

/* Number of insertions, deletions, substitutions and transpositions between two words; -1 if one is
 * too long. */
static int edit_distance(const char *a, const char *b) {
    enum { LONGEST = 63 };
    size_t n = strlen(a), m = strlen(b);
    if (n > LONGEST || m > LONGEST) return -1;
    int rows[LONGEST + 1][LONGEST + 1];
    for (size_t j = 0; j <= m; j++) rows[0][j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        rows[i][0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int best = rows[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (rows[i - 1][j] + 1 < best) best = rows[i - 1][j] + 1;
            if (rows[i][j - 1] + 1 < best) best = rows[i][j - 1] + 1;
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && rows[i - 2][j - 2] + 1 < best) best = rows[i - 2][j - 2] + 1;
            rows[i][j] = best;
        }
    }
    return rows[n][m];
}

const char *kolo_closest(const char *word, const char *const *names) {
    const char *best = NULL;
    int best_distance = INT_MAX;
    for (; *names; names++) {
        int d = edit_distance(word, *names);
        if (d >= 0 && d < best_distance) {
            best_distance = d;
            best = *names;
        }
    }
    int allowed = (int)(strlen(word) + 2) / 3; /* up to a third of the word */
    return best && best_distance <= allowed ? best : NULL;
}

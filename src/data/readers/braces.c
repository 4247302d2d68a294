/* Ranges in names. */
#include "data/readers/braces.h"

#include "base/memory.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TEXTS = 1 << 20, MOST_DIGITS = 18, MOST_RANGES = 16 };

typedef struct brace_range {
    const char *begin, *end; /* its braces, and what follows them */
    int64_t first, last;
    int digits; /* with leading zeros; 0: as many as a number has */
} brace_range;

/* A number of digits; NULL: none. Returns what follows it. */
static const char *read_number(const char *text, int64_t *value, int *digits) {
    const size_t n = strspn(text, "0123456789");
    if (n == 0 || n > MOST_DIGITS) return NULL;
    *value = strtoll(text, NULL, 10);
    *digits = (int)n;
    return text + n;
}

static bool read_range(const char *at, brace_range *r) {
    int first, last;
    const char *next = read_number(at + 1, &r->first, &first);
    if (!next || strncmp(next, "..", 2) != 0) return false;
    const char *second = next + 2;
    next = read_number(second, &r->last, &last);
    if (!next || *next != '}') return false;
    const bool padded = (first > 1 && at[1] == '0') || (last > 1 && *second == '0');
    r->begin = at;
    r->end = next + 1;
    r->digits = !padded ? 0 : first > last ? first : last;
    return true;
}

/* The ranges of a text; *texts is how many it stands for. */
static kolo_status find_ranges(const char *text, brace_range *ranges, int *n, int64_t *texts) {
    *n = 0;
    *texts = 1;
    for (const char *at = strchr(text, '{'); at; at = strchr(at, '{')) {
        brace_range r;
        if (!read_range(at, &r)) {
            at++;
            continue;
        }
        if (r.first > r.last || *n == MOST_RANGES || r.last - r.first >= MOST_TEXTS / *texts) {
            return KOLO_FAIL(KOLO_ERR_ARG,
                             "%s: the range %.*s: write {FIRST..LAST}, FIRST at most LAST, and at "
                             "most %d ranges and %d names in all",
                             text, (int)(r.end - r.begin), r.begin, MOST_RANGES, MOST_TEXTS);
        }
        *texts *= r.last - r.first + 1;
        ranges[(*n)++] = r;
        at = r.end;
    }
    return KOLO_OK;
}

kolo_status kolo_braces_each(const char *text, kolo_status (*each)(void *arg, const char *text),
                             void *arg) {
    brace_range ranges[MOST_RANGES];
    int64_t texts;
    int n;
    KOLO_TRY(find_ranges(text, ranges, &n, &texts));
    for (int64_t i = 0; i < texts; i++) {
        kolo_text out = {0};
        const char *from = text;
        int64_t rest = i, after = texts;
        for (int k = 0; k < n; k++) {
            const brace_range *r = &ranges[k];
            after /= r->last - r->first + 1;
            kolo_text_add(&out, "%.*s%0*" PRId64, (int)(r->begin - from), from, r->digits,
                          r->first + rest / after);
            rest %= after;
            from = r->end;
        }
        kolo_text_add(&out, "%s", from);
        kolo_status status = out.failed ? KOLO_NOMEM(strlen(text)) : each(arg, out.text);
        kolo_text_fini(&out);
        KOLO_TRY(status);
    }
    return KOLO_OK;
}

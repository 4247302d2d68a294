/* newlocale returns a static object for the locale "C": it needs no memory and cannot fail. The
 * locale of a thread is changed only during a call. */
#define _GNU_SOURCE
#include "base/number.h"

#include "base/compiler.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static locale_t c_locale(void) { return newlocale(LC_ALL_MASK, "C", (locale_t)0); }

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void kolo_sort_doubles(double *values, size_t n) { qsort(values, n, sizeof *values, ascending); }

double kolo_parse_double(const char *text, char **end) { return strtod_l(text, end, c_locale()); }

int kolo_vsnprintf(char *text, size_t bytes, const char *fmt, va_list args) {
    locale_t before = uselocale(c_locale());
    int length = vsnprintf(text, bytes, fmt, args);
    uselocale(before);
    return length;
}

int kolo_snprintf(char *text, size_t bytes, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int length = kolo_vsnprintf(text, bytes, fmt, args);
    va_end(args);
    return length;
}

void kolo_double_text(double value, char text[32]) {
    if (!isfinite(value)) {
        snprintf(text, 32, "%s", isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        kolo_snprintf(text, 32, "%.*g", digits, value);
        if (kolo_parse_double(text, NULL) == value) break;
    }
}

const char *kolo_bytes_text(double bytes, char text[32]) {
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    size_t k = 0;
    for (bytes /= 1024; bytes >= 1024 && k + 1 < KOLO_COUNT(units); k++) bytes /= 1024;
    kolo_snprintf(text, 32, "%.1f %s", bytes, units[k]);
    return text;
}

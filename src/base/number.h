#pragma once
/* The order of numbers, and numbers as text, with a decimal point in every locale: the host program
 * of the library may have set one with a decimal comma. */

#include "base/compiler.h"

#include <stdarg.h>
#include <stddef.h>

/* strtod, snprintf and vsnprintf of the C locale. */
KOLO_SHARED double kolo_parse_double(const char *text, char **end);
KOLO_SHARED int kolo_snprintf(char *text, size_t bytes, const char *fmt, ...) KOLO_PRINTF(3, 4);
KOLO_SHARED int kolo_vsnprintf(char *text, size_t bytes, const char *fmt, va_list args)
    KOLO_PRINTF(3, 0);

/* Formats a double in at most 31 characters: the shortest form that parses to the same value, or
 * "nan", "inf", "-inf". */
KOLO_SHARED void kolo_double_text(double value, char text[32]);

/* Formats bytes as "1.5 GiB", "20.0 MiB" or "3.0 KiB". Returns the text. */
KOLO_SHARED const char *kolo_bytes_text(double bytes, char text[32]);

/* Sorts them in ascending order. */
KOLO_SHARED void kolo_sort_doubles(double *values, size_t n);

#pragma once
/* Attributes and other help from the compiler. */

/* Exported from libkolo-comm for use by libkolo and the command; not public API. */
#define KOLO_SHARED __attribute__((visibility("default")))
/* Checks the arguments of a printf-like function: positions of the format and of the first one. */
#define KOLO_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
/* One copy of a function's code, so that all its calls take equal time. */
#define KOLO_NOINLINE __attribute__((noinline))
/* Number of elements of an array. */
#define KOLO_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#pragma once
/* Measured times of kernels: what a tuner knows ranks kernels and layouts in place of the estimates
 * of `fit`.
 *
 * An entry is a time in seconds under a key: the machine, the threads, the kernel, and the spec
 * with its shapes, layouts and attributes. Entries come from text (a file, another rank) or from
 * measurements, made when a time is asked for that no entry has. Text has a line an entry, "seconds
 * key", under a first line that names the format; it may hold entries of other machines, which are
 * kept.
 *
 * A tuner belongs to one thread at a time. */

#include "kernel/kernel.h"

typedef struct kolo_tuner kolo_tuner;

/* Told after each measurement. */
typedef void (*kolo_tuner_observer)(void *arg, int measured, const kolo_kernel *kernel,
                                    const kolo_kernel_spec *spec, double seconds);

/* An empty tuner for machine `machine`, any text without a line end. */
kolo_status kolo_tuner_create(const char *machine, kolo_tuner **tuner);
/* NULL is allowed. */
void kolo_tuner_destroy(kolo_tuner *tuner);
/* A hash of the names of the kernels that are measured, for the machine's text: where a kernel has
 * come since, what was measured without it decides nothing. */
uint64_t kolo_tuner_kernels(void);

/* Takes the entries of `text` over those it has. FORMAT, with `name` and the line, when it is none;
 * nothing is taken then. */
kolo_status kolo_tuner_read(kolo_tuner *tuner, const char *name, const char *text);
/* Appends all entries, or those of this machine that were asked for, sorted by key. */
void kolo_tuner_write(const kolo_tuner *tuner, bool asked_only, kolo_text *text);

/* From now on times that are not known are measured, on buffers of the tuner's own, and `observer`
 * (may be NULL) hears of each; or, with `on` false, no longer. */
void kolo_tuner_measure(kolo_tuner *tuner, bool on, kolo_tuner_observer observer, void *arg);

/* The time of a kernel whose `fit` took the spec and estimated it; negative when it is not known:
 * not measured, or not worth it, being estimated far above what the same work takes elsewhere. */
double kolo_tuner_seconds(kolo_tuner *tuner, const kolo_kernel *kernel,
                          const kolo_kernel_spec *spec, double estimate);

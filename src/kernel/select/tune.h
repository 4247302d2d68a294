#pragma once
/* Autotuning: measured times, which replace the estimates of `fit` in the selection of kernels
 * and layouts.
 *
 * An entry maps a key (machine, threads, kernel, shapes, layouts, attributes) to a time in
 * seconds. Entries are read from text (a file, another rank) or measured on lookup. The text
 * form is a header line with the format's version, then one line per entry, "seconds key".
 * Entries of other machines are kept.
 *
 * A tuner belongs to one thread at a time. */

#include "kernel/kernel.h"

typedef struct kolo_tuner kolo_tuner;

/* Called after each measurement. */
typedef void (*kolo_tuner_observer)(void *arg, int measured, const kolo_kernel *kernel,
                                    const kolo_kernel_spec *spec, double seconds);

/* Creates an empty tuner. `machine` is any text without a newline. */
kolo_status kolo_tuner_create(const char *machine, kolo_tuner **tuner);
/* NULL is allowed. */
void kolo_tuner_destroy(kolo_tuner *tuner);
/* A hash of the names of all tunable kernels, to be part of the machine's text: a new kernel
 * invalidates older measurements. */
uint64_t kolo_tuner_kernels(void);

/* Adds the entries of `text`, replacing those with the same key. FORMAT, with `name` and the
 * line number, on malformed text; no entry is added then. */
kolo_status kolo_tuner_read(kolo_tuner *tuner, const char *name, const char *text);
/* Appends all entries, or with `asked_only` those of this machine that were looked up, sorted by
 * key. */
void kolo_tuner_write(const kolo_tuner *tuner, bool asked_only, kolo_text *text);

/* Enables or disables measurements of unknown times, on buffers of the tuner's own. `observer`
 * (may be NULL) is called after each. */
void kolo_tuner_measure(kolo_tuner *tuner, bool on, kolo_tuner_observer observer, void *arg);

/* The measured time of a kernel for a spec that fits; negative when there is none: measuring is
 * off, the op is not tunable, the kernel is none of the host, or `estimate` is far above the best
 * known time of the same work. */
double kolo_tuner_seconds(kolo_tuner *tuner, const kolo_kernel *kernel,
                          const kolo_kernel_spec *spec, double estimate);

/* The measured time of the kernel that is selected for a node, of any op but those of the program;
 * negative: there is none, as measuring is off, or its tensors take a large part of the memory. */
double kolo_tuner_time(kolo_tuner *tuner, const kolo_kernel *kernel, const kolo_kernel_spec *spec);

/* The measured times of a kernel for the pass lanes, of any op: on all threads of the spec
 * (*together), and on one thread while each of `lanes` threads runs the same (*apart). False: there
 * are none, as measuring is off, or one thread cannot run it with the same bits. */
bool kolo_tuner_lanes(kolo_tuner *tuner, const kolo_kernel *kernel, const kolo_kernel_spec *spec,
                      int lanes, double *together, double *apart);

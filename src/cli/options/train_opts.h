#pragma once
/* Converts command-line options to the options of kolo_train. */

#include "base/option.h"
#include "kolo/train.h"

/* The list of kernel sets: code, name, description. */
#define KERNEL_SET_LIST(X)                            \
    X(KERNEL_SET_BEST, "best", "the fastest kernels") \
    X(KERNEL_SET_REF, "ref", "the reference kernels")

typedef enum kernel_set {
#define KERNEL_SET_ENUM(code, name, help) code,
    KERNEL_SET_LIST(KERNEL_SET_ENUM)
#undef KERNEL_SET_ENUM
} kernel_set;

/* The list of what local workers are: code, name, description. */
#define WORKERS_AS_LIST(X)                                 \
    X(WORKERS_AS_PROCESSES, "processes", "a process each") \
    X(WORKERS_AS_THREADS, "threads",                       \
      "threads of one process, with the bits of processes; no SIGUSR1 report and no --transport")

typedef enum workers_as {
#define WORKERS_AS_ENUM(code, name, help) code,
    WORKERS_AS_LIST(WORKERS_AS_ENUM)
#undef WORKERS_AS_ENUM
} workers_as;

/* Splits "resnet50:width=0.5" of --model into the model and its options (NULL: none). */
kolo_status train_opts_model(kolo_options *o, const char **model, const char **model_options);

/* --tuning, or kolo/tuning.txt in the user's cache folder; NULL if there is none. */
kolo_status train_opts_tuning(kolo_options *o, const char **path);

/* A kolo_train_notice: prints a line on standard error; transient lines only on a terminal, where
 * they are overwritten. */
void train_opts_notice(void *arg, const char *line, kolo_notice_kind kind);
/* The same, for warnings only. */
void train_opts_warning(void *arg, const char *line, kolo_notice_kind kind);

/* The optimizer and its hyperparameters. */
kolo_optimizer_opts train_opts_optimizer(const kolo_options *o);

/* The number of workers: that of the mesh if it is given alone on the command line, or at all. 0 is
 * kept: a launcher has started them. */
int train_opts_workers(const kolo_options *o, int workers);
/* The workers of a mesh that train on the same samples. */
int train_opts_together(const kolo_options *o, int workers);
/* Adds the global batch and its division into logical shards, which train and bench train have. */
void train_opts_shards(const kolo_options *o, kolo_train_opts *opts);
/* Removes values of a config file that the command line excludes: before options are read. ARG: a
 * mesh of more workers than are possible. */
kolo_status train_opts_prepare(kolo_options *o);
/* --threads; 0: an equal share of the processors. Reproducible runs have one unless it is given:
 * the share depends on the number of workers. */
int train_opts_threads(const kolo_options *o);

/* --loader-threads, as in kolo_train_opts. */
int train_opts_loader_threads(const kolo_options *o);

/* What data sets require of a model, for commands that have none: windows of 256 tokens, and the
 * numbers and categories of Criteo's click logs. */
kolo_dataset_opts train_opts_no_model(void);

/* Room for what each worker reports (times_by_rank, memory_by_rank), valid as long as `o`. NOMEM.
 */
kolo_status train_opts_rows(kolo_options *o, const kolo_comm *comm, kolo_train_opts *opts);

/* ARG: an option of the command line has no effect with the values of the others, as --beta1
 * without Adam. */
kolo_status train_opts_check_effects(const kolo_options *o);
/* The file, model and data of a trained model. The strings are valid as long as `o`. */
kolo_status train_opts_trained(kolo_options *o, kolo_eval_opts *opts);
/* The options that all training commands share: model, data, batch, optimizer, kernels, buckets.
 * The strings are valid as long as `o`. */
kolo_status train_opts_make(kolo_options *o, int threads, kolo_train_opts *opts);

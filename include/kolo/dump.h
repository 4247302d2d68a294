#pragma once
/* Looking inside: graphs, plans and schedules as text. */

#include "kolo/comm.h"
#include "kolo/tensor.h"
#include "kolo/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The list of what can be printed: code, name, description. */
#define KOLO_DUMP_LIST(X)                                                                    \
    X(KOLO_DUMP_GRAPH, "graph", "the graph as the model builds it")                          \
    X(KOLO_DUMP_PASSES, "passes", "the graph after all passes: gradients, layouts, buckets") \
    X(KOLO_DUMP_PLAN, "plan", "memory, buckets, and the kernel of each step")                \
    X(KOLO_DUMP_SCHEDULE, "schedule", "each collective of a step: algorithm, chunk, schedules")

typedef enum kolo_dump_what {
#define KOLO_DUMP_ENUM(code, name, help) code,
    KOLO_DUMP_LIST(KOLO_DUMP_ENUM)
#undef KOLO_DUMP_ENUM
        KOLO_DUMP_COUNT
} kolo_dump_what;

/* Zero means the default. */
typedef struct kolo_dump_opts {
    kolo_dump_what what;
    const char *model, *model_options;
    kolo_shape sample;  /* of one sample; default the model's */
    int64_t classes;    /* default the model's */
    int64_t batch;      /* default 64 */
    int64_t accumulate; /* micro-batches of a step; default 1 */
    bool evaluate;      /* the forward pass alone, instead of training */
    kolo_optimizer_opts optimizer;
    bool sparse_embedding; /* see kolo_train_opts */
    int64_t bucket_bytes;  /* default 1 MiB */
    int threads;           /* default 1 */
    bool reference_kernels, no_winograd;
    kolo_recompute recompute; /* default none */
    kolo_precision precision; /* default f32 */
    bool cached;              /* choose by the times in the file `tuning`, as training does; */
    const char *tuning;       /* NULL: there is none */
    kolo_train_notice notice; /* hears when that file is no good, or an option shows elsewhere */
    void *notice_arg;
    int ranks;                /* SCHEDULE: size of the group; default 2 */
    kolo_algorithm algorithm; /* SCHEDULE */
} kolo_dump_opts;

/* Writes the text into *text, which the caller frees with kolo_dump_free. ARG: unknown model, or an
 * option that does not suit; UNSUPPORTED: an op without a kernel; NOMEM. */
KOLO_API kolo_status kolo_dump(const kolo_dump_opts *opts, char **text);
/* What the kernels are made of here, "avx2, oneDNN 2.6.3"; freed as a dump is. */
KOLO_API kolo_status kolo_dump_kernels(char **text);
/* Whether precision bf16 is for speed here: convolutions and linear layers then compute in bf16 by
 * instructions of the processor; else in f32, on copies of what is kept in bf16. */
KOLO_API bool kolo_dump_has_bf16(void);
/* The zoo: each model with its sample, classes, parameters and options, as plain text or as the
 * page docs/models.md; freed as a dump is. NOMEM. */
KOLO_API kolo_status kolo_dump_models(bool markdown, char **text);
KOLO_API void kolo_dump_free(char *text);

#ifdef __cplusplus
}
#endif

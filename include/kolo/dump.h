#pragma once
/* Graphs, plans and communication schedules as text. */

#include "kolo/comm.h"
#include "kolo/tensor.h"
#include "kolo/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The list of what can be printed: code, name, description. */
#define KOLO_DUMP_LIST(X)                                                                       \
    X(KOLO_DUMP_GRAPH, "graph", "the graph as the model builds it")                             \
    X(KOLO_DUMP_PASSES, "passes", "the graph after all passes: gradients, layouts, buckets")    \
    X(KOLO_DUMP_PLAN, "plan", "memory, buckets, and the kernel of each step")                   \
    X(KOLO_DUMP_SCHEDULE, "schedule", "each collective of a step: algorithm, chunk, schedules") \
    X(KOLO_DUMP_PROGRAM, "program",                                                             \
      "the order of passes and messages on the stages of a pipeline")                           \
    X(KOLO_DUMP_SERVERS, "servers", "the parameters that each parameter server has")

typedef enum kolo_dump_what {
#define KOLO_DUMP_ENUM(code, name, help) code,
    KOLO_DUMP_LIST(KOLO_DUMP_ENUM)
#undef KOLO_DUMP_ENUM
        KOLO_DUMP_COUNT
} kolo_dump_what;

/* A zero field takes its default. */
typedef struct kolo_dump_opts {
    kolo_dump_what what;
    const char *model, *model_options;
    kolo_shape sample;  /* of one sample; default the model's */
    int64_t classes;    /* default the model's */
    int64_t batch;      /* default 64 */
    int64_t accumulate; /* micro-batches of a step; default 1 */
    bool evaluate;      /* the forward pass alone */
    kolo_optimizer_opts optimizer;
    bool sparse_embedding; /* see kolo_train_opts */
    bool sync_bn;          /* see kolo_train_opts */
    int64_t bucket_bytes;  /* default: see kolo/pass.h */
    const char *buckets;   /* PLAN: bytes of the first buckets of gradients, "1M,400K", of workers
                              that do not share parameters; NULL: all of bucket_bytes */
    const char *compress;  /* PASSES, PLAN, SCHEDULE, SERVERS: see kolo_train_opts; of workers that
                              do not share parameters; not auto */
    int64_t compress_min_bytes; /* default 64 KiB */
    int threads;                /* default 1 */
    const char *device;         /* PLAN, SCHEDULE: see kolo_train_opts */
    bool reference_kernels, no_winograd, no_chains;
    kolo_lanes lanes;
    kolo_recompute recompute; /* default none */
    kolo_precision precision; /* default f32 */
    bool cached;              /* select kernels by the times in the file `tuning` */
    const char *tuning;       /* NULL: no file */
    kolo_train_notice notice; /* warnings: the file is unusable, an option has no effect here */
    void *notice_arg;
    const char *mesh;      /* axes of the workers, "dp=2,tp=2"; NULL: dp alone */
    const char *placement; /* see kolo_train_opts */
    int64_t tp_blocks;     /* of a reproducible run, see kolo_train_opts; 0: none */
    const char *pipeline;  /* not of GRAPH: schedule of the axis pp, see kolo_train_opts */
    int64_t stage_bytes;   /* of a pipeline, with the next one: see kolo_train_opts */
    const char *worker_weights;
    int zero;        /* level of ZeRO; 0: none */
    bool share;      /* the plan of workers of a host that share parameters, where the options
                        allow it, or each have a copy of a small model; not of SCHEDULE */
    bool cross_step; /* with several ranks: updates may run in the next step, as in kolo_train */
    int ranks;       /* SERVERS: of these; SCHEDULE, and all with zero or share: size of the group;
                        default 2, or that of mesh */
    int rank;        /* PLAN of several ranks: whose; default 0 */
    kolo_algorithm algorithm; /* PLAN, SCHEDULE */
    bool byte_split; /* SERVERS: parts as with bsp, in buckets, where the last `servers` of the
                        ranks serve and the others are workers (docs/servers.md); else equal parts
                        of all ranks */
    int servers;
} kolo_dump_opts;

/* Returns the dump in *text; free it with kolo_dump_free. ARG: unknown model or invalid option, a
 * rank that is not in the group; UNSUPPORTED: an op without a kernel; NOMEM. */
KOLO_API kolo_status kolo_dump(const kolo_dump_opts *opts, char **text);
/* The instruction set and library of the kernels, "avx2, oneDNN 2.6.3". Free with kolo_dump_free.
 */
KOLO_API kolo_status kolo_dump_kernels(char **text);
/* The devices of this machine and their memory, "cpu (31.3 GiB)". Free with kolo_dump_free. NOMEM.
 */
KOLO_API kolo_status kolo_dump_devices(char **text);
/* Whether the processor has bf16 arithmetic: convolutions and linear layers then compute in bf16;
 * otherwise they convert to f32, and precision bf16 saves memory only. */
KOLO_API bool kolo_dump_has_bf16(void);
/* All models with their sample, classes, parameters and options, as plain text or as the page
 * docs/models.md. Free with kolo_dump_free. NOMEM. */
KOLO_API kolo_status kolo_dump_models(bool markdown, char **text);
KOLO_API void kolo_dump_free(char *text);

#ifdef __cplusplus
}
#endif

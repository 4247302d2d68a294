#pragma once
/* Training jobs: one call runs a whole job.
 *
 *     kolo_comm *comm;
 *     KOLO_TRY(kolo_comm_create(NULL, &comm));
 *     kolo_train_opts opts = {.model = "lenet", .data = "fashion-mnist", .epochs = 3, .lr = 0.05};
 *     kolo_train_result result;
 *     KOLO_TRY(kolo_train(comm, &opts, NULL, NULL, &result));
 *
 * Errors before the first step (unreadable data, a folder that cannot be written) and errors that
 * all ranks detect in the same step (a NaN loss) fail on all ranks with the same status. Ranks
 * other than N, where the error occurred, prefix the message with "rank N: ". An error of a single
 * rank in a later step ends that rank; the others return PEER. */

#include "kolo/comm.h"
#include "kolo/metric.h"
#include "kolo/models.h"
#include "kolo/pass.h"
#include "kolo/phase.h"
#include "kolo/status.h"
#include "kolo/table.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The list of learning-rate schedules: code, name, description. They start after the warm-up.
 * Cosine: Loshchilov, Hutter, 2017. */
#define KOLO_LR_SCHEDULE_LIST(X)                                                        \
    X(KOLO_LR_CONSTANT, "constant", "always lr")                                        \
    X(KOLO_LR_STEP, "step", "multiplied by lr-step-factor every lr-step-epochs epochs") \
    X(KOLO_LR_COSINE, "cosine", "half a cosine from lr down to lr-min over the run")    \
    X(KOLO_LR_POLY, "poly", "a power of the rest of the run, from lr down to lr-min")

typedef enum kolo_lr_schedule {
#define KOLO_LR_SCHEDULE_ENUM(code, name, help) code,
    KOLO_LR_SCHEDULE_LIST(KOLO_LR_SCHEDULE_ENUM)
#undef KOLO_LR_SCHEDULE_ENUM
        KOLO_LR_SCHEDULE_COUNT
} kolo_lr_schedule;
/* The name in the list; "unknown" outside it. Static storage. */
KOLO_API const char *kolo_lr_schedule_name(kolo_lr_schedule schedule);

/* The list of ways to select kernels and layouts: code, name, description. Times are specific to
 * the processor and are stored in the tuning file. */
#define KOLO_AUTOTUNE_LIST(X)                                       \
    X(KOLO_AUTOTUNE_OFF, "off", "by cost formulas")                 \
    X(KOLO_AUTOTUNE_CACHED, "cached",                               \
      "by times in the tuning file, by formulas where it has none") \
    X(KOLO_AUTOTUNE_ON, "on", "by times, after measuring the missing ones")

typedef enum kolo_autotune {
#define KOLO_AUTOTUNE_ENUM(code, name, help) code,
    KOLO_AUTOTUNE_LIST(KOLO_AUTOTUNE_ENUM)
#undef KOLO_AUTOTUNE_ENUM
        KOLO_AUTOTUNE_COUNT
} kolo_autotune;
/* The name in the list; "unknown" outside it. Static storage. */
KOLO_API const char *kolo_autotune_name(kolo_autotune autotune);

/* The list of ways to sum gradients and update parameters: code, name, description. */
#define KOLO_SYNC_LIST(X)                                                                     \
    X(KOLO_SYNC_ALLREDUCE, "allreduce", "the workers sum gradients, each updates everything") \
    X(KOLO_SYNC_PS, "ps", "parameter servers: owners of parameters sum gradients and update") \
    X(KOLO_SYNC_MESH, "mesh",                                                                 \
      "each worker owns a part, and sends its peers their parts of its gradient")

typedef enum kolo_sync {
#define KOLO_SYNC_ENUM(code, name, help) code,
    KOLO_SYNC_LIST(KOLO_SYNC_ENUM)
#undef KOLO_SYNC_ENUM
        KOLO_SYNC_COUNT
} kolo_sync;
/* The name in the list; "unknown" outside it. Static storage. */
KOLO_API const char *kolo_sync_name(kolo_sync sync);

/* The list of what a run does when a file of its folder cannot be written, as on a full disk: code,
 * name, description. */
#define KOLO_SAVE_ERROR_LIST(X)                                    \
    X(KOLO_SAVE_ERROR_STOP, "stop", "the run ends with the error") \
    X(KOLO_SAVE_ERROR_CONTINUE, "continue",                        \
      "a warning states the error, and the run goes on to the next checkpoint")

typedef enum kolo_save_error {
#define KOLO_SAVE_ERROR_ENUM(code, name, help) code,
    KOLO_SAVE_ERROR_LIST(KOLO_SAVE_ERROR_ENUM)
#undef KOLO_SAVE_ERROR_ENUM
        KOLO_SAVE_ERROR_COUNT
} kolo_save_error;
/* The name in the list; "unknown" outside it. Static storage. */
KOLO_API const char *kolo_save_error_name(kolo_save_error save_error);

typedef enum kolo_notice_kind {
    KOLO_NOTICE_TRANSIENT, /* replaced by the next notice */
    KOLO_NOTICE_INFO,
    KOLO_NOTICE_WARNING, /* a problem that the job works around */
} kolo_notice_kind;

/* Receives status lines for the user: before the first step, and warnings during the run. */
typedef void (*kolo_train_notice)(void *arg, const char *line, kolo_notice_kind kind);

#define KOLO_WEIGHTS_MEASURED "measured"

/* Options of a job; the same on all ranks. A zero field takes its default, which each comment
 * gives. */
typedef struct kolo_train_opts {
    const char *model, *model_options; /* name of the model; its options */
    const char *data;     /* "fashion-mnist", "mnist:DIR", ...; required unless in_memory */
    const char *init;     /* initial weights: a safetensors file with the tensor names of Kolo,
                             torchvision or Hugging Face; NULL: drawn from the seed */
    bool init_partial;    /* load the tensors of `init` that fit the model; notices list the rest */
    const char *mesh;     /* axes of the workers, "dp=2,tp=2": their sizes multiply to the number of
                             workers, and one may be "*". dp: data parallelism; tp: tensor
                             parallelism, which divides the layers; sp: context parallelism, which
                             divides the positions of sequences; pp: stages of a pipeline, which
                             have some of the layers each. NULL: all are on dp */
    const char *pipeline; /* schedule of the stages, "interleaved:2"; NULL: 1f1b */
    /* Of a pipeline: bytes that a stage may take for parameters, optimizer state, gradients and
     * values of a step. The model is cut so that they suffice; ARG: it cannot. 0: no limit */
    int64_t stage_bytes;
    /* Of a pipeline: after each window of this many steps, layers move to other stages, with their
     * parameters and optimizer state, if the measured times of the stages predict that the slowest
     * one is at least 5 % faster then. 0: they stay */
    int64_t rebalance_stages;
    /* How an axis of `mesh` divides the model (docs/parallelism.md). tp: "megatron", "megatron-sp",
     * "owt", a file of rules, which may have other axes too, or the rules themselves, with a line
     * end each ("up 0\ndown 1\n"); NULL: the rules for the model. sp: "ring" or "zigzag"; NULL: the
     * heads of attention are divided. */
    const char *placement;
    int64_t batch;        /* per worker, or place on the axis dp; default 64 */
    int64_t accumulate;   /* micro-batches of `batch` samples per worker and step; default 1 */
    int64_t global_batch; /* samples of a step over all workers, in place of `batch`; 0: the
                             product of batch, accumulate and workers */
    /* ZeRO (Rajbhandari et al., 2020): 1 divides the optimizer state over the workers, 2 the
     * gradients too, 3 the parameters too, which are gathered where they are read; each worker
     * updates a range of every parameter. 0: each has all. With `reproducible` 2 is as 1. Where the
     * workers of a host share the parameters, 3 is as 2. */
    int zero;
    /* Each worker has a copy of the parameters and of the optimizer state. Else the workers of a
     * host have one copy of the parameters in shared memory, each has a part of the state and
     * updates a range, where that leaves every bit as it is (docs/parallelism.md). */
    bool no_share;
    /* With owners of the parameters and bsp each worker pushes its own gradient. Else the workers
     * of a host sum theirs first, if there are other hosts, and one of them pushes and pulls
     * (docs/servers.md). */
    bool no_local_aggregate;
    /* Each step waits for all sums of gradients and makes all updates. Else kolo_train leaves those
     * that the next step does not read at its beginning to that step, where several workers have a
     * copy of the parameters each; no bit depends on it (docs/parallelism.md). */
    bool no_cross_step;
    /* Logical shards of a reproducible run; 0: none. They divide the global batch, which must be
     * given. The bits of all results then depend on the shards, not on the number of workers or of
     * stages of a pipeline, with equal threads, kernels and processors; shards are also the
     * micro-batches. UNSUPPORTED: on a mesh of other axes than dp and pp; tp with `tp_blocks`. */
    int64_t reproducible;
    /* Of a reproducible run: blocks of tensor parallelism, 2, 4 or 8; 0: none. The layers that the
     * axis tp divides are computed in so many blocks whatever its size, which divides them and may
     * be 1: the bits of all results do not depend on it (docs/parallelism.md). UNSUPPORTED: with
     * axes sp or ep, servers, rules with "sums", and divided layers that are recurrent or have
     * statistics; ARG: layers that do not divide. */
    int64_t tp_blocks;
    const char *worker_weights; /* relative speeds of the workers, by rank: "1,1,0.5". Those of a
                                   reproducible run get shards in proportion, which changes no
                                   result, with "measured" by their speeds during the run; the
                                   stages of a pipeline get layers in proportion. NULL: equal */
    int64_t audit; /* of a reproducible run: steps between audits, in which the gradient of each
                      shard is also computed by another rank and compared; an error names the rank
                      that was wrong. 0: none */
    int64_t check_replicas; /* steps between comparisons of parameters and optimizer state over all
                               ranks; an error names the rank that differs. 0: at the end only */
    /* With KOLO_SYNC_PS: the last ranks, which hold the parameters and do not compute; 0, also with
     * KOLO_SYNC_MESH: each worker owns a part. UNSUPPORTED, with both: with `zero`, `reproducible`,
     * `sparse_embedding`, `sync_bn`, `in_memory` or tensor parallelism; several owners with `clip`,
     * LARS or LAMB. */
    int servers;
    /* 1: each server has a replica of the part of another one, so that the run goes on when a
     * server dies (docs/servers.md). ARG: with less than 2 servers, `record` or `replay`. 0: none.
     */
    int replicas;
    /* With KOLO_SYNC_PS or KOLO_SYNC_MESH: patterns of embedding tables, "A,B", whose rows the
     * servers create as their ids occur; docs/servers.md. NULL: none. UNSUPPORTED: a
     * table that something else than one embedding reads, momentum, weight decay or clipping,
     * `accumulate`, `replicas`, `record`, `replay` and bf16. */
    const char *table;
    const char *table_consistency; /* of these rows: "bsp", "ssp:S" or "asp"; NULL: `consistency` */
    int64_t table_bytes;           /* memory of the rows of a server; default 1 GiB */
    int64_t table_admit;           /* pushes of an id until it has a row; default 1 */
    int64_t table_expire;          /* steps until a row that none of them changes is removed; 0: it
                                      stays */
    double table_expire_seconds;   /* the same for a time, of at least 1 ms */
    bool table_prefetch;           /* asp: the rows of the next batch are read while this one is
                                      computed; they lack this worker's latest push */
    bool table_refuse;             /* without room new ids get no row; else that of the id whose
                                      latest gradient is the oldest */
    /* With `servers`, leases ("asp,lease=1") and out_dir: processes that may join as workers later,
     * by the file `join` in that folder (docs/servers.md); those that have ended count, too.
     * UNSUPPORTED: with `table`, `record` or `replay`. 0: none. */
    int joins;
    /* A folder: this process joins the run that writes there, with the same options; `comm` of
     * kolo_train is ignored. `join_secret`: the file of the job's secret, KOLO_SECRET_FILE. The
     * result is of this process alone, without evaluation. NULL: not. */
    const char *join, *join_secret;
    int64_t join_timeout_ms; /* deadline of joining, and of each wait after it; default 300000 */
    /* With `servers` and a policy other than "bsp": files in which each server records the order of
     * the requests that it takes, or from which it takes them in the same order, so that the run
     * has the bits of the recorded one (docs/servers.md). The path of server i ends in ".i". An
     * existing file is not recorded over. NULL: neither. */
    const char *record, *replay;
    /* File in which each worker records the samples that it has used, for kolo_ledger_check; the
     * path of worker i ends in ".i". An existing one is refused, unless the run resumes: then it
     * goes on. NULL: none. UNSUPPORTED: with `in_memory`, or gradients that are discarded. */
    const char *ledger;
    kolo_sync sync;          /* default KOLO_SYNC_ALLREDUCE */
    const char *consistency; /* when the workers synchronize: "bsp", in every
                                step; "lag:S", in every step, for the update S steps later;
                                "local:H", "bmuf:H" or "diloco:H,fragments=P": every H steps, in
                                parts, between which each trains on its own, with ",warmup=W" after
                                W steps of bsp (docs/consistency.md);
                                servers: "bsp:drop=M": without the M latest gradients of a step,
                                "ssp:S": a worker is at most S steps ahead of another, "asp":
                                without a bound, and "auto": one of these at a time, by the times
                                of steps and the loss (docs/servers.md). NULL: bsp. The others:
                                UNSUPPORTED with `zero`, `reproducible` and `sparse_embedding`,
                                those with rounds also with `sync_bn` */
    const char *compress; /* gradients, with error feedback: "f16", "bf16", "int8", "1bit", "topk:R"
                             (kolo/codec.h); "powersgd:R", factors of rank R, 1 to 4; those of some
                             parameters, "int8,only=A,B"; "auto=int8", where it pays by times of the
                             first steps (docs/consistency.md); with bmuf and diloco, the changes of
                             a round; "1bit,warmup=N": with Adam and AdamW, after N updates, their
                             momenta, with second moments that stay (1-bit Adam); with
                             KOLO_SYNC_PS and KOLO_SYNC_MESH what workers push, without "auto",
                             "powersgd:R" and a warm-up (docs/servers.md). NULL: none.
                             UNSUPPORTED with `zero`, `reproducible`, local rounds, 1bit without a
                             warm-up with optimizers that have second moments, and with a warm-up
                             `clip` and other policies than bsp */
    int64_t compress_min_bytes; /* smaller gradients are not compressed; default 64 KiB */
    int64_t epochs, steps;      /* the run ends at the first limit reached; both 0: one epoch */
    double lr;                  /* default 0.01 */
    kolo_optimizer_opts optimizer;
    bool sparse_embedding; /* row-sparse gradients of embedding tables: a step exchanges and updates
                              only the rows of its tokens. For SGD without momentum, and Adam as
                              PyTorch's SparseAdam. ARG with weight decay, if another op reads the
                              table, or without a table */
    bool sync_bn; /* batch normalization by the samples of all workers in a micro-batch, as if one
                     worker had them; else by the worker's own. ARG for a model without; UNSUPPORTED
                     with `reproducible` */
    kolo_lr_schedule schedule;
    /* Linear scaling (Goyal et al., 2017): `lr` is for global batches of this many samples, and is
     * multiplied by the global batch over this number; 0: no */
    int64_t scale_lr;
    double lr_min;          /* end of the cosine and poly schedules; default 0 */
    double lr_power;        /* of the poly schedule; default 2 */
    double lr_step_factor;  /* default 0.1 */
    int64_t lr_step_epochs; /* default 30 */
    double warmup_epochs; /* linear warm-up to the learning rate, from the one before scaling where
                             scale_lr raises it, else from lr / steps; default 0 */
    const char *augment;  /* of training images, such as "flip,crop=2,erase=8"; NULL: none */
    /* A damaged image ends the run. Else the next one takes its place (kolo_dataset_opts), a
     * warning names it, and the result counts them. ARG with data that are checked when they are
     * opened. */
    bool strict;
    uint64_t seed; /* 0 */
    int threads;   /* of kernels, per rank; default 1 */
    /* Device that runs the kernels: "auto" or "cpu", the processor. NULL: auto. UNSUPPORTED: this
     * build has none of the kind, an op of the model has no kernel for it, or it has its own memory
     * and there is KOLO_LANES_ALL */
    const char *device;
    /* That read samples ahead of training: of each host, divided among its ranks, which have at
     * least one each. 0: one per rank; KOLO_LOADER_NO_THREAD: none, a rank reads when it needs a
     * batch. No bit depends on them. */
    int loader_threads;
    bool reference_kernels;
    bool no_winograd; /* direct convolutions only */
    /* Each elementwise operation runs by itself. Else those that follow each other run piece by
     * piece, so that what they pass on stays in the cache; no bit depends on it. */
    bool no_chains;
    kolo_lanes lanes; /* with several threads and measured times: without autotune, or a file of
                         times of lanes, there are none. KOLO_LANES_MEASURED has no effect on a
                         device with its own memory */
    kolo_autotune autotune;
    const char *tuning; /* file of measured times, read and written by rank 0; NULL: none. The times
                           that were used are also written to tuning.txt in out_dir */
    bool tuning_is_cache; /* with KOLO_AUTOTUNE_ON a file that is damaged, of another version or no
                             tuning file is replaced; without it, refused (ARG) */
    kolo_train_notice notice; /* called on rank 0, on damaged images on any rank and by any thread;
                                 may be NULL */
    void *notice_arg;
    int64_t bucket_bytes; /* default: see kolo/pass.h */
    const char *buckets;  /* of gradients: the bytes of the first ones, "1M,400K", or "auto": the
                             best by a model of the step, from times of the first steps
                             (docs/performance.md). NULL: all of bucket_bytes. UNSUPPORTED with
                             one worker, `zero`, `reproducible`, servers, a policy other than
                             bsp, `compress`, or a mesh of other axes than dp. ARG: auto, and the
                             run has fewer than 6 full steps */
    kolo_recompute recompute; /* default none */
    kolo_precision precision; /* default f32 */
    kolo_algorithm algorithm;
    const char *out_dir; /* output folder of metrics.jsonl, config.yaml and checkpoints; ARG if it
                            holds a checkpoint of another run; NULL: none */
    const char *resolved_config; /* contents of config.yaml; ARG if they begin with a comment, and
                                    the file exists and begins otherwise: it is the user's */
    const char *recipe; /* a line on where options come from: a notice at the start; NULL: none */
    const char *trace;  /* output file: the latest steps on full batches of all ranks as a Chrome
                           trace (open it in Perfetto); NULL: none */
    const char
        *tensorboard; /* output folder of a TensorBoard event file, with the numbers of
                         metrics.jsonl; NULL: none. UNSUPPORTED in a build without protobuf-c */
    /* Rank 0 serves the latest numbers at http://ADDRESS:PORT/metrics, for Prometheus. -1: a free
     * port, of which a notice informs; 0: not served. Default address: 127.0.0.1, so that only
     * programs of the same host can read them. UNSUPPORTED in a build without libmicrohttpd */
    int metrics_port;
    const char *metrics_address;
    /* Interval of resumable checkpoints, checkpoint-STEP.safetensors in out_dir, in steps, in
     * epochs or in seconds by the clock of rank 0, after the step in which they are over; all 0:
     * none. The last step writes one too. The file "latest" names the newest; the newest `keep` are
     * kept, 0: all. UNSUPPORTED: seconds with leases, `record` or `replay`. ARG: `keep` or
     * `wait_for_saves` without an interval */
    int64_t checkpoint_steps, checkpoint_epochs, keep;
    double checkpoint_seconds;
    bool wait_for_saves; /* steps wait until a checkpoint is written. Else a thread writes a copy, a
                            version more in `memory.store` of the result */
    /* The weights with the best value of this metric in the evaluations so far are kept as
     * checkpoint-best.safetensors in out_dir, the rows of `table` as tables-best.safetensors; a run
     * that is resumed, or with resume_if_any started again, replaces these files by better ones
     * only, unless they are of another metric. NULL: not. Needs evaluations during the run */
    const char *keep_best;
    /* The run ends after this many evaluations in a row without a better value of `keep_best`, or
     * without it of "loss". 0: not. Needs evaluations during the run */
    int64_t patience;
    /* Of files during the run: checkpoints, metrics.jsonl, TensorBoard's, and `join` after the loss
     * of a server. Earlier checkpoints stay, and no file is left half written. That the final
     * checkpoint cannot be written is an error in any case. Default: stop */
    kolo_save_error save_error;
    /* Asked on each rank, about once a second after a step, and on servers: true on any ends the
     * run on all, after the same step, with a resumable checkpoint in out_dir instead of an
     * evaluation and the final checkpoint. For the signal of a scheduler that takes the machine
     * back. ARG: rank 0 has no out_dir; UNSUPPORTED: with `record` or `replay`. NULL: never */
    bool (*preempted)(void *arg);
    void *preempted_arg;
    const char *resume; /* a resumable checkpoint, or a folder: its latest. The run continues after
                           that step, bitwise as without the break, or from there with another lr
                           if `notice` is set. In out_dir it replaces what follows. NULL: not */
    bool resume_if_any; /* start a new run if the folder has no checkpoint */
    int64_t eval_every, eval_steps; /* epochs, or steps, between evaluations; both 0: at the end */
    int64_t log_every;              /* steps between lines of metrics.jsonl; default 10 */
    bool no_eval;
    bool in_memory; /* benchmark: each rank trains on its share of the first global batch in every
                       step (synthetic images without `data`). No loader and no evaluation; `epochs`
                       is ignored and `steps` defaults to 100 */
    int64_t untimed_steps;         /* first steps that the result's times of steps and phases leave
                                      out, as they touch memory for the first time; if there are
                                      any, also those that try lanes; default none */
    kolo_step_time *times_by_rank; /* room for a row per worker, which the run fills; borrowed;
                                      NULL: not wanted */
    struct kolo_train_memory *memory_by_rank; /* the same, of `memory` of the result; on all
                                                 ranks or on none */
} kolo_train_opts;

/* Where the steps of a run, or a part of it, spent their time. */
typedef struct kolo_time_report {
    int64_t steps;       /* that the means cover; 0: none, and the rest is not valid */
    kolo_step_time mean; /* over the ranks */
    int slowest;         /* the rank that the others waited for: the one with the least idle time */
    int ranks;
    const kolo_step_time *by_rank; /* NULL: not kept */
} kolo_time_report;

/* Progress of a run; passed to the observer on rank 0. */
typedef struct kolo_train_progress {
    int64_t epoch, step, total_steps; /* step counts from 1 over the run */
    kolo_metrics train;               /* since the last report; with epoch_end, over the epoch */
    int64_t samples;                  /* that `train` covers; 0: its metrics are NaN */
    double samples_per_second;
    int64_t damaged;   /* as in the result, so far; with owners of parameters at checkpoints */
    kolo_metrics test; /* if `evaluated` */
    double lr;         /* of this step */
    double seconds,
        seconds_left; /* elapsed since the first step, including evaluation; estimated remaining */
    bool epoch_end;   /* the last step of an epoch or of the run; `train` covers the epoch */
    bool evaluated;
    char consistency[16];   /* with "auto": the policy now, as "ssp:3"; else "" */
    kolo_time_report times; /* with epoch_end of the epoch, else since the last line of
                               metrics.jsonl; by_rank is valid during the call */
} kolo_train_progress;

enum { KOLO_LAST_STEPS = 20 };     /* steps that the final metrics are averaged over */
enum { KOLO_STEP_QUANTILES = 21 }; /* of step times, 5 % apart */

/* What a worker allocates for its steps, in bytes: the plan of a full batch. */
typedef struct kolo_train_memory {
    int64_t store;     /* parameters and optimizer state that it alone has, all versions */
    int64_t shared;    /* parameters that the workers of the host have once, all versions */
    int64_t exchanged; /* gradients, and what else the workers exchange */
    int64_t values;    /* activations and workspace */
} kolo_train_memory;

/* The result of a run; the same on every rank except peak_rss_bytes and memory. */
typedef struct kolo_train_result {
    char model[128]; /* "mlp:hidden=4"; cut off if it is longer */
    int workers, threads;
    int64_t batch; /* samples of the largest micro-batch of a worker */
    int64_t parameters, steps;
    int64_t epochs;            /* completed */
    int64_t samples;           /* trained on, over all ranks and epochs */
    int64_t damaged;           /* of them: took the place of a damaged one */
    double first_loss;         /* training loss of the first step */
    kolo_metrics final;        /* training metrics over the last KOLO_LAST_STEPS steps */
    bool evaluated;            /* `test` was measured */
    kolo_metrics test;         /* NaN if not evaluated */
    double train_seconds;      /* in steps, including waits for data, on rank 0 */
    double samples_per_second; /* samples / train_seconds */
    double step_ms_median;     /* on rank 0 */
    double step_ms_quantiles[KOLO_STEP_QUANTILES]; /* on rank 0: its fastest step, the quantiles at
                                                      5 %, 10 %, ..., 95 %, and its slowest step;
                                                      0 without steps */
    int servers;                                   /* ranks that only serve */
    uint64_t reads[32];    /* with servers: reads of the parameters by all workers, by staleness
                              (docs/servers.md); the last: that and above */
    uint64_t delays[32];   /* and their gradients, by the updates since their read */
    char consistency[192]; /* with "auto": "bsp, from step 18 on asp", as this rank has found
                              it; cut off if it is longer */
    uint64_t parts;        /* of pushes, that all workers have sent during backward passes */
    uint64_t sent_bytes, received_bytes; /* with servers: by all workers, to and from other hosts,
                                            for gradients and parameters */
    uint64_t table_ahead;    /* reads of rows that began in the step before, of all workers */
    kolo_table_stats table;  /* with `table`: of the rows of all tables (kolo/table.h) */
    int64_t peak_rss_bytes;  /* of this process, with what it has used of `memory.shared` */
    uint64_t parameter_hash; /* of the final parameters and optimizer state */
    int64_t losses_checked;  /* in_memory: number of initial steps repeated with batches of the
                                loader, whose losses were bitwise equal; else 0 */
    /* The best evaluation, with `keep_best` (that of the weights in the folder) or `patience`: name
     * and value of the metric, and the step, 0: there was none. */
    char best_metric[32];
    double best_value;
    int64_t best_step;
    bool stopped_early;     /* for lack of patience, before the last step asked for */
    bool preempted;         /* the run can be resumed: see the option */
    kolo_time_report times; /* of this process, not of the run that it resumed; by_rank: the option
                               times_by_rank */
    kolo_train_memory memory;
    const kolo_train_memory *memory_by_rank; /* of `workers` workers, the option memory_by_rank;
                                                NULL without it, after the loss of a worker, and of
                                                a process that has joined */
    char unshared[80]; /* why the workers share no parameters; "": they do, or there is one */
    /* Ranks that died, as in "rank 2 after 113 steps" or "server rank 4"; "": none. After the loss
     * of a worker `damaged`, `reads`, `delays` and `parts` are those of rank 0, and replicas are
     * not compared any more. */
    char lost[160];
    int stage_moves;  /* with rebalance_stages: how often layers moved to other stages, */
    char stages[256]; /* and the parameters that the stages but the first begin with in the end, as
                         in "h.1.ln_1.weight"; cut off if it is longer */
} kolo_train_result;

/* Called on rank 0 about ten times a second and at the end of epochs; must return quickly. */
typedef void (*kolo_train_observer)(void *arg, const kolo_train_progress *progress);

/* Validates the options for `workers` ranks without starting them: value ranges, the model, the
 * data set and its fit to the model, the number of samples, write access to out_dir (which is
 * created). Status and message are those of kolo_train. */
KOLO_API kolo_status kolo_train_check(const kolo_train_opts *opts, int workers);

/* Whether a job goes on without workers that die, other than rank 0: with servers apart from the
 * workers, and asp, ssp:S or bsp:drop=M, unless it is a replay. False for invalid options. */
KOLO_API bool kolo_train_outlives_workers(const kolo_train_opts *opts);

/* Whether a run can save and end upon `preempted`: it has out_dir and no tables, and is
 * neither recorded nor replayed. False for invalid options. */
KOLO_API bool kolo_train_can_be_preempted(const kolo_train_opts *opts);

/* Runs a training job as this rank of `comm` (NULL: a single rank) and blocks until it is done.
 * Rank 0 writes config.yaml, metrics.jsonl and checkpoints during the run, and
 * checkpoint-final.safetensors and loss.svg, a curve of the losses, at the end. A line of
 * metrics.jsonl of event "train" has the means over the last log_every steps (at most
 * KOLO_LAST_STEPS), one of event "epoch" those over the epoch ("epoch_loss"). `observer` may be
 * NULL. The result of a resumed run covers the whole run, except step_ms_median. ARG: as
 * kolo_train_check; DIVERGED: the loss is NaN, infinite or far above that of uniform guesses, or a
 * parameter is not finite when a checkpoint is due, which is then not written; or a benchmark
 * computed other losses than training; FORMAT, IO: data or files; PEER: a rank failed, or the ranks
 * ended with different parameters. */
KOLO_API kolo_status kolo_train(kolo_comm *comm, const kolo_train_opts *opts,
                                kolo_train_observer observer, void *arg, kolo_train_result *result);

/* A zero field takes its default. */
typedef struct kolo_eval_opts {
    const char *checkpoint, *data; /* required */
    /* Of a file that does not state it, with the tensor names of Kolo, torchvision or Hugging Face;
     * NULL: that of the checkpoint. */
    const char *model, *model_options;
    bool split_train;       /* the training split of the data instead of the test split */
    int64_t batch;          /* samples per rank; 64 */
    int threads;            /* of kernels, per rank; 1 */
    int loader_threads;     /* as in kolo_train_opts */
    const char *device;     /* as in kolo_train_opts */
    kolo_autotune autotune; /* this and the rest as in kolo_train_opts */
    const char *tuning;
    bool tuning_is_cache;
    kolo_train_notice notice;
    void *notice_arg;
} kolo_eval_opts;

/* Evaluates a checkpoint on a split of `data`, divided among the ranks of `comm` (NULL: a single
 * rank). In the result, `steps` and `epochs` are those of the checkpoint, `samples` and
 * samples_per_second are of the evaluation; training times are 0 and training metrics NaN.
 * FORMAT: not a checkpoint, or its tensors do not match its model; ARG: data of another shape. */
KOLO_API kolo_status kolo_evaluate(kolo_comm *comm, const kolo_eval_opts *opts,
                                   kolo_train_result *result);

/* An output of the model for some samples of a data set; valid during the call. */
typedef struct kolo_prediction {
    int64_t first, count;  /* samples, in the order of the data */
    kolo_shape shape;      /* of one sample's values: [classes]; [T,classes] of a language model */
    const float *values;   /* [count, shape] */
    kolo_shape label;      /* of one sample's labels: [], [T], [H,W] */
    const int32_t *labels; /* [count, label]; NULL where targets are numbers */
} kolo_prediction;

/* Receives the predictions batch by batch. An error ends kolo_predict with it. */
typedef kolo_status kolo_prediction_sink(void *arg, const kolo_prediction *prediction);

/* A zero field takes its default. */
typedef struct kolo_predict_opts {
    const char *output; /* of the graph; default "logits" */
    int64_t samples;    /* the first this many; default all */
    const char *out;    /* a safetensors file of the output [samples, shape], under its name, and
                           the i32 "labels"; NULL: none */
    kolo_prediction_sink *sink; /* may be NULL */
    void *arg;
} kolo_predict_opts;

/* Computes an output of a trained model for the samples of a data set, as in evaluation, on this
 * process alone. The errors of kolo_evaluate; FORMAT: a value is NaN; ARG: no such output, or one
 * that is no value of each sample (the loss); IO: `out` cannot be written. */
KOLO_API kolo_status kolo_predict(const kolo_eval_opts *model, const kolo_predict_opts *opts);

/* Receives generated tokens one by one. An error ends kolo_generate with it. */
typedef kolo_status kolo_token_sink(void *arg, int32_t token);

/* A zero field takes its default. */
typedef struct kolo_generate_opts {
    const char *checkpoint; /* required */
    const char *model,
        *model_options;    /* of weights of another program; default: the checkpoint's */
    const int32_t *prompt; /* [prompt_length], required */
    int64_t prompt_length;
    bool bytes;         /* tokens are bytes: ARG if the vocabulary is not of 256 */
    int64_t tokens;     /* to generate; default 100 */
    double temperature; /* logits are divided by it; 0: the most probable token is taken */
    int64_t top_k;      /* tokens to draw from, the most probable ones; default all */
    uint64_t seed;
    int threads;       /* default 1 */
    bool whole_window; /* compute the whole window for each token */
    kolo_token_sink *sink;
    void *arg;
} kolo_generate_opts;

/* Continues a prompt with a trained language model (gpt2, llama, lstm_lm), on this process alone:
 * each token is drawn from softmax(logits / temperature) of the token before it, and depends on the
 * options only. Of a longer text the model sees its window. The keys and values of the tokens in
 * the window are kept: a token costs a forward pass of that token, and once the window is full,
 * when all tokens move, one of the window. With whole_window every token does; lstm_lm, and all
 * models in which other layers than causal kolo_attention see several tokens, need that. IO,
 * FORMAT: the checkpoint cannot be read, or a logit is NaN; ARG: it is of no language model, the
 * model needs whole_window, or an option is out of range. */
KOLO_API kolo_status kolo_generate(const kolo_generate_opts *opts);

#ifdef __cplusplus
}
#endif

#pragma once
/* Training sessions: a program builds its own graph, and trains it with its own data and loop.
 *
 *     static kolo_status build(kolo_graph *g, int64_t samples, void *arg) {
 *         kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_2(samples, 8));
 *         kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(samples));
 *         kolo_value w = kolo_param(g, "w", kolo_shape_2(3, 8), kolo_init_fan_in(8));
 *         kolo_value logits = kolo_linear(g, x, w);
 *         kolo_output(g, "logits", logits);
 *         kolo_output(g, "loss", kolo_softmax_xent(g, logits, y));
 *         return KOLO_OK;
 *     }
 *
 *     kolo_session_opts opts = {.batch = 32, .lr = 0.1};
 *     KOLO_TRY(kolo_session_create(comm, &opts, build, NULL, &session));
 *     const kolo_field fields[] = {{.name = "x", .dtype = KOLO_DTYPE_F32, .shape = {1, {8}}},
 *                                  {.name = "y", .dtype = KOLO_DTYPE_I32}};
 *     kolo_batch batch = {.count = 32, .n_fields = 2, .fields = fields, .data = {x, y}};
 *     for (int k = 0; k < steps; k++) {
 *         ...                                              // fill x and y
 *         KOLO_TRY(kolo_session_step(session, &batch, &metrics));
 *     }
 *
 * The graph. Every input has the samples as its first dimension, and is filled by the field of its
 * name. The scalar output "loss" is trained; it is a sum over the samples or their labels, as the
 * losses of kolo/graph.h are. Step divides it by the number of labels of the global batch: those
 * that the cross-entropies of the graph read, without ignored ones and those below 0; by the number
 * of samples if there are none, or in several inputs. The loss in the metrics and the gradients are
 * thus those of the mean. "correct" (kolo_accuracy) adds the metric "accuracy"; other rows of the
 * table in kolo/metric.h name their outputs. Any other output can be predicted.
 *
 * Ranks. With a communicator, each rank gives its samples of a step, and parameters are equal on
 * all ranks after it. The functions marked *collective* are called by all ranks in one order; ARG
 * in callbacks that rank 0 alone runs. Where they fail because of an argument, they fail on all
 * ranks with the same status; ranks other than N, where the error occurred, prefix the message with
 * "rank N: ". PEER and TIMEOUT: the group broke; parameters are those before the call.
 *
 * Meshes. Where `mesh` has another axis than dp with several ranks, these divide the model, and the
 * ranks that differ on such axes alone compute with the same samples: each passes the same batch
 * with all of its fields, whether its part of the model reads them or not. A share is that of a
 * place on dp (kolo_session_share). kolo_session_step, _evaluate and _predict compare what is
 * passed, but for batches of a loader: ARG if it differs. On such a mesh these functions, _get and
 * _get_gradient are collective; numbers are those of whole tensors on every rank. An error in a
 * run, step, evaluation or prediction other than of its arguments ends the session: further calls
 * fail. A number of samples that the builder refuses, or that the mesh cannot divide, is an
 * argument.
 *
 * Rounds. With `consistency` local:H, bmuf:H or diloco:H the ranks train parameters of their own
 * between rounds, with a warm-up ("diloco:H,warmup=W") after W steps. kolo_session_get, _predict
 * and _evaluate read those of this rank; kolo_session_save, _export_onnx, _evaluate_dataset and the
 * end of kolo_fit make them the mean over the ranks until the next step, which goes on with those
 * of the rank. Parameters are set, and files loaded, before the first step on their own
 * (UNSUPPORTED: later).
 *
 * Servers. With `sync` ps or mesh owners of the parameters make the updates (docs/servers.md): the
 * workers, each of a part, or `servers` ranks of their own, the last ones, whose sessions have one
 * use:
 *
 *     KOLO_TRY(kolo_session_create(comm, &opts, build, NULL, &session));
 *     if (kolo_session_is_server(session)) {
 *         status = kolo_session_serve(session);            // until all workers have ended
 *     } else {
 *         ...                                              // steps, kolo_fit
 *     }
 *     kolo_session_destroy(session);
 *
 * "Ranks" and "all ranks" then are the workers, except for kolo_session_create. All other functions
 * fail on a server (ARG). The owners begin with the parameters, the schedule and the number of
 * steps of the workers; kolo_session_set, _set_lr, _load, _load_partial and a kolo_fit that resumes
 * change these at the owners too, between two steps. With `consistency` "bsp" all is as without
 * servers: kolo_session_step is collective, and a batch that is refused on one worker is refused on
 * all, which go on. With the other policies a step is of this worker alone, as are its metrics:
 * those of the steps of all workers that it has not reported yet, without values if there are none.
 * A batch that is refused is an error of this worker alone, and workers may make different numbers
 * of steps, except before kolo_fit; the bound of "ssp:S" counts them from the latest collective
 * call, and no step waits for a worker that is in one. kolo_session_get, _predict and _evaluate
 * read what the owners have now, and need no other worker, except for optimizer state;
 * kolo_session_save, _evaluate_dataset, _set and the others that are collective let all workers
 * meet first, so that all have the same parameters. Any other error in a step ends the session:
 * further calls fail, and the steps of the others do (PEER). So does the loss of a worker or a
 * server. UNSUPPORTED: f64, keep_gradients, and of the policies rounds, leases and groups.
 *
 * Sizes. A plan is compiled for each batch size, when it first occurs; a program should use few.
 *
 * A session belongs to one thread at a time. ARG for NULL where it is not allowed. */

#include "kolo/comm.h"
#include "kolo/data.h"
#include "kolo/graph.h"
#include "kolo/metric.h"
#include "kolo/pass.h"
#include "kolo/train.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kolo_session kolo_session;

/* Adds a model for batches of `samples` to an empty graph. Called with several sizes, with 1 first;
 * parameters must not depend on the size. `arg` is that of kolo_session_create. Failures of the
 * graph's functions need no check; an error returned here is that of the session's call. */
typedef kolo_status kolo_build(kolo_graph *g, int64_t samples, void *arg);

/* A zero field takes its default. The same on all ranks. */
typedef struct kolo_session_opts {
    int64_t batch;        /* samples of this rank in a step or micro-batch; default 64 */
    int64_t accumulate;   /* micro-batches of a full step; default 1 */
    int64_t global_batch; /* samples of a full step over all ranks, in place of `batch` */
    int64_t reproducible; /* logical shards, see kolo_train_opts; needs global_batch; 0: none */
    int64_t tp_blocks;    /* of tensor parallelism, see kolo_train_opts; 0: none */
    /* See kolo_train_opts for these. Layers move to other stages in runs of kolo_fit; the weights
     * are those of the stages of a pipeline: those of shards are an option of kolo_fit. Strings are
     * copied. */
    const char *mesh, *pipeline, *placement, *worker_weights;
    int64_t stage_bytes, rebalance_stages;
    uint64_t seed;                 /* of the initial parameters, dropout and loaders */
    int threads;                   /* of kernels, per rank; default 1 */
    const char *device;            /* see kolo_train_opts; borrowed by kolo_session_create */
    int loader_threads;            /* see kolo_train_opts */
    kolo_optimizer_opts optimizer; /* default SGD */
    bool sparse_embedding;         /* see kolo_train_opts */
    bool sync_bn;                  /* see kolo_train_opts */
    int zero;                      /* see kolo_train_opts */
    /* Who sums gradients and updates parameters, and ranks that only do that: see kolo_train_opts,
     * and Servers above. The same on all ranks, servers included. */
    kolo_sync sync;
    int servers;
    /* When the ranks synchronize, "lag:S", "local:H", "bmuf:H" or "diloco:H" with their keys, with
     * owners of the parameters "bsp:drop=M", "ssp:S", "asp" or "auto", and how they compress what
     * they exchange, "int8", "topk:R", "auto" or "1bit,warmup=N": see kolo_train_opts, and Rounds
     * and Servers above. The first full steps of a session with compression "auto" are measured,
     * and those of a warm-up are counted from step 0, those before a load included. Copied; NULL:
     * "bsp", "none". UNSUPPORTED: either with f64 or keep_gradients. */
    const char *consistency, *compress;
    int64_t compress_min_bytes; /* see kolo_train_opts */
    double lr;                  /* default 0.01 */
    /* The schedule of kolo_train_opts, counted in steps: a step schedule multiplies the rate every
     * lr_step_every steps (default 30); `steps` is the end of cosine and poly, which require it. */
    kolo_lr_schedule schedule;
    double lr_min, lr_power, lr_step_factor;
    int64_t lr_step_every, warmup_steps, steps;
    kolo_precision precision;
    kolo_recompute recompute;
    kolo_algorithm algorithm;
    int64_t bucket_bytes; /* default: see kolo/pass.h */
    bool reference_kernels;
    bool no_winograd;
    bool no_chains; /* see kolo_train_opts */
    /* Parameters and values in f64, by the reference kernels: to check a network or another
     * implementation of it. Fields of its f32 inputs are f64, as outputs are. Not for data sets,
     * kolo_fit and ONNX files. */
    bool f64;
    bool keep_gradients; /* for kolo_session_get_gradient; takes memory for all of them */
    bool evaluate_only;  /* forward passes alone: no step, no gradients, no "loss" needed */
} kolo_session_opts;

/* Builds the model, compiles the plan of a full step, and draws the parameters from the seed.
 * `comm` is borrowed until the session is destroyed; NULL: a single rank. `opts` may be NULL, and
 * is copied; `arg` must stay valid as long as the session. Collective. ARG: an option out of range,
 * a graph that cannot be trained, or options or graphs that differ between ranks; UNSUPPORTED;
 * NOMEM; the builder's errors. */
KOLO_API kolo_status kolo_session_create(kolo_comm *comm, const kolo_session_opts *opts,
                                         kolo_build *build, void *arg, kolo_session **session);
/* Not collective. NULL is allowed. On ranks that own parameters it blocks until all workers have
 * destroyed their sessions, or are lost. */
KOLO_API void kolo_session_destroy(kolo_session *session);

/* Whether this rank is a server: see Servers above. */
KOLO_API bool kolo_session_is_server(const kolo_session *session);
/* On a server: blocks until all workers have destroyed their sessions; a thread of the library
 * serves them from the creation on. ARG: this rank is a worker; PEER: a worker was lost or ended
 * after an error, which it names, or the program was interrupted (kolo_comm_opts). */
KOLO_API kolo_status kolo_session_serve(kolo_session *session);

/* ---- training ---- */

/* The samples [*first, *first + *count) of a step of `samples` over all ranks that are this rank's:
 * as equal as possible, in the order of ranks, on a mesh of their places on dp; with `reproducible`
 * those of its logical shards. */
KOLO_API kolo_status kolo_session_share(const kolo_session *session, int64_t samples,
                                        int64_t *first, int64_t *count);

/* One optimizer step. The batch has this rank's share of the samples of all ranks
 * (kolo_session_share): equal numbers, or one more on the first ranks. It may be smaller than a
 * full step, or larger, which adds micro-batches. Fields that the graph does not read are ignored;
 * u8 may fill an f32 input (kolo_field). `metrics`, which may be NULL, are over all ranks, before
 * the update. Blocks until the parameters are updated. Collective: one small exchange for the
 * sizes, except for batches of a loader, and those of the plan. ARG: a missing field, or one of
 * another type or shape; a label outside the classes; shares that are not equal on the ranks; other
 * samples on ranks of a mesh that need the same. PEER: of a batch of a loader another rank has a
 * label outside the classes, which ends the group. */
KOLO_API kolo_status kolo_session_step(kolo_session *session, const kolo_batch *batch,
                                       kolo_metrics *metrics);
/* Starts a loader of the batches of full steps over `dataset`, this rank's share of each, shuffled
 * by the seed: from the step of the session on to the end of epoch `epochs`, counted from step 0.
 * `augment` is that of kolo_train_opts, of u8 images in field 0 with i32 labels in field 1; NULL:
 * none. The data set is borrowed. Free with kolo_loader_destroy, before the session. Not
 * collective, but all ranks need the same samples. ARG: a bad option; more ranks, or places on dp,
 * than samples; no steps are left; IO: no thread. */
KOLO_API kolo_status kolo_session_loader(const kolo_session *session, const kolo_dataset *dataset,
                                         const char *augment, int64_t epochs, kolo_loader **loader);
/* Steps completed, including those before a load. */
KOLO_API int64_t kolo_session_steps(const kolo_session *session);

/* The learning rate of the next step. */
KOLO_API double kolo_session_lr(const kolo_session *session);
/* Sets the learning rate of all further steps in place of the schedule; must be equal on all ranks.
 * ARG: not above 0. With servers rank 0 sets it at the owners, for its next push and all after
 * that; PEER, TIMEOUT. */
KOLO_API kolo_status kolo_session_set_lr(kolo_session *session, double lr);

/* ---- runs ---- */

/* Called on rank 0 after each epoch and evaluation; true ends the run on all ranks, after an
 * evaluation and with all files of a finished run. */
typedef bool kolo_fit_stop(void *arg, const kolo_train_progress *progress);

/* A zero field takes its default; the same on all ranks except callbacks. The fields with the names
 * of kolo_train_opts are those. */
typedef struct kolo_fit_opts {
    int64_t epochs, steps;        /* counted from step 0 of the session; both 0: one epoch */
    kolo_train_observer observer; /* on rank 0; may be NULL */
    kolo_fit_stop *stop;          /* NULL: the run ends at its limit */
    /* Asked after each step, on each rank: true ends the run on all ranks with PEER ("interrupted
     * by the user"). NULL: never. Waits for other ranks ask that of kolo_comm_opts. */
    bool (*interrupted)(void *arg);
    bool (*preempted)(void *arg); /* as in kolo_train_opts */
    void *arg;                    /* of the four */
    const char *augment;
    const char *out_dir; /* metrics.jsonl, loss.svg, checkpoints; NULL: no files */
    int64_t checkpoint_steps, checkpoint_epochs, keep;
    double checkpoint_seconds;
    bool wait_for_saves;
    const char *keep_best;
    int64_t patience;
    kolo_save_error save_error;
    const char *resume;
    bool resume_if_any;
    int64_t eval_every, eval_steps, log_every;
    int64_t audit, check_replicas;
    const char *worker_weights;
    const char *trace;
    const char *tensorboard;
    int metrics_port;
    const char *metrics_address;
    kolo_train_notice notice;
    void *notice_arg;
    bool no_cross_step;
} kolo_fit_opts;

/* Trains a session on a data set, as kolo_train does: from the step of the session on, in shuffled
 * epochs, with reports, evaluations on `test` (NULL: none), checkpoints and resuming. `opts` and
 * `result` may be NULL. Blocks until the run ends; further steps and runs may follow. Schedules
 * count in steps. Unless `no_cross_step`, some updates run in the next step; what reads the session
 * in a callback completes them, and so does the end. Collective. ARG: an option, fields that do not
 * fit the model, a limit that the session has reached, or workers that have made different numbers
 * of steps (see Servers above); the errors of kolo_train. */
KOLO_API kolo_status kolo_fit(kolo_session *session, const kolo_dataset *train,
                              const kolo_dataset *test, const kolo_fit_opts *opts,
                              kolo_train_result *result);

/* ---- evaluation ---- */

/* The metrics of a batch of any number of samples of this rank, with dropout off and the running
 * statistics of batch normalization. Not collective, except with `zero` 3 or a mesh of other axes
 * than dp, where a rank has a part of the parameters. ARG: as for a step, but for the shares; a
 * batch without samples. With servers: PEER, TIMEOUT. */
KOLO_API kolo_status kolo_session_evaluate(kolo_session *session, const kolo_batch *batch,
                                           kolo_metrics *metrics);

/* The metrics over all samples of a data set, divided among the ranks. Collective. ARG: as for a
 * step. */
KOLO_API kolo_status kolo_session_evaluate_dataset(kolo_session *session,
                                                   const kolo_dataset *dataset,
                                                   kolo_metrics *metrics);

/* Computes the output `output` of the graph for a batch, as in evaluation, and copies it to `data`,
 * row-major, `bytes` long. Fields that this output does not depend on, such as labels, may be
 * missing. `shape` may be NULL, else it is set to the shape of the output; with `data` NULL that is
 * all. Outputs are f32 (with `f64` f64) unless the graph computes another type. Not collective,
 * except as kolo_session_evaluate; then all ranks pass `data`, or none does, and every rank gets
 * the output for its share of the samples, also of layers that other ranks have. ARG: no such
 * output; `bytes` is not its size (the message has shape and size). */
KOLO_API kolo_status kolo_session_predict(kolo_session *session, const kolo_batch *batch,
                                          const char *output, void *data, size_t bytes,
                                          kolo_shape *shape);

/* ---- parameters ---- */

/* Describes tensor `i` of the session, from 0: parameters and statistics by the names of the graph,
 * and the optimizer's state by names "optimizer.*". The name is valid as long as the session. ARG:
 * there are only `i` tensors or fewer. */
KOLO_API kolo_status kolo_session_tensor(const kolo_session *session, int i, kolo_field *tensor);
/* Copies a tensor to `data`, row-major, `bytes` long. Not collective, except for what ranks divide:
 * with `zero` and with servers optimizer state, on level 3 parameters; on a mesh of other axes than
 * dp everything.
 * ARG: no such tensor (the message suggests one), or `bytes` is not its size. */
KOLO_API kolo_status kolo_session_get(const kolo_session *session, const char *name, void *data,
                                      size_t bytes);
/* Sets a tensor on all ranks to the `data` of rank 0; other ranks may pass NULL. Collective. ARG:
 * as kolo_session_get, or a value is not finite. */
KOLO_API kolo_status kolo_session_set(kolo_session *session, const char *name, const void *data,
                                      size_t bytes);
/* Copies the gradient of a parameter in the latest step to `data`: of the mean loss over all ranks,
 * before clipping and weight decay. The session has the option keep_gradients. Not collective,
 * except on a mesh of other axes than dp. ARG: also before the first step, and if the loss does not
 * depend on the parameter. */
KOLO_API kolo_status kolo_session_get_gradient(const kolo_session *session, const char *name,
                                               void *data, size_t bytes);

/* ---- files ---- */

/* Writes parameters, statistics, optimizer state and the number of steps to a safetensors file, on
 * rank 0, or where ranks divide tensors (`zero`, `mesh`) on all ranks, which share the folder; the
 * file is replaced at once when it is complete. It has whole tensors, and loads with any `zero` and
 * mesh. Collective. IO; DIVERGED: a value is not finite; the file is then not written. */
KOLO_API kolo_status kolo_session_save(kolo_session *session, const char *path);
/* Writes the output "logits" of the graph with its parameters, for evaluation and any number of
 * samples, to an ONNX file, on rank 0. Collective. UNSUPPORTED: an op that ONNX does not have, or a
 * build without protobuf-c. IO, NOMEM. */
KOLO_API kolo_status kolo_session_export_onnx(kolo_session *session, const char *path);
/* Reads such a file on rank 0 and sets all ranks to it: training continues as if it had not been
 * interrupted, with the same bits if batches and ranks are the same. Where ranks divide tensors all
 * of them read the file. Of a file without optimizer state, such as one of PyTorch with the names
 * of the graph, the weights alone, and each rank stays at its step; f64, f16 and bf16 are
 * converted. Collective. IO; FORMAT: a tensor is missing, unexpected, or of another shape, or the
 * file is damaged; the session is then as before. */
KOLO_API kolo_status kolo_session_load(kolo_session *session, const char *path);
/* Loads the weights that the file has under the names and with the shapes of the graph, and keeps
 * the others. *rest, which may be NULL, is set to lines of the tensors that were not loaded, "" if
 * there are none; free it with kolo_checkpoint_text_free. Optimizer state is not loaded.
 * Collective. IO; FORMAT: the file is damaged, or nothing fits. */
KOLO_API kolo_status kolo_session_load_partial(kolo_session *session, const char *path,
                                               char **rest);

#ifdef __cplusplus
}
#endif

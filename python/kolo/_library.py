"""The declarations of include/kolo/*.h that Python uses, as text.

They are C: _bindings.py derives the types and functions of ctypes from them, and
tests/python/test_layout.py has a C compiler compare them with the headers.
"""

from __future__ import annotations

import sys
from typing import Dict, Optional, Tuple

# An enumeration with a function kolo_..._name below has the names that the function returns. Others are
# declared here: names that Python has for constants (their prefix, names in order), ...
CONSTANTS: Dict[str, Tuple[str, Tuple[str, ...]]] = {
    "kolo_collective": ("KOLO_COLLECTIVE_",
                        ("allreduce", "broadcast", "barrier", "reduce", "reduce_scatter",
                         "allgather", "gather", "scatter", "alltoall", "send", "recv")),
    "kolo_init_kind": ("KOLO_INIT_", ("zero", "one", "uniform", "normal")),
    "kolo_grid_mode": ("KOLO_GRID_", ("bilinear", "nearest", "bicubic")),
    "kolo_grid_padding": ("KOLO_GRID_", ("zeros", "border", "reflection")),
}
# ... names that the library parses, and suggests in its errors, ...
PARSED = {"kolo_algorithm": "kolo_algorithm_parse",
          "kolo_transport_choice": "kolo_transport_parse"}
# ... and enumerations whose names Python does not use.
NUMBERS = ("kolo_status", "kolo_codec_kind", "kolo_metric_denominator", "kolo_metric_format",
           "kolo_metric_better", "kolo_notice_kind")

STATUSES = ("KOLO_OK", "KOLO_ERR_ARG", "KOLO_ERR_NOMEM", "KOLO_ERR_IO", "KOLO_ERR_FORMAT",
            "KOLO_ERR_UNSUPPORTED", "KOLO_ERR_TIMEOUT", "KOLO_ERR_PEER", "KOLO_ERR_DIVERGED")

# Structures and types of functions. Arrays have their length in numbers.
TYPES = """
typedef bool interrupted(void *arg);

struct kolo_codec { kolo_codec_kind kind; double ratio; };
struct kolo_part { uint32_t tree_node; void *data; size_t count; };
struct kolo_comm_opts {
    int rank, world, local_rank, local_world; const char *master_addr; int master_port;
    const char *secret_file; int64_t timeout_ms; kolo_algorithm algorithm; int64_t segment_bytes;
    kolo_transport_choice transport; const char *interface; int64_t heartbeat_ms; bool insecure, encrypt, authenticate;
    uint32_t generation; int report_signal, report_fd, max_in_flight; bool progress_thread;
    interrupted *interrupted; void *interrupted_arg;
};
typedef kolo_status user_combine(void *arg, void *to, const void *from, size_t count);
struct kolo_user_op {
    const char *name; user_combine *combine; void *arg; size_t element_bytes; bool commutative;
};
struct kolo_request_opts {
    kolo_collective kind; kolo_dtype dtype; kolo_reduce_op op; const kolo_user_op *user_op;
    const void *input; void *output; size_t count; const size_t *counts, *output_counts;
    const kolo_part *parts; int n_parts;
    int root, tag; double prescale, postscale; int shards; kolo_algorithm algorithm;
    int priority; const char *site;
};
typedef kolo_status kolo_share(void *arg, char *text, size_t bytes, int64_t timeout_ms);
struct kolo_peer_traffic { uint64_t sent_bytes, received_bytes, sends, receives; };
struct kolo_message { int from, tag; kolo_dtype dtype; size_t count; };
struct kolo_comm_event {
    uint64_t id; int64_t ns; bool ends, failed; kolo_collective kind; int peer; size_t bytes;
    const char *name, *title, *algorithm;
};
typedef void kolo_comm_hook(void *arg, const kolo_comm_event *event);

typedef void on_stall(void *arg, const char *report);
struct kolo_named_opts {
    size_t fusion_bytes; int64_t cycle_us, stall_ms; on_stall *on_stall; void *arg;
};
struct kolo_reducer_opts { size_t bucket_bytes; bool sum; kolo_codec codec; bool join; };

struct kolo_shape { int rank; int64_t dim[6]; };
struct kolo_value { int32_t id; uint32_t graph; };
struct kolo_graph_opts { kolo_dtype dtype; };
struct kolo_init { kolo_init_kind kind; double scale; };
struct kolo_conv2d_opts {
    int64_t stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups;
};
struct kolo_conv_transpose2d_opts {
    int64_t stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups;
    int64_t output_pad_h, output_pad_w;
};
struct kolo_conv1d_opts { int64_t stride, pad, dilation, groups; };
struct kolo_conv3d_opts {
    int64_t stride_d, stride_h, stride_w, pad_d, pad_h, pad_w;
    int64_t dilation_d, dilation_h, dilation_w, groups;
};
struct kolo_recurrent_opts { bool reverse, bidirectional; kolo_value h, c; bool use_state; };
struct kolo_grid_sample_opts { kolo_grid_mode mode; kolo_grid_padding padding; bool align_corners; };
struct kolo_pool3d_opts {
    int64_t kernel_d, kernel_h, kernel_w, stride_d, stride_h, stride_w, pad_d, pad_h, pad_w;
    bool ceil, exclude_padding;
};
struct kolo_pool2d_opts {
    int64_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w; bool ceil, exclude_padding;
};
struct kolo_lrn_opts { int64_t size; double alpha, beta, k; };
struct kolo_batch_norm_opts { double eps, momentum; };
struct kolo_mask_opts { int64_t count, mask, vocabulary; bool pairs; };
struct kolo_attention_opts {
    int64_t heads; bool causal; kolo_value mask; bool use_mask; double dropout;
};
struct kolo_cross_attention_opts {
    int64_t heads, kv_heads; bool causal; int64_t window; double scale; kolo_value bias; bool use_bias;
};
struct kolo_loss_opts {
    bool has_ignore_index; int32_t ignore_index; double smoothing; kolo_value weights; bool use_weights;
};
struct kolo_ctc_opts { int64_t blank; kolo_value lengths; bool use_lengths; };

struct kolo_custom_tensor { kolo_dtype dtype; kolo_shape shape; };
struct kolo_custom_shapes { const double *attr; const kolo_custom_tensor *in; kolo_custom_tensor *out; };
struct kolo_custom_call {
    const double *attr; const kolo_custom_tensor *in, *out; void **in_data, **out_data; void *scratch; int threads;
};
struct kolo_custom_node { const double *attr; const kolo_value *in, *out; };
typedef kolo_status kolo_custom_shape(const kolo_custom_shapes *s);
typedef void kolo_custom_run(const kolo_custom_call *call);
typedef void kolo_custom_grad(kolo_graph *g, const kolo_custom_node *n, const kolo_value *d_out,
                              const bool *wants, kolo_value *d_in);
struct kolo_custom_op {
    int version; const char *name; int n_in, n_out; kolo_custom_shape *shape; kolo_custom_run *run;
    void *attrs; const char *index; unsigned linear; kolo_custom_grad *grad; void *flops, *scratch_bytes;
};

struct kolo_field {
    const char *name; kolo_dtype dtype; kolo_shape shape; float mean[16], std[16];
};
struct kolo_dataset_info {
    const char *name, *place; kolo_split split; int64_t count; int classes, n_fields;
    kolo_field fields[32];
};
struct kolo_batch {
    int64_t count; int n_fields; const kolo_field *fields; const void *data[32];
    int64_t global_count, first, epoch, step, damaged; const int64_t *indices;
};
struct kolo_dataset_opts {
    int64_t context, vocabulary; bool pairs; int64_t first, separator, numbers, categories, rows, features;
    void *warn; void *warn_arg;
};
typedef kolo_status kolo_read_samples(void *arg, const int64_t *indices, int64_t n,
                                      void *const *data);
struct kolo_source {
    const char *name; int64_t count; int n_fields; const kolo_field *fields;
    const void *data[32]; kolo_read_samples *gather; void *arg; int classes;
};

struct kolo_metrics { double value[16]; };
struct kolo_metric {
    const char *name, *output; kolo_metric_denominator per; void *reduce; int64_t rows; void *derive;
    kolo_metric_better better;
    bool tokens_only, every_model, final, part_of_loss; const char *group, *label, *bar;
    kolo_metric_format format;
};

struct kolo_model_opts { int64_t batch; kolo_shape sample; int64_t classes; const char *options; };
typedef kolo_status kolo_model_windows(const char *options, kolo_dataset_opts *windows);
typedef kolo_status kolo_model_build(kolo_graph *g, const kolo_model_opts *opts);
struct kolo_model {
    const char *name, *summary, *recipe, *recipe_source, *options_help; kolo_shape sample;
    int64_t classes;
    bool label_maps; kolo_model_windows *windows; kolo_model_build *build; void *build_file;
    const void *file; kolo_dataset_opts window;
};

struct kolo_optimizer_opts {
    kolo_optimizer kind; double momentum; int64_t delay; double ahead, beta1, beta2, eps, trust, weight_decay;
    bool decay_matrices_only; const char *no_decay; bool scale_matrices_only;
    const char *no_scale; double clip; const char *freeze;
};
struct kolo_step_time { double ms[9]; };
struct kolo_time_report {
    int64_t steps; kolo_step_time mean; int slowest, ranks; const kolo_step_time *by_rank;
};
struct kolo_train_progress {
    int64_t epoch, step, total_steps; kolo_metrics train; int64_t samples;
    double samples_per_second; int64_t damaged; kolo_metrics test; double lr, seconds, seconds_left;
    bool epoch_end, evaluated; char consistency[16]; kolo_time_report times;
};
struct kolo_train_memory {
    int64_t store, shared, exchanged, values;
};
struct kolo_table_stats {
    uint64_t rows, room, waiting, version, gradients, created, restored, early, refused, evicted, expired,
        forgotten;
};
struct kolo_train_result {
    char model[128]; int workers, threads; int64_t batch, parameters, steps, epochs, samples, damaged;
    double first_loss; kolo_metrics final; bool evaluated; kolo_metrics test;
    double train_seconds, samples_per_second, step_ms_median, step_ms_quantiles[21]; int servers; uint64_t reads[32], delays[32];
    char consistency[192]; uint64_t parts, sent_bytes, received_bytes, table_ahead; kolo_table_stats table;
    int64_t peak_rss_bytes; uint64_t parameter_hash; int64_t losses_checked; char best_metric[32];
    double best_value; int64_t best_step; bool stopped_early, preempted; kolo_time_report times;
    kolo_train_memory memory; const kolo_train_memory *memory_by_rank; char unshared[80], lost[160]; int stage_moves; char stages[256];
};
typedef void kolo_train_observer(void *arg, const kolo_train_progress *progress);
typedef void kolo_train_notice(void *arg, const char *line, kolo_notice_kind kind);

typedef kolo_status kolo_build(kolo_graph *g, int64_t samples, void *arg);
struct kolo_session_opts {
    int64_t batch, accumulate, global_batch, reproducible, tp_blocks;
    const char *mesh, *pipeline, *placement, *worker_weights; int64_t stage_bytes, rebalance_stages; uint64_t seed;
    int threads; const char *device; int loader_threads; kolo_optimizer_opts optimizer; bool sparse_embedding, sync_bn; int zero;
    kolo_sync sync; int servers; const char *consistency, *compress; int64_t compress_min_bytes;
    double lr; kolo_lr_schedule schedule; double lr_min, lr_power, lr_step_factor;
    int64_t lr_step_every, warmup_steps, steps; kolo_precision precision;
    kolo_recompute recompute; kolo_algorithm algorithm; int64_t bucket_bytes;
    bool reference_kernels, no_winograd, no_chains, f64, keep_gradients, evaluate_only;
};
typedef bool kolo_fit_stop(void *arg, const kolo_train_progress *progress);
struct kolo_fit_opts {
    int64_t epochs, steps; kolo_train_observer *observer; kolo_fit_stop *stop;
    interrupted *interrupted, *preempted; void *arg;
    const char *augment, *out_dir; int64_t checkpoint_steps, checkpoint_epochs, keep;
    double checkpoint_seconds; bool wait_for_saves; const char *keep_best; int64_t patience; kolo_save_error save_error;
    const char *resume; bool resume_if_any; int64_t eval_every, eval_steps, log_every;
    int64_t audit, check_replicas; const char *worker_weights, *trace;
    const char *tensorboard; int metrics_port; const char *metrics_address;
    kolo_train_notice *notice; void *notice_arg; bool no_cross_step;
};
"""
# Members whose 0 is another default in C: what an explicit 0 becomes, a number with the effect of 0, or None:
# it is refused.
TINY = sys.float_info.min  # 0 in f32; sums and products with it are those with 0 in f64
_STEPS = ("stride", "stride_d", "stride_h", "stride_w", "dilation", "dilation_d", "dilation_h", "dilation_w", "groups")
ZEROS: Dict[str, Dict[str, Optional[float]]] = {
    **{f"kolo_{kind}_opts": dict.fromkeys(_STEPS)
       for kind in ("conv1d", "conv2d", "conv3d", "conv_transpose2d", "pool2d", "pool3d")},
    "kolo_lrn_opts": {"size": None, "alpha": TINY, "beta": TINY, "k": TINY},
    "kolo_batch_norm_opts": {"eps": TINY, "momentum": TINY},
    "kolo_optimizer_opts": {"beta1": TINY, "beta2": TINY, "eps": TINY, "trust": None},
    "kolo_session_opts": {"batch": None, "accumulate": None, "threads": None, "compress_min_bytes": 1, "lr": None,
                          "lr_power": None, "lr_step_factor": None, "lr_step_every": None, "bucket_bytes": None},
    "kolo_fit_opts": {"log_every": None},
}

# Pointers to functions that the headers declare otherwise than by a typedef of the function.
POINTERS = ("interrupted", "on_stall", "user_combine", "kolo_model_windows", "kolo_model_build",
            "kolo_train_observer", "kolo_train_notice", "kolo_custom_shape", "kolo_custom_run",
            "kolo_custom_grad")

COMM_FUNCTIONS = """
kolo_status kolo_comm_create(const kolo_comm_opts *opts, kolo_comm **comm);
kolo_status kolo_comm_create_by(const kolo_comm_opts *opts, kolo_share *share, void *arg,
                                kolo_comm **comm);
kolo_status kolo_comm_allow_threads(kolo_comm *comm);
void kolo_comm_abort(kolo_comm *comm, const char *reason);
kolo_status kolo_comm_set_hook(kolo_comm *comm, kolo_comm_hook *hook, void *arg);
void kolo_comm_destroy(kolo_comm *comm);
int kolo_comm_rank(const kolo_comm *comm);
int kolo_comm_size(const kolo_comm *comm);
int kolo_comm_local_rank(const kolo_comm *comm);
int kolo_comm_local_size(const kolo_comm *comm);
const char *kolo_comm_transport(const kolo_comm *comm);
int kolo_comm_host(const kolo_comm *comm, int rank);
kolo_status kolo_comm_split(kolo_comm *comm, int colour, int key, kolo_comm **sub);
kolo_status kolo_comm_allow_shrink(kolo_comm *comm);
kolo_status kolo_comm_shrink(kolo_comm *comm, kolo_comm **survivors);
kolo_status kolo_comm_agree(kolo_comm *comm, uint64_t *flags, int *lost);
kolo_status kolo_comm_create_group(kolo_comm *comm, const int *ranks, int n, int tag,
                                   kolo_comm **sub);
void kolo_comm_revoke(kolo_comm *comm, const char *reason);
kolo_status kolo_comm_load_costs(kolo_comm *comm, const char *path);
void kolo_comm_report(kolo_comm *comm, char *text, size_t bytes);
kolo_status kolo_comm_peer_traffic(kolo_comm *comm, int peer, kolo_peer_traffic *traffic);
kolo_status kolo_comm_alloc(kolo_comm *comm, size_t bytes, void **memory);
void kolo_comm_keep_memory(kolo_comm *comm);
kolo_status kolo_comm_progress(kolo_comm *comm);
const char *kolo_dtype_name(kolo_dtype dtype);
const char *kolo_reduce_op_name(kolo_reduce_op op);
kolo_status kolo_algorithm_parse(const char *name, kolo_algorithm *algorithm);
kolo_status kolo_transport_parse(const char *name, kolo_transport_choice *transport);
int kolo_tree_nodes(int shards, int size, int rank, uint32_t *nodes);
kolo_status kolo_combine(void *to, const void *from, size_t count, kolo_dtype dtype,
                         kolo_reduce_op op);
kolo_status kolo_request_create(kolo_comm *comm, const kolo_request_opts *opts,
                                kolo_request **request);
kolo_status kolo_request_start(kolo_request *request);
kolo_status kolo_request_test(kolo_request *request, bool *complete);
kolo_status kolo_request_wait(kolo_request *request, int64_t timeout_ms);
int kolo_request_source(const kolo_request *request);
void kolo_request_destroy(kolo_request *request);
kolo_status kolo_request_run(kolo_comm *comm, const kolo_request_opts *opts, int64_t timeout_ms);
kolo_status kolo_barrier(kolo_comm *comm);
kolo_status kolo_probe(kolo_comm *comm, int from, int tag, bool *found, kolo_message *message);
kolo_status kolo_named_create(kolo_comm *comm, const kolo_named_opts *opts, kolo_named **named);
void kolo_named_destroy(kolo_named *named);
kolo_status kolo_named_post(kolo_named *named, const char *name, void *data, size_t count,
                            kolo_dtype dtype, kolo_reduce_op op, int *handle);
kolo_status kolo_named_test(kolo_named *named, int handle, bool *complete);
kolo_status kolo_named_wait(kolo_named *named, int handle, int64_t timeout_ms);
kolo_status kolo_reducer_create(kolo_comm *comm, const kolo_part *buffers, int n,
                                kolo_dtype dtype, const kolo_reducer_opts *opts,
                                kolo_reducer **reducer);
kolo_status kolo_reducer_ready(kolo_reducer *reducer, int i);
kolo_status kolo_reducer_ready_range(kolo_reducer *reducer, int first, int n);
kolo_status kolo_reducer_broadcast(kolo_reducer *reducer, const kolo_part *parts, int n,
                                   kolo_dtype dtype, int root);
kolo_status kolo_reducer_wait(kolo_reducer *reducer);
kolo_status kolo_reducer_join(kolo_reducer *reducer, int *last);
void kolo_reducer_destroy(kolo_reducer *reducer);
kolo_status kolo_codec_parse(const char *text, kolo_codec *codec);
size_t kolo_codec_bytes(const kolo_codec *codec, size_t count);
kolo_status kolo_codec_encode(const kolo_codec *codec, const float *data, size_t count,
                              float *residual, void *code, size_t bytes);
kolo_status kolo_codec_decode(const kolo_codec *codec, const void *code, size_t bytes,
                              float *data, size_t count);
kolo_status kolo_codec_add(const kolo_codec *codec, const void *code, size_t bytes, float *sum,
                           size_t count, float scale);
const char *kolo_last_error(void);
kolo_status kolo_error_set(kolo_status status, const char *fmt, ...);
const char *kolo_version(void);
"""

_GRAPH_FUNCTIONS = """
kolo_status kolo_graph_create(const kolo_graph_opts *opts, kolo_graph **graph);
void kolo_graph_destroy(kolo_graph *graph);
kolo_status kolo_graph_check(const kolo_graph *graph);
int64_t kolo_graph_parameters(const kolo_graph *graph);
kolo_value kolo_input(kolo_graph *g, const char *name, kolo_dtype dtype, kolo_shape shape);
kolo_value kolo_param(kolo_graph *g, const char *name, kolo_shape shape, kolo_init init);
void kolo_freeze(kolo_graph *g, kolo_value param);
kolo_value kolo_frozen_param(kolo_graph *g, const char *name, kolo_shape shape, kolo_init init);
kolo_shape kolo_value_shape(const kolo_graph *g, kolo_value v);
kolo_dtype kolo_value_dtype(const kolo_graph *g, kolo_value v);
void kolo_output(kolo_graph *g, const char *name, kolo_value value);
kolo_value kolo_conv2d(kolo_graph *g, kolo_value x, kolo_value w, const kolo_conv2d_opts *opts);
kolo_value kolo_conv_transpose2d(kolo_graph *g, kolo_value x, kolo_value w,
                                 const kolo_conv_transpose2d_opts *opts);
kolo_value kolo_conv1d(kolo_graph *g, kolo_value x, kolo_value w, const kolo_conv1d_opts *opts);
kolo_value kolo_conv3d(kolo_graph *g, kolo_value x, kolo_value w, const kolo_conv3d_opts *opts);
kolo_value kolo_flip(kolo_graph *g, kolo_value x, int axis);
kolo_value kolo_pixel_shuffle(kolo_graph *g, kolo_value x, int64_t factor);
kolo_value kolo_repeat_pixels(kolo_graph *g, kolo_value x, int64_t factor);
kolo_value kolo_max_pool2d(kolo_graph *g, kolo_value x, const kolo_pool2d_opts *opts);
kolo_value kolo_avg_pool2d(kolo_graph *g, kolo_value x, const kolo_pool2d_opts *opts);
kolo_value kolo_global_avg_pool2d(kolo_graph *g, kolo_value x);
kolo_value kolo_adaptive_avg_pool2d(kolo_graph *g, kolo_value x, int64_t h, int64_t w);
kolo_value kolo_resize(kolo_graph *g, kolo_value x, int64_t h, int64_t w, bool align_corners);
kolo_value kolo_grid_sample(kolo_graph *g, kolo_value x, kolo_value grid, const kolo_grid_sample_opts *opts);
kolo_value kolo_resize_nearest(kolo_graph *g, kolo_value x, int64_t h, int64_t w);
kolo_value kolo_max_pool3d(kolo_graph *g, kolo_value x, const kolo_pool3d_opts *opts);
kolo_value kolo_avg_pool3d(kolo_graph *g, kolo_value x, const kolo_pool3d_opts *opts);
kolo_value kolo_lrn(kolo_graph *g, kolo_value x, const kolo_lrn_opts *opts);
kolo_value kolo_concat_along(kolo_graph *g, const kolo_value *x, int n, int axis);
kolo_value kolo_slice(kolo_graph *g, kolo_value x, int axis, int64_t first, int64_t count);
kolo_value kolo_pad(kolo_graph *g, kolo_value x, int axis, int64_t before, int64_t after);
void kolo_split_along(kolo_graph *g, kolo_value x, int axis, const int64_t *sizes, int n,
                      kolo_value *out);
kolo_value kolo_permute(kolo_graph *g, kolo_value x, const int *order);
kolo_value kolo_transpose(kolo_graph *g, kolo_value x, int a, int b);
kolo_value kolo_softmax(kolo_graph *g, kolo_value x, int axis);
kolo_value kolo_log_softmax(kolo_graph *g, kolo_value x, int axis);
kolo_value kolo_channel_window(kolo_graph *g, kolo_value x, int64_t first, int64_t count);
kolo_value kolo_linear(kolo_graph *g, kolo_value x, kolo_value w);
kolo_value kolo_linear_bias(kolo_graph *g, kolo_value x, kolo_value w, kolo_value b);
kolo_value kolo_bias(kolo_graph *g, kolo_value x, kolo_value b);
kolo_value kolo_relu(kolo_graph *g, kolo_value x);
kolo_value kolo_add(kolo_graph *g, kolo_value a, kolo_value b);
kolo_value kolo_sub(kolo_graph *g, kolo_value a, kolo_value b);
kolo_value kolo_mul(kolo_graph *g, kolo_value a, kolo_value b);
kolo_value kolo_div(kolo_graph *g, kolo_value a, kolo_value b);
kolo_value kolo_minimum(kolo_graph *g, kolo_value a, kolo_value b);
kolo_value kolo_maximum(kolo_graph *g, kolo_value a, kolo_value b);
kolo_value kolo_exp(kolo_graph *g, kolo_value x);
kolo_value kolo_log(kolo_graph *g, kolo_value x);
kolo_value kolo_sqrt(kolo_graph *g, kolo_value x);
kolo_value kolo_rsqrt(kolo_graph *g, kolo_value x);
kolo_value kolo_reciprocal(kolo_graph *g, kolo_value x);
kolo_value kolo_neg(kolo_graph *g, kolo_value x);
kolo_value kolo_abs(kolo_graph *g, kolo_value x);
kolo_value kolo_square(kolo_graph *g, kolo_value x);
kolo_value kolo_pow(kolo_graph *g, kolo_value x, double exponent);
kolo_value kolo_add_number(kolo_graph *g, kolo_value x, double number);
kolo_value kolo_clamp(kolo_graph *g, kolo_value x, double min, double max);
kolo_value kolo_relu6(kolo_graph *g, kolo_value x);
kolo_value kolo_leaky_relu(kolo_graph *g, kolo_value x, double slope);
kolo_value kolo_elu(kolo_graph *g, kolo_value x, double alpha);
kolo_value kolo_softplus(kolo_graph *g, kolo_value x, double beta);
kolo_value kolo_hardswish(kolo_graph *g, kolo_value x);
kolo_value kolo_hardsigmoid(kolo_graph *g, kolo_value x);
kolo_value kolo_sin(kolo_graph *g, kolo_value x);
kolo_value kolo_cos(kolo_graph *g, kolo_value x);
kolo_value kolo_atan(kolo_graph *g, kolo_value x);
kolo_value kolo_floor(kolo_graph *g, kolo_value x);
kolo_value kolo_ceil(kolo_graph *g, kolo_value x);
kolo_value kolo_round(kolo_graph *g, kolo_value x);
kolo_value kolo_tanh(kolo_graph *g, kolo_value x);
kolo_value kolo_sigmoid(kolo_graph *g, kolo_value x);
kolo_value kolo_erf(kolo_graph *g, kolo_value x);
kolo_value kolo_gelu(kolo_graph *g, kolo_value x, bool tanh);
kolo_value kolo_silu(kolo_graph *g, kolo_value x);
kolo_value kolo_reduce_sum(kolo_graph *g, kolo_value x, const int *axes, int n, bool keep);
kolo_value kolo_reduce_mean(kolo_graph *g, kolo_value x, const int *axes, int n, bool keep);
kolo_value kolo_reduce_max(kolo_graph *g, kolo_value x, const int *axes, int n, bool keep);
kolo_value kolo_reduce_min(kolo_graph *g, kolo_value x, const int *axes, int n, bool keep);
kolo_value kolo_sum(kolo_graph *g, kolo_value x);
kolo_value kolo_scale(kolo_graph *g, kolo_value x, double factor);
kolo_value kolo_dropout(kolo_graph *g, kolo_value x, double p);
kolo_value kolo_batch_norm(kolo_graph *g, kolo_value x, const char *name,
                           const kolo_batch_norm_opts *opts);
kolo_value kolo_layer_norm(kolo_graph *g, kolo_value x, const char *name, double eps);
kolo_value kolo_rms_norm(kolo_graph *g, kolo_value x, const char *name, double eps);
kolo_value kolo_group_norm(kolo_graph *g, kolo_value x, const char *name, int64_t groups,
                           double eps);
kolo_value kolo_instance_norm(kolo_graph *g, kolo_value x, const char *name, double eps);
kolo_value kolo_gather_rows(kolo_graph *g, kolo_value x, kolo_value ids);
kolo_value kolo_scatter_add(kolo_graph *g, kolo_value rows, kolo_value ids, int64_t n);
kolo_value kolo_embedding_bag(kolo_graph *g, kolo_value w, kolo_value ids, bool mean);
kolo_value kolo_embedding(kolo_graph *g, kolo_value w, kolo_value ids, kolo_value p);
void kolo_mask_tokens(kolo_graph *g, kolo_value ids, kolo_value y, const kolo_mask_opts *opts,
                      kolo_value *out);
kolo_value kolo_attention(kolo_graph *g, kolo_value qkv, const kolo_attention_opts *opts);
kolo_value kolo_cross_attention(kolo_graph *g, kolo_value q, kolo_value k, kolo_value v,
                                const kolo_cross_attention_opts *opts);
kolo_value kolo_rotary(kolo_graph *g, kolo_value x, int64_t heads, double base, int64_t first);
void kolo_expert_route(kolo_graph *g, kolo_value probabilities, int64_t top, int64_t capacity,
                       kolo_value *out);
kolo_value kolo_expert_dispatch(kolo_graph *g, kolo_value x, kolo_value places, int64_t capacity);
kolo_value kolo_expert_linear(kolo_graph *g, kolo_value x, kolo_value w);
kolo_value kolo_expert_combine(kolo_graph *g, kolo_value y, kolo_value places, kolo_value gates);
kolo_value kolo_matmul(kolo_graph *g, kolo_value a, kolo_value b, bool transpose_a,
                       bool transpose_b);
kolo_value kolo_lstm_opts(kolo_graph *g, kolo_value x, const char *name, int layer, int64_t hidden,
                          const kolo_recurrent_opts *opts);
kolo_value kolo_gru(kolo_graph *g, kolo_value x, const char *name, int layer, int64_t hidden,
                    const kolo_recurrent_opts *opts);
kolo_value kolo_stop_gradient(kolo_graph *g, kolo_value x);
kolo_value kolo_reshape(kolo_graph *g, kolo_value x, kolo_shape shape);
kolo_value kolo_flatten(kolo_graph *g, kolo_value x);
kolo_value kolo_softmax_xent_opts(kolo_graph *g, kolo_value logits, kolo_value labels,
                                  const kolo_loss_opts *opts);
kolo_value kolo_ctc_loss(kolo_graph *g, kolo_value logits, kolo_value labels,
                         const kolo_ctc_opts *opts);
kolo_value kolo_mse_loss(kolo_graph *g, kolo_value x, kolo_value target);
kolo_value kolo_l1_loss(kolo_graph *g, kolo_value x, kolo_value target);
kolo_value kolo_huber_loss(kolo_graph *g, kolo_value x, kolo_value target, double delta);
kolo_value kolo_bce_with_logits(kolo_graph *g, kolo_value x, kolo_value target);
kolo_value kolo_soft_xent(kolo_graph *g, kolo_value logits, kolo_value target);
kolo_value kolo_kl_div(kolo_graph *g, kolo_value log_q, kolo_value p);
kolo_value kolo_accuracy_opts(kolo_graph *g, kolo_value logits, kolo_value labels,
                              const kolo_loss_opts *opts);
kolo_value kolo_confusion(kolo_graph *g, kolo_value logits, kolo_value labels);
kolo_value kolo_score_counts(kolo_graph *g, kolo_value scores, kolo_value labels);
kolo_status kolo_custom_bind(const kolo_custom_op *op);
void kolo_custom_bound(kolo_graph *g, const kolo_custom_op *op, const kolo_value *in, int n_in,
                       const double *attr, kolo_value *out);
void kolo_custom_done(void);
"""

_TRAINING_FUNCTIONS = """
kolo_status kolo_dataset_open(const char *spec, kolo_split split, kolo_dataset **dataset);
kolo_status kolo_dataset_open_for(const char *spec, kolo_split split,
                                  const kolo_dataset_opts *opts, kolo_dataset **dataset);
kolo_status kolo_dataset_create(const kolo_source *source, kolo_dataset **dataset);
void kolo_dataset_close(kolo_dataset *dataset);
const kolo_dataset_info *kolo_dataset_describe(const kolo_dataset *dataset);
kolo_status kolo_dataset_gather(const kolo_dataset *dataset, const int64_t *indices, int64_t n,
                                void *const *data);
kolo_status kolo_loader_next(kolo_loader *loader, kolo_batch *batch);
void kolo_loader_destroy(kolo_loader *loader);
const kolo_metric *kolo_metric_table(void);
const char *kolo_time_name(kolo_time time);
const char *kolo_split_name(kolo_split split);
const char *kolo_optimizer_name(kolo_optimizer optimizer);
const char *kolo_lr_schedule_name(kolo_lr_schedule schedule);
const char *kolo_sync_name(kolo_sync sync);
const char *kolo_precision_name(kolo_precision precision);
const char *kolo_recompute_name(kolo_recompute recompute);
const char *kolo_save_error_name(kolo_save_error save_error);
const char *kolo_checkpoint_format_name(kolo_checkpoint_format format);
const kolo_model *const *kolo_models(void);
kolo_status kolo_model_sample(const kolo_model *model, const char *options, kolo_shape *sample,
                              int64_t *classes);
kolo_status kolo_model_add(const kolo_model *model, kolo_graph *g, const kolo_model_opts *opts);
const char *kolo_onnx_notice(const kolo_onnx *onnx);
kolo_status kolo_model_window(const kolo_model *model, const char *options,
                              kolo_dataset_opts *windows);
kolo_status kolo_model_find(const char *name, const kolo_model **model);
kolo_status kolo_session_create(kolo_comm *comm, const kolo_session_opts *opts,
                                kolo_build *build, void *arg, kolo_session **session);
void kolo_session_destroy(kolo_session *session);
bool kolo_session_is_server(const kolo_session *session);
kolo_status kolo_session_serve(kolo_session *session);
kolo_status kolo_session_share(const kolo_session *session, int64_t samples, int64_t *first,
                               int64_t *count);
kolo_status kolo_session_step(kolo_session *session, const kolo_batch *batch,
                              kolo_metrics *metrics);
kolo_status kolo_session_loader(const kolo_session *session, const kolo_dataset *dataset,
                                const char *augment, int64_t epochs, kolo_loader **loader);
int64_t kolo_session_steps(const kolo_session *session);
double kolo_session_lr(const kolo_session *session);
kolo_status kolo_session_set_lr(kolo_session *session, double lr);
kolo_status kolo_fit(kolo_session *session, const kolo_dataset *train, const kolo_dataset *test,
                     const kolo_fit_opts *opts, kolo_train_result *result);
kolo_status kolo_session_evaluate(kolo_session *session, const kolo_batch *batch,
                                  kolo_metrics *metrics);
kolo_status kolo_session_evaluate_dataset(kolo_session *session, const kolo_dataset *dataset,
                                          kolo_metrics *metrics);
kolo_status kolo_session_predict(kolo_session *session, const kolo_batch *batch,
                                 const char *output, void *data, size_t bytes,
                                 kolo_shape *shape);
kolo_status kolo_session_tensor(const kolo_session *session, int i, kolo_field *tensor);
kolo_status kolo_session_get(const kolo_session *session, const char *name, void *data,
                             size_t bytes);
kolo_status kolo_session_set(kolo_session *session, const char *name, const void *data,
                             size_t bytes);
kolo_status kolo_session_get_gradient(const kolo_session *session, const char *name, void *data,
                                      size_t bytes);
kolo_status kolo_session_save(kolo_session *session, const char *path);
kolo_status kolo_session_export_onnx(kolo_session *session, const char *path);
kolo_status kolo_session_load(kolo_session *session, const char *path);
kolo_status kolo_session_load_partial(kolo_session *session, const char *path, char **rest);
kolo_status kolo_checkpoint_describe(const char *path, char **text);
kolo_status kolo_checkpoint_verify(const char *path, char **text);
kolo_status kolo_checkpoint_compare(const char *a, const char *b, bool *equal, char **text);
kolo_status kolo_checkpoint_export(const char *from, const char *to,
                                   kolo_checkpoint_format format);
void kolo_checkpoint_text_free(char *text);
"""
KOLO_FUNCTIONS = _GRAPH_FUNCTIONS + _TRAINING_FUNCTIONS

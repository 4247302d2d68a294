#pragma once
/* ONNX files as models: a graph in the file becomes nodes of a kolo_graph, its initializers become
 * parameters with these initial values. docs/onnx.md lists the operators.
 *
 *     kolo_onnx *net;
 *     KOLO_TRY(kolo_onnx_open("net.onnx", NULL, &net));
 *     KOLO_TRY(kolo_session_create(comm, &opts, kolo_onnx_build, net, &session));
 *
 * A library built without protobuf-c returns UNSUPPORTED from kolo_onnx_open. */

#include "kolo/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kolo_onnx kolo_onnx;

/* A zero field takes its default. */
typedef struct kolo_onnx_opts {
    /* Dimensions of one sample of the first input, for those that the file leaves open. Rank 0: the
     * file gives them all. */
    kolo_shape sample;
    bool no_loss; /* add neither labels nor a loss */
    bool as_zoo;  /* the file's only input is called "x", as in the model zoo */
} kolo_onnx_opts;

/* Reads a file, with its external data, and checks that its graph can be built. The object is
 * immutable; any number of threads may use it. `opts` may be NULL. IO: it cannot be read; FORMAT:
 * it is damaged; UNSUPPORTED, with node, operator and attribute: Kolo lacks something that it uses;
 * ARG: `sample` does not fit; NOMEM. */
KOLO_API kolo_status kolo_onnx_open(const char *path, const kolo_onnx_opts *opts, kolo_onnx **onnx);
/* Frees it; graphs that were built from it must not be used to create sessions afterwards. NULL is
 * allowed. */
KOLO_API void kolo_onnx_close(kolo_onnx *onnx);

/* A kolo_build: adds the graph of a kolo_onnx for a batch of `samples`, the first dimension of all
 * inputs (0: the sizes that the file states). Floating-point initializers with a dimension become
 * parameters, unless the file states that they are none, or shows it; scalars and results of
 * Constant nodes remain constants. Inputs and outputs have the names of the file.
 *
 * Unless no_loss: the first output is also called "logits". It is [N,C,...], or [N,T,C] where the
 * first input holds integers. Integer labels "y" [N,...] are added, with the outputs "loss" (the
 * sum of the cross-entropies) and "correct". A file that has an output "loss" is trained on that
 * instead. */
KOLO_API kolo_status kolo_onnx_build(kolo_graph *g, int64_t samples, void *onnx);

/* What a file leaves open about its parameters, as a line for the user: which initializers are
 * trained that may be constants, to be frozen (the option `freeze`), and which parameters of the
 * program are not in the file. NULL: nothing. The text belongs to the object. */
KOLO_API const char *kolo_onnx_notice(const kolo_onnx *onnx);

/* The shape of one sample of the first input, whether it holds integers, and the number of classes
 * of the logits (0 without a loss). */
KOLO_API void kolo_onnx_describe(const kolo_onnx *onnx, kolo_shape *sample, bool *integers,
                                 int64_t *classes);

#ifdef __cplusplus
}
#endif

#pragma once
/* Normalization: batch, synchronized batch, layer, root mean square, group. */

#include "graph/graph.h"

/* batch_norm: x [N,C,...], gamma, beta, running_mean, running_var [C], [r like x] -> y, mean, var
 * [C]: mean and biased variance of the batch; y = gamma (x - mean) / sqrt(var + eps) + beta + r;
 * relu 1: y = max(0, .); above 1: at most relu, too. Only passes read the running statistics and
 * the momentum. batch_norm_bwd: dy, x, gamma, mean, var, [beta] -> dx, dgamma, dbeta; with beta
 * (for relu): only dy where y, recomputed, is not clipped. batch_norm_infer: its inputs -> y by the
 * running statistics. batch_norm_update: running_mean, running_var, mean, var -> the next running
 * statistics, keep old + factor new. */
enum { KOLO_NORM_EPS, KOLO_NORM_MOMENTUM, KOLO_NORM_RELU };
enum { KOLO_NORM_UPDATE_KEEP, KOLO_NORM_UPDATE_FACTOR };
extern const kolo_op kolo_op_batch_norm, kolo_op_batch_norm_bwd, kolo_op_batch_norm_infer,
    kolo_op_batch_norm_update;

/* Synchronized batch normalization. sync_norm_sums: x [N,C,...], running_mean [C], weight [] ->
 * sums [2 C]: weight / plane times the sums of x - running_mean, then of its square, with `plane`
 * elements of a channel in a sample. sync_norm_statistics: sums, running_mean, running_var, weight
 * -> mean, var, unbiased var [C] of all samples, if weight is one over their number and the sums
 * are those of all ranks. Only passes read running_var and the momentum. sync_norm: x, gamma, beta,
 * mean, var, weight, [r] -> y as batch_norm. sync_norm_bwd_sums: dy, x, gamma, mean, var, [beta] ->
 * dgamma, dbeta, sums [2 C]: dbeta, then dgamma. sync_norm_bwd_data: dy, x, weight, sums, gamma,
 * mean, var, [beta] -> dx. Attributes and beta as of batch_norm. */
enum { KOLO_SYNC_NORM_MOMENTUM, KOLO_SYNC_NORM_PLANE }; /* of statistics */
/* Whether statistics are those of the samples of a rank, of which others have other rows. */
enum { KOLO_SYNC_SUMS_OF_RANK, KOLO_SYNC_SUMS_PLANE }; /* of sums; PLANE: of the whole image */
/* Of the others, after those of batch_norm; PIXELS: of the whole image. */
enum { KOLO_SYNC_NORM_OF_RANK = KOLO_NORM_RELU + 1, KOLO_SYNC_NORM_PIXELS };
extern const kolo_op kolo_op_sync_norm_sums, kolo_op_sync_norm_statistics, kolo_op_sync_norm,
    kolo_op_sync_norm_bwd_sums, kolo_op_sync_norm_bwd_data;

/* layer_norm: x [...,C], gamma, beta [C] -> y = gamma (x - mean) rstd + beta, mean, rstd [...] with
 * rstd = 1 / sqrt(variance + eps). layer_norm_bwd: dy, x, gamma, mean, rstd -> dx, dgamma, dbeta.
 * rms_norm: x, gamma -> y = gamma x rstd, rstd = 1 / sqrt(mean square + eps). rms_norm_bwd: dy, x,
 * gamma, rstd -> dx, dgamma.
 * group_norm: x [N,G,K,P], [gamma, beta [G,K]] -> y = gamma (x - mean) rstd + beta, mean, rstd
 * [N,G] over K and P; without gamma and beta y = (x - mean) rstd. group_norm_bwd: dy, x, mean,
 * rstd, [gamma] -> dx, [dgamma, dbeta]. */
enum { KOLO_LAYER_NORM_EPS };
/* group_norm of x [N,C,...] with `scale` and `offset`, values of C elements; KOLO_NONE: without. */
kolo_value kolo_group_norm_by(kolo_graph *g, kolo_value x, kolo_value scale, kolo_value offset,
                              int64_t groups, double eps);
extern const kolo_op kolo_op_layer_norm, kolo_op_layer_norm_bwd, kolo_op_rms_norm,
    kolo_op_rms_norm_bwd, kolo_op_group_norm, kolo_op_group_norm_bwd;

/* The table of operators. A row: name, what it adds to a graph, what it computes of constants,
 * inputs, attributes. docs/onnx.md lists the rows. */
#include "onnx/import/ops.h"

#include "onnx/import/fold.h"

#define UNARY(name) \
    { name, onnx_map_unary, onnx_fold_unary, 1, 1, "" }
#define FUNCTION(name, attributes) \
    { name, onnx_map_unary, NULL, 1, 1, attributes }
#define COMPARE(name) \
    { name, onnx_map_compare, onnx_fold_arithmetic, 2, 2, "" }
#define REDUCE(name) \
    { name, onnx_map_reduce, onnx_fold_reduce, 1, 2, "axes keepdims noop_with_empty_axes " }
#define RECURRENT "activations direction hidden_size layout "
#define WINDOW "auto_pad dilations kernel_shape pads strides "

const onnx_op onnx_ops[] = {
    /* layers */
    {"Conv", onnx_map_conv, NULL, 2, 3, WINDOW "group "},
    {"ConvTranspose", onnx_map_conv_transpose, NULL, 2, 3,
     WINDOW "group output_padding output_shape "},
    {"MaxPool", onnx_map_pool, NULL, 1, 1, WINDOW "ceil_mode storage_order "},
    {"AveragePool", onnx_map_pool, NULL, 1, 1, WINDOW "ceil_mode count_include_pad "},
    {"GlobalAveragePool", onnx_map_global_pool, NULL, 1, 1, ""},
    {"GlobalMaxPool", onnx_map_global_pool, NULL, 1, 1, ""},
    {"BatchNormalization", onnx_map_batch_norm, NULL, 5, 5, "epsilon momentum training_mode "},
    {"LayerNormalization", onnx_map_layer_norm, NULL, 2, 3, "axis epsilon stash_type "},
    {"RMSNormalization", onnx_map_layer_norm, NULL, 2, 2, "axis epsilon stash_type "},
    {"GroupNormalization", onnx_map_group_norm, NULL, 3, 3, "epsilon num_groups stash_type "},
    {"InstanceNormalization", onnx_map_group_norm, NULL, 3, 3, "epsilon "},
    {"LRN", onnx_map_lrn, NULL, 1, 1, "alpha beta bias size "},
    {"LpNormalization", onnx_map_lp_norm, NULL, 1, 1, "axis p "},
    {"MeanVarianceNormalization", onnx_map_mean_variance_norm, NULL, 1, 1, "axes "},
    {"LSTM", onnx_map_recurrent, NULL, 3, 8, RECURRENT "input_forget "},
    {"GRU", onnx_map_recurrent, NULL, 3, 6, RECURRENT "linear_before_reset "},
    {"RNN", onnx_map_recurrent, NULL, 3, 6, RECURRENT},
    {"Dropout", onnx_map_dropout, NULL, 1, 3, "ratio seed "},
    {"Gemm", onnx_map_gemm, NULL, 2, 3, "alpha beta transA transB "},
    {"MatMul", onnx_map_matmul, NULL, 2, 2, ""},
    {"Einsum", onnx_map_einsum, NULL, 1, 2, "equation "},
    {"Softmax", onnx_map_softmax, NULL, 1, 1, "axis "},
    {"LogSoftmax", onnx_map_softmax, NULL, 1, 1, "axis "},
    {"Attention", onnx_map_attention, NULL, 3, 7,
     "is_causal kv_num_heads left_window_size q_num_heads qk_matmul_output_mode right_window_size "
     "scale softcap softmax_precision "},

    /* functions of one input */
    UNARY("Neg"),
    UNARY("Sqrt"),
    UNARY("Reciprocal"),
    UNARY("Exp"),
    UNARY("Log"),
    UNARY("Abs"),
    UNARY("Tanh"),
    UNARY("Erf"),
    UNARY("Sign"),
    UNARY("Floor"),
    UNARY("Ceil"),
    UNARY("Round"),
    UNARY("Sin"),
    UNARY("Cos"),
    UNARY("Tan"),
    UNARY("Sinh"),
    UNARY("Cosh"),
    UNARY("Asin"),
    UNARY("Acos"),
    UNARY("Atan"),
    UNARY("Asinh"),
    UNARY("Acosh"),
    UNARY("Atanh"),
    FUNCTION("Relu", ""),
    FUNCTION("Sigmoid", ""),
    FUNCTION("Gelu", "approximate "),
    FUNCTION("LeakyRelu", "alpha "),
    FUNCTION("Elu", "alpha "),
    FUNCTION("Selu", "alpha gamma "),
    FUNCTION("Celu", "alpha "),
    FUNCTION("Softplus", ""),
    FUNCTION("Softsign", ""),
    FUNCTION("HardSwish", ""),
    FUNCTION("HardSigmoid", "alpha beta "),
    FUNCTION("Mish", ""),
    FUNCTION("Swish", "alpha "),
    FUNCTION("Shrink", "bias lambd "),
    FUNCTION("ThresholdedRelu", "alpha "),
    {"PRelu", onnx_map_prelu, NULL, 2, 2, ""},
    {"Clip", onnx_map_clip, NULL, 1, 3, "min max "},
    {"IsNaN", onnx_map_is_nan, NULL, 1, 1, ""},

    /* several inputs */
    {"Add", onnx_map_binary, onnx_fold_arithmetic, 2, 2, ""},
    {"Sub", onnx_map_binary, onnx_fold_arithmetic, 2, 2, ""},
    {"Mul", onnx_map_binary, onnx_fold_arithmetic, 2, 2, ""},
    {"Div", onnx_map_binary, onnx_fold_arithmetic, 2, 2, ""},
    {"Min", onnx_map_binary, onnx_fold_arithmetic, 1, ONNX_MAX_IN, ""},
    {"Max", onnx_map_binary, onnx_fold_arithmetic, 1, ONNX_MAX_IN, ""},
    {"Sum", onnx_map_binary, NULL, 1, ONNX_MAX_IN, ""},
    {"Mean", onnx_map_binary, NULL, 1, ONNX_MAX_IN, ""},
    {"Pow", onnx_map_pow, onnx_fold_arithmetic, 2, 2, ""},
    {"Mod", NULL, onnx_fold_arithmetic, 2, 2, "fmod "},
    COMPARE("Equal"),
    COMPARE("Less"),
    COMPARE("LessOrEqual"),
    COMPARE("Greater"),
    COMPARE("GreaterOrEqual"),
    {"And", onnx_map_logic, onnx_fold_arithmetic, 2, 2, ""},
    {"Or", onnx_map_logic, onnx_fold_arithmetic, 2, 2, ""},
    {"Xor", onnx_map_logic, onnx_fold_arithmetic, 2, 2, ""},
    {"Not", onnx_map_logic, onnx_fold_unary, 1, 1, ""},
    {"Where", onnx_map_where, onnx_fold_where, 3, 3, ""},

    /* reductions */
    REDUCE("ReduceSum"),
    REDUCE("ReduceMean"),
    REDUCE("ReduceMax"),
    REDUCE("ReduceMin"),
    REDUCE("ReduceProd"),
    REDUCE("ReduceSumSquare"),
    REDUCE("ReduceL1"),
    REDUCE("ReduceL2"),
    REDUCE("ReduceLogSum"),
    REDUCE("ReduceLogSumExp"),

    /* shapes */
    {"Identity", onnx_map_identity, onnx_fold_identity, 1, 1, ""},
    {"Cast", onnx_map_cast, onnx_fold_cast, 1, 1, "to saturate round_mode "},
    {"CastLike", onnx_map_cast, onnx_fold_cast, 2, 2, "saturate round_mode "},
    {"Reshape", onnx_map_reshape, onnx_fold_reshape, 2, 2, "allowzero "},
    {"Flatten", onnx_map_reshape, onnx_fold_reshape, 1, 1, "axis "},
    {"Squeeze", onnx_map_reshape, onnx_fold_reshape, 1, 2, "axes "},
    {"Unsqueeze", onnx_map_reshape, onnx_fold_reshape, 1, 2, "axes "},
    {"Transpose", onnx_map_transpose, onnx_fold_transpose, 1, 1, "perm "},
    {"Concat", onnx_map_concat, onnx_fold_concat, 1, ONNX_MAX_IN, "axis "},
    {"Split", onnx_map_split, NULL, 1, 2, "axis split num_outputs "},
    {"Slice", onnx_map_slice, onnx_fold_slice, 1, 5, "starts ends axes "},
    {"Gather", onnx_map_gather, onnx_fold_gather, 2, 2, "axis "},
    {"ScatterND", onnx_map_scatter_nd, onnx_fold_scatter_nd, 3, 3, "reduction "},
    {"Expand", onnx_map_expand, onnx_fold_expand, 2, 2, ""},
    {"Tile", onnx_map_tile, NULL, 2, 2, ""},
    {"Pad", onnx_map_pad, NULL, 1, 4, "mode pads value "},
    {"Trilu", onnx_map_trilu, onnx_fold_trilu, 1, 2, "upper "},
    {"DepthToSpace", onnx_map_depth_to_space, NULL, 1, 1, "blocksize mode "},
    {"SpaceToDepth", onnx_map_depth_to_space, NULL, 1, 1, "blocksize mode "},
    {"Resize", onnx_map_resize, NULL, 1, 4,
     "mode coordinate_transformation_mode nearest_mode antialias cubic_coeff_a "
     "keep_aspect_ratio_policy exclude_outside extrapolation_value axes "},
    {"Upsample", onnx_map_resize, NULL, 1, 2, "mode "},

    /* sources of constants */
    {"Constant", NULL, onnx_constant_node, 0, 0,
     "value value_int value_ints value_float value_floats "},
    {"ConstantOfShape", NULL, onnx_fold_fill, 1, 1, "value "},
    {"Range", NULL, onnx_fold_range, 3, 3, "stash_type "},
    {"Shape", onnx_shape_of, onnx_shape_of, 1, 1, "start end "},
    {"Size", onnx_size_of, onnx_size_of, 1, 1, ""},
    {NULL},
};

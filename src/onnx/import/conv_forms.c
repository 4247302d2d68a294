/* Convolutions under other names. CausalConvWithState, of opset 27 on: one of each channel along
 * the last dimension, with the end of an earlier call before the first place. Col2Im: a transposed
 * one, whose weights put each number of a block to its place. */
#include "onnx/import/ops.h"

#include <inttypes.h>

static bool is_wanted(const onnx_call *c, int i) {
    return i < c->n_out && *onnx_text(c->node->output[i]);
}

kolo_status onnx_map_causal_conv(onnx_call *c) {
    enum { X, WEIGHTS, BIAS, STATE };
    kolo_value x, w, more;
    KOLO_TRY(onnx_value(c, X, &x));
    KOLO_TRY(onnx_value(c, WEIGHTS, &w));
    const kolo_shape s = kolo_value_shape(c->g, x), of_w = kolo_value_shape(c->g, w);
    if (s.rank != 3 || of_w.rank != 3) return ONNX_FAIL(c, "x is [N,C,T], weights are [C,1,K]");
    const int64_t before = of_w.dim[2] - 1;
    if (onnx_has(c, STATE) && before > 0) {
        KOLO_TRY(onnx_value(c, STATE, &more));
        x = kolo_concat_along(c->g, (kolo_value[]){more, x}, 2, 2);
    } else if (before > 0) {
        x = kolo_pad(c->g, x, 2, before, 0);
    }
    kolo_value y = kolo_conv1d(c->g, x, w, &(kolo_conv1d_opts){.groups = s.dim[1]});
    if (onnx_has(c, BIAS)) {
        KOLO_TRY(onnx_value(c, BIAS, &more));
        y = kolo_add(c->g, y, onnx_as(c, more, kolo_shape_2(s.dim[1], 1)));
    }
    if (onnx_text_is(c, "activation", "silu", false) ||
        onnx_text_is(c, "activation", "swish", false)) {
        y = kolo_silu(c->g, y);
    } else if (!onnx_text_is(c, "activation", "none", true)) {
        return ONNX_FAIL(c, "attribute activation");
    }
    KOLO_TRY(onnx_set(c, 0, y));
    if (!is_wanted(c, 1)) return KOLO_OK;
    if (before == 0) return ONNX_FAIL(c, "the state of weights of one element");
    return onnx_set(c, 1, kolo_slice(c->g, x, 2, s.dim[2], before));
}

enum { FLAT = 2 };

/* Numbers for height and width. */
static kolo_status pair(onnx_call *c, const char *name, int64_t preset, int n_all, int64_t *out) {
    int n;
    for (int k = 0; k < n_all; k++) out[k] = preset;
    KOLO_TRY(onnx_ints(c, name, out, n_all, &n));
    if (n >= 0 && n != n_all) return ONNX_FAIL(c, "attribute %s has %d numbers", name, n);
    for (int k = 0; k < n_all; k++) {
        if (out[k] < preset || out[k] > INT32_MAX) {
            return ONNX_FAIL(c, "attribute %s: %" PRId64, name, out[k]);
        }
    }
    return KOLO_OK;
}

/* 1 at place k of block k, for each channel: [C K,1,height,width], K = height width. */
static kolo_status places_in_block(onnx_call *c, int64_t channels, const int64_t *block,
                                   kolo_value *w) {
    const int64_t each = block[0] * block[1];
    const kolo_shape shape = kolo_shape_4(channels * each, 1, block[0], block[1]);
    float *f = NULL;
    KOLO_TRY(onnx_floats(c, host_count(&shape, HOST_MOST), &f));
    for (int64_t k = 0; k < channels * each * each; k++) f[k] = k / each % each == k % each;
    return onnx_table(c, c->node->output[0], &shape, f, w);
}

kolo_status onnx_map_col2im(onnx_call *c) {
    int64_t image[FLAT] = {0}, block[FLAT] = {0}, stride[FLAT] = {0}, dilation[FLAT] = {0};
    int64_t pads[2 * FLAT] = {0};
    int64_t places[FLAT], more[FLAT];
    int n, n_block;
    kolo_value x, w;
    KOLO_TRY(onnx_value(c, 0, &x));
    KOLO_TRY(onnx_list(c, 1, image, FLAT, &n));
    KOLO_TRY(onnx_list(c, 2, block, FLAT, &n_block));
    const kolo_shape s = kolo_value_shape(c->g, x);
    if (n != FLAT || n_block != FLAT || s.rank != 3) return ONNX_FAIL(c, "an image is [N,C,H,W]");
    KOLO_TRY(pair(c, "strides", 1, FLAT, stride));
    KOLO_TRY(pair(c, "dilations", 1, FLAT, dilation));
    KOLO_TRY(pair(c, "pads", 0, 2 * FLAT, pads));
    for (int d = 0; d < FLAT; d++) {
        if (block[d] < 1 || block[d] > INT32_MAX || image[d] < 1 || image[d] > INT32_MAX) {
            return ONNX_FAIL(c, "the sizes of dimension %d", d);
        }
        if (pads[d] != pads[FLAT + d]) return ONNX_FAIL(c, "attribute pads: uneven padding");
        const int64_t rest = image[d] + 2 * pads[d] - dilation[d] * (block[d] - 1) - 1;
        if (rest < 0) return ONNX_FAIL(c, "a block is larger than the image");
        places[d] = rest / stride[d] + 1;
        more[d] = rest % stride[d];
    }
    const int64_t channels = s.dim[1] / (block[0] * block[1]);
    const kolo_shape all = kolo_shape_2(places[0], places[1]);
    if (channels < 1 || s.dim[1] % (block[0] * block[1]) != 0 ||
        s.dim[2] != host_count(&all, INT64_MAX)) {
        return ONNX_FAIL(c, "the blocks do not fit the image");
    }
    KOLO_TRY(places_in_block(c, channels, block, &w));
    x = onnx_as(c, x, kolo_shape_4(s.dim[0], s.dim[1], places[0], places[1]));
    const kolo_conv_transpose2d_opts opts = {
        .stride_h = stride[0],
        .stride_w = stride[1],
        .pad_h = pads[0],
        .pad_w = pads[1],
        .dilation_h = dilation[0],
        .dilation_w = dilation[1],
        .groups = channels,
        .output_pad_h = more[0],
        .output_pad_w = more[1],
    };
    return onnx_set(c, 0, kolo_conv_transpose2d(c->g, x, w, &opts));
}

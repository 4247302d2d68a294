/* Checks shared by the shape rules of ops. */
#include "graph/ops/rules.h"

#include "base/integer.h"
#include "graph/ops/ops.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

kolo_status kolo_rule_fail(const kolo_shape_query *q, const char *file, int line, const char *fmt,
                           ...) {
    char text[512], shape[KOLO_SHAPE_TEXT];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    for (int i = 0; i < q->n_in && n < (int)sizeof text; i++) {
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%s %s", i ? ", " : " (inputs ",
                      kolo_dtype_name(q->in[i].dtype), kolo_shape_text(&q->in[i].shape, shape));
    }
    return kolo_fail(KOLO_ERR_ARG, file, line, "%s)", text);
}

kolo_status kolo_rule_types(const kolo_shape_query *q, const char *letters) {
    const char *first = strchr(letters, 'f');
    kolo_dtype real = first ? kolo_dtype_wide(q->in[first - letters].dtype) : KOLO_DTYPE_F32;
    if (real != KOLO_DTYPE_F32 && real != KOLO_DTYPE_F64) {
        return KOLO_RULE_FAIL(q, "input %d is %s; it must be f32 or f64", (int)(first - letters),
                              kolo_dtype_name(real));
    }
    for (int i = 0; i < q->n_in; i++) {
        kolo_dtype want = letters[i] == 'i'   ? KOLO_DTYPE_I32
                          : letters[i] == 'l' ? KOLO_DTYPE_I64
                          : letters[i] == 'b' ? KOLO_DTYPE_U8
                                              : real;
        if (q->in[i].dtype != want && !(want == real && kolo_dtype_wide(q->in[i].dtype) == real)) {
            return KOLO_RULE_FAIL(q, "input %d is %s; it must be %s", i,
                                  kolo_dtype_name(q->in[i].dtype), kolo_dtype_name(want));
        }
    }
    return KOLO_OK;
}

kolo_status kolo_rule_rank(const kolo_shape_query *q, int i, int rank, const char *dims) {
    if (q->in[i].shape.rank == rank) return KOLO_OK;
    return KOLO_RULE_FAIL(q, "input %d has %d dimensions; it must have %d: %s", i,
                          q->in[i].shape.rank, rank, dims);
}

kolo_status kolo_rule_same(const kolo_shape_query *q, int i, int j) {
    if (kolo_shape_equal(&q->in[i].shape, &q->in[j].shape)) return KOLO_OK;
    return KOLO_RULE_FAIL(q, "inputs %d and %d differ; they must have equal shapes", i, j);
}

kolo_status kolo_rule_resized(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "f"));
    KOLO_TRY(kolo_rule_rank(q, 0, 4, "N,C,H,W"));
    const int64_t *x = q->in[0].shape.dim;
    int64_t h = q->attr[KOLO_SIZE_H].i, w = q->attr[KOLO_SIZE_W].i;
    if (h < 1 || w < 1 || h > INT32_MAX || w > INT32_MAX) {
        return KOLO_RULE_FAIL(q, "%" PRId64 " x %" PRId64 " pixels; each must be 1 to %d", h, w,
                              INT32_MAX);
    }
    return kolo_rule_out(q, 0, q->in[0].dtype, kolo_shape_4(x[0], x[1], h, w));
}

kolo_value kolo_rule_resized_grad(kolo_graph *g, const kolo_node *n, const kolo_op *op,
                                  kolo_value d_out) {
    const int64_t *x = kolo_info(g, n->in[0])->tensor.shape.dim;
    kolo_attr attr[KOLO_MAX_ATTRS];
    for (int i = 0; i < KOLO_MAX_ATTRS; i++) attr[i] = n->attr[i];
    attr[KOLO_SIZE_H].i = x[2];
    attr[KOLO_SIZE_W].i = x[3];
    return kolo_graph_add1(g, op, &d_out, 1, attr);
}

kolo_status kolo_rule_window(const kolo_shape_query *q, const char *axis, int64_t size,
                             kolo_window window, int64_t *places) {
    const int64_t behind = window.pad + window.more;
    if (window.kernel < 1 || window.stride < 1 || window.dilation < 1 || window.pad < 0 ||
        behind < 0) {
        return KOLO_RULE_FAIL(q,
                              "kernel %" PRId64 ", stride %" PRId64 ", dilation %" PRId64
                              ", padding %" PRId64
                              " along the %s; the first three must be 1 or more, padding 0 or more",
                              window.kernel, window.stride, window.dilation, window.pad, axis);
    }
    /* With at most 31 bits each, nothing below overflows. */
    if ((size | window.kernel | window.stride | window.dilation | window.pad | behind) >
        INT32_MAX) {
        return KOLO_RULE_FAIL(q, "a size above %d along the %s; choose a smaller one", INT32_MAX,
                              axis);
    }
    int64_t span = window.dilation * (window.kernel - 1) + 1, room = size + window.pad + behind;
    if (span > room) {
        return KOLO_RULE_FAIL(q,
                              "the kernel spans %" PRId64 " but the %s with padding is %" PRId64
                              "; pad more or use a smaller kernel",
                              span, axis, room);
    }
    *places = (room - span) / window.stride + 1;
    return KOLO_OK;
}

/* The first row of a place, and the end of the rows of the last one; maybe in the padding. */
static int64_t first_row(kolo_window w, int64_t place) { return place * w.stride - w.pad; }
static int64_t end_row(kolo_window w, int64_t place) {
    return first_row(w, place) + w.dilation * (w.kernel - 1) + 1;
}

void kolo_window_rows(const kolo_window_query *q, kolo_window window, kolo_interval *rows) {
    const int64_t first = first_row(window, q->places.first);
    const int64_t end = end_row(window, q->places.end - 1);
    rows->first = kolo_min_i64(kolo_max_i64(first, 0), q->length);
    rows->end = kolo_max_i64(kolo_min_i64(end, q->length), rows->first);
}

kolo_window kolo_window_part(const kolo_window_query *q, kolo_window window, kolo_interval rows) {
    kolo_window part = window;
    part.pad = rows.first - first_row(window, q->places.first);
    part.more = end_row(window, q->places.end - 1) - rows.end - part.pad;
    return part;
}

kolo_status kolo_rule_out(kolo_shape_query *q, int i, kolo_dtype dtype, kolo_shape shape) {
    int64_t bytes = 64; /* margin for the padding of blocks and for sums over a few tensors */
    for (int d = 0; d < shape.rank; d++) {
        if (__builtin_mul_overflow(bytes, shape.dim[d], &bytes)) {
            char text[KOLO_SHAPE_TEXT];
            return KOLO_RULE_FAIL(q, "output %d would be %s, which exceeds the address space", i,
                                  kolo_shape_text(&shape, text));
        }
    }
    q->out[i] = kolo_tensor_plain(dtype, shape);
    q->n_out = i + 1;
    return KOLO_OK;
}

double kolo_query_bytes(const kolo_shape_query *q) {
    double bytes = 0;
    for (int i = 0; i < q->n_in; i++) bytes += (double)kolo_tensor_bytes(&q->in[i]);
    for (int i = 0; i < q->n_out; i++) bytes += (double)kolo_tensor_bytes(&q->out[i]);
    return bytes;
}

/* The generator of random graphs. */
#include "support/random_graph.h"

#include "base/integer.h"
#include "support/support.h"

#include <stdio.h>

int64_t random_graph_below(random_graph *m, int64_t n) {
    return (int64_t)kolo_rng_below(&m->rng, m->draws++, (uint64_t)n);
}

static int64_t below(random_graph *m, int64_t n) { return random_graph_below(m, n); }

/* A name that begins with `letter` and is new. */
static const char *name_of(random_graph *m, char letter, char name[16]) {
    snprintf(name, 16, "%c%d", letter, m->n_names++);
    return name;
}

static const kolo_shape *shape_of(const random_graph *m, kolo_value v) {
    return &kolo_info(m->g, v)->tensor.shape;
}

/* A parameter of that shape: a new one, or by chance one that is used already. */
static kolo_value param(random_graph *m, kolo_shape shape, int64_t fan_in) {
    for (int32_t v = 0; v < m->g->n_values; v++) {
        const kolo_value_info *info = &m->g->values[v];
        bool same = info->kind == KOLO_VALUE_PARAM && kolo_shape_equal(&info->canon, &shape);
        if (same && below(m, 2)) return (kolo_value){.id = v};
    }
    char name[16];
    return kolo_param(m->g, name_of(m, 'p', name), shape, kolo_init_fan_in(fan_in));
}

static kolo_value some_conv(random_graph *m, kolo_value x) {
    const int64_t *d = shape_of(m, x)->dim;
    int64_t groups = 1 + below(m, 3), kernel[2], dilation[2], pad[2], stride[2];
    if (d[1] % groups) groups = 1;
    for (int a = 0; a < 2; a++) {
        kernel[a] = 1 + below(m, 3);
        dilation[a] = 1 + below(m, 2);
        pad[a] = below(m, 3);
        stride[a] = 1 + below(m, 2);
        if (dilation[a] * (kernel[a] - 1) + 1 > d[2 + a] + 2 * pad[a]) kernel[a] = 1;
    }
    kolo_shape w = kolo_shape_4(groups * (1 + below(m, 3)), d[1] / groups, kernel[0], kernel[1]);
    return kolo_conv2d(m->g, x, param(m, w, w.dim[1] * w.dim[2] * w.dim[3]),
                       &(kolo_conv2d_opts){stride[0], stride[1], pad[0], pad[1], dilation[0],
                                           dilation[1], groups});
}

static kolo_value some_pool(random_graph *m, kolo_value x) {
    const int64_t *d = shape_of(m, x)->dim;
    kolo_pool2d_opts o = {.kernel_h = kolo_min_i64(1 + below(m, 3), d[2]),
                          .kernel_w = kolo_min_i64(1 + below(m, 3), d[3]),
                          .stride_h = below(m, 3),
                          .stride_w = below(m, 3)};
    o.pad_h = below(m, o.kernel_h / 2 + 1);
    o.pad_w = below(m, o.kernel_w / 2 + 1);
    return below(m, 2) ? kolo_max_pool2d(m->g, x, &o) : kolo_avg_pool2d(m->g, x, &o);
}

static kolo_value some_linear(random_graph *m, kolo_value x, int64_t out) {
    kolo_shape w = *shape_of(m, x);
    int64_t inner = kolo_shape_count(&w) / w.dim[0];
    w.dim[0] = out;
    if (w.rank == 4 && below(m, 2)) {
        x = kolo_flatten(m->g, x);
        w = kolo_shape_2(out, inner);
    }
    return kolo_linear(m->g, x, param(m, w, inner));
}

static kolo_value some_bias(random_graph *m, kolo_value x) {
    int64_t channels = shape_of(m, x)->dim[1];
    return kolo_bias(m->g, x, param(m, kolo_shape_1(channels), channels));
}

/* A normalization of the last dimension; the eps keeps gradients small. */
static kolo_value some_norm(random_graph *m, kolo_value x) {
    char name[16];
    name_of(m, 'n', name);
    return below(m, 2) ? kolo_rms_norm(m->g, x, name, 0.1) : kolo_layer_norm(m->g, x, name, 0.1);
}

/* x plus any live value of its shape (which may be x itself), or plus max(x, 0). */
static kolo_value some_add(random_graph *m, kolo_value x) {
    for (int i = 0; i < m->n_live; i++) {
        kolo_value other = m->live[(i + below(m, m->n_live)) % m->n_live];
        if (kolo_shape_equal(shape_of(m, x), shape_of(m, other))) {
            return below(m, 2) ? kolo_add(m->g, x, other) : kolo_add(m->g, other, x);
        }
    }
    return kolo_add(m->g, x, kolo_relu(m->g, x));
}

/* One that keeps numbers small, and has no gradient that grows. */
static kolo_value some_function(random_graph *m, kolo_value x) {
    kolo_graph *g = m->g;
    switch (below(m, 25)) {
    case 0:
        return kolo_tanh(g, x);
    case 1:
        return kolo_leaky_relu(g, x, 0.2);
    case 2:
        return kolo_elu(g, x, 1.3);
    case 3:
        return kolo_softplus(g, x, 0.7);
    case 4:
        return kolo_hardswish(g, x);
    case 5:
        return kolo_clamp(g, x, -0.31, 0.57);
    case 6:
        return kolo_sqrt(g, kolo_exp(g, kolo_tanh(g, x)));
    case 7:
        return kolo_hardsigmoid(g, kolo_scale(g, x, 4));
    case 8:
        return kolo_gelu(g, x, below(m, 2));
    case 9:
        return kolo_silu(g, x);
    case 10:
        return kolo_erf(g, x);
    case 11:
        return kolo_abs(g, x);
    case 12:
        return kolo_log(g, kolo_add_number(g, kolo_square(g, kolo_tanh(g, x)), 0.5));
    case 13:
        return kolo_rsqrt(g, kolo_add_number(g, kolo_square(g, kolo_tanh(g, x)), 0.7));
    case 14:
        return kolo_reciprocal(g, kolo_add_number(g, kolo_abs(g, kolo_tanh(g, x)), 0.8));
    case 15:
        return kolo_pow(g, kolo_sigmoid(g, x), 1.7);
    case 16:
        return kolo_relu6(g, kolo_neg(g, kolo_scale(g, x, 5)));
    case 17:
        return kolo_dropout(g, x, 0.3);
    case 18:
        return kolo_pow(g, kolo_tanh(g, x), 3);
    case 19:
        return kolo_sin(g, kolo_scale(g, x, 2));
    case 20:
        return kolo_cos(g, x);
    case 21:
        return kolo_atan(g, x);
    case 22:
        return kolo_sub(g, x, kolo_round(g, x));
    case 23:
        return kolo_sub(g, kolo_add(g, kolo_floor(g, x), kolo_ceil(g, x)), x);
    default:
        return kolo_square(g, kolo_sigmoid(g, x));
    }
}

/* A function of x and of a value or parameter that is repeated along some dimensions. */
static kolo_value some_broadcast(random_graph *m, kolo_value x) {
    kolo_shape part = *shape_of(m, x);
    kolo_value other;
    if (below(m, 2)) { /* statistics of x */
        int axes[KOLO_MAX_RANK], n = 0;
        for (int d = 1; d < part.rank; d++) {
            if (below(m, 2)) axes[n++] = d;
        }
        if (n == 0) axes[n++] = part.rank - 1;
        switch (below(m, 4)) {
        case 0:
            other = kolo_reduce_mean(m->g, x, axes, n, true);
            break;
        case 1:
            other = kolo_tanh(m->g, kolo_reduce_sum(m->g, x, axes, n, true));
            break;
        case 2:
            other = kolo_reduce_min(m->g, x, axes, n, true);
            break;
        default:
            other = kolo_reduce_max(m->g, x, axes, n, true);
        }
    } else {
        part.rank = 1 + (int)below(m, part.rank - 1);
        for (int d = 0; d < part.rank; d++) {
            part.dim[d] = shape_of(m, x)->dim[shape_of(m, x)->rank - part.rank + d];
            if (below(m, 3) == 0) part.dim[d] = 1;
        }
        other = param(m, part, 4);
    }
    switch (below(m, 5)) {
    case 0:
        return kolo_sub(m->g, other, x);
    case 1:
        return kolo_minimum(m->g, x, other);
    case 2:
        return kolo_maximum(m->g, other, x);
    case 3:
        return kolo_div(m->g, x, kolo_exp(m->g, kolo_tanh(m->g, other)));
    default:
        return kolo_add(m->g, x, kolo_mul(m->g, other, kolo_tanh(m->g, x)));
    }
}

/* A layer of a few units over x, cut into steps, with or without a state. */
static kolo_value some_recurrent(random_graph *m, kolo_value x) {
    const kolo_shape s = *shape_of(m, x);
    const int64_t units = 1 + below(m, 2), inputs = s.dim[s.rank - 1];
    const int64_t steps = kolo_shape_count(&s) / s.dim[0] / inputs;
    char name[16];
    if (steps > 12) return some_function(m, x);
    name_of(m, 'r', name);
    kolo_recurrent_opts o = {.use_state = below(m, 2)};
    if (below(m, 3) == 0) {
        o.bidirectional = true;
    } else {
        o.reverse = below(m, 2);
    }
    kolo_value h = kolo_reshape(m->g, x, kolo_shape_3(s.dim[0], steps, inputs));
    if (o.use_state) {
        kolo_value first = kolo_reduce_mean(m->g, h, (int[]){1, 2}, 2, false);
        first = kolo_reshape(m->g, first, kolo_shape_2(s.dim[0], 1));
        const kolo_value copies[] = {first, first, first, first};
        o.h = o.c = kolo_concat(m->g, copies, (int)(o.bidirectional ? 2 * units : units));
    }
    return below(m, 2) ? kolo_gru(m->g, h, name, 0, units, &o)
                       : kolo_lstm_opts(m->g, h, name, 0, units, &o);
}

/* Another order or part of x, with its samples first; or a softmax. */
static kolo_value some_view(random_graph *m, kolo_value x) {
    const kolo_shape shape = *shape_of(m, x);
    const int axis = 1 + (int)below(m, shape.rank - 1);
    const int64_t size = shape.dim[axis], first = below(m, size);
    const int64_t sizes[] = {first, size - first};
    kolo_value part, parts[2];
    switch (below(m, 6)) {
    case 0:
        return kolo_transpose(m->g, x, axis, shape.rank - 1);
    case 5:
        if (first == 0) return kolo_neg(m->g, x);
        kolo_split_along(m->g, x, axis, sizes, 2, parts);
        return kolo_concat_along(m->g, (kolo_value[]){parts[1], parts[0]}, 2, axis);
    case 3:
        return kolo_flip(m->g, x, axis);
    case 1:
        return kolo_softmax(m->g, x, axis);
    case 2:
        return kolo_log_softmax(m->g, x, axis);
    default:
        part = kolo_slice(m->g, x, axis, first, 1 + below(m, size - first));
        return kolo_concat_along(m->g, (kolo_value[]){part, kolo_pad(m->g, x, axis, 1, 0)}, 2,
                                 axis);
    }
}

/* x at places that x states. */
static kolo_value some_sample(random_graph *m, kolo_value x) {
    const kolo_shape s = *shape_of(m, x);
    kolo_value place = kolo_reshape(m->g, kolo_slice(m->g, x, 1, 0, 1),
                                    kolo_shape_4(s.dim[0], s.dim[2], s.dim[3], 1));
    place = kolo_concat_along(m->g, (kolo_value[]){place, kolo_scale(m->g, place, -0.7)}, 2, 3);
    const kolo_grid_sample_opts opts = {.mode =
                                            below(m, 2) ? KOLO_GRID_BICUBIC : KOLO_GRID_BILINEAR,
                                        .padding = (kolo_grid_padding)below(m, 3),
                                        .align_corners = below(m, 2)};
    return kolo_grid_sample(m->g, x, kolo_tanh(m->g, place), &opts);
}

/* Other layers of images [N,C,H,W]. */
static kolo_value some_image_layer(random_graph *m, kolo_value x) {
    const kolo_shape s = *shape_of(m, x);
    const int64_t n = s.dim[0], c = s.dim[1], h = s.dim[2], w = s.dim[3];
    const kolo_conv_transpose2d_opts up = {
        .stride_h = 2, .stride_w = 1 + below(m, 2), .output_pad_h = below(m, 2)};
    const kolo_conv1d_opts row = {.pad = below(m, 2), .stride = 1 + below(m, 2)};
    const kolo_conv3d_opts deep = {.pad_d = below(m, 2), .pad_h = 1, .stride_d = 1 + below(m, 2)};
    const kolo_lrn_opts lrn = {.size = 3, .alpha = 0.5};
    const bool is_large = h * w > 64;
    char name[16];
    kolo_value y;
    switch (below(m, 13)) {
    case 0:
        if (is_large) return kolo_global_avg_pool2d(m->g, x);
        return kolo_conv_transpose2d(m->g, x, param(m, kolo_shape_4(c, 2, 2, 2), 4 * c), &up);
    case 1:
        y = kolo_reshape(m->g, x, kolo_shape_3(n, c, h * w));
        y = kolo_conv1d(m->g, y, param(m, kolo_shape_3(2, c, 2), 2 * c), &row);
        return kolo_reshape(m->g, y, kolo_shape_4(n, 2, 1, shape_of(m, y)->dim[2]));
    case 2:
        y = kolo_reshape(m->g, x, (kolo_shape){5, {n, 1, c, h, w}});
        y = kolo_conv3d(m->g, y, param(m, (kolo_shape){5, {2, 1, 1, 2, 1}}, 2), &deep);
        return kolo_reshape(m->g, y,
                            kolo_shape_4(n, shape_of(m, y)->dim[2] * 2, shape_of(m, y)->dim[3], w));
    case 3:
        if (below(m, 3) == 0) return kolo_resize_nearest(m->g, x, 1 + below(m, 6), 1 + below(m, 6));
        return kolo_resize(m->g, x, 1 + below(m, 6), 1 + below(m, 6), below(m, 2));
    case 4:
    case 11:
        return kolo_adaptive_avg_pool2d(m->g, x, 1 + below(m, 3), 1 + below(m, 3));
    case 12:
        return some_sample(m, x);
    case 5:
        return kolo_lrn(m->g, x, &lrn);
    case 6:
        if (is_large) return kolo_global_avg_pool2d(m->g, x);
        return kolo_repeat_pixels(m->g, x, 2);
    case 7:
        y = kolo_conv2d(m->g, x, param(m, kolo_shape_4(4, c, 1, 1), c), NULL);
        return is_large ? y : kolo_pixel_shuffle(m->g, y, 2);
    case 8:
        return kolo_group_norm(m->g, x, name_of(m, 'g', name), c % 2 ? 1 : 2, 0.1);
    case 9:
        return kolo_instance_norm(m->g, x, below(m, 2) ? name_of(m, 'i', name) : NULL, 0.1);
    default:
        if (m->only_samples) return kolo_instance_norm(m->g, x, NULL, 0.1);
        return kolo_batch_norm(m->g, x, name_of(m, 'b', name), &(kolo_batch_norm_opts){.eps = 0.1});
    }
}

/* x as tokens [N,T,width] of a linear layer. */
static kolo_value tokens_of(random_graph *m, kolo_value x, int64_t width) {
    const kolo_shape s = *shape_of(m, x);
    const int64_t inputs = s.dim[s.rank - 1];
    const int64_t tokens = kolo_shape_count(&s) / s.dim[0] / inputs;
    x = kolo_reshape(m->g, x, kolo_shape_3(s.dim[0], tokens, inputs));
    return kolo_linear(m->g, x, param(m, kolo_shape_2(width, inputs), inputs));
}

static kolo_value self_attention(random_graph *m, kolo_value x) {
    const kolo_value qkv = tokens_of(m, x, 3 * 4);
    kolo_attention_opts o = {.heads = 1 + below(m, 2), .causal = below(m, 2)};
    char name[16];
    if (below(m, 3) == 0) o.dropout = 0.3;
    if (below(m, 3) == 0) {
        const kolo_shape tokens = kolo_shape_2(m->batch, shape_of(m, qkv)->dim[1]);
        o.mask = kolo_input(m->g, name_of(m, 'm', name), KOLO_DTYPE_I32, tokens);
        o.use_mask = true;
    }
    return kolo_attention(m->g, qkv, &o);
}

/* Queries of x, keys and values of another live value. */
static kolo_value cross_attention(random_graph *m, kolo_value x) {
    kolo_value other = x;
    for (int i = 0; i < m->n_live; i++) {
        const kolo_value live = m->live[below(m, m->n_live)];
        const kolo_shape *s = shape_of(m, live);
        const bool fits = s->rank > 1 && s->dim[0] == m->batch;
        if (fits && kolo_shape_count(s) / s->dim[0] / s->dim[s->rank - 1] < 40) other = live;
    }
    kolo_value q = tokens_of(m, x, 4), k = tokens_of(m, other, 2), v = tokens_of(m, other, 3);
    const int64_t t = shape_of(m, q)->dim[1], s = shape_of(m, k)->dim[1];
    if (below(m, 2)) {
        q = kolo_rotary(m->g, q, 2, 100, 0);
        k = kolo_rotary(m->g, k, 1, 100, 0);
    }
    kolo_cross_attention_opts o = {.heads = 2, .kv_heads = 1, .use_bias = below(m, 2)};
    o.causal = t <= s && below(m, 2);
    if (o.causal) o.window = below(m, 3);
    if (o.use_bias) o.bias = param(m, kolo_shape_3(2, t, s), 2);
    return kolo_cross_attention(m->g, q, k, v, &o);
}

/* Products of tokens, and rows of tables. */
static kolo_value some_lookup(random_graph *m, kolo_value x) {
    const kolo_value h = tokens_of(m, x, 2);
    const int64_t tokens = shape_of(m, h)->dim[1];
    const bool positions = below(m, 2);
    kolo_value ids, table, y;
    char name[16];
    if (below(m, 2)) {
        y = kolo_matmul(m->g, h, h, false, true); /* [N,T,T] */
        return kolo_tanh(m->g, kolo_matmul(m->g, y, h, below(m, 2), false));
    }
    ids = kolo_input(m->g, name_of(m, 'e', name), KOLO_DTYPE_I32, kolo_shape_2(m->batch, tokens));
    table = param(m, kolo_shape_2(RANDOM_GRAPH_CLASSES, 2), 2);
    switch (below(m, 3)) {
    case 0:
        y = kolo_embedding_bag(m->g, table, ids, below(m, 2));
        return kolo_mul(m->g, h, kolo_reshape(m->g, y, kolo_shape_3(m->batch, 1, 2)));
    case 1:
        y = kolo_reshape(m->g, ids, kolo_shape_1(m->batch * tokens));
        y = kolo_gather_rows(m->g, table, y);
        return kolo_mul(m->g, h, kolo_reshape(m->g, y, kolo_shape_3(m->batch, tokens, 2)));
    default:
        y = positions ? param(m, kolo_shape_2(tokens + 1, 2), 2) : KOLO_NONE;
        return kolo_mul(m->g, h, kolo_embedding(m->g, table, ids, y));
    }
}

/* Layers of tokens, where there are few enough. */
static kolo_value some_token_layer(random_graph *m, kolo_value x) {
    const kolo_shape s = *shape_of(m, x);
    if (kolo_shape_count(&s) / s.dim[0] / s.dim[s.rank - 1] > 40) return some_function(m, x);
    switch (below(m, 3)) {
    case 0:
        return self_attention(m, x);
    case 1:
        return cross_attention(m, x);
    default:
        return some_lookup(m, x);
    }
}

static kolo_value grow(random_graph *m, kolo_value x) {
    bool image = shape_of(m, x)->rank == 4;
    switch (below(m, image ? 18 : 12)) {
    case 0:
        return below(m, 2) ? some_bias(m, x) : some_norm(m, x);
    case 1:
        return kolo_relu(m->g, x);
    case 2:
        return some_add(m, x);
    case 3:
        return some_linear(m, x, 1 + below(m, 6));
    case 4:
        return kolo_relu(m->g, some_bias(m, image ? some_conv(m, x) : some_linear(m, x, 5)));
    case 5:
    case 6:
        return some_function(m, x);
    case 7:
        return some_broadcast(m, x);
    case 8:
        return some_view(m, x);
    case 9:
        return some_recurrent(m, x);
    case 10:
    case 11:
        return some_token_layer(m, x);
    case 12:
        return some_pool(m, x);
    case 13:
        return some_pool(m, kolo_relu(m->g, x));
    case 14:
        return kolo_flatten(m->g, x);
    case 15:
    case 16:
        return some_image_layer(m, x);
    default:
        return some_conv(m, x);
    }
}

/* The loss: a cross-entropy, by chance with weights of the classes, and by chance with a CTC of
 * a live value's numbers as time steps and classes: of a function of it, since what is added to all
 * logits has no gradient. */
static kolo_value some_loss(random_graph *m, kolo_value logits) {
    kolo_loss_opts opts = {.use_weights = below(m, 3) == 0, .has_ignore_index = below(m, 4) == 0};
    if (below(m, 3) == 0) opts.smoothing = 0.1;
    if (opts.use_weights) {
        const kolo_init init = {KOLO_INIT_UNIFORM, 1};
        opts.weights = kolo_exp(
            m->g, kolo_frozen_param(m->g, "weights", kolo_shape_1(RANDOM_GRAPH_CLASSES), init));
    }
    kolo_value loss = kolo_softmax_xent_opts(m->g, logits, m->labels, &opts);
    const kolo_value x = m->live[below(m, m->n_live)];
    const int64_t elements = kolo_shape_count(shape_of(m, x)) / m->batch;
    const int64_t classes = shape_of(m, x)->dim[shape_of(m, x)->rank - 1];
    const bool cut = shape_of(m, x)->dim[0] == m->batch && shape_of(m, x)->rank > 1;
    if (!cut || below(m, 2)) return loss;
    kolo_value steps = kolo_reshape(m->g, x, kolo_shape_3(m->batch, elements / classes, classes));
    kolo_value read = kolo_input(m->g, "read", KOLO_DTYPE_I32, kolo_shape_2(m->batch, 2));
    kolo_ctc_opts ctc = {.blank = classes - 1};
    return kolo_add(m->g, loss, kolo_ctc_loss(m->g, kolo_silu(m->g, steps), read, &ctc));
}

/* By chance adds a loss that compares a live value with a target. */
static kolo_value some_regression(random_graph *m, kolo_value loss) {
    kolo_value x = m->live[below(m, m->n_live)], y, target;
    const kolo_shape s = *shape_of(m, x);
    if (s.dim[0] != m->batch || s.rank < 2 || below(m, 2)) return loss;
    x = kolo_tanh(m->g, kolo_flatten(m->g, x));
    target = kolo_input(m->g, "target", m->dtype, *shape_of(m, x));
    switch (below(m, 6)) {
    case 0:
        y = kolo_mse_loss(m->g, x, target);
        break;
    case 1:
        y = kolo_l1_loss(m->g, x, kolo_scale(m->g, target, 40));
        break;
    case 2:
        y = kolo_huber_loss(m->g, x, target, 0.3);
        break;
    case 3:
        y = kolo_bce_with_logits(m->g, x, target);
        break;
    case 4:
        y = kolo_soft_xent(m->g, x, kolo_softmax(m->g, target, 1));
        break;
    default:
        y = kolo_kl_div(m->g, kolo_log_softmax(m->g, x, 1), kolo_softmax(m->g, target, 1));
    }
    return kolo_add(m->g, loss, kolo_scale(m->g, y, 0.1));
}

/* By chance adds what is scattered to the rows of a table. */
static kolo_value some_scatter(random_graph *m, kolo_value loss) {
    const kolo_value x = m->live[below(m, m->n_live)];
    const kolo_shape s = *shape_of(m, x);
    if (m->only_samples || s.dim[0] != m->batch || s.rank < 2 || below(m, 3)) return loss;
    const kolo_value h = kolo_tanh(m->g, some_linear(m, kolo_flatten(m->g, x), 2));
    const kolo_value to = kolo_input(m->g, "to", KOLO_DTYPE_I32, kolo_shape_1(m->batch));
    const kolo_value rows = kolo_scatter_add(m->g, h, to, RANDOM_GRAPH_CLASSES);
    const kolo_value factors = param(m, kolo_shape_2(RANDOM_GRAPH_CLASSES, 2), 2);
    return kolo_add(m->g, loss, kolo_sum(m->g, kolo_mul(m->g, rows, factors)));
}

/* By chance adds the squares of what experts make of a live value. */
static kolo_value some_experts(random_graph *m, kolo_value loss) {
    enum { EXPERTS = 3, WIDTH = 2 };
    const kolo_value x = m->live[below(m, m->n_live)];
    const int64_t elements = kolo_shape_count(shape_of(m, x)) / m->batch;
    const int64_t width = shape_of(m, x)->dim[shape_of(m, x)->rank - 1];
    const bool cut = shape_of(m, x)->dim[0] == m->batch && shape_of(m, x)->rank > 1;
    if (!cut || below(m, 3)) return loss;
    const int64_t tokens = elements / width, capacity = 1 + tokens / 2;
    const kolo_init init = kolo_init_fan_in(width);
    kolo_value h = kolo_silu(m->g, kolo_reshape(m->g, x, kolo_shape_3(m->batch, tokens, width)));
    kolo_value gate = kolo_param(m->g, "gate", kolo_shape_2(EXPERTS, width), init);
    kolo_value w = kolo_param(m->g, "experts", kolo_shape_3(EXPERTS, WIDTH, width), init);
    kolo_value p = kolo_softmax(m->g, kolo_linear(m->g, h, gate), 2), route[2];
    kolo_expert_route(m->g, p, 2, capacity, route);
    kolo_value y = kolo_expert_linear(m->g, kolo_expert_dispatch(m->g, h, route[0], capacity), w);
    y = kolo_expert_combine(m->g, y, route[0], kolo_mul(m->g, p, route[1]));
    return kolo_add(m->g, loss, kolo_scale(m->g, kolo_sum(m->g, kolo_square(m->g, y)), 0.01));
}

void random_graph_make(random_graph *m, uint64_t seed, const random_graph_opts *opts) {
    *m = (random_graph){.rng = kolo_rng_make(seed, KOLO_RNG_TEST, 2),
                        .dtype = opts->dtype,
                        .only_samples = opts->only_samples};
    ASSERT_OK(kolo_graph_create(&(kolo_graph_opts){opts->dtype}, &m->g));
    m->batch = 1 + below(m, 3);
    if (opts->batch > 0) m->batch = opts->batch;
    kolo_shape images = kolo_shape_4(m->batch, 1 + below(m, 4), 3 + below(m, 7), 3 + below(m, 7));
    m->is_param = below(m, 3) == 0;
    m->live[m->n_live++] = m->is_param ? kolo_param(m->g, "x", images, kolo_init_fan_in(1))
                                       : kolo_input(m->g, "x", opts->dtype, images);
    for (int64_t steps = 3 + below(m, 10); steps > 0; steps--) {
        /* Mostly go on with the latest value; by chance branch from an older one. */
        int from = below(m, 3) ? m->n_live - 1 : (int)below(m, m->n_live);
        kolo_value y = grow(m, m->live[from]);
        ASSERT_OK(kolo_graph_check(m->g));
        m->live[m->n_live++] = y;
    }
    kolo_value logits = some_linear(m, m->live[m->n_live - 1], RANDOM_GRAPH_CLASSES);
    for (int64_t heads = below(m, 3); heads > 0; heads--) {
        kolo_value other = m->live[below(m, m->n_live)];
        logits = kolo_add(m->g, logits, some_linear(m, other, RANDOM_GRAPH_CLASSES));
    }
    m->labels = kolo_input(m->g, "labels", KOLO_DTYPE_I32, kolo_shape_1(m->batch));
    m->loss = some_scatter(m, some_regression(m, some_experts(m, some_loss(m, logits))));
    kolo_output(m->g, "loss", m->loss);
    kolo_output(m->g, "correct", kolo_accuracy(m->g, logits, m->labels));
    ASSERT_OK(kolo_graph_verify(m->g));
}

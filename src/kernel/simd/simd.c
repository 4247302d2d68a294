/* The list of our vectorised kernels, the choice of instruction set, and what their files share. */
#include "kernel/simd/simd.h"

const kolo_kernel *const kolo_simd_kernels[] = {
    &kolo_simd_relu,
    &kolo_simd_relu_bwd,
    &kolo_simd_add,
    &kolo_simd_sgd,
    &kolo_simd_adam,
    &kolo_simd_square_sum,
    &kolo_simd_clip_factor,
    &kolo_simd_accumulate,
    &kolo_simd_bias,
    &kolo_simd_bias_bwd,
    &kolo_simd_softmax_xent,
    &kolo_simd_softmax_xent_bwd,
    &kolo_simd_accuracy,
    &kolo_simd_confusion,
    &kolo_simd_max_pool2d,
    &kolo_simd_max_pool2d_bwd,
    &kolo_simd_avg_pool2d,
    &kolo_simd_avg_pool2d_bwd,
    &kolo_simd_adaptive_avg_pool2d,
    &kolo_simd_adaptive_avg_pool2d_bwd,
    &kolo_simd_resize,
    &kolo_simd_resize_bwd,
    &kolo_simd_lrn,
    &kolo_simd_lrn_bwd,
    &kolo_simd_batch_norm,
    &kolo_simd_batch_norm_bwd,
    &kolo_simd_batch_norm_infer,
    &kolo_simd_batch_norm_update,
    &kolo_simd_scale,
    &kolo_simd_concat,
    &kolo_simd_channel_window,
    &kolo_simd_dropout,
    &kolo_simd_conv2d,
    &kolo_simd_conv2d_bwd_data,
    &kolo_simd_conv2d_bwd_weights,
    &kolo_simd_wino,
    &kolo_simd_wino_bwd_data,
    &kolo_simd_wino_bwd_weights,
    &kolo_simd_linear,
    &kolo_simd_linear_bwd_data,
    &kolo_simd_reorder,
    &kolo_simd_convert,
    &kolo_simd_gelu,
    &kolo_simd_gelu_bwd,
    &kolo_simd_linear_gelu,
    &kolo_simd_silu,
    &kolo_simd_silu_bwd,
    &kolo_simd_sigmoid,
    &kolo_simd_sigmoid_bwd,
    &kolo_simd_tanh,
    &kolo_simd_tanh_bwd,
    &kolo_simd_mul,
    &kolo_simd_layer_norm,
    &kolo_simd_layer_norm_bwd,
    &kolo_simd_embedding,
    &kolo_simd_embedding_bwd,
    &kolo_simd_embedding_bwd_rows,
    &kolo_simd_merge_rows,
    &kolo_simd_sgd_rows,
    &kolo_simd_adam_rows,
    &kolo_simd_position_bwd,
    &kolo_simd_mask_tokens,
    &kolo_simd_attention,
    &kolo_simd_attention_bwd,
    &kolo_simd_lstm,
    &kolo_simd_lstm_bwd,
    &kolo_simd_shift,
    NULL,
};

bool kolo_simd_takes(const kolo_kernel_spec *spec) {
    const kolo_tensor *first = &spec->in[0];
    if (first->dtype != KOLO_DTYPE_F32 && first->dtype != KOLO_DTYPE_BF16) return false;
    for (int i = 0; i < spec->n_in + spec->n_out; i++) {
        const kolo_tensor *t = i < spec->n_in ? &spec->in[i] : &spec->out[i - spec->n_in];
        bool integer = t->dtype == KOLO_DTYPE_I32 || t->dtype == KOLO_DTYPE_U8;
        bool activation = t->shape.rank == first->shape.rank;
        if (!integer && t->dtype != (activation ? first->dtype : KOLO_DTYPE_F32)) return false;
    }
    return true;
}

/* ---- jobs ---- */

void kolo_simd_parallel(int threads, int64_t items, kolo_simd_loop loop, const void *job) {
    if (threads <= 1) {
        loop(job, 0, 0, items);
        return;
    }
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) schedule(static, 1)
#endif
    for (int part = 0; part < threads; part++) {
        loop(job, part, items * part / threads, items * (part + 1) / threads);
    }
}

bool kolo_simd_image_of(const kolo_tensor *tensor, kolo_simd_image *image) {
    const kolo_shape *s = &tensor->shape;
    const kolo_layout *l = &tensor->layout;
    if (s->rank < 2 || l->rank != s->rank) return false;
    kolo_simd_image v = {.n = s->dim[0], .c = s->dim[1], .h = 1, .w = 1};
    if (s->rank == 4) v.h = s->dim[2];
    for (int i = s->rank == 4 ? 3 : 2; i < s->rank; i++) v.w *= s->dim[i];
    if (kolo_layout_is_plain(l)) {
        v.inner = v.h * v.w == 1 ? v.c : 1;
    } else if (s->rank != 4 || l->order[0] != 0) {
        return false;
    } else if (l->n_blocks == 0 && l->order[1] == 2 && l->order[2] == 3) {
        v.inner = v.c;
    } else if (l->n_blocks == 1 && l->block_dim[0] == 1 && l->order[1] == 1 && l->order[2] == 2) {
        v.inner = l->block_size[0];
    } else {
        return false;
    }
    v.planes = (v.c + v.inner - 1) / v.inner;
    *image = v;
    return true;
}

/* Shared by the vectorized kernels: views of images, dtype checks. */
#include "kernel/simd/simd.h"

bool kolo_simd_supports(const kolo_kernel_spec *spec) {
    const kolo_tensor *first = &spec->in[0];
    if (first->dtype != KOLO_DTYPE_F32 && first->dtype != KOLO_DTYPE_BF16) return false;
    for (int i = 0; i < spec->n_in + spec->n_out; i++) {
        const kolo_tensor *t = i < spec->n_in ? &spec->in[i] : &spec->out[i - spec->n_in];
        bool integer =
            t->dtype == KOLO_DTYPE_I32 || t->dtype == KOLO_DTYPE_I64 || t->dtype == KOLO_DTYPE_U8;
        bool activation = t->shape.rank == first->shape.rank;
        if (!integer && t->dtype != (activation ? first->dtype : KOLO_DTYPE_F32)) return false;
    }
    return true;
}

bool kolo_simd_writes_past(const kolo_call *call, int64_t run) {
    enum { LARGE_BYTES = 16 << 20 };
    const uintptr_t at = (uintptr_t)call->out[0];
    bool apart = run % KOLO_SIMD_LINE == 0 && at % (KOLO_SIMD_LINE * sizeof(float)) == 0;
    for (int i = 0; i < call->spec->n_in; i++) apart &= call->in[i] != call->out[0];
    return apart && kolo_tensor_bytes(&call->spec->out[0]) >= LARGE_BYTES;
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

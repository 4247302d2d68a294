/* Layouts: text, sizes, offsets. */
#include "base/status.h"
#include "tensor/tensor.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

kolo_layout kolo_layout_plain(int rank) {
    kolo_layout layout = {.rank = (uint8_t)rank};
    for (int i = 0; i < rank; i++) layout.order[i] = (uint8_t)i;
    return layout;
}

kolo_status kolo_layout_parse(const char *text, kolo_layout *layout) {
    kolo_layout parsed = {0};
    unsigned seen = 0, blocked = 0;
    const char *p = text;
    for (; isalpha((unsigned char)*p); p++) {
        int dim = tolower((unsigned char)*p) - 'a';
        if (dim >= KOLO_MAX_RANK || seen >> dim & 1) goto bad;
        seen |= 1u << dim;
        if (isupper((unsigned char)*p)) blocked |= 1u << dim;
        parsed.order[parsed.rank++] = (uint8_t)dim;
    }
    if (seen != (1u << parsed.rank) - 1) goto bad;
    while (*p) {
        int size = 0;
        for (; isdigit((unsigned char)*p) && size < 256; p++) size = 10 * size + (*p - '0');
        int dim = *p - 'a';
        if (size < 2 || size > 255 || dim < 0 || dim >= parsed.rank || !(blocked >> dim & 1) ||
            parsed.n_blocks == KOLO_MAX_BLOCKS) {
            goto bad;
        }
        parsed.block_dim[parsed.n_blocks] = (uint8_t)dim;
        parsed.block_size[parsed.n_blocks++] = (uint8_t)size;
        p++;
    }
    unsigned cut = 0;
    for (int i = 0; i < parsed.n_blocks; i++) cut |= 1u << parsed.block_dim[i];
    if (cut != blocked) goto bad;
    *layout = parsed;
    return KOLO_OK;
bad:
    return KOLO_FAIL(KOLO_ERR_ARG, "\"%s\" is not a layout; give one such as acdb or aBcd8b", text);
}

const char *kolo_layout_text(const kolo_layout *layout, char text[KOLO_LAYOUT_TEXT]) {
    unsigned blocked = 0;
    for (int i = 0; i < layout->n_blocks; i++) blocked |= 1u << layout->block_dim[i];
    int n = 0;
    for (int i = 0; i < layout->rank; i++) {
        int dim = layout->order[i];
        text[n++] = (char)((blocked >> dim & 1 ? 'A' : 'a') + dim);
    }
    text[n] = '\0';
    for (int i = 0; i < layout->n_blocks; i++) {
        n += snprintf(text + n, (size_t)(KOLO_LAYOUT_TEXT - n), "%d%c", layout->block_size[i],
                      'a' + layout->block_dim[i]);
    }
    return text;
}

bool kolo_layout_equal(const kolo_layout *a, const kolo_layout *b) {
    return a->rank == b->rank && a->n_blocks == b->n_blocks &&
           memcmp(a->order, b->order, a->rank) == 0 &&
           memcmp(a->block_dim, b->block_dim, a->n_blocks) == 0 &&
           memcmp(a->block_size, b->block_size, a->n_blocks) == 0;
}

bool kolo_layout_is_plain(const kolo_layout *layout) {
    kolo_layout plain = kolo_layout_plain(layout->rank);
    return kolo_layout_equal(layout, &plain);
}

/* The product of the sizes of the inner blocks of `dim`. */
static int64_t block_of(const kolo_layout *layout, int dim) {
    int64_t block = 1;
    for (int i = 0; i < layout->n_blocks; i++) {
        if (layout->block_dim[i] == dim) block *= layout->block_size[i];
    }
    return block;
}

int64_t kolo_layout_padded(const kolo_layout *layout, const kolo_shape *shape, int dim) {
    int64_t block = block_of(layout, dim);
    return (shape->dim[dim] + block - 1) / block * block;
}

int64_t kolo_tensor_elements(const kolo_tensor *tensor) {
    int64_t count = 1;
    for (int i = 0; i < tensor->shape.rank; i++) {
        count *= kolo_layout_padded(&tensor->layout, &tensor->shape, i);
    }
    return count;
}

size_t kolo_tensor_bytes(const kolo_tensor *tensor) {
    return (size_t)kolo_tensor_elements(tensor) * kolo_dtype_bytes(tensor->dtype);
}

int64_t kolo_layout_offset(const kolo_layout *layout, const kolo_shape *shape,
                           const int64_t *index) {
    /* From the innermost block outwards; `rest` is each index divided by the blocks so far. */
    int64_t rest[KOLO_MAX_RANK] = {0}, offset = 0, stride = 1;
    for (int i = 0; i < shape->rank; i++) rest[i] = index[i];
    for (int i = layout->n_blocks - 1; i >= 0; i--) {
        int dim = layout->block_dim[i], size = layout->block_size[i];
        offset += rest[dim] % size * stride;
        rest[dim] /= size;
        stride *= size;
    }
    for (int i = layout->rank - 1; i >= 0; i--) {
        int dim = layout->order[i];
        offset += rest[dim] * stride;
        stride *= kolo_layout_padded(layout, shape, dim) / block_of(layout, dim);
    }
    return offset;
}

kolo_tensor kolo_tensor_plain(kolo_dtype dtype, kolo_shape shape) {
    return (kolo_tensor){dtype, shape, kolo_layout_plain(shape.rank)};
}

kolo_shape kolo_shape_stack(const kolo_shape *shape, int64_t n) {
    kolo_shape stack = {.rank = shape->rank + 1};
    KOLO_ASSERT(stack.rank <= KOLO_MAX_RANK);
    stack.dim[0] = n;
    for (int i = 0; i < shape->rank; i++) stack.dim[i + 1] = shape->dim[i];
    return stack;
}

kolo_tensor kolo_tensor_stack(const kolo_tensor *tensor, int64_t n) {
    kolo_tensor stack = {.dtype = tensor->dtype, .layout = tensor->layout};
    stack.shape = kolo_shape_stack(&tensor->shape, n);
    stack.layout.rank = (uint8_t)stack.shape.rank;
    stack.layout.order[0] = 0;
    for (int i = 0; i < tensor->shape.rank; i++) {
        stack.layout.order[i + 1] = (uint8_t)(tensor->layout.order[i] + 1);
    }
    for (int i = 0; i < stack.layout.n_blocks; i++) stack.layout.block_dim[i]++;
    return stack;
}

kolo_tensor kolo_tensor_unstack(const kolo_tensor *stack) {
    kolo_tensor one = {.dtype = stack->dtype, .layout = stack->layout};
    one.shape.rank = stack->shape.rank - 1;
    one.layout.rank = (uint8_t)one.shape.rank;
    for (int i = 0; i < one.shape.rank; i++) {
        one.shape.dim[i] = stack->shape.dim[i + 1];
        one.layout.order[i] = (uint8_t)(stack->layout.order[i + 1] - 1);
    }
    one.layout.order[one.shape.rank] = 0;
    for (int i = 0; i < one.layout.n_blocks; i++) one.layout.block_dim[i]--;
    return one;
}

/* Codecs: names, sizes, argument checks, and the iteration over blocks. The loops are in
 * codec.isa.c. */
#include "kolo/codec.h"

#include "base/integer.h"
#include "base/number.h"
#include "base/status.h"
#include "comm/codec/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const kolo_codec_table *kolo_codec_of(kolo_isa isa) { return KOLO_ISA_COPY(kolo_codec, isa); }

const kolo_codec_table *kolo_codec_best(void) { return KOLO_ISA_PICK(kolo_codec); }

/* ---- names ---- */

static const char *const names[] = {
#define CODEC_NAME(code, name) name,
    KOLO_CODEC_LIST(CODEC_NAME)
#undef CODEC_NAME
        NULL,
};

const char *kolo_codec_name(kolo_codec_kind kind) {
    return (size_t)kind < KOLO_CODEC_COUNT ? names[kind] : "unknown";
}

static kolo_status parse_ratio(const char *text, double *ratio) {
    char *end;
    *ratio = kolo_parse_double(text, &end);
    if (end != text && *end == '\0' && *ratio > 0 && *ratio <= 1) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "topk:%s: the ratio must be in (0, 1], for instance "
                     "topk:0.01",
                     text);
}

kolo_status kolo_codec_parse(const char *text, kolo_codec *codec) {
    if (!text) return KOLO_FAIL(KOLO_ERR_ARG, "the codec name is NULL");
    size_t length = strcspn(text, ":");
    for (int i = 0; names[i]; i++) {
        if (strlen(names[i]) != length || strncmp(text, names[i], length) != 0) continue;
        kolo_codec found = {.kind = (kolo_codec_kind)i};
        if (text[length] == ':') {
            if (i != KOLO_CODEC_TOPK) {
                return KOLO_FAIL(KOLO_ERR_ARG, "%s: only topk takes a ratio", text);
            }
            KOLO_TRY(parse_ratio(text + length + 1, &found.ratio));
        }
        *codec = found;
        return KOLO_OK;
    }
    const char *closest = kolo_closest(text, names);
    return KOLO_FAIL(KOLO_ERR_ARG, "unknown codec '%s': %s%s%s", text,
                     closest ? "did you mean '"
                             : "choose one of none, f16, bf16, int8, onebit, topk:R",
                     closest ? closest : "", closest ? "'?" : "");
}

/* ---- sizes ---- */

/* A block codec's format: `heads` floats per `head_block` elements, `body_bits` bits per
 * element. */
static const struct layout {
    size_t heads, head_block, body_bits;
} layouts[KOLO_CODEC_COUNT] = {
    [KOLO_CODEC_NONE] = {0, 1, 32},
    [KOLO_CODEC_F16] = {0, 1, 16},
    [KOLO_CODEC_BF16] = {0, 1, 16},
    [KOLO_CODEC_INT8] = {1, KOLO_INT8_BLOCK, 8},
    [KOLO_CODEC_ONEBIT] = {2, KOLO_CODEC_BLOCK, 1},
};

size_t kolo_codec_kept(const kolo_codec *codec, size_t count) {
    double ratio = codec->ratio == 0 ? 0.01 : codec->ratio;
    size_t kept = (size_t)ceil(ratio * (double)count);
    return kept < count ? kept : count;
}

static size_t heads_of(const struct layout *l, size_t count) {
    return l->heads * ((count + l->head_block - 1) / l->head_block);
}

size_t kolo_codec_bytes(const kolo_codec *codec, size_t count) {
    if (codec->kind == KOLO_CODEC_TOPK) {
        return kolo_codec_kept(codec, count) * (sizeof(uint32_t) + sizeof(float));
    }
    const struct layout *l = &layouts[codec->kind];
    return heads_of(l, count) * sizeof(float) + (count * l->body_bits + 7) / 8;
}

static kolo_status check(const kolo_codec *codec, size_t count, size_t bytes, kolo_status wrong) {
    if ((size_t)codec->kind >= KOLO_CODEC_COUNT) {
        return KOLO_FAIL(KOLO_ERR_ARG, "unknown codec %d", (int)codec->kind);
    }
    if (codec->kind == KOLO_CODEC_TOPK) {
        if (!(codec->ratio >= 0 && codec->ratio <= 1)) {
            return KOLO_FAIL(KOLO_ERR_ARG, "topk: ratio %g is outside (0, 1]", codec->ratio);
        }
        if (count > UINT32_MAX) {
            return KOLO_FAIL(KOLO_ERR_ARG, "topk: %zu elements exceed 32-bit indices", count);
        }
    }
    if (count > SIZE_MAX / 32)
        return KOLO_FAIL(KOLO_ERR_ARG, "%zu elements are too many for a codec", count);
    if (bytes != kolo_codec_bytes(codec, count)) {
        return KOLO_FAIL(wrong, "a %s code of %zu elements has %zu bytes, not %zu",
                         kolo_codec_name(codec->kind), count, kolo_codec_bytes(codec, count),
                         bytes);
    }
    return KOLO_OK;
}

/* Indices must be strictly ascending, so that none occurs twice. */
static kolo_status check_indices(const char *code, size_t kept, size_t count) {
    uint64_t least = 0;
    for (size_t i = 0; i < kept; i++) {
        uint32_t index;
        memcpy(&index, code + i * sizeof index, sizeof index);
        if (index < least || index >= count) {
            return KOLO_FAIL(KOLO_ERR_FORMAT,
                             "a topk code of %zu elements has index %u at position "
                             "%zu: indices must ascend and stay below the count",
                             count, index, i);
        }
        least = (uint64_t)index + 1;
    }
    return KOLO_OK;
}

/* ---- encoding ---- */

/* The offsets of the heads and the body of the block at element `at`, in a code of `count`
 * elements. */
typedef struct place {
    size_t heads, head_at, body_at, body_bytes;
} place;

static place place_of(const struct layout *l, size_t count, size_t at, size_t n) {
    return (place){
        .heads = heads_of(l, n),
        .head_at = heads_of(l, at) * sizeof(float),
        .body_at = heads_of(l, count) * sizeof(float) + at * l->body_bits / 8,
        .body_bytes = (n * l->body_bits + 7) / 8,
    };
}

static void encode_blocks(const kolo_codec_table *table, const kolo_codec *codec,
                          const float *values, size_t count, float *residual, char *code) {
    const struct layout *l = &layouts[codec->kind];
    float block[KOLO_CODEC_BLOCK], head[KOLO_CODEC_HEADS];
    char body[KOLO_CODEC_BLOCK * sizeof(uint16_t)];
    for (size_t at = 0; at < count; at += KOLO_CODEC_BLOCK) {
        size_t n = count - at < KOLO_CODEC_BLOCK ? count - at : KOLO_CODEC_BLOCK;
        size_t padded = kolo_round_up(n, KOLO_CODEC_PAD);
        bool whole = n == padded;
        float *v = residual && whole ? residual + at : block;
        if (residual) {
            table->add(v, values + at, residual + at, n);
        } else {
            memcpy(v, values + at, n * sizeof *v);
        }
        if (!whole) memset(v + n, 0, (padded - n) * sizeof *v);
        place p = place_of(l, count, at, n);
        table->block[codec->kind].encode(v, padded, n, head, whole ? code + p.body_at : body);
        if (!whole) memcpy(code + p.body_at, body, p.body_bytes);
        if (p.heads > 0) memcpy(code + p.head_at, head, p.heads * sizeof *head);
        if (residual && !whole) memcpy(residual + at, v, n * sizeof *v);
    }
}

static void encode_top(const kolo_codec_table *table, const kolo_codec *codec, const float *values,
                       size_t count, float *residual, char *code) {
    size_t kept = kolo_codec_kept(codec, count);
    if (residual) table->add(residual, values, residual, count);
    table->top(residual ? residual : values, count, kept, code, code + kept * sizeof(uint32_t));
    for (size_t i = 0; residual && i < kept; i++) {
        uint32_t index;
        memcpy(&index, code + i * sizeof index, sizeof index);
        residual[index] = 0;
    }
}

void kolo_codec_encode_with(const kolo_codec_table *table, const kolo_codec *codec,
                            const float *values, size_t count, float *residual, void *code) {
    if (codec->kind == KOLO_CODEC_TOPK) {
        encode_top(table, codec, values, count, residual, code);
    } else if (codec->kind != KOLO_CODEC_NONE) {
        encode_blocks(table, codec, values, count, residual, code);
    } else if (count > 0 && residual) {
        for (size_t i = 0; i < count; i++) {
            float sum = values[i] + residual[i];
            memcpy((char *)code + i * sizeof sum, &sum, sizeof sum);
            residual[i] = 0;
        }
    } else if (count > 0) {
        memcpy(code, values, count * sizeof *values);
    }
}

kolo_status kolo_codec_encode(const kolo_codec *codec, const float *values, size_t count,
                              float *residual, void *code, size_t bytes) {
    KOLO_TRY(check(codec, count, bytes, KOLO_ERR_ARG));
    kolo_codec_encode_with(kolo_codec_best(), codec, values, count, residual, code);
    return KOLO_OK;
}

/* ---- decoding ---- */

/* Decodes one block of n elements into v, which has room for a whole block. */
static void decode_block(const kolo_codec_table *table, const kolo_codec *codec, const char *code,
                         size_t count, size_t at, size_t n, float *v) {
    const struct layout *l = &layouts[codec->kind];
    place p = place_of(l, count, at, n);
    if (codec->kind == KOLO_CODEC_NONE) {
        memcpy(v, code + p.body_at, p.body_bytes);
        return;
    }
    float head[KOLO_CODEC_HEADS];
    char body[KOLO_CODEC_BLOCK * sizeof(uint16_t)];
    size_t padded = kolo_round_up(n, KOLO_CODEC_PAD);
    const char *from = code + p.body_at;
    if (p.heads > 0) memcpy(head, code + p.head_at, p.heads * sizeof *head);
    if (n < padded) {
        memset(body, 0, sizeof body);
        from = memcpy(body, from, p.body_bytes);
    }
    table->block[codec->kind].decode(v, padded, head, from);
}

static void add_top(const kolo_codec *codec, const char *code, float *sum, size_t count,
                    float scale) {
    size_t kept = kolo_codec_kept(codec, count);
    for (size_t i = 0; i < kept; i++) {
        uint32_t index;
        float value;
        memcpy(&index, code + i * sizeof index, sizeof index);
        memcpy(&value, code + kept * sizeof index + i * sizeof value, sizeof value);
        sum[index] += scale * value;
    }
}

void kolo_codec_add_with(const kolo_codec_table *table, const kolo_codec *codec, const void *code,
                         float *sum, size_t count, float scale) {
    if (codec->kind == KOLO_CODEC_TOPK) {
        add_top(codec, code, sum, count, scale);
        return;
    }
    float v[KOLO_CODEC_BLOCK];
    for (size_t at = 0; at < count; at += KOLO_CODEC_BLOCK) {
        size_t n = count - at < KOLO_CODEC_BLOCK ? count - at : KOLO_CODEC_BLOCK;
        decode_block(table, codec, code, count, at, n, v);
        table->add_scaled(sum + at, v, scale, n);
    }
}

static kolo_status check_code(const kolo_codec *codec, const void *code, size_t bytes,
                              size_t count) {
    KOLO_TRY(check(codec, count, bytes, KOLO_ERR_FORMAT));
    if (codec->kind != KOLO_CODEC_TOPK) return KOLO_OK;
    return check_indices(code, kolo_codec_kept(codec, count), count);
}

kolo_status kolo_codec_add(const kolo_codec *codec, const void *code, size_t bytes, float *sum,
                           size_t count, float scale) {
    KOLO_TRY(check_code(codec, code, bytes, count));
    kolo_codec_add_with(kolo_codec_best(), codec, code, sum, count, scale);
    return KOLO_OK;
}

kolo_status kolo_codec_decode(const kolo_codec *codec, const void *code, size_t bytes,
                              float *values, size_t count) {
    KOLO_TRY(check_code(codec, code, bytes, count));
    if (codec->kind == KOLO_CODEC_TOPK) {
        if (count > 0) memset(values, 0, count * sizeof *values);
        add_top(codec, code, values, count, 1);
        return KOLO_OK;
    }
    float v[KOLO_CODEC_BLOCK];
    for (size_t at = 0; at < count; at += KOLO_CODEC_BLOCK) {
        size_t n = count - at < KOLO_CODEC_BLOCK ? count - at : KOLO_CODEC_BLOCK;
        bool whole = n % KOLO_CODEC_PAD == 0;
        decode_block(kolo_codec_best(), codec, code, count, at, n, whole ? values + at : v);
        if (!whole) memcpy(values + at, v, n * sizeof *v);
    }
    return KOLO_OK;
}

/* Codecs against their plain definition, element by element; the same bits with every instruction
 * set; what error feedback promises; codes that lie. */
#include "base/rng.h"
#include "comm/codec/kernels.h"
#include "support/support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 3 * KOLO_CODEC_BLOCK + 77, ROUNDS = 200 };

static const size_t counts[] = {0, 1, 7, 255, 256, 257, 2047, 2048, 2049, 4096 + 300, MOST};

static const kolo_codec codecs[] = {
    {.kind = KOLO_CODEC_NONE},
    {.kind = KOLO_CODEC_F16},
    {.kind = KOLO_CODEC_BF16},
    {.kind = KOLO_CODEC_INT8},
    {.kind = KOLO_CODEC_ONEBIT},
    {.kind = KOLO_CODEC_TOPK, .ratio = 0.05},
    {.kind = KOLO_CODEC_TOPK, .ratio = 1},
};

/* Numbers like gradients: normal, of a scale that drifts along the vector. */
static void fill(float *values, size_t n, uint64_t seed) {
    kolo_rng rng = kolo_rng_make(seed, KOLO_RNG_TEST, 3);
    for (size_t i = 0; i < n; i++) {
        values[i] = kolo_rng_normal(&rng, i) * (0.01F + (float)i * 1e-5F);
    }
}

/* ---- the definitions, in doubles where that is no matter ---- */

static float round_half(float v) {
    if (fabsf(v) > 65504) return copysignf(65504, v);
    int exponent;
    frexpf(v, &exponent);
    double unit = ldexp(1, (exponent < -13 ? -13 : exponent) - 11);
    return (float)(nearbyint((double)v / unit) * unit);
}

static float round_bf16(float v) {
    int exponent;
    frexpf(v, &exponent);
    double unit = ldexp(1, exponent - 8);
    return v == 0 ? v : (float)(nearbyint((double)v / unit) * unit);
}

static void int8_of(const float *v, size_t n, float *decoded) {
    for (size_t at = 0; at < n; at += KOLO_INT8_BLOCK) {
        size_t end = at + KOLO_INT8_BLOCK < n ? at + KOLO_INT8_BLOCK : n;
        float most = 0;
        for (size_t i = at; i < end; i++) most = fmaxf(most, fabsf(v[i]));
        for (size_t i = at; i < end; i++) {
            float q = most > 0 ? nearbyintf(v[i] * (127 / most)) : 0;
            decoded[i] = q * (most / 127);
        }
    }
}

static void onebit_of(const float *v, size_t n, float *decoded) {
    for (size_t at = 0; at < n; at += KOLO_CODEC_BLOCK) {
        size_t end = at + KOLO_CODEC_BLOCK < n ? at + KOLO_CODEC_BLOCK : n;
        double sum[2] = {0, 0};
        size_t number[2] = {0, 0};
        for (size_t i = at; i < end; i++) {
            sum[v[i] < 0] += (double)v[i];
            number[v[i] < 0]++;
        }
        for (size_t i = at; i < end; i++) {
            decoded[i] = (float)(sum[v[i] < 0] / (double)number[v[i] < 0]);
        }
    }
}

static const float *sorted_values;

static int by_magnitude(const void *a, const void *b) {
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    float x = fabsf(sorted_values[i]), y = fabsf(sorted_values[j]);
    return x != y ? (x < y) - (x > y) : (i > j) - (i < j);
}

static void top_of(const float *v, size_t n, size_t kept, float *decoded) {
    static uint32_t order[MOST];
    for (size_t i = 0; i < n; i++) order[i] = (uint32_t)i;
    sorted_values = v;
    qsort(order, n, sizeof *order, by_magnitude);
    memset(decoded, 0, n * sizeof *decoded);
    for (size_t i = 0; i < kept; i++) decoded[order[i]] = v[order[i]];
}

static void expect(const kolo_codec *codec, const float *v, size_t n, float *decoded) {
    for (size_t i = 0; i < n; i++) {
        decoded[i] = codec->kind == KOLO_CODEC_F16    ? round_half(v[i])
                     : codec->kind == KOLO_CODEC_BF16 ? round_bf16(v[i])
                                                      : v[i];
    }
    if (codec->kind == KOLO_CODEC_INT8) int8_of(v, n, decoded);
    if (codec->kind == KOLO_CODEC_ONEBIT) onebit_of(v, n, decoded);
    if (codec->kind == KOLO_CODEC_TOPK) top_of(v, n, kolo_codec_kept(codec, n), decoded);
}

static void codes_match_their_documentation(void **state) {
    static float values[MOST], residual[MOST], before[MOST], sum[MOST], want[MOST], got[MOST];
    static char code[MOST * 8 + 64];
    for (size_t c = 0; c < KOLO_COUNT(codecs); c++) {
        for (size_t k = 0; k < KOLO_COUNT(counts); k++) {
            size_t n = counts[k], bytes = kolo_codec_bytes(&codecs[c], n);
            fill(values, n, 1 + c);
            if (n > 300) values[250] = -values[251]; /* equals */
            fill(before, n, 100 + c);
            memcpy(residual, before, sizeof residual);
            memset(code, 0x55, sizeof code);
            ASSERT_OK(kolo_codec_encode(&codecs[c], values, n, residual, code + 1, bytes));
            assert_int_equal(code[1 + bytes], 0x55);
            for (size_t i = 0; i < n; i++) sum[i] = values[i] + before[i];
            expect(&codecs[c], sum, n, want);
            ASSERT_OK(kolo_codec_decode(&codecs[c], code + 1, bytes, got, n));
            for (size_t i = 0; i < n; i++) {
                double near = codecs[c].kind == KOLO_CODEC_ONEBIT ? 1e-6 : 0;
                if (!(fabs((double)(got[i] - want[i])) <= near * fabs((double)want[i])) ||
                    residual[i] != sum[i] - got[i]) {
                    fail_msg("%s of %zu: element %zu, %g, is decoded as %g, not %g, and leaves %g",
                             kolo_codec_name(codecs[c].kind), n, i, (double)sum[i], (double)got[i],
                             (double)want[i], (double)residual[i]);
                }
            }
            /* Without feedback; added to something. */
            ASSERT_OK(kolo_codec_encode(&codecs[c], sum, n, NULL, code + 3, bytes));
            for (size_t i = 0; i < n; i++) sum[i] = 1;
            ASSERT_OK(kolo_codec_add(&codecs[c], code + 3, bytes, sum, n, 0.5F));
            for (size_t i = 0; i < n; i++) {
                if (sum[i] != 1 + 0.5F * got[i]) fail_msg("element %zu is added as %g", i, sum[i]);
            }
        }
    }
}

static void sizes_are_known(void **state) {
    static const struct {
        kolo_codec codec;
        size_t count, bytes;
    } cases[] = {
        {{.kind = KOLO_CODEC_NONE}, 10, 40},
        {{.kind = KOLO_CODEC_F16}, 11, 22},
        {{.kind = KOLO_CODEC_BF16}, 11, 22},
        {{.kind = KOLO_CODEC_INT8}, 257, 8 + 257},
        {{.kind = KOLO_CODEC_INT8}, 0, 0},
        {{.kind = KOLO_CODEC_ONEBIT}, 2049, 16 + 257},
        {{.kind = KOLO_CODEC_ONEBIT}, 1, 8 + 1},
        {{.kind = KOLO_CODEC_TOPK}, 1000, 80},
        {{.kind = KOLO_CODEC_TOPK, .ratio = 0.001}, 1, 8},
        {{.kind = KOLO_CODEC_TOPK, .ratio = 1}, 3, 24},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        assert_int_equal(kolo_codec_bytes(&cases[i].codec, cases[i].count), cases[i].bytes);
    }
}

/* All kinds of numbers in the first blocks; then the code, the residual and the decoded vector are
 * the same bits with every instruction set. */
static void every_instruction_set_gives_the_same_bits(void **state) {
    static const float odd[] = {0.0F,      -0.0F, 1e-45F,    -3e-39F, 65504, 65519,
                                -65521.0F, 1e30F, -INFINITY, NAN,     0.5F,  1e-38F};
    static float values[MOST], residual[2][MOST], sum[2][MOST];
    static char code[2][MOST * 8];
    for (size_t c = 0; c < KOLO_COUNT(codecs); c++) {
        for (int isa = KOLO_ISA_BASELINE + 1; isa < KOLO_ISA_COUNT; isa++) {
            const kolo_codec_table *with[2] = {kolo_codec_of(KOLO_ISA_BASELINE),
                                               kolo_codec_of((kolo_isa)isa)};
            if (!with[1]) continue;
            size_t bytes = kolo_codec_bytes(&codecs[c], MOST);
            fill(values, MOST, 9);
            for (size_t i = 0; i < KOLO_COUNT(odd); i++) values[5 + 67 * i] = odd[i];
            for (int t = 0; t < 2; t++) {
                fill(residual[t], MOST, 8);
                memset(sum[t], 0, sizeof sum[t]);
                kolo_codec_encode_with(with[t], &codecs[c], values, MOST, residual[t], code[t]);
                kolo_codec_add_with(with[t], &codecs[c], code[t], sum[t], MOST, 0.25F);
            }
            assert_memory_equal(code[0], code[1], bytes);
            for (size_t i = 0; i < MOST; i++) {
                bool nan = isnan(sum[0][i]) && isnan(sum[1][i]);
                if (residual[0][i] != residual[1][i] || (!nan && sum[0][i] != sum[1][i])) {
                    fail_msg("%s, %s: element %zu", kolo_codec_name(codecs[c].kind),
                             kolo_isa_describe((kolo_isa)isa)->name, i);
                }
            }
        }
    }
}

/* What is not finite shows, and leaves nothing behind. */
static void what_is_no_number_shows(void **state) {
    for (size_t c = 0; c < KOLO_COUNT(codecs); c++) {
        float values[600], residual[600] = {0}, got[600];
        char code[4800];
        fill(values, 600, 5);
        values[300] = NAN;
        values[301] = INFINITY;
        size_t bytes = kolo_codec_bytes(&codecs[c], 600);
        ASSERT_OK(kolo_codec_encode(&codecs[c], values, 600, residual, code, bytes));
        ASSERT_OK(kolo_codec_decode(&codecs[c], code, bytes, got, 600));
        assert_false(isfinite(got[300]) || isfinite(got[301]));
        for (int i = 0; i < 600; i++) assert_true(isfinite(residual[i]));
    }
}

/* Over many rounds of fresh vectors: the sum of what is decoded stays within one residual of the
 * sum of what went in, and the residual stays bounded: it does not grow with the rounds. */
static void feedback_loses_nothing(void **state) {
    enum { N = 5000 };
    static float values[N], residual[N], sum[N];
    static double exact[N];
    static char code[N * 8];
    for (size_t c = 0; c < KOLO_COUNT(codecs); c++) {
        size_t bytes = kolo_codec_bytes(&codecs[c], N);
        double halfway = 0, norm = 0;
        memset(residual, 0, sizeof residual);
        memset(sum, 0, sizeof sum);
        memset(exact, 0, sizeof exact);
        for (int round = 0; round < ROUNDS; round++) {
            fill(values, N, 1000 + (uint64_t)round);
            ASSERT_OK(kolo_codec_encode(&codecs[c], values, N, residual, code, bytes));
            ASSERT_OK(kolo_codec_add(&codecs[c], code, bytes, sum, N, 1));
            norm = 0;
            for (int i = 0; i < N; i++) {
                exact[i] += (double)values[i];
                norm += (double)residual[i] * (double)residual[i];
            }
            if (round == ROUNDS / 2) halfway = norm;
        }
        double worst = 0;
        for (int i = 0; i < N; i++) {
            worst = fmax(worst, fabs(exact[i] - (double)sum[i] - (double)residual[i]));
        }
        assert_true(worst < 1e-4);
        assert_true(norm <= 1.5 * halfway + 1e-12);
    }
}

/* Hostile codes are refused and change nothing. */
static void lies_are_refused(void **state) {
    const kolo_codec top = {.kind = KOLO_CODEC_TOPK, .ratio = 0.5}, half = {.kind = KOLO_CODEC_F16};
    struct {
        uint32_t index[2];
        float value[2];
    } code;
    static const uint32_t lies[][2] = {{0, 4}, {2, 2}, {3, 1}, {0, UINT32_MAX}, {UINT32_MAX, 0}};
    for (size_t i = 0; i < KOLO_COUNT(lies); i++) {
        float values[4] = {1, 2, 3, 4};
        memcpy(code.index, lies[i], sizeof code.index);
        code.value[0] = code.value[1] = 9;
        assert_int_equal(kolo_codec_add(&top, &code, sizeof code, values, 4, 1), KOLO_ERR_FORMAT);
        assert_int_equal(kolo_codec_decode(&top, &code, sizeof code, values, 4), KOLO_ERR_FORMAT);
        for (int k = 0; k < 4; k++) assert_true(values[k] == (float)(k + 1));
    }
    float values[4] = {0};
    assert_int_equal(kolo_codec_decode(&half, &code, 7, values, 4), KOLO_ERR_FORMAT);
    assert_int_equal(kolo_codec_encode(&half, values, 4, NULL, &code, 7), KOLO_ERR_ARG);
    const kolo_codec wrong = {.kind = KOLO_CODEC_TOPK, .ratio = -1};
    assert_int_equal(kolo_codec_encode(&wrong, values, 4, NULL, &code, 8), KOLO_ERR_ARG);
}

static void names_are_read(void **state) {
    kolo_codec codec;
    ASSERT_OK(kolo_codec_parse("int8", &codec));
    assert_int_equal(codec.kind, KOLO_CODEC_INT8);
    ASSERT_OK(kolo_codec_parse("topk:0.25", &codec));
    assert_true(codec.kind == KOLO_CODEC_TOPK && codec.ratio == 0.25);
    assert_int_equal(kolo_codec_parse("onebits", &codec), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), "did you mean 'onebit'?"));
    static const char *const bad[] = {"topk:0", "topk:2", "topk:x", "topk:", "f16:2", "", NULL};
    for (size_t i = 0; i < KOLO_COUNT(bad); i++) {
        assert_int_equal(kolo_codec_parse(bad[i], &codec), KOLO_ERR_ARG);
    }
}

TEST_MAIN(test_codec) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_match_their_documentation),
        cmocka_unit_test(sizes_are_known),
        cmocka_unit_test(every_instruction_set_gives_the_same_bits),
        cmocka_unit_test(what_is_no_number_shows),
        cmocka_unit_test(feedback_loses_nothing),
        cmocka_unit_test(lies_are_refused),
        cmocka_unit_test(names_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

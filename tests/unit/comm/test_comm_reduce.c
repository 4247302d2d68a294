/* Reduction loops: every type, operation and instruction set against the plain definition; results
 * do not depend on where an element stands; rounding of f16 and bf16; NaN. */
#include "base/rng.h"
#include "comm/reduce/reduce.h"
#include "support/support.h"

#include <math.h>
#include <string.h>

enum { SOURCES = 5, MOST = 300 };

/* Random bytes: all bit patterns, so NaN, infinities, subnormals and extreme integers too. */
static void fill_random(void *data, size_t bytes, uint64_t index) {
    kolo_rng rng = kolo_rng_make(11, KOLO_RNG_TEST, index);
    for (size_t i = 0; i < bytes; i += 16) {
        uint32_t draw[4];
        kolo_rng_draw(&rng, i, draw);
        memcpy((char *)data + i, draw, bytes - i < 16 ? bytes - i : 16);
    }
}

/* Which of two NaNs a sum keeps is the processor's and the compiler's choice. */
static bool is_nan(kolo_dtype dtype, const void *element) {
    uint64_t bits = 0;
    memcpy(&bits, element, kolo_dtype_bytes(dtype));
    switch (dtype) {
    case KOLO_DTYPE_F32:
        return (bits & 0x7fffffff) > 0x7f800000;
    case KOLO_DTYPE_F64:
        return (bits & INT64_MAX) > 0x7ff0000000000000;
    case KOLO_DTYPE_F16:
        return (bits & 0x7fff) > 0x7c00;
    case KOLO_DTYPE_BF16:
        return (bits & 0x7fff) > 0x7f80;
    default:
        return false;
    }
}

static bool same(kolo_dtype dtype, const void *a, const void *b) {
    if (dtype >= KOLO_DTYPE_C64) { /* the two parts of a complex number */
        kolo_dtype part = dtype == KOLO_DTYPE_C64 ? KOLO_DTYPE_F32 : KOLO_DTYPE_F64;
        size_t e = kolo_dtype_bytes(part);
        return same(part, a, b) && same(part, (const char *)a + e, (const char *)b + e);
    }
    return memcmp(a, b, kolo_dtype_bytes(dtype)) == 0 || (is_nan(dtype, a) && is_nan(dtype, b));
}

/* One element alone is what the same element is in the middle of a vector, on every instruction set
 * and for any number of destinations: so tails, tiles and variants all have the same bits. */
static void bits_do_not_depend_on_place_or_instruction_set(void **state) {
    static _Alignas(64) char from[SOURCES][MOST * 16], whole[2][MOST * 16], single[16];
    for (int r = 0; r < SOURCES; r++) fill_random(from[r], sizeof from[r], (uint64_t)r);
    for (int t = 0; t < KOLO_DTYPE_COUNT; t++) {
        size_t e = kolo_dtype_bytes((kolo_dtype)t);
        for (int op = 0; op < KOLO_REDUCE_OPS; op++) {
            if (kolo_reduce_check((kolo_dtype)t, (kolo_reduce_op)op) != KOLO_OK) continue;
            for (int n = 1; n <= SOURCES; n++) {
                kolo_reduce_fn plain = kolo_reduce_of(KOLO_ISA_BASELINE)->fn[t][op];
                for (int isa = 0; isa < KOLO_ISA_COUNT; isa++) {
                    const kolo_reduce_table *table = kolo_reduce_of((kolo_isa)isa);
                    if (!table) continue;
                    const void *sources[SOURCES];
                    void *to[2] = {whole[0], whole[1]}, *one = single;
                    for (int r = 0; r < n; r++) sources[r] = from[r];
                    memset(whole, 0x55, sizeof whole);
                    table->fn[t][op](to, 1 + n % 2, sources, n, MOST - 3);
                    for (size_t i = 0; i < MOST - 3; i++) {
                        for (int r = 0; r < n; r++) sources[r] = from[r] + i * e;
                        plain(&one, 1, sources, n, 1);
                        if (!same((kolo_dtype)t, single, whole[0] + i * e) ||
                            (n % 2 && !same((kolo_dtype)t, single, whole[1] + i * e))) {
                            fail_msg("%s op %d, %d sources, %s: element %zu differs",
                                     kolo_dtype_name((kolo_dtype)t), op, n,
                                     kolo_isa_describe((kolo_isa)isa)->name, i);
                        }
                    }
                    assert_int_equal(whole[0][(MOST - 3) * e], 0x55); /* nothing behind the end */
                }
            }
        }
    }
}

static double combine(double a, double b, int op) {
    if (op == KOLO_SUM) return a + b;
    if (op == KOLO_PROD) return a * b;
    if (op == KOLO_MIN) return a < b ? a : b;
    return a > b ? a : b;
}

static void values_are_those_of_plain_c(void **state) {
    for (int op = 0; op < KOLO_REDUCE_OPS; op++) {
        float f[3][37], *result = f[0];
        double d[3][37];
        int32_t k[3][37];
        int8_t b[3][37];
        for (int r = 0; r < 3; r++) {
            kolo_rng rng = kolo_rng_make(3, KOLO_RNG_TEST, (uint64_t)r);
            for (size_t i = 0; i < 37; i++) {
                f[r][i] = kolo_rng_normal(&rng, i);
                d[r][i] = (double)f[r][i] * 3;
                k[r][i] = (int32_t)(f[r][i] * 100);
                b[r][i] = (int8_t)(f[r][i] * 3);
            }
        }
        double want_f[37], want_d[37], want_k[37], want_b[37];
        for (size_t i = 0; i < 37; i++) {
            want_f[i] = combine((float)combine(f[0][i], f[1][i], op), f[2][i], op);
            want_d[i] = combine(combine(d[0][i], d[1][i], op), d[2][i], op);
            want_k[i] = combine(combine(k[0][i], k[1][i], op), k[2][i], op);
            want_b[i] = combine(combine(b[0][i], b[1][i], op), b[2][i], op);
        }
        const kolo_reduce_table *table = kolo_reduce_best();
        const void *from_f[] = {f[0], f[1], f[2]}, *from_d[] = {d[0], d[1], d[2]};
        const void *from_k[] = {k[0], k[1], k[2]}, *from_b[] = {b[0], b[1], b[2]};
        void *to = f[0]; /* in place: a destination may be a source */
        table->fn[KOLO_DTYPE_F32][op](&to, 1, from_f, 3, 37);
        to = d[0];
        table->fn[KOLO_DTYPE_F64][op](&to, 1, from_d, 3, 37);
        to = k[0];
        table->fn[KOLO_DTYPE_I32][op](&to, 1, from_k, 3, 37);
        to = b[0];
        table->fn[KOLO_DTYPE_I8][op](&to, 1, from_b, 3, 37);
        for (size_t i = 0; i < 37; i++) {
            assert_true(result[i] == (float)want_f[i]);
            assert_true(d[0][i] == want_d[i]);
            assert_int_equal(k[0][i], (int64_t)want_k[i]);
            assert_int_equal((uint8_t)b[0][i], (uint8_t)(int64_t)want_b[i]);
        }
    }
}

/* a + b in f16 or bf16: patterns of the two and of their sum, rounded to nearest even. */
static void halves_round_to_nearest_even(void **state) {
    static const struct {
        kolo_dtype dtype;
        uint16_t a, b, sum;
    } cases[] = {
        {KOLO_DTYPE_F16, 0x3c00, 0x3c00, 0x4000},  /* 1 + 1 */
        {KOLO_DTYPE_F16, 0x3c00, 0x1000, 0x3c00},  /* 1 + 2^-11: halfway, to even */
        {KOLO_DTYPE_F16, 0x3c01, 0x1000, 0x3c02},  /* halfway, to even, upwards */
        {KOLO_DTYPE_F16, 0x7bff, 0x7bff, 0x7c00},  /* 65504 + 65504 overflows */
        {KOLO_DTYPE_F16, 0x0001, 0x0001, 0x0002},  /* subnormals */
        {KOLO_DTYPE_F16, 0x03ff, 0x0001, 0x0400},  /* up to the smallest normal */
        {KOLO_DTYPE_F16, 0xfc00, 0x3c00, 0xfc00},  /* -infinity */
        {KOLO_DTYPE_F16, 0x8000, 0x8000, 0x8000},  /* -0 */
        {KOLO_DTYPE_BF16, 0x3f80, 0x3f80, 0x4000}, /* 1 + 1 */
        {KOLO_DTYPE_BF16, 0x3f80, 0x3b80, 0x3f80}, /* 1 + 2^-8: halfway, to even */
        {KOLO_DTYPE_BF16, 0x3f81, 0x3b80, 0x3f82}, /* halfway, to even, upwards */
        {KOLO_DTYPE_BF16, 0x7f7f, 0x7f7f, 0x7f80}, /* overflows */
        {KOLO_DTYPE_BF16, 0x0001, 0x0001, 0x0002}, /* subnormals */
    };
    for (int isa = 0; isa < KOLO_ISA_COUNT; isa++) {
        const kolo_reduce_table *table = kolo_reduce_of((kolo_isa)isa);
        for (size_t i = 0; table && i < KOLO_COUNT(cases); i++) {
            uint16_t result;
            void *to = &result;
            const void *from[] = {&cases[i].a, &cases[i].b};
            table->fn[cases[i].dtype][KOLO_SUM](&to, 1, from, 2, 1);
            if (result != cases[i].sum) {
                fail_msg("%s: %04x + %04x is %04x, not %04x",
                         kolo_isa_describe((kolo_isa)isa)->name, cases[i].a, cases[i].b, result,
                         cases[i].sum);
            }
        }
    }
}

/* A NaN on any rank must show on all: min and max would lose it otherwise. */
static void nan_is_never_lost(void **state) {
    for (int op = 0; op < KOLO_REDUCE_OPS; op++) {
        for (int where = 0; where < 3; where++) {
            float x[3] = {1, 2, 3}, result;
            double y[3] = {1, 2, 3}, wide;
            x[where] = NAN;
            y[where] = NAN;
            void *to_x = &result, *to_y = &wide;
            const void *from_x[] = {&x[0], &x[1], &x[2]}, *from_y[] = {&y[0], &y[1], &y[2]};
            kolo_reduce_best()->fn[KOLO_DTYPE_F32][op](&to_x, 1, from_x, 3, 1);
            kolo_reduce_best()->fn[KOLO_DTYPE_F64][op](&to_y, 1, from_y, 3, 1);
            assert_true(isnan(result) && isnan(wide));
        }
    }
}

/* The highest bit is a sign in signed types only. */
static void integers_are_compared_and_divided_by_their_sign(void **state) {
    static const kolo_dtype types[] = {KOLO_DTYPE_I8,  KOLO_DTYPE_U8,  KOLO_DTYPE_I16,
                                       KOLO_DTYPE_U16, KOLO_DTYPE_I32, KOLO_DTYPE_U32,
                                       KOLO_DTYPE_I64, KOLO_DTYPE_U64};
    for (size_t t = 0; t < KOLO_COUNT(types); t++) {
        kolo_dtype type = types[t];
        size_t e = kolo_dtype_bytes(type);
        bool sign = kolo_dtype_name(type)[0] == 'i';
        uint64_t all = UINT64_MAX >> (64 - 8 * e), top = all - 1, one = 1, half;
        const void *from[] = {&one, &top}; /* little endian */
        for (int isa = 0; isa < KOLO_ISA_COUNT; isa++) {
            const kolo_reduce_table *table = kolo_reduce_of((kolo_isa)isa);
            if (!table) continue;
            uint64_t least = 0, most = 0, quotient = top;
            void *to[] = {&least, &most};
            table->fn[type][KOLO_MIN](&to[0], 1, from, 2, 1);
            table->fn[type][KOLO_MAX](&to[1], 1, from, 2, 1);
            table->scale[type](&quotient, 1, 0.5);
            half = sign ? all : all >> 1; /* -2 / 2; the other half of all bits */
            if (least != (sign ? top : one) || most != (sign ? one : top) || quotient != half) {
                fail_msg("%s: %llx %llx %llx", kolo_dtype_name(type), (unsigned long long)least,
                         (unsigned long long)most, (unsigned long long)quotient);
            }
        }
    }
}

static void complex_numbers_are_added_and_multiplied(void **state) {
    double a[] = {1, 2, 3, -1}, b[] = {0, 1, 2, 5}, c[] = {1, 1, 0, 2}, product[4], sum[4];
    float fa[] = {1, 2}, fb[] = {0, 1};
    const void *from[] = {a, b, c}, *from_f[] = {fa, fb};
    void *to = product, *to_f = fa; /* in place */
    const kolo_reduce_table *table = kolo_reduce_best();
    table->fn[KOLO_DTYPE_C128][KOLO_PROD](&to, 1, from, 3, 2);
    to = sum;
    table->fn[KOLO_DTYPE_C128][KOLO_SUM](&to, 1, from, 3, 2);
    table->fn[KOLO_DTYPE_C64][KOLO_PROD](&to_f, 1, from_f, 2, 1);
    const double products[] = {-3, -1, -26, 22}, sums[] = {2, 4, 5, 6};
    for (int i = 0; i < 4; i++) assert_true(product[i] == products[i] && sum[i] == sums[i]);
    assert_true(fa[0] == -2 && fa[1] == 1);
    table->scale[KOLO_DTYPE_C128](sum, 2, 0.5);
    assert_true(sum[0] == 1 && sum[3] == 3);
}

TEST_MAIN(test_comm_reduce) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_do_not_depend_on_place_or_instruction_set),
        cmocka_unit_test(values_are_those_of_plain_c),
        cmocka_unit_test(halves_round_to_nearest_even),
        cmocka_unit_test(nan_is_never_lost),
        cmocka_unit_test(integers_are_compared_and_divided_by_their_sign),
        cmocka_unit_test(complex_numbers_are_added_and_multiplied),
    };
    return cmocka_run_group_tests_name("comm_reduce", tests, NULL, NULL);
}

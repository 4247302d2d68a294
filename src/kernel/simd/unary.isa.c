/* Loops of the elementwise functions of one input: the formulas of graph/ops/unary.h on vectors.
 * Remainders use the same vector arithmetic as whole vectors, so results do not depend on how a
 * range is divided. */
#include "kernel/simd/unary.h"

#include "kernel/simd/math.h"

/* log(1 + e^(p x)) / p; above 40 the exponential alone counts, and p x may overflow. */
INLINE vf softplus(vf x, vf p) {
    vf z = x * p;
    vi negative = z < splat(0);
    vf y = select(negative, splat(0), z) + log_1p(exponential(select(negative, z, -z)));
    return select(z > splat(40), x, y / p);
}

/* Zero below -88, where it is below the smallest normal float: multiplied by x, it would not be. */
INLINE vf vanishing_sigmoid(vf x) { return unless_below(x, -88, sigmoid(x)); }

/* erf(x); near zero, where the difference from 1 cancels, by the Taylor series, which leaves out
 * x^11 / 1320. */
INLINE vf error(vf x) {
    vf square = x * x;
    vf sum = mul_add(square, splat(1.0f / 216), splat(-1.0f / 42));
    sum = mul_add(square, mul_add(square, sum, splat(1.0f / 10)), splat(-1.0f / 3));
    vf series = x * 1.12837917f * mul_add(square, sum, splat(1));
    return select(square < splat(0.1f), series, error_function(x, exponential(-square)));
}

/* x^e for an e that is the same in all lanes; as pow, NaN for x below 0 and an e that is no
 * integer, but not for -infinity. */
INLINE vf power(vf x, vf e) {
    enum { MOST = 64 };
    const float exponent = e[0], size = exponent < 0 ? -exponent : exponent;
    const bool even = size >= 0x1p24f || (float)(2 * (int)(size / 2)) == size;
    if (!even && (float)(int)size != size) {
        const vf infinity = splat(__builtin_inff());
        return exponential_full(e * logarithm(select(x == -infinity, infinity, x)));
    }
    if (size > MOST) {
        const vf y = exponential_full(e * logarithm(larger(x, -x)));
        return even ? y : select((vi)x < 0, -y, y);
    }
    vf y = splat(1), square = x;
    for (int n = (int)size; n > 0; n >>= 1) {
        if (n & 1) y *= square;
        square *= square;
    }
    return exponent < 0 ? 1.0f / y : y;
}

INLINE vf magnitude(vf x) { return (vf)((vi)x & 0x7fffffff); }
/* y, which is not negative, with the sign of x. */
INLINE vf with_sign(vf y, vf x) { return (vf)((vu)y | ((vu)x & 0x80000000u)); }

/* sin(x + quarter pi / 2): with n = round(x 2 / pi) and r = x - n pi / 2, at most pi / 4, by pi / 2
 * in three parts, the polynomial of the sine or cosine of r (Cephes' sinf and cosf). Of an x beyond
 * 8192, where the parts do not suffice, by the C library. */
INLINE vf sine(vf x, int quarter) {
    const float most = 8192;
    const vf shift = splat(12582912); /* 1.5 * 2^23: adding it rounds to an integer */
    const vf t = mul_add(x, splat(0.636619772f), shift), n = t - shift;
    const vu turn = (vu)t + (uint32_t)quarter;
    vf r = mul_add(n, splat(-1.5703125f), x);
    r = mul_add(n, splat(-4.837512969970703125e-4f), r);
    r = mul_add(n, splat(-7.549789954891882e-8f), r);
    const vf square = r * r;
    vf s = mul_add(square, splat(-1.9515295891e-4f), splat(8.3321608736e-3f));
    s = mul_add(square, s, splat(-1.6666654611e-1f));
    s = mul_add(r * square, s, r);
    vf c = mul_add(square, splat(2.443315711809948e-5f), splat(-1.388731625493765e-3f));
    c = mul_add(square, c, splat(4.166664568298827e-2f));
    c = mul_add(square * square, c, mul_add(square, splat(-0.5f), splat(1)));
    vf y = select((vi)(turn & 1) == 1, c, s);
    y = select((vi)(turn & 2) == 2, -y, y);
    if (quarter == 0) y = select(x == splat(0), x, y); /* the sign of zero */
    const vf size = magnitude(x), far = select(size > splat(most), size, splat(0)); /* no NaN */
    for (int i = 0; largest_lane(far) > 0 && i < VL; i++) {
        if (far[i] > 0) y[i] = quarter ? __builtin_cosf(x[i]) : __builtin_sinf(x[i]);
    }
    return y;
}

/* atan(|x|) is that of (|x| - 1) / (|x| + 1) plus pi / 4, or above tan(3 pi / 8) that of -1 / |x|
 * plus pi / 2, so that the argument is at most tan(pi / 8) (Cephes' atanf). */
INLINE vf arctangent(vf x) {
    const vf size = magnitude(x);
    const vi large = size > splat(2.41421356f), middle = size > splat(0.414213562f);
    vf z = select(middle, (size - 1.0f) / (size + 1.0f), size);
    z = select(large, -1.0f / size, z);
    const vf square = z * z;
    vf p = mul_add(square, splat(8.05374449538e-2f), splat(-1.38776856032e-1f));
    p = mul_add(square, p, splat(1.99777106478e-1f));
    p = mul_add(square, p, splat(-3.33329491539e-1f));
    p = mul_add(z * square, p, z);
    p += select(large, splat(1.57079633f), select(middle, splat(0.785398163f), splat(0)));
    return with_sign(p, x);
}

/* Numbers of 2^23 and more are integers. */
INLINE vf round_to_even(vf x) {
    const vf size = magnitude(x), y = (size + 0x1p23f) - 0x1p23f;
    return select(size < splat(0x1p23f), with_sign(y, x), x);
}
INLINE vf round_down(vf x) {
    const vf y = round_to_even(x);
    return select(y > x, y - 1.0f, y);
}

#define N(number) splat((float)(number))
#define IF select
#define EXP exponential_full
#define EXPM1 exponential_minus_1
#define LOG logarithm
#define SQRT square_root
#define POW power
#define SIGMOID vanishing_sigmoid
#define SOFTPLUS softplus
#define ERF error
#define TANH hyperbolic_tangent
#define SIN(x) sine(x, 0)
#define COS(x) sine(x, 1)
#define ATAN arctangent
#define FLOOR round_down
#define ROUND round_to_even

typedef vf vector_function(vf a, vf v, vf p, vf q);

INLINE void map(vector_function *function, const kolo_simd_unary_job *job, int64_t begin,
                int64_t end, bool bf16) {
    const vf p = splat(job->p), q = splat(job->q);
    int64_t i = begin;
    for (; i + VL <= end; i += VL) {
        vf a = load_at(job->a, i, bf16), v = load_at(job->v, i, bf16);
        store_at(job->out, i, function(a, v, p, q), bf16);
    }
    int64_t n = end - i;
    if (n == 0) return;
    vf a = load_part_at(job->a, i, n, bf16), v = load_part_at(job->v, i, n, bf16);
    store_part_at(job->out, i, function(a, v, p, q), n, bf16);
}

#define LOOP(name, function)                                                         \
    static void name##_loop(const void *arg, int part, int64_t begin, int64_t end) { \
        const kolo_simd_unary_job *job = arg;                                        \
        if (job->bf16) {                                                             \
            map(function, job, begin, end, true);                                    \
        } else {                                                                     \
            map(function, job, begin, end, false);                                   \
        }                                                                            \
    }
#define UNARY(X, name, p_name, q_name, reads, forward, backward)         \
    INLINE vf name##_of(vf x, vf unused, vf p, vf q) { return forward; } \
    INLINE vf name##_slope(vf dy, vf v, vf p, vf q) { return backward; } \
    LOOP(name, name##_of)                                                \
    LOOP(name##_bwd, name##_slope)
KOLO_UNARY_LIST(UNARY, )

#define ENTRY(name) .name = name##_loop,
const kolo_simd_unary_table KOLO_ISA_SYMBOL(kolo_simd_unary) = {
    KOLO_UNARY_LIST(KOLO_UNARY_OP, ENTRY)};

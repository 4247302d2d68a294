/* Reductions of particular values: bits of integers, means whose sums overflow. */
#include "base/compiler.h"
#include "base/status.h"
#include "kolo/comm.h"
#include "support/ranks.h"
#include "support/support.h"
#include "support/values.h"

#include <math.h>
#include <string.h>

/* Bits of each type of integers, by several algorithms; floating point has none. */
static kolo_status bits_body(kolo_comm *comm, const void *arg, void *result) {
    static const kolo_dtype types[] = {KOLO_DTYPE_I8,  KOLO_DTYPE_U8,  KOLO_DTYPE_I32,
                                       KOLO_DTYPE_I64, KOLO_DTYPE_I16, KOLO_DTYPE_U16,
                                       KOLO_DTYPE_U32, KOLO_DTYPE_U64};
    static const kolo_algorithm algorithms[] = {KOLO_ALGORITHM_AUTO, KOLO_ALGORITHM_RING,
                                                KOLO_ALGORITHM_TREE};
    enum { N = 131, MOST_BYTES = 8 * N };
    int n = kolo_comm_size(comm), rank = kolo_comm_rank(comm);
    for (size_t i = 0; i < 3 * KOLO_COUNT(types) * KOLO_COUNT(algorithms); i++) {
        kolo_reduce_op op = (kolo_reduce_op)(KOLO_AND + i % 3);
        kolo_dtype type = types[i / 3 % KOLO_COUNT(types)];
        size_t bytes = N * kolo_dtype_bytes(type);
        unsigned char data[MOST_BYTES + 1], expected[MOST_BYTES];
        for (int r = 0; r < n; r++) {
            for (size_t b = 0; b < bytes; b++) {
                unsigned char x = (unsigned char)((b * 37 + 1) * (size_t)(r + 3) >> 3);
                if (r == rank) data[b + 1] = x; /* not aligned */
                if (r == 0) expected[b] = x;
                if (r > 0 && op == KOLO_AND) expected[b] &= x;
                if (r > 0 && op == KOLO_OR) expected[b] |= x;
                if (r > 0 && op == KOLO_XOR) expected[b] ^= x;
            }
        }
        kolo_request_opts o = {.kind = KOLO_COLLECTIVE_ALLREDUCE,
                               .dtype = type,
                               .op = op,
                               .output = data + 1,
                               .count = N,
                               .algorithm = algorithms[i / 3 / KOLO_COUNT(types)]};
        KOLO_TRY(kolo_request_run(comm, &o, 0));
        if (memcmp(data + 1, expected, bytes) != 0) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "%s of %s is wrong", kolo_reduce_op_name(op),
                             kolo_dtype_name(type));
        }
        kolo_request *q;
        o.dtype = KOLO_DTYPE_F32;
        kolo_status status = kolo_request_create(comm, &o, &q);
        if (status != KOLO_ERR_ARG || !strstr(kolo_last_error(), "needs integers, not f32")) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "bits of f32: %s", kolo_last_error());
        }
    }
    return KOLO_OK;
}

static void bits_of_integers_are_combined(void **state) {
    ASSERT_OK(run_ranks(3, RANKS_THREAD, bits_body, NULL, 0));
    ASSERT_OK(run_ranks(2, RANKS_SHM, bits_body, NULL, 0));
    ASSERT_OK(run_ranks(3, RANKS_TCP, bits_body, NULL, 0));
}

/* Large values whose sum is infinite and whose mean is not. */
static kolo_status large_mean_body(kolo_comm *comm, const void *arg, void *result) {
    enum { N = 300 };
    static const struct {
        kolo_dtype dtype;
        double value;
    } types[] = {{KOLO_DTYPE_F16, 60000}, {KOLO_DTYPE_BF16, 3e38}};
    static const kolo_collective reductions[] = {KOLO_COLLECTIVE_ALLREDUCE, KOLO_COLLECTIVE_REDUCE,
                                                 KOLO_COLLECTIVE_REDUCE_SCATTER};
    int size = kolo_comm_size(comm);
    for (size_t t = 0; t < 2 * KOLO_COUNT(reductions); t++) {
        uint16_t input[N], output[N];
        kolo_dtype dtype = types[t % 2].dtype;
        kolo_collective kind = reductions[t / 2];
        for (size_t i = 0; i < N; i++) value_put(input, i, dtype, types[t % 2].value);
        kolo_request_opts o = {.kind = kind,
                               .dtype = dtype,
                               .op = KOLO_MEAN,
                               .input = input,
                               .output = output,
                               .count = kind == KOLO_COLLECTIVE_REDUCE_SCATTER ? N / size : N};
        KOLO_TRY(kolo_request_run(comm, &o, 0));
        if (kind == KOLO_COLLECTIVE_REDUCE && kolo_comm_rank(comm) != 0) continue;
        for (size_t i = 0; i < o.count; i++) {
            double mean = value_get(output, i, dtype) / types[t % 2].value;
            if (fabs(mean - 1) <= 0.02) continue;
            return KOLO_FAIL(KOLO_ERR_FORMAT, "case %zu: mean %g", t, mean);
        }
    }
    return KOLO_OK;
}

static void the_mean_of_large_halves_is_finite(void **state) {
    for (int n = 1; n <= 3; n++) {
        ASSERT_OK(run_ranks(n, RANKS_THREAD, large_mean_body, NULL, 0));
        ASSERT_OK(run_ranks(n, RANKS_TCP, large_mean_body, NULL, 0));
    }
}

TEST_MAIN(test_comm_reductions) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_of_integers_are_combined),
        cmocka_unit_test(the_mean_of_large_halves_is_finite),
    };
    return cmocka_run_group_tests_name("comm_reductions", tests, NULL, NULL);
}

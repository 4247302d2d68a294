/* mask_tokens: as many labels in every window, eight of ten hidden, and the same draws however a
 * batch is cut. */
#include "kernel/kernel.h"
#include "support/kernel_check.h"

#include <string.h>

enum { N = 64, T = 40, COUNT = 6, MASK = 3, VOCABULARY = 1000 };

typedef struct masked {
    int32_t ids[N * T], labels[N * T], segments[N * T];
} masked;

static void run_call(const kolo_kernel *kernel, kolo_call *call) {
    kolo_kernel_spec spec = *call->spec;
    size_t bytes = 0;
    assert_true(kernel->fit(&spec) >= 0);
    if (kernel->prepare) ASSERT_OK(kernel->prepare(&spec, &call->state, &bytes));
    call->scratch = kolo_alloc(bytes);
    assert_non_null(call->scratch);
    kernel->run(call);
    kolo_free(call->scratch);
    if (kernel->release) kernel->release(call->state);
}

/* Windows [first, first + n) of a batch whose ids count up, under a random-number key. */
static void run(const char *kernel_name, int64_t first, int64_t n, int64_t key, masked *out) {
    const kolo_attr attr[KOLO_MAX_ATTRS] = {{COUNT}, {MASK}, {VOCABULARY}};
    const kolo_kernel *kernel = test_kernel(kernel_name);
    kolo_kernel_spec spec = {.op = &kolo_op_mask_tokens, .attr = attr, .n_in = 4, .threads = 1};
    int32_t ids[N * T], y[N * T];
    for (int i = 0; i < N * T; i++) {
        ids[i] = (int32_t)((first * T + i) % VOCABULARY);
        y[i] = 0;
    }
    spec.in[0] = spec.in[1] = kolo_tensor_plain(KOLO_DTYPE_I64, kolo_shape_0());
    spec.in[2] = spec.in[3] = kolo_tensor_plain(KOLO_DTYPE_I32, kolo_shape_2(n, T));
    kolo_shape_query q = {.attr = attr, .n_in = 4, .in = spec.in, .out = spec.out};
    ASSERT_OK(kolo_op_mask_tokens.shape(&q));
    spec.n_out = q.n_out;
    kolo_call call = {
        .spec = &spec, .in = {&key, &first, ids, y}, .out = {out->ids, out->labels, out->segments}};
    run_call(kernel, &call);
}

static void every_window_has_its_labels(void **state) {
    static masked m;
    int hidden = 0, kept = 0, places[T] = {0};
    run("simd_mask_tokens", 0, N, 5, &m);
    for (int n = 0; n < N; n++) {
        int labels = 0;
        for (int t = 0; t < T; t++) {
            int i = n * T + t, id = i % VOCABULARY;
            assert_int_equal(m.segments[i], 0);
            if (m.labels[i] < 0) {
                assert_int_equal(m.ids[i], id);
                continue;
            }
            assert_int_equal(m.labels[i], id);
            assert_in_range(m.ids[i], 0, VOCABULARY - 1);
            hidden += m.ids[i] == MASK;
            kept += m.ids[i] == id;
            places[t]++;
            labels++;
        }
        assert_int_equal(labels, COUNT);
    }
    /* Of 384 draws: 307 +- 8 hidden and 38 +- 6 kept; each place 9.6 +- 3. */
    assert_in_range(hidden, 270, 340);
    assert_in_range(kept, 15, 65);
    for (int t = 0; t < T; t++) assert_in_range(places[t], 1, 25);
}

/* Specials are never hidden, every window has its labels all the same, and what y holds for the
 * sentences comes out. */
static void pairs_keep_their_specials(void **state) {
    enum { WINDOWS = 3, LENGTH = 9, HIDDEN = 3 };
    const kolo_attr attr[KOLO_MAX_ATTRS] = {{HIDDEN}, {MASK}, {VOCABULARY}, {1}};
    /* the sentence that follows; any; no sample */
    const int32_t y[WINDOWS][LENGTH] = {{-2, 0, 0, -2, 1, 1, 1, 1, -3},
                                        {-4, 2, 2, 2, -4, 3, 3, 3, -5},
                                        {-1, -1, -1, -1, -1, -1, -1, -1, -1}};
    const int32_t kinds[WINDOWS] = {0, 1, -1};
    const char *kernels[] = {"ref_mask_tokens", "simd_mask_tokens"};
    for (int k = 0; k < 2; k++) {
        for (int draw_number = 0; draw_number < 50; draw_number++) {
            int32_t ids[WINDOWS * LENGTH], random[WINDOWS];
            int32_t out[WINDOWS * LENGTH], labels[WINDOWS * LENGTH], segments[WINDOWS * LENGTH];
            int64_t key = draw_number, first = 0;
            kolo_kernel_spec spec = {
                .op = &kolo_op_mask_tokens, .attr = attr, .n_in = 4, .threads = 1};
            for (int i = 0; i < WINDOWS * LENGTH; i++) ids[i] = 100 + i;
            spec.in[0] = spec.in[1] = kolo_tensor_plain(KOLO_DTYPE_I64, kolo_shape_0());
            spec.in[2] = spec.in[3] =
                kolo_tensor_plain(KOLO_DTYPE_I32, kolo_shape_2(WINDOWS, LENGTH));
            kolo_shape_query q = {.attr = attr, .n_in = 4, .in = spec.in, .out = spec.out};
            ASSERT_OK(kolo_op_mask_tokens.shape(&q));
            spec.n_out = q.n_out;
            assert_int_equal(q.n_out, 4);
            kolo_call call = {.spec = &spec,
                              .in = {&key, &first, ids, (void *)y},
                              .out = {out, labels, segments, random}};
            run_call(test_kernel(kernels[k]), &call);
            assert_memory_equal(random, kinds, sizeof random);
            for (int n = 0; n < WINDOWS; n++) {
                int found = 0;
                for (int t = 0; t < LENGTH; t++) {
                    int i = n * LENGTH + t;
                    int32_t code = y[n][t] < -1 ? -2 - y[n][t] : y[n][t];
                    assert_int_equal(segments[i], code > 0 ? code % 2 : 0);
                    if (y[n][t] < 0) assert_true(labels[i] == -1 && out[i] == ids[i]);
                    found += labels[i] == ids[i];
                }
                assert_int_equal(found, n < 2 ? HIDDEN : 0);
            }
        }
    }
}

static void a_cut_changes_nothing(void **state) {
    static masked whole, part, other, reference;
    run("simd_mask_tokens", 0, N, 5, &whole);
    run("simd_mask_tokens", N / 4, N / 2, 5, &part);
    assert_memory_equal(part.ids, whole.ids + N / 4 * T, N / 2 * T * sizeof *part.ids);
    assert_memory_equal(part.labels, whole.labels + N / 4 * T, N / 2 * T * sizeof *part.labels);
    run("ref_mask_tokens", 0, N, 5, &reference);
    assert_memory_equal(&reference, &whole, sizeof whole);
    run("simd_mask_tokens", 0, N, 6, &other);
    assert_memory_not_equal(other.ids, whole.ids, sizeof whole.ids);
}

TEST_MAIN(test_mask) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_window_has_its_labels),
        cmocka_unit_test(pairs_keep_their_specials),
        cmocka_unit_test(a_cut_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Which parts of the parameters owners have, and steps in buckets, against an allreduce. */
#include "base/compiler.h"
#include "kolo/dump.h"
#include "support/served_job.h"
#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* `arg`: the servers. Most of the gradient is computed before the last bucket. */
static kolo_status buckets_body(kolo_comm *comm, const void *arg, void *result) {
    const int servers = *(const int *)arg;
    const kolo_train_opts opts = {
        .model = "lenet",
        .data = "synthetic:N=60,test=4,shape=1x28x28,seed=2",
        .optimizer.momentum = 0.9,
        .batch = 4,
        .steps = 4,
        .epochs = 9,
        .lr = 0.02,
        .bucket_bytes = 1 << 12,
        .sync = servers > 0 ? KOLO_SYNC_PS : KOLO_SYNC_ALLREDUCE,
        .servers = servers,
        .algorithm = KOLO_ALGORITHM_MESH,
    };
    return train_body(comm, &opts, result);
}

/* Over a network a push is sent while the backward pass goes on, with the bits of an allreduce. */
static void pushes_follow_the_buckets(void **state) {
    train_outcome outcomes[2][4];
    for (int servers = 0; servers <= 2; servers += 2) {
        const rank_job job = {.n = 2 + servers,
                              .transport = RANKS_TCP,
                              .body = buckets_body,
                              .arg = &servers,
                              .arg_bytes = sizeof servers,
                              .results = outcomes[servers / 2],
                              .result_bytes = sizeof outcomes[0][0]};
        ASSERT_OK(run_rank_job(&job));
        assert_int_equal(outcomes[servers / 2][0].status, KOLO_OK);
    }
    assert_int_equal(outcomes[0][0].result.parts, 0);
    assert_true(outcomes[1][0].result.parts >= 2 * 4); /* of both workers, in each step */
    assert_same_served("buckets", &outcomes[0][0].result, &outcomes[1][0].result);
}

/* Large tensors are split, and owners have equal bytes to within a block of 4,096 elements. */
static void the_division_is_printed(void **state) {
    const kolo_dump_opts opts = {.what = KOLO_DUMP_SERVERS, .model = "lenet", .ranks = 3};
    char *text;
    int servers = 0;
    ASSERT_OK(kolo_dump(&opts, &text));
    for (const char *at = text; (at = strstr(at, "pulled ")); servers++) {
        double bytes = strtod(at += strlen("pulled "), NULL);
        if (fabs(bytes - 61706 * 4 / 3.0) > 4096 * 4) fail_msg("%s", text);
    }
    assert_int_equal(servers, 3);
    assert_non_null(strstr(text, "  fc1.weight [8192, 28672) of 48000\n"));
    kolo_dump_free(text);
}

/* The sum over the owners of the bytes of pushes. */
static double pushed_bytes(const char *compress) {
    const kolo_dump_opts opts = {.what = KOLO_DUMP_SERVERS,
                                 .model = "lenet",
                                 .ranks = 2,
                                 .compress = compress,
                                 .compress_min_bytes = 4096};
    double bytes = 0;
    char *text;
    ASSERT_OK(kolo_dump(&opts, &text));
    for (const char *at = text; (at = strstr(at, "pushed "));) {
        bytes += strtod(at += strlen("pushed "), NULL);
    }
    kolo_dump_free(text);
    return bytes;
}

/* The three large tensors have 60,480 of 61,706 parameters; an int8 is 1 byte, and 4 more for each
 * 256. */
static void the_division_states_codes(void **state) {
    const double whole = pushed_bytes(NULL), saved = whole - pushed_bytes("int8");
    const double codes = 60480 * (1 + 4.0 / 256);
    if (fabs(saved - (60480 * 4 - codes)) > 64) fail_msg("%g of %g bytes saved", saved, whole);
    const kolo_dump_opts factors = {
        .what = KOLO_DUMP_SERVERS, .model = "lenet", .ranks = 2, .compress = "powersgd:2"};
    char *text;
    assert_int_equal(kolo_dump(&factors, &text), KOLO_ERR_UNSUPPORTED);
    assert_non_null(strstr(kolo_last_error(), "and not of --compress powersgd:2"));
}

/* Three workers and a server: 2 and 4 tenths of each bucket, at any element. */
static void the_division_follows_the_byte_split(void **state) {
    const kolo_dump_opts opts = {.what = KOLO_DUMP_SERVERS,
                                 .model = "lenet",
                                 .bucket_bytes = 1 << 14,
                                 .ranks = 4,
                                 .byte_split = true,
                                 .servers = 1};
    char *text;
    ASSERT_OK(kolo_dump(&opts, &text));
    for (int i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof name, i < 3 ? "worker %d: " : "server 0: ", i);
        const char *at = strstr(text, name);
        assert_non_null(at);
        const double bytes = strtod(strstr(at, "pulled ") + strlen("pulled "), NULL);
        if (fabs(bytes - 61706 * 4 * (i < 3 ? 0.2 : 0.4)) > 1024) fail_msg("%s", text);
    }
    /* Buckets of its own, one for each 16 KiB. */
    assert_true(strtol(text + strlen("worker 0: "), NULL, 10) > (48000 * 4) >> 14);
    assert_non_null(strstr(text, "  fc1.weight [9600, 19200) of 48000\n"));
    assert_non_null(strstr(text, "  fc1.weight [28800, 48000) of 48000\n"));
    kolo_dump_free(text);
}

/* Servers from none, as in a ring, to as many as workers: buckets, small tensors and large ones,
 * which are cut at any element. */
static void the_byte_split_keeps_the_bits(void **state) {
    static const struct {
        const char *model;
        kolo_optimizer optimizer;
        double momentum;
        int64_t accumulate;
    } cases[] = {{"resnet8", KOLO_OPTIMIZER_SGD, 0.9, 1},
                 {"mlp", KOLO_OPTIMIZER_ADAM, 0, 2},
                 {"mlp", KOLO_OPTIMIZER_SGD, 0, 1},
                 {"resnet8", KOLO_OPTIMIZER_ADAMW, 0, 1}};
    for (int servers = 0; servers < 4; servers++) {
        kolo_train_opts opts = served_opts(KOLO_SYNC_ALLREDUCE, 0);
        opts.model = cases[servers].model;
        if (strcmp(opts.model, "mlp") == 0) opts.model_options = NULL;
        opts.optimizer = (kolo_optimizer_opts){.kind = cases[servers].optimizer,
                                               .momentum = cases[servers].momentum};
        opts.accumulate = cases[servers].accumulate;
        opts.bucket_bytes = 1 << 10;
        const kolo_train_result plain = train_well(3, &opts);
        opts.sync = KOLO_SYNC_PS;
        opts.servers = servers;
        const kolo_train_result served = train_well(3 + servers, &opts);
        assert_same_served(cases[servers].model, &plain, &served);
        assert_true(served.parts > 3 * 9); /* several buckets of most steps in backward passes */
    }
}

TEST_MAIN(test_servers_buckets) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_division_is_printed),
        cmocka_unit_test(the_division_states_codes),
        cmocka_unit_test(the_division_follows_the_byte_split),
        cmocka_unit_test(the_byte_split_keeps_the_bits),
        cmocka_unit_test(pushes_follow_the_buckets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

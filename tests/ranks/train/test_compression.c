/* Compression where it pays: the choice by given costs, which no timing changes, what becomes of it
 * in checkpoints, names of parameters, and what is refused. */
#include "base/compiler.h"
#include "base/memory.h"
#include "data/sampler.h"
#include "kolo/dump.h"
#include "support/folder.h"
#include "support/support.h"
#include "support/train_job.h"
#include "train/checkpoint/checkpoint.h"
#include "train/session/compression.h"
#include "train/session/replicas.h"
#include "train/session/session.h"

#include <stdio.h>
#include <string.h>

/* ---- sessions with given costs ---- */

enum {
    SIDE = 8,
    ELEMENTS = SIDE * SIDE,
    CLASSES = 4,
    BATCH = 3,
    CHOSEN = 5,
    SAVED = 7,
    STEPS = 10
};

typedef struct forced {
    kolo_compression_costs costs;
    size_t min_bytes;
    const char *only; /* what must be chosen */
} forced;

/* fc1.weight has 4096 bytes, fc2.weight 1024, fc3.weight 256. */
static kolo_session_config config(const forced *f) {
    return (kolo_session_config){
        .model = "mlp",
        .model_options = "hidden=16",
        .sample = kolo_shape_3(1, SIDE, SIDE),
        .classes = CLASSES,
        .batch = BATCH,
        .measure_compression = true,
        .costs = &f->costs,
        .plan = {.optimizer.momentum = 0.9,
                 .compression = {.codec = {.kind = KOLO_CODEC_INT8},
                                 .min_bytes = f->min_bytes,
                                 .only = ""}},
    };
}

static kolo_status step(kolo_session *s, int rank, int ranks, int k) {
    static const kolo_field fields[] = {
        {"x", KOLO_DTYPE_U8, {3, {1, SIDE, SIDE}}, .std = {0.5F}},
        {"y", KOLO_DTYPE_I32, {0}, .mean = {0}},
    };
    uint8_t samples[BATCH * ELEMENTS];
    int32_t labels[BATCH];
    kolo_sums sums;
    for (int i = 0; i < BATCH * ELEMENTS; i++) {
        samples[i] = (uint8_t)((i * 37 + k * 11 + rank * 5) % 251);
    }
    for (int i = 0; i < BATCH; i++) labels[i] = (i + k + rank) % CLASSES;
    const kolo_batch batch = {
        .count = BATCH,
        .first = rank * BATCH,
        .global_count = ranks * BATCH,
        .n_fields = 2,
        .fields = fields,
        .data = {samples, labels},
    };
    return kolo_session_step_batch(s, &batch, 0.05, &sums);
}

static kolo_status expect(bool holds, const char *what) {
    return holds ? KOLO_OK : KOLO_FAIL(KOLO_ERR_FORMAT, "not so: %s", what);
}

/* Each tensor whose gradient is compressed has errors. */
static kolo_status check_errors(const kolo_session *s, const char *only) {
    const kolo_store *store = kolo_session_store(s);
    for (int i = 1; i <= 3; i++) {
        char name[32], state[64];
        snprintf(name, sizeof name, "fc%d.weight", i);
        snprintf(state, sizeof state, "optimizer.residual.%s", name);
        const bool has = kolo_store_find(store, state) != NULL;
        KOLO_TRY(expect(has == kolo_name_matches(only, name), state));
    }
    return KOLO_OK;
}

/* Five steps show when gradients are complete; from then on some are compressed. */
static kolo_status train(kolo_session *s, const forced *f, kolo_comm *comm, uint64_t *hash) {
    const int rank = kolo_comm_rank(comm), ranks = kolo_comm_size(comm);
    const kolo_checkpoint_info info = {.model = "mlp",
                                       .classes = CLASSES,
                                       .options = "",
                                       .progress = "",
                                       .compressed = f->only,
                                       .order = KOLO_SAMPLE_ORDER};
    KOLO_TRY(kolo_session_init(s, 5));
    for (int k = 0; k < STEPS; k++) {
        KOLO_TRY(expect(kolo_session_has_measured_buckets(s) == (k == CHOSEN), "measured"));
        if (k == CHOSEN) {
            KOLO_TRY(expect(!kolo_session_compressed(s), "nothing is chosen yet"));
            KOLO_TRY(kolo_session_choose_buckets(s));
            KOLO_TRY(expect(strcmp(kolo_session_compressed(s), f->only) == 0,
                            kolo_session_compressed(s)));
            KOLO_TRY(check_errors(s, f->only));
        }
        if (k == SAVED) {
            const bool writes = rank == 0 || kolo_store_is_sharded(kolo_session_store(s));
            if (writes) {
                KOLO_TRY(kolo_checkpoint_save(rank == 0 ? "chosen" : NULL, kolo_session_store(s),
                                              &info));
            }
            KOLO_TRY(kolo_barrier(comm));
        }
        KOLO_TRY(step(s, rank, ranks, k));
    }
    KOLO_TRY(kolo_compare_replicas(comm, kolo_session_store(s), false, "at the end"));
    return kolo_store_hash_shards(kolo_session_store(s), hash);
}

/* A session that goes on from the file, with the choice in its metadata. */
static kolo_status resume(const forced *f, kolo_comm *comm, uint64_t *hash) {
    kolo_checkpoint c;
    kolo_session_config opts = config(f);
    kolo_session *s;
    KOLO_TRY(kolo_checkpoint_open("chosen", &c));
    opts.measure_compression = false;
    opts.plan.compression.only = c.info.compressed;
    kolo_status status = kolo_session_create_for(&opts, comm, &s);
    if (status != KOLO_OK) {
        kolo_checkpoint_close(&c);
        return status;
    }
    status = kolo_session_init(s, 6);
    if (status == KOLO_OK) status = kolo_checkpoint_load_training(&c, kolo_session_store(s));
    kolo_session_set_steps(s, SAVED, c.info.order);
    for (int k = SAVED; k < STEPS && status == KOLO_OK; k++) {
        status = step(s, kolo_comm_rank(comm), kolo_comm_size(comm), k);
    }
    if (status == KOLO_OK) status = kolo_store_hash_shards(kolo_session_store(s), hash);
    kolo_session_destroy(s);
    kolo_checkpoint_close(&c);
    return status;
}

static kolo_status forced_body(kolo_comm *comm, const void *arg, void *result) {
    uint64_t *hashes = result;
    const kolo_session_config opts = config(arg);
    kolo_session *s;
    KOLO_TRY(kolo_session_create_for(&opts, comm, &s));
    kolo_status status = train(s, arg, comm, &hashes[0]);
    kolo_session_destroy(s);
    KOLO_TRY(status);
    return resume(arg, comm, &hashes[1]);
}

static uint64_t run_forced(const forced *f, int ranks) {
    uint64_t hashes[3][2] = {{0}};
    rank_job job = {.n = ranks,
                    .transport = RANKS_THREAD,
                    .body = forced_body,
                    .arg = f,
                    .arg_bytes = sizeof *f,
                    .results = hashes,
                    .result_bytes = sizeof hashes[0]};
    ASSERT_OK(run_rank_job(&job));
    for (int r = 0; r < ranks; r++) {
        assert_int_equal(hashes[r][0], hashes[0][0]);
        assert_int_equal(hashes[r][1], hashes[0][0]); /* resumed */
    }
    return hashes[0][0];
}

static void the_choice_follows_the_costs(void **state) {
    const kolo_compression_costs slow = {.sum = {1, 1, 1, 1}, /* all of it is work */
                                         .gather = {1, 0.5, 1, 0.5},
                                         .encode_ms = 0.01,
                                         .decode_ms = 0.01,
                                         .ratio = 0.27};
    kolo_compression_costs fast = slow, fixed = slow;
    fast.sum.ms_per_byte = fast.sum.work_ms_per_byte = 0.01; /* less than the codec takes */
    /* More than the smaller one saves. */
    fixed.gather.fixed_ms = fixed.gather.work_fixed_ms = 1500;
    const forced cases[] = {
        {slow, 1000, "fc2.weight,fc1.weight"},
        {slow, 4096, "fc1.weight"},
        {slow, 1 << 20, ""},
        {fixed, 1000, "fc1.weight"},
        {fast, 1, ""},
    };
    uint64_t hashes[KOLO_COUNT(cases)];
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) hashes[i] = run_forced(&cases[i], 2);
    assert_int_equal(hashes[2], hashes[4]); /* without compression */
    assert_int_equal(hashes[1], hashes[3]);
    assert_true(hashes[0] != hashes[1] && hashes[1] != hashes[2]);
    (void)run_forced(&cases[0], 3);
}

/* ---- jobs ---- */

static const kolo_train_opts base = {.model = "mlp",
                                     .model_options = "hidden=32",
                                     .data = "synthetic:N=61,test=20,shape=1x28x28,seed=2",
                                     .batch = 3,
                                     .lr = 0.05,
                                     .steps = 12,
                                     .epochs = 20,
                                     .no_eval = true,
                                     .check_replicas = 2,
                                     .compress = "auto",
                                     .compress_min_bytes = 512,
                                     .algorithm = KOLO_ALGORITHM_DIRECT};

static void keep_line(void *arg, const char *line, kolo_notice_kind kind) {
    if (strstr(line, "compress")) snprintf(arg, 512, "%s", line);
}

static void runs_report_and_keep_their_choice(void **state) {
    kolo_train_opts opts = base;
    char line[512] = "";
    opts.notice = keep_line;
    opts.notice_arg = line;
    opts.out_dir = "run";
    opts.checkpoint_steps = 4;
    const kolo_train_result whole = train_well(2, &opts);
    assert_non_null(strstr(line, "compression of gradients from step 6 on: "));
    assert_non_null(strstr(line, "(predicted end of the sums: "));
    assert_string_equal(whole.unshared, "--compress keeps errors of whole gradients");
    opts.out_dir = NULL;
    opts.checkpoint_steps = 0;
    opts.resume = "run/checkpoint-8.safetensors";
    line[0] = '\0';
    kolo_train_result resumed = train_well(2, &opts);
    assert_same_run("resumed", &whole, &resumed);
    assert_string_equal(line, ""); /* nothing is measured again */
    opts.resume = "run/checkpoint-4.safetensors";
    (void)train_well(2, &opts);
    assert_non_null(strstr(line, "compression of gradients from step 10 on: "));
    opts.steps = 9; /* five steps are left */
    (void)train_well(2, &opts);
    assert_non_null(strstr(line, "too few full steps are left to measure: nothing is compressed"));
}

/* fc1.weight alone has as many bytes. */
static void names_choose_as_sizes_do(void **state) {
    kolo_train_opts opts = base;
    opts.compress = "int8,only=fc1.*,x*";
    assert_job_refused(2, &opts, "--compress: no parameter matches \"x*\"");
    opts.compress = "int8,only=fc1.*,fc4.w?ight";
    opts.model_options = "hidden=32,layers=3";
    const kolo_train_result named = train_well(2, &opts);
    opts.compress = "int8,only=fc1.weight,fc4.weight";
    const kolo_train_result same = train_well(2, &opts);
    assert_same_run("patterns", &named, &same);
    opts.compress = "int8";
    opts.compress_min_bytes = 28 * 28 * 32 * 4;
    const kolo_train_result largest = train_well(2, &opts);
    opts.compress = "int8,only=fc1.weight,fc4.weight";
    const kolo_train_result both = train_well(2, &opts);
    assert_same_run("sizes", &largest, &both);
    assert_true(named.parameter_hash != largest.parameter_hash);
}

static void a_dump_has_what_is_compressed(void **state) {
    kolo_dump_opts opts = {.what = KOLO_DUMP_PLAN, .model = "mlp", .compress_min_bytes = 1};
    char *text;
    opts.compress = "bf16,only=fc1.weight";
    ASSERT_OK(kolo_dump(&opts, &text));
    assert_non_null(strstr(text, "optimizer.residual.fc1.weight"));
    assert_null(strstr(text, "optimizer.residual.fc2.weight"));
    assert_non_null(strstr(text, "bucket 1: 1 values, 200704 bytes"));
    kolo_dump_free(text);
    opts.compress = "auto=int8";
    assert_int_equal(kolo_dump(&opts, &text), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), "give what it printed"));
    opts.compress = "int8";
    opts.zero = 1;
    assert_int_equal(kolo_dump(&opts, &text), KOLO_ERR_ARG);
}

static void texts_read_back(void **state) {
    static const struct {
        const char *given, *text; /* NULL: refused */
    } cases[] = {
        {"auto", "none"},
        {"auto=1bit", "none"},
        {"1bit,only=a,b*", "1bit,only=a,b*"},
        {"topk:0.25,only=a", "topk:0.25,only=a"},
        {"powersgd,only=a", "powersgd:2,only=a"},
        {"int8", "int8"},
        {"1bit,warmup=20", "1bit,warmup=20"},
        {"1bit,warmup=3,only=a,b*", "1bit,warmup=3,only=a,b*"},
        {"1bit,warmup=0", NULL},
        {"1bit,warmup=", NULL},
        {"1bit,warmup=5x", NULL},
        {"1bit,warmup=-5", NULL},
        {"1bit,warmup=99999999999", NULL},
        {"int8,warmup=5", NULL},
        {"auto=1bit,warmup=5", NULL},
        {"none", "none"},
        {"auto=none", NULL},
        {"auto=powersgd:2", NULL},
        {"auto=", NULL},
        {"autos", NULL},
        {"auto,only=a", NULL},
        {"none,only=a", NULL},
        {"int8,only=", NULL},
        {"int8,onl=a", NULL},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_compression c = {.min_bytes = 1};
        bool measured;
        kolo_status status = kolo_compression_parse(cases[i].given, &c, &measured);
        if ((status == KOLO_OK) != (cases[i].text != NULL)) fail_msg("%s", cases[i].given);
        if (status != KOLO_OK) continue;
        kolo_text text = {0};
        kolo_compression_describe(&c, &text);
        assert_string_equal(text.text, cases[i].text);
        assert_int_equal(measured, strncmp(cases[i].given, "auto", 4) == 0);
        kolo_text_fini(&text);
    }
}

/* Second moments stay after the warm-up, and momenta have errors; checkpoints resume bitwise
 * before, at and after its end. */
static void one_bit_adam_resumes_bitwise(void **state) {
    kolo_train_opts opts = base;
    char line[512] = "";
    opts.compress = "1bit,warmup=4";
    opts.optimizer.kind = KOLO_OPTIMIZER_ADAMW;
    opts.optimizer.weight_decay = 0.01;
    opts.lr = 0.003;
    opts.steps = 22; /* the last step of the epoch has one sample, of one worker */
    opts.checkpoint_steps = 1;
    opts.out_dir = "adam";
    opts.notice = keep_line;
    opts.notice_arg = line;
    const kolo_train_result whole = train_well(2, &opts);
    assert_string_equal(line, "1-bit Adam: second moments stay as they are from step 5 on, and "
                              "momenta are compressed");
    opts.out_dir = NULL;
    opts.checkpoint_steps = 0;
    static const int from[] = {3, 4, 5, 11, 20};
    for (size_t i = 0; i < KOLO_COUNT(from); i++) {
        char path[64];
        kolo_checkpoint c;
        snprintf(path, sizeof path, "adam/checkpoint-%d.safetensors", from[i]);
        ASSERT_OK(kolo_checkpoint_open(path, &c));
        const char *error = "optimizer.residual.fc1.weight";
        assert_int_equal(kolo_safetensors_find(c.file, error) != NULL, from[i] > 4);
        kolo_checkpoint_close(&c);
        opts.resume = path;
        const kolo_train_result resumed = train_well(2, &opts);
        assert_same_run(path, &whole, &resumed);
    }
    opts.resume = NULL;
    opts.compress = "1bit,warmup=40"; /* nothing is compressed */
    const kolo_train_result warm = train_well(2, &opts);
    opts.compress = "none";
    const kolo_train_result plain = train_well(2, &opts);
    assert_same_run("warm-up", &warm, &plain);
    assert_true(plain.parameter_hash != whole.parameter_hash);
    opts.compress = "1bit,warmup=4";
    const kolo_train_result one = train_well(1, &opts); /* exchanges nothing */
    opts.compress = "none";
    const kolo_train_result alone = train_well(1, &opts);
    assert_same_run("one worker", &one, &alone);
}

/* A benchmark repeats its first steps, from the plans that these had. */
static void benchmarks_repeat_their_first_steps(void **state) {
    kolo_train_opts opts = {.model = "mlp",
                            .model_options = "hidden=8",
                            .batch = 2,
                            .steps = 8,
                            .lr = 0.01,
                            .in_memory = true,
                            .compress_min_bytes = 64,
                            .compress = "1bit,warmup=4",
                            .optimizer.kind = KOLO_OPTIMIZER_ADAM};
    assert_int_equal(train_well(2, &opts).losses_checked, 2);
    opts.compress = NULL;
    opts.buckets = "auto";
    assert_int_equal(train_well(3, &opts).losses_checked, 2);
}

static void what_has_no_choice_is_refused(void **state) {
    kolo_train_opts opts = base;
    assert_job_refused(1, &opts, "compression auto cannot be combined with one worker");
    opts.consistency = "lag:1";
    assert_job_refused(2, &opts, "compression auto cannot be combined with --consistency");
    opts = base;
    opts.buckets = "auto";
    assert_job_refused(2, &opts, "--buckets cannot be combined with --compress");
    opts = base;
    opts.steps = 5;
    assert_job_refused(2, &opts, "--compress auto chooses gradients after 5 full steps");
    opts = base;
    opts.compress = "auto=1bit";
    opts.optimizer.kind = KOLO_OPTIMIZER_ADAM;
    assert_job_refused(2, &opts, "1-bit gradients have no second moments");
    opts.compress = "1bit";
    assert_job_refused(2, &opts, "give 1bit,warmup=N, which is 1-bit Adam after N updates");
    opts.optimizer.kind = KOLO_OPTIMIZER_LAMB;
    assert_job_refused(2, &opts, "use another --compress, or another optimizer");
    opts.compress = "1bit,warmup=5";
    assert_job_refused(2, &opts, "cannot be combined with this optimizer: it is 1-bit Adam");
    opts.optimizer.kind = KOLO_OPTIMIZER_ADAM;
    opts.optimizer.clip = 1;
    assert_job_refused(2, &opts, "cannot be combined with --clip");
    opts.optimizer.clip = 0;
    opts.consistency = "lag:1";
    assert_job_refused(2, &opts, "cannot be combined with --consistency");
    opts.consistency = "diloco:4";
    assert_job_refused(2, &opts, "cannot be combined with --consistency");
}

TEST_MAIN(test_compression) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_choice_follows_the_costs),
        cmocka_unit_test(runs_report_and_keep_their_choice),
        cmocka_unit_test(names_choose_as_sizes_do),
        cmocka_unit_test(a_dump_has_what_is_compressed),
        cmocka_unit_test(texts_read_back),
        cmocka_unit_test(one_bit_adam_resumes_bitwise),
        cmocka_unit_test(benchmarks_repeat_their_first_steps),
        cmocka_unit_test(what_has_no_choice_is_refused),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}

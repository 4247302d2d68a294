/* Training on streams: rank 0 reads, all ranks get their samples, the run ends with the stream, and
 * a checkpoint is at the samples that were used. */
#include "base/clock.h"
#include "base/compiler.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "kolo/data.h"
#include "support/folder.h"
#include "support/support.h"
#include "support/train_job.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROWS = 43, BATCH = 6 /* 7 steps, and a sample */ };

static const kolo_train_opts job = {
    .model = "mlp",
    .model_options = "hidden=4",
    .data = "csv:pipe,columns=4,classes=3",
    .global_batch = BATCH,
    .steps = 1000,
    .lr = 0.1,
    .no_eval = true,
    .notice = train_note,
    .ledger = "ledger",
};

/* The rows [first, end) of a table. */
static void add_rows(int first, int end, kolo_text *text) {
    for (int i = first; i < end; i++) {
        kolo_text_add(text, "%d.%d,%g,%d,%d\n", i % 5, i % 7, 0.25 * (i % 11) - 1, i % 2,
                      i * i % 3);
    }
}

typedef struct writer {
    const char *path;
    int first, end, pieces; /* the rows are written in so many pieces, 10 ms apart */
    bool appends;
    pthread_t thread;
} writer;

static void *write_rows(void *arg) {
    const writer *w = arg;
    kolo_text text = {0};
    add_rows(w->first, w->end, &text);
    const size_t piece = text.length / (size_t)w->pieces + 1;
    const int fd = open(w->path, O_WRONLY | (w->appends ? O_APPEND : 0));
    for (size_t at = 0; at < text.length; at += piece) {
        const size_t left = text.length - at;
        if (!kolo_write_all(fd, text.text + at, left < piece ? left : piece)) break;
        kolo_sleep_ns(kolo_ms_to_ns(10));
    }
    close(fd);
    kolo_text_fini(&text);
    return NULL;
}

/* Trains while rows [first, end) come through the pipe. */
static kolo_train_result train_piped(int ranks, const kolo_train_opts *opts, int first, int end) {
    writer w = {.path = "pipe", .first = first, .end = end, .pieces = 3};
    if (!kolo_file_exists("pipe")) assert_int_equal(mkfifo("pipe", 0600), 0);
    assert_int_equal(pthread_create(&w.thread, NULL, write_rows, &w), 0);
    const kolo_train_result result = train_well(ranks, opts);
    pthread_join(w.thread, NULL);
    return result;
}

static void assert_ledger(const char *wanted) {
    bool exact;
    char *text;
    ASSERT_OK(kolo_ledger_check("ledger", &exact, &text));
    if (!exact || strcmp(text, wanted) != 0) fail_msg("%s", text);
    kolo_ledger_text_free(text);
}

/* Without an evaluation. */
static void assert_near_losses(const kolo_train_result *a, const kolo_train_result *b) {
    assert_near("first loss", a->first_loss, b->first_loss, 1e-5);
    assert_near("last losses", a->final.value[KOLO_METRIC_LOSS], b->final.value[KOLO_METRIC_LOSS],
                1e-3);
}

static void write_table(const char *path, int rows) {
    kolo_text text = {0};
    add_rows(0, rows, &text);
    ASSERT_OK(kolo_file_write(path, text.text, text.length));
    kolo_text_fini(&text);
}

static void clear(void) {
    assert_int_equal(system("rm -rf ledger.* run"), 0);
    train_notices[0] = '\0';
}

static void a_pipe_trains_until_it_ends(void **state) {
    static const struct {
        int ranks;
        const char *mesh, *consistency;
        int zero;
    } cases[] = {
        {.ranks = 1},
        {.ranks = 2},
        {.ranks = 3},
        {.ranks = 5},
        {.ranks = 8},
        {.ranks = 4, .mesh = "dp=2,tp=2"},
        {.ranks = 2, .zero = 3},
        {.ranks = 2, .consistency = "lag:1"},
        {.ranks = 2, .consistency = "local:2"},
    };
    kolo_train_result one;
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_train_opts opts = job;
        opts.mesh = cases[i].mesh;
        opts.consistency = cases[i].consistency;
        opts.zero = cases[i].zero;
        clear();
        const kolo_train_result r = train_piped(cases[i].ranks, &opts, 0, ROWS);
        const bool whole = opts.mesh != NULL; /* whose batches have one size */
        assert_int_equal(r.steps, whole ? 7 : 8);
        assert_int_equal(r.samples, whole ? 42 : ROWS);
        char text[160];
        const bool lag = opts.consistency && strstr(opts.consistency, "lag");
        snprintf(text, sizeof text, "the data have ended: %d samples in %d of 1000 steps\n",
                 whole ? 42 : ROWS, whole ? 7 : 8);
        assert_non_null(strstr(train_notices, text));
        if (!lag) {
            snprintf(text, sizeof text,
                     "stream: %d samples, each once\n1 run, %d steps, at most %d workers\n",
                     whole ? 42 : ROWS, whole ? 7 : 8, opts.mesh ? 2 : cases[i].ranks);
            assert_ledger(text);
        }
        if (i == 0) one = r;
        if (i > 0 && !whole && !opts.consistency) assert_near_losses(&one, &r);
    }
}

/* With logical shards the bits do not depend on the ranks; and a file that has them all has the
 * bits of a pipe. */
static void bits_do_not_depend_on_ranks(void **state) {
    kolo_train_opts opts = job;
    opts.reproducible = 3;
    opts.ledger = NULL;
    const kolo_train_result one = train_piped(1, &opts, 0, ROWS);
    assert_int_equal(one.samples, 42);
    for (int ranks = 2; ranks <= 3; ranks++) {
        const kolo_train_result r = train_piped(ranks, &opts, 0, ROWS);
        assert_same_run("ranks", &one, &r);
    }
    write_table("table.csv", ROWS);
    opts.data = "csv:table.csv,columns=4,classes=3,follow=0.05";
    const kolo_train_result file = train_well(2, &opts);
    assert_same_run("file", &one, &file);
    opts.data = "csv:table.csv,columns=4,classes=3,follow=0.05,test=table.csv";
    opts.no_eval = false;
    static const int64_t every[] = {0, 7, 2}; /* the last step is one of them, or not */
    double loss = 0;
    for (size_t i = 0; i < KOLO_COUNT(every); i++) {
        opts.eval_steps = every[i];
        const kolo_train_result r = train_well(2, &opts);
        assert_true(r.evaluated && r.test.value[KOLO_METRIC_LOSS] > 0);
        if (i == 0) loss = r.test.value[KOLO_METRIC_LOSS];
        assert_true(r.test.value[KOLO_METRIC_LOSS] == loss);
    }
}

/* Makes the rows up to a place of a table unreadable, behind its first one. */
static void spoil_rows(const char *path, int end) {
    kolo_text rows = {0}, first = {0};
    add_rows(0, end, &rows);
    add_rows(0, 1, &first);
    const int fd = open(path, O_WRONLY);
    for (size_t i = first.length; i < rows.length; i++) {
        assert_int_equal(pwrite(fd, rows.text[i] == '\n' ? "\n" : "?", 1, (off_t)i), 1);
    }
    close(fd);
    kolo_text_fini(&rows);
    kolo_text_fini(&first);
}

/* A run on a file that grows is ended, and resumed with other workers while it grows on. What it
 * has used is not read again. */
static void a_file_goes_on_where_it_was_used(void **state) {
    kolo_train_opts opts = job;
    clear();
    write_table("table.csv", ROWS);
    opts.data = "csv:table.csv,columns=4,classes=3,follow=0.1";
    opts.ledger = NULL;
    opts.reproducible = 3;
    const kolo_train_result straight = train_well(1, &opts);
    write_table("table.csv", 20); /* three steps, and two samples */
    opts.ledger = "ledger";
    opts.out_dir = "run";
    opts.checkpoint_steps = 2;
    assert_int_equal(train_well(3, &opts).steps, 3);
    spoil_rows("table.csv", 18);
    writer w = {.path = "table.csv", .first = 20, .end = ROWS, .pieces = 4, .appends = true};
    assert_int_equal(pthread_create(&w.thread, NULL, write_rows, &w), 0);
    opts.resume = "run";
    opts.data = "csv:table.csv,columns=4,classes=3,follow=0.3";
    const kolo_train_result resumed = train_well(2, &opts);
    pthread_join(w.thread, NULL);
    assert_same_run("resumed", &straight, &resumed);
    assert_ledger("stream: 42 samples, each once\n2 runs, 7 steps, at most 3 workers\n");
    /* A smaller last step counts by its samples. */
    clear();
    write_table("table.csv", 20);
    opts = job;
    opts.data = "csv:table.csv,columns=4,classes=3,follow=0.1";
    opts.out_dir = "run";
    opts.checkpoint_steps = 2;
    assert_int_equal(train_well(2, &opts).steps, 4);
    write_table("table.csv", ROWS);
    opts.resume = "run";
    assert_int_equal(train_well(3, &opts).samples, ROWS);
    assert_ledger("stream: 43 samples, each once\n2 runs, 8 steps, at most 3 workers\n");
    write_table("table.csv", 20);
    opts.steps = 2000;
    opts.ledger = NULL;
    assert_job_refused(2, &opts, ", after the 43 samples that the run has used: is it the same");
}

static void a_pipe_goes_on_with_what_it_gives(void **state) {
    kolo_train_opts opts = job;
    clear();
    opts.out_dir = "run";
    opts.checkpoint_steps = 4;
    opts.steps = 5;
    train_piped(1, &opts, 0, 30);
    opts.resume = "run";
    opts.steps = 1000;
    train_notices[0] = '\0';
    assert_int_equal(train_piped(2, &opts, 30, ROWS).samples, ROWS);
    assert_non_null(strstr(train_notices, "what it gives first is used as sample 30"));
    assert_ledger("stream: 43 samples, each once\n2 runs, 8 steps, at most 2 workers\n");
    /* A file that has all rows has other bytes before the next one than the latest pipe. */
    write_table("table.csv", ROWS + BATCH);
    opts.data = "csv:table.csv,columns=4,classes=3,follow=0.05";
    assert_int_equal(train_well(1, &opts).samples, ROWS + BATCH);
    assert_ledger("stream: 49 samples, each once\n3 runs, 9 steps, at most 2 workers\n");
}

/* Steps are enough, and nothing more comes: the run ends. */
static void a_silent_stream_does_not_keep_a_run(void **state) {
    kolo_train_opts opts = job;
    clear();
    write_table("table.csv", ROWS);
    opts.data = "csv:table.csv,columns=4,classes=3,follow=forever,test=table.csv";
    opts.no_eval = false;
    opts.eval_steps = 3;
    for (int ranks = 1; ranks <= 2; ranks++) {
        opts.steps = 7;
        opts.ledger = NULL;
        const kolo_train_result r = train_well(ranks, &opts);
        assert_int_equal(r.steps, 7);
        assert_true(r.evaluated);
    }
}

/* Asked to end while it waits: a checkpoint of the steps so far. One rank is asked. */
static void end_while_waiting(int rank) {
    kolo_train_opts opts = job;
    clear();
    write_table("table.csv", 14);
    opts.data = "csv:table.csv,columns=4,classes=3,follow=30";
    opts.out_dir = "run";
    const train_outcome *o = train_preempted("a run that waits", 2, &opts, rank, 2);
    for (int r = 0; r < 2; r++) {
        assert_true(o[r].result.preempted);
        assert_int_equal(o[r].result.steps, 2);
    }
    assert_true(kolo_file_exists("run/checkpoint-2.safetensors"));
    assert_false(kolo_file_exists("run/checkpoint-final.safetensors"));
}

static void a_run_that_waits_can_be_preempted(void **state) {
    kolo_train_opts opts = job;
    opts.out_dir = "run";
    end_while_waiting(0);
    end_while_waiting(1);
    opts.resume = "run";
    opts.data = "csv:table.csv,columns=4,classes=3,follow=0.05";
    assert_int_equal(train_well(1, &opts).samples, 14);
    assert_ledger("stream: 14 samples, each once\n2 runs, 3 steps, at most 2 workers\n");
}

static void bad_rows_are_passed_over_and_counted(void **state) {
    kolo_train_opts opts = job;
    clear();
    ASSERT_OK(kolo_file_write("table.csv", "1,2,0,1\n1,2,?,1\n3,1,0,0\n1,1,1,9\n2,2,2,2\n", 40));
    opts.data = "csv:table.csv,columns=4,classes=3,follow=0.05";
    for (int ranks = 1; ranks <= 2; ranks++) {
        clear();
        const kolo_train_result r = train_well(ranks, &opts);
        assert_int_equal(r.samples, 3);
        assert_int_equal(r.damaged, 2);
        assert_non_null(
            strstr(train_notices, "table.csv: line 2, column 3: \"?\" is no finite number"));
        assert_non_null(strstr(train_notices, "table.csv: line 4, column 4: \"9\" is no class"));
    }
    /* A run that goes on reads the rows again, but does not report them again. */
    clear();
    opts.out_dir = "run";
    opts.checkpoint_steps = 1;
    opts.ledger = NULL;
    assert_int_equal(train_well(1, &opts).samples, 3);
    ASSERT_OK(kolo_file_write(
        "table.csv", "1,2,0,1\n1,2,?,1\n3,1,0,0\n1,1,1,9\n2,2,2,2\n1,?,1,1\n1,1,1,1\n", 56));
    opts.resume = "run";
    train_notices[0] = '\0';
    assert_int_equal(train_well(1, &opts).samples, 4);
    assert_non_null(strstr(train_notices, "table.csv: line 6, column 2"));
    assert_null(strstr(train_notices, "line 2,"));
    opts.resume = opts.out_dir = NULL;
    opts.checkpoint_steps = 0;
    opts.strict = true;
    const train_outcome *o = train_job(2, RANKS_THREAD, &opts);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(o[r].status, KOLO_ERR_FORMAT);
        assert_non_null(strstr(o[r].error, "table.csv: line 2, column 3"));
    }
}

static void tokens_are_streamed(void **state) {
    uint8_t bytes[4 * 8 * 5 + 1];
    kolo_train_opts opts = {.model = "gpt2_tiny",
                            .model_options = "layers=1,width=8,heads=2,context=8,vocab=64",
                            .data = "tokens:tokens.u16,follow=0.05",
                            .global_batch = 4,
                            .steps = 100,
                            .no_eval = true};
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = i % 2 ? 0 : (uint8_t)(i * i % 61);
    ASSERT_OK(kolo_file_write("tokens.u16", bytes, sizeof bytes));
    const kolo_train_result one = train_well(1, &opts), two = train_well(2, &opts);
    assert_int_equal(one.samples, 9); /* windows of 8, and the token after the last */
    assert_near_losses(&one, &two);
}

static void what_needs_epochs_is_refused(void **state) {
    static const struct {
        kolo_train_opts opts;
        const char *text;
    } cases[] = {
        {{.epochs = 2}, "give --steps"},
        {{.steps = 9, .warmup_epochs = 1}, "--warmup-epochs counts epochs"},
        {{.steps = 9, .schedule = KOLO_LR_STEP}, "--schedule step counts epochs"},
        {{.steps = 9, .audit = 1, .reproducible = 3}, "--audit reads samples twice"},
        {{.steps = 9, .sync = KOLO_SYNC_PS}, "--sync ps: the workers may be at different steps"},
        {{.steps = 9, .in_memory = true}, "a benchmark reads the same samples again"},
        {{.steps = 9, .reproducible = 3, .worker_weights = "measured"},
         "--worker-weights measured"},
    };
    clear();
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_train_opts opts = cases[i].opts;
        opts.model = job.model;
        opts.data = "csv:-,columns=4,classes=3";
        opts.global_batch = BATCH;
        opts.no_eval = true;
        assert_job_refused(2, &opts, cases[i].text);
    }
    kolo_train_opts opts = job;
    opts.ledger = NULL;
    opts.no_eval = false;
    assert_job_refused(1, &opts, "pipe is a stream, without a test split: give test=FILE");
    opts.no_eval = true;
    ASSERT_OK(kolo_file_write("table.csv", "", 0));
    opts.data = "csv:table.csv,columns=4,classes=3,follow=0.05";
    const train_outcome *o = train_job(2, RANKS_THREAD, &opts);
    assert_int_equal(o[1].status, KOLO_ERR_FORMAT);
    assert_non_null(strstr(o[0].error, "table.csv ended before the first step"));
}

TEST_MAIN(test_streams) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pipe_trains_until_it_ends),
        cmocka_unit_test(bits_do_not_depend_on_ranks),
        cmocka_unit_test(a_file_goes_on_where_it_was_used),
        cmocka_unit_test(a_pipe_goes_on_with_what_it_gives),
        cmocka_unit_test(a_silent_stream_does_not_keep_a_run),
        cmocka_unit_test(a_run_that_waits_can_be_preempted),
        cmocka_unit_test(bad_rows_are_passed_over_and_counted),
        cmocka_unit_test(tokens_are_streamed),
        cmocka_unit_test(what_needs_epochs_is_refused),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}

/* Streams: bytes of pipes and of files that grow, and the samples that readers make of them. */
#include "base/clock.h"
#include "base/compiler.h"
#include "base/file.h"
#include "data/dataset.h"
#include "data/prefetch.h"
#include "support/folder.h"
#include "support/support.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A thread that writes texts to a path, one after the other, some time apart. */
typedef struct writer {
    const char *path, *texts[4];
    size_t bytes; /* of each; 0: of a string */
    bool appends;
    int pause_ms;
    pthread_t thread;
} writer;

static void *run_writer(void *arg) {
    const writer *w = arg;
    const int fd = open(w->path, O_WRONLY | (w->appends ? O_APPEND : 0));
    for (size_t i = 0; fd >= 0 && i < KOLO_COUNT(w->texts) && w->texts[i]; i++) {
        (void)kolo_write_all(fd, w->texts[i], w->bytes ? w->bytes : strlen(w->texts[i]));
        kolo_sleep_ns(kolo_ms_to_ns(w->pause_ms));
    }
    close(fd);
    return NULL;
}

static void start_writer(writer *w) {
    assert_int_equal(pthread_create(&w->thread, NULL, run_writer, w), 0);
}

static void assert_line(kolo_feed *s, const char *text) {
    const char *line;
    size_t length;
    ASSERT_OK(kolo_feed_line(s, &line, &length));
    if (!text) {
        assert_null(line);
        return;
    }
    assert_non_null(line);
    assert_int_equal(length, strlen(text));
    assert_memory_equal(line, text, length);
}

static void lines_of_a_pipe_come_in_pieces(void **state) {
    kolo_feed *s;
    writer w = {.path = "pipe", .texts = {"on", "e\ntwo\n\nth", "ree"}, .pause_ms = 5};
    assert_int_equal(mkfifo("pipe", 0600), 0);
    assert_true(kolo_feed_is_pipe("pipe") && kolo_feed_is_pipe("-"));
    ASSERT_OK(kolo_feed_open("pipe", 0, &s));
    start_writer(&w);
    assert_line(s, "one");
    assert_line(s, "two");
    assert_line(s, "");
    assert_line(s, "three"); /* a pipe that was closed has no more of it */
    assert_line(s, NULL);
    assert_line(s, NULL);
    kolo_feed_close(s);
    pthread_join(w.thread, NULL);
    assert_int_equal(kolo_feed_open("pipe/none", 0, &s), KOLO_ERR_IO);
}

static void a_file_is_followed(void **state) {
    kolo_feed *s;
    const char *data;
    size_t got;
    bool there;
    writer w = {.path = "log", .texts = {"b\nc", "c\nd"}, .appends = true, .pause_ms = 5};
    ASSERT_OK(kolo_file_write("log", "a\n", 2));
    assert_false(kolo_feed_is_pipe("log"));
    ASSERT_OK(kolo_feed_open("log", INFINITY, &s));
    assert_line(s, "a");
    start_writer(&w);
    assert_line(s, "b");
    assert_line(s, "cc");
    kolo_feed_close(s);
    pthread_join(w.thread, NULL);
    ASSERT_OK(kolo_feed_open("log", 0.02, &s)); /* it ends when nothing is appended */
    assert_line(s, "a");
    assert_line(s, "b");
    assert_line(s, "cc");
    assert_line(s, NULL); /* "d" may be a part of a line */
    kolo_feed_close(s);
    ASSERT_OK(kolo_feed_open("log", 0, &s));
    ASSERT_OK(kolo_feed_skip(s, 6, &there));
    assert_true(there);
    ASSERT_OK(kolo_feed_peek(s, 8, &data, &got));
    assert_int_equal(got, 2);
    assert_memory_equal(data, "\nd", 2);
    kolo_feed_consume(s, 1);
    assert_line(s, "d");
    kolo_feed_close(s);
    ASSERT_OK(kolo_feed_open("log", 0, &s));
    ASSERT_OK(kolo_feed_skip(s, 100, &there));
    assert_false(there);
    kolo_feed_close(s);
}

static void a_file_that_shrinks_is_an_error(void **state) {
    kolo_feed *s;
    const char *line;
    size_t length;
    ASSERT_OK(kolo_file_write("log", "abc\n", 4));
    ASSERT_OK(kolo_feed_open("log", INFINITY, &s));
    assert_line(s, "abc");
    assert_int_equal(truncate("log", 1), 0);
    assert_int_equal(kolo_feed_line(s, &line, &length), KOLO_ERR_FORMAT);
    assert_non_null(strstr(kolo_last_error(), "log: truncated to 1 bytes after 4"));
    kolo_feed_close(s);
}

static void *read_line(void *arg) {
    const char *line;
    size_t length;
    const kolo_status status = kolo_feed_line(arg, &line, &length);
    return status == KOLO_OK && !line ? arg : NULL;
}

static void a_wait_is_stopped(void **state) {
    pthread_t thread;
    void *ended;
    assert_int_equal(mkfifo("silent", 0600), 0);
    const int keeps = open("silent", O_RDWR);
    ASSERT_OK(kolo_file_write("log", "part", 4));
    for (int file = 0; file < 2; file++) {
        kolo_feed *s;
        ASSERT_OK(kolo_feed_open(file ? "log" : "silent", file ? INFINITY : 0, &s));
        assert_int_equal(pthread_create(&thread, NULL, read_line, s), 0);
        kolo_feed_stop(s);
        pthread_join(thread, &ended);
        assert_ptr_equal(ended, s);
        kolo_feed_close(s);
    }
    close(keeps);
}

/* ---- samples ---- */

typedef struct lines {
    int count;
    char last[256];
} lines;

static void note(void *arg, const char *line) {
    lines *l = arg;
    l->count++;
    snprintf(l->last, sizeof l->last, "%s", line);
}

static void rows_of_a_table_come(void **state) {
    static const char *const tables[] = {"a,class,b\n1,0,2\n", "\n1,2,3\n4,x,6\n7,3,9\n1,2\n",
                                         "-1,1,5"};
    kolo_dataset *d;
    lines warned = {0};
    const kolo_dataset_opts opts = {.warn = note, .warn_arg = &warned};
    float x[8][2];
    int32_t y[8];
    int64_t got, damaged;
    assert_int_equal(mkfifo("table", 0600), 0);
    ASSERT_OK(kolo_dataset_open_for("csv:table,columns=3,classes=3,target=class", KOLO_SPLIT_TRAIN,
                                    &opts, &d));
    assert_true(kolo_dataset_describe(d)->count == KOLO_STREAM_SAMPLES);
    assert_int_equal(kolo_dataset_gather(d, (int64_t[]){0}, 1, (void *[]){x, y}), KOLO_ERR_ARG);
    writer w = {.path = "table", .texts = {tables[0], tables[1], tables[2]}, .pause_ms = 2};
    ASSERT_OK(kolo_dataset_begin(d, &(kolo_stream_place){.samples = 0}));
    start_writer(&w);
    ASSERT_OK(kolo_dataset_next(d, 8, (void *[]){x, y}, &got, &damaged));
    pthread_join(w.thread, NULL);
    assert_int_equal(got, 3);
    assert_int_equal(damaged, 3); /* "x", class 3 of 3, two columns */
    assert_int_equal(warned.count, 3);
    assert_string_equal(warned.last,
                        "table: line 7 has 2 columns and the first 3: correct or remove the row: "
                        "skipped");
    const float values[][2] = {{1, 2}, {1, 3}, {-1, 5}};
    assert_memory_equal(x, values, sizeof values);
    assert_true(y[0] == 0 && y[1] == 2 && y[2] == 1);
    kolo_dataset_close(d);
}

static void a_byte_order_mark_is_no_text(void **state) {
    static const char table[] = "\xef\xbb\xbf"
                                "1,0\n2,1\n",
                      named[] = "\xef\xbb\xbf"
                                "y,x\n1,2\n0,3\n";
    kolo_dataset *d;
    float x[3];
    int32_t y[3];
    int64_t got, damaged;
    ASSERT_OK(kolo_file_write("mark.csv", table, sizeof table - 1));
    ASSERT_OK(
        kolo_dataset_open("csv:mark.csv,columns=2,classes=2,follow=0.05", KOLO_SPLIT_TRAIN, &d));
    ASSERT_OK(kolo_dataset_begin(d, &(kolo_stream_place){.samples = 0}));
    ASSERT_OK(kolo_dataset_next(d, 3, (void *[]){x, y}, &got, &damaged));
    assert_true(got == 2 && x[0] == 1 && y[0] == 0 && x[1] == 2 && y[1] == 1);
    kolo_dataset_close(d);
    ASSERT_OK(kolo_file_write("mark.csv", named, sizeof named - 1));
    ASSERT_OK(kolo_dataset_open("csv:mark.csv,columns=2,classes=2,target=y,follow=0.05",
                                KOLO_SPLIT_TRAIN, &d));
    ASSERT_OK(kolo_dataset_begin(d, &(kolo_stream_place){.samples = 0}));
    ASSERT_OK(kolo_dataset_next(d, 3, (void *[]){x, y}, &got, &damaged));
    assert_true(got == 2 && x[0] == 2 && y[0] == 1 && x[1] == 3 && y[1] == 0);
    kolo_dataset_close(d);
}

static void without_a_listener_a_bad_row_is_an_error(void **state) {
    kolo_dataset *d;
    float x[2];
    int32_t y;
    int64_t got, damaged;
    ASSERT_OK(kolo_file_write("bad.csv", "1,2,0\n1,2,1\n1,,1\n", 17));
    ASSERT_OK(
        kolo_dataset_open("csv:bad.csv,columns=3,classes=2,follow=0.1", KOLO_SPLIT_TRAIN, &d));
    ASSERT_OK(kolo_dataset_begin(
        d, &(kolo_stream_place){.samples = 1})); /* of a file, past the first row */
    ASSERT_OK(kolo_dataset_next(d, 1, (void *[]){x, &y}, &got, &damaged));
    assert_true(got == 1 && y == 1);
    assert_int_equal(kolo_dataset_next(d, 1, (void *[]){x, &y}, &got, &damaged), KOLO_ERR_FORMAT);
    assert_non_null(strstr(kolo_last_error(), "bad.csv: line 3, column 2"));
    kolo_dataset_close(d);
    ASSERT_OK(
        kolo_dataset_open("csv:bad.csv,columns=4,classes=2,follow=0.1", KOLO_SPLIT_TRAIN, &d));
    ASSERT_OK(kolo_dataset_begin(d, &(kolo_stream_place){.samples = 0}));
    assert_int_equal(kolo_dataset_next(d, 1, (void *[]){x, &y}, &got, &damaged), KOLO_ERR_FORMAT);
    assert_non_null(strstr(kolo_last_error(), "bad.csv: line 1 has 3 columns: give columns=3"));
    kolo_dataset_close(d);
}

/* Rows of a table are read from the place behind any of them, whatever is before it. */
static void a_table_goes_on_at_a_place(void **state) {
    static const char text[] = "a,class\n\n1,0\nbad,0\n2,1\n\n3,0\n4,1\n5,x\n";
    static const char spec[] = "csv:placed.csv,columns=2,classes=2,follow=0.05";
    enum { SAMPLES = 4 };
    kolo_stream_place places[SAMPLES + 1] = {{0}};
    kolo_dataset *d;
    float x;
    int32_t y;
    int64_t got, damaged;
    lines warned = {0};
    const kolo_dataset_opts opts = {.warn = note, .warn_arg = &warned};
    ASSERT_OK(kolo_file_write("placed.csv", text, sizeof text - 1));
    ASSERT_OK(kolo_dataset_open_for(spec, KOLO_SPLIT_TRAIN, &opts, &d));
    ASSERT_OK(kolo_dataset_begin(d, &places[0]));
    for (int i = 0; i < SAMPLES; i++) {
        ASSERT_OK(kolo_dataset_next(d, 1, (void *[]){&x, &y}, &got, &damaged));
        places[i + 1] = kolo_dataset_place(d, i + 1);
    }
    kolo_dataset_close(d);
    assert_int_equal(warned.count, 1);
    assert_int_equal(places[1].bytes, strlen("a,class\n\n1,0\n"));
    assert_int_equal(places[3].lines, 7);
    for (int i = 1; i <= SAMPLES; i++) {
        ASSERT_OK(kolo_dataset_open(spec, KOLO_SPLIT_TRAIN, &d));
        ASSERT_OK(kolo_dataset_begin(d, &places[i]));
        kolo_status status = kolo_dataset_next(d, 1, (void *[]){&x, &y}, &got, &damaged);
        assert_int_equal(status, i == 1 || i == SAMPLES ? KOLO_ERR_FORMAT : KOLO_OK);
        if (status == KOLO_OK) assert_true(got == 1 && x == (float)(i + 1) && y == i % 2);
        const char *where = i == 1 ? "line 4, column 1" : "line 9, column 2";
        if (status != KOLO_OK) assert_non_null(strstr(kolo_last_error(), where));
        kolo_dataset_close(d);
    }
    /* Places of another file: in a line, behind the end, or behind lines of which none is a row. */
    const kolo_stream_place third = places[3];
    const struct {
        const char *text;
        uint64_t bytes;
    } wrong[] = {{text, third.bytes + 1}, {text, sizeof text}, {"\n\n\n", 2}};
    for (size_t i = 0; i < KOLO_COUNT(wrong); i++) {
        const kolo_stream_place place = {third.samples, wrong[i].bytes, third.lines};
        char problem[160];
        snprintf(problem, sizeof problem,
                 "placed.csv: no row begins at byte %d, after the 3 samples that the run has used",
                 (int)wrong[i].bytes);
        ASSERT_OK(kolo_file_write("placed.csv", wrong[i].text, strlen(wrong[i].text)));
        ASSERT_OK(kolo_dataset_open(spec, KOLO_SPLIT_TRAIN, &d));
        assert_int_equal(kolo_dataset_begin(d, &place), KOLO_ERR_FORMAT);
        assert_non_null(strstr(kolo_last_error(), problem));
        kolo_dataset_close(d);
    }
}

static void windows_of_a_file_that_grows(void **state) {
    const kolo_dataset_opts opts = {.context = 4, .vocabulary = 64};
    kolo_dataset *d;
    int32_t x[4][4], y[4][4];
    int64_t got, damaged;
    uint16_t tokens[32];
    for (int i = 0; i < 32; i++) tokens[i] = (uint16_t)i;
    ASSERT_OK(kolo_file_write("grows.bin", tokens, 14 * 2));
    writer w = {
        .path = "grows.bin", .texts = {(const char *)(tokens + 14)}, .bytes = 5, .appends = true};
    ASSERT_OK(kolo_dataset_open_for("tokens:grows.bin,follow=0.2", KOLO_SPLIT_TRAIN, &opts, &d));
    ASSERT_OK(kolo_dataset_begin(
        d, &(kolo_stream_place){.samples = 2})); /* tokens 8 to 12, then 12 to 16 */
    start_writer(&w);
    ASSERT_OK(kolo_dataset_next(d, 4, (void *[]){x, y}, &got, &damaged));
    pthread_join(w.thread, NULL);
    assert_int_equal(got, 1); /* token 16 has one byte */
    for (int t = 0; t < 4; t++) assert_true(x[0][t] == 8 + t && y[0][t] == 9 + t);
    kolo_dataset_close(d);
    ASSERT_OK(kolo_dataset_open_for("tokens:grows.bin,follow=0.1", KOLO_SPLIT_TRAIN, &opts, &d));
    assert_int_equal(kolo_dataset_begin(d, &(kolo_stream_place){.samples = 100}), KOLO_ERR_FORMAT);
    assert_non_null(strstr(kolo_last_error(), "fewer than the 100 samples that the run has used"));
    kolo_dataset_close(d);
    ASSERT_OK(kolo_file_write("short.csv", "1,0\n2,1\n3,", 10));
    for (int rows = 3; rows <= 4; rows++) { /* that a row may come does not matter */
        ASSERT_OK(kolo_dataset_open("csv:short.csv,columns=2,classes=2,follow=forever",
                                    KOLO_SPLIT_TRAIN, &d));
        assert_int_equal(kolo_dataset_begin(d, &(kolo_stream_place){.samples = rows}),
                         KOLO_ERR_FORMAT);
        kolo_dataset_close(d);
    }
    float rest;
    int32_t class;
    ASSERT_OK(
        kolo_dataset_open("csv:short.csv,columns=2,classes=2,follow=1", KOLO_SPLIT_TRAIN, &d));
    ASSERT_OK(kolo_dataset_begin(d, &(kolo_stream_place){.samples = 2}));
    writer last = {.path = "short.csv", .texts = {"1\n"}, .appends = true};
    start_writer(&last);
    ASSERT_OK(kolo_dataset_next(d, 1, (void *[]){&rest, &class}, &got, &damaged));
    pthread_join(last.thread, NULL);
    assert_true(got == 1 && rest == 3 && class == 1); /* it is awaited then */
    kolo_dataset_close(d);
    /* A token outside the vocabulary. */
    const kolo_dataset_opts few = {.context = 4, .vocabulary = 3};
    for (int first = 0; first <= 2; first++) {
        char where[32];
        ASSERT_OK(kolo_dataset_open_for("tokens:grows.bin,follow=0.1", KOLO_SPLIT_TRAIN, &few, &d));
        ASSERT_OK(kolo_dataset_begin(d, &(kolo_stream_place){.samples = first}));
        assert_int_equal(kolo_dataset_next(d, 1, (void *[]){x, y}, &got, &damaged),
                         KOLO_ERR_FORMAT);
        snprintf(where, sizeof where, " of window %d exceeds", first);
        assert_non_null(strstr(kolo_last_error(), where));
        kolo_dataset_close(d);
    }
}

/* ---- loaders ---- */

static void a_loader_ends_with_the_stream(void **state) {
    kolo_dataset *d;
    kolo_loader *loader;
    kolo_batch batch;
    ASSERT_OK(kolo_file_write("rows.csv", "0,0\n1,1\n2,0\n3,1\n4,0\n5,1\n6,1\n", 28));
    static const int64_t positions[] = {0, 3, 6};
    for (size_t i = 0; i < KOLO_COUNT(positions); i++) {
        ASSERT_OK(kolo_dataset_open("csv:rows.csv,columns=2,classes=2,follow=0.05",
                                    KOLO_SPLIT_TRAIN, &d));
        kolo_loader_opts opts = {.dataset = d, .global_batch = 3, .end = 100};
        assert_int_equal(kolo_loader_create(&opts, &loader), KOLO_ERR_ARG);
        opts.streams = true;
        opts.from.samples = positions[i];
        ASSERT_OK(kolo_loader_create(&opts, &loader));
        int64_t next = positions[i];
        for (;;) {
            ASSERT_OK(kolo_loader_next(loader, &batch));
            if (batch.global_count == 0) break;
            assert_int_equal(batch.count, batch.global_count);
            assert_int_equal(batch.count, next < 6 ? 3 : 1);
            const float *x = batch.data[KOLO_FIELD_X];
            for (int64_t s = 0; s < batch.count; s++, next++) {
                assert_int_equal(batch.indices[s], next);
                assert_true(x[s] == (float)next);
            }
        }
        assert_int_equal(next, 7);
        ASSERT_OK(kolo_loader_next(loader, &batch));
        assert_int_equal(batch.global_count, 0);
        kolo_loader_destroy(loader);
        assert_int_equal(kolo_loader_create(&opts, &loader), KOLO_ERR_ARG); /* once */
        assert_non_null(strstr(kolo_last_error(), "rows.csv is a stream that has been read"));
        kolo_dataset_close(d);
    }
}

static void a_loader_of_a_silent_stream_is_destroyed(void **state) {
    kolo_dataset *d;
    kolo_loader *loader;
    kolo_batch batch;
    ASSERT_OK(kolo_file_write("few.csv", "0,0\n1,1\n", 8));
    ASSERT_OK(
        kolo_dataset_open("csv:few.csv,columns=2,classes=2,follow=forever", KOLO_SPLIT_TRAIN, &d));
    const kolo_loader_opts opts = {
        .dataset = d, .global_batch = 2, .end = 100, .streams = true, .timeout_ms = 20};
    ASSERT_OK(kolo_loader_create(&opts, &loader));
    do {
        const kolo_status status = kolo_loader_next(loader, &batch);
        assert_true(status == KOLO_OK || status == KOLO_ERR_TIMEOUT);
        if (status == KOLO_ERR_TIMEOUT) continue;
        assert_int_equal(batch.count, 2);
        break;
    } while (true);
    assert_int_equal(kolo_loader_next(loader, &batch), KOLO_ERR_TIMEOUT); /* and again */
    assert_int_equal(kolo_loader_next(loader, &batch), KOLO_ERR_TIMEOUT);
    kolo_loader_destroy(loader);
    kolo_dataset_close(d);
}

/* Also at the start of a run that goes on, which reads a pipe from wherever it is. */
static void a_header_in_a_table_of_numbers_is_an_error(void **state) {
    static const char header[] = "\x93NUMPY\x01\x00v\x00{'descr': '<f4'";
    const int64_t before[] = {0, 30};
    assert_int_equal(mkfifo("numbers", 0600), 0);
    for (size_t i = 0; i < KOLO_COUNT(before); i++) {
        kolo_dataset *d;
        float x[2], y;
        int64_t got, damaged;
        writer w = {.path = "numbers", .texts = {header}, .bytes = sizeof header - 1};
        ASSERT_OK(kolo_dataset_open("raw:numbers,columns=3,type=value", KOLO_SPLIT_TRAIN, &d));
        ASSERT_OK(kolo_dataset_begin(d, &(kolo_stream_place){.samples = before[i]}));
        start_writer(&w);
        const kolo_status status = kolo_dataset_next(d, 1, (void *[]){x, &y}, &got, &damaged);
        pthread_join(w.thread, NULL);
        assert_int_equal(status, KOLO_ERR_FORMAT);
        assert_non_null(strstr(kolo_last_error(), "this is a .npy file: write the table with"));
        kolo_dataset_close(d);
    }
}

static void what_a_stream_lacks_is_an_error(void **state) {
    const kolo_dataset_opts opts = {.context = 4, .vocabulary = 300};
    const struct {
        const char *spec;
        kolo_split split;
        const char *text;
    } cases[] = {
        {"csv:-", KOLO_SPLIT_TRAIN, "give columns=N, with the target, and classes=N or type=value"},
        {"csv:-,columns=3", KOLO_SPLIT_TRAIN, "give columns=N"},
        {"csv:-,columns=3,classes=2,split=0.2", KOLO_SPLIT_TRAIN, "split= has no effect for a str"},
        {"csv:-,columns=3,classes=2,follow=3", KOLO_SPLIT_TRAIN,
         "follow= is for a file that grows"},
        {"csv:.,columns=3,classes=2,follow=3", KOLO_SPLIT_TRAIN, "is a folder: omit it"},
        {"csv:-,columns=3,classes=2", KOLO_SPLIT_TEST, "without a test split: give test=FILE"},
        {"text:-", KOLO_SPLIT_TEST, "give test=FILE, or train with --no-eval"},
        {"raw:-,classes=2", KOLO_SPLIT_TRAIN, "give columns=N"},
        {"text:here,follow=0", KOLO_SPLIT_TRAIN, "write follow=SECONDS"},
        {"text:here,follow=soon", KOLO_SPLIT_TRAIN, "write follow=SECONDS"},
        {"csv:here,test=here,split=0.5", KOLO_SPLIT_TRAIN, "split= has no effect with test="},
    };
    ASSERT_OK(kolo_file_write("here", "1,2,0\n1,2,1\n", 12));
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_dataset *d;
        const kolo_status status = kolo_dataset_open_for(cases[i].spec, cases[i].split, &opts, &d);
        if (status != KOLO_ERR_ARG) fail_msg("%s: %s", cases[i].spec, kolo_status_text(status));
        if (!strstr(kolo_last_error(), cases[i].text)) fail_msg("%s", kolo_last_error());
    }
    /* test= without a stream: two files. */
    kolo_dataset *d;
    for (int split = 0; split < 2; split++) {
        ASSERT_OK(kolo_dataset_open("csv:here,test=here", (kolo_split)split, &d));
        assert_int_equal(kolo_dataset_describe(d)->count, 2);
        kolo_dataset_close(d);
    }
    /* Calls that need samples by their numbers. */
    int64_t none;
    ASSERT_OK(kolo_dataset_open("csv:-,columns=3,classes=2", KOLO_SPLIT_TRAIN, &d));
    assert_int_equal(kolo_dataset_order(d, 0, 0, 1, &none), KOLO_ERR_ARG);
    assert_int_equal(kolo_dataset_verify(d, NULL, &none), KOLO_ERR_ARG);
    kolo_loader_bench bench;
    assert_int_equal(kolo_bench_loader(d, NULL, &bench), KOLO_ERR_ARG);
    assert_int_equal(kolo_dataset_pack("csv:-,columns=3,classes=2", NULL, "p"), KOLO_ERR_ARG);
    assert_false(kolo_file_exists("p"));
    kolo_dataset_close(d);
}

TEST_MAIN(test_feed) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_of_a_pipe_come_in_pieces),
        cmocka_unit_test(a_file_is_followed),
        cmocka_unit_test(a_file_that_shrinks_is_an_error),
        cmocka_unit_test(a_wait_is_stopped),
        cmocka_unit_test(rows_of_a_table_come),
        cmocka_unit_test(a_byte_order_mark_is_no_text),
        cmocka_unit_test(without_a_listener_a_bad_row_is_an_error),
        cmocka_unit_test(a_table_goes_on_at_a_place),
        cmocka_unit_test(windows_of_a_file_that_grows),
        cmocka_unit_test(a_loader_ends_with_the_stream),
        cmocka_unit_test(a_loader_of_a_silent_stream_is_destroyed),
        cmocka_unit_test(a_header_in_a_table_of_numbers_is_an_error),
        cmocka_unit_test(what_a_stream_lacks_is_an_error),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}

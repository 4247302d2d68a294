/* Tar shards: members of damaged archives, samples, splits. Archives that Python's tarfile writes
 * are read in tests/python/test_webdataset.py. */
#include "base/compiler.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/readers/braces.h"
#include "data/readers/shard_index.h"
#include "data/readers/tar.h"
#include "kolo/data.h"
#include "support/folder.h"
#include "support/ranks.h"
#include "support/support.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { BLOCK = 512, ROOM = 64 };

/* An archive that is written member by member. */
typedef struct archive {
    uint8_t bytes[ROOM * BLOCK];
    size_t length;
} archive;

static void add(archive *a, const char *name, char type, const char *contents, size_t length) {
    uint8_t *header = a->bytes + a->length;
    unsigned sum = 0;
    assert_true(a->length + 2 * BLOCK + length <= sizeof a->bytes);
    memset(header, 0, BLOCK);
    snprintf((char *)header, 100, "%s", name);
    snprintf((char *)header + 124, 12, "%011o", (unsigned)length);
    memcpy(header + 257,
           "ustar\0"
           "00",
           8);
    header[156] = (uint8_t)type;
    memset(header + 148, ' ', 8);
    for (int i = 0; i < BLOCK; i++) sum += header[i];
    snprintf((char *)header + 148, 8, "%06o", sum);
    memset(header + BLOCK, 0, (length + BLOCK - 1) / BLOCK * BLOCK);
    memcpy(header + BLOCK, contents, length);
    a->length += BLOCK + (length + BLOCK - 1) / BLOCK * BLOCK;
}

static void add_text(archive *a, const char *name, char type, const char *contents) {
    add(a, name, type, contents, strlen(contents));
}

static void end(archive *a) {
    memset(a->bytes + a->length, 0, 2 * BLOCK);
    a->length += 2 * BLOCK;
}

static kolo_status list(void *arg, const kolo_tar_member *m) {
    kolo_text_add(arg, "%s@%zu+%zu ", m->name, m->at, m->length);
    return KOLO_OK;
}

/* In a block of its own length, for the address sanitizer. */
static kolo_status scan(const archive *a, size_t length, kolo_text *names) {
    uint8_t *copy = malloc(length ? length : 1);
    memcpy(copy, a->bytes, length);
    kolo_status status = kolo_tar_each(copy, length, "a.tar", list, names);
    free(copy);
    return status;
}

static void names_and_sizes_come_from_all_headers(void **state) {
    static archive a;
    kolo_text names = {0};
    add_text(&a, "plain", '0', "abc");
    add_text(&a, "old", '\0', "");
    add_text(&a, "folder/", '5', "");
    add_text(&a, "././@LongLink", 'L', "gnu/long");
    add_text(&a, "cut", '0', "d");
    add_text(&a, "pax", 'x', "12 path=p/q\n20 mtime=1700000.25\n10 size=2\n");
    add_text(&a, "short", '0', "e");
    add_text(&a, "global", 'g', "11 path=no\n");
    add_text(&a, "last", '0', "f");
    end(&a);
    a.bytes[a.length - 2 * BLOCK - 1] = 7; /* behind the contents: ignored */
    ASSERT_OK(scan(&a, a.length, &names));
    assert_string_equal(names.text,
                        "plain@512+3 old@1536+0 gnu/long@3584+1 p/q@5632+2 last@7680+1 ");
    kolo_text_fini(&names);
}

static void damaged_archives_are_refused(void **state) {
    static archive a, b;
    kolo_text names = {0};
    add_text(&a, "one", '0', "abc");
    add_text(&a, "two", '0', "def");
    end(&a);
    ASSERT_OK(scan(&a, 5 * BLOCK, &names)); /* one of the two empty blocks suffices */
    for (size_t length = 0; length < 5 * BLOCK; length++) {
        assert_int_equal(scan(&a, length, &names), KOLO_ERR_FORMAT);
        assert_non_null(strstr(kolo_last_error(), "a.tar: offset "));
    }
    const struct {
        size_t at;
        const char *bytes, *error;
    } cases[] = {
        {2 * BLOCK, "T", "a.tar: offset 1024: no header of a member"},
        {2 * BLOCK + 124, "\xff", "offset 1024: no header"},
        {2 * BLOCK + 148, "x", "offset 1024: no header"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        b = a;
        memcpy(b.bytes + cases[i].at, cases[i].bytes, 1);
        assert_int_equal(scan(&b, b.length, &names), KOLO_ERR_FORMAT);
        if (!strstr(kolo_last_error(), cases[i].error)) fail_msg("%s", kolo_last_error());
    }
    b = a;
    end(&b);
    ASSERT_OK(scan(&b, b.length, &names)); /* padding */
    b.bytes[b.length - 1] = 1;
    for (int k = 0; k < 2; k++) {
        assert_int_equal(scan(&b, b.length, &names), KOLO_ERR_FORMAT);
        const char *error = k ? "offset 3072: data after the" : "offset 4095: data after the";
        if (!strstr(kolo_last_error(), error)) fail_msg("%s", kolo_last_error());
        b = a;
        add_text(&b, "three", '0', "ghi"); /* behind the end mark */
        end(&b);
    }
    static const char *const pax[] = {
        "9 path=a", "x path=a\n", "99 path=a\n", "9 path=ab", "0 \n", "10 size=x\n", "9"};
    for (size_t i = 0; i < KOLO_COUNT(pax); i++) {
        b.length = 0;
        add_text(&b, "pax", 'x', pax[i]);
        add_text(&b, "next", '0', "a");
        end(&b);
        assert_int_equal(scan(&b, b.length, &names), KOLO_ERR_FORMAT);
        if (!strstr(kolo_last_error(), "offset 0: a damaged pax"))
            fail_msg("%s", kolo_last_error());
    }
    kolo_text_fini(&names);
}

static void put(const char *path, const archive *a) {
    ASSERT_OK(kolo_file_write(path, a->bytes, a->length));
}

static void refuses(const char *spec, const char *text) {
    kolo_dataset *d = NULL;
    assert_int_not_equal(kolo_dataset_open(spec, KOLO_SPLIT_TRAIN, &d), KOLO_OK);
    assert_null(d);
    if (!strstr(kolo_last_error(), text)) fail_msg("\"%s\" lacks \"%s\"", kolo_last_error(), text);
}

static void incomplete_samples_are_refused(void **state) {
    static const struct {
        const char *names[4], *class, *spec, *error;
    } cases[] = {
        {{"a.jpg", "b.jpg", "b.cls"},
         "1",
         "webdataset:a.tar",
         "a.tar: offset 512: sample \"a\" lacks an image"},
        {{"a.cls"}, "1", "webdataset:a.tar", "sample \"a\" lacks"},
        {{"a.jpg", "a.png", "a.cls"}, "1", "webdataset:a.tar", "sample \"a\" has two images"},
        {{"a.jpg", "a.cls", "a.cls"}, "1", "webdataset:a.tar", "sample \"a\" has two classes"},
        {{"a.jpg", "a.cls"}, "x", "webdataset:a.tar", "a.cls is no class 0, 1, ..."},
        {{"a.jpg", "a.cls"}, "-1", "webdataset:a.tar", "a.cls is no class"},
        {{"a.jpg", "a.cls"}, "99999999999", "webdataset:a.tar", "a.cls is no class"},
        {{"a.jpg", "a.cls"},
         "3",
         "webdataset:a.tar",
         "1 samples (.jpg or .png, with .cls) are too few"},
        {{"a.jpg", "a.cls", "b.jpg", "b.cls"},
         "3",
         "webdataset:a.tar,classes=3",
         "class 3 is outside 0..2: give classes=4"},
        {{"a.jpg", "a.cls"}, "3", "webdataset:b*.tar", "b*.tar: no such shards"},
        {{"a.jpg", "a.cls"}, "3", "webdataset:a.tar,test=c.tar", "c.tar: no such shards"},
        {{".cls", "x"}, "3", "webdataset:a.tar,test=c.tar", "a.tar: no samples"},
        {{"a"}, "3", "webdataset", "write webdataset:PATTERN"},
        {{"a.jpg", "a.cls"},
         "3",
         "webdataset:?.tar,test=a.tar",
         "a.tar: the patterns of both the training and the test shards match"},
        {{"a.jpg", "a.cls", "b.jpg", "b.cls"},
         "3",
         "webdataset:a.tar,test=empty-?.tar",
         "empty-?.tar: no samples (.jpg or .png, with .cls)"},
        {{"a.jpg", "a.cls"},
         "3",
         "webdataset:a.tar,split=0.1,test=b.tar",
         "split= has no effect with test="},
        {{"a.jpg", "a.cls"},
         "3",
         "webdataset:a.tar,test=b.tar,seed=0",
         "seed= has no effect with test="},
    };
    static archive a;
    end(&a);
    put("empty-0.tar", &a);
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        a.length = 0;
        for (int k = 0; k < 4 && cases[i].names[k]; k++) {
            add_text(&a, cases[i].names[k], '0', cases[i].class);
        }
        end(&a);
        put("a.tar", &a);
        refuses(cases[i].spec, cases[i].error);
    }
}

static kolo_status collect(void *arg, const char *text) {
    kolo_text_add(arg, "%s ", text);
    return KOLO_OK;
}

static void braces_are_ranges(void **state) {
    static const struct {
        const char *text, *names;
    } cases[] = {
        {"a", "a "},
        {"", " "},
        {"a-{08..11}.tar", "a-08.tar a-09.tar a-10.tar a-11.tar "},
        {"{8..11}", "8 9 10 11 "},
        {"{0..1}", "0 1 "},
        {"{9..011}", "009 010 011 "},
        {"{00..9}{1..1}", "001 011 021 031 041 051 061 071 081 091 "},
        {"x{1..2}/{3..4}y", "x1/3y x1/4y x2/3y x2/4y "},
        {"{a..b}{1..}{..2}{1,2}{}{{1..2}}", "{a..b}{1..}{..2}{1,2}{}{1} "
                                            "{a..b}{1..}{..2}{1,2}{}{2} "},
        {"{1..2", "{1..2 "},
        {"{1234567890123456789..1234567890123456790}",
         "{1234567890123456789..1234567890123456790} "},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_text names = {0};
        ASSERT_OK(kolo_braces_each(cases[i].text, collect, &names));
        assert_string_equal(names.text, cases[i].names);
        kolo_text_fini(&names);
    }
    static const char *const bad[] = {
        "{2..1}", "{0..1048576}", "{0..2047}{0..1023}",
        "{1..1}{1..1}{1..1}{1..1}{1..1}{1..1}{1..1}{1..1}{1..1}{1..1}{1..1}{1..1}{1..1}{1..1}"
        "{1..1}{1..1}{1..1}"};
    for (size_t i = 0; i < KOLO_COUNT(bad); i++) {
        kolo_text names = {0};
        assert_int_equal(kolo_braces_each(bad[i], collect, &names), KOLO_ERR_ARG);
        assert_non_null(strstr(kolo_last_error(), "write {FIRST..LAST}"));
        kolo_text_fini(&names);
    }
}

static void put_sample(const char *path, const char *key, const char *class) {
    static archive a;
    char name[32];
    a.length = 0;
    snprintf(name, sizeof name, "%s.jpg", key);
    add_text(&a, name, '0', "no image");
    snprintf(name, sizeof name, "%s.json", key);
    add_text(&a, name, '0', class);
    snprintf(name, sizeof name, "%s.cls", key);
    add_text(&a, name, '0', "7");
    end(&a);
    put(path, &a);
}

/* Shards of ranges, in their order, with classes in .json; each named shard is there. */
static void classes_come_from_json(void **state) {
    static const struct {
        const char *json, *error;
    } bad[] = {
        {"{\"label\": -1}", "s-09.tar: offset 1536: b.json is no JSON object whose \"label\""},
        {"{\"label\": 1.5}", "is a class 0, 1"},
        {"{\"label\": 99999999}", "is a class 0, 1"},
        {"{\"label\": \"3\"}", "is a class 0, 1"},
        {"{\"label\": 1, \"label\": 2}", "is a class 0, 1"},
        {"{\"other\": 1}", "is a class 0, 1"},
        {"[1]", "is a class 0, 1"},
        {"{\"label\": 1", "is a class 0, 1"},
        {"", "is a class 0, 1"},
    };
    kolo_dataset *d;
    put_sample("s-08.tar", "a", "{\"id\": 5, \"label\": 2, \"label2\": 9}");
    put_sample("s-09.tar", "b", "{\"label\": 0}");
    put_sample("s-10.tar", "c", "{\"label\": 3}");
    ASSERT_OK(kolo_dataset_open("webdataset:s-{08..09}.tar,size=2,label=label,test=s-{10..10}.tar",
                                KOLO_SPLIT_TRAIN, &d));
    assert_int_equal(kolo_dataset_describe(d)->count, 2);
    assert_int_equal(kolo_dataset_describe(d)->classes, 4);
    kolo_dataset_close(d);
    ASSERT_OK(
        kolo_dataset_open("webdataset:s-{08..10}.tar,size=2,split=0.3", KOLO_SPLIT_TRAIN, &d));
    assert_int_equal(kolo_dataset_describe(d)->classes, 8);
    kolo_dataset_close(d);
    refuses("webdataset:s-{07..09}.tar", "s-07.tar: no such shards");
    refuses("webdataset:s-{09..08}.tar", "write {FIRST..LAST}");
    refuses("webdataset:s-{08..09}.tar,label=class", "whose \"class\" is a class");
    refuses("webdataset:s-0[89].tar,test=s-{09..10}.tar", "s-09.tar: the patterns of both");
    put_sample("s111.tar", "e", "{}");
    refuses("webdataset:s{1..1}{1..1}*.tar", "too few");
    refuses("webdataset:s{11..11}{1..1}*.tar,test=s{1..1}11.tar", "the patterns of both");
    refuses("webdataset:s11?{0..0}*.tar", "no such shards");
    refuses("webdataset:s-{08..09}*{0..0}*.tar", "no such shards");
    refuses("webdataset:*{0..1}*.tar,split=0.5", "s-10.tar: the pattern names this shard twice");
    for (size_t i = 0; i < KOLO_COUNT(bad); i++) {
        put_sample("s-09.tar", "b", bad[i].json);
        refuses("webdataset:s-{08..09}.tar,label=label", bad[i].error);
    }
}

/* Damaged images name shard and offset. */
static void images_lie_in_their_shards(void **state) {
    static archive a;
    add_text(&a, "a.jpg", '0', "no image");
    add_text(&a, "a.cls", '0', "1\n");
    end(&a);
    put("t-0.tar", &a);
    put("t-1.tar", &a);
    kolo_dataset *d;
    ASSERT_OK(kolo_dataset_open("webdataset:t-0.tar,size=2,test=t-1.tar", KOLO_SPLIT_TEST, &d));
    assert_int_equal(kolo_dataset_describe(d)->count, 1);
    assert_int_equal(kolo_dataset_describe(d)->classes, 2);
    uint8_t x[3 * 2 * 2];
    int32_t y;
    assert_int_equal(kolo_dataset_gather(d, &(int64_t){0}, 1, (void *[]){x, &y}), KOLO_ERR_FORMAT);
    assert_non_null(strstr(kolo_last_error(), "t-1.tar: offset 512: neither a JPEG nor a PNG"));
    kolo_dataset_close(d);
}

/* ---- indexes on disk ---- */

#define INDEXED "webdataset:i-{0..1}.tar,size=2,split=0.4,index=cache/indexes"

static void put_two(const char *path, const char *class) {
    static archive a;
    a.length = 0;
    add_text(&a, "a.jpg", '0', "no image");
    add_text(&a, "a.cls", '0', class);
    add_text(&a, "b.jpg", '0', "another");
    add_text(&a, "b.cls", '0', class);
    end(&a);
    put(path, &a);
}

static int lines;
static void count_lines(void *arg, const char *line) {
    lines++;
    if (!strstr(line, "no index of shards is kept: cannot ")) fail_msg("%s", line);
}

static void has_classes(int classes) {
    const kolo_dataset_opts opts = {.warn = count_lines};
    for (int split = 0; split < 2; split++) {
        kolo_dataset *d;
        ASSERT_OK(
            kolo_dataset_open_for(INDEXED, split ? KOLO_SPLIT_TEST : KOLO_SPLIT_TRAIN, &opts, &d));
        assert_int_equal(kolo_dataset_describe(d)->count, 2);
        assert_int_equal(kolo_dataset_describe(d)->classes, classes);
        kolo_dataset_close(d);
    }
}

/* The index of i-1.tar, whose samples have a class that the shard does not have. */
static void put_index(int32_t class) {
    kolo_shard_key key = {0};
    const kolo_shard_sample samples[] = {{512, 8, class, 0}, {2560, 7, class, 0}};
    ASSERT_OK(kolo_shard_key_init(&key, "cache/indexes", "i-1.tar", "cls", ""));
    ASSERT_OK(kolo_file_remove(key.path));
    ASSERT_OK(kolo_shard_index_write("cache/indexes", &key, samples, KOLO_COUNT(samples)));
    kolo_shard_key_fini(&key);
}

static char *index_path(void) {
    kolo_shard_key key = {0};
    ASSERT_OK(kolo_shard_key_init(&key, "cache/indexes", "i-1.tar", "cls", ""));
    char *path = kolo_strdup(key.path);
    kolo_shard_key_fini(&key);
    return path;
}

static void indexes_are_kept_while_they_fit(void **state) {
    struct stat info;
    lines = 0;
    put_two("i-0.tar", "1");
    put_two("i-1.tar", "3");
    has_classes(4);
    put_index(6);
    has_classes(7); /* the index is what is read */
    assert_int_equal(stat("i-1.tar", &info), 0);
    put_two("i-1.tar", "4"); /* of the same size; then of the same time, too, as tar restores it */
    has_classes(5);
    put_index(6);
    assert_int_equal(stat("i-1.tar", &info), 0);
    put_two("i-1.tar", "5");
    assert_int_equal(
        utimensat(AT_FDCWD, "i-1.tar", (struct timespec[]){info.st_atim, info.st_mtim}, 0), 0);
    has_classes(6);
    has_classes(6);
    assert_int_equal(system("cp i-1.tar i-2.tar && mv i-2.tar i-1.tar"), 0);
    has_classes(6);
    assert_int_equal(lines, 0);
}

/* Each byte of an index is checked, and its length. */
static void damaged_indexes_are_built_anew(void **state) {
    char *path = index_path(), *bytes;
    size_t n;
    put_two("i-0.tar", "1");
    put_two("i-1.tar", "3");
    put_index(6);
    ASSERT_OK(kolo_file_read(path, 1 << 20, &bytes, &n));
    kolo_shard_key key = {0};
    const kolo_shard_sample *samples;
    size_t count;
    ASSERT_OK(kolo_shard_key_init(&key, "cache/indexes", "i-1.tar", "cls", ""));
    assert_true(kolo_shard_index_parse(bytes, n, &key, &samples, &count) && count == 2);
    for (size_t i = 0; i < n; i++) {
        char *copy = malloc(i ? i : 1);
        memcpy(copy, bytes, i);
        assert_false(kolo_shard_index_parse(copy, i, &key, &samples, &count));
        free(copy);
        bytes[i] = (char)(bytes[i] ^ 1);
        assert_false(kolo_shard_index_parse(bytes, n, &key, &samples, &count));
        bytes[i] = (char)(bytes[i] ^ 1);
    }
    const size_t cases[] = {0, 5, 16, n / 2, n - 1};
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        ASSERT_OK(kolo_file_write(path, bytes, cases[i]));
        has_classes(4);
        put_index(6); /* which was written again */
    }
    bytes[n - 20] = (char)(bytes[n - 20] ^ 1);
    ASSERT_OK(kolo_file_write(path, bytes, n));
    has_classes(4);
    char *again = test_contents(path);
    assert_int_equal(memcmp(again, KOLO_SHARD_INDEX_MAGIC, 16), 0);
    kolo_free(again);
    kolo_shard_key_fini(&key);
    kolo_free(bytes);
    kolo_free(path);
}

static void files_of_others_stay(void **state) {
    char *path = index_path();
    put_two("i-0.tar", "1");
    put_two("i-1.tar", "3");
    ASSERT_OK(kolo_file_write(path, "my notes, which have a name", 27));
    refuses(INDEXED, "is no index of a shard: move it");
    char *kept = test_contents(path);
    assert_string_equal(kept, "my notes, which have a name");
    kolo_free(kept);
    ASSERT_OK(kolo_file_remove(path));
    has_classes(4);
    kolo_free(path);
}

/* A folder that cannot be written, here as its lock is a folder; another process has the lock; a
 * folder that cannot be made. */
static void runs_go_on_without_an_index(void **state) {
    char *path = index_path();
    put_two("i-0.tar", "1");
    put_two("i-1.tar", "3");
    assert_int_equal(system("rm -r cache && mkdir -p cache/indexes/.kolo-index.lock"), 0);
    lines = 0;
    has_classes(4);
    assert_int_equal(lines, 2); /* one for each split */
    assert_false(kolo_file_exists(path));
    assert_int_equal(system("rm -r cache && mkdir -p cache/indexes"), 0);
    FILE *lock;
    ASSERT_OK(kolo_file_open_locked("cache/indexes/.kolo-index.lock", &lock));
    has_classes(4);
    assert_false(kolo_file_exists(path));
    fclose(lock);
    has_classes(4);
    assert_true(kolo_file_exists(path));
    assert_int_equal(lines, 2);
    assert_int_equal(system("rm -r cache && echo > cache"), 0);
    has_classes(4);
    assert_int_equal(lines, 4);
    assert_int_equal(system("rm cache"), 0);
    kolo_free(path);
}

static kolo_status open_indexed(kolo_comm *comm, const void *arg, void *result) {
    kolo_dataset *d;
    KOLO_TRY(kolo_barrier(comm));
    KOLO_TRY(kolo_dataset_open(INDEXED, KOLO_SPLIT_TRAIN, &d));
    const int classes = kolo_dataset_describe(d)->classes;
    kolo_dataset_close(d);
    return classes == 4 ? KOLO_OK : KOLO_ERR_FORMAT;
}

static void ranks_index_at_once(void **state) {
    static const rank_transport transports[] = {RANKS_THREAD, RANKS_SHM};
    put_two("i-0.tar", "1");
    put_two("i-1.tar", "3");
    for (size_t t = 0; t < KOLO_COUNT(transports); t++) {
        char *path = index_path();
        ASSERT_OK(run_ranks(4, transports[t], open_indexed, NULL, 0));
        has_classes(4); /* one of both may have missed the lock for this shard */
        assert_true(kolo_file_exists(path));
        kolo_free(path);
        assert_int_equal(system("rm -r cache"), 0);
    }
}

TEST_MAIN(test_webdataset) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_sizes_come_from_all_headers),
        cmocka_unit_test(damaged_archives_are_refused),
        cmocka_unit_test(incomplete_samples_are_refused),
        cmocka_unit_test(braces_are_ranges),
        cmocka_unit_test(classes_come_from_json),
        cmocka_unit_test(images_lie_in_their_shards),
        cmocka_unit_test(indexes_are_kept_while_they_fit),
        cmocka_unit_test(damaged_indexes_are_built_anew),
        cmocka_unit_test(files_of_others_stay),
        cmocka_unit_test(runs_go_on_without_an_index),
        cmocka_unit_test(ranks_index_at_once),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}

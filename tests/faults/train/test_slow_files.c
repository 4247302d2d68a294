/* Training on folders and shards that take long to open, as those of remote storage do: a preloaded
 * library makes them slow, and counts how many are opened at once. */
#include "base/compiler.h"
#include "base/file.h"
#include "base/process.h"
#include "support/command.h"
#include "support/folder.h"
#include "support/support.h"

#include <png.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void put_image(const char *path, int seed) {
    uint8_t pixels[64];
    for (int i = 0; i < 64; i++) pixels[i] = (uint8_t)(seed * 3 + i);
    png_image png = {
        .version = PNG_IMAGE_VERSION, .width = 8, .height = 8, .format = PNG_FORMAT_GRAY};
    assert_true(png_image_write_to_file(&png, path, 0, pixels, 0, NULL));
}

static void make_images(void) {
    char path[64];
    assert_int_equal(mkdir("set", 0700) | mkdir("set/a", 0700) | mkdir("set/b", 0700), 0);
    for (int i = 0; i < 120; i++) {
        snprintf(path, sizeof path, "set/%s/%03d.png", i % 2 ? "a" : "b", i);
        put_image(path, i);
        snprintf(path, sizeof path, "set/%s/%03d.cls", i % 2 ? "a" : "b", i);
        assert_int_equal(kolo_file_write(path, i % 2 ? "0" : "1", 1), KOLO_OK);
    }
    assert_int_equal(system("tar --format=ustar --sort=name -cf set/0.tar set/a && "
                            "tar --format=ustar --sort=name -cf set/1.tar set/b"),
                     0);
}

/* Trains with files that take 20 ms to open. */
static int train_slowly(const char *train) {
    char sanitizer[512];
    const char *options = getenv("ASAN_OPTIONS");
    if (options && !strstr(options, "link_order")) {
        snprintf(sanitizer, sizeof sanitizer, "%s:verify_asan_link_order=0", options);
        setenv("ASAN_OPTIONS", sanitizer, 1);
    }
    setenv("LD_PRELOAD", KOLO_FAIL_WRITES, 1);
    setenv("KOLO_FAIL", "slow-open set/ 1 20", 1);
    const int code = test_run(train);
    unsetenv("LD_PRELOAD");
    unsetenv("KOLO_FAIL");
    return code;
}

static void a_loader_opens_slow_files_ahead(void **state) {
    static const char *const sets[] = {"folder:set,size=8,split=0.1",
                                       "'webdataset:set/*.tar,size=8,split=0.1'"};
    make_images();
    for (size_t i = 0; i < KOLO_COUNT(sets); i++) {
        char train[256];
        struct stat opens;
        snprintf(train, sizeof train,
                 "train --model mlp:hidden=4 --data %s --batch 16 --steps 6 --no-eval --no-recipe "
                 "--lr 0.01 --json out.json",
                 sets[i]);
        assert_int_equal(test_run(train), 0);
        json_t *fast = test_json("out.json");
        (void)unlink("opens");
        assert_int_equal(train_slowly(train), 0);
        json_t *slow = test_json("out.json");
        assert_string_equal(json_string_value(json_object_get(fast, "parameter_hash")),
                            json_string_value(json_object_get(slow, "parameter_hash")));
        assert_int_equal(stat("opens", &opens), 0);
        assert_true(opens.st_size >= 4); /* so many at once, by one loader thread */
        json_decref(fast);
        json_decref(slow);
    }
}

TEST_MAIN(test_slow_files) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_loader_opens_slow_files_ahead)};
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}

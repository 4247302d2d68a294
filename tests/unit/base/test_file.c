/* base/file: reading, mapping, atomic writing, folders, error messages. */
#include "base/compiler.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/task.h"
#include "base/text.h"
#include "support/folder.h"
#include "support/support.h"

#include <dirent.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int entries_of(const char *path) {
    int n = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));)
        n += entry->d_name[0] != '.' || entry->d_name[1] > '.';
    closedir(dir);
    return n;
}

static void assert_holds(const char *path, const char *text) {
    char *data;
    size_t bytes;
    ASSERT_OK(kolo_file_read(path, 1000, &data, &bytes));
    assert_int_equal(bytes, strlen(text));
    assert_string_equal(data, text);
    kolo_free(data);
}

static void reads_back_what_was_written(void **state) {
    ASSERT_OK(kolo_file_write("plain", "hello", 5));
    assert_holds("plain", "hello");
    ASSERT_OK(kolo_file_write("plain", "", 0));
    assert_holds("plain", "");
    kolo_file_view view;
    ASSERT_OK(kolo_file_map("plain", &view));
    assert_int_equal(view.bytes, 0);
    assert_non_null(view.data);
    kolo_file_unmap(&view);
    ASSERT_OK(kolo_file_write("plain", "world!", 6));
    ASSERT_OK(kolo_file_map("plain", &view));
    assert_int_equal(view.bytes, 6);
    assert_memory_equal(view.data, "world!", 6);
    kolo_file_unmap(&view);
    kolo_file_unmap(&view);
    struct stat info;
    assert_int_equal(stat("plain", &info), 0);
    mode_t mask = umask(0);
    umask(mask);
    assert_int_equal(info.st_mode & 0777, 0666 & ~mask);
    unlink("plain");
}

/* With a descriptor and without. */
static void a_file_in_use_names_what_it_lost(void **state) {
    for (int released = 0; released < 2; released++) {
        char part[8] = "";
        kolo_file *file;
        ASSERT_OK(kolo_file_write("used", "0123456789", 10));
        ASSERT_OK(kolo_file_open("used", &file));
        if (released) kolo_file_release(file);
        assert_int_equal(kolo_file_bytes(file), 10);
        ASSERT_OK(kolo_file_read_at(file, 4, part, 3));
        assert_string_equal(part, "456");
        assert_int_equal(truncate("used", 6), 0);
        ASSERT_OK(kolo_file_read_at(file, 4, part, 2));
        assert_int_equal(kolo_file_read_at(file, 4, part, 3), KOLO_ERR_FORMAT);
        assert_string_equal(kolo_last_error(),
                            "used: offset 4: truncated while it was in use: it had 10 bytes when "
                            "it was opened");
        ASSERT_OK(kolo_file_write("used", "ABCDEFGHIJ", 10)); /* another file of that name */
        assert_int_equal(kolo_file_read_at(file, 6, part, 1), KOLO_ERR_FORMAT);
        const char *why = released ? "replaced by another file" : "truncated";
        if (!strstr(kolo_last_error(), why)) fail_msg("%s", kolo_last_error());
        unlink("used");
        if (released) assert_int_equal(kolo_file_read_at(file, 4, part, 1), KOLO_ERR_IO);
        kolo_file_close(file);
    }
    kolo_file *file = NULL;
    assert_int_equal(kolo_file_open("missing", &file), KOLO_ERR_IO);
    assert_int_equal(kolo_file_open(".", &file), KOLO_ERR_IO);
    assert_null(file);
    kolo_file_close(NULL);
}

static void size_limit_is_exact(void **state) {
    ASSERT_OK(kolo_file_write("ten", "0123456789", 10));
    char *data;
    size_t bytes;
    ASSERT_OK(kolo_file_read("ten", 10, &data, &bytes));
    kolo_free(data);
    assert_int_equal(kolo_file_read("ten", 9, &data, &bytes), KOLO_ERR_FORMAT);
    assert_string_equal(kolo_last_error(), "ten exceeds 9 bytes: is it the right file?");
    unlink("ten");
}

static void files_without_a_size_are_read_to_their_end(void **state) {
    char *data;
    size_t bytes;
    ASSERT_OK(kolo_file_read("/proc/self/maps", 1 << 20, &data, &bytes));
    assert_true(bytes > 1000);
    assert_int_equal(strlen(data), bytes);
    kolo_free(data);
}

static void errors_name_path_and_reason(void **state) {
    char *data;
    size_t bytes;
    kolo_file_view view;
    assert_int_equal(kolo_file_read("absent", 9, &data, &bytes), KOLO_ERR_IO);
    assert_string_equal(kolo_last_error(),
                        "cannot open absent: No such file or directory: check the path");
    assert_int_equal(kolo_file_map("absent", &view), KOLO_ERR_IO);
    assert_int_equal(kolo_file_read("/tmp", 9, &data, &bytes), KOLO_ERR_IO);
    assert_string_equal(kolo_last_error(), "cannot read /tmp: Is a directory: check the path");
    assert_int_equal(kolo_file_write("no/such/folder", "x", 1), KOLO_ERR_IO);
    assert_string_equal(kolo_last_error(),
                        "cannot write no/such/folder: No such file or directory: check the path");
    assert_int_equal(kolo_file_write("/tmp", "x", 1), KOLO_ERR_IO);
    assert_int_equal(kolo_file_write("/dev/full", "x", 1), KOLO_ERR_IO);
    assert_non_null(strstr(kolo_last_error(), "cannot write /dev/full: No space left on device"));
}

/* The old contents stay until commit; commit and abandon leave no temporary file. */
static void writing_is_atomic(void **state) {
    ASSERT_OK(kolo_file_write("old", "old", 3));
    assert_int_equal(chmod("old", 0640), 0);
    kolo_file_writer *w;
    ASSERT_OK(kolo_file_create("old", &w));
    ASSERT_OK(kolo_file_append(w, "ne", 2));
    assert_holds("old", "old");
    kolo_file_abandon(w);
    kolo_file_abandon(NULL);
    assert_holds("old", "old");
    assert_int_equal(entries_of("."), 1);
    ASSERT_OK(kolo_file_create("old", &w));
    ASSERT_OK(kolo_file_append(w, "ne", 2));
    ASSERT_OK(kolo_file_append(w, "w", 1));
    ASSERT_OK(kolo_file_commit(w));
    assert_holds("old", "new");
    assert_int_equal(entries_of("."), 1);
    struct stat info;
    assert_int_equal(stat("old", &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
    unlink("old");
}

/* What exists at the end stays, and so does a link to nothing. */
static void a_new_file_replaces_none(void **state) {
    kolo_file_writer *w;
    for (int kind = 0; kind < 3; kind++) {
        ASSERT_OK(kolo_file_create("new", &w));
        ASSERT_OK(kolo_file_append(w, "new", 3));
        assert_false(kolo_name_exists("new"));
        if (kind == 1) ASSERT_OK(kolo_file_write("new", "old", 3));
        if (kind == 2) assert_int_equal(symlink("nothing", "new"), 0);
        assert_int_equal(kolo_file_commit_new(w), kind == 0 ? KOLO_OK : KOLO_ERR_IO);
        assert_true(kolo_name_exists("new"));
        assert_int_equal(entries_of("."), 1);
        if (kind < 2) assert_holds("new", kind == 0 ? "new" : "old");
        unlink("new");
    }
}

static void links_are_followed_and_devices_written_directly(void **state) {
    ASSERT_OK(kolo_file_write("real", "1", 1));
    assert_int_equal(symlink("real", "link"), 0);
    ASSERT_OK(kolo_file_write("link", "2", 1));
    assert_holds("real", "2");
    struct stat info;
    assert_int_equal(lstat("link", &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    ASSERT_OK(kolo_file_write("/dev/null", "x", 1));
    assert_int_equal(stat("/dev/null", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
    unlink("link");
    unlink("real");
}

/* Opening a named pipe could block forever; an open one has a reader. */
static void only_open_pipes_are_written(void **state) {
    int fds[2];
    char path[32], got[8] = "";
    assert_int_equal(mkfifo("fifo", 0600), 0);
    assert_int_equal(kolo_file_write("fifo", "x", 1), KOLO_ERR_IO);
    assert_non_null(strstr(kolo_last_error(), "cannot write fifo: it is a named pipe"));
    unlink("fifo");
    assert_int_equal(pipe(fds), 0);
    snprintf(path, sizeof path, "/dev/fd/%d", fds[1]);
    ASSERT_OK(kolo_file_write(path, "{}\n", 3));
    assert_int_equal(read(fds[0], got, sizeof got), 3);
    assert_string_equal(got, "{}\n");
    close(fds[0]);
    close(fds[1]);
}

/* Of a link the temporary file is where its target is. What is no file, or of another name, stays.
 */
static void files_of_killed_writers_are_swept(void **state) {
    static const char *const stay[] = {"f/.real.x.tmp", "f/.real.12.tmp.old", "f/.real.12",
                                       "f/real.12.tmp", "f/.other.12.tmp"};
    kolo_file_writer *w;
    ASSERT_OK(kolo_folder_make("f/.real.12.tmp"));
    assert_int_equal(mkfifo("f/.real.13.tmp", 0600), 0);
    assert_int_equal(symlink("real", "f/.real.14.tmp"), 0);
    for (size_t i = 0; i < KOLO_COUNT(stay); i++) ASSERT_OK(kolo_file_write(stay[i], "mine", 4));
    ASSERT_OK(kolo_file_write("f/real", "old", 3));
    assert_int_equal(symlink("f/real", "link"), 0);
    ASSERT_OK(kolo_file_create("f/real", &w)); /* it lives */
    for (int k = 0; k < 2; k++) {
        ASSERT_OK(kolo_file_write("f/.real.99999999.tmp", "left", 4));
        assert_int_equal(entries_of("f"), 3 + KOLO_COUNT(stay) + 3);
        ASSERT_OK(kolo_file_sweep(k == 0 ? "link" : "f/real"));
        assert_int_equal(entries_of("f"), 3 + KOLO_COUNT(stay) + 2);
    }
    ASSERT_OK(kolo_file_commit(w));
    ASSERT_OK(kolo_file_sweep("missing/real"));
    unlink("link");
    assert_int_equal(system("rm -r f"), 0);
}

static atomic_bool sweeps;

static kolo_status sweep(void *arg) {
    while (atomic_load(&sweeps)) KOLO_TRY(kolo_file_sweep(arg));
    return KOLO_OK;
}

/* Also one that has just been created. */
static void files_of_living_writers_are_not_swept(void **state) {
    static char name[] = "swept";
    kolo_task *task;
    atomic_store(&sweeps, true);
    ASSERT_OK(kolo_task_start(sweep, name, "sweeps", &task));
    for (int i = 0; i < 3000; i++) {
        kolo_file_writer *w;
        char *temporary;
        ASSERT_OK(kolo_file_create(name, &w));
        ASSERT_OK(kolo_file_temporary(w, &temporary));
        sched_yield();
        if (!kolo_file_exists(temporary)) fail_msg("file %d is gone", i);
        kolo_file_abandon(w);
        kolo_free(temporary);
    }
    atomic_store(&sweeps, false);
    ASSERT_OK(kolo_task_join(task));
}

static void folders_are_created_with_their_parents(void **state) {
    ASSERT_OK(kolo_folder_make("a/b//c/"));
    ASSERT_OK(kolo_folder_make("a/b/c"));
    char here[512];
    assert_non_null(getcwd(here, sizeof here));
    char *absolute = kolo_format("%s/a/d", here);
    ASSERT_OK(kolo_folder_make(absolute));
    kolo_free(absolute);
    assert_int_equal(entries_of("a"), 2);
    ASSERT_OK(kolo_file_write("a/file", "", 0));
    assert_int_equal(kolo_folder_make("a/file"), KOLO_ERR_IO);
    assert_int_equal(kolo_folder_make("a/file/x"), KOLO_ERR_IO);
    assert_int_equal(kolo_folder_make(""), KOLO_ERR_IO);
    assert_int_equal(kolo_folder_make("/proc/nothing"), KOLO_ERR_IO);
    assert_non_null(strstr(kolo_last_error(), "cannot create the folder /proc/nothing"));
}

static void each_failed_allocation_is_reported(void **state) {
    for (int n = 1;; n++) {
        kolo_alloc_fail_nth(n);
        kolo_status status = kolo_file_write("memory", "x", 1);
        kolo_alloc_fail_nth(0);
        if (status == KOLO_OK) break;
        assert_true(n < 10);
        assert_true(status == KOLO_ERR_NOMEM || status == KOLO_ERR_IO);
    }
    unlink("memory");
    assert_int_equal(entries_of("."), 1); /* "a", of the previous test */
}

TEST_MAIN(test_file) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_back_what_was_written),
        cmocka_unit_test(a_file_in_use_names_what_it_lost),
        cmocka_unit_test(size_limit_is_exact),
        cmocka_unit_test(files_without_a_size_are_read_to_their_end),
        cmocka_unit_test(errors_name_path_and_reason),
        cmocka_unit_test(writing_is_atomic),
        cmocka_unit_test(a_new_file_replaces_none),
        cmocka_unit_test(links_are_followed_and_devices_written_directly),
        cmocka_unit_test(only_open_pipes_are_written),
        cmocka_unit_test(files_of_killed_writers_are_swept),
        cmocka_unit_test(files_of_living_writers_are_not_swept),
        cmocka_unit_test(folders_are_created_with_their_parents),
        cmocka_unit_test(each_failed_allocation_is_reported),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}

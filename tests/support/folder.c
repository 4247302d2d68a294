/* A temporary working folder per test, and commands started from it. */
#define _GNU_SOURCE
#include "support/folder.h"

#include "base/clock.h"
#include "base/file.h"
#include "support/support.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { HANGS_MS = 100000 };

static char folder[64];

int test_folder_enter(void **state) {
    snprintf(folder, sizeof folder, "/tmp/kolo-test-XXXXXX");
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

int test_folder_leave(void **state) {
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return chdir("/") == 0 && system(command) == 0 ? 0 : -1;
}

char *test_contents(const char *path) {
    char *text;
    size_t bytes;
    ASSERT_OK(kolo_file_read(path, 1 << 20, &text, &bytes));
    return text;
}

int test_count_descriptors(void) {
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir)) n++;
    closedir(dir);
    return n;
}

kolo_process test_job_start(char *const *argv) {
    enum { MOST = 16 };
    char *all[MOST] = {"setpriv", "--pdeathsig", "KILL"};
    for (int i = 0; argv[i]; i++) {
        assert_true(i + 4 < MOST);
        all[i + 3] = argv[i];
    }
    kolo_process job;
    ASSERT_OK(kolo_process_start(
        &(kolo_process_opts){.argv = all, .in = KOLO_FD_NULL, .own_group = true}, &job));
    return job;
}

int64_t test_hangs_ns(void) { return kolo_now_ns() + HANGS_MS * INT64_C(1000000); }

kolo_exit test_job_end(kolo_process *job) {
    kolo_exit how = {0};
    kolo_status status = kolo_process_wait(job, HANGS_MS, &how);
    if (status != KOLO_OK) kolo_process_signal(job, SIGKILL, false);
    assert_int_equal(status, KOLO_OK);
    kolo_process_fini(job);
    return how;
}

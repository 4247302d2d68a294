/* Files that all ranks write: one file whatever the number of ranks and what is sharded; a rank
 * that cannot write, or that sees another folder. */
#define _GNU_SOURCE
#include "base/file.h"
#include "base/memory.h"
#include "base/rng.h"
#include "kolo/checkpoint.h"
#include "kolo/session.h"
#include "support/folder.h"
#include "support/ranks.h"
#include "support/support.h"
#include "train/checkpoint/checkpoint.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

static const char file[] = "net.safetensors";

/* Convolutions, whose layouts are blocked, and a matrix that several ranks share. */
static kolo_status build(kolo_graph *g, int64_t n, void *arg) {
    const kolo_conv2d_opts same = {.pad_h = 1, .pad_w = 1};
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_4(n, 8, 8, 8));
    kolo_value a = kolo_param(g, "a", kolo_shape_4(48, 8, 3, 3), kolo_init_fan_in(72));
    kolo_value b = kolo_param(g, "b", kolo_shape_4(48, 48, 3, 3), kolo_init_fan_in(432));
    kolo_value w = kolo_param(g, "w", kolo_shape_2(16, 48 * 64), kolo_init_fan_in(3072));
    kolo_value c = kolo_param(g, "c", kolo_shape_1(16), kolo_init_fan_in(16));
    kolo_value y = kolo_conv2d(g, kolo_relu(g, kolo_conv2d(g, x, a, &same)), b, &same);
    y = kolo_bias(g, kolo_linear(g, kolo_reshape(g, y, kolo_shape_2(n, 48 * 64)), w), c);
    kolo_output(g, "loss", kolo_sum(g, kolo_mul(g, y, y)));
    return KOLO_OK;
}

static kolo_status open_session(kolo_comm *comm, int zero, kolo_session **s) {
    const kolo_session_opts opts = {
        .batch = 2, .lr = 0.01, .zero = zero, .optimizer = {.kind = KOLO_OPTIMIZER_ADAM}};
    return kolo_session_create(comm, &opts, build, NULL, s);
}

/* ---- one file ---- */

static kolo_status save_body(kolo_comm *comm, const void *arg, void *result) {
    kolo_session *s = NULL;
    KOLO_TRY(open_session(comm, *(const int *)arg, &s));
    kolo_status status = kolo_session_save(s, file);
    kolo_session_destroy(s);
    return status;
}

static void the_file_does_not_depend_on_ranks_and_shards(void **state) {
    char *first = NULL;
    size_t size = 0;
    for (int ranks = 1; ranks <= 4; ranks++) {
        for (int zero = 0; zero <= 3; zero++) {
            char *text, *data;
            size_t bytes;
            ASSERT_OK(run_ranks(ranks, RANKS_THREAD, save_body, &zero, sizeof zero));
            ASSERT_OK(kolo_checkpoint_verify(file, &text));
            kolo_checkpoint_text_free(text);
            ASSERT_OK(kolo_file_read(file, 1 << 24, &data, &bytes));
            if (!first) {
                first = data;
                size = bytes;
                continue;
            }
            if (bytes != size || memcmp(first, data, size) != 0) {
                fail_msg("%d ranks, level %d: another file", ranks, zero);
            }
            kolo_free(data);
        }
    }
    kolo_free(first);
}

/* ---- a rank that cannot write ---- */

static kolo_status limit_files(rlim_t bytes) {
    const struct rlimit limit = {bytes, RLIM_INFINITY};
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) == 0) return KOLO_OK;
    return kolo_error_set(KOLO_ERR_IO, "setrlimit: %s", kolo_errno_text(errno));
}

/* Saves; again, where files of the last rank are limited; again. */
static kolo_status limited_body(kolo_comm *comm, const void *arg, void *result) {
    const bool last = kolo_comm_rank(comm) == kolo_comm_size(comm) - 1;
    kolo_session *s = NULL;
    char *error = result;
    kolo_status status;
    KOLO_TRY(open_session(comm, *(const int *)arg, &s));
    KOLO_TRY_GOTO(kolo_session_save(s, file), done);
    if (last) KOLO_TRY_GOTO(limit_files(4096), done);
    status = kolo_session_save(s, file);
    snprintf(error, 256, "%d %s", (int)status, kolo_last_error());
    if (last) KOLO_TRY_GOTO(limit_files(RLIM_INFINITY), done);
    status = kolo_session_save(s, "again.safetensors");
done:
    kolo_session_destroy(s);
    return status;
}

static kolo_status count_file(void *arg, const char *name) {
    ++*(int *)arg;
    return KOLO_OK;
}

static void a_rank_that_cannot_write_ends_the_save(void **state) {
    for (int zero = 1; zero <= 3; zero += 2) {
        char errors[3][256], *before, *after;
        size_t bytes[2];
        int files = 0;
        rank_job run = {.n = 3,
                        .transport = RANKS_SHM,
                        .body = limited_body,
                        .arg = &zero,
                        .arg_bytes = sizeof zero,
                        .results = errors,
                        .result_bytes = sizeof *errors};
        ASSERT_OK(run_rank_job(&run));
        for (int r = 0; r < 3; r++) {
            bool named = strstr(errors[r], "net.safetensors") &&
                         strstr(errors[r], "File too large") &&
                         (r == 2 || strstr(errors[r], "rank 2"));
            if (!named) fail_msg("rank %d: %s", r, errors[r]);
        }
        ASSERT_OK(kolo_checkpoint_check(file));
        ASSERT_OK(kolo_file_read(file, 1 << 24, &before, &bytes[0]));
        ASSERT_OK(kolo_file_read("again.safetensors", 1 << 24, &after, &bytes[1]));
        assert_int_equal(bytes[0], bytes[1]);
        assert_memory_equal(before, after, bytes[0]);
        kolo_free(before);
        kolo_free(after);
        ASSERT_OK(kolo_folder_each(".", count_file, &files));
        assert_int_equal(files, 2); /* no temporary file */
        unlink(file);
        unlink("again.safetensors");
    }
}

/* ---- a folder that is not shared ---- */

enum { UNABLE = 2 };

/* The last rank has another folder in place of this one. */
static kolo_status apart_body(kolo_comm *comm, const void *arg, void *result) {
    const bool last = kolo_comm_rank(comm) == kolo_comm_size(comm) - 1;
    uint8_t unable = 0;
    char *error = result, here[256];
    if (!getcwd(here, sizeof here)) return kolo_error_set(KOLO_ERR_IO, "getcwd");
    if (last) {
        unable = unshare(CLONE_NEWNS) != 0 ||
                 mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
                 mount("none", here, "tmpfs", 0, NULL) != 0;
    }
    KOLO_TRY(kolo_allreduce(comm, &unable, 1, KOLO_DTYPE_U8, KOLO_MAX));
    if (unable) {
        error[0] = UNABLE;
        return KOLO_OK;
    }
    const bool first = kolo_comm_rank(comm) == 0;
    kolo_status status = kolo_checkpoint_try_folder(first ? file : NULL, comm);
    snprintf(error, 512, "%d %s", (int)status, kolo_last_error());
    return KOLO_OK;
}

static void a_folder_that_is_not_shared_is_named(void **state) {
    char errors[2][512];
    int files = 0;
    rank_job run = {.n = 2,
                    .transport = RANKS_TCP,
                    .body = apart_body,
                    .results = errors,
                    .result_bytes = sizeof *errors};
    ASSERT_OK(run_rank_job(&run));
    if (errors[0][0] == UNABLE) {
        print_message("skip: mounting needs privileges\n");
        skip();
    }
    for (int r = 0; r < 2; r++) {
        if (!strstr(errors[r], "choose a folder that they share")) {
            fail_msg("rank %d: %s", r, errors[r]);
        }
    }
    ASSERT_OK(kolo_folder_each(".", count_file, &files));
    assert_int_equal(files, 0);
}

TEST_MAIN(test_save) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_file_does_not_depend_on_ranks_and_shards),
        cmocka_unit_test(a_rank_that_cannot_write_ends_the_save),
        cmocka_unit_test(a_folder_that_is_not_shared_is_named),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}

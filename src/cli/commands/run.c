/* kolo run: runs any program as local ranks. */
#define _GNU_SOURCE
#include "base/file.h"
#include "base/process.h"
#include "cli/commands/commands.h"
#include "cli/launcher/error_report.h"
#include "cli/launcher/launch.h"
#include "cli/output/exit_status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* 0, or the errno value that describes why a file cannot be executed. */
static int try_program(const char *path) {
    if (access(path, X_OK) != 0) return errno;
    return kolo_folder_exists(path) ? EISDIR : 0;
}

/* Searches for the program like execvp, so that a missing program is one error and not one per
 * rank.
 */
static kolo_status find_program(const char *program, int *exit_status) {
    *exit_status = EXIT_STATUS_NOT_FOUND;
    if (strchr(program, '/')) {
        int error = try_program(program);
        if (error == 0) return KOLO_OK;
        if (error != ENOENT && error != ENOTDIR) *exit_status = EXIT_STATUS_NOT_EXECUTABLE;
        return kolo_file_fail("start", program, error);
    }
    const char *path = getenv("PATH");
    for (const char *folder = path; folder && *folder;) {
        size_t n = strcspn(folder, ":");
        char *file = kolo_format("%.*s/%s", (int)n, n ? folder : ".", program);
        if (!file) return KOLO_NOMEM(n);
        bool found = try_program(file) == 0;
        kolo_free(file);
        if (found) return KOLO_OK;
        folder += n + (folder[n] == ':');
    }
    return KOLO_FAIL(KOLO_ERR_IO, "cannot start %s: not found in PATH", program);
}

int cmd_run(kolo_options *o) {
    if (o->n_rest == 0) {
        fprintf(stderr, "kolo: 'kolo run' needs a program: kolo run -n %d -- program args\n",
                (int)kolo_options_int(o, "ranks"));
        return EXIT_STATUS_USAGE;
    }
    launch_opts opts = {.n_ranks = (int)kolo_options_int(o, "ranks"),
                        .threads = (int)kolo_options_int(o, "threads"),
                        .argv = o->rest,
                        .survive = kolo_options_flag(o, "survive")};
    int exit_status;
    kolo_status status = find_program(o->rest[0], &exit_status);
    if (status != KOLO_OK) {
        report_failure(status);
        return exit_status;
    }
    if ((int64_t)opts.threads * opts.n_ranks > kolo_processors()) {
        fprintf(stderr,
                "kolo: warning: %d ranks of %d threads share %d processors: use fewer ranks or "
                "threads\n",
                opts.n_ranks, opts.threads, kolo_processors());
    }
    status = launch_job(&opts, &exit_status);
    return status == KOLO_OK ? exit_status : report_failure(status);
}

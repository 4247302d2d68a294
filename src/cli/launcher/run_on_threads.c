#include "cli/launcher/run_on_threads.h"

#include "base/memory.h"
#include "base/process.h"
#include "base/status.h"
#include "cli/launcher/launch.h"
#include "cli/launcher/topology.h"
#include "cli/options/costs_file.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

typedef struct worker {
    pthread_t thread;
    const ranks_opts *opts;
    rank_body body;
    kolo_comm *comm;
    kolo_options options; /* a copy: commands set values */
    bool binds;
    kolo_status status;
    char *error;
} worker;

static kolo_status copy_options(const kolo_options *from, kolo_options *to) {
    const size_t bytes = from->table->n_rows * sizeof *from->values;
    *to = *from;
    to->arena = (kolo_arena){0};
    to->values = kolo_arena_alloc(&to->arena, bytes);
    if (!to->values) return KOLO_NOMEM(bytes);
    memcpy(to->values, from->values, bytes);
    return KOLO_OK;
}

static kolo_status work(worker *w) {
    KOLO_TRY(costs_file_load(w->comm));
    if (w->binds) topology_bind_thread(kolo_comm_rank(w->comm), w->opts->workers);
    return w->body(w->comm, w->opts->threads, &w->options);
}

/* A worker that leaves is lost to the others: they do not wait for it until the timeout. */
static void leave(worker *w) {
    kolo_comm_destroy(w->comm);
    w->comm = NULL;
}

static void *run(void *arg) {
    worker *w = arg;
    w->status = work(w);
    if (w->status != KOLO_OK) w->error = kolo_strdup(kolo_last_error());
    leave(w);
    return NULL;
}

static void have_no_report(int signal) {
    static const char line[] = "kolo: no report: the workers are threads (--workers-as threads)\n";
    (void)signal;
    (void)!write(STDERR_FILENO, line, sizeof line - 1);
}

/* The calling thread alone handles these signals, on its own stack: see stop_signals.c. Returns the
 * mask before. */
static sigset_t block_signals(void) {
    sigset_t handled, before;
    sigemptyset(&handled);
    sigaddset(&handled, SIGHUP);
    sigaddset(&handled, SIGINT);
    sigaddset(&handled, SIGTERM);
    sigaddset(&handled, SIGUSR1);
    sigaddset(&handled, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &handled, &before);
    return before;
}

/* Others fail because one has. */
static kolo_status first_failure(const worker *workers, int n) {
    const worker *failed = NULL;
    for (int r = 0; r < n; r++) {
        const worker *w = &workers[r];
        const bool caused = w->status == KOLO_ERR_PEER || w->status == KOLO_ERR_TIMEOUT;
        if (w->status == KOLO_OK || (failed && caused)) continue;
        failed = w;
        if (!caused) break;
    }
    if (!failed) return KOLO_OK;
    return KOLO_FAIL(failed->status, "%s", failed->error ? failed->error : "out of memory");
}

static kolo_status run_all(worker *workers, int n) {
    int started = 0, error = 0;
    const sigset_t before = block_signals();
    for (; started < n && !error; started += !error) {
        error = pthread_create(&workers[started].thread, NULL, run, &workers[started]);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    for (int r = started; r < n; r++) leave(&workers[r]);
    for (int r = 0; r < started; r++) pthread_join(workers[r].thread, NULL);
    if (error)
        return KOLO_FAIL(KOLO_ERR_NOMEM, "cannot start thread %d: %s", started, strerror(error));
    return first_failure(workers, n);
}

/* Fills in the threads of each worker, and whether they fit on the processors. */
static ranks_opts resolve(const ranks_opts *opts, bool *fit) {
    ranks_opts own = *opts;
    const int processors = kolo_processors();
    if (own.threads == 0) own.threads = launch_thread_share(processors, own.workers);
    *fit = own.workers * own.threads <= processors;
    if (!*fit) launch_warn(own.workers, own.threads, processors);
    return own;
}

kolo_status run_on_threads(const kolo_options *o, const ranks_opts *opts, rank_body body) {
    bool fit;
    const ranks_opts own = resolve(opts, &fit);
    const int n = own.workers;
    kolo_status status = KOLO_OK;
    worker *workers = kolo_zalloc((size_t)n * sizeof *workers);
    kolo_comm **comms = kolo_zalloc((size_t)n * sizeof *comms);
    if (!workers || !comms) {
        status = KOLO_NOMEM((size_t)n * sizeof *workers);
        goto done;
    }
    const kolo_comm_opts comm_opts = {.timeout_ms = own.timeout_ms};
    KOLO_TRY_GOTO(kolo_comm_create_threads(n, &comm_opts, comms), done);
    for (int r = 0; r < n; r++) {
        workers[r] =
            (worker){.opts = &own, .body = body, .comm = comms[r], .binds = fit && !own.no_bind};
        KOLO_TRY_GOTO(copy_options(o, &workers[r].options), done);
    }
    for (int r = 0; r < n; r++) comms[r] = NULL; /* each worker destroys its own */
    signal(SIGUSR1, have_no_report);
    status = run_all(workers, n);
done:
    for (int r = 0; r < n && workers && comms; r++) {
        kolo_comm_destroy(comms[r]);
        kolo_arena_fini(&workers[r].options.arena);
        kolo_free(workers[r].error);
    }
    kolo_free(workers);
    kolo_free((void *)comms);
    return status;
}

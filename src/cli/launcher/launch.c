/* The local launcher: a job from start to end. */
#define _GNU_SOURCE
#include "cli/launcher/launch.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/integer.h"
#include "base/open_files.h"
#include "base/process.h"
#include "base/text.h"
#include "cli/launcher/guard.h"
#include "cli/launcher/launch_env.h"
#include "cli/launcher/rank_output.h"
#include "cli/output/exit_status.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
    GRACE_MS = 1000,     /* for the others to detect a lost peer */
    INTERRUPT_MS = 1500, /* for ranks to end after Ctrl-C, before SIGTERM */
    TERM_MS = 2000,      /* from SIGTERM to SIGKILL */
    FLUSH_MS = 1000,     /* for the output of a job that failed, once its ranks are gone */
};

typedef struct rank {
    kolo_process process;
    line_stream streams[2]; /* standard output and error; fd -1: the rank has the terminal */
    bool started, ended;
    bool spared; /* the job goes on without it */
    int order;   /* number of ranks that ended before */
    kolo_exit how;
    kolo_status reported; /* KOLO_OK: no report */
    char *report;
} rank;

typedef enum phase { RUNNING, SAVING, GRACE, TERMINATING, KILLING } phase;

typedef struct job {
    const launch_opts *opts;
    rank *ranks;
    int n_ended;
    kolo_signals signals;
    rank_env env;
    guard guard;
    line_queue output;
    phase phase;
    int64_t deadline_ns; /* of the phase */
    int64_t saving_ns;   /* when SAVING began */
    int stop_signal;     /* the signal that stopped the job, or 0 */
    bool failed, failure_reported;
    int failed_status;    /* the exit status of a failed job */
    struct pollfd *polls; /* signals, output, two per rank */
    rank **polled;        /* the rank of each entry after the first two */
} job;

/* ---- starting ---- */

static kolo_status open_streams(job *j, int r, kolo_process_opts *process) {
    rank *k = &j->ranks[r];
    bool own = j->opts->own_command;
    if (own && r == 0) return KOLO_OK;
    int *const ends[2] = {&process->out, &process->err};
    for (int i = 0; i < 2; i++) {
        int fds[2], sink = i == 0 && !own ? STDOUT_FILENO : STDERR_FILENO;
        KOLO_TRY(kolo_pipe(fds));
        *ends[i] = fds[1];
        KOLO_TRY(line_stream_init(&k->streams[i], fds[0], sink, r));
    }
    return KOLO_OK;
}

/* Starts a rank through the shim. Rank 0 inherits standard input unless that is a terminal: reading
 * from a background process group would stop it. */
static kolo_status start_rank(job *j, int r, char **argv) {
    int keep[RANK_ENV_FDS];
    kolo_process_opts process = {.program = "/proc/self/exe", .argv = argv, .own_group = true};
    process.in = r == 0 && !isatty(STDIN_FILENO) ? KOLO_FD_INHERIT : KOLO_FD_NULL;
    process.keep = keep;
    KOLO_TRY(rank_env_prepare(&j->env, r, keep, &process.n_keep));
    process.env = j->env.vars.vars;
    kolo_status status = open_streams(j, r, &process);
    if (status == KOLO_OK) status = kolo_process_start(&process, &j->ranks[r].process);
    if (process.out > 0) close(process.out);
    if (process.err > 0) close(process.err);
    j->ranks[r].started = status == KOLO_OK;
    if (status == KOLO_OK) guard_watch(&j->guard, j->ranks[r].process.pid);
    return status;
}

/* argv of the shim: kolo __rank PID program args... */
static kolo_status start_ranks(job *j) {
    size_t n = 0;
    while (j->opts->argv[n]) n++;
    char **argv = kolo_zalloc((n + 4) * sizeof *argv), parent[24];
    if (!argv) return KOLO_NOMEM((n + 4) * sizeof *argv);
    snprintf(parent, sizeof parent, "%ld", (long)getpid());
    argv[0] = (char[]){"kolo"};
    argv[1] = (char[]){"__rank"};
    argv[2] = parent;
    memcpy(argv + 3, j->opts->argv, n * sizeof *argv);
    kolo_status status = guard_open(&j->guard);
    for (int r = 0; r < j->opts->n_ranks && status == KOLO_OK; r++) status = start_rank(j, r, argv);
    kolo_free(argv);
    rank_env_close_inherited(&j->env); /* now open in the ranks only */
    return status;
}

int launch_become_rank(int argc, char **argv) {
    if (argc < 2) return 2;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
        fprintf(stderr, "kolo: cannot set the parent-death signal of a rank: %s\n",
                kolo_errno_text(errno));
        return 1;
    }
    char parent[24];
    snprintf(parent, sizeof parent, "%ld", (long)getppid());
    if (strcmp(parent, argv[0]) != 0) return 1; /* the launcher died before prctl */
    static char own_name[] = "kolo";
    const char *program = argv[1];
    if (strcmp(program, LAUNCH_SELF) == 0) argv[1] = own_name;
    execvp(program, argv + 1);
    int error = errno;
    fprintf(stderr, "kolo: cannot start %s: %s\n", program, kolo_errno_text(error));
    return error == ENOENT ? 127 : 126;
}

/* ---- ending ---- */

static void signal_ranks(job *j, int signal) {
    for (int r = 0; r < j->opts->n_ranks; r++) {
        rank *k = &j->ranks[r];
        if (k->started && !k->ended) kolo_process_signal(&k->process, signal, true);
    }
}

static void enter_phase(job *j, phase next, int64_t ms) {
    j->phase = next;
    j->deadline_ns = kolo_now_ns() + ms * 1000000;
    if (next == TERMINATING) {
        signal_ranks(j, SIGTERM);
        signal_ranks(j, SIGCONT); /* stopped ranks cannot handle it */
    } else if (next == KILLING) {
        signal_ranks(j, SIGKILL);
    }
}

static kolo_status print_message(job *j, const char *fmt, ...) KOLO_PRINTF(2, 3);
static kolo_status print_message(job *j, const char *fmt, ...) {
    /* Rank 0 may have died while it showed a progress bar: clear the line. */
    bool bar = j->opts->own_command && isatty(STDERR_FILENO);
    kolo_text text = {0};
    va_list args;
    va_start(args, fmt);
    kolo_text_addv(&text, fmt, args);
    va_end(args);
    kolo_status status = KOLO_OK;
    if (text.failed) {
        status = KOLO_NOMEM(sizeof text);
    } else {
        status = line_queue_add(&j->output, STDERR_FILENO,
                                bar ? "\r\033[Kkolo: " : "kolo: ", text.text, text.length);
    }
    kolo_text_fini(&text);
    return status;
}

/* Ranks failures by how close they are to the root cause: a signal, an error, an exit status
 * without a report, and last the error of a lost or late peer. 0: the rank did not fail. */
static int severity(const rank *k) {
    if (!k->ended || k->spared || (k->how.signal == 0 && k->how.code == 0)) return 0;
    if (k->how.signal) return 4;
    if (k->reported == KOLO_OK) return 2;
    return k->reported == KOLO_ERR_PEER || k->reported == KOLO_ERR_TIMEOUT ? 1 : 3;
}

/* The launcher's exit status after a rank failed: that of its report, else its own. */
static int exit_status_after(const rank *k) {
    if (k->how.signal) return 1;
    if (k->report) return exit_status_of(k->reported);
    return k->how.code ? k->how.code : 1;
}

/* The report of a survivor about the loss of rank r: of one that has found it itself rather than of
 * one that quotes another, the earliest among equals. NULL: there is none. */
static const rank *find_witness(const job *j, int r) {
    const rank *best = NULL;
    char name[24];
    const int n = snprintf(name, sizeof name, "rank %d ", r);
    bool direct = false;
    for (int p = 0; p < j->opts->n_ranks; p++) {
        const rank *k = &j->ranks[p];
        if (!k->report || k->how.signal || k->reported != KOLO_ERR_PEER) continue;
        const bool own = strncmp(k->report, name, (size_t)n) == 0;
        if (best && (own == direct ? k->order > best->order : direct)) continue;
        best = k;
        direct = own;
    }
    return best;
}

/* "rank 3 (pid 123) was killed by signal 9 (Killed); the job ends", and what a survivor adds. */
static kolo_status report_end(job *j, const rank *k) {
    char how[64];
    const int r = (int)(k - j->ranks);
    const rank *witness = k->how.signal ? find_witness(j, r) : NULL;
    kolo_exit_describe(k->how, how, sizeof how);
    if (!witness) {
        return print_message(j, "rank %d (pid %ld) %s; the job ends", r, (long)k->process.pid, how);
    }
    return print_message(j, "rank %d (pid %ld) %s; the job ends; rank %d reports: %s", r,
                         (long)k->process.pid, how, (int)(witness - j->ranks), witness->report);
}

/* Prints the error of a failed job: that of the rank with the highest severity, the earliest among
 * equals. Ranks that fail together agree on the text, so rank 0's is printed without a prefix. */
static kolo_status report_job_failure(job *j) {
    const rank *worst = &j->ranks[0];
    for (int r = 1; r < j->opts->n_ranks; r++) {
        const rank *k = &j->ranks[r];
        int more = severity(k) - severity(worst);
        bool earlier = k->order < worst->order && !worst->report;
        if (more > 0 || (more == 0 && earlier)) worst = k;
    }
    j->failure_reported = true;
    j->failed_status = exit_status_after(worst);
    if (worst->report && worst->how.signal == 0) {
        if (worst == j->ranks) return print_message(j, "%s", worst->report);
        return print_message(j, "rank %d: %s", (int)(worst - j->ranks), worst->report);
    }
    return report_end(j, worst);
}

/* Whether some rank other than `r` has not been killed. */
static bool others_live(const job *j, int r) {
    for (int p = 0; p < j->opts->n_ranks; p++) {
        if (p != r && !(j->ranks[p].ended && j->ranks[p].how.signal)) return true;
    }
    return false;
}

/* Whether the job goes on, or saves and ends, without a rank that is killed. One that SIGTERM ends
 * while the others save has not begun to train. */
static bool is_spared(const job *j, int r) {
    const bool goes_on =
        j->phase == RUNNING || (j->phase == SAVING && j->ranks[r].how.signal != SIGTERM);
    const bool last = r >= j->opts->n_ranks - j->opts->spared_last;
    if (j->opts->survive) return goes_on && others_live(j, r);
    return goes_on && r > 0 && (r <= j->opts->spared || last);
}

static kolo_status report_loss(job *j, int r) {
    char how[64];
    kolo_exit_describe(j->ranks[r].how, how, sizeof how);
    return print_message(j, "rank %d (pid %ld) %s", r, (long)j->ranks[r].process.pid, how);
}

/* Handles the end of a rank: kills the rest of its process group before the child is reaped, since
 * until then no other group can get its id. */
static kolo_status handle_end(job *j, rank *k) {
    kolo_process_signal(&k->process, SIGKILL, true);
    guard_forget(&j->guard, k->process.pid);
    KOLO_TRY(kolo_process_wait(&k->process, -1, &k->how));
    kolo_process_fini(&k->process);
    k->ended = true;
    k->order = j->n_ended++;
    for (int i = 0; i < 2; i++) KOLO_TRY(line_stream_read(&k->streams[i], &j->output, true));
    KOLO_TRY(rank_env_read_report(&j->env, (int)(k - j->ranks), &k->reported, &k->report));
    const int r = (int)(k - j->ranks);
    k->spared = k->how.signal && is_spared(j, r);
    if (k->spared) {
        rank_env_notify_end(&j->env, r, k->how.signal);
        return report_loss(j, r);
    }
    if (j->phase == SAVING && k->how.signal == SIGTERM) {
        j->stop_signal = SIGTERM;
        enter_phase(j, GRACE, INTERRUPT_MS);
        KOLO_TRY(print_message(j, "rank %d had not begun to train: nothing is saved; the job ends",
                               (int)(k - j->ranks)));
    }
    if (severity(k) > 0) {
        j->failed = true;
    } else {
        rank_env_notify_end(&j->env, r, 0);
    }
    return KOLO_OK;
}

static kolo_status handle_ends(job *j) {
    for (int r = 0; r < j->opts->n_ranks; r++) {
        rank *k = &j->ranks[r];
        if (k->started && !k->ended && kolo_process_ended(&k->process)) KOLO_TRY(handle_end(j, k));
    }
    if (j->failed && j->phase < GRACE) enter_phase(j, GRACE, GRACE_MS);
    return KOLO_OK;
}

/* Advances a job that is ending to its next phase at the phase's deadline. */
static kolo_status advance_phase(job *j) {
    bool all_ended = j->n_ended == j->opts->n_ranks, late = kolo_now_ns() >= j->deadline_ns;
    bool decided = all_ended || (late && j->phase == GRACE) || j->phase > GRACE;
    if (j->failed && !j->stop_signal && !j->failure_reported && decided)
        KOLO_TRY(report_job_failure(j));
    if (all_ended || !late) return KOLO_OK;
    if (j->phase == SAVING) {
        j->stop_signal = SIGTERM;
        enter_phase(j, KILLING, 0);
        return print_message(j, "no checkpoint was saved within %g s (--grace); the job ends",
                             (double)j->opts->grace_ms / 1000);
    }
    if (j->phase == GRACE && j->opts->grace_ms == 0)
        enter_phase(j, TERMINATING, TERM_MS);
    else if (j->phase >= GRACE) /* ranks that save upon SIGTERM do not end by it */
        enter_phase(j, KILLING, 0);
    return KOLO_OK;
}

/* ---- events ---- */

/* Whether the folder holds a checkpoint to resume from. */
static bool can_resume(const char *folder) {
    char *latest = folder ? kolo_format("%s%s", folder, LAUNCH_LATEST) : NULL;
    bool exists = latest && kolo_file_exists(latest);
    kolo_free(latest);
    return exists;
}

/* Asks the ranks to save and to end. */
static kolo_status preempt_job(job *j) {
    signal_ranks(j, SIGTERM);
    enter_phase(j, SAVING, j->opts->grace_ms);
    j->saving_ns = kolo_now_ns();
    return print_message(j, LAUNCH_SAVES);
}

/* Forwards a stop signal to the ranks; a second one kills them. */
static kolo_status stop_job(job *j, int signal) {
    if (signal == SIGTERM && j->phase == RUNNING && j->opts->grace_ms > 0) return preempt_job(j);
    const bool repeated = j->phase == SAVING && kolo_now_ns() - j->saving_ns < LAUNCH_REPEAT_NS;
    if (signal == SIGTERM && repeated) return KOLO_OK;
    if (j->stop_signal) {
        enter_phase(j, KILLING, 0);
        return KOLO_OK;
    }
    j->stop_signal = signal;
    if (j->phase < GRACE) {
        signal_ranks(j, signal == SIGPIPE ? SIGTERM : signal);
        enter_phase(j, GRACE, INTERRUPT_MS);
    }
    if (signal == SIGPIPE) return KOLO_OK;
    bool resumes = can_resume(j->opts->resumable);
    return print_message(j, "stopped by signal %d (%s); the job ends%s%s", signal,
                         sigdescr_np(signal), resumes ? LAUNCH_RESUME : "",
                         resumes ? j->opts->resumable : "");
}

/* Ctrl-Z: the terminal does not stop the ranks, which are in process groups of their own. */
static void pause_job(job *j) {
    signal_ranks(j, SIGSTOP);
    raise(SIGSTOP);
    signal_ranks(j, SIGCONT);
}

static kolo_status handle_signals(job *j) {
    for (int signal; (signal = kolo_signals_next(&j->signals));) {
        if (signal == SIGTSTP)
            pause_job(j);
        else if (signal == SIGUSR1)
            signal_ranks(j, signal);
        else if (signal != SIGCHLD && signal != SIGPIPE)
            KOLO_TRY(stop_job(j, signal));
    }
    return handle_ends(j);
}

/* Fills the poll entries; returns their number. */
static nfds_t fill_polls(job *j) {
    j->polls[0] = (struct pollfd){.fd = j->signals.fd, .events = POLLIN};
    j->polls[1] = (struct pollfd){.fd = line_queue_sink(&j->output), .events = POLLOUT};
    nfds_t n = 2;
    if (j->output.bytes > QUEUE_LIMIT) return n;
    for (int r = 0; r < j->opts->n_ranks; r++) {
        rank *k = &j->ranks[r];
        for (int i = 0; i < 2; i++) {
            if (k->streams[i].fd < 0) continue;
            j->polled[n] = k;
            j->polls[n++] = (struct pollfd){.fd = k->streams[i].fd, .events = POLLIN};
        }
    }
    return n;
}

static kolo_status read_streams(job *j, nfds_t n) {
    for (nfds_t p = 2; p < n; p++) {
        if (!j->polls[p].revents) continue;
        for (int i = 0; i < 2; i++) {
            line_stream *s = &j->polled[p]->streams[i];
            if (s->fd == j->polls[p].fd) KOLO_TRY(line_stream_read(s, &j->output, false));
        }
    }
    return KOLO_OK;
}

/* Writes queued lines. A closed output (kolo run ... | head) stops the job without a message. */
static kolo_status write_output(job *j) {
    kolo_status status = line_queue_write(&j->output);
    if (status == KOLO_OK || errno != EPIPE) return status;
    line_queue_fini(&j->output);
    return stop_job(j, SIGPIPE);
}

static kolo_status wait_for_events(job *j) {
    int64_t left_ms = 60000;
    if (j->phase != RUNNING && j->phase != KILLING) {
        left_ms = kolo_max_i64(0, (j->deadline_ns - kolo_now_ns()) / 1000000 + 1);
    }
    nfds_t n = fill_polls(j);
    if (poll(j->polls, n, (int)left_ms) < 0) {
        return errno == EINTR ? KOLO_OK : kolo_file_fail("wait for", "the ranks", errno);
    }
    KOLO_TRY(read_streams(j, n));
    if (j->polls[1].revents) KOLO_TRY(write_output(j));
    if (j->polls[0].revents) KOLO_TRY(handle_signals(j));
    return advance_phase(j);
}

/* Writes the remaining lines, with a time limit if the job failed. */
static kolo_status flush_output(job *j) {
    int64_t deadline = kolo_now_ns() + FLUSH_MS * INT64_C(1000000);
    while (line_queue_sink(&j->output) >= 0) {
        struct pollfd polls[2] = {
            {.fd = line_queue_sink(&j->output), .events = POLLOUT},
            {.fd = j->signals.fd, .events = POLLIN},
        };
        bool hurry = j->failed || j->stop_signal;
        if (hurry && kolo_now_ns() >= deadline) break;
        poll(polls, 2, hurry ? 50 : -1);
        if (polls[0].revents) KOLO_TRY(write_output(j));
        if (polls[1].revents) KOLO_TRY(handle_signals(j));
    }
    return KOLO_OK;
}

/* ---- the job ---- */

/* Signals that the parent set to be ignored, as nohup does, stay ignored, also in the ranks. */
static kolo_status open_signals(kolo_signals *opened) {
    static const int stops[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    int events[4 + KOLO_COUNT(stops)] = {SIGCHLD, SIGTSTP, SIGPIPE, SIGUSR1}, n = 4;
    for (size_t i = 0; i < KOLO_COUNT(stops); i++) {
        struct sigaction now;
        sigaction(stops[i], NULL, &now);
        if (now.sa_handler != SIG_IGN) events[n++] = stops[i];
    }
    return kolo_signals_open(events, n, opened);
}

/* Of each rank the launcher has its two streams and its pidfd. */
static kolo_status allow_files(int n_ranks) {
    enum { FILES_OF_RANK = 3, OTHERS = 64 };
    char who[64];
    snprintf(who, sizeof who, "the launcher of %d ranks", n_ranks);
    return kolo_open_files_allow(who, FILES_OF_RANK * (uint64_t)n_ranks, OTHERS);
}

static kolo_status open_job(job *j) {
    size_t n = (size_t)j->opts->n_ranks, n_polls = 2 + 2 * n;
    KOLO_TRY(allow_files(j->opts->n_ranks));
    j->ranks = kolo_zalloc(n * sizeof *j->ranks);
    j->polls = kolo_zalloc(n_polls * sizeof *j->polls);
    j->polled = kolo_zalloc(n_polls * sizeof *j->polled);
    if (!j->ranks || !j->polls || !j->polled) return KOLO_NOMEM(n_polls * sizeof *j->polls);
    for (size_t r = 0; r < n; r++) {
        j->ranks[r].process.pidfd = -1;
        for (int i = 0; i < 2; i++) j->ranks[r].streams[i].fd = -1;
    }
    KOLO_TRY(open_signals(&j->signals));
    return rank_env_open(&j->env, j->opts);
}

/* Kills all ranks that still run and frees the job. */
static void close_job(job *j) {
    for (int r = 0; j->ranks && r < j->opts->n_ranks; r++) {
        rank *k = &j->ranks[r];
        kolo_exit how;
        if (k->started && !k->ended) {
            kolo_process_signal(&k->process, SIGKILL, true);
            guard_forget(&j->guard, k->process.pid);
            kolo_process_wait(&k->process, -1, &how);
        }
        kolo_process_fini(&k->process);
        for (int i = 0; i < 2; i++) line_stream_fini(&k->streams[i]);
        kolo_free(k->report);
    }
    guard_close(&j->guard);
    rank_env_close(&j->env);
    line_queue_fini(&j->output);
    kolo_signals_close(&j->signals);
    kolo_free(j->ranks);
    kolo_free(j->polls);
    kolo_free(j->polled);
}

kolo_status launch_job(const launch_opts *opts, int *exit_status) {
    job j = {.opts = opts, .signals.fd = -1, .guard.fd = -1};
    kolo_status status = open_job(&j);
    if (status == KOLO_OK) status = start_ranks(&j);
    while (status == KOLO_OK && j.n_ended < opts->n_ranks) status = wait_for_events(&j);
    if (status == KOLO_OK) status = flush_output(&j);
    if (status == KOLO_OK) *exit_status = j.stop_signal ? 128 + j.stop_signal : j.failed_status;
    close_job(&j);
    return status;
}

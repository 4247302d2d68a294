/* Commands that run as a job of ranks. */
#define _GNU_SOURCE
#include "cli/launcher/run_on_ranks.h"

#include "base/process.h"
#include "cli/launcher/launch.h"
#include "cli/launcher/report.h"
#include "cli/launcher/topology.h"
#include "cli/options/costs_file.h"
#include "cli/output/output.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

/* "kolo train --workers 2 ..." once more: the program, the words of the command, its arguments. For
 * kolo_free, as *words is, which holds what does not come from `o`; NULL: no memory. */
static char **same_command(const kolo_options *o, char **words) {
    enum { MOST_WORDS = 4 };
    int n = 0;
    char **argv = kolo_zalloc((MOST_WORDS + (size_t)o->argc) * sizeof *argv);
    *words = kolo_format("/proc/self/exe %s", o->command->name);
    if (!argv || !*words) {
        kolo_free(argv);
        kolo_free(*words);
        return NULL;
    }
    for (char *at = *words; at; n++) {
        argv[n] = at;
        at = strchr(at, ' ');
        if (at) *at++ = '\0';
    }
    KOLO_ASSERT(n < MOST_WORDS);
    memcpy(argv + n, o->argv, (size_t)o->argc * sizeof *argv);
    return argv;
}

static int start_ranks(kolo_options *o, const ranks_opts *opts) {
    char *words, **argv = same_command(o, &words);
    if (!argv) return report_failure(KOLO_NOMEM((size_t)o->argc * sizeof *argv));
    launch_opts launch = {
        .n_ranks = opts->workers, .threads = opts->threads, .argv = argv, .own_command = true};
    int exit_status = 1;
    kolo_status status = launch_job(&launch, &exit_status);
    kolo_free(argv);
    kolo_free(words);
    return status == KOLO_OK ? exit_status : report_failure(status);
}

/* How many other threads of the machine run now: the least of a few looks, since some only pass by.
 * 0 where that cannot be known. */
static int running_others(void) {
    long least = LONG_MAX, running;
    for (int look = 0; look < 5; look++) {
        FILE *file = fopen("/proc/loadavg", "r");
        bool read = file && fscanf(file, "%*f %*f %*f %ld/", &running) == 1;
        if (file) fclose(file);
        if (!read) return 0;
        if (running < least) least = running;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return (int)least - 1;
}

/* OpenMP reads how its threads wait when it is loaded: a process that nobody has told begins once
 * more, with what our launcher tells its ranks. Where it cannot, threads spin for longer. */
static void tell_openmp(const kolo_options *o, const ranks_opts *opts) {
    if (opts->threads == 1 || getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT")) return;
    char self[PATH_MAX], spins[16], *words, **argv;
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0 || !(argv = same_command(o, &words))) return;
    self[length] = '\0';
    argv[0] = self; /* what it is listed by */
    int threads = opts->threads ? opts->threads : kolo_processors();
    bool room =
        threads <= kolo_processors() && threads + running_others() <= sysconf(_SC_NPROCESSORS_ONLN);
    snprintf(spins, sizeof spins, "%d", room ? LAUNCH_SPINS : 0);
    setenv("OMP_WAIT_POLICY", "passive", 1);
    setenv("GOMP_SPINCOUNT", spins, 1);
    execv(self, argv);
    kolo_free(argv);
    kolo_free(words);
}

/* What an outer launcher made must agree with what was asked for. */
static kolo_status check_world(const kolo_comm *comm, const ranks_opts *opts) {
    int world = kolo_comm_size(comm);
    if (opts->workers == 0 || opts->workers == world) return KOLO_OK;
    if (world == 1 && strcmp(kolo_comm_transport(comm), "mpi") == 0) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "transport mpi has its workers from mpirun: leave --%s out, and start "
                         "mpirun -n %d kolo ...",
                         opts->option, opts->workers);
    }
    return KOLO_FAIL(KOLO_ERR_ARG, "--%s %d, but the launcher started %d: leave --%s out",
                     opts->option, opts->workers, world, opts->option);
}

/* Gives each rank of our own launcher cores of its own; another launcher has its own idea of that.
 * Threads that outnumber the processors are worth a word. */
static void place(const kolo_comm *comm, const ranks_opts *opts, int ranks, int threads) {
    int processors = kolo_comm_local_processors(comm);
    bool crowded = ranks * threads > processors;
    if (crowded && kolo_comm_rank(comm) == 0) {
        fprintf(stderr,
                "kolo: warning: %d ranks of %d threads take turns on %d processors; fewer would be "
                "faster\n",
                ranks, threads, processors);
    }
    bool ours = ranks > 1 && report_to_launcher();
    if (ours && !crowded && !opts->no_bind) topology_bind(kolo_comm_local_rank(comm), ranks);
}

static kolo_status run_as_rank(kolo_options *o, const ranks_opts *opts, rank_body body) {
    kolo_comm *comm;
    kolo_comm_opts comm_opts = {
        .timeout_ms = opts->timeout_ms,
        .transport = (kolo_transport_choice)kolo_options_choice(o, "transport"),
        .interface = kolo_options_text(o, "interface"),
        .heartbeat_ms = (int64_t)(1000 * kolo_options_float(o, "heartbeat")),
        .insecure = kolo_options_flag(o, "insecure"),
        .report_signal = SIGUSR1,
    };
    KOLO_TRY(kolo_comm_create(&comm_opts, &comm));
    kolo_status status = check_world(comm, opts);
    int threads = opts->threads, ranks = kolo_comm_local_size(comm);
    if (threads == 0) threads = launch_thread_share(kolo_comm_local_processors(comm), ranks);
    if (status == KOLO_OK) status = costs_file_load(comm);
    if (status == KOLO_OK) place(comm, opts, ranks, threads);
    if (status == KOLO_OK) status = body(comm, threads, o);
    kolo_comm_destroy(comm);
    return status;
}

/* A job of one process has no launcher to say why it ends. */
static void say_stopped(int signal) {
    static const char clear[] = "\r\033[K";
    static const char *const lines[] = {
        [SIGHUP] = "kolo: stopped by signal 1 (Hangup); the job ends\n",
        [SIGINT] = "kolo: stopped by signal 2 (Interrupt); the job ends\n",
        [SIGTERM] = "kolo: stopped by signal 15 (Terminated); the job ends\n",
    };
    ssize_t written = isatty(STDERR_FILENO) ? write(STDERR_FILENO, clear, sizeof clear - 1) : 0;
    written += write(STDERR_FILENO, lines[signal], strlen(lines[signal]));
    (void)written;
    _exit(128 + signal);
}

/* Those that a parent lets it ignore, as nohup does, stay ignored. */
static void catch_stops(void) {
    static const int signals[] = {SIGHUP, SIGINT, SIGTERM};
    for (size_t i = 0; i < KOLO_COUNT(signals); i++) {
        struct sigaction now, stop = {.sa_handler = say_stopped};
        sigaction(signals[i], NULL, &now);
        if (now.sa_handler != SIG_IGN) sigaction(signals[i], &stop, NULL);
    }
}

/* An outer launcher, or ours, has started this process as one of several. */
static bool is_rank(const kolo_options *o) {
    return kolo_comm_launched() || kolo_options_choice(o, "transport") == KOLO_TRANSPORT_MPI;
}

/* Ranks of ours end with their launcher (launch.c), whatever ends it; so do those of mpirun and
 * srun. Where RANK is set, who has started this process may well end before it. */
static void end_with_launcher(void) {
    if (kolo_comm_launched() && !getenv("RANK")) prctl(PR_SET_PDEATHSIG, SIGTERM);
}

/* Ranks that have a processor each find out as soon whether they refuse the job, and together; a
 * thousand that take turns are a long time in starting, beside which one look at the data is short.
 */
static kolo_status check_before(kolo_options *o, const ranks_opts *opts) {
    KOLO_TRY(output_check_json(opts->json));
    bool crowd = opts->check && opts->workers > kolo_processors();
    return crowd ? opts->check(o, opts->workers) : KOLO_OK;
}

int run_on_ranks(kolo_options *o, const ranks_opts *opts, rank_body body) {
    bool rank = is_rank(o);
    kolo_status status = rank ? KOLO_OK : check_before(o, opts);
    if (status != KOLO_OK) return report_failure(status);
    if (!rank && opts->workers > 1) return start_ranks(o, opts);
    tell_openmp(o, opts);
    /* Rank 0 draws on the terminal from a process group that is not the terminal's own. */
    if (rank) signal(SIGTTOU, SIG_IGN);
    if (rank) end_with_launcher();
    if (!rank) catch_stops();
    status = run_as_rank(o, opts, body);
    return status == KOLO_OK ? 0 : report_failure(status);
}

ranks_opts ranks_opts_of(const kolo_options *o, const char *option) {
    /* Only what was typed can contradict an outer launcher: no preset, and no file of another job.
     */
    bool counts = !is_rank(o) || kolo_options_typed(o, option);
    return (ranks_opts){
        .option = option,
        .workers = counts ? (int)kolo_options_int(o, option) : 0,
        .timeout_ms = (int64_t)(1000 * kolo_options_float(o, "timeout")),
        .json = kolo_options_text(o, "json"),
    };
}

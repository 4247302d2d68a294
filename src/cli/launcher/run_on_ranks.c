/* Runs a command on ranks. */
#define _GNU_SOURCE
#include "cli/launcher/run_on_ranks.h"

#include "base/clock.h"
#include "base/process.h"
#include "cli/launcher/error_report.h"
#include "cli/launcher/launch.h"
#include "cli/launcher/run_on_threads.h"
#include "cli/launcher/stop_signals.h"
#include "cli/launcher/topology.h"
#include "cli/options/costs_file.h"
#include "cli/options/train_opts.h"
#include "cli/output/output.h"

#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* The argv of this command: program, words of the command name, arguments. Free it and *words,
 * which holds the strings that do not come from `o`, with kolo_free; NULL: out of memory. */
static char **same_command(const kolo_options *o, char **words) {
    enum { MOST_WORDS = 4 };
    int n = 0;
    char **argv = kolo_zalloc((MOST_WORDS + (size_t)o->argc) * sizeof *argv);
    *words = kolo_format(LAUNCH_SELF " %s", o->command->name);
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
    const spared_ranks spared =
        opts->spared ? opts->spared(o, opts->workers) : (spared_ranks){0, 0};
    launch_opts launch = {.n_ranks = opts->workers,
                          .threads = opts->threads,
                          .argv = argv,
                          .own_command = true,
                          .resumable = opts->resumable,
                          .grace_ms = (int64_t)ceil(opts->grace * 1000),
                          .spared = spared.first,
                          .spared_last = spared.last};
    int exit_status = 1;
    kolo_status status = launch_job(&launch, &exit_status);
    kolo_free(argv);
    kolo_free(words);
    return status == KOLO_OK ? exit_status : report_failure(status);
}

/* Number of other running threads on the machine: the minimum of a few samples, to exclude short
 * bursts. 0 if unknown. */
static int running_others(void) {
    long least = LONG_MAX, running;
    for (int look = 0; look < 5; look++) {
        FILE *file = fopen("/proc/loadavg", "r");
        bool read = file && fscanf(file, "%*f %*f %*f %ld/", &running) == 1;
        if (file) fclose(file);
        if (!read) return 0;
        if (running < least) least = running;
        kolo_sleep_ns(1000000);
    }
    return (int)least - 1;
}

/* OpenMP reads its wait policy when it is loaded. Unless the environment sets one, this process
 * executes itself again with the policy that the launcher sets for its ranks. If that fails,
 * threads spin longer. `workers`: in this process. */
static void set_openmp_policy(const kolo_options *o, const ranks_opts *opts, int workers) {
    if (opts->threads == 1 || getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT")) return;
    char self[PATH_MAX], spins[16], *words, **argv;
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0 || !(argv = same_command(o, &words))) return;
    self[length] = '\0';
    argv[0] = self; /* the name in process lists */
    int threads = opts->threads ? opts->threads * workers : kolo_processors();
    bool own_cores =
        threads <= kolo_processors() && threads + running_others() <= sysconf(_SC_NPROCESSORS_ONLN);
    snprintf(spins, sizeof spins, "%d", own_cores ? LAUNCH_SPINS : 0);
    setenv("OMP_WAIT_POLICY", "passive", 1);
    setenv("GOMP_SPINCOUNT", spins, 1);
    execv(self, argv);
    kolo_free(argv);
    kolo_free(words);
}

/* The number of ranks that an outer launcher started must match the option. */
static kolo_status check_world(const kolo_comm *comm, const ranks_opts *opts) {
    int world = kolo_comm_size(comm);
    if (opts->workers == 0 || opts->workers == world) return KOLO_OK;
    if (world == 1 && strcmp(kolo_comm_transport(comm), "mpi") == 0) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "the workers of transport mpi are started by mpirun: remove --%s and run "
                         "mpirun -n %d kolo ...",
                         opts->option, opts->workers);
    }
    return KOLO_FAIL(KOLO_ERR_ARG, "--%s %d, but the launcher started %d: remove --%s",
                     opts->option, opts->workers, world, opts->option);
}

/* Binds each rank of Kolo's launcher to cores of its own, with the thread that makes progress over
 * a network, so that it delays the kernels of no other rank; other launchers have their own
 * binding. Warns about oversubscription. */
static void bind_rank(const kolo_comm *comm, const ranks_opts *opts, int ranks, int threads) {
    int processors = kolo_comm_local_processors(comm);
    bool oversubscribed = ranks * threads > processors;
    if (oversubscribed && kolo_comm_rank(comm) == 0) launch_warn(ranks, threads, processors);
    bool ours = ranks > 1 && report_to_launcher();
    if (ours && !oversubscribed && !opts->no_bind) {
        topology_bind_process(kolo_comm_local_rank(comm), ranks);
    }
}

static kolo_status run_as_rank(kolo_options *o, const ranks_opts *opts, rank_body body) {
    kolo_comm *comm;
    kolo_comm_opts comm_opts = {
        .timeout_ms = opts->timeout_ms,
        .transport = (kolo_transport_choice)kolo_options_choice(o, "transport"),
        .interface = kolo_options_text(o, "interface"),
        .heartbeat_ms = (int64_t)(1000 * kolo_options_float(o, "heartbeat")),
        .insecure = kolo_options_flag(o, "insecure"),
        .encrypt = kolo_options_flag(o, "encrypt"),
        .authenticate = kolo_options_flag(o, "authenticate"),
        .report_signal = SIGUSR1,
    };
    KOLO_TRY(kolo_comm_create(&comm_opts, &comm));
    kolo_status status = check_world(comm, opts);
    int threads = opts->threads, ranks = kolo_comm_local_size(comm);
    if (threads == 0) threads = launch_thread_share(kolo_comm_local_processors(comm), ranks);
    if (status == KOLO_OK) status = costs_file_load(comm);
    if (status == KOLO_OK) bind_rank(comm, opts, ranks, threads);
    if (status == KOLO_OK) status = body(comm, threads, o);
    kolo_comm_destroy(comm);
    return status;
}

/* Whether a launcher started this process as one of several. */
static bool is_rank(const kolo_options *o) {
    return kolo_comm_launched() || kolo_options_choice(o, "transport") == KOLO_TRANSPORT_MPI;
}

/* Makes ranks of mpirun and srun end with their launcher, as those of Kolo's launcher do. With RANK
 * set, the parent may be a script that ends before the rank. */
static void end_with_launcher(void) {
    if (kolo_comm_launched() && !getenv("RANK")) prctl(PR_SET_PDEATHSIG, SIGTERM);
}

/* Checks the job before ranks are started if they would be oversubscribed: starting a thousand
 * ranks takes long compared to one check. Otherwise the ranks check it themselves, in parallel. */
static kolo_status check_before(kolo_options *o, const ranks_opts *opts) {
    KOLO_TRY(output_check_json(opts->json));
    bool check = opts->check && opts->workers > kolo_processors();
    return check ? opts->check(o, opts->workers) : KOLO_OK;
}

/* Whether workers are threads of this process. ARG: they cannot be. */
static kolo_status choose_threads(const kolo_options *o, const ranks_opts *opts, bool rank,
                                  bool *threads) {
    const bool typed = kolo_options_has(o, "workers-as") && kolo_options_typed(o, "workers-as");
    *threads = kolo_options_has(o, "workers-as") &&
               kolo_options_choice(o, "workers-as") == WORKERS_AS_THREADS;
    if (*threads && !typed && (rank || opts->workers < 2)) *threads = false; /* of another job */
    if (!*threads) return KOLO_OK;
    if (rank) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "--workers-as threads: a launcher has started the workers as "
                         "processes: omit it");
    }
    static const char *const network[] = {"transport", "interface", "heartbeat",
                                          "insecure",  "encrypt",   "authenticate"};
    for (size_t i = 0; i < KOLO_COUNT(network); i++) {
        if (!kolo_options_typed(o, network[i])) continue;
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "--workers-as threads cannot be combined with --%s: threads of one "
                         "process have no connections",
                         network[i]);
    }
    if (opts->workers > 1) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "--workers-as threads has no effect with one worker: give --workers N");
}

int run_on_ranks(kolo_options *o, const ranks_opts *opts, rank_body body) {
    bool rank = is_rank(o), threads;
    if (choose_threads(o, opts, rank, &threads) != KOLO_OK) return report_failure(KOLO_ERR_ARG);
    kolo_status status = rank ? KOLO_OK : check_before(o, opts);
    if (status != KOLO_OK) return report_failure(status);
    if (!rank && opts->workers > 1 && !threads) return start_ranks(o, opts);
    set_openmp_policy(o, opts, threads ? opts->workers : 1);
    /* Rank 0 writes to the terminal from a background process group. */
    if (rank) signal(SIGTTOU, SIG_IGN);
    if (rank) end_with_launcher();
    if (!rank) stop_signals_catch(opts->resumable);
    if (opts->grace > 0) stop_signals_save(opts->grace, rank);
    status = threads ? run_on_threads(o, opts, body) : run_as_rank(o, opts, body);
    return status == KOLO_OK ? 0 : report_failure(status);
}

ranks_opts ranks_opts_of(const kolo_options *o, const char *option) {
    /* With an outer launcher only a number on the command line counts: not the preset, nor the
     * config file of another job. */
    bool counts = !is_rank(o) || kolo_options_typed(o, option);
    return (ranks_opts){
        .option = option,
        .workers = counts ? (int)kolo_options_int(o, option) : 0,
        .timeout_ms = (int64_t)(1000 * kolo_options_float(o, "timeout")),
        .json = kolo_options_text(o, "json"),
    };
}

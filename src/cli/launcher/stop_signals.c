#define _GNU_SOURCE
#include "cli/launcher/stop_signals.h"

#include "base/clock.h"
#include "base/integer.h"
#include "cli/launcher/launch.h"

#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char resumable[PATH_MAX]; /* the file that is there if a run can be resumed; or empty */

/* Calls of the handlers are async-signal-safe. */
static void write_text(const char *text) {
    ssize_t written = write(STDERR_FILENO, text, strlen(text));
    (void)written;
}

static void clear_line(void) {
    if (isatty(STDERR_FILENO)) write_text("\r\033[K");
}

/* Prints the message that the launcher would print, for a job of one process. */
static void stop(int signal) {
    static const char *const lines[] = {
        [SIGHUP] = "kolo: stopped by signal 1 (Hangup); the job ends",
        [SIGINT] = "kolo: stopped by signal 2 (Interrupt); the job ends",
        [SIGTERM] = "kolo: stopped by signal 15 (Terminated); the job ends",
        [SIGALRM] = "kolo: no checkpoint was saved within the time of --grace; the job ends",
    };
    size_t folder = strlen(resumable) - sizeof LAUNCH_LATEST + 1;
    clear_line();
    write_text(lines[signal]);
    if (*resumable && access(resumable, F_OK) == 0) {
        resumable[folder] = '\0';
        write_text(LAUNCH_RESUME);
        write_text(resumable);
    }
    write_text("\n");
    _exit(128 + (signal == SIGALRM ? SIGTERM : signal));
}

/* Gives the handlers a stack of their own: while a matrix multiplication of oneDNN runs, the stack
 * pointer may point to a buffer on the heap. An alternate stack that exists, such as that of a
 * sanitizer, stays. */
static void use_alternate_stack(void) {
    static char memory[1 << 16];
    stack_t now, own = {.ss_sp = memory, .ss_size = sizeof memory};
    if (sigaltstack(NULL, &now) == 0 && now.ss_flags & SS_DISABLE) sigaltstack(&own, NULL);
}

static void catch_with(int signal, void (*handler)(int), int flags) {
    struct sigaction now, action = {.sa_handler = handler, .sa_flags = SA_RESTART | flags};
    sigaction(signal, NULL, &now);
    if (now.sa_handler != SIG_IGN) sigaction(signal, &action, NULL);
}

static void catch (int signal, void (*handler)(int)) { catch_with(signal, handler, SA_ONSTACK); }

static const int signals[] = {SIGHUP, SIGINT, SIGTERM};

void stop_signals_catch(const char *folder) {
    int length = folder ? snprintf(resumable, sizeof resumable, "%s%s", folder, LAUNCH_LATEST) : 0;
    if (length >= (int)sizeof resumable) *resumable = '\0';
    use_alternate_stack();
    for (size_t i = 0; i < KOLO_COUNT(signals); i++) catch (signals[i], stop);
}

/* ---- ending ---- */

static atomic_int asked;

static void ask(int signal) { atomic_store(&asked, signal); }

void stop_signals_ask(void) {
    for (size_t i = 0; i < KOLO_COUNT(signals); i++) catch_with(signals[i], ask, (int)SA_RESETHAND);
}

int stop_signals_asked(void) { return atomic_load(&asked); }

/* ---- saving ---- */

static atomic_llong asked_ns; /* 0: not yet */
static unsigned grace_seconds;
static bool is_rank;

static void save(int signal) {
    const long long now = kolo_now_ns(), first = atomic_load(&asked_ns);
    if (first == 0) {
        atomic_store(&asked_ns, now);
        alarm(grace_seconds);
        if (is_rank) return;
        clear_line();
        write_text("kolo: " LAUNCH_SAVES "\n");
    } else if (now - first >= LAUNCH_REPEAT_NS) {
        if (is_rank) _exit(128 + SIGTERM); /* the launcher reports it */
        stop(signal);
    }
}

void stop_signals_save(double seconds, bool rank) {
    grace_seconds = (unsigned)ceil(seconds);
    is_rank = rank;
    use_alternate_stack();
    catch (SIGALRM, stop);
    catch (SIGTERM, save);
}

bool stop_signals_ask_to_save(void *arg) {
    (void)arg;
    return atomic_load(&asked_ns) != 0;
}

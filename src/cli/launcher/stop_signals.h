#pragma once
/* Signals that stop a command that is not run by Kolo's launcher, and the request to save by
 * SIGTERM. */

#include <stdbool.h>

/* SIGHUP, SIGINT and SIGTERM end this process with the message of the launcher. `folder`: of
 * checkpoints to resume from, or NULL. Signals that the parent set to be ignored, as nohup does,
 * stay ignored. */
void stop_signals_catch(const char *folder);

/* From now on SIGTERM asks the run to save and end within `seconds`; `rank`: of a launcher, which
 * prints the message. A second SIGTERM ends the process, unless it follows at once: batch systems
 * and timeout may signal a process twice, by itself and as one of its group. */
void stop_signals_save(double seconds, bool rank);

/* From now on the first of SIGHUP, SIGINT and SIGTERM asks the command to end, and another one ends
 * it. */
void stop_signals_ask(void);
/* The signal that has asked; 0: none has. */
int stop_signals_asked(void);

/* Whether this process has been asked to save. */
bool stop_signals_ask_to_save(void *arg);

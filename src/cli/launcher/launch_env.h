#pragma once
/* The environment that `kolo run` gives to its ranks: variables, and the descriptors of the secret,
 * the listening socket, the report pipe and the pipes that announce the end of ranks. */

#include "base/process.h"
#include "cli/launcher/launch.h"

enum { RANK_ENV_FDS = 4 }; /* the most descriptors that a rank inherits */

typedef struct rank_env {
    const launch_opts *opts;
    kolo_env vars; /* of the rank prepared last */
    int secret_fd, listen_fd;
    int report_fds[2]; /* of the rank prepared last */
    int ended_fds[2];  /* rank 0 reads the ranks after whose end the job goes on */
    int leader_fds[2]; /* closed when rank 0 has ended; read by the others */
    int *reports;      /* reading ends, one per rank; NULL: no reports */
} rank_env;

kolo_status rank_env_open(rank_env *e, const launch_opts *opts);
/* Sets e->vars for rank r, and the descriptors that it inherits. */
kolo_status rank_env_prepare(rank_env *e, int r, int keep[RANK_ENV_FDS], int *n_keep);
/* Closes the launcher's copies of inherited descriptors. */
void rank_env_close_inherited(rank_env *e);
/* Announces that rank r has ended, with status 0 or by a signal after which the job goes on, so
 * that ranks still waiting for it to join stop waiting: rank 0 waits for all others, and they wait
 * for rank 0. */
void rank_env_notify_end(rank_env *e, int r, int signal);
/* The report of rank r, which has ended, as report_read returns it. */
kolo_status rank_env_read_report(rank_env *e, int r, kolo_status *reported, char **text);
/* A zeroed object is allowed. */
void rank_env_close(rank_env *e);

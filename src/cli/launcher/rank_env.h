#pragma once
/* What the launcher gives its ranks: environment, secret, listening socket, report pipe. */

#include "base/process.h"
#include "cli/launcher/launch.h"

enum { RANK_ENV_FDS = 4 }; /* at most this many descriptors go to a rank */

typedef struct rank_env {
    const launch_opts *opts;
    kolo_env vars; /* of the rank asked for last */
    int secret_fd, listen_fd;
    int report_fds[2]; /* of the rank asked for last */
    int ended_fds[2];  /* rank 0 reads from it which ranks have ended well */
    int leader_fds[2]; /* the other ranks see its end when rank 0 has */
    int *reports;      /* reading ends, one per rank; NULL when nobody reports */
} rank_env;

kolo_status rank_env_open(rank_env *e, const launch_opts *opts);
/* Fills e->vars for rank r and the descriptors that it must inherit. */
kolo_status rank_env_prepare(rank_env *e, int r, int keep[RANK_ENV_FDS], int *n_keep);
/* Closes the launcher's copies of what ranks have inherited. */
void rank_env_close_inherited(rank_env *e);
/* Tells the ranks that wait for rank r, as rank 0 does for all and all for rank 0, that it has
 * ended well: if it has not joined the group it will not any more. */
void rank_env_notify_exit(rank_env *e, int r);
/* What rank r, which has ended, reported: KOLO_OK and NULL when nothing. The text is for
 * kolo_free. */
kolo_status rank_env_read_report(rank_env *e, int r, kolo_status *reported, char **text);
/* A zeroed one is allowed. */
void rank_env_close(rank_env *e);

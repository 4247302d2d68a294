#pragma once
/* What the launcher gives its ranks: environment, secret, listening socket, report pipe. */

#include "base/process.h"
#include "cli/launcher/launch.h"

enum { CONTRACT_FDS = 4 }; /* at most this many descriptors go to a rank */

typedef struct contract {
    const launch_opts *opts;
    kolo_env env; /* of the rank asked for last */
    int secret_fd, listen_fd;
    int report_fds[2]; /* of the rank asked for last */
    int ended_fds[2];  /* rank 0 reads from it which ranks have ended well */
    int leader_fds[2]; /* the other ranks see its end when rank 0 has */
    int *reports;      /* reading ends, one per rank; NULL when nobody reports */
} contract;

kolo_status contract_open(contract *c, const launch_opts *opts);
/* Fills c->env for rank r and the descriptors that it must inherit. */
kolo_status contract_of_rank(contract *c, int r, int keep[CONTRACT_FDS], int *n_keep);
/* Closes the launcher's copies of what ranks have inherited. */
void contract_close_shared(contract *c);
/* Tells the ranks that wait for rank r, as rank 0 does for all and all for rank 0, that it has
 * ended well: if it has not joined the group it will not any more. */
void contract_tell_end(contract *c, int r);
/* What rank r, which has ended, reported: KOLO_OK and NULL when nothing. The text is for
 * kolo_free. */
kolo_status contract_read_report(contract *c, int r, kolo_status *reported, char **text);
/* Zeroed contracts are allowed. */
void contract_close(contract *c);

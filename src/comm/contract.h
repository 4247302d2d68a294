#pragma once
/* A rank's place in its job: from options, or from the environment that launchers set. */

#include "base/base.h"
#include "kolo/comm.h"

typedef struct kolo_contract {
    int rank, world, local_rank, local_world;
    const char *master_addr; /* of the options or the environment: not copied */
    int master_port;
    const char *secret_file; /* NULL: none, which `insecure` allows */
    bool insecure;
    uint64_t host; /* equal where ranks can share memory */
    int listen_fd; /* rank 0's listening socket from the launcher, or -1 */
    int ended_fd;  /* rank 0's pipe from the launcher, or -1: see contract.c */
} kolo_contract;

/* Reads and checks it. Contradictions and missing parts are ARG. */
kolo_status kolo_contract_read(const kolo_comm_opts *opts, kolo_contract *contract);

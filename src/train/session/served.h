#pragma once
/* Steps with parameter servers: a worker computes gradients, pushes them to the owners of the
 * parameters, and pulls what these have made of them. Owners are the workers themselves, each of a
 * part, or ranks of their own (docs/servers.md). */

#include "kolo/parameters.h"
#include "train/session/memory_check.h"
#include "train/session/session.h"
#include "train/session/tables.h"

typedef struct kolo_served kolo_served;

/* Where the run is, and who takes part. */
typedef struct kolo_served_opts {
    kolo_comm *world; /* workers, then servers */
    int servers;      /* 0: each worker owns a part */
    int64_t steps;    /* made before; that of rank 0 counts */
    int64_t updates;  /* made before, on rank 0; 0: follows from the steps */
    kolo_lr schedule;
    const char *record, *replay; /* as in kolo_parameters_opts; on servers */
    int replicas, joins;         /* the same */
    kolo_memory_need need;       /* of a worker, but for `served` */
} kolo_served_opts;

/* Connects workers and owners. A worker passes its session, whose parameters on rank 0 are the
 * initial ones; a server passes NULL. Collective over `world`; `status` is an error of this rank
 * so far, with which all fail. PEER, TIMEOUT, UNSUPPORTED; NOMEM, as of kolo_check_memory; ARG:
 * layouts differ. */
kolo_status kolo_served_create(const kolo_session_config *config, const kolo_served_opts *opts,
                               kolo_session *session, kolo_status status, kolo_served **served);
/* A server: waits until all workers have ended. PEER: one was lost. */
kolo_status kolo_served_wait(kolo_served *served);
/* A server: whether they have within `timeout_ms`. */
bool kolo_served_ended(kolo_served *served, int64_t timeout_ms);
/* A server: asks the workers to end the run, see kolo_parameters_stop. PEER, TIMEOUT. */
kolo_status kolo_served_stop(kolo_served *served);
/* Waits for all workers if this rank owns a part, unless it is abandoned. */
void kolo_served_destroy(kolo_served *served);
/* After an error of this rank, the last one: the others get it, too. */
void kolo_served_abandon(kolo_served *served);
/* Copies the values of the owners, and their optimizer state, to the session. */
kolo_status kolo_served_read_all(kolo_served *served, kolo_session *session);
/* Of rank 0: a learning rate and a number of steps for all owners, as in kolo_owner_settings. ARG,
 * PEER, TIMEOUT. */
kolo_status kolo_served_configure(const kolo_served *served, double lr, int64_t steps);
/* As kolo_session_assign, on each worker, before they go on together. */
kolo_status kolo_served_assign(kolo_served *served, const kolo_session *session, int64_t updates,
                               int64_t steps);
/* Reads the values of the owners into the session: this worker alone, unless it has a group. */
kolo_status kolo_served_pull(kolo_served *served, const kolo_session *session);
/* Of a worker with rounds: its own version of the parameters is kept while the session has that of
 * the owners. */
void kolo_served_keep(kolo_served *served, const kolo_session *session);
void kolo_served_restore(const kolo_served *served, const kolo_session *session);
/* Of this worker: see kolo_parameters_count_reads and kolo_parameters_count_delays. */
void kolo_served_count_reads(const kolo_served *served, uint64_t *counts);
void kolo_served_count_delays(const kolo_served *served, uint64_t *counts);
uint64_t kolo_served_count_parts(const kolo_served *served);
void kolo_served_count_bytes(const kolo_served *served, uint64_t *sent, uint64_t *received);
/* See kolo_parameters_has_lost. */
bool kolo_served_has_lost(const kolo_served *served, int server);
/* Waits for the other workers: see kolo_parameters_barrier. */
kolo_status kolo_served_barrier(kolo_served *served, bool *asked, bool *any);
/* The session gets the sum of the errors of all workers' codes; nothing where each keeps its own.
 * Another barrier must follow. PEER, TIMEOUT; the error of the session's device. */
kolo_status kolo_served_sum_residuals(kolo_served *served, const kolo_session *session);
/* As kolo_session_lost. */
int64_t kolo_served_lost(const kolo_served *served, int worker);

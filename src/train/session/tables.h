#pragma once
/* Embedding tables whose rows are at servers (kolo/table.h), in a run with parameter servers.
 *
 * The graphs of such a run have inputs in place of the tables (pass/tables.c): the rows of the
 * ids of a batch. A worker pulls them before the forward pass, and pushes their gradients after the
 * backward pass. Owners update rows by the kernels of row-sparse gradients, as the plans of
 * --sparse-embedding do. */

#include "kolo/table.h"
#include "train/session/session.h"

typedef struct kolo_tables kolo_tables;

typedef struct kolo_tables_opts {
    kolo_comm *world; /* workers, then servers */
    int servers;      /* 0: each worker owns a part */
    int replicas;     /* as in kolo_table_opts */
    int64_t steps;    /* made before */
    kolo_lr schedule;
} kolo_tables_opts;

/* Finds the tables of the model. Collective over `world`, on workers and servers. UNSUPPORTED: an
 * optimizer that changes rows without a gradient; NOMEM. */
kolo_status kolo_tables_find(const kolo_session_config *config, const kolo_tables_opts *opts,
                             kolo_tables **tables);
/* About the memory that this rank needs for those that were found, in this run. */
size_t kolo_tables_needs(kolo_tables *d, const kolo_session_config *config,
                         const kolo_tables_opts *opts);
/* Creates them, without rows, with the options they were found with. Collective. The errors of
 * kolo_table_create. */
kolo_status kolo_tables_open(kolo_tables *d, const kolo_session_config *config,
                             const kolo_tables_opts *opts);
/* Waits for all workers if this rank owns rows, unless it is abandoned. NULL is allowed. */
void kolo_tables_destroy(kolo_tables *d);
void kolo_tables_abandon(kolo_tables *d);

/* Pulls the rows of a checked batch; `train`: as new as the policy demands, else as they are.
 * `field_of`: by input of the session. PEER, TIMEOUT, NOMEM. */
kolo_status kolo_tables_pull(kolo_tables *d, const kolo_batch *batch, const int *field_of,
                             bool train);
/* Begins to read the rows of the next batch, for the pull of that batch. PEER, NOMEM. */
kolo_status kolo_tables_prefetch(kolo_tables *d, const kolo_batch *batch, const int *field_of);
/* The reads that pulls have taken so. */
uint64_t kolo_tables_count_ahead(const kolo_tables *d);
/* Copies the rows that were pulled for input i of the session. */
void kolo_tables_feed(const kolo_tables *d, int input, void *to);
/* Pushes the gradients of these rows, which the plan has computed; NULL: this worker had no
 * samples. */
kolo_status kolo_tables_push(kolo_tables *d, const kolo_plan *plan);
/* Waits until all pushes of this worker are in, and drops what is read ahead. */
kolo_status kolo_tables_flush(kolo_tables *d);
/* Writes the rows of all tables after `steps` steps to a file, owner by owner: NAME.ids, i64 [n],
 * and NAME.rows, f32 [n,C]. In memory they are there twice for a moment. While no worker pushes and
 * no copy is being written. IO, NOMEM, PEER, TIMEOUT. */
kolo_status kolo_tables_save(kolo_tables *d, const char *path, int64_t steps);
/* A file of everything that a run goes on from after `steps` steps: rows, states, ages and
 * versions, and the ids that wait for their rows. Begun while no worker pushes and no other copy is
 * written: owners mark what they have. It is written, and then finished, by any thread while
 * workers push; after that it has its name, and is durable. IO, NOMEM, PEER, TIMEOUT; FORMAT: a
 * worker pushes, or `write` finds what was marked no more; PEER of `write`: a server is lost, with
 * what it has marked.
 */
kolo_status kolo_tables_copy_begin(kolo_tables *d, const char *path, int64_t steps,
                                   kolo_tables_copy **copy);
kolo_status kolo_tables_copy_write(kolo_tables_copy *copy);
kolo_status kolo_tables_copy_finish(kolo_tables_copy *copy);
/* Removes a file that is not finished. NULL is allowed. */
void kolo_tables_copy_destroy(kolo_tables_copy *copy);
/* Verifies that a file of rows is intact, and of that step. IO, FORMAT, NOMEM. */
kolo_status kolo_tables_check(const char *path, int64_t steps);
/* Gives its rows to their owners, however many there are. While no worker pushes. IO, NOMEM, PEER,
 * TIMEOUT; FORMAT: it has other tables. */
kolo_status kolo_tables_read(kolo_tables *d, const char *path);
/* Sums over the tables. */
kolo_status kolo_tables_stats(kolo_tables *d, kolo_table_stats *stats);

#pragma once
/* A table of rows on servers: embeddings of ids that no vocabulary lists.
 *
 * Rows of floats are known by 64-bit ids, such as hashes of a feature and its value. Each server
 * owns the rows of some ids, by a hash of the id. A row is created with the first gradient
 * that is pushed for its id; until then it has an initial value, which is drawn by its id, so that
 * a read changes nothing. In each step a worker pulls the rows of the ids in its batch, computes
 * their gradients, and pushes these:
 *
 *     KOLO_TRY(kolo_table_create(comm, &opts, &table));
 *     for (...) {
 *         KOLO_TRY(kolo_table_pull(table, ids, n, rows));
 *         ...                                              // gradients of the rows
 *         KOLO_TRY(kolo_table_push(table, ids, n, gradients));
 *     }
 *     KOLO_TRY(kolo_table_finish(table));
 *
 * The owner updates rows with the program's own rule, which has a part of the memory for the state
 * of each row, such as moments. An owner never has more rows than fit into `bytes`. Clocks and
 * policies are those of kolo/parameters.h, of the table alone: dense parameters may be synchronous
 * while rows are not (docs/servers.md).
 *
 * Functions are called by one thread of a rank at a time; kolo_table_save_rows and
 * kolo_table_save_end may be called by another one meanwhile. */

#include "kolo/parameters.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kolo_table kolo_table;

enum { KOLO_TABLE_STATES = 4 };  /* of a row, at most */
enum { KOLO_TABLE_CHUNK = 256 }; /* rows of a call of `update`, at most */

/* The values of a row at first. */
typedef enum kolo_table_initial {
    KOLO_TABLE_ZEROS,
    KOLO_TABLE_UNIFORM, /* in [-scale, scale) */
    KOLO_TABLE_NORMAL,  /* with a standard deviation of `scale` */
} kolo_table_initial;

/* Rows whose gradients an owner has: what it does with them changes `values` and `state` in place.
 * Row i is at slots[i] of these arrays. */
typedef struct kolo_table_update {
    float *values;                   /* [slots][width] */
    float *state[KOLO_TABLE_STATES]; /* as many as the options have, each [slots][width]; a new row
                                        has zeros */
    const int32_t *slots;            /* [n], and then -1 if n is less than KOLO_TABLE_CHUNK */
    const float *gradients;          /* [n][width]: one worker's, or with bsp the sum of all */
    size_t n, width;
    int workers;      /* how many workers' gradients the push or step has */
    int worker;       /* whose they are; bsp: -1 */
    uint64_t clock;   /* at which they were computed, from 0 */
    uint64_t version; /* of the table, from 1: equal in all calls of one push or step */
} kolo_table_update;

/* A zero field takes its default. All ranks pass the same numbers. */
typedef struct kolo_table_opts {
    const char *name; /* of its random numbers, and in errors; default "table"; copied */
    size_t width;     /* floats of a row */
    int states;       /* floats of its state, by `width` */
    uint64_t seed;    /* with the name, the id and the column this makes an initial value */
    kolo_table_initial initial;
    double scale;
    size_t bytes;    /* that the rows of an owner take, with their states, their ids and the index;
                        default 1 GiB */
    bool refuse;     /* without room an id gets no row, instead of that of the id whose latest
                        gradient is the oldest */
    uint32_t admit;  /* an id gets its row with its admit-th push, and the gradients of those
                        before are dropped; default 1 */
    uint64_t expire; /* a row is removed that this many updates in a row have not changed; default:
                        none is */
    int64_t expire_ms; /* the same for a time, up to 1/64 longer, at the next update of its owner; a
                          row that was restored counts as changed then; default: none is */
    size_t batch;      /* ids of a pull or push, at most; default 65536 */
    int servers;       /* as in kolo_parameters_opts, and so are the following */
    int staleness;
    bool needs_all;
    /* 1: the next server has a replica of the rows of each, which is the first to take each push;
     * if a server is lost, its rows continue from there. It needs 2 servers, each of which has
     * `bytes` twice, and calls the function below for both. Rows that expire by time may do so a
     * little earlier or later in a replica. 0: the loss of a server makes requests fail. */
    int replicas;
    /* Called at the owner, in the service's thread. Required there. */
    void (*update)(void *arg, const kolo_table_update *update);
    void *arg;
    int64_t timeout_ms;
} kolo_table_opts;

/* What the owners have seen: sums over all of them, but for `version`. */
typedef struct kolo_table_stats {
    uint64_t rows;      /* that there are */
    uint64_t room;      /* rows that fit */
    uint64_t waiting;   /* ids that have been pushed, and have no row yet */
    uint64_t version;   /* updates, of the owner that has seen most */
    uint64_t gradients; /* of ids, in all updates */
    uint64_t created;   /* rows that came into being by gradients */
    uint64_t restored;  /* rows that kolo_table_load_rows has added */
    uint64_t early;     /* gradients that were dropped before the admit-th push of their id */
    uint64_t refused;   /* gradients that were dropped since there was no room */
    uint64_t evicted;   /* rows that made room for others */
    uint64_t expired;   /* rows that were removed since nothing had changed them */
    uint64_t forgotten; /* waiting ids that made room for others, or expired */
} kolo_table_stats;

/* Creates the table of a group. A collective call; blocks. Destroy it before `comm`. ARG: invalid
 * options, or `bytes` for less than one row; NOMEM; the errors of kolo_service_create. */
KOLO_API kolo_status kolo_table_create(kolo_comm *comm, const kolo_table_opts *opts,
                                       kolo_table **table);
/* Finishes, if that was not done, and frees it. A rank that owns rows first waits until all workers
 * have finished or are lost. NULL is allowed. Blocks. */
KOLO_API void kolo_table_destroy(kolo_table *table);
/* After an error of this rank: kolo_table_destroy then does not wait, and this rank is lost to the
 * others, whose errors have the text of this thread's last error. */
KOLO_API void kolo_table_abandon(kolo_table *table);
/* Whether this rank is a worker. */
KOLO_API bool kolo_table_works(const kolo_table *table);

/* Reads the rows of ids [n] into `rows` [n][width], as new as the policy demands. Ids may occur
 * several times. A worker. Blocks. ARG: more ids than a batch has; PEER: an owner is lost; TIMEOUT.
 */
KOLO_API kolo_status kolo_table_pull(kolo_table *table, const uint64_t *ids, size_t n, float *rows);
/* The same in two calls, with other work between them; at most one such read at a time. The policy
 * is that of the clock at kolo_table_pull_start. The ids are read before it returns. */
KOLO_API kolo_status kolo_table_pull_start(kolo_table *table, const uint64_t *ids, size_t n);
KOLO_API kolo_status kolo_table_pull_wait(kolo_table *table, float *rows);
/* Sends the gradients [n][width] of the rows of ids [n] to their owners, and advances this worker's
 * clock. Those of equal ids are added, in their order. Waits for this worker's push before, but not
 * for the update by this one; ids and gradients have been copied when it returns. A worker pushes
 * in each step, if need be no ids. ARG: as kolo_table_pull; after the end; PEER; TIMEOUT. */
KOLO_API kolo_status kolo_table_push(kolo_table *table, const uint64_t *ids, size_t n,
                                     const float *gradients);
/* Waits until the owners have taken this worker's latest push: with bsp, those of all workers.
 * Blocks. PEER; TIMEOUT. */
KOLO_API kolo_status kolo_table_flush(kolo_table *table);
/* As kolo_table_pull, but reads rows as they are, without regard to clocks; also on ranks that only
 * serve, while there are workers: a server without them leaves. */
KOLO_API kolo_status kolo_table_read(kolo_table *table, const uint64_t *ids, size_t n, float *rows);
/* Waits for this worker's latest push and leaves: no worker waits for it any longer. Blocks. PEER;
 * TIMEOUT. */
KOLO_API kolo_status kolo_table_finish(kolo_table *table);
/* Sums up what the owners have seen. Any rank. Blocks. PEER; TIMEOUT. */
KOLO_API kolo_status kolo_table_stats_get(kolo_table *table, kolo_table_stats *stats);
/* Adds what the owners of a table have seen to a sum. */
KOLO_API void kolo_table_stats_add(kolo_table_stats *sum, const kolo_table_stats *stats);
/* The reads of this worker by staleness: adds them to counts[KOLO_STALENESS_BINS]. */
KOLO_API void kolo_table_count_reads(const kolo_table *table, uint64_t *counts);

/* Rows of an owner, to be saved and restored, in the order of their latest gradients, and then the
 * ids that wait for their rows, in the same order. */
typedef struct kolo_table_rows {
    size_t n;
    uint64_t *ids;    /* [n] */
    uint64_t *ages;   /* [n]: updates since the latest gradient */
    float *values;    /* [n][(1 + states) * width]: the values of a row, and then its states */
    uint32_t *pushes; /* [n]: 0; or of an id that waits for its row, its pushes so far, without
                         values. NULL: such ids are left out */
    uint64_t version; /* of the table */
} kolo_table_rows;

/* Begins to save the rows that there are now, while workers go on: what changes from then on does
 * not change what is saved. `stats`: sums of this moment, which has no push in part if no worker
 * pushes meanwhile. Owners keep the rows that change before they are saved in up to a quarter more
 * memory than `bytes`; without room there pushes wait. One rank saves at a time; it ends what it
 * has begun before. Any rank. Blocks. NOMEM; PEER; TIMEOUT. */
KOLO_API kolo_status kolo_table_save_begin(kolo_table *table, kolo_table_stats *stats);
/* Fills `rows`, whose arrays have room for `most` rows, with the next rows of owner `owner` that
 * are to be saved; *more: there may be others. The thread may be another one than that of the other
 * functions. Blocks. ARG: no save has begun, there is no such owner, or `most` is 0 or more than a
 * batch has; PEER: its server is lost, and so are the rows to be saved; FORMAT: another rank saves;
 * TIMEOUT. */
KOLO_API kolo_status kolo_table_save_rows(kolo_table *table, int owner, size_t most, bool *more,
                                          kolo_table_rows *rows);
/* Ends a save, after all rows or before: a save that fails must end, as pushes may wait for it. The
 * thread may be that of kolo_table_save_rows. Nothing happens if none has begun. Blocks. */
KOLO_API void kolo_table_save_end(kolo_table *table);
/* Sets rows, with the largest ages first, at their owners, whichever owners they came from. What
 * does not fit is treated like a gradient that needs a row. Meanwhile no worker pushes, and no rows
 * are saved. Any rank. Blocks. ARG: more rows than a batch has ids, or a rank saves; PEER; TIMEOUT.
 */
KOLO_API kolo_status kolo_table_load_rows(kolo_table *table, const kolo_table_rows *rows);

#ifdef __cplusplus
}
#endif

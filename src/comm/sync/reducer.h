#pragma once
/* The state of a reducer (kolo/reducer.h), shared by reducer.c (buckets, steps), reducer_agree.c
 * (comparison of the ranks at creation), reducer_exchange.c and reducer_join.c (ranks without
 * further data). */

#include "comm/engine/comm.h"
#include "kolo/reducer.h"

typedef enum kolo_reducer_method {
    KOLO_REDUCE_IN_PLACE,
    KOLO_REDUCE_COPY,
    KOLO_REDUCE_HALF,
    KOLO_REDUCE_CODES
} kolo_reducer_method;

typedef struct kolo_reducer_bucket {
    int first, n;    /* buffers order[first .. first + n) */
    int ready;       /* number of them that are ready in this step */
    size_t count;    /* elements */
    char *data;      /* [count]: the copy; in the segment unless it is encoded; NULL in place */
    float *residual; /* [count]: error feedback of a codec */
    char *codes;     /* of this rank (half), of all ranks (codes); in the segment */
    size_t data_bytes, codes_bytes, code_bytes; /* blocks; one rank's code */
    kolo_request *request;
} kolo_reducer_bucket;

struct kolo_reducer {
    kolo_comm *comm;
    kolo_reducer_opts opts;
    kolo_dtype dtype;
    size_t element_bytes;
    kolo_reducer_method method;
    int n;
    kolo_part *buffers;
    size_t *offsets; /* [n]: of each buffer in its bucket, elements */
    int *order;      /* [n]: buffers in the order of buckets */
    int *bucket_of;  /* [n] */
    bool *ready;     /* [n] */
    int *arrived;    /* [n]: buffers in the order in which they became ready in this step */
    int n_arrived;
    kolo_reducer_bucket *buckets;
    int n_buckets, started; /* buckets [0, started) are in flight or complete */
    bool ordered;           /* the order is that of rank 0's first step */

    /* With the option `join`: which ranks have no data left. */
    kolo_request *exchange; /* gathers `ended` in each step */
    uint8_t own_ended;
    uint8_t *ended, *ended_before; /* [size]: in this step, in the step before */
};

/* Breaks the communicator with the last error: the other ranks wait for this one, or will. */
kolo_status kolo_reducer_fail(const kolo_reducer *r, kolo_status status);
/* Compares what the ranks give; `status` is that of this rank's arguments. Buffers that are
 * registered on all ranks are reduced in place. */
kolo_status kolo_reducer_agree(kolo_reducer *r, kolo_status status);

/* ---- with the option `join` (reducer_exchange.c); without it they do nothing ---- */

/* Creates the exchange, after the buckets. NOMEM. */
kolo_status kolo_reducer_open_exchange(kolo_reducer *r);
void kolo_reducer_close_exchange(kolo_reducer *r);
/* Starts it, after the buckets of a step; waits for it. */
kolo_status kolo_reducer_start_exchange(kolo_reducer *r);
kolo_status kolo_reducer_finish_exchange(kolo_reducer *r);

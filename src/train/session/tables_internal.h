#pragma once
/* The tables of a run, as the files that implement them see them. */

#include "kernel/select/select.h"
#include "train/session/tables.h"

enum { KOLO_TABLES_MOST = 8 };

/* Runs the kernel that updates rows. */
typedef struct kolo_row_updater {
    kolo_kernel_spec spec;
    kolo_attr attr[KOLO_MAX_ATTRS];
    const kolo_kernel *kernel;
    kolo_call call;
    float lr, update;
    int64_t steps;
    kolo_lr schedule;
} kolo_row_updater;

/* The ids of a batch that exist. */
typedef struct kolo_batch_ids {
    size_t n, n_positions, capacity;
    uint64_t *numbers;   /* [n]: the ids */
    uint32_t *positions; /* [n]: of the batch */
} kolo_batch_ids;

typedef struct kolo_served_table {
    kolo_table *rows_at; /* the table */
    char *name;
    int input, ids;        /* of the session: the rows, and the ids */
    int32_t value;         /* of the graph: the rows */
    int64_t height, width; /* ids that there are; floats of a row */
    int64_t length;        /* ids of a sample */
    size_t batch;          /* ids of a pull or push */
    kolo_init init;
    kolo_row_updater updater; /* at owners */
    kolo_batch_ids now;       /* of the batch that was pulled */
    size_t capacity;          /* positions */
    float *compact;           /* [n][width]; where some positions have no id */
    float *rows;              /* [n_positions][width] */
    kolo_batch_ids next;      /* whose rows are being read, if `ahead` */
    bool ahead;
    uint64_t n_ahead; /* reads that were used */
} kolo_served_table;

struct kolo_tables {
    int n, owners;
    bool abandoned;
    kolo_served_table tables[KOLO_TABLES_MOST];
};

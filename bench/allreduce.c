/* A rank of the allreduce benchmark, started by kolo run or any launcher that sets the rank
 * environment:
 *
 *     bench_allreduce ALGORITHM registered|private clean|dirty BUDGET_MS BYTES...
 *
 * Rank 0 prints a line per size: bytes, median and minimum in us. */
#include <kolo/bench.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZES_MOST = 32 };

static kolo_status run(int argc, char **argv) {
    size_t sizes[SIZES_MOST];
    kolo_bench_row rows[SIZES_MOST];
    int n = 0, n_rows = SIZES_MOST;
    kolo_bench_allreduce_opts opts = {.private_buffers = strcmp(argv[2], "private") == 0,
                                      .dirty = strcmp(argv[3], "dirty") == 0,
                                      .budget_ms = atoll(argv[4]),
                                      .sizes = sizes};
    for (; n < SIZES_MOST && 5 + n < argc; n++) sizes[n] = (size_t)atoll(argv[5 + n]);
    opts.n_sizes = n;
    kolo_comm *comm;
    kolo_status status = kolo_algorithm_parse(argv[1], &opts.algorithm);
    if (status == KOLO_OK) status = kolo_comm_create(NULL, &comm);
    if (status != KOLO_OK) return status;
    status = kolo_bench_allreduce(comm, &opts, rows, &n_rows);
    if (status == KOLO_OK && kolo_comm_rank(comm) == 0) {
        printf("# kolo %s %s %s %s\n", kolo_version(), argv[1], argv[2], argv[3]);
        for (int i = 0; i < n_rows; i++) {
            printf("%zu %.3f %.3f\n", rows[i].bytes, rows[i].us_median, rows[i].us_min);
        }
    }
    kolo_comm_destroy(comm);
    return status;
}

int main(int argc, char **argv) {
    if (argc < 6) {
        fprintf(stderr, "usage: %s ALGORITHM registered|private clean|dirty BUDGET_MS BYTES...\n",
                argv[0]);
        return 2;
    }
    if (run(argc, argv) == KOLO_OK) return 0;
    fprintf(stderr, "%s: %s\n", argv[0], kolo_last_error());
    return 1;
}

/* MPI_Allreduce, in-place float sum, measured as kolo_bench_allreduce does: per size a barrier,
 * the timed call, the maximum over ranks, the median over iterations.
 *
 *     mpicc -O2 mpi_allreduce.c -o mpi_allreduce
 *     mpirun -n 2 ./mpi_allreduce BUDGET_SECONDS BYTES...
 *
 * Rank 0 prints a line per size: bytes, median and minimum in us; first the library and its
 * version. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ITERATIONS_MOST = 20000 };

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* One size; `slowest` gets the sorted times of rank 0. */
static int measure(float *data, int count, double budget, double *slowest) {
    static double own[ITERATIONS_MOST];
    int n = 0, stop = 0;
    double end = 0;
    for (int i = -4; !stop; i++) {
        if (i == 0) end = MPI_Wtime() + budget;
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        double seconds = MPI_Wtime() - start;
        if (i >= 0) own[n++] = seconds * 1e6;
        if (i >= 0 && n % 8 == 0) {
            stop = (n >= 16 && MPI_Wtime() > end) || n + 8 > ITERATIONS_MOST;
            MPI_Bcast(&stop, 1, MPI_INT, 0, MPI_COMM_WORLD);
        }
    }
    MPI_Reduce(own, slowest, n, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    return n;
}

int main(int argc, char **argv) {
    static double slowest[ITERATIONS_MOST];
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int rank, length;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Get_library_version(version, &length);
    version[strcspn(version, ",\n")] = '\0';
    if (rank == 0) printf("# %s\n", version);
    for (int i = 2; i < argc; i++) {
        long bytes = atol(argv[i]);
        float *data = aligned_alloc(4096, ((size_t)bytes + 4095) / 4096 * 4096);
        memset(data, 0, (size_t)bytes);
        int n = measure(data, (int)(bytes / 4), atof(argv[1]), slowest);
        if (rank == 0) {
            qsort(slowest, (size_t)n, sizeof slowest[0], ascending);
            printf("%ld %.3f %.3f\n", bytes, slowest[n / 2], slowest[0]);
            fflush(stdout);
        }
        free(data);
    }
    MPI_Finalize();
}

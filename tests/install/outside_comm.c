/* A program that takes the collectives only: sums a vector over the ranks that it was started on.
 */
#include <kolo/comm.h>

#include <stdio.h>
#include <string.h>

static int fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, kolo_last_error());
    return 1;
}

int main(void) {
    kolo_comm *comm;
    if (kolo_comm_create(NULL, &comm) != KOLO_OK) return fail("create");
    int size = kolo_comm_size(comm), rank = kolo_comm_rank(comm);
    float data[3] = {1, (float)rank, 10};
    if (kolo_allreduce(comm, data, 3, KOLO_DTYPE_F32, KOLO_SUM) != KOLO_OK)
        return fail("allreduce");
    kolo_comm_destroy(comm);
    const float want[3] = {(float)size, (float)(size * (size - 1)) / 2, 10 * (float)size};
    if (memcmp(data, want, sizeof data) != 0) {
        fprintf(stderr, "rank %d: wrong sum %g %g %g\n", rank, data[0], data[1], data[2]);
        return 1;
    }
    printf("kolo %s: rank %d of %d\n", kolo_version(), rank, size);
    return 0;
}

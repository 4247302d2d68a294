/* The only source that is compiled with OpenMP (cmake/KoloCompile.cmake). */
#include "kernel/parallel.h"

void kolo_kernel_parallel(int threads, int64_t n, kolo_kernel_loop loop, const void *job) {
    if (threads <= 1) {
        loop(job, 0, 0, n);
        return;
    }
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) schedule(static, 1)
#endif
    for (int part = 0; part < threads; part++) {
        loop(job, part, n * part / threads, n * (part + 1) / threads);
    }
}

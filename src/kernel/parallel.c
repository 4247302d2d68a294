/* The only source that is compiled with OpenMP (cmake/KoloCompile.cmake). */
#include "kernel/parallel.h"

void kolo_kernel_parallel(int threads, int64_t items, kolo_kernel_loop loop, const void *job) {
    if (threads <= 1) {
        loop(job, 0, 0, items);
        return;
    }
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) schedule(static, 1)
#endif
    for (int part = 0; part < threads; part++) {
        loop(job, part, items * part / threads, items * (part + 1) / threads);
    }
}

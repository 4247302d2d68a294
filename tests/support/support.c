/* Shared by all tests. */
#include "support/support.h"

#include <math.h>

static double ratio(double difference, double size) {
    return sqrt(difference) / (size > 1e-60 ? sqrt(size) : 1e-30);
}

double test_relative_l2_f32(const float *a, const float *b, size_t n) {
    double difference = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)a[i] - b[i];
        difference += d * d;
        size += (double)b[i] * b[i];
    }
    return difference == 0 ? 0 : ratio(difference, size);
}

double test_relative_l2_f64(const double *a, const double *b, size_t n) {
    double difference = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        double d = a[i] - b[i];
        difference += d * d;
        size += b[i] * b[i];
    }
    return difference == 0 ? 0 : ratio(difference, size);
}

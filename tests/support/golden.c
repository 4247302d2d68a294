#include "support/golden.h"

#include "support/support.h"

#include <math.h>

static double number_of(const json_t *object, const char *key, int i) {
    const json_t *number = json_array_get(json_object_get(object, key), (size_t)i);
    assert_true(json_is_number(number));
    return json_number_value(number);
}

void golden_check(const json_t *network, kolo_kernel_set kernels, const char *key, int i,
                  double got, golden_bound bound) {
    const double should = number_of(network, key, i);
    const double rounding = number_of(json_object_get(network, "rounding"), key, i);
    const double tolerance = bound.least + bound.times * rounding;
    if (fabs(got - should) <= tolerance * fmax(1, fabs(should))) return;
    fail_msg("%s, kernels %d: %s %d is %.9g, not %.9g within %.2g",
             json_string_value(json_object_get(network, "model")), kernels, key, i, got, should,
             tolerance);
}

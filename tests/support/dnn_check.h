#pragma once
/* What the tests of oneDNN kernels share. */
#include "support/kernel_check.h"

/* Runs a oneDNN kernel where it fits, compares it with the reference
 * kernel; fails the test when one of its primitives is a reference implementation of oneDNN.
 * Returns whether it fits. */
bool test_dnn_kernel(const char *name, kolo_kernel_spec *spec);

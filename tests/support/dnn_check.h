#pragma once
/* Shared by the tests of oneDNN kernels. */
#include "support/kernel_check.h"

/* Runs a oneDNN kernel if it fits the spec and compares it with the reference kernel. Fails the
 * test when one of its primitives is a reference implementation of oneDNN. Returns whether it fits.
 */
bool test_dnn_kernel(const char *name, kolo_kernel_spec *spec);

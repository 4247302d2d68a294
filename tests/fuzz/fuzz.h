#pragma once
/* A fuzz target: gives any bytes to a parser and asserts what must hold of what it makes of them.
 *
 * The same source is run by libFuzzer (preset fuzz, clang) and, in ordinary builds, by driver.c. */

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

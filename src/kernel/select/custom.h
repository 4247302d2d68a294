#pragma once
/* The kernel of all ops of a program (kolo/custom_op.h): calls the function of the op. */

#include "kernel/kernel.h"

/* Has no op of its own: fits every op that has a descriptor, in plain layouts. Unlike others its
 * `run` may fail: by setting the last error of the thread. */
extern const kolo_kernel kolo_custom_kernel;

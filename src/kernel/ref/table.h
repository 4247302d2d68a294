#pragma once
/* The table of ops and their reference kernels. A file src/op/NAME.c ends with its rows:
 *
 *     const kolo_kernel kolo_ops_NAME[] = {
 *         KOLO_REF_KERNEL("ref_lrn", &kolo_op_lrn, run_lrn),
 *         {.op = &kolo_op_flatten},
 *         {0},
 *     };
 *
 * The build lists the files of src/op/, and op/ops.c joins their rows. A row that has an op alone
 * is of a view, or of communication: no kernel runs it. In plans the kernels are called "ref_<op>".
 */

#include "kernel/kernel.h"

/* The reference kernel of an op; NULL: it has none. */
const kolo_kernel *kolo_reference_of(const kolo_op *op);
/* Reference kernel number i; NULL past the end. */
const kolo_kernel *kolo_reference_at(size_t i);

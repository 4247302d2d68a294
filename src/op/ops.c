/* The table of ops: the rows of all files of this folder (kernel/ref/table.h). CMake generates
 * KOLO_OP_FILES from the names of the files, a line ROWS(name) each. */
#include "graph/ops/ops.h"

#include "base/compiler.h"
#include "kernel/ref/table.h"

#define ROWS(file) extern const kolo_kernel kolo_ops_##file[];
#include KOLO_OP_FILES
#undef ROWS

#define ROWS(file) kolo_ops_##file,
static const kolo_kernel *const files[] = {
#include KOLO_OP_FILES
};
#undef ROWS

/* Row number i, of all rows or of those that have a kernel. */
static const kolo_kernel *row_at(size_t i, bool has_kernel) {
    for (size_t f = 0; f < KOLO_COUNT(files); f++) {
        for (const kolo_kernel *row = files[f]; row->op; row++) {
            if (has_kernel && !row->run) continue;
            if (i-- == 0) return row;
        }
    }
    return NULL;
}

const kolo_op *kolo_op_at(size_t i) {
    const kolo_kernel *row = row_at(i, false);
    return row ? row->op : NULL;
}

const kolo_kernel *kolo_reference_at(size_t i) { return row_at(i, true); }

const kolo_kernel *kolo_reference_of(const kolo_op *op) {
    for (size_t f = 0; f < KOLO_COUNT(files); f++) {
        for (const kolo_kernel *row = files[f]; row->op; row++) {
            if (row->op == op) return row->run ? row : NULL;
        }
    }
    return NULL;
}

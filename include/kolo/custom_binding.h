#pragma once
/* Ops of a program whose functions run in the interpreter of another language, such as Python. A
 * function may end there early, as by an exception of a signal handler before its first statement,
 * and a program may define an op of one name several times. */

#include "kolo/custom_op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* kolo_custom_op_register for such an op: `run` and `grad` also fail unless they call
 * kolo_custom_done. Several may have the same name. One attribute, at most the last of
 * KOLO_CUSTOM_ATTRS, follows those that `attrs` names: it states which functions the binding
 * calls, and may differ between ranks. ARG, UNSUPPORTED, NOMEM as there. */
KOLO_API kolo_status kolo_custom_bind(const kolo_custom_op *op);

/* kolo_custom for an op of kolo_custom_bind. attr [number of `attrs` + 1]. ARG as there. */
KOLO_API void kolo_custom_bound(kolo_graph *g, const kolo_custom_op *op, const kolo_value *in,
                                int n_in, const double *attr, kolo_value *out);

/* Called by `run` and `grad` when they have set their results; in the thread that called them. */
KOLO_API void kolo_custom_done(void);

#ifdef __cplusplus
}
#endif

#pragma once
/* An op of a program: the activation y = x + sin^2(alpha x) / alpha of x [N,C,...] with alpha [C]
 * (Ziyin et al., 2020), in f32 and f64. */
#include "kolo/custom_op.h"

/* Registers it and adds a node; `whole`: of an op without index notation. */
kolo_value snake_of(kolo_graph *g, kolo_value x, kolo_value alpha, bool whole);

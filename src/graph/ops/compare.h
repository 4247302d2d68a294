#pragma once
/* Comparisons of two values, with broadcasting as kolo_add: values without a gradient. */

#include "kolo/graph.h"

/* 1 where a < b, 1/2 where they are equal, else 0. */
kolo_value kolo_less(kolo_graph *g, kolo_value a, kolo_value b);
/* 1 where a and b are equal, else 0. */
kolo_value kolo_equal(kolo_graph *g, kolo_value a, kolo_value b);

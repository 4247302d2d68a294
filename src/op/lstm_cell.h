#pragma once
/* The gates of an LSTM, for the reference kernels of lstm and lstm_cell. Of each gate there are H
 * rows: input, forget, cell, output. */

#include <stdint.h>

enum { KOLO_LSTM_GATES = 4 };

/* One time step of a sample: the sums in gate[4H] become the gates, and give h and c [H]. `old` [H]
 * are the cells before; NULL: zero. */
void kolo_ref_lstm_step(double *gate, const double *old, int64_t hidden, double *h, double *c);
/* The gradients d[4H] of the sums of unit i in a time step with these gates, cell and cell before,
 * whose state has the gradient to_h. *dc is the gradient of the cell from the following step, and
 * then that of the cell before. */
void kolo_ref_lstm_unit_bwd(const double *gate, double c, double old, double to_h, int64_t hidden,
                            int64_t i, double *dc, double *d);

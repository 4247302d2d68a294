/* Clipping where each push is an update, and several owners have a part of each gradient: a worker
 * has the whole, and clips it before it pushes (docs/servers.md, norms). */
#include "train/session/served_internal.h"

#include <math.h>

/* Visits the gradients among the numbers of a push: adds up their squares and, unless `factor` is
 * 1, multiplies them before. */
static double scale_gradients(const kolo_served *d, float factor) {
    double squares = 0;
    for (int i = 0; i < kolo_division_parts(&d->division); i++) {
        float *at = d->pushed + d->pushed_at[i] + KOLO_SUMMED_HEAD;
        for (int row = 0; row < d->division.n_rows; row++) {
            const kolo_row_kind kind = kolo_division_kind(&d->division, row);
            if (!(KOLO_ROWS_PUSHED >> kind & 1)) continue;
            const size_t n = kolo_division_count(&d->division, row, i);
            for (size_t k = 0; k < n && kind == KOLO_ROW_GRADIENT; k++) {
                at[k] *= factor;
                squares += (double)at[k] * (double)at[k];
            }
            at += n;
        }
    }
    return squares;
}

void kolo_served_clip(const kolo_served *d) {
    static const double eps = 1e-6; /* as the op clip_factor has it */
    if (d->clip == 0) return;
    const double factor = d->clip / (sqrt(scale_gradients(d, 1)) + eps);
    if (factor < 1) (void)scale_gradients(d, (float)factor);
}

#pragma once
/* The loss of a run as a picture. */

#include "kolo/status.h"

/* Draws the training and test losses in the lines of `metrics`, a file of metrics.jsonl, over the
 * steps and writes the picture as SVG to `path`; nothing without a training loss. IO, NOMEM. */
kolo_status kolo_loss_curve_write(const char *metrics, const char *path);

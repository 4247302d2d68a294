#pragma once
/* Metrics as text. */

#include "base/text.h"
#include "kolo/metric.h"

static inline void metric_add_value(kolo_text *t, const kolo_metric *m, double value) {
    kolo_text_add(t, m->format == KOLO_METRIC_DIGITS ? "%.4g" : "%.4f", value);
}

/* Scalars of a report. */
#include "train/record/scalars.h"

#include <math.h>

/* `empty`: of no samples, which have no loss. */
static void add_metrics(const char *group, const kolo_metrics *metrics, bool empty,
                        kolo_scalar_fn *add, void *arg) {
    const kolo_metric *m = kolo_metric_table();
    for (int i = 0; m[i].name; i++) {
        if ((i != KOLO_METRIC_LOSS || empty) && isnan(metrics->value[i])) continue;
        add(arg, group, m[i].name, -1, metrics->value[i]);
    }
}

static void add_times(const kolo_time_report *times, kolo_scalar_fn *add, void *arg) {
    if (times->steps == 0) return;
    for (int i = 0; i < KOLO_TIMES; i++) {
        add(arg, "ms_per_step", kolo_time_name((kolo_time)i), -1, times->mean.ms[i]);
    }
    if (times->ranks == 1) return;
    add(arg, "workers", "slowest_rank", -1, times->slowest);
    for (int r = 0; r < times->ranks; r++) {
        add(arg, "workers", "idle_ms", r, times->by_rank[r].ms[KOLO_TIME_IDLE]);
    }
}

void kolo_scalars_of(const kolo_train_progress *p, kolo_scalar_fn *add, void *arg) {
    add_metrics(p->epoch_end ? "epoch" : "train", &p->train, p->samples == 0, add, arg);
    if (p->evaluated) add_metrics("test", &p->test, false, add, arg);
    add(arg, "progress", "epoch", -1, (double)p->epoch);
    add(arg, "progress", "step", -1, (double)p->step);
    add(arg, "progress", "lr", -1, p->lr);
    add(arg, "progress", "samples_per_second", -1, p->samples_per_second);
    if (p->damaged > 0) add(arg, "progress", "damaged_samples", -1, (double)p->damaged);
    if (!p->epoch_end) add_times(&p->times, add, arg);
}

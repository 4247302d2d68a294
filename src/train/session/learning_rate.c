/* Learning-rate schedules. */
#include "train/session/learning_rate.h"

#include "base/integer.h"
#include "base/status.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

kolo_lr kolo_lr_make(const kolo_train_opts *opts, int64_t global_batch, int64_t epoch_steps,
                     int64_t total) {
    double scale = opts->scale_lr > 0 ? (double)global_batch / (double)opts->scale_lr : 1;
    int64_t warmup = (int64_t)llround(opts->warmup_epochs * (double)epoch_steps);
    return (kolo_lr){
        .kind = opts->schedule,
        .start = scale > 1 ? opts->lr : 0,
        .lr = opts->lr * scale,
        .lr_min = opts->lr_min,
        .power = opts->lr_power,
        .step_factor = opts->lr_step_factor,
        .step_every = opts->lr_step_epochs * epoch_steps,
        .warmup = kolo_min_i64(warmup, total),
        .total = total,
    };
}

double kolo_lr_at(const kolo_lr *s, int64_t k) {
    if (k < s->warmup) {
        return s->start + (s->lr - s->start) * (double)(k + 1) / (double)s->warmup;
    }
    int64_t falls = k / s->step_every;
    switch (s->kind) {
    case KOLO_LR_CONSTANT:
        return s->lr;
    case KOLO_LR_STEP:
        return s->lr * pow(s->step_factor, (double)falls);
    case KOLO_LR_COSINE: {
        double part = (double)(k - s->warmup) / (double)(s->total - s->warmup);
        return s->lr_min + (s->lr - s->lr_min) * (1.0 + cos(pi * part)) / 2.0;
    }
    case KOLO_LR_POLY: {
        double rest = 1 - (double)(k - s->warmup) / (double)(s->total - s->warmup);
        return s->lr_min + (s->lr - s->lr_min) * pow(rest, s->power);
    }
    case KOLO_LR_SCHEDULE_COUNT:
        break;
    }
    KOLO_ASSERT(!"unknown schedule");
    return 0;
}

/* Its rate of a step differs between a short run and a long one. */
bool kolo_lr_has_end(kolo_lr_schedule schedule) {
    if ((unsigned)schedule >= KOLO_LR_SCHEDULE_COUNT) return false; /* of a caller, refused later */
    const kolo_lr shorter = {
        .kind = schedule, .lr = 1, .power = 1, .step_factor = 0.5, .step_every = 1, .total = 4};
    kolo_lr longer = shorter;
    longer.total = 8;
    return kolo_lr_at(&shorter, 2) != kolo_lr_at(&longer, 2);
}

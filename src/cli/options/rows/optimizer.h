#pragma once
/* Rows of cli_options: the optimizer and the learning rate. */
/* clang-format off */
    {.section = "optimizer and learning rate",
     .name = "lr", .type = KOLO_OPTION_FLOAT, .metavar = "X", .preset = "0.01", .min = 1e-12,
     .max = 1e6, .commands = CMD_TRAIN | CMD_BENCH_TRAIN, .help = "learning rate"},
    {.name = "momentum", .type = KOLO_OPTION_FLOAT, .metavar = "X", .preset = "0", .min = 0,
     .max = 1, .commands = MODEL, .help = "momentum of SGD and LARS"},
    {.name = "optimizer", .type = KOLO_OPTION_CHOICE, .choices = CHOICES(KOLO_OPTIMIZER_LIST), .preset = "sgd",
     .commands = MODEL, .help = "optimizer"},
    {.name = "beta1", .type = KOLO_OPTION_FLOAT, .metavar = "X", .preset = "0.9", .min = 1e-6,
     .max = 0.999999, .commands = MODEL, .help = "decay rate of the first moment of Adam and LAMB"},
    {.name = "beta2", .type = KOLO_OPTION_FLOAT, .metavar = "X", .preset = "0.999", .min = 1e-6,
     .max = 0.999999, .commands = MODEL, .help = "decay rate of the second moment of Adam and LAMB"},
    {.name = "eps", .type = KOLO_OPTION_FLOAT, .metavar = "X", .min = 1e-30, .max = 1,
     .commands = MODEL, .unset = "1e-8; 1e-6 with lamb",
     .help = "term added to the denominator of Adam and LAMB"},
    {.name = "trust", .type = KOLO_OPTION_FLOAT, .metavar = "X", .preset = "0.001", .min = 1e-12,
     .max = 1e6, .commands = MODEL,
     .help = "trust coefficient of LARS: the rate of a parameter is the learning rate times this "
             "times the ratio of the norms of parameter and gradient"},
    {.name = "clip", .type = KOLO_OPTION_FLOAT, .metavar = "X", .min = 0, .max = MANY,
     .preset = "0", .commands = MODEL,
     .help = "maximum L2 norm of all gradients together; 0: no clipping"},
    {.name = "decay-matrices-only", .type = KOLO_OPTION_FLAG, .commands = MODEL,
     .help = "do not apply weight decay to biases and normalization parameters"},
    {.name = "no-decay", .type = KOLO_OPTION_TEXT, .metavar = "NAME,...", .commands = MODEL,
     .unset = "none",
     .help = "parameters without weight decay, such as \"*.bias,bn*\"; * stands for any text, ? "
             "for any character"},
    {.name = "scale-matrices-only", .type = KOLO_OPTION_FLAG, .commands = MODEL,
     .help = "lars and lamb: update biases and normalization parameters at the learning rate, "
             "not scaled to their norms"},
    {.name = "no-scale", .type = KOLO_OPTION_TEXT, .metavar = "NAME,...", .commands = MODEL,
     .unset = "none", .help = "the same for the parameters that match these patterns"},
    {.name = "weight-decay", .type = KOLO_OPTION_FLOAT, .metavar = "X", .preset = "0", .min = 0,
     .max = 1e6, .commands = MODEL, .help = "weight decay coefficient"},
    {.name = "recipe", .type = KOLO_OPTION_FLAG, .preset = "true", .commands = CMD_TRAIN,
     .help = "do not train by the model's reference recipe, which 'kolo help models' lists: it "
             "replaces the defaults of options that are not given"},
    {.name = "freeze", .type = KOLO_OPTION_TEXT, .metavar = "NAME,...", .commands = MODEL,
     .unset = "all are trained",
     .help = "parameters that are not trained, with patterns as for --no-decay; running statistics "
             "of batch normalization are still updated"},
    {.name = "sync-bn", .type = KOLO_OPTION_FLAG, .commands = MODEL,
     .help = "batch normalization by the samples of all workers, as if one had the whole batch, "
             "instead of each worker's own; with --accumulate, those of a micro-batch"},
    {.name = "sparse-embedding", .type = KOLO_OPTION_FLAG, .commands = MODEL,
     .help = "exchange and update only the rows of embedding tables that occur in the batch; "
             "requires SGD without momentum, or Adam, which then leaves the moments of other rows "
             "unchanged"},
    {.name = "scale-lr", .type = KOLO_OPTION_INT, .metavar = "N", .preset = "0", .min = 0,
     .max = MANY, .commands = CMD_TRAIN,
     .help = "the learning rate is for global batches of N samples: multiply it by the global "
             "batch / N (linear scaling); a warm-up starts from the rate before. 0: no scaling"},
    {.name = "schedule", .type = KOLO_OPTION_CHOICE, .choices = CHOICES(KOLO_LR_SCHEDULE_LIST), .preset = "constant",
     .commands = CMD_TRAIN, .help = "learning-rate schedule after the warm-up"},
    {.name = "lr-min", .type = KOLO_OPTION_FLOAT, .metavar = "X", .preset = "0", .min = 0,
     .max = 1e6, .commands = CMD_TRAIN,
     .help = "final learning rate of the cosine and poly schedules"},
    {.name = "lr-power", .type = KOLO_OPTION_FLOAT, .metavar = "X", .preset = "2", .min = 0.01,
     .max = 100, .commands = CMD_TRAIN, .help = "power of the poly schedule"},
    {.name = "lr-step-factor", .type = KOLO_OPTION_FLOAT, .metavar = "X", .preset = "0.1",
     .min = 1e-6, .max = 1, .commands = CMD_TRAIN,
     .help = "learning-rate factor of the step schedule"},
    {.name = "lr-step-epochs", .type = KOLO_OPTION_INT, .metavar = "N", .preset = "30", .min = 1,
     .max = 1 << 30, .commands = CMD_TRAIN,
     .help = "epochs between two drops of the step schedule"},
    {.name = "warmup-epochs", .type = KOLO_OPTION_FLOAT, .metavar = "X", .preset = "0", .min = 0,
     .max = 1e6, .commands = CMD_TRAIN,
     .help = "epochs of linear learning-rate warm-up; may be fractional"},
    {.name = "augment", .type = KOLO_OPTION_TEXT, .metavar = "NAME,...",
     .commands = CMD_TRAIN | CMD_BENCH_LOADER,
     .unset = "none",
     .help = "random augmentation of training images: resized-crop[=A] (a part of A, default 0.08, "
             "to 1 of the area, for images of their own sizes), scale=A:B (a factor, for the same), "
             "flip (horizontally), "
             "jitter=B:C:S:H (brightness, contrast, saturation, hue), crop=P (shift "
             "by up to P pixels), randaugment[=N:M] (N operations of strength M of 30), erase=S (blank a square of S pixels), "
             "mixup=A, cutmix=A (mix images and labels of the batch, weighted by Beta(A,A))"},
    {.name = "strict", .type = KOLO_OPTION_FLAG, .commands = CMD_TRAIN,
     .help = "end at a damaged image; else the next one takes its place, a warning names it, and the "
             "result counts them"},
    {.name = "seed", .type = KOLO_OPTION_INT, .metavar = "N", .preset = "0", .min = 0,
     .max = MAX_SEED, .commands = CMD_TRAIN | CMD_BENCH_TRAIN,
     .help = "seed of the initial weights and the sample order"},
    {.name = "seed", .type = KOLO_OPTION_INT, .metavar = "N", .preset = "0", .min = 0,
     .max = MAX_SEED, .commands = CMD_DATA_HEAD, .help = "seed of the sample order"},
    {.name = "seed", .type = KOLO_OPTION_INT, .metavar = "N", .preset = "0", .min = 0,
     .max = MAX_SEED, .commands = CMD_GENERATE, .help = "seed of the draws"},
    {.name = "seed", .type = KOLO_OPTION_INT, .metavar = "N", .preset = "0", .min = 0,
     .max = MAX_SEED, .commands = CMD_BENCH_SIM, .help = "seed of the random delays"},

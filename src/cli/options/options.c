/* The table of every option of every command. */
#include "cli/options/options.h"

#include "cli/options/command_list.h"
#include "cli/options/train_opts.h"
#include "cli/output/progress_bar.h"
#include "kolo/checkpoint.h"
#include "kolo/comm.h"
#include "kolo/dump.h"
#include "kolo/train.h"

enum {
    MAX_RANKS = 1024,
    MAX_THREADS = 1024,
    STEPS = CMD_TRAIN | CMD_BENCH_TRAIN | CMD_PROFILE, /* that take training steps */
    WORK = STEPS | CMD_EVAL,                           /* that have workers */
    JOB = WORK | CMD_BENCH_ALLREDUCE,                  /* that run as a job of ranks */
    MODEL = STEPS | CMD_DUMP,                          /* that make a training plan */
};

/* Limits of numbers that have no better one. */
#define MANY 1e12
#define MAX_SEED 9007199254740991.0 /* 2^53 - 1: what JSON readers keep */

/* Values of the enumerated options, from the lists that define their enums. */
#define CHOICE(code, name, help) {name, help},
#define CHOICE_2(code, name) {name, NULL},
#define CHOICE_ALGORITHM(code, row, name, help) {name, help},
#define CHOICE_TRANSPORT(code, memory, network, name, help) {name, help},
#define CHOICE_DTYPE(code, name, bytes) {name, NULL},
/* clang-format off */
static const kolo_choice schedules[] = {KOLO_LR_SCHEDULE_LIST(CHOICE) {0}};
static const kolo_choice optimizers[] = {KOLO_OPTIMIZER_LIST(CHOICE) {0}};
static const kolo_choice recomputes[] = {KOLO_RECOMPUTE_LIST(CHOICE) {0}};
static const kolo_choice precisions[] = {KOLO_PRECISION_LIST(CHOICE) {0}};
static const kolo_choice autotunes[] = {KOLO_AUTOTUNE_LIST(CHOICE) {0}};
static const kolo_choice kernel_sets[] = {KERNEL_SET_LIST(CHOICE) {0}};
static const kolo_choice dumps[] = {KOLO_DUMP_LIST(CHOICE) {0}};
static const kolo_choice formats[] = {KOLO_CHECKPOINT_FORMAT_LIST(CHOICE) {0}};
static const kolo_choice progress_styles[] = {PROGRESS_STYLE_LIST(CHOICE) {0}};
static const kolo_choice dtypes[] = {KOLO_DTYPE_LIST(CHOICE_DTYPE) {0}};
static const kolo_choice reductions[] = {KOLO_REDUCE_OP_LIST(CHOICE_2) {0}};
static const kolo_choice algorithms[] = {
    {"auto", "selected by size, group and transport"}, KOLO_ALGORITHM_LIST(CHOICE_ALGORITHM) {0}};
static const kolo_choice transports[] = {KOLO_TRANSPORT_LIST(CHOICE_TRANSPORT) {0}};
/* clang-format on */

/* A row is a few lines here, not one line for each field. */
/* clang-format off */
const kolo_option cli_options[] = {
    /* ---- what ---- */
    {.name = "model", .type = KOLO_OPTION_TEXT, .metavar = "NAME[:KEY=VALUE,...]",
     .commands = MODEL, .required = MODEL, .help = "the model, such as lenet, resnet18 or mlp:hidden=256; all: 'kolo help models'"},
    {.name = "checkpoint", .type = KOLO_OPTION_TEXT, .metavar = "FILE", .commands = CMD_EVAL,
     .required = CMD_EVAL, .help = "the checkpoint, a .safetensors file"},
    {.name = "data", .type = KOLO_OPTION_TEXT, .metavar = "NAME[:DIR]",
     .commands = CMD_TRAIN | CMD_EVAL, .required = CMD_TRAIN | CMD_EVAL,
     .help = "the data set: fashion-mnist, fashion-mnist:DIR, mnist:DIR; synthetic images: synthetic "
             "or synthetic:KEY=VALUE,... with the keys N, test, shape (1x28x28), classes and seed, and "
             "synthetic-seg alike, with a label for each pixel; tokens: text:FILE, tokens:FILE, "
             "synthetic-tokens:KEY=VALUE,... (N, test, seed)"},
    {.name = "data", .type = KOLO_OPTION_TEXT, .metavar = "NAME[:DIR]",
     .commands = CMD_BENCH_TRAIN | CMD_PROFILE,
     .without = "synthetic images such as the model is usually trained on",
     .help = "the data set"},
    {.name = "init", .type = KOLO_OPTION_TEXT, .metavar = "FILE", .commands = CMD_TRAIN,
     .without = "weights are drawn from the seed",
     .help = "weights to begin with, a .safetensors file: kolo's own, or with the names that "
             "torchvision or Hugging Face gives its models"},
    {.name = "format", .type = KOLO_OPTION_CHOICE, .choices = formats, .preset = "native",
     .commands = CMD_CHECKPOINT_EXPORT,
     .help = "names of the tensors in the file"},
    {.name = "out", .type = KOLO_OPTION_TEXT, .metavar = "FILE", .commands = CMD_CHECKPOINT_EXPORT,
     .required = CMD_CHECKPOINT_EXPORT, .help = "the file to write"},
    {.name = "what", .type = KOLO_OPTION_CHOICE, .choices = dumps, .preset = "graph",
     .commands = CMD_DUMP,
     .help = "what to print"},
    {.name = "forward", .type = KOLO_OPTION_FLAG, .commands = CMD_DUMP,
     .help = "the forward pass alone, instead of a training step"},

    /* ---- on what ---- */
    {.name = "ranks", .letter = 'n', .type = KOLO_OPTION_INT, .metavar = "N", .preset = "2",
     .min = 1, .max = MAX_RANKS, .commands = CMD_RUN | CMD_BENCH_ALLREDUCE,
     .help = "local ranks to start"},
    {.name = "ranks", .letter = 'n', .type = KOLO_OPTION_INT, .metavar = "N", .preset = "1000",
     .min = 1, .max = 4096, .commands = CMD_BENCH_SIM, .help = "ranks of the modelled group"},
    {.name = "ranks-per-host", .type = KOLO_OPTION_INT, .metavar = "N", .preset = "1", .min = 1,
     .max = 4096, .commands = CMD_BENCH_SIM,
     .help = "ranks that share a host and its link; numbered one after the other"},
    {.name = "ranks", .letter = 'n', .type = KOLO_OPTION_INT, .metavar = "N", .preset = "2",
     .min = 1, .max = MAX_RANKS, .commands = CMD_DUMP,
     .help = "ranks of the group whose schedule is printed"},
    {.name = "workers", .type = KOLO_OPTION_INT, .metavar = "N", .preset = "1", .min = 1,
     .max = MAX_RANKS, .commands = WORK,
     .help = "local ranks that share the work; each is a process"},
    {.name = "threads", .type = KOLO_OPTION_INT, .metavar = "N", .min = 1, .max = MAX_THREADS,
     .commands = WORK | CMD_DUMP, .without = "an equal share of the processors",
     .help = "threads of each worker's kernels"},
    {.name = "bind", .type = KOLO_OPTION_FLAG, .preset = "true", .commands = WORK,
     .help = "let workers run on any processor; else each has cores of its own, where there are "
             "as many"},
    {.name = "threads", .type = KOLO_OPTION_INT, .metavar = "N", .min = 1, .max = MAX_THREADS,
     .commands = CMD_RUN,
     .without = "what OMP_NUM_THREADS says, else an equal share of the processors",
     .help = "OpenMP threads of each rank"},

    /* ---- how much ---- */
    {.name = "batch", .type = KOLO_OPTION_INT, .metavar = "N", .preset = "64", .min = 1,
     .max = 1 << 20, .commands = MODEL | CMD_EVAL,
     .help = "samples of each worker in a step, or in each micro-batch of it"},
    {.name = "accumulate", .type = KOLO_OPTION_INT, .metavar = "N", .preset = "1", .min = 1,
     .max = 1 << 20, .commands = STEPS | CMD_DUMP,
     .help = "micro-batches of a step, whose gradients add up before the update"},
    {.name = "epochs", .type = KOLO_OPTION_INT, .metavar = "N", .min = 1, .max = 1 << 30,
     .commands = CMD_TRAIN, .without = "1 unless --steps is given",
     .help = "passes over the training data; with --steps too, the first reached ends the run; one of the "
             "two typed replaces both of a file or of the run that is resumed"},
    {.name = "steps", .type = KOLO_OPTION_INT, .metavar = "N", .min = 1, .max = MANY,
     .commands = CMD_TRAIN, .without = "as many as the epochs have", .help = "optimiser steps"},
    {.name = "steps", .type = KOLO_OPTION_INT, .metavar = "N", .preset = "100", .min = 1,
     .max = MANY, .commands = CMD_BENCH_TRAIN, .help = "optimiser steps"},
    {.name = "steps", .type = KOLO_OPTION_INT, .metavar = "N", .preset = "10", .min = 1,
     .max = 1000, .commands = CMD_PROFILE, .help = "steps to take medians over"},
    {.name = "rows", .type = KOLO_OPTION_INT, .metavar = "N", .preset = "25", .min = 0,
     .max = 1 << 20, .commands = CMD_PROFILE,
     .help = "rows of the table of kernels: those that take longest; 0: all, in their order"},
    {.name = "sizes", .type = KOLO_OPTION_TEXT, .metavar = "BYTES,...",
     .preset = "8,1K,16K,256K,1M,16M", .commands = CMD_BENCH_ALLREDUCE,
     .help = "sizes to measure, whole elements of --dtype"},
    {.name = "seconds", .type = KOLO_OPTION_FLOAT, .metavar = "X", .preset = "0.5", .min = 0.01,
     .max = 3600, .commands = CMD_BENCH_ALLREDUCE, .help = "time to spend on each size"},
    {.name = "seconds", .type = KOLO_OPTION_FLOAT, .metavar = "X", .preset = "0.5", .min = 0.01,
     .max = 3600, .commands = CMD_BENCH_COMPRESS, .help = "time to spend on each codec"},
    {.name = "codecs", .type = KOLO_OPTION_TEXT, .metavar = "NAME,...",
     .preset = "f16,bf16,int8,onebit,topk:0.01,topk:0.001", .commands = CMD_BENCH_COMPRESS,
     .help = "codecs to measure; topk:R keeps the part R of the elements"},
    {.name = "bytes", .type = KOLO_OPTION_BYTES, .metavar = "BYTES", .preset = "16M", .min = 4,
     .max = 1LL << 34, .commands = CMD_BENCH_COMPRESS, .help = "size of the vector of floats"},
    {.name = "sizes", .type = KOLO_OPTION_TEXT, .metavar = "BYTES,...",
     .preset = "64K,1M,16M,256M", .commands = CMD_BENCH_SIM,
     .help = "sizes to predict, multiples of 4 bytes"},
    {.name = "latency", .type = KOLO_OPTION_FLOAT, .metavar = "US", .preset = "5", .min = 0.001,
     .max = 1e9, .commands = CMD_BENCH_SIM, .help = "microseconds of a message between hosts"},
    {.name = "gbps", .type = KOLO_OPTION_FLOAT, .metavar = "X", .preset = "100", .min = 0.001,
     .max = 1e6, .commands = CMD_BENCH_SIM, .help = "Gbit/s of a host's link, each way"},
    {.name = "local-latency", .type = KOLO_OPTION_FLOAT, .metavar = "US", .preset = "0.5",
     .min = 0.001, .max = 1e9, .commands = CMD_BENCH_SIM,
     .help = "microseconds of a message within a host"},
    {.name = "local-gbps", .type = KOLO_OPTION_FLOAT, .metavar = "X", .preset = "80",
     .min = 0.001, .max = 1e6, .commands = CMD_BENCH_SIM,
     .help = "Gbit/s between two ranks of a host"},
    {.name = "reduce-gbps", .type = KOLO_OPTION_FLOAT, .metavar = "X", .preset = "80",
     .min = 0.001, .max = 1e6, .commands = CMD_BENCH_SIM,
     .help = "Gbit of sums that a rank makes in a second"},
    {.name = "shards", .type = KOLO_OPTION_INT, .metavar = "L", .preset = "0", .min = 0,
     .max = 65536, .commands = CMD_BENCH_SIM,
     .help = "also the reproducible allreduce of L logical shards; 0: not"},
    {.name = "shards", .type = KOLO_OPTION_INT, .metavar = "L", .preset = "0", .min = 0,
     .max = 65536, .commands = CMD_BENCH_ALLREDUCE,
     .help = "the reproducible allreduce of L logical shards, at least one per rank; 0: not"},
    {.name = "jitter", .type = KOLO_OPTION_FLOAT, .metavar = "X", .preset = "0", .min = 0,
     .max = 1e6, .commands = CMD_BENCH_SIM,
     .help = "mean random excess of each latency, as a multiple of it"},
    {.name = "late", .type = KOLO_OPTION_FLOAT, .metavar = "US", .preset = "0", .min = 0,
     .max = 1e9, .commands = CMD_BENCH_SIM,
     .help = "mean random delay, in microseconds, with which ranks start"},
    {.name = "private", .type = KOLO_OPTION_FLAG, .commands = CMD_BENCH_ALLREDUCE,
     .help = "data in each rank's own memory instead of memory that the ranks share"},
    {.name = "dirty", .type = KOLO_OPTION_FLAG, .commands = CMD_BENCH_ALLREDUCE,
     .help = "rewrite the data before each call, as training does"},
    {.name = "dtype", .type = KOLO_OPTION_CHOICE, .choices = dtypes, .preset = "f32",
     .commands = CMD_BENCH_ALLREDUCE, .help = "type of the elements"},
    {.name = "op", .type = KOLO_OPTION_CHOICE, .choices = reductions, .preset = "sum",
     .commands = CMD_BENCH_ALLREDUCE, .help = "how elements are combined"},
    {.name = "pretend-hosts", .type = KOLO_OPTION_INT, .metavar = "N", .min = 1, .max = MAX_RANKS,
     .commands = CMD_BENCH_ALLREDUCE, .without = "the hosts that there are",
     .help = "take the ranks to be spread over so many hosts, to try hierarchical on one"},
    {.name = "calibrate", .type = KOLO_OPTION_FLAG, .commands = CMD_BENCH_ALLREDUCE,
     .help = "first measure what --algorithm auto chooses from, and keep it for all later jobs on "
             "this machine, in ~/.cache/kolo/allreduce-HOST.costs ($XDG_CACHE_HOME, where it is "
             "set, instead of ~/.cache)"},

    /* ---- how it learns ---- */
    {.name = "lr", .type = KOLO_OPTION_FLOAT, .metavar = "X", .preset = "0.01", .min = 1e-12,
     .max = 1e6, .commands = CMD_TRAIN | CMD_BENCH_TRAIN, .help = "learning rate"},
    {.name = "momentum", .type = KOLO_OPTION_FLOAT, .metavar = "X", .preset = "0", .min = 0,
     .max = 1, .commands = MODEL, .help = "momentum of SGD"},
    {.name = "optimizer", .type = KOLO_OPTION_CHOICE, .choices = optimizers, .preset = "sgd",
     .commands = MODEL,
     .help = "update rule"},
    {.name = "beta1", .type = KOLO_OPTION_FLOAT, .metavar = "X", .preset = "0.9", .min = 1e-6,
     .max = 0.999999, .commands = MODEL, .help = "how much of the mean of gradients Adam keeps"},
    {.name = "beta2", .type = KOLO_OPTION_FLOAT, .metavar = "X", .preset = "0.999", .min = 1e-6,
     .max = 0.999999, .commands = MODEL,
     .help = "how much of the mean of squared gradients Adam keeps"},
    {.name = "eps", .type = KOLO_OPTION_FLOAT, .metavar = "X", .preset = "1e-8", .min = 1e-30,
     .max = 1, .commands = MODEL, .help = "what Adam adds to the root that it divides by"},
    {.name = "clip", .type = KOLO_OPTION_FLOAT, .metavar = "X", .min = 0, .max = MANY,
     .preset = "0", .commands = MODEL,
     .help = "scale gradients down to this norm of all of them together; 0: never"},
    {.name = "decay-matrices-only", .type = KOLO_OPTION_FLAG, .commands = MODEL,
     .help = "weight decay leaves biases and the parameters of normalisation alone"},
    {.name = "weight-decay", .type = KOLO_OPTION_FLOAT, .metavar = "X", .preset = "0", .min = 0,
     .max = 1e6, .commands = MODEL,
     .help = "what is added to each gradient, as a multiple of the parameter"},
    {.name = "sparse-embedding", .type = KOLO_OPTION_FLAG, .commands = MODEL,
     .help = "exchange and update only the rows of embedding tables that a batch has; SGD without "
             "momentum, or Adam, which then leaves other rows and their moments alone"},
    {.name = "schedule", .type = KOLO_OPTION_CHOICE, .choices = schedules, .preset = "constant",
     .commands = CMD_TRAIN, .help = "learning rate after the warm-up"},
    {.name = "lr-min", .type = KOLO_OPTION_FLOAT, .metavar = "X", .preset = "0", .min = 0,
     .max = 1e6, .commands = CMD_TRAIN, .help = "where the cosine schedule ends"},
    {.name = "lr-step-factor", .type = KOLO_OPTION_FLOAT, .metavar = "X", .preset = "0.1",
     .min = 1e-6, .max = 1, .commands = CMD_TRAIN,
     .help = "what the step schedule multiplies the learning rate by"},
    {.name = "lr-step-epochs", .type = KOLO_OPTION_INT, .metavar = "N", .preset = "30", .min = 1,
     .max = 1 << 30, .commands = CMD_TRAIN,
     .help = "epochs between two drops of the step schedule"},
    {.name = "warmup-epochs", .type = KOLO_OPTION_FLOAT, .metavar = "X", .preset = "0", .min = 0,
     .max = 1e6, .commands = CMD_TRAIN,
     .help = "epochs, or a part of one, in which the learning rate rises linearly"},
    {.name = "augment", .type = KOLO_OPTION_TEXT, .metavar = "CHANGE,...", .commands = CMD_TRAIN,
     .without = "images stay as they are",
     .help = "random changes to training images: flip (left and right), crop=P (shift by up to P "
             "pixels), erase=S (a square of S pixels)"},
    {.name = "seed", .type = KOLO_OPTION_INT, .metavar = "N", .preset = "0", .min = 0,
     .max = MAX_SEED, .commands = CMD_TRAIN | CMD_BENCH_TRAIN,
     .help = "what initial weights and the order of samples are drawn from"},
    {.name = "seed", .type = KOLO_OPTION_INT, .metavar = "N", .preset = "0", .min = 0,
     .max = MAX_SEED, .commands = CMD_BENCH_SIM, .help = "what delays are drawn from"},

    /* ---- how it is computed and synchronised ---- */
    {.name = "algorithm", .type = KOLO_OPTION_CHOICE, .choices = algorithms, .preset = "auto",
     .metavar = "NAME", .commands = STEPS,
     .help = "allreduce algorithm for gradients"},
    {.name = "algorithm", .type = KOLO_OPTION_CHOICE, .choices = algorithms, .preset = "auto",
     .metavar = "NAME", .commands = CMD_BENCH_ALLREDUCE | CMD_DUMP,
     .help = "allreduce algorithm"},
    {.name = "algorithm", .type = KOLO_OPTION_CHOICE, .choices = algorithms, .preset = "auto",
     .metavar = "NAME", .commands = CMD_BENCH_SIM,
     .help = "allreduce algorithm; auto measures each that works by messages"},
    {.name = "bucket-bytes", .type = KOLO_OPTION_BYTES, .metavar = "BYTES", .preset = "1M",
     .min = 1, .max = 1LL << 40, .commands = MODEL,
     .help = "least bytes of gradients that go out together"},
    {.name = "kernels", .type = KOLO_OPTION_CHOICE, .choices = kernel_sets, .preset = "best",
     .commands = MODEL, .help = "implementation of the operations"},
    {.name = "autotune", .type = KOLO_OPTION_CHOICE, .choices = autotunes, .preset = "cached",
     .commands = WORK,
     .help = "how kernels and layouts are selected"},
    {.name = "autotune", .type = KOLO_OPTION_CHOICE, .choices = autotunes, .n_choices = KOLO_AUTOTUNE_CACHED + 1,
     .preset = "cached",
     .commands = CMD_DUMP,
     .help = "how kernels and layouts are selected"},
    {.name = "tuning", .type = KOLO_OPTION_TEXT, .metavar = "FILE", .commands = WORK | CMD_DUMP,
     .without = "kolo/tuning.txt in the user's cache folder",
     .help = "the file of measured times"},
    {.name = "winograd", .type = KOLO_OPTION_FLAG, .preset = "true", .commands = MODEL,
     .help = "compute convolutions in their direct form only, which rounds less than Winograd's"},
    {.name = "recompute", .type = KOLO_OPTION_CHOICE, .choices = recomputes, .preset = "none",
     .commands = MODEL,
     .help = "activations that the backward pass recomputes to save memory"},
    {.name = "precision", .type = KOLO_OPTION_CHOICE, .choices = precisions, .preset = "f32",
     .commands = MODEL,
     .help = "type of activations and their gradients; parameters are always f32"},
    {.name = "timeout", .type = KOLO_OPTION_FLOAT, .metavar = "SECONDS", .preset = "300",
     .min = 0.1, .max = 1e6, .commands = JOB,
     .help = "how long a worker waits for the others before it gives up"},

    {.name = "transport", .type = KOLO_OPTION_CHOICE, .choices = transports, .preset = "auto",
     .commands = JOB,
     .help = "how workers exchange data"},
    {.name = "interface", .type = KOLO_OPTION_TEXT, .metavar = "NAME", .commands = JOB,
     .without = "the one that leads to rank 0",
     .help = "the network between hosts: an interface such as eth1, or how its address begins"},
    {.name = "heartbeat", .type = KOLO_OPTION_FLOAT, .metavar = "SECONDS", .preset = "10",
     .min = 0.1, .max = 1e6, .commands = JOB,
     .help = "after so long a silence a worker on another host is taken for lost"},
    {.name = "insecure", .type = KOLO_OPTION_FLAG, .commands = JOB,
     .help = "let whoever reaches the port join, without a secret"},

    /* ---- evaluation and output ---- */
    {.name = "eval", .type = KOLO_OPTION_FLAG, .preset = "true", .commands = CMD_TRAIN,
     .help = "do not evaluate on the test data"},
    {.name = "eval-every", .type = KOLO_OPTION_INT, .metavar = "N", .min = 1, .max = 1 << 30,
     .commands = CMD_TRAIN, .without = "at the end only", .help = "epochs between evaluations"},
    {.name = "out", .type = KOLO_OPTION_TEXT, .metavar = "DIR", .commands = CMD_TRAIN,
     .without = "nothing is written",
     .help = "folder for config.yaml, metrics.jsonl and the checkpoint"},
    {.name = "checkpoint-every", .type = KOLO_OPTION_TEXT, .metavar = "N|Ne", .commands = CMD_TRAIN,
     .without = "at the end only, without the optimiser's state",
     .help = "steps, or with an e epochs, between checkpoints from which a run can go on"},
    {.name = "keep", .type = KOLO_OPTION_INT, .metavar = "N", .preset = "2", .min = 0, .max = MANY,
     .commands = CMD_TRAIN, .help = "how many of the checkpoints of --checkpoint-every stay, the newest; 0: all"},
    {.name = "resume", .type = KOLO_OPTION_TEXT, .metavar = "DIR|FILE|latest",
     .commands = CMD_TRAIN, .not_in_file = true, .without = "a run begins",
     .help = "go on with the run of this folder, with its options, from its latest whole checkpoint or "
             "from this one; latest: with that in --out, where a run begins when there is none"},
    {.name = "json", .type = KOLO_OPTION_TEXT, .metavar = "FILE", .not_kept = true,
     .commands = JOB | CMD_BENCH_COMPRESS | CMD_BENCH_SIM,
     .help = "write the result as JSON; - is standard output"},
    {.name = "trace", .type = KOLO_OPTION_TEXT, .metavar = "FILE", .not_kept = true, .commands = STEPS,
     .without = "none", .help = "write the newest steps as a trace for Perfetto or chrome://tracing"},
    {.name = "progress", .type = KOLO_OPTION_CHOICE, .choices = progress_styles, .preset = "auto",
     .commands = CMD_TRAIN,
     .help = "progress on standard error"},
    {.name = "config", .type = KOLO_OPTION_TEXT, .metavar = "FILE", .commands = JOB | CMD_DUMP | CMD_BENCH_COMPRESS | CMD_BENCH_SIM,
     .not_in_file = true, .help = "a YAML file with any of these options; flags win"},
    {.name = "markdown", .type = KOLO_OPTION_FLAG, .commands = CMD_HELP, .not_in_file = true,
     .help = "print the manual of all commands, or the page of models, as Markdown"},
    {.name = "man", .type = KOLO_OPTION_FLAG, .commands = CMD_HELP, .not_in_file = true,
     .help = "print the manual as a page for man"},
};
/* clang-format on */

const size_t cli_n_options = KOLO_COUNT(cli_options);

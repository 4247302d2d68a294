/* The options of all commands. */
#include "cli/options/options.h"

#include "cli/options/command_list.h"
#include "cli/options/train_opts.h"
#include "cli/output/progress_bar.h"
#include "kolo/checkpoint.h"
#include "kolo/comm.h"
#include "kolo/data.h"
#include "kolo/dump.h"
#include "kolo/train.h"

#include <string.h>

enum {
    MAX_RANKS = 1024,
    MAX_THREADS = 1024,
    STEPS = CMD_TRAIN | CMD_BENCH_TRAIN | CMD_PROFILE, /* run training steps */
    WORK = STEPS | CMD_EVAL,                           /* have workers */
    TRAINED = CMD_EVAL | CMD_PREDICT,                  /* run a trained model */
    JOB = WORK | CMD_BENCH_ALLREDUCE | CMD_BENCH_PS,   /* run on ranks */
    MODEL = STEPS | CMD_DUMP,                          /* compile a training plan */
};

/* Limits of numbers without a natural one. */
#define MANY 1e12
#define MAX_SEED 9007199254740991.0 /* 2^53 - 1: exact in JSON */

/* Values of the enumerated options, from the lists that define their enums. */
#define CHOICE(code, name, help) {name, help},
#define CHOICE_2(code, name) {name, NULL},
#define CHOICE_ALGORITHM(code, row, name, help) {name, help},
#define CHOICE_TRANSPORT(code, memory, network, name, help) {name, help},
#define CHOICE_DTYPE(code, name, bytes) {name, NULL},
/* clang-format off */
static const kolo_choice schedules[] = {KOLO_LR_SCHEDULE_LIST(CHOICE) {0}};
static const kolo_choice syncs[] = {KOLO_SYNC_LIST(CHOICE) {0}};
static const kolo_choice save_errors[] = {KOLO_SAVE_ERROR_LIST(CHOICE) {0}};
static const kolo_choice optimizers[] = {KOLO_OPTIMIZER_LIST(CHOICE) {0}};
static const kolo_choice recomputes[] = {KOLO_RECOMPUTE_LIST(CHOICE) {0}};
static const kolo_choice precisions[] = {KOLO_PRECISION_LIST(CHOICE) {0}};
static const kolo_choice autotunes[] = {KOLO_AUTOTUNE_LIST(CHOICE) {0}};
static const kolo_choice kernel_sets[] = {KERNEL_SET_LIST(CHOICE) {0}};
static const kolo_choice worker_kinds[] = {WORKERS_AS_LIST(CHOICE) {0}};
static const kolo_choice splits[] = {KOLO_SPLIT_LIST(CHOICE) {0}};
static const kolo_choice one_or_all_splits[] = {KOLO_SPLIT_LIST(CHOICE) {"both", "all samples"}, {0}};
static const kolo_choice dumps[] = {KOLO_DUMP_LIST(CHOICE) {0}};
static const kolo_choice formats[] = {KOLO_CHECKPOINT_FORMAT_LIST(CHOICE) {0}};
static const kolo_choice progress_styles[] = {PROGRESS_STYLE_LIST(CHOICE) {0}};
static const kolo_choice dtypes[] = {KOLO_DTYPE_LIST(CHOICE_DTYPE) {0}};
static const kolo_choice reductions[] = {KOLO_REDUCE_OP_LIST(CHOICE_2) {0}};
static const kolo_choice algorithms[] = {
    {"auto", "selected by size, group and transport"}, KOLO_ALGORITHM_LIST(CHOICE_ALGORITHM) {0}};
static const kolo_choice simulated[] = {
    {"auto", "each algorithm that uses messages"}, KOLO_ALGORITHM_LIST(CHOICE_ALGORITHM) {0}};
static const kolo_choice transports[] = {KOLO_TRANSPORT_LIST(CHOICE_TRANSPORT) {0}};
/* clang-format on */

/* Where values hold paths. */
static const char *whole(const char *text, const char *after, size_t *length) {
    *length = strlen(text);
    return after ? NULL : text;
}
static const char *whole_file(const char *text, const char *after, size_t *length) {
    return strcmp(text, "-") == 0 ? NULL : whole(text, after, length);
}
static const char *placement_file(const char *text, const char *after, size_t *length) {
    return kolo_placement_path(text) ? whole(text, after, length) : NULL;
}
static const char *model_file(const char *text, const char *after, size_t *path_length) {
    const char *const ends[] = {".onnx", ".so"};
    const size_t length = strcspn(text, ":"); /* options follow */
    for (size_t i = 0; i < KOLO_COUNT(ends); i++) {
        const size_t n = strlen(ends[i]);
        if (length <= n || strncmp(text + length - n, ends[i], n) != 0) continue;
        *path_length = length;
        return after ? NULL : text;
    }
    return NULL;
}

/* A row is a few lines here, not one line for each field. */
/* clang-format off */
const kolo_option cli_options[] = {
    {.section = "model and data",
     .name = "model", .type = KOLO_OPTION_TEXT, .path = model_file, .metavar = "NAME[:KEY=VALUE,...]",
     .commands = MODEL, .required = MODEL,
     .help = "model, such as lenet, resnet18 or mlp:hidden=256; an ONNX file; or a shared object "
             "(./mine.so); 'kolo help models' lists all"},
    {.name = "checkpoint", .type = KOLO_OPTION_TEXT, .path = whole, .metavar = "FILE",
     .commands = TRAINED | CMD_GENERATE, .required = TRAINED | CMD_GENERATE,
     .help = "checkpoint, or with --model weights of another program; a .safetensors file"},
    {.name = "model", .type = KOLO_OPTION_TEXT, .path = model_file,
     .metavar = "NAME[:KEY=VALUE,...]", .commands = TRAINED | CMD_GENERATE, .unset = "that of the checkpoint",
     .help = "model of weights with the names of Kolo, torchvision or Hugging Face"},
    {.name = "data", .type = KOLO_OPTION_TEXT, .path = kolo_dataset_path, .metavar = "NAME[:ARG]",
     .commands = CMD_TRAIN | TRAINED | CMD_BENCH_LOADER,
     .required = CMD_TRAIN | TRAINED | CMD_BENCH_LOADER,
     .help = "data set (docs/data.md): fashion-mnist[:DIR], mnist:DIR, cifar10:DIR, cifar100:DIR, "
             "folder:DIR (images), voc:DIR, webdataset:PATTERN, pack:FILE, csv:FILE, raw:FILE (f32), "
             "criteo:FILE, fasttext:FILE, text:FILE, tokens:FILE; csv:-, raw:-, text:- or tokens:- from standard "
             "input, or from a pipe; a path without a kind where that is recognized; or synthetic: synthetic[:KEY=VALUE,...] with the keys N, test, shape (1x28x28), classes and seed, "
             "synthetic-seg with the same keys and a label for each pixel, synthetic-tokens, "
             "synthetic-clicks and synthetic-labelled with the keys N, test and seed"},
    {.name = "data", .type = KOLO_OPTION_TEXT, .path = kolo_dataset_path, .metavar = "NAME[:ARG]",
     .commands = CMD_BENCH_TRAIN | CMD_PROFILE,
     .unset = "synthetic samples of the model's usual shape", .help = "data set"},
    {.name = "split", .type = KOLO_OPTION_CHOICE, .choices = splits, .preset = "test",
     .commands = TRAINED, .help = "samples of the data set"},
    {.name = "split", .type = KOLO_OPTION_CHOICE, .choices = splits, .preset = "train",
     .commands = CMD_DATA_HEAD, .help = "samples of the data set"},
    {.name = "split", .type = KOLO_OPTION_CHOICE, .choices = one_or_all_splits, .preset = "both",
     .commands = CMD_DATA_VERIFY | CMD_DATA_PACK, .help = "samples of the data set"},
    {.name = "decoded", .type = KOLO_OPTION_FLAG, .commands = CMD_DATA_PACK,
     .help = "pack images as they are in evaluation, not their files: larger, and read without decoding"},
    {.name = "seekable", .type = KOLO_OPTION_FLAG, .commands = CMD_DATA_PACK,
     .help = "rewrite JPEGs without loss: sequential, with restart markers, so that crops decode faster"},
    {.name = "replace", .type = KOLO_OPTION_FLAG, .commands = CMD_DATA_PACK,
     .help = "replace the file --out if it exists"},
    {.name = "init", .type = KOLO_OPTION_TEXT, .path = whole, .metavar = "FILE", .commands = CMD_TRAIN,
     .unset = "random, from the seed",
     .help = "initial weights: a .safetensors file with the names of Kolo, torchvision or Hugging "
             "Face"},
    {.name = "init-partial", .type = KOLO_OPTION_FLAG, .commands = CMD_TRAIN,
     .help = "load the tensors of --init that fit the model and print the others: missing, "
             "unexpected, or of another shape"},
    {.name = "format", .type = KOLO_OPTION_CHOICE, .choices = formats, .preset = "native",
     .commands = CMD_CHECKPOINT_EXPORT, .help = "names of the tensors in the file"},
    {.name = "out", .type = KOLO_OPTION_TEXT, .metavar = "FILE", .commands = CMD_CHECKPOINT_EXPORT,
     .required = CMD_CHECKPOINT_EXPORT, .help = "output file"},
    {.name = "what", .type = KOLO_OPTION_CHOICE, .choices = dumps, .preset = "graph",
     .commands = CMD_DUMP, .help = "what to print"},
    {.name = "forward", .type = KOLO_OPTION_FLAG, .commands = CMD_DUMP,
     .help = "print the forward pass of evaluation instead of a training step"},

    {.section = "ranks and processors",
     .name = "ranks", .letter = 'n', .type = KOLO_OPTION_INT, .metavar = "N", .preset = "2",
     .min = 1, .max = MAX_RANKS, .commands = CMD_RUN | CMD_BENCH_ALLREDUCE | CMD_BENCH_PS,
     .help = "number of local ranks"},
    {.name = "servers", .type = KOLO_OPTION_INT, .metavar = "N", .min = 1, .max = MAX_RANKS,
     .commands = CMD_BENCH_PS, .unset = "every rank is a worker and a server",
     .help = "number of ranks, the last ones, that only serve"},
    {.name = "ranks", .letter = 'n', .type = KOLO_OPTION_INT, .metavar = "N", .preset = "1000",
     .min = 1, .max = 4096, .commands = CMD_BENCH_SIM, .help = "number of simulated ranks"},
    {.name = "ranks-per-host", .type = KOLO_OPTION_INT, .metavar = "N", .preset = "1", .min = 1,
     .max = 4096, .commands = CMD_BENCH_SIM,
     .help = "consecutive ranks that share a host and its link"},
    {.name = "ranks", .letter = 'n', .type = KOLO_OPTION_INT, .metavar = "N", .preset = "2",
     .min = 1, .max = MAX_RANKS, .commands = CMD_DUMP,
     .help = "group size of the printed schedule, and of plans if given or with --zero; with --mesh: its size"},
    {.name = "servers", .type = KOLO_OPTION_INT, .metavar = "N", .min = 0, .max = MAX_RANKS,
     .commands = CMD_DUMP, .unset = "equal parts of all ranks",
     .help = "with --what servers: the last N ranks serve, and the others are workers; their parts "
             "with --consistency bsp (docs/servers.md)"},
    {.name = "workers", .type = KOLO_OPTION_INT, .metavar = "N", .preset = "1", .min = 1,
     .max = MAX_RANKS, .commands = WORK,
     .help = "number of local workers, one process each; with --mesh: its size"},
    {.name = "workers-as", .type = KOLO_OPTION_CHOICE, .choices = worker_kinds,
     .commands = CMD_TRAIN | CMD_BENCH_TRAIN | CMD_PROFILE, .preset = "processes",
     .help = "what the local workers are"},
    {.name = "threads", .type = KOLO_OPTION_INT, .metavar = "N", .min = 1, .max = MAX_THREADS,
     .commands = WORK | CMD_DUMP | CMD_PREDICT | CMD_GENERATE,
     .unset = "an equal share of the processors",
     .help = "compute threads per worker"},
    {.name = "device", .type = KOLO_OPTION_TEXT, .metavar = "NAME", .preset = "auto",
     .commands = WORK | CMD_PREDICT,
     .help = "device of each worker: auto or cpu, the processor; kolo info lists those of this machine"},
    {.name = "loader-threads", .type = KOLO_OPTION_INT, .metavar = "N", .min = 0,
     .max = KOLO_LOADER_MAX_THREADS, .commands = CMD_TRAIN | TRAINED | CMD_BENCH_LOADER,
     .unset = "one for each worker",
     .help = "threads of a host that read samples ahead, divided among its workers; 0: none, a "
             "worker reads when it needs a batch. Results do not depend on them"},
    {.name = "loader-threads", .type = KOLO_OPTION_INT, .metavar = "N", .min = 1, .max = 256,
     .preset = "1", .commands = CMD_DATA_VERIFY, .help = "threads that read samples"},
    {.name = "bind", .type = KOLO_OPTION_FLAG, .preset = "true", .commands = WORK,
     .help = "do not bind each local worker to cores of its own"},
    {.name = "threads", .type = KOLO_OPTION_INT, .metavar = "N", .min = 1, .max = MAX_THREADS,
     .commands = CMD_RUN,
     .unset = "OMP_NUM_THREADS, or an equal share of the processors",
     .help = "OpenMP threads per rank"},
    {.name = "survive", .type = KOLO_OPTION_FLAG, .commands = CMD_RUN,
     .help = "when a rank is killed by a signal the others go on, for programs that continue without it "
             "(kolo_comm_shrink); an exit status other than 0 still ends the job"},

    {.section = "amount of work",
     .name = "batch", .type = KOLO_OPTION_INT, .metavar = "N", .preset = "64", .min = 1,
     .max = 1 << 20,
     .commands = (MODEL | TRAINED | CMD_BENCH_LOADER) & ~(CMD_TRAIN | CMD_BENCH_TRAIN),
     .help = "samples per worker in a step, or in each micro-batch of it"},
    {.name = "batch", .type = KOLO_OPTION_INT, .metavar = "N", .min = 1, .max = 1 << 20,
     .commands = CMD_TRAIN | CMD_BENCH_TRAIN, .unset = "64 unless --global-batch is given",
     .help = "samples per worker in a step, or in each micro-batch of it"},
    {.name = "global-batch", .type = KOLO_OPTION_INT, .metavar = "N", .min = 1, .max = MANY,
     .commands = CMD_TRAIN | CMD_BENCH_TRAIN, .unset = "--batch of each worker",
     .help = "samples of a step over all workers, whatever their number; in place of --batch. "
             "Given alone on the command line, either replaces that of a config file"},
    {.name = "mesh", .type = KOLO_OPTION_TEXT, .metavar = "AXIS=SIZE,...",
     .commands = CMD_TRAIN | CMD_BENCH_TRAIN | CMD_DUMP, .unset = "dp=WORKERS",
     .help = "axes of the workers: dp is data parallelism, tp tensor parallelism, which divides the "
             "layers, sp context parallelism, which divides the positions of sequences, or the rows of "
             "images, ep expert parallelism, which divides experts and samples, pp the stages of a "
             "pipeline, which have some of the layers each; the sizes multiply to the workers, and one "
             "may be *. On the command line of kolo train, --mesh, --workers, --zero and --sync override conflicting values of a config file or a resumed run"},
    {.name = "placement", .type = KOLO_OPTION_TEXT, .path = placement_file, .metavar = "NAME|FILE",
     .commands = CMD_TRAIN | CMD_BENCH_TRAIN | CMD_DUMP, .unset = "rules for the models here",
     .help = "which parameters the axis tp divides: megatron (layers in pairs), "
             "megatron-sp (with sequence parallelism), owt (convolutions by "
             "samples, classifiers divided), or a file of rules (docs/parallelism.md); ring: on the "
             "axis sp keys and values go round the workers, in place of some of the heads for "
             "each; zigzag: the same, with equal shares of causal attention"},
    {.name = "pipeline", .type = KOLO_OPTION_TEXT, .metavar = "SCHEDULE",
     .commands = CMD_TRAIN | CMD_BENCH_TRAIN | CMD_DUMP, .unset = "1f1b",
     .help = "order of the passes on the stages of a pipeline, the axis pp of the mesh: gpipe, "
             "1f1b or zb-h1; with several parts of the model on each, interleaved:CHUNKS or zbv; "
             "--accumulate is the number of micro-batches (docs/parallelism.md)"},
    {.name = "stage-memory", .type = KOLO_OPTION_BYTES, .metavar = "BYTES", .min = 1,
     .max = 1LL << 50, .commands = CMD_TRAIN | CMD_BENCH_TRAIN | CMD_DUMP, .unset = "no limit",
     .help = "memory of a worker of a pipeline for parameters, optimizer state, gradients and values of "
             "a step, within which the model is cut into stages"},
    {.name = "rebalance-stages", .type = KOLO_OPTION_INT, .metavar = "STEPS", .preset = "0",
     .min = 0, .max = 1 << 30, .commands = CMD_TRAIN | CMD_BENCH_TRAIN,
     .help = "after each window of STEPS steps, layers move to other stages of a pipeline if the measured "
             "times of the stages predict a gain; 0: they stay"},
    {.name = "zero", .type = KOLO_OPTION_INT, .metavar = "LEVEL", .min = 0, .max = 3,
     .commands = CMD_TRAIN | CMD_BENCH_TRAIN | CMD_DUMP, .unset = "every worker has all of it",
     .help = "divide over the workers: 1 the optimizer state, 2 gradients too, 3 parameters too. "
             "Each worker updates a range of every parameter (ZeRO). 0: every worker has all of it"},
    {.name = "sync", .type = KOLO_OPTION_CHOICE, .choices = syncs, .preset = "allreduce",
     .commands = CMD_TRAIN,
     .help = "how gradients become updates (docs/servers.md)"},
    {.name = "servers", .type = KOLO_OPTION_INT, .metavar = "S", .preset = "0", .min = 0,
     .max = 1024, .commands = CMD_TRAIN,
     .help = "with --sync ps: processes beside the workers that hold the parameters and do nothing "
             "else; 0: each worker holds a part. Not given, under another launcher: the processes with ROLE=server "
             "in their environment, if the others have ROLE=worker"},
    {.name = "replicas", .type = KOLO_OPTION_INT, .metavar = "R", .preset = "0", .min = 0,
     .max = 1, .commands = CMD_TRAIN,
     .help = "with --servers 2 or more: 1 lets each server have a replica of the part of another one, so "
             "that the run goes on when a server dies"},
    {.name = "local-aggregate", .type = KOLO_OPTION_FLAG, .preset = "true", .commands = CMD_TRAIN,
     .help = "with --sync ps or mesh and bsp every worker pushes its own gradient; else the workers of a host "
             "sum theirs first, where there are several hosts, and push and pull once"},
    {.name = "table", .type = KOLO_OPTION_TEXT, .metavar = "NAME,...", .commands = CMD_TRAIN,
     .unset = "none",
     .help = "with --sync ps: embedding tables, by patterns as for --no-decay, whose rows are "
             "created at the servers as their ids occur (docs/servers.md)"},
    {.name = "table-consistency", .type = KOLO_OPTION_TEXT, .metavar = "POLICY",
     .commands = CMD_TRAIN, .unset = "that of --consistency",
     .help = "when rows of tables are updated and read: bsp, ssp:S or asp"},
    {.name = "table-bytes", .type = KOLO_OPTION_BYTES, .metavar = "BYTES", .preset = "1G",
     .min = 1, .max = 1LL << 50, .commands = CMD_TRAIN,
     .help = "memory that the rows of each table take at a server, with their optimizer state and "
             "their ids"},
    {.name = "table-admit", .type = KOLO_OPTION_INT, .metavar = "N", .preset = "1", .min = 1,
     .max = 1 << 30, .commands = CMD_TRAIN,
     .help = "an id gets its row with its N-th push; earlier gradients are dropped"},
    {.name = "table-expire", .type = KOLO_OPTION_INT, .metavar = "STEPS", .preset = "0", .min = 0,
     .max = 1 << 30, .commands = CMD_TRAIN,
     .help = "remove rows that STEPS steps in a row have not changed; 0: keep them"},
    {.name = "table-prefetch", .type = KOLO_OPTION_FLAG, .commands = CMD_TRAIN,
     .help = "with rows of asp: read those of the next batch while this one is computed; they lack this "
             "worker's latest push"},
    {.name = "table-refuse", .type = KOLO_OPTION_FLAG, .commands = CMD_TRAIN,
     .help = "without room, new ids get no row; else that of the id whose latest gradient is the "
             "oldest"},
    {.name = "joins", .type = KOLO_OPTION_INT, .metavar = "J", .preset = "0", .min = 0,
     .max = 1024, .commands = CMD_TRAIN,
     .help = "with --servers, leases (--consistency asp,lease=1 or ssp:S,lease=1) and --out: up to J processes may join as "
             "workers during the run, with --join. The secret of the job is then in the file that KOLO_SECRET_FILE names"},
    {.name = "join", .type = KOLO_OPTION_TEXT, .path = whole, .metavar = "DIR",
     .not_kept = true, .commands = CMD_TRAIN,
     .help = "join the run that writes in DIR, with its --config DIR/config.yaml and its secret (KOLO_SECRET_FILE), as one "
             "more worker (docs/servers.md)"},
    {.name = "share", .type = KOLO_OPTION_FLAG, .preset = "true",
     .commands = CMD_TRAIN | CMD_BENCH_TRAIN | CMD_DUMP,
     .help = "every worker has its own copy of parameters and optimizer state; else the workers of "
             "a host share one, where that changes no bit (--share, to override a config file)"},
    {.name = "cross-step", .type = KOLO_OPTION_FLAG, .preset = "true",
     .commands = CMD_TRAIN | CMD_BENCH_TRAIN | CMD_DUMP,
     .help = "every step waits for all sums and makes all updates; else those of later layers run in the next step, "
             "before it reads their results, with the same bits (--cross-step, to override a config file)"},
    {.name = "record", .type = KOLO_OPTION_TEXT, .path = whole, .metavar = "FILE",
     .not_kept = true, .commands = CMD_TRAIN,
     .help = "with --servers and a --consistency other than bsp: record the order of updates and reads, "
             "server 0 in FILE.0 and so on"},
    {.name = "replay", .type = KOLO_OPTION_TEXT, .path = whole, .metavar = "FILE",
     .not_kept = true, .commands = CMD_TRAIN,
     .help = "repeat a recorded run bitwise (docs/servers.md)"},
    {.name = "ledger", .type = KOLO_OPTION_TEXT, .path = whole, .metavar = "FILE",
     .commands = CMD_TRAIN, .unset = "none",
     .help = "record which samples are used in which step, worker 0 in FILE.0 and so on; a resumed "
             "run goes on with these files. kolo data ledger FILE checks that each sample of an "
             "epoch is used once (docs/data.md)"},
    {.name = "consistency", .type = KOLO_OPTION_TEXT, .metavar = "POLICY",
     .commands = CMD_TRAIN | CMD_BENCH_TRAIN, .preset = "bsp",
     .help = "when the workers synchronize: bsp, gradients in every step; "
             "lag:S, the same for the update S steps later, so that the exchange overlaps with the "
             "next step; local:H, bmuf:H or diloco:H, parameters every H steps, between which each trains on "
             "its own, diloco:H,fragments=P,overlap=T in P parts one after the other, each exchanged during the next T "
             "steps (docs/consistency.md); with --sync ps or mesh also bsp:drop=M, steps that do not wait for "
             "the M latest gradients, which join the next ones of their workers or, with ,discard, are not used, and "
             "ssp:S, gradients as they come from workers "
             "that are at most S steps apart, and asp, without a bound; both with ,dc=L, ,scale=1 or ,delay=N (of Nesterov's momentum) against staleness, "
             "with ,group=G: G neighbours sum their gradients and push once; and with ,lease=1: workers take samples from one counter; and auto, bsp, ssp:S or asp, by the times of "
             "steps and the loss; and bmuf:H or diloco:H,quorum=Q,grace=MS: the owners make the update of a round once Q workers "
             "are done, and MS milliseconds later, and late ones are in the next round "
             "(docs/servers.md)"},
    {.name = "compress", .type = KOLO_OPTION_TEXT, .metavar = "CODEC",
     .commands = CMD_TRAIN | CMD_BENCH_TRAIN, .preset = "none",
     .help = "compress gradients, with error feedback: f16, bf16, int8, 1bit, topk:R (the part R of "
             "the elements, the largest), powersgd:R (sums of factors of rank R, 1 to 4); with adam and adamw "
             "1bit,warmup=N, which is 1-bit Adam after N updates; CODEC,only=A,B: those of the "
             "parameters of these names, with * and ?; auto=CODEC, or auto for auto=bf16: where it shortens the step, by "
             "times of the first steps; with --consistency bmuf or diloco, the changes of a "
             "round (docs/consistency.md)"},
    {.name = "compress", .type = KOLO_OPTION_TEXT, .metavar = "CODEC", .commands = CMD_DUMP, .preset = "none",
     .help = "compress gradients: a codec as of kolo train, such as int8 or bf16,only=A,B"},
    {.name = "compress-min-bytes", .type = KOLO_OPTION_BYTES, .metavar = "BYTES", .preset = "64K",
     .min = 1, .max = 1LL << 40, .commands = CMD_TRAIN | CMD_BENCH_TRAIN | CMD_DUMP,
     .help = "gradients of smaller parameters are not compressed"},
    {.name = "reproducible", .type = KOLO_OPTION_INT, .metavar = "L", .min = 1, .max = 1 << 16,
     .commands = CMD_TRAIN | CMD_BENCH_TRAIN, .unset = "sums over the workers",
     .help = "divide the global batch into L logical shards and sum over these: all results are "
             "then bitwise equal for any number of workers, with the same threads and kind of "
             "processor. Batch normalization uses the samples of a shard. Implies --threads 1 "
             "unless given"},
    {.name = "worker-weights", .type = KOLO_OPTION_TEXT, .metavar = "X,...|measured",
     .commands = CMD_TRAIN | CMD_BENCH_TRAIN | CMD_DUMP, .unset = "equal shares",
     .help = "relative speeds of the workers, in the order of ranks; with --reproducible each runs "
             "logical shards in proportion, which changes no result (measured: during the run); the "
             "stages of a pipeline get layers in proportion"},
    {.name = "accumulate", .type = KOLO_OPTION_INT, .metavar = "N", .preset = "1", .min = 1,
     .max = 1 << 20, .commands = STEPS | CMD_DUMP,
     .help = "micro-batches per step; their gradients are accumulated before the update"},
    {.name = "audit", .type = KOLO_OPTION_INT, .metavar = "K", .min = 1, .max = MANY,
     .commands = CMD_TRAIN, .unset = "no audits",
     .help = "every K steps of a run with --reproducible, another worker computes each gradient "
             "too and compares bits; the error names the worker that was wrong"},
    {.name = "check-replicas", .type = KOLO_OPTION_INT, .metavar = "K", .min = 1, .max = MANY,
     .commands = CMD_TRAIN, .unset = "only at the end",
     .help = "steps between comparisons of parameters and optimizer state over the workers; the "
             "error names the one that differs"},
    {.name = "epochs", .type = KOLO_OPTION_INT, .metavar = "N", .min = 1, .max = 1 << 30,
     .commands = CMD_TRAIN, .unset = "1 unless --steps is given",
     .help = "passes over the training data. With --steps as well, the first limit reached ends "
             "the run; given alone on the command line, either replaces both values of a config "
             "file or of the resumed run"},
    {.name = "steps", .type = KOLO_OPTION_INT, .metavar = "N", .min = 1, .max = MANY,
     .commands = CMD_TRAIN, .unset = "all steps of the epochs", .help = "optimizer steps"},
    {.name = "steps", .type = KOLO_OPTION_INT, .metavar = "N", .preset = "100", .min = 1,
     .max = MANY, .commands = CMD_BENCH_TRAIN,
     .help = "optimizer steps; of several the first is not timed"},
    {.name = "steps", .type = KOLO_OPTION_INT, .metavar = "N", .preset = "10", .min = 1,
     .max = 1000, .commands = CMD_PROFILE, .help = "measured steps, whose median is reported"},
    {.name = "rows", .type = KOLO_OPTION_INT, .metavar = "N", .preset = "25", .min = 0,
     .max = 1 << 20, .commands = CMD_PROFILE,
     .help = "number of kernels to list, the slowest first; 0: all, in execution order"},
    {.name = "sizes", .type = KOLO_OPTION_TEXT, .metavar = "BYTES,...",
     .preset = "8,1K,16K,256K,1M,16M", .commands = CMD_BENCH_ALLREDUCE,
     .help = "message sizes, multiples of the element size"},
    {.name = "sizes", .type = KOLO_OPTION_TEXT, .metavar = "BYTES,...",
     .preset = "1K,16K,256K,1M,4M,16M,64M", .commands = CMD_BENCH_PS,
     .help = "sizes of a worker's vector"},
    {.name = "seconds", .type = KOLO_OPTION_FLOAT, .metavar = "X", .preset = "0.5", .min = 0.01,
     .max = 3600, .commands = CMD_BENCH_ALLREDUCE,
     .help = "time per size, for at least 16 calls; of a size of which 20 would take longer, at least 3 "
             "(column iters): its statistics are coarse"},
    {.name = "seconds", .type = KOLO_OPTION_FLOAT, .metavar = "X", .preset = "0.5", .min = 0.01,
     .max = 3600, .commands = CMD_BENCH_PS, .help = "time per size"},
    {.name = "width", .type = KOLO_OPTION_INT, .metavar = "N", .min = 1, .max = 65536,
     .commands = CMD_BENCH_PS, .unset = "vectors",
     .help = "random rows of a table, of N floats each, instead of vectors; --sizes are those of a "
             "worker's batch of rows"},
    {.name = "table-rows", .type = KOLO_OPTION_INT, .metavar = "N", .preset = "1000000", .min = 1,
     .max = 1 << 30, .commands = CMD_BENCH_PS, .help = "with --width: rows of the table"},
    {.name = "bsp", .type = KOLO_OPTION_FLAG, .commands = CMD_BENCH_PS,
     .help = "steps of all workers together, with sums and updates at the owners, instead of vectors that come "
             "back; workers own parts beside those of the servers (docs/servers.md)"},
    {.name = "step-buckets", .type = KOLO_OPTION_INT, .metavar = "N", .preset = "64", .min = 1, .max = 1024,
     .commands = CMD_BENCH_PS, .help = "with --bsp: parts of each owner, which are exchanged one after the other"},
    {.name = "apart", .type = KOLO_OPTION_FLAG, .commands = CMD_BENCH_PS,
     .help = "with --bsp: workers own no parts"},
    {.name = "seconds", .type = KOLO_OPTION_FLOAT, .metavar = "X", .preset = "0.5", .min = 0.01,
     .max = 3600, .commands = CMD_BENCH_COMPRESS, .help = "time per codec"},
    {.name = "seconds", .type = KOLO_OPTION_FLOAT, .metavar = "X", .preset = "1", .min = 0.01,
     .max = 3600, .commands = CMD_BENCH_LOADER, .help = "time for the stages, and for the loader"},
    {.name = "rate", .type = KOLO_OPTION_FLOAT, .metavar = "X", .min = 0.001, .max = 1e12,
     .commands = CMD_BENCH_LOADER, .unset = "not stated",
     .help = "samples/s of training whose loader needs the cores that are stated: without converting, "
             "which is a part of its steps"},
    {.name = "codecs", .type = KOLO_OPTION_TEXT, .metavar = "NAME,...",
     .preset = "f16,bf16,int8,onebit,topk:0.01,topk:0.001", .commands = CMD_BENCH_COMPRESS,
     .help = "codecs; topk:R keeps the fraction R of the elements"},
    {.name = "bytes", .type = KOLO_OPTION_BYTES, .metavar = "BYTES", .preset = "16M", .min = 4,
     .max = 1LL << 34, .commands = CMD_BENCH_COMPRESS, .help = "size of the f32 vector"},
    {.name = "sizes", .type = KOLO_OPTION_TEXT, .metavar = "BYTES,...",
     .preset = "64K,1M,16M,256M", .commands = CMD_BENCH_SIM,
     .help = "message sizes, multiples of 4 bytes"},
    {.name = "latency", .type = KOLO_OPTION_FLOAT, .metavar = "US", .preset = "5", .min = 0.001,
     .max = 1e9, .commands = CMD_BENCH_SIM, .help = "latency between hosts in microseconds"},
    {.name = "gbps", .type = KOLO_OPTION_FLOAT, .metavar = "X", .preset = "100", .min = 0.001,
     .max = 1e6, .commands = CMD_BENCH_SIM,
     .help = "bandwidth of a host's link in Gbit/s, each direction"},
    {.name = "local-latency", .type = KOLO_OPTION_FLOAT, .metavar = "US", .preset = "0.5",
     .min = 0.001, .max = 1e9, .commands = CMD_BENCH_SIM,
     .help = "latency within a host in microseconds"},
    {.name = "local-gbps", .type = KOLO_OPTION_FLOAT, .metavar = "X", .preset = "80",
     .min = 0.001, .max = 1e6, .commands = CMD_BENCH_SIM,
     .help = "bandwidth between two ranks of a host in Gbit/s"},
    {.name = "reduce-gbps", .type = KOLO_OPTION_FLOAT, .metavar = "X", .preset = "80",
     .min = 0.001, .max = 1e6, .commands = CMD_BENCH_SIM,
     .help = "reduction rate of a rank in Gbit/s"},
    {.name = "shards", .type = KOLO_OPTION_INT, .metavar = "L", .preset = "0", .min = 0,
     .max = 65536, .commands = CMD_BENCH_SIM,
     .help = "also simulate the reproducible allreduce of L logical shards; 0: no"},
    {.name = "shards", .type = KOLO_OPTION_INT, .metavar = "L", .preset = "0", .min = 0,
     .max = 65536, .commands = CMD_BENCH_ALLREDUCE,
     .help = "measure the reproducible allreduce of L logical shards, at least one per rank; 0: no"},
    {.name = "jitter", .type = KOLO_OPTION_FLOAT, .metavar = "X", .preset = "0", .min = 0,
     .max = 1e6, .commands = CMD_BENCH_SIM,
     .help = "mean of the random excess latency of a message, relative to its latency"},
    {.name = "late", .type = KOLO_OPTION_FLOAT, .metavar = "US", .preset = "0", .min = 0,
     .max = 1e9, .commands = CMD_BENCH_SIM,
     .help = "mean of the random start delay of a rank in microseconds"},
    {.name = "private", .type = KOLO_OPTION_FLAG, .commands = CMD_BENCH_ALLREDUCE | CMD_BENCH_PS,
     .help = "use buffers in private memory instead of shared memory"},
    {.name = "dirty", .type = KOLO_OPTION_FLAG, .commands = CMD_BENCH_ALLREDUCE,
     .help = "rewrite the buffer before each call, as training does"},
    {.name = "dtype", .type = KOLO_OPTION_CHOICE, .choices = dtypes, .preset = "f32",
     .commands = CMD_BENCH_ALLREDUCE, .help = "element type"},
    {.name = "op", .type = KOLO_OPTION_CHOICE, .choices = reductions, .preset = "sum",
     .commands = CMD_BENCH_ALLREDUCE, .help = "reduction operation"},
    {.name = "pretend-hosts", .type = KOLO_OPTION_INT, .metavar = "N", .min = 1, .max = MAX_RANKS,
     .commands = CMD_BENCH_ALLREDUCE, .unset = "the real hosts",
     .help = "treat the ranks as spread over N hosts, to run hierarchical on one host"},
    {.name = "calibrate", .type = KOLO_OPTION_FLAG, .commands = CMD_BENCH_ALLREDUCE,
     .help = "first measure the cost constants of --algorithm auto and store them for later jobs "
             "on this machine in ~/.cache/kolo/allreduce-HOST.costs (or under $XDG_CACHE_HOME)"},

    {.section = "optimizer and learning rate",
     .name = "lr", .type = KOLO_OPTION_FLOAT, .metavar = "X", .preset = "0.01", .min = 1e-12,
     .max = 1e6, .commands = CMD_TRAIN | CMD_BENCH_TRAIN, .help = "learning rate"},
    {.name = "momentum", .type = KOLO_OPTION_FLOAT, .metavar = "X", .preset = "0", .min = 0,
     .max = 1, .commands = MODEL, .help = "momentum of SGD and LARS"},
    {.name = "optimizer", .type = KOLO_OPTION_CHOICE, .choices = optimizers, .preset = "sgd",
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
    {.name = "schedule", .type = KOLO_OPTION_CHOICE, .choices = schedules, .preset = "constant",
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

    {.section = "computation and communication",
     .name = "algorithm", .type = KOLO_OPTION_CHOICE, .choices = algorithms, .preset = "auto",
     .metavar = "NAME", .commands = STEPS, .help = "allreduce algorithm for gradients"},
    {.name = "algorithm", .type = KOLO_OPTION_CHOICE, .choices = algorithms, .preset = "auto",
     .metavar = "NAME", .commands = CMD_BENCH_ALLREDUCE | CMD_DUMP, .help = "allreduce algorithm"},
    {.name = "algorithm", .type = KOLO_OPTION_CHOICE, .choices = simulated, .preset = "auto",
     .metavar = "NAME", .commands = CMD_BENCH_SIM, .help = "allreduce algorithm"},
    {.name = "bucket-bytes", .type = KOLO_OPTION_BYTES, .metavar = "BYTES", .preset = "1M",
     .min = 1, .max = 1LL << 40, .commands = MODEL,
     .help = "minimum size of a gradient bucket"},
    {.name = "buckets", .type = KOLO_OPTION_TEXT, .metavar = "SIZES", .commands = CMD_TRAIN | CMD_BENCH_TRAIN,
     .unset = "all of --bucket-bytes",
     .help = "sizes of the first gradient buckets, 1M,400K, or auto: the best by a model of the step, from "
             "times of the first steps (docs/performance.md)"},
    {.name = "buckets", .type = KOLO_OPTION_TEXT, .metavar = "SIZES", .commands = CMD_DUMP,
     .unset = "all of --bucket-bytes", .help = "sizes of the first gradient buckets, 1M,400K"},
    {.name = "kernels", .type = KOLO_OPTION_CHOICE, .choices = kernel_sets, .preset = "best",
     .commands = MODEL, .help = "kernel implementations"},
    {.name = "autotune", .type = KOLO_OPTION_CHOICE, .choices = autotunes, .preset = "cached",
     .commands = WORK | CMD_PREDICT, .help = "selection of kernels and layouts"},
    {.name = "autotune", .type = KOLO_OPTION_CHOICE, .choices = autotunes,
     .n_choices = KOLO_AUTOTUNE_CACHED + 1, .preset = "cached", .commands = CMD_DUMP,
     .help = "selection of kernels and layouts"},
    {.name = "tuning", .type = KOLO_OPTION_TEXT, .path = whole, .metavar = "FILE", .commands = WORK | CMD_DUMP | CMD_PREDICT,
     .unset = "kolo/tuning.txt in the user's cache folder", .help = "file of measured times"},
    {.name = "winograd", .type = KOLO_OPTION_FLAG, .preset = "true", .commands = MODEL,
     .help = "do not use Winograd convolutions, whose rounding errors are larger"},
    {.name = "chains", .type = KOLO_OPTION_FLAG, .preset = "true", .commands = MODEL,
     .help = "each elementwise operation runs by itself; else those that follow each other run piece by piece, so that "
             "what they pass on stays in the cache, with the same bits (--chains, to override a config file)"},
    {.name = "lanes", .type = KOLO_OPTION_FLAG, .commands = MODEL,
     .help = "independent operations run at the same time, each on one thread, where measured times (--autotune) show a "
             "gain, with the same bits; else each runs on all threads. A profile has them with --predict only"},
    {.name = "recompute", .type = KOLO_OPTION_CHOICE, .choices = recomputes, .preset = "none",
     .commands = MODEL, .help = "activations to recompute in the backward pass, to save memory"},
    {.name = "precision", .type = KOLO_OPTION_CHOICE, .choices = precisions, .preset = "f32",
     .commands = MODEL, .help = "type of activations and their gradients; parameters are f32"},
    {.name = "timeout", .type = KOLO_OPTION_FLOAT, .metavar = "SECONDS", .preset = "300",
     .min = 0.1, .max = 1e6, .commands = JOB,
     .help = "time a worker waits for the others before it fails"},

    {.name = "transport", .type = KOLO_OPTION_CHOICE, .choices = transports, .preset = "auto",
     .commands = JOB, .help = "communication between workers"},
    {.name = "interface", .type = KOLO_OPTION_TEXT, .metavar = "NAME", .commands = JOB,
     .unset = "the interface of the route to rank 0",
     .help = "network interface between hosts, such as eth1, or a prefix of its address"},
    {.name = "heartbeat", .type = KOLO_OPTION_FLOAT, .metavar = "SECONDS", .preset = "10",
     .min = 0.1, .max = 1e6, .commands = JOB,
     .help = "time without messages after which a worker on another host is considered lost"},
    {.name = "insecure", .type = KOLO_OPTION_FLAG, .commands = JOB,
     .help = "accept connections without a job secret"},
    {.name = "encrypt", .type = KOLO_OPTION_FLAG, .commands = JOB,
     .help = "encrypt what workers on different hosts send each other"},
    {.name = "authenticate", .type = KOLO_OPTION_FLAG, .commands = JOB,
     .help = "authenticate what workers on different hosts send each other, so that nobody can change it, without "
             "encrypting it"},

    {.section = "evaluation and output",
     .name = "output", .type = KOLO_OPTION_TEXT, .metavar = "NAME", .preset = "logits",
     .commands = CMD_PREDICT, .help = "output of the graph to predict"},
    {.name = "prompt", .type = KOLO_OPTION_TEXT, .metavar = "TEXT", .commands = CMD_GENERATE,
     .unset = "--prompt-tokens", .help = "text to continue, for models whose tokens are bytes"},
    {.name = "prompt-tokens", .type = KOLO_OPTION_TEXT, .metavar = "N,N,...",
     .commands = CMD_GENERATE, .unset = "--prompt", .help = "tokens to continue"},
    {.name = "tokens", .type = KOLO_OPTION_INT, .metavar = "N", .preset = "100", .min = 1,
     .max = MANY, .commands = CMD_GENERATE, .help = "number of tokens to generate"},
    {.name = "temperature", .type = KOLO_OPTION_FLOAT, .metavar = "X", .preset = "0", .min = 0,
     .max = 1e6, .commands = CMD_GENERATE,
     .help = "draws follow softmax(logits / X); 0: the most probable token"},
    {.name = "top-k", .type = KOLO_OPTION_INT, .metavar = "K", .min = 1, .max = 1 << 24,
     .commands = CMD_GENERATE, .unset = "all", .help = "draw among the K most probable tokens"},
    {.name = "whole-window", .type = KOLO_OPTION_FLAG, .commands = CMD_GENERATE,
     .help = "compute the whole window for each token, as recurrent models (lstm_lm) need; else keys "
             "and values are kept, and a token costs a pass of its own until the window is full"},
    {.name = "top", .type = KOLO_OPTION_INT, .metavar = "K", .min = 0, .max = 1 << 24,
     .commands = CMD_PREDICT, .unset = "5 for logits, else all values",
     .help = "print the K most probable classes of each sample, for a language model of the token "
             "after the window; 0: print all values"},
    {.name = "samples", .type = KOLO_OPTION_INT, .metavar = "N", .min = 1, .max = MANY,
     .commands = CMD_PREDICT, .unset = "all", .help = "predict the first N samples"},
    {.name = "samples", .type = KOLO_OPTION_INT, .metavar = "N", .min = 1, .max = 1e6, .preset = "5",
     .commands = CMD_DATA_HEAD, .help = "print the first N samples of epoch 1"},
    {.name = "out", .type = KOLO_OPTION_TEXT, .path = whole, .metavar = "FILE",
     .commands = CMD_DATA_PACK, .required = CMD_DATA_PACK, .help = "the file"},
    {.name = "out", .type = KOLO_OPTION_TEXT, .path = whole, .metavar = "FILE",
     .commands = CMD_PREDICT, .unset = "standard output",
     .help = "file of JSON lines, one for each sample; or FILE.safetensors: the output of all "
             "samples as one tensor, and their labels"},
    {.name = "eval", .type = KOLO_OPTION_FLAG, .preset = "true", .commands = CMD_TRAIN,
     .help = "do not evaluate on the test data"},
    {.name = "eval-every", .type = KOLO_OPTION_INT, .metavar = "N", .min = 1, .max = 1 << 30,
     .commands = CMD_TRAIN, .unset = "only at the end", .help = "epochs between evaluations"},
    {.name = "eval-every-steps", .type = KOLO_OPTION_INT, .metavar = "N", .min = 1, .max = MANY,
     .commands = CMD_TRAIN, .unset = "only at the end", .help = "steps between evaluations"},
    {.name = "log-every", .type = KOLO_OPTION_INT, .metavar = "N", .preset = "10", .min = 1,
     .max = MANY, .commands = CMD_TRAIN,
     .help = "steps between lines of metrics.jsonl, each with the means over the last N steps (at "
             "most 20)"},
    {.name = "out", .type = KOLO_OPTION_TEXT, .metavar = "DIR", .path = whole, .commands = CMD_TRAIN,
     .unset = "no files",
     .help = "folder for config.yaml, metrics.jsonl and checkpoints"},
    {.name = "tensorboard", .type = KOLO_OPTION_TEXT, .metavar = "DIR", .path = whole,
     .commands = CMD_TRAIN, .not_kept = true, .unset = "none",
     .help = "folder for an event file with the numbers of metrics.jsonl, which TensorBoard reads"},
    {.name = "metrics-port", .type = KOLO_OPTION_INT, .metavar = "N", .min = 0, .max = 65535,
     .commands = CMD_TRAIN, .not_kept = true, .unset = "not served",
     .help = "serve the latest numbers at /metrics over HTTP, for Prometheus; 0: on a free port, "
             "which is printed"},
    {.name = "metrics-address", .type = KOLO_OPTION_TEXT, .metavar = "ADDRESS",
     .preset = "127.0.0.1", .commands = CMD_TRAIN, .not_kept = true,
     .help = "where --metrics-port listens; 0.0.0.0: on all interfaces, without protection"},
    {.name = "checkpoint-every", .type = KOLO_OPTION_TEXT, .metavar = "N|Ne|Nm",
     .commands = CMD_TRAIN, .unset = "only the final weights",
     .help = "steps (or with an e: epochs, with s, m or h: seconds, minutes or hours) between "
             "checkpoints to resume from"},
    {.name = "keep", .type = KOLO_OPTION_INT, .metavar = "N", .preset = "2", .min = 0, .max = MANY,
     .commands = CMD_TRAIN,
     .help = "number of newest checkpoints of --checkpoint-every to keep; 0: all"},
    {.name = "keep-best", .type = KOLO_OPTION_TEXT, .metavar = "METRIC", .commands = CMD_TRAIN,
     .unset = "not kept",
     .help = "keep the weights of the best evaluation as checkpoint-best.safetensors: loss, accuracy, "
             "perplexity, mean_iou, auc, ... as in metrics.jsonl without \"test_\""},
    {.name = "patience", .type = KOLO_OPTION_INT, .metavar = "N", .min = 1, .max = MANY,
     .commands = CMD_TRAIN, .unset = "to the last step",
     .help = "end the run after N evaluations without a better metric of --keep-best, or else loss"},
    {.name = "wait-for-saves", .type = KOLO_OPTION_FLAG, .commands = CMD_TRAIN,
     .help = "steps wait until a checkpoint is written; else a thread writes a copy of the state, "
             "which takes the memory of one version of it"},
    {.name = "grace", .type = KOLO_OPTION_FLOAT, .metavar = "SECONDS", .preset = "30", .min = 0,
     .max = 604800, .commands = CMD_TRAIN, .not_kept = true,
     .help = "upon SIGTERM the run ends after a step, saves a checkpoint to resume from in --out, and "
             "exits with 0; after this time, as in a long evaluation, it is killed. 0: it ends at once, as upon "
             "Ctrl-C. Other launchers than kolo train may wait less"},
    {.name = "on-save-error", .type = KOLO_OPTION_CHOICE, .choices = save_errors, .preset = "stop",
     .commands = CMD_TRAIN,
     .help = "what a run does that cannot write a checkpoint or metrics.jsonl, as on a full disk; "
             "earlier checkpoints are kept"},
    {.name = "resume", .type = KOLO_OPTION_TEXT, .metavar = "DIR|FILE|latest",
     .commands = CMD_TRAIN, .not_in_file = true, .unset = "start a new run",
     .help = "resume the run in this folder, with its options, from its latest intact checkpoint "
             "or from this one; latest: resume the run in --out, or start it if there is none"},
    {.name = "json", .type = KOLO_OPTION_TEXT, .path = whole_file, .metavar = "FILE", .not_kept = true,
     .commands = JOB | CMD_BENCH_COMPRESS | CMD_BENCH_SIM | CMD_BENCH_LOADER,
     .help = "write the result as JSON; -: to standard output"},
    {.name = "trace", .type = KOLO_OPTION_TEXT, .path = whole, .metavar = "FILE", .not_kept = true,
     .commands = STEPS,
     .help = "write a trace of the last steps for Perfetto or chrome://tracing"},
    {.name = "predict", .type = KOLO_OPTION_FLAG, .commands = CMD_PROFILE,
     .help = "instead of a profile, predict the step of several workers from its parts, measure it, "
             "and compare divisions of the gradients into buckets"},
    {.name = "progress", .type = KOLO_OPTION_CHOICE, .choices = progress_styles, .preset = "auto",
     .commands = CMD_TRAIN, .help = "progress on standard error"},
    {.name = "config", .type = KOLO_OPTION_TEXT, .metavar = "FILE",
     .commands = JOB | CMD_DUMP | CMD_PREDICT | CMD_BENCH_COMPRESS | CMD_BENCH_SIM | CMD_BENCH_LOADER,
     .not_in_file = true,
     .help = "YAML file with any of these options; the command line takes precedence. Relative "
             "paths in it refer to its folder"},
    {.name = "quiet", .letter = 'q', .type = KOLO_OPTION_FLAG, .not_kept = true,
     .commands = CMD_TRAIN | CMD_EVAL,
     .help = "print errors and warnings only: no progress, no result (--json FILE writes it)"},
    {.name = "completion", .type = KOLO_OPTION_FLAG, .commands = CMD_HELP, .not_in_file = true,
     .help = "print a completion script for bash and zsh"},
    {.name = "markdown", .type = KOLO_OPTION_FLAG, .commands = CMD_HELP, .not_in_file = true,
     .help = "print the manual, or the page of models, as Markdown"},
    {.name = "man", .type = KOLO_OPTION_FLAG, .commands = CMD_HELP, .not_in_file = true,
     .help = "print the manual as a man page"},
};
/* clang-format on */

const size_t cli_n_options = KOLO_COUNT(cli_options);

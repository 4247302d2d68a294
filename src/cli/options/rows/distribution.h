#pragma once
/* Rows of cli_options: batches, meshes, servers, consistency and compression. */
/* clang-format off */
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
    {.name = "sync", .type = KOLO_OPTION_CHOICE, .choices = CHOICES(KOLO_SYNC_LIST), .preset = "allreduce",
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
    {.name = "table-expire", .type = KOLO_OPTION_TEXT, .metavar = "STEPS|TIME", .preset = "0",
     .commands = CMD_TRAIN,
     .help = "remove rows that so many steps in a row have not changed, or no update within a time, such as 90s, 30m or "
             "12h; 0: keep them"},
    {.name = "table-prefetch", .type = KOLO_OPTION_FLAG, .commands = CMD_TRAIN,
     .help = "with rows of asp: read those of the next batch while this one is computed; they lack this "
             "worker's latest push"},
    {.name = "table-refuse", .type = KOLO_OPTION_FLAG, .commands = CMD_TRAIN,
     .help = "without room, new ids get no row; else that of the id whose latest gradient is the "
             "oldest"},
    {.name = "joins", .type = KOLO_OPTION_INT, .metavar = "J", .preset = "0", .min = 0,
     .max = 1024, .commands = CMD_TRAIN,
     .help = "with --servers, leases (--consistency asp,lease=1 or ssp:S,lease=1) and --out: up to J processes may join as "
             "workers during the run, with --join; those that have ended count, too. The secret "
             "of the job is then in the file that KOLO_SECRET_FILE names"},
    {.name = "join", .type = KOLO_OPTION_TEXT, .path = whole, .metavar = "DIR",
     .not_kept = true, .commands = CMD_TRAIN,
     .help = "join the run that writes in DIR, with its --config DIR/config.yaml and its secret (KOLO_SECRET_FILE), as one "
             "more worker (docs/servers.md)"},
    {.name = "share", .type = KOLO_OPTION_FLAG, .preset = "true",
     .commands = CMD_TRAIN | CMD_BENCH_TRAIN | CMD_DUMP,
     .help = "every worker has its own copy of parameters and optimizer state; else the workers of "
             "a host share one, where that changes no bit and the model is not small (--share, to override a config file)"},
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
             "steps, and any of these with ,warmup=W after W steps of bsp (docs/consistency.md); with --sync ps or mesh also bsp:drop=M, steps that do not wait for "
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
             "round (docs/consistency.md); with --sync ps or mesh, what workers push (docs/servers.md)"},
    {.name = "compress", .type = KOLO_OPTION_TEXT, .metavar = "CODEC", .commands = CMD_DUMP, .preset = "none",
     .help = "compress gradients: a codec as of kolo train, such as int8 or bf16,only=A,B"},
    {.name = "compress-min-bytes", .type = KOLO_OPTION_BYTES, .metavar = "BYTES", .preset = "64K",
     .min = 1, .max = 1LL << 40, .commands = CMD_TRAIN | CMD_BENCH_TRAIN | CMD_DUMP,
     .help = "gradients of smaller parameters are not compressed"},
    {.name = "reproducible", .type = KOLO_OPTION_INT, .metavar = "L", .min = 1, .max = 1 << 16,
     .commands = CMD_TRAIN | CMD_BENCH_TRAIN, .unset = "sums over the workers",
     .help = "divide the global batch into L logical shards and sum over these: all results are "
             "then bitwise equal for any number of workers and of stages of a pipeline, with the "
             "same threads and kind of processor. Batch normalization uses the samples of a shard. Implies --threads 1 "
             "unless given"},
    {.name = "tp-blocks", .type = KOLO_OPTION_INT, .metavar = "T", .min = 2, .max = 8,
     .commands = CMD_TRAIN | CMD_BENCH_TRAIN | CMD_DUMP, .unset = "layers as the workers divide them",
     .help = "with --reproducible, compute the layers that tensor parallelism divides in T blocks, "
             "2, 4 or 8: all results are then bitwise equal for any size of the axis tp that "
             "divides T, also without it (docs/parallelism.md)"},
    {.name = "worker-weights", .type = KOLO_OPTION_TEXT, .metavar = "X,...|measured",
     .commands = CMD_TRAIN | CMD_BENCH_TRAIN | CMD_DUMP, .unset = "equal shares",
     .help = "relative speeds of the workers, in the order of ranks; with --reproducible each runs "
             "logical shards in proportion, which changes no result (measured: during the run); the "
             "stages of a pipeline get layers in proportion instead"},
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

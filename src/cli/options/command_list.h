#pragma once
/* The list of commands: bit, function, name, arguments after the options, summary.
 *
 * A command is a file src/cli/commands/NAME.c, a row here and rows for its options in rows/.
 * The function gets resolved options and returns the exit status (output/exit_status.h). */

/* clang-format off */
#define CLI_COMMAND_LIST(X)                                                                      \
    X(CMD_TRAIN, cmd_train, "train", NULL,                                                       \
      "Trains a model on a data set with any number of workers")                                 \
    X(CMD_EVAL, cmd_eval, "eval", NULL,                                                          \
      "Evaluates a checkpoint, or weights of another program, on a data set")                    \
    X(CMD_PREDICT, cmd_predict, "predict", NULL,                                                 \
      "Predicts classes, or any output of a trained model, for the samples of a data set")      \
    X(CMD_GENERATE, cmd_generate, "generate", NULL,                                              \
      "Continues a text with a trained language model")                                          \
    X(CMD_BENCH_TRAIN, cmd_bench_train, "bench train", NULL,                                     \
      "Measures training steps on a batch in memory")                                            \
    X(CMD_BENCH_ALLREDUCE, cmd_bench_allreduce, "bench allreduce", NULL,                         \
      "Measures allreduces between ranks")                                                       \
    X(CMD_BENCH_PS, cmd_bench_ps, "bench ps", NULL,                                              \
      "Measures pushes to servers and pulls from them")                                          \
    X(CMD_BENCH_COMPRESS, cmd_bench_compress, "bench compress", NULL,                            \
      "Measures codecs: speed, compression ratio and error")                                     \
    X(CMD_BENCH_LOADER, cmd_bench_loader, "bench loader", NULL,                                  \
      "Measures reading, decoding and augmenting samples")                                       \
    X(CMD_BENCH_SIM, cmd_bench_sim, "bench sim", NULL,                                           \
      "Predicts allreduces on a modelled network")                           \
    X(CMD_PROFILE, cmd_profile, "profile", NULL,                                                 \
      "Profiles a training step by phase, op and kernel")                                        \
    X(CMD_RUN, cmd_run, "run", "-- program [args]",                                              \
      "Runs any program as local ranks, output prefixed with [rank]")                 \
    X(CMD_CHECKPOINT_INFO, cmd_checkpoint_info, "checkpoint info", "FILE",                       \
      "Prints the metadata and tensors of a weights file")                                       \
    X(CMD_CHECKPOINT_VERIFY, cmd_checkpoint_verify, "checkpoint verify", "FILE",                 \
      "Checks that a checkpoint is complete and matches its model")                              \
    X(CMD_CHECKPOINT_DIFF, cmd_checkpoint_diff, "checkpoint diff", "FILE FILE",                  \
      "Compares two weights files; exits with 1 if they differ")                                 \
    X(CMD_CHECKPOINT_EXPORT, cmd_checkpoint_export, "checkpoint export", "FILE",                 \
      "Writes a checkpoint's weights for another framework")                                     \
    X(CMD_DATA_INFO, cmd_data_info, "data info", "NAME[:ARG]",                                   \
      "Prints the samples, classes and fields of a data set")                                    \
    X(CMD_DATA_VERIFY, cmd_data_verify, "data verify", "NAME[:ARG]",                             \
      "Reads and decodes all samples and names those that are damaged; exits with 1 if there are any") \
    X(CMD_DATA_HEAD, cmd_data_head, "data head", "NAME[:ARG]",                                   \
      "Prints the first samples of an epoch: labels and statistics")                             \
    X(CMD_DATA_PACK, cmd_data_pack, "data pack", "NAME[:ARG]",                                   \
      "Packs a data set into one file with checksums, for --data pack:FILE")                     \
    X(CMD_DATA_LEDGER, cmd_data_ledger, "data ledger", "FILE",                                   \
      "Checks that a run has used each sample of an epoch once; exits with 1 if not")            \
    X(CMD_DUMP, cmd_dump, "dump", NULL,                                                          \
      "Prints a model's graph, plan or allreduce schedule")                 \
    X(CMD_INFO, cmd_info, "info", NULL,                                                          \
      "Prints the build, the machine, and the libraries in use")                                 \
    X(CMD_HELP, cmd_help, "help", "[command]",                                                   \
      "Prints the help of a command, or the whole manual")
/* clang-format on */

enum {
#define CLI_COMMAND_INDEX(bit, run, name, arguments, summary) bit##_INDEX,
    CLI_COMMAND_LIST(CLI_COMMAND_INDEX)
#undef CLI_COMMAND_INDEX
        CLI_N_COMMANDS
};

enum {
#define CLI_COMMAND_BIT(bit, run, name, arguments, summary) bit = 1 << bit##_INDEX,
    CLI_COMMAND_LIST(CLI_COMMAND_BIT)
#undef CLI_COMMAND_BIT
};

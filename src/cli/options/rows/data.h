#pragma once
/* Rows of cli_options: models, checkpoints and data. */
/* clang-format off */
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
    {.name = "split", .type = KOLO_OPTION_CHOICE, .choices = CHOICES(KOLO_SPLIT_LIST), .preset = "test",
     .commands = TRAINED, .help = "samples of the data set"},
    {.name = "split", .type = KOLO_OPTION_CHOICE, .choices = CHOICES(KOLO_SPLIT_LIST), .preset = "train",
     .commands = CMD_DATA_HEAD, .help = "samples of the data set"},
    {.name = "split", .type = KOLO_OPTION_CHOICE, .choices = one_or_all_splits, .preset = "both",
     .commands = CMD_DATA_VERIFY | CMD_DATA_PACK, .help = "samples of the data set"},
    {.name = "decoded", .type = KOLO_OPTION_FLAG, .commands = CMD_DATA_PACK,
     .help = "pack images as they are in evaluation, not their files: larger, and read without decoding"},
    {.name = "seekable", .type = KOLO_OPTION_FLAG, .commands = CMD_DATA_PACK,
     .help = "rewrite JPEGs without loss: sequential, with restart markers, so that crops decode faster"},
    {.name = "replace", .type = KOLO_OPTION_FLAG, .commands = CMD_DATA_PACK,
     .help = "replace the file --out if it is a packed data set"},
    {.name = "init", .type = KOLO_OPTION_TEXT, .path = whole, .metavar = "FILE", .commands = CMD_TRAIN,
     .unset = "random, from the seed",
     .help = "initial weights: a .safetensors file with the names of Kolo, torchvision or Hugging "
             "Face"},
    {.name = "init-partial", .type = KOLO_OPTION_FLAG, .commands = CMD_TRAIN,
     .help = "load the tensors of --init that fit the model and print the others: missing, "
             "unexpected, or of another shape"},
    {.name = "format", .type = KOLO_OPTION_CHOICE, .choices = CHOICES(KOLO_CHECKPOINT_FORMAT_LIST), .preset = "native",
     .commands = CMD_CHECKPOINT_EXPORT, .help = "names of the tensors in the file"},
    {.name = "out", .type = KOLO_OPTION_TEXT, .metavar = "FILE", .commands = CMD_CHECKPOINT_EXPORT,
     .required = CMD_CHECKPOINT_EXPORT, .help = "output file, another than the checkpoint"},
    {.name = "what", .type = KOLO_OPTION_CHOICE, .choices = CHOICES(KOLO_DUMP_LIST), .preset = "graph",
     .commands = CMD_DUMP, .help = "what to print"},
    {.name = "forward", .type = KOLO_OPTION_FLAG, .commands = CMD_DUMP,
     .help = "print the forward pass of evaluation instead of a training step"},

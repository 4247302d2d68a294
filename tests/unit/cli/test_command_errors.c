/* Errors of the command: wrong use exits with 2, failures with 1, each with one line. */
#define _GNU_SOURCE
#include "base/file.h"
#include "support/command.h"
#include "support/fewer.h"
#include "support/folder.h"
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void usage_errors_are_one_line_and_exit_2(void **state) {
    static const struct {
        const char *arguments, *text;
    } cases[] = {
        {"", "kolo: no command: 'kolo --help' lists the commands\n"},
        {"tarin", "kolo: unknown command 'tarin': did you mean 'train'?\n"},
        {"zzzzzzzz", "kolo: unknown command 'zzzzzzzz': 'kolo --help' lists the commands\n"},
        {"bench tarin", "kolo: unknown command 'bench tarin': did you mean 'bench train'?\n"},
        {"help tarin", "kolo: unknown command 'tarin': did you mean 'train'?\n"},
        {"train --modle lenet", "kolo: unknown option --modle: did you mean --model?\n"},
        {"train --model lenet --data x --batch 0",
         "kolo: --batch 0: must be an integer from 1 to 1048576\n"},
        {"train --model lenet --data x --workers -3",
         "kolo: --workers -3: must be an integer from 1 to 1024\n"},
        {"train --model lenet --data x --lr nan",
         "kolo: --lr nan: must be a number from 1e-12 to 1e+06\n"},
        {"train --model lenet --data x --lr 0",
         "kolo: --lr 0: must be a number from 1e-12 to 1e+06\n"},
        {"train --model lenet --data x --schedule cosin",
         "kolo: --schedule cosin: must be one of constant, step, cosine, poly; did you mean "
         "cosine?\n"},
        {"train --data fashion-mnist",
         "kolo: 'kolo train' needs --model NAME[:KEY=VALUE,...] (model, such as lenet, "
         "resnet18 or mlp:hidden=256; an ONNX file; or a shared object (./mine.so); 'kolo help "
         "models' lists all)\n"},
        {"train lenet",
         "kolo: unexpected argument 'lenet': options of 'kolo train' start with --\n"},
        {"train --checkpoint x",
         "kolo: --checkpoint is an option of 'kolo eval', not of 'kolo train'\n"},
        {"bench allreduce --sizes 8,7",
         "kolo: --sizes 8,7: '7' must be a number of bytes, such as 8 or 64K (K, M, G: powers of "
         "1024), and a multiple of the f32 size, 4\n"},
        {"bench sim --sizes 1T",
         "kolo: --sizes 1T: '1T' must be a number of bytes, such as 8 or 64K (K, M, G: powers of "
         "1024), and a multiple of the f32 size, 4\n"},
        {"bench allreduce --dtype f64 --sizes 12",
         "kolo: --sizes 12: '12' must be a number of bytes, such as 8 or 64K (K, M, G: powers of "
         "1024), and a multiple of the f64 size, 8\n"},
        {"bench allreduce -n 2 --shards 5 --algorithm ring",
         "kolo: algorithm ring with --shards: a reproducible allreduce has an algorithm of its "
         "own; "
         "leave --algorithm out\n"},
        {"train --model mlp --data synthetic:N=90 --device gpu",
         "kolo: device \"gpu\": there is none of this name: choose auto or cpu\n"},
        {"train --model lnet --data synthetic:N=90",
         "kolo: unknown model \"lnet\": did you mean \"lenet\"?\n"},
        {"train --model mlp --data syntetic",
         "kolo: unknown data set \"syntetic\": did you mean synthetic?\n"},
        {"train --model mlp --data synthetic:N=90 --checkpoint-every 5 --steps 1",
         "kolo: --checkpoint-every needs --out DIR, the folder of the checkpoints\n"},
        {"train --model mlp --data synthetic:N=900 --workers 1000 --steps 1", /* and no rank starts
                                                                               */
         "kolo: 1000 workers for 900 training samples in synthetic: use at most 900 "
         "workers\n"},
        {"train --model mlp --data synthetic:N=90 --resume latest --steps 1",
         "kolo: --resume latest needs --out DIR, the folder of the checkpoints\n"},
        {"train --resume latest",
         "kolo: --resume latest requires all options of the run, such as --model, --data and "
         "--out: "
         "repeat the command that started it, or resume by its folder alone with --resume DIR\n"},
        {"train --model mlp --data synthetic:N=90 --checkpoint-every 2x --out o",
         "kolo: --checkpoint-every 2x: must be a number of steps, such as 500, of epochs, such as "
         "1e, or a time, such as 10m\n"},
        {"train --model mlp --data synthetic:N=90 --resume o/latest --init f.safetensors",
         "kolo: --resume loads the weights of the checkpoint: remove --init\n"},
        {"train --model mlp --data synthetic:N=90 --no-eval=true",
         "kolo: --no-eval takes no value\n"},
        {"train --model mlp --data synthetic:N=90 --beta1 0.8",
         "kolo: --beta1 has no effect without --optimizer adam, adamw or lamb: remove it, or give "
         "--optimizer adam, adamw or lamb\n"},
        {"train --model mlp --data synthetic:N=90 --lr-min 0.1 --schedule step",
         "kolo: --lr-min has no effect without --schedule cosine or poly: remove it, or give "
         "--schedule cosine or poly\n"},
        {"train --model mlp --data synthetic:N=90 --no-eval --eval-every 2",
         "kolo: --eval-every has no effect without --eval: remove it, or give --eval\n"},
        {"train --model mlp --data synthetic:N=90 --pipeline gpipe",
         "kolo: --pipeline has no effect without --mesh pp=2: remove it, or give --mesh pp=2\n"},
        {"train --model mlp --data synthetic:N=90 --mesh tp=2,pp=1 --pipeline zb-h1",
         "kolo: --pipeline has no effect without --mesh pp=2: remove it, or give --mesh pp=2\n"},
        {"train --model mlp --data synthetic:N=90 --rebalance-stages 5",
         "kolo: --rebalance-stages has no effect without --mesh pp=2: remove it, or give --mesh "
         "pp=2\n"},
        {"dump --model mlp --what plan --placement megatron",
         "kolo: --placement has no effect without --mesh tp=2: remove it, or give --mesh tp=2\n"},
        {"dump --model gpt2_tiny --what plan --placement ring",
         "kolo: --placement has no effect without --mesh sp=2: remove it, or give --mesh sp=2\n"},
        {"dump --model gpt2_tiny --what plan --mesh sp=2 --placement megatron",
         "kolo: placement megatron is of the layers that an axis tp divides: give --mesh "
         "dp=*,tp=2, for example\n"},
        {"dump --model gpt2_tiny --what program --mesh tp=2,pp=2 --placement ring",
         "kolo: placement ring has the rule \"attention ring\", which is of positions that an axis "
         "sp divides: give --mesh dp=*,sp=2, for example\n"},
        {"dump --model mlp --what plan --mesh tp=2 -n 3",
         "kolo: --mesh tp=2 sets the number of ranks: remove --ranks\n"},
        {"dump --model mlp --what plan --mesh pp=2 --rank 2",
         "kolo: --rank 2: the plan is of 2 ranks: choose 0 to 1\n"},
        {"dump --model mlp --what plan --forward --ranks 2 --rank 1",
         "kolo: --rank 1: all ranks have the same plan: omit it, or give --mesh, --zero or, for "
         "training with shared parameters, --ranks\n"},
        {"dump --model mlp --what passes --mesh pp=2 --rank 1",
         "kolo: --rank 1 is for --what plan: omit it\n"},
        {"dump --model mlp --mesh dp=2,tp=2",
         "kolo: --mesh is for --what passes, plan, schedule or program: omit it\n"},
        {"dump --model mlp --tp-blocks 2",
         "kolo: --tp-blocks is for --what passes, plan, schedule or program: omit it\n"},
        {"dump --model mlp --zero 1",
         "kolo: --zero is for --what passes, plan, schedule or program: omit it\n"},
        {"dump --model mlp --what graph --worker-weights 1,0.5",
         "kolo: --worker-weights is for --what passes, plan, schedule or program: omit it\n"},
        {"dump --model mlp --what graph --pipeline zbv",
         "kolo: --pipeline is for --what passes, plan, schedule or program: omit it\n"},
        {"dump --model mlp --what graph --accumulate 2",
         "kolo: --accumulate is for --what passes, plan, schedule, program or servers: omit it\n"},
        {"dump --model mlp --what program --mesh pp=2 --forward",
         "kolo: --forward is for --what passes, plan or schedule: omit it\n"},
        {"dump --model mlp --what servers --recompute full",
         "kolo: --recompute is for --what passes, plan, schedule or program: omit it\n"},
        {"dump --model mlp --what servers --precision bf16",
         "kolo: --precision is for --what passes, plan, schedule or program: omit it\n"},
        {"dump --model mlp --what servers --mesh tp=2",
         "kolo: servers are for data parallelism: give their number with --ranks in place of "
         "--mesh tp=2\n"},
        {"dump --model mlp --what servers --tp-blocks 2",
         "kolo: servers have whole parameters, which --tp-blocks divides: omit it\n"},
        {"train --model mlp --data synthetic:N=90 --compress-min-bytes 10",
         "kolo: --compress-min-bytes has no effect without --compress CODEC: remove it, or give "
         "--compress CODEC\n"},
        {"train --model mlp --data synthetic:N=90 --compress zip",
         "kolo: compression \"zip\": choose one of none, f16, bf16, int8, 1bit, topk:R, "
         "powersgd:R, "
         "auto\n"},
        {"train --model mlp --data synthetic:N=90 --compress 1bits,only=*",
         "kolo: compression \"1bits\": did you mean 1bit?\n"},
        {"train --model mlp --data synthetic:N=90 --keep 3 --out o",
         "kolo: --keep requires --checkpoint-every N\n"},
        {"train --resume .",
         "kolo: --resume .: no config.yaml found: give --model and the other options of the run\n"},
        {"train --model gpt2_tiny:dropout=1.5 --data synthetic-tokens",
         "kolo: model gpt2_tiny: \"dropout=1.5\": give dropout a whole number of percent, or a "
         "share as 0.5, from 0 to 99, as in dropout=0\n"},
        {"train --model bert_tiny:nsp=1 --data synthetic:N=90",
         "kolo: data set synthetic has no pairs of sentences: choose data such as text:FILE, "
         "tokens:FILE or synthetic-tokens, or a model without them (nsp=0)\n"},
        {"help bench tarin", "kolo: unknown command 'bench tarin': did you mean 'bench train'?\n"},
        {"bench", "kolo: 'bench' needs one of: train, allreduce, ps, compress, loader, sim\n"},
        {"train --follow ps",
         "kolo: unknown option --follow: 'kolo train --help' lists the options\n"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        test_run_fails(cases[i].arguments, 2, cases[i].text);
    }
}

/* A text that the model cannot use is a usage error. */
static void unsuitable_texts_are_usage_errors(void **state) {
    ASSERT_OK(kolo_file_write("ten", "pytorch!!!", 10));
    test_run_fails(
        "train --model lstm_lm:vocab=121,context=4 --data text:ten", 2,
        "kolo: ten: token 121 at index 1 exceeds the vocabulary of 121: give the model a "
        "larger vocabulary, or another file\n");
    test_run_fails(
        "train --model bert_tiny --data text:ten", 2,
        "kolo: ten: 10 tokens are too few for windows of 512: give a longer file, or the "
        "model a shorter context\n");
}

static void failures_are_one_line_and_exit_1(void **state) {
    static const struct {
        const char *arguments, *text;
    } cases[] = {
        {"train --model mlp --data synthetic:N=90 --json no/where",
         "kolo: cannot write no/where: No such file or directory: check the path\n"},
        {"train --model mlp --data synthetic:N=90 --json fifo",
         "kolo: cannot write fifo: it is a named pipe: give a file\n"},
        {"bench sim -n 2 --sizes 4 --json fifo",
         "kolo: cannot write fifo: it is a named pipe: give a file\n"},
        {"train --model mlp --data synthetic:N=90 --config absent.yaml",
         "kolo: cannot open absent.yaml: No such file or directory: check the path\n"},
        {"train --resume absent",
         "kolo: cannot resume absent: No such file or directory: check the path\n"},
        {"eval --checkpoint absent --data synthetic:N=90",
         "kolo: cannot open absent: No such file or directory: check the path\n"},
    };
    assert_int_equal(system("mkfifo fifo"), 0);
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        test_run_fails(cases[i].arguments, 1, cases[i].text);
    }
}

/* Limits as on clusters: virtual memory, and file size, which applies to shared memory. */
static void limits_leave_room_for_work(void **state) {
    static const char *const limits[] = {"-v 4000000", "-f 100000"};
    if (TEST_FEWER(true, false)) return; /* sanitizers need all of the address space */
    for (int i = 0; i < 4; i++) {
        char line[512];
        snprintf(line, sizeof line,
                 "ulimit %s; '%s' bench train --model mlp --batch 8 --steps 2 --threads 1 "
                 "--workers %d >out 2>err",
                 limits[i / 2], KOLO_COMMAND, i % 2 + 1);
        if (system(line) != 0) fail_msg("%s: %s", line, test_contents("err"));
    }
}

/* Every command fails on unwritable standard output, before the work. */
static void unwritable_output_is_a_failure(void **state) {
    static const struct {
        const char *arguments, *error;
    } cases[] = {
        {"--version >/dev/full", "No space left on device: free some space or choose another disk"},
        {"help >/dev/full", "No space left on device: free some space or choose another disk"},
        {"info >/dev/full", "No space left on device: free some space or choose another disk"},
        {"run -n 2 -- echo hello >/dev/full",
         "No space left on device: free some space or choose another disk"},
        {"train --model mlp --data synthetic:N=9,test=9 --progress none --no-eval >/dev/full",
         "No space left on device: free some space or choose another disk"},
        {"--version >&-", "Bad file descriptor"},
        {"help train >&-", "Bad file descriptor"},
        {"run -n 2 -- echo hello >&-", "Bad file descriptor"},
        {"train --model mlp --data synthetic:N=90 --epochs 9999 --out never --progress none >&-",
         "Bad file descriptor"},
        {"bench train --model mlp --steps 1 --json x.json <&- >&-", "Bad file descriptor"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        char line[512], expected[256];
        snprintf(line, sizeof line, "'%s' %s 2>err", KOLO_COMMAND, cases[i].arguments);
        snprintf(expected, sizeof expected, "kolo: cannot write standard output: %s\n",
                 cases[i].error);
        int status = system(line);
        char *err = test_contents("err");
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 1 || strcmp(err, expected) != 0) {
            fail_msg("kolo %s: %d\n%s", cases[i].arguments, status, err);
        }
        kolo_free(err);
    }
    assert_int_not_equal(access("never", F_OK), 0);
}

/* Figures are those of the run: the samples that a step has, the model of a checkpoint. */
/* What has no effect with servers, and too few processes for them. */
static void servers_refuse_what_they_ignore(void **state) {
    static const char *const options[] = {"--algorithm ring", "--no-share"};
    for (size_t i = 0; i < KOLO_COUNT(options); i++) {
        char arguments[256], text[256];
        snprintf(arguments, sizeof arguments,
                 "train --model mlp --data synthetic:N=16,test=8 --sync ps %s", options[i]);
        snprintf(text, sizeof text,
                 "kolo: --%s has no effect without --sync allreduce: remove it, or give --sync "
                 "allreduce\n",
                 i == 0 ? "algorithm" : "share");
        test_run_fails(arguments, 2, text);
    }
    assert_int_equal(test_run("run -n 1 -- '" KOLO_COMMAND "' train --model mlp --data "
                              "synthetic:N=16,test=8 --sync ps --servers 1"),
                     2);
    assert_true(test_contains("err", "1 servers of 1 processes: there must be a worker"));
    test_run_fails("train --model mlp --data synthetic:N=64,test=8 --batch 5 --workers 2 "
                   "--threads 1 --reproducible 2",
                   2,
                   "kolo: 2 logical shards need a global batch, not a batch per worker: give "
                   "--global-batch 10, for example\n");
}

/* Out-of-memory errors contain advice. */
static void out_of_memory_has_advice(void **state) {
    if (kolo_memory_limit() < INT64_C(200) << 30) { /* refused before it is filled */
        assert_int_equal(test_run("bench train --model lstm_lm:vocab=7000000,width=1024 --batch 1 "
                                  "--optimizer adam --steps 1 --threads 1 --autotune off"),
                         1);
        assert_true(test_contains("err", "kolo: a worker needs "));
        assert_true(test_contains("err", " GiB for them: use a smaller model or batch, "));
        assert_int_equal(test_run("train --model mlp:hidden=90000 --data synthetic:N=16,test=1 "
                                  "--no-recipe --optimizer adam --steps 1 --threads 1 --autotune "
                                  "off --out copied --checkpoint-every 1"),
                         1);
        assert_true(test_contains("err", "), copies for checkpoints "));
        assert_true(test_contains("err", " --recompute full, or --wait-for-saves\n"));
    }
    if (TEST_FEWER(true, false)) return; /* sanitizers need all of the address space */
    char line[256];
    snprintf(line, sizeof line,
             "ulimit -v 4000000; '%s' bench train --model lstm_lm:vocab=10000000,width=512 --batch "
             "1 --steps 1 --threads 1 >out 2>err",
             KOLO_COMMAND);
    int status = system(line);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    assert_true(test_contains("err",
                              " bytes: use a smaller model, batch or buffer, or raise the limit of "
                              "virtual memory (ulimit -v)\n"));
}

TEST_MAIN(test_command_errors) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usage_errors_are_one_line_and_exit_2),
        cmocka_unit_test(unsuitable_texts_are_usage_errors),
        cmocka_unit_test(failures_are_one_line_and_exit_1),
        cmocka_unit_test(limits_leave_room_for_work),
        cmocka_unit_test(unwritable_output_is_a_failure),
        cmocka_unit_test(servers_refuse_what_they_ignore),
        cmocka_unit_test(out_of_memory_has_advice),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}

/* The command from outside: what jobs and dumps report. test_command_bench.c has those that
 * measure, test_command_help.c, _errors.c and _config.c help, wrong use and config files. */
#define _GNU_SOURCE
#include "support/command.h"
#include "support/folder.h"
#include "support/support.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Token models report perplexity with every loss; models of sentence pairs report both parts. */
static void models_of_tokens_report_perplexity(void **state) {
    assert_int_equal(
        test_run("train --model bert_tiny:layers=1,width=32,context=12,vocab=50,nsp=1 --data "
                 "synthetic-tokens:N=32,test=8 --batch 8 --threads 1 --progress plain "
                 "--out tokens --json a.json"),
        0);
    assert_int_equal(system("tail -n 1 tokens/metrics.jsonl >epoch.json"), 0);
    json_t *result = test_json("a.json"), *epoch = test_json("epoch.json");
    double accuracy = test_json_number(result, "final_next_accuracy");
    assert_true(accuracy >= 0 && accuracy <= 1);
    assert_true(test_json_number(result, "test_perplexity") ==
                test_json_number(epoch, "test_perplexity"));
    double masked = exp(test_json_number(epoch, "epoch_masked_loss")), of_line = 0;
    assert_true(fabs(test_json_number(epoch, "epoch_perplexity") / masked - 1) < 1e-9);
    char *output = test_contents("err");
    const char *at = strstr(output, "  epoch perplexity ");
    assert_true(at && strstr(at, "  test perplexity ") &&
                sscanf(at, " epoch perplexity %lf", &of_line));
    assert_true(fabs(of_line / masked - 1) < 1e-3);
    kolo_free(output);
    json_decref(result);
    json_decref(epoch);
}

static void results_show_what_ran(void **state) {
    assert_int_equal(
        test_run("train --model mlp:hidden=4 --data synthetic:N=640,test=8 --batch "
                 "100000 --epochs 2 --eval-every-steps 1 --log-every 2 --out huge --lr 0.125 "
                 "--scale-lr 320 --warmup-epochs 0 --schedule constant"),
        0);
    assert_true(test_contains("out", ", batch 640 each\n"));
    assert_true(test_contains("huge/metrics.jsonl", "\"lr\": 0.25,")); /* of 640 samples */
    assert_true(test_contains("err", "a step of 100000 samples exceeds the 640 of the training "
                                     "data: each step uses all of them\n"));
    assert_true(test_contains("err", "  epoch loss "));
    assert_true(test_contains("huge/metrics.jsonl", "{\"event\": \"train\", \"step\": 2, "));
    assert_true(test_contains("huge/loss.svg", "<polyline "));
    assert_true(test_contains("huge/loss.svg", "\"/>\n<text x=\"60\" y=\"18\""));
    assert_false(test_contains("huge/metrics.jsonl", "{\"event\": \"train\", \"step\": 1, "));
    assert_int_equal(test_run("eval --checkpoint huge/checkpoint-final.safetensors --data "
                              "synthetic:N=640,test=8"),
                     0);
    assert_true(test_contains("out", "model             mlp:hidden=4, "));
    assert_true(test_contains("out", ", batch 8 each\n"));
    assert_int_equal(test_run("eval --checkpoint huge/checkpoint-final.safetensors --data "
                              "synthetic:N=640,test=8 --quiet"),
                     0);
    assert_int_equal(test_run("train --model mlp:hidden=4 --data synthetic:N=16,test=8 --batch 4 "
                              "--threads 1 --mesh dp=1,tp=2"),
                     0);
    assert_true(test_contains("out", "2, threads 1 each, batch 4 for 2 workers together\n"));
    assert_int_equal(test_run("train --model mlp --data synthetic:N=64,test=8 -q --json q.json"),
                     0);
    assert_int_equal(system("test ! -s out && test ! -s err && test -s q.json"), 0);
}

/* A long line stays whole. */
static void long_lines_of_ranks_stay_whole(void **state) {
    assert_int_equal(
        test_run("run -n 2 -- sh -c 'head -c 300000 /dev/zero | tr \"\\\\0\" x; echo'"), 0);
    assert_int_equal(system("test $(wc -l <out) = 2 && test $(wc -c <out) = 600010"), 0);
}

static void weights_go_in_and_out(void **state) {
    const char *train = "train --model mlp:hidden=4 --data synthetic:N=40,test=8 --batch 10";
    char line[512];
    snprintf(line, sizeof line, "%s --out old", train);
    assert_int_equal(test_run(line), 0);
    assert_true(test_contains("out", ", mean of the last 4 steps\n"));
    assert_int_equal(test_run("checkpoint verify old/checkpoint-final.safetensors"), 0);
    assert_int_equal(test_run("checkpoint info old/checkpoint-final.safetensors"), 0);
    assert_true(test_contains("out", "model_options  hidden=4\n"));
    assert_int_equal(system("cp old/checkpoint-final.safetensors damaged && "
                            "printf x | dd of=damaged bs=1 conv=notrunc status=none "
                            "seek=$(($(stat -c %s damaged) - 1))"),
                     0);
    assert_int_equal(test_run("checkpoint info damaged"), 1);
    assert_true(test_contains("out", "model_options  hidden=4\n"));
    assert_true(test_contains("err", "kolo: damaged: "));
    assert_int_equal(
        test_run("checkpoint export old/checkpoint-final.safetensors --out w --format native"), 0);
    assert_int_equal(test_run("checkpoint diff w old/checkpoint-final.safetensors"), 0);
    assert_true(test_contains("out", "6 tensors are the same, 0 differ\n"));
    snprintf(line, sizeof line, "%s --init w --workers 2 --steps 1 --out new", train);
    assert_int_equal(test_run(line), 0);
    assert_int_equal(test_run("checkpoint diff w new/checkpoint-final.safetensors"), 1);
    assert_true(test_contains("out", "0 tensors are the same, 6 differ\n"));

    test_run_fails("checkpoint diff w", 2, "kolo: 'kolo checkpoint diff' takes two files\n");
    test_run_fails(
        "checkpoint export w --format torchvision --out x", 2,
        "kolo: w is of model mlp, which torchvision does not have: export it as native\n");
    test_run_fails("checkpoint info nowhere", 1,
                   "kolo: cannot open nowhere: No such file or directory: check the path\n");
    assert_int_equal(test_run("train --model lenet --data synthetic:N=90 --init w --workers 2"), 1);
    assert_true(test_contains(
        "err", "w does not match model lenet; of its tensors 4 missing (conv1.weight, "
               "conv1.bias, conv2.weight, conv2.bias), 5 of another type or shape ("));
}

/* Without data a model uses its default sample shape. */
static void models_have_default_samples(void **state) {
    static const struct {
        const char *command, *samples, *logits;
    } cases[] = {
        {"dump --model resnet20 --batch 3", "[3,3,32,32]", "[3,10]"},
        {"dump --model vgg16 --batch 2", "[2,3,224,224]", "[2,1000]"},
        {"dump --model mlp --batch 2 --what passes --mesh pp=2", "[2,1,28,28]", "shard, stages"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        assert_int_equal(test_run(cases[i].command), 0);
        char *graph = test_contents("out");
        assert_non_null(strstr(graph, cases[i].samples));
        assert_non_null(strstr(graph, cases[i].logits));
        kolo_free(graph);
    }
}

static void a_dump_has_the_runs_optimizer(void **state) {
    static const char *const whats[] = {"passes", "plan"};
    for (size_t i = 0; i < KOLO_COUNT(whats); i++) {
        char words[128];
        snprintf(words, sizeof words,
                 "dump --model mlp:hidden=8 --optimizer adam --beta1 0.5 --clip 2 --what %s",
                 whats[i]);
        assert_int_equal(test_run(words), 0);
        assert_true(test_contains("out", "beta1=0.5") && test_contains("out", " = clip_factor("));
    }
}

/* A dump of schedules has the plan's own requests: each bucket with its algorithm, variant and
 * chunk, and the schedules of its first ranks, of others the totals. Rows of sparse tables are
 * gathered, not reduced. */
static void a_dump_has_the_plans_collectives(void **state) {
    const char *model = "lstm_lm:layers=1,vocab=50,hidden=4,context=8 --batch 2 --ranks 2";
    char words[192];
    snprintf(words, sizeof words, "dump --what schedule --model %s", model);
    assert_int_equal(test_run(words), 0);
    assert_true(test_contains("out",
                              "bucket 0    allreduce          1920          480 f32    direct "
                              "           window          262144\n"));
    assert_true(
        test_contains("out", "\nbucket 0: 480 elements\nrank 0 of 2: schedule direct rounds"));
    assert_true(test_contains("out", "\nrank 1 of 2: schedule direct rounds"));
    snprintf(words, sizeof words,
             "dump --what schedule --algorithm ring --bucket-bytes 1 --model %s", model);
    assert_int_equal(test_run(words), 0);
    assert_true(test_contains("out", "f32    ring              messages        262144\nbucket 1 "));
    assert_true(test_contains("out", "\nrank 1 of 2: schedule ring rounds"));
    assert_int_equal(test_run("dump --what schedule --model mlp --ranks 6 --algorithm ring"), 0);
    assert_true(test_contains(
        "out", " copied 0\nround 0\n  send data[59088,78784) rank 4\n")); /* of rank 3 */
    assert_true(
        test_contains("out", " copied 0\nrank 5 of 6: schedule ring rounds")); /* after rank 4 */
    snprintf(words, sizeof words, "dump --what schedule --sparse-embedding --model %s", model);
    assert_int_equal(test_run(words), 0);
    assert_true(test_contains("out", "bucket 0    allreduce          1856          464 f32 "));
    assert_true(test_contains("out", "bucket 1    allgather           512          128 f32    - "));
    assert_true(test_contains("out", "\nrank 1 of 2: schedule allgather-direct rounds"));
    snprintf(words, sizeof words, "dump --what schedule --forward --model %s", model);
    assert_int_equal(test_run(words), 0);
    assert_true(test_contains("out", "no collectives: only a training step has them\n"));
    assert_int_equal(test_run("dump --what schedule --model mlp --mesh pp=2 --accumulate 2"), 0);
    assert_true(test_contains("out", "no collectives: the stages of a pipeline exchange messages, "
                                     "which --what program prints\n"));
    test_run_fails("dump --what schedule --sparse-embedding --model mlp", 2,
                   "kolo: the model has no embedding table for sparse gradients: omit "
                   "--sparse-embedding, or choose a language model\n");
    snprintf(words, sizeof words, "dump --sparse-embedding --model %s", model);
    assert_int_equal(test_run(words), 0);
    assert_true(test_contains("err", "dump: --sparse-embedding takes effect in the passes: "));
}

/* Every POST states from which placements to which it moves values, and their bytes. */
static void assert_moves_have_bytes(const char *options) {
    char words[320], line[4096];
    int moves = 0;
    snprintf(words, sizeof words,
             "dump --what plan --batch 4 --model gpt2_moe:layers=2,experts=4,context=8,width=32,"
             "heads=4,vocab=50 %s",
             options);
    assert_int_equal(test_run(words), 0);
    FILE *f = fopen("out", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (!strstr(line, " post   bucket")) continue;
        if (strstr(line, ": nothing moves")) continue;
        moves++;
        if (!strstr(line, " -> ") || !strstr(line, " bytes")) fail_msg("%s: %s", options, line);
    }
    fclose(f);
    assert_true(moves > 0);
}

static void a_dump_has_each_redistribution(void **state) {
    static const struct {
        const char *options, *some;
    } meshes[] = {
        {"--mesh dp=2,tp=2", ": tp:partial -> invariant, 4096 bytes"},
        {"--mesh dp=2,tp=2 --placement megatron-sp", ": tp:partial -> tp:sharded1, 4096 -> 2048"},
        {"--mesh dp=2,sp=2 --zero 1", ": sp:sharded1 -> sp:sharded2/3, 6144 bytes"},
        {"--mesh dp=1,ep=2", ": ep:sharded1 -> ep:sharded0, 5120 bytes"},
        {"--mesh dp=1,pp=2,sp=2 --accumulate 2", "to stage 1, activations: %"},
        {"--mesh dp=1,pp=2,tp=2 --accumulate 2 --rank 3", "to stage 0, gradient: %"},
    };
    (void)state;
    for (size_t i = 0; i < KOLO_COUNT(meshes); i++) {
        assert_moves_have_bytes(meshes[i].options);
        if (!test_contains("out", meshes[i].some)) {
            fail_msg("%s lacks %s", meshes[i].options, meshes[i].some);
        }
    }
}

static void parts_of_servers_are_printed(void **state) {
    assert_int_equal(test_run("dump --model lenet --what servers --ranks 2"), 0);
    assert_true(test_contains("out", "server 1: pulled "));
    assert_int_equal(test_run("dump --model lenet --what servers --ranks 4 --servers 1"), 0);
    assert_true(test_contains("out", "worker 2: ") && test_contains("out", "server 0: "));
    static const char *const refused[] = {"dump --model lenet --what servers --ranks 2 --servers 1",
                                          "dump --model lenet --what plan --servers 1"};
    for (size_t i = 0; i < KOLO_COUNT(refused); i++) {
        test_run_fails(
            refused[i], 2,
            "kolo: --servers 1: it is for --what servers, of --ranks with two workers at "
            "least\n");
    }
}

static int count_lines(const char *path, const char *part) {
    char line[512];
    int n = 0;
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) n += strstr(line, part) != NULL;
    fclose(f);
    return n;
}

/* The variable may be meant for something else: it is no error. */
static void a_role_without_effect_is_noted_once(void **state) {
    const char *train = "train --model mlp:hidden=8 --data synthetic:N=64,test=8 --batch 8 "
                        "--steps 1 --threads 1";
    char words[256];
    setenv("ROLE", "server", 1);
    snprintf(words, sizeof words, "%s --workers 2", train);
    assert_int_equal(test_run(words), 0);
    assert_int_equal(count_lines("err", "rank 0 has ROLE=server, without effect"), 1);
    snprintf(words, sizeof words, "%s --quiet", train);
    assert_int_equal(test_run(words), 0);
    assert_int_equal(count_lines("err", "ROLE"), 0);
    setenv("ROLE", "primary", 1);
    assert_int_equal(test_run(train), 0);
    assert_int_equal(count_lines("err", "ROLE"), 0);
    unsetenv("ROLE");
}

TEST_MAIN(test_command) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_servers_are_printed),
        cmocka_unit_test(a_role_without_effect_is_noted_once),
        cmocka_unit_test(models_of_tokens_report_perplexity),
        cmocka_unit_test(results_show_what_ran),
        cmocka_unit_test(long_lines_of_ranks_stay_whole),
        cmocka_unit_test(weights_go_in_and_out),
        cmocka_unit_test(models_have_default_samples),
        cmocka_unit_test(a_dump_has_the_runs_optimizer),
        cmocka_unit_test(a_dump_has_the_plans_collectives),
        cmocka_unit_test(a_dump_has_each_redistribution),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}

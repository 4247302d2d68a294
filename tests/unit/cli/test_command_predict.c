/* kolo predict and kolo eval --model: predictions agree with evaluation; lines, files, sequences;
 * weights that name no model; what is refused. */
#include "base/file.h"
#include "base/text.h"
#include "data/safetensors/safetensors.h"
#include "kolo/data.h"
#include "support/command.h"
#include "support/folder.h"
#include "support/support.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#define IMAGES "synthetic:N=200,test=50,shape=1x8x8,classes=4"

static void train_once(void) {
    if (kolo_file_exists("run/checkpoint-final.safetensors")) return;
    assert_int_equal(test_run("train --model mlp:hidden=16 --data " IMAGES
                              " --lr 0.01 --epochs 3 --batch 10 --threads 1 --out run"),
                     0);
    assert_int_equal(
        test_run("checkpoint export run/checkpoint-final.safetensors --out w.safetensors"), 0);
}

/* Calls `check` for each line of a file; returns their number. */
static int each_line(const char *path, void (*check)(const json_t *line, int i)) {
    char *text, *next;
    size_t bytes;
    int n = 0;
    ASSERT_OK(kolo_file_read(path, 1 << 24, &text, &bytes));
    for (char *line = text; *line; line = next + 1, n++) {
        next = strchr(line, '\n');
        assert_non_null(next);
        *next = '\0';
        json_t *object = json_loads(line, 0, NULL);
        if (!object) fail_msg("no JSON: %s", line);
        check(object, n);
        json_decref(object);
    }
    kolo_free(text);
    return n;
}

static int right;
static float logits[50][4];

static void check_top(const json_t *line, int i) {
    const json_t *top = json_object_get(line, "top");
    double before = 1, sum = 0;
    assert_int_equal(test_json_int(line, "sample"), i);
    assert_int_equal(json_array_size(top), 4);
    for (size_t k = 0; k < 4; k++) {
        double p = test_json_number(json_array_get(top, k), "probability");
        assert_true(p <= before && p >= 0);
        before = p;
        sum += p;
    }
    assert_true(fabs(sum - 1) < 1e-9);
    right += test_json_int(json_array_get(top, 0), "class") == test_json_int(line, "label");
}

static void check_logits(const json_t *line, int i) {
    const json_t *values = json_object_get(line, "logits");
    assert_int_equal(json_array_size(values), 4);
    for (size_t k = 0; k < 4; k++) {
        const double got = json_number_value(json_array_get(values, k));
        const double want = (double)logits[i][k]; /* of a batch that may have another size */
        assert_true(fabs(got - want) <= 1e-6 * fmax(1, fabs(want)));
    }
}

static void predictions_agree_with_evaluation(void **state) {
    train_once();
    right = 0;
    assert_int_equal(test_run("predict --checkpoint run/checkpoint-final.safetensors --data " IMAGES
                              " --batch 7 --top 9 --out lines"),
                     0);
    assert_int_equal(each_line("lines", check_top), 50);
    assert_int_equal(test_run("eval --checkpoint run/checkpoint-final.safetensors --data " IMAGES
                              " --json eval.json"),
                     0);
    json_t *eval = test_json("eval.json");
    assert_true(fabs(test_json_number(eval, "test_accuracy") - right / 50.0) < 1e-12);
    json_decref(eval);
    assert_int_equal(test_run("eval --checkpoint run/checkpoint-final.safetensors --data " IMAGES
                              " --split train --json eval.json"),
                     0);
    eval = test_json("eval.json");
    assert_int_equal((int)test_json_number(eval, "samples"), 200);
    assert_true(test_json_number(eval, "train_accuracy") > 0);
    json_decref(eval);
    /* The same as a file, and as numbers on standard output. */
    assert_int_equal(
        test_run("predict --model mlp:hidden=16 --checkpoint w.safetensors --data " IMAGES
                 " --out all.safetensors --batch 7"),
        0);
    kolo_safetensors *file;
    ASSERT_OK(kolo_safetensors_open("all.safetensors", &file));
    const kolo_safetensors_entry *e = kolo_safetensors_find(file, "logits");
    assert_true(e && e->shape.rank == 2 && e->bytes == sizeof logits);
    memcpy(logits, e->data, sizeof logits);
    e = kolo_safetensors_find(file, "labels");
    assert_true(e && e->shape.rank == 1 && e->shape.dim[0] == 50);
    kolo_safetensors_close(file);
    assert_int_equal(test_run("predict --checkpoint run/checkpoint-final.safetensors --data " IMAGES
                              " --top 0 --samples 9 --batch 7"),
                     0);
    assert_int_equal(each_line("out", check_logits), 9);
}

/* Every sample counts once, whatever the number of workers. */
static void workers_share_the_samples(void **state) {
    double loss[2];
    train_once();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            test_run(i ? "eval --checkpoint run/checkpoint-final.safetensors --data " IMAGES
                         " --batch 7 --threads 1 --workers 3 --json eval.json"
                       : "eval --checkpoint run/checkpoint-final.safetensors --data " IMAGES
                         " --batch 7 --threads 1 --json eval.json"),
            0);
        json_t *eval = test_json("eval.json");
        assert_int_equal(test_json_int(eval, "samples"), 50);
        loss[i] = test_json_number(eval, "test_loss");
        json_decref(eval);
    }
    assert_true(fabs(loss[0] - loss[1]) < 1e-6 * loss[0]);
}

static int clicks[40]; /* of the test split: whether the samples were clicks */

static void check_click(const json_t *line, int i) {
    const json_t *values = json_object_get(line, "logits");
    assert_int_equal(json_array_size(values), 1);
    assert_null(json_object_get(line, "top"));
    right += (json_number_value(json_array_get(values, 0)) > 0) == clicks[i];
}

/* A log whose clicks depend on its first integer and its last category. */
static void write_log(void) {
    kolo_text t = {0};
    for (int i = 0; i < 120; i++) {
        kolo_text_add(&t, "%d\t%d", (i % 3 == 0) ^ (i % 5 < 2), 100 * (i % 3));
        for (int k = 0; k < 37; k++) kolo_text_add(&t, "\t");
        kolo_text_add(&t, "\t%x\n", i % 5);
    }
    ASSERT_OK(kolo_file_write("log.txt", t.text, t.length));
    kolo_text_fini(&t);
}

#define LOG "criteo:log.txt,split=0.3333"

static void clicks_have_one_logit(void **state) {
    static const kolo_dataset_opts opts = {.numbers = 13, .categories = 26, .rows = 9};
    kolo_dataset *d;
    write_log();
    ASSERT_OK(kolo_dataset_open_for(LOG, KOLO_SPLIT_TEST, &opts, &d));
    assert_int_equal(kolo_dataset_describe(d)->count, KOLO_COUNT(clicks));
    for (int64_t i = 0; i < (int64_t)KOLO_COUNT(clicks); i++) {
        float x[13], y;
        int32_t ids[26];
        ASSERT_OK(kolo_dataset_gather(d, &i, 1, (void *[]){x, &y, ids}));
        clicks[i] = (int)y;
    }
    kolo_dataset_close(d);
    assert_int_equal(
        test_run("train --model dlrm:rows=9,dim=4,bottom1=8,bottom2=0,bottom3=0,top1=8,top2=0 "
                 "--data " LOG " --workers 2 --threads 1 --batch 4 --epochs 30 --lr 0.1 "
                 "--sparse-embedding --out clicks"),
        0);
    assert_int_equal(test_run("predict --checkpoint clicks/checkpoint-final.safetensors --data " LOG
                              " --batch 7 --out lines"),
                     0);
    right = 0;
    assert_int_equal(each_line("lines", check_click), KOLO_COUNT(clicks));
    assert_int_equal(test_run("eval --checkpoint clicks/checkpoint-final.safetensors --data " LOG
                              " --workers 3 --threads 1 --json eval.json"),
                     0);
    json_t *eval = test_json("eval.json");
    assert_true(fabs(test_json_number(eval, "test_accuracy") - right / 40.0) < 1e-12);
    assert_true(test_json_number(eval, "test_accuracy") > 0.9);
    json_decref(eval);
    ASSERT_OK(kolo_file_write("numbers.csv", "1,2,0\n3,4,1\n5,6,1\n", 18));
    static const struct {
        const char *arguments, *error;
    } refused[] = {
        {"predict --checkpoint clicks/checkpoint-final.safetensors --top 2 --data " LOG,
         "output \"logits\" has one number for each sample, not classes: omit --top"},
        {"eval --checkpoint clicks/checkpoint-final.safetensors --data synthetic:shape=1x1x13",
         "takes samples [13] in 1 classes"},
        {"train --model dlrm:dense=2 --data csv:numbers.csv,type=value",
         "nothing fills the input \"ids\", since csv has no such field"},
    };
    for (size_t i = 0; i < KOLO_COUNT(refused); i++) {
        assert_int_equal(test_run(refused[i].arguments), 2);
        if (!test_contains("err", refused[i].error)) fail_msg("no \"%s\"", refused[i].error);
    }
}

static void check_value(const json_t *line, int i) {
    const double value = test_json_number(line, "value");
    if (!(fabs(value) < 4)) fail_msg("sample %d: %g", i, value);
}

/* A table of numbers whose target is one, a sum of the others. */
static void numbers_are_predicted(void **state) {
    enum { ROWS = 200 };
    char text[ROWS * 16] = "";
    for (int i = 0, n = 0; i < ROWS; i++) {
        const double a = i % 7 * 0.25, b = i % 5 * 0.5;
        n += snprintf(text + n, sizeof text - (size_t)n, "%g,%g,%g\n", a, b, 2 * a - b);
    }
    ASSERT_OK(kolo_file_write("sums.csv", text, strlen(text)));
    assert_int_equal(test_run("train --model mlp:value=1,hidden=32 --data csv:sums.csv,type=value "
                              "--epochs 20 --batch 4 --lr 0.01 --threads 1 --out sums"),
                     0);
    assert_int_equal(test_run("predict --checkpoint sums/checkpoint-final.safetensors --data "
                              "csv:sums.csv,type=value --output value"),
                     0);
    assert_int_equal(each_line("out", check_value), ROWS / 10);
    assert_int_equal(test_run("eval --checkpoint sums/checkpoint-final.safetensors --data "
                              "csv:sums.csv,type=value --json eval.json"),
                     0);
    json_t *eval = test_json("eval.json"); /* the variance of the targets is 1.5 */
    assert_true(test_json_number(eval, "test_loss") < 0.02);
    json_decref(eval);
    test_run_fails("predict --checkpoint sums/checkpoint-final.safetensors --data "
                   "csv:sums.csv,type=value",
                   2,
                   "kolo: the graph has no output \"logits\" in evaluation; it has value, loss: "
                   "give one of these (--output)\n");
    ASSERT_OK(kolo_file_write("classes.csv", "0,0\n1,1\n0,0\n1,1\n", 16));
    test_run_fails("train --model mlp:value=1 --data csv:classes.csv,split=0.5", 2,
                   "kolo: model mlp: the input \"y\" is f32 [1]; labels are i32, [1] for this "
                   "batch: the model needs numbers, as of a table with type=value\n");
    test_run_fails("train --model mlp --data csv:sums.csv,type=value", 2,
                   "kolo: model mlp: the input \"y\" is i32 [1]; labels are f32, [1] for this "
                   "batch: they need a regression model, such as mlp:value=1\n");
}

#define FINAL "run/checkpoint-final.safetensors"

static void files_that_are_read_are_not_replaced(void **state) {
    static const char *const lines[] = {"d.csv", "1,2,0\n3,4,1\n", "j.yaml", "model: mlp\n"};
    static const struct {
        const char *file, *arguments, *error;
    } refused[] = {
        {FINAL, "predict --checkpoint " FINAL " --data " IMAGES " --out run/../" FINAL,
         "--out run/../" FINAL " is the file that --checkpoint reads"},
        {"d.csv", "predict --checkpoint " FINAL " --data csv:d.csv --out d.csv",
         "--out d.csv is the file that --data reads"},
        {"d.csv", "predict --checkpoint " FINAL " --data csv:d.csv,classes=2 --out ./d.csv",
         "--out ./d.csv is the file that --data reads"},
        {"d.csv", "predict --checkpoint " FINAL " --data csv:other.csv,test=d.csv --out d.csv",
         "--out d.csv is the file that --data reads"},
        {"w.safetensors",
         "eval --model mlp:hidden=16 --checkpoint w.safetensors --data " IMAGES
         " --json w.safetensors",
         "--json w.safetensors is the file that --checkpoint reads"},
        {"d.csv", "eval --checkpoint " FINAL " --data csv:d.csv --json d.csv --workers 2",
         "--json d.csv is the file that --data reads"},
        {"d.csv", "train --model mlp --data csv:d.csv --json d.csv",
         "--json d.csv is the file that --data reads"},
        {"d.csv", "train --model mlp --data csv:d.csv --trace d.csv --workers 2",
         "--trace d.csv is the file that --data reads"},
        {"w.safetensors",
         "train --model mlp:hidden=16 --data " IMAGES " --init w.safetensors --trace w.safetensors",
         "--trace w.safetensors is the file that --init reads"},
        {"j.yaml", "train --config j.yaml --data " IMAGES " --json j.yaml",
         "--json j.yaml is the file that --config reads"},
        {FINAL, "train --resume " FINAL " --json " FINAL,
         "--json " FINAL " is the file that --resume reads"},
        {"d.csv", "bench train --model mlp --tuning d.csv --json d.csv",
         "--json d.csv is the file that --tuning reads"},
        {"d.csv", "bench loader --data csv:d.csv --json d.csv",
         "--json d.csv is the file that --data reads"},
        {"d.csv", "profile --model mlp --data csv:d.csv --trace d.csv",
         "--trace d.csv is the file that --data reads"},
        {"d.csv", "profile --model mlp --json x --trace x",
         "--json x is the file that --trace writes"},
    };
    train_once();
    for (size_t i = 0; i < KOLO_COUNT(lines); i += 2) {
        ASSERT_OK(kolo_file_write(lines[i], lines[i + 1], strlen(lines[i + 1])));
    }
    for (size_t i = 0; i < KOLO_COUNT(refused); i++) {
        char *before, *after, *error = kolo_format("kolo: %s: choose another\n", refused[i].error);
        size_t bytes, now;
        ASSERT_OK(kolo_file_read(refused[i].file, 1 << 20, &before, &bytes));
        test_run_fails(refused[i].arguments, 2, error);
        ASSERT_OK(kolo_file_read(refused[i].file, 1 << 20, &after, &now));
        assert_int_equal(now, bytes);
        assert_memory_equal(after, before, bytes);
        kolo_free(before);
        kolo_free(after);
        kolo_free(error);
    }
    assert_false(kolo_file_exists("x"));
    /* Devices have nothing to lose. */
    assert_int_equal(test_run("bench train --model mlp --steps 2 --threads 1 --json /dev/null "
                              "--trace /dev/null"),
                     0);
}

static void check_token(const json_t *line, int i) {
    assert_int_equal(json_array_size(json_object_get(line, "top")), 2);
    (void)test_json_int(line, "label"); /* of the last token */
}

static void sequences_predict_the_next_token(void **state) {
#define TOKENS " --data synthetic-tokens:N=20,test=3"
    assert_int_equal(test_run("train --model gpt2_tiny:layers=1,width=16,heads=2,context=8,vocab=30"
                              " --steps 1 --threads 1 --out tokens" TOKENS),
                     0);
    assert_int_equal(test_run("checkpoint verify tokens/checkpoint-final.safetensors"), 0);
    assert_int_equal(
        test_run("predict --checkpoint tokens/checkpoint-final.safetensors --top 2" TOKENS), 0);
    assert_int_equal(each_line("out", check_token), 3);
}

static void weights_need_a_model_that_fits(void **state) {
    train_once();
    assert_int_equal(
        test_run("eval --model mlp:hidden=16 --checkpoint w.safetensors --data " IMAGES), 0);
    assert_true(test_contains("out", "mlp:hidden=16"));
    test_run_fails(
        "eval --model mlp --checkpoint w.safetensors --data " IMAGES, 1,
        "kolo: w.safetensors does not match model mlp; of its tensors 5 of another type "
        "or shape (fc1.weight f32 [16,64], not [128,64], fc1.bias f32 [16], not [128], "
        "fc2.weight f32 [16,16], not [128,128], fc2.bias f32 [16], not [128], ...): give "
        "weights of that model, and the model the options that they were trained with\n");
    test_run_fails(
        "predict --checkpoint run/checkpoint-final.safetensors --output loss --data " IMAGES, 2,
        "kolo: output \"loss\" is [] for 50 samples, not values of each sample: predict "
        "another, such as logits\n");
}

/* Copies weights with every number near the largest float: finite, but sums are not. */
static void write_huge(void) {
    kolo_safetensors *from;
    kolo_safetensors_writer *to;
    ASSERT_OK(kolo_safetensors_open("w.safetensors", &from));
    ASSERT_OK(kolo_safetensors_create("huge.safetensors", &to));
    static float data[64 * 16];
    for (int k = 0; k < 64 * 16; k++) data[k] = k % 3 ? 3e38f : -3e38f;
    for (int i = 0; i < kolo_safetensors_count(from); i++) {
        const kolo_safetensors_entry *e = kolo_safetensors_get(from, i);
        assert_true(kolo_shape_count(&e->shape) <= 64 * 16);
        ASSERT_OK(kolo_safetensors_add(to, e->name, e->dtype, &e->shape, data));
    }
    ASSERT_OK(kolo_safetensors_finish(to));
    kolo_safetensors_destroy(to);
    kolo_safetensors_close(from);
}

static void predictions_of_nan_are_refused(void **state) {
    train_once();
    write_huge();
    assert_int_equal(
        test_run("predict --model mlp:hidden=16 --checkpoint huge.safetensors --data " IMAGES), 1);
    assert_true(test_contains("err", "kolo: huge.safetensors: output \"logits\" of sample "));
    assert_true(test_contains("err", " has NaN: the run diverged, or the weights are damaged\n"));
}

TEST_MAIN(test_command_predict) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(predictions_agree_with_evaluation),
        cmocka_unit_test(workers_share_the_samples),
        cmocka_unit_test(clicks_have_one_logit),
        cmocka_unit_test(numbers_are_predicted),
        cmocka_unit_test(files_that_are_read_are_not_replaced),
        cmocka_unit_test(sequences_predict_the_next_token),
        cmocka_unit_test(predictions_of_nan_are_refused),
        cmocka_unit_test(weights_need_a_model_that_fits),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}

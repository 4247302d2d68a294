/* kolo generate: each token follows from those before it, draws follow the seed; what is refused.
 */
#include "base/compiler.h"
#include "base/file.h"
#include "base/text.h"
#include "support/command.h"
#include "support/folder.h"
#include "support/support.h"

#include <string.h>

#define FINAL "run/checkpoint-final.safetensors"
#define GENERATE "generate --threads 1 --checkpoint " FINAL " "

static void train_once(void) {
    if (kolo_file_exists(FINAL)) return;
    assert_int_equal(
        test_run(
            "train --model gpt2_tiny:layers=1,width=16,heads=2,context=8 "
            "--data text:" KOLO_SOURCE_DIR
            "/README.md --optimizer adam --lr 0.01 --steps 30 --batch 8 --threads 1 --out run"),
        0);
}

/* What the command prints, for kolo_free. */
static char *generate(const char *prompt, int tokens, const char *options) {
    char *command =
        kolo_format(GENERATE "--prompt-tokens %s --tokens %d %s", prompt, tokens, options);
    assert_non_null(command);
    assert_int_equal(test_run(command), 0);
    kolo_free(command);
    return test_contents("out");
}

/* The prompt is longer than the window of 8 in the end. */
static void each_token_follows_from_those_before(void **state) {
    train_once();
    char *all = generate("75,111,108", 12, ""), *at = all;
    int commas = 0;
    for (const char *c = all; *c; c++) commas += *c == ',';
    assert_int_equal(commas, 14);
    for (int i = 0; i < 6; i++) at = strchr(at, ',') + 1; /* seven tokens, and the rest of them */
    char *prompt = kolo_format("%.*s", (int)(at - all) - 1, all);
    assert_non_null(prompt);
    char *rest = generate(prompt, 9, "--temperature 2 --top-k 1 --seed 8");
    assert_string_equal(all, rest);
    kolo_free(all);
    kolo_free(prompt);
    kolo_free(rest);
}

static void draws_follow_the_seed(void **state) {
    train_once();
    char *a = generate("75", 40, "--temperature 1 --seed 1");
    char *same = generate("75", 40, "--temperature 1 --seed 1");
    char *other = generate("75", 40, "--temperature 1 --seed 2");
    char *few = generate("75", 40, "--temperature 1 --seed 1 --top-k 2");
    assert_string_equal(a, same);
    assert_string_not_equal(a, other);
    assert_string_not_equal(a, few);
    kolo_free(a);
    kolo_free(same);
    kolo_free(other);
    kolo_free(few);
}

static void texts_are_bytes(void **state) {
    train_once();
    assert_int_equal(test_run(GENERATE "--prompt Kolo --tokens 6"), 0);
    char *text = test_contents("out");
    assert_int_equal(strncmp(text, "Kolo", 4), 0);
    assert_int_equal(strlen(text), 4 + 6 + 1);
    kolo_free(text);
}

/* Also where the prompt is as long as the window, or longer, and where the window moves. */
static void whole_windows_give_the_same_text(void **state) {
    static const char *const prompts[] = {"75", "75,111,108,111", "1,2,3,4,5,6,7,8",
                                          "9,8,7,6,5,4,3,2,1,0"};
    train_once();
    for (size_t i = 0; i < KOLO_COUNT(prompts); i++) {
        char *kept = generate(prompts[i], 10, "--temperature 1 --seed 3");
        char *whole = generate(prompts[i], 10, "--temperature 1 --seed 3 --whole-window");
        assert_string_equal(kept, whole);
        kolo_free(kept);
        kolo_free(whole);
    }
}

static void recurrent_models_need_whole_windows(void **state) {
    assert_int_equal(test_run("train --model lstm_lm:layers=1,hidden=8,context=8,vocab=256 "
                              "--data text:" KOLO_SOURCE_DIR
                              "/README.md --steps 1 --batch 2 --threads 1 --out lstm"),
                     0);
    test_run_fails("generate --checkpoint lstm/checkpoint-final.safetensors --prompt a", 2,
                   "kolo: lstm_lm keeps no keys and values: lstm takes the tokens of a window "
                   "together, or differs by their positions: give --whole-window\n");
    assert_int_equal(test_run("generate --checkpoint lstm/checkpoint-final.safetensors --prompt a "
                              "--tokens 3 --whole-window"),
                     0);
}

static void what_does_not_fit_is_refused(void **state) {
    train_once();
    test_run_fails(GENERATE, 2, "kolo: give --prompt or --prompt-tokens\n");
    test_run_fails(GENERATE "--prompt-tokens 1,b", 2,
                   "kolo: --prompt-tokens 1,b: give numbers such as 1,2,3\n");
    test_run_fails(GENERATE "--prompt-tokens 1,256", 2,
                   "kolo: token 1 of the prompt is 256: choose numbers from 0 to 255\n");
    test_run_fails(GENERATE "--model lenet --prompt a", 2,
                   "kolo: lenet is no language model: choose one, such as gpt2_tiny\n");
    test_run_fails(GENERATE "--model bert_tiny:vocab=256 --prompt a", 2,
                   "kolo: bert_tiny predicts masked tokens, not the next one: choose a model that "
                   "does, such as gpt2_tiny\n");
    test_run_fails(GENERATE "--model gpt2 --prompt a", 2,
                   "kolo: gpt2 has 50257 tokens, not bytes: give the prompt as their numbers\n");
}

TEST_MAIN(test_command_generate) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_token_follows_from_those_before),
        cmocka_unit_test(draws_follow_the_seed),
        cmocka_unit_test(texts_are_bytes),
        cmocka_unit_test(whole_windows_give_the_same_text),
        cmocka_unit_test(recurrent_models_need_whole_windows),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}

/* The command's help, manual pages and completion, which are generated from the tables of options.
 */
#define _GNU_SOURCE
#include "kolo/train.h"
#include "support/command.h"
#include "support/folder.h"
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void pages_match_the_manual(void **state) {
    static const struct {
        const char *arguments, *page;
    } pages[] = {
        {"help --markdown", "docs/options.md"},
        {"help models --markdown", "docs/models.md"},
    };
    for (size_t i = 0; i < KOLO_COUNT(pages); i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s", KOLO_SOURCE_DIR, pages[i].page);
        assert_int_equal(test_run(pages[i].arguments), 0);
        char *made = test_contents("out"), *kept = test_contents(path);
        if (strcmp(made, kept) != 0) {
            fail_msg("%s is old: kolo %s makes it", pages[i].page, pages[i].arguments);
        }
        kolo_free(made);
        kolo_free(kept);
    }
}

static void every_command_has_help(void **state) {
    static const char *const commands[] = {"train",
                                           "eval",
                                           "bench train",
                                           "bench allreduce",
                                           "bench ps",
                                           "run",
                                           "dump",
                                           "info",
                                           "help",
                                           "bench compress",
                                           "profile",
                                           "checkpoint info",
                                           "checkpoint verify",
                                           "checkpoint diff",
                                           "checkpoint export",
                                           "data info",
                                           "data verify",
                                           "data head",
                                           "data pack",
                                           "data ledger",
                                           "bench sim",
                                           "predict"};
    assert_int_equal(test_run("--help"), 0);
    char *list = test_contents("out");
    for (size_t i = 0; i < KOLO_COUNT(commands); i++) {
        char words[64], usage[64];
        assert_non_null(strstr(list, commands[i]));
        snprintf(words, sizeof words, "%s --help", commands[i]);
        snprintf(usage, sizeof usage, "usage: kolo %s", commands[i]);
        assert_int_equal(test_run(words), 0);
        char *page = test_contents("out");
        assert_memory_equal(page, usage, strlen(usage));
        /* No line is longer than 80 columns. */
        for (char *row = strtok(page, "\n"); row; row = strtok(NULL, "\n")) {
            if (strncmp(row, "usage:", 6) != 0) assert_true(strlen(row) <= 80);
        }
        kolo_free(page);
        snprintf(words, sizeof words, "help %s", commands[i]);
        assert_int_equal(test_run(words), 0);
    }
    kolo_free(list);
    assert_int_equal(test_run("--version"), 0);
    char *version = test_contents("out"), expected[64];
    snprintf(expected, sizeof expected, "kolo %s\n", kolo_version());
    assert_string_equal(version, expected);
    kolo_free(version);
    assert_int_equal(test_run("info"), 0);
    char *info = test_contents("out");
    assert_non_null(strstr(info, "usable processors"));
    assert_non_null(strstr(info, "\nkernels           "));
    kolo_free(info);
}

static void families_and_man_pages(void **state) {
    static const char *const asks[] = {"help bench", "bench --help", "bench -h"};
    for (size_t i = 0; i < KOLO_COUNT(asks); i++) {
        assert_int_equal(test_run(asks[i]), 0);
        char *out = test_contents("out");
        assert_memory_equal(out, "usage: kolo bench COMMAND", 25);
        assert_non_null(strstr(out, "bench allreduce"));
        assert_null(strstr(out, "checkpoint"));
        kolo_free(out);
    }
    assert_int_equal(test_run("help --man"), 0);
    char *page = test_contents("out");
    assert_memory_equal(page, ".TH kolo 1", 10);
    assert_non_null(strstr(page, ".B \\-\\-resume DIR|FILE|latest\n"));
    kolo_free(page);
    if (system("command -v groff >/dev/null") == 0) { /* if installed, checks the page */
        assert_int_equal(system("groff -man -ww -Tutf8 out >page 2>err && test ! -s err"), 0);
    }
}

/* bf16 is rejected or works, in agreement with `kolo info`. */
static void bf16_matches_info(void **state) {
    const char *train = "train --model mlp --data synthetic:N=64,test=8 --batch 8 --steps 2 "
                        "--threads 1 --progress plain --precision bf16";
    assert_int_equal(test_run("info"), 0);
    assert_true(test_contains("out", "devices           cpu ("));
    bool none = test_contains("out", "bf16              no: ");
    bool memory_alone = test_contains("out", "computed in f32: saves memory\n");
    assert_int_equal(test_run(train), none ? 2 : 0);
    bool warned = test_contains("err", "precision bf16 saves memory only");
    assert_true(warned == memory_alone && none == test_contains("err", "precision bf16 takes"));
}

/* The script completes commands, options and values in bash. */
static void commands_options_and_values_are_completed(void **state) {
    assert_int_equal(test_run("help --completion"), 0);
    assert_int_equal(system("mv out kolo.bash"), 0);
    static const struct {
        const char *words, *found;
    } cases[] = {
        {"kolo tra", "train"},
        {"kolo bench allr", "allreduce"},
        {"kolo train --momen", "--momentum"},
        {"kolo bench sim --jit", "--jitter"},
        {"kolo train --optimizer adamw", "adamw"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        char line[512];
        snprintf(line, sizeof line,
                 "bash -c '. ./kolo.bash; COMP_WORDS=(%s); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); "
                 "_kolo; [ \"${COMPREPLY[*]}\" = \"%s\" ]'",
                 cases[i].words, cases[i].found);
        if (system(line) != 0) fail_msg("%s", cases[i].words);
    }
}

TEST_MAIN(test_command_help) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_match_the_manual),
        cmocka_unit_test(every_command_has_help),
        cmocka_unit_test(families_and_man_pages),
        cmocka_unit_test(bf16_matches_info),
        cmocka_unit_test(commands_options_and_values_are_completed),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}

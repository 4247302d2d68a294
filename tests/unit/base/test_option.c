/* base/option: a small table through arguments, config keys, typed values, help, manual and YAML.
 */
#include "base/option.h"
#include "support/support.h"

#include <stdlib.h>
#include <string.h>

enum { COOK = 1, EAT = 2, WASH = 4 };

static const kolo_choice heats[] = {{"low", NULL}, {"medium", NULL}, {"high", NULL}, {NULL, NULL}};
static const kolo_choice speeds[] = {
    {"slow", "takes all night"}, {"fast", "takes an hour"}, {"at-once", "raw"}, {NULL, NULL}};

static const kolo_option rows[] = {
    {.name = "pans",
     .letter = 'n',
     .type = KOLO_OPTION_INT,
     .metavar = "N",
     .preset = "1",
     .min = 1,
     .max = 64,
     .commands = COOK | WASH,
     .help = "number of pans"},
    {.name = "salt",
     .type = KOLO_OPTION_FLOAT,
     .metavar = "G",
     .preset = "0.5",
     .max = 10,
     .commands = COOK,
     .help = "salt in grams"},
    {.name = "heat",
     .type = KOLO_OPTION_CHOICE,
     .choices = heats,
     .preset = "medium",
     .commands = COOK,
     .help = "how hot"},
    {.name = "oil",
     .type = KOLO_OPTION_BYTES,
     .metavar = "BYTES",
     .preset = "4K",
     .min = 1024,
     .max = 1 << 30,
     .commands = COOK,
     .help = "how much oil"},
    {.name = "lid", .type = KOLO_OPTION_FLAG, .commands = COOK, .help = "put the lid on"},
    {.name = "stir",
     .type = KOLO_OPTION_FLAG,
     .preset = "true",
     .commands = COOK,
     .help = "do not stir"},
    {.name = "dish",
     .type = KOLO_OPTION_TEXT,
     .metavar = "NAME",
     .commands = COOK | EAT,
     .required = COOK,
     .help = "what to cook"},
    {.name = "delta",
     .type = KOLO_OPTION_INT,
     .metavar = "N",
     .commands = COOK,
     .help = "any number",
     .unset = "what is left"},
    {.name = "book",
     .type = KOLO_OPTION_TEXT,
     .metavar = "FILE",
     .commands = COOK,
     .not_in_file = true,
     .help = "a book of recipes"},
    {.name = "speed",
     .type = KOLO_OPTION_CHOICE,
     .choices = speeds,
     .n_choices = 2,
     .metavar = "HOW",
     .commands = WASH,
     .help = "how fast"},
    {.name = "fork",
     .type = KOLO_OPTION_TEXT,
     .metavar = "NAME",
     .commands = EAT,
     .help = "which fork"},
};

static const kolo_option_command commands[] = {
    {.name = "cook", .bit = COOK, .summary = "Cooks a dish", .details = "With love."},
    {.name = "eat", .bit = EAT, .summary = "Eats a dish", .arguments = "-- how"},
    {.name = "wash up", .bit = WASH, .summary = "Washes what is left"},
};

static const kolo_option_table table = {"chef", rows, KOLO_COUNT(rows), commands,
                                        KOLO_COUNT(commands)};

/* Splits a line at spaces and parses it as arguments of commands[c]. The words live in `store`. */
static kolo_status parse(kolo_options *o, int c, const char *line, char store[256]) {
    static char *argv[32];
    int argc = 0;
    strcpy(store, line);
    for (char *word = strtok(store, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    argv[argc] = NULL;
    ASSERT_OK(kolo_options_init(o, &table, &commands[c]));
    return kolo_options_parse(o, argc, argv);
}

static void presets_apply_until_overridden(void **state) {
    kolo_options o;
    char store[256];
    ASSERT_OK(parse(&o, 0, "", store));
    assert_int_equal(kolo_options_int(&o, "pans"), 1);
    assert_true(kolo_options_float(&o, "salt") == 0.5);
    assert_int_equal(kolo_options_choice(&o, "heat"), 1);
    assert_int_equal(kolo_options_int(&o, "oil"), 4096);
    assert_false(kolo_options_flag(&o, "lid"));
    assert_true(kolo_options_flag(&o, "stir"));
    assert_null(kolo_options_text(&o, "dish"));
    assert_int_equal(kolo_options_int(&o, "delta"), 0);
    assert_false(kolo_options_given(&o, "pans"));
    assert_int_equal(kolo_options_check(&o), KOLO_ERR_ARG);
    assert_string_equal(kolo_last_error(), "'chef cook' needs --dish NAME (what to cook)");
    kolo_options_fini(&o);
}

static void every_form_of_argument_is_parsed(void **state) {
    kolo_options o;
    char store[256];
    ASSERT_OK(parse(&o, 0,
                    "--pans 3 --salt=1e-3 --heat high --oil 2M --lid --no-stir --dish soup "
                    "--delta -7",
                    store));
    assert_int_equal(kolo_options_int(&o, "pans"), 3);
    assert_true(kolo_options_float(&o, "salt") == 1e-3);
    assert_int_equal(kolo_options_choice(&o, "heat"), 2);
    assert_int_equal(kolo_options_int(&o, "oil"), 2 << 20);
    assert_true(kolo_options_flag(&o, "lid"));
    assert_false(kolo_options_flag(&o, "stir"));
    assert_string_equal(kolo_options_text(&o, "dish"), "soup");
    assert_int_equal(kolo_options_int(&o, "delta"), -7);
    assert_true(kolo_options_given(&o, "pans"));
    ASSERT_OK(kolo_options_check(&o));
    kolo_options_fini(&o);
    ASSERT_OK(parse(&o, 0, "-n 5 -n6 --lid=true --no-lid --dish=--odd --book -", store));
    assert_int_equal(kolo_options_int(&o, "pans"), 6);
    assert_false(kolo_options_flag(&o, "lid"));
    assert_string_equal(kolo_options_text(&o, "dish"), "--odd");
    assert_string_equal(kolo_options_text(&o, "book"), "-");
    kolo_options_fini(&o);
}

static void remaining_arguments_are_kept_for_the_command(void **state) {
    static const struct {
        const char *line;
        int n_rest;
        const char *first;
    } cases[] = {
        {"--fork big -- fast --fork", 2, "fast"},
        {"fast --fork x", 3, "fast"},
        {"-- --", 1, "--"},
        {"--fork big", 0, NULL},
        {"- x", 2, "-"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_options o;
        char store[256];
        ASSERT_OK(parse(&o, 1, cases[i].line, store));
        assert_int_equal(o.n_rest, cases[i].n_rest);
        if (o.n_rest) assert_string_equal(o.rest[0], cases[i].first);
        kolo_options_fini(&o);
    }
}

static void errors_name_option_value_and_allowed_values(void **state) {
    static const struct {
        const char *line, *text;
    } cases[] = {
        {"--pans 0", "--pans 0: must be an integer from 1 to 64"},
        {"--pans -3", "--pans -3: must be an integer from 1 to 64"},
        {"--pans 65", "--pans 65: must be an integer from 1 to 64"},
        {"--pans 2.5", "--pans 2.5: must be an integer from 1 to 64"},
        {"--pans 99999999999999999999",
         "--pans 99999999999999999999: must be an integer from 1 to 64"},
        {"--pans=", "--pans '': must be an integer from 1 to 64"},
        {"-n x", "--pans x: must be an integer from 1 to 64"},
        {"--salt nan", "--salt nan: must be a number from 0 to 10"},
        {"--salt inf", "--salt inf: must be a number from 0 to 10"},
        {"--salt -0.1", "--salt -0.1: must be a number from 0 to 10"},
        {"--salt 1g", "--salt 1g: must be a number from 0 to 10"},
        {"--oil 1X", "--oil 1X: must be a number of bytes, such as 4096, 64K or 1M, from 1K to 1G"},
        {"--oil 9223372036854775807G",
         "--oil 9223372036854775807G: must be a number of bytes, such as 4096, 64K or 1M, from 1K "
         "to 1G"},
        {"--heat hihg", "--heat hihg: must be one of low, medium, high; did you mean high?"},
        {"--heat 7", "--heat 7: must be one of low, medium, high"},
        {"--lid=perhaps", "--lid perhaps: must be true or false"},
        {"--dish=", "--dish '': must be a non-empty string"},
        {"--pan 3", "unknown option --pan: did you mean --pans?"},
        {"--no-pans", "unknown option --no-pans: did you mean --pans?"},
        {"--zzzzzz", "unknown option --zzzzzz: 'chef cook --help' lists the options"},
        {"-z", "unknown option -z: 'chef cook --help' lists the options"},
        {"--fork x", "--fork is an option of 'chef eat', not of 'chef cook'"},
        {"--pans", "--pans needs a value: --pans N"},
        {"--dish --lid", "--dish needs a value: --dish NAME"},
        {"-n", "-n needs a value: -n N"},
        {"soup", "unexpected argument 'soup': options of 'chef cook' start with --"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_options o;
        char store[256];
        assert_int_equal(parse(&o, 0, cases[i].line, store), KOLO_ERR_ARG);
        assert_string_equal(kolo_last_error(), cases[i].text);
        kolo_options_fini(&o);
    }
}

static void file_values_are_checked_and_overridden_by_flags(void **state) {
    kolo_options o;
    char store[256];
    ASSERT_OK(parse(&o, 0, "--pans 3", store));
    ASSERT_OK(kolo_options_set_from_file(&o, "f:1:1", "pans", "9"));
    ASSERT_OK(kolo_options_set_from_file(&o, "f:2:1", "salt", "2"));
    assert_int_equal(kolo_options_int(&o, "pans"), 3);
    assert_true(kolo_options_float(&o, "salt") == 2);
    ASSERT_OK(kolo_options_set_from_file(&o, "f:2:1", "fork", "x")); /* an option of 'chef eat' */
    static const struct {
        const char *name, *value, *text;
    } cases[] = {
        {"pans", "0", "f:3:1: pans 0: must be an integer from 1 to 64"},
        {"heats", "low", "f:3:1: unknown key heats: did you mean heat?"},
        {"book", "x", "f:3:1: book is allowed on the command line only"},
        {"lid", "yes", "f:3:1: lid yes: must be true or false"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        assert_int_equal(kolo_options_set_from_file(&o, "f:3:1", cases[i].name, cases[i].value),
                         KOLO_ERR_ARG);
        assert_string_equal(kolo_last_error(), cases[i].text);
    }
    kolo_options_fini(&o);
}

static void help_stops_parsing(void **state) {
    kolo_options o;
    char store[256];
    ASSERT_OK(parse(&o, 0, "--lid --help --nonsense", store));
    assert_true(o.help);
    kolo_options_fini(&o);
}

static void sizes_are_powers_of_1024(void **state) {
    static const struct {
        const char *text;
        int64_t bytes; /* -1: rejected */
    } cases[] = {
        {"0", 0},          {"8", 8},   {"1K", 1024}, {"3k", 3072},        {"16M", 16 << 20},
        {"2G", 2LL << 30}, {"-1", -1}, {"", -1},     {"K", -1},           {"1KB", -1},
        {"1.5K", -1},      {" 1", -1}, {"0x10", -1}, {"8589934592G", -1},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        int64_t bytes = -1;
        assert_int_equal(kolo_parse_bytes(cases[i].text, &bytes), cases[i].bytes >= 0);
        assert_int_equal(bytes, cases[i].bytes);
    }
}

static void help_is_written_from_the_table(void **state) {
    kolo_text t = {0};
    kolo_options_help(&table, &commands[0], &t);
    assert_string_equal(t.text,
                        "usage: chef cook --dish NAME [options]\n"
                        "\n"
                        "Cooks a dish\n"
                        "\n"
                        "With love.\n"
                        "\n"
                        "options:\n"
                        "  -n, --pans N            number of pans (default: 1; from 1 to 64)\n"
                        "  --salt G                salt in grams (default: 0.5; from 0 to 10)\n"
                        "  --heat low|medium|high  how hot (default: medium)\n"
                        "  --oil BYTES             how much oil (default: 4K; from 1K to 1G)\n"
                        "  --lid                   put the lid on\n"
                        "  --no-stir               do not stir\n"
                        "  --dish NAME             what to cook (required)\n"
                        "  --delta N               any number (default: what is left)\n"
                        "  --book FILE             a book of recipes\n");
    kolo_text_fini(&t);
    kolo_options_help(&table, &commands[2], &t);
    assert_non_null(strstr(t.text, "  --speed HOW             how fast\n"
                                   "                            slow  takes all night\n"
                                   "                            fast  takes an hour\n"));
    assert_null(strstr(t.text, "at-once"));
    kolo_text_fini(&t);
    kolo_options_help_program(&table, NULL, &t);
    assert_string_equal(t.text, "  cook              Cooks a dish\n"
                                "  eat               Eats a dish\n"
                                "  wash up           Washes what is left\n");
    kolo_text_fini(&t);
    kolo_options_markdown(&table, &t);
    assert_non_null(strstr(t.text, "\n## chef eat\n\n    chef eat [options] -- how\n"));
    assert_non_null(
        strstr(t.text, "| `--heat low\\|medium\\|high` | how hot (default: medium) |\n"));
    assert_non_null(strstr(
        t.text, "| `--speed HOW` | how fast. slow: takes all night; fast: takes an hour |\n"));
    kolo_text_fini(&t);
}

static void only_the_first_choices_are_allowed(void **state) {
    kolo_options o;
    char store[256];
    ASSERT_OK(parse(&o, 2, "--speed fast", store));
    assert_int_equal(kolo_options_choice(&o, "speed"), 1);
    kolo_options_fini(&o);
    assert_int_equal(parse(&o, 2, "--speed at-once", store), KOLO_ERR_ARG);
    assert_string_equal(kolo_last_error(), "--speed at-once: must be one of slow, fast");
    kolo_options_fini(&o);
}

static void resolved_values_are_written_as_a_config_file(void **state) {
    kolo_options o;
    char store[256];
    ASSERT_OK(parse(&o, 0, "--dish=a\"b --salt 0.1 --oil 1M --lid --book b", store));
    kolo_text t = {0};
    kolo_options_yaml(&o, NULL, &t);
    assert_string_equal(t.text, "pans: 1\n"
                                "salt: 0.1\n"
                                "heat: \"medium\"\n"
                                "oil: 1048576\n"
                                "lid: true\n"
                                "stir: true\n"
                                "dish: \"a\\\"b\"\n");
    kolo_text_fini(&t);
    kolo_options_fini(&o);
}

static void each_failed_allocation_is_reported(void **state) {
    char *argv[] = {"--pans", "3", "--dish", "soup", "--pan", "4"};
    for (int n = 1;; n++) {
        kolo_options o = {0};
        kolo_alloc_fail_nth(n);
        kolo_status status = kolo_options_init(&o, &table, &commands[0]);
        if (status == KOLO_OK) status = kolo_options_parse(&o, 6, argv);
        kolo_alloc_fail_nth(0);
        kolo_options_fini(&o);
        if (status == KOLO_ERR_ARG) break; /* the unknown option: no allocation failed */
        assert_int_equal(status, KOLO_ERR_NOMEM);
        assert_true(n < 100);
    }
}

TEST_MAIN(test_option) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_apply_until_overridden),
        cmocka_unit_test(every_form_of_argument_is_parsed),
        cmocka_unit_test(remaining_arguments_are_kept_for_the_command),
        cmocka_unit_test(errors_name_option_value_and_allowed_values),
        cmocka_unit_test(file_values_are_checked_and_overridden_by_flags),
        cmocka_unit_test(help_stops_parsing),
        cmocka_unit_test(sizes_are_powers_of_1024),
        cmocka_unit_test(help_is_written_from_the_table),
        cmocka_unit_test(only_the_first_choices_are_allowed),
        cmocka_unit_test(resolved_values_are_written_as_a_config_file),
        cmocka_unit_test(each_failed_allocation_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

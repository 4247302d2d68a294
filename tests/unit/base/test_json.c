/* base/json: output compared as text and parsed by jansson. */
#include "base/json.h"
#include "base/memory.h"
#include "base/number.h"
#include "support/support.h"

#include <float.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void print_sample(kolo_json *j) {
    kolo_json_object(j, NULL);
    kolo_json_string(j, "model", "lenet");
    kolo_json_array(j, "rows");
    kolo_json_int(j, NULL, INT64_MIN);
    kolo_json_object(j, NULL);
    kolo_json_close(j);
    kolo_json_array(j, NULL);
    kolo_json_close(j);
    kolo_json_bool(j, NULL, true);
    kolo_json_close(j);
    kolo_json_null(j, "nothing");
    kolo_json_string(j, "none", NULL);
    kolo_json_raw(j, "raw", "[1]");
    kolo_json_double(j, "loss", 0.1);
    kolo_json_close(j);
}

static void prints_on_one_line(void **state) {
    kolo_text text = {0};
    kolo_json j = {.out = &text};
    print_sample(&j);
    assert_string_equal(text.text,
                        "{\"model\": \"lenet\", \"rows\": [-9223372036854775808, {}, [], true], "
                        "\"nothing\": null, \"none\": null, \"raw\": [1], \"loss\": 0.1}");
    kolo_text_fini(&text);
}

static void prints_indented(void **state) {
    kolo_text text = {0};
    kolo_json j = {.out = &text, .indent = 2};
    print_sample(&j);
    assert_string_equal(text.text, "{\n"
                                   "  \"model\": \"lenet\",\n"
                                   "  \"rows\": [\n"
                                   "    -9223372036854775808,\n"
                                   "    {},\n"
                                   "    [],\n"
                                   "    true\n"
                                   "  ],\n"
                                   "  \"nothing\": null,\n"
                                   "  \"none\": null,\n"
                                   "  \"raw\": [1],\n"
                                   "  \"loss\": 0.1\n"
                                   "}");
    kolo_text_fini(&text);
}

static void doubles_read_back_exactly(void **state) {
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {0.0, "0"},
        {-0.0, "-0"},
        {1.0, "1"},
        {0.1, "0.1"},
        {1e300, "1e+300"},
        {1.0 / 3, "0.3333333333333333"},
        {0.1 + 0.2, "0.30000000000000004"},
        {NAN, "null"},
        {INFINITY, "null"},
        {-INFINITY, "null"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_text text = {0};
        kolo_json_double(&(kolo_json){.out = &text}, NULL, cases[i].value);
        assert_string_equal(text.text, cases[i].text);
        kolo_text_fini(&text);
    }
    uint64_t bits = 1;
    for (int i = 0; i < 20000; i++) {
        bits = bits * 6364136223846793005u + 1442695040888963407u;
        double value;
        char text[32];
        memcpy(&value, &bits, sizeof value);
        kolo_double_text(value, text);
        if (isfinite(value)) assert_true(strtod(text, NULL) == value);
    }
    char text[32];
    kolo_double_text(-DBL_MAX, text);
    assert_true(strtod(text, NULL) == -DBL_MAX);
}

static void strings_are_escaped_and_always_utf8(void **state) {
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"", "\"\""},
        {"a\"b\\c/d", "\"a\\\"b\\\\c/d\""},
        {"\b\t\n\f\r\x01\x1f\x7f", "\"\\b\\t\\n\\f\\r\\u0001\\u001f\\u007f\""},
        {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\""},
        {"a\xffz", "\"a\xef\xbf\xbdz\""},
        {"\xc3", "\"\xef\xbf\xbd\""},                                 /* cut short */
        {"\xc0\xaf", "\"\xef\xbf\xbd\xef\xbf\xbd\""},                 /* overlong */
        {"\xed\xa0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""}, /* surrogate */
        {"\xf4\x90\x80\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_text text = {0};
        kolo_json_string(&(kolo_json){.out = &text}, NULL, cases[i].in);
        assert_string_equal(text.text, cases[i].out);
        kolo_text_fini(&text);
    }
}

/* Every byte value, in pairs, through an independent strict parser. */
static void jansson_accepts_any_string(void **state) {
    for (int c = 1; c < 65536; c += 7) {
        char word[] = {'k', (char)(c >> 8 ? c >> 8 : 1), (char)(c & 255), 'z', 0};
        kolo_text text = {0};
        kolo_json j = {.out = &text};
        kolo_json_object(&j, NULL);
        kolo_json_string(&j, word, word);
        kolo_json_close(&j);
        json_error_t error;
        json_t *read = json_loads(text.text, JSON_REJECT_DUPLICATES, &error);
        if (!read) fail_msg("%s: %s", text.text, error.text);
        json_decref(read);
        kolo_text_fini(&text);
    }
}

static void out_of_memory_sets_failed(void **state) {
    kolo_text text = {0};
    kolo_json j = {.out = &text};
    kolo_alloc_fail_nth(2);
    print_sample(&j);
    kolo_alloc_fail_nth(0);
    assert_true(text.failed);
    kolo_text_fini(&text);
}

TEST_MAIN(test_json) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prints_on_one_line),
        cmocka_unit_test(prints_indented),
        cmocka_unit_test(doubles_read_back_exactly),
        cmocka_unit_test(strings_are_escaped_and_always_utf8),
        cmocka_unit_test(jansson_accepts_any_string),
        cmocka_unit_test(out_of_memory_sets_failed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

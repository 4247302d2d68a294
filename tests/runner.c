/* The test runner: one program that holds every test file, each with its own entry point.
 *
 *     kolo-tests            lists the tests
 *     kolo-tests NAME       runs one test; its exit status is the number of failed cases, 77 if the
 *                           test cannot run on this machine
 *     kolo-tests NAME CASE  runs its cases whose names match, with * and ? as wildcards
 *
 * CMake generates the table of entry points from the names of the test sources. A rank process of
 * support/ranks.h is this program again, so it runs the body it was started for and nothing else.
 */
#include "base/compiler.h"
#include "support/rank_starter.h"
#include "support/ranks.h"
#include "support/support.h"

#include <string.h>

#define TEST(name) int name##_main(int argc, char **argv);
#include KOLO_TEST_TABLE
#undef TEST

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} tests[] = {
#define TEST(name) {#name, name##_main},
#include KOLO_TEST_TABLE
#undef TEST
};

int main(int argc, char **argv) {
    if (rank_starter_is(argc, argv)) rank_starter_main(argv);
    if (ranks_is_child()) return ranks_child();
    for (size_t i = 0; i < KOLO_COUNT(tests); i++) {
        if (argc < 2) {
            puts(tests[i].name);
        } else if (strcmp(argv[1], tests[i].name) == 0) {
            if (argc == 3) cmocka_set_test_filter(argv[2]);
            return tests[i].run(argc - 1, argv + 1);
        }
    }
    if (argc < 2) return 0;
    fprintf(stderr, "%s: no test %s; without arguments the tests are listed\n", argv[0], argv[1]);
    return 2;
}

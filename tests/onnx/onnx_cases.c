/* Runs ONNX test cases: kolo-onnx-cases FOLDER... Prints a line for each, then a table by operator.
 */
#include "kolo/status.h"
#include "support/onnx_case.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MOST_ROWS = 512 };

typedef struct row {
    char name[ONNX_CASE_OP];
    int passed, failed;
} row;

static row rows[MOST_ROWS];
static int n_rows;

static void count(const char *op, bool passed) {
    int r = 0;
    while (r < n_rows && strcmp(rows[r].name, op) != 0) r++;
    if (r == MOST_ROWS) return;
    if (r == n_rows) snprintf(rows[n_rows++].name, ONNX_CASE_OP, "%s", op);
    rows[r].passed += passed;
    rows[r].failed += !passed;
}

int main(int argc, char **argv) {
    int passed = 0;
    for (int i = 1; i < argc; i++) {
        char op[ONNX_CASE_OP];
        const bool pass = onnx_case_run(argv[i], 1e-4, op) == KOLO_OK;
        const char *slash = strrchr(argv[i], '/');
        count(op, pass);
        passed += pass;
        printf("%s %s%s%s\n", pass ? "pass" : "FAIL", slash ? slash + 1 : argv[i], pass ? "" : ": ",
               pass ? "" : kolo_last_error());
    }
    printf("| operator | passed | failed |\n| --- | --- | --- |\n");
    for (int r = 0; r < n_rows; r++) {
        printf("| %s | %d | %d |\n", rows[r].name, rows[r].passed, rows[r].failed);
    }
    printf("%d of %d cases passed\n", passed, argc - 1);
    return 0;
}

/* kolo checkpoint info | verify | diff | export: weights files. */
#include "kolo/checkpoint.h"

#include "cli/commands/commands.h"
#include "cli/launcher/error_report.h"
#include "cli/output/output.h"

#include <stdio.h>

/* Checks that `n` files are given. */
static bool check_files(const kolo_options *o, int n) {
    if (o->n_rest == n) return true;
    fprintf(stderr, "kolo: 'kolo %s' takes %s\n", o->command->name,
            n == 1 ? "one file" : "two files");
    return false;
}

/* Prints and frees a text from the library. */
static int print(kolo_status status, char *made) {
    if (status != KOLO_OK) return report_failure(status);
    kolo_text text = {0};
    kolo_text_add(&text, "%s", made);
    kolo_checkpoint_text_free(made);
    status = output_print(&text);
    kolo_text_fini(&text);
    return status == KOLO_OK ? 0 : report_failure(status);
}

int cmd_checkpoint_info(kolo_options *o) {
    char *text = NULL;
    if (!check_files(o, 1)) return 2;
    kolo_status status = kolo_checkpoint_describe(o->rest[0], &text);
    int failed = print(status, text);
    if (failed) return failed;
    status = kolo_checkpoint_check(o->rest[0]); /* the description covers the header only */
    return status == KOLO_OK ? 0 : report_failure(status);
}

int cmd_checkpoint_verify(kolo_options *o) {
    char *text = NULL;
    if (!check_files(o, 1)) return 2;
    kolo_status status = kolo_checkpoint_verify(o->rest[0], &text);
    return print(status, text);
}

/* Exits with 1 if the files differ, like diff. */
int cmd_checkpoint_diff(kolo_options *o) {
    char *text = NULL;
    bool equal = false;
    if (!check_files(o, 2)) return 2;
    kolo_status status = kolo_checkpoint_compare(o->rest[0], o->rest[1], &equal, &text);
    int failed = print(status, text);
    return failed ? failed : !equal;
}

int cmd_checkpoint_export(kolo_options *o) {
    if (!check_files(o, 1)) return 2;
    kolo_status status =
        kolo_checkpoint_export(o->rest[0], kolo_options_text(o, "out"),
                               (kolo_checkpoint_format)kolo_options_choice(o, "format"));
    return status == KOLO_OK ? 0 : report_failure(status);
}

/* kolo data ledger: the samples that a run has used. */
#include "kolo/data.h"

#include "cli/commands/commands.h"
#include "cli/launcher/error_report.h"
#include "cli/output/output.h"

#include <stdio.h>

int cmd_data_ledger(kolo_options *o) {
    char *made = NULL;
    bool exact = false;
    if (o->n_rest != 1) {
        fprintf(stderr, "kolo: 'kolo data ledger' takes the FILE of --ledger\n");
        return 2;
    }
    kolo_status status = kolo_ledger_check(o->rest[0], &exact, &made);
    if (status != KOLO_OK) return report_failure(status);
    kolo_text text = {0};
    kolo_text_add(&text, "%s", made);
    kolo_ledger_text_free(made);
    status = output_print(&text);
    kolo_text_fini(&text);
    if (status != KOLO_OK) return report_failure(status);
    return exact ? 0 : 1;
}

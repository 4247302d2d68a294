/* Writing of ledgers. */
#include "data/ledger.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

struct kolo_ledger {
    char *path;
    FILE *file;
};

/* Bytes of the complete lines. */
static kolo_status complete_bytes(const kolo_ledger *l, size_t *bytes) {
    long at = 0;
    int c = EOF;
    if (fseek(l->file, 0, SEEK_END) == 0) at = ftell(l->file);
    while (at > 0 && c != '\n') {
        if (fseek(l->file, at - 1, SEEK_SET) != 0) break;
        c = getc(l->file);
        if (c != '\n') at--;
    }
    if (at < 0 || ferror(l->file)) return kolo_file_fail("read", l->path, errno);
    *bytes = (size_t)at;
    return KOLO_OK;
}

/* Whether a file begins as ledgers do, as far as it goes. */
static bool is_ledger(const kolo_ledger *l) {
    char head[sizeof kolo_ledger_head - 1];
    rewind(l->file);
    const size_t n = fread(head, 1, sizeof head, l->file);
    return memcmp(head, kolo_ledger_head, n) == 0;
}

/* Writes the lines so far, so that they outlive this process. */
static kolo_status flush(const kolo_ledger *l) {
    if (fflush(l->file) == 0 && !ferror(l->file)) return KOLO_OK;
    return kolo_file_fail("write", l->path, errno);
}

static kolo_status begin(kolo_ledger *l, const kolo_ledger_run *run, bool resumes) {
    size_t bytes = 0;
    KOLO_TRY(kolo_file_open_locked(l->path, &l->file));
    if (!is_ledger(l)) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s is not a ledger: choose another file with --ledger",
                         l->path);
    }
    KOLO_TRY(complete_bytes(l, &bytes));
    if (bytes > 0 && !resumes) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s is the ledger of another run: choose another file with --ledger, or "
                         "remove it",
                         l->path);
    }
    KOLO_TRY(kolo_file_truncate(l->file, l->path, bytes));
    if (bytes == 0) fputs(kolo_ledger_head, l->file);
    fprintf(l->file,
            "run %" PRId64 " from step %" PRId64 " after run %" PRId64 ", rank %d of %d, %" PRId64
            " samples, %" PRId64 " steps, lag %" PRId64 "\n",
            run->number, run->first, run->after, run->rank, run->ranks, run->samples, run->steps,
            run->lag);
    return flush(l);
}

kolo_status kolo_ledger_open(const char *path, const kolo_ledger_run *run, bool resumes,
                             kolo_ledger **ledger) {
    kolo_ledger *l = kolo_zalloc(sizeof *l);
    if (!l) return KOLO_NOMEM(sizeof *l);
    l->path = kolo_format("%s.%d", path, run->rank);
    kolo_status status = l->path ? begin(l, run, resumes) : KOLO_NOMEM(strlen(path));
    if (status != KOLO_OK) {
        kolo_ledger_close(l);
        return status;
    }
    *ledger = l;
    return KOLO_OK;
}

kolo_status kolo_ledger_add(const kolo_ledger *l, const kolo_batch *batch) {
    fprintf(l->file, "epoch %" PRId64 " step %" PRId64 " of %" PRId64 ":", batch->epoch,
            batch->step, batch->global_count);
    for (int64_t i = 0; i < batch->count; i++) {
        fprintf(l->file, " %" PRId64, batch->indices[i]);
    }
    fprintf(l->file, "\n");
    return flush(l);
}

kolo_status kolo_ledger_add_loss(const kolo_ledger *l, int rank, int64_t steps) {
    fprintf(l->file, "lost %d after %" PRId64 " steps\n", rank, steps);
    return flush(l);
}

kolo_status kolo_ledger_sync(const kolo_ledger *l) {
    if (!l || fsync(fileno(l->file)) == 0) return KOLO_OK;
    return kolo_file_fail("write", l->path, errno);
}

void kolo_ledger_close(kolo_ledger *l) {
    if (!l) return;
    if (l->file) fclose(l->file);
    kolo_free(l->path);
    kolo_free(l);
}
